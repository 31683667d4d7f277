"""Propose a stream for undeclared data: format, columns, time column, and format of times.

A proposal is a guess from a sample, which a person confirms. Values read with it are checked one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors.diagnostics import HeddleError, count, meant
from optimizer.workload.nested import Nested, Step
from optimizer.workload.nested import Path as ColumnPath
from optimizer.workload.streams import TIME_UNITS, with_schema
from optimizer.workload.values import DATE, LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Type
from spark_jobs.store.storage import Place, check_bucket, store_error
from spark_jobs.streams.sources.csv_guess import GuessedColumn, fits_format, has_commas, left_out
from spark_jobs.streams.sources.decoding import discover_schema, first_rows, type_of_arrow
from spark_jobs.streams.sources.file_names import is_hidden, is_no_data
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.folder_names import FolderNames, names_of_folders
from spark_jobs.streams.sources.formats import FORMATS
from spark_jobs.streams.sources.formats.source_format import Guess
from spark_jobs.streams.sources.inspection import Inspection, inspect
from spark_jobs.streams.sources.objects import beginning_of
from spark_jobs.streams.sources.splits import Split, check_place
from spark_jobs.streams.sources.text_values import instants_of_texts

READ = frozenset(ending for format in FORMATS.values() for ending in format.endings)
"""Endings of the files of a folder that a stream reads."""

LONE = READ.union(*(format.lone_endings for format in FORMATS.values()))
"""Endings of the files that are proposed one by one."""

KNOWN = LONE.union(*(format.named_endings for format in FORMATS.values()))
"""Endings of files whose format their names state."""

BEGINNING = 4096
"""Bytes of a file without a known ending by which its format is recognised."""

MOST_COLUMNS = 800
"""Columns of a file that a proposal declares: a file of streams has a largest size."""

NAMES = re.compile(r"(?i)(^|_|\b)(time|timestamp|ts|datetime|date|at|when|epoch|instant)($|_|\b)|time|date|stamp")
"""Names of columns that are likely to have times."""

SECONDARY = re.compile(r"(?i)(creat|updat|modif|load|ingest|process|insert|delet|birth|expir)")
"""Names of times that hardly are those of the events."""

NO_FOLDERS = FolderNames()
"""Of a table, or a single file."""

LIKELY = 30
"""Score from which a column is likely to have times, whatever else the data are."""

LEAST_SCORE = -100
"""Score of times that only the names of folders have."""

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
    ``folders``: what the names of folders have, whose columns are among the others.
    """

    path: Path | Place
    format: str
    files: tuple[SeenFile, ...]
    columns: tuple[tuple[str, Type], ...]
    sample: pa.Table
    candidates: tuple[TimeCandidate, ...]
    unused: tuple[str, ...] = ()
    folders: FolderNames = NO_FOLDERS
    guess: Guess | None = None

    @property
    def likely_times(self) -> tuple[TimeCandidate, ...]:
        """The columns that are likely to be times, the likeliest first: no numbers that merely may count since 1970;
        names of folders if there are no others."""
        likely = tuple(candidate for candidate in self.candidates if candidate.score >= LIKELY)
        return likely or tuple(candidate for candidate in self.candidates if candidate.score == LEAST_SCORE)

    @property
    def fields(self) -> tuple[tuple[str, Type], ...]:
        """Name and type of the plain values inside structs."""
        return () if self.guess is None else tuple((column.name, column.type) for column in self.guess.fields)


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
    files = (data_files(path) or data_files(path, False)) if path.is_dir() else (path,)
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
    visible = [
        SeenFile(place / "/".join(names), tuple(names[:-1]), size)
        for names, size in sorted(parts)
        if not any(map(is_hidden, names)) and not is_no_data(names[-1])
    ]
    files = [file for file in visible if is_data_file(file.path.name)] or visible
    if not listed:
        alone = place.info()
        if alone is None:
            check_bucket(place)
            raise HeddleError("HDL-134", f"there is nothing at {place}", "check the URL: a folder, or a file")
        files = [SeenFile(place, (), alone.size)]
    return look_at_files(place, files)


def look_at_files(path: Path | Place, files: Sequence[SeenFile], pattern: str | None = None) -> Data:
    """Data in files, those of the format that most of them have. ``pattern``: of their names, if the folder has others.

    Raises HDL-134 if there are no files, HDL-135 if they cannot be read.
    """
    if not files:
        hint = f"name a folder with {' or '.join(sorted(READ))} files, a file, or a Delta table"
        raise HeddleError("HDL-134", f"there are no data in {path}", hint)
    if pattern is None and (len(files) > 1 or files[0].path != path):
        files, pattern = _named(path, files)
    formats = [format_of_file(file.path) for file in files]
    format = max(sorted(set(formats)), key=formats.count)
    chosen = tuple(file for file, its in zip(files, formats, strict=True) if its == format)
    guess = FORMATS[format].guess([file.path for file in _some([file for file in chosen if file.size] or chosen)])
    folders = names_of_folders([file.folders for file in chosen], pattern)
    if guess is None:
        return _look_at_columns(path, format, chosen, folders)
    return _look_at_texts(path, format, chosen, guess, folders)


def _named(path: Path | Place, files: Sequence[SeenFile]) -> tuple[Sequence[SeenFile], str | None]:
    """The files that a stream over a folder reads, and the pattern of their names, None: their endings are known.
    Raises HDL-134.
    """
    if any(is_data_file(file.path.name) for file in files):
        return files, None
    endings = [Path(file.path.name).suffix for file in files]
    usual = max(sorted(set(endings)), key=endings.count)
    alike = [file for file, ending in zip(files, endings, strict=True) if ending == usual]
    # any text may be CSV: what it is, its beginning does not say
    if format_of_file(alike[0].path) == next(iter(FORMATS)):
        hint = f"name a folder with {' or '.join(sorted(READ))} files, a file, or a Delta table"
        raise HeddleError("HDL-134", f"there are no data in {path}", hint)
    return alike, f"*{usual}"


def data_files(folder: Path, is_known: bool = True) -> tuple[Path, ...]:
    """The files of a folder, also of those below it, that a stream would read. ``is_known``: by their endings; else
    whatever is not skipped."""
    return tuple(
        sorted(
            file
            for file in folder.rglob("*")
            if (is_data_file(file.name) if is_known else not is_no_data(file.name))
            and not any(map(is_hidden, file.relative_to(folder).parts))
            and file.is_file()
        )
    )


def is_data_file(name: str) -> bool:
    """Return whether a stream over a folder would read a file of this name."""
    return ending_of(name) in READ


def ending_of(name: str) -> str:
    """Return the ending of a file's name, in lower case: of a compressed file also what it is without."""
    known = [ending for ending in KNOWN if name.lower().endswith(ending)]
    return max(known, key=len, default=Path(name).suffix.lower())


def format_of_file(file: Path | Place) -> str:
    """The format of a file by its name, else by its beginning. Raises HDL-135 if it cannot be read."""
    suffix = ending_of(file.name)
    for name, format in FORMATS.items():
        if suffix in (*format.endings, *format.lone_endings, *format.named_endings):
            return name
    try:
        beginning = beginning_of(file, BEGINNING).data
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
    name = path.name.partition("@")[0] if isinstance(path, Place) else path.resolve().name
    name = name[: -len(ending_of(name))] if ending_of(name) in KNOWN else Path(name).stem
    cleaned = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower()[:60]
    return cleaned if re.match(r"[a-z_]", cleaned) else f"stream_{cleaned}".rstrip("_")


def undeclared(path: Path | Place, format: str, folders: FolderNames = NO_FOLDERS) -> Stream:
    """A stream over data, of which neither columns nor time are known yet."""
    source = Source(format, url_of(path), files=folders.files, partitions=folders.partitions)
    return Stream(stream_name(path), source, (), "")


def _some(files: Sequence[SeenFile]) -> list[SeenFile]:
    """The first, the middle and the last."""
    return list(dict.fromkeys([files[0], files[len(files) // 2], files[-1]]))


def _look_at_texts(
    path: Path | Place, format: str, files: tuple[SeenFile, ...], guess: Guess, folders: FolderNames
) -> Data:
    """Files that declare no columns: what a sample of them seems to be."""
    bad = left_out(column.name for column in guess.columns)
    if bad and not guess.has_names:
        bad = []
    usable = [column for column in guess.columns if column.name not in bad]
    sampled = usable[:MOST_COLUMNS]
    candidates = [candidate for column in (*usable, *guess.fields) if (candidate := _candidate_of_text(column))]
    sampled += [
        column
        for column in usable[MOST_COLUMNS:]
        if any(time_candidate.name == column.name for time_candidate in candidates[:1])
    ]
    sample = pa.table({column.name: column.texts for column in (*sampled, *guess.fields)})
    unused = [*bad, *guess.unused, *(column.name for column in usable if column not in sampled)]
    folders = folders.without([column.name for column in guess.columns])
    for name, texts in folders.sampled(len(sample)).items():
        sample = sample.append_column(name, texts)
    pairs = (*((column.name, column.type) for column in sampled), *folders.columns)
    candidates += _of_folders(folders)
    return Data(path, format, files, pairs, sample, _ranked(candidates), tuple(unused), folders, guess)


def _of_folders(folders: FolderNames) -> list[TimeCandidate]:
    """The names of folders as times of all events in them, where no file has any."""
    return [
        TimeCandidate(name, f"{type}s in the names of folders", LEAST_SCORE)
        for name, type in folders.columns
        if type in (DATE, TIMESTAMP)
    ]


def _look_at_columns(
    path: Path | Place, format: str, files: tuple[SeenFile, ...], folders: FolderNames = NO_FOLDERS
) -> Data:
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
    folders = folders.without(arrow.names)
    stream, of_files, pairs = undeclared(path, format, folders), pairs, (*pairs, *folders.columns)
    splits = splits_of(_with_any_time(stream, pairs))
    sample = _sample(stream, splits, pairs)
    candidates = _ranked([*_of_folders(folders), *candidates_of(of_files, sample)])
    return Data(path, format, files, pairs, sample, candidates, tuple(unused), folders)


def candidates_of(columns: Sequence[tuple[str, Type]], sample: pa.Table) -> tuple[TimeCandidate, ...]:
    """The columns that may be the time of events, by their types and some values; the likeliest first."""
    candidates = []
    for name, type in columns:
        column = sample[name] if name in sample.schema.names else pa.nulls(0)
        if candidate := _candidate(name, type, column):
            candidates.append(candidate)
    return _ranked(candidates)


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
    names = [name for name, _ in (*data.columns, *data.fields)]
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
    source = Source(
        data.format, path, time_unit=time.unit, files=data.folders.files, partitions=data.folders.partitions
    )
    if guess is not None:
        source = replace(source, timestamp_format=time.formats[0] if time.formats else None, **guess.options)
    stream = Stream(name or stream_name(data.path), source, (), time.name)
    type_of_time = dict((*data.columns, *data.fields))[time.name]
    has_schema = guess is not None or type_of_time not in (TIMESTAMP, LONG)
    if has_schema:
        pairs = [(column, _declared(data, column, type, time)) for column, type in data.columns]
        nested = () if guess is None else tuple((name, _nested(data, name, type, time)) for name, type in guess.nested)
        stream = with_schema(stream, pairs, nested)
    else:
        stream = discover_schema(stream)[0]
    if len(time.formats) > 1:
        notes.append(f"{time.name} is read as {time.formats[0]}; it could be {time.formats[1]} as well")
    if not time.has_zone and time.unit is None and guess is not None:
        notes.append(f"{time.name} names no zone: taken as UTC")
    commas = [column.name for column in guess.columns if has_commas(column)] if guess is not None else []
    if commas:
        notes.append(f"numbers with a decimal comma are read as texts: {', '.join(commas[:6])}")
    if guess is not None and FORMATS[data.format].is_schema_sampled:
        notes.append(f"columns and types are those of a sample: {len(data.sample):,} records of {_sampled_files(data)}")
    notes += data.folders.notes(time.name)
    if data.unused:
        shown = ", ".join(repr(name) for name in data.unused[:6])
        notes.append(f"left out: {shown}" + (f" and {len(data.unused) - 6} more" if len(data.unused) > 6 else ""))
    inspection = inspect(stream, [column for column, _ in stream.schema])
    return Proposal(stream, data, time, inspection, inspection.events or 0, inspection.about, has_schema, tuple(notes))


def _sampled_files(data: Data) -> str:
    return count(len(_some([file for file in data.files if file.size] or data.files)), "file")


def _declared(data: Data, name: str, type: Type, time: TimeCandidate) -> Type:
    """The type that a schema declares of a column."""
    if name == time.name:
        return TIMESTAMP
    if data.guess is None or name in dict(data.folders.columns):
        return type
    column = next(column for column in (*data.guess.columns, *data.guess.fields) if column.name == name)
    # there is one format for all timestamps of a stream
    fits = column.formats == () if not time.formats else time.formats[0] in column.formats
    return STRING if type == TIMESTAMP and not fits else type


def _nested(data: Data, name: str, type: Nested, time: TimeCandidate) -> Nested:
    """The type that a schema declares of a nested column."""
    plain = [column for column, _ in data.columns]

    def declared(inner: Type | Nested, path: ColumnPath) -> Type | Nested:
        if isinstance(inner, Nested) and inner.kind == "struct":
            fields = inner.fields
            below = [
                (field, declared(of, ColumnPath(path.root, (*path.steps, Step(True, field))))) for field, of in fields
            ]
            return Nested("struct", tuple(below))
        return inner if isinstance(inner, Nested) else _declared(data, path.name(plain), inner, time)

    result = declared(type, ColumnPath(name, ()))
    assert isinstance(result, Nested)
    return result
