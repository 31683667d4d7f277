"""Values of answers as text: parsed from parameters and JSON, written as JSON, without losing a digit.

=========  ======================================================================================================
integer    a number; beyond 2^53 - 1, from where on many readers of JSON round, a string of digits
double     a number; ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, for which JSON has no number
decimal    a string with all digits of its scale
instant    a string, ISO 8601 in UTC: ``"2013-07-01T00:00:00Z"``
date       a string: ``"2013-07-01"``
bytes      a string, in base64
=========  ======================================================================================================
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import format_instant
from optimizer.workload.values import Type
from spark_jobs.results.relations import RelationColumn
from spark_jobs.streams.sources.decoding import parse_instant
from spark_jobs.streams.sources.expressions import arrow_type

UNUSABLE = "HDL-630"

EXACT = (1 << 53) - 1
"""The largest integer that every reader of JSON takes as it is."""

_NO_NUMBER = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

_WRITTEN = {
    "boolean": "true or false",
    "long": "a whole number of 64 bits",
    "double": "a number, NaN, Infinity or -Infinity",
    "string": "a text",
    "date": "a date: 2013-07-01",
    "timestamp": "an instant: 2013-07-01T00:00:00Z",
    "binary": "bytes in base64",
}


def written_as(type: Type) -> str:
    """Description of how a value of a type is written."""
    if type.name == "decimal":
        return f"a decimal of at most {type.precision} digits, {type.scale} of them after the point"
    return _WRITTEN[type.name]


# ------------------------------------------------------------------------------------------------- parsing
def parse_value(text: str, column: RelationColumn) -> Any:
    """The value that a text gives a column, as Arrow takes it. Raises HDL-630."""
    try:
        return _PARSERS[column.type.name](text, column.type)
    except (ValueError, ArithmeticError, HeddleError):
        raise unusable_value(column, text) from None


def parse_json_values(values: Sequence[Any], column: RelationColumn) -> pa.Array:
    """The values (n,) of a JSON document, null among them, as a column has them. Raises HDL-630."""
    target = arrow_type(column.type)
    if column.type.name != "string":
        return pa.array([_parse_json_value(value, column) for value in values], target)
    for value in values:
        if value is not None and not isinstance(value, str):
            raise unusable_value(column, value)
    try:
        return pa.array(values, target)
    except UnicodeEncodeError as error:
        raise unusable_value(column, error.object) from None


def _parse_json_value(value: Any, column: RelationColumn) -> Any:
    if value is None:
        return None
    if isinstance(value, str):
        return parse_value(value, column)
    name = column.type.name
    if isinstance(value, bool):
        if name == "boolean":
            return value
    elif name in ("long", "double", "decimal") and isinstance(value, int):
        return parse_value(str(value), column)
    elif name == "double" and isinstance(value, float) and math.isfinite(value):
        return value
    raise unusable_value(column, value)


def unusable_value(column: RelationColumn, value: Any) -> HeddleError:
    """HDL-630 for a value that a column cannot have."""
    return HeddleError(UNUSABLE, f"{column.name} is {str(value)[:80]!r}", f"write {written_as(column.type)}")


def _long(text: str, type: Type) -> int:
    if not re.fullmatch(r"-?\d{1,19}", text, re.ASCII) or not -(1 << 63) <= int(text) < 1 << 63:
        raise ValueError
    return int(text)


def _double(text: str, type: Type) -> float:
    if text in _NO_NUMBER:
        return _NO_NUMBER[text]
    if not re.fullmatch(r"[+-]?(\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,4})?", text, re.ASCII):
        raise ValueError
    number = float(text)
    if math.isinf(number):
        raise ValueError
    return number


def _decimal(text: str, type: Type) -> Decimal:
    if not re.fullmatch(r"-?\d{1,38}(\.\d{1,38})?", text, re.ASCII):
        raise ValueError
    integer, _, fraction = text.lstrip("-").partition(".")
    if len(integer.lstrip("0")) > type.precision - type.scale or len(fraction.rstrip("0")) > type.scale:
        raise ValueError
    sign = "-" if text.startswith("-") else ""
    return Decimal(f"{sign}{integer}.{fraction[: type.scale].ljust(type.scale, '0')}")


def _boolean(text: str, type: Type) -> bool:
    return {"true": True, "false": False}[text] if text in ("true", "false") else _refuse()


def _text(text: str, type: Type) -> str:
    # halves of characters, which JSON can name and no column has
    text.encode()
    return text


def _date(text: str, type: Type) -> date:
    return date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else _refuse()


def _bytes(text: str, type: Type) -> bytes:
    return base64.b64decode(text, validate=True)


def _refuse() -> Any:
    raise ValueError


_PARSERS: Mapping[str, Callable[[str, Type], Any]] = {
    "boolean": _boolean,
    "long": _long,
    "double": _double,
    "decimal": _decimal,
    "string": _text,
    "date": _date,
    "timestamp": lambda text, type: parse_instant(text),
    "binary": _bytes,
}


# ------------------------------------------------------------------------------------------------- writing
_EPOCH = date(1970, 1, 1).toordinal()


def json_rows(columns: Sequence[RelationColumn], rows: pa.Table) -> Iterable[str]:
    """The rows as JSON objects, each with every column of ``columns``; ``null`` for a row of nulls alone."""
    cells = [_cells(rows[column.name], column.type) for column in columns]
    template = "{" + ",".join(json.dumps(column.name).replace("%", "%%") + ":%s" for column in columns) + "}"
    nothing = ("null",) * len(columns)
    return ("null" if row == nothing else template % row for row in zip(*cells, strict=True))


def _cells(column: pa.ChunkedArray, type: Type) -> list[str]:
    """The values of a column, each as JSON."""
    if type.name in ("timestamp", "date"):
        # few of them are different
        integers = column.cast(pa.int64() if type.name == "timestamp" else pa.int32()).to_pylist()
        texts = {value: _WRITERS[type.name](value) for value in set(integers) if value is not None}
        return ["null" if value is None else texts[value] for value in integers]
    if column.null_count == len(column):
        return ["null"] * len(column)
    # of thousands of numbers, those that JSON cannot have are looked for at once
    if type.name == "long":
        is_plain = pc.min(column).as_py() >= -EXACT and pc.max(column).as_py() <= EXACT
    else:
        is_plain = type.name == "double" and pc.all(pc.is_finite(column)).as_py()
    write = repr if is_plain else _WRITERS[type.name]
    values = column.to_pylist()
    if not column.null_count:
        return [*map(write, values)]
    return ["null" if value is None else write(value) for value in values]


def _json_long(value: int) -> str:
    return str(value) if -EXACT <= value <= EXACT else f'"{value}"'


def _json_double(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'


@cache
def _json_boolean(value: bool) -> str:
    return "true" if value else "false"


_WRITERS: Mapping[str, Callable[[Any], str]] = {
    "boolean": _json_boolean,
    "long": _json_long,
    "double": _json_double,
    "decimal": lambda value: f'"{value:f}"',
    "string": encode_basestring_ascii,
    "date": lambda value: f'"{date.fromordinal(_EPOCH + value).isoformat()}"',
    "timestamp": lambda value: f'"{format_instant(value)}"',
    "binary": lambda value: f'"{base64.b64encode(value).decode()}"',
}


def arrow_stream(rows: pa.Table, metadata: Mapping[str, str]) -> bytes:
    """Rows as a stream of Arrow's IPC format; ``metadata``: of its schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema.with_metadata(dict(metadata))) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())
