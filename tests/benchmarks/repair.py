"""What one late event costs in a day of many answers.

    python -m tests.benchmarks.repair [--events N] [--queries N] [--late N]

A day of the regular workload is published; then events come late, one after the other, each into another hour, and
after each `heddle repair` runs in a process of its own. CPU seconds of that process, and of its publication; what it
rewrote.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from optimizer.workload.values import SECOND
from spark_jobs.engine.choice import Engine
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.benchmarks.peers import INTERVAL, plan_of, shared_run
from tests.benchmarks.trades import DAY_START, generate, workload_of

ROOT = Path(__file__).resolve().parents[2]


def late_event(source: Path, hour: int) -> None:
    """A file with one event, some seconds into an hour, of a form that the others have."""
    like = pq.read_table(next(source.glob("part-*.parquet"))).slice(0, 1)
    at = pa.array([DAY_START + hour * 3600 * SECOND + 7 * SECOND]).cast(like.schema.field("ts").type)
    pq.write_table(like.set_column(0, "ts", at), source / f"late-{hour}.parquet")


def repaired(house: Path) -> float:
    """CPU seconds of the command, and of all that it started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "heddle.cli.app", "repair", "--warehouse", str(house)]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="repair", description="what one late event costs in a day of many answers")
    parser.add_argument("--events", type=int, default=3_000_000)
    parser.add_argument("--queries", type=int, default=170)
    parser.add_argument("--late", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        stream = generate(Path(place), options.events)
        house = Warehouse.open(Path(place) / "warehouse")
        version, _ = publish_plan(house, plan_of(workload_of(stream, options.queries), options.events))
        spark = Engine("repair", lambda: None)
        first = shared_run(spark, house, version)  # type: ignore[arg-type]
        table = Table("late events", "CPU s", "publication", "answers", "rewritten", "files", "MB")
        table.add_row("none yet", f"{sum(first.cpu_seconds.values()):.1f}", "", f"{first.answers:,}", "", "", "")
        for number in range(options.late):
            late_event(Path(stream.source.path), 12 + number)
            spent = repaired(house.root)
            row = publish_log.rows_of_interval(Warehouse.open(house.root), *INTERVAL)[-1]
            again = row.record.rewritten
            cells = (
                f"{row.record.answers:,}",
                f"{again['rows']:,}",
                str(again["files"]),
                f"{again['bytes'] / 1e6:.0f}",
            )
            table.add_row(str(number + 1), f"{spent:.1f}", f"{row.record.cpu_seconds['publish']:.1f}", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
