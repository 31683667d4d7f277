"""Approximate distinct counts of runs that move forward: sliding registers of HyperLogLog."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from optimizer.combine.frequent import check_forward
from optimizer.combine.wavelet_matrix import Longs


def _check_precision(precision: int) -> None:
    if not 4 <= precision <= 21:
        raise ValueError(f"the precision of HyperLogLog lies between 4 and 21, not {precision}")


@numba.njit(cache=True)
def _estimate(counts, registers):
    """Ertl's Algorithm 6 from the number of registers with each value, 0 to q + 1."""
    top = len(counts) - 1
    # tau: registers that are full
    x = 1.0 - counts[top] / registers
    if x == 0.0 or x == 1.0:
        z = 0.0
    else:
        y, z, last = 1.0, 1.0 - x, -1.0
        while z != last:
            x, last, y = np.sqrt(x), z, 0.5 * y
            z -= (1.0 - x) ** 2 * y
        z *= registers / 3.0
    for value in range(top - 1, 0, -1):
        z = 0.5 * (z + counts[value])
    # sigma: registers that are empty
    x = counts[0] / registers
    if x == 1.0:
        return 0.0
    y, empty, last = 1.0, x, -1.0
    while empty != last:
        x, last = x * x, empty
        empty += x * y
        y += y
    return registers * registers / (2.0 * np.log(2.0) * (z + registers * empty))


@numba.njit(cache=True)
def _sliding_registers(index, rho, group, low, high, precision, out):
    registers = 1 << precision
    # of each register the elements that no later one reaches, in descending order: the first is its value
    front, back = np.full(registers, -1, np.int64), np.full(registers, -1, np.int64)
    before, after = np.empty(len(index), np.int64), np.empty(len(index), np.int64)
    counts = np.zeros(66 - precision, np.int64)
    counts[0] = registers
    begin = end = 0
    for i in range(len(low)):
        fresh = i == 0 or group[i] != group[i - 1] or low[i] >= end
        for j in range(begin, end if fresh else low[i]):
            register = index[j]
            if front[register] == j:
                follows = -1 if back[register] == j else after[j]
                counts[rho[j]] -= 1
                counts[0 if follows < 0 else rho[follows]] += 1
                front[register] = follows
                if follows < 0:
                    back[register] = -1
                else:
                    before[follows] = -1
        for j in range(low[i] if fresh else end, high[i]):
            register = index[j]
            previous = back[register]
            while previous >= 0 and rho[previous] <= rho[j]:
                previous = before[previous]
            if previous >= 0:
                after[previous] = j
            else:
                counts[0 if front[register] < 0 else rho[front[register]]] -= 1
                counts[rho[j]] += 1
                front[register] = j
            before[j] = previous
            back[register] = j
        begin, end = low[i], high[i]
        out[i] = _estimate(counts, registers)


def hll_counts(
    index: Longs, rho: NDArray[Any], group: Longs, low: Longs, high: Longs, precision: int
) -> NDArray[np.float64]:
    """Estimated number of distinct values in each run of HyperLogLog elements: (a,).

    ``index``, ``rho`` (m,): the elements that fragments store, as :func:`optimizer.aggregates.sketches.registers_of`
    returns them (only the greatest of each register is needed); ``group``, ``low``, ``high`` (a,): runs of elements
    that move forward within a group. Registers combine by their maximum, so the estimate is that of all values of the
    run in one sketch; its standard error is about 1.04 / sqrt(2**precision). O(1) an element, amortised, and O(64) an
    answer: elements leave without subtraction, because each register stores its maximum after each element. Raises
    ValueError if runs do not move forward.
    """
    _check_precision(precision)
    check_forward(len(index), len(rho), group, low, high)
    values = np.asarray(rho, dtype=np.int64)
    if len(index) and not (
        index.min() >= 0 and index.max() < 1 << precision and values.min() >= 1 and values.max() <= 65 - precision
    ):
        raise ValueError(f"elements that are none of HyperLogLog with precision {precision}")
    out = np.empty(len(low), dtype=np.float64)
    _sliding_registers(index, values, group, low, high, precision, out)
    return out
