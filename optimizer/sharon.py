"""Sharing plans for event sequences: Sharon as published, and the cheapest plan by an integer program.

An event sequence query SEQ(E1, ..., En) is counted in *segments*, contiguous pieces of its pattern, whose counts are
then combined. A segment that several queries have is counted once for all of them. A plan says for every query which
of its segments are shared; what is left between them are segments of its own.

*As published.* Patterns of two and more event types that several queries contain are sharing candidates. Candidates
that overlap in a query conflict; a plan is an independent set of this graph, and its score the sum of its candidates'
benefits. GWMIN finds a plan greedily, the plan finder the one of highest score, level by level, after candidates
that cannot or must be in it have left the graph. Conflict resolution adds candidates for fewer queries than could
share.

*What beats it.* Scores add up benefits, so a query that shares two patterns is credited twice with what it saves;
the plan of highest score is not the cheapest. And conflict resolution adds exponentially many candidates. But a
query's way of being counted is a path through its pattern, whose arcs are its segments and whose length is its exact
cost; an arc that is shared has to be open, and is paid for once. This integer program (shortest paths over arcs with
a fixed charge) chooses among all sets of queries for every pattern, and its relaxation is so tight that HiGHS proves
the cheapest plan of hundreds of queries in seconds.

Costs are operations (updates of counts, multiplications) per window. Rates are events per window, group and event
type. A pattern may repeat an event type: everything here goes by *occurrences*, positions in a query's pattern.

References
----------
Poppe et al., "Sharon: Shared Online Event Sequence Aggregation", technical report, 2018: sections 3-7, Appendices A
and B. Sakai et al., "A note on greedy algorithms for the maximum weighted independent set problem", Discrete Applied
Mathematics 126, 2003 (GWMIN). Deviations:

- Eq. 5 has one product for all segments. It is read here as its text explains it, step by step, which is the same up
  to three segments (one shared pattern); an empty prefix or suffix contributes no factor.
- Section 7.3's factor for an event type that occurs k times is what the sum of Eq. 1 over positions already contains.
- Def. 6 compares a suffix of one pattern with a prefix of the other. Conflicts here are occurrences that intersect.
- Algorithm 2 loses the optimum as printed: the score of a conflict-free candidate that leaves the graph has to stay
  in the maximal scores of the others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optimizer.errors import HeddleError

Floats = NDArray[np.float64]

Types = tuple[str, ...]
"""Event types of a pattern, or of a piece of one, in order."""

Span = tuple[int, int]
"""Positions [begin, end) of a query's pattern, from 0."""

Sharing = tuple[tuple[Span, ...], ...]
"""For every query of a problem, in its order: the spans that are shared segments, ascending and disjoint."""

WORK = 20_000_000
"""What :func:`cheapest` may do by default: up to five seconds for 180 queries of length 10 over 50 event types, most of
a minute at worst, for dense workloads whose relaxation is just not fractional enough."""

ITERATION = 1000
"""Work of an iteration of the simplex method."""

ROUNDED = (0.3, 0.4, 0.5)
"""A relaxation is rounded to the patterns that it counts by more than this."""

PASSES = 6
"""Most passes over all patterns that improve a plan that cannot be proven."""

PLANS = 200_000
"""Plans that :func:`find_plan` may consider by default, and candidates to which :func:`expand` may expand a graph."""

EXHAUSTIVE_LIMIT = 22
"""Most candidates of an exhaustive search, which tabulates 2^n plans."""

INT32 = (1 << 31) - 1
"""The solver's largest limit."""

PROVEN = 1e-6
"""How far, relatively, a proven plan may be above the bound: the solver's own tolerances."""


@dataclass(frozen=True, order=True)
class Pattern:
    """What planning knows of a sequence query: its name, and its event types in order (one or more)."""

    name: str
    types: Types

    def __post_init__(self) -> None:
        if not self.types:
            raise ValueError(f"query {self.name} has an empty pattern")


class SequenceProblem:
    """Sequence queries that may share, and what it costs to count them.

    All queries have the same filters, groups and windows. The order in which they are given does not matter.

    Parameters
    ----------
    queries
        Of different names.
    rates
        Events per window and group of every event type of the queries (>= 0); others are ignored.

    Attributes
    ----------
    queries
        By name. Everywhere else in this module queries are numbers in this order.
    rates
        Of the event types of the queries, by name.

    Raises
    ------
    ValueError
        A name that is used twice; an event type without a rate, or with one that is negative or not finite.
    """

    def __init__(self, queries: Iterable[Pattern], rates: Mapping[str, float]) -> None:
        self.queries = tuple(sorted(queries))
        repeated = [one.name for one, other in pairwise(self.queries) if one.name == other.name]
        if repeated:
            raise ValueError(f"names of several queries: {repeated}")
        types = sorted({kind for query in self.queries for kind in query.types})
        if missing := [kind for kind in types if kind not in rates]:
            raise ValueError(f"event types without a rate: {missing}")
        self.rates = {kind: float(rates[kind]) for kind in types}
        if wrong := [kind for kind, rate in self.rates.items() if not 0 <= rate < math.inf]:
            raise ValueError(f"event types whose rates are no finite numbers >= 0: {wrong}")

    def counting(self, types: Types) -> float:
        """Updates of the counts of one segment: Rate(E1) * Rate(P), one per START event and matched event (Eq. 2)."""
        return self.rates[types[0]] * math.fsum(self.rates[kind] for kind in types)

    def combining(self, query: int, span: Span, second: bool) -> float:
        """Multiplications that a query's segment adds (Eq. 5).

        At every START event of a segment, the counts of all before it (one per START event of the query) are
        multiplied with those of the segment before (one per START event of that): of k segments with s1, ..., sk
        START events, s1*s2 if k = 2, otherwise s1*(s2*s3 + ... + s(k-1)*sk). What step pays for segment i is charged
        to segment i - 1, so that it depends on both its ends, and to the last one if it is the ``second``.
        """
        types = self.queries[query].types
        begin, end = span
        if begin == 0:
            return 0.0
        before = self.rates[types[0]] * self.rates[types[begin]]
        if end < len(types):
            return before * self.rates[types[end]]
        return before if second else 0.0

    def unshared(self, query: int) -> float:
        """Cost of a query without sharing (Eq. 2)."""
        return self.counting(self.queries[query].types)

    def segments(self, query: int, shared: Sequence[Span]) -> list[tuple[Span, bool]]:
        """All segments of a query and whether they are shared, given those that are: the rest between them is its own.

        Raises ValueError where the spans are not ascending and disjoint, or not within the pattern.
        """
        found, at, length = [], 0, len(self.queries[query].types)
        for begin, end in shared:
            if not at <= begin < end <= length:
                raise ValueError(f"query {self.queries[query].name} cannot have the segments {list(shared)}")
            found += [((at, begin), False)] * (at < begin) + [((begin, end), True)]
            at = end
        return found + [((at, length), False)] * (at < length)

    def own_cost(self, query: int, shared: Sequence[Span]) -> float:
        """What a query costs besides its shared segments: its own segments and combining them all (Eq. 6)."""
        types = self.queries[query].types
        return math.fsum(
            (0.0 if is_shared else self.counting(types[slice(*span)])) + self.combining(query, span, number == 1)
            for number, (span, is_shared) in enumerate(self.segments(query, shared))
        )

    def cost(self, sharing: Sharing) -> float:
        """Exact cost of a plan: every query's own, and each shared pattern once."""
        return math.fsum(
            [self.own_cost(query, spans) for query, spans in enumerate(sharing)]
            + [self.counting(types) for types in self.shared(sharing)]
        )

    def shared(self, sharing: Sharing) -> dict[Types, tuple[tuple[int, int], ...]]:
        """The shared patterns of a plan in alphabetical order, with their (query, begin)."""
        found = defaultdict(list)
        for query, spans in enumerate(sharing):
            for begin, end in spans:
                found[self.queries[query].types[begin:end]].append((query, begin))
        return {types: tuple(found[types]) for types in sorted(found)}

    def occurrences(self) -> dict[Types, tuple[tuple[int, int], ...]]:
        """All patterns of two and more event types that occur at two and more places, with their (query, begin).

        In alphabetical order. O(n*l^2) patterns of n queries of length l.
        """
        found = defaultdict(list)
        for number, query in enumerate(self.queries):
            for begin, end in combinations(range(len(query.types) + 1), 2):
                if end - begin > 1:
                    found[query.types[begin:end]].append((number, begin))
        return {types: tuple(found[types]) for types in sorted(found) if len(found[types]) > 1}


# ------------------------------------------------------------------------------------------ as published
@dataclass(frozen=True, order=True)
class Candidate:
    """A sharing candidate (p, Qp): a pattern and the queries that would share it (Def. 3).

    ``occurrences``: (query, begin), ascending. Of a query that contains the pattern repeatedly, its leftmost disjoint
    occurrences.
    """

    pattern: Types
    occurrences: tuple[tuple[int, int], ...]

    @property
    def queries(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(query for query, _ in self.occurrences))

    def spans(self) -> dict[int, list[Span]]:
        """Its occurrences by query."""
        found = defaultdict(list)
        for query, begin in self.occurrences:
            found[query].append((begin, begin + len(self.pattern)))
        return found

    def among(self, queries: Set[int]) -> Candidate:
        """The candidate for some of its queries."""
        return Candidate(self.pattern, tuple(found for found in self.occurrences if found[0] in queries))


def sharing_candidates(problem: SequenceProblem) -> tuple[Candidate, ...]:
    """All sharable patterns, each with all queries that contain it (modified CCSpan, Algorithm 7), alphabetically."""
    found = []
    for pattern, occurrences in problem.occurrences().items():
        disjoint: list[tuple[int, int]] = []
        for query, begin in occurrences:
            if not disjoint or disjoint[-1][0] != query or disjoint[-1][1] + len(pattern) <= begin:
                disjoint.append((query, begin))
        candidate = Candidate(pattern, tuple(disjoint))
        if len(candidate.queries) > 1:
            found.append(candidate)
    return tuple(found)


def benefit(problem: SequenceProblem, candidate: Candidate) -> float:
    """BValue of a sharing candidate: what its queries cost less than unshared if they share it alone (Eq. 8)."""
    return math.fsum(
        [-problem.counting(candidate.pattern)]
        + [problem.unshared(query) - problem.own_cost(query, spans) for query, spans in candidate.spans().items()]
    )


@dataclass(frozen=True)
class SharonGraph:
    """Sharing candidates and their conflicts (Def. 10). Vertices are numbers; sets of them are bits of an int.

    Attributes
    ----------
    candidates
        In alphabetical order.
    weights
        Their benefits, all positive.
    neighbours
        For every vertex those that it conflicts with.
    """

    candidates: tuple[Candidate, ...]
    weights: tuple[Fraction, ...]
    neighbours: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.weights)

    @cached_property
    def size(self) -> int:
        """Vertices and edges."""
        return len(self) + sum(around.bit_count() for around in self.neighbours) // 2

    @cached_property
    def whole_weights(self) -> tuple[tuple[int, ...], int]:
        """The weights as integers, and what one of their units is divided by: all decisions are exact."""
        scale = math.lcm(*(weight.denominator for weight in self.weights))
        return tuple(int(weight * scale) for weight in self.weights), scale

    def score(self, plan: Iterable[int]) -> Fraction:
        """Sum of the benefits of some vertices (Eq. 9)."""
        return sum((self.weights[vertex] for vertex in plan), Fraction(0))

    def is_valid(self, plan: Iterable[int]) -> bool:
        """Are no two of these vertices in conflict (Def. 7)?"""
        plan = list(plan)
        return not any(self.neighbours[vertex] >> other & 1 for vertex in plan for other in plan)


def sharon_graph(problem: SequenceProblem, candidates: Iterable[Candidate] | None = None) -> SharonGraph:
    """The graph of those candidates that are beneficial (Algorithm 1).

    Candidates conflict where their occurrences intersect in a query that both have. Without ``candidates`` those of
    :func:`sharing_candidates`.
    """
    found = sharing_candidates(problem) if candidates is None else sorted(set(candidates))
    worth = [(candidate, value) for candidate in found if (value := benefit(problem, candidate)) > 0]
    covering: dict[tuple[int, int], int] = defaultdict(int)
    places = [
        [(query, at) for query, begin in candidate.occurrences for at in range(begin, begin + len(candidate.pattern))]
        for candidate, _ in worth
    ]
    for vertex, cells in enumerate(places):
        for cell in cells:
            covering[cell] |= 1 << vertex
    neighbours = []
    for vertex, cells in enumerate(places):
        around = 0
        for cell in cells:
            around |= covering[cell]
        neighbours.append(around & ~(1 << vertex))
    return SharonGraph(
        tuple(candidate for candidate, _ in worth), tuple(Fraction(value) for _, value in worth), tuple(neighbours)
    )


def _bits(vertices: int) -> Iterator[int]:
    while vertices:
        low = vertices & -vertices
        yield low.bit_length() - 1
        vertices ^= low


def guaranteed_weight(graph: SharonGraph) -> Fraction:
    """A weight that GWMIN's plan has at least (Eq. 10)."""
    pairs = zip(graph.weights, graph.neighbours, strict=True)
    return sum((weight / (around.bit_count() + 1) for weight, around in pairs), Fraction(0))


def maximal_scores(graph: SharonGraph) -> tuple[Fraction, ...]:
    """For every vertex the weight of all that it does not conflict with, itself included (Eq. 11)."""
    everything = graph.score(range(len(graph)))
    return tuple(everything - graph.score(_bits(around)) for around in graph.neighbours)


class Reduction(NamedTuple):
    """What is left of a graph, and its conflict-free vertices, which are in every plan of highest score."""

    left: tuple[int, ...]
    free: tuple[int, ...]


def reduce(graph: SharonGraph, minimum: Fraction) -> Reduction:
    """Take conflict-ridden and conflict-free vertices out of a graph until there are none (Algorithm 2, corrected).

    A vertex is conflict-ridden if no plan with it can reach ``minimum``, a weight that some plan is known to have.
    Conflict-free vertices keep counting for those that stay, other than in the paper, whose algorithm loses the
    plan of highest score. What is found does not depend on the order of the vertices.
    """
    weights, scale = graph.whole_weights
    reachable, least = sum(weights), minimum * scale
    left, free = (1 << len(graph)) - 1, 0
    while True:
        before = left
        for vertex in _bits(left):
            around = graph.neighbours[vertex] & left
            if not around:
                free |= 1 << vertex
                left ^= 1 << vertex
            elif reachable - sum(weights[other] for other in _bits(around)) < least:
                reachable -= weights[vertex]
                left ^= 1 << vertex
        if left == before:
            return Reduction(tuple(_bits(left)), tuple(_bits(free)))


@dataclass(frozen=True)
class Search:
    """A plan, as vertices of a Sharon graph, and how it was found.

    Attributes
    ----------
    plan
        In the order in which GWMIN chose them, otherwise ascending.
    score
        Sum of their weights (Eq. 9).
    proven
        Has no plan a higher score?
    work
        Plans considered (GWMIN: vertices compared).
    peak
        Numbers held at once: vertices and edges of the graph, vertices of the plans of two levels.
    """

    plan: tuple[int, ...]
    score: Fraction
    proven: bool
    work: int
    peak: int


def gwmin(graph: SharonGraph) -> Search:
    """The greedy plan: again and again the vertex of largest weight / (degree + 1) among those left (Algorithm 8).

    The first vertex wins ties. Its score is at least :func:`guaranteed_weight`. O(n*p + e) for a plan of p vertices.
    """
    weights, _ = graph.whole_weights
    left, plan, work = (1 << len(graph)) - 1, [], 0
    degrees = [around.bit_count() for around in graph.neighbours]
    while left:
        best = -1
        for vertex in _bits(left):
            work += 1
            if best < 0 or weights[vertex] * (degrees[best] + 1) > weights[best] * (degrees[vertex] + 1):
                best = vertex
        plan.append(best)
        gone = graph.neighbours[best] & left | 1 << best
        left &= ~gone
        for vertex in _bits(gone):
            for other in _bits(graph.neighbours[vertex] & left):
                degrees[other] -= 1
    return Search(tuple(plan), graph.score(plan), False, work, graph.size + len(plan))


def find_plan(graph: SharonGraph, plans: int | None = PLANS) -> Search:
    """The plan of highest score among all valid plans of the reduced graph (Algorithms 2-4).

    Valid plans of s + 1 vertices come from pairs of valid plans of s that differ in the last one (Algorithm 3); here
    every plan keeps the later vertices that conflict with none of its own, so that no pair has to be compared. The
    first plan wins ties.

    Parameters
    ----------
    graph
        The Sharon graph, expanded or not.
    plans
        How many to consider at most, None for no limit. Then what is found is the greedy plan, or the best so far
        if that is better, not proven; the search can be repeated with a larger limit later (section 6).
    """
    greedy = gwmin(graph)
    left, free = reduce(graph, guaranteed_weight(graph))
    weights, _ = graph.whole_weights
    inside = sum(1 << vertex for vertex in left)
    # of each plan its vertices, their weight, and the later vertices that it can take
    level = [(1 << v, weights[v], inside >> v + 1 << v + 1 & ~graph.neighbours[v]) for v in left]
    best, highest, work, held, size = 0, 0, len(level), len(level), 1
    while level and (plans is None or work <= plans):
        children = []
        for plan, weight, open_to in level:
            if weight > highest:
                best, highest = plan, weight
            for v in _bits(open_to):
                children.append((plan | 1 << v, weight + weights[v], open_to >> v + 1 << v + 1 & ~graph.neighbours[v]))
            if plans is not None and work + len(children) > plans:
                break
        work += len(children)
        held = max(held, len(level) * size + len(children) * (size + 1))
        level, size = children, size + 1
    found = tuple(sorted((*_bits(best), *free)))
    search = Search(found, graph.score(found), not level, work, graph.size + held)
    if level and greedy.score >= search.score:
        return replace(search, plan=greedy.plan, score=greedy.score)
    return search


def exhaustive(graph: SharonGraph) -> Search:
    """The plan of highest score by going through all 2^n sets of vertices.

    Raises
    ------
    HeddleError
        HDL-351 above :data:`EXHAUSTIVE_LIMIT` vertices.
    """
    if len(graph) > EXHAUSTIVE_LIMIT:
        raise HeddleError(
            "HDL-351",
            f"an exhaustive search takes at most {EXHAUSTIVE_LIMIT} sharing candidates, not {len(graph)}",
            "use the integer program, which proves the cheapest plan of many more",
        )
    scores = np.zeros(1)
    for vertex, (weight, around) in enumerate(zip(graph.weights, graph.neighbours, strict=True)):
        meets = np.arange(1 << vertex) & around % (1 << vertex) != 0
        scores = np.concatenate([scores, np.where(meets, -np.inf, scores + float(weight))])
    plan = tuple(_bits(int(scores.argmax())))
    return Search(plan, graph.score(plan), True, len(scores) - 1, graph.size + len(scores))


def options(graph: SharonGraph, vertex: int, any_subset: bool = True, limit: int = PLANS) -> list[Candidate]:
    """The candidate of a vertex for fewer queries, so that its conflicts are resolved; itself first (Algorithm 5).

    Parameters
    ----------
    any_subset
        Drop any of the queries that cause conflicts, leaving the rest of a conflict to the other candidate (Def. 16).
        Otherwise all queries that cause a conflict are dropped together, as in the paper's Figure 11.
    limit
        Most options.

    Raises
    ------
    HeddleError
        HDL-351 above the limit: n queries in conflict have 2^n subsets.
    """
    candidate = graph.candidates[vertex]
    conflicts = [_causes(candidate, graph.candidates[other]) for other in _bits(graph.neighbours[vertex])]
    everyone = frozenset(candidate.queries)
    found = {everyone: None}
    if any_subset:
        causing = sorted(frozenset().union(*conflicts))
        if 1 << len(causing) > limit:
            raise _too_many(limit)
        for size in range(1, len(causing) + 1):
            for dropped in combinations(causing, size):
                if len(everyone) - size > 1:
                    found[everyone.difference(dropped)] = None
    else:
        level = [everyone]
        while level:
            below: dict[frozenset[int], None] = {}
            for queries in level:
                for causes in conflicts:
                    fewer = queries - causes
                    if len(fewer) > 1 and fewer not in found:
                        found[fewer] = below[fewer] = None
            if len(found) > limit:
                raise _too_many(limit)
            level = list(below)
    return [candidate.among(queries) for queries in found]


def _causes(one: Candidate, other: Candidate) -> frozenset[int]:
    """The queries in which two candidates overlap."""
    theirs = other.spans()
    return frozenset(
        query
        for query, begin in one.occurrences
        if any(begin < end and start < begin + len(one.pattern) for start, end in theirs.get(query, ()))
    )


def _too_many(limit: int) -> HeddleError:
    return HeddleError(
        "HDL-351",
        f"conflict resolution takes at most {limit} options",
        "use the integer program, which considers every subset of the queries without listing them",
    )


def expand(problem: SequenceProblem, graph: SharonGraph, any_subset: bool = True, limit: int = PLANS) -> SharonGraph:
    """The graph with all options of all candidates that are beneficial (Algorithm 6).

    Raises HDL-351 where there are more than ``limit`` options.
    """
    found: list[Candidate] = []
    for vertex in range(len(graph)):
        found += options(graph, vertex, any_subset, limit - len(found))
    return sharon_graph(problem, found)


def sharing_of(problem: SequenceProblem, candidates: Iterable[Candidate]) -> Sharing:
    """What a valid plan of candidates shares in every query."""
    spans: list[list[Span]] = [[] for _ in problem.queries]
    for candidate in candidates:
        for query, begin in candidate.occurrences:
            spans[query].append((begin, begin + len(candidate.pattern)))
    return tuple(tuple(sorted(found)) for found in spans)


# ------------------------------------------------------------------------------------- integer programs
class _Program:
    """Columns in [0, 1] to be minimised over rows, entered one by one."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self._row: list[int] = []
        self._column: list[int] = []
        self._value: list[float] = []
        self._limits: list[float] = []
        self._equal: list[bool] = []

    @property
    def nonzeros(self) -> int:
        return len(self._value)

    def column(self, cost: float) -> int:
        self.costs.append(cost)
        return len(self.costs) - 1

    def row(self, plus: Sequence[int], minus: Sequence[int] = (), limit: float = 0.0, equal: bool = False) -> None:
        """Sum of columns ``plus`` - sum of columns ``minus`` <= limit, or equal to it. Repeated columns add up."""
        self._row += [len(self._limits)] * (len(plus) + len(minus))
        self._column += [*plus, *minus]
        self._value += [1.0] * len(plus) + [-1.0] * len(minus)
        self._limits.append(limit)
        self._equal.append(equal)

    def _matrix(self) -> Any:
        # a plan of few queries must not pay for the import
        from scipy.sparse import csr_array

        return csr_array((self._value, (self._row, self._column)), shape=(len(self._limits), len(self.costs)))

    def relaxed(self, unit: float, iterations: int | None) -> Relaxation | None:
        """The solution without integrality; None if the iterations of the simplex method do not suffice.

        ``unit``: what costs are divided by, so that the solver's absolute tolerances are small beside them.
        """
        from scipy.optimize import linprog

        matrix, limits, equal = self._matrix(), np.array(self._limits), np.array(self._equal)
        found = linprog(
            np.array(self.costs) / unit,
            *(matrix[~equal], limits[~equal], matrix[equal], limits[equal]),
            bounds=(0, 1),
            method="highs-ds",
            options={} if iterations is None else {"maxiter": min(iterations, INT32)},
        )
        if found.status != 0:
            return None
        return Relaxation(found.x, found.fun * unit, found.lower.marginals * unit)

    def solve(self, unit: float, columns: NDArray[np.bool_], nodes: int | None) -> tuple[Floats | None, float]:
        """The best solution of some columns that the nodes suffice to find (None: none was), and a lower bound."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        limits = np.array(self._limits)
        found = milp(
            np.array(self.costs)[columns] / unit,
            integrality=np.ones(columns.sum()),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(self._matrix()[:, columns], np.where(self._equal, limits, -np.inf), limits),
            options={"mip_rel_gap": 0.0} | ({} if nodes is None else {"node_limit": min(nodes, INT32)}),
        )
        if found.x is None:
            return None, math.inf if found.status == 2 else -math.inf
        values = np.zeros(len(columns))
        values[columns] = found.x
        return values, found.mip_dual_bound * unit

    def entries(self, columns: NDArray[np.bool_]) -> int:
        """Nonzeros of some columns."""
        return int(columns[self._column].sum())


class Relaxation(NamedTuple):
    """``values`` of the columns, their ``cost``, which is a lower bound, and what it rises by at least if a column
    is one (``reduced_costs``)."""

    values: Floats
    cost: float
    reduced_costs: Floats


@dataclass(frozen=True)
class Cheapest:
    """A plan and how far it is known to be the cheapest. Costs are operations per window.

    ``bound``: no plan costs less. ``greedy``: cost of GWMIN's plan. ``nonzeros``: size of the integer program.
    """

    sharing: Sharing
    cost: float
    bound: float
    greedy: float
    nonzeros: int

    @property
    def proven(self) -> bool:
        return self.cost <= self.bound * (1 + PROVEN)


def cheapest(problem: SequenceProblem, work: int | None = WORK) -> Cheapest:
    """The plan of least exact cost, among all ways to cut every query into segments and share them.

    A pattern is shared if it is a segment at two and more places; a query for which that is no gain may be one of
    them, and one query may be two.

    Columns: for every pattern, is it counted; for every query and span, is this one of its segments, shared or its
    own; the last segment twice, since it is dearer if it is also the second (:meth:`SequenceProblem.combining`).
    Rows: a query's segments are a path through its pattern; no two segments of its own touch; shared ones are
    of a pattern that is counted, and that two at least share.

    Often the relaxation is integral, which is a proof. Otherwise it is rounded to good plans, which are improved by
    opening and closing one shared pattern at a time, and with the best one's cost columns are ruled out. If few are
    left the integer program is solved; if not the plan is the good one, not proven, but the relaxation's cost tells how
    far it is from the cheapest at most. Where not even the relaxation can be solved, GWMIN's plan is improved.

    Parameters
    ----------
    work
        Nonzeros of the columns that are left times columns that the relaxation leaves fractional, above which the
        program is not solved; None for no limit. Work is counted, not timed: the plan does not depend on the machine.
        One that is not proven can be replaced later, with more work (section 6).
    """
    graph = sharon_graph(problem)
    greedy = sharing_of(problem, (graph.candidates[vertex] for vertex in gwmin(graph).plan))
    greedy_cost = problem.cost(greedy)
    known = min((problem.cost(((),) * len(greedy)), ((),) * len(greedy)), (greedy_cost, greedy))
    program, counted, segments = _segment_program(problem, known[0])

    def found(bound: float, *sharings: Sharing) -> Cheapest:
        cost, sharing = min([known, *((problem.cost(sharing), sharing) for sharing in sharings)])
        return Cheapest(sharing, cost, min(bound, cost), greedy_cost, program.nonzeros)

    def chosen(values: Floats) -> Sharing:
        spans: list[list[Span]] = [[] for _ in problem.queries]
        for column, query, span in segments:
            if values[column] > 0.5:
                spans[query].append(span)
        return tuple(tuple(sorted(ones)) for ones in spans)

    if not segments or known[0] <= 0:
        return found(known[0])
    unit = known[0] * 1e-6
    relaxation = program.relaxed(unit, None if work is None else work // ITERATION)
    if relaxation is None:
        return found(0.0, _Router(problem).descend(problem.shared(greedy).keys()))
    values, bound = relaxation.values, relaxation.cost
    fractional = int(np.count_nonzero(np.abs(values - np.round(values)) > 1e-9))
    if not fractional and (integral := found(bound, chosen(values))).proven:
        return integral
    starts = [{types for types, column in counted.items() if values[column] > least} for least in ROUNDED]
    good = found(bound, *map(_Router(problem).descend, starts))
    if good.proven:
        return good
    # in a cheaper plan no column is one that would lift the bound above what is known
    useful = relaxation.reduced_costs <= good.cost - bound + 1e-9 * good.cost
    entries = program.entries(useful)
    if work is not None and entries * fractional > work:
        return good
    solution, proof = program.solve(unit, useful, None if work is None else work // entries)
    return found(max(bound, proof), good.sharing, *([] if solution is None else [chosen(solution)]))


def _segment_program(
    problem: SequenceProblem, most: float
) -> tuple[_Program, dict[Types, int], list[tuple[int, int, Span]]]:
    """The program, its column of every pattern, and its (column, query, span) of shared segments.

    ``most``: cost of a known plan. Nothing dearer can be a part of the cheapest.
    """
    program = _Program()
    most *= 1 + 1e-9
    counted: dict[Types, int] = {}
    users: dict[int, list[int]] = {}
    shareable: list[list[tuple[Span, int | None]]] = [[] for _ in problem.queries]
    segments: list[tuple[int, int, Span]] = []
    for types, occurrences in problem.occurrences().items():
        if (cost := problem.counting(types)) <= most:
            counted[types] = program.column(cost)
            users[counted[types]] = []
            for query, begin in occurrences:
                shareable[query].append(((begin, begin + len(types)), counted[types]))
    for query, arcs in enumerate(shareable):
        types = problem.queries[query].types
        starts = {begin for (begin, _), _ in arcs} | {len(types)}
        stops = {end for (_, end), _ in arcs} | {0}
        arcs += [((begin, end), None) for begin in sorted(stops) for end in sorted(starts) if begin < end]
        # columns by the position at which their segment begins, and at which it ends
        leaving, entering, own_leaving, shared_entering = (_by_position() for _ in range(4))
        # the last segment if it is at least the third, and what it can follow
        late, later = _by_position(), _by_position()
        for (begin, end), pattern in arcs:
            last = begin > 0 and end == len(types)
            columns = []
            for second in (True, False) if last else (False,):
                cost = problem.combining(query, (begin, end), second)
                if pattern is None:
                    cost += problem.counting(types[begin:end])
                if cost <= most:
                    columns.append(program.column(cost))
                    late[begin] += columns[-1:] * (last and not second)
            leaving[begin] += columns
            entering[end] += columns
            later[end] += columns * (begin > 0)
            if pattern is None:
                own_leaving[begin] += columns
            else:
                shared_entering[end] += columns
                users[pattern] += columns
                segments += [(column, query, (begin, end)) for column in columns]
                program.row(columns, [pattern])
        program.row(leaving[0], limit=1, equal=True)
        for at in range(1, len(types)):
            if leaving[at] or entering[at]:
                program.row(leaving[at], entering[at], equal=True)
                program.row(own_leaving[at], shared_entering[at])
                program.row(late[at], later[at])
    for pattern, columns in users.items():
        program.row([pattern, pattern], columns)
    return program, counted, segments


def _by_position() -> defaultdict[int, list[int]]:
    return defaultdict(list)


class _Router:
    """Cheapest ways to cut queries into segments where some patterns are counted anyway."""

    def __init__(self, problem: SequenceProblem) -> None:
        self.problem = problem
        places = problem.occurrences()
        self.patterns = list(places)
        longest = max((len(query.types) for query in problem.queries), default=0)
        self.lengths = np.array([len(query.types) for query in problem.queries], dtype=np.int64)
        self.rates = np.zeros((len(problem.queries), longest))
        for row, one in zip(self.rates, problem.queries, strict=True):
            row[: len(one.types)] = [problem.rates[kind] for kind in one.types]
        # the pattern of every span of every query, -1 where it is none
        self.spans = np.full((len(problem.queries), longest, longest + 1), -1, dtype=np.int64)
        for number, (types, occurrences) in enumerate(places.items()):
            for query, begin in occurrences:
                self.spans[query, begin, begin + len(types)] = number
        self.holders = [np.unique([query for query, _ in occurrences]) for occurrences in places.values()]
        self.counting = np.array([problem.counting(types) for types in self.patterns])

    def route(self, query: int, held: Set[Types], through: Span | None = None) -> tuple[Span, ...]:
        """The shared spans of one query if ``held`` patterns cost nothing; ``through`` is one of them in any case."""
        prices = np.array([0.0 if types in held else np.inf for types in self.patterns])
        row = slice(query, query + 1)
        spans = self.spans[row].copy()
        if through:
            # a segment that is worth more than all others can cost
            spans[0, through[0], through[1]] = len(prices)
            prices = np.append(prices, -4.0 * self.problem.unshared(query) - 1.0)
        chosen, own = np.empty((1, spans.shape[1]), dtype=np.int64), np.empty(1)
        _compiled()(np.zeros(1, np.int64), self.lengths[row], self.rates[row], spans, prices, chosen, own)
        sizes = [*map(len, self.patterns), through[1] - through[0] if through else 0]
        return _spans(chosen, sizes)[0]

    def descend(self, held: Set[Types]) -> Sharing:
        """A good plan near one that shares the patterns ``held``, one pattern opened or closed at a time.

        All queries go their cheapest ways through the open patterns; those that fewer than two places use are closed.
        Opening or closing one lets only the queries go elsewhere that have it or use it. Ends where no such move
        saves, or after :data:`PASSES` over all patterns.
        """
        route = _compiled()
        patterns = len(self.patterns)
        prices = np.array([0.0 if types in held else np.inf for types in self.patterns])
        chosen = np.empty((len(self.lengths), self.spans.shape[1]), dtype=np.int64)
        own = np.empty(len(self.lengths))

        def settled(rows: NDArray[np.int64]) -> float:
            """Cost once queries are routed anew, and patterns closed that are not shared any more."""
            while True:
                route(rows, self.lengths, self.rates, self.spans, prices, chosen, own)
                places = np.bincount(chosen.ravel() + 1, minlength=patterns + 1)[1:]
                prices[places < 2] = np.inf
                if not (places == 1).any():
                    return float(own.sum() + self.counting[places > 0].sum())
                # what is not chosen, -1, is the last entry
                rows = np.flatnonzero(np.append(places == 1, False)[chosen].any(axis=1))

        best = settled(np.arange(len(self.lengths)))
        state = prices.copy(), chosen.copy(), own.copy()
        for _ in range(PASSES):
            before = best
            for pattern in np.argsort(-self.counting, kind="stable"):
                prices[:], chosen[:], own[:] = state
                closing = prices[pattern] == 0
                prices[pattern] = np.inf if closing else 0.0
                rows = np.flatnonzero((chosen == pattern).any(axis=1)) if closing else self.holders[pattern]
                if (cost := settled(rows)) < best * (1 - 1e-12):
                    best, state = cost, (prices.copy(), chosen.copy(), own.copy())
            if best == before:
                break
        return _spans(state[1], [*map(len, self.patterns)])


def _spans(chosen: NDArray[np.int64], sizes: Sequence[int]) -> Sharing:
    """Shared spans from the number of the pattern that begins at each position (-1: none), given their lengths."""
    return tuple(tuple((int(at), int(at) + sizes[row[at]]) for at in np.flatnonzero(row >= 0)) for row in chosen)


@cache
def _compiled() -> Any:
    # a plan that the relaxation proves must not pay for the import
    from numba import njit

    return njit(cache=True)(_route)


def _route(
    rows: NDArray[np.int64],
    lengths: NDArray[np.int64],
    rates: Floats,
    spans: NDArray[np.int64],
    prices: Floats,
    chosen: NDArray[np.int64],
    own: Floats,
) -> None:
    """Shortest paths through the patterns of some queries, to be compiled.

    ``spans`` (n, l, l + 1): the pattern of each [begin, end), or -1; ``prices``: of the patterns, infinite where they
    are closed. Sets their rows of ``chosen`` (n, l), the pattern that begins as a shared segment at each position or
    -1, and of ``own`` (n,), what they cost (:meth:`SequenceProblem.own_cost`, and the prices).
    """
    size = rates.shape[1] + 1
    # by position: is the segment that comes next the second, does it follow one of the query's own
    costs = np.empty((size, 2, 2))
    came = np.empty((size, 2, 2, 4), np.int64)
    total = np.zeros(size)
    for query in rows:
        length, rate = lengths[query], rates[query]
        for at in range(length):
            total[at + 1] = total[at] + rate[at]
        costs[:] = np.inf
        costs[0, 0, 0] = 0.0
        for begin in range(length):
            for second in range(2):
                for after_own in range(2):
                    before = costs[begin, second, after_own]
                    if before == np.inf:
                        continue
                    for end in range(begin + 1, length + 1):
                        combined = 0.0
                        if begin and end < length:
                            combined = rate[0] * rate[begin] * rate[end]
                        elif begin and second:
                            combined = rate[0] * rate[begin]
                        after = int(begin == 0)
                        pattern = spans[query, begin, end]
                        if pattern >= 0:
                            cost = before + combined + prices[pattern]
                            if cost < costs[end, after, 0]:
                                costs[end, after, 0] = cost
                                came[end, after, 0] = begin, second, after_own, pattern
                        if not after_own:
                            cost = before + combined + rate[begin] * (total[end] - total[begin])
                            if cost < costs[end, after, 1]:
                                costs[end, after, 1] = cost
                                came[end, after, 1] = begin, second, after_own, -1
        at, second, after_own = length, 0, 0
        for one in range(2):
            for other in range(2):
                if costs[length, one, other] < costs[at, second, after_own]:
                    second, after_own = one, other
        own[query] = costs[at, second, after_own]
        chosen[query] = -1
        while at:
            begin, one, other, pattern = came[at, second, after_own]
            chosen[query, begin] = pattern
            at, second, after_own = begin, one, other


def best_score(problem: SequenceProblem) -> tuple[tuple[Candidate, ...], float]:
    """The plan of highest score among all subsets of the queries of all sharable patterns, and that score.

    What :func:`find_plan` looks for in an expanded graph, without listing its vertices; subsets that drop queries
    without a conflict are considered, too. Scores count what a query saves once for each pattern that it shares
    (Def. 8): the plan is not the cheapest, only Sharon's best. Proven up to the solver's tolerances.
    """
    program = _Program()
    covering = defaultdict(list)
    members: list[tuple[Candidate, dict[int, int]]] = []
    for candidate in sharing_candidates(problem):
        columns = {}
        counted = program.column(problem.counting(candidate.pattern))
        for query, spans in candidate.spans().items():
            columns[query] = program.column(problem.own_cost(query, spans) - problem.unshared(query))
            program.row([columns[query]], [counted])
            for begin, end in spans:
                for at in range(begin, end):
                    covering[query, at].append(columns[query])
        program.row([counted, counted], list(columns.values()))
        members.append((candidate, columns))
    if not members:
        return (), 0.0
    for columns_at in covering.values():
        program.row(columns_at, limit=1)
    unit = max(math.fsum(map(problem.unshared, range(len(problem.queries)))) * 1e-6, 1e-300)
    chosen, _ = program.solve(unit, np.ones(len(program.costs), dtype=np.bool_), None)
    assert chosen is not None
    plan = []
    for candidate, columns in members:
        if sharers := {query for query, column in columns.items() if chosen[column] > 0.5}:
            plan.append(candidate.among(sharers))
    return tuple(plan), math.fsum(benefit(problem, candidate) for candidate in plan)


# ------------------------------------------------------------------------------------------------- plans
@dataclass(frozen=True)
class Segment:
    """A piece of a query's pattern at positions [``begin``, ``end``); ``shared``: counted once for several queries."""

    types: Types
    begin: int
    end: int
    shared: bool


@dataclass(frozen=True)
class SequencePlan:
    """For every sequence query its segments, and which of them are shared. Costs are operations per window.

    Attributes
    ----------
    queries
        By name.
    rates
        (event type, events per window and group) that the plan was made for, by event type.
    sharing
        Shared spans of every query.
    greedy
        Cost of the plan that GWMIN finds.
    proven
        Is no plan cheaper?
    """

    queries: tuple[Pattern, ...]
    rates: tuple[tuple[str, float], ...]
    sharing: Sharing
    greedy: float
    proven: bool

    def __post_init__(self) -> None:
        problem = self.problem
        if problem.queries != self.queries or tuple(problem.rates.items()) != self.rates:
            raise ValueError("queries and rates of a plan are in order of names")
        if len(self.sharing) != len(self.queries):
            raise ValueError("one tuple of spans per query")
        for query, spans in enumerate(self.sharing):
            problem.segments(query, spans)
        for types, places in self.shared_places.items():
            if len(places) < 2 or len(types) < 2:
                raise ValueError(f"segment {sequence(types)} is shared, but has one place or one event type")

    @cached_property
    def problem(self) -> SequenceProblem:
        return SequenceProblem(self.queries, dict(self.rates))

    @cached_property
    def shared_places(self) -> dict[Types, tuple[tuple[int, int], ...]]:
        """The shared patterns in alphabetical order, with the (number of the query, begin) that share each."""
        return self.problem.shared(self.sharing)

    @property
    def shared(self) -> dict[Types, tuple[str, ...]]:
        """The shared patterns in alphabetical order, with the names of the queries that share each."""
        return {
            types: tuple(dict.fromkeys(self.queries[query].name for query, _ in places))
            for types, places in self.shared_places.items()
        }

    @cached_property
    def cost(self) -> float:
        return self.problem.cost(self.sharing)

    @cached_property
    def unshared(self) -> float:
        """Cost of every query for itself."""
        return math.fsum(map(self.problem.unshared, range(len(self.queries))))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Positions in ``queries`` by name."""
        return {query.name: number for number, query in enumerate(self.queries)}

    def segments(self, name: str) -> tuple[Segment, ...]:
        """The segments of one query, in order; KeyError if the plan has none of that name."""
        return self._segments(self.numbers[name])

    def _segments(self, query: int) -> tuple[Segment, ...]:
        types = self.queries[query].types
        found = self.problem.segments(query, self.sharing[query])
        return tuple(Segment(types[begin:end], begin, end, shared) for (begin, end), shared in found)

    def to_json(self) -> dict[str, Any]:
        """As text that :meth:`from_json` reads; the same plan always gives the same."""
        return {
            "format_version": 1,
            "cost": self.cost,
            "baselines": {"unshared": self.unshared, "greedy": self.greedy},
            "proven": self.proven,
            "rates": dict(self.rates),
            "queries": [
                {
                    "name": query.name,
                    "cost": self.problem.own_cost(number, self.sharing[number]),
                    "segments": [
                        {"types": list(one.types), "begin": one.begin, "end": one.end, "shared": one.shared}
                        for one in self._segments(number)
                    ],
                }
                for number, query in enumerate(self.queries)
            ],
            "shared": [
                {"types": list(types), "queries": list(names), "cost": self.problem.counting(types)}
                for types, names in self.shared.items()
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SequencePlan:
        """Inverse of :meth:`to_json`; costs are computed again.

        Raises ValueError where the segments or rates are not those of a plan.
        """
        if data.get("format_version") != 1:
            raise ValueError(f"unknown format version {data.get('format_version')!r}")
        queries = tuple(
            Pattern(query["name"], tuple(kind for segment in query["segments"] for kind in segment["types"]))
            for query in data["queries"]
        )
        sharing = tuple(
            tuple((segment["begin"], segment["end"]) for segment in query["segments"] if segment["shared"])
            for query in data["queries"]
        )
        return cls(queries, tuple(data["rates"].items()), sharing, data["baselines"]["greedy"], data["proven"])

    def explain(self, name: str) -> list[str]:
        """In words, line by line: a query's segments, with whom it shares them and what that costs; what of the
        plan's other shared patterns it could share, and what the plan would cost then.

        Raises KeyError if the plan has no query of that name.
        """
        query = self.numbers[name]
        types, problem, segments = self.queries[query].types, self.problem, self._segments(query)
        pieces = "1 segment" if len(segments) == 1 else f"{len(segments)} segments"
        found = [f"{name} counts {sequence(types)} in {pieces}"]
        for one in segments:
            cost = f"{problem.counting(one.types):.6g} updates"
            if one.shared:
                others = [other for other in self.shared[one.types] if other != name]
                places = len(self.shared_places[one.types])
                who = f"shared with {', '.join(others)}" if others else "shared within the query"
                found.append(f"  {sequence(one.types)}: {who}; {cost} for all {places} places")
            else:
                found.append(f"  {sequence(one.types)}: its own; {cost}")
        own, alone = problem.own_cost(query, self.sharing[query]), problem.unshared(query)
        if len(segments) > 1:
            combined = math.fsum(
                problem.combining(query, (one.begin, one.end), number == 1) for number, one in enumerate(segments)
            )
            found.append(f"  combining them: {combined:.6g} multiplications")
        found.append(f"cost per window besides what is shared {own:.6g}, without any sharing {alone:.6g}")
        if self.proven:
            found.append("the plan is proven optimal: no other segments of the queries are cheaper")
        alternatives = sorted(self._alternatives(query))
        for difference, pattern in alternatives:
            if difference > -1e-9 * self.cost:
                verdict = f"{max(difference, 0.0):.6g} dearer"
            else:
                verdict = f"{-difference:.6g} cheaper (the search ended before it tried this)"
            found.append(f"sharing {sequence(pattern)} too, the plan would be {verdict}")
        if not alternatives:
            found.append("no other pattern that the plan shares can be shared by it")
        return found

    def _alternatives(self, query: int) -> Iterator[tuple[float, Types]]:
        """What the plan costs more if a query takes part in another shared pattern, and which."""
        types, router = self.queries[query].types, _Router(self.problem)
        held = {types[slice(*span)] for span in self.sharing[query]}
        for pattern in self.shared_places.keys() - held:
            found = []
            for begin in range(len(types) - len(pattern) + 1):
                span = begin, begin + len(pattern)
                if types[slice(*span)] == pattern:
                    changed = list(self.sharing)
                    changed[query] = router.route(query, self.shared_places.keys(), span)
                    found.append(self.problem.cost(_dissolved(self.problem, tuple(changed))) - self.cost)
            if found:
                yield min(found), pattern

    def diff(self, other: SequencePlan) -> SequenceDiff:
        """What changes from this plan to another one."""
        before, after = ({query.name: query for query in plan.queries} for plan in (self, other))
        both = [name for name in after if name in before]
        ours, theirs = self.shared, other.shared
        return SequenceDiff(
            tuple(name for name in after if name not in before),
            tuple(name for name in before if name not in after),
            tuple(name for name in both if before[name] != after[name]),
            tuple(name for name in both if before[name] == after[name] and self.segments(name) != other.segments(name)),
            tuple(pattern for pattern in theirs if pattern not in ours),
            tuple(pattern for pattern in ours if pattern not in theirs),
            (self.cost, other.cost),
        )


@dataclass(frozen=True)
class SequenceDiff:
    """What changes from one plan to another.

    Attributes
    ----------
    added, removed, changed
        Names of queries; ``changed`` are those of another pattern.
    cut
        Names of queries of the same pattern, but other segments.
    shared, dissolved
        Patterns that only the new plan shares, and only the old one.
    cost
        Of both plans, each at its own rates.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    cut: tuple[str, ...]
    shared: tuple[Types, ...]
    dissolved: tuple[Types, ...]
    cost: tuple[float, float]

    @property
    def is_empty(self) -> bool:
        """Same queries of the same segments (costs may differ: rates do)."""
        return not (self.added or self.removed or self.changed or self.cut or self.shared or self.dissolved)

    def lines(self) -> list[str]:
        """The changes as plain text, one per line."""
        before, after = self.cost
        found = [f"+ query {name}" for name in self.added]
        found += [f"- query {name}" for name in self.removed]
        found += [f"~ query {name} (pattern changed)" for name in self.changed]
        found += [f"> query {name}: other segments" for name in self.cut]
        found += [f"+ shared {sequence(types)}" for types in self.shared]
        found += [f"- shared {sequence(types)}" for types in self.dissolved]
        return [*(found or ["same queries in the same segments"]), f"cost {before:.6g} -> {after:.6g}"]


def sequence(types: Types) -> str:
    """A pattern as it is written in a query."""
    return f"SEQ({', '.join(types)})"


def plan_sequences(queries: Iterable[Pattern], rates: Mapping[str, float], work: int | None = WORK) -> SequencePlan:
    """The cheapest plan of some queries, proven unless ``work`` ends first (:func:`cheapest`).

    Parameters
    ----------
    queries
        In any order, of different names; all of the same filters, groups and windows.
    rates
        Events per window and group by event type.

    Raises
    ------
    ValueError
        As :class:`SequenceProblem`.
    """
    problem = SequenceProblem(queries, rates)
    found = cheapest(problem, work)
    return SequencePlan(problem.queries, tuple(problem.rates.items()), found.sharing, found.greedy, found.proven)


@dataclass(frozen=True)
class Replanned:
    """A plan for changed queries or rates.

    ``kept``: is it what the earlier plan becomes, rather than the plan from scratch, whose cost is ``from_scratch``?
    ``diff``: what changes from the earlier plan.
    """

    plan: SequencePlan
    kept: bool
    from_scratch: float
    diff: SequenceDiff


def replan(
    plan: SequencePlan,
    queries: Iterable[Pattern],
    rates: Mapping[str, float],
    tolerance: float,
    work: int | None = WORK,
) -> Replanned:
    """Keep a plan under other queries or rates as long as it is not too dear (section 7.4).

    Queries that stay keep their segments; new ones share what the plan already shares, where that is cheaper for
    them; a pattern that is left with a single place is no longer shared. The plan is kept if it costs at most
    ``1 + tolerance`` times the plan from scratch (infinite: always).

    Parameters
    ----------
    plan
        The plan in force.
    queries, rates, work
        As for :func:`plan_sequences`.
    tolerance
        A fraction >= 0, e.g. 0.2.
    """
    problem = SequenceProblem(queries, rates)
    known = dict(zip(plan.queries, plan.sharing, strict=True))
    router = None if known.keys() >= set(problem.queries) else _Router(problem)
    sharing = _dissolved(
        problem,
        tuple(
            known[query] if router is None or query in known else router.route(number, plan.shared_places.keys())
            for number, query in enumerate(problem.queries)
        ),
    )
    found = cheapest(problem, work)
    cost = problem.cost(sharing)
    kept = tolerance == math.inf or cost <= (1 + tolerance) * found.cost
    proven = found.proven and (not kept or cost <= found.cost)
    chosen = sharing if kept else found.sharing
    new = SequencePlan(problem.queries, tuple(problem.rates.items()), chosen, found.greedy, proven)
    return Replanned(new, kept, found.cost, plan.diff(new))


def _dissolved(problem: SequenceProblem, sharing: Sharing) -> Sharing:
    """The sharing without patterns that have a single place left."""
    places = problem.shared(sharing)
    return tuple(
        tuple((begin, end) for begin, end in spans if len(places[problem.queries[query].types[begin:end]]) > 1)
        for query, spans in enumerate(sharing)
    )
