"""Exact numbers of distinct values in many runs of fragments."""

from __future__ import annotations

import numba
import numpy as np

from optimizer.combine.runs import check_runs
from optimizer.combine.wavelet_matrix import Longs, rank_codes


@numba.njit(cache=True)
def _link(codes, values, previous, following):
    """The element of equal value before each (from 1; 0 for none), and after each (from 0; m for none)."""
    size = len(codes)
    last = np.zeros(values, np.int64)
    for i in range(size):
        before = last[codes[i]]
        previous[i] = before
        following[i] = size
        if before:
            following[before - 1] = i
        last[codes[i]] = i + 1


@numba.njit(cache=True)
def _count_cells(previous, side, grid):
    for i in range(len(previous)):
        grid[(i >> side) + 1, (previous[i] + (1 << side) - 1) >> side] += 1


@numba.njit(cache=True)
def _below(numbers, begin, end, bound):
    strip = numbers[begin:end]
    count = np.uint32(0)
    # all in 32 bits without sign, or else the loop is not vectorised
    for i in range(np.uint32(len(strip))):
        count = np.uint32(count + np.uint32(strip[i] < bound))
    return np.int64(count)


@numba.njit(cache=True)
def _answer_distinct(previous, following, grid, side, low, high, out):
    for i in range(len(low)):
        # elements before `high` whose value last occurred before `low` (all those before `low` are such)
        row, column = high[i] >> side, low[i] >> side
        count = np.int64(grid[row, column])
        count += _below(previous, row << side, high[i], np.int32(low[i] + 1))
        count += _below(following, column << side, low[i], np.int32(row << side))
        out[i] = count - low[i]


class DistinctCounter:
    """Number of distinct values in runs of elements, in any order; exact.

    values (m,) int64, fewer than 2**31. About 2**side = sqrt(m) elements to a line of the grid: O(m) space and, after
    the values are numbered, time to build; O(sqrt(m) / 16) vector instructions a look-up.
    """

    def __init__(self, values: Longs) -> None:
        codes, distinct = rank_codes(np.asarray(values, dtype=np.int64))
        size = self.size = len(codes)
        if size >= 2**31 - 1:
            raise ValueError(f"{size} elements are more than 32 bits number")
        self._side = max(6, size.bit_length() // 2)
        self._previous, self._following = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)
        _link(codes, len(distinct), self._previous, self._following)
        lines = (size >> self._side) + 2
        self._grid = np.zeros((lines, lines), dtype=np.int32)
        _count_cells(self._previous, self._side, self._grid)
        # [row, column]: elements before `row` lines whose value did not occur before, or before `column` lines
        for axis in (0, 1):
            np.cumsum(self._grid, axis=axis, out=self._grid)

    def count(self, low: Longs, high: Longs) -> Longs:
        """Number of distinct values (a,) in each run: low and high (a,). An empty run has 0."""
        check_runs(low, high, self.size, shortest=0)
        out = np.empty(len(low), dtype=np.int64)
        _answer_distinct(self._previous, self._following, self._grid, self._side, low, high, out)
        return out
