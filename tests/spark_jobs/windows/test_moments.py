"""Moments, covariances and regressions: lifted from numbers and lowered, against rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.aggregates.states import ROWS, State
from optimizer.workload.values import DOUBLE, LONG, Column, Output, Type, decimal
from spark_jobs.store.arrays.numbering import Longs
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.windows.partials.batches import LiftedEvents, LiftedNumbers, lift_sums
from spark_jobs.windows.partials.combining import scatter_add
from spark_jobs.windows.partials.values import Values
from tests.exact_moments import Interval, geometric_mean, paired, shape
from tests.sizes import examples

X, Y = Column("x"), Column("y")
TWO = ("covar_pop", "covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2", "regr_count")


@dataclass
class _Batch:
    """The values of a batch of events."""

    known: dict[Any, Values]

    def values(self, expression: Any) -> Values:
        return self.known[expression]


def answer(function: str, type: Type, x: Sequence[Any], y: Sequence[Any] | None = None, pieces: int = 2) -> Any:
    """One answer over values that lie in several fragments, in turn; None for null, "overflow" for the coded error."""
    by = (None, None) if y is None else (Y, type)
    output = Output("it", function, X, type, AGGREGATES[function].output_type(type, by[1]), *by)
    states = (ROWS, *AGGREGATES[function].states(output))
    cell: Longs = np.arange(len(x), dtype=np.int64) % pieces
    events = LiftedEvents(np.empty(0, np.int64), cell, np.bincount(cell, minlength=pieces))
    lifted = LiftedNumbers(states, events)
    sides = [Values(pa.array(side, arrow_type(type)), type) for side in (x, y) if side is not None]
    fixed = [state for state in states if state != ROWS and not state.is_of_doubles]
    if y is None:
        lifted.lift(sides[0], fixed)
    else:
        lifted.lift_both(*sides, fixed)
    group_of_piece = np.zeros(pieces, dtype=np.int64)
    longs = np.zeros((1, lifted.longs.shape[1]), np.int64)
    scatter_add(group_of_piece, lifted.longs, np.arange(longs.shape[1]), longs)
    batch: Any = _Batch(dict(zip((X, Y), sides, strict=False)))

    def combined_state(state: State) -> Any:
        if state.is_of_doubles:
            return lift_sums(batch, events, state).combined(state, group_of_piece, 1)
        at = lifted.places[state.carrier][state]
        return longs[:, at] if state.width == 1 else longs[:, at : at + state.width]

    lowered = AGGREGATES[function].lower({state.kind: combined_state(state) for state in states}, output)
    if lowered.overflow is not None and lowered.overflow[0]:
        return "overflow"
    return lowered.values[0] if lowered.valid[0] else None


def check(found: Any, expected: Interval) -> None:
    if found is None or found == "overflow":
        assert expected.value is None or expected.maybe, (found, expected)
    elif expected.value is None:
        assert expected.maybe, (found, expected)
    elif math.isnan(expected.value):
        assert math.isnan(found)
    elif expected.low is None or expected.high is None:
        assert found == expected.value
    else:
        assert expected.low <= found <= expected.high, (found, expected)


OFFSETS = st.sampled_from((0.0, 0.0, 1.0, 1e3, -1e6, 1.7e9, 1e15))
SCALES = st.sampled_from((1.0, 1.0, 1e-3, 1e30, 1e-30))
POOL = st.one_of(st.floats(-10, 10), st.integers(-3, 3).map(float), st.sampled_from((0.1, -0.0, 1e-8)))
EDGES = st.sampled_from((math.nan, math.inf, -math.inf, 1e300, -1e300, 1e200, 5e-324, 1e-170, 1e-160))


@st.composite
def doubles(draw: st.DrawFn, count: int) -> list[float]:
    """Numbers about a mean far or near, seldom with one that no square, or no number, is made of."""
    offset, scale = draw(OFFSETS), draw(SCALES)
    numbers = [offset * scale + scale * draw(POOL) for _ in range(count)]
    if draw(st.integers(0, 7)) == 0:
        numbers[draw(st.integers(0, count - 1))] = draw(EDGES)
    return [numbers[0]] * count if draw(st.integers(0, 9)) == 0 else numbers


@settings(max_examples=examples(250), deadline=None)
@given(st.data(), st.integers(1, 24), st.integers(1, 4))
def test_two_numbers_agree_with_rational_arithmetic(data: st.DataObject, count: int, pieces: int) -> None:
    x, y = data.draw(doubles(count)), data.draw(doubles(count))
    if data.draw(st.booleans()):
        # nearly on a line
        y = [2.5 * a + 1e-6 * b for a, b in zip(x, y, strict=True)]
    for function in TWO:
        actual = answer(function, DOUBLE, x, y, pieces)
        if function == "regr_count":
            assert actual == count
        else:
            check(actual, paired(function, list(zip(x, y, strict=True))))


@settings(max_examples=examples(250), deadline=None)
@given(st.data(), st.integers(1, 24), st.integers(1, 4))
def test_moments_agree_with_rational_arithmetic(data: st.DataObject, count: int, pieces: int) -> None:
    values = data.draw(doubles(count))
    for function in ("skewness", "kurtosis"):
        check(answer(function, DOUBLE, values, pieces=pieces), shape(function, values))
    positive = [abs(value) for value in values]
    for some in (values, positive):
        check(answer("geometric_mean", DOUBLE, some, pieces=pieces), geometric_mean(some))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2), min_size=1, max_size=8), st.integers(0, 18))
def test_exact_numbers_agree_too(pairs: list[tuple[int, int]], scale: int) -> None:
    x, y = ([pair[side] for pair in pairs] for side in (0, 1))
    for type in (LONG, decimal(38, scale)):
        sides = [[Decimal(value).scaleb(-scale) for value in side] if type != LONG else side for side in (x, y)]
        for function in TWO[:-1]:
            check(answer(function, type, *sides), paired(function, list(zip(*sides, strict=True))))
        for function in ("skewness", "kurtosis"):
            check(answer(function, type, sides[0]), shape(function, sides[0]))
        check(answer("geometric_mean", type, sides[0]), geometric_mean(sides[0]))


def test_no_digit_is_lost_where_the_mean_is_a_million_deviations_off() -> None:
    """As with times since 1970: in doubles, sums of squares would leave nothing of this."""
    x = [1.7e9 + at for at in (0, 1, 2, 3, 4, 5, 900, 901)]
    y = [1e6 + 3 * at for at in x]
    assert answer("corr", DOUBLE, x, y) == pytest.approx(1.0, abs=1e-12)
    assert answer("regr_slope", DOUBLE, y, x) == pytest.approx(3.0, rel=1e-14)
    centred = [at - 1.7e9 for at in x]
    for function, digits in (("covar_pop", 1e-14), ("skewness", 1e-9)):
        sides = (x, y) if function == "covar_pop" else (x, None)
        near = answer(function, DOUBLE, centred, [3 * at for at in centred] if sides[1] else None)
        assert answer(function, DOUBLE, *sides) == pytest.approx(near, rel=digits)


@pytest.mark.parametrize("value", [0.1, 1e16 / 3, -7e-20, 123456.789])
def test_equal_values_do_not_vary_whatever_rounding_leaves(value: float) -> None:
    many, moving = [value] * 5000, [float(at) for at in range(5000)]
    assert answer("skewness", DOUBLE, many) is answer("kurtosis", DOUBLE, many) is None
    assert answer("corr", DOUBLE, many, moving) is answer("regr_slope", DOUBLE, moving, many) is None
    assert answer("regr_r2", DOUBLE, many, moving) == 1.0 and answer("regr_r2", DOUBLE, moving, many) is None


def test_what_does_not_fit_is_a_coded_error_and_a_null_in_either_leaves_a_row_out() -> None:
    huge = [1e200, -1e200, 3e200]
    assert answer("covar_pop", DOUBLE, huge, huge) == answer("var_pop", DOUBLE, huge) == "overflow"
    assert answer("corr", DOUBLE, huge, [1.0, 2.0, 3.0]) == pytest.approx(0.5, rel=1e-15)
    assert answer("kurtosis", DOUBLE, [1e90, 2e90, 4e90]) == pytest.approx(-1.5, rel=1e-15)
    assert answer("kurtosis", DOUBLE, [1e-90, 2e-90]) == -2.0
    assert answer("regr_count", DOUBLE, [1.0, None, 3.0, 4.0], [None, 2.0, 3.0, 5.0]) == 2
    assert answer("covar_samp", DOUBLE, [1.0, None, 3.0, 4.0], [None, 2.0, 3.0, 5.0]) == 1.0
    assert answer("geometric_mean", DOUBLE, [4.0, None, 9.0]) == pytest.approx(6.0)
    assert answer("geometric_mean", LONG, [4, 0, 9]) == 0.0 and math.isnan(answer("geometric_mean", LONG, [4, -9]))


def test_names_are_those_of_the_oracle() -> None:
    declared = {name for name, aggregate in AGGREGATES.items() if aggregate.signature == "number+number"}
    assert declared == set(TWO)
