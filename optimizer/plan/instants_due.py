"""Instants at which queries with a refresh bound are due: those of a schedule, the next, the newest, the late ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optimizer.schedule.definition import Schedule

Ticks = list[tuple[int, tuple[str, ...]]]
"""Instants (microseconds), ascending, each with the queries that are refreshed then."""


def ticks(schedules: Sequence[Schedule], begin: int, end: int, refreshed: Mapping[str, int] | None = None) -> Ticks:
    """The refreshes in (begin, end] of all schedules.

    ``refreshed``: when queries were last answered, see :meth:`optimizer.schedule.definition.Schedule.ticks`.
    """
    queries_by_instant: dict[int, tuple[str, ...]] = {}
    for schedule in schedules:
        for instant, names in schedule.ticks(begin, end, refreshed or {}):
            queries_by_instant[instant] = queries_by_instant.get(instant, ()) + names
    return sorted(queries_by_instant.items())


def next_tick(schedules: Sequence[Schedule], after: int) -> int | None:
    """The first instant after another at which something is refreshed; None: all lifetimes are over."""
    instants = (schedule.next_tick(after) for schedule in schedules)
    return min((instant for instant in instants if instant is not None), default=None)


def newest(schedules: Sequence[Schedule], instant: int) -> int | None:
    """The last instant up to this one at which something is refreshed; None: all lifetimes had been over before."""
    longest = max(schedule.step * group.period for schedule in schedules for group in schedule.groups)
    refreshes = ticks(schedules, instant - longest, instant)
    return refreshes[-1][0] if refreshes else None


def late(schedules: Sequence[Schedule], begin: int, end: int, refreshed: Mapping[str, int]) -> Ticks:
    """Refreshes that a late run over (begin, end] answers, all at its last instant.

    These are the queries that were due within the interval or would be late soon, and others that cost it little
    more (late-pending sharing, Algorithm 3, with free riders).
    """
    queries_by_instant: dict[int, tuple[str, ...]] = {}
    for schedule in schedules:
        instant = end - end % schedule.step
        names = schedule.overdue(instant, refreshed)
        if names and instant > begin:
            queries_by_instant[instant] = queries_by_instant.get(instant, ()) + names
    return sorted(queries_by_instant.items())
