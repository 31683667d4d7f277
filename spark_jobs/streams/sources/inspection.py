"""Inspect a stream's data before anything runs: compare it with streams.yaml, find its times, and estimate the number
of events.

Opens the beginning of a few files, and the end of files without statistics of times.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.attributes import columns_read
from optimizer.workload.instants import format_instant
from optimizer.workload.values import Stream
from spark_jobs.streams.sources.decoding import check_columns, first_rows, missing_columns, times_at_end
from spark_jobs.streams.sources.exact_folders import misplaced_files
from spark_jobs.streams.sources.files import files_of
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.splits import Split

ENDS = 16
"""Number of files without statistics, the first and the last by name, whose times are read."""

LOOKS = 32
"""Number of files without statistics that are read to estimate the number of events over time."""

NOT_COPIED = "HDL-432"
"""A stream that only Spark reads has no copy yet."""


@dataclass(frozen=True)
class Inspection:
    """Result of inspecting a stream: the number of its files; the times of its first and last event (microseconds,
    None: unknown), approximate if ``about`` because not all rows were read; and the diagnostics.
    """

    stream: str
    files: int
    first: int | None
    last: int | None
    about: bool
    diagnostics: tuple[Diagnostic, ...]

    def __str__(self) -> str:
        files = f"{self.files} file{'s' if self.files != 1 else ''}"
        if self.first is None or self.last is None:
            return f"stream {self.stream}: {files}, times not known"
        about = "about " if self.about else ""
        return f"stream {self.stream}: {files}, events {about}from {format_instant(self.first)} to " + format_instant(
            self.last
        )

    def to_json(self) -> dict[str, Any]:
        """The findings as ``heddle validate --json`` prints them."""
        return {
            "name": self.stream,
            "files": self.files,
            "first": None if self.first is None else format_instant(self.first),
            "last": None if self.last is None else format_instant(self.last),
            "about": self.about,
        }


def inspect(stream: Stream, columns: Sequence[str]) -> Inspection:
    """Look at the first and the newest file of a stream, of which queries read ``columns``.

    Never raises for what the data are: columns that queries read and that are missing or of another type, values that
    are none of their type, files that cannot be read are errors; columns that only the schema names, and a stream
    without any time, are warnings (HDL-424).
    """
    columns = columns_read(stream, columns)
    try:
        files = files_of(stream)
        splits = files.opened(range(len(files.paths)))
    except HeddleError as error:
        return Inspection(stream.name, 0, None, None, False, (as_warned(error.diagnostic),))
    paths = {split.path: split for split in reversed(splits)}
    diagnostics = [*files.warnings, *misplaced_files(stream, splits)]
    if not paths:
        return Inspection(stream.name, 0, None, None, False, (*diagnostics, _empty(stream, "holds no data")))
    newest = max(paths, key=lambda path: (_changed(paths[path]), path))
    times: list[pa.Array] = []
    looked_at = [paths[path] for path in dict.fromkeys([splits[0].path, newest])]
    for split in looked_at:
        problems, rows = _look(stream, split, looked_at, columns)
        diagnostics += problems
        if rows is not None:
            times.append(rows.column(stream.time))
    has_statistics = format_of(stream).has_statistics
    if not has_statistics:
        times += _ends(stream, [paths[path] for path in sorted(paths)])
    first, last = _span(times)
    about = not has_statistics or any(split.begin is None or split.end is None for split in splits)
    for split in splits:
        if split.begin is not None and split.end is not None:
            first = split.begin if first is None else min(first, split.begin)
            last = split.end - 1 if last is None else max(last, split.end - 1)
    if first is None and len(diagnostics) == len(files.warnings):
        diagnostics.append(_empty(stream, f"has no event with a time ({stream.time}) where it was looked at"))
    return Inspection(stream.name, len(paths), first, last, about, tuple(diagnostics))


def as_warned(diagnostic: Diagnostic) -> Diagnostic:
    """A diagnostic; that a stream is not copied yet is a warning wherever nothing is read for an answer."""
    if diagnostic.code != NOT_COPIED:
        return diagnostic
    return Diagnostic("HDL-432", diagnostic.message, diagnostic.hint, severity="warning")


def _changed(split: Split) -> int:
    if split.version is not None:
        return split.version.modified
    try:
        return Path(split.path).stat().st_mtime_ns
    except OSError:
        return 0


def _empty(stream: Stream, what: str) -> Diagnostic:
    return Diagnostic("HDL-424", f"stream {stream.name} {what}", "is `path` the right one?", severity="warning")


def _look(
    stream: Stream, split: Split, looked_at: list[Split], columns: Sequence[str]
) -> tuple[list[Diagnostic], pa.RecordBatch | None]:
    """Diagnostics about the beginning of a file, and its first rows."""
    used = list(dict.fromkeys([*columns, *([stream.event_id] if stream.event_id is not None else [])]))
    try:
        # a column that another file has may be null in this one
        check_columns(stream, [split] if format_of(stream).is_each_complete else looked_at, used)
        lacking = missing_columns(stream, [split], used)
        rows = first_rows(stream, split, used)
    except HeddleError as error:
        return [error.diagnostic], None
    if lacking:
        message = f"stream {stream.name}: {split.path} has no column {', '.join(lacking)}, as others have: null there"
        return [Diagnostic("HDL-403", message, "is it misspelt in this file?", severity="warning")], rows
    if rows is not None and format_of(stream).is_schema_sampled:
        empty = [name for name in used if name != stream.time and rows.column(name).null_count == len(rows)]
        if empty:
            message = f"stream {stream.name}: {', '.join(empty)} is null in the first {len(rows):,} records of "
            hint = "is the key spelled as in the file, and the path to it right?"
            return [Diagnostic("HDL-403", message + split.path, hint, severity="warning")], rows
    try:
        check_columns(stream, [split], [name for name, _ in stream.schema])
    except HeddleError as error:
        hint = f"no query reads it; {error.diagnostic.hint}"
        return [replace(error.diagnostic, severity="warning", hint=hint)], rows
    return [], rows


def _ends(stream: Stream, files: Sequence[Split]) -> list[pa.Array]:
    """Times at the beginning and the end of files without statistics; unreadable files are skipped."""
    times = []
    for file in dict.fromkeys([*files[: ENDS // 2], *files[-ENDS // 2 :]]):
        with suppress(HeddleError, OSError):
            rows = first_rows(stream, file, [])
            times += [] if rows is None else [rows.column(stream.time)]
            times.append(times_at_end(stream, file))
    return times


def _span(times: Iterable[pa.Array]) -> tuple[int | None, int | None]:
    known = [pc.min_max(some.cast(pa.int64())).as_py() for some in times if len(some) > some.null_count]
    if not known:
        return None, None
    return min(bounds["min"] for bounds in known), max(bounds["max"] for bounds in known)


def estimated(stream: Stream, splits: Sequence[Split]) -> list[Split]:
    """Splits for counting events: those without statistics get approximate rows and times.

    The times of :data:`LOOKS` files, evenly chosen by name, are those at their two ends, and the size of a row is the
    size at their ends. All other files are assumed to lie between their neighbours. Answers do not depend on this:
    identities do not contain it. Files that cannot be read do not change.
    """
    if format_of(stream).has_statistics:
        return list(splits)
    files = sorted(splits, key=lambda split: split.path)
    chosen = sorted({number * (len(files) - 1) // (LOOKS - 1) for number in range(LOOKS)}) if files else []
    seen = {number: look for number in chosen if (look := _ends_of(stream, files[number])) is not None}
    if not seen:
        return files
    numbers, row = list(seen), sum(look.bytes for look in seen.values()) / sum(look.rows for look in seen.values())
    estimates = []
    for number, split in enumerate(files):
        before = seen[numbers[max(bisect_right(numbers, number) - 1, 0)]]
        after = seen[numbers[min(bisect_left(numbers, number), len(numbers) - 1)]]
        begin, end = min(before.first, after.first), max(before.last, after.last) + 1
        estimates.append(replace(split, begin=begin, end=end, rows=round(split.bytes_about() / row)))
    return estimates


class _Ends(NamedTuple):
    """The times at the ends of a file (microseconds), and how many ``rows`` its last ``bytes`` are."""

    first: int
    last: int
    rows: int
    bytes: int


def _ends_of(stream: Stream, file: Split) -> _Ends | None:
    format = format_of(stream)
    with suppress(HeddleError, OSError):
        rows = first_rows(stream, file, [])
        tail = times_at_end(stream, file)
        first, last = _span([tail] if rows is None else [rows.column(stream.time), tail])
        if first is not None and last is not None and len(tail):
            return _Ends(first, last, len(tail), min(file.bytes_about(), format.tail_bytes(file)))
    return None
