"""Exact moments of integers and decimals in plain Python: the exact value, rounded once.

By the definitions: deviations from the mean first, then their powers and products, all in integers. It shares
nothing with the sums that shared execution stores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import localcontext
from fractions import Fraction
from typing import Any

from optimizer.workload.values import Output, Type


def takes_exact(output: Output) -> bool:
    """Return whether an output has only integer and decimal arguments."""
    types = [type for type in (output.argument_type, output.by_type) if type is not None]
    return bool(types) and all(type.is_exact for type in types)


def spread(output: Output, values: Sequence[Any]) -> float | None:
    """A variance or a standard deviation."""
    n, unit = len(values), _unit(output.argument_type)
    freedom = 0 if output.function.endswith("pop") else 1
    if n <= freedom:
        return None
    moment = Fraction(sum(deviation**2 for deviation in _deviations(values, unit)), n**2 * (n - freedom) * unit**2)
    return nearest_root(moment) if output.function.startswith("std") else float(moment)


def shape(output: Output, values: Sequence[Any]) -> float | None:
    """A skewness or an excess kurtosis."""
    n, deviations = len(values), _deviations(values, _unit(output.argument_type))
    squares = sum(deviation**2 for deviation in deviations)
    if squares == 0:
        return None
    if output.function == "kurtosis":
        return float(Fraction(n * sum(deviation**4 for deviation in deviations), squares**2) - 3)
    cubes = sum(deviation**3 for deviation in deviations)
    return _sign(cubes) * nearest_root(Fraction(n * cubes**2, squares**3))


def pairs(output: Output, first: Sequence[Any], second: Sequence[Any]) -> float | None:
    """A covariance, a correlation, or the regression of the first values on the second ones."""
    n, x_unit, y_unit = len(first), _unit(output.argument_type), _unit(output.by_type)
    x, y = _deviations(first, x_unit), _deviations(second, y_unit)
    products = sum(deviation * other for deviation, other in zip(x, y, strict=True))
    if output.function.startswith("covar"):
        freedom = 0 if output.function == "covar_pop" else 1
        return float(Fraction(products, n**2 * (n - freedom) * x_unit * y_unit)) if n > freedom else None
    x_squares, y_squares = sum(deviation**2 for deviation in x), sum(deviation**2 for deviation in y)
    if y_squares == 0 or (output.function == "corr" and x_squares == 0):
        return None
    if output.function in ("corr", "regr_r2"):
        square = Fraction(products**2, x_squares * y_squares) if x_squares else Fraction(1)
        return float(square) if output.function == "regr_r2" else _sign(products) * nearest_root(square)
    slope = Fraction(products * y_unit, y_squares * x_unit)
    if output.function == "regr_slope":
        return float(slope)
    means = (Fraction(sum(_integers(side, unit)), n * unit) for side, unit in ((first, x_unit), (second, y_unit)))
    x_mean, y_mean = means
    return float(x_mean - slope * y_mean)


def _sign(value: int) -> int:
    return 1 if value >= 0 else -1


def _unit(type: Type | None) -> int:
    return 10**type.scale if type is not None else 1


def _integers(values: Sequence[Any], unit: int) -> list[int]:
    """Integers, or decimals in units of their last digit."""
    with localcontext(prec=100):
        return [int(value * unit) for value in values]


def _deviations(values: Sequence[Any], unit: int) -> list[int]:
    """Deviations from the mean, times the number of values."""
    integers = _integers(values, unit)
    total = sum(integers)
    return [len(integers) * integer - total for integer in integers]


def nearest_root(square: Fraction) -> float:
    """The double whose square is nearest: it is between the middles to both its neighbours."""
    near = math.sqrt(square)
    while True:
        below, above = math.nextafter(near, -math.inf), math.nextafter(near, math.inf)
        if square < ((Fraction(near) + Fraction(below)) / 2) ** 2 and near > 0:
            near = below
        elif square > ((Fraction(near) + Fraction(above)) / 2) ** 2:
            near = above
        else:
            return near
