"""The metrics with joins: which are expressed, and that their answers are those over events that DuckDB joined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from optimizer.workload.attributes import attributes_in, read_attribute
from optimizer.workload.values import ACQ, Workload
from spark_jobs.operations.in_process import answers_of
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.dimensions import pinned_stream
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.files import splits_of
from tests.metrics.corpus import joined, read
from tests.metrics.dimension_rows import case_with_answers
from tests.oracle import answers, compare
from tests.spark_jobs.kernels import differences, kernel_answers

LEAST = 37
"""Metrics of the forty that the language has to express."""

by_name = {metric.name: metric for metric in joined()}
EXPRESSED = [query for metric in joined() if not metric.code for query in read(metric).queries]

THROUGH_A_RUN = (
    "metricflow_food_revenue_share",
    "metricflow_revenue_by_continent",
    "metricflow_revenue_by_tier",
    "chronon_purchases_as_of",
    "tecton_abroad",
    "looker_billing_and_shipping",
)
"""Metrics that all stages of a run answer."""


@pytest.mark.parametrize("name", by_name)
def test_a_metric_with_joins_is_accepted_or_refused_as_it_says(name: str) -> None:
    metric = by_name[name]
    result = read(metric)
    if metric.code:
        assert metric.reason and not result.queries
        assert metric.code in {error.code for error in result.errors}, result.errors
    else:
        assert not result.errors and [query.name for query in result.queries] == [name]


def test_there_are_forty_and_thirty_seven_can_be_expressed() -> None:
    assert len(by_name) == len(joined()) == 40
    assert len(EXPRESSED) >= LEAST
    assert {metric.product for metric in joined()} == {"dbt MetricFlow", "Chronon", "Tecton", "Looker"}
    assert all(any(map(read_attribute, query.columns())) for query in EXPRESSED)


# --------------------------------------------------------------------------------------------- answers
@pytest.mark.parametrize("query", EXPRESSED, ids=lambda query: query.name)
def test_the_answers_are_those_over_events_that_duckdb_joined(query: ACQ, tmp_path: Path) -> None:
    case, stream, wide = case_with_answers(query, tmp_path)
    names = [*dict(stream.schema), *attributes_in(stream, query.columns())]
    pinned = pinned_stream(stream, query.columns())
    batches = [batch for split in splits_of(pinned) for batch in read_split(pinned, split, names)]
    looked_up = pa.Table.from_batches(batches).select(names)
    everything = replace(stream, schema=tuple((name, stream.types[name]) for name in names), dimensions=())
    expected = [wide[name].cast(arrow_type(type)) for name, type in everything.schema]
    assert rows(looked_up) == rows(pa.table(expected, names=names))
    wide_case = replace(case, workload=Workload(case.workload.queries, (everything,)), events=wide)
    table = kernel_answers(replace(wide_case, events=looked_up), "shared", [40, 90], case.begin, case.end)
    assert len(table) and differences(wide_case, table) == []


def rows(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


@pytest.mark.parametrize("name", THROUGH_A_RUN)
def test_a_run_answers_as_over_events_that_duckdb_joined(name: str, tmp_path: Path) -> None:
    (query,) = read(by_name[name]).queries
    case, stream, wide = case_with_answers(query, tmp_path)
    asked = replace(query, stream="events")
    typed, problems = answers_of(Workload((asked,), (stream,)), case.begin, case.end)
    assert not [problem for problem in problems if problem.severity == "error"], problems
    expected = answers(asked, wide, stream.time, case.begin, case.end)
    assert compare(asked, typed[name], expected) == []
