"""Rows of answers as a run stages them, right ones and with changes, in files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.workload.values import (
    ACQ,
    DOUBLE,
    LONG,
    STRING,
    Column,
    Output,
    Window,
)
from spark_jobs.store.warehouse.schemas import RESULTS

HOUR = 3_600_000_000
NOON = datetime(2013, 7, 1, 12, tzinfo=UTC)
BEGIN = int(NOON.timestamp()) * 1_000_000
PRICE, VOLUME, LATE = Column("price"), Column("volume"), Column("late")
QUERY = ACQ(
    "q",
    "trades",
    Window(2 * HOUR, HOUR),
    (
        Output("n", "count", None, None, LONG),
        Output("low", "min", PRICE, DOUBLE, DOUBLE),
        Output("mean", "avg", PRICE, DOUBLE, DOUBLE),
        Output("high", "max", PRICE, DOUBLE, DOUBLE),
    ),
    group_by=(("symbol", STRING),),
    select=("symbol",),
)
SCHEMA = pa.schema([pa.field(column.name, column.type) for column in RESULTS if column.name != "day"])


def answer(hour: int, symbol: str | None, **changes: Any) -> dict[str, Any]:
    """An answer whose window starts so many hours after noon; ``key`` may be a list."""
    start = NOON + timedelta(hours=hour)
    end = start + timedelta(hours=2)
    row = {
        **{"stream": "trades", "query": "q", "window_start": start, "window_end": end, "instant": end},
        **{"position": None, "key": "[null]" if symbol is None else f'["{symbol}"]'},
        **{"longs": [3], "doubles": [1.0, 2.0, 3.0], "texts": [], "error": None},
        **{"plan_version": 1, "revision": 1, "run_id": "r"},
    }
    return row | changes


def written(folder: Path, rows: Sequence[dict[str, Any]], size: int = 100, schema: pa.Schema = SCHEMA) -> str:
    path = folder / "day=2013-07-01" / "part.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema), path, row_group_size=size)
    return str(path)
