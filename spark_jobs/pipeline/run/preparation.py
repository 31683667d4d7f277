"""The first stage of a run: the listed sources, the windows to answer, the hash of all that decides their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from optimizer.errors.codes import is_fatal
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.plan import instants_due, pinning
from optimizer.plan.definition import SharingPlan
from optimizer.synopses.synopsis import FORMAT, synopses_of
from optimizer.windows.alignment import history_start
from optimizer.workload.attributes import columns_read
from optimizer.workload.instants import DAY
from optimizer.workload.values import EARLIEST, DimensionVersion, Stream, digest
from spark_jobs.engine.workers import Available, unavailable
from spark_jobs.pipeline.planning.live_runs import refreshed_at
from spark_jobs.pipeline.run import dimensions
from spark_jobs.pipeline.run.declarations import declaration_noted
from spark_jobs.pipeline.run.values import PreparedRun, RunRequest, SourceListing
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.clusters import far_warnings
from spark_jobs.streams.sources.decoding import missing_columns, repeated_rows
from spark_jobs.streams.sources.first_events import removed_before
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.ledger import Ledger, Listed, admitted, ledger, opened
from spark_jobs.streams.sources.looks import Look
from spark_jobs.streams.sources.repetitions import distinct
from spark_jobs.streams.sources.splits import Split, snapshot_token
from spark_jobs.windows.partials.stored_coverage import EVER
from spark_jobs.windows.partials.synopsis_work import SynopsisWork, merged, span_covered


def listed(
    warehouse: Warehouse,
    plan: SharingPlan,
    clock: int,
    note: str | None = None,
    follow: Callable[[Stream], object] = lambda stream: None,
    within: tuple[int, int] | None = None,
    live: bool = False,
    trust: bool = True,
    available: Available = unavailable,
    sparing: bool = False,
    versions_used: Mapping[str, DimensionVersion | HeddleError] = MappingProxyType({}),
) -> SourceListing:
    """The splits of every stream of a plan that can be listed, to be looked at for many intervals, or for some
    ``within`` (begin, end] (microseconds): files that hold nothing for those are then not even opened.

    ``follow`` brings the copy of a stream's origin up to date, if it has one. ``live``: files that hold nothing for the
    run are looked at in turns (:mod:`spark_jobs.streams.sources.looks`). ``trust``: what the ledger has of files need
    not be read again; if not, all files are opened. ``available``: the workers that open and read many files.
    ``sparing``: of folders that are declared exact only those are listed that the run needs.

    ``note``: the run whose listing this is; it enters new files into the ledger
    (:mod:`spark_jobs.streams.sources.ledger`). None: nothing is written. ``versions_used``: as
    :func:`spark_jobs.pipeline.run.dimensions.pinned` takes them.
    """
    listing = SourceListing({}, {}, [], [], [], within)
    plan, listing.unfit[:], problems = dimensions.pinned(warehouse, plan, note is not None, versions_used)
    listing.streams.update({stream.name: stream for stream in plan.workload.streams})
    listing.problems.extend(problem.to_json() for problem in problems)
    for name in dict.fromkeys(tree.stream for tree in plan.trees):
        try:
            stream = plan.workload.stream(name)
            follow(stream)
            queries = plan.workload.queries_of(name)
            used = {query.name: columns_read(stream, query.deciding_columns(stream)) for query in queries}
            columns = sorted({column for of_query in used.values() for column in of_query})
            lacking: list[str] = []
            admission = None
            while admission is None:
                known = ledger(warehouse, stream)
                look = Look.begin(warehouse, stream) if live and trust else None
                span = None if within is None or not trust else read_span(plan, name, *within)
                files = opened(stream, known, span, look, available, sparing)
                lacking = _lacking(stream, files, columns)
                admission = admitted(warehouse, stream, known, files, clock, note, trust, available)
            listing.sources[name], listing.arrivals[name] = admission.splits, admission.arrivals
            listing.problems.extend(warning.to_json() for warning in files.warnings)
            listing.problems.extend(problem.to_json() for problem in admission.problems)
            new = {arrival.path for arrival in admission.arrivals.added.values()}
            span = None if within is None else read_span(plan, name, *within)
            far = far_warnings(name, admission.arrivals.clusters, span, new)
            listing.problems.extend(warning.to_json() for warning in far)
            for query, of_query in used.items():
                if lacks := [column for column in of_query if column in lacking]:
                    listing.unfit.append(query)
                    message = f"stream {name} has no column {', '.join(lacks[:4])}"
                    hint = "correct the query, or the files; the other queries were answered"
                    listing.problems.append(Diagnostic("HDL-403", message, hint, query=query).to_json())
        except HeddleError as error:
            if is_fatal(error.diagnostic.code):
                raise
            listing.problems.append(error.diagnostic.to_json())
            listing.failed.append(name)
    return listing


def read_span(plan: SharingPlan, name: str, begin: int, end: int) -> tuple[int, int] | None:
    """Span of instants [first, last) that a run over (begin, end] reads of a stream; None: from its first event.

    It consists of whole days (UTC), which stored partials and the search for repeated events use.
    """
    if _reads_from_first(plan, name):
        return None
    first = max(EARLIEST, begin - max((query.window.reach for query in plan.workload.queries_of(name)), default=0))
    return first - first % DAY, end + -end % DAY


def _lacking(stream: Stream, files: Listed, columns: list[str]) -> list[str]:
    """The columns that a stream does not have."""
    lacking = missing_columns(stream, files.layouts, columns)
    while lacking and not format_of(stream).is_each_complete and (splits := next(files.others, None)) is not None:
        lacking = missing_columns(stream, splits, lacking)
    return lacking


def prepare(warehouse: Warehouse, plan: SharingPlan, request: RunRequest, listing: SourceListing) -> PreparedRun:
    """Prepare a run over an interval. Writes nothing. A stream that cannot be read is omitted and reported."""
    begin, end = request.begin, request.end
    plan = listing.pinned(plan)
    before = refreshed_at(warehouse, begin)
    ticks = (instants_due.late if request.late else instants_due.ticks)(plan.schedules, begin, end, before)
    # of a part of a plan the schedules are those of the whole
    query_names = {query.name for query in plan.workload.queries}
    ticks = [(instant, tuple(name for name in names if name in query_names)) for instant, names in ticks]
    plan = plan_without(pinning.pinned(plan, ticks, begin, end), listing.unfit)
    sources, failed = dict(listing.sources), list(listing.failed)
    diagnostics: list[dict[str, Any]] = []
    origins: dict[str, int] = {}
    for name in [name for name in sources if _has_origin(plan, name)]:
        try:
            origins[name] = _origin(listing.first_event(name), begin, end)
        except HeddleError as error:
            diagnostics.append(_unread(error, failed, name))
            del sources[name]
    plan = pinning.since_origins(plan, origins)
    ends = {name: min(end, request.clock - plan.workload.stream(name).lateness) for name in sources}
    work = synopsis_work(plan, begin, ends)
    assert listing.within is None or (listing.within[0] <= begin and listing.within[1] >= end)
    repeated: dict[str, int] = {}
    for name in list(sources):
        try:
            trust = not request.recompute
            sources[name] = _distinct(warehouse, plan, name, sources[name], work, begin, ends[name], trust)
            repeated[name] = sum(len(repeated_rows(split)) for split in sources[name])
        except HeddleError as error:
            diagnostics.append(_unread(error, failed, name))
            del sources[name], ends[name]
    work = [part for part in work if part.synopsis.stream in sources]
    return PreparedRun(
        request,
        plan,
        listing,
        before,
        sources,
        ends,
        tuple(work),
        content_hash(plan, work, sources, ends, begin, end, listing.arrivals),
        query_hash(plan),
        {name: events for name, events in repeated.items() if events},
        tuple(failed),
        tuple(diagnostics),
    )


def _origin(first: int | None, begin: int, end: int) -> int:
    """Start of the windows since the first event: its day (UTC), or, if it is not before ``end``, that of ``begin``."""
    first = begin if first is None or first >= end else first
    return first - first % DAY


def _unread(error: HeddleError, failed: list[str], name: str) -> dict[str, Any]:
    """The diagnostic of a stream that cannot be read, which is noted as failed. Raises the error if it is fatal."""
    if is_fatal(error.diagnostic.code):
        raise error
    failed.append(name)
    return error.diagnostic.to_json()


def synopsis_work(plan: SharingPlan, begin: int, ends: Mapping[str, int]) -> list[SynopsisWork]:
    """The synopses that answer the windows that end after ``begin``, up to the ``ends`` of their streams. Those of
    windows of rows are known once the rows are counted."""
    work = []
    for tree in plan.trees:
        if tree.stream not in ends or tree.kind.counts_rows:
            continue
        stream = plan.workload.stream(tree.stream)
        for synopsis, queries in synopses_of(stream, tree.queries, tree.together, tree.late).items():
            until = ends[tree.stream]
            windows = [query.window for query in queries]
            start, end = span_covered(synopsis, windows, begin, until)
            if start < end:
                is_late = any(map(synopsis.joins_late, queries))
                work.append(SynopsisWork(synopsis, queries, start, end, until, stream if is_late else None))
    return merged(work)


def spans_read(prepared: PreparedRun, plan: SharingPlan) -> dict[str, tuple[int, int, str]]:
    """For each stream, the times [first, last) of the events that decide the answers of a run by a plan, as in
    :func:`content_hash`, and the plan's declaration of the columns that it uses.
    """
    spans = {}
    for name in prepared.sources:
        stream, last = prepared.plan.workload.stream(name), prepared.ends[name]
        first = _decisive_from(prepared.plan, prepared.work, name, prepared.request.begin, last)
        if _reads_from_first(prepared.plan, name):
            first = EVER
        elif stream.event_id is not None:  # what repeats an event is looked for on its whole day
            first, last = first - first % DAY, last + -last % DAY
        spans[name] = first, last, declaration_noted(plan, name)
    return spans


def _distinct(
    warehouse: Warehouse,
    plan: SharingPlan,
    name: str,
    splits: list[Split],
    work: Sequence[SynopsisWork],
    begin: int,
    end: int,
    trust: bool,
) -> list[Split]:
    """The splits of a stream without the events that come a second time."""
    first = min((part.begin for part in work if part.synopsis.stream == name), default=begin)
    first = EVER if _reads_from_first(plan, name) else first
    return distinct(warehouse, plan.workload.stream(name), splits, first, end, trust)


def _reads_from_first(plan: SharingPlan, name: str) -> bool:
    """Return whether every event of a stream, from its first on, decides the answers of some query."""
    return any(tree.stream == name and tree.kind.reads_from_first for tree in plan.trees)


def content_hash(
    plan: SharingPlan,
    work: Sequence[SynopsisWork],
    sources: dict[str, list[Split]],
    ends: dict[str, int],
    begin: int,
    end: int,
    arrivals: Mapping[str, Ledger],
) -> str:
    """Hash of all that decides the answers of an interval; the plan's shape is not among it."""
    tokens: list[Any] = []
    for name, splits in sorted(sources.items()):
        first = _decisive_from(plan, work, name, begin, end)
        token = snapshot_token(splits, EVER if _reads_from_first(plan, name) else first, ends[name])
        removed = removed_before(plan.workload.stream(name), arrivals[name], first) if _has_origin(plan, name) else []
        tokens.append([name, token, ends[name], *([removed] if removed else [])])
    return digest([query_hash(plan), tokens, begin, end])


def _decisive_from(plan: SharingPlan, work: Sequence[SynopsisWork], name: str, begin: int, default: int) -> int:
    """The time from which files that come change the answers of the windows that end after ``begin``, if they come in
    time. The windows since the first event read earlier events, too, of which only those count that are known.
    """
    stream = plan.workload.stream(name)
    firsts = []
    for part in (part for part in work if part.synopsis.stream == name):
        windows = [window for query in part.queries for window in query.window.each]
        bounded = [window for window in windows if window.since is None]
        if len(bounded) < len(windows):
            firsts.append(begin - stream.revised_for)
            firsts.append(history_start(bounded, begin, part.last_instant))
        else:
            firsts.append(part.begin)
    return min(firsts, default=default)


def _has_origin(plan: SharingPlan, name: str) -> bool:
    return any(query.window.has_origin for query in plan.workload.queries_of(name))


def query_hash(plan: SharingPlan) -> str:
    """Hash of everything except the sources that decides the answers of an interval: the queries, and the columns of
    times.
    """
    times = sorted((stream.name, stream.time) for stream in plan.workload.streams)
    return digest([FORMAT, plan.workload.fingerprint, times])


def plan_without(plan: SharingPlan, names: Sequence[str]) -> SharingPlan:
    """The plan without some queries, and the trees that had no others."""
    if not names:
        return plan
    tree_queries = [tuple(query for query in tree.queries if query.name not in names) for tree in plan.trees]
    trees = tuple(
        replace(tree, queries=queries) for tree, queries in zip(plan.trees, tree_queries, strict=True) if queries
    )
    queries = tuple(query for query in plan.workload.queries if query.name not in names)
    return replace(
        plan, trees=trees, workload=replace(plan.workload, queries=queries), tree_costs=(Fraction(0),) * len(trees)
    )
