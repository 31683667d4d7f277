"""Two warehouses over one source: one opens all files, one only those that a run needs."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.pipeline.run.preparation import listed, prepare
from spark_jobs.pipeline.run.values import RunRequest
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests.spark_jobs.laboratory import DAY, MINUTE

HOURS = 60 * MINUTE
SCHEMA = (("ts", TIMESTAMP), ("symbol", STRING), ("volume", LONG), ("id", LONG))
QUERIES = """
-- name: short
SELECT symbol, sum(volume) FROM trades WINDOW RANGE '3 hours' SLIDE '1 hour' ON ts GROUP BY symbol;
-- name: long
SELECT count(*) FROM trades WINDOW RANGE '1 day' SLIDE '6 hours' ON ts;
"""
CLOCK = 400 * DAY


def events(first: int, last: int, number: int) -> pa.Table:
    """Events of the hours [first, last), of which some have no time or repeat an id."""
    chance = np.random.default_rng(number)
    hours = [*range(first, last)]
    return pa.table(
        {
            "ts": pa.array([DAY + hour * HOURS + number for hour in hours], pa.timestamp("us", tz="UTC")),
            "symbol": ["AB"[hour % 2] for hour in hours],
            "volume": chance.integers(0, 9, len(hours)),
            "id": chance.integers(0, 50, len(hours)),
        }
    )


class Twins:
    """One source, and two warehouses over it: one opens all files, one those that a run needs."""

    def __init__(self, folder: Path, format: str, **options: Any) -> None:
        self.folder, self.format, self.count = folder / "trades", format, 0
        self.stream = Stream("trades", Source(format, str(self.folder)), SCHEMA, "ts", **options)
        self.every, self.needed = (Warehouse.open(folder / name) for name in ("every", "needed"))
        parsed = parse(QUERIES, {"trades": self.stream})
        self.plan: SharingPlan = build_plan(
            Workload(parsed.queries, (self.stream,)), {"trades": Fraction(1)}, "weave-share"
        )

    def path(self, name: int) -> Path:
        # some in a folder, and names whose order as texts is not that of their parts
        return self.folder / ("", "a", "a-b")[name % 3] / f"{name}.{self.format}"

    def write(self, name: int, first: int, hours: int, keeps: bool = False) -> None:
        """A file with events; ``keeps``: by the time of modification that one in its place has."""
        self.count += 1
        rows = events(first, first + hours, self.count)
        if self.format == "delta":
            write_deltalake(str(self.folder), rows, mode="append")
            return
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.stat() if path.exists() else None
        if self.format == "csv":
            pcsv.write_csv(rows, path)
        else:
            pq.write_table(rows, path, row_group_size=5)
        if before is not None and keeps:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def change(self, step: str, name: int, other: int) -> None:
        """What is done to a file that is there."""
        if self.format == "delta":
            table = DeltaTable(str(self.folder))
            if step == "remove":
                table.delete(f"id = {name}")
            elif step == "swap":
                table.optimize.compact()
            return
        path, to = self.path(name), self.path(other)
        if not path.exists():
            return
        if step == "remove":
            path.unlink()
        elif step == "touch":
            path.touch()
        else:
            to.parent.mkdir(parents=True, exist_ok=True)
            path.replace(to)

    def look(self, begin: int, end: int) -> tuple[Any, Any]:
        """What both take in for a run over some hours, and what they note."""
        outcomes = []
        for house, within in ((self.every, None), (self.needed, (DAY + begin * HOURS, DAY + end * HOURS))):
            first, last = DAY + begin * HOURS, DAY + end * HOURS
            listing = listed(house, self.plan, CLOCK, "a run", within=within)
            prepared = prepare(house, self.plan, RunRequest(1, first, last, "a run", CLOCK), listing)
            noted = [
                (
                    arrival.identity,
                    arrival.event,
                    arrival.begin,
                    arrival.end,
                    arrival.refused,
                    arrival.stamps,
                    len(arrival.moves),
                )
                for arrival in listing.arrivals.get("trades", {}).values()
            ]
            codes = [problem["code"] for problem in listing.problems]
            arrivals = listing.arrivals.get("trades")
            extent = None if arrivals is None else arrivals.extent
            outcomes.append((prepared.content, prepared.failed, codes, sorted(noted), extent, prepared.repeated))
        return outcomes[0], outcomes[1]
