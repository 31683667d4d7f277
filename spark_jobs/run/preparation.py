"""What a run has to do: the listed sources, the windows to answer, the hash of all that decides their answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optimizer.errors.codes import is_fatal
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.plan import instants_due, pinning
from optimizer.plan.definition import SharingPlan
from optimizer.synopses.synopsis import FORMAT, synopses_of
from optimizer.windows.alignment import Fragments, history_start
from optimizer.windows.alignment import instants as instants_of
from optimizer.workload.instants import format_instant
from optimizer.workload.values import ACQ, digest
from spark_jobs.costs.fit import fit_of
from spark_jobs.costs.measurements import FEATURES, events_between
from spark_jobs.costs.prediction import Work, predict
from spark_jobs.finals.stage import SynopsisWork, merged
from spark_jobs.partials import stored_coverage
from spark_jobs.partials.fill_request import FillRequest
from spark_jobs.partials.stored_coverage import EVER
from spark_jobs.planning.live_runs import refreshed_at
from spark_jobs.sources.decoding import missing_columns, parse_instant, repeated_rows
from spark_jobs.sources.late_events import ChangedWindows, LateDataImpact, change
from spark_jobs.sources.ledger import Arrival, admitted, has_events, ledger
from spark_jobs.sources.repetitions import distinct
from spark_jobs.sources.splits import Split, snapshot_token, splits_of
from spark_jobs.warehouse import publish_log
from spark_jobs.warehouse.data_files import SynopsisFailure
from spark_jobs.warehouse.publish_log import RunRecord, deleted_since, interval_label, interval_of_row
from spark_jobs.warehouse.schemas import micros
from spark_jobs.warehouse.warehouse import Warehouse

Instants = Mapping[str, NDArray[np.int64] | None]
"""The instants at which queries are answered: all of those that have None, none of those that are not there."""


class PreparedRun(NamedTuple):
    """What a run sets out to do: the plan with the instants to be answered (``before``: when queries with a refresh
    bound were answered last), what its streams hold and up to when, the synopses, and the hash of all that decides."""

    plan: SharingPlan
    before: dict[str, int]
    sources: dict[str, list[Split]]
    failed: list[str]
    ends: dict[str, int]
    parts: list[SynopsisWork]
    content: str


class SourceListing(NamedTuple):
    """What the streams of a plan hold and the ledger of their files, the names of those that cannot be listed, those of
    the ``unfit`` queries that use a column which their stream does not have, and what is wrong with both."""

    sources: dict[str, list[Split]]
    arrivals: dict[str, dict[str, Arrival]]
    failed: list[str]
    unfit: list[str]
    problems: list[dict[str, Any]]


def listed(warehouse: Warehouse, plan: SharingPlan, clock: int, note: str | None = None) -> SourceListing:
    """The splits of every stream of a plan that can be listed, to be looked at for many intervals.

    ``note``: the run whose listing this is; it enters new files into the ledger (:mod:`spark_jobs.sources.ledger`).
    None: nothing is written.
    """
    found = SourceListing({}, {}, [], [], [])
    for name in dict.fromkeys(tree.stream for tree in plan.trees):
        try:
            stream = plan.workload.stream(name)
            used = {
                # rows of equal times are ordered by all columns
                query.name: [column for column, _ in stream.schema] if query.window.is_rows else query.columns()
                for query in plan.workload.queries_of(name)
            }
            columns = sorted({column for mine in used.values() for column in mine})
            lacking: list[str] = []
            taken = None
            while taken is None:
                files = ledger(warehouse, name)
                splits = splits_of(stream)
                lacking = missing_columns(stream, splits, columns)
                taken = admitted(warehouse, stream, files, splits, clock, note)
            found.sources[name], found.arrivals[name] = taken
            for query, mine in used.items():
                if lacks := [column for column in mine if column in lacking]:
                    found.unfit.append(query)
                    message = f"stream {name} has no column {', '.join(lacks[:4])}"
                    hint = "correct the query, or the files; the other queries were answered"
                    found.problems.append(Diagnostic("HDL-403", message, hint, query=query).to_json())
        except HeddleError as error:
            if is_fatal(error.diagnostic.code):
                raise
            found.problems.append(error.diagnostic.to_json())
            found.failed.append(name)
    return found


def prepare(
    warehouse: Warehouse, plan: SharingPlan, record: RunRecord, clock: int, known: SourceListing
) -> PreparedRun:
    begin, end = record.begin, record.end
    before = refreshed_at(warehouse, begin)
    wanted = (instants_due.late if record.late else instants_due.ticks)(plan.schedules, begin, end, before)
    plan = plan_without(pinning.pinned(plan, wanted, begin, end), known.unfit)
    sources, failed = dict(known.sources), list(known.failed)
    ends = {name: min(end, clock - plan.workload.stream(name).lateness) for name in sources}
    record.withheld = {name: format_instant(at) for name, at in ends.items() if at < end}
    parts = _parts(plan, begin, ends)
    for name in list(sources):
        try:
            sources[name] = _distinct(warehouse, plan, name, sources[name], parts, ends, record)
        except HeddleError as error:
            if is_fatal(error.diagnostic.code):
                raise
            record.diagnostics.append(error.diagnostic.to_json())
            failed.append(name)
            del sources[name], ends[name]
    parts = [part for part in parts if part.synopsis.stream in sources]
    record.basis = query_hash(plan)
    return PreparedRun(plan, before, sources, failed, ends, parts, content_hash(plan, parts, sources, ends, begin, end))


@dataclass(frozen=True)
class RunEstimate:
    """What a run over (begin, end] would be: ``published`` if it would change nothing; else the events that it would
    read, about, and the CPU seconds that the plan's costs predict. Windows of rows are not in the price."""

    begin: int
    end: int
    published: bool
    events: int = 0
    cpu_seconds: float = 0.0


def price(
    warehouse: Warehouse, plan: SharingPlan, plan_version: int, begin: int, end: int, clock: int, known: SourceListing
) -> RunEstimate:
    """The price of a run, without running it, and without a JVM. ``known``: what the streams hold."""
    record = RunRecord("price", plan_version, begin, end)
    record.features = dict.fromkeys(FEATURES, 0) | {"runs": 1}
    plan, _, sources, _, ends, parts, content = prepare(warehouse, plan, record, clock, known)
    if publish_log.same_publication(warehouse, plan, begin, end, content) is not None:
        return RunEstimate(begin, end, True)
    timed = [part for part in parts if part.synopsis.sequenced is None]
    spans: list[FillRequest] = []
    for name, splits in sources.items():
        spans += stored_coverage.uncovered(
            warehouse, [part for part in parts if part.synopsis.stream == name], splits, record
        )
    events = sum(
        events_between(sources[name], min(span.begin for span in mine), min(ends[name], max(span.end for span in mine)))
        for name in sources
        if (mine := [span for span in spans if span.synopsis.stream == name])
    )
    filled = [span for span in spans if span.synopsis.sequenced is None]
    predict(fit_of(warehouse), warehouse, plan, record, Work(begin, timed, filled, sources))
    return RunEstimate(begin, end, False, round(events), record.predicted_cpu_seconds or 0.0)


def changed_since(
    warehouse: Warehouse, plan: SharingPlan, row: Mapping[str, Any], clock: int, known: SourceListing
) -> LateDataImpact | None:
    """What has changed of what a row of the log published, the newest publication of its interval, by the plan that it
    was pinned to: events came late, or went, or windows have ended that were withheld. None: it would have the same
    content."""
    past = json.loads(row["record"])
    begin, end = micros(row["interval_start"]), micros(row["interval_end"])
    record = RunRecord("check", row["plan_version"], begin, end, late=past.get("late", False))
    pinned, _, sources, _, ends, parts, content = prepare(warehouse, plan, record, clock, known)
    if content == row["content"]:
        return None
    return changed_windows(pinned, parts, sources, ends, row, known, record).radius


def changed_windows(
    plan: SharingPlan,
    parts: Sequence[SynopsisWork],
    sources: Mapping[str, list[Split]],
    ends: Mapping[str, int],
    row: Mapping[str, Any],
    known: SourceListing,
    record: RunRecord,
) -> ChangedWindows:
    """What has changed since a row of the log published the record's interval."""
    past = json.loads(row["record"])
    cut: dict[str, list[Fragments]] = {}
    for part in parts:
        if part.synopsis.per is None:
            cut.setdefault(part.synopsis.stream, []).append(part.synopsis.fragments)
    return change(plan, sources, known.arrivals, record.begin, ends, known_ledger_entries(past), _due(past), cut)


def known_ledger_entries(past: Mapping[str, Any]) -> dict[str, int]:
    """The newest entry of each stream's ledger that a run knew (microseconds)."""
    listed = past.get("listed")
    return listed if isinstance(listed, dict) else {}  # an earlier Heddle did not tell: everything may have come since


def _due(past: Mapping[str, Any]) -> dict[str, int]:
    """Up to where the windows of streams were answered that were withheld in part."""
    return {name: parse_instant(at) for name, at in past["withheld"].items()}


def narrowing_base(
    warehouse: Warehouse, plan: SharingPlan, record: RunRecord, ends: Mapping[str, int]
) -> dict[str, Any] | None:
    """The log's row of the publication since which only some windows may have changed; None: all of them may.

    There is one if the newest publication that overlaps the interval was of this interval, of all that is asked now and
    of no file that this run does not know: an answer that is not touched is then what a run over everything would
    publish.
    """
    row = publish_log.newest_publication(warehouse, record.begin, record.end)
    if row is None or not row["table_version"] or interval_of_row(row) != interval_label(record.begin, record.end):
        return None
    past = json.loads(row["record"])
    due = _due(past)
    whole = not any(found["severity"] == "error" for found in past["diagnostics"])
    same = past["status"] == "published" and past.get("basis") == record.basis and whole
    if not same or is_older_than(known_ledger_entries(past), record.listed) or deleted_since(warehouse, plan, row):
        return None
    return row if all(at >= due.get(name, record.end) for name, at in ends.items()) else None


def is_older_than(past: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether a publication knew entries of a stream's ledger that a run, which listed earlier, does not. Both: the
    newest entry known of each stream (microseconds)."""
    return any(noted > now.get(name, 0) for name, noted in past.items())


def narrowed_plan(plan: SharingPlan, instants: Instants) -> SharingPlan:
    """The plan with the windows alone that are answered again."""

    def asked(query: ACQ) -> ACQ:
        at = instants[query.name]
        return query if at is None else replace(query, window=replace(query.window, at=tuple(at.tolist())))

    plan = plan_without(plan, [query.name for query in plan.workload.queries if query.name not in instants])
    trees = tuple(replace(tree, queries=tuple(map(asked, tree.queries))) for tree in plan.trees)
    workload = replace(plan.workload, queries=tuple(map(asked, plan.workload.queries)))
    return replace(plan, trees=trees, workload=workload)


def narrowed_to(parts: Sequence[SynopsisWork], plan: SharingPlan, begin: int) -> list[SynopsisWork]:
    """The parts with the plan's queries alone, and no more history than their windows cover."""
    queries = {query.name: query for query in plan.workload.queries}
    found = []
    for part in parts:
        mine = tuple(queries[query.name] for query in part.queries if query.name in queries)
        if mine and part.synopsis.per is None:
            until = part.end if part.until is None else part.until
            start = history_start([query.window for query in mine], begin, until)
            part = replace(part, begin=max(part.begin, start))
        if mine:
            found.append(replace(part, queries=mine))
    return found


def _distinct(
    warehouse: Warehouse,
    plan: SharingPlan,
    name: str,
    splits: list[Split],
    parts: Sequence[SynopsisWork],
    ends: Mapping[str, int],
    record: RunRecord,
) -> list[Split]:
    """The splits of a stream without the events that come a second time."""
    begin = min((part.begin for part in parts if part.synopsis.stream == name), default=record.begin)
    if any(tree.stream == name and tree.per is not None for tree in plan.trees):
        begin = EVER
    found = distinct(warehouse, plan.workload.stream(name), splits, begin, ends[name])
    repeated = sum(len(repeated_rows(split)) for split in found)
    record.repeated |= {name: repeated} if repeated else {}
    return found


def count_refreshes(
    record: RunRecord,
    plan: SharingPlan,
    before: Mapping[str, int],
    ends: Mapping[str, int],
    unanswered: Sequence[str] = (),
) -> None:
    """Which queries with a refresh bound this run answers when, and by how much that is too late."""
    counts: dict[int, int] = {}
    record.refreshed, record.lateness = {}, {}
    for query in plan.workload.queries:
        window, last = query.window, before.get(query.name)
        if window.at_most is None:
            continue
        until = EVER if query.name in unanswered else ends.get(query.stream, EVER)
        for instant in (at for at in window.at or () if at <= until):
            counts[instant] = counts.get(instant, 0) + 1
            if last is not None and instant - last > window.at_most:
                worst = record.lateness.get(query.name, 0)
                record.lateness[query.name] = max(worst, instant - last - window.at_most)
            last = instant
        if last is not None:
            record.refreshed[query.name] = last
    record.refreshes = [{"at": format_instant(at), "queries": count} for at, count in sorted(counts.items())]


def is_due(query: ACQ, begin: int, until: int) -> bool:
    """Whether a window of the query may end in (begin, until]; of rows nobody knows beforehand."""
    return query.window.is_rows or len(instants_of(query.window, begin, until)) > 0


def silent_streams(
    plan: SharingPlan,
    sources: Mapping[str, list[Split]],
    record: RunRecord,
    ends: Mapping[str, int],
    fresh: Mapping[str, int],
) -> list[dict[str, Any]]:
    """Warnings of streams without events in their part of the interval. ``fresh``: how many were read in this run;
    the others are read up to their first one. Answers prove nothing: their windows may begin before the interval."""
    found, begin = [], record.begin
    for name, splits in sources.items():
        # before its watermark a stream has what it will have; an interval that is all to come is told as a whole
        end = ends[name] if ends[name] > begin else record.end
        if not any(query.stream == name for query in plan.workload.queries):
            continue
        if fresh[name] if name in fresh else has_events(plan.workload.stream(name), splits, begin, end):
            continue
        message = f"stream {name} has no events in [{format_instant(begin)}, {format_instant(end)})"
        begins, until = [split.begin for split in splits], [split.end for split in splits]
        if splits and None not in begins and None not in until:
            first, last = min(at for at in begins if at is not None), max(at for at in until if at is not None)
            message += f"; it has them from {format_instant(first)} to {format_instant(last - 1)}"
        elif not splits:
            message += "; it has none at all"
        hint = "is the interval right (`--from`, `--to`), and does the stream still come in?"
        found.append(Diagnostic("HDL-413", message, hint, severity="warning").to_json())
    return found


def _parts(plan: SharingPlan, begin: int, ends: dict[str, int]) -> list[SynopsisWork]:
    parts = []
    for tree in plan.trees:
        if tree.stream not in ends or tree.per is not None:
            continue
        for synopsis, queries in synopses_of(plan.workload.stream(tree.stream), tree.queries, tree.together).items():
            until = ends[tree.stream]
            windows = [query.window for query in queries]
            start = history_start(windows, begin, until)
            end = synopsis.fragments.last_edge(until - min(window.ago for window in windows))
            if start < end:
                parts.append(SynopsisWork(synopsis, queries, start, end, until))
    return merged(parts)


def content_hash(
    plan: SharingPlan,
    parts: Sequence[SynopsisWork],
    sources: dict[str, list[Split]],
    ends: dict[str, int],
    begin: int,
    end: int,
) -> str:
    """Hash of all that decides the answers of an interval; the plan's shape is not among it."""
    tokens = []
    for name, splits in sorted(sources.items()):
        first = min((part.begin for part in parts if part.synopsis.stream == name), default=end)
        if any(tree.stream == name and tree.per is not None for tree in plan.trees):
            first = EVER  # rows are numbered from the stream's first
        tokens.append([name, snapshot_token(splits, first, ends[name]), ends[name]])
    return digest([query_hash(plan), tokens, begin, end])


def query_hash(plan: SharingPlan) -> str:
    """Hash of all that decides the answers of an interval but the sources: what is asked of which column of times."""
    times = sorted((stream.name, stream.time) for stream in plan.workload.streams)
    return digest([FORMAT, plan.workload.fingerprint, times])


def report_failure(part: SynopsisWork, failed: SynopsisFailure, record: RunRecord) -> list[str]:
    """Report the queries of a synopsis that could not be filled; their names."""
    hint = "filter, or group by a column with fewer values; the other queries were answered"
    for query in part.queries:
        record.diagnostics.append(Diagnostic(failed.code, failed.message, hint, query=query.name).to_json())
    return [query.name for query in part.queries]


def plan_without(plan: SharingPlan, names: Sequence[str]) -> SharingPlan:
    """The plan as far as it was answered."""
    if not names:
        return plan
    left = [
        replace(tree, queries=tuple(query for query in tree.queries if query.name not in names)) if held else None
        for tree in plan.trees
        for held in [any(query.name not in names for query in tree.queries)]
    ]
    queries = tuple(query for query in plan.workload.queries if query.name not in names)
    trees = tuple(tree for tree in left if tree is not None)
    return replace(
        plan, trees=trees, workload=replace(plan.workload, queries=queries), tree_costs=(Fraction(0),) * len(trees)
    )
