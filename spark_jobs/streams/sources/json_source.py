"""Reads JSON files: records in any layout, values strictly by their declared types, errors with line and place.

Each value is a text, and what is a value of which type is decided as in CSV
(:mod:`spark_jobs.streams.sources.csv_source`): numbers are read from their digits, so that no integer and no decimal
passes through a double. pyarrow's parser takes the blocks of which it is certain to return the same.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.workload.nested import Nested, Path
from optimizer.workload.nested import Path as ColumnPath
from optimizer.workload.values import TIMESTAMP, Stream, Type
from spark_jobs.store.storage import ObjectVersion
from spark_jobs.streams.sources.compression import codec_ending
from spark_jobs.streams.sources.csv_source import BOM, HEAD, first_bad, misfit
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.json_text import BLOCK, JsonRecord, Repeated, Walker, json_kind
from spark_jobs.streams.sources.leaves import Leaf, path_of
from spark_jobs.streams.sources.objects import opened
from spark_jobs.streams.sources.text_values import BITS, converter, instants_of_numbers, safe_decimal

ROWS = 8192
"""Records of a batch that are taken apart one by one."""

LAYOUTS = 1000
"""Sets of keys of records whose columns are known."""

_STRAY = re.compile(rb"\}[ \t\r\n]*null")
"""A null behind an object, which pyarrow's parser does not survive at the top; anything else there it refuses."""

_INFINITE = re.compile(rb"[:\[,][ \t\r\n]*-?Inf(?!inity)")
"""A number for pyarrow that is none for Python."""

_ESCAPED_LETTER = re.compile(rb"\\u(00[4-7]|212[aA])")
_NONE = re.compile(rb"(?!)")

_KELVIN = b"\xe2\x84\xaa"
"""The one character, besides letters of ASCII, whose small letter is one of ASCII."""


def read_json(
    stream: Stream,
    path: str,
    wanted: Sequence[str],
    version: ObjectVersion | None = None,
    block: int = BLOCK,
    is_quick: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Batches of the columns ``wanted``, in order, of the types that the stream declares. ``version``: of the file, if
    it is in a store; ``is_quick``: whether pyarrow parses what it can.

    Raises HDL-404 for a value that does not fit, HDL-456 for keys that stand twice or differ by case, and what
    :meth:`spark_jobs.streams.sources.json_text.Walker.walk` raises.
    """
    with opened(path, version, look=block < BLOCK) as file:
        yield from _batches(stream, path, wanted, file, block, is_quick)


def _batches(
    stream: Stream, path: str, wanted: Sequence[str], file: io.BufferedIOBase, block: int, is_quick: bool = True
) -> Iterator[pa.RecordBatch]:
    quick = QuickParser(stream, path, wanted) if is_quick else None
    rows = _Rows(stream, path, wanted)
    for record in Walker(stream.name, path, file, records_path(stream), quick, block).walk():
        if isinstance(record, JsonRecord):
            rows.add(record)
            if len(rows.lines) < min(ROWS, block) and rows.size < block:
                continue
        if rows.lines:
            yield rows.batch()
        if isinstance(record, pa.RecordBatch) and record.num_rows:
            yield record
    if rows.lines:
        yield rows.batch()


def last_json_times(stream: Stream, path: str, version: ObjectVersion | None = None) -> pa.Array | None:
    """The times in a file's last lines; None if it is not known to consist of lines."""
    if stream.source.records is not None or codec_ending(path):
        return None
    with opened(path, version, look=True) as file:
        if not file.read(HEAD).removeprefix(BOM).lstrip().startswith(b"{"):
            return None
        begin = max(0, file.seek(0, io.SEEK_END) - HEAD)
        file.seek(begin)
        data = file.read(HEAD)
    lines = io.BytesIO(data[data.find(b"\n") + 1 if begin else 0 :])
    try:
        times = [batch.column(0) for batch in _batches(stream, path, [stream.time], lines, BLOCK)]
    except HeddleError:
        return None
    return pa.concat_arrays(times) if times else None


def records_path(stream: Stream) -> tuple[str, ...]:
    """Return the keys that lead to the array of records in a file; none: its values are records."""
    records = stream.source.records
    return () if records is None else tuple(records.split("."))


# ------------------------------------------------------------------------------------------- one by one
@dataclass
class _Node:
    """The part of a value that is read: a plain value as the column of number ``leaf``, or values below it, by the
    names of fields, the keys of a map or the places in an array (``kind``). ``name``: of the column."""

    name: str
    kind: str = ""
    leaf: int | None = None
    inner: dict[str | int, _Node] = field(default_factory=dict)
    layouts: dict[tuple[str, ...], list[tuple[str, _Node]]] = field(default_factory=dict)


class _Misfit(ValueError):
    """A value (second) that does not fit the column of a node (first)."""


def _tree(stream: Stream, wanted: Sequence[str]) -> _Node:
    root = _Node("", "struct")
    for number, name in enumerate(wanted):
        path = path_of(stream, name)
        node, type_ = root, dict(stream.nested).get(path.root)
        for step in (path.root, *(step.value for step in path.steps)):
            if node is not root:
                assert isinstance(type_, Nested)
                node.kind = type_.kind
                type_ = type_.inner({"struct": str(step), "map": "value", "array": "element"}[type_.kind])  # type: ignore[assignment]
            node = node.inner.setdefault(step, _Node(name))
        node.leaf = number
    return root


class _Rows:
    """Values of records, as they are written, until they are made a batch."""

    def __init__(self, stream: Stream, path: str, wanted: Sequence[str]) -> None:
        self.stream, self.path, self.wanted = stream, path, wanted
        self.root = _tree(stream, wanted)
        self._begin()

    def _begin(self) -> None:
        self.values: list[list[str | None]] = [[] for _ in self.wanted]
        self.lines, self.places, self.size = list[int](), list[str](), 0

    def add(self, record: JsonRecord) -> None:
        """Add a record. Raises HDL-404 for an object or array in place of a value, HDL-456 for ambiguous keys."""
        for column, value in zip(self.values, self.row(record), strict=True):
            column.append(value)
            self.size += 0 if value is None else len(value)
        self.lines.append(record.line)
        self.places.append(record.place)

    def row(self, record: JsonRecord) -> list[str | None]:
        """The values of a record as texts. Raises as :meth:`add` does."""
        row: list[str | None] = [None] * len(self.wanted)
        try:
            self._take(self.root, record.value, row)
        except _Misfit as error:
            node, value = error.args
            raise self._misfit(node.name, record.line, record.place, value) from None
        except _Ambiguous as error:
            message = f"stream {self.stream.name}: {self.path}, line {record.line}, {record.place}: {error}"
            raise HeddleError("HDL-456", message, "rename one, or spell one as the stream declares it") from None
        return row

    def _take(self, node: _Node, value: Any, row: list[str | None]) -> None:
        if node.leaf is not None:
            if isinstance(value, bool):
                value = "true" if value else "false"
            elif not isinstance(value, str):
                raise _Misfit(node, value)
            row[node.leaf] = value
        elif node.kind == "array":
            if not isinstance(value, list):
                raise _Misfit(node, value)
            for at, inner in node.inner.items():
                if int(at) < len(value) and value[int(at)] is not None:
                    self._take(inner, value[int(at)], row)
        else:
            if not isinstance(value, dict):
                raise _Misfit(node, value)
            for key, inner in _layout(node, value):
                if value[key] is not None:
                    self._take(inner, value[key], row)

    def batch(self) -> pa.RecordBatch:
        """The records since the last batch. Raises HDL-404."""
        columns = [self._column(name, values) for name, values in zip(self.wanted, self.values, strict=True)]
        batch = pa.RecordBatch.from_arrays(columns, names=list(self.wanted))
        self._begin()
        return batch

    def _column(self, name: str, values: list[str | None]) -> pa.Array:
        try:
            texts = pa.array(values, pa.string())
        except UnicodeEncodeError:
            row = next(at for at, value in enumerate(values) if value is not None and not _is_text(value))
            raise self._misfit(name, self.lines[row], self.places[row], values[row]) from None
        convert = _conversion(self.stream, name)
        try:
            return convert(texts)
        except pa.ArrowInvalid:
            row = first_bad(texts, convert)
            raise self._misfit(name, self.lines[row], self.places[row], values[row]) from None

    def _misfit(self, name: str, line: int, place: str, value: Any) -> HeddleError:
        path = path_of(self.stream, name)
        place += "." + path.name(()) if isinstance(path, Path) else ""
        if isinstance(value, str) and _is_text(value):
            return misfit(self.stream, self.path, name, line, value, place)
        what = f"half of a character, {value[:60]!r}" if isinstance(value, str) else json_kind(value)
        type_ = self.stream.type_of(name)
        message = f"stream {self.stream.name}: column {name} of {self.path}, line {line}, {place}, does not fit its "
        message += f"declared type {type_}: {what}"
        if not isinstance(value, str):
            message += f" {printable(json.dumps(value), 60)}"
        hint = "correct the file" if isinstance(value, str) else "declare it as a struct, map or array, or leave it out"
        raise HeddleError("HDL-404", message, hint)


class RecordTexts:
    """The values of single records in some columns as texts, what they are, and the errors about them."""

    def __init__(self, stream: Stream, path: str, wanted: Sequence[str]) -> None:
        self._rows = _Rows(stream, path, wanted)
        self.conversions = [_conversion(stream, name) for name in wanted]

    def texts(self, record: JsonRecord) -> list[str | None]:
        """Texts in the order of the columns. Raises HDL-404 for what is no text of UTF-8, or no plain value, and
        HDL-456 for ambiguous keys."""
        row = self._rows.row(record)
        for name, value in zip(self._rows.wanted, row, strict=True):
            if value is not None and not _is_text(value):
                raise self.misfit(name, record.line, record.place, value)
        return row

    def misfit(self, name: str, line: int, place: str, value: str) -> HeddleError:
        """HDL-404 about a value of a column."""
        return self._rows._misfit(name, line, place, value)


class _Ambiguous(ValueError):
    """Keys that an object has twice, or that differ by case with none as declared."""


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _layout(node: _Node, value: dict[str, Any]) -> list[tuple[str, _Node]]:
    """The keys of an object, or of a map, that are read, and what below them. Raises :class:`_Ambiguous`."""
    keys = tuple(value)
    known = node.layouts.get(keys)
    if known is None:
        known = _looked_up(node, keys)
        if len(node.layouts) >= LAYOUTS:
            node.layouts.clear()
        node.layouts[keys] = known
    if isinstance(value, Repeated):
        repeated = next((key for key, _ in known if key in value.names), None)
        if repeated is not None:
            raise _Ambiguous(f"the key {printable(repeated, 60)} appears twice")
    return known


def _looked_up(node: _Node, keys: Sequence[str]) -> list[tuple[str, _Node]]:
    if node.kind == "map":
        return [(str(key), inner) for key, inner in node.inner.items() if str(key) in keys]
    by_case: dict[str, list[str]] = {}
    for key in keys:
        by_case.setdefault(key.lower(), []).append(key)
    known, exact = [], set(map(str, node.inner))
    for name, inner in node.inner.items():
        alike = [key for key in by_case.get(str(name).lower(), ()) if key == name or key not in exact]
        if name in alike:
            alike = [str(name)]
        if len(alike) > 1:
            raise _Ambiguous(f"keys {printable(alike[0], 60)} and {printable(alike[1], 60)} differ by case at most")
        known += [(key, inner) for key in alike]
    return known


def _conversion(stream: Stream, name: str) -> Any:
    """The conversion of texts of a column: that of CSV."""
    type_ = stream.type_of(name)
    assert type_ is not None
    if type_.name == "string" and stream.source.null:
        nulls = pa.array(stream.source.null, pa.string())
        return lambda texts: pc.if_else(pc.is_in(texts, nulls), pa.scalar(None, pa.string()), texts)
    return converter(stream, name, type_)


# ------------------------------------------------------------------------------------------- quickly
class QuickParser:
    """pyarrow's parser, for the blocks of which it returns what :class:`_Rows` would.

    It reads the declared columns in types that keep what is written: integers and decimals from their digits, times
    and dates as texts. It gives up if it fails, and if keys may be spelled in another case.
    """

    def __init__(self, stream: Stream, path: str, wanted: Sequence[str]) -> None:
        self.stream, self.path = stream, path
        self.paths = {name: path_of(stream, name) for name in wanted}
        self.conversions = {name: _conversion(stream, name) for name in wanted}
        try:
            fields = {name: _arrow_of(_tree(stream, wanted).inner[name], stream, wanted) for name in self._roots()}
            self.schema: pa.Schema | None = pa.schema(list(fields.items()))
        except _NotQuick:
            self.schema = None
        self.decimals = {} if self.schema is None else _decimals(stream, self.paths)

    def _roots(self) -> list[str]:
        return list(dict.fromkeys(path.root for path in self.paths.values()))

    def __call__(self, part: bytes, is_array: bool) -> pa.RecordBatch | None:
        """The records of complete lines, or of elements of an array with commas between them; None: not certain."""
        if self.schema is None or not _is_likely(part):
            return None
        schema = self.schema
        if is_array:
            part = b'{"r":[' + part + b"]}"
            schema = pa.schema([("r", pa.list_(pa.struct(list(schema))))])
        try:
            table = pj.read_json(
                pa.BufferReader(part),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(part) + 64),
                parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            ).combine_chunks()
            rows = _elements_of(table) if is_array else table
            return None if rows is None else self._batch(part, rows)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, HeddleError):
            return None

    def _batch(self, part: bytes, rows: pa.Table) -> pa.RecordBatch | None:
        columns, unsure = [], set[str]()
        for name, path in self.paths.items():
            values = rows.column(path.root)
            values = values.chunk(0) if values.num_chunks == 1 else pa.concat_arrays(values.chunks)
            if path.steps:
                values = Leaf(self.stream, self.path, path, values.type).values(values)
            if values.null_count:
                unsure |= {path.root, *(str(step.value) for step in path.steps if step.is_field)}
            column = self._converted(name, values)
            if column is None:
                return None
            columns.append(column)
        if unsure and not _is_spelled(part, unsure):
            return None
        if any(not _is_exact(part, key, pattern) for key, pattern in self.decimals.items()):
            return None
        return pa.RecordBatch.from_arrays(columns, names=list(self.paths))

    def _converted(self, name: str, values: pa.Array) -> pa.Array | None:
        type_ = self.stream.type_of(name)
        assert type_ is not None
        if pa.types.is_string(values.type):
            return self.conversions[name](values)
        if type_ == TIMESTAMP:
            return instants_of_numbers(values, str(self.stream.source.time_unit))
        if type_.name == "long" and BITS[type_.digits] < 64 and len(values) > values.null_count:
            most, bounds = 1 << (BITS[type_.digits] - 1), pc.min_max(values).as_py()
            if bounds["min"] < -most or bounds["max"] >= most:
                return None
        return values


def _decimals(stream: Stream, paths: Mapping[str, ColumnPath]) -> dict[bytes, re.Pattern[bytes]]:
    """The keys of decimals, each with the pattern of members that pyarrow reads without fault."""
    patterns: dict[bytes, re.Pattern[bytes]] = {}
    for name, path in paths.items():
        type_ = stream.type_of(name)
        if type_ is not None and type_.name == "decimal":
            key = json.dumps(str(path.steps[-1].value if path.steps else path.root)).encode()
            number = safe_decimal(arrow_type(type_)).replace("(", "(?:").encode()
            member = rb'[ \t\r\n]*:[ \t\r\n]*(?:null|"?%b"?)[ \t\r\n]*[,}]' % number
            # of two columns with one key nothing is certain
            patterns[key] = re.compile(re.escape(key) + member) if key not in patterns else _NONE
    return patterns


def _is_exact(part: bytes, key: bytes, pattern: re.Pattern[bytes]) -> bool:
    """Return whether pyarrow reads the decimals of a key in a block without fault: it loses digits of others."""
    if b"\\u" in part and _ESCAPED_LETTER.search(part):
        return False
    return part.count(key) == len(pattern.findall(part))


class _NotQuick(Exception):
    """pyarrow does not parse columns of such a type."""


def _arrow_of(node: _Node, stream: Stream, wanted: Sequence[str]) -> pa.DataType:
    """The Arrow type in which pyarrow reads what is below a value."""
    if node.leaf is not None:
        return _quick_type(stream, wanted[node.leaf])
    if node.kind == "struct":
        return pa.struct([(str(name), _arrow_of(inner, stream, wanted)) for name, inner in node.inner.items()])
    types = [_arrow_of(inner, stream, wanted) for inner in node.inner.values()]
    if node.kind == "map" or any(type_ != types[0] for type_ in types[1:]):
        raise _NotQuick
    return pa.list_(types[0])


def _quick_type(stream: Stream, name: str) -> pa.DataType:
    type_ = stream.type_of(name)
    assert isinstance(type_, Type)
    if type_ == TIMESTAMP and name == stream.time and stream.source.time_unit is not None:
        return pa.int64()
    return pa.string() if type_.name in ("string", "timestamp", "date") else arrow_type(type_)


def _is_likely(part: bytes) -> bool:
    """Return whether a block is one that pyarrow's parser may be given."""
    if not part.lstrip(b" \t\r\n").startswith(b"{") or _STRAY.search(part):
        return False
    if b"Inf" in part and _INFINITE.search(part):
        return False
    if part.isascii():
        return True
    try:
        part.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_spelled(part: bytes, names: Collection[str]) -> bool:
    """Return whether no key of a block is one of some names in another case."""
    if _KELVIN in part or (b"\\u" in part and _ESCAPED_LETTER.search(part)):
        return False
    lower = part.lower()
    for name in names:
        key = json.dumps(name).encode()
        if not name.isascii() or b"\\" in key or lower.count(key.lower()) != part.count(key):
            return False
    return True


def _elements_of(table: pa.Table) -> pa.Table | None:
    """The elements of the one array of a table; None: some are no objects."""
    if table.num_rows != 1:
        return None
    elements = table.column(0).chunk(0).flatten()
    if elements.null_count:
        return None
    return pa.table(elements.flatten(), names=[each.name for each in elements.type])
