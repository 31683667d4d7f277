"""What was, again: backfills in few large runs, and intervals whose source has changed since they were published.

Neither has machinery of its own. A backfill is a sequence of ordinary runs; one that was cut off goes on where it was,
because a run whose content is published already changes nothing. A *repair* finds the intervals whose content is no
longer what was published (late events, removed files, windows that were withheld) and runs them again, as new
revisions: the partial aggregates of unchanged times are reused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from optimizer.errors import HeddleError
from optimizer.plan import SharingPlan
from optimizer.window import DAY, instants
from spark_jobs.planning import load_plan
from spark_jobs.run import Price, changed_since, price
from spark_jobs.tables import INSTANT, Warehouse

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
    warehouse: Warehouse, plan_version: int, begin: int, end: int, clock: int, every: int = 7 * DAY
) -> list[Price]:
    """What the runs of a backfill would be, in order; those that are published already cost nothing."""
    plan = load_plan(warehouse, plan_version)
    return [price(warehouse, plan, plan_version, first, last, clock) for first, last in chunks(begin, end, every)]


@dataclass(frozen=True)
class Outdated:
    """A published interval (microseconds) whose source has changed: of which ``revision``, the ``queries`` whose
    windows may be others now, and how many such ``windows`` there are."""

    begin: int
    end: int
    revision: int
    queries: tuple[str, ...]
    windows: int


def outdated(warehouse: Warehouse, clock: int) -> list[Outdated]:
    """The published intervals whose content is no longer what was published, by their begin.

    Intervals that a later publication covers are its business. An interval is judged by the plan that it was published
    by: a new plan makes nothing outdated.
    """
    plans: dict[int, SharingPlan] = {}
    found = []
    for row in standing(warehouse):
        plan = plans.setdefault(row["plan_version"], load_plan(warehouse, row["plan_version"]))
        if changed_since(warehouse, plan, row, clock):
            begin, end = _micros(row["interval_start"]), _micros(row["interval_end"])
            queries = plan.workload.queries
            windows = sum(
                len(instants(query.window, begin, end)) if query.window.at_most is None else 1
                for query in queries
                if not query.window.is_rows
            )
            found.append(Outdated(begin, end, row["revision"], tuple(query.name for query in queries), windows))
    return found


def standing(warehouse: Warehouse) -> list[dict[str, Any]]:
    """The log rows of the publications that stand, by their intervals: the newest of each, and none that a later one
    covers."""
    rows = [row for row in warehouse.rows("publish_log") if row["event"] == "published"]
    found: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: -row["table_version"]):
        if not _covered(row, found):
            found.append(row)
    return sorted(found, key=lambda row: row["interval_start"])


def _covered(row: dict[str, Any], later: Sequence[dict[str, Any]]) -> bool:
    return any(
        other["interval_start"] <= row["interval_start"] and other["interval_end"] >= row["interval_end"]
        for other in later
    )


def _micros(moment: Any) -> int:
    return int(pa.scalar(moment, INSTANT).value)
