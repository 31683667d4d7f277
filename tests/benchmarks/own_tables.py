"""What tables of their own cost a run: so many queries over one stream, hour by hour, with tables and without.

python -m tests.benchmarks.own_tables [QUERIES] [HOURS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from spark_jobs.pipeline.run import interval
from spark_jobs.results import tables
from tests.chaos.orders import in_process
from tests.chaos.world import without_audit
from tests.spark_jobs.laboratory import Laboratory, steady


def text(queries: int, with_tables: bool) -> str:
    """Queries with windows of their own, answered once in five minutes."""
    statements = []
    for number in range(queries):
        table_line = f"-- table: t{number}\n" if with_tables else ""
        statements.append(
            f"-- name: q{number}\n{table_line}SELECT symbol, count(*) AS n, avg(price) AS mean FROM trades\n"
            f"WINDOW RANGE '{10 + 5 * (number % 40)} minutes' SLIDE '5 minutes' ON ts GROUP BY symbol;\n"
        )
    return "".join(statements)


def measure(queries: int, hours: int) -> None:
    """Print the CPU and wall seconds of what comes after the publication, by interval, and what tables are made of."""
    spent: list[tuple[float, float]] = []

    def measured(*args: object) -> object:
        begin = time.process_time(), time.perf_counter()
        returned = original(*args)
        spent.append((time.process_time() - begin[0], time.perf_counter() - begin[1]))
        return returned

    original = tables.follow
    interval.tables.follow = measured  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder, without_audit():
        laboratory = Laboratory(in_process(), Path(folder))
        laboratory.write(steady(60 * hours))
        laboratory.write([], "quotes")
        version = laboratory.plan(text(queries, True))
        for hour in range(hours):
            record = laboratory.run(version, 60 * hour, 60 * hour + 60, f"hour {hour}")
            cpu, wall = spent[-1]
            publish = record.cpu_seconds["publish"]
            print(
                f"hour {hour}: {record.answers:,} answers; tables {cpu:.2f} CPU-s, {wall:.2f} s wall; "
                f"publishing with them {publish:.2f} CPU-s; {len(record.diagnostics)} diagnostics"
            )
        laboratory.run(version, 0, 60, "again")
        print("nothing to do: {:.3f} CPU-s, {:.3f} s wall".format(*spent[-1]))
        laboratory.run(version, 0, 60, "recomputed", recompute=True)
        print("one hour replaced: {:.2f} CPU-s, {:.2f} s wall".format(*spent[-1]))


if __name__ == "__main__":
    sizes = [int(number) for number in sys.argv[1:]]
    measure(*(sizes + [500, 4][len(sizes) :]))
