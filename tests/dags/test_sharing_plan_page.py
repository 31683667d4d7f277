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
from fractions import Fraction
from pathlib import Path
from fastapi.testclient import TestClient
from optimizer.plan import build_plan
from optimizer.query import ACQ, LONG, SECOND, TIMESTAMP, Output, Source, Stream, Window, Workload
from spark_jobs.planning import publish_plan
from spark_jobs.tables import Warehouse
import sharing_plan_page as page
client = TestClient(page.build_app())
hostile = "<script>alert(1)</script>"
stream = Stream(hostile, Source("csv", "x"), (("ts", TIMESTAMP),), "ts")
outputs = (Output("n", "count", None, None, LONG),)
queries = [
    ACQ(name, hostile, Window(8 * SECOND, slide * SECOND), outputs, owner=hostile)
    for name, slide in ((hostile, 4), ("other", 2))
]
warehouse = Warehouse.open("warehouse")
for rate in (1000, 2000):
    for chosen in (queries, queries[:1]):
        plan = build_plan(Workload(tuple(chosen), (stream,)), {hostile: Fraction(rate)}, "weave-share")
        publish_plan(warehouse, plan, hostile, hostile)
first, newest = page.plan_rows("warehouse", 1), page.plan_rows("warehouse", None)
print("RESULT" + json.dumps({
    "statuses": {
        path: client.get(path).status_code for path in ("/", "/?version=1", "/docs", "/openapi.json")
    },
    "forged": client.get("/", headers={"Authorization": "Bearer nonsense"}).status_code,
    "first": page.render(first), "newest": page.render(newest),
    "empty": page.render([]), "none": page.plan_rows("no/such/folder", None),
    "beyond": page.plan_rows("warehouse", 9),
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
    for html in (probed["first"], probed["newest"]):
        assert "<script" not in html and "&lt;script&gt;alert(1)" in html


def test_the_page_is_of_the_version_asked_for(probed: dict[str, Any]) -> None:
    assert "<i>version</i> 1<" in probed["first"] and "other" in probed["first"]
    assert (
        "<i>version</i> 4<" in probed["newest"]
        and "other" not in probed["newest"].split("</style>")[1].split("<footer")[0]
    )
    assert probed["beyond"] == []


def test_without_a_plan_it_says_what_to_do(probed: dict[str, Any]) -> None:
    assert probed["none"] == [] and "refresh_sharing_plan" in probed["empty"]
