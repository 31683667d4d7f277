"""One run: partials, finals, audit and publication of one interval of event time, in one Spark session.

    spark-submit spark_jobs/run.py --warehouse DIR --plan-version N --from T --to T --run-id ID

A run over [from, to) publishes exactly the windows whose end lies in (from, to], up to the watermark of their
stream (the clock less its lateness). It reads as much earlier history as those windows cover, but computes only the
partials that no earlier run left behind for the same content. Running it again changes nothing: the same content is
published once, and a retry goes on under the revision that its run id was given.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

if __name__ == "__main__":  # spark-submit puts this file's folder first; the project root is its parent
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from numpy.typing import NDArray

from optimizer import refreshes
from optimizer.errors import Diagnostic, HeddleError
from optimizer.plan import SharingPlan
from optimizer.query import ACQ, Stream, digest
from optimizer.synopsis import FORMAT, Synopsis, counts_of, synopses_of
from optimizer.window import DAY, Fragments, day_label, day_pieces, history_start
from spark_jobs.arrivals import Arrival, Change, Radius, admitted, change, distinct, ledger, newest
from spark_jobs.calibration import Work, fit_of, predict
from spark_jobs.data_docs import FOLDER
from spark_jobs.files import BUCKETS, CHECKED, DataFile, Failed, Task, read_file, reading, write_files
from spark_jobs.final_aggregates import COUNTED, Part, finals_task, merged
from spark_jobs.lifecycle import beside
from spark_jobs.partial_aggregates import PARTIALS, Span, columns_of_synopsis, lift_task
from spark_jobs.planning import load_plan, refreshed_at
from spark_jobs.quality import audit, sample
from spark_jobs.rows import Counts, first_day, row_finals_task, rows_task
from spark_jobs.sequence_aggregates import Rolled, sequence_task, write_joined
from spark_jobs.session import cpu_seconds, start_session
from spark_jobs.sources import (
    Split,
    check_columns,
    format_instant,
    parse_instant,
    repeated_rows,
    snapshot_token,
    splits_of,
)
from spark_jobs.statistics import FEATURES, Measured, events_between, groups_per_fragment
from spark_jobs.tables import INSTANT, Warehouse, micros

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

Report = Callable[[str], None]

ROWS_A_TASK = 2_000_000
"""Partial rows that one task of the final stage should hold at most (all buckets of it together)."""


_USED: WeakSet[SparkContext] = WeakSet()
"""Where a job of ours has run: the first one pays for starting the workers and loading classes."""

Instants = Mapping[str, "NDArray[np.int64] | None"]
"""The instants at which queries are answered: all of those that have None, none of those that are not there."""

EVER = -(1 << 62)
"""Before every instant."""

OF_THE_WAREHOUSE = ("HDL-510", "HDL-511", "HDL-512", "HDL-513", "HDL-540", "HDL-542", "HDL-543", "HDL-544")
"""Codes of what is no stream's fault: it fails the run, not that stream alone."""


@dataclass
class RunRecord:
    """What a run did: stored in the publish log and shown by ``heddle status``.

    ``status``: ``published``, ``unchanged`` (the same content was published before) or ``failed``. ``rows_scanned``
    counts events read in the interval and the history it needed, ``scanned`` the same a stream with the span
    (begin, end, events; microseconds); ``partials_written`` rows of the partials table;
    ``synopses_reused`` synopses whose history was already there; ``features`` how much of each of
    :data:`spark_jobs.statistics.FEATURES` explains ``cpu_seconds``. What the plan's costs predicted
    beforehand, and what they make of the features, is in CPU seconds of all stages (:mod:`spark_jobs.calibration`);
    ``prediction_error`` is (predicted - measured) / measured. Times in seconds.

    Of queries with a refresh bound: ``refreshes`` says how many were answered at which instant (``at``, ``queries``);
    ``refreshed`` when each was answered last, before this run or by it; ``lateness`` by how much its bound was
    exceeded, of those that were late (microseconds of data time).

    Of the sources: ``listed`` the newest entry known of each stream's ledger (microseconds), ``failed`` streams
    that could not be listed, ``refused`` events of streams that came later than is allowed (in all of their files),
    ``repeated`` events that were left out because they had come before (on the days that the run looked at).
    ``radius``: what had changed of an interval that was published before (:class:`spark_jobs.arrivals.Radius`);
    ``narrow``: only the windows that it may have changed were published again, which is so if ``basis``, the hash of
    what decides answers beside the sources, is what it was.
    """

    run_id: str
    plan_version: int
    begin: int
    end: int
    revision: int = 0
    status: str = "failed"
    answers: int = 0
    queries: int = 0
    rows_scanned: int = 0
    rows_without_time: int = 0
    partials_written: int = 0
    synopses: int = 0
    synopses_reused: int = 0
    session_starts: int = 1
    features: dict[str, int] = field(default_factory=dict)
    predicted_cpu_seconds: float | None = None
    explained_cpu_seconds: float | None = None
    prediction_error: float | None = None
    scanned: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    withheld: dict[str, str] = field(default_factory=dict)
    listed: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    repeated: dict[str, int] = field(default_factory=dict)
    radius: dict[str, Any] | None = None
    basis: str = ""
    narrow: bool = False
    live: bool = False
    late: bool = False
    refreshes: list[dict[str, Any]] = field(default_factory=list)
    refreshed: dict[str, int] = field(default_factory=dict)
    lateness: dict[str, int] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    wall_seconds: dict[str, float] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)
    diagnostics: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"format_version": 1, **asdict(self)} | {
            "begin": format_instant(self.begin),
            "end": format_instant(self.end),
        }


class _Stages:
    """Measures CPU and wall seconds of each stage into a record, and reports its start."""

    def __init__(self, record: RunRecord, report: Report) -> None:
        self.record, self.report = record, report

    def __call__(self, name: str, saying: str) -> _Stages:
        self.name = name
        self.report(saying)
        return self

    def __enter__(self) -> None:
        self.cpu, self.wall = cpu_seconds(), time.perf_counter()

    def __exit__(self, *_: object) -> None:
        for book, spent in (
            (self.record.cpu_seconds, cpu_seconds() - self.cpu),
            (self.record.wall_seconds, time.perf_counter() - self.wall),
        ):
            book[self.name] = round(book.get(self.name, 0.0) + spent, 3)


def run(
    spark: SparkSession,
    warehouse: Warehouse,
    plan_version: int,
    begin: int,
    end: int,
    run_id: str,
    *,
    as_of: int | None = None,
    recompute: bool = False,
    live: bool = False,
    late: bool = False,
    report: Report = lambda line: None,
) -> RunRecord:
    """Compute, check and publish the answers of one interval.

    ``begin``, ``end``: the interval [begin, end) in microseconds. ``as_of``: the clock for the watermark
    (microseconds; default: now). ``recompute``: publish a new revision even if nothing changed. ``live``: the next
    live run goes on where this one ends (:func:`spark_jobs.planning.due`). ``late``: the run came too late for some of
    the refreshes in the interval: queries with a refresh bound are answered at its last instant alone.

    A stream that cannot be read fails alone: its previous answers stay and the others' are published.
    Raises HeddleError when nothing could be published (HDL-5xx; the checks failed: HDL-530).
    """
    if end <= begin:
        raise HeddleError("HDL-504", "the interval is empty: --to must be after --from")
    plan = load_plan(warehouse, plan_version)
    costs = fit_of(warehouse)
    clock = as_of if as_of is not None else time.time_ns() // 1000
    record = RunRecord(run_id, plan_version, begin, end, queries=len(plan.workload.queries), live=live, late=late)
    record.features = dict.fromkeys(FEATURES, 0) | {"runs": 1, "sessions": int(spark.sparkContext not in _USED)}
    stages = _Stages(record, report)
    follows = warehouse.version("results")
    with stages("list", "listing sources"):
        known = listed(warehouse, plan, clock, run_id)
        record.diagnostics += known.problems
        plan, before, sources, failed, ends, parts, content = _prepared(warehouse, plan, record, clock, known)
        record.listed, record.failed = {name: newest(files) for name, files in known.arrivals.items()}, failed
        for name, files in known.arrivals.items():
            refused = sum(one.late for one in files.values() if one.is_here)
            record.refused |= {name: refused} if refused else {}
    _reconcile(warehouse, begin, end)
    if not recompute and (previous := _published(warehouse, begin, end, content)) is not None:
        record.status, record.revision, record.answers = (
            "unchanged",
            previous["revision"],
            previous["answers"],
        )
        report(f"nothing changed since revision {record.revision}")
        return record
    _count_refreshes(record, plan, before, ends)
    earlier = [row for row in _log_rows(warehouse, begin, end) if row["event"] == "published"]
    base = None if recompute else _base(warehouse, record, ends)
    record.revision = _revision(warehouse, record, content, recompute)
    spans: list[Span] = []
    unanswered: list[str] = []
    with stages("partials", "computing partial aggregates"):
        for name in list(sources):
            try:
                mine = [part for part in parts if part.synopsis.stream == name]
                counters = _counters(plan, name, sources[name], ends[name])
                filled, broken = _write_partials(
                    spark, warehouse, plan.workload.stream(name), [*mine, *counters], sources[name], record
                )
                spans += filled
                if counters:
                    numbered, filled, others = _write_rows(
                        spark, warehouse, plan, name, counters, broken, sources[name], begin, record
                    )
                    spans, mine, parts, broken = spans + filled, mine + numbered, parts + numbered, broken | others
            except Exception as error:
                coded = _coded(error)
                if coded.diagnostic.code in OF_THE_WAREHOUSE:
                    raise coded from error
                failed.append(name)
                del sources[name], ends[name]
                record.diagnostics.append(coded.diagnostic.to_json())
                continue
            for part in [part for part in mine if part.synopsis.fingerprint in broken]:
                parts.remove(part)
                unanswered += _told(part, broken[part.synopsis.fingerprint], record)
        parts = [part for part in parts if part.synopsis.stream in sources]
        if not sources:
            _refuse(warehouse, record, "HDL-505", "none of the plan's streams could be read")
        if unanswered and not parts:
            _refuse(warehouse, record, "HDL-517", "none of the plan's queries could be answered")
        instants: Instants | None = None
        if earlier:
            changed = _change(plan, parts, sources, ends, base or earlier[-1], known, record)
            record.radius = asdict(changed.radius)
            names = {query.name for query in plan.workload.queries if query.stream in sources}
            record.narrow = base is not None and any(changed.instants.get(name, ()) is not None for name in names)
            instants = changed.instants if record.narrow else None
        found = _content(plan, parts, sources, ends, begin, end)
        if found != content:  # a revision says what it is a revision of, also if this process dies before it logs it
            content, record.revision = found, _revision(warehouse, record, found, recompute)
        _count_refreshes(record, plan, before, ends, unanswered)
    answered = _without(plan, unanswered)
    if instants is not None:
        answered = _narrowed(answered, instants)
        parts = _asked(parts, answered, begin)
    with stages("finals", "computing final aggregates"):
        staged = _write_finals(spark, warehouse, parts, sources, begin, record)
        record.answers = sum(file.rows for file in staged)
        record.features |= {"queries": sum(len(part.queries) for part in parts), "answers": record.answers}
    paths = [warehouse.root / "results" / file.path for file in staged]
    try:
        with stages("audit", "checking the answers"):
            seed = digest([run_id, record.revision])
            docs = warehouse.root / FOLDER
            record.checks = audit(spark, [str(path) for path in paths], answered, sources, begin, ends, seed, docs)
            _log_checks(warehouse, record)
            wrong = [check for check in record.checks if not check["success"]]
            if wrong:
                detail = "; ".join(f"{check['check']}: {check['detail']}" for check in wrong)
                _refuse(warehouse, record, "HDL-530", f"the checks failed, nothing was published: {detail}")
    except BaseException as error:
        for path in paths:  # no commit names them
            path.unlink(missing_ok=True)
        if not isinstance(error, HeddleError):
            record.diagnostics.append(Diagnostic("HDL-531", f"a check crashed: {error}").to_json())
            _log(warehouse, record, "failed", None, None)
        raise
    with stages("publish", "publishing"):
        resting = beside(warehouse, plan_version, [query.name for query in plan.workload.queries])
        since = max(follows, base["table_version"] if base is not None else 0)
        table_version = _publish(warehouse, record, staged, failed, [*unanswered, *resting], instants, since)
    record.status = "published"
    sampled = sample(answered.workload.queries, sources, begin, ends, random.Random(seed))
    record.features["queries_recomputed"] = len(sampled)
    record.features["events_recomputed"] = round(
        sum(events_between(sources[query.stream], *window) for query, windows in sampled for window in windows)
    )
    timed = [part for part in parts if part.synopsis.per is None and part.synopsis.sequenced is None]
    filled_spans = [span for span in spans if span.synopsis.per is None and span.synopsis.sequenced is None]
    predict(costs, warehouse, plan, record, Work(begin, timed, filled_spans, sources))
    _log_statistics(warehouse, record)
    _log(warehouse, record, "published", content, table_version)
    return record


# ------------------------------------------------------------------------------------------- planning
class _Prepared(NamedTuple):
    """What a run sets out to do: the plan with the instants to be answered (``before``: when queries with a refresh
    bound were answered last), what its streams hold and up to when, the synopses, and the hash of all that decides."""

    plan: SharingPlan
    before: dict[str, int]
    sources: dict[str, list[Split]]
    failed: list[str]
    ends: dict[str, int]
    parts: list[Part]
    content: str


class Listed(NamedTuple):
    """What the streams of a plan hold and the ledger of their files, the names of those that cannot be listed and what
    is wrong with them."""

    sources: dict[str, list[Split]]
    arrivals: dict[str, dict[str, Arrival]]
    failed: list[str]
    problems: list[dict[str, Any]]


def listed(warehouse: Warehouse, plan: SharingPlan, clock: int, note: str | None = None) -> Listed:
    """The splits of every stream of a plan that can be listed, to be looked at for many intervals.

    ``note``: the run whose listing this is; it enters new files into the ledger (:mod:`spark_jobs.arrivals`). None:
    nothing is written.
    """
    found = Listed({}, {}, [], [])
    for name in dict.fromkeys(tree.stream for tree in plan.trees):
        try:
            stream = plan.workload.stream(name)
            queries = plan.workload.queries_of(name)
            columns = {column for query in queries for column in query.columns()}
            if any(query.window.is_rows for query in queries):
                columns |= {column for column, _ in stream.schema}  # rows of equal times are ordered by all of them
            taken = None
            while taken is None:
                files = ledger(warehouse, name)
                splits = splits_of(stream)
                check_columns(stream, splits, sorted(columns | ({stream.event_id} if stream.event_id else set())))
                taken = admitted(warehouse, stream, files, splits, clock, note)
            found.sources[name], found.arrivals[name] = taken
        except HeddleError as error:
            if error.diagnostic.code in OF_THE_WAREHOUSE:
                raise
            found.problems.append(error.diagnostic.to_json())
            found.failed.append(name)
    return found


def _prepared(warehouse: Warehouse, plan: SharingPlan, record: RunRecord, clock: int, known: Listed) -> _Prepared:
    begin, end = record.begin, record.end
    before = refreshed_at(warehouse, begin)
    wanted = (refreshes.late if record.late else refreshes.ticks)(plan.schedules, begin, end, before)
    plan = refreshes.pinned(plan, wanted, begin, end)
    sources, failed = dict(known.sources), list(known.failed)
    ends = {name: min(end, clock - plan.workload.stream(name).lateness) for name in sources}
    record.withheld = {name: format_instant(at) for name, at in ends.items() if at < end}
    parts = _parts(plan, begin, ends)
    for name in list(sources):
        try:
            sources[name] = _distinct(warehouse, plan, name, sources[name], parts, ends, record)
        except HeddleError as error:
            if error.diagnostic.code in OF_THE_WAREHOUSE:
                raise
            record.diagnostics.append(error.diagnostic.to_json())
            failed.append(name)
            del sources[name], ends[name]
    parts = [part for part in parts if part.synopsis.stream in sources]
    record.basis = _basis(plan)
    return _Prepared(plan, before, sources, failed, ends, parts, _content(plan, parts, sources, ends, begin, end))


@dataclass(frozen=True)
class Price:
    """What a run over (begin, end] would be: ``published`` if it would change nothing; else the events that it would
    read, about, and the CPU seconds that the plan's costs predict. Windows of rows are not in the price."""

    begin: int
    end: int
    published: bool
    events: int = 0
    cpu_seconds: float = 0.0


def price(
    warehouse: Warehouse, plan: SharingPlan, plan_version: int, begin: int, end: int, clock: int, known: Listed
) -> Price:
    """The price of a run, without running it, and without a JVM. ``known``: what the streams hold."""
    record = RunRecord("price", plan_version, begin, end)
    record.features = dict.fromkeys(FEATURES, 0) | {"runs": 1}
    plan, _, sources, _, ends, parts, content = _prepared(warehouse, plan, record, clock, known)
    if _published(warehouse, begin, end, content) is not None:
        return Price(begin, end, True)
    timed = [part for part in parts if part.synopsis.sequenced is None]
    spans: list[Span] = []
    for name, splits in sources.items():
        spans += _gaps(warehouse, [part for part in parts if part.synopsis.stream == name], splits, record)
    events = sum(
        events_between(sources[name], min(span.begin for span in mine), min(ends[name], max(span.end for span in mine)))
        for name in sources
        if (mine := [span for span in spans if span.synopsis.stream == name])
    )
    filled = [span for span in spans if span.synopsis.sequenced is None]
    predict(fit_of(warehouse), warehouse, plan, record, Work(begin, timed, filled, sources))
    return Price(begin, end, False, round(events), record.predicted_cpu_seconds or 0.0)


def changed_since(
    warehouse: Warehouse, plan: SharingPlan, row: Mapping[str, Any], clock: int, known: Listed
) -> Radius | None:
    """What has changed of what a row of the log published, the newest publication of its interval, by the plan that it
    was pinned to: events came late, or went, or windows have ended that were withheld. None: it would have the same
    content."""
    past = json.loads(row["record"])
    begin, end = micros(row["interval_start"]), micros(row["interval_end"])
    record = RunRecord("check", row["plan_version"], begin, end, late=past.get("late", False))
    pinned, _, sources, _, ends, parts, content = _prepared(warehouse, plan, record, clock, known)
    if content == row["content"]:
        return None
    return _change(pinned, parts, sources, ends, row, known, record).radius


def _change(
    plan: SharingPlan,
    parts: Sequence[Part],
    sources: Mapping[str, list[Split]],
    ends: Mapping[str, int],
    row: Mapping[str, Any],
    known: Listed,
    record: RunRecord,
) -> Change:
    """What has changed since a row of the log published the record's interval."""
    past = json.loads(row["record"])
    cut: dict[str, list[Fragments]] = {}
    for part in parts:
        if part.synopsis.per is None:
            cut.setdefault(part.synopsis.stream, []).append(part.synopsis.fragments)
    return change(plan, sources, known.arrivals, record.begin, ends, _knew(past), _due(past), cut)


def _knew(past: Mapping[str, Any]) -> dict[str, int]:
    """The newest entry of each stream's ledger that a run knew (microseconds)."""
    listed = past.get("listed")
    return listed if isinstance(listed, dict) else {}  # an earlier Heddle did not tell: everything may have come since


def _due(past: Mapping[str, Any]) -> dict[str, int]:
    """Up to where the windows of streams were answered that were withheld in part."""
    return {name: parse_instant(at) for name, at in past["withheld"].items()}


def _base(warehouse: Warehouse, record: RunRecord, ends: Mapping[str, int]) -> dict[str, Any] | None:
    """The log's row of the publication since which only some windows may have changed; None: all of them may.

    There is one if the newest publication that overlaps the interval was of this interval, of all that is asked now and
    of no file that this run does not know: an answer that is not touched is then what a run over everything would
    publish.
    """
    row = _newest(warehouse, record.begin, record.end)
    if row is None or not row["table_version"] or _interval_of(row) != _interval(record.begin, record.end):
        return None
    past = json.loads(row["record"])
    due = _due(past)
    same = past["status"] == "published" and past.get("basis") == record.basis and not past["diagnostics"]
    if not same or _overtaken(_knew(past), record.listed):
        return None
    return row if all(at >= due.get(name, record.end) for name, at in ends.items()) else None


def _overtaken(past: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Whether a publication knew entries of a stream's ledger that a run, which listed earlier, does not. Both: the
    newest entry known of each stream (microseconds)."""
    return any(noted > now.get(name, 0) for name, noted in past.items())


def _narrowed(plan: SharingPlan, instants: Instants) -> SharingPlan:
    """The plan with the windows alone that are answered again."""

    def asked(query: ACQ) -> ACQ:
        at = instants[query.name]
        return query if at is None else replace(query, window=replace(query.window, at=tuple(at.tolist())))

    plan = _without(plan, [query.name for query in plan.workload.queries if query.name not in instants])
    trees = tuple(replace(tree, queries=tuple(map(asked, tree.queries))) for tree in plan.trees)
    workload = replace(plan.workload, queries=tuple(map(asked, plan.workload.queries)))
    return replace(plan, trees=trees, workload=workload)


def _asked(parts: Sequence[Part], plan: SharingPlan, begin: int) -> list[Part]:
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
    parts: Sequence[Part],
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


def _count_refreshes(
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


def _parts(plan: SharingPlan, begin: int, ends: dict[str, int]) -> list[Part]:
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
                parts.append(Part(synopsis, queries, start, end, until))
    return merged(parts)


def _content(
    plan: SharingPlan,
    parts: Sequence[Part],
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
    return digest([_basis(plan), tokens, begin, end])


def _basis(plan: SharingPlan) -> str:
    """Hash of all that decides the answers of an interval but the sources: what is asked of which column of times."""
    times = sorted((stream.name, stream.time) for stream in plan.workload.streams)
    return digest([FORMAT, plan.workload.fingerprint, times])


def _told(part: Part, failed: Failed, record: RunRecord) -> list[str]:
    """Report the queries of a synopsis that could not be filled; their names."""
    hint = "filter, or group by a column with fewer values; the other queries were answered"
    for query in part.queries:
        record.diagnostics.append(Diagnostic(failed.code, failed.message, hint, query=query.name).to_json())
    return [query.name for query in part.queries]


def _without(plan: SharingPlan, names: Sequence[str]) -> SharingPlan:
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


# ------------------------------------------------------------------------------------------- partials
def _write_partials(
    spark: SparkSession,
    warehouse: Warehouse,
    stream: Stream,
    parts: Sequence[Part],
    splits: list[Split],
    record: RunRecord,
) -> tuple[list[Span], dict[str, Failed]]:
    """Fill what is missing of one stream's synopses, in one pass over its source and one commit.

    Returns what was missing and filled, and by fingerprint what could not be: nothing is stored of those.
    """
    spans = _gaps(warehouse, parts, splits, record)
    if not spans:
        return [], {}
    rows = spark.sparkContext.accumulator(0)
    untimed = spark.sparkContext.accumulator(0)
    first, last = min(span.begin for span in spans), max(span.end for span in spans)
    wanted = [split for split in splits if split.may_hold(first, last)]
    columns = sorted({column for span in spans for column in columns_of_synopsis(span.synopsis)})
    task = lift_task(stream, wanted, spans, columns, warehouse.path("partials"), rows, untimed)
    files, broken = _written(spark, len(wanted), 4 * spark.sparkContext.defaultParallelism, task)
    spans = _store(warehouse, stream, splits, spans, files, broken, record)
    record.scanned[stream.name] = (first, last, rows.value)
    record.rows_scanned += rows.value
    for feature, amount in (
        ("events", rows.value),
        ("tree_tuples", rows.value * len({span.synopsis.edges for span in spans})),
        ("family_tuples", rows.value * len(spans)),
    ):
        record.features[feature] += amount
    record.rows_without_time += untimed.value
    return spans, broken


def _gaps(warehouse: Warehouse, parts: Sequence[Part], splits: list[Split], record: RunRecord) -> list[Span]:
    """What is not stored of the parts of a stream for its source as it is now."""
    pieces = _coverage(warehouse, [part.synopsis.fingerprint for part in parts])
    found = (_missing(part, pieces.get(part.synopsis.fingerprint, []), splits) for part in parts)
    spans = [span for span in found if span is not None]
    record.synopses += len(parts)
    record.synopses_reused += len(parts) - len(spans)
    return spans


def _store(
    warehouse: Warehouse,
    stream: Stream,
    splits: list[Split],
    spans: Sequence[Span],
    files: list[DataFile],
    broken: Mapping[str, Failed],
    record: RunRecord,
) -> list[Span]:
    """Commit what tasks wrote for some spans, without the synopses that failed; the spans that are stored now."""
    root = warehouse.path("partials")
    if broken:
        spans = [span for span in spans if span.synopsis.fingerprint not in broken]
        files = _only(Path(root), files, {span.synopsis.fingerprint for span in spans})
    if not spans:
        return []
    first, last = min(span.begin for span in spans), max(span.end for span in spans)
    written = sum(file.rows for file in files)
    record.partials_written += written
    record.features["partial_rows_written"] += written
    files += write_files(root, _completed(stream, splits, spans))
    begins = {span.synopsis.fingerprint: span.begin for span in spans}
    ends = {span.synopsis.fingerprint: span.end for span in spans}

    def replaced(stored: pa.Table) -> pa.Array:
        encoded = stored["fingerprint"].combine_chunks().dictionary_encode()
        names = encoded.dictionary.to_pylist()
        # a synopsis that this run does not fill loses no row: its span is empty
        low = pa.array([begins.get(name, 0) for name in names], pa.int64()).take(encoded.indices)
        high = pa.array([ends.get(name, 0) for name in names], pa.int64()).take(encoded.indices)
        starts = stored["fragment_start"]
        return pc.and_(pc.greater_equal(starts, low), pc.less(starts, high))

    def untouched(file: dict[str, Any]) -> bool:
        return bool(file["max.fragment_start"] < first or file["min.fragment_start"] >= last)

    days = day_label(first), day_label(last - 1)
    # replacing the same cells by the same rows is idempotent by itself: the revision only has to grow
    warehouse.replace("partials", files, days, replaced, "/".join(days), None, untouched)
    return list(spans)


# ------------------------------------------------------------------------------------- windows of rows
def _counters(plan: SharingPlan, name: str, splits: list[Split], until: int) -> list[Part]:
    """What counts the rows of every day of a stream, for its windows of rows (:mod:`spark_jobs.rows`)."""
    pers = dict.fromkeys(tree.per for tree in plan.trees if tree.stream == name and tree.per is not None)
    first = first_day(plan.workload.stream(name), splits) if pers else None
    if first is None or first >= until:
        return []
    end = -(-until // DAY) * DAY
    return [Part(counts_of(plan.workload.stream(name), per), (), first, end, until) for per in pers]


def _write_rows(
    spark: SparkSession,
    warehouse: Warehouse,
    plan: SharingPlan,
    name: str,
    counters: Sequence[Part],
    uncounted: Mapping[str, Failed],
    splits: list[Split],
    begin: int,
    record: RunRecord,
) -> tuple[list[Part], list[Span], dict[str, Failed]]:
    """Fill what is missing of the synopses of one stream's windows of rows, once its rows are counted.

    Returns what they have to answer, what was filled, and by fingerprint what could not be.
    """
    stream, until, end = plan.workload.stream(name), counters[0].until or counters[0].end, counters[0].end
    counts = {
        part.synopsis.bucket_by: Counts.of(part.synopsis, _stored_rows(warehouse, part))
        for part in counters
        if part.synopsis.fingerprint not in uncounted
    }
    broken: dict[str, Failed] = {}
    parts: list[Part] = []
    for tree in plan.trees:
        if tree.stream != name or tree.per is None:
            continue
        for synopsis, queries in synopses_of(stream, tree.queries).items():
            if tree.per not in counts:
                failed = uncounted[counts_of(stream, tree.per).fingerprint]
                broken[synopsis.fingerprint] = replace(failed, fingerprint=synopsis.fingerprint)
                parts.append(Part(synopsis, queries, end - DAY, end, until))
                continue
            start = counts[tree.per].history_start([query.window for query in queries], begin, until)
            if start < until:
                parts.append(Part(synopsis, queries, start, end, until))
    parts = merged(parts)
    spans = _gaps(warehouse, [part for part in parts if part.synopsis.fingerprint not in broken], splits, record)
    if not spans:
        return parts, [], broken
    # a task lifts whole days for all of them
    first, last = min(span.begin for span in spans), max(span.end for span in spans)
    spans = [replace(span, begin=first, end=last) for span in spans]
    blocks = next(iter(counts.values())).blocks(first, last)
    rows = spark.sparkContext.accumulator(0)
    synopses = [span.synopsis for span in spans]
    task = rows_task(stream, splits, blocks, synopses, counts, warehouse.path("partials"), rows)
    files, failed_too = _written(spark, len(blocks), spark.sparkContext.defaultParallelism, task)
    spans = _store(warehouse, stream, splits, spans, files, failed_too, record)
    record.features["events"] += rows.value
    return parts, spans, broken | failed_too


def _stored_rows(warehouse: Warehouse, part: Part) -> pa.Table:
    """The stored partial rows of a part."""
    starts = ds.field("fragment_start")
    mine = (ds.field("fingerprint") == part.synopsis.fingerprint) & ds.field("key").is_valid()
    days = (ds.field("day") >= day_label(part.begin)) & (ds.field("day") <= day_label(part.end - 1))
    table = warehouse.dataset("partials")
    with reading(warehouse.path("partials")):
        chosen = mine & days & (starts >= part.begin) & (starts < part.end)
        rows = table.to_table(filter=chosen, fragment_scan_options=CHECKED)
    return rows.select(PARTIALS.names).cast(PARTIALS)


def _only(root: Path, files: Sequence[DataFile], fingerprints: set[str]) -> list[DataFile]:
    """The files of partial rows without those of synopses that are not whole."""
    found: list[DataFile] = []
    for file in files:
        rows = read_file(root / file.path)
        kept = rows.filter(pc.is_in(rows["fingerprint"], pa.array(sorted(fingerprints), pa.string())))
        if len(kept) == len(rows):
            found.append(file)
            continue
        (root / file.path).unlink()
        found += write_files(root, kept.append_column("day", pa.array([file.day] * len(kept), pa.string())))
    return found


def _written(spark: SparkSession, pieces: int, most: int, task: Task) -> tuple[list[DataFile], dict[str, Failed]]:
    """Run a task that writes files for the numbers 0 .. pieces - 1 on at most ``most`` workers at once.

    Returns the files, and what failed alone by fingerprint.
    """
    outcomes = _outcomes(spark, pieces, most, task)
    files = [outcome for outcome in outcomes if isinstance(outcome, DataFile)]
    return files, {outcome.fingerprint: outcome for outcome in outcomes if isinstance(outcome, Failed)}


def _outcomes(spark: SparkSession, pieces: int, most: int, task: Callable[[Iterable[int]], Iterator[Any]]) -> list[Any]:
    if pieces == 0:
        return []
    _USED.add(spark.sparkContext)
    # not through SQL: planning, compiling and fetching a query costs more than this whole job
    job = spark.sparkContext.parallelize(range(pieces), min(pieces, most)).mapPartitions(task)
    try:
        found: list[Any] = job.collect()
    except Exception as error:
        raise _coded(error) from error
    return found


def _completed(stream: Stream, splits: list[Split], spans: Sequence[Span]) -> pa.Table:
    """Rows that say of each span, day by day, that it is complete, and for which content of the source."""
    rows = [
        {
            "day": day_label(first),
            "stream": stream.name,
            "fingerprint": span.synopsis.fingerprint,
            "fragment_start": first,
            "fragment_end": last,
            "key": None,
            "shard": None,
            "bucket": -1,
            "longs": [],
            "doubles": [],
            "texts": [_token(span.synopsis, splits, first, last)],
        }
        for span in spans
        for first, last in day_pieces(span.begin, span.end)
    ]
    return pa.Table.from_pylist(rows, schema=PARTIALS)


def _token(synopsis: Synopsis, splits: list[Split], begin: int, end: int) -> str:
    """The state of what the partial aggregates of [begin, end) come from: row numbers from all that is before, too."""
    return snapshot_token(splits, begin if synopsis.per is None else EVER, end)


def _coverage(
    warehouse: Warehouse, fingerprints: list[str], current: DeltaTable | None = None
) -> dict[str, list[tuple[int, int, str]]]:
    """Complete pieces [begin, end) of each synopsis with the token of the source they were computed from."""
    if not fingerprints:
        return {}
    table = warehouse.dataset("partials", current)
    with reading(warehouse.path("partials")):
        found = table.to_table(
            columns=["fingerprint", "fragment_start", "fragment_end", "texts"],
            filter=ds.field("key").is_null() & ds.field("fingerprint").isin(fingerprints),
            fragment_scan_options=CHECKED,
        )
    pieces: dict[str, list[tuple[int, int, str]]] = {}
    for row in found.to_pylist():
        piece = (row["fragment_start"], row["fragment_end"], row["texts"][0])
        pieces.setdefault(row["fingerprint"], []).append(piece)
    return {fingerprint: sorted(found) for fingerprint, found in pieces.items()}


def _missing(part: Part, pieces: list[tuple[int, int, str]], splits: list[Split]) -> Span | None:
    """What of [begin, end) is not stored for the source as it is now, widened to whole pieces; None if nothing."""
    valid = [piece for piece in pieces if piece[2] == _token(part.synopsis, splits, piece[0], piece[1])]
    gaps, at = [], part.begin
    for first, last, _ in valid:
        if last <= at or first >= part.end:
            continue
        if first > at:
            gaps.append((at, first))
        at = max(at, last)
    if at < part.end:
        gaps.append((at, part.end))
    if not gaps:
        return None
    begin, end = gaps[0][0], gaps[-1][1]
    for first, last, _ in pieces:
        if first < end and last > begin:
            begin, end = min(begin, first), max(end, last)
    return Span(part.synopsis, begin, end)


# --------------------------------------------------------------------------------------------- finals
def _write_finals(
    spark: SparkSession,
    warehouse: Warehouse,
    parts: Sequence[Part],
    sources: Mapping[str, list[Split]],
    begin: int,
    record: RunRecord,
) -> list[DataFile]:
    """Compute every answer into files of the results table that no commit names yet."""
    if not parts:
        return []
    current = warehouse.table("partials")
    pieces = _coverage(warehouse, [part.synopsis.fingerprint for part in parts], current)
    for part in parts:
        if _missing(part, pieces.get(part.synopsis.fingerprint, []), sources[part.synopsis.stream]) is not None:
            message = "another run or maintenance has replaced partial aggregates that this run goes on with"
            _refuse(warehouse, record, "HDL-541", message, "run it again")
    # event sequences are stored by days
    first = min(part.begin if part.synopsis.sequenced is None else part.begin // DAY * DAY for part in parts)
    last = max(part.end for part in parts)
    root = warehouse.root / "partials"
    needed = [
        file
        for file in warehouse.files("partials", day_label(first), day_label(last - 1), current)
        if file["max.fragment_start"] >= first and file["min.fragment_start"] < last
    ]
    stamp = {
        "plan_version": pa.scalar(record.plan_version, pa.int64()),
        "revision": pa.scalar(record.revision, pa.int64()),
        "run_id": pa.scalar(record.run_id, pa.string()),
    }
    paths = [str(root / file["path"]) for file in needed]
    counted = {name: spark.sparkContext.accumulator(0) for name in COUNTED}
    count = partial(_counted, counted)
    rows = sum(file["num_records"] or 0 for file in needed)
    width = max(spark.sparkContext.defaultParallelism, rows // ROWS_A_TASK)
    staged: list[DataFile] = []
    kinds: dict[Any, list[Part]] = {finals_task: [], row_finals_task: [], sequence_task: []}
    for part in parts:
        rows_or_time = finals_task if part.synopsis.per is None else row_finals_task
        kinds[rows_or_time if part.synopsis.sequenced is None else sequence_task].append(part)
    results = warehouse.path("results")
    for answer, mine in kinds.items():
        if mine:
            outcomes = _outcomes(spark, BUCKETS, width, answer(mine, begin, paths, results, stamp, count))
            staged += [outcome for outcome in outcomes if isinstance(outcome, DataFile)]
            scattered = [outcome for outcome in outcomes if isinstance(outcome, Rolled)]
            staged += write_joined(mine, scattered, results, stamp) if scattered else ()
    record.features |= {name: total.value for name, total in counted.items()}
    return staged


def _counted(totals: Mapping[str, Any], feature: str, amount: int) -> None:
    totals[feature].add(amount)


# ------------------------------------------------------------------------------------------ publishing
def _publish(
    warehouse: Warehouse,
    record: RunRecord,
    staged: list[DataFile],
    failed: list[str],
    unanswered: list[str],
    instants: Instants | None = None,
    since: int = 0,
) -> int:
    """Publish the staged files as the answer of the interval, in one commit; the table's version.

    Replaced are the answers of instants in (begin, end], except those of streams that could not be read and of
    queries that could not be answered or are paused; of ``instants`` only, as the version ``since`` of the table has
    all others. Raises HDL-541 if they were published again meanwhile, or anything of the interval was by a run that
    knew more of the source.
    """
    begin, end = pa.scalar(record.begin, INSTANT), pa.scalar(record.end, INSTANT)

    def replaced(stored: pa.Table) -> pa.Array:
        inside = pc.and_(pc.greater(stored["instant"], begin), pc.less_equal(stored["instant"], end))
        kept = pc.or_(
            pc.is_in(stored["stream"], pa.array(failed, pa.string())),
            pc.is_in(stored["query"], pa.array(unanswered, pa.string())),
        )
        chosen = pc.and_(inside, pc.invert(kept))
        return chosen if instants is None else pc.and_(chosen, _among(stored, instants))

    def untouched(file: dict[str, Any]) -> bool:
        # readers of other systems may have written statistics of whole milliseconds
        first, last = file.get("min.instant"), file.get("max.instant")
        near = timedelta(milliseconds=1)
        return (
            first is not None and last is not None and bool(last + near <= begin.as_py() or first - near > end.as_py())
        )

    def whole(file: dict[str, Any]) -> bool:
        inside = day_label(record.begin - 1) < file["day"] < day_label(record.end)
        return bool(inside) and not (failed or unanswered) and instants is None

    def knew_more(row: Mapping[str, Any]) -> bool:
        # also a row from before the publication: that it has published is logged afterwards
        past = _knew(json.loads(row["record"]))
        return _overtaken({name: past.get(name, 0) for name in record.listed if name not in failed}, record.listed)

    def still() -> None:
        for application in warehouse.transactions("results", since):
            begin, end = map(parse_instant, application.split("/")[1:])
            if begin >= record.end or record.begin >= end:
                continue
            if instants is not None or any(map(knew_more, _log_rows(warehouse, begin, end))):
                message = f"another run has published {format_instant(begin)} .. {format_instant(end)} meanwhile"
                raise HeddleError("HDL-541", message, "nothing was published; run it again")

    days = day_label(record.begin), day_label(record.end - 1)
    interval = _interval(record.begin, record.end)
    return warehouse.replace("results", staged, days, replaced, interval, record.revision, untouched, whole, still)


def _among(stored: pa.Table, instants: Instants) -> pa.Array:
    """Which answers are of these instants of their queries."""
    encoded = stored["query"].combine_chunks().dictionary_encode()
    codes, at = encoded.indices.to_numpy(), stored["instant"].cast(pa.int64()).to_numpy()
    found = np.zeros(len(stored), dtype=bool)
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        if name in instants:
            chosen = instants[name]
            found |= (codes == code) & (chosen is None or np.isin(at, chosen))
    return pa.array(found)


def _log_rows(warehouse: Warehouse, begin: int, end: int) -> list[dict[str, Any]]:
    table = warehouse.dataset("publish_log")
    at = (ds.field("interval_start") == pa.scalar(begin, INSTANT)) & (
        ds.field("interval_end") == pa.scalar(end, INSTANT)
    )
    found: list[dict[str, Any]] = table.to_table(filter=at).sort_by("at").to_pylist()
    return found


def _published(warehouse: Warehouse, begin: int, end: int, content: str) -> dict[str, Any] | None:
    """The log row of the newest publication of an interval if it has the same content, and nothing that
    overlaps the interval was published since."""
    row = _newest(warehouse, begin, end)
    return row if row is not None and _interval_of(row) == _interval(begin, end) and row["content"] == content else None


def _newest(warehouse: Warehouse, begin: int, end: int) -> dict[str, Any] | None:
    """The log row of the newest publication that overlaps [begin, end)."""
    overlaps = (ds.field("interval_start") < pa.scalar(end, INSTANT)) & (
        ds.field("interval_end") > pa.scalar(begin, INSTANT)
    )
    table = warehouse.dataset("publish_log")
    with reading(warehouse.path("publish_log")):
        rows = table.to_table(filter=overlaps & (ds.field("event") == "published")).to_pylist()
    return max(rows, key=lambda row: row["table_version"], default=None)


def _revision(warehouse: Warehouse, record: RunRecord, content: str, recompute: bool) -> int:
    """The revision of this run: the one it was given before if it is a retry, else the next of the interval."""
    with warehouse.lease() as token:
        since = warehouse.version("publish_log")
        rows = _log_rows(warehouse, record.begin, record.end)
        published = {row["revision"] for row in rows if row["event"] == "published"}
        for row in rows:
            again = row["event"] == "allocated" and row["run_id"] == record.run_id and row["content"] == content
            if again and row["revision"] not in published and row["revision"] > max(published, default=0):
                return int(row["revision"])
        revision = 1 + max((int(row["revision"]) for row in rows), default=0)
        warehouse.append("publish_log", [_log_row(record, "allocated", content, None, revision)], token, since=since)
    return revision


def _reconcile(warehouse: Warehouse, begin: int, end: int) -> None:
    """The results table is the truth: log the publications that a crash kept out of the log, of every interval that
    overlaps [begin, end)."""
    if not _unlogged(warehouse, begin, end):
        return
    with warehouse.lease() as token:
        since = warehouse.version("publish_log")
        found = [
            row | {"event": "published", "answers": _answers_of(warehouse, row), "table_version": version, "at": _now()}
            for row, version in _unlogged(warehouse, begin, end)
        ]
        warehouse.append("publish_log", found, token, since=since)


def _unlogged(warehouse: Warehouse, begin: int, end: int) -> list[tuple[dict[str, Any], int]]:
    """The log's rows of revisions that were given out and are not in the log as published, but in the table's log;
    with the version of the table that they made, 0 if that is too long ago."""
    rows = [
        row
        for row in warehouse.rows("publish_log")
        if micros(row["interval_start"]) < end and micros(row["interval_end"]) > begin
    ]
    logged = {(_interval_of(row), row["revision"]) for row in rows if row["event"] == "published"}
    results = warehouse.table("results")
    found = []
    for row in rows:
        if row["event"] != "allocated" or (_interval_of(row), row["revision"]) in logged:
            continue
        application = f"results/{_interval_of(row)}"
        newest = results.transaction_version(application) or 0
        if newest >= row["revision"]:
            version = warehouse.committed("results", application, row["revision"], micros(row["at"]))
            if version is not None or newest == row["revision"]:
                found.append((row, version or 0))
    return found


def _interval_of(row: Mapping[str, Any]) -> str:
    return _interval(micros(row["interval_start"]), micros(row["interval_end"]))


def _interval(begin: int, end: int) -> str:
    return f"{format_instant(begin)}/{format_instant(end)}"


def _answers_of(warehouse: Warehouse, row: dict[str, Any]) -> int:
    """How many answers the publication of a log row left in the results table."""
    results = warehouse.dataset("results")
    mine = (ds.field("run_id") == row["run_id"]) & (ds.field("revision") == row["revision"])
    within = (ds.field("instant") > row["interval_start"]) & (ds.field("instant") <= row["interval_end"])
    return int(results.count_rows(filter=mine & within))


def _now() -> Any:
    return pa.scalar(time.time_ns() // 1000, INSTANT).as_py()


def _log_row(
    record: RunRecord, event: str, content: str | None, table_version: int | None, revision: int
) -> dict[str, Any]:
    return {
        "interval_start": pa.scalar(record.begin, INSTANT).as_py(),
        "interval_end": pa.scalar(record.end, INSTANT).as_py(),
        "revision": revision,
        "run_id": record.run_id,
        "event": event,
        "plan_version": record.plan_version,
        "content": content,
        "answers": record.answers,
        "table_version": table_version,
        "record": json.dumps(record.to_json()),
        "at": _now(),
    }


def _log(warehouse: Warehouse, record: RunRecord, event: str, content: str | None, table_version: int | None) -> None:
    with warehouse.lease() as token:
        since = warehouse.version("publish_log")
        logged = any(
            row["event"] == "published" and row["revision"] == record.revision
            for row in _log_rows(warehouse, record.begin, record.end)
        )
        # another attempt of this run, or a run that found its answers, may have been first
        if event != "published" or not logged:
            row = _log_row(record, event, content, table_version, record.revision)
            warehouse.append("publish_log", [row], token, since=since)
        if record.rows_without_time:
            detail = f"{record.rows_without_time} events without an event time were left out"
            row = {"run_id": record.run_id, "stream": "", "code": "HDL-410", "rows": record.rows_without_time}
            done = (f"quarantine/{_interval(record.begin, record.end)}", record.revision)
            warehouse.append("quarantine", [row | {"detail": detail, "at": _now()}], token, done)


def _log_checks(warehouse: Warehouse, record: RunRecord) -> None:
    with warehouse.lease() as token:
        rows = [
            {
                "run_id": record.run_id,
                "interval_start": pa.scalar(record.begin, INSTANT).as_py(),
                "interval_end": pa.scalar(record.end, INSTANT).as_py(),
                "check": check["check"],
                "success": check["success"],
                "detail": check["detail"],
                "at": _now(),
            }
            for check in record.checks
        ]
        warehouse.append("quality_results", rows, token)


def _log_statistics(warehouse: Warehouse, record: RunRecord) -> None:
    """Record the rate of what this run scanned; the stages' costs stand with the first stream."""
    rows: list[dict[str, Any]] = []
    for name, (begin, end, events) in record.scanned.items():
        found = Measured(name, begin, end, events, groups_per_fragment(warehouse, name))
        measured = ({}, {}) if rows else (record.cpu_seconds, record.features)
        rows.append(found.row(record.run_id, *measured))
    with warehouse.lease() as token:
        warehouse.append("stream_statistics", rows, token)


def _refuse(warehouse: Warehouse, record: RunRecord, code: str, message: str, hint: str = "") -> None:
    diagnostics = [Diagnostic(code, message, hint), *(Diagnostic(**found) for found in record.diagnostics)]
    record.diagnostics = [found.to_json() for found in diagnostics]
    _log(warehouse, record, "failed", None, None)
    raise HeddleError(code, "\n".join([message, *(str(found) for found in diagnostics[1:])]), hint)


def _coded(error: Exception) -> HeddleError:
    """The coded error that a task raised, out of the text that Spark makes of it; any other error is raised again."""
    if isinstance(error, HeddleError):
        return error
    found = re.search(r"HeddleError: (?:error )?(HDL-\d+) (.*)(?:\n    hint: (.*))?", str(error))
    if found is None:
        raise error
    return HeddleError(found.group(1), found.group(2), found.group(3) or "")


# ------------------------------------------------------------------------------------------------ main
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="compute, check and publish one interval")
    parser.add_argument("--warehouse", required=True)
    parser.add_argument("--plan-version", type=int, required=True)
    parser.add_argument("--from", dest="begin", required=True)
    parser.add_argument("--to", dest="end", required=True)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--late", action="store_true")
    given = parser.parse_args(arguments)
    spark = start_session("heddle")
    try:
        record = run(
            spark,
            Warehouse.open(given.warehouse, create=False),
            given.plan_version,
            parse_instant(given.begin),
            parse_instant(given.end),
            given.run_id,
            recompute=given.recompute,
            live=given.live,
            late=given.late,
            report=lambda line: print(f"heddle: {line}", flush=True),
        )
    except HeddleError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    finally:
        spark.stop()
    print(json.dumps(record.to_json()), flush=True)
    return 1 if record.diagnostics else 0


if __name__ == "__main__":
    sys.exit(main())
