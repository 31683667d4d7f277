"""Query text to values: what is read, how mistakes are reported, and that hostile text is refused cheaply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.aggregates.states import LEAST_RANK_ERROR, MOST_ERROR
from optimizer.errors.diagnostics import HeddleError
from optimizer.language.files import workload_files
from optimizer.language.parser import ParseResult, load_workload, parse
from optimizer.language.words import RESERVED, Limits
from optimizer.workload.derived import derived_type
from optimizer.workload.event_patterns import Pattern
from optimizer.workload.expression import call_type, exact_literal, type_of
from optimizer.workload.instants import DAY, duration_text, parse_duration
from optimizer.workload.predicates import normal
from optimizer.workload.streams import load_streams
from optimizer.workload.values import (
    ACQ,
    BOOLEAN,
    DATE,
    DERIVED,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    AnswerTable,
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    Output,
    Source,
    Stream,
    Type,
    Window,
    decimal,
    from_json,
    to_json,
)
from tests.sizes import examples

SCHEMA = {
    "ts": TIMESTAMP,
    "symbol": STRING,
    "price": DOUBLE,
    "volume": LONG,
    "qty": INT,
    "fee": decimal(10, 2),
    "day": DATE,
    "ok": BOOLEAN,
}
STREAMS = {
    "trades": Stream("trades", Source("csv", "trades.csv"), tuple(SCHEMA.items()), "ts"),
    "unread": Stream("unread", Source("delta", "unread"), (), "ts"),
}
WINDOW = "WINDOW RANGE '1 hour' SLIDE '5 minutes' ON ts"
SECOND = 1_000_000


def read(text: str) -> ACQ:
    result = parse(text, STREAMS, "w.sql")
    assert result.diagnostics == ()
    return result.queries[0]


def where(condition: str) -> ParseResult:
    return parse(f"SELECT count(*) FROM trades {WINDOW} WHERE {condition}", STREAMS, "w.sql")


def filter_of(condition: str) -> object:
    result = where(condition)
    assert result.diagnostics == ()
    return result.queries[0].filter


def expression_of(condition: str) -> Expression | None:
    """What a condition is read as: inside an aggregate it is not brought into normal form."""
    return read(f"SELECT bool_and({condition}) AS a FROM trades {WINDOW}").outputs[0].argument


def output_of(aggregate: str) -> Output:
    return read(f"SELECT {aggregate} AS a FROM trades {WINDOW}").outputs[0]


def codes(text: str) -> list[str]:
    return [diagnostic.code for diagnostic in parse(text, STREAMS, "w.sql").diagnostics]


# ------------------------------------------------------------------------------------------- what is read
def test_a_whole_query() -> None:
    text = (
        "-- name: hourly_volume\n-- owner: desk one\n"
        "SELECT symbol AS s, max(price) AS hi, avg(volume), count(*), sum(fee) AS fees FROM trades\n"
        "WINDOW RANGE '1 hour' SLIDE '5 minutes' ON ts -- as they come\n"
        "WHERE symbol = 'NYSE' GROUP BY symbol;"
    )
    query = read(text)
    assert query == ACQ(
        name="hourly_volume",
        stream="trades",
        window=Window(3600 * SECOND, 300 * SECOND),
        outputs=(
            Output("hi", "max", Column("price"), DOUBLE, DOUBLE),
            Output("avg_volume", "avg", Column("volume"), LONG, DOUBLE),
            Output("count", "count", None, None, LONG),
            Output("fees", "sum", Column("fee"), decimal(10, 2), decimal(20, 2)),
        ),
        filter=Call("=", (Column("symbol"), Literal("NYSE", STRING))),
        group_by=(("symbol", STRING),),
        select=("s",),
        owner="desk one",
    )
    assert query.text.startswith("SELECT symbol") and query.text.endswith("GROUP BY symbol")
    assert from_json(to_json(query)) == query


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("departures_1h", AnswerTable("departures_1h")),
        ("a.b-c , Change  data feed", AnswerTable("a.b-c", True)),
        ("a,change data feed", AnswerTable("a", True)),
    ],
)
def test_a_query_asks_for_a_table_and_means_the_same(asked: str, expected: AnswerTable) -> None:
    text = f"SELECT count(*) FROM trades {WINDOW}"
    query, plain = read(f"-- name: q\n-- table: {asked}\n{text}"), read(f"-- name: q\n{text}")
    assert query.table == expected and from_json(to_json(query)) == query
    assert query.fingerprint == plain.fingerprint and to_json(plain) == {
        key: value for key, value in to_json(query).items() if key != "table"
    }


@pytest.mark.parametrize(
    "asked", ["", "../up", "a/b", ".a", "9a", "a" * 129, "a b", "a,", "a, feed", "ä", "a;b", "a%20"]
)
def test_what_cannot_be_a_table_is_refused_where_it_stands(asked: str) -> None:
    (diagnostic,) = parse(
        f"-- name: q\n-- table: {asked}\nSELECT count(*) FROM trades {WINDOW}", STREAMS, "w"
    ).diagnostics
    assert (diagnostic.code, diagnostic.line, diagnostic.column) == ("HDL-109", 2, 1)


def test_a_table_is_that_of_one_query(tmp_path: Path) -> None:
    """As some disks see names; owners of whom all queries have tables name them by the query."""
    text = f"SELECT count(*) FROM trades {WINDOW};\n"
    (tmp_path / "a.sql").write_text(f"-- name: q\n-- table: Busy\n{text}-- name: r\n-- owner: ops\n{text}")
    (tmp_path / "b.sql").write_text(f"-- name: busy\n-- owner: ops\n{text}-- name: s\n-- table: r\n{text}")
    files = [tmp_path / "a.sql", tmp_path / "b.sql"]
    workload, diagnostics = load_workload(files, STREAMS, tables_of=["ops"])
    assert {query.name: query.table for query in workload.queries} == {"q": AnswerTable("Busy"), "r": AnswerTable("r")}
    assert [
        (diagnostic.code, Path(diagnostic.file).name, diagnostic.line, diagnostic.query) for diagnostic in diagnostics
    ] == [
        ("HDL-226", "b.sql", 3, "busy"),
        ("HDL-226", "b.sql", 6, "s"),
    ]
    assert len(load_workload(files, STREAMS)[0].queries) == 4


def test_the_window_may_follow_group_by() -> None:
    before = read(f"SELECT day, count(*) FROM trades {WINDOW} WHERE ok GROUP BY day")
    after = read(f"SELECT day, count(*) FROM trades WHERE ok GROUP BY day {WINDOW}")
    assert before == after


def test_names_default_to_file_and_ordinal() -> None:
    statement = f"SELECT count(*) FROM trades {WINDOW};\n"
    result = parse(statement + "-- name: b\n" + statement + ";;" + statement, STREAMS, "dir/my file.sql")
    assert [query.name for query in result.queries] == ["my_file_1", "b", "my_file_3"]


def test_columns_resolve_as_in_spark_without_regard_to_case() -> None:
    query = read(f"SELECT Symbol, max(trades.PRICE) FROM TRADES {WINDOW.replace('ts', 'TS')} GROUP BY SYMBOL")
    assert query.stream == "trades" and query.group_by == (("symbol", STRING),)
    assert query.select == ("symbol",) and query.outputs[0].argument == Column("price")


def test_a_group_column_that_is_not_selected_keeps_its_name() -> None:
    assert read(f"SELECT count(*) FROM trades {WINDOW} GROUP BY symbol, day").select == ("symbol", "day")


@pytest.mark.parametrize(
    ("aggregate", "argument", "expected"),
    [
        ("count(1)", None, LONG),
        ("count(price)", DOUBLE, LONG),
        ("sum(qty)", INT, LONG),
        ("sum(qty * 2)", Type("long", 11), LONG),
        ("sum(fee * 2)", decimal(12, 2), decimal(22, 2)),
        ("sum(price)", DOUBLE, DOUBLE),
        ("avg(fee)", decimal(10, 2), decimal(14, 6)),
        ("min(symbol)", STRING, STRING),
        ("max(ok)", BOOLEAN, BOOLEAN),
        ("min(day)", DATE, DATE),
        ("max(ts)", TIMESTAMP, TIMESTAMP),
        ("var_pop(volume)", LONG, DOUBLE),
        ("stddev_samp(fee)", decimal(10, 2), DOUBLE),
        ("count(null)", BOOLEAN, LONG),
        ("count(DISTINCT symbol)", STRING, LONG),
        ("count(DISTINCT 1)", Type("long", 1), LONG),
        ("bool_and(ok)", BOOLEAN, BOOLEAN),
        ("every(qty > 1)", BOOLEAN, BOOLEAN),
        ("bool_or(ok)", BOOLEAN, BOOLEAN),
        ("ANY (ok)", BOOLEAN, BOOLEAN),
        ("some(ok)", BOOLEAN, BOOLEAN),
        ("bit_and(qty)", INT, LONG),
        ("bit_or(volume)", LONG, LONG),
        ("bit_xor(volume)", LONG, LONG),
        ("median(fee)", decimal(10, 2), DOUBLE),
        ("percentile(qty, 0.5)", INT, DOUBLE),
        ("percentile_disc(fee, 0.5)", decimal(10, 2), decimal(10, 2)),
        ("mode(day)", DATE, DATE),
        ("top_k(fee, 3)", decimal(10, 2), STRING),
        ("first(symbol)", STRING, STRING),
        ("last(ok)", BOOLEAN, BOOLEAN),
        ("min_by(symbol, price)", STRING, STRING),
        ("max_by(fee, ts)", decimal(10, 2), decimal(10, 2)),
    ],
)
def test_aggregates_and_their_types(aggregate: str, argument: Type | None, expected: Type) -> None:
    output = output_of(aggregate)
    assert (output.argument_type, output.type) == (argument, expected)


SAID = dict.fromkeys(("value+fraction", "value+k", "value+lgk", "value+entries", "value+size"), "parameter")
SAID |= {"value+fractions": "parameters"}


def test_every_aggregate_can_be_written_and_is_named_after_what_it_reads() -> None:
    arguments = {
        "value": "{x}",
        "value+time": "{x}",
        "value+by": "{x}, ts",
        "number+number": "{x}, fee",
        "value+fraction": "{x}, 0.5",
        "value+fractions": "{x}, array(0.5, 0.9)",
        "value+k": "{x}, 3",
        "value+lgk": "{x}",
        "value+entries": "{x}, 12",
        "value+size": "{x}, 64",
    }
    columns = {"a condition": "ok", "an integer": "qty", "a double": "price"}
    second = {"value+by": "_ts", "number+number": "_fee"}
    columns["a timestamp"] = "ts"
    for name, aggregate in AGGREGATES.items():
        if aggregate.signature not in arguments:
            continue
        column = columns.get(aggregate.takes, "volume")
        output = read(
            f"SELECT {name.upper()}({arguments[aggregate.signature].format(x=column)}) FROM trades {WINDOW}"
        ).outputs[0]
        assert (output.function, output.argument) == (name, Column(column))
        assert output.name == f"{name}_{column}{second.get(aggregate.signature, '')}"
        assert (output.by == Column("ts")) == (aggregate.signature in ("value+by", "value+time"))
        assert (output.parameter is not None) == (SAID.get(aggregate.signature) == "parameter")
        assert (output.parameters != ()) == (SAID.get(aggregate.signature) == "parameters")
        assert output.error is None


TIME = Call("time_diff", (Literal(0, TIMESTAMP), Column("ts"), Literal("microsecond", STRING)))


def as_text(value: Expression) -> Expression:
    return Call("cast", (value, Literal("string", STRING)))


def test_conditions_are_kept_with_their_time() -> None:
    output = output_of("time_while(qty > 1)")
    holds = Call("if", (expression_of("qty > 1"), exact_literal(1), exact_literal(0)))
    doubled = Call("+", (Call("*", (TIME, exact_literal(2))), holds))
    assert output.argument == Call("cast", (doubled, Literal("long", STRING)))
    assert (output.argument_type, output.type) == (LONG, DOUBLE)


@pytest.mark.parametrize(
    ("call", "key", "tail", "parameter"),
    [
        ("last_k(symbol, 3)", (), (Column("symbol"),), 3),
        ("string_agg(symbol, ', ')", (), (Literal(", ", STRING), Column("symbol")), 2),
        ("listagg(symbol)", (), (Column("symbol"),), 0),
        ("string_agg(qty, ',')", (), (Literal(",", STRING), as_text(Column("qty"))), 1),
        ("last_distinct(symbol, 3)", (), (Column("symbol"),), 3),
        ("last_k(DISTINCT symbol, 2 ORDER BY qty)", ("+", Column("qty")), (Column("symbol"),), 2),
        ("last_k(symbol, 2 ORDER BY qty)", ("+", Column("qty")), (Column("symbol"),), 2),
        ("last_k(symbol, 2 ORDER BY qty DESC)", ("-", Column("qty")), (Column("symbol"),), 2),
        ("listagg(symbol) WITHIN GROUP (ORDER BY qty DESC)", ("-", Column("qty")), (Column("symbol"),), 0),
    ],
)
def test_values_are_kept_with_their_place(
    call: str, key: tuple[Any, ...], tail: tuple[Expression, ...], parameter: int
) -> None:
    output = output_of(call)
    place = as_text(Call("+", (exact_literal(2 * 10**18), TIME)))
    keys = (Literal("k", STRING), as_text(Call(key[0], (exact_literal(2 * 10**19), key[1])))) if key else ()
    assert output.argument == Call("concat", (*keys, place, *tail))
    assert output.parameter == parameter


def test_distinct_texts_have_no_place() -> None:
    output = output_of("string_agg(DISTINCT symbol, ',')")
    assert output.argument == Call("concat", (Literal("d", STRING), Literal(",", STRING), Column("symbol")))
    assert output_of("sum(DISTINCT qty)").function == "sum_distinct"
    assert output_of("avg(DISTINCT price)").function == "avg_distinct"
    assert output_of("max(DISTINCT price)").function == "max"
    assert output_of("last_k(DISTINCT symbol, 3)").function == "last_distinct"
    assert output_of("last_k(DISTINCT symbol, 3 ORDER BY qty)").function == "last_distinct"


def test_names_of_several_words_have_underscores() -> None:
    text = "SELECT symbol AS `the symbol`, sum(qty) AS `total sales`, `total sales` / count(*) AS mean FROM trades "
    result = parse(
        f"{text}{WINDOW} GROUP BY symbol HAVING `total sales` > 5 ORDER BY `Total Sales` DESC LIMIT 3", STREAMS
    )
    (query,) = result.queries
    assert [diagnostic.code for diagnostic in result.diagnostics] == ["HDL-246", "HDL-246"]
    assert (query.select, [output.name for output in query.outputs]) == (("the_symbol",), ["total_sales", "mean"])
    assert query.having and query.top is not None


def test_a_time_less_a_time_is_seconds_and_a_date_less_a_date_days() -> None:
    seconds, days = output_of("max(ts) - min(ts)"), output_of("sum(date '2026-01-02' - day)")
    assert seconds.type == DOUBLE and isinstance(seconds.expression, Call) and seconds.expression.function == "/"
    assert isinstance(days.argument, Call) and days.argument.function == "time_diff"


def test_first_and_last_go_by_the_time_column_and_min_by_by_any_expression() -> None:
    first, least = output_of("first(price)"), output_of("min_by(symbol, qty * 2)")
    assert (first.by, first.by_type, first.argument) == (Column("ts"), TIMESTAMP, Column("price"))
    assert least.by == Call("*", (Column("qty"), Literal(2, Type("long", 1)))) and least.by_type == Type("long", 11)


@pytest.mark.parametrize(
    ("aggregate", "parameter"),
    [
        ("percentile(price, 0.990)", "0.99"),
        ("percentile(price, 99e-2)", "0.99"),
        ("percentile(price, (0.99))", "0.99"),
        ("percentile(price, 0.99BD)", "0.99"),
        ("percentile(price, 0.1D)", "0.1"),
        ("percentile(price, 0.123456789012345678)", "0.123456789012345678"),
        ("percentile(price, 1)", "1"),
        ("percentile_disc(price, -(-1.0))", "1"),
        ("top_k(price, 10)", "10"),
        ("top_k(price, 1e2)", "100"),
        ("top_k(price, 1000L)", "1000"),
        ("histogram_numeric(price, 1e1)", "10"),
        ("hll_sketch(symbol)", "12"),
        ("theta_sketch_agg(symbol, 14.0)", "14"),
        ("quantile_sketch(price)", "200"),
        ("kll_sketch_agg_bigint(qty, 1e2)", "100"),
    ],
)
def test_parameters_are_exact_and_equal_ones_are_written_alike(aggregate: str, parameter: str) -> None:
    assert str(output_of(aggregate).parameter) == parameter


def test_several_fractions_are_one_output() -> None:
    several = output_of("percentile(price, array(0.50, 9e-1))")
    assert (several.function, several.type) == ("percentiles", STRING)
    assert [str(fraction) for fraction in several.parameters] == ["0.5", "0.9"]
    approximate = output_of("approx_percentile(price, ARRAY(0.5), 100)")
    assert (approximate.function, str(approximate.error)) == ("percentiles_disc", "0.01")
    states = [AGGREGATES[output.function].states(output) for output in (several, output_of("median(price)"))]
    assert states[0] == states[1]


def test_arrays_of_distinct_values_are_sets() -> None:
    array_output, plain = output_of("array_agg(DISTINCT symbol, 10)"), output_of("collect_set(symbol, 10)")
    assert to_json(array_output) == to_json(plain)


def test_regressions_take_the_second_number_as_what_the_first_depends_on() -> None:
    slope = output_of("regr_slope(price, qty)")
    assert (slope.argument, slope.by, slope.by_type, slope.type) == (Column("price"), C, INT, DOUBLE)
    # one set of sums for all that is asked of two numbers
    states = [
        set(AGGREGATES[name].states(replace(slope, function=name))) for name in ("regr_slope", "corr", "covar_pop")
    ]
    assert states[2] < states[0] < states[1]


@pytest.mark.parametrize(
    ("aggregate", "exact", "error"),
    [
        ("approx_count_distinct(symbol)", "count(DISTINCT symbol)", "0.05"),
        ("approx_count_distinct(symbol, 0.010)", "count(DISTINCT symbol)", "0.01"),
        ("approx_percentile(fee, 0.9)", "percentile_disc(fee, 0.9)", "0.001"),
        ("percentile_approx(fee, 0.9, 100)", "percentile_disc(fee, 0.9)", "0.01"),
        ("percentile_approx(fee, 0.9, 1000)", "percentile_disc(fee, 0.9)", "0.001"),
        ("approx_percentile(fee, 0.9, 10000)", "percentile_disc(fee, 0.9)", "0.0001"),
        ("approx_top_k(symbol)", "top_k(symbol, 5)", "0.01"),
        ("approx_top_k(symbol, 7)", "top_k(symbol, 7)", "0.01"),
    ],
)
def test_approximations_are_exact_functions_with_an_error(aggregate: str, exact: str, error: str) -> None:
    output = output_of(aggregate)
    assert str(output.error) == error
    assert to_json(output) == to_json(output_of(exact)) | {"error": to_json(Decimal(error))}


def test_an_error_within_an_accuracy_is_never_above_it() -> None:
    for accuracy in (*range(2, 1001), *range(1001, 10_000, 89), 10_000):
        error = output_of(f"approx_percentile(price, 0.5, {accuracy})").error
        assert error is not None and LEAST_RANK_ERROR <= error <= MOST_ERROR
        assert 0 <= Fraction(1, accuracy) - Fraction(error) < Fraction(1, 10**9)


def test_with_error_is_for_what_names_no_error_itself() -> None:
    query = read(
        "SELECT count(*), count(DISTINCT symbol) AS a, median(price), mode(day), top_k(qty, 3), avg(qty), "
        "approx_count_distinct(symbol) AS b, approx_count_distinct(symbol, 0.2) AS c, approx_top_k(symbol) "
        f"FROM trades {WINDOW} GROUP BY symbol HAVING percentile(price, 0.1) > 3 AND a > 1 WITH (error = 0.010)"
    )
    error = Decimal("0.01")
    assert [output.error for output in query.outputs] == [
        *(None, error, error, error, error),
        *(None, error, Decimal("0.2"), error),
    ]
    assert [condition.output.error for condition in query.having] == [error, error]
    assert query.having[1].output == query.outputs[1]


@pytest.mark.parametrize(
    "select", ["sum(qty)", "approx_count_distinct(symbol, 0.2)", "percentile_approx(fee, 0.9, 100)"]
)
def test_an_error_that_nothing_takes_is_a_warning(select: str) -> None:
    text = f"SELECT {select} FROM trades {WINDOW} WITH (error = 0.01)"
    result = parse(text, STREAMS, "w.sql")
    assert result.errors == () and len(result.queries) == 1
    diagnostic = result.diagnostics[0]
    assert (diagnostic.code, diagnostic.severity, diagnostic.column) == ("HDL-218", "warning", text.index("0.01)") + 1)
    assert "median" in diagnostic.hint and "avg" not in diagnostic.hint


# ------------------------------------------------------------------------------------------------ windows
def test_historical_windows() -> None:
    query = read("SELECT sum(qty) FROM trades WINDOW RANGE '1 hour' SLIDE '10 minutes' ENDING '1 day 1 hour' AGO ON ts")
    assert query.window == Window(3600 * SECOND, 600 * SECOND, 25 * 3600 * SECOND)


@pytest.mark.parametrize(
    ("words", "window"),
    [
        ("ROWS 10000 SLIDE 500", Window(10_000, 500, 0, ())),
        ("rows 3 slide 1", Window(3, 1, 0, ())),
        ("ROWS 10000000 SLIDE 10000000", Window(10_000_000, 10_000_000, 0, ())),
        ("ROWS 010 SLIDE 3 PARTITION\n BY symbol", Window(10, 3, 0, ("symbol",))),
        (
            "ROWS 10 SLIDE 3 PARTITION BY Symbol, ok, `day`, symbol, qty",
            Window(10, 3, 0, ("day", "ok", "qty", "symbol")),
        ),
    ],
)
def test_windows_of_rows(words: str, window: Window) -> None:
    query = read(f"SELECT symbol, sum(qty) FROM trades WINDOW {words} ON ts WHERE ok GROUP BY symbol, day, ok, qty")
    assert query.window == window and query.group_by[:2] == (("symbol", STRING), ("day", DATE))
    after = f"SELECT symbol, sum(qty) FROM trades WHERE ok GROUP BY symbol, day, ok, qty WINDOW {words} ON ts"
    assert query == read(after)


# ------------------------------------------------------------------------------------------------- having
def having_of(conditions: str, select: str = "symbol AS s, sum(qty) AS total, count(*)") -> tuple[Condition, ...]:
    return read(f"SELECT {select} FROM trades {WINDOW} GROUP BY symbol HAVING {conditions}").having


TOTAL = Output("total", "sum", Column("qty"), INT, LONG)
COUNT = Output("count", "count", None, None, LONG)
TEN = Literal(10, Type("long", 2))


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ("sum(qty) > 10", [(TOTAL, ">", TEN)]),
        ("TOTAL > 10", [(TOTAL, ">", TEN)]),
        ("10 < total", [(TOTAL, ">", TEN)]),
        ("((10) <= (total))", [(TOTAL, ">=", TEN)]),
        ("10 >= total", [(TOTAL, "<=", TEN)]),
        ("10 > total", [(TOTAL, "<", TEN)]),
        ("10 = total", [(TOTAL, "=", TEN)]),
        ("10 <> total", [(TOTAL, "!=", TEN)]),
        ("total > 10 AND (sum(qty) > 10)", [(TOTAL, ">", TEN)]),
        (
            "total > 10 AND (count >= 10 AND 10 != count(*))",
            [(TOTAL, ">", TEN), (COUNT, ">=", TEN), (COUNT, "!=", TEN)],
        ),
        ("total > -(-1e1)", [(TOTAL, ">", Literal(10.0, DOUBLE))]),
        ("max(price) < 1.50", [(Output("max_price", "max", Column("price"), DOUBLE, DOUBLE), "<", None)]),
        ("min(symbol) = 'a'", [(Output("min_symbol", "min", Column("symbol"), STRING, STRING), "=", None)]),
        (
            "max(day) >= '2013-07-04'",
            [(Output("max_day", "max", Column("day"), DATE, DATE), ">=", Literal("2013-07-04", DATE))],
        ),
        (
            "timestamp '1970-01-01 00:00:01' < max(ts)",
            [(Output("max_ts", "max", Column("ts"), TIMESTAMP, TIMESTAMP), ">", Literal(SECOND, TIMESTAMP))],
        ),
        (
            "any(ok) = TRUE",
            [(Output("any_ok", "any", Column("ok"), BOOLEAN, BOOLEAN), "=", Literal(True, BOOLEAN))],
        ),
    ],
)
def test_thresholds(conditions: str, expected: list[tuple[Output, str, Literal | None]]) -> None:
    thresholds = having_of(conditions)
    assert [(c.output, c.comparison) for c in thresholds] == [
        (output, comparison) for output, comparison, _ in expected
    ]
    for condition, (_, _, value) in zip(thresholds, expected, strict=True):
        assert value is None or condition.value == value


def derived_of(select: str, tail: str = "") -> Output:
    return read(f"SELECT {select} AS a FROM trades {WINDOW} GROUP BY symbol{tail}").outputs[0]


@pytest.mark.parametrize(
    ("select", "type_", "parts"),
    [
        ("sum(qty) / count(*)", "double", ["sum", "count"]),
        ("100.0 * sum(qty) / count(*)", "double", ["sum", "count"]),
        ("sum(qty) - sum(qty) + count(*)", "long", ["sum", "count"]),
        ("sum(fee) - sum(fee)", "decimal(21,2)", ["sum"]),
        ("sum(fee) * sum(fee) * sum(fee)", "decimal(38,6)", ["sum"]),
        ("sum(fee) * sum(fee) * 1.5", "decimal(38,5)", ["sum"]),
        ("-sum(qty)", "long", ["sum"]),
        ("abs(sum(qty))", "long", ["sum"]),
        ("coalesce(sum(qty), 0)", "long", ["sum"]),
        ("max(price) - min(price)", "double", ["max", "min"]),
        ("max(day) > '2013-07-04' OR symbol LIKE 'a%'", "boolean", ["max", "min"]),
        ("((sum(qty))) > 3 AND NOT any(ok) AND count(*) IN (1, 2)", "boolean", ["sum", "any", "count"]),
    ],
)
def test_values_made_of_aggregates(select: str, type_: str, parts: list[str]) -> None:
    """Each aggregate once, and the types of metrics need no casts."""
    output = derived_of(select)
    assert (output.function, str(output.type)) == (DERIVED, type_)
    assert [part.function for part in output.parts] == parts
    assert [part.name for part in output.parts] == [str(number) for number in range(len(parts))]


def test_a_single_aggregate_in_parentheses_is_itself() -> None:
    assert derived_of("(sum(qty))") == derived_of("sum(qty)")


def test_any_condition_over_aggregates_outputs_and_groups() -> None:
    """Plain thresholds stay what they were; others are outputs that have to be true."""
    thresholds = having_of("total > 10 AND (count = 3 OR s = 'a') AND total BETWEEN 1 AND 5 AND s IS NOT NULL")
    assert thresholds[0] == Condition(TOTAL, ">", TEN)
    assert [
        (threshold.output.function, threshold.comparison, threshold.value.value) for threshold in thresholds[1:]
    ] == [(DERIVED, "=", True)] * 3
    assert [part.function for part in thresholds[1].output.parts] == ["count", "min"]
    rate = "symbol, sum(qty) / count(*) AS rate"
    assert having_of("rate > 0.5", rate)[0].output.name == "rate"
    (inlined,) = having_of("rate > 0.5 OR rate IS NULL", rate)
    assert [part.function for part in inlined.output.parts] == ["sum", "count"]


def test_the_first_groups_of_each_window() -> None:
    text = f"SELECT count(*) AS n FROM trades {WINDOW} GROUP BY symbol"
    top = read(f"{text} ORDER BY n DESC, sum(qty) / n NULLS LAST, symbol LIMIT 10").top
    assert top is not None and top.k == 10
    orders = [(order.output.function, order.descending, order.nulls_first) for order in top.orders]
    assert orders == [("count", True, False), (DERIVED, False, False), (DERIVED, False, True)]
    # under whatever name, and with or without an option
    for other in ("ORDER BY count(*) DESC", "ORDER BY n DESC NULLS LAST"):
        assert read(f"{text} {other} LIMIT 10").top == read(f"{text} ORDER BY N DESC LIMIT 10").top
    assert read(f"{text} ORDER BY n LIMIT 10").fingerprint != read(f"{text} ORDER BY n LIMIT 9").fingerprint


def test_what_having_adds_is_computed_once_under_a_name_of_its_own() -> None:
    conditions = "percentile(qty, 0.1) > 1 AND percentile(qty, 0.2) > 2 AND percentile(qty, 0.10) < 9 AND count(*) > 3"
    thresholds = having_of(conditions, "sum(qty) AS count, max(qty) AS Percentile_Qty")
    assert [condition.output.name for condition in thresholds] == [
        *("percentile_qty_", "percentile_qty__", "percentile_qty_", "count_"),
    ]
    assert thresholds[0].output == thresholds[2].output and thresholds[3].output.function == "count"


def test_a_query_with_thresholds_is_stored_and_read_back() -> None:
    query = read(
        "SELECT symbol, top_k(fee, 3) FROM trades WINDOW ROWS 9 SLIDE 2 PARTITION BY symbol ON ts GROUP BY symbol "
        "HAVING max_by(fee, qty) > 1.5 AND percentile(qty, 0.99) > 3 WITH (error = 0.1)"
    )
    assert from_json(to_json(query)) == query
    assert query.columns() == ["fee", "qty", "symbol"]


def test_a_mistake_in_an_output_is_told_once_though_having_names_it() -> None:
    assert codes(f"SELECT sum(nope) AS total FROM trades {WINDOW} HAVING total > 1 AND Total < 9") == ["HDL-202"]


C, ONE = Column("qty"), Literal(1, Type("long", 1))


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("qty = 1", Call("=", (C, ONE))),
        (
            "qty <> 1 AND ok AND NOT ok",
            Call("and", (Call("!=", (C, ONE)), Column("ok"), Call("not", (Column("ok"),)))),
        ),
        ("ok OR (ok AND ok)", Call("or", (Column("ok"), Call("and", (Column("ok"), Column("ok")))))),
        ("qty IN (1, NULL)", Call("in", (C, ONE, Literal(None, INT)))),
        ("qty NOT IN (1)", Call("not", (Call("in", (C, ONE)),))),
        ("qty IS NOT NULL", Call("not", (Call("is_null", (C,)),))),
        ("qty BETWEEN 1 AND 1", Call("and", (Call(">=", (C, ONE)), Call("<=", (C, ONE))))),
        ("qty > -1", Call(">", (C, Literal(-1, Type("long", 1))))),
        ("qty = -(-(1))", Call("=", (C, ONE))),
        (
            "symbol NOT LIKE 'a\\_%'",
            Call("not", (Call("like", (Column("symbol"), Literal("a\\_%", STRING))),)),
        ),
        ('upper(symbol) = "A"', Call("=", (Call("upper", (Column("symbol"),)), Literal("A", STRING)))),
        ("'2013-01-01' <= day", Call("<=", (Literal("2013-01-01", DATE), Column("day")))),
        ("day IN (date '2013-01-01')", Call("in", (Column("day"), Literal("2013-01-01", DATE)))),
        ("ts >= '1970-01-01 00:00:01'", Call(">=", (Column("ts"), Literal(SECOND, TIMESTAMP)))),
        ("ts >= timestamp '1970-01-01'", Call(">=", (Column("ts"), Literal(0, TIMESTAMP)))),
        ("price > 1e0", Call(">", (Column("price"), Literal(1.0, DOUBLE)))),
        ("price > 1D", Call(">", (Column("price"), Literal(1.0, DOUBLE)))),
        ("volume = 1L", Call("=", (Column("volume"), ONE))),
        ("NULL", Literal(None, BOOLEAN)),
        ("coalesce(qty, 1) = qty", Call("=", (Call("coalesce", (C, ONE)), C))),
    ],
)
def test_conditions(condition: str, expected: object) -> None:
    assert expression_of(condition) == expected


def test_operators_bind_as_in_sql() -> None:
    assert expression_of("qty + 1 * qty - 1 = qty") == expression_of("((qty + (1 * qty)) - 1) = qty")
    assert expression_of("NOT ok = ok OR ok AND ok") == expression_of("(NOT (ok = ok)) OR (ok AND ok)")


def test_a_long_chain_of_ands_is_one_flat_call() -> None:
    expression = expression_of(" AND ".join(["ok"] * 250))
    assert isinstance(expression, Call) and len(expression.arguments) == 250


@pytest.mark.parametrize(
    ("condition", "same"),
    [
        ("qty > 3 AND ok", "ok AND 3 < qty"),
        ("NOT (qty <= 3)", "qty > 3 AND qty > 2"),
        ("qty = 1 OR qty = 2", "qty IN (2, 1, 1)"),
        ("ok OR TRUE", "TRUE"),
        ("qty > 3 AND qty < 2", "FALSE"),
    ],
)
def test_filters_are_kept_in_normal_form(condition: str, same: str) -> None:
    assert filter_of(condition) == filter_of(same) == normal(expression_of(condition), SCHEMA)  # type: ignore[arg-type]


def test_a_filter_that_passes_everything_is_none() -> None:
    assert filter_of("TRUE") is None and filter_of("NULL") == Literal(False, BOOLEAN)


# --------------------------------------------------------------------------------------------- durations
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5 minutes", 300),
        ("1 HOUR", 3600),
        ("90 seconds", 90),
        ("1 day 6 hours", 108_000),
        ("500 milliseconds", 0.5),
        ("2 weeks", 1_209_600),
        ("0.5 seconds", 0.5),
        ("-1 hour", -3600),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds * SECOND


@pytest.mark.parametrize("text", ["", "5", "minutes", "1 month", "2 years", "5 mintes", "1 hour,", "0.0000001 seconds"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(HeddleError) as caught:
        parse_duration(text)
    assert caught.value.diagnostic.code == "HDL-204"


@given(st.integers(1, 10**14))
def test_durations_in_words_read_back(microseconds: int) -> None:
    assert parse_duration(duration_text(microseconds)) == microseconds


# ---------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("marked", "code", "hint"),
    [
        ("SELECT avg(^pric) FROM trades {w}", "HDL-202", "did you mean price?"),
        ("SELECT ^summ(qty) FROM trades {w}", "HDL-104", "did you mean sum?"),
        ("SELECT ^mean(qty) FROM trades {w}", "HDL-104", "did you mean avg?"),
        ("SELECT count(*) FROM ^trads {w}", "HDL-201", "did you mean trades?"),
        ("SELECT count(*) FROM ^unread {w}", "HDL-213", "schema"),
        ("SELECT ^sum(symbol) FROM trades {w}", "HDL-203", ""),
        ("SELECT ^sum(*) FROM trades {w}", "HDL-203", ""),
        ("SELECT sum(^volume * volume * qty) FROM trades {w}", "HDL-211", "double"),
        ("SELECT ^symbol, count(*) FROM trades {w}", "HDL-207", "GROUP BY symbol"),
        ("^SELECT symbol FROM trades {w} GROUP BY symbol", "HDL-105", "count(*)"),
        ("SELECT ^1 + 1 FROM trades {w}", "HDL-105", "sum(x) / count(*)"),
        ("SELECT ^price / count(*) FROM trades {w}", "HDL-207", "max(price)"),
        ("SELECT sum(^max(qty)) / 2 FROM trades {w}", "HDL-105", ""),
        ("SELECT ^sum(qty) + 'a' FROM trades {w}", "HDL-203", ""),
        ("SELECT ^coalesce(sum(qty), 'a') FROM trades {w}", "HDL-203", "one type"),
        ("SELECT count(*) / ^sum(symbol) AS a FROM trades {w} HAVING a > 1", "HDL-203", ""),
        # the first groups
        ("SELECT count(*) AS n FROM trades {w} GROUP BY symbol ORDER BY ^n", "HDL-229", "LIMIT 10"),
        ("SELECT count(*) AS n FROM trades {w} GROUP BY symbol LIMIT ^5", "HDL-229", "ORDER BY"),
        ("SELECT count(*) AS n FROM trades {w} GROUP BY symbol ORDER BY ^2 LIMIT 5", "HDL-229", "1 to 1"),
        ("SELECT count(*) AS n FROM trades {w} GROUP BY symbol ORDER BY n LIMIT ^0", "HDL-229", ""),
        ("SELECT count(*) AS n FROM trades {w} GROUP BY symbol ORDER BY n LIMIT ^1001", "HDL-229", ""),
        ("SELECT count(*) AS n FROM trades {w} GROUP BY symbol ORDER BY n LIMIT ^'5'", "HDL-229", ""),
        ("SELECT count(*) AS n FROM trades {w} GROUP BY symbol ORDER BY n LIMIT ^5.5", "HDL-229", ""),
        ("SELECT count(*) AS n FROM trades {w} GROUP BY symbol ORDER BY n LIMIT ^1 + 1", "HDL-229", ""),
        ("SELECT count(*) AS n FROM trades {w} ORDER BY ^n LIMIT 5", "HDL-229", "GROUP BY"),
        ("SELECT count(*) AS n FROM trades {w} GROUP BY symbol ORDER BY ^qty LIMIT 5", "HDL-217", "max(qty)"),
        ("SELECT count(*) AS n FROM trades {w} GROUP BY symbol ORDER BY ^nn LIMIT 5", "HDL-202", "did you mean n?"),
        ("SELECT count(*) AS n FROM trades {w} GROUP BY symbol ORDER BY n LIMIT 5 ^OFFSET 5", "HDL-103", ""),
        (
            "SELECT count(*) AS n FROM trades WINDOW ROWS 9 SLIDE 3 ON ts GROUP BY symbol ORDER BY ^n LIMIT 5",
            "HDL-229",
            "read",
        ),
        ("SELECT count(*), count(*) ^AS count FROM trades {w}", "HDL-208", "AS"),
        ("SELECT ^string_agg(DISTINCT symbol, ',' ORDER BY qty) FROM trades {w}", "HDL-104", "leave ORDER BY out"),
        ("SELECT ^count(*) AS `a-b` FROM trades {w}", "HDL-208", "letters"),
        ("SELECT ^count(*) AS `1 b` FROM trades {w}", "HDL-208", "letters"),
        ("SELECT ^count(*) AS `a  b` FROM trades {w}", "HDL-208", "letters"),
        ("SELECT count(*) AS a_b, ^count(*) AS `a b` FROM trades {w}", "HDL-208", "AS"),
        ("SELECT count(*) FROM trades {w} GROUP BY ^price", "HDL-206", "double"),
        ("SELECT count(*) FROM trades {w} GROUP BY ^ts", "HDL-206", "RANGE"),
        ("SELECT count(*) FROM trades {w} GROUP BY ^price * 2", "HDL-206", "CAST"),
        ("SELECT count(*) FROM trades {w} GROUP BY ^1", "HDL-206", ""),
        ("SELECT count(*) FROM trades {w} WHERE ^symbol = 5", "HDL-203", "quotes"),
        ("SELECT count(*) FROM trades {w} WHERE ^qty", "HDL-203", ""),
        ("SELECT count(*) FROM trades {w} WHERE ^day = '2013-13-01'", "HDL-110", "2013-07-04"),
        ("SELECT count(*) FROM trades {w} WHERE qty > ^1e400", "HDL-305", ""),
        ("SELECT count(*) FROM trades {w} WHERE ^count(*) > 1", "HDL-105", "SELECT"),
        ("SELECT count(*) FROM trades {w} WHERE ^symbol LIKE symbol", "HDL-203", ""),
        ("SELECT count(*) FROM trades WINDOW RANGE ^'0 hours' SLIDE '5 minutes' ON ts", "HDL-204", ""),
        ("SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE ^'-1 hour' ON ts", "HDL-204", ""),
        ("SELECT count(*) FROM trades WINDOW RANGE '1 month' SLIDE ^'1 hour' ON ts", "HDL-241", "30 days"),
        ("SELECT count(*) FROM trades WINDOW RANGE ^'3661 days' SLIDE '1 day' ON ts", "HDL-307", ""),
        ("SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE ^'500 milliseconds' ON ts", "HDL-306", ""),
        (
            "SELECT count(*) FROM trades WINDOW RANGE '3000 days' SLIDE ^'1 minute' ON ts",
            "HDL-308",
            "259200 milliseconds",
        ),
        ("SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE '1 minute' ON ^day", "HDL-205", "ON ts"),
        ("SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE ^ON ts", "HDL-107", "WINDOW RANGE"),
        ("SELECT count(*) ^FROM trades", "HDL-107", "WINDOW RANGE"),
        ("SELECT count(*) FROM trades {w} ^{w}", "HDL-107", ""),
        ("SELECT sum^(qty FROM trades {w}", "HDL-101", "close"),
        ("SELECT sum(qty)^) FROM trades {w}", "HDL-101", "remove"),
        ("SELECT count(*)^, FROM trades {w}", "HDL-101", "remove"),
        ("SELECT count(*) FROM trades {w} WHERE qty = ^= 1", "HDL-101", ""),
        ("SELECT count(*) FROM trades WHERE qty = {w} ^5", "HDL-101", ""),
        ("^DROP TABLE trades", "HDL-102", ""),
        # aggregates and their parameters
        ("SELECT percentile(price, ^0) FROM trades {w}", "HDL-214", "median"),
        ("SELECT percentile(price, ^1.01) FROM trades {w}", "HDL-214", ""),
        ("SELECT percentile(price, array(0.5, ^1.01)) FROM trades {w}", "HDL-214", "median"),
        ("SELECT percentile(price, ^array()) FROM trades {w}", "HDL-214", ""),
        ("SELECT percentiles(price, ^0.5) FROM trades {w}", "HDL-214", "array(0.5, 0.9)"),
        ("SELECT hll_sketch(symbol, ^3) FROM trades {w}", "HDL-215", "hll_sketch(x, 12)"),
        ("SELECT ^hll_sketch(price) FROM trades {w}", "HDL-203", ""),
        ("SELECT ^corr(price, symbol) FROM trades {w}", "HDL-203", ""),
        ("SELECT ^corr(price) FROM trades {w}", "HDL-104", "corr(x, y)"),
        ("SELECT ^array_agg(symbol, 5) FROM trades {w}", "HDL-104", "array_agg(DISTINCT x, 10)"),
        ("SELECT ^kll_sketch(symbol) FROM trades {w}", "HDL-104", "quantile_sketch"),
        ("SELECT hll_sketch(symbol) AS s FROM trades {w} HAVING ^s = 'x'", "HDL-203", ""),
        ("SELECT percentile(price, -^0.5) FROM trades {w}", "HDL-214", ""),
        ("SELECT percentile_disc(price, ^50) FROM trades {w}", "HDL-214", ""),
        ("SELECT approx_percentile(price, ^2, 100) FROM trades {w}", "HDL-214", ""),
        ("SELECT percentile(price, ^qty) FROM trades {w}", "HDL-214", ""),
        ("SELECT percentile(price, ^'0.5') FROM trades {w}", "HDL-214", ""),
        ("SELECT ^percentile(price, NULL) FROM trades {w}", "HDL-214", ""),
        ("SELECT percentile(price, ^0.1 + 0.1) FROM trades {w}", "HDL-214", ""),
        ("SELECT percentile(price, ^1e-30) FROM trades {w}", "HDL-214", ""),
        ("SELECT percentile(price, ^1e400) FROM trades {w}", "HDL-305", ""),
        ("SELECT percentile(price, ^max(qty)) FROM trades {w}", "HDL-214", ""),
        ("SELECT top_k(symbol, ^0) FROM trades {w}", "HDL-215", "top_k(x, 10)"),
        ("SELECT top_k(symbol, -^3) FROM trades {w}", "HDL-215", ""),
        ("SELECT top_k(symbol, ^1.5) FROM trades {w}", "HDL-215", ""),
        ("SELECT top_k(symbol, ^1001) FROM trades {w}", "HDL-215", ""),
        ("SELECT approx_top_k(symbol, ^0) FROM trades {w}", "HDL-215", ""),
        ("SELECT top_k(symbol, ^symbol) FROM trades {w}", "HDL-215", ""),
        ("SELECT approx_count_distinct(symbol, ^0.0009) FROM trades {w}", "HDL-216", "per cent"),
        ("SELECT approx_count_distinct(symbol, ^0.6) FROM trades {w}", "HDL-216", ""),
        ("SELECT approx_count_distinct(symbol, ^price) FROM trades {w}", "HDL-216", ""),
        ("SELECT approx_percentile(price, 0.5, ^10001) FROM trades {w}", "HDL-216", "100"),
        ("SELECT approx_percentile(price, 0.5, ^20000) FROM trades {w}", "HDL-216", "100"),
        ("SELECT approx_percentile(price, 0.5, ^1) FROM trades {w}", "HDL-216", ""),
        ("SELECT approx_percentile(price, 0.5, ^2.5) FROM trades {w}", "HDL-216", ""),
        ("SELECT ^percentile_disc(0.5) WITHIN GROUP (ORDER BY price DESC) FROM trades {w}", "HDL-104", "0.1 for 0.9"),
        ("SELECT ^percentile_cont(price, 0.5) FROM trades {w}", "HDL-104", "did you mean percentile?"),
        ("SELECT ^arg_max(qty, price) FROM trades {w}", "HDL-104", "did you mean max_by?"),
        ("SELECT ^medain(price) FROM trades {w}", "HDL-104", "did you mean median?"),
        ("SELECT ^percentile(price) FROM trades {w}", "HDL-104", "percentile(x, fraction)"),
        ("SELECT ^percentile(price, 0.5, 3) FROM trades {w}", "HDL-104", "percentile(x, fraction)"),
        ("SELECT ^approx_top_k(price, 5, 100) FROM trades {w}", "HDL-104", "approx_top_k(x, k)"),
        ("SELECT ^top_k(price) FROM trades {w}", "HDL-104", "top_k(x, k)"),
        ("SELECT ^min_by(price) FROM trades {w}", "HDL-104", "min_by(x, y)"),
        ("SELECT ^max_by(price, qty, 3) FROM trades {w}", "HDL-104", "max_by(x, y)"),
        ("SELECT ^median(price, 3) FROM trades {w}", "HDL-104", "median(x)"),
        ("SELECT ^first(price, TRUE) FROM trades {w}", "HDL-104", "first(x)"),
        ("SELECT ^count() FROM trades {w}", "HDL-104", "count(x)"),
        ("SELECT count(DISTINCT ^qty, price) FROM trades {w}", "HDL-203", "decimals"),
        ("SELECT ^stddev(DISTINCT qty) FROM trades {w}", "HDL-103", "count(DISTINCT x)"),
        ("SELECT ^top_k(DISTINCT qty, 3) FROM trades {w}", "HDL-103", "count(DISTINCT x)"),
        ("SELECT ^first(price) IGNORE NULLS FROM trades {w}", "HDL-103", "skips nulls"),
        ("SELECT min(^price ORDER BY qty) FROM trades {w}", "HDL-103", "min_by"),
        ("SELECT ^median(symbol) FROM trades {w}", "HDL-203", ""),
        ("SELECT ^bool_and(qty) FROM trades {w}", "HDL-203", ""),
        ("SELECT ^bit_xor(price) FROM trades {w}", "HDL-203", ""),
        ("SELECT ^median(*) FROM trades {w}", "HDL-203", ""),
        ("SELECT ^count(DISTINCT *) FROM trades {w}", "HDL-203", ""),
        ("SELECT ^min_by(price, *) FROM trades {w}", "HDL-203", ""),
        ("SELECT max_by(price, ^count(*)) FROM trades {w}", "HDL-105", "SELECT and HAVING"),
        ("SELECT count(*) FROM trades {w} WHERE ^any(ok)", "HDL-105", "SELECT and HAVING"),
        # WITH (error = …)
        ("SELECT median(qty) FROM trades {w} WITH (error = ^0.6)", "HDL-216", "per cent"),
        ("SELECT median(qty) FROM trades {w} WITH (error = ^0)", "HDL-216", "per cent"),
        ("SELECT median(qty) FROM trades {w} WITH (error = ^1e400)", "HDL-305", ""),
        ("SELECT median(qty) FROM trades {w} WITH (error = ^-0.1)", "HDL-107", "WITH (error = 0.01)"),
        ("SELECT median(qty) FROM trades {w} WITH (error = ^'0.1')", "HDL-107", "WITH (error = 0.01)"),
        ("SELECT median(qty) FROM trades {w} WITH (error ^0.1)", "HDL-107", "WITH (error = 0.01)"),
        ("SELECT median(qty) FROM trades {w} WITH (error = 0.1^, error = 0.1)", "HDL-107", "WITH (error = 0.01)"),
        ("SELECT median(qty) FROM trades {w} WITH (^confidence = 0.9)", "HDL-107", "error is the only one"),
        ("SELECT median(qty) FROM trades {w} WITH (^)", "HDL-107", "WITH (error = 0.01)"),
        ("SELECT median(qty) FROM trades {w} WITH ^error = 0.1", "HDL-107", "WITH (error = 0.01)"),
        ("SELECT median(qty) FROM trades {w} WITH (error = 0.1) ^WHERE ok", "HDL-107", "end of the query"),
        ("SELECT median(qty) FROM trades WITH (error = 0.1) ^{w}", "HDL-107", "end of the query"),
        ("SELECT median(qty) FROM trades {w} WITH (error = 0.1) ^WITH (error = 0.1)", "HDL-107", "end of the query"),
        ("SELECT median(qty) FROM trades {w} WITH ^(error = 0.1", "HDL-101", "close"),
        # HAVING
        ("SELECT count(*) FROM trades {w} HAVING ^trades.qty > 1", "HDL-217", "max(qty)"),
        ("SELECT count(*) AS n FROM trades {w} HAVING ^nn > 1", "HDL-202", "did you mean n?"),
        ("SELECT count(*) AS n FROM trades {w} HAVING ^trades.n > 1", "HDL-202", ""),
        ("SELECT count(*) AS n FROM trades {w} HAVING sum(^nope) > 1", "HDL-202", ""),
        ("SELECT count(*) AS n FROM trades {w} HAVING n > 1 AND (n < 3 OR ^qty > 9)", "HDL-217", "max(qty)"),
        ("SELECT count(*) AS n FROM trades {w} HAVING NOT ^n", "HDL-203", "compare"),
        ("SELECT count(*) AS n FROM trades {w} HAVING ^n + 1", "HDL-217", "compare"),
        ("SELECT count(*) AS n FROM trades {w} HAVING ^n LIKE 'a%'", "HDL-203", ""),
        ("SELECT count(*) AS n FROM trades {w} HAVING ^1 = 1", "HDL-217", "sum(x) > 10"),
        ("SELECT count(*) AS n FROM trades {w} HAVING ^n = NULL", "HDL-217", "value"),
        ("SELECT count(*) AS n FROM trades {w} ^HAVING TRUE", "HDL-217", "sum(x) > 10"),
        ("SELECT any(ok) AS n FROM trades {w} HAVING ^abs(n) > 1", "HDL-203", ""),
        ("SELECT any(ok) AS n FROM trades {w} HAVING ^n > 1", "HDL-203", ""),
        ("SELECT count(*) AS n FROM trades {w} HAVING ^n > 'a'", "HDL-203", "quotes"),
        ("SELECT max(day) AS n FROM trades {w} HAVING ^n > '2013-13-01'", "HDL-110", "2013-07-04"),
        ("SELECT max(day) AS n FROM trades {w} HAVING ^n > 5", "HDL-203", ""),
        ("SELECT count(*) FROM trades {w} HAVING count(*) > 1 ^HAVING count(*) > 2", "HDL-101", ""),
        # historical windows and windows of rows
        ("SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ENDING ^'0 hours' AGO ON ts", "HDL-204", ""),
        ("SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ENDING ^'-1 hour' AGO ON ts", "HDL-204", ""),
        (
            "SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ENDING ^'1 year' AGO ON ts",
            "HDL-204",
            "days",
        ),
        (
            "SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ENDING ^'3661 days' AGO ON ts",
            "HDL-307",
            "",
        ),
        ("SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ENDING '7 days' ^ON ts", "HDL-107", "RANGE"),
        ("SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ENDING ^7 AGO ON ts", "HDL-107", "RANGE"),
        (
            "SELECT count(*) FROM trades WINDOW RANGE '1 hour' ENDING '1 hour' AGO ^SLIDE '1 hour' ON ts",
            "HDL-107",
            "RANGE",
        ),
        (
            "SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ^PARTITION BY symbol ON ts",
            "HDL-107",
            "RANGE",
        ),
        ("SELECT count(*) FROM trades WINDOW ROWS 9 SLIDE 3 ^ENDING '7 days' AGO ON ts", "HDL-107", "RANGE"),
        ("SELECT count(*) FROM trades WINDOW ROWS ^0 SLIDE 3 ON ts", "HDL-204", "one row"),
        ("SELECT count(*) FROM trades WINDOW ROWS 9 SLIDE ^0 ON ts", "HDL-204", "one row"),
        ("SELECT count(*) FROM trades WINDOW ROWS ^1.5 SLIDE 3 ON ts", "HDL-204", "one row"),
        ("SELECT count(*) FROM trades WINDOW ROWS ^1e3 SLIDE 3 ON ts", "HDL-204", "one row"),
        ("SELECT count(*) FROM trades WINDOW ROWS ^-9 SLIDE 3 ON ts", "HDL-107", "ROWS 10000"),
        ("SELECT count(*) FROM trades WINDOW ROWS ^'9' SLIDE 3 ON ts", "HDL-107", "ROWS 10000"),
        ("SELECT count(*) FROM trades WINDOW ROWS 9 SLIDE ^'1 hour' ON ts", "HDL-107", "ROWS 10000"),
        ("SELECT count(*) FROM trades WINDOW ROWS ^10000001 SLIDE 10000 ON ts", "HDL-307", ""),
        ("SELECT count(*) FROM trades WINDOW ROWS ^99999999999999999999 SLIDE 1 ON ts", "HDL-204", ""),
        ("SELECT count(*) FROM trades WINDOW ROWS 1441 SLIDE ^1 ON ts", "HDL-308", "2 rows"),
        ("SELECT count(*) FROM trades WINDOW ROWS 9 SLIDE 3 ON ^qty", "HDL-205", "ON ts"),
        ("SELECT count(*) FROM trades WINDOW ROWS 9 SLIDE 3 PARTITION BY ^symbol ON ts", "HDL-219", "GROUP BY symbol"),
        (
            "SELECT count(*) FROM trades WINDOW ROWS 9 SLIDE 3 PARTITION BY symbol, ^day ON ts GROUP BY symbol",
            "HDL-219",
            "GROUP BY day",
        ),
        ("SELECT count(*) FROM trades WINDOW ROWS 9 SLIDE 3 PARTITION BY ^symbl ON ts", "HDL-202", "symbol"),
        ("SELECT count(*) FROM trades WINDOW ROWS 9 SLIDE 3 PARTITION BY ^5 ON ts", "HDL-107", "ROWS 10000"),
        ("SELECT count(*) FROM trades WINDOW ROWS 9 SLIDE 3 PARTITION BY symbol ^day ON ts", "HDL-107", "ROWS 10000"),
        ("SELECT count(*) FROM trades WINDOW ROWS 9 SLIDE 3 PARTITION BY symbol ^ON", "HDL-107", "ROWS 10000"),
    ],
)
def test_mistakes_are_coded_positioned_and_say_what_to_do(marked: str, code: str, hint: str) -> None:
    marked = marked.replace("{w}", WINDOW)
    prefix = "-- name: other\nSELECT count(*) FROM trades " + WINDOW + ";\n\n-- name: bad\n  "
    result = parse(prefix + marked.replace("^", "", 1), STREAMS, "w.sql")
    assert [query.name for query in result.queries] == ["other"]
    diagnostic = result.diagnostics[0]
    assert (diagnostic.code, diagnostic.file, diagnostic.line, diagnostic.query) == (code, "w.sql", 5, "bad")
    if "AS count" not in marked:
        assert diagnostic.column == marked.index("^") + 3
    assert hint in diagnostic.hint


@pytest.mark.parametrize(
    "text",
    [
        f"WITH t AS (SELECT 1) SELECT count(*) FROM t {WINDOW}",
        f"SELECT count(*) FROM (SELECT * FROM trades) {WINDOW}",
        f"SELECT count(*) FROM trades {WINDOW} WHERE qty IN (SELECT 1)",
        f"SELECT count(*) FROM trades {WINDOW} WHERE EXISTS (SELECT 1)",
        f"SELECT count(*) FROM trades {WINDOW} UNION ALL SELECT 1",
        f"SELECT count(*) FROM trades, trades {WINDOW}",
        f"SELECT count(*) FROM trades JOIN trades USING (qty) {WINDOW}",
        f"SELECT count(*) FROM trades LATERAL VIEW explode(qty) {WINDOW}",
        f"SELECT count(*) FROM trades AS t {WINDOW}",
        f"SELECT count(*) FROM text.`/etc/passwd` {WINDOW}",
        f"SELECT count(*) FROM range(10) {WINDOW}",
        f"SELECT count(*) FROM trades TABLESAMPLE (3 ROWS) {WINDOW}",
        f"SELECT count(*) FROM trades VERSION AS OF 3 {WINDOW}",
        f"SELECT /*+ BROADCAST(trades) */ count(*) FROM trades {WINDOW}",
        f"SELECT DISTINCT count(*) FROM trades {WINDOW}",
        f"SELECT * FROM trades {WINDOW}",
        f"SELECT TRANSFORM(qty) USING 'sh' AS b FROM trades {WINDOW}",
        f"SELECT count(*) FROM trades {WINDOW} GROUP BY symbol ORDER BY sum(qty) FILTER LIMIT 3",
        f"SELECT count(*) FROM trades {WINDOW} GROUP BY symbol ORDER BY ALL LIMIT 3",
        f"SELECT sum(qty) OVER (PARTITION BY symbol) FROM trades {WINDOW}",
        f"SELECT sum(count(*) FILTER (WHERE ok)) FROM trades {WINDOW}",
        f"SELECT sum(CASE WHEN ok THEN 1) FROM trades {WINDOW}",
        f"SELECT sum(CASE END) FROM trades {WINDOW}",
        f"SELECT sum(CAST(qty AS array<int>)) FROM trades {WINDOW}",
        f"SELECT sum(CAST(qty AS decimal(decimal(3)))) FROM trades {WINDOW}",
        f"SELECT count(*) FROM trades {WINDOW} GROUP BY 2",
        f"SELECT count(*) FROM trades {WINDOW} GROUP BY 1",
        f"SELECT count(*) FROM trades {WINDOW} GROUP BY price * 2",
        f"SELECT count(*) FROM trades {WINDOW} WHERE reflect('java.lang.System', 'exit', 1) = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE java_method('java.lang.System', 'exit', 1) = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE symbol = '${{env:HOME}}'",
        f"SELECT count(*) FROM trades {WINDOW} WHERE ${{env:HOME}} = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE {{{{ x }}}} = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE int(price) = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE symbol LIKE 'a' ESCAPE '!'",
        f"SELECT count(*) FROM trades {WINDOW} WHERE symbol ILIKE 'a'",
        f"SELECT count(*) FROM trades {WINDOW} WHERE symbol LIKE ANY ('a')",
        f"SELECT count(*) FROM trades {WINDOW} WHERE symbol = 'a' 'b'",
        f"SELECT count(*) FROM trades {WINDOW} WHERE qty <=> 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE qty & 2 = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE ok IS TRUE",
        f"SELECT count(*) FROM trades {WINDOW} WHERE ts > current_timestamp()",
        f"SELECT count(*) FROM trades {WINDOW} WHERE ts > ts - INTERVAL 1 DAY",
        f"SELECT count(*) FROM trades {WINDOW} WHERE a.b.c.d = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE qty[ts] = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE exists(qty, x -> x)",
        f"SELECT count(*) FROM trades {WINDOW} WHERE (qty, qty) = (1, 1)",
        f"SELECT count(*) FROM trades {WINDOW} WHERE qty = ?",
        f"SELECT count(*) FROM trades {WINDOW} WHERE qty = :x",
        f"SELECT count(*) FROM trades {WINDOW} WHERE X'1F' = 1",
        f"SELECT count(*) FROM trades {WINDOW} QUALIFY ok",
        f"SELECT count(*) FROM trades {WINDOW} SORT BY qty",
        f"SELECT count(*) FROM trades {WINDOW} CLUSTER BY qty",
        f"SELECT count(*) FROM trades {WINDOW} HAVING reflect('java.lang.System', 'exit', 1) = 1",
        f"SELECT count(*) FROM trades {WINDOW} HAVING count(*) > (SELECT 1)",
        f"SELECT count(*) FROM trades {WINDOW} HAVING max(symbol) > '${{env:HOME}}'",
        f"SELECT median(price, array(0.5, 0.9)) FROM trades {WINDOW}",
        f"SELECT percentile(price, CAST('0.5' AS DOUBLE)) FROM trades {WINDOW}",
        f"SELECT percentile(price, ${{x}}) FROM trades {WINDOW}",
        f"SELECT max_by(struct(qty, price), price) FROM trades {WINDOW}",
        f"SELECT top_k(symbol, k => 3) FROM trades {WINDOW}",
        f"SELECT any(SELECT 1) FROM trades {WINDOW}",
        f"SELECT first(qty) OVER (PARTITION BY symbol ORDER BY ts) FROM trades {WINDOW}",
        f"SELECT mode() WITHIN GROUP (ORDER BY qty DESC) FROM trades {WINDOW}",
        f"SELECT `median`(qty) FROM trades {WINDOW}",
        f"SELECT trades.median(qty) FROM trades {WINDOW}",
        f"SELECT collect_list(qty) FROM trades {WINDOW}",
        "INSERT INTO trades SELECT 1",
        "SET spark.x = 1",
        "SELECT 1",
        "EXPLAIN SELECT 1",
    ],
)
def test_everything_outside_the_language_is_refused(text: str) -> None:
    result = parse(text + ";\nSELECT count(*) FROM trades " + WINDOW, STREAMS, "w.sql")
    assert [query.name for query in result.queries] == ["w_2"]
    expected = ("HDL-101", "HDL-102", "HDL-103", "HDL-104", "HDL-201", "HDL-206", "HDL-214", "HDL-215", "HDL-217")
    assert all(diagnostic.code in expected for diagnostic in result.diagnostics)
    assert all(diagnostic.line == 1 and diagnostic.column >= 1 for diagnostic in result.diagnostics)


# ------------------------------------------------------------------------------------------- refresh bounds
def bound(window: str, before: str = "", step: int = 60 * SECOND) -> ParseResult:
    streams = {name: replace(stream, step=step) for name, stream in STREAMS.items()}
    return parse(f"{before}\nSELECT sum(qty) AS q FROM trades WINDOW {window} ON ts", streams, "w.sql")


def test_a_refresh_bound_is_kept_in_steps_of_the_stream() -> None:
    minute = 60 * SECOND
    (query,) = bound("RANGE '1 hour' SLIDE AT MOST '10 minutes'").queries
    assert query.window == Window(60 * minute, minute, at_most=10 * minute)
    assert query.window.period == 10 * minute and query.window.overlap_factor == 6
    # an upper bound is kept by the multiple of the step below it
    (query,) = bound("RANGE '1 hour' SLIDE AT MOST '11 minutes'", step=5 * minute).queries
    assert query.window == Window(60 * minute, 5 * minute, at_most=10 * minute)
    (query,) = bound("RANGE '1 hour' SLIDE at most '1 minute' ENDING '1 day' AGO").queries
    assert query.window == Window(60 * minute, minute, DAY, at_most=minute)
    assert from_json(to_json(query)) == query
    # the bound is part of what is asked, so of the fingerprint
    (longer,) = bound("RANGE '1 hour' SLIDE AT MOST '2 minutes' ENDING '1 day' AGO").queries
    assert query.fingerprint != longer.fingerprint


@pytest.mark.parametrize(
    ("window", "step", "code", "where"),
    [
        ("RANGE '1 hour' SLIDE AT MOST '59 seconds'", 60, "HDL-224", "'59"),
        ("RANGE '90 seconds' SLIDE AT MOST '1 minute'", 60, "HDL-225", "'90"),
        ("RANGE '1 minute' SLIDE AT MOST '1 hour'", 3600, "HDL-225", "'1 minute"),
        ("RANGE '1 hour' SLIDE AT '1 minute'", 60, "HDL-107", "'1 minute"),
        ("RANGE '1 hour' SLIDE AT MOST 5", 60, "HDL-107", "5 ON"),
        ("RANGE '10 days' SLIDE AT MOST '1 minute'", 60, "HDL-308", "'1 minute"),
        ("ROWS 10 SLIDE AT MOST 3", 60, "HDL-107", "AT MOST"),
    ],
)
def test_bad_bounds_are_refused_where_they_stand(window: str, step: int, code: str, where: str) -> None:
    parsed = bound(window, step=step * SECOND)
    assert not parsed.queries
    column = f"SELECT sum(qty) AS q FROM trades WINDOW {window} ON ts".index(where) + 1
    assert [(error.code, error.line, error.column) for error in parsed.errors] == [(code, 2, column)]


def test_a_lifetime_is_told_before_the_query() -> None:
    window = "RANGE '1 hour' SLIDE AT MOST '10 minutes'"
    (query,) = bound(window, "-- until: 2026-03-01T12:00:00+01:00").queries
    assert query.until == 1772362800 * SECOND
    assert bound(window, "-- until: 2026-03-01").queries[0].until == 1772323200 * SECOND
    assert query.fingerprint == bound(window, "-- until: 2026-03-01 11:00:00").queries[0].fingerprint
    assert query.fingerprint != bound(window).queries[0].fingerprint


@pytest.mark.parametrize("line", ["until: tomorrow", "until:", "until: 2026-03-01\n-- until: 2026-03-02"])
def test_a_lifetime_that_is_none_is_refused(line: str) -> None:
    parsed = bound("RANGE '1 hour' SLIDE AT MOST '10 minutes'", f"-- {line}")
    assert not parsed.queries and [error.code for error in parsed.diagnostics] == ["HDL-109"]


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        *((line, True) for line in ("-- asset", "--asset", "-- ASSET  ", "-- asset\r", "-- Asset:YES")),
        *((line, False) for line in ("-- asset: no", "-- asset prices", "-- assets", "-- assets: yes", "/* asset */")),
    ],
)
def test_an_asset_is_asked_for_before_the_query_and_changes_no_answer(line: str, asked: bool) -> None:
    window = "RANGE '1 hour' SLIDE AT MOST '10 minutes'"
    (query,) = bound(window, line).queries
    (plain,) = bound(window).queries
    assert query.asset is asked and query == replace(plain, asset=asked)
    assert query.fingerprint == plain.fingerprint and query.definition == plain.definition
    assert from_json(to_json(query)) == query and ("asset" in to_json(query)) is asked


@pytest.mark.parametrize(
    ("lines", "at", "message"),
    [
        ("-- asset: maybe", (1, 1), "'maybe' is no asset"),
        ("-- owner: desk\n  -- asset: true", (2, 3), "'true' is no asset"),
        ("-- asset:", (1, 1), "is no asset"),
        ("-- asset\n-- asset: yes", (2, 1), "a second asset for one query"),
    ],
)
def test_an_asset_that_is_none_is_refused_where_it_stands(lines: str, at: tuple[int, int], message: str) -> None:
    parsed = bound("RANGE '1 hour' SLIDE AT MOST '10 minutes'", lines)
    (error,) = parsed.diagnostics
    assert not parsed.queries and (error.code, error.line, error.column) == ("HDL-109", *at)
    assert message in error.message
    assert "second" in message or error.hint == "yes or no; `-- asset` alone says yes"


def test_rows_have_no_lifetime() -> None:
    parsed = bound("ROWS 10 SLIDE 3", "-- until: 2026-03-01")
    assert not parsed.queries and [(error.code, error.line) for error in parsed.diagnostics] == [("HDL-109", 2)]


# ------------------------------------------------------------------------------------------ event sequences
def test_a_pattern_is_read_before_or_behind_the_window() -> None:
    clauses = ["PATTERN SEQ(Oak, 'Main St', Oak) ON symbol PARTITION BY qty, volume", WINDOW]
    for first, second in (clauses, clauses[::-1]):
        query = read(f"SELECT day, count(*) AS n FROM trades {first} {second} WHERE qty > 0 GROUP BY day")
        assert query.pattern == Pattern(("Oak", "Main St", "Oak"), "symbol", ("day", "qty", "volume"))
        assert query.group_by == (("day", DATE),) and query.filter is not None
        assert query.columns() == ["day", "qty", "symbol", "volume"]
        assert from_json(to_json(query)) == query
    assert read(f"SELECT count(*) FROM trades {WINDOW}").pattern is None


def test_event_types_of_an_integer_column() -> None:
    query = read(f"SELECT count(*) AS n, count(`1`) AS m FROM trades PATTERN SEQ(1, 02) ON qty {WINDOW}")
    assert query.pattern == Pattern(("1", "2"), "qty", ())
    assert [output.event for output in query.outputs] == [None, "1"]


def test_types_are_absent_between_two_events() -> None:
    def pattern_of(written: str) -> Pattern:
        return read(f"SELECT count(*) FROM trades PATTERN SEQ({written}) ON symbol {WINDOW}").sequence

    pattern = pattern_of("A, NOT C, not 'B 1', NOT C, B, A, NOT A, B")
    assert pattern == Pattern(("A", "B", "A", "B"), "symbol", (), (("B 1", "C"), (), ("A",)))
    assert str(pattern) == "SEQ(A, NOT B 1, NOT C, B, A, NOT A, B)" and pattern.types == {"A", "B", "B 1", "C"}
    assert from_json(to_json(pattern)) == pattern
    assert pattern_of("A, B").absent == () and "absent" not in to_json(pattern_of("A, B"))
    # a type may be called NOT
    assert pattern_of("NOT, 'NOT', A, `NOT`, NOT").events == ("NOT", "NOT", "A", "NOT", "NOT")
    assert pattern_of("A, NOT NOT, B").absent == (("NOT",),)
    query = read(f"SELECT count(*) AS n FROM trades PATTERN SEQ(1, NOT 02, 3) ON qty {WINDOW}")
    assert query.sequence.absent == (("2",),)
    with pytest.raises(ValueError, match="between two events"):
        Pattern(("A", "B"), "symbol", (), ((), ()))


def test_aggregates_of_sequences_and_their_types() -> None:
    query = read(
        "SELECT count(*), count(A), count(A.price), sum(A.qty), sum(B.fee) AS f, sum(A.price), avg(B.qty), avg(B.fee), "
        "min(A.day), max(B.ts), max(A.fee), sum(A.qty + 1) AS e FROM trades "
        f"PATTERN SEQ(A, B) ON symbol {WINDOW}"
    )
    described_outputs = [(output.name, output.event, str(output.type)) for output in query.outputs]
    assert described_outputs == [
        ("count", None, "decimal(38,0)"),
        ("count_A", "A", "decimal(38,0)"),
        ("count_A_price", "A", "decimal(38,0)"),
        ("sum_A_qty", "A", "decimal(38,0)"),
        ("f", "B", "decimal(38,2)"),
        ("sum_A_price", "A", "double"),
        ("avg_B_qty", "B", "double"),
        ("avg_B_fee", "B", "decimal(14,6)"),
        ("min_A_day", "A", "date"),
        ("max_B_ts", "B", "timestamp"),
        ("max_A_fee", "A", "decimal(10,2)"),
        ("e", "A", "decimal(38,0)"),
    ]


def test_funnels_count_keys_by_steps() -> None:
    query = read(
        "SELECT day, reached(1) AS seen, REACHED(( 3 )), reached(3) / reached(1) AS share FROM trades "
        f"PATTERN SEQ(A, B, A) ON symbol {WINDOW} GROUP BY day HAVING reached(2) >= 5"
    )
    seen, bought, share = query.outputs
    assert [(seen.name, seen.parameter), (bought.name, bought.parameter)] == [("seen", 1), ("reached_3", 3)]
    assert seen.type == bought.type == LONG and [part.parameter for part in share.parts] == [3, 1]
    assert query.steps == (1, 2, 3) and from_json(to_json(query)) == query
    assert read(f"SELECT count(*) FROM trades PATTERN SEQ(A) ON symbol {WINDOW}").steps == ()
    outside = parse(f"SELECT reached(1) FROM trades {WINDOW}", STREAMS, "w.sql").errors
    assert [(error.code, "PARTITION BY" in error.hint) for error in outside] == [("HDL-222", True)]


def test_thresholds_on_sequences() -> None:
    text = (
        f"SELECT count(*) AS n FROM trades PATTERN SEQ(A, B) ON symbol {WINDOW} HAVING n > 10 AND max(A.price) >= 1.5"
    )
    query = read(text)
    assert [
        (threshold.output.function, threshold.output.event, threshold.comparison) for threshold in query.having
    ] == [
        ("count", None, ">"),
        ("max", "A", ">="),
    ]


@pytest.mark.parametrize(
    ("marked", "code", "hint"),
    [
        ("SELECT count(*) FROM trades PATTERN SEQ(^) ON symbol {w}", "HDL-107", "SEQ(A, B, C)"),
        ("SELECT count(*) FROM trades PATTERN SEQ(A ^B) ON symbol {w}", "HDL-107", "SEQ(A, B, C)"),
        ("SELECT count(*) FROM trades PATTERN SEQ(A, B) ^{w}", "HDL-107", "ON <type column>"),
        ("SELECT count(*) FROM trades PATTERN SEQ(NOT ^A, B) ON symbol {w}", "HDL-220", "SEQ(A, NOT B, C)"),
        ("SELECT count(*) FROM trades PATTERN SEQ(A, B, NOT ^C) ON symbol {w}", "HDL-220", "SEQ(A, NOT B, C)"),
        ("SELECT count(*) FROM trades PATTERN SEQ(A, NOT B ^C, D) ON symbol {w}", "HDL-107", "SEQ(A, B, C)"),
        ("SELECT count(*) FROM trades PATTERN SEQ(A, NOT ^7, D) ON symbol {w}", "HDL-221", "quote it"),
        (f"SELECT count(*) FROM trades PATTERN ^SEQ(A, {'NOT C, ' * 63}B) ON symbol {{w}}", "HDL-220", "split"),
        ("SELECT count(*) FROM trades PATTERN SEQ(A) ON symbol ^PATTERN SEQ(B) ON symbol {w}", "HDL-107", ""),
        ("SELECT count(*) FROM trades PATTERN SEQ(A) ON symbol ^price {w}", "HDL-101", "WHERE"),
        ("SELECT count(*) FROM trades PATTERN SEQ(A) ON ^symbl {w}", "HDL-202", "did you mean symbol?"),
        ("SELECT count(*) FROM trades PATTERN SEQ(A) ON symbol PARTITION BY ^qyt {w}", "HDL-202", "did you mean qty?"),
        ("SELECT count(*) FROM trades PATTERN SEQ(A) ON symbol PARTITION BY ^ts {w}", "HDL-206", "integer"),
        ("SELECT count(*) FROM trades PATTERN SEQ(A) ON symbol PARTITION BY ^price {w}", "HDL-206", "integer"),
        ("SELECT count(*) FROM trades PATTERN SEQ(A) ON ^price {w}", "HDL-221", "what an event is"),
        ("SELECT count(*) FROM trades PATTERN SEQ(^7) ON symbol {w}", "HDL-221", "quote it"),
        ("SELECT count(*) FROM trades PATTERN SEQ(^A) ON qty {w}", "HDL-221", "SEQ(1, 2, 3)"),
        ("SELECT count(*) FROM trades PATTERN ^SEQ(A) ON symbol WINDOW ROWS 5 SLIDE 5 ON ts", "HDL-220", "RANGE"),
        (f"SELECT count(*) FROM trades PATTERN ^SEQ({'A, ' * 64}B) ON symbol {{w}}", "HDL-220", "split"),
        ("SELECT sum(^price) FROM trades PATTERN SEQ(A) ON symbol {w}", "HDL-222", "write A.price"),
        ("SELECT count(^price) FROM trades PATTERN SEQ(A) ON symbol {w}", "HDL-222", "write A.price"),
        ("SELECT sum(A.price * ^B.price) FROM trades PATTERN SEQ(A, B) ON symbol {w}", "HDL-222", "one by one"),
        ("SELECT sum(^1) FROM trades PATTERN SEQ(A) ON symbol {w}", "HDL-222", "write sum(A.x)"),
        ("SELECT ^median(A.price) FROM trades PATTERN SEQ(A) ON symbol {w}", "HDL-222", "count, sum"),
        ("SELECT ^max(A.symbol) FROM trades PATTERN SEQ(A) ON symbol {w}", "HDL-203", ""),
        ("SELECT ^count(DISTINCT qty) FROM trades PATTERN SEQ(A, B) ON symbol {w}", "HDL-222", "reached(2) counts"),
        ("SELECT ^reached(1) FROM trades PATTERN SEQ(A) ON symbol {w}", "HDL-222", "PARTITION BY"),
        ("SELECT reached(^0) FROM trades PATTERN SEQ(A, B) ON symbol PARTITION BY qty {w}", "HDL-222", "to reached(2)"),
        ("SELECT reached(^3) FROM trades PATTERN SEQ(A, B) ON symbol PARTITION BY qty {w}", "HDL-222", "to reached(2)"),
        ("SELECT reached(^1.0) FROM trades PATTERN SEQ(A) ON symbol PARTITION BY qty {w}", "HDL-222", "reached(1)"),
        ("SELECT reached(^A) FROM trades PATTERN SEQ(A) ON symbol PARTITION BY qty {w}", "HDL-222", "reached(1)"),
        ("SELECT ^reached() FROM trades PATTERN SEQ(A) ON symbol PARTITION BY qty {w}", "HDL-104", "reached(step)"),
        ("SELECT sum(^A.pric) FROM trades PATTERN SEQ(A) ON symbol {w}", "HDL-202", "did you mean price?"),
        ("SELECT count(*) FROM trades PATTERN SEQ(A) ON symbol {w} WHERE ^A.price > 1", "HDL-202", "trades.price"),
    ],
)
def test_mistakes_in_sequences(marked: str, code: str, hint: str) -> None:
    marked = marked.replace("{w}", WINDOW)
    at = marked.index("^")
    result = parse(marked.replace("^", "", 1), STREAMS, "w.sql")
    (diagnostic,) = result.diagnostics
    assert (diagnostic.code, diagnostic.column) == (code, at + 1)
    assert hint in diagnostic.hint and result.queries == ()


def test_an_event_type_that_no_sequence_has_is_warned_of() -> None:
    text = f"SELECT count(Oka) AS n, sum(Elm.price) AS s FROM trades PATTERN SEQ(Oak, Main) ON symbol {WINDOW}"
    result = parse(text, STREAMS, "w.sql")
    assert [output.event for output in result.queries[0].outputs] == ["Oka", "Elm"]
    assert [(diagnostic.code, diagnostic.severity) for diagnostic in result.diagnostics] == [("HDL-223", "warning")] * 2
    assert result.diagnostics[0].hint == "did you mean Oak?"


def test_several_mistakes_are_reported_at_once() -> None:
    text = "SELECT avg(a), sum(b) FROM trades WINDOW RANGE '0 s' SLIDE '1 s' ON ts WHERE c GROUP BY price"
    assert sorted(codes(text.replace(" s'", " seconds'"))) == ["HDL-202"] * 3 + ["HDL-204", "HDL-206"]


def test_mistakes_in_having_and_with_are_reported_with_the_others() -> None:
    text = f"SELECT avg(a), median(qty) AS m FROM trades {WINDOW} HAVING b > 1 AND m > 'x' AND m WITH (error = 7)"
    assert codes(text) == ["HDL-216", "HDL-202", "HDL-202", "HDL-203", "HDL-217"]


def test_a_refused_group_by_is_not_blamed_on_the_window_too() -> None:
    assert codes("SELECT count(*) FROM trades WINDOW ROWS 9 SLIDE 3 PARTITION BY day ON ts GROUP BY nope, day") == [
        "HDL-202"
    ]


def test_a_slide_beyond_the_range_in_rows_is_answered_with_a_warning() -> None:
    result = parse("SELECT count(*) FROM trades WINDOW ROWS 3 SLIDE 5 ON ts", STREAMS)
    assert result.queries[0].window == Window(3, 5, 0, ()) and result.errors == ()
    assert result.diagnostics[0].code == "HDL-210" and "(5 rows)" in result.diagnostics[0].message


def test_a_slide_beyond_the_range_is_answered_with_a_warning() -> None:
    result = parse("SELECT count(*) FROM trades WINDOW RANGE '1 minute' SLIDE '1 hour' ON ts", STREAMS)
    assert result.queries[0].window == Window(60 * SECOND, 3600 * SECOND) and result.errors == ()
    assert result.diagnostics[0].severity == "warning" and "[k*slide, k*slide + range)" in result.diagnostics[0].hint


# ---------------------------------------------------------------------------------------------- recovery
def test_unclosed_quotes_and_comments_cost_only_their_own_query() -> None:
    good = f"SELECT count(*) FROM trades {WINDOW}"
    text = (
        f"{good} WHERE symbol = 'NYSE;\n{good};\n"
        f'{good} WHERE symbol = "x\n-- name: third\n{good};\n'
        f"/* -- name: inside\n{good}; */ {good};\n"
        f"{good} /* no end\n-- name: last\n{good} WHERE symbol = '; -- /* '"
    )
    result = parse(text, STREAMS, "w.sql")
    assert [query.name for query in result.queries] == ["w_2", "third", "w_5", "last"]
    assert [(diagnostic.code, diagnostic.line) for diagnostic in result.diagnostics] == [
        ("HDL-108", 1),
        ("HDL-108", 3),
        ("HDL-108", 8),
    ]
    assert result.queries[-1].filter == Call("=", (Column("symbol"), Literal("; -- /* ", STRING)))


def test_positions_count_lines_and_characters_in_the_file() -> None:
    diagnostics = parse(f"\n\n/* ä\n */ SELECT\n  'é', summ(qty)\nFROM trades {WINDOW}", STREAMS, "w.sql").diagnostics
    assert [(d.line, d.column) for d in diagnostics] == [(5, 3), (5, 8)]


def test_bad_and_duplicate_names() -> None:
    good = f"SELECT count(*) FROM trades {WINDOW};\n"
    text = f"-- name: a\n{good}-- name: a\n{good}-- name: b c\n{good}-- name: d\n-- name: e\n{good}"
    result = parse(text, STREAMS, "w.sql")
    assert [query.name for query in result.queries] == ["a"]
    assert [(d.code, d.line) for d in result.diagnostics] == [("HDL-209", 4), ("HDL-109", 5), ("HDL-109", 8)]


def test_clauses_that_are_not_allowed_are_told_together() -> None:
    text = f"SELECT count(*) AS n FROM trades {WINDOW} QUALIFY n > 1 OFFSET 3"
    diagnostics = parse(text, STREAMS).diagnostics
    assert [(diagnostic.code, diagnostic.message.split(" is ")[0]) for diagnostic in diagnostics] == [
        ("HDL-103", "QUALIFY"),
        ("HDL-103", "OFFSET"),
    ]


@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize("case", (str.lower, str.upper, str.title))
def test_no_column_of_a_query_is_named_as_those_of_answers_are(name: str, case: Callable[[str], str]) -> None:
    """As an output, as a group column, as the alias of one; under another name each of them may be read."""
    name = case(name)
    schema = (("ts", TIMESTAMP), (name, LONG), ("v", LONG))
    streams = {"s": Stream("s", Source("csv", "x"), schema, "ts")}
    refused = (
        f"SELECT sum(v) AS {name} FROM s {WINDOW}",
        f"SELECT {name}, sum(v) AS x FROM s {WINDOW} GROUP BY {name}",
        f"SELECT sum(v) AS x FROM s {WINDOW} GROUP BY {name}",
        f"SELECT v AS {name}, count(*) AS x FROM s {WINDOW} GROUP BY v",
        f"SELECT {name} AS {name}, count(*) AS x FROM s {WINDOW} GROUP BY {name}",
    )
    for text in refused:
        parsed = parse(text, streams)
        assert [diagnostic.code for diagnostic in parsed.diagnostics] == ["HDL-208"] and not parsed.queries, text
        assert f" AS its_{name.lower()}" in parsed.diagnostics[0].hint
    written = f"SELECT {name} AS its_{name.lower()}, sum({name}) AS x FROM s {WINDOW} WHERE {name} > 1 GROUP BY {name}"
    parsed = parse(written, streams)
    assert not parsed.diagnostics and parsed.queries[0].select == (f"its_{name.lower()}",)


def test_queries_over_a_stream_that_cannot_be_read_are_told_of_once(tmp_path: Path) -> None:
    broken_query, other = (f"SELECT count(*) FROM {stream} {WINDOW};\n" for stream in ("Broken", "trades"))
    (tmp_path / "a.sql").write_text(broken_query * 30 + other)
    (tmp_path / "b.sql").write_text(broken_query * 30)
    workload, diagnostics = load_workload(sorted(tmp_path.glob("*.sql")), STREAMS, unreadable=("broken",))
    assert len(workload.queries) == 1
    (diagnostic,) = diagnostics
    assert (diagnostic.code, diagnostic.line, diagnostic.query) == ("HDL-122", 1, "")
    assert diagnostic.message == "stream broken cannot be read: 60 queries over it left out"


def test_folders_and_patterns_name_files(tmp_path: Path) -> None:
    for name in ("b.sql", "a.sql", "[x].sql", "notes.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "empty").mkdir()
    names = [
        path.name for path in workload_files([tmp_path, tmp_path / "[x].sql", tmp_path / "?.sql", tmp_path / "*.txt"])
    ]
    assert names == ["[x].sql", "a.sql", "b.sql", "notes.txt"]
    for nothing in ("empty", "none.sql", "*.csv"):
        with pytest.raises(HeddleError, match="HDL-111"):
            workload_files([tmp_path / nothing])


def test_files_make_one_workload(tmp_path: Path) -> None:
    good = f"SELECT count(*) FROM trades {WINDOW};\n"
    (tmp_path / "a.sql").write_text(f"-- name: x\n{good}")
    (tmp_path / "b.sql").write_text(f"{good}\n-- name: x\n{good}")
    (tmp_path / "c.sql").write_bytes(b"\xff\xff")
    files = [tmp_path / name for name in ("a.sql", "b.sql", "c.sql", "none.sql")]
    workload, diagnostics = load_workload(files, STREAMS)
    assert [query.name for query in workload.queries] == ["x", "b_1"]
    assert {stream.name for stream in workload.streams} == {"trades", "unread"}
    assert [d.code for d in diagnostics] == ["HDL-209", "HDL-111", "HDL-111"]
    assert (diagnostics[0].file, diagnostics[0].line) == (str(files[1]), 4)


# ----------------------------------------------------------------------------------------------- limits
@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("(" * 3000 + "ok" + ")" * 3000, "HDL-302"),
        ("(" * 500 + "ok" + ")" * 500, "HDL-303"),
        (" AND ".join(["ok"] * 20_000), "HDL-301"),
        (" OR ".join(["ok"] * 1200), "HDL-304"),
        ("NOT " * 1500 + "ok", "HDL-303"),
        ("qty = " + "- " * 1500 + "1", "HDL-303"),
        ("qty = " + " + ".join(["qty"] * 900), "HDL-303"),
        ("qty " + "IS NULL " * 400, "HDL-303"),
        ("abs(" * 100 + "qty" + ")" * 100 + " = 1", "HDL-303"),
        ("(NOT " * 20 + "ok" + ")" * 20, "HDL-303"),
        ("qty = CAST(1 AS " + "array<" * 1000 + ")", "HDL-103"),
        ("qty = " + "array<" * 1000, "HDL-303"),
        ("qty IN (" + ", ".join(["1"] * 1200) + ")", "HDL-304"),
        ("symbol = '" + "x" * 300 + "'", "HDL-305"),
        ("qty = " + "1" * 100, "HDL-305"),
        ("`" + "x" * 300 + "` = 1", "HDL-305"),
    ],
)
@pytest.mark.timeout(30)
def test_hostile_conditions_are_refused_at_once(condition: str, code: str) -> None:
    result = where(condition)
    assert [diagnostic.code for diagnostic in result.diagnostics] == [code]


@pytest.mark.parametrize(
    ("tail", "code"),
    [
        ("HAVING " + " AND ".join(["n"] * 1200), "HDL-304"),
        ("HAVING " + " AND ".join(f"sum(qty + {n}) > 1" for n in range(200)), "HDL-310"),
        ("HAVING " + "(" * 500 + "count(*) > 1" + ")" * 500, "HDL-303"),
        ("HAVING " + "NOT " * 1500 + "count(*) > 1", "HDL-303"),
        ("HAVING count(*) > " + "- " * 1500 + "1", "HDL-303"),
        ("HAVING count(*) > " + "1" * 300, "HDL-305"),
        ("WITH (error = 0." + "0" * 300 + "1)", "HDL-305"),
        ("WITH (error = 0." + "0" * 200 + "1)", "HDL-305"),
        ("WITH (error = 1e-999999999)", "HDL-216"),
        ("WITH (error = 0.1) " * 100, "HDL-107"),
        ("WITH (" * 200 + ")" * 200, "HDL-303"),
    ],
)
@pytest.mark.timeout(30)
def test_hostile_clauses_are_refused_at_once(tail: str, code: str) -> None:
    result = parse(f"SELECT median(qty) FROM trades {WINDOW} {tail}", STREAMS, "w.sql")
    assert [diagnostic.code for diagnostic in result.diagnostics] == [code]


@pytest.mark.parametrize(
    ("select", "code"),
    [
        (", ".join(f"count(DISTINCT qty + {n}) AS a{n}" for n in range(200)), "HDL-310"),
        ("max_by(" * 100 + "qty" + ", qty)" * 100, "HDL-303"),
        ("max_by(" * 20 + "qty" + ", qty)" * 20, "HDL-105"),
        ("percentile(qty, " + "1" * 60 + ")", "HDL-305"),
        ("top_k(qty, 1e300)", "HDL-215"),
        ("percentile(qty" + ", 0.5" * 200 + ")", "HDL-104"),
    ],
)
@pytest.mark.timeout(30)
def test_hostile_aggregates_are_refused_at_once(select: str, code: str) -> None:
    assert codes(f"SELECT {select} FROM trades {WINDOW}") == [code]


def test_the_deepest_allowed_nesting_is_parsed() -> None:
    depth = Limits().depth
    expression = filter_of("(" * depth + "ok" + ")" * depth)
    assert expression == Column("ok")
    assert filter_of("coalesce(" * depth + "qty" + ")" * depth + " = 1")


@pytest.mark.parametrize("text", ["/*\n-- name: a\n" * 5_000, "'\n" * 10_000, ";" * 200_000, "-- name: x\n" * 20_000])
@pytest.mark.timeout(60)
def test_splitting_does_not_hang(text: str) -> None:
    assert parse(text, STREAMS).queries == ()


def test_limits_are_settings() -> None:
    text = f"SELECT count(*) AS a, count(*) AS b FROM trades {WINDOW} GROUP BY symbol, day"
    assert parse(text, STREAMS, limits=Limits(outputs=1)).diagnostics[0].code == "HDL-310"
    assert parse(text, STREAMS, limits=Limits(group_columns=1)).diagnostics[0].code == "HDL-309"
    partitioned = f"SELECT count(*) FROM trades PATTERN SEQ(A) ON symbol PARTITION BY qty, volume, fee {WINDOW}"
    assert parse(partitioned, STREAMS, limits=Limits(group_columns=2)).diagnostics[0].code == "HDL-309"
    assert parse(text, STREAMS, limits=Limits(bytes=20)).diagnostics[0].code == "HDL-301"
    assert parse(text, STREAMS, limits=Limits(ratio=11)).diagnostics[0].code == "HDL-308"
    assert parse(text, STREAMS, limits=Limits(ratio=12)).queries
    priced = parse(text, STREAMS, limits=Limits(warned_ratio=11))
    assert [each.code for each in priced.diagnostics] == ["HDL-319"] and priced.queries
    having = text + " HAVING a > 1 AND count(*) < 9 AND sum(qty) > 1"
    diagnostics = parse(having, STREAMS, limits=Limits(outputs=2)).diagnostics
    assert [(d.code, d.column) for d in diagnostics] == [("HDL-310", having.index("HAVING") + 1)]
    assert parse(having, STREAMS, limits=Limits(outputs=3)).queries
    rows = "SELECT count(*) FROM trades WINDOW ROWS 12 SLIDE 1 ON ts"
    assert parse(rows, STREAMS, limits=Limits(rows=11)).diagnostics[0].code == "HDL-307"
    assert parse(rows, STREAMS, limits=Limits(warned_ratio=11)).diagnostics[0].code == "HDL-308"
    assert parse(rows, STREAMS, limits=Limits(rows=12, warned_ratio=12)).queries
    ago = "SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ENDING '2 hours' AGO ON ts"
    assert parse(ago, STREAMS, limits=Limits(range=3600 * SECOND)).diagnostics[0].code == "HDL-307"
    assert parse(ago, STREAMS, limits=Limits(range=7200 * SECOND)).queries


NOISE = """
SELECT FROM WHERE WINDOW RANGE SLIDE ON GROUP BY trades ts qty ok symbol count sum ( ) , * ; = < - + / . ::
[ ] { }
'1 hour' '5 minutes' 'x' 1 2.5 1e3 NOT AND OR IN IS NULL LIKE BETWEEN AS CASE END UNION JOIN WITH HAVING ORDER
LIMIT -- /* */ ' \" ` $ @ ? : | & ^ % ! ~ -> DATE INTERVAL CAST OVER DISTINCT LATERAL VALUES PIVOT
ROWS ENDING AGO PARTITION AT MOST PATTERN SEQ error 0.01 0 TRUE any first median percentile top_k max_by
approx_percentile WITHIN IGNORE NULLS total
"""
WORDS = st.sampled_from(NOISE.split())
PLACES = (
    "{}",
    "SELECT count(*) FROM trades {w} WHERE {}",
    "SELECT {} FROM trades {w}",
    "SELECT {} AS total FROM trades {w} GROUP BY symbol HAVING total > 1",
    "SELECT sum(qty) AS total FROM trades {w} GROUP BY symbol HAVING {}",
    "SELECT sum(qty) / {} FROM trades {w} GROUP BY symbol",
    "SELECT sum(qty) AS total FROM trades {w} GROUP BY symbol ORDER BY {} LIMIT 3",
    "SELECT median(qty) FROM trades {w} WITH ( {}",
    "SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' {} ON ts",
    "SELECT count(*) FROM trades WINDOW ROWS 10 SLIDE {} GROUP BY symbol",
)


def check(query: ACQ) -> None:
    """Everything that a query holds is typed, in range and of the language."""
    assert from_json(to_json(query)) == query
    if query.filter is not None:
        assert type_of(query.filter, SCHEMA) == BOOLEAN
    for output in query.computed:
        aggregate = AGGREGATES[output.function]
        assert output.argument is None or type_of(output.argument, SCHEMA) == output.argument_type
        assert output.by is None or type_of(output.by, SCHEMA) == output.by_type
        assert aggregate.output_type(output.argument_type, output.by_type) == output.type
        if output.parameter is not None:
            aggregate.check_parameter(output.parameter)
        assert output.error is None or (aggregate.sketch and LEAST_RANK_ERROR <= output.error <= MOST_ERROR)
    for output in (*query.outputs, *query.compared):
        if output.function == DERIVED:
            assert output.expression is not None
            assert derived_type(output.expression, {part.name: part.type for part in output.parts}) == output.type
    for condition in query.having:
        sides = [Column(condition.output.name), condition.value]
        assert call_type(condition.comparison, [condition.output.type, condition.value.type], sides) == BOOLEAN
        assert condition.value.value is not None
    assert len({output.name for output in query.outputs}) == len(query.outputs)
    assert set(query.window.per or ()) <= {name for name, _ in query.group_by}


@settings(max_examples=examples(350), deadline=None)
@given(words=st.lists(WORDS, max_size=25), place=st.sampled_from(PLACES))
def test_no_text_raises_and_what_is_read_is_typed(words: list[str], place: str) -> None:
    result = parse(place.replace("{w}", WINDOW).replace("{}", " ".join(words)), STREAMS, "w.sql")
    for query in result.queries:
        check(query)
    for diagnostic in result.diagnostics:
        assert diagnostic.line >= 1 and diagnostic.column >= 1 and diagnostic.message


RIGHT = {
    "a condition": ("ok", "qty > 1", "symbol LIKE 'a%' AND ok"),
    "an integer": ("qty", "volume", "volume * 2"),
    "a number": ("qty", "price", "fee", "qty / 2"),
    "a column": ("qty", "price", "symbol", "ok", "day", "ts", "fee", "NULL"),
    "a double": ("price", "qty / 2"),
    "an integer or a double": ("qty", "price"),
    "an integer or a text": ("qty", "symbol"),
    "an integer, a double or a text": ("qty", "price", "symbol"),
    "a text": ("symbol", "qty", "day", "lower(symbol)"),
    "a timestamp": ("ts", "date_trunc('hour', ts)"),
}
NUMBERS = {
    "separator": ("','", "''", "', ' ORDER BY qty DESC", "'|' ORDER BY ts"),
    "last": ("3", "1000", "1 ORDER BY day"),
    "fraction": ("0.5", "0.990", "1", "5e-1"),
    "k": ("3", "1000"),
    "error": ("0.05", "0.5"),
    "accuracy": ("9", "1e2", "10000"),
    "other": ("qty", "price", "fee", "qty * 2"),
    "fractions": ("array(0.5)", "array(0.5, 0.9)", "ARRAY(1, 0.25, 0.25)"),
    "lgk": ("5", "12", "21"),
    "size": ("8", "200"),
}
WRONG = ("*", "qty", "symbol", "ok", "NULL", "DISTINCT symbol", "a.b", "nope", "0", "-1", "1.5", "'0.5'", "9L", "abs(1")
ROLES = {"value": (), "value+time": (), "value+by": ("by",), "value+fraction": ("fraction",), "value+k": ("k",)}
ROLES |= {"number+number": ("other",), "value+fractions": ("fractions",)}
ROLES |= {"value+lgk": ("lgk",), "value+entries": ("lgk",), "value+size": ("size",)}
ROLES |= {"state": (), "ordered": (), "ordered+k": ("last",), "ordered+separator": ("separator",)}
CALLS = {name: (aggregate.takes, ROLES[aggregate.signature]) for name, aggregate in AGGREGATES.items()}
CALLS |= {"time_while": ("a condition", ()), "rate": ("an integer", ()), "time_weighted_avg": ("an integer", ())}
CALLS |= {
    "approx_count_distinct": ("a column", ("error",)),
    "approx_percentile": ("a number", ("fraction", "accuracy")),
    "percentile_approx": ("a number", ("fraction", "accuracy")),
    "approx_top_k": ("a column", ("k",)),
    "array_agg": ("a column", ("k",)),
}


@st.composite
def calls(draw: st.DrawFn) -> str:
    """A call of an aggregate, now and then with something wrong in it."""
    name = draw(st.sampled_from(sorted(CALLS)))
    takes, roles = CALLS[name]
    arguments = [draw(st.sampled_from(RIGHT[takes]))]
    arguments += [draw(st.sampled_from(NUMBERS.get(role, RIGHT["a column"]))) for role in roles]
    if draw(st.integers(0, 15)) == 0:
        arguments[draw(st.integers(0, len(roles)))] = draw(st.sampled_from(WRONG))
    return f"{name}({', '.join(arguments[: 5 if draw(st.integers(0, 15)) else 1])})"


CONSTANTS = ("10", "-1.5", "1e3", "'x'", "'2013-07-04'", "TRUE", "NULL", "qty", "1 + 1", "date '2013-07-04'")


@st.composite
def thresholds(draw: st.DrawFn) -> str:
    subject = draw(st.one_of(calls(), calls(), st.sampled_from(("a0", "A0", "symbol", "nope", "a0 + 1"))))
    sides = [subject, draw(st.sampled_from(("10", "10", "-1.5", *CONSTANTS)))]
    return f" {draw(st.sampled_from(('=', '<>', '<', '<=', '>', '>=')))} ".join(draw(st.permutations(sides)))


@settings(max_examples=examples(110), deadline=None)
@given(
    outputs=st.lists(calls(), min_size=1, max_size=3),
    having=st.lists(thresholds(), max_size=3),
    glue=st.sampled_from((" AND ", " AND ", " AND ", " OR ")),
    window=st.sampled_from((WINDOW, "WINDOW ROWS 9 SLIDE 3 ON ts", "WINDOW ROWS 9 SLIDE 3 PARTITION BY symbol ON ts")),
    error=st.sampled_from(("", "", " WITH (error = 0.01)", " WITH (error = 0.9)")),
)
def test_queries_of_the_language_are_read_or_refused_where_they_are_wrong(
    outputs: list[str], having: list[str], glue: str, window: str, error: str
) -> None:
    select = ", ".join(f"{output} AS a{number}" for number, output in enumerate(outputs))
    text = f"SELECT {select} FROM trades {window} GROUP BY symbol"
    text += (" HAVING " + glue.join(having) if having else "") + error
    result = parse(text, STREAMS, "w.sql")
    for query in result.queries:
        check(query)
        assert query.fingerprint == parse(text.lower(), STREAMS, "w.sql").queries[0].fingerprint
    assert bool(result.queries) != bool(result.errors)
    for diagnostic in result.errors:
        # behind SELECT: nothing here is wrong with the query as a whole
        assert diagnostic.line == 1 and 8 <= diagnostic.column <= len(text)


# ------------------------------------------------------------------------------------ the real workload
def test_the_flights_workload_parses_without_a_finding() -> None:
    folder = Path(__file__).parents[2] / "dags" / "workload"
    streams, diagnostics = load_streams(folder / "streams.yaml")
    assert diagnostics == ()
    workload, diagnostics = load_workload([folder / "flights.sql"], streams)
    assert diagnostics == ()
    assert 60 <= len(workload.queries) <= 72
    functions = {output.function for query in workload.queries for output in query.outputs}
    assert functions >= {"count", "sum", "avg", "min", "max", "stddev", "variance"}
    assert sum(query.window.range % query.window.slide != 0 for query in workload.queries) >= 5
    groups = {tuple(name for name, _ in query.group_by) for query in workload.queries}
    assert groups >= {(), ("carrier",), ("origin",), ("origin", "dest")}


def test_what_nobody_sees_is_not_allowed() -> None:
    for character in "\u200b\u202e\x00":
        assert codes(f"SELECT count(*) AS n{character} FROM trades {WINDOW}") == ["HDL-119"], repr(character)
