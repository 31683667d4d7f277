"""List everything that was ever registered: every query with its state, and the history of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from optimizer.workload.instants import format_instant
from spark_jobs.store.warehouse.plans import newest_versions
from spark_jobs.store.warehouse.registry import Registered, check_registered, events, registered
from spark_jobs.store.warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class QueryListing:
    """A query that was registered, as it is at a ``clock`` (microseconds), and the newest plan that has it."""

    name: str
    registered: Registered
    clock: int
    plan_version: int | None

    @property
    def state(self) -> str:
        return self.registered.state(self.clock)

    def to_json(self) -> dict[str, Any]:
        """The fields as ``heddle queries --json`` prints them."""
        query = self.registered.query
        return {
            "query": self.name,
            "owner": query.owner,
            "state": self.state,
            "paused": self.registered.paused,
            "stream": query.stream,
            "registered": format_instant(self.registered.since),
            "until": format_instant(query.until) if query.until is not None else None,
            "fingerprint": query.fingerprint,
            "plan_version": self.plan_version,
            **({"asset": True} if query.asset else {}),
            "text": query.text,
        }


def list_queries(warehouse: Warehouse, clock: int) -> list[QueryListing]:
    """Every query that was ever registered, by name."""
    known = registered(events(warehouse))
    versions = newest_versions(warehouse)
    return [QueryListing(name, query, clock, versions.get(name)) for name, query in sorted(known.items())]


def history_of(warehouse: Warehouse, name: str) -> list[dict[str, Any]]:
    """All that happened to a query, oldest first. Raises HDL-521 if it was never registered."""
    happened = events(warehouse)
    known = registered(happened)
    if name not in known:
        check_registered(known, [name])
    return [
        {
            "at": format_instant(event.at),
            "event": event.event,
            "owner": event.owner,
            "fingerprint": event.fingerprint,
            "plan_version": event.plan_version,
            "reason": event.reason,
            "text": event.text,
        }
        for event in happened
        if event.query == name
    ]
