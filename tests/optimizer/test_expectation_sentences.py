"""Sentences of expectations: what each becomes, the place of each error, and suites as sentences."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from optimizer.language import suites
from optimizer.language.expectations import answer_columns, with_expectations
from optimizer.language.layout import lay_out
from optimizer.language.parser import ParseResult, parse
from optimizer.workload.expectations import Expectation
from optimizer.workload.streams import load_streams
from optimizer.workload.values import DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream, decimal, from_json, to_json
from spark_jobs.results.relations import OWN, slotted

TRADES = Stream(
    "trades",
    Source("csv", "/trades"),
    (("ts", TIMESTAMP), ("route", STRING), ("price", DOUBLE), ("n", LONG), ("amount", decimal(10, 2))),
    "ts",
)

QUERY = (
    "SELECT route, avg(price) AS rate, sum(amount) AS amount, count(*) AS n "
    "FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts GROUP BY route;"
)


def read(*lines: str, file: str = "f.sql", query: str = QUERY) -> ParseResult:
    text = "\n".join(["-- name: q", *(f"-- {line}" for line in lines), query])
    return parse(text, {"trades": TRADES}, file)


def expectation(sentence: str) -> Expectation:
    result = read(f"expect: {sentence}")
    assert not result.diagnostics, [str(each) for each in result.diagnostics]
    ((only,),) = [query.expect for query in result.queries]
    return only


FORMS = [
    ("rate between 0 and 1 mostly 0.99", "values", "between"),
    ("rate > 0", "values", "between"),
    ("rate <= 1e6", "values", "between"),
    ("amount between -1.50 and 3", "values", "between"),
    ("window_end >= '2026-01-01'", "values", "between"),
    ("rate is not null", "values", "not null"),
    ("rate is a number", "values", "number"),
    ("route in ('a', 'b')", "values", "in"),
    ("route matches '^[A-Z]+$'", "values", "matches"),
    ("rate > amount", "pair", ">"),
    ("rate <= n", "pair", ">="),
    ("n = 5", "values", "between"),
    ("route is unique", "unique", "unique"),
    ("(route, window_end) is unique", "unique", "unique"),
    ("mean(rate) between 0 and 0.3", "aggregate", "mean"),
    ("Stdev(rate) < 5 where n > 3", "aggregate", "stdev"),
    ("distinct route between 1 and 5", "aggregate", "distinct"),
    ("distinct(route) >= 1", "aggregate", "distinct"),
    ("rows between 10 and 10", "rows", "rows"),
    ("rows between 0.5 and 2 times those of 7 days ago", "ratio", "rows"),
    ("max(window_end) newer than '2 hours'", "age", "newer"),
]


@pytest.mark.parametrize(("sentence", "form", "rule"), FORMS)
def test_forms(sentence: str, form: str, rule: str) -> None:
    read_ = expectation(sentence)
    assert (read_.form, read_.rule, read_.text, read_.severity) == (form, rule, sentence, "block")
    assert from_json(json.loads(json.dumps(to_json(read_)))) == read_


WRONG = [
    ("", "HDL-260", 12),
    ("rat between 0 and 1", "HDL-261", 12),
    ("rate between 2 and 1", "HDL-262", 17),
    ("rate between 0", "HDL-260", 26),
    ("rate", "HDL-260", 16),
    ("rate is", "HDL-260", 19),
    ("rate between 'a' and 'b'", "HDL-262", 25),
    ("route matches '(?=a)'", "HDL-262", 26),
    ("route matches '(a+)+(?P<x>b)'", "HDL-262", 26),
    ("route matches 5", "HDL-260", 26),
    ("n matches '5'", "HDL-262", 12),
    ("rate is not null mostly 1.5", "HDL-262", 36),
    ("rate is not null mostly 0", "HDL-262", 36),
    ("rows between 1 and 5 mostly 0.5", "HDL-262", 40),
    ("rows < 0", "HDL-262", 17),
    ("rows between 1 and 2 where bad > 1", "HDL-261", 39),
    ("rate > 0 where n", "HDL-203", 27),
    ("rate > 0 where", "HDL-101", 26),
    ("rate > 0 where n > 1 GROUP BY route", "HDL-260", 26),
    ("rate > 0 where n > (select 1)", "HDL-103", 32),
    ("rate > 0 where exists (select 1)", "HDL-103", 35),
    ("rows between 1 and 2 times those of 7 days ago where n > 1", "HDL-262", 59),
    ("rate > 0; drop", "HDL-260", 20),
    ("(route, route) is unique", "HDL-262", 12),
    ("max(rate) newer than 1 hour", "HDL-262", 12),
    ("max(window_end) newer than", "HDL-262", 38),
    ("rows between 0.5 and 2 times those of 7 parsecs ago", "HDL-262", 50),
    ("rate between 0 and 1 and 2", "HDL-260", 33),
    ("route is a number", "HDL-262", 12),
    ("mean(route) > 1", "HDL-262", 12),
    ("rate > 0 /* x */", "HDL-103", 12),
    ("rate > 0 -- x", "HDL-103", 12),
    ("rate > 'x", "HDL-101", 12),
    ("rate in ()", "HDL-260", 21),
    ("n in (1, 'a')", "HDL-262", 21),
    ("{{ rate }} > 0", "HDL-260", 12),
    ("rate > ‮ 0", "HDL-119", 19),
    ("rate > " + "9" * 400, "HDL-262", 19),
]


@pytest.mark.parametrize(("sentence", "code", "column"), WRONG)
def test_what_is_wrong_has_a_code_and_a_place_and_costs_its_query_alone(sentence: str, code: str, column: int) -> None:
    text = f"-- expect: {sentence}\n-- name: q\n{QUERY}\n-- name: other\n{QUERY}"
    result = parse(text, {"trades": TRADES}, "f.sql")
    (wrong,) = result.diagnostics
    assert (wrong.code, wrong.line, wrong.column, wrong.query) == (code, 1, column, "q")
    assert [query.name for query in result.queries] == ["other"]


def test_severities() -> None:
    result = read("expect (warn): rate > 0", "Expect(WARN) : rate > 1", "expect (block): rate > 2", "expect: rate > 0")
    (query,) = result.queries
    assert [(each.text, each.severity) for each in query.expect] == [
        ("rate > 0", "warn"),
        ("rate > 1", "warn"),
        ("rate > 2", "block"),
        ("rate > 0", "block"),
    ]
    (wrong,) = read("expect (fatal): rate > 0").diagnostics
    assert (wrong.code, wrong.line) == ("HDL-260", 2)
    (many,) = read(*(f"expect: rate > {number}" for number in range(65))).diagnostics
    assert many.code == "HDL-310"


def test_an_expectation_changes_no_fingerprint_and_the_layout_keeps_it() -> None:
    (plain,), (expecting,) = read().queries, read("expect: rate > 0").queries
    assert plain.fingerprint == expecting.fingerprint and plain.definition == expecting.definition
    assert plain != expecting and from_json(to_json(expecting)) == expecting and "expect" not in to_json(plain)
    text = f"--expect(WARN):rate   > 0\n-- EXPECT: n > 1 where  route = 'a  b'\n-- name: q\n{QUERY}\n"
    laid = lay_out(text).text
    assert laid.startswith("-- expect (warn): rate   > 0\n-- expect: n > 1 where  route = 'a  b'\n-- name: q\n")
    assert lay_out(laid).text == laid


@pytest.mark.parametrize(
    "query",
    [
        QUERY,
        "SELECT route AS r, n, sum(price) AS total FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ENDING '1 day' AGO "
        "ON ts GROUP BY route, n;",
        "SELECT count(*) AS c FROM trades WINDOW ROWS 10 SLIDE 5 ON ts;",
        "SELECT route, count(*) AS c FROM trades WINDOW SESSION GAP '10 minutes' UP TO '1 day' ON ts GROUP BY route;",
        "SELECT route, n, grouping_id() AS level, sum(price) AS total FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' "
        "ON ts GROUP BY ROLLUP (route, n);",
    ],
)
def test_the_columns_that_may_be_named_are_those_of_the_relation(query: str) -> None:
    (read_,) = read(query=query).queries
    relation = [(column.name, column.type) for column, _ in slotted(read_)]
    assert list(answer_columns(read_)) == [
        pair for pair in relation if pair[0] not in OWN or pair[0] not in ("revision", "error")
    ]


# ---------------------------------------------------------------------------------------------------- streams
STREAMS = """
streams:
  trades:
    source: {format: csv, path: trades}
    time: ts
    schema: {ts: timestamp, route: string, price: double, n: long}
    expect:
      - price between 0 and 1000000 mostly 0.999
      - (warn) route is not null
      - {column: price, between: [0, 1e6], mostly: 0.9, severity: warn}
      - {column: n, between: [null, 5]}
      - {column: route, in: [a, "it's"], where: n > 1}
      - {column: route, matches: '^\\d+$'}
      - {column: price, is_number: true}
      - {column: n, unique: true}
"""


def stream_of(tmp_path: Path, text: str) -> Stream:
    (tmp_path / "trades").mkdir(exist_ok=True)
    file = tmp_path / "streams.yaml"
    file.write_text(text)
    streams, diagnostics = load_streams(file)
    assert not diagnostics, diagnostics
    return with_expectations(streams["trades"], "streams.yaml")


def test_expectations_of_a_stream(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, STREAMS)
    assert [(each.text, each.severity, each.rule) for each in stream.expect] == [
        ("price between 0 and 1000000 mostly 0.999", "block", "between"),
        ("route is not null", "warn", "not null"),
        ("`price` between 0 and 1e6 mostly 0.9", "warn", "between"),
        ("`n` <= 5", "block", "between"),
        ("`route` in ('a', 'it\\'s') where n > 1", "block", "in"),
        ("`route` matches '^\\\\d+$'", "block", "matches"),
        ("`price` is a number", "block", "number"),
        ("`n` is unique", "block", "unique"),
    ]
    assert stream.expect[4].items[1].value == "it's"
    assert all(each.at == () for each in stream.expect) and from_json(to_json(stream)) == stream


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ("prize > 0", "HDL-261"),
        ("price >", "HDL-260"),
        ("price > 'a'", "HDL-262"),
        ("rows > 5", "HDL-262"),
        ("(fatal) price > 0", "HDL-260"),
        ("{column: price}", "HDL-260"),
        ("{column: price, between: [0, 1], unique: true}", "HDL-260"),
        ("{column: price, below: 5}", "HDL-260"),
        ("{column: price, between: [0]}", "HDL-260"),
        ("{column: price, not_null: false}", "HDL-260"),
        ("{column: price, between: 5}", "HDL-260"),
        ("[price]", "HDL-260"),
    ],
)
def test_a_wrong_expectation_of_a_stream_has_a_place(tmp_path: Path, entry: str, code: str) -> None:
    head, _, _ = STREAMS.partition("      - price")
    (tmp_path / "trades").mkdir()
    file = tmp_path / "streams.yaml"
    file.write_text(f"{head}      - price > 0\n      - {entry}\n")
    streams, diagnostics = load_streams(file)
    if diagnostics:
        (wrong,) = diagnostics
        assert (wrong.code, wrong.line) == (code, 9) and "trades" not in streams
        return
    from optimizer.errors.diagnostics import HeddleError

    with pytest.raises(HeddleError) as raised:
        with_expectations(streams["trades"], "streams.yaml")
    assert raised.value.code == code and raised.value.position == ("streams.yaml", 9, 9)


# ----------------------------------------------------------------------------------------------------- suites
def suite_of(*expectations: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": "rates",
        "expectations": list(expectations),
        "meta": {"great_expectations_version": "1.24.1"},
        **more,
    }


def attached(tmp_path: Path, content: Any, line: str = "expect suite: rates.json") -> ParseResult:
    (tmp_path / "rates.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return read(line, file=str(tmp_path / "q.sql"))


def gx(type_: str, severity: str | None = None, **kwargs: Any) -> dict[str, Any]:
    return {"type": type_, "kwargs": kwargs, **({"severity": severity} if severity else {})}


def test_a_suite_becomes_sentences(tmp_path: Path) -> None:
    missing = {"ignore_row_if": "either_value_is_missing"}
    suite = suite_of(
        gx("expect_column_values_to_be_between", column="rate", min_value=0, max_value=0.1, mostly=0.9),
        gx("expect_column_values_to_be_between", column="rate", min_value=0, strict_min=True, mostly=1.0),
        gx("expect_column_values_to_not_be_null", "warning", column="route"),
        gx("expect_column_values_to_be_in_set", column="route", value_set=["it's", "back\\slash"]),
        gx("expect_column_values_to_match_regex", column="route", regex=r"^\d\.$"),
        gx("expect_column_values_to_be_unique", column="route"),
        gx("expect_compound_columns_to_be_unique", column_list=["route", "window_end"]),
        gx("expect_column_pair_values_a_to_be_greater_than_b", column_A="rate", column_B="n", or_equal=True, **missing),
        gx("expect_column_pair_values_to_be_equal", column_A="rate", column_B="n", **missing),
        gx("expect_column_mean_to_be_between", column="rate", min_value=0, max_value=1),
        gx("expect_column_unique_value_count_to_be_between", column="route", max_value=5),
        gx("expect_table_row_count_to_be_between", min_value=1, max_value=5),
        gx("expect_table_row_count_to_equal", value=3),
    )
    result = attached(tmp_path, suite)
    assert not result.diagnostics, [str(each) for each in result.diagnostics]
    expect = result.queries[0].expect
    assert [(each.text, each.severity) for each in expect][:4] == [
        ("`rate` between 0 and 0.1 mostly 0.9", "block"),
        ("`rate` > 0", "block"),
        ("`route` is not null", "warn"),
        ("`route` in ('it\\'s', 'back\\\\slash')", "block"),
    ]
    assert [item.value for item in expect[3].items] == ["it's", "back\\slash"]
    assert expect[4].condition.arguments[1].value == r"^\d\.$"
    assert len(expect) == 13 and expect[0].bounds.high.value == Decimal("0.1")
    warned = attached(tmp_path, suite, "expect suite (warn): rates.json").queries[0].expect
    assert {each.severity for each in warned} == {"warn"}


REFUSED = [
    suite_of(gx("unexpected_rows_expectation", unexpected_rows_query="SELECT 1")),
    suite_of(gx("expect_query_results_to_match_comparison", column="rate")),
    suite_of(gx("expect_my_own_thing", column="rate")),
    suite_of(gx("expect_column_values_to_be_between", column="rate", min_value=0, row_condition="n > 1")),
    suite_of(gx("expect_column_values_to_be_between", column="rate")),
    suite_of(gx("expect_column_values_to_be_between", column="rate", min_value=[0])),
    suite_of(gx("expect_column_pair_values_to_be_equal", column_A="rate", column_B="n")),
    suite_of(gx("expect_column_values_to_be_in_set", column="rate", value_set={"$PARAMETER": "x"})),
    suite_of({"expectation_type": "expect_column_values_to_not_be_null", "kwargs": {"column": "rate"}}),
    suite_of(gx("expect_column_values_to_not_be_null", "high", column="rate")),
    suite_of(actions=[{"name": "mail"}]),
    {"validation_definitions": []},
    [],
    "no json",
    "[" * 100_000,
]


@pytest.mark.parametrize("content", REFUSED, ids=range(len(REFUSED)))
def test_what_a_suite_may_not_have_is_refused_by_name(tmp_path: Path, content: Any) -> None:
    (wrong,) = attached(tmp_path, content).diagnostics
    assert (wrong.code, wrong.line, wrong.column) == ("HDL-263", 2, 18)
    names = [each.get("type", "") for each in content.get("expectations", [])] if isinstance(content, dict) else []
    assert all(name in wrong.message for name in names if name)
    assert "actions" in wrong.message or not (isinstance(content, dict) and "actions" in content)


def test_a_suite_lies_with_the_workload_file(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    outside = tmp_path / "outside.json"
    outside.write_text(json.dumps(suite_of()))
    (tmp_path / "below" / "link.json").symlink_to(outside)
    file = str(tmp_path / "below" / "q.sql")
    for name in ("../outside.json", str(outside), "link.json", "none.json", "q.sql", "", "."):
        (wrong,) = read(f"expect suite: {name}", file=file).diagnostics
        assert wrong.code == "HDL-263", name
    assert read("expect suite: x.json", file="stdin").diagnostics[0].code == "HDL-263"
    assert read("expect suite: x.json", file="").diagnostics[0].code == "HDL-263"


def test_a_suite_that_names_no_column_is_told_of(tmp_path: Path) -> None:
    (wrong,) = attached(tmp_path, suite_of(gx("expect_column_values_to_not_be_null", column="x"))).diagnostics
    assert (wrong.code, wrong.line) == ("HDL-261", 2)
    assert suites.SUITE_BYTES == 1 << 20
    (large,) = attached(tmp_path, " " * (suites.SUITE_BYTES + 1)).diagnostics
    assert large.code == "HDL-263"
