"""Warnings about streams without events in the interval of a run."""

from __future__ import annotations

from typing import Any

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY, format_instant
from spark_jobs.pipeline.run.values import PreparedRun, RunRequest, SourceListing
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.clusters import newest_of
from spark_jobs.streams.sources.decoding import has_events
from spark_jobs.streams.sources.ledger import FAR
from spark_jobs.streams.sources.splits import LAST


def silence(prepared: PreparedRun, name: str, events: int | None = None) -> list[dict[str, Any]]:
    """The warning that a stream has no events in its part of the interval, if it has none.

    ``events``: how many it has; None: not known, its source is read up to the first one. Answers prove nothing: their
    windows may begin before the interval.
    """
    begin, splits = prepared.request.begin, prepared.sources[name]
    # before its watermark a stream has what it will have; an interval that is all to come is told as a whole
    end = prepared.ends[name] if prepared.ends[name] > begin else prepared.request.end
    if not prepared.plan.workload.queries_of(name):
        return []
    stream = prepared.plan.workload.stream(name)
    if has_events(stream, splits, begin, end) if events is None else events:
        return []
    message = f"stream {name} has no events in [{format_instant(begin)}, {format_instant(end)})"
    extent = prepared.listing.arrivals[name].extent
    if extent is not None:
        message += f"; it has them from {format_instant(extent[0])} to {format_instant(extent[1] - 1)}"
    elif not splits:
        message += "; it has none at all"
    hint = "is the interval right (`--from`, `--to`), and does the stream still come in?"
    return [Diagnostic("HDL-413", message, hint, severity="warning").to_json()]


def check_interval_has_begun(
    warehouse: Warehouse, plan: SharingPlan, listing: SourceListing, request: RunRequest
) -> None:
    """Raise HDL-476 if an interval begins after the newest event of all streams that can be read.

    An interval that was published before is accepted: it may have lost its events. It is also accepted if no stream
    has an event: HDL-413 warns of that. If files do not state until when they have events, events are read up to
    the first one in the interval or after it.
    """
    newest: dict[str, int] = {}
    for name, splits in listing.sources.items():
        arrivals, stream = listing.arrivals[name], plan.workload.stream(name)
        known = arrivals.newest_event
        if known is not None and known >= request.begin:
            return
        unknown = [split for split in splits if split.end is None]
        if has_events(stream, unknown, request.begin, FAR):
            return
        read = newest_of(stream, unknown)
        if known is not None or read is not None:
            newest[name] = max(at for at in (known, read) if at is not None)
    before = publish_log.rows_of_interval(warehouse, request.begin, request.end)
    if not newest or any(row.event == "published" for row in before):
        return
    name = max(newest, key=newest.__getitem__)
    day = newest[name] - newest[name] % DAY
    message = (
        f"the interval begins at {format_instant(request.begin)}, but the newest event is of "
        f"{format_instant(newest[name])} (stream {name})"
    )
    example = f"e.g. --from {day_label(day)} --to {day_label(min(day + DAY, LAST - 1))}"
    hint = f"correct --from ({example}), or publish it as idle with --allow-empty; the queries are registered"
    raise HeddleError("HDL-476", message, hint)


def standing_silences(prepared: PreparedRun) -> list[dict[str, Any]]:
    """:func:`silence` of every stream whose answers stay unchanged, with the error of each that cannot be read."""
    warnings = []
    for name in prepared.sources:
        try:
            warnings += silence(prepared, name)
        except HeddleError as error:
            warnings.append(error.diagnostic.to_json())
    return warnings
