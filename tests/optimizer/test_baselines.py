"""Baselines and the optimum."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings

from optimizer.baselines import exhaustive, no_share, shared
from optimizer.errors import HeddleError
from optimizer.weave_share import weave_share
from tests.optimizer.searching import RATES, problem, window_lists

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = [c for c in json.loads((GOLDEN / "windows_and_plans.json").read_text())["cases"] if c["kind"] == "plan"]


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """All set partitions."""
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in partitions(rest):
        yield [[first], *smaller]
        for i, tree in enumerate(smaller):
            yield [*smaller[:i], [first, *tree], *smaller[i + 1 :]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_optimum_of_the_cases(case: dict) -> None:
    given = problem(case["queries"], case["rate"])
    assert given.cost(exhaustive(given)) == Fraction(case["optimal_cost"])
    assert exhaustive(given) == case["optimal_plan"]


@settings(max_examples=60, deadline=None)
@given(queries=window_lists(6), rate=RATES)
def test_exhaustive_equals_all_set_partitions(queries: list[tuple[int, int]], rate: Fraction) -> None:
    given = problem(queries, rate)
    best = min(given.cost(partition) for partition in partitions(list(range(len(queries)))))
    assert given.cost(exhaustive(given)) == best


@settings(max_examples=60, deadline=None)
@given(queries=window_lists(9), rate=RATES)
def test_nothing_is_cheaper_than_the_optimum(queries: list[tuple[int, int]], rate: Fraction) -> None:
    given = problem(queries, rate)
    optimum = given.cost(exhaustive(given))
    greedy = given.cost(weave_share(given))
    assert optimum <= greedy <= given.cost(no_share(given))
    assert optimum <= given.cost(shared(given))


def test_shapes() -> None:
    given = problem([(4, 2), (6, 3), (4, 2)], 1)
    assert no_share(given) == [[0], [1], [2]]
    assert shared(given) == [[0, 1, 2]]


def test_exhaustive_refuses_many_edge_sets_but_not_many_queries() -> None:
    assert len(exhaustive(problem([(s, s) for s in (2, 3, 4)] * 40, 1))) <= 3
    with pytest.raises(HeddleError, match="HDL-351"):
        exhaustive(problem([(s, s) for s in range(10, 23)], 1))
