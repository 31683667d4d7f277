"""Blocked answers: which there are, and publishing those of one query by name and with a reason.

What is released is what was blocked: of one query, one interval, one revision. It is computed again from the same
events, and judged again for the record. If anything has changed since, it is refused, and `heddle repair` judges anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc
import pyarrow.dataset as ds

from optimizer.errors.diagnostics import HeddleError, meant
from optimizer.errors.redaction import redacted
from optimizer.workload.instants import format_instant
from spark_jobs.pipeline.run.values import ReleaseRequest
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.warehouse import Warehouse

_BLOCKED = pc.match_substring(ds.field("record"), '"blocked": {"')
"""The condition of records of runs that have blocked something."""


@dataclass(frozen=True)
class BlockedAnswers:
    """Answers of a query that are not published: of an interval (microseconds) and a revision, for the expectations
    ``texts``."""

    query: str
    begin: int
    end: int
    revision: int
    plan_version: int
    texts: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The fields for programs, with the interval as text."""
        about = {"query": self.query, "from": format_instant(self.begin), "to": format_instant(self.end)}
        return about | {"revision": self.revision, "expectations": list(self.texts)}


def blocked_answers(warehouse: Warehouse) -> list[BlockedAnswers]:
    """All answers that are blocked now, by interval and query."""
    # records are long: only those of the publications that matter are read
    rows = publish_log.rows(warehouse, publish_log.PUBLISHED & _BLOCKED)
    if not rows:
        return []
    in_force = {_key(row) for row in publish_log.standing(publish_log.publications(warehouse, records=False))}
    return [
        BlockedAnswers(name, row.begin, row.end, row.revision, row.plan_version, tuple(texts))
        for row in sorted(rows, key=lambda row: row.begin)
        if _key(row) in in_force
        for name, texts in sorted(row.record.blocked.items())
    ]


def _key(row: LogRow) -> tuple[int, int, int]:
    return row.begin, row.end, row.revision


def release_request(
    warehouse: Warehouse, query: str, reason: str, interval: tuple[int, int] | None = None, revision: int | None = None
) -> tuple[BlockedAnswers, ReleaseRequest]:
    """The blocked answers that are meant, and the request that publishes them.

    ``interval``: [begin, end) in microseconds; None: there is only one. Raises HDL-568.
    """
    if not reason.strip():
        raise HeddleError(
            "HDL-568", f"a release of {query} needs a reason", "--reason 'a holiday: few rides are right'"
        )
    every = blocked_answers(warehouse)
    own = [each for each in every if each.query == query]
    if not own:
        hint = meant(query, {each.query for each in every}, "blocked") or "nothing is blocked"
        raise HeddleError("HDL-568", f"no answers of {query} are blocked", hint)
    chosen = [each for each in own if interval in (None, (each.begin, each.end))]
    labels = ", ".join(publish_log.interval_label(each.begin, each.end) for each in own[:3])
    if len(chosen) != 1:
        message = (
            f"{query} is blocked in {labels}" if chosen else f"{query} is blocked in {labels}, not in this interval"
        )
        raise HeddleError("HDL-568", message, "name one of them with --interval FROM/TO")
    (blocked,) = chosen
    if revision is not None and revision != blocked.revision:
        message = f"revision {blocked.revision} of {query} is blocked, not {revision}"
        raise HeddleError("HDL-568", message, "look at what is blocked now: `heddle status`")
    return blocked, ReleaseRequest(query, redacted(reason.strip()), blocked.revision)
