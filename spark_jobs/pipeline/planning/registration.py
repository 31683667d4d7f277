"""The registered queries with some added, replaced and removed: the only place that merges files and registry."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.plan.diff import diff, what_changed
from optimizer.workload.attributes import columns_read, described_column, read_attribute, with_joined_dimensions
from optimizer.workload.values import ACQ, Column, Stream, Workload
from spark_jobs.pipeline.planning.query_files import check_prunable, missing_queries, missing_warnings
from spark_jobs.pipeline.planning.requested import Event, Inputs
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse import plans, registry
from spark_jobs.store.warehouse.places import relocated_as
from spark_jobs.store.warehouse.plans import last_with
from spark_jobs.store.warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class LifecycleRequest:
    """Queries to pause, to resume or to remove (``event``: paused, resumed, removed), as thought out on a plan
    version."""

    event: Event
    names: tuple[str, ...]
    plan_version: int

    def is_done(self, query: registry.Registered) -> bool:
        """Return whether a query already has the requested state."""
        return query.removed if self.event == "removed" else query.paused == (self.event == "paused")


@dataclass(frozen=True)
class RegistrationRequest:
    """Request to register queries, based on those that were registered then (``registered``).

    Attributes
    ----------
    workload
        The queries to plan, and streams that may be read.
    paused
        Requested queries that are paused. They are in no plan, but may be replaced.
    given
        Names of the usable queries that were given. They are added, or replace those of the same names.
    removed
        Names of the queries to remove.
    files
        The file that each given query comes from, as far as it is known.
    stays
        Reasons for registered queries that stay unchanged although nobody asked for that, by name.
    registered
        The queries that were registered then.
    diagnostics
        Other findings about the given queries.
    """

    workload: Workload
    paused: tuple[ACQ, ...] = ()
    given: Collection[str] = ()
    removed: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    stays: Mapping[str, str] = field(default_factory=dict)
    registered: Mapping[str, registry.Registered] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def live(self) -> dict[str, registry.Registered]:
        """The registered queries that are not removed, by name."""
        return {name: registration for name, registration in self.registered.items() if not registration.removed}

    def overtaken(self, now: Mapping[str, registry.Registered]) -> set[str]:
        """The queries that this leaves alone, or takes away, and that somebody else has changed since."""
        was, are = (
            {name: registration.standing for name, registration in queries.items()}
            for queries in (self.registered, now)
        )
        return {name for name in {*was, *are} if was.get(name) != are.get(name)} - set(self.given)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Changes of the registered queries as plain text: removed, changed, added and unchanged ones."""
        live, queries = (
            self.live,
            [query for query in (*self.workload.queries, *self.paused) if query.name in self.given],
        )
        diff_lines = [f"- query {name}" for name in self.removed]
        for query in queries:
            if query.name in live:
                was, file = live[query.name], self.files.get(query.name)
                same = was.last.fingerprint == query.fingerprint
                what = [] if same else [what_changed(was.query, query) or "definition"]
                what += ["owner"] if same and was.last.owner != query.owner else []
                what += ["asset"] if same and was.last.asset != query.asset else []
                what += ["table"] if same and was.table != query.table else []
                what += ["expectations"] if same and was.last.expect != query.expect else []
                what += ["file"] if was.file is not None and file not in (None, was.file) else []
                diff_lines += [f"~ query {query.name} ({', '.join(what)})"] if what else []
        diff_lines += [f"+ query {query.name}" for query in queries if query.name not in live]
        return (*diff_lines, *(f"  query {name} stays as it is registered: {why}" for name, why in self.stays.items()))


def registering(
    inputs: Inputs, warehouse: Warehouse | None, exactly: bool = False, prune: bool = False
) -> RegistrationRequest:
    """Add the queries of some files to the registered ones, or replace those of the same names.

    ``exactly``: the files are the whole workload, and queries that they lack are removed. ``prune``: queries that
    came from the given files or folders and are no longer there are removed. Otherwise a warning names them
    (HDL-148). A mistake in a file removes nothing: a query that is wrong, or that may be affected by the mistake,
    stays as it is registered. Raises HDL-149 if more than half would be pruned, HDL-113 if no query remains to be
    planned, HDL-524 if nothing declares the stream of a registered query, HDL-528 if a registered query no longer
    fits the new declaration of its stream.
    """
    registered = registry.registered(registry.events(warehouse)) if warehouse is not None else {}
    live = {name: registration for name, registration in registered.items() if not registration.removed}
    stays, usable = _wrong(inputs, live), {query.name for query in inputs.workload.queries}
    missing = [name for name in live if name not in usable]
    streams = {stream.name: stream for stream in inputs.workload.streams}
    removed: tuple[str, ...] = ()
    if exactly:
        stays |= _unknown(inputs, {name: live[name] for name in missing if name not in stays}, streams)
        removed = tuple(name for name in missing if name not in stays)
    # a query that was registered already is the new name of a missing one only if there is no other
    new_first = sorted(inputs.workload.queries, key=lambda query: query.name in live)
    unfiled = missing_queries({name: live[name] for name in missing}, inputs.given, new_first)
    if prune and not exactly:
        check_prunable(unfiled, len(live))
        removed = tuple(query.name for query in unfiled)
    # of an owner who has as many as are permitted nothing new is taken
    retained = {name: live[name].query for name in missing if name not in removed}
    # the parser's library is not for those who only read what is planned
    from optimizer.language.parser import beyond_quota, table_taken

    quota = settings().owner_quota
    owned = Counter(registration.last.owner for name, registration in live.items() if name not in removed)
    accepted: dict[str, ACQ] = {}
    going = [query for query in unfiled if query.name in removed and query.renamed_to]
    diagnostics = [
        *missing_warnings([query for query in unfiled if query.name not in removed]),
        *missing_warnings(going, removed=True),
    ]
    for query in inputs.workload.queries:
        owner = live[query.name].last.owner if query.name in live else None
        if owner == query.owner or owned[query.owner] < quota:
            owned.update({query.owner: int(owner != query.owner)})
            accepted[query.name] = query
            continue
        diagnostics.append(beyond_quota(query, quota, inputs.files.get(query.name, "")))
        if query.name in live:
            retained[query.name], stays[query.name] = live[query.name].query, "the quota of its new owner is used up"
    for query, by in _without_table(accepted, retained, live):
        diagnostics.append(table_taken(query, by, inputs.files.get(query.name, "")))
        if query.name in live:
            stays[query.name] = "another query has the table that it asks for"
    newest = plans.current_version(warehouse) if warehouse is not None else None
    plan = plans.load_plan(warehouse, newest) if warehouse is not None and newest is not None else None
    earlier = last_with(warehouse, list(retained)) if warehouse is not None else []
    known = _streams(retained, earlier, streams)
    # a plan with its streams, and its queries, in another order is another plan
    order = [stream.name for stream in plan.workload.streams] if plan is not None else []
    workload_streams = tuple(known[name] for name in dict.fromkeys((*order, *known)) if name in known)
    resting = registry.paused(live)
    queries_by_name = retained | accepted
    placed = (
        [query.name for query in plan.workload.queries if query.name in queries_by_name] if plan is not None else []
    )
    queries = [queries_by_name[name] for name in dict.fromkeys((*placed, *queries_by_name)) if name not in resting]
    if not queries:
        raise HeddleError("HDL-113", "every usable query is paused", "`heddle resume` some")
    if lost := [query for query in queries if query.stream not in known]:
        hint = "declare it in the file of streams, or `heddle remove` the query"
        raise HeddleError("HDL-524", f"nothing knows the stream {lost[0].stream} of {lost[0].name}", hint)
    paused = tuple(queries_by_name[name] for name in resting if name in queries_by_name)
    files = {name: inputs.files[name] for name in accepted if name in inputs.files}
    workload = with_joined_dimensions(Workload(tuple(queries), workload_streams))
    reasons = {name: why for name, why in stays.items() if name in live}
    return RegistrationRequest(workload, paused, accepted, removed, files, reasons, registered, tuple(diagnostics))


def _without_table(
    given: dict[str, ACQ], registered: dict[str, ACQ], live: Mapping[str, registry.Registered]
) -> list[tuple[ACQ, ACQ]]:
    """Remove the given queries whose table belongs to a query in ``registered`` from ``given``, and return them.

    They stay as they are registered, if at all.
    """
    conflicts: list[tuple[ACQ, ACQ]] = []
    while True:
        tables = {query.table.name.lower(): query for query in registered.values() if query.table is not None}
        asking = ((query, query.table) for query in given.values() if query.table is not None)
        new_conflicts = [(query, tables[table.name.lower()]) for query, table in asking if table.name.lower() in tables]
        if not new_conflicts:
            return conflicts
        # a query that stays registered instead may have the table of another
        for query, _ in new_conflicts:
            del given[query.name]
            registered |= {query.name: live[query.name].query} if query.name in live else {}
        conflicts += new_conflicts


def _wrong(inputs: Inputs, live: Mapping[str, registry.Registered]) -> dict[str, str]:
    """The registered queries that the files name and have wrong."""
    usable = {query.name for query in inputs.workload.queries}
    wrong_names = inputs.wrong
    # as a finding has them: a secret may be part of a name
    return {
        name: "what the files say of it has an error"
        for name in (live if wrong_names else ())
        if name not in usable and Diagnostic("", "", query=name).query in wrong_names
    }


_WHERE_IT_ENDS = {"HDL-108", "HDL-109"}
"""Codes of statements of which it is not certain where they end, or what they are called."""


def _unknown(
    inputs: Inputs, missing: Mapping[str, registry.Registered], streams: Mapping[str, Stream]
) -> dict[str, str]:
    """The queries that the files do not have, as far as can be seen, and perhaps would have without a mistake."""
    doubtful: set[str | None] = set()
    for path in inputs.read:
        shown, stem = Diagnostic("", "", file=path).file, re.sub(r"[^A-Za-z0-9_.-]", "_", Path(path).stem)[:100]
        for finding in inputs.errors:
            if finding.file != shown:
                continue
            if finding.code == "HDL-111":
                return dict.fromkeys(missing, "a file cannot be read")
            # those without a name are called by their number in the file
            if finding.code in _WHERE_IT_ENDS or re.fullmatch(rf"_?{re.escape(stem)}_\d+", finding.query):
                doubtful |= {os.path.abspath(path), None}  # noqa: PTH100
    stays = {}
    for name, registration in missing.items():
        if inputs.streams_wrong and registration.query.stream not in streams:
            stays[name] = "its stream cannot be read"
        elif registration.file in doubtful:
            stays[name] = "its file has an error"
    return stays


def _streams(
    kept: Mapping[str, ACQ], earlier: Sequence[SharingPlan], declared: Mapping[str, Stream]
) -> dict[str, Stream]:
    """The streams of the queries that stay as they are, then the others: as declared, else as the newest plan has
    them. Raises HDL-528."""
    planned = {query.name: (query, plan) for plan in earlier for query in plan.workload.queries if query.name in kept}
    newest = {stream.name: stream for plan in earlier for stream in plan.workload.streams}
    known: dict[str, Stream] = {}
    wrong: dict[str, str] = {}
    for name, query in kept.items():
        now = declared.get(query.stream)
        if now is None:
            known |= {query.stream: newest[query.stream]} if query.stream in newest else {}
            continue
        known[query.stream] = now = _with_dimensions(now, newest.get(query.stream))
        then, plan = planned.get(name, (None, None))
        # of a definition that no plan had it is not known of what stream it was
        was = plan.workload.stream(query.stream) if plan is not None and then == query else None
        wrong[name] = misfit(query, was, now)
    check_fit(wrong)
    return dict(declared) | known


def _with_dimensions(stream: Stream, planned: Stream | None) -> Stream:
    """The stream, also with those dimensions of the newest plan that are not declared, or cannot be read now."""
    declared = {dimension.name for dimension in stream.dimensions}
    others = (dimension for dimension in (planned.dimensions if planned else ()) if dimension.name not in declared)
    return replace(stream, dimensions=(*stream.dimensions, *others))


def check_fit(wrong: Mapping[str, str]) -> None:
    """Raises HDL-528 if registered queries no longer fit their streams; ``wrong``: why, by name."""
    reasons = [f"{name}: {why}" for name, why in wrong.items() if why]
    if reasons:
        more = f"; and {len(reasons) - 6} more" if len(reasons) > 6 else ""
        raise HeddleError(
            "HDL-528",
            f"registered queries no longer fit their streams: {'; '.join(reasons[:6])}{more}",
            "give the files of these queries too, mended, or `heddle remove` them; nothing was changed",
        )


def _missing(name: str, stream: Stream) -> str:
    """Reason why a stream has no such column, or attribute of a dimension."""
    attribute = read_attribute(name)
    if attribute is None:
        return f"{stream.name} has no column {name}"
    known = {dimension.name for dimension in stream.dimensions}
    if attribute.dimension not in known:
        return f"there is no dimension {attribute.dimension}"
    return f"dimension {attribute.dimension} has no column {attribute.column}"


def misfit(query: ACQ, was: Stream | None, now: Stream) -> str:
    """Reason why a query of the stream ``was`` (None: not known) does not fit the stream ``now``; empty if it fits."""
    read = {
        aggregate.argument.name: aggregate.argument_type
        for aggregate in query.computed
        if isinstance(aggregate.argument, Column)
    }
    types = was.types if was is not None else read | dict(query.stored_group_by)
    for name in dict.fromkeys([*query.columns(), *columns_read(now, query.columns())]):
        before, after = types.get(name), now.type_of(name)
        if after is None:
            return f"{_missing(name, now)} now"
        if before is not None and before != after:
            return f"column {described_column(name, now.name)} is a {after} now, not a {before}"
    if was is not None and was.time != now.time:
        return f"the time of {now.name} is {now.time} now, not {was.time}"
    if query.window.at_most is not None and query.window.slide != now.step:
        return f"the step of {now.name} is another now"
    return ""


def changes(request: RegistrationRequest, old: SharingPlan | None, plan: SharingPlan) -> list[str]:
    """Changes of a plan as plain text: first queries, registered ones and those of the plan in force, then trees."""
    old = None if old is None else relocated_as(old, {stream.name: stream for stream in plan.workload.streams})
    names = {line.partition(" (")[0] for line in request.lines}
    return [*request.lines, *(line for line in diff(old, plan).lines() if line.partition(" (")[0] not in names)]
