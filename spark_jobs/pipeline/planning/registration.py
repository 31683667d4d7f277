"""What is registered, with queries added, replaced and removed: the one merging of files and registry."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.plan.diff import diff, what_changed
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
        """Whether a query is already as it is to be."""
        return query.removed if self.event == "removed" else query.paused == (self.event == "paused")


@dataclass(frozen=True)
class RegistrationRequest:
    """What somebody asks to be registered, as thought out on what was (``registered``).

    Attributes
    ----------
    workload
        The queries to be planned, and streams that may be read.
    paused
        Paused queries that are asked for; they are in no plan, but may be replaced.
    given
        Names of the queries that were given, usable ones: they are added, or replace those of their names.
    removed
        Names of the queries that are to go.
    files
        Which file each of those given comes from, as far as that is known.
    stays
        Why some registered queries stay as they are although they were not asked to: name and reason.
    registered
        What was registered then.
    diagnostics
        What else is wrong with the queries given.
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
        """What was registered, by name."""
        return {name: one for name, one in self.registered.items() if not one.removed}

    def overtaken(self, now: Mapping[str, registry.Registered]) -> set[str]:
        """The queries that this leaves alone, or takes away, and that somebody else has changed since."""
        was, are = ({name: one.standing for name, one in queries.items()} for queries in (self.registered, now))
        return {name for name in {*was, *are} if was.get(name) != are.get(name)} - set(self.given)

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """What changes of what is registered, as plain text: what goes, what changes, what comes, what stays."""
        live, put = self.live, [one for one in (*self.workload.queries, *self.paused) if one.name in self.given]
        found = [f"- query {name}" for name in self.removed]
        for query in put:
            if query.name in live:
                was, file = live[query.name], self.files.get(query.name)
                same = was.last.fingerprint == query.fingerprint
                what = [] if same else [what_changed(was.query, query) or "definition"]
                what += ["owner"] if same and was.last.owner != query.owner else []
                what += ["asset"] if same and was.last.asset != query.asset else []
                what += ["table"] if same and was.table != query.table else []
                what += ["file"] if was.file is not None and file not in (None, was.file) else []
                found += [f"~ query {query.name} ({', '.join(what)})"] if what else []
        found += [f"+ query {query.name}" for query in put if query.name not in live]
        return (*found, *(f"  query {name} stays as it is registered: {why}" for name, why in self.stays.items()))


def registering(
    inputs: Inputs, warehouse: Warehouse | None, exactly: bool = False, prune: bool = False
) -> RegistrationRequest:
    """What is registered, with the queries of some files added or put in place of those of the same names.

    ``exactly``: the files are the whole workload, what they lack is to be removed. ``prune``: queries that came from
    the given files or folders and are no longer there are to be removed; otherwise a warning names them (HDL-148). A
    mistake in a file removes nothing: what is wrong, or cannot be known for one that is, stays as it is registered.
    Raises HDL-149 if more than half would be pruned, HDL-113 if no query is left to be planned, HDL-524 if nothing
    knows the stream of a registered query, HDL-528 if a stream is declared so that a registered query no longer fits.
    """
    registered = registry.registered(registry.events(warehouse)) if warehouse is not None else {}
    live = {name: one for name, one in registered.items() if not one.removed}
    stays, usable = _wrong(inputs, live), {query.name for query in inputs.workload.queries}
    missing = [name for name in live if name not in usable]
    streams = {stream.name: stream for stream in inputs.workload.streams}
    removed: tuple[str, ...] = ()
    if exactly:
        stays |= _unknown(inputs, {name: live[name] for name in missing if name not in stays}, streams)
        removed = tuple(name for name in missing if name not in stays)
    unfiled = missing_queries({name: live[name] for name in missing}, inputs.given, inputs.workload.queries)
    if prune and not exactly:
        check_prunable(unfiled, len(live))
        removed = tuple(one.name for one in unfiled)
    # of an owner who has as many as are permitted nothing new is taken
    kept = {name: live[name].query for name in missing if name not in removed}
    # the parser's library is not for those who only read what is planned
    from optimizer.language.parser import beyond_quota, table_taken

    quota = settings().owner_quota
    owned = Counter(one.last.owner for name, one in live.items() if name not in removed)
    given: dict[str, ACQ] = {}
    going = [one for one in unfiled if one.name in removed and one.renamed_to]
    diagnostics = [
        *missing_warnings([one for one in unfiled if one.name not in removed]),
        *missing_warnings(going, removed=True),
    ]
    for query in inputs.workload.queries:
        owner = live[query.name].last.owner if query.name in live else None
        if owner == query.owner or owned[query.owner] < quota:
            owned.update({query.owner: int(owner != query.owner)})
            given[query.name] = query
            continue
        diagnostics.append(beyond_quota(query, quota, inputs.files.get(query.name, "")))
        if query.name in live:
            kept[query.name], stays[query.name] = live[query.name].query, "the quota of its new owner is used up"
    for query, by in _without_table(given, kept, live):
        diagnostics.append(table_taken(query, by, inputs.files.get(query.name, "")))
        if query.name in live:
            stays[query.name] = "another query has the table that it asks for"
    newest = plans.current_version(warehouse) if warehouse is not None else None
    plan = plans.load_plan(warehouse, newest) if warehouse is not None and newest is not None else None
    earlier = last_with(warehouse, list(kept)) if warehouse is not None else []
    known = _streams(kept, earlier, streams)
    # a plan with its streams, and its queries, in another order is another plan
    order = [stream.name for stream in plan.workload.streams] if plan is not None else []
    workload_streams = tuple(known[name] for name in dict.fromkeys((*order, *known)) if name in known)
    resting = registry.paused(live)
    wanted = kept | given
    placed = [query.name for query in plan.workload.queries if query.name in wanted] if plan is not None else []
    queries = [wanted[name] for name in dict.fromkeys((*placed, *wanted)) if name not in resting]
    if not queries:
        raise HeddleError("HDL-113", "every usable query is paused", "`heddle resume` some")
    if lost := [query for query in queries if query.stream not in known]:
        hint = "declare it in the file of streams, or `heddle remove` the query"
        raise HeddleError("HDL-524", f"nothing knows the stream {lost[0].stream} of {lost[0].name}", hint)
    paused = tuple(wanted[name] for name in resting if name in wanted)
    files = {name: inputs.files[name] for name in given if name in inputs.files}
    workload = Workload(tuple(queries), workload_streams)
    said = {name: why for name, why in stays.items() if name in live}
    return RegistrationRequest(workload, paused, given, removed, files, said, registered, tuple(diagnostics))


def _without_table(
    given: dict[str, ACQ], kept: dict[str, ACQ], live: Mapping[str, registry.Registered]
) -> list[tuple[ACQ, ACQ]]:
    """The given queries whose table one of those kept has; they are kept as they are registered, or left out."""
    found: list[tuple[ACQ, ACQ]] = []
    while True:
        tables = {query.table.name.lower(): query for query in kept.values() if query.table is not None}
        asking = ((query, query.table) for query in given.values() if query.table is not None)
        taken = [(query, tables[table.name.lower()]) for query, table in asking if table.name.lower() in tables]
        if not taken:
            return found
        # what is kept instead may have the table of another
        for query, _ in taken:
            del given[query.name]
            kept |= {query.name: live[query.name].query} if query.name in live else {}
        found += taken


def _wrong(inputs: Inputs, live: Mapping[str, registry.Registered]) -> dict[str, str]:
    """The registered queries that the files name and have wrong."""
    usable = {query.name for query in inputs.workload.queries}
    named = inputs.wrong
    # as a finding has them: a secret may be part of a name
    return {
        name: "what the files say of it has an error"
        for name in (live if named else ())
        if name not in usable and Diagnostic("", "", query=name).query in named
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
        for found in inputs.errors:
            if found.file != shown:
                continue
            if found.code == "HDL-111":
                return dict.fromkeys(missing, "a file cannot be read")
            # those without a name are called by their number in the file
            if found.code in _WHERE_IT_ENDS or re.fullmatch(rf"_?{re.escape(stem)}_\d+", found.query):
                doubtful |= {os.path.abspath(path), None}  # noqa: PTH100
    stays = {}
    for name, one in missing.items():
        if inputs.streams_wrong and one.query.stream not in streams:
            stays[name] = "its stream cannot be read"
        elif one.file in doubtful:
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
        known[query.stream] = now
        then, plan = planned.get(name, (None, None))
        # of a definition that no plan had it is not known of what stream it was
        was = plan.workload.stream(query.stream) if plan is not None and then == query else None
        wrong[name] = misfit(query, was, now)
    check_fit(wrong)
    return known | dict(declared)


def check_fit(wrong: Mapping[str, str]) -> None:
    """Raises HDL-528 if registered queries no longer fit their streams; ``wrong``: why, by name."""
    told = [f"{name}: {why}" for name, why in wrong.items() if why]
    if told:
        more = f"; and {len(told) - 6} more" if len(told) > 6 else ""
        raise HeddleError(
            "HDL-528",
            f"registered queries no longer fit their streams: {'; '.join(told[:6])}{more}",
            "give the files of these queries too, mended, or `heddle remove` them; nothing was changed",
        )


def misfit(query: ACQ, was: Stream | None, now: Stream) -> str:
    """Why a query of a stream as it was (None: not known) cannot be asked of it as it is; empty if it can."""
    read = {one.argument.name: one.argument_type for one in query.computed if isinstance(one.argument, Column)}
    types = was.types if was is not None else read | dict(query.group_by)
    for name in query.columns():
        before, after = types.get(name), now.type_of(name)
        if after is None:
            return f"{now.name} has no column {name} now"
        if before is not None and before != after:
            return f"column {name} of {now.name} is a {after} now, not a {before}"
    if was is not None and was.time != now.time:
        return f"the time of {now.name} is {now.time} now, not {was.time}"
    if query.window.at_most is not None and query.window.slide != now.step:
        return f"the step of {now.name} is another now"
    return ""


def changes(request: RegistrationRequest, old: SharingPlan | None, plan: SharingPlan) -> list[str]:
    """What a plan changes, as plain text: queries first, registered ones and those of the plan in force, then trees."""
    old = None if old is None else relocated_as(old, {stream.name: stream for stream in plan.workload.streams})
    names = {line.partition(" (")[0] for line in request.lines}
    return [*request.lines, *(line for line in diff(old, plan).lines() if line.partition(" (")[0] not in names)]
