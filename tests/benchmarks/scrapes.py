"""What a scrape of the metrics costs: ``python -m tests.benchmarks.scrapes --queries 5000 --runs 2000``.

A warehouse of its own gets a plan of so many queries, and a log of so many runs. Printed are milliseconds: of the first
scrape of a process, of one after a run, and of one while nothing has changed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from fractions import Fraction
from pathlib import Path

from optimizer.plan.builder import build_plan
from optimizer.workload.values import ACQ, LONG, SECOND, STRING, TIMESTAMP, Output, Source, Stream, Window, Workload
from spark_jobs.operations.maintenance import merge_logs
from spark_jobs.operations.scrape import scraped
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse.publish_log import LogRow, RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse

MINUTE = 60 * SECOND
PERIOD = 5 * MINUTE


def warehouse_of(folder: Path, queries: int, runs: int) -> Warehouse:
    """A warehouse with a plan of ``queries`` and a log of ``runs``, merged."""
    stream = Stream("trades", Source("parquet", "x"), (("ts", TIMESTAMP), ("symbol", STRING)), "ts")
    output = (Output("n", "count", None, None, LONG),)
    acqs = tuple(
        ACQ(f"q{number:05}", "trades", Window((number % 60 + 5) * MINUTE, PERIOD), output, owner=f"team{number % 40}")
        for number in range(queries)
    )
    plan = build_plan(Workload(acqs, (stream,)), {"trades": Fraction(1)}, "shared")
    warehouse = Warehouse.open(folder / "house")
    version, _ = publish_plan(warehouse, plan)
    log_runs(warehouse, version, queries, 0, runs)
    merge_logs(warehouse, most=0)
    return warehouse


def log_runs(warehouse: Warehouse, version: int, queries: int, first: int, last: int) -> None:
    """Log the runs of some numbers."""
    rows = []
    for number in range(first, last):
        record = RunRecord(f"run {number}", version, number * PERIOD, (number + 1) * PERIOD, 1, "published", queries)
        record.cpu_seconds = {"list": 0.1, "partials": 1.0, "finals": 1.0, "audit": 2.0}
        at = record.end + MINUTE
        text = json.dumps(record.to_json())
        row = LogRow(record.begin, record.end, 1, record.run_id, "published", version, "", queries, number, at, text)
        rows.append(row.to_row())
    with warehouse.lease() as token:
        warehouse.append("publish_log", rows, token)


def timed(warehouse: Warehouse, now: int) -> tuple[float, int]:
    """Milliseconds and bytes of a scrape."""
    before = time.perf_counter()
    text = scraped(str(warehouse.place), now)
    return (time.perf_counter() - before) * 1e3, len(text)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=2_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        warehouse = warehouse_of(Path(folder), options.queries, options.runs)
        version, now = 1, options.runs * PERIOD
        first, size = timed(warehouse, now)
        after = []
        for number in range(options.runs, options.runs + 5):
            log_runs(warehouse, version, options.queries, number, number + 1)
            after.append(timed(warehouse, now)[0])
        same = min(timed(warehouse, now)[0] for _ in range(20))
    print(f"{options.queries} queries, {options.runs} runs: {size / 1e3:.0f} kB")
    print(f"first {first:.0f} ms, after a run {sorted(after)[2]:.0f} ms, unchanged {same:.1f} ms")


if __name__ == "__main__":
    main()
