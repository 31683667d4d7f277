"""A run that is told to end while Spark works for it: it cancels its jobs, publishes nothing, says so, and leaves no
process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil
import pytest

from spark_jobs.engine.event_log import read_event_log
from spark_jobs.engine.session import spark_settings
from spark_jobs.store.settings import PROJECT
from spark_jobs.store.warehouse.publish_log import LogRow, rows
from tests.chaos.orders import in_process
from tests.connect_server import connect_server
from tests.spark_jobs.laboratory import Laboratory, steady


def held_in(engine: str) -> str:
    """A program in which the first task of a stage begins, says so, and goes on for ever."""
    return f"""
import os, sys
sys.path[0] = {str(PROJECT)!r}
import spark_jobs.engine.{engine} as engine

def held(task, plain=engine.counting, begun=os.environ["HELD_BEGUN"]):
    def waits(numbers):
        with open(begun, "w") as told:  # somebody reads: it has begun
            told.write(str(os.getpid()))
        with open(begun + ".never"):  # nobody writes
            pass
        yield from plain(task)(numbers)
    return waits

engine.counting = held
"""


PUBLISHING = f"""
import os, sys
sys.path[0] = {str(PROJECT)!r}
from spark_jobs.pipeline.run import publication

def held(*given):
    with open(os.environ["HELD_BEGUN"], "w") as told:
        told.write(str(os.getpid()))
    with open(os.environ["HELD_BEGUN"] + ".never"):
        pass

publication.publish = held
"""
"""All is computed, and the job is about to publish it."""

JOB = """
from spark_jobs.jobs.aggregate_windows import main
from spark_jobs.engine.submitted import run_job
if __name__ == "__main__":
    sys.exit(run_job(main))
"""

COMMAND = """
from heddle.cli.app import app
app()
"""

TASK = """
import json, logging, signal, sys
from pathlib import Path
from heddle.airflow import operators
operators.job_file = lambda job: Path(sys.argv[2])
logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
task = operators.AggregateOperator(task_id="aggregate", conn_id="spark_default", pinned=json.loads(sys.argv[1]))
# as Airflow does in the process of a task
signal.signal(signal.SIGTERM, lambda *_: task.on_kill())
try:
    task.execute({"run_id": "told"})
    print("RESULT well")
except Exception as error:
    print("RESULT", type(error).__name__, error)
"""

SPAN = ("2013-07-01T00:30:00Z", "2013-07-01T01:30:00Z")


class World:
    """A warehouse with a plan, and the processes of one run over it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.events, self.begun = folder, folder / "events", folder / "begun"
        self.laboratory = Laboratory(in_process(), folder)
        self.laboratory.write(steady(180))
        self.laboratory.write([], "quotes")
        self.version = self.laboratory.plan()
        self.house = str(self.laboratory.warehouse.root)
        for pipe in (self.begun, Path(f"{self.begun}.never")):
            os.mkfifo(pipe)
        self.environment = os.environ | {
            "HEDDLE_EVENT_LOG": str(self.events),
            "HEDDLE_ENGINE": "",
            "HEDDLE_DRIVER_MEMORY": "1g",
            "HEDDLE_WAREHOUSE": self.house,
            "HELD_BEGUN": str(self.begun),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "plugins")]),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def script(self, text: str) -> Path:
        place = self.folder / "spark_jobs" / "jobs" / "aggregate_windows.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    @contextmanager
    def working(self, command: Sequence[str], **environment: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
        """A run, in the middle of its first stage, and what it has said; none of its processes is left at the end."""
        log = self.folder / "said"
        with log.open("w") as log_writer:
            process = subprocess.Popen(
                command,
                env=self.environment | environment,
                cwd=self.folder,
                # whoever runs the tests in the background ignores it, and so would the command
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                stdout=log_writer,
                stderr=log_writer,
                start_new_session=True,
            )
        watched: list[psutil.Process] = []
        try:
            # opening waits for a task that begins; a process that ends before opens the other end here
            with self.or_ended(process), self.begun.open() as begun:
                worker = begun.read()
            assert process.poll() is None, log.read_text()[-3000:]
            # of Spark Connect the worker is a process of the server
            watched = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(int(worker))]
            with log.open() as log_reader:
                yield process, log_reader
            _, alive = psutil.wait_procs(watched, timeout=60)
            assert alive == []
        finally:
            for child in watched:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            process.kill()
            process.wait()

    @contextmanager
    def or_ended(self, process: subprocess.Popen[str]) -> Iterator[None]:
        from threading import Thread

        def release() -> None:
            process.wait()
            with os.fdopen(os.open(self.begun, os.O_RDWR), "w"):
                pass

        Thread(target=release, daemon=True).start()
        yield

    def log(self) -> list[LogRow]:
        return rows(self.laboratory.warehouse)

    def check(self) -> None:
        """Nothing was published, the log says so, and what Spark did is seen up to there; the next run is as ever."""
        first, last = self.log()
        assert (first.event, last.event) == ("allocated", "failed")
        assert [(diagnostic["code"], diagnostic["severity"]) for diagnostic in last.record.diagnostics] == [
            ("HDL-903", "error")
        ]
        assert first.record.application == last.record.application
        assert self.laboratory.run(self.version, 30, 90, "told").status == "published"
        assert self.laboratory.wrong(self.version, 30, 90) == []

    def submitted(self, *job: str) -> list[str]:
        settings = [part for key, value in spark_settings().items() for part in ("--conf", f"{key}={value}")]
        return [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]", *settings, *job]

    def arguments(self) -> list[str]:
        options = ["--warehouse", self.house, "--plan-version", str(self.version), "--run-id", "told"]
        return [*options, "--from", SPAN[0], "--to", SPAN[1]]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("HEDDLE_EVENT_LOG", str(tmp_path / "events"))
    return World(tmp_path)


@pytest.mark.spark
def test_airflow_kills_a_task_that_submitted(world: World) -> None:
    script = str(world.script(held_in("spark") + JOB))
    pinned = {"plan_version": world.version, "from": SPAN[0], "to": SPAN[1]}
    connection = {"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client"}}
    environment = {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
        "AIRFLOW_HOME": str(world.folder / "airflow"),
        "HEDDLE_HOME": str(world.folder),
    }
    with world.working([sys.executable, "-c", TASK, json.dumps(pinned), script], **environment) as (
        process,
        log_reader,
    ):
        process.send_signal(signal.SIGTERM)
        process.wait(300)
        output = log_reader.read()
    assert "ended by SIGTERM: nothing was published" in output, output[-3000:]
    assert "RESULT AirflowException" in output and "Error code is: 143" in output, output[-3000:]
    world.check()
    record = world.log()[1].record
    seen = read_event_log(str(world.events), record.application, "told")
    assert seen is not None and seen.ended
    (job,) = seen.jobs.values()
    assert job.status == "failed" and "cancelled" in job.reason and record.jobs[0]["ids"] == [job.id]
    assert f"heddle: Spark application {record.application}: {record.ui}" in output


@pytest.mark.spark
def test_a_driver_ends_with_spark_submit(world: World) -> None:
    with world.working(world.submitted(str(world.script(PUBLISHING + JOB)), *world.arguments())) as (process, _):
        process.kill()
    world.check()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 130, "interrupted: nothing was published"),
        (signal.SIGTERM, 143, "ended by SIGTERM: nothing was published"),
    ],
)
def test_a_command_that_is_told_to_end(number: signal.Signals, code: int, said: str, world: World) -> None:
    script = world.script(held_in("spark") + COMMAND)
    command = [sys.executable, str(script), "backfill", "--warehouse", world.house, "--engine", "spark"]
    with world.working([*command, "--from", SPAN[0], "--to", SPAN[1]]) as (process, log_reader):
        process.send_signal(number)
        assert process.wait(300) == code
        assert said in log_reader.read()
    world.check()


@pytest.mark.spark
def test_a_server_of_spark_connect_is_told_to_stop(world: World) -> None:
    command = [sys.executable, str(world.script(held_in("connect") + JOB)), *world.arguments()]
    with connect_server(world.folder) as url, world.working(command, HEDDLE_SPARK_REMOTE=url) as (process, log_reader):
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 143
        assert "ended by SIGTERM: nothing was published" in log_reader.read()
        # the server goes on, its worker does not
    world.check()
