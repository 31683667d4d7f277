"""What Heddle's tasks report to Airflow: statistics by its own module, lineage by the method its provider calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heddle.airflow.reports import Reporting
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.operations.scrape import STATISTICS
from tests.spark_jobs.laboratory import Laboratory, steady

TEXT = """
-- name: volumes
SELECT symbol, sum(volume) AS total FROM trades WINDOW RANGE '20 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;
"""
RUN_ID = "scheduled__2013-07-01"


class Recorder:
    """A backend of Airflow's statistics that keeps what it is sent."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = defaultdict(int)
        self.gauges: dict[str, float] = {}
        self.tags: list[Any] = []

    def incr(self, name: str, count: int = 1, *, tags: Any = None) -> None:
        self.counters[name] += count
        self.tags.append(tags)

    def gauge(self, name: str, value: float, *, tags: Any = None) -> None:
        self.gauges[name] = value
        self.tags.append(tags)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics import stats_utils

    kept = Recorder()
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    stats.initialize(factory=lambda: kept, export_legacy_names=False)
    yield kept
    monkeypatch.undo()
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)


@pytest.fixture
def laboratory(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    monkeypatch.setenv("HEDDLE_WAREHOUSE", str(tmp_path / "warehouse"))
    laboratory = Laboratory(engine, tmp_path)
    laboratory.write(steady(120))
    return laboratory


def test_the_runs_of_a_task_are_counted_once(laboratory: Laboratory, recorder: Recorder) -> None:
    version = laboratory.plan(TEXT)
    laboratory.run(version, 0, 60, "another run")
    record = laboratory.run(version, 60, 120, RUN_ID)
    Reporting().report_statistics(RUN_ID, datetime.now(UTC))
    assert recorder.counters["heddle.runs.published"] == 1
    assert recorder.counters["heddle.answers"] == record.answers
    assert recorder.counters["heddle.scanned_events"] == record.rows_scanned
    assert recorder.gauges["heddle.cpu_seconds"] == sum(record.cpu_seconds.values())
    assert {*recorder.counters, *recorder.gauges} <= set(STATISTICS)
    assert all(tags == {"warehouse": "warehouse"} for tags in recorder.tags)


def test_all_refreshes_of_a_session_and_its_failures_are_counted(laboratory: Laboratory, recorder: Recorder) -> None:
    version = laboratory.plan(TEXT)
    laboratory.run(version, 0, 60, f"session/{RUN_ID}/1")
    laboratory.source().unlink()
    with pytest.raises(HeddleError):
        laboratory.run(version, 60, 120, f"session/{RUN_ID}/2")
    Reporting().report_statistics(RUN_ID, datetime.now(UTC))
    assert (recorder.counters["heddle.runs.published"], recorder.counters["heddle.runs.failed"]) == (1, 1)


def test_runs_before_the_task_are_those_of_an_earlier_try(laboratory: Laboratory, recorder: Recorder) -> None:
    laboratory.run(laboratory.plan(TEXT), 0, 60, RUN_ID)
    Reporting().report_statistics(RUN_ID, datetime.now(UTC) + timedelta(hours=1))
    assert not recorder.counters


def test_without_a_place_for_statistics_no_table_is_read(
    laboratory: Laboratory, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    laboratory.run(laboratory.plan(TEXT), 0, 60, RUN_ID)
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "False")
    Reporting().report_statistics(RUN_ID, datetime.now(UTC))
    assert not recorder.counters


def test_statistics_that_cannot_be_sent_are_a_line_of_the_log(
    laboratory: Laboratory, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    laboratory.run(laboratory.plan(TEXT), 0, 60, RUN_ID)
    monkeypatch.setattr(Recorder, "incr", lambda *args, **options: 1 // 0)
    Reporting().report_statistics(RUN_ID, datetime.now(UTC))
    assert "HDL-640" in caplog.text


def test_a_task_has_the_lineage_of_its_runs(laboratory: Laboratory) -> None:
    laboratory.run(laboratory.plan(TEXT), 0, 60, RUN_ID)
    task = SimpleNamespace(run_id=RUN_ID, start_date=datetime.now(UTC))
    lineage_of_task = Reporting().get_openlineage_facets_on_complete(task)
    assert str(laboratory.source()) in [dataset.name for dataset in lineage_of_task.inputs]
    house = laboratory.warehouse.place
    assert [dataset.name for dataset in lineage_of_task.outputs] == [f"{house}/results", f"{house}/results/volumes"]
    other = SimpleNamespace(run_id="another", start_date=task.start_date)
    assert Reporting().get_openlineage_facets_on_complete(other).outputs == []


def test_a_repair_has_the_lineage_of_all_its_runs(laboratory: Laboratory) -> None:
    laboratory.run(laboratory.plan(TEXT), 0, 60, "repair/0/60")

    class Repairing(Reporting):
        runs_named = "repair/"

    lineage_of_task = Repairing().get_openlineage_facets_on_complete(
        SimpleNamespace(run_id=RUN_ID, start_date=datetime.now(UTC))
    )
    assert len(lineage_of_task.outputs) == 2
