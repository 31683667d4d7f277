"""The optimum, and the edge rates of all unions that it is found with."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.search import optimum as module
from optimizer.search.cost import PAPER, SearchProblem
from optimizer.search.optimum import OPTIMUM_LIMIT, optimum, union_rates
from optimizer.search.weave_share import weave_share
from optimizer.workload.values import SECOND
from tests.optimizer.searching import RATES, naive_weave_share, problem, window_lists
from tests.sizes import examples

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = [c for c in json.loads((GOLDEN / "windows_and_plans.json").read_text())["cases"] if c["kind"] == "plan"]

FAMILIES = st.lists(st.integers(0, 3), min_size=9, max_size=9)


def subsets(count: int) -> list[list[int]]:
    return [[i for i in range(count) if bits >> i & 1] for bits in range(1 << count)]


def by_definition(given: SearchProblem) -> list[list[int]]:
    """Dynamic programming over all subsets in fractions; the whole subset first, then what is strictly cheaper."""
    cost = [given.tree_cost(tree, given.edge_rate(tree)) if tree else Fraction(0) for tree in subsets(len(given))]
    best, choice = [Fraction(0)], [0]
    for subset in range(1, len(cost)):
        first = subset & -subset
        remaining_items = separate_items = subset ^ first
        cheapest, chosen = cost[subset], subset
        while separate_items:
            if cost[subset ^ separate_items] + best[separate_items] < cheapest:
                cheapest, chosen = cost[subset ^ separate_items] + best[separate_items], subset ^ separate_items
            separate_items = (separate_items - 1) & remaining_items
        best.append(cheapest)
        choice.append(chosen)
    trees, unassigned_items = [], len(cost) - 1
    while unassigned_items:
        trees.append(subsets(len(given))[choice[unassigned_items]])
        unassigned_items ^= choice[unassigned_items]
    return sorted(trees)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_cases(case: dict) -> None:
    search_problem = problem(case["queries"], case["rate"])
    partition = optimum(search_problem)
    assert search_problem.cost(partition) == Fraction(case["optimal_cost"])
    assert search_problem.expand(partition) == case["optimal_plan"]


@settings(max_examples=examples(60), deadline=None)
@given(queries=window_lists(9), rate=RATES, families=FAMILIES, base=st.sampled_from([0, Fraction(1, 7), 3]))
def test_the_plan_of_the_definition(
    queries: list[tuple[int, int]], rate: Fraction, families: list[int], base: Fraction
) -> None:
    """The same plan, not only the same cost: ties are frequent at rate 0 and with nested slides."""
    search_problem = problem(queries, rate, base, families[: len(queries)], base)
    assert optimum(search_problem) == by_definition(search_problem)


@settings(max_examples=examples(60), deadline=None)
@given(
    queries=window_lists(8),
    rate=RATES | st.sampled_from([Fraction(4), Fraction(40), Fraction(100)]),
    base=st.sampled_from([0, Fraction(1, 7), 3]),
)
def test_where_every_merge_saves_one_tree_is_the_cheapest(
    queries: list[tuple[int, int]], rate: Fraction, base: Fraction
) -> None:
    search_problem = problem(queries, rate, base, None, base)
    cheapest = naive_weave_share(search_problem), by_definition(search_problem)
    if search_problem.is_cheapest_in_one_tree:
        assert cheapest == ([list(range(len(search_problem)))],) * 2
    assert weave_share(search_problem) == cheapest[0]


def test_when_it_is_certain_that_every_merge_saves() -> None:
    """Apart the rates are 1/2 and 1/3, together 2/3; so at most (2/3 - 1/2) * 2 + (2/3 - 1/3) * 4 is lost."""
    windows, lost = [(4, 2), (12, 3)], Fraction(5, 3)
    assert problem(windows, lost * Fraction(101, 100)).is_cheapest_in_one_tree
    assert not problem(windows, lost).is_cheapest_in_one_tree
    # families that cost something are not all saved
    assert not problem(windows, 100, 1, [0, 1], 1).is_cheapest_in_one_tree
    assert problem(windows, 100, 1, [0, 0], 1).is_cheapest_in_one_tree


@pytest.mark.parametrize("exact_limit", [0, 12])
def test_ties_share(exact_limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apart 2*rate + 3/4, together rate + 1: equal at a rate of 1/4."""
    monkeypatch.setattr(module, "EXACT_LIMIT", exact_limit)
    monkeypatch.setattr(module, "_compiled", lambda: module._search)
    hair = Fraction(1, 10**9)
    windows = [(2, 2), (4, 4)]
    assert optimum(problem(windows, Fraction(1, 4))) == [[0, 1]]
    assert optimum(problem(windows, Fraction(1, 4) + hair)) == [[0, 1]]
    assert optimum(problem(windows, Fraction(1, 4) - hair)) == [[0], [1]]


@settings(max_examples=examples(60), deadline=None)
@given(queries=window_lists(8), rate=RATES, families=FAMILIES, base=st.sampled_from([0, Fraction(1, 7), 3]))
def test_floats_find_a_plan_of_the_same_cost(
    queries: list[tuple[int, int]], rate: Fraction, families: list[int], base: Fraction
) -> None:
    search_problem = problem(queries, rate, base, families[: len(queries)], base)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "EXACT_LIMIT", 0)
        patch.setattr(module, "_compiled", lambda: module._search)
        partition = optimum(search_problem)
    assert float(search_problem.cost(partition)) == pytest.approx(
        float(search_problem.cost(optimum(search_problem))), rel=1e-11
    )


@settings(max_examples=examples(100), deadline=None)
@given(
    queries=st.one_of(
        window_lists(7),
        st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 1000)), min_size=1, max_size=6),
        st.lists(
            st.tuples(st.integers(1, 10**4), st.sampled_from([210, 420, 630, 1155, 2310])), min_size=1, max_size=7
        ),
    ),
    marked=st.sampled_from([1, 20, 1 << 13]),
)
def test_unions_are_counted_exactly(queries: list[tuple[int, int]], marked: int) -> None:
    search_problem = problem(queries, 1)
    expected = [search_problem.edge_rate(tree) if tree else Fraction(0) for tree in subsets(len(search_problem))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FIRST_MARKED", marked)
        patch.setattr(module, "MARKED", marked)
        hits, period, tick = module._unions(search_problem, exact=True)
        rates = union_rates(search_problem)
    assert period == math.lcm(*(slide // tick for edges in search_problem.edges for slide, _ in edges))
    assert [Fraction(int(ticks) * SECOND, period * tick) for ticks in hits] == expected
    assert rates == pytest.approx([float(rate) for rate in expected], rel=1e-13)


@pytest.mark.parametrize("slides", [range(983, 1001), [10**9 + 7] * 18, [7 * p for p in range(31, 49)]])
def test_eighteen_edge_sets_with_fragments(slides: list[int]) -> None:
    """Periods of a hundred bits: rates keep their digits."""
    ranges = [3 * slide + 17 * i + 1 for i, slide in enumerate(slides)]
    search_problem = SearchProblem.of_windows(np.array(ranges), np.array(slides), Fraction(1, 10**3), PAPER)
    rates = union_rates(search_problem)
    for tree in itertools.islice(itertools.combinations(range(18), 7), 0, None, 3001):
        assert rates[sum(1 << i for i in tree)] == pytest.approx(float(search_problem.edge_rate(tree)), rel=1e-13)


def test_eighteen_edge_sets_are_planned() -> None:
    """Nothing that moves one item, or merges two trees, is cheaper."""
    search_problem = problem([(5 * s + 1, s) for s in range(40, 58)], 5)
    assert len(search_problem) == OPTIMUM_LIMIT
    partition = optimum(search_problem)
    cost = search_problem.cost(partition)
    assert sorted(i for tree in partition for i in tree) == list(range(18))
    assert 1 < len(partition) < 18
    for a, b in itertools.permutations(range(len(partition)), 2):
        other_trees = [tree for number, tree in enumerate(partition) if number not in (a, b)]
        assert cost <= search_problem.cost([*other_trees, partition[a] + partition[b]])
        for item in partition[a]:
            remaining_tree = [i for i in partition[a] if i != item]
            assert cost <= search_problem.cost(
                [*other_trees, partition[b] + [item], *([remaining_tree] if remaining_tree else [])]
            )


def test_refuses_many_edge_sets_but_not_many_queries() -> None:
    assert len(optimum(problem([(s, s) for s in (2, 3, 4)] * 40, 1))) <= 3
    with pytest.raises(HeddleError, match="HDL-351"):
        optimum(problem([(s, s) for s in range(10, 29)], 1))


def test_refuses_unions_that_are_too_hard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SUBPROBLEMS", 10)
    with pytest.raises(HeddleError, match="HDL-351"):
        optimum(problem([(7 * s + 1, s) for s in range(90, 99)], 1))


def test_more_families_than_an_integer_has_bits() -> None:
    queries = [(s, s) for s in (2, 3, 4, 5)] * 20
    search_problem = problem(queries, 1, 1, range(80), 1)
    assert optimum(search_problem) == by_definition(search_problem)


def test_few_items_do_not_load_the_compiler() -> None:
    script = (
        "import sys; from tests.optimizer.searching import problem; from optimizer.search.optimum import optimum; "
        "optimum(problem([(s, s) for s in range(2, 14)], 1)); sys.exit('numba' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", script], cwd=root, check=False).returncode == 0
