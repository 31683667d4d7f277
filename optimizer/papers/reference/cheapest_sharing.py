"""The cheapest sharing plan of event sequences, by an integer program over shortest paths with fixed charges."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optimizer.papers.reference.sharing_candidates import (
    INT32,
    ITERATION,
    PROVEN,
    ROUNDED,
    WORK,
    Candidate,
    Floats,
    SequenceProblem,
    Sharing,
    Span,
    Types,
    benefit,
    gwmin,
    sharing_candidates,
    sharing_of,
    sharon_graph,
)


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

        ``unit``: divisor of the costs, so that the solver's absolute tolerances are small compared with them.
        """
        from scipy.optimize import linprog

        matrix, limits, equal = self._matrix(), np.array(self._limits), np.array(self._equal)
        solution = linprog(
            np.array(self.costs) / unit,
            *(matrix[~equal], limits[~equal], matrix[equal], limits[equal]),
            bounds=(0, 1),
            method="highs-ds",
            options={} if iterations is None else {"maxiter": min(iterations, INT32)},
        )
        if solution.status != 0:
            return None
        return Relaxation(solution.x, solution.fun * unit, solution.lower.marginals * unit)

    def solve(self, unit: float, columns: NDArray[np.bool_], nodes: int | None) -> tuple[Floats | None, float]:
        """The best solution of some columns that the nodes suffice to find (None: none was), and a lower bound."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        limits = np.array(self._limits)
        solution = milp(
            np.array(self.costs)[columns] / unit,
            integrality=np.ones(columns.sum()),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(self._matrix()[:, columns], np.where(self._equal, limits, -np.inf), limits),
            options={"mip_rel_gap": 0.0} | ({} if nodes is None else {"node_limit": min(nodes, INT32)}),
        )
        if solution.x is None:
            return None, math.inf if solution.status == 2 else -math.inf
        values = np.zeros(len(columns))
        values[columns] = solution.x
        return values, solution.mip_dual_bound * unit

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

    A pattern is shared if it is a segment at two and more places. One of these may belong to a query that gains
    nothing from it, and one query may have two.

    Columns: one per pattern (is it counted?); one per query and span, shared and unshared (is this one of the query's
    segments?). The last segment has two columns, since it costs more if it is also the second
    (:meth:`SequenceProblem.combining`). Rows: a query's segments are a path through its pattern; no two unshared
    segments touch; a shared segment's pattern is counted, and at least two segments share it.

    Often the relaxation is integral, which is a proof. Otherwise it is rounded to good plans, and the best one's cost
    rules out columns. If few remain, the integer program is solved. If not, the best rounded plan is returned. It is
    not proven, but the relaxation's cost bounds its distance from the cheapest.

    Parameters
    ----------
    work
        Limit above which the program is not solved: nonzeros of the remaining columns times columns that the
        relaxation leaves fractional. None for no limit. Work is counted, not timed, so the plan does not depend on
        the machine. A plan that is not proven can be replaced later, with more work (section 6).
    """
    graph = sharon_graph(problem)
    greedy = sharing_of(problem, (graph.candidates[vertex] for vertex in gwmin(graph).plan))
    greedy_cost = problem.cost(greedy)
    known = min((problem.cost(((),) * len(greedy)), ((),) * len(greedy)), (greedy_cost, greedy))
    program, counted, segments = _segment_program(problem, known[0])

    def cheapest_of(bound: float, *sharings: Sharing) -> Cheapest:
        cost, sharing = min([known, *((problem.cost(sharing), sharing) for sharing in sharings)])
        return Cheapest(sharing, cost, min(bound, cost), greedy_cost, program.nonzeros)

    def chosen(values: Floats) -> Sharing:
        spans: list[list[Span]] = [[] for _ in problem.queries]
        for column, query, span in segments:
            if values[column] > 0.5:
                spans[query].append(span)
        return tuple(tuple(sorted(query_spans)) for query_spans in spans)

    if not segments or known[0] <= 0:
        return cheapest_of(known[0])
    unit = known[0] * 1e-6
    relaxation = program.relaxed(unit, None if work is None else work // ITERATION)
    if relaxation is None:
        return cheapest_of(0.0)
    values, bound = relaxation.values, relaxation.cost
    fractional = int(np.count_nonzero(np.abs(values - np.round(values)) > 1e-9))
    if not fractional and (integral := cheapest_of(bound, chosen(values))).proven:
        return integral
    starts = [{types for types, column in counted.items() if values[column] > least} for least in ROUNDED]
    good = cheapest_of(bound, *(_through(problem, start) for start in starts))
    # in a cheaper plan no column is one that would lift the bound above what is known
    columns = relaxation.reduced_costs <= good.cost - bound + 1e-9 * good.cost
    entries = program.entries(columns)
    if good.proven or (work is not None and entries * fractional > work):
        return good
    solution, proof = program.solve(unit, columns, None if work is None else work // entries)
    return cheapest_of(max(bound, proof), good.sharing, *([] if solution is None else [chosen(solution)]))


def _through(problem: SequenceProblem, counted: Set[Types]) -> Sharing:
    """The plan in which every query goes its cheapest way through some patterns, without those of a single place."""
    while True:
        sharing = tuple(_route(problem, query, counted) for query in range(len(problem.queries)))
        places = problem.shared(sharing)
        if all(len(occurrences) > 1 for occurrences in places.values()):
            return sharing
        counted = {types for types, occurrences in places.items() if len(occurrences) > 1}


def _route(problem: SequenceProblem, query: int, counted: Set[Types]) -> tuple[Span, ...]:
    """The shared spans of a query where ``counted`` patterns cost nothing."""
    types = problem.queries[query].types
    # by position, segments before it (two: two and more) and whether the last one is the query's own
    best: dict[tuple[int, int, bool], tuple[float, tuple[Span, ...]]] = {(0, 0, False): (0.0, ())}
    for at in range(len(types)):
        for before, own in ((0, False), (1, False), (1, True), (2, False), (2, True)):
            if (at, before, own) not in best:
                continue
            cost, spans = best[at, before, own]
            for end in range(at + 1, len(types) + 1):
                for is_shared in (True, False):
                    if types[at:end] in counted if is_shared else not own:
                        dearer = cost + problem.segment_cost(query, (at, end), is_shared, before == 1)
                        way = dearer, (*spans, (at, end)) if is_shared else spans
                        state = end, min(before + 1, 2), not is_shared
                        best[state] = min(best.get(state, way), way)
    return min(way for (at, _, _), way in best.items() if at == len(types))[1]


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
        if (cost := problem.pattern_cost(types)) <= most:
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
                cost = problem.segment_cost(query, (begin, end), pattern is not None, second)
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
        counted = program.column(problem.pattern_cost(candidate.pattern))
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
