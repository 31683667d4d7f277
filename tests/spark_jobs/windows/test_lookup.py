"""Answers on demand: those that runs publish, from the same partial rows, at any instant and over any window."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.builder import build_plan
from optimizer.windows.alignment import instants
from optimizer.workload.instants import DAY
from optimizer.workload.values import Window, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.loading import Reader, parse_group, parse_having
from spark_jobs.windows.lookups import kernels
from spark_jobs.windows.lookups import lookups as lookups_module
from spark_jobs.windows.lookups.lookups import Lookups
from tests.historical import historical_cases
from tests.oracle import answers, compare
from tests.spark_jobs.kernels import ALGORITHMS, decoded, normalised
from tests.spark_jobs.windows.lookup_checks import FAST, check_instants, heddle, rows_of, workload_of
from tests.spark_jobs.windows.partial_cases import SECOND, events
from tests.spark_jobs.windows.stored_partials import stored
from tests.workloads import Case, calendar_cases, cases, several_cases


# ------------------------------------------------------------------------------------ against the oracle
@FAST
@given(
    st.one_of(cases(), calendar_cases(), several_cases(), historical_cases()),
    st.sampled_from(ALGORITHMS),
    st.lists(st.integers(0, 1), max_size=6),
    st.booleans(),
)
def test_every_instants_answer_is_the_oracles(case: Case, algorithm: str, homes: list[int], twice: bool) -> None:
    """Every aggregate, HAVING, historical windows, merged families; the partials written by one run or by two."""
    case = normalised(case)
    together = [
        [query.name for query, home in zip(case.workload.queries, homes, strict=False) if home == home_number]
        for home_number in (0, 1)
    ]
    middle = (case.begin + case.end) // 2
    pieces = [(case.begin, middle), (middle, case.end)] if twice and middle > case.begin else [(case.begin, case.end)]
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(stored(Path(folder) / "house", case.workload, decoded(case), pieces, algorithm, together))
        for query in case.workload.queries:
            try:
                lookups = reader.query(query.name)
            except HeddleError as error:
                # no window of its tree ends in the interval
                assert error.diagnostic.code == "HDL-603" and not len(instants(query.window, case.begin, case.end))
                continue
            expected = answers(query, case.events, case.stream.time, case.begin, case.end)
            table = lookups.between(case.begin, case.end)
            assert compare(query, table, expected) == []
            check_instants(query, lookups, table, case)


# ---------------------------------------------------------------------------------------------- by hand
QUERIES = """
-- name: by_symbol
SELECT symbol, count(*) AS n, sum(volume) AS total, max(price) AS high, sum(fee) AS fees
FROM trades WINDOW RANGE '20 seconds' SLIDE '10 seconds' ON ts GROUP BY symbol;
-- name: busy
SELECT symbol, late, count(*) AS n, percentile_disc(volume, 0.5) AS middle
FROM trades WINDOW RANGE '20 seconds' SLIDE '10 seconds' ON ts GROUP BY symbol, late HAVING sum(volume) >= 30;
-- name: before
SELECT max(volume) AS most FROM trades WINDOW RANGE '20 seconds' SLIDE '10 seconds' ENDING '20 seconds' AGO ON ts
WHERE price > 0;
-- name: seventh
SELECT count(*) AS n FROM trades WINDOW ROWS 7 SLIDE 7 ON ts;
"""


def trades(seconds: range = range(100)) -> pa.Table:
    """An event a second: A, B and null in turn."""
    rows = (
        {"at": at, "symbol": ("A", "B", None)[at % 3], "price": at / 4 - 1, "volume": at, "late": at % 2 == 0}
        for at in seconds
    )
    return pa.Table.from_batches([events(*rows)])


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    workload = workload_of(QUERIES)
    timed = Workload(tuple(query for query in workload.queries if not query.window.is_rows), workload.streams)
    root = tmp_path_factory.mktemp("lookup") / "house"
    warehouse = stored(root, timed, trades(), [(40 * SECOND, 60 * SECOND), (80 * SECOND, 100 * SECOND)])
    publish_plan(warehouse, build_plan(workload, {"trades": Fraction(1)}))
    return warehouse


def counted(table: pa.Table) -> dict[str | None, tuple[int, int]]:
    return {row["symbol"]: (row["n"], row["total"]) for row in rows_of(table)}


def expected(first: int, last: int) -> dict[str | None, tuple[int, int]]:
    seconds: dict[str | None, list[int]] = {}
    for at in range(first, last):
        seconds.setdefault(("A", "B", None)[at % 3], []).append(at)
    return {symbol: (len(symbol_seconds), sum(symbol_seconds)) for symbol, symbol_seconds in seconds.items()}


def test_trees_that_need_the_same_synopsis_fill_it_for_all_of_their_windows(tmp_path: Path) -> None:
    """Though one of them answers a single instant: unshared, each query is a tree."""
    workload = workload_of(QUERIES)
    (query,) = (query for query in workload.queries if query.name == "by_symbol")
    once = replace(query, name="once", window=replace(query.window, at=(60 * SECOND,)))
    both = Workload((once, query), workload.streams)
    reader = Reader(stored(tmp_path / "house", both, trades(), [(40 * SECOND, 100 * SECOND)], "no-share"))
    assert counted(reader.query("by_symbol").at(50 * SECOND)) == expected(30, 50)
    assert counted(reader.query("once").at(60 * SECOND)) == expected(40, 60)


def test_an_instant_between_two_answers_has_the_earlier(house: Warehouse) -> None:
    lookups = Reader(house).query("by_symbol")
    assert lookups.stored == [(30 * SECOND, 60 * SECOND), (70 * SECOND, 100 * SECOND)]
    for at, last in ((50, 50), (59, 50), (60, 60), (69, 60), (90, 90)):
        table = lookups.at(at * SECOND + 999_999 * (at == 69))
        assert counted(table) == expected(last - 20, last)
        assert set(table["window_end"].to_pylist()) == {pa.scalar(last * SECOND, pa.timestamp("us", "UTC")).as_py()}
    assert lookups.single(59 * SECOND, "B")[:2] == expected(30, 50)["B"]  # type: ignore[index]
    values, valid = lookups.batch(np.array([95, 50, 61]) * SECOND, [("A",), (None,), ("B",)])["total"]
    assert valid.all() and values.tolist() == [
        expected(last - 20, last)[symbol][1] for last, symbol in ((90, "A"), (50, None), (60, "B"))
    ]


@pytest.mark.parametrize(
    "at, where",
    [(49, "before the first"), (110, "after the last"), (70, "not stored"), (80, "not stored"), (-(10**6), "before")],
)
def test_what_is_not_stored_is_said_to_be_so(house: Warehouse, at: int, where: str) -> None:
    lookups = Reader(house).query("by_symbol")
    ask = (
        lambda: lookups.at(at * SECOND),
        lambda: lookups.single(at * SECOND, "A"),
        lambda: lookups.batch(np.array([50, at]) * SECOND),
        lambda: lookups.between((at - 1) * SECOND, at * SECOND) if at % 10 == 0 else lookups.at(at * SECOND),
    )
    for call in ask:
        with pytest.raises(HeddleError, match=rf"HDL-604 .*{where}(.|\n)*1970-01-01T00:00:30Z .. 1970-01-01T00:01:00Z"):
            call()


def test_windows_that_are_too_many_for_a_table_are_checked(house: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    times = np.array([50, 61]) * SECOND
    values, _ = Reader(house).query("by_symbol").batch(times)["total"]
    monkeypatch.setattr(lookups_module, "MOST_WINDOWS", 0)
    lookups = Reader(house).query("by_symbol")
    assert lookups.batch(times)["total"][0].tolist() == values.tolist()
    with pytest.raises(HeddleError, match="HDL-604 .*not stored"):
        lookups.batch(np.array([50, 70]) * SECOND)


def test_any_window_between_edges(house: Warehouse) -> None:
    lookups = Reader(house).query("by_symbol")
    assert counted(lookups.window(30 * SECOND, 60 * SECOND)) == expected(30, 60)
    table = lookups.window(70 * SECOND, 80 * SECOND, group=(None,))
    assert counted(table) == {None: expected(70, 80)[None]} and table.column_names[:3] == [
        *("window_start", "window_end", "symbol")
    ]
    with pytest.raises(HeddleError, match=r"HDL-606 (.|\n)*1970-01-01T00:00:30Z and 1970-01-01T00:00:40Z"):
        lookups.window(33 * SECOND, 60 * SECOND)
    with pytest.raises(HeddleError, match="HDL-606 .*empty"):
        lookups.window(40 * SECOND, 40 * SECOND)
    with pytest.raises(HeddleError, match="HDL-604"):
        lookups.window(50 * SECOND, 80 * SECOND)


def test_having_on_demand(house: Warehouse) -> None:
    lookups = Reader(house).query("busy")
    start, end = 30 * SECOND, 40 * SECOND
    every = lookups.window(start, end, having=False)
    assert every.num_rows == 6
    heavy = {(row["symbol"], row["late"]): row["middle"] for row in rows_of(lookups.window(start, end))}
    volumes: dict[Any, list[int]] = {}
    for at in range(30, 40):
        volumes.setdefault((("A", "B", None)[at % 3], at % 2 == 0), []).append(at)
    assert heavy == {key: sorted(some)[(len(some) - 1) // 2] for key, some in volumes.items() if sum(some) >= 30}
    assert lookups.query.having and {rows["n"] for rows in rows_of(every)} == {1, 2}
    twice = lookups.window(start, end, having=parse_having(lookups.query, "n >= 2 and middle < 35"))
    assert {row["middle"] for row in rows_of(twice)} == {
        sorted(some)[0] for some in volumes.values() if len(some) == 2 and sorted(some)[0] < 35
    }
    for bound, holds in (("n = 1", 2), ("n <= 1.5", 2), ("n > 1", 4), ("n != 2", 2), ("n < 0", 0), ("n >= 0.5", 6)):
        assert lookups.window(start, end, parse_having(lookups.query, bound)).num_rows == holds, bound
    with pytest.raises(HeddleError, match="HDL-608"):
        parse_having(lookups.query, "n >= 'x'")
    with pytest.raises(HeddleError, match="HDL-608"):
        parse_having(lookups.query, "volume > 2")
    foreign = Reader(house).query("before").query.computed[0]
    threshold = replace(parse_having(lookups.query, "n > 1")[0], output=replace(foreign, function="stddev"))
    with pytest.raises(HeddleError, match="HDL-608"):
        lookups.window(start, end, having=[threshold])


def test_a_part_of_time_or_of_the_groups(house: Warehouse) -> None:
    reader = Reader(house)
    some = reader.query("by_symbol", begin=40 * SECOND, end=50 * SECOND)
    assert some.stored == [(30 * SECOND, 50 * SECOND)] and counted(some.at(50 * SECOND)) == expected(30, 50)
    with pytest.raises(HeddleError, match="HDL-604"):
        some.at(60 * SECOND)
    group_lookups = reader.query("by_symbol", groups=[(None,), ("B",)])
    assert sorted(map(repr, group_lookups.groups)) == ["('B',)", "(None,)"]
    assert counted(group_lookups.at(50 * SECOND)) == {symbol: expected(30, 50)[symbol] for symbol in ("B", None)}
    assert reader.query("by_symbol").of_groups([("B",)]).groups == [("B",)]
    for wrong in ([("C",)], [("A", "B")], [(1,)], [()]):
        with pytest.raises(HeddleError, match="HDL-605"):
            reader.query("by_symbol", groups=wrong)  # type: ignore[arg-type]
    lookups = reader.query("by_symbol")
    for ask in (
        lambda: lookups.single(50 * SECOND, "C"),
        lambda: lookups.at(50 * SECOND, ("C",)),
        lambda: lookups.batch([50 * SECOND], [("C",)]),
        lambda: lookups.batch([50 * SECOND], np.array([3])),
        lambda: parse_group(lookups.query, ["A", "B"]),
    ):
        with pytest.raises(HeddleError, match="HDL-605"):
            ask()


def test_historical_windows_reach_back_from_their_instant(house: Warehouse) -> None:
    lookups = Reader(house).query("before")
    (row,) = rows_of(lookups.at(95 * SECOND))
    assert row["instant"].second == 30 and row["window_end"].second == 10 and row["most"] == 69
    assert lookups.single(95 * SECOND) == (69,)
    with pytest.raises(HeddleError, match="HDL-604 .*1970-01-01T00:00:40Z .. 1970-01-01T00:01:00Z"):
        lookups.at(85 * SECOND)


def test_queries_that_cannot_be_looked_up(house: Warehouse, tmp_path: Path) -> None:
    with pytest.raises(HeddleError, match="HDL-507"):
        Reader(house).query("nope")
    with pytest.raises(HeddleError, match="HDL-607"):
        Reader(house).query("seventh")
    empty = Warehouse.open(tmp_path / "empty")
    publish_plan(empty, build_plan(workload_of(QUERIES), {"trades": Fraction(1)}))
    with pytest.raises(HeddleError, match="HDL-603"):
        Reader(empty).query("by_symbol")


def test_the_partials_of_an_older_plan_answer_until_the_new_one_has_run(tmp_path: Path) -> None:
    """The new plan has other edges, so another synopsis; a query that changed has nothing to be answered from."""
    text = "-- name: a\nSELECT count(*) AS n FROM trades WINDOW RANGE '20 seconds' SLIDE '10 seconds' ON ts;\n"
    warehouse = stored(tmp_path / "house", workload_of(text), trades(), [(40 * SECOND, 60 * SECOND)])
    other = text + "-- name: b\nSELECT count(*) AS n FROM trades WINDOW RANGE '7 seconds' SLIDE '5 seconds' ON ts;"
    publish_plan(warehouse, build_plan(workload_of(other), {"trades": Fraction(1)}, "shared"))
    assert Reader(warehouse).query("a").single(60 * SECOND) == (20,)
    publish_plan(warehouse, build_plan(workload_of(text.replace("20 sec", "25 sec")), {"trades": Fraction(1)}))
    with pytest.raises(HeddleError, match="HDL-603"):
        Reader(warehouse).query("a")
    assert Reader(warehouse, plan_version=1).query("a").single(60 * SECOND) == (20,)


@pytest.mark.parametrize(
    "limits",
    [
        (),
        ((lookups_module, "MOST_WINDOWS", 0),),
        ((Lookups, "_position", None),),
        ((lookups_module, "SHORT", 0),),
        ((lookups_module, "BLOCK", 3),),
    ],
    ids=lambda limits: limits[0][1] if limits else "none",
)
def test_sparse_groups_and_large_synopses(
    tmp_path: Path, limits: tuple[tuple[Any, str, int | None], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups that are in some fragments only; what is too large for a table is searched."""
    for owner, name, value in limits:
        monkeypatch.setattr(owner, name, value)
    text = """-- name: plain
    SELECT symbol, count(*) AS n, sum(volume) AS total, avg(volume) AS mean FROM trades
    WINDOW RANGE '20 seconds' SLIDE '10 seconds' ON ts GROUP BY symbol;
    -- name: mixed
    SELECT symbol, sum(price) AS money, min(price) AS low, median(volume) AS middle, mode(volume) AS most,
           max(tip) AS tip
    FROM trades WINDOW RANGE '20 seconds' SLIDE '10 seconds' ON ts GROUP BY symbol HAVING count(volume) > 1;
    -- name: quick
    SELECT symbol, sum(price) AS money, avg(price) AS mean, min(price) AS low, max(volume) AS high,
           median(volume) AS middle, percentile_disc(price, 0.3) AS third, count(tip) AS tips
    FROM trades WINDOW RANGE '20 seconds' SLIDE '10 seconds' ON ts GROUP BY symbol HAVING count(volume) > 1;"""
    rows = (
        {"at": at, "symbol": f"S{at // 7 % 9}", "price": at / 4, "volume": None if at % 5 == 0 else at % 11}
        for at in range(200)
    )
    table = pa.Table.from_batches([events(*rows)])
    reader = Reader(stored(tmp_path / "house", workload_of(text), table, [(100 * SECOND, 200 * SECOND)]))
    rng = np.random.default_rng(0)
    for name in ("plain", "mixed", "quick"):
        lookups = reader.query(name)
        assert len(lookups.cells) < lookups.cells.groups * len(lookups._view.grid)
        times = rng.integers(110, 201, 60) * SECOND
        groups = rng.integers(0, len(lookups.groups), 60)
        batch = lookups.batch(times, groups)
        assert bool(lookups._quick.windows) == (
            name != "mixed" and not {"_position", "MOST_WINDOWS"} & {limit[1] for limit in limits}
        )
        for at, (time, group) in enumerate(zip(times.tolist(), groups.tolist(), strict=True)):
            expected_rows = [row for row in rows_of(lookups.at(time)) if row["symbol"] == lookups.groups[group][0]]
            assert rows_of(lookups.at(time, lookups.groups[group])) == expected_rows
            expected_rows += [{output.name: None for output in lookups.query.outputs}] * (not expected_rows)
            values = [expected_rows[0][output.name] for output in lookups.query.outputs]
            alone = lookups.single(time, *lookups.groups[group])
            assert (list(alone) if alone is not None else [None] * len(values)) == values
            together = [batch[output.name] for output in lookups.query.outputs]
            assert [column[at].item() if valid[at] else None for column, valid in together] == values


def test_a_day_is_cut_at_midnight(tmp_path: Path) -> None:
    """An edge of its own, so a window may end there."""
    text = "-- name: a\nSELECT count(*) AS n FROM trades WINDOW RANGE '70 seconds' SLIDE '70 seconds' ON ts;\n"
    day = DAY // SECOND
    table = trades(range(day - 100, day + 100))
    warehouse = stored(tmp_path / "house", workload_of(text), table, [(DAY - 90 * SECOND, DAY + 90 * SECOND)])
    lookups = Reader(warehouse).query("a")
    before = day - day % 70
    (row,) = rows_of(lookups.window(before * SECOND, DAY))
    assert row["n"] == day % 70
    with pytest.raises(HeddleError, match="HDL-606"):
        lookups.window(before * SECOND, DAY + SECOND)
    assert lookups.query.window == Window(70 * SECOND, 70 * SECOND)


@given(st.integers(1, 10**13), st.integers(-(10**15), 10**15), st.integers(0, 200), st.sampled_from((-1, 0, 1)))
def test_windows_are_numbered_exactly(slide: int, base: int, number: int, beside: int) -> None:
    """By a product of doubles, which is off by one at some multiples of the slide."""
    check_number(slide, base, number, beside)


def test_windows_are_numbered_exactly_where_the_product_is_too_small() -> None:
    slide = next(slide for slide in range(1, 1000) if int(slide * (1.0 / slide)) < 1)
    for offset in (-1, 0, 1):
        check_number(slide, 0, 1, offset)


def check_number(slide: int, base: int, number: int, beside: int) -> None:
    time = base + number * slide + beside
    windows = np.arange(201)
    low, high = np.array([-7]), np.array([-7])
    wrong = kernels.windows_at(np.array([time]), base, slide, windows, windows + 1, low, high)
    expected = (time - base) // slide
    assert (wrong, low[0]) == ((-1, expected) if 0 <= expected < 201 else (0, -7))


# ------------------------------------------------------------------------------------- the command line


def test_the_command_answers_and_explains(house: Warehouse) -> None:
    root = ("--warehouse", str(house.root))
    code, out, _ = heddle("by_symbol", *root, "--at", "1970-01-01T00:00:59", "--group", "B", "--json")
    assert code == 0
    (row,) = json.loads(out)["rows"]
    assert (row["symbol"], row["n"], row["window_end"]) == ("B", 7, "1970-01-01T00:00:50Z")
    code, out, _ = heddle("by_symbol", *root, "--at", "1970-01-01T00:00:59", "--group", "\\N", "--format", "csv")
    assert code == 0 and len(out.splitlines()) == 2
    ending = ("--range", "30 seconds", "--ending-at", "1970-01-01T00:01:00")
    span = ("--from", "1970-01-01T00:00:30", "--to", "1970-01-01T00:01:00")
    outcomes = [heddle("by_symbol", *root, *window_options, "--format", "csv") for window_options in (ending, span)]
    assert outcomes[0] == outcomes[1] and outcomes[0][0] == 0 and len(outcomes[0][1].splitlines()) == 4
    code, out, _ = heddle("busy", *root, *span, "--having", "n >= 6 AND middle > 44", "--json")
    assert code == 0 and all(row["n"] >= 6 and row["middle"] > 44 for row in json.loads(out)["rows"])
    assert "by_symbol" in heddle("by_symbol", *root, "--at", "1970-01-01T00:01")[1]


@pytest.mark.parametrize(
    "code, message, arguments",
    [
        (1, "HDL-604", ["by_symbol", "--at", "1970-01-02"]),
        (1, "HDL-605", ["by_symbol", "--at", "1970-01-01T00:01", "--group", "Z"]),
        (1, "HDL-605", ["by_symbol", "--at", "1970-01-01T00:01", "--group", ""]),
        (1, "HDL-606", ["by_symbol", "--from", "1970-01-01T00:00:31", "--to", "1970-01-01T00:01"]),
        (1, "HDL-607", ["seventh", "--at", "1970-01-01T00:01"]),
        (1, "HDL-507", ["nope", "--at", "1970-01-01T00:01"]),
        (2, "HDL-114", ["by_symbol", "--at", "noon"]),
        (2, "say when", ["by_symbol"]),
        (2, "say when", ["by_symbol", "--at", "1970-01-01", "--from", "1970-01-01"]),
        (2, "--having", ["by_symbol", "--at", "1970-01-01", "--having", "n > 1"]),
    ],
)
def test_the_command_refuses(house: Warehouse, code: int, message: str, arguments: list[str]) -> None:
    exit_code, _, error_output = heddle(*arguments, "--warehouse", str(house.root))
    assert exit_code == code and message in error_output
