"""Late joins: partial aggregates by keys give the same answers as attributes of events, whatever the dimension is."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.synopses.late import late_form
from optimizer.workload.instants import DAY as DAY_LENGTH
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Dimension, Source, Stream, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.history import outdated
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.settings import TaskMemory
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.loading import Reader
from tests.sizes import examples

BEGIN = 1_372_636_800_000_000
"""2013-07-01T00:00:00Z."""

LATER = BEGIN + 60 * DAY_LENGTH

HOUR = 3_600_000_000

Products = Mapping[int, tuple[str | None, str | None]]
"""Category and department by product."""

Departments = Mapping[str, str | None]
"""Division by department."""

Event = tuple[int, int | None, str | None, int | None]
"""(hour, product, shop, quantity)"""


@dataclass(frozen=True)
class Asked:
    """A query, from which both its text and DuckDB's are written.

    ``hours``, ``slide``: of its window; ``joins``: words before each JOIN ("", "LEFT"), of products and perhaps of
    departments; ``keys``: the words behind them.
    """

    joins: tuple[str, ...]
    groups: tuple[str, ...]
    conditions: tuple[str, ...]
    hours: int = 24
    slide: int = 24
    having: bool = False
    keys: tuple[str, str] = ("USING (product_id)", "USING (department)")

    def text(self, name: str) -> str:
        """The query as Heddle reads it."""
        outputs = ", ".join([*self._groups, *OUTPUTS])
        where = f" WHERE {_of_orders(' AND '.join(self.conditions))}" if self.conditions else ""
        grouped = f" GROUP BY {', '.join(self._groups)}" if self.groups else ""
        window = f"RANGE '{self.hours} hours' SLIDE '{self.slide} hours' ON t"
        having = " HAVING count(*) > 1" if self.having else ""
        return (
            f"-- name: {name}\nSELECT {outputs} FROM orders {self._joined}{where} WINDOW {window}{grouped}{having};\n"
        )

    def oracle(self) -> str:
        """DuckDB's text of the same, over the windows [start, end) of a table of them."""
        outputs = ", ".join(["w.upto", *self._groups, *OUTPUTS])
        where = " AND ".join(["t >= w.since AND t < w.upto", *(f"({_of_orders(each)})" for each in self.conditions)])
        grouped = ", ".join(["w.upto", *self._groups])
        having = " HAVING count(*) > 1" if self.having else ""
        windows = (
            f"(SELECT e - INTERVAL {self.hours} HOUR AS since, e AS upto FROM generate_series(TIMESTAMPTZ "
            f"'2013-07-01 00:00:00+00', TIMESTAMPTZ '2013-07-20 00:00:00+00', INTERVAL {self.slide} HOUR) AS s(e)) AS w"
        )
        return f"SELECT {outputs} FROM {windows}, orders {self._joined} WHERE {where} GROUP BY {grouped}{having}"

    @property
    def _joined(self) -> str:
        tables = (f"{table} {key}" for table, key in zip(("products", "departments"), self.keys, strict=True))
        return " ".join(f"{kind} JOIN {table}" for kind, table in zip(self.joins, tables, strict=False))

    @property
    def _groups(self) -> list[str]:
        return list(map(_of_orders, self.groups))


def _of_orders(text: str) -> str:
    """A text with the table of a column that two have."""
    return re.sub(r"\bproduct_id\b", "orders.product_id", text)


OUTPUTS = (
    "count(*) AS n",
    "sum(qty) AS total",
    "min(qty) AS least",
    "max(shop) AS last_shop",
    "count(DISTINCT qty) AS kinds",
)

BY_CATEGORY = Asked(("LEFT",), ("category",), (), hours=48)


@dataclass
class Shop:
    """Orders of several days, a file a day, and two dimensions, the second by an attribute of the first."""

    engine: Any
    folder: Path
    queries: Sequence[Asked]
    repair: int = 0

    def __post_init__(self) -> None:
        (self.folder / "orders").mkdir()
        self.warehouse = Warehouse.open(self.folder / "warehouse")
        self.runs = count()

    def order(self, day: int, events: Sequence[Event]) -> None:
        """Write the events of a day."""
        times = [BEGIN + day * DAY_LENGTH + hour * HOUR for hour, *_ in events]
        columns = list(zip(*events, strict=True)) if events else [()] * 4
        table = {
            "t": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC")),
            "product_id": pa.array(columns[1], pa.int64()),
            "shop": pa.array(columns[2], pa.string()),
            "qty": pa.array(columns[3], pa.int64()),
        }
        pq.write_table(pa.table(table), self.folder / "orders" / f"{day}.parquet")

    def describe(self, products: Products, departments: Departments) -> None:
        """Write the dimensions."""
        rows = [(key, *values) for key, values in products.items()]
        types = (pa.int64(), pa.string(), pa.string())
        names = ("product_id", "category", "department")
        columns = list(zip(*rows, strict=True)) if rows else [()] * 3
        arrays = [pa.array(column, type) for column, type in zip(columns, types, strict=True)]
        pq.write_table(pa.table(arrays, names), self.folder / "products.parquet")
        table = {
            "department": pa.array(list(departments), pa.string()),
            "division": pa.array(list(departments.values()), pa.string()),
        }
        pq.write_table(pa.table(table), self.folder / "departments.parquet")

    @property
    def stream(self) -> Stream:
        """The stream with its dimensions."""
        columns = (("t", TIMESTAMP), ("product_id", LONG), ("shop", STRING), ("qty", LONG))
        dimensions = (
            self._dimension("products", (("product_id", LONG), ("category", STRING), ("department", STRING))),
            self._dimension("departments", (("department", STRING), ("division", STRING))),
        )
        source = Source("parquet", str(self.folder / "orders"))
        return Stream("orders", source, columns, "t", dimensions=dimensions)

    def _dimension(self, name: str, schema: tuple[tuple[str, Any], ...]) -> Dimension:
        source = Source("parquet", str(self.folder / f"{name}.parquet"))
        return Dimension(name, source, (schema[0][0],), schema, repair=self.repair)

    @property
    def workload(self) -> Workload:
        """The queries."""
        text = "".join(query.text(f"q{number}") for number, query in enumerate(self.queries))
        parsed = parse(text, {"orders": self.stream})
        assert not parsed.diagnostics, parsed.diagnostics
        return Workload(parsed.queries, (self.stream,))

    def plan(self, late: Collection[str], together: Sequence[Sequence[str]] = ()) -> SharingPlan:
        """A plan that joins some queries late."""
        rates = {"orders": Fraction(1)}
        return build_plan(self.workload, rates, "weave-share", late=late, sharing=together)

    def publish(self, late: Collection[str], together: Sequence[Sequence[str]] = ()) -> int:
        """Publish such a plan; its version."""
        return publish_plan(self.warehouse, self.plan(late, together))[0]

    def run(self, version: int, first: int, last: int) -> RunRecord:
        """A run over the days [first, last)."""
        begin, end = BEGIN + first * DAY_LENGTH, BEGIN + last * DAY_LENGTH
        return run(self.engine, self.warehouse, version, begin, end, f"run {next(self.runs)}", as_of=LATER)

    def answers(self, number: int) -> list[tuple[Any, ...]]:
        """The published rows of a query."""
        return self._rows(number, read(self.warehouse, f"q{number}"))

    def looked_up(self, number: int, day: int) -> list[tuple[Any, ...]]:
        """The rows of a query that a look-up answers at the end of a day, from partial aggregates."""
        return self._rows(number, Reader(self.warehouse).query(f"q{number}").at(BEGIN + day * DAY_LENGTH))

    def _rows(self, number: int, table: pa.Table) -> list[tuple[Any, ...]]:
        outputs = [output.rpartition(" ")[2] for output in OUTPUTS]
        names = ["window_end", *self.queries[number].groups, *outputs]
        return sorted((tuple(row[name] for name in names) for row in table.to_pylist()), key=repr)

    def expected(self, number: int, first: int, last: int) -> list[tuple[Any, ...]]:
        """DuckDB's rows of the windows that end in the days (first, last]."""
        database = duckdb.connect()
        database.execute("SET TimeZone = 'UTC'")
        for name, path in (("orders", "orders/*"), ("products", "products"), ("departments", "departments")):
            database.execute(f"CREATE VIEW {name} AS FROM '{self.folder}/{path}.parquet'")
        rows = database.execute(self.queries[number].oracle()).fetchall()
        low, high = (pa.scalar(BEGIN + day * DAY_LENGTH, pa.timestamp("us", "UTC")).as_py() for day in (first, last))
        return sorted((row for row in rows if low < row[0] <= high), key=repr)


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 23),
        st.none() | st.integers(1, 6),
        st.none() | st.sampled_from(["s", 't"', ""]),
        st.none() | st.integers(-9, 9),
    ),
    min_size=1,
    max_size=14,
)
PRODUCTS = st.dictionaries(
    st.integers(1, 5),
    st.tuples(st.none() | st.sampled_from(["a", "b", 'c"']), st.none() | st.sampled_from(["x", "y", "z"])),
    max_size=5,
)
DEPARTMENTS = st.dictionaries(
    st.sampled_from(["x", "y"]), st.none() | st.sampled_from(["north", "a"]), min_size=1, max_size=2
)
OF_PRODUCT = ("category = 'a'", "category <> 'b'", "category IS NULL", "category = 'a' OR product_id = 3")
OF_DEPARTMENT = ("division = 'north'", "division IS NOT NULL", "division = category")
OF_EVENT = ("qty > 0", "shop = 's'", "product_id <> 2")
OF_PRODUCTS_KEY = (
    "USING (product_id)",
    "ON coalesce(orders.product_id, 1) = products.product_id",
    "ON products.product_id = mod(orders.product_id, 3)",
    "ON length(orders.shop) = products.product_id",
)
OF_DEPARTMENTS_KEY = (
    "USING (department)",
    "ON replace(products.department, 'z', 'x') = departments.department",
    "ON coalesce(products.department, orders.shop, 'y') = departments.department",
    "ON departments.department = CASE WHEN orders.qty > 0 THEN 'x' ELSE 'y' END",
)
NEVER_LATE = ("category = 'a' OR qty > 0",)


@st.composite
def asked(draw: st.DrawFn) -> Asked:
    """A query that joins one or two dimensions."""
    joins = tuple(draw(st.lists(st.sampled_from(["", "LEFT"]), min_size=1, max_size=2)))
    is_chained = len(joins) == 2
    groups = draw(st.sets(st.sampled_from(["category", "product_id", "shop", *["division"] * is_chained]), max_size=3))
    conditions = [*OF_PRODUCT, *OF_EVENT, *NEVER_LATE, *(OF_DEPARTMENT if is_chained else ())]
    chosen = draw(st.sets(st.sampled_from(conditions), max_size=2))
    hours, slide = draw(st.sampled_from([(24, 24), (48, 24), (36, 12), (12, 12)]))
    order = sorted(groups) if draw(st.booleans()) else sorted(groups)[::-1]
    written = tuple(f"({each})" for each in sorted(chosen))
    keys = draw(st.sampled_from(OF_PRODUCTS_KEY)), draw(st.sampled_from(OF_DEPARTMENTS_KEY))
    return Asked(joins, tuple(order), written, hours, slide, draw(st.booleans()), keys)


Tables = tuple[Products, Departments]


@settings(max_examples=examples(quick=5, slow=100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    queries=st.lists(asked(), min_size=1, max_size=4),
    days=st.lists(EVENTS, min_size=2, max_size=3),
    first=st.tuples(PRODUCTS, DEPARTMENTS),
    second=st.tuples(PRODUCTS, DEPARTMENTS),
    shares=st.booleans(),
)
@example(
    queries=[BY_CATEGORY, Asked(("",), ("product_id",), ("(category = 'a')",))],
    days=[[(1, 1, "s", 1), (2, None, "s", 2), (3, 6, None, None)], [(1, 2, "s", 1)]],
    first=({1: ("a", None), 2: (None, "x")}, {"x": None}),
    second=({1: ("b", None)}, {"y": "north"}),
    shares=True,
)
def test_early_late_and_unshared_answers_are_equal(
    engine: Any,
    queries: Sequence[Asked],
    days: Sequence[Sequence[Event]],
    first: Tables,
    second: Tables,
    shares: bool,
) -> None:
    names = [f"q{number}" for number in range(len(queries))]
    for late in ([], names, names[::2]):
        with TemporaryDirectory() as folder:
            shop = Shop(engine, Path(folder), queries)
            shop.describe(*first)
            for day, events in enumerate(days):
                shop.order(day, [*events, (23, 1, "s", 1)])
            version = shop.publish(late, [names] if shares else ())
            shop.run(version, 0, len(days))
            for number in range(len(queries)):
                published = shop.answers(number)
                assert published == shop.expected(number, 0, len(days)), (late, queries[number])
                at_end = [row for row in published if row[0].day == len(days) + 1]
                assert shop.looked_up(number, len(days)) == [row for row in at_end if row[0].hour == 0]
            # the next interval is answered with the dimension of then, whose windows reach back
            shop.describe(*second)
            shop.order(len(days), [(0, 1, "s", 5), (5, 2, None, -1), (9, None, "s", 2)])
            record = shop.run(version, len(days), len(days) + 1)
            for number in range(len(queries)):
                rows = [
                    row for row in shop.answers(number) if row[0].timestamp() * 1e6 > BEGIN + len(days) * DAY_LENGTH
                ]
                assert rows == shop.expected(number, len(days), len(days) + 1), (late, queries[number])
            workload = shop.workload
            if late == names and all(late_form(workload.streams[0], query) for query in workload.queries):
                assert record.rows_scanned == 3, "nothing is lifted for a change of the dimension"


def _two_days(shop: Shop) -> None:
    shop.describe({1: ("a", "x"), 2: ("b", "x")}, {"x": "north"})
    shop.order(0, [(1, 1, "s", 1), (2, 2, "s", 2), (3, 3, "s", 3)])
    shop.order(1, [(1, 1, "s", 1), (2, 2, "s", 2)])


def test_no_event_is_lifted_again_when_the_dimension_changes(engine: Any, tmp_path: Path) -> None:
    scanned = {}
    for name, late in (("early", []), ("late", ["q0", "q1"])):
        (tmp_path / name).mkdir()
        shop = Shop(engine, tmp_path / name, [BY_CATEGORY, Asked(("LEFT",), ("product_id",), ())])
        _two_days(shop)
        version = shop.publish(late)
        assert shop.run(version, 0, 2).rows_scanned == 5
        shop.describe({1: ("b", "x"), 2: ("b", "x"), 3: ("c", "y")}, {"x": "north"})
        shop.order(2, [(4, 1, "s", 7)])
        scanned[name] = shop.run(version, 2, 3).rows_scanned
        assert [row[1:3] for row in shop.answers(0) if row[0].day == 4] == [("b", 3)]
    assert scanned == {"early": 3, "late": 1}


def test_a_change_revises_windows_whose_queries_are_joined_late(engine: Any, tmp_path: Path) -> None:
    shop = Shop(engine, tmp_path, [BY_CATEGORY], 3660 * DAY_LENGTH)
    _two_days(shop)
    version = shop.publish(["q0"])
    shop.run(version, 0, 2)
    shop.describe({1: ("a", "x"), 2: ("b", "x"), 3: ("z", None)}, {"x": "north"})
    (interval,) = outdated(shop.warehouse, LATER)
    record = shop.run(version, 0, 2)
    assert (interval.begin, record.revision, record.rows_scanned) == (BEGIN, 2, 0)
    assert shop.answers(0) == shop.expected(0, 0, 2)
    assert outdated(shop.warehouse, LATER) == []


def test_events_without_a_row_are_counted_of_late_joins(engine: Any, tmp_path: Path) -> None:
    counted = []
    for name, late in (("early", []), ("late", ["q0"])):
        (tmp_path / name).mkdir()
        shop = Shop(engine, tmp_path / name, [Asked(("LEFT", "LEFT"), ("division",), ())])
        _two_days(shop)
        counted.append(shop.run(shop.publish(late), 0, 2).unmatched)
    assert counted[0] == counted[1]
    assert counted[1]["orders"]["products"]["keys"] == ["3"]


@pytest.mark.parametrize("bytes_of_task", [1 << 12, 1 << 14])
def test_work_that_does_not_fit_a_task_is_divided(engine: Any, tmp_path: Path, bytes_of_task: int) -> None:
    from spark_jobs.windows.finals.passes import TooLarge, passes
    from spark_jobs.windows.finals.stage import time_answers
    from spark_jobs.windows.finals.top import TopAnswers
    from spark_jobs.windows.partials.fill_request import by_fingerprint
    from spark_jobs.windows.partials.synopsis_work import SynopsisWork

    queries = [Asked(("LEFT",), ("category",), (), hours=48), Asked(("",), (), ("category = 'a'",), hours=12, slide=12)]
    shop = Shop(engine, tmp_path, queries)
    shop.describe({key: (["a", "b", None][key % 3], None) for key in range(1, 90)}, {"x": None})
    for day in range(3):
        shop.order(day, [(key % 24, key, "s", key) for key in range(1, 100)])
    version = shop.publish(["q0", "q1"], [["q0", "q1"]])
    shop.run(version, 0, 3)
    from spark_jobs.pipeline.run.dimensions import pinned

    plan = pinned(shop.warehouse, shop.plan(["q0", "q1"], [["q0", "q1"]]), False)[0]
    ((synopsis, members),) = plan.synopses()
    work = SynopsisWork(
        synopsis, members, BEGIN - 2 * DAY_LENGTH, BEGIN + 3 * DAY_LENGTH, None, plan.workload.streams[0]
    )
    files = [
        str(shop.warehouse.place / "partials" / file["path"])
        for file in shop.warehouse.files("partials", "2013-06-01", "2013-08-01")
    ]
    total = pieces = 0
    for each in passes(files, frozenset(range(64)), [work], BEGIN, TaskMemory(bytes_of_task * 16)):
        assert not isinstance(each, TooLarge)
        pieces += 1
        for part in each.parts:
            rows = by_fingerprint(each.rows)[part.synopsis.fingerprint]
            batches = time_answers(part, each.begin, rows, TopAnswers(members), lambda *_: None)
            total += sum(len(answers.instants) for _, answers in batches)
    assert total == sum(len(shop.answers(number)) for number in (0, 1))
    assert pieces > 1 or bytes_of_task > 1 << 12
