"""Edge counters: worked examples of the papers, and every counter against a set of marked ticks."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optimizer.edges import COUNTERS, CountRefused, edge_rate, edge_set, f1_terms, weaveability
from optimizer.query import SECOND, Window
from optimizer.window import progressions

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
@settings(max_examples=150, deadline=None)
@given(found=progression_sets())
@example(found=[(4, 0), (4, 2)])
@example(found=[(6, 1), (10, 1), (15, 1)])
@example(found=[(2, 1), (4, 0), (8, 2), (8, 6)])
def test_every_counter_equals_marking(counter: str, found: list[tuple[int, int]]) -> None:
    unit = math.gcd(*(number for progression in found for number in progression))
    ticks = [(slide // unit, shift // unit) for slide, shift in found]
    assert edge_rate(found, counter) == marked(ticks) / unit


@settings(max_examples=100, deadline=None)
@given(
    slides=st.lists(st.integers(20, 400), min_size=2, max_size=6),
    data=st.data(),
)
def test_conditioning_equals_inclusion_exclusion_beyond_bitmaps(slides: list[int], data: st.DataObject) -> None:
    found = [(s, a) for s in slides for a in {0, data.draw(st.integers(0, s - 1))}]
    assert edge_rate(found, "conditioning") == edge_rate(found, "f1") == edge_rate(found)


@pytest.mark.parametrize("case", EDGE_CASES, ids=lambda case: case["id"])
@pytest.mark.parametrize("counter", ["auto", "conditioning"])
def test_published_and_recomputed_cases(case: dict, counter: str) -> None:
    found = [tuple(progression) for progression in case["progressions"]]
    rate = edge_rate(found, counter)
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


def test_limits_are_refused_and_not_exceeded() -> None:
    coprime = [(slide, 0) for slide in (101, 103, 107, 109, 113)]
    with pytest.raises(CountRefused, match="HDL-350"):
        edge_rate(coprime, "bit-set")
    with pytest.raises(CountRefused, match="HDL-350"):
        edge_rate([(slide, 0) for slide in range(51, 101)], "f1")
    assert edge_rate(coprime) == 1 - math.prod(1 - Fraction(1, slide) for slide, _ in coprime)


def test_conditioning_stops_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.edges.CONDITIONING_LIMIT", 3)
    with pytest.raises(CountRefused, match="conditioning"):
        edge_rate([(slide, slide % 7) for slide in range(301, 341)], "conditioning")


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="positive"):
        edge_rate([(0, 0)])
    with pytest.raises(ValueError, match="unknown counter"):
        edge_rate([(2, 0)], "bitset")


@pytest.mark.timeout(60)
def test_hard_sets_are_counted() -> None:
    """Slides 501..1000 have a period of 433 digits; in microseconds, as queries come."""
    rate = edge_rate([(slide * SECOND, 0) for slide in range(501, 1001)]) * SECOND
    # bounds without any counting: the slides above 900 alone, and all slides as if they were disjoint
    assert edge_rate((slide, 0) for slide in range(901, 1001)) < rate
    assert rate < sum(Fraction(1, slide) for slide in range(501, 1001))
