"""Newest entries of files that may have events in spans of time, for many spans at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def newest_in(
    lows: NDArray[np.int64],
    highs: NDArray[np.int64],
    noted: NDArray[np.int64],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Latest of the moments ``noted`` of files whose events lie in spans [low, high) that meet some spans [begin, end)
    (n,): (n,); 0: there are none. O((files + n) log files).
    """
    # np.unique takes a hundred times as long
    edges = np.sort(np.concatenate([lows, highs]))
    edges = edges[np.append(True, edges[1:] > edges[:-1])] if len(edges) else edges
    if len(edges) < 2:
        return np.zeros(len(begins), dtype=np.int64)
    # of each piece between two edges the newest
    newest = np.zeros(len(edges) - 1, dtype=np.int64)
    first, last = np.searchsorted(edges, lows), np.searchsorted(edges, highs)
    is_one = last == first + 1
    np.maximum.at(newest, first[is_one], noted[is_one])
    for low, high, at in zip(*(each[~is_one].tolist() for each in (first, last, noted)), strict=True):
        np.maximum(newest[low:high], at, out=newest[low:high])
    # of 2^k pieces from each on
    tables = [newest]
    while 2 << (len(tables) - 1) <= len(newest):
        step, before = 1 << (len(tables) - 1), tables[-1]
        tables.append(np.maximum(before[:-step], before[step:]))
    low = np.maximum(np.searchsorted(edges, begins, side="right") - 1, 0)
    high = np.minimum(np.searchsorted(edges, ends, side="left"), len(newest))
    newest_noted = np.zeros(len(begins), dtype=np.int64)
    for level, table in enumerate(tables):
        of_level = np.flatnonzero((high - low >= 1 << level) & (high - low < 2 << level))
        newest_noted[of_level] = np.maximum(table[low[of_level]], table[high[of_level] - (1 << level)])
    return newest_noted
