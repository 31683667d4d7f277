"""Weave Share: merge the two trees that save most, until no merge saves anything.

The search is the published greedy and ends in the same plan, but it looks at fewer pairs:

- Queries with the same edge set are one starting tree (:class:`optimizer.search.cost.SearchProblem`).
- The published Cost Lookup table has the exact benefit of every pair and recounts an entire row per merge. Here
  a pair's benefit is first *optimistic*: from a lower bound of the union's edge rate. Edges are a coverage
  function, so a merged tree's bounds follow from its parts' without counting (it grows, and increments
  diminish). Only a pair that reaches the top is counted, and merged if it stays there.
- If it is certain that every merge saves, nothing is looked at: all ends in one tree.
- A row's best pair is remembered. A row whose best pair is gone keeps its value as a bound and is searched
  again only if that bound reaches the top.

Ties: benefits within 1e-12 of ``fixed`` (the rate lambda) are equal, and of equal merges the one with the smallest
pair of first queries is taken. Benefits are computed in floats; if their rounding could decide a tie, exact
fractions do. If a union's edges cannot be counted exactly in the counter's budget, its upper bound counts, so a
merge is made only if it certainly saves. (Bounds that follow from it are then no longer certain to be optimistic: a
merge that would save may be missed.) A search whose counts have cost :data:`PATIENCE` in all estimates the rest on
probes (:class:`optimizer.search.local_search.Probes`). Merges by estimates are costed by certified bounds in the
end: a tree that is not certainly cheaper than its parts is taken apart again.

Above :data:`DENSE_LIMIT` trees the table of all pairs does not fit. Then windows of one slide with fragments are
put into the cheapest trees that they can form among themselves, then blocks of neighbouring slides are woven, then
their trees. That is no longer the published order of merges; each merge saves all the same.

References
----------
Guirguis et al., Weave Share, CIKM 2011: Figure 2 (algorithm), Eq. 5 (benefit), section 8 (Cost Lookup).
The paper leaves ties open; the rule above is ours. Edge rates of pairs: F1 (CIKM 2015) Eq. 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.search.cost import Partition, SearchProblem
from optimizer.search.local_search import Bits, Probes
from optimizer.windows.alignment import Progression, absorb
from optimizer.windows.edge_counting import EdgeCounter
from optimizer.windows.edge_sets import CountRefused
from optimizer.workload.values import SECOND

Floats = NDArray[np.float64]
Edges = tuple[Progression, ...]

TIE = Fraction(1, 10**12)
"""Benefits closer than this, times ``fixed``, are equal."""

SLACK = 1e-14
"""Head-room of benefits in floats over their rounding errors, relative to the costs they are made of."""

COMPILED_FROM = 300
"""Trees whose pairs are looked through by compiled loops: fewer do not pay for loading them."""

DENSE_LIMIT = 12_000
"""Largest number of trees whose pairs are all in one table (8 bytes a pair: 1.2 GB)."""

TABLED = 16
"""Times the number of trees: up to such slides, in ticks, the greatest common divisors of a row of pairs are sieved."""

BLOCK = 1_000
"""Trees woven together first where there are more than :data:`DENSE_LIMIT`."""

PATIENCE = 300_000
"""Work of the counter (a second or so) after which unions are estimated on probes: microseconds each."""

EXACT_TIES = 64
"""Most pairs compared in exact fractions to settle one tie that floats cannot."""


def weave_share(problem: SearchProblem, counter: EdgeCounter | None = None) -> Partition:
    """The greedy plan of Weave Share.

    Complexity for K items: O(K^2) memory up to :data:`DENSE_LIMIT`, O(K) per merge, and few counts.
    """
    return merge_trees(problem, [[item] for item in range(len(problem))], counter)


def merge_trees(problem: SearchProblem, partition: Partition, counter: EdgeCounter | None = None) -> Partition:
    """Merge the trees of any plan as Weave Share does, until no merge saves anything."""
    if problem.is_cheapest_in_one_tree:
        return [list(range(len(problem)))]
    counter = counter or EdgeCounter(counter=problem.counter)
    trees = sorted(partition)
    if len(trees) > DENSE_LIMIT:
        trees = _woven_by_slide(problem, trees)
    while len(trees) > DENSE_LIMIT:
        # neighbours in slide (then in shift) share progressions, so most of what can be saved is saved in a block
        trees.sort(key=lambda tree: (len(tree) > 1, problem.edges[tree[0]]))
        woven: Partition = []
        for start in range(0, len(trees), BLOCK):
            woven += _woven(problem, sorted(trees[start : start + BLOCK]), counter)
        if len(woven) > 0.9 * len(trees):
            return sorted(woven)
        trees = sorted(woven)
    return _woven(problem, trees, counter)


class Trees:
    """Trees of a problem in numbers: edges in ticks, edge rates per second, costs per fragment, families.

    A tree's edge rate is the upper bound where it cannot be counted. ``charges`` are costs per fragment (families'
    bases and queries' weights), shapes (trees,); ``holds`` the families of each as bits, shape (trees, words).
    """

    def __init__(self, problem: SearchProblem, partition: Partition, counter: EdgeCounter) -> None:
        self.problem, self.counter = problem, counter
        self.ticks, unit = problem.ticks
        self.bits: dict[int, Bits] = {}
        self.per_second = SECOND / unit
        self.members = [list(tree) for tree in partition]
        self.edges: list[Edges] = [self._edges(tree) for tree in self.members]
        # edges per tick, from below and above
        self.densities = [self._density(edges) for edges in self.edges]
        self.rates: Floats = np.array([high * self.per_second for _, high in self.densities])
        self.fixed = float(problem.fixed)
        families = [problem.families_of(tree) for tree in self.members]
        words = -(-len(problem.family) // 64)
        self.holds = np.array([_words(bits, words) for bits in families])
        bases = [float(problem.base_of(bits)) for bits in families]
        self.charges: Floats = np.array(
            [base + problem.floats[tree].sum() for base, tree in zip(bases, self.members, strict=True)]
        )
        # families of equal costs are counted together: (which, cost per second, cost per fragment)
        alike: dict[tuple[float, float], int] = {}
        for number, family in enumerate(problem.family):
            costs = float(family.fixed), float(family.base)
            alike[costs] = alike.get(costs, 0) | 1 << number
        self.alike = [(_words(bits, words), *costs) for costs, bits in alike.items() if any(costs)]

    def _edges(self, tree: list[int]) -> Edges:
        return self.ticks[tree[0]] if len(tree) == 1 else absorb(e for item in tree for e in self.ticks[item])

    def _density(self, edges: Edges) -> tuple[float, float]:
        if edges[0][0] == edges[-1][0]:
            # of one slide: absorbed, so disjoint
            return (len(edges) / edges[0][0],) * 2
        return self.counter.density(edges)

    def union(self, x: int, y: int) -> tuple[float, float]:
        """Edges per tick of the union of two trees, counted; from below and above."""
        if len(self.edges[x]) < len(self.edges[y]):
            x, y = y, x
        low, high = self.densities[x]
        if self.is_estimating:
            estimate = self.probes.rise(self._bits(x), self._bits(y)) / self.per_second
            return max(low + estimate, self.densities[y][0]), max(high + estimate, self.densities[y][1])
        rise = self.counter.increment(self.edges[x], (low, high), self.edges[y])
        other = self.densities[y]
        return max(low + rise[0], other[0]), max(high + rise[1], other[1])

    def saved(self, x: int, others: NDArray[np.intp]) -> tuple[Floats | float, Floats | float]:
        """(per second, per fragment): what the families that x has in common with others cost only once."""
        saved, base = self.fixed, 0.0
        for bits, fixed, per_fragment in self.alike:
            common = np.bitwise_count(self.holds[others] & (self.holds[x] & bits)).sum(axis=1)
            saved, base = saved + common * fixed, base + common * per_fragment
        return saved, base

    def family_fixed(self, x: int) -> float:
        """Cost per second of the families of a tree."""
        return sum((fixed * int(np.bitwise_count(self.holds[x] & bits).sum()) for bits, fixed, _ in self.alike), 0.0)

    @cached_property
    def common(self) -> tuple[float, float]:
        """(per second, per fragment): what the first tree has in common with itself, and all with all where all hold
        the same families."""
        saved, base = self.saved(0, np.array([0]))
        return float(np.sum(saved)), float(np.sum(base))

    def benefits(self, x: int, others: NDArray[np.intp], unions: Floats) -> tuple[Floats, Floats]:
        """Benefit of merging x with each of the others at the given edge rates of the unions (Eq. 5), and the
        size of the costs that it is the difference of (its rounding error is a few 1e-16 of that)."""
        saved, base = self.saved(x, others)
        charge, charges = self.charges[x], self.charges[others]
        raised = (unions - self.rates[x]) * charge + (unions - self.rates[others]) * charges
        return saved + unions * base - raised, self.fixed + unions * (charge + charges)

    @property
    def is_estimating(self) -> bool:
        """Return whether the counter's work is spent."""
        return self.counter.work > PATIENCE

    @cached_property
    def probes(self) -> Probes:
        return Probes(self.problem.edges)

    def _bits(self, x: int) -> Bits:
        """The probes that a tree hits."""
        if x not in self.bits:
            self.bits[x] = np.bitwise_or.reduce(self.probes.hits[self.members[x]], axis=0)
        return self.bits[x]

    def merge(self, x: int, y: int, union: tuple[float, float]) -> None:
        """Put tree y into tree x; ``union``: edges per tick of both."""
        _, base = self.saved(x, np.array([y]))
        self.charges[x] += self.charges[y] - float(np.sum(base))
        self.members[x] = self.members[x] + self.members[y]
        self.edges[x] = absorb(self.edges[x] + self.edges[y])
        self.densities[x], self.rates[x] = union, union[1] * self.per_second
        hits, other = self.bits.pop(x, None), self.bits.pop(y, None)
        if hits is not None and other is not None:
            self.bits[x] = hits | other
        self.holds[x] |= self.holds[y]

    def keep(self, kept: NDArray[np.intp]) -> None:
        """Only these trees are left, renumbered in their order."""
        self.members = [self.members[x] for x in kept]
        self.edges = [self.edges[x] for x in kept]
        self.densities = [self.densities[x] for x in kept]
        self.bits = {number: self.bits[x] for number, x in enumerate(kept.tolist()) if x in self.bits}
        self.rates, self.charges, self.holds = self.rates[kept], self.charges[kept], self.holds[kept]


def _words(bits: int, words: int) -> Bits:
    return np.frombuffer(bits.to_bytes(8 * words, "little"), dtype="<u8").astype(np.uint64)


class Weaver:
    """One greedy run. Trees are numbered by their first item; a merged tree keeps the smaller number."""

    def __init__(self, problem: SearchProblem, partition: Partition, counter: EdgeCounter) -> None:
        self.problem = problem
        self.trees = Trees(problem, partition, counter)
        self.tie = float(problem.fixed * TIE)
        # trees whose unions with one another have a closed form
        self.singles = np.array([len(tree) == 1 for tree in self.trees.members])
        # lower bounds of the unions' edge rates; counted for pairs in `unions`
        self.bounds = self._pair_rates()
        self.unions: dict[int, dict[int, tuple[float, float]]] = {}
        # the trees when merges began to be estimated, by their first items, and their costs from below
        self.counted: dict[int, tuple[list[int], float]] = {}
        self.alive = np.arange(len(partition))
        count = len(partition)
        self.best: Floats = np.full(count, -np.inf)
        self.partner = np.full(count, -1, dtype=np.intp)
        self._look_through_all()

    def run(self) -> Partition:
        """Merge until nothing is saved."""
        while len(self.alive) > 1 and (pair := self._top()) is not None:
            if self.trees.is_estimating and not self.counted:
                self.counted = {self.trees.members[x][0]: self._tree(x) for x in self.alive.tolist()}
            self._merge(*pair)
        return sorted(sorted(items) for x in self.alive.tolist() for items in self._certain(x))

    def _tree(self, x: int) -> tuple[list[int], float]:
        """The items of a tree and, from below, its cost without constants."""
        trees = self.trees
        low = trees.densities[x][0] * trees.per_second
        return trees.members[x], float(trees.fixed + trees.family_fixed(x) + low * trees.charges[x])

    def _certain(self, x: int) -> Partition:
        """A tree, or what it was made of from when merges were estimated, if it is not certain that it is cheaper."""
        trees, items = self.trees, self.trees.members[x]
        parts = [self.counted[item] for item in items if item in self.counted]
        if len(parts) < 2:
            return [items]
        high = float(self.problem.edge_bounds(tuple(sorted(items)))[1])
        cost = trees.fixed + trees.family_fixed(x) + high * trees.charges[x]
        return [items] if cost < sum(low for _, low in parts) else [part for part, _ in parts]

    # ------------------------------------------------------------------------------ loops, see _CompiledWeaver
    def _pair_rates(self) -> Floats:
        return pair_rates(self.trees)

    def _look_through_all(self) -> None:
        for x in self.alive[:-1]:
            self._look_through(x)

    def _partner_of(self, x: int, later: NDArray[np.intp]) -> tuple[float, int]:
        """The highest optimistic benefit of x with some others, and the first that has it."""
        row = self._row(x, later)
        at = int(row.argmax())
        return float(row[at]), int(later[at])

    def _likeliest(self) -> tuple[int, int] | None:
        """The first of the pairs of the highest optimistic benefit; None where no merge saves more than a tie."""
        while True:
            x = int(self.alive[self.best[self.alive].argmax()])
            if self.best[x] <= self.tie:
                return None
            y = int(self.partner[x])
            # does the pair still exist with the value that the row remembers? (Stale rows remember bounds.)
            if y >= 0 and np.isin(y, self.alive) and self._row(x, np.array([y]))[0] >= self.best[x]:
                return x, y
            self._look_through(x)

    def _at_least(self, x: int, later: NDArray[np.intp], floor: float) -> NDArray[np.intp]:
        """The trees among ``later`` with which the optimistic benefit of x is at least ``floor``."""
        return later[self._row(x, later) >= floor]

    def _bound_unions(self, x: int, y: int, others: NDArray[np.intp], union: float) -> None:
        """Bound the unions of x and y, of at least ``union`` edges a second, with others, in row and column x."""
        rates = self.trees.rates
        with_x, with_y = self.bounds[x, others], self.bounds[y, others]
        # common(x+y, k) <= common(x, k) + common(y, k), rewritten with the rates of unions
        diminishing = union - rates[x] - rates[y] - rates[others] + with_x + with_y
        diminishing -= 8e-16 * (union + with_x + with_y)
        bounds = np.maximum.reduce([with_x, with_y, rates[others], np.full(len(others), union), diminishing])
        self.bounds[x, others] = self.bounds[others, x] = bounds

    def _offer(self, x: int, before: NDArray[np.intp]) -> None:
        """Make x the best partner of those of some earlier trees for whom it is."""
        row = self._row(x, before)
        better = row > self.best[before]
        self.best[before[better]] = row[better]
        self.partner[before[better]] = x

    # ------------------------------------------------------------------------------------------- the greedy
    def _row(self, x: int, others: NDArray[np.intp]) -> Floats:
        """Optimistic benefits of merging x with others."""
        benefits, size = self.trees.benefits(x, others, self.bounds[x, others])
        return np.asarray(benefits + SLACK * size)

    def _look_through(self, x: int) -> None:
        """Find the best pair of row x again."""
        later = self.alive[np.searchsorted(self.alive, x, side="right") :]
        if len(later) == 0:
            self.best[x], self.partner[x] = -np.inf, -1
            return
        self.best[x], self.partner[x] = self._partner_of(x, later)

    def _top(self) -> tuple[int, int] | None:
        """The pair to merge next: the smallest of those whose exact benefit is within a tie of the best."""
        while (pair := self._likeliest()) is not None and not self._known(*pair):
            self._count(*pair)
            self._look_through(pair[0])
        if pair is None:
            return None
        x, y = pair
        best, size = self._benefit(x, y)
        if best <= self.tie + SLACK * size:
            # rounding decides whether the best pair saves anything
            return self._certain_gain()
        return self._smallest_tie(x, y, best, size)

    def _known(self, x: int, y: int) -> bool:
        return bool(self.singles[x] and self.singles[y]) or y in self.unions.get(x, ())

    def _benefit(self, x: int, y: int) -> tuple[float, float]:
        benefit, size = self.trees.benefits(x, np.array([y]), np.array([self.bounds[x, y]]))
        return float(benefit[0]), float(size[0])

    def _smallest_tie(self, x: int, y: int, best: float, size: float) -> tuple[int, int]:
        """The smallest of the pairs whose benefit equals the best one."""
        near: list[tuple[int, int]] = []
        doubt = 2 * SLACK * size
        floor = best - self.tie - doubt
        # where rounding could hide a better pair, later rows are in question, too
        sharp = doubt < self.tie / 4
        rows = self.alive[: np.searchsorted(self.alive, x, side="right")] if sharp else self.alive
        for row in rows[self.best[rows] >= floor]:
            later = self.alive[np.searchsorted(self.alive, row, side="right") :]
            likely = self._at_least(row, later, floor)
            if len(likely) == 0:
                self._look_through(row)
            for other in likely:
                pair = int(row), int(other)
                if sharp and pair == (x, y):
                    return self._settled([*near, pair])
                if not self._known(*pair):
                    self._count(*pair)
                value, _ = self._benefit(*pair)
                if value >= floor:
                    near.append(pair)
                    if len(near) == EXACT_TIES or (sharp and value >= best - self.tie + doubt):
                        return self._settled(near)
        return self._settled(near if (x, y) in near else [*near, (x, y)])

    def _settled(self, near: list[tuple[int, int]]) -> tuple[int, int]:
        """The smallest best pair among those that floats cannot distinguish: by exact benefits if they exist."""
        if len(near) == 1:
            return near[0]
        exact = {}
        for pair in near:
            benefit = self._exact_benefit(*pair)
            if benefit is None:
                return min(near)
            exact[pair] = benefit
        best = max(exact.values())
        return min(pair for pair in near if exact[pair] >= best - self.problem.fixed * TIE)

    def _certain_gain(self) -> tuple[int, int] | None:
        """A pair that certainly saves more than a tie, among those whose benefit is about zero in floats."""
        rows = [int(x) for x in self.alive[self.best[self.alive] > self.tie]]
        for x in rows[:EXACT_TIES]:
            later = self.alive[np.searchsorted(self.alive, x, side="right") :]
            for y in later[self._row(x, later) > self.tie][:EXACT_TIES]:
                benefit = self._exact_benefit(x, int(y))
                if benefit is not None and benefit > self.problem.fixed * TIE:
                    self._count(x, int(y))
                    return x, int(y)
        return None

    def _exact_benefit(self, x: int, y: int) -> Fraction | None:
        members = self.trees.members
        if self.trees.is_estimating:
            return None
        try:
            costs = [
                self.problem.tree_cost(tree, self.problem.edge_rate(tree))
                for tree in (members[x], members[y], members[x] + members[y])
            ]
        except CountRefused:
            return None
        return costs[0] + costs[1] - costs[2]

    def _count(self, x: int, y: int) -> None:
        """Replace the bound of a union's edge rate by what the counter finds."""
        union = self.trees.union(x, y)
        rates = self.trees.rates
        self.bounds[x, y] = self.bounds[y, x] = max(union[1] * self.trees.per_second, rates[x], rates[y])
        self.unions.setdefault(x, {})[y] = self.unions.setdefault(y, {})[x] = union

    def _merge(self, x: int, y: int) -> None:
        """Put tree y into tree x and bound the edge rates of x's unions with the other trees."""
        if y not in self.unions.get(x, ()):
            self._count(x, y)
        counted = self.unions[x][y]
        # what holds for the unions with others has to come from below
        union = counted[0] * self.trees.per_second
        self.alive = self.alive[self.alive != y]
        other_trees = self.alive[self.alive != x]
        self._bound_unions(x, y, other_trees, union)
        self.trees.merge(x, y, counted)
        self.singles[x] = False
        for merged in (x, y):
            for other in self.unions.pop(merged, ()):
                self.unions.get(other, {}).pop(merged, None)

        # rows before x see one changed column; a row whose best pair is gone keeps its value as a bound
        before = other_trees[: np.searchsorted(other_trees, x)]
        if len(before):
            self._offer(x, before)
        self._look_through(x)
        if len(self.alive) < len(self.best) // 2:
            self._compact()

    def _compact(self) -> None:
        """Drop the rows of trees that are gone: the remaining rows are searched faster."""
        living = self.alive
        new = {int(old): number for number, old in enumerate(living)}
        self.bounds = self.bounds[np.ix_(living, living)]
        self.best, self.singles = self.best[living], self.singles[living]
        self.partner = np.array([new.get(int(old), -1) for old in self.partner[living]], dtype=np.intp)
        self.unions = {new[x]: {new[y]: rate for y, rate in row.items()} for x, row in self.unions.items()}
        self.trees.keep(living)
        self.alive = np.arange(len(living))


class _CompiledWeaver(Weaver):
    """The same run, pair by pair in compiled loops, where what a merge saves is the same for every pair."""

    def __init__(self, problem: SearchProblem, partition: Partition, counter: EdgeCounter) -> None:
        # few trees do not pay for loading them
        from optimizer.search import pair_kernels

        self.kernels = pair_kernels
        super().__init__(problem, partition, counter)

    @property
    def _costs(self) -> tuple[Any, ...]:
        trees = self.trees
        return self.bounds, trees.rates, trees.charges, self.kernels.PairCosts(*trees.common, trees.fixed)

    def _pair_rates(self) -> Floats:
        # unions of trees of one slide each have a closed form
        self.singles = np.array([edges[0][0] == edges[-1][0] for edges in self.trees.edges])
        return compiled_pair_rates(self.trees)

    def _look_through_all(self) -> None:
        self.kernels.best_partners(*self._costs, self.best, self.partner)

    def _partner_of(self, x: int, later: NDArray[np.intp]) -> tuple[float, int]:
        best, partner = self.kernels.best_partner(x, later, *self._costs)
        return best, partner

    def _likeliest(self) -> tuple[int, int] | None:
        x, y = self.kernels.top(self.alive, self.tie, *self._costs, self.best, self.partner)
        return None if x < 0 else (x, y)

    def _at_least(self, x: int, later: NDArray[np.intp], floor: float) -> NDArray[np.intp]:
        return np.asarray(self.kernels.at_least(x, later, floor, *self._costs))

    def _bound_unions(self, x: int, y: int, others: NDArray[np.intp], union: float) -> None:
        self.kernels.bound_unions(self.bounds, x, y, others, self.trees.rates, union)

    def _offer(self, x: int, before: NDArray[np.intp]) -> None:
        self.kernels.offer(x, before, *self._costs, self.best, self.partner)


def _woven_by_slide(problem: SearchProblem, partition: Partition) -> Partition:
    """Trees of one item each that have a progression in common, put into the cheapest trees of such items alone."""
    groups: dict[Progression, list[int]] = {}
    trees: Partition = []
    for tree in partition:
        if len(tree) > 1 or len(problem.edges[tree[0]]) != 2:
            trees.append(tree)
        else:
            groups.setdefault(problem.edges[tree[0]][0], []).append(tree[0])
    if not groups or not is_alike(problem):
        return partition
    from optimizer.search.pair_kernels import cheapest_cuts

    families = problem.families[0]
    saved, base = float(problem.fixed_of(families)), float(problem.base_of(families))
    for (slide, _), items in groups.items():
        items.sort(key=lambda item: -problem.floats[item])
        cuts = cheapest_cuts(problem.floats[items], SECOND / slide, saved, base)
        end = len(items)
        while end:
            trees.append(sorted(items[cuts[end] : end]))
            end = int(cuts[end])
    return sorted(trees)


def is_alike(problem: SearchProblem) -> bool:
    """Do all trees hold the same of the families that cost something? Then a merge of any two saves the same."""
    paying = sum(1 << number for number, family in enumerate(problem.family) if family.fixed or family.base)
    return len({bits & paying for bits in problem.families}) == 1


def _woven(problem: SearchProblem, trees: Partition, counter: EdgeCounter) -> Partition:
    compiled = len(trees) >= COMPILED_FROM and is_alike(problem)
    return (_CompiledWeaver if compiled else Weaver)(problem, trees, counter).run()


def shifts_of(edges: Sequence[Edges]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The shifts of some edge sets, and which of them there are: both of shape (most progressions of a set, sets)."""
    most = max((len(progressions) for progressions in edges), default=0)
    shifts = [[shift for _, shift in progressions] + [0] * (most - len(progressions)) for progressions in edges]
    valid = np.arange(most)[:, None] < np.array([len(progressions) for progressions in edges])
    return np.ascontiguousarray(np.array(shifts, dtype=np.int64).T), valid


def pair_rates(trees: Trees) -> Floats:
    """Lower bounds of the edge rate per second of every union of two trees. Shape (K, K), symmetric.

    Exact to floats for two trees of one item each. The progressions of one edge set are disjoint, so the common
    edges of two sets are the sum over pairs of progressions, each 1/lcm if compatible and 0 if not (F1 Eq. 4).
    """
    count = len(trees.edges)
    single = np.array([len(tree) == 1 for tree in trees.members])
    slide = np.array([edges[0][0] for edges in trees.edges], dtype=np.int64)
    shifts, valid = shifts_of([edges if alone else edges[:1] for edges, alone in zip(trees.edges, single, strict=True)])
    rates = np.empty((count, count))
    for x in range(count):
        if not single[x]:
            rates[x] = np.maximum(trees.rates[x], trees.rates)
            continue
        divisor = np.gcd(slide[x], slide)
        common = np.zeros(count)
        for own in shifts[valid[:, x], x].tolist():
            for other_shifts, has in zip(shifts, valid, strict=True):
                common += has & ((own - other_shifts) % divisor == 0)
        common *= divisor / (float(slide[x]) * slide) * trees.per_second
        common[~single] = np.minimum(trees.rates[x], trees.rates)[~single]
        rates[x] = trees.rates[x] + trees.rates - common
    return np.maximum(rates, rates.T) if not single.all() else rates


def compiled_pair_rates(trees: Trees) -> Floats:
    """:func:`pair_rates` of many trees; exact to floats for two trees of one slide each."""
    from optimizer.search.pair_kernels import fill_pair_rates

    slides = np.array([edges[0][0] if edges[0][0] == edges[-1][0] else 0 for edges in trees.edges])
    shifts = [[shift for _, shift in edges] if slide else [] for edges, slide in zip(trees.edges, slides, strict=True)]
    first = np.cumsum([0, *map(len, shifts)])
    flat = np.array([shift for of_tree in shifts for shift in of_tree], dtype=np.int64)
    rates = np.empty((len(slides), len(slides)))
    distinct, kinds = np.unique(slides, return_inverse=True)
    fill_pair_rates(distinct, kinds, first, flat, trees.rates, trees.per_second, TABLED * len(slides), rates)
    return rates
