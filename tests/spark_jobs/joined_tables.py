"""Tables of joined events, as tests compare them."""

from __future__ import annotations

import pyarrow as pa

from optimizer.workload.values import Stream
from spark_jobs.streams.sources.expressions import arrow_type


def in_order(table: pa.Table) -> list[list[str]]:
    """The rows of a table as texts, in an order of their own; times as numbers."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in table.itercolumns()
    ]
    return sorted(map(list, zip(*(map(str, column.to_pylist()) for column in columns), strict=True)))


def as_read(table: pa.Table, stream: Stream) -> pa.Table:
    """A table in the types of the stream's columns."""
    return table.cast(pa.schema([(name, arrow_type(stream.types[name])) for name in table.column_names]))
