"""Moments of doubles and of pairs of them, from the exact sums of their powers and products.

With n values and the sums S1, S2, … of their powers, n * S2 - S1**2 is n**2 times the variance: an integer times a
power of two, and so are the numerators of all other moments. They are computed without rounding
(:mod:`optimizer.aggregates.wide_integers`): what cancels, cancels exactly. So equal values have the variance 0, no
variance is negative, and whether the values vary is known. A moment is then off by a few roundings of its value.

References: Pébay, "Formulas for robust, one-pass parallel computation of covariances and arbitrary-order statistical
moments" (2008), for the moments; here they are taken from the power sums instead, because those are exact.
"""

from __future__ import annotations

import numpy as np

from optimizer.aggregates.exact_doubles import ExactSums, codeviations
from optimizer.aggregates.states import Array, Lowered, States
from optimizer.aggregates.wide_integers import Scaled, WideIntegers
from optimizer.workload.values import Output, Type


def sums_of(states: States, kind: str) -> ExactSums:
    """The exact sums of doubles of a kind, under the name that they have in rows of today, or of earlier versions."""
    former = "total" if kind == "sum" and "total" in states else kind
    sums: ExactSums = states[f"exact_{kind}" if f"exact_{kind}" in states else former]
    return sums


def _unit(type: Type | None) -> float:
    # partial aggregates have decimals unscaled
    return float(10 ** (type.scale if type is not None else 0))


def _is_finite(*sums: ExactSums) -> Array:
    marks = sums[0].special
    for further in sums[1:]:
        marks = marks | further.special
    return marks == 0


def _lowered(values: Array, valid: Array, finite: Array) -> Lowered:
    """NaN where a value is not finite; overflow where only the answer is not."""
    overflow = finite & valid & ~np.isfinite(values)
    return Lowered(np.where(finite, values, np.nan), valid & ~overflow, overflow)


def _quotient(above: Scaled, below: Scaled) -> Array:
    """Quotients (n,), anything where the divisor is 0."""
    with np.errstate(all="ignore"):
        return np.ldexp(above[0] / below[0], above[1] - below[1])


def _root(number: Scaled) -> Scaled:
    """The square roots (n,) of numbers from 0."""
    odd = number[1] & 1
    # double-doubles of earlier versions may be off below 0
    return np.sqrt(np.maximum(number[0], 0.0) * (1 + odd)), (number[1] - odd) >> 1


def _product(left: Scaled, right: Scaled) -> Scaled:
    return left[0] * right[0], left[1] + right[1]


def double_variance(states: States, output: Output, freedom: int, root: bool) -> Lowered:
    """Variances, or standard deviations if ``root``; ``freedom`` is subtracted from the count."""
    count, total = states["count"], sums_of(states, "sum")
    deviations = codeviations(count, total, total, sums_of(states, "sum_squares"))
    fractions = deviations[0] / (np.maximum(count, 1).astype(np.float64) * np.maximum(count - freedom, 1))
    fractions, exponents = _root((fractions, deviations[1])) if root else (np.maximum(fractions, 0.0), deviations[1])
    with np.errstate(over="ignore"):
        values = np.ldexp(fractions, exponents) / _unit(output.argument_type) ** (1 if root else 2)
    return _lowered(values, count > freedom, _is_finite(total))


def double_shape(states: States, output: Output, power: int) -> Lowered:
    """``skewness`` (``power`` 3) or ``kurtosis`` (4): null where the values are all equal."""
    count, total = states["count"], sums_of(states, "sum")
    n, sum_1, two, three = (
        WideIntegers.counts(count),
        *map(WideIntegers.of, (total, sums_of(states, "sum_squares"), sums_of(states, "sum_cubes"))),
    )
    spread = n * two - sum_1 * sum_1
    variance = spread.scaled()
    numerator = n * (n * three - (sum_1 * two).times(3)) + (sum_1 * sum_1 * sum_1).times(2)
    if power == 3:
        below = _product(variance, _root(variance))
    else:
        four = WideIntegers.of(sums_of(states, "sum_fourths"))
        # minus three times the square of the variance: of a normal distribution nothing is over
        numerator = n * (n * (n * four - (sum_1 * three).times(4)) + (sum_1 * sum_1 * two).times(6))
        numerator = numerator - (sum_1 * sum_1 * sum_1 * sum_1 + spread * spread).times(3)
        below = _product(variance, variance)
    finite = _is_finite(total)
    valid = (count > 1) & ((variance[0] != 0) | ~finite)
    return _lowered(_quotient(numerator.scaled(), below), valid, finite)


class DoublePairs:
    """The states of two numbers, ``x`` the first argument, over many answers (n,)."""

    def __init__(self, states: States, output: Output) -> None:
        self.states = states
        self.count = states["both"]
        self.finite = _is_finite(self.sums("x"), self.sums("y"))
        self.x_unit, self.y_unit = _unit(output.argument_type), _unit(output.by_type)

    def sums(self, names: str) -> ExactSums:
        """The sums of ``x``, ``y``, ``xx``, ``yy`` or ``xy``."""
        return sums_of(self.states, f"both_{names}")

    def deviations(self, names: str) -> Scaled:
        """n times the sum of the products of the deviations of ``xx``, ``yy`` or ``xy``."""
        return codeviations(self.count, self.sums(names[0]), self.sums(names[1]), self.sums(names))

    def varies(self, deviations: Scaled, name: str) -> Array:
        """Rows in which ``x`` or ``y`` has at least two different values; with NaN or infinities, at least two
        values.
        """
        return (self.count > 1) & ((deviations[0] != 0) | ~_is_finite(self.sums(name)))

    def lowered(self, values: Array, valid: Array) -> Lowered:
        """Answers that are null where not ``valid``."""
        return _lowered(values, valid, self.finite)


def double_covariance(pair: DoublePairs, freedom: int) -> Lowered:
    """Covariances; ``freedom`` is subtracted from the count."""
    xy, divisor = pair.deviations("xy"), np.maximum(pair.count, 1).astype(np.float64)
    with np.errstate(over="ignore"):
        values = np.ldexp(xy[0] / (divisor * np.maximum(pair.count - freedom, 1)), xy[1]) / pair.x_unit / pair.y_unit
    return pair.lowered(values, pair.count > freedom)


def _correlations(xy: Scaled, xx: Scaled, yy: Scaled) -> Array:
    return np.clip(_quotient(xy, _product(_root(xx), _root(yy))), -1.0, 1.0)


def double_correlation(pair: DoublePairs) -> Lowered:
    """``corr``: null where one of both does not vary."""
    xy, xx, yy = (pair.deviations(names) for names in ("xy", "xx", "yy"))
    return pair.lowered(_correlations(xy, xx, yy), pair.varies(xx, "x") & pair.varies(yy, "y"))


def double_determination(pair: DoublePairs) -> Lowered:
    """``regr_r2``: null where the second does not vary, else 1 where the first does not."""
    xy, xx, yy = (pair.deviations(names) for names in ("xy", "xx", "yy"))
    squared = _correlations(xy, xx, yy) ** 2
    return pair.lowered(np.where(pair.varies(xx, "x"), squared, 1.0), pair.varies(yy, "y"))


def double_slope(pair: DoublePairs) -> Lowered:
    """``regr_slope``: null where the second does not vary."""
    yy = pair.deviations("yy")
    slopes = _quotient(pair.deviations("xy"), yy) * (pair.y_unit / pair.x_unit)
    return pair.lowered(slopes, pair.varies(yy, "y"))


def double_intercept(pair: DoublePairs) -> Lowered:
    """``regr_intercept``: null where the second does not vary."""
    yy = pair.deviations("yy")
    x, y, squares, products = (WideIntegers.of(pair.sums(names)) for names in ("x", "y", "yy", "xy"))
    numerator = x * squares - y * products
    return pair.lowered(_quotient(numerator.scaled(), yy) / pair.x_unit, pair.varies(yy, "y"))


def double_geometric_mean(states: States, output: Output) -> Lowered:
    """``geometric_mean``: exp of the mean logarithm; 0 with a zero among the values, NaN with a negative number."""
    count = states["count"]
    with np.errstate(all="ignore"):
        values = np.exp(sums_of(states, "sum_logs").means(np.maximum(count, 1))) / _unit(output.argument_type)
    return Lowered(values, count > 0)
