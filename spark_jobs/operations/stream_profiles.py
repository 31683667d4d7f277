"""Profile the data of declared streams, before any query uses them: ``heddle streams``.

Spans and counts come from the statistics of files. What these lack is read, within a bound: the times of some
millions of events, and the first rows of some files for the columns.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.errors.diagnostics import Diagnostic, HeddleError, meant
from optimizer.workload.instants import DAY, format_instant
from optimizer.workload.nested import Path, leaf_names, read_path
from optimizer.workload.streams import has_columns, load_streams
from optimizer.workload.values import SECOND, Stream, Type
from spark_jobs.operations.agreement import text_of
from spark_jobs.store.settings import settings
from spark_jobs.streams.copies.readers import StrPath, discovered, read_by, reason, unseen
from spark_jobs.streams.sources.clusters import Cluster, far_groups, far_warnings, grouped_clusters, of_times
from spark_jobs.streams.sources.decoding import first_rows, read_split
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.inspection import as_warned, inspect
from spark_jobs.streams.sources.splits import Split
from spark_jobs.streams.sources.untimed import file_name, warning

MOST_ROWS = 4_000_000
"""Events whose times are read; the files of the others are spread evenly over the span in their statistics."""

MOST_BYTES = 96 << 20
"""Bytes of CSV files that are read for their times."""

SAMPLED = 5
"""Files of whose first rows columns are described."""

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
    """A column by a sample: the share of ``nulls`` (0 to 1), how many ``distinct`` values, the least and greatest."""

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
    """Profile of a stream's data. ``rows``: events, None if not known; ``first``, ``last``: times of events
    (microseconds); ``about``: not all of them were read. ``counts``: events in each ``span`` microseconds from
    ``begin`` on. ``sample``: the number of rows that the description of ``columns`` is based on.
    """

    stream: Stream
    files: int
    rows: int | None
    first: int | None
    last: int | None
    about: bool
    begin: int
    span: int
    counts: tuple[int, ...]
    columns: tuple[ColumnProfile, ...]
    sample: int
    diagnostics: tuple[Diagnostic, ...]

    @property
    def bars(self) -> str:
        """The counts as a line of bars."""
        most = max(self.counts, default=0) or 1
        return "".join(LEVELS[-(-count * (len(LEVELS) - 1) // most)] for count in self.counts)

    @property
    def rate(self) -> float | None:
        """Events a second, from the first to the last."""
        if self.rows is None or self.first is None or self.last is None:
            return None
        return self.rows * SECOND / max(self.last - self.first, SECOND)

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
            "files": self.files,
            "events": self.rows,
            "first": None if self.first is None else format_instant(self.first),
            "last": None if self.last is None else format_instant(self.last),
            "about": self.about,
            "events_per_second": self.rate,
            "counts": {"from": format_instant(self.begin), "seconds": self.span // SECOND, "events": list(self.counts)},
            "columns": [column.to_json() for column in self.columns],
            "sample": self.sample,
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
    nothing = StreamProfile(stream, 0, None, None, None, False, 0, DAY, (), (), 0, ())
    diagnostics: tuple[Diagnostic, ...] = ()
    try:
        stream = read_by(stream)
        if not has_columns(stream):
            stream, diagnostics = discovered(stream)
        inspection = inspect(stream, [name for name, _ in stream.schema])
        diagnostics += inspection.diagnostics
        splits = splits_of(stream)
        read = _times(stream, splits)
        diagnostics += (warning(stream.name, read.untimed),) if read.untimed else ()
        diagnostics += tuple(far_warnings(stream.name, read.clusters))
        columns, sample = _columns(stream, splits)
    except HeddleError as error:
        known = [diagnostic for diagnostic in diagnostics if diagnostic.code != error.code]
        return replace(nothing, stream=stream, diagnostics=(*known, as_warned(error.diagnostic)))
    times, first, last = read.times, inspection.first, inspection.last
    if len(times):
        first = int(times.min()) if first is None else min(first, int(times.min()))
        last = int(times.max()) if last is None else max(last, int(times.max()))
    begin, span, counts = _counts(times, read.unread, first, last)
    about = read.rows is None or (inspection.about and len(read.unread) > 0)
    profile = StreamProfile(
        stream, inspection.files, read.rows, first, last, about, begin, span, counts, columns, sample, diagnostics
    )
    return profile


def newest_near(stream: Stream, newest: int) -> int:
    """The time of the newest event of a stream (microseconds) that is not far from all others (HDL-475), as far as its
    times are read; ``newest``: that of all. Raises what reading raises."""
    groups = grouped_clusters(cluster for cluster, _ in _times(stream, splits_of(stream)).clusters)
    near = [group.end - 1 for group in groups if group not in far_groups(groups)]
    return min(newest, max(near)) if near else newest


class _Times(NamedTuple):
    """Times of the events of a stream.

    Attributes
    ----------
    times
        (n,) in microseconds, of the events that were read.
    unread
        The splits of the others.
    rows
        Number of events in all splits; None: not known.
    untimed
        Of the events read those without a usable time, by file.
    clusters
        Of all splits, each with its file.
    """

    times: NDArray[np.int64]
    unread: list[Split]
    rows: int | None
    untimed: dict[str, int]
    clusters: list[tuple[Cluster, str]]


def _times(stream: Stream, splits: Sequence[Split]) -> _Times:
    """The times of the events of some splits, of the first files only where there are very many."""
    arrays, unread, rows, read, size, untimed = [], [], 0, 0, 0, Counter[str]()
    clusters: list[tuple[Cluster, str]] = []
    is_known = True
    for split in splits:
        size += split.bytes_about() if split.rows is None else 0
        read += split.rows or 0
        if read > MOST_ROWS or size > MOST_BYTES:
            unread.append(split)
            is_known, rows = is_known and split.rows is not None, rows + (split.rows or 0)
            if split.begin is not None and split.end is not None:
                clusters.append((Cluster(split.begin, split.end, split.rows or 0), split.path))
            continue
        for batch in read_split(stream, split, []):
            column = batch.column(stream.time)
            if column.null_count:
                untimed[file_name(stream, split.path)] += column.null_count
            column = column.drop_null()
            arrays.append(column.cast(pa.int64()).to_numpy(zero_copy_only=False))
            rows += len(column)
            clusters += [(cluster, split.path) for cluster in of_times(arrays[-1])]
    times = np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
    return _Times(times, unread, rows if is_known else None, dict(untimed.most_common()), clusters)


def _counts(
    times: NDArray[np.int64], left: Sequence[Split], first: int | None, last: int | None
) -> tuple[int, int, tuple[int, ...]]:
    """Events by spans of time: where these begin, how long they are, and the counts."""
    if first is None or last is None:
        return 0, DAY, ()
    span = next((span for span in SPANS if last // span - first // span < BARS), SPANS[-1])
    begin = first // span * span
    counts = np.bincount((times - begin) // span, minlength=(last - begin) // span + 1).astype(float)
    for split in left:
        if split.begin is not None and split.end is not None and split.rows:
            low, high = (split.begin - begin) // span, (split.end - 1 - begin) // span
            counts[low : high + 1] += split.rows / (high - low + 1)
    return begin, span, tuple(int(round(count)) for count in counts)


def _columns(stream: Stream, splits: Sequence[Split]) -> tuple[tuple[ColumnProfile, ...], int]:
    """The columns by the first rows of some files, and how many rows these are."""
    schema = [*stream.schema, *_fields(stream)]
    names = [name for name, _ in schema]
    places = sorted({round(at * (len(splits) - 1) / (SAMPLED - 1)) for at in range(SAMPLED)}) if splits else []
    batches = [batch for at in places if (batch := first_rows(stream, splits[at], names)) is not None]
    if not batches:
        return (), 0
    sample = pa.Table.from_batches(batches)
    return tuple(column_profile(sample[name], name, type) for name, type in schema), len(sample)


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
