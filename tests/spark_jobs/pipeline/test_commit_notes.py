"""The Delta commits of a run name the run: in ``userMetadata``, which ``DESCRIBE HISTORY`` and delta-rs show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_jobs.store.warehouse.warehouse import TOKEN
from tests.spark_jobs.laboratory import Laboratory, steady

TEXT = """
-- name: volumes
-- owner: desk
-- table: volumes
SELECT symbol, sum(volume) AS total FROM trades WINDOW RANGE '20 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;
"""

TABLES = ("results", "partials", "publish_log", "quality_results", "stream_statistics", "tables/volumes")


def notes(laboratory: Laboratory, table: str) -> list[dict[str, Any]]:
    """The notes of a table's commits, oldest first."""
    commits = DeltaTable(laboratory.warehouse.path(table)).history()[::-1]
    return [json.loads(commit["userMetadata"]) for commit in commits if "userMetadata" in commit]


def test_every_commit_of_a_run_names_run_interval_and_plan_version(engine: Any, tmp_path: Path) -> None:
    laboratory = Laboratory(engine, tmp_path)
    laboratory.write(steady(120))
    version = laboratory.plan(TEXT)
    laboratory.run(version, 0, 60, "first")
    laboratory.run(version, 60, 120, "second")
    expected = [
        {"run_id": "first", "from": "2013-07-01T00:00:00Z", "to": "2013-07-01T01:00:00Z", "plan_version": version},
        {"run_id": "second", "from": "2013-07-01T01:00:00Z", "to": "2013-07-01T02:00:00Z", "plan_version": version},
    ]
    for table in TABLES:
        found = notes(laboratory, table)
        assert [note for number, note in enumerate(found) if note not in found[:number]] == expected, table


def test_commits_outside_a_run_have_no_note(engine: Any, tmp_path: Path) -> None:
    laboratory = Laboratory(engine, tmp_path)
    laboratory.write(steady(60))
    laboratory.plan(TEXT)
    assert notes(laboratory, "sharing_plans") == []


def test_the_token_of_a_commit_keeps_its_meaning(engine: Any, tmp_path: Path) -> None:
    laboratory = Laboratory(engine, tmp_path)
    laboratory.write(steady(60))
    laboratory.run(laboratory.plan(TEXT), 0, 60)
    commits = [commit for commit in DeltaTable(laboratory.warehouse.path("results")).history() if TOKEN in commit]
    assert len({commit[TOKEN] for commit in commits}) == len(commits) == 1


def test_secrets_in_the_id_of_a_run_are_not_written(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOUSE_TOKEN", "marked-secret-1")
    laboratory = Laboratory(engine, tmp_path)
    laboratory.write(steady(60))
    laboratory.run(laboratory.plan(TEXT), 0, 60, "run of marked-secret-1")
    assert {note["run_id"] for note in notes(laboratory, "results")} == {"run of ***"}
