"""What beats Weave Share: moves, merges and regrouping of a plan's queries after the greedy.

Weave Share only merges whole trees: a query that was merged early stays where later merges made it dear. Here single
items move to the tree where they cost least (or to one of their own), trees merge, and in between a tree is dissolved
and its items regrouped, kept only if the whole plan got cheaper (iterated local search).

Thousands of such steps each need edge rates of trees that never existed before, so they are not counted but looked
up on *probes*: the edges of all items in one composite slide (then every rate is exact) or, where that has too many,
in a few windows at random offsets. A tree is a bitmap of the probes that it covers, a union is an OR, an edge rate
a population count. Nothing is decided by probes: the plan that comes out is counted like any other by
:mod:`optimizer.search.search`, and dropped if it is not cheaper.

The search stops after a number of steps' work, not after a time: equal input gives equal plans.

References
----------
Guirguis et al., Weave Share, CIKM 2011: section 6 (Local Search moves one query at a time; here after the greedy
and with better steps), section 8 (bitmaps of edges). Iterated local search: Lourenco, Martin, Stuetzle, 2003.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from optimizer.search.cost import EdgeSet, Partition, SearchProblem
from optimizer.workload.values import SECOND

Bits = NDArray[np.uint64]

PROBES = 1 << 15
"""Probes that are taken where a composite slide has more edges; up to twice as many where it has not."""

MEMORY = 1 << 28
"""Most bytes of bitmaps, about (twice as many where the probes are a whole composite slide)."""

WINDOWS = 4
"""Random windows that the probes are taken from."""

WORK_PER_SECOND = 4e8
"""Words of bitmaps looked at in one second of CPU, about."""

STEP = 10_000
"""Work of one step besides its words, in words."""


def improve(problem: SearchProblem, partition: Partition, seconds: float) -> Partition:
    """A plan that is probably cheaper than the given one, found in about ``seconds`` of CPU.

    Returns the given plan where nothing better is found on the probes. Deterministic.
    """
    if len(problem) < 2 or seconds <= 0:
        return partition
    search = _LocalSearch(problem, partition, seconds * WORK_PER_SECOND)
    return search.run()


class Probes:
    """Edges of items at a sample of instants.

    Attributes
    ----------
    hits
        Which probes each item's edges hit, as bits. Shape (items, words).
    per_hit
        Edges per second that one probe stands for.
    fewest
        Fewest probes that an item or a tree has to hit to be judged by them; 0 where every rate is exact.
    rare
        Items that hit fewer. Shape (items,).
    """

    def __init__(self, edges: Sequence[EdgeSet], seed: int = 0) -> None:
        unit = math.gcd(*(number for found in edges for edge in found for number in edge))
        ticks = [[(s // unit, h // unit) for s, h in found] for found in edges]
        density = sum(1 / slide for found in ticks for slide, _ in found)
        period = math.lcm(*(found[0][0] for found in ticks))
        # of items, and two of as many trees
        words = min(PROBES // 64, max(MEMORY // 8 // (3 * len(edges)), 16))
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
                np.concatenate([np.arange((h - begin) % s, span, s, dtype=np.int64) for s, h in found])
                for found in ticks
            ]
            distinct = np.unique(np.concatenate(marks))
            for item, mark in enumerate(marks):
                found_at[item].append(start + np.searchsorted(distinct, mark))
            instants.append(distinct)
            start += len(distinct)
        count = sum(len(found) for found in instants)
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
    """The state of the search: for every tree the probes that at least one item, and at least two items, hit."""

    def __init__(self, problem: SearchProblem, partition: Partition, work: float) -> None:
        self.problem, self.start, self.left = problem, partition, work
        self.probes = Probes(problem.edges)
        self.choose = np.random.default_rng(0)
        self.weights = np.array([float(weight) for weight in problem.weights])
        self.fixed = float(problem.fixed)
        self.family_fixed = np.array([float(family.fixed) for family in problem.family])
        self.family_base = np.array([float(family.base) for family in problem.family])
        # families that cost nothing decide nothing, and there may be as many as queries
        if not (self.family_fixed.any() or self.family_base.any()):
            self.family_fixed = self.family_base = np.zeros(0)
        count = len(self.family_fixed)
        size = -(-max(count, 1) // 8)
        held = b"".join((bits & (1 << count) - 1).to_bytes(size, "little") for bits in problem.families)
        self.holds = np.unpackbits(
            np.frombuffer(held, dtype=np.uint8).reshape(len(problem), size), axis=1, count=count, bitorder="little"
        )
        self.families_of = [np.flatnonzero(row) for row in self.holds]
        self.alone = _count(self.probes.hits) * self.probes.per_hit
        # one spare row of each array: the tree that an item could have for itself
        trees = len(partition) + 8
        words = self.probes.hits.shape[1]
        self.once: Bits = np.zeros((trees, words), dtype=np.uint64)
        self.twice: Bits = np.zeros((trees, words), dtype=np.uint64)
        self.rates = np.zeros(trees)
        self.sums = np.zeros(trees)
        self.bases = np.zeros(trees)
        self.fixeds = np.zeros(trees)
        self.held = np.zeros((trees, count), dtype=np.int32)
        self.members: list[set[int]] = [set() for _ in range(trees)]
        self.sizes = np.zeros(trees, dtype=np.int64)
        self.tree_of = np.zeros(len(problem), dtype=np.int64)
        self.changed = np.zeros(trees, dtype=np.int64)
        self.seen = np.full(len(problem), -1, dtype=np.int64)
        self.clock = 0
        for number, tree in enumerate(partition):
            self.members[number] = set(tree)
            self.tree_of[tree] = number
            self._recount(number)
        costs = sum(self._cost(number) for number in range(len(partition)))
        self.least = 1e-9 * costs
        """Gains below this are rounding."""

    # ------------------------------------------------------------------------------------------- bookkeeping
    def _recount(self, tree: int) -> None:
        """Bitmaps and sums of one tree from its members."""
        once, twice = np.zeros_like(self.once[0]), np.zeros_like(self.once[0])
        items = sorted(self.members[tree])
        for item in items:
            hits = self.probes.hits[item]
            twice |= once & hits
            once |= hits
        self.once[tree], self.twice[tree], self.sizes[tree] = once, twice, len(items)
        self.rates[tree] = float(_count(once)) * self.probes.per_hit
        self.sums[tree] = self.weights[items].sum()
        self.held[tree] = self.holds[items].sum(axis=0, dtype=np.int32)
        self._families(tree)
        self._touch(tree)
        self.left -= STEP + len(items) * len(once)

    def _families(self, tree: int) -> None:
        held = self.held[tree] > 0
        self.bases[tree], self.fixeds[tree] = held @ self.family_base, held @ self.family_fixed

    def _touch(self, tree: int) -> None:
        self.clock += 1
        self.changed[tree] = self.clock

    def _charge(self, trees: NDArray[np.int64] | int) -> NDArray[np.float64]:
        return np.asarray(self.sums[trees] + self.bases[trees])

    def _cost(self, tree: int) -> float:
        if not self.members[tree]:
            return 0.0
        return float(self.fixed + self.fixeds[tree] + self.rates[tree] * self._charge(tree))

    def _total(self) -> float:
        trees = self._live()
        return float(np.sum(self.fixed + self.fixeds[trees] + self.rates[trees] * self._charge(trees)))

    def _free_tree(self) -> int:
        empty = np.flatnonzero(self.sizes == 0)
        if len(empty):
            return int(empty[0])
        more = len(self.members)
        for name in ("once", "twice", "rates", "sums", "bases", "fixeds", "held", "changed", "sizes"):
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros_like(array)]))
        self.members += [set() for _ in range(more)]
        return more

    def _live(self) -> NDArray[np.int64]:
        return np.flatnonzero(self.sizes)

    # ------------------------------------------------------------------------------------------------ moves
    def _released(self, item: int) -> float:
        """What the plan costs less without an item."""
        tree = int(self.tree_of[item])
        if len(self.members[tree]) == 1:
            return self._cost(tree)
        lone = self.probes.hits[item] & self.once[tree] & ~self.twice[tree]
        rate = self.rates[tree] - float(_count(lone)) * self.probes.per_hit
        families = self.families_of[item]
        gone = families[self.held[tree, families] == 1]
        charge = float(self._charge(tree) - self.weights[item] - self.family_base[gone].sum())
        self.left -= len(lone)
        fixed = self.fixed + self.fixeds[tree] - self.family_fixed[gone].sum()
        return self._cost(tree) - float(fixed + rate * charge)

    def _added(self, item: int, trees: NDArray[np.int64], below: float) -> tuple[float, int]:
        """The least that an item costs more in one of some trees, and that tree; (inf, -1) if not below a bound."""
        weight = self.weights[item]
        families = self.families_of[item]
        new = self.held[trees[:, None], families] == 0
        new_fixed = new @ self.family_fixed[families]
        before = self._charge(trees)
        after = before + weight + new @ self.family_base[families]
        self.left -= 2 * len(trees) * (4 + len(families))
        rates = self.rates[trees]
        least = new_fixed + np.maximum(rates, self.alone[item]) * after - rates * before
        likely = np.flatnonzero(least < below)
        if len(likely) == 0:
            return math.inf, -1
        hits = self.probes.hits[item]
        rise = _count(hits & ~self.once[trees[likely]]) * self.probes.per_hit
        self.left -= STEP + len(likely) * len(hits)
        rate = rates[likely]
        costs = new_fixed[likely] + (rate + rise) * after[likely] - rate * before[likely]
        at = int(costs.argmin())
        return float(costs[at]), int(trees[likely[at]])

    def _own(self, item: int) -> float:
        """Cost of an item in a tree of its own."""
        families = self.families_of[item]
        charge = self.weights[item] + self.family_base[families].sum()
        return float(self.fixed + self.family_fixed[families].sum() + self.alone[item] * charge)

    def _place(self, item: int, tree: int) -> None:
        """Put an item that is in no tree into one."""
        hits = self.probes.hits[item]
        self.twice[tree] |= self.once[tree] & hits
        self.once[tree] |= hits
        self.rates[tree] = float(_count(self.once[tree])) * self.probes.per_hit
        self.sums[tree] += self.weights[item]
        self.held[tree] += self.holds[item]
        self._families(tree)
        self.members[tree].add(item)
        self.sizes[tree] += 1
        self.tree_of[item] = tree
        self._touch(tree)
        self.left -= STEP

    def _move(self, item: int) -> bool:
        """Move an item to where the plan gets cheapest; trees unchanged since its last turn are left out."""
        home = int(self.tree_of[item])
        since = self.seen[item]
        if self.probes.rare[item] or since == self.clock:
            return False
        self.seen[item] = self.clock
        self.left -= STEP
        trees = self._live()
        if self.changed[home] <= since:
            trees = trees[self.changed[trees] > since]
        trees = trees[trees != home]
        if len(trees) == 0 and self.sizes[home] == 1:
            return False
        released = self._released(item)
        cost, tree = self._added(item, trees, released - self.least) if len(trees) else (math.inf, -1)
        if len(self.members[home]) > 1 and self._own(item) < min(cost, released - self.least):
            cost, tree = self._own(item), self._free_tree()
        if cost >= released - self.least:
            return False
        self.members[home].discard(item)
        self._recount(home)
        self._place(item, tree)
        return True

    def _moves(self) -> None:
        """Move items until none gains."""
        moving = True
        while moving and self.left > 0:
            moving = False
            for item in range(len(self.tree_of)):
                moving |= self._move(item)
                if self.left <= 0:
                    return

    def _merges(self) -> None:
        """Merge pairs of trees while the best pair gains."""
        while self.left > 0:
            trees = self._live()
            # a tree that is hardly seen would seem to cost others nothing
            trees = trees[self.rates[trees] > (self.probes.fewest - 0.5) * self.probes.per_hit]
            best, pair = self.least, None
            charge = self._charge(trees)
            for at, x in enumerate(trees[:-1]):
                later = np.arange(at + 1, len(trees))
                families = np.flatnonzero(self.held[x])
                both = self.held[trees[later, None], families] > 0
                saved = self.fixed + both @ self.family_fixed[families]
                together = charge[at] + charge[later] - both @ self.family_base[families]
                apart = self.rates[x] * charge[at] + self.rates[trees[later]] * charge[later]
                most = saved + apart - np.maximum(self.rates[x], self.rates[trees[later]]) * together
                likely = np.flatnonzero(most > best)
                self.left -= STEP + 2 * len(later) * (4 + len(families)) + len(likely) * self.once.shape[1]
                if self.left <= 0:
                    return
                if len(likely) == 0:
                    continue
                union = _count(self.once[x] | self.once[trees[later[likely]]]) * self.probes.per_hit
                gains = saved[likely] + apart[likely] - union * together[likely]
                chosen = int(gains.argmax())
                if gains[chosen] > best:
                    best, pair = float(gains[chosen]), (int(x), int(trees[later[likely[chosen]]]))
            if pair is None:
                return
            x, y = pair
            self.members[x] |= self.members[y]
            self.tree_of[sorted(self.members[y])] = x
            self.members[y] = set()
            self._recount(y)
            self._recount(x)

    # ---------------------------------------------------------------------------------------------- the search
    def run(self) -> Partition:
        self._moves()
        self._merges()
        self._moves()
        total = self._total()
        best = self._partition()
        turn = 0
        while self.left > 0 and len(self._live()) > 0:
            self._regroup(turn)
            turn += 1
            self._moves()
            found = self._total()
            if found < total - self.least:
                total, best = found, self._partition()
            else:
                self._restore(best)
        return best

    def _regroup(self, turn: int) -> None:
        """Shake the plan: dissolve a tree into the others, or split one around two of its items."""
        self.left -= STEP
        trees = self._live()
        tree = int(self.choose.choice(trees))
        items = [int(i) for i in self.choose.permutation(sorted(self.members[tree])) if not self.probes.rare[i]]
        if turn % 2 and len(items) > 1:
            # a random part of the tree leaves for a tree of its own
            apart = items[: int(self.choose.integers(1, len(items)))]
            home = self._free_tree()
            self.members[tree] -= set(apart)
            self._recount(tree)
            for item in apart:
                self._place(item, home)
            return
        self.members[tree] -= set(items)
        self._recount(tree)
        for item in items:
            trees = self._live()
            own = self._own(item)
            if self.left <= 0:
                # what is left of this turn will not be better than what there was
                self._place(item, tree)
                continue
            _, target = self._added(item, trees, own) if len(trees) else (own, -1)
            self._place(item, target if target >= 0 else self._free_tree())

    def _partition(self) -> Partition:
        return sorted(sorted(items) for items in self.members if items)

    def _restore(self, partition: Partition) -> None:
        """Back to a plan: only the trees that differ from it are set up again."""
        wanted = {frozenset(tree) for tree in partition}
        for tree in self._live():
            items = self.members[tree]
            if frozenset(items) in wanted:
                wanted.discard(frozenset(items))
            else:
                self.members[tree] = set()
                self._recount(tree)
        for items in sorted(wanted, key=min):
            tree = self._free_tree()
            self.members[tree] = set(items)
            self.tree_of[sorted(items)] = tree
            self._recount(tree)
