"""Find the groups that pass a threshold in any window of stored fragments (``HAVING``).

References: Arasu & Widom, VLDB 2004, section 5; the index over fragments is ours.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numba
import numpy as np
from numpy.typing import NDArray

NEVER = -(1 << 63)
"""The time of an element that does not exist, or that no window will hold again."""

CELLS_PER_FRAGMENT = 2
"""Cells of the checkpoint tables of :class:`HavingIndex` for each fragment, at most."""

Longs = NDArray[np.int64]

Number = int | float | Fraction | Decimal


def floor(v: Number) -> int:
    """Round down a threshold, also an infinite one, to a range beyond all sums of int64. Raises ValueError for NaN."""
    return math.floor(v) if -(1 << 64) < v < 1 << 64 or v != v else (1 << 64 if v > 0 else -(1 << 64))


@numba.njit(cache=True)
def _checkpoints(position, groups, totals, rows, step, ends, sums):
    """Before every step-th instant: where each group's fragments end, and their running total there."""
    for group in range(len(groups) - 1):
        at, end = groups[group], groups[group + 1]
        for row in range(rows):
            while at < end and position[at] < row * step:
                at += 1
            ends[row, group], sums[row, group] = at, totals[at]


@numba.njit(cache=True, inline="always")
def _search(starts, low, high, instant):
    while low < high:
        middle = (low + high) >> 1
        if starts[middle] < instant:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(cache=True)
def _having(instants, starts, totals, ends, sums, step, start, end, least, most, out):
    """Groups with a fragment in [start, end) and a sum there of least..most into out; their number.

    Between the checkpoints around the window lies at least, and between those within it at most, what a sum can be;
    only groups that these leave open are searched.
    """
    low = _search(instants, 0, len(instants), start)
    high = _search(instants, low, len(instants), end)
    outer_low, outer_high = low // step, -(-high // step)
    inner_low, inner_high = -(-low // step), high // step
    exact = outer_low == inner_low and outer_high == inner_high
    before, after = sums[outer_low], sums[outer_high]
    candidates = 0
    for group in range(sums.shape[1]):
        out[candidates] = group
        candidates += after[group] - before[group] >= least
    count = 0
    for candidate in range(candidates):
        group = out[candidate]
        largest = after[group] - before[group]
        first, last = ends[outer_low, group], ends[outer_high, group]
        holds = first < last and largest <= most
        if not exact and first < last:
            # of a window between two checkpoints this is negative, or 0 without a fragment
            smallest = sums[inner_high, group] - sums[inner_low, group]
            if smallest > most:
                continue
            if not (holds and smallest >= least and ends[inner_low, group] < ends[inner_high, group]):
                first = _search(starts, first, ends[inner_low, group], start)
                last = _search(starts, ends[inner_high, group], last, end)
                holds = first < last and least <= totals[last] - totals[first] <= most
        out[count] = group
        count += holds
    return count


class HavingIndex:
    """Groups with a sum above, or below, a threshold over any window of stored fragments: ``HAVING``, exact.

    The fragments of a tree begin at the same instants in all groups. At every ``step``-th of these instants the
    running totals of all groups are stored as one row. Two rows around a window bound every group's sum from above,
    two within it from below (nothing is negative), and only groups in between are looked up one by one. If there are as
    many fragments as groups times instants, there is a row for every instant and no group needs a look-up.

    Parameters
    ----------
    starts
        (n,) int64 instants at which fragments begin, ascending within a group.
    groups
        (g + 1,) offsets of the groups in them.
    values
        (n,) non-negative int64: counts, or sums, of the fragments.

    Raises ValueError if starts do not ascend or a value is negative, OverflowError if a group's values add up to 2**63.
    Build O(n log n); space O(n); a look-up O(g), 1 to 4 ns a group.
    """

    def __init__(self, starts: Longs, groups: Longs, values: Longs) -> None:
        self.starts = np.ascontiguousarray(starts, dtype=np.int64)
        self.groups = np.ascontiguousarray(groups, dtype=np.int64)
        values = np.ascontiguousarray(values, dtype=np.int64)
        count = len(self.starts)
        if self.starts.shape != values.shape or self.groups[0] != 0 or self.groups[-1] != count:
            raise ValueError("one value for each start, and groups that cover them all")
        descends = np.flatnonzero(self.starts[1:] < self.starts[:-1]) + 1
        if (np.diff(self.groups) < 0).any() or not np.isin(descends, self.groups).all():
            raise ValueError("starts ascend within a group")
        if count and values.min() < 0:
            raise ValueError("counts and sums of fragments are not negative")
        halves = [np.concatenate(([0], np.cumsum(part))) for part in (values >> 32, values & 0xFFFFFFFF)]
        upper, lower = (np.diff(half[self.groups]) for half in halves)
        if ((upper + (lower >> 32)) >> 31).any():
            raise OverflowError("the values of a group add up to 2**63 or more")
        self.totals = np.concatenate((np.zeros(1, np.int64), np.cumsum(values)))
        self.instants, position = np.unique(self.starts, return_inverse=True)
        size = len(self.groups) - 1
        cells = max(CELLS_PER_FRAGMENT * count, 1)
        self.step = max(1, -(-len(self.instants) * size // cells))
        shape = -(-len(self.instants) // self.step) + 1, size
        self._ends = np.empty(shape, np.int32 if count < 1 << 31 else np.int64)
        self._sums = np.empty(shape, np.int64)
        _checkpoints(position, self.groups, self.totals, shape[0], self.step, self._ends, self._sums)
        self._found = np.empty(size, np.int64)

    def above(self, start: int, end: int, v: Number) -> Longs:
        """Groups, ascending, whose sum over the fragments that begin in [start, end) exceeds v.

        A group without a fragment there has no sum and is not returned. Raises ValueError if v is NaN.
        """
        return self.between(start, end, floor(v) + 1, None)

    def below(self, start: int, end: int, v: Number) -> Longs:
        """Groups whose sum is less than v; parameters as in :meth:`above`."""
        return self.between(start, end, None, -floor(-v) - 1)

    def between(self, start: int, end: int, least: int | None, most: int | None) -> Longs:
        """Groups whose sum is at least ``least`` and at most ``most`` (None: no limit); see :meth:`above`."""
        floor = max(0 if least is None else least, 0)
        ceiling = min(~NEVER if most is None else most, ~NEVER)
        if start >= end or floor > ceiling:
            return np.empty(0, np.int64)
        tables = self.instants, self.starts, self.totals, self._ends, self._sums
        count = _having(*tables, self.step, start, end, floor, ceiling, self._found)
        return self._found[:count].copy()

    def sums(self, start: int, end: int, groups: Longs) -> Longs:
        """Sums of these groups, (k,) numbers, over the fragments that begin in [start, end); 0 without one."""
        return _sums_of(self.starts, self.totals, self.groups, groups, start, end)


@numba.njit(cache=True)
def _sums_of(starts, totals, offsets, groups, start, end):
    sums = np.empty(len(groups), np.int64)
    for at in range(len(groups)):
        low, high = offsets[groups[at]], offsets[groups[at] + 1]
        low = _search(starts, low, high, start)
        sums[at] = totals[_search(starts, low, high, end)] - totals[low]
    return sums
