"""The papers' workloads, the published search with every counter, and every experiment at a tiny scale."""

from __future__ import annotations

import csv
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.papers.evaluations.catalogue import EXPERIMENTS
from optimizer.papers.evaluations.increments import figure_11
from optimizer.papers.evaluations.optimisations import VARIANTS, _Planning
from optimizer.papers.evaluations.outcome import Outcome, table, write
from optimizer.papers.evaluations.sequence_streams import purchases, workload
from optimizer.papers.evaluations.sharon import case_of, executors, same_answers
from optimizer.papers.evaluations.window_workload import Windows, generate
from optimizer.papers.reference.sequence_runs import Counts, Run
from optimizer.papers.reference.weave_share_published import Tally, counter_of, published
from optimizer.search.cost import SearchProblem
from optimizer.search.weave_share import weave_share
from optimizer.windows.edge_counting import COUNTERS, edge_rate
from optimizer.windows.edge_sets import CountRefused
from tests.sizes import examples


def unfinished(done: int, total: int, text: str) -> None:
    assert 0 <= done <= total and text


# the generator


def test_a_workload_is_determined_by_its_seed_and_extended_by_a_larger_count() -> None:
    few, many = generate(50, 100, 1, 10, seed=7), generate(80, 100, 1, 10, seed=7)
    assert np.array_equal(few.slides, many.slides[:50]) and np.array_equal(few.ranges, many.ranges[:50])
    other = generate(50, 100, 1, 10, seed=8)
    assert not np.array_equal(few.slides, other.slides)
    assert few.slides.dtype == few.ranges.dtype == np.int64


@pytest.mark.parametrize("skew", [0, 1, 3])
def test_slides_are_drawn_in_proportion_to_a_power(skew: int) -> None:
    """20,000 draws from ten slides: each count within five standard deviations."""
    counts = Counter(generate(20_000, 10, skew, 5).slides.tolist())
    total = sum(s**skew for s in range(1, 11))
    for slide in range(1, 11):
        expected = 20_000 * slide**skew / total
        assert abs(counts[slide] - expected) < 5 * math.sqrt(expected) + 1


def test_a_huge_skew_repeats_the_largest_slides() -> None:
    slides = generate(1000, 10_000, 100, 5).slides
    assert slides.min() > 9000 and slides.max() <= 10_000


def test_primes_only() -> None:
    slides = set(generate(5000, 50, 0, 5, primes_only=True).slides.tolist())
    assert slides == {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47}


def test_overlap_factors_are_uniform_and_whole_without_fragments() -> None:
    windows = generate(30_000, 60, 0.5, 4)
    assert not (windows.ranges % windows.slides).any()
    counts = Counter((windows.ranges // windows.slides).tolist())
    assert set(counts) == {1, 2, 3, 4}
    # the ends of [1, 4] round to half an interval
    for factor, share in {1: 1 / 6, 2: 1 / 3, 3: 1 / 3, 4: 1 / 6}.items():
        assert abs(counts[factor] - 30_000 * share) < 500


def test_fragments_are_ranges_that_the_slide_does_not_divide() -> None:
    windows = generate(5000, 60, 0.5, 4, fragments=True)
    assert np.count_nonzero(windows.ranges % windows.slides) > 4000
    assert windows.ranges.min() >= 1
    overlaps = windows.ranges / windows.slides
    assert overlaps.min() >= 1 and overlaps.max() <= 4


@pytest.mark.parametrize("wrong", [(0, 10, 1, 5), (5, 10, 1, 0), (5, 0, 1, 5)])
def test_nothing_to_draw(wrong: tuple[int, int, float, int]) -> None:
    with pytest.raises(ValueError, match="at least 1|no slide"):
        generate(*wrong)


def test_a_tick_scales_windows_and_rate_alike() -> None:
    """Half seconds at rate 2 are seconds at rate 1, at twice the cost a second."""
    windows = generate(30, 12, 0.6, 10)
    in_seconds, half = windows.problem(1), windows.problem(2, tick=500_000)
    assert weave_share(in_seconds) == weave_share(half)
    assert half.cost(weave_share(half)) == 2 * in_seconds.cost(weave_share(in_seconds))


# the published search

workloads = st.builds(
    generate,
    count=st.integers(1, 9),
    largest_slide=st.sampled_from([4, 12, 24]),
    skew=st.sampled_from([0, 1]),
    largest_overlap=st.sampled_from([1, 4, 50]),
    seed=st.integers(0, 1000),
    fragments=st.booleans(),
)
rates = st.sampled_from([Fraction(1, 100), Fraction(1, 3), Fraction(3), Fraction(40)])


@settings(max_examples=examples(60), deadline=None)
@given(windows=workloads, rate=rates)
def test_every_counter_leads_to_the_plan_of_weave_share(windows: Windows, rate: Fraction) -> None:
    problem = windows.problem(rate)
    expected = weave_share(problem)
    for name in [*COUNTERS, "auto"]:
        published_plan = published(problem, counter_of(name))
        assert published_plan.partition == expected, name
        assert problem.cost(published_plan.partition) == problem.cost(expected)
        assert published_plan.counts >= len(problem) * (len(problem) - 1) // 2


@settings(max_examples=examples(30), deadline=None)
@given(windows=workloads, rate=rates)
def test_starting_from_single_queries_costs_the_same(windows: Windows, rate: Fraction) -> None:
    apart = windows.problem(rate, collapse=False)
    partition = published(apart, counter_of("auto")).partition
    assert partition is not None
    together = windows.problem(rate)
    assert apart.cost(partition) == together.cost(weave_share(together))


def brute_force(problem: SearchProblem) -> list[list[int]]:
    """Figure 2 of the paper: every pair of trees costed again in every round, in fractions."""
    trees = [[item] for item in range(len(problem))]
    while True:
        saved = {
            (x, y): problem.tree_cost(trees[x]) + problem.tree_cost(trees[y]) - problem.tree_cost(trees[x] + trees[y])
            for x in range(len(trees))
            for y in range(x + 1, len(trees))
        }
        best = max(saved.values(), default=Fraction(0))
        if best <= problem.fixed / 10**12:
            return sorted(sorted(tree) for tree in trees)
        x, y = min(pair for pair, value in saved.items() if value >= best - problem.fixed / 10**12)
        trees[x] += trees.pop(y)


@settings(max_examples=examples(40), deadline=None)
@given(windows=workloads, rate=rates)
def test_the_published_search_is_the_papers(windows: Windows, rate: Fraction) -> None:
    problem = windows.problem(rate)
    assert published(problem, counter_of("auto")).partition == brute_force(problem)


def test_a_search_that_is_over_its_limits_says_of_what_it_died() -> None:
    problem = generate(40, 500, 0, 5, primes_only=True).problem(10**6)
    timed = published(problem, counter_of("auto"), limit=-1.0)
    assert timed.partition is None and timed.died == "time" and timed.counts == 0
    memory = published(problem, counter_of("bit-set"))
    assert memory.partition is None and memory.died == "memory"

    def refuse(edges: tuple[tuple[int, int], ...]) -> Fraction:
        raise CountRefused("HDL-350", "the f1 edge counter does not take this")

    assert published(problem, refuse).died == "groups"


def test_operations_are_added_up_by_the_papers_formulas() -> None:
    tally = Tally(edge_rate)
    assert tally(((3, 0), (4, 0))) == Fraction(1, 2)
    assert (tally.bit_set, tally.f1, tally.longest) == (4 + 3, 2 * 2, 12)
    tally(((2, 0), (3, 0), (5, 0)))
    assert (tally.bit_set, tally.f1, tally.longest) == (7 + 15 + 10 + 6, 4 + 3 * 4, 30)


# figures 11 and 14


@pytest.mark.parametrize("fragments", [False, True])
def test_all_optimisations_end_in_the_plan_of_weave_share(fragments: bool) -> None:
    windows = generate(12, 12, 0.7, 10, fragments=fragments, seed=3)
    problem = windows.problem(20, collapse=False)
    cost = problem.cost(published(problem, counter_of("auto")).partition or [])
    comparisons = []
    for lookup, bitmap, smaller in VARIANTS.values():
        planning = _Planning(lookup, bitmap, smaller, math.inf)
        trees = planning.run(windows, 20)
        assert trees is not None
        assert _cost(trees, windows, 20) == pytest.approx(float(cost))
        comparisons.append(planning.comparisons)
    assert comparisons == sorted(comparisons, reverse=True)


def _cost(trees: list[list[tuple[int, int]]], windows: Windows, rate: int) -> float:
    """Cost of trees of (slide, inner edge): each query of one kind takes any range of that kind."""
    overlaps: dict[tuple[int, int], list[float]] = {}
    for length, slide in zip(windows.ranges.tolist(), windows.slides.tolist(), strict=True):
        overlaps.setdefault((slide, length % slide), []).append(length / slide)
    total = 0.0
    for tree in trees:
        density = edge_rate([edge for slide, inner in tree for edge in ((slide, 0), (slide, inner))])
        total += rate + float(density) * sum(overlaps[query].pop() for query in tree)
    return total


def test_the_naive_search_gives_up_in_time() -> None:
    assert _Planning(False, False, False, -1.0).run(generate(5, 5, 0, 5), 1) is None


def test_increments_hold_the_tolerance_against_the_cost_of_planning_again() -> None:
    rows, _, measured = figure_11("tiny", unfinished)
    for row in rows:
        if row["trigger"] == "replan":
            assert row["largest_deviation_percent"] <= row["tolerance_percent"] + 1e-9
    always = [row for row in rows if row["tolerance_percent"] == 0]
    never = [row for row in rows if row["tolerance_percent"] == math.inf]
    assert all(row["largest_deviation_percent"] == pytest.approx(0, abs=1e-9) for row in always)
    assert all(row["reconstructions"] == 0 for row in never)
    assert always[0]["comparisons"] > never[0]["comparisons"]
    assert measured["average deviation within the tolerance (replan)"][1] == "yes"


# every experiment


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return {name: experiment.run("tiny", unfinished) for name, experiment in EXPERIMENTS.items()}


def test_there_is_one_experiment_per_figure_and_table() -> None:
    f1 = {f"f1-{figure}" for figure in ("6", "7", "8", "9", "10", "11", "table2")}
    weave = {f"weave-share-{figure}" for figure in (4, 5, 6, 7, 8, 9, 10, 11, 14)}
    arasu = {f"arasu-widom-{figure}" for figure in (9, 10, 11, 12)}
    sharon = {f"sharon-{figure}" for figure in (13, *(f"14{panel}" for panel in "abcdefgh"), 15, 16)}
    golab = {f"golab-{figure}" for figure in (5, 6, 7, 8)}
    assert set(EXPERIMENTS) == f1 | weave | arasu | sharon | golab
    for name, experiment in EXPERIMENTS.items():
        assert name == f"{experiment.paper}-{experiment.figure}" == experiment.name
        assert experiment.title and experiment.claim and experiment.minutes > 0


def test_an_unknown_scale() -> None:
    with pytest.raises(ValueError, match="unknown scale 'huge'"):
        EXPERIMENTS["f1-6"].run("huge")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment(name: str, outcomes: dict[str, Outcome], tmp_path: Path) -> None:
    """Runs, has what its plot needs, and is written as a CSV and a PNG."""
    outcome = outcomes[name]
    chart = outcome.experiment.chart
    assert outcome.rows and outcome.summary and outcome.measured
    assert all(chart.x in row and (not chart.by or chart.by in row) for row in outcome.rows)
    assert any(row.get(column) is not None for row in outcome.rows for column in chart.y)
    paths = write(outcome, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [f"{name}.csv", f"{name}.png"]
    with paths[0].open(newline="") as file:
        read = list(csv.DictReader(file))
    assert len(read) == len(outcome.rows) and set(outcome.rows[0]) <= set(read[0])
    assert paths[1].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", [f"f1-{figure}" for figure in range(7, 12)])
def test_counters_agree_in_every_sweep(name: str, outcomes: dict[str, Outcome]) -> None:
    assert all(row["same_cost"] for row in outcomes[name].rows)
    assert all(row["ours_seconds"] is not None and row["cost"] > 0 for row in outcomes[name].rows)


@pytest.mark.parametrize("figure", ["13", *(f"14{panel}" for panel in "abcdefgh"), "16"])
def test_executors_of_event_sequences_agree(figure: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[f"sharon-{figure}"]
    assert outcome.measured["same answers"] == ("yes", "yes")
    assert all(row["same_answers"] is True and row["answers"] > 0 for row in outcome.rows)


@pytest.mark.parametrize(
    "halves, rate, queries, least, most",
    [
        (4, 100, 20, 4.5, 5.5),
        (4, 100, 120, 19.0, 24.0),
        (11, 100, 20, 1.7, 2.1),
        (11, 100, 120, 8.0, 10.0),
        (11, 10, 120, 4.5, 6.0),
    ],
)
def test_sharon_saves_the_additions_that_the_paper_claims_where_few_halves_are_frequent(
    halves: int, rate: int, queries: int, least: float, most: float
) -> None:
    """Figure 14 (b): 5 times from 20 queries, 18 times from 120. It takes 4 different halves and 100 events a type."""
    stream = purchases(4 * 50 * rate, users=2, ticks=1_000)
    case = case_of(stream, workload(queries, 10, "halves", stream, halves), len(stream.key) / 2)
    a_seq, sharon = (run(case.events) for run in executors(case, ("a_seq", "sharon")).values())
    assert same_answers([a_seq, sharon])
    assert least < a_seq.additions / sharon.additions < most  # type: ignore[union-attr]


def test_constructing_sequences_ends_before_counting_them(outcomes: dict[str, Outcome]) -> None:
    """At a tiny scale's limit, the largest windows are out of reach for one of the two."""
    rows = outcomes["sharon-13"].rows
    assert all(row["sharon_latency_ms"] > 0 and row["ours_latency_ms"] > 0 for row in rows)
    assert rows[0]["flink_latency_ms"] is not None and rows[0]["flink_additions"] > 0
    assert rows[-1]["flink_latency_ms"] is None and rows[-1]["flink_held"] is None


def test_the_cheapest_sequence_plan_is_no_dearer_than_the_others(outcomes: dict[str, Outcome]) -> None:
    for row in outcomes["sharon-15"].rows:
        assert row["ours_proven"] and row["ours_cost"] <= min(row["greedy_cost"], row["score_cost"]) * (1 + 1e-6)
        assert row["exhaustive_score"] >= row["greedy_score"]
    for row in outcomes["sharon-16"].rows:
        assert row["cost_cost"] <= min(row["greedy_cost"], row["score_cost"]) * (1 + 1e-6)


def test_a_difference_between_executors_of_event_sequences_is_seen() -> None:
    first_counts, other = (
        [Counts(*(np.array([number], kind) for kind in (np.int64, np.int64, np.uint64, np.float64)))]
        for number in (1, 2)
    )
    assert same_answers([Run(first_counts, 0, 0), Run(first_counts, 5, 5)])
    assert not same_answers([Run(first_counts, 0, 0), Run(other, 0, 0)])
    assert not same_answers([Run(first_counts, 0, 0), Run([], 0, 0)])


def test_published_figures_of_plans_come_out(outcomes: dict[str, Outcome]) -> None:
    """What no clock decides: operations of Figure 6, savings that grow, one tree where one slide is left."""
    rows = {row["acqs"]: row for row in outcomes["f1-6"].rows}
    assert rows[60]["bit_set_operations"] == pytest.approx(
        sum(math.lcm(*range(1, 61)) // slide for slide in range(1, 61))
    )
    for name in ("weave-share-4", "weave-share-5"):
        for row in outcomes[name].rows:
            assert row["best_cost"] <= row["weave_share_cost"] * (1 + 1e-9)
            assert row["best_cost"] <= min(row["shared_cost"], row["no_share_cost"]) * (1 + 1e-9)
    assert outcomes["weave-share-10"].measured["one tree at the largest skew"][1] == "yes"
    assert outcomes["weave-share-14"].measured["same plan in every variant"][1] == "yes"


def test_table(outcomes: dict[str, Outcome]) -> None:
    text = table(outcomes.values())
    lines = text.splitlines()
    assert lines[0] == "| experiment | quantity | paper says | we measured | ratio |"
    assert len(lines) == 2 + sum(len(outcome.measured) for outcome in outcomes.values())
    assert all(line.count("|") == 6 for line in lines)
    assert "| f1-7 | same cost with every counter | yes | yes |  |" in lines
