"""Several warehouses in one Airflow: each set of DAGs has its names, its project, and its pages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from optimizer.errors.diagnostics import HeddleError
from tests.dags.conftest import RunScript

ROOT = Path(__file__).resolve().parents[2]

DAG_FILE = """
from heddle.airflow import aggregate_windows, dags, refresh_sharing_plan
dags(project={project!r}, prefix={prefix!r}, owner={prefix!r}, pool={prefix!r}, on_failure_callback=print)
"""

STREAMS = """
streams:
  events:
    source: {format: csv, path: events.csv}
    schema: {ts: timestamp, kind: string}
    time: ts
"""

QUERY = """
-- name: {name}
SELECT kind, count(*) AS n FROM events WINDOW RANGE '1 hour' SLIDE '20 minutes' ON ts GROUP BY kind;
"""

SCRIPT = """
import asyncio, json, os, sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from airflow import plugins_manager
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
from airflow.models.asset import AssetEvent
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.session import create_session
from heddle.airflow.operators import PinPlan
from heddle.airflow.triggers import PlanTrigger

folder = Path(sys.argv[1])
bag = BundleDagBag(folder, bundle_path=folder, bundle_name="dags-folder")
assert not bag.import_errors, bag.import_errors
DagBundlesManager().sync_bundles_to_db()
sync_bag_to_db(bag, "dags-folder", None)
found = {"dags": sorted(bag.dags), "plugins": [plugin.name for plugin in plugins_manager._get_plugins()[0]]}

def day(to, project):
    moments = (datetime(2025, 3, 3, tzinfo=UTC), datetime(2025, 3, to, tzinfo=UTC))
    return PlanTrigger(project, *moments, False)

async def waits(trigger):
    name, parameters = trigger.serialize()
    assert name == "heddle.airflow.triggers.PlanTrigger"
    async for event in PlanTrigger(**parameters).run():
        return event.payload

found["before"] = day(4, "").live
for prefix, project in json.loads(sys.argv[2]).items():
    of = lambda name: bag.dags[prefix + name]
    refresh = of("refresh_sharing_plan").test()
    assert "HEDDLE_PROJECT" not in os.environ
    aggregate = of("aggregate_windows")
    with create_session() as session:
        events = [[e.asset.name, e.asset.uri, e.extra["plan_version"]] for e in session.query(AssetEvent)]
    kept = DagSerialization.from_dict(DagSerialization.to_dict(aggregate))
    (link,) = (link for link in aggregate.task_dict["aggregate"].operator_extra_links if link.name == "Sharing plan")
    found[prefix] = {
        "refresh": {task.task_id: str(task.state) for task in refresh.get_task_instances()},
        "events": events,
        "outlets": {task.task_id: [getattr(a, "uri", a.name) for a in task.outlets] for task in aggregate.tasks},
        "owners": sorted({task.owner for name in bag.dags if name.startswith(prefix) for task in bag.dags[name].tasks}),
        "pools": sorted({task.pool for task in aggregate.tasks}),
        "callbacks": [len(task.on_failure_callback) for task in aggregate.tasks],
        "timetable": kept.timetable.serialize(),
        "link": link.get_link(aggregate.task_dict["aggregate"], ti_key=None),
        "pinned": asyncio.run(waits(day(4, project))),
    }

# the pages of each, by its own permissions
from airflow.api_fastapi.app import init_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi import FastAPI
from fastapi.testclient import TestClient
from heddle.airflow.plugin import HeddlePlugin
manager = init_auth_manager()
host_app = FastAPI()
for app in HeddlePlugin().fastapi_apps:
    host_app.mount(app["url_prefix"], app["app"])
def client(role):
    made = TestClient(host_app, base_url="http://heddle", raise_server_exceptions=False)
    if role:
        made.cookies.set("_token", manager.generate_jwt(SimpleAuthManagerUser(username="anna", role=role)))
    return made
nobody, viewer = client(None), client("VIEWER")
paths = ("", "in/one_/", "in/two_/", "in/three_/", "in/Two/", "in/two_/answers", "in/two_/refresh")
status = lambda who, path: who.get("/sharing-plan/" + path).status_code
found["statuses"] = {path: [status(nobody, path), status(viewer, path)] for path in paths}
shown = ("in/one_/", "in/two_/", "in/two_/answers")
found["pages"] = {path: viewer.get("/sharing-plan/" + path).text for path in shown}

# a task that cannot begin is deferred, one whose trigger has fired goes on
class Deferred(Exception):
    pass
def defer(**given):
    raise Deferred(given["method_name"], type(given["trigger"]).__name__, given["timeout"].days)
task = PinPlan(task_id="pin", project="")
task.defer = defer
run = SimpleNamespace(conf={}, run_type="manual", run_after=datetime(2025, 3, 5, tzinfo=UTC))
context = {"dag": SimpleNamespace(params={}), "dag_run": run, "params": {}}
try:
    task.execute(context)
except Deferred as deferred:
    found["deferred"] = deferred.args
found["resumed"] = task.resume(context, {"plan_version": 1})
try:
    task.resume(context, "covered")
except Exception as error:
    found["covered"] = type(error).__name__
print("RESULT" + json.dumps(found))
"""

SETS = ("one_", "two_")


@pytest.fixture(scope="module")
def outcome(run_script: RunScript, airflow_database: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two projects whose files have the same names, each with its DAG file; all variables name a third place."""
    place = tmp_path_factory.mktemp("projects")
    (place / "dags").mkdir()
    for prefix in SETS:
        project = place / prefix
        (project / "queries").mkdir(parents=True)
        (project / "heddle.toml").write_text(
            'warehouse = "house"\nstreams = "streams.yaml"\nworkload = ["queries/*.sql"]\n'
        )
        (project / "streams.yaml").write_text(STREAMS)
        (project / "queries" / "q.sql").write_text(QUERY.format(name=f"of_{prefix}"))
        (project / "events.csv").write_text("ts,kind\n2025-03-03 00:00:00,a\n2025-03-03 01:00:00,b\n")
        (place / "dags" / f"{prefix}.py").write_text(DAG_FILE.format(project=str(project), prefix=prefix))
    shutil.copy(ROOT / "dags" / "aggregate_windows.py", place / "dags")
    shutil.copy(airflow_database, place)
    variables = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(place / "dags"),
        "AIRFLOW__API_AUTH__JWT_SECRET": "of this test alone, and long enough for it to be one that is taken",
        "HEDDLE_HOME": str(place / "elsewhere"),
        "HEDDLE_WAREHOUSE": str(place / "elsewhere" / "house"),
        "HEDDLE_STREAMS": str(place / "elsewhere" / "streams.yaml"),
        "HEDDLE_WORKLOAD": str(place / "elsewhere" / "*.sql"),
    }
    projects = json.dumps({prefix: str(place / prefix) for prefix in SETS})
    result, _ = run_script(SCRIPT, place, str(place / "dags"), projects, **variables)
    assert not (place / "elsewhere").exists()
    return result | {"place": str(place)}


def test_each_set_has_its_dags(outcome: dict[str, Any]) -> None:
    names = ("refresh_sharing_plan", "aggregate_windows", "repair_results", "maintain_warehouse", "land_topics")
    expected = [f"{prefix}{name}" for prefix in SETS for name in names]
    assert outcome["dags"] == sorted([*expected, "aggregate_windows"])


def test_each_set_has_its_plan_and_its_assets(outcome: dict[str, Any]) -> None:
    for number, prefix in enumerate(SETS, 1):
        outcome_of_set = outcome[prefix]
        assert outcome_of_set["refresh"] == {"refresh": "success", "announce": "success", "views": "skipped"}
        assert outcome_of_set["events"][-1] == [f"{prefix}heddle_sharing_plan", f"heddle://{prefix}sharing_plan/", 1]
        assert len(outcome_of_set["events"]) == number
        assert outcome_of_set["outlets"]["report"] == [f"{prefix}heddle_refreshes", f"{prefix}heddle_answers"]
        assert outcome_of_set["pinned"] == {
            "plan_version": 1,
            "from": "2025-03-03T00:00:00Z",
            "to": "2025-03-04T00:00:00Z",
        }


def test_arguments_of_tasks_are_those_of_the_dag_file(outcome: dict[str, Any]) -> None:
    for prefix in SETS:
        assert outcome[prefix]["owners"] == outcome[prefix]["pools"] == [prefix]
        assert set(outcome[prefix]["callbacks"]) == {1}


def test_timetable_and_links_are_of_the_project(outcome: dict[str, Any]) -> None:
    for prefix in SETS:
        assert outcome[prefix]["timetable"] == {"project": f"{outcome['place']}/{prefix}"}
        assert outcome[prefix]["link"] == f"/sharing-plan/in/{prefix}/"


def test_pages_of_each_set_show_its_queries_to_its_users(outcome: dict[str, Any]) -> None:
    assert outcome["statuses"] == {
        "": [401, 200],
        **{f"in/{prefix}/": [401, 200] for prefix in SETS},
        # no DAGs have that prefix, which only a user learns
        "in/three_/": [401, 404],
        "in/Two/": [404, 404],
        "in/two_/answers": [401, 200],
        # a viewer triggers nothing
        "in/two_/refresh": [401, 403],
    }
    pages = outcome["pages"]
    assert "of_one_" in pages["in/one_/"] and "of_two_" not in pages["in/one_/"]
    assert "of_two_" in pages["in/two_/"] and "of_one_" not in pages["in/two_/"]
    assert "of_two_" in pages["in/two_/answers"]


def test_a_run_that_cannot_begin_waits_in_the_triggerer(outcome: dict[str, Any]) -> None:
    assert outcome["deferred"] == ["resume", "PlanTrigger", 2]
    assert outcome["resumed"] == {"plan_version": 1} and outcome["covered"] == "AirflowSkipException"


def test_the_plugin_is_registered_once(outcome: dict[str, Any]) -> None:
    assert outcome["plugins"].count("heddle") == 1


INSTALLED = """
import importlib, json, sys
from importlib import metadata
from airflow import plugins_manager
from airflow.providers_manager import ProvidersManager
providers = ProvidersManager().providers
plugins, errors = plugins_manager._get_plugins()
heddle = [plugin for plugin in plugins if plugin.name == "heddle"]
for name in json.loads(sys.argv[1]):
    module, _, attribute = name.partition(".")
    getattr(importlib.import_module(module), attribute)
print("RESULT" + json.dumps({
    "sources": [type(plugin.source).__name__ for plugin in heddle],
    "errors": errors,
    # Airflow takes the metadata of every folder of its path: an editable installation may be there too
    "copies": sum(each.name == "heddle" for of in metadata.distributions() for each in of.entry_points
                  if each.group == "airflow.plugins"),
    "provider": providers["heddle"].data["name"] if "heddle" in providers else None,
    "timetables": [name for name in plugins_manager.get_timetables_plugins() if "heddle" in name],
}))
"""


def as_installed(folder: Path) -> Path:
    """The metadata of the distribution as an installation has it: what Airflow looks for plugins in."""
    import tomllib

    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    info = folder / "installed" / "heddle-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: heddle\nVersion: 0.1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in entry_points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return info.parent


@pytest.mark.parametrize("has_folder", [False, True])
def test_an_installed_heddle_is_found_once_with_or_without_the_folder_of_plugins(
    has_folder: bool, tmp_path: Path
) -> None:
    import os
    import subprocess
    import sys

    from tests.dags.conftest import airflow_variables

    plugins = ROOT / "plugins" if has_folder else tmp_path / "plugins"
    path = os.pathsep.join(map(str, (as_installed(tmp_path), ROOT)))
    environment = airflow_variables(tmp_path) | {"AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins), "PYTHONPATH": path}
    # of configurations and DAGs of before
    former = ("heddle_attempts.ExplainingExecutor", "heddle_attempts.PatientCoordinator", "heddle_airflow.RESULTS")
    command = [sys.executable, "-c", INSTALLED, json.dumps(former if has_folder else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT")] or [done.stdout + done.stderr]
    registered = json.loads(line.removeprefix("RESULT"))
    assert registered["sources"] == ["EntryPointSource"]
    # the folder of plugins registers nothing in addition
    assert len(registered["errors"]) <= registered["copies"] - 1
    assert not any("heddle_airflow" in source for source in registered["errors"])
    assert registered["provider"] == "Heddle"
    assert registered["timetables"] == ["heddle.airflow.timetable.RefreshTimetable"]


# --------------------------------------------------------------------------------------- arguments
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prefix": "Team"}, "the prefix is 'Team'"),
        ({"prefix": "team-a"}, "the prefix is"),
        ({"prefix": "1"}, "the prefix is"),
        ({"prefix": "x" * 51}, "the prefix is"),
        ({"project": "team_a"}, "the project is 'team_a'"),
        ({"ower": "anna"}, "no task has an argument 'ower'"),
        ({"task_id": "x"}, "no task has an argument 'task_id'"),
    ],
)
def test_wrong_argument_of_a_dag_file_is_an_error(arguments: dict[str, Any], message: str) -> None:
    from heddle.airflow.dag_set import DagSet

    with pytest.raises(HeddleError, match=f"HDL-584 {message}"):
        DagSet.of(**arguments)


def test_without_arguments_names_are_those_that_others_know() -> None:
    from heddle.airflow.dag_set import DagSet

    dag_set = DagSet.of()
    assert dag_set.dag_id("aggregate_windows") == "aggregate_windows"
    assert (dag_set.plan.name, dag_set.plan.uri) == ("heddle_sharing_plan", "heddle://sharing_plan/")
    assert (dag_set.results.name, dag_set.results.uri) == ("heddle_results", "heddle://results/")
    assert dag_set.answers_of("volume").uri == "heddle://answers/volume"
    assert dag_set.pages == "/sharing-plan" and dag_set.defaults(retries=2) == {"owner": "heddle", "retries": 2}
