"""No attempt ends without a reason in its log: Airflow's own supervisor, against a stub of its API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from heddle.local.servers import Place, airflow_environment, free_port

ROOT = Path(__file__).resolve().parents[2]

DAG = """
import os, signal
from airflow.sdk import dag, task
from heddle.airflow.operators import RepairOperator

@dag(schedule=None)
def attempts():
    @task
    def well(): print("well")

    @task
    def killed(): os.kill(os.getpid(), signal.SIGKILL)

    RepairOperator(task_id="submitted", conn_id="spark_default", outdated={"plan_version": 1, "days": 7})
    well(), killed()

attempts()
"""

PROBE = """
import json, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4
from airflow.executors.executor_loader import ExecutorLoader
from airflow.listeners.listener import get_listener_manager
from airflow.sdk.api.datamodels._generated import BundleInfo, TaskInstance
from airflow.sdk.execution_time.coordinator import get_coordinator_manager
from airflow.sdk.execution_time.supervisor import supervise_task

port, logs = int(sys.argv[1]), Path(sys.argv[2])
coordinator = get_coordinator_manager().for_queue("default")
plugin = sys.modules[type(coordinator).__module__]
NOW = "2026-01-01T00:00:00Z"
RUN = {
    "dag_run": {"dag_id": "attempts", "run_id": "r", "logical_date": NOW, "data_interval_start": NOW,
                "data_interval_end": NOW, "run_after": NOW, "start_date": NOW, "end_date": None, "clear_number": 0,
                "run_type": "manual", "state": "running", "conf": {}, "consumed_asset_events": [],
                "partition_key": None},
    "max_tries": 1, "should_retry": True, "variables": [], "connections": [], "xcom_keys_to_clear": [],
}

class Server(BaseHTTPRequestHandler):
    states = []

    def answer(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, body = 200, {}
        if self.path.endswith("/run"):
            body = RUN
        elif self.path.endswith("/state"):
            self.states.append(json.loads(sent)["state"])
            status = 204
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        if status != 204:
            self.wfile.write(json.dumps(body).encode())

    do_GET = do_PATCH = do_PUT = do_POST = answer

    def log_message(self, *ignored):
        pass

def serve():
    server = ThreadingHTTPServer(("127.0.0.1", port), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()

def attempt(name, task="well"):
    failed = None
    try:
        supervise_task(
            ti=TaskInstance(id=uuid4(), task_id=task, dag_id="attempts", run_id="r", try_number=1,
                            dag_version_id=uuid4(), queue="default"),
            bundle_info=BundleInfo(name="dags-folder"), dag_rel_path="attempts.py", token="t",
            server=f"http://127.0.0.1:{port}/execution/", log_path=f"{name}.log",
        )
    except Exception as error:
        failed = type(error).__name__
    lines = [json.loads(line) for line in (logs / f"{name}.log").open()]
    raised = [detail["exc_value"] for line in lines for detail in line.get("error_detail", [])]
    return {"failed": failed, "log": [line["event"] for line in lines], "raised": raised}

def clock(seconds, sleep):
    plugin.time = SimpleNamespace(monotonic=iter(seconds).__next__, sleep=sleep)

found = {}
clock([0, 299, 301], lambda seconds: None)
found["no server"] = attempt("none")
# the server comes up while the attempt waits
clock([0, 1], lambda seconds: serve())
found["late server"] = attempt("late")
plugin.time = time
found["killed"] = attempt("killed", "killed")
found["submitted"] = attempt("submitted", "submitted")
found["states"] = Server.states

lost = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, try_number=2)
told = lambda: [json.loads(line)["event"] for file in logs.glob("dag_id=d/**/attempt=2.log") for line in file.open()]
listeners = get_listener_manager().hook
listeners.on_task_instance_failed(previous_state=None, task_instance=lost, error=ValueError("the task's own"))
found["own"] = told()
listeners.on_task_instance_failed(previous_state=None, task_instance=lost, error="state mismatch")
executor = ExecutorLoader.import_default_executor_cls()[0](parallelism=1)
found["given up"] = [task is lost for task in executor.try_adopt_task_instances([lost])]
found["told"] = told()
print("RESULT" + json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each attempt's log says, with the settings of the embedded Airflow."""
    home = tmp_path_factory.mktemp("attempts")
    dags = home / "dags"
    dags.mkdir()
    (dags / "attempts.py").write_text(DAG)
    program = home / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho computing\necho 'error HDL-541 another run has published' >&2\nexit 7\n")
    program.chmod(0o755)
    port = free_port()
    environment = {
        **airflow_environment(Place(home), 1, {"api": port, "worker_logs": 2, "trigger_logs": 3}),
        # a cluster: only for a local master the job runs in a process of the task itself
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "yarn"}),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": f"sqlite+aiosqlite:///{home}/airflow.db",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        # The client's own pauses between its tries are of no interest here.
        "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "1",
        "HEDDLE_JARS": str(ROOT / ".cache" / "ivy" / "jars"),
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(port), str(home / "logs")],
        env=environment,
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[-1].removeprefix("RESULT"))


def test_a_task_waits_for_the_api_server(found: dict[str, Any]) -> None:
    late = found["late server"]
    assert late["failed"] is None
    assert late["log"][0].startswith("waiting for the API server: ConnectError")
    assert "well" in late["log"]
    assert found["states"][0] == "success"


def test_an_attempt_that_never_began_says_why(found: dict[str, Any]) -> None:
    none = found["no server"]
    assert none["failed"] == "ConnectError"
    assert "Connection refused" in none["log"][-1] and none["log"][-1].startswith("Airflow could not begin")


def test_a_killed_process_is_told_of(found: dict[str, Any]) -> None:
    assert found["killed"]["log"][-1] == "the process of this attempt ended with SIGKILL"


def test_a_spark_submit_that_dies_says_its_exit_code_and_last_lines(found: dict[str, Any]) -> None:
    (raised,) = found["submitted"]["raised"]
    assert "Error code is: 7." in raised
    assert raised.endswith("computing\nerror HDL-541 another run has published")
    assert found["states"][1:] == ["up_for_retry"]


def test_what_only_the_scheduler_knows_is_in_the_log(found: dict[str, Any]) -> None:
    assert found["own"] == []
    assert found["given up"] == [True]
    ended, lost = found["told"]
    assert ended.startswith("state mismatch") and lost.startswith("Airflow was stopped or killed")
