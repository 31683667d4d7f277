"""Find the windows of queries that other versions of the dimensions which they join change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from optimizer.windows.alignment import ends_of, instants, instants_over, starts_of
from optimizer.workload.attributes import attributes_in, columns_read
from optimizer.workload.values import ACQ, Stream, Window, columns_of
from spark_jobs.streams.sources.decoding import inside, read_split, times_of
from spark_jobs.streams.sources.dimension_rows import with_attributes
from spark_jobs.streams.sources.dimension_versions import differs
from spark_jobs.streams.sources.expressions import passed
from spark_jobs.streams.sources.splits import Split

Versions = Sequence[tuple[Stream, Stream]] | None
"""A stream with the versions of its dimensions that answers may use, each with the stream with the current ones. None:
they are not known, so any window may change."""

NO_VERSIONS: Mapping[str, Versions] = {}
"""Streams whose dimensions have not changed."""

TIMES_AT_ONCE = 1 << 21
"""Times of changed events, of all queries together, that wait for their windows."""


def changed_instants(
    stream: Stream, versions: Versions, splits: Sequence[Split], queries: Sequence[ACQ], span: tuple[int, int, int]
) -> dict[str, NDArray[np.int64]] | None:
    """Find the windows with an event that counts otherwise with other versions of the dimensions; None: not known.

    ``span``: the first time of an event in a window, and the interval (begin, end] of the windows' instants, in
    microseconds. An event counts otherwise for a query if it passes the filter with one of two versions alone, or with
    both while another attribute of the query differs. Returns the ascending instants by query, of queries with
    attributes alone. Reads the keys, and the columns of filters on attributes, once for each pair of versions; at no
    time are more than the times of :data:`TIMES_AT_ONCE` events in memory. Raises what reading raises.
    """
    if versions is None:
        return None
    joined = [_JoinedQuery(stream, query) for query in queries if attributes_in(stream, query.columns())]
    windows = _Windows([each.query for each in joined], *span[1:])
    for former, now in versions:
        for changed in _changed_events(former, now, splits, joined, (span[0], span[2])):
            for each in joined:
                windows.add(each.query, changed.times[each.counts_otherwise(changed)])
    return windows.instants()


class _JoinedQuery:
    """A query with the attributes that its answers depend on other than by its filter."""

    def __init__(self, stream: Stream, query: ACQ) -> None:
        self.query, self.types = query, stream.types
        self.attributes = attributes_in(stream, query.columns())
        self.values = [name for name in query.columns(is_filtered=False) if name in self.attributes]
        self.filtered = [*columns_of(query.filter)] if query.filter is not None else []
        self.is_filtered_by_attributes = bool(attributes_in(stream, self.filtered))

    def counts_otherwise(self, events: _ChangedEvents) -> NDArray[np.bool_]:
        """Mask (n,) of the events that count otherwise for the query with the attributes before and now."""
        changed = np.zeros(len(events.times), dtype=bool)
        for name in self.values:
            changed |= events.differs[name]
        if self.query.filter is None:
            return changed
        passes_now = passed(self.query.filter, events.now, self.types)
        if not self.is_filtered_by_attributes:
            return changed & passes_now
        passed_before = passed(self.query.filter, events.before, self.types)
        return (passed_before != passes_now) | (changed & passes_now)


class _ChangedEvents(NamedTuple):
    """Events (n,) with an attribute that differs: their times, they with the attributes ``before`` and ``now``, and of
    each attribute a mask (n,) of those of which it differs."""

    times: NDArray[np.int64]
    before: pa.RecordBatch
    now: pa.RecordBatch
    differs: Mapping[str, NDArray[np.bool_]]


def _changed_events(
    former: Stream,
    now: Stream,
    splits: Sequence[Split],
    joined: Sequence[_JoinedQuery],
    span: tuple[int, int],
) -> Iterator[_ChangedEvents]:
    """The events of a span [begin, end) with an attribute that differs between two streams."""
    attributes = attributes_in(now, {name for each in joined for name in each.attributes})
    keys, filtered = columns_read(now, attributes), sorted({name for each in joined for name in each.filtered})
    columns = list(dict.fromkeys((*keys, *columns_read(now, filtered))))
    # a batch without any column would not know how many rows it has
    needed = list(dict.fromkeys((now.time, *filtered)))
    # filters read texts as they are
    encoded = set(keys) - set(filtered)
    for split in splits:
        if not split.may_hold(*span):
            continue
        for batch in read_split(now, split, columns, encoded):
            times, events, _ = times_of(batch, now)
            is_inside = inside(times, [span])
            times, events = times[is_inside], events.filter(pa.array(is_inside))
            before, after = (with_attributes(stream, events, attributes) for stream in (former, now))
            of_name = {name: differs(before.column(name), after.column(name)) for name in attributes}
            changed = np.any(list(of_name.values()), axis=0)
            if changed.any():
                masks = {name: mask[changed] for name, mask in of_name.items()}
                before, after = (batch.select(needed).filter(pa.array(changed)) for batch in (before, after))
                yield _ChangedEvents(times[changed], before, after, masks)


class _Windows:
    """The instants in (begin, end] of the windows of some queries that hold one of the times that were added."""

    def __init__(self, queries: Iterable[ACQ], begin: int, end: int) -> None:
        self.begin, self.end = begin, end
        self._waiting: dict[str, list[NDArray[np.int64]]] = {query.name: [] for query in queries}
        self._windows = {query.name: query.window for query in queries}
        self._found = {name: np.zeros(0, dtype=np.int64) for name in self._waiting}
        self._count = 0

    def add(self, query: ACQ, times: NDArray[np.int64]) -> None:
        """Add the times (n,) of events of a query."""
        if query.kind.has_instants and len(times):
            self._waiting[query.name].append(times)
            self._count += len(times)
            if self._count > TIMES_AT_ONCE:
                self.instants()

    def instants(self) -> dict[str, NDArray[np.int64]]:
        """The instants (n,) of each query, ascending."""
        for name, waiting in self._waiting.items():
            if waiting:
                times, window = np.sort(np.concatenate(waiting)), self._windows[name]
                at = instants_near(window, times, (), self.begin, self.end)
                holds = np.zeros(len(at), dtype=bool)
                for part in window.each:
                    holds |= np.searchsorted(times, starts_of(part, at)) < np.searchsorted(times, ends_of(part, at))
                self._found[name] = np.union1d(self._found[name], at[holds])
                waiting.clear()
        self._count = 0
        return self._found


def instants_near(
    window: Window, times: NDArray[np.int64], spans: Iterable[tuple[int, int]], begin: int, end: int
) -> NDArray[np.int64]:
    """Instants in (begin, end], ascending, among which are all whose windows hold one of some times, ascending, or meet
    a span."""
    pieces: list[Any] = [instants_over(window, times, begin, end)]
    for low, high in spans:
        first, last = max(begin, low + window.ago), min(end, high - 1 + window.reach)
        pieces += [instants(window, first, last)] if first < last else []
    # a stream that refuses no events needs no kernels
    from spark_jobs.store.arrays.numbering import distinct_of

    return distinct_of(np.concatenate(pieces))[0]
