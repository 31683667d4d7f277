"""What each query and each tree of a plan costs: the books behind its pages and the savings of owners."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from optimizer.plan.definition import ExecutionTree, SharingPlan
from optimizer.plan.prices import payers, tree_cost
from optimizer.workload.values import ACQ, Window


@dataclass(frozen=True)
class Account:
    """What one query costs per second, in the plan's unit: in a tree of its own, and here.

    Here a query pays for the fragments that its own windows combine and for its answers; what is left, one pass over
    the stream above all, is paid in equal parts by the tree's queries, or those of a synopsis where each pays by
    itself (:mod:`optimizer.plan.prices`). So the parts add up to the plan's cost (what it would cost less without one
    query is :func:`optimizer.plan.explain`'s).
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
        parts = payers(tree.queries, plan.model, plan.together)
        here: dict[str, Fraction] = {}
        for part in parts:
            queries = [tree.queries[number] for number in part]
            one = len(parts) == 1
            edges = tree.edge_rate if one else replace(tree, queries=tuple(queries)).edge_rate
            whole = cost if one else tree_cost(queries, rate, plan.model, plan.together)
            own = {query.name: edges * plan.model.weight(query) + plan.model.constant(query) for query in queries}
            rest = (whole - sum(own.values())) / len(own)
            here |= {name: paid + rest for name, paid in own.items()}
        # nothing, but where edges are bounded: more can be counted of less
        left = (cost - sum(here.values())) / len(here)
        for query in tree.queries:
            if (tree.stream, query.window) not in known:
                known[tree.stream, query.window] = tree_cost([query], rate, plan.model)
            found.append(Account(query, tree.id, known[tree.stream, query.window], here[query.name] + left))
    return found


def dearest(plan: SharingPlan, most: int) -> list[tuple[ExecutionTree, Fraction]]:
    """The at most ``most`` trees that cost most, in the plan's order, each with its cost per second."""
    priced = list(zip(plan.trees, plan.tree_costs, strict=True))
    chosen = sorted(range(len(priced)), key=lambda number: (-priced[number][1], number))[:most]
    return [priced[number] for number in sorted(chosen)]
