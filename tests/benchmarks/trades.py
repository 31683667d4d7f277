"""The stream and the workloads of the benchmarks: generated, deterministic, kept between runs.

One day of trades in order of time. A symbol is mostly traded at its home exchange, prices are lognormal, volumes
uniform. Three kinds of workloads, each a growing list: the first ten queries of 500 are those of ten.

| kind | slides | ranges | else |
|---|---|---|---|
| ``regular`` | 1 to 60 minutes, divisors of an hour | multiples of half a slide | per symbol |
| ``prime-ish`` | primes, 7 to 59, times 10 s or 60 s | multiples of 10 s, none of the slide | per symbol |
| ``heavy`` | as regular | as regular | 12 filters and none, five group-bys |
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
from optimizer.workload.values import ACQ, DOUBLE, LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Workload

DAY_START = 1_372_636_800 * SECOND
"""2013-07-01T00:00:00Z."""

KEYS = 200
EXCHANGES = 12
ROWS_PER_FILE = 1_000_000

SCHEMA = (
    ("ts", TIMESTAMP),
    ("symbol", STRING),
    ("exchange", STRING),
    ("side", STRING),
    ("price", DOUBLE),
    ("volume", LONG),
)


# ------------------------------------------------------------------------------------------ the stream
def generate(folder: Path, events: int, keys: int = KEYS, seed: int = 7, day: int = 0) -> Stream:
    """``events`` events of ``keys`` symbols over one day in Parquet files of a million rows, in order of time;
    kept if already there. ``day``: days after the first."""
    done = folder / (f"trades-{events}-{keys}" + (f"-day{day}" if day else ""))
    if not done.exists():
        partial = done.with_name(f"{done.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        chance = np.random.default_rng((seed, day) if day else seed)
        begin = DAY_START + day * DAY
        files = -(-events // ROWS_PER_FILE)
        for number in range(files):
            rows = min(ROWS_PER_FILE, events - number * ROWS_PER_FILE)
            span = (begin + DAY * number // files, begin + DAY * (number + 1) // files)
            pq.write_table(_trades(chance, rows, span, keys), partial / f"part-{number:04d}.parquet")
        partial.rename(done)
    return Stream("trades", Source("parquet", str(done.resolve())), SCHEMA, "ts")


def _trades(chance: np.random.Generator, rows: int, span: tuple[int, int], keys: int) -> pa.Table:
    times = np.sort(chance.integers(*span, rows))
    symbols = chance.integers(0, keys, rows)
    away = chance.random(rows) < 0.2
    exchanges = np.where(away, chance.integers(0, EXCHANGES, rows), symbols % EXCHANGES)
    return pa.table(
        {
            "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "symbol": pa.array([f"SYM{key:03d}" for key in range(keys)]).take(pa.array(symbols)),
            "exchange": pa.array([f"X{exchange:02d}" for exchange in range(EXCHANGES)]).take(pa.array(exchanges)),
            "side": pa.array(["B", "S"]).take(pa.array(chance.integers(0, 2, rows))),
            "price": chance.lognormal(3.0, 0.5, rows),
            "volume": chance.integers(1, 5000, rows),
        }
    )


# --------------------------------------------------------------------------------------- the workloads
OUTPUTS = (
    "sum(volume) AS volume",
    "avg(price) AS mean",
    "min(price) AS low, max(price) AS high",
    "count(*) AS trades",
    "stddev(price) AS spread",
    "sum(volume) AS volume, avg(price) AS mean",
    "max(price) AS high",
    "count(*) AS trades, avg(volume) AS size",
    "sum(price) AS money",
    "min(volume) AS smallest, max(volume) AS largest",
    "avg(price) AS mean, stddev(price) AS spread",
    "count(*) AS trades, sum(volume) AS volume, max(price) AS high",
)

FILTERS = (
    "volume > 1000",
    "exchange = 'X03'",
    "price > 20",
    "side = 'B'",
    "volume > 2500",
    "price * volume > 50000",
    "exchange IN ('X00', 'X01', 'X02')",
    "volume > 4000",
    "side = 'S' AND volume > 2500",
    "price BETWEEN 10 AND 25",
    "exchange = 'X05' AND price < 15",
    "price > 30",
    "volume <= 100",
    "symbol < 'SYM1'",
    "side = 'S' OR price > 40",
    "exchange != 'X03' AND volume > 500",
)

GROUP_BYS = (("symbol",), ("exchange",), ("symbol", "side"), ("exchange", "side"), ("side",))

HOUR_DIVISORS = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60)
PRIMES = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59)


@dataclass(frozen=True)
class Kind:
    """What the queries of a workload are drawn from. ``granule``: seconds, the finest granularity that answers all of
    them; ``slides`` in seconds; ``ragged``: ranges are multiples of the granule and not of the slide, else of half a
    slide; ``filters``: None among them is no filter."""

    name: str
    granule: int
    slides: tuple[int, ...]
    ragged: bool = False
    filters: tuple[str | None, ...] = (None,)
    group_bys: tuple[tuple[str, ...], ...] = (("symbol",),)

    def stream(self, folder: Path, events: int) -> Stream:
        """The stream of a day with so many events; kept in the folder."""
        return generate(folder, events)

    def workload(self, stream: Stream, queries: int) -> Workload:
        """The first ``queries`` queries, all different."""
        return workload_of(stream, queries, self)

    def sample(self, queries: Sequence[ACQ], number: int) -> list[ACQ]:
        """A sample of queries that costs on average what all do: from each of ``number`` equal parts by overlap factor
        the query that was registered first, so that a smaller workload of the kind is likely to have it too."""
        number = min(number, len(queries))
        ordered = sorted(range(len(queries)), key=lambda at: (queries[at].window.overlap_factor, at))
        parts = (ordered[part * len(queries) // number : (part + 1) * len(queries) // number] for part in range(number))
        return [queries[at] for at in sorted(map(min, parts))]

    def range_of(self, chance: random.Random, slide: int) -> int:
        if not self.ragged:
            return slide * chance.randint(3, 19) // 2
        least, most = (slide * halves // (2 * self.granule) for halves in (3, 19))
        multiples = [self.granule * number for number in range(least + 1, most + 1)]
        return chance.choice([range_ for range_ in multiples if range_ % slide])


MINUTES = tuple(60 * minutes for minutes in HOUR_DIVISORS)

REGULAR = Kind("regular", 30, MINUTES)
PRIME_ISH = Kind("prime-ish", 10, tuple(unit * prime for unit in (10, 60) for prime in PRIMES), ragged=True)
HEAVY = Kind("heavy", 30, MINUTES, filters=(None, *FILTERS[:12]), group_bys=GROUP_BYS)

KINDS = {kind.name: kind for kind in (REGULAR, PRIME_ISH, HEAVY)}


def workload_of(stream: Stream, queries: int, kind: Kind = REGULAR, seed: int = 11) -> Workload:
    """The first ``queries`` queries of a kind, all different; ranges are 1.5 to 9.5 slides."""
    chance = random.Random(seed)
    drawn: dict[tuple[int, int, str, str | None, tuple[str, ...]], None] = {}
    while len(drawn) < queries:
        slide = chance.choice(kind.slides)
        range_ = kind.range_of(chance, slide)
        outputs = chance.choice(OUTPUTS)
        drawn[range_, slide, outputs, chance.choice(kind.filters), chance.choice(kind.group_bys)] = None
    parsed = parse("\n".join(_text(number, *query) for number, query in enumerate(drawn)), {stream.name: stream})
    if len(parsed.queries) != queries:
        raise ValueError(f"the generated workload is not valid: {parsed.diagnostics[:3]}")
    return Workload(tuple(parsed.queries), (stream,))


def _text(number: int, range_: int, slide: int, outputs: str, filter: str | None, group_by: Sequence[str]) -> str:
    groups = ", ".join(group_by)
    return (
        f"-- name: q{number:04d}\n"
        f"SELECT {groups}, {outputs} FROM trades WINDOW RANGE '{range_} seconds' SLIDE '{slide} seconds' ON ts "
        + (f"WHERE {filter} " if filter else "")
        + f"GROUP BY {groups};\n"
    )
