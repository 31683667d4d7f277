"""Measures what the next day of a window of years costs, next to that of a window of a day.

    python -m tests.benchmarks.long_windows [--rounds N] [--events N] [--days N] [--keep-fine DAYS] [--json FILE]

Queries over 1,095 days that slide by a day and by 15 minutes, one since the first event, and one over a day; each has a
warehouse of its own. The first run answers one day and reads all history. Then a file with a few new events a day
comes, and each query answers day after day, in turn. CPU seconds of the process; ``stages``: partials and finals;
``rows``: partial rows that finals read. ``peak``: the greatest memory of a process that does the first run and three
days of one query.

With ``--keep-fine``, fragments older than these days are dropped afterwards, and the next days are measured again:
``stored`` and ``kept`` are the rows of partial aggregates before and after, with MiB, after maintenance.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
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
from optimizer.workload.instants import DAY
from optimizer.workload.values import DOUBLE, LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.engine.choice import Engine
from spark_jobs.operations.maintenance import maintain
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse

BEGIN = 18_262 * DAY
"""2020-01-01T00:00:00Z: the stream begins."""

SCHEMA = (("ts", TIMESTAMP), ("symbol", STRING), ("price", DOUBLE), ("volume", LONG))

OUTPUTS = "sum(volume) AS volume, count(*) AS n, max(price) AS high"

WINDOWS = {
    "one day": "RANGE '1 day' SLIDE '1 day'",
    "3 years daily": "RANGE '1095 days' SLIDE '1 day'",
    "3 years every 15 minutes": "RANGE '1095 days' SLIDE '15 minutes'",
    "since the first event": "RANGE UNBOUNDED SLIDE '1 day'",
}
"""The windows that are measured; the first is what the others are compared with."""

GOAL = 1.5
"""CPU seconds of the next day of three years, daily, as a multiple of those of one day."""


def written(folder: Path, number: int, events: int, begin: int, end: int) -> None:
    """Write a file of ``events`` events in [begin, end)."""
    chance = np.random.default_rng(number)
    rows = pa.table(
        {
            "ts": pa.array(np.sort(chance.integers(begin, end, events))).cast(pa.timestamp("us", "UTC")),
            "symbol": pa.array(["A", "B", "C"]).take(pa.array(chance.integers(0, 3, events))),
            "price": chance.lognormal(3.0, 0.5, events),
            "volume": chance.integers(1, 5000, events),
        }
    )
    pq.write_table(rows, folder / f"part-{number:04d}.parquet")


class Case:
    """One query over a stream in a folder, with a warehouse of its own."""

    def __init__(self, folder: Path, name: str, days: int, events: int) -> None:
        self.name, self.source = name, folder / "events"
        stream = Stream("trades", Source("parquet", str(self.source)), SCHEMA, "ts")
        text = f"-- name: q\nSELECT symbol, {OUTPUTS} FROM trades WINDOW {WINDOWS[name]} ON ts GROUP BY symbol"
        workload = Workload(parse(text, {"trades": stream}).queries, (stream,))
        self.plan = build_plan(workload, {"trades": Fraction(events * SECOND, days * DAY)})
        self.warehouse = Warehouse.open(folder / name.replace(" ", "_"))
        self.version, _ = publish_plan(self.warehouse, self.plan)
        self.day = days

    def keep_fine(self, days: int) -> None:
        """Keep fragments of some days only, from the next maintenance on."""
        (stream,) = self.plan.workload.streams
        workload = replace(self.plan.workload, streams=(replace(stream, keep_fine=days * DAY),))
        self.version, _ = publish_plan(self.warehouse, replace(self.plan, workload=workload))

    def stored(self) -> tuple[int, float]:
        """Rows and MiB of the partial aggregates, after maintenance."""
        maintain(self.warehouse)
        files = self.warehouse.files("partials", "", "9")
        return sum(file["num_records"] for file in files), sum(file["size"] for file in files) / (1 << 20)

    def next(self) -> tuple[float, RunRecord]:
        """Answer the next day: CPU seconds, and the record of the run."""
        begin, end = BEGIN + self.day * DAY, BEGIN + (self.day + 1) * DAY
        before = time.process_time()
        record = run(Engine("long"), self.warehouse, self.version, begin, end, f"day {self.day}", as_of=end + DAY)
        self.day += 1
        return time.process_time() - before, record


def made(folder: Path, days: int, events: int) -> None:
    """Write the stream's first ``days`` days and one more."""
    (folder / "events").mkdir()
    written(folder / "events", 0, events, BEGIN, BEGIN + days * DAY)
    written(folder / "events", days, events // days, BEGIN + days * DAY, BEGIN + (days + 1) * DAY)


def next_days(
    folder: Path, cases: Sequence[Case], first: int, rounds: int, rate: int, console: Console
) -> dict[str, list[tuple[float, RunRecord]]]:
    """The CPU seconds and records of each query on the days from ``first`` on, of ``rate`` events, but for the first of
    them."""
    series: dict[str, list[tuple[float, RunRecord]]] = {case.name: [] for case in cases}
    for number in range(rounds + 1):
        day = first + number
        written(folder / "events", day, rate, BEGIN + day * DAY, BEGIN + (day + 1) * DAY)
        for case in cases:
            spent, record = case.next()
            if number:
                series[case.name].append((spent, record))
            console.print(f"day {number}: {case.name} {spent:.3f} CPU s")
    return series


def measure(
    folder: Path, rounds: int, days: int, events: int, keep_fine: int | None, console: Console
) -> dict[str, dict[str, Any]]:
    """Each query's figures: of its first run, and medians of the next days."""
    made(folder, days, events)
    cases = [Case(folder, name, days, events) for name in WINDOWS]
    figures: dict[str, dict[str, Any]] = {}
    for case in cases:
        spent, record = case.next()
        figures[case.name] = {"first": spent, "first stages": record.cpu_seconds, "rows of first": _rows(record)}
    series = next_days(folder, cases, days + 1, rounds, events // days, console)
    base = [spent for spent, _ in series[next(iter(WINDOWS))]]
    for name, measured in series.items():
        figures[name] |= {
            "next": median(spent for spent, _ in measured),
            "partials": median(record.cpu_seconds["partials"] for _, record in measured),
            "finals": median(record.cpu_seconds["finals"] for _, record in measured),
            "audit": median(record.cpu_seconds.get("audit", 0.0) for _, record in measured),
            "list": median(record.cpu_seconds.get("list", 0.0) for _, record in measured),
            "rows": median(_rows(record) for _, record in measured),
            "answers": median(record.answers for _, record in measured),
            "ratio": median(spent / of_day for (spent, _), of_day in zip(measured, base, strict=True)),
        }
    if keep_fine is not None:
        for case in cases:
            figures[case.name]["stored"], figures[case.name]["stored MiB"] = case.stored()
            case.keep_fine(keep_fine)
            figures[case.name]["kept"], figures[case.name]["kept MiB"] = case.stored()
        for name, measured in next_days(folder, cases, days + 2 + rounds, rounds, events // days, console).items():
            figures[name]["next kept"] = median(spent for spent, _ in measured)
            figures[name]["events read"] = median(record.rows_scanned for _, record in measured)
    return figures


def _rows(record: RunRecord) -> float:
    return float(record.features["partial_rows_read"])


def peak_of(name: str, days: int, events: int) -> float:
    """MiB at most of a process of its own that answers four days of one query."""
    arguments = ["-m", "tests.benchmarks.long_windows", "--only", name]
    done = subprocess.run(
        [sys.executable, *arguments, "--days", str(days), "--events", str(events)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def main() -> int:
    """Measure and print; the exit code is 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description="what the next day of a window of years costs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--days", type=int, default=1460)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--keep-fine", type=int, metavar="DAYS", help="drop older fragments, and measure again")
    parser.add_argument("--only", choices=list(WINDOWS), help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if options.only:
            made(folder, options.days, options.events)
            case = Case(folder, options.only, options.days, options.events)
            for _ in range(4):
                case.next()
            # what getrusage reports is that of the process which started this one, if that was larger
            status = Path("/proc/self/status").read_text()
            print(int(status.split("VmHWM:")[1].split()[0]) / 1024)
            return 0
        figures = measure(folder, options.rounds, options.days, options.events, options.keep_fine, console)
    for name in figures:
        figures[name]["peak"] = peak_of(name, options.days, options.events)
    tables: list[tuple[str, ...]] = [
        ("first", "next", "ratio", "list", "partials", "finals", "audit", "rows", "answers", "peak")
    ]
    if options.keep_fine is not None:
        tables.append(("stored", "stored MiB", "kept", "kept MiB", "next", "next kept", "events read"))
    for headings in tables:
        table = Table("window", *headings)
        for name, of_query in figures.items():
            table.add_row(name, *(f"{of_query[heading]:,.2f}".removesuffix(".00") for heading in headings))
        console.print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1))
    return int(figures["3 years daily"]["ratio"] > GOAL)


if __name__ == "__main__":
    sys.exit(main())
