"""The job of the DAG as Airflow submits it: an application of Spark that can be seen."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from heddle.pages.served import run_html
from spark_jobs.engine.configuration import spark_settings
from spark_jobs.engine.shipping import PACKAGES
from spark_jobs.operations.seen import read_run
from spark_jobs.store.settings import PROJECT
from spark_jobs.store.warehouse import publish_log
from tests.chaos.orders import in_process
from tests.spark_jobs.laboratory import Laboratory, steady


@pytest.mark.spark
def test_an_interval_is_an_application_with_named_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laboratory = Laboratory(in_process(), tmp_path)
    laboratory.write(steady(180))
    laboratory.write([], "quotes")
    version, events = laboratory.plan(), tmp_path / "events"
    monkeypatch.setenv("HEDDLE_EVENT_LOG", str(events))
    settings = [part for key, value in spark_settings().items() for part in ("--conf", f"{key}={value}")]
    job = ["--warehouse", str(laboratory.warehouse.root), "--plan-version", str(version), "--run-id", "a run"]
    job += ["--from", "2013-07-01T00:30", "--to", "2013-07-01T01:30"]
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]", *settings]
    command += [str(PROJECT / "spark_jobs" / "jobs" / "aggregate_windows.py"), *job]
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment |= {"HEDDLE_ENGINE": "", "HEDDLE_DRIVER_MEMORY": "1g"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert "heddle: computed on spark local[2]: the default of DAGs" in lines
    task_lines = [line.removeprefix("heddle: ") for line in lines if " task" in line]
    assert [line.split(" 2013-07-01T")[0] for line in task_lines] == ["partials trades", "finals of 2 queries"]
    # as it happens, a line a stage, before the record
    assert re.search(r"Z: \d+ events, 1 task, \d+\.\d s, \d+\.\d CPU-s$", task_lines[0]), task_lines[0]
    assert lines.index(f"heddle: {task_lines[0]}") < lines.index("heddle: answering queries")
    assert "heddle: Spark application {application}: {ui}".format(**json.loads(lines[-1])) in lines
    record = json.loads(next(line for line in lines if line.startswith("{")))
    assert record["status"] == "published" and record["answers"] and record["features"]["spark_runs"] == 1
    assert [job["failed"] for job in record["jobs"]] == [0, 0] and all(job["ids"] for job in record["jobs"])
    assert record["ui"].startswith("http://127.0.0.1:")
    (file,) = events.iterdir()
    assert file.name.startswith(record["application"])
    # what readers see is what the local engine gives
    assert laboratory.wrong(version, 30, 90) == []
    (row,) = publish_log.publications(laboratory.warehouse)
    assert row.record.application == record["application"]
    # its page has what Spark logged
    seen = read_run(laboratory.warehouse, "a run")
    assert seen is not None and seen.application is not None and seen.application.ended
    jobs = seen.application.of_group("a run")
    recorded_jobs = [(job["ids"], job["description"], job["tasks"]) for job in record["jobs"]]
    assert [([job.id], job.description, job.tasks) for job in jobs] == recorded_jobs
    assert all(job.run_seconds > 0 for job in jobs) and all(job["cpu_seconds"] > 0 for job in record["jobs"])
    page = run_html(str(laboratory.warehouse.root), "a run", None)
    assert page is not None and task_lines[0].partition(":")[0].partition(" 2013")[0] in page and "succeeded" in page
    assert record["ui"] not in page


@pytest.mark.spark
def test_all_runs_of_a_session_are_one_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laboratory = Laboratory(in_process(), tmp_path)
    laboratory.write(steady(180))
    laboratory.write([], "quotes")
    laboratory.plan()
    monkeypatch.setenv("HEDDLE_EVENT_LOG", str(tmp_path / "events"))
    monkeypatch.setenv("HEDDLE_DRIVER_MEMORY", "1g")
    house = str(laboratory.warehouse.root)
    command = [str(Path(sys.executable).parent / "heddle"), "backfill", "--warehouse", house, "--engine", "spark"]
    command += ["--from", "2013-07-01T00:30", "--to", "2013-07-01T01:30", "--every", "30 minutes"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    first, second = publish_log.publications(laboratory.warehouse)
    assert first.record.application == second.record.application != ""
    seen = [read_run(laboratory.warehouse, row.run_id) for row in (first, second)]
    for seen_run in seen:
        assert seen_run is not None and seen_run.application is not None
        jobs = seen_run.application.of_group(seen_run.row.run_id)
        # its own jobs and no others, though both are in one log
        assert [[job.id] for job in jobs] == [job["ids"] for job in seen_run.row.record.jobs] and jobs
        assert set(seen_run.application.groups) == {first.run_id, second.run_id} and set(seen_run.application.jobs) == {
            job.id for job in jobs
        }


ELSEWHERE = """
import json, sys
from spark_jobs.engine.session import start_context
def found(numbers):
    import numpy as np
    import spark_jobs.windows.partials.kernels as kernels
    kernels.count_densely(np.array([0, 2, 2], np.int64), 3)
    stats = kernels.count_densely.stats
    yield kernels.__file__, sum(stats.cache_hits.values())
# it is compiled here by now
list(found([]))
context = start_context("sent", "local-cluster[1,1,1024]")
print(json.dumps(context.parallelize([0], 1).mapPartitions(found).collect()))
"""


@pytest.mark.longer
def test_executors_elsewhere_take_the_code_that_is_sent(tmp_path: Path) -> None:
    """And the kernels that are compiled here."""
    inherited = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "HOME") if name in os.environ}
    environment = inherited | {
        "HEDDLE_SPARK_CODE": "archive",
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": str(PROJECT),
    }
    command = [sys.executable, "-c", ELSEWHERE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    ((file, hits),) = json.loads(done.stdout.splitlines()[-1])
    assert file.startswith(str(tmp_path / "heddle" / "heddle-")) and hits == 1


INSTALLED = """
import json
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.engine.session import start_context
from spark_jobs.engine.spark import SparkWorkers
def files(numbers, count):
    import os
    import optimizer
    yield optimizer.__file__, os.environ["PYTHONPATH"]
context = start_context("installed", "local-cluster[1,1,1024]")
try:
    print(json.dumps(SparkWorkers(context, "a run").run(files, 1, 1, "files").results[0]))
except HeddleError as error:
    print(json.dumps([error.code, str(error)]))
"""


@pytest.mark.longer
@pytest.mark.parametrize("is_same", [True, False])
def test_executors_that_have_heddle_installed_take_their_own_code(tmp_path: Path, is_same: bool) -> None:
    """Nothing of the driver's paths reaches them; other code than the driver's is refused."""
    installed = tmp_path / "installed"
    for name in PACKAGES:
        shutil.copytree(PROJECT / name, installed / name, ignore=shutil.ignore_patterns("__pycache__"))
    if not is_same:
        with (installed / "optimizer" / "__init__.py").open("a") as file:
            file.write("# another version\n")
    (tmp_path / "conf").mkdir()
    setting = f"spark.executorEnv.PYTHONPATH {installed}"
    (tmp_path / "conf" / "spark-defaults.conf").write_text(setting)
    inherited = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "HOME") if name in os.environ}
    environment = inherited | {
        "HEDDLE_SPARK_CODE": "installed",
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "PYTHONPATH": str(PROJECT),
    }
    command = [sys.executable, "-c", INSTALLED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = json.loads(done.stdout.splitlines()[-1])
    if is_same:
        assert Path(first).is_relative_to(installed) and str(PROJECT) not in second.split(os.pathsep)
    else:
        assert first == "HDL-538" and "other code" in second
