"""Measures the pages over a warehouse of many queries and a year of hourly runs.

    python -m tests.benchmarks.pages [--queries N] [--days N] [--rounds N] [--warehouse DIR] [--json FILE]

The warehouse is written here as hourly runs and maintenance leave it: one merged file of results a day but for the
newest two days, which have one file an hour; logs merged but for their newest rows. Wall time from the request to the
whole page, in one process, through the app of ``heddle serve``; the first request of each page apart from the others,
of which the median counts. The goal: a page of the answers, and of a query, below half a second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastapi.testclient import TestClient
from rich.console import Console
from rich.table import Table

from heddle.pages.app import build_app
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.windows.alignment import day_label
from optimizer.workload.values import ACQ, DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse.data_files import write_files
from spark_jobs.store.warehouse.publish_log import LogRow, RunRecord
from spark_jobs.store.warehouse.quarantine import LeftOut
from spark_jobs.store.warehouse.schemas import INSTANT, RESULTS, moment
from spark_jobs.store.warehouse.warehouse import Warehouse, added

HOUR = 3_600_000_000
DAY = 24 * HOUR
GOAL = 0.5
"""Seconds in which a page is to be there."""

UNMERGED = 2
"""Days at the end whose runs have files of their own."""

SYMBOLS = ("AAPL", "AMZN", "GOOG", "MSFT", "NVDA")
COUNTRIES = ("AT", "DE", "FR")
STREAMS = (
    Stream(
        "trades",
        Source("parquet", "trades"),
        (("ts", TIMESTAMP), ("symbol", STRING), ("venue", STRING), ("price", DOUBLE), ("volume", LONG)),
        "ts",
    ),
    Stream("clicks", Source("parquet", "clicks"), (("at", TIMESTAMP), ("country", STRING), ("ms", LONG)), "at"),
)
OWNERS = ("fraud", "growth", "market-data", "operations", "pricing", "research", "risk")
RANGES, SLIDES = (1, 2, 3, 6, 12, 24), (1, 1, 1, 2, 3, 6, 12)


def workload(queries: int) -> Workload:
    """So many different queries of several owners over two streams: every fourth is grouped, every fiftieth has a
    refresh bound."""
    texts = []
    for number in range(queries):
        owner = OWNERS[number * 5 % len(OWNERS)]
        size = RANGES[number % len(RANGES)]
        slide = f"SLIDE '{min(SLIDES[number % len(SLIDES)], size)} hours'"
        if number % 50 == 5:
            slide = f"SLIDE AT MOST '{min(3, size)} hours'"
        if number % 3:
            selected, stream, on, key = (
                "count(*) AS trades, sum(volume) AS volume, avg(price) AS mean",
                "trades",
                "ts",
                "symbol",
            )
            filter = f"price >= {number // 97}" if number >= 97 else "volume > 0"
        else:
            selected, stream, on, key = "count(*) AS clicks, max(ms) AS slowest", "clicks", "at", "country"
            filter = f"ms >= {number // 89}"
        is_grouped = number % 4 == 0
        texts.append(
            f"-- name: {stream}_{size}h_{number:04}\n-- owner: {owner}\n"
            f"SELECT {f'{key}, ' if is_grouped else ''}{selected} FROM {stream} "
            f"WINDOW RANGE '{size} hours' {slide} ON {on} WHERE {filter}{f' GROUP BY {key}' if is_grouped else ''};"
        )
    parsed = parse("\n".join(texts), {stream.name: stream for stream in STREAMS})
    assert not parsed.diagnostics, parsed.diagnostics[:3]
    return Workload(tuple(parsed.queries), STREAMS)


# ----------------------------------------------------------------------------------------- results
def _level(hours: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How much happens in some hours since 1970: by day and by week."""
    return 1 + 0.6 * np.sin(hours * 2 * np.pi / 24) + 0.2 * np.sin(hours * 2 * np.pi / 168) + hours % 7 / 40


def answers(queries: Sequence[ACQ], hour: int, revisions: Sequence[int] = (1,)) -> pa.Table:
    """What the runs of the hours (``revisions`` has one number each) from ``hour`` (since 1970) on answer."""
    columns: dict[str, list[Any]] = {field.name: [] for field in RESULTS}
    for number, query in enumerate(queries):
        slide = query.window.period // HOUR
        keys = ["[]"]
        if query.group_by:
            values = SYMBOLS if query.stream == "trades" else COUNTRIES
            keys = [json.dumps([value]) for value in values]
        for run, revision in enumerate(revisions):
            ends = hour + run + 1
            if ends % slide:
                continue
            level = float(_level(np.array(ends))) * (1 + number % 13)
            for place, key in enumerate(keys):
                count = int(100 * level / (place + 1))
                is_trade = query.stream == "trades"
                columns["day"].append(day_label(ends * HOUR - 1))
                columns["stream"].append(query.stream)
                columns["query"].append(query.name)
                columns["window_start"].append(ends * HOUR - query.window.range)
                columns["window_end"].append(ends * HOUR)
                columns["instant"].append(ends * HOUR)
                columns["position"].append(None)
                columns["key"].append(key)
                columns["longs"].append([count, 37 * count])
                columns["doubles"].append([50 + level] if is_trade else [])
                columns["texts"].append([])
                columns["error"].append("HDL-403" if number % 211 == 5 and ends % 50 == 0 else None)
                columns["plan_version"].append(1)
                columns["revision"].append(revision)
                columns["run_id"].append(f"scheduled__{ends - 1}")
                columns["fingerprint"].append(query.definition)
    times = {"window_start", "window_end", "instant"}
    return pa.table(
        {
            field.name: pa.array(columns[field.name], pa.int64()).cast(INSTANT)
            if field.name in times
            else pa.array(columns[field.name], field.type)
            for field in RESULTS
        },
        schema=RESULTS,
    )


def _parts(queries: Sequence[ACQ], first: int, last: int) -> Iterator[pa.Table]:
    """The results of the hours [first, last), whole days, a table a commit."""
    day = answers(queries, first, [2 if run == 20 else 1 for run in range(24)])
    hours = pc.add(pc.floor(pc.divide(pc.subtract(day["instant"].cast(pa.int64()), 1), HOUR)), 1)
    for begin in range(first, last, 24):
        moved = _moved(day, begin - first)
        if begin < last - UNMERGED * 24:
            yield moved
            continue
        for run in range(24):
            yield moved.filter(pc.equal(hours, first + run + 1))


def _moved(day: pa.Table, hours: int) -> pa.Table:
    """A day's answers as those of another day, so many hours later."""
    level = float(_level(np.array(hours + 12)))
    columns = {name: day[name] for name in day.schema.names}
    for name in ("window_start", "window_end", "instant"):
        columns[name] = pc.add(day[name].cast(pa.int64()), hours * HOUR).cast(INSTANT)
    label = day_label(columns["instant"][0].cast(pa.int64()).as_py() - 1)
    columns["day"] = pa.array([label] * len(day))
    for name, type in (("longs", pa.int64()), ("doubles", pa.float64())):
        lists = day[name].combine_chunks()
        values = pc.multiply(lists.flatten().cast(pa.float64()), level).cast(type, safe=False)
        columns[name] = pa.ListArray.from_arrays(lists.offsets, values)
    return pa.table(columns, schema=RESULTS)


# -------------------------------------------------------------------------------------------- logs
def _records(queries: int, bounded: Sequence[str], hour: int, version: int) -> tuple[LogRow, LogRow]:
    """The rows of one run in the log."""
    begin, end = hour * HOUR, (hour + 1) * HOUR
    at = end + 4 * 60_000_000
    cpu = 20 + 4 * float(_level(np.array(hour)))
    record = RunRecord(
        f"scheduled__{hour}",
        version,
        begin,
        end,
        revision=1,
        status="published",
        answers=queries * 2,
        queries=queries,
        rows_scanned=int(4000 * _level(np.array(hour))),
        predicted_cpu_seconds=cpu * 1.1,
        cpu_seconds={"list": 0.5, "partials": cpu * 0.6, "finals": cpu * 0.3, "publish": cpu * 0.1},
        wall_seconds={"list": 0.5, "partials": cpu * 0.4, "finals": cpu * 0.2, "publish": cpu * 0.1},
        live=True,
        late=hour % 40 == 0,
        lateness={bounded[0]: 20 * 60_000_000} if bounded and hour % 40 == 0 else {},
        refreshed=dict.fromkeys(bounded, end),
    )
    text = json.dumps(record.to_json())
    allocated = LogRow(begin, end, 1, record.run_id, "allocated", version, f"{hour}", 0, None, at - 60_000_000, text)
    return allocated, LogRow(
        begin, end, 1, record.run_id, "published", version, f"{hour}", record.answers, hour, at, text
    )


def _measurements(hour: int, rows: int) -> list[dict[str, Any]]:
    """What a run measured of each stream."""
    return [
        {
            "stream": stream.name,
            "interval_start": moment(hour * HOUR),
            "interval_end": moment((hour + 1) * HOUR),
            "rows": rows // (number + 1),
            "rate": rows / (number + 1) / 3600,
            "groups_per_fragment": 4.0,
            "stage_cpu_seconds": "{}" if number else json.dumps({"partials": 15.0, "finals": 7.0}),
            "run_id": f"scheduled__{hour}",
            "at": moment((hour + 1) * HOUR + 240_000_000),
        }
        for number, stream in enumerate(STREAMS)
        # an outage of a stream
        if not (number and hour % 500 in range(100, 106))
    ]


def _files(hour: int) -> list[dict[str, Any]]:
    """The files of an hour in the ledger of the sources."""
    return [
        {
            "stream": stream.name,
            "identity": f"{stream.name}/{hour}.parquet|1|1",
            "path": f"{stream.name}/{hour}.parquet",
            "event": "came",
            "arrived": moment((hour + 1) * HOUR + 60_000_000),
            "begin": moment(hour * HOUR),
            "end": moment((hour + 1) * HOUR),
            "refused": "[]",
            "late": 17 if hour % 300 == 0 else 0,
            "at": moment((hour + 1) * HOUR + 120_000_000),
            "stamps": None,
        }
        for stream in STREAMS
    ]


def make(root: Path, queries: int, days: int, last: int) -> Warehouse:
    """A warehouse of so many queries and days of hourly runs before the hour ``last`` (since 1970, a midnight)."""
    warehouse = Warehouse.open(root)
    generated = workload(queries)
    rates = {stream.name: Fraction(10, number + 1) for number, stream in enumerate(STREAMS)}
    version, _ = publish_plan(warehouse, build_plan(generated, rates, "weave-share"), "scheduler", "refreshed")
    bounded = [query.name for query in generated.queries if query.window.at_most]
    first, recent = last - days * 24, last - UNMERGED * 24
    spans = [range(first, recent), *(range(hour, hour + 1) for hour in range(recent, last))]
    with warehouse.lease() as token:
        for rows in _parts(generated.queries, first, last):
            actions = [added(file) for file in write_files(warehouse.path("results"), rows)]
            warehouse.commit("results", warehouse.table("results"), actions, token)
        for hours in spans:
            log = [row.to_row() for hour in hours for row in _records(queries, bounded, hour, version)]
            warehouse.append("publish_log", log, token)
            measured = [row for hour in hours for row in _measurements(hour, int(4000 * _level(np.array(hour))))]
            warehouse.append("stream_statistics", measured, token)
            warehouse.append("source_files", [row for hour in hours for row in _files(hour)], token)
        left_out = [
            LeftOut(f"scheduled__{hour}", "trades", "HDL-411", 17, "later than allowed", (hour + 1) * HOUR)
            for hour in range(first, last)
            if hour % 300 == 0
        ]
        warehouse.append("quarantine", [{**vars(row), "at": moment(row.at)} for row in left_out], token)
    return warehouse


# ------------------------------------------------------------------------------------------- measuring
PAGES = (
    *("answers", "answers?page=20", "answers?q=trades&owner=fraud", "query?name={plain}", "query?name={grouped}"),
    *("query?name={grouped}&span=month", "query?name={plain}&span=all", "streams", "trends", "", "history"),
    "operations",
)
"""Addresses; a plain query is not grouped."""

QUICK = ("answers", "query?name={plain}", "query?name={grouped}")
"""Beginnings of those that the goal is for, without a longer span."""


@dataclass(frozen=True)
class Times:
    """Of one page: seconds of its first request, the median of the others, their CPU seconds, and its size."""

    page: str
    first: float
    wall: float
    cpu: float
    bytes: int
    is_quick: bool

    @property
    def is_met(self) -> bool:
        return not self.is_quick or self.wall < GOAL


def measure(root: Path, queries: int, rounds: int) -> list[Times]:
    """The times of every page, asked for in turn."""
    client = TestClient(build_app(lambda: root))
    known = workload(queries).queries
    names = {
        "plain": next(query.name for query in known if not query.group_by),
        "grouped": next(query.name for query in known if query.group_by),
    }
    times_by_page: dict[str, list[tuple[float, float]]] = {page: [] for page in PAGES}
    sizes: dict[str, int] = {}
    for _ in range(rounds + 1):
        for page, times in times_by_page.items():
            wall, cpu = time.perf_counter(), time.process_time()
            answer = client.get("/" + page.format(**names))
            times.append((time.perf_counter() - wall, time.process_time() - cpu))
            assert answer.status_code == 200, answer.text
            sizes[page] = len(answer.content)
    return [
        Times(
            "/" + page.format(**names),
            times[0][0],
            statistics.median(wall for wall, _ in times[1:]),
            statistics.median(cpu for _, cpu in times[1:]),
            sizes[page],
            page.startswith(QUICK) and "span" not in page,
        )
        for page, times in times_by_page.items()
    ]


def show(found: Sequence[Times], queries: int, days: int) -> None:
    """The times as a table."""
    table = Table(title=f"{queries:,} queries, {days} days of hourly runs", title_justify="left")
    for name in ("page", "first s", "s", "CPU-s", "KiB", f"goal {GOAL} s"):
        table.add_column(name, justify="left" if name == "page" else "right")
    for times in found:
        goal = ("met" if times.is_met else "missed") if times.is_quick else ""
        figures = (f"{seconds:.2f}" for seconds in (times.first, times.wall, times.cpu))
        table.add_row(times.page, *figures, f"{times.bytes / 1024:,.0f}", goal)
    Console().print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a page misses the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warehouse", type=Path, help="made there unless it is one already")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        root = (options.warehouse or Path(folder) / "house").absolute()
        if not root.exists():
            make(root, options.queries, options.days, int(datetime.now(UTC).timestamp()) // 86_400 * 24)
        measured = measure(root, options.queries, options.rounds)
    show(measured, options.queries, options.days)
    if options.json:
        options.json.write_text(json.dumps([vars(times) for times in measured], indent=1))
    return int(not all(times.is_met for times in measured))


if __name__ == "__main__":
    sys.exit(main())
