"""Number of queries, or of events, from which on a shared run is cheaper here than a plain Spark job per query.

A shared run has fixed costs whatever its queries are: its imports, its checks, one pass over the events. A plain
Spark job of one query has none of these, but is paid once per query. Let F be the fixed costs of the shared run, m
its additional costs per query, and P the costs of a plain job. Then n queries are cheaper shared where F + n m < n
P.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.errors.diagnostics import count
from optimizer.plan.definition import SharingPlan
from optimizer.synopses.synopsis import synopses_of
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ
from spark_jobs.pipeline.costs.fit import Fit
from spark_jobs.pipeline.costs.learned import Learned, Predicted
from spark_jobs.pipeline.costs.prediction import Work, expected, kind_of
from spark_jobs.pipeline.run.estimate import known_of
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.synopsis_work import SynopsisWork

PLAIN_JOB = 0.6
PLAIN_EVENT = 2e-6
"""CPU seconds of a plain Spark job of one query in a session that has started, whatever it reads, and an event that it
reads: as ``heddle compare`` measured them where Heddle was developed."""

LOOKED_AT = 200
"""Queries of a plan that are looked at for what one more of them takes."""

FIXED = ("runs", "processes", "suites", "sessions", "spark_runs", "queries_recomputed", "events_recomputed", "events")
"""The features of a run that do not grow with its queries."""


@dataclass(frozen=True)
class BreakEven:
    """CPU seconds of a shared run and of plain jobs.

    Attributes
    ----------
    queries, events
        Number of queries, and of events of the shared run.
    fixed, per_event
        Costs of a shared run whatever its queries, and the part of them per event.
    per_query
        Additional costs of each query.
    plain_job, plain_event
        Costs of a plain job of one query, and the part of them per event.
    is_measured
        Whether plain jobs were measured here, or where Heddle was developed.
    spark_start
        Additional costs of the run as an application of Spark of its own; 0 if it is one already.
    """

    queries: int
    events: float
    fixed: float
    per_event: float
    per_query: float
    plain_job: float
    plain_event: float
    is_measured: bool
    spark_start: float = 0.0

    @property
    def from_queries(self) -> int | None:
        """The fewest queries with which sharing wins; None: it never does over this number of events."""
        return self._from_queries(self.fixed)

    @property
    def from_queries_on_spark(self) -> int | None:
        """The same for a run that is an application of Spark of its own, as the DAGs start it."""
        return self._from_queries(self.fixed + self.spark_start)

    def _from_queries(self, fixed: float) -> int | None:
        gain = self.plain_job - self.per_query
        return math.floor(fixed / gain) + 1 if gain > 0 else None

    @property
    def from_events(self) -> int | None:
        """The events from which on sharing wins, of these queries; None: an event more is no cheaper shared."""
        gain = self.queries * self.plain_event - self.per_event
        lacking = self.fixed + self.queries * (self.per_query - self.plain_job)
        if gain <= 0:
            return None
        return max(0, math.floor(self.events + lacking / gain) + 1)

    def sentence(self) -> str:
        """The same in words."""
        jobs = "measured here" if self.is_measured else "as measured where Heddle was developed"
        of_what = (
            f"a shared run of about {count(round(self.events), 'event')} takes {_seconds(self.fixed)} CPU-s with its "
            f"checks and {_seconds(self.per_query)} a query, a plain Spark job of one query {_seconds(self.plain_job)} "
            f"({jobs})"
        )
        if self.from_queries is None:
            return f"sharing does not win over so few events, however many queries: {of_what}"
        message = f"sharing wins from {count(self.from_queries, 'query')} on"
        if self.spark_start:
            message += f" (from {self.from_queries_on_spark} as a Spark application of its own)"
        if self.from_events is not None and self.queries > 1:
            threshold = "however few the events" if self.from_events == 0 else f"from {self.from_events:,} events on"
            message += f", and with these {self.queries:,} {threshold}"
        return f"{message}: {of_what}"

    def to_json(self) -> dict[str, Any]:
        """The figures as ``heddle plan --json`` and ``heddle compare --json`` print them."""
        return {
            "from_queries": self.from_queries,
            "from_queries_on_spark": self.from_queries_on_spark,
            "from_events": self.from_events,
            "queries": self.queries,
            "events": round(self.events),
            "fixed_cpu_seconds": round(self.fixed, 3),
            "cpu_seconds_a_query": round(self.per_query, 6),
            "plain_job_cpu_seconds": round(self.plain_job, 3),
            "plain_jobs_measured_here": self.is_measured,
        }


def _seconds(spent: float) -> str:
    return f"{spent:.1f}" if spent >= 1 else f"{spent:.2g}"


def of_comparison(
    costs: Fit,
    features: Mapping[str, float],
    total: float,
    queries: int,
    samples: Sequence[Mapping[str, Any]],
) -> BreakEven:
    """Compare a run with these features and this ``total`` of CPU seconds with plain jobs of some of its queries
    (their ``cpu_seconds`` and ``rows_scanned``).
    """
    predicted = costs.seconds(features)
    scale = total / predicted if predicted > 0 else 1.0
    return _of(costs, features, scale, queries, samples)


def of_plan(costs: Fit, plan: SharingPlan, samples: Sequence[Mapping[str, Any]] = ()) -> BreakEven | None:
    """Compare a run over a day by a plan, in a process of its own, at the plan's rates, with plain jobs.

    Without ``samples``, plain jobs cost as much as measured where Heddle was developed. None if nothing is
    predicted for its windows.
    """
    queries = plan.workload.queries[:: max(1, len(plan.workload.queries) // LOOKED_AT)]
    features = _of_a_day(plan, queries, {})
    if not features:
        return None
    break_even = _of(costs, features, 1.0, round(features["queries"]), samples)
    return BreakEven(len(plan.workload.queries), *(getattr(break_even, name) for name in list(vars(break_even))[1:]))


def price_of_a_day(learned: Learned, plan: SharingPlan, groups: Mapping[str, float]) -> Predicted | None:
    """Predict the cost of a run over a day by a plan, in a process of its own, at the plan's rates.

    ``groups``: groups per fragment of each stream. None if nothing is predicted for its windows. Considers every
    query.
    """
    features = _of_a_day(plan, plan.workload.queries, groups)
    return learned.predict(features, kind_of(plan)) if features else None


def _of_a_day(plan: SharingPlan, queries: Sequence[ACQ], groups: Mapping[str, float]) -> dict[str, float]:
    """Expected features of a run over a day of some of a plan's queries; empty if nothing is known about their
    windows.
    """
    chosen = {query.name for query in queries}
    parts, spans = [], []
    for tree in plan.trees:
        tree_queries = [query for query in tree.queries if query.name in chosen]
        stream = plan.workload.stream(tree.stream)
        for synopsis, own in synopses_of(stream, tree_queries).items() if tree_queries else ():
            if synopsis.kind.is_predicted:
                parts.append(SynopsisWork(synopsis, own, 0, DAY))
                spans.append(FillRequest(synopsis, 0, DAY))
    if not parts:
        return {}
    # a source of which nothing is known: events come at the plan's rates
    sources = {part.synopsis.stream: [Split("", "")] for part in parts}
    known = {name: groups.get(name, float(plan.model.groups(name))) for name, _ in plan.rates}
    features = expected(plan, Work(0, parts, spans, sources), known)
    return features | known_of(features["events"], len(queries))


def _of(
    costs: Fit, features: Mapping[str, float], scale: float, queries: int, samples: Sequence[Mapping[str, Any]]
) -> BreakEven:
    events = features.get("events", 0.0)
    fixed = scale * costs.seconds({name: features.get(name, 0) for name in FIXED})
    variable_seconds = scale * costs.seconds(features) - fixed
    plain = PLAIN_JOB + PLAIN_EVENT * events
    if samples:
        plain = sum(sample["cpu_seconds"] for sample in samples) / len(samples)
        read = sum(sample["rows_scanned"] for sample in samples) / len(samples)
        # of another interval: what of it grows with the events does so
        plain = max(plain + PLAIN_EVENT * (events - read), 0.0)
    per_event, per_query = scale * costs.costs["events"], max(variable_seconds, 0.0) / max(queries, 1)
    missing = {name: 1 - min(1, features.get(name, 0)) for name in ("sessions", "spark_runs")}
    start = scale * costs.seconds(missing)
    return BreakEven(queries, events, fixed, per_event, per_query, plain, PLAIN_EVENT, bool(samples), start)
