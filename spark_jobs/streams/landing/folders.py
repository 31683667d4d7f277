"""Land the files of a folder of JSON or CSV in a Delta table, each file exactly once, without a JVM.

Files are listed and read as those of a stream of JSON or CSV. A file lands completely or not at all: its rows that fit
are in the table, all others in the quarantine. One transaction has the rows of up to :data:`MOST_FILES` files.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from optimizer.errors.diagnostics import Diagnostic, HeddleError, count, printable
from optimizer.workload.streams import is_readable, load_streams
from optimizer.workload.values import Stream
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse.data_files import is_awkward
from spark_jobs.streams.landing.folder_table import LANDED_COLUMNS, MISFITS, FolderTable, LandedFile, folder_table
from spark_jobs.streams.landing.json_records import SeveralLines
from spark_jobs.streams.landing.rows import FileRows, Misfit, RowReader, as_a_whole
from spark_jobs.streams.landing.spool import MEMORY, Spool
from spark_jobs.streams.sources.compression import codec_ending
from spark_jobs.streams.sources.decoding import discover_schema
from spark_jobs.streams.sources.file_names import some
from spark_jobs.streams.sources.files import files_of
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.splits import SourceFiles, Split

FORMATS = ("csv", "json")

MOST_FILES = 1000
"""Files of a transaction."""

MOST_ROWS = 1_000_000
"""Rows of a transaction, but for those of its last file."""

SETTLING_SECONDS = 60.0
"""A file that ends within a row, and changed later than so long ago, is taken for one that is being written."""

LISTED = 1000
"""Names of files in a report."""


@dataclass(frozen=True)
class RawFolder:
    """A folder of raw files, and the place where it is landed.

    Parameters
    ----------
    stream
        The stream of JSON or CSV files by which they are read. Its source is the folder.
    table
        The folder of the Delta table.
    again
        Names of files below the folder whose rows in the table are to be replaced.
    is_read
        Whether a stream is declared that reads the table.
    """

    stream: Stream
    table: Path
    again: tuple[str, ...] = ()
    is_read: bool = True

    @property
    def path(self) -> Path:
        """The folder."""
        return Path(self.stream.source.path)


@dataclass(frozen=True)
class LandedFolder:
    """Result of landing a folder.

    Parameters
    ----------
    folder, table, quarantine
        Paths.
    files, landed, quarantined, commits
        Number of new files, of their rows in the table and in the quarantine, and of transactions.
    unreadable
        New files that are in the quarantine as a whole.
    rewritten
        Files that have changed since they were landed. They are not landed again.
    waiting
        Files that were left for the next landing, each with the reason.
    """

    folder: str
    table: str
    quarantine: str
    files: int
    landed: int
    quarantined: int
    commits: int
    unreadable: tuple[str, ...] = ()
    rewritten: tuple[str, ...] = ()
    waiting: tuple[tuple[str, str], ...] = ()
    warnings: tuple[Diagnostic, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON, with at most :data:`LISTED` names of files each."""
        fields = asdict(replace(self, warnings=()))
        del fields["warnings"]
        fields |= {name: fields[name][:LISTED] for name in ("unreadable", "rewritten")}
        return fields | {"waiting": [{"file": name, "why": why} for name, why in self.waiting[:LISTED]]}

    @property
    def is_complete(self) -> bool:
        """Return whether all rows of all files are in the table."""
        return not (self.quarantined or self.rewritten or self.waiting)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Warnings: of listing, and HDL-471 to HDL-473."""
        warnings = list(self.warnings)
        if self.rewritten:
            message = f"{count(len(self.rewritten), 'file')} of {self.folder} changed after landing: "
            hint = "to replace the rows of a file, add --again FILE; to keep them, remove the file"
            warnings.append(Diagnostic("HDL-471", message + some(list(self.rewritten)), hint, severity="warning"))
        if self.quarantined:
            message = f"{count(self.quarantined, 'row')} of {self.folder} did not fit the stream"
            if self.unreadable:
                files = f"{count(len(self.unreadable), 'complete file')}"
                message = f"{message}, among them {files}: {some(list(self.unreadable))}"
            hint = f"the Delta table {self.quarantine} has them, each with file, line and reason (`why`)"
            warnings.append(Diagnostic("HDL-472", message, hint, severity="warning"))
        if self.waiting:
            shown = some([f"{name} ({why})" for name, why in self.waiting])
            message = f"{count(len(self.waiting), 'file')} of {self.folder} did not land: {shown}"
            hint = "the next landing reads them again; write to another name and rename complete files"
            warnings.append(Diagnostic("HDL-473", message, hint, severity="warning"))
        return tuple(warnings)


# ------------------------------------------------------------------------------------------- options
def raw_folder_of(
    folder: str | Path,
    streams: str | Path,
    stream: str | None = None,
    table: str | Path | None = None,
    again: Sequence[str] = (),
) -> RawFolder:
    """A folder from the options of a command.

    ``stream``: a stream of JSON or CSV files by which the folder's files are read; by default that whose source the
    folder is. It may be the stream of the table, instead of ``table``: then the folder has to be another stream's
    source. Raises HDL-474 for a folder that cannot be landed, and the errors of the streams.
    """
    path = _local(str(folder), "the folder")
    if not path.exists():
        message = f"there is no folder {printable(str(folder), 300)}"
        raise HeddleError("HDL-474", message, "name a folder of JSON or CSV files; a topic of Kafka needs --servers")
    known, diagnostics = load_streams(streams, settings().source_roots)
    errors = [each for each in diagnostics if each.severity == "error"]
    chosen = None if stream is None else known.get(stream)
    if stream is not None and chosen is None:
        if errors:
            raise HeddleError.of(errors[0])
        hint = f"--stream names one of {', '.join(sorted(known)[:20])}"
        raise HeddleError("HDL-474", f"{streams} declares no stream {stream}", hint)
    if chosen is not None and format_of(chosen).is_landed and table is None:
        table = chosen.source.path
    raw = chosen if chosen is not None and chosen.source.format in FORMATS else _of_folder(path, known, streams)
    if raw.source.origin is not None:
        message = f"stream {raw.name} is read by Spark"
        raise HeddleError("HDL-474", message, "leave out `reader`, `options` and `since` below its source")
    if table is None:
        message = f"nothing says where the table of {folder} is to be"
        raise HeddleError("HDL-474", message, "add --to FOLDER, or --stream with a stream of format delta")
    place = _table_place(str(table), path)
    raw = replace(raw, source=replace(raw.source, path=str(path)))
    tables = [Path(each.source.path).resolve() for each in known.values() if format_of(each).is_landed]
    return RawFolder(raw, place, tuple(_below(name, path) for name in again), place in tables)


def _of_folder(path: Path, known: dict[str, Stream], streams: str | Path) -> Stream:
    """The stream whose source a folder is."""
    matches = [
        stream
        for stream in known.values()
        if stream.source.format in FORMATS and Path(stream.source.path).resolve() == path
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        message = f"several streams are read from {path}: {', '.join(stream.name for stream in matches[:20])}"
        raise HeddleError("HDL-474", message, "name one by --stream")
    message = f"no stream of {streams} is read from {path} as JSON or CSV"
    raise HeddleError("HDL-474", message, f"`heddle init {path}` declares one; or name one by --stream")


def _local(text: str, what: str) -> Path:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", text):
        message = f"{what} is no folder of this machine ({printable(text, 300)})"
        raise HeddleError("HDL-474", message, "copy the files here, or read them where they are, without landing them")
    return Path(text).resolve()


def _table_place(text: str, folder: Path) -> Path:
    """The folder of a table. Raises HDL-474 for one that no table can be in."""
    place, roots = _local(text, "the table"), settings().source_roots
    if not is_readable(place, None if roots is None else [Path(root).resolve() for root in roots]):
        raise HeddleError("HDL-474", f"{place} lies where no stream is read from", "HEDDLE_SOURCES names the folders")
    if place == folder or folder in place.parents or place in folder.parents:
        raise HeddleError("HDL-474", f"the table {place} and the folder {folder} lie in each other", "separate them")
    if is_awkward(str(place)):
        raise HeddleError("HDL-474", f"no Delta table can be written to {place}", "choose a name without %, [ ] and |")
    return place


def _below(name: str, folder: Path) -> str:
    """The name below a folder of a file that is named so, or by its path."""
    path = Path(name)
    for candidate in (Path.cwd() / path, folder / path):
        if folder in candidate.parents and (candidate.exists() or candidate.parent == folder):
            return candidate.relative_to(folder).as_posix()
    return path.as_posix()


# ------------------------------------------------------------------------------------------- landing
def land_folder(
    raw: RawFolder,
    report: Callable[[str], None] = lambda line: None,
    most_files: int = MOST_FILES,
    most_rows: int = MOST_ROWS,
    memory: int = MEMORY,
) -> LandedFolder:
    """Land the files of a folder that are new when this begins.

    Raises HDL-474 (it cannot be landed so), HDL-627 (the table is in use, or is another), HDL-542 (nothing can be
    written), and what listing the files raises. What earlier batches brought stays.
    """
    stream, warnings = raw.stream, tuple[Diagnostic, ...]()
    if not (stream.schema or stream.nested):
        stream, warnings = discover_schema(stream)
    reader = RowReader(stream)
    with folder_table(raw.table, _columns(stream, reader)) as table:
        landing = _Landing(reader, table, report, most_files, most_rows, memory)
        listing = _listed(stream, table)
        new = landing.new_files(listing.paths, listing.names, raw.again)
        for number, name in new:
            (split,) = listing.opened([number])
            landing.add(split, name, is_again=name in raw.again and name in table.landed)
        landing.commit()
    return replace(landing.result(raw), warnings=(*warnings, *listing.warnings))


def _listed(stream: Stream, table: FolderTable) -> SourceFiles:
    """The files of a folder. There may be none if others have landed. Raises what :func:`files_of` does."""
    try:
        return files_of(stream)
    except HeddleError as error:
        if error.code != "HDL-401" or not table.landed:
            raise
        return SourceFiles((), tuple, lambda numbers: [])


def _columns(stream: Stream, reader: RowReader) -> pa.Schema:
    """The columns of the table. Raises HDL-474 for names that no table can have."""
    schema = reader.schema
    reserved = {field.name for field in LANDED_COLUMNS}
    for name in schema.names:
        if name.lower() in reserved:
            message = f"stream {stream.name}: the column {name} is one that landing adds"
            raise HeddleError("HDL-474", message, "leave it out of the `schema`, or rename it")
        if re.search(r"[ ,;{}()\n\t=]", name):
            message = f"stream {stream.name}: no Delta table can have the column {name!r} without column mapping"
            raise HeddleError("HDL-474", message, "rename it, in the files too")
    return pa.schema([*schema, *LANDED_COLUMNS])


@dataclass(frozen=True)
class _Mark:
    """State of a file: bytes, time of modification in nanoseconds, inode."""

    size: int
    modified: int
    inode: int

    @classmethod
    def of(cls, path: str) -> _Mark:
        status = os.stat(path)  # noqa: PTH116
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


def _crc(path: str) -> int:
    """CRC-32 of a file's bytes. Raises OSError."""
    crc = 0
    with Path(path).open("rb") as file:
        while block := file.read(1 << 20):
            crc = zlib.crc32(block, crc)
    return crc


class _Landing:
    """One landing: files are staged, and committed in batches."""

    def __init__(
        self,
        reader: RowReader,
        table: FolderTable,
        report: Callable[[str], None],
        most_files: int,
        most_rows: int,
        memory: int,
    ) -> None:
        self.reader, self.table, self.report = reader, table, report
        self.most_files, self.most_rows, self.memory = most_files, most_rows, memory
        self.schema = pa.schema([*reader.schema, *LANDED_COLUMNS])
        self.at = int(time.time() * 1_000_000)
        self.files, self.staged = list[LandedFile](), 0
        self.rows, self.misfits = self._spools("batch")
        self.total_files = self.total_rows = self.total_misfits = self.commits = 0
        self.unreadable, self.rewritten = list[str](), list[str]()
        self.waiting = list[tuple[str, str]]()

    def _spools(self, name: str) -> tuple[Spool, Spool]:
        folder = self.table.staging
        return (
            Spool(folder, f"{name}-rows", self.schema, self.memory),
            Spool(folder, f"{name}-misfits", MISFITS, self.memory),
        )

    def new_files(self, paths: Sequence[str], names: Sequence[str], again: Sequence[str]) -> list[tuple[int, str]]:
        """The numbers and names of files that are to be landed. Raises HDL-474 for a name in ``again`` that is none."""
        for name in again:
            if name not in names:
                message = f"--again names {printable(name, 300)}, which is no file that the stream reads"
                raise HeddleError("HDL-474", message, "name it as it is below the folder")
        new = []
        for number, (path, name) in enumerate(zip(paths, names, strict=True)):
            entry = self.table.landed.get(name)
            if entry is None or name in again:
                new.append((number, name))
            elif not self._is_as_it_was(path, entry):
                self.rewritten.append(name)
        return new

    @staticmethod
    def _is_as_it_was(path: str, entry: LandedFile) -> bool:
        """Return whether a file has the content that was landed. One that is gone has."""
        try:
            mark = _Mark.of(path)
            if mark.size != entry.size:
                return False
            return mark.modified == entry.modified or _crc(path) == entry.crc
        except FileNotFoundError:
            return True

    def add(self, split: Split, name: str, is_again: bool) -> None:
        """Stage a file, and commit if the batch is large. A file that is landed again is a batch of its own."""
        if is_again:
            self.commit()
        try:
            before, crc = _Mark.of(split.path), _crc(split.path)
            rows, misfits, whole_misfit = self._staged(split, name)
            after = _Mark.of(split.path)
        except OSError as error:
            self.waiting.append((name, f"it cannot be read: {error.strerror or error}"))
            return
        why = "it changed while it was read" if before != after else ""
        if not why and self._is_cut(split, before, misfits, whole_misfit):
            why = "it ends within a row, and changed less than a minute ago"
        if why:
            self.waiting.append((name, why))
            rows.clear()
            misfits.clear()
            return
        if whole_misfit:
            self.unreadable.append(name)
        self.files.append(LandedFile(name, before.size, before.modified, crc, rows.rows, misfits.rows, is_again))
        self.rows.take(rows)
        self.misfits.take(misfits)
        if is_again or len(self.files) >= self.most_files or self.rows.rows + self.misfits.rows >= self.most_rows:
            self.commit()

    def _staged(self, split: Split, name: str) -> tuple[Spool, Spool, bool]:
        """The rows of a file: those that fit, those that do not, and whether these are the entire file.

        Raises OSError if its bytes cannot be read."""
        self.staged += 1
        rows, misfits = self._spools(str(self.staged))
        problem: HeddleError | None = None
        for way in self.reader.ways(split):
            try:
                for piece in way():
                    self._add(name, piece, rows, misfits)
                return rows, misfits, False
            except HeddleError as error:
                rows.clear()
                misfits.clear()
                problem = error
                if isinstance(error, SeveralLines):
                    break
        assert problem is not None
        misfits.add(self._misfits(name, [as_a_whole(self.reader.stream, split, problem)]))
        return rows, misfits, True

    def _add(self, name: str, piece: FileRows, rows: Spool, misfits: Spool) -> None:
        if piece.rows.num_rows:
            size = piece.rows.num_rows
            added = [pa.repeat(pa.scalar(name), size), piece.numbers, pa.repeat(self._now(), size)]
            rows.add(pa.RecordBatch.from_arrays([*piece.rows.columns, *added], schema=self.schema))
        if piece.misfits:
            misfits.add(self._misfits(name, piece.misfits))

    def _now(self) -> pa.Scalar:
        return pa.scalar(self.at, pa.int64()).cast(pa.timestamp("us", "UTC"))

    def _misfits(self, name: str, misfits: Sequence[Misfit]) -> pa.RecordBatch:
        size = len(misfits)
        columns = {
            "landed_at": pa.repeat(self._now(), size),
            # what is staged goes into the next batch
            "landing": pa.repeat(pa.scalar(self.table.landing(self.table.reached + 1)), size),
            "file": pa.repeat(pa.scalar(name), size),
            "line": pa.array([each.line for each in misfits], pa.int64()),
            "row": pa.array([each.row for each in misfits], pa.int64()),
            "why": pa.array([printable(each.why, 2000) for each in misfits], pa.utf8()),
            "value": pa.array([each.value for each in misfits], pa.binary()),
            "value_bytes": pa.array([each.size for each in misfits], pa.int64()),
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=MISFITS)

    @staticmethod
    def _is_cut(split: Split, mark: _Mark, misfits: Spool, whole_misfit: bool) -> bool:
        """Return whether a file may be half written: it is new, has what does not fit, and ends without a line end."""
        if not misfits.rows or time.time() - mark.modified / 1e9 >= SETTLING_SECONDS:
            return False
        if codec_ending(split.path) or not mark.size:
            return whole_misfit
        with Path(split.path).open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) not in b"\r\n"

    def commit(self) -> None:
        """Commit what is staged, if there is anything."""
        if not self.files:
            return
        self.table.commit(self.files, self.rows, self.misfits)
        self.total_files += len(self.files)
        self.total_rows += self.rows.rows
        self.total_misfits += self.misfits.rows
        self.commits += 1
        line = f"{count(len(self.files), 'file')}, {count(self.rows.rows, 'row')}, {self.misfits.rows:,} in quarantine"
        self.report(f"batch {self.table.reached}: {line}")
        self.files = []
        self.rows.clear()
        self.misfits.clear()

    def result(self, raw: RawFolder) -> LandedFolder:
        """The result of the landing."""
        return LandedFolder(
            str(raw.path),
            str(self.table.table),
            str(self.table.quarantine),
            self.total_files,
            self.total_rows,
            self.total_misfits,
            self.commits,
            tuple(self.unreadable),
            tuple(self.rewritten),
            tuple(self.waiting),
        )
