"""Parquet files: splits of their row groups, footers, and columns, also with the names and types of a table."""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.streams import TIME_UNITS
from optimizer.workload.values import Stream, digest
from spark_jobs.store.storage import ObjectVersion, Place, is_refusal, store_error
from spark_jobs.streams.sources.column_mapping import Rows, as_table_has, names_in_file, place_in_file, renamed
from spark_jobs.streams.sources.delta_source import DeltaFile
from spark_jobs.streams.sources.formats.source_format import (
    DuckdbReading,
    ReadByRun,
    SourceFormat,
    SparkReading,
    unreadable_by_spark,
)
from spark_jobs.streams.sources.leaves import Leaf, path_of
from spark_jobs.streams.sources.legacy_calendar import (
    MOVED_DATES,
    LegacyCalendar,
    LegacyTimestamp,
    has_moved,
    legacy_calendar,
    moved,
    moved_instant,
)
from spark_jobs.streams.sources.objects import parquet, seen
from spark_jobs.streams.sources.splits import FIRST, LAST, Split, column_places, failures_of

SPLIT_ROWS = 1_000_000
"""Rows of a Parquet split at which the next row group starts a new one."""


FIRST_ROWS = 1000
"""Rows of a Parquet file that a look at its beginning decodes."""


MAGIC = b"PAR1"
"""First bytes of a Parquet file."""


class ParquetFormat(SourceFormat):
    """Folders of Parquet files, which declare their columns, count their rows and know the least and greatest times."""

    name = "parquet"
    endings: ClassVar[tuple[str, ...]] = (".parquet",)
    named_endings: ClassVar[tuple[str, ...]] = (".pq",)
    has_statistics = True

    def look(self, path: str) -> tuple[ObjectVersion, pq.FileMetaData]:
        return seen(path)

    def splits(
        self, stream: Stream, path: str, identity: str, version: ObjectVersion | None = None, beginning: Any = None
    ) -> list[Split]:
        splits = parquet_splits(stream, path, identity, metadata=beginning)
        return splits if version is None else [replace(each, version=version, footer=beginning) for each in splits]

    def schemas(self, stream: Stream) -> Mapping[str, pa.Schema]:
        files = self.files(stream)
        return {split.path: _file_schema(split) for split in files.opened(range(len(files.paths)))}

    def layout(self, split: Split) -> Hashable:
        return _file_schema(split), split.constants, split.names

    def column_names(self, stream: Stream, split: Split) -> Sequence[str]:
        names: list[str] = _file_schema(split).names
        return names

    def columns(
        self, stream: Stream, split: Split, names: Sequence[str], needed: Sequence[str] = ()
    ) -> dict[str, pa.DataType | None]:
        constants = dict(split.constants)
        types = {}
        for name, part in _parts(stream, split, _file_schema(split), names).items():
            # null alone: what the Delta table does not have
            if (
                part is not None
                and part.leaf.steps is not None
                and not (part.root in constants and pa.types.is_null(part.leaf.type))
            ):
                types[name] = part.leaf.type
        return types

    def read(
        self, stream: Stream, split: Split, columns: Sequence[str], encoded: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        metadata = split.metadata()
        constants = dict(split.constants)
        parts = _parts(stream, split, _file_schema(replace(split, footer=metadata)), columns)
        plain = {name: part.place for name, part in parts.items() if part is not None and part.leaf.steps == ()}
        with parquet(
            split.path,
            split.version,
            metadata,
            read_dictionary=_dictionaries(split, [place for name in sorted(encoded) if (place := plain.get(name))]),
            # Spark's own timestamps; as nanoseconds they would wrap round before 1677 and after 2262
            coerce_int96_timestamp_unit="us",
        ) as file:
            groups = split.groups(metadata)
            table = file.read_row_groups(groups, columns=_places(split, parts), use_threads=False)
        rows = sum(metadata.row_group(group).num_rows for group in groups)
        if table.num_columns and table.num_rows != rows:
            raise pa.ArrowInvalid(f"its footer says {rows} rows, its pages have {table.num_rows}")
        table = _as_the_table_has(table, split)
        rows -= 0 if split.deleted is None else len(split.deleted)
        values = [_values(table, rows, part, constants.get(name)) for name, part in parts.items()]
        values = _with_moved_dates(stream, split, metadata, parts, values)
        yield from pa.table(values, names=list(columns)).combine_chunks().to_batches()

    def head(self, stream: Stream, split: Split, columns: Sequence[str]) -> pa.RecordBatch | None:
        constants = dict(split.constants)
        with parquet(split.path, split.version, split.footer, coerce_int96_timestamp_unit="us") as file:
            parts = _parts(stream, split, _file_schema(split), columns)
            present, groups = _places(split, parts), split.groups(file.metadata)[:1]
            batch = next(file.iter_batches(FIRST_ROWS, groups, present, use_threads=False), None)
        if batch is None:
            return None
        batch = _as_the_table_has(batch, split)
        values = [_values(batch, len(batch), part, constants.get(name)) for name, part in parts.items()]
        values = _with_moved_dates(stream, split, file.metadata, parts, values)
        return pa.RecordBatch.from_arrays(values, names=list(columns))

    def is_of(self, beginning: bytes) -> bool:
        return beginning.startswith(MAGIC)

    def declared_columns(self, stream: Stream, files: Sequence[Path | Place]) -> pa.Schema:
        path = files[0]
        try:
            if not isinstance(path, Place):
                return pq.read_schema(path)
            with path.open() as file:
                return pq.read_schema(file)
        except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if isinstance(path, Place) and is_refusal(error):
                raise store_error(path, error) from error
            message = f"{path} is no Parquet file: {str(error).splitlines()[0]}"
            raise HeddleError("HDL-135", message, "name data files") from None

    def spark_reading(self, stream: Stream, splits: Sequence[Split]) -> SparkReading:
        files = {
            split.path: frozenset(field.name for field in schema if str(field.type).startswith("timestamp[ns"))
            for split in {split.path: split for split in splits}.values()
            for schema in [split.metadata().schema.to_arrow_schema()]
        }
        if len(set(files.values())) > 1:
            raise unreadable_by_spark(stream, "timestamps in nanoseconds in some of its files alone")
        return SparkReading(self.name, nanoseconds=next(iter(files.values()), frozenset()))

    def duckdb_reading(self, stream: Stream, paths: Sequence[str], is_numbered: bool) -> DuckdbReading:
        if any(map(_has_old_calendar, paths)):
            raise ReadByRun("Spark may have written it by an old calendar")
        options = {"union_by_name": True} | ({"file_row_number": True} if is_numbered else {})
        return DuckdbReading("read_parquet", list(paths), options, row="file_row_number")


FORMAT = ParquetFormat()


def parquet_splits(
    stream: Stream,
    path: str,
    identity: str,
    table: pa.Schema | None = None,
    metadata: pq.FileMetaData | None = None,
    file: DeltaFile | None = None,
) -> list[Split]:
    """Return the splits of a Parquet file. ``metadata``: its footer, if that was read; for a ``file`` of a table also
    ``table``, the table's columns. Raises HDL-402 and HDL-456."""
    begin, end = (None, None) if file is None else _bounds_in_log(file)
    with failures_of(stream, path):
        metadata = pq.read_metadata(path) if metadata is None else metadata
        calendar = legacy_calendar(metadata)
        identity += MOVED_DATES if has_moved(metadata, calendar) else ""
        schema, called = metadata.schema.to_arrow_schema(), dict[tuple[str, ...], str]()
        if file is not None and table is not None and file.mapped is not None:
            called = names_in_file(table, schema, file.mapped == "id")
            schema = as_table_has(schema, called)
            identity += _renamings(stream, called)
        names = schema.names
        constants = {} if file is None or table is None else _constants(stream, path, names, table, file.partition)
        paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
        time = None if stream.time in constants else column_places(stream, path, names, [stream.time])[stream.time]
        if time is not None and called:
            time = ".".join(place_in_file((time,), called))
        column = None if time is None or paths.count(time) != 1 else paths.index(time)
    splits: list[Split] = []
    groups: list[int] = []
    rows = before = 0
    low: int | None = None
    high: int | None = None
    # the log of a table rounds, and its bounds may be those of deleted rows
    exact, is_exact = calendar is None and (file is None or file.deleted is None), True

    def flush() -> None:
        nonlocal groups, rows, low, high, before, is_exact
        if groups:
            first, last = (begin, end) if low is None or high is None else (low, high + 1)
            known = tuple(sorted(constants.items(), key=lambda constant: constant[0]))
            is_known = exact and is_exact and low is not None
            split = Split(path, identity, tuple(groups), first, last, rows, known, has_exact_span=is_known)
            if called:
                split = replace(split, names=tuple(called.items()))
            if file is not None and file.deleted is not None:
                deleted = file.deleted[slice(*np.searchsorted(file.deleted, (before, before + rows)))] - before
                split = replace(split, rows=rows - len(deleted), deleted=deleted)
            splits.append(split)
        before += rows
        groups, rows, low, high, is_exact = [], 0, None, None, True

    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        if rows and rows + group.num_rows > SPLIT_ROWS:
            flush()
        bounds = None
        if column is not None:
            bounds = _time_bounds(stream, metadata.schema.column(column), group.column(column), calendar)
        if bounds is not None and (low is not None or not groups):
            low = bounds[0] if low is None else min(low, bounds[0])
            high = bounds[1] if high is None else max(high, bounds[1])
            is_exact = is_exact and bounds[2]
        else:
            low = high = None
        groups.append(index)
        rows += group.num_rows
    flush()
    # one that is alone is the whole file
    return [replace(split, row_groups=()) for split in splits] if len(splits) == 1 else splits


def _renamings(stream: Stream, called: Mapping[tuple[str, ...], str]) -> str:
    """Suffix of a file's identity with the table's names for those columns of the stream that the table renamed. A
    column that is renamed leaves the file unchanged.
    """
    used = {name.lower() for name in (stream.time, *dict(stream.schema), *dict(stream.nested))}
    renamed_paths = {path for path, name in called.items() if called[path[:1]].lower() in used and name != path[-1]}
    return f"|columns {digest(sorted([*path, called[path]] for path in renamed_paths))}" if renamed_paths else ""


def _constants(
    stream: Stream, path: Path | str, names: Sequence[str], table: pa.Schema, partition: Mapping[str, pa.Scalar]
) -> dict[str, pa.Scalar]:
    """Columns of a stream that are not read from a file of a Delta table with the columns ``names``."""
    columns = [stream.time, *dict(stream.schema), *dict(stream.nested)]
    file_columns, known = (
        column_places(stream, path, names, columns),
        column_places(stream, stream.source.path, table.names, columns),
    )
    constants = {}
    for name in file_columns:
        column = known[name]
        if column is not None and column in partition:
            constants[name] = partition[column]
        elif (column is None) != (file_columns[name] is None):
            constants[name] = pa.scalar(None, pa.null() if column is None else table.field(column).type)
    return constants


_MICROS = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}


def _time_bounds(
    stream: Stream, column: Any, chunk: Any, calendar: LegacyCalendar | None = None
) -> tuple[int, int, bool] | None:
    """The least and the greatest time of a row group, and whether all its rows are known to have one; None if they are
    unknown or rows have no time that is used."""
    statistics, kind = chunk.statistics, json.loads(column.logical_type.to_json())
    if statistics is None or not statistics.has_min_max or statistics.null_count:
        return None
    if kind["Type"] == "Timestamp":
        factor, divisor = _MICROS[kind["timeUnit"]]
    elif stream.source.time_unit is not None and column.physical_type in ("INT32", "INT64"):
        factor, divisor = TIME_UNITS[stream.source.time_unit]
    else:
        return None
    # never as Python's datetimes, which end with the year 9999
    low, high = (value * factor // divisor for value in (statistics.min_raw, statistics.max_raw))
    if kind["Type"] == "Timestamp":
        low, high = moved_instant(low, calendar), moved_instant(high, calendar)
    return (low, high, statistics.has_null_count) if low >= FIRST and high < LAST else None


def _bounds_in_log(file: DeltaFile) -> tuple[int | None, int | None]:
    begin, end = file.begin, file.end
    if begin is None or end is None or begin < FIRST or end > LAST:
        return None, None
    return begin, end


def _file_schema(split: Split) -> pa.Schema:
    """The columns of a split's Parquet file. Raises OSError and pyarrow's errors."""
    schema = pq.read_schema(split.path) if split.footer is None else split.footer.schema.to_arrow_schema()
    return as_table_has(schema, dict(split.names)) if split.names else schema


@dataclass(frozen=True)
class _Part:
    """A column of a stream in a file: a ``leaf`` of its column ``root``, possibly the root itself; ``place``: the
    column as written in the file, None: the file contains no values of it.
    """

    root: str
    place: str | None
    leaf: Leaf


def _parts(stream: Stream, split: Split, schema: pa.Schema, names: Iterable[str]) -> dict[str, _Part | None]:
    """Some columns of a stream in a file with this schema; None: the file lacks the column."""
    constants = dict(split.constants)
    paths = {name: path_of(stream, name) for name in names}
    roots = dict.fromkeys(path.root for path in paths.values())
    places = column_places(stream, split.path, schema.names, [root for root in roots if root not in constants])
    parts: dict[str, _Part | None] = {}
    for name, path in paths.items():
        place = places.get(path.root)
        if path.root in constants:
            arrow = pa.array([constants[path.root]]).type
        elif place is not None:
            arrow = schema.field(place).type
        else:
            parts[name] = None
            continue
        parts[name] = _Part(path.root, place, Leaf(stream, split.path, path, arrow))
    return parts


def _places(split: Split, parts: Mapping[str, _Part | None]) -> list[str]:
    """Columns of a file to read, by dotted paths."""
    used = [part for part in parts.values() if part is not None and part.leaf.steps is not None]
    places = dict.fromkeys(part.leaf.place(part.place) for part in used if part.place is not None)
    if split.names:
        return [".".join(place_in_file(place, dict(split.names))) for place in places]
    return [".".join(place) for place in places]


def _as_the_table_has(rows: Rows, split: Split) -> Rows:
    """The first rows of a split's file, or all, without those that the table has deleted, and by its own names."""
    if split.deleted is not None:
        is_kept = np.ones(len(rows), dtype=bool)
        is_kept[split.deleted[: np.searchsorted(split.deleted, len(rows))]] = False
        rows = rows.filter(pa.array(is_kept))
    return renamed(rows, dict(split.names)) if split.names else rows


def _values(table: pa.Table | pa.RecordBatch, rows: int, part: _Part | None, constant: pa.Scalar | None) -> Any:
    """The values of a column in ``rows`` rows of a file; ``constant``: the value if the file has none."""
    if part is None or part.place is None:
        return pa.repeat(constant, rows)
    if part.leaf.steps is None:
        return pa.nulls(rows)
    return part.leaf.values(table.column(part.place))


def _with_moved_dates(
    stream: Stream, split: Split, metadata: pq.FileMetaData, parts: Mapping[str, _Part | None], columns: list[Any]
) -> list[Any]:
    """The columns of a file, those that Spark wrote in its legacy calendar moved. Raises HDL-418."""
    calendar = legacy_calendar(metadata)
    if calendar is None:
        return columns
    moved_columns = []
    for (name, part), values in zip(parts.items(), columns, strict=True):
        if part is not None and part.place is not None and part.leaf.steps is not None:
            (place,) = _places(split, {name: part})
            try:
                if calendar.is_in(metadata, place):
                    values = moved(values, calendar.zone, name == stream.time)
            except LegacyTimestamp as error:
                message = f"stream {stream.name}: column {name} of {split.path} has {error} in Spark's legacy calendar"
                hint = (
                    f"its zone is {calendar.zone}, of which old offsets are not known here: write the file again with "
                )
                hint += "spark.sql.parquet.datetimeRebaseModeInWrite and int96RebaseModeInWrite CORRECTED"
                raise HeddleError("HDL-418", message, hint) from error
        moved_columns.append(values)
    return moved_columns


def _dictionaries(split: Split, places: Sequence[str]) -> list[str]:
    return [".".join(place_in_file((place,), dict(split.names))) if split.names else place for place in places]


def _has_old_calendar(path: str) -> bool:
    """Return whether Spark may have written days before 1582 by the Julian calendar, which DuckDB does not support."""
    known = pq.read_metadata(path).metadata or {}
    version = known.get(b"org.apache.spark.version", b"3")
    return version < b"3" or any(key.startswith(b"org.apache.spark.legacy") for key in known)
