"""Both DAGs, really run (``dag.test`` on SQLite): a plan is stored, an interval published."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.dags.standalone_cluster import standalone_cluster

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.spark

WORKLOAD = """
-- name: volume
-- asset
SELECT kind, count(*) AS n, sum(amount) AS total FROM events
WINDOW RANGE '1 hour' SLIDE '20 minutes' ON ts GROUP BY kind;
"""
STREAMS = """
streams:
  events:
    source: {format: csv, path: events.csv}
    schema: {ts: timestamp, kind: string, amount: long}
    time: ts
    lateness: 10 minutes
"""

SCRIPT = """
import json, sys
from pathlib import Path
from airflow.utils.db import initdb
initdb()
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
folder = Path(sys.argv[1])
bag = BundleDagBag(folder, bundle_path=folder, bundle_name="dags-folder")
assert not bag.import_errors, bag.import_errors
from airflow.models.asset import AssetEvent
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.dag_processing.bundles.manager import DagBundlesManager
DagBundlesManager().sync_bundles_to_db()
sync_bag_to_db(bag, "dags-folder", None)

def run(name, **conf):
    # dag.test of Airflow 3.3 looks deadlines up by what they say instead of by their ids
    bag.dags[name].deadline = None
    done = bag.dags[name].test(run_conf=conf)
    with create_session() as session:
        events = [[e.asset.uri, e.extra] for e in session.query(AssetEvent).order_by(AssetEvent.id)]
    return {"state": str(done.state), "events": events,
            "tasks": {t.task_id: str(t.state) for t in done.get_task_instances()}}

day = {"from": "2013-07-01T00:00:00+00:00", "to": "2013-07-02T00:00:00+00:00"}
runs = {
    "dry": lambda: run("refresh_sharing_plan", dry_run=True),
    # dag.test keeps the conf of the run before as the default of the next
    "first": lambda: run("refresh_sharing_plan", dry_run=False, reason="test"),
    "again": lambda: run("refresh_sharing_plan", dry_run=False, reason="test"),
    "aggregate": lambda: run("aggregate_windows", **day),
    "repeat": lambda: run("aggregate_windows", **day),
    "repair": lambda: late() or run("repair_results", days=10000),
    "look": lambda: run("repair_results", days=10000),
}
def late():
    with Path(sys.argv[2]).open("a") as events:
        events.write("2013-07-01 12:05:00,a,5\\n")
print("RESULT" + json.dumps({name: runs[name]() for name in sys.argv[3:]}))
"""


ALL = ("dry", "first", "again", "aggregate", "repeat", "repair", "look")


@pytest.fixture(
    scope="module",
    params=[pytest.param("local", marks=pytest.mark.longer), pytest.param("cluster", marks=pytest.mark.slow)],
)
def outcome(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, Any], Path]]:
    place = tmp_path_factory.mktemp("heddle")
    if request.param == "local":
        yield both_dags(place, "local[2]")
    else:
        with standalone_cluster(place) as url:
            yield both_dags(place, url)
            registered = (place / "cluster.log").read_text()
            assert registered.count("Registering worker") == 2 and "Registered app" in registered


def both_dags(place: Path, master: str, runs: Sequence[str] = ALL) -> tuple[dict[str, Any], Path]:
    """Run both DAGs on a small stream, Spark at the master URL of the Airflow connection."""
    (place / "workload.sql").write_text(WORKLOAD)
    (place / "streams.yaml").write_text(STREAMS)
    rows = [f"2013-07-01 {m // 60:02}:{m % 60:02}:00,{'ab'[m % 2]},{m % 13}" for m in range(0, 24 * 60, 7)]
    (place / "events.csv").write_text("\n".join(["ts,kind,amount", *rows, ""]))
    scripts = Path(sys.executable).parent
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "HEDDLE"))},
        "AIRFLOW_HOME": str(place / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{place}/airflow.db",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(
            {"conn_type": "spark", "host": master, "extra": {"spark-binary": "spark-submit"}}
        ),
        "HEDDLE_HOME": str(ROOT),
        "HEDDLE_WAREHOUSE": str(place / "warehouse"),
        "HEDDLE_STREAMS": str(place / "streams.yaml"),
        "HEDDLE_WORKLOAD": str(place / "*.sql"),
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join((str(ROOT / "plugins"), str(ROOT))),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(ROOT / "dags"), str(place / "events.csv"), *runs],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, done.stdout[-6000:] + done.stderr[-6000:]
    return json.loads(lines[-1].removeprefix("RESULT")), place


FIRST = {
    **{
        "query": "volume",
        "from": "2013-07-01T00:00:00Z",
        "to": "2013-07-02T00:00:00Z",
        "revision": 1,
        "plan_version": 1,
    },
    **{"answers": 2 * 3 * 24, "first": True, "windows": {"added": 3 * 24, "removed": 0, "changed": 0}, "late": None},
}


def answers_told(run: dict[str, Any]) -> list[dict[str, Any]]:
    """What was said after a run, by then, of new answers of the one query."""
    return [extra for uri, extra in run["events"] if uri == "heddle://answers/volume"]


@pytest.mark.longer
def test_a_plan_is_stored_and_an_interval_published(tmp_path: Path) -> None:
    """Each DAG once."""
    from deltalake import DeltaTable

    results, place = both_dags(tmp_path, "local[2]", ("first", "aggregate"))
    assert results["first"]["tasks"] == {"refresh": "success", "announce": "success", "views": "skipped"}
    assert set(results["aggregate"]["tasks"].values()) == {"success"}
    (published,) = (extra for uri, extra in results["aggregate"]["events"] if uri == "heddle://results/")
    # By hand: 24 h of hourly windows that slide by 20 minutes and end within the day, for two kinds.
    assert (published["plan_version"], published["answers"]) == (1, 2 * 3 * 24)
    assert answers_told(results["aggregate"]) == [FIRST | {"run_id": published["run_id"]}]
    assert DeltaTable(str(place / "warehouse" / "results")).to_pyarrow_table().num_rows == 2 * 3 * 24


def test_a_dry_run_stores_nothing_and_says_nothing(outcome: tuple[dict[str, Any], Path]) -> None:
    dry = outcome[0]["dry"]
    assert dry["state"] == "success" and dry["events"] == []
    assert dry["tasks"] == {"refresh": "success", "announce": "skipped", "views": "skipped"}


def test_a_new_plan_is_announced_once(outcome: tuple[dict[str, Any], Path]) -> None:
    first, again = outcome[0]["first"], outcome[0]["again"]
    assert first["tasks"] == {"refresh": "success", "announce": "success", "views": "skipped"}
    [[uri, extra]] = first["events"]
    assert uri == "heddle://sharing_plan/" and extra["plan_version"] == 1 and extra["cost"] > 0
    assert again["state"] == "success" and again["tasks"]["announce"] == "skipped"
    assert again["events"] == first["events"]


def test_an_interval_is_published_and_a_repetition_changes_nothing(
    outcome: tuple[dict[str, Any], Path],
) -> None:
    from deltalake import DeltaTable

    results, place = outcome
    assert set(results["aggregate"]["tasks"].values()) == {"success"}
    assert set(results["repeat"]["tasks"].values()) == {"success"}
    # what a run over the same found unchanged is no news
    assert answers_told(results["aggregate"]) == answers_told(results["repeat"])
    published = [extra for uri, extra in results["repeat"]["events"] if uri == "heddle://results/"]
    # one event for one publication, however often its run is repeated or cleared
    assert [(event["from"], event["to"], event["revision"]) for event in published] == [
        ("2013-07-01T00:00:00Z", "2013-07-02T00:00:00Z", 1)
    ]
    assert published[0]["plan_version"] == 1 and published[0]["answers"] > 0
    table = DeltaTable(str(place / "warehouse" / "results"))
    assert table.to_pyarrow_table().num_rows == published[0]["answers"]
    # By hand: 24 h of hourly windows that slide by 20 minutes and end within the day, for two kinds.
    assert published[0]["answers"] == 2 * 3 * 24


def test_what_a_repair_revised_is_announced_once(outcome: tuple[dict[str, Any], Path]) -> None:
    results = outcome[0]
    for name, repaired in (("repair", "success"), ("look", "skipped")):
        assert results[name]["tasks"] == {
            **{"look": repaired, "repair": repaired, "repaired": repaired, "report": "success", "alerts": "success"},
        }
    first, again = answers_told(results["repair"])
    assert first == answers_told(results["aggregate"])[0] and answers_told(results["look"]) == [first, again]
    # By hand: hourly windows that slide by 20 minutes hold one event thrice.
    assert again["windows"] == {"added": 0, "removed": 0, "changed": 3} and again["first"] is False
    assert (again["revision"], again["answers"]) == (2, first["answers"]) and again["run_id"].startswith("repair/")
