"""Divides the final stage into tasks of about the same size, however the partial rows are spread over keys and time.

Groups are laid out in buckets, so a task answers some buckets. Buckets differ: one key can have half of the rows, and
all rows of queries without groups are in one bucket. A bucket that is too large for a task is divided by time. Each
task then answers the instants of a span, and reads the fragments under their windows. Fragments under the windows of
two spans are read twice, which limits the number of spans. One window is always answered by one task.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spark_jobs.store.settings import TaskMemory
from spark_jobs.store.warehouse.data_files import BUCKETS, StoredGroup, stored_groups
from spark_jobs.windows.partials.synopsis_work import SynopsisWork

BYTES_A_TASK = 1 << 25
"""Bytes of partial rows, before compression, that are worth a task: two million values of a multiset."""

TASKS_A_CORE = 2
"""Tasks a core, where there are bytes enough: with several, those that take longer are evened out."""

MOST_TASKS_A_CORE = 4
"""Most tasks per core. Where memory requires smaller pieces, a task does several."""

FOOTERS = 64
"""Files of partial rows, at most, whose footers are read to learn how large the buckets are."""

READ_AGAIN = 1.1
"""Bytes that the tasks of a bucket read together, at most, as a multiple of the bucket's bytes."""

READ_IN_PASSES = 2.0
"""The same of a bucket that does not fit into the memory of a task, which one task reads several times as well."""


@dataclass(frozen=True)
class Slice:
    """Queries that tasks of their own answer: ``parts`` of the work with these queries alone, for the instants after
    ``begin``. ``pieces``: the buckets of each piece of work."""

    parts: tuple[SynopsisWork, ...]
    begin: int
    pieces: tuple[frozenset[int], ...]

    @property
    def fragments(self) -> tuple[int, int]:
        """The span [begin, end) of the fragments that it needs."""
        return min(part.begin for part in self.parts), max(part.end for part in self.parts)


def by_bucket() -> tuple[frozenset[int], ...]:
    """A piece of work for each bucket."""
    return tuple(frozenset([bucket]) for bucket in range(BUCKETS))


def evened(slices: Sequence[Slice], paths: Sequence[str], cores: int, least: int, memory: TaskMemory) -> list[Slice]:
    """The slices in pieces of about the same bytes; the largest buckets come first.

    A bucket with more bytes than a piece is divided by time, into spans that have about the same bytes each. Small
    buckets are put together.

    Parameters
    ----------
    slices
        What is answered apart.
    paths
        The files of partial rows.
    cores
        Tasks at once.
    least
        Tasks that pay for the number of rows and answers, however few bytes there are.
    memory
        What a task may take.
    """
    chosen = [paths[len(paths) * number // FOOTERS] for number in range(FOOTERS)] if len(paths) > FOOTERS else paths
    # rows without a bucket say that there are no events
    groups = [group for group in stored_groups(chosen) if group.first >= 0]
    sizes = np.zeros(BUCKETS)
    for group in groups:
        sizes[group.first : group.last + 1] += group.bytes / (group.last + 1 - group.first)
    unseen = len(paths) / max(len(chosen), 1)
    sizes *= unseen
    piece = max(BYTES_A_TASK, float(sizes.sum()) * len(slices) / (TASKS_A_CORE * cores))
    piece = min(piece, memory.partial_rows / 4)
    large, small = [], []
    for undivided in slices:
        remaining_buckets = frozenset[int]().union(*undivided.pieces)
        for bucket in sorted(remaining_buckets, key=lambda at: -sizes[at]):
            span_count = round(sizes[bucket] / piece)
            spans = (
                _spans(
                    undivided,
                    [group for group in groups if group.has(bucket)],
                    span_count,
                    memory.partial_rows / unseen,
                )
                if span_count > 1
                else []
            )
            if len(spans) > 1:
                large += [replace(span, pieces=(frozenset([bucket]),)) for span in spans]
                remaining_buckets -= {bucket}
        if remaining_buckets:
            small.append(
                replace(
                    undivided,
                    pieces=_packed(sorted(remaining_buckets), sizes, piece, min(least, len(undivided.pieces))),
                )
            )
    return [*large, *small]


def _packed(buckets: Sequence[int], sizes: NDArray[np.float64], piece: float, least: int) -> tuple[frozenset[int], ...]:
    """Buckets in pieces of work of about the same bytes; the largest bucket is placed first."""
    count = min(max(1, least, round(float(sizes[buckets].sum()) / piece)), len(buckets))
    waiting = [(0.0, number) for number in range(count)]
    pieces: list[list[int]] = [[] for _ in waiting]
    for bucket in sorted(buckets, key=lambda at: -sizes[at]):
        size, number = heapq.heappop(waiting)
        pieces[number].append(bucket)
        # buckets of which no rows are known are spread as well
        heapq.heappush(waiting, (size + max(float(sizes[bucket]), 1.0), number))
    return tuple(frozenset(piece) for piece in pieces if piece)


def _spans(undivided: Slice, groups: Sequence[StoredGroup], slice_count: int, most: float) -> list[Slice]:
    """Divide a slice into several that each answer a span of instants, with about the same bytes of some row groups.

    ``slice_count``: the number of slices. There are fewer if that many would read too much again, and none if it is not
    worth dividing. ``most``: bytes of those row groups that fit into a task.
    """
    until = max(part.last_instant for part in undivided.parts)
    times, before = _bytes_before(groups)
    total = float(before[-1])
    # a task weighs large states twice
    limit = READ_AGAIN if 2 * total <= most else READ_IN_PASSES
    first, last = np.interp([undivided.begin, until], times, before)
    while slice_count > 1:
        inner = np.interp(np.linspace(first, last, slice_count + 1)[1:-1], before, times).astype(np.int64).tolist()
        edges = [undivided.begin, *sorted({edge for edge in inner if undivided.begin < edge < until}), until]
        slices = [divided for span in pairwise(edges) if (divided := _between(undivided, *span)) is not None]
        read = sum(float(np.diff(np.interp(divided.fragments, times, before))[0]) for divided in slices)
        if read <= limit * total:
            return slices
        slice_count = min(slice_count - 1, int(slice_count * 0.8))
    return []


def _between(undivided: Slice, first: int, last: int) -> Slice | None:
    """The part of a slice that answers the span (first, last] of instants; None if that is nothing."""
    parts = tuple(narrowed for part in undivided.parts if (narrowed := part.between(first, last)) is not None)
    return Slice(parts, first, undivided.pieces) if parts else None


def _bytes_before(groups: Sequence[StoredGroup]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Instants (n,), ascending, and the bytes of partial rows before each (n,), those of a row group spread evenly over
    its span."""
    times = np.unique([time for group in groups for time in (group.begin, group.end)])
    rates = np.zeros(len(times))
    for group in groups:
        rate = group.bytes / (group.last + 1 - group.first) / (group.end - group.begin)
        rates[np.searchsorted(times, group.begin)] += rate
        rates[np.searchsorted(times, group.end)] -= rate
    before = np.concatenate([[0.0], np.cumsum(np.cumsum(rates)[:-1] * np.diff(times))])
    return times, np.maximum.accumulate(before)
