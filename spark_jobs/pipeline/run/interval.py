"""One run: partials, finals, audit and publication of one interval of event time, in one Spark session.

A run over [from, to) publishes exactly the windows whose end lies in (from, to], up to the watermark of their
stream (the clock less its lateness). It reads as much earlier history as those windows cover, but computes only the
partials that no earlier run has stored for the same content. Running it again changes nothing: the same content is
published once, and a retry continues under the revision that its run id was given.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan import pinning
from optimizer.plan.definition import SharingPlan
from optimizer.workload.instants import format_instant
from optimizer.workload.partitions import is_exact
from optimizer.workload.values import Stream
from spark_jobs.engine.choice import Engine, engine_of
from spark_jobs.engine.freed_memory import give_back
from spark_jobs.engine.workers import Workers
from spark_jobs.pipeline.costs.measurements import FEATURES
from spark_jobs.pipeline.run import dimensions, narrowing, preparation
from spark_jobs.pipeline.run.declarations import on_earlier_declarations, stands_as_declared, warnings_of
from spark_jobs.pipeline.run.silences import check_interval_has_begun, standing_silences
from spark_jobs.pipeline.run.values import (
    Allocated,
    PreparedRun,
    PublishedRun,
    ReleaseRequest,
    Report,
    Run,
    RunRequest,
    SourceListing,
)
from spark_jobs.results import tables
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.publish_log import LogRow, RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.untimed import standing_without_time, warnings
from spark_jobs.windows.partials.stored_coverage import EVER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(
    engine: Engine | SparkSession,
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
    checks: str | None = None,
    allow_empty: bool = True,
    release: ReleaseRequest | None = None,
    report: Report = lambda line: None,
) -> RunRecord:
    """Compute, check and publish the answers of one interval.

    ``engine``: the engine, or a session of Spark; ``as_of``: the clock (microseconds; default: now); ``checks``:
    None takes the setting; the others as in :class:`spark_jobs.pipeline.run.values.RunRequest`.

    If a stream cannot be read, its previous answers stay and those of the others are published. Raises HeddleError
    when nothing could be published (HDL-5xx; the checks failed: HDL-530), HDL-120 for a setting, HDL-476 for an
    interval after the newest event, unless ``allow_empty``.
    """
    if end <= begin:
        raise HeddleError("HDL-504", "the interval is empty: --to must be after --from")
    clock = as_of if as_of is not None else time.time_ns() // 1000
    configured = settings()
    level = configured.checks if checks is None else checks
    # whoever has set them wrongly is told before anything has begun, not as a stream that fails
    engine = engine_of(engine, run_id)
    engine.check()
    _ = configured.local_events, configured.task_memory
    options = recompute, live, late, level, allow_empty, release
    request = RunRequest(plan_version, begin, end, run_id, clock, *options)
    plan = load_plan(warehouse, plan_version)
    record = RunRecord(run_id, plan_version, begin, end, queries=len(plan.workload.queries), live=live, late=late)
    record.checked = level
    record.features = dict.fromkeys(FEATURES, 0) | {"runs": 1, "sessions": int(engine.is_cold)}
    record.diagnostics += [warning.to_json() for warning in configured.warnings()]
    noted = replace(warehouse, note=record.note)
    try:
        return _run(Run(engine, noted, request, record, report, engine.is_started), plan)
    finally:
        give_back()


_loaded: set[str] = set()
"""Names of the features that runs of this process have already loaded."""


def _first(feature: str) -> int:
    """Return 1 for the first run of this process that asks, 0 for all others."""
    if feature in _loaded:
        return 0
    _loaded.add(feature)
    return 1


def _run(run: Run, plan: SharingPlan) -> RunRecord:
    table_version = run.warehouse.version("results")
    with run.stage("list", "listing sources"):
        prepared = _prepared(run, plan)
    if _stands(run, prepared):
        return run.record
    dimensions.carry_partials_over(run, prepared)
    run.record.features |= {"processes": _first("processes")}
    run.record.features |= {"suites": _first("suites") if run.request.checks == "all" else 0}
    # whoever finds nothing to do compiles no kernels
    from spark_jobs.pipeline.run import checks_stage, finals_stage, partials_stage, publication
    from spark_jobs.pipeline.run.levels_stage import with_levels

    with run.stage("partials", "scanning events"):
        prepared = with_levels(run, prepared)
        try:
            _decide(run, prepared)
        finally:
            # what is logged now says where a run that goes on is seen; one that cannot begin has an end in the log, too
            allocated = _allocated(run, prepared, table_version)
        filled = partials_stage.fill(run, allocated)
        if filled.content != prepared.content:
            # a revision says what it is a revision of, also if this process dies before it logs it
            _allocate(run, filled.content)
        answered = {query.name for query in filled.plan.workload.queries}
        unanswered = [query.name for query in prepared.plan.workload.queries if query.name not in answered]
        _count_refreshes(run.record, prepared, filled.ends, unanswered)
    with run.stage("finals", "answering queries"):
        answers = finals_stage.answer(run, filled)
        remaining_names = {query.name for query in answers.filled.plan.workload.queries}
        if remaining_names < answered:
            unanswered += sorted(answered - remaining_names)
            _count_refreshes(run.record, prepared, filled.ends, unanswered)
    with run.stage("audit", "checking the answers"):
        checked = checks_stage.check(run, answers)
        if run.record.blocked:
            _count_refreshes(run.record, prepared, filled.ends, [*unanswered, *run.record.blocked])
    with run.stage("publish", "publishing"):
        run.record.diagnostics += _others(run)
        published = publication.publish(run, checked)
        _follow(run)
    _log(run, published)
    return run.record


def _is_sparing(run: Run, plan: SharingPlan) -> bool:
    """Return whether a run lists only the exact folders that it needs: what is answered again may be so for files in
    others."""
    request = run.request
    if not any(is_exact(stream.source) for stream in plan.workload.streams):
        return False
    return not publish_log.overlapping(run.warehouse, request.begin, request.end, publish_log.PUBLISHED, False)


def _prepared(run: Run, plan: SharingPlan) -> PreparedRun:
    """Prepare the run, and fill its record accordingly."""
    record, request = run.record, run.request

    def follow(stream: Stream) -> None:
        if stream.source.origin is not None:
            # what copies is not for those who copy nothing
            from spark_jobs.streams.copies.copying import bring_up_to_date
            from spark_jobs.streams.copies.databases.opening import is_direct

            session = None if is_direct(stream) else run.engine.session()
            bring_up_to_date(session, stream, request.clock, run.report)

    def available() -> Workers | None:
        try:
            return run.engine.early(request.run_id)
        except HeddleError:
            # a run that needs them fails with it later, and not as a stream that cannot be read
            return None

    def listed(sparing: bool) -> SourceListing:
        within = request.begin, request.end
        return preparation.listed(
            run.warehouse,
            plan,
            request.clock,
            request.run_id,
            follow,
            within,
            request.live,
            not request.recompute,
            available,
            sparing,
        )

    listing = listed(sparing := _is_sparing(run, plan))
    if sparing and not any(listing.sources.values()):
        # where the events are is said by all folders
        listing = listed(False)
    if not request.allow_empty:
        check_interval_has_begun(run.warehouse, plan, listing, request)
    record.diagnostics += listing.problems
    prepared = preparation.prepare(run.warehouse, plan, request, listing)
    record.diagnostics += prepared.diagnostics
    record.basis, record.failed, record.repeated = prepared.basis, list(prepared.failed), prepared.repeated
    record.origins = pinning.origins_of(prepared.plan)
    ends = {name: min(request.end, request.clock - plan.workload.stream(name).lateness) for name in listing.sources}
    record.withheld = {name: format_instant(at) for name, at in ends.items() if at < request.end}
    record.listed, record.read = listing.newest, preparation.spans_read(prepared, listing.pinned(plan))
    record.refused = {name: files.late for name, files in listing.arrivals.items() if files.late}
    if listing.unfit and not prepared.plan.workload.queries:
        publish_log.refuse(run.warehouse, record, "HDL-517", "none of the plan's queries could be answered")
    return prepared


def _stands(run: Run, prepared: PreparedRun) -> bool:
    """Return whether the answers of the interval are already published, and stay valid."""
    request, record = run.request, run.record
    publish_log.reconcile(run.warehouse, request.begin, request.end)
    if request.recompute:
        return False
    previous = publish_log.same_publication(run.warehouse, prepared.plan, request.begin, request.end, prepared.content)
    if previous is None or request.asks_more_than(previous):
        return False
    if not stands_as_declared(run.warehouse, previous, prepared.plan, prepared.sources):
        return False
    if narrowing.is_revised_by_dimensions(run.warehouse, prepared, previous):
        return False
    record.diagnostics += standing_silences(prepared) + _others(run)
    record.diagnostics += [
        warning.to_json() for warning in warnings(standing_without_time(run.warehouse, set(prepared.sources)))
    ]
    record.status, record.revision, record.answers = "unchanged", previous.revision, previous.answers or 0
    _follow(run)
    run.report(f"nothing changed since revision {record.revision}")
    return True


def _others(run: Run) -> list[dict[str, Any]]:
    """Warnings about other intervals under earlier declarations. A live run looks for them only after another plan."""
    if run.request.live:
        newest = publish_log.newest_rows(run.warehouse, "at", publish_log.PUBLISHED, 1, records=False)
        if all(row.plan_version == run.request.plan_version for row in newest):
            return []
    begin, end = run.request.begin, run.request.end
    older = [
        declaration
        for declaration in on_earlier_declarations(run.warehouse)
        if declaration.begin < begin or declaration.end > end
    ]
    return [warning.to_json() for warning in warnings_of(older)]


def _decide(run: Run, prepared: PreparedRun) -> None:
    """Choose what computes, as the record has it."""
    from spark_jobs.audit.checks import suite
    from spark_jobs.pipeline.run import finals_stage

    fixed = run.engine.fixed()
    # how many local processes there are depends on it as well
    amount = 0.0 if fixed is not None and fixed.name == "spark" else finals_stage.amount_of(run, prepared)
    workers = run.engine.decide(amount, run.record.run_id)
    run.record.engine, run.record.engine_because = workers.name, run.engine.choice.reason
    run.record.application, run.record.ui = workers.application, workers.ui
    if run.engine.is_elsewhere:
        # while others work, Great Expectations is loaded here
        suite.begin(run.request.checks)


def _allocated(run: Run, prepared: PreparedRun, table_version: int) -> Allocated:
    """The prepared run, under a new revision."""
    _count_refreshes(run.record, prepared, prepared.ends)
    rows = publish_log.rows_of_interval(run.warehouse, run.request.begin, run.request.end)
    publications = [row for row in rows if row.event == "published"]
    base = None if run.request.recompute else narrowing.narrowing_base(run.warehouse, prepared)
    if base is not None and run.request.asks_more_than(base):
        base = None
    if run.request.release is not None:
        _check_release(run.request.release, prepared, base)
    _allocate(run, prepared.content)
    return Allocated(prepared, base, publications[-1] if publications else None, table_version)


def _check_release(release: ReleaseRequest, prepared: PreparedRun, base: LogRow | None) -> None:
    """Raises HDL-568 unless a run would compute exactly the answers that were blocked."""
    is_same = base is not None and (base.revision, base.content) == (
        release.revision,
        publish_log.blocked_content(prepared.content, base.record.blocked),
    )
    if not is_same:
        message = f"something that decides the answers of {release.query} has changed since they were blocked"
        raise HeddleError("HDL-568", message, "`heddle repair` computes and judges them again")


def _allocate(run: Run, content: str) -> None:
    run.record.revision = publish_log.revision_of(run.warehouse, run.record, content, run.request.recompute)


def _log(run: Run, published: PublishedRun) -> None:
    """Log a run that has published: its cost, and the predicted cost."""
    from spark_jobs.pipeline.costs.prediction import Work, judge
    from spark_jobs.pipeline.run import publication

    record, filled = run.record, published.checked.answered.filled
    record.status = "published"
    if run.engine.is_started and not run.was_started:
        record.features["sessions"] = 1
    record.features["spark_runs"] = int(run.engine.choice.name == "spark")
    plan = filled.allocated.prepared.plan
    parts = [part for part in filled.work if part.synopsis.kind.is_predicted]
    gaps = [gap for gap in filled.filled if gap.synopsis.kind.is_predicted]
    judged = judge(run.warehouse, plan, record, Work(record.begin, parts, gaps, filled.sources))
    publication.log_statistics(run.warehouse, record, judged.about, run.counts)
    publish_log.log_event(run.warehouse, record, "published", filled.content, published.table_version)


def _follow(run: Run) -> None:
    """Bring the tables of queries up to date, also with what a run before did not come to."""
    run.record.diagnostics += [problem.to_json() for problem in tables.follow(run.warehouse, run.report)]


def _count_refreshes(
    record: RunRecord, prepared: PreparedRun, ends: Mapping[str, int], unanswered: Sequence[str] = ()
) -> None:
    """Record the instants at which this run answers queries with a refresh bound, and by how much each is too late."""
    counts: dict[int, int] = {}
    record.refreshed, record.lateness = {}, {}
    for query in prepared.plan.workload.queries:
        window, last = query.window, prepared.before.get(query.name)
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
