"""Runs: for each answer the first and last element (of its group) that its window covers."""

from __future__ import annotations

import numba
import numpy as np

from optimizer.combine.elements import Longs


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


@numba.njit(cache=True)
def _first_outside(low, high, size, shortest):
    for i in range(len(low)):
        if low[i] < 0 or high[i] > size or high[i] - low[i] < shortest:
            return i
    return -1


def check_runs(low: Longs, high: Longs, size: int, shortest: int = 1, group: Longs | None = None) -> None:
    """Raises ValueError unless every run, low and high (a,), lies within ``size`` and is so long at least (and has a
    ``group``, where they are given). Compiled code does not look where it reads."""
    if len(low) != len(high) or (group is not None and len(group) != len(low)):
        raise ValueError(f"{len(low)} lower and {len(high)} upper ends of runs, or not as many groups")
    wrong = _first_outside(low, high, size, shortest)
    if wrong >= 0:
        raise ValueError(f"run [{low[wrong]}, {high[wrong]}) does not lie within {size} fragments, or is empty")
