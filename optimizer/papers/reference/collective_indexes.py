"""Which of many substreams have an aggregate above, or below, a threshold over a window: substream filters.

A stream is partitioned by key (stock symbols, hosts) and many queries ask for the keys whose COUNT, SUM, MAX or MIN
over their own window passes their own threshold. Asking every substream takes time in the number of keys; a
*collective index* over all of them leaves a few.

:class:`CollectiveCount` (CI-COUNT)
    ``COUNT > v`` over the last T holds iff the (v+1)-th element from the end is no older than T. Positions from the
    end are divided into levels, p of each power-of-two size, and of each level one element's time is kept for every
    key: a *row* of times. A look-up reads the one row whose distance from the end comes nearest to v + 1, from below;
    so it finds all keys that qualify and some that fall short by a fraction (:func:`relative_error`). These few are
    checked exactly.
:class:`CollectiveSum` (CI-SUM)
    The same for sums of positive integers: an element of weight w counts as w elements at one time, which are entered
    together.
:class:`CollectiveExtreme` (CI-MAX, CI-MIN)
    Of a substream only the elements matter that none after them exceeds, a staircase: each is the maximum of the
    windows that begin between the stair before it and itself. These intervals are kept in a segment tree over time
    with a heap at every node, so a look-up walks one path of the tree and reports each key at most once; exact.
:class:`SubstreamTotals`
    What the index is measured against, and what checks its candidates: running totals for each substream (R-INT).
:class:`HavingIndex`
    The same question over stored partial aggregates: fragments instead of single events, any window, not only the last
    T.

Times are integers (microseconds in Heddle), ascending in the order of updates; equal times are allowed. Windows are the
paper's: at time ``now`` the last T are the instants ``now - T + 1 .. now``, both included. Keys are numbers 0..keys-1.

References ---------- Arasu & Widom, "Resource sharing in continuous sliding-window aggregates", VLDB 2004: section 4,
Figure 7, Lemma 4.1 (CI-COUNT), section 4.2 (CI-SUM), Figure 6 (R-INT). Deviations: Figure 7 tests ``TSTAMP >= now -
T`` and takes level ``floor(log2 v) - 1``, which is -1 at v = 1 and admits one instant too many; here it is the largest
level that is nowhere farther than v + 1, and ``now - T + 1``. The errors of Lemma 4.1 are corrected in
:func:`relative_error`. A level's times are scanned as one row of an array where the paper has a search tree: up to
some 1e5 keys that is faster. CI-SUM enters an element in O(p log m) whatever its weight; CI-MAX/MIN are only mentioned
in the paper, the structure is ours (its bounds: update O(log^2 N), look-up O(log N + keys found)).
"""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any, NamedTuple

import numba
import numpy as np

from optimizer.combine.elements import ordinals
from optimizer.combine.threshold_index import NEVER, Longs, floor

TOTAL_LIMIT = 1 << 61
"""The largest sum over what one key holds."""

BEGIN, MASK, FIRST, COUNT, TOTAL = range(5)  # columns of Rings.keys

VALUE, LEFT, RIGHT, PARENT, NODE, NEXT, STAIR = range(7)  # columns of Stairs.entries


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


# ------------------------------------------------------------------------------------------- levels
# Level p*j + i (0 <= i < p) holds the 2**j positions at distances nearest..farthest from the end (1: the last element).
# In it one element's number is a multiple of 2**j, and of that element the time is kept.


@numba.njit(cache=True, inline="always")
def _log2(x):
    """floor(log2(x)) for 1 <= x < 2**63."""
    found = 0
    for step in (32, 16, 8, 4, 2, 1):
        if x >> step:
            x >>= step
            found += step
    return found


@numba.njit(cache=True, inline="always")
def _level_at(distance, p):
    j = _log2((distance - 1 + p) // p)
    return p * j + ((distance - 1 - p * ((1 << j) - 1)) >> j)


@numba.njit(cache=True)
def level_within(distance, p):
    """The largest level that is nowhere farther from the end than this distance, >= 1."""
    reach = distance + p
    j = _log2(reach // (p + 1))
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
def add_element(stamps, lengths, p, key, time, expired):
    """Enter one element (Figure 7, UPDATE); False, and nothing is changed, if a level more is needed for it.

    stamps: (levels, keys or more) times by level and key; lengths: (keys,) elements so far; expired: instants up to
    this one lie in no window to come.
    """
    rows = stamps.shape[0]
    number = lengths[key] + 1 + p
    top = p
    while number & 1 == 0 and top <= rows:  # one exponent more for each trailing zero
        number >>= 1
        top += p
    if top > rows:
        if stamps[rows - 1, key] > expired:
            return False
        top = rows
    for level in range(top - 1, 0, -1):
        stamps[level, key] = stamps[level - 1, key]
    stamps[0, key] = time
    lengths[key] += 1
    return True


@numba.njit(cache=True)
def add_weight(stamps, lengths, p, key, time, weight, expired):
    """Enter an element of a weight >= 1, as so many elements at one time; else as :func:`add_element`.

    Each level's element is one of the new ones, or sits at a level known from before: O(levels), whatever the weight.
    """
    rows = stamps.shape[0]
    length = lengths[key] + weight  # only its last 61 bits count: it may wrap
    j = rows // p
    if p <= TOTAL_LIMIT >> j:
        nearest = (p << j) - p + 1
        before = nearest + ((length - nearest + 1) & ((1 << j) - 1)) - weight
        if before < 1:
            return False
        level = _level_at(before, p)
        if level < rows and stamps[level, key] > expired:
            return False
    for j in range(rows // p - 1, -1, -1):
        for i in range(p - 1, -1, -1):
            nearest = ((p + i) << j) - p + 1
            before = nearest + ((length - nearest + 1) & ((1 << j) - 1)) - weight
            if before < 1:
                stamps[p * j + i, key] = time
            else:
                level = _level_at(before, p)
                # in levels much larger than the weight the element mostly stays
                if level != p * j + i:
                    stamps[p * j + i, key] = stamps[level, key]
    lengths[key] = length
    return True


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


# ------------------------------------------------------------------------------------------ histories


class Rings(NamedTuple):
    """The elements of every substream that a window may still hold: a ring each, in one array.

    times: (a,) elements' times; totals: (a,) running totals before them, modulo 2**64, or empty where each counts 1;
    keys: (keys, 8) of a ring its begin in the arrays, size - 1 (a power of two), numbers of the oldest element held and
    of the next one, and the running total; used: (1,) how much of the arrays is given out.
    """

    times: Longs
    totals: Longs
    keys: Longs
    used: Longs


SMALLEST_RING = 4

ENTERED, FULL, TOO_LARGE = range(3)

_TOO_LARGE = "the sum of what one key holds exceeds 2**61"


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
    or its sum TOO_LARGE."""
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
                return TOO_LARGE
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
        held = ring[COUNT] - ring[FIRST]
        sizes[k] = max(SMALLEST_RING, 2 << _log2(held + held // 2 + 1))
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
    """Number of the first element held that is at or after the cutoff."""
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
    """What a substream's elements at or after the cutoff come to: R-INT, the difference of two running totals."""
    ring = rings.keys[key]
    first = _first_since(rings, ring, cutoff)
    if len(rings.totals) == 0:
        return ring[COUNT] - first
    if first == ring[COUNT]:
        return 0
    return ring[TOTAL] - rings.totals[ring[BEGIN] + (first & ring[MASK])]


@numba.njit(cache=True, inline="always")
def _is_since(rings, ring, distance, cutoff):
    """Is the element at this distance from the end (1: the last) at or after the cutoff?"""
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
    """Does this one substream qualify? For counts one element tells, nothing is searched."""
    if len(rings.totals):
        total = total_since(rings, key, cutoff)
        return 0 < total < v if below else total > v
    ring = rings.keys[key]
    if below:
        return _is_since(rings, ring, 1, cutoff) and not _is_since(rings, ring, v, cutoff)
    return _is_since(rings, ring, v + 1, cutoff)


@numba.njit(cache=True)
def check(stamps, level, rings, cutoff, v, below, candidates, count):
    """Keep, of the first ``count`` candidates of :func:`scan`, those that qualify exactly; their number.

    ``level``: one on the other side of the threshold than the one that was scanned. It shows most candidates to be
    right, and only the others' histories are read, where nearly every access misses the caches.
    """
    kept = 0
    stored = level < stamps.shape[0]
    row = stamps[level if stored else 0]
    for at in range(count):
        key = candidates[at]
        sure = (not stored or row[key] < cutoff) if below else stored and row[key] >= cutoff
        candidates[kept] = key
        kept += sure or is_within(rings, key, cutoff, v, below)
    return kept


@numba.njit(cache=True, inline="always")
def _expired(time, limit):
    return time - limit if limit and time > NEVER + limit else NEVER


@numba.njit(cache=True)
def _feed_totals(rings, keys, times, weights, limit):
    """Enter elements until one makes a sum too large; returns the rings and the number entered."""
    for at in range(len(keys)):
        key, time = keys[at], times[at]
        weight = weights[at] if len(weights) else 1
        expired = _expired(time, limit)
        done = append(rings, key, time, weight, expired)
        while done == FULL:
            rings = more_room(rings, key, expired)
            done = append(rings, key, time, weight, expired)
        if done == TOO_LARGE:
            return rings, at
    return rings, len(keys)


@numba.njit(cache=True)
def _feed_levels(stamps, lengths, p, keys, times, weights, limit):
    for at in range(len(keys)):
        key, time = keys[at], times[at]
        expired = _expired(time, limit)
        if len(weights):
            while not add_weight(stamps, lengths, p, key, time, weights[at], expired):
                stamps = more_levels(stamps, p)
        else:
            while not add_element(stamps, lengths, p, key, time, expired):
                stamps = more_levels(stamps, p)
    return stamps


class _Clock:
    """What all have in common: how many keys, how far back windows reach, the time of the last update."""

    def __init__(self, keys: int, span_limit: int | None) -> None:
        if keys < 1:
            raise ValueError(f"at least one key, not {keys}")
        if span_limit is not None and not 1 <= span_limit < 1 << 62:
            raise ValueError(f"the longest window is 1 instant or longer, not {span_limit}")
        self.keys = keys
        self.span_limit = span_limit
        self.latest = NEVER
        self._limit = span_limit or 0
        self._found = np.empty(keys, np.int64)

    def _tick(self, key: int, time: int) -> int:
        """One update at this time; what has expired by then. Raises as :meth:`_taken`."""
        if not 0 <= key < self.keys:
            raise IndexError(f"keys are 0..{self.keys - 1}, not {key}")
        if time < self.latest or time == NEVER:
            raise ValueError(f"times ascend: {time} is before {self.latest}")
        self.latest = time
        return max(time - self._limit, NEVER) if self._limit else NEVER

    def _taken(self, keys: Any, times: Any) -> tuple[Longs, Longs]:
        """Updates as arrays. Raises ValueError if they are not in order, IndexError for an unknown key."""
        numbers = np.ascontiguousarray(keys, dtype=np.int64)
        moments = np.ascontiguousarray(times, dtype=np.int64)
        if numbers.ndim != 1 or numbers.shape != moments.shape:
            raise ValueError("one time for each key")
        if len(numbers):
            if numbers.min() < 0 or numbers.max() >= self.keys:
                raise IndexError(f"keys are 0..{self.keys - 1}")
            if moments[0] < self.latest or moments[0] == NEVER or (moments[1:] < moments[:-1]).any():
                raise ValueError("times ascend from one update to the next")
            self.latest = int(moments[-1])
        return numbers, moments

    def _cutoff(self, now: int, span: int) -> int:
        """The first instant of a window. Raises ValueError for one that cannot be asked."""
        if now < self.latest:
            raise ValueError(f"windows end at the last update ({self.latest}) or later, not at {now}")
        if span < 1 or (self.span_limit is not None and span > self.span_limit):
            raise ValueError(f"a window is 1..{self.span_limit or 'any number of'} instants, not {span}")
        return max(now - span + 1, NEVER + 1)


def _weights(weights: Any, count: int) -> Longs:
    taken = np.ascontiguousarray(weights, dtype=np.int64)
    if taken.shape != (count,) or (count and not 1 <= taken.min() <= taken.max() <= TOTAL_LIMIT):
        raise ValueError("weights are 1..2**61, one for each key")
    return taken


def _threshold(v: int) -> int:
    """A threshold as the kernels take it. Sums never pass the limit, so anything beyond asks the same."""
    if v < 0:
        raise ValueError(f"counts and sums of positive numbers are compared with 0 or more, not {v}")
    return min(operator.index(v), TOTAL_LIMIT + 1)


class SubstreamTotals(_Clock):
    """Count, or sum of positive integer weights, of every substream over any of its last instants: R-INT for each.

    Parameters: ``keys``, how many; ``span_limit``, the longest window that will be asked (T_max; None: any), elements
    older than that are forgotten; ``weighted``, sums instead of counts. Update O(1), look-up O(keys * log elements);
    space: the elements of the last ``span_limit``, at most some six times over.

    References: Arasu & Widom (VLDB 2004) Figure 6 and section 4, "a simple strategy".
    """

    def __init__(self, keys: int, span_limit: int | None = None, weighted: bool = False) -> None:
        super().__init__(keys, span_limit)
        self.weighted = weighted
        self.rings = _rings(keys, weighted)

    def update(self, key: int, time: int, weight: int = 1) -> None:
        """One element of a substream, of a weight of 1..2**61 (1 unless ``weighted``).

        Raises ValueError if times do not ascend, IndexError for an unknown key, OverflowError where what a key holds
        would exceed 2**61.
        """
        if not 1 <= weight <= (TOTAL_LIMIT if self.weighted else 1):
            raise ValueError(f"weights are 1..2**61, and 1 where counts are asked, not {weight}")
        self._append(key, time, weight, self._tick(key, time))

    def _append(self, key: int, time: int, weight: int, expired: int) -> None:
        while (done := append(self.rings, key, time, weight, expired)) == FULL:
            self.rings = more_room(self.rings, key, expired)
        if done == TOO_LARGE:
            raise OverflowError(_TOO_LARGE)

    def update_many(self, keys: Any, times: Any, weights: Any = None) -> None:
        """Elements in order: keys (n,), times (n,), and with ``weighted`` weights (n,) of 1..2**61.

        Raises as :meth:`update`; what comes before a weight that is too much has been entered then.
        """
        if (weights is not None) != self.weighted:
            raise ValueError("weights are given if and only if sums are asked")
        sizes = _weights(weights, len(keys)) if self.weighted else np.empty(0, np.int64)
        numbers, moments = self._taken(keys, times)
        entered = self._extend(numbers, moments, sizes)
        if entered < len(numbers):
            self.latest = int(moments[entered])
            raise OverflowError(_TOO_LARGE)

    def _extend(self, keys: Longs, times: Longs, weights: Longs) -> int:
        self.rings, entered = _feed_totals(self.rings, keys, times, weights, self._limit)
        return int(entered)

    def total(self, key: int, now: int, span: int) -> int:
        """Count or sum of one substream over the last ``span`` instants."""
        return int(total_since(self.rings, key, self._cutoff(now, span)))

    def lookup(self, now: int, span: int, v: int, below: bool = False) -> Longs:
        """Keys, ascending, whose count or sum exceeds v; with ``below``, is positive and less than v. Exact."""
        count = ask_each(self.rings, self._cutoff(now, span), _threshold(v), below, self._found)
        return self._found[:count].copy()


class _Collective(_Clock):
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

    def _enter(self, keys: Any, times: Any, weights: Any = None) -> None:
        sizes = np.empty(0, np.int64) if weights is None else _weights(weights, len(keys))
        numbers, moments = self._taken(keys, times)
        entered = len(numbers)
        if self.totals is not None:
            entered = self.totals._extend(numbers, moments, sizes)
        elements = numbers[:entered], moments[:entered], sizes[:entered]
        self.stamps = _feed_levels(self.stamps, self.lengths, self.p, *elements, self._limit)
        if entered < len(numbers):
            self.latest = int(moments[entered])
            raise OverflowError(_TOO_LARGE)

    def lookup(self, now: int, span: int, v: int, below: bool = False) -> Longs:
        """Keys, ascending: all whose count or sum over the last ``span`` instants exceeds v, and some that fall short.

        Every one exceeds v(1 - epsilon). With ``below``: all whose count or sum is positive and less than v, every one
        less than v(1 + epsilon). Epsilon: :func:`relative_error`. Raises ValueError for v < 0, a window longer than
        ``span_limit``, or one that ends before the last update. O(keys): one row of times.
        """
        level, _ = levels_of(_threshold(v), self.p, below)
        count = scan(self.stamps, level, self.keys, self._cutoff(now, span), below, self._found)
        return self._found[:count].copy()

    def exact(self, now: int, span: int, v: int, below: bool = False) -> Longs:
        """As :meth:`lookup` without those that fall short: each candidate is checked in its own history.

        Raises ValueError as well if the index was made with ``exact=False``.
        """
        if self.totals is None:
            raise ValueError("made with exact=False, this index has no histories to check with")
        cutoff, threshold = self._cutoff(now, span), _threshold(v)
        level, sure = levels_of(threshold, self.p, below)
        count = scan(self.stamps, level, self.keys, cutoff, below, self._found)
        count = check(self.stamps, sure, self.totals.rings, cutoff, threshold, below, self._found, count)
        return self._found[:count].copy()


class CollectiveCount(_Collective):
    """CI-COUNT: which of many substreams have more, or fewer, than v elements in the last T, for any v and T.

    Parameters
    ----------
    keys
        How many substreams.
    p
        Levels of each power-of-two size: the more, the fewer false candidates (:func:`relative_error`) and the more
        work and memory: an update copies 2p times on average, and p * log2(elements / p) are kept for each key.
    span_limit
        The longest window that will be asked (T_max; None: any). Levels that only older elements reach are not kept.
    exact
        Keep histories, so that :meth:`exact` can check candidates.

    References: Arasu & Widom (VLDB 2004) sections 4.1.1 (Figure 7) and 4.1.2 (p).
    """

    def __init__(self, keys: int, p: int = 8, span_limit: int | None = None, exact: bool = True) -> None:
        super().__init__(keys, p, span_limit, exact, weighted=False)

    def update(self, key: int, time: int) -> None:
        """One element. Raises ValueError if times do not ascend, IndexError for an unknown key."""
        expired = self._tick(key, time)
        if self.totals is not None:
            self.totals._append(key, time, 1, expired)
        while not add_element(self.stamps, self.lengths, self.p, key, time, expired):
            self.stamps = more_levels(self.stamps, self.p)

    def update_many(self, keys: Any, times: Any) -> None:
        """Elements in order: keys (n,), times (n,). Raises as :meth:`update`."""
        self._enter(keys, times)


class CollectiveSum(_Collective):
    """CI-SUM: which of many substreams have a sum of positive integers above, or below, v over the last T.

    Parameters as of :class:`CollectiveCount`; an update takes O(p log m), m the sum of a substream, whatever the
    weight.

    References: Arasu & Widom (VLDB 2004) section 4.2.
    """

    def __init__(self, keys: int, p: int = 8, span_limit: int | None = None, exact: bool = True) -> None:
        super().__init__(keys, p, span_limit, exact, weighted=True)

    def update(self, key: int, time: int, weight: int) -> None:
        """One element of a weight of 1..2**61.

        Raises ValueError for another weight or if times do not ascend, IndexError for an unknown key, OverflowError
        where what a key holds would exceed 2**61 (noticed only by an ``exact`` index).
        """
        if not 1 <= weight <= TOTAL_LIMIT:
            raise ValueError(f"weights are 1..2**61, not {weight}")
        expired = self._tick(key, time)
        if self.totals is not None:
            self.totals._append(key, time, weight, expired)
        while not add_weight(self.stamps, self.lengths, self.p, key, time, weight, expired):
            self.stamps = more_levels(self.stamps, self.p)

    def update_many(self, keys: Any, times: Any, weights: Any) -> None:
        """Elements in order: keys (n,), times (n,), weights (n,) of 1..2**61.

        Raises as :meth:`update`; what comes before a weight that is too much has been entered then.
        """
        self._enter(keys, times, weights)


# ----------------------------------------------------------------------------------------- staircases


class Stairs(NamedTuple):
    """The staircases of all substreams, in a segment tree over time with a max-heap at every node.

    The d leaves of the tree are arrivals in their order; each arrival is a stair until one as great comes after it in
    its substream. A stair is the maximum of the windows that begin at the leaves between the stair before it and
    itself, and is entered at the nodes that make up these leaves.

    moments, values: (d,) of the arrivals; owners: (d,) their key, -1 once they are no stair; before: (d,) the stair
    before it in its substream, or -1; heads: (d,) first of its entries; last: (keys,) a substream's newest stair, or
    -1; roots: (2 d,) root of each node's heap, or -1; entries: (e, 8) links, of which the first ``free[0]`` is free;
    free: a list of free entries begins at free[0]; free[1] are left, free[2] arrivals came, free[3] makes the heaps'
    random turns.
    """

    moments: Longs
    values: Longs
    owners: Longs
    before: Longs
    heads: Longs
    last: Longs
    roots: Longs
    entries: Longs
    free: Longs


SMALLEST_TREE = 1 << 10


@numba.njit(cache=True)
def _stairs(keys, leaves, room):
    entries = np.empty((room, 8), np.int64)
    for at in range(room):
        entries[at, NEXT] = at + 1
    return Stairs(
        np.empty(leaves, np.int64),
        np.empty(leaves, np.int64),
        np.full(leaves, -1, np.int64),
        np.empty(leaves, np.int64),
        np.empty(leaves, np.int64),
        np.full(keys, -1, np.int64),
        np.full(2 * leaves, -1, np.int64),
        entries,
        np.array([0, room, 0, 1]),
    )


@numba.njit(cache=True)
def _meld(entries, a, b, free):
    """One heap of two, by random turns: O(log) expected (Gambin & Malinowski, "Randomized meldable priority
    queues")."""
    if a < 0:
        return b
    if b < 0:
        return a
    if entries[a, VALUE] < entries[b, VALUE]:
        a, b = b, a
    root = a
    while True:
        free[3] = free[3] * 6364136223846793005 + 1442695040888963407
        side = LEFT if free[3] < 0 else RIGHT
        child = entries[a, side]
        if child < 0 or entries[child, VALUE] < entries[b, VALUE]:
            entries[a, side], entries[b, PARENT] = b, a
            if child < 0:
                return root
            a, b = b, child
        else:
            a = child


@numba.njit(cache=True)
def _enter_at(stairs, node, stair):
    entries, free = stairs.entries, stairs.free
    entry = free[0]
    free[0] = entries[entry, NEXT]
    free[1] -= 1
    entries[entry, VALUE], entries[entry, STAIR], entries[entry, NODE] = stairs.values[stair], stair, node
    entries[entry, LEFT] = entries[entry, RIGHT] = entries[entry, PARENT] = -1
    entries[entry, NEXT], stairs.heads[stair] = stairs.heads[stair], entry
    stairs.roots[node] = _meld(entries, stairs.roots[node], entry, free)


@numba.njit(cache=True)
def _leave(stairs, stair):
    """Take a stair out of all heaps."""
    entries, free = stairs.entries, stairs.free
    entry = stairs.heads[stair]
    while entry >= 0:
        rest = _meld(entries, entries[entry, LEFT], entries[entry, RIGHT], free)
        parent = entries[entry, PARENT]
        if rest >= 0:
            entries[rest, PARENT] = parent
        if parent < 0:
            stairs.roots[entries[entry, NODE]] = rest
        else:
            entries[parent, LEFT if entries[parent, LEFT] == entry else RIGHT] = rest
        following = entries[entry, NEXT]
        entries[entry, NEXT], free[0] = free[0], entry
        free[1] += 1
        entry = following
    stairs.owners[stair] = -1


@numba.njit(cache=True)
def add_stair(stairs, key, time, value):
    """An arrival; False, and nothing is changed, if there is no leaf or are too few entries for it."""
    moments, free, last = stairs.moments, stairs.free, stairs.last
    leaves, stair = len(moments), free[2]
    if stair == leaves or free[1] < 2 * _log2(leaves):
        return False
    before = last[key]
    while before >= 0 and stairs.values[before] <= value:
        _leave(stairs, before)
        before = stairs.before[before]
    moments[stair], stairs.values[stair], stairs.owners[stair] = time, value, key
    stairs.before[stair], stairs.heads[stair], last[key] = before, -1, stair
    free[2] += 1
    low, high = leaves + before + 1, leaves + stair + 1
    while low < high:
        if low & 1:
            _enter_at(stairs, low, stair)
            low += 1
        if high & 1:
            high -= 1
            _enter_at(stairs, high, stair)
        low >>= 1
        high >>= 1
    return True


@numba.njit(cache=True)
def build_again(stairs, expired):
    """The stairs that have not expired in a tree with as many leaves again, or more, for those to come."""
    alive = 0
    for stair in range(stairs.free[2]):
        alive += stairs.owners[stair] >= 0 and stairs.moments[stair] > expired
    leaves = max(SMALLEST_TREE, 4 << _log2(alive + 1))
    held = len(stairs.entries) - stairs.free[1]
    fresh = _stairs(len(stairs.last), leaves, SMALLEST_TREE + held + held // 2)
    for stair in range(stairs.free[2]):
        if stairs.owners[stair] >= 0 and stairs.moments[stair] > expired:
            while not add_stair(fresh, stairs.owners[stair], stairs.moments[stair], stairs.values[stair]):
                fresh = _more_entries(fresh)
    return fresh


@numba.njit(cache=True)
def _more_entries(stairs):
    count = len(stairs.entries)
    entries = np.empty((2 * count, 8), np.int64)
    entries[:count] = stairs.entries
    for at in range(count, 2 * count):
        entries[at, NEXT] = at + 1
    # the old list ends before the first new entry
    stairs.free[1] += count
    return Stairs(
        stairs.moments,
        stairs.values,
        stairs.owners,
        stairs.before,
        stairs.heads,
        stairs.last,
        stairs.roots,
        entries,
        stairs.free,
    )


@numba.njit(cache=True)
def more_stairs(stairs, expired):
    """Room for more arrivals."""
    if stairs.free[2] == len(stairs.moments):
        return build_again(stairs, expired)
    return _more_entries(stairs)


@numba.njit(cache=True)
def find_stairs(stairs, cutoff, v, out):
    """Keys whose maximum since the cutoff exceeds v into out, in no order; their number."""
    low, arrivals = 0, stairs.free[2]
    high = arrivals
    while low < high:
        middle = (low + high) >> 1
        if stairs.moments[middle] < cutoff:
            low = middle + 1
        else:
            high = middle
    count = 0
    if low == arrivals:
        return count
    entries = stairs.entries
    node = len(stairs.moments) + low
    while node >= 1:
        # out is the queue of a walk through the heap, as far down as values exceed v; then entries become keys
        seen = count
        entry = stairs.roots[node]
        if entry >= 0 and entries[entry, VALUE] > v:
            out[count] = entry
            count += 1
        while seen < count:
            entry = out[seen]
            for side in (LEFT, RIGHT):
                child = entries[entry, side]
                if child >= 0 and entries[child, VALUE] > v:
                    out[count] = child
                    count += 1
            out[seen] = stairs.owners[entries[entry, STAIR]]
            seen += 1
        node >>= 1
    return count


@numba.njit(cache=True)
def _feed_stairs(stairs, keys, times, values, limit):
    for at in range(len(keys)):
        while not add_stair(stairs, keys[at], times[at], values[at]):
            stairs = more_stairs(stairs, _expired(times[at], limit))
    return stairs


class CollectiveExtreme(_Clock):
    """CI-MAX and CI-MIN: which of many substreams have a maximum above (a minimum below) v over the last T. Exact.

    Parameters
    ----------
    keys
        How many substreams.
    greatest
        Maxima above v; False: minima below v.
    span_limit
        The longest window that will be asked (T_max; None: any). What only longer windows would see is forgotten.
    dtype
        Of the values: np.int64, or np.float64 in Spark's order (NaN greatest, -0.0 = 0.0).

    With S stairs (elements that no later one of their key matches) within ``span_limit``: an update takes O(log^2 S)
    amortised, a look-up O(log S + keys found), space O(S log S).
    """

    def __init__(self, keys: int, greatest: bool = True, span_limit: int | None = None, dtype: type = np.int64) -> None:
        super().__init__(keys, span_limit)
        self.greatest = greatest
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.int64, np.float64):
            raise ValueError(f"values are int64 or float64, not {self.dtype}")
        self.stairs = _stairs(keys, SMALLEST_TREE, SMALLEST_TREE)

    def _ordinals(self, values: Any) -> Longs:
        """Whole numbers in the order of the values, or in the opposite one for minima."""
        taken = np.array(values, dtype=self.dtype, ndmin=1)
        if self.dtype == np.float64:
            numbers = ordinals(taken + 0.0)  # -0.0 becomes 0.0
        elif len(taken) and (taken.min() == NEVER or taken.max() == ~NEVER):
            raise ValueError("values are within -2**63 + 1 .. 2**63 - 2")
        else:
            numbers = taken.astype(np.int64, copy=False)
        return numbers if self.greatest else ~numbers

    def update(self, key: int, time: int, value: float) -> None:
        """One element. Raises as :meth:`update_many`."""
        (ordinal,) = self._ordinals(value)
        expired = self._tick(key, time)
        while not add_stair(self.stairs, key, time, ordinal):
            self.stairs = more_stairs(self.stairs, expired)

    def update_many(self, keys: Any, times: Any, values: Any) -> None:
        """Elements in order: keys (n,), times (n,), values (n,).

        Raises ValueError if times do not ascend or for the least and the greatest int64, IndexError for a key.
        """
        ordinals = self._ordinals(values)
        if ordinals.shape != (len(keys),):
            raise ValueError("one value for each key")
        numbers, moments = self._taken(keys, times)
        self.stairs = _feed_stairs(self.stairs, numbers, moments, ordinals, self._limit)

    def lookup(self, now: int, span: int, v: float) -> Longs:
        """Keys, ascending, whose maximum over the last ``span`` instants exceeds v (whose minimum is less than v).

        Raises ValueError for a window longer than ``span_limit`` or one that ends before the last update.
        """
        cutoff = self._cutoff(now, span)
        if self.dtype == np.int64:
            # whole numbers are above v if and only if they are above its floor (below: its ceiling)
            v = max(NEVER, min(floor(v) if self.greatest else -floor(-v), ~NEVER))
            ordinal = v if self.greatest else ~v
        else:
            (ordinal,) = self._ordinals(v)
        return np.sort(self._found[: find_stairs(self.stairs, cutoff, ordinal, self._found)])
