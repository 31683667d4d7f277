"""Search problems for tests: windows in seconds under the paper's or any other linear cost."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from optimizer.search.cost import PAPER, Coefficients, CostModel, SearchProblem
from optimizer.workload.values import SECOND


def problem(
    queries: Sequence[Sequence[int]],
    rate: Fraction | str | int,
    base: Fraction | int = 0,
    families: Sequence[int] | None = None,
    family_fixed: Fraction | int = 0,
    collapse: bool = True,
) -> SearchProblem:
    """(range, slide) pairs in seconds; the paper's model, with ``base`` per fragment and family and ``family_fixed``
    per second and family (``families``: number of each query's)."""
    model = PAPER
    rate = Fraction(rate)
    if base or family_fixed:
        per_family = Fraction(family_fixed) / rate if rate else Fraction(0)
        none = Fraction(0)
        model = CostModel("test", Coefficients(Fraction(1), per_family, Fraction(base), Fraction(1), none, none))
    return SearchProblem.of_windows(
        np.array([r * SECOND for r, _ in queries], dtype=np.int64),
        np.array([s * SECOND for _, s in queries], dtype=np.int64),
        rate,
        model,
        family_of=None if families is None else np.array(families, dtype=np.int64),
        collapse=collapse,
    )


def naive_weave_share(given: SearchProblem) -> list[list[int]]:
    """Figure 2 of the paper word by word: every item a tree, every pair recounted in every round. Trees of items."""
    trees = [[i] for i in range(len(given))]
    tie = given.fixed / 10**12
    while True:
        benefits = {
            (x, y): given.tree_cost(trees[x]) + given.tree_cost(trees[y]) - given.tree_cost(trees[x] + trees[y])
            for x in range(len(trees))
            for y in range(x + 1, len(trees))
        }
        best = max(benefits.values(), default=Fraction(0))
        if best <= tie:
            return sorted(sorted(tree) for tree in trees)
        x, y = min(pair for pair, benefit in benefits.items() if benefit >= best - tie)
        trees[x] += trees.pop(y)


def window_lists(largest: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """(range, slide): template slides and arbitrary ones, ranges with and without inner edges."""
    slide = st.one_of(st.sampled_from([1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60]), st.integers(1, 40))
    window = slide.flatmap(
        lambda s: st.tuples(st.one_of(st.integers(1, 6).map(lambda m: m * s), st.integers(1, 8 * s)), st.just(s))
    )
    return st.lists(window, min_size=1, max_size=largest)


RATES = st.sampled_from([Fraction(0), Fraction(1, 50), Fraction(1, 3), Fraction(2), Fraction(15), Fraction(1000)])
