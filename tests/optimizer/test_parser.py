"""Query text to values: what is read, how mistakes are reported, and that hostile text is refused cheaply."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.errors import HeddleError
from optimizer.expression import type_of
from optimizer.parser import Limits, ParseResult, duration_text, load_workload, parse, parse_duration
from optimizer.query import (
    ACQ,
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
    Output,
    Source,
    Stream,
    Type,
    Window,
    decimal,
    from_json,
    to_json,
)
from optimizer.streams import load_streams

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


def codes(text: str) -> list[str]:
    return [found.code for found in parse(text, STREAMS, "w.sql").diagnostics]


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


def test_the_window_may_follow_group_by() -> None:
    before = read(f"SELECT day, count(*) FROM trades {WINDOW} WHERE ok GROUP BY day")
    after = read(f"SELECT day, count(*) FROM trades WHERE ok GROUP BY day {WINDOW}")
    assert before == after


def test_names_default_to_file_and_ordinal() -> None:
    one = f"SELECT count(*) FROM trades {WINDOW};\n"
    result = parse(one + "-- name: b\n" + one + ";;" + one, STREAMS, "dir/my file.sql")
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
    ],
)
def test_aggregates_and_their_types(aggregate: str, argument: Type | None, expected: Type) -> None:
    output = read(f"SELECT {aggregate} AS a FROM trades {WINDOW}").outputs[0]
    assert (output.argument_type, output.type) == (argument, expected)


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
    assert filter_of(condition) == expected


def test_operators_bind_as_in_sql() -> None:
    assert filter_of("qty + 1 * qty - 1 = qty") == filter_of("((qty + (1 * qty)) - 1) = qty")
    assert filter_of("NOT ok = ok OR ok AND ok") == filter_of("(NOT (ok = ok)) OR (ok AND ok)")


def test_a_long_chain_of_ands_is_one_flat_call() -> None:
    found = filter_of(" AND ".join(["ok"] * 250))
    assert isinstance(found, Call) and len(found.arguments) == 250


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
        ("SELECT ^sum(qty) / count(*) FROM trades {w}", "HDL-105", ""),
        ("SELECT count(*), count(*) ^AS count FROM trades {w}", "HDL-208", "AS"),
        ("SELECT ^count(*) AS window_start FROM trades {w}", "HDL-208", "AS"),
        ("SELECT ^count(*) AS `a b` FROM trades {w}", "HDL-208", "letters"),
        ("SELECT count(*) FROM trades {w} GROUP BY ^price", "HDL-206", "double"),
        ("SELECT count(*) FROM trades {w} GROUP BY ^ts", "HDL-206", "RANGE"),
        ("SELECT count(*) FROM trades {w} GROUP BY ^upper(symbol)", "HDL-206", ""),
        ("SELECT count(*) FROM trades {w} GROUP BY ^1", "HDL-206", ""),
        ("SELECT count(*) FROM trades {w} WHERE ^symbol = 5", "HDL-203", "quotes"),
        ("SELECT count(*) FROM trades {w} WHERE ^qty", "HDL-203", ""),
        ("SELECT count(*) FROM trades {w} WHERE ^day = '2013-13-01'", "HDL-110", "2013-07-04"),
        ("SELECT count(*) FROM trades {w} WHERE qty > ^1e400", "HDL-305", ""),
        ("SELECT count(*) FROM trades {w} WHERE ^count(*) > 1", "HDL-105", "SELECT"),
        ("SELECT count(*) FROM trades {w} WHERE ^symbol LIKE symbol", "HDL-203", ""),
        ("SELECT count(*) FROM trades WINDOW RANGE ^'0 hours' SLIDE '5 minutes' ON ts", "HDL-204", ""),
        ("SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE ^'-1 hour' ON ts", "HDL-204", ""),
        ("SELECT count(*) FROM trades WINDOW RANGE ^'1 month' SLIDE '1 hour' ON ts", "HDL-204", "30 days"),
        ("SELECT count(*) FROM trades WINDOW RANGE ^'400 days' SLIDE '1 day' ON ts", "HDL-307", ""),
        ("SELECT count(*) FROM trades WINDOW RANGE '1 hour' SLIDE ^'500 milliseconds' ON ts", "HDL-306", ""),
        (
            "SELECT count(*) FROM trades WINDOW RANGE '30 days' SLIDE ^'1 minute' ON ts",
            "HDL-308",
            "30 minutes",
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
    ],
)
def test_mistakes_are_coded_positioned_and_say_what_to_do(marked: str, code: str, hint: str) -> None:
    marked = marked.replace("{w}", WINDOW)
    prefix = "-- name: other\nSELECT count(*) FROM trades " + WINDOW + ";\n\n-- name: bad\n  "
    result = parse(prefix + marked.replace("^", "", 1), STREAMS, "w.sql")
    assert [query.name for query in result.queries] == ["other"]
    found = result.diagnostics[0]
    assert (found.code, found.file, found.line, found.query) == (code, "w.sql", 5, "bad")
    if "AS count" not in marked:
        assert found.column == marked.index("^") + 3
    assert hint in found.hint


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
        f"SELECT count(*) FROM trades {WINDOW} ORDER BY 1",
        f"SELECT count(*) FROM trades {WINDOW} LIMIT 3",
        f"SELECT count(*) FROM trades {WINDOW} GROUP BY ALL",
        f"SELECT count(*) FROM trades {WINDOW} GROUP BY ROLLUP(symbol)",
        f"SELECT sum(qty) OVER (PARTITION BY symbol) FROM trades {WINDOW}",
        f"SELECT sum(qty) FILTER (WHERE ok) FROM trades {WINDOW}",
        f"SELECT count(*) FROM trades {WINDOW} WHERE reflect('java.lang.System', 'exit', 1) = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE java_method('java.lang.System', 'exit', 1) = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE symbol = '${{env:HOME}}'",
        f"SELECT count(*) FROM trades {WINDOW} WHERE ${{env:HOME}} = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE {{{{ x }}}} = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE CAST(price AS INT) = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE price::int = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE int(price) = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE CASE WHEN ok THEN ok END",
        f"SELECT count(*) FROM trades {WINDOW} WHERE if(ok, ok, ok)",
        f"SELECT count(*) FROM trades {WINDOW} WHERE symbol RLIKE '(.*a)'",
        f"SELECT count(*) FROM trades {WINDOW} WHERE symbol LIKE 'a' ESCAPE '!'",
        f"SELECT count(*) FROM trades {WINDOW} WHERE symbol ILIKE 'a'",
        f"SELECT count(*) FROM trades {WINDOW} WHERE symbol LIKE ANY ('a')",
        f"SELECT count(*) FROM trades {WINDOW} WHERE symbol = 'a' 'b'",
        f"SELECT count(*) FROM trades {WINDOW} WHERE symbol || 'a' = 'b'",
        f"SELECT count(*) FROM trades {WINDOW} WHERE qty <=> 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE qty % 2 = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE qty & 2 = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE ok IS TRUE",
        f"SELECT count(*) FROM trades {WINDOW} WHERE ts > current_timestamp()",
        f"SELECT count(*) FROM trades {WINDOW} WHERE ts > ts - INTERVAL 1 DAY",
        f"SELECT count(*) FROM trades {WINDOW} WHERE a.b.c.d = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE qty[0] = 1",
        f"SELECT count(*) FROM trades {WINDOW} WHERE exists(qty, x -> x)",
        f"SELECT count(*) FROM trades {WINDOW} WHERE (qty, qty) = (1, 1)",
        f"SELECT count(*) FROM trades {WINDOW} WHERE qty = ?",
        f"SELECT count(*) FROM trades {WINDOW} WHERE qty = :x",
        f"SELECT count(*) FROM trades {WINDOW} WHERE X'1F' = 1",
        f"SELECT count(*) FROM trades {WINDOW} QUALIFY ok",
        f"SELECT count(*) FROM trades {WINDOW} SORT BY qty",
        f"SELECT count(*) FROM trades {WINDOW} CLUSTER BY qty",
        "INSERT INTO trades SELECT 1",
        "SET spark.x = 1",
        "SELECT 1",
        "EXPLAIN SELECT 1",
    ],
)
def test_everything_outside_the_language_is_refused(text: str) -> None:
    result = parse(text + ";\nSELECT count(*) FROM trades " + WINDOW, STREAMS, "w.sql")
    assert [query.name for query in result.queries] == ["w_2"]
    assert all(found.code in ("HDL-101", "HDL-102", "HDL-103", "HDL-104", "HDL-206") for found in result.diagnostics)
    assert all(found.line == 1 and found.column >= 1 for found in result.diagnostics)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT avg(qty) FROM trades WINDOW ROWS 10000 SLIDE 500 ON ts",
        "SELECT sum(qty) FROM trades WINDOW RANGE '1 hour' SLIDE '10 minutes' ENDING '7 days' AGO ON ts",
        "SELECT sum(qty) FROM trades WINDOW RANGE '1 hour' SLIDE AT MOST '1 minute' ON ts",
        f"SELECT percentile(price, 0.99) AS p99 FROM trades {WINDOW}",
        f"SELECT count(DISTINCT symbol) AS users FROM trades {WINDOW}",
        f"SELECT count(*) FROM trades {WINDOW} WITH (error = 0.01)",
        f"SELECT count(*) FROM trades PATTERN SEQ(a, b) ON symbol PARTITION BY qty {WINDOW}",
        f"SELECT symbol, sum(qty) FROM trades {WINDOW} GROUP BY symbol HAVING sum(qty) > 1e6",
    ],
)
def test_what_comes_later_says_so(text: str) -> None:
    assert codes(text) == ["HDL-106"]


def test_several_mistakes_are_reported_at_once() -> None:
    text = "SELECT avg(a), sum(b) FROM trades WINDOW RANGE '0 s' SLIDE '1 s' ON ts WHERE c GROUP BY price"
    assert sorted(codes(text.replace(" s'", " seconds'"))) == ["HDL-202"] * 3 + ["HDL-204", "HDL-206"]


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
    assert [(found.code, found.line) for found in result.diagnostics] == [
        ("HDL-108", 1),
        ("HDL-108", 3),
        ("HDL-108", 8),
    ]
    assert result.queries[-1].filter == Call("=", (Column("symbol"), Literal("; -- /* ", STRING)))


def test_positions_count_lines_and_characters_in_the_file() -> None:
    found = parse(f"\n\n/* ä\n */ SELECT\n  'é', summ(qty)\nFROM trades {WINDOW}", STREAMS, "w.sql").diagnostics
    assert [(d.line, d.column) for d in found] == [(5, 3), (5, 8)]


def test_bad_and_duplicate_names() -> None:
    good = f"SELECT count(*) FROM trades {WINDOW};\n"
    text = f"-- name: a\n{good}-- name: a\n{good}-- name: b c\n{good}-- name: d\n-- name: e\n{good}"
    result = parse(text, STREAMS, "w.sql")
    assert [query.name for query in result.queries] == ["a"]
    assert [(d.code, d.line) for d in result.diagnostics] == [("HDL-209", 4), ("HDL-109", 5), ("HDL-109", 8)]


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
        (" OR ".join(["ok"] * 1000), "HDL-304"),
        ("NOT " * 1500 + "ok", "HDL-303"),
        ("qty = " + "- " * 1500 + "1", "HDL-303"),
        ("qty = " + " + ".join(["qty"] * 900), "HDL-303"),
        ("qty " + "IS NULL " * 400, "HDL-303"),
        ("abs(" * 100 + "qty" + ")" * 100 + " = 1", "HDL-303"),
        ("(NOT " * 20 + "ok" + ")" * 20, "HDL-303"),
        ("qty = CAST(1 AS " + "array<" * 1000 + ")", "HDL-103"),
        ("qty = " + "array<" * 1000, "HDL-303"),
        ("qty IN (" + ", ".join(["1"] * 300) + ")", "HDL-304"),
        ("symbol = '" + "x" * 300 + "'", "HDL-305"),
        ("qty = " + "1" * 100, "HDL-305"),
        ("`" + "x" * 300 + "` = 1", "HDL-305"),
    ],
)
@pytest.mark.timeout(30)
def test_hostile_conditions_are_refused_at_once(condition: str, code: str) -> None:
    result = where(condition)
    assert [found.code for found in result.diagnostics] == [code]


def test_the_deepest_allowed_nesting_is_parsed() -> None:
    depth = Limits().depth
    found = filter_of("(" * depth + "ok" + ")" * depth)
    assert found == Column("ok")
    assert filter_of("coalesce(" * depth + "qty" + ")" * depth + " = 1")


@pytest.mark.parametrize("text", ["/*\n-- name: a\n" * 20_000, "'\n" * 50_000, ";" * 200_000, "-- name: x\n" * 20_000])
@pytest.mark.timeout(60)
def test_splitting_does_not_hang(text: str) -> None:
    assert parse(text, STREAMS).queries == ()


def test_limits_are_settings() -> None:
    text = f"SELECT count(*) AS a, count(*) AS b FROM trades {WINDOW} GROUP BY symbol, day"
    assert parse(text, STREAMS, limits=Limits(outputs=1)).diagnostics[0].code == "HDL-310"
    assert parse(text, STREAMS, limits=Limits(group_columns=1)).diagnostics[0].code == "HDL-309"
    assert parse(text, STREAMS, limits=Limits(bytes=20)).diagnostics[0].code == "HDL-301"
    assert parse(text, STREAMS, limits=Limits(ratio=11)).diagnostics[0].code == "HDL-308"
    assert parse(text, STREAMS, limits=Limits(ratio=12)).queries


NOISE = """
SELECT FROM WHERE WINDOW RANGE SLIDE ON GROUP BY trades ts qty ok symbol count sum ( ) , * ; = < - + / . ::
[ ] { }
'1 hour' '5 minutes' 'x' 1 2.5 1e3 NOT AND OR IN IS NULL LIKE BETWEEN AS CASE END UNION JOIN WITH HAVING ORDER
LIMIT -- /* */ ' \" ` $ @ ? : | & ^ % ! ~ -> DATE INTERVAL CAST OVER DISTINCT LATERAL VALUES PIVOT
"""
WORDS = st.sampled_from(NOISE.split())


@settings(max_examples=300, deadline=None)
@given(words=st.lists(WORDS, max_size=25), valid=st.booleans())
def test_no_text_raises_and_what_is_read_is_typed(words: list[str], valid: bool) -> None:
    noise = " ".join(words)
    text = f"SELECT count(*) FROM trades {WINDOW} WHERE {noise}" if valid else noise
    result = parse(text, STREAMS, "w.sql")
    for query in result.queries:
        if query.filter is not None:
            assert type_of(query.filter, SCHEMA) == BOOLEAN
    for found in result.diagnostics:
        assert found.line >= 1 and found.column >= 1 and found.message


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
