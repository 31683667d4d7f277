"""The search after the greedy: probes that are exact where they say so, and plans that only get cheaper."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.search import local_search as module
from optimizer.search import move_kernels as kernels
from optimizer.search.baselines import no_share, shared
from optimizer.search.cost import PAPER, Partition, SearchProblem
from optimizer.search.local_search import Probes, _LocalSearch, improve
from optimizer.search.optimum import optimum
from optimizer.search.weave_share import weave_share
from optimizer.workload.values import SECOND
from tests.optimizer.searching import problem
from tests.sizes import examples

RATES = st.sampled_from([Fraction(0), Fraction(1, 50), Fraction(2), Fraction(15), Fraction(1000)])
BUDGET = 0.01


def short_periods(largest: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """(range, slide) whose composite slide is enumerated: slides of a minute's divisors, any fragments."""
    slide = st.sampled_from([1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60])
    window = slide.flatmap(lambda s: st.tuples(st.integers(1, 4 * s), st.just(s)))
    return st.lists(window, min_size=1, max_size=largest)


@st.composite
def costed(draw: st.DrawFn, largest: int = 14) -> SearchProblem:
    """With queries of several families, which may cost something or nothing."""
    queries = draw(short_periods(largest))
    families = draw(st.lists(st.integers(0, 3), min_size=len(queries), max_size=len(queries)))
    base = draw(st.sampled_from([Fraction(0), Fraction(1, 7), Fraction(3), Fraction(40)]))
    return problem(queries, draw(RATES), base, families, draw(st.sampled_from([0, 1, 20])))


def any_plan(draw: st.DrawFn, size: int) -> Partition:
    homes = draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
    return sorted([i for i, home in enumerate(homes) if home == tree] for tree in set(homes))


def probed(probes: Probes, items: list[int]) -> float:
    union = np.bitwise_or.reduce(probes.hits[items], axis=0)
    return float(np.bitwise_count(union).sum()) * probes.per_hit


def started(given: SearchProblem, plan: Partition) -> _LocalSearch:
    state = _LocalSearch(given, plan, 1e9)
    kernels.start(state.items, state.trees)
    return state


def is_partition(found: Partition, size: int) -> bool:
    return sorted(i for tree in found for i in tree) == list(range(size)) and found == sorted(map(sorted, found))


@settings(max_examples=examples(100), deadline=None)
@given(queries=short_periods(8), data=st.data())
def test_probes_of_a_whole_composite_slide_are_exact(queries: list[tuple[int, int]], data: st.DataObject) -> None:
    search_problem = problem(queries, 1)
    probes = Probes(search_problem.edges)
    assert probes.fewest == 0 and not probes.rare.any()
    items = data.draw(st.lists(st.integers(0, len(search_problem) - 1), min_size=1, unique=True))
    assert probed(probes, items) == pytest.approx(float(search_problem.edge_rate(items)), rel=1e-12)


def test_sampled_probes_are_about_right() -> None:
    chosen = random.Random(3)
    search_problem = problem([(chosen.randrange(s, 9 * s), s) for s in chosen.sample(range(50, 500), 80)], 1)
    probes = Probes(search_problem.edges)
    assert probes.fewest > 0 and not probes.rare.any()
    for size in (1, 2, 5, 20):
        items = chosen.sample(range(len(search_problem)), size)
        assert probed(probes, items) == pytest.approx(float(search_problem.edge_rate(items)), rel=0.1)


@settings(max_examples=examples(65), deadline=None)
@given(given=costed(), data=st.data())
def test_a_partition_that_is_never_dearer(given: SearchProblem, data: st.DataObject) -> None:
    start = any_plan(data.draw, len(given))
    partition = improve(given, start, BUDGET)
    assert is_partition(partition, len(given))
    assert given.cost(partition) <= given.cost(start)


STEPS = {"descend": kernels.descend, "merge": kernels.merge, "shake": kernels.shake}


@settings(max_examples=examples(80), deadline=None)
@given(given=costed(), data=st.data(), seed=st.integers(1, 1 << 62))
def test_its_books_are_right_after_any_steps(given: SearchProblem, data: st.DataObject, seed: int) -> None:
    """Edge rates, weights and families of every tree, kept up through moves, merges, shakes and going back."""
    state = started(given, any_plan(data.draw, len(given)))
    items, trees = state.items, state.trees
    trees.random[0] = seed
    before, saved_trees = state.partition, trees.tree_of.copy()

    def check() -> None:
        partition = state.partition
        assert is_partition(partition, len(given))
        expected = given.cost(partition) - sum(given.constants)
        assert kernels.total(items, trees) == pytest.approx(float(expected), rel=1e-9, abs=1e-12)
        live = trees.live[: trees.alive[0]].tolist()
        assert set(live) == set(trees.tree_of.tolist()) == set(np.flatnonzero(trees.sizes).tolist())
        # from the one that changed last
        end, order = len(trees.newer) - 1, [int(trees.older[-1])]
        while order[-1] != end:
            order.append(int(trees.older[order[-1]]))
        assert order[:-1] == sorted(live, key=lambda tree: -trees.changed[tree])
        for tree in live:
            listed = [int(trees.first[tree])]
            while listed[-1] >= 0:
                listed.append(int(trees.following[listed[-1]]))
            assert sorted(listed[:-1]) == np.flatnonzero(trees.tree_of == tree).tolist()

    check()
    for step in data.draw(st.lists(st.sampled_from(["descend", "merge", "shake", "shake", "restore"]), max_size=12)):
        if step == "restore":
            kernels.restore(items, trees, saved_trees)
            assert state.partition == before
        else:
            STEPS[step](items, trees)
        check()


@settings(max_examples=examples(50), deadline=None)
@given(given=costed(8), data=st.data())
def test_moves_and_merges_end_where_none_gains(given: SearchProblem, data: st.DataObject) -> None:
    """Literally: no item costs less in any other tree or alone, and no two trees cost less as one."""
    state = started(given, any_plan(data.draw, len(given)))
    kernels.descend(state.items, state.trees)
    partition = state.partition
    least = given.cost(partition) * (1 - Fraction(2, 10**9)) - Fraction(float(state.trees.least[0]))
    for tree in partition:
        for item in tree:
            remaining_trees = [[i for i in other if i != item] for other in partition]
            remaining_trees = [other for other in remaining_trees if other]
            for number in range(len(remaining_trees)):
                moved = [sorted([*other, item]) if n == number else other for n, other in enumerate(remaining_trees)]
                assert given.cost(moved) >= least
            assert given.cost([*remaining_trees, [item]]) >= least
    kernels.merge(state.items, state.trees)
    partition = state.partition
    least = given.cost(partition) * (1 - Fraction(2, 10**9)) - Fraction(float(state.trees.least[0]))
    for x in range(len(partition)):
        for y in range(x):
            other_trees = [tree for n, tree in enumerate(partition) if n not in (x, y)]
            assert given.cost([*other_trees, partition[x] + partition[y]]) >= least


def test_few_items_end_in_the_optimum_nearly_always() -> None:
    """By the search alone, from either end: what is left to miss is a plan that no shake reaches."""
    chosen, optimal = random.Random(2), 0
    for number in range(40):
        slides = [chosen.choice([10, 15, 20, 30, 60, 120]) if number % 2 else chosen.randint(5, 90) for _ in range(10)]
        search_problem = problem(
            [(chosen.randrange(s, 9 * s), s) for s in slides], Fraction(chosen.randint(1, 300), 10)
        )
        least = search_problem.cost(optimum(search_problem)) * (1 + Fraction(1, 10**9))
        start = (no_share(search_problem), shared(search_problem))[number // 2 % 2]
        optimal += search_problem.cost(improve(search_problem, start, 0.05)) <= least
    assert optimal >= 38


@settings(max_examples=examples(40), deadline=None)
@given(given=costed(), data=st.data())
def test_what_is_certain_is_never_dearer(given: SearchProblem, data: st.DataObject) -> None:
    """Of any plan that was found, and no dearer than the better of the two."""
    start, candidate = any_plan(data.draw, len(given)), any_plan(data.draw, len(given))
    certain_plan = module._certain(given, start, candidate)
    assert is_partition(certain_plan, len(given))
    assert given.cost(certain_plan) <= min(given.cost(start), given.cost(candidate))


def hard(number: int, seed: int = 5) -> SearchProblem:
    chosen = random.Random(seed)
    windows = [(chosen.randrange(s, 9 * s), s) for s in (chosen.randint(10, 400) for _ in range(number))]
    return problem(windows, 20)


def test_equal_input_gives_equal_plans() -> None:
    search_problem = hard(120)
    start = weave_share(search_problem)
    first = improve(search_problem, start, 0.05)
    assert first == improve(search_problem, start, 0.05) == improve(hard(120), start, 0.05)


def test_it_beats_the_greedy_and_more_budget_is_no_worse() -> None:
    search_problem = problem([(s * (1 + s % 7) + s % 5, s) for s in range(10, 61) if 3600 % s == 0 or s % 6 == 0], 3)
    start = weave_share(search_problem)
    costs = [search_problem.cost(improve(search_problem, start, seconds)) for seconds in (0.02, 0.3)]
    assert search_problem.cost(start) > costs[0] >= costs[1]


def test_no_budget_changes_nothing() -> None:
    search_problem = hard(20)
    start = shared(search_problem)
    assert improve(search_problem, start, 0) is start
    assert improve(problem([(4, 2), (6, 2)], 1), [[0]], 5) == [[0]]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("rate", ["1/100", "1"])
def test_slides_of_a_second_to_a_month(rate: str) -> None:
    """Nothing in common, odd microseconds: most items are hardly seen in the sample, and are let be."""
    chosen = random.Random(7)
    slides = np.array([int(10 ** chosen.uniform(6, 12.41)) | 1 for _ in range(400)], dtype=np.int64)
    ranges = np.array([int(s * chosen.uniform(0.5, 10)) for s in slides], dtype=np.int64)
    search_problem = SearchProblem.of_windows(ranges, slides, Fraction(rate), PAPER)
    probes = Probes(search_problem.edges)
    assert probes.rare.any() and not probes.rare.all()
    assert probes.hits.nbytes < module.MEMORY
    for start in (no_share(search_problem), weave_share(search_problem)):
        partition = improve(search_problem, start, 0.2)
        assert is_partition(partition, len(search_problem))
        assert search_problem.cost(partition) <= search_problem.cost(start)


def test_one_dense_query_beside_rare_ones() -> None:
    slides = np.array([1, 30 * 86_400 * SECOND, 7 * 86_400 * SECOND + 1], dtype=np.int64)
    search_problem = SearchProblem.of_windows(slides * 2, slides, Fraction(5), PAPER)
    assert Probes(search_problem.edges).rare.tolist() == [False, True, True]
    assert is_partition(improve(search_problem, no_share(search_problem), 0.02), 3)


@pytest.mark.timeout(60)
def test_as_many_families_as_queries() -> None:
    """Families that cost nothing take no work, and those that do are looked at only where they are."""
    count = 1_000
    chosen = random.Random(9)
    queries = [
        (s * chosen.randint(1, 9) + chosen.randrange(s), s) for s in (chosen.randint(9, 900) for _ in "x" * count)
    ]
    for base in (0, 2):
        search_problem = problem(queries, 3, base, list(range(count)))
        start = no_share(search_problem)
        partition = improve(search_problem, start, 0.3)
        assert is_partition(partition, len(search_problem)) and search_problem.cost(partition) < search_problem.cost(
            start
        )


def test_work_ends_within_a_pass_over_pairs_of_trees() -> None:
    """Trees that do not move, thousands of pairs: the budget is looked at between rows, not between passes."""
    state = started(hard(300), no_share(hard(300)))
    state.trees.left[0] = 10 * kernels.STEP
    kernels.merge(state.items, state.trees)
    assert state.trees.left[0] > -300 * (state.trees.once.shape[1] + kernels.LOOK)
