"""The greedy: published cases, the paper's algorithm taken literally, and time."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer import weave_share as module
from optimizer.baselines import no_share, shared
from optimizer.cost import SearchProblem
from optimizer.edges import CountRefused, edge_set
from optimizer.weave_share import by_edge_set, weave_share
from tests.optimizer.searching import RATES, naive_weave_share, problem, window_lists

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = [c for c in json.loads((GOLDEN / "windows_and_plans.json").read_text())["cases"] if c["kind"] == "plan"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_cases(case: dict) -> None:
    given = problem(case["queries"], case["rate"])
    found = weave_share(given)
    assert found == case["weave_share_plan"]
    assert given.cost(found) == Fraction(case["weave_share_cost"])
    assert given.cost(no_share(given)) == Fraction(case["no_share_cost"])
    assert given.cost(shared(given)) == Fraction(case["shared_cost"])
    assert len(by_edge_set(given)) == case["distinct_edge_sets"]


def test_example_3_step_by_step() -> None:
    """Rate 1.2: 5.5 unshared (the printed 11.6 leaves the edge rate out), 4.3, and 4.4 if b joined."""
    given = problem([(16, 4), (10, 5), (8, 4)], "6/5")
    assert given.cost([[0], [1], [2]]) == Fraction("5.5")
    assert given.cost([[0, 2], [1]]) == Fraction("4.3")
    assert given.cost([[0, 1, 2]]) == Fraction("4.4")
    assert weave_share(given) == [[0, 2], [1]]


@settings(max_examples=200, deadline=None)
@given(queries=window_lists(12), rate=RATES.filter(bool))
def test_same_plan_as_the_published_algorithm(queries: list[tuple[int, int]], rate: Fraction) -> None:
    given = problem(queries, rate)
    assert weave_share(given) == naive_weave_share(given)


@settings(max_examples=100, deadline=None)
@given(queries=window_lists(10), rate=RATES, base=st.sampled_from([Fraction(1, 7), Fraction(3), Fraction(40)]))
def test_same_plan_under_a_cost_per_fragment(queries: list[tuple[int, int]], rate: Fraction, base: Fraction) -> None:
    """With a base cost, identical edge sets are still collapsed first: so start there."""
    given = problem(queries, rate, base)
    groups = by_edge_set(given)
    merged = problem([queries[group[0]] for group in groups], rate, base)
    weights = tuple(sum(given.weights[i] for i in group) for group in groups)
    merged = type(merged)(merged.windows, merged.fixed, merged.base, weights, merged.constants)
    expected = sorted(sorted(i for g in tree for i in groups[g]) for tree in naive_weave_share(merged))
    assert weave_share(given) == expected


@settings(max_examples=50, deadline=None)
@given(queries=window_lists(25), rate=RATES)
def test_no_pair_of_trees_is_left_that_would_save(queries: list[tuple[int, int]], rate: Fraction) -> None:
    given = problem(queries, rate)
    trees = weave_share(given)
    assert sorted(i for tree in trees for i in tree) == list(range(len(queries)))
    costs = [given.tree_cost(tree) for tree in trees]
    for x in range(len(trees)):
        for y in range(x + 1, len(trees)):
            assert given.tree_cost(trees[x] + trees[y]) >= costs[x] + costs[y] - rate / 10**12


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (Fraction(0), [[0, 1], [2]]),
        (Fraction(1, 10**14), [[0, 1], [2]]),
        (Fraction(1, 10**9), [[0], [1, 2]]),
    ],
)
def test_ties_take_the_smallest_first_queries(extra: Fraction, expected: list[list[int]]) -> None:
    """Three inner edges in one slide and equal weights: each merge saves the same, and only one pays.

    Merging any two saves 3 - 2 * 8/8 = 1; a first query that is dearer by ``extra`` makes its merges save
    less, which counts only above 1e-12 of the rate.
    """
    windows = problem([(9, 8), (11, 8), (13, 8)], 3).windows
    given = SearchProblem(windows, Fraction(3), Fraction(0), (8 + extra, Fraction(8), Fraction(8)), (Fraction(0),) * 3)
    assert weave_share(given) == expected


@settings(max_examples=60, deadline=None)
@given(queries=window_lists(8))
def test_pair_rates_in_closed_form_are_exact_to_floats(queries: list[tuple[int, int]]) -> None:
    edges = [edge_set(window) for window in problem(queries, 1).windows]
    alone = np.array([float(module.edges_per_second(found)) for found in edges])
    pairs = module._pair_rates(edges, alone)
    for x, mine in enumerate(edges):
        for y, other in enumerate(edges):
            if x != y:
                assert pairs[x, y] == pytest.approx(float(module.edges_per_second(mine + other)), rel=1e-12)


def test_identical_edge_sets_are_one_tree_even_where_it_saves_nothing() -> None:
    """At rate 0 a merge of equal edge sets changes no cost; it is made all the same."""
    given = problem([(4, 2), (3, 3), (6, 2), (6, 4)], 0)
    assert weave_share(given) == [[0, 2, 3], [1]]
    assert given.cost(weave_share(given)) == given.cost(naive_weave_share(given))


def test_a_union_that_cannot_be_counted_is_not_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    real = module.edges_per_second

    def refuse_many(edges):  # type: ignore[no-untyped-def]
        edges = list(edges)
        if len(edges) > 2:
            raise CountRefused("HDL-350", "too many")
        return real(edges)

    monkeypatch.setattr(module, "edges_per_second", refuse_many)
    trees = weave_share(problem([(7, 7), (11, 11), (13, 13), (17, 17)], 10**6))
    assert sorted(len(tree) for tree in trees) == [2, 2]


@pytest.mark.parametrize("rate", ["1/100", "1", "100", "1000000"])
@pytest.mark.timeout(120)
def test_five_hundred_queries_count_few_unions(rate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distinct slides up to 1,000 s, one in three with an inner edge: of the 124,750 pairs few are counted exactly."""
    chosen = random.Random(2011)
    slides = chosen.sample(range(60, 1001), 500)
    given = problem([(s * chosen.randint(1, 50) + (chosen.randrange(s) if s % 3 == 0 else 0), s) for s in slides], rate)
    counted = 0
    real = module.edges_per_second

    def count(edges):  # type: ignore[no-untyped-def]
        nonlocal counted
        counted += 1
        return real(edges)

    monkeypatch.setattr(module, "edges_per_second", count)
    weave_share(given)
    assert counted < 124_750 // 10
