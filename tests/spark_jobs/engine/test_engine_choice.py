"""Which engine does the tasks of a run, and that it is decided once."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.errors.crashes import Terminated
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import DAY as A_DAY
from spark_jobs.audit.checks.recompute import RawEvents
from spark_jobs.audit.unshared import duckdb_windows
from spark_jobs.audit.unshared.duckdb_expressions import CannotTell
from spark_jobs.engine import choice, configuration
from spark_jobs.engine import session as session_module
from spark_jobs.engine.choice import Engine
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.engine.spark import SparkWorkers
from spark_jobs.pipeline.run.live import LiveSession
from spark_jobs.store.settings import PROJECT
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory, steady
from tests.spark_jobs.pipeline.live_clock import Clock
from tests.spark_jobs.pipeline.refresh_bounds import BOUND, made, scheduled


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the sessions that were started; their tasks are done here."""
    names: list[str] = []

    def start(name: str, **options: Any) -> Any:
        names.append(name)
        return SimpleNamespace(stop=lambda: None)

    monkeypatch.setattr(session_module, "start_context", start)
    monkeypatch.setattr(choice, "spark_workers", lambda session, group: LocalWorkers())
    for variable in ("HEDDLE_ENGINE", "HEDDLE_LOCAL_EVENTS", "HEDDLE_IN_PROCESS"):
        monkeypatch.delenv(variable, raising=False)
    return names


def run(folder: Path, engine: Engine) -> Laboratory:
    laboratory = Laboratory(engine, folder)
    laboratory.write(steady(180))
    laboratory.write([], "quotes")
    version = laboratory.plan()
    with without_audit():
        record = laboratory.run(version, 30, 90)
    assert record.status == "published" and laboratory.wrong(version, 30, 90) == []
    assert record.features["sessions"] == record.features["spark_runs"] == int(engine.is_started)
    return laboratory


def test_a_small_run_starts_nothing(tmp_path: Path, started: list[str]) -> None:
    laboratory = run(tmp_path, Engine("small"))
    assert started == []
    (row,) = laboratory.log("published")
    record = json.loads(row["record"])
    assert record["engine"] == "local" and "at most 15,000,000" in record["engine_because"]


def test_beyond_the_setting_a_session_starts_once(
    tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEDDLE_LOCAL_EVENTS", "0")
    engine = Engine("large")
    laboratory = run(tmp_path, engine)
    assert started == ["large"]
    # warm by now: that it was started is no cost of the next run
    with without_audit():
        assert laboratory.run(1, 90, 120).features["sessions"] == 0
    engine.stop()
    assert started == ["large"] and not engine.is_started


def test_many_windows_over_few_rows_are_little_to_do(
    tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    amounts: list[float] = []
    decide = Engine.decide

    def decided(self: Engine, amount: float, group: str) -> Any:
        amounts.append(amount)
        return decide(self, amount, group)

    monkeypatch.setattr(Engine, "decide", decided)
    laboratory = run(tmp_path, Engine("long"))
    with without_audit():
        laboratory.run(1, 90, 90 + 30 * A_DAY / 60e6, as_of=1 << 60)
    # windows without rows are not visited: the amount follows the rows that are stored
    assert len(amounts) == 2 and amounts[1] <= 100 * amounts[0] and started == []


EXPECTED = {
    # (asked for, default, setting, master, Connect): engine
    (None, "auto", "", "", ""): "local",
    (None, "spark", "", "", ""): "spark",
    (None, "spark", "local", "", ""): "local",
    (None, "auto", "spark", "", ""): "spark",
    ("local", "spark", "spark", "", ""): "local",
    ("auto", "spark", "", "", ""): "local",
    (None, "auto", "", "local[3]", ""): "local",
    (None, "auto", "", "spark://elsewhere:7077", ""): "spark",
    (None, "auto", "auto", "", "sc://elsewhere"): "spark",
    ("local", "auto", "", "spark://elsewhere:7077", ""): "HDL-120",
    (None, "spark", "local", "", "sc://elsewhere"): "HDL-120",
    ("flink", "auto", "", "", ""): "HDL-120",
    (None, "auto", "flink", "", ""): "HDL-120",
}


@pytest.mark.parametrize("given", EXPECTED, ids=str)
def test_what_is_said_first_holds(given: tuple[Any, ...], started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    requested, default, setting, master, remote = given
    for name, value in (("ENGINE", setting), ("SPARK_MASTER", master), ("SPARK_REMOTE", remote)):
        monkeypatch.setenv(f"HEDDLE_{name}", value)
    engine = Engine("x", requested=requested, default=default)
    try:
        name_or_code = engine.expected(7).name
    except HeddleError as error:
        name_or_code = error.code
    assert name_or_code == EXPECTED[given] and started == []


@pytest.mark.parametrize(("former", "events", "engine"), [("0", 1, "spark"), ("5", 5, "local"), ("5", 6, "spark")])
def test_the_former_setting_is_read_with_a_warning(
    former: str, events: int, engine: str, started: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEDDLE_IN_PROCESS", former)
    assert Engine("x").expected(events).name == engine
    laboratory = Laboratory(in_process(), tmp_path)
    laboratory.write(steady(60))
    laboratory.write([], "quotes")
    with without_audit():
        record = laboratory.run(laboratory.plan(), 0, 60)
    (warning,) = [diagnostic for diagnostic in record.diagnostics if diagnostic["code"] == "HDL-125"]
    assert warning["severity"] == "warning"
    assert ('engine = "spark"' if former == "0" else f"local_events = {former}") in warning["hint"]


def test_without_java_a_large_run_goes_on_here(started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "has_java", lambda: False)
    expected = Engine("x").expected(1e9)
    assert expected.name == "local" and "no Java" in expected.reason


def test_spark_without_java_is_refused(started: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "has_java", lambda: False)
    for step in (lambda engine: engine.check(), lambda engine: engine.decide(1, "run")):
        with pytest.raises(HeddleError, match="HDL-535"):
            step(Engine("x", requested="spark"))
    assert started == []


def test_what_spark_needs_is_missed_before_a_run_begins(
    started: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = Engine("x", requested="spark"), Engine("x", requested="auto"), Engine("x", requested="local")
    monkeypatch.setenv("HEDDLE_JARS", str(tmp_path))
    with pytest.raises(HeddleError, match="HDL-520") as raised:
        engines[0].check()
    assert str(tmp_path) in str(raised.value) and "HEDDLE_JARS" in str(raised.value)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for remote in ("", "sc://elsewhere"):
        monkeypatch.setenv("HEDDLE_SPARK_REMOTE", remote)
        with pytest.raises(HeddleError, match="HDL-904 pyspark is not installed"):
            engines[0].check()
    monkeypatch.delenv("HEDDLE_SPARK_REMOTE")
    engines[1].check(), engines[2].check()
    assert engines[1].expected(1e9).name == "local" and "no pyspark" in engines[1].expected(1e9).reason


def test_a_run_that_cannot_start_registers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data.csv").write_text("time,x\n2025-03-03T08:05:00Z,1\n")
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["init", "data.csv"]).exit_code == 0
    span = ["--from", "2025-03-03", "--to", "2025-03-04", "--warehouse", "house"]
    monkeypatch.setitem(sys.modules, "pyspark", None)
    done = CliRunner().invoke(app, ["run", "queries", "--streams", "streams.yaml", *span, "--engine", "spark"])
    assert done.exit_code == 1 and "HDL-904 pyspark" in done.output and not (tmp_path / "house").exists()
    monkeypatch.setenv("HEDDLE_LEASE_DSN", "postgresql://heddle@127.0.0.1:1/postgres")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    done = CliRunner().invoke(app, ["run", "queries", "--streams", "streams.yaml", *span, "--engine", "local"])
    assert done.exit_code == 1 and "HDL-904 psycopg" in done.output and not (tmp_path / "house").exists()


@pytest.mark.parametrize("memory", ["1k", "many"])
def test_a_jvm_that_does_not_start_says_why(memory: str) -> None:
    """In a process of its own: a session of this one would be taken."""
    lines = (
        "import sys",
        "from optimizer.errors.crashes import exit_code_of",
        "from spark_jobs.engine.session import start_session",
        "sys.exit(exit_code_of(lambda: start_session('x', 'local[1]')))",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env=os.environ | {"HEDDLE_DRIVER_MEMORY": memory, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "HDL-536" in done.stderr and "HEDDLE_DRIVER_MEMORY" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_a_java_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version, is_refused in (("1.8.0_392", True), ("11.0.2", True), ("17.0.9", False), ("21", False)):
        java = tmp_path / version / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text("")
        (tmp_path / version / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / version))
        if is_refused:
            with pytest.raises(HeddleError, match="HDL-536 .*Spark needs 17"):
                configuration.check_java()
        else:
            configuration.check_java()


@pytest.mark.parametrize("place", ["127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2", "127.0.0.1", "[::1]:x", "127.0.0.1:99999"])
def test_a_master_that_does_not_answer_is_reported_at_once(place: str) -> None:
    with pytest.raises(HeddleError, match="HDL-537 no Spark master answers"):
        configuration.check_master(f"spark://{place}")


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        configuration.check_master(f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}")
    configuration.check_master("yarn")


ENDS = {
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark cannot": (
        "Python 3.9, the driver 3.11"
    ),
    'java.io.IOException: Cannot run program "python3": error=2': "have no python3",
    "ModuleNotFoundError: No module named 'spark_jobs.pipeline.run'": "the package spark_jobs.pipeline.run",
    "Error while finding module specification (ModuleNotFoundError: No module named 'numba')": "the package numba",
}


class Context:
    """As much of a context as a stage asks for."""

    master, applicationId, uiWebUrl = "local[1]", "a", None
    parallelize: Any

    def setJobGroup(self, *given: Any) -> None:
        """It has no jobs."""

    def statusTracker(self) -> Any:
        return SimpleNamespace(getJobIdsForGroup=lambda group: ())


@pytest.mark.parametrize("text", ENDS)
def test_executors_that_cannot_run_tasks_are_reported(text: str) -> None:
    def fail(*arguments: Any) -> Any:
        raise RuntimeError(f"Job aborted: {text} more")

    context = Context()
    context.parallelize = lambda *arguments: SimpleNamespace(mapPartitions=lambda task: SimpleNamespace(collect=fail))
    with pytest.raises(HeddleError, match="HDL-538") as caught:
        SparkWorkers(context, "a").run(lambda numbers, count: iter(()), 1, 1, "x")  # type: ignore[arg-type]
    assert ENDS[text] in str(caught.value)
    assert ("HEDDLE_SPARK_CODE=archive" in str(caught.value)) == ("spark_jobs" in text)


@pytest.mark.parametrize("clean_up", [None, ConnectionError("Answer from Java side is empty"), ValueError("closed")])
@pytest.mark.parametrize("interruption", [KeyboardInterrupt, Terminated])
def test_an_interruption_stays_one_whatever_spark_raises_after_it(
    interruption: type[KeyboardInterrupt], clean_up: Exception | None
) -> None:
    def collect() -> Any:
        try:
            raise interruption
        finally:
            if clean_up is not None:
                raise clean_up

    cancelled: list[str] = []
    context: Any = Context()
    context.parallelize = lambda *arguments: SimpleNamespace(
        mapPartitions=lambda task: SimpleNamespace(collect=collect)
    )
    context.cancelJobGroup = cancelled.append
    with pytest.raises(KeyboardInterrupt) as caught:
        SparkWorkers(context, "a").run(lambda numbers, count: iter(()), 1, 1, "x")
    assert type(caught.value) is interruption and cancelled == ["a"]


def test_without_python_on_executors_a_run_says_so() -> None:
    """In a process of its own: a session of this one would be taken."""
    lines = (
        "import sys",
        "from optimizer.errors.crashes import exit_code_of",
        "from spark_jobs.engine.choice import Engine",
        "workers = Engine('x', requested='spark').decide(1, 'run')",
        "sys.exit(exit_code_of(lambda: workers.run(lambda numbers, count: iter(()), 1, 1, 'x')))",
    )
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "PYSPARK_PYTHON": "/nowhere/python3"}
    environment |= {"HEDDLE_DRIVER_MEMORY": "1g", "HEDDLE_EVENT_LOG": "none"}
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "HDL-538" in done.stderr and "/nowhere/python3" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("wrong", ["-1", "many", "1.5"])
def test_a_setting_that_is_none_is_refused(tmp_path: Path, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laboratory = Laboratory(Engine("x"), tmp_path)
    laboratory.write(steady(60))
    laboratory.write([], "quotes")
    version = laboratory.plan()
    for name in ("HEDDLE_LOCAL_EVENTS", "HEDDLE_IN_PROCESS", "HEDDLE_ENGINE", "HEDDLE_TASK_MEMORY"):
        with monkeypatch.context() as patch:
            patch.setenv(name, wrong)
            with pytest.raises(HeddleError, match=f"HDL-120 {name}"):
                laboratory.run(version, 0, 60)
    # nothing has begun
    assert laboratory.log("allocated") == laboratory.log("failed") == []


# ------------------------------------------------------------------------------------------ a second opinion
class WithSpark(LocalWorkers):
    """Has a session, whatever it is."""

    def session(self) -> Any:
        return self


SPARK, ALONE = Engine("spark", given=WithSpark()), in_process()


def verdict(monkeypatch: pytest.MonkeyPatch, by_duckdb: list[Any] | Exception, by_spark: list[Any], on: Engine) -> Any:
    """The check of an answer that is right if an engine recomputes [1]."""
    query: Any = SimpleNamespace(name="q")
    recomputed_query: Any = SimpleNamespace(query=query, windows=(), buckets=None)
    stream: Any = SimpleNamespace(time="ts")

    def recompute_here(*arguments: Any) -> list[Any]:
        if isinstance(by_duckdb, Exception):
            raise by_duckdb
        return by_duckdb

    table: Any = SimpleNamespace(to_pylist=lambda: by_spark)
    monkeypatch.setattr(duckdb_windows, "recompute_here", recompute_here)
    monkeypatch.setattr(
        "spark_jobs.audit.unshared.windows.recompute", lambda *arguments: SimpleNamespace(toArrow=lambda: table)
    )
    monkeypatch.setattr(RawEvents, "frame", lambda self, session: None)
    events = RawEvents(recomputed_query, stream, (), pa.table({"ts": [1]}))
    return events.check(on, lambda judge: [] if judge.rows(query) == [1] else ["other"])


def test_what_duckdb_finds_right_nobody_else_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    check = verdict(monkeypatch, [1], [2], SPARK)
    assert (check["check"], check["success"], check["detail"]) == ("shared=unshared(q)", True, "")


def test_what_duckdb_finds_wrong_no_second_engine_overrules(monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in (SPARK, ALONE):
        check = verdict(monkeypatch, [2], [1], engine)
        assert not check["success"] and check["detail"] == "other"


def test_what_duckdb_cannot_tell_spark_does(monkeypatch: pytest.MonkeyPatch) -> None:
    unable = CannotTell("a function")
    check = verdict(monkeypatch, unable, [1], SPARK)
    assert check["success"] and check["detail"] == "recomputed by Spark: a function"
    assert not verdict(monkeypatch, unable, [2], SPARK)["success"]
    with pytest.raises(CannotTell):
        verdict(monkeypatch, unable, [1], ALONE)


# ------------------------------------------------------------------------------------------ live sessions
@pytest.mark.parametrize("by", ["runs", "memory"])
@pytest.mark.parametrize("is_submitted", [False, True])
def test_a_live_session_starts_another_application_in_time(
    by: str, is_submitted: bool, tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many runs, or once processes have grown; what was submitted ends with its process instead."""
    monkeypatch.setenv("HEDDLE_LOCAL_EVENTS", "0")
    monkeypatch.setattr(choice, "RUNS", 2 if by == "runs" else 1_000)
    # grows by more than it may in its second run
    memory = (number * (choice.GROWTH + 1) for number in range(1, 100)) if by == "memory" else repeat(1)
    monkeypatch.setattr(choice, "memory_of_processes", lambda: next(memory))
    if is_submitted:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    laboratory, clock = made(in_process(), tmp_path), Clock(41)
    version, engine = laboratory.plan(BOUND), Engine("live")
    first, last = (round(DAY + minute * MINUTE) for minute in (30, 60))
    live = LiveSession(laboratory.warehouse, engine, last, first, clock=clock, wait=clock.wait)
    with without_audit():
        runs = sum(not isinstance(outcome, HeddleError) for outcome in live.refreshes())
    assert runs > 4 and len(started) == (1 if is_submitted else -(-runs // 2))
    end = max(row["interval_end"].timestamp() for row in laboratory.log("published"))
    until = int(end * 1e6 - DAY) // MINUTE
    assert laboratory.wrong(version, 30, until, scheduled(laboratory, version, 30, until)) == []


@pytest.mark.parametrize(("cores", "first"), [(1, 0), (2, 24_000_000), (4, 16_000_000), (64, 12_190_477)])
def test_other_processes_start_where_they_pay(cores: int, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    assert choice.worthwhile_processes(first) == cores
    if first:
        assert choice.worthwhile_processes(first - 1) == choice.worthwhile_processes(0) == 1
