"""Propose a stream for undeclared data: format, columns, time column, and format of times.

A proposal is a guess from a sample, which a person confirms. Values read with it are checked one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors.diagnostics import HeddleError, meant
from optimizer.workload.streams import TIME_UNITS
from optimizer.workload.values import DATE, LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Type
from spark_jobs.store.storage import Place, check_bucket, store_error
from spark_jobs.streams.sources.csv_guess import GuessedColumn, fits_format, has_commas, left_out
from spark_jobs.streams.sources.csv_source import instants_of_texts
from spark_jobs.streams.sources.decoding import discover_schema, first_rows, type_of_arrow
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.formats import FORMATS
from spark_jobs.streams.sources.formats.source_format import Guess
from spark_jobs.streams.sources.inspection import Inspection, inspect
from spark_jobs.streams.sources.splits import Split, check_place

READ = frozenset(ending for format in FORMATS.values() for ending in format.endings)
"""Endings of the files of a folder that a stream reads."""

LONE = READ.union(*(format.lone_endings for format in FORMATS.values()))
"""Endings of the files that are proposed one by one."""

BEGINNING = 4096
"""Bytes of a file without a known ending by which its format is recognised."""

MOST_COLUMNS = 800
"""Columns of a file that a proposal declares: a file of streams has a largest size."""

NAMES = re.compile(r"(?i)(^|_|\b)(time|timestamp|ts|datetime|date|at|when|epoch|instant)($|_|\b)|time|date|stamp")
"""Names of columns that are likely to have times."""

SECONDARY = re.compile(r"(?i)(creat|updat|modif|load|ingest|process|insert|delet|birth|expir)")
"""Names of times that hardly are those of the events."""

LIKELY = 30
"""Score from which a column is likely to have times, whatever else the data are."""

_PLAUSIBLE = (631_152_000, 4_102_444_800)
"""1990 and 2100, in seconds since 1970: numbers that are likely to be times lie between them."""


@dataclass(frozen=True)
class TimeCandidate:
    """A column that may be the time of events. ``unit``: what its integers count since 1970; ``formats``: of texts that
    are not in ISO 8601, the ways to read them, the likeliest first; ``score``: how likely, more is likelier."""

    name: str
    how: str
    score: int
    unit: str | None = None
    formats: tuple[str, ...] = ()
    has_zone: bool = True

    def __str__(self) -> str:
        return f"{self.name} ({self.how})"


@dataclass(frozen=True)
class SeenFile:
    """A file of data: where, the folders that it lies in below what was looked at, its bytes."""

    path: Path | Place
    folders: tuple[str, ...]
    size: int


@dataclass(frozen=True)
class Data:
    """Data without a known time column: a file, a folder of files of one format, or a Delta table.

    ``path``: a place is in a store; ``columns``: name and type of the readable columns; ``sample``: a table of some of
    the first rows; ``unused``: columns that queries cannot use; ``guess``: for files that declare no columns;
    ``file_pattern``: names of its files, if the folder has others.
    """

    path: Path | Place
    format: str
    files: tuple[SeenFile, ...]
    columns: tuple[tuple[str, Type], ...]
    sample: pa.Table
    candidates: tuple[TimeCandidate, ...]
    unused: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    guess: Guess | None = None
    file_pattern: str | None = None

    @property
    def likely_times(self) -> tuple[TimeCandidate, ...]:
        """The columns that are likely to be times, the likeliest first: no numbers that merely may count since 1970."""
        return tuple(candidate for candidate in self.candidates if candidate.score >= LIKELY)


@dataclass(frozen=True)
class Proposal:
    """A stream, with what is worth knowing of its data. ``rows``: how many events it has (``is_about``: by a sample);
    ``notes``: what a person should know; ``foreign``: columns that refer to dimensions; ``columns``: all rows of some
    columns, if they were read; ``question``: a guess that a person should look at."""

    stream: Stream
    data: Data
    time: TimeCandidate
    inspection: Inspection
    rows: int
    is_about: bool
    has_schema: bool
    notes: tuple[str, ...] = field(default_factory=tuple)
    foreign: tuple[str, ...] = ()
    columns: pa.Table | None = field(default=None, compare=False, repr=False)
    question: str = ""

    @property
    def span(self) -> int:
        """Microseconds from the first to the last event, at least a second. Events far from all others do not count."""
        near = self.inspection.near
        first, last = near if near is not None else (self.inspection.first or 0, self.inspection.last or 0)
        return max(last - first, SECOND)

    @property
    def rate(self) -> Fraction:
        """Events a second."""
        return Fraction(self.rows * SECOND, self.span)


# --------------------------------------------------------------------------------------------- looking
def look(path: Path | Place) -> Data:
    """Data at a path of this machine, or at a place in a store.

    Raises HDL-134 if there is nothing, HDL-135 for unreadable data; in a store also HDL-458 where no stream may be read
    from, and HDL-576 to HDL-578 for refusals of the store.
    """
    if isinstance(path, Place):
        check_place(undeclared(path, ""), path)
        try:
            return _look_in_store(path)
        except OSError as error:
            raise store_error(path, error) from error
    if not path.exists():
        raise HeddleError("HDL-134", f"there is nothing at {path}", "check the path")
    for name, format in FORMATS.items():
        if format.log and (path / format.log).is_dir():
            return _look_at_columns(path, name, ())
    files = data_files(path) if path.is_dir() else (path,)
    return look_at_files(
        path,
        [
            SeenFile(file, file.relative_to(path).parts[:-1] if file != path else (), file.stat().st_size)
            for file in files
        ],
    )


def _look_in_store(place: Place) -> Data:
    listed = list(place.listed(recursive=True))
    for name, format in FORMATS.items():
        if format.log and any(file.name.startswith(f"{format.log}/") for file in listed):
            return _look_at_columns(place, name, ())
    parts = [(file.name.split("/"), file.size) for file in listed]
    files = [
        SeenFile(place / "/".join(names), tuple(names[:-1]), size)
        for names, size in sorted(parts)
        if is_data_file(names[-1]) and not any(name.startswith(("_", ".")) for name in names)
    ]
    if not listed:
        alone = place.info()
        if alone is None:
            check_bucket(place)
            raise HeddleError("HDL-134", f"there is nothing at {place}", "check the URL: a folder, or a file")
        files = [SeenFile(place, (), alone.size)]
    return look_at_files(place, files)


def look_at_files(path: Path | Place, files: Sequence[SeenFile]) -> Data:
    """Data in files, those of the format that most of them have.

    Raises HDL-134 if there are no files, HDL-135 if they cannot be read.
    """
    if not files:
        hint = f"name a folder with {' or '.join(sorted(READ))} files, a file, or a Delta table"
        raise HeddleError("HDL-134", f"there are no data in {path}", hint)
    formats = [format_of_file(file.path) for file in files]
    format = max(sorted(set(formats)), key=formats.count)
    chosen = tuple(file for file, its in zip(files, formats, strict=True) if its == format)
    guess = FORMATS[format].guess([file.path for file in _some([file for file in chosen if file.size] or chosen)])
    return _look_at_columns(path, format, chosen) if guess is None else _look_at_texts(path, format, chosen, guess)


def data_files(folder: Path) -> tuple[Path, ...]:
    """The files of a folder, also of those below it, that a stream would read."""
    return tuple(
        sorted(
            file
            for file in folder.rglob("*")
            if is_data_file(file.name)
            and not any(part.startswith(("_", ".")) for part in file.relative_to(folder).parts)
            and file.is_file()
        )
    )


def is_data_file(name: str) -> bool:
    """Return whether a stream over a folder would read a file of this name."""
    return Path(name).suffix in READ


def format_of_file(file: Path | Place) -> str:
    """The format of a file by its name, else by its beginning. Raises HDL-135 if it cannot be read."""
    suffix = Path(file.name).suffix.lower()
    for name, format in FORMATS.items():
        if suffix in (*format.endings, *format.lone_endings, *format.named_endings):
            return name
    try:
        with file.open() if isinstance(file, Place) else file.open("rb") as opened:
            beginning = opened.read(BEGINNING)
    except OSError as error:
        if isinstance(file, Place):
            raise
        raise HeddleError("HDL-135", f"{file} cannot be read: {error.strerror}", "check its permissions") from None
    # CSV, which any text may be, is declared first
    return next(name for name, format in reversed(FORMATS.items()) if format.is_of(beginning))


def url_of(path: Path | Place) -> str:
    """Return a path as a source names it."""
    return path.url if isinstance(path, Place) else str(path.resolve())


def stream_name(path: Path | Place) -> str:
    """Name of a stream over data: from their file or folder, for a container without its account."""
    name = Path(path.name.partition("@")[0]).stem if isinstance(path, Place) else path.resolve().stem
    cleaned = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower()[:60]
    return cleaned if re.match(r"[a-z_]", cleaned) else f"stream_{cleaned}".rstrip("_")


def undeclared(path: Path | Place, format: str) -> Stream:
    """A stream over data, of which neither columns nor time are known yet."""
    return Stream(stream_name(path), Source(format, url_of(path)), (), "")


def _some(files: Sequence[SeenFile]) -> list[SeenFile]:
    """The first, the middle and the last."""
    return list(dict.fromkeys([files[0], files[len(files) // 2], files[-1]]))


def _look_at_texts(path: Path | Place, format: str, files: tuple[SeenFile, ...], guess: Guess) -> Data:
    """Files that declare no columns: what a sample of them seems to be."""
    bad = left_out(column.name for column in guess.columns)
    if bad and not guess.has_names:
        bad = []
    usable = [column for column in guess.columns if column.name not in bad]
    sampled = usable[:MOST_COLUMNS]
    candidates = [candidate for column in usable if (candidate := _candidate_of_text(column))]
    sampled += [
        column
        for column in usable[MOST_COLUMNS:]
        if any(time_candidate.name == column.name for time_candidate in candidates[:1])
    ]
    sample = pa.table({column.name: column.texts for column in sampled})
    unused = [*bad, *(column.name for column in usable if column not in sampled)]
    pairs = tuple((column.name, column.type) for column in sampled)
    return Data(path, format, files, pairs, sample, _ranked(candidates), tuple(unused), _partitions(files), guess)


def _look_at_columns(path: Path | Place, format: str, files: tuple[SeenFile, ...]) -> Data:
    """Files, or a table, that declare their columns."""
    stream = undeclared(path, format)
    arrow = FORMATS[format].declared_columns(
        stream, [file.path for file in sorted(files, key=lambda file: not file.size)]
    )
    bad = left_out(arrow.names)
    types = [(each.name, type_of_arrow(each.type)) for each in arrow if each.name not in bad]
    pairs = tuple((name, type) for name, type in types if type is not None)
    unused = [*bad, *(name for name, type in types if type is None)]
    if not pairs:
        raise HeddleError(
            "HDL-135", f"{path} has no column that queries can use", "nested and binary ones are not read"
        )
    splits = splits_of(_with_any_time(stream, pairs))
    sample = _sample(stream, splits, pairs)
    candidates = []
    for name, type in pairs:
        column = sample[name] if name in sample.schema.names else pa.nulls(0)
        if candidate := _candidate(name, type, column):
            candidates.append(candidate)
    return Data(path, format, files, pairs, sample, _ranked(candidates), tuple(unused), _partitions(files))


def _with_any_time(stream: Stream, pairs: Sequence[tuple[str, Type]]) -> Stream:
    """The stream as it can be listed before it has a time column."""
    return replace(stream, schema=tuple(pairs), time=pairs[0][0])


def _sample(stream: Stream, splits: Sequence[Split], pairs: Sequence[tuple[str, Type]]) -> pa.Table:
    """The first rows of some files."""
    names = [name for name, _ in pairs][:MOST_COLUMNS]
    listed = _with_any_time(stream, pairs)
    places = sorted({round(at * (len(splits) - 1) / 4) for at in range(5)}) if splits else []
    batches = [batch for at in places if (batch := first_rows(listed, splits[at], names)) is not None]
    if not sum(map(len, batches)):
        raise HeddleError("HDL-135", f"{stream.source.path} has no rows", "wait until it has events")
    return pa.Table.from_batches(batches)


def _partitions(files: Iterable[SeenFile]) -> tuple[str, ...]:
    """The columns that folders are named by (``day=2024-01-01``)."""
    parts = (part for file in list(files)[:100] for part in file.folders if "=" in part)
    return tuple(dict.fromkeys(part.partition("=")[0] for part in parts))


# --------------------------------------------------------------------------------------- time columns
def _candidate_of_text(column: GuessedColumn) -> TimeCandidate | None:
    """A column of texts as a time; None if it is none."""
    if column.type in (DATE, TIMESTAMP) and not column.formats:
        how = "dates" if column.type == DATE else "timestamps in ISO 8601"
        return TimeCandidate(column.name, how, _score(column.name, 80), has_zone=column.has_zone)
    if column.formats:
        how = f"times like {column.formats[0]}"
        return TimeCandidate(column.name, how, _score(column.name, 70), None, column.formats, column.has_zone)
    if column.type == LONG:
        known = pc.drop_null(column.texts)
        for pattern, digits in (("%Y%m%d", 8), ("%Y%m%d%H%M%S", 14)):
            fitting = pc.match_substring_regex(known, rf"^(19|20)\d{{{digits - 2}}}$")
            if pc.all(fitting).as_py() and fits_format(known, pattern):
                return TimeCandidate(
                    column.name, f"times like {pattern}", _score(column.name, 50), None, (pattern,), False
                )
        # Arrow knows no plus sign
        return _counted(column.name, pc.replace_substring_regex(known, r"^\+", "").cast(pa.int64()))
    return None


def _candidate(name: str, type: Type, values: pa.ChunkedArray) -> TimeCandidate | None:
    """A column of a declared type as a time; None if it is none."""
    if type == TIMESTAMP:
        return TimeCandidate(name, "timestamps", _score(name, 100))
    if type == DATE:
        return TimeCandidate(name, "dates", _score(name, 60))
    known = pc.drop_null(values)
    if type == LONG:
        return _counted(name, known.cast(pa.int64()))
    if type == STRING and len(known):
        try:
            instants_of_texts(known.combine_chunks() if isinstance(known, pa.ChunkedArray) else known)
        except pa.ArrowInvalid:
            return None
        return TimeCandidate(name, "texts in ISO 8601", _score(name, 75))
    return None


def _counted(name: str, values: pa.Array | pa.ChunkedArray) -> TimeCandidate | None:
    """Integers as times: by what they count since 1970 they lie in our days."""
    if not len(values):
        return None
    bounds = pc.min_max(values).as_py()
    for unit, (factor, divisor) in TIME_UNITS.items():
        low, high = (limit * SECOND * divisor // factor for limit in _PLAUSIBLE)
        if low <= bounds["min"] and bounds["max"] < high:
            score = _score(name, 55 if NAMES.search(name) else 20)
            return TimeCandidate(name, f"{unit} since 1970", score, unit)
    return None


def _score(name: str, base: int) -> int:
    bonus = 12 if re.fullmatch(r"(?i)(event_?)?(time|timestamp|ts|datetime)", name) else 6 if NAMES.search(name) else 0
    return base + bonus - (20 if SECONDARY.search(name) else 0)


def _ranked(candidates: Iterable[TimeCandidate]) -> tuple[TimeCandidate, ...]:
    return tuple(sorted(candidates, key=lambda candidate: -candidate.score))


def time_of(data: Data, name: str | None = None) -> TimeCandidate:
    """The time column of a name, else the likeliest. Raises HDL-136 if there is none."""
    names = [name for name, _ in data.columns]
    if name is not None:
        chosen = next((candidate for candidate in data.candidates if candidate.name == name), None)
        if chosen is None:
            hint = meant(name, names) if name not in names else f"these have: {_listed(data)}"
            what = "there is no column" if name not in names else "no times are in column"
            raise HeddleError("HDL-136", f"{data.path}: {what} {name}", hint)
        return chosen
    if not data.candidates:
        hint = f"columns: {', '.join(names[:12])}; a column with a time of each event is needed"
        raise HeddleError("HDL-136", f"{data.path} has no column of times", hint)
    return data.candidates[0]


def _listed(data: Data) -> str:
    return ", ".join(map(str, data.candidates[:6])) or "none"


# ------------------------------------------------------------------------------------------- proposing
def propose(data: Data, time: TimeCandidate, name: str | None = None) -> Proposal:
    """The stream that data are, with this time. Raises what reading raises."""
    guess, notes = data.guess, []
    path = url_of(data.path)
    if guess is None:
        source = Source(data.format, path, time_unit=time.unit)
    else:
        pattern = time.formats[0] if time.formats else None
        source = Source(data.format, path, time_unit=time.unit, timestamp_format=pattern, **guess.options)
    if data.file_pattern is not None:
        named: dict[str, Any] = {"files": data.file_pattern}
        source = replace(source, **named)
    stream = Stream(name or stream_name(data.path), source, (), time.name)
    type_of_time = dict(data.columns)[time.name]
    has_schema = guess is not None or type_of_time not in (TIMESTAMP, LONG)
    if has_schema:
        stream = replace(
            stream, schema=tuple((column, _declared(data, column, type, time)) for column, type in data.columns)
        )
    else:
        stream = discover_schema(stream)[0]
    if len(time.formats) > 1:
        notes.append(f"{time.name} is read as {time.formats[0]}; it could be {time.formats[1]} as well")
    if not time.has_zone and time.unit is None and guess is not None:
        notes.append(f"{time.name} names no zone: taken as UTC")
    commas = [column.name for column in guess.columns if has_commas(column)] if guess is not None else []
    if commas:
        notes.append(f"numbers with a decimal comma are read as texts: {', '.join(commas[:6])}")
    if data.partitions:
        notes.append(
            f"folders are named by {', '.join(data.partitions)}: these are no columns, unless the files have them"
        )
    if data.unused:
        shown = ", ".join(repr(name) for name in data.unused[:6])
        notes.append(f"left out: {shown}" + (f" and {len(data.unused) - 6} more" if len(data.unused) > 6 else ""))
    inspection = inspect(stream, [column for column, _ in stream.schema])
    return Proposal(stream, data, time, inspection, inspection.events or 0, inspection.about, has_schema, tuple(notes))


def _declared(data: Data, name: str, type: Type, time: TimeCandidate) -> Type:
    """The type that a schema declares of a column."""
    if name == time.name:
        return TIMESTAMP
    if data.guess is None:
        return type
    column = next(column for column in data.guess.columns if column.name == name)
    # there is one format for all timestamps of a stream
    fits = column.formats == () if not time.formats else time.formats[0] in column.formats
    return STRING if type == TIMESTAMP and not fits else type
