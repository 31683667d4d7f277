"""Prices as execution pays them: each synopsis at its own edges, in plans, explanations, accounts and re-plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.plan.accounts import accounts
from optimizer.plan.builder import build_plan
from optimizer.plan.explain import explain
from optimizer.plan.prices import payers, tree_cost
from optimizer.search.cost import PAPER, Coefficients, CostModel, measured
from optimizer.synopses.synopsis import synopses_of
from optimizer.windows.edge_counting import edge_rate
from optimizer.workload.values import ACQ, SECOND, Window, Workload
from tests.optimizer.searching import RATES, window_lists
from tests.optimizer.shard_samples import STREAM, above, query, sample
from tests.sizes import examples

Together = Sequence[Sequence[str]]

NONE = Fraction(0)
MODELS = st.sampled_from(
    [
        measured(None, {"trades": 40}),
        # queries that cost as much as rows, so that one tree is not always the cheapest
        measured(Coefficients(NONE, Fraction(1), Fraction(1), NONE, Fraction(1, 9), Fraction(2)), {"trades": 3}),
        measured(Coefficients(Fraction(2), Fraction(1, 3), NONE, Fraction(1), NONE, Fraction(1, 2))),
    ]
)


def queries_of(windows: Sequence[tuple[int, int]], families: Sequence[int]) -> tuple[ACQ, ...]:
    kinds = [query("x"), query("x", None, "a"), query("x", above(1.0)), query("x", above(2.0), "a", "b")]
    return tuple(
        ACQ(f"q{n}", "trades", Window(r * SECOND, s * SECOND), kind.outputs, kind.filter, kind.group_by)
        for n, ((r, s), kind) in enumerate(zip(windows, [kinds[family] for family in families], strict=True))
    )


def paid(queries: Sequence[ACQ], rate: Fraction, model: CostModel, together: Together = ()) -> Fraction:
    """What a tree costs by the rows that its synopses have, written down apart from the code that plans."""
    costs, groups = model.coefficients, model.groups("trades")
    total = NONE
    for synopsis, members in synopses_of(STREAM, queries, together).items():
        edges = edge_rate(synopsis.edges) * SECOND
        passed = sum(
            costs.per_row_passed + costs.per_fragment_combined * member.window.overlap_factor for member in members
        )
        answers = sum(Fraction(SECOND, member.window.slide) for member in members)
        total += rate * (costs.per_tuple + costs.per_family_tuple)
        total += groups * (edges * (costs.per_partial_row + passed) + answers * costs.per_answer)
    return total


def partitions(items: Sequence[ACQ]) -> Iterator[list[list[ACQ]]]:
    if not items:
        yield []
        return
    for partition in partitions(items[1:]):
        yield [[items[0]], *partition]
        for at in range(len(partition)):
            yield [*partition[:at], [items[0], *partition[at]], *partition[at + 1 :]]


FAMILIES = st.lists(st.integers(0, 3), min_size=14, max_size=14)


@settings(max_examples=examples(60), deadline=None)
@given(
    windows=window_lists(14),
    families=FAMILIES,
    rate=RATES,
    model=MODELS,
    algorithm=st.sampled_from(["best", "best", "weave-share", "optimal", "no-share", "shared", "local-search"]),
    shared=st.booleans(),
)
def test_every_price_is_what_execution_pays(
    windows: list[tuple[int, int]],
    families: list[int],
    rate: Fraction,
    model: CostModel,
    algorithm: str,
    shared: bool,
) -> None:
    queries = queries_of(windows, families[: len(windows)])
    two = {(None, ()), (above(1.0), ())}
    names = tuple(query.name for query in queries if (query.filter, query.group_by) in two)
    together = (names,) if shared else ()
    plan = build_plan(Workload(queries, (STREAM,)), {"trades": rate}, algorithm, model, sharing=together)
    for tree, cost in zip(plan.trees, plan.tree_costs, strict=True):
        assert cost == paid(tree.queries, rate, model, tree.together)
        assert cost == tree_cost(tree.queries, rate, model, plan.together)
        # what shares a synopsis anywhere does so wherever it is in one tree
        mates = [name for name in (query.name for query in tree.queries) if shared and name in names]
        kinds = {(query.filter, query.group_by) for query in tree.queries if query.name in mates}
        assert tree.together == ((tuple(mates),) if len(kinds) > 1 else ())
    assert plan.no_share == sum(paid([query], rate, model) for query in queries)
    assert plan.shared == paid(queries, rate, model, together)
    if algorithm in ("best", "optimal"):
        baselines = [plan.no_share, plan.shared, plan.from_scratch, plan.weave_share]
        assert all(plan.cost <= cost for cost in baselines if cost is not None)
    if algorithm == "shared":
        assert plan.cost == plan.shared and len(plan.trees) == 1
    if algorithm == "no-share":
        assert plan.cost == plan.no_share and len(plan.trees) == len(queries)
    if plan.optimal and len(queries) <= 6:
        every = (sum(paid(tree, rate, model, together) for tree in partition) for partition in partitions(queries))
        assert plan.cost == min(every)

    query_accounts = accounts(plan)
    assert sum(account.here for account in query_accounts) == plan.cost
    assert sum(account.alone for account in query_accounts) == plan.no_share
    tree = plan.trees[-1]
    query = tree.queries[-1]
    other_queries = [other for other in tree.queries if other is not query]
    why = explain(plan, query.name)
    remaining_cost = paid(other_queries, rate, model, together) if other_queries else NONE
    assert why.cost_alone == pytest.approx(float(paid([query], rate, model)))
    assert why.cost_here == pytest.approx(float(paid(tree.queries, rate, model, together) - remaining_cost), abs=1e-9)
    for other in why.alternatives:
        tree_queries = plan.tree(other.tree).queries
        more = paid([*tree_queries, query], rate, model, plan.together) - paid(tree_queries, rate, model, plan.together)
        assert other.cost == pytest.approx(float(more), abs=1e-9)


@settings(max_examples=examples(40), deadline=None)
@given(
    windows=window_lists(10),
    families=FAMILIES,
    rates=st.tuples(RATES, RATES),
    model=MODELS,
    tolerance=st.sampled_from([0, Fraction(1, 5), 10]),
    left=st.integers(1, 10),
)
def test_a_plan_that_is_kept_stays_within_its_tolerance(
    windows: list[tuple[int, int]],
    families: list[int],
    rates: tuple[Fraction, Fraction],
    model: CostModel,
    tolerance: Fraction,
    left: int,
) -> None:
    queries = queries_of(windows, families[: len(windows)])
    old = build_plan(Workload(queries[:left], (STREAM,)), {"trades": rates[0]}, "best", model)
    plan = build_plan(
        Workload(queries, (STREAM,)), {"trades": rates[1]}, "best", model, previous=old, tolerance=tolerance
    )
    scratch = build_plan(Workload(queries, (STREAM,)), {"trades": rates[1]}, "best", model)
    assert plan.from_scratch == scratch.cost <= plan.cost <= (1 + tolerance) * scratch.cost
    for tree, cost in zip(plan.trees, plan.tree_costs, strict=True):
        assert cost == paid(tree.queries, rates[1], model)


def test_families_do_not_pay_for_each_others_edges() -> None:
    """Two families whose slides have nothing in common are one tree at no cost; in one family they are apart."""
    costs = Coefficients(NONE, Fraction(1), Fraction(1), NONE, NONE, Fraction(100))
    windows = [(7, 7), (11, 11)]
    of_two = build_plan(Workload(queries_of(windows, [0, 1]), (STREAM,)), {"trades": 1}, "best", measured(costs))
    assert len(of_two.trees) == 1 and of_two.cost == of_two.no_share == of_two.shared and of_two.optimal
    of_one = build_plan(Workload(queries_of(windows, [0, 0]), (STREAM,)), {"trades": 1}, "best", measured(costs))
    assert len(of_one.trees) == 2 and of_one.cost < of_one.shared
    # by the papers' costs a tree's queries pay for all of its fragments, whatever their filters are
    apart = build_plan(Workload(queries_of(windows, [0, 1]), (STREAM,)), {"trades": 1}, "shared", PAPER)
    assert apart.cost == build_plan(Workload(queries_of(windows, [0, 0]), (STREAM,)), {"trades": 1}, "shared").cost


def test_who_was_apart_stays_apart_where_it_costs_the_same() -> None:
    queries = queries_of([(7, 7), (11, 11), (14, 7)], [0, 1, 0])
    workload = Workload(queries, (STREAM,))
    apart = build_plan(workload, {"trades": 1}, "no-share", "measured")
    kept_plan = build_plan(workload, {"trades": 1}, "best", "measured", previous=apart)
    assert [[query.name for query in tree.queries] for tree in kept_plan.trees] == [["q0", "q2"], ["q1"]]
    assert kept_plan.cost == build_plan(workload, {"trades": 1}, "best", "measured").cost
    # a newcomer joins the others of its synopsis
    more = Workload((*queries, *queries_of([(1, 1), (1, 1), (1, 1), (22, 11)], [0, 0, 0, 1])[3:]), (STREAM,))
    grown = build_plan(more, {"trades": 1}, "best", "measured", previous=kept_plan)
    assert [[query.name for query in tree.queries] for tree in grown.trees] == [["q0", "q2"], ["q1", "q3"]]


def test_who_pays_together() -> None:
    queries = queries_of([(2, 1)] * 5, [0, 1, 2, 0, 1])
    assert payers(queries, measured()) == [[0, 3], [1, 4], [2]]
    assert payers(queries, measured(), [("q3", "q1")]) == [[0, 1, 3, 4], [2]]
    assert payers(queries, PAPER) == [[0, 1, 2, 3, 4]]


def test_a_synopsis_of_several_families_is_paid_for_once() -> None:
    a = [i % 50 for i in range(6_000)]
    profile = sample([1.0] * 6_000, a, [key // 10 for key in a])
    queries = (query("fine", None, "a", "b"), query("coarse", None, "a"), query("coarsest", None, "b", seconds=120))
    plan = build_plan(Workload(queries, (STREAM,)), {"trades": 5}, "best", "measured", profiles={"trades": profile})
    assert plan.together == (("fine", "coarse"),)
    assert plan.cost == paid(queries, Fraction(5), plan.model, plan.together) < paid(queries, Fraction(5), plan.model)
