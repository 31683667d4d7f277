"""The greedy: published cases, the paper's algorithm taken literally, and time."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.search import weave_share as module
from optimizer.search.baselines import no_share, shared
from optimizer.search.cost import PAPER, SearchProblem
from optimizer.search.weave_share import Trees, Weaver, _CompiledWeaver, merge_trees, pair_rates, weave_share
from optimizer.windows.edge_counting import EdgeCounter
from optimizer.workload.values import SECOND
from tests.optimizer.searching import RATES, naive_weave_share, problem, window_lists
from tests.sizes import examples

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = [c for c in json.loads((GOLDEN / "windows_and_plans.json").read_text())["cases"] if c["kind"] == "plan"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_cases(case: dict) -> None:
    search_problem = problem(case["queries"], case["rate"])
    partition = weave_share(search_problem)
    assert search_problem.expand(partition) == case["weave_share_plan"]
    assert search_problem.cost(partition) == Fraction(case["weave_share_cost"])
    assert search_problem.unshared == Fraction(case["no_share_cost"])
    assert search_problem.cost(shared(search_problem)) == Fraction(case["shared_cost"])
    assert len(search_problem) == case["distinct_edge_sets"]


def test_example_3_step_by_step() -> None:
    """Rate 1.2: 5.5 unshared (the printed 11.6 leaves the edge rate out), 4.3, and 4.4 if b joined."""
    search_problem = problem([(16, 4), (10, 5), (8, 4)], "6/5", collapse=False)
    assert search_problem.cost([[0], [1], [2]]) == Fraction("5.5")
    assert search_problem.cost([[0, 2], [1]]) == Fraction("4.3")
    assert search_problem.cost([[0, 1, 2]]) == Fraction("4.4")
    assert weave_share(search_problem) == [[0, 2], [1]]


@settings(max_examples=examples(55), deadline=None)
@given(queries=window_lists(12), rate=RATES.filter(bool))
def test_same_plan_as_the_published_algorithm(queries: list[tuple[int, int]], rate: Fraction) -> None:
    """From single queries, and from queries collapsed by edge set."""
    apart, collapsed = problem(queries, rate, collapse=False), problem(queries, rate)
    expected = naive_weave_share(apart)
    assert weave_share(apart) == expected
    assert collapsed.expand(weave_share(collapsed)) == expected


@settings(max_examples=examples(55), deadline=None)
@given(
    queries=window_lists(10),
    rate=RATES,
    base=st.sampled_from([Fraction(0), Fraction(1, 7), Fraction(3), Fraction(40)]),
    family_fixed=st.sampled_from([0, 1, 20]),
    data=st.data(),
)
def test_same_plan_under_costs_per_family(
    queries: list[tuple[int, int]], rate: Fraction, base: Fraction, family_fixed: int, data: st.DataObject
) -> None:
    families = data.draw(st.lists(st.integers(0, 3), min_size=len(queries), max_size=len(queries)))
    search_problem = problem(queries, rate, base, families, family_fixed)
    assert weave_share(search_problem) == naive_weave_share(search_problem)


@settings(max_examples=examples(100), deadline=None)
@given(queries=window_lists(12), rate=RATES, base=st.sampled_from([Fraction(0), Fraction(3)]))
def test_same_plan_in_compiled_loops(queries: list[tuple[int, int]], rate: Fraction, base: Fraction) -> None:
    search_problem = problem(queries, rate, base, None, base)
    singles = [[item] for item in range(len(search_problem))]
    expected = naive_weave_share(search_problem)
    assert Weaver(search_problem, singles, EdgeCounter()).run() == expected
    for tabled in (module.TABLED * 10, 0):
        # greatest common divisors sieved, or one by one
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "TABLED", tabled)
            weaver = _CompiledWeaver(search_problem, singles, EdgeCounter())
        assert (weaver.bounds == pair_rates(weaver.trees)).all()
        assert weaver.run() == expected


@settings(max_examples=examples(60), deadline=None)
@given(queries=window_lists(14), rate=RATES.filter(bool), data=st.data())
def test_compiled_loops_from_any_plan(queries: list[tuple[int, int]], rate: Fraction, data: st.DataObject) -> None:
    search_problem = problem(queries, rate)
    homes = data.draw(st.lists(st.integers(0, 5), min_size=len(search_problem), max_size=len(search_problem)))
    start = sorted([i for i, home in enumerate(homes) if home == tree] for tree in set(homes))
    assert (
        _CompiledWeaver(search_problem, start, EdgeCounter()).run()
        == Weaver(search_problem, start, EdgeCounter()).run()
    )


def test_many_trees_are_woven_in_compiled_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one family, or of families that cost nothing; else what pairs save differs."""
    used = []
    monkeypatch.setattr(module, "COMPILED_FROM", 3)
    monkeypatch.setattr(_CompiledWeaver, "run", lambda self: used.append(len(self.alive)) or [])
    queries = [(2, 2), (3, 3), (5, 5)]
    some = Fraction(1, 100)
    for costs in ((0, None, 0), (some, None, some), (0, [0, 1, 0], 0), (some, [1, 1, 1], some)):
        assert weave_share(problem(queries, Fraction(1, 9), *costs)) == [] and used.pop() == 3
    assert weave_share(problem(queries, Fraction(1, 9), some, [0, 1, 0], some)) != [] and not used


@settings(max_examples=examples(60), deadline=None)
@given(queries=window_lists(14), rate=RATES.filter(bool), base=st.sampled_from([0, 3]), data=st.data())
def test_estimates_that_are_wrong_make_no_tree_dearer_than_its_parts(
    queries: list[tuple[int, int]], rate: Fraction, base: int, data: st.DataObject
) -> None:
    """Trees whose unions seem to have no edge more than the larger of both."""
    search_problem = problem(queries, rate, base, None, base)
    homes = data.draw(st.lists(st.integers(0, 5), min_size=len(search_problem), max_size=len(search_problem)))
    start = sorted([i for i, home in enumerate(homes) if home == tree] for tree in set(homes))

    class Spent(EdgeCounter):
        work = module.PATIENCE + 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.Probes, "rise", lambda self, probes, added: 0.0)
        partition = merge_trees(search_problem, start, Spent())
    assert sorted(i for tree in partition for i in tree) == list(range(len(search_problem)))
    for tree in partition:
        parts = [part for part in start if set(part) <= set(tree)]
        assert sorted(i for part in parts for i in part) == tree
        assert search_problem.tree_cost(tree) <= sum(search_problem.tree_cost(part) for part in parts)


def test_a_merge_that_only_an_estimate_recommends_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slides 4 and 6 against 5 and 7: as many edges, few in common; a merge loses 0.88 and saves 1/3."""
    search_problem = problem([(4, 4), (6, 6), (5, 5), (7, 7)], Fraction(1, 3))
    monkeypatch.setattr(module.Probes, "rise", lambda self, probes, added: 0.0)
    monkeypatch.setattr(module, "PATIENCE", -1)
    merged_pairs = []
    merge = module.Weaver._merge
    monkeypatch.setattr(module.Weaver, "_merge", lambda self, *pair: merged_pairs.append(pair) or merge(self, *pair))
    assert merge_trees(search_problem, [[0, 1], [2, 3]]) == [[0, 1], [2, 3]] and merged_pairs == [(0, 1)]


def test_different_filters_can_be_better_apart() -> None:
    """Windows that weave a little share one tree, but not once each family pays for its own partials."""
    queries = [(60, 20), (60, 30)]
    together = problem(queries, 2, base=50, families=[0, 0], family_fixed=1)
    apart = problem(queries, 2, base=50, families=[0, 1], family_fixed=1)
    assert weave_share(together) == [[0, 1]]
    assert weave_share(apart) == [[0], [1]]


@settings(max_examples=examples(100), deadline=None)
@given(queries=window_lists(12), rate=RATES.filter(bool), data=st.data())
def test_merging_from_any_plan_leaves_no_pair_that_saves(
    queries: list[tuple[int, int]], rate: Fraction, data: st.DataObject
) -> None:
    search_problem = problem(queries, rate)
    homes = data.draw(st.lists(st.integers(0, 3), min_size=len(search_problem), max_size=len(search_problem)))
    start = [[i for i, home in enumerate(homes) if home == tree] for tree in sorted(set(homes))]
    start = sorted(start)
    trees = merge_trees(search_problem, start)
    assert search_problem.cost(trees) <= search_problem.cost(start)
    assert all(any(set(old) <= set(new) for new in trees) for old in start)
    costs = [search_problem.tree_cost(tree) for tree in trees]
    for x in range(len(trees)):
        for y in range(x + 1, len(trees)):
            assert search_problem.tree_cost(trees[x] + trees[y]) >= costs[x] + costs[y] - rate / 10**12


@settings(max_examples=examples(50), deadline=None)
@given(queries=window_lists(25), rate=RATES)
def test_no_pair_of_trees_is_left_that_would_save(queries: list[tuple[int, int]], rate: Fraction) -> None:
    search_problem = problem(queries, rate)
    trees = weave_share(search_problem)
    assert sorted(i for tree in trees for i in tree) == list(range(len(search_problem)))
    costs = [search_problem.tree_cost(tree) for tree in trees]
    for x in range(len(trees)):
        for y in range(x + 1, len(trees)):
            assert search_problem.tree_cost(trees[x] + trees[y]) >= costs[x] + costs[y] - rate / 10**12


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
    search_problem = replace(problem([(9, 8), (11, 8), (13, 8)], 3), weights=(8 + extra, Fraction(8), Fraction(8)))
    assert weave_share(search_problem) == expected


def test_ties_beyond_floats_are_settled_exactly() -> None:
    """Slides 4 in 2 and 6 in 3: both merges save 2 - 1/2, as differences of costs of 10^12."""
    heavy = Fraction(10**12)
    for less, expected in ((Fraction(0), (0, 1)), (Fraction(1, 10**13), (0, 1)), (Fraction(1, 10**10), (2, 3))):
        search_problem = replace(
            problem([(2, 2), (4, 4), (3, 3), (6, 6)], 2), weights=(heavy, Fraction(2), heavy, 3 - less)
        )
        weaver = Weaver(search_problem, [[0], [1], [2], [3]], EdgeCounter())
        assert weaver._top() == expected


@settings(max_examples=examples(60), deadline=None)
@given(queries=window_lists(8))
def test_pair_rates_in_closed_form_are_exact_to_floats(queries: list[tuple[int, int]]) -> None:
    search_problem = problem(queries, 1)
    pairs = pair_rates(Trees(search_problem, [[i] for i in range(len(search_problem))], EdgeCounter()))
    for x in range(len(search_problem)):
        for y in range(len(search_problem)):
            if x != y:
                assert pairs[x, y] == pytest.approx(float(search_problem.edge_rate([x, y])), rel=1e-12)


def test_identical_edge_sets_are_one_tree_even_where_it_saves_nothing() -> None:
    """At rate 0 a merge of equal edge sets changes no cost; it is made all the same."""
    search_problem = problem([(4, 2), (3, 3), (6, 2), (6, 4)], 0)
    assert search_problem.expand(weave_share(search_problem)) == [[0, 2, 3], [1]]
    apart = problem([(4, 2), (3, 3), (6, 2), (6, 4)], 0, collapse=False)
    assert search_problem.cost(weave_share(search_problem)) == apart.cost(naive_weave_share(apart))


def test_unions_that_cannot_be_counted_are_judged_by_their_upper_bound() -> None:
    """A counter that may do almost nothing: every merge that it makes still saves, certainly."""
    chosen = random.Random(5)
    windows = [(chosen.randrange(s, 4 * s), s) for s in range(301, 341)]
    search_problem = problem(windows, 50)
    frugal = weave_share(search_problem, EdgeCounter(budget=1))
    assert search_problem.cost(frugal) <= search_problem.cost(no_share(search_problem))
    assert search_problem.cost(weave_share(search_problem)) <= search_problem.cost(no_share(search_problem))


@settings(max_examples=examples(60), deadline=None)
@given(queries=window_lists(12), rate=RATES.filter(bool))
def test_estimated_unions_are_exact_where_probes_are_all_edges(queries: list[tuple[int, int]], rate: Fraction) -> None:
    """A search whose counting is spent from the start ends as dear, up to the rounding of estimates."""
    search_problem = problem(queries, rate)
    if math.lcm(*(slide for slide, _ in queries)) > 10_000:
        return

    class Spent(EdgeCounter):
        work = module.PATIENCE + 1

        def increment(self, *asked):  # type: ignore[no-untyped-def]
            raise AssertionError("counted")

    partition = weave_share(search_problem, Spent())
    assert sorted(i for tree in partition for i in tree) == list(range(len(search_problem)))
    expected = search_problem.cost(naive_weave_share(search_problem))
    assert float(search_problem.cost(partition)) == pytest.approx(float(expected), rel=0.05)
    assert search_problem.cost(partition) <= search_problem.cost(no_share(search_problem)) * (1 + Fraction(1, 10**9))


@pytest.mark.timeout(60)
def test_as_many_filters_as_queries() -> None:
    queries = [(s * 3 + s % 4, s) for s in range(60, 560)]
    search_problem = problem(queries, 30, base=Fraction(1, 100), families=list(range(500)), family_fixed=1)
    partition = weave_share(search_problem)
    assert search_problem.cost(partition) <= search_problem.cost(no_share(search_problem))


def test_blocks_of_trees_when_the_table_of_pairs_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DENSE_LIMIT", 20)
    monkeypatch.setattr(module, "BLOCK", 8)
    search_problem = problem([(s * 3 + s % 4, s) for s in range(2, 62)], 30)
    partition = weave_share(search_problem)
    assert sorted(i for tree in partition for i in tree) == list(range(len(search_problem)))
    assert search_problem.cost(partition) < search_problem.cost(no_share(search_problem))


@pytest.mark.parametrize("rate", ["1/100", "1", "100", "1000000"])
@pytest.mark.timeout(120)
def test_five_hundred_queries_count_few_unions(rate: str) -> None:
    """Distinct slides up to 1,000 s, one in three with an inner edge: of the 124,750 pairs few are counted."""
    chosen = random.Random(2011)
    slides = chosen.sample(range(60, 1001), 500)
    search_problem = problem(
        [(s * chosen.randint(1, 50) + (chosen.randrange(s) if s % 3 == 0 else 0), s) for s in slides], rate
    )

    class Counting(EdgeCounter):
        counted = 0

        def increment(self, *asked):  # type: ignore[no-untyped-def]
            Counting.counted += 1
            return super().increment(*asked)

    weave_share(search_problem, Counting())
    assert Counting.counted < 124_750 // 50


@pytest.mark.timeout(60)
@pytest.mark.parametrize("rate", ["2/1000", "100", "1000000"])
def test_a_million_queries(rate: str) -> None:
    chosen = np.random.default_rng(2015)
    slides = chosen.integers(1, 1001, 1_000_000) * SECOND
    ranges = slides * chosen.integers(1, 11, 1_000_000)
    search_problem = SearchProblem.of_windows(ranges, slides, Fraction(rate), PAPER)
    assert len(search_problem) == 1000
    assert len(np.concatenate(search_problem.expand(weave_share(search_problem)))) == 1_000_000
