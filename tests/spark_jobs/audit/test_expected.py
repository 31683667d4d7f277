"""Expectations: each form passes and fails, as plain Great Expectations says of the same frame, and exactly."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.language.expectations import read_expectation
from optimizer.workload.values import BOOLEAN, DATE, DOUBLE, LONG, STRING, TIMESTAMP, Type, decimal
from spark_jobs.audit.checks import expected
from spark_jobs.audit.checks.expected import (
    ExpectationOutcome,
    ExpectationRequest,
    Judged,
    bound_text,
    frame_of,
    judged,
)
from spark_jobs.audit.checks.judging import PandasJudge
from spark_jobs.audit.checks.statistics import statistic
from spark_jobs.audit.checks.suite import great_expectations
from spark_jobs.streams.sources.expressions import arrow_type
from tests.sizes import examples

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parents[2] / "fixtures/metric_cases.json").read_text(encoding="utf-8"))
}

SCHEMA: dict[str, Type] = {
    "n": LONG,
    "m": LONG,
    "x": DOUBLE,
    "y": DOUBLE,
    "d": decimal(20, 2),
    "s": STRING,
    "t": TIMESTAMP,
    "day": DATE,
    "b": BOOLEAN,
}


@pytest.fixture(scope="module")
def judge() -> PandasJudge:
    return PandasJudge()


def table(**columns: Sequence[Any]) -> pa.Table:
    return pa.table({name: pa.array(values, arrow_type(SCHEMA[name])) for name, values in columns.items()})


def outcome(judge: PandasJudge, sentence: str, rows: pa.Table, **options: Any) -> ExpectationOutcome:
    request = ExpectationRequest("q", read_expectation(sentence, "", "q", SCHEMA), rows, SCHEMA, **options)
    (result,) = judged([request], judge)
    return result


NOW = datetime(2026, 1, 1, tzinfo=UTC)

FORMS: list[tuple[str, pa.Table, pa.Table]] = [
    ("x between 0 and 1", table(x=[0.0, 1.0, None]), table(x=[0.0, 1.1])),
    ("x > 0", table(x=[0.1]), table(x=[0.0])),
    ("x >= 0", table(x=[0.0]), table(x=[-0.1])),
    ("x < 1", table(x=[0.9]), table(x=[1.0])),
    ("x <= 1", table(x=[1.0]), table(x=[1.1])),
    ("n = 5", table(n=[5, None]), table(n=[5, 6])),
    ("n between 1 and 3 mostly 0.5", table(n=[1, 9, None]), table(n=[1, 9, 9])),
    ("n between 1.5 and 2.5", table(n=[2]), table(n=[1])),
    ("d between 0.10 and 0.30", table(d=[Decimal("0.30"), None]), table(d=[Decimal("0.31")])),
    ("s between 'a' and 'c'", table(s=["b"]), table(s=["d"])),
    ("t >= '2026-01-01'", table(t=[NOW]), table(t=[NOW - timedelta(microseconds=1)])),
    ("day < '2026-01-02'", table(day=[NOW.date()]), table(day=[NOW.date() + timedelta(days=1)])),
    ("x is not null", table(x=[math.nan, 1.0]), table(x=[None, 1.0])),
    ("s is not null mostly 0.5", table(s=["a", None]), table(s=["a", None, None])),
    ("x is a number", table(x=[1.0, None, math.inf]), table(x=[math.nan, 1.0])),
    ("s in ('a', 'it\\'s')", table(s=["a", "it's", None]), table(s=["A"])),
    ("n in (1, 2)", table(n=[1, 2]), table(n=[3])),
    ("b in (true)", table(b=[True, None]), table(b=[False])),
    ("s matches '^[A-Z]+$'", table(s=["AB", None]), table(s=["Ab"])),
    ("x > y", table(x=[2.0, None, 1.0], y=[1.0, 1.0, None]), table(x=[1.0], y=[1.0])),
    ("n >= m", table(n=[1, 2], m=[1, 1]), table(n=[1], m=[2])),
    ("n < m", table(n=[1], m=[2]), table(n=[2], m=[2])),
    ("n = m", table(n=[1, None], m=[1, 1]), table(n=[1], m=[2])),
    ("n > d", table(n=[2], d=[Decimal("1.99")]), table(n=[2], d=[Decimal("2.00")])),
    ("s is unique", table(s=["a", "b", None, None]), table(s=["a", "a"])),
    ("(s, n) is unique", table(s=["a", "a", None], n=[1, 2, None]), table(s=["a", None, None], n=[1, 2, 2])),
    ("mean(x) between 0 and 1", table(x=[0.5, None, 1.5]), table(x=[0.5, 1.6])),
    ("mean(d) <= 0.30", table(d=[Decimal("0.30"), None]), table(d=[Decimal("0.30"), Decimal("0.31")])),
    ("median(n) = 2", table(n=[1, 2, 9]), table(n=[1, 3, 9])),
    ("min(n) >= 1", table(n=[1, 5]), table(n=[0, 5])),
    ("max(x) < 5", table(x=[4.9]), table(x=[5.0])),
    ("sum(n) between 3 and 3", table(n=[1, 2]), table(n=[1, 1])),
    ("stdev(x) < 1", table(x=[1.0, 2.0]), table(x=[1.0, 9.0])),
    ("distinct(s) between 2 and 3", table(s=["a", "b", "b"]), table(s=["a", "a"])),
    ("distinct s = 1", table(s=["a"]), table(s=["a", "b"])),
    ("rows between 1 and 2", table(n=[1, None]), table(n=[1, 2, 3])),
    ("rows > 1.5", table(n=[1, 2]), table(n=[1])),
    ("x > 0 where n > 1", table(x=[-1.0, 1.0], n=[1, 2]), table(x=[1.0, -1.0], n=[1, 2])),
    ("rows = 1 where s = 'a'", table(s=["a", "b", None]), table(s=["b"])),
    ("mean(x) > 0 where s is not null", table(x=[-9.0, 1.0], s=[None, "a"]), table(x=[-9.0, 1.0], s=["a", "a"])),
]


@pytest.mark.parametrize(("sentence", "good", "bad"), FORMS, ids=[form[0] for form in FORMS])
def test_every_form_passes_and_fails(judge: PandasJudge, sentence: str, good: pa.Table, bad: pa.Table) -> None:
    passing, failing = outcome(judge, sentence, good), outcome(judge, sentence, bad)
    assert (passing.success, failing.success) == (True, False)
    assert passing.difference == failing.difference == ""
    assert bound_text(failing.request.expectation) and failing.summary()
    if failing.unexpected is not None:
        assert 0 < failing.unexpected <= failing.counted and len(failing.examples) <= 3


@pytest.mark.parametrize(("sentence", "good"), [form[:2] for form in FORMS], ids=[form[0] for form in FORMS])
def test_of_no_rows_every_row_is_as_expected_and_no_number_is(
    judge: PandasJudge, sentence: str, good: pa.Table
) -> None:
    nothing = outcome(judge, sentence, good.slice(0, 0))
    assert nothing.difference == ""
    is_of_rows = nothing.request.expectation.is_of_rows
    assert nothing.success == is_of_rows and nothing.counted == 0 and nothing.summary()


def test_the_volume_of_another_time_and_the_age(judge: PandasJudge) -> None:
    ratio = "rows between 0.5 and 2 times those of 7 days ago"
    rows = table(n=list(range(400)))
    assert outcome(judge, ratio, rows, before=800).success and outcome(judge, ratio, rows, before=200).success
    failed = outcome(judge, ratio, rows, before=1100)
    assert not failed.success and failed.observed == pytest.approx(0.3636363636)
    skipped = outcome(judge, ratio, rows, skipped="nothing to compare with")
    assert skipped.success and skipped.observed is None and "skipped" in skipped.summary()
    newest = round(NOW.timestamp()) * 10**6
    age = "max(t) newer than 2 hours"
    assert outcome(judge, age, table(t=[NOW, None]), clock=newest + 7_199_999_999).success
    assert not outcome(judge, age, table(t=[NOW]), clock=newest + 7_200_000_000).success
    assert not outcome(judge, age, table(t=[]), clock=newest).success


def test_what_great_expectations_gets_wrong_on_pandas(judge: PandasJudge) -> None:
    beyond = 2**53 + 1
    assert outcome(judge, f"n <= {2**53}", table(n=[beyond])).unexpected == 1
    assert outcome(judge, f"n <= {2**53}", table(n=[beyond, None])).unexpected == 1
    assert outcome(judge, f"n <= {beyond}", table(n=[beyond])).success
    assert outcome(judge, "d <= 0.30", table(d=[Decimal("0.30")])).success
    assert outcome(judge, "mean(d) = 0.30", table(d=[Decimal("0.30"), None])).success
    for sentence, rows in (("n <= 5", table(n=[beyond])), ("d <= 5", table(d=[Decimal("0.30")]))):
        request = ExpectationRequest("q", read_expectation(sentence, "", "q", SCHEMA), rows, SCHEMA)
        assert frame_of(request, 1).template.name == "ExpectColumnValuesToBeInSet"  # of verdicts
    # NaN is a value, greater than all others
    nan = outcome(judge, "x < 5", table(x=[math.nan]))
    assert (nan.success, nan.unexpected, nan.difference) == (False, 1, "")
    assert outcome(judge, "x is unique", table(x=[math.nan, math.nan])).unexpected == 2
    assert outcome(judge, f"sum(n) = {2 * beyond}", table(n=[beyond, beyond])).success


def test_e1(judge: PandasJudge) -> None:
    case = CASES["E1"]
    rows = case["input"]["answers"]["rows"]
    schema = {"route": STRING, "rate": DOUBLE}
    answers = pa.table([list(column) for column in zip(*rows, strict=True)], names=["route", "rate"])
    requests = []
    for line in case["expectations"]:
        severity, sentence = re.fullmatch(r"-- expect(?: \((\w+)\))?: (.*)", line).groups()  # type: ignore[union-attr]
        requests.append(
            ExpectationRequest("q", read_expectation(sentence, severity or "", "q", schema), answers, schema)
        )
    outcomes = judged(requests, judge)
    assert [
        {
            "expect": each.request.expectation.text,
            "severity": each.request.expectation.severity,
            "success": each.success,
            "unexpected": each.unexpected,
        }
        for each in outcomes
    ] == case["expected"]


# ------------------------------------------------------------------------------- equal to plain Great Expectations
class Plain:
    """Great Expectations, each expectation by itself, on a frame as anybody would make it."""

    def __init__(self) -> None:
        gx = great_expectations()
        self.expectations, self.suite = gx.expectations, gx.ExpectationSuite
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        asset = context.data_sources.add_pandas("plain").add_dataframe_asset("rows")
        self.batches = asset.add_batch_definition_whole_dataframe("all")

    def __call__(self, frame: pd.DataFrame, name: str, **arguments: Any) -> tuple[bool, int | None]:
        expectation = getattr(self.expectations, name)(**arguments)
        batch = self.batches.get_batch(batch_parameters={"dataframe": frame})
        result = batch.validate(self.suite("plain", expectations=[expectation])).results[0]
        return bool(result.success), result.result.get("unexpected_count")


@pytest.fixture(scope="module")
def plain() -> Plain:
    return Plain()


INTEGERS = st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([2**53, -(2**53), 2**53 - 1]))
DOUBLES = st.one_of(st.none(), st.integers(-4, 4).map(lambda n: n / 4), st.floats(-3, 3, width=32))
TEXTS = st.one_of(st.none(), st.sampled_from(["a", "b", "ab", "", "ä"]))
MOSTLY = st.sampled_from([None, "0.5", "0.75", "0.3", "0.9"])

Written = tuple[str, str, dict[str, Any]]


def _share(mostly: str | None) -> tuple[str, dict[str, Any]]:
    return ("", {}) if mostly is None else (f" mostly {mostly}", {"mostly": float(mostly)})


@st.composite
def sentences(draw: Callable[..., Any]) -> Written:
    """A sentence, and the class with the arguments that mean the same."""
    share, options = _share(draw(MOSTLY))
    form = draw(
        st.sampled_from(["between", "strict", "null", "in", "pair", "equal", "unique", "both", "number", "rows"])
    )
    column = draw(st.sampled_from(["n", "x"]))
    low = draw(st.integers(-3, 3))
    high = low + draw(st.integers(0, 4))
    if form == "between":
        arguments = {"column": column, "min_value": low, "max_value": high, **options}
        return f"{column} between {low} and {high}{share}", "ExpectColumnValuesToBeBetween", arguments
    if form == "strict":
        arguments = {"column": column, "min_value": low, "strict_min": True, **options}
        return f"{column} > {low}{share}", "ExpectColumnValuesToBeBetween", arguments
    if form == "null":
        column = draw(st.sampled_from(["n", "x", "s"]))
        return f"{column} is not null{share}", "ExpectColumnValuesToNotBeNull", {"column": column, **options}
    if form == "in":
        values = draw(st.lists(st.sampled_from(["a", "b", "ä"]), min_size=1, unique=True))
        items = ", ".join(f"'{value}'" for value in values)
        return f"s in ({items}){share}", "ExpectColumnValuesToBeInSet", {"column": "s", "value_set": values, **options}
    if form in ("pair", "equal"):
        names = draw(st.sampled_from([("n", "m"), ("x", "y")]))
        arguments = {"column_A": names[0], "column_B": names[1], "ignore_row_if": "either_value_is_missing", **options}
        if form == "equal":
            return f"{names[0]} = {names[1]}{share}", "ExpectColumnPairValuesToBeEqual", arguments
        or_equal = draw(st.booleans())
        sign = ">=" if or_equal else ">"
        arguments |= {"or_equal": or_equal}
        return f"{names[0]} {sign} {names[1]}{share}", "ExpectColumnPairValuesAToBeGreaterThanB", arguments
    if form == "unique":
        column = draw(st.sampled_from(["n", "x", "s"]))
        return f"{column} is unique{share}", "ExpectColumnValuesToBeUnique", {"column": column, **options}
    if form == "both":
        return f"(s, n) is unique{share}", "ExpectCompoundColumnsToBeUnique", {"column_list": ["s", "n"], **options}
    if form == "rows":
        low = max(low, 0)
        return (
            f"rows between {low} and {low + 4}",
            "ExpectTableRowCountToBeBetween",
            {"min_value": low, "max_value": low + 4},
        )
    function, words = draw(
        st.sampled_from(
            [
                *((name, name.title()) for name in ("mean", "median", "min", "max", "sum")),
                ("distinct", "UniqueValueCount"),
            ]
        )
    )
    low, high = (max(low, 0), max(high, 0)) if function == "distinct" else (low, high)
    arguments = {"column": column, "min_value": low, "max_value": high}
    return f"{function}({column}) between {low} and {high}", f"ExpectColumn{words}ToBeBetween", arguments


@st.composite
def frames(draw: Callable[..., Any], least: int = 1) -> pa.Table:
    size = draw(st.integers(least, 8))
    column = {"n": INTEGERS, "m": INTEGERS, "x": DOUBLES, "y": DOUBLES, "s": TEXTS}
    return table(**{name: draw(st.lists(values, min_size=size, max_size=size)) for name, values in column.items()})


def as_anybody(rows: pa.Table) -> pd.DataFrame:
    """The frame as pandas has it, with integers that may be null."""
    data = {name: rows[name].to_pylist() for name in rows.column_names}
    types = {"n": "Int64", "m": "Int64", "x": "float64", "y": "float64", "s": "object"}
    return pd.DataFrame({name: pd.Series(values, dtype=types[name]) for name, values in data.items()})


@settings(max_examples=examples(60, 600), deadline=None)
@given(written=sentences(), rows=frames())
def test_verdicts_equal_plain_great_expectations(
    judge: PandasJudge, plain: Plain, written: Written, rows: pa.Table
) -> None:
    sentence, name, arguments = written
    ours = outcome(judge, sentence, rows)
    success, unexpected = plain(as_anybody(rows), name, **arguments)
    assert ours.difference == ""
    of_one_number = ours.unexpected is None
    big = any(abs(value) >= 2**52 for value in [*rows["n"].to_pylist(), *rows["m"].to_pylist()] if value is not None)
    if of_one_number and ("ean" in name or "edian" in name or "Sum" in name) and big:
        return  # sums beyond a double: ours are exact
    assert (ours.success, ours.unexpected) == (success, None if of_one_number else unexpected)


@settings(max_examples=examples(25, 250), deadline=None)
@given(written=st.lists(sentences(), min_size=1, max_size=3), rows=st.lists(frames(), min_size=2, max_size=4))
def test_many_queries_in_one_frame_are_judged_as_each_by_itself(
    judge: PandasJudge, written: list[Written], rows: list[pa.Table]
) -> None:
    requests = [
        ExpectationRequest(f"q{number}", read_expectation(sentence, "", "q", SCHEMA), each, SCHEMA)
        for number, each in enumerate(rows)
        for sentence, _, _ in written
    ]
    alone = [judged([request], judge)[0] for request in requests]
    before = len(judge.results)
    together = judged(requests, judge)
    assert [(each.success, each.unexpected, each.examples) for each in together] == [
        (each.success, each.unexpected, each.examples) for each in alone
    ]
    shared = [name for _, name, _ in written if "Unique" not in name and "RowCount" not in name]
    if shared:
        assert len(judge.results) - before < len(requests)


DECIMALS = st.one_of(st.none(), st.integers(-500, 500).map(lambda n: Decimal(n) / 100))
NEAR = st.one_of(st.none(), st.integers(2**53 - 3, 2**53 + 3), st.integers(-(2**63), 2**63 - 1))
WITH_NAN = st.one_of(DOUBLES, st.just(math.nan), st.just(math.inf))


@settings(max_examples=examples(60, 600), deadline=None)
@given(
    values=st.one_of(
        st.tuples(st.just("d"), st.lists(DECIMALS, min_size=1, max_size=6)),
        st.tuples(st.just("n"), st.lists(NEAR, min_size=1, max_size=6)),
        st.tuples(st.just("x"), st.lists(WITH_NAN, min_size=1, max_size=6)),
    ),
    data=st.data(),
)
def test_verdicts_are_exact_where_great_expectations_is_not(
    judge: PandasJudge, values: tuple[str, list[Any]], data: st.DataObject
) -> None:
    column, items = values
    bound = data.draw(st.sampled_from([0, 1, 2**53, 2**53 + 1]))
    sign = data.draw(st.sampled_from(["<", "<=", ">", ">="]))
    number = data.draw(st.sampled_from([None, "mean", "sum", "max", "min", "median"]))
    present = [value for value in items if value is not None]

    def exact(value: Any) -> Any:
        return value if isinstance(value, float) else Fraction(value)

    def holds(value: Any) -> bool:
        if isinstance(value, float) and math.isnan(value):
            return sign in (">", ">=") and number is None
        limit = float(bound) if isinstance(value, float) else bound
        return {"<": value < limit, "<=": value <= limit, ">": value > limit, ">=": value >= limit}[sign]

    subject = column if number is None else f"{number}({column})"
    ours = outcome(judge, f"{subject} {sign} {bound}", table(**{column: items}))
    assert ours.difference == ""
    if number is None:
        assert ours.unexpected == sum(not holds(value) for value in present)
        assert ours.counted == len(present)
    elif column != "x":
        ordered = sorted(map(exact, present))
        value = None
        if ordered:
            middle = ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]
            value = {
                "mean": sum(ordered) / len(ordered),
                "sum": sum(ordered),
                "max": ordered[-1],
                "min": ordered[0],
                "median": middle / 2,
            }[number]
        assert ours.success == (value is not None and holds(value))


def test_numbers_do_not_depend_on_the_order_of_rows() -> None:
    values = np.array([1e100, 1.0, -1e100, 3.0])
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        assert statistic("sum", pa.array(values[order])) == 4.0
    assert statistic("stdev", pa.array([2**60, 2**60 + 2])) == pytest.approx(math.sqrt(2))
    assert statistic("mean", pa.array([None], pa.float64())) is None and statistic("stdev", pa.array([1])) is None
    assert math.isnan(statistic("sum", pa.array([math.inf, -math.inf])))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- two counts
def test_the_stricter_of_two_verdicts_counts_and_both_are_told() -> None:
    rows = table(n=[1, 2, 3])

    def lax(template: Any, frames: Sequence[Any]) -> list[Judged]:
        return [Judged(True, np.zeros(0, dtype=np.int64))] * len(frames)

    def strict(template: Any, frames: Sequence[Any]) -> list[Judged]:
        return [Judged(False, np.array([0, 2]))] * len(frames)

    def broken(template: Any, frames: Sequence[Any]) -> list[Judged]:
        return [Judged(False, None, "ValueError: no")] * len(frames)

    request = ExpectationRequest("q", read_expectation("n <> 2".replace("<>", "<"), "", "q", SCHEMA), rows, SCHEMA)
    (ours,) = judged([request], lax)
    assert not ours.success and (ours.unexpected, ours.examples) == (2, (1, 2)) and "Heddle 2" in ours.difference
    good = ExpectationRequest("q", read_expectation("n < 9", "", "q", SCHEMA), rows, SCHEMA)
    (strictly,) = judged([good], strict)
    assert not strictly.success and strictly.unexpected == 2 and "finds 2" in strictly.difference
    (closed,) = judged([good], broken)
    assert not closed.success and "ValueError: no" in closed.difference


def test_what_great_expectations_raises_fails_closed(judge: PandasJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected, "exact_values", lambda array, type_: pd.Series([object()] * len(array)))
    raised = outcome(judge, "n between 1 and 2", table(n=[1]))
    assert not raised.success and "Great Expectations" in raised.difference
