"""Cost models: the paper's numbers, and the measured model's terms one by one."""

from __future__ import annotations

from fractions import Fraction

import pytest

from optimizer.cost import PAPER, Coefficients, CostModel, SearchProblem, cost_model, measured
from optimizer.query import ACQ, LONG, SECOND, Output, Window


def query(name: str, seconds_range: int, seconds_slide: int, stream: str = "trades") -> ACQ:
    window = Window(seconds_range * SECOND, seconds_slide * SECOND)
    return ACQ(name, stream, window, (Output("n", "count", None, None, LONG),))


def test_paper_cost_is_equation_1() -> None:
    queries = [query("a", 12, 9), query("b", 10, 6)]
    given = SearchProblem.of(queries, Fraction(5), PAPER)
    omega = Fraction(12, 9) + Fraction(10, 6)
    assert given.tree_cost([0]) == 5 + Fraction(2, 9) * Fraction(12, 9)
    assert given.tree_cost([0, 1]) == 5 + Fraction(8, 18) * omega
    assert given.cost([[0], [1]]) == given.tree_cost([0]) + given.tree_cost([1])


def test_measured_cost_has_four_terms() -> None:
    coefficients = Coefficients(Fraction(2), Fraction(3), Fraction(5), Fraction(7))
    model = measured(coefficients, {"trades": 10})
    given = SearchProblem.of([query("a", 20, 10), query("b", 10, 5)], Fraction(100), model)
    partial_rows = Fraction(1, 5) * 10  # edges per second, groups
    combined = partial_rows * (2 + 2)  # overlap factors
    answers = 10 * (Fraction(1, 10) + Fraction(1, 5))
    assert given.tree_cost([0, 1]) == 100 * 2 + partial_rows * 3 + combined * 5 + answers * 7


def test_a_stream_without_known_groups_has_one() -> None:
    model = measured(groups_per_fragment={"trades": 2.5})
    assert model.groups("trades") == Fraction(5, 2)
    assert model.groups("requests") == 1


def test_coefficients_are_taken_as_written() -> None:
    assert Coefficients(per_tuple=0.1).per_tuple == Fraction(1, 10)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="per_answer"):
        Coefficients(per_answer=Fraction(-1))
    with pytest.raises(ValueError, match="positive"):
        measured(groups_per_fragment={"trades": 0})


@pytest.mark.parametrize("model", [PAPER, measured(), measured(groups_per_fragment={"b": 2, "a": 0.3})])
def test_models_survive_json(model: CostModel) -> None:
    assert CostModel.from_json(model.to_json()) == model


def test_models_by_name() -> None:
    assert cost_model("paper") is PAPER
    assert cost_model("measured").name == "measured"
    with pytest.raises(ValueError, match="guessed"):
        cost_model("guessed")
