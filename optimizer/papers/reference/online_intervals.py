"""One window operator at a time, fed element by element, as published: B-INT, L-INT, R-INT, PSoup and their kin.

References: Arasu & Widom, VLDB 2004, section 3, Figures 3 to 5. Production runs on the structures of
:mod:`optimizer.combine`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from optimizer.aggregates.state_kinds import ADD, ADD_DOUBLE, BIT_XOR
from optimizer.combine.elements import (
    SUBTRACTABLE,
    Columns,
    Longs,
    column_values,
    element_columns,
    empty_columns,
    join_elements,
    put_element,
    take_element,
)
from optimizer.combine.kernel_stamps import stamp_kernels


def tuple_window(length: int, far: int, near: int) -> tuple[int, int]:
    """Positions (left, right), 1-based and inclusive, of the window S[far, near] when ``length`` elements have come:
    max(length - far + 1, 1) to length - near (section 2)."""
    return max(length - far + 1, 1), length - near


def time_window(now: int, far: int, near: int) -> tuple[int, int]:
    """First and last instant (inclusive) of the window S[far, near] at ``now``: now - far + 1 to now - near."""
    return now - far + 1, now - near


def base_intervals(left: int, right: int) -> list[tuple[int, int]]:
    """The fewest base-intervals (2**level * i + 1, 2**level * (i + 1)) that make up (left, right), from left to right.

    Definition 3.1, Theorem 3.1: O(log width). (Example 3.1 prints the list of (2, 43), not of (1, 43).)
    """
    if not 1 <= left <= right:
        raise ValueError(f"({left}, {right}) is no interval of positions")
    first, end, width = left - 1, right, 1
    ahead, behind = [], []
    while first < end:
        if first & 1:
            ahead.append((first * width + 1, (first + 1) * width))
            first += 1
        if end & 1:
            end -= 1
            behind.append((end * width + 1, (end + 1) * width))
        first, end, width = first >> 1, end >> 1, width << 1
    return ahead + behind[::-1]


def landmark_split(left: int, right: int, narrowest: int) -> list[tuple[int, int]]:
    """At most two landmark intervals that make up (left, right): cut before the first landmark, a multiple of
    ``narrowest`` (W_min), beyond ``left``. Theorem 3.3; the interval is at least W_min wide."""
    if right - left + 1 < narrowest:
        raise ValueError(f"({left}, {right}) is narrower than {narrowest}")
    landmark = (left // narrowest + 1) * narrowest
    return [(left, right)] if landmark > right else [(left, landmark - 1), (landmark, right)]


# The states of the structures, each with one compiled update and look-up below. All have `clock`, the number of
# elements so far, and `longest`, N_max; positions count from 1.
_UPDATES: dict[type, Callable[..., Any]] = {}

_LOOKUPS: dict[type, Callable[..., Any]] = {}


def _update(state: Any, element: Any) -> None:
    """UPDATE of the structure whose state this is; in compiled code only."""
    raise TypeError("only compiled code updates a state")


def _lookup(state: Any, left: int, right: int) -> Any:
    """LOOKUP of positions left to right; ``left`` is below 1 where the stream is shorter than the window."""
    raise TypeError("only compiled code looks up a state")


@overload(_update, jit_options={"forceinline": True})
def _update_of(state, element):
    return _UPDATES.get(getattr(state, "instance_class", type(None)))


@overload(_lookup, jit_options={"forceinline": True})
def _lookup_of(state, left, right):
    return _LOOKUPS.get(getattr(state, "instance_class", type(None)))


@numba.njit(cache=True)
def _process(state, updates, elements, far, near, out):
    arrived = answered = 0
    for update in updates:
        if update:
            _update(state, take_element(elements, arrived))
            arrived += 1
        else:
            length, left, right = state.clock[0], far[answered], near[answered]
            if right < 0 or right >= min(left, length) or left > state.longest:
                raise ValueError("a window is empty, or reaches back beyond what is kept")
            put_element(out, answered, _lookup(state, length - left + 1, length - right))
            answered += 1


class OnlineAggregate:
    """A structure of section 3: elements arrive one after the other, with look-ups in between.

    Positions count from 1; a look-up (left, right) is inclusive and lies within the last ``longest`` (N_max) positions.
    Values are integers, or doubles if ``dtype`` is float64 (ADD_DOUBLE sums doubles). Doubles are returned as doubles.
    Every structure takes single values and arrays, and a complete interleaved input with :meth:`replay`. Arrays run in
    compiled loops. Look-ups raise ValueError if they are empty or reach back too far.
    """

    def __init__(self, operation: int, dtype: Any, state: Any) -> None:
        self.operation = operation
        self.dtype = np.dtype(dtype)
        self._state = state

    @property
    def length(self) -> int:
        """Number of elements so far, m."""
        return int(self._state.clock[0])

    def update(self, value: float) -> None:
        """UPDATE(value): the next element."""
        self.update_many(np.array([value], dtype=self.dtype))

    def update_many(self, values: NDArray[Any]) -> None:
        """The next elements (k,)."""
        none = np.empty(0, dtype=np.int64)
        self.replay(np.ones(len(values), dtype=np.bool_), values, none, none)

    def lookup(self, left: int, right: int) -> Any:
        """LOOKUP(left, right): the combine of these positions."""
        return self.lookup_many(np.array([left], dtype=np.int64), np.array([right], dtype=np.int64)).item()

    def lookup_many(self, left: Longs, right: Longs) -> NDArray[Any]:
        """Combines of many intervals of positions, left and right (a,); returns (a,)."""
        none = np.empty(0, dtype=self.dtype)
        length = self.length
        return self.replay(np.zeros(len(left), dtype=np.bool_), none, length + 1 - left, length - right)

    def replay(self, updates: NDArray[np.bool_], values: NDArray[Any], far: Longs, near: Longs) -> NDArray[Any]:
        """Process inputs in order. ``updates`` (k,) is true for updates, which take ``values`` one after the other;
        look-ups take windows S[far, near]. Returns the answers of the look-ups (a,).
        """
        if np.count_nonzero(updates) != len(values) or not len(updates) - len(values) == len(far) == len(near):
            raise ValueError("one value an update and one window a look-up")
        elements = _elements(np.asarray(values, dtype=self.dtype), self.operation)
        out = empty_columns(elements, len(far))
        _process(self._state, updates, elements, far, near, out)
        answers = column_values(out, self.dtype)
        return answers[:, 0] + answers[:, 1] if answers.shape[1] > 1 else answers[:, 0]


def _elements(values: NDArray[Any], operation: int) -> Columns:
    matrix = np.stack([values, np.zeros(len(values))], axis=1) if operation == ADD_DOUBLE else values[:, None]
    return element_columns(matrix, operation)


def _kept(operation: int, dtype: Any, size: int) -> Columns:
    """Columns with room for ``size`` elements."""
    return tuple(np.zeros(size, column.dtype) for column in _elements(np.empty(0, dtype=dtype), operation))


def _clock() -> Longs:
    return np.zeros(1, dtype=np.int64)


def _ring(size: int) -> int:
    """The least power of two of at least ``size``: positions modulo it are one bit operation."""
    return 1 << max(0, size - 1).bit_length()


def _positive(longest: int) -> int:
    if longest < 1:
        raise ValueError(f"windows reach back at least one element, not {longest}")
    return longest


class _BaseIntervals(NamedTuple):
    clock: Longs
    longest: int
    operation: int
    size: int
    nodes: Columns
    """A binary heap over a ring of ``size`` elements: base-interval i of a level is node (size >> level) + i modulo
    that, so those that are no longer active are overwritten."""


def _update_base(state, element):
    node = state.size + (state.clock[0] & (state.size - 1))
    put_element(state.nodes, node, element)
    # the right half of a base-interval completes it
    while node & 1 and node > 1:
        element = join_elements(state.operation, take_element(state.nodes, node - 1), element)
        node >>= 1
        put_element(state.nodes, node, element)
    state.clock[0] += 1


def _lookup_base(state, left, right):
    first, end, level = max(left, 1) - 1, right, state.size
    ahead = behind = take_element(state.nodes, 0)
    some_ahead = some_behind = False
    while first < end:
        if first & 1:
            interval = take_element(state.nodes, level + (first & (level - 1)))
            ahead = join_elements(state.operation, ahead, interval) if some_ahead else interval
            some_ahead = True
            first += 1
        if end & 1:
            end -= 1
            interval = take_element(state.nodes, level + (end & (level - 1)))
            behind = join_elements(state.operation, interval, behind) if some_behind else interval
            some_behind = True
        first, end, level = first >> 1, end >> 1, level >> 1
    if some_ahead and some_behind:
        return join_elements(state.operation, ahead, behind)
    return ahead if some_ahead else behind


_UPDATES[_BaseIntervals], _LOOKUPS[_BaseIntervals] = _update_base, _lookup_base


class BaseIntervals(OnlineAggregate):
    """B-INT (Figure 3): the combines of all active base-intervals. O(N_max) space, O(1) an update, amortised,
    O(log width) a look-up (Theorem 3.2)."""

    def __init__(self, longest: int, operation: int, dtype: Any = np.int64) -> None:
        size = _ring(_positive(longest))
        nodes = _kept(operation, dtype, 2 * size)
        super().__init__(operation, dtype, _BaseIntervals(_clock(), longest, operation, size, nodes))


class _RunningIntervals(NamedTuple):
    clock: Longs
    longest: int
    operation: int
    size: int
    totals: Columns


def _update_running(state, element):
    before = take_element(state.totals, state.clock[0] & (state.size - 1))
    state.clock[0] += 1
    put_element(state.totals, state.clock[0] & (state.size - 1), join_elements(state.operation, before, element))


def _lookup_running(state, left, right):
    after = state.totals[0][right & (state.size - 1)]
    before = state.totals[0][(max(left, 1) - 1) & (state.size - 1)]
    return (after ^ before if state.operation == BIT_XOR else after - before,)


_UPDATES[_RunningIntervals], _LOOKUPS[_RunningIntervals] = _update_running, _lookup_running


def _subtractable(operation: int) -> int:
    if operation not in SUBTRACTABLE:
        raise ValueError(f"operation {operation} cannot be undone exactly: only ADD and BIT_XOR of integers can")
    return operation


class RunningIntervals(OnlineAggregate):
    """R-INT (Figure 6): the totals of all active running intervals, for ADD and BIT_XOR of integers. O(N_max) space,
    O(1) an update and a look-up. The paper also subtracts sums of doubles; that loses digits, and is refused."""

    def __init__(self, longest: int, operation: int = ADD) -> None:
        size = _ring(_positive(longest) + 1)
        totals = _kept(_subtractable(operation), np.int64, size)
        super().__init__(operation, np.int64, _RunningIntervals(_clock(), longest, operation, size, totals))


class _LandmarkIntervals(NamedTuple):
    clock: Longs
    longest: int
    operation: int
    size: int
    partition: Longs
    """Partition that a width belongs to: (longest + 1,), -1 for none."""
    parts: Longs
    """By partition: W_min and W_max, the number of landmarks stored (a power of two), and the indices in ``kept`` where
    the two kinds of intervals begin.
    """
    kept: Columns
    """The last elements, by position; then of each partition, by position, what lies from there to the next landmark;
    and by landmark and width what follows a landmark. (One array: handing many to a kernel takes longer than this.)"""


_NARROWEST, _WIDEST, _LANDMARKS, _BACKWARD, _FORWARD = range(5)


def _update_landmark(state, element):
    state.clock[0] += 1
    position, mask, columns = state.clock[0], state.size - 1, state.kept
    put_element(columns, position & mask, element)
    for part in range(len(state.parts)):
        narrowest, widest = state.parts[part, _NARROWEST], state.parts[part, _WIDEST]
        number = position // narrowest
        width = position - number * narrowest
        if width == narrowest - 1:
            # the next element is a landmark: what lies before it, back to the last one
            row, best = state.parts[part, _BACKWARD], element
            put_element(columns, row + (position & mask), best)
            for back in range(1, min(narrowest, position)):
                best = join_elements(state.operation, take_element(columns, (position - back) & mask), best)
                put_element(columns, row + ((position - back) & mask), best)
        while number >= 0 and width < widest:
            slot = number & (state.parts[part, _LANDMARKS] - 1)
            at = state.parts[part, _FORWARD] + slot * widest + width
            if width == 0 or position == 1:
                put_element(columns, at, element)
            else:
                put_element(columns, at, join_elements(state.operation, take_element(columns, at - 1), element))
            number -= 1
            width += narrowest


def _lookup_landmark(state, left, right):
    part = state.partition[right - left + 1]
    if part < 0:
        raise ValueError("the width of a window lies in no partition")
    left = max(left, 1)
    number = left // state.parts[part, _NARROWEST] + 1
    landmark = number * state.parts[part, _NARROWEST]
    before = state.parts[part, _BACKWARD] + (left & (state.size - 1))
    if landmark == right + 1:
        return take_element(state.kept, before)
    if landmark > right:
        # the stream is shorter than the window: what there is follows landmark 0
        return take_element(state.kept, state.parts[part, _FORWARD] + right)
    slot = number & (state.parts[part, _LANDMARKS] - 1)
    after = state.parts[part, _FORWARD] + slot * state.parts[part, _WIDEST] + right - landmark
    return join_elements(state.operation, take_element(state.kept, before), take_element(state.kept, after))


_UPDATES[_LandmarkIntervals], _LOOKUPS[_LandmarkIntervals] = _update_landmark, _lookup_landmark


class LandmarkIntervals(OnlineAggregate):
    """L-INT (Figure 5, and its general case): the combines of intervals that begin at or end before a landmark.

    ``widths``: those of the windows that will be looked up. They are partitioned so that in each partition
    W_max / W_min <= ``spread`` (c): gamma partitions, O(gamma N_max) space, O(gamma) an update, amortised, O(1) a
    look-up of a width between W_min and W_max of a partition (others raise ValueError).
    """

    def __init__(
        self, longest: int, widths: Sequence[int], operation: int, dtype: Any = np.int64, spread: float = 2.0
    ) -> None:
        distinct = sorted(set(map(int, widths)))
        if not distinct or distinct[0] < 1 or distinct[-1] > _positive(longest):
            raise ValueError(f"widths lie between 1 and {longest}")
        bounds: list[tuple[int, int]] = []
        for width in distinct:
            if bounds and width <= spread * bounds[-1][0]:
                bounds[-1] = bounds[-1][0], width
            else:
                bounds.append((width, width))
        self.partitions = tuple(bounds)
        """(W_min, W_max) of each partition, ascending."""
        partition = np.full(longest + 1, -1, dtype=np.int64)
        for number, (narrowest, widest) in enumerate(bounds):
            partition[narrowest : widest + 1] = number
        size = _ring(longest + 1)
        parts = np.empty((len(bounds), 5), dtype=np.int64)
        room = size * (1 + len(bounds))
        for number, (narrowest, widest) in enumerate(bounds):
            landmarks = _ring(longest // narrowest + 3)
            parts[number] = narrowest, widest, landmarks, size * (1 + number), room
            room += landmarks * widest
        columns = _kept(operation, dtype, room)
        super().__init__(
            operation, dtype, _LandmarkIntervals(_clock(), longest, operation, size, partition, parts, columns)
        )


class _SearchTree(NamedTuple):
    clock: Longs
    longest: int
    operation: int
    links: Longs
    """By node: left and right child (-1 for none), height of the subtree, position of the element. The last column is
    unrelated to the node: one step of the path from the root, for the way back up. The last row has the root as its
    left child.
    """
    nodes: Columns
    """Elements by node; ``longest`` further on, the combine of the node's subtree."""


_LEFT, _RIGHT, _HEIGHT, _POSITION, _PATH = range(5)

_SPARE = 64
"""Rows in addition to those of the nodes, so that the path to a leaf of the highest tree has room."""


@numba.njit(cache=True)
def _refresh(links, nodes, operation, node):
    left, right = links[node, _LEFT], links[node, _RIGHT]
    totals = len(links) - _SPARE
    total = take_element(nodes, node)
    height = 0
    if left >= 0:
        total = join_elements(operation, take_element(nodes, totals + left), total)
        height = links[left, _HEIGHT]
    if right >= 0:
        total = join_elements(operation, total, take_element(nodes, totals + right))
        height = max(height, links[right, _HEIGHT])
    put_element(nodes, totals + node, total)
    links[node, _HEIGHT] = height + 1


@numba.njit(cache=True)
def _climb(links, nodes, operation, depth, child, side):
    """Hang ``child`` on the end of the path, and refresh and balance it up to the root, which is returned.

    Elements come at the right end and go at the left end, so only right subtrees become too high, and their own right
    subtrees are then at least as high as their left ones: one rotation is enough.
    """
    for step in range(depth - 1, -1, -1):
        node = links[step, _PATH]
        links[node, side] = child
        left, right = links[node, _LEFT], links[node, _RIGHT]
        lean = (links[right, _HEIGHT] if right >= 0 else 0) - (links[left, _HEIGHT] if left >= 0 else 0)
        child = node
        if lean > 1:
            links[node, _RIGHT] = links[right, _LEFT]
            links[right, _LEFT] = node
            child = right
        _refresh(links, nodes, operation, node)
        if child != node:
            _refresh(links, nodes, operation, child)
    return child


@numba.njit(cache=True)
def _descend(links, node, side):
    depth = 0
    while node >= 0:
        links[depth, _PATH] = node
        depth += 1
        node = links[node, side]
    return depth


def _update_tree(state, element):
    links, nodes, operation = state.links, state.nodes, state.operation
    root = links[-1, _LEFT]
    if state.clock[0] >= state.longest:
        # the oldest element is leftmost
        depth = _descend(links, root, _LEFT) - 1
        root = _climb(links, nodes, operation, depth, links[links[depth, _PATH], _RIGHT], _LEFT)
    node = state.clock[0] % state.longest
    state.clock[0] += 1
    links[node, _LEFT] = links[node, _RIGHT] = -1
    links[node, _POSITION] = state.clock[0]
    put_element(nodes, node, element)
    _refresh(links, nodes, operation, node)
    links[-1, _LEFT] = _climb(links, nodes, operation, _descend(links, root, _RIGHT), node, _RIGHT)


def _lookup_tree(state, left, right):
    links, nodes, operation, totals = state.links, state.nodes, state.operation, state.longest
    node = links[-1, _LEFT]
    while links[node, _POSITION] < left or links[node, _POSITION] > right:
        node = links[node, _RIGHT if links[node, _POSITION] < left else _LEFT]
    total = take_element(nodes, node)
    child = links[node, _LEFT]
    while child >= 0:
        if links[child, _POSITION] < left:
            child = links[child, _RIGHT]
            continue
        if links[child, _RIGHT] >= 0:
            total = join_elements(operation, take_element(nodes, totals + links[child, _RIGHT]), total)
        total = join_elements(operation, take_element(nodes, child), total)
        child = links[child, _LEFT]
    child = links[node, _RIGHT]
    while child >= 0:
        if links[child, _POSITION] > right:
            child = links[child, _LEFT]
            continue
        if links[child, _LEFT] >= 0:
            total = join_elements(operation, total, take_element(nodes, totals + links[child, _LEFT]))
        total = join_elements(operation, total, take_element(nodes, child))
        child = links[child, _RIGHT]
    return total


_UPDATES[_SearchTree], _LOOKUPS[_SearchTree] = _update_tree, _lookup_tree


class SearchTree(OnlineAggregate):
    """PSoup's structure (section 3.1.3): a balanced search tree over the last N_max elements by arrival, each node with
    the combine of its subtree; older elements are deleted. O(log N_max) an update and a look-up.

    The paper measures an adapted red-black tree of libavl; this is an AVL tree in arrays.
    """

    def __init__(self, longest: int, operation: int, dtype: Any = np.int64) -> None:
        links = np.full((_positive(longest) + _SPARE, 5), -1, dtype=np.int64)
        nodes = _kept(operation, dtype, 2 * longest)
        super().__init__(operation, dtype, _SearchTree(_clock(), longest, operation, links, nodes))

    @property
    def height(self) -> int:
        """Nodes on the longest path from the root: at most 1.45 log2(N_max + 2)."""
        links = self._state.links
        return int(links[links[-1, _LEFT], _HEIGHT]) if self.length else 0


class _MaterializeNone(NamedTuple):
    clock: Longs
    longest: int
    operation: int
    size: int
    elements: Columns


def _update_none(state, element):
    state.clock[0] += 1
    put_element(state.elements, state.clock[0] & (state.size - 1), element)


def _lookup_none(state, left, right):
    left, mask = max(left, 1), state.size - 1
    best = take_element(state.elements, left & mask)
    for position in range(left + 1, right + 1):
        best = join_elements(state.operation, best, take_element(state.elements, position & mask))
    return best


_UPDATES[_MaterializeNone], _LOOKUPS[_MaterializeNone] = _update_none, _lookup_none


class MaterializeNone(OnlineAggregate):
    """Keeps the last N_max elements and combines at look-up only ("materialize none", section 6.1): O(1) an update,
    O(width) a look-up."""

    def __init__(self, longest: int, operation: int, dtype: Any = np.int64) -> None:
        size = _ring(_positive(longest))
        columns = _kept(operation, dtype, size)
        super().__init__(operation, dtype, _MaterializeNone(_clock(), longest, operation, size, columns))


class _MaterializeAll(NamedTuple):
    clock: Longs
    longest: int
    operation: int
    size: int
    far: Longs
    near: Longs
    first: Longs
    """Index of the first window that reaches back at least this far, by distance: (longest + 2,)."""
    elements: Columns
    answers: Longs


def _update_all(state, element):
    state.clock[0] += 1
    length, mask = state.clock[0], state.size - 1
    put_element(state.elements, length & mask, element)
    ring = state.elements[0]
    # before the stream has come so far, what leaves and what enters are the zeros that the ring begins with
    for window in range(len(state.far)):
        enters, leaves = ring[(length - state.near[window]) & mask], ring[(length - state.far[window]) & mask]
        if state.operation == BIT_XOR:
            state.answers[window] ^= enters ^ leaves
        else:
            state.answers[window] += enters - leaves


def _lookup_all(state, left, right):
    far, near = state.clock[0] - left + 1, state.clock[0] - right
    for window in range(state.first[far], state.first[far + 1]):
        if state.near[window] == near:
            return (state.answers[window],)
    raise ValueError("a window is not among those that are kept up to date")


_UPDATES[_MaterializeAll], _LOOKUPS[_MaterializeAll] = _update_all, _lookup_all


class MaterializeAll(OnlineAggregate):
    """Keeps the answer of every window up to date ("materialize all", section 6.1): O(windows) an update, O(1) a
    look-up of one of the ``windows`` (far, near); ADD and BIT_XOR of integers."""

    def __init__(self, windows: Sequence[tuple[int, int]], operation: int = ADD) -> None:
        far, near = np.array(sorted(set(windows)), dtype=np.int64).reshape(-1, 2).T.copy()
        if len(far) == 0 or near.min() < 0 or (near >= far).any():
            raise ValueError("a window S[far, near] has far > near >= 0")
        longest = int(far.max())
        size = _ring(longest + 1)
        first = np.searchsorted(far, np.arange(longest + 2))
        columns = _kept(_subtractable(operation), np.int64, size)
        answers = np.zeros(len(far), dtype=np.int64)
        state = _MaterializeAll(_clock(), longest, operation, size, far, near, first, columns, answers)
        super().__init__(operation, np.int64, state)


stamp_kernels(globals())
