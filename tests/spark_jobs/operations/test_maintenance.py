"""Maintenance: fewer files, the same answers; runs, readers and rollbacks find what they need."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from heddle.cli.app import app
from optimizer.synopses.synopsis import synopses_of
from optimizer.workload.instants import DAY as DAYS
from optimizer.workload.values import ACQ, Window
from spark_jobs.operations import maintenance
from spark_jobs.operations.maintenance import FEW, maintain
from spark_jobs.store.warehouse.plans import RECENT, load_plan
from tests.spark_jobs.laboratory import DAY, MINUTE, QUERIES, Laboratory, steady

if TYPE_CHECKING:
    pass


@pytest.fixture
def laboratory(engine: Any, tmp_path: Path) -> Laboratory:
    lab = Laboratory(engine, tmp_path)
    lab.write(steady(240))
    lab.write([], "quotes")
    return lab


def files(laboratory: Laboratory, table: str) -> list[Path]:
    root = laboratory.warehouse.root / table
    return [root / file["path"] for file in laboratory.warehouse.files(table, "", "9")]


def stored(laboratory: Laboratory, table: str) -> set[str]:
    """The rows of a table, whatever file holds them."""
    rows = DeltaTable(laboratory.warehouse.path(table)).to_pyarrow_table().to_pylist()
    return {repr(sorted(row.items())) for row in rows}


@pytest.mark.longer
def test_files_of_queries_with_other_columns_are_merged(laboratory: Laboratory) -> None:
    """A file of results has only the columns that its queries use."""
    counts = QUERIES[QUERIES.index("-- name: all") :].partition("FROM")
    texts = (f"-- name: all\nSELECT {output} FROM{counts[2]}" for output in ("count(*) AS n", "avg(price) AS n"))
    versions = [laboratory.plan(text) for text in texts]
    for number, begin in enumerate(range(60, 160, 10)):
        laboratory.run(versions[number % 2], begin, begin + 10, f"run {begin}")
    columns = {tuple(pq.read_schema(path).names) for path in files(laboratory, "results")}
    before = stored(laboratory, "results")
    assert len(columns) == 2 and maintain(laboratory.warehouse).merged > 0
    assert stored(laboratory, "results") == before


def test_small_files_are_merged_and_nothing_else_changes(laboratory: Laboratory) -> None:
    version = laboratory.plan()
    for begin in range(60, 160, 10):
        laboratory.run(version, begin, begin + 10, f"run {begin}")
    before = {table: stored(laboratory, table) for table in ("partials", "results")}
    counts = {table: len(files(laboratory, table)) for table in before}
    assert min(counts.values()) > FEW
    previous_files = {table: files(laboratory, table) for table in before}
    versions = laboratory.versions()
    maintained = maintain(laboratory.warehouse, dry_run=True)
    assert maintained.merged == sum(counts.values()) and maintained.into == 0 and laboratory.versions() == versions
    house = str(laboratory.warehouse.root)
    output = CliRunner().invoke(app, ["maintain", "--warehouse", house, "--dry-run"]).stdout
    assert f"{sum(counts.values())} small files would be merged\n" in output
    shown = json.loads(CliRunner().invoke(app, ["maintain", "--warehouse", house, "--json"]).stdout)
    assert shown["rows_of_no_plan"] == shown["rows_too_old"] == 0 and shown["merged"] == sum(counts.values())
    for table, rows in before.items():
        assert stored(laboratory, table) == rows and len(files(laboratory, table)) == 1
        # what reads the version before still can
        assert all(path.exists() for path in previous_files[table])
    assert laboratory.wrong(version, 60, 160) == []
    # runs go on, with the partial aggregates that are there
    record = laboratory.run(version, 100, 170, "later", recompute=True)
    assert record.synopses_reused == 0 and laboratory.wrong(version, 60, 170) == []
    record = laboratory.run(version, 60, 170, "again")
    assert record.rows_scanned == 0 and laboratory.wrong(version, 60, 170) == []
    assert maintain(laboratory.warehouse).merged == 0


def test_what_nothing_refers_to_goes_after_the_retention(laboratory: Laboratory) -> None:
    version = laboratory.plan()
    laboratory.run(version, 60, 120, "first")
    old = files(laboratory, "results")
    orphan = old[0].with_name("part-of-a-killed-run.parquet")
    orphan.write_bytes(old[0].read_bytes())
    laboratory.run(version, 60, 120, "second", recompute=True)
    assert maintain(laboratory.warehouse).removed == 0 and orphan.exists() and old[0].exists()
    long_ago = 1_600_000_000
    for path in (orphan, *old):
        os.utime(path, (long_ago, long_ago))
    # the orphan is old; what the version before refers to was removed from the table just now
    assert maintain(laboratory.warehouse).tables["results"] == 1
    assert not orphan.exists() and old[0].exists()
    assert maintain(laboratory.warehouse, retention=0).removed > 0
    assert not old[0].exists() and laboratory.wrong(version, 60, 120) == []
    assert laboratory.run(version, 60, 120, "third").status == "unchanged"


def test_partial_aggregates_of_no_recent_plan_are_dropped(laboratory: Laboratory) -> None:
    first = laboratory.plan()
    laboratory.run(first, 60, 120)
    plan_fingerprints = fingerprints(laboratory, first)
    for number in range(1, RECENT + 1):
        assert maintain(laboratory.warehouse).rows_of_no_plan == 0
        assert plan_fingerprints <= kept(laboratory)
        laboratory.plan(QUERIES.replace("25 minutes", f"{25 + number} minutes").replace("40", f"4{number}"))
    maintained = maintain(laboratory.warehouse)
    assert maintained.rows_of_no_plan > 0 and not plan_fingerprints & kept(laboratory)
    # the answers stay; computed again they are the same
    assert laboratory.wrong(first, 60, 120) == []
    laboratory.run(first, 60, 120, "again", recompute=True)
    assert laboratory.wrong(first, 60, 120) == []


def test_partial_aggregates_beyond_all_windows_are_dropped(laboratory: Laboratory) -> None:
    version = laboratory.plan()
    laboratory.run(version, 60, 120)
    laboratory.run(version, 5 * 1440, 5 * 1440 + 60, "days later")
    assert maintain(laboratory.warehouse, keep=30 * 1440 * MINUTE).rows_too_old == 0
    maintained = maintain(laboratory.warehouse, keep=1440 * MINUTE)
    assert maintained.rows_too_old > 0 and laboratory.wrong(version, 60, 120) == []
    days = {file["day"] for file in laboratory.warehouse.files("partials", "", "9")}
    assert "2013-07-01" not in days and DAY > 0


def fingerprints(laboratory: Laboratory, version: int) -> set[str]:
    plan = load_plan(laboratory.warehouse, version)
    return {
        synopsis.fingerprint
        for tree in plan.trees
        for synopsis in synopses_of(plan.workload.stream(tree.stream), tree.queries, tree.together)
    }


def kept(laboratory: Laboratory) -> set[str]:
    table: pa.Table = DeltaTable(laboratory.warehouse.path("partials")).to_pyarrow_table(columns=["fingerprint"])
    return set(table["fingerprint"].to_pylist())


@pytest.mark.parametrize(
    ("ends", "reaches", "keep", "day"),
    [
        ((10 * DAYS,), (2 * DAYS,), 0, "1970-01-09"),
        ((10 * DAYS - 1,), (2 * DAYS,), 0, "1970-01-08"),
        ((3 * DAYS, 10 * DAYS, 4 * DAYS), (DAYS, 2 * DAYS, 1), 0, "1970-01-09"),
        ((10 * DAYS,), (2 * DAYS,), 3 * DAYS, "1970-01-06"),
        ((), (2 * DAYS,), 0, None),
    ],
)
def test_partials_are_kept_from_the_day_that_the_longest_window_of_the_newest_run_reaches(
    monkeypatch: pytest.MonkeyPatch, ends: tuple[int, ...], reaches: tuple[int, ...], keep: int, day: str | None
) -> None:
    queries = [ACQ("time", "trades", Window(reach, 1), ()) for reach in reaches]
    house: Any = None

    def horizon(version: int | None) -> str | None:
        rows = [SimpleNamespace(end=end) for end in ends]
        plan = SimpleNamespace(workload=SimpleNamespace(queries=queries))
        monkeypatch.setattr(maintenance, "current_version", lambda warehouse: version)
        monkeypatch.setattr(maintenance, "load_plan", lambda warehouse, number: plan)
        monkeypatch.setattr(maintenance.publish_log, "publications", lambda warehouse, records: rows)
        return maintenance._horizon(house, keep)

    assert (horizon(1), horizon(None)) == (day, None)
    queries.append(ACQ("rows", "trades", Window(5, 1, per=()), ()))
    assert horizon(1) is None
