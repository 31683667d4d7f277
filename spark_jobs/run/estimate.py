"""What a run would cost, without running it: its first stage, and the gaps that its second one would fill."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.plan.definition import SharingPlan
from spark_jobs.checks.recompute import SAMPLED_QUERIES
from spark_jobs.costs.fit import fit_of
from spark_jobs.costs.measurements import FEATURES, events_between
from spark_jobs.costs.prediction import Work, predict, spread
from spark_jobs.partials import stored_coverage
from spark_jobs.run.preparation import prepare
from spark_jobs.run.values import RunRequest, SourceListing
from spark_jobs.run.window_kinds import KINDS
from spark_jobs.warehouse import publish_log
from spark_jobs.warehouse.publish_log import RunRecord
from spark_jobs.warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class RunEstimate:
    """What a run over (begin, end] would be: ``published`` if it would change nothing; else the events that it would
    read, about, and the CPU seconds that the plan's costs predict. Windows of rows are not in the price.

    ``least``, ``most``: CPU seconds between which it is, by what runs of this warehouse took beside what was predicted
    of them; None: too few were measured."""

    begin: int
    end: int
    published: bool
    events: int = 0
    cpu_seconds: float = 0.0
    least: float | None = None
    most: float | None = None


def price(
    warehouse: Warehouse, plan: SharingPlan, request: RunRequest, listing: SourceListing, starts: bool = True
) -> RunEstimate:
    """The price of a run, without a JVM. ``listing``: what the streams hold; ``starts``: it starts Spark."""
    begin, end = request.begin, request.end
    prepared = prepare(warehouse, plan, request, listing)
    if publish_log.same_publication(warehouse, prepared.plan, begin, end, prepared.content) is not None:
        return RunEstimate(begin, end, True, least=0.0, most=0.0)
    events, missing = 0.0, []
    for name, splits in prepared.sources.items():
        work = [part for part in prepared.work if part.synopsis.stream == name]
        if requests := stored_coverage.uncovered(warehouse, work, splits):
            first, last = min(gap.begin for gap in requests), max(gap.end for gap in requests)
            events += events_between(splits, first, min(prepared.ends[name], last))
            missing += requests
    record = RunRecord("price", request.plan_version, begin, end)
    record.features = dict.fromkeys(FEATURES, 0) | {"runs": 1, "sessions": int(starts)}
    if request.checks != "none":
        record.features["queries_recomputed"] = min(SAMPLED_QUERIES, len(prepared.plan.workload.queries))
    parts = [part for part in prepared.work if KINDS[part.synopsis.kind].is_predicted]
    gaps = [gap for gap in missing if KINDS[gap.synopsis.kind].is_predicted]
    predict(fit_of(warehouse), warehouse, prepared.plan, record, Work(begin, parts, gaps, prepared.sources))
    predicted, factors = record.predicted_cpu_seconds or 0.0, spread(warehouse)
    least, most = (None, None) if factors is None else (round(predicted * factor, 3) for factor in factors)
    return RunEstimate(begin, end, False, round(events), predicted, least, most)
