"""Raw events of a sample that tasks read give the same judgement as those that the driver reads."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.plan.builder import build_plan
from optimizer.workload.values import Workload
from spark_jobs.audit.checks import recompute
from spark_jobs.audit.checks.recompute import RawEvents, RecomputedQuery
from spark_jobs.audit.unshared.duckdb_expressions import CannotTell
from spark_jobs.engine.choice import Engine
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.streams.sources.files import splits_of
from tests.oracle import answers
from tests.sizes import examples
from tests.workloads import Case, cases, sequence_cases


def judged(events: RawEvents) -> list[str] | None:
    """The rows of the groups that are recomputed, as texts; None if DuckDB cannot express the query."""
    rows: list[dict[str, Any]] = []

    def differences(judge: recompute.Judge) -> list[Any]:
        recomputed_rows = judge.rows(events.wanted.query)
        rows.extend(row for row in recomputed_rows if events.wanted.has_group(events.wanted.query, row))
        return []

    try:
        events.check(Engine("tests", given=LocalWorkers()), differences)
    except CannotTell:
        return None
    return sorted(map(repr, rows))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    case=st.one_of(cases(most_queries=2), sequence_cases(most_queries=2)),
    files=st.integers(1, 4),
    buckets=st.sets(st.integers(0, 63), min_size=24).map(sorted),
)
def test_events_read_by_tasks_give_the_rows_of_those_read_here(case: Case, files: int, buckets: list[int]) -> None:
    with tempfile.TemporaryDirectory() as place:
        (folder := Path(place) / "events").mkdir()
        for number in range(files):
            low, high = len(case.events) * number // files, len(case.events) * (number + 1) // files
            pq.write_table(case.events.slice(low, high - low), folder / f"{number}.parquet")
        source = replace(case.stream.source, format="parquet", path=str(folder))
        stream = replace(case.stream, source=source)
        plan = build_plan(Workload(case.workload.queries, (stream,)), {stream.name: Fraction(1)}, "weave-share")
        sources = {stream.name: splits_of(stream)}
        recomputed_queries = []
        for query in plan.workload.queries:
            starts = sorted({key[0] for key in answers(query, case.events, "ts", case.begin, case.end)})[-3:]
            spans = tuple((start, start + query.window.range) for start in starts)
            if query.group_by and spans:
                recomputed_queries.append(RecomputedQuery(query, spans, tuple(buckets)))
        judged_rows = []
        for limit in (10**9, -1):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(recompute, "LOCAL_EVENTS", limit)
                engine = Engine("tests", given=LocalWorkers())
                judged_rows.append(
                    [judged(events) for events in recompute.raw_events(engine, plan, sources, recomputed_queries)]
                )
        assert judged_rows[0] == judged_rows[1]
