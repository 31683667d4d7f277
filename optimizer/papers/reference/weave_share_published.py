"""Weave Share as published, to be timed: every pair of trees is counted, with any edge counter.

The Cost Lookup table holds the benefit of each pair of trees; after a merge the merged tree's row is counted again.
What is slow in it is counting edges, and that is what the papers compare. It ends in the plan of
:func:`optimizer.search.weave_share.weave_share` (same ties), which counts only where a count can decide.

References
----------
Guirguis et al., Weave Share, CIKM 2011: Figure 2 (algorithm), Eq. 5 (benefit), section 8 (Cost Lookup).
Shein et al., F1, CIKM 2015: Eq. 7 (operations of Bit Set) and section 4 (operations of F1).
Deviation: the search starts from the items of the problem, so queries of one edge set are one tree from the start
(``collapse=False``: each query is a tree, as printed).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from optimizer.search.cost import Partition, SearchProblem
from optimizer.search.weave_share import TIE
from optimizer.windows.alignment import Progression, absorb
from optimizer.windows.edge_counting import COUNTERS, edge_rate
from optimizer.windows.edge_sets import CountRefused
from optimizer.workload.values import SECOND

Count = Callable[[tuple[Progression, ...]], Fraction]
"""Absorbed progressions to edges per tick."""


def counter_of(name: str) -> Count:
    """An edge counter by name, without the cache that repeated measurements would hit."""
    return edge_rate if name == "auto" else COUNTERS[name]


@dataclass(frozen=True)
class Search:
    """Outcome of a search.

    ``partition`` is None if it did not end, and ``died`` is the reason: "time", "memory" (Bit Set: a period beyond
    its limit) or "groups" (F1: too many). ``seconds`` are process time, ``counts`` the number of edge counts.
    """

    partition: Partition | None
    counts: int
    seconds: float
    died: str = ""


def published(problem: SearchProblem, count: Count, limit: float = math.inf) -> Search:
    """Run the published greedy with an edge counter for at most about ``limit`` seconds of process time.

    Only for the papers' cost (no families). K items: O(K^2) counts for the first table and O(K) per merge.
    """
    start = time.process_time()
    deadline = start + limit
    counts = 0
    unit = math.gcd(*(number for edges in problem.edges for edge in edges for number in edge))
    per_second = Fraction(SECOND, unit)
    members = [[item] for item in range(len(problem))]
    trees = [tuple((slide // unit, shift // unit) for slide, shift in edges) for edges in problem.edges]
    rates = [sum((Fraction(1, slide) for slide, _ in edges), Fraction(0)) * per_second for edges in trees]
    charges = list(problem.weights)
    # floats only sort out which benefits are compared exactly
    rate, charge, fixed, scale = [*map(float, rates)], [*map(float, charges)], float(problem.fixed), float(per_second)
    largest = fixed + 2 * sum(a * b for a, b in zip(rate, charge, strict=True))
    near = float(problem.fixed * TIE) + 1e-14 * largest

    table = np.full((len(trees), len(trees)), -np.inf)
    alive = list(range(len(trees)))

    def benefit(x: int, y: int) -> Fraction:
        union = count(absorb(trees[x] + trees[y])) * per_second
        return problem.fixed + rates[x] * charges[x] + rates[y] * charges[y] - union * (charges[x] + charges[y])

    def fill(x: int, y: int) -> None:
        nonlocal counts
        if time.process_time() > deadline:
            raise TimeoutError
        counts += 1
        union = float(count(absorb(trees[x] + trees[y]))) * scale
        table[x, y] = fixed + rate[x] * charge[x] + rate[y] * charge[y] - union * (charge[x] + charge[y])

    try:
        for x in alive:
            for y in range(x + 1, len(trees)):
                fill(x, y)
        while len(alive) > 1:
            close = [(int(x), int(y)) for x, y in np.argwhere(table >= max(table.max() - near, -near))]
            exact = {pair: benefit(*pair) for pair in close}
            best = max(exact.values(), default=Fraction(0))
            if best <= problem.fixed * TIE:
                break
            x, y = min(pair for pair, value in exact.items() if value >= best - problem.fixed * TIE)
            rates[x] = (problem.fixed + rates[x] * charges[x] + rates[y] * charges[y] - exact[x, y]) / (
                charges[x] + charges[y]
            )
            charges[x] += charges[y]
            members[x] += members[y]
            trees[x] = absorb(trees[x] + trees[y])
            rate[x], charge[x] = float(rates[x]), float(charges[x])
            table[y, :] = table[:, y] = -np.inf
            alive.remove(y)
            for other in alive:
                if other != x:
                    fill(min(x, other), max(x, other))
    except TimeoutError:
        return Search(None, counts, time.process_time() - start, "time")
    except CountRefused as refusal:
        died = "memory" if "bit-set" in str(refusal) else "groups"
        return Search(None, counts, time.process_time() - start, died)
    partition = sorted(sorted(members[x]) for x in alive)
    return Search(partition, counts, time.process_time() - start)


@dataclass
class Tally:
    """An edge counter that adds up what Bit Set and F1 would have done for the same counts.

    ``bit_set``: bits marked (F1 Eq. 7); ``f1``: operations (F1 section 4, n*2^(n-1)); ``longest``: the longest period.
    """

    count: Count
    bit_set: int = 0
    f1: int = 0
    longest: int = 0

    def __call__(self, edges: tuple[Progression, ...]) -> Fraction:
        period = math.lcm(*(slide for slide, _ in edges))
        self.bit_set += sum(period // slide for slide, _ in edges)
        self.f1 += len(edges) << (len(edges) - 1)
        self.longest = max(self.longest, period)
        return self.count(edges)
