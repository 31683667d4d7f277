"""Sums of doubles are exact, rounded once, and the same bits whatever the order and the cuts; moments follow them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.aggregates.exact_doubles import INFINITE, NAN, NEGATIVE, ExactSums, Terms, words_of
from optimizer.aggregates.wide_integers import WideIntegers
from optimizer.workload.values import DOUBLE, Column, Output
from tests.doubles import GREATEST, HALF_OF_LAST_BIT, exact_sum, expected_mean, expected_sum, hard_lists, nearest
from tests.sizes import examples

ALL_ROWS, EVERYWHERE = np.empty(0, dtype=np.int32), np.empty(0, dtype=bool)
SEEDS = st.integers(0, 2**32)


def lifted(values: Sequence[float], cells: Sequence[int], power: int = 1, others: Sequence[float] = ()) -> ExactSums:
    """Sums of powers, or of products with other doubles, in cells from 0 on."""
    terms = [Terms.of(np.array(side, dtype=np.float64)) for side in (values, others) if len(side)]
    given_cells = np.array(cells, dtype=np.int32)
    return ExactSums.lifted(given_cells, ALL_ROWS, max(cells) + 1, EVERYWHERE, terms, power)


def in_pieces(values: Sequence[float], chance: random.Random, power: int = 1) -> ExactSums:
    """One sum of doubles that lie in cells of several batches, joined and combined step by step."""
    remaining_values, parts = list(values), []
    chance.shuffle(remaining_values)
    while remaining_values:
        batch, remaining_values = (
            remaining_values[: (cut := chance.randint(1, len(remaining_values)))],
            remaining_values[cut:],
        )
        parts.append(lifted(batch, [chance.randrange(3) for _ in batch], power))
    while len(parts) > 1:
        joined = ExactSums.joined(None, [parts.pop(chance.randrange(len(parts))), parts.pop()])
        cells = chance.randint(1, 4)
        parts.append(joined.combined(None, np.array([chance.randrange(cells) for _ in range(len(joined))]), cells))
        heads, counts, words = parts[-1].packed()
        parts[-1] = ExactSums.unpacked(heads, [(words, np.cumsum(counts) - counts)])
    return parts[0].combined(None, np.zeros(len(parts[0]), dtype=np.int64), 1)


def stored(sums: ExactSums) -> tuple[list[int], list[int]]:
    heads, counts, words = sums.packed()
    assert words_of(heads).tolist() == counts.tolist() and len(words) == counts.sum()
    return heads.tolist(), words.tolist()


@settings(max_examples=examples(150), deadline=None)
@given(hard_lists(special=True), SEEDS, st.integers(1, 10**12))
def test_a_sum_is_rounded_once_and_the_same_bits_however_it_is_cut(values: list[float], seed: int, count: int) -> None:
    lifted_sum = lifted(values, [0] * len(values))
    assert stored(in_pieces(values, random.Random(seed))) == stored(lifted_sum)
    assert str(lifted_sum.rounded()[0]) == str(np.float64(expected_sum(values)))
    assert str(lifted_sum.means(np.array([len(values)]))[0]) == str(np.float64(expected_mean(values)))
    if all(map(math.isfinite, values)):
        assert lifted_sum.fraction(0) == exact_sum(values) and not lifted_sum.special[0]
        assert lifted_sum.means(np.array([count]))[0] == nearest(exact_sum(values) / count)


@settings(max_examples=examples(80), deadline=None)
@given(hard_lists(most=6), SEEDS)
def test_sums_of_powers_and_products_are_exact_beyond_the_range_of_doubles(values: list[float], seed: int) -> None:
    chance = random.Random(seed)
    cells = [chance.randrange(2) for _ in values[1:]] + [1]
    for power in (2, 3, 4):
        lifted_sums = lifted(values, cells, power)
        for cell in (0, 1):
            cell_powers = [Fraction(value) ** power for value, at in zip(values, cells, strict=True) if at == cell]
            assert lifted_sums.fraction(cell) == sum(cell_powers, Fraction(0))
            assert lifted_sums.rounded()[cell] == nearest(sum(cell_powers, Fraction(0)))
        assert stored(in_pieces(values, chance, power)) == stored(lifted(values, [0] * len(values), power))
    factors = [chance.choice(values) for _ in values]
    products = lifted(values, [0] * len(values), 1, factors).fraction(0)
    assert products == sum((Fraction(x) * Fraction(y) for x, y in zip(values, factors, strict=True)), Fraction(0))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1e308, 1e308, -1e308, -1e308], 0.0),
        ([GREATEST, HALF_OF_LAST_BIT], math.inf),
        ([GREATEST, HALF_OF_LAST_BIT, -5e-324], GREATEST),
        ([-GREATEST, -GREATEST], -math.inf),
        ([5e-324, -5e-324], 0.0),
        ([1.0, 2.0**-53], 1.0),
        ([1.0, 2.0**-53, 5e-324], 1.0 + 2.0**-52),
        ([-0.0, -0.0], 0.0),
        ([math.inf, GREATEST, GREATEST], math.inf),
        ([math.inf, -math.inf], math.nan),
    ],
)
def test_where_roundings_are_close(values: list[float], expected: float) -> None:
    for seed in range(6):
        rounded = in_pieces(values, random.Random(seed)).rounded()[0]
        assert str(float(rounded)) == str(expected)


def test_a_sum_of_many_gets_the_limbs_that_it_needs() -> None:
    sums = lifted([-GREATEST, 5e-324], [0, 0])
    for step in range(1, 90):
        sums = ExactSums.joined(None, [sums, sums]).combined(None, np.zeros(2, dtype=np.int64), 1)
        exact = (Fraction(5e-324) - Fraction(GREATEST)) * 2**step
        copies = sums.take(np.zeros(4096, dtype=np.int64)).combined(None, np.zeros(4096, dtype=np.int64), 1)
        assert sums.fraction(0) == exact and copies.fraction(0) == 4096 * exact
    assert sums.limbs.shape[1] <= 70


def test_marks_of_powers_and_products_follow_ieee() -> None:
    infinite = [math.inf, -math.inf, math.nan]
    assert [lifted([value], [0], 2).special[0] for value in infinite] == [INFINITE, INFINITE, NAN]
    assert [lifted([value], [0], 3).special[0] for value in infinite] == [INFINITE, NEGATIVE, NAN]
    for x in (*infinite, 0.0, -2.0):
        for y in (*infinite, -0.0, 3.0):
            marks = lifted([x], [0], 1, [y]).special[0]
            product = x * y
            assert marks == (0 if math.isfinite(product) else NAN if product != product else (
                INFINITE if product > 0 else NEGATIVE))  # fmt: skip


# ------------------------------------------------------------------------------------------- moments
def answer(function: str, x: Sequence[float], y: Sequence[float] | None = None) -> Any:
    """One answer: None for null, "overflow" for the coded error."""
    by: tuple[Any, ...] = (None, None) if y is None else (Column("y"), DOUBLE)
    output = Output("it", function, Column("x"), DOUBLE, DOUBLE, *by)
    states: dict[str, Any] = {}
    cells = [0] * len(x)
    for state in AGGREGATES[function].states(output):
        kind = state.kind.removeprefix("exact_")
        if kind in ("count", "both"):
            states[state.kind] = np.array([len(x)])
            continue
        names = kind.removeprefix("both_") if y is not None else "x"
        if names == "xy":
            assert y is not None
            states[state.kind] = lifted(x, cells, 1, y)
            continue
        power = {"sum_squares": 2, "sum_cubes": 3, "sum_fourths": 4}.get(kind, len(names))
        states[state.kind] = lifted(x if names[0] == "x" or y is None else y, cells, power)
    answers = AGGREGATES[function].lower(states, output)
    if answers.overflow is not None and answers.overflow[0]:
        return "overflow"
    return float(answers.values[0]) if answers.valid[0] else None


def near(found: Any, expected: Fraction, ulps: int = 8) -> bool:
    """Whether an answer is within some last bits of an exact value; overflows are where it is not a double."""
    if abs(expected) > Fraction(GREATEST):
        return bool(found == "overflow" or abs(expected) < Fraction(GREATEST) * (1 + Fraction(ulps, 2**53)))
    if found == "overflow":
        return abs(expected) > Fraction(GREATEST) * (1 - Fraction(ulps, 2**53))
    return bool(abs(Fraction(found) - expected) <= ulps * (abs(expected) / 2**53 + Fraction(5e-324)))


def root(value: Fraction) -> Fraction:
    """A square root to some 100 bits."""
    shift = max(0, 220 - (value.numerator.bit_length() - value.denominator.bit_length()))
    shift += shift % 2
    return Fraction(math.isqrt((value.numerator << shift) // value.denominator), 2 ** (shift // 2))


def deviations(values: Sequence[float]) -> list[Fraction]:
    mean = exact_sum(values) / len(values)
    return [Fraction(value) - mean for value in values]


def moment(one: Sequence[Fraction], *others: Sequence[Fraction]) -> Fraction:
    """The sum of the products of numbers side by side."""
    return sum((math.prod(row, start=Fraction(1)) for row in zip(one, *others, strict=True)), Fraction(0))


SPREADS: dict[str, tuple[int, Callable[[Fraction], Fraction]]] = {
    "var_pop": (0, lambda value: value),
    "variance": (1, lambda value: value),
    "stddev_pop": (0, root),
    "stddev": (1, root),
}


@settings(max_examples=examples(120), deadline=None)
@given(hard_lists(most=8))
def test_moments_are_off_by_a_few_roundings_whatever_the_mean(values: list[float]) -> None:
    n, off = len(values), deviations(values)
    spread = moment(off, off)
    for function, (freedom, shown) in SPREADS.items():
        statistic = answer(function, values)
        if n <= freedom:
            assert statistic is None
        else:
            assert near(statistic, shown(spread / (n - freedom)))
            assert statistic == "overflow" or statistic >= 0.0
    if spread == 0:
        assert n < 2 or answer("stddev", values) == 0.0
        assert answer("skewness", values) is answer("kurtosis", values) is None
        assert str(answer("avg", values)) in (str(values[0]), "0.0")
        return
    kurtosis = n * moment(off, off, off, off) / spread**2 - 3
    assert near(answer("kurtosis", values), kurtosis, 32)
    cubes = moment(off, off, off)
    skewness = root(n * cubes**2 / spread**3) * (1 if cubes >= 0 else -1)
    assert near(answer("skewness", values), skewness, 32)


@settings(max_examples=examples(120), deadline=None)
@given(st.data(), st.integers(1, 8))
def test_moments_of_pairs_are_off_by_a_few_roundings(data: st.DataObject, count: int) -> None:
    x, y = ((data.draw(hard_lists(most=8)) * count)[:count] for _ in range(2))
    off_x, off_y = deviations(x), deviations(y)
    xx, yy, xy = moment(off_x, off_x), moment(off_y, off_y), moment(off_x, off_y)
    assert near(answer("covar_pop", x, y), xy / count)
    assert answer("covar_samp", x, y) is None if count == 1 else near(answer("covar_samp", x, y), xy / (count - 1))
    correlation = answer("corr", x, y)
    if xx == 0 or yy == 0:
        assert correlation is None
    else:
        assert near(correlation, root(xy**2 / (xx * yy)) * (1 if xy >= 0 else -1)) and abs(correlation) <= 1.0
    if yy == 0:
        assert answer("regr_slope", x, y) is answer("regr_intercept", x, y) is answer("regr_r2", x, y) is None
        return
    slope = xy / yy
    assert near(answer("regr_slope", x, y), slope)
    assert near(answer("regr_intercept", x, y), (exact_sum(x) - slope * exact_sum(y)) / count)
    assert near(answer("regr_r2", x, y), xy**2 / (xx * yy) if xx else Fraction(1))


def test_of_values_that_are_not_finite_moments_are_nan_unless_the_other_does_not_vary() -> None:
    strange = [math.inf, 1.0, 2.0]
    for function in ("var_pop", "stddev", "skewness", "kurtosis"):
        assert math.isnan(answer(function, strange))
    for function in ("covar_pop", "corr", "regr_slope", "regr_intercept", "regr_r2"):
        assert math.isnan(answer(function, strange, [1.0, 2.0, 3.0])) and math.isnan(answer(function, strange, strange))
    assert answer("corr", strange, [1.0] * 3) is answer("regr_slope", strange, [1.0] * 3) is None
    assert answer("corr", [1.0] * 3, strange) is None and math.isnan(answer("regr_slope", [1.0] * 3, strange))


def test_a_mean_far_beyond_the_deviations_costs_nothing() -> None:
    """The second of two passes over the events, in doubles, is worse from a mean of 2**49 deviations on."""
    values = [2.0**52 + at for at in (0, 1, 2, 4, 7)]
    assert answer("var_pop", values) == 6.16
    assert answer("variance", [0.1] * 10) == answer("stddev", [1e308] * 3) == 0.0
    assert answer("avg", [0.1] * 10) == 0.1 and answer("avg", [GREATEST] * 7) == GREATEST
    assert answer("stddev_pop", [1e300, -1e300]) == 1e300 and answer("var_pop", [1e300, -1e300]) == "overflow"
    assert answer("corr", [1e-200, 2e-200, 3e-200], [1e200, 2e200, 3e200]) == 1.0


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.lists(st.integers(-(2**45), 2**45), min_size=1, max_size=5), min_size=2, max_size=2), SEEDS)
def test_wide_integers_are_those_of_python(limbs: list[list[int]], seed: int) -> None:
    chance = random.Random(seed)
    sums = [
        ExactSums(np.array([limb_row], dtype=np.int64), chance.randint(-3, 3), np.zeros(1, np.uint8))
        for limb_row in limbs
    ]
    (a, b), (x, y) = map(WideIntegers.of, sums), (total.fraction(0) for total in sums)
    count = chance.randrange(2 ** chance.randint(1, 62))
    scaled = (WideIntegers.counts(np.array([count])) * a - b * b + a.times(-3)).scaled()
    exact = count * x - y * y - 3 * x
    assert abs(Fraction(scaled[0][0]) * Fraction(2) ** int(scaled[1][0]) - exact) <= abs(exact) / 2**53
