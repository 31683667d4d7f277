"""Search problems for tests: windows in seconds under the paper's or any other linear cost."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from hypothesis import strategies as st

from optimizer.cost import SearchProblem
from optimizer.query import SECOND, Window


def problem(queries: Sequence[Sequence[int]], rate: Fraction | str | int, base: Fraction | int = 0) -> SearchProblem:
    """(range, slide) pairs in seconds; ``base`` 0 is the paper's model."""
    windows = tuple(Window(r * SECOND, s * SECOND) for r, s in queries)
    overlaps = tuple(window.overlap_factor for window in windows)
    return SearchProblem(windows, Fraction(rate), Fraction(base), overlaps, (Fraction(0),) * len(windows))


def naive_weave_share(given: SearchProblem) -> list[list[int]]:
    """Figure 2 of the paper word by word: every query a tree, every pair recounted in every round."""
    trees = [[i] for i in range(len(given.windows))]
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
