"""Guess the layout, the columns and their types of undeclared JSON files from the beginning of some files.

Values that are read with the guess are still checked one by one (:mod:`spark_jobs.streams.sources.json_source`).
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.expression import DECIMAL_DIGITS
from optimizer.workload.nested import DEEPEST, Nested, Step
from optimizer.workload.nested import Path as ColumnPath
from optimizer.workload.values import BOOLEAN, DATE, DOUBLE, LONG, STRING, TIMESTAMP, Type, decimal
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources.csv_guess import GuessedColumn, Head, guess_column, head_of, is_nameable, left_out
from spark_jobs.streams.sources.json_text import DECODER, JsonRecord, Number, Walker

ROWS = 2000
"""Records of a file that are looked at."""

MOST_FIELDS = 200
"""Fields of a nested column that is proposed."""

ENVELOPES = 3
"""Objects in one another in which an array of records is looked for."""

_SPACE = re.compile(r"[ \t\r\n]*")
_INTEGER = re.compile(r"-?[0-9]+")


@dataclass(frozen=True)
class JsonGuess:
    """Guess for JSON files.

    - ``records``: the keys that lead to the array of records; None: the values of a file are records;
    - ``columns``: the plain columns; ``nested``: the others; ``fields``: plain values inside structs, by their names;
    - ``unused``: keys whose values are always null, or of several kinds;
    - ``row_bytes``: approximate size of a record.
    """

    records: str | None
    columns: tuple[GuessedColumn, ...]
    nested: tuple[tuple[str, Nested], ...]
    fields: tuple[GuessedColumn, ...]
    unused: tuple[str, ...]
    row_bytes: float


def guess_json(paths: Sequence[Path | Place], records: str | None = None) -> JsonGuess:
    """Guess what some files of one kind hold. ``records``: the path to their records, if it is known.

    Raises HDL-135 for files that are no JSON in UTF-8, or have no records.
    """
    heads = [(path, head_of(path, ends_in_line=False)) for path in paths]
    heads = [(path, head) for path, head in heads if head.text.strip()]
    if not heads:
        raise HeddleError("HDL-135", f"{paths[0]} is empty", "name another file, or wait until it has events")
    if records is None:
        records = next((keys for _, head in heads if (keys := _records_path(head)) is not None), None)
    rows, size, share = list[dict[str, Any]](), 0.0, 0
    for path, head in heads:
        records_of_file, used = _sampled(path, head, records)
        rows += records_of_file
        size, share = size + head.stored * used / max(1, len(head.text.encode())), share + len(records_of_file)
    if not rows:
        raise HeddleError("HDL-135", f"{heads[0][0]} has no records", "each record is a JSON object")
    names = list(dict.fromkeys(key for row in rows for key in row))
    unnameable = set(left_out(names))
    columns, nested, fields = list[GuessedColumn](), list[tuple[str, Nested]](), list[GuessedColumn]()
    unused = list(unnameable)
    for name in names:
        if name in unnameable:
            continue
        shape = _shape([row.get(name) for row in rows])
        if isinstance(shape, _Plain):
            columns.append(shape.column(name))
        elif shape is None or shape.type.leaves > MOST_FIELDS:
            unused.append(name)
        else:
            nested.append((name, shape.type))
            fields += _fields(shape, ColumnPath(name, ()), names)
    return JsonGuess(records, tuple(columns), tuple(nested), tuple(fields), tuple(unused), size / max(1, share))


def _sampled(path: Path | Place, head: Head, records: str | None) -> tuple[list[dict[str, Any]], int]:
    """Records at the beginning of a file, and how many bytes of text they take."""
    keys = () if records is None else tuple(records.split("."))
    walker = Walker("", str(path), io.BytesIO(head.text.encode()), keys)
    rows, used = list[dict[str, Any]](), 0
    try:
        for record in walker.walk():
            if isinstance(record, JsonRecord):
                rows.append(record.value)
            used = walker.consumed
            if len(rows) >= ROWS:
                return rows, used
    except HeddleError as error:
        # what ends where the beginning ends may go on
        if head.is_all or not rows:
            message = error.diagnostic.message.removeprefix("stream : ")
            raise HeddleError("HDL-135", message, error.diagnostic.hint) from None
    return rows, len(head.text.encode()) if head.is_all else used


def _records_path(head: Head) -> str | None:
    """The keys that lead to an array of objects, if a file is one object that has such an array."""
    text = head.text
    at = _skipped(text, 0)
    if not text.startswith("{", at):
        return None
    try:
        _, end = DECODER.raw_decode(text, at)
        if text[_skipped(text, end) :]:
            return None
    except (ValueError, RecursionError):
        if head.is_all:
            return None
    path = _array_in(text, at, 0)
    return None if path is None else ".".join(path)


def _array_in(text: str, at: int, depth: int) -> list[str] | None:
    """The keys from an object on to the first array of objects; the text may end anywhere."""
    at = _skipped(text, at + 1)
    try:
        while text.startswith('"', at):
            key, at = DECODER.raw_decode(text, at)
            at = _skipped(text, _skipped(text, at) + 1)
            is_key = "." not in key and is_nameable(key)
            if is_key and text.startswith("[", at) and text.startswith("{", _skipped(text, at + 1)):
                return [str(key)]
            if is_key and text.startswith("{", at) and depth + 1 < ENVELOPES:
                inner = _array_in(text, at, depth + 1)
                if inner is not None:
                    return [str(key), *inner]
            _, at = DECODER.raw_decode(text, at)
            at = _skipped(text, _skipped(text, at) + 1)
    except (ValueError, RecursionError):
        return None
    return None


def _skipped(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


# ------------------------------------------------------------------------------------------- shapes
@dataclass
class _Plain:
    """Plain values: as texts, null where there is none; and whether they are numbers, texts or booleans."""

    texts: list[str | None]
    kinds: frozenset[str]

    def column(self, name: str) -> GuessedColumn:
        """The guessed column of the values."""
        if self.kinds == {"boolean"}:
            return GuessedColumn(name, BOOLEAN, pa.array(self.texts, pa.string()))
        if self.kinds == {"number"}:
            return GuessedColumn(name, self._number(), pa.array(self.texts, pa.string()))
        if "boolean" in self.kinds:
            return GuessedColumn(name, STRING, pa.array(self.texts, pa.string()))
        guessed = guess_column(name, [text or "" for text in self.texts])
        if guessed.type not in (BOOLEAN, LONG, DOUBLE):
            return guessed
        if "number" not in self.kinds:
            # texts of digits are names of things; with a point they are numbers that are written exactly
            has_point = any(text is not None and "." in text for text in self.texts)
            is_number = guessed.type == DOUBLE and has_point
            return guessed if is_number else GuessedColumn(name, STRING, pa.array(self.texts, pa.string()))
        return GuessedColumn(name, self._number(), guessed.texts, null=guessed.null)

    def _number(self) -> Type:
        known = [text for text in self.texts if isinstance(text, Number)]
        if not all(map(_INTEGER.fullmatch, known)):
            return DOUBLE
        digits = max(len(text.lstrip("-")) for text in known)
        if digits < 19 or all(-(1 << 63) <= int(text) < 1 << 63 for text in known if len(text) < 40):
            return LONG if digits < 40 else DOUBLE
        return decimal(DECIMAL_DIGITS, 0) if digits <= DECIMAL_DIGITS else DOUBLE

    @property
    def type(self) -> Type:
        """The type of values that are nobody's time."""
        type_ = self.column("").type
        return STRING if type_ in (DATE, TIMESTAMP) else type_


@dataclass
class _Shape:
    """Objects, or arrays (without ``fields``)."""

    type: Nested
    fields: dict[str, _Plain | _Shape] = field(default_factory=dict)


def _shape(values: Sequence[Any], depth: int = 0) -> _Plain | _Shape | None:
    """The kind of some values; None: they are of several kinds, or there are none."""
    known = [value for value in values if value is not None]
    kinds = {type(value) if isinstance(value, (dict, list)) else str for value in known}
    if len({dict if issubclass(kind, dict) else kind for kind in kinds}) != 1 or depth > DEEPEST:
        return None
    if isinstance(known[0], list):
        element = _shape([each for value in known for each in value][:ROWS], depth + 1)
        return None if element is None else _Shape(Nested("array", (("element", _untimed(element.type)),)))
    if isinstance(known[0], dict):
        fields = {}
        names = list(dict.fromkeys(key for value in known for key in value))
        unnameable = set(left_out(names))
        for name in (name for name in names if name not in unnameable):
            inner = _shape([None if value is None else value.get(name) for value in values], depth + 1)
            if inner is not None:
                fields[name] = inner
        types = tuple((name, _leaf_type(inner)) for name, inner in fields.items())
        return _Shape(Nested("struct", types), fields) if fields else None
    return _Plain(list(map(_text, values)), frozenset(map(_kind, known)))


def _untimed(type_: Type | Nested) -> Type | Nested:
    """A type with texts in place of times: in arrays nobody knows yet how they are written."""
    if isinstance(type_, Nested):
        return Nested(type_.kind, tuple((name, _untimed(inner)) for name, inner in type_.fields))
    return STRING if type_ in (DATE, TIMESTAMP) else type_


def _leaf_type(shape: _Plain | _Shape) -> Type | Nested:
    return shape.column("").type if isinstance(shape, _Plain) else shape.type


def _fields(shape: _Shape, path: ColumnPath, plain: Sequence[str]) -> Iterator[GuessedColumn]:
    """The plain values inside structs, as columns."""
    for name, inner in shape.fields.items():
        below = ColumnPath(path.root, (*path.steps, Step(True, name)))
        if isinstance(inner, _Plain):
            yield inner.column(below.name(plain))
        else:
            yield from _fields(inner, below, plain)


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return json.dumps(value)
    if value is None or isinstance(value, Number) or value.isascii():
        return value
    # half of a character is no text
    return str(value).encode(errors="replace").decode()


def _kind(value: Any) -> str:
    return "boolean" if isinstance(value, bool) else "number" if isinstance(value, Number) else "text"
