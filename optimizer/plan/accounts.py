"""What each query and each tree of a plan costs: the books behind its pages and the savings of owners."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from optimizer.plan.definition import ExecutionTree, SharingPlan
from optimizer.search.cost import SearchProblem
from optimizer.workload.values import ACQ, Window


@dataclass(frozen=True)
class Account:
    """What one query costs per second, in the plan's unit: in a tree of its own, and here.

    Here a query pays for the fragments that its own windows combine and for its answers; what is left of its
    tree's cost, one pass over the stream above all, the tree's queries pay in equal parts. So the parts add up to
    the plan's cost (what it would cost less without one query is :func:`optimizer.plan.explain`'s).
    """

    query: ACQ
    tree: str
    alone: Fraction
    here: Fraction


def accounts(plan: SharingPlan) -> list[Account]:
    """The account of every query, by tree. The sum of ``here`` is the plan's cost, of ``alone`` No Share's."""
    known: dict[tuple[str, Window], Fraction] = {}
    found = []
    for tree, cost in zip(plan.trees, plan.tree_costs, strict=True):
        rate = plan.rate(tree.stream)
        own = [tree.edge_rate * plan.model.weight(query) + plan.model.constant(query) for query in tree.queries]
        rest = (cost - sum(own)) / len(own)
        for query, part in zip(tree.queries, own, strict=True):
            if (tree.stream, query.window) not in known:
                known[tree.stream, query.window] = SearchProblem.of([query], rate, plan.model).tree_cost([0])
            found.append(Account(query, tree.id, known[tree.stream, query.window], part + rest))
    return found


def dearest(plan: SharingPlan, most: int) -> list[tuple[ExecutionTree, Fraction]]:
    """The at most ``most`` trees that cost most, in the plan's order, each with its cost per second."""
    priced = list(zip(plan.trees, plan.tree_costs, strict=True))
    chosen = sorted(range(len(priced)), key=lambda number: (-priced[number][1], number))[:most]
    return [priced[number] for number in sorted(chosen)]
