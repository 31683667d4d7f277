"""The protocol of a source format: everything that Heddle needs to know about it is a method or a field of one class.

Values are checked against their declared types by :mod:`spark_jobs.streams.sources.decoding`, whatever format they come
from. The pure half, the keys of ``streams.yaml``, is an entry of :data:`optimizer.workload.formats.DECLARED`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.nested import Nested
from optimizer.workload.values import Stream
from spark_jobs.store.storage import ObjectVersion, Place
from spark_jobs.streams.sources.csv_guess import GuessedColumn
from spark_jobs.streams.sources.folders import files_of_folder
from spark_jobs.streams.sources.objects import look_at
from spark_jobs.streams.sources.partition_columns import Wanted
from spark_jobs.streams.sources.splits import KnownFiles, SourceFiles, Split

SMALL = 4 << 20
"""Bytes up to which all of a file is read for its last times, if there is no other way."""


class Guess(NamedTuple):
    """Guess for files that declare no columns.

    Parameters
    ----------
    columns
        The columns, with a sample of their texts.
    options
        Options of the files: fields of :class:`optimizer.workload.values.Source`.
    row_bytes
        Approximate bytes of a record.
    has_names
        Whether the files name their columns.
    nested
        The columns of structs and arrays, with the types of what is in them.
    fields
        The plain values inside structs, as columns with their names.
    unused
        Columns that no type fits.
    """

    columns: tuple[GuessedColumn, ...]
    options: Mapping[str, Any]
    row_bytes: float
    has_names: bool
    nested: tuple[tuple[str, Nested], ...] = ()
    fields: tuple[GuessedColumn, ...] = ()
    unused: tuple[str, ...] = ()


class Outline(NamedTuple):
    """Properties of a file by which ``heddle init`` groups files into tables.

    Parameters
    ----------
    names
        Its columns, in lower case.
    written
        How its text is divided into columns, and in files without names their types; nothing otherwise.
    """

    names: frozenset[str]
    written: tuple[Hashable, ...] = ()


class SparkReading(NamedTuple):
    """Arguments for Spark's own reader of a source, for ``heddle compare``.

    Parameters
    ----------
    format
        The name of Spark's reader.
    paths
        The files to be read; none: the path of the source.
    options
        Options of the reader.
    columns
        The columns of the files in their order, if they do not declare them.
    nanoseconds
        Columns of timestamps in nanoseconds, which Spark reads as integers.
    """

    format: str
    paths: Sequence[str] = ()
    options: Mapping[str, Any] = {}
    columns: Sequence[str] | None = None
    nanoseconds: frozenset[str] = frozenset()


class DuckdbText(NamedTuple):
    """A column as a text of DuckDB: its SQL, and conditions under which DuckDB may not give what is written."""

    sql: str
    doubts: tuple[str, ...]


class DuckdbReading(NamedTuple):
    """Arguments for DuckDB's reader of some files, for the audit.

    Parameters
    ----------
    function
        DuckDB's table function.
    paths
        Its first argument.
    options
        Its named arguments.
    columns
        Name and DuckDB's type of each column, by the name in small letters; None: as DuckDB describes them.
    row
        SQL of the number of a row in its file, from zero.
    relation
        SQL of the rows, in which ``{}`` is the call of the function.
    text_of
        The text of each column of the stream, in place of ``columns``.
    """

    function: str
    paths: Sequence[str]
    options: Mapping[str, Any]
    row: str
    columns: Mapping[str, tuple[str, str]] | None = None
    relation: str = "{}"
    text_of: Callable[[str], DuckdbText] | None = None


class ReadByRun(Exception):
    """The audit does not read these events with DuckDB, and why."""


def unreadable_by_spark(stream: Stream, what: str) -> HeddleError:
    """Return HDL-425: what of a stream Spark's own reader has no option for."""
    message = f"Spark's own reader, which `compare` measures, cannot be told of stream {stream.name}: {what}"
    return HeddleError("HDL-425", message, "compare on a copy without; docs/sources.md has what Spark needs for S3")


class SourceFormat(ABC):
    """A source format. By default: a folder of files, each of which is read as one split, and whose content is only
    known from its values. A format of this kind defines its names and :meth:`read`.

    A method that reads raises OSError, pyarrow's errors or coded errors, which
    :func:`spark_jobs.streams.sources.splits.failures_of` turns into an error of the stream.
    """

    name: ClassVar[str]
    """The name in ``streams.yaml``, a key of :data:`optimizer.workload.formats.DECLARED`."""

    endings: ClassVar[tuple[str, ...]] = ()
    """Endings, in lower case, of the files of a folder that a stream reads."""

    lone_endings: ClassVar[tuple[str, ...]] = ()
    """More endings of files that ``heddle init`` proposes one by one."""

    named_endings: ClassVar[tuple[str, ...]] = ()
    """More endings of files that ``heddle init`` takes for this format if you name them."""

    log: ClassVar[str] = ""
    """The folder in a table's folder by which ``heddle init`` knows the table."""

    is_table: ClassVar[bool] = False
    """Whether a table names its files. Files of a folder are identified by name, size and time or ETag."""

    has_statistics: ClassVar[bool] = False
    """Whether files state their number of rows, and usually the span of their events, before they are read."""

    is_each_complete: ClassVar[bool] = False
    """Whether each file must have every column that is read. Otherwise a column that only some files have is null in
    the others.
    """

    is_listing_complete: ClassVar[bool] = True
    """Whether two equal listings imply equal events."""

    has_feed: ClassVar[bool] = False
    """Whether a change data feed may show which rows of rewritten files changed."""

    was_copied: ClassVar[bool] = False
    """Whether an earlier Heddle had Spark copy such sources."""

    reads_fields: ClassVar[bool] = False
    """Whether :meth:`duckdb_reading` reads values inside nested columns."""

    is_schema_sampled: ClassVar[bool] = False
    """Whether :meth:`schemas` are those of a sample of the files' values."""

    is_landed: ClassVar[bool] = False
    """Whether ``heddle land`` may write a topic of Kafka into the source."""

    # ------------------------------------------------------------------------------------------- listing
    def files(self, stream: Stream, known: KnownFiles | None = None, wanted: Wanted | None = None) -> SourceFiles:
        """List the files of a stream, none of them opened. ``known``: files of this machine that are passed over.
        ``wanted``: the folders to list, None: all.

        Raises HDL-401, HDL-402, HDL-405, HDL-416, HDL-430, HDL-458 and HDL-485.
        """

        def open_file(path: str, identity: str, version: ObjectVersion | None, beginning: Any) -> list[Split]:
            return self.splits(stream, path, identity, version, beginning)

        return files_of_folder(stream, known, self.endings, open_file, self.look, wanted)

    def look(self, path: str) -> tuple[ObjectVersion, Any]:
        """Return the version of a file in a store, and what :meth:`splits` needs of its content."""
        return look_at(path), None

    def splits(
        self, stream: Stream, path: str, identity: str, version: ObjectVersion | None = None, beginning: Any = None
    ) -> list[Split]:
        """Return the splits of a file. ``version`` and ``beginning``: what :meth:`look` returned, in a store."""
        return [Split(path, identity, version=version)]

    def is_understood(self, stream: Stream) -> bool:
        """Return whether Heddle supports everything in the source, as far as known; otherwise Spark has to copy it."""
        return True

    # ------------------------------------------------------------------------------------------- columns
    def schemas(self, stream: Stream) -> Mapping[str, pa.Schema]:
        """Return the columns that the files declare, by path. Raises HDL-406 if files declare none."""
        message = f"stream {stream.name}: a source of {self.name} needs a `schema`"
        raise HeddleError("HDL-406", message, "name each column and its type")

    def columns(
        self, stream: Stream, split: Split, names: Sequence[str], needed: Sequence[str] = ()
    ) -> dict[str, pa.DataType | None]:
        """Return which of some columns a file has, with their types; None: only the values show it.

        Raises HDL-403 if it lacks one of ``needed`` and the format knows why, HDL-404 and HDL-456.
        """
        return dict.fromkeys(names)

    def column_names(self, stream: Stream, split: Split) -> Sequence[str]:
        """Return the columns of a file in their order; empty if the file does not declare them."""
        return ()

    def layout(self, split: Split) -> Hashable:
        """Return what decides :meth:`columns`, so that files of one layout are looked at once; None: not known."""
        return None

    # ------------------------------------------------------------------------------------------- events
    @abstractmethod
    def read(
        self, stream: Stream, split: Split, columns: Sequence[str], encoded: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split in their order, with these columns in types that may not be the declared ones.

        Columns have distinct names; one that the file lacks is null. Strings in ``encoded`` may be dictionary-encoded.
        Raises HDL-403 and HDL-404 with the file and, in texts, the line.
        """

    def head(self, stream: Stream, split: Split, columns: Sequence[str]) -> pa.RecordBatch | None:
        """Return some of the first rows of a split, as :meth:`read` does; None if there are none."""
        return next(self.read(stream, split, columns), None)

    def tail_bytes(self, split: Split) -> int:
        """Return the bytes at the end of a file that :meth:`last_times` reads at most."""
        return 0

    def last_times(self, stream: Stream, split: Split) -> pa.Array:
        """Return the event times of the last rows of a file without statistics; none where they are not known."""
        return pa.nulls(0, pa.timestamp("us", "UTC"))

    def all_times(self, stream: Stream, split: Split) -> pa.Array:
        """Return the event times of a file whose end cannot be read alone, if it is :data:`SMALL`; else none."""
        if split.bytes_about() > SMALL:
            return SourceFormat.last_times(self, stream, split)
        times = [batch.column(stream.time) for batch in self.read(stream, split, [stream.time])]
        return pa.concat_arrays([SourceFormat.last_times(self, stream, split), *times])

    # ---------------------------------------------------------------------------------------- proposing
    def is_of(self, beginning: bytes) -> bool:
        """Return whether a file without a known ending that begins so may be of the format."""
        return False

    def guess(self, files: Sequence[Path | Place]) -> Guess | None:
        """Return what some files seem to be; None: they declare their columns. Raises HDL-135."""
        return None

    def declared_columns(self, stream: Stream, files: Sequence[Path | Place]) -> pa.Schema:
        """Return the columns that one of some files declares, or the table. Raises HDL-135."""
        message = f"files of {self.name} declare no columns: {stream.source.path}"
        raise HeddleError("HDL-135", message, "declare the stream in streams.yaml")

    def outline(self, stream: Stream, file: Path | Place) -> Outline:
        """Return the columns of a file. ``stream``: one over the file, without columns. Raises HDL-135."""
        guess = self.guess([file])
        if guess is None:
            return Outline(frozenset(name.lower() for name in self.declared_columns(stream, [file]).names))
        names = frozenset(column.name.lower() for column in guess.columns)
        return Outline(names, () if guess.has_names else tuple(str(column.type) for column in guess.columns))

    # ------------------------------------------------------------------------------------- other readers
    def spark_reading(self, stream: Stream, splits: Sequence[Split]) -> SparkReading:
        """Return how Spark's own reader reads the source. Raises HDL-425 if it cannot."""
        raise unreadable_by_spark(stream, f"that its files are {self.name}")

    def duckdb_reading(self, stream: Stream, paths: Sequence[str], is_numbered: bool) -> DuckdbReading:
        """Return how DuckDB reads some files, so that the audit shares nothing with :meth:`read`.

        ``paths``: one if :attr:`is_each_complete`. ``is_numbered``: rows need numbers. Raises ReadByRun if
        DuckDB cannot read them.
        """
        raise ReadByRun(f"DuckDB does not read {self.name}")
