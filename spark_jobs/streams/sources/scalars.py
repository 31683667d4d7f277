"""Functions of single values over Arrow batches: conditionals, times, texts and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.windows.calendars import clock
from optimizer.workload.expression import EPOCH
from optimizer.workload.patterns import readable_pattern
from optimizer.workload.scalars import time_format
from optimizer.workload.types import as_decimal
from optimizer.workload.values import DOUBLE, TIMESTAMP, Call, Literal, Type, decimal
from spark_jobs.streams.sources.casts import cast_values
from spark_jobs.streams.sources.conversions import (
    Kernel,
    arrow_type,
    as_double,
    as_type,
    as_wide_decimal,
    each,
    narrow,
    nulls_of,
    only_where,
    over_arrays,
    whole_numbers,
)

_SIZES = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "millisecond": 1000}
_LENGTHS = _SIZES | {"week": 7 * _SIZES["day"], "microsecond": 1}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def _constants(call: Call) -> list[Any]:
    return [argument.value for argument in call.arguments if isinstance(argument, Literal)]


# ------------------------------------------------------------------------------------------- conditionals
def _conditional(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    chosen = [
        as_type(value, type, result)
        for value, type in zip([*values[1::2], values[-1]], [*types[1::2], types[-1]], strict=True)
    ]
    conditions = pc.make_struct(*values[:-1:2], field_names=[str(at) for at in range(len(chosen) - 1)])
    return pc.case_when(conditions, *chosen)


def less(left: Any, right: Any, doubles: bool) -> Any:
    """Mask of the values that are less than others; NaN is the greatest."""
    smaller = pc.less(left, right)
    if not doubles or _is_number(right):
        return smaller
    last = pc.is_nan(right)
    return pc.or_(smaller, last if _is_number(left) else pc.and_(pc.invert(pc.is_nan(left)), last))


def _is_number(value: Any) -> bool:
    """Return whether a double is a constant other than NaN: comparing with one takes fewer operations."""
    return isinstance(value, pa.Scalar) and value.is_valid and not math.isnan(value.as_py())


def _extreme(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    alike = [as_type(value, type, result) for value, type in zip(values, types, strict=True)]

    def better(best: pa.Array, other: pa.Array) -> pa.Array:
        sides = (best, other) if call.function == "greatest" else (other, best)
        return pc.if_else(pc.fill_null(less(*sides, result == DOUBLE), False), other, pc.coalesce(best, other))

    return reduce(better, alike)


# -------------------------------------------------------------------------------------------------- times
def _microseconds(value: pa.Array) -> Any:
    """Times as 64-bit integers; 0 where there is none."""
    return value.cast(arrow_type(TIMESTAMP)).cast(pa.int64()).fill_null(0).to_numpy()


def _truncated(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    (unit,), value = _constants(call)[-1:], values[0]
    micros = _microseconds(value)
    if unit in _MONTHS:
        months = micros.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
        cut = (months - months % _MONTHS[unit]).astype("datetime64[M]").astype("datetime64[us]").astype(np.int64)
    elif unit == "week":
        # 1970 began on a Thursday
        days = micros // _SIZES["day"]
        cut = (days - (days + 3) % 7) * _SIZES["day"]
    else:
        cut = micros - micros % _SIZES[unit]
    return pa.array(cut, mask=nulls_of(value)).cast(arrow_type(result))


def _difference(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    (unit,) = _constants(call)[-1:]
    begin, end = map(_microseconds, values[:2])
    empty = np.asarray(nulls_of(values[0])) | np.asarray(nulls_of(values[1]))
    with np.errstate(over="ignore"):
        difference = end - begin
    # the difference of two 64-bit integers has another sign than both only where it does not fit
    empty |= ((end ^ begin) & (end ^ difference)) < 0
    if unit in _MONTHS:
        return pa.array(_toward_zero(_months(begin, end), _MONTHS[unit]), mask=empty)
    return pa.array(_toward_zero(difference, _LENGTHS[unit]), mask=empty)


def _months(begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Full months between times, as java.time counts them: a day that is not full does not count."""
    (first, morning), (last, evening) = (np.divmod(micros, _SIZES["day"]) for micros in (begin, end))
    last = last - ((last > first) & (evening < morning)) + ((last < first) & (evening > morning))
    return _toward_zero(_days_of_months(last) - _days_of_months(first), 32)


def _days_of_months(days: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers of days as if each month had 32."""
    months = days.astype("datetime64[D]").astype("datetime64[M]")
    return months.astype(np.int64) * 32 + (days - months.astype("datetime64[D]").astype(np.int64))


def _toward_zero(values: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    quotients: NDArray[np.int64] = (values - np.fmod(values, size)) // size
    return quotients


def _zoned(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    (zone,), value = _constants(call)[-1:], values[0]
    shown = clock(zone).local(value.cast(pa.int64()).fill_null(0).to_numpy())
    return pa.array(shown, mask=nulls_of(value)).cast(arrow_type(result))


_FIELDS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "day": pc.day,
    "dayofweek": lambda times: pc.day_of_week(times, count_from_zero=False, week_start=7),
    "weekday": pc.day_of_week,
    "dayofyear": pc.day_of_year,
}


def _part(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    (field,), value = _constants(call)[-1:], values[0]
    if field in _FIELDS:
        naive = value if types[0].name == "date" else value.cast(pa.timestamp("us"))
        return _FIELDS[field](naive).cast(pa.int64())
    micros = _microseconds(value) % _SIZES["day"]
    if field == "second":
        inside = pa.array(micros % _SIZES["minute"], mask=nulls_of(value)).cast(pa.decimal128(19, 0))
        # a power of ten as a decimal keeps the digits
        seconds = pc.multiply(inside.cast(pa.decimal256(25, 0)), pa.scalar(Decimal("0.000001"), pa.decimal256(7, 6)))
        return narrow(seconds, result)
    size, within = {"hour": ("hour", 24), "minute": ("minute", 60), "whole second": ("second", 60)}[field]
    return pa.array(micros // _SIZES[size] % within, mask=nulls_of(value))


def _parsed(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    format = time_format(_constants(call)[-1])

    def moment(text: str) -> datetime | date | None:
        match = format.fullmatch(text)
        if match is None:
            return None
        fields = match.groupdict()
        try:
            parts = [int(fields.get(letter) or 0) for letter in "yMdHms"]
            micros = int((fields.get("S") or "").ljust(6, "0"))
            parsed = datetime(*parts, micros, tzinfo=EPOCH.tzinfo)  # type: ignore[arg-type,misc]
        except ValueError:
            return None
        return parsed.date() if result.name == "date" else parsed

    return each(values[0], moment, arrow_type(result))


# -------------------------------------------------------------------------------------------------- texts
def _substring(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    begin, *length = (argument.value for argument in call.arguments[1:] if isinstance(argument, Literal))
    start = begin - 1 if begin > 0 else begin
    stop = start + max(0, length[0]) if length else None
    if stop is not None and start < 0 <= stop and length[0] > 0:
        stop = None
    return pc.utf8_slice_codeunits(values[0], start, stop)


def _split(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    separator, place = (argument.value for argument in call.arguments[1:] if isinstance(argument, Literal))

    def piece(text: str) -> str:
        pieces = text.split(separator)
        if abs(place) > len(pieces):
            return ""
        return pieces[place - 1 if place > 0 else place]

    return each(values[0], piece, pa.utf8())


def _trimmed(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    cut = {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}[call.function]
    return cut(values[0], " ")


def _replaced(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    old, new = (argument.value for argument in call.arguments[1:] if isinstance(argument, Literal))
    return pc.replace_substring(values[0], old, new)


def _matched(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    return pc.match_substring_regex(values[0], readable_pattern(_constants(call)[-1]))


# ------------------------------------------------------------------------------------------------ numbers
def rounded_double(value: float, places: int) -> float:
    """A double rounded half up by its shortest decimal, as Spark rounds it."""
    if not np.isfinite(value):
        return value
    with localcontext(prec=800):
        number = Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    return float(number) + 0.0


def _rounded(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    places, type = _constants(call)[-1], types[0]
    if type == DOUBLE:
        return each(values[0], lambda value: rounded_double(value, places), pa.float64())
    scale = type.scale
    if places >= scale:
        return values[0]
    wide = as_wide_decimal(values[0], type, scale).cast(pa.decimal256(76, scale))
    return _exact(pc.round(wide, places, "half_towards_infinity"), result)


def _exact(value: pa.Array, result: Type) -> pa.Array:
    """A rounded wide decimal as its type, an integer or a decimal."""
    if result.name == "long":
        return value.cast(pa.decimal256(39, 0)).cast(pa.int64())
    return narrow(value, result)


def _whole(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    value, type = values[0], types[0]
    if type == DOUBLE:
        change = np.floor if call.function == "floor" else np.ceil
        return whole_numbers(change(value.fill_null(0).to_numpy()), nulls_of(value), 64)
    if not as_decimal(type)[1]:
        return value
    wide = as_wide_decimal(value, type, type.scale).cast(pa.decimal256(76, type.scale))
    return _exact((pc.floor if call.function == "floor" else pc.ceil)(wide), result)


def _real(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    value, *arguments = (as_double(value, type) for value, type in zip(values, types, strict=True))
    if call.function == "ln":
        # NaN is not positive, and not excluded either
        return pc.ln(only_where(pc.invert(pc.less_equal(value, 0.0)), value))
    if call.function == "power":
        exponent = arguments[0]
        open = pc.or_(pc.is_nan(exponent), pc.is_inf(exponent))
        undecided = pc.and_(pc.equal(pc.abs(value), 1.0), open)
        return pc.if_else(undecided, pa.scalar(float("nan")), pc.power(value, exponent))
    return _REAL[call.function](value)


_REAL = {"sqrt": pc.sqrt, "exp": pc.exp, "sin": pc.sin, "cos": pc.cos, "asin": pc.asin}


def _rest(values: list[Any], types: list[Type], result: Type, call: Call) -> pa.Array:
    if result == DOUBLE or all(type.name == "long" for type in types):
        sides = [
            as_double(value, type) if result == DOUBLE else value for value, type in zip(values, types, strict=True)
        ]
        above, below = (side.fill_null(0).to_numpy() for side in sides)
        empty = np.asarray(nulls_of(sides[0])) | np.asarray(nulls_of(sides[1])) | (below == 0)
        with np.errstate(invalid="ignore"):
            return pa.array(np.fmod(above, np.where(empty, 1, below)), mask=empty)
    scale = result.scale
    rests = []
    wides = [as_wide_decimal(value, type, scale).to_pylist() for value, type in zip(values, types, strict=True)]
    with localcontext(prec=160):
        for dividend, divisor in zip(*wides, strict=True):
            rests.append(None if dividend is None or not divisor else dividend % divisor)
    return pa.array(rests, arrow_type(decimal(result.precision, scale)))


SCALAR_KERNELS: dict[str, Kernel] = {
    "if": over_arrays(_conditional),
    "cast": cast_values,
    "date_trunc": over_arrays(_truncated, first=True),
    "date_part": over_arrays(_part, first=True),
    "time_diff": over_arrays(_difference),
    "at_zone": over_arrays(_zoned, first=True),
    **dict.fromkeys(("to_timestamp", "to_date"), over_arrays(_parsed, first=True)),
    "substring": over_arrays(_substring, first=True),
    "length": over_arrays(lambda values, types, result, call: pc.utf8_length(values[0]).cast(pa.int64())),
    "split_part": over_arrays(_split, first=True),
    "concat": over_arrays(lambda values, types, result, call: pc.binary_join_element_wise(*values, "")),
    **dict.fromkeys(("trim", "ltrim", "rtrim"), over_arrays(_trimmed)),
    "replace": over_arrays(_replaced, first=True),
    "regexp_like": over_arrays(_matched, first=True),
    "round": over_arrays(_rounded, first=True),
    **dict.fromkeys(("floor", "ceil"), over_arrays(_whole)),
    **dict.fromkeys(("sqrt", "ln", "exp", "sin", "cos", "asin", "power"), over_arrays(_real)),
    "mod": over_arrays(_rest),
    **dict.fromkeys(("greatest", "least"), over_arrays(_extreme)),
}
"""The kernels of :data:`optimizer.workload.scalars.SCALARS`."""
