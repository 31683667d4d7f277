"""Moments of numbers and of pairs of them, from exact sums of their powers and products, or double-double ones.

Integers and decimals keep exact sums (:mod:`optimizer.aggregates.exact_moments`). The rest of this module is for
doubles, for pairs of a double and an exact number, and for rows that earlier versions stored.

Sums of powers of x hold ``sum((x - mean)**p)`` as a small difference of great numbers: of their 104 bits,
``p * log2(m)`` are lost where the root mean square is m standard deviations. A covariance has 53 good bits while the
product of both m is below 2**50, a skewness while m is below 2**17, a kurtosis below 2**12; beyond, each doubling costs
p bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optimizer.aggregates.exact_moments import (
    exact_correlation,
    exact_covariance,
    exact_determination,
    exact_intercept,
    exact_shape,
    exact_slope,
    exact_variance,
)
from optimizer.aggregates.exact_sums import DoubleDouble, added, divided, multiplied, two_product, two_sum
from optimizer.aggregates.states import Array, Lowered, States
from optimizer.workload.values import Output, Type

CONSTANT = 2.0**-100
"""Values of which the sum of squared deviations is below (n + 16) times this part of their sum of squares are taken as
all equal: rounding may leave so much."""

TINY = 1e-140
"""Variances below this have a square that is no normal double."""


def codeviations(count: Array, first: Array, second: Array, products: Array) -> tuple[Array, Array]:
    """Sum of the products of the deviations of both from their means (n,), and where it overflowed (n,).

    ``first``, ``second``, ``products`` (n, 2): the sums of both and of their products. sum(xy) - sum(x) * sum(y) / n
    with 106 bits; NaN where a sum is not finite.
    """
    finite = np.isfinite(first[:, 0]) & np.isfinite(second[:, 0])
    overflow = finite & ~np.isfinite(products[:, 0])
    with np.errstate(all="ignore"):
        product, error = two_product(first[:, 0], second[:, 0])
        error = error + (first[:, 0] * second[:, 1] + first[:, 1] * second[:, 0])
        # no doubles have the halves of numbers beyond 2**996
        error = np.where(np.isfinite(error), error, 0.0)
        quotient = product / count
        whole, whole_error = two_product(quotient, count)
        rest = (((product - whole) - whole_error) + error) / count
        rest = np.where(np.isfinite(rest), rest, 0.0)
        difference, lost = two_sum(products[:, 0], -quotient)
        found = difference + (lost + products[:, 1] - rest)
    return np.where(finite, found, np.nan), overflow | (finite & ~np.isfinite(found))


def _unit(type: Type | None) -> float:
    # partial aggregates keep decimals unscaled
    return float(10 ** (type.scale if type is not None else 0))


def lower_variance(freedom: int, root: bool) -> Callable[[States, Output], Lowered]:
    """How variances are lowered: ``freedom`` is taken from the count; ``root``: the standard deviation."""

    def lower(states: States, output: Output) -> Lowered:
        if "power_2" in states:
            return exact_variance(states, output, freedom, root)
        count, total = states["count"], states["total" if "total" in states else "sum"]
        deviations, overflow = codeviations(
            np.maximum(count, 1).astype(np.float64), total, total, states["sum_squares"]
        )
        with np.errstate(invalid="ignore"):
            deviations = np.maximum(deviations, 0.0) / _unit(output.argument_type) ** 2
        valid = count > freedom
        values = deviations / np.maximum(count - freedom, 1)
        return Lowered(np.sqrt(values) if root else values, valid & ~overflow, overflow & valid)

    return lower


def _varies(count: Array, deviations: Array, squares: Array) -> Array:
    """Where not all values are equal; of NaN and infinities, where there are two values."""
    with np.errstate(invalid="ignore"):
        constant = deviations <= squares * (count + 16) * CONSTANT
    return (count > 1) & ~constant


class _Pair:
    """What the states of two numbers, ``x`` the first argument, say over many answers (n,)."""

    def __init__(self, states: States, output: Output) -> None:
        self.states, self.output = states, output
        self.count = states["both"]
        self.safe = np.maximum(self.count, 1).astype(np.float64)
        self.x_unit, self.y_unit = _unit(output.argument_type), _unit(output.by_type)
        self.overflow = np.zeros(len(self.count), dtype=bool)

    def of(self, names: str) -> Array:
        """Sum of the products of the deviations of ``xx``, ``yy`` or ``xy``; overflows are kept in mind."""
        sums = (self.states[f"both_{name}"] for name in (*names, names))
        found, overflow = codeviations(self.safe, *sums)
        self.overflow |= overflow
        return found if names == "xy" else np.maximum(found, 0.0)

    def varies(self, name: str, deviations: Array) -> Array:
        return _varies(self.count, deviations, self.states[f"both_{name}{name}"][:, 0])

    def mean(self, name: str) -> Array:
        total = self.states[f"both_{name}"]
        return (total[:, 0] + total[:, 1]) / self.safe / (self.x_unit if name == "x" else self.y_unit)

    def lowered(self, values: Array, valid: Array) -> Lowered:
        """What is not finite though the sums of both are did not fit; NaN where one of them is not finite."""
        finite = np.isfinite(self.states["both_x"][:, 0]) & np.isfinite(self.states["both_y"][:, 0])
        overflow = finite & valid & (self.overflow | ~np.isfinite(values))
        return Lowered(np.where(finite, values, np.nan), valid & ~overflow, overflow)


def lower_pairs_counted(states: States, output: Output) -> Lowered:
    """``regr_count``, never null."""
    return Lowered(states["both"], np.ones(len(states["both"]), dtype=bool))


def lower_covariance(freedom: int) -> Callable[[States, Output], Lowered]:
    """How covariances are lowered: ``freedom`` is taken from the count."""

    def lower(states: States, output: Output) -> Lowered:
        if "pair_xy" in states:
            return exact_covariance(states, output, freedom)
        pair = _Pair(states, output)
        values = pair.of("xy") / pair.x_unit / pair.y_unit / np.maximum(pair.count - freedom, 1)
        return pair.lowered(values, pair.count > freedom)

    return lower


def lower_correlation(states: States, output: Output) -> Lowered:
    """``corr``: null where one of both does not vary."""
    if "pair_xy" in states:
        return exact_correlation(states, output)
    pair = _Pair(states, output)
    xy, xx, yy = pair.of("xy"), pair.of("xx"), pair.of("yy")
    return pair.lowered(_ratio(xy, xx, yy), pair.varies("x", xx) & pair.varies("y", yy))


def lower_determination(states: States, output: Output) -> Lowered:
    """``regr_r2``: null where the second does not vary, else 1 where the first does not."""
    if "pair_xy" in states:
        return exact_determination(states, output)
    pair = _Pair(states, output)
    xy, xx, yy = pair.of("xy"), pair.of("xx"), pair.of("yy")
    squared = _ratio(xy, xx, yy) ** 2
    return pair.lowered(np.where(pair.varies("x", xx), squared, 1.0), pair.varies("y", yy))


def lower_slope(states: States, output: Output) -> Lowered:
    """``regr_slope``: null where the second does not vary."""
    if "pair_xy" in states:
        return exact_slope(states, output)
    pair = _Pair(states, output)
    return pair.lowered(*_slope(pair))


def lower_intercept(states: States, output: Output) -> Lowered:
    """``regr_intercept``: null where the second does not vary."""
    if "pair_xy" in states:
        return exact_intercept(states, output)
    pair = _Pair(states, output)
    slope, valid = _slope(pair)
    with np.errstate(all="ignore"):
        found = pair.mean("x") - slope * pair.mean("y")
    return pair.lowered(found, valid)


def _slope(pair: _Pair) -> tuple[Array, Array]:
    xy, yy = pair.of("xy"), pair.of("yy")
    with np.errstate(all="ignore"):
        return xy / yy * (pair.y_unit / pair.x_unit), pair.varies("y", yy)


def _ratio(xy: Array, xx: Array, yy: Array) -> Array:
    with np.errstate(all="ignore"):
        found: Array = np.clip(xy / (np.sqrt(xx) * np.sqrt(yy)), -1.0, 1.0)
    return found


# ------------------------------------------------------------------------------------- third and fourth moments
def _scaled(a: DoubleDouble, factor: float) -> DoubleDouble:
    """By a factor of few bits."""
    return multiplied(a, (np.full_like(a[0], factor), np.zeros_like(a[0])))


def lower_shape(power: int) -> Callable[[States, Output], Lowered]:
    """How ``skewness`` (``power`` 3) and ``kurtosis`` (4) are lowered: null where the values are all equal."""
    kinds = ("total", "sum_squares", "sum_cubes", "sum_fourths")

    def lower(states: States, output: Output) -> Lowered:
        if "power_2" in states:
            return exact_shape(states, output, power)
        count = states["count"]
        safe = np.maximum(count, 1).astype(np.float64)
        given: list[Any] = [states["sum" if kind not in states else kind] for kind in kinds[:power]]
        with np.errstate(all="ignore"):
            mean, second, third, *more = (divided((sums[:, 0], sums[:, 1]), safe) for sums in given)
            square = multiplied(mean, mean)
            variance = added(second, _scaled(square, -1.0))[0]
            found = added(third, multiplied(mean, added(_scaled(second, -3.0), _scaled(square, 2.0))))
            if power == 4:
                inner = added(
                    _scaled(third, -4.0), multiplied(mean, added(_scaled(second, 6.0), _scaled(square, -3.0)))
                )
                found = added(more[0], multiplied(mean, inner))
                values = found[0] / variance**2 - 3.0
            else:
                values = found[0] / variance**1.5
        finite = np.isfinite(given[0][:, 0])
        valid = _varies(count, variance, second[0])
        with np.errstate(invalid="ignore"):
            overflow = finite & valid & (~np.isfinite(values) | (variance < TINY))
        return Lowered(np.where(finite, values, np.nan), valid & ~overflow, overflow)

    return lower


def lower_geometric_mean(states: States, output: Output) -> Lowered:
    """``geometric_mean``: exp of the mean logarithm; 0 with a zero among the values, NaN with a negative number."""
    count, total = states["count"], states["sum_logs"]
    with np.errstate(all="ignore"):
        mean = (total[:, 0] + total[:, 1]) / np.maximum(count, 1)
        values = np.exp(mean) / _unit(output.argument_type)
    return Lowered(values, count > 0)
