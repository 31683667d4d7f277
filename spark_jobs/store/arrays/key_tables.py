"""Tables that many values are looked up in: numbers of integer keys, and spans of time that rows are for."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from spark_jobs.store.arrays.numbering import Longs, Rows, read_only

SLOTS_A_KEY = 8
"""So many slots a key may have where they are numbered by their values; else they are hashed."""

LEAST_SLOTS = 1 << 16
"""So many slots are always taken."""


@numba.njit(cache=True)
def _by_value(table, low, values):
    """The entry (n,) of each value less the lowest key; -1 outside the table. Differences may wrap around."""
    out = np.empty(len(values), np.int32)
    for i in range(len(values)):
        at = values[i] - low
        out[i] = table[at] if 0 <= at < len(table) else -1
    return out


@numba.njit(cache=True)
def _hashed(keys):
    """A hash table of the positions of distinct keys; -1: free. Half of it stays free."""
    size = 16
    while size < 2 * len(keys):
        size *= 2
    table = np.full(size, -1, np.int32)
    for number in range(len(keys)):
        key = keys[number]
        at = ((key ^ (key >> 32)) * 0x9E3779B97F4A7C1 >> 20) & (size - 1)
        while table[at] >= 0:
            at = (at + 1) & (size - 1)
        table[at] = number
    return table


@numba.njit(cache=True)
def _by_hash(table, keys, values):
    """The position (n,) of each value among the keys; -1: none."""
    out = np.empty(len(values), np.int32)
    mask = len(table) - 1
    for i in range(len(values)):
        value = values[i]
        at = ((value ^ (value >> 32)) * 0x9E3779B97F4A7C1 >> 20) & mask
        while table[at] >= 0 and keys[table[at]] != value:
            at = (at + 1) & mask
        out[i] = table[at]
    return out


class KeyTable:
    """The positions of distinct integers.

    Parameters
    ----------
    keys
        (k,), each once.
    """

    def __init__(self, keys: Longs) -> None:
        self._keys = read_only(np.ascontiguousarray(keys))
        self._low, high = (int(keys.min()), int(keys.max())) if len(keys) else (0, -1)
        size = high - self._low + 1
        self._is_close = size <= max(SLOTS_A_KEY * len(keys), LEAST_SLOTS)
        if self._is_close:
            self._table: Rows = np.full(size, -1, dtype=np.int32)
            self._table[keys - self._low] = np.arange(len(keys), dtype=np.int32)
        else:
            self._table = _hashed(self._keys)

    def positions(self, values: Longs) -> Rows:
        """The position (n,) of each value among the keys; -1: it is none."""
        some = read_only(values)
        rows: Rows = (
            _by_value(self._table, self._low, some) if self._is_close else _by_hash(self._table, self._keys, some)
        )
        return rows


@numba.njit(cache=True)
def _valid_at(first, begins, ends, numbers, times):
    out = np.empty(len(numbers), np.int32)
    for i in range(len(numbers)):
        out[i] = -1
        if numbers[i] < 0:
            continue
        low, high = first[numbers[i]], first[numbers[i] + 1]
        while low < high:
            middle = (low + high) // 2
            if begins[middle] <= times[i]:
                low = middle + 1
            else:
                high = middle
        if low > first[numbers[i]] and times[i] < ends[low - 1]:
            out[i] = low - 1
    return out


class SpanTable:
    """The spans of time [begin, end) that rows are for, which do not overlap for one number.

    Parameters
    ----------
    numbers
        (m,) of the rows, in [0, most), and with ``begins`` and ``ends`` (m,) their spans.
    """

    def __init__(self, numbers: NDArray[np.int32], begins: Longs, ends: Longs, most: int) -> None:
        self._order = np.lexsort((begins, numbers)).astype(np.int32)
        self._begins, self._ends = read_only(begins[self._order]), read_only(ends[self._order])
        self._first = read_only(np.searchsorted(numbers[self._order], np.arange(most + 1)).astype(np.int64))

    def rows_at(self, numbers: Rows, times: Longs) -> Rows:
        """The row (n,) of each number, -1 for none, at a time; -1: there is none."""
        places = _valid_at(self._first, self._begins, self._ends, numbers, read_only(times))
        if not len(self._order):
            return places
        rows: Rows = np.where(places < 0, np.int32(-1), self._order[places])
        return rows
