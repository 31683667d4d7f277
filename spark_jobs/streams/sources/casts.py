"""Casts over Arrow batches: a value that the target cannot hold, or that is none of its texts, is null.

Numbers become integers by cutting off their fraction, decimals by rounding half up; a double counts as its shortest
decimal. Texts are read as Spark reads them: spaces around a value do not matter, and times without zone are UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.workload.scalars import cast_type
from optimizer.workload.types import as_decimal
from optimizer.workload.values import LONG, Call, Literal, Type
from spark_jobs.streams.sources.conversions import (
    arrow_type,
    as_double,
    as_wide_decimal,
    each,
    narrow,
    nulls_of,
    only_where,
    over_arrays,
    whole_numbers,
)

BITS = {3: 8, 5: 16, 10: 32}
"""Bits of an integer type by its digits; 64 where it has others."""

DAY = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = date(1, 1, 1), date(9999, 12, 31)
_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)
_SPECIAL = re.compile(r"[+-]?(?:inf|infinity)|nan", re.ASCII | re.IGNORECASE)
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_DATE = re.compile(r"(\d{4})(?:-(\d\d?)(?:-(\d\d?)(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_TIME = re.compile(
    r"(\d{4})(?:-(\d\d?)(?:-(\d\d?)(?:[ T](\d\d?):(\d\d?)(?::(\d\d?)(?:\.(\d{0,9}))?)?\s?(Z|UTC|[+-]\d\d?:\d\d)?)?)?)?",
    re.ASCII,
)
_BLANK = "".join(map(chr, range(33))) + "\x7f"


# ---------------------------------------------------------------------------------------- single values
def integer_of(text: str, bits: int) -> int | None:
    """The integer that a text represents, if it fits into ``bits`` bits."""
    text = text.strip(_BLANK)
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None


def decimal_of(value: str | float, type: Type) -> Decimal | None:
    """The decimal of a type that is nearest to what a text writes, or to a double."""
    text = repr(value) if isinstance(value, float) else value.strip(_BLANK)
    if not _NUMBER.fullmatch(text):
        return None
    with localcontext(prec=1000, Emax=10**9, Emin=-(10**9)):
        number = Decimal(text)
        if number and number.adjusted() >= type.precision - type.scale:
            return None
        if number and number.adjusted() < -type.scale - 1:
            return Decimal(0)
        rounded = number.quantize(Decimal(1).scaleb(-type.scale), ROUND_HALF_UP)
        return rounded if abs(rounded) < Decimal(10) ** (type.precision - type.scale) else None


def double_of(text: str) -> float | None:
    """The double that a text writes."""
    text = text.strip(_BLANK)
    return float(text) if _NUMBER.fullmatch(text) or _SPECIAL.fullmatch(text) else None


def truth_of(text: str) -> bool | None:
    """The boolean that a text represents."""
    word = text.strip(_BLANK).lower()
    return True if word in _TRUE else False if word in _FALSE else None


def date_of(text: str) -> date | None:
    """The date that a text begins with."""
    match = _DATE.fullmatch(text.strip(_BLANK))
    try:
        return date(int(match[1]), int(match[2] or 1), int(match[3] or 1)) if match else None
    except ValueError:
        return None


def microseconds_of(text: str) -> int | None:
    """The instant that a text writes, in microseconds."""
    match = _TIME.fullmatch(text.strip(_BLANK))
    if match is None:
        return None
    zone: timezone = UTC
    try:
        if match[8] not in (None, "Z", "UTC"):
            hours, minutes = match[8][1:].split(":")
            shift = timedelta(hours=int(hours), minutes=int(minutes))
            if shift > timedelta(hours=18) or int(minutes) > 59:
                return None
            zone = timezone(-shift if match[8][0] == "-" else shift)
        fraction = int((match[7] or "").ljust(6, "0")[:6])
        fields = [int(field or least) for field, least in zip(match.groups()[:6], (1, 1, 1, 0, 0, 0), strict=True)]
        moment = datetime(*fields, fraction, tzinfo=zone)  # type: ignore[arg-type,misc]
    except ValueError:
        return None
    micros = (moment - _EPOCH) // timedelta(microseconds=1)
    return micros if 0 <= micros // DAY - (_FIRST - _EPOCH.date()).days <= (_LAST - _FIRST).days else None


# ----------------------------------------------------------------------------------------------- columns
def _to_long(value: pa.Array, type: Type, result: Type) -> pa.Array:
    bits = BITS.get(result.digits, 64)
    if type.name == "string":
        return each(value, lambda text: integer_of(text, bits), pa.int64())
    if type.name == "double":
        return whole_numbers(np.trunc(value.fill_null(0).to_numpy()), nulls_of(value), bits)
    if type.name == "timestamp":
        micros = value.cast(pa.int64()).fill_null(0).to_numpy()
        value = pa.array(micros // 1_000_000, mask=nulls_of(value))
    if type.name == "decimal":
        value = pc.round(as_wide_decimal(value, type, type.scale), 0, "towards_zero")
        # as an integer it has 38 digits at most
        value = value.cast(pa.decimal256(39, 0))
    least, most = (pa.scalar(limit, pa.int64()) for limit in (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    if type.name == "decimal":
        least, most = (limit.cast(pa.decimal256(39, 0)) for limit in (least, most))
    if type.name != "boolean":
        value = only_where(pc.and_(pc.greater_equal(value, least), pc.less_equal(value, most)), value)
    return value.cast(pa.int64())


def _to_decimal(value: pa.Array, type: Type, result: Type) -> pa.Array:
    if type.name in ("string", "double"):
        return each(value, lambda item: decimal_of(item, result), arrow_type(result))
    if type.name == "boolean":
        value, type = value.cast(pa.int64()), LONG
    wide = as_wide_decimal(value, type, as_decimal(type)[1])
    if as_decimal(type)[1] > result.scale:
        wide = pc.round(wide.cast(pa.decimal256(76, as_decimal(type)[1])), result.scale, "half_towards_infinity")
    scale = wide.type.scale
    bound = pa.scalar(Decimal(10) ** (result.precision - result.scale), pa.decimal256(76, scale))
    in_range = only_where(pc.and_(pc.less(wide, bound), pc.greater(wide, pc.negate(bound))), wide)
    room = result.precision - result.scale + max(scale, result.scale)
    return narrow(in_range.cast(pa.decimal256(room, scale)).cast(pa.decimal256(room, result.scale)), result)


def _to_double(value: pa.Array, type: Type, result: Type) -> pa.Array:
    if type.name == "string":
        return each(value, double_of, pa.float64())
    if type.name == "boolean":
        return value.cast(pa.int64()).cast(pa.float64())
    if type.name == "timestamp":
        return pc.divide(value.cast(pa.int64()).cast(pa.float64(), safe=False), 1e6)
    return as_double(value, type)


def _to_boolean(value: pa.Array, type: Type, result: Type) -> pa.Array:
    if type.name == "string":
        return each(value, truth_of, pa.bool_())
    return value if type.name == "boolean" else pc.not_equal(value, pa.scalar(0, value.type))


def _to_string(value: pa.Array, type: Type, result: Type) -> pa.Array:
    if type.name == "decimal":
        return each(value, lambda number: format(number, "f"), pa.utf8())
    if type.name in ("date", "timestamp"):
        return _moment_texts(value, type)
    return value.cast(pa.utf8())


def _moment_texts(value: pa.Array, type: Type) -> pa.Array:
    """Dates and timestamps as Spark writes them in UTC; null before the year 1 and after 9999."""
    unit, code, integers = ("D", "D", pa.int32()) if type.name == "date" else ("us", "us", pa.int64())
    numbers = value.cast(integers).fill_null(0).to_numpy().astype(np.int64)
    size = DAY if unit == "us" else 1
    days = numbers // size
    outside = (days < (_FIRST - _EPOCH.date()).days) | (days > (_LAST - _EPOCH.date()).days)
    texts = np.datetime_as_string(np.where(outside, 0, numbers).astype(f"datetime64[{code}]"))
    texts_of_moments = pa.array(texts.tolist(), pa.utf8(), mask=outside | np.asarray(nulls_of(value)))
    if unit == "D":
        return texts_of_moments
    return (
        pc.utf8_rtrim(pc.utf8_rtrim(pc.replace_substring(texts_of_moments, "T", " "), "0"), ".")
        if len(texts_of_moments)
        else texts_of_moments
    )


def _to_date(value: pa.Array, type: Type, result: Type) -> pa.Array:
    if type.name == "string":
        return each(value, date_of, pa.date32())
    if type.name == "date":
        return value
    micros = value.cast(pa.int64()).fill_null(0).to_numpy()
    return pa.array((micros // DAY).astype(np.int32), pa.int32(), mask=nulls_of(value)).cast(pa.date32())


def _to_timestamp(value: pa.Array, type: Type, result: Type) -> pa.Array:
    stamps = arrow_type(result)
    if type.name == "string":
        return each(value, microseconds_of, pa.int64()).cast(stamps)
    if type.name == "long":
        first = (_FIRST - _EPOCH.date()).days * 86_400
        past = ((_LAST - _EPOCH.date()).days + 1) * 86_400
        known = pc.and_(pc.greater_equal(value, first), pc.less(value, past))
        return pc.multiply(only_where(known, value), 1_000_000).cast(stamps)
    return value.cast(stamps)


_TO: dict[str, Callable[[pa.Array, Type, Type], pa.Array]] = {
    "long": _to_long,
    "decimal": _to_decimal,
    "double": _to_double,
    "boolean": _to_boolean,
    "string": _to_string,
    "date": _to_date,
    "timestamp": _to_timestamp,
}


def _cast(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    target = call.arguments[1]
    assert isinstance(target, Literal) and cast_type(target.value) == result
    return values[0] if types[0] == result else _TO[result.name](values[0], types[0], result)


cast_values = over_arrays(_cast, first=True)
"""The kernel of ``cast``."""
