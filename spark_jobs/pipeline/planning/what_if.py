"""What a plan would become if queries came or went or rates changed. Nothing is stored, and no JVM is started.

It is planned as a refresh would, by a sample of each stream whose source can be read.
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
        found = _RATE.fullmatch(text)
        try:
            if found is not None:
                return cls(found[1], parse_rate(found[3]), found[2] != "=")
        except HeddleError:
            pass
        raise HeddleError(
            "HDL-112", f"{text!r} is no rate", "e.g. trades=1200 (tuples a second) or tradesx3 (a factor)"
        )


@dataclass(frozen=True)
class WhatIf:
    """A plan as it is, and as it would be; all costs per second under one cost model.

    ``kept``: cost after the change without planning again: today's trees less the queries that went, and each new
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
    """Plan again after a change, beside the plan as it is.

    Parameters
    ----------
    add, remove
        Queries to add (one that has the name of another replaces it), names of queries to leave out.
    changes
        Of rates; the last one of a stream wins.
    streams, rates
        Where the streams of ``add`` are declared, and the rates of those that the plan does not read.
    algorithm, model
        Other than the plan's. The plan as it is, too, is priced by ``model``.

    Raises
    ------
    HeddleError
        HDL-507 for a query to remove that is not there, HDL-407 for a rate of an unknown stream, HDL-450 for a stream
        without a rate.
    """
    held = {query.name: query for query in base.workload.queries}
    if unknown := [name for name in remove if name not in held]:
        raise HeddleError("HDL-507", f"there is no query {unknown[0]} in the plan", meant(unknown[0], held))
    wanted = {name: query for name, query in held.items() if name not in remove} | {query.name: query for query in add}
    declared = {stream.name: stream for stream in (*(streams.streams if streams else ()), *base.workload.streams)}
    found = {**(rates or {}), **dict(base.rates)}
    for change in changes:
        if change.stream not in found:
            raise HeddleError("HDL-407", f"a rate is given for {change.stream}, which the plan does not read")
        found[change.stream] = change.number * (found[change.stream] if change.is_factor else 1)
    workload = Workload(tuple(wanted.values()), tuple(declared.values()))
    after = replan(base, workload, found, algorithm, model, keeps_trees=False)
    # with the groups a fragment that a sample has shown
    before = base if after.model == base.model else _repriced(base, after.model)
    return WhatIf(before, _kept(base, wanted, found, after.model), after, diff(before, after))


def _repriced(plan: SharingPlan, model: CostModel) -> SharingPlan:
    costs = [tree_cost(tree.queries, plan.rate(tree.stream), model, tree.together) for tree in plan.trees]
    return replace(plan, model=model, tree_costs=tuple(costs))


def _kept(base: SharingPlan, wanted: Mapping[str, ACQ], rates: Mapping[str, Fraction], model: CostModel) -> Fraction:
    trees: list[list[ACQ]] = []
    alone = dict(wanted)
    for tree in base.trees:
        stay = [wanted[query.name] for query in tree.queries if query.name in wanted]
        stay = [query for query in stay if query.stream == tree.stream]
        trees += [stay] if stay else []
        for query in stay:
            del alone[query.name]
    trees += [[query] for query in alone.values()]
    return sum((tree_cost(queries, rates[queries[0].stream], model, base.together) for queries in trees), Fraction(0))
