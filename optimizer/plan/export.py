"""A plan as JSON for programs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from optimizer.plan.definition import ExecutionTree, SharingPlan
from optimizer.plan.rhythms import rhythms, summary
from optimizer.schedule.definition import Schedule
from optimizer.workload.values import SECOND


def to_json(plan: SharingPlan) -> dict[str, Any]:
    """The plan as ``heddle plan --json`` prints it (``format_version`` 1).

    Costs are numbers; exact values are strings of fractions, per second. ``composite_slide`` is in seconds.
    ``lower_bound`` is what every plan costs at least, null where that is not known. ``upper_bounds`` names the trees
    and baselines whose edges are too many to be counted exactly: their costs and edge rates are upper bounds, ``edges``
    is null and ``edge_rate_lower`` the lower bound. ``blind`` names the streams that were planned as if a fragment had
    one group, for want of a sample (only there if there are any).
    """
    return {
        "format_version": 1,
        "algorithm": plan.algorithm,
        "optimal": plan.optimal,
        "distinct_edge_sets": plan.distinct_edge_sets,
        "upper_bounds": list(plan.upper_bounds),
        "cost": float(plan.cost),
        "cost_exact": str(plan.cost),
        "lower_bound": None if plan.lower_bound is None else float(plan.lower_bound),
        "cost_model": plan.cost_model,
        **({"blind": list(plan.blind)} if plan.blind else {}),
        "rates": {stream: str(rate) for stream, rate in plan.rates},
        "baselines": {name: None if cost is None else float(cost) for name, cost in plan.baselines.items()},
        "trees": [
            {"id": tree.id, "stream": tree.stream, "queries": [query.name for query in tree.queries]}
            | ({"together": [list(names) for names in tree.together]} if tree.together else {})
            | ({"joined_late": list(tree.late)} if tree.late else {})
            | tree_facts(tree.composite_slide, tree.edge_bounds, tree.overlap_factor, cost)
            | (_row_facts(tree) if tree.kind.counts_rows else {})
            | ({"sequences": [sharing.to_json() for sharing in tree.sequences]} if tree.sequences else {})
            for tree, cost in zip(plan.trees, plan.tree_costs, strict=True)
        ],
        **({"schedules": [_schedule_facts(schedule) for schedule in plan.schedules]} if plan.schedules else {}),
    }


def _schedule_facts(schedule: Schedule) -> dict[str, Any]:
    """Facts of a schedule for JSON; costs in CPU seconds a second, times in seconds."""
    step = _seconds(schedule.step)
    return {
        "step": step,
        "cost": float(schedule.cost / step),
        "baselines": {name: float(cost / step) for name, cost in schedule.costs.items()},
        "proven": schedule.proven,
        "summary": summary(schedule),
        "queries": [
            {
                "query": rhythm.query,
                "at_most": _seconds(rhythm.bound),
                "longest": _seconds(rhythm.longest),
                "average": float(rhythm.average / SECOND),
            }
            for rhythm in rhythms(schedule)
        ],
    }


def tree_facts(
    composite: int, bounds: tuple[Fraction, Fraction], overlap_factor: Fraction, cost: Fraction
) -> dict[str, Any]:
    """Numbers of one tree for JSON. ``composite`` in microseconds, ``bounds`` of its edges per second."""
    low, high = bounds
    return {
        "composite_slide": _seconds(composite),
        "edges": int(high * composite / SECOND) if low == high else None,
        "edge_rate": str(high),
        **({} if low == high else {"edge_rate_lower": str(low)}),
        "overlap_factor": str(overlap_factor),
        "cost": float(cost),
    }


def _row_facts(tree: ExecutionTree) -> dict[str, Any]:
    """Facts that differ for windows of rows: the composite slide is a number of rows."""
    return {"rows_per": list(tree.per or ()), "composite_slide": tree.composite_slide, "edges": tree.edges}


def _seconds(microseconds: int) -> int | float:
    # a composite slide may have thousands of digits, more than a float can hold
    if microseconds % SECOND == 0 or microseconds.bit_length() > 1000:
        return microseconds // SECOND
    return microseconds / SECOND
