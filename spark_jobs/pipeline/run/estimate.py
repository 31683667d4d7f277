"""Cost of a run without running it: its first stage, and the gaps that its second stage would fill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from optimizer.plan.definition import SharingPlan
from optimizer.synopses.synopsis import Synopsis
from spark_jobs.audit.checks.sampling import SAMPLED_QUERIES
from spark_jobs.engine.choice import Engine
from spark_jobs.pipeline.costs.learned import Learned
from spark_jobs.pipeline.costs.prediction import Work, events_about, predict
from spark_jobs.pipeline.run.declarations import stands_as_declared
from spark_jobs.pipeline.run.preparation import prepare
from spark_jobs.pipeline.run.values import RunRequest, SourceListing
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.inspection import estimated
from spark_jobs.windows.partials import stored_coverage
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.levels import StoredLevels
from spark_jobs.windows.partials.slabs import slabs_of, span_of_slab
from spark_jobs.windows.partials.stored_marks import StoredMarks


@dataclass(frozen=True)
class RunEstimate:
    """Estimate of a run over (begin, end].

    ``published``: the run would change nothing. Otherwise it has the approximate number of events that the run
    would read, and the CPU seconds that the plan's costs predict. Windows of rows are not in the price.

    ``least``, ``most``: bounds of the CPU seconds in nine of ten runs. ``measured_runs``: the number of runs of
    this machine that it is learned from. ``is_measured``: the interval comes from the errors of those runs,
    otherwise it is a factor of two either way. ``in_spark``: Spark does some of the work.
    """

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


class Prices:
    """Prices runs that follow one another, without a JVM: what one reads and loads is there for those after it.

    ``listing``: what the streams hold.
    """

    def __init__(self, warehouse: Warehouse, plan: SharingPlan, listing: SourceListing) -> None:
        self._warehouse, self._plan, self._listing = warehouse, plan, listing
        self._learned = Learned.of(warehouse)
        self._counted = {
            name: estimated(plan.workload.stream(name), splits) for name, splits in listing.sources.items()
        }
        self._filled: dict[Synopsis, int] = {}
        self._is_first = self._starts = True

    def price(self, request: RunRequest) -> RunEstimate:
        """The price of the next run."""
        prepared = prepare(self._warehouse, self._plan, request, self._listing)
        plan, begin, end = prepared.plan, request.begin, request.end
        same = publish_log.same_publication(self._warehouse, plan, begin, end, prepared.content)
        if same is not None and stands_as_declared(self._warehouse, same, plan, {tree.stream for tree in plan.trees}):
            return RunEstimate(begin, end, True, measured_runs=len(self._learned.own))
        events, missing, current = 0.0, [], self._warehouse.table("partials")
        marks = StoredMarks(self._warehouse)
        for name, splits in prepared.sources.items():
            work = [part for part in prepared.work if part.synopsis.stream == name]
            work = StoredLevels(marks, prepared.sources, current).of(work, begin)
            if requests := self._left(stored_coverage.uncovered(marks, work, splits, current)):
                lifted = [request for gap in requests for request in gap.lifted]
                for first, last in map(span_of_slab, slabs_of(lifted) if lifted else ()):
                    events += events_about(plan, name, self._counted[name], first, min(prepared.ends[name], last))
                missing += requests
        parts = [part for part in prepared.work if part.synopsis.kind.is_predicted]
        gaps = [gap for gap in missing if gap.synopsis.kind.is_predicted]
        known = known_of(events, len(plan.workload.queries), request.checks, self._is_first, self._starts)
        in_spark = bool(known["spark_runs"])
        planned = Work(begin, parts, gaps, {name: self._counted[name] for name in prepared.sources})
        _, predicted = predict(self._warehouse, self._learned, plan, planned, known)
        seconds, least, most = (round(amount, 3) for amount in (predicted.cpu_seconds, predicted.least, predicted.most))
        self._is_first, self._starts = False, self._starts and not in_spark
        self._filled |= {part.synopsis: max(part.end, self._filled.get(part.synopsis, 0)) for part in prepared.work}
        return RunEstimate(
            begin, end, False, round(events), seconds, least, most, predicted.runs, predicted.is_measured, in_spark
        )

    def _left(self, gaps: Iterable[FillRequest]) -> list[FillRequest]:
        """The parts of some gaps that the previous runs do not fill."""
        cut = [replace(gap, begin=max(gap.begin, self._filled.get(gap.synopsis, gap.begin))) for gap in gaps]
        return [gap for gap in cut if gap.begin < gap.end]


def known_of(
    events: float, queries: int, checks: str = "all", first: bool = True, starts: bool = True
) -> dict[str, float]:
    """Features that are known before a run over ``events`` events.

    ``first``: it is the first run of its process. ``starts``: it starts Spark if it needs it.
    """
    in_spark = Engine("estimate").expected(events).name == "spark"
    return {
        "runs": 1,
        "processes": int(first),
        "suites": int(first and checks == "all"),
        "sessions": int(in_spark and starts),
        "spark_runs": int(in_spark),
        "queries_recomputed": 0 if checks == "none" else min(SAMPLED_QUERIES, queries),
    }
