"""Dynamic programs of cycles and the grids they try, by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from optimizer.schedule.cycles import Ladder, _fill, _fill_between
from optimizer.schedule.planner import _grids

F = Fraction


@pytest.mark.parametrize(
    ("shortest", "grids"),
    [(1, []), (2, [2]), (8, [2, 3, 4, 5, 6, 7, 8]), (9, [2, 3, 4, 6, 7, 8, 9]), (30, [6, 7, 10, 15, 19, 23, 27, 30])],
)
def test_grids_divide_the_shortest_period_or_lie_above_its_half(shortest: int, grids: list[int]) -> None:
    assert _grids(shortest) == grids


def test_a_ladder_has_only_periods_that_cost_more_than_all_shorter_ones() -> None:
    ladder = Ladder.of([(5, F(4)), (2, F(1)), (2, F(3)), (3, F(3))])
    assert ladder == Ladder((2, 5), (F(3), F(4)))
    assert Ladder((2, 3, 5), (F(1), F(2), F(3))).work == 5 * (1 + 2 + 3)
    assert ladder.rounded(2, 9) == Ladder((1, 2), (F(3), F(4)))
    assert ladder.rounded(1, 4) == Ladder((2, 4), (F(3), F(4)))


def test_gaps_below_the_top_are_filled_at_the_least_cost() -> None:
    table, first = np.zeros((2, 5), dtype=np.int64), np.zeros((2, 5), dtype=np.int64)
    table[0] = [0, 1, 2, 3, 4]
    _fill.py_func(np.array([2, 9]), np.array([5, 0]), 4, table, first)
    # a run costs 5; gaps are at most 2: 3 = 1 + 2, 4 = 2 + 2
    assert (table[1].tolist(), first[1].tolist()) == ([0, 1, 2, 8, 9], [0, 1, 2, 1, 2])


@pytest.mark.parametrize(
    ("period", "costs", "filled", "chosen"),
    [
        # from instant to instant: (0, 2), (2, 5), (0, 5)
        (2, (1, 1, 1), [1, -1, -1], [1, 0, 0]),
        (3, (1, 1, 1), [1, 1, 9], [1, 2, 1]),
        (5, (1, 1, 1), [1, 1, 1], [1, 2, 2]),
        (5, (1, 1, 12), [1, 1, 9], [1, 2, 1]),
        (5, (-1, 1, -1), [-1, 1, -1], [0, 2, 0]),
        (5, (0, 0, 8), [0, 0, 7], [1, 2, 1]),
    ],
)
def test_gaps_between_given_instants_are_filled_at_the_least_cost(
    period: int, costs: tuple[int, int, int], filled: list[int], chosen: list[int]
) -> None:
    pairs = ([0, 1, 0], [1, 2, 2])
    table, first = np.full((2, 3, 3), -1, dtype=np.int64), np.zeros((2, 3, 3), dtype=np.int64)
    table[0][pairs] = costs
    _fill_between.py_func(np.array([0, 2, 5]), np.array([period]), np.array([7]), table, first)
    assert (table[1][pairs].tolist(), first[1][pairs].tolist()) == (filled, chosen)
