"""Data files of the partials and results tables: written by tasks, committed by the driver.

A task writes Parquet files into the table's folder, where no reader sees them until one Delta commit names them, and
sends only their names and statistics to the driver. So rows cross neither into the JVM nor through a shuffle: partial
rows are laid out by *buckets* of group keys, and the task that answers some buckets reads just their row groups.
"""

from __future__ import annotations

import atexit
import errno
import json
import math
import os
import re
import shutil
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.store.read_ahead import read_ahead
from spark_jobs.store.storage import SMALL, Draft, Place, is_refusal, store_error
from spark_jobs.store.warehouse.checksums import Checksums, footer_of, kept_footer
from spark_jobs.store.warehouse.schemas import PARTIALS

UNWRITABLE = "HDL-542"
UNREADABLE = "HDL-543"
READ_ONLY = "HDL-545"

LOG = "_delta_log"

BUCKETS = 64
"""Buckets of group keys: the most tasks that can answer one run."""

ROW_GROUP = 1 << 17
"""Rows of a row group of a results file."""

FOOTER_ROWS = 95
"""Rows of results that are as large as a footer's description of a row group (1,140 bytes at 12 a row)."""

FILE_ROWS = 1 << 18
"""Rows of results from which on a day gets another file when its files are rewritten."""

LONG_RUN = 64
"""Rows of one query in a row, on average, from which on they are moved together."""

MOST_FILES = 8
"""Number of files of a day that results are written into at once. Maintenance leaves that number of files as they
are.
"""

BUCKET_ROWS = 1 << 13
"""Rows at which the row group of some buckets in a partials file is large enough: smaller ones cost more to write and
to find than reading rows of other buckets does."""

LEAST_BUCKET_ROWS = 1 << 9
"""The same where many tasks write files that as many tasks read: each reads some buckets of every file."""

BUCKET_BYTES = 1 << 20
"""Bytes of states at which a bucket is large enough, even with few rows: the size of that many small rows."""

GROUP_BYTES = 1 << 25
"""Bytes of partial rows from which on those of a bucket are cut into several row groups: one is read at a time where
memory is short."""

CODECS = {"doubles": "NONE", "numbers": "LZ4"}
"""Columns that are not compressed as all others are: of measured values, of which a codec makes little."""

STATES = {field.name: field.type for field in PARTIALS if field.name in ("longs", "doubles", "texts", "numbers")}
"""Columns of partial rows that a file may lack: all of them are null there."""

REPEATED = [
    *("query", "stream", "fingerprint", "key", "key.list.element", "window_start", "window_end"),
    *("plan_version", "revision", "run_id", "error"),
]
"""Columns that hold few distinct values a row group; the others are not worth a dictionary."""


@dataclass(frozen=True)
class DataFile:
    """A written data file: ``path`` relative to its table, ``day`` its partition, ``size`` in bytes, ``rows``;
    ``stats`` Delta's statistics as JSON."""

    path: str
    day: str
    size: int
    rows: int
    stats: str


@dataclass(frozen=True)
class SynopsisFailure:
    """A synopsis that a task could not fill: its fingerprint, the code and what is wrong."""

    fingerprint: str
    code: str
    message: str


@dataclass(frozen=True)
class WithoutTime:
    """So many events (``rows``) of a file of a source that have no usable time."""

    path: str
    rows: int


def bucket_of(keys: Sequence[str]) -> NDArray[np.int32]:
    """Bucket (n,) of each group key: the same for ever, whatever wrote it."""
    return np.array([zlib.crc32(key.encode()) % BUCKETS for key in keys], dtype=np.int32)


def is_of_levels(label: str) -> bool:
    """Return whether a partition of partials has rows of levels: it is named by a month or a year, not by a day."""
    return len(label) < len("2020-01-01")


def bucket_rows(tasks: int) -> int:
    """Rows at which a row group is large enough in a file of partials that is one of those of so many tasks."""
    return max(LEAST_BUCKET_ROWS, BUCKET_ROWS // max(1, tasks // 8))


def write_files(
    root: str | os.PathLike[str] | Place, rows: pa.Table, group_rows: int = BUCKET_ROWS
) -> Iterator[DataFile]:
    """Write rows as one file a day, or a few, under a table's folder; nothing for no rows.

    ``rows`` has the table's columns, ``day`` among them. Row groups of partials are by ``bucket`` and have
    ``group_rows`` rows, about; results are laid out by query, so that who reads one query of thousands reads little
    else.
    """
    table = Place.of(root)
    days = pc.unique(rows["day"]).sort().to_pylist()
    for day in days:
        part = (rows if len(days) == 1 else rows.filter(pc.equal(rows["day"], day))).drop_columns("day")
        if "bucket" in part.schema.names:
            # a column of nulls costs as much as one of numbers
            state_columns = set(STATES) & set(part.schema.names)
            empty = [name for name in state_columns if part[name].null_count == len(part)]
            groups = (group.drop_columns(empty) for group in _by_bucket(part, group_rows))
            yield _write_file(table, day, part, groups, empty)
            continue
        for file in _by_query(part):
            size = min(max(math.isqrt(FOOTER_ROWS * len(file)), 1 << 10), ROW_GROUP)
            groups = (file.slice(first, size) for first in range(0, len(file), size))
            yield _write_file(table, day, file, groups)


def _write_file(
    table: Place, day: str, rows: pa.Table, groups: Iterable[pa.Table], without: Sequence[str] = ()
) -> DataFile:
    """Write rows of a day, in these row groups, which are ``without`` some columns of theirs."""
    schema = pa.schema([field for field in rows.schema if field.name not in without])
    leaves = {field.name: _leaf(field) for field in schema}
    # of results just those that queries are found by: what else is in a footer is read by whoever reads a query
    found_by = ["query"] if "query" in leaves else [name for name, leaf in leaves.items() if name == leaf != "numbers"]
    # doubles of measured values hardly shrink
    codecs = {leaf: CODECS.get(name, "SNAPPY") for name, leaf in leaves.items()}
    options = {"compression": codecs, "use_dictionary": REPEATED, "write_statistics": found_by}
    file = NewFile(table, day)
    with file.writing():
        with pq.ParquetWriter(file.path, schema, write_page_checksum=True, **options) as writer:
            for group in groups:
                writer.write_table(group, row_group_size=len(group))
        return file.named(len(rows), statistics(rows))


class NewFile:
    """A data file of a day that is being written: at ``path`` on this machine, until :meth:`named` puts it into the
    folder of its table, where no reader sees it until a commit names it."""

    def __init__(self, table: Place, day: str) -> None:
        self.table, self.day = table, day
        self.name = f"part-{uuid.uuid4().hex}"
        with self._failing():
            self._draft = Draft(table / f"day={day}", f"{self.name}.parquet")
        self.path = self._draft.file

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Raises HDL-542 for what cannot be written; leaves nothing of it, whatever happens."""
        try:
            with self._failing():
                yield
        except BaseException:
            self._draft.drop()
            raise

    def named(self, rows: int, statistics: str) -> DataFile:
        """Put it under the name that it keeps, with its checksums
        (:class:`~spark_jobs.store.warehouse.checksums.Checksums`): the commit names the file, so it names its
        content."""
        name = f"{self.name}-{Checksums.of_file(self.path).suffix}.parquet"
        return DataFile(f"day={self.day}/{name}", self.day, self._draft.put(name), rows, statistics)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unwritable(str(self.table / f"day={self.day}"), error) from error


@contextmanager
def writing(place: Place) -> Iterator[None]:
    """Raises HDL-542 for a file that cannot be written."""
    try:
        yield
    except OSError as error:
        raise unwritable(str(place), error) from error


def unwritable(path: str | Path | Place, error: Exception) -> HeddleError:
    """The coded error of a file that cannot be written."""
    place = Place.of(path)
    if not place.is_local:
        return store_error(place, error)
    message, hint = f"{path} cannot be written: {error}", "is the disk full? run it again when it is not"
    if isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        reads = "`heddle read`, `lookup`, `status`, `queries`, `explain`, `diff` and `plan` need not write"
        return HeddleError(READ_ONLY, message, f"{reads}; for all else this user has to be permitted to")
    return HeddleError(UNWRITABLE, message, hint)


_AWKWARD = re.compile(r"%[0-9A-Fa-f]{2}|[\[\]|^\\\x00-\x1f\x7f]")
"""Characters in the path of a table that delta-rs misreads: it makes addresses of paths, and paths of those."""

_stand_ins: dict[str, str] = {}


def is_awkward(table: str | Path) -> bool:
    """Return whether delta-rs has to find the log of a table elsewhere, and may not touch its data
    (:func:`log_place`).
    """
    return _AWKWARD.search(str(table)) is not None


def log_place(table: str | Path) -> str:
    """Folder in which delta-rs finds the log of a table.

    It is the table's folder. Below folders with names that delta-rs misreads, it is a folder of this process that
    contains only a link to the log.
    """
    if not is_awkward(table):
        return str(table)
    link = Path(_stand_ins.get(str(table), "")) / LOG
    if not link.is_symlink():
        if not _stand_ins:
            atexit.register(_leave)
        link = Path(tempfile.mkdtemp(prefix="heddle-")) / LOG
        link.symlink_to(Path(table).resolve() / LOG)
        _stand_ins[str(table)] = str(link.parent)
    return str(link.parent)


def _leave() -> None:
    for place in _stand_ins.values():
        shutil.rmtree(place, ignore_errors=True)


def linked(table: str | Path) -> None:
    """Let what delta-rs lists in place of an awkward folder be what is in it."""
    for entry in Path(table).iterdir():
        link = Path(log_place(table)) / entry.name
        if not link.is_symlink():
            link.symlink_to(entry)


def _leaf(field: pa.Field) -> str:
    """The path of a column's values in a Parquet file."""
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else str(field.name)


def _by_bucket(part: pa.Table, group_rows: int) -> Iterator[pa.Table]:
    """Row groups of partials."""
    buckets = part["bucket"].to_numpy()
    # rows come in runs that ascend, one a synopsis
    runs = np.concatenate([[0], np.flatnonzero(buckets[1:] < buckets[:-1]) + 1, [len(part)]])
    if len(runs) > 2 + len(part) // group_rows:
        order = np.argsort(buckets, kind="stable")
        part, buckets = part.take(pa.array(order)), buckets[order]
        runs = np.array([0, len(part)])
    pairs = list(zip(runs, runs[1:], strict=False))
    known = np.unique(buckets)
    cuts = np.array([low + np.searchsorted(buckets[low:high], [*known, known[-1] + 1]) for low, high in pairs])
    for first, last in _together(part, cuts, group_rows):
        pieces = zip(cuts[:, first], cuts[:, last], strict=True)
        group = pa.concat_tables([part.slice(low, high - low) for low, high in pieces if high > low])
        size = max(1, len(group) * GROUP_BYTES // max(group.nbytes, GROUP_BYTES))
        yield from (group.slice(at, size) for at in range(0, len(group), size))


def _together(part: pa.Table, cuts: NDArray[np.int64], group_rows: int) -> Iterator[tuple[int, int]]:
    """The buckets [first, last) of each row group, by their places in ``cuts`` (runs, buckets + 1)."""
    rows = np.diff(cuts, axis=1).sum(axis=0)
    states = part.select([name for name in part.schema.names if name in STATES])
    sizes = np.zeros(len(rows))
    # of rows with large states few make a row group
    if states.nbytes * BUCKET_ROWS > 4 * BUCKET_BYTES * len(part):
        for run in cuts.tolist():
            sizes += [states.slice(low, high - low).nbytes for low, high in pairwise(run)]
    enough = np.maximum(rows / group_rows, sizes / BUCKET_BYTES)
    first, gathered = 0, 0.0
    for number, share in enumerate(enough.tolist()):
        # a large bucket is alone, so that its size is known
        if share >= 1 and number > first:
            yield first, number
            first, gathered = number, 0.0
        gathered += share
        if gathered >= 1 or number == len(enough) - 1:
            yield first, number + 1
            first, gathered = number + 1, 0.0


def _by_query(part: pa.Table) -> Iterator[pa.Table]:
    """Results in the order of their queries, in as many files as pay.

    Who reads one query reads the footers of the files that may have it, and the row groups: least, together, where a
    row group has about as many bytes as the footer; the more files a day has, the smaller are both.
    """
    encoded = part["query"].combine_chunks().dictionary_encode()
    order = pc.rank(encoded.dictionary, tiebreaker="first").to_numpy()[encoded.indices.to_numpy()]
    if np.any(order[1:] < order[:-1]):
        part, order = _sorted(part, order)
    files = min(max(len(part) // FILE_ROWS, 1), MOST_FILES)
    cuts = [len(part) * number // files for number in range(1, files)]
    starts = np.unique(np.searchsorted(order, order[cuts])).tolist() if cuts else []
    edges = [0, *(start for start in starts if start), len(part)]
    for first, last in zip(edges, edges[1:], strict=False):
        yield part.slice(first, last - first)


def _sorted(part: pa.Table, order: NDArray[Any]) -> tuple[pa.Table, NDArray[Any]]:
    """Rows and their order, by it; those of one place stay as they were. Long runs move as slices: to take row by row
    from millions costs some µs each."""
    starts = np.concatenate([[0], np.flatnonzero(order[1:] != order[:-1]) + 1])
    if len(starts) * LONG_RUN > len(part):
        places = np.argsort(order, kind="stable")
        return part.take(pa.array(places)), order[places]
    lengths = np.diff(starts, append=len(part))
    runs = np.argsort(order[starts], kind="stable")
    pieces = [part.slice(starts[run], lengths[run]) for run in runs.tolist()]
    return pa.concat_tables(pieces), np.repeat(order[starts[runs]], lengths[runs])


def write_day_files(root: str | os.PathLike[str] | Place, rows: pa.Table) -> Iterator[DataFile]:
    """Write rows of any columns, ``day`` among them, as one file a day under a table's folder."""
    table = Place.of(root)
    for day in pc.unique(rows["day"]).sort().to_pylist():
        part = rows.filter(pc.equal(rows["day"], day)).drop_columns("day")
        file = NewFile(table, day)
        with file.writing():
            pq.write_table(part, file.path, row_group_size=ROW_GROUP, write_page_checksum=True)
            yield file.named(len(part), statistics(part))


def statistics(part: pa.Table) -> str:
    """Delta's statistics of rows, as JSON."""
    # of every plain column or readers go wrong: delta-rs takes one without a null count for one without nulls, and
    # one without bounds, beside others that have them, for one that no value can match
    plain = [field.name for field in part.schema if not pa.types.is_nested(field.type)]
    # nobody looks for bytes
    bounds = {name: _bounds(part[name]) for name in plain if not pa.types.is_binary(part[name].type)}
    # a decimal is written with all its digits, which no float has
    mark = uuid.uuid4().hex
    text = json.dumps(
        {
            "numRecords": len(part),
            "minValues": {name: least for name, (least, _) in bounds.items()},
            "maxValues": {name: most for name, (_, most) in bounds.items()},
            "nullCount": {name: part[name].null_count for name in plain},
        },
        default=lambda number: f"{mark}{number:f}",
    )
    return re.sub(rf'"{mark}(-?[\d.]+)"', r"\1", text)


LONG_TEXT = 64
"""Characters of a text that statistics have at most."""


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """The least and the greatest value of a column, as JSON has them; of what JSON has no numbers for, looser ones."""
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
        return -sys.float_info.max, sys.float_info.max
    bounds = pc.min_max(column).as_py()
    least, most = _plain(bounds["min"]), _plain(bounds["max"])
    if isinstance(most, str) and len(most) > LONG_TEXT and pa.types.is_string(column.type):
        most = most[:LONG_TEXT] + chr(sys.maxunicode)
    return least[:LONG_TEXT] if isinstance(least, str) else least, most


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value.isoformat() if isinstance(value, date) else value


@contextmanager
def reading(path: str | os.PathLike[str] | Place) -> Iterator[None]:
    """Raises HDL-543 for what cannot be read of a table's data files."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        place = Place.of(path)
        if not place.is_local and not isinstance(error, FileNotFoundError) and is_refusal(error):
            raise store_error(place, error) from error
        hint = "`heddle maintain` says what is to be done"
        raise HeddleError(UNREADABLE, f"{path} cannot be read: {error}", hint) from error


def opened(
    path: str | os.PathLike[str] | Place,
    memory_map: bool = False,
    size: int | None = None,
    most: int = SMALL,
    **options: Any,
) -> pq.ParquetFile:
    """Open a data file. Its size and footer are checked now, its pages when they are read.

    ``size``: its bytes, if the log names them. ``most``: in a store, the most bytes of a file that is read
    completely. Raises OSError for a file that is not as it was written.
    """
    place = Place.of(path)
    # who knows the size wants to know whether the file still is what it was
    file = place.open_unchanging(memory_map, most) if size is None else place.open(memory_map)
    footer = kept_footer(place, file) if size is None else footer_of(file)
    Checksums.named(place.name).check(file.size(), footer, size)
    metadata = pq.read_metadata(pa.BufferReader(b"PAR1" + footer))
    options |= {"page_checksum_verification": True, "pre_buffer": not place.is_local}
    return pq.ParquetFile(file, metadata=metadata, **options)


def read_file(path: str | os.PathLike[str] | Place, columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a data file, in some columns (None: all). Raises HDL-543."""
    with reading(path):
        # the file's own reader: a partitioned dataset would infer columns from the folder's name
        return opened(path).read(columns)


Span = tuple[int, int]
"""A span [begin, end) of time, in microseconds."""


def read_buckets(
    paths: Sequence[str], buckets: AbstractSet[int], most: int | None = None, span: Span | None = None
) -> Iterator[pa.Table]:
    """The rows of some buckets in some files of partials; texts that repeat come as dictionaries. Raises HDL-543.

    ``most``: bytes from which on a file's row groups are read in several pieces; None: a file is read at once.
    ``span``: row groups without fragments in it are skipped; others may have more.
    """
    if all(Place.of(path).is_local for path in paths):
        for path in paths:
            yield from _rows_of_buckets(path, buckets, most, span)
    else:
        yield from read_ahead([partial(_rows_of_buckets, path, buckets, most, span) for path in paths])


def stored_bytes(paths: Sequence[str], buckets: AbstractSet[int], span: Span | None = None) -> int:
    """About how many bytes of memory :func:`read_buckets` would take: those of the row groups before compression."""
    size = 0
    for path in paths:
        with reading(path):
            file = opened(path)
            size += sum(file.metadata.row_group(index).total_byte_size for index, _ in _groups_of(file, buckets, span))
    return size


@dataclass(frozen=True)
class StoredGroup:
    """A row group of a file of partials: its ``rows`` and their ``bytes`` before compression, of the buckets ``first``
    to ``last``, under fragments in [begin, end)."""

    rows: int
    bytes: int
    first: int
    last: int
    begin: int
    end: int

    def has(self, bucket: int) -> bool:
        """Return whether it may have rows of a bucket."""
        return self.first <= bucket <= self.last


def stored_groups(paths: Sequence[str]) -> list[StoredGroup]:
    """The row groups of some files of partials, by their footers. Raises HDL-543."""
    if all(Place.of(path).is_local for path in paths):
        return [group for path in paths for group in _stored_groups(path)]
    return list(read_ahead([partial(_stored_groups, path) for path in paths]))


def _stored_groups(path: str) -> Iterator[StoredGroup]:
    with reading(path):
        file = opened(path)
    places = [file.schema_arrow.names.index(name) for name in ("bucket", "fragment_start", "fragment_end")]
    for index in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(index)
        bucket, start, end = (group.column(at).statistics for at in places)
        size = group.num_rows, group.total_byte_size
        yield StoredGroup(*size, bucket.min, bucket.max, start.min, max(end.max, start.min + 1))


def _groups_of(file: pq.ParquetFile, buckets: AbstractSet[int], span: Span | None) -> Iterator[tuple[int, bool]]:
    """The row groups of a file that may have rows of some buckets, and whether they have no others; only those that may
    have fragments in a span."""
    at, start, end = (file.schema_arrow.names.index(name) for name in ("bucket", "fragment_start", "fragment_end"))
    for index in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(index)
        bounds = group.column(at).statistics
        group_buckets = set(range(bounds.min, bounds.max + 1))
        if not group_buckets & buckets:
            continue
        if span is None or (
            group.column(start).statistics.min < span[1] and group.column(end).statistics.max > span[0]
        ):
            yield index, group_buckets <= buckets


def _rows_of_buckets(path: str, buckets: AbstractSet[int], most: int | None, span: Span | None) -> Iterator[pa.Table]:
    with reading(path):
        place = Place.of(path)
        # what is mapped counts as memory of the process while it is read
        is_mapped = most is None or not place.is_local or Path(place.url).stat().st_size <= most
        file = opened(path, memory_map=is_mapped, read_dictionary=["stream", "fingerprint", "key"])
        pieces: list[list[int]] = [[]]
        is_exact, size = True, 0
        for index, is_alone in _groups_of(file, buckets, span):
            more = file.metadata.row_group(index).total_byte_size
            if most is not None and size + more > most and pieces[-1]:
                pieces.append([])
                size = 0
            size += more
            pieces[-1].append(index)
            is_exact = is_exact and is_alone
    chosen = pa.array(sorted(buckets), pa.int32())
    for groups in pieces:
        if groups:
            with reading(path):
                rows = file.read_row_groups(groups, use_threads=False)
            rows = _with_states(rows)
            yield rows if is_exact else rows.filter(pc.is_in(rows["bucket"], chosen))


def _with_states(rows: pa.Table) -> pa.Table:
    """Partial rows with all of :data:`STATES`, the last columns; nulls where the file has none."""
    plain_columns = [name for name in rows.schema.names if name not in STATES]
    for name, type in STATES.items():
        if name not in rows.schema.names:
            rows = rows.append_column(name, pa.nulls(len(rows), type))
    return rows.select([*plain_columns, *STATES])


def now_millis() -> int:
    """The clock in milliseconds, as Delta's log has it."""
    return time.time_ns() // 1_000_000
