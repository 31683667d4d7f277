"""How a task runs its job: by ``spark-submit``, or as a process here that asks a server or starts Spark itself."""

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
conf = json.loads(sys.argv[1])
task = AggregateOperator(task_id="aggregate", conn_id="spark_default", pinned=given, conf=conf)
try:
    task.execute({"run_id": "r 1"})
    print("RESULT well")
except Exception as error:
    print("RESULT", type(error).__name__, error)
"""

JOB = """
import os, sys
print("arguments", sys.argv[1:])
print("remote", os.environ.get("HEDDLE_SPARK_REMOTE", "").replace("a-token", "TOKEN"))
print("master", os.environ.get("HEDDLE_SPARK_MASTER"), os.environ.get("PYSPARK_SUBMIT_ARGS"))
sys.exit({code})
"""


REMOTE = {"conn_type": "spark_connect", "host": "spark.internal", "port": 15002, "password": "a-token"}
LOCAL = {"conn_type": "spark", "host": "local[3]", "extra": {"spark-binary": "no-such-binary", "deploy-mode": "client"}}


def executed(
    connection: dict[str, object], folder: Path, code: int = 0, conf: dict[str, str] | None = None, engine: str = ""
) -> str:
    """What a task says, by a connection, whose job ends with an exit code."""
    (folder / "spark_jobs").mkdir()
    (folder / "spark_jobs" / "aggregate_windows.py").write_text(JOB.format(code=code))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "HEDDLE"))}
    environment |= {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
        "HEDDLE_HOME": str(folder),
        "HEDDLE_ENGINE": engine,
        "HEDDLE_WAREHOUSE": str(folder / "warehouse"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "plugins")]),
    }
    command = [sys.executable, "-c", PROBE, json.dumps(conf or {})]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("code", "result"), [(0, "well"), (3, "AirflowException aggregate_windows.py ended with exit code 3")]
)
def test_the_job_runs_here(code: int, result: str, tmp_path: Path) -> None:
    told = executed(REMOTE, tmp_path, code)
    assert f"RESULT {result}" in told, told[-2000:]
    options = ["--warehouse", str(tmp_path / "warehouse"), "--plan-version", "3"]
    options += ["--from", "2013-07-01", "--to", "2013-07-02", "--run-id", "r 1", "--live"]
    assert f"arguments {options}" in told and "remote sc://spark.internal:15002/;token=TOKEN" in told
    assert "a-token" not in told


@pytest.mark.parametrize("engine", ["auto", "local"])
def test_an_engine_that_starts_spark_itself_needs_no_spark_submit(engine: str, tmp_path: Path) -> None:
    told = executed(LOCAL, tmp_path, conf={"spark.executor.memory": "1 g"}, engine=engine)
    assert "RESULT well" in told, told[-2000:]
    assert "master local[3] --conf 'spark.executor.memory=1 g' pyspark-shell" in told


@pytest.mark.parametrize(("host", "engine"), [("spark://127.0.0.1:1", ""), ("local[3]", ""), ("local[3]", "spark")])
def test_spark_is_submitted_to(host: str, engine: str, tmp_path: Path) -> None:
    told = executed(LOCAL | {"host": host}, tmp_path, engine=engine)
    assert "no-such-binary" in told and "RESULT well" not in told and "master" not in told.split("RESULT")[0]
