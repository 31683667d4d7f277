"""The stream and the two queries of :mod:`tests.benchmarks.features`: generated, deterministic.

Orders of customers over 822 days, each at a moment of its own. Some customers order more often than others.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.language.parser import parse
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, LONG, SECOND, STRING, TIMESTAMP, Source, Stream

BEGIN = 18_993 * DAY
"""2022-01-01T00:00:00Z: the stream begins."""

INSTANTS = 90
"""Instants of the backfill."""

FIRST_DAY = BEGIN + 730 * DAY
"""The backfill answers the instants behind this one, which a first run has answered."""

MINUTE, HOUR = 60 * SECOND, 3600 * SECOND

STEP = 5 * MINUTE

NOW = FIRST_DAY + (INSTANTS + 2) * DAY + 10 * HOUR + 30 * MINUTE
"""The end of the history; updates answer the instants behind it."""

ROWS_PER_FILE = 1_000_000

SCHEMA = (("ts", TIMESTAMP), ("customer", LONG), ("cents", LONG), ("items", LONG), ("kind", STRING))

AGGREGATES = {
    "n": "count(*)",
    "total": "sum(cents)",
    "mean": "avg(cents)",
    "low": "min(cents)",
    "high": "max(cents)",
    "spread": "stddev(cents)",
    "earliest": "first(cents)",
    "latest": "last(cents)",
    "refunds": "count_if(kind = 'refund')",
    "refunded": "sum(cents) FILTER (WHERE kind = 'refund')",
    "items": "sum(items)",
    "mean_items": "avg(items)",
    "most_items": "max(items)",
}
"""The 13 aggregates of a window, by the beginning of their outputs' names."""

RECENT = {
    **{"m5": 5 * MINUTE, "h1": HOUR, "h6": 6 * HOUR, "d1": DAY, "d7": 7 * DAY},
    **{"d30": 30 * DAY, "d365": 365 * DAY, "d730": 730 * DAY},
}
"""The windows of the query that slides by 5 minutes."""

DAILY = {f"d{days}": days * DAY for days in (1, 3, 7, 14, 30, 90, 365, 730)}
"""Those of the query that slides by a day."""


@dataclass(frozen=True)
class QuerySet:
    """A query of 104 features, with its windows (microseconds), the shortest first."""

    query: ACQ
    windows: Mapping[str, int]
    source: Path

    @property
    def is_daily(self) -> bool:
        """Return whether it is that of the backfill."""
        return self.windows is DAILY


def stream_of(source: Path) -> Stream:
    """The orders in a folder."""
    return Stream("orders", Source("parquet", str(source.resolve())), SCHEMA, "ts")


def recent(source: Path) -> QuerySet:
    """The query that slides by 5 minutes."""
    return _query("recent", RECENT, "5 minutes", source)


def daily(source: Path) -> QuerySet:
    """The query that slides by a day."""
    return _query("daily", DAILY, "1 day", source)


def _query(name: str, windows: Mapping[str, int], slide: str, source: Path) -> QuerySet:
    outputs = ", ".join(f"{call} OVER ({', '.join(windows)}) AS {output}" for output, call in AGGREGATES.items())
    ranges = ", ".join(f"{window} AS (RANGE '{length // MINUTE} minutes')" for window, length in windows.items())
    clauses = f"WINDOW {ranges} SLIDE '{slide}' ON ts GROUP BY customer"
    text = f"-- name: {name}\nSELECT customer, {outputs} FROM orders {clauses}"
    parsed = parse(text, {"orders": stream_of(source)})
    if len(parsed.queries) != 1:
        raise ValueError(f"the query is not valid: {parsed.diagnostics[:3]}")
    return QuerySet(parsed.queries[0], windows, source)


def generate(folder: Path, events: int, keys: int) -> Path:
    """Orders in [:data:`BEGIN`, :data:`NOW`) in Parquet files of a million rows, by time; kept if there."""
    done = folder / f"orders-{events}-{keys}"
    if not done.exists():
        partly = done.with_name(f"{done.name}.partial")
        shutil.rmtree(partly, ignore_errors=True)
        partly.mkdir(parents=True)
        chance = np.random.default_rng(7)
        files = -(-events // ROWS_PER_FILE)
        for number in range(files):
            rows = min(ROWS_PER_FILE, events - number * ROWS_PER_FILE)
            span = (BEGIN + (NOW - BEGIN) * number // files, BEGIN + (NOW - BEGIN) * (number + 1) // files)
            write_events(partly / f"part-{number:04d}.parquet", chance, rows, span, keys)
        partly.rename(done)
    return done


def write_events(path: Path, chance: np.random.Generator, rows: int, span: tuple[int, int], keys: int) -> None:
    """Write ``rows`` orders of a span of time (microseconds), no two at one moment."""
    begin, end = span
    times = begin + np.sort(chance.integers(0, end - begin - rows, rows)) + np.arange(rows)
    # half of the orders are of a tenth of the customers
    most = np.where(chance.random(rows) < 0.5, keys, -(-keys // 10))
    customers = chance.integers(0, most, rows)
    kinds = pa.array(["order", "refund", "gift"]).take(pa.array(chance.choice(3, rows, p=[0.9, 0.07, 0.03])))
    table = pa.table(
        {
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "customer": customers,
            "cents": chance.integers(1, 100_000, rows),
            "items": chance.integers(1, 20, rows),
            "kind": kinds,
        }
    )
    pq.write_table(table, path)
