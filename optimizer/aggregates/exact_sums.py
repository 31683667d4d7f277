"""Sums without error: integers in limbs of 32 bits, doubles as a sum and its error (Dekker 1971, Knuth)."""

from __future__ import annotations

import numpy as np

from optimizer.aggregates.states import LIMB, Array
from optimizer.workload.values import Type


def exact_total(limbs: Array) -> Array:
    """Limbs (n, 2 or 4) of exact sums as Python integers (n,), whatever their size."""
    total = np.zeros(len(limbs), dtype=object)
    for index in reversed(range(limbs.shape[1])):
        total = total * (1 << LIMB) + limbs[:, index].astype(object)
    return total


def long_total(limbs: Array) -> tuple[Array, Array]:
    """Sums of two limbs as int64 (n,), and where they do not fit (n,)."""
    low, high = limbs[:, 0], limbs[:, 1]
    high = high + (low >> LIMB)
    fits = (high >= -(1 << 31)) & (high < (1 << 31))
    return (np.where(fits, high, 0) << LIMB) + (low & ((1 << LIMB) - 1)), ~fits


def decimal_texts(unscaled: Array, type: Type) -> tuple[Array, Array]:
    """Unscaled integers (n,) as decimal texts (n,), and where they exceed the type's precision (n,)."""
    limit = 10**type.precision
    overflow = np.array([abs(value) >= limit for value in unscaled], dtype=bool)
    texts = np.empty(len(unscaled), dtype=object)
    for index, value in enumerate(unscaled):
        digits = str(abs(value)).rjust(type.scale + 1, "0")
        integer, part = (digits[: -type.scale], "." + digits[-type.scale :]) if type.scale else (digits, "")
        texts[index] = ("-" if value < 0 else "") + integer + part
    return texts, overflow


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b and its rounding error, exactly (Knuth)."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


DoubleDouble = tuple[Array, Array]
"""Numbers (n,) as a double each and its rounding error."""


def added(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """a + b in double-double, to some 2**-104 of the greater."""
    total, error = two_sum(a[0], b[0])
    return _renormalised(total, error + (a[1] + b[1]))


def multiplied(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """a * b in double-double, to some 2**-102 of it, for magnitudes between 1e-140 and 1e140."""
    product, error = two_product(a[0], b[0])
    return _renormalised(product, error + (a[0] * b[1] + a[1] * b[0]))


def _renormalised(high: Array, low: Array) -> DoubleDouble:
    total = high + low
    return total, low - (total - high)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b and its rounding error, exactly (Dekker), for |a|, |b| < 2**996."""
    product = a * b
    a_high, b_high = a * 134217729.0, b * 134217729.0
    a_high, b_high = a_high - (a_high - a), b_high - (b_high - b)
    a_low, b_low = a - a_high, b - b_high
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
