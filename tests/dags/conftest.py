"""One process with Airflow for all tests of this folder that run scripts in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

RunScript = Callable[..., tuple[Any, str]]


@pytest.fixture(scope="session")
def run_script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunScript]:
    """Runs a script in a fork of a process that has imported Airflow (``tests/dags/airflow_server.py``).

    ``run_script(script, folder, *arguments, **variables)`` runs it in ``folder``, which is Airflow's home and has its
    database, with these environment variables. Returns what it prints as JSON after ``RESULT``, and all that it
    prints. Fails if the script does.
    """
    home = tmp_path_factory.mktemp("airflow")
    errors = home / "errors"
    command = [sys.executable, "-m", "tests.dags.airflow_server"]
    with (
        errors.open("w") as log,
        subprocess.Popen(
            command,
            env=airflow_variables(home),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as server,
    ):
        assert server.stdin is not None and server.stdout is not None

        def run(script: str, folder: Path, *arguments: str, **variables: str) -> tuple[Any, str]:
            out, err = (folder / f"{name}.of-script" for name in ("out", "err"))
            for file in (out, err):
                file.unlink(missing_ok=True)
            request = {
                "script": script,
                "arguments": arguments,
                "environment": airflow_variables(folder) | variables,
                "folder": str(folder),
                "out": str(out),
                "err": str(err),
            }
            print(json.dumps(request), file=server.stdin, flush=True)
            code = server.stdout.readline()
            assert code, errors.read_text()
            printed = out.read_text()
            text = printed + err.read_text()
            assert int(code) == 0, text[-12000:]
            results = [line.removeprefix("RESULT") for line in printed.splitlines() if line.startswith("RESULT")]
            assert results, text[-12000:]
            return json.loads(results[-1]), text

        yield run
        server.stdin.close()


CREATE_DATABASE = """
from airflow.utils.db import initdb
initdb()
print("RESULT0")
"""


@pytest.fixture(scope="session")
def airflow_database(run_script: RunScript, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a fresh database, for scripts that need one: a copy in their folder saves two CPU seconds."""
    folder = tmp_path_factory.mktemp("database")
    run_script(CREATE_DATABASE, folder)
    return folder / "airflow.db"


def airflow_variables(home: Path) -> dict[str, str]:
    """The environment of an Airflow that has its home and its database in a folder, and Heddle's plugins."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "HEDDLE"))},
        "AIRFLOW_HOME": str(home),
        # read when Airflow is imported
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "PYTHONPATH": os.pathsep.join((str(ROOT / "plugins"), str(ROOT))),
    }
