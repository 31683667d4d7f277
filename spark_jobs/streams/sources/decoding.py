"""Reads splits: every value checked against its column's type; schemas that nobody declared."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.attributes import attributes_in, columns_read
from optimizer.workload.expression import DECIMAL_DIGITS, unified
from optimizer.workload.instants import DAY
from optimizer.workload.nested import MOST_LEAVES, Nested
from optimizer.workload.partitions import folder_names
from optimizer.workload.streams import with_schema
from optimizer.workload.values import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INT,
    LONG,
    SECOND,
    SHORT,
    STRING,
    TIMESTAMP,
    Stream,
    Type,
    decimal,
)
from spark_jobs.store.read_ahead import read_ahead
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources.dimension_rows import with_attributes
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.leaves import nested_of_arrow
from spark_jobs.streams.sources.partition_columns import (
    check_same,
    column_of,
    in_files,
    partition_types,
    value_of,
)
from spark_jobs.streams.sources.splits import FIRST, INTEGERS, LAST, Split, column_places, failures_of
from spark_jobs.streams.sources.text_values import instants_of_numbers, instants_of_texts


def discover_schema(stream: Stream) -> tuple[Stream, tuple[Diagnostic, ...]]:
    """Give a stream without a schema the one that its files declare: each column gets the type that fits the values of
    every file. A column without such a type is skipped and reported (HDL-431).

    Raises HDL-406 for a format that declares none, and the errors of :func:`optimizer.workload.streams.with_schema` and
    of listing.
    """
    with failures_of(stream, stream.source.path):
        schemas = format_of(stream).schemas(stream)
        of_folders = folder_columns(stream)
    if not schemas:
        message = f"stream {stream.name}: {stream.source.path} holds no data to take a schema from"
        raise HeddleError("HDL-401", message, "give it a `schema`")
    known, warnings = discovered_types(stream, schemas, of_folders)
    if format_of(stream).is_schema_sampled:
        message = f"stream {stream.name}: its schema is that of a sample of {stream.source.path}"
        hint = "declare a `schema`: `heddle init` proposes one; other values are errors, and other keys are not seen"
        warnings = (*warnings, Diagnostic("HDL-482", message, hint, severity="warning"))
    return known, warnings


def discovered_types(
    stream: Stream, schemas: Mapping[str, pa.Schema], of_folders: Sequence[tuple[str, Type]] = ()
) -> tuple[Stream, tuple[Diagnostic, ...]]:
    """A stream with the columns that the ``schemas`` of its files have in common, as :func:`discover_schema`, and those
    of its folders.
    """
    pairs, nested, diagnostics = common_columns(stream, schemas, of_folders)
    return with_schema(stream, pairs, nested), diagnostics


def folder_columns(stream: Stream) -> list[tuple[str, Type]]:
    """The columns that the names of a stream's folders have, with their types. Raises what listing raises."""
    return partition_types(stream, format_of(stream).files(stream).names) if stream.source.partitions else []


def common_columns(
    stream: Stream, schemas: Mapping[str, pa.Schema], of_folders: Sequence[tuple[str, Type]] = ()
) -> tuple[list[tuple[str, Type]], list[tuple[str, Nested]], tuple[Diagnostic, ...]]:
    """The plain and the nested columns that the ``schemas`` of a stream's files have in common, and what is left out.

    ``of_folders``: columns that the names of their folders have. Raises HDL-431 if no type holds all of its times.
    """
    in_folders = {name.lower() for name, _ in of_folders}
    names: dict[str, str] = {}
    types_and_paths: dict[str, tuple[Type | Nested | None, str]] = {}
    diagnostics: dict[str, Diagnostic] = {}
    for path, schema in schemas.items():
        column_places(stream, path, schema.names, schema.names)
        for field in schema:
            # what no declared schema could name cannot be used either
            if pa.types.is_null(field.type) or not (field.name.isprintable() and 0 < len(field.name) <= 255):
                continue
            if field.name.lower() in in_folders:
                continue
            name = names.setdefault(field.name.lower(), field.name)
            type = nested_of_arrow(field.type, type_of_arrow)
            before, first = types_and_paths.setdefault(name, (type, path))
            if type == before:
                continue
            lost: list[str] = []
            common = None if type is None or before is None else _merged(before, type, name, lost)
            for left_out in lost if common is not None else [name]:
                message = (
                    f"stream {stream.name}: column {left_out} is left out: no type holds that of {first} and {path}"
                )
                hint = "declare a `schema` with the columns that are used, or correct the file"
                diagnostics.setdefault(left_out, Diagnostic("HDL-431", message, hint, severity="warning"))
            types_and_paths[name] = (common, path)
    if stream.time in diagnostics:
        raise HeddleError.of(replace(diagnostics[stream.time], severity="error"))
    pairs = [(name, type) for name, (type, _) in types_and_paths.items() if isinstance(type, Type)]
    nested, leaves = list[tuple[str, Nested]](), 0
    for name, (type, _) in types_and_paths.items():
        if isinstance(type, Nested) and leaves + type.leaves > MOST_LEAVES:
            message = f"stream {stream.name}: column {name} is left out: there are more than {MOST_LEAVES} fields"
            diagnostics[name] = Diagnostic(
                "HDL-431", message, "declare a `schema` with those that are used", severity="warning"
            )
        elif isinstance(type, Nested):
            nested, leaves = [*nested, (name, type)], leaves + type.leaves
    return [*pairs, *of_folders], nested, tuple(diagnostics.values())


def _merged(left: Type | Nested, right: Type | Nested, name: str, lost: list[str]) -> Type | Nested | None:
    """A type for the values of both, without the fields (added to ``lost``) that have none."""
    if isinstance(left, Type) and isinstance(right, Type):
        return _common(left, right)
    if not (isinstance(left, Nested) and isinstance(right, Nested) and left.kind == right.kind):
        return None
    names = {inner.lower(): inner for inner, _ in (*right.fields, *left.fields)}
    sides = [{inner.lower(): type for inner, type in side.fields} for side in (left, right)]
    fields = []
    for lower in dict.fromkeys((*sides[0], *sides[1])):
        both = [side[lower] for side in sides if lower in side]
        inner = f"{name}.{names[lower]}"
        type = both[0] if len(both) == 1 else _merged(both[0], both[1], inner, lost)
        if type is not None:
            fields.append((names[lower], type))
        else:
            lost.append(inner)
    complete = fields and (left.kind == "struct" or len(fields) == len(left.fields))
    return Nested(left.kind, tuple(fields)) if complete else None


def _common(left: Type, right: Type) -> Type | None:
    """The type in which all values of both are read, or refused one by one; None if there is none."""
    unified_type = unified([left, right])
    if unified_type is None or any(
        type.name != unified_type.name and (type.name, unified_type.name) not in _WIDENING for type in (left, right)
    ):
        return None
    return unified_type


def type_of_arrow(arrow: pa.DataType) -> Type | None:
    """Our type of a file's column; None for those that queries cannot use (nested, binary, …)."""
    if pa.types.is_dictionary(arrow):
        return type_of_arrow(arrow.value_type)
    if pa.types.is_integer(arrow):
        # without a sign they need a bit more
        bits = arrow.bit_width + (not pa.types.is_signed_integer(arrow))
        return BYTE if bits <= 8 else SHORT if bits <= 16 else INT if bits <= 32 else LONG
    if pa.types.is_decimal(arrow):
        fits = arrow.precision <= DECIMAL_DIGITS and 0 <= arrow.scale <= arrow.precision
        return decimal(arrow.precision, arrow.scale) if fits else None
    for test, type in (
        (pa.types.is_boolean, BOOLEAN),
        (pa.types.is_floating, DOUBLE),
        (pa.types.is_string, STRING),
        (pa.types.is_large_string, STRING),
        (pa.types.is_string_view, STRING),
        (pa.types.is_date, DATE),
        (pa.types.is_timestamp, TIMESTAMP),
    ):
        if test(arrow):
            return type
    return None


# ------------------------------------------------------------------------------------------- reading
def read_split(
    stream: Stream, split: Split, columns: list[str], encoded: Collection[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Decoded batches of a split: ``columns`` and the time column, by name. Attributes of dimensions among them are
    looked up by their keys.

    Those of ``encoded`` that are strings in a Parquet file are left dictionary-encoded, which spares decoding them.
    Raises HDL-402 (unreadable file), HDL-404 (a value or type that does not fit).
    """
    attributes = attributes_in(stream, columns)
    needed = _read_from(stream, columns)
    with failures_of(stream, split.path):
        texts = {name for name in encoded if stream.type_of(name) == STRING}
        seen, repeated, reading = 0, repeated_rows(split), _Reading(stream, split, needed)
        for batch in format_of(stream).read(reading.stream, split, reading.columns, texts - {*reading.both}):
            events = _taken_in(reading.decoded(batch, texts, seen), stream, split, repeated, seen)
            yield with_attributes(stream, events, attributes, texts) if attributes else events
            seen += len(batch)


class _Reading:
    """Columns of a split: what is read of its file, and what the names of its folders have."""

    def __init__(self, stream: Stream, split: Split, needed: Sequence[str]) -> None:
        """Raises HDL-404, and what a look at the file raises."""
        self.all, self.split, self.needed = stream, split, needed
        self.stream, self.columns, self.both = stream, list(needed), tuple[str, ...]()
        self._in_folders = {name for name, _ in split.folders if name in needed}
        if not split.folders:
            return
        self.stream = in_files(stream)
        self.both = _in_both(stream, split, sorted(self._in_folders))
        self.columns = [name for name in needed if name not in self._in_folders or name in self.both]
        if self.both:
            known = [(name, type) for name, type in stream.schema if name in self.both]
            self.stream = replace(self.stream, schema=(*self.stream.schema, *known))
        if not self.columns:
            self.columns = [_any_column(self.stream, split)]

    def decoded(self, batch: pa.RecordBatch, texts: Collection[str] = (), seen: int = 0) -> pa.RecordBatch:
        """A batch of the file, which begins ``seen`` rows after its split, with all columns in their types."""
        columns = []
        for name in self.needed:
            encoded = name in texts
            if name in self.both:
                values = _decoded(self.all, self.split, name, batch.column(name), False, seen)
                check_same(self.all, self.split, name, values, _rows_before(self.split) + seen)
            if name in self._in_folders:
                columns.append(column_of(self.all, self.split, name, len(batch), encoded))
            else:
                columns.append(_decoded(self.all, self.split, name, batch.column(name), encoded, seen))
        return pa.RecordBatch.from_arrays(columns, names=list(self.needed))


def _in_both(stream: Stream, split: Split, names: Sequence[str]) -> tuple[str, ...]:
    """Columns of its folders that a file has, too."""
    if not names or not stream.source.header:
        return ()
    return tuple(format_of(stream).columns(stream, split, names))


def _any_column(stream: Stream, split: Split) -> str:
    """A declared column of a file, from which its rows can be counted. Raises HDL-403."""
    present = format_of(stream).columns(stream, split, [name for name, _ in stream.schema])
    if not present:
        raise _missing(stream, split.path, "that `schema` declares", split)
    return next(iter(present))


def times_at_end(stream: Stream, split: Split) -> pa.Array:
    """Event times of the last rows of a file without statistics; none where they are not known."""
    if stream.time in dict(split.folders):
        return column_of(stream, split, stream.time, 1)
    return format_of(stream).last_times(in_files(stream), split)


def _read_from(stream: Stream, columns: Iterable[str]) -> list[str]:
    """The columns of files that are read for some columns of the stream, with that of the time if it has one."""
    return list(dict.fromkeys([*filter(None, [stream.time]), *columns_read(stream, columns)]))


def read_splits(stream: Stream, splits: Iterable[Split], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Read some splits one after the other like :func:`read_split`; those in a store are read ahead."""
    return (batch for _, batch in read_each(stream, splits, columns))


def read_each(
    stream: Stream, splits: Iterable[Split], columns: list[str], encoded: Collection[str] = ()
) -> Iterator[tuple[Split, pa.RecordBatch]]:
    """Like :func:`read_splits`, each batch with its split."""

    def read(split: Split) -> Iterator[tuple[Split, pa.RecordBatch]]:
        return ((split, batch) for batch in read_split(stream, split, columns, encoded))

    reads = [partial(read, split) for split in splits]
    if Place.of(stream.source.path).is_local:
        yield from chain.from_iterable(read() for read in reads)
    else:
        yield from read_ahead(reads)


def first_rows(stream: Stream, split: Split, columns: list[str]) -> pa.RecordBatch | None:
    """Some of the first events of a split, as returned by :func:`read_split`; None if there are none.

    Reads only the beginning of the file. Raises what :func:`read_split` raises about these events.
    """
    needed = _read_from(stream, columns)
    with failures_of(stream, split.path):
        reading = _Reading(stream, split, needed)
        batch = format_of(stream).head(reading.stream, split, reading.columns)
        return (
            None if batch is None else with_attributes(stream, reading.decoded(batch), attributes_in(stream, columns))
        )


def rows_of_spark(stream: Stream, path: str, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows that Spark read of a path, whose columns are the stream's: those that are not nested in the Arrow types of
    their declared ones. Raises HDL-404 for a value that does not fit."""
    at, plain = Split(path, ""), dict(stream.schema)
    columns = [
        _decoded(stream, at, name, column) if name in plain else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def repeated_rows(split: Split) -> np.ndarray[Any, Any]:
    """Rows of a split that are skipped because they repeat others, ascending."""
    rows_by_file = [np.zeros(0, dtype=np.int64)]
    for row_file in split.repeated:
        path, _, place = row_file.rpartition("#")
        rows = pq.read_table(Place(path).open(), columns=["row"], filters=[("split", "=", int(place))])
        rows_by_file.append(rows["row"].to_numpy())
    return np.sort(np.concatenate(rows_by_file))


def _taken_in(
    batch: pa.RecordBatch, stream: Stream, split: Split, repeated: np.ndarray[Any, Any], seen: int
) -> pa.RecordBatch:
    """A batch, the rows of a split from number ``seen`` on, without what is refused of it and what is repeated."""
    if not len(repeated) and not split.refused:
        return batch
    is_used = np.ones(len(batch), dtype=bool)
    low, high = np.searchsorted(repeated, (seen, seen + len(batch)))
    is_used[repeated[low:high] - seen] = False
    if split.refused:
        column = batch.column(stream.time)
        times = pc.fill_null(column.cast(pa.int64()), -(1 << 62)).to_numpy(zero_copy_only=False)
        for first, last in split.refused:
            is_used &= (times < first) | (times >= last)
    return batch if is_used.all() else batch.filter(pa.array(is_used))


def of_each_layout(stream: Stream, splits: Sequence[Split]) -> list[Split]:
    """The first split of each layout of files, and of each file of which that is not known."""
    first_splits: dict[Any, Split] = {}
    format = format_of(stream)
    for path, split in {split.path: split for split in splits}.items():
        with failures_of(stream, path):
            layout = format.layout(split)
        first_splits.setdefault((path,) if layout is None else layout, split)
    return list(first_splits.values())


def missing_columns(stream: Stream, splits: list[Split], columns: list[str]) -> list[str]:
    """Columns of ``columns`` that a stream lacks, so that no query that uses them can be answered: those that all files
    lack, or one file if each must be complete. Otherwise a column is null in the files that lack it, like columns added
    later in older files of a Delta table.

    Raises HDL-403 if a file lacks the time column or that of event ids, HDL-404 if it has one in a type that cannot be
    read as the declared one. Only reads headers and footers: values are checked when they are read.
    """
    needed = [stream.time, *([stream.event_id] if stream.event_id else [])]
    looked_up = list(dict.fromkeys([*needed, *columns_read(stream, columns)]))
    lacking, present_anywhere = set[str](), set[str]()
    alike, format = set[Any](), format_of(stream)
    for path, split in {split.path: split for split in splits}.items():
        with failures_of(stream, path):
            for name in {name for name, _ in split.folders}.intersection(looked_up):
                value_of(stream, split, name)
            layout = format.layout(split)
            if layout is not None and layout in alike:
                continue
            alike.add(layout)
            present = _present(stream, split, looked_up, needed)
        for name in looked_up:
            if name not in present:
                if name in needed:
                    raise _missing(stream, path, name, split)
                lacking.add(name)
                continue
            present_anywhere.add(name)
            if (declared := present[name]) is not None:
                _decoded(stream, split, name, pa.nulls(0, declared))
    return sorted(lacking if format.is_each_complete else lacking - present_anywhere)


def _present(
    stream: Stream, split: Split, names: Sequence[str], needed: Sequence[str] = ()
) -> dict[str, pa.DataType | None]:
    """Columns that a file and its folders have, as :meth:`SourceFormat.columns` returns them."""
    in_folders = {name for name, _ in split.folders}
    of_file = [name for name in names if name not in in_folders]
    needed = [name for name in needed if name not in in_folders]
    present = format_of(stream).columns(in_files(stream), split, of_file, needed)
    return present | dict.fromkeys(name for name in names if name in in_folders)


def check_columns(stream: Stream, splits: list[Split], columns: list[str]) -> None:
    """Raises HDL-403 if the stream lacks one of ``columns``, and what :func:`missing_columns` raises."""
    format = format_of(stream)
    for name in missing_columns(stream, splits, columns):
        lacking = next(split for split in splits if name not in _present(stream, split, [name]))
        raise _missing(stream, lacking.path if format.is_each_complete else stream.source.path, name, lacking)


def _missing(stream: Stream, path: str, name: str, split: Split) -> HeddleError:
    present = format_of(stream).column_names(in_files(stream), split)
    hint = f"it has {', '.join(sorted(present)[:20])}"
    in_folders = folder_names(split.path.removeprefix(stream.source.path).split("/")[:-1])
    if name.lower() in map(str.lower, in_folders):
        hint = f"the names of its folders have it: write `partitions: [{', '.join(in_folders)}]` below `source`"
    return HeddleError("HDL-403", f"stream {stream.name}: {path} has no column {name}", hint)


def _decoded(
    stream: Stream, split: Split, name: str, values: pa.Array, encoded: bool = False, seen: int = 0
) -> pa.Array:
    """A column of a batch, which begins ``seen`` rows after its split, in the Arrow type of its declared one."""
    declared, is_time = stream.type_of(name), name == stream.time
    unit = stream.source.time_unit if is_time else None
    assert declared is not None
    try:
        return _converted(values, declared, is_time, encoded, unit)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = str(error)
        at = _misfit(values, declared, is_time, unit)
        if at is not None:
            reason = f"row {_rows_before(split) + _row_in_file(split, seen + at) + 1}, {_shown(values[at])}: {reason}"
        raise HeddleError(
            "HDL-404",
            f"stream {stream.name}: column {name} of {split.path} does not fit its declared type {declared}: {reason}",
            "correct `schema` in streams.yaml, or the file; a stream without a `schema` takes types from its files "
            "whenever the plan is refreshed",
        ) from error


def _misfit(values: pa.Array, declared: Type, is_time: bool, unit: str | None) -> int | None:
    """The place of the first value that does not fit; None if it is their type."""

    def fits(low: int, high: int) -> bool:
        try:
            _converted(values.slice(low, high - low), declared, is_time, unit=unit)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return False
        return True

    low, high = 0, len(values)
    if high == 0 or not fits(0, 0):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(low, middle) else (low, middle)
    return low


def _rows_before(split: Split) -> int:
    """The rows of its file that lie before a split."""
    if not split.row_groups:
        return 0
    metadata = split.metadata()
    return sum(metadata.row_group(group).num_rows for group in range(split.row_groups[0]))


def _row_in_file(split: Split, row: int) -> int:
    """Row number in its file's part of a row of a split, deleted rows included."""
    if split.deleted is None:
        return row
    # so many deleted rows lie before the row as there are whose own place is not beyond it
    return row + int(np.searchsorted(split.deleted - np.arange(len(split.deleted)), row, side="right"))


def _shown(value: pa.Scalar) -> str:
    try:
        return repr(str(value.as_py()))
    except (ValueError, OverflowError):
        return "a value that cannot be shown"


_WIDENING = {("long", "double"), ("long", "decimal"), ("date", "timestamp")}
"""Types that are read as another type with the same value; every other one is refused."""


def _converted(
    values: pa.Array, declared: Type, is_time: bool = False, encoded: bool = False, unit: str | None = None
) -> pa.Array:
    """Values in the Arrow type of a declared one, each the same as it was; else ArrowInvalid. What is no time that is
    used is null in a column of event times (``is_time``), whose integers count a ``unit``."""
    target, actual = arrow_type(declared), values.type
    if pa.types.is_null(actual):
        return pa.nulls(len(values), target)
    if pa.types.is_dictionary(actual):
        if encoded and actual.value_type == target:
            _check_text(values.dictionary)
            return values
        values, actual = values.cast(actual.value_type), actual.value_type
    if declared == TIMESTAMP:
        counted = unit is not None and pa.types.is_integer(actual)
        instants = instants_of_numbers(values, str(unit)) if counted else instants_of_column(values)
        return _in_years(instants, FIRST, LAST - 1, is_time)
    actual_type = type_of_arrow(actual)
    if actual_type is None or (
        actual_type.name != declared.name and (actual_type.name, declared.name) not in _WIDENING
    ):
        raise pa.ArrowInvalid(f"it is {actual}, declared {declared}")
    if declared.name == "decimal":
        if actual_type.name == "long":
            values = values.cast(pa.decimal256(20 + declared.scale, declared.scale))
        values = values.cast(target)
        # a file may hold more digits than it declares
        values.validate(full=True)
        return values
    values = values if actual == target else values.cast(target)
    if declared in INTEGERS:
        _check_range(values, -INTEGERS[declared], INTEGERS[declared] - 1)
    elif declared == STRING:
        _check_text(values)
    elif declared == DATE:
        _in_years(values, FIRST // DAY, LAST // DAY - 1)
    return values


def _check_range(values: pa.Array, least: int, most: int) -> None:
    bounds = pc.min_max(values)
    if bounds["min"].is_valid and not (least <= bounds["min"].as_py() and bounds["max"].as_py() <= most):
        raise pa.ArrowInvalid(f"only {least} to {most} fit")


def _in_years(values: pa.Array, least: int, most: int, is_time: bool = False) -> pa.Array:
    """Dates or timestamps, all in the years 1 to 9999; null what is not (``is_time``)."""
    numbers = values.view(pa.int64() if pa.types.is_timestamp(values.type) else pa.int32())
    try:
        _check_range(numbers, least, most)
    except pa.ArrowInvalid:
        if not is_time:
            raise pa.ArrowInvalid("only the years 1 to 9999 fit") from None
        used = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most))
        return pc.if_else(used, values, pa.scalar(None, values.type))
    return values


def _check_text(values: pa.Array) -> None:
    """Parquet's strings may hold any bytes."""
    bytes_of_texts = values.buffers()[2]
    # most are ASCII, which is ten times quicker to see
    if bytes_of_texts is not None and np.frombuffer(bytes_of_texts, dtype=np.uint8).max(initial=0) >= 128:
        values.validate(full=True)


def instants_of_column(values: pa.Array) -> pa.Array:
    """Timestamps as microseconds UTC: any unit or zone, dates as their midnight; text in ISO 8601, UTC where it names
    no zone. Beyond what microseconds can hold: the least or the greatest that they do, which no event has."""
    target = pa.timestamp("us", tz="UTC")
    if pa.types.is_date(values.type):
        values = values.cast(pa.date32()).cast(pa.timestamp("s"))
    if pa.types.is_timestamp(values.type):
        numbers = values.cast(pa.int64())
        if values.type.unit == "us":
            return numbers.cast(target)
        known = numbers.is_valid().to_numpy(zero_copy_only=False)
        counts = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
        if values.type.unit == "ns":
            # floor, so that an event never moves into a later fragment
            counts = np.floor_divide(counts, 1000)
        else:
            factor = 1000 if values.type.unit == "ms" else SECOND
            counts = np.clip(counts, -(1 << 62) // factor, (1 << 62) // factor) * factor
        return pa.array(counts, mask=~known).cast(target)
    if type_of_arrow(values.type) != STRING:
        raise pa.ArrowInvalid(f"it is {values.type}, declared timestamp")
    return instants_of_texts(values.cast(pa.string()))


def times_of(batch: pa.RecordBatch, stream: Stream) -> tuple[np.ndarray[Any, Any], pa.RecordBatch, int]:
    """Event times (n,) in microseconds, the batch without rows that have none, and how many those are."""
    column = batch.column(stream.time)
    missing = column.null_count
    if missing:
        batch = batch.filter(pc.is_valid(column))
        column = batch.column(stream.time)
    return column.cast(pa.int64()).to_numpy(zero_copy_only=False), batch, missing


def parse_instant(text: str) -> int:
    """An instant as microseconds UTC: ISO 8601, a date alone being its midnight; UTC without a zone."""
    cleaned = text.strip()
    if not cleaned.isprintable() or len(cleaned) > 64:
        raise HeddleError("HDL-114", f"{text!r} is not an instant", "write 2013-07-01T00:00:00 (UTC)")
    if re.fullmatch(r"\d{4}-\d\d-\d\d", cleaned):
        cleaned += "T00:00:00"
    try:
        return int(_in_years(instants_of_column(pa.array([cleaned])), FIRST, LAST - 1)[0].value)
    except pa.ArrowInvalid as error:
        raise HeddleError("HDL-114", f"{text!r} is not an instant", "write 2013-07-01T00:00:00 (UTC)") from error


def events_in(stream: Stream, splits: Iterable[Split], spans: Sequence[tuple[int, int]]) -> int:
    """Number of events of some splits in one of the spans [begin, end). Raises what reading raises."""
    return sum(
        int(inside(times, spans).sum())
        for split in splits
        if any(split.may_hold(*span) for span in spans)
        for batch in read_split(stream, split, [])
        for times in [times_of(batch, stream)[0]]
    )


def has_events(stream: Stream, splits: Iterable[Split], begin: int, end: int) -> bool:
    """Return whether an event of some splits lies in [begin, end) (microseconds); reads up to the first one. Raises
    what reading raises.
    """
    return any(
        bool(inside(times_of(batch, stream)[0], [(begin, end)]).any())
        for split in splits
        if split.may_hold(begin, end)
        for batch in read_split(stream, split, [])
    )


def inside(times: Any, spans: Sequence[tuple[int, int]]) -> Any:
    """Mask of the times (n,) that lie in one of the spans [begin, end)."""
    is_inside = np.zeros(len(times), dtype=bool)
    for begin, end in spans:
        is_inside |= (times >= begin) & (times < end)
    return is_inside
