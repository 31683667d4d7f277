"""Records in Avro's binary encoding, by one schema: no byte too few, none too many.

Why not Spark's own: its package for Avro is no part of its distribution, and takes bytes for a record that are longer
than one, so that a record with a header of a schema registry would be read as another one.

Why not fastavro (1.13.1): it reads damaged records without an error. A boolean byte of 7 is true, a negative symbol of
an enum counts from the end, a number of more than 64 bits is another number, and a decimal of more digits than its
precision is rounded. A record that nests a million deep ends the process with a segmentation fault.

What an array, a map or a nested record holds is read past: streams have plain columns.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Any

from optimizer.errors.diagnostics import HeddleError

DEEPEST = 20
"""Types in types of a schema."""

_EPOCH = date(1970, 1, 1).toordinal()

_INSTANTS = {"timestamp-micros": (1, 1), "timestamp-millis": (1000, 1), "timestamp-nanos": (1, 1000)}
"""Factor and divisor from the unit of a logical type to microseconds."""


class Unfit(Exception):
    """Reason why a record, or a value of it, does not fit; in words that follow a column's name."""


class Instant(int):
    """Microseconds since 1970, UTC: marks a value as a time."""


@dataclass(frozen=True)
class AvroSchema:
    """A schema of records as JSON text, checked by :meth:`of`. ``names``: of the record's fields."""

    text: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> AvroSchema:
        """A schema. Raises HDL-626 for what is none, or is no schema of a record."""
        try:
            schema = json.loads(text)
            if not isinstance(schema, dict) or schema.get("type") != "record":
                raise ValueError("it is no record")
            _reader_of(text)
            return cls(text, tuple(str(field["name"]) for field in schema["fields"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = str(error) if isinstance(error, ValueError) else f"a key is missing or wrong ({error})"
            raise HeddleError(
                "HDL-626", f"the Avro schema cannot be used: {reason}", "give that of the records"
            ) from None

    def decoded(self, content: bytes) -> dict[str, Any]:
        """The fields of a record by name: None, bool, int, float, str, bytes, Decimal, date or :class:`Instant`;
        nested ones as they are. Raises Unfit."""
        cursor = _Cursor(content)
        try:
            fields: dict[str, Any] = _reader_of(self.text)(cursor)
        except (IndexError, struct.error):
            raise Unfit("it ends before its Avro schema does") from None
        except RecursionError:
            raise Unfit("records in it are too deep") from None
        except UnicodeDecodeError:
            raise Unfit("a text of it is not UTF-8") from None
        if cursor.at != len(content):
            hint = "; it begins as a schema registry's does" if content[:1] == b"\0" else ""
            raise Unfit(f"it is longer than its Avro schema says{hint}")
        return fields


class _Cursor:
    """The bytes of a record, and how far they are read."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at, self.items = content, 0, 0

    def take(self, count: int) -> bytes:
        if count < 0 or self.at + count > len(self.content):
            raise IndexError
        self.at += count
        return self.content[self.at - count : self.at]

    def long(self) -> int:
        shift = number = 0
        while True:
            byte = self.content[self.at]
            self.at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 63:
                raise Unfit("a number of it has more than 64 bits")
        if number >> 64:
            raise Unfit("a number of it has more than 64 bits")
        return (number >> 1) ^ -(number & 1)


_Read = Callable[[_Cursor], Any]


@lru_cache(16)
def _reader_of(text: str) -> _Read:
    return _reader(json.loads(text), {}, "", 0)


def _boolean(cursor: _Cursor) -> bool:
    byte = cursor.take(1)
    if byte not in (b"\0", b"\1"):
        raise Unfit("a boolean of it is neither true nor false")
    return byte == b"\1"


_PLAIN: dict[str, _Read] = {
    "null": lambda cursor: None,
    "boolean": _boolean,
    "int": _Cursor.long,
    "long": _Cursor.long,
    "float": lambda cursor: struct.unpack("<f", cursor.take(4))[0],
    "double": lambda cursor: struct.unpack("<d", cursor.take(8))[0],
    "bytes": lambda cursor: cursor.take(cursor.long()),
    "string": lambda cursor: cursor.take(cursor.long()).decode("utf-8"),
}


def _reader(schema: Any, named: dict[str, _Read], space: str, depth: int) -> _Read:
    """Reader of values of a schema. Raises ValueError, KeyError or TypeError for an invalid schema."""
    if depth > DEEPEST:
        raise ValueError(f"types are more than {DEEPEST} deep")
    if isinstance(schema, list):
        branches = [_reader(branch, named, space, depth + 1) for branch in schema]
        return lambda cursor: _branch(branches, cursor)
    if isinstance(schema, str):
        # looked up when it is read: a type may name itself
        full = schema if "." in schema or not space else f"{space}.{schema}"
        if schema not in _PLAIN and full not in named:
            raise ValueError(f"it names no type {schema}")
        return _PLAIN.get(schema) or (lambda cursor: named[full](cursor))
    kind = schema["type"]
    if not isinstance(kind, str):
        return _reader(kind, named, space, depth + 1)
    if kind in ("record", "enum", "fixed"):
        return _named(schema, kind, named, space, depth)
    if kind == "array":
        item = _reader(schema["items"], named, space, depth + 1)
        return lambda cursor: _blocks(item, cursor)
    if kind == "map":
        value = _reader(schema["values"], named, space, depth + 1)
        return lambda cursor: _blocks(lambda of: (_PLAIN["string"](of), value(of)), cursor)
    return _logical(schema, _reader(kind, named, space, depth + 1))


def _named(schema: dict[str, Any], kind: str, named: dict[str, _Read], space: str, depth: int) -> _Read:
    name = str(schema["name"])
    space = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", space))
    full = name if "." in name or not space else f"{space}.{name}"
    if kind == "record":
        fields: list[tuple[str, _Read]] = []
        read: _Read = lambda cursor: {field: reads(cursor) for field, reads in fields}  # noqa: E731
        named[full] = read
        fields += [(str(field["name"]), _reader(field["type"], named, space, depth + 1)) for field in schema["fields"]]
        return read
    if kind == "enum":
        symbols = [str(symbol) for symbol in schema["symbols"]]
        named[full] = lambda cursor: _symbol(symbols, cursor)
        return named[full]
    size = int(schema["size"])
    named[full] = _logical(schema, lambda cursor: cursor.take(size))
    return named[full]


def _branch(branches: list[_Read], cursor: _Cursor) -> Any:
    number = cursor.long()
    if not 0 <= number < len(branches):
        raise Unfit("it has a branch of a union that there is not")
    return branches[number](cursor)


def _symbol(symbols: list[str], cursor: _Cursor) -> str:
    number = cursor.long()
    if not 0 <= number < len(symbols):
        raise Unfit("it has a symbol of an enum that there is not")
    return symbols[number]


def _blocks(item: _Read, cursor: _Cursor) -> list[Any]:
    items: list[Any] = []
    while count := cursor.long():
        if count < 0:
            # its size in bytes, which is of no use here
            cursor.long()
        cursor.items += abs(count)
        if cursor.items > len(cursor.content):
            raise Unfit("it has a list that is longer than itself")
        items += [item(cursor) for _ in range(abs(count))]
    return items


def _logical(schema: dict[str, Any], plain: _Read) -> _Read:
    """Reader of values of a logical type; unknown types are read as encoded."""
    logical = schema.get("logicalType")
    if logical in _INSTANTS and schema["type"] == "long":
        above, below = _INSTANTS[logical]
        return lambda cursor: Instant(plain(cursor) * above // below)
    if logical == "date" and schema["type"] == "int":
        return lambda cursor: _date(plain(cursor))
    if logical == "decimal" and schema["type"] in ("bytes", "fixed"):
        scale = int(schema.get("scale", 0))
        return lambda cursor: _decimal(int.from_bytes(plain(cursor), "big", signed=True), scale)
    return plain


def _date(days: int) -> date:
    try:
        return date.fromordinal(_EPOCH + days)
    except (ValueError, OverflowError):
        raise Unfit("a date of it is outside the years 1 to 9999") from None


def _decimal(unscaled: int, scale: int) -> Decimal:
    if abs(unscaled) >= 10**76:
        raise Unfit("a decimal of it has too many digits")
    return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))
