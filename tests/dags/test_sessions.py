"""Sessions of ``aggregate_windows``: the scheduler's own code makes the runs, ``dag.test`` runs them (no Spark).

The clock passes only where a session waits; the job is the real one, in a process that is killed once.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from optimizer.plan import instants_due
from optimizer.workload.instants import format_instant
from spark_jobs.pipeline.planning.refresh import refresh_plan
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.publish_log import publications, rows
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import parse_instant
from tests.dags.conftest import RunScript

ROOT = Path(__file__).resolve().parents[2]
MINUTE = 60_000_000
NOON = 1_767_268_800_000_000
"""2026-01-01T12:00:00Z"""

WORKLOAD = """
-- name: often
-- asset
SELECT kind, count(*) AS n FROM events WINDOW RANGE '8 minutes' SLIDE AT MOST '4 minutes' ON ts GROUP BY kind;
-- name: seldom
SELECT sum(amount) AS total FROM others WINDOW RANGE '1 hour' SLIDE AT MOST '9 minutes' ON ts;
"""
STREAM = """
  {0}:
    source: {{format: csv, path: {0}.csv}}
    schema: {{ts: timestamp, kind: string, amount: long}}
    time: ts
    lateness: 1 minute
"""

JOB = """
import os, signal, sys
from functools import partial
from pathlib import Path
from spark_jobs.jobs import live_session
from spark_jobs.pipeline.run import live, publication
place = Path(os.environ["PLACE"])
clock = lambda: int((place / "clock").read_text())
def wait(seconds):
    (place / "clock").write_text(str(clock() + round(seconds * 1e6)))
live.LiveSession = partial(live.LiveSession, clock=clock, wait=wait)
held, count = publication.log_statistics, 0
def dying(*given):
    # the answers are published, and the log does not know yet
    global count
    count += 1
    if count == 3 and not (place / "killed").exists():
        (place / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    held(*given)
publication.log_statistics = dying
sys.exit(live_session.main())
"""

SCRIPT = """
import json, os, sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
import pendulum
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models import dagrun as dagruns
from airflow.models.asset import AssetEvent
from airflow.models.dag import DagModel
from airflow.models.taskinstance import clear_task_instances
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.session import create_session
from heddle.airflow import operators
folder, place = Path(sys.argv[1]), Path(os.environ["PLACE"])
operators.job_file = lambda job: place / f"{job}.py"
NAME, MINUTE = "aggregate_windows", 60_000_000
clock = lambda: int((place / "clock").read_text())
bag = BundleDagBag(folder, bundle_path=folder, bundle_name="dags-folder")
assert not bag.import_errors, bag.import_errors
dag = bag.dags[NAME]
# Airflow loads plugins as modules of its own
kept = DagSerialization.from_dict(DagSerialization.to_dict(dag)).timetable
for timetable in (dag.timetable, kept):
    timetable.next_dagrun_info.__globals__["_now"] = lambda: pendulum.from_timestamp(clock() / 1e6)
# dag.test of Airflow 3.3 looks deadlines up by what they say instead of by their ids
dag.deadline = None
DagBundlesManager().sync_bundles_to_db()
sync_bag_to_db(bag, "dags-folder", None)
for task in dag.tasks:
    task.retry_delay = timedelta(0)

def events():
    with create_session() as session:
        return [[e.asset.uri, e.extra] for e in session.query(AssetEvent).order_by(AssetEvent.id)]

def run_of(number):
    with create_session() as session:
        found = session.query(dagruns.DagRun).filter_by(dag_id=NAME, run_type="scheduled")
        return found.order_by(dagruns.DagRun.logical_date).all()[number]

def made():
    # what the scheduler does once the next run is due
    with create_session() as session:
        model = session.get(DagModel, NAME)
        model.calculate_dagrun_date_fields(
            SchedulerJobRunner(Job())._get_current_dag(NAME, session=session),
            reference_run=session.query(dagruns.DagRun).filter_by(dag_id=NAME, run_type="scheduled")
            .order_by(dagruns.DagRun.logical_date.desc()).first(),
        )
        assert model.next_dagrun_create_after.timestamp() * 1e6 <= clock(), "no run is due yet"
        scheduler = SchedulerJobRunner(Job())
        scheduler._set_exceeds_max_active_runs(dag_model=model, session=session)
        assert not model.exceeds_max_non_backfill, "the former session is not over"
        scheduler._create_dag_runs([model], session)

def run(number):
    def given(session, dag, start_date, **ignored):
        one = session.merge(run_of(number))
        one.dag, one.state, one.start_date = dag, "running", start_date
        session.commit()
        return one
    dagruns.get_or_create_dagrun = given
    done = dag.test()
    return {
        "run_id": done.run_id, "state": str(done.state), "events": events(), "clock": clock(),
        "interval": [round(at.timestamp() * 1e6) for at in (done.data_interval_start, done.data_interval_end)],
        "tasks": {t.task_id: str(t.state) for t in done.get_task_instances()},
        "tries": {t.task_id: t.try_number for t in done.get_task_instances()},
    }

def again(number):
    with create_session() as session:
        clear_task_instances(session.merge(run_of(number)).get_task_instances(session=session), session)
    return run(number)

def unreadable():
    (place / "others.csv").unlink()
    made()
    return run(3)

found = {}
made(); found["first"] = run(0)
made(); found["second"] = run(1)
found["cleared"] = again(0)
# nobody unpauses it for two hours
(place / "clock").write_text(str(clock() + 125 * MINUTE))
made(); found["unpaused"] = run(2)
found["unreadable"] = unreadable()
print("RESULT" + json.dumps(found))
"""


@pytest.fixture(scope="module")
def outcome(
    run_script: RunScript, airflow_database: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], Warehouse]:
    """Sessions of a quarter of an hour, one after the other, of which the first is killed."""
    place = tmp_path_factory.mktemp("sessions")
    (place / "workload.sql").write_text(WORKLOAD)
    (place / "streams.yaml").write_text("streams:\n" + STREAM.format("events") + STREAM.format("others"))
    lines = [f"{format_instant(NOON + n * MINUTE)},{'ab'[n % 2]},{n % 13}" for n in range(-70, 240)]
    for name in ("events.csv", "others.csv"):
        (place / name).write_text("\n".join(["ts,kind,amount", *lines, ""]))
    (place / "clock").write_text(str(NOON + 2 * MINUTE))
    dags = place / "dags"
    dags.mkdir()
    shutil.copy(ROOT / "dags" / "aggregate_windows.py", dags)
    (place / "live_session.py").write_text(JOB)
    refresh_plan(str(place / "warehouse"), [place / "workload.sql"], place / "streams.yaml", reason="test")
    variables = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "HEDDLE_HOME": str(place / "home"),
        "HEDDLE_WAREHOUSE": str(place / "warehouse"),
        "HEDDLE_CHECKS": "sample",
        "HEDDLE_ENGINE": "local",
        "HEDDLE_SESSION": "15 minutes",
        "PLACE": str(place),
    }
    shutil.copy(airflow_database, place)
    result, _ = run_script(SCRIPT, place, str(dags), **variables)
    assert (place / "killed").exists()
    return result, Warehouse.open(place / "warehouse", create=False)


def results(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of refreshes by then."""
    return [extra for uri, extra in run["events"] if uri == "heddle://results/"]


def test_a_session_answers_each_refresh_of_its_period(outcome: tuple[dict[str, Any], Warehouse]) -> None:
    runs, warehouse = outcome
    first, second = runs["first"], runs["second"]
    assert first["state"] == second["state"] == "success"
    assert first["tasks"] == {
        "session": "success",
        "report_refreshes": "success",
        "answered": "success",
        "alerts": "success",
    }
    quarter = 15 * MINUTE
    assert first["interval"] == [NOON, NOON + quarter] and first["clock"] == NOON + quarter
    assert second["interval"] == [NOON + quarter, NOON + 2 * quarter]
    schedules = load_plan(warehouse, 1).schedules
    events = results(second)
    # a minute after their instants by the clock: none is late, none left out, also where one session ends
    begin, end = parse_instant(events[0]["to"]), NOON + 2 * quarter - MINUTE
    due = [at for at, _ in instants_due.ticks(schedules, begin - 1, end)]
    assert [parse_instant(event["to"]) for event in events] == due and len(due) > 4
    assert [event["from"] for event in events[1:]] == [event["to"] for event in events[:-1]]
    rows = [row for row in publications(warehouse) if row.end <= end]
    assert [row.end for row in rows] == due and not any(row.record.late for row in rows[1:])


def test_a_killed_session_goes_on_where_it_was(outcome: tuple[dict[str, Any], Warehouse]) -> None:
    runs, warehouse = outcome
    assert runs["first"]["tries"]["session"] == 2
    (third,) = {row.end for row in rows(warehouse) if row.end == sorted({r.end for r in publications(warehouse)})[2]}
    # the dead process had published; its retry found that and logged it, under the revision that it was given
    of_third = [(row.event, row.revision) for row in rows(warehouse) if row.end == third]
    assert of_third == [("allocated", 1), ("published", 1)]


def test_every_publication_has_its_events_once(outcome: tuple[dict[str, Any], Warehouse]) -> None:
    runs, warehouse = outcome
    second, cleared = runs["second"], runs["cleared"]
    assert cleared["state"] == "success" and cleared["tries"]["session"] == 3
    assert cleared["events"] == second["events"]
    events = results(runs["unpaused"])
    published = [
        {
            **{"from": format_instant(row.begin), "to": format_instant(row.end), "revision": row.revision},
            **{"plan_version": row.plan_version, "answers": row.answers, "run_id": row.run_id},
        }
        for row in publications(warehouse)
        if row.end <= parse_instant(events[-1]["to"])
    ]
    assert events == published
    assert {event["run_id"].split("/")[1] for event in events[:2]} == {runs["first"]["run_id"]}
    answers = [extra for uri, extra in second["events"] if uri == "heddle://answers/often"]
    refreshing_events = [event for event in results(second) if "often" in dict(refreshed(warehouse, event))]
    assert [event["to"] for event in answers] == [event["to"] for event in refreshing_events]


def refreshed(warehouse: Warehouse, told: dict[str, Any]) -> list[tuple[str, int]]:
    """The queries that a refresh answered at its end."""
    (row,) = (row for row in publications(warehouse) if format_instant(row.end) == told["to"])
    return [(name, at) for name, at in row.record.refreshed.items() if row.begin < at <= row.end]


def test_after_a_pause_the_first_refresh_stands_for_all(outcome: tuple[dict[str, Any], Warehouse]) -> None:
    runs, warehouse = outcome
    unpaused = runs["unpaused"]
    # the period of the clock, though the last session had ended long before
    assert unpaused["interval"] == [NOON + 150 * MINUTE, NOON + 165 * MINUTE]
    late = [row for row in publications(warehouse) if row.record.late]
    assert [row.begin for row in late] == [parse_instant(results(runs["second"])[-1]["to"])]
    assert late[0].end + 5 * MINUTE >= NOON + 150 * MINUTE


def test_a_session_that_cannot_answer_all_fails(outcome: tuple[dict[str, Any], Warehouse]) -> None:
    """It has published what it could, once, and nobody tries again; that is announced as of any run that failed."""
    runs, warehouse = outcome
    failed = runs["unreadable"]
    tasks = {"session": "failed", "report_refreshes": "success", "answered": "upstream_failed", "alerts": "success"}
    assert failed["state"] == "failed" and failed["tasks"] == tasks and failed["tries"]["session"] == 1
    assert results(failed) == results(runs["unpaused"])
    rows = [row for row in publications(warehouse) if row.begin >= parse_instant(results(failed)[-1]["to"])]
    assert len(rows) > 1 and all(row.record.has_failed for row in rows) and sum(row.answers or 0 for row in rows)


def test_what_is_no_period_is_told_when_the_file_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    from heddle.airflow.dag_set import DagSet

    for text, seconds in (("15 minutes", 900), ("1 hour", 3600), ("", None)):
        monkeypatch.setenv("HEDDLE_SESSION", text)
        period = DagSet.of().session
        assert (None if period is None else period.total_seconds()) == seconds
    for wrong in ("hourly", "0 hours", "1 day", "1.5 hours", "\u0661 hour"):
        monkeypatch.setenv("HEDDLE_SESSION", wrong)
        with pytest.raises(ValueError, match="HEDDLE_SESSION"):
            DagSet.of()
        assert DagSet.of(session="1 hour").session is not None
