"""Sharon as published, corrected, and the cheapest plan: worked examples, and all searches against brute force."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.papers.evaluations.sequence_workload import KINDS, compare, generate_sequences
from optimizer.papers.reference.cheapest_sharing import best_score, cheapest
from optimizer.papers.reference.plan_finder import Reduction, exhaustive, expand, find_plan, options, reduce
from optimizer.papers.reference.sharing_candidates import (
    EXHAUSTIVE_LIMIT,
    Candidate,
    Pattern,
    SequenceProblem,
    Sharing,
    SharonGraph,
    Span,
    Types,
    benefit,
    guaranteed_weight,
    gwmin,
    sharing_candidates,
    sharing_of,
    sharon_graph,
)
from optimizer.papers.reference.sharon_costs import SharonCosts
from tests.sizes import examples

TRAFFIC = tuple(
    Pattern(name, tuple(f"{street}St" if street != "Park" else "ParkAve" for street in streets.split()))
    for name, streets in {
        "q1": "Oak Main State",
        "q2": "Oak Main West",
        "q3": "Park Oak Main",
        "q4": "Park Oak Main West",
        "q5": "Main State",
        "q6": "Elm Park",
        "q7": "Elm Park",
    }.items()
)
"""Queries with the sharable patterns of the paper's Table 1, and no others (its Figure 1 is a picture)."""

WEIGHTS = (25, 9, 12, 15, 20, 8, 18)
"""Of p1, ..., p7 in the paper's Figure 4."""

TABLE_1 = {
    "p1": ("OakSt MainSt", "q1 q2 q3 q4"),
    "p2": ("ParkAve OakSt", "q3 q4"),
    "p3": ("ParkAve OakSt MainSt", "q3 q4"),
    "p4": ("MainSt WestSt", "q2 q4"),
    "p5": ("OakSt MainSt WestSt", "q2 q4"),
    "p6": ("MainSt StateSt", "q1 q5"),
    "p7": ("ElmSt ParkAve", "q6 q7"),
}
FIGURE_4 = "p1p2 p1p3 p1p4 p1p5 p1p6 p2p3 p2p5 p3p4 p3p5 p4p5"


def graph_of(weights: tuple[int | Fraction, ...], edges: list[tuple[int, int]]) -> SharonGraph:
    neighbours = [0] * len(weights)
    for node, other in edges:
        neighbours[node] |= 1 << other
        neighbours[other] |= 1 << node
    candidates = tuple(Candidate((f"v{vertex:02}",), ()) for vertex in range(len(weights)))
    return SharonGraph(candidates, tuple(map(Fraction, weights)), tuple(neighbours))


def edges_of(graph: SharonGraph) -> list[tuple[int, int]]:
    return [pair for pair in combinations(range(len(graph)), 2) if graph.neighbours[pair[0]] >> pair[1] & 1]


def permuted(graph: SharonGraph, order: tuple[int, ...]) -> SharonGraph:
    """The same graph with vertex ``order[i]`` as its i-th."""
    place = {vertex: at for at, vertex in enumerate(order)}
    edges = [(place[node], place[other]) for node, other in edges_of(graph)]
    return graph_of(tuple(graph.weights[vertex] for vertex in order), edges)


FIGURE = graph_of(WEIGHTS, [(int(pair[1]) - 1, int(pair[3]) - 1) for pair in FIGURE_4.split()])


@st.composite
def graphs(draw: st.DrawFn, most: int = 9) -> SharonGraph:
    size = draw(st.integers(0, most))
    weights = draw(st.lists(st.integers(1, 30), min_size=size, max_size=size))
    pairs = list(combinations(range(size), 2))
    edge_flags = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    return graph_of(tuple(weights), [pair for pair, is_edge in zip(pairs, edge_flags, strict=True) if is_edge])


def valid_plans(graph: SharonGraph) -> Iterator[tuple[int, ...]]:
    for size in range(len(graph) + 1):
        for plan in combinations(range(len(graph)), size):
            if not any(graph.neighbours[node] >> other & 1 for node, other in combinations(plan, 2)):
                yield plan


# ------------------------------------------------------------------------------------ the paper's example


def traffic() -> SequenceProblem:
    """Figure 1's queries at rates at which all seven candidates are beneficial."""
    rates = dict.fromkeys((kind for query in TRAFFIC for kind in query.types), 1.0)
    return SequenceProblem(TRAFFIC, rates | {"ParkAve": 2.0})


def traffic_graph() -> tuple[SharonGraph, dict[str, int]]:
    """Figure 4 from the queries: the paper's weights on the candidates found, and where p1, ..., p7 are."""
    problem = traffic()
    candidates = sharing_candidates(problem)
    numbers = {tuple(types.split()): name for name, (types, _) in TABLE_1.items()}
    place = {numbers[candidate.pattern]: at for at, candidate in enumerate(candidates)}
    drawn = sharon_graph(problem)
    assert drawn.candidates == candidates
    weights = {place[f"p{number}"]: Fraction(weight) for number, weight in enumerate(WEIGHTS, 1)}
    return SharonGraph(candidates, tuple(weights[at] for at in range(7)), drawn.neighbours), place


def test_the_sharing_candidates_are_those_of_table_1() -> None:
    problem = traffic()
    queries_by_pattern = {
        " ".join(candidate.pattern): " ".join(problem.queries[query].name for query in candidate.queries)
        for candidate in sharing_candidates(problem)
    }
    assert queries_by_pattern == dict(TABLE_1.values())


def test_the_conflicts_are_those_of_figure_4() -> None:
    graph, place = traffic_graph()
    expected = {frozenset((place[pair[:2]], place[pair[2:]])) for pair in FIGURE_4.split()}
    assert {frozenset(edge) for edge in edges_of(graph)} == expected
    assert graph.size == 7 + 10


def test_the_bound_and_the_reduction_of_examples_7_to_9() -> None:
    assert guaranteed_weight(FIGURE) == Fraction(1157, 30)
    assert reduce(FIGURE, Fraction(1157, 30)) == Reduction(left=(0, 1, 3, 4, 5), free=(6,))


def test_the_plans_of_examples_10_and_12() -> None:
    greedy, best = gwmin(FIGURE), find_plan(FIGURE)
    assert (greedy.plan, greedy.score, greedy.proven) == ((6, 0), 43, False)
    assert (best.plan, best.score, best.proven) == ((1, 3, 5, 6), 50, True)
    # 10 valid plans are left, 21 invalid ones are never made
    assert best.work == 10 == 2**5 - 1 - 21
    assert sum(1 for _ in valid_plans(FIGURE)) == 25 + 1
    everything = exhaustive(FIGURE)
    assert (everything.plan, everything.score, everything.work) == ((1, 3, 5, 6), 50, 127)


def test_the_plan_of_the_example_from_its_queries() -> None:
    graph, place = traffic_graph()
    assert set(gwmin(graph).plan) == {place["p7"], place["p1"]}
    assert set(find_plan(graph).plan) == {place[name] for name in ("p2", "p4", "p6", "p7")}


def test_reduction_does_not_depend_on_the_order_of_the_vertices() -> None:
    """Algorithm 2 as printed loses the plan of score 50 in 4,348 of these orders."""
    minimum = guaranteed_weight(FIGURE)
    for order in permutations(range(7)):
        undecided, free = reduce(permuted(FIGURE, order), minimum)
        assert {order[at] for at in undecided} == {0, 1, 3, 4, 5} and {order[at] for at in free} == {6}


def test_the_options_of_figure_11() -> None:
    graph, place = traffic_graph()

    def names(any_subset: bool) -> list[str]:
        pattern_options = options(graph, place["p1"], any_subset)
        assert all(option.pattern == ("OakSt", "MainSt") for option in pattern_options)
        return [" ".join(TRAFFIC[query].name for query in option.queries) for option in pattern_options]

    assert names(any_subset=False)[0] == names(any_subset=True)[0] == "q1 q2 q3 q4"
    assert sorted(names(any_subset=False)) == ["q1 q2", "q1 q2 q3 q4", "q1 q3", "q2 q3 q4"]
    assert len(names(any_subset=True)) == len(set(names(any_subset=True))) == 11
    # the only sharers of the others are all in conflict: with themselves they have no smaller set
    assert all(len(options(graph, place[name])) == 1 for name in TABLE_1 if name != "p1")
    with pytest.raises(HeddleError, match="HDL-351"):
        options(graph, place["p1"], limit=10)


# ----------------------------------------------------------------------------------- the model of benefit


def test_the_equations_on_one_shared_pattern() -> None:
    """Eqs. 1-8 by hand: (B, C) shared by (A, B, C, D), (B, C, D), (A, B, C) and (B, C)."""
    a, b, c, d = 2.0, 3.0, 5.0, 7.0
    queries = [Pattern(types, tuple(types)) for types in ("ABCD", "BCD", "ABC", "BC")]
    problem = SequenceProblem(queries, {"A": a, "B": b, "C": c, "D": d})
    middle, begin, end, complete = (problem.queries.index(query) for query in queries)
    assert problem.unshared(middle) == a * (a + b + c + d)
    assert problem.own_cost(middle, [(1, 3)]) == a * a + d * d + a * b * d
    assert problem.own_cost(begin, [(0, 2)]) == d * d + b * d
    assert problem.own_cost(end, [(1, 3)]) == a * a + a * b
    assert problem.own_cost(complete, [(0, 2)]) == 0
    (candidate,) = [candidate for candidate in sharing_candidates(problem) if candidate.pattern == ("B", "C")]
    unshared = a * (a + b + c + d) + b * (b + c + d) + a * (a + b + c) + b * (b + c)
    shared = b * (b + c) + (a * a + d * d + a * b * d) + (d * d + b * d) + (a * a + a * b)
    assert benefit(problem, candidate) == unshared - shared


def test_four_and_more_segments_are_combined_step_by_step() -> None:
    rates = dict(zip("ABCDEFGH", (2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0), strict=True))
    problem = SequenceProblem([Pattern("q", tuple("ABCDEFGH"))], rates)
    own = 2 * (2 + 3) + 13 * (13 + 17 + 19)
    assert problem.own_cost(0, [(2, 4), (4, 5)]) == own + 2 * (5 * 11 + 11 * 13)


@given(st.integers(2, 12), st.floats(0.1, 40))
def test_with_equal_rates_a_middle_pays_below_the_length_and_an_end_always(length: int, rate: float) -> None:
    assume(abs(rate - length - 2) > 1e-6)

    def saved(before: str, after: str) -> float:
        shared = tuple(f"m{at}" for at in range(length))
        queries = [Pattern(name, (*(name + t for t in before), *shared, *(name + t for t in after))) for name in "xy"]
        problem = SequenceProblem(queries, dict.fromkeys((t for query in queries for t in query.types), rate))
        spans = [(len(before), len(before) + length)]
        return problem.unshared(0) - problem.own_cost(0, spans)

    assert (saved("a", "b") > 0) == (rate < length)
    assert saved("a", "") > 0 and saved("", "b") > 0


def test_an_event_type_that_repeats_is_counted_once_for_every_position() -> None:
    problem = SequenceProblem([Pattern("q", ("A", "B", "A"))], {"A": 2.0, "B": 5.0})
    # each of two A updates two counts, each of five B one, for each of two START events
    assert problem.unshared(0) == 2 * (2 * 2 + 5)


def test_candidates_that_repeat_within_a_query_keep_disjoint_occurrences() -> None:
    queries = [Pattern("q", tuple("AAAA")), Pattern("r", tuple("BAAA")), Pattern("s", tuple("CACA"))]
    problem = SequenceProblem(queries, dict.fromkeys("ABC", 1.0))
    occurrences_by_pattern = {
        "".join(candidate.pattern): candidate.occurrences for candidate in sharing_candidates(problem)
    }
    assert occurrences_by_pattern == {"AA": ((0, 0), (0, 2), (1, 1)), "AAA": ((0, 0), (1, 1))}


def test_containment_is_a_conflict_and_touching_is_none() -> None:
    rates = {"A": 9.0, "B": 1.0, "C": 1.0, "D": 1.0, "X": 1.0}
    problem = SequenceProblem([Pattern("q", tuple("ABCDX")), Pattern("r", tuple("ABCDX"))], rates)
    places = {"AB": 0, "ABCD": 0, "BC": 1, "CD": 2}
    candidates = [Candidate(tuple(pattern), ((0, begin), (1, begin))) for pattern, begin in places.items()]
    graph = sharon_graph(problem, candidates)
    names = ["".join(candidate.pattern) for candidate in graph.candidates]
    conflicts = {(names[node], names[other]) for node, other in edges_of(graph)}
    assert conflicts == {("AB", "ABCD"), ("ABCD", "BC"), ("ABCD", "CD"), ("AB", "BC"), ("BC", "CD")}


# ------------------------------------------------------------------------- plans of highest score, on graphs


@settings(max_examples=examples(65), deadline=None)
@given(graphs())
def test_all_searches_find_the_highest_score(graph: SharonGraph) -> None:
    highest = max(graph.score(plan) for plan in valid_plans(graph))
    best_search, everything, greedy = find_plan(graph), exhaustive(graph), gwmin(graph)
    assert best_search.proven and everything.proven and not greedy.proven
    for search in (best_search, everything, greedy):
        assert graph.is_valid(search.plan) and search.score == graph.score(search.plan)
    assert best_search.score == everything.score == highest == independent_set(graph)
    assert guaranteed_weight(graph) <= greedy.score <= highest


@given(graphs())
def test_the_greedy_plan_is_algorithm_8_word_by_word(graph: SharonGraph) -> None:
    remaining_vertices, plan = set(range(len(graph))), []
    while remaining_vertices:
        around = {v: {u for u in remaining_vertices if graph.neighbours[v] >> u & 1} for v in remaining_vertices}
        best = min(remaining_vertices, key=lambda v: (-graph.weights[v] / (len(around[v]) + 1), v))
        plan.append(best)
        remaining_vertices -= {best, *around[best]}
    assert gwmin(graph).plan == tuple(plan)


def independent_set(graph: SharonGraph) -> Fraction:
    """Weight of the heaviest independent set as an integer program."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    if not len(graph):
        return Fraction(0)
    rows = np.zeros((len(edges_of(graph)) + 1, len(graph)))
    for number, edge in enumerate(edges_of(graph)):
        rows[number, list(edge)] = 1
    weights = -np.array([float(weight) for weight in graph.weights])
    solution = milp(
        weights, integrality=np.ones(len(graph)), bounds=Bounds(0, 1), constraints=LinearConstraint(rows, -np.inf, 1)
    )
    return graph.score(np.flatnonzero(solution.x > 0.5).tolist())


@settings(max_examples=examples(100))
@given(graphs(), st.randoms(use_true_random=False))
def test_reduction_keeps_a_best_plan_in_any_order(graph: SharonGraph, shuffled: random.Random) -> None:
    minimum = guaranteed_weight(graph)
    undecided, free = reduce(graph, minimum)
    order = list(range(len(graph)))
    shuffled.shuffle(order)
    again = reduce(permuted(graph, tuple(order)), minimum)
    assert {order[at] for at in again.left} == set(undecided) and {order[at] for at in again.free} == set(free)
    highest = max(graph.score(plan) for plan in valid_plans(graph) if set(free) <= set(plan) <= {*undecided, *free})
    assert highest == max(graph.score(plan) for plan in valid_plans(graph))


@given(graphs(), st.integers(0, 40))
def test_a_search_that_is_cut_short_falls_back_to_the_greedy_plan(graph: SharonGraph, plans: int) -> None:
    cut_search, full_search = find_plan(graph, plans), find_plan(graph, None)
    assert graph.is_valid(cut_search.plan) and gwmin(graph).score <= cut_search.score <= full_search.score
    assert cut_search.proven == (full_search.work <= plans)
    if cut_search.proven:
        assert cut_search == full_search


def test_an_exhaustive_search_of_many_candidates_is_refused() -> None:
    with pytest.raises(HeddleError, match="HDL-351"):
        exhaustive(graph_of((1,) * (EXHAUSTIVE_LIMIT + 1), []))


# --------------------------------------------------------------------------------- workloads, by brute force

RATES = st.one_of(st.sampled_from([0.0, 1.0, 2.0, 3.0, 10.0]), st.floats(0.1, 20))


@st.composite
def problems(draw: st.DrawFn, most: int = 4, longest: int = 4, alphabet: str = "ABCDE") -> SequenceProblem:
    """Few short queries: of few event types, so that they repeat and pieces recur, or pieces of one route."""
    rates = {kind: draw(RATES) for kind in alphabet}
    types = st.text(draw(st.sampled_from([alphabet, alphabet[:3], alphabet[:2]])), min_size=1, max_size=longest)
    pairs = st.tuples(st.integers(0, len(alphabet) - 2), st.integers(2, longest))
    piece = pairs.map(lambda pair: alphabet[pair[0] : pair[0] + pair[1]])
    texts = draw(st.lists(st.one_of(types, piece), min_size=1, max_size=most))
    return SequenceProblem([Pattern(f"q{at}", tuple(text)) for at, text in enumerate(texts)], rates)


def ways(types: Types) -> list[tuple[Span, ...]]:
    """All sets of disjoint spans of two and more event types."""
    spans = [(begin, end) for begin, end in combinations(range(len(types) + 1), 2) if end - begin > 1]
    return [
        chosen
        for size in range(len(types) // 2 + 1)
        for chosen in combinations(spans, size)
        if all(span[1] <= other[0] for span, other in zip(chosen, chosen[1:], strict=False))
    ]


def exact_cost(problem: SequenceProblem, sharing: Sharing) -> float:
    """By the equations, with the multiplications counted step by step."""
    rate, total, counted = problem.rates, 0.0, set()
    for query, spans in zip(problem.queries, sharing, strict=True):
        bounds = sorted({0, len(query.types), *(end for span in spans for end in span)})
        for begin, end in zip(bounds, bounds[1:], strict=False):
            piece = query.types[begin:end]
            if (begin, end) in spans:
                if piece in counted:
                    continue
                counted.add(piece)
            total += rate[piece[0]] * sum(rate[kind] for kind in piece)
        starts = [rate[query.types[begin]] for begin in bounds[:-1]]
        if len(starts) == 2:
            total += starts[0] * starts[1]
        for start, other in zip(starts[1:], starts[2:], strict=False):
            total += starts[0] * start * other
    return total


def cheapest_of_all(problem: SequenceProblem) -> float:
    lowest = math.inf
    for sharing in product(*(ways(query.types) for query in problem.queries)):
        pieces = [query.types[b:e] for query, spans in zip(problem.queries, sharing, strict=True) for b, e in spans]
        if all(pieces.count(piece) > 1 for piece in pieces):
            lowest = min(lowest, exact_cost(problem, sharing))
    return lowest


@settings(max_examples=examples(125), deadline=None)
@given(problems())
# a second sharer that loses by it licenses the first to cut its frequent START events off
@example(SequenceProblem([Pattern("q", tuple("ABC")), Pattern("r", tuple("BCD"))], {"A": 10, "B": 1, "C": 9, "D": 9}))
# one query, twice the same piece
@example(SequenceProblem([Pattern("q", tuple("ABAB"))], {"A": 1, "B": 1}))
def test_the_cheapest_plan_is_that_of_brute_force(problem: SequenceProblem) -> None:
    cheapest_plan = cheapest(problem)
    assert cheapest_plan.proven
    assert math.isclose(cheapest_plan.cost, exact_cost(problem, cheapest_plan.sharing), rel_tol=1e-12)
    assert math.isclose(cheapest_plan.cost, cheapest_of_all(problem), rel_tol=1e-9, abs_tol=1e-9)
    assert all(len(places) > 1 and len(types) > 1 for types, places in problem.shared(cheapest_plan.sharing).items())


@pytest.mark.parametrize("seed", range(20))
def test_the_cheapest_plan_where_the_relaxation_is_fractional(seed: int) -> None:
    """Patterns of two event types: every third relaxation needs the integer program."""
    drawn = random.Random(seed)
    rates = {kind: drawn.uniform(0.5, 5) for kind in "AB"}
    queries = [Pattern(f"q{at}", tuple(drawn.choices("AB", k=5 - at % 2))) for at in range(4)]
    problem = SequenceProblem(queries, rates)
    cheapest_plan = cheapest(problem)
    assert cheapest_plan.proven and math.isclose(cheapest_plan.cost, cheapest_of_all(problem), rel_tol=1e-9)
    # what needs no proof is a valid plan all the same
    assert cheapest_plan.cost * (1 - 1e-9) <= cheapest(problem, 1).cost <= cheapest_plan.greedy


@settings(max_examples=examples(60), deadline=None)
@given(problems(most=2, longest=7, alphabet="ABCDEFG"))
def test_the_cheapest_plan_of_longer_patterns(problem: SequenceProblem) -> None:
    assert math.isclose(cheapest(problem).cost, cheapest_of_all(problem), rel_tol=1e-9, abs_tol=1e-9)


@settings(max_examples=examples(60), deadline=None)
@given(problems(), st.randoms(use_true_random=False))
def test_the_plan_does_not_depend_on_the_order_of_the_queries(
    problem: SequenceProblem, shuffled: random.Random
) -> None:
    queries, rates = list(problem.queries), list(problem.rates.items())
    shuffled.shuffle(queries)
    shuffled.shuffle(rates)
    assert cheapest(SequenceProblem(queries, dict(rates))) == cheapest(problem)


@settings(max_examples=examples(60), deadline=None)
@given(problems())
def test_the_benefit_of_a_candidate_is_what_its_plan_saves(problem: SequenceProblem) -> None:
    alone = exact_cost(problem, ((),) * len(problem.queries))
    for candidate in sharing_candidates(problem):
        shared = exact_cost(problem, sharing_of(problem, [candidate]))
        assert math.isclose(benefit(problem, candidate), alone - shared, rel_tol=1e-9, abs_tol=1e-9)


@settings(max_examples=examples(100), deadline=None)
@given(problems(most=4, longest=4))
def test_expansion_resolves_conflicts_and_finds_the_highest_score(problem: SequenceProblem) -> None:
    graph = sharon_graph(problem)
    for vertex, candidate in enumerate(graph.candidates):
        for any_subset in (False, True):
            expansion = options(graph, vertex, any_subset)
            assert expansion[0] == candidate and len(set(expansion)) == len(expansion)
            for option in expansion[1:]:
                assert 1 < len(option.queries) < len(candidate.queries)
                assert set(option.occurrences) < set(candidate.occurrences)
                # every query that is left out took part in a conflict
                for query in set(candidate.queries) - set(option.queries):
                    assert any(overlap(candidate, other, query) for other in graph.candidates)
        # two candidates in conflict have options that are in none, unless too few sharers are left
        for other in range(vertex):
            if graph.neighbours[vertex] >> other & 1:
                conflicting_candidate = graph.candidates[other]
                remaining_queries = set(candidate.queries) - {
                    q for q in candidate.queries if overlap(candidate, conflicting_candidate, q)
                }
                assert len(remaining_queries) < 2 or candidate.among(remaining_queries) in options(graph, vertex, True)
    expanded = expand(problem, graph)
    assert set(graph.candidates) <= set(expanded.candidates)
    assume(len(expanded) < 16)
    expansion = find_plan(expanded, None)
    assert math.isclose(expansion.score, exhaustive(expanded).score, rel_tol=1e-12)
    assert expansion.score >= find_plan(graph, None).score


def overlap(one: Candidate, other: Candidate, query: int) -> bool:
    cells = [
        {at for q, begin in each.occurrences if q == query for at in range(begin, begin + len(each.pattern))}
        for each in (one, other)
    ]
    return one.pattern != other.pattern and bool(cells[0] & cells[1])


@settings(max_examples=examples(80), deadline=None)
@given(problems(most=3, longest=4))
def test_the_best_score_is_that_of_all_subsets(problem: SequenceProblem) -> None:
    every = [
        candidate.among(set(queries))
        for candidate in sharing_candidates(problem)
        for size in range(2, len(candidate.queries) + 1)
        for queries in combinations(candidate.queries, size)
    ]
    graph = sharon_graph(problem, every)
    plan, score = best_score(problem)
    assert math.isclose(score, find_plan(graph, None).score, rel_tol=1e-9, abs_tol=1e-9)
    assert graph.is_valid([graph.candidates.index(candidate) for candidate in plan if benefit(problem, candidate) > 0])


@pytest.mark.parametrize("kind", KINDS)
def test_generated_workloads(kind: str) -> None:
    queries, rates = generate_sequences(12, 6, kind, 20)
    assert queries == generate_sequences(20, 6, kind, 20)[0][:12]
    assert all(len(set(query.types)) == 6 for query in queries) and len(rates) == 20
    cheapest_plan = cheapest(SequenceProblem(queries, rates))
    assert cheapest_plan.proven


def test_the_cheapest_plan_is_clearly_cheaper_than_the_greedy_one() -> None:
    problem = SequenceProblem(*generate_sequences(180, kind="prefix"))
    cheapest_plan = cheapest(problem)
    assert cheapest_plan.proven and 1.2 * cheapest_plan.cost < cheapest_plan.greedy < problem.cost(((),) * 180)


def test_work_is_limited_and_the_plan_is_replaced_later() -> None:
    problem = SequenceProblem(*generate_sequences(60, 10, "trips", rate=2.0, seed=2))
    # too little for the relaxation; enough for it, but not for the integer program; enough
    none, some, enough = cheapest(problem, 1), cheapest(problem, 1_600_000), cheapest(problem)
    assert not none.proven and none.bound == 0 and not some.proven and enough.proven
    assert 0 < some.bound <= enough.cost < some.cost < none.cost == none.greedy


def test_the_searches_side_by_side() -> None:
    row = compare(SequenceProblem(*generate_sequences(6, 4, "pieces", 8)))
    assert row["sharon_proven"] and row["ours_proven"]
    assert row["ours_cost"] <= min(row["greedy_cost"], row["sharon_cost"], row["score_cost"], row["unshared"])
    assert row["greedy_score"] <= row["sharon_score"] <= row["score_score"] * (1 + 1e-9)
    large = compare(SequenceProblem(*generate_sequences(25, 6, "pieces", 12)), plans=1000)
    assert large["exhaustive_seconds"] is None and not large["sharon_proven"] and large["ours_proven"]


@settings(max_examples=examples(40), deadline=None)
@given(problems())
def test_segments_cover_every_pattern(problem: SequenceProblem) -> None:
    cheapest_plan = cheapest(problem)
    for number, query in enumerate(problem.queries):
        spans = [span for span, _ in problem.segments(number, cheapest_plan.sharing[number])]
        assert [begin for begin, _ in spans] == [0, *(end for _, end in spans[:-1])] and spans[-1][1] == len(
            query.types
        )
    assert cheapest_plan.cost <= problem.cost(((),) * len(problem.queries)) * (1 + 1e-12)
    assert cheapest_plan.cost <= cheapest_plan.greedy * (1 + 1e-12)


def test_spans_that_are_no_segments_are_refused() -> None:
    problem = SequenceProblem([Pattern("q", tuple("ABC"))], dict.fromkeys("ABC", 1.0))
    for spans in ([(0, 2), (1, 3)], [(0, 4)], [(1, 1)], [(2, 3), (0, 1)]):
        with pytest.raises(ValueError, match="cannot have the segments"):
            problem.segments(0, spans)


@pytest.mark.parametrize(
    ("queries", "rates", "message"),
    [
        ([Pattern("q", ("A",)), Pattern("q", ("B",))], {"A": 1, "B": 1}, "several queries"),
        ([Pattern("q", ("A",))], {}, "without a rate"),
        ([Pattern("q", ("A",))], {"A": -1}, "no finite numbers"),
        ([Pattern("q", ("A",))], {"A": math.nan}, "no finite numbers"),
        ([Pattern("q", ("A",))], {"A": math.inf}, "no finite numbers"),
    ],
)
def test_what_cannot_be_planned(queries: list[Pattern], rates: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SequenceProblem(queries, rates)


def test_an_empty_pattern_is_refused_and_an_empty_workload_is_planned() -> None:
    with pytest.raises(ValueError, match="empty pattern"):
        Pattern("q", ())
    cheapest_plan = cheapest(SequenceProblem([], {}))
    assert cheapest_plan.cost == cheapest_plan.greedy == 0 and cheapest_plan.proven and cheapest_plan.sharing == ()


# ------------------------------------------------------------------------------------ the executor's costs


def executor_costs(problem: SequenceProblem, sharing: Sharing, ratio: float) -> float:
    """Additions of the executor per range and key, word by word; STARTs are not pooled."""
    rate, total, counted = problem.rates, 0.0, set()
    followed = {
        types for types, places in problem.occurrences().items()
        if any(begin + len(types) < len(problem.queries[query].types) for query, begin in places)
    }  # fmt: skip
    live = 1 - 1 / (2 * ratio)
    for number, (query, spans) in enumerate(zip(problem.queries, sharing, strict=True)):
        segments = [(query.types[begin:end], shared) for (begin, end), shared in problem.segments(number, spans)]
        for place, (piece, is_shared) in enumerate(segments):
            is_last = place == len(segments) - 1
            last, behind = rate[piece[-1]], 0.0 if is_last else rate[segments[place + 1][0][0]]
            summed = last * (piece in followed) if is_shared else behind and behind * last / (behind + last)
            if not (is_shared and piece in counted):
                total += rate[piece[0]] * live * (sum(rate[kind] for kind in piece[1:]) + summed)
            counted |= {piece} if is_shared else set()
            if is_last:
                total += ratio * rate[piece[0]]
            elif place == 0:
                total += behind * ratio * (1 - math.exp(-rate[piece[0]] / ratio))
            else:
                total += behind * rate[piece[0]] * ratio / 2
    return total


@settings(max_examples=examples(60), deadline=None)
@given(problems(), st.sampled_from([1.0, 10.0]))
def test_the_cheapest_plan_at_the_costs_of_the_executor_is_that_of_brute_force(
    problem: SequenceProblem, ratio: float
) -> None:
    costs = SharonCosts(problem.queries, problem.rates, ratio)
    cheapest_plan, lowest = cheapest(costs), math.inf
    for sharing in product(*(ways(query.types) for query in costs.queries)):
        if all(len(places) > 1 for places in costs.shared(sharing).values()):
            assert math.isclose(costs.cost(sharing), executor_costs(costs, sharing, ratio), rel_tol=1e-9, abs_tol=1e-9)
            lowest = min(lowest, costs.cost(sharing))
    assert cheapest_plan.proven and math.isclose(cheapest_plan.cost, lowest, rel_tol=1e-9, abs_tol=1e-9)
