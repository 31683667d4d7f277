"""Sketches for queries that permit an error: HyperLogLog registers, spaced ranks, frequent items."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numba
import numpy as np

from optimizer.aggregates.states import Longs


def precision_of(error: Decimal) -> int:
    """The least precision p, 4 to 21, for which HyperLogLog's standard error 1.04 / sqrt(2**p) is at most ``error``."""
    allowed = Fraction(error) ** 2
    return next((p for p in range(4, 21) if Fraction(104, 100) ** 2 <= allowed * 2**p), 21)


@numba.njit(cache=True)
def registers_of(hashes, precision):
    """HyperLogLog's register (n,) int64, in [0, 2**precision), and rank (n,) int64, >= 1, of each hash (n,) uint64.

    The first bits of the hash name the register; the rank is the position of the first 1 among the others.
    """
    register = np.empty(len(hashes), np.int64)
    rank = np.empty(len(hashes), np.int64)
    for i in range(len(hashes)):
        register[i] = np.int64(hashes[i] >> np.uint64(64 - precision))
        remaining_bits = hashes[i] << np.uint64(precision)
        place = 1
        while place <= 64 - precision and (remaining_bits >> np.uint64(63)) == np.uint64(0):
            remaining_bits = remaining_bits << np.uint64(1)
            place += 1
        rank[i] = place
    return register, rank


def thin_quantiles(offsets: Longs, values: Longs, weights: Longs, error: Decimal) -> tuple[Longs, Longs, Longs]:
    """Multisets with at most about 1 / (2 * error) values each: the values in the middle of evenly spaced ranks.

    offsets: (c + 1,) of the cells; values: (m,), ascending and distinct within a cell; weights: (m,), >= 1. Returns
    the same three of the thinned cells. A cell's total weight n stays, and at every value the weight up to it, and
    below it, is at most ``error * n`` off. Errors add up over cells: in any union of thinned cells with N values in
    total, the value at rank r has a true rank within ``error * N`` of r. Cells of few values do not change. O(m).

    References: the one-pass summary of Munro & Paterson (1980), without the merges that lose precision.
    """
    return _thin_quantiles(offsets, values, weights, *error.as_integer_ratio())


@numba.njit(cache=True, inline="always")
def _allowed(total, above, unit):
    # floor(total * above / unit), without the product
    return total // unit * above + total % unit * above // unit


@numba.njit(cache=True)
def _thin_quantiles(offsets, values, weights, above, unit):
    ends = np.zeros(len(offsets), np.int64)
    out_values, out_weights = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    count = 0
    for cell in range(len(offsets) - 1):
        begin, end = offsets[cell], offsets[cell + 1]
        total = weights[begin:end].sum()
        step = 2 * _allowed(total, above, unit) + 1
        if (end - begin) * step <= total + step - 1:
            for i in range(begin, end):
                out_values[count], out_weights[count] = values[i], weights[i]
                count += 1
        else:
            first, i, passed = count, begin, np.int64(0)
            for rank in range(0, total, step):
                size = min(step, total - rank)
                while passed + weights[i] < rank + (size + 1) // 2:
                    passed += weights[i]
                    i += 1
                if count > first and out_values[count - 1] == values[i]:
                    out_weights[count - 1] += size
                else:
                    out_values[count], out_weights[count] = values[i], size
                    count += 1
        ends[cell + 1] = count
    return ends, out_values[:count].copy(), out_weights[:count].copy()


def thin_frequent(offsets: Longs, values: Longs, weights: Longs, error: Decimal) -> tuple[Longs, Longs, Longs]:
    """Multisets without the values of a weight of at most ``error * n``, n being the cell's total weight.

    Arguments and results as of :func:`thin_quantiles`, the values in any order, which stays. Less than 1 / error
    values stay in a cell, and always the one of the greatest weight, the least of equals: no mode is lost. In any
    union of thinned cells with N values together, a weight is never too great, and too small by at most
    ``error * N``. O(m).

    References: Manku & Motwani (VLDB 2002), lossy counting, with one bucket a cell.
    """
    return _thin_frequent(offsets, values, weights, *error.as_integer_ratio())


@numba.njit(cache=True)
def _thin_frequent(offsets, values, weights, above, unit):
    ends = np.zeros(len(offsets), np.int64)
    out_values, out_weights = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    count = 0
    for cell in range(len(offsets) - 1):
        begin, end = offsets[cell], offsets[cell + 1]
        allowed = _allowed(weights[begin:end].sum(), above, unit)
        best = begin
        for i in range(begin + 1, end):
            if weights[i] > weights[best] or (weights[i] == weights[best] and values[i] < values[best]):
                best = i
        for i in range(begin, end):
            if weights[i] > allowed or i == best:
                out_values[count], out_weights[count] = values[i], weights[i]
                count += 1
        ends[cell + 1] = count
    return ends, out_values[:count].copy(), out_weights[:count].copy()
