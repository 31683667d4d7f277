"""Exact numbers of a column: what an expectation compares, without the rounding of a library's sums.

Integers and decimals are summed as whole numbers, doubles by :func:`math.fsum`, so that no number depends on the order
of rows.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Number = Fraction | float
"""An exact number, or a double."""


def statistic(name: str, values: pa.Array) -> Number | None:
    """One of :data:`optimizer.workload.expectations.STATISTICS` of values (n,), nulls left out; None if there is none.

    NaN is a value: greater than all others, equal to itself.
    """
    values = values.drop_null()
    if name == "distinct":
        return Fraction(distinct_count(values))
    if not len(values):
        return None
    if pa.types.is_floating(values.type):
        return _of_doubles(name, values.to_numpy(zero_copy_only=False))
    scale = values.type.scale if pa.types.is_decimal(values.type) else 0
    return _of_whole(name, _whole(values, scale), 10**scale)


def distinct_count(values: pa.Array) -> int:
    """Number of different values (n,) without nulls."""
    return len(normal(values).unique())


def normal(values: pa.Array) -> pa.Array:
    """The values, with one zero and one NaN."""
    if not pa.types.is_floating(values.type):
        return values
    numbers = values.to_numpy(zero_copy_only=False) + 0.0
    mask = values.is_null().to_numpy(zero_copy_only=False)
    return pa.array(np.where(np.isnan(numbers), np.nan, numbers), mask=mask)


def _whole(values: pa.Array, scale: int) -> list[int]:
    """Integers or decimals as integers of their last place."""
    if not pa.types.is_decimal(values.type):
        return list(values.to_pylist())
    return [int(value.scaleb(scale)) for value in values.to_pylist()]


def _of_whole(name: str, values: list[int], unit: int) -> Number | None:
    count = len(values)
    if name in ("min", "max"):
        return Fraction(min(values) if name == "min" else max(values), unit)
    if name == "median":
        ordered = sorted(values)
        return Fraction(ordered[(count - 1) // 2] + ordered[count // 2], 2 * unit)
    total = sum(values)
    if name == "sum":
        return Fraction(total, unit)
    if name == "mean":
        return Fraction(total, count * unit)
    if count < 2:
        return None
    squares = Fraction(sum(value * value for value in values) * count - total * total, count * (count - 1))
    return math.sqrt(squares / unit**2)


def _of_doubles(name: str, values: NDArray[np.float64]) -> Number | None:
    count = len(values)
    if np.isnan(values).any() and name != "min":
        return math.nan
    if name == "min":
        # of NaNs alone it is NaN
        return float(np.nanmin(values)) if not np.isnan(values).all() else math.nan
    if name == "max":
        return float(values.max())
    if name == "median":
        ordered = np.sort(values)
        return float(ordered[(count - 1) // 2] / 2 + ordered[count // 2] / 2)
    try:
        total = math.fsum(values)
        if name == "sum":
            return total
        mean = total / count
        if name == "mean":
            return mean
        return None if count < 2 else math.sqrt(math.fsum((values - mean) ** 2) / (count - 1))
    except (OverflowError, ValueError):
        # infinities of both signs, or beyond a double
        with np.errstate(all="ignore"):
            if name not in ("sum", "mean"):
                return math.nan
            return float(np.sum(values) if name == "sum" else np.mean(values))


def is_within(value: Number | None, low: Any, high: Any, above: bool, below: bool) -> bool:
    """Return whether a number is within bounds, compared exactly; None and NaN never are."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return False
    is_low = low is None or (value > exact(low, value) if above else value >= exact(low, value))
    return is_low and (high is None or (value < exact(high, value) if below else value <= exact(high, value)))


def exact(bound: Any, value: Number) -> Number:
    """A bound as it is compared with a number: doubles with doubles, as the language does."""
    return float(bound) if isinstance(value, float) else Fraction(bound)


def rounded_number(value: Number | None) -> float | None:
    """A number as it is recorded; None if there is none."""
    if value is None:
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
