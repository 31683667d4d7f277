"""Unshared execution against the oracle, and the oracle against Spark's own ``window()``."""

from __future__ import annotations

import base64
import datetime
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.streams import TIME_UNITS
from optimizer.workload.values import (
    ACQ,
    BINARY,
    BOOLEAN,
    DOUBLE,
    LONG,
    SECOND,
    STRING,
    TIMESTAMP,
    Calendar,
    Column,
    Condition,
    Literal,
    Output,
    Source,
    Stream,
    Type,
    Window,
    decimal,
)
from spark_jobs.audit.unshared.agreement import agrees, among_first, grain, qualifies
from spark_jobs.audit.unshared.calendars import windows_holding
from spark_jobs.audit.unshared.duckdb_expressions import CannotTell
from spark_jobs.audit.unshared.duckdb_windows import recompute_here
from spark_jobs.audit.unshared.measure import native_frame, sample_of
from spark_jobs.audit.unshared.windows import recompute, unshared
from spark_jobs.streams.sources.replacements import disjoint
from tests.calendars import windows_between
from tests.historical import historical_cases
from tests.oracle import SKETCHED, TWO, answers, column_names, compare
from tests.sizes import examples
from tests.spark_jobs.audit.spark_answers import as_answers
from tests.workloads import (
    POOLS,
    SCHEMA,
    Case,
    arrow_schema,
    calendar_cases,
    cases,
    sequence_cases,
    session_cases,
    several_cases,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FEW = settings(
    max_examples=examples(4),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


def is_spark_inexact(output: Output) -> bool:
    """Whether Spark's own function says something else: it averages integers, and places percentiles, in doubles,
    so that ``(-inf, x)`` may give -inf for x; and its approximate percentiles go through doubles as well. Its moments
    are those of recurrences in doubles, its histograms depend on the order of values, its KLL sketches on chance."""
    if output.function in (*TWO, "skewness", "kurtosis", "geometric_mean") and output.type == DOUBLE:
        return True
    if output.function in ("histogram_numeric", *SKETCHED[4:]):
        return True
    if output.function == "avg":
        return output.argument_type is not None and output.argument_type.name == "long"
    if output.function.startswith(("percentile", "median")) and output.error is not None:
        return True
    return output.function in ("percentile", "percentiles") and output.argument_type == DOUBLE


@pytest.fixture(scope="module", autouse=True)
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Compiling a plan costs more than these few rows do."""
    changed = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in changed.items():
        spark.conf.set(name, value)
    yield
    for name in changed:
        spark.conf.unset(name)


@pytest.mark.longer
@settings(FEW, max_examples=examples(6))
@given(case=session_cases(most_queries=2, most_events=30))
def test_the_oracle_agrees_with_sparks_sessions(spark: SparkSession, case: Case) -> None:
    """Those that are not longer than they may be."""
    frame = spark.createDataFrame(case.events.combine_chunks())
    for query in case.workload.queries:
        query = replace(query, having=(), outputs=(Output("out", "count", None, None, LONG),))
        rows = unshared(frame, query, "ts").toArrow()
        instants = pc.add(rows["window_end"].cast(pa.int64()), 1)
        inside = pc.and_(pc.greater(instants, case.begin), pc.less_equal(instants, case.end))
        expected = answers(query, case.events, "ts", case.begin, case.end)
        of_time = {key: row for key, row in expected.items() if not row.failure}
        assert compare(query, rows.filter(inside), of_time) == [], query


@pytest.mark.longer
@FEW
@given(case=st.one_of(cases(most_queries=3, most_events=30), sequence_cases(most_queries=3)))
def test_the_oracle_agrees_with_sparks_window(spark: SparkSession, case: Case) -> None:
    frame = spark.createDataFrame(case.events.combine_chunks())
    for query in case.workload.queries:
        rows = as_answers(query, unshared(frame, query, "ts").toArrow(), case.begin, case.end)
        expected = answers(query, case.events, "ts", case.begin, case.end)
        differences = compare(query, rows, expected)
        # Spark has null where an integer sum overflows, and no coded error beside it
        doubtful = [
            "overflow=True",
            *(f" {it.name} = " for it in query.outputs if any(map(is_spark_inexact, it.plain))),
        ]
        if any(is_spark_inexact(part) for output in query.compared for part in output.plain):
            doubtful += ["not expected", "missing"]
        assert [line for line in differences if not any(mark in line for mark in doubtful)] == [], query


@pytest.mark.longer
@settings(FEW, max_examples=examples(6))
@given(case=st.one_of(calendar_cases(3, 30), several_cases(2, 30)))
def test_the_oracle_agrees_with_sparks_calendar(spark: SparkSession, case: Case) -> None:
    """Windows of calendars, cumulative and several ones, by Spark's functions of time zones."""
    # what comes is not the same in every edition of the tz database
    assume(case.end < 1_735_689_600 * SECOND)
    # an event has a row for each of its windows
    parts = [part for query in case.workload.queries for part in query.window.each]
    assume(all(not part.is_moved or part.range <= 1000 * part.slide for part in parts))
    frame = spark.createDataFrame(case.events.combine_chunks())
    for query in case.workload.queries:
        counts = (Output(f"out_{at}", "count", None, None, LONG, window=at) for at in range(len(query.window.each)))
        query = replace(query, having=(), outputs=tuple(counts))
        rows = as_answers(query, unshared(frame, query, "ts").toArrow(), case.begin, case.end)
        assert compare(query, rows, answers(query, case.events, "ts", case.begin, case.end)) == [], query


HOUR, MONTH = 3600 * SECOND, (1, "month")
HISTORICAL = (
    # zone, range, slide, offset, ago, step, then the first instant and the hours to the last
    ("UTC", (1, "day"), (1, "day"), 0, MONTH, 0, "2025-03-28", 144),
    ("Europe/Berlin", MONTH, (1, "day"), 0, MONTH, 0, "2025-03-28", 144),
    ("Europe/Berlin", MONTH, MONTH, 0, (12, "month"), 0, "2025-03-28", 1440),
    # 31 March and 27 October: a clock is put forward, and back
    ("Europe/Berlin", (1, "day"), None, 0, (30, "day"), HOUR, "2024-04-29T20:00", 24),
    ("Europe/Berlin", (1, "day"), None, 0, MONTH, HOUR, "2024-10-27T00:00", 6),
    ("America/St_Johns", (1, "day"), None, 6 * HOUR, MONTH, HOUR // 4, "2008-12-02T00:00", 12),
    ("Pacific/Apia", (1, "day"), None, 0, (12, "month"), 6 * HOUR, "2012-12-29T00:00", 72),
)


@pytest.mark.longer
@pytest.mark.parametrize(("zone", "size", "slide", "offset", "ago", "step", "begin", "hours"), HISTORICAL)
def test_sparks_functions_move_windows_as_the_oracle(
    spark: SparkSession,
    zone: str,
    size: tuple[int, str],
    slide: tuple[int, str] | None,
    offset: int,
    ago: tuple[int, str],
    step: int,
    begin: str,
    hours: int,
) -> None:
    first = int(np.datetime64(begin, "us").astype(np.int64))
    last = first + hours * HOUR
    part = Window.of_calendar(Calendar(zone, size, slide, offset, ago), step, slide != size)
    spans = windows_between(part, first, last)
    bounds = {bound for side in ("since", "until") for bound in spans[side].to_pylist()}
    times = sorted(bound + by for bound in bounds for by in (-1, 0))[:40]
    events = pa.table({"ts": pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC"))})
    query = ACQ("q", "events", Window.of_several([part]), (Output("n", "count", None, None, LONG),))
    rows = as_answers(query, unshared(spark.createDataFrame(events), query, "ts").toArrow(), first, last)
    expected = answers(query, events, "ts", first, last)
    assert expected and compare(query, rows, expected) == []


RECOMPUTED = st.one_of(
    cases(most_queries=2, most_events=40),
    sequence_cases(most_queries=2),
    several_cases(2),
    historical_cases(2),
    session_cases(most_queries=2),
)

Recomputed = Callable[[ACQ, list[tuple[int, int]]], list[dict[str, Any]]]


@FEW
@given(case=RECOMPUTED)
def test_recomputed_windows_are_the_oracles(spark: SparkSession, case: Case) -> None:
    assume(len(case.events) > 5)
    frame = spark.createDataFrame(case.events.combine_chunks())
    are_the_oracles(case, lambda query, spans: recompute(frame, query, "ts", spans).toArrow().to_pylist())


@pytest.mark.reduced
@settings(parent=FEW, max_examples=examples(20, slow=60))
@given(case=RECOMPUTED)
def test_windows_recomputed_by_duckdb_are_the_oracles(case: Case) -> None:
    assume(len(case.events) > 5)
    are_the_oracles(case, lambda query, spans: recompute_here(case.events.combine_chunks(), query, "ts", spans))


@pytest.mark.reduced
@settings(parent=FEW, max_examples=examples(80, slow=200))
@given(case=sequence_cases(most_queries=3))
def test_sequences_recomputed_by_duckdb_are_the_oracles(case: Case) -> None:
    """Funnels and absent events among them."""
    queries = tuple(query for query in case.workload.queries if query.pattern is not None)
    case = replace(case, workload=replace(case.workload, queries=queries))
    are_the_oracles(case, lambda query, spans: recompute_here(case.events.combine_chunks(), query, "ts", spans))


def are_the_oracles(case: Case, recomputed: Recomputed) -> None:
    """Of every group: what the oracle accepts :func:`agrees` accepts, and of exact outputs nothing else; a row that
    HAVING leaves out does not qualify. What an engine cannot tell is left out."""
    for query in case.workload.queries:
        everything = answers(replace(query, having=(), top=None), case.events, "ts", case.begin, case.end)
        expected = answers(query, case.events, "ts", case.begin, case.end)
        named = "window_start" if query.window.is_regular else "window_end"
        starts = sorted({key[0] for key in everything})[-3:]
        if not starts:
            continue
        lengths = {key[0]: (key[0], key[0] + query.window.range) for key in everything}
        spans = {key[0]: row.span or lengths[key[0]] for key, row in everything.items()}
        chosen_spans, gap = [spans[start] for start in starts], query.window.gap
        if gap is not None:
            of_groups = [row.span for key, row in everything.items() if row.span is not None and key[0] in starts]
            chosen_spans = list(disjoint((start - gap, end + 1) for start, end in of_groups))
        try:
            rows = recomputed(query, chosen_spans)
        except CannotTell:
            continue
        if gap is not None:
            # there may be others in their spans
            rows = [row for row in rows if _micros(row["window_end"]) in starts]
        assert len(rows) == sum(key[0] in starts for key in everything)
        row_of_grain = {grain(query, row): row for row in rows}
        verdicts = {key: qualifies(query, row) for key, row in row_of_grain.items()}
        among_first(query, row_of_grain, verdicts)
        for of, row in row_of_grain.items():
            groups = tuple(_comparable(row[name]) for name in column_names(query)[2 : 2 + len(query.group_by)])
            key = (_micros(row[named]), *groups)
            assert gap is None or (_micros(row["window_start"]), key[0]) == everything[key].span
            if key in expected and (expected[key].failure or not expected[key].certain):
                continue
            assert verdicts[of] in ((True, None) if key in expected else (False, None)), (query.having, query.top, row)
            for index, output in enumerate(query.outputs):
                cell = everything[key][index]
                if cell.free:
                    continue
                if cell.overflow or cell.may_overflow or cell.maybe:
                    assert cell.may_overflow or cell.maybe or agrees(output, None, row)
                    continue
                for value in (cells[index].value for cells in everything.values()):
                    if cell.matches(value):
                        assert agrees(output, _stored(value), row), (output, cell, value, row)
                    elif output.error is None and output.type not in (DOUBLE, BINARY) and not output.parts:
                        assert not agrees(output, _stored(value), row), (output, cell, value, row)


def _comparable(value: object) -> object:
    """A group as the oracle has it: moments are microseconds."""
    return _micros(value) if isinstance(value, datetime.datetime) else value


def _micros(moment: datetime.datetime) -> int:
    # Spark collects timestamps as naive local times
    return int(pa.scalar(moment.astimezone(datetime.UTC)).cast(pa.timestamp("us", "UTC")).value)


def _stored(value: object) -> object:
    """A value as the results table stores it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)).days
    return format(value, "f") if isinstance(value, Decimal) else value


def of_every_type() -> tuple[Output, ...]:
    """Every aggregate that is no sum or extreme, of a column of each type that it applies to; with an error of two."""
    outputs = []
    ordered = {"value+by": (Column("wild"), DOUBLE), "value+time": (Column("ts"), TIMESTAMP)}
    ordered |= {"number+number": (Column("price"), DOUBLE)}
    parameters = {"value+fraction": Decimal("0.3"), "value+k": Decimal(2)}
    fractions = {"value+fractions": (Decimal("0.3"), Decimal("0.9"))}
    for name, aggregate in AGGREGATES.items():
        if {"count", "sum"} & set(aggregate.kinds) and aggregate.takes in ("a column", "a number"):
            continue
        by = ordered.get(aggregate.signature, (None, None))
        parameter = parameters.get(aggregate.signature, aggregate.default)
        for column in ("carrier", "code", "wild", "fine", "late", "due", "seen"):
            try:
                result = aggregate.output_type(dict(SCHEMA)[column], by[1])
            except TypeError:
                continue
            output = Output(f"{name}_{column}", name, Column(column), dict(SCHEMA)[column], result, *by, parameter)
            output = replace(output, parameters=fractions.get(aggregate.signature, ()))
            outputs.append(output)
            if aggregate.sketch and column in ("carrier", "fine"):
                outputs.append(replace(output, name=f"{output.name}_about", error=Decimal("0.1")))
    return tuple(outputs)


@pytest.mark.longer
def test_every_aggregate_of_every_type(spark: SparkSession) -> None:
    chance = random.Random(7)
    at = [chance.randrange(40) * SECOND // 2 for _ in range(60)]
    columns = [[chance.choice([*POOLS[name][:5], None]) for _ in at] for name, _ in SCHEMA]
    events = pa.table([at, *columns], schema=arrow_schema())
    by_late = (("late", BOOLEAN),)
    # no multiple of the slide: windows start at -7, -2, 3, ...
    window = Window(10 * SECOND, 5 * SECOND, 7 * SECOND)
    query = ACQ("every", "events", window, of_every_type(), None, by_late, ("is_late",))
    frame = spark.createDataFrame(events)
    expected = answers(query, events, "ts", 5 * SECOND, 25 * SECOND)
    assert {key[0] // SECOND for key in expected} == {-7, -2, 3, 8} and len(expected) > 10
    assert len(query.outputs) > 70
    differences = compare(
        query, as_answers(query, unshared(frame, query, "ts").toArrow(), 5 * SECOND, 25 * SECOND), expected
    )
    doubtful = [f" {output.name} = " for output in query.outputs if is_spark_inexact(output)]
    assert [line for line in differences if not any(mark in line for mark in doubtful)] == []
    (row,) = recompute(frame, query, "ts", [(3 * SECOND, 13 * SECOND)]).where("is_late").collect()
    for output, cell in zip(query.outputs, expected[3 * SECOND, True], strict=True):
        assert agrees(output, _stored(cell.value), row.asDict()), (output, cell)


def test_an_event_between_two_shifted_windows_is_in_none(spark: SparkSession) -> None:
    count = Output("n", "count", None, None, LONG)
    query = ACQ("apart", "events", Window(10 * SECOND, 30 * SECOND, offset=5 * SECOND), (count,))
    moments = pa.array([second * SECOND for second in (5, 14, 15, 34)], pa.int64()).cast(pa.timestamp("us", "UTC"))
    (row,) = unshared(spark.createDataFrame(pa.table({"ts": moments})), query, "ts").toArrow().to_pylist()
    assert row["n"] == 2 and _micros(row["window_end"]) == 15 * SECOND


QUERY = ACQ(
    "volumes",
    "events",
    Window(10 * SECOND, 10 * SECOND),
    (
        Output("total", "sum", Column("volume"), LONG, LONG),
        Output("mean", "avg", Column("price"), DOUBLE, DOUBLE),
        Output("spread", "stddev", Column("price"), DOUBLE, DOUBLE),
        Output("top", "max", Column("carrier"), STRING, STRING),
    ),
    group_by=(("carrier", STRING),),
    select=("carrier",),
)


def test_disagreement_is_seen(spark: SparkSession) -> None:
    """The audit's comparison refuses a last digit of an integer and a relative 1e-12 of a double."""
    frame = spark.createDataFrame(
        [(1, "a", 2**62, 0.1), (2, "a", 2**62 - 1, 0.2), (3, "a", 1, 0.4), (4, None, 5, 0.7)],
        "at int, carrier string, volume bigint, price double",
    ).selectExpr("timestamp_seconds(at) AS ts", "carrier", "volume", "price")
    rows = {row["carrier"]: row.asDict() for row in recompute(frame, QUERY, "ts", [(0, 10 * SECOND)]).collect()}
    assert grain(QUERY, rows[None])[1] == (None,)
    row, (total, mean, spread, top) = rows["a"], QUERY.outputs
    assert int(row["total"]) == 2**63  # does not fit: the stored answer is null with a coded error
    assert agrees(total, None, row) and not agrees(total, 2**63 - 1, row)
    wide = replace(total, type=decimal(29, 0))
    assert agrees(wide, str(2**63), row) and not agrees(wide, str(2**63 - 1), row)
    assert agrees(mean, row["mean"], row) and not agrees(mean, row["mean"] * (1 + 1e-12), row)
    assert agrees(spread, row["spread"], row) and not agrees(spread, row["spread"] * (1 + 1e-9), row)
    assert agrees(top, "a", row) and not agrees(top, "b", row)
    assert not agrees(mean, None, row)


@pytest.mark.parametrize(
    "function, exact, near, far",
    [
        ("median", 12.5, (12.0, 10.0, 14.0), (9.0, 15.0)),
        ("percentile_disc", 20, (20, 18, 19, 30), (17, 31)),
        ("mode", 30, (30,), (1, 99)),
        (
            "top_k",
            "[[30, 4], [1, 1]]",
            ("[[30, 4], [1, 1]]", "[[30, 2], [7, 1]]", "[[30, 4]]"),
            (
                "[[30, 5], [1, 1]]",
                "[[30, 1], [1, 1]]",
                "[[1, 1], [2, 1]]",
                "[[7, 1], [30, 4]]",
                "[[30, 4], [99, 2]]",
                "[]",
            ),
        ),
        ("count_distinct", 21, (21, 30, 8), (35, 7)),
    ],
)
def test_sketches_are_held_to_their_error(
    spark: SparkSession, function: str, exact: object, near: tuple[object, ...], far: tuple[object, ...]
) -> None:
    """Of the 24 values 1 to 20 and four times 30: without an error the exact answer alone is right; with 0.1 ranks may
    be two off, counts two too low, and a number of distinct values six standard errors off."""
    frame = spark.range(1, 25).selectExpr("timestamp_seconds(1) AS ts", "if(id > 20, 30, id) AS volume")
    parameter = {"percentile_disc": Decimal("0.8"), "top_k": Decimal(2)}.get(function)
    output = Output("it", function, Column("volume"), LONG, AGGREGATES[function].output_type(LONG), parameter=parameter)
    about = replace(output, name="about", error=Decimal("0.1"))
    query = ACQ("sketches", "events", Window(10 * SECOND, 10 * SECOND), (output, about))
    (spark_row,) = recompute(frame, query, "ts", [(0, 10 * SECOND)]).collect()
    row = spark_row.asDict()
    assert agrees(output, exact, row)
    for wrong in {*near, *far, None} - {exact}:
        assert not agrees(output, wrong, row), wrong
    assert all(agrees(about, value, row) for value in near)
    for wrong in (*far, None):
        assert not agrees(about, wrong, row), wrong


def test_ranks_off_by_an_error_end_at_the_least_value(spark: SparkSession) -> None:
    """Of three values half of them is two ranks: from the median both least and greatest are accepted."""
    frame = spark.range(1, 4).selectExpr("timestamp_seconds(1) AS ts", "id AS volume")
    output = Output("it", "median", Column("volume"), LONG, DOUBLE, error=Decimal("0.5"))
    query = ACQ("sketch", "events", Window(10 * SECOND, 10 * SECOND), (output,))
    (row,) = recompute(frame, query, "ts", [(0, 10 * SECOND)]).collect()
    assert [value for value in range(6) if agrees(output, float(value), row.asDict())] == [1, 2, 3]


@pytest.mark.parametrize(
    ("span", "begin", "end"),
    [
        ((1, "day"), "2013-03-30T23:00:00+00:00", "2013-03-31T22:00:00+00:00"),
        ((1, "month"), "2013-02-28T23:00:00+00:00", "2013-03-31T22:00:00+00:00"),
        ((3, "month"), "2012-12-31T23:00:00+00:00", "2013-03-31T22:00:00+00:00"),
    ],
)
def test_calendar_windows_begin_by_the_zones_clock(
    spark: SparkSession, span: tuple[int, str], begin: str, end: str
) -> None:
    """Berlin's clocks are put forward on 2013-03-31."""
    window = Window.of_calendar(Calendar("Europe/Berlin", span, span))
    frame = spark.sql("SELECT timestamp '2013-03-31T12:00:00Z' AS ts")
    spans = frame.select(F.inline(windows_holding(window, F.col("ts")))).selectExpr(
        "unix_micros(start)", "unix_micros(end)"
    )
    moments = [datetime.datetime.fromisoformat(text) for text in (begin, end)]
    assert [tuple(row) for row in spans.collect()] == [tuple(int(moment.timestamp()) * SECOND for moment in moments)]


def test_thresholds_leave_a_row_out_unless_rounding_decides(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(2**62, 0.1), (2**62, 0.2), (7, 0.3)], "volume bigint, price double")
    frame = frame.selectExpr("timestamp_seconds(1) AS ts", "volume", "price")
    count = Output("n", "count", None, None, LONG)
    money = Output("money", "sum", Column("price"), DOUBLE, DOUBLE)
    total = Output("total", "sum", Column("volume"), LONG, LONG)
    users = Output("users", "count_distinct", Column("volume"), LONG, LONG, error=Decimal("0.1"))
    high = Output("high", "max", Column("price"), DOUBLE, DOUBLE)

    def verdict(*having: tuple[Output, str, object, Type]) -> bool | None:
        conditions = tuple(Condition(output, how, Literal(value, type)) for output, how, value, type in having)
        query = ACQ("kept", "events", Window(10 * SECOND, 10 * SECOND), (count,), having=conditions)
        (row,) = recompute(frame, query, "ts", [(0, 10 * SECOND)]).collect()
        return qualifies(query, row.asDict())

    assert verdict((count, ">", 2, LONG), (high, "=", 0.3, DOUBLE)) is True
    assert verdict((count, ">", 3, LONG), (money, ">", 0.6, DOUBLE)) is False
    # 0.1 + 0.2 + 0.3 is 0.6 or the double after it
    assert verdict((money, ">", 0.6, DOUBLE)) is None
    assert verdict((money, ">", 0.6000001, DOUBLE)) is False and verdict((money, ">=", 0.5999, DOUBLE)) is True
    # 2**63 and more: an error, not a value
    assert verdict((total, ">", 0, LONG)) is None and verdict((count, "<", 3, LONG), (total, ">", 0, LONG)) is False
    # 2 of 3 volumes are distinct, give or take 2.2
    assert verdict((users, "<", 4, LONG)) is None and verdict((users, "<", 5, LONG)) is True
    # the text of the most frequent values is nothing to recompute
    top = Output("top", "top_k", Column("volume"), LONG, STRING, parameter=Decimal(2))
    assert (
        verdict((top, ">", "a,b", STRING)) is None and verdict((count, ">", 3, LONG), (top, ">", "a", STRING)) is False
    )


# ---------------------------------------------------------------------------- streams as Spark reads them
JULY = datetime.datetime(2013, 7, 1, 12, 30, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("option", "time"),
    [
        ({}, "2013-07-01T12:30:00"),
        ({"delimiter": ";", "quote": "'"}, "2013-07-01 12:30:00"),
        ({"delimiter": "\t", "quote": None, "header": False}, "2013-07-01T12:30:00Z"),
        ({"null": ("NA",), "timestamp_format": "%d/%m/%Y %H:%M"}, "01/07/2013 12:30"),
        ({"timestamp_format": "%Y%m%d %H%M%S.%f"}, "20130701 123000.0"),
        ({"timestamp_format": "%b %d %Y %I:%M %p"}, "Jul 1 2013 12:30 PM"),
        ({"timestamp_format": "%Y-%m-%dT%H:%M:%S%z"}, "2013-07-01T14:30:00+0200"),
        ({"time_unit": "ms"}, "1372681800000"),
    ],
)
def test_spark_reads_csv_by_the_same_options(
    spark: SparkSession, tmp_path: Path, option: dict[str, Any], time: str
) -> None:
    source = Source("csv", str(tmp_path / "events.csv"), **option)
    schema = (("ts", TIMESTAMP), ("text", STRING), ("price", DOUBLE))
    mark = source.quote or ""
    text = f"two{'' if source.quote is None else chr(10)}lines{mark * 2}"
    names = ["ts", "text", "price"] if not source.header else ["price", "unread", "ts", "text"]
    fields = {"ts": time, "text": f"{mark}{text}{mark}", "price": "1.5", "unread": "x"}
    lines = [[fields[name] for name in names], [(fields | {"price": (*source.null, "")[0]})[name] for name in names]]
    lines = [names, *lines] if source.header else lines
    Path(source.path).write_text("".join(source.delimiter.join(line) + "\n" for line in lines))
    rows = native_frame(spark, Stream("events", source, schema, "ts")).select("ts", "text", "price").collect()
    expected_text = f"two{'' if source.quote is None else chr(10)}lines{mark}"
    assert [(row.ts.replace(tzinfo=datetime.UTC), row.text, row.price) for row in rows] == [
        (JULY, expected_text, 1.5),
        (JULY, expected_text, None),
    ]


@pytest.mark.parametrize(
    ("option", "said"),
    [({"null": ("NA", "-")}, "several texts"), ({"timestamp_format": "%d.%m.%y"}, "%y in its timestamp_format")],
)
def test_what_spark_cannot_be_told_is_coded(
    spark: SparkSession, tmp_path: Path, option: dict[str, Any], said: str
) -> None:
    source = Source("csv", str(tmp_path / "events.csv"), **option)
    Path(source.path).write_text("ts\n")
    with pytest.raises(HeddleError, match=f"HDL-425 .*{said}"):
        native_frame(spark, Stream("events", source, (("ts", TIMESTAMP),), "ts"))


def test_spark_reads_parquet_in_nanoseconds(spark: SparkSession, tmp_path: Path) -> None:
    times = pa.array([-1, 1_372_681_800_123_456_789, None], pa.timestamp("ns"))
    pq.write_table(pa.table({"ts": times}), tmp_path / "a.parquet")
    stream = Stream("events", Source("parquet", str(tmp_path)), (("ts", TIMESTAMP),), "ts")
    try:
        frame = native_frame(spark, stream)
        assert frame.selectExpr("unix_micros(ts) AS at").toPandas()["at"].dropna().tolist() == [
            -1,
            1_372_681_800_123_456,
        ]
        pq.write_table(pa.table({"ts": times.cast(pa.timestamp("us"), safe=False)}), tmp_path / "b.parquet")
        with pytest.raises(HeddleError, match="HDL-425 .*nanoseconds"):
            native_frame(spark, stream)
    finally:
        spark.conf.unset("spark.sql.legacy.parquet.nanosAsLong")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_spark_reads_integer_times_by_their_unit(spark: SparkSession, tmp_path: Path, unit: str) -> None:
    above, below = TIME_UNITS[unit]
    micros = 1_372_681_800_000_000
    pq.write_table(pa.table({"ts": [micros * below // above, -1]}), tmp_path / "a.parquet")
    stream = Stream("events", Source("parquet", str(tmp_path), time_unit=unit), (("ts", TIMESTAMP),), "ts")
    rows = native_frame(spark, stream).selectExpr("unix_micros(ts) AS at").collect()
    assert [row["at"] for row in rows] == [micros, -above // below]


def test_a_sample_has_no_query_twice() -> None:
    queries = [ACQ(f"q{number}", "events", Window(SECOND, SECOND), ()) for number in range(7)]
    for count in range(8):
        for sample in (1, 3, 7, 10, 100):
            chosen = sample_of(queries[:count], sample)
            assert len({query.name for query in chosen}) == len(chosen) == min(sample, count)
    assert [query.name for query in sample_of(queries, 3)] == ["q0", "q2", "q4"]
