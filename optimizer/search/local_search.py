"""Local search after Weave Share: moves, merges and regrouping of a plan's queries.

Weave Share only merges entire trees: a query that was merged early stays even if later merges make it expensive.
Here single items move to the tree where they cost least (or to a separate one), and trees merge. In between some
trees are merged, split, dissolved or redistributed; the change is kept only if the total plan got cheaper (iterated
local search). Without the redistribution, which goes uphill first, workloads of a dozen items end in plans up to
3 % more expensive than the cheapest.

Millions of such steps each need edge rates of new trees. These are not counted but looked
up on *probes*: the edges of all items in one composite slide (then every rate is exact) or, if that has too many,
in a few windows at random offsets. A tree is a bitmap of the probes that it covers, a union is an OR, an edge rate
a population count. Probes decide nothing: only those changes of the resulting plan are kept that are
cheaper when its edges are counted.

The search stops after a number of steps' work, not after a time, or sooner after a long time without gain: equal
input gives equal plans.

References
----------
Guirguis et al., Weave Share, CIKM 2011: section 6 (Local Search moves one query at a time; here after the greedy
and with better steps), section 8 (bitmaps of edges). Iterated local search: Lourenco, Martin, Stuetzle, 2003.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.search.cost import EdgeSet, Partition, SearchProblem
from optimizer.workload.values import SECOND

Bits = NDArray[np.uint64]

FEWEST_PROBES, MOST_PROBES = 1 << 14, 1 << 16
"""Probes that are taken where a composite slide has more edges; up to twice as many where it has not."""

PROBES = 1 << 24
"""Probes times items: few items are looked at more closely."""

MEMORY = 1 << 28
"""Approximate limit of the bitmaps in bytes (twice as many if the probes are a complete composite slide)."""

WINDOWS = 4
"""Random windows that the probes are taken from."""

WORK_PER_SECOND = 3e9
"""Words of bitmaps looked at in one second of CPU, about."""


def improve(problem: SearchProblem, partition: Partition, seconds: float) -> Partition:
    """Search about ``seconds`` of CPU for a cheaper plan; the returned plan is no more expensive than the given one.

    Deterministic.
    """
    if len(problem) < 2 or seconds <= 0:
        return partition
    return _certain(problem, partition, _LocalSearch(problem, partition, seconds * WORK_PER_SECOND).run())


def _certain(problem: SearchProblem, start: Partition, better: Partition) -> Partition:
    """The improved plan, restored to the start wherever it is not certain that it is cheaper.

    Trees that exchanged items, directly or through others, are decided together; all others separately.
    """
    trees = [*start, *better]
    group = list(range(len(trees)))

    def of(tree: int) -> int:
        while group[tree] != tree:
            group[tree] = tree = group[group[tree]]
        return tree

    home = {item: tree for tree, items in enumerate(start) for item in items}
    for tree, items in enumerate(better, start=len(start)):
        for item in items:
            group[of(home[item])] = of(tree)
    groups: dict[int, tuple[Partition, Partition]] = {}
    for tree, items in enumerate(trees):
        groups.setdefault(of(tree), ([], []))[tree >= len(start)].append(items)
    certain = [
        before if before == after or problem.cost(before) <= problem.cost(after) else after
        for before, after in groups.values()
    ]
    return sorted(tree for part in certain for tree in part)


class Probes:
    """Edges of items at a sample of instants.

    Attributes
    ----------
    hits
        The probes that each item's edges hit, as bits. Shape (items, words).
    per_hit
        Edges per second that one probe stands for.
    fewest
        Fewest probes that an item or a tree has to hit to be judged by them; 0 if every rate is exact.
    rare
        Whether an item hits fewer. Shape (items,).
    """

    def __init__(self, edges: Sequence[EdgeSet], seed: int = 0) -> None:
        unit = math.gcd(*(number for progressions in edges for edge in progressions for number in edge))
        ticks = [[(s // unit, h // unit) for s, h in progressions] for progressions in edges]
        density = sum(1 / slide for progressions in ticks for slide, _ in progressions)
        period = math.lcm(*(progressions[0][0] for progressions in ticks))
        # of items, and two of as many trees
        probe_count = min(max(FEWEST_PROBES, PROBES // len(edges)), MOST_PROBES)
        words = min(probe_count // 64, max(MEMORY // 8 // (3 * len(edges)), 16))
        length = max(int(64 * words / min(density, 1.0)), 64)
        if period <= 2 * length:
            windows = [(0, period)]
        else:
            choose = np.random.default_rng(seed)
            length //= WINDOWS
            windows = [(int(at), length) for at in choose.integers(1 << 40, 1 << 50, WINDOWS)]
        instants: list[NDArray[np.int64]] = []
        found_at: list[list[NDArray[np.int64]]] = [[] for _ in edges]
        start = 0
        for begin, span in windows:
            marks = [
                np.concatenate([np.arange((h - begin) % s, span, s, dtype=np.int64) for s, h in progressions])
                for progressions in ticks
            ]
            distinct = np.unique(np.concatenate(marks))
            for item, mark in enumerate(marks):
                found_at[item].append(start + np.searchsorted(distinct, mark))
            instants.append(distinct)
            start += len(distinct)
        count = sum(len(window_instants) for window_instants in instants)
        self.hits: Bits = np.zeros((len(edges), -(-count // 64)), dtype=np.uint64)
        row = np.zeros(self.hits.shape[1] * 64, dtype=np.uint8)
        for item, marks in enumerate(found_at):
            row[:] = 0
            row[np.concatenate(marks)] = 1
            self.hits[item] = np.packbits(row, bitorder="little").view(np.uint64)
        self.per_hit = SECOND / unit / sum(span for _, span in windows)
        self.fewest = 0 if len(windows) == 1 else 4 * WINDOWS
        self.rare = np.array([sum(len(m) for m in marks) < self.fewest for marks in found_at])

    def rise(self, probes: Bits, added: Bits) -> float:
        """Edges per second that are added to some probes by others."""
        return float(_count(added & ~probes)) * self.per_hit


def _count(bits: Bits) -> NDArray[np.int64]:
    return np.asarray(np.bitwise_count(bits).sum(axis=-1, dtype=np.int64))


class _LocalSearch:
    """The state of one search, in tables for :mod:`optimizer.search.move_kernels`."""

    def __init__(self, problem: SearchProblem, partition: Partition, work: float) -> None:
        # a plan that needs no search must not pay for the import
        from optimizer.search import move_kernels as kernels

        self.kernels, self.probes = kernels, Probes(problem.edges)
        size, words = self.probes.hits.shape
        weights = np.array([float(weight) for weight in problem.weights])
        fixed = np.array([float(family.fixed) for family in problem.family])
        base = np.array([float(family.base) for family in problem.family])
        # families that cost nothing decide nothing, and there may be as many as queries
        paying = sum(1 << number for number in np.flatnonzero((fixed > 0) | (base > 0)).tolist())
        families = [_bits_of(bits & paying) for bits in problem.families]
        count = len(problem.family) if paying else 0
        self.items = kernels.MoveItems(
            self.probes.hits,
            np.array(_count(self.probes.hits) * self.probes.per_hit, dtype=np.float64),
            weights,
            self.probes.rare,
            np.cumsum([0, *map(len, families)]),
            np.array([family for item_families in families for family in item_families], dtype=np.int64),
            fixed[:count],
            base[:count],
            float(problem.fixed),
            self.probes.per_hit,
            (self.probes.fewest - 0.5) * self.probes.per_hit,
        )
        tree_of = np.empty(size, dtype=np.int64)
        for tree, members in enumerate(partition):
            tree_of[members] = tree
        # as many as items, one that an item could have for itself, and the end of lists
        number = size + 2
        tables: list[Any] = [
            *(np.zeros((number, words), dtype=np.uint64) for _ in ("once", "twice")),
            *(np.zeros(number) for _ in ("rates", "sums", "bases", "fixeds")),
            np.zeros((number, count), dtype=np.int32),
            *(np.zeros(number, dtype=np.int64) for _ in ("sizes", "changed")),
            np.full(number, -1, dtype=np.int64),
            *(np.arange(number) for _ in ("live", "place")),
            *(np.full(number, number - 1) for _ in ("newer", "older")),
            tree_of,
            *(np.full(size, -1, dtype=np.int64) for _ in ("following", "before", "seen")),
            np.zeros(1, dtype=np.int64),
            np.array([work]),
            np.zeros(1),
            np.ones(1, dtype=np.uint64),
            np.zeros(1, dtype=np.int64),
        ]
        self.trees = kernels.MoveTrees(*tables)

    def run(self) -> Partition:
        """Search, and return the cheapest plan."""
        return _trees_of(self.kernels.search(self.items, self.trees))

    @property
    def partition(self) -> Partition:
        """The plan as it is."""
        return _trees_of(self.trees.tree_of)


def _bits_of(number: int) -> list[int]:
    """The places of the ones of a number."""
    places = []
    while number:
        places.append((number & -number).bit_length() - 1)
        number &= number - 1
    return places


def _trees_of(tree_of: NDArray[np.int64]) -> Partition:
    """The trees of some items by the number of the tree of each."""
    order = np.argsort(tree_of, kind="stable")
    return sorted(tree.tolist() for tree in np.split(order, np.flatnonzero(np.diff(tree_of[order])) + 1))
