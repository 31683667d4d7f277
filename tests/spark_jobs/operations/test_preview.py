"""``heddle preview``: the answers of a run, on the newest windows, without a warehouse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import heddle as face
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import DAY
from spark_jobs.operations import preview as previews
from spark_jobs.operations.agreement import is_same, mismatches
from spark_jobs.operations.preview import Preview, preview
from spark_jobs.pipeline.planning.requested import load_inputs
from spark_jobs.store.warehouse.warehouse import Warehouse
from tests import oracle
from tests.chaos.orders import in_process
from tests.in_process import Clock, heddle, without_spark
from tests.sizes import examples
from tests.spark_jobs.case_runs import stored
from tests.spark_jobs.laboratory import Laboratory, steady
from tests.workloads import Case, cases, row_cases, sequence_cases, session_cases

FAST = settings(max_examples=examples(4), deadline=None, suppress_health_check=list(HealthCheck))


def wrong(case: Case, shown: list[Preview], last: int | None) -> list[str]:
    """What differs between a preview and the oracle's answers of the instants that are shown."""
    lines = []
    for query_preview in shown:
        query = query_preview.query
        shown_query = previews._asked(query, query_preview.newest, last)
        begin, end = previews._interval([shown_query], query_preview.newest, last)
        expected = oracle.answers(shown_query, case.events, case.stream.time, begin, end)
        ascending = [(name, "ascending") for name in ("window_end",)]
        lines += [
            f"{query.name}: {line}"
            for line in oracle.compare(shown_query, query_preview.answers.sort_by(ascending), expected)
        ]
    return lines


@pytest.mark.parametrize(
    ("format", "generated_cases"),
    [
        ("parquet", cases),
        ("csv", cases),
        ("delta", row_cases),
        ("parquet", row_cases),
        ("parquet", sequence_cases),
        ("csv", session_cases),
    ],
)
def test_a_preview_is_what_the_oracle_answers(
    tmp_path_factory: pytest.TempPathFactory, format: str, generated_cases: Callable[..., st.SearchStrategy[Case]]
) -> None:
    """Of every kind of window; the newest windows of each query, and all that end in the last days."""

    @FAST
    @given(generated_cases(4, 40), st.sampled_from((None, DAY // 24, 2 * DAY)))
    def check(generated: Case, last: int | None) -> None:
        times = generated.events["ts"].drop_null()
        assume(len(times))
        is_by_rows = any(not query.kind.has_instants for query in generated.workload.queries)
        spans = [query.window.slide for query in generated.workload.queries if query.kind.has_instants]
        # thousands of windows a query are no preview
        assume(last is None or not spans or last // min(spans) < 500)
        case = stored(generated, tmp_path_factory.mktemp("preview") / "source", format)
        shown, problems = preview(case.workload, 40 * DAY if is_by_rows else last)
        assert [str(problem) for problem in problems if problem.severity == "error"] == []
        assert {query_preview.query.name for query_preview in shown} == {query.name for query in case.workload.queries}
        assert wrong(case, shown, 40 * DAY if is_by_rows else last) == []

    check()


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    world = Laboratory(in_process(), tmp_path)
    world.write(steady())
    return world


STREAMS = """
streams:
  trades: {source: {format: parquet, path: trades.parquet}, time: ts}
  gone: {source: {format: parquet, path: gone.parquet}, schema: {ts: timestamp}, time: ts}
"""

QUERIES = """
-- name: by_symbol
SELECT symbol, count(*) AS n, avg(price) AS mean FROM trades
WINDOW RANGE '25 minutes' SLIDE '10 minutes' ON ts GROUP BY symbol;
-- name: last_rows
SELECT symbol, sum(volume) AS total FROM trades WINDOW ROWS 10 SLIDE 5 PARTITION BY symbol ON ts GROUP BY symbol;
"""


@pytest.fixture
def project(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    monkeypatch.chdir(laboratory.folder)
    Path("streams.yaml").write_text(STREAMS.replace("  gone", "  #"))
    Path("queries.sql").write_text(QUERIES)
    Path("heddle.toml").write_text('streams = "streams.yaml"\nworkload = "queries.sql"\n')
    return laboratory


def test_the_newest_windows_are_shown_and_which_are_not_complete(project: Laboratory) -> None:
    completed = heddle("preview", "--json")
    assert completed.code == 0, completed.err
    by_symbol, last_rows = json.loads(completed.out)["queries"]
    assert by_symbol["newest_event"] == "2013-07-01T01:59:00Z"
    assert [row["window_end"] for row in by_symbol["rows"]] == ["2013-07-01T02:05:00Z"] * 2 + [
        "2013-07-01T01:55:00Z"
    ] * 2
    assert (by_symbol["answers"], by_symbol["incomplete"]) == (4, 2)
    assert [row["symbol"] for row in last_rows["rows"]] == ["B", "A"]
    text = heddle("preview", "--limit", "1", "--last", "1 hour", "--query", "by_symbol").out
    assert "by_symbol: 14 answers" in text
    assert "… 13 more" in text
    assert "newest event 2013-07-01T01:59:00Z: windows that end later are not complete (2 answers)" in text
    assert "last_rows" not in text


def test_a_preview_leaves_nothing_behind(project: Laboratory) -> None:
    before = sorted(project.folder.rglob("*"))
    heddle("preview")
    assert sorted(project.folder.rglob("*")) == before


def test_a_preview_agrees_with_what_a_run_published(project: Laboratory) -> None:
    with without_spark(Clock(1_400_000_000_000_000)):
        ran = heddle("run", "--warehouse", "house", "--from", "2013-07-01", "--to", "2013-07-01T02:00:00")
    assert ran.code == 0, ran.err

    def published() -> list[dict[str, int]]:
        completed = heddle("preview", "--against", "house", "--last", "1 hour", "--json")
        return [query["published"] for query in json.loads(completed.out)["queries"]]

    by_symbol, last_rows = published()
    # the window that is not complete ends after what was published
    assert by_symbol == {"equal": 12, "differ": 0, "missing": 2, "more": 0}
    assert last_rows["equal"] > 0 and last_rows["differ"] == last_rows["missing"] == last_rows["more"] == 0

    table = pq.read_table("trades.parquet")
    cheaper = table.set_column(2, "price", pc.subtract(table["price"], 1.0))
    pq.write_table(cheaper, "trades.parquet")
    assert published()[0] == {"equal": 0, "differ": 12, "missing": 2, "more": 0}
    assert "published: 0 equal, 12 differ, 2 missing" in heddle("preview", "--against", "house", "--last", "1 hour").out
    pq.write_table(table.filter(pc.equal(table["symbol"], "A")), "trades.parquet")
    assert published()[0]["more"] == 6


def test_there_may_be_too_much_to_compare(project: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    Warehouse.open("warehouse")
    with without_spark(Clock(1_400_000_000_000_000)):
        heddle("run", "--warehouse", "warehouse", "--from", "2013-07-01", "--to", "2013-07-01T02:00:00")
    monkeypatch.setattr(previews, "MOST_COMPARED", 3)
    completed = heddle("preview", "--against", "warehouse", "--query", "by_symbol")
    assert (completed.code, "HDL-131" in completed.err) == (2, True)


def test_a_query_that_the_warehouse_does_not_know(project: Laboratory) -> None:
    Warehouse.open("house")
    assert "the warehouse has no such query" in heddle("preview", "--against", "house").out


def test_what_is_wrong_with_one_stream_leaves_the_others(project: Laboratory) -> None:
    Path("streams.yaml").write_text(STREAMS)
    other = "-- name: other\nSELECT count(*) AS n FROM gone WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts;"
    Path("queries.sql").write_text(QUERIES + other)
    completed = heddle("preview")
    assert completed.code == 1
    assert "HDL-401" in completed.err and "by_symbol: 4 answers" in completed.out
    completed = heddle("preview", "--query", "other")
    assert completed.code == 1
    assert "HDL-130" in completed.err and "HDL-401" in completed.err


def test_names_and_spans_are_checked(project: Laboratory) -> None:
    assert "did you mean by_symbol?" in heddle("preview", "--query", "by_symbl").err
    assert "HDL-204" in heddle("preview", "--last", "a while").err


def test_a_preview_in_python(project: Laboratory) -> None:
    version = project.plan(QUERIES)
    assert version == 1
    house = face.open(project.folder / "warehouse")
    shown = house.preview("queries.sql")
    assert shown["by_symbol"].to_pylist()[0]["symbol"] == "A"
    assert len(house.preview("queries.sql", "streams.yaml", last="1 hour")["by_symbol"]) == 14
    with pytest.raises(HeddleError, match="HDL-204"):
        house.preview("queries.sql", last="soon")


def test_streams_of_different_years_are_previewed_each_by_its_own_times(project: Laboratory) -> None:
    """A run over all the time between them would take minutes."""
    late = pq.read_table("trades.parquet")
    moved = pc.add(late["ts"].cast("int64"), 4000 * DAY).cast(late["ts"].type)
    pq.write_table(late.set_column(0, "ts", moved), "later.parquet")
    streams = STREAMS.replace("  gone", "  #") + "  later: {source: {format: parquet, path: later.parquet}, time: ts}\n"
    Path("streams.yaml").write_text(streams)
    Path("queries.sql").write_text(QUERIES + QUERIES.replace("trades", "later").replace("name: ", "name: later_"))
    inputs = load_inputs(["queries.sql"], "streams.yaml")
    shown, problems = preview(inputs.workload)
    assert problems == []
    values = {
        query_preview.query.name: [row["n"] for row in query_preview.answers.to_pylist()]
        for query_preview in shown
        if "by" in query_preview.query.name
    }
    assert values["by_symbol"] == values["later_by_symbol"] == [10, 10, 13, 12]


# ------------------------------------------------------------------------------------------- agreement
def test_rows_agree_whatever_their_order_and_doubles_nearly() -> None:
    rows = [{"k": key, "x": key / 3} for key in range(5)]
    near = [{"k": row["k"], "x": row["x"] * (1 + 1e-12)} for row in rows]
    assert mismatches(rows, near[::-1], ["k"]) == []
    assert [mismatch.kind for mismatch in mismatches(rows, near[1:], ["k"])] == ["missing"]
    assert [mismatch.kind for mismatch in mismatches(rows[1:], near, ["k"])] == ["unexpected"]
    wrong = mismatches([{"k": 1, "x": 2.0}], [{"k": 1, "x": 3.0}], ["k"])
    assert wrong[0].lines() == ["- k: 1, x: 2.0", "+ k: 1, x: 3.0"]
    assert mismatches([{"x": 1.0}], [{"k": 1, "x": 1.0}], ["k"]) == []


def test_a_row_that_says_more_chooses_first() -> None:
    actual = [{"n": 1, "x": 2}, {"n": 1, "x": 3}]
    assert mismatches([{"n": 1}, {"n": 1, "x": 2}], actual, []) == []


@given(st.floats(), st.floats(), st.sampled_from((0.0, 1e-9, 0.1)))
def test_values_are_the_same_both_ways(left: float, right: float, tolerance: float) -> None:
    assert is_same(left, left, tolerance)
    assert is_same(left, right, tolerance) == is_same(right, left, tolerance)
    assert not is_same(left, None) and not is_same(None, right) and is_same(None, None)
