"""Registered queries, with their dates, owners and pauses: the events of ``workload_queries``.

A query is *registered* by a plan that has it. It is *replaced* if it gets another meaning, owner or table,
other expectations, or becomes an asset or is one no more. It is *moved* when it comes from another file. It is
*removed* when a user requests it: by its name, or by declaring that some files are the complete workload. A *paused*
query stays registered and is in no plan until it is resumed; its published answers stay. Nothing is ever deleted from
the table: the state of a query is the sum of its events.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from optimizer.errors.diagnostics import HeddleError, meant
from optimizer.errors.redaction import redacted
from optimizer.workload.expectations import Expectation
from optimizer.workload.values import ACQ, AnswerTable, from_json, to_json
from spark_jobs.store.warehouse.schemas import micros, moment
from spark_jobs.store.warehouse.warehouse import Warehouse

State = Literal["running", "paused", "expired", "removed"]


Event = Literal["registered", "replaced", "moved", "paused", "resumed", "removed"]


@dataclass(frozen=True)
class QueryEvent:
    """An event of a query at a moment (``at``, microseconds), with its plan version and reason. ``definition``: the
    query as JSON of :func:`optimizer.workload.values.to_json`; ``file``: its file; None: not known.
    """

    query: str
    fingerprint: str
    owner: str
    text: str
    definition: str
    event: Event
    at: int
    plan_version: int | None
    reason: str
    file: str | None = None

    @classmethod
    def of(
        cls, query: ACQ, event: Event, at: int, plan_version: int, reason: str, file: str | None = None
    ) -> QueryEvent:
        """Create an event from a query."""
        definition = json.dumps(to_json(query))
        return cls(
            query.name, query.fingerprint, query.owner, query.text, definition, event, at, plan_version, reason, file
        )

    def to_row(self) -> dict[str, Any]:
        """Return the row as the table stores it."""
        return {**vars(self), "at": moment(self.at), "reason": redacted(self.reason)}

    @property
    def asset(self) -> bool:
        """Return whether the query's new answers are announced as a separate asset."""
        # most are none: their definitions are not read
        return '"asset"' in self.definition and bool(json.loads(self.definition).get("asset", False))

    @property
    def expect(self) -> tuple[Expectation, ...]:
        """Expectations that the query's answers are checked for before they are published."""
        # most have none
        return from_json(json.loads(self.definition).get("expect", [])) if '"expect"' in self.definition else ()


@dataclass(frozen=True)
class Registered:
    """State of a query from its events: the newest one (``last``), ``since`` when it is registered (microseconds;
    since it was last removed, if ever), and whether it is ``paused``.
    """

    last: QueryEvent
    since: int
    paused: bool

    @property
    def removed(self) -> bool:
        return self.last.event == "removed"

    @property
    def file(self) -> str | None:
        """The workload file that it came from last; None if that is not known."""
        return self.last.file

    @property
    def standing(self) -> tuple[object, ...] | None:
        """State that must be unchanged since a plan was computed that leaves the query as it is; None: not
        registered.
        """
        return None if self.removed else (*self.cosmetics, self.last.fingerprint, self.paused)

    @property
    def cosmetics(self) -> tuple[object, ...]:
        """The registered properties other than its meaning."""
        return self.last.owner, self.table, self.last.asset, self.last.expect

    @property
    def table(self) -> AnswerTable | None:
        """The separate table that it requests."""
        # most ask for none, and are not read for that
        return self.query.table if AnswerTable.__name__ in self.last.definition else None

    @cached_property
    def query(self) -> ACQ:
        """The query, as it was registered last."""
        query: ACQ = from_json(json.loads(self.last.definition))
        return query

    def state(self, clock: int) -> State:
        """At a clock (microseconds). Once its lifetime is over a query is expired, paused or not."""
        if self.removed:
            return "removed"
        if self.query.until is not None and self.query.until < clock:
            return "expired"
        return "paused" if self.paused else "running"


def events(warehouse: Warehouse) -> list[QueryEvent]:
    """All events, oldest first."""
    stored = sorted(warehouse.rows("workload_queries"), key=lambda row: row["at"])
    texts = ("owner", "text", "definition", "reason")
    later = {"plan_version": None, "file": None}  # columns that tables of earlier versions lack
    return [
        QueryEvent(
            **later
            | row
            | {"at": micros(row["at"]), "file": located_file(warehouse, row.get("file"))}
            | {name: row.get(name) or "" for name in texts}
        )
        for row in stored
    ]


MOST_UP = 1
"""Folders above the one that holds the warehouse, up to which a file is of the same project."""


def portable_file(warehouse: Warehouse, file: str | None) -> str | None:
    """A workload file as it is stored: relative to the folder that holds the warehouse where both lie in one project,
    so that a project which is copied or moved finds its files where they are now."""
    if file is None or not warehouse.place.is_local:
        return file
    relative = os.path.relpath(file, warehouse.root.parent)
    above = Path(relative).parts.count(os.pardir)
    is_near = above <= MOST_UP and above < len(warehouse.root.parent.parts) - 1
    return relative if is_near else file


def located_file(warehouse: Warehouse, file: str | None) -> str | None:
    """The absolute path of a workload file as it is stored."""
    if file is None or not warehouse.place.is_local:
        return file
    return os.path.normpath(warehouse.root.parent / file)


def live_names(warehouse: Warehouse) -> dict[str, str]:
    """The registered queries that were not removed, by name, with their owners; of the newest events alone, unread."""
    stored = warehouse.stored_rows("workload_queries", ["query", "owner", "event", "at"]).sort_by("at")
    newest = {row["query"]: row for row in stored.to_pylist()}
    return {name: row["owner"] or "" for name, row in sorted(newest.items()) if row["event"] != "removed"}


def registered(events: Iterable[QueryEvent]) -> dict[str, Registered]:
    """All queries that were ever registered, by their names, as events, oldest first, add up to."""
    queries: dict[str, Registered] = {}
    for event in events:
        was = queries.get(event.query)
        stays = event.event in ("replaced", "moved") and was is not None and was.paused
        paused = event.event == "paused" or stays
        since = was.since if was is not None and not was.removed else event.at
        queries[event.query] = Registered(event, since, paused)
    return queries


def live(warehouse: Warehouse) -> dict[str, Registered]:
    """The queries that are registered and were not removed, by name."""
    return {name: state for name, state in registered(events(warehouse)).items() if not state.removed}


def paused(registered: Mapping[str, Registered]) -> dict[str, ACQ]:
    """The paused queries by name."""
    return {name: state.query for name, state in registered.items() if state.paused}


def assets(events: Iterable[QueryEvent], at: int | None = None) -> set[str]:
    """The names of the registered queries whose new answers are announced as assets; ``at``: as it was at a moment
    (microseconds)."""
    known = registered(event for event in events if at is None or event.at <= at)
    return {name for name, state in known.items() if not state.removed and state.last.asset}


def check_registered(registered: Mapping[str, Registered], names: Sequence[str]) -> None:
    """Raises HDL-521, with the nearest name, for a name that is not registered."""
    live = sorted(name for name, state in registered.items() if not state.removed)
    for name in names:
        if name not in live:
            raise HeddleError("HDL-521", f"there is no registered query {name}", meant(name, live, "registered"))


def _cosmetics(query: ACQ) -> tuple[object, ...]:
    """Properties of a query that :attr:`Registered.cosmetics` has."""
    return query.owner, query.table, query.asset, query.expect


def changes(
    registered: Mapping[str, Registered],
    queries: Sequence[ACQ],
    removed: Collection[str] | None = None,
    files: Mapping[str, str] | None = None,
) -> list[tuple[ACQ, Event, str | None]]:
    """The events of a plan, each with the file of its query.

    ``queries``: those that it has, and paused ones that were declared again; ``removed``: names of those that it
    unregisters (None: all that it lacks and that are not paused); ``files``: files of the queries that were
    declared again.
    """
    live = {name: state for name, state in registered.items() if not state.removed}
    names = {query.name for query in queries}
    if removed is None:
        removed = [name for name, state in live.items() if not state.paused and name not in names]
    query_events: list[tuple[ACQ, Event, str | None]] = []
    for query in queries:
        was = live.get(query.name)
        last = registered[query.name].file if query.name in registered else None
        file = (files or {}).get(query.name, last)
        if was is None:
            query_events.append((query, "registered", file))
        elif (was.last.fingerprint, *was.cosmetics) != (query.fingerprint, *_cosmetics(query)):
            query_events.append((query, "replaced", file))
        elif file != last:
            query_events.append((query, "moved", file))
    query_events += [(live[name].query, "removed", live[name].file) for name in removed if name in live]
    return query_events
