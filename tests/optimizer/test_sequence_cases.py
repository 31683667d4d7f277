"""Event sequences on given instances with exact answers, by every executor; and partial aggregates cut anywhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from optimizer.sequences import events as events_module
from optimizer.sequences import executors, passes
from optimizer.sequences.answering import answers
from optimizer.sequences.events import Events, compacted
from optimizer.sequences.matches import Answers, Integers, Measure, SequenceQuery
from optimizer.sequences.passes import EXECUTORS
from tests.sizes import examples

Row = tuple[int, int, str, int]
"""Key, time, type, value."""

TYPES = "ABCDEFGH"


def compact(rows: Sequence[Row]) -> Events:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    key, time, value = (np.array(columns[at], dtype=np.int64) for at in (0, 1, 3))
    types = np.array([TYPES.index(name) for name in columns[2]], dtype=np.int32)
    return Events.of(key, time, types, {"x": (value, None)})


def asked(pattern: str, range_: int, slide: int, event: str = "") -> SequenceQuery:
    functions = ("sum", "known", "min", "max") if event else ()
    measures = tuple(Measure(function, "x", TYPES.index(event)) for function in functions)
    return SequenceQuery(tuple(TYPES.index(name) for name in pattern), range_, slide, measures)


def table(found: Answers) -> dict[tuple[int, int], list[object]]:
    columns: list[list[object]] = [list(found.count.integers())]
    for column in found.measures:
        columns.append(column.integers() if isinstance(column, Integers) else column.values.tolist())  # type: ignore[arg-type]
    keys = zip(found.key.tolist(), found.start.tolist(), strict=True)
    return dict(zip(keys, map(list, zip(*columns, strict=True)), strict=True))


def expected(rows: Sequence[Row], one: SequenceQuery) -> dict[tuple[int, int], int]:
    """Counts by dynamic programming in Python's integers, window by window."""
    match_counts = {}
    for key in {row[0] for row in rows}:
        key_rows = sorted((row for row in rows if row[0] == key), key=lambda row: row[1])
        first, last = (key_rows[0][1] - one.range) // one.slide + 1, key_rows[-1][1] // one.slide
        for start in range(first * one.slide, (last + 1) * one.slide, one.slide):
            inside = [row for row in key_rows if start <= row[1] < start + one.range]
            counts = [1] + [0] * len(one.pattern)
            for _, together in itertools.groupby(inside, key=lambda row: row[1]):
                types = [TYPES.index(row[2]) for row in together]
                for at in range(len(one.pattern), 0, -1):
                    counts[at] += types.count(one.pattern[at - 1]) * counts[at - 1]
            if counts[-1]:
                match_counts[key, start] = counts[-1]
    return match_counts


# ------------------------------------------------------------------------------------------ given instances
RUNNING = [
    (0, 1, "A"),
    (0, 2, "B"),
    (0, 2, "A"),
    (0, 3, "C"),
    (0, 4, "B"),
    (0, 5, "B"),
    (0, 6, "D"),
    (0, 7, "C"),
    (0, 8, "D"),
]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_figures_6_and_7(executor: str) -> None:
    """Events at one time do not follow one another: seven sequences, not more."""
    rows = [(*row, 1) for row in RUNNING]
    for pattern, count in (("ABCD", 7), ("AB", 5), ("CD", 3)):
        (query_answers,) = answers(compact(rows), [asked(pattern, 100, 100)], executor)
        assert table(query_answers) == {(0, 0): [count]}


CUT = [
    (0, 1, "A", 5),
    (0, 1, "B", 2),
    (0, 2, "B", 3),
    (0, 2, "A", -1),
    (0, 2, "C", 0),
    (0, 3, "C", 7),
    (0, 3, "B", 4),
    (0, 4, "C", 1),
]


def test_partial_aggregates_merge_at_every_cut() -> None:
    """Also within a run of equal times, and in any order of the pieces; where counts of matches would not."""
    query = asked("ABC", 100, 100, "B")
    for cut in range(len(CUT) + 1):
        pieces = [compact(CUT[:cut]), compact(CUT[cut:])]
        for parts in (pieces, pieces[::-1]):
            (query_answers,) = answers(compacted(parts), [query])
            assert table(query_answers) == {(0, 0): [4, 14, 4, 3, 4]}


WINDOWED = [
    (0, 0, "B", 5), (1, 0, "B", 2), (1, 1, "B", -4), (1, 1, "B", -3), (0, 2, "A", 1), (0, 2, "B", -2), (1, 2, "A", 0),
    (0, 3, "B", 1), (0, 3, "C", 7), (1, 4, "B", 2), (1, 5, "C", -2), (1, 5, "C", 8), (0, 6, "C", -2), (1, 6, "C", -1),
    (0, 7, "A", 5), (0, 7, "A", -1), (1, 9, "A", -3), (0, 11, "A", -3), (0, 12, "B", -1), (0, 12, "B", 3),
]  # fmt: skip


@pytest.mark.parametrize("executor", EXECUTORS)
def test_sliding_windows_of_two_keys(executor: str) -> None:
    """The first windows of a longer instance: [2k, 2k + 8)."""
    (query_answers,) = answers(compact(WINDOWED), [asked("ABC", 8, 2, "B")], executor, ends=(0, 10))
    assert table(query_answers) == _windowed()


def _windowed() -> dict[tuple[int, int], list[object]]:
    values_by_window: dict[tuple[int, int], list[object]] = {}
    for (key, start), count in expected(WINDOWED, asked("ABC", 8, 2)).items():
        if 0 < start + 8 <= 10:
            inside = [row for row in WINDOWED if row[0] == key and start <= row[1] < start + 8]
            values = [
                b[3] for a in inside for b in inside for c in inside
                if a[2] + b[2] + c[2] == "ABC" and a[1] < b[1] < c[1]
            ]  # fmt: skip
            values_by_window[key, start] = [count, sum(values), len(values), min(values), max(values)]
    return values_by_window


# ------------------------------------------------------------------------------------------------ generated
ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(-40, 40), st.sampled_from("ABC"), st.just(1)), max_size=60)
ASKED = st.builds(
    asked,
    st.lists(st.sampled_from("ABCD"), min_size=1, max_size=6).map("".join),
    st.integers(1, 60),
    st.sampled_from([1, 2, 3, 5, 8, 13, 40]),
)


@pytest.mark.parametrize("executor", [None, *EXECUTORS])
@settings(max_examples=examples(35), deadline=None)
@given(ROWS, st.lists(ASKED, min_size=1, max_size=5))
def test_every_executor_counts_as_dynamic_programming_does(
    executor: str | None, rows: list[Row], queries: list[SequenceQuery]
) -> None:
    for query, query_answers in zip(queries, answers(compact(rows), queries, executor), strict=True):
        assert {place: values[0] for place, values in table(query_answers).items()} == expected(rows, query)


@pytest.mark.parametrize("executor", EXECUTORS)
@settings(max_examples=examples(10), deadline=None)
@given(ROWS, st.lists(ASKED, min_size=1, max_size=5))
def test_every_way_to_count_counts_as_dynamic_programming_does(
    executor: str, rows: list[Row], queries: list[SequenceQuery]
) -> None:
    """Not only the first of an executor's ways, which so few events leave no key to the others."""
    events = compact(rows)
    runs = events.runs
    for group in executors.choose(events, queries, executor):
        group_queries = [queries[i] for i in group.members]
        for number in range(6):
            one_pass = passes.Pass(events, group_queries, None, replace(group, bits=0.0))
            ways = list(one_pass.ladder())
            if number >= len(ways):
                break
            take = ways[number](np.arange(len(runs) - 1))
            for query, query_answers in zip(group_queries, one_pass._climb([partial(_already, take)]), strict=True):
                counts = zip(
                    query_answers.run.tolist(),
                    query_answers.start.tolist(),
                    passes._integers(query_answers).integers(),
                    strict=True,
                )
                counted = {(int(events.key[runs[at]]), begin): count for at, begin, count in counts}
                uncounted_keys = set(events.key[runs[:-1][take[1]]].tolist())
                assert counted == {
                    at: count for at, count in expected(rows, query).items() if at[0] not in uncounted_keys
                }


@pytest.mark.parametrize("executor", EXECUTORS)
@settings(max_examples=examples(25), deadline=None)
@given(ROWS, st.lists(ASKED, min_size=1, max_size=5), st.integers(0, 63), st.lists(st.integers(0, 5), min_size=3))
def test_answers_ascend_when_keys_are_counted_in_different_ways(
    executor: str, rows: list[Row], queries: list[SequenceQuery], chosen: int, numbers: list[int]
) -> None:
    events = compact(rows)
    runs = events.runs
    for group in executors.choose(events, queries, executor):
        group_queries = [queries[i] for i in group.members]
        one_pass = passes.Pass(events, group_queries, None, replace(group, bits=0.0))
        ways = list(one_pass.ladder())
        some = np.array([chosen >> place & 1 == 0 for place in range(len(runs) - 1)], dtype=np.bool_)
        ladder = [partial(_some_of, ways[numbers[0] % len(ways)], some), ways[numbers[1] % len(ways)], ways[-1]]
        for query, query_answers in zip(group_queries, one_pass._climb(ladder), strict=True):
            places = list(zip(events.key[runs[query_answers.run]].tolist(), query_answers.start.tolist(), strict=True))
            assert places == sorted(places)
            assert dict(zip(places, passes._integers(query_answers).integers(), strict=True)) == expected(rows, query)


def _some_of(way: passes.Taker, some: NDArray[np.bool_], chosen: events_module.Longs) -> passes.Taken:
    """What a way takes of some keys; the others are left."""
    parts, failed = way(chosen[some])
    uncounted = ~some
    uncounted[some] = failed
    return parts, uncounted


def _already(taken: passes.Taken, chosen: events_module.Longs) -> passes.Taken:
    return taken


@settings(max_examples=examples(40), deadline=None)
@given(ROWS, st.lists(ASKED, min_size=1, max_size=3), st.lists(st.integers(0, 60), max_size=3))
def test_pieces_and_their_order_change_nothing(rows: list[Row], queries: list[SequenceQuery], cuts: list[int]) -> None:
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    pieces = [compact(rows[low:high]) for low, high in itertools.pairwise(bounds)]
    tables = [table(query_answers) for query_answers in answers(compact(rows), queries)]
    assert [table(query_answers) for query_answers in answers(compacted(pieces[::-1]), queries)] == tables


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("length", [8, 20, 40])
def test_counts_beyond_64_bits_are_exact(executor: str, length: int) -> None:
    rows = [(0, time, "A", 1) for time in range(90)]
    query = asked("A" * length, 64, 16)
    (query_answers,) = answers(compact(rows), [query], executor)
    assert {place: values[0] for place, values in table(query_answers).items()} == expected(rows, query)
    assert math.comb(64, length) in [values[0] for values in table(query_answers).values()]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_counts_beyond_38_digits_are_told(executor: str) -> None:
    rows = [(0, time, "A", 1) for time in range(200)]
    (huge, small) = answers(compact(rows), [asked("A" * 64, 200, 200), asked("AA", 200, 200)], executor)
    assert huge.count.over.all() and huge.count.integers() == [None]
    assert small.count.integers() == [math.comb(200, 2)]


@pytest.mark.parametrize("executor", [None, *EXECUTORS])
@pytest.mark.parametrize("often", [1, 15, 500, 1000, 2**26, 2**40])
def test_counts_of_every_size_side_by_side(executor: str | None, often: int) -> None:
    """Prefixes of one pattern that take 64 bits, 128 or more than 38 digits, events that stand for many, windows with
    gaps between them, and keys of which one has more than the next."""
    rng = np.random.default_rng(often)
    rows: list[Row] = []
    counts: list[int] = []
    for each, many in enumerate((900, 40, 600)):
        times = np.unique(rng.integers(0, 600, many) + 400 * rng.integers(0, 2, many))
        rows += [(each, time, TYPES[rng.integers(0, 4)], 1) for time in times.tolist()]
        counts += [int(rng.integers(often // 2, often)) + 1 if row[2] in "AB" else 1 for row in rows[len(counts) :]]
    key, time = (np.array([row[at] for row in rows]) for at in (0, 1))
    kind = np.array([TYPES.index(row[2]) for row in rows], dtype=np.int32)
    events = Events(key, time, kind, np.array(counts))
    texts = ["ABCD" * n for n in (1, 3, 4)] + ["AB" * n for n in (2, 3, 5)] + ["CDCD" * n + "ABAB" for n in (1, 2)]
    few = ["AB", "ABAB", "CABAD", "DC"]
    queries = [asked(text, 96, 16) for text in (few if often == 2**26 else [*texts, *few, "DCDC", "CCDD" * 2])]
    for query, query_answers in zip(queries, answers(events, queries, executor), strict=True):
        assert {place: values[0] for place, values in table(query_answers).items()} == _weighted(events, query)


def _weighted(events: Events, one: SequenceQuery) -> dict[tuple[int, int], int | None]:
    """Counts of events that stand for many, no two of one time, in Python's integers; None for more than 38 digits."""
    weighted_counts: dict[tuple[int, int], int | None] = {}
    rows = list(zip(*(column.tolist() for column in (events.key, events.time, events.type, events.count)), strict=True))
    for key in {row[0] for row in rows}:
        for start in range(-one.range // one.slide * one.slide, 1100, one.slide):
            counts = [1] + [0] * len(one.pattern)
            for row in rows:
                if row[0] == key and start <= row[1] < start + one.range:
                    for at in range(len(one.pattern), 0, -1):
                        counts[at] += row[3] * counts[at - 1] * (row[2] == one.pattern[at - 1])
            if counts[-1]:
                weighted_counts[key, start] = counts[-1] if counts[-1] < 10**38 else None
    return weighted_counts


@pytest.mark.parametrize("executor", [None, *EXECUTORS])
def test_a_burst_in_a_quiet_key(executor: str | None) -> None:
    """What the average window holds says little about the fullest."""
    rows = [(0, time, "A", 1) for time in (*range(200), 1_000_000)]
    query = asked("A" * 20, 200, 200)
    (query_answers,) = answers(compact(rows), [query], executor)
    assert table(query_answers) == {(0, 0): [math.comb(200, 20)]}
