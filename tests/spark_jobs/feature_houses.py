"""Warehouses with a few payments, for tests of features."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import heddle
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.values import LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse.warehouse import Warehouse

HOUR = 3_600_000_000
BEGIN = 1_772_323_200_000_000
"""2026-03-01T00:00:00Z."""

QUERY = """SELECT user, sum(amount) AS total, count(*) AS n, max(amount) AS high, count(DISTINCT amount) AS kinds,
  total / n AS mean FROM payments WINDOW RANGE '3 hours' SLIDE '1 hour' ON t GROUP BY user"""


def events_of(rows: Sequence[tuple[int, str | None, int]]) -> pa.Table:
    times = pa.array([BEGIN + at for at, _, _ in rows], pa.int64()).cast(pa.timestamp("us", "UTC"))
    users, amounts = [user for _, user, _ in rows], [amount for _, _, amount in rows]
    return pa.table({"t": times, "user": pa.array(users, pa.string()), "amount": pa.array(amounts, pa.int64())})


def labels_of(rows: Sequence[tuple[int, str | None]]) -> pa.Table:
    times = pa.array([BEGIN + at for at, _ in rows], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"at": times, "user": pa.array([user for _, user in rows], pa.string())})


def some_events(seed: int, count: int = 200) -> list[tuple[int, str | None, int]]:
    chance = random.Random(seed)
    users = ["a", "b", "c", None]
    return [
        (
            chance.randrange(24) * HOUR + chance.choice((0, 0, 1, -1, 1_800_000_000)),
            chance.choice(users),
            chance.randrange(9),
        )
        for _ in range(count)
    ]


ALL_LABELS = labels_of([(at * HOUR + by, user) for at in (0, 5, 23) for by in (0, 1) for user in ("a", None, "nobody")])


def house_with(folder: Path, events: Mapping[str, pa.Table], text: str, lateness: int = 300 * SECOND) -> heddle.House:
    """A warehouse with a query over the files of a stream ``payments``, by their names."""
    (folder / "payments").mkdir()
    for name, table in events.items():
        pq.write_table(table, folder / "payments" / f"{name}.parquet")
    schema = (("t", TIMESTAMP), ("user", STRING), ("amount", LONG))
    stream = Stream("payments", Source("parquet", str(folder / "payments")), schema, "t", lateness=lateness)
    parsed = parse(f"-- name: q\n{text}", {"payments": stream})
    assert not parsed.errors, parsed.errors
    warehouse = Warehouse.open(folder / "house")
    publish_plan(warehouse, build_plan(Workload(parsed.queries, (stream,)), {"payments": Fraction(1)}, "shared"))
    return heddle.open(folder / "house")
