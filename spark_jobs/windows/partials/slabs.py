"""Fill requests cut in time, so that old events are lifted for those alone that need them.

Requests that are lifted together are lifted over all the time that one of them needs, with the states of all. After a
metric was added, a year of history needs that metric, and the newest day everything: cut between them, the year is
lifted for the metric alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from optimizer.workload.instants import DAY, FAR_APART
from spark_jobs.windows.partials.fill_request import FillRequest

MOST_SLABS = 4
"""Maximum number of slabs; each has separate cells."""

WORTH = 0.8
"""Maximum share of the work that may remain for a cut to be made."""

Slab = list[FillRequest]


def slabs_of(requests: Sequence[FillRequest]) -> list[Slab]:
    """Requests in slabs one after the other in time, those that reach over a cut in several.

    Cuts are at midnights UTC, where every synopsis has an edge, and where nothing is requested for long. Work is
    measured in time by distinct states, filters and group columns: O(n^2) for n requests.
    """
    slabs = _apart(requests)
    while len(slabs) < MOST_SLABS:
        cuts = [(saved, number, at) for number, slab in enumerate(slabs) for saved, at in _best_cut(slab)]
        if not cuts:
            break
        _, number, at = max(cuts)
        slabs[number : number + 1] = _cut(slabs[number], at)
    return slabs


def _apart(requests: Sequence[FillRequest]) -> list[Slab]:
    """The requests cut where none is of more than :data:`FAR_APART`, at the longest of such gaps: what lies in between
    is not read."""
    ordered = sorted(requests, key=lambda request: request.begin)
    gaps, reached = list[tuple[int, int]](), ordered[0].end if ordered else 0
    for request in ordered:
        if request.begin - reached > FAR_APART:
            gaps.append((request.begin - reached, request.begin))
        reached = max(reached, request.end)
    cuts = sorted(at for _, at in sorted(gaps)[-(MOST_SLABS - 1) :])
    slabs: list[Slab] = [[] for _ in range(len(cuts) + 1)]
    for request in requests:
        slabs[bisect_right(cuts, request.begin)].append(request)
    return slabs


def span_of_slab(slab: Slab) -> tuple[int, int]:
    """The least span [begin, end) that holds those of all its requests."""
    return min(request.begin for request in slab), max(request.end for request in slab)


def _best_cut(slab: Slab) -> list[tuple[int, int]]:
    """The work that the best cut saves, and where it is; nothing if none is worth it."""
    if len(slab) < 2:
        return []
    begin, end = span_of_slab(slab)
    midnights = {instant - instant % DAY for request in slab for instant in (request.begin, request.end + DAY - 1)}
    slab_work = _work(slab)
    costs = [(sum(map(_work, _cut(slab, at))), at) for at in sorted(midnights) if begin < at < end]
    return [(slab_work - cost, at) for cost, at in sorted(costs)[:1] if cost <= WORTH * slab_work]


def _cut(slab: Slab, at: int) -> list[Slab]:
    before = [replace(request, end=min(request.end, at)) for request in slab if request.begin < at]
    after = [replace(request, begin=max(request.begin, at)) for request in slab if request.end > at]
    return [before, after]


def _work(slab: Slab) -> int:
    begin, end = span_of_slab(slab)
    synopses = [request.synopsis for request in slab]
    parts = {part for synopsis in synopses for part in (*synopsis.states, *synopsis.predicates, *synopsis.group_by)}
    return (end - begin) * len(parts)
