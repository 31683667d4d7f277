"""Reads event streams: CSV, Parquet and Delta, as typed Arrow batches, split by split, without a JVM.

A *split* is one piece of a source that one task reads: some row groups of a Parquet or Delta file, or a whole
CSV file. Splits know the event times they can hold where the format says so, so a run opens only what its
interval needs. Decoded batches have one Arrow type per :class:`optimizer.query.Type`: int64, float64, utf8,
bool, date32, timestamp[us, UTC] and decimal128(p, s).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from optimizer.errors import HeddleError
from optimizer.query import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INT,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    Stream,
    Type,
    decimal,
    digest,
)
from spark_jobs.expressions import arrow_type

SPLIT_ROWS = 1_000_000
"""Rows of a Parquet split at which the next row group starts a new one."""

ZONE = r"(Z|:.*[+-]\d\d:?(\d\d)?)$"
"""The zone at the end of a timestamp's text: after a time of day, since a date ends in ``-01`` as well."""


@dataclass(frozen=True)
class Split:
    """One piece of a source. ``begin``, ``end``: event times lie in [begin, end) microseconds, or None if
    unknown; ``identity`` changes whenever the content may have changed; ``row_groups`` empty: the whole file;
    ``constants``: values of partition columns, which Delta keeps outside the file. Not taken in
    (:mod:`spark_jobs.arrivals`) are events in the spans ``refused``, and rows that files in ``repeated`` name, of which
    ``lacking`` has a hash for each span of time."""

    format: str
    path: str
    identity: str
    row_groups: tuple[int, ...] = ()
    begin: int | None = None
    end: int | None = None
    rows: int | None = None
    constants: tuple[tuple[str, Any], ...] = ()
    refused: tuple[tuple[int, int], ...] = ()
    repeated: tuple[str, ...] = ()
    lacking: tuple[tuple[int, int, str], ...] = ()

    def may_hold(self, begin: int, end: int) -> bool:
        """Whether an event of the split can lie in [begin, end)."""
        return (self.begin is None or self.begin < end) and (self.end is None or self.end > begin)

    def mark(self, begin: int, end: int) -> str | None:
        """What stands for its events in [begin, end); None if it has none."""
        if not self.may_hold(begin, end):
            return None
        lacking = [rows for first, last, rows in self.lacking if first < end and last > begin]
        identity = f"{self.identity}|less {lacking}" if lacking else self.identity
        refused = [(max(first, begin), min(last, end)) for first, last in self.refused if first < end and last > begin]
        if not refused:
            return identity
        low, high = max(begin, self.begin or begin), min(end, self.end if self.end is not None else end)
        if any(first <= low and last >= high for first, last in refused):
            return None
        return f"{identity}|without {refused}"


def snapshot_token(splits: list[Split], begin: int, end: int) -> str:
    """Hash of the content that can hold events of [begin, end): equal tokens, equal events."""
    return digest(sorted({mark for split in splits if (mark := split.mark(begin, end)) is not None}))


# ------------------------------------------------------------------------------------------- listing
def splits_of(stream: Stream) -> list[Split]:
    """Everything there is of a stream now, in a fixed order.

    Raises HDL-401 (nothing there), HDL-402 (a file cannot be read), HDL-405 (a Delta feature that is not read).
    """
    found = _splits_of(stream)
    if stream.event_id is None:
        return found
    return [replace(split, identity=f"{split.identity}|one of each {stream.event_id}") for split in found]


def _splits_of(stream: Stream) -> list[Split]:
    if stream.source.format == "delta":
        return _delta_splits(stream)
    found: list[Split] = []
    for path in _files(stream):
        identity = _identity(path)
        if stream.source.format == "csv":
            found.append(Split("csv", str(path), identity))
        else:
            found += _parquet_splits(stream, path, identity, {}, None, None)
    return found


def _files(stream: Stream) -> list[Path]:
    root, suffix = Path(stream.source.path), {"csv": ".csv", "parquet": ".parquet"}[stream.source.format]
    if root.is_file():
        return [root]
    if not root.exists():
        raise HeddleError(
            "HDL-401",
            f"stream {stream.name}: there is no {root}",
            "check `path`: it is relative to streams.yaml",
        )
    found = sorted(
        path
        for path in root.rglob("*" + suffix)
        if path.is_file() and not any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
    )
    if not found:
        raise HeddleError("HDL-401", f"stream {stream.name}: no {suffix} file in {root}")
    return found


def _identity(path: Path) -> str:
    status = path.stat()
    return f"{path}|{status.st_size}|{status.st_mtime_ns}"


def _parquet_splits(
    stream: Stream,
    path: Path,
    identity: str,
    constants: dict[str, Any],
    begin: int | None,
    end: int | None,
) -> list[Split]:
    try:
        metadata = pq.ParquetFile(path).metadata
    except (OSError, pa.ArrowInvalid) as error:
        raise HeddleError(
            "HDL-402",
            f"stream {stream.name}: {path} cannot be read as Parquet: {error}",
            "is it half written? write to another name and rename it when it is complete",
        ) from error
    column = next((i for i in range(metadata.num_columns) if metadata.schema.column(i).path == stream.time), None)
    found: list[Split] = []
    groups: list[int] = []
    rows = 0
    low: int | None = None
    high: int | None = None

    def flush() -> None:
        nonlocal groups, rows, low, high
        if groups:
            first, last = (begin, end) if low is None or high is None else (low, high + 1)
            found.append(
                Split(
                    "parquet",
                    str(path),
                    identity,
                    tuple(groups),
                    first,
                    last,
                    rows,
                    tuple(sorted(constants.items())),
                )
            )
        groups, rows, low, high = [], 0, None, None

    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        if rows and rows + group.num_rows > SPLIT_ROWS:
            flush()
        bounds = None if column is None else _time_bounds(group.column(column))
        if bounds is not None and (low is not None or not groups):
            low = bounds[0] if low is None else min(low, bounds[0])
            high = bounds[1] if high is None else max(high, bounds[1])
        else:
            low = high = None
        groups.append(index)
        rows += group.num_rows
    flush()
    return found


def _time_bounds(chunk: Any) -> tuple[int, int] | None:
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max or statistics.null_count:
        return None
    low, high = statistics.min, statistics.max
    try:
        return _micros(low), _micros(high)
    except (TypeError, AttributeError):
        return None


def _micros(instant: Any) -> int:
    scalar = pa.scalar(instant)
    if not pa.types.is_timestamp(scalar.type):
        raise TypeError("not a timestamp")
    return int(scalar.cast(pa.timestamp("us", scalar.type.tz), safe=False).value)


def _delta_splits(stream: Stream) -> list[Split]:
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    root = Path(stream.source.path)
    try:
        table = DeltaTable(root)
    except TableNotFoundError as error:
        raise HeddleError(
            "HDL-401", f"stream {stream.name}: there is no Delta table at {root}", "check `path` and `format`"
        ) from error
    features = set(table.protocol().reader_features or ())
    actions = table.get_add_actions(flatten=True)
    names = actions.schema.names
    unread = ["column mapping"] if "columnMapping" in features else []
    if "deletionVectors" in features and pa.table(table.deletion_vectors()).num_rows:
        unread.append("deletion vectors")
    if unread:
        raise HeddleError(
            "HDL-405",
            f"stream {stream.name}: the Delta table at {root} uses {' and '.join(unread)}",
            "rewrite it without (delta.enableDeletionVectors = false, then REORG TABLE … APPLY (PURGE))",
        )
    partitions = [name for name in names if name.startswith("partition.")]
    found: list[Split] = []
    for row in pa.table(actions).to_pylist():
        path = root / row["path"]
        if not path.is_file():
            raise HeddleError("HDL-402", f"stream {stream.name}: {path} is in the table's log but not on disk")
        constants = {name.removeprefix("partition."): row[name] for name in partitions}
        begin, end = row.get(f"min.{stream.time}"), row.get(f"max.{stream.time}")
        found += _parquet_splits(
            stream,
            path,
            str(row["path"]),
            constants,
            None if begin is None or end is None else _micros(begin),
            # Delta cuts statistics of timestamps down to the millisecond
            None if begin is None or end is None else _micros(end) + 1000,
        )
    return sorted(found, key=lambda split: (split.path, split.row_groups))


# -------------------------------------------------------------------------------------------- schema
def discover_schema(stream: Stream) -> tuple[tuple[str, Type], ...]:
    """The schema that the source itself declares (Parquet and Delta), for streams that leave it out.

    Raises HDL-406 for CSV, which declares none.
    """
    if stream.source.format == "csv":
        raise HeddleError(
            "HDL-406", f"stream {stream.name}: a CSV source needs a `schema`", "name each column and its type"
        )
    splits = splits_of(stream)
    if not splits:
        raise HeddleError("HDL-401", f"stream {stream.name}: {stream.source.path} holds no data to take a schema from")
    schema = pq.read_schema(splits[0].path)
    found = [(field.name, _type_of(field.type)) for field in schema]
    found += [(name, LONG if isinstance(value, int) else STRING) for name, value in splits[0].constants]
    return tuple((name, type) for name, type in found if type is not None)


def _type_of(arrow: pa.DataType) -> Type | None:
    """Our type of a file's column; None for those that queries cannot use (nested, binary, …)."""
    if pa.types.is_dictionary(arrow):
        return _type_of(arrow.value_type)
    if pa.types.is_integer(arrow):
        return {8: BYTE, 16: SHORT, 32: INT}.get(arrow.bit_width, LONG)
    if pa.types.is_decimal128(arrow):
        return decimal(arrow.precision, arrow.scale) if 0 <= arrow.scale <= arrow.precision else None
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
    """Decoded batches of a split: ``columns`` and the time column, by name.

    Those of ``encoded`` that are strings in a Parquet file are left dictionary-encoded, which spares decoding them.
    Raises HDL-402 (unreadable file), HDL-404 (a value or type that does not fit).
    """
    wanted = list(dict.fromkeys([stream.time, *columns]))
    try:
        texts = {name for name in encoded if stream.type_of(name) == STRING}
        read = _read_csv(stream, split, wanted) if split.format == "csv" else _read_parquet(split, wanted, texts)
        seen, repeated = 0, repeated_rows(split)
        for batch in read:
            columns_read = [_decoded(stream, split, name, batch.column(name), name in texts) for name in wanted]
            decoded = pa.RecordBatch.from_arrays(columns_read, names=wanted)
            yield _taken_in(decoded, stream, split, repeated, seen)
            seen += len(decoded)
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _unreadable(stream, split.path, error) from error


def repeated_rows(split: Split) -> np.ndarray[Any, Any]:
    """The rows of a split that are left out, ascending."""
    found = [np.zeros(0, dtype=np.int64)]
    for kept in split.repeated:
        path, _, place = kept.rpartition("#")
        found.append(pq.read_table(path, columns=["row"], filters=[("split", "=", int(place))])["row"].to_numpy())
    return np.sort(np.concatenate(found))


def _taken_in(
    batch: pa.RecordBatch, stream: Stream, split: Split, repeated: np.ndarray[Any, Any], seen: int
) -> pa.RecordBatch:
    """A batch, the rows of a split from number ``seen`` on, without what is refused of it and what is repeated."""
    if not len(repeated) and not split.refused:
        return batch
    kept = np.ones(len(batch), dtype=bool)
    low, high = np.searchsorted(repeated, (seen, seen + len(batch)))
    kept[repeated[low:high] - seen] = False
    if split.refused:
        column = batch.column(stream.time)
        times = pc.fill_null(column.cast(pa.int64()), -(1 << 62)).to_numpy(zero_copy_only=False)
        for first, last in split.refused:
            kept &= (times < first) | (times >= last)
    return batch if kept.all() else batch.filter(pa.array(kept))


def check_columns(stream: Stream, splits: list[Split], columns: list[str]) -> None:
    """Raises HDL-403 or HDL-404 if a file lacks one of ``columns`` or has it in another type than declared.

    Looks at headers and footers only; what a CSV file's values are is found out when they are read.
    """
    wanted = [stream.time, *columns]
    for path, split in {split.path: split for split in splits}.items():
        if split.format == "csv":
            if Path(path).stat().st_size == 0:
                continue
            try:
                present = dict.fromkeys(_header(path))
            except (OSError, pa.ArrowInvalid) as error:
                raise _unreadable(stream, path, error) from error
        else:
            present = {field.name: field.type for field in pq.read_schema(path)}
        for name in wanted:
            if name in present and split.format != "csv":
                _decoded(stream, split, name, pa.array([], present[name]))
            elif name not in present and name not in dict(split.constants):
                raise _missing(stream, split, name, sorted(present))


def _unreadable(stream: Stream, path: str, error: Exception) -> HeddleError:
    """HDL-404 with the column's name where Arrow says that a CSV value does not fit, else HDL-402."""
    found = re.search(r"In CSV column #(\d+): (.*)", str(error), re.DOTALL)
    if found is None:
        hint = "is it half written? write to another name and rename it when it is complete"
        return HeddleError("HDL-402", f"stream {stream.name}: {path} cannot be read: {error}", hint)
    name = _header(path)[int(found[1])]
    return HeddleError(
        "HDL-404",
        f"stream {stream.name}: column {name} of {path} does not fit its declared type {stream.type_of(name)}: "
        f"{found[2]}",
        "correct `schema` in streams.yaml, or the file",
    )


def _header(path: str | Path) -> list[str]:
    with pcsv.open_csv(path) as reader:
        return list(reader.schema.names)


def _read_parquet(split: Split, wanted: list[str], texts: Collection[str]) -> Iterator[pa.RecordBatch]:
    metadata = pq.read_metadata(split.path)
    constants = dict(split.constants)
    present = set(metadata.schema.to_arrow_schema().names)
    file = pq.ParquetFile(split.path, metadata=metadata, read_dictionary=sorted(present & set(texts)))
    columns = [name for name in wanted if name in present]
    table = file.read_row_groups(list(split.row_groups), columns=columns, use_threads=False)
    for name in wanted:
        if name not in present:
            table = table.append_column(name, pa.repeat(constants[name], len(table)))
    yield from table.select(wanted).combine_chunks().to_batches()


def _read_csv(stream: Stream, split: Split, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    path = Path(split.path)
    if path.stat().st_size == 0:
        return
    options = pcsv.ConvertOptions(
        column_types={name: _csv_type(stream, name) for name in wanted},
        include_columns=wanted,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        true_values=["true", "True", "TRUE", "t", "1"],
        false_values=["false", "False", "FALSE", "f", "0"],
    )
    reading = pcsv.ReadOptions(block_size=32 << 20, use_threads=False)
    with pcsv.open_csv(path, read_options=reading, convert_options=options) as reader:
        yield from reader


def _csv_type(stream: Stream, name: str) -> pa.DataType:
    type = stream.type_of(name)
    assert type is not None
    return pa.string() if type.name == "timestamp" else arrow_type(type)


def _missing(stream: Stream, split: Split, name: str, present: list[str]) -> HeddleError:
    return HeddleError(
        "HDL-403",
        f"stream {stream.name}: {split.path} has no column {name}",
        f"it has {', '.join(present[:20])}",
    )


def _decoded(stream: Stream, split: Split, name: str, values: pa.Array, encoded: bool = False) -> pa.Array:
    declared = stream.type_of(name)
    assert declared is not None
    target = arrow_type(declared)
    actual = values.type
    if pa.types.is_null(actual):
        return pa.nulls(len(values), target)
    if pa.types.is_dictionary(actual):
        if encoded and actual.value_type == target:
            return values
        values, actual = values.cast(actual.value_type), actual.value_type
    try:
        if pa.types.is_timestamp(target):
            return _instants(values)
        found = _type_of(actual)
        if found is None or (found.name != declared.name and (found.name, declared.name) not in _WIDENING):
            raise pa.ArrowInvalid(f"it is {actual}, declared {declared}")
        return values if actual == target else values.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise HeddleError(
            "HDL-404",
            f"stream {stream.name}: column {name} of {split.path} does not fit its declared type {declared}: {error}",
            "correct `schema` in streams.yaml, or the file",
        ) from error


_WIDENING = {("long", "double"), ("long", "decimal")}


def _instants(values: pa.Array) -> pa.Array:
    """Timestamps as microseconds UTC: any unit or zone; text in ISO 8601, UTC where it names no zone."""
    target = pa.timestamp("us", tz="UTC")
    if pa.types.is_timestamp(values.type):
        if values.type.unit == "ns":
            # floor, so that an event never moves into a later fragment
            known = values.is_valid().to_numpy(zero_copy_only=False)
            nanos = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
            return pa.array(np.floor_divide(nanos, 1000), mask=~known).cast(target)
        return values.cast(pa.timestamp("us", tz=values.type.tz), safe=False).cast(target)
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        raise pa.ArrowInvalid(f"it is {values.type}, declared timestamp")
    text = pc.utf8_trim_whitespace(values)
    zoned = pc.match_substring_regex(text, ZONE)
    if not pc.any(zoned).as_py():
        return text.cast(pa.timestamp("us")).cast(target)
    with_zone = pc.if_else(zoned, text, pa.scalar(None, pa.string())).cast(target)
    without = pc.if_else(zoned, pa.scalar(None, pa.string()), text).cast(pa.timestamp("us")).cast(target)
    return pc.coalesce(with_zone, without)


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
        return int(_instants(pa.array([cleaned]))[0].value)
    except pa.ArrowInvalid as error:
        raise HeddleError("HDL-114", f"{text!r} is not an instant", "write 2013-07-01T00:00:00 (UTC)") from error


def format_instant(instant: int) -> str:
    """Microseconds UTC as ISO 8601, e.g. ``2013-07-01T00:00:00Z``."""
    text = str(np.datetime64(instant, "us"))
    return text.removesuffix(".000000") + "Z"
