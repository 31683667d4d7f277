"""Edge counters: worked examples of the papers, and every counter against a set of marked ticks."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optimizer.windows import conditioning, edge_counting, edge_sets
from optimizer.windows.alignment import Progression, absorb, progressions
from optimizer.windows.edge_counting import COUNTERS, EdgeCounter, edge_bounds, edge_rate, weaveability
from optimizer.windows.edge_sets import CountRefused, edge_set, f1_terms
from optimizer.workload.values import SECOND, Window
from tests.sizes import examples

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = json.loads((GOLDEN / "windows_and_plans.json").read_text())["cases"]
EDGE_CASES = [case for case in CASES if case["kind"] == "edge_rate"]


def marked(found: list[tuple[int, int]]) -> Fraction:
    """Brute force: every edge of one period, in a set."""
    period = math.lcm(*(slide for slide, _ in found))
    edges = {(shift + k * slide) % period for slide, shift in found for k in range(period // slide)}
    return Fraction(len(edges), period)


@st.composite
def progression_sets(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Up to 9 progressions whose period stays below 5,040 ticks, in a unit that is not 1."""
    slides = draw(st.lists(st.sampled_from([d for d in range(1, 5041) if 5040 % d == 0]), min_size=1, max_size=9))
    unit = draw(st.sampled_from([1, 7, 1000]))
    return [(slide * unit, draw(st.integers(0, slide - 1)) * unit) for slide in slides]


@pytest.mark.parametrize("counter", ["auto", *COUNTERS])
@settings(max_examples=examples(40), deadline=None)
@given(found=progression_sets())
@example(found=[(4, 0), (4, 2)])
@example(found=[(6, 1), (10, 1), (15, 1)])
@example(found=[(2, 1), (4, 0), (8, 2), (8, 6)])
def test_every_counter_equals_marking(counter: str, found: list[tuple[int, int]]) -> None:
    unit = math.gcd(*(number for progression in found for number in progression))
    ticks = [(slide // unit, shift // unit) for slide, shift in found]
    assert edge_rate(found, counter) == marked(ticks) / unit


@settings(max_examples=examples(100), deadline=None)
@given(
    slides=st.lists(st.integers(20, 400), min_size=2, max_size=6),
    data=st.data(),
)
def test_conditioning_equals_inclusion_exclusion_beyond_bitmaps(slides: list[int], data: st.DataObject) -> None:
    edges = [(s, a) for s in slides for a in {0, data.draw(st.integers(0, s - 1))}]
    assert edge_rate(edges, "conditioning") == edge_rate(edges, "f1") == edge_rate(edges)


@pytest.mark.parametrize("case", EDGE_CASES, ids=lambda case: case["id"])
@pytest.mark.parametrize("counter", ["auto", "conditioning"])
def test_published_and_recomputed_cases(case: dict, counter: str) -> None:
    edges = [tuple(progression) for progression in case["progressions"]]
    rate = edge_rate(edges, counter)
    assert rate == Fraction(case["edge_rate"])
    assert rate * int(case["lcm"]) == int(case["edges"])
    # windows start on multiples of the slide here and end there in F1: mirror images have equal counts
    windows = [Window(r * SECOND, s * SECOND) for r, s in case["queries"]]
    assert edge_rate(progressions(windows), counter) * SECOND == rate


def test_f1_examples_term_by_term() -> None:
    assert f1_terms((slide, 0) for slide in (2, 3, 4, 5, 6)) == (87, 70, 36, 10, 1)
    assert f1_terms([(3, 0), (4, 0), (4, 3), (6, 0), (6, 2), (9, 0)]) == (46, 26, 8, 1)


def test_contained_progressions_need_compatible_shifts() -> None:
    # the slide 4 is a multiple of 2, its shift 1 is not inside (2, 0)
    assert edge_rate([(2, 0), (4, 1)]) == Fraction(3, 4)
    assert edge_rate([(2, 0), (4, 2)]) == Fraction(1, 2)


def test_weave_share_example_2() -> None:
    a, b = [(9, 0), (9, 3)], [(6, 0), (6, 4)]
    assert (edge_rate(a), edge_rate(b), edge_rate(a + b)) == (Fraction(2, 9), Fraction(1, 3), Fraction(8, 18))
    assert weaveability(a, b) == Fraction(2, 8)


def test_weave_share_example_4() -> None:
    x, y = [(5, 0), (5, 2)], [(3, 0)]
    assert (edge_rate(x) * 15, edge_rate(y) * 15) == (6, 5)
    assert edge_rate(x + y) * 15 == 6 + 5 - 2


def test_weaveability_of_equal_and_disjoint_edges() -> None:
    assert weaveability([(4, 0), (4, 2)], [(2, 0)]) == 1
    assert weaveability([(2, 0)], [(2, 1)]) == 0


def test_no_progressions_have_no_edges() -> None:
    assert edge_rate([]) == 0


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (Window(10, 4), ((2, 0),)),
        (Window(4, 2), ((2, 0),)),
        (Window(12, 9), ((9, 0), (9, 3))),
        (Window(1, 100), ((100, 0), (100, 1))),
        (Window(5, 3), ((3, 0), (3, 2))),
    ],
)
def test_edge_set_in_lowest_terms(window: Window, expected: tuple[tuple[int, int], ...]) -> None:
    assert edge_set(window) == expected


def test_limits_are_refused_and_not_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_sets, "F1_LIMIT", 1 << 16)
    coprime = [(slide, 0) for slide in (101, 103, 107, 109, 113)]
    with pytest.raises(CountRefused, match="HDL-350"):
        edge_rate(coprime, "bit-set")
    with pytest.raises(CountRefused, match="HDL-350"):
        edge_rate([(slide, 0) for slide in range(51, 101)], "f1")
    assert edge_rate(coprime) == 1 - math.prod(1 - Fraction(1, slide) for slide, _ in coprime)


def test_f1_is_limited_by_overlapping_groups_not_by_progressions() -> None:
    # residue classes of one slide never meet: 90 progressions, 90 groups
    assert edge_rate([(97, shift) for shift in range(90)], "f1") == Fraction(90, 97)


def test_conditioning_stops_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_counting, "CONDITIONING_LIMIT", 300)
    with pytest.raises(CountRefused, match="conditioning"):
        edge_rate(HARD)


def test_bad_arguments() -> None:
    for counting in (edge_rate, edge_bounds):
        with pytest.raises(ValueError, match="positive"):
            counting([(0, 0)])
        with pytest.raises(ValueError, match="unknown counter"):
            counting([(2, 0)], "bitset")
    with pytest.raises(ValueError, match="unknown counter"):
        EdgeCounter(counter="bitset")


@pytest.mark.timeout(60)
def test_hard_sets_are_counted() -> None:
    """Slides 501..1000 have a period of 433 digits; in microseconds, as queries come."""
    rate = edge_rate([(slide * SECOND, 0) for slide in range(501, 1001)]) * SECOND
    # bounds without any counting: the slides above 900 alone, and all slides as if they were disjoint
    assert edge_rate((slide, 0) for slide in range(901, 1001)) < rate
    assert rate < sum(Fraction(1, slide) for slide in range(501, 1001))


# ---------------------------------------------------------------- generated trees, against marking a period


def fragments(seed: int, count: int, longest: int, shortest: int = 2) -> list[Progression]:
    """Random windows with fragments: both edges of each."""
    rng = random.Random(seed)
    slides = [rng.randint(shortest, longest) for _ in range(count)]
    return [edge for slide in slides for edge in ((slide, 0), (slide, rng.randrange(slide)))]


HARD = absorb(fragments(2, 60, 3_000))
"""Some 100 progressions: takes some 15,000 units of work to count."""

FAMILIES = {
    "smooth": [d for d in range(2, 400) if 55_440 % d == 0],
    "coprime": [2, 3, 5, 7, 11, 13],
    "nested": [2**a * 3**b for a in range(7) for b in range(4) if a + b],
    "powers of two": [2**a for a in range(1, 13)],
    "long": [d for d in range(100, 27_720) if 27_720 % d == 0],
    "squares": [4, 9, 25, 12, 18, 20, 45, 50, 75, 100, 90],
    "large factors": [1_009, 2_018, 3_027, 6_054, 6, 4, 12],
    "gap": [30, 60, 42, 70, 84, 36, 66],
}


def trees(family: str, number: int) -> Iterator[list[Progression]]:
    """Absorbed, not covering all of time, from few to many progressions, half of them without fragments."""
    rng = random.Random(family)
    while number:
        fragmented = rng.random() < 0.7
        slides = rng.choices(FAMILIES[family], k=rng.choice((1, 2, 3, 4, 8, 20)))
        edges = absorb((slide, shift) for slide in slides for shift in {0, rng.randrange(slide) if fragmented else 0})
        if edges != ((1, 0),):
            yield list(edges)
            number -= 1


def marks(found: list[Progression], period: int) -> np.ndarray:
    marked = np.zeros(period, dtype=np.bool_)
    for slide, shift in found:
        marked[shift::slide] = True
    return marked


def brute_force(found: list[Progression]) -> Fraction:
    period = math.lcm(*(slide for slide, _ in found))
    return Fraction(int(np.count_nonzero(marks(found, period))), period)


def close(answer: tuple[float, float], exact: Fraction) -> bool:
    return answer[0] == answer[1] and abs(Fraction(answer[0]) - exact) <= exact / 10**12


@pytest.fixture(params=["bitmaps", "no bitmaps"])
def small_period(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without the short cut for small periods, which would hide the recursion from most cases."""
    if request.param == "no bitmaps":
        monkeypatch.setattr(conditioning, "SMALL_PERIOD", 1)
        monkeypatch.setattr(edge_counting, "_conditioned", edge_counting._conditioned.__wrapped__)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("small_period")
def test_rates_and_densities_equal_marking(family: str) -> None:
    counter = EdgeCounter()
    for edges in trees(family, 120):
        exact = brute_force(edges)
        assert edge_rate(edges) == exact
        assert edge_bounds(edges) == (exact, exact)
        assert close(counter.density(edges), exact), edges


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("small_period")
def test_increments_equal_differences(family: str) -> None:
    counter = EdgeCounter()
    sets = list(trees(family, 120))
    for edges, other in zip(sets, sets[1:], strict=False):
        added = absorb(other[: random.Random(len(edges)).choice((1, 2, 20))])
        rise = brute_force(list(absorb([*edges, *added]))) - brute_force(edges)
        assert close(counter.increment(edges, counter.density(edges), added), rise), (edges, added)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("small_period")
def test_intervals_contain_the_truth_at_every_budget(family: str) -> None:
    sets = list(trees(family, 60))
    for edges, added in zip(sets, sets[1:], strict=False):
        exact = brute_force(edges)
        rise = brute_force(list(absorb([*edges, *added]))) - exact
        for budget in (0, 3, 10, 30, 100, 1000):
            low, high = edge_bounds(edges, budget=budget)
            assert low <= exact <= high, (edges, budget)
            counter = EdgeCounter(budget=budget)
            density = counter.density(edges)
            low, high = (Fraction(bound) for bound in density)
            assert low * (1 - ROUNDING) <= exact <= high * (1 + ROUNDING), (edges, budget)
            low, high = (Fraction(bound) for bound in counter.increment(edges, density, added))
            assert low * (1 - ROUNDING) <= rise <= high * (1 + ROUNDING), (edges, added, budget)


def test_intervals_of_larger_sets_contain_the_truth() -> None:
    """Some 60 fragmented progressions each, of slides that a period of 360,360 ticks holds."""
    slides = [d for d in range(40, 800) if 360_360 % d == 0]
    for seed in range(40):
        rng = random.Random(seed)
        edges = list(absorb((slide, rng.randrange(slide)) for slide in rng.choices(slides, k=70)))
        exact = brute_force(edges)
        for budget in (100, 300, 1_000, 3_000):
            low, high = edge_bounds(edges, budget=budget)
            assert low <= exact <= high, (seed, budget)


def test_the_share_of_light_progressions_that_heavy_ones_miss() -> None:
    heavy, light = [(4, 1), (6, 5), (10, 2)], [(15, 4), (21, 6), (8, 3), (11, 0)]
    period = math.lcm(*(slide for slide, _ in heavy + light))
    missed = ~marks(heavy, period)
    exact = sum(Fraction(int(np.count_nonzero(missed[shift::slide])), period) for slide, shift in light)
    assert edge_counting._share_missed(heavy, light) == pytest.approx(float(exact), rel=1e-14)


@pytest.mark.parametrize("order", [1, -1])
def test_factors_beyond_the_small_primes_are_told_apart(order: int) -> None:
    p, q, r = 1_009, 1_013, 1_019
    products = [p * q, p * p, p * q * r, r * r * q, 6 * r, 4 * q, 15 * p * p, 10][::order]
    edges = list(absorb((slide, slide // 3 * (number % 2)) for number, slide in enumerate(products)))
    exact = edge_rate(edges, "f1")
    assert edge_rate(edges) == exact
    # slides may also come one by one, and refine what is known of earlier ones
    counter = EdgeCounter()
    for number in range(1, len(edges) + 1):
        assert close(counter.density(edges[:number]), edge_rate(edges[:number], "f1"))


def test_a_slide_whose_every_residue_is_hit_ends_the_count() -> None:
    """Modulo 3 the rest is hit by all residues of 4: nothing else has to be looked at."""
    edges = [(12, 0), (12, 3), (12, 6), (12, 9)] + [(3 * slide, 3) for slide in (35, 55, 77, 91, 143, 221)]
    edges += [(slide, 1) for slide in (35, 55, 77, 91, 143, 221, 323)]
    assert close(EdgeCounter().density(absorb(edges)), edge_rate(edges, "f1"))


ROUNDING = Fraction(1, 10**12)


def test_intervals_are_open_and_shrink_with_the_budget() -> None:
    exact = edge_rate(HARD)
    widths = []
    for budget in (30, 300, 3_000, 10_000, 100_000):
        low, high = edge_bounds(HARD, budget=budget)
        assert low <= exact <= high
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 10 * widths[2] > 0
    assert widths[3] > 0
    assert widths[4] == 0


def test_a_small_rise_keeps_its_digits() -> None:
    """The rise is 1e-9 of the density: subtracting densities would leave seven digits."""
    tree = [(slide, 0) for slide in (2, 3, 5, 7)]
    added = [(1_000_000_007, 3)]
    rise = Fraction(math.prod(1 - Fraction(1, slide) for slide, _ in tree)) / 1_000_000_007
    counter = EdgeCounter()
    assert close(counter.increment(tree, counter.density(tree), added), rise)
    # and so does a density of long slides
    long = [(10**9 + 7, 0), (10**9 + 9, 1), (10**9 + 21, 5), (3 * (10**9 + 7), 1)]
    assert close(counter.density(long), edge_rate(long))


def test_covering_systems_miss_nothing() -> None:
    """Erdos: every instant is hit, although no progression lies inside another."""
    covering = [(2, 0), (3, 0), (4, 1), (6, 5), (12, 7)]
    assert edge_rate(covering) == 1
    counter = EdgeCounter()
    assert counter.density(covering) == (1.0, 1.0)
    assert counter.increment(covering, (1.0, 1.0), [(35, 6)]) == (0.0, 0.0)
    assert edge_bounds(covering, budget=0)[1] <= 1


def test_a_counter_works_in_ticks_of_its_unit() -> None:
    tree = [(6 * SECOND, 0), (10 * SECOND, 0), (10 * SECOND, 3 * SECOND), (15 * SECOND, 4 * SECOND)]
    counter = EdgeCounter(SECOND)
    assert close(counter.density(tree), edge_rate(tree) * SECOND)
    assert close(
        counter.increment(tree[:2], counter.density(tree[:2]), tree[2:]),
        (edge_rate(tree) - edge_rate(tree[:2])) * SECOND,
    )
    assert counter.density([]) == (0.0, 0.0)
    assert counter.increment(tree, counter.density(tree), []) == (0.0, 0.0)
    assert close(counter.increment([], (0.0, 0.0), tree), edge_rate(tree) * SECOND)


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_by_name_gives_the_same_densities(name: str) -> None:
    tree, added = [(4, 0), (6, 0), (6, 2), (9, 4)], [(10, 0), (10, 7)]
    counter = EdgeCounter(counter=name)
    assert close(counter.density(tree), edge_rate(tree))
    assert close(counter.increment(tree, counter.density(tree), added), edge_rate(tree + added) - edge_rate(tree))


def test_answers_do_not_depend_on_what_was_asked_before() -> None:
    sets = [absorb(fragments(seed, 6, 60)) for seed in range(60)]
    used = EdgeCounter()
    first = [used.density(edges) for edges in sets]
    assert [used.density(edges) for edges in reversed(sets)] == first[::-1]
    assert [EdgeCounter().density(edges) for edges in sets] == first


def test_a_memo_that_overflows_forgets_and_stays_right(monkeypatch: pytest.MonkeyPatch) -> None:
    density = EdgeCounter().density(HARD)
    monkeypatch.setattr(conditioning, "MEMO_SIZE", 500)
    counter = EdgeCounter()
    assert counter.density(HARD) == density
    assert sum(map(len, counter._engine._memo)) <= 500


def test_work_stays_within_the_budget() -> None:
    counter = EdgeCounter(budget=2_000)
    low, high = counter.density(absorb(fragments(1, 300, 10_000)))
    assert 0 < low < high < 1
    # the attempt to count exactly, then the interval; each may open one subproblem too many
    assert counter.work <= 3 * 2_000


@pytest.mark.parametrize(
    ("factor", "depth", "divisions"),
    [(10**9, 0, 0), (0, conditioning.DEEPEST // 2, 0), (0, conditioning.DEEPEST // 2 - 1, 1)],
)
def test_bounds_are_divided_while_work_and_depth_are_left(
    factor: int, depth: int, divisions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowances: list[int] = []

    def divided(self: EdgeCounter, key: tuple[Progression, ...], allowance: int) -> edge_counting.Intervals:
        allowances.append(allowance)
        return (0.0, 1.0), (0.0, 1.0)

    monkeypatch.setattr(EdgeCounter, "_divided", divided)
    monkeypatch.setattr(edge_counting, "SPLIT_FROM", factor)
    counter = EdgeCounter()
    counter._engine.depth = depth
    counter._interval(list(HARD), 1_000)
    assert len(allowances) == divisions


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("count", "longest"), [(1_500, 1_000), (1_500, 10_000), (3_000, 86_400 * SECOND)])
def test_huge_trees_answer_in_bounded_time(count: int, longest: int) -> None:
    """Thousands of fragment progressions, periods of hundreds of digits and more."""
    edges = absorb(fragments(7, count, longest, 40))
    counter = EdgeCounter(budget=20_000)
    low, high = counter.density(edges)
    assert max(1 / slide for slide, _ in edges) <= low <= high <= min(1, sum(1 / slide for slide, _ in edges)) * 1.001
    density = low, high
    low, high = counter.increment(edges, density, [(997 * 991, 5)])
    assert 0 <= low <= high <= 1 / (997 * 991)


@pytest.mark.timeout(60)
def test_long_chains_of_slides_do_not_nest_too_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slide shares a prime with the next: the subproblems nest, the interpreter's stack must hold."""
    primes = [n for n in range(100, 3_000) if all(n % d for d in range(2, math.isqrt(n) + 1))]
    path = [(p * q, 0) for p, q in zip(primes, primes[1:], strict=False)]
    rate = edge_rate(path)
    assert close(EdgeCounter().density(path), rate)
    assert rate < sum(Fraction(1, slide) for slide, _ in path)
    # far too deep for the budget, and each class of residues is nearly as hard as the whole
    counter = EdgeCounter(budget=400)
    low, high = (Fraction(bound) for bound in counter.density(path))
    assert low <= rate <= high
    monkeypatch.setattr(conditioning, "DEEPEST", 4)
    low, high = edge_bounds(path, budget=10_000)
    assert low < rate < high
