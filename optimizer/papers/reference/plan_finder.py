"""Sharon's plan finder as published: reduction of the graph, and the search level by level (Algorithms 2 to 4).

:mod:`optimizer.papers.reference.sharing_candidates` lists the deviations.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

import numpy as np

from optimizer.errors.diagnostics import HeddleError
from optimizer.papers.reference.sharing_candidates import (
    EXHAUSTIVE_LIMIT,
    PLANS,
    Candidate,
    Search,
    SequenceProblem,
    SharonGraph,
    bits,
    guaranteed_weight,
    gwmin,
    sharon_graph,
)


class Reduction(NamedTuple):
    """The vertices that remain of a graph, and its conflict-free vertices, which are in every plan of highest score."""

    left: tuple[int, ...]
    free: tuple[int, ...]


def reduce(graph: SharonGraph, minimum: Fraction) -> Reduction:
    """Remove conflict-ridden and conflict-free vertices from a graph until there are none (Algorithm 2, corrected).

    A vertex is conflict-ridden if no plan with it can reach ``minimum``, a weight that some plan is known to have.
    Conflict-free vertices keep counting for those that remain. The paper's algorithm does not count them and loses the
    plan of highest score. The reduction does not depend on the order of the vertices.
    """
    weights, scale = graph.whole_weights
    reachable, least = sum(weights), minimum * scale
    remaining, free = (1 << len(graph)) - 1, 0
    while True:
        before = remaining
        for vertex in bits(remaining):
            around = graph.neighbours[vertex] & remaining
            if not around:
                free |= 1 << vertex
                remaining ^= 1 << vertex
            elif reachable - sum(weights[other] for other in bits(around)) < least:
                reachable -= weights[vertex]
                remaining ^= 1 << vertex
        if remaining == before:
            return Reduction(tuple(bits(remaining)), tuple(bits(free)))


def find_plan(graph: SharonGraph, plans: int | None = PLANS) -> Search:
    """The plan of highest score among all valid plans of the reduced graph (Algorithms 2-4).

    Valid plans of s + 1 vertices come from pairs of valid plans of s that differ in the last one (Algorithm 3). Here
    every plan keeps the later vertices that conflict with none of its vertices, so that no pair has to be compared. The
    first plan wins ties.

    Parameters
    ----------
    graph
        The Sharon graph, expanded or not.
    plans
        Number of plans to consider at most, None for no limit. If it is reached, the greedy plan is returned, or the
        best so far if that is better, not proven. Repeat the search with a larger limit later (section 6).
    """
    greedy = gwmin(graph)
    vertices, free = reduce(graph, guaranteed_weight(graph))
    weights, _ = graph.whole_weights
    inside = sum(1 << vertex for vertex in vertices)
    # of each plan its vertices, their weight, and the later vertices that it can take
    level = [(1 << v, weights[v], inside >> v + 1 << v + 1 & ~graph.neighbours[v]) for v in vertices]
    best, highest, work, peak, size = 0, 0, len(level), len(level), 1
    while level and (plans is None or work <= plans):
        children = []
        for plan, weight, open_to in level:
            if weight > highest:
                best, highest = plan, weight
            for v in bits(open_to):
                children.append((plan | 1 << v, weight + weights[v], open_to >> v + 1 << v + 1 & ~graph.neighbours[v]))
            if plans is not None and work + len(children) > plans:
                break
        work += len(children)
        peak = max(peak, len(level) * size + len(children) * (size + 1))
        level, size = children, size + 1
    chosen = tuple(sorted((*bits(best), *free)))
    search = Search(chosen, graph.score(chosen), not level, work, graph.size + peak)
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
    plan = tuple(bits(int(scores.argmax())))
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
    conflicts = [_causes(candidate, graph.candidates[other]) for other in bits(graph.neighbours[vertex])]
    everyone = frozenset(candidate.queries)
    subsets = {everyone: None}
    if any_subset:
        causing = sorted(frozenset().union(*conflicts))
        if 1 << len(causing) > limit:
            raise _too_many(limit)
        for size in range(1, len(causing) + 1):
            for dropped in combinations(causing, size):
                if len(everyone) - size > 1:
                    subsets[everyone.difference(dropped)] = None
    else:
        level = [everyone]
        while level:
            below: dict[frozenset[int], None] = {}
            for queries in level:
                for causes in conflicts:
                    fewer = queries - causes
                    if len(fewer) > 1 and fewer not in subsets:
                        subsets[fewer] = below[fewer] = None
            if len(subsets) > limit:
                raise _too_many(limit)
            level = list(below)
    return [candidate.among(queries) for queries in subsets]


def _causes(candidate: Candidate, other: Candidate) -> frozenset[int]:
    """The queries in which two candidates overlap."""
    other_spans = other.spans()
    return frozenset(
        query
        for query, begin in candidate.occurrences
        if any(begin < end and start < begin + len(candidate.pattern) for start, end in other_spans.get(query, ()))
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
    candidates: list[Candidate] = []
    for vertex in range(len(graph)):
        candidates += options(graph, vertex, any_subset, limit - len(candidates))
    return sharon_graph(problem, candidates)
