"""Jobs of Spark and Flink as queries: the corpus' own statements, generated ones, and what stands in the way."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.migration.importing import Imported, dialect_of, import_job
from optimizer.migration.words import Dialect
from optimizer.workload.values import ACQ, DOUBLE, LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Window
from tests.metrics.corpus import metrics, read, streams
from tests.sizes import examples

SPARK, FLINK, TIMESCALE = Dialect

FOLDER = Path(__file__).parents[1] / "metrics"

SCHEMA = {
    "ts": TIMESTAMP,
    "symbol": STRING,
    "exchange": STRING,
    "side": STRING,
    "price": DOUBLE,
    "volume": LONG,
    "code": LONG,
}
TRADES = {"trades": Stream("trades", Source("csv", "trades.csv"), tuple(SCHEMA.items()), "ts")}


def imported(text: str, dialect: Dialect, typed: bool = True) -> Imported:
    return import_job(text, dialect, "job.sql", TRADES if typed else None)


def query_of(text: str, dialect: Dialect) -> ACQ:
    """The one query of a job, which has no error."""
    result = imported(text, dialect)
    assert not result.errors and len(result.names) == 1, (text, result)
    (query,) = parse(result.text, TRADES).queries
    return query


# ------------------------------------------------------------------------------------------ the corpus
@pytest.mark.parametrize("dialect", (SPARK, FLINK))
def test_the_corpus_own_statements_become_its_queries(dialect: Dialect) -> None:
    result = import_job((FOLDER / f"{dialect}.sql").read_text(), dialect, "job.sql", streams())
    queries = {query.name: query for query in parse(result.text, streams()).queries}
    expected = {metric.name: metric for metric in metrics()}
    for name, query in queries.items():
        (expected_query,) = read(expected[name]).queries
        assert query.fingerprint == expected_query.fingerprint, (query.text, expected_query.text)
    assert len(queries) >= 3 and not result.errors


def test_every_metric_of_spark_and_flink_has_a_statement() -> None:
    text = "".join((FOLDER / f"{dialect}.sql").read_text() for dialect in (SPARK, FLINK))
    products = ("Spark", "Flink", "Nexmark for Flink")
    names = {metric.name for metric in metrics() if metric.product in products and not metric.code}
    # GROUPING SETS are one statement and two queries; query 7 of Nexmark is a join
    names -= {"flink_revenue_sets_supplier_id", "flink_revenue_sets_all", "nexmark_highest_bid"}
    assert [name for name in names if name not in text] == []


# ----------------------------------------------------------------------------------- what is written
AS_WRITTEN = (
    (SPARK, "SELECT symbol, count(*) AS n FROM trades GROUP BY window(ts, '1 hour', '5 minutes'), symbol"),
    (SPARK, "SELECT t.symbol, count(1) AS n FROM market.trades AS t GROUP BY window(t.ts, '1 hour', '5 minutes'), 1"),
    (SPARK, "CREATE VIEW v AS SELECT window, symbol, count(*) AS n FROM trades "
            "GROUP BY window(ts, INTERVAL 1 HOUR, INTERVAL 5 MINUTES), symbol"),
    (SPARK, "WITH a AS (SELECT symbol AS s, ts AS at FROM trades), b AS (SELECT * FROM a) "
            "SELECT w.start, w.end AS until, s AS symbol, n FROM "
            "(SELECT window(at, '1 hour', '5 minutes') AS w, s, count(*) AS n FROM b GROUP BY w, s)"),
    (FLINK, "SELECT window_start, symbol, COUNT(*) AS n FROM TABLE(HOP(TABLE trades, DESCRIPTOR(ts), "
            "INTERVAL '5' MINUTES, INTERVAL '1' HOUR)) GROUP BY window_start, window_end, symbol"),
    (FLINK, "INSERT INTO x SELECT symbol, COUNT(*) AS n FROM trades "
            "GROUP BY HOP(ts, INTERVAL '5' MINUTE, INTERVAL '1' HOUR), symbol"),
    (FLINK, "INSERT INTO c.d.x (`from`, symbol, n) SELECT HOP_START(ts, INTERVAL '5' MINUTE, INTERVAL '1' HOUR), "
            "symbol, COUNT(*) FROM trades GROUP BY HOP(ts, INTERVAL '5' MINUTE, INTERVAL '1' HOUR), symbol"),
)  # fmt: skip


@pytest.mark.parametrize(("dialect", "text"), AS_WRITTEN)
def test_the_same_query_in_other_words(dialect: Dialect, text: str) -> None:
    heddle = "SELECT symbol, count(*) AS n FROM trades WINDOW RANGE '1 hour' SLIDE '5 minutes' ON ts GROUP BY symbol"
    (expected_query,) = parse(f"-- name: {query_of(text, dialect).name}\n{heddle}", TRADES).queries
    assert query_of(text, dialect).fingerprint == expected_query.fingerprint


SESSIONS = (
    (SPARK, "SELECT symbol, session_window.start, count(*) AS n FROM trades "
            "GROUP BY session_window(ts, '30 minutes'), symbol", ("symbol",)),
    (SPARK, "SELECT symbol, side, count(*) AS n FROM trades GROUP BY side, session_window(ts, INTERVAL 30 MINUTES), "
            "symbol", ("side", "symbol")),
    (FLINK, "SELECT symbol, SESSION_END(ts, INTERVAL '30' MINUTE) AS until, COUNT(*) AS n FROM trades "
            "GROUP BY SESSION(ts, INTERVAL '30' MINUTE), symbol", ("symbol",)),
    (FLINK, "SELECT side, symbol, COUNT(*) AS n FROM TABLE(SESSION(TABLE trades PARTITION BY symbol, side, "
            "DESCRIPTOR(ts), INTERVAL '30' MINUTES)) GROUP BY window_start, window_end, symbol, side",
     ("side", "symbol")),
    (FLINK, "SELECT side, symbol, COUNT(*) AS n FROM TABLE(SESSION(TABLE trades PARTITION BY symbol, "
            "DESCRIPTOR(ts), INTERVAL '30' MINUTES)) GROUP BY window_start, window_end, symbol, side", ("symbol",)),
    (FLINK, "SELECT COUNT(*) AS n FROM TABLE(SESSION(TABLE trades, DESCRIPTOR(ts), INTERVAL '30' MINUTES)) "
            "GROUP BY window_start, window_end", ()),
)  # fmt: skip


@pytest.mark.parametrize(("dialect", "text", "per"), SESSIONS)
def test_sessions(dialect: Dialect, text: str, per: tuple[str, ...]) -> None:
    assert query_of(text, dialect).window == Window.of_sessions(30 * 60 * SECOND, 86_400 * SECOND, per)
    assert [diagnostic.code for diagnostic in imported(text, dialect).diagnostics] == ["HDL-147"]


def test_sessions_of_all_events_have_no_groups() -> None:
    text = "SELECT symbol, COUNT(*) FROM TABLE(SESSION(TABLE trades, DESCRIPTOR(ts), INTERVAL '5' MINUTES))"
    result = imported(f"{text} GROUP BY window_start, window_end, symbol", FLINK)
    assert [error.code for error in result.errors] == ["HDL-144"]


def test_names_owners_and_lines() -> None:
    text = """-- owner: desk
CREATE VIEW lake.by_symbol AS SELECT symbol, max(price) AS hi FROM trades GROUP BY window(ts, '1 hour'), symbol;
SELECT symbol, hi FROM by_symbol WHERE hi > 10;
-- name: third
SELECT symbol, hi AS top FROM by_symbol"""
    result = imported(text, SPARK)
    assert result.names == ("by_symbol", "query_2", "third") and not result.diagnostics
    assert result.text.startswith(
        "-- name: by_symbol\n-- owner: desk\nSELECT symbol, max(price) AS hi FROM trades\nWINDOW"
    )
    queries = {query.name: query for query in parse(result.text, TRADES).queries}
    assert queries["by_symbol"].owner == "desk" and queries["third"].outputs[0].name == "top"
    assert queries["query_2"].having[0].value.value == 10


def test_filters_come_together() -> None:
    text = """CREATE VIEW a AS SELECT symbol, price * 2 AS double_price, ts FROM trades WHERE price > 1 OR volume > 2;
CREATE VIEW b AS SELECT * FROM a WHERE double_price < 10;
SELECT max(double_price) AS hi FROM b GROUP BY window(ts, '1 hour') HAVING max(double_price) > 3"""
    heddle = """-- name: query_3
SELECT max(price * 2) AS hi FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts
WHERE (price > 1 OR volume > 2) AND price * 2 < 10 HAVING max(price * 2) > 3"""
    (expected_query,) = parse(heddle, TRADES).queries
    assert query_of(text, SPARK).fingerprint == expected_query.fingerprint


def test_an_alias_means_what_it_means_there() -> None:
    # in HAVING the alias, inside an aggregate the column
    text = "SELECT symbol, sum(price) AS price FROM trades GROUP BY window(ts, '1 hour'), symbol HAVING {}"
    outer, inner = (query_of(text.format(having), SPARK) for having in ("price > 5", "sum(price) > 5"))
    assert outer.fingerprint == inner.fingerprint
    # in GROUP BY the column, where there is one
    result = imported(
        "SELECT lower(symbol) AS symbol, count(*) FROM trades GROUP BY window(ts, '1 hour'), symbol", SPARK
    )
    assert result.errors or "GROUP BY symbol" in result.text


def test_grouping_sets_are_queries() -> None:
    text = "SELECT symbol, side, count(*) AS n FROM trades GROUP BY window(ts, '1 hour'), {}"
    names = {
        "GROUPING SETS ((symbol, side), (side), ())": ("query_1_symbol_side", "query_1_side", "query_1_all"),
        "ROLLUP (symbol, side)": ("query_1_symbol_side", "query_1_symbol", "query_1_all"),
        "CUBE (symbol, side)": ("query_1_symbol_side", "query_1_side", "query_1_symbol", "query_1_all"),
        "side, GROUPING SETS ((symbol), ())": ("query_1_side_symbol", "query_1_side"),
    }
    for sets, expected in names.items():
        result = imported(text.format(sets), SPARK)
        assert result.names == expected and not result.errors, result
        assert len(parse(result.text, TRADES).queries) == len(expected)


def test_a_backslash_is_a_letter_in_flink() -> None:
    text = r"SELECT count(*) AS n FROM trades WHERE symbol = 'a\b' AND side LIKE 'x\%' "
    text += "GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)"
    heddle = r"""-- name: query_1
SELECT count(*) AS n FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts
WHERE symbol = 'a\\b' AND side LIKE 'x\\\\%'"""
    (expected_query,) = parse(heddle, TRADES).queries
    assert query_of(text, FLINK).fingerprint == expected_query.fingerprint
    quoted = "SELECT count(*) AS n FROM trades WHERE symbol = 'It''s' GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)"
    assert query_of(quoted, FLINK).filter is not None and '"It\'s"' in repr(query_of(quoted, FLINK).filter)


# ------------------------------------------------------------------------------- what stands in the way
HOURLY = "GROUP BY window(ts, '1 hour'), symbol"
IN_THE_WAY = (
    (SPARK, "^MERGE INTO a USING b ON true WHEN MATCHED THEN DELETE", "HDL-146"),
    (SPARK, "SELECT FROM trades ^WHERE", "HDL-146"),
    (SPARK, "SELECT ^symbol, count(*) FROM trades GROUP BY symbol", "HDL-141"),
    (SPARK, "SELECT symbol, count(*) FROM trades t JOIN ^quotes q ON t.symbol = q.symbol " + HOURLY, "HDL-142"),
    (SPARK, "SELECT ^symbol FROM trades UNION ALL SELECT symbol FROM quotes", "HDL-142"),
    (SPARK, "SELECT count(*) FROM trades WHERE symbol IN (SELECT ^symbol FROM q) " + HOURLY, "HDL-142"),
    (SPARK, "SELECT DISTINCT ^symbol FROM trades " + HOURLY, "HDL-143"),
    (SPARK, "SELECT symbol, count(*) AS n FROM trades " + HOURLY + " ORDER BY n DESC LIMIT ^5", "HDL-143"),
    (SPARK, "SELECT symbol, count(*) FROM (SELECT ^* EXCEPT (code) FROM trades) " + HOURLY, "HDL-143"),
    (SPARK, "SELECT symbol, ^sum(price) OVER (PARTITION BY symbol) FROM trades", "HDL-143"),
    (SPARK, "SELECT count(*) FROM trades GROUP BY ^session_window(ts, if(code > 1, '1 hour', '1 day'))", "HDL-144"),
    (SPARK, "SELECT count(*) FROM trades GROUP BY ^session_window(ts, '5 minutes', '1 hour'), symbol", "HDL-146"),
    (SPARK, "SELECT count(*) FROM trades GROUP BY ^window(to_timestamp(side), '1 hour')", "HDL-144"),
    (SPARK, "SELECT symbol, count(*) FROM trades WHERE ^window(ts, '1 hour').start > '2020' " + HOURLY, "HDL-145"),
    (SPARK, "SELECT nothing, count(*) FROM (SELECT ts FROM trades) GROUP BY window(ts, '1 hour'), ^nothing", "HDL-202"),
    (SPARK, "SELECT symbol, count(*) FROM {{ source }} " + HOURLY, "HDL-146"),
    (SPARK, "SELECT symbol, count(*) FROM trades GROUP BY ALL", "HDL-143"),
    (FLINK, "SELECT count(*) FROM TABLE(^SESSION(TABLE trades, DESCRIPTOR(ts))) GROUP BY window_start, window_end",
     "HDL-146"),
    (FLINK, "SELECT count(*) FROM trades GROUP BY TUMBLE(^PROCTIME(), INTERVAL '5' MINUTE)", "HDL-144"),
    (FLINK, "SELECT ^count(*) FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(ts), INTERVAL '5' MINUTES))", "HDL-141"),
    (FLINK, "SELECT * FROM (SELECT *, ^ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) "
            "AS r FROM TABLE(TUMBLE(TABLE trades, DESCRIPTOR(ts), INTERVAL '5' MINUTES))) WHERE r <= 3", "HDL-143"),
    (FLINK, "SELECT count(*) FROM ^TUMBLE(TABLE trades, DESCRIPTOR(ts)) GROUP BY window_start, window_end", "HDL-146"),
)  # fmt: skip


@pytest.mark.parametrize(("dialect", "marked", "code"), IN_THE_WAY)
def test_what_stands_in_the_way_is_said_with_its_place(dialect: Dialect, marked: str, code: str) -> None:
    text = marked.replace("^", "", 1)
    result = imported(f"-- a job\n{text};\n", dialect)
    assert [diagnostic.code for diagnostic in result.errors] == [code], result
    assert not result.names and result.errors[0].line == 2
    if "^" in marked:
        assert result.errors[0].column == marked.index("^") + 1, result.errors[0]


def test_the_other_statements_go_on() -> None:
    good = "SELECT symbol, count(*) AS n FROM trades " + HOURLY
    result = imported(f"{good};\nSELECT 'never closed;\n{good} LIMIT 3;\nSET a = b;\n{good}", SPARK)
    assert result.names == ("query_1", "query_5")
    assert [diagnostic.code for diagnostic in result.diagnostics] == ["HDL-108", "HDL-143", "HDL-140"]
    assert [diagnostic.line for diagnostic in result.diagnostics] == [2, 3, 4]


def test_what_the_language_refuses_is_said_at_its_word() -> None:
    text = "SELECT symbol,\n  nothing_like_it(price) AS n FROM trades " + HOURLY
    for typed in (True, False):
        (diagnostic,) = imported(text, SPARK, typed).errors
        assert (diagnostic.code, diagnostic.line, diagnostic.column) == ("HDL-104", 2, 3)


def test_without_streams_types_do_not_matter() -> None:
    text = "SELECT kind, sum(amount) AS s, max(name) AS m FROM sales WHERE ok AND name LIKE 'a%' AND kind IN (1, 2) "
    text += "GROUP BY window(at, '1 hour'), kind"
    result = imported(text, SPARK, typed=False)
    assert result.names == ("query_1",) and not result.diagnostics
    assert [diagnostic.code for diagnostic in imported(text, SPARK).errors] == ["HDL-201"]


def test_what_means_something_else_is_noted() -> None:
    window = "GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)"
    notes = {
        f"SELECT avg(volume) AS a FROM trades {window}": 1,
        f"SELECT avg(price) AS a FROM trades {window}": 0,
        f"SELECT sum(volume / 2) AS a FROM trades {window}": 1,
        f"SELECT sum(volume / 2.0) AS a FROM trades {window}": 0,
        f"SELECT LAST_VALUE(price) AS a FROM trades {window}": 1,
    }
    for text, count in notes.items():
        assert [diagnostic.code for diagnostic in imported(text, FLINK).diagnostics] == ["HDL-147"] * count, text
    assert not imported(f"SELECT avg(volume) AS a FROM trades {HOURLY}", SPARK).diagnostics


def test_two_tables_of_one_name_are_not_taken_for_one() -> None:
    good = "SELECT count(*) AS n FROM {}.trades " + HOURLY
    result = imported(f"{good.format('a')}; {good.format('b')}; {good.format('a')}", SPARK)
    assert [diagnostic.code for diagnostic in result.errors] == ["HDL-142"] and len(result.names) == 2


def test_a_view_is_not_a_table_of_another_schema() -> None:
    text = "CREATE VIEW clean.trades AS SELECT * FROM raw.trades WHERE price > 1; SELECT count(*) AS n FROM {} "
    text += "GROUP BY window(ts, '1 hour')"
    filters = {name: query_of(text.format(name), SPARK).filter for name in ("clean.trades", "trades", "raw.trades")}
    assert filters["clean.trades"] == filters["trades"] is not None and filters["raw.trades"] is None


def test_what_is_written_is_no_stream() -> None:
    good = "INSERT INTO hourly SELECT symbol, count(*) AS n FROM trades " + HOURLY
    result = imported(f"{good}; SELECT sum(n) AS n FROM hourly GROUP BY window(ts, '1 day')", SPARK, typed=False)
    assert result.names == ("hourly",) and [diagnostic.code for diagnostic in result.errors] == ["HDL-143"]


# ----------------------------------------------------------------------------------- the documentation
BECOMES = re.compile(r"```[a-z]+\n([^`]*)```\n\nbecomes\n\n```text\n([^`]*)```")
EXAMPLES = BECOMES.findall((Path(__file__).parents[2] / "docs" / "migration.md").read_text())


@pytest.mark.parametrize(("job", "queries"), EXAMPLES)
def test_documented_jobs_become_documented_queries(job: str, queries: str) -> None:
    result = import_job(job, TIMESCALE if "timescaledb" in job else SPARK, "job.sql", stem="job")
    assert not result.errors and result.text == queries, result


def test_every_form_has_a_documented_example() -> None:
    assert len(EXAMPLES) >= 2


# ------------------------------------------------------------------------------------------- generated
@dataclass(frozen=True)
class Pieces:
    """What a query is made of, in words that the three languages share."""

    outputs: tuple[str, ...]
    keys: tuple[str, ...]
    filters: tuple[str, ...]
    having: str
    window: tuple[int, int]

    @property
    def where(self) -> str:
        return " WHERE " + " AND ".join(f"({part})" for part in self.filters) if self.filters else ""

    @property
    def selected(self) -> str:
        return ", ".join([*self.keys, *(f"{call} AS o{at}" for at, call in enumerate(self.outputs))])

    @property
    def behind(self) -> str:
        return f" HAVING {self.having}" if self.having else ""


OUTPUTS = (
    *("count(*)", "count(price)", "sum(volume)", "avg(price)", "min(side)", "max(price * volume)"),
    *("count(DISTINCT exchange)", "sum(coalesce(volume, 0) - code)", "stddev(price)", "max_by(side, price)"),
)
FILTERS = (
    *("price > 1.5", "NOT (side = 'buy' OR side IS NULL)", "symbol LIKE 'A%'", "code IN (1, 2, -3)"),
    *("volume BETWEEN 1 AND 10", "upper(exchange) != 'It''s' OR code = 7", "-price * 2 < abs(volume)"),
)

pieces = st.builds(
    Pieces,
    st.lists(st.sampled_from(OUTPUTS), min_size=1, max_size=4, unique=True).map(tuple),
    st.lists(st.sampled_from(("symbol", "exchange", "side", "code")), max_size=3, unique=True).map(tuple),
    st.lists(st.sampled_from(FILTERS), max_size=3, unique=True).map(tuple),
    st.sampled_from(("", "count(*) > 2", "sum(volume) >= 10 AND max(price) < 3.5")),
    st.sampled_from(((1, 1), (10, 5), (60, 7), (1440, 60), (5, 10))),
)


def as_heddle(made: Pieces) -> str:
    size, slide = made.window
    text = f"SELECT {made.selected} FROM trades WINDOW RANGE '{size} minutes' SLIDE '{slide} minutes' ON ts{made.where}"
    grouped = f" GROUP BY {', '.join(made.keys)}" if made.keys else ""
    return f"{text}{grouped}{made.behind}".replace("It''s", "It\\'s")


def renamed(text: str) -> str:
    """With a letter before each column of the stream."""
    return re.sub(rf"\b({'|'.join(SCHEMA)})\b", r"x_\1", text)


def wrapped(made: Pieces, wrapping: str) -> tuple[str, str, Pieces]:
    """What stands before a query, its source, and what is left of it: some of its filters are in a view or a CTE."""
    if wrapping == "none":
        return "", "trades", made
    columns = ", ".join(f"{name} AS x_{name}" for name in SCHEMA)
    inner_filters = made.filters[:1]
    inner = f"SELECT {columns} FROM trades" + "".join(f" WHERE {part}" for part in inner_filters)
    outer_pieces = Pieces(
        tuple(map(renamed, made.outputs)),
        tuple(map(renamed, made.keys)),
        tuple(map(renamed, made.filters[1:])),
        renamed(made.having),
        made.window,
    )
    before = {"view": f"CREATE TEMPORARY VIEW v AS {inner};\n", "cte": f"WITH v AS ({inner}) "}
    return before.get(wrapping, ""), f"({inner}) AS v" if wrapping == "subselect" else "v", outer_pieces


def named_back(made: Pieces, original: Pieces) -> str:
    """The SELECT list under the names that the query has."""
    keys = [f"{key} AS {name}" for key, name in zip(made.keys, original.keys, strict=True)]
    return ", ".join([*keys, *(f"{call} AS o{at}" for at, call in enumerate(made.outputs))])


def as_spark(original: Pieces, wrapping: str) -> str:
    before, source, body = wrapped(original, wrapping)
    size, slide = body.window
    time = "ts" if wrapping == "none" else "x_ts"
    window = f"window({time}, '{size} minutes', '{slide} minutes')"
    keys = ", ".join([window, *body.keys])
    text = f"SELECT window.start, {named_back(body, original)} FROM {source}{body.where} GROUP BY {keys}{body.behind}"
    return (before + text).replace("It''s", "It\\'s")


def as_flink(original: Pieces, wrapping: str, style: str) -> str:
    before, source, body = wrapped(original, wrapping)
    size, slide = body.window
    time = "ts" if wrapping == "none" else "x_ts"
    spans = f"INTERVAL '{slide}' MINUTES, INTERVAL '{size}' MINUTES"
    if style == "group" or wrapping == "subselect":
        table, keys = source, [f"HOP({time}, {spans})", *body.keys]
    else:
        table = f"HOP(TABLE {source}, DESCRIPTOR({time}), {spans})"
        table, keys = f"TABLE({table})" if style == "table" else table, ["window_start", "window_end", *body.keys]
    text = f"SELECT {named_back(body, original)} FROM {table}{body.where} GROUP BY {', '.join(keys)}{body.behind}"
    return before + text


@given(pieces, st.sampled_from(("none", "view", "cte", "subselect")), st.sampled_from(("table", "plain", "group")))
@settings(max_examples=examples(50), deadline=None)
def test_generated_queries_come_back(made: Pieces, wrapping: str, style: str) -> None:
    for dialect, text in ((SPARK, as_spark(made, wrapping)), (FLINK, as_flink(made, wrapping, style))):
        query = query_of(text, dialect)
        result = parse(f"-- name: {query.name}\n{as_heddle(made)}", TRADES)
        assert not result.errors, (as_heddle(made), result.errors)
        assert query.fingerprint == result.queries[0].fingerprint, (text, query.text, as_heddle(made))
        assert imported(text, dialect, typed=False).names


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("SELECT count(*) FROM t GROUP BY window(ts, '1 hour')", SPARK),
        ("SELECT count(*) FROM TABLE(HOP(TABLE t, DESCRIPTOR (ts), INTERVAL '1' HOUR, INTERVAL '2' HOURS))", FLINK),
        ("select Tumble_Start(ts, INTERVAL '1' HOUR) FROM t GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)", FLINK),
        ("SELECT time_bucket ('1 hour', ts) FROM t GROUP BY 1", Dialect.timescale),
        ("CREATE MATERIALIZED VIEW v WITH (timescaledb.continuous) AS SELECT 1", Dialect.timescale),
    ],
)
def test_functions_tell_the_dialect(text: str, dialect: Dialect) -> None:
    assert dialect_of(text) == dialect
