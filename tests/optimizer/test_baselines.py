"""The paper's alternatives, and windows computed from windows."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.search.baselines import (
    _inserted,
    factor_windows,
    insert_then_weave,
    local_search,
    no_share,
    random,
    shared,
)
from optimizer.search.cost import Partition, SearchProblem
from optimizer.search.optimum import optimum
from optimizer.search.weave_share import merge_trees, weave_share
from optimizer.workload.values import SECOND
from tests.optimizer.searching import RATES, problem, window_lists
from tests.sizes import examples

CLOSE = Fraction(1, 10**9)


@st.composite
def problems(draw: st.DrawFn, largest: int = 9, collapse: bool = False) -> SearchProblem:
    """Queries of some families, under the paper's cost or one with costs per family."""
    queries = draw(window_lists(largest))
    families = draw(st.lists(st.integers(0, 2), min_size=len(queries), max_size=len(queries)))
    base = draw(st.sampled_from([0, 0, Fraction(1, 7), 3]))
    return problem(queries, draw(RATES), base, families, base, collapse)


def moves(given: SearchProblem, partition: Partition) -> list[Partition]:
    """All plans one move away."""
    neighbours = []
    for a, tree in enumerate(partition):
        for item in tree:
            remaining_tree = [[i for i in tree if i != item]] if len(tree) > 1 else []
            other_trees = partition[:a] + partition[a + 1 :] + remaining_tree
            targets = [*range(len(partition) - 1), *([] if len(tree) == 1 else [None])]
            for target in targets:
                moved = [list(other) for other in other_trees]
                if target is None:
                    moved.append([item])
                else:
                    moved[target].append(item)
                neighbours.append(moved)
    return neighbours


def covers_everything(given: SearchProblem, partition: Partition) -> bool:
    in_order = partition == sorted(sorted(tree) for tree in partition)
    return in_order and sorted(item for tree in partition for item in tree) == list(range(len(given)))


def test_shapes() -> None:
    search_problem = problem([(4, 2), (6, 3), (4, 2)], 1, collapse=False)
    assert no_share(search_problem) == [[0], [1], [2]]
    assert shared(search_problem) == [[0, 1, 2]]
    assert search_problem.cost(no_share(search_problem)) == search_problem.unshared


@settings(max_examples=examples(30), deadline=None)
@given(given=problems())
def test_every_alternative_is_a_plan_and_none_beats_the_optimum(given: SearchProblem) -> None:
    least = given.cost(optimum(given))
    for search in (no_share, shared, random, insert_then_weave, local_search):
        partition = search(given)
        assert covers_everything(given, partition)
        assert partition == search(given)
        assert least <= given.cost(partition)
    assert least <= given.cost(weave_share(given)) <= given.cost(no_share(given))


def test_random_is_one_plan_per_seed_and_reaches_all_sizes() -> None:
    search_problem = problem([(s, s) for s in range(2, 6)], 1)
    plans = [random(search_problem, seed) for seed in range(200)]
    assert plans == [random(search_problem, seed) for seed in range(200)]
    assert all(covers_everything(search_problem, plan) for plan in plans)
    assert {len(plan) for plan in plans} == {1, 2, 3, 4}


@settings(max_examples=examples(80), deadline=None)
@given(given=problems(10))
def test_each_item_is_inserted_where_it_weaves_best(given: SearchProblem) -> None:
    """Replayed in exact fractions; trees that are equally good to nine digits may be taken for each other."""
    inserted = _inserted(given)
    trees: list[list[int]] = []
    for item in range(len(given)):
        final = next(tree for tree in inserted if item in tree)
        raised = [given.tree_cost([*tree, item]) - given.tree_cost(tree) for tree in trees]
        alone = given.tree_cost([item])
        best = min([alone, *raised])
        home = next((number for number, tree in enumerate(trees) if tree[0] in final), None)
        if home is None:
            trees.append([item])
            assert alone <= best + CLOSE * alone
        else:
            trees[home].append(item)
            assert raised[home] <= best + CLOSE * alone
    assert sorted(trees) == inserted
    assert insert_then_weave(given) == merge_trees(given, inserted)


@settings(max_examples=examples(25), deadline=None)
@given(given=problems(9), start=st.sampled_from(["no-share", "random"]))
def test_every_iteration_makes_the_move_that_saves_most(given: SearchProblem, start: str) -> None:
    plan = no_share(given) if start == "no-share" else random(given)
    assert local_search(given, start, 0) == plan
    for iterations in range(1, 30):
        next_plan = local_search(given, start, iterations)
        if next_plan == plan:
            break
        least = min(given.cost(moved) for moved in moves(given, plan))
        assert given.cost(next_plan) < given.cost(plan)
        assert given.cost(next_plan) <= least + CLOSE * given.cost(plan)
        plan = next_plan
    assert all(given.cost(plan) <= given.cost(moved) * (1 + CLOSE) for moved in moves(given, plan))


def test_local_search_stops_at_its_bound() -> None:
    search_problem = problem([(4, 4)] * 6, 10, collapse=False)
    assert [len(local_search(search_problem, iterations=bound)) for bound in range(7)] == [6, 5, 4, 3, 2, 1, 1]
    with pytest.raises(ValueError, match="unknown start"):
        local_search(search_problem, "shared")


@pytest.mark.timeout(60)
def test_hundreds_of_queries() -> None:
    search_problem = problem([(3 * s + s // 3, s) for s in range(1, 250)] * 2, 20, collapse=False)
    apart = search_problem.cost(no_share(search_problem))
    for search in (insert_then_weave, local_search):
        partition = search(search_problem)
        assert covers_everything(search_problem, partition)
        assert search_problem.cost(partition) < apart


def answers(size: int, slide: int, until: int) -> list[tuple[int, int]]:
    return [(start, start + size) for start in range(0, until, slide)]


@settings(max_examples=examples(100), deadline=None)
@given(
    windows=st.lists(st.tuples(st.integers(1, 24), st.sampled_from([1, 2, 3, 4, 6, 8, 12])), min_size=1, max_size=8),
    rate=RATES,
    idempotent=st.booleans(),
)
def test_windows_are_what_their_parents_make(windows: list[tuple[int, int]], rate: Fraction, idempotent: bool) -> None:
    """Every answer is the union of as many of the parent's answers as it is charged; disjoint unless idempotent."""
    plan = factor_windows([r * SECOND for r, _ in windows], [s * SECOND for _, s in windows], rate, idempotent)
    plan_windows = [(size // SECOND, slide // SECOND) for size, slide in plan.windows]
    distinct_windows = list(dict.fromkeys(windows))
    assert plan_windows[: len(distinct_windows)] == distinct_windows
    assert len(plan_windows) == len(distinct_windows) + plan.inserted
    cost = Fraction(0)
    for number, ((size, slide), parent) in enumerate(zip(plan_windows, plan.parents, strict=True)):
        if parent is None:
            cost += rate + Fraction((1 if size % slide == 0 else 2) * size, slide * slide)
            continue
        assert parent != number
        for begin, end in answers(size, slide, 48):
            parent_answers = [(a, b) for a, b in answers(*plan_windows[parent], 96) if begin <= a and b <= end]
            assert {t for a, b in parent_answers for t in range(a, b)} == set(range(begin, end))
            if not idempotent:
                assert sum(b - a for a, b in parent_answers) == end - begin
        cost += Fraction(len(parent_answers), slide)
    assert plan.cost == cost
    apart = problem(distinct_windows, rate, collapse=False)
    assert plan.cost <= apart.unshared


def test_the_factor_window_of_the_paper() -> None:
    """Tumbling 20, 30, 40: a window of 10 that nobody asked for feeds 20 and 30, and 20 feeds 40."""
    sizes = [20 * SECOND, 30 * SECOND, 40 * SECOND]
    plan = factor_windows(sizes, sizes, Fraction(7))
    assert plan.windows[3:] == ((10 * SECOND, 10 * SECOND),)
    assert plan.parents == (3, 3, 0, None)
    assert plan.cost == 7 + Fraction(1, 10) + Fraction(2, 20) + Fraction(3, 30) + Fraction(2, 40)


def test_a_factor_window_may_feed_another() -> None:
    """2 would not pay for 20 alone; but it saves the window of 6, inserted before it, its own scan."""
    sizes = [size * SECOND for size in (12, 18, 20, 30)]
    plan = factor_windows(sizes, sizes, Fraction(3, 2))
    assert [size // SECOND for size, _ in plan.windows[4:]] == [6, 2]
    assert plan.parents == (4, 4, 5, 4, 5, None)
    assert plan.cost == Fraction(7, 2)


def test_overlapping_parents_serve_idempotent_aggregates_only() -> None:
    ranges, slides = [4 * SECOND, 10 * SECOND], [2 * SECOND, 2 * SECOND]
    assert factor_windows(ranges, slides, Fraction(100), idempotent=True).parents[1] == 0
    assert factor_windows(ranges, slides, Fraction(100)).parents[1] != 0
