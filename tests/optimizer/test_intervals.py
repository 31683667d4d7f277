"""Combining windows over fragments: every structure answers as plain Python does, in any order."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.intervals import ADD_DOUBLE, MAX, MIN, combine_runs, fold, running_totals, runs

EPSILON = 2.0**-52


def offsets(groups: list[list[int]]) -> np.ndarray:
    return np.cumsum([0, *map(len, groups)]).astype(np.int64)


starts_of_groups = st.lists(
    st.lists(st.integers(-50, 50), max_size=12, unique=True).map(sorted), min_size=1, max_size=4
)


@settings(deadline=None)  # the first call compiles
@given(starts_of_groups, st.integers(-60, 60), st.integers(1, 30), st.integers(1, 20), st.integers(0, 8))
def test_runs_are_the_windows_that_hold_a_fragment(
    groups: list[list[int]], first: int, width: int, slide: int, count: int
) -> None:
    starts = np.array([start for group in groups for start in group], dtype=np.int64)
    begins = first + slide * np.arange(count, dtype=np.int64)
    found = list(zip(*(array.tolist() for array in runs(starts, offsets(groups), begins, begins + width)), strict=True))
    expected = []
    for number, group in enumerate(groups):
        base = int(offsets(groups)[number])
        for window, begin in enumerate(begins.tolist()):
            inside = [index for index, start in enumerate(group) if begin <= start < begin + width]
            if inside:
                expected.append((number, window, base + inside[0], base + inside[-1] + 1))
    assert found == expected


def forward(lengths: list[int], steps: list[tuple[int, int]]) -> tuple[np.ndarray, ...]:
    """Runs (group, low, high) as windows make them: by group, both bounds moving forward within one."""
    found, base = [], 0
    for number, length in enumerate(lengths):
        low = high = 0
        for step, width in steps:
            low = min(low + step, length - 1)
            high = min(max(high, low + width), length)
            found.append((number, base + low, base + high))
        base += length
    columns = np.array(found, dtype=np.int64).reshape(-1, 3)
    return columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy()


lengths_of_groups = st.lists(st.integers(1, 40), min_size=1, max_size=3)
steps_of_windows = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20)), max_size=30)


@settings(max_examples=150, deadline=None)
@given(lengths_of_groups, steps_of_windows, st.randoms(use_true_random=False))
def test_extremes_of_runs_are_those_of_their_elements(lengths: list[int], steps: list, chance) -> None:
    group, low, high = forward(lengths, steps)
    for dtype in (np.int64, np.float64):
        values = np.array([[chance.randint(-9, 9)] for _ in range(sum(lengths))], dtype=dtype)
        for operation, plain in ((MIN, np.min), (MAX, np.max)):
            expected = [plain(values[a:b]) for a, b in zip(low, high, strict=True)]
            assert combine_runs(values, operation, group, low, high)[:, 0].tolist() == expected
            assert fold(values, operation, low, high)[:, 0].tolist() == expected


@settings(max_examples=150, deadline=None)
@given(lengths_of_groups, steps_of_windows, st.randoms(use_true_random=False))
def test_sums_of_doubles_are_far_inside_the_promised_bound(lengths: list[int], steps: list, chance) -> None:
    group, low, high = forward(lengths, steps)
    pool = [1e16, -1e16, 1.0, 0.1, -3.7, 1e-9, 12345.678]
    values = np.array([[chance.choice(pool), 0.0] for _ in range(sum(lengths))])
    for found in (combine_runs(values, ADD_DOUBLE, group, low, high), fold(values, ADD_DOUBLE, low, high)):
        for (big, small), a, b in zip(found.tolist(), low.tolist(), high.tolist(), strict=True):
            exact = sum(map(Fraction, values[a:b, 0].tolist()))
            bound = 4 * Fraction(EPSILON) * sum(abs(Fraction(x)) for x in values[a:b, 0].tolist())
            # the double-double itself keeps about 100 bits; 2**-40 of the bound leaves room for long runs
            assert abs(Fraction(big) + Fraction(small) - exact) <= bound / 2**40


def test_nan_is_the_greatest_value_wherever_it_stands() -> None:
    values = np.array([[1.0], [math.nan], [3.0], [-math.inf]])
    low, high = np.array([0, 1, 1, 0, 1]), np.array([3, 3, 2, 4, 4])
    least = fold(values, MIN, low, high)[:, 0]
    assert least.tolist()[:2] == [1.0, 3.0]
    assert math.isnan(least[2])  # nothing but NaN: NaN is also the least
    assert least[3] == least[4] == -math.inf
    assert np.isnan(fold(values, MAX, low, high)).all()
    group, low, high = np.zeros(3, dtype=np.int64), np.array([0, 1, 2]), np.array([2, 3, 4])
    assert combine_runs(values, MIN, group, low, high)[:, 0].tolist() == [1.0, 3.0, -math.inf]
    assert np.isnan(combine_runs(values, MAX, group, low, high)[:2]).all()


def test_infinities_and_nan_in_sums_as_ieee_adds_them() -> None:
    values = np.array([[math.inf, 0.0], [1.0, 0.0], [-math.inf, 0.0], [math.nan, 0.0], [1e308, 0.0], [1e308, 0.0]])
    low, high = np.array([0, 0, 1, 3, 4]), np.array([2, 3, 3, 5, 6])
    total = fold(values, ADD_DOUBLE, low, high).sum(axis=1)
    assert total[0] == math.inf and math.isnan(total[1]) and total[2] == -math.inf
    assert math.isnan(total[3]) and total[4] == math.inf


def test_running_totals_stay_exact_when_they_wrap() -> None:
    values = np.full((4, 1), 2**62, dtype=np.int64)
    totals = running_totals(values)
    assert int(totals[4, 0]) == 0  # 4 * 2**62 wraps
    assert int((totals[4] - totals[3])[0]) == 2**62
