"""Explain the place of a query in a plan: its companions, its cost in a tree of its own and in other trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from optimizer.plan.definition import ENUMERATED_TICKS, NEAREST_SHOWN, ExecutionTree, SharingPlan
from optimizer.plan.fine_partials import described_fine
from optimizer.plan.prices import payers, tree_cost
from optimizer.plan.rhythms import explained
from optimizer.search.cost import edges_per_second
from optimizer.windows.edge_counting import weaveability
from optimizer.windows.edge_sets import edge_set
from optimizer.workload.attributes import described_joins
from optimizer.workload.values import ACQ, SECOND, Window


@dataclass(frozen=True)
class Companion:
    """A query in the same tree. ``weaveability``: common edges of the two over all their edges."""

    query: str
    weaveability: float


@dataclass(frozen=True)
class Alternative:
    """Another tree that the query could be in.

    ``cost``: what that tree's cost would rise by, in the model's unit per second; ``difference``: what the
    plan's would (positive: the plan is cheaper as it is); ``edge_rate`` and ``edge_rate_with``: the edges per second
    that the query would pay for there, without and with it (upper bounds where there are more than can be counted
    exactly).
    """

    tree: str
    cost: float
    difference: float
    edge_rate: float
    edge_rate_with: float


@dataclass(frozen=True)
class Explanation:
    """Reasons why a query is in its tree. Costs are per second in the cost model's unit.

    cost_alone
        Cost of a tree with only this query.
    cost_here
        Amount that its tree would cost less without it.
    saving
        Amount by which the plan's cost would rise if the query left its tree.
    alternatives
        The other trees of the stream, nearest first.
    edge_rate_*
        Rates of the queries that pay for the same fragments (:mod:`optimizer.plan.prices`): with measured costs,
        those of the query's synopsis.
    model_operations
        E * r/s, the combined fragments per second that the model charges.
    true_operations
        As counted over the windows of a composite slide, in fragments of the query's synopsis. None if the
        composite slide is too long to enumerate.
    sequence
        The prefixes of an event sequence that a run shares, in words.
    refresh
        When and why a query with a refresh bound is answered, in words.
    joins
        The dimensions that the query joins, how and why, in words.
    fine
        What of its fragments is dropped once levels cover them, in words.
    """

    query: str
    tree: str
    cost_model: str
    companions: tuple[Companion, ...]
    cost_alone: float
    cost_here: float
    saving: float
    edge_rate_alone: float
    edge_rate_tree: float
    edge_rate_tree_lower: float
    optimal: bool
    alternatives: tuple[Alternative, ...]
    model_operations: float
    true_operations: float | None
    sequence: tuple[str, ...] = ()
    refresh: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    fine: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The explanation as ``heddle explain --json`` prints it."""
        facts = {name: value for name, value in asdict(self).items() if value or name not in ("joins", "fine")}
        return {"format_version": 1} | facts

    def lines(self) -> list[str]:
        """The explanation as plain text."""
        text_lines = [f"{self.query} is in tree {self.tree}" + ("" if self.companions else ", alone")]
        if self.companions:
            text_lines.append("shares with (common edges / all edges):")
            text_lines += [f"  {other.query}  {other.weaveability:.2f}" for other in self.companions]
        text_lines.append(
            f"cost alone {self.cost_alone:.6g}, in this tree {self.cost_here:.6g}: saves {self.saving:.6g}"
        )
        text_lines.append(f"edges per second alone {self.edge_rate_alone:.6g}, in this tree {self.edge_rate_tree:.6g}")
        if self.edge_rate_tree_lower != self.edge_rate_tree:
            text_lines.append(
                "  estimated: the tree has more edges than can be counted exactly, between "
                f"{self.edge_rate_tree_lower:.6g} and {self.edge_rate_tree:.6g}; the upper bound decided"
            )
        if self.optimal:
            text_lines.append("the plan is proven optimal: no other grouping of the queries is cheaper")
        if not self.alternatives:
            text_lines.append("there is no other tree on this stream")
        for number, other in enumerate(self.alternatives[:NEAREST_SHOWN]):
            label = "nearest other tree" if number == 0 else "other tree"
            verdict = "dearer" if other.difference >= 0 else "cheaper (the search ended before it tried this move)"
            text_lines.append(
                f"{label} {other.tree}: its edges per second {other.edge_rate:.6g} -> "
                f"{other.edge_rate_with:.6g}; cost there {other.cost:.6g}, "
                f"plan {abs(other.difference):.6g} {verdict}"
            )
        if (hidden := len(self.alternatives) - NEAREST_SHOWN) > 0:
            text_lines.append(f"and {hidden} trees further away")
        true = "not enumerable" if self.true_operations is None else f"{self.true_operations:.6g}"
        text_lines.append(f"fragments combined per second: model {self.model_operations:.6g}, true {true}")
        return [*text_lines, *self.joins, *self.sequence, *self.fine, *self.refresh]


def explain(plan: SharingPlan, query_name: str) -> Explanation:
    """Explain which queries a query shares with and why, its cost alone, and why it is in no other tree.

    Raises
    ------
    KeyError
        The plan has no such query.
    """
    tree = plan.tree_of(query_name)
    query = plan.workload.query(query_name)
    rate = plan.rate(tree.stream)

    def cost(queries: Sequence[ACQ]) -> Fraction:
        return tree_cost(plan.as_stored(queries), rate, plan.model, plan.together) if queries else Fraction(0)

    paying = _paying(plan, tree, query)
    other_queries = tuple(other for other in tree.queries if other.name != query_name)
    alone = cost([query])
    cost_here = cost(tree.queries) - cost(other_queries)
    edges = edge_set(query.window)
    companions = (Companion(o.name, float(weaveability(edges, edge_set(o.window)))) for o in other_queries)
    own_rate = edges_per_second(edges) / tree.tick
    return Explanation(
        query_name,
        tree.id,
        plan.cost_model,
        tuple(sorted(companions, key=lambda other: -other.weaveability)),
        float(alone),
        float(cost_here),
        float(alone - cost_here),
        float(own_rate),
        float(paying.edge_rate),
        float(paying.edge_bounds[0]),
        plan.optimal,
        _alternatives(plan, tree, query, cost_here, cost),
        float(paying.edge_rate * query.window.overlap_factor),
        _float(true_operations(tree.of_synopsis(plan.workload.stream(tree.stream), query), query)),
        tuple(
            line for sharing in tree.sequences if query_name in sharing.patterns for line in sharing.explain(query_name)
        ),
        explained(plan.schedules, query_name),
        (
            *described_joins(query.columns()),
            *(line for price in plan.joins if price.query == query_name for line in price.lines()),
        ),
        described_fine(plan, query_name),
    )


def _paying(plan: SharingPlan, tree: ExecutionTree, query: ACQ) -> ExecutionTree:
    """The part of a tree whose queries pay for the same fragments as one of them."""
    for part in payers(plan.as_stored(tree.queries), plan.model, plan.together):
        mates = tuple(tree.queries[number] for number in part)
        if query in mates and len(mates) < len(tree.queries):
            return replace(tree, queries=mates)
    return tree


def _alternatives(
    plan: SharingPlan,
    tree: ExecutionTree,
    query: ACQ,
    here: Fraction,
    cost: Callable[[Sequence[ACQ]], Fraction],
) -> tuple[Alternative, ...]:
    alternatives = []
    for other in plan.trees:
        if other.stream != tree.stream or other.id == tree.id or other.queries[0].domain != query.domain:
            continue
        joined = ExecutionTree(other.id, other.stream, (*other.queries, query), other.tick)
        cost_there = cost(joined.queries) - cost(other.queries)
        paying = _paying(plan, joined, query)
        mates = tuple(mate for mate in paying.queries if mate is not query)
        before = other.edge_rate if len(mates) == len(other.queries) else Fraction(0)
        if mates and len(mates) < len(other.queries):
            before = replace(other, queries=mates).edge_rate
        alternatives.append(
            Alternative(other.id, float(cost_there), float(cost_there - here), float(before), float(paying.edge_rate))
        )
    return tuple(sorted(alternatives, key=lambda a: a.cost))


def true_operations(tree: ExecutionTree, query: ACQ) -> Fraction | None:
    """Fragments of its tree that a query really combines per second, averaged over a composite slide.

    With r = m*s + f, the first m slides of the windows tile time and hold E*s fragments each on average;
    what is enumerated are the fragments in the first f of a slide. None if f > 0 and the composite slide is
    longer than :data:`ENUMERATED_TICKS` of the tree's common divisor, or the windows are not equally long. Cuts at
    midnight are not counted.
    """
    operations = Fraction(0)
    for window in query.window.each:
        combined = _true_operations(tree, window)
        if combined is None:
            return None
        operations += combined
    return operations


def _true_operations(tree: ExecutionTree, window: Window) -> Fraction | None:
    if window.cumulative or window.calendar is not None or window.gap is not None or window.since is not None:
        return None
    slide, shift_back = window.slide, window.ago - window.offset
    full_slides, inner = divmod(window.range, slide)
    operations = full_slides * tree.edge_rate
    if inner:
        unit = np.gcd.reduce([number for edge in tree.fragments.edges for number in (*edge, slide, inner, shift_back)])
        period = tree.composite_slide // int(unit)
        if period > ENUMERATED_TICKS:
            return None
        marks = np.zeros(period, dtype=np.bool_)
        for step, shift in tree.fragments.edges:
            marks[shift // unit :: step // unit] = True
        # a historical window starts `ago` before a multiple of the slide, a shifted one behind it
        marks = np.roll(marks, shift_back // int(unit) % period)
        within = int(marks.reshape(-1, slide // int(unit))[:, : inner // int(unit)].sum())
        operations += Fraction(within * SECOND, tree.composite_slide * tree.tick)
    return operations * Fraction(slide, window.period)


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
