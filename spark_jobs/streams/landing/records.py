"""Read records of a topic as events, strictly: a record fits its stream completely, or it is quarantined with a reason.

Nothing is rounded, cut or guessed: a text is no number, 1.0 is no integer, a decimal has no more digits than its
column. A reason names a column and the kind of its content, never a value, which may be private.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import instant_of_text
from optimizer.workload.streams import TIME_UNITS
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Stream, Type
from spark_jobs.streams.landing.avro import AvroSchema, Instant, Unfit
from spark_jobs.streams.sources.conversions import arrow_type
from spark_jobs.streams.sources.splits import FIRST, INTEGERS, LAST

BROKER_COLUMNS: Mapping[str, Type] = {
    "kafka_timestamp": TIMESTAMP,
    "kafka_topic": STRING,
    "kafka_partition": LONG,
    "kafka_offset": LONG,
    "kafka_id": STRING,
}
"""Columns of a landed table about each record, in addition to its fields; ``kafka_id`` is ``partition:offset``."""

QUARANTINE = pa.schema(
    [
        ("kafka_timestamp", pa.timestamp("us", "UTC")),
        ("kafka_topic", pa.utf8()),
        ("kafka_partition", pa.int64()),
        ("kafka_offset", pa.int64()),
        ("why", pa.utf8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("value_bytes", pa.int64()),
    ]
)
"""The table of records that did not fit: of keys and values the first :data:`KEPT` bytes, and how many there are."""

KEPT = 65_536
"""Bytes of the key, and of the value, that are stored of a record that does not fit."""

MARK = "_heddle_"
"""Prefix of the columns that are added to records until the table that they go to is known."""

_INSTANT = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII)
_LONGEST = 400
"""Digits of an integer: one of more is no double either."""

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DECIMAL = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?", re.ASCII)


@dataclass(frozen=True)
class Records:
    """Reader of a topic's records.

    Parameters
    ----------
    schema
        (column, type) of the table, in its order, including :data:`BROKER_COLUMNS`.
    time
        The column of event times: a record without one is quarantined.
    time_unit
        Unit of integers in it, since 1970; None: times are texts in ISO 8601.
    avro
        The schema that records are written by; None: they are JSON objects.
    """

    schema: tuple[tuple[str, Type], ...]
    time: str
    time_unit: str | None = None
    avro: AvroSchema | None = None

    @classmethod
    def of(cls, stream: Stream, avro: AvroSchema | None = None) -> Records:
        """Reader of a stream's records. Raises HDL-626 for columns that no landed table can have."""
        if not stream.schema:
            message = f"stream {stream.name} declares no columns"
            raise HeddleError("HDL-626", message, "give it a `schema`: records are read by it")
        declared = dict(stream.schema)
        for name, type in declared.items():
            known = BROKER_COLUMNS.get(name.lower())
            if known is not None and (name not in BROKER_COLUMNS or type != known):
                message = f"stream {stream.name}: column {name} is declared {type}, the broker's is {known}"
                raise HeddleError("HDL-626", message, f"declare {name.lower()}: {known}")
            if name.lower().startswith(MARK) or re.search(r"[ ,;{}()\n\t=]", name):
                message = f"stream {stream.name}: no Delta table can have the column {name!r} without column mapping"
                raise HeddleError("HDL-626", message, "rename it, in the records too")
            if avro is not None and known is None and name not in avro.names:
                message = f"the Avro schema has no field {name}"
                raise HeddleError("HDL-626", message, f"it has {', '.join(avro.names[:20])}")
        added = tuple((name, type) for name, type in BROKER_COLUMNS.items() if name not in declared)
        return cls((*stream.schema, *added), stream.time, stream.source.time_unit, avro)

    @property
    def table(self) -> pa.Schema:
        """The columns of the landed table."""
        return pa.schema([(name, arrow_type(type)) for name, type in self.schema])

    @property
    def parsed(self) -> pa.Schema:
        """The columns of :meth:`read`: the table's, and what the quarantine has of a record."""
        more = [pa.field(MARK + field.name, field.type) for field in list(QUARANTINE)[4:]]
        return pa.schema([*self.table, *more])

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches as Kafka's source has them (key, value, topic, partition, offset, timestamp) as :attr:`parsed`."""
        fields = self._fields()
        for batch in batches:
            yield self._batch(batch, fields)

    def _fields(self) -> dict[str, Callable[[Any], Any]]:
        """Conversions of values to each column that is a field of records."""
        return {
            name: _maker(type, self.time_unit if name == self.time else None)
            for name, type in self.schema
            if name not in BROKER_COLUMNS
        }

    def _batch(self, batch: pa.RecordBatch, fields: Mapping[str, Callable[[Any], Any]]) -> pa.RecordBatch:
        values: dict[str, list[Any]] = {name: [] for name in fields}
        whys: list[str | None] = []
        is_exact = any(type.name == "decimal" for _, type in self.schema)
        contents = batch["value"].to_pylist()
        for content in contents:
            try:
                row = self._row(content, fields, is_exact)
                whys.append(None)
            except Unfit as error:
                row = dict.fromkeys(fields)
                whys.append(str(error))
            for name, value in row.items():
                values[name].append(value)
        columns: dict[str, Any] = dict(self._broker(batch))
        columns |= {name: _array(values[name], type) for name, type in self.schema if name in fields}
        columns |= {
            MARK + "why": pa.array(whys, pa.utf8()),
            MARK + "key": _kept(batch["key"].to_pylist(), whys),
            MARK + "value": _kept(contents, whys),
            MARK + "value_bytes": pa.array([len(content or b"") for content in contents], pa.int64()),
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in self.parsed.names], schema=self.parsed)

    def _row(self, content: bytes | None, fields: Mapping[str, Callable[[Any], Any]], is_exact: bool) -> dict[str, Any]:
        """The fields of one record. Raises Unfit."""
        if content is None:
            raise Unfit("there is no value (a tombstone)")
        record = self.avro.decoded(content) if self.avro is not None else _object(content, is_exact)
        row = {}
        for name, make in fields.items():
            value = record.get(name)
            try:
                row[name] = None if value is None else make(value)
            except Unfit as error:
                raise Unfit(f"{name}: {error}") from None
        if self.time in row and row[self.time] is None:
            raise Unfit(f"{self.time}: there is no event time")
        return row

    @staticmethod
    def _broker(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
        partitions, offsets = batch["partition"].to_pylist(), batch["offset"].to_pylist()
        yield "kafka_timestamp", batch["timestamp"].cast(pa.timestamp("us", "UTC"))
        yield "kafka_topic", batch["topic"].cast(pa.utf8())
        yield "kafka_partition", batch["partition"].cast(pa.int64())
        yield "kafka_offset", batch["offset"].cast(pa.int64())
        ids = [f"{partition}:{offset}" for partition, offset in zip(partitions, offsets, strict=True)]
        yield "kafka_id", pa.array(ids, pa.utf8())


def _array(values: Sequence[Any], type: Type) -> pa.Array:
    if type == TIMESTAMP:
        return pa.array(values, pa.int64()).cast(arrow_type(type))
    return pa.array(values, arrow_type(type))


def _kept(contents: Sequence[bytes | None], whys: Sequence[str | None]) -> pa.Array:
    """Keys or values to store: only of records that do not fit."""
    saved = (None if why is None or each is None else each[:KEPT] for each, why in zip(contents, whys, strict=True))
    return pa.array(list(saved), pa.binary())


# ------------------------------------------------------------------------------------------------ JSON
def _object(content: bytes, is_exact: bool) -> dict[str, Any]:
    """The JSON object of a record. Raises Unfit for anything else, also for a key that occurs twice."""
    try:
        parsed = json.loads(
            content.decode("utf-8"),
            parse_int=_integer,
            parse_float=Decimal if is_exact else float,
            parse_constant=_no_constant,
            object_pairs_hook=_pairs,
        )
    except UnicodeDecodeError as error:
        raise Unfit(f"it is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise Unfit(f"it is not JSON (character {error.pos})") from None
    except (ValueError, RecursionError, ArithmeticError):
        raise Unfit("it is JSON that cannot be read: a number is too long, or brackets are too deep") from None
    if not isinstance(parsed, dict):
        raise Unfit(f"it is {_kind(parsed)}, no JSON object")
    return parsed


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Unfit("a key appears twice in one object")
    return fields


def _integer(text: str) -> int:
    # how many digits Python itself takes is a setting of the process
    if len(text) > _LONGEST:
        raise ValueError
    return int(text)


def _no_constant(word: str) -> Any:
    raise Unfit(f"it is not JSON: {word} is no number there")


def _kind(value: Any) -> str:
    kinds = (
        (bool, "true or false"),
        (Instant, "a time"),
        (int, "a whole number"),
        ((float, Decimal), "a number with a point"),
        (str, "a text"),
        (date, "a date"),
        (bytes, "bytes"),
        ((list, tuple), "a list"),
        (dict, "an object"),
    )
    return next((words for kind, words in kinds if isinstance(value, kind)), "null")


# ------------------------------------------------------------------------------------------------ values
def _maker(type: Type, unit: str | None) -> Callable[[Any], Any]:
    """Conversion to values of a column of a type; it raises Unfit."""
    if type == TIMESTAMP:
        return lambda value: _instant(value, unit)
    if type.name == "long":
        most = INTEGERS.get(type, 1 << 63)
        return lambda value: _whole(value, most, type)
    if type.name == "decimal":
        return lambda value: _decimal(value, type)
    return {"boolean": _boolean, "double": _double, "string": _text, "date": _date}[type.name]


def _unfit(value: Any, expected: str) -> Unfit:
    return Unfit(f"{_kind(value)} where {expected} is expected")


def _boolean(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise _unfit(value, "true or false")


def _whole(value: Any, most: int, type: Type) -> int:
    if value.__class__ is not int:
        raise _unfit(value, "a whole number")
    if not -most <= value < most:
        raise Unfit(f"a number that no {type} holds")
    return int(value)


def _double(value: Any) -> float:
    if value.__class__ is float and (value == value and abs(value) != math.inf):
        return float(value)
    if value.__class__ not in (int, float, Decimal):
        raise _unfit(value, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    # Avro's doubles may be infinite or NaN, a number that is written in digits is not
    if math.isinf(number) and value.__class__ is not float:
        raise Unfit("a number that no double holds")
    return number


def _decimal(value: Any, type: Type) -> Decimal:
    if value.__class__ is str and _DECIMAL.fullmatch(value):
        value = Decimal(value)
    if value.__class__ is int and abs(value) < 10**38:
        value = Decimal(value)
    if value.__class__ is not Decimal:
        raise _unfit(value, "a decimal number, or a text of one,")
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise _unfit(value, "a decimal number")
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return Decimal(0)
    significant = text.rstrip("0")
    exponent += len(text) - len(significant)
    # digits behind the point, and before it
    if -exponent > type.scale or len(significant) + exponent > type.precision - type.scale:
        raise Unfit(f"a number that no {type} holds exactly")
    return Decimal((sign, tuple(map(int, significant)), exponent))


def _text(value: Any) -> str:
    if value.__class__ is not str:
        raise _unfit(value, "a text")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise Unfit("a text with half a character (a lone surrogate)") from None
    return str(value)


def _date(value: Any) -> date:
    if value.__class__ is date:
        return date.fromordinal(value.toordinal())
    if value.__class__ is str and _DATE.fullmatch(value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise Unfit("a date that no calendar has") from None
    raise _unfit(value, "a date like 2013-07-04")


def _instant(value: Any, unit: str | None) -> int:
    """Microseconds since 1970."""
    if value.__class__ is Instant:
        at = int(value)
    elif unit is not None and value.__class__ is int:
        above, below = TIME_UNITS[unit]
        at = value * above // below
    elif value.__class__ is str and _INSTANT.fullmatch(value):
        try:
            parsed = instant_of_text(value.replace(",", "."))
        except OverflowError:
            parsed = None
        if parsed is None:
            raise Unfit("a time that no calendar has")
        at = parsed
    else:
        written = (
            "a time in ISO 8601" if unit is None else f"a time in ISO 8601, or a whole number of {unit} since 1970,"
        )
        raise _unfit(value, written)
    if not FIRST <= at < LAST:
        raise Unfit("a time outside the years 1 to 9999")
    return at
