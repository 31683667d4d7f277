"""``heddle test``: queries on rows that somebody wrote down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from spark_jobs.operations.agreement import text_of
from spark_jobs.operations.query_tests import run_tests
from tests import oracle
from tests.in_process import heddle
from tests.sizes import examples

STREAMS = """
streams:
  trades:
    source: {format: csv, path: nothing_is_here.csv}
    schema: {ts: timestamp, symbol: string, price: double, fee: 'decimal(10,2)', volume: long, open: boolean, day: date}
    time: ts
"""

QUERIES = """
-- name: by_symbol
SELECT symbol, count(*) AS n, avg(price) AS mean, sum(fee) AS fees, max(day) AS newest, min(open) AS all_open
FROM trades WINDOW RANGE '1 hour' SLIDE '30 minutes' ON ts GROUP BY symbol;
-- name: rows
SELECT sum(volume) AS total FROM trades WINDOW ROWS 2 SLIDE 1 ON ts;
-- name: sequences
SELECT count(*) AS n FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts PATTERN SEQ(A, B) ON symbol;
-- name: bounded
SELECT count(*) AS n FROM trades WINDOW RANGE '1 hour' SLIDE AT MOST '30 minutes' ON ts;
-- name: broken
SELECT nothing FROM;
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("streams.yaml").write_text(STREAMS)
    Path("queries.sql").write_text(QUERIES)
    Path("heddle.toml").write_text('streams = "streams.yaml"\nworkload = "queries.sql"\n')
    Path("tests").mkdir()
    return tmp_path


def write(text: str, name: str = "a.yaml") -> None:
    (Path("tests") / name).write_text(text)


PASSING = """
tests:
  - name: two of an hour
    query: by_symbol
    at: 2013-07-01T01:00:00
    given:
      - {ts: 2013-07-01T00:05:00, symbol: A, price: 3, fee: 0.10, day: 2013-07-01, open: true}
      - {ts: 2013-07-01T00:55:00Z, symbol: A, price: 4, fee: 0.20, day: 2013-07-02, open: false}
      - {ts: 2013-07-01T01:00:00, symbol: A, price: 99}
      - {ts: 2013-07-01T00:30:00, symbol: null, price: 1}
    expect:
      - {symbol: ~, mean: 1, fees: null}
      - {symbol: A, window_start: 2013-07-01, n: 2, mean: 3.5, fees: 0.3, newest: 2013-07-02, all_open: false}
  - query: rows
    given:
      - {ts: 2013-07-01T00:05:00, volume: 1}
      - {ts: 2013-07-01T00:06:00, volume: 2}
      - {ts: 2013-07-01T00:07:00, volume: 3}
    expect:
      - {total: 3}
      - {position: 1, total: 5}
  - query: sequences
    given:
      - {ts: 2013-07-01T00:05:00, symbol: A}
      - {ts: 2013-07-01T00:06:00, symbol: B}
      - {ts: 2013-07-01T00:07:00, symbol: B}
    expect:
      - {n: 2}
  - query: bounded
    at: [2013-07-01T01:00:00, 2013-07-01T01:07:00]
    given:
      - {ts: 2013-07-01T00:05:00}
      - {ts: 2013-07-01T00:30:00}
    expect:
      - {n: 2}
      - {n: 1}
  - query: by_symbol
    given: []
    expect: []
"""


def test_tests_pass_over_every_kind_of_window() -> None:
    write(PASSING)
    completed = heddle("test")
    assert (completed.code, completed.err) == (0, ""), completed
    assert completed.out.splitlines()[0] == "tests/a.yaml::two of an hour PASSED"
    assert "5 passed, 0 failed" in completed.out


def test_what_differs_is_shown() -> None:
    write(PASSING.replace("mean: 3.5", "mean: 3.75").replace("      - {total: 3}\n", "      - {total: 4}\n"))
    completed = heddle("test", "tests/a.yaml")
    assert completed.code == 1
    assert "tests/a.yaml::two of an hour FAILED" in completed.out
    assert "mean: 3.75" in completed.out and "mean: 3.5" in completed.out
    assert "    missing\n    - total: 4" in completed.out
    assert "    unexpected\n    + window_start: 2013-07-01T00:05:00Z" in completed.out
    assert "3 passed, 2 failed" in completed.out
    outcomes = json.loads(heddle("test", "--json").out)["tests"]
    assert [outcome["passed"] for outcome in outcomes] == [False, False, True, True, True]
    assert outcomes[0]["mismatches"][0]["kind"] == "differs"


def test_all_windows_count_unless_some_are_named() -> None:
    text = """
tests:
  - query: by_symbol
    given: [{ts: 2013-07-01T00:05:00, symbol: A}]
    expect: [{n: 1}]
"""
    write(text)
    assert "unexpected" in heddle("test").out
    write(text.replace("[{n: 1}]", "[{n: 1}, {n: 1}]"))
    assert heddle("test").code == 0


def test_a_tolerance_is_of_doubles() -> None:
    write(
        PASSING.replace("mean: 3.5", "mean: 3.51").replace(
            "    at: 2013-07-01T01:00:00\n", "    at: 2013-07-01T01:00:00\n    tolerance: 0.01\n", 1
        )
    )
    assert heddle("test").code == 0
    write(
        PASSING.replace("n: 2, mean", "n: 3, mean").replace(
            "    query: by_symbol\n", "    query: by_symbol\n    tolerance: 0.9\n", 1
        )
    )
    assert heddle("test").code == 1


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 0, "it is empty"),
        ("tests: [", 2, "it is no YAML"),
        ("- a\n", 1, "here is no mapping"),
        ("queries: x.sql\n", 0, "it has no tests"),
        ("tests: 3\n", 1, "here is no list"),
        ("testz: []\n", 1, "did you mean tests?"),
        ("tests:\n  - query: rows\n", 2, "the test has no given"),
        ("tests:\n  - {query: rows, given: [], expect: [], att: 1}\n", 2, "did you mean at?"),
        ("tests:\n  - {query: rows, given: [], expect: [], at: noon}\n", 2, "'noon' is not an instant"),
        ("tests:\n  - {query: rows, given: [], expect: [], tolerance: 2}\n", 2, "tolerance is a number"),
        ("tests:\n  - {query: rows, given: [{a: [1]}], expect: []}\n", 2, "here is no value"),
        ("tests:\n  - {query: rows, query: rows, given: [], expect: []}\n", 2, "a key appears twice"),
    ],
)
def test_a_file_that_is_none_of_tests(text: str, line: int, said: str) -> None:
    write(text)
    completed = heddle("test", "tests/a.yaml")
    assert completed.code == 2
    assert "error HDL-132" in completed.err and said in completed.err
    assert (f"tests/a.yaml:{line}:" if line else "tests/a.yaml: ") in completed.err


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("{query: by_symbo, given: [], expect: []}", "did you mean by_symbol?"),
        ("{query: rows, given: [{volum: 1}], expect: []}", "did you mean volume?"),
        ("{query: rows, given: [{volume: x}], expect: []}", "volume: 'x' is no long"),
        ("{query: rows, given: [{ts: 2013-13-01}], expect: []}", "ts: '2013-13-01' is no timestamp"),
        ("{query: rows, given: [], expect: [{totl: 1}]}", "did you mean total?"),
        ("{query: by_symbol, given: [], expect: [{fees: 1e}]}", "fees: '1e' is no decimal"),
        ("{query: broken, given: [], expect: []}", "HDL-"),
        ("{query: rows, given: [{ts: 2013-07-01, volume: 99999999999999999999}], expect: []}", "is no long"),
    ],
)
def test_what_is_wrong_in_a_test_fails_it_alone(test: str, said: str) -> None:
    write(f"tests:\n  - {test}\n  - {{query: rows, given: [], expect: []}}\n")
    completed = heddle("test")
    assert completed.code == 1
    assert said in completed.err and "tests/a.yaml:2:1: error" in completed.err or said == "HDL-"
    assert "1 passed, 1 failed" in completed.out


def test_where_tests_are_looked_for() -> None:
    assert "HDL-113" in heddle("test").err
    assert "HDL-111" in heddle("test", "none").err
    write("streams: {}\n", "other.yaml")
    write("\ntests: []\n", "b.yml")
    assert "HDL-113" in heddle("test").err
    (Path("deep") / "er").mkdir(parents=True)
    text = (
        "streams: ../../streams.yaml\nqueries: [../../queries.sql]\ntests:\n  - {query: rows, given: [], expect: []}\n"
    )
    Path("deep/er/c.yaml").write_text(text)
    Path("heddle.toml").unlink()
    assert heddle("test", "deep").code == 0


EVENTS = st.lists(st.tuples(st.integers(0, 7200), st.sampled_from("AB"), st.integers(-5, 5)), min_size=1, max_size=12)


@settings(max_examples=examples(6), deadline=None, suppress_health_check=list(HealthCheck))
@given(events=EVENTS, wrong=st.booleans())
def test_a_test_passes_exactly_if_the_oracle_says_what_it_expects(
    project: Path, events: list[tuple[int, str, int]], wrong: bool
) -> None:
    """Of generated events, with the oracle's answers as the expected ones, or one of them changed."""
    from datetime import UTC, datetime, timedelta

    import pyarrow as pa

    from spark_jobs.pipeline.planning.requested import load_inputs

    inputs = load_inputs(["queries.sql"], "streams.yaml")
    query = next(query for query in inputs.workload.queries if query.name == "by_symbol")
    start = datetime(2013, 7, 1, tzinfo=UTC)
    rows = [{"ts": start + timedelta(seconds=at), "symbol": who, "price": float(price)} for at, who, price in events]
    micros = int(start.timestamp()) * 10**6
    schema = {
        "ts": pa.timestamp("us", "UTC"),
        "symbol": pa.string(),
        "price": pa.float64(),
        "fee": pa.decimal128(10, 2),
    }
    schema |= {"volume": pa.int64(), "open": pa.bool_(), "day": pa.date32()}
    table = pa.Table.from_pylist(rows, pa.schema(list(schema.items())))
    expected = oracle.answers(query, table, "ts", micros, micros + 10**6 * 3600 * 4)
    assume(expected)
    lines = []
    for (begin, symbol), cells in expected.items():
        count = list(cells.values())[0] if isinstance(cells, dict) else cells[0]
        number = getattr(count, "value", count)
        at = start + timedelta(microseconds=int(begin) - micros)
        lines.append(f"      - {{window_start: {text_of(at)}, symbol: {symbol}, n: {number + wrong}}}")
    given_rows = "\n".join(
        f"      - {{ts: {text_of(row['ts'])}, symbol: {row['symbol']}, price: {row['price']}}}" for row in rows
    )
    write(f"tests:\n  - query: by_symbol\n    given:\n{given_rows}\n    expect:\n" + "\n".join(lines) + "\n")
    (outcome,) = run_tests([Path("tests/a.yaml")])
    assert outcome.problems == ()
    assert outcome.has_passed is not wrong, outcome


# ---------------------------------------------------------------------------------------------- dimensions
JOINED = """
streams:
  trades:
    source: {format: csv, path: nothing_is_here.csv}
    schema: {ts: timestamp, symbol: string, volume: long}
    time: ts
dimensions:
  listings:
    source: {format: csv, path: nothing_is_here_either.csv}
    key: symbol
    schema: {symbol: string, venue: string}
"""

BY_VENUE = """
-- name: by_venue
SELECT venue, sum(volume) AS total FROM trades LEFT JOIN listings USING (symbol)
WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts GROUP BY venue;
"""


OF_A = "dimensions: {listings: [{symbol: A, venue: X}]}"


def joined(dimensions: str, expect: str, shared: str = "") -> str:
    events = "{ts: 2013-07-01T00:10:00, symbol: A, volume: 2}, {ts: 2013-07-01T00:20:00, symbol: B, volume: 3}"
    test = f"{{query: by_venue, given: [{events}], {dimensions}expect: [{expect}]}}"
    return f"{shared}tests: [{test}]\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (joined(f"{OF_A}, ", "{venue: X, total: 2}, {venue: null, total: 3}"), ""),
        (joined("", "{venue: X, total: 2}, {venue: null, total: 3}", f"{OF_A}\n"), ""),
        (joined("dimensions: {listings: []}, ", "{venue: null, total: 5}", f"{OF_A}\n"), ""),
        (joined("", "{venue: X, total: 5}"), "HDL-499"),
        (joined("dimensions: {listing: []}, ", ""), "HDL-132"),
        (joined("dimensions: {listings: [{symbol: A, venu: X}]}, ", ""), "HDL-132"),
        (joined("dimensions: {listings: [{symbol: A, venue: X}, {symbol: A, venue: Y}]}, ", ""), "HDL-462"),
    ],
)  # fmt: skip
def test_a_test_gives_rows_of_dimensions(project: Path, text: str, code: str) -> None:
    Path("streams.yaml").write_text(JOINED)
    Path("queries.sql").write_text(BY_VENUE)
    write(text)
    (outcome,) = run_tests([project / "tests"])
    assert [problem.code for problem in outcome.problems] == ([code] if code else [])
    assert outcome.has_passed == (not code), outcome.lines()
