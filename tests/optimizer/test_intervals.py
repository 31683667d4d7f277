"""Combining windows over fragments: every structure answers as plain Python does, in any order."""

from __future__ import annotations

import functools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.aggregates.sketches import registers_of
from optimizer.aggregates.state_kinds import ADD, ADD_DOUBLE, BIT_AND, BIT_OR, BIT_XOR, MAX, MIN
from optimizer.combine import choose as choose_module
from optimizer.combine.choose import COSTS, STRUCTURES, choose, combine_pairs, combine_runs
from optimizer.combine.distinct import DistinctCounter
from optimizer.combine.elements import column_values, doubles, element_columns, ordinals
from optimizer.combine.frequent import modes, top_k
from optimizer.combine.hyperloglog import hll_counts
from optimizer.combine.prefix_sums import PrefixSums, running_totals
from optimizer.combine.sparse_tables import DisjointSparseTable, SparseTable
from optimizer.combine.two_stacks import combine_one_by_one
from optimizer.combine.wavelet_matrix import WaveletMatrix
from optimizer.papers.reference.interval_quantiles import BaseIntervalQuantiles, quantile_rank
from optimizer.papers.reference.online_intervals import (
    BaseIntervals,
    LandmarkIntervals,
    MaterializeAll,
    MaterializeNone,
    OnlineAggregate,
    RunningIntervals,
    SearchTree,
    base_intervals,
    landmark_split,
    time_window,
    tuple_window,
)
from tests.benchmarks import intervals as benchmark
from tests.sizes import examples

EPSILON = 2.0**-52
LEAST, GREATEST = -(2**63), 2**63 - 1
NUMBERS = [LEAST, LEAST + 1, -5, -1, 0, 0, 1, 1, 7, 2**62, GREATEST]
REALS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.0, -0.0, 1.5, 1.5, -2.25, 5e-324, 1e308]


def fold(values: np.ndarray, operation: int, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Combine of each run (a, width), one fragment after the other."""
    return column_values(
        combine_one_by_one(element_columns(values, operation), operation, low, low, high), values.dtype
    )


def forward(lengths: list[int], steps: list[tuple[int, int]]) -> tuple[np.ndarray, ...]:
    """Runs (group, low, high) as windows make them: by group, both bounds moving forward within one."""
    runs, base = [], 0
    for number, length in enumerate(lengths):
        low = high = 0
        for step, width in steps:
            low = min(low + step, length - 1)
            high = min(max(high, low + width), length)
            runs.append((number, base + low, base + high))
        base += length
    columns = np.array(runs, dtype=np.int64).reshape(-1, 3)
    return columns[:, 0].copy(), columns[:, 1].copy(), columns[:, 2].copy()


lengths_of_groups = st.lists(st.integers(1, 40), min_size=1, max_size=3)
steps_of_windows = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20)), max_size=30)


@settings(max_examples=examples(85), deadline=None)
@given(lengths_of_groups, steps_of_windows, st.randoms(use_true_random=False))
def test_extremes_of_runs_are_those_of_their_elements(lengths: list[int], steps: list, chance) -> None:
    group, low, high = forward(lengths, steps)
    for dtype in (np.int64, np.float64):
        values = np.array([[chance.randint(-9, 9)] for _ in range(sum(lengths))], dtype=dtype)
        for operation, plain in ((MIN, np.min), (MAX, np.max)):
            expected = [plain(values[a:b]) for a, b in zip(low, high, strict=True)]
            assert combine_runs(values, operation, group, low, high)[:, 0].tolist() == expected
            assert fold(values, operation, low, high)[:, 0].tolist() == expected


@settings(max_examples=examples(150), deadline=None)
@given(lengths_of_groups, steps_of_windows, st.randoms(use_true_random=False))
def test_sums_of_doubles_are_far_inside_the_promised_bound(lengths: list[int], steps: list, chance) -> None:
    group, low, high = forward(lengths, steps)
    pool = [1e16, -1e16, 1.0, 0.1, -3.7, 1e-9, 12345.678]
    values = np.array([[chance.choice(pool), 0.0] for _ in range(sum(lengths))])
    for sums in (combine_runs(values, ADD_DOUBLE, group, low, high), fold(values, ADD_DOUBLE, low, high)):
        for (big, small), a, b in zip(sums.tolist(), low.tolist(), high.tolist(), strict=True):
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


# ------------------------------------------------------------------------------- the brute-force oracle
def order(value: float) -> tuple[bool, float, float]:
    """Spark's order of doubles: NaN last; of the two zeros, which are equal to Spark, the negative one first."""
    return math.isnan(value), value, math.copysign(1.0, value)


def wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


PLAIN: dict[int, Callable[[list[Any]], Any]] = {
    ADD: lambda values: wrapped(sum(values)),
    MIN: lambda values: min(values, key=order if isinstance(values[0], float) else None),
    MAX: lambda values: max(values, key=order if isinstance(values[0], float) else None),
    BIT_AND: lambda values: functools.reduce(lambda a, b: a & b, values),
    BIT_OR: lambda values: functools.reduce(lambda a, b: a | b, values),
    BIT_XOR: lambda values: functools.reduce(lambda a, b: a ^ b, values),
}
OF_DOUBLES = (MIN, MAX)


def written(values: Iterable[Any]) -> list[str]:
    """Values that compare as they print: NaN is NaN, and -0.0 is not 0.0."""
    return [repr(value) for value in values]


def far_inside(found: float | tuple[float, float], values: list[float]) -> bool:
    exact = sum(map(Fraction, values))
    bound = 4 * Fraction(EPSILON) * sum(abs(Fraction(value)) for value in values)
    if isinstance(found, tuple):  # a double-double keeps about 100 bits
        return abs(Fraction(found[0]) + Fraction(found[1]) - exact) <= bound / 2**40
    return abs(Fraction(found) - exact) <= bound


def columns(values: list[Any]) -> np.ndarray:
    return np.array(values, dtype=np.float64 if values and isinstance(values[0], float) else np.int64).reshape(-1, 1)


def drawn(data: st.DataObject, pool: list[Any], least: int, most: int) -> list[Any]:
    """Values of a pool; long lists come from a seed, so that they are drawn quickly."""
    size, chance = data.draw(st.integers(least, most)), random.Random(data.draw(st.integers(0, 10**6)))
    return [chance.choice(pool) for _ in range(size)]


def random_runs(data: st.DataObject, size: int, most: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Runs in any order, none empty; short ones and long ones."""
    chance = random.Random(data.draw(st.integers(0, 10**6)))
    runs = []
    for _ in range(data.draw(st.integers(0, most)) if size else 0):
        low = chance.randrange(size)
        runs.append((low, min(size, low + chance.choice([1, 2, 3, 17, chance.randint(1, size)]))))
    bounds = np.array(runs, dtype=np.int64).reshape(-1, 2)
    return bounds[:, 0].copy(), bounds[:, 1].copy()


@settings(max_examples=examples(125), deadline=None)
@given(st.data())
def test_structures_for_runs_in_any_order_answer_as_plain_python(data: st.DataObject) -> None:
    for pool, operations in ((NUMBERS, tuple(PLAIN)), (REALS, OF_DOUBLES)):
        values = drawn(data, pool, 0, 120)
        low, high = random_runs(data, len(values))
        matrix = columns(values) if values else np.empty((0, 1), dtype=np.int64)
        for operation in operations:
            expected = written(PLAIN[operation](values[a:b]) for a, b in zip(low, high, strict=True))
            structure_answers = {
                "disjoint": DisjointSparseTable(matrix, operation).combine(low, high),
                "fold": fold(matrix, operation, low, high),
            }
            if operation in (MIN, MAX, BIT_AND, BIT_OR):
                structure_answers["sparse"] = SparseTable(matrix, operation).combine(low, high)
            if operation in (ADD, BIT_XOR):
                structure_answers["prefix"] = PrefixSums(matrix, operation).combine(low, high)
            for name, answers in structure_answers.items():
                assert answers.shape == (len(low), 1), name
                assert written(answers[:, 0].tolist()) == expected, (name, operation)


@settings(max_examples=examples(100), deadline=None)
@given(lengths_of_groups, steps_of_windows, st.randoms(use_true_random=False))
def test_runs_that_move_forward_are_answered_as_plain_python(lengths: list[int], steps: list, chance) -> None:
    group, low, high = forward(lengths, steps)
    for pool, operations in ((NUMBERS, tuple(PLAIN)), (REALS, OF_DOUBLES)):
        values = [chance.choice(pool) for _ in range(sum(lengths))]
        for operation in operations:
            expected = written(PLAIN[operation](values[a:b]) for a, b in zip(low, high, strict=True))
            combined = combine_runs(columns(values), operation, group, low, high)
            assert written(combined[:, 0].tolist()) == expected, operation


def test_every_run_of_an_array_has_all_its_fragments_and_no_other() -> None:
    """Every fragment matters: random bits for xor and sum, a bit of its own for or, and, and extremes once each."""
    size, rng = 150, np.random.default_rng(2)
    low, high = (side.ravel() for side in np.meshgrid(np.arange(size), np.arange(1, size + 1)))
    low, high = low[low < high], high[low < high]
    own = np.int64(1) << (np.arange(size) % 63)
    values = {
        ADD: rng.integers(LEAST, GREATEST, size),
        BIT_XOR: rng.integers(LEAST, GREATEST, size),
        BIT_OR: np.where(rng.random(size) < 0.2, own, 0),
        BIT_AND: ~np.where(rng.random(size) < 0.2, own, 0),
        MIN: rng.permutation(size),
        MAX: rng.permutation(size),
    }
    for operation, column in values.items():
        matrix = column[:, None]
        expected = [PLAIN[operation](column[a:b].tolist()) for a, b in zip(low, high, strict=True)]
        assert DisjointSparseTable(matrix, operation).combine(low, high)[:, 0].tolist() == expected
        for name in STRUCTURES:
            if name != "two-stacks" and (name != "sparse" or operation not in (ADD, BIT_XOR)):
                combined = STRUCTURES[name]((column,), operation, low, low, high)
                assert combined[0].tolist() == expected, (name, operation)
        if operation not in (ADD, BIT_XOR):
            assert SparseTable(matrix, operation).combine(low, high)[:, 0].tolist() == expected


@pytest.mark.parametrize("name", COSTS)
def test_whatever_is_chosen_answers_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_module, "choose", lambda *shape: name)
    group, low, high = forward([300], [(3, 40)] * 80)
    order, payload = np.random.default_rng(5).integers(LEAST, GREATEST, (2, 300))
    expected = [a + int(np.argmax(order[a:b])) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    assert combine_pairs(order, payload, True, group, low, high).tolist() == expected


def test_infinities_and_nan_in_sums_of_every_structure() -> None:
    values = [math.inf, 1.0, -math.inf, math.nan, 1e308, 1e308, 1.0]
    low, high = np.array([0, 0, 1, 3, 4, 6]), np.array([2, 3, 3, 5, 6, 7])
    expected = written([math.inf, math.nan, -math.inf, math.nan, math.inf, 1.0])
    matrix = np.stack([values, np.zeros(7)], axis=1)
    assert written(fold(matrix, ADD_DOUBLE, low, high).sum(axis=1).tolist()) == expected
    for online in (BaseIntervals(7, ADD_DOUBLE, float), SearchTree(7, ADD_DOUBLE, float)):
        online.update_many(np.array(values))
        assert written(online.lookup_many(low + 1, high).tolist()) == expected


def test_sums_of_several_columns_wrap_and_come_back() -> None:
    values = np.array([[2**62, 1], [2**62, -1], [2**62, 5], [-7, 0]], dtype=np.int64)
    low, high = np.array([0, 3, 1]), np.array([3, 4, 4])
    expected = [[wrapped(3 * 2**62), 5], [-7, 0], [wrapped(2**63 - 7), 4]]
    assert PrefixSums(values).combine(low, high).tolist() == expected
    assert PrefixSums(values).combine(low, low).tolist() == [[0, 0]] * 3
    assert PrefixSums(np.zeros((0, 2), dtype=np.int64)).combine(low[:1], low[:1]).tolist() == [[0, 0]]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.floats(), max_size=30))
def test_ordinals_have_the_order_of_doubles(values: list[float]) -> None:
    numbers = ordinals(np.array(values))
    assert written(doubles(numbers).tolist()) == written(math.nan if math.isnan(x) else x for x in values)
    for (x, a), (y, b) in zip(
        zip(values, numbers, strict=True), zip(values[1:], numbers[1:], strict=True), strict=False
    ):
        assert (a < b) == (not (math.isnan(x) or math.isnan(y)) and order(x) < order(y)) or math.isnan(y)


def test_negative_nan_is_nan() -> None:
    negative = np.array([np.float64(math.nan), -np.float64(math.nan)])
    negative.view(np.uint64)[1] |= 1 << 63
    assert ordinals(negative)[0] == ordinals(negative)[1] > ordinals(np.array([math.inf]))[0]


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), st.booleans())
def test_pairs_are_compared_by_order_then_payload(data: st.DataObject, greatest: bool) -> None:
    first, second = drawn(data, [LEAST, -1, 0, 3, GREATEST], 1, 100), []
    second = [random.Random(len(first) + i).choice([LEAST, 0, 2]) for i in range(len(first))]
    pairs = list(zip(first, second, strict=True))
    best = max if greatest else min

    def winner(low: int, high: int) -> int:
        return pairs.index(best(pairs[low:high]), low)  # of equal pairs the first

    arrays = np.array(first, dtype=np.int64), np.array(second, dtype=np.int64)
    ways = random_runs(data, len(pairs)), forward([len(pairs)], [(2, 5)] * 20)[1:]
    for low, high in ways:
        winners = combine_pairs(*arrays, greatest, np.zeros_like(low), low, high)
        assert winners.tolist() == [winner(a, b) for a, b in zip(low.tolist(), high.tolist(), strict=True)]


def test_wrong_runs_and_operations_are_refused() -> None:
    ones = np.ones((4, 1), dtype=np.int64)
    zero = np.zeros(1, dtype=np.int64)
    for low, high in ((-1, 2), (0, 5), (2, 2), (3, 1)):
        bounds = np.array([low]), np.array([high])
        with pytest.raises(ValueError, match="does not lie within"):
            combine_pairs(ones[:, 0], ones[:, 0], True, zero, *bounds)
        with pytest.raises(ValueError, match="does not lie within"):
            combine_runs(ones, MIN, zero, *bounds)
        with pytest.raises(ValueError, match="does not lie within"):
            SparseTable(ones, MIN).combine(*bounds)
    run = zero, np.array([4])
    with pytest.raises(ValueError, match="twice"):
        SparseTable(ones, ADD)
    for wrong, operation in ((ones * 1.0, ADD), (ones * 1.0, BIT_OR), (ones, ADD_DOUBLE), (np.ones((4, 2)), MIN)):
        with pytest.raises(ValueError, match="does not combine"):
            combine_runs(wrong, operation, zero, *run)
    for values, operation in ((ones * 1.0, ADD), (ones, MAX)):
        with pytest.raises(ValueError, match="running totals"):
            PrefixSums(values, operation)
    with pytest.raises(ValueError, match="lower and"):
        combine_runs(ones, MIN, zero, zero, np.array([1, 2]))
    with pytest.raises(ValueError, match="as many groups"):
        combine_runs(ones, MIN, zero[:0], *run)
    with pytest.raises(ValueError, match="as many groups"):
        combine_pairs(ones[:, 0], ones[:, 0], True, zero[:0], *run)
    with pytest.raises(ValueError, match="payloads"):
        combine_pairs(ones[:, 0], zero, True, zero, *run)


def test_the_cheapest_structure_that_fits_is_chosen() -> None:
    size = 100_000
    assert choose(size, 10**6, False, size, 10**6 * size // 3) == "sparse"
    assert choose(size, 10**6, True, size, 10**6 * size // 3) == "two-stacks"
    assert choose(size, 10, False, size, 30) == "fold"
    assert choose(size, 20, True, 60, 60) == "fold"
    # many queries, each going over all fragments for a few answers
    assert choose(size, 5_000, True, 1_000 * size, 5_000 * size // 3) == "sparse"
    assert choose(size, 1_000, False, 1, 1_000 * size // 3) != "two-stacks"


def test_the_survey_sees_which_runs_move_forward() -> None:
    def survey(*bounds: tuple[int, int, int]) -> tuple[bool, int, int]:
        return choose_module._survey(*np.array(bounds, dtype=np.int64).reshape(-1, 3).T.copy())

    assert survey() == (True, 0, 0)
    assert survey((0, 0, 4), (0, 2, 6), (0, 9, 10)) == (True, 7, 9)
    assert survey((0, 5, 9), (1, 0, 2)) == (True, 6, 6)
    assert not survey((0, 5, 9), (0, 4, 9))[0] and not survey((0, 5, 9), (0, 6, 8))[0]


# -------------------------------------------------------------------------------- as the paper publishes
def test_case_c1_base_intervals() -> None:
    assert base_intervals(1, 43) == [(1, 32), (33, 40), (41, 42), (43, 43)]
    assert base_intervals(2, 43) == [(2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 40), (41, 42), (43, 43)]
    assert base_intervals(385, 512) == [(385, 512)]
    assert base_intervals(5, 5) == [(5, 5)]
    assert base_intervals(7, 24) == [(7, 8), (9, 16), (17, 24)]
    with pytest.raises(ValueError, match="no interval"):
        base_intervals(0, 4)


@given(st.integers(1, 3000), st.integers(0, 3000))
def test_base_intervals_are_dyadic_adjacent_and_few(left: int, more: int) -> None:
    intervals = base_intervals(left, left + more)
    assert intervals[0][0] == left and intervals[-1][1] == left + more
    assert all(b[0] == a[1] + 1 for a, b in zip(intervals, intervals[1:], strict=False))
    for first, last in intervals:
        width = last - first + 1
        assert width & (width - 1) == 0 and (first - 1) % width == 0
    assert len(intervals) <= 2 * (more + 1).bit_length()


def test_case_c2_landmark_split() -> None:
    assert landmark_split(3257, 5164, 1000) == [(3257, 3999), (4000, 5164)]
    assert landmark_split(4000, 5500, 1000) == [(4000, 4999), (5000, 5500)]
    assert landmark_split(2999, 3999, 1000) == [(2999, 2999), (3000, 3999)]
    assert landmark_split(4000, 4999, 1000) == [(4000, 4999)]
    with pytest.raises(ValueError, match="narrower"):
        landmark_split(1, 999, 1000)


@given(st.integers(1, 40), st.integers(1, 300), st.integers(0, 300))
def test_a_landmark_cuts_an_interval_in_two_at_most(narrowest: int, left: int, more: int) -> None:
    intervals = landmark_split(left, left + narrowest - 1 + more, narrowest)
    assert intervals[0][0] == left and intervals[-1][1] == left + narrowest - 1 + more
    if len(intervals) == 2:
        assert intervals[1][0] == intervals[0][1] + 1 and intervals[1][0] % narrowest == 0
    assert intervals[0][1] - intervals[0][0] < narrowest


def test_case_c8_window_conventions() -> None:
    assert [tuple_window(10, *window) for window in ((4, 0), (10, 3), (15, 0))] == [(7, 10), (1, 7), (1, 10)]
    assert [time_window(106, *window) for window in ((20, 0), (120, 60))] == [(87, 106), (-13, 46)]


def online_structures(longest: int, operation: int, dtype: type) -> list[OnlineAggregate]:
    every = range(1, longest + 1)
    structures: list[OnlineAggregate] = [
        BaseIntervals(longest, operation, dtype),
        LandmarkIntervals(longest, every, operation, dtype),
        LandmarkIntervals(longest, every, operation, dtype, spread=1.0),
        LandmarkIntervals(longest, every, operation, dtype, spread=5.0),
        SearchTree(longest, operation, dtype),
        MaterializeNone(longest, operation, dtype),
    ]
    if operation in (ADD, BIT_XOR):
        windows = [(far, near) for far in range(1, longest + 1) for near in range(far)]
        structures += [RunningIntervals(longest, operation), MaterializeAll(windows, operation)]
    return structures


@settings(max_examples=examples(8), deadline=None)
@given(st.data(), st.integers(1, 12))
def test_online_structures_answer_every_active_window_after_every_update(data: st.DataObject, longest: int) -> None:
    """In lockstep with a list, from the first element to several times around the ring."""
    for pool, dtype, operations in (
        (NUMBERS, int, tuple(PLAIN)),
        (REALS, float, OF_DOUBLES),
        ([1e16, -1e16, 0.1, 3.0], float, (ADD_DOUBLE,)),
    ):
        operation = data.draw(st.sampled_from(operations))
        values = drawn(data, pool, 1, 3 * longest + 2)
        structures = online_structures(longest, operation, dtype)
        windows = [(far, near) for far in range(1, longest + 1) for near in range(far)]
        for length, value in enumerate(values, start=1):
            some = [(far, near) for far, near in windows if near < length]
            some = [some[i] for i in random.Random(length).sample(range(len(some)), min(len(some), 12))]
            plain = [values[tuple_window(length, *window)[0] - 1 : length - window[1]] for window in some]
            far, near = np.array(some, dtype=np.int64).T.copy()
            for structure in structures:
                structure.update(value)
                assert structure.length == length
                nothing = np.empty(0, dtype=structure.dtype)
                replayed = structure.replay(np.zeros(len(far), dtype=np.bool_), nothing, far, near).tolist()
                if operation == ADD_DOUBLE:
                    assert all(map(far_inside, replayed, plain)), structure
                else:
                    assert written(replayed) == written(map(PLAIN[operation], plain)), structure


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), st.integers(1, 40))
def test_a_replayed_input_answers_as_one_by_one(data: st.DataObject, longest: int) -> None:
    chance = random.Random(data.draw(st.integers(0, 10**6)))
    values = drawn(data, NUMBERS, 1, 4 * longest)
    updates, far, near, expected = [True], [], [], []
    for length in range(1, len(values) + 1):
        for _ in range(chance.randrange(3)):
            updates.append(False)
            near.append(chance.randrange(min(length, longest)))
            far.append(chance.randint(near[-1] + 1, longest))
            left, right = tuple_window(length, far[-1], near[-1])
            expected.append(wrapped(sum(values[left - 1 : right])))
        updates.append(length < len(values))
    updates = updates[:-1] if not updates[-1] else updates
    arguments = np.array(updates), np.array(values), np.array(far, dtype=np.int64), np.array(near, dtype=np.int64)
    for structure in online_structures(longest, ADD, int):
        assert structure.replay(*arguments).tolist() == expected, structure
        assert structure.length == len(values)


def test_look_ups_by_position_and_what_they_refuse() -> None:
    for structure in online_structures(8, ADD, int):
        structure.update_many(np.arange(1, 21))
        assert structure.lookup(13, 20) == sum(range(13, 21))
        assert structure.lookup_many(np.array([13, 15, 20]), np.array([13, 18, 20])).tolist() == [13, 66, 20]
        for left, right in ((12, 20), (14, 13), (20, 21), (12, 12)):
            with pytest.raises(ValueError, match="empty, or reaches back"):
                structure.lookup(left, right)
        with pytest.raises(ValueError, match="one value an update"):
            structure.replay(np.ones(2, dtype=bool), np.ones(1), np.empty(0, dtype=int), np.empty(0, dtype=int))
    for structure in online_structures(8, ADD, int):  # with no element yet
        with pytest.raises(ValueError, match="empty, or reaches back"):
            structure.lookup(1, 1)


def test_structures_say_what_they_cannot_do() -> None:
    for make in (lambda: RunningIntervals(5, MAX), lambda: RunningIntervals(5, ADD_DOUBLE)):
        with pytest.raises(ValueError, match="undone"):
            make()
    with pytest.raises(ValueError, match="undone"):
        MaterializeAll([(3, 0)], MIN)
    with pytest.raises(ValueError, match="far > near"):
        MaterializeAll([(3, 3)])
    for structure in (BaseIntervals, SearchTree, MaterializeNone, RunningIntervals):
        with pytest.raises(ValueError, match="at least one"):
            structure(0, ADD)
    with pytest.raises(ValueError, match="does not combine"):
        BaseIntervals(5, ADD, float)
    with pytest.raises(ValueError, match="widths lie"):
        LandmarkIntervals(5, [6], ADD)
    materialized = MaterializeAll([(3, 0)])
    materialized.update_many(np.arange(4))
    with pytest.raises(ValueError, match="kept up to date"):
        materialized.lookup(3, 4)


def test_landmark_partitions_hold_widths_of_bounded_spread() -> None:
    structure = LandmarkIntervals(100, [10, 11, 19, 20, 21, 60, 90], MAX)
    assert structure.partitions == ((10, 20), (21, 21), (60, 90))
    structure.update_many(np.arange(100))
    assert structure.lookup(86, 100) == 99
    with pytest.raises(ValueError, match="no partition"):
        structure.lookup(50, 100)  # 51 wide
    assert len(LandmarkIntervals(1000, range(1, 1001), MAX).partitions) == 9  # O(log N_max)


@pytest.mark.parametrize("longest", [1, 2, 3, 7, 20, 100, 1000])
def test_the_search_tree_stays_balanced(longest: int) -> None:
    """Heights of siblings differ by one at most, whatever comes and goes."""
    tree = SearchTree(longest, ADD)

    def checked(node: int) -> int:
        if node < 0:
            return 0
        left, right = (checked(child) for child in tree._state.links[node, :2].tolist())
        assert abs(left - right) <= 1
        return 1 + max(left, right)

    for _ in range(min(3 * longest, 300)):
        tree.update_many(np.arange(1 + longest // 50))
        assert checked(int(tree._state.links[-1, 0])) == tree.height <= 1.45 * math.log2(longest + 2)


def test_base_intervals_keep_the_elements_twice_and_no_more() -> None:
    structure = BaseIntervals(1000, ADD)
    structure.update_many(np.arange(100_000))
    assert sum(column.size for column in structure._state.nodes) == 2 * 1024


# ---------------------------------------------------------------------------------- holistic aggregates
def test_case_c3_positions_of_quantiles() -> None:
    bags = [[7], [5, 1, 3, 2, 4], [5, 1, 3, 2, 4], [5, 1, 3, 2, 4], [9, 8, 7, 6], list(range(100, 0, -1))]
    fractions = ["0.5", "0.5", "0.2", "0.1", "1.0", "0.29"]
    for bag, fraction, value in zip(bags, fractions, [7, 3, 1, 1, 9, 29], strict=True):
        rank = quantile_rank(Decimal(fraction), len(bag))
        low, high = np.array([0]), np.array([len(bag)])
        assert WaveletMatrix(np.array(bag)).quantile(low, high, rank).tolist() == [value]
        online = BaseIntervalQuantiles(len(bag))
        online.update_many(np.array(bag))
        assert online.lookup(1, len(bag), Decimal(fraction)) == value


def test_ranks_of_quantiles_are_exact() -> None:
    assert quantile_rank(Decimal("0.29"), np.array([100, 200, 0, 1])).tolist() == [29, 58, 1, 1]
    assert quantile_rank(Fraction(1, 3), np.array([9, 10])).tolist() == [3, 4]
    assert quantile_rank(Fraction(0), 5).tolist() == [1]
    large = Decimal("0.123456789012345678901")
    assert quantile_rank(large, 2**62).tolist() == [math.ceil(Fraction(large) * 2**62)]
    with pytest.raises(TypeError, match="exact"):
        quantile_rank(0.29, 100)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="between 0 and 1"):
        quantile_rank(Fraction(3, 2), 100)


WINDOWS_OF_C7 = {
    (1, 5000): (2510608, 999, 0, 499, 955, 991),
    (17, 17): (185, 185, 185, 185, 185, 1),
    (100, 3333): (1633505, 999, 0, 499, 958, 957),
    (2500, 2999): (239570, 999, 5, 454, 954, 392),
    (4097, 4999): (459673, 997, 0, 526, 947, 611),
}


def fragments_of_c7() -> np.ndarray:
    state, values = 7, []
    for _ in range(5000):
        state = (1103515245 * state + 12345) % 2**31
        values.append((state >> 16) % 1000)
    return np.array(values, dtype=np.int64)


def test_case_c7_batch_windows() -> None:
    values = fragments_of_c7()
    low, high = np.array([left - 1 for left, _ in WINDOWS_OF_C7]), np.array([right for _, right in WINDOWS_OF_C7])
    totals, greatest, least, median, late, distinct = zip(*WINDOWS_OF_C7.values(), strict=True)
    for operation, expected in ((ADD, totals), (MAX, greatest), (MIN, least)):
        matrix = values[:, None]
        assert fold(matrix, operation, low, high)[:, 0].tolist() == list(expected)
        for online in (BaseIntervals(5000, operation), SearchTree(5000, operation)):
            online.update_many(values)
            assert online.lookup_many(low + 1, high).tolist() == list(expected)
    ranks = [quantile_rank(Decimal(fraction), high - low) for fraction in ("0.5", "0.95")]
    wavelet, online_quantiles = WaveletMatrix(values), BaseIntervalQuantiles(5000)
    online_quantiles.update_many(values)
    for rank, expected in zip(ranks, (median, late), strict=True):
        assert wavelet.quantile(low, high, rank).tolist() == list(expected)
        assert online_quantiles.lookup_many(low + 1, high, rank).tolist() == list(expected)
    assert DistinctCounter(values).count(low, high).tolist() == list(distinct)


POOLS = ([0], [3, 3, 3, 4], list(range(40)), NUMBERS, [10**9 * i for i in range(7)])


@settings(max_examples=examples(75), deadline=None)
@given(st.data(), st.booleans())
def test_a_wavelet_matrix_ranks_weighted_elements(data: st.DataObject, weighted: bool) -> None:
    values = drawn(data, data.draw(st.sampled_from(POOLS)), 0, 200)
    low, high = random_runs(data, len(values))
    weights = [random.Random(i).choice([1, 1, 2, 2**33, 2**50]) if weighted else 1 for i in range(len(values))]
    arrays = np.array(values, dtype=np.int64), np.array(weights, dtype=np.int64)
    before = [array.copy() for array in arrays]
    wavelet = WaveletMatrix(*arrays) if weighted else WaveletMatrix(arrays[0])
    assert all(map(np.array_equal, arrays, before))
    counts = [sum(weights[a:b]) for a, b in zip(low, high, strict=True)]
    assert wavelet.count(low, high).tolist() == counts
    chance = random.Random(len(values))
    for picked in ([1] * len(counts), counts, [chance.randint(1, count) for count in counts]):
        expected = []
        for a, b, rank in zip(low, high, picked, strict=True):
            elements = sorted(zip(values[a:b], weights[a:b], strict=True))
            for value, weight in elements:
                rank -= weight
                if rank <= 0:
                    expected.append(value)
                    break
        assert wavelet.quantile(low, high, np.array(picked, dtype=np.int64)).tolist() == expected


def test_ranks_and_weights_that_do_not_exist_are_refused() -> None:
    wavelet = WaveletMatrix(np.array([5, 6, 7]), np.array([1, 2, 1]))
    low, high = np.array([0]), np.array([2])
    assert wavelet.count(low, low).tolist() == [0]
    for rank in (0, 4):
        with pytest.raises(ValueError, match="rank lies between"):
            wavelet.quantile(low, high, np.array([rank]))
    for run in ((0, 4), (-1, 2)):
        with pytest.raises(ValueError, match="does not lie within"):
            wavelet.count(np.array([run[0]]), np.array([run[1]]))
    with pytest.raises(ValueError, match="one weight"):
        WaveletMatrix(np.array([5]), np.array([0]))
    with pytest.raises(ValueError, match="64 bits"):
        WaveletMatrix(np.array([5, 6]), np.array([2**62, 2**62]))


@settings(max_examples=examples(80), deadline=None)
@given(st.data(), st.integers(1, 40))
def test_online_quantiles_in_lockstep(data: st.DataObject, longest: int) -> None:
    for pool, dtype in ((NUMBERS, np.int64), (REALS, np.float64)):
        values, chance = drawn(data, pool, 1, 3 * longest), random.Random(longest)
        structure = BaseIntervalQuantiles(longest, dtype)
        done = 0
        while done < len(values):
            step = chance.randint(1, longest)
            structure.update_many(np.array(values[done : done + step], dtype=dtype))
            done = min(len(values), done + step)
            left = [chance.randint(max(1, done - longest + 1), done) for _ in range(8)]
            right = [chance.randint(first, done) for first in left]
            rank = [chance.randint(1, last - first + 1) for first, last in zip(left, right, strict=True)]
            quantiles = structure.lookup_many(*(np.array(bounds, dtype=np.int64) for bounds in (left, right, rank)))
            expected = [
                sorted(values[a - 1 : b], key=order if dtype is np.float64 else None)[k - 1]
                for a, b, k in zip(left, right, rank, strict=True)
            ]
            assert written(quantiles.tolist()) == written(expected)
        with pytest.raises(ValueError, match="no such rank"):
            structure.lookup_many(np.array([done, done]), np.array([done, done]), np.array([1]))
        for left_end, right_end in ((done - longest, done), (done, done + 1), (done, done - 1)):
            with pytest.raises(ValueError, match="does not lie within|reaches back"):
                structure.lookup(left_end, right_end, Fraction(1, 2))


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_distinct_values_are_counted_exactly(data: st.DataObject) -> None:
    """Beyond 64 elements runs cross the lines of the grid."""
    values = drawn(data, data.draw(st.sampled_from(POOLS)), 0, 400)
    low, high = random_runs(data, len(values))
    distinct_counts = DistinctCounter(np.array(values, dtype=np.int64)).count(low, high)
    assert distinct_counts.tolist() == [len(set(values[a:b])) for a, b in zip(low, high, strict=True)]


def test_distinct_values_at_every_border_of_the_grid() -> None:
    values = np.random.default_rng(3).integers(0, 50, 200)
    ends = np.array([0, 1, 62, 63, 64, 65, 127, 128, 129, 191, 192, 199, 200])
    low, high = (side.ravel() for side in np.meshgrid(ends, ends))
    low, high = low[low <= high], high[low <= high]
    distinct_counts = DistinctCounter(values).count(low, high)
    assert distinct_counts.tolist() == [len(set(values[a:b].tolist())) for a, b in zip(low, high, strict=True)]


@settings(max_examples=examples(100), deadline=None)
@given(lengths_of_groups, steps_of_windows, st.integers(1, 5), st.booleans(), st.randoms(use_true_random=False))
def test_modes_and_the_heaviest_values_of_runs(lengths: list[int], steps: list, k: int, heavy: bool, chance) -> None:
    group, low, high = forward(lengths, steps)
    ranks = [chance.choice([0, 1, 1, 2, 5, 10**15]) for _ in range(sum(lengths))]
    weights = [chance.choice([1, 2, 3, 2**40]) if heavy else 1 for _ in ranks]
    expected = []
    for a, b in zip(low, high, strict=True):
        totals: Counter[int] = Counter()
        for rank, weight in zip(ranks[a:b], weights[a:b], strict=True):
            totals[rank] += weight
        expected.append((sorted(totals.items(), key=lambda item: (-item[1], item[0])) + [(-1, 0)] * k)[:k])
    arrays = np.array(ranks, dtype=np.int64), np.array(weights, dtype=np.int64), group, low, high
    best, totals_of = top_k(*arrays, k)
    assert [list(zip(*row, strict=True)) for row in zip(best.tolist(), totals_of.tolist(), strict=True)] == expected
    assert modes(*arrays).tolist() == [row[0][0] for row in expected]


def test_empty_runs_between_others_have_no_mode() -> None:
    ranks, ones, group = np.array([4, 4, 2]), np.ones(3, dtype=np.int64), np.zeros(4, dtype=np.int64)
    low, high = np.array([0, 2, 2, 3]), np.array([2, 2, 3, 3])
    assert modes(ranks, ones, group, low, high).tolist() == [4, -1, 2, -1]
    index, rho = np.array([0, 1, 2]), np.array([3, 1, 1])
    estimates = hll_counts(index, rho, group, low, high, 4)
    assert estimates[1] == estimates[3] == 0.0 and 1.5 < estimates[0] < 2.5 and 0.5 < estimates[2] < 1.5


def test_runs_that_go_back_are_refused() -> None:
    two, ones = np.zeros(2, dtype=np.int64), np.ones(4, dtype=np.int64)
    low, high = np.array([1, 0]), np.array([3, 4])
    for count in (lambda *shape: top_k(ones, ones, *shape, 1), lambda *shape: hll_counts(ones, ones, *shape, 4)):
        with pytest.raises(ValueError, match="move forward"):
            count(two, low, high)
        with pytest.raises(ValueError, match="does not lie within"):
            count(two, low - 1, high)
        count(np.arange(2), low, high)  # two groups
    with pytest.raises(ValueError, match="at least"):
        top_k(ones, ones - 1, np.arange(2), low, high, 1)
    with pytest.raises(ValueError, match="first 0"):
        top_k(ones, ones, two, low, high, 0)
    for index, rho, precision in ((16, 1, 4), (0, 62, 4), (0, 0, 4), (0, 1, 3)):
        with pytest.raises(ValueError, match="precision"):
            hll_counts(ones * index, ones * rho, np.arange(2), low, high, precision)


def estimate(registers: dict[int, int], precision: int) -> float:
    """Ertl 2017, Algorithm 6, as printed."""
    m, q = 2**precision, 64 - precision
    counts = Counter(registers.values())
    counts[0] = m - len(registers)
    x, y = 1 - counts[q + 1] / m, 1.0
    z, last = 1 - x, None
    while z != last and 0 < x < 1:
        x, last, y = math.sqrt(x), z, y / 2
        z -= (1 - x) ** 2 * y
    z = z * m / 3 if 0 < 1 - counts[q + 1] / m < 1 else 0.0
    for k in range(q, 0, -1):
        z = (z + counts[k]) / 2
    x, y = counts[0] / m, 1.0
    if x == 1:
        return 0.0
    sigma, last = x, None
    while sigma != last:
        x, last = x * x, sigma
        sigma, y = sigma + x * y, 2 * y
    return m * m / (2 * math.log(2) * (z + m * sigma))


@settings(max_examples=examples(100), deadline=None)
@given(lengths_of_groups, steps_of_windows, st.randoms(use_true_random=False))
def test_registers_of_runs_combine_by_their_maximum(lengths: list[int], steps: list, chance) -> None:
    group, low, high = forward(lengths, steps)
    index = [chance.choice([0, 1, 1, 2, 15]) for _ in range(sum(lengths))]
    rho = [chance.choice([1, 1, 2, 3, 61]) for _ in index]
    expected = []
    for a, b in zip(low, high, strict=True):
        registers: dict[int, int] = {}
        for register, value in zip(index[a:b], rho[a:b], strict=True):
            registers[register] = max(registers.get(register, 0), value)
        expected.append(estimate(registers, 4))
    estimates = hll_counts(np.array(index, dtype=np.int64), np.array(rho, dtype=np.uint8), group, low, high, 4)
    assert estimates.tolist() == pytest.approx(expected, rel=1e-12)


def test_registers_of_hashes() -> None:
    hashes = np.array([0, 1, 2**63, 2**60 - 1, 2**59, 2**64 - 1, (5 << 60) + 2**20], dtype=np.uint64)
    index, rho = registers_of(hashes, 4)
    assert index.tolist() == [0, 0, 8, 0, 0, 15, 5]
    assert rho.tolist() == [61, 60, 61, 1, 1, 1, 40]


def test_estimates_are_as_good_as_hyperloglog_promises() -> None:
    precision, size = 12, 200_000
    hashes = np.random.default_rng(11).integers(0, 2**64, size, dtype=np.uint64)
    ends = np.array([10, 1_000, 10_000, 50_000, size])
    estimates = hll_counts(
        *registers_of(hashes, precision), np.zeros(5, dtype=np.int64), np.zeros_like(ends), ends, precision
    )
    assert np.abs(estimates / ends - 1).max() < 4 * 1.04 / 2 ** (precision / 2)


def test_several_queries_may_go_over_the_same_fragments_one_after_the_other() -> None:
    """Each as a group of its own; within one the runs move forward."""
    rng = np.random.default_rng(8)
    ranks, ones = rng.integers(0, 4, 60), np.ones(60, dtype=np.int64)
    index, rho = rng.integers(0, 16, 60), rng.integers(1, 9, 60)
    low = np.concatenate([np.arange(0, 50, 3), np.arange(5, 40), np.arange(0, 50, 3)])
    high = low + 9
    group = np.repeat([7, 2, 5], [17, 35, 17])
    for count in (
        lambda *shape: modes(ranks, ones, *shape),
        lambda *shape: hll_counts(index, rho, *shape, 4),
        lambda *shape: combine_runs(ranks[:, None], MAX, *shape)[:, 0],
        lambda *shape: combine_pairs(ranks, rho, True, *shape),
    ):
        one_by_one = [count(group[i : i + 1], low[i : i + 1], high[i : i + 1]).item() for i in range(len(low))]
        assert count(group, low, high).tolist() == one_by_one


def test_the_benchmark_measures_every_structure_and_their_answers_agree() -> None:
    rows = benchmark.measure(fragments=300, answers=60, rounds=1)
    assert {row["aggregate"] for row in rows} > {"SUM of integers", "MAX", "median", "DISTINCT"}
    assert sum(row["goal"] is not None for row in rows) == len(benchmark.GOALS)
    assert set(benchmark.costs(fragments=300, rounds=1)) == set(COSTS)
