"""Queries with filters over one stream, and samples of its events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optimizer.synopses.sharing import Profile
from optimizer.workload.values import (
    ACQ,
    DOUBLE,
    LONG,
    SECOND,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Expression,
    Literal,
    Output,
    Source,
    Stream,
    Window,
)

SCHEMA = (("ts", TIMESTAMP), ("a", STRING), ("b", STRING), ("price", DOUBLE))
STREAM = Stream("trades", Source("parquet", "/nowhere"), SCHEMA, "ts")


def above(price: float) -> Expression:
    return Call(">", (Column("price"), Literal(price, DOUBLE)))


def query(name: str, filter: Expression | None = None, *columns: str, seconds: int = 60) -> ACQ:
    count = Output("n", "count", None, None, LONG)
    window = Window(seconds * SECOND, seconds * SECOND)
    return ACQ(name, "trades", window, (count,), filter, tuple((column, STRING) for column in columns))


def sample(prices: Sequence[float], a: Sequence[int], b: Sequence[int], thresholds: Sequence[float] = ()) -> Profile:
    times = np.arange(len(prices), dtype=np.int64) * SECOND
    values = np.array(prices)
    columns = {"a": np.array(a, dtype=np.int64), "b": np.array(b, dtype=np.int64)}
    return Profile(times, columns, {above(limit): values > limit for limit in thresholds}, 1.0)
