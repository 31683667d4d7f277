"""Features of what was known then, with dimensions that changed since, and how long their versions are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import heddle
from spark_jobs.pipeline.run.dimensions import sweep_versions
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources import dimension_versions
from tests.in_process import Clock, without_spark
from tests.in_process import heddle as command

DAY = 86_400_000_000
CAME = 1_772_323_200
"""2026-03-01T00:00:00Z, in seconds: when the file of the orders arrived."""

FIRST, SECOND = CAME * 10**6 + 10 * DAY, CAME * 10**6 + 20 * DAY
"""When the two runs were, in microseconds."""

QUERY = """-- name: by_department
SELECT department, count(*) AS orders FROM orders JOIN products USING (product_id)
WINDOW RANGE '30 days' SLIDE '1 day' ON ordered_at GROUP BY department;"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project that ran twice, with another department of a product each time."""
    monkeypatch.chdir(tmp_path)
    Path("orders.csv").write_text("ordered_at,product_id\n2026-02-20T00:00:00Z,7\n2026-02-21T00:00:00Z,8\n")
    os.utime("orders.csv", (CAME, CAME))
    Path("streams.yaml").write_text(
        "streams:\n  orders:\n    source: {format: csv, path: orders.csv}\n    time: ordered_at\n"
        "    schema: {ordered_at: timestamp, product_id: long}\n"
        "dimensions:\n  products: {source: {format: csv, path: products.csv}, key: product_id}\n"
    )
    Path("queries.sql").write_text(QUERY)
    Path("heddle.toml").write_text('streams = "streams.yaml"\nworkload = "queries.sql"\nwarehouse = "warehouse"\n')
    for clock, department in ((FIRST, "toys"), (SECOND, "games")):
        Path("products.csv").write_text(f"product_id,department\n7,{department}\n8,food\n")
        with without_spark(Clock(clock)):
            done = command("run", "--from", "2026-02-21", "--to", "2026-02-22", "--recompute")
        assert done.code == 0, done
    yield tmp_path


def orders(at: int, department: str) -> list[int]:
    times = pa.array([at], pa.int64()).cast(pa.timestamp("us", "UTC"))
    labels = pa.table({"at": times, "department": [department]})
    house = heddle.open("warehouse")
    with without_spark(Clock(SECOND + DAY)):
        return list(house.features(labels, "by_department", at="at", known="then")["by_department__orders"].to_pylist())


def test_labels_know_the_dimensions_that_runs_used_then(folder: Path) -> None:
    between, later = FIRST + DAY, SECOND + DAY
    assert (orders(between, "toys"), orders(between, "games"), orders(between, "food")) == ([1], [0], [1])
    assert (orders(later, "toys"), orders(later, "games"), orders(later, "food")) == ([0], [1], [1])
    with pytest.raises(heddle.Error, match=r"HDL-647 row 1 of the labels is of .*a run first used dimension products"):
        orders(FIRST - DAY, "toys")


def test_a_version_that_was_removed_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dimension_versions, "RECENT", 0)
    warehouse = Warehouse.open(folder / "warehouse")
    with without_spark(Clock(SECOND + DAY)):
        monkeypatch.setenv("HEDDLE_DIMENSION_DAYS", "2")
        assert sweep_versions(warehouse, -(10**15), dry_run=True) == 0
        # the version was in use until the second run
        monkeypatch.setenv("HEDDLE_DIMENSION_DAYS", "0")
        assert sweep_versions(warehouse, -(10**15), dry_run=False) == 1
    with pytest.raises(heddle.Error, match="HDL-647 the version .* of dimension products") as raised:
        orders(FIRST + DAY, "toys")
    assert "HEDDLE_DIMENSION_DAYS" in raised.value.hint
    assert orders(SECOND + DAY, "games") == [1]
