"""What every plan costs at least: below the optimum, of few items as of many, and shown."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.search import lower_bound as module
from optimizer.search.cost import SearchProblem
from optimizer.search.lower_bound import least_cost
from optimizer.search.optimum import optimum
from optimizer.search.search import find
from tests.optimizer.searching import RATES, problem, window_lists
from tests.sizes import examples

LENGTHS = st.sampled_from([1.01, 1.1, 1.7, 5.0])


@settings(max_examples=examples(300), deadline=None)
@given(
    queries=window_lists(9),
    rate=RATES | st.sampled_from([Fraction(5), Fraction(40), Fraction(150)]),
    base=st.sampled_from([Fraction(0), Fraction(1, 7), Fraction(3), Fraction(40)]),
    family_fixed=st.sampled_from([0, 1, 20]),
    families=st.none() | st.lists(st.integers(0, 3), min_size=9, max_size=9),
    step=LENGTHS,
)
def test_never_above_the_optimum(
    queries: list[tuple[int, int]],
    rate: Fraction,
    base: Fraction,
    family_fixed: int,
    families: list[int] | None,
    step: float,
) -> None:
    search_problem = problem(queries, rate, base, families and families[: len(queries)], family_fixed)
    least = search_problem.cost(optimum(search_problem))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "STEP", step)
        bound = least_cost(search_problem)
    assert bound is not None and 0 <= bound <= least


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), rate=RATES.filter(bool))
def test_never_above_the_optimum_of_windows_with_fragments(data: st.DataObject, rate: Fraction) -> None:
    """Long slides, many edges: unions are far below sums."""
    slides = data.draw(st.lists(st.integers(20, 200), min_size=2, max_size=11))
    queries = [(data.draw(st.integers(1, 6 * s)), s) for s in slides]
    search_problem = problem(queries, rate * data.draw(st.integers(1, 30)))
    try:
        least = search_problem.cost(optimum(search_problem))
    except HeddleError:
        return
    bound = least_cost(search_problem)
    assert bound is not None and bound <= least


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), rate=RATES.filter(bool))
def test_a_tree_bears_what_its_items_bear(data: st.DataObject, rate: Fraction) -> None:
    """Beyond the optimum's reach: of any partition of many items, no tree costs less than its items bear."""
    queries = data.draw(st.lists(st.tuples(st.integers(1, 90), st.integers(2, 60)), min_size=10, max_size=60))
    search_problem = problem(queries, rate * data.draw(st.sampled_from([1, 10, 100])))
    homes = data.draw(st.lists(st.integers(0, 12), min_size=len(search_problem), max_size=len(search_problem)))
    partition = [[i for i, home in enumerate(homes) if home == tree] for tree in sorted(set(homes))]
    bound = least_cost(search_problem)
    assert bound is not None and bound <= search_problem.cost(partition)


def test_one_item_and_items_that_never_share_are_known_exactly() -> None:
    single_item = problem([(6, 2), (8, 2)], 5)
    assert float(least_cost(single_item) or 0) == pytest.approx(float(single_item.unshared - 5))
    # primes at no rate: a merge saves nothing and raises every edge rate
    apart = problem([(s, s) for s in (101, 103, 107, 109)], 0)
    assert float(least_cost(apart) or 0) == pytest.approx(float(apart.unshared))


def hard(number: int, rate: int) -> SearchProblem:
    chosen = random.Random(3)
    slides = [chosen.randint(60, 1000) for _ in range(number)]
    return problem([(chosen.randint(1, 9) * s + chosen.randrange(s), s) for s in slides], rate)


@pytest.mark.parametrize(("rate", "part"), [(1, 0.8), (20, 0.8)])
def test_it_says_something(rate: int, part: float) -> None:
    """Sixty windows with fragments: the plan that is found costs at most a quarter more than the bound."""
    search_problem = hard(60, rate)
    search_result = find(lambda collapse: search_problem, "best")
    assert search_result.lower_bound is not None and not search_result.optimal
    assert part * search_result.cost <= search_result.lower_bound < search_result.cost < search_problem.unshared


def test_what_a_search_tells() -> None:
    few = find(lambda collapse: problem([(16, 4), (10, 5), (8, 4)], Fraction(6, 5), collapse=collapse), "best")
    assert few.lower_bound == few.cost and few.optimal
    greedy = find(lambda collapse: hard(30, 20), "weave-share")
    assert greedy.lower_bound is not None and greedy.lower_bound < greedy.cost


def test_too_many_items_have_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOWER_BOUND_LIMIT", 29)
    assert least_cost(hard(30, 1)) is None
    assert find(lambda collapse: hard(30, 1), "weave-share").lower_bound is None


def test_pairs_are_left_as_they_were() -> None:
    search_problem = hard(20, 5)
    assert least_cost(search_problem) == least_cost(search_problem)
    assert np.isfinite(float(least_cost(search_problem) or 0))
