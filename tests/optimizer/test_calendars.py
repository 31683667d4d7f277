"""Windows of calendars and cumulative ones: where they are, against days counted one by one, and what plans make of
them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.plan.builder import build_plan
from optimizer.plan.explain import explain
from optimizer.search.cost import PAPER, SearchProblem, measured
from optimizer.search.search import ALGORITHMS
from optimizer.search.weave_share import Trees, pair_rates
from optimizer.windows.alignment import (
    Fragments,
    composite_slide,
    ends_of,
    history_start,
    instants,
    longest_pause,
    newest_instant,
    progressions,
    starts_of,
)
from optimizer.windows.calendars import clock, zones
from optimizer.windows.edge_counting import EdgeCounter, edge_rate
from optimizer.workload.instants import format_instant, instant_of_text
from optimizer.workload.values import (
    ACQ,
    LONG,
    SECOND,
    STRING,
    TIMESTAMP,
    Calendar,
    Output,
    Source,
    Stream,
    Window,
    Workload,
)
from tests.calendars import windows_between
from tests.historical import ENDS, historical_windows
from tests.sizes import examples
from tests.workloads import CHANGES, irregular_windows, several_windows

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND


def at(text: str) -> int:
    return int(np.datetime64(text, "us").astype(np.int64))


def spans(window: Window, begin: str, end: str) -> list[tuple[str, str]]:
    ends = instants(window, at(begin), at(end))
    starts = starts_of(window, ends)
    return [(format_instant(a), format_instant(b)) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def days(zone: str, length: int = 1, slide: int = 1) -> Window:
    return Window.of_calendar(Calendar(zone, (length, "day"), (slide, "day")))


def months(zone: str, length: int = 1, slide: int = 1) -> Window:
    return Window.of_calendar(Calendar(zone, (length, "month"), (slide, "month")))


# ----------------------------------------------------------------------------------------------- where they are
@settings(max_examples=examples(150), deadline=None)
@given(
    irregular_windows(),
    st.sampled_from((*CHANGES, at("2100-03-01"), at("2199-12-31"))),
    st.integers(-3000, 200),
    st.integers(0, 3000),
    st.integers(-1, 1),
)
def test_windows_are_those_counted_day_by_day(window: Window, change: int, back: int, span: int, odd: int) -> None:
    begin = change + back * 15 * MINUTE + odd
    end = begin + span * 15 * MINUTE
    expected = windows_between(window, begin, end)
    ends = instants(window, begin, end)
    starts = starts_of(window, ends)
    assert ends.tolist() == expected["until"].to_pylist()
    assert starts.tolist() == expected["since"].to_pylist()
    assert history_start([window], begin, end) == min(starts.tolist(), default=end)
    fragments = Fragments.of([window])
    assert (fragments.starts(ends) == ends).all() and (fragments.starts(starts) == starts).all()
    if len(ends):
        assert newest_instant(window, end) == ends[-1]
        assert (ends - starts).max() <= window.reach
        assert np.diff(ends).max(initial=0) <= longest_pause(window)


def test_a_day_is_as_long_as_the_clock_says() -> None:
    assert spans(days("Europe/Berlin"), "2024-03-31", "2024-04-01") == [
        ("2024-03-30T23:00:00Z", "2024-03-31T22:00:00Z")
    ]
    assert spans(days("Europe/Berlin"), "2024-10-27", "2024-10-28") == [
        ("2024-10-26T22:00:00Z", "2024-10-27T23:00:00Z")
    ]


def test_months_end_where_they_end() -> None:
    month_spans = spans(months("UTC"), "2024-01-15", "2024-03-15")
    assert month_spans == [
        ("2024-01-01T00:00:00Z", "2024-02-01T00:00:00Z"),
        ("2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"),
    ]
    (quarter,) = spans(months("Asia/Kathmandu", 3, 3), "2024-04-15", "2024-07-15")
    assert quarter == ("2024-03-31T18:15:00Z", "2024-06-30T18:15:00Z")


def test_weeks_begin_on_monday() -> None:
    assert spans(days("UTC", 7, 7), "2024-05-01", "2024-05-10") == [("2024-04-29T00:00:00Z", "2024-05-06T00:00:00Z")]


def test_a_day_that_a_zone_left_out() -> None:
    """Samoa had no 30 December 2011: there is no window of it, and of two that end together the longer one."""
    ends = [end for _, end in spans(days("Pacific/Apia"), "2011-12-29", "2012-01-01")]
    assert ends == ["2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"]
    twice = spans(days("Pacific/Apia", 2), "2011-12-30", "2012-01-02")
    assert twice == [
        ("2011-12-28T10:00:00Z", "2011-12-30T10:00:00Z"),
        ("2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"),
        ("2011-12-30T10:00:00Z", "2012-01-01T10:00:00Z"),
    ]


def test_cumulative_windows_begin_anew_with_each_period() -> None:
    window = Window(DAY, 12 * HOUR, cumulative=True)
    assert spans(window, "2024-01-01", "2024-01-02T12:00:00") == [
        ("2024-01-01T00:00:00Z", "2024-01-01T12:00:00Z"),
        ("2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"),
        ("2024-01-02T00:00:00Z", "2024-01-02T12:00:00Z"),
    ]
    by_the_clock = Window.of_calendar(Calendar("Europe/Berlin", (1, "day"), None), HOUR, cumulative=True)
    assert len(instants(by_the_clock, at("2024-03-30T23:00"), at("2024-03-31T22:00"))) == 23
    assert len(instants(by_the_clock, at("2024-10-26T22:00"), at("2024-10-27T23:00"))) == 25


def test_clocks_are_those_of_the_package() -> None:
    """From 1970 on; before, and from 2200 on, they go on as they are."""
    berlin = clock("Europe/Berlin")
    assert berlin.every_offset == (HOUR, 2 * HOUR)
    assert format_instant(int(berlin.moments[0])) == "1980-04-06T01:00:00Z"
    assert spans(days("Europe/Berlin"), "1900-07-01", "1900-07-02")[0][1] == "1900-07-01T23:00:00Z"
    assert spans(days("Europe/Berlin"), "2500-07-01", "2500-07-02")[0][1] == "2500-07-01T23:00:00Z"
    assert clock("UTC").every_offset == (0,) and len(clock("UTC").moments) == 0
    assert "Europe/Berlin" in zones() and "Europe/../Berlin" not in zones()
    with pytest.raises(KeyError):
        clock("../../etc/passwd")


@settings(max_examples=examples(150), deadline=None)
@given(historical_windows(), st.sampled_from((*ENDS, *CHANGES)), st.integers(-60, 60), st.integers(1, 90))
def test_historical_windows_lie_where_the_oracle_moves_them(window: Window, near: int, back: int, length: int) -> None:
    step = min(window.slide, DAY)
    begin = near + back * step
    end = begin + length * step
    due = instants(window, begin, end)
    fragments = Fragments.of([window])
    for part in window.parts:
        spans = windows_between(part, begin, end).sort_by("instant").to_pydict()
        starts, ends = starts_of(part, due), ends_of(part, due)
        assert (due.tolist(), starts.tolist(), ends.tolist()) == (spans["instant"], spans["since"], spans["until"])
        # so that the instants of an event are one run
        assert (np.diff(starts) >= 0).all() and (np.diff(ends) >= 0).all()
        assert (starts <= ends).all() and (due - starts <= part.reach).all()
        for bound in {*starts.tolist(), *ends.tolist()}:
            assert fragments.last_edge(bound) == bound


@pytest.mark.parametrize(
    ("window", "ago", "instant", "span"),
    [
        # the month so far, against last month up to the same day, or all of it
        ("month so far", (1, "month"), "2026-03-28", ("2026-02-01", "2026-02-28")),
        ("month so far", (1, "month"), "2026-03-29", ("2026-02-01", "2026-03-01")),
        ("month so far", (1, "month"), "2026-03-31", ("2026-02-01", "2026-03-01")),
        ("month so far", (1, "month"), "2026-04-01", ("2026-02-01", "2026-03-01")),
        ("month so far", (1, "month"), "2024-03-29", ("2024-02-01", "2024-02-29")),
        ("month so far", (12, "month"), "2024-02-29", ("2023-02-01", "2023-03-01")),
        ("month so far", (12, "month"), "2024-03-01", ("2023-02-01", "2023-03-01")),
        ("month so far", (12, "month"), "2025-03-01", ("2024-02-01", "2024-03-01")),
        ("month", (12, "month"), "2025-03-01", ("2024-02-01", "2024-03-01")),
        ("month", (1, "month"), "2026-03-01", ("2026-01-01", "2026-02-01")),
        ("month", (3, "month"), "2026-03-01", ("2025-11-01", "2025-12-01")),
        # 31 March is 28 February
        ("day", (1, "month"), "2026-04-01", ("2026-02-28", "2026-03-01")),
        ("day", (1, "month"), "2026-03-31", ("2026-02-28", "2026-03-01")),
        ("day", (1, "month"), "2026-03-01", ("2026-01-28", "2026-02-01")),
        ("day", (7, "day"), "2026-04-01", ("2026-03-24", "2026-03-25")),
    ],
)
def test_bounds_are_moved_by_their_dates(
    window: str, ago: tuple[int, str], instant: str, span: tuple[str, str]
) -> None:
    size, slide = {"month so far": ("month", "day"), "month": ("month",) * 2, "day": ("day",) * 2}[window]
    for zone in ("UTC", "Europe/Berlin", "America/New_York"):
        begin = clock(zone).instants_of
        moved = Window.of_calendar(Calendar(zone, (1, size), (1, slide), 0, ago), 0, size != slide)
        days = np.array([instant, *span], dtype="datetime64[D]").astype(np.int64)
        at, *expected = begin(days, "day").tolist()
        moments = np.array([at], dtype=np.int64)
        assert [starts_of(moved, moments)[0], ends_of(moved, moments)[0]] == expected


def test_hours_move_by_the_clock() -> None:
    """Berlin: 31 March 2024 has no 02:00, 27 October two."""

    def end(instant: str, ago: tuple[int, str]) -> str:
        hourly = Window.of_calendar(Calendar("Europe/Berlin", (1, "day"), None, 0, ago), HOUR, cumulative=True)
        moment = instant_of_text(instant)
        assert moment is not None
        return format_instant(int(ends_of(hourly, np.array([moment], dtype=np.int64))[0]))

    assert [end(f"2024-04-30T{hour:02}:00:00+02:00", (30, "day")) for hour in (1, 2, 3)] == [
        *("2024-03-31T00:00:00Z", "2024-03-31T01:00:00Z", "2024-03-31T01:00:00Z")
    ]
    # of a time that is shown twice the first counts, and the second is what was shown last by then
    assert [end(f"2024-11-27T{hour:02}:00:00+01:00", (1, "month")) for hour in (2, 3)] == [
        *("2024-10-27T00:00:00Z", "2024-10-27T02:00:00Z")
    ]
    assert [end(f"2024-10-27T{hour:02}:00:00Z", (1, "month")) for hour in (0, 1, 2)] == [
        *("2024-09-27T00:00:00Z", "2024-09-27T00:00:00Z", "2024-09-27T01:00:00Z")
    ]


# ----------------------------------------------------------------------------------------------- what plans make
def test_edges_are_daily_progressions_one_for_each_offset() -> None:
    assert progressions([days("Europe/Berlin"), months("Europe/Berlin")]) == ((DAY, 22 * HOUR), (DAY, 23 * HOUR))
    by_the_clock = Window.of_calendar(Calendar("Europe/Berlin", (1, "day"), None), HOUR, cumulative=True)
    # the same fragments as those of an hourly window
    assert progressions([by_the_clock, Window(HOUR, HOUR), days("Europe/Berlin")]) == ((HOUR, 0),)
    assert progressions([Window(DAY, HOUR, cumulative=True)]) == ((HOUR, 0),)
    assert composite_slide([months("Europe/Berlin"), Window(HOUR, 5 * MINUTE)]) == DAY


STREAM = Stream("events", Source("csv", "/events"), (("ts", TIMESTAMP), ("carrier", STRING)), "ts")


def queries(windows: Sequence[Window]) -> tuple[ACQ, ...]:
    outputs = (Output("n", "count", None, None, LONG),)
    return tuple(ACQ(f"q{number}", "events", window, outputs) for number, window in enumerate(windows))


ordinary = st.builds(Window, st.integers(1, 12).map(lambda k: k * 30 * MINUTE), st.sampled_from((HOUR, 3 * HOUR, DAY)))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.one_of(irregular_windows(), several_windows(HOUR), ordinary), min_size=1, max_size=6))
def test_problems_have_the_edges_and_weights_of_their_windows(windows: list[Window]) -> None:
    window_queries = queries(windows)
    problem = SearchProblem.of(window_queries, Fraction(3), PAPER)
    for number, query in enumerate(window_queries):
        item = int(problem.item_of[number])
        assert edge_rate(problem.edges[item]) == edge_rate(progressions([query.window]))
    assert sum(problem.weights) == sum(query.window.overlap_factor for query in window_queries)
    trees = Trees(problem, [[item] for item in range(len(problem))], EdgeCounter())
    rates = pair_rates(trees)
    for x, y in combinations(range(len(problem)), 2):
        assert rates[x, y] == pytest.approx(float(problem.edge_rate([x, y])))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_plans_them(algorithm: str) -> None:
    windows = [
        *(days("Europe/Berlin"), days("America/New_York", 7), months("UTC"), months("Asia/Kathmandu", 3)),
        *(Window(DAY, HOUR, cumulative=True), Window(HOUR, HOUR), Window(3 * HOUR, 30 * MINUTE)),
        days("Pacific/Apia", 2),
        Window.of_several(
            [Window(HOUR, HOUR), Window(3 * HOUR, HOUR, 90 * MINUTE), Window(DAY, HOUR, cumulative=True)]
        ),
    ]
    workload = Workload(queries(windows), (STREAM,))
    for model in (PAPER, measured()):
        plan = build_plan(workload, {"events": Fraction(10)}, algorithm, model)
        assert sorted(query.name for tree in plan.trees for query in tree.queries) == [f"q{k}" for k in range(9)]
        assert all(tree.edges is not None for tree in plan.trees)
        assert [explain(plan, query.name).query for query in workload.queries] == [f"q{k}" for k in range(9)]
