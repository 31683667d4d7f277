"""A small world for tests of whole runs: sources, a workload in text, a warehouse, and the oracle beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.values import DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.engine.choice import Engine
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run import history
from spark_jobs.pipeline.run.history import Outdated
from spark_jobs.pipeline.run.interval import run
from spark_jobs.results.read import read
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests import oracle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60_000_000
DAY = 1_372_636_800_000_000
"""2013-07-01T00:00:00Z: all times of these tests are minutes after it."""

SCHEMA = (("ts", TIMESTAMP), ("symbol", STRING), ("price", DOUBLE), ("volume", LONG))
ARROW = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("symbol", pa.string()), ("price", pa.float64()), ("volume", pa.int64())]
)

Event = tuple[float | None, str | None, float | None, int | None]
"""(minute, symbol, price, volume)"""

QUERIES = """
-- name: by_symbol
SELECT symbol, count(*) AS n, sum(volume) AS total, avg(price) AS mean, min(price) AS low, max(price) AS high
FROM trades WINDOW RANGE '25 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;
-- name: all
SELECT count(price) AS priced, stddev(price) AS spread, sum(price) AS money
FROM trades WINDOW RANGE '40 minutes' SLIDE '15 minutes' ON ts WHERE volume > 0;
"""


def serve_commands(engine: Any, patch: pytest.MonkeyPatch) -> None:
    """Let the commands of this process run on the engine of the tests, which they do not stop.

    ``engine``: an :class:`Engine`, whose place the local engine takes, or the Spark session of all tests.
    """
    is_local = isinstance(engine, Engine)
    patch.setenv("HEDDLE_ENGINE", "local" if is_local else "spark")
    if not is_local:
        context = engine.sparkContext
        patch.setattr("spark_jobs.engine.session.start_context", lambda name, **options: context)
        for started in (engine, context):
            patch.setattr(type(started), "stop", lambda self: None)


def steady(minutes: int = 120, first: int = 0) -> list[Event]:
    """An event every minute, two symbols in turn."""
    return [
        (minute, "AB"[minute % 2], 100 + (minute * 37 % 11) / 10, minute * 7 % 13)
        for minute in range(first, first + minutes)
    ]


def table_of(events: Sequence[Event]) -> pa.Table:
    """Events as a stream's source has them."""
    rows = [
        {"ts": None if at is None else round(DAY + at * MINUTE), "symbol": who, "price": price, "volume": volume}
        for at, who, price, volume in events
    ]
    return pa.Table.from_pylist(rows, ARROW)


@dataclass
class Laboratory:
    """``folder`` holds one Parquet file a stream (trades, quotes) and a warehouse."""

    spark: SparkSession
    folder: Path
    events: dict[str, pa.Table] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.warehouse = Warehouse.open(self.folder / "warehouse")

    def source(self, stream: str = "trades") -> Path:
        return self.folder / f"{stream}.parquet"

    def write(self, events: Sequence[Event], stream: str = "trades") -> None:
        self.events[stream] = table_of(events)
        pq.write_table(self.events[stream], self.source(stream))

    def plan(self, text: str = QUERIES, algorithm: str = "weave-share") -> int:
        streams = {
            name: Stream(name, Source("parquet", str(self.source(name))), SCHEMA, "ts") for name in ("trades", "quotes")
        }
        parsed = parse(text, streams)
        assert not [problem for problem in parsed.diagnostics if problem.severity == "error"]
        workload = Workload(parsed.queries, tuple(streams.values()))
        sharing_plan = build_plan(workload, dict.fromkeys(streams, Fraction(1)), algorithm)
        return publish_plan(self.warehouse, sharing_plan)[0]

    def run(self, version: int, begin: float, end: float, run_id: str = "run", **options: Any) -> RunRecord:
        """A run over [begin, end), in minutes."""
        first, last = round(DAY + begin * MINUTE), round(DAY + end * MINUTE)
        return run(self.spark, self.warehouse, version, first, last, run_id, **options)

    def wrong(
        self, version: int, begin: float, end: float, refreshed: Mapping[str, Sequence[int]] | None = None
    ) -> list[str]:
        """What differs between all that is published and the oracle's answers for [begin, end); of the queries in
        ``refreshed``, for these minutes alone."""
        differences = []
        for query in load_plan(self.warehouse, version).workload.queries:
            if refreshed is not None and query.name in refreshed:
                query = oracle.asked_at(query, [DAY + minute * MINUTE for minute in refreshed[query.name]])
            expected = oracle.answers(
                query, self.events[query.stream], "ts", round(DAY + begin * MINUTE), round(DAY + end * MINUTE)
            )
            lines = oracle.compare(query, read(self.warehouse, query.name), expected)
            differences += [f"{query.name}: {line}" for line in lines]
        return differences

    def rows(self, query: str) -> list[dict[str, Any]]:
        answer_rows: list[dict[str, Any]] = read(self.warehouse, query).to_pylist()
        return answer_rows

    def versions(self) -> dict[str, int]:
        return {name: self.warehouse.version(name) for name in ("results", "partials", "publish_log")}

    def log(self, event: str) -> list[dict[str, Any]]:
        return [row for row in self.warehouse.rows("publish_log") if row["event"] == event]


def outdated(warehouse: Warehouse, clock: int) -> list[Outdated]:
    """What is outdated, as it is found: of those publications alone that are in doubt. So it is if all are."""
    outdated_publications = history.outdated(warehouse, clock)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "_in_doubt", lambda warehouse, known, *arguments: np.arange(len(known.at)))
        assert history.outdated(warehouse, clock) == outdated_publications
    return outdated_publications
