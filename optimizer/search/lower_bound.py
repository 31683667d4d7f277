"""Lower bound of the cost of every plan, for problems whose optimum is out of reach.

Let F be the cost of a tree per second, B its cost per fragment, w(i) the weight of an item, e(i) its own edge rate,
E(S) the edge rate of a tree of the items S, and X(S) the sum of e(i) over S. The tree costs F + E(S) * (B + sum of
w(i)). Let each of its items bear the part e(i) / X(S) of F + E(S) * B, and its own E(S) * w(i). So a plan costs at
least the sum, over all items, of the least that an item can bear in any tree:

    least over S with i in S of  (F + E(S) * B) * e(i) / X(S) + E(S) * w(i)

The parts are proportional to edge rates, so that windows with few edges, which raise no edge rate, take little of F
off those with many. With c(i, j) the common edges of two items, c(i, i) = e(i), E(S) is bounded by X(S) (de Caen):

    E(S) >= sum over i in S of  e(i)^2 / (sum over j in S of c(i, j))

The inner sum has an upper bound: the edges that i has in common with itself and with the items that have most in
common with it, relative to their own edge rates, until these come to X(S). A term of the outer sum, so bounded, is
the amount that an item adds. E(S) is at least the amount of i plus those of the items that add least, relative to
their own edge rates, until these come to X(S). Both are knapsacks of parts of items. E(S) is also at least that of
i and any other item. X(S) is divided into intervals.

References
----------
de Caen, "A lower bound on the probability of a union", Discrete Mathematics 169, 1997. Guirguis et al., Weave
Share, CIKM 2011: Eq. 3 (cost).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from optimizer.search.cost import SearchProblem
from optimizer.search.weave_share import COMPILED_FROM, Trees, compiled_pair_rates, is_alike, pair_rates
from optimizer.windows.edge_counting import EdgeCounter

Floats = NDArray[np.float64]

LOWER_BOUND_LIMIT = 1_500
"""Most items that a bound is computed for (some 0.5 s): a table of their pairs is sorted."""

STEP = 1.1
"""Factor by which the sum of edge rates grows from one interval to the next."""

ROUNDING = 1e-9
"""Relative amount that is taken off for the rounding of floats; far above it."""


def least_cost(problem: SearchProblem) -> Fraction | None:
    """Cost per second that no plan of the problem is below; None above :data:`LOWER_BOUND_LIMIT` items.

    O(K^2 log K) time and O(K^2) memory for K items.
    """
    if len(problem) > LOWER_BOUND_LIMIT:
        return None
    trees = Trees(problem, [[item] for item in range(len(problem))], EdgeCounter())
    if is_alike(problem):
        families = problem.families[0]
        fixed, base, once = float(problem.fixed_of(families)), float(problem.base_of(families)), 0.0
    else:
        # each family is paid for in one tree at least, at the edges of one of its items
        fixed, base, once = float(problem.fixed), 0.0, 0.0
        for number, family in enumerate(problem.family):
            rates = [trees.rates[item] for item, bits in enumerate(problem.families) if bits >> number & 1]
            once += float(family.fixed) + float(family.base) * min(rates) if rates else 0.0
    unions = (compiled_pair_rates if len(problem) >= COMPILED_FROM else pair_rates)(trees)
    bound = _borne(unions, trees.rates, problem.floats, fixed, base) + once
    return Fraction(bound * (1 - ROUNDING)) + sum(problem.constants)


def _borne(unions: Floats, own: Floats, weights: Floats, fixed: float, base: float) -> float:
    """The sum of the least that items bear. ``unions``: edge rates of all pairs, (K, K)."""
    least = fixed + own * (weights + base)
    if len(own) == 1:
        return float(least[0])
    common = np.clip(own[:, None] + own - unions, 0.0, np.minimum(own[:, None], own))
    np.fill_diagonal(unions, np.inf)
    nearest = unions.min(axis=1)
    sums = [float(own.min())]
    while sums[-1] <= own.sum():
        sums.append(sums[-1] * STEP)
    shared = _shared(common, own, np.array(sums[1:]))
    for low, high, most in zip(sums[:-1], sums[1:], shared, strict=True):
        # trees of two or more items whose own edge rates add up to at least low and at most high
        adds = own**2 / (most * (1 + ROUNDING))
        order = np.argsort(adds / own)
        filled = np.concatenate([[0.0], np.cumsum(own[order])]), np.concatenate([[0.0], np.cumsum(adds[order])])
        rate = np.maximum(nearest, adds + np.interp(np.maximum(low - own, 0.0), *filled))
        part = np.minimum(own / high, 1.0)
        least = np.where(own < high, np.minimum(least, (fixed + rate * base) * part + rate * weights), least)
    return float(least.sum())


def _shared(common: Floats, own: Floats, sums: Floats) -> Floats:
    """At most what each item has in common with the items of a tree, itself among them, whose own edge rates add up to
    each of some sums. Shape (sums, items)."""
    relative = common / own
    np.fill_diagonal(relative, np.inf)
    order = np.argsort(-relative, axis=1)
    common_rates = np.empty((len(sums), len(own)))
    for item, row in enumerate(order):
        common_rates[:, item] = np.interp(sums, np.cumsum(own[row]), np.cumsum(common[item, row]))
    return common_rates
