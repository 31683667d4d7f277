"""Measures the costs of this machine by probes, and fits them.

python -m spark_jobs.pipeline.run.calibrate
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.synopses.synopsis import synopses_of
from optimizer.workload.instants import DAY
from optimizer.workload.values import DOUBLE, LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.pipeline.costs.fit import Fit, Observation, fit
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.windows.finals.stage import finals_of
from spark_jobs.windows.partials.fill_request import FillRequest, columns_of_synopsis
from spark_jobs.windows.partials.lifting import partials_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OUTPUTS = (
    "sum(volume) AS volume",
    "avg(price) AS mean",
    "min(price) AS low, max(price) AS high",
    "count(*) AS trades",
    "stddev(price) AS spread",
    "sum(volume) AS volume, avg(price) AS mean",
)

DAY_START = 1_372_636_800 * SECOND

HOUR = 3600

Seconds = int


@dataclass(frozen=True)
class Probe:
    """A synthetic workload that has much of one feature: every window with every filter, over a day of ``events``.

    ``windows``: (range, slide); ``algorithm`` decides the trees, ``keys`` how many groups there are (0: queries do not
    group).
    """

    name: str
    events: int
    keys: int
    windows: tuple[tuple[Seconds, Seconds], ...]
    filters: int = 1
    algorithm: str = "shared"

    def workload(self, stream: Stream) -> Workload:
        """The queries of the probe over a stream."""
        statements = []
        for number, ((range_, slide), bound) in enumerate(product(self.windows, range(self.filters))):
            statements.append(
                f"-- name: q{number}\nSELECT {'symbol, ' if self.keys else ''}{OUTPUTS[number % len(OUTPUTS)]} "
                f"FROM {stream.name} WINDOW RANGE '{range_} seconds' SLIDE '{slide} seconds' ON ts"
                f"{f' WHERE volume > {100 * bound}' if bound else ''}{' GROUP BY symbol' if self.keys else ''};"
            )
        return Workload(tuple(parse("\n".join(statements), {stream.name: stream}).queries), (stream,))


COARSE = tuple((2 * HOUR, slide) for slide in range(660, 2100, 60))

PROBES = (
    Probe("nothing", 1_000, 10, ((HOUR, HOUR),)),
    Probe("nothing again", 1_000, 10, ((HOUR, HOUR),)),
    Probe("events", 2_000_000, 0, ((600, 600), (1200, 600), (1200, 1200))),
    Probe("trees", 1_000_000, 0, COARSE, algorithm="no-share"),
    Probe("families", 1_000_000, 0, ((HOUR, 1800),), filters=24),
    Probe("rows", 400_000, 200, ((60, 30),)),
    Probe(
        "rows of trees", 200_000, 200, tuple((slide // 5, slide // 10) for _, slide in COARSE[:6]), algorithm="no-share"
    ),
    Probe("states", 600_000, 200, ((60, 30), *((1800 * long, 1800 * long) for long in range(2, 7)))),
    Probe("rows passed", 600_000, 200, ((60, 30), *((1800 * long, 1800 * long) for long in range(2, 42)))),
    Probe("answers", 100_000, 200, tuple((120 * slides, 60) for slides in range(1, 17))),
    Probe("fragments combined", 100_000, 200, tuple((60 * slides, 60) for slides in range(300, 306))),
    Probe("queries", 50_000, 5, tuple((HOUR * hours, HOUR) for hours in range(1, 24)), filters=6),
)
"""The probes that :func:`calibrate` runs."""

ROUNDS = 3
"""Runs of each probe, each into a fresh warehouse; the first but that of a cold session warms up, and is not fitted."""


def calibrate(
    spark: SparkSession, folder: Path, quick: bool = False, report: Callable[[str], None] = lambda line: None
) -> Fit:
    """Run :data:`PROBES` on this machine and fit to them. ``quick``: a quarter of the events, each once.

    ``spark``: a session in which nothing ran, so that its first run shows what a cold one takes; ``folder``: an empty
    one for the events and their warehouses. Two minutes or three, ``quick`` a third of it.
    """
    from spark_jobs.pipeline.planning.publication import publish_plan
    from spark_jobs.pipeline.run.interval import run

    seen: list[Observation] = []
    for number, probe in enumerate(PROBES):
        report(f"measuring {probe.name} ({number + 1} of {len(PROBES)})")
        stream = _generate(folder / f"events-{number}", max(1_000, probe.events // (4 if quick else 1)), probe.keys)
        workload = probe.workload(stream)
        rows = sum(split.rows or 0 for split in splits_of(stream))
        plan = build_plan(workload, {stream.name: Fraction(rows * SECOND, DAY)}, probe.algorithm, "measured")
        if number == 0:
            _compile(stream)
        for again in range(1 if quick else ROUNDS):
            warehouse = Warehouse.open(folder / f"warehouse-{number}-{again}")
            version, _ = publish_plan(warehouse, plan)
            at = (version, DAY_START, DAY_START + DAY)
            record = run(spark, warehouse, *at, f"run-{again}", as_of=DAY_START + 2 * DAY)
            # workers load the compiled code of what they do for the first time: that belongs to the session
            if again or quick or number == 0:
                seen.append(Observation(record.features, record.cpu_seconds))
    return fit(seen)


def _generate(folder: Path, events: int, keys: int) -> Stream:
    """A day of events in order of time, in a file for every worker of a small machine."""
    folder.mkdir()
    chance = np.random.default_rng(7)
    names = pa.array([f"S{key:03d}" for key in range(max(keys, 1))])
    files = 4 if events > 10_000 else 1
    for number in range(files):
        first, last = (DAY_START + DAY * part // files for part in (number, number + 1))
        rows = events // files
        table = pa.table(
            {
                "ts": pa.array(np.sort(chance.integers(first, last, rows))).cast(pa.timestamp("us", "UTC")),
                "symbol": names.take(pa.array(chance.integers(0, len(names), rows))),
                "price": chance.lognormal(3.0, 0.5, rows),
                "volume": chance.integers(1, 5000, rows),
            }
        )
        pq.write_table(table, folder / f"part-{number}.parquet")
    return _stream(folder)


def _stream(folder: Path) -> Stream:
    schema = (("ts", TIMESTAMP), ("symbol", STRING), ("price", DOUBLE), ("volume", LONG))
    return Stream("trades", Source("parquet", str(folder)), schema, "ts")


def _compile(stream: Stream) -> None:
    """Compile what lifts and combines before anything is measured: that is paid once a machine, not once a session."""
    window = "WINDOW RANGE '2 hours' SLIDE '1 hour' ON ts"
    statements = [f"-- name: q{number}\nSELECT {output} FROM trades {window};" for number, output in enumerate(OUTPUTS)]
    queries = parse("\n".join(statements), {stream.name: stream}).queries
    for synopsis, synopsis_queries in synopses_of(stream, queries).items():
        span = FillRequest(synopsis, DAY_START, DAY_START + DAY)
        columns = sorted(columns_of_synopsis(synopsis))
        events = [batch for split in splits_of(stream) for batch in read_split(stream, split, columns)]
        for _ in finals_of(partials_of(events, stream, [span]), synopsis, synopsis_queries, span.begin, span.end):
            pass
