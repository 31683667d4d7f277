"""Cost models: the paper's numbers, and the measured model's terms one by one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given as generated
from hypothesis import settings
from hypothesis import strategies as st

from optimizer.search import cost
from optimizer.search.cost import PAPER, Coefficients, CostModel, SearchProblem, cost_model, measured
from optimizer.workload.values import ACQ, LONG, SECOND, STRING, Call, Column, Literal, Output, Window
from tests.optimizer.searching import RATES, problem, window_lists
from tests.sizes import examples


def query(name: str, seconds_range: int, seconds_slide: int, stream: str = "trades") -> ACQ:
    window = Window(seconds_range * SECOND, seconds_slide * SECOND)
    return ACQ(name, stream, window, (Output("n", "count", None, None, LONG),))


def test_paper_cost_is_equation_1() -> None:
    queries = [query("a", 12, 9), query("b", 10, 6)]
    search_problem = SearchProblem.of(queries, Fraction(5), PAPER)
    omega = Fraction(12, 9) + Fraction(10, 6)
    assert search_problem.tree_cost([0]) == 5 + Fraction(2, 9) * Fraction(12, 9)
    assert search_problem.tree_cost([0, 1]) == 5 + Fraction(8, 18) * omega
    assert search_problem.cost([[0], [1]]) == search_problem.tree_cost([0]) + search_problem.tree_cost([1])


def test_measured_cost_has_six_terms() -> None:
    coefficients = Coefficients(
        per_tuple=Fraction(2),
        per_family_tuple=Fraction(11),
        per_partial_row=Fraction(3),
        per_fragment_combined=Fraction(5),
        per_answer=Fraction(7),
        per_row_passed=Fraction(13),
    )
    model = measured(coefficients, {"trades": 10})
    search_problem = SearchProblem.of([query("a", 20, 10), query("b", 10, 5)], Fraction(100), model)
    partial_rows = Fraction(1, 5) * 10  # edges per second, groups
    combined = partial_rows * (2 + 2)  # overlap factors
    answers = 10 * (Fraction(1, 10) + Fraction(1, 5))
    passed = partial_rows * 2  # each query once
    assert (
        search_problem.tree_cost([0, 1]) == 100 * (2 + 11) + partial_rows * 3 + combined * 5 + answers * 7 + passed * 13
    )


def test_each_filter_and_group_by_of_a_tree_pays_for_its_own_partials() -> None:
    coefficients = Coefficients(
        per_tuple=Fraction(2),
        per_family_tuple=Fraction(11),
        per_partial_row=Fraction(3),
        per_fragment_combined=Fraction(5),
        per_answer=Fraction(0),
        per_row_passed=Fraction(0),
    )
    only = Call("=", (Column("symbol"), Literal("A", STRING)))
    queries = [query("a", 20, 10), replace(query("b", 20, 10), filter=only), replace(query("c", 10, 5), filter=only)]
    search_problem = SearchProblem.of(queries, Fraction(100), measured(coefficients))
    assert len(search_problem) == 2 and search_problem.item_of.tolist() == [0, 0, 1]
    two_families = 100 * (2 + 2 * 11) + Fraction(1, 10) * (2 * 3 + 5 * 4)
    assert search_problem.tree_cost([0]) == two_families
    assert search_problem.tree_cost([1]) == 100 * (2 + 11) + Fraction(1, 5) * (3 + 5 * 2)
    assert search_problem.tree_cost([0, 1]) == 100 * (2 + 2 * 11) + Fraction(1, 5) * (2 * 3 + 5 * 6)
    assert search_problem.unshared == 3 * 100 * 13 + 2 * Fraction(1, 10) * (3 + 5 * 2) + Fraction(1, 5) * (3 + 5 * 2)


@settings(max_examples=examples(100), deadline=None)
@generated(windows=window_lists(20), rate=RATES)
def test_collapsed_queries_cost_what_single_ones_cost(windows: list[tuple[int, int]], rate: Fraction) -> None:
    apart, collapsed = problem(windows, rate, collapse=False), problem(windows, rate)
    assert collapsed.unshared == apart.unshared == apart.cost([[i] for i in range(len(windows))])
    assert collapsed.cost([list(range(len(collapsed)))]) == apart.cost([list(range(len(windows)))])
    assert collapsed.expand([[i] for i in range(len(collapsed))]) == sorted(m.tolist() for m in collapsed.members)
    assert [int(members[0]) for members in collapsed.members] == sorted(
        int(members[0]) for members in collapsed.members
    )


def test_sums_of_overlap_factors_beyond_doubles_are_exact() -> None:
    count, slide = 1000, 3
    ranges = np.full(count, (10**14 + 1) * slide + 1, dtype=np.int64)
    search_problem = SearchProblem.of_windows(ranges, np.full(count, slide, dtype=np.int64), Fraction(1), PAPER)
    assert search_problem.weights == (count * Fraction(int(ranges[0]), slide),)


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


@generated(
    columns=st.integers(1, 3).flatmap(
        lambda width: st.lists(
            st.tuples(*[st.sampled_from([0, 1, 5, 10**6, 3 * 10**6, 7 * 10**12]) | st.integers(-9, 9)] * width),
            min_size=1,
            max_size=30,
        )
    ),
    direct=st.sampled_from([0, 4, 10**6]),
)
@settings(deadline=None)
def test_rows_are_numbered_by_their_first_appearance(columns: list[tuple[int, ...]], direct: int) -> None:
    """By a table of numbers, or sorted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "DIRECT", direct)
        patch.setattr(cost, "DIRECT_LEAST", 0 if direct == 0 else cost.DIRECT_LEAST)
        numbers, first = cost._numbered(*(np.array(column, dtype=np.int64) for column in zip(*columns, strict=True)))
    distinct = list(dict.fromkeys(columns))
    assert numbers.tolist() == [distinct.index(row) for row in columns]
    assert first.tolist() == [columns.index(row) for row in distinct]
