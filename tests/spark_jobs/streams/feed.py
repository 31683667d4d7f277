"""A stream of files that come one by one, and what runs are to take in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.values import LONG, Source, Stream, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.schemas import micros
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests import oracle
from tests.spark_jobs.laboratory import DAY, MINUTE, QUERIES, SCHEMA, Event, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 60 * MINUTE
LATER = DAY + 30 * 24 * HOUR


class Feed:
    """A stream of files in a folder, each with the moment at which it came (minutes), and what ought to be taken in."""

    def __init__(self, spark: SparkSession | None, folder: Path, format: str = "parquet", **options: Any) -> None:
        self.spark, self.folder, self.format = spark, folder / "trades", format
        self.folder.mkdir()
        if spark is None:  # nothing is run: a folder is enough
            self.warehouse = Warehouse(Place.of(folder))
        else:
            self.warehouse = Warehouse.open(folder / "warehouse")
        self.schema = (*SCHEMA, ("id", LONG))
        self.stream = Stream("trades", Source(format, str(self.folder)), self.schema, "ts", **options)
        self.files: dict[str, pa.Table] = {}

    def write(self, name: str, events: Sequence[Event], came: float, ids: Sequence[int | None] = ()) -> Path:
        table = table_of(events)
        numbers = [*ids, *range(10_000 + 100 * len(self.files), 20_000)][: len(events)]
        table = table.append_column("id", pa.array(numbers, pa.int64()))
        path = self.folder / f"{name}.{self.format}"
        if self.format == "csv":
            pcsv.write_csv(table, path)
        else:
            pq.write_table(table, path, row_group_size=3)
        os.utime(path, (0, (DAY + came * MINUTE) / 1e6))
        self.files[name] = table
        return path

    def plan(self, text: str = QUERIES) -> int:
        parsed = parse(text, {"trades": self.stream})
        assert not parsed.diagnostics
        built_plan = build_plan(Workload(parsed.queries, (self.stream,)), {"trades": Fraction(1)}, "weave-share")
        return publish_plan(self.warehouse, built_plan)[0]

    def run(self, version: int, begin: float, end: float, run_id: str, clock: int = LATER) -> RunRecord:
        first, last = round(DAY + begin * MINUTE), round(DAY + end * MINUTE)
        assert self.spark is not None
        return run(self.spark, self.warehouse, version, first, last, run_id, as_of=clock)

    def wrong(self, version: int, begin: float, end: float, taken: pa.Table) -> list[str]:
        """What differs from the oracle's answers over the events that are taken in."""
        from spark_jobs.results.read import read

        differences = []
        for query in load_plan(self.warehouse, version).workload.queries:
            low, high = round(DAY + begin * MINUTE), round(DAY + end * MINUTE)
            expected = oracle.answers(query, taken, "ts", low, high)
            differences += [
                f"{query.name}: {line}" for line in oracle.compare(query, read(self.warehouse, query.name), expected)
            ]
        return differences

    def revised(self, begin: float, end: float, revision: int) -> set[tuple[str, float]]:
        """The windows (query, end in minutes) of an interval that a revision answers."""
        rows = self.warehouse.rows("results", ["query", "instant", "revision"])
        ends = {(row["query"], (micros(row["instant"]) - DAY) / MINUTE) for row in rows if row["revision"] == revision}
        return {(query, at) for query, at in ends if begin < at <= end}

    def all(self) -> pa.Table:
        """All events, in the order of the files' names: as a run meets them."""
        return pa.concat_tables([self.files[name] for name in sorted(self.files)])
