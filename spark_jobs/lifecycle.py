"""What is registered, since when, by whom, and what of it is paused: the events of ``workload_queries``.

A query is registered by a plan that has it, replaced when it means something else or is somebody else's, removed when
its file no longer has it. A *paused* query stays registered and is in no plan until it is resumed; its published
answers stay. Nothing is ever taken out of the table: the state of a query is what its events add up to.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal

from optimizer.errors import HeddleError
from optimizer.query import ACQ, from_json, to_json
from spark_jobs.tables import Warehouse, micros

State = Literal["running", "paused", "expired", "removed"]


@dataclass(frozen=True)
class Registered:
    """A query as its events say: the newest one (``row``), ``since`` when it is registered (microseconds; since it was
    removed last, if ever), and whether it is ``paused``."""

    row: Mapping[str, Any]
    since: int
    paused: bool

    @property
    def removed(self) -> bool:
        return bool(self.row["event"] == "removed")

    @cached_property
    def query(self) -> ACQ:
        found: ACQ = from_json(json.loads(self.row["definition"]))
        return found

    def state(self, clock: int) -> State:
        """At a clock (microseconds). Once its lifetime is over a query is expired, paused or not."""
        if self.removed:
            return "removed"
        if self.query.until is not None and self.query.until < clock:
            return "expired"
        return "paused" if self.paused else "running"


def events(warehouse: Warehouse) -> list[dict[str, Any]]:
    """All events, oldest first."""
    return sorted(warehouse.rows("workload_queries"), key=lambda row: row["at"])


def registered(events: Iterable[Mapping[str, Any]]) -> dict[str, Registered]:
    """All queries that were ever registered, by their names, as events, oldest first, add up to."""
    found: dict[str, Registered] = {}
    for row in events:
        was = found.get(row["query"])
        paused = row["event"] == "paused" or (row["event"] == "replaced" and was is not None and was.paused)
        since = was.since if was is not None and not was.removed else micros(row["at"])
        found[row["query"]] = Registered(row, since, paused)
    return found


def paused(held: Mapping[str, Registered]) -> dict[str, ACQ]:
    return {name: one.query for name, one in held.items() if one.paused}


def beside(warehouse: Warehouse, plan_version: int, planned: Collection[str]) -> list[str]:
    """The queries that a plan does not have because they are paused, or were when it was made: a run by it leaves their
    answers alone. ``planned``: the queries that it has."""
    now = events(warehouse)
    then = [row for row in now if (row.get("plan_version") or 0) <= plan_version]
    names = {name for each in (now, then) for name, one in registered(each).items() if one.paused}
    return sorted(names - set(planned))


def check_registered(held: Mapping[str, Registered], names: Sequence[str]) -> None:
    """Raises HDL-521, with the nearest name, for a name that is not registered."""
    live = sorted(name for name, one in held.items() if not one.removed)
    for name in names:
        if name not in live:
            close = get_close_matches(name, live, 1)
            hint = f"did you mean {close[0]}?" if close else "registered: " + ", ".join(live[:12])
            raise HeddleError("HDL-521", f"there is no registered query {name}", hint if live else "")


def changes(
    held: Mapping[str, Registered], planned: Sequence[ACQ], paused: Sequence[ACQ] | None
) -> list[tuple[ACQ, str]]:
    """The events of a plan: of the queries that it has, and of the ``paused`` ones of its workload, which it has not
    (None: all that are paused stay as they are)."""
    live = {name: one for name, one in held.items() if not one.removed}
    if paused is None:
        for name in [name for name, one in live.items() if one.paused]:
            del live[name]
    found = []
    for query in (*planned, *(paused or ())):
        was = live.pop(query.name, None)
        if was is None:
            found.append((query, "registered"))
        elif (was.row["fingerprint"], was.row["owner"]) != (query.fingerprint, query.owner):
            found.append((query, "replaced"))
    return found + [(one.query, "removed") for one in live.values()]


def event_row(query: ACQ, event: str, at: Any, plan_version: int, reason: str) -> dict[str, Any]:
    return {
        "query": query.name,
        "fingerprint": query.fingerprint,
        "owner": query.owner,
        "text": query.text,
        "definition": json.dumps(to_json(query)),
        "event": event,
        "at": at,
        "plan_version": plan_version,
        "reason": reason,
    }
