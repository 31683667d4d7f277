"""The two queries of Arasu & Widom, section 1.1.2, as docs/papers.md has them, against joins in DuckDB."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.values import BOOLEAN, DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.schemas import micros
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.chaos.orders import in_process
from tests.snippets import ROOT, blocks

BEGIN = datetime(2026, 3, 2, 14, tzinfo=UTC)
MINUTES = 90
SCHEMA = (("at", TIMESTAMP), ("symbol", STRING), ("price", DOUBLE), ("volume", LONG), ("at_ask", BOOLEAN))

INSTANTS = "SELECT $begin + to_minutes(n) AS instant FROM range(1, $minutes + 1) r(n)"
WINDOW = "t.at >= i.instant - INTERVAL '{} minutes' AND t.at < i.instant - INTERVAL '{} minutes'"


def inside(size: int, ago: int = 0) -> str:
    """The condition that a trade is in the window of so many minutes that ended so long before an instant."""
    return WINDOW.format(size + ago, ago)


EXPECTED = {
    "downward_momentum": f"""
        SELECT instant, symbol, price, fall, buying FROM (
            SELECT i.instant, t.symbol, arg_max(t.price, t.at) AS price,
                1 - arg_max(t.price, t.at) / arg_min(t.price, t.at) AS fall,
                sum(t.volume) FILTER (WHERE t.at_ask AND {inside(2)})
                    / sum(t.volume) FILTER (WHERE {inside(2)}) AS buying
            FROM ({INSTANTS}) i JOIN trades t ON {inside(20)} GROUP BY ALL
        ) WHERE fall > 0.02 AND buying >= 0.7 AND price BETWEEN 20 AND 200 ORDER BY ALL""",
    "volatile_with_a_surge": f"""
        SELECT instant, symbol, price, spread, surge FROM (
            SELECT i.instant, t.symbol, arg_max(t.price, t.at) AS price,
                (max(t.price) - min(t.price)) / arg_max(t.price, t.at) AS spread,
                avg(t.volume) FILTER (WHERE {inside(5)}) / avg(t.volume) FILTER (WHERE {inside(25, 5)}) AS surge
            FROM ({INSTANTS}) i JOIN trades t ON {inside(30)} GROUP BY ALL
        ) WHERE spread > 0.03 AND surge > 4 AND price BETWEEN 20 AND 200 ORDER BY ALL""",
}


def trades(chance: random.Random) -> pa.Table:
    """Prices that walk about, in calm times and in excited ones."""
    rows: list[tuple[Any, ...]] = []
    for symbol, price in (("A", 30.0), ("B", 90.0), ("C", 210.0), ("D", 18.0)):
        at = BEGIN - timedelta(minutes=40)
        while at < BEGIN + timedelta(minutes=MINUTES):
            excited = at.minute % 20 < 6
            at += timedelta(microseconds=chance.randrange(1, 90_000_000))
            price *= 1 + chance.gauss(0, 0.006)
            volume = chance.randint(1, 40) * (12 if excited else 1)
            rows.append((at, symbol, price, volume, chance.random() < (0.9 if excited else 0.4)))
    return pa.table([pa.array(column) for column in zip(*rows, strict=True)], [name for name, _ in SCHEMA])


@pytest.mark.parametrize("seed", [1, 2])
def test_both_queries_answer_as_duckdb_does(tmp_path: Path, seed: int) -> None:
    table = trades(random.Random(seed))
    (tmp_path / "trades").mkdir()
    pq.write_table(table, tmp_path / "trades" / "1.parquet")
    stream = Stream("trades", Source("parquet", str(tmp_path / "trades")), SCHEMA, "at")
    (text,) = [block.text for block in blocks(ROOT / "docs/papers.md") if "downward_momentum" in block.text]
    parsed = parse(text, {"trades": stream})
    assert not parsed.diagnostics
    house = Warehouse.open(tmp_path / "house")
    plan = build_plan(Workload(parsed.queries, (stream,)), {"trades": Fraction(1)}, "weave-share")
    version, _ = publish_plan(house, plan)
    begin = micros(BEGIN)
    run(in_process(), house, version, begin, begin + MINUTES * 60_000_000, "run", checks="none")
    for name, sql in EXPECTED.items():
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("trades", table)
            expected = connection.execute(sql, {"begin": BEGIN, "minutes": MINUTES}).fetchall()
        answers = read(house, name)
        rows = sorted(tuple(row.values())[1:] for row in answers.to_pylist())
        assert expected and [row[:2] for row in rows] == [row[:2] for row in expected]
        for row, other in zip(rows, expected, strict=True):
            assert row[2:] == pytest.approx(other[2:], rel=1e-12)
