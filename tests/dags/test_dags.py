"""The DAG files: they load, quickly and lightly, and have the fixed handful of tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.operations.project import plan_project

ROOT = Path(__file__).resolve().parents[2]

PROBE = """
import json, sys, time
from pathlib import Path
import airflow
from airflow.dag_processing.dagbag import BundleDagBag
import heddle_airflow
folder = Path(sys.argv[1])
before = set(sys.modules)
begun = time.process_time()
bag = BundleDagBag(folder, bundle_path=folder, bundle_name="dags-folder")
seconds = time.process_time() - begun
print("RESULT" + json.dumps({
    "errors": bag.import_errors,
    "seconds": seconds,
    "files": {name: found.fileloc for name, found in bag.dags.items()},
    "modules": sorted({name.partition(".")[0] for name in sys.modules}),
    "dags": {
        name: {
            "tasks": {task.task_id: sorted(task.downstream_task_ids) for task in found.tasks},
            "outlets": {task.task_id: [getattr(a, "uri", a.name) for a in task.outlets] for task in found.tasks},
            "inlets": {task.task_id: [a.name for a in task.inlets] for task in found.tasks if task.inlets},
            "rules": {task.task_id: task.trigger_rule.value for task in found.tasks},
            "retries": {task.task_id: task.retries for task in found.tasks},
            "catchup": found.catchup, "max_active_runs": found.max_active_runs,
            "timetable": type(found.timetable).__name__, "params": sorted(found.params),
            "links": {task.task_id: [l.name for l in task.operator_extra_links] for task in found.tasks},
        } for name, found in bag.dags.items()
    },
}))
"""


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What parsing the DAG folder gives."""
    return parsing(ROOT / "dags", tmp_path_factory.mktemp("airflow"))


def parsing(folder: Path, home: Path) -> dict[str, Any]:
    """What parsing a DAG folder gives, in a process of its own: only there are its imports its own."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "PYTHONPATH": os.pathsep.join((str(ROOT / "plugins"), str(ROOT))),
    }
    done = subprocess.run([sys.executable, "-c", PROBE, str(folder)], env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[-1].removeprefix("RESULT"))


def test_a_project_of_ones_own_has_the_same_dags(parsed: dict[str, Any], tmp_path: Path) -> None:
    """The file that `heddle init --airflow` writes."""
    (tmp_path / "visits.csv").write_text("time,page\n2025-03-03T08:05:00Z,home\n")
    project = plan_project([tmp_path / "visits.csv"], tmp_path / "project", airflow=True)
    project.write()
    own = parsing(tmp_path / "project" / "dags", tmp_path)
    assert own["errors"] == {}
    assert own["dags"] == parsed["dags"]
    assert set(own["files"].values()) == {str(tmp_path / "project" / "dags" / "heddle_dags.py")}
    assert not {"pyspark", "pyarrow", "pandas"} & set(own["modules"]) - set(parsed["modules"])


def test_the_dags_load(parsed: dict[str, Any]) -> None:
    assert parsed["errors"] == {}
    assert set(parsed["dags"]) == {
        *("refresh_sharing_plan", "aggregate_windows", "maintain_warehouse", "repair_results", "land_topics")
    }


def test_parsing_imports_nothing_heavy(parsed: dict[str, Any]) -> None:
    heavy = {
        "pyspark",
        "great_expectations",
        "spark_jobs",
        "optimizer",
        "pyarrow",
        "deltalake",
        "numba",
        "pandas",
    }
    assert heavy & set(parsed["modules"]) == set()


def test_parsing_takes_a_fraction_of_a_second(parsed: dict[str, Any]) -> None:
    # CPU seconds for both files once Airflow is imported: milliseconds, with room for a busy machine.
    assert parsed["seconds"] < 1.0


def test_a_fixed_handful_of_tasks_in_order(parsed: dict[str, Any]) -> None:
    dags = parsed["dags"]
    assert dags["land_topics"]["tasks"] == {
        **{"topics": ["land"], "land": [], "folders": ["land_files"], "land_files": []},
    }
    assert dags["maintain_warehouse"]["tasks"] == {"maintain": []}
    assert dags["repair_results"]["tasks"] == {
        **{"look": ["repair"], "repair": ["alerts", "repaired", "report"], "report": [], "repaired": [], "alerts": []},
    }
    rules = dags["repair_results"]["rules"]
    assert rules.pop("report") == rules.pop("alerts") == "all_done" and set(rules.values()) == {"all_success"}
    assert dags["refresh_sharing_plan"]["tasks"] == {"refresh": ["announce"], "announce": ["views"], "views": []}
    assert dags["aggregate_windows"]["tasks"] == {
        "pin_plan": ["aggregate", "report"],
        "aggregate": ["alerts", "report"],
        "report": [],
        "alerts": [],
    }
    assert dags["aggregate_windows"]["rules"]["alerts"] == "all_done"


def test_intervals_schedule_and_assets(parsed: dict[str, Any]) -> None:
    aggregate, refresh = parsed["dags"]["aggregate_windows"], parsed["dags"]["refresh_sharing_plan"]
    assert (aggregate["timetable"], refresh["timetable"]) == ("RefreshTimetable", "CronDataIntervalTimetable")
    for dag in (aggregate, refresh):
        assert dag["catchup"] is False and dag["max_active_runs"] == 1
        assert set(dag["retries"].values()) == {2}
    announced = ["heddle_refreshes", "heddle_answers"]
    assert aggregate["outlets"] == {"pin_plan": [], "aggregate": [], "report": announced, "alerts": []}
    assert parsed["dags"]["repair_results"]["outlets"]["report"] == announced[1:]
    assert aggregate["inlets"] == {"report": ["heddle_results", "heddle_answers"]}
    assert parsed["dags"]["repair_results"]["inlets"] == {"report": ["heddle_answers"]}
    assert refresh["outlets"] == {"refresh": [], "announce": ["heddle://sharing_plan/"], "views": []}
    assert aggregate["params"] == ["from", "to"]
    assert refresh["params"] == [
        *("algorithm", "allow_removals", "cost_model", "dry_run", "expected_plan", "expected_version"),
        *("rates", "reason", "tolerance"),
    ]
    assert aggregate["links"]["aggregate"] == ["Sharing plan", "Spark"]
