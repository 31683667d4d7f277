"""Measures sessions of several gaps beside DuckDB and a Spark job a gap.

    python -m tests.benchmarks.sessions [--events N] [--users N] [--rounds N] [--data DIR] [--json FILE]

Clicks of two days. Heddle answers sessions of five gaps in one run, once with checks and once without, each time in a
new warehouse. DuckDB asks a query a gap, with window functions, in one process that is there. Spark asks
``session_window``, a job a gap, in one session that is there. All compute until the answers are in memory; Heddle also
writes them. They take turns. Answers are compared; the exit code is 1 if they differ.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.instants import DAY
from optimizer.workload.values import LONG, SECOND, TIMESTAMP, Source, Stream, Workload
from spark_jobs.engine import choice
from spark_jobs.engine.session import start_session
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.benchmarks.peers import spent_by
from tests.benchmarks.sharing import machine
from tests.benchmarks.trades import DAY_START

GAPS = (5, 10, 15, 30, 60)
"""Minutes."""

DAYS = 2

Answers = dict[int, pa.Table]
"""By gap: user, start, end, clicks and total, in order."""


def generate(folder: Path, events: int, users: int) -> Path:
    """Clicks, a file a day: each user comes a few times, and clicks every two minutes or so while there."""
    chance = np.random.default_rng(7)
    visits = np.sort(chance.integers(0, DAYS * DAY, events // 12))
    visit = chance.integers(0, len(visits), events)
    times = visits[visit] + (chance.exponential(14, events) * 60 * SECOND).astype(np.int64)
    inside = times < DAYS * DAY
    order = np.argsort(times[inside], kind="stable")
    columns = {"t": times[inside][order], "user": (visit * 7919 % users)[inside][order]}
    columns["n"] = chance.integers(1, 100, len(order))
    (folder / "clicks").mkdir()
    for day in range(DAYS):
        chosen = columns["t"] // DAY == day
        table = {name: pa.array(values[chosen]) for name, values in columns.items()}
        table["t"] = pa.array(columns["t"][chosen] + DAY_START).cast(pa.timestamp("us", "UTC"))
        pq.write_table(pa.table(table), folder / "clicks" / f"{day}.parquet")
    return folder / "clicks"


def by_heddle(clicks: Path, folder: Path, checks: str) -> Answers:
    """Sessions of all gaps in one run."""
    stream = Stream("clicks", Source("parquet", str(clicks)), (("t", TIMESTAMP), ("user", LONG), ("n", LONG)), "t")
    text = ";\n".join(
        f"-- name: gap_{gap}\nSELECT user, count(*) AS clicks, sum(n) AS total FROM clicks "
        f"WINDOW SESSION GAP '{gap} minutes' UP TO '1 day' ON t GROUP BY user"
        for gap in GAPS
    )
    workload = Workload(parse(text, {"clicks": stream}).queries, (stream,))
    warehouse = Warehouse.open(folder)
    version, _ = publish_plan(warehouse, build_plan(workload, {"clicks": Fraction(10)}, "best"))
    engine = choice.Engine("bench", requested="local")
    try:
        end = DAY_START + (DAYS + 1) * DAY
        run(engine, warehouse, version, DAY_START, end, "run", as_of=end + DAY, checks=checks)
    finally:
        engine.stop()
    return {gap: read(warehouse, f"gap_{gap}") for gap in GAPS}


def by_duckdb(clicks: Path) -> Answers:
    """A query a gap with window functions."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    statement = """
        SELECT user, min(t) AS window_start, max(t) + to_minutes({gap}) AS window_end, count(*) AS clicks,
            sum(n) AS total
        FROM (SELECT *, sum(is_first) OVER (PARTITION BY user ORDER BY t) AS session FROM (
            SELECT *, (t - lag(t) OVER (PARTITION BY user ORDER BY t) <= to_minutes({gap})) IS NOT TRUE AS is_first
            FROM read_parquet('{clicks}/*.parquet')))
        GROUP BY user, session"""
    return {gap: connection.execute(statement.format(gap=gap, clicks=clicks)).to_arrow_table() for gap in GAPS}


def by_spark(spark: Any, clicks: Path) -> Answers:
    """A job a gap."""
    from pyspark.sql import functions as F

    answers = {}
    for gap in GAPS:
        sessions = spark.read.parquet(str(clicks)).groupBy("user", F.session_window("t", f"{gap} minutes").alias("w"))
        rows = sessions.agg(F.count("*").alias("clicks"), F.sum("n").alias("total"))
        bounds = (F.col(f"w.{side}").alias(f"window_{side}") for side in ("start", "end"))
        answers[gap] = rows.select("user", *bounds, "clicks", "total").toArrow()
    return answers


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the medians, and write the JSON. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="sessions", description="Sessions of five gaps, beside DuckDB and Spark")
    parser.add_argument("--events", type=int, default=1_000_000, help="clicks of two days (1,000,000)")
    parser.add_argument("--users", type=int, default=20_000, help="users (20,000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, in which all take turns (3)")
    parser.add_argument("--data", type=Path, help="where the clicks are made (a temporary folder)")
    parser.add_argument("--json", type=Path, help="also write the measurements to this file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.data) as scratch:
        folder = Path(scratch)
        clicks = generate(folder, options.events, options.users)
        spark = start_session("bench", quick=False)
        turns: dict[str, Callable[[int], Answers]] = {
            "heddle": lambda number: by_heddle(clicks, folder / f"checked-{number}", "all"),
            "heddle, without checks": lambda number: by_heddle(clicks, folder / f"bare-{number}", "none"),
            "duckdb": lambda number: by_duckdb(clicks),
            "spark": lambda number: by_spark(spark, clicks),
        }
        spent: dict[str, list[float]] = {name: [] for name in turns}
        differing, sizes = set[str](), dict[int, int]()
        # the first round compiles and warms
        for number in range(options.rounds + 1):
            compared: dict[int, list[tuple[Any, ...]]] = {}
            for name, turn in turns.items():
                figures, answers = spent_by(lambda turn=turn, number=number: turn(number))
                if number:
                    spent[name].append(figures.cpu)
                for gap, table in answers.items():
                    rows = _sorted(table)
                    sizes[gap] = len(rows)
                    if compared.setdefault(gap, rows) != rows:
                        differing.add(f"{name}, {gap} minutes")
        spark.stop()
    medians = {name: statistics.median(seconds) for name, seconds in spent.items()}
    document = {"events": options.events, "machine": machine(), "answers": sizes, "cpu_seconds": medians}
    document |= {"differing": sorted(differing)}
    print(json.dumps(document, indent=2))
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if differing else 0


def _sorted(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [table[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()) for name in ("window_start", "window_end")]
    columns += [table[name].cast(pa.int64()) for name in ("user", "clicks", "total")]
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True))


if __name__ == "__main__":
    sys.exit(main())
