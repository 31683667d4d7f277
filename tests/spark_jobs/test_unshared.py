"""Unshared execution against the oracle, and the oracle against Spark's own ``window()``."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from optimizer.query import ACQ, DOUBLE, LONG, SECOND, STRING, Column, Output, Window, decimal
from spark_jobs.unshared import agrees, grain, recompute, unshared
from tests.oracle import answers, arrow_type, column_names, compare
from tests.workloads import Case, cases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FEW = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


def as_answers(query: ACQ, rows: pa.Table, begin: int, end: int) -> pa.Table:
    """Spark's rows as results are typed: the windows that end in (begin, end], narrow integers widened."""
    ends = pc.cast(rows["window_end"], pa.int64())
    rows = rows.filter(pc.and_(pc.greater(ends, begin), pc.less_equal(ends, end)))
    instant = pa.timestamp("us", "UTC")
    types = [instant, instant, *(arrow_type(type) for _, type in query.group_by)]
    types += [arrow_type(output.type) for output in query.outputs]
    return rows.cast(pa.schema(list(zip(column_names(query), types, strict=True))))


@FEW
@given(case=cases(most_queries=3, most_events=30))
def test_the_oracle_agrees_with_sparks_window(spark: SparkSession, case: Case) -> None:
    frame = spark.createDataFrame(case.events)
    for query in case.workload.queries:
        rows = as_answers(query, unshared(frame, query, "ts").toArrow(), case.begin, case.end)
        expected = answers(query, case.events, "ts", case.begin, case.end)
        # Spark has null where an integer sum overflows, and no coded error beside it
        found = [line for line in compare(query, rows, expected) if "overflow=True" not in line]
        found = [line for line in found if "may_overflow=True" not in line]
        assert found == [], query


@FEW
@given(case=cases(most_queries=2, most_events=40))
def test_recomputed_windows_are_the_oracles(spark: SparkSession, case: Case) -> None:
    assume(len(case.events) > 5)
    frame = spark.createDataFrame(case.events)
    for query in case.workload.queries:
        expected = answers(query, case.events, "ts", case.begin, case.end)
        starts = sorted({key[0] for key in expected})[-3:]
        if not starts:
            continue
        rows = recompute(frame, query, "ts", [(start, start + query.window.range) for start in starts]).collect()
        assert len(rows) == sum(key[0] in starts for key in expected)
        by_name = {output.name: index for index, output in enumerate(query.outputs)}
        cells = {(key[0], key[1:]): found for key, found in expected.items()}
        for row in (row.asDict() for row in rows):
            start = _micros(row["window_start"])
            groups = tuple(row[name] for name in column_names(query)[2 : 2 + len(query.group_by)])
            for output in query.outputs:
                cell = cells[start, groups][by_name[output.name]]
                value = _stored(cell.value)
                assert cell.may_overflow or agrees(output, None if cell.overflow else value, row), (
                    output,
                    cell,
                    row,
                )


def _micros(moment: datetime.datetime) -> int:
    # Spark collects timestamps as naive local times
    return int(pa.scalar(moment.astimezone(datetime.UTC)).cast(pa.timestamp("us", "UTC")).value)


def _stored(value: object) -> object:
    """A value as the results table stores it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)).days
    return format(value, "f") if isinstance(value, Decimal) else value


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
