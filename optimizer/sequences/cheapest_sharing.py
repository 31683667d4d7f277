"""The cheapest sharing plan of event sequences, by an integer program over shortest paths with fixed charges."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optimizer.sequences.candidates import (
    INT32,
    ITERATION,
    PASSES,
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

    def cheapest_of(bound: float, *sharings: Sharing) -> Cheapest:
        cost, sharing = min([known, *((problem.cost(sharing), sharing) for sharing in sharings)])
        return Cheapest(sharing, cost, min(bound, cost), greedy_cost, program.nonzeros)

    def chosen(values: Floats) -> Sharing:
        spans: list[list[Span]] = [[] for _ in problem.queries]
        for column, query, span in segments:
            if values[column] > 0.5:
                spans[query].append(span)
        return tuple(tuple(sorted(ones)) for ones in spans)

    if not segments or known[0] <= 0:
        return cheapest_of(known[0])
    unit = known[0] * 1e-6
    relaxation = program.relaxed(unit, None if work is None else work // ITERATION)
    if relaxation is None:
        return cheapest_of(0.0, Router(problem).descend(problem.shared(greedy).keys()))
    values, bound = relaxation.values, relaxation.cost
    fractional = int(np.count_nonzero(np.abs(values - np.round(values)) > 1e-9))
    if not fractional and (integral := cheapest_of(bound, chosen(values))).proven:
        return integral
    starts = [{types for types, column in counted.items() if values[column] > least} for least in ROUNDED]
    good = cheapest_of(bound, *map(Router(problem).descend, starts))
    if good.proven:
        return good
    # in a cheaper plan no column is one that would lift the bound above what is known
    useful = relaxation.reduced_costs <= good.cost - bound + 1e-9 * good.cost
    entries = program.entries(useful)
    if work is not None and entries * fractional > work:
        return good
    solution, proof = program.solve(unit, useful, None if work is None else work // entries)
    return cheapest_of(max(bound, proof), good.sharing, *([] if solution is None else [chosen(solution)]))


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


class Router:
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

    def route(self, query: int, shared: Set[Types], through: Span | None = None) -> tuple[Span, ...]:
        """The shared spans of one query if ``shared`` patterns cost nothing; ``through`` is one of them in any case."""
        prices = np.array([0.0 if types in shared else np.inf for types in self.patterns])
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

    def descend(self, shared: Set[Types]) -> Sharing:
        """A good plan near one that shares the patterns ``shared``, one pattern opened or closed at a time.

        All queries go their cheapest ways through the open patterns; those that fewer than two places use are closed.
        Opening or closing one lets only the queries go elsewhere that have it or use it. Ends where no such move
        saves, or after :data:`PASSES` over all patterns.
        """
        route = _compiled()
        patterns = len(self.patterns)
        prices = np.array([0.0 if types in shared else np.inf for types in self.patterns])
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
