"""What Weave Share is compared with: no sharing, one shared tree, and the optimum where it can be had.

References
----------
Guirguis et al., Weave Share, CIKM 2011, sections 4.1 and 6 (No Share, Shared, Exhaustive). Shared is the
plan of shared time slices (Krishnamurthy et al., "On-the-fly sharing for streamed aggregation", SIGMOD
2006).
"""

from __future__ import annotations

import math

from optimizer.cost import Partition, SearchProblem
from optimizer.errors import HeddleError
from optimizer.weave_share import by_edge_set

EXHAUSTIVE_LIMIT = 12
"""Most distinct edge sets for which the optimum is searched: 3^12 ways to split a subset in two."""


def no_share(problem: SearchProblem) -> Partition:
    """Each query in a tree of its own."""
    return [[i] for i in range(len(problem.windows))]


def shared(problem: SearchProblem) -> Partition:
    """All queries in one tree."""
    return [list(range(len(problem.windows)))]


def exhaustive(problem: SearchProblem) -> Partition:
    """The cheapest plan, by dynamic programming over the subsets of distinct edge sets.

    Queries with one edge set stay together, which loses nothing (apart they cost ``fixed`` more and save no
    edge). best(S) = min over the trees T in S that hold S's first edge set of cost(T) + best(S - T). O(3^K)
    time.

    Raises
    ------
    HeddleError
        HDL-351 above :data:`EXHAUSTIVE_LIMIT` distinct edge sets.
    """
    groups = by_edge_set(problem)
    if len(groups) > EXHAUSTIVE_LIMIT:
        raise HeddleError(
            "HDL-351",
            f"the exhaustive search takes at most {EXHAUSTIVE_LIMIT} distinct edge sets, not {len(groups)}",
            "use algorithm weave-share",
        )
    subsets = range(1, 1 << len(groups))
    members = [sorted(q for i, group in enumerate(groups) if subset >> i & 1 for q in group) for subset in subsets]
    exact = [problem.tree_cost(tree) for tree in members]
    # one common denominator turns the inner loop's sums and comparisons into those of integers
    scale = math.lcm(*(cost.denominator for cost in exact))
    cost = [0] + [int(value * scale) for value in exact]
    best, choice = [0], [0]
    for subset in subsets:
        first = subset & -subset
        rest = subset ^ first
        cheapest, chosen, others = cost[subset], subset, rest
        while others:
            # `others` runs over the non-empty subsets left for other trees
            value = cost[subset ^ others] + best[others]
            if value < cheapest:
                cheapest, chosen = value, subset ^ others
            others = (others - 1) & rest
        best.append(cheapest)
        choice.append(chosen)
    partition: Partition = []
    left = len(cost) - 1
    while left:
        partition.append(members[choice[left] - 1])
        left ^= choice[left]
    return sorted(partition)
