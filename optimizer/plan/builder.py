"""From a workload and rates to its sharing plan: domains, search, synopses, schedules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.definition import ExecutionTree, SharingPlan
from optimizer.plan.schedules import schedules_of
from optimizer.plan.sequence_plans import sequence_plans
from optimizer.search.cost import PAPER, Coefficients, CostModel, SearchProblem, cost_model, tick_of
from optimizer.search.search import ALGORITHMS, SECONDS, find, keep
from optimizer.sequences.sharing_plan import SequencePlan
from optimizer.synopses.sharing import Profile, bases, choose
from optimizer.synopses.synopsis import Family
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
