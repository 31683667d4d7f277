"""Sharing plans: which queries share which execution tree, what that costs, and why.

A plan is frozen data. Building it has no side effects; :func:`explain`, :func:`diff`, the stored rows and
execution read the same value.

References
----------
Guirguis et al., Weave Share, CIKM 2011: section 3 (execution trees), Eqs. 1-3 (costs).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from optimizer import query as values
from optimizer.cost import PAPER, Coefficients, CostModel, SearchProblem, cost_model, edges_per_second, tick_of
from optimizer.edges import edge_bounds, edge_set, weaveability
from optimizer.errors import HeddleError
from optimizer.query import ACQ, SECOND, Stream, Window, Workload
from optimizer.refreshes import changes, decision, explained, rhythms, schedules_of, summary
from optimizer.schedule import Schedule
from optimizer.search import ALGORITHMS, SECONDS, find, keep
from optimizer.sequence_plans import sequence_plans
from optimizer.shards import Profile, bases, choose
from optimizer.sharon import SequenceDiff, SequencePlan
from optimizer.synopsis import Family, Synopsis, synopses_of
from optimizer.window import Fragments, composite_slide, progressions

# composite slides and exact costs have as many digits as they have
sys.set_int_max_str_digits(0)

ENUMERATED_TICKS = 1 << 22
"""Longest composite slide, in ticks, over which the fragments of a query's windows are enumerated."""

NAMED = 8
"""Queries of one kind that a difference's text names; its JSON has all of them."""

NEAREST_SHOWN = 5
"""Other trees that an explanation's text lists; its JSON has all of them."""


@dataclass(frozen=True)
class ExecutionTree:
    """Queries of one stream that share one sequence of fragments. ``id`` is like ``"trades-1"``.

    ``tick``: microseconds of one unit of its windows: 1, or for windows of rows what a row takes on average.
    ``together``: names of queries that share a synopsis, where that is cheaper than one a filter and group-by
    (:mod:`optimizer.shards`). ``sequences``: of event sequences, which patterns are shared
    (:mod:`optimizer.sequence_plans`).
    """

    id: str
    stream: str
    queries: tuple[ACQ, ...]
    tick: int = 1
    together: tuple[tuple[str, ...], ...] = ()
    sequences: tuple[SequencePlan, ...] = ()

    def __post_init__(self) -> None:
        if not self.queries:
            raise ValueError(f"tree {self.id} has no query")
        strangers = [query.name for query in self.queries if query.stream != self.stream]
        if strangers:
            raise ValueError(f"tree {self.id} of stream {self.stream} holds queries of other streams: {strangers}")
        if len({query.domain for query in self.queries}) > 1:
            raise ValueError(
                f"tree {self.id} holds windows of time and of rows, or of rows that are counted differently, "
                "or event sequences beside others"
            )

    @property
    def windows(self) -> tuple[Window, ...]:
        return tuple(query.window for query in self.queries)

    @cached_property
    def composite_slide(self) -> int:
        """Period of the tree's edges (LCM of the slides): microseconds, or rows."""
        return composite_slide(self.windows)

    @cached_property
    def edge_bounds(self) -> tuple[Fraction, Fraction]:
        """Edges per second from below and above: equal unless they are too many to be counted exactly."""
        low, high = edge_bounds(progressions(self.windows))
        return low * SECOND / self.tick, high * SECOND / self.tick

    @property
    def edge_rate(self) -> Fraction:
        """E: edges, so fragments, per second; the upper bound where they cannot be counted exactly."""
        return self.edge_bounds[1]

    @property
    def is_exact(self) -> bool:
        """Could the edges be counted exactly?"""
        return self.edge_bounds[0] == self.edge_bounds[1]

    @property
    def edges(self) -> int | None:
        """Edges per composite slide; None where they cannot be counted exactly."""
        return int(self.edge_rate * self.composite_slide * self.tick / SECOND) if self.is_exact else None

    @property
    def overlap_factor(self) -> Fraction:
        """Omega: sum of r/s of the queries (Weave Share Eq. 2)."""
        return sum((window.overlap_factor for window in self.windows), Fraction(0))

    @cached_property
    def fragments(self) -> Fragments:
        """Where the tree cuts time, or rows."""
        return Fragments.of(self.windows)

    @property
    def per(self) -> tuple[str, ...] | None:
        """How its rows are counted (:class:`optimizer.query.Window`); None for windows of time."""
        return self.queries[0].window.per


@dataclass(frozen=True)
class SharingPlan:
    """A partition of a workload into execution trees, with its costs.

    Costs are per second, in the cost model's unit (operations for ``paper``, CPU seconds for ``measured``).

    Attributes
    ----------
    trees
        By stream in the workload's order, then by first query.
    workload
        The planned queries, and the streams that they read.
    algorithm
        A name of :data:`ALGORITHMS`.
    model
        The cost model that decided.
    rates
        (stream, tuples per second) in the workload's order of streams.
    tree_costs
        Cost of each of ``trees``.
    no_share, shared, weave_share
        Costs of the baseline plans; ``weave_share`` is None where it was not computed.
    optimal
        Is it proven that no plan is cheaper?
    upper_bounds
        Names of trees and baselines with more edges than can be counted exactly: their costs are certified upper
        bounds, and no decision of the search relied on less.
    distinct_edge_sets
        Summed over the streams.
    from_scratch
        Cost of the plan from scratch, which is dearer to switch to where this one was kept (None: not known).
    schedules
        When queries with a refresh bound are answered, by the steps of their streams (:mod:`optimizer.refreshes`).
    """

    trees: tuple[ExecutionTree, ...]
    workload: Workload
    algorithm: str
    model: CostModel
    rates: tuple[tuple[str, Fraction], ...]
    tree_costs: tuple[Fraction, ...]
    no_share: Fraction
    shared: Fraction
    weave_share: Fraction | None = None
    optimal: bool = False
    upper_bounds: tuple[str, ...] = ()
    distinct_edge_sets: int = 0
    from_scratch: Fraction | None = None
    schedules: tuple[Schedule, ...] = ()

    def __post_init__(self) -> None:
        check_partition(self.workload, self.trees)
        if len(self.tree_costs) != len(self.trees):
            raise ValueError("one cost per tree")

    @property
    def cost(self) -> Fraction:
        """Cost of the whole plan per second."""
        return sum(self.tree_costs, Fraction(0))

    @property
    def cost_model(self) -> str:
        return self.model.name

    @property
    def baselines(self) -> dict[str, Fraction | None]:
        known = {"no_share": self.no_share, "shared": self.shared, "weave_share": self.weave_share}
        kept = self.from_scratch is not None and self.from_scratch != self.cost
        return known | ({"from_scratch": self.from_scratch} if kept else {})

    def rate(self, stream: str) -> Fraction:
        """Tuples per second that the plan was made for."""
        return dict(self.rates)[stream]

    def tree(self, tree_id: str) -> ExecutionTree:
        return next(tree for tree in self.trees if tree.id == tree_id)

    def tree_of(self, query_name: str) -> ExecutionTree:
        """The tree that answers a query; KeyError if the plan has no such query."""
        for tree in self.trees:
            if any(query.name == query_name for query in tree.queries):
                return tree
        raise KeyError(query_name)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the content: trees (names and meanings of their queries), algorithm, cost model's name.

        Neither rates nor costs: a re-plan at other rates that decides the same is the same plan.
        """
        trees = [
            [
                tree.stream,
                [[query.name, query.fingerprint] for query in tree.queries],
                *([tree.together] * bool(tree.together)),
                *(
                    [[query.name, spans] for query, spans in zip(one.queries, one.sharing, strict=True)]
                    for one in tree.sequences
                ),
            ]
            for tree in self.trees
        ]
        streams = values.to_json(self.workload.streams)
        told = [trees, streams, self.workload.fingerprint, self.algorithm, self.model.name]
        return values.digest([*told, *([decision(one) for one in self.schedules],) * bool(self.schedules)])


def check_partition(workload: Workload, trees: Iterable[ExecutionTree]) -> None:
    """The invariant of every plan: each query of the workload is in exactly one tree, unchanged.

    Raises
    ------
    ValueError
        Naming the queries that are missing, repeated, unknown or different, or the tree ids that repeat.
    """
    placed: dict[str, ACQ] = {}
    ids: set[str] = set()
    for tree in trees:
        if tree.id in ids:
            raise ValueError(f"tree id {tree.id} is used twice")
        ids.add(tree.id)
        for query in tree.queries:
            if query.name in placed:
                raise ValueError(f"query {query.name} is in two trees")
            placed[query.name] = query
    wanted = {query.name: query for query in workload.queries}
    if missing := wanted.keys() - placed.keys():
        raise ValueError(f"queries in no tree: {sorted(missing)}")
    if unknown := placed.keys() - wanted.keys():
        raise ValueError(f"queries that the workload does not have: {sorted(unknown)}")
    if changed := [name for name in sorted(wanted) if wanted[name] != placed[name]]:
        raise ValueError(f"queries that differ from the workload's: {changed}")


def build_plan(
    workload: Workload,
    rates: Mapping[str, Fraction],
    algorithm: str = "best",
    model: CostModel | str = PAPER,
    counter: str = "auto",
    seconds: float = SECONDS,
    previous: SharingPlan | None = None,
    tolerance: Fraction | float = Fraction(0),
    profiles: Mapping[str, Profile] | None = None,
) -> SharingPlan:
    """Plan each stream of a workload on its own.

    Parameters
    ----------
    workload
        Registered queries. Streams that none of them reads are left out of the plan.
    rates
        Tuples per second (>= 0) by stream name; every stream that is read needs one.
    algorithm
        A name of :data:`optimizer.search.ALGORITHMS`.
    model
        A cost model, or the name of one with its default coefficients.
    counter
        Edge counter of the search (:mod:`optimizer.edges`).
    seconds
        CPU seconds that ``best`` may spend on improving the plan of each stream.
    previous, tolerance
        The plan in force. What it becomes when queries join and leave is kept, with as few queries changing trees as
        Incremental Weave Share moves, if it costs at most ``1 + tolerance`` times the plan from scratch.
    profiles
        A sample of each stream's events by its name: what different filters and group-bys have in common is measured
        on it. Without one every filter and group-by has a synopsis of its own.

    Raises
    ------
    HeddleError
        HDL-450 for a missing or negative rate; HDL-350 and HDL-351 for searches that reach a counter's or
        their own limit.
    ValueError
        Unknown algorithm, cost model or counter.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {algorithm!r}: one of {', '.join(ALGORITHMS)}")
    chosen = cost_model(model) if isinstance(model, str) else model
    within = Fraction(tolerance) if math.isfinite(tolerance) else Fraction(10**9)
    read = {query.stream for query in workload.queries}
    workload = Workload(workload.queries, tuple(s for s in workload.streams if s.name in read))
    trees: list[ExecutionTree] = []
    costs: list[Fraction] = []
    alone, together, distinct, optimal = Fraction(0), Fraction(0), 0, True
    greedy: Fraction | None = Fraction(0)
    scratch = Fraction(0)
    bounded: list[str] = []
    for stream, queries in _domains(workload):
        rate = _rate(rates, stream.name)
        profile = (profiles or {}).get(stream.name) if queries[0].is_plain else None
        coefficients = chosen.coefficients if chosen.name == "measured" else Coefficients()
        shares = bases(profile, queries, coefficients) if profile and chosen.base(stream.name) else None

        def problem_of(
            collapse: bool,
            queries: Sequence[ACQ] = queries,
            rate: Fraction = rate,
            shares: Mapping[Family, float] | None = shares,
        ) -> SearchProblem:
            return SearchProblem.of(queries, rate, chosen, collapse, counter, shares)

        found = find(problem_of, algorithm, seconds)
        if earlier := _earlier_trees(previous, stream.name, queries):
            found = keep(found, earlier, within)
        scratch += sum(found.costs) if found.scratch is None else found.scratch
        members = [found.problem.expand([tree])[0] for tree in found.partition]
        order = sorted(range(len(members)), key=lambda n: members[n])
        before = sum(tree.stream == stream.name for tree in trees)
        held = [names for tree in (previous.trees if previous else ()) for names in tree.together]
        known = [one for tree in (previous.trees if previous else ()) for one in tree.sequences]
        for number, at in enumerate(order, start=before + 1):
            mine = tuple(queries[i] for i in members[at])
            sharing = choose(profile, mine, coefficients, held) if mine[0].is_plain else ()
            sequences: tuple[SequencePlan, ...] = ()
            if mine[0].pattern is not None:
                sample, kept = (profiles or {}).get(stream.name), tolerance if previous else 0.0
                sequences = sequence_plans(mine, rate, sample, known, kept)
            tick = tick_of(mine[0].window, rate)
            tree = ExecutionTree(f"{stream.name}-{number}", stream.name, mine, tick, sharing, sequences)
            # what the search has counted is not counted again
            tree.__dict__["edge_bounds"] = found.bounds[at]
            trees.append(tree)
            costs.append(found.costs[at])
            if not tree.is_exact:
                bounded.append(tree.id)
        alone += found.problem.unshared
        together += found.shared
        greedy = None if greedy is None or found.weave_share is None else greedy + found.weave_share
        distinct += found.distinct_edge_sets
        optimal = optimal and found.optimal
        bounded += [name for name in found.inexact if name not in bounded]
    used = tuple((stream.name, Fraction(rates[stream.name])) for stream in workload.streams)
    earlier_schedules = previous.schedules if previous else ()
    schedules = schedules_of(
        trees, workload, dict(used), chosen, earlier_schedules, within if previous else Fraction(0)
    )
    return SharingPlan(
        tuple(trees),
        workload,
        algorithm,
        chosen,
        used,
        tuple(costs),
        alone,
        together,
        greedy,
        optimal,
        tuple(bounded),
        distinct,
        scratch,
        schedules,
    )


def sharing_as(plan: SharingPlan, earlier: SharingPlan) -> SharingPlan:
    """The plan, with the queries of its trees sharing synopses as far as they do in an earlier one."""
    held = [names for tree in earlier.trees for names in tree.together]
    trees = []
    for tree in plan.trees:
        plain = tree.queries[0].is_plain
        kept = replace(tree, together=choose(None, tree.queries, Coefficients(), held) if plain else ())
        kept.__dict__["edge_bounds"] = tree.edge_bounds
        trees.append(kept)
    return replace(plan, trees=tuple(trees))


def _domains(workload: Workload) -> list[tuple[Stream, list[ACQ]]]:
    """Queries that may share fragments: of one stream and one :attr:`ACQ.domain`."""
    found: list[tuple[Stream, list[ACQ]]] = []
    for stream in workload.streams:
        kinds: dict[object, list[ACQ]] = {}
        for query in workload.queries_of(stream.name):
            kinds.setdefault(query.domain, []).append(query)
        found += [(stream, queries) for queries in kinds.values()]
    return found


def _earlier_trees(previous: SharingPlan | None, stream: str, queries: Sequence[ACQ]) -> dict[int, str]:
    """The earlier tree of each query that had one and still has the same window."""
    if previous is None:
        return {}
    held = {
        query.name: (query.window, tree.id)
        for tree in previous.trees
        if tree.stream == stream
        for query in tree.queries
    }
    return {
        number: held[query.name][1]
        for number, query in enumerate(queries)
        if query.name in held and held[query.name][0] == query.window
    }


def _rate(rates: Mapping[str, Fraction], stream: str) -> Fraction:
    if stream not in rates or rates[stream] < 0:
        given = f"{rates[stream]} tuples/s" if stream in rates else "no rate"
        raise HeddleError("HDL-450", f"stream {stream} has {given}: a plan needs a rate of at least 0", "give --rate")
    return Fraction(rates[stream])


# ------------------------------------------------------------------------------------------------ JSON
def to_json(plan: SharingPlan) -> dict[str, Any]:
    """The plan as ``heddle plan --json`` prints it (``format_version`` 1).

    Costs are numbers; exact values are strings of fractions, per second. ``composite_slide`` is in seconds.
    ``upper_bounds`` names the trees and baselines whose edges are too many to be counted exactly: their costs and
    edge rates are upper bounds, ``edges`` is null and ``edge_rate_lower`` the lower bound.
    """
    return {
        "format_version": 1,
        "algorithm": plan.algorithm,
        "optimal": plan.optimal,
        "distinct_edge_sets": plan.distinct_edge_sets,
        "upper_bounds": list(plan.upper_bounds),
        "cost": float(plan.cost),
        "cost_exact": str(plan.cost),
        "cost_model": plan.cost_model,
        "rates": {stream: str(rate) for stream, rate in plan.rates},
        "baselines": {name: None if cost is None else float(cost) for name, cost in plan.baselines.items()},
        "trees": [
            {"id": tree.id, "stream": tree.stream, "queries": [query.name for query in tree.queries]}
            | ({"together": [list(names) for names in tree.together]} if tree.together else {})
            | tree_facts(tree.composite_slide, tree.edge_bounds, tree.overlap_factor, cost)
            | (_row_facts(tree) if tree.per is not None else {})
            | ({"sequences": [one.to_json() for one in tree.sequences]} if tree.sequences else {})
            for tree, cost in zip(plan.trees, plan.tree_costs, strict=True)
        ],
        **({"schedules": [_schedule_facts(one) for one in plan.schedules]} if plan.schedules else {}),
    }


def _schedule_facts(schedule: Schedule) -> dict[str, Any]:
    """Of a schedule, costs in CPU seconds a second, times in seconds."""
    step = _seconds(schedule.step)
    return {
        "step": step,
        "cost": float(schedule.cost / step),
        "baselines": {name: float(cost / step) for name, cost in schedule.costs.items()},
        "proven": schedule.proven,
        "summary": summary(schedule),
        "queries": [
            {
                "query": one.query,
                "at_most": _seconds(one.bound),
                "longest": _seconds(one.longest),
                "average": float(one.average / SECOND),
            }
            for one in rhythms(schedule)
        ],
    }


def tree_facts(
    composite: int, bounds: tuple[Fraction, Fraction], overlap_factor: Fraction, cost: Fraction
) -> dict[str, Any]:
    """One tree's numbers for JSON. ``composite`` in microseconds, ``bounds`` of its edges per second."""
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
    """What differs where the windows are rows: the composite slide is a number of them."""
    return {"rows_per": list(tree.per or ()), "composite_slide": tree.composite_slide, "edges": tree.edges}


def _seconds(microseconds: int) -> int | float:
    # a composite slide may have thousands of digits, more than a float can hold
    if microseconds % SECOND == 0 or microseconds.bit_length() > 1000:
        return microseconds // SECOND
    return microseconds / SECOND


# ------------------------------------------------------------------------------------------------ rows
def to_rows(plan: SharingPlan) -> list[dict[str, Any]]:
    """The plan as rows of ``sharing_plans``: one per tree and query.

    Numbers that may exceed a column type (counts, fractions) are strings, with floats beside the costs.
    A plan without queries has no rows.
    """
    streams = {stream.name: _text(values.to_json(stream)) for stream in plan.workload.streams}
    position = {query.name: number for number, query in enumerate(plan.workload.queries)}
    schedules = _text([one.to_json() for one in plan.schedules]) if plan.schedules else None
    whole = {
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
    }
    return [
        whole
        | {
            "stream": tree.stream,
            "stream_position": list(streams).index(tree.stream),
            "stream_definition": streams[tree.stream],
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
            "sequence_plan": next(
                (_text(one.to_json()) for one in tree.sequences if one.queries[0].name == query.name), None
            ),
            "together": next((number for number, names in enumerate(tree.together) if query.name in names), None),
            "query_fingerprint": query.fingerprint,
            "query_definition": _text(values.to_json(query)),
        }
        for number, (tree, cost) in enumerate(zip(plan.trees, plan.tree_costs, strict=True))
        for query in tree.queries
    ]


def from_rows(rows: Iterable[Mapping[str, Any]]) -> SharingPlan:
    """Inverse of :func:`to_rows`, from the rows of one plan in any order; other columns are ignored.

    Raises
    ------
    ValueError
        No rows, or rows that are not one whole plan.
    """
    ordered = sorted(rows, key=lambda row: row["query_position"])
    if not ordered:
        raise ValueError("a plan has at least one row")
    if len({row["fingerprint"] for row in ordered}) > 1:
        raise ValueError("rows of several plans")
    streams: dict[int, tuple[Stream, Fraction]] = {}
    held: dict[int, list[ACQ]] = {}
    about: dict[int, Mapping[str, Any]] = {}
    sharing: dict[int, list[list[str]]] = {}
    sequences: dict[int, list[SequencePlan]] = {}
    queries: list[ACQ] = []
    for row in ordered:
        query: ACQ = values.from_json(json.loads(row["query_definition"]))
        queries.append(query)
        held.setdefault(row["tree_position"], []).append(query)
        together = sharing.setdefault(row["tree_position"], [])
        if (place := row.get("together")) is not None:
            together += [[] for _ in range(place + 1 - len(together))]
            together[place].append(query.name)
        if row.get("sequence_plan"):
            found = SequencePlan.from_json(json.loads(row["sequence_plan"]))
            sequences.setdefault(row["tree_position"], []).append(found)
        about[row["tree_position"]] = row
        stream = values.from_json(json.loads(row["stream_definition"]))
        streams[row["stream_position"]] = (stream, Fraction(row["rate_exact"]))
    first = ordered[0]
    numbers = sorted(held)
    known = [streams[number] for number in sorted(streams)]
    trees = []
    for number in numbers:
        row = about[number]
        tree = ExecutionTree(
            row["tree_id"],
            row["stream"],
            tuple(held[number]),
            row.get("tick", 1),
            tuple(map(tuple, sharing[number])),
            tuple(sorted(sequences.get(number, ()), key=lambda one: one.queries[0].name)),
        )
        tree.__dict__["edge_bounds"] = (
            Fraction(row.get("edge_rate_lower", row["edge_rate"])),
            Fraction(row["edge_rate"]),
        )
        trees.append(tree)
    greedy, scratch = first.get("weave_share_cost_exact"), first.get("from_scratch_cost_exact")
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
        None if greedy is None else Fraction(greedy),
        bool(first.get("optimal", False)),
        tuple(first.get("upper_bounds", ())),
        first.get("distinct_edge_sets", 0),
        None if scratch is None else Fraction(scratch),
        tuple(Schedule.from_json(one) for one in json.loads(first.get("schedules") or "[]")),
    )
    if plan.fingerprint != first["fingerprint"]:
        raise ValueError(f"rows of plan {first['fingerprint']} are incomplete or altered")
    return plan


def _text(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


# ------------------------------------------------------------------------------------------------ diff
@dataclass(frozen=True)
class PlanDiff:
    """What a new plan changes, and what of the stored partial aggregates stays good for it.

    Trees of both plans are matched by the queries that they have in common, since tree numbers shift when
    queries come and go.

    Attributes
    ----------
    added, removed, changed
        Names of queries; ``changed`` are those of another definition.
    moved
        (query, old tree, new tree) of queries in both plans whose trees do not match.
    trees
        (old tree or "", new tree or "", old cost, new cost) of every matched, new and gone tree.
    cost
        Of the old plan and of the new one.
    reused, built
        Synopses of the new plan that the old one has, too (what is stored of them stays valid), and those
        that it has not.
    rebuilt
        (query, reason, windows) of each query that a synopsis of the second kind answers: the next run reads
        history again for it, back to the start of its earliest window. ``windows``: how many of its windows
        overlap, ceil(range / slide); so many answers of a group cannot be had from stored partials.
    sequences
        What changes in how event sequences are shared, of the sequence plans that have a query in both.
    refreshes
        Which queries with a refresh bound are answered in another rhythm, in words.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    moved: tuple[tuple[str, str, str], ...]
    trees: tuple[tuple[str, str, float, float], ...]
    cost: tuple[float, float]
    reused: int = 0
    built: int = 0
    rebuilt: tuple[tuple[str, str, int], ...] = ()
    sequences: tuple[SequenceDiff, ...] = ()
    refreshes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Same queries in the same trees (costs may differ: rates do)."""
        regrouped = any(not old or not new for old, new, _, _ in self.trees)
        cut = any(not one.is_empty for one in self.sequences)
        return not (self.added or self.removed or self.changed or self.moved or self.refreshes or regrouped or cut)

    def to_json(self) -> dict[str, Any]:
        return {
            "format_version": 1,
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": list(self.changed),
            "moved": [{"query": query, "from": old, "to": new} for query, old, new in self.moved],
            "trees": [
                {"old": old or None, "new": new or None, "old_cost": before, "new_cost": after}
                for old, new, before, after in self.trees
            ],
            "cost": {"old": self.cost[0], "new": self.cost[1]},
            **({"sequences": [asdict(one) for one in self.sequences]} if self.sequences else {}),
            **({"refreshes": list(self.refreshes)} if self.refreshes else {}),
            "synopses": {"reused": self.reused, "new": self.built},
            "rebuilt": [
                {"query": query, "reason": reason, "windows": windows} for query, reason, windows in self.rebuilt
            ],
        }

    def lines(self) -> list[str]:
        """The changes as plain text, one per line."""
        if self.is_empty:
            return [f"same queries in the same trees; cost {_change(*self.cost)}"]
        found = [f"+ query {name}" for name in self.added]
        found += [f"- query {name}" for name in self.removed]
        found += [f"~ query {name} (definition changed)" for name in self.changed]
        found += [f"> query {name}: {old} -> {new}" for name, old, new in self.moved]
        for old, new, before, after in self.trees:
            if not old:
                found.append(f"+ tree {new}: cost {after:.6g}")
            elif not new:
                found.append(f"- tree {old}: cost {before:.6g}")
            elif before != after:
                renamed = old if old == new else f"{old} (now {new})"
                found.append(f"  tree {renamed}: cost {_change(before, after)}")
        found.append(f"  plan: cost {_change(*self.cost)}")
        found += [f"  sequences: {line}" for one in self.sequences if not one.is_empty for line in one.lines()]
        found += [f"  refreshes: {line}" for line in self.refreshes]
        if self.rebuilt:
            windows = sum(windows for _, _, windows in self.rebuilt)
            found.append(
                f"  stored partials: {self.reused} synopses stay valid, {self.built} are computed from history at the "
                f"next run, for {len(self.rebuilt)} queries ({windows} open windows a group)"
            )
            for reason in dict.fromkeys(reason for _, reason, _ in self.rebuilt):
                names = [query for query, why, _ in self.rebuilt if why == reason]
                more = f", … {len(names) - NAMED} more" if len(names) > NAMED else ""
                found.append(f"    {reason}: {', '.join(names[:NAMED])}{more}")
        return found


def diff(old: SharingPlan | None, new: SharingPlan) -> PlanDiff:
    """What changes from one plan to the next; ``old`` None is a plan without queries.

    Expected O(n) in the queries of both, besides their trees' edge sets.
    """
    before = {query.name: query for query in old.workload.queries} if old else {}
    after = {query.name: query for query in new.workload.queries}
    old_costs = {tree.id: float(cost) for tree, cost in zip(old.trees, old.tree_costs, strict=True)} if old else {}
    new_costs = {tree.id: float(cost) for tree, cost in zip(new.trees, new.tree_costs, strict=True)}
    home = {query.name: tree.id for tree in (old.trees if old else ()) for query in tree.queries}
    stream_of = {tree.id: tree.stream for tree in (old.trees if old else ())}

    # the pairs with most queries in common match first; earlier trees win ties
    common: dict[tuple[str, str], int] = {}
    for tree in new.trees:
        for query in tree.queries:
            was = home.get(query.name)
            if was is not None and stream_of[was] == tree.stream:
                common[was, tree.id] = common.get((was, tree.id), 0) + 1
    match: dict[str, str] = {}
    taken: set[str] = set()
    for was, now in sorted(common, key=lambda pair: -common[pair]):
        if now not in match and was not in taken:
            match[now] = was
            taken.add(was)

    moved = [
        (query.name, home[query.name], tree.id)
        for tree in new.trees
        for query in tree.queries
        if query.name in home and match.get(tree.id) != home[query.name]
    ]
    trees = [
        (match.get(now, ""), now, old_costs[match[now]] if now in match else 0.0, cost)
        for now, cost in new_costs.items()
    ]
    trees += [(was, "", cost, 0.0) for was, cost in old_costs.items() if was not in taken]
    changed = tuple(name for name in after if name in before and before[name].fingerprint != after[name].fingerprint)
    return PlanDiff(
        tuple(name for name in after if name not in before),
        tuple(name for name in before if name not in after),
        changed,
        tuple(moved),
        tuple(trees),
        (float(old.cost) if old else 0.0, float(new.cost)),
        *_reuse(old, new, set(changed)),
        _sequence_diffs(old, new),
        changes(old.schedules if old else (), new.schedules),
    )


def _sequence_diffs(old: SharingPlan | None, new: SharingPlan) -> tuple[SequenceDiff, ...]:
    before = {query.name: one for tree in (old.trees if old else ()) for one in tree.sequences for query in one.queries}
    found = []
    for tree in new.trees:
        for one in tree.sequences:
            was = next((before[query.name] for query in one.queries if query.name in before), None)
            found += [was.diff(one)] if was is not None else []
    return tuple(found)


def _reuse(
    old: SharingPlan | None, new: SharingPlan, changed: set[str]
) -> tuple[int, int, tuple[tuple[str, str, int], ...]]:
    """Synopses of the new plan that the old one has and has not, and the queries of the latter."""
    held = _synopses(old) if old else []
    stored = {synopsis.fingerprint for synopsis, _ in held}
    answered = {query.name: synopsis for synopsis, queries in held for query in queries}
    wanted = _synopses(new)
    fresh = [(synopsis, queries) for synopsis, queries in wanted if synopsis.fingerprint not in stored]
    rebuilt = [
        (query.name, _why(synopsis, answered.get(query.name), query.name in changed), _windows_back(query.window))
        for synopsis, queries in fresh
        for query in queries
    ]
    # trees of one content share what is stored
    built = {synopsis.fingerprint for synopsis, _ in fresh}
    return len({synopsis.fingerprint for synopsis, _ in wanted} - built), len(built), tuple(rebuilt)


def _synopses(plan: SharingPlan) -> list[tuple[Synopsis, tuple[ACQ, ...]]]:
    streams = {stream.name: stream for stream in plan.workload.streams}
    return [
        found for tree in plan.trees for found in synopses_of(streams[tree.stream], tree.queries, tree.together).items()
    ]


def _why(now: Synopsis, was: Synopsis | None, changed: bool) -> str:
    if was is None:
        return "new query"
    if changed:
        return "definition changed"
    if now.sequenced is not None:
        return "what is kept of events changed (types, attributes, filter or keys)"
    if was.edges != now.edges:
        return "its tree's edges changed"
    return "its stream's time column changed" if was.time != now.time else "its synopsis' states changed"


def _windows_back(window: Window) -> int:
    return -(-window.reach // window.slide)


def _change(before: float, after: float) -> str:
    if before == after:
        return f"{after:.6g}"
    percent = f" ({(after - before) / before:+.1%})" if before else ""
    return f"{before:.6g} -> {after:.6g}{percent}"


# --------------------------------------------------------------------------------------------- explain
@dataclass(frozen=True)
class Companion:
    """A query in the same tree. ``weaveability``: common edges of the two over all their edges."""

    query: str
    weaveability: float


@dataclass(frozen=True)
class Alternative:
    """Another tree that the query could be in.

    ``cost``: what that tree's cost would rise by, in the model's unit per second; ``difference``: what the
    plan's would (positive: the plan is cheaper as it is); ``edge_rate`` and ``edge_rate_with``: the tree's
    edges per second without and with the query (upper bounds where there are more than can be counted exactly).
    """

    tree: str
    cost: float
    difference: float
    edge_rate: float
    edge_rate_with: float


@dataclass(frozen=True)
class Explanation:
    """Why a query is in its tree. Costs are per second in the cost model's unit.

    ``cost_alone``: of a tree of its own; ``cost_here``: what its tree would cost less without it;
    ``saving``: what the plan would rise by if it left. ``alternatives``: the other trees of the stream,
    nearest first. ``model_operations``: E * r/s, the combined fragments per second that the model charges;
    ``true_operations``: as counted over the windows of a composite slide (None where that is longer than
    can be enumerated). ``sequence``: of an event sequence, in words, what its pattern shares. ``refresh``: of a query
    with a refresh bound, in words, when it is answered and why then.
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

    def to_json(self) -> dict[str, Any]:
        return {"format_version": 1} | asdict(self)

    def lines(self) -> list[str]:
        """The explanation as plain text."""
        found = [f"{self.query} is in tree {self.tree}" + ("" if self.companions else ", alone")]
        if self.companions:
            found.append("shares with (common edges / all edges):")
            found += [f"  {other.query}  {other.weaveability:.2f}" for other in self.companions]
        found.append(f"cost alone {self.cost_alone:.6g}, in this tree {self.cost_here:.6g}: saves {self.saving:.6g}")
        found.append(f"edges per second alone {self.edge_rate_alone:.6g}, in this tree {self.edge_rate_tree:.6g}")
        if self.edge_rate_tree_lower != self.edge_rate_tree:
            found.append(
                "  estimated: the tree has more edges than can be counted exactly, between "
                f"{self.edge_rate_tree_lower:.6g} and {self.edge_rate_tree:.6g}; the upper bound decided"
            )
        if self.optimal:
            found.append("the plan is proven optimal: no other grouping of the queries is cheaper")
        if not self.alternatives:
            found.append("there is no other tree on this stream")
        for number, other in enumerate(self.alternatives[:NEAREST_SHOWN]):
            label = "nearest other tree" if number == 0 else "other tree"
            verdict = "dearer" if other.difference >= 0 else "cheaper (the search ended before it tried this move)"
            found.append(
                f"{label} {other.tree}: its edges per second {other.edge_rate:.6g} -> "
                f"{other.edge_rate_with:.6g}; cost there {other.cost:.6g}, "
                f"plan {abs(other.difference):.6g} {verdict}"
            )
        if (hidden := len(self.alternatives) - NEAREST_SHOWN) > 0:
            found.append(f"and {hidden} trees further away")
        true = "not enumerable" if self.true_operations is None else f"{self.true_operations:.6g}"
        found.append(f"fragments combined per second: model {self.model_operations:.6g}, true {true}")
        return [*found, *self.sequence, *self.refresh]


def explain(plan: SharingPlan, query_name: str) -> Explanation:
    """With whom a query shares and why, what it would cost alone, and why it is in no other tree.

    Raises
    ------
    KeyError
        The plan has no such query.
    """
    tree = plan.tree_of(query_name)
    query = plan.workload.query(query_name)
    rate = plan.rate(tree.stream)

    def cost(queries: Sequence[ACQ]) -> Fraction:
        if not queries:
            return Fraction(0)
        problem = SearchProblem.of(queries, rate, plan.model)
        return problem.tree_cost(range(len(problem)))

    rest = tuple(other for other in tree.queries if other.name != query_name)
    alone = cost([query])
    here = cost(tree.queries) - cost(rest)
    edges = edge_set(query.window)
    companions = (Companion(o.name, float(weaveability(edges, edge_set(o.window)))) for o in rest)
    own_rate = edges_per_second(edges) / tree.tick
    return Explanation(
        query_name,
        tree.id,
        plan.cost_model,
        tuple(sorted(companions, key=lambda other: -other.weaveability)),
        float(alone),
        float(here),
        float(alone - here),
        float(own_rate),
        float(tree.edge_rate),
        float(tree.edge_bounds[0]),
        plan.optimal,
        _alternatives(plan, tree, query, here, cost),
        float(tree.edge_rate * query.window.overlap_factor),
        _float(true_operations(tree, query)),
        tuple(
            line
            for one in tree.sequences
            if any(member.name == query_name for member in one.queries)
            for line in one.explain(query_name)
        ),
        explained(plan.schedules, query_name),
    )


def _alternatives(
    plan: SharingPlan,
    tree: ExecutionTree,
    query: ACQ,
    here: Fraction,
    cost: Callable[[Sequence[ACQ]], Fraction],
) -> tuple[Alternative, ...]:
    found = []
    for other in plan.trees:
        if other.stream != tree.stream or other.id == tree.id or other.queries[0].domain != query.domain:
            continue
        joined = ExecutionTree(other.id, other.stream, (*other.queries, query), other.tick)
        there = cost(joined.queries) - cost(other.queries)
        rates = float(other.edge_rate), float(joined.edge_rate)
        found.append(Alternative(other.id, float(there), float(there - here), *rates))
    return tuple(sorted(found, key=lambda a: a.cost))


def true_operations(tree: ExecutionTree, query: ACQ) -> Fraction | None:
    """Fragments of its tree that a query really combines per second, averaged over a composite slide.

    With r = m*s + f, the first m slides of the windows tile time and hold E*s fragments each on average;
    what is enumerated are the fragments in the first f of a slide. None if f > 0 and the composite slide is
    longer than :data:`ENUMERATED_TICKS` of the tree's common divisor. Cuts at midnight are not counted.
    """
    slide = query.window.slide
    whole, inner = divmod(query.window.range, slide)
    found = whole * tree.edge_rate
    if inner:
        unit = np.gcd.reduce(
            [number for edge in tree.fragments.edges for number in (*edge, slide, inner, query.window.ago)]
        )
        period = tree.composite_slide // int(unit)
        if period > ENUMERATED_TICKS:
            return None
        marks = np.zeros(period, dtype=np.bool_)
        for step, shift in tree.fragments.edges:
            marks[shift // unit :: step // unit] = True
        # a historical window starts `ago` before a multiple of the slide
        marks = np.roll(marks, query.window.ago // int(unit) % period)
        within = int(marks.reshape(-1, slide // int(unit))[:, : inner // int(unit)].sum())
        found += Fraction(within * SECOND, tree.composite_slide * tree.tick)
    return found * Fraction(slide, query.window.period)


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
