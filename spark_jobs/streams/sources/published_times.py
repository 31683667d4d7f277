"""The times for which windows of a stream are published: what comes for these is late."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow.dataset as ds

from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.plans import planned
from spark_jobs.store.warehouse.warehouse import Warehouse


def published_spans(warehouse: Warehouse, stream: str, begin: int, end: int) -> list[tuple[int, int]]:
    """Return the spans of time in [begin, end) for which a stream's windows are published."""
    if begin >= end:
        return []
    rows = publish_log.overlapping(warehouse, begin, end, publish_log.PUBLISHED)
    versions = sorted({row.plan_version for row in rows})
    of_stream = (ds.field("stream") == stream) & ds.field("plan_version").isin(versions)
    plans = {row.plan_version for row in planned(warehouse, of_stream)} if versions else set()
    spans = []
    for row in rows:
        if row.plan_version in plans and stream not in row.record.failed:
            spans.append((row.begin, min(row.end, row.record.answered_until.get(stream, row.end))))
    return _joined(spans)


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if end <= begin:
            continue
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined
