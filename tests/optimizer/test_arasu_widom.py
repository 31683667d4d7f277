"""The experiments of shared sliding-window aggregates at a tiny scale: what no clock decides."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from optimizer.papers.evaluations.arasu_widom import (
    DAY,
    METHODS,
    POINTS,
    SELECTIVITY,
    SPANS,
    _steps,
    filter_rates,
    trades,
)
from optimizer.papers.evaluations.catalogue import EXPERIMENTS
from optimizer.papers.evaluations.outcome import Outcome, write
from optimizer.papers.reference.ci_levels import relative_error
from optimizer.papers.reference.r_int import SubstreamTotals

FIGURES = ("9", "10", "11", "12")


def unfinished(done: int, total: int, text: str) -> None:
    assert 0 <= done <= total and text


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return {figure: EXPERIMENTS[f"arasu-widom-{figure}"].run("tiny", unfinished) for figure in FIGURES}


def test_there_is_one_experiment_per_figure() -> None:
    experiments = [experiment for experiment in EXPERIMENTS.values() if experiment.paper == "arasu-widom"]
    assert tuple(experiment.figure for experiment in experiments) == FIGURES
    assert all(experiment.title and experiment.claim and experiment.minutes > 0 for experiment in experiments)


@pytest.mark.parametrize("figure", FIGURES)
def test_rows_have_what_is_drawn_and_are_written(figure: str, outcomes: dict[str, Outcome], tmp_path: Path) -> None:
    outcome = outcomes[figure]
    chart = outcome.experiment.chart
    assert outcome.rows and outcome.summary and outcome.measured
    assert all(row[column] > 0 for row in outcome.rows for column in chart.y) and len(chart.y) >= 3
    points = [row[chart.x] for row in outcome.rows]
    assert points == sorted(set(points))
    table, plot = write(outcome, tmp_path)
    with table.open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(outcome.rows)
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("figure", ["9", "11", "12"])
def test_all_that_is_compared_answers_alike(figure: str, outcomes: dict[str, Outcome]) -> None:
    assert outcomes[figure].measured["same answers"] == ("yes", "yes")
    assert all(row["same_answers"] is True for row in outcomes[figure].rows)


def test_figure_9_goes_from_look_ups_only_to_updates_only(outcomes: dict[str, Outcome]) -> None:
    rows = outcomes["9"].rows
    assert [row["updates_percent"] for row in rows] == [0, 50, 100]
    assert all(f"{name}_rate" in row for name in METHODS for row in rows)


def test_figure_11_is_compared_with_the_paper(outcomes: dict[str, Outcome]) -> None:
    papers = {name.partition(",")[0]: paper for name, (paper, _) in outcomes["11"].measured.items()}
    assert (papers["R-INT (SUM)"], papers["B-INT-QNT (median)"]) == (1e7, 22_000)


def test_sizes_are_the_papers() -> None:
    assert _steps(100_000, "quick") == [10, 100, 1_000, 10_000, 100_000]
    assert _steps(100_000, "full")[-3:] == [10_000, 20_000, 100_000]


def test_more_levels_leave_fewer_false_candidates(outcomes: dict[str, Outcome]) -> None:
    rows = outcomes["12"].rows
    assert tuple(row["p"] for row in rows) == POINTS["tiny"]
    assert [row["epsilon"] for row in rows] == [float(relative_error(p)) for p in POINTS["tiny"]]
    candidates = [row["candidates"] for row in rows]
    assert candidates == sorted(candidates, reverse=True) and candidates[0] > candidates[-1]
    assert candidates[-1] >= rows[0]["keys_found"]
    sizes = [row["index_bytes"] for row in rows]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("weighted", [False, True])
def test_filters_of_thousands_of_trades(weighted: bool) -> None:
    """Selectivity as the paper's, and by p = 16 hardly a false candidate."""
    rows = filter_rates(trades(400, 40_000, 200, weighted), (1, 16), 1, unfinished)
    for row in rows:
        assert row["same_answers"] and 0.03 <= row["selectivity"] <= 0.05
        assert row["keys_found"] == pytest.approx(row["selectivity"] * 400)
    assert rows[0]["candidates"] > 1.3 * rows[0]["keys_found"]
    assert rows[1]["candidates"] < 1.2 * rows[1]["keys_found"]


def test_a_difference_in_answers_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-INT that has missed a few thousand trades no longer finds what the index finds."""
    real_update_many = SubstreamTotals.update_many

    def forgetful(
        self: SubstreamTotals, keys: np.ndarray, times: np.ndarray, weights: np.ndarray | None = None
    ) -> None:
        real_update_many(self, keys[:-2_000], times[:-2_000], weights)

    monkeypatch.setattr(SubstreamTotals, "update_many", forgetful)
    rows = filter_rates(trades(100, 40_000, 100), (4,), 1, unfinished)
    assert not rows[0]["same_answers"]


def test_trades_are_determined_by_their_seed() -> None:
    first, again, other = trades(50, 20_000, 30), trades(50, 20_000, 30), trades(50, 20_000, 30, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.keys, other.keys)
    assert len(first.weights) == 0 and trades(50, 20_000, 30, weighted=True).weights.min() >= 100


def test_trades_are_a_skewed_day() -> None:
    trace = trades(50, 200_000, 500)
    assert trace.before == 200_000 * max(SPANS) // DAY and len(trace.spans) == len(trace.thresholds) == 500
    assert (np.diff(trace.times) >= 0).all() and set(trace.spans.tolist()) == set(SPANS)
    shares = np.sort(np.bincount(trace.keys, minlength=50))[::-1] / len(trace.keys)
    harmonic = sum(1 / rank for rank in range(1, 51))
    assert shares[0] == pytest.approx(1 / harmonic, rel=0.05) and shares[9] == pytest.approx(0.1 / harmonic, rel=0.1)
    # the threshold of a span is that of so many symbols when the look-ups began
    now = int(trace.times[trace.before - 1])
    for span, v in zip(trace.spans.tolist(), trace.thresholds.tolist(), strict=True):
        begin = int(np.searchsorted(trace.times, now - span, side="right"))
        counts = np.bincount(trace.keys[begin : trace.before], minlength=50)
        assert np.count_nonzero(counts > v) <= round(50 * SELECTIVITY) <= np.count_nonzero(counts >= v) - 1
