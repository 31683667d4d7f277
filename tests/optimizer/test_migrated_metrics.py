"""Metrics of dbt's semantic layer as queries: what is written, what is refused, and the answers."""

from __future__ import annotations

import datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.migration.importing import Imported, import_job
from optimizer.migration.words import Dialect
from optimizer.workload.values import ACQ, BOOLEAN, LONG, STRING, TIMESTAMP, Source, Stream
from tests.oracle import answers
from tests.sizes import examples

SCHEMA = (("at", TIMESTAMP), ("place_id", STRING), ("amount", LONG), ("is_food", BOOLEAN), ("paid", TIMESTAMP))
STREAMS = {"fct_orders": Stream("fct_orders", Source("parquet", "x"), SCHEMA, "at")}

MODEL = """semantic_models:
  - name: orders
    model: ref('fct_orders')
    defaults: {agg_time_dimension: ordered_at}
    entities:
      - {name: order, type: primary, expr: order_id}
      - {name: place, type: foreign, expr: place_id}
    dimensions:
      - {name: ordered_at, type: time, expr: cast(at as timestamp), type_params: {time_granularity: day}}
      - {name: is_food, type: categorical}
      - {name: is_large, type: categorical, expr: amount > 2}
      - {name: computed, type: time, expr: "at + interval 1 day"}
    measures:
      - {name: total, agg: sum, expr: amount}
      - {name: orders, agg: sum, expr: 1}
      - {name: places, agg: count_distinct, expr: place_id}
      - {name: amounts, agg: count, expr: amount}
      - {name: food, agg: sum_boolean, expr: is_food}
      - {name: largest, agg: max, expr: amount}
      - {name: p90, agg: percentile, expr: amount, agg_params: {percentile: 0.9}}
      - {name: p90d, agg: percentile, expr: amount, agg_params: {percentile: 0.9, use_discrete_percentile: true}}
      - {name: middle, agg: median, expr: amount}
      - {name: mean, agg: average, expr: amount, create_metric: true}
      - {name: balance, agg: sum, expr: amount, non_additive_dimension: {name: ordered_at}}
      - {name: late, agg: sum, expr: amount, agg_time_dimension: computed}
      - {name: odd, agg: mode, expr: amount}
  - name: views
    model: source('web', 'views')
    defaults: {agg_time_dimension: at}
    dimensions: [{name: at, type: time}]
    measures: [{name: views, agg: count, expr: "1"}]
metrics:
"""


def imported(metrics: str, typed: bool = True) -> Imported:
    return import_job(MODEL + metrics, Dialect.spark, "metrics.yml", STREAMS if typed else None)


def query_of(metric: str, name: str = "m") -> ACQ:
    result = imported(metric)
    assert not result.errors, result
    return {query.name: query for query in parse(result.text, STREAMS).queries}[name]


def heddle(text: str, name: str = "m") -> ACQ:
    result = parse(f"-- name: {name}\n{text}", STREAMS)
    assert not result.errors, result.errors
    return result.queries[0]


def simple(measure: str, more: str = "") -> str:
    return f"  - {{name: m, type: simple, type_params: {{measure: {measure}}}{more}}}\n"


DAILY = "FROM fct_orders WINDOW RANGE '1 day' SLIDE '1 day' ON at"

MEASURES = (
    ("total", "sum(amount)"),
    ("orders", "sum(1)"),
    ("places", "count(DISTINCT place_id)"),
    ("amounts", "count(amount)"),
    ("food", "count(*) FILTER (WHERE is_food)"),
    ("largest", "max(amount)"),
    ("p90", "percentile(amount, 0.9)"),
    ("p90d", "percentile_disc(amount, 0.9)"),
    ("middle", "median(amount)"),
    ("mean", "avg(amount)"),
    ("{name: total, fill_nulls_with: 0}", "coalesce(sum(amount), 0)"),
)


@pytest.mark.parametrize(("measure", "call"), MEASURES)
def test_measures_are_aggregates(measure: str, call: str) -> None:
    assert query_of(simple(measure)).fingerprint == heddle(f"SELECT {call} AS m {DAILY}").fingerprint


FILTERS = (
    ("{{ Dimension('order__is_food') }} = true", "is_food = true"),
    ("{{Dimension('is_large')}} OR {{ Entity('place') }} IS NULL", "(amount > 2) OR place_id IS NULL"),
    ('NOT {{ Dimension(\\"order__is_large\\") }}', "NOT (amount > 2)"),
)


@pytest.mark.parametrize(("filter", "where"), FILTERS)
def test_filters_are_conditions(filter: str, where: str) -> None:
    metric = simple("total", f', filter: "{filter}"')
    assert query_of(metric).fingerprint == heddle(f"SELECT sum(amount) AS m {DAILY} WHERE {where}").fingerprint


OTHERS = (
    ("type: cumulative, type_params: {measure: total, window: 7 days}",
     "sum(amount) AS m FROM fct_orders WINDOW RANGE '7 days' SLIDE '1 day' ON at"),
    ("type: cumulative, type_params: {measure: total, cumulative_type_params: {grain_to_date: month}}",
     "sum(amount) AS m FROM fct_orders WINDOW CUMULATE '1 month' STEP '1 day' IN 'UTC' ON at"),
    ("type: cumulative, type_params: {measure: total, cumulative_type_params: {window: {count: 2, granularity: week}}}",
     "sum(amount) AS m FROM fct_orders WINDOW RANGE '14 days' SLIDE '1 day' ON at"),
    ("type: simple, time_granularity: month, type_params: {measure: total}",
     "sum(amount) AS m FROM fct_orders WINDOW RANGE '1 month' SLIDE '1 month' IN 'UTC' ON at"),
    ("type: ratio, type_params: {numerator: {name: mean, filter: \"{{ Dimension('order__is_food') }}\"}, "
     "denominator: mean}", f"avg(amount) FILTER (WHERE is_food) / avg(amount) AS m {DAILY}"),
    ("type: derived, type_params: {expr: mean - before, metrics: [mean, {name: mean, alias: before, offset_window: 7 "
     "days}]}", "avg(amount) OVER a - avg(amount) OVER b AS m FROM fct_orders WINDOW a AS (RANGE '1 day'), "
     "b AS (RANGE '1 day' ENDING '7 days' AGO) SLIDE '1 day' ON at"),
    ("type: derived, time_granularity: month, type_params: {expr: mean - before, metrics: [mean, {name: mean, alias: "
     "before, offset_window: 1 year}]}", "avg(amount) OVER a - avg(amount) OVER b AS m FROM fct_orders WINDOW "
     "a AS (RANGE '1 month'), b AS (RANGE '1 month' ENDING '12 months' AGO) SLIDE '1 month' IN 'UTC' ON at"),
    ("type: derived, time_granularity: week, type_params: {expr: before, metrics: [{name: mean, alias: before, "
     "offset_window: {count: 2, granularity: weeks}}]}",
     "avg(amount) AS m FROM fct_orders WINDOW RANGE '1 week' SLIDE '1 week' ENDING '14 days' AGO IN 'UTC' ON at"),
)  # fmt: skip


@pytest.mark.parametrize(("metric", "query"), OTHERS)
def test_metrics_are_queries(metric: str, query: str) -> None:
    assert query_of(f"  - {{name: m, {metric}}}\n").fingerprint == heddle(f"SELECT {query}").fingerprint


IN_THE_WAY = (
    (simple("balance"), "HDL-143"),
    (simple("late"), "HDL-144"),
    (simple("odd"), "HDL-104"),
    (simple("nothing"), "HDL-146"),
    (simple("total", ", filter: \"{{ Dimension('place__country') }} = 'DE'\""), "HDL-142"),
    (simple("total", ", filter: \"{{ TimeDimension('metric_time', 'day') }} > '2020-01-01'\""), "HDL-145"),
    (simple("total", ", filter: \"{{ Metric('mean', ['place']) }} > 2\""), "HDL-143"),
    (simple("total", ', filter: "{{ var(1) }}"'), "HDL-146"),
    (simple("total", ', filter: "amount > 1; SELECT 1"'), "HDL-146"),
    ("  - {name: m, type: cumulative, type_params: {measure: total}}\n", "HDL-141"),
    ("  - {name: m, type: cumulative, type_params: {measure: total, window: 2 months}}\n", "HDL-144"),
    ("  - {name: m, type: derived, type_params: {expr: mean, metrics: [{name: mean, offset_window: 1 month}]}}\n",
     "HDL-144"),
    ("  - {name: m, type: derived, time_granularity: year, type_params: {expr: mean, metrics: [{name: mean, "
     "offset_window: 18 months}]}}\n", "HDL-144"),
    ("  - {name: m, type: derived, time_granularity: month, type_params: {expr: mean, metrics: [{name: mean, "
     "offset_window: 30 days}]}}\n", "HDL-144"),
    ("  - {name: m, type: derived, type_params: {expr: c, metrics: [{name: c, offset_window: 1 month}]}}\n"
     "  - {name: c, type: cumulative, type_params: {measure: total, window: 7 days}}\n", "HDL-144"),
    ("  - {name: m, type: conversion, type_params: {}}\n", "HDL-143"),
    ("  - {name: m, type: ratio, type_params: {numerator: mean}}\n", "HDL-146"),
    ("  - {name: m, type: derived, type_params: {expr: mean + x, metrics: [mean]}}\n", "HDL-202"),
    ("  - {name: m, type: derived, type_params: {expr: m + 1, metrics: [m]}}\n", "HDL-303"),
    ("  - {name: m, type: derived, type_params: {expr: mean, metrics: [{name: mean, offset_to_grain: month}]}}\n",
     "HDL-144"),
    ("  - {name: m, type: ratio, type_params: {numerator: mean, denominator: n}}\n"
     "  - {name: n, type: simple, type_params: {measure: views}}\n", "HDL-142"),
)  # fmt: skip


@pytest.mark.parametrize(("metric", "code"), IN_THE_WAY)
def test_what_no_query_says_has_a_reason(metric: str, code: str) -> None:
    result = imported(metric, typed=False)
    assert [each.code for each in result.errors] == [code] and "m" not in result.names, result
    assert result.errors[0].query == "m" and "mean" in result.names
    rows = MODEL.count("\n")
    assert 0 < result.errors[0].line <= rows + 2


def test_offsets_of_metrics_within_metrics_add_up() -> None:
    metrics = (
        "  - {name: m, type: derived, type_params: {expr: 2 * once, metrics: [{name: once, offset_window: 2 days}]}}\n"
        "  - {name: once, type: derived, type_params: {expr: mean + 1, metrics: [{name: mean, offset_window: 5 d}]}}\n"
    )
    window = "WINDOW RANGE '1 day' SLIDE '1 day' ENDING '7 days' AGO ON at"
    expected = heddle(f"SELECT 2 * (avg(amount) + 1) AS m FROM fct_orders {window}")
    assert query_of(metrics).fingerprint == expected.fingerprint


def test_saved_queries_have_groups_and_several_metrics() -> None:
    saved = """saved_queries:
  - name: by_place
    query_params:
      metrics: [mean, mean]
      group_by: ["TimeDimension('metric_time', 'day')", "Entity('place')", "Dimension('order__is_large')"]
"""
    query = query_of(saved.replace("[mean, mean]", "[mean]"), "by_place")
    expected = heddle(
        f"SELECT place_id AS place, amount > 2 AS is_large, avg(amount) AS mean {DAILY} GROUP BY place_id, amount > 2",
        "by_place",
    )
    assert query.fingerprint == expected.fingerprint


def test_the_project_is_read_across_documents_and_new_specifications_are_named() -> None:
    split = MODEL.replace("metrics:\n", "---\nversion: 2\nmodels: [{name: x}]\n---\nmetrics:\n")
    result = import_job(split + simple("total"), Dialect.spark, "metrics.yml", STREAMS)
    assert result.names == ("m", "mean") and [each.code for each in result.diagnostics] == ["HDL-140", "HDL-147"]
    new = "metrics: []\nmodels: [{name: x, semantic_model: {enabled: true}, metrics: []}]"
    (diagnostic,) = import_job(new, Dialect.spark, "metrics.yml").errors
    assert diagnostic.code == "HDL-146" and diagnostic.line == 2


# ------------------------------------------------------------------------------------------- generated
RUN = datetime.datetime(2024, 4, 10)
EPOCH = datetime.datetime(1970, 1, 1)
CALLS = {"total": "sum(amount)", "orders": "count(*)", "largest": "max(amount)", "places": "count(DISTINCT place_id)"}

parts = st.tuples(st.sampled_from(sorted(CALLS)), st.booleans(), st.integers(0, 4), st.integers(0, 3))
events = st.lists(
    st.tuples(st.integers(1, 9 * 24), st.sampled_from("ab"), st.none() | st.integers(-2, 5), st.booleans()),
    min_size=1,
    max_size=30,
)


@given(st.lists(parts, min_size=1, max_size=3), events)
@settings(max_examples=examples(40), deadline=None)
def test_generated_metrics_answer_as_their_definition_says(made: list[Any], rows: list[Any]) -> None:
    text, values = "", []
    for number, (measure, is_filtered, days, offset) in enumerate(made):
        window = f"type: cumulative, type_params: {{measure: {measure}, window: {days} days}}" if days else ""
        kind = window or f"type: simple, type_params: {{measure: {measure}}}"
        filter = ", filter: \"{{ Dimension('order__is_large') }}\"" if is_filtered else ""
        text += f"  - {{name: p{number}, {kind}{filter}}}\n"
        end = f"TIMESTAMP '{RUN}' - INTERVAL {offset} DAYS"
        span = f'"at" < {end} AND "at" >= {end} - INTERVAL {days or 1} DAYS'
        condition = f"{span}{' AND amount > 2' if is_filtered else ''}"
        values.append((f"{CALLS[measure]} FILTER (WHERE {condition})", condition))
    inputs = ", ".join(f"{{name: p{at}, alias: a{at}, offset_window: {part[3]} days}}" for at, part in enumerate(made))
    expression = " + ".join(f"coalesce(a{at}, {10**at})" for at in range(len(made)))
    text += f'  - {{name: m, type: derived, type_params: {{expr: "{expression}", metrics: [{inputs}]}}}}\n'
    query = query_of(text)
    columns = zip(*((RUN - datetime.timedelta(hours=hours), *row) for hours, *row in rows), strict=True)
    names, types = ("at", "place_id", "amount", "is_food"), (pa.timestamp("us"), pa.string(), pa.int64(), pa.bool_())
    table = pa.table({name: pa.array(of, type) for name, of, type in zip(names, columns, types, strict=True)})
    connection = duckdb.connect()
    connection.register("events", table)
    total = " + ".join(f"coalesce({value}, {10**at})" for at, (value, _) in enumerate(values))
    is_there = " OR ".join(f"({condition})" for _, condition in values)
    expected = connection.execute(
        f"SELECT {total} FROM events HAVING count(*) FILTER (WHERE {is_there}) > 0"
    ).fetchall()
    at = (RUN - EPOCH) // datetime.timedelta(microseconds=1)
    ours = list(answers(query, table, "at", at - 1, at).values())
    # where some parts are filtered, a window has a row if any event is in one of the spans
    assert len(ours) == len(expected) or (len({part[1] for part in made}) == 2 and not expected), query.text
    for cells, (value,) in zip(ours, expected, strict=False):
        assert cells[0].matches(int(value)), (query.text, cells, value)
