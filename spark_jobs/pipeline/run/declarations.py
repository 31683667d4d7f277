"""Declarations of streams under which intervals were published, and the intervals with an earlier declaration.

For each stream that it read, a publication notes the columns that its queries use and their declaration digest
(:func:`optimizer.workload.declarations.declaration_digest`). Publications of an earlier Heddle have no such note.
They are still valid if every plan of that time declares these columns as they are declared now.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from optimizer.errors.diagnostics import Diagnostic
from optimizer.errors.diagnostics import count as number_of
from optimizer.plan.definition import SharingPlan
from optimizer.workload.instants import format_instant
from optimizer.workload.values import Stream
from spark_jobs.pipeline.run.dimensions import versions_of
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.plans import current_version, former_streams, load_plan
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.declared import Declaration
from spark_jobs.streams.sources.dimensions import stream_with_versions

SHOWN = 3
"""Intervals that a message names."""

Columns = tuple[str, ...] | None
"""The columns of a stream that some queries use, sorted; None: all of them, in their order."""


def columns_used(plan: SharingPlan, name: str) -> Columns:
    """The columns of a stream that a plan's queries use."""
    queries = plan.workload.queries_of(name)
    if any(query.kind.reads_every_column for query in queries):
        return None
    return tuple(sorted({column for query in queries for column in query.columns()}))


def declaration_noted(plan: SharingPlan, name: str) -> str:
    """Note of a publication: the columns that a plan uses of a stream, the digest of their declaration, and the
    versions of the dimensions among them.
    """
    columns, stream = columns_used(plan, name), plan.workload.stream(name)
    noted: dict[str, Any] = {"digest": _declared(stream).of(columns).digest, "columns": columns}
    queries = plan.workload.queries_of(name)
    versions = versions_of(stream, {column for query in queries for column in query.columns()})
    # without columns also that there are none: earlier code noted no versions then
    return json.dumps(noted | ({"dimensions": versions} if versions or columns is None else {}))


def _declared(stream: Stream) -> Declaration:
    """The declaration of a stream, whatever the content of its dimensions."""
    return Declaration(stream_with_versions(stream, {}))


@dataclass
class Declarations:
    """Declarations of the streams of a warehouse: ``streams`` by name. ``queries``: the stream that each query
    reads.
    """

    warehouse: Warehouse
    streams: Mapping[str, Stream]
    queries: Mapping[str, str] = field(default_factory=dict)
    _known: dict[tuple[str, str], bool] = field(default_factory=dict)

    @classmethod
    def now(cls, warehouse: Warehouse) -> Declarations:
        """The declarations of the newest plan."""
        version = current_version(warehouse)
        if version is None:
            return cls(warehouse, {})
        workload = load_plan(warehouse, version).workload
        queries = {query.name: query.stream for query in workload.queries}
        return cls(warehouse, {stream.name: stream for stream in workload.streams}, queries)

    def renamed(self, name: str, plan: SharingPlan) -> Declarations:
        """Add the stream that a plan calls by a name which no stream has now.

        It is the stream that all of the plan's queries that still exist read now, unless the plan itself has it.
        """
        if name in self.streams:
            return self
        now = {self.queries[query.name] for query in plan.workload.queries_of(name) if query.name in self.queries}
        if len(now) != 1 or now & {stream.name for stream in plan.workload.streams}:
            return self
        return replace(self, streams={**self.streams, name: self.streams[now.pop()]}, _known={})

    def is_noted(self, name: str, noted: str) -> bool | None:
        """Return whether a stream is declared as a publication ``noted`` it. None: an earlier Heddle noted it."""
        if name not in self.streams:
            return True
        if not noted.startswith("{"):
            return None
        if (name, noted) not in self._known:
            declaration = json.loads(noted)
            now = _declared(self.streams[name]).of(declaration["columns"])
            self._known[name, noted] = now.digest == declaration["digest"]
        return self._known[name, noted]

    def is_former(self, name: str, columns: Columns) -> bool:
        """Return whether all plans of an earlier Heddle declare columns of a stream as they are declared now."""
        if name not in self.streams:
            return True
        return self._former[name].of(columns).is_former

    @cached_property
    def _former(self) -> dict[str, Declaration]:
        return {
            name: Declaration(stream, partial(former_streams, self.warehouse, name))
            for name, stream in self.streams.items()
        }

    def differing(self, row: LogRow, plan: SharingPlan) -> list[str]:
        """The streams that a publication by a plan read under another declaration than that of now."""
        noted = row.record.read
        names = []
        for name in dict.fromkeys(tree.stream for tree in plan.trees):
            now = self.renamed(name, plan)
            same = now.is_noted(name, noted[name][2] if name in noted else "")
            if same is None:
                same = now.is_former(name, columns_used(plan, name))
            names += [] if same else [name]
        return names


def stands_as_declared(warehouse: Warehouse, row: LogRow, plan: SharingPlan, names: Collection[str]) -> bool:
    """Return whether a publication of the same queries read some streams as a plan declares them."""
    declared = Declarations(warehouse, {stream.name: stream for stream in plan.workload.streams})
    return not set(names) & set(declared.differing(row, plan))


@dataclass(frozen=True)
class OlderDeclaration:
    """A published interval [begin, end) (microseconds) whose answers are of an earlier declaration of ``streams``."""

    begin: int
    end: int
    streams: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The interval as ``heddle status --json`` prints it."""
        return {"begin": format_instant(self.begin), "end": format_instant(self.end), "streams": list(self.streams)}


def on_earlier_declarations(warehouse: Warehouse) -> list[OlderDeclaration]:
    """The published intervals under an earlier declaration of a stream, by their begin. Lists no source."""
    known, declared = publish_log.publications_read(warehouse, None), Declarations.now(warehouse)
    streams: dict[int, set[str]] = {}
    names, noted = (known.reads[name].combine_chunks().dictionary_encode() for name in ("stream", "of"))
    pairs = names.indices.to_numpy().astype(np.int64) * max(len(noted.dictionary), 1) + noted.indices.to_numpy()
    former: set[int] = set(np.flatnonzero(~known.is_told).tolist())
    for pair in np.unique(pairs).tolist():
        name, of = (names.dictionary[pair // len(noted.dictionary)], noted.dictionary[pair % len(noted.dictionary)])
        # of a stream that has another name now its plan tells
        same = declared.is_noted(name.as_py(), of.as_py()) if name.as_py() in declared.streams else None
        owners = known.owner[pairs == pair].tolist() if not same else []
        if same is None:
            former.update(owners)
        for owner in owners if same is False else ():
            streams.setdefault(owner, set()).add(name.as_py())
    for owner, changed_streams in _of_former(warehouse, known, declared, sorted(former - streams.keys())):
        streams.setdefault(owner, set()).update(changed_streams)
    if not streams:
        return []
    begins, ends, _ = known.results
    numbers = (number for number in streams if known.all_standing[number])
    older = [
        OlderDeclaration(int(begins[number]), int(ends[number]), tuple(sorted(streams[number]))) for number in numbers
    ]
    return sorted(older, key=lambda declaration: (declaration.begin, declaration.end))


def _of_former(
    warehouse: Warehouse, known: publish_log.Publications, declared: Declarations, numbers: Sequence[int]
) -> list[tuple[int, list[str]]]:
    """Streams that are declared otherwise now, for publications that do not note all of their declarations."""
    if not numbers:
        return []
    rows = {row.at: row for row in publish_log.logged_publications(warehouse, known.at[list(numbers)].tolist())}
    plans: dict[int, SharingPlan] = {}
    differing = []
    for number in numbers:
        row = rows.get(int(known.at[number]))
        if row is None:
            continue
        if row.plan_version not in plans:
            plans[row.plan_version] = load_plan(warehouse, row.plan_version)
        if names := declared.differing(row, plans[row.plan_version]):
            differing.append((number, names))
    return differing


def warnings_of(older: Sequence[OlderDeclaration]) -> list[Diagnostic]:
    """Warnings that name the intervals under earlier declarations, one for each stream."""
    by_stream: dict[str, list[OlderDeclaration]] = {}
    for declaration in older:
        for name in declaration.streams:
            by_stream.setdefault(name, []).append(declaration)
    warnings = []
    for name, intervals in sorted(by_stream.items()):
        shown = ", ".join(
            f"{format_instant(interval.begin)} .. {format_instant(interval.end)}" for interval in intervals[:SHOWN]
        )
        more = f" and {len(intervals) - SHOWN} more" if len(intervals) > SHOWN else ""
        message = (
            f"stream {name} is declared otherwise than when {number_of(len(intervals), 'published interval')} "
            f"{'was' if len(intervals) == 1 else 'were'} answered: {shown}{more}"
        )
        hint = "`heddle repair` answers them by the declaration of now"
        warnings.append(Diagnostic("HDL-470", message, hint, severity="warning"))
    return warnings
