"""Published answers as consumers see them: typed, filtered, and the same through Spark, DuckDB and Polars."""

from __future__ import annotations

import ast
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import load_workload, parse
from optimizer.plan.builder import build_plan
from optimizer.workload.streams import load_streams
from optimizer.workload.values import BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, Source, Stream, Workload, decimal
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests import snippets
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOON = datetime(2013, 7, 1, 12, tzinfo=UTC)
BEGIN = int(NOON.timestamp()) * 1_000_000
HOUR = 3_600_000_000

SCHEMA = (
    *(("ts", TIMESTAMP), ("carrier", STRING), ("day", DATE), ("late", BOOLEAN), ("gate", INT)),
    *(("fee", decimal(8, 2)), ("delay", DOUBLE)),
)
QUERIES = """
-- name: carrier_delay_1h
-- table: carrier_delay_1h
SELECT carrier, avg(delay) AS mean_delay FROM flights WINDOW RANGE '1 hour' SLIDE '15 minutes' ON ts GROUP BY carrier;
-- name: typed
SELECT late AS was_late, day, sum(fee) AS fees, avg(fee) AS fee, min(carrier) AS first, max(day) AS last_day,
       max(late) AS any_late, min(ts) AS earliest, count(*) AS n, sum(gate) AS gates
FROM flights WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts GROUP BY late, day;
"""


@pytest.fixture(scope="module")
def house(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    place = tmp_path_factory.mktemp("read")
    rows = [
        {
            "ts": NOON + timedelta(minutes=minute),
            "carrier": ("AA", "UA", None)[minute % 3],
            "day": date(2013, 7, 1 + minute % 2),
            "late": (True, None)[minute % 2],
            "gate": minute,
            "fee": None if minute == 7 else Decimal(minute) / 100,
            "delay": minute / 8,
        }
        for minute in range(60)
    ]
    types = {"ts": pa.timestamp("us", "UTC"), "fee": pa.decimal128(8, 2), "gate": pa.int32(), "day": pa.date32()}
    schema = pa.schema([(name, types.get(name) or pa.infer_type([rows[0][name]])) for name in rows[0]])
    pq.write_table(pa.Table.from_pylist(rows, schema), place / "flights.parquet")
    stream = Stream("flights", Source("parquet", str(place / "flights.parquet")), SCHEMA, "ts")
    parsed = parse(QUERIES, {"flights": stream})
    assert not parsed.diagnostics
    warehouse = Warehouse.open(place / "warehouse")
    plan = build_plan(Workload(parsed.queries, (stream,)), {"flights": 1})  # type: ignore[dict-item]
    version, _ = publish_plan(warehouse, plan)
    assert run(spark, warehouse, version, BEGIN, BEGIN + 2 * HOUR, "read").status == "published"
    return warehouse


def test_every_type_comes_back_as_itself(house: Warehouse) -> None:
    table = read(house, "typed")
    assert {name: str(table.schema.field(name).type) for name in ("fees", "fee", "last_day", "any_late")} == {
        "fees": "decimal128(18, 2)",
        "fee": "decimal128(12, 6)",
        "last_day": "date32[day]",
        "any_late": "bool",
    }
    by_key = {(row["was_late"], row["day"]): row for row in table.to_pylist()}
    assert set(by_key) == {(True, date(2013, 7, 1)), (None, date(2013, 7, 2))}
    late = by_key[True, date(2013, 7, 1)]
    assert (late["fees"], late["n"], late["gates"]) == (Decimal("8.70"), 30, 870)
    assert late["fee"] == Decimal("0.290000") and late["first"] == "AA" and late["any_late"] is True
    assert late["earliest"] == NOON and late["window_end"] == NOON + timedelta(hours=1)
    odd = by_key[None, date(2013, 7, 2)]
    # one fee of the thirty is null, and so is `late` in every row of the group
    assert odd["fees"] == Decimal("8.93") and odd["fee"] == Decimal("0.307931") and odd["any_late"] is None


def test_only_the_windows_that_end_in_the_span(house: Warehouse) -> None:
    some = read(house, "carrier_delay_1h", BEGIN + HOUR // 2, BEGIN + HOUR)
    assert sorted(set(some["window_end"].to_pylist())) == [NOON + timedelta(minutes=45), NOON + timedelta(minutes=60)]
    assert some.num_rows == 2 * 3 and some["carrier"].null_count == 2


def test_an_unknown_query_is_coded(house: Warehouse) -> None:
    with pytest.raises(HeddleError, match="HDL-507.*nope"):
        read(house, "nope")


REDEFINED = [
    # the same outputs in other places, of another type, one more and one less
    "SELECT count(*) AS n, sum(gate) AS gates, avg(delay) AS d",
    "SELECT avg(delay) AS d, min(carrier) AS n",
    "SELECT max(ts) AS d, sum(gate + 1) AS gates",
    "SELECT sum(delay) AS gates, count(*) AS d",
    "SELECT sum(fee) AS d, sum(fee * 10) AS n",
]


@pytest.mark.parametrize("before", REDEFINED)
@pytest.mark.parametrize("after", REDEFINED)
def test_a_redefined_query_never_mixes_columns(house: Warehouse, before: str, after: str, tmp_path: Path) -> None:
    """One interval is answered by one definition, the next by another: a row has its own outputs where name and type
    agree, and else null; never a cast that fails, never another output's value."""
    stream = load_plan(house, 1).workload.stream("flights")
    world, tables = Warehouse.open(tmp_path / "warehouse"), []
    for number, text in enumerate((before, after)):
        window = "WINDOW RANGE '1 hour' SLIDE '15 minutes' ON ts"
        parsed = parse(f"-- name: q\n{text} FROM flights {window};", {"flights": stream})
        plan = build_plan(Workload(parsed.queries, (stream,)), {"flights": 1})  # type: ignore[dict-item]
        version, _ = publish_plan(world, plan)
        begin = BEGIN + number * HOUR // 2
        with without_audit():
            run(in_process(), world, version, begin, begin + HOUR // 2, f"run {number}")
        tables.append(read(world, "q"))
    old, new = tables
    outputs = [name for name in new.schema.names if not name.startswith("window")]
    assert (
        len(old) == 2
        and len(new) == 4
        and not any(row[name] is None for row in new.to_pylist()[2:] for name in outputs)
    )
    for row, now in zip(old.to_pylist(), new.to_pylist(), strict=False):
        assert now["window_end"] == row["window_end"]
        for name in outputs:
            same = name in row and old.schema.field(name).type == new.schema.field(name).type
            assert now[name] == row[name] if same else now[name] in (None, row.get(name)), name


def evaluated(snippet: str, house: Warehouse, names: dict[str, Any]) -> Any:
    """The value of a snippet's last expression, against this warehouse and its definition of the query."""
    definition = load_plan(house, 1).workload.query("carrier_delay_1h").definition
    text = snippet.replace("var/warehouse", str(house.root)).replace(snippets.FINGERPRINT, definition)
    tree = ast.parse(text.strip())
    last = tree.body.pop()
    assert isinstance(last, ast.Expr)
    exec(compile(tree, "snippet", "exec"), names)  # noqa: S102 - our own documentation
    return eval(compile(ast.Expression(last.value), "snippet", "eval"), names)  # noqa: S307


def test_the_documented_snippets_give_the_same_rows(house: Warehouse, spark: SparkSession) -> None:
    import duckdb
    from deltalake import DeltaTable

    duckdb.sql("SET TimeZone = 'UTC'")
    answers = {
        "heddle": read(house, "carrier_delay_1h"),
        "spark": evaluated(snippets.SPARK, house, {"spark": spark}).toArrow(),
        "duckdb": evaluated(snippets.DUCKDB, house, {}).to_arrow_table(),
        "delta": evaluated(snippets.DELTA, house, {"duckdb": duckdb, "DeltaTable": DeltaTable}).to_arrow_table(),
        "polars": evaluated(snippets.POLARS, house, {}).to_arrow(),
        "own": evaluated(snippets.OWN_TABLE, house, {"duckdb": duckdb, "DeltaTable": DeltaTable}).to_arrow_table(),
    }
    rows = {
        name: sorted(map(str, ((r["window_start"].timestamp(), r["carrier"], r["mean_delay"]) for r in t.to_pylist())))
        for name, t in answers.items()
    }
    assert len(rows["heddle"]) == 7 * 3 and all(other_rows == rows["heddle"] for other_rows in rows.values())


def test_the_documents_show_these_snippets() -> None:
    root = Path(__file__).resolve().parents[3]
    streams, _ = load_streams(root / "dags/workload/streams.yaml")
    workload, _ = load_workload([root / "dags/workload/flights.sql"], streams)
    assert workload.query("carrier_delay_1h").definition == snippets.FINGERPRINT
    text = "".join((root / f"docs/{name}.md").read_text() for name in ("reading", "tables", "connect-bi"))
    for snippet in snippets.PYTHON:
        assert snippet.strip() in text
