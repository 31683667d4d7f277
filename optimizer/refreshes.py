"""When queries with a refresh bound (``SLIDE AT MOST``) are answered: the schedules of a sharing plan.

Queries that are answered from one synopsis are a *group* of Golab et al., those of one bound a *sub-group*: a run that
answers several of them scans the synopsis once, as far back as the longest window among them, and whatever it answers
it pays for its session and its publication once. What is scheduled is therefore always costed in CPU seconds, under
either cost model of the plan. Each step of a stream (``step`` in streams.yaml) is an update of its synopses: streams
of one step have one schedule.

A schedule is a function of data time alone, so retries, backfills and live runs of an interval answer the same
instants. Only a run that came too late for some of them (*overload*) departs from it: it answers at its last instant
alone what was to be answered within it, and what that scan has for nothing (late-pending sharing).

References
----------
Golab, Bijay, Ozsu, "Multi-Query Optimization of Sliding Window Aggregates by Schedule Synchronization", 2006:
sections 3 (bounds), 4.2 (groups), 4.4 (overload).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from optimizer.cost import Coefficients, CostModel
from optimizer.parser import duration_text
from optimizer.query import ACQ, SECOND, Workload
from optimizer.schedule import Group, Schedule, SubGroup, joint_cost, plan_schedule
from optimizer.synopsis import synopses_of
from optimizer.window import DAY, instants

if TYPE_CHECKING:
    from optimizer.plan import ExecutionTree, SharingPlan

SHOWN = 6
"""Companions that an explanation names."""


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
    """The cheapest schedules of the queries with a refresh bound, by their steps; none if there is no such query.

    ``rates``: tuples per second by stream. A schedule of ``previous`` that has the same queries in the same groups is
    kept while it costs at most ``1 + tolerance`` times the cheapest, so that rates that wander do not move refreshes.
    """
    coefficients = model.coefficients if model.name == "measured" else Coefficients()
    found: dict[int, list[Group]] = {}
    for tree in trees:
        stream = workload.stream(tree.stream)
        for synopsis, queries in synopses_of(stream, tree.queries, tree.together).items():
            bound = [query for query in queries if is_bound(query)]
            if bound:
                density = rates[tree.stream] if synopsis.sequenced else tree.edge_rate * model.groups(tree.stream)
                groups = model.groups(tree.stream)
                subgroups = _subgroups(bound, stream.step, density / SECOND, groups, coefficients)
                found.setdefault(stream.step, []).append(Group(f"{tree.id} {bound[0].name}", subgroups))
    return tuple(
        _kept(plan_schedule(step, groups, coefficients.per_run), previous, tolerance)
        for step, groups in sorted(found.items())
    )


def _subgroups(
    queries: Sequence[ACQ], step: int, density: Fraction, groups: Fraction, coefficients: Coefficients
) -> tuple[SubGroup, ...]:
    """By their bounds; ``density``: partial rows a microsecond, ``groups``: answers a query."""
    periods: dict[int, list[ACQ]] = {}
    for query in queries:
        periods.setdefault(query.window.period // step, []).append(query)
    found = []
    for period, members in sorted(periods.items()):
        rows = [density * query.window.range for query in members]
        answers = len(members) * groups
        post = sum(rows) * coefficients.per_row_passed + answers * coefficients.per_answer
        scan = max(rows) * coefficients.per_row_read
        names = tuple(query.name for query in members)
        ends = [query.until for query in members if query.until is not None]
        until = max(ends) // step if len(ends) == len(members) else None
        found.append(SubGroup(period, scan, names, post + len(members) * coefficients.per_refresh, until=until))
    return tuple(found)


def _kept(cheapest: Schedule, previous: Sequence[Schedule], tolerance: Fraction) -> Schedule:
    def decided(schedule: Schedule) -> object:
        return schedule.step, [[(each.period, each.queries) for each in group.subgroups] for group in schedule.groups]

    for earlier in previous:
        if decided(earlier) == decided(cheapest):
            cost = joint_cost(cheapest.groups, earlier.cycles, cheapest.fixed)
            if cost <= cheapest.cost * (1 + tolerance):
                return replace(cheapest, cycles=earlier.cycles, cost=cost)
    return cheapest


def decision(schedule: Schedule) -> object:
    """What of a schedule is decided, as JSON data: neither costs nor rates, which wander."""
    told = schedule.to_json()
    groups = [[(each.period, each.queries) for each in group.subgroups] for group in schedule.groups]
    return [told["step"], groups, told["cycles"]]


# ------------------------------------------------------------------------------------------------ ticks
Ticks = list[tuple[int, tuple[str, ...]]]
"""Instants (microseconds), ascending, each with the queries that are refreshed then."""


def ticks(schedules: Sequence[Schedule], begin: int, end: int, refreshed: Mapping[str, int] | None = None) -> Ticks:
    """The refreshes in (begin, end] of all schedules.

    ``refreshed``: when queries were last answered, see :meth:`optimizer.schedule.Schedule.ticks`.
    """
    found: dict[int, tuple[str, ...]] = {}
    for schedule in schedules:
        for instant, names in schedule.ticks(begin, end, refreshed or {}):
            found[instant] = found.get(instant, ()) + names
    return sorted(found.items())


def next_tick(schedules: Sequence[Schedule], after: int) -> int | None:
    """The first instant after another at which something is refreshed; None: all lifetimes are over."""
    found = (schedule.next_tick(after) for schedule in schedules)
    return min((instant for instant in found if instant is not None), default=None)


def newest(schedules: Sequence[Schedule], instant: int) -> int | None:
    """The last instant up to this one at which something is refreshed; None: all lifetimes had been over before."""
    longest = max(schedule.step * group.period for schedule in schedules for group in schedule.groups)
    found = ticks(schedules, instant - longest, instant)
    return found[-1][0] if found else None


def late(schedules: Sequence[Schedule], begin: int, end: int, refreshed: Mapping[str, int]) -> Ticks:
    """What a late run over (begin, end] answers, at its last instant alone: all that was to be refreshed within it, or
    would be late soon, and whatever else costs it little more (late-pending sharing, Algorithm 3, with free riders)."""
    found: dict[int, tuple[str, ...]] = {}
    for schedule in schedules:
        instant = end - end % schedule.step
        names = schedule.overdue(instant, refreshed)
        if names and instant > begin:
            found[instant] = found.get(instant, ()) + names
    return sorted(found.items())


# -------------------------------------------------------------------------------------------- explaining
@dataclass(frozen=True)
class Rhythm:
    """How a schedule refreshes one query (microseconds): ``bound`` as asked, ``longest`` and ``average`` time between
    two answers. ``along``: names of the queries of its group that are answered whenever it is."""

    query: str
    bound: int
    longest: int
    average: Fraction
    along: tuple[str, ...]


def rhythms(schedule: Schedule) -> Iterator[Rhythm]:
    """Of all queries of a schedule."""
    for group, cycle in zip(schedule.groups, schedule.cycles, strict=True):
        for number, each in enumerate(group.subgroups):
            runs = [numbers for _, numbers in cycle.runs if number in numbers]
            if cycle.periods:
                own = cycle.periods[number]
                share, beside = Fraction(1, own), [own % other == 0 for other in cycle.periods]
            else:
                share = Fraction(len(runs), cycle.length)
                beside = [all(other in numbers for numbers in runs) for other in range(len(group.subgroups))]
            along = [
                name for other, always in zip(group.subgroups, beside, strict=True) if always for name in other.queries
            ]
            longest, step = cycle.longest_gap(number) * schedule.step, schedule.step
            for query in each.queries:
                rest = tuple(name for name in along if name != query)
                yield Rhythm(query, each.period * step, longest, step / share, rest)


def explained(schedules: Iterable[Schedule], query: str) -> tuple[str, ...]:
    """Why a query is refreshed when it is, and what that saves, in lines; none for a query with a plain SLIDE."""
    for schedule in schedules:
        found = next((one for one in rhythms(schedule) if one.query == query), None)
        if found is None:
            continue
        every = duration_text(found.longest)
        if found.average != found.longest:
            every = f"{duration_text(round(found.average))} on average, {every} at most"
        asked = f"{duration_text(found.bound)} was asked as the most"
        lines = [f"refreshed every {every} ({asked})"]
        if found.along:
            more = f", … {len(found.along) - SHOWN} more" if len(found.along) > SHOWN else ""
            shown = ", ".join(found.along[:SHOWN]) + more
            lines.append(f"  each time together with {shown}: one run, one scan of their synopsis")
        if found.longest < found.bound:
            lines.append("  sooner than asked: it rides along with runs that others need, and needs none of its own")
        return (*lines, f"  {summary(schedule)}")
    return ()


def summary(schedule: Schedule) -> str:
    """What a schedule costs, and what that saves, in a line."""
    day = DAY // schedule.step
    queries = sum(len(each.queries) for group in schedule.groups for each in group.subgroups)
    told = f"{queries} queries with a refresh bound cost {float(schedule.cost * day):.4g} CPU-s a day"
    against = [
        f"{float(schedule.costs[name] / schedule.cost):.3g} times less than {words}"
        for name, words in (("conservative", "each bound as its own rhythm"), ("no-sharing", "a run for each"))
        if schedule.cost and name in schedule.costs
    ]
    return ": ".join([told, ", ".join(against)]) + (", proven the cheapest" if schedule.proven else "")


def changes(old: Sequence[Schedule], new: Sequence[Schedule]) -> tuple[str, ...]:
    """What is refreshed in another rhythm, in lines."""
    before, after = ({one.query: one for schedule in held for one in rhythms(schedule)} for held in (old, new))
    moved = [
        f"{name} every {duration_text(round(one.average))} (was {duration_text(round(before[name].average))})"
        for name, one in after.items()
        if name in before and one.average != before[name].average
    ]
    if not moved and [decision(one) for one in old] != [decision(one) for one in new]:
        return ("refreshes at other instants",)
    return tuple(moved)


# ---------------------------------------------------------------------------------------------- running
def pinned(plan: SharingPlan, refreshes: Iterable[tuple[int, Sequence[str]]], begin: int, end: int) -> SharingPlan:
    """The plan as a run over (begin, end] answers it: queries with a refresh bound at these instants alone, and none
    after its lifetime."""
    at: dict[str, list[int]] = {query.name: [] for query in plan.workload.queries if is_bound(query)}
    for instant, names in refreshes:
        for name in names:
            at[name].append(instant)

    def asked(query: ACQ) -> ACQ:
        window = query.window
        if is_bound(query):
            window = replace(window, at=tuple(at[query.name]))
        if query.until is not None and query.until < end and not window.is_rows:
            window = replace(window, at=tuple(instants(window, begin, min(end, query.until)).tolist()))
        return query if window is query.window else replace(query, window=window)

    changed = {query.name: asked(query) for query in plan.workload.queries}
    if all(changed[query.name] is query for query in plan.workload.queries):
        return plan
    trees = []
    for tree in plan.trees:
        same = replace(tree, queries=tuple(changed[query.name] for query in tree.queries))
        same.__dict__["edge_bounds"] = tree.edge_bounds
        trees.append(same)
    workload = replace(plan.workload, queries=tuple(changed.values()))
    return replace(plan, trees=tuple(trees), workload=workload)
