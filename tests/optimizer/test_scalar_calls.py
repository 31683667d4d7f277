"""Functions of single values as queries write them: what is read, and what is refused."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import ParseResult, parse
from optimizer.workload.notation import written
from optimizer.workload.patterns import readable_pattern
from optimizer.workload.scalars import time_format
from optimizer.workload.values import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Literal,
    Source,
    Stream,
    decimal,
)

TRADES = Stream(
    "trades",
    Source("csv", "/x"),
    (
        *(("ts", TIMESTAMP), ("symbol", STRING), ("price", DOUBLE), ("volume", LONG), ("qty", INT)),
        *(("fee", decimal(10, 2)), ("day", DATE), ("ok", BOOLEAN), ("a b", STRING)),
    ),
    "ts",
)


def asked(select: str, tail: str = "") -> ParseResult:
    window = "WINDOW RANGE '1 hour' SLIDE '5 minutes' ON ts"
    return parse(f"SELECT {select} FROM trades {window} {tail}", {"trades": TRADES})


def argument(expression: str) -> str:
    result = asked(f"max({expression}) AS m")
    assert not result.diagnostics, result.diagnostics
    parsed_argument = result.queries[0].outputs[0].argument
    assert parsed_argument is not None
    return written(parsed_argument)


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ("if(ok AND qty > 1, price, NULL)", "CASE WHEN qty >= 2 AND ok THEN price END"),
        ("CASE qty WHEN 1 THEN 'a' ELSE 'b' END", "if(qty = 1, 'a', 'b')"),
        ("nullif(symbol, '')", "CASE WHEN symbol = '' THEN NULL ELSE symbol END"),
        ("ifnull(qty, 0)", "coalesce(qty, 0)"),
        ("nvl(qty, 0)", "coalesce(qty, 0)"),
        ("if(qty IN (1), qty, 0)", "if(1 = qty, qty, 0)"),
        ("CAST(symbol AS bigint)", "symbol::long"),
        ("TRY_CAST(symbol AS decimal(10, 2))", "symbol::decimal(10,2)"),
        ("CAST('2013-07-04' AS date)", "date '2013-07-04'"),
        ("extract(HOUR FROM ts)", "hour(ts)"),
        ("date_part('dow', day)", "dayofweek(day)"),
        ("date_trunc('HOUR', ts)", "date_trunc('hour', ts)"),
        ("timestampdiff(HOURS, ts, day)", "datediff('hour', ts, day)"),
        ("datediff(day, '2013-07-04')", "date_diff(DAY, '2013-07-04', day)"),
        ("left(symbol, 2)", "substring(symbol, 1, 2)"),
        ("right(symbol, 2)", "substr(symbol, -2, 2)"),
        ("symbol || 'x'", "concat(symbol, 'x')"),
        ("qty % 2", "mod(qty, 2)"),
        ("round(fee)", "round(fee, 0)"),
        ("replace(symbol, 'a')", "replace(symbol, 'a', '')"),
        ("symbol RLIKE '^a'", "regexp_like(symbol, '^a')"),
        ("to_date(symbol)", "CAST(symbol AS date)"),
        ("greatest(day, '2013-07-04')", "greatest(day, date '2013-07-04')"),
        ("year('2013-07-04')", "year(timestamp '2013-07-04 00:00:00')"),
    ],
)
def test_the_same_in_other_words(one: str, same: str) -> None:
    assert argument(one) == argument(same)


@pytest.mark.parametrize(
    ("expression", "code", "hint"),
    [
        ("if(qty, 1, 2)", "HDL-203", "compare"),
        ("if(ok, 1, 'a')", "HDL-203", "one type"),
        ("if(ok, 1)", "HDL-104", ""),
        ("CASE WHEN ok THEN 1", "HDL-101", "END"),
        ("CAST(price AS string)", "HDL-203", "decimal"),
        ("CAST(price AS float)", "HDL-203", "double"),
        ("CAST(day AS int)", "HDL-203", "timestamp"),
        ("CAST(qty AS decimal(39, 0))", "HDL-203", "decimal"),
        ("date_trunc('hour', symbol)", "HDL-203", "CAST"),
        ("date_trunc('fortnight', ts)", "HDL-203", "week"),
        ("timestampdiff(FORTNIGHT, ts, day)", "HDL-203", "week"),
        ("timestampdiff(HOUR, ts, symbol)", "HDL-203", "CAST"),
        ("timestampdiff(ts, day)", "HDL-104", ""),
        ("date_trunc(symbol, ts)", "HDL-203", "write the value"),
        ("extract(epoch FROM ts)", "HDL-203", "hour"),
        ("to_timestamp(symbol, 'yyyy-MM')", "HDL-110", "yyyy"),
        ("to_timestamp(symbol, 'EEE yyyy-MM-dd')", "HDL-110", "yyyy"),
        ("substring(symbol, qty)", "HDL-203", "write the value"),
        ("split_part(symbol, '', 1)", "HDL-203", "first"),
        ("symbol || qty", "HDL-203", "CAST"),
        ("regexp_like(symbol, '(?=a)')", "HDL-110", "allowed"),
        ("replace(symbol, 'a', 'aaaaaaaaaaaaaaaaa')", "HDL-203", "8 times"),
        ("replace(replace(symbol, 'a', 'aa'), 'b', 'bb')", "HDL-203", "no other"),
        ("round(volume, -38)", "HDL-211", ""),
        ("mod(symbol, 2)", "HDL-203", ""),
        ("greatest(symbol, 1)", "HDL-203", "one type"),
        ("iif(ok, 1, 2)", "HDL-104", "if"),
    ],
)
def test_what_does_not_fit_is_refused(expression: str, code: str, hint: str) -> None:
    result = asked(f"max({expression}) AS m")
    assert [diagnostic.code for diagnostic in result.diagnostics] == [code]
    assert hint in result.diagnostics[0].hint


# ------------------------------------------------------------------------------------------------ FILTER
def test_a_filter_is_one_more_state_of_the_same_rows() -> None:
    result = asked("count(*) FILTER (WHERE qty > 1) AS a, count_if(qty >= 2) AS b, sum(price) FILTER (WHERE ok) AS c")
    one, two, three = result.queries[0].outputs
    assert (one.function, one.argument) == (two.function, two.argument) == ("count", two.argument)
    assert three.argument == Call("if", (Column("ok"), Column("price"), Literal(None, DOUBLE)))
    (output,) = asked("min_by(symbol, price) FILTER (WHERE ok) AS m").queries[0].outputs
    assert output.argument == Column("symbol")
    assert output.by == Call("if", (Column("ok"), Column("price"), Literal(None, DOUBLE)))
    # a condition that always holds leaves nothing out
    (output,) = asked("sum(qty) FILTER (WHERE true) AS m").queries[0].outputs
    assert output.argument == Column("qty")


def test_having_takes_filters() -> None:
    (query,) = asked("count(*) AS n", "HAVING count(*) FILTER (WHERE ok) > 3 AND count_if(ok) < 9").queries
    assert query.having[0].output.argument == query.having[1].output.argument != query.outputs[0].argument


def test_sequences_take_no_filter() -> None:
    result = asked("count(*) FILTER (WHERE ok) AS n", "PATTERN SEQ(A, B) ON symbol")
    assert [diagnostic.code for diagnostic in result.diagnostics] == ["HDL-222"]


# ---------------------------------------------------------------------------------------------- GROUP BY
@pytest.mark.parametrize(
    ("select", "group", "names"),
    [
        ("date_trunc('day', ts) AS d, count(*)", "date_trunc('day', ts)", ("d",)),
        ("date_trunc('day', ts) AS d, count(*)", "d", ("d",)),
        ("date_trunc('day', ts) AS d, count(*)", "1", ("d",)),
        ("count(*)", "date_trunc('day', ts)", ("date_trunc_day_ts",)),
        ("symbol AS s, count(*)", "s", ("s",)),
        ("symbol AS qty, count(*)", "symbol", ("qty",)),
        ("1 + qty AS n, count(*)", "qty + 1", ("n",)),
        ("count(*)", "(symbol)", ("symbol",)),
        ("count(*), lower(`a b`)", "2", ("lower_a_b",)),
    ],
)
def test_groups_are_columns_expressions_names_and_positions(select: str, group: str, names: tuple[str, ...]) -> None:
    result = asked(select, f"GROUP BY {group}")
    assert not result.diagnostics, result.diagnostics
    (query,) = result.queries
    assert query.select == names
    assert dict(query.derived).keys() == {name for name, _ in query.group_by if TRADES.type_of(name) is None}
    assert set(query.columns()) <= {name for name, _ in TRADES.schema}


def test_a_column_of_the_stream_comes_before_a_name_of_an_output() -> None:
    (query,) = asked("symbol, lower(symbol) AS symbol2, count(*)", "GROUP BY symbol, symbol2").queries
    assert [name for name, _ in query.group_by] == ["symbol", "lower(symbol)"]


@pytest.mark.parametrize(
    ("group", "hint"),
    [
        ("price * 2", "CAST"),
        ("7", "1 to 1"),
        ("n", "columns of the stream"),
        ("'a'", "one group"),
        ("ts", "windows"),
        ("lower(symbol), lower(symbol)", ""),
    ],
)
def test_other_groups_are_refused(group: str, hint: str) -> None:
    result = asked("count(*) AS n", f"GROUP BY {group}")
    assert [diagnostic.code for diagnostic in result.diagnostics] == ["HDL-206"]
    assert hint in result.diagnostics[0].hint


def test_a_group_column_that_has_the_name_of_an_expression_is_not_taken_for_it() -> None:
    stream = Stream("s", Source("csv", "/x"), (("ts", TIMESTAMP), ("x", STRING), ("lower(x)", STRING)), "ts")
    window = "WINDOW RANGE '1 hour' SLIDE '5 minutes' ON ts"
    result = parse(f"SELECT count(*) FROM s {window} GROUP BY lower(x)", {"s": stream})
    assert [diagnostic.code for diagnostic in result.diagnostics] == ["HDL-206"]


@pytest.mark.parametrize("window", ["WINDOW ROWS 10 SLIDE 5 ON ts", "PATTERN SEQ(A, B) ON symbol WINDOW RANGE '1h'"])
def test_rows_and_sequences_group_by_columns(window: str) -> None:
    slide = " SLIDE '1 hour' ON ts" if "SEQ" in window else ""
    text = f"SELECT count(*) FROM trades {window.replace('1h', '1 hour')}{slide} GROUP BY qty + 1"
    assert [diagnostic.code for diagnostic in parse(text, {"trades": TRADES}).diagnostics] == ["HDL-206"]


# ---------------------------------------------------------------------------------- patterns and formats
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("^a.b$", r"^a[^\n]b\z"),
        (r"\d+\.\w\s", r"[0-9]+\.[0-9A-Za-z_][ \t\n\f\r]"),
        ("(a|b){2,3}?", "(?:a|b){2,3}"),
        ("[^a-c-]", r"[^a-c\-]"),
        ("a b#", r"a\ b\#"),
        ("]}", r"\]\}"),
        ("", ""),
    ],
)
def test_patterns_are_written_as_every_engine_reads_them(pattern: str, expected: str) -> None:
    assert readable_pattern(pattern) == expected


@given(st.text("ab.^$|?*+()[]{}\\-dWs,12:=!<é\n", max_size=20))
def test_what_is_read_of_a_pattern_is_one(pattern: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        regex = readable_pattern(pattern)
    except HeddleError as error:
        assert error.diagnostic.code == "HDL-110"
        return
    texts = ["", "ab", "a\nb", "1é", "ab" * 9]
    ours = pc.match_substring_regex(pa.array(texts), regex).to_pylist()
    assert ours == [re.search(regex.replace(r"\z", r"\Z"), text) is not None for text in texts]


def test_formats_match_what_they_say() -> None:
    assert time_format("dd/MM/yyyy HH:mm").fullmatch("04/07/2013 18:30")
    assert time_format("yyyyMMdd'T'HHmmss.SSS").fullmatch("20130704T183000.123")
    assert time_format("yyyy'''s' MM dd").fullmatch("2013's 07 04")
    for wrong in ("", "yyyy", "yy-MM-dd", "yyyy-MM-dd mm", "yyyy-MM-dd-dd", "yyyy-MM-dd 'x", "yyyy-MM-dd [HH]"):
        with pytest.raises(HeddleError):
            time_format(wrong)


@pytest.mark.parametrize("deep", ["CASE WHEN ok THEN ", "CAST(", "(qty::decimal(9,2) + ", "if(ok, 1, "])
def test_depth_costs_no_time(deep: str) -> None:
    start = time.process_time()
    for depth in (10, 20, 200):
        asked(f"max({deep * depth}qty)")
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("opens", "closes"),
    [("CASE WHEN ", " THEN qty > 1 END"), ("if(", ", qty > 1, ok)"), ("if(ok, ", ", price > 1)"), ("(NOT ", ") = ok")],
)
@pytest.mark.timeout(30)
def test_conditions_inside_conditions_are_read_once(opens: str, closes: str) -> None:
    start = time.process_time()
    for depth in (5, 10, 15, 23):
        asked("count(*) AS n", f"WHERE {opens * depth}ok{closes * depth}")
    assert time.process_time() - start < 5
