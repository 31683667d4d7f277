"""Build the sharing plan of a workload and its rates: domains, search, synopses, schedules."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.definition import ExecutionTree, SharingPlan
from optimizer.plan.prices import payers, pays_by_synopsis, priced_problem
from optimizer.plan.schedules import schedules_of
from optimizer.search.cost import PAPER, Coefficients, CostModel, SearchProblem, cost_model, tick_of
from optimizer.search.optimum import OPTIMUM_LIMIT
from optimizer.search.search import ALGORITHMS, SECONDS, SearchResult, find, keep
from optimizer.synopses.joining import JoinPrice, choose_joins
from optimizer.synopses.late import as_stored, late_form
from optimizer.synopses.sharing import Profile, choose, groups_per_fragment
from optimizer.workload.attributes import with_joined_dimensions
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
    sharing: Iterable[Sequence[str]] = (),
    joined: Mapping[str, bool] | None = None,
    changes: Mapping[str, float] | None = None,
    late: Collection[str] | None = None,
) -> SharingPlan:
    """Plan each stream of a workload separately.

    Parameters
    ----------
    workload
        Registered queries. The plan has only the streams that they read.
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
        The plan in force. When queries join and leave, Incremental Weave Share evolves it and moves few queries to
        other trees. The evolved plan is kept if it costs at most ``1 + tolerance`` times the plan from scratch.
    profiles
        A sample of each stream's events by its name. It measures how much different filters and group-bys have in
        common, and the groups per fragment if the model does not know them. Without a sample every filter and
        group-by has a separate synopsis, and a fragment counts as one row (:attr:`SharingPlan.blind`).
    sharing
        Names of queries that share a synopsis or have a separate one, kept as those of ``previous`` are
        (:attr:`optimizer.plan.definition.SharingPlan.synopses_by_name`).
    joined
        Whether queries are joined late, by name, kept as those of ``previous`` are.
    changes
        Changes a day of dimensions, by name (:mod:`optimizer.synopses.joining`).
    late
        Names of the queries that are joined late, where that is possible, whatever it costs. None: by cost.

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
    streams = (stream for stream in workload.streams if stream.name in read)
    workload = with_joined_dimensions(Workload(workload.queries, tuple(streams)))
    known = [*(previous.synopses_by_name if previous else ()), *map(tuple, sharing)]
    sampled = profiles or {}
    earlier_joins = (previous.joined_late if previous else {}) | dict(joined or {})
    prices = () if late is not None else _joins(chosen, workload, sampled, earlier_joins, changes)
    stored = _Stored.of(workload, [price.query for price in prices if price.is_late] if late is None else late)
    together = _together(chosen, workload, sampled, known, stored)
    chosen = _informed(chosen, workload, sampled, together, stored)
    planning = _Planning(
        algorithm, chosen, counter, seconds, previous, tolerance, within, sampled, together, known, stored
    )
    plans: list[_DomainPlan] = []
    for stream, queries in _domains(workload):
        numbered = sum(len(plan.trees) for plan in plans if plan.stream == stream.name)
        plans.append(_domain_plan(planning, stream.name, queries, _rate(rates, stream.name), numbered + 1))
    trees = tuple(tree for plan in plans for tree in plan.trees)
    used = tuple((stream.name, Fraction(rates[stream.name])) for stream in workload.streams)
    earlier = previous.schedules if previous else ()
    schedules = schedules_of(trees, workload, dict(used), chosen, earlier, within if previous else Fraction(0))
    results = [result for plan in plans for result in plan.results]
    greedy = [result.weave_share for result in results]
    least = [result.lower_bound for result in results]
    return SharingPlan(
        trees,
        workload,
        algorithm,
        chosen,
        used,
        tuple(cost for plan in plans for cost in plan.costs),
        sum((result.problem.unshared for result in results), Fraction(0)),
        sum((result.shared for result in results), Fraction(0)),
        None if None in greedy else sum((cost for cost in greedy if cost is not None), Fraction(0)),
        all(result.optimal for result in results),
        tuple(dict.fromkeys(name for plan in plans for name in plan.inexact)),
        sum(plan.distinct_edge_sets for plan in plans),
        sum((result.cost if result.scratch is None else result.scratch for result in results), Fraction(0)),
        schedules,
        None if None in least else sum((cost for cost in least if cost is not None), Fraction(0)),
        prices,
    )


class _Stored(NamedTuple):
    """The queries of a workload as synopses store them.

    ``late``: names of those that are joined late; ``forms``: as they are stored, by name; ``answered``: the names of
    the group columns that their answers have, by name.
    """

    late: tuple[str, ...]
    forms: Mapping[str, ACQ]
    answered: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, workload: Workload, late: Collection[str]) -> _Stored:
        """``late``: names of queries that are joined late where that is possible."""
        chosen = [query for query in workload.queries if query.name in late]
        possible = [query for query in chosen if late_form(workload.stream(query.stream), query) is not None]
        forms = {query.name: as_stored(workload.stream(query.stream), [query], [query.name])[0] for query in possible}
        late_names = tuple(forms)
        several = [query for query in workload.queries if query.sets]
        forms |= {query.name: as_stored(workload.stream(query.stream), [query], ())[0] for query in several}
        answered = {query.name: tuple(sorted(query.answered_by)) for query in (*possible, *several)}
        return cls(late_names, forms, answered)

    def all_of(self, queries: Iterable[ACQ]) -> list[ACQ]:
        """Some queries as they are stored."""
        return [self.forms.get(query.name, query) for query in queries]


def _joins(
    model: CostModel,
    workload: Workload,
    profiles: Mapping[str, Profile],
    earlier: Mapping[str, bool],
    changes: Mapping[str, float] | None,
) -> tuple[JoinPrice, ...]:
    """The prices of both joins of the queries that may be joined late."""
    coefficients = model.coefficients if model.name == "measured" else Coefficients()
    return tuple(
        price
        for stream in workload.streams
        for price in choose_joins(
            profiles.get(stream.name), stream, workload.queries_of(stream.name), coefficients, earlier, changes
        )
    )


def _together(
    model: CostModel,
    workload: Workload,
    profiles: Mapping[str, Profile],
    known: Sequence[Sequence[str]],
    stored: _Stored,
) -> tuple[tuple[str, ...], ...]:
    """Names of the queries that share a synopsis whenever they are in one tree, if queries pay by synopsis.

    Otherwise the groups that are known already; every tree chooses its own.
    """
    name_groups: list[tuple[str, ...]] = []
    for stream in workload.streams:
        queries = [query for query in workload.queries_of(stream.name) if pays_by_synopsis(model, query)]
        profile = profiles.get(stream.name)
        name_groups += choose(profile, stored.all_of(queries), model.coefficients, known, stored.answered)
    return (
        tuple(name_groups)
        if model.name == "measured"
        else tuple(names for names in map(tuple, known) if len(names) > 1)
    )


def _informed(
    model: CostModel,
    workload: Workload,
    profiles: Mapping[str, Profile],
    together: Iterable[Sequence[str]],
    stored: _Stored,
) -> CostModel:
    """The model, with the groups a fragment of streams of which it knows none as their samples have them."""
    known = dict(model.groups_per_fragment)
    for name, profile in profiles.items() if model.name == "measured" else ():
        queries = stored.all_of(query for query in workload.queries_of(name) if query.kind.shares_synopses)
        if name not in known and queries and (groups := groups_per_fragment(profile, queries, together)) is not None:
            known[name] = Fraction(round(groups, 3)).limit_denominator(1000)
    return replace(model, groups_per_fragment=tuple(sorted(known.items())))


class _Planning(NamedTuple):
    """Arguments of :func:`build_plan`.

    ``within``: the tolerance as a fraction. ``together``: names of queries that share a synopsis. ``known``: names
    of queries that shared one before, and of each query that had a separate one. ``stored``: the queries as synopses
    store them.
    """

    algorithm: str
    model: CostModel
    counter: str
    seconds: float
    previous: SharingPlan | None
    tolerance: Fraction | float
    within: Fraction
    profiles: Mapping[str, Profile]
    together: tuple[tuple[str, ...], ...]
    known: Sequence[tuple[str, ...]]
    stored: _Stored

    @property
    def earlier(self) -> tuple[ExecutionTree, ...]:
        """The trees of the plan in force."""
        return self.previous.trees if self.previous else ()


class _DomainPlan(NamedTuple):
    """Plan of one domain: its trees, their costs, and a search result for each part of its queries that pays together.

    ``inexact``: names of costs that are bounded, not counted.
    """

    stream: str
    trees: tuple[ExecutionTree, ...]
    costs: tuple[Fraction, ...]
    results: list[SearchResult]
    inexact: tuple[str, ...]

    @property
    def distinct_edge_sets(self) -> int:
        return len({edges for result in self.results for edges in result.problem.edges})


class _Piece(NamedTuple):
    """The queries of one tree that pay together: their numbers, what they cost, their edge rate from below and above,
    and the trees in which they are in the plan in force."""

    part: int
    members: list[int]
    cost: Fraction
    bounds: tuple[Fraction, Fraction]
    homes: frozenset[str]


def _domain_plan(planning: _Planning, stream: str, queries: Sequence[ACQ], rate: Fraction, first: int) -> _DomainPlan:
    """The plan of one domain, whose trees are numbered from ``first``."""
    stored_queries = planning.stored.all_of(queries)
    parts = payers(stored_queries, planning.model, planning.together)
    # all parts together are searched as long as one would be
    most = OPTIMUM_LIMIT - math.ceil(math.log(len(parts), 3))
    results = []
    for part in parts:
        chosen = [stored_queries[number] for number in part]

        def searched(collapse: bool, chosen: list[ACQ] = chosen) -> SearchProblem:
            return priced_problem(chosen, rate, planning.model, collapse, planning.counter)

        results.append(find(searched, planning.algorithm, planning.seconds / len(parts), most))
    if earlier := _earlier_trees(planning.previous, stream, queries):
        homes = [{at: earlier[number] for at, number in enumerate(part) if number in earlier} for part in parts]
        results = keep(results, homes, planning.within)
    pieces = [
        _Piece(number, members, cost, bounds, frozenset(earlier[i] for i in members if i in earlier))
        for number, (part, result) in enumerate(zip(parts, results, strict=True))
        for tree, cost, bounds in zip(result.partition, result.costs, result.bounds, strict=True)
        for members in [[part[i] for i in result.problem.expand([tree])[0]]]
    ]
    trees, costs, inexact = [], [], []
    together = [[piece] for piece in pieces] if planning.algorithm == "no-share" else _in_trees(pieces)
    order = sorted((sorted(i for piece in tree for i in piece.members), tree) for tree in together)
    for number, (members, tree) in enumerate(order, start=first):
        execution_tree = _tree(planning, f"{stream}-{number}", tuple(queries[i] for i in members), rate)
        if len(tree) == 1:
            # what the search has counted is not counted again
            execution_tree.__dict__["edge_bounds"] = tree[0].bounds
        trees.append(execution_tree)
        costs.append(sum((piece.cost for piece in tree), Fraction(0)))
        inexact += [execution_tree.id] if any(low != high for piece in tree for low, high in [piece.bounds]) else []
    inexact += [name for result in results for name in result.inexact]
    return _DomainPlan(stream, tuple(trees), tuple(costs), results, tuple(inexact))


def _in_trees(pieces: Sequence[_Piece]) -> list[list[_Piece]]:
    """Pieces of different parts put into one tree, as few trees as possible: that costs nothing, and events are read
    once for each tree. Those that were in one tree stay there, those that were apart stay apart."""
    count = Counter(piece.part for piece in pieces)
    trees: list[list[_Piece]] = []
    for piece in sorted(pieces, key=lambda piece: (-count[piece.part], piece.part, piece.members)):
        free = [tree for tree in trees if all(other.part != piece.part for other in tree)]
        mates = [tree for tree in free if any(other.homes & piece.homes for other in tree)]
        if not piece.homes:
            mates += free
        if mates:
            mates[0].append(piece)
        else:
            trees.append([piece])
    return trees


def _tree(planning: _Planning, name: str, queries: tuple[ACQ, ...], rate: Fraction) -> ExecutionTree:
    """The queries of one tree, with the synopses that they share."""
    stream, model, stored = queries[0].stream, planning.model, planning.stored
    sharing: tuple[tuple[str, ...], ...] = ()
    if queries[0].kind.shares_synopses:
        chosen = pays_by_synopsis(model, queries[0])
        profile = None if chosen else planning.profiles.get(stream)
        known = planning.together if chosen else planning.known
        sharing = choose(profile, stored.all_of(queries), Coefficients(), known, stored.answered)
    late = tuple(query.name for query in queries if query.name in stored.forms)
    return ExecutionTree(name, stream, queries, tick_of(queries[0].window, rate), sharing, late)


def _domains(workload: Workload) -> list[tuple[Stream, list[ACQ]]]:
    """Queries that may share fragments: of one stream and one :attr:`ACQ.domain`."""
    domains: list[tuple[Stream, list[ACQ]]] = []
    for stream in workload.streams:
        kinds: dict[object, list[ACQ]] = {}
        for query in workload.queries_of(stream.name):
            kinds.setdefault(query.domain, []).append(query)
        domains += [(stream, queries) for queries in kinds.values()]
    return domains


def _earlier_trees(previous: SharingPlan | None, stream: str, queries: Sequence[ACQ]) -> dict[int, str]:
    """The earlier tree of each query that had one and still has the same window."""
    if previous is None:
        return {}
    earlier_trees = {
        query.name: (query.window, tree.id)
        for tree in previous.trees
        if tree.stream == stream
        for query in tree.queries
    }
    return {
        number: earlier_trees[query.name][1]
        for number, query in enumerate(queries)
        if query.name in earlier_trees and earlier_trees[query.name][0] == query.window
    }


def _rate(rates: Mapping[str, Fraction], stream: str) -> Fraction:
    if stream not in rates or rates[stream] < 0:
        rate_text = f"{rates[stream]} tuples/s" if stream in rates else "no rate"
        raise HeddleError(
            "HDL-450", f"stream {stream} has {rate_text}: a plan needs a rate of at least 0", "give --rate"
        )
    return Fraction(rates[stream])
