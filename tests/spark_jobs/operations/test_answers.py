"""What the pages of answers read: the newest answers of all queries, one query over time, streams and days."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.pages.lines import sparkline
from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.workload.values import ACQ, DOUBLE, SECOND, STRING, TIMESTAMP, Source, Stream, Workload, decimal
from spark_jobs.audit.unshared.comparison import Comparison, keep_comparison
from spark_jobs.operations import answers
from spark_jobs.operations.answers import list_answers, read_query
from spark_jobs.operations.series import Choice, Sample, Span
from spark_jobs.operations.snapshots import newest_runs
from spark_jobs.operations.trends import read_streams, read_trends
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.results.read import read
from spark_jobs.results.rows import places
from spark_jobs.store.warehouse.data_files import write_files
from spark_jobs.store.warehouse.publish_log import RunRecord, log_event
from spark_jobs.store.warehouse.quarantine import LeftOut
from spark_jobs.store.warehouse.schemas import RESULTS, moment
from spark_jobs.store.warehouse.warehouse import Warehouse, added
from tests.sizes import examples

HOUR = 3_600_000_000
DAY = 24 * HOUR
FIRST = 15_887 * DAY
"""2013-07-01."""

NOW = datetime(2013, 7, 20, tzinfo=UTC)
STREAM = Stream(
    "trades",
    Source("csv", "x"),
    (("ts", TIMESTAMP), ("symbol", STRING), ("price", DOUBLE), ("fee", decimal(8, 2))),
    "ts",
)
QUERIES = """
-- name: grouped
-- owner: research
SELECT symbol, count(*) AS n, avg(price) AS mean FROM trades
WINDOW RANGE '2 hours' SLIDE '1 hour' ON ts GROUP BY symbol;
-- name: plain
-- owner: risk
SELECT max(price) AS high, sum(fee) AS fees FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts;
-- name: texts
SELECT min(symbol) AS first FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts;
-- name: historical
SELECT symbol, max(price) AS high FROM trades
WINDOW RANGE '1 hour' SLIDE '1 hour' ENDING '1 day' AGO ON ts GROUP BY symbol;
-- name: bound
SELECT count(*) AS n FROM trades WINDOW RANGE '6 hours' SLIDE AT MOST '2 hours' ON ts;
"""


def queries(text: str = QUERIES) -> dict[str, ACQ]:
    parsed = parse(text, {"trades": STREAM})
    assert not parsed.diagnostics
    return {query.name: query for query in parsed.queries}


def register(warehouse: Warehouse, known: dict[str, ACQ]) -> int:
    plan = build_plan(Workload(tuple(known.values()), (STREAM,)), {"trades": Fraction(1, 10)}, "weave-share")
    return publish_plan(warehouse, plan, "test", "because")[0]


def answer(query: ACQ, instant: int, key: list[str | None], values: list[Any], **rest: Any) -> dict[str, Any]:
    """An answer as results have it."""
    carried: dict[str, list[Any]] = {"longs": [], "doubles": [], "texts": []}
    for (carrier, _), value in zip(places(query), values, strict=True):
        carried[carrier].append(str(value) if isinstance(value, Decimal) else value)
    row = {
        "day": f"{moment(instant - 1):%Y-%m-%d}",
        "stream": query.stream,
        "query": query.name,
        "window_start": moment(instant - query.window.reach),
        "window_end": moment(instant - query.window.ago),
        "instant": moment(instant),
        "key": json.dumps(key),
        "plan_version": 1,
        "revision": 1,
        "run_id": "run",
        "fingerprint": query.definition,
    }
    return row | carried | rest


def write(warehouse: Warehouse, rows: list[dict[str, Any]]) -> None:
    files = write_files(warehouse.path("results"), pa.Table.from_pylist(rows, schema=RESULTS))
    with warehouse.lease() as token:
        warehouse.commit("results", warehouse.table("results"), [added(file) for file in files], token)


def log(warehouse: Warehouse, begin: int, end: int, event: Any = "published", **rest: Any) -> None:
    defaults = {"answers": 10, "rows_scanned": 100, "cpu_seconds": {"partials": 2.0, "finals": 6.0}, "live": True}
    record = RunRecord(f"run/{begin}", 1, begin, end, **({"revision": 1} | defaults | rest))
    log_event(warehouse, record, event, f"{begin}", 1)


@pytest.fixture
def house(tmp_path: Path) -> Warehouse:
    warehouse = Warehouse.open(tmp_path / "house")
    assert register(warehouse, queries()) == 1
    return warehouse


# ---------------------------------------------------------------------------------------------- the list
def test_a_warehouse_without_a_query_or_an_answer(tmp_path: Path, house: Warehouse) -> None:
    empty = list_answers(Warehouse.open(tmp_path / "empty"), Choice(), NOW)
    assert (empty.queries, empty.states, empty.total, empty.pages) == ((), {}, 0, 1)
    listing = list_answers(house, Choice(), NOW)
    assert [(query.name, query.newest, query.sparkline, query.state) for query in listing.queries] == [
        (name, None, None, "running") for name in ("bound", "grouped", "historical", "plain", "texts")
    ]
    assert listing.days == ("", "") and listing.owners == ("", "research", "risk")


def test_the_newest_answers_of_each_query(house: Warehouse) -> None:
    known = queries()
    grouped, plain, texts, historical = (known[name] for name in ("grouped", "plain", "texts", "historical"))
    hour = FIRST + HOUR
    write(
        house,
        [
            answer(grouped, hour, ["A"], [3, 1.5]),
            answer(grouped, hour, ["B"], [4, 9.0], error="HDL-601"),
            answer(grouped, hour + HOUR, ["A"], [5, 2.0], revision=2),
            answer(plain, hour, [], [math.nan, Decimal("1.25")]),
            answer(plain, hour + HOUR, [], [7.5, Decimal("2.50")]),
            answer(texts, hour, [], ["AAPL"]),
            answer(historical, hour, ["A"], [8.0]),
            answer(historical, hour, ["B"], [6.0]),
            # an older definition's outputs have other places
            answer(plain, hour + 2 * HOUR, [], [1e9, Decimal(1)], fingerprint="0" * 16),
        ],
    )
    listed = {query.name: query for query in list_answers(house, Choice(), NOW).queries}
    line = listed["grouped"].sparkline
    assert line is not None and (line.output, line.groups, line.grouping) == ("n", 1, "sum")
    assert line.samples == (Sample(hour, 7.0, 1), Sample(hour + HOUR, 5.0, 2))
    assert listed["grouped"].newest == (hour - HOUR, hour + HOUR, 2) and listed["grouped"].errors == 1
    line = listed["plain"].sparkline
    assert line is not None and (line.output, line.grouping) == ("high", "")
    assert line.samples == (Sample(hour + HOUR, 7.5, 1),) and listed["plain"].errors == 0
    assert listed["texts"].sparkline is None and listed["texts"].text == "AAPL"
    line = listed["historical"].sparkline
    assert line is not None and line.grouping == "largest" and line.samples == (Sample(hour, 8.0, 1),)
    assert listed["historical"].newest == (hour - HOUR - DAY, hour - DAY, 1)


def test_only_the_newest_days_are_read_and_more_for_who_has_nothing_there(house: Warehouse) -> None:
    known = queries()
    rows = [answer(known["plain"], FIRST + day * DAY + HOUR, [], [float(day), Decimal(1)]) for day in range(20)]
    write(house, [*rows, answer(known["texts"], FIRST + 14 * DAY + HOUR, [], ["late"])])
    write(house, [answer(known["grouped"], FIRST + 2 * DAY + HOUR, ["A"], [1, 1.0])])
    listing = list_answers(house, Choice(), NOW)
    listed = {query.name: query for query in listing.queries}
    line = listed["plain"].sparkline
    assert line is not None and [sample.value for sample in line.samples] == [18.0, 19.0]
    assert listed["texts"].text == "late" and listed["grouped"].newest is None
    assert listing.days == ("2013-07-13", "2013-07-20")


def test_queries_are_chosen_and_come_in_pages(house: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    def names(**choice: Any) -> list[str]:
        return [query.name for query in list_answers(house, Choice(**choice), NOW).queries]

    assert names(owner="risk") == ["plain"] and names(text="GROU") == ["grouped"] and names(text="zz") == []
    assert len(names(text="trade")) == 5 and names(state="paused") == [] and names(owner="nobody") == []
    monkeypatch.setattr(answers, "SHOWN", 2)
    assert [names(page=page) for page in (1, 2, 3)] == [["bound", "grouped"], ["historical", "plain"], ["texts"]]
    last = list_answers(house, Choice(page=99), NOW)
    assert (last.choice.page, last.pages, last.total) == (3, 3, 5)


def test_what_is_kept_is_never_older_than_the_tables(house: Warehouse, tmp_path: Path) -> None:
    assert len(list_answers(house, Choice(), NOW).queries) == 5
    log(house, FIRST, FIRST + HOUR, lateness={"bound": 60 * SECOND}, empty=["texts"])
    listed = {query.name: query for query in list_answers(house, Choice(), NOW).queries}
    assert listed["bound"].late == 60 * SECOND and listed["grouped"].late is None
    assert [name for name, query in listed.items() if query.is_missing] == ["texts"]
    assert list_answers(house, Choice(), NOW).late == 1
    log(house, FIRST + HOUR, FIRST + 2 * HOUR)
    assert list_answers(house, Choice(), NOW).late == 0
    known = queries()
    del known["texts"]
    assert register(house, known | {"plain": replace(known["plain"], owner="growth")}) == 2
    listing = list_answers(house, Choice(), NOW)
    assert listing.states == {"running": 4, "removed": 1} and "growth" in listing.owners
    assert read_query(house, "plain", now=NOW).cost.plan_version == 2  # type: ignore[union-attr]
    # another warehouse in its place
    house.root.rename(tmp_path / "away")
    assert register(Warehouse.open(tmp_path / "house"), {"other": replace(known["grouped"], name="other")}) == 1
    assert [query.name for query in list_answers(house, Choice(), NOW).queries] == ["other"]


# ---------------------------------------------------------------------------------------------- one query
VALUES = st.one_of(st.none(), st.floats(-1e9, 1e9, allow_nan=False), st.sampled_from([math.nan, math.inf, 0.0]))
KEYS = st.lists(st.sampled_from(["A", "B", "C", None, "<b>"]), min_size=1, max_size=5, unique=True)


@settings(max_examples=examples(12))
@given(data=st.data())
def test_what_is_drawn_is_what_is_read(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every finite value of every group stands in its line, and nothing else: as `heddle read` gives them."""
    warehouse, known = Warehouse.open(tmp_path_factory.mktemp("drawn") / "house"), queries()
    register(warehouse, known)
    keys = data.draw(KEYS)
    rows = []
    chosen = data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=8, unique=True))
    for hours in chosen:
        instant = FIRST + hours * HOUR
        for key in keys:
            values = [data.draw(st.one_of(st.none(), st.integers(-9, 10**12))), data.draw(VALUES)]
            fields = {"revision": data.draw(st.integers(1, 3)), "error": data.draw(st.sampled_from([None, "HDL-601"]))}
            rows.append(answer(known["grouped"], instant, [key], values, **fields))
        fee = data.draw(st.one_of(st.none(), st.decimals(-999, 999, places=2)))
        rows.append(answer(known["plain"], instant, [], [data.draw(VALUES), fee]))
    write(warehouse, rows)
    log(warehouse, FIRST, FIRST + 60 * HOUR)
    # instants at the ends of a span are in it at its end alone
    ends = st.sampled_from([FIRST, *(FIRST + hours * HOUR for hours in chosen)])
    between = st.builds(lambda begin, end: Span("between", min(begin, end), max(begin, end)), ends, ends)
    span = data.draw(st.one_of(st.just(Span("all")), st.just(Span("day")), between))
    for name, outputs in (("grouped", ("n", "mean")), ("plain", ("high", "fees"))):
        view = read_query(warehouse, name, span, now=NOW)
        table = read(warehouse, name, view.span.begin, view.span.end)
        assert view.answers == len(table) and view.earlier == 0
        assert view.failures == (len(table) - table["error"].null_count if "error" in table.schema.names else 0)
        for lines in view.outputs:
            drawn = {(line.label, sample.instant, sample.value) for line in lines.lines for sample in line.samples}
            expected = {
                (
                    ("null" if row["symbol"] is None else row["symbol"]) if name == "grouped" else "",
                    (row["window_end"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1),
                    float(row[lines.output]),
                )
                for row in table.to_pylist()
                if row[lines.output] is not None and math.isfinite(row[lines.output])
            }
            assert drawn == expected
        assert [lines.output for lines in view.outputs] == list(outputs)
    listed = {query.name: query for query in list_answers(warehouse, Choice(), NOW).queries}["grouped"].sparkline
    days = {row["day"] for row in rows}
    newest = sorted(days)[-2:]
    sums: dict[int, float] = {}
    for row in rows:
        if row["query"] == "grouped" and row["day"] in newest and row["longs"][0] is not None:
            instant = (row["instant"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
            sums[instant] = sums.get(instant, 0.0) + row["longs"][0]
    assert {sample.instant: sample.value for sample in (listed.samples if listed else ())} == sums


def test_the_groups_with_the_largest_newest_values_are_drawn(house: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "TOP", 2)
    query = queries()["grouped"]
    rows = [answer(query, FIRST + HOUR, [name], [count, 1.0]) for name, count in (("A", 9), ("B", 5), ("C", 1))]
    rows += [answer(query, FIRST + 2 * HOUR, [name], [count, 1.0]) for name, count in (("A", 1), ("B", 6))]
    write(house, [*rows, answer(query, FIRST + 2 * HOUR, ["D"], [None, 2.0], revision=2, error="HDL-601")])
    view = read_query(house, "grouped", Span("all"), now=NOW)
    assert [group.label for group in view.top] == ["B", "A"] and view.groups == 4
    assert [line.label for line in view.outputs[0].lines] == ["B", "A"]
    assert view.failed[0].code == "HDL-601" and view.failed[0].group == "D" and view.revised == 1
    chosen = read_query(house, "grouped", Span("all"), '["C"]', now=NOW)
    assert [line.label for line in chosen.outputs[0].lines] == ["C"] and chosen.group == '["C"]'
    assert [group.label for group in chosen.top] == ["B", "A", "C"]
    # a group that is not there: the largest again would look like it
    nothing = read_query(house, "grouped", Span("all"), '["Z"]', now=NOW)
    assert nothing.outputs[0].lines == () and nothing.group == ""


def test_a_query_that_was_never_registered_is_coded(house: Warehouse) -> None:
    with pytest.raises(HeddleError, match=r"(?s)HDL-521.*did you mean plain"):
        read_query(house, "plian", now=NOW)


def test_what_a_query_costs_is_its_part_of_what_was_measured(house: Warehouse) -> None:
    for hour in range(3):
        log(house, FIRST + hour * HOUR, FIRST + (hour + 1) * HOUR)
    log(house, FIRST + 3 * HOUR, FIRST + 4 * HOUR, "failed")
    costs = {name: read_query(house, name, now=NOW).cost for name in queries()}
    known = [cost for cost in costs.values() if cost is not None]
    assert len(known) == 5 and sum(cost.part for cost in known) == pytest.approx(3 * 8.0)
    assert all(cost.runs == 3 and cost.measured == 24.0 and cost.compared is None for cost in known)
    assert all(cost.part == pytest.approx(cost.share * 24) for cost in known)
    runs = read_query(house, "plain", now=NOW).runs
    assert [(run.status, run.part is None) for run in runs] == [("failed", True), *[("published", False)] * 3]
    shared = RunRecord("run", 1, FIRST, FIRST + HOUR, cpu_seconds={"partials": 8.0})
    for seconds in (90.0, 5.0):
        sample = {"query": "plain", "rows_scanned": 10, "cpu_seconds": seconds}
        keep_comparison(house, Comparison(5, (sample,), shared))
    cost = read_query(house, "plain", now=NOW).cost
    assert cost is not None and cost.compared is not None
    assert (cost.compared.unshared, cost.compared.part) == (5.0, pytest.approx(8 * cost.share))
    assert (cost.compared.begin, cost.compared.end) == (FIRST, FIRST + HOUR)
    other = read_query(house, "grouped", now=NOW).cost
    assert other is not None and other.compared is None


# --------------------------------------------------------------------------------------- streams and days
def measure(warehouse: Warehouse, begin: int, rows: int, at: int = 0) -> None:
    row = {
        "stream": "trades",
        "interval_start": moment(begin),
        "interval_end": moment(begin + HOUR),
        **{"rows": rows, "rate": rows / 3600, "run_id": "run", "stage_cpu_seconds": "{}"},
        "at": moment(begin + HOUR + at),
    }
    with warehouse.lease() as token:
        warehouse.append("stream_statistics", [row], token)


def arrive(warehouse: Warehouse, name: str, arrived: int, begin: int, end: int, late: int = 0) -> None:
    row = {
        **{"stream": "trades", "identity": name, "path": name, "event": "came", "refused": "[]", "late": late},
        **{"arrived": moment(arrived), "begin": moment(begin), "end": moment(end), "at": moment(arrived)},
    }
    with warehouse.lease() as token:
        warehouse.append("source_files", [row], token)


def test_streams_have_rates_gaps_and_what_came_too_late(house: Warehouse) -> None:
    log(house, FIRST, FIRST + DAY)
    for hour, rows in ((0, 3600), (1, 7200), (2, 0), (6, 3600)):
        measure(house, FIRST + hour * HOUR, rows)
    measure(house, FIRST, 1800, at=1)
    arrive(house, "a", FIRST + HOUR, FIRST, FIRST + HOUR)
    arrive(house, "b", FIRST + 3 * HOUR, FIRST + HOUR, FIRST + 3 * HOUR)
    arrive(house, "c", FIRST + 4 * HOUR, FIRST, FIRST + HOUR, late=5)
    left_out = LeftOut("run", "trades", "HDL-411", 5, "late", FIRST + 5 * HOUR)
    with house.lease() as token:
        house.append("quarantine", [vars(left_out) | {"at": moment(left_out.at)}], token)
    (stream,) = read_streams(house, Span("all"), NOW).streams
    assert stream.name == "trades" and stream.queries == 5 and stream.newest == FIRST + 7 * HOUR
    assert [[sample.value for sample in part] for part in stream.rates] == [[0.5, 2.0, 0.0], [1.0]]
    # read without an event, then not read: one gap
    assert stream.gaps == ((FIRST + 2 * HOUR, FIRST + 6 * HOUR),)
    (day,) = stream.days
    assert (day.day, day.events, day.files, day.unordered, day.refused, day.quarantined) == (
        *("2013-07-01", 12_600, 3, 1, 5, 5),
    )
    assert read_streams(house, Span("between", FIRST + DAY, FIRST + 2 * DAY), NOW).streams[0].rates == ()


def test_idle_run_is_not_the_newest_with_answers(house: Warehouse) -> None:
    """A scheduled run long after the data publishes no answer: pages show the answers before it."""
    log(house, FIRST, FIRST + DAY, answers=3)
    for number in range(30):
        log(house, FIRST + (900 + number) * DAY, FIRST + (901 + number) * DAY, answers=0)
    write(house, [answer(queries()["plain"], FIRST + HOUR, [], [1.0, Decimal(1)])])
    runs = newest_runs(house)
    assert runs.answered is not None and runs.answered.begin == FIRST and runs.end == FIRST + DAY
    assert not any(query.is_missing for query in list_answers(house, Choice(), NOW).queries)
    assert read_query(house, "plain", Span("day"), now=NOW).answers == 1


@given(st.lists(st.integers(0, 40), min_size=2, max_size=12, unique=True).map(sorted))
def test_small_line_is_broken_over_days_without_answers(days: list[int]) -> None:
    samples = [Sample(FIRST + day * DAY, float(day), 1) for day in days]
    breaks = [later.instant for earlier, later in pairwise(samples) if later.instant - earlier.instant > DAY]
    drawn = sparkline(samples, breaks)
    assert drawn.count("M") == 1 + len(breaks) and drawn.count("M") + drawn.count("L") == len(samples)


def test_days_sum_up_what_their_runs_did(house: Warehouse) -> None:
    log(house, FIRST, FIRST + HOUR, answers=10, lateness={"bound": 1})
    # published again: answers and events count once, what it took counts
    log(house, FIRST, FIRST + HOUR, answers=12, revision=2)
    log(house, FIRST + 23 * HOUR, FIRST + DAY, answers=5, revision=2)
    log(house, FIRST + DAY, FIRST + DAY + HOUR, "failed")
    trends = read_trends(house, Span("all"), NOW)
    first, second = trends.days
    assert (first.day, first.runs, first.failed, first.answers, first.events, first.late) == (
        *("2013-07-01", 3, 0, 17, 200, 1),
    )
    (plan,) = trends.plans
    assert first.measured == 24.0 and first.unshared == pytest.approx(24 * plan.no_share / plan.cost)
    assert (second.day, second.runs, second.failed, second.measured) == ("2013-07-02", 0, 1, None)
    assert trends.compared == ()
