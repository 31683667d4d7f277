"""Choose the cheapest executor for a group of patterns, by costs measured on a sample of its events."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from optimizer.sequences import kernels
from optimizer.sequences.events import Events
from optimizer.sequences.matches import SequenceQuery, lanes_for
from optimizer.sequences.prefixes import prefixes


@dataclass(frozen=True)
class Costs:
    """Nanoseconds that the parts of a pass take, as measured; only their ratios matter.

    Node by node: per relevant ``event``; for each event of a node's type for the ``node``, and per ``vector`` of its
    row (with doubles ``doubles`` times that, ``mixed`` where some prefixes take 128 bits); per node and ``block``.
    Event by event: ``lone_event``, ``lone_node``, ``lone_vector``. Per window and query an ``answer``; per window and
    node to ``clear`` its lane; per query and window to join rows at a landmark: ``shot``, and ``cut`` for each cut of
    its pattern.
    """

    event: float = 6.5
    node: float = 0.9
    vector: float = 1.1
    doubles: float = 1.8
    mixed: float = 1.2
    block: float = 16.0
    lone_event: float = 20.0
    lone_node: float = 4.0
    lone_vector: float = 3.0
    answer: float = 8.0
    clear: float = 1.0
    shot: float = 12.0
    cut: float = 2.0


COSTS = Costs()


@dataclass(frozen=True)
class Group:
    """Queries, ``members`` by number, that are processed together by an ``executor``.

    Their windows begin, or ``backward`` in time end, at the instants ``k * slide + shift`` (every one, or one in so
    many), and are ``range`` long at most. ``cost`` (nanoseconds), ``bits`` of the largest count, and
    ``loose_bits`` of the largest if blocks go on where windows end: what :func:`choose` expects.
    """

    executor: str
    members: tuple[int, ...]
    backward: bool
    slide: int
    range: int
    shift: int
    cost: float
    bits: float
    loose_bits: float


Pattern = tuple[int, ...]


class _Nodes(NamedTuple):
    """By node (n,): the number of events of its type, and the number of types in its prefix."""

    events: NDArray[np.float64]
    depth: NDArray[np.int64]

    @property
    def work(self) -> float:
        return float(self.events.sum())


class _Load:
    """Numbers of events by type, and by type before compaction (estimated from a sample), of keys, and of ticks, all
    keys together; and the costs of executors on them.
    """

    def __init__(self, events: Events) -> None:
        step = len(events) // SAMPLE + 1
        types, often = events.type[::step], events.count[::step]
        if types.min(initial=0) >= 0 and types.max(initial=0) < SAMPLE:
            counts, each = np.bincount(types), np.bincount(types, often)
            codes = np.flatnonzero(counts)
            counts, each = counts[codes], each[codes]
        else:
            codes, places, counts = np.unique(types, return_inverse=True, return_counts=True)
            each = np.bincount(places, often, minlength=len(codes))
        scale = len(events) / max(1, len(types))
        self._of, self.bits = cache(self._nodes_of), cache(self._bits)
        self._events = dict(zip(codes.tolist(), (counts * scale).tolist(), strict=True))
        self._occurrences = dict(zip(codes.tolist(), (each * scale).tolist(), strict=True))
        runs = events.runs
        self._keys = len(runs) - 1
        self._ticks = float((events.time[runs[1:] - 1] - events.time[runs[:-1]]).sum()) + self._keys

    def _nodes_of(self, patterns: tuple[Pattern, ...]) -> tuple[_Nodes, float]:
        """All prefixes of some patterns; and how many events are relevant."""
        nodes = prefixes(patterns)
        kinds, places = np.unique(nodes.last[1:], return_inverse=True)
        events = np.array([self._events.get(kind, 0.0) for kind in kinds.tolist()])
        return _Nodes(events[places], nodes.depth[1:]), float(events.sum())

    def _bits(self, patterns: tuple[Pattern, ...], range_: float) -> float:
        """Binary digits of the largest count to be expected, were events spread evenly."""
        digits = {code: math.log2(max(n * range_ / self._ticks, 1e-9)) for code, n in self._occurrences.items()}
        digits |= {code: -30.0 for pattern in patterns for code in pattern if code not in digits}
        orders = {length: math.lgamma(length + 1) / math.log(2) for length in set(map(len, patterns))}
        return max(sum(map(digits.__getitem__, pattern)) - orders[len(pattern)] for pattern in patterns)

    def beyond(self, slide: int, range_: int) -> float:
        """Ticks that a block may continue after the end of a window that is open when it begins."""
        overlap = -(-range_ // slide)
        return min(slide * (lanes_for(overlap) - overlap), BLOCK * self._ticks / max(1.0, sum(self._events.values())))

    def _vector(self, patterns: tuple[Pattern, ...], range_: int) -> float:
        return COSTS.vector * (COSTS.doubles if self.bits(patterns, range_) > NARROW else 1.0)

    def _windows(self, relevant: float, slide: int, range_: int) -> float:
        return (
            min(relevant, self._ticks / slide + self._keys)
            if range_ <= slide
            else min(relevant * range_ / slide, (self._ticks + self._keys * range_) / slide)
        )

    def windows(self, patterns: tuple[Pattern, ...], slide: int, range_: int) -> float:
        nodes, relevant = self._of(patterns)
        overlap = -(-range_ // slide)
        vectors = lanes_for(overlap) // kernels.LANES
        work, bits = nodes.work, self.bits(patterns, range_)
        times = 1.0 if bits < NARROW - CLOSE else COSTS.mixed if bits < MIXED else COSTS.doubles
        blocks = min(
            relevant, self._ticks / (slide * (lanes_for(overlap) - overlap + 1)) + relevant / BLOCK + self._keys
        )
        dense = (
            relevant * COSTS.event
            + work * (COSTS.node + vectors * COSTS.vector * times)
            + len(nodes.depth) * blocks * COSTS.block
        )
        alone = relevant * COSTS.lone_event + work * (COSTS.lone_node + vectors * COSTS.lone_vector)
        windows = self._windows(relevant, slide, range_)
        return min(dense, alone) + windows * (len(patterns) * COSTS.answer + len(nodes.depth) * COSTS.clear)

    def landmarks(self, patterns: tuple[Pattern, ...], slide: int, range_: int) -> float:
        ahead, relevant = self._of(patterns)
        back, _ = self._of(tuple(pattern[::-1] for pattern in patterns))
        blocks = min(relevant, self._ticks / range_ + self._keys + relevant / BLOCK)
        vector = self._vector(patterns, range_)
        joined = sum(COSTS.shot + COSTS.cut * len(pattern) for pattern in patterns)
        return (
            2 * relevant * COSTS.event
            + self._cells(ahead, vector, blocks)
            + self._cells(back, vector, blocks)
            + self._windows(relevant, slide, range_) * joined
        )

    def _cells(self, nodes: _Nodes, vector: float, blocks: float) -> float:
        rows = nodes.events * (COSTS.node + vector * (nodes.depth // kernels.LANES + 1))
        return float(rows.sum()) + len(nodes.depth) * blocks * COSTS.block


def choose(events: Events, queries: Sequence[SequenceQuery], executor: str | None = None) -> list[Group]:
    """Partition the queries into groups and give each its executor, so that the additions of rows are few. Queries
    with absent events have groups of their own: only ``windows`` that move forward end matches.
    """
    load = _Load(events)
    plain = [i for i, query in enumerate(queries) if not query.absent]
    chosen = _merged_groups(load, queries, [i for i, query in enumerate(queries) if query.absent], False)
    if executor == "landmarks":
        return chosen + _between_landmarks(load, queries, plain)
    both = [_merged_groups(load, queries, plain, backward) for backward in (False, True)]
    best = min(both, key=lambda groups: sum(group.cost for group in groups))
    if executor == "windows":
        return chosen + best
    for group in best:
        options = [[group]]
        # below this, what might be saved is about what it takes to find out
        if group.cost >= LOOKING * sum(len(queries[i].pattern) for i in group.members):
            options.append(_between_landmarks(load, queries, group.members))
        chosen += min(options, key=lambda groups: sum(group.cost for group in groups))
    return chosen


def _between_landmarks(load: _Load, queries: Sequence[SequenceQuery], members: Iterable[int]) -> list[Group]:
    """A group for the queries of the same windows."""
    groups = (_group(load, "landmarks", queries, alike, False) for alike in _alike(queries, members))
    return [group for group in groups if group is not None]


def _alike(queries: Sequence[SequenceQuery], members: Iterable[int]) -> list[tuple[int, ...]]:
    """Queries of the same windows."""
    same_windows: dict[tuple[int, int], list[int]] = {}
    for i in members:
        same_windows.setdefault((queries[i].slide, queries[i].range), []).append(i)
    return [tuple(indices) for _, indices in sorted(same_windows.items())]


def _group(
    load: _Load, executor: str, queries: Sequence[SequenceQuery], members: tuple[int, ...], backward: bool
) -> Group | None:
    """The group of these queries; None if windows of one begin (backwards: end) where no window of another does."""
    grouped = [queries[i] for i in members]
    slide, range_ = min(query.slide for query in grouped), max(query.range for query in grouped)
    shift = (1 - range_) % slide if backward else 0
    if any(query.slide % slide or (backward and (1 - query.range - shift) % slide) for query in grouped):
        return None
    patterns = tuple(query.pattern[:: -1 if backward else 1] for query in grouped)
    cost = (load.landmarks if executor == "landmarks" else load.windows)(patterns, slide, range_)
    bits = [load.bits(patterns, span) for span in (range_, range_ + load.beyond(slide, range_))]
    return Group(executor, members, backward, slide, range_, shift, cost, *bits)


def _merged_groups(
    load: _Load, queries: Sequence[SequenceQuery], members: Iterable[int], backward: bool
) -> list[Group]:
    """Start with queries of the same windows, and let two groups become one as long as that saves anything."""
    alike = _alike(queries, members)
    groups = [group for same in alike if (group := _group(load, "windows", queries, same, backward)) is not None]
    merges: dict[tuple[tuple[int, ...], tuple[int, ...]], Group | None] = {}
    while True:
        best: tuple[float, Group | None, tuple[Group, ...]] = 0.0, None, ()
        for a, b in itertools.combinations(groups, 2):
            if (a.members, b.members) not in merges:
                merges[a.members, b.members] = _group(load, "windows", queries, a.members + b.members, backward)
            both = merges[a.members, b.members]
            if both is not None and a.cost + b.cost - both.cost > best[0]:
                best = a.cost + b.cost - both.cost, both, (a, b)
        if best[1] is None:
            return groups
        groups = [group for group in groups if group not in best[2]] + [best[1]]


NARROW, MIDDLING, BROAD = 64.0, 100.0, 127.0
"""Approximate limits in bits up to which counts do not wrap in 64 bits, are determined by residues and doubles
together, and do not wrap in 128 bits.
"""

MIXED = 78.0
"""Approximate limit in bits up to which most prefixes still fit in 64 bits. A pass in 128 bits detects these prefixes
and is then quicker than one with doubles for all residues.
"""

CLOSE = 3.0
"""So close to 64 bits some counts of most keys pass them."""

MARGIN = 5.0
"""Bits that an expected count may fall short by."""

LOOKING = 20_000.0
"""Nanoseconds for each type of a pattern below which executors are not compared."""

SAMPLE = 1 << 14

BLOCK = 2048
"""Events that are processed together at most: their rows of a few nodes fit a processor's second cache."""
