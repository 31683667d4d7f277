"""New answers of a query that is an asset, from the publication to the run of another team's DAG (no Spark)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_jobs.operations.announcements import Announcement
from tests.dags.conftest import RunScript
from tests.in_process import Clock, heddle, without_spark
from tests.webhook import SECRET, webhook

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "web-requests"

SCRIPT = """
import json, sys
from datetime import timedelta
from pathlib import Path
from heddle.airflow import announcing
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models import dagrun as dagruns
from airflow.models.asset import AssetEvent
from airflow.models.dag import DagModel
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
folder = Path(sys.argv[1])
bag = BundleDagBag(folder, bundle_path=folder, bundle_name="dags-folder")
assert not bag.import_errors, bag.import_errors
DagBundlesManager().sync_bundles_to_db()
sync_bag_to_db(bag, "dags-folder", None)
bag.dags["repair_results"].task_dict["report"].retry_delay = timedelta(0)
announce, attempts = announcing.announce, []

def failing(*given):
    added = announce(*given)
    attempts.append(len(added))
    if len(attempts) == 1:
        raise RuntimeError("the first attempt ends here")
    return added

announcing.announce = failing

def state_of(run):
    return {"state": str(run.state), "tasks": {t.task_id: str(t.state) for t in run.get_task_instances()}}

def events():
    with create_session() as session:
        return [[e.asset.name, e.asset.uri, e.extra] for e in session.query(AssetEvent).order_by(AssetEvent.id)]

def consumed():
    # what a scheduler makes of the events, then run as dag.test runs its own
    with create_session() as session:
        model = session.get(DagModel, "alert_on_slow_paths")
        SchedulerJobRunner(Job())._create_dag_runs_asset_triggered(dag_models=[model], session=session)
    def made(session, dag, start_date, **given):
        (run,) = session.query(dagruns.DagRun).filter_by(dag_id=dag.dag_id).all()
        run.dag, run.state, run.start_date = dag, "running", start_date
        session.commit()
        return run
    dagruns.get_or_create_dagrun = made
    done = bag.dags["alert_on_slow_paths"].test()
    with create_session() as session:
        told = XComModel.get_many(run_id=done.run_id, task_ids="alert", key="return_value")
        values = [json.loads(x.value) if isinstance(x.value, str) else x.value for x in session.scalars(told)]
    return state_of(done) | {"told": values, "type": str(done.run_type)}

found = {name: state_of(bag.dags["repair_results"].test()) | {"events": events()} for name in ("first", "again")}
tasks = bag.dags["repair_results"].task_dict
tasks["repair"].retries, tasks["repair"].execute = 0, lambda context: 1 / 0
from spark_jobs.pipeline.run import history
history.outdated = lambda *given: ["an interval"]
found["failed"] = state_of(bag.dags["repair_results"].test())
found["misspelled"] = state_of(bag.dags["repair_results"].test(run_conf={"dayz": 3}))
print("RESULT" + json.dumps(found | {"attempts": attempts, "consumed": consumed()}))
"""


@pytest.fixture(scope="module")
def outcome(run_script: RunScript, airflow_database: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The example's day published by hand, announced by the hourly DAG, and the example's DAG run for it."""
    place = tmp_path_factory.mktemp("assets")
    dags, warehouse = place / "dags", place / "warehouse"
    dags.mkdir()
    for file in (ROOT / "dags" / "repair_results.py", EXAMPLE / "alert_on_slow_paths.py"):
        shutil.copy(file, dags)
    # the hourly DAG looks at what was published lately, by the clock of the machine
    with without_spark(Clock(round(datetime.now(UTC).timestamp() * 1e6))):
        arguments = [
            str(EXAMPLE / "queries.sql"),
            "--streams",
            str(EXAMPLE / "streams.yaml"),
            "--warehouse",
            str(warehouse),
        ]
        assert heddle("run", *arguments, "--from", "2025-03-03", "--to", "2025-03-04").code == 0
        read = heddle("read", "slow_paths", "--warehouse", str(warehouse), "--format", "json").out
    wrong = [{"check": "shared=unshared(slow_paths)", "success": False, "detail": "3 of 4 differ"}]
    with without_spark(Clock(round(datetime.now(UTC).timestamp() * 1e6)), wrong):
        assert heddle("run", *arguments, "--from", "2025-03-04", "--to", "2025-03-05", "--allow-empty").code == 1
    variables = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "HEDDLE_HOME": str(ROOT),
        "HEDDLE_WAREHOUSE": str(warehouse),
    }
    shutil.copy(airflow_database, place)
    with webhook() as (url, sent):
        result, printed = run_script(SCRIPT, place, str(dags), **variables, AIRFLOW__HEDDLE__NOTIFY=url)
    assert SECRET not in printed
    alerts = [line for line in printed.splitlines() if "ALERT" in line]
    return result | {"answers": json.loads(read)["rows"], "log": alerts, "sent": sent}


def test_an_attempt_that_fails_announces_nothing_and_the_next_one_all(outcome: dict[str, Any]) -> None:
    first = outcome["first"]
    tasks = {"look": "skipped", "repair": "skipped", "repaired": "skipped", "report": "success", "alerts": "success"}
    assert first["tasks"] == tasks
    # two attempts had the one event to add, and one of them succeeded
    assert outcome["attempts"][:2] == [1, 1] and first["state"] == "success"
    [[name, uri, extra]] = first["events"]
    assert name == uri == "heddle://answers/slow_paths"
    assert extra["query"] == "slow_paths" and extra["first"] is True and extra["revision"] == 1
    assert (extra["from"], extra["to"]) == ("2025-03-03T00:00:00Z", "2025-03-04T00:00:00Z")
    assert extra["answers"] == len(outcome["answers"])


def test_what_was_announced_is_not_announced_again(outcome: dict[str, Any]) -> None:
    assert outcome["attempts"][2:] == [0, 0, 0] and outcome["again"]["state"] == "success"
    assert outcome["again"]["events"] == outcome["first"]["events"]


def test_a_repair_that_failed_is_seen_and_what_is_new_announced_all_the_same(outcome: dict[str, Any]) -> None:
    tasks = {"look": "success", "repair": "failed", "repaired": "upstream_failed", "report": "success"}
    tasks |= {"alerts": "success"}
    assert outcome["failed"] == {"state": "failed", "tasks": tasks}


def test_the_owners_of_queries_are_told_once_where_airflow_is_configured_to(outcome: dict[str, Any]) -> None:
    sent = outcome["sent"]
    assert "slow_paths" in {alert["query"] for alert in sent}
    assert {(alert["kind"], alert["state"], alert["code"]) for alert in sent} == {("blocked", "open", "HDL-530")}
    # four runs of the DAG looked
    assert len({alert["id"] for alert in sent}) == len(sent)


def test_param_that_the_form_lacks_is_refused(outcome: dict[str, Any]) -> None:
    misspelled = outcome["misspelled"]
    assert misspelled["state"] == "failed" and misspelled["tasks"]["look"] == "failed"
    assert misspelled["tasks"]["repair"] == "upstream_failed"


def test_the_examples_dag_is_triggered_by_new_answers_and_alerts(outcome: dict[str, Any]) -> None:
    consumed = outcome["consumed"]
    assert consumed["type"] == "asset_triggered" and consumed["tasks"] == {"alert": "success"}
    slow = [row for row in outcome["answers"] if row["worst_ms"] > 510]
    assert 0 < len(slow) < len(outcome["answers"])
    (lines,) = consumed["told"]
    assert sorted(line.split()[0] for line in lines) == sorted(row["path"] for row in slow)
    assert len(outcome["log"]) == len(lines) and all(any(line in logged for logged in outcome["log"]) for line in lines)


# ------------------------------------------------------------------------------------------ what is added
class Events:
    """The events of an alias, as a task sees those of its inlets, and those that it adds."""

    def __init__(self, *stored: Mapping[str, Any]) -> None:
        self.stored, self.since, self.added = [SimpleNamespace(extra=extra) for extra in stored], "", []

    def after(self, moment: str) -> list[Any]:
        self.since = moment
        return self.stored

    def add(self, asset: Any, extra: Any) -> None:
        self.added.append((asset.uri, extra))


def news(query: str = "volume", revision: int = 1, run_id: str = "scheduled__1") -> Announcement:
    at = round(datetime(2026, 1, 2, 3, tzinfo=UTC).timestamp() * 1e6)
    return Announcement(query, 0, 86_400_000_000, revision, 1, run_id, at, 3, True, None, None)


def test_only_what_has_no_event_yet_is_added() -> None:
    from heddle.airflow.announcing import announce
    from heddle.airflow.dag_set import DagSet

    dag_set = DagSet()
    had = [news(), news("other", 2)]
    more = [news(revision=2), news("other"), news(run_id="scheduled__2")]
    events = Events(*(json.loads(json.dumps(notice.extra)) for notice in had))
    context = {"inlet_events": {dag_set.answers: events}, "outlet_events": {dag_set.answers: events}}
    assert announce(dag_set, context, [*had, *more]) == [notice.extra for notice in more]
    assert events.added == [(f"heddle://answers/{notice.query}", notice.extra) for notice in more]
    assert events.since == "2026-01-02T02:00:00+00:00"
    # without news, Airflow is not asked at all
    assert announce(dag_set, {}, []) == []
