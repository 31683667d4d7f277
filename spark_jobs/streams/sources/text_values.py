"""Convert texts to values: each strictly by its declared type, as CSV, JSON and the names of folders have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.workload.streams import TIME_UNITS
from optimizer.workload.timestamp_formats import DIRECTIVES
from optimizer.workload.values import Source, Stream, Type
from spark_jobs.streams.sources.expressions import arrow_type

BITS = {3: 8, 5: 16, 10: 32, 19: 64}
"""Width of an integer in bits, by the digits of its type."""

ZONE = r"(Z|:.*[+-]\d\d:?(\d\d)?)$"
"""The zone at the end of a timestamp's text: after a time of day, since a date ends in ``-01`` as well."""

INTEGER = r"[+-]?[0-9]+"
DECIMAL = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
SPECIAL = r"NaN|nan|[+-]?(Infinity|Inf|inf)"
"""The doubles that are no decimals, as Spark and Java write them, and as Python, NumPy, pandas and Arrow do."""

TRUE, FALSE = ["true", "t", "1"], ["false", "f", "0"]

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_FIRST_DATE = -719_162
"""0001-01-01 in days since 1970."""


def converted_texts(source: Source, is_time: bool, type: Type, texts: pa.Array) -> pa.Array:
    """Texts in the Arrow type of a declared type. ``is_time``: of event times. Raises ArrowInvalid for a misfit."""
    return _converter_of(source, is_time, type)(texts)


def converter(stream: Stream, name: str, type: Type) -> Callable[[pa.Array], pa.Array]:
    """Return the conversion of texts to values of a column. It raises ArrowInvalid if a text is none."""
    return _converter_of(stream.source, name == stream.time, type)


def _converter_of(source: Source, is_time: bool, type: Type) -> Callable[[pa.Array], pa.Array]:
    null = ["", *source.null]
    if type.name == "string":
        return lambda texts: texts
    if type.name == "long":
        return lambda texts: _integers(texts, null, BITS[type.digits])
    if type.name == "timestamp":
        if is_time and source.time_unit is not None:
            unit = source.time_unit
            return lambda texts: instants_of_numbers(_integers(texts, null, 64), unit)
        if source.timestamp_format is not None:
            pattern = source.timestamp_format
            return lambda texts: instants_in_format(_trimmed(texts, null), pattern)
        return _first_as_it_is(instants_of_texts, null)
    if type.name == "boolean":
        return _first_as_it_is(_booleans, null)
    if type.name == "date":
        return _first_as_it_is(_dates, null)
    target = arrow_type(type)
    if type.name == "decimal":
        return lambda texts: _numbers(texts, null, DECIMAL, target)
    return lambda texts: _numbers(texts, null, f"{DECIMAL}|{SPECIAL}", target)


def _first_as_it_is(convert: Callable[[pa.Array], pa.Array], null: Sequence[str]) -> Callable[[pa.Array], pa.Array]:
    """Trims only what does not convert: hardly ever."""

    def converted(texts: pa.Array) -> pa.Array:
        try:
            return convert(texts)
        except pa.ArrowInvalid:
            return convert(_trimmed(texts, null))

    return converted


def _trimmed(texts: pa.Array, null: Sequence[str]) -> pa.Array:
    """Texts of another type than strings: without spaces around them, what is null also where it was quoted."""
    texts = pc.ascii_trim_whitespace(texts)
    return pc.if_else(pc.is_in(texts, pa.array(null)), pa.scalar(None, pa.string()), texts)


def _has_no_words(texts: pa.Array) -> bool:
    """Return whether no letter occurs but the E of exponents: pyarrow accepts ``0x10`` and ``nan(2)`` as numbers
    too.
    """
    _, offsets, data = texts.buffers()
    if data is None or not len(texts):
        return True
    ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    written = np.frombuffer(data, dtype=np.uint8)[ends[0] : ends[-1]]
    return len(written) == 0 or written.max() <= ord("9") or not _WORDS[written].any()


_WORDS = np.array([byte > ord("9") and byte not in b"Ee" for byte in range(256)])


def safe_decimal(target: pa.DataType) -> str:
    """Return the pattern of texts that pyarrow casts to a decimal without fault: no exponent, and no more digits than
    the type has. Of others it loses digits, or wraps round without an error."""
    return rf"[+-]?[0-9]{{0,{target.precision - target.scale}}}(\.[0-9]{{0,{target.scale}}})?"


def _cast(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Texts as numbers. Raises ArrowInvalid for a text that is none, or does not fit."""
    if not pa.types.is_decimal(target):
        return texts.cast(target)
    is_safe = pc.fill_null(pc.match_substring_regex(texts, f"^{safe_decimal(target)}$"), True)
    if not pc.all(is_safe, min_count=0).as_py():
        exact = pa.array([_plain(text.as_py(), target) for text in texts.filter(pc.invert(is_safe))], pa.string())
        texts = pc.replace_with_mask(texts, pc.invert(is_safe), exact)
    return texts.cast(target)


def _plain(text: str, target: pa.DataType) -> str:
    """A decimal number without an exponent and zeros at its ends. Raises ArrowInvalid if it does not fit."""
    try:
        sign, written, exponent = Decimal(text).as_tuple() if re.fullmatch(DECIMAL, text) else (0, (), "")
    except InvalidOperation:
        exponent = ""
    if not isinstance(exponent, int):
        raise pa.ArrowInvalid("not a number")
    digits = "".join(map(str, written)).lstrip("0")
    exponent += len(digits) - len(digits.rstrip("0"))
    digits = digits.rstrip("0")
    if not digits:
        return "0"
    if -exponent > target.scale or len(digits) + exponent > target.precision - target.scale:
        raise pa.ArrowInvalid("it has too many digits")
    whole_digits = digits + "0" * exponent if exponent >= 0 else digits[:exponent]
    fraction = digits[exponent:].rjust(-exponent, "0") if exponent < 0 else ""
    return f"{'-' * sign}{whole_digits or '0'}.{fraction or '0'}"


def _numbers(texts: pa.Array, null: Sequence[str], pattern: str, target: pa.DataType) -> pa.Array:
    if _has_no_words(texts):
        try:
            return _cast(texts, target)
        except pa.ArrowInvalid:
            pass  # a quoted null, or a value that is none: told apart below
    texts = _trimmed(texts, null)
    if not pc.all(pc.match_substring_regex(texts, f"^({pattern})$"), min_count=0).as_py():
        raise pa.ArrowInvalid("not a number")
    return _cast(pc.utf8_ltrim(texts, "+"), target)


def _integers(texts: pa.Array, null: Sequence[str], bits: int) -> pa.Array:
    numbers = _numbers(texts, null, INTEGER, pa.int64())
    if bits < 64 and len(numbers) > numbers.null_count:
        most, extremes = 1 << (bits - 1), pc.min_max(numbers).as_py()
        if extremes["min"] < -most or extremes["max"] >= most:
            raise pa.ArrowInvalid("out of range")
    return numbers


def _booleans(texts: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(texts)
    true, false = (pc.is_in(lower, pa.array(words)) for words in (TRUE, FALSE))
    if not pc.all(pc.or_(pc.or_(true, false), pc.is_null(texts)), min_count=0).as_py():
        raise pa.ArrowInvalid("not a boolean")
    return pc.if_else(pc.is_null(texts), pa.scalar(None, pa.bool_()), true)


def _dates(texts: pa.Array) -> pa.Array:
    dates = texts.cast(pa.date32())
    if len(dates) > dates.null_count and pc.min(dates.cast(pa.int32())).as_py() < _FIRST_DATE:
        raise pa.ArrowInvalid("before year 1")
    return dates


# ------------------------------------------------------------------------------------------- times
def instants_of_texts(texts: pa.Array) -> pa.Array:
    """Timestamps of texts in ISO 8601, UTC where they name no zone."""
    target = pa.timestamp("us", tz="UTC")
    text = pc.utf8_trim_whitespace(texts)
    zoned = pc.match_substring_regex(text, ZONE)
    if not pc.any(zoned).as_py():
        return text.cast(pa.timestamp("us")).cast(target)
    with_zone = pc.if_else(zoned, text, pa.scalar(None, pa.string())).cast(target)
    without = pc.if_else(zoned, pa.scalar(None, pa.string()), text).cast(pa.timestamp("us")).cast(target)
    return pc.coalesce(with_zone, without)


def instants_of_numbers(numbers: pa.Array, unit: str) -> pa.Array:
    """Timestamps of integers that count ``unit`` since 1970; nanoseconds are floored, so that no event moves into a
    later fragment. Beyond what microseconds can hold: the least or the greatest that they do, which no event has."""
    above, below = TIME_UNITS[unit]
    known = pc.is_valid(numbers).to_numpy(zero_copy_only=False)
    values = pc.fill_null(numbers.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    most = (1 << 62) // above
    if below == 1:
        values = np.clip(values, -most, most)
    return pa.array(np.floor_divide(values * above, below), mask=~known).cast(pa.timestamp("us", tz="UTC"))


def instants_in_format(texts: pa.Array, pattern: str) -> pa.Array:
    """Timestamps of texts in a format of ``strptime``, with :data:`optimizer.workload.timestamp_formats.DIRECTIVES`.
    Without a %z they are UTC."""
    parts = re.split(r"%(.)", pattern)
    regex = "".join(
        re.escape(part) if index % 2 == 0 else "%" if part == "%" else f"(?P<{part}>{DIRECTIVES[part]})"
        for index, part in enumerate(parts)
    )
    fields = pc.extract_regex(texts, f"(?i)^{regex}$")
    if fields.null_count != texts.null_count:
        raise pa.ArrowInvalid("not in the format")
    known = pc.is_valid(texts).to_numpy(zero_copy_only=False)
    names = [field.name for field in fields.type]

    def text(name: str) -> pa.Array:
        return pc.struct_field(fields, name)

    def number(name: str, least: int, most: int) -> np.ndarray:
        if name not in names:
            return np.full(len(texts), least)
        values = pc.fill_null(text(name).cast(pa.int64()), least).to_numpy(zero_copy_only=False)
        if len(values) and (values.min() < least or values.max() > most):
            raise pa.ArrowInvalid(f"%{name} is out of range")
        return values

    years = number("Y", 0, 9999) if "Y" in names else number("y", 0, 99)
    if "y" in names:
        years = years + np.where(years < 69, 2000, 1900)
    months = number("m", 1, 12) - 1
    if "b" in names:
        months = pc.index_in(pc.utf8_lower(text("b")), pa.array(_MONTHS)).fill_null(0).to_numpy(zero_copy_only=False)
    first = (years - 1970).astype("datetime64[Y]").astype("datetime64[M]") + months
    days = first.astype("datetime64[D]") + (number("d", 1, 31) - 1)
    if not (days.astype("datetime64[M]") == first)[known].all():
        raise pa.ArrowInvalid("no such day")
    hours = number("H", 0, 23)
    if "I" in names:
        late = pc.fill_null(pc.equal(pc.utf8_lower(text("p")), "pm"), False).to_numpy(zero_copy_only=False)
        hours = number("I", 1, 12) % 12 + 12 * late
    seconds = (hours * 60 + number("M", 0, 59)) * 60 + number("S", 0, 59)
    if "z" in names:
        seconds = seconds - _offsets(text("z"))
    instants = days.astype("datetime64[s]").astype(np.int64) + seconds
    fraction = np.zeros(len(texts), dtype=np.int64)
    if "f" in names:
        digits = pc.utf8_rpad(pc.fill_null(text("f"), "0"), 6, "0")
        fraction = digits.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return pa.array(instants * 1_000_000 + fraction, mask=~known).cast(pa.timestamp("us", tz="UTC"))


def _offsets(texts: pa.Array) -> np.ndarray:
    """Seconds ahead of UTC."""
    fields = pc.extract_regex(texts, r"^(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)$")
    hours, minutes = (
        pc.fill_null(pc.struct_field(fields, name).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        for name in ("hours", "minutes")
    )
    if len(hours) and (hours.max() > 18 or minutes.max() > 59):
        raise pa.ArrowInvalid("no such zone")
    behind = pc.fill_null(pc.equal(pc.struct_field(fields, "sign"), "-"), False).to_numpy(zero_copy_only=False)
    return np.where(behind, -1, 1) * (hours * 60 + minutes) * 60
