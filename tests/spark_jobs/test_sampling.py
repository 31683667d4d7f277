"""The audit's sample: what is drawn how often is what is declared, and every stratum that exists is drawn."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.workload.values import LONG, STRING, Calendar, Output, Pattern, Window
from spark_jobs.checks.sampling import (
    EMPTY,
    NEVER,
    STRATA,
    Past,
    Units,
    bucket_count,
    drawn_windows,
    kinds_of,
    query_chances,
    query_weight,
    stratum_chances,
    systematic,
    window_chances,
)
from tests.sizes import examples
from tests.spark_jobs.test_quality import HOUR, QUERY

SEEDS = 4000


def units(size: int, empty: int, strata: dict[str, Sequence[int]]) -> Units:
    """Hourly windows with an answer each, then windows without; ``strata``: the numbers of the windows in each."""
    starts = np.arange(size + empty, dtype=np.int64) * HOUR
    masks = {name: np.isin(np.arange(size + empty), list(numbers)) for name, numbers in strata.items()}
    masks[EMPTY] = np.arange(size + empty) >= size
    answers = np.where(masks[EMPTY], 0, 1).astype(np.int64)
    return Units(QUERY, starts, starts + HOUR, answers, masks)


def off(counts: Counter[int], chances: Sequence[float], trials: int) -> float:
    """The sum of squared standardized deviations, over what is neither certain nor impossible."""
    total = 0.0
    for number, chance in enumerate(chances):
        if chance < 1e-12 or chance > 1 - 1e-12:
            assert counts[number] == (trials if chance > 0.5 else 0)
            continue
        total += (counts[number] - trials * chance) ** 2 / (trials * chance * (1 - chance))
    return total


def limit(freedom: int) -> float:
    """What chi-square with so many degrees of freedom exceeds about once in 100,000 times (Wilson and Hilferty)."""
    return freedom * (1 - 2 / (9 * freedom) + 4.3 * sqrt(2 / (9 * freedom))) ** 3 if freedom else 0.0


@settings(max_examples=examples(8), deadline=None)
@given(st.data())
def test_windows_are_drawn_as_often_as_is_declared(data: st.DataObject) -> None:
    size, empty = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 4))
    numbers = st.lists(st.integers(0, max(size - 1, 0)), unique=True, max_size=size)
    drawn = {name: data.draw(numbers) if size else [] for name in ("day", "file", "null")}
    mine = units(size, empty, drawn)
    strata, draws = stratum_chances(mine, Past()), data.draw(st.integers(1, 3))
    chances = window_chances(mine, strata, draws)
    chance, counts = random.Random(data.draw(st.integers(0, 99))), Counter[int]()
    for _ in range(SEEDS):
        found = drawn_windows(mine, strata, draws, chance.random(), chance.random())
        assert len(found) == len(set(found))
        counts.update(found)
    assert off(counts, chances.tolist(), SEEDS) <= limit(size + empty)
    # nothing that has an answer is out of reach, and whatever the stratum, all answered windows are equally likely
    assert all(chances[number] > 0 for number in range(size))
    plain = window_chances(mine, {}, 1)[:size]
    assert np.allclose(plain, 1 / max(size, 1))


@settings(max_examples=examples(12), deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.floats(1e-4, 10)), min_size=1, max_size=30),
    st.floats(1e-3, 50),
    st.integers(0, 99),
)
def test_queries_are_drawn_as_often_as_is_declared(
    queries: list[tuple[float, float]], budget: float, seed: int
) -> None:
    weights, costs = zip(*queries, strict=True)
    chances = query_chances(weights, costs, budget)
    assert ((chances > 0) & (chances <= 1 + 1e-9)).all() or chances.sum() >= 1
    assert chances.sum() >= 1 - 1e-9
    # what it costs on average is the budget, unless that is less than one query or more than all
    if chances.sum() > 1 + 1e-6 and not (chances >= 1).all():
        assert float(chances @ np.array(costs)) == pytest.approx(budget, rel=1e-6)
    chance, counts = random.Random(seed), Counter[int]()
    for _ in range(SEEDS):
        found = systematic(chances, chance.random())
        assert abs(len(found) - chances.sum()) < 1 + 1e-9
        counts.update(found)
    assert off(counts, np.minimum(chances, 1).tolist(), SEEDS) <= limit(len(queries))


def test_every_stratum_that_exists_is_drawn() -> None:
    """Also a rare one: within as many runs as there are strata, whatever the seed."""
    mine = units(200, 3, {"day": [7], "file": [7, 8], "interval": range(5), "null": [199], "repaired": range(200)})
    for seed in range(50):
        chance, audits, seen = random.Random(seed), list[set[str]](), Counter[str]()
        for _ in range(3 * len(STRATA)):
            past = Past.of(audits)
            strata = stratum_chances(mine, past)
            numbers = drawn_windows(mine, strata, 1, chance.random(), chance.random())
            labels = {label for number in numbers for label in mine.labels(number)}
            audits.insert(0, {f"stratum q {label}" for label in labels})
            seen.update(labels)
        assert set(seen) == set(STRATA)


def test_what_was_never_audited_comes_first_and_everything_in_turn() -> None:
    queries = [replace(QUERY, name=f"q{number}") for number in range(40)]
    audits, seen = list[set[str]](), list[str]()
    chance = random.Random(1)
    for _ in range(8):
        weights = [query_weight(query, Past.of(audits)) for query in queries]
        found = systematic(query_chances(weights, [1.0] * 40, 8.0), chance.random())
        audits.insert(0, {f"query q{number}" for number in found} | {"kind range"})
        seen += [queries[number].name for number in found]
    assert len(set(seen[: 5 * 8])) >= 38 and len(set(seen)) == 40
    past = Past.of([{"a"}, {"b"}, {"a", "b"}])
    assert (past.weight("a"), past.weight("b"), past.weight("c")) == (1, 2, NEVER)


def test_kinds_say_what_decides_an_answer() -> None:
    day = Calendar("Europe/Berlin", (1, "day"), (1, "day"))
    windows = {
        "range": QUERY.window,
        "ago": Window(2 * HOUR, HOUR, ago=HOUR),
        "rows": Window(10, 5, per=()),
        "cumulative": Window(24 * HOUR, HOUR, cumulative=True),
        "calendar": Window.of_calendar(day),
        "at most": Window(2 * HOUR, HOUR, at_most=2 * HOUR),
    }
    for kind, window in windows.items():
        assert kinds_of(replace(QUERY, window=window))[0] == kind
    assert kinds_of(QUERY)[1:] == ["range avg(double)", "range count()", "range max(double)", "range min(double)"]
    pattern = Pattern(("a", "b"), "symbol", ())
    counted = replace(QUERY, pattern=pattern, outputs=(Output("n", "count", None, None, LONG),))
    assert kinds_of(replace(counted, group_by=(("symbol", STRING),))) == ["sequence", "sequence count()"]


def test_groups_are_drawn_where_windows_hold_much() -> None:
    assert bucket_count(100, 100, 64) == 64 and bucket_count(0, 100, 64) == 64
    assert bucket_count(1000, 100, 64) == 6 and bucket_count(10**9, 100, 64) == 1
