"""The proven cheapest plan of a few items, by dynamic programming over their subsets.

best(S) = min over the trees T in S that hold S's first item of cost(T) + best(S - T): the published search space
(all set partitions) without its repetitions. Two things make it quick enough to be used in earnest: many queries
collapse to few items, and the edge rates of all 2^K unions come out of one pass.

*All unions at once.* For small periods, give each tick the set of items that have an edge on it; the ticks of each
such set are counted, and a zeta transform turns "exactly these items" into "none of these items". Longer periods
are split first, as :mod:`optimizer.windows.edge_counting` splits a single union: items whose slides share no factor are
independent, and where a factor q connects them, time modulo a power of q falls into nested classes with one
smaller problem each. What is added and multiplied here are not numbers but arrays over subsets, with one axis of
length two for each item that matters, so that NumPy's broadcasting puts the parts together. Only hits are added
up, never subtracted from one: floats keep their digits.

References
----------
Guirguis et al., Weave Share, CIKM 2011: section 6 (Exhaustive Search, up to 15 queries), Eq. 3 (cost).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError
from optimizer.search.cost import Partition, SearchProblem
from optimizer.workload.values import SECOND

OPTIMUM_LIMIT = 18
"""Most items: 3^17 / 2 ways to split a subset in two, 2^18 unions."""

EXACT_LIMIT = 12
"""Largest number of items for which decisions compare integers, in plain Python."""

TIE = 1e-12
"""Above :data:`EXACT_LIMIT` items, costs closer than this, relatively, are equal."""

SUBPROBLEMS = 200_000
"""Most smaller problems that one count of all unions opens; counting is #P-hard, so it has to end somewhere."""

FIRST_MARKED = 1 << 22
"""Longest period, in ticks, that is marked at once."""

MARKED = 1 << 13
"""Longest period, in ticks, of a part that is marked rather than split further."""

Array = NDArray[Any]

Edges = tuple[int, tuple[int, ...]]
"""Slide and shifts of one item, in ticks."""


def optimum(problem: SearchProblem) -> Partition:
    """The cheapest plan of at most :data:`OPTIMUM_LIMIT` items.

    Ties: the remaining items stay in one tree if nothing is strictly cheaper, else the first split wins, beginning
    with only the first item. Up to :data:`EXACT_LIMIT` items costs are compared exactly, above with a relative
    tolerance of :data:`TIE`, so the plan is the cheapest within that tolerance. Unions are counted here, whatever
    the problem's counter is; constants are the same in every plan.

    Complexity: O(3^K) time and O(2^K) memory for K items, about a second for 18.

    Raises
    ------
    HeddleError
        HDL-351 above :data:`OPTIMUM_LIMIT` items, or if the edges of their unions cannot be counted.
    """
    if len(problem) > OPTIMUM_LIMIT:
        raise HeddleError(
            "HDL-351",
            f"the optimum is searched for at most {OPTIMUM_LIMIT} distinct edge sets, not {len(problem)}",
            "use algorithm best, or give more queries the same slide and range",
        )
    few = len(problem) <= EXACT_LIMIT
    choice = _choices(_integer_costs(problem)) if few else _fast_choices(_float_costs(problem))
    trees, remaining = [], len(choice) - 1
    while remaining:
        trees.append([item for item in range(len(problem)) if choice[remaining] >> item & 1])
        remaining ^= choice[remaining]
    return sorted(trees)


def union_rates(problem: SearchProblem) -> NDArray[np.float64]:
    """Edges per second of every set of items; bit i of the index is item i. Shape (2^K,).

    Raises HDL-351 where they cannot be counted.
    """
    hits, _, tick = _unions(problem, exact=False)
    return hits * (SECOND / tick)


def _integer_costs(problem: SearchProblem) -> list[int]:
    """Costs of all subsets as trees, without constants, in some unit."""
    fixed, charges = _fixed(problem), _charges(problem)
    scale = math.lcm(*(value.denominator for value in (problem.fixed, *fixed.values(), *charges.values())))
    hits, period, tick = _unions(problem, exact=True)
    scaled = {mask: int(value * scale) for mask, value in charges.items()}
    per_fragment = _meeting(scaled, len(problem), object)
    per_tree = _meeting({mask: int(value * scale) for mask, value in fixed.items()}, len(problem), object)
    costs = (int(problem.fixed * scale) + per_tree) * (period * tick) + hits.astype(object) * per_fragment * SECOND
    return costs.tolist()


def _float_costs(problem: SearchProblem) -> NDArray[np.float64]:
    per_tree = float(problem.fixed) + _meeting(_fixed(problem), len(problem), np.float64)
    return per_tree + union_rates(problem) * _meeting(_charges(problem), len(problem), np.float64)


def _fixed(problem: SearchProblem) -> dict[int, Fraction]:
    """Cost per second of a tree for each set of items of which it contains some."""
    fixed_costs: dict[int, Fraction] = defaultdict(Fraction)
    for family, mask in enumerate(_holders(problem)):
        fixed_costs[mask] += problem.family[family].fixed
    return fixed_costs


def _charges(problem: SearchProblem) -> dict[int, Fraction]:
    """Cost per fragment of a tree for each set of items of which it contains some."""
    charges: dict[int, Fraction] = defaultdict(Fraction)
    for item, weight in enumerate(problem.weights):
        charges[1 << item] += weight
    for family, mask in enumerate(_holders(problem)):
        charges[mask] += problem.family[family].base
    return charges


def _holders(problem: SearchProblem) -> list[int]:
    """The items of each family, as bits."""
    return [
        sum(1 << item for item, families in enumerate(problem.families) if families >> family & 1)
        for family in range(len(problem.family))
    ]


def _meeting(values: Mapping[int, Any], items: int, dtype: Any) -> Array:
    """For every subset, the sum of the values of the sets that it meets. Shape (2^items,)."""
    subsets = np.arange(1 << items)
    sums = np.zeros(1 << items, dtype=dtype)
    for mask, value in values.items():
        if value:
            sums[subsets & mask != 0] += value if dtype is object else float(value)
    return sums


def _choices(cost: list[int]) -> list[int]:
    """For every subset that can be left over, the tree of its first item in the cheapest plan."""
    best, choice = [0] * len(cost), [0] * len(cost)
    # what is left after the first tree never holds the first item again: only the whole set is odd
    for subset in [*range(2, len(cost), 2), len(cost) - 1]:
        later_items = subset & (subset - 1)
        cheapest, chosen, remaining = cost[subset], subset, later_items
        while remaining:
            value = cost[subset ^ remaining] + best[remaining]
            if value < cheapest:
                cheapest, chosen = value, subset ^ remaining
            remaining = (remaining - 1) & later_items
        best[subset], choice[subset] = cheapest, chosen
    return choice


def _fast_choices(cost: NDArray[np.float64]) -> list[int]:
    return _compiled()(cost, 1.0 - TIE).tolist()


@cache
def _compiled() -> Any:
    # a plan of few items must not pay for the import
    from numba import njit

    return njit(cache=True)(_search)


def _search(cost: NDArray[np.float64], closer: float) -> NDArray[np.int64]:
    """:func:`_choices` in floats, to be compiled."""
    size = len(cost)
    best, choice = np.zeros(size), np.zeros(size, dtype=np.int64)
    for half in range(1, size // 2 + 1):
        subset = 2 * half if 2 * half < size else size - 1
        later_items = subset & (subset - 1)
        cheapest, chosen, remaining = cost[subset], subset, later_items
        limit = cheapest * closer
        while remaining:
            value = cost[subset ^ remaining] + best[remaining]
            if value < limit:
                cheapest, chosen, limit = value, subset ^ remaining, value * closer
            remaining = (remaining - 1) & later_items
        best[subset], choice[subset] = cheapest, chosen
    return choice


def _unions(problem: SearchProblem, exact: bool) -> tuple[Array, int, int]:
    """Ticks with an edge for all sets of items, shape (2^K,); the period in ticks; the tick in microseconds.

    Not ``exact``: shares of the period instead of numbers of ticks.
    """
    tick = math.gcd(*(number for edges in problem.edges for progression in edges for number in progression))
    items = {
        item: (edges[0][0] // tick, tuple(sorted(shift // tick for _, shift in edges)))
        for item, edges in enumerate(problem.edges)
    }
    counting = _Counting(items, exact)
    hits, period = counting.hits(items, FIRST_MARKED)
    return np.broadcast_to(hits, (2,) * len(items)).reshape(-1), period, tick


class _Counting:
    """Hits of all unions of some items: arrays with axis K-1-i for item i, of length 1 where it does not matter.

    Exact: integers, numbers of ticks of a period. Else floats, shares of all ticks.
    """

    def __init__(self, items: Mapping[int, Edges], exact: bool) -> None:
        self.dimensions = len(items)
        self.factors = _coprime_base({slide for slide, _ in items.values()})
        self.opened = 0
        self.dtype: Any = np.float64
        if exact:
            # no number here exceeds the period
            fits = math.lcm(*(slide for slide, _ in items.values())) < 1 << 62
            self.dtype = np.int64 if fits else object
        self.exact = exact
        self.factors_of = cache(self._factors_of)

    def hits(self, items: Mapping[int, Edges], marked: int = MARKED) -> tuple[Array, int]:
        """Hits and period (LCM of slides)."""
        hits, period = self._connected({}, 1, marked)
        for part in self._components(items):
            more, other = self._connected(part, math.lcm(*(slide for slide, _ in part.values())), marked)
            # independent parts: what the first hits, and of what it misses the share that the second hits
            hits = hits * other + more * (period - hits) if self.exact else hits + more * (1.0 - hits)
            period *= other
        return hits, period

    def _connected(self, items: Mapping[int, Edges], period: int, marked: int) -> tuple[Array, int]:
        self.opened += 1
        if self.opened > SUBPROBLEMS:
            raise HeddleError(
                "HDL-351",
                f"counting the edges of all sets of {self.dimensions} edge sets needs more than {SUBPROBLEMS} steps",
                "use algorithm weave-share, or give the queries slides with common factors",
            )
        if len(items) < 2:
            counts = [0, *(len(shifts) * (period // slide) for slide, shifts in items.values())]
            return self._shaped(np.array(counts), items, period), period
        if period <= marked:
            return self._marked(items, period), period
        return self._split(items, period), period

    def _shaped(self, ticks: Array, items: Iterable[int], period: int) -> Array:
        shape = [1] * self.dimensions
        for item in items:
            shape[self.dimensions - 1 - item] = 2
        hits = ticks.reshape(shape)
        return hits.astype(self.dtype) if self.exact else hits / period

    def _marked(self, items: Mapping[int, Edges], period: int) -> Array:
        holders = np.zeros(period, dtype=np.int32)
        for bit, item in enumerate(sorted(items)):
            slide, shifts = items[item]
            for shift in shifts:
                holders[shift::slide] |= 1 << bit
        misses = np.bincount(holders, minlength=1 << len(items))
        for bit in range(len(items)):
            # [not asked for: either; asked for: only the ticks without]
            halves = misses.reshape(-1, 2, 1 << bit)
            without = halves[:, 0].copy()
            halves[:, 0] += halves[:, 1]
            halves[:, 1] = without
        return self._shaped(period - misses, items, period)

    def _split(self, items: Mapping[int, Edges], period: int) -> Array:
        """Sum over the nested residue classes of the factor that divides most slides."""
        frequency = Counter(factor for slide, _ in items.values() for factor, _ in self.factors_of(slide))
        factor = max(frequency, key=lambda f: (frequency[f], -f))
        free: dict[int, Edges] = {}
        members: dict[tuple[int, int], dict[int, Edges]] = {(1, 0): {}}
        for item, (slide, shifts) in items.items():
            power = dict(self.factors_of(slide)).get(factor, 1)
            if power == 1:
                free[item] = (slide, shifts)
                continue
            reduced_slide = slide // power
            for residue in {shift % power for shift in shifts}:
                inside = tuple(sorted({shift % reduced_slide for shift in shifts if shift % power == residue}))
                members.setdefault((power, residue), {})[item] = (reduced_slide, inside)
        top = max(power for power, _ in members)
        # coarse classes first: each takes its residues from the finest class so far that contains it
        own: dict[tuple[int, int], int] = {}
        chain: dict[tuple[int, int], dict[int, Edges]] = {}
        for power, residue in sorted(members):
            own[power, residue] = top // power
            coarser = power
            parent = None
            while coarser > 1 and parent is None:
                coarser //= factor
                parent = (coarser, residue % coarser) if (coarser, residue % coarser) in own else None
            if parent:
                own[parent] -= top // power
            chain[power, residue] = (chain[parent] if parent else free) | members[power, residue]
        total: Any = 0
        for residue_class, residues in own.items():
            if residues and chain[residue_class]:
                hits, inner = self.hits(chain[residue_class])
                total = total + hits * (residues * (period // top // inner) if self.exact else residues / top)
        return total

    def _components(self, items: Mapping[int, Edges]) -> list[dict[int, Edges]]:
        """Split into sets whose slides share no factor; smallest first."""
        groups: list[tuple[set[int], dict[int, Edges]]] = []
        for item, edges in items.items():
            factors = {factor for factor, _ in self.factors_of(edges[0])}
            members = {item: edges}
            apart = []
            for group in groups:
                if group[0] & factors:
                    factors |= group[0]
                    members |= group[1]
                else:
                    apart.append(group)
            groups = [*apart, (factors, members)]
        return sorted((members for _, members in groups), key=len)

    def _factors_of(self, slide: int) -> tuple[tuple[int, int], ...]:
        """(factor, its highest power) of a slide."""
        powers = []
        for factor in self.factors:
            power = 1
            while slide % (power * factor) == 0:
                power *= factor
            if power > 1:
                powers.append((factor, power))
        return tuple(powers)


def _coprime_base(numbers: Iterable[int]) -> list[int]:
    """Pairwise coprime integers > 1 of whose powers each number is a product (factor refinement by gcds)."""
    base: list[int] = []
    pending = sorted(numbers)
    while pending:
        number = pending.pop()
        common = next((known for known in base if math.gcd(number, known) > 1), None)
        if common is None:
            base += [number] if number > 1 else []
        elif number != common:
            base.remove(common)
            divisor = math.gcd(number, common)
            pending += [divisor, common // divisor, number // divisor]
    return sorted(base)
