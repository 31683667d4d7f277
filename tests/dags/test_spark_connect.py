"""With a connection of the type ``spark_connect`` a task runs its job here, and that server does the work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROBE = """
import json, logging, sys
from heddle_airflow import AggregateOperator
logging.basicConfig(level="INFO", stream=sys.stdout, format="LOG %(message)s")
given = {"plan_version": 3, "from": "2013-07-01", "to": "2013-07-02", "live": True}
task = AggregateOperator(task_id="aggregate", conn_id="spark_default", pinned=given)
try:
    task.execute({"run_id": "r 1"})
    print("RESULT well")
except Exception as error:
    print("RESULT", type(error).__name__, error)
"""

JOB = """
import os, sys
print("arguments", sys.argv[1:])
print("remote", os.environ["HEDDLE_SPARK_REMOTE"].replace("a-token", "TOKEN"))
sys.exit({code})
"""


@pytest.mark.parametrize(
    ("code", "result"), [(0, "well"), (3, "AirflowException aggregate_windows.py ended with exit code 3")]
)
def test_the_job_runs_here(code: int, result: str, tmp_path: Path) -> None:
    (tmp_path / "spark_jobs").mkdir()
    (tmp_path / "spark_jobs" / "aggregate_windows.py").write_text(JOB.format(code=code))
    connection = {"conn_type": "spark_connect", "host": "spark.internal", "port": 15002, "password": "a-token"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "HEDDLE"))}
    environment |= {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
        "HEDDLE_HOME": str(tmp_path),
        "HEDDLE_WAREHOUSE": str(tmp_path / "warehouse"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "plugins")]),
    }
    command = [sys.executable, "-c", PROBE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert f"RESULT {result}" in done.stdout, done.stderr[-2000:]
    options = ["--warehouse", str(tmp_path / "warehouse"), "--plan-version", "3"]
    options += ["--from", "2013-07-01", "--to", "2013-07-02", "--run-id", "r 1", "--live"]
    told = done.stdout + done.stderr
    assert f"arguments {options}" in told and "remote sc://spark.internal:15002/;token=TOKEN" in told
    assert "a-token" not in told
