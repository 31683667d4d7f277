"""Duration for which the fragments of long windows are kept below levels, also in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from optimizer.plan.definition import SharingPlan
from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import progressions
from optimizer.windows.periods import LONG
from optimizer.workload.instants import DAY, duration_text
from optimizer.workload.values import ACQ


class KeptFine(NamedTuple):
    """Duration (microseconds) for which the fragments of a stream are kept: as declared, or for ``raised_by``, a query
    whose windows begin or end further back than is declared."""

    duration: int
    raised_by: str | None = None


def is_long(synopsis: Synopsis, queries: Iterable[ACQ], long: int = LONG) -> bool:
    """Return whether a synopsis is worth levels for its queries: some have windows of ``long`` or more."""
    return synopsis.kind.has_fragments and any(query.window.reach >= long for query in queries)


def kept_fine(plan: SharingPlan, stream: str, long: int = LONG) -> KeptFine | None:
    """Duration for which the fragments of a stream are kept; None: all are, for good.

    The next windows begin and end as far back as the latest ones. Where that is less than ``long`` (microseconds), the
    fragments of a synopsis with levels are kept for it: else each run would lift a day again.
    """
    declared = plan.workload.stream(stream).keep_fine
    if declared is None:
        return None
    span = KeptFine(declared)
    for synopsis, queries in plan.synopses(stream):
        for query in queries if is_long(synopsis, queries, long) else ():
            ends = [end for window in query.window.each for end in (window.ago, window.reach)]
            longest = max((end for end in ends if end < long), default=0)
            if longest > span.duration:
                span = KeptFine(longest, query.name)
    return span


def described_fine(plan: SharingPlan, name: str) -> tuple[str, ...]:
    """Describe in words which fragments of a query are dropped; empty if none are."""
    query = plan.workload.query(name)
    keeping = kept_fine(plan, query.stream)
    has_levels = any(query in queries and is_long(part, queries) for part, queries in plan.synopses(query.stream))
    if keeping is None or not has_levels:
        return ()
    duration = duration_text(keeping.duration)
    raised = "" if keeping.raised_by is None else f", raised for the windows of {keeping.raised_by}"
    lines = [f"`heddle maintain` drops its fragments after {duration}{raised}; days, months and years stay"]
    if any(number % DAY for edge in progressions([query.window]) for number in edge):
        lines.append("its windows begin inside of days: each day that they begin in is lifted again from the events")
    return tuple(lines)
