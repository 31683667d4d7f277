"""Numba kernels of look-ups: instants to windows, windows to runs of cells, runs to values."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from optimizer.combine.kernel_stamps import stamp_kernels
from optimizer.combine.wavelet_matrix import answer_wavelet
from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.attributes import shown_column
from optimizer.workload.values import ACQ
from spark_jobs.windows.finals.window_query import seek

Longs = NDArray[np.int64]

Group = tuple[Any, ...]

Answered = dict[str, tuple[NDArray[Any], NDArray[np.bool_]]]

Span = tuple[int, int]


@numba.njit(cache=True)
def windows_at(times, base, slide, first, last, low, high):
    """The fragments [low, high) of the newest window of each instant; the first look-up that has none, or -1.

    first, last: (w,) those of the windows whose instants are base, base + slide, ...; -1: not stored.
    """
    inverse = 1.0 / slide
    for i in range(len(times)):
        distance = times[i] - base
        window = np.int64(distance * inverse)
        offset = distance - window * slide
        # the product is off by one at most wherever there are windows
        if offset < 0:
            window -= 1
        elif offset >= slide:
            window += 1
        if window < 0 or window >= len(first) or first[window] < 0:
            return i
        low[i], high[i] = first[window], last[window]
    return -1


@numba.njit(cache=True)
def run_by_arithmetic(groups, fragments, low, high):
    """Runs of cells, in place of fragments [low, high), where every group has a cell in every one."""
    for i in range(len(low)):
        begin = groups[i] * fragments
        low[i] += begin
        high[i] += begin


@numba.njit(cache=True)
def run_by_position(groups, position, low, high):
    """Runs of cells, in place of fragments [low, high), by a table of positions for each group."""
    for i in range(len(low)):
        row = position[groups[i]]
        low[i], high[i] = row[low[i]], row[high[i]]


@numba.njit(cache=True)
def run_by_search(groups, slots, offsets, low, high):
    """Runs of cells, in place of fragments [low, high), by search among the slots of each group."""
    for i in range(len(low)):
        begin, end = offsets[groups[i]], offsets[groups[i] + 1]
        begin = seek(slots, begin, end, low[i])
        high[i] = seek(slots, begin, end, high[i])
        low[i] = begin


@numba.njit(cache=True)
def fragment_positions(slots, offsets, position):
    """Number of cells before each fragment, for each group: (g, f + 1)."""
    for g in range(len(offsets) - 1):
        at = offsets[g]
        for slot in range(position.shape[1]):
            while at < offsets[g + 1] and slots[at] < slot:
                at += 1
            position[g, slot] = at


@numba.njit(cache=True)
def sums_between(totals, low, high, values, valid):
    """Sums of runs as differences of running (count, sum) ``totals``; valid where a value came."""
    for i in range(len(low)):
        before, after = totals[low[i]], totals[high[i]]
        valid[i] = after[0] > before[0]
        values[i] = after[1] - before[1]


@numba.njit(cache=True)
def means_between(totals, low, high, values, valid):
    """Averages of runs as differences of running (count, sum) ``totals``; valid where a value came."""
    for i in range(len(low)):
        before, after = totals[low[i]], totals[high[i]]
        count = after[0] - before[0]
        valid[i] = count > 0
        values[i] = (after[1] - before[1]) / max(count, 1)


@numba.njit(cache=True)
def best_of(numbers, greatest, low, high):
    """Return the position of the greatest, or least, number of the run; the first of equal ones."""
    best = low
    for at in range(low + 1, high):
        if (numbers[at] > numbers[best]) if greatest else (numbers[at] < numbers[best]):
            best = at
    return best


@numba.njit(cache=True)
def code_at(blocks, zeros, totals, first, last, rank):
    """The element of a rank in one run of a wavelet matrix: the number of its value."""
    lookup = np.empty((4, 1), np.int64)
    lookup[0, 0], lookup[1, 0], lookup[2, 0] = first, last, rank
    answer_wavelet(blocks, zeros, totals, lookup[0], lookup[1], lookup[2], lookup[3])
    return lookup[3, 0]


def unknown_group(query: ACQ, groups: Sequence[Group]) -> HeddleError:
    """The error (HDL-605) of groups that a query does not have."""
    shown = "; ".join(", ".join(map(str, group)) or "(none)" for group in groups[:3])
    columns = ", ".join(shown_column(name) for name, _ in query.group_by) or "no columns: it has one group, ()"
    return HeddleError("HDL-605", f"{query.name} has no such group: {shown}", f"it is grouped by {columns}")


LookupValue = Callable[[int, int], Any]

DTYPES: dict[str, Any] = {"longs": np.int64, "doubles": np.float64, "texts": object}

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


stamp_kernels(globals())
