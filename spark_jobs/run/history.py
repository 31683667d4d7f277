"""What was, again: backfills in few large runs, and intervals whose source has changed since they were published.

Neither has machinery of its own. A backfill is a sequence of ordinary runs; one that was cut off goes on where it was,
because a run whose content is published already changes nothing. A *repair* finds the intervals whose content is no
longer what was published (late events, removed files, windows that were withheld) and runs them again, as new
revisions: the partial aggregates of unchanged times are reused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.workload.instants import DAY
from spark_jobs.costs.learned import Learned
from spark_jobs.run.estimate import RunEstimate, price
from spark_jobs.run.narrowing import changed_since
from spark_jobs.run.preparation import listed
from spark_jobs.run.values import RunRequest, SourceListing
from spark_jobs.settings import settings
from spark_jobs.sources.late_events import LateDataImpact
from spark_jobs.warehouse import publish_log
from spark_jobs.warehouse.plans import load_plan
from spark_jobs.warehouse.warehouse import Warehouse

MOST = 10_000
"""Runs that one backfill may have."""


def chunks(begin: int, end: int, every: int = 7 * DAY) -> Iterator[tuple[int, int]]:
    """[begin, end) (microseconds) in pieces of ``every``, cut at its multiples since the epoch, so that a backfill over
    another span of the same history meets the same pieces."""
    if end <= begin:
        raise HeddleError("HDL-504", "the interval is empty: --to must be after --from")
    if (end - begin) // every > MOST:
        raise HeddleError("HDL-504", f"the interval takes more than {MOST:,} runs", "give a longer --every")
    while begin < end:
        last = min(end, begin - begin % every + every)
        yield begin, last
        begin = last


def prices(
    warehouse: Warehouse,
    plan_version: int,
    begin: int,
    end: int,
    clock: int,
    every: int = 7 * DAY,
    checks: str | None = None,
) -> list[RunEstimate]:
    """What the runs of a backfill would be, in order; those that are published already cost nothing."""
    plan = load_plan(warehouse, plan_version)
    spans, listing = list(chunks(begin, end, every)), listed(warehouse, plan, clock)
    found: list[RunEstimate] = []
    level, learned = settings().checks if checks is None else checks, Learned.of(warehouse)
    for first, last in spans:
        request = RunRequest(plan_version, first, last, "price", clock, checks=level)
        is_first, starts = all(run.published for run in found), not any(run.in_spark for run in found)
        found.append(price(warehouse, learned, plan, request, listing, is_first, starts))
    return found


@dataclass(frozen=True)
class Outdated:
    """A published interval (microseconds) whose source has changed, of which ``revision``, and what has changed."""

    begin: int
    end: int
    revision: int
    radius: LateDataImpact


def outdated(warehouse: Warehouse, clock: int, since: int | None = None) -> list[Outdated]:
    """The published intervals whose content is no longer what was published, by their begin.

    Intervals that a later publication covers are its business. An interval is judged by the plan that it was published
    by: a new plan makes nothing outdated. ``since`` (microseconds): only intervals that end later.
    """
    plans: dict[int, tuple[SharingPlan, SourceListing]] = {}
    found = []
    for row in publish_log.standing(publish_log.publications(warehouse)):
        if since is not None and row.end <= since:
            continue
        if row.plan_version not in plans:
            plan = load_plan(warehouse, row.plan_version)
            plans[row.plan_version] = plan, listed(warehouse, plan, clock)
        radius = changed_since(warehouse, *plans[row.plan_version], row, clock)
        if radius is not None:
            found.append(Outdated(row.begin, row.end, row.revision, radius))
    return found
