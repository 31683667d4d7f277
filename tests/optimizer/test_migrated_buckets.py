"""Buckets of TimescaleDB and times cut to a unit as windows: what is written, refused, and where buckets start."""

from __future__ import annotations

import datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.migration.importing import Imported, import_job
from optimizer.migration.words import Dialect
from optimizer.workload.values import ACQ, LONG, STRING, TIMESTAMP, Source, Stream
from tests.oracle import answers
from tests.sizes import examples

SPARK, TIMESCALE = Dialect.spark, Dialect.timescale

SCHEMA = (("ts", TIMESTAMP), ("k", STRING), ("x", LONG))
STREAMS = {"conditions": Stream("conditions", Source("parquet", "x"), SCHEMA, "ts")}


def imported(text: str, dialect: Dialect = TIMESCALE) -> Imported:
    return import_job(text, dialect, "job.sql", STREAMS)


def query_of(text: str, dialect: Dialect = TIMESCALE) -> ACQ:
    result = imported(text, dialect)
    assert not result.errors and len(result.names) == 1, (text, result)
    return parse(result.text, STREAMS).queries[0]


def heddle(text: str, name: str = "query_1") -> ACQ:
    result = parse(f"-- name: {name}\n{text}", STREAMS)
    assert not result.errors, result.errors
    return result.queries[0]


def test_a_continuous_aggregate_is_a_query() -> None:
    text = """CREATE MATERIALIZED VIEW daily WITH (timescaledb.continuous, timescaledb.materialized_only = true) AS
SELECT "k", time_bucket(INTERVAL '1 day', ts) AS bucket, avg(x), first(x, ts) AS open, last(x, ts) AS close
FROM public.conditions WHERE k <> 'it''s' GROUP BY k, bucket WITH NO DATA;
SELECT add_continuous_aggregate_policy('daily', start_offset => INTERVAL '1 month',
  end_offset => INTERVAL '10 minutes', schedule_interval => INTERVAL '1 hour');
CALL refresh_continuous_aggregate('daily', NULL, NULL);
SELECT create_hypertable('conditions', by_range('ts'));
ALTER MATERIALIZED VIEW daily SET (timescaledb.materialized_only = false)"""
    expected = heddle(
        "SELECT k, avg(x), min_by(x, ts) AS open, max_by(x, ts) AS close FROM conditions "
        "WINDOW RANGE '1 day' SLIDE '1 day' ON ts WHERE k <> \"it's\" GROUP BY k",
        "daily",
    )
    assert query_of(text).fingerprint == expected.fingerprint
    notes = imported(text).diagnostics
    assert [each.code for each in notes] == ["HDL-140"] * 4 and [each.line for each in notes] == [4, 6, 7, 8]
    assert notes[0].hint == "run it every 1 hour; set lateness: 10 minutes of the stream"


WINDOWS = (
    ("time_bucket('15 min', ts)", "RANGE '15 minutes'"),
    ("time_bucket('1 h'::interval, ts)", "RANGE '1 hour'"),
    ("time_bucket('1 week', ts)", "RANGE '1 week' STARTING AT 'Monday'"),
    ("time_bucket('1 week', ts, TIMESTAMPTZ '2017-12-31')", "RANGE '1 week' STARTING AT 'Sunday'"),
    ("time_bucket('1 day', ts, INTERVAL '6 hours')", "RANGE '1 day' STARTING AT '06:00'"),
    ("time_bucket('1 day', ts, \"offset\" => '-2 hours')", "RANGE '1 day' STARTING AT '22:00'"),
    ("time_bucket('1 day', ts, 'Europe/Berlin')", "RANGE '1 day' IN 'Europe/Berlin'"),
    ("time_bucket('1 week', ts, timezone => 'Europe/Berlin')", "RANGE '1 week' IN 'Europe/Berlin'"),
    ("time_bucket('1 month', ts AT TIME ZONE 'Europe/Berlin')", "RANGE '1 month' IN 'Europe/Berlin'"),
    ("time_bucket('3 months', ts)", "RANGE '3 months' IN 'UTC'"),
    ("time_bucket('1 year', ts)", "RANGE '1 year' IN 'UTC'"),
    ("date_trunc('hour', ts)", "RANGE '1 hour'"),
    ("date_trunc('week', ts)", "RANGE '1 week' IN 'UTC'"),
    ("date_trunc('month', ts)", "RANGE '1 month' IN 'UTC'"),
    ("ts::date", "RANGE '1 day'"),
    ("date(ts)", "RANGE '1 day'"),
)


@pytest.mark.parametrize(("bucket", "window"), WINDOWS)
def test_buckets_are_windows(bucket: str, window: str) -> None:
    expected = heddle(f"SELECT k, count(*) AS n FROM conditions WINDOW {window} ON ts GROUP BY k")
    for group in ("1, 2", "bucket, k", f"k, {bucket}"):
        for where in ("", " WHERE ts >= now() - INTERVAL '30 days'"):
            text = f"SELECT {bucket} AS bucket, k, count(*) AS n FROM conditions{where} GROUP BY {group}"
            assert query_of(text).fingerprint == expected.fingerprint, text
    if "week', ts" not in bucket and "offset" not in bucket and "INTERVAL '6" not in bucket and "zone" not in bucket:
        assert query_of(text, SPARK).fingerprint == expected.fingerprint


IN_THE_WAY = (
    ("SELECT ^time_bucket('1 hour', ts, 'Europe/Berlin') AS b, count(*) FROM conditions GROUP BY b", "HDL-144"),
    ("SELECT ^time_bucket('7 months', ts) AS b, count(*) FROM conditions GROUP BY b", "HDL-144"),
    ("SELECT ^time_bucket('1 month', ts, DATE '2000-01-15') AS b, count(*) FROM conditions GROUP BY b", "HDL-144"),
    ("SELECT ^time_bucket('1 day', ts, 'Europe/Berlin', origin => '2000-01-03') AS b, count(*) FROM conditions "
     "GROUP BY b", "HDL-144"),
    ("SELECT ^time_bucket(3600, ts) AS b, count(*) FROM conditions GROUP BY b", "HDL-144"),
    ("SELECT ^time_bucket('1 day', ts + INTERVAL '1 hour') AS b, count(*) FROM conditions GROUP BY b", "HDL-144"),
    ("SELECT ^time_bucket('1 day') AS b, count(*) FROM conditions GROUP BY b", "HDL-146"),
    ("SELECT time_bucket('1 day', ts) AS b, ^percentile_agg(x) FROM conditions GROUP BY b", "HDL-104"),
    ("SELECT time_bucket('1 day', ts) AS b, approx_percentile(0.5, ^percentile_agg(x)) FROM conditions GROUP BY b",
     "HDL-104"),
    ("SELECT ^time_bucket_gapfill('1 day', ts) AS b, avg(x) FROM conditions GROUP BY b", "HDL-104"),
    ("SELECT time_bucket('1 day', ts) + INTERVAL '1 day' AS b, avg(x) FROM conditions "
     "GROUP BY time_bucket('1 day', ts)", "HDL-145"),
    ("SELECT date_trunc('day', ts) AS d, date_trunc('hour', ts) AS h, count(*) FROM conditions GROUP BY 1, 2",
     "HDL-141"),
)  # fmt: skip


@pytest.mark.parametrize(("marked", "code"), IN_THE_WAY)
def test_other_buckets_are_refused(marked: str, code: str) -> None:
    (diagnostic,) = imported(marked.replace("^", "", 1)).errors
    assert diagnostic.code == code and diagnostic.hint != "", diagnostic
    if "^" in marked:
        assert diagnostic.column == marked.index("^") + 1, diagnostic


def test_databricks_counts_buckets_from_1970() -> None:
    for bucket, window in (
        ("time_bucket(INTERVAL '7' DAY, ts)", "RANGE '7 days'"),
        (
            "time_bucket(INTERVAL '1' HOUR, ts, TIMESTAMP '1970-01-01 00:05:00')",
            "RANGE '1 hour' STARTING AT '5 minutes'",
        ),
    ):
        expected = heddle(f"SELECT count(*) AS n FROM conditions WINDOW {window} ON ts")
        text = f"SELECT {bucket} AS b, count(*) AS n FROM conditions GROUP BY {bucket}"
        assert query_of(text, SPARK).fingerprint == expected.fingerprint


def test_an_aggregate_over_another_is_refused_plainly() -> None:
    first = (
        "CREATE MATERIALIZED VIEW a WITH (timescaledb.continuous) AS SELECT time_bucket('1 hour', ts) AS b, sum(x) AS s"
    )
    second = "CREATE MATERIALIZED VIEW c WITH (timescaledb.continuous) AS SELECT time_bucket('1 day', b), sum(s) FROM a"
    result = imported(f"{first} FROM conditions GROUP BY b;\n{second} GROUP BY 1")
    (diagnostic,) = result.errors
    assert (diagnostic.code, diagnostic.line) == ("HDL-143", 2) and result.names == ("a",)
    assert "share its partial aggregates" in diagnostic.hint


def test_texts_joined_without_an_order_are_noted() -> None:
    group = "FROM conditions GROUP BY window(ts, '1 hour')"
    for call, count in (
        ("string_agg(k, ', ')", 1),
        ("listagg(k, ', ')", 1),
        ("listagg(k, ', ') WITHIN GROUP (ORDER BY x)", 0),
        ("string_agg(DISTINCT k, ', ')", 0),
        ("max(k)", 0),
    ):
        result = imported(f"SELECT {call} AS s {group}", SPARK)
        assert result.names and [each.code for each in result.diagnostics] == ["HDL-147"] * count, (call, result)


# ------------------------------------------------------------------------------------------- generated
EPOCH = datetime.datetime(1970, 1, 1)
BEGIN = datetime.datetime(2023, 12, 25)

widths = st.one_of(
    st.tuples(st.integers(1, 90), st.sampled_from(["minutes"])),
    st.tuples(st.integers(1, 40), st.sampled_from(["hours"])),
    st.tuples(st.integers(1, 9), st.sampled_from(["days"])),
    st.tuples(st.integers(1, 3), st.sampled_from(["weeks"])),
    st.tuples(st.sampled_from([1, 2, 3, 4, 6, 12, 24]), st.sampled_from(["months"])),
)
shifts = st.sampled_from(["", "", "INTERVAL '90 minutes'", "INTERVAL '-7 hours'", "TIMESTAMP '2001-02-03 04:05:00'"])
events = st.lists(st.tuples(st.integers(0, 40 * 24 * 4), st.sampled_from("ab"), st.integers(-3, 3)), max_size=30)


@given(widths, shifts, events)
@settings(max_examples=examples(60), deadline=None)
def test_generated_buckets_start_where_theirs_do(width: tuple[int, str], shift: str, rows: list[Any]) -> None:
    length = f"{width[0]} {width[1]}"
    shift = "" if width[1] == "months" else shift
    others = f", {shift}" if shift else ""
    bucket = f"time_bucket(INTERVAL '{length}', ts{others})"
    text = f"SELECT {bucket} AS b, k, sum(x) AS s, count(*) AS n FROM conditions GROUP BY b, k"
    query = query_of(text)
    columns = list(zip(*((BEGIN + datetime.timedelta(minutes=15 * at), *row) for at, *row in rows), strict=True))
    types = (pa.timestamp("us"), pa.string(), pa.int64())
    table = pa.table(
        {name: pa.array(of, type) for (name, _), of, type in zip(SCHEMA, columns or ([], [], []), types, strict=True)}
    )
    connection = duckdb.connect()
    connection.register("conditions", table)
    expected = {(start, key): row for start, key, *row in connection.execute(text).fetchall()}
    begin, end = ((time - EPOCH) // datetime.timedelta(microseconds=1) for time in (BEGIN, BEGIN.replace(year=2027)))
    ours = {}
    for (window, key), cells in answers(query, table, "ts", begin, end).items():
        start = window
        if not query.window.is_regular:
            assert cells.span is not None
            start = cells.span[0]
        ours[EPOCH + datetime.timedelta(microseconds=start), key] = cells
    assert ours.keys() == expected.keys(), (query.text, sorted(ours), sorted(expected))
    for at, (total, count) in expected.items():
        assert ours[at][0].matches(int(total)) and ours[at][1].matches(count), query.text
