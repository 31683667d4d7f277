"""Plans that follow from what is registered: roll back, pause, resume, remove."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pyarrow.dataset as ds

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.plan.diff import diff
from optimizer.workload.instants import format_instant
from optimizer.workload.values import Workload
from spark_jobs.pipeline.planning import publication
from spark_jobs.pipeline.planning.plan_workload import replan
from spark_jobs.pipeline.planning.registration import LifecycleRequest, RegistrationRequest, check_fit, misfit
from spark_jobs.pipeline.planning.requested import Event
from spark_jobs.store.warehouse import plans, publish_log, registry
from spark_jobs.store.warehouse.plans import last_with
from spark_jobs.store.warehouse.registry import QueryEvent
from spark_jobs.store.warehouse.schemas import moment
from spark_jobs.store.warehouse.warehouse import Warehouse


def rolling_back(plan: SharingPlan, warehouse: Warehouse) -> RegistrationRequest:
    """Registration that brings an earlier plan into force again.

    It registers the plan's queries and no others. Queries that are paused stay paused. Raises HDL-113 if all of
    them are paused.
    """
    registered = registry.registered(registry.events(warehouse))
    resting = registry.paused(registered)
    running = tuple(query for query in plan.workload.queries if query.name not in resting)
    if not running:
        raise HeddleError("HDL-113", "every usable query is paused", "`heddle resume` some")
    names = {query.name for query in running}
    removed = tuple(
        name
        for name, registration in registered.items()
        if not registration.removed and name not in names and name not in resting
    )
    return RegistrationRequest(
        replace(plan.workload, queries=running), given=names, removed=removed, registered=registered
    )


def pause_or_resume(
    warehouse: Warehouse, event: Literal["paused", "resumed"], names: Sequence[str], reason: str = ""
) -> dict[str, Any]:
    """Take queries out of the plan in force until they are resumed, or put them back: at once, as a new plan version
    that moves no other query. Runs that began keep their plan.

    Returns ``version`` (in force afterwards), ``changed``, ``queries`` (whose state changed), ``already`` (those that
    were so before), ``diff`` (lines for people) and ``unanswered``: by those that are resumed, which times were
    published meanwhile, without them: `heddle backfill` makes up for that. Raises HDL-506 before the first plan,
    HDL-521 for an unknown name, HDL-522 if another plan was stored meanwhile, HDL-523 if no query would be left,
    HDL-524 if no plan knows the stream of a query.
    """
    return _change(warehouse, event, names, reason)


def remove_queries(
    warehouse: Warehouse, names: Sequence[str], reason: str = "", dry_run: bool = False
) -> dict[str, Any]:
    """Unregister queries, as :func:`pause_or_resume` pauses them; their published answers stay."""
    return _change(warehouse, "removed", names, reason, dry_run)


def _change(
    warehouse: Warehouse, event: Event, names: Sequence[str], reason: str, dry_run: bool = False
) -> dict[str, Any]:
    version = plans.current_version(warehouse) or 0
    base = plans.load_plan(warehouse, version)
    history = registry.events(warehouse)
    registered = registry.registered(history)
    names = list(dict.fromkeys(names))
    registry.check_registered(registered, names)
    change = LifecycleRequest(event, tuple(names), version)
    moved = [name for name in names if not change.is_done(registered[name])]
    # by what is registered, not by the plan in force: a change that was cut off between the two is completed
    running = [
        name for name, registration in registered.items() if not registration.removed and not registration.paused
    ]
    after = [*running, *moved] if event == "resumed" else [name for name in running if name not in moved]
    if not after:
        raise HeddleError(
            "HDL-523", "no query would be left to run", "to stop everything, pause the DAG or stop `heddle tick`"
        )
    planned = {query.name: query for query in base.workload.queries}
    earlier = last_with(warehouse, [name for name in after if name not in planned])
    streams = {stream.name: stream for plan in (*earlier, base) for stream in plan.workload.streams}
    rates = {name: rate for plan in earlier for name, rate in plan.rates}
    order = [query.name for plan in (*reversed(earlier), base) for query in plan.workload.queries]
    place = {name: number for number, name in reversed(list(enumerate(order)))}
    queries = [registered[name].query for name in sorted(after, key=lambda name: place.get(name, len(order)))]
    if unknown := [query for query in queries if query.stream not in streams]:
        hint = "give its file to `heddle run` again, or `heddle remove` it"
        raise HeddleError("HDL-524", f"no plan knows the stream {unknown[0].stream} of {unknown[0].name}", hint)
    check_fit({query.name: misfit(query, None, streams[query.stream]) for query in queries if query.name in moved})
    plan = replan(base, Workload(tuple(queries), tuple(streams.values())), {**rates, **dict(base.rates)})
    stored, changed = version, plan.fingerprint != base.fingerprint
    if not dry_run:
        request = RegistrationRequest(plan.workload, registered=registered)
        stored, changed = publication.publish_plan(
            warehouse, plan, f"heddle {_COMMANDS[event]}", reason, request, change
        )
    lines = diff(base, plan).lines()
    if event != "removed":
        # such a query stays registered
        query_lines = {f"{sign} query {name}" for sign in "+-" for name in names}
        lines = [f"{line} ({event})" if line in query_lines else line for line in lines]
    else:
        removals = [f"- query {name}" for name in moved]
        lines = [*removals, *(line for line in lines if line not in removals)]
    return {
        "version": stored,
        "changed": changed,
        "queries": moved,
        "already": [name for name in names if name not in moved],
        "diff": lines,
        "unanswered": _unanswered(warehouse, history, moved) if event == "resumed" else {},
    }


def _unanswered(
    warehouse: Warehouse, history: Sequence[QueryEvent], names: Sequence[str]
) -> dict[str, list[tuple[str, str]]]:
    """Intervals that were published since each paused query was paused, merged into as few spans as possible."""
    paused_at = {event.query: event.at for event in history if event.event == "paused" and event.query in names}
    spans = {at: _spans_published(warehouse, at) for at in set(paused_at.values())}
    return {name: spans[paused_at[name]] for name in names if spans[paused_at[name]]}


def _spans_published(warehouse: Warehouse, since: int) -> list[tuple[str, str]]:
    """The times that were published after a moment (microseconds), oldest first."""
    later = publish_log.PUBLISHED & (ds.field("at") > moment(since))
    spans: list[tuple[int, int]] = []
    for begin, end in sorted((row.begin, row.end) for row in publish_log.rows(warehouse, later, records=False)):
        if spans and begin <= spans[-1][1]:
            begin, end = spans[-1][0], max(end, spans.pop()[1])
        spans.append((begin, end))
    return [(format_instant(begin), format_instant(end)) for begin, end in spans]


_COMMANDS = {"paused": "pause", "resumed": "resume", "removed": "remove"}
