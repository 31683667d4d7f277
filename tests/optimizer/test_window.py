"""Alignment against brute force: where windows start, fragments are cut and runs have to read from."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.windows import alignment
from optimizer.windows.alignment import (
    Fragments,
    absorb,
    composite_slide,
    day_label,
    day_pieces,
    history_start,
    instants,
    progressions,
)
from optimizer.workload.instants import DAY
from optimizer.workload.values import SECOND, Window
from tests.sizes import examples

# small numbers meet all the corners (slide > range, range = k * slide, equal edges) and stay brute-forceable
windows = st.builds(Window, st.integers(1, 40), st.integers(1, 24))
workloads = st.lists(windows, min_size=1, max_size=5)
moments = st.integers(-500, 500)


def brute_edges(found: list[Window], begin: int, end: int) -> list[int]:
    """Every start and end of a window in [begin, end], one window after the other."""
    edges = set()
    for window in found:
        first = math.floor((begin - window.range) / window.slide) - 1
        for k in range(first, math.ceil(end / window.slide) + 2):
            edges |= {k * window.slide, k * window.slide + window.range}
    return sorted(edge for edge in edges if begin <= edge <= end)


def brute_windows(window: Window, begin: int, end: int) -> list[tuple[int, int]]:
    """(start, end) of the windows that end in (begin, end]."""
    starts = range(-1000 * window.slide, 1000 * window.slide, window.slide)
    return [(start, start + window.range) for start in starts if begin < start + window.range <= end]


@given(workloads, moments, st.integers(0, 120))
def test_edges_are_the_starts_and_ends_of_windows(found: list[Window], begin: int, length: int) -> None:
    # days are much longer than these windows: 0 is the only midnight, and an edge of every window
    edges = Fragments.of(found).between(begin, begin + length)
    assert edges.tolist() == brute_edges(found, begin, begin + length)


@given(workloads, st.lists(moments, min_size=1, max_size=20))
def test_the_fragment_of_an_instant_lies_between_two_consecutive_edges(found: list[Window], times: list[int]) -> None:
    fragments = Fragments.of(found)
    edges = brute_edges(found, -1100, 1100)
    starts = fragments.starts(np.array(times, dtype=np.int64))
    ends = fragments.ends(starts)
    for time, start, end in zip(times, starts.tolist(), ends.tolist(), strict=True):
        assert start == max(edge for edge in edges if edge <= time)
        assert end == min(edge for edge in edges if edge > time)
        assert fragments.last_edge(time) == start


@given(
    st.lists(st.builds(Window, st.integers(1, 400), st.integers(1, 400)), min_size=1, max_size=5),
    st.lists(st.integers(-3 * DAY, 3 * DAY), min_size=1, max_size=20),
    st.sampled_from((1, 1000, 60 * SECOND)),
)
def test_table_and_closed_form_give_the_same_fragments(found: list[Window], times: list[int], unit: int) -> None:
    fragments = Fragments.of(Window(window.range * unit, window.slide * unit) for window in found)
    moments = np.array(times, dtype=np.int64)
    by_table = fragments.starts(moments)
    with mock.patch.object(alignment, "TABLE_CELLS", 0):
        assert fragments._table()[0] is None
        by_form = fragments.starts(moments)
    assert by_table.tolist() == by_form.tolist()


def test_a_small_composite_slide_uses_the_table_and_a_large_one_does_not() -> None:
    small = Fragments.of([Window(3600 * SECOND, 300 * SECOND), Window(400 * SECOND, 150 * SECOND)])
    table, tick, period = small._table()
    assert table is not None and (tick, period) == (50 * SECOND, 150 * SECOND)
    large = Fragments.of([Window(SECOND, 999_983), Window(SECOND, 1_000_003)])
    assert large._table()[0] is None


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 40)), min_size=1, max_size=6))
def test_absorbing_keeps_every_edge_and_nothing_superfluous(found: list[tuple[int, int]]) -> None:
    shifted = [(slide, shift % slide) for slide, shift in found]

    def edges(progressions: list[tuple[int, int]]) -> set[int]:
        period = math.lcm(*(slide for slide, _ in shifted))
        return {instant for slide, shift in progressions for instant in range(shift, period, slide)}

    absorbed = list(absorb(shifted))
    assert edges(absorbed) == edges(shifted)
    for progression in absorbed:
        for slide, shift in absorbed:
            inside = progression[0] % slide == 0 and progression[1] % slide == shift
            assert (slide, shift) == progression or not inside


def test_progressions_are_zero_and_the_remainder_of_the_range() -> None:
    assert progressions([Window(25, 10)]) == ((10, 0), (10, 5))
    assert progressions([Window(30, 10)]) == ((10, 0),)
    assert progressions([Window(3, 10)]) == ((10, 0), (10, 3))  # slide > range: a gap of 7
    assert progressions([Window(25, 10), Window(5, 5)]) == ((5, 0),)
    assert composite_slide([Window(1, 6), Window(1, 4), Window(9, 10)]) == 60


@given(windows, moments, st.integers(0, 200))
def test_window_ends_are_those_in_the_half_open_interval(window: Window, begin: int, length: int) -> None:
    ends = instants(window, begin, begin + length)
    assert ends.tolist() == [end for _, end in brute_windows(window, begin, begin + length)]


@given(workloads, moments, st.integers(0, 200))
def test_history_starts_with_the_earliest_window_that_ends_in_the_interval(
    found: list[Window], begin: int, length: int
) -> None:
    end = begin + length
    starts = [start for window in found for start, _ in brute_windows(window, begin, end)]
    assert history_start(found, begin, end) == min(starts, default=end)


def test_window_ends_at_the_borders_of_the_interval() -> None:
    hourly = Window(3600, 600)
    assert instants(hourly, 0, 600).tolist() == [600]  # an end on `begin` belongs to the run before
    assert instants(hourly, -1, 0).tolist() == [0]
    assert instants(Window(100, 600), 0, 700).tolist() == [100, 700]


@settings(max_examples=examples(50))
@given(workloads, st.integers(-5 * DAY, 5 * DAY))
def test_no_fragment_crosses_midnight(found: list[Window], time: int) -> None:
    fragments = Fragments.of(Window(window.range * 7919, window.slide * 3_600_000_011) for window in found)
    start = int(fragments.starts(np.array([time]))[0])
    end = int(fragments.ends(np.array([start]))[0])
    assert start <= time < end
    assert day_label(start) == day_label(end - 1) == day_label(time)
    assert start // DAY == (end - 1) // DAY


def test_midnights_cut_a_long_fragment() -> None:
    weekly = Fragments.of([Window(7 * DAY, 7 * DAY)])
    times = np.array([-DAY - 1, -1, 0, DAY - 1, DAY], dtype=np.int64)
    assert weekly.starts(times).tolist() == [-2 * DAY, -DAY, 0, 0, DAY]
    assert weekly.ends(np.array([-2 * DAY, -DAY, 0])).tolist() == [-DAY, 0, DAY]
    assert weekly.between(-DAY, 2 * DAY).tolist() == [-DAY, 0, DAY, 2 * DAY]


@given(st.integers(-4 * DAY, 4 * DAY), st.integers(0, 4 * DAY))
def test_day_pieces_tile_a_span_and_stay_within_a_day(begin: int, length: int) -> None:
    pieces = list(day_pieces(begin, begin + length))
    assert sum(last - first for first, last in pieces) == length
    assert [first for first, _ in pieces[1:]] == [last for _, last in pieces[:-1]]
    assert all(first // DAY == (last - 1) // DAY for first, last in pieces)
    assert not pieces or (pieces[0][0], pieces[-1][1]) == (begin, begin + length)


def test_days_have_names_also_before_the_epoch() -> None:
    assert [day_label(instant) for instant in (-1, 0, DAY, 1_372_636_800_000_000)] == [
        "1969-12-31",
        "1970-01-01",
        "1970-01-02",
        "2013-07-01",
    ]
