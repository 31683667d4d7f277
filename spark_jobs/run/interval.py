"""One run: partials, finals, audit and publication of one interval of event time, in one Spark session.

A run over [from, to) publishes exactly the windows whose end lies in (from, to], up to the watermark of their
stream (the clock less its lateness). It reads as much earlier history as those windows cover, but computes only the
partials that no earlier run left behind for the same content. Running it again changes nothing: the same content is
published once, and a retry goes on under the revision that its run id was given.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from optimizer.errors.codes import is_fatal
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import digest
from spark_jobs.checks.audit import audit
from spark_jobs.checks.data_docs import FOLDER
from spark_jobs.checks.recompute import sample
from spark_jobs.costs.fit import fit_of
from spark_jobs.costs.measurements import FEATURES, events_between
from spark_jobs.costs.prediction import Work, predict
from spark_jobs.partials.fill_request import FillRequest
from spark_jobs.results.revisions import Readers
from spark_jobs.run import finals_stage, partials_stage, preparation, publication, rows_stage
from spark_jobs.run.partials_stage import used_contexts
from spark_jobs.run.preparation import (
    Instants,
    count_refreshes,
    is_due,
    narrowed_plan,
    narrowed_to,
    plan_without,
    report_failure,
)
from spark_jobs.run.rows_stage import row_counters
from spark_jobs.session.session import cpu_seconds
from spark_jobs.sources.ledger import newest
from spark_jobs.warehouse import publish_log
from spark_jobs.warehouse.plans import load_plan
from spark_jobs.warehouse.publish_log import RunRecord, coded_error, log_end, refuse
from spark_jobs.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Report = Callable[[str], None]


class _Stages:
    """Measures CPU and wall seconds of each stage into a record, and reports its start; what ends a run in a stage is
    logged."""

    def __init__(self, record: RunRecord, report: Report, warehouse: Warehouse) -> None:
        self.record, self.report, self.warehouse = record, report, warehouse

    def __call__(self, name: str, saying: str) -> _Stages:
        self.name = name
        self.report(saying)
        return self

    def __enter__(self) -> None:
        self.cpu, self.wall = cpu_seconds(), time.perf_counter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for book, spent in (
            (self.record.cpu_seconds, cpu_seconds() - self.cpu),
            (self.record.wall_seconds, time.perf_counter() - self.wall),
        ):
            book[self.name] = round(book.get(self.name, 0.0) + spent, 3)
        if isinstance(error, (Exception, KeyboardInterrupt)):
            stands = self.record.revision > 0 and log_end(self.warehouse, self.record, error, self.name)
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(f"{'it' if stands else 'nothing'} was published") from None


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
    live run goes on where this one ends (:func:`spark_jobs.planning.live_runs.due`). ``late``: the run came too late
    for some of the refreshes in the interval: queries with a refresh bound are answered at its last instant alone.

    A stream that cannot be read fails alone: its previous answers stay and the others' are published.
    Raises HeddleError when nothing could be published (HDL-5xx; the checks failed: HDL-530).
    """
    if end <= begin:
        raise HeddleError("HDL-504", "the interval is empty: --to must be after --from")
    plan = load_plan(warehouse, plan_version)
    costs = fit_of(warehouse)
    clock = as_of if as_of is not None else time.time_ns() // 1000
    record = RunRecord(run_id, plan_version, begin, end, queries=len(plan.workload.queries), live=live, late=late)
    record.features = dict.fromkeys(FEATURES, 0) | {"runs": 1, "sessions": int(spark.sparkContext not in used_contexts)}
    stages = _Stages(record, report, warehouse)
    follows = warehouse.version("results")
    with stages("list", "listing sources"):
        known = preparation.listed(warehouse, plan, clock, run_id)
        record.diagnostics += known.problems
        plan, before, sources, failed, ends, parts, content = preparation.prepare(warehouse, plan, record, clock, known)
        record.listed, record.failed = {name: newest(files) for name, files in known.arrivals.items()}, failed
        for name, files in known.arrivals.items():
            refused = sum(one.late for one in files.values() if one.is_here)
            record.refused |= {name: refused} if refused else {}
    if known.unfit and not plan.workload.queries:
        refuse(warehouse, record, "HDL-517", "none of the plan's queries could be answered")
    publish_log.reconcile(warehouse, begin, end)
    if not recompute and (previous := publish_log.same_publication(warehouse, plan, begin, end, content)) is not None:
        record.diagnostics += preparation.silent_streams(plan, sources, record, ends, {})
        record.status, record.revision, record.answers = (
            "unchanged",
            previous["revision"],
            previous["answers"],
        )
        report(f"nothing changed since revision {record.revision}")
        return record
    count_refreshes(record, plan, before, ends)
    earlier = [row for row in publish_log.rows_of_interval(warehouse, begin, end) if row["event"] == "published"]
    base = None if recompute else preparation.narrowing_base(warehouse, plan, record, ends)
    record.revision = publish_log.revision_of(warehouse, record, content, recompute)
    spans: list[FillRequest] = []
    unanswered: list[str] = []
    fresh: dict[str, int] = {}
    with stages("partials", "computing partial aggregates"):
        for name in list(sources):
            try:
                mine = [part for part in parts if part.synopsis.stream == name]
                counters = row_counters(plan, name, sources[name], ends[name])
                filled, broken = partials_stage.write_partials(
                    spark, warehouse, plan.workload.stream(name), [*mine, *counters], sources[name], record, fresh
                )
                spans += filled
                if counters:
                    numbered, filled, others = rows_stage.write_rows(
                        spark, warehouse, plan, name, counters, broken, sources[name], begin, record
                    )
                    spans, mine, parts, broken = spans + filled, mine + numbered, parts + numbered, broken | others
            except Exception as error:
                coded = coded_error(error)
                if is_fatal(coded.diagnostic.code):
                    raise coded from error
                failed.append(name)
                del sources[name], ends[name]
                record.diagnostics.append(coded.diagnostic.to_json())
                continue
            for part in [part for part in mine if part.synopsis.fingerprint in broken]:
                parts.remove(part)
                unanswered += report_failure(part, broken[part.synopsis.fingerprint], record)
        parts = [part for part in parts if part.synopsis.stream in sources]
        if not sources:
            refuse(warehouse, record, "HDL-505", "none of the plan's streams could be read")
        if unanswered and not parts:
            refuse(warehouse, record, "HDL-517", "none of the plan's queries could be answered")
        instants: Instants | None = None
        if earlier:
            changed = preparation.changed_windows(plan, parts, sources, ends, base or earlier[-1], known, record)
            record.radius = asdict(changed.radius)
            names = {query.name for query in plan.workload.queries if query.stream in sources}
            record.narrow = base is not None and any(changed.instants.get(name, ()) is not None for name in names)
            instants = changed.instants if record.narrow else None
        found = preparation.content_hash(plan, parts, sources, ends, begin, end)
        if found != content:  # a revision says what it is a revision of, also if this process dies before it logs it
            content, record.revision = found, publish_log.revision_of(warehouse, record, found, recompute)
        count_refreshes(record, plan, before, ends, unanswered)
    answered = plan_without(plan, unanswered)
    if instants is not None:
        answered = narrowed_plan(answered, instants)
        parts = narrowed_to(parts, answered, begin)
    with stages("finals", "computing final aggregates"):
        staged = finals_stage.write_finals(spark, warehouse, parts, sources, begin, record)
        record.answers = sum(file.rows for file in staged)
        record.features |= {"queries": sum(len(part.queries) for part in parts), "answers": record.answers}
    paths = [warehouse.root / "results" / file.path for file in staged]
    try:
        with stages("audit", "checking the answers"):
            seed = digest([run_id, record.revision])
            docs = warehouse.root / FOLDER
            record.checks = audit(spark, [str(path) for path in paths], answered, sources, begin, ends, seed, docs)
            publication.log_checks(warehouse, record)
            wrong = [check for check in record.checks if not check["success"]]
            if wrong:
                detail = "; ".join(f"{check['check']}: {check['detail']}" for check in wrong)
                refuse(warehouse, record, "HDL-530", f"the checks failed, nothing was published: {detail}")
    except BaseException:
        for path in paths:  # no commit names them
            path.unlink(missing_ok=True)
        raise
    with stages("publish", "publishing"):
        asked = plan_without(plan, unanswered).workload.queries
        until = {
            query.name: ends[query.stream] if query.until is None else min(ends[query.stream], query.until)
            for query in asked
            if query.stream in sources
        }
        since = max(follows, base["table_version"] if base is not None else 0)
        readers = Readers()
        table_version = publication.publish(warehouse, record, staged, until, readers, instants, since)
        if readers.known:
            record.readers = readers.told(paths)
            due = [query for query in asked if query.name in until and is_due(query, begin, until[query.name])]
            record.empty = readers.without_answers([query.name for query in due])
    record.diagnostics += preparation.silent_streams(plan, sources, record, ends, fresh)
    record.status = "published"
    sampled = sample(answered.workload.queries, sources, begin, ends, random.Random(seed))
    record.features["queries_recomputed"] = len(sampled)
    record.features["events_recomputed"] = round(
        sum(events_between(sources[query.stream], *window) for query, windows in sampled for window in windows)
    )
    timed = [part for part in parts if part.synopsis.per is None and part.synopsis.sequenced is None]
    filled_spans = [span for span in spans if span.synopsis.per is None and span.synopsis.sequenced is None]
    predict(costs, warehouse, plan, record, Work(begin, timed, filled_spans, sources))
    publication.log_statistics(warehouse, record)
    publish_log.log_event(warehouse, record, "published", content, table_version)
    return record
