"""Sharing plans for event sequences: candidates, their benefit, the Sharon graph and its greedy plan.

An event sequence query SEQ(E1, ..., En) is counted in *segments*, contiguous pieces of its pattern, whose counts are
then combined. A segment that several queries have is counted once for all of them. A plan lists the shared segments of
every query; the pieces between them are unshared segments.

*As published.* Patterns of two and more event types that several queries contain are sharing candidates. Candidates
that overlap in a query conflict. A plan is an independent set of this graph, and its score the sum of its candidates'
benefits. GWMIN finds a plan greedily. The plan finder finds the one of highest score, level by level, after candidates
that cannot or must be in it have left the graph. Conflict resolution adds candidates for fewer queries than could
share.

*A cheaper plan* (:mod:`optimizer.papers.reference.cheapest_sharing`). Scores add up benefits, so a query that shares
two patterns is credited twice with one saving, and the plan of highest score is not the cheapest. Conflict resolution
also adds exponentially many candidates. Instead, the count of a query is a path through its pattern. The arcs are its
segments and the length is its exact cost. A shared arc has to be open, and is paid for once. This integer program
(shortest paths over arcs with a fixed charge) chooses among all sets of queries for every pattern. Its relaxation is so
tight that HiGHS proves the cheapest plan of hundreds of queries in seconds.

Costs are operations (updates of counts, multiplications) per window. Rates are events per window, group and event
type. A pattern may repeat an event type: everything here goes by *occurrences*, positions in a query's pattern.

References
----------
Poppe et al., "Sharon: Shared Online Event Sequence Aggregation", technical report, 2018: sections 3-7, Appendices A
and B. Sakai et al., "A note on greedy algorithms for the maximum weighted independent set problem", Discrete Applied
Mathematics 126, 2003 (GWMIN). Deviations:

- Eq. 5 has one product for all segments. It is read here as its text explains it, step by step, which is the same up
  to three segments (one shared pattern); an empty prefix or suffix contributes no factor.
- Section 7.3's factor for an event type that occurs k times is already contained in the sum of Eq. 1 over positions.
- Def. 6 compares a suffix of one pattern with a prefix of the other. Conflicts here are occurrences that intersect.
- Algorithm 2 loses the optimum as printed: the score of a conflict-free candidate that leaves the graph has to stay
  in the maximal scores of the others.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Types = tuple[str, ...]
"""Event types of a pattern, or of a piece of one, in order."""

Span = tuple[int, int]
"""Positions [begin, end) of a query's pattern, from 0."""

Sharing = tuple[tuple[Span, ...], ...]
"""For every query of a problem, in its order: the spans that are shared segments, ascending and disjoint."""

WORK = 20_000_000
"""Default limit of work of :func:`optimizer.papers.reference.cheapest_sharing.cheapest`: a few seconds for 180 queries
of length 10 over 50 event types.
"""

ITERATION = 1000
"""Work of an iteration of the simplex method."""

ROUNDED = (0.3, 0.4, 0.5)
"""A relaxation is rounded to the patterns that it counts by more than this."""

PLANS = 200_000
"""Plans that :func:`find_plan` may consider by default, and candidates to which :func:`expand` may expand a graph."""

EXHAUSTIVE_LIMIT = 22
"""Most candidates of an exhaustive search, which tabulates 2^n plans."""

INT32 = (1 << 31) - 1
"""The solver's largest limit."""

PROVEN = 1e-6
"""Largest relative distance of a proven plan from the bound: the solver's tolerances."""


@dataclass(frozen=True, order=True)
class Pattern:
    """A sequence query for planning: its name, and its event types in order (one or more)."""

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
        repeated = [query.name for query, other in pairwise(self.queries) if query.name == other.name]
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

    def segment_cost(self, query: int, span: Span, is_shared: bool, second: bool) -> float:
        """Cost of one of a query's segments to the query; ``second``: it is the query's second one."""
        own = 0.0 if is_shared else self.counting(self.queries[query].types[slice(*span)])
        return own + self.combining(query, span, second)

    def pattern_cost(self, types: Types) -> float:
        """Cost of a shared pattern, paid once for all queries that share it."""
        return self.counting(types)

    def unshared(self, query: int) -> float:
        """Cost of a query without sharing (Eq. 2)."""
        return self.own_cost(query, ())

    def segments(self, query: int, shared: Sequence[Span]) -> list[tuple[Span, bool]]:
        """All segments of a query and whether they are shared, given those that are: the rest between them is its own.

        Raises ValueError where the spans are not ascending and disjoint, or not within the pattern.
        """
        pieces, at, length = [], 0, len(self.queries[query].types)
        for begin, end in shared:
            if not at <= begin < end <= length:
                raise ValueError(f"query {self.queries[query].name} cannot have the segments {list(shared)}")
            pieces += [((at, begin), False)] * (at < begin) + [((begin, end), True)]
            at = end
        return pieces + [((at, length), False)] * (at < length)

    def own_cost(self, query: int, shared: Sequence[Span]) -> float:
        """Cost of a query without its shared segments: its unshared segments and combining all (Eq. 6)."""
        return math.fsum(
            self.segment_cost(query, span, is_shared, number == 1)
            for number, (span, is_shared) in enumerate(self.segments(query, shared))
        )

    def cost(self, sharing: Sharing) -> float:
        """Exact cost of a plan: every query's own, and each shared pattern once."""
        return math.fsum(
            [self.own_cost(query, spans) for query, spans in enumerate(sharing)]
            + [self.pattern_cost(types) for types in self.shared(sharing)]
        )

    def shared(self, sharing: Sharing) -> dict[Types, tuple[tuple[int, int], ...]]:
        """The shared patterns of a plan in alphabetical order, with their (query, begin)."""
        places = defaultdict(list)
        for query, spans in enumerate(sharing):
            for begin, end in spans:
                places[self.queries[query].types[begin:end]].append((query, begin))
        return {types: tuple(places[types]) for types in sorted(places)}

    def occurrences(self) -> dict[Types, tuple[tuple[int, int], ...]]:
        """All patterns of two and more event types that occur at two and more places, with their (query, begin).

        In alphabetical order. O(n*l^2) patterns of n queries of length l.
        """
        places = defaultdict(list)
        for number, query in enumerate(self.queries):
            for begin, end in combinations(range(len(query.types) + 1), 2):
                if end - begin > 1:
                    places[query.types[begin:end]].append((number, begin))
        return {types: tuple(places[types]) for types in sorted(places) if len(places[types]) > 1}


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
        by_query = defaultdict(list)
        for query, begin in self.occurrences:
            by_query[query].append((begin, begin + len(self.pattern)))
        return by_query

    def among(self, queries: Set[int]) -> Candidate:
        """The candidate for some of its queries."""
        return Candidate(self.pattern, tuple(place for place in self.occurrences if place[0] in queries))


def sharing_candidates(problem: SequenceProblem) -> tuple[Candidate, ...]:
    """All sharable patterns, each with all queries that contain it (modified CCSpan, Algorithm 7), alphabetically."""
    candidates = []
    for pattern, occurrences in problem.occurrences().items():
        disjoint: list[tuple[int, int]] = []
        for query, begin in occurrences:
            if not disjoint or disjoint[-1][0] != query or disjoint[-1][1] + len(pattern) <= begin:
                disjoint.append((query, begin))
        candidate = Candidate(pattern, tuple(disjoint))
        if len(candidate.queries) > 1:
            candidates.append(candidate)
    return tuple(candidates)


def benefit(problem: SequenceProblem, candidate: Candidate) -> float:
    """BValue of a sharing candidate: what its queries cost less than unshared if they share it alone (Eq. 8)."""
    return math.fsum(
        [-problem.pattern_cost(candidate.pattern)]
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
    considered = sharing_candidates(problem) if candidates is None else sorted(set(candidates))
    worth = [(candidate, value) for candidate in considered if (value := benefit(problem, candidate)) > 0]
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


def bits(vertices: int) -> Iterator[int]:
    """The positions of the bits that are set, ascending."""
    while vertices:
        low = vertices & -vertices
        yield low.bit_length() - 1
        vertices ^= low


def guaranteed_weight(graph: SharonGraph) -> Fraction:
    """A weight that GWMIN's plan has at least (Eq. 10)."""
    pairs = zip(graph.weights, graph.neighbours, strict=True)
    return sum((weight / (around.bit_count() + 1) for weight, around in pairs), Fraction(0))


@dataclass(frozen=True)
class Search:
    """A plan, as vertices of a Sharon graph, and the effort of the search.

    Attributes
    ----------
    plan
        In the order in which GWMIN chose them, otherwise ascending.
    score
        Sum of their weights (Eq. 9).
    proven
        Whether no plan has a higher score.
    work
        Plans considered (GWMIN: vertices compared).
    peak
        Most numbers in memory: vertices and edges of the graph, vertices of the plans of two levels.
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
    remaining, plan, work = (1 << len(graph)) - 1, [], 0
    degrees = [around.bit_count() for around in graph.neighbours]
    while remaining:
        best = -1
        for vertex in bits(remaining):
            work += 1
            if best < 0 or weights[vertex] * (degrees[best] + 1) > weights[best] * (degrees[vertex] + 1):
                best = vertex
        plan.append(best)
        removed = graph.neighbours[best] & remaining | 1 << best
        remaining &= ~removed
        for vertex in bits(removed):
            for other in bits(graph.neighbours[vertex] & remaining):
                degrees[other] -= 1
    return Search(tuple(plan), graph.score(plan), False, work, graph.size + len(plan))


def sharing_of(problem: SequenceProblem, candidates: Iterable[Candidate]) -> Sharing:
    """Return the shared spans of every query in a valid plan of candidates."""
    spans: list[list[Span]] = [[] for _ in problem.queries]
    for candidate in candidates:
        for query, begin in candidate.occurrences:
            spans[query].append((begin, begin + len(candidate.pattern)))
    return tuple(tuple(sorted(query_spans)) for query_spans in spans)
