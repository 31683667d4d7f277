"""A cluster that others use as well: the settings of an administrator hold, and two runs at once do not disturb."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.store.settings import PROJECT

SETTINGS = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "nobody knows it",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.scheduler.mode": "FAIR",
    "spark.speculation": "true",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.task.maxFailures": "2",
}

RUNS = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from spark_jobs.engine.session import start_context, sql_session
from tests.spark_jobs.laboratory import Laboratory, steady

context = start_context("shared", "local-cluster[2,1,1024]")
held = dict(context.getConf().getAll())
laboratory = Laboratory(sql_session(context), Path(sys.argv[1]))
laboratory.write(steady(180))
laboratory.write([], "quotes")
version = laboratory.plan()
with ThreadPoolExecutor(2) as threads:
    spans = [(30, 90), (90, 150)]
    records = list(threads.map(lambda span: laboratory.run(version, *span, f"run {span[0]}"), spans))
wrong = [laboratory.wrong(version, 30, 150)]
jobs = [[job["ids"] for job in record.jobs] for record in records]
print(json.dumps([held, [record.status for record in records], wrong, jobs, [r.engine for r in records]]))
"""


@pytest.mark.longer
@pytest.mark.spark
def test_two_runs_share_a_cluster_with_settings_of_its_administrator(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    lines = [f"{name} {value}" for name, value in SETTINGS.items()]
    (tmp_path / "conf" / "spark-defaults.conf").write_text("\n".join(lines))
    environment = os.environ | {"SPARK_CONF_DIR": str(tmp_path / "conf"), "PYTHONPATH": str(PROJECT)}
    environment |= {"HEDDLE_DRIVER_MEMORY": "1g", "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", RUNS, str(tmp_path / "lab")]
    (tmp_path / "lab").mkdir()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=PROJECT, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    settings, states, wrong, jobs, engines = json.loads(done.stdout.splitlines()[-1])
    assert SETTINGS.items() <= settings.items()
    assert states == ["published"] * 2 and wrong == [[]]
    assert engines == ["spark local-cluster[2,1,1024]"] * 2
    # each record has its own jobs
    ids = [{number for each in run_jobs for number in each} for run_jobs in jobs]
    assert all(ids) and not ids[0] & ids[1]
