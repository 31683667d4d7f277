"""Publishes a plan version, once, if nobody else changed what is registered meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.redaction import redacted
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
    """Store a plan as the next version and register its queries. If the current plan is the same, wherever its streams
    lie, it is kept.

    Parameters
    ----------
    warehouse, plan
        The warehouse, and the plan to store.
    created_by, reason
        Stored with the plan.
    request
        The queries to put and to remove, and those that were registered when it was made. None: the plan has the
        whole workload, and registered queries that it lacks are removed unless they are paused.
    change
        The queries that the plan pauses, resumes or removes.
    expected
        The version that has to be in force until then (0: none).
    noted
        Called with the version while nobody else can change anything.

    Returns the version and whether it is new.

    Raises HDL-522, and stores nothing, if another process has since registered, replaced, paused, resumed or
    removed queries that the plan does not change. Raises HDL-551 if the version in force is not the expected one
    and has a different plan.
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
        registered, news = registry.registered(events), list[QueryEvent]()
        differ = request.overtaken(registered) if request is not None else set()
        if change is not None:
            moved = [registered[name] for name in change.names if not change.is_done(registered[name])]
            news = [
                QueryEvent.of(registration.query, change.event, now, version, reason, registration.file)
                for registration in moved
            ]
            registered = registry.registered([*events, *news])
        resting = {name for name, registration in registered.items() if registration.paused}
        differ |= resting.intersection(query.name for query in plan.workload.queries)
        differ |= {query.name for query in (request.paused if request else ())} - resting
        if differ or (change is not None and change.plan_version != newest):
            names = f": {', '.join(sorted(differ)[:12])}" if differ else ""
            raise HeddleError(
                "HDL-522", f"queries were registered, changed or planned meanwhile{names}", "run it again"
            )
        # noted once, however often this is cut off and tried again: what is registered already is no change
        queries = (*plan.workload.queries, *(request.paused if request else ()))
        removals_and_files = (request.removed, request.files) if request else ()
        changes = registry.changes(registered, queries, *removals_and_files)
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
                "reason": redacted(reason),
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
