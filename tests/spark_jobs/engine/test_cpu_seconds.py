"""What a stage is said to have used, whichever processes begin and end meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from spark_jobs.engine import session
from spark_jobs.engine.session import CpuSeconds, _Used

HERE, JVM, DAEMON, WORKER, LATER = ((number, 0.0) for number in range(5))

BEFORE = {
    HERE: _Used(10.0, 0.0, None),
    JVM: _Used(20.0, 1.0, HERE),
    DAEMON: _Used(1.0, 0.0, JVM),
    WORKER: _Used(17.0, 0.0, DAEMON),
}


@pytest.mark.parametrize(
    ("changes", "spent"),
    [
        ({}, 0.0),
        ({HERE: (12.0, 0.0), WORKER: (20.0, 0.0)}, 5.0),
        # a worker that came counts with all it used, one that nobody waited for takes nothing with it
        ({HERE: (12.0, 0.0), WORKER: None, LATER: (3.0, 0.0)}, 5.0),
        # whoever waited for one has what it used before, and since
        ({DAEMON: (1.5, 18.0), WORKER: None}, 1.5),
        ({JVM: (20.5, 19.5), DAEMON: None, WORKER: None}, 1.0),
        ({HERE: (11.0, 41.0), JVM: None, DAEMON: None, WORKER: None}, 3.0),
        # an end of a process that was there before, and of one that was not
        ({JVM: (20.5, 1.0 + 0.7), DAEMON: (1.0, 0.2)}, 1.4),
    ],
)
def test_each_process_is_compared_with_itself(
    changes: dict[tuple[int, float], tuple[float, float] | None], spent: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_processes", lambda: BEFORE)
    cpu = CpuSeconds()
    now = dict(BEFORE)
    for process, used in changes.items():
        if used is None:
            del now[process]
        else:
            parent = DAEMON if process is LATER else BEFORE[process].parent
            now[process] = _Used(*used, parent)
    monkeypatch.setattr(session, "_processes", lambda: now)
    assert cpu.spent() == pytest.approx(spent)


def test_this_process_counts() -> None:
    cpu, begun = CpuSeconds(), time.process_time()
    while time.process_time() < begun + 0.1:
        pass
    # the system counts in hundredths of a second
    assert cpu.spent() >= 0.07
    assert (os.getpid(), session.psutil.Process().create_time()) in session._processes()


def test_processes_of_the_machine_are_listed_only_for_children(monkeypatch: pytest.MonkeyPatch) -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    cpu = CpuSeconds()
    with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert session._has_children()
        assert cpu.spent() >= 0.15
        child.communicate(b"\n")
    # one that ended and was waited for counts without a list
    monkeypatch.setattr(session, "_has_children", lambda: False)
    monkeypatch.setattr(session.psutil.Process, "children", lambda *_, **__: pytest.fail("listed"))
    cpu = CpuSeconds()
    subprocess.run([sys.executable, "-c", burn], input=b"\n", stdout=subprocess.PIPE, check=True)
    assert cpu.spent() >= 0.15
