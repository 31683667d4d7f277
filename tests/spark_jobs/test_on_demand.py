"""Where the tasks of a run are done: in its own process while there is little to do, else by a session that starts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import DAY as A_DAY
from spark_jobs.checks.recompute import RawEvents
from spark_jobs.run import finals_stage
from spark_jobs.session import on_demand
from spark_jobs.session import session as session_module
from spark_jobs.session.in_process import InProcess
from spark_jobs.session.on_demand import OnDemand
from spark_jobs.unshared import duckdb_windows
from spark_jobs.unshared.duckdb_expressions import CannotTell
from tests.chaos.world import without_audit
from tests.spark_jobs.laboratory import Laboratory, steady


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the sessions that were started."""
    names: list[str] = []

    def start(name: str, **options: Any) -> InProcess:
        names.append(name)
        return InProcess()

    monkeypatch.setattr(session_module, "start_session", start)
    return names


def run(folder: Path, spark: Any) -> Laboratory:
    laboratory = Laboratory(spark, folder)
    laboratory.write(steady(180))
    laboratory.write([], "quotes")
    version = laboratory.plan()
    with without_audit():
        record = laboratory.run(version, 30, 90)
    assert record.status == "published" and laboratory.wrong(version, 30, 90) == []
    assert record.features["sessions"] == int(spark.is_started)
    return laboratory


def test_a_small_run_starts_nothing(tmp_path: Path, started: list[str]) -> None:
    run(tmp_path, OnDemand("small"))
    assert started == []


def test_beyond_the_setting_a_session_starts_once(
    tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEDDLE_IN_PROCESS", "0")
    spark = OnDemand("large")
    laboratory = run(tmp_path, spark)
    assert started == ["large"]
    # warm by now: that it was started is no cost of the next run
    with without_audit():
        assert laboratory.run(1, 90, 120).features["sessions"] == 0
    spark.stop()
    assert started == ["large"] and not spark.is_started


def test_many_windows_over_few_rows_are_little_to_do(
    tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    amounts: list[float] = []

    def workers(spark: Any, amount: float) -> Any:
        amounts.append(amount)
        return on_demand.workers(spark, amount)

    monkeypatch.setattr(finals_stage, "workers", workers)
    laboratory = run(tmp_path, OnDemand("long"))
    before = amounts[-1]
    with without_audit():
        laboratory.run(1, 90, 90 + 30 * A_DAY / 60e6, as_of=1 << 60)
    # windows without rows are not visited: the amount follows the rows that are stored
    assert amounts[-1] <= 100 * before and started == []


@pytest.mark.parametrize("wrong", ["-1", "many", "1.5"])
def test_a_setting_that_is_none_is_refused(tmp_path: Path, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    laboratory = Laboratory(OnDemand("x"), tmp_path)  # type: ignore[arg-type]
    laboratory.write(steady(60))
    laboratory.write([], "quotes")
    version = laboratory.plan()
    for name in ("HEDDLE_IN_PROCESS", "HEDDLE_TASK_MEMORY"):
        with monkeypatch.context() as patch:
            patch.setenv(name, wrong)
            with pytest.raises(HeddleError, match=f"HDL-120 {name}"):
                laboratory.run(version, 0, 60)
    # nothing has begun
    assert laboratory.log("allocated") == laboratory.log("failed") == []


# ------------------------------------------------------------------------------------------ a second opinion
class Session(OnDemand):
    """One that has started, whatever it is."""

    def start(self) -> Any:
        return self


def verdict(monkeypatch: pytest.MonkeyPatch, by_duckdb: list[Any] | Exception, by_spark: list[Any], spark: Any) -> Any:
    """The check of an answer that is right if an engine recomputes [1]."""
    query: Any = SimpleNamespace(name="q")
    wanted: Any = SimpleNamespace(query=query, windows=(), buckets=None)
    stream: Any = SimpleNamespace(time="ts")

    def recompute_here(*given: Any) -> list[Any]:
        if isinstance(by_duckdb, Exception):
            raise by_duckdb
        return by_duckdb

    table: Any = SimpleNamespace(to_pylist=lambda: by_spark)
    monkeypatch.setattr(duckdb_windows, "recompute_here", recompute_here)
    monkeypatch.setattr("spark_jobs.unshared.windows.recompute", lambda *given: SimpleNamespace(toArrow=lambda: table))
    monkeypatch.setattr(RawEvents, "frame", lambda self, session: None)
    events = RawEvents(wanted, stream, (), pa.table({"ts": [1]}))
    return events.check(spark, lambda engine: [] if engine.rows(query) == [1] else ["other"])


def test_what_duckdb_finds_right_nobody_else_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdict(monkeypatch, [1], [2], Session("unused"))
    assert (found["check"], found["success"], found["detail"]) == ("shared=unshared(q)", True, "")


def test_what_duckdb_finds_wrong_no_second_engine_overrules(monkeypatch: pytest.MonkeyPatch) -> None:
    for spark in (Session("unused"), InProcess()):
        found = verdict(monkeypatch, [2], [1], spark)
        assert not found["success"] and found["detail"] == "other"


def test_what_duckdb_cannot_tell_spark_does(monkeypatch: pytest.MonkeyPatch) -> None:
    unable = CannotTell("a function")
    found = verdict(monkeypatch, unable, [1], Session("asked"))
    assert found["success"] and found["detail"] == "recomputed by Spark: a function"
    assert not verdict(monkeypatch, unable, [2], Session("asked"))["success"]
    with pytest.raises(CannotTell):
        verdict(monkeypatch, unable, [1], InProcess())
