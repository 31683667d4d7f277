"""Weave Share: merge the two trees that save most, until no merge saves anything.

The search is the published greedy and ends in the same plan; what differs is which edge rates it counts. The
published Cost Lookup table holds the exact benefit of every pair and recounts a whole row per merge. Here
the table holds an *optimistic* benefit: from a lower bound of the union's edge rate, which only grows and
has diminishing increments (it is a coverage function), so the bounds of a merged tree follow from those of
its parts without counting. Only a pair that reaches the top of the table is counted exactly, and merged if
it stays there.

Queries with the same edge set are one starting tree: merging them saves ``fixed`` and adds no edge, the
most that any merge can save under the paper's cost.

Ties: benefits within 1e-12 of ``fixed`` (the rate lambda) are equal, and of equal merges the one with the
smallest pair of first queries is taken. All decisions compare exact fractions; floats only screen.

References
----------
Guirguis et al., Weave Share, CIKM 2011: Figure 2 (algorithm), Eq. 5 (benefit), section 8 (Cost Lookup).
The paper leaves ties open; the rule above is ours. Edge rates of pairs: F1 (CIKM 2015) Eq. 5.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from optimizer.cost import Partition, SearchProblem, edges_per_second
from optimizer.edges import CountRefused, edge_set
from optimizer.query import SECOND
from optimizer.window import Progression, absorb

Floats = NDArray[np.float64]

TIE = Fraction(1, 10**12)
"""Benefits closer than this, times ``fixed``, are equal."""

SLACK = 1e-12
"""Relative head-room of the float bounds over their rounding errors."""


def weave_share(problem: SearchProblem) -> Partition:
    """The greedy plan of Weave Share.

    A union whose edges the counter refuses (:class:`optimizer.edges.CountRefused`) is never formed.

    Complexity: O(K^2) memory and O(K) per merge for K distinct edge sets, plus one look for the top of
    the table per exact count.
    """
    return _Greedy(problem).run()


def by_edge_set(problem: SearchProblem) -> Partition:
    """Queries grouped by identical edge sets, in order of their first query."""
    groups: dict[tuple[Progression, ...], list[int]] = {}
    for index, window in enumerate(problem.windows):
        groups.setdefault(edge_set(window), []).append(index)
    return list(groups.values())


class _Greedy:
    """Trees are numbered by their first query's group; a merged tree keeps the smaller number."""

    def __init__(self, problem: SearchProblem) -> None:
        self.problem = problem
        self.members = by_edge_set(problem)
        self.edges = [edge_set(problem.windows[group[0]]) for group in self.members]
        self.exact_rates = [edges_per_second(edges) for edges in self.edges]
        self.per_fragment = [problem.base + sum(problem.weights[i] for i in group) for group in self.members]
        self.benefits: dict[tuple[int, int], Fraction] = {}
        self.unions: dict[tuple[int, int], Fraction] = {}

        self.rates: Floats = np.array([float(rate) for rate in self.exact_rates])
        self.charges: Floats = np.array([float(charge) for charge in self.per_fragment])
        self.bounds = _pair_rates(self.edges, self.rates)
        self.refused = np.zeros(self.bounds.shape, dtype=np.bool_)
        self.table: Floats = np.full(self.bounds.shape, -np.inf)
        for x in range(len(self.members) - 1):
            self._refresh(x, np.arange(x + 1, len(self.members)))

    def run(self) -> Partition:
        """Merge until nothing is saved."""
        alive = np.ones(len(self.members), dtype=np.bool_)
        while (pair := self._best()) is not None:
            x, y = pair
            alive[y] = False
            self._merge(x, y, np.flatnonzero(alive))
        return sorted(sorted(self.members[x]) for x in np.flatnonzero(alive))

    def _best(self) -> tuple[int, int] | None:
        """The pair to merge next: everything that could be within a tie of the best is counted first."""
        if len(self.members) < 2:
            return None
        tie = self.problem.fixed * TIE
        while True:
            top = float(self.table.max())
            if top <= 0.0:
                return None
            # head-room for the rounding of exact benefits to the table's floats
            reach = top - float(tie) - SLACK * top
            pairs = [(int(x), int(y)) for x, y in np.argwhere(self.table >= reach)]
            unknown = [pair for pair in pairs if pair not in self.benefits]
            if unknown:
                # counting the most promising one may put all the others out of reach
                self._count(max(unknown, key=lambda pair: float(self.table[pair])))
                continue
            best = max(self.benefits[pair] for pair in pairs)
            return min(pair for pair in pairs if self.benefits[pair] >= best - tie) if best > tie else None

    def _count(self, pair: tuple[int, int]) -> None:
        """Replace an optimistic benefit by the exact one (Eq. 5)."""
        x, y = pair
        try:
            union = edges_per_second(self.edges[x] + self.edges[y])
        except CountRefused:
            self.refused[x, y] = self.refused[y, x] = True
            self.table[x, y] = -np.inf
            return
        self.unions[pair] = union
        self.bounds[x, y] = self.bounds[y, x] = float(union)
        self.benefits[pair] = (
            self.problem.fixed
            + self.exact_rates[x] * self.per_fragment[x]
            + self.exact_rates[y] * self.per_fragment[y]
            - union * (self.per_fragment[x] + self.per_fragment[y] - self.problem.base)
        )
        self.table[x, y] = float(self.benefits[pair])

    def _merge(self, x: int, y: int, alive: NDArray[np.intp]) -> None:
        """Put tree y into tree x and bound the edge rates of x's unions with the other trees."""
        union = float(self.unions[x, y])
        others = alive[alive != x]
        with_x, with_y = self.bounds[x, others], self.bounds[y, others]
        # common(x+y, k) <= common(x, k) + common(y, k), rewritten with the rates of unions
        diminishing = union - self.rates[x] - self.rates[y] - self.rates[others] + with_x + with_y
        bounds = np.maximum.reduce([with_x, with_y, self.rates[others], np.full(len(others), union), diminishing])

        self.members[x] = self.members[x] + self.members[y]
        self.edges[x] = absorb(self.edges[x] + self.edges[y])
        self.exact_rates[x] = self.unions[x, y]
        self.per_fragment[x] += self.per_fragment[y] - self.problem.base
        self.rates[x], self.charges[x] = union, float(self.per_fragment[x])
        self.bounds[x, others] = self.bounds[others, x] = bounds
        self.refused[x, others] |= self.refused[y, others]
        self.refused[others, x] = self.refused[x, others]
        for known in [pair for pair in self.benefits if x in pair or y in pair]:
            del self.benefits[known], self.unions[known]
        self.table[y, :] = self.table[:, y] = -np.inf
        self._refresh(x, others)

    def _refresh(self, x: int, others: NDArray[np.intp]) -> None:
        """Optimistic benefits of merging x with each of the others, from the bounds."""
        apart = self.rates[x] * self.charges[x] + self.rates[others] * self.charges[others]
        # merging counts the base of a fragment once, not twice
        together = self.charges[x] + self.charges[others] - float(self.problem.base)
        joined = self.bounds[x, others] * together
        fixed = float(self.problem.fixed)
        optimistic = fixed + apart - joined + SLACK * (fixed + apart + joined)
        optimistic[self.refused[x, others]] = -np.inf
        self.table[np.minimum(x, others), np.maximum(x, others)] = optimistic


def _pair_rates(edges: list[tuple[Progression, ...]], rates: Floats) -> Floats:
    """Edge rate per second of every union of two edge sets, to float precision. Shape (K, K).

    The progressions of one edge set are disjoint, so the common edges of two sets are the sum over pairs of
    progressions, each 1/lcm if compatible and 0 if not.
    """
    found = rates[:, None] + rates[None, :]
    for a in range(2):
        for b in range(2):
            mine = [i for i, progressions in enumerate(edges) if len(progressions) > a]
            theirs = [i for i, progressions in enumerate(edges) if len(progressions) > b]
            if mine and theirs:
                s, h = np.array([edges[i][a] for i in mine], dtype=np.int64).T
                t, k = np.array([edges[i][b] for i in theirs], dtype=np.int64).T
                divisor = np.gcd(s[:, None], t[None, :])
                common = divisor / (s[:, None].astype(float) * t[None, :])
                common[(h[:, None] - k[None, :]) % divisor != 0] = 0.0
                found[np.ix_(mine, theirs)] -= common * SECOND
    return found
