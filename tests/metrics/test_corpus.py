"""The corpus against the language: what is accepted, what is refused and how, and that the answers are right."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, SECOND, Stream, Type, Workload
from spark_jobs.streams.sources.expressions import arrow_type
from tests.metrics.corpus import PAGE, Metric, expressed, metrics, page, read, streams
from tests.oracle import answers
from tests.sizes import examples
from tests.spark_jobs.kernels import ALGORITHMS, differences, kernel_answers
from tests.workloads import Case

LEAST = 90
"""Metrics of the hundred that the language has to express."""

BEGIN = 1_711_670_400 * SECOND
"""2024-03-29T00:00:00Z: clocks of Europe change two days later, the month ends after three."""

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


def test_there_are_a_hundred_and_ninety_can_be_expressed() -> None:
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
POOLS: dict[str, list[Any]] = {
    "kind": ["view", "cart", "buy", "click", "impression"],
    "device": ["android", "iphone", "wap", "other"],
    "country": ["MX", "DE", "US"],
    "gender": ["female", "Male", "FEMALE"],
    "region": ["Region_6", "region_6", "region_7", "x6"],
    "referrer": ["https://a.example/x", "https://b.example/y", "direct"],
    "user_agent": ["Mozilla", "GoogleBot 2.1", "a crawler"],
    "tier": ["enterprise", "free"],
    "channel": ["web", "app"],
    "status": ["cancelled", "paid", "open"],
    "price": [1, 5, 99, 120, 9_999, 10_000, 1_000_000],
    "latency": [1.5, 20.25, 700.0, 1200.0],
    "signal": [3.0, 11.0, 42.5],
    "battery": [1, 2, 3, 50],
}
CODES = [200, 204, 404, 500, 503]


def value(draw: random.Random, name: str, type: Type) -> Any:
    """A value of a column; now and then none."""
    if draw.random() < 0.05:
        return None
    pool = CODES if name == "status" and type.name == "long" else POOLS.get(name)
    kinds: dict[str, Any] = {
        "string": lambda: draw.choice(pool or ["a", "b", "c"]),
        "boolean": lambda: draw.random() < 0.4,
        "long": lambda: draw.choice(pool or [1, 2, 3, 1000]),
        "double": lambda: float(draw.choice(pool or [0.5, 1.25, 2.0, 350.75, 3.0])),
        "decimal": lambda: Decimal(draw.choice(pool or [1, 20, 99, 101, 250])) + Decimal(draw.randrange(100)) / 100,
        "date": lambda: date(2024, 3, 1),
        "timestamp": lambda: BEGIN + draw.randrange(DAY),
    }
    return kinds[type.name]()


def case_of(query: ACQ, stream: Stream, seed: int) -> Case:
    """A few windows of a query over events that are bunched, so that groups, thresholds and sequences come about."""
    draw = random.Random(f"{query.name} {seed}")
    window = query.window
    end = BEGIN + max(2 * window.period, min(4 * window.range, 4 * DAY))
    first = BEGIN - min(window.range, 40 * DAY)
    bunches = [draw.randrange(first, end) for _ in range(6)]
    near = max(SECOND, min(window.range // 4, DAY))
    times = [min(end, draw.choice(bunches) + draw.randrange(near)) for _ in range(120)]
    columns = {
        name: times if name == stream.time else [value(draw, name, type) for _ in times] for name, type in stream.schema
    }
    schema = pa.schema([(name, arrow_type(type)) for name, type in stream.schema])
    renamed = replace(stream, name="events")
    workload = Workload((replace(query, stream="events"),), (renamed,))
    return Case(workload, pa.table(columns, schema=schema), BEGIN, end)


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
