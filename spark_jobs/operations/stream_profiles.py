"""Profile the data of declared streams, before any query uses them: ``heddle streams``.

Spans and counts are those of :mod:`spark_jobs.streams.sources.inspection`. Columns are read to the end if they are
short enough, otherwise the first rows of some files, and the profile says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors.diagnostics import Diagnostic, HeddleError, meant
from optimizer.workload.instants import DAY, format_instant
from optimizer.workload.nested import Path, leaf_names, read_path
from optimizer.workload.streams import has_columns, load_streams
from optimizer.workload.values import SECOND, Stream, Type
from spark_jobs.operations.agreement import text_of
from spark_jobs.store.settings import settings
from spark_jobs.streams.copies.readers import StrPath, discovered, read_by, reason, unseen
from spark_jobs.streams.sources.clusters import far_warnings
from spark_jobs.streams.sources.decoding import first_rows, read_split
from spark_jobs.streams.sources.event_times import MOST_BYTES, EventTimes, text_bytes
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.inspection import Inspection, as_warned, inspected
from spark_jobs.streams.sources.splits import Split

MOST_CELLS = 32_000_000
"""Values of a stream whose columns are read to the end."""

SAMPLED = 5
"""Files whose first rows describe the columns of a longer stream."""

MOST_FIELDS = 100
"""Fields of structs that are described."""

BARS = 60
"""Largest number of spans of time that have a rate."""

SPANS = (
    *(SECOND, 10 * SECOND, 60 * SECOND, 600 * SECOND, 3600 * SECOND, 6 * 3600 * SECOND),
    *(DAY, 7 * DAY, 30 * DAY, 365 * DAY, 3650 * DAY, 36_500 * DAY, 365_000 * DAY),
)
"""Possible lengths of these spans, in microseconds; they begin at multiples of it."""

LEVELS = " ▁▂▃▄▅▆▇█"
LONGEST_VALUE = 32
"""Characters of a least or greatest value that are shown."""


@dataclass(frozen=True)
class ColumnProfile:
    """A column of the rows that were read: the share of ``nulls`` (0 to 1), how many ``distinct`` values, the least and
    the greatest."""

    name: str
    type: Type
    nulls: float
    distinct: int
    least: str
    greatest: str

    def to_json(self) -> dict[str, Any]:
        """The column as ``heddle streams --json`` prints it."""
        return {
            "name": self.name,
            "type": str(self.type),
            "nulls": round(self.nulls, 4),
            "distinct": self.distinct,
            "least": self.least,
            "greatest": self.greatest,
        }


@dataclass(frozen=True)
class StreamProfile:
    """Profile of a stream's data.

    Attributes
    ----------
    inspection
        The files, the times and the number of the events.
    begin, span, counts
        Number of events in each ``span`` microseconds from ``begin`` on.
    columns, sample
        Description of the columns, and the number of rows that it is based on.
    is_sampled
        Whether the stream has more rows than these.
    """

    stream: Stream
    inspection: Inspection
    begin: int
    span: int
    counts: tuple[int, ...]
    columns: tuple[ColumnProfile, ...]
    sample: int
    is_sampled: bool
    diagnostics: tuple[Diagnostic, ...]

    @property
    def bars(self) -> str:
        """The counts as a line of bars."""
        most = max(self.counts, default=0) or 1
        return "".join(LEVELS[-(-count * (len(LEVELS) - 1) // most)] for count in self.counts)

    @property
    def rate(self) -> float | None:
        """Events a second, from the first to the last."""
        inspection = self.inspection
        if inspection.events is None or inspection.first is None or inspection.last is None:
            return None
        return inspection.events * SECOND / max(inspection.last - inspection.first, SECOND)

    def to_json(self) -> dict[str, Any]:
        """The stream as ``heddle streams --json`` prints it."""
        return {
            "name": self.stream.name,
            "format": self.stream.source.format,
            "path": self.stream.source.path,
            "reader": "spark" if reason(self.stream).startswith("Spark") else "direct",
            "why": reason(self.stream),
            "unseen": unseen(self.stream),
            "time": self.stream.time,
            **{name: value for name, value in self.inspection.to_json().items() if name not in ("name", "sample")},
            "times_sample": self.inspection.sample,
            "events_per_second": self.rate,
            "counts": {"from": format_instant(self.begin), "seconds": self.span // SECOND, "events": list(self.counts)},
            "columns": [column.to_json() for column in self.columns],
            "sample": self.sample,
            "sampled": self.is_sampled,
            "diagnostics": [diagnostic.to_json() for diagnostic in self.diagnostics],
        }


def profiles(path: StrPath, name: str | None = None) -> tuple[list[StreamProfile], list[Diagnostic]]:
    """The streams that a file declares (``name``: only this one), and the problems of the file.

    Raises HDL-111 if there is no file, HDL-201 for a name of neither a stream nor a dimension. The
    problems of a stream's data are in its profile.
    """
    streams, problems = load_streams(path, settings().source_roots, settings().copies)
    dimensions = [dimension.name for stream in streams.values() for dimension in stream.dimensions]
    if name is not None and name not in (*streams, *dimensions):
        what = "stream or dimension" if dimensions else "stream"
        hint = meant(name, {*streams, *dimensions})
        raise HeddleError.of(HeddleError("HDL-201", f"there is no {what} {name}", hint).diagnostic, *problems)
    return [profile_of(stream) for each, stream in streams.items() if name in (None, each)], list(problems)


def profile_of(stream: Stream) -> StreamProfile:
    """Profile of a stream's data. Raises nothing for problems of the data."""
    inspection = Inspection(stream.name, 0, None, None, None, None, ())
    diagnostics: tuple[Diagnostic, ...] = ()
    begin, span, counts = 0, DAY, tuple[int, ...]()
    try:
        stream = read_by(stream)
        if not has_columns(stream):
            stream, diagnostics = discovered(stream)
        inspection, times, splits = inspected(stream, [name for name, _ in stream.schema], keeps=True)
        diagnostics += (*inspection.diagnostics, *far_warnings(stream.name, times.clusters))
        begin, span, counts = _counts(times)
        columns, sample, is_sampled = _columns(stream, splits)
    except HeddleError as error:
        known = [diagnostic for diagnostic in diagnostics if diagnostic.code != error.code]
        problems = (*known, as_warned(error.diagnostic))
        return StreamProfile(stream, inspection, begin, span, counts, (), 0, False, problems)
    return StreamProfile(stream, inspection, begin, span, counts, columns, sample, is_sampled, diagnostics)


def _counts(times: EventTimes) -> tuple[int, int, tuple[int, ...]]:
    """Events by spans of time: where these begin, how long they are, and the counts."""
    first, last = times.first, times.last
    if first is None or last is None:
        return 0, DAY, ()
    span = next((span for span in SPANS if last // span - first // span < BARS), SPANS[-1])
    begin = first // span * span
    counts = np.bincount((times.kept - begin) // span, minlength=(last - begin) // span + 1).astype(float)
    for split in times.spans:
        low, high = (split.begin - begin) // span, (split.end - 1 - begin) // span
        counts[low : high + 1] += (split.rows or 0) / (high - low + 1)
    return begin, span, tuple(int(round(count)) for count in counts)


def _columns(stream: Stream, splits: Sequence[Split]) -> tuple[tuple[ColumnProfile, ...], int, bool]:
    """The columns by all rows, or by the first rows of some files; how many rows these are, and whether there are
    more."""
    schema = [*stream.schema, *_fields(stream)]
    names, is_text = [name for name, _ in schema], not format_of(stream).has_statistics
    cells = sum(split.rows or 0 for split in splits) * len(schema)
    is_short = sum(map(text_bytes, splits)) <= MOST_BYTES if is_text else cells <= MOST_CELLS
    columns, rows = list[ColumnProfile](), 0
    sample = _all_rows(stream, splits, names) if is_text and is_short else None
    if not is_short:
        sample = _first_rows(stream, splits, names)
    for name, type in schema:
        # rows that are not texts are read column by column, so that no more than one is in memory
        table = _all_rows(stream, splits, [name]) if is_short and not is_text else sample
        if table is None:
            return (), 0, False
        columns.append(column_profile(table[name], name, type))
        rows = len(table)
    return tuple(columns), rows, not is_short


def _first_rows(stream: Stream, splits: Sequence[Split], names: list[str]) -> pa.Table | None:
    """The first rows of some files; None if there are none."""
    places = sorted({round(at * (len(splits) - 1) / (SAMPLED - 1)) for at in range(SAMPLED)}) if splits else []
    batches = [batch for at in places if (batch := first_rows(stream, splits[at], names)) is not None]
    return pa.Table.from_batches(batches) if batches else None


def _all_rows(stream: Stream, splits: Sequence[Split], names: list[str]) -> pa.Table | None:
    """All rows of some columns; None if there are none. Raises what reading raises."""
    batches = [batch for split in splits for batch in read_split(stream, split, names)]
    return pa.Table.from_batches(batches) if batches else None


def _fields(stream: Stream) -> Iterator[tuple[str, Type]]:
    """The first fields of structs, as queries name them."""
    types, plain = stream.types, dict(stream.schema)
    leaves = (name for root, nested in stream.nested for name in leaf_names(Path(root, ()).name(()), nested))
    for leaf in itertools.islice(leaves, MOST_FIELDS):
        path = read_path(leaf)
        # nobody knows the keys of a map
        if path is not None and not any(isinstance(step.value, str) for step in path.steps if not step.is_field):
            name = path.name(plain)
            if (type := types.get(name)) is not None:
                yield name, type


def column_profile(values: pa.ChunkedArray, name: str, type: Type) -> ColumnProfile:
    """Profile of a column by its values (n,)."""
    nulls = values.null_count / max(1, len(values))
    least, greatest = (_shown(scalar.as_py()) for scalar in (pc.min(values), pc.max(values)))
    return ColumnProfile(name, type, nulls, int(pc.count_distinct(values).as_py()), least, greatest)


def _shown(value: Any) -> str:
    text = "" if value is None else text_of(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
