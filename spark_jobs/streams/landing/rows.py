"""Read a file row by row, as sources are read, except that a row that does not fit ends nothing.

Most files fit completely: they are read first as a run reads them. Only if that fails is a file read again record by
record, by slower readers that set aside what does not fit, with its line and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.nested import Nested, leaf_names
from optimizer.workload.values import Stream, Type
from spark_jobs.streams.landing.json_records import JsonPiece, of_lines, of_walker
from spark_jobs.streams.sources.conversions import arrow_type
from spark_jobs.streams.sources.csv_source import misfit, read_apart
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.json_source import RecordTexts, records_path
from spark_jobs.streams.sources.json_text import JsonRecord
from spark_jobs.streams.sources.partition_columns import column_of, in_files
from spark_jobs.streams.sources.splits import FIRST, LAST, Split, failures_of
from spark_jobs.streams.sources.text_values import converter

BEGINNING = 65_536
"""Bytes that are stored of a row that does not fit."""

PIECES = 4096
"""Rows that the slower readers take at once."""


class Misfit(NamedTuple):
    """A row that does not fit: its number in the file (from 1), its line (from 1), the reason, its first bytes and its
    size in bytes. Without a number and a line: the entire file."""

    row: int | None
    line: int | None
    why: str
    value: bytes
    size: int


class _Piece(NamedTuple):
    """A row as it is written: its first line, its first bytes, its size in bytes."""

    line: int
    content: bytes
    size: int


class FileRows(NamedTuple):
    """Rows of a file that fit, in the columns of the table, with their numbers in the file (from 1); and those that do
    not."""

    rows: pa.RecordBatch
    numbers: pa.Array
    misfits: list[Misfit]


@dataclass(frozen=True)
class RowReader:
    """Reads the rows of a stream's files. ``stream``: of CSV or JSON files, whose columns are known."""

    stream: Stream

    @property
    def leaves(self) -> list[str]:
        """The plain columns, and the leaves of structs."""
        nested = [leaf for name, type_ in self.stream.nested for leaf in leaf_names(name, type_)]
        return [*dict(self.stream.schema), *nested]

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows. Raises HDL-474 for maps and arrays."""
        fields = [(name, arrow_type(type_)) for name, type_ in self.stream.schema]
        return pa.schema([*fields, *((name, self._arrow(name, type_)) for name, type_ in self.stream.nested)])

    def _arrow(self, name: str, type_: Type | Nested) -> pa.DataType:
        if isinstance(type_, Type):
            return arrow_type(type_)
        if type_.kind != "struct":
            message = f"stream {self.stream.name}: column {name} is {type_}, and only plain values and structs land"
            raise HeddleError("HDL-474", message, "leave it out of the `schema`, or read the files themselves")
        return pa.struct([(field, self._arrow(f"{name}.{field}", inner)) for field, inner in type_.fields])

    def ways(self, split: Split) -> list[Callable[[], Iterator[FileRows]]]:
        """Ways to read a file, the quickest first. Each is tried if that before it raised a coded error."""
        by_format = {"csv": self._ways_of_csv, "json": self._ways_of_json}
        return [lambda: self._strictly(split), *by_format[self.stream.source.format](split)]

    def _ways_of_csv(self, split: Split) -> list[Callable[[], Iterator[FileRows]]]:
        return [lambda: self._csv(split)]

    def _ways_of_json(self, split: Split) -> list[Callable[[], Iterator[FileRows]]]:
        ways = [lambda: self._json(split, of_walker(self.stream, split))]
        if not records_path(self.stream):
            ways.append(lambda: self._json(split, of_lines(self.stream, split)))
        return ways

    # ------------------------------------------------------------------------------------------- quickly
    def _strictly(self, split: Split) -> Iterator[FileRows]:
        """Rows as runs read them. Raises what reading does, and HDL-410 for a row without a usable time."""
        seen = 0
        for batch in read_split(self.stream, split, self.leaves):
            if not pc.all(self._is_timed(batch.column(self.stream.time)), min_count=0).as_py():
                raise HeddleError("HDL-410", f"stream {self.stream.name}: {split.path} has rows without a usable time")
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            numbers = pa.array(np.arange(seen + 1, seen + len(batch) + 1))
            seen += len(batch)
            yield FileRows(self._assembled(columns, len(batch)), numbers, [])

    @staticmethod
    def _is_timed(times: pa.Array) -> pa.Array:
        at = times.cast(pa.int64())
        return pc.fill_null(pc.and_(pc.greater_equal(at, FIRST), pc.less(at, LAST)), False)

    def _assembled(self, columns: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
        """The columns of the table from the leaves."""
        arrays = [columns[name] for name, _ in self.stream.schema]
        for name, type_ in self.stream.nested:
            leaves = iter([columns[leaf] for leaf in leaf_names(name, type_)])
            arrays.append(_struct(type_, leaves))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    # ------------------------------------------------------------------------------------- row by row
    def _columns_of_file(self, split: Split) -> tuple[Stream, list[str]]:
        """The stream as the file has it, and the columns that are read of it, also those that its folder has too."""
        names = {name for name, _ in split.folders}
        stream, both = in_files(self.stream), set[str]()
        if names and format_of(stream).reads_fields:
            both = names
        elif names and stream.source.header:
            both = names.intersection(format_of(stream).column_names(stream, split))
        known = [(name, type_) for name, type_ in self.stream.schema if name in both]
        stream = replace(stream, schema=(*stream.schema, *known))
        return stream, [name for name in self.leaves if name not in names or name in both]

    def _csv(self, split: Split) -> Iterator[FileRows]:
        with failures_of(self.stream, split.path):
            stream, names_read = self._columns_of_file(split)
            conversions = [converter(stream, name, _type(stream, name)) for name in names_read]
            seen = 0
            for records, fields in read_apart(stream, split.path, names_read, split.version, PIECES):
                good = [at for at, record in enumerate(records) if record.problem is None]

                def problem(column: int, row: int, value: Any, records: Any = records, good: Any = good) -> HeddleError:
                    text = value.decode(errors="replace") if isinstance(value, bytes) else value
                    if isinstance(value, bytes):
                        message = f"stream {stream.name}: column {names_read[column]} of {split.path}, line "
                        return HeddleError("HDL-420", f"{message}{records[good[row]].line}, is not UTF-8")
                    return misfit(stream, split.path, names_read[column], records[good[row]].line, text)

                why = {at: record.problem for at, record in enumerate(records) if record.problem is not None}
                columns, bad = _converted(fields, conversions, problem)
                why |= {good[row]: error for row, error in bad.items()}

                def piece(at: int, records: Any = records) -> _Piece:
                    return _Piece(records[at].line, records[at].beginning, records[at].size)

                yield self._rows(split, dict(zip(names_read, columns, strict=True)), good, why, piece, seen)
                seen += len(records)

    def _json(self, split: Split, records: Iterator[JsonPiece]) -> Iterator[FileRows]:
        with failures_of(self.stream, split.path):
            stream, names_read = self._columns_of_file(split)
            of_records = RecordTexts(stream, split.path, names_read)
            seen, batch, size = 0, list[JsonPiece](), 0
            for record in records:
                batch.append(record)
                size += len(record.text)
                if len(batch) == PIECES or size > 4 << 20:
                    yield self._json_rows(split, names_read, of_records, batch, seen)
                    seen, batch, size = seen + len(batch), [], 0
            if batch:
                yield self._json_rows(split, names_read, of_records, batch, seen)

    def _json_rows(
        self, split: Split, names_read: list[str], of_records: RecordTexts, pieces: list[JsonPiece], seen: int
    ) -> FileRows:
        texts: list[list[str | None]] = [[] for _ in names_read]
        good, why = list[int](), dict[int, HeddleError]()
        for at, piece in enumerate(pieces):
            try:
                row = of_records.texts(_record(self.stream, split, piece))
            except HeddleError as error:
                why[at] = error
                continue
            good.append(at)
            for column, value in zip(texts, row, strict=True):
                column.append(value)

        def problem(column: int, row: int, value: Any) -> HeddleError:
            piece = pieces[good[row]]
            return of_records.misfit(names_read[column], piece.line, piece.place, value)

        arrays = [pa.array(column, pa.string()) for column in texts]
        columns, bad = _converted(arrays, of_records.conversions, problem)
        why |= {good[row]: error for row, error in bad.items()}

        def stored(at: int) -> _Piece:
            content = pieces[at].text.encode(errors="surrogateescape")
            return _Piece(pieces[at].line, content, len(content))

        return self._rows(split, dict(zip(names_read, columns, strict=True)), good, why, stored, seen)

    def _rows(
        self,
        split: Split,
        columns: dict[str, pa.Array],
        good: list[int],
        why: dict[int, HeddleError],
        piece: Callable[[int], _Piece],
        seen: int,
    ) -> FileRows:
        """Rows of some pieces of a file, from row ``seen`` on. ``good``: which of them the ``columns`` have;
        ``why``: which do not fit, also of these."""
        for name, _ in split.folders:
            of_folder = column_of(self.stream, split, name, len(good))
            for row in _different(columns.get(name), of_folder):
                message = f"column {name} of {split.path}, line {piece(good[row]).line}, differs from its folder"
                why.setdefault(good[row], HeddleError("HDL-487", f"stream {self.stream.name}: {message}"))
            columns[name] = of_folder
        timed = self._is_timed(columns[self.stream.time]).to_pylist()
        for row, at in enumerate(good):
            if not timed[row] and at not in why:
                message = f"column {self.stream.time} of {split.path}, line {piece(at).line}, has no usable time"
                why[at] = HeddleError("HDL-410", f"stream {self.stream.name}: {message}")
        fits = pa.array([at not in why for at in good], pa.bool_())
        numbers = pa.array([seen + at + 1 for at in good], pa.int64()).filter(fits)
        misfits = [
            Misfit(seen + at + 1, line, _reason(self.stream, split, error), content[:BEGINNING], size)
            for at, error in sorted(why.items())
            for line, content, size in [piece(at)]
        ]
        return FileRows(self._assembled(columns, len(good)).filter(fits), numbers, misfits)


def as_a_whole(stream: Stream, split: Split, error: HeddleError) -> Misfit:
    """A file that cannot be read as records. Raises OSError if its bytes cannot be read either."""
    path = Path(split.path)
    with path.open("rb") as file:
        beginning = file.read(BEGINNING)
    return Misfit(None, None, _reason(stream, split, error), beginning, path.stat().st_size)


def _reason(stream: Stream, split: Split, error: HeddleError) -> str:
    """A reason without what the quarantine says in its other columns."""
    message = error.diagnostic.message.removeprefix(f"stream {stream.name}: ").replace(split.path, "the file")
    return f"{error.code} {message}"


def _different(of_file: pa.Array | None, of_folder: pa.Array) -> list[int]:
    """The rows in which a file has another value than its folder; null is none."""
    if of_file is None:
        return []
    same = pc.fill_null(pc.equal(of_file, of_folder), False)
    return list(np.flatnonzero(pc.and_(of_file.is_valid(), pc.invert(same)).to_numpy(zero_copy_only=False)))


def _type(stream: Stream, name: str) -> Type:
    type_ = stream.type_of(name)
    assert type_ is not None
    return type_


def _record(stream: Stream, split: Split, piece: JsonPiece) -> JsonRecord:
    """A piece as a record. Raises HDL-481 and HDL-420 for a piece that is none."""
    if piece.problem is not None:
        message = f"stream {stream.name}: {split.path}, line {piece.line}: {piece.problem}"
        raise HeddleError(piece.code, message)
    return JsonRecord(piece.value, piece.line, piece.place)


def _struct(type_: Type | Nested, leaves: Iterator[pa.Array]) -> pa.Array:
    """A column of structs from the columns of its leaves, in their order. No struct is null, its fields are."""
    if isinstance(type_, Type):
        return next(leaves)
    fields = [_struct(inner, leaves) for _, inner in type_.fields]
    return pa.StructArray.from_arrays(fields, [name for name, _ in type_.fields])


_Problem = Callable[[int, int, Any], HeddleError]
"""The error about a value, by the numbers of its column and row."""


def _converted(
    texts: Sequence[pa.Array], conversions: Sequence[Callable[[pa.Array], pa.Array]], problem: _Problem
) -> tuple[list[pa.Array], dict[int, HeddleError]]:
    """Columns of values, null where they do not fit, and why of each row where one does not: of the first column."""
    columns, why = [], dict[int, HeddleError]()
    for number, (column, convert) in enumerate(zip(texts, conversions, strict=True)):
        if pa.types.is_binary(column.type):
            column = _each(column, lambda some: some.cast(pa.string()), number, problem, why)
        columns.append(_each(column, convert, number, problem, why))
    return columns, why


def _each(
    values: pa.Array,
    convert: Callable[[pa.Array], pa.Array],
    column: int,
    problem: _Problem,
    why: dict[int, HeddleError],
) -> pa.Array:
    """Values converted, null where they cannot be: halves are converted until the misfits are alone."""
    nothing = convert(values.slice(0, 0))
    pieces, pending = [nothing], [(0, len(values))]
    while pending:
        begin, end = pending.pop()
        try:
            pieces.append(convert(values.slice(begin, end - begin)))
        except pa.ArrowInvalid:
            if end - begin > 1:
                middle = (begin + end) // 2
                pending += [(middle, end), (begin, middle)]
                continue
            pieces.append(pa.nulls(1, nothing.type))
            if begin not in why:
                why[begin] = problem(column, begin, values[begin].as_py())
    return pa.concat_arrays(pieces)
