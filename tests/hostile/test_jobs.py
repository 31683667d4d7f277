"""Jobs that nobody means well: `heddle import` never raises, never hangs, opens nothing, writes only what parses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from optimizer.language.parser import parse
from optimizer.migration.documents import is_document
from optimizer.migration.importing import FILE_BYTES, MOST_STATEMENTS, Imported, import_job
from optimizer.migration.words import LIMITS, Dialect
from tests.hostile import attacks
from tests.hostile.guard import STREAMS, Canary, bounded, check_findings, filled, told
from tests.hostile.mutations import mutated
from tests.hostile.seeds import COUNT, each
from tests.hostile.valid_queries import query
from tests.in_process import heddle

SPARK, FLINK = Dialect.spark, Dialect.flink

HOURLY = "GROUP BY window(ts, '1 hour'), symbol"
TUMBLE = "TABLE(TUMBLE(TABLE trades, DESCRIPTOR(ts), INTERVAL '1' HOUR))"

JOBS = (
    f"CREATE VIEW v AS SELECT upper(symbol) AS s, price + volume AS p, ts FROM trades WHERE price > 1;\n"
    f"SELECT s, max(p) AS m, count(*) AS n FROM v GROUP BY window(ts, '1 hour', '5 minutes'), s HAVING max(p) > 3;\n"
    f"WITH c AS (SELECT * FROM trades) SELECT window.start, symbol, avg(price) a FROM c {HOURLY};\n"
    "SELECT symbol, sum(CASE WHEN ts >= date_sub(current_date, 7) AND ok THEN price ELSE 0 END) AS w, "
    "count_if(ts > now() - INTERVAL 7 DAYS), max(price) FILTER (WHERE datediff(current_date, ts) <= 3) AS m "
    "FROM trades WHERE ts >= dateadd(day, -30, current_date()) AND ts < "
    "date_trunc('month', add_months(current_date, 1)) GROUP BY symbol;\n"
    f"SELECT symbol, sum(if(ts >= window.end - INTERVAL '10' MINUTE, price, 0)) AS p, count(*) FROM trades {HOURLY}",
    f"INSERT INTO o SELECT window_start, symbol, SUM(price) AS p FROM {TUMBLE} "
    f"GROUP BY window_start, window_end, GROUPING SETS ((symbol), ());\n"
    f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY p DESC) AS r FROM "
    f"(SELECT window_start, window_end, symbol, SUM(price) AS p FROM {TUMBLE} "
    f"GROUP BY window_start, window_end, symbol)) WHERE r <= 3;\n"
    f"SELECT FLOOR(ts TO HOUR), TRY_CAST(price AS INT), SUBSTRING(symbol FROM 1 FOR 2), COUNT(*) FILTER (WHERE ok) "
    f"FROM trades GROUP BY HOP(ts, INTERVAL '5' MINUTE, INTERVAL '1' HOUR), 1, 2, 3",
    "CREATE MATERIALIZED VIEW d WITH (timescaledb.continuous) AS SELECT time_bucket('1 day', ts, \"offset\" => "
    "INTERVAL '6 hours') AS b, \"symbol\", first(price, ts), avg(price)::numeric(10, 2) FROM trades GROUP BY b, symbol "
    "WITH NO DATA;\n"
    "SELECT add_continuous_aggregate_policy('d', end_offset => INTERVAL '1 day', schedule_interval => '1 hour');\n"
    "SELECT time_bucket('1 week', ts AT TIME ZONE 'Europe/Berlin', origin => DATE '2000-01-03') AS b, count(*) "
    "FROM trades GROUP BY 1;\n"
    "SELECT date_trunc('month', ts) AS m, max(price) FROM trades WHERE ts > now() - '1 day'::interval GROUP BY 1",
)

GROUP_BY = """{"metaData": {"name": "a.b", "team": "t"}, "keyColumns": ["s"], "accuracy": 0, "sources": [{"events": {
"table": "x.trades/symbol=a", "query": {"selects": {"s": "upper(symbol)", "p": "price + volume"}, "wheres": ["ok"],
"timeColumn": "ts"}}}], "aggregations": [{"inputColumn": "p", "operation": 7, "argMap": {"k": "3"}, "windows":
[{"length": 7, "timeUnit": 1}, {"length": 1, "timeUnit": 0}, null]}, {"inputColumn": "p", "operation": "LAST_K"}],
"derivations": [{"name": "d", "expression": "p_sum_7d / p_sum_1h"}]}"""

METRICS = """semantic_models:
  - {name: t, model: ref('trades'), defaults: {agg_time_dimension: ts}, entities: [{name: symbol, type: primary}],
     dimensions: [{name: ts, type: time, type_params: {time_granularity: hour}}, {name: ok, type: categorical}],
     measures: [{name: p, agg: sum, expr: price * 2}, {name: n, agg: count_distinct, expr: symbol}]}
metrics:
  - {name: a, type: simple, type_params: {measure: p}, filter: "{{ Dimension('symbol__ok') }} AND price > 1"}
  - {name: b, type: cumulative, type_params: {measure: n, cumulative_type_params: {window: 7 days}}}
  - {name: c, type: derived, type_params: {expr: a / nullif(b, 0), metrics: [a, {name: b, offset_window: 1 day}]}}
  - name: d
    type: ratio
    type_params: {numerator: {name: a, filter: ok}, denominator: c}
saved_queries: [{name: s, query_params: {metrics: [b], group_by: ["Dimension('symbol__ok')"]}}]
"""

DEEP = 20_000
HUGE = {
    "parentheses": f"SELECT {'(' * DEEP}price{')' * DEEP} FROM trades {HOURLY}",
    "subselects": f"SELECT symbol FROM {'(SELECT * FROM ' * 500}trades{')' * 500}",
    "a few subselects": f"SELECT symbol, count(*) AS n FROM {'(SELECT * FROM ' * 20}trades{')' * 20} {HOURLY}",
    "cases": f"SELECT {'CASE WHEN ok THEN ' * 2000}1{' END' * 2000} FROM trades {HOURLY}",
    "types": f"SELECT {'date(' * 24}ts{')' * 24} FROM trades {HOURLY}",
    "structs": f"SELECT CAST(symbol AS {'struct<a:' * 500}int{'>' * 500}) FROM trades {HOURLY}",
    "sums": f"SELECT sum({' + '.join(['price'] * 3000)}) FROM trades {HOURLY}",
    "columns": f"SELECT {', '.join(f'max(price) AS c{at}' for at in range(2000))} FROM trades {HOURLY}",
    "floors": "SELECT " + "FLOOR(" * 23 + "ts" + " TO HOUR)" * 23 + f" FROM trades {HOURLY}",
    "a cube": f"SELECT count(*) FROM trades GROUP BY window(ts, '1 hour'), CUBE({', '.join('abcdefghijklmnop')})",
    "cubes": f"SELECT count(*) FROM trades GROUP BY window(ts, '1 hour'){', CUBE(symbol, price, ok, qty)' * 9}",
    "views that double": "CREATE VIEW v0 AS SELECT price AS p, ts FROM trades;\n"
    + "".join(f"CREATE VIEW v{at + 1} AS SELECT p + p AS p, ts FROM v{at};\n" for at in range(60))
    + "SELECT max(p) AS m FROM v60 GROUP BY window(ts, '1 hour')",
    "views that filter": "CREATE VIEW v0 AS SELECT * FROM trades;\n"
    + "".join(f"CREATE VIEW v{at + 1} AS SELECT * FROM v{at} WHERE price > {at};\n" for at in range(1500))
    + "SELECT max(price) AS m FROM v1500 GROUP BY window(ts, '1 hour')",
    "a view of itself": "CREATE VIEW v AS SELECT * FROM v; SELECT count(*) FROM v GROUP BY window(ts, '1 hour')",
    "statements": "SELECT 1;\n" * (MOST_STATEMENTS + 5),
    "an array": "[" * DEEP,
    "objects": '{"sources":' * DEEP,
    "a large document": '{"sources": [' + "1," * 600_000,
    "many values": '{"keyColumns": [' + "1," * 60_000 + '1], "sources": []}',
    "metrics of metrics": METRICS
    + "\nmetrics:\n"
    + "".join(
        f"  - {{name: m{at}, type: derived, type_params: {{expr: x + y, metrics: [{{name: m{at + 1}, alias: x}}, "
        f"{{name: m{at + 1}, alias: y}}]}}}}\n"
        for at in range(40)
    ),
    "many sums": GROUP_BY.replace(
        '{"inputColumn": "p", "operation": "LAST_K"}',
        ", ".join(
            f'{{"inputColumn": "p", "operation": 7, "windows": [{{"length": {at}, "timeUnit": 1}}]}}'
            for at in range(300)
        ),
    ),
    "semicolons": ";" * 100_000,
    "quotes": "SELECT '" + "''" * 100_000 + "' FROM trades",
    "a long word": f"SELECT {'a' * 100_000} FROM trades {HOURLY}",
    "hints": "/*+ " * 10_000 + "SELECT 1",
    "comments": "/* " * 10_000,
    "brackets": f"SELECT {'a[' * 3000}1{']' * 3000} FROM trades {HOURLY}",
    "windows": f"SELECT count(*) FROM {'TABLE(TUMBLE(' * 20}TABLE trades, DESCRIPTOR(ts), INTERVAL '1' HOUR{'))' * 20}",
    "too many words": "SELECT " + "a, " * LIMITS.tokens + "a FROM trades",
    "too many bytes": "SELECT '" + "x" * LIMITS.bytes + "' FROM trades",
}


def imported(text: str, dialect: Dialect, canary: Canary, seconds: float = 3.0) -> Imported:
    """A job, and what holds of every one: in time, no canary, findings in place, and queries that our parser reads."""
    for streams in (STREAMS, None):
        with bounded(text, seconds):
            result = import_job(text, dialect, "job.sql", streams)
        canary.check(*told(result.diagnostics), result.text)
        check_findings(result.diagnostics, text)
        if streams is not None:
            read = parse(result.text, streams)
            assert not read.errors and [query.name for query in read.queries] == list(result.names)
    return result


ONCE = [(name, dialect) for name in HUGE for dialect in Dialect if dialect is SPARK or not is_document(HUGE[name])]
"""Huge jobs in each dialect; documents have none."""


@pytest.mark.parametrize(("name", "dialect"), ONCE)
def test_huge_jobs(name: str, dialect: Dialect, canary: Canary) -> None:
    result = imported(HUGE[name], dialect, canary, 20.0)
    if name not in ("semicolons", "a few subselects", "a view of itself"):
        assert result.errors, name


@pytest.mark.parametrize("dialect", Dialect)
def test_attacks(dialect: Dialect, canary: Canary) -> None:
    for _, text in attacks.queries():
        result = imported(filled(text, canary), dialect, canary)
        # windows as functions are what jobs have
        assert result.names == () or re.search(r"\b(window|tumble)\(", text, re.IGNORECASE), text
    bucket = "time_bucket(INTERVAL '1' HOUR, ts)"
    window = {SPARK: "window(ts, INTERVAL '1' HOUR)", FLINK: "TUMBLE(ts, INTERVAL '1' HOUR)"}.get(dialect, bucket)
    grouped = f" GROUP BY {window}"
    for texts in attacks.CONDITIONS.values():
        for text in texts:
            job = f"SELECT count(*) AS n FROM trades WHERE {filled(attacks.expanded(text), canary)}{grouped}"
            imported(job, dialect, canary)


def test_mutated_jobs(canary: Canary) -> None:
    def check(seed: int) -> str:
        dialect = tuple(Dialect)[seed % 3]
        text = mutated(JOBS[seed % 3] if seed % 7 else query(seed), seed)
        result = imported(text, dialect, canary)
        return "read" if result.names else result.errors[0].code if result.errors else "nothing"

    outcomes = each("jobs", COUNT // 10, check)
    assert COUNT < 1000 or len(outcomes) > 4, outcomes


def test_mutated_definitions(canary: Canary) -> None:
    def check(seed: int) -> str:
        result = imported(mutated((GROUP_BY, METRICS)[seed % 2], seed), SPARK, canary)
        return "read" if result.names else result.errors[0].code if result.errors else "nothing"

    outcomes = each("definitions", COUNT // 20, check)
    assert COUNT < 1000 or len(outcomes) > 4, outcomes


def test_attacks_within_definitions(canary: Canary) -> None:
    for texts in attacks.CONDITIONS.values():
        for text in texts[::4]:
            condition = json.dumps(filled(attacks.expanded(text), canary))
            text_with = GROUP_BY.replace('"ok"', condition) if len(text) % 2 else GROUP_BY
            if len(text) % 3:
                text_with = text_with.replace('"upper(symbol)"', condition).replace('"t"', condition)
            else:
                text_with = METRICS.replace("filter: ok", f"filter: {condition}")
            imported(text_with, SPARK, canary)


def test_names_are_names(canary: Canary) -> None:
    good = f"SELECT symbol, count(*) AS n FROM trades {HOURLY}"
    for name in ("`a b\\n-- name: x`", "`../../x`", "`x;y`", "`é`", "`1`", "`" + "n" * 200 + "`"):
        result = imported(f"INSERT INTO {name} {good}; INSERT INTO {name} {good}", SPARK, canary)
        assert len(set(result.names)) == 2 and result.text.count("-- name:") == 2, result


# ----------------------------------------------------------------------------------------- the command
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, written = tmp_path / "job.sql", tmp_path / "queries.sql"
    job.write_text(f"SELECT symbol, count(*) AS n FROM trades {HOURLY}")
    (tmp_path / "streams.yaml").write_text(
        "streams: {trades: {source: {format: csv, path: t.csv}, schema: {ts: timestamp, symbol: string}, time: ts}}"
    )
    done = heddle("import", str(job))
    assert done.code == 0 and done.out.startswith("-- name: job_1\nSELECT") and "1 query imported, 0 errors" in done.err
    typed = heddle("import", str(job), "--streams", str(tmp_path / "streams.yaml"), "-o", str(written))
    assert typed.code == 0 and not typed.out and written.read_text() == done.out
    wrong = heddle("import", str(job), "--dialect", "flink")
    assert wrong.code == 1 and "HDL-141" in wrong.err and not wrong.out
    assert '"queries": [\n    "job_1"' in heddle("import", str(job), "--json").out


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"SELECT '\xe9'")
    (tmp_path / "large").write_bytes(b" " * (FILE_BYTES + 1))
    for name in ("nothing", "latin", "large", "."):
        done = heddle("import", str(tmp_path / name))
        assert done.code == 2 and "HDL-111" in done.err, name
