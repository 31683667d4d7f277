"""Incremental Weave Share: queries join and leave a plan without a new plan from scratch.

A refresh does not use it: it weaves new queries into the plan before (:func:`optimizer.search.incremental.evolve`).

A new query becomes a tree. It is merged with the tree that it weaves best with, if that saves; the merged tree may
merge further. A query that leaves is removed from its tree, which may then merge with another. So one change touches
few trees. In a plan of ten thousand queries an addition takes a millisecond, and a deletion as long as counting its
tree's edges again. But the plan drifts away from the plan of Weave Share from scratch. If it has drifted too far, it is
reconstructed:

``replan`` (default)
    Compare with the cost of a plan from scratch, computed aside after the change is already in force. The
    deviation tolerance really holds after every :meth:`IncrementalPlan.check`.
``extrapolated``
    As published: compare with the plan-cost curve (cost of the plans from scratch so far against their number of
    queries), extrapolated with its last slope. The check costs nothing, but the curve is concave, so the line runs
    above it and triggers late: deviations far above the tolerance occur.

References
----------
Guirguis et al., Weave Share, CIKM 2011: section 5 (Incremental Weave Share, plan-cost curve, deviation tolerance),
Figure 11. Deviation: the bounds that make a change cheap, and the trigger ``replan``, are ours.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from optimizer.search.cost import PAPER, CostModel, Partition, SearchProblem
from optimizer.search.weave_share import SLACK, weave_share
from optimizer.windows.alignment import Progression, absorb
from optimizer.windows.edge_counting import EdgeCounter
from optimizer.windows.edge_sets import edge_set, irregular_edges
from optimizer.workload.values import SECOND, Window

Edges = tuple[Progression, ...]
Floats = NDArray[np.float64]

TRIGGERS = ("replan", "extrapolated")


@dataclass
class _Tree:
    """Queries of one tree by name, and how many of them have each edge set."""

    queries: dict[Hashable, tuple[Edges, float]]
    count: dict[Edges, int]


class IncrementalPlan:
    """A Weave Share plan under additions and deletions, in the units of one cost model.

    Parameters
    ----------
    rate
        Tuples per second.
    model
        A linear cost model without costs per family (the paper's by default).
    tolerance
        Deviation tolerance: how far the plan's cost may exceed the reference, e.g. 0.2. Infinity: never
        reconstruct.
    trigger
        One of :data:`TRIGGERS`.

    Attributes
    ----------
    comparisons
        Pairs of trees whose merge was considered so far (the overhead of the paper's Figure 11).
    reconstructions
        How often the plan was replaced by one from scratch.
    curve
        (queries, cost) of every plan from scratch so far.
    """

    def __init__(
        self,
        rate: Fraction | float | int,
        model: CostModel = PAPER,
        tolerance: float = 0.2,
        trigger: str = "replan",
    ) -> None:
        if trigger not in TRIGGERS:
            raise ValueError(f"unknown trigger {trigger!r}: one of {', '.join(TRIGGERS)}")
        self.rate, self.model, self.tolerance, self.trigger = Fraction(rate), model, tolerance, trigger
        self.comparisons = self.reconstructions = 0
        self.curve: list[tuple[int, float]] = []
        self._fixed = float(model.fixed(self.rate) + model.family_fixed(self.rate))
        self._base = float(model.base(""))
        self._per_query, self._per_overlap = float(model.per_query("")), float(model.per_overlap(""))
        self._counter = EdgeCounter()
        self._windows: dict[Hashable, Window] = {}
        self._home: dict[Hashable, int] = {}
        self._clear(16)

    def _clear(self, capacity: int) -> None:
        self._trees: dict[int, _Tree] = {}
        self._edges: list[Edges] = [()] * capacity
        self._densities: list[tuple[float, float]] = [(0.0, 0.0)] * capacity
        self._rates: Floats = np.zeros(capacity)
        self._charges: Floats = np.zeros(capacity)
        self._live = np.zeros(capacity, dtype=np.bool_)
        # lower bounds of the edge rates of unions
        self._unions: Floats = np.zeros((capacity, capacity))

    # ---------------------------------------------------------------------------------------------- reading
    def __len__(self) -> int:
        return len(self._windows)

    @property
    def cost(self) -> float:
        """Cost per second, in the model's unit (without what no plan changes)."""
        live = self._live
        return float(np.sum(self._fixed + self._rates[live] * self._charges[live]))

    @property
    def trees(self) -> list[list[Hashable]]:
        """Names of the queries of each tree, in order of arrival."""
        return [list(tree.queries) for tree in self._trees.values()]

    # --------------------------------------------------------------------------------------------- changing
    def add(self, name: Hashable, window: Window) -> None:
        """Weave one query into the plan. Raises ValueError if the name is taken."""
        if name in self._windows:
            raise ValueError(f"query {name!r} is already in the plan")
        self._windows[name] = window
        edges = edge_set(window)
        weight = self._weight(window)
        tree = self._new_tree({name: (edges, weight)}, {edges: 1}, edges, (len(edges) / edges[0][0],) * 2, weight)
        self._bound(tree)
        self._settle(tree)

    def add_all(self, windows: Mapping[Hashable, Window]) -> None:
        """Take many queries at once: the plan of all is made from scratch. Raises ValueError if a name is taken."""
        if duplicates := windows.keys() & self._windows.keys():
            raise ValueError(f"queries that are already in the plan: {sorted(map(str, duplicates))}")
        self._windows |= windows
        self.reconstruct()

    def remove(self, name: Hashable) -> None:
        """Take one query out of the plan. Raises KeyError if there is none of that name."""
        number = self._home.pop(name)
        del self._windows[name]
        tree = self._trees[number]
        edges, _ = tree.queries.pop(name)
        tree.count[edges] -= 1
        # added anew: taking a large weight off would leave its rounding error
        self._charges[number] = self._base + math.fsum(weight for _, weight in tree.queries.values())
        if not tree.count[edges]:
            del tree.count[edges]
            if not tree.count:
                del self._trees[number]
                self._live[number] = False
                return
            remaining = absorb(edge for edge_set in tree.count for edge in edge_set)
            before = after = self._densities[number]
            if remaining != self._edges[number]:
                after = self._counter.density(remaining)
            self._edges[number], self._densities[number], self._rates[number] = remaining, after, after[1] * SECOND
            # a union loses no more edges than the tree itself
            lost = max(before[1] - after[0], 0.0) * SECOND * (1 + 1e-12)
            bounds = np.maximum(np.maximum(self._rates[number], self._rates), self._unions[number] - lost)
            self._unions[number], self._unions[:, number] = bounds, bounds
        self._settle(number)

    def check(self) -> bool:
        """Has the plan deviated by more than the tolerance? Then reconstruct it (True)."""
        if not self._windows or self.tolerance == math.inf:
            return False
        if self.trigger == "extrapolated":
            if self.cost <= (1 + self.tolerance) * self._extrapolated():
                return False
            self._adopt(*self._from_scratch())
            return True
        problem, partition = self._from_scratch()
        cost = float(problem.cost(partition) - sum(problem.constants))
        self.curve.append((len(self), cost))
        if self.cost <= (1 + self.tolerance) * cost * (1 + 1e-12):
            return False
        self._adopt(problem, partition, cost)
        return True

    def reconstruct(self) -> None:
        """Replace the plan by Weave Share's from scratch."""
        if self._windows:
            self._adopt(*self._from_scratch())

    def _extrapolated(self) -> float:
        """The plan-cost curve at the present number of queries."""
        if not self.curve:
            return 0.0
        count, cost = self.curve[-1]
        earlier, before = self.curve[-2] if len(self.curve) > 1 else (0, 0.0)
        slope = (cost - before) / (count - earlier) if count != earlier else cost / count
        return cost + slope * (len(self) - count)

    # ------------------------------------------------------------------------------------------------- trees
    def _weight(self, window: Window) -> float:
        return self._per_query + self._per_overlap * float(window.overlap_factor)

    def _new_tree(
        self,
        queries: dict[Hashable, tuple[Edges, float]],
        count: dict[Edges, int],
        edges: Edges,
        density: tuple[float, float],
        weight: float,
    ) -> int:
        if self._live.all():
            self._grow()
        number = int(np.argmin(self._live))
        self._trees[number] = _Tree(queries, count)
        self._home.update(dict.fromkeys(queries, number))
        self._edges[number], self._densities[number] = edges, density
        self._rates[number], self._charges[number] = density[1] * SECOND, self._base + weight
        self._live[number] = True
        bounds = np.maximum(self._rates[number], self._rates)
        self._unions[number], self._unions[:, number] = bounds, bounds
        return number

    def _bound(self, number: int) -> None:
        """Bound the unions of a single query with all trees: common edges are at most those with each progression."""
        numbers = list(self._trees)
        flat = np.array([edge for tree in numbers for edge in self._edges[tree]], dtype=np.int64)
        sizes = np.array([len(self._edges[tree]) for tree in numbers])
        common = np.zeros(len(flat))
        for slide, shift in self._edges[number]:
            divisor = np.gcd(slide, flat[:, 0])
            meets = (flat[:, 1] - shift) % divisor == 0
            common += np.where(meets, divisor / (float(slide) * flat[:, 0]) * SECOND, 0.0)
        shared = np.add.reduceat(common, np.concatenate([[0], np.cumsum(sizes)[:-1]]))
        own = self._rates[number]
        bounds = self._rates[numbers] + own - np.minimum(shared, own) * (1 + 1e-12)
        self._unions[number, numbers] = np.maximum(self._unions[number, numbers], bounds)
        self._unions[numbers, number] = self._unions[number, numbers]

    def _grow(self) -> None:
        more = len(self._live) // 4 + 1
        self._edges += [()] * more
        self._densities += [(0.0, 0.0)] * more
        self._rates, self._charges = (np.concatenate([a, np.zeros(more)]) for a in (self._rates, self._charges))
        self._live = np.concatenate([self._live, np.zeros(more, dtype=np.bool_)])
        self._unions = np.pad(self._unions, ((0, more), (0, more)))

    def _settle(self, number: int) -> None:
        """Merge one tree with the tree that saves most, as long as that saves anything."""
        while True:
            partners = np.flatnonzero(self._live)
            partners = partners[partners != number]
            self.comparisons += len(partners)
            partner = self._best_partner(number, partners) if len(partners) else None
            if partner is None:
                return
            x, y = min(number, partner), max(number, partner)
            self._merge(x, y)
            number = x

    def _best_partner(self, x: int, others: NDArray[np.intp]) -> int | None:
        counted: set[int] = set()
        while True:
            charge, charges = self._charges[x], self._charges[others]
            unions = self._unions[x, others]
            raised = (unions - self._rates[x]) * charge + (unions - self._rates[others]) * charges
            benefits = self._fixed + unions * self._base - raised
            if len(counted) < len(others):
                size = SLACK * (self._fixed + unions * (charge + charges))
                benefits = benefits + size
            at = int(benefits.argmax())
            y = int(others[at])
            if benefits[at] <= self._fixed * 1e-12:
                return None
            if y in counted:
                return y
            self._count(x, y)
            counted.add(y)

    def _count(self, x: int, y: int) -> tuple[float, float]:
        if len(self._edges[x]) < len(self._edges[y]):
            x, y = y, x
        low, high = self._densities[x]
        rise = self._counter.increment(self._edges[x], (low, high), self._edges[y])
        union = low + rise[0], high + rise[1]
        rate = max(union[1] * SECOND, self._rates[x], self._rates[y])
        self._unions[x, y] = self._unions[y, x] = rate
        return union

    def _merge(self, x: int, y: int) -> None:
        union = self._count(x, y)
        low = union[0] * SECOND
        # increments diminish: see weave_share.py
        diminishing = low - self._rates[x] - self._rates[y] - self._rates + self._unions[x] + self._unions[y]
        diminishing -= 1e-15 * (low + self._unions[x] + self._unions[y])
        tree, absorbed = self._trees[x], self._trees.pop(y)
        tree.queries.update(absorbed.queries)
        for edges, count in absorbed.count.items():
            tree.count[edges] = tree.count.get(edges, 0) + count
        self._home.update(dict.fromkeys(absorbed.queries, x))
        self._edges[x] = absorb(self._edges[x] + self._edges[y])
        self._densities[x], self._rates[x] = union, union[1] * SECOND
        self._charges[x] += self._charges[y] - self._base
        self._live[y] = False
        bounds = np.maximum.reduce([self._unions[x], self._unions[y], diminishing, np.full(len(diminishing), low)])
        self._unions[x], self._unions[:, x] = bounds, bounds

    # ------------------------------------------------------------------------------------------ from scratch
    def _from_scratch(self) -> tuple[SearchProblem, Partition]:
        windows = list(self._windows.values())
        problem = SearchProblem.of_windows(
            np.array([window.average for window in windows], dtype=np.int64),
            np.array([window.slide for window in windows], dtype=np.int64),
            self.rate,
            self.model,
            agos=np.array([window.ago for window in windows], dtype=np.int64),
            edges_of=irregular_edges(windows),
        )
        partition = weave_share(problem)
        # all pairs once, then a row of pairs after every merge (section 8, Cost Lookup)
        sets, trees = len(problem), len(partition)
        self.comparisons += sets * (sets - 1) // 2 + (sets + trees) * (sets - trees) // 2
        return problem, partition

    def _adopt(self, problem: SearchProblem, partition: Partition, cost: float | None = None) -> None:
        names, windows = list(self._windows), list(self._windows.values())
        self._clear(len(partition) * 5 // 4 + 16)
        for tree in partition:
            queries: dict[Hashable, tuple[Edges, float]] = {}
            count: dict[Edges, int] = {}
            for item in tree:
                for member in problem.members[item].tolist():
                    queries[names[member]] = (problem.edges[item], self._weight(windows[member]))
                count[problem.edges[item]] = len(problem.members[item])
            edges = problem.progressions(tree)
            weight = sum(weight for _, weight in queries.values())
            self._new_tree(queries, count, edges, self._counter.density(edges), weight)
        # no merge saves in this plan: so much do the unions have to cost at least (where Weave Share counted them;
        # where it wove blocks or estimated, a merge that would save may be missed until the next plan from scratch)
        live = np.flatnonzero(self._live)
        charges, spent = self._charges[live], self._rates[live] * self._charges[live]
        for at, number in enumerate(live):
            least = (self._fixed * (1 - 1e-12) + (spent[at] + spent)) / (charges[at] + charges - self._base)
            self._unions[number, live] = np.maximum(self._unions[number, live], least * (1 - SLACK))
        self.reconstructions += 1
        if cost is None or self.trigger == "extrapolated":
            self.curve.append((len(self), self.cost))
