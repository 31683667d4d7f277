"""Values made of aggregates, any HAVING, the first groups of each window: by hand, and generated against the oracle."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.synopses.synopsis import synopses_of
from optimizer.workload.values import (
    ACQ,
    BOOLEAN,
    DOUBLE,
    SECOND,
    TIMESTAMP,
    Condition,
    Literal,
    Order,
    Output,
    Source,
    Stream,
    Top,
    Window,
    Workload,
)
from spark_jobs.audit.checks import recompute
from spark_jobs.audit.unshared.agreement import agrees, recomputed_value
from spark_jobs.store.warehouse.data_files import BUCKETS, DataFile, write_files
from spark_jobs.store.warehouse.schemas import ANSWERS
from spark_jobs.windows.finals import top as top_module
from spark_jobs.windows.finals.stage import finals_task
from spark_jobs.windows.finals.top import TopAnswers, TopRows, first_of_each, write_top
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.lifting import partials_of
from spark_jobs.windows.partials.synopsis_work import SynopsisWork
from tests.oracle import answers, compare
from tests.sizes import examples
from tests.spark_jobs.kernels import ALGORITHMS, FAST, as_read, decoded, differences, kernel_answers, of_query
from tests.workloads import GROUPS, SCHEMA, TYPES, Case, arrow_schema, events, outputs, reckoned, spans_of, tops

STREAM = Stream("events", Source("parquet", "events"), (("ts", TIMESTAMP), *SCHEMA), "ts")
WINDOW = "WINDOW RANGE '10 seconds' SLIDE '10 seconds' ON ts"


def case_of(text: str, rows: Iterable[dict[str, Any]]) -> Case:
    """A statement's query over some events of the first ten seconds."""
    result = parse(text, {"events": STREAM})
    assert result.diagnostics == (), list(map(str, result.diagnostics))
    timed_rows = [{"ts": at} | row for at, row in enumerate(rows)]
    columns = {name: [row.get(name) for row in timed_rows] for name in arrow_schema().names}
    return Case(Workload(result.queries, (STREAM,)), pa.table(columns, schema=arrow_schema()), 0, 10 * SECOND)


def answered(text: str, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    """What a query answers of some events, which has to be what the oracle says."""
    case = case_of(text, rows)
    answers = kernel_answers(case, "weave-share", [], case.begin, case.end)
    assert differences(case, answers) == []
    query = case.workload.queries[0]
    return as_read(query, of_query(answers, query)).drop_columns(["window_start", "window_end", "instant"]).to_pylist()


# ------------------------------------------------------------------------------------------------- by hand
def test_metrics_need_no_casts() -> None:
    (row,) = answered(
        f"""SELECT sum(volume) / count(*) AS rate, max(price) - min(price) AS spread,
            100.0 * count(volume) / count(*) AS pct, coalesce(sum(code), 0) AS codes,
            sum(fee) * 1.5 AS more, sum(volume) - count(*) AS beyond
            FROM events {WINDOW}""",
        {"volume": 3, "price": 1.5, "fee": Decimal("2.50")},
        {"price": 0.25, "fee": Decimal("0.01")},
    )
    assert row == {
        "rate": 1.5,
        "spread": 1.25,
        "pct": 50.0,
        "codes": 0,
        "more": Decimal("3.765"),
        "beyond": 1,
        "error": None,
    }


@pytest.mark.parametrize(
    ("value", "column", "values", "expected"),
    [
        ("sum(huge) - sum(volume)", "huge", [2**63 - 1], None),
        ("-sum(huge)", "huge", [-(2**63)], None),
        ("abs(sum(huge))", "huge", [-(2**63)], None),
        ("sum(huge) + 0.5", "huge", [2**63 - 1, 1], None),
        ("coalesce(sum(huge), 0)", "huge", [2**63 - 1, 1], None),
        ("sum(huge) * sum(huge) * sum(huge)", "huge", [2**63 - 1], None),
        ("sum(huge) * sum(huge)", "huge", [2**63 - 1], Decimal((2**63 - 1) ** 2)),
        ("-sum(huge) - 1", "huge", [2**63 - 1], -(2**63)),
        ("sum(fine) + sum(fine)", "fine", [Decimal("9" * 24)] * 2, Decimal("3" + "9" * 23 + "6")),
    ],
)
def test_what_does_not_fit_is_null_and_says_so(value: str, column: str, values: list[Any], expected: Any) -> None:
    """Computed exactly where it fits, however wide it could be."""
    rows = [{column: input_value, "volume": -1} for input_value in values]
    (row,) = answered(f"SELECT {value} AS a, count(*) AS n FROM events {WINDOW}", *rows)
    assert row["a"] == expected and row["n"] == len(values)
    assert (row["error"] is None) == (expected is not None)
    if expected is None:
        assert row["error"] == "HDL-601 a is made of a value that does not fit its type"


def test_a_condition_that_overflows_leaves_a_row_that_says_so() -> None:
    text = f"SELECT count(*) AS n FROM events {WINDOW} HAVING sum(huge) > 3 OR count(*) > 0"
    (row,) = answered(text, {"huge": 2**63 - 1}, {"huge": 1})
    assert row["n"] is None and row["error"].startswith("HDL-601 HAVING: ")


def test_division_by_zero_and_nothing() -> None:
    text = f"SELECT sum(volume) / sum(code) AS a, sum(volume) / 0 AS b, sum(price) / 0.0 AS c FROM events {WINDOW}"
    assert answered(text, {"volume": 3, "code": 0, "price": 1.0}) == [{"a": None, "b": None, "c": None, "error": None}]


def test_conditions_over_groups_and_outputs() -> None:
    rows = [{"carrier": carrier, "volume": at + 1} for at, carrier in enumerate("AABBBC")]
    text = f"SELECT carrier AS c, sum(volume) / count(*) AS rate FROM events {WINDOW} GROUP BY carrier HAVING "
    for condition, expected in (
        ("c = 'A' OR rate > 5", ["A", "C"]),
        ("NOT (rate BETWEEN 2 AND 5)", ["A", "C"]),
        ("count(*) IN (2, 3) AND rate IS NOT NULL", ["A", "B"]),
        ("carrier LIKE 'B%' AND rate > 1", ["B"]),
        ("max(volume) - min(volume) > 1", ["B"]),
    ):
        assert [row["c"] for row in answered(text + condition, *rows)] == expected, condition


def test_the_first_groups_ties_by_the_group() -> None:
    """Equals go by the group's value, not by its text; null is the least, and stands where the query says."""
    rows = [{"code": code, "volume": volume} for code, volume in ((10, 5), (2, 5), (None, 5), (7, None), (3, 9))]
    text = f"SELECT code, sum(volume) AS v FROM events {WINDOW} GROUP BY code ORDER BY "
    for order, expected in (
        ("v DESC LIMIT 3", {3, None, 2}),
        ("v LIMIT 1", {7}),
        ("v NULLS LAST LIMIT 2", {None, 2}),
        ("v DESC NULLS FIRST LIMIT 2", {7, 3}),
        ("v, code DESC LIMIT 3", {7, 10, 2}),
        ("-v LIMIT 3", {7, 3, None}),
        ("count(*) LIMIT 1000", {None, 2, 3, 7, 10}),
    ):
        assert {row["code"] for row in answered(text + order, *rows)} == expected, order


def test_an_order_that_overflows_is_told_beside_the_first() -> None:
    rows = [{"code": 1, "huge": 2**63 - 1}, {"code": 1, "huge": 1}, {"code": 2, "huge": 5}, {"code": 3, "huge": 4}]
    text = f"SELECT code, count(*) AS n FROM events {WINDOW} GROUP BY code ORDER BY sum(huge) DESC LIMIT 1"
    answers = {row["code"]: (row["n"], row["error"]) for row in answered(text, *rows)}
    assert answers == {1: (None, "HDL-601 ORDER BY: it does not fit long"), 2: (1, None)}


def test_a_part_is_computed_once() -> None:
    """Of the same aggregate, alone, within others and in HAVING, fragments keep one state."""
    text = f"""SELECT sum(volume) AS s, sum(volume) / count(*) AS r FROM events {WINDOW} GROUP BY code
               HAVING sum(volume) > 1 OR r > 3 ORDER BY r LIMIT 3;
               -- name: other
               SELECT sum(volume) - count(*) AS d FROM events {WINDOW} GROUP BY code"""
    queries = parse(text, {"events": STREAM}).queries
    assert len(queries) == 2
    (synopsis,) = synopses_of(STREAM, queries)
    assert [state.kind for state in synopsis.states] == ["rows", "count", "sum"]


# ------------------------------------------------------------------------------------------- the first groups
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from((None, 0.0, -0.0, 1.5, float("nan"), float("inf")))), max_size=12
    ),
    st.booleans(),
    st.booleans(),
    st.integers(1, 4),
)
def test_the_order_is_that_of_the_language(
    rows: list[tuple[int, float | None]], descending: bool, nulls_first: bool, k: int
) -> None:
    output = Output("", "sum", None, None, TYPES["price"])
    windows = np.array([window for window, _ in rows], dtype=np.int64)
    values = pa.array([value for _, value in rows], pa.float64())
    top = Top(k, (Order(output, descending, nulls_first),))
    places = np.arange(len(rows))
    first_rows = first_of_each(top, windows, [values], [places], np.zeros(len(rows), dtype=bool)).tolist()
    expected = []
    for window in set(windows.tolist()):
        window_rows = [at for at in range(len(rows)) if windows[at] == window]
        nulls = [at for at in window_rows if rows[at][1] is None]
        rank = {
            at: (value != value, 0 if value != value else value)
            for at, (_, value) in enumerate(rows)
            if value is not None
        }
        known = sorted((at for at in window_rows if at in rank), key=lambda at: rank[at], reverse=descending)
        expected += ([*nulls, *known] if nulls_first else [*known, *nulls])[:k]
    assert first_rows == sorted(expected)


def with_stamp() -> dict[str, pa.Scalar]:
    return {"plan_version": pa.scalar(1, pa.int64()), "revision": pa.scalar(1, pa.int64()), "run_id": pa.scalar("r")}


@pytest.mark.parametrize("enough", [1, 1 << 16])
def test_groups_that_are_spread_over_tasks(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, enough: int) -> None:
    """Each task tells its own first groups; merged they are the first of all, ties by the group across tasks."""
    monkeypatch.setattr(top_module, "_ENOUGH", enough)
    text = f"SELECT code, sum(volume) AS v FROM events {WINDOW} GROUP BY code ORDER BY v DESC LIMIT 5"
    rows = ({"ts": at * SECOND // 20, "code": at % 90, "volume": at % 7} for at in range(400))
    case = replace(case_of(text, rows), end=20 * SECOND)
    (query,) = case.workload.queries
    ((synopsis, members),) = synopses_of(case.stream, case.workload.queries).items()
    partials = partials_of(decoded(case).to_batches(), case.stream, [FillRequest(synopsis, 0, 20 * SECOND)])
    (tmp_path / "partials").mkdir()
    paths = [str(tmp_path / "partials" / file.path) for file in write_files(tmp_path / "partials", partials)]
    work = [SynopsisWork(synopsis, members, 0, 20 * SECOND)]
    task = finals_task(work, 0, paths, str(tmp_path / "results"), with_stamp())
    task_outputs = [output for bucket in range(BUCKETS) for output in task([bucket])]
    assert all(isinstance(output, TopRows) for output in task_outputs) and len(task_outputs) > 10
    partial_tops = [output for output in task_outputs if isinstance(output, TopRows)]
    assert max(len(partial_top.table) for partial_top in partial_tops) <= 2 * 5
    files = list(write_top([("events", query)], partial_tops, str(tmp_path / "results"), with_stamp()))
    assert sum(file.rows for file in files) == 10 and all(isinstance(file, DataFile) for file in files)
    top = TopAnswers([query])
    for partial_top in partial_tops:
        top.add(partial_top)
    merged = pa.concat_tables([top_rows.table for top_rows in top.close()])
    expected = answers(query, case.events, "ts", 0, 20 * SECOND)
    assert compare(query, as_read(query, merged), expected) == []


# ------------------------------------------------------------------------------------------------- generated
@st.composite
def made_of_aggregates(draw: st.DrawFn, name: str, tick: int) -> ACQ:
    """A query with derived outputs, conditions over them, and most of the time the first groups alone."""
    plain = draw(outputs("plain", ("count", "sum", "max")))
    all_outputs = (plain, *(draw(reckoned(f"made_{number}", (plain,))) for number in range(draw(st.integers(1, 2)))))
    groups = draw(st.lists(st.sampled_from(GROUPS), min_size=1, max_size=2, unique=True))
    having: tuple[Condition, ...] = ()
    if draw(st.booleans()):
        having = (Condition(draw(reckoned("having", all_outputs, True)), "=", Literal(True, BOOLEAN)),)
    top = draw(tops(all_outputs)) if draw(st.integers(0, 3)) else None
    window = Window(draw(st.integers(1, 4)) * tick, draw(st.integers(1, 2)) * tick)
    typed = tuple((group, TYPES[group]) for group in groups)
    return ACQ(name, "events", window, all_outputs, None, typed, tuple(groups), having=having, top=top)


@st.composite
def derived_cases(draw: st.DrawFn) -> Case:
    tick = SECOND
    end = draw(st.integers(1, 6)) * tick
    queries = tuple(draw(made_of_aggregates(f"q{number}", tick)) for number in range(draw(st.integers(1, 4))))
    table = pa.concat_tables([draw(events(0, end, tick, 25)), draw(events(0, end, tick, 25))])
    return Case(Workload(queries, (STREAM,)), table, 0, end)


@settings(FAST, max_examples=examples(60))
@given(derived_cases(), st.sampled_from(ALGORITHMS), st.integers(1, 3), st.lists(st.integers(0, 2), max_size=4))
def test_generated_values_are_the_oracles(case: Case, algorithm: str, pieces: int, homes: list[int]) -> None:
    """Whatever the plan, the interval's pieces, and the synopses that queries share."""
    parts = [kernel_answers(case, algorithm, [], *span, homes) for span in spans_of(case, pieces)]
    assert differences(case, pa.concat_tables([ANSWERS.empty_table(), *parts])) == []


# ------------------------------------------------------------------------------------------------- the audit
def test_the_audit_sees_a_wrong_value_of_parts() -> None:
    """To the last digit where all parts are exact; as far as doubles may be off elsewhere; counts of event sequences
    are decimals."""
    text = f"SELECT sum(volume) - count(*) AS d, sum(price) / count(*) AS r, sum(price) > 1.5 AS c FROM events {WINDOW}"
    difference, rate, above = parse(text, {"events": STREAM}).queries[0].outputs
    row: dict[str, Any] = {"d part 0": Decimal(7), "d part 0 count": 3, "d part 1": 3}
    row |= {"r part 0": 1.5, "r part 0 count": Decimal(3), "r part 0 magnitude": 1.5, "r part 1": 3}
    row |= {"c part 0": 1.5, "c part 0 count": 3, "c part 0 magnitude": 1.5}
    assert agrees(difference, 4, row) and not agrees(difference, 5, row) and not agrees(difference, None, row)
    assert agrees(rate, 0.5, row) and agrees(rate, 0.5000000000000002, row)
    assert not agrees(rate, 0.5000001, row) and not agrees(rate, None, row)
    # the threshold lies where rounding may have put the sum: either is right
    assert agrees(above, 0, row) and agrees(above, 1, row)
    row["c part 0"] = 1.75
    assert agrees(above, 1, row) and not agrees(above, 0, row) and not agrees(above, None, row)


def test_the_audit_sees_a_group_that_is_not_among_the_first() -> None:
    text = f"SELECT carrier, count(*) AS n FROM events {WINDOW} GROUP BY carrier ORDER BY sum(volume) DESC LIMIT 2"
    query = parse(text, {"events": STREAM}).queries[0]
    rows = [
        {"window_start": 0, "window_end": 0, "carrier": carrier, "n": 1, "having 0": total, "having 0 count": 1}
        for carrier, total in (("a", 5), ("b", 7), (None, 5), ("c", 1))
    ]

    def mismatches(*carriers: str | None) -> list[tuple[Any, str]]:
        ours = [
            {
                "window_start": 0,
                "window_end": 0,
                "key": json.dumps([carrier]),
                "longs": [1],
                "doubles": [],
                "texts": [],
                "error": None,
            }
            for carrier in carriers
        ]
        return [(mismatch.group, mismatch.what) for mismatch in recompute.compare(query, ours, rows)]

    assert mismatches("b", None) == []
    assert mismatches("b", "a") == [
        ((None,), "is missing"),
        (("a",), "should not exist"),
    ]
    assert mismatches("b") == [((None,), "is missing")]
    # what overflowed may stand anywhere
    rows[3]["having 0"] = 2**63
    assert mismatches("b", "a") == mismatches("b", None) == []


def test_an_approximate_percentile_of_decimals_is_a_double_to_the_audit() -> None:
    """Spark answers one of the decimals; what is in its order, or made of it, reckons with doubles."""
    text = f"SELECT carrier, approx_percentile(fee, 0.5) + 1e0 AS a FROM events {WINDOW} GROUP BY carrier"
    (output,) = parse(text, {"events": STREAM}).queries[0].outputs
    median = replace(output.parts[0], name="m", function="median", type=DOUBLE)
    value, off = recomputed_value(median, {"m": Decimal("12.34")})
    assert isinstance(value, float) and value == 12.34 and value - off < 12.34 < value + off
