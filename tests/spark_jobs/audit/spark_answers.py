"""Rows that Spark recomputes without sharing, typed as published answers."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.workload.values import (
    ACQ,
)
from tests.oracle import arrow_type, column_names


def as_answers(query: ACQ, rows: pa.Table, begin: int, end: int) -> pa.Table:
    """Spark's rows as results are typed: those of the instants in (begin, end], narrow integers widened."""
    instants = pc.add(pc.cast(rows["window_end"], pa.int64()), query.window.ago)
    rows = rows.filter(pc.and_(pc.greater(instants, begin), pc.less_equal(instants, end)))
    instant = pa.timestamp("us", "UTC")
    types = [instant, instant, *(arrow_type(type) for _, type in query.group_by)]
    types += [arrow_type(output.type) for output in query.outputs]
    return rows.cast(pa.schema(list(zip(column_names(query), types, strict=True))))
