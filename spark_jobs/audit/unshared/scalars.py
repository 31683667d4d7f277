"""Functions of single values as Spark columns, made of typed values and constants of ours.

Texts are cast where they have the form that the language prescribes, so that Spark's own liberties (``1d`` is a double
there) do not matter. Regular expressions run in RE2: Java's need exponential time for some of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from optimizer.workload.patterns import readable_pattern
from optimizer.workload.scalars import time_format
from optimizer.workload.types import as_decimal
from optimizer.workload.values import DOUBLE, Type, decimal

Scalar = Callable[[list[SparkColumn], Sequence[Type], Type, list[Any]], SparkColumn]

BEYOND = 2.0**63

_BLANK = r"[\x00-\x20\x7f]*"
_TEXTS = {
    "long": r"[+-]?[0-9]{1,40}",
    "decimal": r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?",
    "double": r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?|[+-]?(?i:inf|infinity)|(?i:nan)",
    "date": r"(?s)[0-9]{4}(-[0-9]{1,2}(-[0-9]{1,2}([ T].*)?)?)?",
    "timestamp": r"[0-9]{4}(-[0-9]{1,2}(-[0-9]{1,2}([ T][0-9]{1,2}:[0-9]{1,2}(:[0-9]{1,2}(\.[0-9]{0,9})?)?"
    r"\s?(Z|UTC|[+-][0-9]{1,2}:[0-9]{2})?)?)?)?",
}
"""Pattern of the texts that become a value, by type."""


def ddl_of(type: Type) -> str:
    """A type as Spark's DDL writes it."""
    return "bigint" if type.name == "long" else str(type)


def _conditional(columns: list[SparkColumn], types: Sequence[Type], result: Type, constants: list[Any]) -> SparkColumn:
    *pairs, last = columns
    values = [column.cast(ddl_of(result)) for column in (*pairs[1::2], last)]
    chosen = F.when(pairs[0], values[0])
    for condition, value in zip(pairs[2::2], values[1:-1], strict=True):
        chosen = chosen.when(condition, value)
    return chosen.otherwise(values[-1])


def _within(column: SparkColumn) -> SparkColumn:
    """A double that 64 bits can hold as an integer."""
    return F.when((column >= -BEYOND) & (column < BEYOND), column)


def _cast(columns: list[SparkColumn], types: Sequence[Type], result: Type, constants: list[Any]) -> SparkColumn:
    column, type = columns[0], types[0]
    if type == result:
        return column
    if type.name == "string" and result.name in _TEXTS:
        column = F.when(column.rlike(rf"\A{_BLANK}({_TEXTS[result.name]}){_BLANK}\z"), F.trim(column))
    elif type == DOUBLE and result.name == "long":
        column = _within(column)
    elif (type.name, result.name) == ("long", "timestamp"):
        column = F.when(column.between(-62_135_596_800, 253_402_300_799), column)
    elif type.name in ("date", "timestamp") and result.name == "string":
        column = F.when(F.year(column).between(1, 9999), column)
    converted = column.try_cast(str(result)).cast(ddl_of(result))
    if (type.name, result.name) == ("string", "timestamp"):
        # another zone's last year may be over in UTC
        converted = F.when(F.year(converted).between(1, 9999), converted)
    return converted


_FIELDS: dict[str, Callable[[SparkColumn], SparkColumn]] = {
    "year": F.year,
    "quarter": F.quarter,
    "month": F.month,
    "week": F.weekofyear,
    "day": F.dayofmonth,
    "dayofweek": F.dayofweek,
    "weekday": F.weekday,
    "dayofyear": F.dayofyear,
    "hour": F.hour,
    "minute": F.minute,
    "whole second": F.second,
    "second": lambda column: F.date_part(F.lit("second"), column.cast("timestamp")),
}


def _difference(columns: list[SparkColumn], types: Sequence[Type], result: Type, constants: list[Any]) -> SparkColumn:
    begin, end = (column.cast("timestamp") for column in columns)
    exact = [F.unix_micros(column).cast("decimal(20,0)") for column in (begin, end)]
    fits = (exact[1] - exact[0]).between(F.lit(-(2**63)).cast("decimal(21,0)"), F.lit(2**63 - 1).cast("decimal(21,0)"))
    return F.when(fits, F.timestamp_diff(constants[0], begin, end))


def _parsed(columns: list[SparkColumn], types: Sequence[Type], result: Type, constants: list[Any]) -> SparkColumn:
    form = re.sub(r"\(\?P<\w>", "(", time_format(constants[0]).pattern).replace(r"\d", "[0-9]")
    text = F.when(columns[0].rlike(rf"\A{form}\z"), columns[0])
    moment = F.try_to_timestamp(text, F.lit(constants[0])).cast(ddl_of(result))
    # Spark has a year 0
    return F.when(F.year(moment) >= 1, moment)


def _matched(columns: list[SparkColumn], types: Sequence[Type], result: Type, constants: list[Any]) -> SparkColumn:
    pattern = readable_pattern(constants[0])

    def matches(texts: pa.Array) -> pa.Array:
        return pc.match_substring_regex(texts, pattern)

    return F.arrow_udf(matches, "boolean")(columns[0])  # type: ignore[call-overload]


def _rounded(columns: list[SparkColumn], types: Sequence[Type], result: Type, constants: list[Any]) -> SparkColumn:
    column, type, places = columns[0], types[0], constants[0]
    if type == DOUBLE:
        return F.round(column, places)
    if places >= type.scale:
        return column
    exact = column.cast(ddl_of(decimal(*_digits(type))))
    # so large a unit that it has more digits than a decimal
    if -places >= 38:
        return F.when(column.isNotNull(), F.lit(0)).cast(ddl_of(result))
    return F.round(exact, places).cast(ddl_of(result))


def _digits(type: Type) -> tuple[int, int]:
    integer_digits, scale = as_decimal(type)
    return integer_digits + scale, scale


def _whole(change: Callable[[SparkColumn], SparkColumn]) -> Scalar:
    def column(columns: list[SparkColumn], types: Sequence[Type], result: Type, constants: list[Any]) -> SparkColumn:
        value = _within(columns[0]) if types[0] == DOUBLE else columns[0]
        return change(value).cast(ddl_of(result))

    return column


def _rest(columns: list[SparkColumn], types: Sequence[Type], result: Type, constants: list[Any]) -> SparkColumn:
    if result == DOUBLE:
        columns = [column.cast("double") for column in columns]
    return F.try_mod(*columns).cast(ddl_of(result))


def _of_doubles(function: Callable[..., SparkColumn]) -> Scalar:
    return lambda columns, types, result, constants: function(*(column.cast("double") for column in columns))


def _plain(function: Callable[..., SparkColumn]) -> Scalar:
    return lambda columns, types, result, constants: function(*columns).cast(ddl_of(result))


def _alike(function: Callable[..., SparkColumn]) -> Scalar:
    return lambda columns, types, result, constants: function(*(column.cast(ddl_of(result)) for column in columns))


SCALAR_COLUMNS: dict[str, Scalar] = {
    "if": _conditional,
    "cast": _cast,
    "date_trunc": lambda columns, types, result, constants: F.date_trunc(constants[0], columns[0].cast("timestamp")),
    "date_part": lambda columns, types, result, constants: _FIELDS[constants[0]](columns[0]).cast(ddl_of(result)),
    "time_diff": _difference,
    "at_zone": lambda columns, types, result, constants: F.from_utc_timestamp(columns[0], constants[0]),
    **dict.fromkeys(("to_timestamp", "to_date"), _parsed),
    "substring": lambda columns, types, result, constants: F.substring(columns[0], *[*constants, 2**31 - 1][:2]),
    "length": _plain(F.length),
    "split_part": lambda columns, types, result, constants: F.split_part(columns[0], *map(F.lit, constants)),
    "concat": _plain(F.concat),
    "trim": _plain(F.trim),
    "ltrim": _plain(F.ltrim),
    "rtrim": _plain(F.rtrim),
    "replace": lambda columns, types, result, constants: F.replace(columns[0], *map(F.lit, constants)),
    "regexp_like": _matched,
    "round": _rounded,
    "floor": _whole(F.floor),
    "ceil": _whole(F.ceil),
    "sqrt": _of_doubles(F.sqrt),
    "ln": _of_doubles(F.ln),
    "exp": _of_doubles(F.exp),
    "sin": _of_doubles(F.sin),
    "cos": _of_doubles(F.cos),
    "asin": _of_doubles(F.asin),
    "power": _of_doubles(F.pow),
    "mod": _rest,
    "greatest": _alike(F.greatest),
    "least": _alike(F.least),
}
"""The columns of :data:`optimizer.workload.scalars.SCALARS`: from the values' columns and types and the constants."""

CONSTANTS_FROM = {
    **dict.fromkeys(
        ("cast", "date_trunc", "date_part", "at_zone", "to_timestamp", "to_date", "substring", "split_part"), 1
    ),
    **dict.fromkeys(("replace", "regexp_like", "round"), 1),
    "time_diff": 2,
}
"""Index of the first constant in a call's arguments, for functions that have constants."""
