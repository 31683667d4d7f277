"""Schedule queries with a refresh bound (``SLIDE AT MOST``): the schedules of a sharing plan.

Queries that are answered from one synopsis are a *group* of Golab et al., those of one bound a *sub-group*. A run
that answers several of them scans the synopsis once, as far back as the longest window among them. It pays for its
session and its publication once, whatever it answers. Schedules are therefore always costed in CPU seconds, under
either cost model of the plan. Each step of a stream (``step`` in streams.yaml) is an update of its synopses:
streams of one step have one schedule.

A schedule is a function of data time only, so retries, backfills and live runs of an interval answer the same
instants. Only a run that is too late for some of them (*overload*) departs from it: at its last instant it answers
all queries that were due within it, and those that its scan covers at no cost (late-pending sharing).

References
----------
Golab, Bijay, Ozsu, "Multi-Query Optimization of Sliding Window Aggregates by Schedule Synchronization", 2006:
sections 3 (bounds), 4.2 (groups), 4.4 (overload).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from optimizer.schedule.definition import Schedule
from optimizer.schedule.groups import Group, SubGroup
from optimizer.schedule.planner import joint_cost, plan_schedule
from optimizer.search.cost import Coefficients, CostModel
from optimizer.synopses.synopsis import Synopsis, synopses_of
from optimizer.windows.edge_counting import edge_bounds
from optimizer.workload.values import ACQ, SECOND, Workload

if TYPE_CHECKING:
    from optimizer.plan.definition import ExecutionTree


def is_bound(query: ACQ) -> bool:
    """Has the query a refresh bound?"""
    return query.window.at_most is not None


def schedules_of(
    trees: Iterable[ExecutionTree],
    workload: Workload,
    rates: Mapping[str, Fraction],
    model: CostModel,
    previous: Sequence[Schedule] = (),
    tolerance: Fraction = Fraction(0),
) -> tuple[Schedule, ...]:
    """The cheapest schedules of the queries with a refresh bound, by their steps; empty if there is no such query.

    ``rates``: tuples per second by stream. A schedule of ``previous`` that has the same queries in the same groups
    is kept while it costs at most ``1 + tolerance`` times the cheapest, so that fluctuating rates do not move
    refreshes.
    """
    coefficients = model.coefficients if model.name == "measured" else Coefficients()
    groups_by_step: dict[int, list[Group]] = {}
    for tree in trees:
        stream = workload.stream(tree.stream)
        for synopsis, queries in synopses_of(stream, tree.queries, tree.together, tree.late).items():
            bound = [query for query in queries if is_bound(query)]
            if bound:
                groups = model.groups(tree.stream)
                density = rates[tree.stream] if synopsis.kind.matches_patterns else _edge_rate(synopsis, tree) * groups
                subgroups = _subgroups(bound, stream.step, density / SECOND, groups, coefficients)
                groups_by_step.setdefault(stream.step, []).append(Group(f"{tree.id} {bound[0].name}", subgroups))
    return tuple(
        _kept(plan_schedule(step, groups, coefficients.per_run), previous, tolerance)
        for step, groups in sorted(groups_by_step.items())
    )


def _edge_rate(synopsis: Synopsis, tree: ExecutionTree) -> Fraction:
    """Edges of a synopsis per second, which are the tree's or some of them."""
    if synopsis.edges == tree.fragments.edges:
        return tree.edge_rate
    return edge_bounds(synopsis.edges)[1] * SECOND / tree.tick


def _subgroups(
    queries: Sequence[ACQ], step: int, density: Fraction, groups: Fraction, coefficients: Coefficients
) -> tuple[SubGroup, ...]:
    """Sub-groups of queries by their bounds; ``density``: partial rows a microsecond, ``groups``: answers a query."""
    periods: dict[int, list[ACQ]] = {}
    for query in queries:
        periods.setdefault(query.window.period // step, []).append(query)
    subgroups = []
    for period, members in sorted(periods.items()):
        rows = [density * query.window.range for query in members]
        answers = len(members) * groups
        post = sum(rows) * coefficients.per_row_passed + answers * coefficients.per_answer
        scan = max(rows) * coefficients.per_row_read
        names = tuple(query.name for query in members)
        ends = [query.until for query in members if query.until is not None]
        until = max(ends) // step if len(ends) == len(members) else None
        subgroups.append(SubGroup(period, scan, names, post + len(members) * coefficients.per_refresh, until=until))
    return tuple(subgroups)


def _kept(cheapest: Schedule, previous: Sequence[Schedule], tolerance: Fraction) -> Schedule:
    def decided(schedule: Schedule) -> object:
        return schedule.step, [[(each.period, each.queries) for each in group.subgroups] for group in schedule.groups]

    for earlier in previous:
        if decided(earlier) == decided(cheapest):
            cost = joint_cost(cheapest.groups, earlier.cycles, cheapest.fixed)
            if cost <= cheapest.cost * (1 + tolerance):
                return replace(cheapest, cycles=earlier.cycles, cost=cost)
    return cheapest
