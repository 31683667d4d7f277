"""Answers as CSV, JSON and Parquet, as people and programs read them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def encoded(table: pa.Table, query: str, format: str, more: Mapping[str, Any] | None = None) -> bytes:
    """Answers as ``csv``, ``parquet`` or ``json``; ``more``: further keys of the JSON object."""
    import io

    import pyarrow.csv as pcsv
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    if format == "csv":
        pcsv.write_csv(csv_table(table), sink)
    elif format == "parquet":
        pq.write_table(table, sink)
    else:
        rows = [{name: plain_value(value) for name, value in row.items()} for row in table.to_pylist()]
        data = {"format_version": 1, "query": query, "columns": table.schema.names, **(more or {}), "rows": rows}
        sink.write((json.dumps(data, indent=1) + "\n").encode())
    return sink.getvalue()


def csv_table(table: pa.Table) -> pa.Table:
    """The values of a table as CSV has them."""
    return _with_iso_times(_flat(table))


def _flat(table: pa.Table) -> pa.Table:
    """Lists, structures and spans of time, which SQL may give, as texts."""
    import pyarrow as pa

    for at, field in enumerate(table.schema):
        if pa.types.is_nested(field.type) or pa.types.is_interval(field.type) or pa.types.is_binary(field.type):
            texts = [None if value is None else str(plain_value(value)) for value in table.column(at).to_pylist()]
            table = table.set_column(at, field.name, pa.array(texts, pa.string()))
    return table


def _with_iso_times(table: pa.Table) -> pa.Table:
    """Instants as JSON has them: ``2013-07-01T12:00:00Z``, with a fraction where a column has one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            times = table.column(at).cast(pa.timestamp("us"))
            in_seconds = pc.all(pc.equal(times, pc.floor_temporal(times, unit="second"))).as_py() is not False
            texts = pc.strftime(times.cast(pa.timestamp("s")) if in_seconds else times, format="%Y-%m-%dT%H:%M:%SZ")
            table = table.set_column(at, field.name, texts)
    return table


def plain_value(value: Any) -> Any:
    """A value as JSON has it: instants in ISO 8601, decimals and non-finite doubles as text, bytes in base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if hasattr(value, "isoformat"):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {name: plain_value(item) for name, item in value.items()}
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
