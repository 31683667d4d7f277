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
            more = f", … {len(found.along) - COMPANIONS_SHOWN} more" if len(found.along) > COMPANIONS_SHOWN else ""
            shown = ", ".join(found.along[:COMPANIONS_SHOWN]) + more
            lines.append(f"  each time together with {shown}: one run, one scan of their synopsis")
        if found.longest < found.bound:
            lines.append("  sooner than asked: it rides along with runs that others need, and needs none of its own")
        return (*lines, f"  {summary(schedule)}")
    return ()


def summary(schedule: Schedule) -> str:
    """What a schedule costs, and what that saves, in a line."""
    day = DAY // schedule.step
    queries = sum(len(each.queries) for group in schedule.groups for each in group.subgroups)
    verb = "costs" if queries == 1 else "cost"
    told = f"{count(queries, 'query')} with a refresh bound {verb} {float(schedule.cost * day):.4g} CPU-s a day"
    against = [
        _beside(float(schedule.costs[name] / schedule.cost), words)
        for name, words in (("conservative", "each bound as its own rhythm"), ("no-sharing", "a run for each"))
        if schedule.cost and name in schedule.costs
    ]
    return ": ".join([told, ", ".join(against)]) + (", proven the cheapest" if schedule.proven else "")


def _beside(ratio: float, words: str) -> str:
    times = f"{ratio:.3g}"
    return f"as much as {words}" if times == "1" else f"{times} times less than {words}"


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
