"""Predict the cost of a run from its work and the fitted costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optimizer.plan.definition import SharingPlan
from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import instants_between
from optimizer.workload.instants import DAY
from optimizer.workload.values import SECOND, digest
from spark_jobs.pipeline.costs.fit import TIME_MAX, relative_error
from spark_jobs.pipeline.costs.learned import Learned, Predicted
from spark_jobs.pipeline.costs.measurements import Recorded, events_between, last_groups, machine
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.slabs import slabs_of, span_of_slab
from spark_jobs.windows.partials.synopsis_work import SynopsisWork

if TYPE_CHECKING:
    from spark_jobs.store.warehouse.publish_log import RunRecord


@dataclass(frozen=True)
class Work:
    """Planned work of a run: ``parts`` to answer of windows that end after ``begin`` (microseconds), and ``spans`` to
    fill before that, from ``sources``.
    """

    begin: int
    parts: Sequence[SynopsisWork]
    spans: Sequence[FillRequest]
    sources: Mapping[str, Sequence[Split]]


KNOWN = ("runs", "processes", "suites", "sessions", "spark_runs", "queries_recomputed", "events_recomputed")
"""Features of a run that are known before it."""


def kind_of(plan: SharingPlan) -> str:
    """Digest of what runs by the same plan have in common: its queries, tree by tree. The plan's fingerprint does not
    serve: it also covers the instants that one run answers.
    """
    return digest([[tree.stream, sorted(query.name for query in tree.queries)] for tree in plan.trees])[:16]


def predict(
    warehouse: Warehouse, learned: Learned, plan: SharingPlan, work: Work, known: Mapping[str, float]
) -> tuple[dict[str, float], Predicted]:
    """Predict a run: its expected features (``known``: those of :data:`KNOWN`), and its cost."""
    foreseen = expected(plan, work, _groups(warehouse, plan)) | {name: known.get(name, 0) for name in KNOWN}
    return foreseen, learned.predict(foreseen, kind_of(plan))


def judge(warehouse: Warehouse, plan: SharingPlan, record: RunRecord, work: Work) -> Recorded:
    """Record the predicted cost of a run, its bounds, and the cost that its features explain.

    Returns the record from which later runs learn.
    """
    learned, cpu_seconds = Learned.of(warehouse), sum(record.cpu_seconds.values())
    foreseen, predicted = predict(warehouse, learned, plan, work, record.features)
    record.predicted_cpu_seconds = round(predicted.cpu_seconds, 3)
    record.predicted_between = round(predicted.least, 3), round(predicted.most, 3)
    record.prediction_error = round(relative_error(record.predicted_cpu_seconds, cpu_seconds), 4)
    record.explained_cpu_seconds = round(learned.costs.seconds(record.features), 3)
    return Recorded(
        record.features, record.cpu_seconds, foreseen, kind_of(plan), machine(), record.predicted_cpu_seconds
    )


def expected(plan: SharingPlan, work: Work, groups: Mapping[str, float]) -> dict[str, float]:
    """The features that a run would have if events came at the plan's rates, ``groups`` of them in every fragment.

    Nothing is expected of times for which a stream's source holds nothing, where that is known.
    """
    features: defaultdict[str, float] = defaultdict(float)
    for name, splits in work.sources.items():
        extent = _held(splits)
        spans = [span for span in work.spans if span.synopsis.stream == name]
        lifted = [request for span in spans for request in span.lifted]
        for slab in slabs_of(lifted) if lifted else ():
            first, last = span_of_slab(slab)
            events = events_about(plan, name, splits, first, last)
            features["events"] += events
            features["tree_tuples"] += events * len({span.synopsis.edges for span in slab})
            features["family_tuples"] += events * len(slab)
        for span in spans:
            rows = groups[name] * _fragments(span.synopsis, span.begin, span.end, extent)
            features["partial_rows_written"] += rows * (len(span.stored) + len(span.lifted))
            for stored in span.stored:
                features["partial_rows_read"] += groups[name] * _fragments(stored, span.begin, span.end, extent)
        for part in work.parts:
            if part.synopsis.stream != name:
                continue
            rows = groups[name] * _fragments(part.synopsis, part.begin, part.end, extent)
            features["queries"] += len(part.queries)
            features["partial_rows_read"] += rows
            features["rows_passed"] += rows * len(part.queries)
            for query in part.queries:
                until = min(part.end, extent[1] + query.window.reach - 1)
                windows = instants_between(query.window, max(work.begin, extent[0]), until)
                features["answers"] += groups[name] * windows
                covered = sum(
                    each.average if each.since is None else part.end - part.begin for each in query.window.each
                )
                features["fragments_combined"] += rows * windows * covered / (part.end - part.begin)
    return dict(features)


def events_about(plan: SharingPlan, name: str, splits: Sequence[Split], first: int, last: int) -> float:
    """Approximate number of events that a stream's splits hold in [first, last).

    Where splits do not state it, this is the number that the plan's rate gives, but no more than they have rows.
    """
    if all(split.rows is not None and split.begin is not None and split.end is not None for split in splits):
        return events_between(splits, first, last)
    begin, end = _held(splits)
    come = float(plan.rate(name)) * max(0, min(last, end) - max(first, begin)) / SECOND
    rows = [split.rows for split in splits if split.may_hold(first, last)]
    return come if None in rows else min(come, sum(filter(None, rows)))


def _held(splits: Sequence[Split]) -> tuple[int, int]:
    """Between which instants a source can hold events."""
    begins = [-TIME_MAX if split.begin is None else split.begin for split in splits]
    ends = [TIME_MAX if split.end is None else split.end for split in splits]
    return min(begins, default=TIME_MAX), max(ends, default=-TIME_MAX)


def _fragments(synopsis: Synopsis, begin: int, end: int, extent: tuple[int, int]) -> float:
    """Number of fragments with some of the times that a source has in [begin, end), extrapolated from at most a
    day.
    """
    begin, end = max(begin, extent[0]), min(end, extent[1])
    if begin >= end:
        return 0.0
    counted = min(end, begin + DAY)
    inner = synopsis.fragments.between(begin + 1, counted - 1)
    return (len(inner) + 1) * (end - begin) / (counted - begin)


def _groups(warehouse: Warehouse, plan: SharingPlan) -> dict[str, float]:
    """Groups a fragment of each stream: as the plan knows them, else as measured last, else one."""
    known = last_groups(warehouse) | dict(plan.model.groups_per_fragment)
    return {name: float(known.get(name, 1)) for name, _ in plan.rates}
