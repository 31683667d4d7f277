"""dbt over the views of a DuckDB file: it parses, builds and tests what heddle views --dbt writes.

dbt has an environment of its own (``.venv-peers/dbt``), which ``make test-slow`` makes.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.in_process import heddle
from tests.spark_jobs.results.stored import BY_TEXT, WHOLE, row, store

DBT = Path(__file__).resolve().parents[3] / ".venv-peers/dbt/bin/dbt"

PROJECT = {
    "dbt_project.yml": "name: shop\nversion: '1.0'\nprofile: shop\nmodel-paths: [models]\n",
    "profiles.yml": """
shop:
  target: dev
  outputs:
    dev:
      type: duckdb
      path: shop.duckdb
      attach: [{path: house.duckdb, alias: house, read_only: true}]
""",
    "models/busiest.sql": "SELECT who, max(n) AS most FROM {{ source('answers', 'by.text') }} GROUP BY who\n",
}


def dbt(folder: Path, *arguments: str) -> str:
    """What a command of dbt prints. Nothing is sent to anybody."""
    environment = dict(os.environ) | {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "DBT_PROFILES_DIR": str(folder)}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(DBT), "--no-use-colors", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.longer
@pytest.mark.skipif(not DBT.exists(), reason="make test-slow fetches dbt")
def test_dbt_builds_and_tests_what_the_file_has(tmp_path: Path) -> None:
    owned = replace(BY_TEXT, owner="ops {{ 1 }}", text="SELECT '{% raw %}'\nFROM t")
    rows = [row(BY_TEXT, n, n, who) for n in range(3) for who in ("A", None, "-")]
    store(tmp_path / "w", [([owned, WHOLE, replace(WHOLE, name="by-text")], rows)])
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    house = ("--warehouse", str(tmp_path / "w"))
    assert heddle("views", *house, "--output", str(tmp_path / "house.duckdb")).code == 0
    options = ("--dbt", "--dbt-source", "answers", "--catalog-schema", "house.main")
    assert heddle("views", *house, *options, "--output", str(tmp_path / "models/sources.yml")).code == 0
    parsed = dbt(tmp_path, "parse", "--show-all-deprecations")
    assert "eprecat" not in parsed, parsed
    assert "PASS=1 " in dbt(tmp_path, "run")
    tested = dbt(tmp_path, "test")
    # three tables: two times, the revision, the grain
    assert "PASS=12 WARN=0 ERROR=0" in tested and "unique_answers_whole" in tested, tested
    assert "WARN" in dbt(tmp_path, "source", "freshness")
    manifest = json.loads((tmp_path / "target/manifest.json").read_text())
    (table,) = [each for each in manifest["sources"].values() if each["name"] == "by.text"]
    assert table["source_name"] == "answers" and table["config"]["meta"]["owner"] == "ops { { 1 }}"
