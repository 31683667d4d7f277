"""Combine many windows over one array of fragments.

A window's answer is the combine of a *run* ``[low, high)`` of consecutive stored fragments of one group. Three
structures, chosen by what the aggregate allows:

- exact integer sums: running totals, one subtraction an answer (exact even when they wrap, modulo 2**64);
- anything else, short runs: combine the run itself;
- anything else, long runs: a *disjoint sparse table* over the group's fragments, so that every answer is at
  most one combine of two stored values. Doubles are never subtracted (design.md section 6).

All arrays are over the fragments of many groups, one group after the other, by time within a group.

References: Arasu & Widom (VLDB 2004) section 3 for the problem (their B-INT answers in O(log n) combines).
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

ADD_DOUBLE, SECOND_HALF, MIN, MAX = 0, 1, 2, 3
"""Operations of a column of a combined matrix; a double-double takes ADD_DOUBLE and SECOND_HALF."""

Longs = NDArray[np.int64]


@numba.njit(cache=True)
def runs(starts, groups, window_starts, window_ends):
    """The answers that exist: for each group and window the run of fragments it covers, unless empty.

    starts: (n,) fragment starts, ascending within a group; groups: (g + 1,) offsets of the groups in it;
    window_starts, window_ends: (w,), both ascending (windows of one query).
    Returns group (a,), window (a,), low (a,), high (a,): indices, by group then window.
    """
    count = 0
    for fill in range(2):
        if fill == 1:
            group = np.empty(count, np.int64)
            window = np.empty(count, np.int64)
            low = np.empty(count, np.int64)
            high = np.empty(count, np.int64)
            count = 0
        for g in range(len(groups) - 1):
            first, last, end = groups[g], groups[g], groups[g + 1]
            for w in range(len(window_starts)):
                while first < end and starts[first] < window_starts[w]:
                    first += 1
                last = max(last, first)
                while last < end and starts[last] < window_ends[w]:
                    last += 1
                if last > first:
                    if fill == 1:
                        group[count], window[count], low[count], high[count] = g, w, first, last
                    count += 1
    return group, window, low, high


def running_totals(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Totals (n + 1, c) before each row of (n, c): the exact integer sum of a run is totals[high] - totals[low]."""
    totals = np.zeros((len(values) + 1, values.shape[1]), dtype=np.int64)
    np.cumsum(values, axis=0, out=totals[1:])
    return totals


@numba.njit(cache=True)
def _merge(a, b, operations, out):
    """out = a combined with b (in time order), column by column; out may be a."""
    for c in range(len(operations)):
        operation = operations[c]
        if operation == 0:
            total = a[c] + b[c]
            virtual = total - a[c]
            error = (a[c] - (total - virtual)) + (b[c] - virtual) + a[c + 1] + b[c + 1]
            high = total + error
            if np.isfinite(high):
                out[c + 1] = error - (high - total)
                out[c] = high
            else:
                # an infinity or NaN has no rounding error; a sum of finite values may just have overflowed
                out[c + 1] = 0.0
                out[c] = total
        elif operation == 2:
            # Spark's order: NaN is the greatest value of all
            if b[c] < a[c] or a[c] != a[c]:
                out[c] = b[c]
            else:
                out[c] = a[c]
        elif operation == 3:
            if b[c] > a[c] or b[c] != b[c]:
                out[c] = b[c]
            else:
                out[c] = a[c]


@numba.njit(cache=True)
def fold(values, operations, low, high):
    """Combine of each run, one fragment after the other: values (n, c), low and high (a,); returns (a, c)."""
    out = np.empty((len(low), values.shape[1]), values.dtype)
    for i in range(len(low)):
        out[i] = values[low[i]]
        for j in range(low[i] + 1, high[i]):
            _merge(out[i], values[j], operations, out[i])
    return out


@numba.njit(cache=True)
def _highest_bit(number):
    level = -1
    while number > 0:
        number >>= 1
        level += 1
    return level


@numba.njit(cache=True)
def combine_runs(values, operations, groups, group, low, high):
    """Combine of each run, choosing the structure group by group.

    values (n, c) int64 or float64; operations (c,): see the constants above; groups (g + 1,) offsets;
    group, low, high (a,) as :func:`runs` gives them, by group. Returns (a, c).

    A group's disjoint sparse table costs length * log2(length) combines to build; the runs themselves cost
    the sum of their lengths. The cheaper is taken.
    """
    columns = values.shape[1]
    out = np.empty((len(low), columns), values.dtype)
    begin = 0
    while begin < len(low):
        g = group[begin]
        end = begin
        work = 0
        while end < len(low) and group[end] == g:
            work += high[end] - low[end]
            end += 1
        offset, length = groups[g], groups[g + 1] - groups[g]
        levels = _highest_bit(max(length - 1, 0)) + 1
        if work <= length * levels + 2 * (end - begin):
            out[begin:end] = fold(values, operations, low[begin:end], high[begin:end])
        else:
            # table[k][i]: combine from i to the middle of its block of 2**(k+1), outwards from the middle
            table = np.empty((levels, length, columns), values.dtype)
            for level in range(levels):
                half = 1 << level
                middle = half
                while middle < length:
                    table[level, middle - 1] = values[offset + middle - 1]
                    for i in range(middle - 2, middle - half - 1, -1):
                        _merge(values[offset + i], table[level, i + 1], operations, table[level, i])
                    stop = min(middle + half, length)
                    table[level, middle] = values[offset + middle]
                    for i in range(middle + 1, stop):
                        _merge(table[level, i - 1], values[offset + i], operations, table[level, i])
                    middle += 2 * half
            for i in range(begin, end):
                first, last = low[i] - offset, high[i] - offset - 1
                if first == last:
                    out[i] = values[low[i]]
                else:
                    level = _highest_bit(first ^ last)
                    _merge(table[level, first], table[level, last], operations, out[i])
        begin = end
    return out
