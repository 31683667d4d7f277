"""The plan after a change of queries or rates, as a preview. Nothing is stored, and no JVM is started.

It is planned as in a refresh, with a sample of each stream whose source can be read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from optimizer.errors.diagnostics import HeddleError, meant
from optimizer.plan.definition import SharingPlan
from optimizer.plan.diff import PlanDiff, diff
from optimizer.plan.prices import tree_cost
from optimizer.search.cost import CostModel
from optimizer.workload.values import ACQ, Workload
from spark_jobs.pipeline.planning.plan_workload import replan
from spark_jobs.pipeline.planning.requested import parse_rate

_RATE = re.compile(r"\s*(.*\S)\s*([=×x*])\s*([0-9.][0-9./eE+-]*)\s*", re.DOTALL)


@dataclass(frozen=True)
class RateChange:
    """The rate of a stream: tuples per second, or what its rate is multiplied by."""

    stream: str
    number: Fraction
    is_factor: bool

    @classmethod
    def parse(cls, text: str) -> RateChange:
        """``STREAM=N``, ``STREAMxN`` or ``STREAM×N``. Raises HDL-112."""
        match = _RATE.fullmatch(text)
        try:
            if match is not None:
                return cls(match[1], parse_rate(match[3]), match[2] != "=")
        except HeddleError:
            pass
        raise HeddleError(
            "HDL-112", f"{text!r} is no rate", "e.g. trades=1200 (tuples a second) or tradesx3 (a factor)"
        )


@dataclass(frozen=True)
class WhatIf:
    """A plan as it is, and after a change; all costs per second under one cost model.

    ``kept``: cost after the change without planning again: today's trees without the removed queries, and each new
    query in a tree of its own.
    """

    before: SharingPlan
    kept: Fraction
    after: SharingPlan
    diff: PlanDiff


def what_if(
    base: SharingPlan,
    add: Sequence[ACQ] = (),
    remove: Collection[str] = (),
    changes: Sequence[RateChange] = (),
    streams: Workload | None = None,
    rates: Mapping[str, Fraction] | None = None,
    algorithm: str | None = None,
    model: CostModel | None = None,
) -> WhatIf:
    """Plan again after a change, and compare with the plan as it is.

    Parameters
    ----------
    add, remove
        Queries to add (one with the name of another replaces it), names of queries to remove.
    changes
        Changes of rates; the last one of a stream wins.
    streams, rates
        Declarations of the streams of ``add``, and the rates of those that the plan does not read.
    algorithm, model
        Replacements for the plan's own. ``model`` also prices the plan as it is.

    Raises
    ------
    HeddleError
        HDL-507 for a query to remove that does not exist, HDL-407 for a rate of an unknown stream, HDL-450 for a
        stream without a rate.
    """
    queries = {query.name: query for query in base.workload.queries}
    if unknown := [name for name in remove if name not in queries]:
        raise HeddleError("HDL-507", f"there is no query {unknown[0]} in the plan", meant(unknown[0], queries))
    changed_queries = {name: query for name, query in queries.items() if name not in remove} | {
        query.name: query for query in add
    }
    declared = {stream.name: stream for stream in (*(streams.streams if streams else ()), *base.workload.streams)}
    new_rates = {**(rates or {}), **dict(base.rates)}
    for change in changes:
        if change.stream not in new_rates:
            raise HeddleError("HDL-407", f"a rate is given for {change.stream}, which the plan does not read")
        new_rates[change.stream] = change.number * (new_rates[change.stream] if change.is_factor else 1)
    workload = Workload(tuple(changed_queries.values()), tuple(declared.values()))
    after = replan(base, workload, new_rates, algorithm, model, keeps_trees=False)
    # with the groups a fragment that a sample has shown
    before = base if after.model == base.model else _repriced(base, after.model)
    return WhatIf(before, _kept(base, changed_queries, new_rates, after.model), after, diff(before, after))


def _repriced(plan: SharingPlan, model: CostModel) -> SharingPlan:
    costs = [
        tree_cost(plan.as_stored(tree.queries), plan.rate(tree.stream), model, tree.together) for tree in plan.trees
    ]
    return replace(plan, model=model, tree_costs=tuple(costs))


def _kept(base: SharingPlan, wanted: Mapping[str, ACQ], rates: Mapping[str, Fraction], model: CostModel) -> Fraction:
    trees: list[list[ACQ]] = []
    alone = dict(wanted)
    for tree in base.trees:
        stay = [wanted[query.name] for query in tree.queries if query.name in wanted]
        stay = [query for query in stay if query.stream == tree.stream]
        trees += [base.as_stored(stay)] if stay else []
        for query in stay:
            del alone[query.name]
    trees += [[query] for query in alone.values()]
    return sum((tree_cost(queries, rates[queries[0].stream], model, base.together) for queries in trees), Fraction(0))
