"""The guide *Deploy to your Airflow*, followed literally: a plain Airflow in an environment of its own, the wheel, and
PostgreSQL, through the real scheduler."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from heddle.local.airflow_api import AirflowApi
from heddle.local.servers import (
    DATABASE,
    DATABASE_USER,
    LOOPBACK,
    Place,
    account_for,
    down,
    free_port,
    namespace_prefix,
    start_postgres,
)
from tests.snippets import blocks

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "deploy-airflow.md"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

PATIENCE = 1500.0
"""Seconds for a step: the machine may be busy."""


@dataclass
class Deployment:
    """An Airflow that knows Heddle by the wheel alone."""

    folder: Path
    environment: dict[str, str]
    api: AirflowApi

    def play(self, script: str) -> str:
        """Run a block of the guide, in the folder of the wheel; what it prints."""
        text = script.replace("/srv/", f"{self.folder}/srv/")
        done = subprocess.run(
            ["bash", "-e"], input=text, env=self.environment, cwd=self.folder, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def runs(self, dag: str) -> dict[str, str]:
        """The state of each run of a DAG, by its id."""
        listed = self.api.get(f"/api/v2/dags/{dag}/dagRuns?limit=100")["dag_runs"]
        return {run["dag_run_id"]: run["state"] for run in listed}

    def wait(self, done: Callable[[], bool], what: Callable[[], Any] = str) -> None:
        """Wait until something is so."""
        give_up = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < give_up, f"{what()}\n{(self.folder / 'airflow.log').read_text()[-8000:]}"
            time.sleep(2)

    def succeeded(self, dag: str, kind: str, number: int) -> None:
        """Wait for a number of successful runs of a kind."""

        def states() -> list[str]:
            return [state for name, state in self.runs(dag).items() if name.startswith(kind)]

        self.wait(lambda: states().count("success") >= number or "failed" in states(), lambda: (dag, self.runs(dag)))
        assert "failed" not in states(), (self.runs(dag), self.logs())

    def logs(self) -> str:
        """The ends of the logs of all tasks."""
        files = sorted((self.folder / "srv" / "airflow" / "logs").rglob("attempt=*.log"))
        return "\n".join(f"{file}\n{file.read_text()[-3000:]}" for file in files)


def installed(folder: Path) -> Path:
    """The scripts of an environment of its own with an Airflow that has a database driver, and the wheel beside it."""
    uv = Path(sys.executable).parent / "uv"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def call(*arguments: object) -> None:
        done = subprocess.run([uv, *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    source = folder / "source"
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in tracked.splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    call("build", "--wheel", "--out-dir", folder, source)
    shutil.rmtree(source)
    call("venv", "--seed", "--python", sys.executable, "venv")
    python = folder / "venv" / "bin" / "python"
    pinned = ("--python", python, "--constraints", ROOT / "constraints.txt")
    call("pip", "install", *pinned, "apache-airflow", "psycopg2-binary", "asyncpg")
    (wheel,) = folder.glob("*.whl")
    # as pip does it, from uv's cache
    call("pip", "install", *pinned, f"{wheel}[airflow,spark]")
    return python.parent


def airflow_variables(folder: Path, scripts: Path, database: str, port: int) -> dict[str, str]:
    """The environment of an Airflow that was there before: nothing of Heddle's but where the jars are."""
    of_others = ("AIRFLOW", "HEDDLE", "PYTHON", "SPARK_HOME", "VIRTUAL_ENV")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(of_others)},
        "AIRFLOW_HOME": str(folder / "srv" / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{LOOPBACK}:{port}/execution/",
        "AIRFLOW__API__HOST": LOOPBACK,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://{LOOPBACK}:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": "of this test alone, and long enough for it to be one that is taken",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "120",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg2://{database}",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": f"postgresql+asyncpg://{database}",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "HEDDLE_JARS": str(ROOT / ".cache" / "ivy" / "jars"),
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "SPARK_LOCAL_IP": LOOPBACK,
        "GX_ANALYTICS_ENABLED": "false",
    }


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """A plain Airflow before the guide begins: a database, no DAGs, no plugins, not running."""
    scripts = installed(tmp_path)
    place = Place(tmp_path / "database")
    as_root = os.geteuid() == 0
    account = account_for(place, as_root, namespace_prefix() if as_root else None)
    server = start_postgres(place, account, lambda line: None)
    database = f"{DATABASE_USER}:{place.secret('postgres')}@{LOOPBACK}:{server.ports['sql']}/{DATABASE}"
    port = free_port()
    environment = airflow_variables(tmp_path, scripts, database, port)
    (tmp_path / "srv" / "airflow" / "dags").mkdir(parents=True)
    try:
        deployed = Deployment(tmp_path, environment, AirflowApi(f"http://{LOOPBACK}:{port}"))
        deployed.play("airflow db migrate")
        yield deployed
    finally:
        down(place, lambda line: None)


def visits() -> str:
    """A visit every ten minutes of three days."""
    times = [
        f"2025-03-0{day}T{hour:02}:{minute:02}:00Z"
        for day in (3, 4, 5)
        for hour in range(24)
        for minute in range(0, 60, 10)
    ]
    return "\n".join(["time,page", *(f"{at},{'home' if n % 2 else 'cart'}" for n, at in enumerate(times)), ""])


def answers(deployed: Deployment) -> list[dict[str, str]]:
    printed = deployed.play("cd /srv/team_a && heddle read visits_by_page --limit 0 --format csv")
    return list(csv.DictReader(io.StringIO(printed)))


def test_the_guide_leads_to_answers(deployment: Deployment) -> None:
    events = deployment.folder / "srv" / "events" / "visits.csv"
    events.parent.mkdir()
    events.write_text(visits())
    scripts = [block.text for block in blocks(GUIDE) if block.language == "sh"]
    install, project, export, connect, plan, backfill, read, repair = scripts
    # the environment has what the first block installs
    assert "pip install './heddle-" in install and "jars --fetch" in install
    for script in (project, export, connect):
        deployment.play(script)
    with (deployment.folder / "airflow.log").open("w") as log:
        airflow = subprocess.Popen(
            ["airflow", "standalone"],
            env=deployment.environment,
            executable=shutil.which("airflow", path=deployment.environment["PATH"]),
            cwd=deployment.folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        follow(deployment, plan, backfill, read, repair, events)
    finally:
        os.killpg(airflow.pid, signal.SIGTERM)
        try:
            airflow.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(airflow.pid, signal.SIGKILL)


def follow(deployed: Deployment, plan: str, backfill: str, read: str, repair: str, events: Path) -> None:
    """The guide from its fifth step on."""
    api = deployed.api
    deployed.wait(lambda: set(api.health().values()) == {"healthy"}, api.health)
    deployed.wait(
        lambda: len(api.get("/api/v2/dags?tags=heddle")["dags"]) == 5, lambda: api.get("/api/v2/importErrors")
    )
    assert {dag["owners"][0] for dag in api.get("/api/v2/dags")["dags"]} == {"team_a"}
    assert [plugin["name"] for plugin in api.get("/api/v2/plugins")["plugins"]].count("heddle") == 1
    deployed.play(plan)
    deployed.succeeded("team_a_refresh_sharing_plan", "manual__", 1)
    deployed.play(backfill)
    deployed.succeeded("team_a_aggregate_windows", "backfill__", 3)
    assert "visits" in deployed.play(read)
    before = answers(deployed)
    # by hand: hourly windows of six visits that slide by 20 minutes, and those at the end of the last day are not over
    assert sum(int(row["visits"]) for row in before if "T12:00:00" in row["window_end"].replace(" ", "T")) == 3 * 6
    with events.open("a") as file:
        file.write("2025-03-04T11:30:00Z,home\n")
    deployed.play(repair)
    deployed.succeeded("team_a_repair_results", "manual__", 1)
    after = answers(deployed)
    changed = [row for row in after if row not in before]
    assert len(after) == len(before) and len(changed) >= 3
    total = sum(int(row["visits"]) for row in after) - sum(int(row["visits"]) for row in before)
    assert total == 3, json.dumps(changed)
    assert "visits_by_page" in page(api, "/sharing-plan/in/team_a_/answers")


def page(api: AirflowApi, path: str) -> str:
    """A page of Heddle in Airflow, as its user sees it."""
    import urllib.request

    token = api._send("GET", "/auth/token", None, {})["access_token"]
    request = urllib.request.Request(api.base_url + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
        return str(answer.read().decode())
