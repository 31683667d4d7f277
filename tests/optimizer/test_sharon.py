"""Sharon as published, corrected, and the cheapest plan: worked examples, and all searches against brute force."""

from __future__ import annotations

import json
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
from optimizer.papers.evaluations.sequence_workload import KINDS, TRAFFIC, compare, generate_sequences
from optimizer.papers.reference.plan_finder import Reduction, exhaustive, expand, find_plan, options, reduce
from optimizer.sequences.candidates import (
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
    maximal_scores,
    sharing_candidates,
    sharing_of,
    sharon_graph,
)
from optimizer.sequences.cheapest_sharing import best_score, cheapest
from optimizer.sequences.sharing_plan import SequencePlan, plan_sequences, replan
from optimizer.sequences.sharing_search import Router
from tests.sizes import examples

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
    for one, other in edges:
        neighbours[one] |= 1 << other
        neighbours[other] |= 1 << one
    candidates = tuple(Candidate((f"v{vertex:02}",), ()) for vertex in range(len(weights)))
    return SharonGraph(candidates, tuple(map(Fraction, weights)), tuple(neighbours))


def edges_of(graph: SharonGraph) -> list[tuple[int, int]]:
    return [pair for pair in combinations(range(len(graph)), 2) if graph.neighbours[pair[0]] >> pair[1] & 1]


def permuted(graph: SharonGraph, order: tuple[int, ...]) -> SharonGraph:
    """The same graph with vertex ``order[i]`` as its i-th."""
    place = {vertex: at for at, vertex in enumerate(order)}
    edges = [(place[one], place[other]) for one, other in edges_of(graph)]
    return graph_of(tuple(graph.weights[vertex] for vertex in order), edges)


FIGURE = graph_of(WEIGHTS, [(int(pair[1]) - 1, int(pair[3]) - 1) for pair in FIGURE_4.split()])


@st.composite
def graphs(draw: st.DrawFn, most: int = 9) -> SharonGraph:
    size = draw(st.integers(0, most))
    weights = draw(st.lists(st.integers(1, 30), min_size=size, max_size=size))
    pairs = list(combinations(range(size), 2))
    taken = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    return graph_of(tuple(weights), [pair for pair, is_edge in zip(pairs, taken, strict=True) if is_edge])


def valid_plans(graph: SharonGraph) -> Iterator[tuple[int, ...]]:
    for size in range(len(graph) + 1):
        for plan in combinations(range(len(graph)), size):
            if not any(graph.neighbours[one] >> other & 1 for one, other in combinations(plan, 2)):
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
    found = {
        " ".join(one.pattern): " ".join(problem.queries[query].name for query in one.queries)
        for one in sharing_candidates(problem)
    }
    assert found == dict(TABLE_1.values())


def test_the_conflicts_are_those_of_figure_4() -> None:
    graph, place = traffic_graph()
    expected = {frozenset((place[pair[:2]], place[pair[2:]])) for pair in FIGURE_4.split()}
    assert {frozenset(edge) for edge in edges_of(graph)} == expected
    assert graph.size == 7 + 10


def test_the_bound_and_the_maximal_scores_of_examples_7_to_9() -> None:
    assert guaranteed_weight(FIGURE) == Fraction(1157, 30)
    assert maximal_scores(FIGURE) == (43, 50, 38, 50, 46, 82, 107)
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
        left, free = reduce(permuted(FIGURE, order), minimum)
        assert {order[at] for at in left} == {0, 1, 3, 4, 5} and {order[at] for at in free} == {6}


def test_the_options_of_figure_11() -> None:
    graph, place = traffic_graph()

    def names(any_subset: bool) -> list[str]:
        found = options(graph, place["p1"], any_subset)
        assert all(option.pattern == ("OakSt", "MainSt") for option in found)
        return [" ".join(TRAFFIC[query].name for query in option.queries) for option in found]

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
    middle, begin, end, whole = (problem.queries.index(query) for query in queries)
    assert problem.unshared(middle) == a * (a + b + c + d)
    assert problem.own_cost(middle, [(1, 3)]) == a * a + d * d + a * b * d
    assert problem.own_cost(begin, [(0, 2)]) == d * d + b * d
    assert problem.own_cost(end, [(1, 3)]) == a * a + a * b
    assert problem.own_cost(whole, [(0, 2)]) == 0
    (candidate,) = [one for one in sharing_candidates(problem) if one.pattern == ("B", "C")]
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
    found = {"".join(one.pattern): one.occurrences for one in sharing_candidates(problem)}
    assert found == {"AA": ((0, 0), (0, 2), (1, 1)), "AAA": ((0, 0), (1, 1))}


def test_containment_is_a_conflict_and_touching_is_none() -> None:
    rates = {"A": 9.0, "B": 1.0, "C": 1.0, "D": 1.0, "X": 1.0}
    problem = SequenceProblem([Pattern("q", tuple("ABCDX")), Pattern("r", tuple("ABCDX"))], rates)
    places = {"AB": 0, "ABCD": 0, "BC": 1, "CD": 2}
    given = [Candidate(tuple(pattern), ((0, begin), (1, begin))) for pattern, begin in places.items()]
    graph = sharon_graph(problem, given)
    names = ["".join(one.pattern) for one in graph.candidates]
    conflicts = {(names[one], names[other]) for one, other in edges_of(graph)}
    assert conflicts == {("AB", "ABCD"), ("ABCD", "BC"), ("ABCD", "CD"), ("AB", "BC"), ("BC", "CD")}


# ------------------------------------------------------------------------- plans of highest score, on graphs


@settings(max_examples=examples(65), deadline=None)
@given(graphs())
def test_all_searches_find_the_highest_score(graph: SharonGraph) -> None:
    highest = max(graph.score(plan) for plan in valid_plans(graph))
    found, everything, greedy = find_plan(graph), exhaustive(graph), gwmin(graph)
    assert found.proven and everything.proven and not greedy.proven
    for search in (found, everything, greedy):
        assert graph.is_valid(search.plan) and search.score == graph.score(search.plan)
    assert found.score == everything.score == highest == independent_set(graph)
    assert guaranteed_weight(graph) <= greedy.score <= highest


@given(graphs())
def test_the_greedy_plan_is_algorithm_8_word_by_word(graph: SharonGraph) -> None:
    left, plan = set(range(len(graph))), []
    while left:
        around = {v: {u for u in left if graph.neighbours[v] >> u & 1} for v in left}
        best = min(left, key=lambda v: (-graph.weights[v] / (len(around[v]) + 1), v))
        plan.append(best)
        left -= {best, *around[best]}
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
    found = milp(
        weights, integrality=np.ones(len(graph)), bounds=Bounds(0, 1), constraints=LinearConstraint(rows, -np.inf, 1)
    )
    return graph.score(np.flatnonzero(found.x > 0.5).tolist())


@settings(max_examples=examples(100))
@given(graphs(), st.randoms(use_true_random=False))
def test_reduction_keeps_a_best_plan_in_any_order(graph: SharonGraph, shuffled: random.Random) -> None:
    minimum = guaranteed_weight(graph)
    left, free = reduce(graph, minimum)
    order = list(range(len(graph)))
    shuffled.shuffle(order)
    again = reduce(permuted(graph, tuple(order)), minimum)
    assert {order[at] for at in again.left} == set(left) and {order[at] for at in again.free} == set(free)
    kept = max(graph.score(plan) for plan in valid_plans(graph) if set(free) <= set(plan) <= {*left, *free})
    assert kept == max(graph.score(plan) for plan in valid_plans(graph))


@given(graphs(), st.integers(0, 40))
def test_a_search_that_is_cut_short_falls_back_to_the_greedy_plan(graph: SharonGraph, plans: int) -> None:
    found, whole = find_plan(graph, plans), find_plan(graph, None)
    assert graph.is_valid(found.plan) and gwmin(graph).score <= found.score <= whole.score
    assert found.proven == (whole.work <= plans)
    if found.proven:
        assert found == whole


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
        if all(one[1] <= other[0] for one, other in zip(chosen, chosen[1:], strict=False))
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
        for one, other in zip(starts[1:], starts[2:], strict=False):
            total += starts[0] * one * other
    return total


def cheapest_of_all(problem: SequenceProblem) -> float:
    found = math.inf
    for sharing in product(*(ways(query.types) for query in problem.queries)):
        pieces = [query.types[b:e] for query, spans in zip(problem.queries, sharing, strict=True) for b, e in spans]
        if all(pieces.count(piece) > 1 for piece in pieces):
            found = min(found, exact_cost(problem, sharing))
    return found


@settings(max_examples=examples(125), deadline=None)
@given(problems())
# a second sharer that loses by it licenses the first to cut its frequent START events off
@example(SequenceProblem([Pattern("q", tuple("ABC")), Pattern("r", tuple("BCD"))], {"A": 10, "B": 1, "C": 9, "D": 9}))
# one query, twice the same piece
@example(SequenceProblem([Pattern("q", tuple("ABAB"))], {"A": 1, "B": 1}))
def test_the_cheapest_plan_is_that_of_brute_force(problem: SequenceProblem) -> None:
    found = cheapest(problem)
    assert found.proven
    assert math.isclose(found.cost, exact_cost(problem, found.sharing), rel_tol=1e-12)
    assert math.isclose(found.cost, cheapest_of_all(problem), rel_tol=1e-9, abs_tol=1e-9)
    assert all(len(places) > 1 and len(types) > 1 for types, places in problem.shared(found.sharing).items())


@pytest.mark.parametrize("seed", range(20))
def test_the_cheapest_plan_where_the_relaxation_is_fractional(seed: int) -> None:
    """Patterns of two event types: every third relaxation needs the integer program."""
    drawn = random.Random(seed)
    rates = {kind: drawn.uniform(0.5, 5) for kind in "AB"}
    queries = [Pattern(f"q{at}", tuple(drawn.choices("AB", k=5 - at % 2))) for at in range(4)]
    problem = SequenceProblem(queries, rates)
    found = cheapest(problem)
    assert found.proven and math.isclose(found.cost, cheapest_of_all(problem), rel_tol=1e-9)
    # what needs no proof is a valid plan all the same
    assert found.cost * (1 - 1e-9) <= cheapest(problem, 1).cost <= found.greedy


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
    again = plan_sequences(queries, dict(rates))
    assert again == plan_sequences(problem.queries, problem.rates)
    assert again.to_json() == plan_sequences(problem.queries, problem.rates).to_json()


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
            found = options(graph, vertex, any_subset)
            assert found[0] == candidate and len(set(found)) == len(found)
            for option in found[1:]:
                assert 1 < len(option.queries) < len(candidate.queries)
                assert set(option.occurrences) < set(candidate.occurrences)
                # every query that is left out took part in a conflict
                for query in set(candidate.queries) - set(option.queries):
                    assert any(overlap(candidate, other, query) for other in graph.candidates)
        # two candidates in conflict have options that are in none, unless too few sharers are left
        for other in range(vertex):
            if graph.neighbours[vertex] >> other & 1:
                theirs = graph.candidates[other]
                rest = set(candidate.queries) - {q for q in candidate.queries if overlap(candidate, theirs, q)}
                assert len(rest) < 2 or candidate.among(rest) in options(graph, vertex, True)
    expanded = expand(problem, graph)
    assert set(graph.candidates) <= set(expanded.candidates)
    assume(len(expanded) < 16)
    found = find_plan(expanded, None)
    assert math.isclose(found.score, exhaustive(expanded).score, rel_tol=1e-12)
    assert found.score >= find_plan(graph, None).score


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
    found = cheapest(SequenceProblem(queries, rates))
    assert found.proven


def test_the_cheapest_plan_is_clearly_cheaper_than_the_greedy_one() -> None:
    plan = plan_sequences(*generate_sequences(180, kind="prefix"))
    assert plan.proven and 1.2 * plan.cost < plan.greedy < plan.unshared


def test_work_is_limited_and_the_plan_is_replaced_later() -> None:
    problem = SequenceProblem(*generate_sequences(60, 10, "trips", rate=2.0, seed=2))
    # too little for the relaxation; enough for it, but not for the integer program; enough
    none, some, enough = cheapest(problem, 1), cheapest(problem, 1_600_000), cheapest(problem)
    assert not none.proven and none.bound == 0 and not some.proven and enough.proven
    assert 0 < some.bound <= enough.cost < some.cost <= none.cost < none.greedy
    assert plan_sequences(problem.queries, problem.rates, 1).sharing == none.sharing


def test_the_searches_side_by_side() -> None:
    row = compare(SequenceProblem(*generate_sequences(6, 4, "pieces", 8)))
    assert row["sharon_proven"] and row["ours_proven"]
    assert row["ours_cost"] <= min(row["greedy_cost"], row["sharon_cost"], row["score_cost"], row["unshared"])
    assert row["greedy_score"] <= row["sharon_score"] <= row["score_score"] * (1 + 1e-9)
    large = compare(SequenceProblem(*generate_sequences(25, 6, "pieces", 12)), plans=1000)
    assert large["exhaustive_seconds"] is None and not large["sharon_proven"] and large["ours_proven"]


# ------------------------------------------------------------------------------------------------- plans


@settings(max_examples=examples(40), deadline=None)
@given(problems())
def test_a_plan_survives_json_and_covers_every_pattern(problem: SequenceProblem) -> None:
    plan = plan_sequences(problem.queries, problem.rates)
    assert SequencePlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    for query in plan.queries:
        segments = plan.segments(query.name)
        assert tuple(kind for one in segments for kind in one.types) == query.types
        assert [one.begin for one in segments] == [0, *(one.end for one in segments[:-1])]
        assert all(one.types == query.types[one.begin : one.end] for one in segments)
        assert all(query.name in plan.shared[one.types] for one in segments if one.shared)
    assert plan.cost <= plan.unshared * (1 + 1e-12) and plan.cost <= plan.greedy * (1 + 1e-12)
    for query in plan.queries:
        assert not any("cheaper (" in line for line in plan.explain(query.name))


def small_plan() -> SequencePlan:
    queries = [Pattern("q", tuple("ABC")), Pattern("r", tuple("ABD")), Pattern("s", tuple("EBC"))]
    return plan_sequences(queries, {"A": 4.0, "B": 3.0, "C": 2.0, "D": 2.0, "E": 1.0})


def test_a_plan_in_words() -> None:
    plan = small_plan()
    assert plan.shared == {("A", "B"): ("q", "r")}
    assert plan.explain("q") == [
        "q counts SEQ(A, B, C) in 2 segments",
        "  SEQ(A, B): shared with r; 28 updates for all 2 places",
        "  SEQ(C): its own; 4 updates",
        "  combining them: 8 multiplications",
        "cost per window besides what is shared 12, without any sharing 36",
        "the plan is proven optimal: no other segments of the queries are cheaper",
        "no other pattern that the plan shares can be shared by it",
    ]
    assert plan.explain("s")[:2] == ["s counts SEQ(E, B, C) in 1 segment", "  SEQ(E, B, C): its own; 6 updates"]
    with pytest.raises(KeyError):
        plan.explain("t")


def test_words_name_what_else_could_be_shared() -> None:
    queries = [
        Pattern(name, tuple(types))
        for name, types in {"a": "ABC", "b": "ABC", "c": "XABC", "d": "BCY", "e": "BCZ"}.items()
    ]
    plan = plan_sequences(queries, {"A": 1.0, "B": 6.0, "C": 6.0, "X": 1.0, "Y": 3.0, "Z": 3.0})
    assert set(plan.shared) == {("A", "B", "C"), ("B", "C")}
    assert plan.sharing[2] == ((1, 4),)
    there = exact_cost(plan.problem, (*plan.sharing[:2], ((2, 4),), *plan.sharing[3:]))
    assert f"sharing SEQ(B, C) too, the plan would be {there - plan.cost:.6g} dearer" in plan.explain("c")


def test_plans_that_do_not_fit_their_queries_are_refused() -> None:
    data = small_plan().to_json()
    assert data["format_version"] == 1 and data["proven"] and data["baselines"]["unshared"] == 36 + 36 + 6
    with pytest.raises(ValueError, match="format version"):
        SequencePlan.from_json(data | {"format_version": 2})
    queries = (Pattern("q", tuple("ABC")), Pattern("r", tuple("ABD")))
    rates = tuple((kind, 1.0) for kind in "ABCD")
    for sharing in ((((0, 2),), ()), (((0, 2), (1, 3)), ((0, 2),)), (((0, 1),), ((0, 1),)), (((0, 4),), ((0, 4),))):
        with pytest.raises(ValueError, match="segment"):
            SequencePlan(queries, rates, sharing, 1.0, False)
    with pytest.raises(ValueError, match="order of names"):
        SequencePlan(queries[::-1], rates, (((0, 2),), ((0, 2),)), 1.0, False)
    with pytest.raises(ValueError, match="one tuple of spans"):
        SequencePlan(queries, rates, (), 1.0, False)


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
        plan_sequences(queries, rates)


def test_an_empty_pattern_is_refused_and_an_empty_workload_is_planned() -> None:
    with pytest.raises(ValueError, match="empty pattern"):
        Pattern("q", ())
    plan = plan_sequences([], {})
    assert plan.cost == plan.unshared == plan.greedy == 0 and plan.proven and plan.shared == {}


# ----------------------------------------------------------------------------------------------- re-planning


def test_a_plan_is_kept_while_rates_change_little_and_replaced_when_it_is_too_dear() -> None:
    plan = small_plan()
    same = replan(plan, plan.queries, dict(plan.rates), 0.0)
    assert same.kept and same.plan == plan and same.diff.is_empty
    assert same.diff.lines() == ["same queries in the same segments", f"cost {plan.cost:.6g} -> {plan.cost:.6g}"]
    little = replan(plan, plan.queries, dict(plan.rates) | {"A": 4.1}, 0.1)
    assert little.kept and little.plan.sharing == plan.sharing and little.plan.cost != plan.cost
    # D becomes so frequent that cutting it off costs more than sharing saves
    much = dict(plan.rates) | {"D": 40.0, "E": 5.0}
    kept, replaced = replan(plan, plan.queries, much, 100.0), replan(plan, plan.queries, much, 0.0)
    assert kept.kept and not kept.plan.proven and kept.plan.sharing == plan.sharing
    assert not replaced.kept and replaced.plan.proven and replaced.plan.cost == kept.from_scratch < kept.plan.cost
    # a plan that costs nothing has no multiple
    assert replan(plan, plan.queries, dict.fromkeys("ABCDE", 0.0), math.inf).kept
    assert replaced.diff.dissolved == (("A", "B"),) and "- shared SEQ(A, B)" in replaced.diff.lines()


def test_queries_join_what_is_shared_and_leave_it() -> None:
    plan = small_plan()
    joined = replan(plan, [*plan.queries, Pattern("t", tuple("ABE"))], dict(plan.rates), 1.0)
    assert joined.kept and joined.plan.shared == {("A", "B"): ("q", "r", "t")} and joined.diff.added == ("t",)
    left = replan(plan, [query for query in plan.queries if query.name != "r"], dict(plan.rates), 1.0)
    assert left.plan.shared == {} and left.diff.removed == ("r",) and left.diff.dissolved == (("A", "B"),)
    assert left.diff.cut == ("q",)
    changed = replan(plan, [Pattern("q", tuple("CBA")), *plan.queries[1:]], dict(plan.rates), 1.0)
    assert changed.diff.changed == ("q",) and "~ query q (pattern changed)" in changed.diff.lines()


@pytest.mark.parametrize("seed", range(60))
def test_a_query_that_joins_goes_its_cheapest_way_through_what_is_shared(seed: int) -> None:
    drawn = random.Random(seed)
    rates = {kind: drawn.uniform(0.5, 5) for kind in "ABCDE"}
    pieces = ["AB", "CDE", "BC", "DEA", "ABC", "E"]
    plan = plan_sequences([Pattern(f"q{at}", tuple("".join(drawn.choices(pieces, k=2)))) for at in range(8)], rates)
    joining = Pattern("t", tuple("".join(drawn.choices([*map("".join, plan.shared), *"ABCDE"], k=3))))
    found = replan(plan, [*plan.queries, joining], rates, math.inf)
    assert found.kept and found.plan.sharing[:-1] == plan.sharing
    alone = SequenceProblem([joining], rates)
    assert math.isclose(
        alone.own_cost(0, found.plan.sharing[-1]), cheapest_way(alone, 0, set(plan.shared))[0], rel_tol=1e-9
    )


def cheapest_way(problem: SequenceProblem, query: int, held: set[Types]) -> tuple[float, tuple[Span, ...]]:
    types = problem.queries[query].types
    open_ways = [spans for spans in ways(types) if all(types[begin:end] in held for begin, end in spans)]
    return min((problem.own_cost(query, spans), spans) for spans in open_ways)


@pytest.mark.parametrize("seed", range(20))
def test_opening_or_closing_one_pattern_more_saves_nothing(seed: int) -> None:
    drawn = random.Random(seed)
    rates = {kind: drawn.uniform(0.5, 5) for kind in "ABC"}
    queries = [Pattern(f"q{at}", tuple(drawn.choices("ABC", k=6))) for at in range(5)]
    problem = SequenceProblem(queries, rates)

    def settled(held: set[Types]) -> float:
        while True:
            sharing = tuple(cheapest_way(problem, query, held)[1] for query in range(5))
            places = problem.shared(sharing)
            lonely = {types for types in places if len(places[types]) < 2}
            if not lonely:
                return exact_cost(problem, sharing)
            held = places.keys() - lonely

    patterns = problem.occurrences()
    for start in (set(), set(patterns), {types for types in patterns if len(types) == 2}):
        costs = []
        for shakes in (0, 30):
            found = Router(problem).descend(start, shakes)
            shared = set(problem.shared(found))
            costs.append(exact_cost(problem, found))
            assert math.isclose(costs[-1], settled(shared), rel_tol=1e-9)
            assert all(settled(shared ^ {types}) >= costs[-1] * (1 - 1e-9) for types in patterns)
            assert Router(problem).descend(start, shakes) == found
        assert costs[1] <= costs[0] * (1 + 1e-9)


@settings(max_examples=examples(60), deadline=None)
@given(problems(), problems(), st.sampled_from([0.0, 0.1, 1.0]))
def test_the_tolerance_holds(before: SequenceProblem, after: SequenceProblem, tolerance: float) -> None:
    rates = dict.fromkeys("ABCDE", 1.0) | before.rates | after.rates
    old = plan_sequences(before.queries, dict.fromkeys("ABCDE", 1.0) | before.rates)
    found = replan(old, after.queries, rates, tolerance)
    lowest = cheapest_of_all(SequenceProblem(after.queries, rates))
    assert found.plan.cost <= (1 + tolerance) * lowest * (1 + 1e-9) + 1e-9
    assert found.plan.queries == after.queries
    if found.plan.proven:
        assert math.isclose(found.plan.cost, lowest, rel_tol=1e-9, abs_tol=1e-9)
