"""R-INT for every substream: running totals, and which of them pass a threshold by asking each.

What the collective indexes are measured against, and what checks their candidates.

References
----------
Arasu & Widom, "Resource sharing in continuous sliding-window aggregates", VLDB 2004: Figure 6 (R-INT) and section 4, "a
simple strategy".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from optimizer.combine.kernel_stamps import stamp_kernels
from optimizer.combine.threshold_index import Longs
from optimizer.papers.reference.substream_updates import (
    TOO_LARGE,
    TOTAL_LIMIT,
    SubstreamClock,
    expired_instant,
    floor_log2,
    threshold_of,
    weights_of,
)

BEGIN, MASK, FIRST, COUNT, TOTAL = range(5)  # columns of Rings.keys


class Rings(NamedTuple):
    """A ring for every substream, with the elements that a window may still cover, all in the same arrays.

    - ``times`` (a,): times of elements.
    - ``totals`` (a,): running totals before them, modulo 2**64, or empty if each counts 1.
    - ``keys`` (keys, 8): of a ring its begin in the arrays, size - 1 (a power of two), numbers of its oldest element
      and of the next one, and the running total.
    - ``used`` (1,): length of the arrays that is allocated to rings.
    """

    times: Longs
    totals: Longs
    keys: Longs
    used: Longs


SMALLEST_RING = 4

ENTERED, FULL, OVERFLOWING = range(3)


def _rings(keys: int, weighted: bool) -> Rings:
    table = np.zeros((keys, 8), np.int64)
    table[:, BEGIN] = SMALLEST_RING * np.arange(keys)
    table[:, MASK] = SMALLEST_RING - 1
    used = SMALLEST_RING * keys
    size = used + max(used // 2, 64)
    return Rings(
        np.empty(size, np.int64), np.empty(size if weighted else 0, np.int64), table, np.array([used], np.int64)
    )


@numba.njit(cache=True, inline="always")
def _evict(times, ring, expired):
    while ring[FIRST] < ring[COUNT] and times[ring[BEGIN] + (ring[FIRST] & ring[MASK])] <= expired:
        ring[FIRST] += 1


@numba.njit(cache=True, inline="always")
def _held(rings, ring):
    if ring[FIRST] == ring[COUNT]:
        return 0
    return ring[TOTAL] - rings.totals[ring[BEGIN] + (ring[FIRST] & ring[MASK])]


@numba.njit(cache=True)
def append(rings, key, time, weight, expired):
    """Append an element to a substream: ENTERED, or nothing is changed because its ring is FULL of elements not expired
    or its sum OVERFLOWING."""
    ring = rings.keys[key]
    if ring[COUNT] - ring[FIRST] > ring[MASK]:
        _evict(rings.times, ring, expired)
        if ring[COUNT] - ring[FIRST] > ring[MASK]:
            return FULL
    at = ring[BEGIN] + (ring[COUNT] & ring[MASK])
    if len(rings.totals):
        if _held(rings, ring) > TOTAL_LIMIT - weight:
            _evict(rings.times, ring, expired)
            if _held(rings, ring) > TOTAL_LIMIT - weight:
                return OVERFLOWING
        rings.totals[at] = ring[TOTAL]
        ring[TOTAL] += weight
    rings.times[at] = time
    ring[COUNT] += 1
    return ENTERED


@numba.njit(cache=True)
def _move(source, target, key, begin, mask):
    """Copy what a ring of ``source`` holds to a ring of ``target``, and note its place there."""
    ring = source.keys[key]
    for number in range(ring[FIRST], ring[COUNT]):
        old, new = ring[BEGIN] + (number & ring[MASK]), begin + (number & mask)
        target.times[new] = source.times[old]
        if len(source.totals):
            target.totals[new] = source.totals[old]
    target.keys[key] = ring
    target.keys[key, BEGIN], target.keys[key, MASK] = begin, mask


@numba.njit(cache=True)
def more_room(rings, key, expired):
    """Rings with a larger one for this key: at the end of the arrays, or in new arrays with room for what is alive."""
    size = 2 * (rings.keys[key, MASK] + 1)
    if rings.used[0] + size <= len(rings.times):
        _move(rings, rings, key, rings.used[0], size - 1)
        rings.used[0] += size
        return rings
    sizes = np.empty(len(rings.keys), np.int64)
    for k in range(len(sizes)):
        ring = rings.keys[k]
        _evict(rings.times, ring, expired)
        alive = ring[COUNT] - ring[FIRST]
        sizes[k] = max(SMALLEST_RING, 2 << floor_log2(alive + alive // 2 + 1))
    used = sizes.sum()
    length = used + used // 2 + 2 * sizes.max()
    wider = Rings(
        np.empty(length, np.int64),
        np.empty(length if len(rings.totals) else 0, np.int64),
        np.zeros_like(rings.keys),
        np.array([used]),
    )
    begin = 0
    for k in range(len(sizes)):
        _move(rings, wider, k, begin, sizes[k] - 1)
        begin += sizes[k]
    return wider


@numba.njit(cache=True, inline="always")
def _first_since(rings, ring, cutoff):
    """Number of the first element in the ring that is at or after the cutoff."""
    low, high = ring[FIRST], ring[COUNT]
    while low < high:
        middle = (low + high) >> 1
        if rings.times[ring[BEGIN] + (middle & ring[MASK])] < cutoff:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(cache=True)
def total_since(rings, key, cutoff):
    """Total of a substream's elements at or after the cutoff: R-INT, the difference of two running totals."""
    ring = rings.keys[key]
    first = _first_since(rings, ring, cutoff)
    if len(rings.totals) == 0:
        return ring[COUNT] - first
    if first == ring[COUNT]:
        return 0
    return ring[TOTAL] - rings.totals[ring[BEGIN] + (first & ring[MASK])]


@numba.njit(cache=True, inline="always")
def _is_since(rings, ring, distance, cutoff):
    """Return whether the element at this distance from the end (1: the last) is at or after the cutoff."""
    number = ring[COUNT] - distance
    return number >= ring[FIRST] and rings.times[ring[BEGIN] + (number & ring[MASK])] >= cutoff


@numba.njit(cache=True)
def ask_each(rings, cutoff, v, below, out):
    """The published way without an index: R-INT on every substream. Keys that qualify into out; their number."""
    count = 0
    for key in range(len(rings.keys)):
        total = total_since(rings, key, cutoff)
        out[count] = key
        count += (0 < total < v) if below else total > v
    return count


@numba.njit(cache=True)
def is_within(rings, key, cutoff, v, below):
    """Return whether one substream qualifies. For counts one element decides, without a search."""
    if len(rings.totals):
        total = total_since(rings, key, cutoff)
        return 0 < total < v if below else total > v
    ring = rings.keys[key]
    if below:
        return _is_since(rings, ring, 1, cutoff) and not _is_since(rings, ring, v, cutoff)
    return _is_since(rings, ring, v + 1, cutoff)


@numba.njit(cache=True)
def _feed_totals(rings, keys, times, weights, limit):
    """Enter elements until one makes a sum too large; returns the rings and the number entered."""
    for at in range(len(keys)):
        key, time = keys[at], times[at]
        weight = weights[at] if len(weights) else 1
        expired = expired_instant(time, limit)
        done = append(rings, key, time, weight, expired)
        while done == FULL:
            rings = more_room(rings, key, expired)
            done = append(rings, key, time, weight, expired)
        if done == OVERFLOWING:
            return rings, at
    return rings, len(keys)


class SubstreamTotals(SubstreamClock):
    """Count, or sum of positive integer weights, of every substream over any of its last instants: R-INT for each.

    Parameters: ``keys``, number of substreams; ``span_limit``, the longest window of look-ups (T_max; None: any), older
    elements are dropped; ``weighted``, sums instead of counts. Update O(1), look-up O(keys * log elements);
    space: the elements of the last ``span_limit``, at most some six times over.

    References: Arasu & Widom (VLDB 2004) Figure 6 and section 4, "a simple strategy".
    """

    def __init__(self, keys: int, span_limit: int | None = None, weighted: bool = False) -> None:
        super().__init__(keys, span_limit)
        self.weighted = weighted
        self.rings = _rings(keys, weighted)

    def update(self, key: int, time: int, weight: int = 1) -> None:
        """Add one element of a substream, of a weight of 1..2**61 (1 unless ``weighted``).

        Raises ValueError if times do not ascend, IndexError for an unknown key, OverflowError if a key's total would
        exceed 2**61.
        """
        if not 1 <= weight <= (TOTAL_LIMIT if self.weighted else 1):
            raise ValueError(f"weights are 1..2**61, and 1 where counts are asked, not {weight}")
        self.append(key, time, weight, self._tick(key, time))

    def append(self, key: int, time: int, weight: int, expired: int) -> None:
        """Append an element to a substream, in more room if it is full. Raises OverflowError."""
        while (done := append(self.rings, key, time, weight, expired)) == FULL:
            self.rings = more_room(self.rings, key, expired)
        if done == OVERFLOWING:
            raise OverflowError(TOO_LARGE)

    def update_many(self, keys: Any, times: Any, weights: Any = None) -> None:
        """Elements in order: keys (n,), times (n,), and with ``weighted`` weights (n,) of 1..2**61.

        Raises as :meth:`update`; what comes before a weight that is too much has been entered then.
        """
        if (weights is not None) != self.weighted:
            raise ValueError("weights are given if and only if sums are asked")
        sizes = weights_of(weights, len(keys)) if self.weighted else np.empty(0, np.int64)
        numbers, moments = self._taken(keys, times)
        entered = self.extend(numbers, moments, sizes)
        if entered < len(numbers):
            self.latest = int(moments[entered])
            raise OverflowError(TOO_LARGE)

    def extend(self, keys: Longs, times: Longs, weights: Longs) -> int:
        """Append elements until one does not fit; how many were."""
        self.rings, entered = _feed_totals(self.rings, keys, times, weights, self._limit)
        return int(entered)

    def total(self, key: int, now: int, span: int) -> int:
        """Count or sum of one substream over the last ``span`` instants."""
        return int(total_since(self.rings, key, self._cutoff(now, span)))

    def lookup(self, now: int, span: int, v: int, below: bool = False) -> Longs:
        """Keys, ascending, whose count or sum exceeds v; with ``below``, is positive and less than v. Exact."""
        count = ask_each(self.rings, self._cutoff(now, span), threshold_of(v), below, self._found)
        return self._found[:count].copy()


stamp_kernels(globals())
