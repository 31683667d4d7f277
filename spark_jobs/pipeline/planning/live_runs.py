"""What is due: the frontier of live runs, and the schedule in force."""

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
    """When queries with a refresh bound were last answered, as the run that ended at an instant left it; empty if none
    did."""
    rows = publish_log.rows(warehouse, publish_log.PUBLISHED & publish_log.ends_at(instant))
    newest = max(rows, key=lambda row: row.table_version or 0, default=None)
    return dict(newest.record.refreshed) if newest is not None else {}


def frontier(warehouse: Warehouse) -> int | None:
    """Up to where live runs have published (microseconds); None before the first."""
    return publish_log.newest_live(warehouse)


@dataclass(frozen=True)
class ActiveSchedule:
    """Of the plan in force what decides when runs are due: its version, its schedules, and how long after an instant
    (microseconds) the latest late events have had their time."""

    version: int
    schedules: tuple[Schedule, ...]
    delay: int

    def due_after(self, instant: int) -> int | None:
        """When the first refresh after an instant is due (microseconds): that of the instant is overloaded if it is not
        done by then. None without queries with a refresh bound, or once their lifetimes are over."""
        following = instants_due.next_tick(self.schedules, instant) if self.schedules else None
        return None if following is None else following + self.delay


def in_force(warehouse: Warehouse, known: ActiveSchedule | None = None) -> ActiveSchedule | None:
    """When runs are due by the plan in force; None before the first plan. ``known``: what was in force of this
    warehouse, which is read again only if there is a newer version."""
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
    """The live run that is due at a clock (microseconds), or None if nothing is.

    Live runs follow one another without a gap: each begins where the one before it ended, and ends at the newest
    instant that the schedule asks for and that late events have had their time for. If there are several since, the
    run is late: it stands for all of them. Without queries with a refresh bound (or once their lifetimes are over),
    every midnight is such an instant, and no run is late. The first run begins at ``begin``, or at the instant before
    its own. ``known``: as of :func:`in_force`.
    """
    found = in_force(warehouse, known)
    if found is None:
        return None
    complete, reached = clock - found.delay, frontier(warehouse)
    since = complete if reached is None else reached
    if not found.schedules or instants_due.next_tick(found.schedules, since) is None:
        end = complete - complete % DAY
        first = reached if reached is not None else end - DAY if begin is None else begin
        return DueRun(found.version, first, end, False) if end > first else None
    if reached is None:
        newest = instants_due.newest(found.schedules, complete)
        if newest is None:
            return None
        before = instants_due.newest(found.schedules, newest - 1) if begin is None else begin
        return DueRun(found.version, before, newest, False) if before is not None and before < newest else None
    if complete <= reached:
        return None
    wanted = instants_due.ticks(found.schedules, reached, complete, refreshed_at(warehouse, reached))
    return DueRun(found.version, reached, wanted[-1][0], len(wanted) > 1) if wanted else None


def next_due(warehouse: Warehouse, clock: int, known: ActiveSchedule | None = None) -> int | None:
    """When the next live run is due (microseconds), if nothing is at a clock and nobody publishes or plans meanwhile;
    None if nothing ever will be."""
    found = in_force(warehouse, known)
    if found is None:
        return None
    reached = frontier(warehouse)
    since = clock - found.delay if reached is None else reached
    if not found.schedules or instants_due.next_tick(found.schedules, since) is None:
        complete = clock - found.delay
        return complete - complete % DAY + DAY + found.delay
    at = instants_due.next_tick(found.schedules, max(since, clock - found.delay))
    return None if at is None else at + found.delay
