"""Combining windows over fragments: every structure answers as plain Python does, in any order."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.intervals import ADD_DOUBLE, MAX, MIN, SECOND_HALF, combine_runs, fold, running_totals, runs

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


def spans(lengths: list[int], chosen: list[tuple[int, int, int]]) -> tuple[np.ndarray, ...]:
    """Valid runs (group, low, high), by group, out of arbitrary numbers."""
    at = np.cumsum([0, *lengths])
    found = []
    for group, a, b in chosen:
        group %= len(lengths)
        low, high = sorted((a % lengths[group], b % lengths[group]))
        found.append((group, int(at[group]) + low, int(at[group]) + high + 1))
    columns = np.array(sorted(found), dtype=np.int64).reshape(-1, 3)
    return at.astype(np.int64), columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy()


# many runs over few fragments make the sparse table the cheaper one, few runs the fold: both are met
lengths_of_groups = st.lists(st.integers(1, 40), min_size=1, max_size=3)
choices = st.lists(st.tuples(*[st.integers(0, 1000)] * 3), max_size=120)


@settings(max_examples=60, deadline=None)
@given(lengths_of_groups, choices, st.randoms(use_true_random=False))
def test_extremes_of_runs_are_those_of_their_elements(lengths: list[int], chosen: list, chance) -> None:
    groups, group, low, high = spans(lengths, chosen)
    values = np.array([[chance.randint(-9, 9)] * 2 for _ in range(sum(lengths))], dtype=np.int64)
    found = combine_runs(values, np.array([MIN, MAX]), groups, group, low, high)
    assert found.tolist() == [
        [int(values[a:b, 0].min()), int(values[a:b, 1].max())] for a, b in zip(low, high, strict=True)
    ]


@settings(max_examples=60, deadline=None)
@given(lengths_of_groups, choices, st.randoms(use_true_random=False))
def test_sums_of_doubles_are_far_inside_the_promised_bound(lengths: list[int], chosen: list, chance) -> None:
    groups, group, low, high = spans(lengths, chosen)
    pool = [1e16, -1e16, 1.0, 0.1, -3.7, 1e-9, 12345.678]
    values = np.array([[chance.choice(pool), 0.0] for _ in range(sum(lengths))])
    operations = np.array([ADD_DOUBLE, SECOND_HALF])
    for found in (combine_runs(values, operations, groups, group, low, high), fold(values, operations, low, high)):
        for (big, small), a, b in zip(found.tolist(), low.tolist(), high.tolist(), strict=True):
            exact = sum(map(Fraction, values[a:b, 0].tolist()))
            bound = 4 * Fraction(EPSILON) * sum(abs(Fraction(x)) for x in values[a:b, 0].tolist())
            # the double-double itself keeps about 100 bits; 2**-40 of the bound leaves room for long runs
            assert abs(Fraction(big) + Fraction(small) - exact) <= bound / 2**40


def test_the_sparse_table_is_met_and_equals_the_fold() -> None:
    """257 fragments (not a power of two) and every run of them: more work than the table costs."""
    length = 257
    pairs = [(a, b) for a in range(0, length, 5) for b in range(a + 1, length + 1, 3)]
    low, high = (np.array(side, dtype=np.int64) for side in zip(*pairs, strict=True))
    values = np.random.default_rng(7).integers(-1000, 1000, (length, 1))
    group, groups = np.zeros(len(low), dtype=np.int64), np.array([0, length])
    assert (high - low).sum() > length * 9 + 2 * len(low)
    for operation in (MIN, MAX):
        operations = np.array([operation])
        found = combine_runs(values, operations, groups, group, low, high)
        assert (found == fold(values, operations, low, high)).all()
    assert (running_totals(values)[high] - running_totals(values)[low])[:, 0].tolist() == [
        int(values[a:b].sum()) for a, b in pairs
    ]


def test_nan_is_the_greatest_value_wherever_it_stands() -> None:
    values = np.array([[1.0, 1.0], [math.nan, math.nan], [3.0, 3.0], [-math.inf, math.inf]])
    low, high = np.array([0, 1, 1, 0, 1]), np.array([3, 3, 2, 4, 4])
    found = fold(values, np.array([MIN, MAX]), low, high)
    assert found[:, 0].tolist()[:2] == [1.0, 3.0]
    assert math.isnan(found[2, 0])  # nothing but NaN: NaN is also the least
    assert found[3, 0] == found[4, 0] == -math.inf
    assert np.isnan(found[:, 1]).all()


def test_infinities_and_nan_in_sums_as_ieee_adds_them() -> None:
    values = np.array([[math.inf, 0.0], [1.0, 0.0], [-math.inf, 0.0], [math.nan, 0.0], [1e308, 0.0], [1e308, 0.0]])
    low, high = np.array([0, 0, 1, 3, 4]), np.array([2, 3, 3, 5, 6])
    found = fold(values, np.array([ADD_DOUBLE, SECOND_HALF]), low, high)
    total = found[:, 0] + found[:, 1]
    assert total[0] == math.inf and math.isnan(total[1]) and total[2] == -math.inf
    assert math.isnan(total[3]) and total[4] == math.inf


def test_running_totals_stay_exact_when_they_wrap() -> None:
    values = np.full((4, 1), 2**62, dtype=np.int64)
    totals = running_totals(values)
    assert int(totals[4, 0]) == 0  # 4 * 2**62 wraps
    assert int((totals[4] - totals[3])[0]) == 2**62
