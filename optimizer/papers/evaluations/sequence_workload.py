"""Workloads of event sequences, and what the searches for their plans take and find, side by side.

The paper's own workloads are not published: its e-commerce queries draw from 50 items, its taxi and Linear Road
queries from streets. Generated here are patterns over 50 event types that have pieces in common where one wants them.

References
----------
Poppe et al., "Sharon: Shared Online Event Sequence Aggregation", 2018: Figure 1 and Table 1 (traffic), section 8.1
(20 queries of length 10), Figures 15 and 16 (optimizers).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from optimizer.errors.diagnostics import HeddleError
from optimizer.papers.evaluations.outcome import Row
from optimizer.papers.reference.cheapest_sharing import best_score, cheapest
from optimizer.papers.reference.plan_finder import exhaustive, expand, find_plan
from optimizer.papers.reference.sharing_candidates import (
    PLANS,
    WORK,
    Pattern,
    Search,
    SequenceProblem,
    SharonGraph,
    gwmin,
    sharing_of,
    sharon_graph,
)

KINDS = ("prefix", "middle", "suffix", "pieces", "trips")
"""Kinds of common pieces in patterns: see :func:`generate_sequences`."""


def generate_sequences(
    count: int, length: int = 10, kind: str = "pieces", types: int = 50, rate: float = 4.0, seed: int = 0
) -> tuple[list[Pattern], dict[str, float]]:
    """Patterns without repeated event types, and rates; a larger ``count`` extends a smaller one of the same seed.

    Parameters
    ----------
    count, length
        Number of queries, and event types in each.
    kind
        ``prefix``, ``middle`` or ``suffix``: position of one of eight common pieces, half as long as the pattern; all
        other event types are random. ``pieces``: random pieces, two event types and longer, of five long routes
        through all event types. ``trips``: a trip on a street map, where each street leads to three others, the second
        half as often as the first and the third a third as often.
    types
        Event types to draw from.
    rate
        Events per window, group and event type on average; each type's is uniform between half of that and one and a
        half times as much.

    Raises
    ------
    ValueError
        Unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}: one of {', '.join(KINDS)}")
    names = [f"e{number:02}" for number in range(types)]
    random = np.random.default_rng(seed)
    rates = dict(zip(names, (rate * random.uniform(0.5, 1.5, types)).tolist(), strict=True))
    routes = [random.permutation(types).tolist() for _ in range(5)]
    common = [random.permutation(types)[: max(2, length // 2)].tolist() for _ in range(8)]
    onward = [random.permutation(types)[:3].tolist() for _ in range(types)]

    def pieces() -> list[int]:
        chosen: list[int] = []
        while len(chosen) < length:
            route, begin, size = routes[random.integers(5)], random.integers(types), random.integers(2, length + 1)
            chosen += [event for event in route[begin : begin + size] if event not in chosen]
        return chosen[:length]

    def trip() -> list[int]:
        chosen = [int(random.integers(types))]
        while len(chosen) < length:
            street = onward[chosen[-1]][random.choice(3, p=np.array([6, 3, 2]) / 11)]
            # a trip that comes back to a street starts anew
            chosen = [int(random.integers(types))] if street in chosen else [*chosen, street]
        return chosen

    def around() -> list[int]:
        piece = common[random.integers(8)]
        fillers = [event for event in random.permutation(types).tolist() if event not in piece][: length - len(piece)]
        before = {"prefix": 0, "middle": len(fillers) // 2, "suffix": len(fillers)}[kind]
        return [*fillers[:before], *piece, *fillers[before:]]

    pattern = {"pieces": pieces, "trips": trip}.get(kind, around)
    return [Pattern(f"q{number:04}", tuple(names[event] for event in pattern())) for number in range(count)], rates


def compare(problem: SequenceProblem, plans: int = PLANS, candidates: int = 3000, work: int = WORK) -> Row:
    """Figures 15 and 16 for one workload: the effort of the searches, and the costs of their plans.

    ``greedy``: GWMIN on the Sharon graph. ``sharon``: the graph expanded by dropping all queries of a conflict at
    once, reduced, and its plan of highest score. ``exhaustive``: all plans of the expanded graph. ``score``: the plan
    of highest score by an integer program. ``ours``: the cheapest plan. Columns of each: ``_seconds`` from the queries
    on, ``_work`` (plans considered; ours: nonzeros of the program), ``_peak`` (most numbers in memory),
    ``_score``, ``_cost`` (exact, the same for all) and ``_proven``. Seconds are None if the expanded graph would have
    more than ``candidates`` or the exhaustive search refused it. The plan finder gives up after ``plans``.
    """
    row: Row = {"queries": len(problem.queries), "unshared": problem.cost(((),) * len(problem.queries))}

    def expanded() -> SharonGraph:
        return expand(problem, sharon_graph(problem), any_subset=False, limit=candidates)

    def everything() -> tuple[SharonGraph, Search]:
        graph = expanded()
        return graph, exhaustive(graph)

    def sharons() -> tuple[SharonGraph, Search]:
        graph = expanded()
        return graph, find_plan(graph, plans)

    def greedy() -> tuple[SharonGraph, Search]:
        graph = sharon_graph(problem)
        return graph, gwmin(graph)

    searches: dict[str, Callable[[], tuple[SharonGraph, Search]]] = {
        "greedy": greedy,
        "sharon": sharons,
        "exhaustive": everything,
    }
    for name, search in searches.items():
        solution, seconds = _timed(search)
        row[f"{name}_seconds"] = seconds if solution else None
        if solution:
            graph, best = solution
            sharing = sharing_of(problem, (graph.candidates[vertex] for vertex in best.plan))
            row |= {
                f"{name}_candidates": len(graph),
                f"{name}_work": best.work,
                f"{name}_peak": best.peak,
                f"{name}_score": float(best.score),
                f"{name}_cost": problem.cost(sharing),
                f"{name}_proven": best.proven,
            }
    (best_candidates, score), row["score_seconds"] = _timed(lambda: best_score(problem))
    row |= {"score_score": score, "score_cost": problem.cost(sharing_of(problem, best_candidates))}
    ours, row["ours_seconds"] = _timed(lambda: cheapest(problem, work))
    return row | {
        "ours_work": ours.nonzeros,
        "ours_peak": ours.nonzeros,
        "ours_cost": ours.cost,
        "ours_proven": ours.proven,
    }


def _timed(search: Callable[[], Any]) -> tuple[Any, float]:
    """Return the solution of a search (None: it reached its limit) and its CPU seconds."""
    begin = time.process_time()
    try:
        solution = search()
    except HeddleError as error:
        if error.diagnostic.code != "HDL-351":
            raise
        solution = None
    return solution, time.process_time() - begin
