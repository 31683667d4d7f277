"""Every search under one signature: the best of them never loses, and a kept plan stays within its tolerance."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.search import search as module
from optimizer.search.baselines import no_share, shared
from optimizer.search.cost import PAPER, SearchProblem
from optimizer.search.incremental import evolve, homes
from optimizer.search.optimum import OPTIMUM_LIMIT
from optimizer.search.search import ALGORITHMS, PER_QUERY, SearchResult, best, find, keep
from optimizer.search.weave_share import weave_share
from optimizer.workload.values import SECOND
from tests.optimizer.searching import RATES, problem, window_lists
from tests.sizes import examples

BUDGET = 0.01
NOTHING = Fraction(1, 10**11)
"""Costs closer than this, relatively, are equal to a search in floats."""

Windows = list[tuple[int, int]]


def problem_of(queries: Windows, rate: Fraction | int, counter: str = "auto") -> Callable[[bool], SearchProblem]:
    ranges = np.array([r * SECOND for r, _ in queries], dtype=np.int64)
    slides = np.array([s * SECOND for _, s in queries], dtype=np.int64)
    return lambda collapse: SearchProblem.of_windows(
        ranges, slides, Fraction(rate), PAPER, collapse=collapse, counter=counter
    )


def cost(found: SearchResult) -> Fraction:
    return sum(found.costs, Fraction(0))


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    for smaller in partitions(items[1:]):
        yield [items[:1], *smaller]
        for n, tree in enumerate(smaller):
            yield [*smaller[:n], [items[0], *tree], *smaller[n + 1 :]]


def fragmented(number: int, seed: int, slides: range) -> Windows:
    chosen = random.Random(seed)
    return [(chosen.randrange(s, 9 * s), s) for s in (chosen.choice(slides) for _ in range(number))]


@settings(max_examples=examples(80), deadline=None)
@given(queries=window_lists(28), rate=RATES)
def test_best_is_never_above_the_others(queries: Windows, rate: Fraction) -> None:
    search_result = find(problem_of(queries, rate), "best", BUDGET)
    search_problem = search_result.problem
    least = min(
        search_problem.unshared,
        search_result.shared,
        search_problem.cost(weave_share(search_problem)),
        search_problem.cost(shared(search_problem)),
    )
    assert cost(search_result) <= least * (1 + NOTHING)
    assert search_result.weave_share == search_problem.cost(weave_share(search_problem))
    assert search_result.optimal is (len(search_problem) <= OPTIMUM_LIMIT)
    assert search_result.distinct_edge_sets == len(search_problem)


@settings(max_examples=examples(60), deadline=None)
@given(
    queries=window_lists(5),
    rate=RATES,
    base=st.sampled_from([Fraction(0), Fraction(3)]),
    data=st.data(),
)
def test_the_optimum_is_one(queries: Windows, rate: Fraction, base: Fraction, data: st.DataObject) -> None:
    families = data.draw(st.lists(st.integers(0, 1), min_size=len(queries), max_size=len(queries)))
    search_problem = problem(queries, rate, base, families, 1)
    search_result = find(lambda collapse: search_problem, "best", BUDGET)
    assert search_result.optimal
    assert cost(search_result) == min(
        search_problem.cost(trees) for trees in partitions(list(range(len(search_problem))))
    )


@settings(max_examples=examples(50), deadline=None)
@given(queries=window_lists(16), rate=RATES, data=st.data())
def test_the_order_of_queries_does_not_matter_to_the_optimum(
    queries: Windows, rate: Fraction, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(queries))
    costs = [cost(find(problem_of(windows, rate), "best", BUDGET)) for windows in (queries, order)]
    assert costs[0] == pytest.approx(costs[1], rel=1e-11)


def test_the_order_of_queries_does_not_matter_to_the_greedy_without_ties() -> None:
    queries = fragmented(60, 11, range(20, 200))
    order = random.Random(1).sample(queries, len(queries))
    first, second = (find(problem_of(windows, 30), "weave-share") for windows in (queries, order))
    assert cost(first) == cost(second)

    def as_windows(search_result: SearchResult, windows: Windows) -> list[list[tuple[int, int]]]:
        return sorted(
            sorted(windows[i] for i in tree) for tree in search_result.problem.expand(search_result.partition)
        )

    assert as_windows(first, queries) == as_windows(second, order)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_partitions_and_tells_its_costs(algorithm: str) -> None:
    queries = [(16, 4), (10, 5), (8, 4), (12, 4), (30, 7), (4, 2)]
    search_result = find(problem_of(queries, 3), algorithm, BUDGET)
    search_problem = search_result.problem
    assert len(search_problem) == (len(queries) if algorithm in PER_QUERY else 4)
    assert sorted(i for tree in search_problem.expand(search_result.partition) for i in tree) == list(
        range(len(queries))
    )
    assert cost(search_result) == search_problem.cost(search_result.partition)
    assert [low for low, _ in search_result.bounds] == [high for _, high in search_result.bounds]
    assert search_result.distinct_edge_sets == 4
    assert search_result.shared == search_problem.cost(shared(search_problem)) and search_result.inexact == ()
    assert search_result.optimal is (algorithm in ("best", "optimal"))
    assert (search_result.weave_share is not None) is (algorithm in ("best", "weave-share"))
    if algorithm == "no-share":
        assert cost(search_result) == search_problem.unshared
    if algorithm in ("random", "insert-then-weave", "local-search", "shared"):
        assert cost(search_result) >= cost(find(problem_of(queries, 3), "optimal"))


@pytest.mark.parametrize("algorithm", ["best", "optimal", "weave-share"])
@pytest.mark.parametrize("queries", [[(16, 4)], [(16, 4)] * 10_000], ids=["one", "ten thousand the same"])
def test_one_edge_set_is_one_tree(algorithm: str, queries: Windows) -> None:
    search_result = find(problem_of(queries, 2), algorithm)
    assert search_result.partition == [[0]] and search_result.distinct_edge_sets == 1
    assert cost(search_result) == 2 + Fraction(len(queries))
    assert search_result.problem.unshared == 3 * len(queries)


def test_nothing_arrives() -> None:
    """At rate 0 a tree costs nothing of its own: nothing but equal edge sets shares."""
    queries = [(4, 2), (3, 3), (6, 2), (9, 3), (5, 5)]
    for algorithm in ("best", "weave-share"):
        search_result = find(problem_of(queries, 0), algorithm, BUDGET)
        assert (
            cost(search_result)
            == search_result.problem.unshared
            == search_result.problem.cost(no_share(search_result.problem))
        )
    many = find(problem_of([(2 * s, s) for s in range(40, 80)], 0), "best", BUDGET)
    assert cost(many) == many.problem.unshared and not many.optimal


@pytest.mark.timeout(120)
def test_fragments_that_cannot_be_counted_have_certified_bounds() -> None:
    """Two hundred slides with random fragments: a common period of hundreds of digits."""
    queries = fragmented(200, 5, range(300, 1000))
    search_result = find(problem_of(queries, 20), "best", 0.1)
    assert "shared" in search_result.inexact
    for tree, (low, high) in zip(search_result.partition, search_result.bounds, strict=True):
        sum_of_all = sum(search_result.problem.edge_rate([i]) for i in tree)
        assert max(search_result.problem.edge_rate([i]) for i in tree) <= high * (1 + NOTHING)
        assert 0 < low <= high <= sum_of_all * (1 + NOTHING)
    assert cost(search_result) == search_result.problem.cost(search_result.partition)
    assert search_result.weave_share is not None
    assert cost(search_result) <= min(search_result.weave_share, search_result.shared, search_result.problem.unshared)


def test_more_edge_sets_than_an_optimum_can_be_proven_for() -> None:
    queries = [(2 * s, s) for s in range(20, 20 + OPTIMUM_LIMIT + 1)]
    assert not find(problem_of(queries, 5), "best", BUDGET).optimal
    assert find(problem_of(queries[:-1], 5), "best", BUDGET).optimal
    with pytest.raises(HeddleError, match="HDL-351"):
        find(problem_of(queries, 5), "optimal")


def test_an_optimum_that_cannot_be_counted_leaves_the_greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(search_problem: SearchProblem) -> None:
        raise HeddleError("HDL-351", "too hard", "")

    monkeypatch.setattr(module, "optimum", refuse)
    search_result = find(problem_of([(16, 4), (10, 5), (8, 4)], Fraction(6, 5)), "best", BUDGET)
    assert not search_result.optimal and cost(search_result) == Fraction("4.3")


def test_best_falls_back_to_sharing_everything_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A greedy that ended badly is where the search would start, if it were the cheapest start."""
    queries = [(2 * s, s) for s in range(20, 60)]
    for bad, rate in ((shared, 0), (no_share, 10**9)):
        monkeypatch.setattr(module, "weave_share", lambda search_problem, counter=None, bad=bad: bad(search_problem))
        search_result = find(problem_of(queries, rate), "best", 0)
        other = shared if bad is no_share else no_share
        assert search_result.partition == other(search_result.problem)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_unknown_names(algorithm: str) -> None:
    with pytest.raises(ValueError, match="unknown algorithm 'cleverest'"):
        find(problem_of([(4, 2)], 1), "cleverest")
    with pytest.raises(ValueError, match="unknown counter 'abacus'"):
        find(problem_of([(4, 2), (9, 3)], 1, "abacus"), algorithm)


def test_a_counter_that_reaches_its_limit_says_so() -> None:
    with pytest.raises(HeddleError, match="HDL-350"):
        find(problem_of(fragmented(40, 2, range(500, 1000)), 10**6, "bit-set"), "best", BUDGET)


def test_best_is_found() -> None:
    search_problem = problem([(16, 4), (10, 5), (8, 4), (30, 7)], 3)
    assert best(search_problem) == find(lambda collapse: search_problem, "best").partition


# --------------------------------------------------------------------------------------------- keeping
@settings(max_examples=examples(40), deadline=None)
@given(
    before=window_lists(14),
    joining=window_lists(4),
    rates=st.tuples(RATES, RATES),
    tolerance=st.sampled_from([Fraction(0), Fraction(1, 10), Fraction(1), float("inf")]),
    data=st.data(),
)
def test_a_kept_plan_is_within_its_tolerance(
    before: Windows, joining: Windows, rates: tuple[Fraction, Fraction], tolerance: Fraction, data: st.DataObject
) -> None:
    old = find(problem_of(before, rates[0]), "best", BUDGET)
    trees = old.problem.expand(old.partition)
    stays = data.draw(st.lists(st.booleans(), min_size=len(before), max_size=len(before)))
    remaining_queries = [i for i, stay in enumerate(stays) if stay]
    queries = [before[i] for i in remaining_queries] + joining
    tree_of = {remaining_queries.index(i): n for n, tree in enumerate(trees) for i in tree if i in remaining_queries}
    search_result = find(problem_of(queries, rates[1]), "best", BUDGET)
    (kept_result,) = keep([search_result], [tree_of], tolerance)
    assert sorted(i for tree in kept_result.partition for i in tree) == list(range(len(kept_result.problem)))
    assert kept_result.costs == [kept_result.problem.tree_cost(tree) for tree in kept_result.partition]
    assert cost(kept_result) <= cost(search_result) * (1 + tolerance)
    evolved = evolve(search_result.problem, homes(search_result.problem, tree_of))
    if tolerance == float("inf"):
        assert kept_result.partition == (evolved if tree_of else search_result.partition)
    if kept_result.scratch is None:
        assert kept_result is search_result and search_result.problem.cost(evolved) > cost(search_result) * (
            1 + tolerance
        )
        return
    assert kept_result.scratch == cost(search_result)
    assert not kept_result.optimal or cost(kept_result) == cost(search_result)
    # no tree was split
    home = {i: n for n, tree in enumerate(kept_result.problem.expand(kept_result.partition)) for i in tree}
    for x in tree_of:
        for y in tree_of:
            assert tree_of[x] != tree_of[y] or home[x] == home[y]


def test_kept_from_exactly_the_tolerance_on() -> None:
    """Plans that drifted by a few percent are kept by a tolerance of just that, and not by one below."""
    drifted = 0
    for seed in range(20):
        chosen = random.Random(seed)
        windows = [
            (s * chosen.randint(1, 5) + chosen.randrange(s), s) for s in (chosen.randint(2, 40) for _ in range(12))
        ]
        old = find(problem_of(windows[:9], 20), "best", BUDGET)
        tree_of = {i: n for n, tree in enumerate(old.problem.expand(old.partition)) for i in tree}
        search_result = find(problem_of(windows, 12), "best", BUDGET)
        evolved = evolve(search_result.problem, homes(search_result.problem, tree_of))
        deviation = search_result.problem.cost(evolved) / cost(search_result) - 1
        assert keep([search_result], [tree_of], deviation)[0].partition == evolved
        if deviation > 0:
            drifted += deviation < Fraction(1, 10)
            assert keep([search_result], [tree_of], deviation * Fraction(999, 1000))[0] is search_result
            assert not keep([search_result], [tree_of], deviation)[0].optimal
    assert drifted >= 5


def test_what_was_never_planned_is_planned_from_scratch() -> None:
    search_result = find(problem_of([(16, 4), (10, 5), (8, 4)], Fraction(6, 5)), "best")
    (kept_result,) = keep([search_result], [{}], Fraction(0))
    assert kept_result.partition == search_result.partition and kept_result.optimal


def test_an_item_lives_where_most_of_its_queries_did() -> None:
    search_problem = problem([(4, 2), (6, 2), (8, 2), (9, 3)], 1)
    assert homes(search_problem, {0: "a", 1: "b", 2: "b", 3: "a"}) == [[0], [1]]
    assert homes(search_problem, {0: "a", 3: "a"}) == [[0, 1]]
    assert homes(search_problem, {}) == []
