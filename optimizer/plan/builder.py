"""From a workload and rates to its sharing plan: domains, search, synopses, schedules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.definition import ExecutionTree, SharingPlan
from optimizer.plan.schedules import schedules_of
from optimizer.plan.sequence_plans import sequence_plans
from optimizer.search.cost import PAPER, Coefficients, CostModel, SearchProblem, cost_model, tick_of
from optimizer.search.search import ALGORITHMS, SECONDS, SearchResult, find, keep
from optimizer.sequences.sharing_plan import SequencePlan
from optimizer.synopses.sharing import Profile, bases, choose, groups_per_fragment
from optimizer.workload.values import ACQ, Stream, Workload


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
        A name of :data:`optimizer.search.search.ALGORITHMS`.
    model
        A cost model, or the name of one with its default coefficients.
    counter
        Edge counter of the search (:mod:`optimizer.windows.edge_counting`).
    seconds
        CPU seconds that ``best`` may spend on improving the plan of each stream.
    previous, tolerance
        The plan in force. What it becomes when queries join and leave is kept, with as few queries changing trees as
        Incremental Weave Share moves, if it costs at most ``1 + tolerance`` times the plan from scratch.
    profiles
        A sample of each stream's events by its name: what different filters and group-bys have in common is measured
        on it, and how many groups a fragment has where the model does not know it. Without one every filter and
        group-by has a synopsis of its own, and a fragment counts as one row (:attr:`SharingPlan.blind`).

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
    chosen = _informed(chosen, workload, profiles or {})
    planning = _Planning(algorithm, chosen, counter, seconds, previous, tolerance, within, profiles or {})
    plans: list[_DomainPlan] = []
    for stream, queries in _domains(workload):
        numbered = sum(len(plan.trees) for plan in plans if plan.stream == stream.name)
        plans.append(_domain_plan(planning, stream.name, queries, _rate(rates, stream.name), numbered + 1))
    trees = tuple(tree for plan in plans for tree in plan.trees)
    used = tuple((stream.name, Fraction(rates[stream.name])) for stream in workload.streams)
    earlier = previous.schedules if previous else ()
    schedules = schedules_of(trees, workload, dict(used), chosen, earlier, within if previous else Fraction(0))
    greedy = [plan.result.weave_share for plan in plans]
    return SharingPlan(
        trees,
        workload,
        algorithm,
        chosen,
        used,
        tuple(cost for plan in plans for cost in plan.costs),
        sum((plan.result.problem.unshared for plan in plans), Fraction(0)),
        sum((plan.result.shared for plan in plans), Fraction(0)),
        None if None in greedy else sum((cost for cost in greedy if cost is not None), Fraction(0)),
        all(plan.result.optimal for plan in plans),
        tuple(dict.fromkeys(name for plan in plans for name in plan.inexact)),
        sum(plan.result.distinct_edge_sets for plan in plans),
        sum((plan.scratch for plan in plans), Fraction(0)),
        schedules,
    )


def _informed(model: CostModel, workload: Workload, profiles: Mapping[str, Profile]) -> CostModel:
    """The model, with the groups a fragment of streams of which it knows none as their samples have them."""
    found = dict(model.groups_per_fragment)
    for name, profile in profiles.items() if model.name == "measured" else ():
        queries = [query for query in workload.queries_of(name) if query.is_plain]
        if name not in found and queries and (groups := groups_per_fragment(profile, queries)) is not None:
            found[name] = Fraction(round(groups, 3)).limit_denominator(1000)
    return replace(model, groups_per_fragment=tuple(sorted(found.items())))


class _Planning(NamedTuple):
    """What :func:`build_plan` was asked for; ``within``: the tolerance as a fraction."""

    algorithm: str
    model: CostModel
    counter: str
    seconds: float
    previous: SharingPlan | None
    tolerance: Fraction | float
    within: Fraction
    profiles: Mapping[str, Profile]

    @property
    def earlier(self) -> tuple[ExecutionTree, ...]:
        """The trees of the plan in force."""
        return self.previous.trees if self.previous else ()


class _DomainPlan(NamedTuple):
    """The plan of one domain: its trees, their costs, what the search found, and what a plan from scratch costs."""

    stream: str
    trees: tuple[ExecutionTree, ...]
    costs: tuple[Fraction, ...]
    result: SearchResult
    scratch: Fraction

    @property
    def inexact(self) -> list[str]:
        """What was bounded, not counted: trees, and sets that the search has met."""
        return [tree.id for tree in self.trees if not tree.is_exact] + list(self.result.inexact)


def _domain_plan(planning: _Planning, stream: str, queries: Sequence[ACQ], rate: Fraction, first: int) -> _DomainPlan:
    """The plan of one domain, whose trees are numbered from ``first``."""
    model = planning.model
    profile = planning.profiles.get(stream) if queries[0].is_plain else None
    coefficients = model.coefficients if model.name == "measured" else Coefficients()
    shares = bases(profile, queries, coefficients) if profile and model.base(stream) else None

    def problem_of(collapse: bool) -> SearchProblem:
        return SearchProblem.of(queries, rate, model, collapse, planning.counter, shares)

    result = find(problem_of, planning.algorithm, planning.seconds)
    if earlier := _earlier_trees(planning.previous, stream, queries):
        result = keep(result, earlier, planning.within)
    members = [result.problem.expand([tree])[0] for tree in result.partition]
    order = sorted(range(len(members)), key=lambda n: members[n])
    trees = []
    for number, at in enumerate(order, start=first):
        chosen = tuple(queries[i] for i in members[at])
        tree = _tree(planning, f"{stream}-{number}", chosen, rate, profile, coefficients)
        # what the search has counted is not counted again
        tree.__dict__["edge_bounds"] = result.bounds[at]
        trees.append(tree)
    scratch = sum(result.costs, Fraction(0)) if result.scratch is None else result.scratch
    return _DomainPlan(stream, tuple(trees), tuple(result.costs[at] for at in order), result, scratch)


def _tree(
    planning: _Planning,
    name: str,
    queries: tuple[ACQ, ...],
    rate: Fraction,
    profile: Profile | None,
    coefficients: Coefficients,
) -> ExecutionTree:
    """The queries of one tree, with the synopses and the sequences that they share."""
    together = [names for tree in planning.earlier for names in tree.together]
    sharing = choose(profile, queries, coefficients, together) if queries[0].is_plain else ()
    sequences: tuple[SequencePlan, ...] = ()
    stream = queries[0].stream
    if queries[0].pattern is not None:
        known = [plan for tree in planning.earlier for plan in tree.sequences]
        kept = planning.tolerance if planning.previous else 0.0
        sequences = sequence_plans(queries, rate, planning.profiles.get(stream), known, kept)
    return ExecutionTree(name, stream, queries, tick_of(queries[0].window, rate), sharing, sequences)


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
