"""The schedules of a plan in words, for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from optimizer.errors.diagnostics import count
from optimizer.plan.definition import decision
from optimizer.schedule.definition import Schedule
from optimizer.workload.instants import DAY, duration_text

COMPANIONS_SHOWN = 6
"""Companions that an explanation names."""


@dataclass(frozen=True)
class Rhythm:
    """Refreshes of one query by a schedule (microseconds).

    ``bound``: as requested. ``longest`` and ``average``: time between two answers. ``along``: names of the queries
    of its group that are answered whenever it is.
    """

    query: str
    bound: int
    longest: int
    average: Fraction
    along: tuple[str, ...]


def rhythms(schedule: Schedule) -> Iterator[Rhythm]:
    """Yield the rhythms of all queries of a schedule."""
    for group, cycle in zip(schedule.groups, schedule.cycles, strict=True):
        for number, each in enumerate(group.subgroups):
            runs = [numbers for _, numbers in cycle.runs if number in numbers]
            if cycle.periods:
                own = cycle.periods[number]
                share, joint = Fraction(1, own), [own % other == 0 for other in cycle.periods]
            else:
                share = Fraction(len(runs), cycle.length)
                joint = [all(other in numbers for numbers in runs) for other in range(len(group.subgroups))]
            along = [
                name for other, always in zip(group.subgroups, joint, strict=True) if always for name in other.queries
            ]
            longest, step = cycle.longest_gap(number) * schedule.step, schedule.step
            for query in each.queries:
                companions = tuple(name for name in along if name != query)
                yield Rhythm(query, each.period * step, longest, step / share, companions)


def explained(schedules: Iterable[Schedule], query: str) -> tuple[str, ...]:
    """Explain when a query is refreshed, why, and how much that saves, in lines; empty for a plain SLIDE."""
    for schedule in schedules:
        rhythm = next((candidate for candidate in rhythms(schedule) if candidate.query == query), None)
        if rhythm is None:
            continue
        every = duration_text(rhythm.longest)
        if rhythm.average != rhythm.longest:
            every = f"{duration_text(round(rhythm.average))} on average, {every} at most"
        bound_text = f"{duration_text(rhythm.bound)} was asked as the most"
        lines = [f"refreshed every {every} ({bound_text})"]
        if rhythm.along:
            more = f", … {len(rhythm.along) - COMPANIONS_SHOWN} more" if len(rhythm.along) > COMPANIONS_SHOWN else ""
            shown = ", ".join(rhythm.along[:COMPANIONS_SHOWN]) + more
            lines.append(f"  each time together with {shown}: one run, one scan of their synopsis")
        if rhythm.longest < rhythm.bound:
            lines.append("  sooner than asked: it rides along with runs that others need, and needs none of its own")
        return (*lines, f"  {summary(schedule)}")
    return ()


def summary(schedule: Schedule) -> str:
    """Cost of a schedule, and how much it saves, in a line."""
    day = DAY // schedule.step
    queries = sum(len(each.queries) for group in schedule.groups for each in group.subgroups)
    verb = "costs" if queries == 1 else "cost"
    cost_text = f"{count(queries, 'query')} with a refresh bound {verb} {float(schedule.cost * day):.4g} CPU-s a day"
    against = [
        _beside(float(schedule.costs[name] / schedule.cost), words)
        for name, words in (("conservative", "each bound as its own rhythm"), ("no-sharing", "a run for each"))
        if schedule.cost and name in schedule.costs
    ]
    return ": ".join([cost_text, ", ".join(against)]) + (", proven the cheapest" if schedule.proven else "")


def _beside(ratio: float, words: str) -> str:
    times = f"{ratio:.3g}"
    return f"as much as {words}" if times == "1" else f"{times} times less than {words}"


def changes(old: Sequence[Schedule], new: Sequence[Schedule]) -> tuple[str, ...]:
    """Queries whose refresh rhythm changes, in lines."""
    before, after = (
        {rhythm.query: rhythm for schedule in schedules for rhythm in rhythms(schedule)} for schedules in (old, new)
    )
    moved = [
        f"{name} every {duration_text(round(rhythm.average))} (was {duration_text(round(before[name].average))})"
        for name, rhythm in after.items()
        if name in before and rhythm.average != before[name].average
    ]
    if not moved and [decision(schedule) for schedule in old] != [decision(schedule) for schedule in new]:
        return ("refreshes at other instants",)
    return tuple(moved)
