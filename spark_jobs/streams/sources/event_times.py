"""The times of a stream's events now: exact where statistics are complete or the time column is short enough to read,
otherwise a sample that says how many rows it has.

``heddle init``, ``validate``, ``streams`` and ``preview`` all state what :func:`event_times` returns, so they agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, zip_longest

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.instants import FAR_APART
from optimizer.workload.values import Stream
from spark_jobs.streams.sources.clusters import Cluster, far_groups, grouped_clusters, of_times
from spark_jobs.streams.sources.compression import codec_ending
from spark_jobs.streams.sources.decoding import first_rows, read_split, times_at_end, times_of
from spark_jobs.streams.sources.splits import Split
from spark_jobs.streams.sources.untimed import file_name

MOST_ROWS = 16_000_000
"""Rows whose times are read where statistics lack them."""

MOST_BYTES = 96 << 20
"""Bytes of files without statistics that are read for their times."""

EXPANSION = 6
"""Bytes of text that a byte of a compressed file is, about."""

MOST_KEPT = 4_000_000
"""Times that are returned one by one; of the other splits the span and the number of events."""

ENDS = 16
"""Files beyond these bounds whose beginning and end are read: the first and the last ones by name."""


@dataclass(frozen=True)
class SpanOfSplit:
    """``rows`` events of a split in [begin, end) microseconds; ``rows`` is None if nobody counted them."""

    begin: int
    end: int
    rows: int | None


@dataclass(frozen=True)
class EventTimes:
    """The times of a stream's events.

    Attributes
    ----------
    first, last
        Of all events (microseconds), or of the ``sample``; None: no event has a time.
    rows
        Number of events with a time; None: not counted.
    sample
        None: ``first``, ``last`` and ``rows`` are exact. Otherwise the number of rows that were read.
    untimed
        Of the rows that were read those without a usable time, by file.
    clusters
        Groups of events that lie far apart, each with its file.
    kept
        (n,) times that were read, if they were asked for.
    spans
        The events whose times are not in ``kept``.
    problems
        What is wrong with files that cannot be read.
    """

    first: int | None
    last: int | None
    rows: int | None
    sample: int | None
    untimed: dict[str, int] = field(default_factory=dict)
    clusters: list[tuple[Cluster, str]] = field(default_factory=list)
    kept: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64), compare=False, repr=False)
    spans: list[SpanOfSplit] = field(default_factory=list)
    problems: tuple[Diagnostic, ...] = ()

    @property
    def groups(self) -> tuple[Cluster, ...]:
        """The groups of events that lie far apart, ascending."""
        return grouped_clusters(cluster for cluster, _ in self.clusters)

    @property
    def far(self) -> tuple[Cluster, ...]:
        """The groups that are far from most events (HDL-475), such as those of a clock that is wrong."""
        return tuple(far_groups(self.groups))

    @property
    def near(self) -> tuple[int, int] | None:
        """First and last time of the events that are not far from the others; None if there are none."""
        far = self.far
        near = [group for group in self.groups if group not in far]
        return (near[0].begin, near[-1].end - 1) if near else None


class _Sums:
    """Sums over the splits that were looked at so far."""

    def __init__(self, stream: Stream, keeps: bool) -> None:
        self.stream, self.room = stream, MOST_KEPT if keeps else 0
        self.rows, self.read, self.is_counted = 0, 0, True
        self.clusters: list[tuple[Cluster, str]] = []
        self.untimed = Counter[str]()
        self.kept: list[NDArray[np.int64]] = []
        self.spans: list[SpanOfSplit] = []
        self.problems: dict[str, Diagnostic] = {}

    def add_statistics(self, split: Split) -> None:
        """Add a split by what it states about itself, which bounds its events."""
        assert split.begin is not None and split.end is not None
        self.rows, self.is_counted = self.rows + (split.rows or 0), self.is_counted and split.rows is not None
        self.clusters.append((Cluster(split.begin, split.end, split.rows or 0), split.path))
        self.spans.append(SpanOfSplit(split.begin, split.end, split.rows))

    def add_times(self, split: Split, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """Add rows that were read, and return their times."""
        times, _, missing = times_of(batch, self.stream)
        self.read += len(times) + missing
        self.rows += len(times)
        if missing:
            self.untimed[file_name(self.stream, split.path)] += missing
        self.clusters += [(cluster, split.path) for cluster in of_times(times)]
        return times

    def read_all(self, split: Split) -> None:
        """Read the times of a split. If it cannot be read, that is a problem, and what was read before counts."""
        arrays = []
        try:
            for batch in read_split(self.stream, split, []):
                arrays.append(self.add_times(split, batch))
        except HeddleError as error:
            self.problems.setdefault(f"{error.code}{split.path}", error.diagnostic)
        times = np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
        if len(times) <= self.room:
            self.room -= len(times)
            self.kept.append(times)
        else:
            self.spans.append(SpanOfSplit(int(times.min()), int(times.max()) + 1, len(times)))

    def sample_ends(self, splits: Sequence[Split]) -> None:
        """Read the first and the last rows of some splits; those that cannot be read are skipped."""
        files = {split.path: split for split in splits}
        ordered = [files[path] for path in sorted(files)]
        for split in dict.fromkeys([*ordered[: ENDS // 2], *ordered[-ENDS // 2 :]]):
            with suppress(HeddleError, OSError):
                batches = [first_rows(self.stream, split, [])]
                tail = pa.RecordBatch.from_arrays([times_at_end(self.stream, split)], [self.stream.time])
                for batch in (*batches, tail):
                    if batch is not None:
                        self.add_times(split, batch)


def event_times(stream: Stream, splits: Sequence[Split], keeps: bool = False) -> EventTimes:
    """The times of the events of some splits. ``keeps``: also return up to :data:`MOST_KEPT` of them one by one.

    Splits with complete statistics are not read for ``first``, ``last`` and ``rows``, unless these are so far apart
    that an event between them may be far from all others. Raises nothing for files that cannot be read.
    """
    sums = _Sums(stream, keeps)
    known = [split for split in splits if _is_known(split)]
    unknown = [split for split in splits if not _is_known(split)]
    chosen, unread = _within_bounds(unknown)
    for split in chosen:
        sums.read_all(split)
    room = sums.room
    for split in known:
        room -= split.rows or 0
        if keeps and room >= 0:
            sums.read_all(split)
        else:
            sums.add_statistics(split)
    for split in unread:
        if split.begin is not None and split.end is not None:
            sums.add_statistics(split)
        else:
            sums.is_counted = sums.is_counted and split.rows is not None
    inexact = [split for split in unread if not split.has_exact_span]
    rows = sums.rows + sum(split.rows or 0 for split in unread if split.begin is None or split.end is None)
    if inexact:
        sums.sample_ends([split for split in inexact if split.begin is None or split.end is None])
    bounds = [cluster for cluster, _ in sums.clusters]
    return EventTimes(
        min((cluster.begin for cluster in bounds), default=None),
        max((cluster.end for cluster in bounds), default=1) - 1 if bounds else None,
        rows if sums.is_counted else None,
        sums.read if inexact or sums.problems else None,
        dict(sums.untimed.most_common()),
        sums.clusters,
        np.concatenate(sums.kept) if sums.kept else np.zeros(0, np.int64),
        sums.spans,
        tuple(sums.problems.values()),
    )


def _is_known(split: Split) -> bool:
    """Return whether the statistics of a split answer all that a profile needs."""
    if not split.has_exact_span or split.begin is None or split.end is None:
        return False
    return split.end - split.begin <= FAR_APART


def text_bytes(split: Split) -> int:
    """Bytes of a file without statistics as it is read, about: more than those of a compressed file."""
    return split.bytes_about() * (EXPANSION if codec_ending(split.path) else 1)


def _within_bounds(splits: Sequence[Split]) -> tuple[list[Split], list[Split]]:
    """The splits that are read, and the others. Of too many those at both ends of the listing are read."""
    read, unread, rows, size = list[Split](), list[Split](), 0, 0
    for split in _from_both_ends(splits):
        split_bytes = text_bytes(split) if split.rows is None else 0
        if rows + (split.rows or 0) > MOST_ROWS or size + split_bytes > MOST_BYTES:
            unread.append(split)
            continue
        rows, size = rows + (split.rows or 0), size + split_bytes
        read.append(split)
    places = {id(split): place for place, split in enumerate(splits)}
    return sorted(read, key=lambda split: places[id(split)]), sorted(unread, key=lambda split: places[id(split)])


def _from_both_ends(splits: Sequence[Split]) -> Iterator[Split]:
    """The last, the first, the last but one, the second, and so on."""
    half = len(splits) // 2
    pairs = zip_longest(reversed(splits[half:]), splits[:half])
    return (split for split in chain.from_iterable(pairs) if split is not None)
