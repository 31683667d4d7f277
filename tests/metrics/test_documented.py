"""The hundred metrics that were chosen later: accepted or refused as they say, and answered as DuckDB would by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from optimizer.workload.attributes import attributes_in
from optimizer.workload.values import ACQ, Source, Workload
from spark_jobs.operations.in_process import answers_of
from tests.metrics.by_hand import answers_by_hand, differences_by_hand
from tests.metrics.corpus import chosen, counterparts, documented, joined, metrics, read, streams
from tests.metrics.dimension_rows import case_with_answers
from tests.metrics.events import case_of
from tests.oracle import answers, compare
from tests.sizes import examples
from tests.spark_jobs.kernels import ALGORITHMS, as_read, differences, kernel_answers, of_query

LEAST = 78
"""Metrics of the hundred that the language has to express."""

by_name = {metric.name: metric for metric in documented()}
EXPRESSED = [query for metric in documented() if not metric.code for query in read(metric).queries]
WITH_JOINS = [query for query in EXPRESSED if attributes_in(streams()[query.stream], query.columns())]
OF_ROWS = [query for query in EXPRESSED if query.window.is_rows]
OF_TIME = [query for query in EXPRESSED if query not in WITH_JOINS and query not in OF_ROWS]


@pytest.mark.parametrize("name", by_name)
def test_a_chosen_metric_is_accepted_or_refused_as_it_says(name: str) -> None:
    metric = by_name[name]
    result = read(metric)
    if metric.code:
        assert metric.reason and not result.queries
        assert metric.code in {error.code for error in result.errors}, result.errors
    else:
        assert not result.errors and [query.name for query in result.queries] == [name]


def test_every_metric_that_was_chosen_is_there() -> None:
    assert len(documented()) == len(chosen()) == 100
    assert by_name.keys() == chosen().keys()
    assert counterparts().keys() == {query.name for query in EXPRESSED}
    assert len(EXPRESSED) >= LEAST


def test_the_corpus_has_240_metrics_and_a_class_for_each_that_is_refused() -> None:
    everything = [*metrics(), *joined(), *documented()]
    assert len(everything) == 240
    assert all(bool(metric.obstacle) == bool(metric.code) == bool(metric.reason) for metric in everything)


# --------------------------------------------------------------------------------------------- answers
@pytest.mark.parametrize("query", OF_TIME, ids=lambda query: query.name)
def test_the_answers_are_those_by_hand(query: ACQ) -> None:
    counted = 0
    stream = streams()[query.stream]
    for seed, algorithm in enumerate(ALGORITHMS[: examples(1, 3)]):
        case = case_of(query, stream, seed, by_name[query.name].events)
        table = kernel_answers(case, algorithm, [40, 90], case.begin, case.end)
        by_hand = answers_by_hand(counterparts()[query.name], case, {})
        assert differences_by_hand(query, as_read(query, of_query(table, query)), by_hand) == []
        assert differences(case, table) == []
        counted += len(by_hand)
    assert counted, "no answer, so nothing was compared"


@pytest.mark.parametrize("query", OF_ROWS, ids=lambda query: query.name)
def test_the_answers_of_rows_are_those_by_hand(query: ACQ, tmp_path: Path) -> None:
    case = case_of(query, streams()[query.stream], 0)
    (asked,), (stream,) = case.workload.queries, case.workload.streams
    pq.write_table(case.events, tmp_path / "events.parquet")
    filed = replace(stream, source=Source("parquet", str(tmp_path / "events.parquet")))
    typed, problems = answers_of(Workload((asked,), (filed,)), case.begin, case.end)
    assert not [problem for problem in problems if problem.severity == "error"], problems
    by_hand = answers_by_hand(counterparts()[query.name], case, {})
    assert len(by_hand) and differences_by_hand(query, typed[query.name], by_hand) == []
    assert compare(asked, typed[query.name], answers(asked, case.events, stream.time, case.begin, case.end)) == []


@pytest.mark.parametrize("query", WITH_JOINS, ids=lambda query: query.name)
def test_the_answers_with_joins_are_those_by_hand(query: ACQ, tmp_path: Path) -> None:
    case, stream, wide = case_with_answers(query, tmp_path)
    dimensions = {dimension.name: pq.read_table(dimension.source.path) for dimension in stream.dimensions}
    schema = tuple((name, stream.types[name]) for name in wide.column_names)
    everything = replace(stream, schema=schema, dimensions=())
    wide_case = replace(case, workload=Workload(case.workload.queries, (everything,)), events=wide)
    table = kernel_answers(wide_case, "shared", [40, 90], case.begin, case.end)
    by_hand = answers_by_hand(counterparts()[query.name], case, dimensions)
    assert len(by_hand) and differences_by_hand(query, as_read(query, of_query(table, query)), by_hand) == []


def test_an_answer_that_is_wrong_is_seen() -> None:
    (query,) = (query for query in EXPRESSED if query.name == "questdb_trin")
    case = case_of(query, streams()[query.stream], 0)
    ours = as_read(query, of_query(kernel_answers(case, "shared", [], case.begin, case.end), query))
    statement = counterparts()[query.name]
    for wrong in (
        statement.replace("'1 minute'", "'2 minutes'"),
        statement.replace("side = 'sell'", "side = 'buy'"),
        statement.replace("upvol", "downvol"),
    ):
        assert wrong != statement and differences_by_hand(query, ours, answers_by_hand(wrong, case, {}))
