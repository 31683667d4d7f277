"""The two images without Docker: their install steps in virtual environments at different paths, the commands of
compose.yaml for master, worker and history server, and a run whose driver has the one and whose executors the other."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_jobs.store.settings import PROJECT
from tests.dags.standalone_cluster import free_port

DOCKER = PROJECT / "docker"
UV = Path(sys.executable).with_name("uv")
SECRETS = {"SPARK_SECRET": "an0therSecret", "AIRFLOW_DB_PASSWORD": "a", "LEASE_DB_PASSWORD": "b"}

EVENTS = "ts,shop,amount\n" + "".join(
    f"2026-01-01T{hour:02}:{minute:02}:00Z,{'ab'[minute % 2]},{hour + minute}\n"
    for hour in range(6)
    for minute in range(60)
)
STREAMS = """
streams:
  orders:
    source: {format: csv, path: orders.csv}
    time: ts
    schema: {ts: timestamp, shop: string, amount: long}
"""
QUERIES = """-- name: turnover
SELECT shop, sum(amount) AS total, median(amount) AS typical FROM orders
WINDOW RANGE '1 hour' SLIDE '10 minutes' ON ts GROUP BY shop;
"""

pytestmark = pytest.mark.slow


def install_steps(image: str) -> tuple[str, str]:
    """The commands of the last stage that install dependencies, and the wheel."""
    steps = re.findall(r"^RUN ((?:.*\\\n)*.*)$", (DOCKER / image).read_text().rpartition("\nFROM ")[2], re.MULTILINE)
    dependencies = next(step for step in steps if "--requirement" in step)
    wheel = next(step for step in steps if "--no-deps" in step)
    return dependencies, wheel


def environment_of_image(image: str, place: Path, wheel: Path) -> Path:
    """A virtual environment that has what an image installs; its Python."""
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, place / "env"], check=True)
    python = place / "env" / "bin" / "python"
    # the scripts of the environment come first; pip is uv's, which shares packages with what is installed already
    (place / "env" / "bin" / "pip").write_text(
        f'#!/bin/sh\nshift\nexec {UV} pip install --quiet --python {python} "$@"\n'
    )
    (place / "env" / "bin" / "pip").chmod(0o755)
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(PROJECT / name, place)
    for step in install_steps(image):
        command = step.replace("--no-cache-dir ", "").replace("/opt/heddle/wheel/*.whl", str(wheel))
        # jars are fetched where a test runs, and DAGs are exported to the folder of the image
        command = command.replace("/opt/heddle/jars", str(place / "jars")).replace(
            "/opt/heddle/dags", str(place / "dags")
        )
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=place,
            env=os.environ | {"PATH": f"{python.parent}:{os.environ['PATH']}", "PYTHONPATH": ""},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return python


def filled(text: str) -> str:
    """A text of compose.yaml as Docker fills it in."""
    text = re.sub(r"\$\{([A-Z_]+):\?[^}]*\}", lambda matched: SECRETS[matched[1]], text)
    return re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", text).replace("$$", "$")


@contextmanager
def services(compose: dict[str, Any], python: Path, place: Path, conf: Path) -> Iterator[str]:
    """Master, worker and history server by their commands in compose.yaml; the URL of the master."""
    port, history = free_port(), free_port()
    home = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__path__[0])"], check=True, capture_output=True, text=True
    ).stdout.strip()
    environment = {
        **{"PATH": f"{python.parent}:/usr/bin:/bin", "SPARK_HOME": home, "SPARK_CONF_DIR": str(conf)},
        **{"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "HOME": str(place)},
    }
    if "JAVA_HOME" in os.environ:
        environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
    running = []
    with (place / "services.log").open("w") as log:
        try:
            for name in ("spark-master", "spark-worker", "spark-history"):
                service = compose["services"][name]
                command = filled(service["command"][-1]).replace("spark-master", "127.0.0.1").replace("7077", str(port))
                command = command.replace("/tmp/work", str(place / "work")).replace("8081", str(free_port()))
                own = {key: filled(str(value)) for key, value in service["environment"].items()}
                own = {key: value for key, value in own.items() if key != "SPARK_CONF_DIR"}
                if "SPARK_HISTORY_OPTS" in own:
                    options = own["SPARK_HISTORY_OPTS"].replace(
                        "/opt/heddle/var/spark-events", str(place / "spark-events")
                    )
                    own["SPARK_HISTORY_OPTS"] = f"{options} -Dspark.history.ui.port={history}"
                running.append(
                    subprocess.Popen(["sh", "-c", command], env=environment | own, stdout=log, stderr=log, cwd=place)
                )
            yield f"spark://127.0.0.1:{port} http://127.0.0.1:{history}"
        finally:
            for process in reversed(running):
                process.terminate()
            for process in running:
                process.wait(60)


def answered(url: str, until: float) -> Any:
    """What a server answers, once it does."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                payload = json.load(response)
            if payload or time.monotonic() > until:
                return payload
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(0.5)


def test_a_driver_of_one_image_and_executors_of_the_other_run_queries(tmp_path: Path) -> None:
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    subprocess.run(
        [UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path / "wheel", PROJECT], check=True, capture_output=True
    )
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    for name in ("airflow-image", "spark"):
        (tmp_path / name).mkdir()
    driver = environment_of_image("Dockerfile.airflow", tmp_path / "airflow-image", wheel)
    workers = environment_of_image("Dockerfile.spark", tmp_path / "spark", wheel)
    assert sorted(path.name for path in (tmp_path / "airflow-image" / "dags").glob("**/*.py"))

    project, conf = tmp_path / "project", tmp_path / "conf"
    project.mkdir()
    conf.mkdir()
    (tmp_path / "spark" / "spark-events").mkdir()
    (project / "orders.csv").write_text(EVENTS)
    (project / "streams.yaml").write_text(STREAMS)
    (project / "queries.sql").write_text(QUERIES)
    settings = filled(compose["configs"]["spark-defaults"]["content"])
    settings = settings.replace("/opt/heddle/var/spark-events", str(tmp_path / "spark" / "spark-events"))
    (conf / "spark-defaults.conf").write_text(settings)

    image = (DOCKER / "Dockerfile.airflow").read_text()
    stated = compose["services"]["airflow-scheduler"]["environment"]
    with services(compose, workers, tmp_path / "spark", conf) as urls:
        master, history = urls.split()
        environment = {
            **{"PATH": f"{driver.parent}:/usr/bin:/bin", "HOME": str(tmp_path), "SPARK_CONF_DIR": str(conf)},
            **{"HEDDLE_SPARK_MASTER": master, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(workers)},
            **{"HEDDLE_TASK_MEMORY": filled(stated["HEDDLE_TASK_MEMORY"])},
            **{"HEDDLE_JARS": str(tmp_path / "airflow-image" / "jars")},
            **dict(re.findall(r"(HEDDLE_SPARK_CODE)=(\S+)", image)),
        }
        if "JAVA_HOME" in os.environ:
            environment["JAVA_HOME"] = os.environ["JAVA_HOME"]
        shown = {}
        for engine in ("spark", "local"):
            if engine == "local":
                environment.pop("HEDDLE_SPARK_MASTER")
            command = [
                driver.with_name("heddle"),
                "run",
                "queries.sql",
                "--streams",
                "streams.yaml",
                "--engine",
                engine,
            ]
            command += [
                "--warehouse",
                tmp_path / f"answers-{engine}",
                "--from",
                "2026-01-01",
                "--to",
                "2026-01-02",
                "--json",
            ]
            done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
            read = [
                driver.with_name("heddle"),
                "read",
                "turnover",
                "--warehouse",
                tmp_path / f"answers-{engine}",
                "--format",
                "csv",
            ]
            shown[engine] = subprocess.run(read, env=environment, check=True, capture_output=True, text=True).stdout
        assert shown["spark"] == shown["local"] and shown["spark"].count("\n") > 50
        assert answered(f"{history}/api/v1/applications", time.monotonic() + 60)
    logs = "".join(file.read_text() for file in (tmp_path / "spark" / "work").glob("**/stderr"))
    assert str(driver.parent) not in logs
