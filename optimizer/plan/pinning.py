"""A plan for one run: windows of queries with a refresh bound at the instants of this run alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from optimizer.windows.alignment import instants
from optimizer.workload.values import ACQ

if TYPE_CHECKING:
    from optimizer.plan.definition import SharingPlan


def pinned(plan: SharingPlan, refreshes: Iterable[tuple[int, Sequence[str]]], begin: int, end: int) -> SharingPlan:
    """The plan as a run over (begin, end] answers it: queries with a refresh bound at these instants alone, and none
    after its lifetime."""
    at: dict[str, list[int]] = {query.name: [] for query in plan.workload.queries if query.window.at_most is not None}
    for instant, names in refreshes:
        for name in names:
            at[name].append(instant)

    def pinned_query(query: ACQ) -> ACQ:
        window = query.window
        if query.window.at_most is not None:
            window = replace(window, at=tuple(at[query.name]))
        if query.until is not None and query.until < end and query.kind.has_instants:
            window = replace(window, at=tuple(instants(window, begin, min(end, query.until)).tolist()))
        return query if window is query.window else replace(query, window=window)

    return _with_queries(plan, {query.name: pinned_query(query) for query in plan.workload.queries})


def since_origins(plan: SharingPlan, origins: Mapping[str, int]) -> SharingPlan:
    """The plan whose windows since the first event start at the origins of their streams (microseconds)."""
    return _with_queries(
        plan,
        {
            query.name: query.from_origin(origins[query.stream])
            if query.window.has_origin and query.stream in origins
            else query
            for query in plan.workload.queries
        },
    )


def origins_of(plan: SharingPlan) -> dict[str, int]:
    """Starts of the windows since the first event of a pinned plan, by stream (microseconds)."""
    starts = [(query.stream, part.since) for query in plan.workload.queries for part in query.window.each]
    return {stream: since for stream, since in starts if since is not None}


def _with_queries(plan: SharingPlan, changed: Mapping[str, ACQ]) -> SharingPlan:
    """The plan with other queries of the same names, whose edges are the same."""
    if all(changed[query.name] is query for query in plan.workload.queries):
        return plan
    trees = []
    for tree in plan.trees:
        same = replace(tree, queries=tuple(changed[query.name] for query in tree.queries))
        same.__dict__["edge_bounds"] = tree.edge_bounds
        trees.append(same)
    workload = replace(plan.workload, queries=tuple(changed.values()))
    return replace(plan, trees=tuple(trees), workload=workload)
