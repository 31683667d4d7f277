"""Measures what it costs to have Spark read a source, beside Heddle's own reader, in turns on the same events.

    python -m tests.benchmarks.copies [--events N] [--rounds N] [--queries N]

Each round, into new warehouses, CPU seconds of the whole process tree: a run over Parquet files that Heddle reads, and
one over the same files by ``reader: spark``, whose copy is made first; then one more run each over a file that came.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from optimizer.workload.streams import with_copy
from optimizer.workload.values import Origin
from spark_jobs.engine.session import CpuSeconds, start_session
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.copies.copying import bring_up_to_date
from tests.benchmarks.peers import plan_of, shared_run
from tests.benchmarks.trades import generate, workload_of


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="Spark's reader beside Heddle's")
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=10)
    options = parser.parse_args()
    table = Table("round", "step", "reader", "CPU s", "wall s", "MB copied")
    spark = start_session("copies", "local[2]")
    with tempfile.TemporaryDirectory() as folder:
        generated = generate(Path(folder), options.events)
        source = Path(folder) / "events"
        source.mkdir()
        rows = pq.read_table(generated.source.path)
        last = len(rows) * 9 // 10
        pq.write_table(rows.slice(0, last), source / "0.parquet", row_group_size=1 << 20)
        direct = replace(generated, source=replace(generated.source, format="parquet", path=str(source)))
        plan = plan_of(workload_of(generated, options.queries), options.events)
        for number in range(options.rounds):
            copies = Path(folder) / f"copies-{number}"
            origin = Origin("parquet", str(source), copies=str(copies))
            copied = with_copy(replace(direct, source=replace(direct.source, format="delta", origin=origin)))
            houses = {name: Warehouse.open(f"{folder}/{name}-{number}") for name in ("direct", "spark")}
            for step in ("first", "a tenth more"):
                for name, stream in (("direct", direct), ("spark", copied)):
                    workload = replace(plan.workload, streams=(stream,))
                    version, _ = publish_plan(houses[name], replace(plan, workload=workload))
                    cpu, begun = CpuSeconds(), time.perf_counter()
                    if name == "spark":
                        bring_up_to_date(spark, stream, time.time_ns() // 1000)
                        spent, took = cpu.spent(), time.perf_counter() - begun
                        table.add_row(str(number), step, "  its copy", f"{spent:.1f}", f"{took:.1f}", "")
                    shared_run(spark, houses[name], version)
                    files = copies.rglob("*.parquet") if name == "spark" else ()
                    size = sum(file.stat().st_size for file in files) / 1e6
                    spent, took = cpu.spent(), time.perf_counter() - begun
                    table.add_row(str(number), step, name, f"{spent:.1f}", f"{took:.1f}", f"{size:.0f}" if size else "")
                if step == "first":
                    pq.write_table(rows.slice(last), source / "1.parquet", row_group_size=1 << 20)
            (source / "1.parquet").unlink()
    spark.stop()
    Console().print(table)


if __name__ == "__main__":
    main()
