"""ROLLUP, CUBE and GROUPING SETS: one query whatever they are written as, and what is refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.language.parser import Limits, ParseResult, parse
from optimizer.workload.grouping_sets import grouping_ids
from optimizer.workload.values import ACQ, BOOLEAN, DOUBLE, LONG, STRING, TIMESTAMP, Source, Stream

TRADES = Stream(
    "trades",
    Source("parquet", "trades"),
    (
        ("ts", TIMESTAMP),
        ("symbol", STRING),
        ("ok", BOOLEAN),
        ("qty", LONG),
        ("volume", LONG),
        ("day", LONG),
        ("fee", LONG),
        ("price", DOUBLE),
    ),
    "ts",
)
WINDOW = "WINDOW RANGE '1 hour' SLIDE '5 minutes' ON ts"


def parsed(group: str, select: str = "count(*) AS n", rest: str = "") -> ParseResult:
    return parse(f"SELECT {select} FROM trades {WINDOW} GROUP BY {group}{rest}", {"trades": TRADES}, "w.sql")


def query_of(group: str, select: str = "count(*) AS n", rest: str = "") -> ACQ:
    result = parsed(group, select, rest)
    assert result.diagnostics == (), result.diagnostics
    return result.queries[0]


@pytest.mark.parametrize(
    ("group", "sets"),
    [
        ("ROLLUP(symbol, ok)", [("symbol", "ok"), ("symbol",), ()]),
        ("symbol, ok WITH ROLLUP", [("symbol", "ok"), ("symbol",), ()]),
        ("GROUPING SETS ((), (symbol), (ok, symbol), (symbol))", [("symbol", "ok"), ("symbol",), ()]),
        ("CUBE(symbol, ok)", [("symbol", "ok"), ("symbol",), ("ok",), ()]),
        ("symbol, ok WITH CUBE", [("symbol", "ok"), ("symbol",), ("ok",), ()]),
        ("ROLLUP(symbol), ROLLUP(ok)", [("symbol", "ok"), ("symbol",), ("ok",), ()]),
        ("GROUPING SETS (symbol, ok)", [("symbol",), ("ok",)]),
        ("symbol, ROLLUP(ok, qty)", [("symbol", "ok", "qty"), ("symbol", "ok"), ("symbol",)]),
        ("ROLLUP((symbol, ok), qty)", [("symbol", "ok", "qty"), ("symbol", "ok"), ()]),
    ],
)
def test_what_the_sets_of_a_query_are(group: str, sets: list[tuple[str, ...]]) -> None:
    query = query_of(group)
    assert {frozenset(names) for names in query.sets} == {frozenset(names) for names in sets}
    assert len(query.sets) == len(sets)
    assert len(query.group_by) == len({name for names in sets for name in names}) + 1


def test_the_same_sets_are_the_same_query() -> None:
    texts = ("CUBE(symbol, ok)", "symbol, ok WITH CUBE", "GROUPING SETS ((symbol, ok), (ok), (), (symbol))")
    assert len({query_of(text).fingerprint for text in texts}) == 1


@pytest.mark.parametrize("group", ["GROUPING SETS ((symbol, ok))", "GROUPING SETS ((symbol, ok), (ok, symbol))"])
def test_one_set_is_a_plain_grouping(group: str) -> None:
    assert query_of(group) == query_of("symbol, ok")


def test_sets_take_positions_names_and_expressions() -> None:
    query = query_of("ROLLUP(1, big)", "upper(symbol) AS name, qty > 3 AS big, grouping_id() AS level, count(*) AS n")
    assert [len(names) for names in query.sets] == [2, 1, 0]
    assert len(query.derived) == 2


@given(data=st.data(), columns=st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True))
def test_grouping_ids_are_those_of_sparks_definition(data: st.DataObject, columns: list[str]) -> None:
    sets = [tuple(data.draw(st.lists(st.sampled_from(columns), unique=True))) for _ in range(3)]
    # Spark: (grouping(c1) << (n - 1)) + (grouping(c2) << (n - 2)) + … + grouping(cn)
    expected = [
        sum((name not in names) << (len(columns) - place) for place, name in enumerate(columns, 1)) for names in sets
    ]
    assert grouping_ids(columns, sets) == expected


@pytest.mark.parametrize(
    ("group", "select", "rest", "code", "hint"),
    [
        ("CUBE(symbol, ok, qty, volume, day, fee, upper(symbol))", "count(*)", "", "HDL-309", "GROUPING SETS"),
        (f"{', '.join(['ROLLUP(symbol, ok, qty)'] * 4)}", "count(*)", "", "HDL-309", "GROUPING SETS"),
        ("GROUPING SETS (symbol, ROLLUP(ok))", "count(*)", "", "HDL-206", "GROUPING SETS"),
        ("ROLLUP(price)", "count(*)", "", "HDL-206", "CAST"),
        ("ROLLUP(ts)", "count(*)", "", "HDL-206", "windows"),
        ("CUBE(symbl)", "count(*)", "", "HDL-202", "symbol"),
        ("ALL, symbol", "symbol, count(*)", "", "HDL-206", "GROUP BY ALL"),
        ("ROLLUP(symbol)", "grouping_id(symbol), count(*)", "", "HDL-104", "grouping_id()"),
        ("ROLLUP(symbol)", "count(*) AS n", " HAVING symbol = 'A'", "HDL-206", ""),
        ("ROLLUP(symbol)", "count(*) AS n", " HAVING n > 1 ORDER BY symbol LIMIT 3", "HDL-206", ""),
    ],
)
def test_what_is_refused(group: str, select: str, rest: str, code: str, hint: str) -> None:
    diagnostic = parsed(group, select, rest).diagnostics[0]
    assert diagnostic.code == code and hint in diagnostic.hint, diagnostic


def test_the_limit_of_columns_is_one_of_all_sets() -> None:
    sets = ", ".join(f"({first}, {second})" for first, second in itertools.pairwise(("symbol", "ok", "qty")))
    text = f"SELECT count(*) FROM trades {WINDOW} GROUP BY GROUPING SETS ({sets})"
    assert parse(text, {"trades": TRADES}, limits=Limits(group_columns=2)).diagnostics[0].code == "HDL-309"
    assert parse(text, {"trades": TRADES}, limits=Limits(group_columns=3)).queries
