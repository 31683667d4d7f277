"""The corpus against the language: what is accepted, what is refused and how, and that the answers are right."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from optimizer.workload.values import ACQ, Workload
from tests.metrics.corpus import PAGE, Metric, expressed, metrics, page, read, streams
from tests.metrics.events import case_of
from tests.oracle import answers
from tests.sizes import examples
from tests.spark_jobs.kernels import ALGORITHMS, differences, kernel_answers

LEAST = 95
"""Metrics of the hundred that the language has to express."""

by_name = {metric.name: metric for metric in metrics()}


@pytest.mark.parametrize("name", by_name)
def test_a_metric_is_accepted_or_refused_as_it_says(name: str) -> None:
    metric = by_name[name]
    result = read(metric)
    if metric.code:
        assert result.errors and not result.queries
        assert metric.code in {error.code for error in result.errors}, result.errors
    else:
        assert not result.errors and [query.name for query in result.queries] == [name]


def test_there_are_a_hundred_and_ninety_three_can_be_expressed() -> None:
    assert len(by_name) == len(metrics()) == 100
    accepted = [metric for metric in metrics() if not metric.code]
    assert len(accepted) >= LEAST
    products = Counter(metric.product for metric in accepted)
    assert len(products) >= 9 and min(products.values()) >= 2, products


def test_a_metric_is_one_and_a_refusal_has_a_reason() -> None:
    assert all((metric.reason != "") == (metric.code != "") for metric in metrics())
    assert len({query.fingerprint for query in expressed()}) > 0.9 * len(expressed()), "metrics that are one"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "python -m tests.metrics.corpus renews docs/metrics.md"


# --------------------------------------------------------------------------------------------- answers
@pytest.mark.parametrize("query", expressed(), ids=lambda query: query.name)
def test_the_answers_are_those_of_the_oracle(query: ACQ) -> None:
    counted = 0
    for seed, algorithm in enumerate(ALGORITHMS[: examples(1, 3)]):
        case = case_of(query, streams()[query.stream], seed)
        table = kernel_answers(case, algorithm, [40, 90], case.begin, case.end)
        assert differences(case, table) == []
        counted += len(answers(case.workload.queries[0], case.events, case.stream.time, case.begin, case.end))
    assert counted, "no answer, so nothing was compared"


def test_metrics_of_one_stream_share_their_trees() -> None:
    together = [query for query in expressed() if query.stream == "requests" and query.kind.shares_synopses]
    stream = streams()["requests"]
    case = case_of(together[0], stream, 7)
    queries = tuple(replace(query, stream="events") for query in together)
    case = replace(case, workload=Workload(queries, case.workload.streams))
    for algorithm in ALGORITHMS:
        assert differences(case, kernel_answers(case, algorithm, [60], case.begin, case.end)) == []


def test_a_metric_that_is_wrong_is_seen() -> None:
    metric = by_name["spark_word_counts"]
    assert read(replace(metric, text=metric.text.replace("count(*)", "counts(*)"))).errors
    assert isinstance(metric, Metric)
