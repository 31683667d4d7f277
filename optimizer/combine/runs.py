"""Checks of runs. A run is the first and the last element (of its group) that a window covers."""

from __future__ import annotations

import numba

from optimizer.combine.elements import Longs


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
