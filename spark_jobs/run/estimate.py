"""What a run would cost, without running it: its first stage, and the gaps that its second one would fill."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.plan.definition import SharingPlan
from spark_jobs.checks.recompute import SAMPLED_QUERIES
from spark_jobs.costs.learned import Learned
from spark_jobs.costs.measurements import events_between
from spark_jobs.costs.prediction import Work, predict
from spark_jobs.partials import stored_coverage
from spark_jobs.partials.slabs import slabs_of, span_of_slab
from spark_jobs.run.preparation import prepare
from spark_jobs.run.values import RunRequest, SourceListing
from spark_jobs.run.window_kinds import KINDS
from spark_jobs.settings import settings
from spark_jobs.warehouse import publish_log
from spark_jobs.warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class RunEstimate:
    """What a run over (begin, end] would be: ``published`` if it would change nothing; else the events that it would
    read, about, and the CPU seconds that the plan's costs predict. Windows of rows are not in the price.

    ``least``, ``most``: CPU seconds between which it is in nine of ten runs; ``measured_runs``: by how many runs of
    this machine; ``is_measured``: the interval is what they were off by, else a factor of two either way. ``in_spark``:
    Spark does some of it."""

    begin: int
    end: int
    published: bool
    events: int = 0
    cpu_seconds: float = 0.0
    least: float = 0.0
    most: float = 0.0
    measured_runs: int = 0
    is_measured: bool = False
    in_spark: bool = False


def price(
    warehouse: Warehouse,
    learned: Learned,
    plan: SharingPlan,
    request: RunRequest,
    listing: SourceListing,
    first: bool = True,
    starts: bool = True,
) -> RunEstimate:
    """The price of a run, without a JVM. ``listing``: what the streams hold; ``first``: it is the first of its process;
    ``starts``: it starts Spark if it needs that."""
    begin, end = request.begin, request.end
    prepared = prepare(warehouse, plan, request, listing)
    if publish_log.same_publication(warehouse, prepared.plan, begin, end, prepared.content) is not None:
        return RunEstimate(begin, end, True, measured_runs=len(learned.own))
    events, missing = 0.0, []
    for name, splits in prepared.sources.items():
        work = [part for part in prepared.work if part.synopsis.stream == name]
        if requests := stored_coverage.uncovered(warehouse, work, splits):
            lifted = [rest for gap in requests if (rest := gap.lifted) is not None]
            for begins, ends in map(span_of_slab, slabs_of(lifted) if lifted else ()):
                events += events_between(splits, begins, min(prepared.ends[name], ends))
            missing += requests
    parts = [part for part in prepared.work if KINDS[part.synopsis.kind].is_predicted]
    gaps = [gap for gap in missing if KINDS[gap.synopsis.kind].is_predicted]
    known = known_of(events, len(prepared.plan.workload.queries), request.checks, first, starts)
    in_spark = bool(known["spark_runs"])
    planned = Work(begin, parts, gaps, prepared.sources)
    _, predicted = predict(warehouse, learned, prepared.plan, planned, known)
    seconds, least, most = (round(one, 3) for one in (predicted.cpu_seconds, predicted.least, predicted.most))
    return RunEstimate(
        begin, end, False, round(events), seconds, least, most, predicted.runs, predicted.is_measured, in_spark
    )


def known_of(
    events: float, queries: int, checks: str = "all", first: bool = True, starts: bool = True
) -> dict[str, float]:
    """What is known before a run over so many events, by feature; ``first``, ``starts`` as in :func:`price`."""
    in_spark = events > settings().in_process
    return {
        "runs": 1,
        "processes": int(first),
        "suites": int(first and checks == "all"),
        "sessions": int(in_spark and starts),
        "spark_runs": int(in_spark),
        "queries_recomputed": 0 if checks == "none" else min(SAMPLED_QUERIES, queries),
    }
