"""The page in Airflow: nobody sees it without a user, and text from tables cannot become markup."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROBE = """
import json
from fastapi.testclient import TestClient
import sharing_plan_page as page
client = TestClient(page.build_app())
hostile = "<script>alert(1)</script>"
row = {
    "plan_version": 3, "created_at": "2013-07-01", "created_by": hostile, "reason": hostile,
    "algorithm": "weave-share",
    "cost_model": "paper",
    "plan_cost": 1234.5, "no_share_cost": 2000, "shared_cost": None, "stream": hostile,
    "tree": hostile, "query": hostile, "tree_cost": 7,
}
print("RESULT" + json.dumps({
    "statuses": {
        path: client.get(path).status_code for path in ("/", "/?version=1", "/docs", "/openapi.json")
    },
    "forged": client.get("/", headers={"Authorization": "Bearer nonsense"}).status_code,
    "html": page.render([row, row]), "empty": page.render([]), "none": page.plan_rows("no/such/folder", None),
}))
"""


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("airflow")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(home / "plugins"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "PYTHONPATH": os.pathsep.join((str(ROOT / "plugins"), str(ROOT))),
    }
    # The app alone, with the auth manager that Airflow makes when its api-server starts.
    probe = "from airflow.api_fastapi.app import create_auth_manager\ncreate_auth_manager()\n" + PROBE
    done = subprocess.run([sys.executable, "-c", probe], env=environment, capture_output=True, text=True, cwd=home)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[-1].removeprefix("RESULT"))


def test_no_user_no_page(probed: dict[str, Any]) -> None:
    assert probed["statuses"] == {"/": 401, "/?version=1": 401, "/docs": 404, "/openapi.json": 404}
    assert probed["forged"] in (401, 403)


def test_text_from_tables_is_escaped(probed: dict[str, Any]) -> None:
    assert "<script>" not in probed["html"] and "&lt;script&gt;" in probed["html"]
    assert "version 3" in probed["html"] and "1,234.50" in probed["html"]


def test_without_a_plan_it_says_what_to_do(probed: dict[str, Any]) -> None:
    assert probed["none"] == [] and "refresh_sharing_plan" in probed["empty"]
