"""Great Expectations' Spark engine gives the verdicts that it gives on pandas."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from optimizer.language.expectations import read_expectation
from optimizer.workload.values import BOOLEAN, DOUBLE, LONG, STRING, TIMESTAMP, Type, decimal
from spark_jobs.audit.checks.expected import ExpectationRequest, judged
from spark_jobs.audit.checks.judging import PandasJudge
from spark_jobs.audit.checks.spark_judging import SparkJudge
from spark_jobs.streams.sources.expressions import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA: dict[str, Type] = {
    "n": LONG,
    "m": LONG,
    "x": DOUBLE,
    "d": decimal(20, 2),
    "s": STRING,
    "t": TIMESTAMP,
    "b": BOOLEAN,
}

VALUES: dict[str, list[Any]] = {
    "n": [1, 2, None, 2**53, 5, -(2**62)],
    "m": [1, 1, 3, None, 5, 6],
    "x": [0.5, math.nan, None, math.inf, -1.0, 0.5],
    "d": [Decimal("0.30"), Decimal("0.31"), None, Decimal("0.30"), Decimal("-5"), Decimal("7")],
    "s": ["a", "b", None, "a", "", "ä"],
    "t": [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 6)] + [None],
    "b": [True, False, None, True, True, True],
}

SENTENCES = (
    "n between 0 and 10",
    "n between 0 and 10 mostly 0.5",
    "n < 9 where n > -5",
    "x <= 1",
    "x is a number",
    "d <= 0.30 mostly 0.6",
    "t >= '2026-01-02'",
    "s is not null",
    "s in ('a', 'b', 'ä')",
    "b in (true) mostly 0.8",
    "s matches '^[a-z]$'",
    "n >= m where n > -5",
    "n = m mostly 0.4 where n > -5",
    "s is unique",
    "(s, b) is unique",
    "n is unique where n > -5",
    "mean(n) < 0",
    "rows = 6",
)


def test_both_engines_give_the_same_verdicts(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({name: pa.array(values, arrow_type(SCHEMA[name])) for name, values in VALUES.items()})
    requests = [
        ExpectationRequest(name, read_expectation(sentence, "", "q", SCHEMA), rows, SCHEMA)
        for sentence in SENTENCES
        for name in ("q",)
    ]
    pandas = PandasJudge()
    on_pandas = judged(requests, pandas)
    calls: list[str] = []
    judge = SparkJudge(lambda: spark, pandas, least=0)
    validated = SparkJudge._validated

    def noted(self: SparkJudge, frame: Any) -> Any:
        calls.append(frame.template.name)
        return validated(self, frame)

    monkeypatch.setattr(SparkJudge, "_validated", noted)
    on_spark = judged(requests, judge)
    assert len(calls) == len(SENTENCES) - 2  # of one number pandas judges
    assert [each.difference for each in on_spark] == [""] * len(SENTENCES)
    assert [(each.success, each.unexpected, each.counted) for each in on_spark] == [
        (each.success, each.unexpected, each.counted) for each in on_pandas
    ]
    assert {each.success for each in on_spark} == {True, False}


def test_small_frames_start_no_session() -> None:
    def session() -> SparkSession:
        raise AssertionError("a session was started")

    rows = pa.table({"n": pa.array([1, 2], pa.int64())})
    request = ExpectationRequest("q", read_expectation("n > 1", "", "q", SCHEMA), rows, SCHEMA)
    (outcome,) = judged([request], SparkJudge(session, PandasJudge()))
    assert outcome.unexpected == 1
