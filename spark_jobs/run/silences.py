"""Streams without events in the interval of a run: what is told of them."""

from __future__ import annotations

from typing import Any

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.workload.instants import format_instant
from spark_jobs.run.values import PreparedRun
from spark_jobs.sources.ledger import has_events


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


def standing_silences(prepared: PreparedRun) -> list[dict[str, Any]]:
    """:func:`silence` of every stream whose answers stand as they are; what cannot be read is told as such."""
    warnings = []
    for name in prepared.sources:
        try:
            warnings += silence(prepared, name)
        except HeddleError as error:
            warnings.append(error.diagnostic.to_json())
    return warnings
