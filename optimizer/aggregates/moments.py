"""Lowering of moments of numbers and of pairs of numbers: of integers and decimals, or with a double among them.

Sums of doubles are computed by compiled kernels. Commands that compute nothing do not load them, so this module
imports them where it lowers an answer.
"""

from __future__ import annotations

from collections.abc import Callable

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
from optimizer.aggregates.states import Lowered, States
from optimizer.workload.values import Output


def lower_variance(freedom: int, root: bool) -> Callable[[States, Output], Lowered]:
    """Return the lowering of variances; ``freedom`` is subtracted from the count; ``root``: the standard deviation."""

    def lower(states: States, output: Output) -> Lowered:
        if "power_2" in states:
            return exact_variance(states, output, freedom, root)
        from optimizer.aggregates.double_moments import double_variance

        return double_variance(states, output, freedom, root)

    return lower


def lower_pairs_counted(states: States, output: Output) -> Lowered:
    """``regr_count``, never null."""
    return Lowered(states["both"], np.ones(len(states["both"]), dtype=bool))


def lower_covariance(freedom: int) -> Callable[[States, Output], Lowered]:
    """Return the lowering of covariances; ``freedom`` is subtracted from the count."""

    def lower(states: States, output: Output) -> Lowered:
        if "pair_xy" in states:
            return exact_covariance(states, output, freedom)
        from optimizer.aggregates.double_moments import DoublePairs, double_covariance

        return double_covariance(DoublePairs(states, output), freedom)

    return lower


def _of_pairs(exact: Callable[[States, Output], Lowered], name: str) -> Callable[[States, Output], Lowered]:
    """``name``: of the function for pairs with a double."""

    def lower(states: States, output: Output) -> Lowered:
        if "pair_xy" in states:
            return exact(states, output)
        from optimizer.aggregates import double_moments

        lowered: Lowered = getattr(double_moments, name)(double_moments.DoublePairs(states, output))
        return lowered

    return lower


lower_correlation = _of_pairs(exact_correlation, "double_correlation")
"""``corr``: null where one of both does not vary."""

lower_determination = _of_pairs(exact_determination, "double_determination")
"""``regr_r2``: null where the second does not vary, else 1 where the first does not."""

lower_slope = _of_pairs(exact_slope, "double_slope")
"""``regr_slope``: null where the second does not vary."""

lower_intercept = _of_pairs(exact_intercept, "double_intercept")
"""``regr_intercept``: null where the second does not vary."""


def lower_shape(power: int) -> Callable[[States, Output], Lowered]:
    """Return the lowering of ``skewness`` (``power`` 3) or ``kurtosis`` (4): null where all values are equal."""

    def lower(states: States, output: Output) -> Lowered:
        if "power_2" in states:
            return exact_shape(states, output, power)
        from optimizer.aggregates.double_moments import double_shape

        return double_shape(states, output, power)

    return lower


def lower_geometric_mean(states: States, output: Output) -> Lowered:
    """``geometric_mean``: exp of the mean logarithm; 0 with a zero among the values, NaN with a negative number."""
    from optimizer.aggregates.double_moments import double_geometric_mean

    return double_geometric_mean(states, output)
