"""Conditions on the time in aggregates of a job, as windows of one query: the answers of both, and what is refused."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.migration.importing import Imported, import_job
from optimizer.migration.words import Dialect
from optimizer.workload.values import ACQ, LONG, STRING, TIMESTAMP, Source, Stream
from tests.oracle import answers
from tests.sizes import examples

SPARK, FLINK = Dialect.spark, Dialect.flink

SCHEMA = (("ts", TIMESTAMP), ("k", STRING), ("x", LONG), ("n", LONG))
STREAMS = {"orders": Stream("orders", Source("parquet", "x"), SCHEMA, "ts")}

EPOCH = datetime.datetime(1970, 1, 1)
HOUR = datetime.timedelta(hours=1)
RUN = datetime.datetime(2024, 4, 10)
"""When the jobs run: at midnight, so that nothing differs."""


def imported(text: str, dialect: Dialect = SPARK) -> Imported:
    return import_job(text, dialect, "job.sql", STREAMS)


def query_of(text: str, dialect: Dialect = SPARK) -> ACQ:
    result = imported(text, dialect)
    assert not result.errors and len(result.names) == 1, (text, result)
    (query,) = parse(result.text, STREAMS).queries
    return query


def codes(text: str, dialect: Dialect = SPARK) -> list[str]:
    return [diagnostic.code for diagnostic in imported(text, dialect).diagnostics]


def heddle(text: str) -> ACQ:
    result = parse(f"-- name: query_1\n{text}", STREAMS)
    assert not result.errors, result.errors
    return result.queries[0]


# ----------------------------------------------------------------------------------- what is written
SEVERAL = (
    "SELECT k, sum(x) OVER a AS short, sum(x) OVER b AS long FROM orders "
    "WINDOW a AS (RANGE '7 days'), b AS (RANGE '30 days') SLIDE '1 day' ON ts GROUP BY k"
)
AS_WRITTEN = (
    "SELECT k, sum(CASE WHEN ts >= date_sub(current_date, 7) THEN x END) AS short, sum(x) AS long FROM orders "
    "WHERE ts >= date_sub(current_date(), 30) GROUP BY k",
    "SELECT k, sum(x) FILTER (WHERE ts >= current_date - INTERVAL 7 DAYS) AS short, sum(x) AS long FROM orders "
    "WHERE ts BETWEEN dateadd(day, -30, current_date) AND current_date GROUP BY k",
    "SELECT k, sum(if(date(ts) > current_date - 8, x, NULL)) AS short, sum(x) AS long FROM orders "
    "WHERE datediff(current_date, ts) <= 30 GROUP BY 1",
    "SELECT k, sum(CASE WHEN now() - INTERVAL '7' DAY <= ts THEN x END) AS short, sum(x) AS long FROM orders "
    "WHERE ts >= current_timestamp() - INTERVAL '30 days' GROUP BY k",
    "WITH recent AS (SELECT k, x, CAST(ts AS DATE) >= date_add(to_date(current_timestamp()), -7) AS is_new FROM orders "
    "WHERE ts >= timestampadd(DAY, -30, current_date)) "
    "SELECT k, sum(CASE WHEN is_new THEN x END) AS short, sum(x) AS long FROM recent GROUP BY k",
    "SELECT k, sum(x) FILTER (WHERE ts >= window.end - INTERVAL 7 * INTERVAL 1 DAY) AS short, sum(x) AS long "
    "FROM orders GROUP BY window(ts, '30 days', '1 day'), k".replace("INTERVAL 7 * ", "7 * "),
)


@pytest.mark.parametrize("text", AS_WRITTEN)
def test_spans_are_windows_of_one_query(text: str) -> None:
    assert query_of(text).fingerprint == heddle(SEVERAL).fingerprint


ONE = (
    ("ts >= current_date - 7 AND ts < current_date", "RANGE '7 days' SLIDE '1 day'"),
    ("ts >= current_date - 8 AND ts < current_date - 1", "RANGE '7 days' SLIDE '1 day' ENDING '1 day' AGO"),
    ("ts >= now() - INTERVAL 15 MINUTES", "RANGE '15 minutes' SLIDE '15 minutes'"),
    ("date(ts) = current_date", "CUMULATE '1 day' STEP '1 hour'"),
    ("ts >= date_trunc('month', current_date)", "CUMULATE '1 month' STEP '1 day' IN 'UTC'"),
    ("date_trunc('WEEK', ts) = date_trunc('week', now())", "CUMULATE '1 week' STEP '1 day' IN 'UTC'"),
    (
        "date_trunc('month', ts) = date_trunc('month', add_months(current_date, -1))",
        "RANGE '1 month' SLIDE '1 month' IN 'UTC'",
    ),
    (
        "ts >= date_trunc('year', current_date) - INTERVAL 2 YEARS AND ts < date_trunc('year', current_date)",
        "RANGE '2 years' SLIDE '1 year' IN 'UTC'",
    ),
    (
        "ts >= date_trunc('month', current_date) - INTERVAL 13 MONTHS "
        "AND ts < date_trunc('month', current_date) - INTERVAL 12 MONTHS",
        "RANGE '1 month' SLIDE '1 month' ENDING '1 year' AGO IN 'UTC'",
    ),
    (
        "date_trunc('quarter', ts) = date_trunc('quarter', add_months(current_date, -12))",
        "RANGE '1 quarter' SLIDE '1 quarter' ENDING '9 months' AGO IN 'UTC'",
    ),
    ("ts >= current_date - 3 AND ts >= current_timestamp() - INTERVAL 1 HOUR", "RANGE '1 hour' SLIDE '1 hour'"),
)


@pytest.mark.parametrize(("condition", "window"), ONE)
def test_one_span_is_one_window(condition: str, window: str) -> None:
    text = f"SELECT k, sum(x) AS s, current_date AS day FROM orders WHERE {condition} AND n > 1 GROUP BY k, 3"
    expected = heddle(f"SELECT k, sum(x) AS s FROM orders WINDOW {window} ON ts WHERE n > 1 GROUP BY k")
    assert query_of(text).fingerprint == expected.fingerprint
    assert "HDL-140" in codes(text) and "HDL-147" in codes(text)


AGGREGATES = (
    ("sum(CASE WHEN {} THEN x ELSE 0 END)", "coalesce(sum(x) OVER a, 0)"),
    ("sum(CASE WHEN {} THEN 1 ELSE 0 END)", "count(*) OVER a"),
    ("sum(if({} AND n > 1, x, 0))", "coalesce(sum(if(n > 1, x, 0)) OVER a, 0)"),
    ("sum(CASE WHEN {} THEN x ELSE 0 END) FILTER (WHERE n > 1)", ""),
    ("sum(CASE WHEN {} THEN x END) FILTER (WHERE n > 1)", "sum(x) FILTER (WHERE n > 1) OVER a"),
    ("count_if({} AND n > 1)", "count(*) FILTER (WHERE n > 1) OVER a"),
    ("count(CASE WHEN {} THEN 1 END)", "count(*) OVER a"),
    ("count(DISTINCT CASE WHEN {} THEN n ELSE NULL END)", "count(DISTINCT n) OVER a"),
    ("max(x) FILTER (WHERE {} OR FALSE)", ""),
    ("max(CASE WHEN {} THEN x ELSE 0 END)", ""),
    ("avg(CASE WHEN {} THEN x WHEN n > 1 THEN 2 END)", ""),
    ("max_by(CASE WHEN {} THEN x END, n)", ""),
    ("sum(x * CAST({} AS INT))", ""),
    ("percentile(CASE WHEN {} THEN x END, 0.5) / (1 + max(n))", "percentile(x, 0.5) OVER a / (1 + max(n) OVER b)"),
)


@pytest.mark.parametrize(("job", "query"), AGGREGATES)
def test_conditions_within_aggregates(job: str, query: str) -> None:
    condition = "ts >= window_end - INTERVAL '1' HOUR"
    text = (
        f"SELECT k, {job.format(condition)} AS s, count(*) AS c FROM TABLE(HOP(TABLE orders, DESCRIPTOR(ts), "
        "INTERVAL '5' MINUTES, INTERVAL '1' DAY)) GROUP BY k, window_start, window_end"
    )
    if not query:
        (diagnostic,) = imported(text, FLINK).errors
        assert diagnostic.code == "HDL-145" and diagnostic.column > text.index("SELECT k,")
        return
    windows = "WINDOW a AS (RANGE '1 hour'), b AS (RANGE '1 day') SLIDE '5 minutes' ON ts GROUP BY k"
    expected = heddle(f"SELECT k, {query} AS s, count(*) OVER b AS c FROM orders {windows}")
    assert query_of(text, FLINK).fingerprint == expected.fingerprint


IN_THE_WAY = (
    ("SELECT k, ^sum(x) FROM orders WHERE n > 1 GROUP BY k", "HDL-141"),
    ("SELECT k, sum(x) FILTER (WHERE ts >= current_date - 7) AS a, ^sum(x) AS b FROM orders GROUP BY k", "HDL-141"),
    ("SELECT k, sum(CASE WHEN ^ts >= add_months(current_date, -1) THEN x END) AS a FROM orders GROUP BY k", "HDL-144"),
    ("SELECT k, count_if(ts >= current_date - 1) AS a, count_if(ts >= now() - INTERVAL 1 HOUR) AS b FROM orders "
     "GROUP BY k", "HDL-144"),
    ("SELECT k, sum(x) AS a FROM orders WHERE ^date(ts) >= now() - INTERVAL 7 DAYS GROUP BY k", "HDL-144"),
    ("SELECT k, sum(x) AS a FROM orders WHERE NOT (^ts >= current_date) GROUP BY k", "HDL-145"),
    ("SELECT k, sum(x) AS a FROM orders WHERE ts >= current_date - n GROUP BY k", "HDL-145"),
    ("SELECT k, sum(x) AS a FROM orders WHERE ts >= current_date - 7 AND ^n2 > current_date - 3 GROUP BY k", "HDL-144"),
    ("SELECT k, sum(CASE WHEN ts < window.start - INTERVAL 1 HOUR THEN x END) AS a FROM orders "
     "GROUP BY window(ts, '1 day'), k", "HDL-144"),
    ("SELECT k, sum(CASE WHEN ^n > window.start THEN x END) AS a FROM orders "
     "GROUP BY window(ts, '1 day'), k", "HDL-144"),
)  # fmt: skip


@pytest.mark.parametrize(("marked", "code"), IN_THE_WAY)
def test_what_no_window_says_is_refused(marked: str, code: str) -> None:
    text = marked.replace("^", "", 1)
    (diagnostic,) = imported(text).errors
    assert diagnostic.code == code, diagnostic
    if "^" in marked:
        assert diagnostic.column - 1 <= marked.index("^"), diagnostic


def test_what_differs_is_noted() -> None:
    window = "FROM orders WHERE ts > now() - INTERVAL 30 DAYS GROUP BY k"
    assert codes(f"SELECT k, sum(x) AS s {window}") == ["HDL-147", "HDL-147"]
    assert codes("SELECT k, count_if(ts >= current_date - 7 AND ts < current_date) AS s FROM orders GROUP BY k") == [
        "HDL-147",
        "HDL-147",
    ]
    # of windows every one has an answer, whenever the job runs
    text = "SELECT k, sum(x) AS s FROM orders WHERE ts >= current_date - 3 GROUP BY window(ts, '1 hour'), k"
    assert codes(text) == ["HDL-140"]
    expected = heddle("SELECT k, sum(x) AS s FROM orders WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts GROUP BY k")
    assert query_of(text).fingerprint == expected.fingerprint


# ------------------------------------------------------------------------------------------- generated
@dataclass(frozen=True)
class Job:
    """A job: its text for Spark, and for a window of which length and slide, in hours (of a batch job none)."""

    text: str
    size: int
    slide: int


def _conditions(draw: st.DrawFn, size: int) -> str:
    """A condition on the time. ``size``: of the window, in hours; 0 of a batch job by days, -1 of one by the clock."""
    begin = draw(st.integers(1, size if size > 0 else 9))
    end = draw(st.sampled_from([0, 0, *range(begin)]))
    if size > 0:
        start = draw(st.booleans())
        low = f"window.start + INTERVAL {size - begin} HOURS" if start else f"window.end - INTERVAL {begin} HOURS"
        return f"ts >= {low}" + (f" AND ts < window.end - INTERVAL '{end}' HOUR" if end else "")
    if size < 0:
        low = draw(
            st.sampled_from([f"now() - INTERVAL {begin} HOURS", f"current_timestamp() - INTERVAL '{begin}' HOUR"])
        )
        return f"ts >= {low}" + (f" AND ts < now() - INTERVAL {end} HOURS" if end else "")
    low = draw(
        st.sampled_from(
            [
                f"ts >= date_sub(current_date, {begin})",
                f"ts >= current_date - INTERVAL {begin} DAYS",
                f"CAST(ts AS DATE) >= current_date - {begin}",
                f"date(ts) > date_sub(current_date, {begin + 1})",
                f"datediff(current_date, ts) <= {begin}",
            ]
        )
    )
    return low + (f" AND ts < date_sub(current_date, {end})" if end else "")


FORMS = (
    "sum(x) FILTER (WHERE {0})",
    "sum(CASE WHEN {0} THEN x END)",
    "sum(CASE WHEN {0} AND n > 1 THEN x END)",
    "sum(if({0}, 1, 0))",
    "sum(CASE WHEN {0} THEN n ELSE 0 END)",
    "sum(CASE WHEN {0} THEN x END) FILTER (WHERE n > 0)",
    "count_if({0})",
    "count(CASE WHEN {0} THEN x END)",
    "count(DISTINCT CASE WHEN n > 0 AND {0} THEN n END)",
    "max(CASE WHEN {0} THEN x END) - min(n)",
    "coalesce(sum(x) FILTER (WHERE {0}), 0) + count(*)",
)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    size = draw(st.sampled_from([0, -1, 4, 12]))
    slide = draw(st.sampled_from([1, 2])) if size > 0 else 0
    spans = [_conditions(draw, size) for _ in range(draw(st.integers(1, 3)))]
    forms = draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=4, unique=True))
    items = [f"{form.format(draw(st.sampled_from(spans)))} AS o{at}" for at, form in enumerate(forms)]
    keys = draw(st.sampled_from([["k"], ["k", "n % 2"]]))
    named = [keys[0], *(f"{key} AS parity" for key in keys[1:])]
    where = draw(st.sampled_from([["n < 3"], []]))
    outer = "date_sub(current_date, 10)" if size == 0 else "now() - INTERVAL 10 HOURS"
    where += [f"ts >= {outer}"] if size <= 0 else []
    having = draw(st.sampled_from(["", " HAVING count(*) > 1"]))
    text = f"SELECT {', '.join([*named, *items])} FROM orders"
    text += f" WHERE {' AND '.join(where)}" if where else ""
    windows = [f"window(ts, '{size} hours', '{slide} hours')"] if size > 0 else []
    return Job(f"{text} GROUP BY {', '.join([*windows, *keys])}{having}", size, slide)


events = st.lists(
    st.tuples(
        st.integers(0, 11 * 24 * 2), st.sampled_from("ab"), st.none() | st.integers(-3, 3), st.integers(-1, 4)
    ),
    max_size=40,
)  # fmt: skip


def by_duckdb(job: Job, table: pa.Table, end: datetime.datetime) -> list[tuple[Any, ...]]:
    """The answer of the job's own text, as sqlglot has it for DuckDB, of the window or the run that ends at a time."""
    literal, begin = f"TIMESTAMP '{end}'", end - job.size * HOUR
    text = job.text.replace("window.end", "current_timestamp()").replace("window.start", f"TIMESTAMP '{begin}'")
    text = text.replace("now()", "current_timestamp()")
    if job.size > 0:
        text = text.replace(f"window(ts, '{job.size} hours', '{job.slide} hours'), ", "")
    (text,) = sqlglot.transpile(text, read="spark", write="duckdb")
    assert "window" not in text.lower(), text
    text = text.replace("CURRENT_TIMESTAMP", literal).replace("CURRENT_DATE", f"CAST({literal} AS DATE)")
    source = f"(SELECT * FROM orders WHERE ts < {literal}"
    source += f" AND ts >= TIMESTAMP '{begin}')" if job.size > 0 else ")"
    connection = duckdb.connect()
    connection.register("orders", table)
    return connection.execute(text.replace("FROM orders", f"FROM {source} AS orders")).fetchall()


@given(jobs(), events)
@settings(max_examples=examples(150), deadline=None)
def test_generated_jobs_and_their_queries_answer_the_same(job: Job, rows: list[tuple[Any, ...]]) -> None:
    query = query_of(job.text)
    times = [RUN + 10 * HOUR - at * HOUR / 2 for at, *_ in rows]
    columns = [times, *([row[at] for row in rows] for at in (1, 2, 3))]
    types = (pa.timestamp("us"), pa.string(), pa.int64(), pa.int64())
    table = pa.table({name: pa.array(of, type) for (name, _), of, type in zip(SCHEMA, columns, types, strict=True)})
    end = RUN if job.size <= 0 else RUN - 8 * HOUR
    at = (end - EPOCH) // datetime.timedelta(microseconds=1)
    expected = by_duckdb(job, table, end)
    given_rows = answers(query, table, "ts", at - 1, at)
    outputs = len(expected[0]) - len(query.group_by) if expected else 0
    ours = {key[1:]: cells for key, cells in given_rows.items()}
    theirs_by_key = {row[: len(query.group_by)]: row[len(query.group_by) :] for row in expected}
    assert ours.keys() == theirs_by_key.keys(), (job.text, query.text)
    for key, cells in ours.items():
        assert len(cells) == outputs
        for cell, value in zip(cells, theirs_by_key[key], strict=True):
            assert cell.matches(None if value is None else int(value)), (job.text, query.text, key, cells, value)
