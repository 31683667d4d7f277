"""Splits of event streams, which are read as typed Arrow batches without a JVM.

A *split* is one piece of a source that one task reads: some row groups of a Parquet file, or an entire text file.
Splits know the event times that they can contain where the format has statistics, so a run opens only the splits that
its interval needs. Decoded batches have one Arrow type per :class:`optimizer.workload.values.Type`: int64, float64,
utf8, bool, date32, timestamp[us, UTC] and decimal128(p, s). Every value is checked against its column's type, so that
computations in a width that was proven to be sufficient do not wrap round.

Errors while a source is read are coded errors of its stream (:func:`failures_of`). One bad file does not fail another
stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.streams import is_readable, roots_of
from optimizer.workload.values import BYTE, INT, SHORT, Stream, digest
from spark_jobs.store.settings import settings
from spark_jobs.store.storage import ObjectVersion, Place, is_refusal, store_error
from spark_jobs.streams.sources.compression import Bomb, NotCompressed, codec_ending
from spark_jobs.streams.sources.declared import Declaration
from spark_jobs.streams.sources.objects import Changed
from spark_jobs.streams.sources.replacements import NOTHING, Replacements

ROW = 40
"""Bytes of a row of a text file, about."""

FIRST, LAST = -62_135_596_800_000_000, 253_402_300_800_000_000
"""The instants that are used, [FIRST, LAST) microseconds: the years 1 to 9999, as in Spark, ISO 8601 and Python."""


INTEGERS = {BYTE: 1 << 7, SHORT: 1 << 15, INT: 1 << 31}
"""Least value, negated, of integer types that are narrower than 64 bits."""


@dataclass(frozen=True)
class Split:
    """One piece of a source.

    - ``begin``, ``end``: event times lie in [begin, end) microseconds, None if unknown;
    - ``identity``: changes whenever the content may have changed; paths in it are relative to the stream's source;
    - ``row_groups``: empty: the entire file;
    - ``constants``: values of columns that are not read from the file, as Arrow scalars: those of a Delta table's
      partitions, and null for columns that the table has and the file lacks (of type null: the table lacks them too);
    - ``refused``: spans whose events are not admitted (:mod:`spark_jobs.streams.sources.ledger`);
    - ``repeated``: files that list the rows to skip, of which ``lacking`` has a hash for each span of time;
    - ``version``: of a file in a store, as listed; ``footer``: the footer of a Parquet file there, so that tasks
      need not
      request it again;
    - ``names``: the table's names for the columns of a Delta table's file, if different
      (:mod:`spark_jobs.streams.sources.column_mapping`);
    - ``deleted``: rows of the split that the table has deleted, ascending: they are counted nowhere else;
    - ``replacements``: known replacements of the stream's files by others; ``declared``: the stream's declaration;
    - ``folders``: texts of the columns that the names of its folders have, None: null
      (:mod:`spark_jobs.streams.sources.partition_columns`);
    - ``gaps``: long spans [first, last) between its first and last event without events
      (:mod:`spark_jobs.streams.sources.clusters`);
    - ``has_exact_span``: whether ``begin`` and ``end`` - 1 are times of events, all of which have one.
    """

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
    folders: tuple[tuple[str, str | None], ...] = ()
    has_exact_span: bool = field(default=False, compare=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        # tasks read rows: they compare nothing
        return self.__dict__ | {"replacements": NOTHING, "declared": None}

    def groups(self, metadata: pq.FileMetaData) -> list[int]:
        """The numbers of its row groups, of the file's own ``metadata``."""
        return list(self.row_groups or range(metadata.num_row_groups))

    def metadata(self) -> pq.FileMetaData:
        """Metadata in its Parquet file's footer. Raises OSError and pyarrow's errors."""
        return pq.read_metadata(self.path) if self.footer is None else self.footer

    def may_hold(self, begin: int, end: int) -> bool:
        """Return whether an event of the split can lie in [begin, end)."""
        if (self.begin is not None and self.begin >= end) or (self.end is not None and self.end <= begin):
            return False
        return not self.gaps or not any(
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
        """Number of rows, estimated from its size if unknown."""
        return self.bytes_about() / ROW if self.rows is None else self.rows

    def bytes_about(self) -> int:
        """Size of its file in bytes; 0 if it is gone."""
        if self.version is not None:
            return self.version.size
        stored_file = Place.of(self.path).info()
        return 0 if stored_file is None else stored_file.size

    def mark(self, begin: int, end: int) -> str | None:
        """Identifier of its events in [begin, end); None if it has none."""
        if not self.may_hold(begin, end):
            return None
        if not self.lacking and not self.refused:
            return self.identity
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
    """Hash of the content that can contain events of [begin, end): equal tokens and declarations, equal events.

    Files that replaced others without a change there count as those.
    """
    return digest(sorted(_marks_of(splits, begin, end)))


def _marks_of(splits: list[Split], begin: int, end: int) -> set[str]:
    marks = {mark for split in splits if (mark := split.mark(begin, end)) is not None}
    replacements = splits[0].replacements if splits else NOTHING
    return replacements.undone(marks, begin, end)


Tokens = dict[tuple[int, int], tuple[str, bool]]
"""The token of the content that a stream has in each span [begin, end), and whether it has any there."""


class ContentName:
    """Name of stored aggregates of some columns of a stream: the content of its files, and their declaration.

    Parameters
    ----------
    splits
        The splits of the stream.
    columns
        The columns that are read, besides those of the event time and the event id; None: all, and their order counts.
    tokens
        Cache for other columns of the same splits; it grows.
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
        """Return whether data stored under a name for [begin, end) equal the data that would be stored now."""
        token = self._token(begin, end)
        return stored == token[0] if self._named is None else self._named.is_token(stored, *token)


@dataclass(frozen=True)
class SourceFiles:
    """The files of a stream as a listing has them, in a fixed order, none of them opened.

    Of each file its ``paths`` (of those in a store: URLs), its ``names`` below the source, and what it is ``marked``
    with, in a listing: of a file of this machine ``name|size|time of modification`` and in another line ``inode|time of
    change``; of a table's file its identity; of a file of a store ``size|time of modification (microseconds)``, by
    which alone it is not known. ``opened`` gives the splits of some of them, by their numbers, and raises what
    :func:`splits_of` raises. ``commit``: the state of a table
    (:attr:`spark_jobs.streams.sources.delta_source.DeltaSnapshot.commit`), ``table`` its id. ``is_settling``: whether a
    file of which all this is known need not be opened. ``passed``: the numbers of known files that are there as they
    were (:class:`KnownFiles`), and are not among the others. ``warnings``: about files of the folder that are not read.
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
        """Description of each file in a listing besides its name; local files are only asked for it now."""
        return self.marked()


class KnownFiles(NamedTuple):
    """Files of this machine that are as they were if they have their ``paths`` (n,) and ``inodes`` (n,)."""

    paths: pa.Array
    inodes: NDArray[np.uint64]


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


def column_places(
    stream: Stream, path: str | Path, names: Sequence[str], wanted: Iterable[str]
) -> dict[str, str | None]:
    """Columns of a file by the names of a stream's columns, regardless of case: Spark and Delta do not distinguish
    it.
    """
    known: dict[str, list[str]] = {}
    for name in names:
        known.setdefault(name.lower(), []).append(name)
    places: dict[str, str | None] = {}
    for name in wanted:
        first, *more = known.get(name.lower(), [None])
        if more:
            message = f"stream {stream.name}: columns {first} and {more[0]} of {path} differ by case at most"
            raise HeddleError("HDL-456", message, "rename one: Spark and Delta do not tell them apart")
        places[name] = first
    return places


def _unreadable(stream: Stream, path: str, error: Exception) -> HeddleError:
    if isinstance(error, NotCompressed):
        hint = f"rename it without {codec_ending(path)}, or compress it"
        return HeddleError("HDL-415", f"stream {stream.name}: {path}: {error}", hint)
    if isinstance(error, Bomb):
        hint = "is it data? if it is, decompress it"
        return HeddleError("HDL-480", f"stream {stream.name}: {path} is not read: {error}", hint)
    hint = "is it half written? write to another name and rename it when it is complete"
    if isinstance(error, (FileNotFoundError, Changed)):
        hint = "did it change, or go, while it was read? run it again"
    return HeddleError("HDL-402", f"stream {stream.name}: {path} cannot be read: {error}", hint)
