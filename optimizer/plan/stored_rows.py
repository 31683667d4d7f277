"""A plan as rows of the table ``sharing_plans``, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from optimizer.plan.definition import ExecutionTree, SharingPlan
from optimizer.schedule.definition import Schedule
from optimizer.search.cost import CostModel
from optimizer.synopses.joining import JoinPrice
from optimizer.workload import values
from optimizer.workload.declarations import all_columns, declaration_digest
from optimizer.workload.values import ACQ, Stream, Workload

DECLARATION = '"declaration": '
"""Key in JSON rows: the declaration digest under which a plan has its stream."""


def to_rows(plan: SharingPlan) -> list[dict[str, Any]]:
    """The plan as rows of ``sharing_plans``: one per tree and query.

    Numbers that may exceed a column type (counts, fractions) are strings; costs are also given as floats.
    A plan without queries has no rows.
    """
    streams = {stream.name: _text(values.to_json(stream)) for stream in plan.workload.streams}
    declared = {
        stream.name: declaration_digest(stream, all_columns(stream), in_order=True) for stream in plan.workload.streams
    }
    position = {query.name: number for number, query in enumerate(plan.workload.queries)}
    prices = {price.query: price for price in plan.joins}
    schedules = _text([schedule.to_json() for schedule in plan.schedules]) if plan.schedules else None
    plan_columns = {
        "fingerprint": plan.fingerprint,
        "workload_fingerprint": plan.workload.fingerprint,
        "algorithm": plan.algorithm,
        "cost_model": plan.cost_model,
        "cost_model_definition": _text(plan.model.to_json()),
        "plan_cost": float(plan.cost),
        "plan_cost_exact": str(plan.cost),
        "no_share_cost": float(plan.no_share),
        "no_share_cost_exact": str(plan.no_share),
        "shared_cost": float(plan.shared),
        "shared_cost_exact": str(plan.shared),
        "weave_share_cost_exact": None if plan.weave_share is None else str(plan.weave_share),
        "optimal": plan.optimal,
        "upper_bounds": list(plan.upper_bounds),
        "distinct_edge_sets": plan.distinct_edge_sets,
        "from_scratch_cost_exact": None if plan.from_scratch is None else str(plan.from_scratch),
        "lower_bound_exact": None if plan.lower_bound is None else str(plan.lower_bound),
    }
    return [
        plan_columns
        | {
            "stream": tree.stream,
            "stream_position": list(streams).index(tree.stream),
            "stream_definition": streams[tree.stream],
            "declaration": declared[tree.stream],
            "rate": float(plan.rate(tree.stream)),
            "rate_exact": str(plan.rate(tree.stream)),
            "tree_id": tree.id,
            "tree_position": number,
            "tree_cost": float(cost),
            "tree_cost_exact": str(cost),
            "composite_slide": str(tree.composite_slide),
            "edges": None if tree.edges is None else str(tree.edges),
            "edge_rate": str(tree.edge_rate),
            "edge_rate_lower": str(tree.edge_bounds[0]),
            "overlap_factor": str(tree.overlap_factor),
            "query": query.name,
            "query_position": position[query.name],
            "schedules": schedules if position[query.name] == 0 else None,
            "tick": tree.tick,
            # earlier versions stored which pieces of patterns to share
            "sequence_plan": None,
            "together": next((number for number, names in enumerate(tree.together) if query.name in names), None),
            "query_fingerprint": query.fingerprint,
            "query_definition": _text(values.to_json(query)),
        }
        | ({"late": True} if query.name in tree.late else {})
        | ({"join_price": prices[query.name].to_json()} if query.name in prices else {})
        for number, (tree, cost) in enumerate(zip(plan.trees, plan.tree_costs, strict=True))
        for query in tree.queries
    ]


def from_rows(rows: Iterable[Mapping[str, Any]]) -> SharingPlan:
    """Inverse of :func:`to_rows`, from the rows of one plan in any order; other columns are ignored.

    Raises
    ------
    ValueError
        No rows, or rows that are not one complete plan.
    """
    ordered = sorted(rows, key=lambda row: row["query_position"])
    if not ordered:
        raise ValueError("a plan has at least one row")
    if len({row["fingerprint"] for row in ordered}) > 1:
        raise ValueError("rows of several plans")
    streams: dict[int, tuple[Stream, Fraction]] = {}
    queries_by_tree: dict[int, list[ACQ]] = {}
    about: dict[int, Mapping[str, Any]] = {}
    sharing: dict[int, list[list[str]]] = {}
    late: dict[int, list[str]] = {}
    prices: list[JoinPrice] = []
    spans: dict[str, list[Any]] = {}
    queries: list[ACQ] = []
    for row in ordered:
        query: ACQ = _stored_value(row["query_definition"])
        queries.append(query)
        queries_by_tree.setdefault(row["tree_position"], []).append(query)
        together = sharing.setdefault(row["tree_position"], [])
        if (place := row.get("together")) is not None:
            together += [[] for _ in range(place + 1 - len(together))]
            together[place].append(query.name)
        if row.get("late"):
            late.setdefault(row["tree_position"], []).append(query.name)
        if row.get("join_price"):
            prices.append(JoinPrice.from_json(row["join_price"]))
        if row.get("sequence_plan"):
            spans.setdefault(row["tree_id"], []).append(_shared_spans(json.loads(row["sequence_plan"])))
        about[row["tree_position"]] = row
        stream: Stream = _stored_value(row["stream_definition"])
        streams[row["stream_position"]] = (stream, Fraction(row["rate_exact"]))
    first = ordered[0]
    numbers = sorted(queries_by_tree)
    known = [streams[number] for number in sorted(streams)]
    trees = []
    for number in numbers:
        row = about[number]
        tree = ExecutionTree(
            row["tree_id"],
            row["stream"],
            tuple(queries_by_tree[number]),
            row.get("tick", 1),
            tuple(map(tuple, sharing[number])),
            tuple(late.get(number, ())),
        )
        tree.__dict__["edge_bounds"] = (
            Fraction(row.get("edge_rate_lower", row["edge_rate"])),
            Fraction(row["edge_rate"]),
        )
        trees.append(tree)
    greedy, scratch, least = (
        None if first.get(name) is None else Fraction(first[name])
        for name in ("weave_share_cost_exact", "from_scratch_cost_exact", "lower_bound_exact")
    )
    # rows of older versions have no cost of a Shared plan that they could not count
    shared = first["shared_cost_exact"] or "0"
    plan = SharingPlan(
        tuple(trees),
        Workload(tuple(queries), tuple(stream for stream, _ in known)),
        first["algorithm"],
        CostModel.from_json(json.loads(first["cost_model_definition"])),
        tuple((stream.name, rate) for stream, rate in known),
        tuple(Fraction(about[n]["tree_cost_exact"]) for n in numbers),
        Fraction(first["no_share_cost_exact"]),
        Fraction(shared),
        greedy,
        bool(first.get("optimal", False)),
        tuple(first.get("upper_bounds", ())),
        first.get("distinct_edge_sets", 0),
        scratch,
        tuple(Schedule.from_json(schedule) for schedule in json.loads(first.get("schedules") or "[]")),
        least,
        tuple(prices),
    )
    if (
        plan.fingerprint_with({tree: sorted(shared_spans) for tree, shared_spans in spans.items()})
        != first["fingerprint"]
    ):
        raise ValueError(f"rows of plan {first['fingerprint']} are incomplete or altered")
    return plan


@lru_cache(1 << 14)
def _stored_value(text: str) -> Any:
    """A query or a stream, from its JSON: each row repeats its stream, and versions of a plan most of their queries."""
    return values.from_json(json.loads(text))


def _shared_spans(sequence_plan: Mapping[str, Any]) -> list[list[Any]]:
    """[name, shared spans] of the queries of a sequence sharing plan that an earlier version stored."""
    return [
        [query["name"], [[each["begin"], each["end"]] for each in query["segments"] if each["shared"]]]
        for query in sequence_plan["queries"]
    ]


def _text(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))
