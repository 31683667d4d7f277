"""Plan searches: every way to partition a workload into execution trees, under one signature.

``best`` is the default: one tree where no other plan can be cheaper, the proven optimum where the workload has at most
18 distinct edge sets, else Weave Share and then local moves for as long as its budget lasts. It is never dearer than
Weave Share, Shared or No Share.

References
----------
Guirguis et al., Weave Share, CIKM 2011: sections 5 and 6 (the alternatives it is compared with).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from optimizer.errors.diagnostics import HeddleError
from optimizer.search.baselines import insert_then_weave, local_search, no_share, random, shared
from optimizer.search.cost import Partition, SearchProblem
from optimizer.search.incremental import evolve, homes
from optimizer.search.local_search import improve
from optimizer.search.lower_bound import least_cost
from optimizer.search.optimum import OPTIMUM_LIMIT, optimum
from optimizer.search.weave_share import weave_share
from optimizer.windows.edge_counting import EdgeCounter

SECONDS = 0.4
"""CPU seconds that ``best`` spends on improving Weave Share's plan of one stream."""


def best(problem: SearchProblem, seconds: float = SECONDS) -> Partition:
    """The cheapest plan that can be had: the optimum of few edge sets, an improved Weave Share of many."""
    return _best(problem, seconds, OPTIMUM_LIMIT).partition


ALGORITHMS: dict[str, Callable[[SearchProblem], Partition]] = {
    "best": best,
    "optimal": optimum,
    "weave-share": weave_share,
    "no-share": no_share,
    "shared": shared,
    "random": random,
    "insert-then-weave": insert_then_weave,
    "local-search": local_search,
}
"""Plan searches by name: each takes the queries of one stream and returns a partition of their items."""

PER_QUERY = frozenset({"no-share", "random", "insert-then-weave", "local-search"})
"""Searches that the papers define on single queries: their items are not collapsed by edge set."""


@dataclass(frozen=True)
class SearchResult:
    """Plan of a search, and its costs.

    ``bounds``: lower and upper bound of the edges per second of each tree. ``costs``: per tree, at the upper bound.
    ``optimal``: no partition is cheaper (proven). ``weave_share``: cost of the published greedy's plan, None if it
    was not computed; ``shared``: cost of one tree of everything; ``inexact``: which of these two are upper bounds.
    ``scratch``: cost of the plan from scratch if :func:`keep` kept an earlier one. ``lower_bound``: no plan costs
    less (None: not known, because there are too many items).
    """

    problem: SearchProblem
    partition: Partition
    bounds: list[tuple[Fraction, Fraction]]
    costs: list[Fraction]
    optimal: bool
    weave_share: Fraction | None
    shared: Fraction
    inexact: tuple[str, ...]
    distinct_edge_sets: int
    scratch: Fraction | None = None
    lower_bound: Fraction | None = None

    @property
    def cost(self) -> Fraction:
        """Cost per second of the plan."""
        return sum(self.costs, Fraction(0))


@dataclass(frozen=True)
class _Search:
    partition: Partition
    optimal: bool = False
    greedy: Partition = field(default_factory=list)

    def weave_share(self, problem: SearchProblem) -> Fraction | None:
        return problem.cost(self.greedy) if self.greedy else None


def _best(problem: SearchProblem, seconds: float, most: int) -> _Search:
    if problem.is_cheapest_in_one_tree:
        return _Search(everything := shared(problem), True, everything)
    counter = EdgeCounter(counter=problem.counter)
    greedy = weave_share(problem, counter)
    if len(problem) <= most:
        try:
            return _Search(optimum(problem), True, greedy)
        except HeddleError as error:
            if error.diagnostic.code not in ("HDL-350", "HDL-351"):
                raise
    candidates = [
        (problem.cost(greedy), greedy),
        (problem.cost(everything := shared(problem)), everything),
        (problem.cost(apart := no_share(problem)), apart),
    ]
    cost, start = min(candidates, key=lambda candidate: candidate[0])
    improved = improve(problem, start, seconds)
    return _Search(improved if problem.cost(improved) < cost else start, False, greedy)


def _costed(problem: SearchProblem, partition: Partition) -> tuple[list[tuple[Fraction, Fraction]], list[Fraction]]:
    bounds = [problem.edge_bounds(tree) for tree in partition]
    costs = [problem.tree_cost(tree, high) for tree, (_, high) in zip(partition, bounds, strict=True)]
    return bounds, costs


def keep(
    results: Sequence[SearchResult], trees_of: Sequence[Mapping[int, Any]], tolerance: Fraction
) -> list[SearchResult]:
    """Prefer the plans that earlier ones become for the changed workload (:mod:`optimizer.search.incremental`).

    They are kept if they cost at most ``1 + tolerance`` times the plans from scratch: fewer queries change trees.
    ``results``: of the parts of one plan, which are kept together or not at all. ``trees_of``: for each part, the
    earlier tree of each query that had one.
    """
    evolved = []
    for result, tree_of in zip(results, trees_of, strict=True):
        if not tree_of:
            evolved.append(replace(result, scratch=result.cost))
            continue
        partition = evolve(result.problem, homes(result.problem, tree_of))
        bounds, costs = _costed(result.problem, partition)
        optimal = result.optimal and sum(costs) == result.cost
        evolved.append(
            replace(result, partition=partition, bounds=bounds, costs=costs, optimal=optimal, scratch=result.cost)
        )
    keeps_earlier = sum(result.cost for result in evolved) <= (1 + tolerance) * sum(result.cost for result in results)
    return evolved if keeps_earlier else list(results)


def find(
    problem_of: Callable[[bool], SearchProblem], algorithm: str, seconds: float = SECONDS, most: int = OPTIMUM_LIMIT
) -> SearchResult:
    """Run one search and cost its plan.

    Parameters
    ----------
    problem_of
        Makes the search problem, given whether queries are collapsed by edge set.
    algorithm
        A name of :data:`ALGORITHMS`.
    seconds
        CPU seconds that ``best`` may spend on improving.
    most
        Largest number of distinct edge sets for which ``best`` looks for the optimum.

    Raises
    ------
    HeddleError
        HDL-350 if the requested counter reaches its limit, HDL-351 for an optimum of too many edge sets.
    ValueError
        Unknown algorithm or counter.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {algorithm!r}: one of {', '.join(ALGORITHMS)}")
    problem = problem_of(algorithm not in PER_QUERY)
    EdgeCounter(counter=problem.counter)  # an unknown counter is told whatever the search
    if algorithm == "best":
        search = _best(problem, seconds, most)
    elif algorithm == "weave-share":
        partition = weave_share(problem)
        search = _Search(partition, False, partition)
    else:
        search = _Search(ALGORITHMS[algorithm](problem), algorithm == "optimal")
    if sorted(item for tree in search.partition for item in tree) != list(range(len(problem))):
        raise AssertionError(f"{algorithm} lost or doubled a query")
    bounds, costs = _costed(problem, search.partition)
    everything = list(range(len(problem)))
    low, high = problem.edge_bounds(everything)
    inexact = ["shared"] if low != high else []
    if any(len(set(problem.edge_bounds(tree))) > 1 for tree in search.greedy):
        inexact.append("weave_share")
    return SearchResult(
        problem,
        search.partition,
        bounds,
        costs,
        search.optimal,
        search.weave_share(problem),
        problem.tree_cost(everything, high),
        tuple(inexact),
        len(set(problem.edges)),
        None,
        _least(problem, search, bounds, costs),
    )


def _least(
    problem: SearchProblem, search: _Search, bounds: Sequence[tuple[Fraction, Fraction]], costs: Sequence[Fraction]
) -> Fraction | None:
    """Least cost of every plan; if the plan is proven optimal, the lower bound of its own cost."""
    if search.optimal:
        lowest = [problem.tree_cost(tree, low) for tree, (low, _) in zip(search.partition, bounds, strict=True)]
        return sum(lowest, Fraction(0))
    bound = least_cost(problem)
    return None if bound is None else min(bound, sum(costs, Fraction(0)))
