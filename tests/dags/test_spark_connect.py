"""How a task runs its job: by ``spark-submit``, or as a process here that asks a server or starts Spark itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.dags.conftest import RunScript

PROBE = """
import json, logging, sys
from pathlib import Path
from heddle.airflow import operators
operators.job_file = lambda job: Path(f"{job}.py").absolute()
logging.basicConfig(level="INFO", stream=sys.stdout, format="LOG %(message)s")
given = {"plan_version": 3, "from": "2013-07-01", "to": "2013-07-02", "live": True}
conf = json.loads(sys.argv[1])
task = operators.AggregateOperator(task_id="aggregate", conn_id="spark_default", pinned=given, conf=conf)
try:
    task.execute({"run_id": "r 1"})
    print("RESULT", json.dumps("well"))
except Exception as error:
    print("RESULT", json.dumps(f"{type(error).__name__} {error}"))
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
    run_script: RunScript,
    connection: dict[str, object],
    folder: Path,
    code: int = 0,
    conf: dict[str, str] | None = None,
    engine: str = "",
) -> tuple[str, str]:
    """How a task ends, by a connection, whose job ends with an exit code; and all that it says."""
    (folder / "aggregate_windows.py").write_text(JOB.format(code=code))
    variables = {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
        "HEDDLE_HOME": str(folder),
        "HEDDLE_ENGINE": engine,
        "HEDDLE_WAREHOUSE": str(folder / "warehouse"),
    }
    return run_script(PROBE, folder, json.dumps(conf or {}), **variables)


@pytest.mark.parametrize(
    ("code", "result"), [(0, "well"), (3, "AirflowException aggregate_windows.py ended with exit code 3")]
)
def test_the_job_runs_here(run_script: RunScript, code: int, result: str, tmp_path: Path) -> None:
    end, output = executed(run_script, REMOTE, tmp_path, code)
    assert end.startswith(result), output[-2000:]
    options = ["--warehouse", str(tmp_path / "warehouse"), "--plan-version", "3"]
    options += ["--from", "2013-07-01", "--to", "2013-07-02", "--run-id", "r 1", "--live"]
    assert f"arguments {options}" in output and "remote sc://spark.internal:15002/;token=TOKEN" in output
    assert "a-token" not in output


@pytest.mark.parametrize("engine", ["auto", "local"])
def test_an_engine_that_starts_spark_itself_needs_no_spark_submit(
    run_script: RunScript, engine: str, tmp_path: Path
) -> None:
    end, output = executed(run_script, LOCAL, tmp_path, conf={"spark.executor.memory": "1 g"}, engine=engine)
    assert end == "well", output[-2000:]
    assert "master local[3] --conf 'spark.executor.memory=1 g' pyspark-shell" in output


@pytest.mark.parametrize(("host", "engine"), [("spark://127.0.0.1:1", ""), ("local[3]", ""), ("local[3]", "spark")])
def test_spark_is_submitted_to(run_script: RunScript, host: str, engine: str, tmp_path: Path) -> None:
    end, output = executed(run_script, LOCAL | {"host": host}, tmp_path, engine=engine)
    assert "no-such-binary" in output and end != "well" and "master" not in output.split("RESULT")[0]
