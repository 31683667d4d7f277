"""Instants and edges of windows at their boundaries, by hand: what lies on a begin, on an end, and one beside it."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from optimizer.windows.alignment import (
    SPARE,
    Choice,
    Fragments,
    Progression,
    composite_slide,
    day_pieces,
    edge_period,
    has_instant,
    history_start,
    instants,
    instants_between,
    instants_over,
    longest_pause,
    newest_instant,
    progressions,
    starts_of,
)
from optimizer.workload.instants import DAY
from optimizer.workload.values import Calendar, Window

SLIDING = Window(25, 10)
"""Windows [-20, 5), [-10, 15), [0, 25), [10, 35), ..."""

EARLIER = Window(25, 10, ago=3)
"""The same instants 5, 15, 25, 35, ...; the windows [-23, 2), [-13, 12), [-3, 22), [7, 32), ..."""

CHOSEN = Window(10, 10, at=(10, 30, 50))
SO_FAR = Window(60, 20, cumulative=True)
LEFT_OUT = Window.of_calendar(Calendar("Pacific/Apia", (1, "day"), (2, "day")))
"""Every second day; 30 December 2011 is one of them, and never was in Apia."""


def array(*moments: int) -> np.ndarray:
    return np.array(moments, dtype=np.int64)


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("window", "edges"),
    [
        (SLIDING, ((10, 0), (10, 5))),
        (EARLIER, ((10, 2), (10, 7))),
        (Window(30, 10, ago=4), ((10, 6),)),
        (Window(3, 10, ago=1), ((10, 2), (10, 9))),
        (Window(3, 10, ago=10), ((10, 0), (10, 3))),
        (SO_FAR, ((20, 0),)),
    ],
)
def test_historical_windows_have_earlier_edges(window: Window, edges: tuple[Progression, ...]) -> None:
    assert progressions([window]) == edges


def test_a_historical_window_combines_exactly_the_fragments_it_covers() -> None:
    (instant,) = instants(EARLIER, 35, 45).tolist()
    start, end = int(starts_of(EARLIER, array(instant))[0]), instant - EARLIER.ago
    assert (instant, start, end) == (45, 17, 42)
    fragments = Fragments.of([EARLIER])
    assert fragments.between(start, end).tolist() == [17, 22, 27, 32, 37, 42]
    times = np.arange(17, 42)
    firsts = fragments.starts(times)
    # an event a tick that counts its own time
    assert {first: int(times[firsts == first].sum()) for first in sorted(set(firsts.tolist()))} == {
        **{17: 17 + 18 + 19 + 20 + 21, 22: 22 + 23 + 24 + 25 + 26, 27: 27 + 28 + 29 + 30 + 31},
        **{32: 32 + 33 + 34 + 35 + 36, 37: 37 + 38 + 39 + 40 + 41},
    }
    assert fragments.starts(array(16, 42)).tolist() == [12, 42]


@pytest.mark.parametrize(
    ("window", "begin", "end", "expected"),
    [
        (SLIDING, 0, 35, [5, 15, 25, 35]),
        (SLIDING, 5, 34, [15, 25]),
        (EARLIER, 4, 15, [5, 15]),
        (EARLIER, 5, 14, []),
        (CHOSEN, 10, 30, [30]),
        (CHOSEN, 9, 29, [10]),
        (SO_FAR, 0, 60, [20, 40, 60]),
        # local days of 24 hours: UTC-10 on the 28th, and from the 31st on UTC+14; the 30th has no window
        (LEFT_OUT, at("2011-12-28"), at("2012-01-02"), [at("2011-12-29T10:00"), at("2012-01-01T10:00")]),
    ],
)
def test_instants_exclude_the_begin_and_include_the_end(
    window: Window, begin: int, end: int, expected: list[int]
) -> None:
    assert instants(window, begin, end).tolist() == expected
    assert has_instant(window, begin, end) == bool(expected)
    if window.calendar is None:
        assert instants_between(window, begin, end) == len(expected)


def test_an_interval_that_ends_before_it_begins_has_no_instants() -> None:
    assert [instants_between(SLIDING, 30, end) for end in (20, 30, 34, 35)] == [0, 0, 0, 1]
    assert [has_instant(SLIDING, begin, 35) for begin in (34, 35, 36)] == [True, False, False]
    assert [instants_between(LEFT_OUT, 0, end * DAY) for end in (-1, 0, 1, 2)] == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("window", "moments", "starts"),
    [
        (SLIDING, (25, 35), [0, 10]),
        (EARLIER, (25, 35), [-3, 7]),
        (SO_FAR, (20, 60, 80), [0, 0, 60]),
        (LEFT_OUT, (at("2011-12-29T10:00"), at("2012-01-01T10:00")), [at("2011-12-28T10:00"), at("2011-12-31T10:00")]),
    ],
)
def test_windows_start_a_reach_before_their_instant(
    window: Window, moments: tuple[int, ...], starts: list[int]
) -> None:
    assert starts_of(window, array(*moments)).tolist() == starts
    assert starts_of(window, array()).tolist() == []


@pytest.mark.parametrize(("moment", "newest"), [(24, 15), (25, 25), (26, 25), (34, 25), (35, 35), (-5, -5), (-6, -15)])
def test_the_newest_instant_may_be_the_moment_itself(moment: int, newest: int) -> None:
    assert newest_instant(SLIDING, moment) == newest_instant(EARLIER, moment) == newest


def test_the_newest_instant_of_a_calendar_is_before_its_next_midnight() -> None:
    midnight = at("2011-12-29T10:00")
    assert newest_instant(LEFT_OUT, midnight) == newest_instant(LEFT_OUT, at("2012-01-01T09:59")) == midnight
    assert newest_instant(LEFT_OUT, at("2012-01-01T10:00")) == at("2012-01-01T10:00")


@pytest.mark.parametrize(
    ("window", "moments", "expected"),
    [
        (Window(10, 10), (19,), [20]),
        (Window(10, 10), (20,), [30]),
        (Window(10, 10), (9, 20), [10, 20, 30]),
        (Window(10, 10), (0,), [10]),
        (Window(10, 10), (99,), [100]),
        (Window(10, 10), (100,), []),
        (Window(10, 10), (), []),
        # windows [.., 7), [7, 17), [17, 27), [27, 37) of the instants 10, 20, 30, 40
        (Window(10, 10, ago=3), (17,), [30]),
        (Window(10, 10, ago=3), (26,), [30]),
        (Window(10, 10, ago=3), (27,), [40]),
        (CHOSEN, (9,), [10]),
        (CHOSEN, (10,), []),
        (CHOSEN, (20,), [30]),
        (CHOSEN, (19,), []),
        (CHOSEN, (29,), [30]),
        (CHOSEN, (), []),
    ],
)
def test_only_windows_that_may_cover_a_moment_are_enumerated(
    window: Window, moments: tuple[int, ...], expected: list[int]
) -> None:
    assert instants_over(window, array(*moments), 0, 100).tolist() == expected


def test_spare_instants_between_two_moments_are_not_cut_out() -> None:
    window, near = Window(10, 10), 10 + 10 * SPARE
    assert instants_over(window, array(0, near), 0, 10_000).tolist() == list(range(10, near + 11, 10))
    assert instants_over(window, array(0, near + 10), 0, 10_000).tolist() == [10, near + 20]


@pytest.mark.parametrize(
    ("window", "pause", "period"),
    [
        (SLIDING, 10, 10),
        (LEFT_OUT, 3 * DAY, DAY),
        (Window.of_calendar(Calendar("UTC", (1, "month"), (1, "month"))), 32 * DAY, DAY),
        (Window.of_calendar(Calendar("UTC", (1, "day"), None), 3600, cumulative=True), 2 * DAY, 3600),
    ],
)
def test_pauses_and_periods_of_windows(window: Window, pause: int, period: int) -> None:
    assert (longest_pause(window), edge_period(window)) == (pause, period)
    assert composite_slide([window]) == period


def test_chosen_instants_are_numbered_over_all_spans() -> None:
    regular = Choice(SLIDING, ((0, 15), (20, 20), (44, 60)))
    assert len(regular) == 4 and regular[[0, 1, 2, 3]].tolist() == [5, 15, 45, 55]
    chosen = Choice(CHOSEN, ((0, 10), (10, 29), (29, 60)))
    assert len(chosen) == 3 and chosen[[2, 0, 1]].tolist() == [50, 10, 30]


@pytest.mark.parametrize(
    ("windows", "begin", "end", "expected"),
    [
        ([SLIDING], 15, 25, 0),
        ([SLIDING], 15, 24, 24),  # no instant: nothing has to be read
        ([EARLIER], 15, 25, -3),
        ([SLIDING, EARLIER], 15, 25, -3),
        ([CHOSEN], 10, 50, 20),
        ([SO_FAR], 60, 80, 60),
        ([LEFT_OUT], at("2011-12-30"), at("2012-01-02"), at("2011-12-31T10:00")),
    ],
)
def test_a_run_reads_from_the_start_of_its_earliest_window(
    windows: list[Window], begin: int, end: int, expected: int
) -> None:
    assert history_start(windows, begin, end) == expected


@pytest.mark.parametrize(
    ("begin", "end", "occupied", "pieces"),
    [
        (0, DAY, None, [(0, DAY)]),
        (1, DAY + 1, None, [(1, DAY), (DAY, DAY + 1)]),
        (5, 5, None, []),
        (0, 4 * DAY, ("1970-01-02",), [(0, DAY), (DAY, 2 * DAY), (2 * DAY, 4 * DAY)]),
        (DAY, 2 * DAY, ("1970-01-02", "1970-01-04"), [(DAY, 2 * DAY)]),
    ],
)
def test_spans_are_cut_at_midnights_inside_them(
    begin: int, end: int, occupied: tuple[str, ...] | None, pieces: list[tuple[int, int]]
) -> None:
    assert list(day_pieces(begin, end, occupied)) == pieces


def test_an_edge_starts_its_own_fragment_and_ends_the_one_before() -> None:
    fragments = Fragments.of([EARLIER])
    assert [fragments.last_edge(moment) for moment in (6, 7, 11, 12)] == [2, 7, 7, 12]
    assert [fragments.next_edge(moment) for moment in (6, 7, 11, 12)] == [7, 12, 12, 17]
    assert fragments.ends(array(2, 7, DAY - 3)).tolist() == [7, 12, DAY]
    # a midnight is an edge, too
    assert fragments.between(-4, 7).tolist() == [-3, 0, 2, 7]
    assert fragments.starts(array(-1, 0, 1)).tolist() == [-3, 0, 0]
