"""Dimensions that change between runs: published answers stay or are repaired, and no window mixes two versions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.instants import DAY as DAY_LENGTH
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Dimension, Source, Stream, Workload
from spark_jobs.operations.status import read_status
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.dimensions import sweep_versions, versions_noted
from spark_jobs.pipeline.run.history import outdated
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.partials import carrying
from tests.sizes import examples

BEGIN = 1_372_636_800_000_000
"""2013-07-01T00:00:00Z."""

LATER = BEGIN + 60 * DAY_LENGTH

QUERIES = """
-- name: groups
SELECT category, count(*) AS n, sum(qty) AS total FROM orders LEFT JOIN products USING (product_id)
WINDOW RANGE '2 days' SLIDE '1 day' ON t GROUP BY category;
-- name: inner_join
SELECT count(*) AS n FROM orders JOIN products USING (product_id) WINDOW RANGE '1 day' ON t WHERE category <> 'b';
-- name: plain
SELECT product_id, count(*) AS n FROM orders WINDOW RANGE '1 day' ON t GROUP BY product_id;
"""

LATEST = """
-- name: latest
SELECT count(*) AS n FROM orders WINDOW ROWS 2 SLIDE 2 ON t;
"""
"""A query that reads every column of the stream, as windows of rows do."""

KEYS = ("USING (product_id)", "ON CAST(CAST(orders.product_id AS string) AS bigint) = products.product_id")
"""Keys of a join that have the same rows: a column, and what is computed of it."""

Rows = Mapping[int, str | None]
"""Category by product."""

Event = tuple[int, int | None, int]
"""(hour, product, quantity)"""


@dataclass
class Shop:
    """Orders of several days, a file a day, and a dimension of products."""

    engine: Any
    folder: Path
    repair: int = 0
    key: str = KEYS[0]
    queries: str = QUERIES
    events: dict[int, list[Event]] = field(default_factory=dict)
    files: Any = field(default_factory=count)
    runs: Any = field(default_factory=count)

    def __post_init__(self) -> None:
        (self.folder / "orders").mkdir()
        self.warehouse = Warehouse.open(self.folder / "warehouse")

    def order(self, day: int, events: Sequence[Event]) -> None:
        """Write the events of a day."""
        self.events[day] = list(events)
        self._write(f"{day}", day, events)

    def order_late(self, day: int, events: Sequence[Event]) -> None:
        """Write more events of a day, in a file of their own."""
        self.events.setdefault(day, []).extend(events)
        self._write(f"late {next(self.files)}", day, events)

    def _write(self, name: str, day: int, events: Sequence[Event]) -> None:
        hours = [BEGIN + day * DAY_LENGTH + hour * 3_600_000_000 for hour, _, _ in events]
        table = {
            "t": pa.array(hours, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "product_id": pa.array([product for _, product, _ in events], pa.int64()),
            "qty": pa.array([quantity for _, _, quantity in events], pa.int64()),
        }
        pq.write_table(pa.table(table), self.folder / "orders" / f"{name}.parquet")

    def describe(self, rows: Rows) -> None:
        """Write the dimension."""
        table = {"product_id": pa.array(list(rows), pa.int64()), "category": pa.array(list(rows.values()), pa.string())}
        pq.write_table(pa.table(table | {"note": pa.array(["x"] * len(rows))}), self.folder / "products.parquet")

    def plan(self) -> int:
        """Plan the queries; the version of the plan."""
        schema = (("product_id", LONG), ("category", STRING), ("note", STRING))
        source = Source("parquet", str(self.folder / "products.parquet"))
        dimension = Dimension("products", source, ("product_id",), schema, repair=self.repair)
        columns = (("t", TIMESTAMP), ("product_id", LONG), ("qty", LONG))
        stream = Stream("orders", Source("parquet", str(self.folder / "orders")), columns, "t", dimensions=(dimension,))
        parsed = parse(self.queries.replace(KEYS[0], self.key), {"orders": stream})
        assert not parsed.diagnostics
        plan = build_plan(Workload(parsed.queries, (stream,)), {"orders": Fraction(1)}, "weave-share")
        return publish_plan(self.warehouse, plan)[0]

    def run(self, version: int, first: int, last: int, **options: Any) -> RunRecord:
        """A run over the days [first, last)."""
        begin, end = BEGIN + first * DAY_LENGTH, BEGIN + last * DAY_LENGTH
        return run(self.engine, self.warehouse, version, begin, end, f"run {next(self.runs)}", as_of=LATER, **options)

    def repaired(self, version: int) -> int:
        """Repair what a change made outdated; the number of intervals."""
        intervals = outdated(self.warehouse, LATER)
        for interval in intervals:
            first, last = ((at - BEGIN) // DAY_LENGTH for at in (interval.begin, interval.end))
            self.run(version, first, last)
        return len(intervals)

    def revised(self, run_ids: Collection[str]) -> set[tuple[str, datetime, str]]:
        """The answers (query, instant, key) that some runs published."""
        rows = self.warehouse.rows("results", ["query", "instant", "key", "run_id"])
        return {(row["query"], row["instant"], row["key"]) for row in rows if row["run_id"] in run_ids}

    def answers(self, days: Sequence[int]) -> dict[str, list[tuple[Any, ...]]]:
        """The published rows of windows that end at the end of some days, by query."""
        answers: dict[str, list[tuple[Any, ...]]] = {}
        for name in ("groups", "inner_join", "plain"):
            rows = read(self.warehouse, name).to_pylist()
            chosen = [row for row in rows if (row["window_end"].day - 2) in days and row["window_end"].month == 7]
            names = (
                [each for each in rows[0] if each in ("window_end", "category", "product_id", "n", "total")]
                if rows
                else []
            )
            answers[name] = sorted((tuple(row[each] for each in names) for row in chosen), key=repr)
        return answers

    def expected(self, day: int, rows: Rows) -> dict[str, list[tuple[Any, ...]]]:
        """The rows of the windows that end with a day, computed event by event in plain Python."""
        groups: dict[str | None, list[int]] = defaultdict(list)
        for each in (day - 1, day):
            for _, product, quantity in self.events.get(each, ()):
                groups[rows.get(product) if product is not None else None].append(quantity)
        today = self.events.get(day, ())
        products: dict[int | None, int] = defaultdict(int)
        for _, product, _ in today:
            products[product] += 1
        inner = sum(1 for _, product, _ in today if product is not None and rows.get(product) not in (None, "b"))
        at = pa.scalar(BEGIN + (day + 1) * DAY_LENGTH).cast(pa.timestamp("us", "UTC")).as_py()
        counted = [(at, inner)] if inner else []
        return {
            "groups": sorted(((at, name, len(each), sum(each)) for name, each in groups.items()), key=repr),
            "inner_join": counted,
            "plain": sorted(((at, product, number) for product, number in products.items()), key=repr),
        }


@pytest.fixture(params=KEYS)
def shop(engine: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Shop:
    return Shop(engine, tmp_path, key=request.param)


def test_only_pieces_with_an_event_of_a_changed_key_are_lifted_again(shop: Shop) -> None:
    for day in range(3):
        shop.order(day, [(hour, day + 1, 1) for hour in range(day + 2)])
    shop.describe({1: "a", 2: "a", 3: "a"})
    version = shop.plan()
    assert shop.run(version, 0, 3).rows_scanned == 2 + 3 + 4
    # 2 is ordered on the second day alone
    shop.describe({1: "a", 2: "b", 3: "a", 9: "z"})
    shop.order(3, [(0, 1, 1)])
    record = shop.run(version, 3, 4)
    # the windows of two days that end with the fourth reach back to the third, in which nobody orders 2
    assert record.rows_scanned == 1
    (note,) = (noted for _, _, noted in record.read.values())
    assert len(versions_noted(note)["products"]) == 1
    assert shop.run(version, 0, 3).status == "unchanged", "published answers stay"
    (older,) = read_status(shop.warehouse, 5).on_older
    assert (older.dimension, older.intervals, older.warning.code) == ("products", 1, "HDL-466")
    shop.order(1, [(hour, 2, 1) for hour in range(3)] + [(5, 1, 7)])
    # late data revise what they touch, by the newest version
    record = shop.run(version, 0, 3)
    assert shop.answers([1]) == shop.expected(1, {1: "a", 2: "b", 3: "a"})
    assert shop.answers([0]) == shop.expected(0, {1: "a", 2: "a", 3: "a"})


def test_a_repair_that_is_declared_later_counts_for_what_is_published(shop: Shop) -> None:
    shop.order(0, [(1, 1, 5), (2, 2, 7)])
    shop.describe({1: "a", 2: "b"})
    shop.run(shop.plan(), 0, 1)
    shop.repair = 90 * DAY_LENGTH
    version = shop.plan()
    assert shop.run(version, 0, 1).status == "unchanged"
    shop.describe({1: "a", 2: "c"})
    assert shop.repaired(version) == 1
    assert shop.answers([0]) == shop.expected(0, {1: "a", 2: "c"})
    shop.repair = 0
    version = shop.plan()
    shop.describe({1: "z", 2: "z"})
    assert shop.repaired(version) == 0
    assert shop.answers([0]) == shop.expected(0, {1: "a", 2: "c"})


def test_a_dimension_that_cannot_be_read_leaves_nothing_as_it_should_be(shop: Shop) -> None:
    """Nobody knows whether the answers are still those of its rows: a repair says why, every time."""
    shop.repair = 90 * DAY_LENGTH
    shop.order(0, [(1, 1, 5)])
    shop.describe({1: "a"})
    version = shop.plan()
    shop.run(version, 0, 1)
    (shop.folder / "products.parquet").write_bytes(b"no Parquet")
    for _ in range(2):
        (interval,) = outdated(shop.warehouse, LATER)
        assert interval.radius.dimensions == ("products",)
        errors = [each["code"] for each in shop.run(version, 0, 1).diagnostics if each["severity"] == "error"]
        assert errors
    assert shop.answers([0]) == shop.expected(0, {1: "a"})
    shop.describe({1: "b"})
    assert shop.repaired(version) == 1
    assert shop.answers([0]) == shop.expected(0, {1: "b"})
    assert not outdated(shop.warehouse, LATER)


def test_unused_columns_and_rows_change_nothing(shop: Shop) -> None:
    shop.repair = 3660 * DAY_LENGTH
    shop.order(0, [(0, 1, 1), (1, 2, 1)])
    shop.describe({1: "a", 2: "b"})
    version = shop.plan()
    shop.run(version, 0, 1)
    shop.describe({1: "a", 2: "b", 3: "c"})
    assert outdated(shop.warehouse, LATER) == []
    record = shop.run(version, 0, 1)
    assert (record.status, record.revision) == ("unchanged", 1)


def test_events_without_a_row_are_counted_and_reported(shop: Shop) -> None:
    shop.order(0, [(0, 1, 1), (1, 7, 1), (2, 7, 1), (3, None, 1)])
    shop.describe({1: "a"})
    record = shop.run(shop.plan(), 0, 1)
    assert record.unmatched == {"orders": {"products": {"events": 4, "without_row": 2, "null_keys": 1, "keys": ["7"]}}}
    assert [finding["code"] for finding in record.diagnostics] == ["HDL-465"]


def test_a_dimension_with_two_rows_for_a_key_fails_the_queries_that_join_it_alone(shop: Shop) -> None:
    shop.order(0, [(0, 1, 1)])
    shop.describe({1: "a"})
    version = shop.plan()
    table = {"product_id": [1, 2, 1], "category": ["a", "b", "c"], "note": ["x", "y", "z"]}
    pq.write_table(pa.table(table), shop.folder / "products.parquet")
    record = shop.run(version, 0, 1)
    (problem,) = (finding for finding in record.diagnostics if finding["severity"] == "error")
    assert problem["code"] == "HDL-462" and "product_id = 1" in problem["message"]
    assert "'a'" in problem["message"] and "'c'" in problem["message"]
    assert record.status == "published" and shop.answers([0])["plain"] == shop.expected(0, {})["plain"]


def differing(
    before: Mapping[str, list[tuple[Any, ...]]], after: Mapping[str, list[tuple[Any, ...]]]
) -> set[tuple[str, datetime, str]]:
    """The answers (query, instant, key) of :meth:`Shop.expected` that came, or have other values."""
    different = set()
    for name, rows in after.items():
        for row in set(rows) - set(before[name]):
            group = [] if name == "inner_join" else [None if row[1] is None else str(row[1])]
            different.add((name, row[0], json.dumps(group)))
    return different


ROWS = st.dictionaries(st.integers(1, 4), st.sampled_from(["a", "b", None]), max_size=4)
EVENTS = st.lists(st.tuples(st.integers(0, 23), st.none() | st.integers(1, 5), st.integers(-9, 9)), max_size=6)


@settings(max_examples=examples(quick=8, slow=60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    days=st.lists(st.tuples(EVENTS, ROWS, st.booleans()), min_size=2, max_size=5),
    repairs=st.booleans(),
    key=st.sampled_from(KEYS),
    queries=st.sampled_from([QUERIES, QUERIES + LATEST]),
)
def test_answers_are_those_of_one_version(
    engine: Any, days: Sequence[tuple[Sequence[Event], Rows, bool]], repairs: bool, key: str, queries: str
) -> None:
    with TemporaryDirectory() as folder:
        shop = Shop(engine, Path(folder), 3660 * DAY_LENGTH if repairs else 0, key, queries)
        version, rows_of, rows = 0, dict[int, Rows](), dict[int, str | None]()
        for day, (events, new_rows, is_changed) in enumerate(days):
            # an interval after the newest event is not published
            shop.order(day, [*events, (12, 1, 1)])
            rows = dict(new_rows) if is_changed or not day else rows
            shop.describe(rows)
            version = version or shop.plan()
            shop.run(version, day, day + 1)
            rows_of[day] = rows
            if repairs and is_changed:
                shop.repaired(version)
                rows_of = dict.fromkeys(rows_of, rows)
            for each in range(day + 1):
                assert shop.answers([each]) == shop.expected(each, rows_of[each])
        assert not repairs or shop.repaired(version) == 0


@settings(max_examples=examples(quick=6, slow=40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    days=st.lists(EVENTS, min_size=2, max_size=3),
    changes=st.lists(st.tuples(ROWS, st.integers(0, 2), EVENTS), min_size=2, max_size=4),
)
def test_the_answers_of_a_new_revision_are_those_that_differ(
    engine: Any, days: Sequence[Sequence[Event]], changes: Sequence[tuple[Rows, int, Sequence[Event]]]
) -> None:
    with TemporaryDirectory() as folder:
        shop, rows = Shop(engine, Path(folder), 3660 * DAY_LENGTH), dict[int, str | None]({1: "a", 2: "b"})
        shop.describe(rows)
        for day, events in enumerate(days):
            shop.order(day, [*events, (12, 1, 1)])
        version = shop.plan()
        for first in range(len(days)):
            shop.run(version, first, first + 1, checks="none")
        for new_rows, late_day, late in changes:
            before = [shop.expected(day, rows) for day in range(len(days))]
            rows = dict(new_rows)
            shop.describe(rows)
            if late and late_day < len(days):
                shop.order_late(late_day, late)
            run_ids = []
            for interval in outdated(shop.warehouse, LATER):
                first, last = ((at - BEGIN) // DAY_LENGTH for at in (interval.begin, interval.end))
                record = shop.run(version, first, last, checks="none")
                run_ids.append(record.run_id)
                assert record.narrow and record.radius is not None
                assert record.radius["windows"] == interval.radius.windows
            after = [shop.expected(day, rows) for day in range(len(days))]
            assert [shop.answers([day]) for day in range(len(days))] == after
            assert shop.revised(run_ids) == set().union(*map(differing, before, after))


def test_maintenance_removes_versions_that_nothing_needs(shop: Shop) -> None:
    shop.order(0, [(0, 1, 1)])
    shop.describe({1: "first"})
    version = shop.plan()
    shop.run(version, 0, 1)
    for number in range(12):
        shop.describe({1: f"category {number}"})
        shop.order(number + 1, [(0, 1, 1)])
        shop.run(version, number + 1, number + 2, recompute=number < 11)
        if number < 11:
            shop.run(version, 1, number + 2, recompute=True)
    folder = shop.folder / "warehouse" / "dimensions" / "products"
    before = {file.name for file in folder.glob("*.parquet")}
    assert len(before) == 13
    # of the others those of the first and the last two publications stand, and the newest stay
    assert sweep_versions(shop.warehouse, DAY_LENGTH, dry_run=False) == 0
    assert sweep_versions(shop.warehouse, -DAY_LENGTH, dry_run=True) == 4
    assert sweep_versions(shop.warehouse, -DAY_LENGTH, dry_run=False) == 4
    assert len(list(folder.glob("*.parquet"))) == 9
    assert shop.run(version, 0, 1).status == "unchanged"


def test_pieces_that_are_carried_over_blindly_are_noticed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.order(0, [(0, 1, 1)])
    shop.describe({1: "a"})
    version = shop.plan()
    shop.run(version, 0, 1)
    shop.describe({1: "b"})
    shop.order(1, [(0, 1, 1)])
    with monkeypatch.context() as patch:
        patch.setattr(carrying, "any_changed", lambda *args: False)
        with pytest.raises(HeddleError, match="HDL-530"):
            shop.run(version, 1, 2)
    # what was carried over wrongly is named as right, until it is computed again
    shop.run(version, 1, 2, recompute=True)
    assert shop.answers([1]) == shop.expected(1, {1: "b"})
