"""A stream of purchases and queries that count event sequences in it: generated, deterministic, kept between runs.

One day of purchases in order of time, in whole seconds, as those of the paper (:mod:`tests.benchmarks.sequences`):
item and customer are drawn uniformly. Of two kinds of workloads ``sequences`` has so many customers that one buys about
21 things an hour, ``dense-sequences`` a tenth of them, who buy 208. Queries count in how many ways one customer buys
given items one after another, in windows of an hour every ten minutes; lengths take turns, every second pattern has a
piece that others have too.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.language.parser import parse
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Workload
from tests.benchmarks.trades import DAY_START, ROWS_PER_FILE

SCHEMA = (("ts", TIMESTAMP), ("customer", LONG), ("item", STRING))

ITEMS = 20
LENGTHS = (3, 4, 2, 5)
"""Of patterns, in turns: with so many queries as there are lengths the mean is that of more."""

PIECES = (("I03", "I11"), ("I07", "I02", "I15"), ("I19", "I00"))
"""What several patterns have in common."""


def purchases(folder: Path, events: int, customers: int, seed: int = 7) -> Stream:
    """``events`` purchases of one day in Parquet files of a million rows, in order of time; kept if already there."""
    done = folder / f"purchases-{events}-{customers}"
    if not done.exists():
        partial = done.with_name(f"{done.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        chance = np.random.default_rng(seed)
        files = -(-events // ROWS_PER_FILE)
        items = pa.array([f"I{item:02d}" for item in range(ITEMS)])
        for number in range(files):
            rows = min(ROWS_PER_FILE, events - number * ROWS_PER_FILE)
            span = (DAY * number // files, DAY * (number + 1) // files)
            times = np.sort(DAY_START + chance.integers(*span, rows) // SECOND * SECOND)
            columns = {
                "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
                "customer": chance.integers(0, customers, rows),
                "item": items.take(pa.array(chance.integers(0, ITEMS, rows))),
            }
            pq.write_table(pa.table(columns), partial / f"part-{number:04d}.parquet")
        partial.rename(done)
    return Stream("purchases", Source("parquet", str(done.resolve())), SCHEMA, "ts")


@dataclass(frozen=True)
class Patterns:
    """A kind of workload of event sequences. ``hourly``: purchases of a customer in an hour, on average."""

    name: str
    hourly: int
    granule: None = None

    def stream(self, folder: Path, events: int) -> Stream:
        """The stream of a day with so many events; kept in the folder."""
        return purchases(folder, events, max(1, events // (24 * self.hourly)))

    def workload(self, stream: Stream, queries: int) -> Workload:
        """The first ``queries`` queries, all different."""
        chance, drawn = random.Random(11), dict[tuple[str, ...], None]()
        while len(drawn) < queries:
            length = LENGTHS[len(drawn) % len(LENGTHS)]
            piece = chance.choice(PIECES) if chance.random() < 0.5 else ()
            unused_items = [f"I{item:02d}" for item in range(ITEMS) if f"I{item:02d}" not in piece]
            around = chance.sample(unused_items, max(0, length - len(piece)))
            front = chance.randint(0, len(around))
            drawn[(*around[:front], *piece, *around[front:])[:length]] = None
        parsed = parse("\n".join(_text(number, pattern) for number, pattern in enumerate(drawn)), {stream.name: stream})
        if len(parsed.queries) != queries:
            raise ValueError(f"the generated workload is not valid: {parsed.diagnostics[:3]}")
        return Workload(tuple(parsed.queries), (stream,))

    def sample(self, queries: Sequence[ACQ], number: int) -> list[ACQ]:
        """Queries of every length that there is, as many of each, about ``number`` in all; shorter patterns first, so
        that what explodes with the length is noticed before it takes hours."""
        by_length: dict[int, list[ACQ]] = {}
        for query in queries:
            assert query.pattern is not None
            by_length.setdefault(len(query.pattern.events), []).append(query)
        each = max(1, number // len(by_length))
        return [query for length in sorted(by_length) for query in by_length[length][:each]]


def _text(number: int, pattern: Sequence[str]) -> str:
    return (
        f"-- name: q{number:04d}\n"
        f"SELECT count(*) AS found FROM purchases PATTERN SEQ({', '.join(pattern)}) ON item PARTITION BY customer "
        "WINDOW RANGE '1 hour' SLIDE '10 minutes' ON ts;\n"
    )


PATTERNS = {kind.name: kind for kind in (Patterns("sequences", 21), Patterns("dense-sequences", 208))}
