"""Reads event streams: CSV, Parquet and Delta, as typed Arrow batches, split by split, without a JVM.

A *split* is one piece of a source that one task reads: some row groups of a Parquet or Delta file, or a whole
CSV file. Splits know the event times they can hold where the format says so, so a run opens only what its
interval needs. Decoded batches have one Arrow type per :class:`optimizer.workload.values.Type`: int64, float64, utf8,
bool, date32, timestamp[us, UTC] and decimal128(p, s). Every value is checked against its column's type: what is
computed in a width that was proven to hold it does not wrap round.

All that is read of a source passes through here, and whatever happens is a coded error of its stream: one bad file
fails no other stream.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.streams import BY_CATALOGUE, TIME_UNITS, is_readable, roots_of
from optimizer.workload.values import BYTE, INT, SHORT, Stream, digest
from spark_jobs.settings import settings
from spark_jobs.sources.column_mapping import as_table_has, names_in_file, place_in_file
from spark_jobs.sources.declared import Declaration
from spark_jobs.sources.delta_source import DeltaFile, read_log
from spark_jobs.sources.file_names import (
    COMMIT_LOG,
    TABLE_LOGS,
    is_data,
    is_hidden,
    is_no_data,
    of_table,
    unread_files,
    unread_links,
)
from spark_jobs.sources.file_statuses import FileStatuses
from spark_jobs.sources.legacy_calendar import LegacyCalendar, has_moved, legacy_calendar, moved_instant
from spark_jobs.sources.objects import Changed, look_at, seen
from spark_jobs.sources.replacements import NOTHING, Replacements
from spark_jobs.sources.sink_log import committed, origin_warnings, sinks_above
from spark_jobs.storage import ObjectVersion, Place, Stored, check_bucket, is_refusal, store_error

ROW = 40
"""Bytes of a row of a text file, about."""

SPLIT_ROWS = 1_000_000
"""Rows of a Parquet split at which the next row group starts a new one."""

FIRST_ROWS = 1000
"""Rows of a Parquet file that a look at its beginning decodes."""

FIRST, LAST = -62_135_596_800_000_000, 253_402_300_800_000_000
"""The instants that are used, [FIRST, LAST) microseconds: the years 1 to 9999, as in Spark, ISO 8601 and Python."""

AT_ONCE = 16
"""Files of a store that are looked at at once."""

T = TypeVar("T")

INTEGERS = {BYTE: 1 << 7, SHORT: 1 << 15, INT: 1 << 31}
"""Of integers that are narrower than 64 bits: their least value, negated."""


@dataclass(frozen=True)
class Split:
    """One piece of a source. ``begin``, ``end``: event times lie in [begin, end) microseconds, or None if
    unknown; ``identity`` changes whenever the content may have changed; ``row_groups`` empty: the whole file;
    ``constants``: values of columns that are not read from the file, as Arrow scalars: those of a Delta table's
    partitions, and null for columns that it has and the file has not (of type null: not even the table). Not taken in
    (:mod:`spark_jobs.sources.ledger`) are events in the spans ``refused``, and rows that files in ``repeated`` name,
    of which ``lacking`` has a hash for each span of time. Of a file in a store ``version`` is what was listed, and of a
    Parquet file there ``footer`` what it says of itself, which tasks need not ask for again. Of a Delta table's file
    ``names`` is what the table calls its columns, if not as it does (:mod:`spark_jobs.sources.column_mapping`), and
    ``deleted`` which of the split's rows are no longer the table's, ascending: they are counted nowhere else;
    ``replacements`` is what is known of how the stream's files took the place of others, ``declared`` how the stream is
    declared. ``gaps``: long spans [first, last) between its first and last event that have none
    (:mod:`spark_jobs.sources.clusters`). Paths in identities are relative to the stream's source."""

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
    version: ObjectVersion | None = None
    names: tuple[tuple[tuple[str, ...], str], ...] = ()
    deleted: NDArray[np.int64] | None = field(default=None, compare=False, repr=False)
    footer: pq.FileMetaData | None = field(default=None, compare=False, repr=False)
    replacements: Replacements = field(default=NOTHING, compare=False, repr=False)
    declared: Declaration | None = field(default=None, compare=False, repr=False)
    gaps: tuple[tuple[int, int], ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        # tasks read rows: they compare nothing
        return self.__dict__ | {"replacements": NOTHING, "declared": None}

    def groups(self, metadata: pq.FileMetaData) -> list[int]:
        """The numbers of its row groups, of the file's own ``metadata``."""
        return list(self.row_groups or range(metadata.num_row_groups))

    def metadata(self) -> pq.FileMetaData:
        """What its Parquet file says of itself. Raises OSError and pyarrow's errors."""
        return pq.read_metadata(self.path) if self.footer is None else self.footer

    def may_hold(self, begin: int, end: int) -> bool:
        """Whether an event of the split can lie in [begin, end)."""
        if (self.begin is not None and self.begin >= end) or (self.end is not None and self.end <= begin):
            return False
        return not any(
            first <= (begin if self.begin is None else max(begin, self.begin))
            and (end if self.end is None else min(end, self.end)) <= last
            for first, last in self.gaps
        )

    @property
    def spans(self) -> list[tuple[int | None, int | None]]:
        """The spans [begin, end) that may have its events."""
        inside = [
            gap
            for gap in self.gaps
            if (self.begin is None or gap[0] > self.begin) and (self.end is None or gap[1] < self.end)
        ]
        edges = [self.begin, *(at for gap in inside for at in gap), self.end]
        return list(zip(edges[::2], edges[1::2], strict=True))

    def rows_about(self) -> float:
        """How many rows it has, from its size if it does not say."""
        return self.bytes_about() / ROW if self.rows is None else self.rows

    def bytes_about(self) -> int:
        """How many bytes its file has; 0 if it is gone."""
        if self.version is not None:
            return self.version.size
        stands = Place.of(self.path).info()
        return 0 if stands is None else stands.size

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
    """Hash of the content that can hold events of [begin, end): equal tokens and declarations, equal events.

    Files that took the place of others without a change there stand for those.
    """
    return digest(sorted(_marks_of(splits, begin, end)))


def _marks_of(splits: list[Split], begin: int, end: int) -> set[str]:
    marks = {mark for split in splits if (mark := split.mark(begin, end)) is not None}
    replacements = splits[0].replacements if splits else NOTHING
    return replacements.undone(marks, begin, end)


Tokens = dict[tuple[int, int], tuple[str, bool]]
"""The token of the content that a stream has in each span [begin, end), and whether it has any there."""


class ContentName:
    """What stored aggregates of some columns of a stream are named by: content of its files, and their declaration.

    Parameters
    ----------
    splits
        What the stream holds.
    columns
        The columns that are read, besides those of the event time and the event id; None: all, and their order counts.
    tokens
        What is known of other columns of the same splits; it grows.
    """

    def __init__(self, splits: list[Split], columns: Iterable[str] | None, tokens: Tokens | None = None) -> None:
        declared = splits[0].declared if splits else None
        self._splits = splits
        self._named = None if declared is None else declared.of(columns)
        self._tokens: Tokens = {} if tokens is None else tokens

    def _token(self, begin: int, end: int) -> tuple[str, bool]:
        if (begin, end) not in self._tokens:
            marks = _marks_of(self._splits, begin, end)
            self._tokens[begin, end] = digest(sorted(marks)), bool(marks)
        return self._tokens[begin, end]

    def of(self, begin: int, end: int) -> str:
        """The name for [begin, end), to be stored."""
        token = self._token(begin, end)
        return token[0] if self._named is None else self._named.token(*token)

    def is_of(self, stored: str, begin: int, end: int) -> bool:
        """Whether what is stored under a name for [begin, end) is what would be stored now."""
        token = self._token(begin, end)
        return stored == token[0] if self._named is None else self._named.is_token(stored, *token)


@dataclass(frozen=True)
class SourceFiles:
    """The files of a stream as a listing has them, in a fixed order, none of them opened.

    Of each file its ``paths`` (of those in a store: URLs), its ``names`` below the source, and what it is ``marked``
    with, in a listing: of a file of this machine ``name|size|time of modification`` and in another line
    ``inode|time of change``; of a table's file its identity; of a file of a store ``size|time of modification
    (microseconds)``, by which alone it is not known.
    ``opened`` gives the splits of some of them, by their numbers, and raises what :func:`splits_of` raises. ``commit``:
    the state of a table (:attr:`spark_jobs.sources.delta_source.DeltaSnapshot.commit`), ``table`` its id.
    ``is_settling``: whether a file
    of which all this is known need not be opened. ``passed``: the numbers of known files that are there as they were
    (:class:`KnownFiles`), and are not among the others. ``warnings``: about files of the folder that are not read.
    """

    paths: Sequence[str]
    marked: Callable[[], Sequence[str] | pa.Array]
    opened: Callable[[Sequence[int]], list[Split]]
    names: Sequence[str] = ()
    commit: str | None = None
    is_settling: bool = True
    passed: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    table: str | None = None
    warnings: tuple[Diagnostic, ...] = ()

    @cached_property
    def marks(self) -> Sequence[str] | pa.Array:
        """What a listing says of each file beside its name: of files of this machine it is asked for only now."""
        return self.marked()


class KnownFiles(NamedTuple):
    """Files of this machine that are as they were if they have their ``paths`` (n,) and ``inodes`` (n,)."""

    paths: pa.Array
    inodes: NDArray[np.uint64]


def splits_of(stream: Stream) -> list[Split]:
    """Everything there is of a stream now, in a fixed order.

    Raises HDL-401 (nothing there), HDL-402 (a file cannot be read), HDL-405 (a Delta feature that is not read),
    HDL-409 (what was not foreseen), HDL-430 (a gap in a Delta table's log), HDL-458 (a file lies where no stream is
    read from).
    """
    files = files_of(stream)
    return files.opened(range(len(files.paths)))


def files_of(stream: Stream, known: KnownFiles | None = None) -> SourceFiles:
    """The files of a stream now. ``known``: those that are passed over. Raises what :func:`splits_of` does, but for
    what is seen once they are opened."""
    with failures_of(stream, stream.source.path):
        if stream.source.format in ("delta", "iceberg"):
            table, files = delta_log(stream) if stream.source.format == "delta" else iceberg_files(stream)
            return _files_of_table(stream, table, files)
        if not Place.of(stream.source.path).is_local:
            return _files_in_store(stream)
        return _files_here(stream, known)


def _opening(
    stream: Stream, open_files: Callable[[Sequence[int]], list[Split]]
) -> Callable[[Sequence[int]], list[Split]]:
    declared = Declaration(stream)

    def opened(numbers: Sequence[int]) -> list[Split]:
        with failures_of(stream, stream.source.path):
            found = open_files(numbers)
        return [replace(split, declared=declared) for split in found]

    return opened


def names_below(root: str, paths: Sequence[str]) -> list[str]:
    """What files are called below the root of their source; a source that is one file is called as the file is."""
    start = len(root.rstrip("/")) + 1
    return [path[start:] or path.rpartition("/")[2] for path in paths]


def _files_here(stream: Stream, known: KnownFiles | None) -> SourceFiles:
    """The CSV or Parquet files of this machine, those that are known passed over."""
    paths, passed, warnings = _files(stream, known)
    names, statuses = names_below(stream.source.path, paths), FileStatuses(paths)

    def identity(number: int) -> str:
        size, written, _, _ = statuses.of(number)
        return f"{names[number]}|{size}|{written}"

    def opened(numbers: Sequence[int]) -> list[Split]:
        if stream.source.format == "csv":
            return [Split("csv", paths[number], identity(number)) for number in numbers]
        return [each for number in numbers for each in _parquet_splits(stream, paths[number], identity(number))]

    def marked() -> pa.Array:
        # the texts of all files at once
        size, written, inode, changed = (pa.array(np.asarray(column)).cast(pa.string()) for column in statuses.all)
        identities = pc.binary_join_element_wise(pa.array(names, pa.string()), size, written, "|")
        status = pc.binary_join_element_wise(inode, changed, "|")
        return pc.binary_join_element_wise(identities, status, "\n")

    return SourceFiles(paths, marked, _opening(stream, opened), names, passed=passed, warnings=warnings)


def _files_in_store(stream: Stream) -> SourceFiles:
    """The CSV or Parquet files of a store."""
    files, warnings = _stored_files(stream)
    paths = [str(place) for place, _ in files]
    names = names_below(str(Place.of(stream.source.path)), paths)

    def identity(number: int, version: ObjectVersion) -> str:
        return f"{names[number]}|{version.size}|{version.tag}"

    def opened(numbers: Sequence[int]) -> list[Split]:
        chosen = [paths[number] for number in numbers]
        if stream.source.format == "csv":
            return [
                Split("csv", paths[number], identity(number, version), version=version)
                for number, version in zip(numbers, _at_once(stream, chosen, look_at), strict=True)
            ]
        return [
            replace(split, version=version, footer=footer)
            for number, (version, footer) in zip(numbers, _at_once(stream, chosen, seen), strict=True)
            for split in _parquet_splits(stream, paths[number], identity(number, version), metadata=footer)
        ]

    marks = [f"{file.size}|{file.modified}" for _, file in files]
    return SourceFiles(paths, lambda: marks, _opening(stream, opened), names, warnings=warnings)


def _at_once(stream: Stream, paths: Sequence[str], look: Callable[[str], T]) -> list[T]:
    """What a look at each of some files of a store gives."""

    def looked_at(path: str) -> T:
        with failures_of(stream, path):
            return look(path)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(looked_at, paths))


def _stored_files(stream: Stream) -> tuple[list[tuple[Place, Stored]], tuple[Diagnostic, ...]]:
    """The files of a source in a store, in the order in which a folder of this machine would have them, and the
    warnings about the others."""
    root = Place.of(stream.source.path)
    check_place(stream, root)
    # a listing is a request for a thousand files, and a file that bears the source's name another
    files = {tuple(file.name.split("/")): file for file in root.listed(recursive=True)}
    if not files:
        if (alone := root.info()) is not None:
            return [(root, alone)], ()
        check_bucket(root)
        raise HeddleError("HDL-401", f"stream {stream.name}: there is nothing at {root}", "check `path`")
    visible = [parts for parts in sorted(files) if not any(map(is_hidden, parts))]
    chosen = {"/".join(parts): parts for parts in visible if is_data(parts[-1], stream.source.format)}
    others = [name for name in map("/".join, visible) if name not in chosen and not is_no_data(name.rpartition("/")[2])]
    logs = {
        (part, "/".join(parts[:at]))
        for parts in files
        for at, part in enumerate(parts)
        if part == COMMIT_LOG or part in TABLE_LOGS
    }
    sinks = [str(root / folder) if folder else str(root) for log, folder in logs if log == COMMIT_LOG]
    named = committed(stream, root, sinks or sinks_above(root), list(chosen))
    warnings = (*unread_files(stream, others), *named.warnings)
    warnings += tuple(of_table(stream, str(root / folder), log) for log, folder in sorted(logs) if log in TABLE_LOGS)
    found = [
        (root / files[parts].name, files[parts]) for name, parts in chosen.items() if name not in named.uncommitted
    ]
    if not found:
        raise _no_file(stream, root, warnings)
    return found, warnings


def _no_file(stream: Stream, root: Path | Place, warnings: Sequence[Diagnostic]) -> HeddleError:
    message = f"stream {stream.name}: no .{stream.source.format} file in {root}"
    hint = "; ".join(["check `path` and `format`", *(warning.message for warning in warnings[:2])])
    return HeddleError("HDL-401", message, hint)


@contextmanager
def failures_of(stream: Stream, path: str | Path) -> Iterator[None]:
    """Whatever goes wrong while a stream is looked at is a coded error of it."""
    try:
        yield
    except (HeddleError, MemoryError):
        raise
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        is_of_store = isinstance(error, OSError) and not isinstance(error, (FileNotFoundError, Changed))
        if is_of_store and is_refusal(error) and not (place := Place.of(str(path))).is_local:
            refused = store_error(place, error).diagnostic
            raise HeddleError(refused.code, f"stream {stream.name}: {refused.message}", refused.hint) from error
        raise _unreadable(stream, str(path), error) from error
    except Exception as error:
        message = f"stream {stream.name}: {path} cannot be read: {type(error).__name__}: {error}"
        raise HeddleError("HDL-409", message, "leave the file out: this failure was not foreseen") from error


def check_place(stream: Stream, path: Path | Place) -> None:
    """Raises HDL-458 unless what is to be opened lies, all links followed, where streams are read from."""
    roots = settings().source_roots
    try:
        place = str(path) if isinstance(path, Place) else path.resolve()
        # what an origin is, is looked at before it is copied
        allowed = None if roots is None else roots_of([*roots, *([settings().copies] if stream.source.origin else [])])
        inside = is_readable(place, allowed)
    except RuntimeError:
        inside = False  # a link that leads to itself
    if not inside:
        hint = "HEDDLE_SOURCES names the folders and URLs of sources" if roots is not None else "move the data"
        message = f"stream {stream.name}: {path} leads to where no stream is read from"
        raise HeddleError("HDL-458", message, f"{hint}; links and the paths in a Delta log count as well")


def _files(stream: Stream, known: KnownFiles | None) -> tuple[list[str], NDArray[np.int64], tuple[Diagnostic, ...]]:
    """The CSV or Parquet files of a folder of this machine, or the file that the source is, by their paths' parts; the
    numbers of the known ones that are passed over; and the warnings about all others."""
    root, format = Path(stream.source.path), stream.source.format
    check_place(stream, root)
    if root.is_file():
        return [str(root)], np.zeros(0, dtype=np.int64), ()
    if not root.exists():
        raise HeddleError(
            "HDL-401",
            f"stream {stream.name}: there is no {root}",
            "check `path`: it is relative to streams.yaml",
        )
    walked, above = _walked(str(root)), sinks_above(Place(str(root)))
    sinks = [folder for folder, log in walked.logs if log == COMMIT_LOG] or above
    # which files are committed is decided of all of them
    entries, passed = _passed(walked.entries, None if sinks else known)
    named = [entry for entry in entries if is_data(entry.name, format) and not is_hidden(entry.name)]
    paths = [entry.path for entry in named if entry.is_file(follow_symlinks=False)]
    # folders that are links are not gone into
    paths += [entry.path for entry in named if entry.is_symlink() and _leads_to_file(stream, entry)]
    warnings = _unread(stream, entries, named, paths)
    warnings += tuple(of_table(stream, folder, log) for folder, log in walked.logs if log in TABLE_LOGS)
    if sinks:
        below = {path[len(str(root)) + 1 :]: path for path in paths}
        said = committed(stream, Place(str(root)), sinks, list(below))
        paths, warnings = (
            [path for name, path in below.items() if name not in said.uncommitted],
            warnings + said.warnings,
        )
    if not paths and not len(passed):
        raise _no_file(stream, root, warnings)
    paths.sort(key=None if walked.is_flat else lambda path: path.replace("/", "\0"))
    return paths, passed, warnings


def _unread(
    stream: Stream, entries: list[os.DirEntry[str]], named: list[os.DirEntry[str]], paths: list[str]
) -> tuple[Diagnostic, ...]:
    """The warning about the entries of a folder that are not read."""
    if len(paths) == len(entries):
        return ()
    format, read = stream.source.format, set(paths) if len(paths) < len(named) else None
    below = len(stream.source.path.rstrip("/")) + 1
    links = [
        entry.path[below:]
        for entry in entries
        if entry.is_symlink() and not is_no_data(entry.name) and not _is_file(entry)
    ]
    others = [
        entry.path
        for entry in entries
        if not is_no_data(entry.name) and not (is_data(entry.name, format) and (read is None or entry.path in read))
    ]
    files = {path[below:] for path in others} - set(links)
    return (*unread_files(stream, files), *unread_links(stream, links))


def _leads_to_file(stream: Stream, link: os.DirEntry[str]) -> bool:
    """Whether a link leads to a file. Raises HDL-458 if that lies where no stream is read from."""
    if _is_file(link):
        check_place(stream, Path(link.path))
        return True
    return False


def _is_file(link: os.DirEntry[str]) -> bool:
    try:
        return link.is_file()
    except OSError:  # one that leads to itself
        return False


class _Walked(NamedTuple):
    """What lies in a folder and its folders, but for hidden ones and what is in them; whether it has no folders; and
    the folders that have a log (:mod:`spark_jobs.sources.file_names`), with its name."""

    entries: list[os.DirEntry[str]]
    is_flat: bool
    logs: list[tuple[str, str]]


def _walked(root: str) -> _Walked:
    folders, found, is_flat, logs = [root], list[os.DirEntry[str]](), True, list[tuple[str, str]]()
    while folders:
        folder = folders.pop()
        with os.scandir(folder) as entries:
            here = list(entries)
        inner = [entry for entry in here if entry.is_dir(follow_symlinks=False)]
        folders += [entry.path for entry in inner if not is_hidden(entry.name)]
        logs += [(folder, entry.name) for entry in inner if entry.name == COMMIT_LOG or entry.name in TABLE_LOGS]
        found += [entry for entry in here if not entry.is_dir(follow_symlinks=False)] if inner else here
        is_flat &= not inner
    return _Walked(found, is_flat, sorted(logs))


def _passed(
    entries: list[os.DirEntry[str]], known: KnownFiles | None
) -> tuple[list[os.DirEntry[str]], NDArray[np.int64]]:
    """The entries that are not known by their paths and inodes, and the numbers of the known ones."""
    nothing = np.zeros(0, dtype=np.int64)
    if known is None or not len(known.paths):
        return entries, nothing
    try:
        paths = pa.array([entry.path for entry in entries], pa.string())
    except UnicodeEncodeError:  # a name that is no text
        return entries, nothing
    # an inode is told by the folder: that of a link is its own, and no other file's
    inodes = np.fromiter((entry.inode() for entry in entries), np.uint64, len(entries))
    at = pc.fill_null(pc.index_in(paths, known.paths), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    is_known = (at >= 0) & (known.inodes[at] == inodes)
    return [entries[number] for number in np.flatnonzero(~is_known).tolist()], at[is_known]


def _parquet_splits(
    stream: Stream,
    path: str,
    identity: str,
    table: pa.Schema | None = None,
    metadata: pq.FileMetaData | None = None,
    file: DeltaFile | None = None,
) -> list[Split]:
    """The splits of a Parquet file. ``metadata``: its footer, if that was read; of a ``file`` of a Delta table also
    ``table``, its columns."""
    begin, end = (None, None) if file is None else _known_bounds(file)
    with failures_of(stream, path):
        metadata = pq.read_metadata(path) if metadata is None else metadata
        calendar = legacy_calendar(metadata)
        identity += "|moved dates" if has_moved(metadata, calendar) else ""
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
    found: list[Split] = []
    groups: list[int] = []
    rows = before = 0
    low: int | None = None
    high: int | None = None

    def flush() -> None:
        nonlocal groups, rows, low, high, before
        if groups:
            first, last = (begin, end) if low is None or high is None else (low, high + 1)
            known = tuple(sorted(constants.items(), key=lambda one: one[0]))
            split = Split("parquet", path, identity, tuple(groups), first, last, rows, known)
            if called:
                split = replace(split, names=tuple(called.items()))
            if file is not None and file.deleted is not None:
                gone = file.deleted[slice(*np.searchsorted(file.deleted, (before, before + rows)))] - before
                split = replace(split, rows=rows - len(gone), deleted=gone)
            found.append(split)
        before += rows
        groups, rows, low, high = [], 0, None, None

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
        else:
            low = high = None
        groups.append(index)
        rows += group.num_rows
    flush()
    # one that is alone is the whole file
    return [replace(split, row_groups=()) for split in found] if len(found) == 1 else found


def _renamings(stream: Stream, called: Mapping[tuple[str, ...], str]) -> str:
    """What of a file's identity says how the table calls those of its columns that the stream has, if not as it does:
    a column that changes its name leaves the file as it is."""
    used = {name.lower() for name in (stream.time, *dict(stream.schema), *dict(stream.nested))}
    others = {path for path, name in called.items() if called[path[:1]].lower() in used and name != path[-1]}
    return f"|columns {digest(sorted([*path, called[path]] for path in others))}" if others else ""


def _constants(
    stream: Stream, path: Path | str, names: Sequence[str], table: pa.Schema, partition: Mapping[str, pa.Scalar]
) -> dict[str, pa.Scalar]:
    """Those columns of a stream that are not read from a file of a Delta table with the columns ``names``."""
    wanted = [stream.time, *dict(stream.schema), *dict(stream.nested)]
    held, known = (
        column_places(stream, path, names, wanted),
        column_places(stream, stream.source.path, table.names, wanted),
    )
    found = {}
    for name in held:
        column = known[name]
        if column is not None and column in partition:
            found[name] = partition[column]
        elif (column is None) != (held[name] is None):
            found[name] = pa.scalar(None, pa.null() if column is None else table.field(column).type)
    return found


def column_places(
    stream: Stream, path: str | Path, names: Sequence[str], wanted: Iterable[str]
) -> dict[str, str | None]:
    """Of some columns those of a file that they are, whatever their case: Spark and Delta do not tell them apart."""
    known: dict[str, list[str]] = {}
    for name in names:
        known.setdefault(name.lower(), []).append(name)
    found: dict[str, str | None] = {}
    for name in wanted:
        first, *more = known.get(name.lower(), [None])
        if more:
            message = f"stream {stream.name}: columns {first} and {more[0]} of {path} differ by case at most"
            raise HeddleError("HDL-456", message, "rename one: Spark and Delta do not tell them apart")
        found[name] = first
    return found


_MICROS = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}


def _time_bounds(
    stream: Stream, column: Any, chunk: Any, calendar: LegacyCalendar | None = None
) -> tuple[int, int] | None:
    """The least and the greatest time of a row group; None if they are unknown or rows have no time that is used."""
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
    return (low, high) if low >= FIRST and high < LAST else None


def delta_log(stream: Stream) -> tuple[pa.Schema, list[DeltaFile]]:
    """Schema and files of a stream that is a Delta table, all inside its allowed place."""
    root = Place.of(stream.source.path)
    check_place(stream, root if not root.is_local else root.local())
    if stream.source.origin is not None and not (root / "_delta_log").exists():
        message = f"stream {stream.name}: {stream.source.origin.name} is not copied yet: only Spark reads it"
        raise HeddleError("HDL-432", message, "the next run copies it, or `heddle copy`")
    if root.is_local:
        log = root.local() / "_delta_log"
        for path in (log, *log.rglob("*")):
            if path.is_symlink():
                check_place(stream, path)
    snapshot = read_log(stream)
    return snapshot.schema, list(snapshot.files)


def iceberg_files(stream: Stream) -> tuple[pa.Schema, list[DeltaFile]]:
    """Schema and files of a stream that is an Iceberg table, all inside its allowed place."""
    # Iceberg's library is not for those who read none
    from spark_jobs.sources.iceberg_source import read_iceberg

    if not stream.source.path.startswith(BY_CATALOGUE):
        root = Place.of(stream.source.path)
        check_place(stream, root if not root.is_local else root.local())
    return read_iceberg(stream)


def _files_of_table(stream: Stream, table: pa.Schema, files: Sequence[DeltaFile]) -> SourceFiles:
    """The files of a table, by their places."""
    files = sorted(files, key=lambda file: file.path)
    return SourceFiles(
        [file.path for file in files],
        lambda: [file.identity for file in files],
        _opening(stream, lambda numbers: table_splits(stream, table, [files[number] for number in numbers])),
        [file.name for file in files],
        files[0].commit if files else None,
        # what the columns of a file are called is known once it is opened
        all(file.mapped is None for file in files),
        table=files[0].table if files else None,
        warnings=origin_warnings(stream),
    )


def table_splits(stream: Stream, table: pa.Schema, files: Sequence[DeltaFile]) -> list[Split]:
    """The splits of a table's files."""
    if any(not Place.of(file.path).is_local for file in files):
        return _stored_delta_splits(stream, table, files)
    folders: set[Path] = set()
    found: list[Split] = []
    for file in files:
        path = Path(file.path)
        if path.parent not in folders or path.is_symlink():
            check_place(stream, path)
            folders.add(path.parent)
        if not path.is_file():
            raise HeddleError("HDL-402", f"stream {stream.name}: {path} is in the table's log but not on disk")
        found += _parquet_splits(stream, file.path, file.identity, table, file=file)
    return sorted(found, key=lambda split: (split.path, split.row_groups))


def _stored_delta_splits(stream: Stream, table: pa.Schema, files: Sequence[DeltaFile]) -> list[Split]:
    """The splits of a table in a store, by its log: what a file's name stands for never changes."""
    versions = {file.path: ObjectVersion(file.size, "", file.modified) for file in files}
    for path in versions:
        check_place(stream, Place(path))
    looked_at = _at_once(stream, list(versions), lambda path: seen(path, versions[path]))
    footers = dict(zip(versions, looked_at, strict=True))
    found: list[Split] = []
    for file in files:
        version, footer = footers[file.path]
        splits = _parquet_splits(stream, file.path, file.identity, table, metadata=footer, file=file)
        found += [replace(split, version=version, footer=footer) for split in splits]
    return sorted(found, key=lambda split: (split.path, split.row_groups))


def _known_bounds(file: DeltaFile) -> tuple[int | None, int | None]:
    begin, end = file.begin, file.end
    if begin is None or end is None or begin < FIRST or end > LAST:
        return None, None
    return begin, end


def _unreadable(stream: Stream, path: str, error: Exception) -> HeddleError:
    hint = "is it half written? write to another name and rename it when it is complete"
    if isinstance(error, (FileNotFoundError, Changed)):
        hint = "did it change, or go, while it was read? run it again"
    return HeddleError("HDL-402", f"stream {stream.name}: {path} cannot be read: {error}", hint)
