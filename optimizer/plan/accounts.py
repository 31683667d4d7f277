"""Accounts of a plan: the cost of each query and each tree, for the plan's pages and the savings of owners."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from optimizer.plan.definition import ExecutionTree, SharingPlan
from optimizer.plan.prices import payers, tree_cost
from optimizer.workload.values import ACQ, Window


@dataclass(frozen=True)
class Account:
    """Cost of one query per second, in the plan's unit: in a tree of its own (``alone``), and in its tree (``here``).

    ``here``: the query pays for the fragments that its own windows combine, and for its answers. The remaining cost
    is mostly one pass over the stream. The tree's queries pay it in equal parts, or the queries of a synopsis if
    each synopsis pays by itself (:mod:`optimizer.plan.prices`). So the parts add up to the plan's cost.
    (:func:`optimizer.plan.explain` returns the cost that the plan would save without a query.)
    """

    query: ACQ
    tree: str
    alone: Fraction
    here: Fraction


def accounts(plan: SharingPlan) -> list[Account]:
    """The account of every query, by tree. The sum of ``here`` is the plan's cost, of ``alone`` No Share's."""
    known: dict[tuple[str, Window], Fraction] = {}
    query_accounts = []
    for tree, cost in zip(plan.trees, plan.tree_costs, strict=True):
        rate = plan.rate(tree.stream)
        parts = payers(plan.as_stored(tree.queries), plan.model, plan.together)
        paid_by_name: dict[str, Fraction] = {}
        for part in parts:
            queries = [tree.queries[number] for number in part]
            is_single_part = len(parts) == 1
            edges = tree.edge_rate if is_single_part else replace(tree, queries=tuple(queries)).edge_rate
            part_cost = cost if is_single_part else tree_cost(plan.as_stored(queries), rate, plan.model, plan.together)
            own = {query.name: edges * plan.model.weight(query) + plan.model.constant(query) for query in queries}
            common_share = (part_cost - sum(own.values())) / len(own)
            paid_by_name |= {name: paid + common_share for name, paid in own.items()}
        # nothing, but where edges are bounded: more can be counted of less
        remainder = (cost - sum(paid_by_name.values())) / len(paid_by_name)
        for query in tree.queries:
            if (tree.stream, query.window) not in known:
                known[tree.stream, query.window] = tree_cost([query], rate, plan.model)
            query_accounts.append(
                Account(query, tree.id, known[tree.stream, query.window], paid_by_name[query.name] + remainder)
            )
    return query_accounts


def dearest(plan: SharingPlan, most: int) -> list[tuple[ExecutionTree, Fraction]]:
    """The at most ``most`` trees that cost most, in the plan's order, each with its cost per second."""
    priced = list(zip(plan.trees, plan.tree_costs, strict=True))
    chosen = sorted(range(len(priced)), key=lambda number: (-priced[number][1], number))[:most]
    return [priced[number] for number in sorted(chosen)]
