"""Records of JSON files, as Spark is given them.

Spark takes the first value of a line and drops what follows it, takes a key in another case for another column, and
rounds a decimal that has too many digits. So each line is read here first: every record of it becomes a text of its
own, keys are spelled as the stream declares them, and a value that does not fit its column is an error that names both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.workload.nested import Nested
from optimizer.workload.values import BYTE, INT, LONG, SHORT, Stream, Type

LENIENT = frozenset(
    {
        *("allowcomments", "allowunquotedfieldnames", "allownumericleadingzeros", "allowunquotedcontrolchars"),
        *("allowbackslashescapinganycharacter", "encoding", "charset"),
    }
)
"""Options, in lower case, under which a record is no JSON: Spark reads such files without a look at their records."""

BITS = {BYTE: 8, SHORT: 16, INT: 32, LONG: 64}

SPECIAL = frozenset({"NaN", "INF", "+INF", "-INF", "Infinity", "+Infinity", "-Infinity"})
"""The texts that Spark reads as doubles."""

FIRST, LAST = -62_135_596_800, 253_402_300_800
"""The years 1 to 9999 in seconds."""

_SPACE = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[{}\[\]]|[^\s{}\[\]"']+|["']""", re.DOTALL)


class _Number(str):
    """A number as it is written."""


_DECODER = json.JSONDecoder(parse_float=_Number, parse_int=_Number, parse_constant=_Number)


class _Misfit(ValueError):
    """A value (second) that does not fit the type (third) of a column (first)."""


def records_task(stream: Stream, real_path: Callable[[str], str]) -> Any:
    """The task that turns the lines of files, with their paths, into records. ``real_path``: of Spark's spelling."""
    declared: dict[str, Type | Nested] = {**dict(stream.schema), **dict(stream.nested)}
    if stream.source.time_unit is not None:
        declared[stream.time] = LONG

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts, paths = list[str](), list[str]()
            for line, path in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                records = list(records_of(stream.name, declared, real_path(path), line or ""))
                texts += records
                paths += [path] * len(records)
            columns = [pa.array(texts, pa.string()), pa.array(paths, pa.string())]
            yield pa.RecordBatch.from_arrays(columns, names=["record", batch.schema.names[1]])

    return task


def records_of(stream: str, declared: Mapping[str, Type | Nested], path: str, line: str) -> Iterator[str]:
    """Yield the records of a line, or of a file, each as a JSON object with the keys that are declared.

    Raises HDL-404 for a value that does not fit, HDL-433 for text that is no record, HDL-456 for keys that differ
    by case.
    """
    line = line.removeprefix("\ufeff")
    at = _end_of_space(line, 0)
    while at < len(line):
        try:
            value, end = _DECODER.raw_decode(line, at)
        except (ValueError, RecursionError):
            if _is_alone(line[at:]):
                # single quotes: Spark reads them
                yield line[at:]
                return
            raise _no_record(stream, path, line[at:]) from None
        for record in value if isinstance(value, list) else [value]:
            if not isinstance(record, dict):
                raise _no_record(stream, path, line[at:end])
            fitted = _fitted_record(stream, declared, path, record)
            yield line[at:end] if fitted is value else _text(fitted)
        at = _end_of_space(line, end)


def _end_of_space(line: str, at: int) -> int:
    match = _SPACE.match(line, at)
    return at if match is None else match.end()


def _is_alone(text: str) -> bool:
    """Return whether a text that is no JSON is exactly one object, with texts in single quotes."""
    depth, ends = 0, 0
    for token in _TOKEN.finditer(text):
        if ends or token[0] in ('"', "'"):
            return False
        depth += (token[0] in "{[") - (token[0] in "}]") if len(token[0]) == 1 else 0
        ends += depth == 0
    return depth == 0 and text.startswith("{") and "'" in text


def _no_record(stream: str, path: str, text: str) -> HeddleError:
    message = f"stream {stream}: {path} has what is no JSON record: {printable(text, 120)}"
    return HeddleError("HDL-433", message, "is it half written? a record is an object, in one line")


def _fitted_record(stream: str, declared: Mapping[str, Type | Nested], path: str, record: dict[str, Any]) -> Any:
    try:
        return _fields(record, declared, "")
    except _Misfit as misfit:
        column, value, kind = misfit.args
        message = f"stream {stream}: column {column} of {path} does not fit its declared type {kind}: {_shown(value)}"
        hint = "correct `schema` in streams.yaml, or the record"
        if str(kind) == "timestamp" and isinstance(value, _Number):
            hint = "a number counts seconds: write `time_unit: ms` (or us, ns) below `source`, or correct the record"
        raise HeddleError("HDL-404", message, hint) from None
    except _Ambiguous as error:
        message = f"stream {stream}: a record of {path} has keys {error} that differ by case at most"
        raise HeddleError("HDL-456", message, "rename one, or spell one as the stream declares it") from None


class _Ambiguous(ValueError):
    """Keys of a record that differ by case, none of them as declared."""


def _fields(record: dict[str, Any], declared: Mapping[str, Type | Nested], place: str) -> dict[str, Any]:
    """An object with the keys that are declared: itself if it has them already, and so have those in it."""
    fields, by_case = record, dict[str, list[str]]()
    for name, kind in declared.items():
        key = name
        if name not in record:
            if not by_case:
                for other in record:
                    by_case.setdefault(other.lower(), []).append(other)
            keys = [other for other in by_case.get(name.lower(), ()) if other not in declared]
            if len(keys) > 1:
                raise _Ambiguous(f"{keys[0]} and {keys[1]}")
            if not keys:
                continue
            (key,) = keys
        value = record[key]
        fitted = value if value is None else _fitted(value, kind, f"{place}{name}")
        if fitted is not value or key != name:
            if fields is record:
                fields = dict(record)
            fields.pop(key)
            fields[name] = fitted
    return fields


def _fitted(value: Any, kind: Type | Nested, place: str) -> Any:
    """A value of a column or field, with the keys that are declared. Raises :class:`_Misfit`."""
    if not isinstance(kind, Nested):
        if not _fits(value, kind):
            raise _Misfit(place, value, kind)
        return value
    if kind.kind == "struct" and isinstance(value, dict):
        return _fields(value, dict(kind.fields), f"{place}.")
    if kind.kind == "struct" or not isinstance(value, list if kind.kind == "array" else dict):
        raise _Misfit(place, value, kind.kind)
    inner = dict(kind.fields)["element" if kind.kind == "array" else "value"]
    if isinstance(value, list):
        fitted: Any = [
            None if each is None else _fitted(each, inner, f"{place}[{at}]") for at, each in enumerate(value)
        ]
        return value if all(new is old for new, old in zip(fitted, value, strict=True)) else fitted
    fitted = {key: None if each is None else _fitted(each, inner, f"{place}['{key}']") for key, each in value.items()}
    return value if all(fitted[key] is value[key] for key in value) else fitted


def _fits(value: Any, kind: Type) -> bool:
    is_number = isinstance(value, _Number)
    if kind in BITS:
        return is_number and _is_integer(value) and -(1 << BITS[kind] - 1) <= int(value) < 1 << BITS[kind] - 1
    if kind.name == "double":
        return is_number or (isinstance(value, str) and value in SPECIAL)
    if kind.name == "decimal":
        return isinstance(value, str) and _fits_decimal(value, kind)
    if kind.name == "boolean":
        return isinstance(value, bool)
    if kind.name == "timestamp" and is_number:
        return _is_integer(value) and FIRST <= int(value) < LAST
    # which texts are timestamps and dates is Spark's to say, and its options'
    return kind.name == "string" or (isinstance(value, str) and not is_number)


def _is_integer(text: str) -> bool:
    return len(text) < 40 and text.removeprefix("-").isdigit()


def _fits_decimal(text: str, kind: Type) -> bool:
    if len(text) > 200 or re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", text, re.ASCII) is None:
        return False
    _, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits)).lstrip("0")
    significant = written.rstrip("0")
    scale = max(-exponent - (len(written) - len(significant)), 0)
    return not significant or (scale <= kind.scale and len(written) + exponent <= kind.precision - kind.scale)


def _text(value: Any) -> str:
    """A value as JSON, its numbers as they were written."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value)


def _shown(value: Any) -> str:
    return printable(_text(value), 80)
