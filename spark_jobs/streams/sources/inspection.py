"""Inspect a stream's data before anything runs: compare it with streams.yaml, find its times, and count or estimate
its events.

Opens the beginning of a few files, and reads the time column of files without complete statistics, up to a limit.
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
from optimizer.errors.diagnostics import count as number_of
from optimizer.workload.attributes import columns_read
from optimizer.workload.instants import format_instant
from optimizer.workload.values import Stream
from spark_jobs.streams.sources.clusters import Cluster
from spark_jobs.streams.sources.decoding import check_columns, first_rows, missing_columns, times_at_end
from spark_jobs.streams.sources.event_times import EventTimes, event_times
from spark_jobs.streams.sources.exact_folders import misplaced_files
from spark_jobs.streams.sources.files import files_of
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.splits import Split
from spark_jobs.streams.sources.untimed import warning

LOOKS = 32
"""Number of files without statistics that are read to estimate the number of events over time."""

FAR_SHOWN = 3
"""Groups of events far from the others that are named one by one."""

NOT_COPIED = "HDL-432"
"""A stream that only Spark reads has no copy yet."""


@dataclass(frozen=True)
class Inspection:
    """Result of inspecting a stream.

    Attributes
    ----------
    stream, files
        Its name, and the number of its files.
    first, last
        Times of its first and last event (microseconds); None: unknown.
    events
        Number of events with a time; None: unknown.
    sample
        None: the times and the count are those of all events. Otherwise the number of rows that were read.
    diagnostics
        What is wrong.
    near
        First and last time of the events that are not far from all others (HDL-475); None: unknown.
    far
        The other events, in groups.
    """

    stream: str
    files: int
    first: int | None
    last: int | None
    events: int | None
    sample: int | None
    diagnostics: tuple[Diagnostic, ...]
    near: tuple[int, int] | None = None
    far: tuple[Cluster, ...] = ()

    @property
    def about(self) -> bool:
        """True if the times and the count are those of a sample."""
        return self.sample is not None

    @property
    def newest(self) -> int | None:
        """Time of the newest event that is not far from all others (microseconds); None: unknown."""
        return self.last if self.near is None else self.near[1]

    @property
    def usual_span(self) -> tuple[int, int] | None:
        """First and last time of the events that are not far from all others, or of all events where no distances are
        known, as of a table of a database (microseconds); None: unknown."""
        if self.near is not None or self.first is None or self.last is None:
            return self.near
        return self.first, self.last

    @property
    def span_text(self) -> str:
        """First and last time for people, with how they are known and which events are far from the others."""
        if self.first is None or self.last is None:
            return "times not known"
        first, last = (self.first, self.last) if self.near is None else self.near
        about = "" if self.sample is None else "about "
        text = f"{about}from {format_instant(first)} to {format_instant(last)}"
        for group in self.far[:FAR_SHOWN]:
            text += f", {number_of(group.events, 'event')} at {format_instant(group.begin)}"
        if len(self.far) > FAR_SHOWN:
            text += f", {number_of(sum(group.events for group in self.far[FAR_SHOWN:]), 'event')} elsewhere"
        return text if self.sample is None else f"{text} (a sample of {number_of(self.sample, 'row')})"

    @property
    def events_text(self) -> str:
        """Number of events for people."""
        if self.events is None:
            return "events not counted"
        return ("about " if self.about else "") + number_of(self.events, "event")

    def __str__(self) -> str:
        files = number_of(self.files, "file")
        if self.first is None or self.last is None:
            return f"stream {self.stream}: {files}, times not known"
        return f"stream {self.stream}: {files}, {self.events_text} {self.span_text}"

    def to_json(self) -> dict[str, Any]:
        """The findings as ``heddle validate --json`` prints them."""
        return {
            "name": self.stream,
            "files": self.files,
            "events": self.events,
            "first": None if self.first is None else format_instant(self.first),
            "last": None if self.last is None else format_instant(self.last),
            "newest": None if self.newest is None else format_instant(self.newest),
            "about": self.about,
            "sample": self.sample,
        }


def inspect(stream: Stream, columns: Sequence[str]) -> Inspection:
    """Look at the files of a stream, of which queries read ``columns``: at the columns of the first and the newest
    file, and at the times of all events.

    Never raises for what the data are: columns that queries read and that are missing or of another type, values that
    are none of their type, files that cannot be read are errors; columns that only the schema names, and a stream
    without any time, are warnings (HDL-424).
    """
    return inspected(stream, columns)[0]


def inspected(
    stream: Stream, columns: Sequence[str], keeps: bool = False
) -> tuple[Inspection, EventTimes, Sequence[Split]]:
    """Like :func:`inspect`, also with the times of the events (``keeps``: one by one) and the splits."""
    nothing = Inspection(stream.name, 0, None, None, None, None, ())
    unknown = EventTimes(None, None, None, None)
    columns = columns_read(stream, columns)
    try:
        files = files_of(stream)
        splits = files.opened(range(len(files.paths)))
    except HeddleError as error:
        return replace(nothing, diagnostics=(as_warned(error.diagnostic),)), unknown, ()
    paths = {split.path: split for split in reversed(splits)}
    diagnostics = [*files.warnings, *misplaced_files(stream, splits)]
    if not paths:
        return replace(nothing, diagnostics=(*diagnostics, _empty(stream, "holds no data"))), unknown, ()
    newest = max(paths, key=lambda path: (_changed(paths[path]), path))
    looked_at = [paths[path] for path in dict.fromkeys([splits[0].path, newest])]
    for split in looked_at:
        diagnostics += [problem for problem in _look(stream, split, looked_at, columns) if problem not in diagnostics]
    times = event_times(stream, splits, keeps)
    has_errors = any(diagnostic.severity == "error" for diagnostic in diagnostics)
    # an error of the columns comes again with every file
    diagnostics += [] if has_errors else times.problems
    if times.first is None and len(diagnostics) == len(files.warnings):
        where = "" if times.sample is None else " where it was looked at"
        diagnostics.append(_empty(stream, f"has no event with a time ({stream.time}){where}"))
    elif times.untimed:
        diagnostics.append(warning(stream.name, times.untimed))
    events = times.rows
    if events is None:
        events = round(sum(split.rows or 0 for split in estimated(stream, splits)))
    inspection = Inspection(stream.name, len(paths), times.first, times.last, events, times.sample, tuple(diagnostics))
    return replace(inspection, near=times.near, far=times.far), times, splits


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


def _look(stream: Stream, split: Split, looked_at: list[Split], columns: Sequence[str]) -> list[Diagnostic]:
    """Diagnostics about the columns of a file and the values of its first rows."""
    used = list(dict.fromkeys([*columns, *([stream.event_id] if stream.event_id is not None else [])]))
    try:
        # a column that another file has may be null in this one
        check_columns(stream, [split] if format_of(stream).is_each_complete else looked_at, used)
        lacking = missing_columns(stream, [split], used)
        rows = first_rows(stream, split, used)
    except HeddleError as error:
        return [error.diagnostic]
    if lacking:
        message = f"stream {stream.name}: {split.path} has no column {', '.join(lacking)}, as others have: null there"
        return [Diagnostic("HDL-403", message, "is it misspelt in this file?", severity="warning")]
    if rows is not None and format_of(stream).is_schema_sampled:
        of_file = [name for name in used if name != stream.time and name not in dict(split.folders)]
        empty = [name for name in of_file if rows.column(name).null_count == len(rows)]
        if empty:
            message = f"stream {stream.name}: {', '.join(empty)} is null in the first {len(rows):,} records of "
            hint = "is the key spelled as in the file, and the path to it right?"
            return [Diagnostic("HDL-403", message + split.path, hint, severity="warning")]
    try:
        check_columns(stream, [split], [name for name, _ in stream.schema])
    except HeddleError as error:
        hint = f"no query reads it; {error.diagnostic.hint}"
        return [replace(error.diagnostic, severity="warning", hint=hint)]
    return []


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
