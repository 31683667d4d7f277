"""Measures what the UPDATE of one row of a Delta table makes Heddle compute again, with and without a change data feed.

    python -m tests.benchmarks.change_feed [--events N] [--days N]

``--events``: of each day. A table of one file a day, and one of one file for all days; the queries of
``tests/spark_jobs/laboratory.py`` answer each day in one run. Then a row of the day in the middle is updated, and all
that is outdated is repaired, in this process and without checks. CPU seconds are of the repairs alone.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from rich.console import Console
from rich.table import Table

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.values import Source, Stream, Workload
from spark_jobs.engine.session import CpuSeconds
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.history import outdated
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.chaos.orders import in_process
from tests.spark_jobs.laboratory import ARROW, DAY, MINUTE, QUERIES, SCHEMA

SPAN = 24 * 60 * MINUTE
"""A day."""


def days_of_events(days: int, events: int) -> Iterator[pa.Table]:
    """Each day's events, evenly spaced, with ten symbols; the volume of one at noon is its own."""
    for day in range(days):
        chance = np.random.default_rng(day)
        volumes = chance.integers(1, 100, events)
        volumes[events // 2] = 1000 + day
        columns = [
            DAY + day * SPAN + np.arange(events) * (SPAN // events),
            np.array(list("ABCDEFGHIJ"))[chance.integers(0, 10, events)],
            chance.integers(100, 200, events) / 4,
            volumes,
        ]
        yield pa.table([pa.array(column).cast(field.type) for column, field in zip(columns, ARROW, strict=True)], ARROW)


def repaired(folder: Path, tables: list[pa.Table], days: int, has_feed: bool) -> tuple[list[RunRecord], float]:
    """What the repairs after an update of one row recorded, and their CPU seconds."""
    path, house = str(folder / "trades"), Warehouse.open(folder / "warehouse")
    stream = Stream("trades", Source("delta", path), SCHEMA, "ts")
    for table in tables:
        feed = {"delta.enableChangeDataFeed": str(has_feed).lower()}
        write_deltalake(path, table, mode="append", configuration=None if DeltaTable.is_deltatable(path) else feed)
    workload = Workload(parse(QUERIES, {"trades": stream}).queries, (stream,))
    version, _ = publish_plan(house, build_plan(workload, {"trades": Fraction(1)}, "weave-share"))
    engine, clock = in_process(), DAY + (days + 1) * SPAN
    for day in range(days):
        first = DAY + day * SPAN
        run(engine, house, version, first, first + SPAN, f"day {day}", as_of=clock, checks="none")
    DeltaTable(path).update(predicate=f"volume = {1000 + days // 2}", updates={"volume": "1"})
    begun, records = CpuSeconds(), []
    for each in outdated(house, clock):
        run_id = f"repair {each.begin}"
        record = run(engine, house, version, each.begin, each.end, run_id, as_of=clock, checks="none")
        records.append(record)
    return records, begun.spent()


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="one updated row, with and without a change data feed")
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--days", type=int, default=7)
    options = parser.parse_args()
    shown = Table("files", "feed", "intervals", "windows", "answers", "events scanned", "CPU s")
    tables = list(days_of_events(options.days, options.events))
    for files, written in (("a day", tables), ("all", [pa.concat_tables(tables)])):
        for has_feed in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                records, spent = repaired(Path(folder), written, options.days, has_feed)
            windows = sum(record.radius["windows"] for record in records if record.radius is not None)
            counts = len(records), windows, sum(record.answers for record in records)
            scanned = sum(record.rows_scanned for record in records)
            shown.add_row(
                files, "on" if has_feed else "off", *(f"{number:,}" for number in (*counts, scanned)), f"{spent:.2f}"
            )
    Console().print(shown)


if __name__ == "__main__":
    main()
