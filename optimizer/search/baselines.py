"""Baselines of Weave Share: the paper's alternatives, and windows computed from other windows.

No Share, Random, Insert-then-Weave and Local Search are defined on single queries: give them a problem whose items
are queries (``SearchProblem.of(..., collapse=False)``). On a collapsed problem they work on sets of queries with
one edge set, which is not what the paper calls by these names (No Share's cost is then ``problem.unshared``).

References
----------
Guirguis et al., Weave Share, CIKM 2011, sections 4.1 (No Share, Shared) and 6 (Algorithms). Shared is the plan of
shared time slices (Krishnamurthy et al., "On-the-fly sharing for streamed aggregation", SIGMOD 2006). Wu et al.,
"Factor Windows: Cost-based Query Rewriting for Optimizing Correlated Window Aggregates", ICDE 2022.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from optimizer.search.cost import EdgeSet, Partition, SearchProblem
from optimizer.search.weave_share import merge_trees, shifts_of, weave_share
from optimizer.windows.alignment import absorb
from optimizer.windows.edge_counting import EdgeCounter
from optimizer.workload.values import SECOND

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

TIE = 1e-12
"""A move that saves less than this part of the costs it changes, saves nothing."""

SLACK = 1e-14
"""Head-room of lower bounds over their rounding, relative to the rates that they are differences of."""

ITERATIONS = 10
"""Local Search's bound on its iterations, in iterations of Weave Share (LS-NS-10x, the paper's best)."""

SCREENING = 300
"""Work (:class:`optimizer.windows.edge_counting.EdgeCounter`) for a first look at what a tree gains."""

INSERTING = 5_000
"""Work for one count while items are inserted: thousands of counts in trees of a hundred edge sets."""


def no_share(problem: SearchProblem) -> Partition:
    """Put each item in a separate tree (section 4.1)."""
    return [[item] for item in range(len(problem))]


def shared(problem: SearchProblem) -> Partition:
    """All items in one tree (section 4.1)."""
    return [list(range(len(problem)))]


def random(problem: SearchProblem, seed: int = 0) -> Partition:
    """An arbitrary grouping (section 6, Random).

    The paper does not define the draw. Here: a number of trees from 1 to the number of items, then a tree for each
    item, all equally likely; trees that stay empty are dropped. One seed, one plan.
    """
    draw = np.random.default_rng(seed)
    tree_of = draw.integers(draw.integers(1, len(problem) + 1), size=len(problem))
    return sorted(np.flatnonzero(tree_of == tree).tolist() for tree in np.unique(tree_of))


def insert_then_weave(problem: SearchProblem) -> Partition:
    """Insert items one at a time into the tree that each weaves best with, then merge trees (section 6).

    "Weaves best": the largest reduction of cost compared with a separate tree. If no tree reduces the cost, the
    item gets a separate tree. Items come in their given order ("arbitrary"); of equal trees the oldest is taken.
    The merging is Weave Share's.

    Complexity: O(m + K) per item for m trees and K edge sets, and few counts. For a thousand windows with
    arbitrary fragments the counts dominate (half a minute; a second or two with template slides). O(n*K) memory.
    """
    return merge_trees(problem, _inserted(problem))


def _inserted(problem: SearchProblem) -> Partition:
    trees = _Trees(problem, EdgeCounter(counter=problem.counter, budget=INSERTING))
    opened = 0
    for item in range(len(problem)):
        kind = trees.kind_of[item]
        raised = trees.raised(np.arange(opened), item)
        while opened and (raised[(tree := int(raised.argmin()))] < trees.alone[item] * (1.0 - TIE)):
            if trees.known[tree, kind]:
                trees.insert(item, tree)
                break
            trees.count(tree, kind)
            raised[tree] = trees.raised(tree, item)
        else:
            trees.fill(opened, [item])
            opened += 1
    return trees.partition()


def local_search(problem: SearchProblem, start: str = "no-share", iterations: int | None = None) -> Partition:
    """Repeatedly move the one item whose move saves most, to another tree or to a new one (section 6).

    Parameters
    ----------
    start
        ``"no-share"`` (LS-NS, the paper's best) or ``"random"``.
    iterations
        Most moves. Default: ten times the number of merges that Weave Share makes (LS-NS-10x).

    Returns
    -------
    Partition
        No more expensive than the start if edges can be counted, and a local optimum if the bound on moves was not
        reached. Of equal moves that of the first item is made, to its oldest tree.

    Complexity: O(n) per move for n items and few counts (a move is first judged by bounds); O(n^2) memory.
    """
    if start not in ("no-share", "random"):
        raise ValueError(f"unknown start {start!r}: no-share or random")
    if iterations is None:
        iterations = ITERATIONS * (len(problem) - len(weave_share(problem)))
    return _LocalSearch(problem, no_share(problem) if start == "no-share" else random(problem)).run(iterations)


class _Trees:
    """Trees between which items move, in numbers: what each tree's edge rate gains from each *kind* (edge set).

    A gain is a lower bound until it is counted (``known``). Edges are a coverage function, so bounds survive changes:
    what k adds to a tree falls by at most common(j, k) when j joins it, and does not fall when something leaves.
    Where the counter's budget ends, the middle of its interval is taken. All rates per second, floats.
    """

    def __init__(self, problem: SearchProblem, counter: EdgeCounter) -> None:
        self.problem, self.counter = problem, counter
        self.screen = EdgeCounter(counter=problem.counter, budget=SCREENING)
        unit = math.gcd(*(number for edges in problem.edges for edge in edges for number in edge))
        self.per_second = SECOND / unit
        numbers: dict[EdgeSet, int] = {}
        self.kind_of = np.array([numbers.setdefault(edges, len(numbers)) for edges in problem.edges])
        self.kinds = [tuple((slide // unit, shift // unit) for slide, shift in edges) for edges in numbers]
        self.kind_rate: Floats = np.array([len(edges) / edges[0][0] * self.per_second for edges in self.kinds])
        self.common = _common_rates(self.kinds) * self.per_second
        self.contains = self.common >= self.kind_rate * (1.0 - TIE)

        self.weight: Floats = np.array([float(weight) for weight in problem.weights])
        patterns: dict[int, int] = {}
        self.pattern_of = np.array([patterns.setdefault(families, len(patterns)) for families in problem.families])
        self.patterns = list(patterns)
        self.of_families = cache(self._of_families)

        count = len(problem)
        self.members: list[list[int]] = [[] for _ in range(count)]
        self.edges: list[EdgeSet] = [()] * count
        self.rate, self.charge = np.zeros(count), np.zeros(count)
        self.gain = np.zeros((count, len(self.kinds)))
        self.known = np.zeros((count, len(self.kinds)), dtype=np.bool_)
        self.screened = np.zeros((count, len(self.kinds)), dtype=np.bool_)
        self.new_fixed = np.zeros((count, len(self.patterns)))
        self.new_base = np.zeros((count, len(self.patterns)))
        costs = [self.of_families(pattern) for pattern in self.patterns]
        base = np.array([base for _, base in costs])[self.pattern_of]
        fixed = np.array([fixed for fixed, _ in costs])[self.pattern_of]
        self.alone: Floats = float(problem.fixed) + fixed + self.kind_rate[self.kind_of] * (self.weight + base)

    def partition(self) -> Partition:
        return sorted(sorted(members) for members in self.members if members)

    def fill(self, tree: int, members: Iterable[int]) -> None:
        """Replace the contents of a tree with these items."""
        self.members[tree] = list(members)
        kinds = np.unique(self.kind_of[self.members[tree]])
        self.edges[tree] = absorb(edge for kind in kinds for edge in self.kinds[kind])
        self.rate[tree] = self._counted(kinds)
        gain = self.kind_rate - self.common[kinds].sum(axis=0)
        self._bound(tree, gain, known=gain if len(kinds) == 1 else None)
        self._charge(tree)

    def insert(self, item: int, tree: int) -> None:
        """Put an item, whose gain is known, into a tree."""
        kind = self.kind_of[item]
        self.members[tree].append(item)
        if not self.contains[self.kind_of[self.members[tree][:-1]], kind].any():
            self.edges[tree] = absorb(self.edges[tree] + self.kinds[kind])
            self.rate[tree] += self.gain[tree, kind]
            still = self.known[tree] & (self.common[kind] == 0.0)
            self._bound(tree, self.gain[tree] - self.common[kind], np.where(still, self.gain[tree], np.nan))
        self._charge(tree)

    def remove(self, item: int, tree: int) -> None:
        """Take an item out of a tree that holds others, too."""
        kind, gain = self.kind_of[item], self.gain[tree].copy()
        remaining = [other for other in self.members[tree] if other != item]
        if (self.kind_of[remaining] == kind).any():
            self.members[tree] = remaining
            self._charge(tree)
            return
        still = self.known[tree] & (self.common[kind] == 0.0)
        self.fill(tree, remaining)
        if not self.known[tree].all():
            self._bound(tree, np.maximum(self.gain[tree], gain), np.where(still, gain, np.nan))

    def raised(self, tree: int | Indices, item: int | Indices) -> Floats:
        """Amounts by which items would raise the costs of trees: lower bounds, exact if the gain is known."""
        gain, pattern = self.gain[tree, self.kind_of[item]], self.pattern_of[item]
        charge = self.weight[item] + self.new_base[tree, pattern]
        return np.asarray(self.new_fixed[tree, pattern] + gain * self.charge[tree] + (self.rate[tree] + gain) * charge)

    def count(self, tree: int, kind: int) -> None:
        """Raise a gain's bound by a cheap look, the next time make it known."""
        low, high = self._rise(self.edges[tree], kind, self.counter if self.screened[tree, kind] else self.screen)
        self.known[tree, kind] = self.screened[tree, kind] or low == high
        self.screened[tree, kind] = True
        self.gain[tree, kind] = (low + high) / 2 if self.known[tree, kind] else max(self.gain[tree, kind], low)

    def savings(self, tree: int) -> tuple[Floats, NDArray[np.bool_]]:
        """Upper bounds of the saving from removing each of ``members``, in their order, and whether they are exact."""
        members = np.array(self.members[tree])
        if len(members) == 1:
            return self.alone[members], np.array([True])
        kinds, place, number = np.unique(self.kind_of[members], return_inverse=True, return_counts=True)
        # what only this kind covers is at most what its closest neighbour leaves of it
        common = self.common[np.ix_(kinds, kinds)]
        np.fill_diagonal(common, 0.0)
        only = np.where(number > 1, 0.0, self.kind_rate[kinds] - common.max(axis=0))
        inside = self.contains[np.ix_(kinds, kinds)]
        exact = (number > 1) | (inside.sum(axis=0) > 1) | (len(kinds) <= 2)
        only[inside.sum(axis=0) > 1] = 0.0
        return self._saved(tree, members, only[place]), exact[place]

    def saving(self, tree: int, item: int) -> float:
        """Counted saving from removing the last item of its kind."""
        other_kinds = np.unique(self.kind_of[[other for other in self.members[tree] if other != item]])
        edges = absorb(edge for kind in other_kinds for edge in self.kinds[kind])
        only = sum(self._rise(edges, self.kind_of[item], self.counter)) / 2
        return float(self._saved(tree, np.array([item]), np.array([only]))[0])

    def _saved(self, tree: int, items: Indices, only: Floats) -> Floats:
        pattern_counts = Counter(self.pattern_of[self.members[tree]].tolist())
        fixed, base = np.zeros(len(self.patterns)), np.zeros(len(self.patterns))
        for pattern, number in pattern_counts.items():
            if number == 1:
                other_families = self._union(other for other in pattern_counts if other != pattern)
                fixed[pattern], base[pattern] = self.of_families(self.patterns[pattern] & ~other_families)
        pattern = self.pattern_of[items]
        charge = self.weight[items] + base[pattern]
        return np.asarray(fixed[pattern] + only * (self.charge[tree] - charge) + self.rate[tree] * charge)

    def _rise(self, edges: EdgeSet, kind: int, counter: EdgeCounter) -> tuple[float, float]:
        # at most two progressions are added: the counter needs no density for that
        low, high = counter.increment(edges, (0.0, 1.0), self.kinds[kind])
        return low * self.per_second, high * self.per_second

    def _counted(self, kinds: Indices) -> float:
        if len(kinds) == 1:
            return float(self.kind_rate[kinds[0]])
        edges = absorb(edge for kind in kinds for edge in self.kinds[kind])
        return sum(self.counter.density(edges)) / 2 * self.per_second

    def _bound(self, tree: int, gain: Floats, known: Floats | None = None) -> None:
        """Set the gains of a tree: ``known`` where that is a number, else at least ``gain``."""
        gain = np.maximum(gain, self.kind_rate - self.rate[tree]) - SLACK * (self.kind_rate + self.rate[tree])
        known = np.full(len(gain), np.nan) if known is None else known.copy()
        known[self.contains[np.unique(self.kind_of[self.members[tree]])].any(axis=0)] = 0.0
        self.known[tree], self.screened[tree] = ~np.isnan(known), False
        self.gain[tree] = np.where(self.known[tree], known, np.maximum(gain, 0.0))

    def _charge(self, tree: int) -> None:
        members = self.members[tree]
        families = self._union(set(self.pattern_of[members].tolist()))
        self.charge[tree] = self.weight[members].sum() + self.of_families(families)[1]
        for pattern, bits in enumerate(self.patterns):
            self.new_fixed[tree, pattern], self.new_base[tree, pattern] = self.of_families(bits & ~families)

    def _union(self, patterns: Iterable[int]) -> int:
        families = 0
        for pattern in patterns:
            families |= self.patterns[pattern]
        return families

    def _of_families(self, families: int) -> tuple[float, float]:
        """Cost per second and per fragment of some families in a tree."""
        return float(self.problem.fixed_of(families) - self.problem.fixed), float(self.problem.base_of(families))


def _common_rates(kinds: Sequence[EdgeSet]) -> Floats:
    """Edges per tick that two edge sets have in common, for all pairs. Shape (K, K).

    The progressions of one edge set are disjoint, so these are sums over pairs of progressions: each 1/lcm if they
    are compatible and 0 if not (F1 Eq. 4).
    """
    slides = np.array([edges[0][0] for edges in kinds], dtype=np.int64)
    shifts, valid = shifts_of(kinds)
    rates = np.empty((len(kinds), len(kinds)))
    for row, edges in enumerate(kinds):
        divisor = np.gcd(slides[row], slides)
        matches = np.zeros(len(kinds))
        for _, shift in edges:
            matches += (valid & ((shifts - shift) % divisor == 0)).sum(axis=0)
        rates[row] = matches * divisor / (float(slides[row]) * slides)
    return rates


class _LocalSearch:
    """One run of Local Search, which remembers the cheapest target tree of every item.

    ``cheapest``: lower bound of the amount by which an item raises the costs of any tree but its own. ``target``:
    that tree, -1 if the bound is from before the tree changed.
    """

    def __init__(self, problem: SearchProblem, partition: Partition) -> None:
        count = len(problem)
        self.trees = trees = _Trees(problem, EdgeCounter(counter=problem.counter))
        self.items = np.arange(count)
        self.tree_of = np.zeros(count, dtype=np.intp)
        # raised[item, tree], infinite for the item's own tree; of the empty trees, the first is the new one
        self.raised = np.full((count, count), np.inf)
        self.saving, self.exact = np.zeros(count), np.zeros(count, dtype=np.bool_)
        self.cheapest, self.target = trees.alone.copy(), np.full(count, -1, dtype=np.intp)
        for tree, members in enumerate(partition):
            self.tree_of[members] = tree
            trees.fill(tree, members)
        for tree in range(len(partition)):
            self.raised[:, tree] = trees.raised(tree, self.items)
            self._leaving(tree)
        self.raised[self.items, self.tree_of] = np.inf
        self.cheapest = np.minimum(self.raised.min(axis=1), trees.alone)

    def run(self, iterations: int) -> Partition:
        for _ in range(iterations):
            move = self._best()
            if move is None:
                break
            self._move(*move)
        return self.trees.partition()

    def _best(self) -> tuple[int, int] | None:
        """The move that saves most, if any does: item, and tree (-1: a new one)."""
        trees = self.trees
        while True:
            change = self.cheapest - self.saving
            item = int(change.argmin())
            if change[item] >= -TIE * (abs(self.cheapest[item]) + abs(self.saving[item])):
                return None
            own, target = int(self.tree_of[item]), int(self.target[item])
            if target < 0:
                self._look(item)
            elif target < len(trees.members) and not trees.known[target, trees.kind_of[item]]:
                kind = trees.kind_of[item]
                trees.count(target, kind)
                same = np.flatnonzero((trees.kind_of == kind) & (self.tree_of != target))
                self._see(same, target)
            elif not self.exact[item]:
                self.saving[item], self.exact[item] = trees.saving(own, item), True
            else:
                return item, target

    def _look(self, item: int) -> None:
        """Find an item's cheapest tree again; a new tree is number n."""
        row = self.raised[item]
        tree = int(row.argmin())
        new = self.trees.alone[item] < row[tree]
        self.cheapest[item] = self.trees.alone[item] if new else row[tree]
        self.target[item] = len(row) if new else tree

    def _see(self, items: Indices, tree: int) -> None:
        """Update by how much these items raise the cost of a tree that has changed."""
        raised = self.trees.raised(tree, items)
        self.raised[items, tree] = raised
        better = raised < self.cheapest[items]
        self.target[items[(self.target[items] == tree) & ~better]] = -1
        self.cheapest[items[better]] = raised[better]
        self.target[items[better]] = tree

    def _leaving(self, tree: int) -> None:
        members = self.trees.members[tree]
        self.saving[members], self.exact[members] = self.trees.savings(tree)

    def _move(self, item: int, target: int) -> None:
        trees, source = self.trees, int(self.tree_of[item])
        if target == len(trees.members):
            target = trees.members.index([])
            trees.fill(target, [item])
        else:
            trees.insert(item, target)
        self.tree_of[item] = target
        if trees.members[source] == [item]:
            trees.members[source] = []
            self.raised[:, source] = np.inf
            self.target[self.target == source] = -1
        else:
            trees.remove(item, source)
            self._see(self.items[self.tree_of != source], source)
            self._leaving(source)
        self._see(self.items[self.tree_of != target], target)
        self._leaving(target)
        self.raised[item, target] = np.inf
        self._look(item)


@dataclass(frozen=True)
class FactorPlan:
    """Windows that are computed from other windows.

    Attributes
    ----------
    windows
        The distinct (range, slide), in the unit given, in order of appearance; then the inserted factor windows.
    parents
        For each window the number of the one that it is combined from, None: from raw tuples.
    inserted
        Number of the last windows that are inserted factor windows.
    cost
        Operations per second.
    """

    windows: tuple[tuple[int, int], ...]
    parents: tuple[int | None, ...]
    inserted: int
    cost: Fraction


def factor_windows(
    ranges: Sequence[int], slides: Sequence[int], rate: Fraction, idempotent: bool = False
) -> FactorPlan:
    """Compute each window from its cheapest parent window, in the style of Factor Windows (Wu et al., ICDE 2022).

    A window (r1, s1) is *partitioned by* a tumbling one (f, f) if f divides r1 and s1: it is a disjoint union of
    r1/f of them, which serves any aggregate. It is *covered by* (r2, s2), r1 > r2 >= s2, if s2 divides s1 and
    r1 - r2: the union of 1 + (r1 - r2)/s2 overlapping ones, which serves ``idempotent`` aggregates only (min, max).
    That number is the covering multiplier. Choices do not interfere, so each window takes its cheapest parent. Then
    additional tumbling *factor windows* are inserted, greedily, while one lowers the total. Candidates are the gcds
    of range and slide over one window or two: the coarsest that partition them.

    Parameters
    ----------
    ranges, slides
        In microseconds, shapes (n,). Equal windows are computed once.
    rate
        Tuples per second.

    Returns
    -------
    FactorPlan
        Its cost is made comparable with Weave Share's Eq. 1. A window fed with raw tuples costs the same as in a
        separate Weave Share tree, rate + E*r/s: its tuples go into paired fragments, which are combined (Wu et al.
        charge each tuple once per window, rate*r/s). Any other costs its multiplier per answer, so multiplier/s. A
        window whose parent has an equal range and a smaller slide takes over that parent's answers (multiplier 1).
        Equal windows after the first are free here and not in Eq. 1: compare on distinct windows.

    Complexity: O(n^2) time and memory for n distinct windows, and O(n^2) per factor window inserted.
    """
    distinct_windows = list(dict.fromkeys((int(size), int(slide)) for size, slide in zip(ranges, slides, strict=True)))
    windows = np.array(distinct_windows, dtype=np.int64).reshape(-1, 2)
    inserted = _factor_sizes(windows, float(rate), idempotent)
    windows = np.concatenate([windows, np.array([(size, size) for size in inserted], dtype=np.int64).reshape(-1, 2)])
    parents: list[int | None] = []
    cost = Fraction(0)
    for (size, slide), row in zip(windows.tolist(), _multipliers(windows, windows, idempotent), strict=True):
        parent = int(row.argmin())
        raw = rate + _raw_combines(size, slide)
        combined = Fraction(int(row[parent]) * SECOND, slide) if row[parent] < np.inf else raw
        parents.append(parent if combined < raw else None)
        cost += min(combined, raw)
    return FactorPlan(tuple((size, slide) for size, slide in windows.tolist()), tuple(parents), len(inserted), cost)


def _raw_combines(size: int, slide: int) -> Fraction:
    """E*r/s of a window's own tree: fragments combined per second."""
    inner = size % slide
    edges = 1 if inner == 0 else 2
    return Fraction(edges * SECOND * size, slide * slide)


def _multipliers(windows: NDArray[np.int64], parents: NDArray[np.int64], idempotent: bool) -> Floats:
    """Answers of each parent that make one answer of each window, infinite where they cannot."""
    size, slide = windows[:, :1], windows[:, 1:]
    parent, step = parents[:, 0], parents[:, 1]
    pieces = (size > parent) & ((size - parent) % step == 0) & ((parent >= step) if idempotent else (parent == step))
    same = (size == parent) & (slide != step)
    return np.where((slide % step == 0) & (pieces | same), 1.0 + (size - parent) // step, np.inf)


def _factor_sizes(windows: NDArray[np.int64], rate: float, idempotent: bool) -> list[int]:
    """Tumbling windows that pay for themselves, by falling benefit."""
    grain = np.unique(np.gcd(windows[:, 0], windows[:, 1]))
    tumbling = windows[windows[:, 0] == windows[:, 1], 0]
    sizes = np.setdiff1d(np.gcd.outer(grain, grain), tumbling)
    candidates = np.stack([sizes, sizes], axis=1)
    raw = np.array([rate + float(_raw_combines(size, slide)) for size, slide in windows.tolist()])
    now = np.minimum(
        raw, _multipliers(windows, windows, idempotent).min(axis=1, initial=np.inf) * SECOND / windows[:, 1]
    )
    # cost of each window from each candidate, and of each candidate itself
    through = _multipliers(windows, candidates, idempotent) * SECOND / windows[:, 1:]
    parents = _multipliers(candidates, windows, idempotent).min(axis=1, initial=np.inf)
    own = np.minimum(rate + SECOND / sizes, parents * SECOND / sizes)
    between = _multipliers(candidates, candidates, idempotent) * SECOND / sizes[:, None]
    chosen: list[int] = []
    while len(chosen) < len(sizes):
        benefit = np.maximum(now[:, None] - through, 0.0).sum(axis=0) - own
        benefit += np.maximum(own[chosen][:, None] - between[chosen], 0.0).sum(axis=0)
        benefit[chosen] = -np.inf
        best = int(benefit.argmax())
        if benefit[best] <= TIE * (now.sum() + own[best]):
            break
        chosen.append(best)
        now, own = np.minimum(now, through[:, best]), np.minimum(own, between[:, best])
    return [int(sizes[index]) for index in chosen]
