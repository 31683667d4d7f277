"""Which live run is due at a clock, on both sides of each boundary. Times are microseconds, the step is 10."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from optimizer.schedule.definition import Schedule
from optimizer.schedule.groups import Cycle, Group, SubGroup
from optimizer.workload.instants import DAY
from spark_jobs.pipeline.planning import live_runs
from spark_jobs.pipeline.planning.live_runs import ActiveSchedule, DueRun, due, next_due

DELAY = 5
SCHEDULE = Schedule(
    10,
    (Group("g", (SubGroup(5, 1, ("often",)), SubGroup(10, 2, ("seldom",)))),),
    (Cycle(10, ((1, (0,)), (3, (0, 1)), (8, (0,)))),),
    Fraction(0),
    "optimal",
    Fraction(1),
)
"""Something runs at 10, 30, 80, 110, 130, 180, ..."""

WAREHOUSE: Any = None


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set up to where live runs have published, and whether there is a schedule."""

    def set_frontier(reached: int | None, is_scheduled: bool = True) -> None:
        active = ActiveSchedule(7, (SCHEDULE,) if is_scheduled else (), DELAY)
        monkeypatch.setattr(live_runs, "in_force", lambda warehouse, known=None: active)
        monkeypatch.setattr(live_runs, "frontier", lambda warehouse: reached)
        monkeypatch.setattr(live_runs, "refreshed_at", lambda warehouse, instant: {})

    return set_frontier


@pytest.mark.parametrize(
    ("reached", "complete", "expected"),
    [
        (30, 29, None),
        (30, 30, None),
        (30, 31, None),
        (30, 79, None),
        (30, 80, DueRun(7, 30, 80, False)),
        (30, 109, DueRun(7, 30, 80, False)),
        (30, 110, DueRun(7, 30, 110, True)),
        (None, 79, DueRun(7, 10, 30, False)),
        (None, 80, DueRun(7, 30, 80, False)),
    ],
)
def test_a_run_is_due_once_its_instant_is_complete(
    reach: Any, reached: int | None, complete: int, expected: DueRun | None
) -> None:
    reach(reached)
    assert due(WAREHOUSE, complete + DELAY) == expected


def test_a_first_run_begins_where_it_is_asked_to_but_before_its_end(reach: Any) -> None:
    reach(None)
    assert due(WAREHOUSE, 80 + DELAY, begin=79) == DueRun(7, 79, 80, False)
    assert due(WAREHOUSE, 80 + DELAY, begin=80) is None
    reach(30)
    assert due(WAREHOUSE, 80 + DELAY, begin=0) == DueRun(7, 30, 80, False)


@pytest.mark.parametrize(
    ("reached", "complete", "begin", "expected"),
    [
        (None, DAY - 1, None, DueRun(7, -DAY, 0, False)),
        (None, DAY, None, DueRun(7, 0, DAY, False)),
        (None, DAY, DAY - 1, DueRun(7, DAY - 1, DAY, False)),
        (None, DAY, DAY, None),
        (DAY, DAY, None, None),
        (DAY - 1, DAY, None, DueRun(7, DAY - 1, DAY, False)),
        (0, 2 * DAY, None, DueRun(7, 0, 2 * DAY, False)),
    ],
)
def test_without_a_refresh_bound_every_midnight_is_due(
    reach: Any, reached: int | None, complete: int, begin: int | None, expected: DueRun | None
) -> None:
    reach(reached, is_scheduled=False)
    assert due(WAREHOUSE, complete + DELAY, begin) == expected


@pytest.mark.parametrize(
    ("reached", "complete", "is_scheduled", "expected"),
    [
        (30, 30, True, 80),
        (30, 79, True, 80),
        (30, 80, True, 110),
        (80, 30, True, 110),
        (None, 79, True, 80),
        (None, 80, True, 110),
        (None, DAY - 1, False, DAY),
        (None, DAY, False, 2 * DAY),
    ],
)
def test_the_next_run_is_due_after_the_clock_and_the_frontier(
    reach: Any, reached: int | None, complete: int, is_scheduled: bool, expected: int
) -> None:
    reach(reached, is_scheduled)
    assert next_due(WAREHOUSE, complete + DELAY) == expected + DELAY


def test_a_refresh_is_overloaded_when_the_next_one_is_due() -> None:
    active = ActiveSchedule(7, (SCHEDULE,), DELAY)
    assert [active.due_after(instant) for instant in (29, 30, 79)] == [30 + DELAY, 80 + DELAY, 80 + DELAY]
    assert ActiveSchedule(7, (), DELAY).due_after(30) is None
