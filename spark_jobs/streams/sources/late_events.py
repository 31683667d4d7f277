"""The blast radius of late data: which windows of which queries changed since they were published."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.plan.definition import SharingPlan
from optimizer.windows.alignment import Fragments, ends_of, starts_of
from optimizer.workload.attributes import attributes_in
from optimizer.workload.values import ACQ, Stream
from spark_jobs.streams.sources.changed_attributes import NO_VERSIONS, Versions, changed_instants, instants_near
from spark_jobs.streams.sources.decoding import read_split, times_of
from spark_jobs.streams.sources.expressions import passed
from spark_jobs.streams.sources.ledger import Arrival, Ledger
from spark_jobs.streams.sources.replacements import FAR, disjoint, met
from spark_jobs.streams.sources.splits import Split

_COUNTED = ("files", "rows", "fragments", "queries", "windows", "by_feed")


@dataclass(frozen=True)
class LateDataImpact:
    """Effect of changed files on a published interval.

    - ``files``: files that came or went since, ``by_feed`` of which with a change data feed that shows the rows that
      differ;
    - ``rows``: the late events, and the instants of such rows, in the history of its windows;
    - ``fragments``: the fragments that they fall into;
    - ``queries``: the queries with the number of their ``windows`` that contain such an event which passes the query's
      filter, or may contain any event, are due now and were not due then;
    - ``declared``: the streams whose declaration has changed since; all windows of their queries count;
    - ``dimensions``: the dimensions that have changed since, whose changed rows are those of such an event.

    Files that went cannot be read: their possible events count by time only, and so do rows shown by a feed. Windows of
    rows are not counted (their queries are).
    """

    files: int
    rows: int
    fragments: int
    queries: tuple[str, ...]
    windows: int
    by_feed: int = 0
    declared: tuple[str, ...] = ()
    dimensions: tuple[str, ...] = ()

    def joined(self, other: LateDataImpact | None) -> LateDataImpact:
        """Both, which are of other queries."""
        if other is None:
            return self
        counts = {name: getattr(self, name) + getattr(other, name) for name in _COUNTED}
        return LateDataImpact(
            **counts,
            declared=(*self.declared, *other.declared),
            dimensions=tuple(dict.fromkeys((*self.dimensions, *other.dimensions))),
        )


class ChangedWindows(NamedTuple):
    """Changes of a published interval: the ``radius``, and the ``instants`` (ascending) of each affected query whose
    windows may have changed; None: any of them.
    """

    radius: LateDataImpact
    instants: dict[str, NDArray[np.int64] | None]


def change(
    plan: SharingPlan,
    sources: Mapping[str, Sequence[Split]],
    arrivals: Mapping[str, Ledger],
    begin: int,
    ends: Mapping[str, int],
    since: Mapping[str, int],
    due: Mapping[str, int],
    fragments: Mapping[str, Sequence[Fragments]],
    versions: Mapping[str, Versions] = NO_VERSIONS,
) -> ChangedWindows:
    """Find the windows ending after ``begin`` that are affected by files that came or went since an earlier ledger.

    By stream: ``arrivals`` its ledger, ``since`` the newest entry at that time, ``ends`` up to where its windows are
    answered, ``due`` up to where they were then (if different), ``fragments`` the fragments of its synopses,
    ``versions`` its dimensions before and now. The result is certain: other windows contain the same events, because
    their files are the same. Where an event may make another one a repetition (``event_id``) any window may change, and
    with windows of rows and sessions.
    """
    files = rows = cut = windows = by_feed = 0
    touched: dict[str, NDArray[np.int64] | None] = {}
    names: list[str] = []
    for name, splits in sources.items():
        stream, end = plan.workload.stream(name), ends[name]
        queries = plan.workload.queries_of(name)
        first = min((begin - query.window.reach for query in queries if not query.kind.reads_from_first), default=begin)
        moved = arrivals[name].since(since.get(name, 0))
        met_files = [arrival for arrival in moved if arrival.meets(first, end)]
        replaced = arrivals[name].replacements(stream).since(since.get(name, 0))
        explained = {(file.identity, each.noted) for each in replaced for file in (*each.gone, *each.came)}
        news = {
            arrival.identity: arrival
            for arrival in met_files
            if not _is_explained(arrival, explained, since.get(name, 0))
        }
        removed = [arrival for arrival in news.values() if not arrival.is_here]
        changed = disjoint(span for each in replaced for span in _within(each.changed, first, end))
        spans = [span for split in splits for span in split.spans]
        possible = [(-FAR if low is None else low, FAR if high is None else high) for low, high in spans]
        files += len(met_files)
        by_feed += len(met_files) - len(news)
        columns = sorted({column for query in queries if query.filter is not None for column in query.columns()})
        batches = [
            batch
            for split in splits
            if split.identity in news and split.may_hold(first, end)
            for batch in read_split(stream, split, columns)
        ]
        times, events = _late(stream, batches, first, end)
        rows += len(times) + len(changed)
        at = np.concatenate([times, np.array([low for low, _ in changed], dtype=np.int64)])
        for edges in fragments.get(name, ()):
            cut += len(np.unique(edges.starts(at)))
        # the events of a new file are late, whatever their attributes were
        former_splits = [split for split in splits if split.identity not in news]
        joined = changed_instants(stream, versions.get(name, ()), former_splits, queries, (first, begin, end))
        for query in queries:
            is_open = joined is None or (versions.get(name) and not query.kind.has_instants)
            if is_open and attributes_in(stream, query.columns()):
                touched[query.name] = None
                names.append(query.name)
                continue
            if not query.kind.has_instants:
                touched[query.name] = None
                names += [query.name] * (len(times) > 0 or bool(removed) or bool(changed))
                continue
            query_times = times
            if query.filter is not None and len(times):
                query_times = times[passed(query.filter, events, stream.types)]
            hit = _windows(query, query_times, removed, changed, begin, end, due.get(name, end), possible)
            if joined and query.name in joined:
                hit = np.union1d(hit, joined[query.name])
            windows += len(hit)
            names += [query.name] * bool(len(hit))
            if stream.event_id is not None and moved:
                touched[query.name] = None
            elif len(hit):
                touched[query.name] = hit
    return ChangedWindows(LateDataImpact(files, rows, cut, tuple(names), windows, by_feed), touched)


def _is_explained(arrival: Arrival, explained: Collection[tuple[str, int]], since: int) -> bool:
    """Return whether feeds explain every move of a file since a moment. ``explained``: files that they explain, and
    when.
    """
    moves = [move.noted for move in arrival.moves if move.noted > since]
    return arrival.noted in moves and all((arrival.identity, noted) in explained for noted in moves)


def _within(spans: Iterable[tuple[int, int]], begin: int, end: int) -> list[tuple[int, int]]:
    return [(max(low, begin), min(high, end)) for low, high in spans if low < end and high > begin]


def _late(stream: Stream, batches: Iterable[pa.RecordBatch], begin: int, end: int) -> tuple[Any, Any]:
    """The times of the events in [begin, end), ascending, and the events in that order."""
    batches_of_span = []
    for batch in batches:
        times, batch, _ = times_of(batch, stream)
        batches_of_span.append(batch.filter(pa.array((times >= begin) & (times < end))))
    if not batches_of_span:
        return np.zeros(0, dtype=np.int64), None
    table = pa.Table.from_batches(batches_of_span).combine_chunks()
    table = table.take(pc.sort_indices(table, [(stream.time, "ascending")]))
    batch = table.combine_chunks().to_batches()[0] if len(table) else batches_of_span[0]
    return times_of(batch, stream)[0], batch


def _windows(
    query: ACQ,
    times: Any,
    gone: Sequence[Arrival],
    changed: Sequence[tuple[int, int]],
    begin: int,
    end: int,
    due: int,
    possible: Iterable[tuple[int, int]],
) -> NDArray[np.int64]:
    """Instants in (begin, end] whose windows contain one of the times (ascending), may have contained removed or
    ``changed`` events (spans, ascending and disjoint), or end after ``due`` and may contain an event: events are
    ``possible`` in these spans.
    """
    window = query.window
    spans = [
        (-FAR if arrival.begin is None else arrival.begin, FAR if arrival.end is None else arrival.end)
        for arrival in gone
    ]
    at = instants_near(window, times, disjoint([*spans, *changed]), begin, end)
    if due < end:
        at = np.union1d(at, instants_near(window, times[:0], disjoint(possible), max(begin, due), end))
    hit = at > due
    for part in window.each:
        starts, ends = starts_of(part, at), ends_of(part, at)
        hit |= (np.searchsorted(times, starts) < np.searchsorted(times, ends)) | met(changed, starts, ends)
        for low, high in spans:
            hit |= (ends > low) & (starts < high)
    return at[hit]
