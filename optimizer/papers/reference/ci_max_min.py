"""CI-MAX and CI-MIN: substreams that have a maximum above, or a minimum below, v over the last T.

Only the elements of a substream that no later one exceeds matter, a staircase. Each is the maximum of the windows that
begin between the stair before it and itself. These intervals are stored in a segment tree over time with a heap at
every node. A look-up walks one path of the tree and reports each key at most once; it is exact.

References
----------
Arasu & Widom, "Resource sharing in continuous sliding-window aggregates", VLDB 2004: section 4. CI-MAX/MIN are
only mentioned in the paper, the structure is ours (its bounds: update O(log^2 N), look-up O(log N + keys found)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from optimizer.combine.elements import ordinals
from optimizer.combine.kernel_stamps import stamp_kernels
from optimizer.combine.threshold_index import NEVER, Longs, floor
from optimizer.papers.reference.substream_updates import SubstreamClock, expired_instant, floor_log2

VALUE, LEFT, RIGHT, PARENT, NODE, NEXT, STAIR = range(7)  # columns of Stairs.entries


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
def new_stairs(keys, leaves, room):
    """Empty stairs for ``keys`` keys and ``leaves`` leaves, with room for ``room`` entries."""
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
    """Meld two heaps into one, by random turns: O(log) expected (Gambin & Malinowski, "Randomized meldable priority
    queues").
    """
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
        melded = _meld(entries, entries[entry, LEFT], entries[entry, RIGHT], free)
        parent = entries[entry, PARENT]
        if melded >= 0:
            entries[melded, PARENT] = parent
        if parent < 0:
            stairs.roots[entries[entry, NODE]] = melded
        else:
            entries[parent, LEFT if entries[parent, LEFT] == entry else RIGHT] = melded
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
    if stair == leaves or free[1] < 2 * floor_log2(leaves):
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
    leaves = max(SMALLEST_TREE, 4 << floor_log2(alive + 1))
    entry_count = len(stairs.entries) - stairs.free[1]
    fresh = new_stairs(len(stairs.last), leaves, SMALLEST_TREE + entry_count + entry_count // 2)
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
            stairs = more_stairs(stairs, expired_instant(times[at], limit))
    return stairs


class CollectiveExtreme(SubstreamClock):
    """CI-MAX and CI-MIN: substreams that have a maximum above (a minimum below) v over the last T. Exact.

    Parameters
    ----------
    keys
        Number of substreams.
    greatest
        Maxima above v; False: minima below v.
    span_limit
        The longest window of look-ups (T_max; None: any). Elements that only longer windows would see are dropped.
    dtype
        Type of the values: np.int64, or np.float64 in Spark's order (NaN greatest, -0.0 = 0.0).

    With S stairs (elements that no later one of their key matches) within ``span_limit``: an update takes O(log^2 S)
    amortised, a look-up O(log S + keys found), space O(S log S).
    """

    def __init__(self, keys: int, greatest: bool = True, span_limit: int | None = None, dtype: type = np.int64) -> None:
        super().__init__(keys, span_limit)
        self.greatest = greatest
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.int64, np.float64):
            raise ValueError(f"values are int64 or float64, not {self.dtype}")
        self.stairs = new_stairs(keys, SMALLEST_TREE, SMALLEST_TREE)

    def _ordinals(self, values: Any) -> Longs:
        """Whole numbers in the order of the values, or in the opposite one for minima."""
        converted = np.array(values, dtype=self.dtype, ndmin=1)
        if self.dtype == np.float64:
            numbers = ordinals(converted + 0.0)  # -0.0 becomes 0.0
        elif len(converted) and (converted.min() == NEVER or converted.max() == ~NEVER):
            raise ValueError("values are within -2**63 + 1 .. 2**63 - 2")
        else:
            numbers = converted.astype(np.int64, copy=False)
        return numbers if self.greatest else ~numbers

    def update(self, key: int, time: int, value: float) -> None:
        """Add one element. Raises as :meth:`update_many`."""
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


stamp_kernels(globals())
