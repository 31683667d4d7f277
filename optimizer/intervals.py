"""Combine many windows over one array of fragments.

A window's answer is the combine of a *run* ``[low, high)`` of consecutive stored fragments of one group. Two
structures, chosen by what the aggregate allows:

- exact integer sums: running totals, one subtraction an answer (exact even when they wrap, modulo 2**64);
- anything else: *two stacks*. The runs of one query and group move forward, so a run is a suffix of what was there at
  the last flip and what came since: at most two combines a fragment and one an answer, whatever the range. Doubles are
  never subtracted (design.md section 6).

All arrays are over the fragments of many groups, one group after the other, by time within a group.

References: Arasu & Widom (VLDB 2004) section 3 for the problem (their B-INT answers in O(log n) combines);
Tangwongsan, Hirzel, Schneider, "Low-latency sliding-window aggregation in worst-case constant time" (DEBS 2017)
section 2 for two stacks.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

ADD_DOUBLE, MIN, MAX = 0, 1, 2
"""Operations on a state: the sum of double-doubles, the least and the greatest value (Spark's order: NaN last)."""

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


@numba.njit(cache=True, inline="always")
def _add(high_a, low_a, high_b, low_b):
    """Sum of two double-doubles (Dekker); an infinity or NaN carries no rounding error."""
    total = high_a + high_b
    virtual = total - high_a
    error = (high_a - (total - virtual)) + (high_b - virtual) + low_a + low_b
    high = total + error
    if np.isfinite(high):
        return high, error - (high - total)
    return total, 0.0


@numba.njit(cache=True, inline="always")
def _better(a, b, greatest):
    if greatest:
        return b if b > a or b != b else a
    return b if b < a or a != a else a


@numba.njit(cache=True)
def _fold_extremes(values, greatest, low, high, out):
    for i in range(len(low)):
        best = values[low[i]]
        for j in range(low[i] + 1, high[i]):
            best = _better(best, values[j], greatest)
        out[i] = best


@numba.njit(cache=True)
def _fold_sums(high_parts, low_parts, low, high, out):
    for i in range(len(low)):
        a, b = high_parts[low[i]], low_parts[low[i]]
        for j in range(low[i] + 1, high[i]):
            a, b = _add(a, b, high_parts[j], low_parts[j])
        out[i, 0], out[i, 1] = a, b


def fold(values: NDArray[Any], operation: int, low: Longs, high: Longs) -> NDArray[Any]:
    """Combine of each run, one fragment after the other: values (n, width), low and high (a,); returns (a, width)."""
    out = np.empty((len(low), values.shape[1]), dtype=values.dtype)
    if operation == ADD_DOUBLE:
        _fold_sums(np.ascontiguousarray(values[:, 0]), np.ascontiguousarray(values[:, 1]), low, high, out)
    else:
        _fold_extremes(np.ascontiguousarray(values[:, 0]), operation == MAX, low, high, out[:, 0])
    return out


@numba.njit(cache=True)
def _combine_extremes(values, greatest, group, low, high, out):
    suffix = np.empty(len(values), values.dtype)
    flipped = seen = 0  # the suffixes end before `flipped`; `back` combines from there to before `seen`
    back = values[0] if len(values) else 0
    for i in range(len(low)):
        first, last = low[i], high[i]
        if i == 0 or group[i] != group[i - 1] or first >= flipped:
            best = values[last - 1]
            suffix[last - 1] = best
            for j in range(last - 2, first - 1, -1):
                best = _better(best, values[j], greatest)
                suffix[j] = best
            flipped = seen = last
            out[i] = best
            continue
        for j in range(seen, last):
            back = values[j] if j == flipped else _better(back, values[j], greatest)
        seen = last
        out[i] = suffix[first] if seen == flipped else _better(suffix[first], back, greatest)


@numba.njit(cache=True)
def _combine_sums(highs, lows, group, low, high, out):
    suffix = np.empty((len(highs), 2), np.float64)
    flipped = seen = 0  # as in _combine_extremes
    back_high = back_low = 0.0
    for i in range(len(low)):
        first, last = low[i], high[i]
        if i == 0 or group[i] != group[i - 1] or first >= flipped:
            a, b = highs[last - 1], lows[last - 1]
            suffix[last - 1, 0], suffix[last - 1, 1] = a, b
            for j in range(last - 2, first - 1, -1):
                a, b = _add(highs[j], lows[j], a, b)
                suffix[j, 0], suffix[j, 1] = a, b
            flipped = seen = last
            out[i, 0], out[i, 1] = a, b
            continue
        for j in range(seen, last):
            if j == flipped:
                back_high, back_low = highs[j], lows[j]
            else:
                back_high, back_low = _add(back_high, back_low, highs[j], lows[j])
        seen = last
        a, b = suffix[first, 0], suffix[first, 1]
        if seen > flipped:
            a, b = _add(a, b, back_high, back_low)
        out[i, 0], out[i, 1] = a, b


def combine_runs(values: NDArray[Any], operation: int, group: Longs, low: Longs, high: Longs) -> NDArray[Any]:
    """Combine of each run.

    ``values`` (n, 1) int64 or float64, or (n, 2) double-doubles; ``operation``: see the constants above; ``group``,
    ``low``, ``high`` (a,) as :func:`runs` gives them: by group, both bounds ascending within one. Returns (a, width).
    O(n + a).
    """
    out = np.empty((len(low), values.shape[1]), dtype=values.dtype)
    first = np.ascontiguousarray(values[:, 0])
    if operation == ADD_DOUBLE:
        _combine_sums(first, np.ascontiguousarray(values[:, 1]), group, low, high, out)
    else:
        _combine_extremes(first, operation == MAX, group, low, high, out[:, 0])
    return out
