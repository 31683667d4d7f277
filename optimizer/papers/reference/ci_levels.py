"""Levels of CI-COUNT and CI-SUM: ranges of positions from the end of each substream, with one element's time each.

``COUNT > v`` over the last T holds iff the (v+1)-th element from the end is no older than T. Positions from the
end are divided into levels, p of each power-of-two size. For each level the index stores one element's time for every
key: a *row* of times. A look-up reads the one row whose distance from the end comes nearest to v + 1, from below. So it
returns all keys that qualify and some that fall short by a fraction (:func:`relative_error`). These few are checked
exactly.

References
----------
Arasu & Widom, "Resource sharing in continuous sliding-window aggregates", VLDB 2004: section 4, Figure 7
(LOOKUP), Lemma 4.1. Deviations: Figure 7 tests ``TSTAMP >= now - T`` and takes level ``floor(log2 v) - 1``, which is -1
at v = 1 and admits one instant too many; here it is the largest level that is nowhere farther than v + 1, and
``now - T + 1``. The errors of Lemma 4.1 are corrected in :func:`relative_error`. A level's times are scanned as one row
of an array where the paper has a search tree: up to some 1e5 keys that is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numba
import numpy as np

from optimizer.combine.kernel_stamps import stamp_kernels
from optimizer.combine.threshold_index import NEVER, Longs
from optimizer.papers.reference.r_int import SubstreamTotals, is_within
from optimizer.papers.reference.substream_updates import TOO_LARGE, SubstreamClock, floor_log2, threshold_of, weights_of

# Level p*j + i (0 <= i < p) holds the 2**j positions at distances nearest..farthest from the end (1: the last element).
# In it one element's number is a multiple of 2**j, and of that element the time is kept.


def relative_error(p: int, below: bool = False) -> Fraction:
    """The error epsilon of CI-COUNT and CI-SUM with p levels of each size.

    Keys returned for ``> v`` have more than v(1 - epsilon), keys returned for ``< v`` (``below``) less than
    v(1 + epsilon). Lemma 4.1, corrected: 3/4 and 3 for p = 1, 2/(p + 2) and 2/p from p = 2 on.
    """
    if p < 1:
        raise ValueError(f"p is a number of levels, at least 1, not {p}")
    if p == 1:
        return Fraction(3) if below else Fraction(3, 4)
    return Fraction(2, p) if below else Fraction(2, p + 2)


@numba.njit(cache=True, inline="always")
def level_at(distance, p):
    """The level that holds the element at a distance (from 1) from the newest."""
    j = floor_log2((distance - 1 + p) // p)
    return p * j + ((distance - 1 - p * ((1 << j) - 1)) >> j)


@numba.njit(cache=True)
def level_within(distance, p):
    """The largest level that is nowhere farther from the end than this distance, >= 1."""
    reach = distance + p
    j = floor_log2(reach // (p + 1))
    return p * j + min(p, (reach >> j) - p) - 1


@numba.njit(cache=True)
def level_beyond(distance, p):
    """The smallest level that is nowhere nearer to the end than this distance, >= 1."""
    reach = distance + p - 1
    j = 0
    while ((2 * p - 1) << j) < reach:
        j += 1
    return p * j + max(0, ((reach + (1 << j) - 1) >> j) - p)


@numba.njit(cache=True)
def levels_of(v, p, below):
    """The level that all answers to ``> v`` (``< v``) pass, and one that only answers pass.

    More than v elements: the (v+1)-th from the end is not too old. A level nearer than that is passed by all such keys,
    one beyond it by such keys only. Fewer than v: the v-th is too old; near and far change places.
    """
    if below:
        distance = max(v, 1)
        return level_beyond(distance, p), level_within(distance, p)
    return level_within(v + 1, p), level_beyond(v + 1, p)


@numba.njit(cache=True)
def more_levels(stamps, p):
    """The rows with p more, of elements that no key has yet (or no longer)."""
    wider = np.full((stamps.shape[0] + p, stamps.shape[1]), NEVER, np.int64)
    wider[: stamps.shape[0]] = stamps
    return wider


@numba.njit(cache=True)
def scan(stamps, level, keys, cutoff, below, out):
    """Candidates into out, ascending; their number (Figure 7, LOOKUP).

    Keys whose element of this level is at or after the cutoff; with ``below``, before it or missing while the key's
    last element is at or after the cutoff. A level that is not stored holds nothing any more.
    """
    count = 0
    if below:
        row, newest = stamps[min(level, stamps.shape[0] - 1)], stamps[0]
        stored = level < stamps.shape[0]
        for key in range(keys):
            out[count] = key
            count += (newest[key] >= cutoff) & ((row[key] < cutoff) | (not stored))
        return count
    if level >= stamps.shape[0]:
        return 0
    row = stamps[level]
    for key in range(0, keys - 3, 4):
        # most groups of four hold no candidate: one branch for all
        if (row[key] >= cutoff) | (row[key + 1] >= cutoff) | (row[key + 2] >= cutoff) | (row[key + 3] >= cutoff):
            for each in range(key, key + 4):
                out[count] = each
                count += row[each] >= cutoff
    for key in range(keys & ~3, keys):
        out[count] = key
        count += row[key] >= cutoff
    return count


@numba.njit(cache=True)
def check(stamps, level, rings, cutoff, v, below, candidates, count):
    """Keep, of the first ``count`` candidates of :func:`scan`, those that qualify exactly; their number.

    ``level``: one on the other side of the threshold than the one that was scanned. It shows most candidates to be
    right, and only the others' histories are read, where nearly every access misses the caches.
    """
    qualifying = 0
    stored = level < stamps.shape[0]
    row = stamps[level if stored else 0]
    for at in range(count):
        key = candidates[at]
        sure = (not stored or row[key] < cutoff) if below else stored and row[key] >= cutoff
        candidates[qualifying] = key
        qualifying += sure or is_within(rings, key, cutoff, v, below)
    return qualifying


class CollectiveIndex(SubstreamClock):
    """Levels of times over all keys (CI-COUNT and CI-SUM), and the histories that check what they find."""

    def __init__(self, keys: int, p: int, span_limit: int | None, exact: bool, weighted: bool) -> None:
        super().__init__(keys, span_limit)
        if not 1 <= p <= 1 << 12:
            raise ValueError(f"p is a number of levels, 1..4096, not {p}")
        self.p = p
        # an odd number of cache lines to a row: a key's times do not compete for the same places in the cache
        self.stamps = np.full((p, 8 * ((keys + 7) // 8 | 1)), NEVER, np.int64)
        self.lengths = np.zeros(keys, np.int64)
        self.totals = SubstreamTotals(keys, span_limit, weighted) if exact else None

    def _enter(self, feed: Callable[..., Longs], keys: Any, times: Any, weights: Any = None) -> None:
        """``feed``: enters elements into the levels, which it returns."""
        sizes = np.empty(0, np.int64) if weights is None else weights_of(weights, len(keys))
        numbers, moments = self._taken(keys, times)
        entered = len(numbers)
        if self.totals is not None:
            entered = self.totals.extend(numbers, moments, sizes)
        elements = numbers[:entered], moments[:entered], sizes[:entered]
        self.stamps = feed(self.stamps, self.lengths, self.p, *elements, self._limit)
        if entered < len(numbers):
            self.latest = int(moments[entered])
            raise OverflowError(TOO_LARGE)

    def lookup(self, now: int, span: int, v: int, below: bool = False) -> Longs:
        """Keys, ascending: all whose count or sum over the last ``span`` instants exceeds v, and some that fall short.

        Every one exceeds v(1 - epsilon). With ``below``: all whose count or sum is positive and less than v, every one
        less than v(1 + epsilon). Epsilon: :func:`relative_error`. Raises ValueError for v < 0, a window longer than
        ``span_limit``, or one that ends before the last update. O(keys): one row of times.
        """
        level, _ = levels_of(threshold_of(v), self.p, below)
        count = scan(self.stamps, level, self.keys, self._cutoff(now, span), below, self._found)
        return self._found[:count].copy()

    def exact(self, now: int, span: int, v: int, below: bool = False) -> Longs:
        """Return the keys of :meth:`lookup` that qualify exactly: each candidate is checked in its history.

        Raises ValueError as well if the index was made with ``exact=False``.
        """
        if self.totals is None:
            raise ValueError("made with exact=False, this index has no histories to check with")
        cutoff, threshold = self._cutoff(now, span), threshold_of(v)
        level, sure = levels_of(threshold, self.p, below)
        count = scan(self.stamps, level, self.keys, cutoff, below, self._found)
        count = check(self.stamps, sure, self.totals.rings, cutoff, threshold, below, self._found, count)
        return self._found[:count].copy()


stamp_kernels(globals())
