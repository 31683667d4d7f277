"""Due runs: the frontier of live runs, and the schedule in force."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.plan import instants_due
from optimizer.schedule.definition import Schedule
from optimizer.workload.instants import DAY
from spark_jobs.store.warehouse import plans, publish_log
from spark_jobs.store.warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class DueRun:
    """The next live run: over (begin, end] (microseconds) by a plan version; ``late`` if it comes too late for some of
    the refreshes in between."""

    plan_version: int
    begin: int
    end: int
    late: bool


def refreshed_at(warehouse: Warehouse, instant: int) -> dict[str, int]:
    """Instants of the latest answers of queries with a refresh bound, as of the run that ended at ``instant``; empty
    without such a run.
    """
    rows = publish_log.rows(warehouse, publish_log.PUBLISHED & publish_log.ends_at(instant))
    newest = max(rows, key=lambda row: row.table_version or 0, default=None)
    return dict(newest.record.refreshed) if newest is not None else {}


def frontier(warehouse: Warehouse) -> int | None:
    """Up to where live runs have published (microseconds); None before the first."""
    return publish_log.newest_live(warehouse)


@dataclass(frozen=True)
class ActiveSchedule:
    """The part of the plan in force that decides when runs are due.

    It has the plan's version, its schedules, and the delay after an instant (microseconds) that the latest late
    events are given.
    """

    version: int
    schedules: tuple[Schedule, ...]
    delay: int

    def due_after(self, instant: int) -> int | None:
        """Clock (microseconds) at which the first refresh after an instant is due.

        The refresh of the instant is overloaded if it is not done by then. None without queries with a refresh
        bound, or once their lifetimes are over.
        """
        following = instants_due.next_tick(self.schedules, instant) if self.schedules else None
        return None if following is None else following + self.delay


def in_force(warehouse: Warehouse, known: ActiveSchedule | None = None) -> ActiveSchedule | None:
    """Schedule of the plan in force; None before the first plan.

    ``known``: the schedule that was in force in this warehouse. It is read again only if there is a newer version.
    """
    version = plans.current_version(warehouse)
    if version is None:
        return None
    if known is not None and known.version == version:
        return known
    plan = plans.load_plan(warehouse, version)
    return ActiveSchedule(version, plan.schedules, max(stream.lateness for stream in plan.workload.streams))


def due(
    warehouse: Warehouse, clock: int, begin: int | None = None, known: ActiveSchedule | None = None
) -> DueRun | None:
    """The live run that is due at a clock (microseconds), or None.

    Live runs follow one another without a gap. Each begins where the previous one ended. It ends at the newest
    instant that the schedule asks for and whose late events have had their time. If there are several instants
    since, the run is late and replaces the runs of all of them. Without queries with a refresh bound (or once their
    lifetimes are over), every midnight is such an instant, and no run is late. The first run begins at ``begin``,
    or at the instant before its own. ``known``: as for :func:`in_force`.
    """
    active = in_force(warehouse, known)
    if active is None:
        return None
    complete, reached = clock - active.delay, frontier(warehouse)
    since = complete if reached is None else reached
    if not active.schedules or instants_due.next_tick(active.schedules, since) is None:
        end = complete - complete % DAY
        first = reached if reached is not None else end - DAY if begin is None else begin
        return DueRun(active.version, first, end, False) if end > first else None
    if reached is None:
        newest = instants_due.newest(active.schedules, complete)
        if newest is None:
            return None
        before = instants_due.newest(active.schedules, newest - 1) if begin is None else begin
        return DueRun(active.version, before, newest, False) if before is not None and before < newest else None
    if complete <= reached:
        return None
    ticks = instants_due.ticks(active.schedules, reached, complete, refreshed_at(warehouse, reached))
    return DueRun(active.version, reached, ticks[-1][0], len(ticks) > 1) if ticks else None


def next_due(warehouse: Warehouse, clock: int, known: ActiveSchedule | None = None) -> int | None:
    """Clock (microseconds) at which the next live run is due, if none is due now and nothing is published or planned
    in the meantime; None if no run will ever be due.
    """
    active = in_force(warehouse, known)
    if active is None:
        return None
    reached = frontier(warehouse)
    since = clock - active.delay if reached is None else reached
    if not active.schedules or instants_due.next_tick(active.schedules, since) is None:
        complete = clock - active.delay
        return complete - complete % DAY + DAY + active.delay
    at = instants_due.next_tick(active.schedules, max(since, clock - active.delay))
    return None if at is None else at + active.delay
