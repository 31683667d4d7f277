"""Refreshes of schedules in and around an interval, by hand. The step is 10 microseconds."""

from __future__ import annotations

from fractions import Fraction

import pytest

from optimizer.plan.instants_due import late, newest, next_tick, ticks
from optimizer.plan.rhythms import Rhythm, changes, explained, rhythms
from optimizer.schedule.definition import Schedule
from optimizer.schedule.groups import Cycle, Group, SubGroup

FIRST = Schedule(
    10,
    (Group("g", (SubGroup(5, 1, ("often",)), SubGroup(10, 2, ("seldom",)))),),
    (Cycle(10, ((1, (0,)), (3, (0, 1)), (8, (0,)))),),
    Fraction(0),
    "optimal",
    Fraction(1),
)
"""Runs at 10, 30 (with the other sub-group), 80, 110, 130, ..."""

OTHER = Schedule(
    10, (Group("h", (SubGroup(4, 1, ("even",)),)),), (Cycle.periodic([4]),), Fraction(0), "hybrid", Fraction(1)
)
"""Runs at 0, 40, 80, ..."""

ENDING = Schedule(
    10, (Group("e", (SubGroup(4, 1, ("over",), until=8),)),), (Cycle.periodic([4]),), Fraction(0), "hybrid", Fraction(1)
)
"""Runs at 40 and 80, and no more."""

BOTH = (FIRST, OTHER)


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (30, 80, [(40, ("even",)), (80, ("often", "even"))]),
        (29, 79, [(30, ("often", "seldom")), (40, ("even",))]),
        (80, 109, []),
        (80, 80, []),
    ],
)
def test_refreshes_of_all_schedules_in_an_interval(
    begin: int, end: int, expected: list[tuple[int, tuple[str, ...]]]
) -> None:
    assert ticks(BOTH, begin, end) == expected


def test_the_next_refresh_is_after_and_the_newest_at_or_before() -> None:
    assert [next_tick(BOTH, after) for after in (29, 30, 39, 40)] == [30, 40, 40, 80]
    assert [newest(BOTH, instant) for instant in (29, 30, 39, 40, 79, 80)] == [10, 30, 30, 40, 40, 80]
    assert [next_tick((ENDING,), after) for after in (39, 40, 79, 80)] == [40, 80, 80, None]
    assert next_tick((ENDING, OTHER), 80) == 120 and next_tick((), 0) is None


def test_the_newest_refresh_is_at_most_the_longest_bound_ago() -> None:
    assert [newest((ENDING,), instant) for instant in (80, 119, 120, 500)] == [80, 80, None, None]


@pytest.mark.parametrize(
    ("begin", "end", "refreshed", "expected"),
    [
        (0, 50, {"often": 29, "seldom": 30}, [(50, ("often",))]),
        (0, 59, {"often": 29, "seldom": 30}, [(50, ("often",))]),
        (49, 50, {"often": 29, "seldom": 30}, [(50, ("often",))]),
        (50, 59, {"often": 29, "seldom": 30}, []),
        (0, 50, {"often": 30, "seldom": 30}, []),
    ],
)
def test_a_late_run_answers_at_its_last_step(
    begin: int, end: int, refreshed: dict[str, int], expected: list[tuple[int, tuple[str, ...]]]
) -> None:
    assert late((FIRST,), begin, end, refreshed) == expected


def test_rhythms_of_queries() -> None:
    assert list(rhythms(FIRST)) == [
        Rhythm("often", 50, 50, Fraction(100, 3), ()),
        Rhythm("seldom", 100, 100, Fraction(100), ("often",)),
    ]
    assert list(rhythms(OTHER)) == [Rhythm("even", 40, 40, Fraction(40), ())]


def test_a_changed_rhythm_is_named_and_an_equal_one_is_not() -> None:
    slower = Schedule(
        10, (Group("h", (SubGroup(5, 1, ("even",)),)),), (Cycle.periodic([5]),), Fraction(0), "hybrid", Fraction(1)
    )
    assert changes((OTHER,), (OTHER,)) == ()
    (line,) = changes((OTHER,), (slower,))
    assert line.startswith("even every ")
    assert explained((FIRST,), "even") == () and len(explained((FIRST,), "seldom")) == 3
