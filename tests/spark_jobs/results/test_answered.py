"""Answers and windows that are counted as they are written, however they are stored meanwhile."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from spark_jobs.results import revisions
from spark_jobs.results.revisions import Answered


def answered(codes: list[int], instants: list[int], positions: list[int] | None = None) -> Answered:
    """Answers of the queries ``q`` (0) and ``r`` (1)."""
    counted = Answered()
    places = None if positions is None else np.array(positions, dtype=np.int64)
    counted.add(["q", "r"], np.array(codes, dtype=np.int32), np.array(instants, dtype=np.int64), places)
    return counted


@pytest.mark.parametrize(("name", "value"), [("MOST_PLACES", 1 << 24), ("MOST_PLACES", 0), ("BITS_A_WINDOW", 0)])
@pytest.mark.parametrize(
    ("codes", "instants", "positions", "answers", "windows"),
    [
        ([], [], None, {}, {}),
        ([0], [10], None, {"q": 1}, {"q": 1}),
        ([1], [-10], None, {"r": 1}, {"r": 1}),
        ([0, 0, 0, 1], [10, 10, 30, 30], None, {"q": 3, "r": 1}, {"q": 2, "r": 1}),
        ([1, 0, 1], [20, 10, 35], None, {"q": 1, "r": 2}, {"q": 1, "r": 2}),
        ([0, 0, 0], [10, 10, 10], [1, 2, 2], {"q": 3}, {"q": 2}),
    ],
)
def test_a_window_counts_once_and_an_answer_each_time(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: int,
    codes: list[int],
    instants: list[int],
    positions: list[int] | None,
    answers: dict[str, int],
    windows: dict[str, int],
) -> None:
    monkeypatch.setattr(revisions, name, value)
    counted = answered(codes, instants, positions)
    assert (counted.answers, counted.windows()) == (Counter(answers), Counter(windows))


def test_windows_of_two_tasks_are_joined() -> None:
    counted = answered([0, 0], [10, 20])
    counted.join(answered([0, 0], [10, 20]))
    assert (counted.answers, counted.windows()) == (Counter(q=4), Counter(q=2))
    # another grid, with one window more
    counted.join(answered([0, 1], [20, 30]))
    assert (counted.answers, counted.windows()) == (Counter(q=5, r=1), Counter(q=2, r=1))
