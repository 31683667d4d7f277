"""Event sequences: every executor and measure against matches enumerated one by one, and counts against dynamic
programming in Python's integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.sequences import measuring, passes
from optimizer.sequences.answering import answers
from optimizer.sequences.events import Events
from optimizer.sequences.matches import Answers, Integers, Measure, Numbers, SequenceQuery
from optimizer.sequences.passes import EXECUTORS
from tests.sizes import examples

MOST = 10**38 - 1


class Event(NamedTuple):
    key: int
    time: int
    type: int
    whole: int | None = None
    double: float | None = None


def compact(events: list[Event]) -> Events:
    columns = list(zip(*events, strict=True)) or [()] * 5
    integers, double = ([0 if value is None else value for value in column] for column in columns[3:])
    known = [np.array([value is not None for value in column], dtype=bool) for column in columns[3:]]
    return Events.of(
        np.array(columns[0], dtype=np.int64),
        np.array(columns[1], dtype=np.int64),
        np.array(columns[2], dtype=np.int32),
        {"whole": (np.array(integers, dtype=np.int64), known[0]), "double": (np.array(double, dtype=float), known[1])},
    )


# ------------------------------------------------------------------------------------------- reference
def windows(events: list[Event], query: SequenceQuery) -> Iterator[tuple[int, int, list[Event]]]:
    """Key, start and events by time, of every window that has an event."""
    for key in sorted({event.key for event in events}):
        key_events = sorted((event for event in events if event.key == key), key=lambda event: event.time)
        first, last = (key_events[0].time - query.range) // query.slide + 1, key_events[-1].time // query.slide
        for start in range(first * query.slide, last * query.slide + 1, query.slide):
            if inside := [event for event in key_events if start <= event.time < start + query.range]:
                yield key, start, inside


def matches(events: list[Event], query: SequenceQuery) -> Iterator[tuple[Event, ...]]:
    for match in orders(events, query.pattern):
        pairs = zip(query.absent, itertools.pairwise(match), strict=False)
        if not any(a.time < b.time < c.time for absent, (a, c) in pairs for b in events if b.type in absent):
            yield match


def orders(events: list[Event], pattern: tuple[int, ...], after: int | None = None) -> Iterator[tuple[Event, ...]]:
    if not pattern:
        yield ()
        return
    for event in events:
        if event.type == pattern[0] and (after is None or event.time > after):
            for later_events in orders(events, pattern[1:], event.time):
                yield (event, *later_events)


def order(value: float) -> tuple[bool, float]:
    """Spark's order of doubles; zeros alike."""
    return math.isnan(value), 0.0 if math.isnan(value) else value


def aggregate(found: list[tuple[Event, ...]], measure: Measure) -> Any:
    values = [getattr(event, measure.attribute) for match in found for event in match if event.type == measure.type]
    values = [value for value in values if value is not None]
    if measure.function == "known":
        return len(values)
    if measure.function == "sum":
        return sum(values) if measure.attribute == "whole" else values
    return (max if measure.function == "max" else min)(values, key=order) if values else None


def enumerated(events: list[Event], query: SequenceQuery) -> dict[tuple[int, int], list[Any]]:
    out = {}
    for key, start, inside in windows(events, query):
        if sequences := list(matches(inside, query)):
            out[key, start] = [len(sequences), *(aggregate(sequences, measure) for measure in query.measures)]
    return out


def counted(events: list[Event], query: SequenceQuery) -> dict[tuple[int, int], int]:
    """Counts by dynamic programming, one timestamp after the other."""
    out = {}
    for key, start, inside in windows(events, query):
        counts = [1] + [0] * len(query.pattern)
        for _, group in itertools.groupby(inside, key=lambda event: event.time):
            types = [event.type for event in group]
            for j in range(len(query.pattern), 0, -1):
                before = 0 if query.absent and set(query.absent[j - 1]) & set(types) else counts[j]
                counts[j] = before + types.count(query.pattern[j - 1]) * counts[j - 1]
        if counts[-1]:
            out[key, start] = counts[-1]
    return out


# ---------------------------------------------------------------------------------------------- lockstep
def table(found: Answers) -> dict[tuple[int, int], list[Any]]:
    columns: list[list[Any]] = [found.count.integers()]
    for column in found.measures:
        if isinstance(column, Integers):
            columns.append(column.integers())
        else:
            pairs = zip(column.values.tolist(), column.known.tolist(), strict=True)
            columns.append([value if known else None for value, known in pairs])
    keys = list(zip(found.key.tolist(), found.start.tolist(), strict=True))
    assert keys == sorted(set(keys))
    return dict(zip(keys, map(list, zip(*columns, strict=True)), strict=True))


def same(ours: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        finite = [value for value in expected if math.isfinite(value)]
        if len(finite) < len(expected):
            return same(ours, sum(value for value in expected if not math.isfinite(value)))
        # design.md, section 6
        return abs(ours - math.fsum(finite)) <= 4 * 2.0**-52 * math.fsum(map(abs, finite))
    if isinstance(expected, float) and math.isnan(expected):
        return math.isnan(ours)
    return bool(ours == expected)


def check(events: list[Event], asked: list[SequenceQuery], executor: str | None = None) -> None:
    for query, query_answers in zip(asked, answers(compact(events), asked, executor), strict=True):
        expected, ours = enumerated(events, query), table(query_answers)
        assert ours.keys() == expected.keys()
        for place, values in expected.items():
            assert all(map(same, ours[place], values)), (query, place, ours[place], values)


WHOLES = st.none() | st.integers(-5, 5) | st.sampled_from([2**63 - 1, -(2**63), 2**62])
DOUBLES = st.none() | st.integers(-9, 9).map(lambda n: n / 7) | st.sampled_from([math.inf, -math.inf, math.nan, 1e300])
EVENT = st.builds(Event, st.integers(-1, 1), st.integers(-12, 12), st.integers(0, 2), WHOLES, DOUBLES)
MEASURE = st.builds(Measure, st.sampled_from(passes.FUNCTIONS), st.sampled_from(["whole", "double"]), st.integers(0, 3))
QUERY = st.builds(
    SequenceQuery,
    st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple),
    st.integers(1, 20),
    st.sampled_from([1, 2, 3, 4, 6, 7, 25]),
    st.lists(MEASURE, max_size=3).map(tuple),
)
GAPS = st.lists(st.sampled_from([(), (), (0,), (1,), (2,), (0, 2), (3, 1)]), min_size=3, max_size=3)
ABSENT = st.builds(lambda query, gaps: replace(query, absent=(*gaps[: len(query.pattern) - 1], ())), QUERY, GAPS).map(
    lambda query: query if any(query.absent) else replace(query, absent=())
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(EVENT, max_size=14), st.lists(QUERY, min_size=1, max_size=4))
def test_measures_are_those_of_all_matches(events: list[Event], asked: list[SequenceQuery]) -> None:
    check(events, asked)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(EVENT, max_size=14), st.lists(ABSENT, min_size=1, max_size=4), st.sampled_from([None, *EXECUTORS]))
def test_events_that_are_absent_end_matches(events: list[Event], asked: list[SequenceQuery], executor: str) -> None:
    """Whatever else is asked, and of each prefix as of a pattern."""
    prefixes = [query.first(steps) for query in asked for steps in range(1, len(query.pattern) + 1)]
    check(events, [*asked, *prefixes], executor)


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 1 << 32), st.integers(2, 45), st.integers(0, 44), st.integers(20, 400))
def test_counts_of_any_size_end_where_an_absent_event_comes(seed: int, length: int, gap: int, range_: int) -> None:
    chance = np.random.default_rng(seed)
    types = chance.choice(3, 300, p=[0.6, 0.39, 0.01]).tolist()
    rows = [Event(0, time // 2, type_) for time, type_ in enumerate(types)]
    absent = tuple((2,) if place == gap % (length - 1) else () for place in range(length))
    query = SequenceQuery(tuple(chance.integers(0, 2, length).tolist()), range_, 50, (), absent)
    (query_answers,) = answers(compact(rows), [query])
    expected = {place: [count if count <= MOST else None] for place, count in counted(rows, query).items()}
    assert table(query_answers) == expected


SIZES = st.sampled_from([1, 1, 1, 10**5, 2**40])
TAME = st.builds(
    Event,
    st.integers(-1, 1),
    st.integers(-12, 12),
    st.integers(0, 2),
    st.builds(lambda n, size: n * size, st.integers(-3, 9), SIZES) | st.none(),
    st.builds(lambda n, parts: n / parts, st.integers(-9, 60), st.sampled_from([4, 7, 100, 2**20])) | st.none(),
)
FEW_PLACES = QUERY.filter(lambda query: max(map(query.pattern.count, query.pattern)) <= measuring.MOST_PLACES)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(TAME, max_size=14),
    st.lists(FEW_PLACES, min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from((None, *passes.EXECUTORS)),
    st.sampled_from([0, measuring.MARKED]),
)
def test_measures_of_ordinary_values_take_no_pass_of_their_own(
    events: list[Event], asked: list[SequenceQuery], positive: bool, executor: str | None, marked: int
) -> None:
    """Sums are counts of weighted events, and extremes are those of a stretch of events: positive or not, with nulls or
    without, whole or not, compacted or not, one for each of several queries, by every executor, with marks at the
    slides or without."""
    if positive:
        events = [event._replace(whole=abs(event.whole or 0) + 1, double=abs(event.double or 0.25)) for event in events]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes.Pass, "measured", None)
        patch.setattr(measuring, "MARKED", marked)
        check(events, asked, executor)


@pytest.mark.parametrize("marked", [0, measuring.MARKED])
def test_extremes_are_of_events_that_take_part(monkeypatch: pytest.MonkeyPatch, marked: int) -> None:
    """None before the earliest match of what comes before, none behind the latest of what comes behind."""
    monkeypatch.setattr(passes.Pass, "measured", None)
    monkeypatch.setattr(measuring, "MARKED", marked)
    columns = ((0, 1, 99), (1, 0, 5), (2, 1, 7), (3, 1, 8), (4, 2, 1), (5, 1, -50), (8, 2, 900), (9, 1, 70), (9, 2, 3))
    rows = [Event(0, time, type_, integer, integer / 8) for time, type_, integer in columns]
    for slide in (1, 2, 8):
        measures = [tuple(Measure(of, "whole", type_) for of in ("min", "max")) for type_ in range(3)]
        check(rows, [SequenceQuery((0, 1, 2), 8, slide, each) for each in measures])
    (query_answers,) = answers(compact(rows), [SequenceQuery((0, 1, 2), 8, 8, measures[1])])
    assert [column.values.tolist() for column in query_answers.measures if isinstance(column, Numbers)] == [[7], [8]]


@settings(max_examples=examples(40), deadline=None)
@given(
    st.integers(0, 1 << 32),
    st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple),
    st.integers(1, 30),
    st.sampled_from([1, 3, 7, 25]),
)
def test_marks_only_say_where_to_begin_to_look(seed: int, pattern: tuple[int, ...], range_: int, slide: int) -> None:
    drawn = np.random.default_rng(seed)
    numbers = (drawn.integers(*bounds, 120).tolist() for bounds in ((0, 2), (-40, 40), (0, 3), (-99, 99)))
    events = compact([Event(*row) for row in zip(*numbers, strict=True)])
    measures = tuple(Measure(of, "whole", type_) for of in ("min", "max") for type_ in set(pattern))
    tables = []
    for marked in (0, 1 << 40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(measuring, "MARKED", marked)
            tables.append(table(answers(events, [SequenceQuery(pattern, range_, slide, measures)])[0]))
    assert tables[0] == tables[1]


def test_sums_of_a_pass_of_their_own_are_exact_in_128_bits() -> None:
    """A type at forty places takes a pass of its own, whose doubles do not tell a sum of 119 bits."""
    rows = [Event(0, time, 0, 2**20 + time) for time in range(100)]
    query = SequenceQuery((0,) * 40, 100, 100, (Measure("sum", "whole", 0), Measure("known", "whole", 0)))
    (query_answers,) = answers(compact(rows), [query])
    each = math.comb(99, 39)
    assert table(query_answers) == {
        (0, 0): [math.comb(100, 40), each * sum(2**20 + time for time in range(100)), each * 100]
    }


def test_small_negative_doubles_beside_large_ones_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes.Pass, "measured", None)
    values = [-1e-5 / 3, 60 / 7, -60 / 7, 1e-5 / 3]
    rows = [Event(key, 0, 0, None, value) for key, value in enumerate(values)]
    (query_answers,) = answers(compact(rows), [SequenceQuery((0,), 1, 1, (Measure("sum", "double", 0),))])
    (sums,) = query_answers.measures
    assert isinstance(sums, Numbers) and sums.values.tolist() == values
