"""The audit's sample: what is drawn how often is what is declared, and every stratum that exists is drawn."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from optimizer.workload.event_patterns import Pattern
from optimizer.workload.values import ACQ, LONG, STRING, Calendar, Output, Window
from spark_jobs.audit.checks import recompute, staged_answers
from spark_jobs.audit.checks.recompute import Drawn, drawn
from spark_jobs.audit.checks.sampling import (
    EMPTY,
    LONGEST_AGO,
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
)
from spark_jobs.audit.checks.staged_answers import Staged, units_of
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.streams.sources.splits import Split
from tests.sizes import examples
from tests.spark_jobs.audit.answer_rows import BEGIN, HOUR, NOON, QUERY, answer, written

SEEDS = 2000


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


def window_chances(units: Units, strata: Mapping[str, float], draws: int) -> NDArray[np.float64]:
    """The probability (n,) of each window in :func:`drawn_windows`, over both random numbers."""
    count = len(units.starts)
    spans = [list[tuple[float, float]]() for _ in range(count)]
    answered = units.answered
    for place, number in enumerate(answered.tolist()):
        for draw in range(draws):
            spans[number].append((place / len(answered) - draw / draws, (place + 1) / len(answered) - draw / draws))
    if not strata:
        return np.array([covered_length(each) for each in spans])
    chances = np.zeros(count)
    for name, chance in strata.items():
        numbers = units.of(name)
        own = dict(zip(numbers.tolist(), range(len(numbers)), strict=True))
        for number in range(count):
            more = [(own[number] / len(own), (own[number] + 1) / len(own))] if number in own else []
            chances[number] += chance * covered_length([*spans[number], *more])
    return chances


def covered_length(spans: Sequence[tuple[float, float]]) -> float:
    """How much of the circle [0, 1) some arcs cover together."""
    pieces = list[tuple[float, float]]()
    for low, high in spans:
        if high - low >= 1:
            return 1.0
        low, high = low % 1.0, low % 1.0 + (high - low)
        pieces += [(low, min(high, 1.0))] + ([(0.0, high - 1.0)] if high > 1 else [])
    covered, reached = 0.0, 0.0
    for low, high in sorted(pieces):
        covered += max(0.0, high - max(low, reached))
        reached = max(reached, high)
    return covered


def limit(freedom: int) -> float:
    """What chi-square with so many degrees of freedom exceeds about once in 100,000 times (Wilson and Hilferty)."""
    return freedom * (1 - 2 / (9 * freedom) + 4.3 * sqrt(2 / (9 * freedom))) ** 3 if freedom else 0.0


@settings(max_examples=examples(8), deadline=None)
@given(st.data())
def test_windows_are_drawn_as_often_as_is_declared(data: st.DataObject) -> None:
    size, empty = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 4))
    numbers = st.lists(st.integers(0, max(size - 1, 0)), unique=True, max_size=size)
    members = {name: data.draw(numbers) if size else [] for name in ("day", "file", "null")}
    query_units = units(size, empty, members)
    strata, draws = stratum_chances(query_units, Past()), data.draw(st.integers(1, 3))
    chances = window_chances(query_units, strata, draws)
    chance, counts = random.Random(data.draw(st.integers(0, 99))), Counter[int]()
    for _ in range(SEEDS):
        drawn = drawn_windows(query_units, strata, draws, chance.random(), chance.random())
        assert len(drawn) == len(set(drawn))
        counts.update(drawn)
    assert off(counts, chances.tolist(), SEEDS) <= limit(size + empty)
    # nothing that has an answer is out of reach, and whatever the stratum, all answered windows are equally likely
    assert all(chances[number] > 0 for number in range(size))
    plain = window_chances(query_units, {}, 1)[:size]
    assert np.allclose(plain, 1 / max(size, 1))


@settings(max_examples=examples(8), deadline=None)
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
        drawn = systematic(chances, chance.random())
        assert abs(len(drawn) - chances.sum()) < 1 + 1e-9
        counts.update(drawn)
    assert off(counts, np.minimum(chances, 1).tolist(), SEEDS) <= limit(len(queries))


def test_every_stratum_that_exists_is_drawn() -> None:
    """Also a rare one: within as many runs as there are strata, whatever the seed."""
    query_units = units(
        200, 3, {"day": [7], "file": [7, 8], "interval": range(5), "null": [199], "repaired": range(200)}
    )
    for seed in range(50):
        chance, audits, seen = random.Random(seed), list[set[str]](), Counter[str]()
        for _ in range(3 * len(STRATA)):
            past = Past.of(audits)
            strata = stratum_chances(query_units, past)
            numbers = drawn_windows(query_units, strata, 1, chance.random(), chance.random())
            labels = {label for number in numbers for label in query_units.labels(number)}
            audits.insert(0, {f"stratum q {label}" for label in labels})
            seen.update(labels)
        assert set(seen) == set(STRATA)


def test_what_was_never_audited_comes_first_and_everything_in_turn() -> None:
    queries = [replace(QUERY, name=f"q{number}") for number in range(40)]
    audits, seen = list[set[str]](), list[str]()
    chance = random.Random(1)
    for _ in range(8):
        weights = [query_weight(query, Past.of(audits)) for query in queries]
        drawn = systematic(query_chances(weights, [1.0] * 40, 8.0), chance.random())
        audits.insert(0, {f"query q{number}" for number in drawn} | {"kind range"})
        seen += [queries[number].name for number in drawn]
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


# ------------------------------------------------------------------------------------------- of staged answers
AGO = replace(QUERY, name="ago", window=Window(2 * HOUR, HOUR, ago=HOUR))
DAYS = Window(24 * HOUR, HOUR)


def staged_file(folder: Path, hours: int, queries: Sequence[ACQ], symbols: Sequence[str | None]) -> list[str]:
    """Answers of hourly windows of some queries and groups, from the noon of ``test_quality`` on."""
    rows = []
    for query in queries:
        for symbol in symbols:
            for hour in range(1, hours + 1):
                end = NOON + timedelta(hours=hour)
                content = end - timedelta(microseconds=query.window.ago)
                start = content - timedelta(microseconds=query.window.range)
                moments = {"instant": end, "window_end": content, "window_start": start}
                rows.append(answer(0, symbol, query=query.name, **moments))
    return [written(folder, rows)]


def sampled(staged: list[str], queries: Sequence[ACQ], hours: int, rows: int, seed: str, past: Past) -> list[Drawn]:
    """The sample of a run over some hours, of files of six hours with so many events each."""
    files = [
        Split(str(at), "", begin=BEGIN + 6 * at * HOUR, end=BEGIN + 6 * (at + 1) * HOUR, rows=rows)
        for at in range(-4, 4)
    ]
    return drawn(Staged(staged), queries, {"trades": files}, BEGIN, {"trades": BEGIN + hours * HOUR}, seed, past)


def test_strata_are_those_that_windows_lie_in(tmp_path: Path) -> None:
    staged = staged_file(tmp_path, 20, [QUERY], ["A", None])
    edges = {"trades": [Split("a", "", begin=BEGIN, end=BEGIN + 6 * HOUR, rows=1)]}
    units = units_of(Staged(staged), [QUERY], edges, BEGIN, {"trades": BEGIN + 22 * HOUR}, Past(repaired=True))["q"]
    ends = {name: ((units.ends[mask] - BEGIN) // HOUR).tolist() for name, mask in units.strata.items()}
    # windows of two hours that end from 13:00 on; a file ends at 18:00
    assert ends == {
        "day": [13],
        "file": [1, 7],
        "interval": [1],
        "repaired": list(range(1, 21)),
        "null": list(range(1, 21)),
        EMPTY: [21, 22],
    }
    assert units.answers.tolist() == [2] * 20 + [0, 0]


def test_the_sample_holds_every_stratum_and_is_the_same_for_one_seed(tmp_path: Path) -> None:
    queries = [QUERY, AGO, replace(QUERY, name="long", window=DAYS)]
    staged = staged_file(tmp_path, 20, queries, ["A", None])
    audits, seen = list[set[str]](), set[str]()
    for run in range(12):
        past = Past.of(audits)
        samples = sampled(staged, queries, 22, 1000, f"run {run}", past)
        again = sampled(staged, queries, 22, 1000, f"run {run}", past)
        assert [each[1:] for each in samples] == [each[1:] for each in again]
        labels = {label for each in samples for label in each.labels}
        audits.insert(0, labels)
        seen |= labels
    strata = {label.split(" ")[-1] for label in seen if label.startswith("stratum")}
    assert strata == {"day", "file", "interval", "null", EMPTY}
    assert {f"query {query.name}" for query in queries} | {"kind ago", "kind range"} <= seen


def test_what_is_recomputed_is_bounded_by_what_the_run_costs(tmp_path: Path) -> None:
    queries = [replace(QUERY, name=f"q{number}") for number in range(200)]
    staged = staged_file(tmp_path, 2, queries, ["A"])
    small = [len(sampled(staged, queries, 2, 100, str(seed), Past())) for seed in range(5)]
    assert all(15 <= count <= 60 for count in small)
    # windows of millions of events are restricted to some groups, and fewer queries are drawn
    large = [sampled(staged, queries, 2, 10**7, str(seed), Past()) for seed in range(5)]
    assert all(each.buckets is not None and len(each.buckets) < 10 for sample in large for each in sample)
    assert all(1 <= len(sample) <= 60 for sample in large)


def test_queries_of_a_large_run_lie_in_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "SHARE", 0.5)
    queries = [replace(QUERY, name=f"q{number}") for number in range(100)]
    staged = staged_file(tmp_path, 20, queries, ["A"])
    samples = sampled(staged, queries, 20, 10**6, "f", Past())
    alone = sampled(staged, queries, 20, 1000, "f", Past())
    assert len(samples) > 1 and len(windows_of(samples)) <= 2 < 8 < len(windows_of(alone))


@pytest.mark.parametrize("files", [1, 3])
def test_staged_answers_that_tasks_read_are_those_read_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    queries = [QUERY, AGO, replace(QUERY, name="long", window=DAYS)]
    paths = []
    for number, symbols in enumerate([["A", None], ["B"], ["C", "D"]][:files]):
        (tmp_path / str(number)).mkdir()
        paths += staged_file(tmp_path / str(number), 20, queries, symbols)
    readings = []
    for workers, most in ((None, 10**6), (LocalWorkers(), -1)):
        monkeypatch.setattr(staged_answers, "KEPT_ROWS", most)
        staged = Staged(paths, workers=workers)
        splits = {"trades": [Split("a", "", begin=BEGIN, end=BEGIN + 6 * HOUR, rows=1)]}
        units = units_of(staged, queries[:2], splits, BEGIN, {"trades": BEGIN + 22 * HOUR}, Past())
        rows = staged.rows({"ago": [BEGIN + 3 * HOUR], QUERY.name: [BEGIN + 4 * HOUR, BEGIN + 5 * HOUR]})
        windows = {
            name: [str(part) for part in (each.starts, each.ends, each.answers, each.strata)]
            for name, each in units.items()
        }
        readings.append((staged.counts(), rows, windows))
    assert readings[0] == readings[1] and len(readings[0][1]) == 3 * sum((2, 1, 2)[:files])


def windows_of(sample: Sequence[Drawn]) -> set[int]:
    """Where the windows with answers of a sample start."""
    return {int(each.units.starts[at]) for each in sample for at in each.numbers if each.units.answers[at]}


# -------------------------------------------------------------------------------------------- boundaries
def test_a_label_weighs_more_the_longer_ago_it_was_audited() -> None:
    past = Past.of([["a"], [], ["a", "b"], *([[]] * 20), ["c"]])
    assert [past.weight(label) for label in "abcd"] == [1, 3, LONGEST_AGO, NEVER]
    ages = Past({"x": LONGEST_AGO - 2, "y": LONGEST_AGO - 1, "z": LONGEST_AGO})
    assert [ages.weight(label) for label in "xyz"] == [LONGEST_AGO - 1, LONGEST_AGO, LONGEST_AGO]


@pytest.mark.parametrize(
    ("weights", "costs", "budget", "chances"),
    [
        ([], [], 1, []),
        ([1, 1], [1, 1], 1, [0.5, 0.5]),
        ([1, 3], [1, 1], 1, [0.25, 0.75]),
        # a certain one leaves the rest of the budget to the others
        ([1, 1, 8], [1, 1, 1], 2, [0.5, 0.5, 1]),
        ([1, 1], [1, 1], 2, [1, 1]),
        ([1, 1], [1, 1], 9, [1, 1]),
        # less than one query: one, whatever it costs
        ([1, 1], [1, 1], 0.5, [0.5, 0.5]),
        # by the square root of the cost
        ([1, 1], [1, 4], 3, [1, 0.5]),
    ],
)
def test_chances_of_queries(weights: list[float], costs: list[float], budget: float, chances: list[float]) -> None:
    assert query_chances(weights, costs, budget).tolist() == pytest.approx(chances)


@pytest.mark.parametrize(
    ("start", "numbers"), [(0.0, [0, 2]), (0.25, [0, 2]), (0.49, [0, 2]), (0.5, [1, 3]), (0.75, [1, 3]), (0.99, [1, 3])]
)
def test_the_comb_meets_each_query_with_its_chance(start: float, numbers: list[int]) -> None:
    assert systematic(np.full(4, 0.5), start) == numbers


def test_draws_are_spread_evenly_and_the_stratum_gets_one_more() -> None:
    query_units = units(4, 1, {"day": [1, 3]})
    strata = {"day": 0.5, EMPTY: 0.5}
    assert drawn_windows(query_units, {}, 2, 0.0, 0.0) == [0, 2]
    assert drawn_windows(query_units, {}, 2, 0.25, 0.0) == [1, 3]
    assert drawn_windows(query_units, {}, 1, 0.99, 0.0) == [3]
    assert drawn_windows(query_units, strata, 1, 0.0, 0.49) == [0, 1]
    assert drawn_windows(query_units, strata, 1, 0.5, 0.49) == [2, 3]
    assert drawn_windows(query_units, strata, 1, 0.0, 0.5) == [0, 4]
    assert drawn_windows(units(0, 0, {}), {}, 2, 0.0, 0.0) == []
    assert [query_units.labels(number) for number in (0, 1, 4)] == [[], ["day"], [EMPTY]]


def test_few_events_are_those_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [replace(QUERY, name=f"q{number}") for number in range(20)]
    staged = staged_file(tmp_path, 18, queries, ["A"])
    samples = []
    # three files of 100 events each
    for most in (299, 300, 301):
        monkeypatch.setattr(recompute, "FEW_EVENTS", most)
        sample = sampled(staged, queries, 18, 100, "f", Past())
        samples.append([(each.units.query.name, each.numbers) for each in sample])
    assert samples[0] != samples[1] == samples[2]


def test_spans_that_touch_are_merged() -> None:
    spans = [(5, 9), (0, 2), (2, 3), (5, 6), (10, 11)]
    assert recompute.merged_spans(spans) == [(0, 3), (5, 9), (10, 11)] and recompute.merged_spans([]) == []
