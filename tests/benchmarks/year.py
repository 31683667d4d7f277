"""What a year costs: the same refreshes on day two and after a year of refreshes every five minutes.

    python -m tests.benchmarks.year [--days N] [--rounds N] [--files N] [--recent N] [--json FILE]

Two warehouses over one stream, a file every five minutes (``--files``: days that are over have so many): one is two
days old, one a year (105,120 refreshes). Answers and partial aggregates come from backfills; logs are written by the
code that writes them, a day at a time, with the record of a real refresh; then maintenance. Both then answer the same
refreshes in turns. One row each: CPU seconds and bytes read, and of a process that does nothing else the most memory;
what a year makes of them; the goal is 1.3. Exit code 1 where it is missed. ``--recent``: of so many days alone there
are events and answers, of all others logs: a million refreshes are ``--days 3472 --files 1 --recent 30``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.instants import DAY, format_instant
from optimizer.workload.values import SECOND, Source, Stream, Workload
from spark_jobs.engine.choice import Engine
from spark_jobs.operations.answers import Choice, list_answers
from spark_jobs.operations.maintenance import maintain, merge_logs
from spark_jobs.operations.read import read_operations
from spark_jobs.operations.status import read_status
from spark_jobs.pipeline.planning.live_runs import due
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.planning.refresh import refresh_plan
from spark_jobs.pipeline.run.history import outdated
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.schemas import HOUR, moment
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources import looks
from tests.spark_jobs.laboratory import ARROW, SCHEMA

GOAL = 1.3
"""Of a year, over day two."""

EVERY = 300 * SECOND
METRICS = 60
PLANS = 10
"""Versions of the plan a day."""

MAINTAINED = 10
"""Days after which logs are merged while they grow; maintenance does it each day."""

FIRST = 18_000 * DAY

SETTLED = 3 * HOUR
"""So much older than they are (microseconds) are the files when refreshes look at them, each five minutes later: what
was written within the hour is looked at more often."""


@dataclass(frozen=True)
class House:
    """A warehouse with so many days behind it."""

    warehouse: Warehouse
    days: int

    @property
    def end(self) -> int:
        """The next refresh begins here (microseconds)."""
        return FIRST + self.days * DAY


def write_events(folder: Path, first: int, last: int, every: int = EVERY) -> None:
    """A file every five minutes, or so often, with two events a minute."""
    folder.mkdir(parents=True, exist_ok=True)
    chance, count = np.random.default_rng(3), 10 * every // EVERY
    for at in range(first, last, every):
        ts = np.sort(chance.integers(at, at + every, count))
        symbols = [f"S{number}" for number in chance.integers(0, 4, count)]
        columns = {"ts": ts, "symbol": symbols, "price": chance.random(count), "volume": chance.integers(0, 99, count)}
        pq.write_table(pa.table(columns, schema=ARROW), folder / f"{at // SECOND}.parquet")


def workload_over(folder: Path) -> Workload:
    """Metrics that are refreshed every five minutes, over the events in a folder; also as files."""
    stream = Stream("trades", Source("parquet", str(folder / "events")), SCHEMA, "ts")
    aggregates = ("count(*)", "sum(volume)", "avg(price)", "max(price)", "min(volume)")
    texts = [
        f"-- name: metric_{number}\nSELECT symbol, {aggregates[number % 5]} AS v FROM trades "
        f"WINDOW RANGE '{10 * (1 + number % 12)} minutes' SLIDE AT MOST '5 minutes' ON ts GROUP BY symbol;"
        for number in range(METRICS)
    ]
    columns = ", ".join(f"{name}: {type.name}" for name, type in SCHEMA)
    source = f"{{format: parquet, path: {folder / 'events'}}}"
    declared = f"streams:\n  trades:\n    source: {source}\n    schema: {{{columns}}}\n    time: ts\n"
    (folder / "streams.yml").write_text(declared)
    (folder / "metrics.sql").write_text("\n".join(texts))
    return Workload(parse("\n".join(texts), {"trades": stream}).queries, (stream,))


def build(folder: Path, days: int, console: Console, files: int = DAY // EVERY, recent: int | None = None) -> House:
    """A warehouse that has refreshed its metrics for so many days, of which the ``recent`` ones have events."""
    begun = time.perf_counter()
    oldest = 0 if recent is None else max(0, days - recent)
    write_events(folder / "events", FIRST + oldest * DAY, FIRST + days * DAY, DAY // files)
    write_events(folder / "events", FIRST + days * DAY, FIRST + (days + 1) * DAY)
    workload, warehouse = workload_over(folder), Warehouse.open(folder / "house")
    plan = build_plan(workload, {"trades": Fraction(1, 30)}, "weave-share")
    version, _ = publish_plan(warehouse, plan)
    house, spark = House(warehouse, days), Engine("year")
    # each is the publication of a month, such as no refresh is: logged before all of those
    with logged_at(FIRST):
        for first in range(oldest, days, 30):
            begin, end = FIRST + first * DAY, FIRST + min(first + 30, days) * DAY
            run(spark, warehouse, version, begin, end, f"history {first}", checks="none", as_of=house.end)
    # the record of a real refresh, once for every refresh that was
    last = run(
        spark, warehouse, version, house.end - EVERY, house.end, "last", live=True, as_of=house.end, recompute=True
    )
    written = publish_log.rows_of_interval(warehouse, last.begin, last.end)
    warehouse_rows(warehouse, written, days)
    maintain(warehouse)
    console.print(f"{days} days: {time.perf_counter() - begun:.0f} s")
    return house


@contextmanager
def logged_at(moment: int) -> Iterator[None]:
    """What is published meanwhile is logged at a moment (microseconds)."""
    clock, publish_log.now_micros = publish_log.now_micros, lambda: moment
    try:
        yield
    finally:
        publish_log.now_micros = clock


def warehouse_rows(warehouse: Warehouse, written: list[LogRow], days: int) -> None:
    """Append what each refresh of the days before has logged."""
    checks = warehouse.rows("quality_results")
    statistics = warehouse.rows("stream_statistics")
    plans = warehouse.rows("sharing_plans")
    version = 1
    for day in range(days):
        rows: list[dict[str, Any]] = []
        checked: list[dict[str, Any]] = []
        measured: list[dict[str, Any]] = []
        for at in range(FIRST + day * DAY, FIRST + (day + 1) * DAY, EVERY):
            for row in written:
                record = dict(row.stored_record) | {"begin": format_instant(at), "end": format_instant(at + EVERY)}
                spans = record.get("read", {}).items()
                back = row.begin - at
                record["read"] = {name: (begin - back, end - back, of) for name, (begin, end, of) in spans}
                moved = replace(row, begin=at, end=at + EVERY, at=at + EVERY, text=json.dumps(record))
                rows.append(moved.to_row())
            times = {"interval_start": moment(at), "interval_end": moment(at + EVERY), "at": moment(at + EVERY)}
            checked += [check | times for check in checks[-15:]]
            measured.append(statistics[-1] | {"at": moment(at + EVERY)})
        with warehouse.lease() as token:
            warehouse.append("publish_log", rows, token)
            warehouse.append("quality_results", checked, token)
            warehouse.append("stream_statistics", measured, token)
        more = []
        for _ in range(PLANS):
            version += 1
            more += [row | {"plan_version": version} for row in plans if row["plan_version"] == 1]
        with warehouse.lease() as token:
            warehouse.append("sharing_plans", more, token)
        if day % MAINTAINED == 0:
            merge_logs(warehouse, most=1)


def bytes_read() -> int:
    """What this process has read so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def spent(step: Callable[[], Any]) -> dict[str, float]:
    """CPU seconds and megabytes read in a step."""
    cpu, read = time.process_time(), bytes_read()
    step()
    return {"cpu": time.process_time() - cpu, "MB": (bytes_read() - read) / 1e6}


def steps(house: House, number: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What is measured, by name."""
    begin, warehouse = house.end + number * EVERY, house.warehouse
    looks.clock_micros = lambda: time.time_ns() // 1000 + SETTLED + number * EVERY
    yield "nothing due", lambda: due(warehouse, begin + 1)

    def refresh() -> None:
        due_interval = due(warehouse, begin + EVERY)
        assert due_interval is not None and (due_interval.begin, due_interval.end) == (begin, begin + EVERY), (
            due_interval
        )
        record = run(
            Engine("year"),
            warehouse,
            due_interval.plan_version,
            due_interval.begin,
            due_interval.end,
            f"live {number}",
            as_of=begin + EVERY,
            live=True,
            checks="sample",
        )
        assert record.status == "published", asdict(record)

    yield "a refresh", refresh
    queries, streams = (warehouse.root.parent / name for name in ("metrics.sql", "streams.yml"))
    planning = partial(refresh_plan, warehouse.root, [queries], streams, cost_model="measured", dry_run=True)
    yield "a plan refresh", planning
    yield "status", lambda: read_status(warehouse, 10)
    yield "repair --dry-run", lambda: outdated(warehouse, begin + EVERY)
    yield "page: operations", lambda: read_operations(warehouse)
    yield "page: answers", lambda: list_answers(warehouse, Choice())


def memory_of(root: Path, days: int, number: int, name: str) -> float:
    """The most megabytes that a process of its own takes for a step beyond what it has loaded."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(_peak, root, days, number, name).result()


def _peak(root: Path, days: int, number: int, name: str) -> float:
    # from here on, and not what the process that made this one took
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    dict(steps(House(Warehouse.open(root), days), number))[name]()
    return _resident("VmHWM") - before


def _resident(what: str) -> float:
    """Megabytes of memory of this process, now (VmRSS) or at most (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) / 1024


def main() -> int:
    """Measure and print beside the goal; the exit code."""
    parser = argparse.ArgumentParser(description="what a year costs")
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=DAY // EVERY, help="of a day that is over")
    parser.add_argument("--recent", type=int, help="days that have events")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console, measurements = Console(width=None if sys.stdout.isatty() else 160), dict[str, list[dict[str, float]]]()
    with tempfile.TemporaryDirectory() as folder:
        houses = {
            days: build(Path(folder) / str(days), days, console, options.files, options.recent)
            for days in (2, options.days)
        }
        for number in range(options.rounds + 1):
            for days, house in houses.items():
                for name, step in steps(house, number):
                    measured = spent(step)
                    if number:
                        measurements.setdefault(f"{name}/{days}", []).append(measured)
        for days, house in houses.items():
            for name, _ in steps(house, options.rounds + 1):
                peak = memory_of(house.warehouse.root, days, options.rounds + 1, name)
                for each in measurements[f"{name}/{days}"]:
                    each["memory"] = peak
    units = {"cpu": "CPU s", "MB": "MB read", "memory": "MB of memory"}
    columns = [column for unit in units.values() for column in (f"day two, {unit}", "a year", "times")]
    table, missed = Table("what", *columns), False
    for name in dict.fromkeys(key.rpartition("/")[0] for key in measurements):
        cells: list[str] = []
        for unit in units:
            early, late = (
                median(measurement[unit] for measurement in measurements[f"{name}/{days}"])
                for days in (2, options.days)
            )
            missed |= late > GOAL * early
            cells += [f"{early:.3g}", f"{late:.3g}", f"{late / early:.2f}" if early else ""]
        table.add_row(name, *cells)
    console.print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(measurements, indent=1))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
