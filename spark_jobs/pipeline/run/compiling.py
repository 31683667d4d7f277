"""Compiles the kernels of runs once, ahead of the first run: by a small one, into a warehouse that is thrown away.

python -m spark_jobs.pipeline.run.compiling
"""

from __future__ import annotations

import tempfile
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.values import DOUBLE, LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Workload, decimal

BEGIN = 1_372_636_800 * SECOND

QUERIES = """
-- name: numbers
SELECT key, count(*) AS n, sum(amount) AS amount, avg(price) AS mean, sum(fee) AS fees, stddev(price) AS spread,
  min(price) AS low, max(amount) AS high, count(price) FILTER (WHERE amount > 3) AS priced
FROM events WINDOW RANGE '30 minutes' SLIDE '10 minutes' ON ts WHERE price > 1 GROUP BY key;
-- name: whole
SELECT sum(amount) AS amount, sum(price) AS price, stddev(amount) AS spread, corr(price, amount) AS both, bool_or(late)
  AS late, covar_pop(amount, fee) AS whole_both, skewness(price) AS skewed
FROM events WINDOW RANGE '1 hour' SLIDE '25 minutes' ON ts;
-- name: lists
SELECT key, median(price) AS middle, percentile(amount, 0.9) AS most, count(DISTINCT amount) AS kinds,
  mode(key) AS often, approx_count_distinct(amount) AS about, collect_set(amount, 3) AS some, first(price) AS first,
  last(amount) AS last
FROM events WINDOW RANGE '20 minutes' SLIDE '20 minutes' ON ts GROUP BY key;
-- name: codes
SELECT code, count(*) AS n, min(amount) AS low, max(price) AS high, sum(price) AS price
FROM events WINDOW RANGE '4 hours' SLIDE '30 minutes' ON ts GROUP BY code;
-- name: rows
SELECT key, count(*) AS n, sum(price) AS price, max(amount) AS high
FROM events WINDOW ROWS 6 SLIDE 3 PARTITION BY key ON ts GROUP BY key;
-- name: sequences
SELECT count(*) AS n, sum(a.price) AS price, max(a.amount) AS high, min(b.price) AS low
FROM events PATTERN SEQ(a, b) ON key PARTITION BY amount
WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts;
-- name: best
SELECT key, count(*) AS n FROM events WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts GROUP BY key ORDER BY n DESC LIMIT 2;
"""


def tiny_stream() -> pa.Table:
    """Some hours of events. Nulls come only after the first hundred: columns without nulls are other arrays."""
    count = 900
    numbers = range(count)

    def is_null(number: Any, every: int) -> bool:
        return bool(number >= 100 and number % every == 0)

    times = BEGIN + np.arange(count) * 12 * SECOND
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "key": pa.array([None if is_null(number, 11) else "abc"[number % 3] for number in numbers]),
            "code": pa.array([f"{number * 7919 % 600}" for number in numbers]),
            "price": pa.array([None if is_null(number, 7) else number / 8 for number in numbers], pa.float64()),
            "amount": pa.array([None if is_null(number, 13) else int(number % 5) for number in numbers], pa.int64()),
            "fee": pa.array([Decimal(int(number % 9)) for number in numbers], pa.decimal128(10, 2)),
            "late": pa.array([number % 4 == 0 for number in numbers]),
        }
    )


def main() -> None:
    """Run it, and print how long it took."""
    from optimizer.workload.values import BOOLEAN
    from spark_jobs.engine.choice import Engine
    from spark_jobs.engine.local import LocalWorkers
    from spark_jobs.pipeline.planning.publication import publish_plan
    from spark_jobs.pipeline.run.interval import run
    from spark_jobs.store.warehouse.warehouse import Warehouse

    print("compiling the kernels of runs (once) ... ", end="", flush=True)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "events").mkdir()
        table = tiny_stream()
        pq.write_table(table.slice(0, 100), Path(place) / "events" / "0.parquet")
        pq.write_table(table.slice(100), Path(place) / "events" / "1.parquet")
        schema = (
            ("ts", TIMESTAMP),
            ("key", STRING),
            ("code", STRING),
            ("price", DOUBLE),
            ("amount", LONG),
            ("fee", decimal(10, 2)),
        )
        stream = Stream("events", Source("parquet", str(Path(place) / "events")), (*schema, ("late", BOOLEAN)), "ts")
        parsed = parse(QUERIES, {"events": stream})
        assert not [problem for problem in parsed.diagnostics if problem.severity == "error"], parsed.diagnostics
        plan = build_plan(Workload(parsed.queries, (stream,)), {"events": Fraction(1)}, "best")
        warehouse = Warehouse.open(str(Path(place) / "warehouse"))
        version, _ = publish_plan(warehouse, plan)
        engine = Engine("compiling", given=LocalWorkers())
        for number in range(2):
            begin = BEGIN + number * 3600 * SECOND
            record = run(engine, warehouse, version, begin, begin + 3600 * SECOND, f"compiling {number}")
            assert not record.has_failed, record.diagnostics
    print(f"{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
