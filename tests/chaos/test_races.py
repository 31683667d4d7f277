"""Races of drivers over one warehouse: drawn orderings, two processes at once, and holders that lost their lease.

``make chaos`` plays 1,000 orderings, and two processes that commit 2,000 times each. A failure prints what happened and
the command that repeats it.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.store.warehouse import warehouse
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.chaos import commits
from tests.chaos.conftest import Counted
from tests.chaos.world import INTRUDERS, STEPS, interrupted, race, template

ROUNDS = int(os.environ.get("HEDDLE_CHAOS", "0"))
SEED = int(os.environ.get("HEDDLE_CHAOS_SEED", "0"))
ROOT = Path(__file__).resolve().parents[2]

FEW, MORE, MANY = 4, 60, 1000
"""Orderings of `make test`, of `make test-slow`, and of `make chaos`, which plays them in so many parts."""

PARTS = 20


def repeat(test: str, seed: int) -> str:
    return f"HEDDLE_CHAOS_SEED={seed} make test PYTEST='tests/chaos/test_races.py -k {test}'"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return template(tmp_path_factory.mktemp("races"))


def orderings(places: tuple[Path, Path], first: int, count: int) -> tuple[Counter[str], int]:
    refused: Counter[str] = Counter()
    broken = 0
    for seed in range(first, first + count):
        try:
            orders, played = race(*places, seed)
        except AssertionError as error:
            pytest.fail(f"{error}\n\nseed {seed}; once more: {repeat('test_some_orderings', seed)}")
        refused += played.refused
        broken += orders.broken
    return refused, broken


def test_some_orderings(places: tuple[Path, Path]) -> None:
    """With HEDDLE_CHAOS_SEED: that ordering alone."""
    refused, broken = orderings(places, SEED, 1) if SEED else orderings(places, 10, FEW)
    assert SEED or (broken and refused["HDL-510"])


@pytest.mark.longer
def test_more_orderings(places: tuple[Path, Path]) -> None:
    orderings(places, 100, MORE)


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("part", range(PARTS))
def test_many_orderings(places: tuple[Path, Path], part: int, counted: Counted) -> None:
    count = (MANY if ROUNDS else 60) // PARTS
    refused, broken = orderings(places, 1000 + part * count, count)
    counted("orderings of drivers", count, leases_taken_away=broken, **refused)


# ------------------------------------------------------------------------------------ one that interrupts
BOTH = (False, True)
EVERY = [
    (step, after, intruder, narrow) for intruder in INTRUDERS for step in STEPS for after in BOTH for narrow in BOTH
]


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_a_run_is_interrupted(places: tuple[Path, Path], number: int) -> None:
    """At each step by something, and by everything at some step."""
    interrupted(
        *places, list(STEPS)[number], number % 2 == 1, list(INTRUDERS)[(number + 2) % len(INTRUDERS)], number < 6
    )


@pytest.mark.parametrize("intruder", [list(INTRUDERS)[number] for number in (1, 2, 4)])
def test_a_run_of_single_windows_is_overtaken(places: tuple[Path, Path], intruder: str) -> None:
    """Others publish the interval meanwhile: what goes with the answers that were there is not published."""
    played = interrupted(*places, "publish", False, intruder, narrow=True)
    assert played.refused["HDL-541"] + played.refused["HDL-512"] > 0


def test_a_run_that_listed_earlier_does_not_go_on_with_what_it_does_not_know(places: tuple[Path, Path]) -> None:
    """What is published meanwhile has late events that this run has not listed: it does not publish over it either."""
    played = interrupted(*places, "reconcile", False, "a run of the same, with late events")
    assert played.refused["HDL-541"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("step", "after", "intruder", "narrow"), EVERY)
def test_a_run_is_interrupted_by_everything_everywhere(
    places: tuple[Path, Path], step: str, after: bool, intruder: str, narrow: bool, counted: Counted
) -> None:
    interrupted(*places, step, after, intruder, narrow)
    counted("runs interrupted at a step")


# ---------------------------------------------------------------------------------- two processes at once
def test_two_processes_commit_at_once(tmp_path: Path) -> None:
    stress(tmp_path, 60)


@pytest.mark.longer
def test_two_processes_commit_hundreds_of_times(tmp_path: Path) -> None:
    stress(tmp_path, 150)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_processes_commit_thousands_of_times(tmp_path: Path, counted: Counted) -> None:
    rounds = 2000 if ROUNDS else 300
    published, tokens = stress(tmp_path, rounds)
    counted("commits of two drivers at once", 2 * rounds, publications_beside=published, leases=tokens)


def stress(place: Path, rounds: int) -> tuple[int, int]:
    """Two processes append, replace and number under the lease: each commit is there once, none saw a stale number.
    How many publications and leases there were."""
    house = Warehouse.open(place / "warehouse")
    before = int((house.root / ".lease").read_text())
    command = [sys.executable, "-m", "tests.chaos.commits", str(house.root), str(rounds)]
    running = [subprocess.Popen([*command, name], cwd=ROOT) for name in ("left", "right")]
    assert [process.wait(timeout=3000) for process in running] == [0, 0]
    rows = house.rows("quarantine")
    assert sorted((row["run_id"], row["rows"]) for row in rows) == sorted(
        (name, number) for name in ("left", "right") for number in range(rounds)
    )
    # each was numbered by the version that it follows
    assert sorted(int(row["detail"]) for row in rows) == list(range(2 * rounds))
    replaced = commits.standing(house)
    assert set(replaced) == set(range(commits.SPANS)) and all(len(revisions) == 1 for revisions in replaced.values())
    published = [row for row in house.rows("publish_log") if row["event"] == "published"]
    # the table's transactions are what the log says, and the newest of each is what stands
    newest: dict[str, int] = {}
    for row in published:
        newest[row["content"]] = max(newest.get(row["content"], 0), row["revision"])
    assert len({(row["content"], row["revision"]) for row in published}) == len(published)
    assert {f"{span}": revisions[0] for span, revisions in replaced.items()} == newest
    tokens = int((house.root / ".lease").read_text()) - before
    refused = 2 * -(-rounds // commits.EVERY) - len(published)
    assert tokens == 2 * rounds + 3 * len(published) + 2 * refused
    return len(published), tokens


# --------------------------------------------------------------------------- holders that lost their lease
@pytest.fixture(scope="module")
def stopping() -> Iterator[subprocess.Popen[str]]:
    """A process that does what it is told and stops (SIGSTOP) at a point of it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.commits"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait(60)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse to copy."""
    house = Warehouse.open(tmp_path_factory.mktemp("prepared") / "warehouse")
    commits.prepare(house)
    return house.root


@pytest.mark.parametrize("what", commits.DEEDS)
@pytest.mark.parametrize(
    "point", [*commits.STOPS[2:], *(pytest.param(point, marks=pytest.mark.slow) for point in commits.STOPS[:2])]
)
def test_a_holder_that_was_stopped_commits_nothing(
    prepared: Path, tmp_path: Path, stopping: subprocess.Popen[str], what: str, point: str
) -> None:
    """Stopped before or after any step under its lease, another having committed meanwhile: HDL-510, nothing done."""
    shutil.copytree(prepared, tmp_path / "warehouse")
    house = Warehouse.open(tmp_path / "warehouse")
    assert stopping.stdin is not None and stopping.stdout is not None
    print(json.dumps([str(house.root), what, point]), file=stopping.stdin, flush=True)
    stopped = threading.Timer(60, os.kill, (stopping.pid, signal.SIGKILL))
    stopped.start()
    _, status = os.waitpid(stopping.pid, os.WUNTRACED)
    stopped.cancel()
    assert os.WIFSTOPPED(status), f"there is no {point} in {what}"
    try:
        # another host believes that it is dead
        content = (house.root / ".lease").read_bytes()
        (house.root / ".lease").unlink()
        (house.root / ".lease").write_bytes(content)
        commits.DEEDS[what](house, "other")
        before = commits.state(house)
    finally:
        os.kill(stopping.pid, signal.SIGCONT)
    assert stopping.stdout.readline().strip() == "HDL-510"
    assert commits.state(house) == before


def test_a_lock_of_a_file_that_was_removed_is_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house, locked, flock = Warehouse.open(tmp_path / "warehouse"), [], fcntl.flock

    def late(file: int, operation: int) -> None:
        if not locked:
            (house.root / ".lease").unlink()
        locked.append(file)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with house.lease() as token:
        house.check_lease(token)
        assert os.path.samestat(os.fstat(locked[-1]), (house.root / ".lease").stat())
    assert len(locked) == 2


def test_a_token_survives_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = Warehouse.open(tmp_path / "warehouse")
    with house.lease() as token:
        pass
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(HeddleError, match="HDL-542 .*No space left"), house.lease():
            pass
    with house.lease() as after:
        assert after == token + 1
    (house.root / ".lease").write_text("not a number")
    with pytest.raises(HeddleError, match="HDL-540"), house.lease():
        pass


def test_a_commit_that_stands_is_not_told_to_be_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta writes the checkpoint of every hundredth version after its commit; the disk may be full just then."""
    house, write = Warehouse.open(tmp_path / "warehouse"), warehouse.write_deltalake

    def committed(*args: Any, **kwargs: Any) -> None:
        write(*args, **kwargs)
        raise DeltaError("No space left on device")

    monkeypatch.setattr(warehouse, "write_deltalake", committed)
    row = {"run_id": "r", "stream": "s", "code": "c", "rows": 1, "detail": "", "at": dt.datetime.now(dt.UTC)}
    with house.lease() as token:
        house.append("quarantine", [row], token)
    assert len(house.rows("quarantine")) == 1


def test_a_table_that_others_write_without_the_lease_is_not_written_blindly(tmp_path: Path) -> None:
    """A commit follows the version that was read, whoever made the one in between."""
    house = Warehouse.open(tmp_path / "warehouse")
    commits.prepare(house)
    at = dt.datetime(2013, 7, 1, tzinfo=dt.UTC)
    row = {"run_id": "r", "stream": "s", "code": "c", "rows": 1, "detail": "", "at": at}
    with house.lease() as token:
        since = house.version("quarantine")
        house.append("quarantine", [row], token, since=since)
        with pytest.raises(HeddleError, match=f"HDL-510 .*quarantine has changed since version {since}"):
            house.append("quarantine", [row], token, since=since)
    assert len(DeltaTable(house.path("quarantine")).to_pyarrow_table()) == 1
