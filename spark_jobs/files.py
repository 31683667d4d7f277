"""Data files of the partials and results tables: written by tasks, committed by the driver.

A task writes Parquet files into the table's folder, where no reader sees them until one Delta commit names them, and
sends only their descriptions to the driver. So rows cross neither into the JVM nor through a shuffle: partial rows are
laid out in *buckets* of group keys, one row group a bucket, and the task that answers some buckets reads just those.
"""

from __future__ import annotations

import json
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

BUCKETS = 64
"""Buckets of group keys: the most tasks that can answer one run."""

ROW_GROUP = 1 << 17
"""Rows of a row group of a results file."""

REPEATED = [
    *("query", "stream", "fingerprint", "key", "key.list.element", "window_start", "window_end"),
    *("plan_version", "revision", "run_id", "error"),
]
"""Columns that hold few distinct values a row group; the others are not worth a dictionary."""

DESCRIPTION = pa.schema([pa.field("file", pa.string(), nullable=False)])
"""What a task returns: one JSON text a file."""


@dataclass(frozen=True)
class DataFile:
    """A written data file: ``path`` relative to its table, ``day`` its partition, ``size`` in bytes, ``rows``;
    ``stats`` Delta's statistics as JSON."""

    path: str
    day: str
    size: int
    rows: int
    stats: str

    def describe(self) -> pa.RecordBatch:
        """The description that a task returns."""
        return pa.RecordBatch.from_arrays([pa.array([json.dumps(asdict(self))])], schema=DESCRIPTION)

    @classmethod
    def of(cls, description: str) -> DataFile:
        return cls(**json.loads(description))


def bucket_of(keys: Sequence[str]) -> NDArray[np.int32]:
    """Bucket (n,) of each group key: the same for ever, whatever wrote it."""
    return np.array([zlib.crc32(key.encode()) % BUCKETS for key in keys], dtype=np.int32)


def write_files(root: str | Path, rows: pa.Table) -> Iterator[DataFile]:
    """Write rows as one file a day under a table's folder; nothing for no rows.

    ``rows`` has the table's columns, ``day`` among them; where it has a ``bucket`` every row group holds one.
    """
    days = pc.unique(rows["day"]).sort().to_pylist()
    for day in days:
        part = (rows if len(days) == 1 else rows.filter(pc.equal(rows["day"], day))).drop_columns("day")
        path = f"day={day}/part-{uuid.uuid4().hex}.parquet"
        file = Path(root) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(file, part.schema, compression="snappy", use_dictionary=REPEATED) as writer:
            for group in _row_groups(part):
                writer.write_table(group, row_group_size=len(group))
        yield DataFile(path, day, file.stat().st_size, len(part), _statistics(part))


def _row_groups(part: pa.Table) -> Iterator[pa.Table]:
    if "bucket" not in part.schema.names:
        for first in range(0, len(part), ROW_GROUP):
            yield part.slice(first, ROW_GROUP)
        return
    buckets = part["bucket"].to_numpy()
    order = np.argsort(buckets, kind="stable")
    part = part.take(pa.array(order))
    cuts = np.flatnonzero(np.diff(buckets[order])) + 1
    for first, last in zip([0, *cuts], [*cuts, len(part)], strict=True):
        yield part.slice(first, last - first)


def _statistics(part: pa.Table) -> str:
    # of every plain column or readers go wrong: delta-rs takes one without a null count for one without nulls, and
    # one without bounds, beside others that have them, for one that no value can match
    plain = [field.name for field in part.schema if not pa.types.is_nested(field.type)]
    found = {name: pc.min_max(part[name]).as_py() for name in plain}
    return json.dumps(
        {
            "numRecords": len(part),
            "minValues": {name: _plain(bounds["min"]) for name, bounds in found.items()},
            "maxValues": {name: _plain(bounds["max"]) for name, bounds in found.items()},
            "nullCount": {name: part[name].null_count for name in plain},
        }
    )


def _plain(value: Any) -> Any:
    return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ") if hasattr(value, "strftime") else value


def read_buckets(paths: Iterable[str], buckets: set[int], columns: list[str] | None = None) -> Iterator[pa.Table]:
    """The row groups of some buckets in some files of partials."""
    for path in paths:
        file = pq.ParquetFile(path, memory_map=True)
        at = file.schema_arrow.names.index("bucket")
        groups = [
            index
            for index in range(file.metadata.num_row_groups)
            if file.metadata.row_group(index).column(at).statistics.min in buckets
        ]
        if groups:
            yield file.read_row_groups(groups, columns=columns, use_threads=False)


def now_millis() -> int:
    """The clock in milliseconds, as Delta's log has it."""
    return time.time_ns() // 1_000_000
