"""Stored partial aggregates that refreshed features can be answered from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from deltalake import DeltaTable

from optimizer.plan.definition import SharingPlan
from optimizer.synopses.synopsis import Synopsis, synopses_of
from optimizer.windows.alignment import day_label
from optimizer.workload.values import ACQ, Stream
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.replacements import disjoint
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.features.answering import Span
from spark_jobs.windows.partials import stored_coverage
from spark_jobs.windows.partials.stored_marks import StoredMarks


def planned_synopsis(plan: SharingPlan, query: ACQ, stream: Stream) -> Synopsis | None:
    """The synopsis that a plan answers a query from; None if the buckets of its rows do not follow from the query's
    groups. ``stream``: the query's."""
    for tree in plan.trees:
        if any(member.name == query.name for member in tree.queries):
            for synopsis, members in synopses_of(stream, tree.queries, tree.together, tree.late).items():
                if any(member.name == query.name for member in members):
                    names = {name for name, _ in query.group_by}
                    is_spread = bool(synopsis.bucket_by) or not query.group_by
                    return synopsis if is_spread and set(synopsis.bucket_by) <= names else None
    return None


class CurrentRows(NamedTuple):
    """Spans [begin, end) of which all rows of a synopsis are stored for the files as they are now, ascending, the
    ``files`` that have them, and about how many ``rows`` there are."""

    spans: tuple[Span, ...]
    files: tuple[str, ...]
    rows: int


def stored_spans(
    warehouse: Warehouse, synopsis: Synopsis, splits: Sequence[Split], begin: int, end: int, current: DeltaTable
) -> CurrentRows:
    """The stored rows of a synopsis in [begin, end), in the table of partials as of ``current``."""
    pieces = StoredMarks(warehouse).under(current, [synopsis.fingerprint], [(begin, end)])
    is_stored = stored_coverage.stored_for(synopsis, list(splits))
    own = pieces.get(synopsis.fingerprint, [])
    spans = tuple(disjoint([(first, last) for first, last, name in own if is_stored(name, first, last)]))
    if not spans:
        return CurrentRows((), (), 0)
    first, last = spans[0][0], spans[-1][1]
    files = [
        file
        for file in warehouse.files("partials", day_label(first), day_label(last - 1), current)
        if file["max.fragment_start"] >= first and file["min.fragment_start"] < last and file["max.bucket"] >= 0
    ]
    paths = tuple(str(warehouse.place / "partials" / file["path"]) for file in files)
    return CurrentRows(spans, paths, sum(file["num_records"] or 0 for file in files))


def remaining(spans: Sequence[Span], begin: int, end: int, reach: int) -> Span | None:
    """The time [begin, end) of the events of windows in it that lie in none of some spans, if no window is longer than
    ``reach``; None if all do."""
    for first, last in spans:
        if first <= begin and end <= last:
            return None
        if first <= begin < last:
            # a window that begins here and is not inside ends behind the span
            begin = max(begin, last - reach)
        if first < end <= last:
            end = min(end, first + reach)
    return begin, end
