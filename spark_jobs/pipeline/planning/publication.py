"""Publishes a plan version, once, if nobody else changed what is registered meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.plan.stored_rows import to_rows
from spark_jobs.pipeline.planning.registration import LifecycleRequest, RegistrationRequest
from spark_jobs.store.warehouse import plans, registry
from spark_jobs.store.warehouse.places import note_places, relocated_as
from spark_jobs.store.warehouse.registry import QueryEvent
from spark_jobs.store.warehouse.schemas import moment
from spark_jobs.store.warehouse.warehouse import Warehouse


def publish_plan(
    warehouse: Warehouse,
    plan: SharingPlan,
    created_by: str = "",
    reason: str = "",
    request: RegistrationRequest | None = None,
    change: LifecycleRequest | None = None,
    expected: int | None = None,
    noted: Callable[[int], None] = lambda version: None,
) -> tuple[int, bool]:
    """Store a plan as the next version and register its queries; keep the current one if it says the same, wherever its
    streams lie.

    ``request``: what it puts and removes, and what was registered when it was thought out (None: it has the whole
    workload; what it lacks is removed unless it is paused). ``change``: what the plan pauses, resumes or removes.
    ``expected``: the version that is to be in force until then (0: none). ``noted`` is given the version while nobody
    else can change anything.
    Returns the version and whether it is new. Raises HDL-522, and stores nothing, if somebody has registered, replaced,
    paused, resumed or removed queries since that the plan leaves alone; HDL-551 if another version than the expected
    one is in force that says something else.
    """
    with warehouse.lease() as token:
        since, events_since = warehouse.version("sharing_plans"), warehouse.version("workload_queries")
        newest = plans.current_version(warehouse)
        events = registry.events(warehouse)
        places = {stream.name: stream for stream in plan.workload.streams}
        stored = None if newest is None else relocated_as(plans.load_plan(warehouse, newest), places)
        same = stored is not None and stored.fingerprint == plan.fingerprint
        if expected is not None and not same and (newest or 0) != expected:
            raise overtaken(newest, expected)
        version = newest if newest is not None and same else (newest or 0) + 1
        # a clock that was turned back does not turn history round
        now = max([time.time_ns() // 1000, *(event.at + 1 for event in events[-1:])])
        held, news = registry.registered(events), list[QueryEvent]()
        differ = request.overtaken(held) if request is not None else set()
        if change is not None:
            moved = [held[name] for name in change.names if not change.is_done(held[name])]
            news = [QueryEvent.of(one.query, change.event, now, version, reason, one.file) for one in moved]
            held = registry.registered([*events, *news])
        resting = {name for name, one in held.items() if one.paused}
        differ |= resting.intersection(query.name for query in plan.workload.queries)
        differ |= {query.name for query in (request.paused if request else ())} - resting
        if differ or (change is not None and change.plan_version != newest):
            which = f": {', '.join(sorted(differ)[:12])}" if differ else ""
            raise HeddleError(
                "HDL-522", f"queries were registered, changed or planned meanwhile{which}", "run it again"
            )
        # noted once, however often this is cut off and tried again: what is registered already is no change
        put = (*plan.workload.queries, *(request.paused if request else ()))
        named = (request.removed, request.files) if request else ()
        changes = registry.changes(held, put, *named)
        news += [QueryEvent.of(query, event, now, version, reason, file) for query, event, file in changes]
        rows = [replace(event, file=registry.portable_file(warehouse, event.file)).to_row() for event in news]
        warehouse.append("workload_queries", rows, token, since=events_since)
        note_places(warehouse, plan)
        if same:
            noted(version)
            return version, False
        rows = [
            {
                "plan_version": version,
                "created_at": moment(now),
                "created_by": created_by,
                "reason": reason,
                "fingerprint": plan.fingerprint,
                "stream": row["stream"],
                "tree": row["tree_id"],
                "query": row["query"],
                "row": json.dumps(row),
            }
            for row in to_rows(plan)
        ]
        warehouse.append("sharing_plans", rows, token, ("sharing_plans", version), since)
        noted(version)
    return version, True


def overtaken(newest: int | None, expected: int) -> HeddleError:
    """Another plan is in force than when something was decided."""
    message = f"the plan in force is version {newest or 'none'}, not {expected or 'none'} as when this was decided"
    hint = "nothing was applied: make a new dry run and look at its difference"
    return HeddleError("HDL-551", message, hint)
