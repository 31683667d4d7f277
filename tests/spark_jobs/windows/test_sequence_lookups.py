"""Answers on demand of event sequences: those that runs publish, at any instant and over any window."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.windows.alignment import instants
from optimizer.workload.instants import DAY, SECOND
from optimizer.workload.values import ACQ, Window
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.loading import Reader, parse_having
from spark_jobs.windows.lookups import sequence_lookups as sequence_lookups_module
from spark_jobs.windows.lookups.sequence_lookups import SequenceLookups
from tests.oracle import answers, compare
from tests.sizes import examples
from tests.spark_jobs.kernels import ALGORITHMS, decoded, normalised
from tests.spark_jobs.windows.lookup_checks import FAST, check_instants, heddle, rows_of, workload_of
from tests.spark_jobs.windows.partial_cases import events
from tests.spark_jobs.windows.stored_partials import store, stored
from tests.workloads import Case, sequence_cases

LIMITS: dict[str, dict[str, int]] = {
    "as they are": {},
    "small blocks": {"BLOCK_WINDOWS": 3, "BLOCK_ANSWERS": 7, "KEPT_ANSWERS": 2},
}


# ------------------------------------------------------------------------------------ against the oracle
@settings(FAST, max_examples=examples(40))
@given(sequence_cases(), st.sampled_from(ALGORITHMS), st.booleans(), st.integers(0, 3), st.sampled_from(sorted(LIMITS)))
def test_every_instants_answer_is_the_oracles(case: Case, algorithm: str, twice: bool, late: int, limits: str) -> None:
    """Every pattern, window, key and aggregate, HAVING and historical windows; the events written by one run or by two,
    and some of them late: a run over the same time writes them afterwards."""
    case = normalised(case)
    middle = (case.begin + case.end) // 2
    pieces = [(case.begin, middle), (middle, case.end)] if twice and middle > case.begin else [(case.begin, case.end)]
    table = decoded(case)
    in_time = table.take(pa.array([row for row in range(len(table)) if not late or row % 4 != late], pa.int64()))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name, value in LIMITS[limits].items():
            patch.setattr(sequence_lookups_module, name, value)
        warehouse = stored(Path(folder) / "house", case.workload, in_time, pieces, algorithm)
        if late:
            store(warehouse, load_plan(warehouse, 1), table, case.begin, case.end, len(pieces) + 1, again=True)
        reader = Reader(warehouse)
        for query in case.workload.queries:
            if query.pattern is not None:
                check(reader, query, case)


def check(reader: Reader, query: ACQ, case: Case) -> None:
    try:
        lookups = reader.query(query.name)
    except HeddleError as error:
        # no window of its tree ends in the interval
        assert error.diagnostic.code == "HDL-603" and not len(instants(query.window, case.begin, case.end))
        return
    assert isinstance(lookups, SequenceLookups)
    table = lookups.between(case.begin, case.end)
    assert compare(query, table, answers(query, case.events, case.stream.time, case.begin, case.end)) == []
    check_instants(query, lookups, table, case)
    needed = reader.query(query.name, case.begin, case.end)
    check_same(needed.between(case.begin, case.end), table)
    for begin, end in lookups.stored:
        check_window(query, lookups, case, begin, end)
    for group in lookups.groups[:2]:
        alone = reader.query(query.name, groups=[group])
        check_same(alone.between(case.begin, case.end), lookups.between(case.begin, case.end, group))
        assert alone.groups == [group]


def check_same(table: pa.Table, expected: pa.Table) -> None:
    """Doubles up to the rounding of sums, which may be put together in another order."""
    for column, other in zip(table.columns, expected.columns, strict=True):
        values = other.to_pylist()
        if pa.types.is_floating(other.type):
            values = [
                value if value is None else pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True) for value in values
            ]
        assert column.to_pylist() == values


def check_window(query: ACQ, found: SequenceLookups, case: Case, begin: int, end: int) -> None:
    """A window whose ends are no multiples of anything: that of the same events, told from its start."""
    start, until = begin + (end - begin) // 3, end - (end - begin) // 7
    if until <= start or until - start > 1 << 45:
        return
    if query.window.parts:
        with pytest.raises(HeddleError, match="HDL-609 .*several windows"):
            found.window(start, until)
        return
    window_query = replace(query, window=Window(until - start, until - start))
    time = case.stream.time
    index = case.events.column_names.index(time)
    moved = pc.subtract(case.events[time], pa.scalar(start, pa.duration("us")))
    expected = answers(window_query, case.events.set_column(index, time, moved), time, 0, until - start)
    table = found.window(start, until)
    for name in ("window_start", "window_end"):
        moved = pc.subtract(table[name], pa.scalar(start, pa.duration("us")))
        table = table.set_column(table.column_names.index(name), name, moved)
    assert compare(window_query, table, expected) == []


# ---------------------------------------------------------------------------------------------- by hand
PATTERN = "PATTERN SEQ(A, B) ON symbol WINDOW RANGE '20 seconds' SLIDE '10 seconds' ON ts"
QUERIES = f"""
-- name: pairs
SELECT late, count(*) AS n, sum(B.volume) AS total, max(A.price) AS high FROM trades
PATTERN SEQ(A, B) ON symbol WINDOW RANGE '20 seconds' SLIDE '10 seconds' ON ts GROUP BY late;
-- name: many
SELECT count(*) AS n FROM trades {PATTERN} HAVING count(*) > 20;
-- name: before
SELECT count(*) AS n FROM trades
PATTERN SEQ(A, B) ON symbol WINDOW RANGE '20 seconds' SLIDE '10 seconds' ENDING '20 seconds' AGO ON ts;
-- name: by_late
SELECT count(*) AS n FROM trades PATTERN SEQ(A, B) ON symbol PARTITION BY late
WINDOW RANGE '20 seconds' SLIDE '10 seconds' ON ts;
"""


def trades(seconds: range = range(100)) -> pa.Table:
    """An event a second: A, B and null in turn; late ones in turn, too."""
    rows = (
        {"at": at, "symbol": ("A", "B", None)[at % 3], "price": at / 4, "volume": at, "late": at % 2 == 0}
        for at in seconds
    )
    return pa.Table.from_batches([events(*rows)])


def pairs(first: int, last: int, late: bool | None = None) -> list[tuple[int, int]]:
    """The seconds of each sequence in [first, last); ``late``: of this key, None: of all events."""
    seconds = [at for at in range(first, last) if late is None or (at % 2 == 0) == late]
    return [(a, b) for a in seconds for b in seconds if a < b and a % 3 == 0 and b % 3 == 1]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    root = tmp_path_factory.mktemp("sequence_lookup") / "house"
    return stored(root, workload_of(QUERIES), trades(), [(40 * SECOND, 60 * SECOND), (80 * SECOND, 100 * SECOND)])


def counted(table: pa.Table) -> dict[bool, tuple[int, int, float]]:
    return {row["late"]: (int(row["n"]), int(row["total"]), row["high"]) for row in rows_of(table)}


def told(first: int, last: int) -> dict[bool, tuple[int, int, float]]:
    matches = {late: pairs(first, last, late) for late in (False, True)}
    return {late: (len(each), sum(b for _, b in each), max(a for a, _ in each) / 4) for late, each in matches.items()}


def test_an_instant_between_two_is_answered_by_the_one_before(house: Warehouse) -> None:
    lookups = Reader(house).query("pairs")
    for moment in (50 * SECOND, 59 * SECOND + 999_999):
        assert counted(lookups.at(moment)) == told(30, 50)
    (row,) = rows_of(lookups.at(60 * SECOND, (True,)))
    assert (row["late"], int(row["n"]), row["window_end"].second) == (True, len(pairs(40, 60, True)), 0)
    assert lookups.single(60 * SECOND, False)[0] == len(pairs(40, 60, False))  # type: ignore[index]
    values, valid = lookups.batch([60 * SECOND, 50 * SECOND], [(True,), (False,)])["n"]
    assert valid.all() and list(values) == [str(len(pairs(40, 60, True))), str(len(pairs(30, 50, False)))]


def test_a_window_begins_and_ends_anywhere(house: Warehouse) -> None:
    lookups = Reader(house).query("pairs")
    for first, last in ((31, 58), (40, 41), (44, 60)):
        if pairs(first, last):
            assert counted(lookups.window(first * SECOND, last * SECOND)) == told(first, last)
        else:
            assert len(lookups.window(first * SECOND, last * SECOND)) == 0
    # the end is exclusive: the B of second 58 is in the window that ends a microsecond later
    upon, behind = (lookups.window(30 * SECOND, 58 * SECOND + more) for more in (0, 1))
    assert sum(n for n, _, _ in counted(upon).values()) < sum(n for n, _, _ in counted(behind).values())
    with pytest.raises(HeddleError, match="HDL-606"):
        lookups.window(50 * SECOND, 50 * SECOND)
    for first, last in ((0, 50), (55, 85), (90, 101)):
        with pytest.raises(HeddleError, match="HDL-604"):
            lookups.window(first * SECOND, last * SECOND)


def test_thresholds_are_the_querys_or_others(house: Warehouse) -> None:
    lookups = Reader(house).query("many")
    number = len(pairs(40, 60))
    assert [int(row["n"]) for row in rows_of(lookups.at(60 * SECOND))] == [number] * (number > 20)
    short = 43 * SECOND, 50 * SECOND
    assert len(lookups.window(*short)) == 0
    assert [int(row["n"]) for row in rows_of(lookups.window(*short, having=False))] == [len(pairs(43, 50))]
    other = parse_having(lookups.query, "n < 20")
    assert len(lookups.window(*short, having=other)) == 1 and len(lookups.window(40 * SECOND, 60 * SECOND, other)) == 0
    foreign = replace(other[0], output=Reader(house).query("pairs").query.outputs[1])
    with pytest.raises(HeddleError, match="HDL-608"):
        lookups.window(*short, having=[foreign])


def test_historical_windows_reach_back_from_their_instant(house: Warehouse) -> None:
    lookups = Reader(house).query("before")
    (row,) = rows_of(lookups.at(75 * SECOND))
    assert (row["instant"].second, row["window_end"].second, int(row["n"])) == (10, 50, len(pairs(30, 50)))
    assert lookups.single(75 * SECOND) == (len(pairs(30, 50)),)
    with pytest.raises(HeddleError, match="HDL-604 .*1970-01-01T00:00:00Z .. 1970-01-01T00:00:20Z"):
        lookups.at(45 * SECOND)
    # a window that is asked for is not shifted
    (row,) = rows_of(lookups.window(31 * SECOND, 58 * SECOND))
    assert int(row["n"]) == len(pairs(31, 58))


def test_sequences_of_several_keys_are_added_up(house: Warehouse) -> None:
    lookups = Reader(house).query("by_late", groups=[()])
    assert lookups.groups == [()]
    number = len(pairs(40, 60, True)) + len(pairs(40, 60, False))
    assert lookups.single(60 * SECOND) == (number,)
    assert [int(row["n"]) for row in rows_of(lookups.at(60 * SECOND))] == [number]


def test_groups_that_are_not_there(house: Warehouse) -> None:
    reader = Reader(house)
    lookups = reader.query("pairs")
    for ask in (
        lambda: lookups.single(50 * SECOND, None),
        lambda: lookups.at(50 * SECOND, (None,)),
        lambda: lookups.window(40 * SECOND, 50 * SECOND, group=(None,)),
        lambda: lookups.batch([50 * SECOND], np.array([2])),
        lambda: reader.query("pairs", groups=[(None,)]),
    ):
        with pytest.raises(HeddleError, match="HDL-605"):
            ask()
    with pytest.raises(HeddleError, match="HDL-604"):
        lookups.single(70 * SECOND, True)
    with pytest.raises(HeddleError, match="HDL-604 .*00:00:50Z .. 1970-01-01T00:01:10Z"):
        lookups.batch([60 * SECOND, 70 * SECOND], [(True,), (False,)])
    with pytest.raises(ValueError, match="2 instants, 1 groups"):
        lookups.batch([60 * SECOND, 60 * SECOND], [(True,)])


def test_windows_reach_over_midnight(tmp_path: Path) -> None:
    """Rows are of days: one that begins before the window has events of it."""
    day = DAY // SECOND
    text = f"-- name: pairs\nSELECT count(*) AS n FROM trades {PATTERN};"
    span = (DAY - 20 * SECOND, DAY + 40 * SECOND)
    reader = Reader(stored(tmp_path / "house", workload_of(text), trades(range(day - 60, day + 60)), [span]))
    for lookups in (reader.query("pairs"), reader.query("pairs", DAY, DAY + 10 * SECOND)):
        assert lookups.single(DAY + 10 * SECOND) == (len(pairs(day - 10, day + 10)),)
    for groups in (None, [()]):
        lookups = reader.query("pairs", DAY - 5 * SECOND, DAY + 5 * SECOND, groups)
        assert lookups.single(DAY) == (len(pairs(day - 20, day)),)
        with pytest.raises(HeddleError, match="HDL-604"):
            lookups.single(DAY + 10 * SECOND)


def test_nothing_that_matches_is_no_answer(tmp_path: Path) -> None:
    """Whether there is an event of the pattern, or none at all."""
    text = f"-- name: pairs\nSELECT count(*) AS n, avg(B.volume) AS mean FROM trades {PATTERN};"
    span = (40 * SECOND, 60 * SECOND)
    for name, symbols in (("one", range(45, 46)), ("none", range(200, 201))):
        lookups = Reader(stored(tmp_path / name, workload_of(text), trades(symbols), [span])).query("pairs")
        assert len(lookups.at(60 * SECOND)) == len(lookups.between(40 * SECOND, 60 * SECOND)) == 0
        assert len(lookups.window(31 * SECOND, 59 * SECOND)) == 0
        assert lookups.at(60 * SECOND).schema == lookups.between(40 * SECOND, 50 * SECOND).schema
        for values, valid in lookups.batch([60 * SECOND, 50 * SECOND]).values():
            assert values.shape == valid.shape == (len(lookups.groups), 2) and not valid.any()
        if lookups.groups:
            assert lookups.single(60 * SECOND) is None


def test_a_threshold_on_what_exceeds_38_digits_is_no_answer_that_is_known(tmp_path: Path) -> None:
    pattern = f"PATTERN SEQ({', '.join('A' * 64)}) ON symbol WINDOW RANGE '10 minutes' SLIDE '10 minutes' ON ts"
    text = f"-- name: many\nSELECT max(A.volume) AS most FROM trades {pattern} HAVING count(*) > 5;"
    span = (0, 600 * SECOND)
    lookups = Reader(stored(tmp_path / "house", workload_of(text), trades(range(600)), [span])).query("many")
    (row,) = rows_of(lookups.at(600 * SECOND))
    assert row["most"] is None and lookups.single(600 * SECOND) == (None,)
    assert not lookups.batch([600 * SECOND])["most"][1].any()


# ------------------------------------------------------------------------------------- the command line
def test_the_command_answers(house: Warehouse) -> None:
    root = ("--warehouse", str(house.root))
    code, out, _ = heddle("pairs", *root, "--at", "1970-01-01T00:00:59", "--group", "true", "--json")
    (row,) = json.loads(out)["rows"]
    assert code == 0
    assert (int(row["n"]), row["late"], row["window_end"]) == (len(pairs(30, 50, True)), True, "1970-01-01T00:00:50Z")
    code, out, _ = heddle("pairs", *root, "--at", "1970-01-01T00:00:59")
    assert code == 0 and "pairs" in out and str(len(pairs(30, 50, False))) in out
    ending = ("--range", "27 seconds", "--ending-at", "1970-01-01T00:00:58")
    code, out, _ = heddle("pairs", *root, *ending, "--having", "n >= 5", "--json")
    assert code == 0 and {row["late"]: int(row["n"]) for row in json.loads(out)["rows"]} == {
        late: len(pairs(31, 58, late)) for late in (True, False) if len(pairs(31, 58, late)) >= 5
    }


@pytest.mark.parametrize(
    "code, message, arguments",
    [
        (1, "HDL-604", ["pairs", "--at", "1970-01-02"]),
        (1, "HDL-605", ["pairs", "--at", "1970-01-01T00:01", "--group", "\\N"]),
        (1, "HDL-606", ["pairs", "--from", "1970-01-01T00:01", "--to", "1970-01-01T00:01"]),
        (1, "HDL-608", ["pairs", "--from", "1970-01-01T00:00:31", "--to", "1970-01-01T00:01", "--having", "x > 1"]),
    ],
)
def test_the_command_refuses(house: Warehouse, code: int, message: str, arguments: list[str]) -> None:
    exit_code, _, error_output = heddle(*arguments, "--warehouse", str(house.root))
    assert exit_code == code and message in error_output
