"""The published ways to count event sequences against listing them, and the generated streams and patterns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optimizer.papers.evaluations.sequence_streams import SHARED, Stream, position_reports, purchases, routes, workload
from optimizer.papers.reference.a_seq import a_seq
from optimizer.papers.reference.sequence_runs import EXACT_BELOW, Counts, Run
from optimizer.papers.reference.sharing_candidates import Pattern
from optimizer.papers.reference.sharon import sharon
from optimizer.papers.reference.sharon_costs import SharonCosts
from optimizer.papers.reference.two_step import TooManySequences, two_step
from optimizer.sequences.events import Events
from tests.sizes import examples

TYPES = 3
Raw = list[tuple[int, int, int]]
Patterns = list[tuple[int, ...]]
Sharing = list[list[tuple[int, int]]]


def compact(raw: Raw) -> Events:
    """Events of (key, time, type)."""
    event_counts = sorted(Counter(raw).items())
    columns = np.array([[*event, count] for event, count in event_counts], np.int64).reshape(-1, 4).T
    key, time, type, count = (np.ascontiguousarray(column) for column in columns)
    return Events(key, time, type.astype(np.int32), count)


def listed(raw: Raw, pattern: Sequence[int], range_: int, slide: int) -> dict[tuple[int, int], int]:
    """Matches by (key, start of the window), one by one."""
    match_counts: Counter[tuple[int, int]] = Counter()

    def extend(key: int, begin: int, end: int, position: int) -> None:
        if position == len(pattern):
            for window in range((end - range_) // slide + 1, begin // slide + 1):
                match_counts[key, window * slide] += 1
            return
        for other, time, type in raw:
            if other == key and type == pattern[position] and (position == 0 or end < time):
                extend(key, begin if position else time, time, position + 1)

    for key in {key for key, _, _ in raw}:
        extend(key, 0, 0, 0)
    return dict(match_counts)


def told(answers: Counts) -> dict[tuple[int, int], int]:
    pairs = list(zip(answers.key.tolist(), answers.start.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    assert answers.magnitude.tolist() == answers.matches.tolist()  # small numbers
    return dict(zip(pairs, answers.matches.tolist(), strict=True))


def check(run: Run, raw: Raw, patterns: Patterns, range_: int, slide: int) -> None:
    assert len(run.answers) == len(patterns)
    for answers, pattern in zip(run.answers, patterns, strict=True):
        assert told(answers) == listed(raw, pattern, range_, slide)


events = st.tuples(st.sampled_from((0, 0, 0, 1)), st.integers(-5, 12), st.integers(0, TYPES - 1))
streams = st.lists(events, max_size=30)
pattern_lists = st.lists(st.lists(st.integers(0, TYPES - 1), min_size=1, max_size=5).map(tuple), min_size=1, max_size=4)


@st.composite
def cuts(draw: st.DrawFn, patterns: Patterns) -> Sharing:
    """Any spans of the patterns as shared segments: equal ones really are."""
    shared_spans = []
    for pattern in patterns:
        edges = sorted(draw(st.sets(st.integers(0, len(pattern)))))
        shared_spans.append([span for span in pairwise(edges) if draw(st.integers(0, 4))])
    return shared_spans


@settings(max_examples=examples(150), deadline=None)
@given(raw=streams, patterns=pattern_lists, range_=st.integers(1, 12), slide=st.integers(1, 8), pooled=st.booleans())
def test_a_seq_counts_what_listing_does(raw: Raw, patterns: Patterns, range_: int, slide: int, pooled: bool) -> None:
    check(a_seq(compact(raw), patterns, range_, slide, pooled), raw, patterns, range_, slide)


@settings(max_examples=examples(170), deadline=None)
@given(
    raw=streams,
    workload=pattern_lists.flatmap(lambda patterns: st.tuples(st.just(patterns), cuts(patterns))),
    range_=st.integers(1, 12),
    slide=st.integers(1, 8),
    pooled=st.booleans(),
)
# one window begins with the pane of both STARTs, one with the pane before
@example(raw=[(0, 6, 0), (0, 7, 1), (0, 8, 2)], workload=([(0, 1, 2)], [[(1, 3)]]), range_=10, slide=5, pooled=False)
def test_every_plan_of_sharon_counts_what_listing_does(
    raw: Raw, workload: tuple[Patterns, Sharing], range_: int, slide: int, pooled: bool
) -> None:
    patterns, sharing = workload
    check(sharon(compact(raw), patterns, sharing, range_, slide, pooled), raw, patterns, range_, slide)


@settings(max_examples=examples(100), deadline=None)
@given(
    raw=streams,
    workload=pattern_lists.flatmap(lambda patterns: st.tuples(st.just(patterns), cuts(patterns))),
    range_=st.integers(1, 12),
    slide=st.integers(1, 8),
)
def test_two_steps_count_what_listing_does(
    raw: Raw, workload: tuple[Patterns, Sharing], range_: int, slide: int
) -> None:
    patterns, sharing = workload
    compacted = compact(raw)
    check(two_step(compacted, patterns, range_, slide, 10**7), raw, patterns, range_, slide)
    check(two_step(compacted, patterns, range_, slide, 10**7, sharing), raw, patterns, range_, slide)


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_larger_streams_with_many_keys_and_plans_agree(seed: int, pooled: bool) -> None:
    """Enough for columns to be moved and for room to be made, more rows than fit at first."""
    rng = np.random.default_rng(seed)
    count = 6_000
    raw = list(
        zip(
            rng.integers(0, 4, count).tolist(),
            rng.integers(-2_000, 2_000, count).tolist(),
            rng.integers(0, 6, count).tolist(),
            strict=True,
        )
    )
    events, patterns = compact(raw), [(0, 1, 2, 3), (4, 1, 2, 5), (1, 2, 0, 4, 3), (3, 1, 2)]
    plan = [[(1, 3)], [(1, 3)], [(0, 2)], [(1, 3)]]
    ends = [[(2, 4)], [(2, 4)], [(0, 2), (2, 4)], [(0, 2)]]
    alone = a_seq(events, patterns, 170, 40, pooled).answers
    assert all(len(answers.key) > 300 for answers in alone)
    for sharing in (plan, ends):
        for unshared_answers, other in zip(
            alone, sharon(events, patterns, sharing, 170, 40, pooled).answers, strict=True
        ):
            assert all(np.array_equal(a, b) for a, b in zip(unshared_answers, other, strict=True))
    expected = [listed_by_prefix(raw, pattern, 170, 40) for pattern in patterns]
    assert [told(answers) for answers in alone] == expected


def listed_by_prefix(raw: Raw, pattern: Sequence[int], range_: int, slide: int) -> dict[tuple[int, int], int]:
    """As :func:`listed`, window by window, by counting prefixes."""
    match_counts = {}
    by_key: dict[int, list[tuple[int, int]]] = {}
    for key, time, type in sorted(raw):
        by_key.setdefault(key, []).append((time, type))
    for key, events in by_key.items():
        for window in range((events[0][0] - range_) // slide + 1, events[-1][0] // slide + 1):
            start, counts = window * slide, [1] + [0] * len(pattern)
            inside = [event for event in events if start <= event[0] < start + range_]
            for time in sorted({time for time, _ in inside}):
                types = Counter(type for at, type in inside if at == time)
                counts = [1] + [
                    counts[position + 1] + counts[position] * types[type] for position, type in enumerate(pattern)
                ]
            if counts[-1]:
                match_counts[key, start] = counts[-1]
    return match_counts


@pytest.mark.parametrize("pooled", [True, False])
def test_examples_of_the_paper(pooled: bool) -> None:
    """Examples 1 and 3 (Figures 6a and 7): b2 and a2 are no sequence, c3 has one (A, B) before it and c7 has five."""
    raw = [(0, time, "ABCD".index(type)) for type, time in zip("ABACBBDCD", (1, 2, 2, 3, 4, 5, 6, 7, 8), strict=True)]
    assert told(a_seq(compact(raw[:5]), [(0, 1)], 100, 100, pooled).answers[0]) == {(0, 0): 3}
    for spans in ([], [(0, 2)], [(2, 4)], [(0, 2), (2, 4)], [(1, 3)]):
        run = sharon(compact(raw), [(0, 1, 2, 3)], [spans], 100, 100, pooled)
        assert told(run.answers[0]) == {(0, 0): 7}


def test_equal_times_do_not_follow_one_another() -> None:
    raw = [(0, 5, 0), (0, 5, 1), (0, 6, 1), (0, 6, 0)]
    for run in (a_seq(compact(raw), [(0, 1)], 10, 10), two_step(compact(raw), [(0, 1)], 10, 10, 100)):
        assert told(run.answers[0]) == {(0, 0): 1}


def test_an_end_counts_only_in_windows_that_hold_its_start() -> None:
    """[0, 4) and [2, 6) hold START, [2, 6) and [4, 8) hold END."""
    assert told(a_seq(compact([(0, 3, 0), (0, 5, 1)]), [(0, 1)], 4, 2).answers[0]) == {(0, 2): 1}


def test_starts_of_one_pane_share_counts() -> None:
    raw = [(0, time, time % 2) for time in range(200)]
    pooled, each = (a_seq(compact(raw), [(0, 1)], 100, 50, kind) for kind in (True, False))
    assert told(pooled.answers[0]) == told(each.answers[0])
    assert pooled.peak == 2 * 2 and each.peak == 2 * 50
    assert each.additions > 15 * pooled.additions


def test_a_shared_segment_is_counted_once() -> None:
    stream = purchases(4_000, items=20, users=2)
    events = events_of(stream)
    patterns = workload(30, 8, "suffix", stream)
    alone, shared = (sharon(events, patterns, [spans] * 30, 1, 1) for spans in ([], [(4, 8)]))
    assert shared.additions < 0.7 * alone.additions


@pytest.mark.parametrize(
    "slide, alone, shared, matches",
    [(10, 44 + 8, 16 + 14 + 8, 28), (2, 44 + 40, 16 + 18 + 32, 52), (1, 44 + 80, 16 + 18 + 72, 124)],
)
def test_additions_of_an_example_by_hand(slide: int, alone: int, shared: int, matches: int) -> None:
    """Example 3's stream with a twin of other types, asked for by two first and two second halves.

    A-Seq: updates and closings. Sharon: updates of the halves; one note for each pane of the STARTs before; products.
    """
    stream = list(zip((1, 2, 3, 4, 4, 5, 6, 7, 8), map("ABCD".index, "ABCDABBCD"), strict=True))
    raw = [(0, time, kind + twin) for time, kind in stream for twin in (0, 4)]
    patterns = [(*first, *second) for first in ((0, 1), (4, 5)) for second in ((2, 3), (6, 7))]
    apart = a_seq(compact(raw), patterns, 10, slide, pooled=False)
    together = sharon(compact(raw), patterns, [[(0, 2), (2, 4)]] * 4, 10, slide, pooled=False)
    assert (apart.additions, together.additions) == (alone, shared)
    for run in (apart, together):
        assert sum(int(answers.matches.sum()) for answers in run.answers) == matches


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("length, queries, slides", [(6, 8, 5), (9, 16, 10), (8, 12, 4)])
def test_the_costs_of_the_executor_are_its_additions(length: int, queries: int, slides: int, pooled: bool) -> None:
    """Over 25 ranges of events in any order, 20 of each type and key a range."""
    stream = purchases(24_000, items=24, users=2, rate=4_800, ticks=1_000)
    events, range_ = events_of(stream), 200
    patterns = workload(queries, length, "halves", stream, common=4)
    query_patterns = [Pattern(f"q{number:02}", tuple(map(str, types))) for number, types in enumerate(patterns)]
    rates = {str(kind): stream.rate(range_) for kind in range(24)}
    costs = SharonCosts(query_patterns, rates, slides, pooled)
    middle = length // 2
    ranges = 2 * 5_000 / range_
    for spans in ([], [(0, middle)], [(middle, length)], [(0, middle), (middle, length)]):
        run = sharon(events, patterns, [spans] * queries, range_, range_ // slides, pooled)
        predicted = ranges * costs.cost(tuple(map(tuple, [spans] * queries)))
        assert run.additions == pytest.approx(predicted, rel=0.15), spans


def test_starts_that_follow_nothing_are_not_counted() -> None:
    raw = [(0, time, 1) for time in range(20)]
    assert sharon(compact(raw), [(0, 1, 2)], [[(1, 3)]], 20, 20).peak == 0


@pytest.mark.parametrize("pooled", [True, False])
def test_blocks_of_queries_change_nothing(pooled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = purchases(2_000, items=12, users=2, ticks=1_000)
    patterns = workload(9, 5, "mixed", stream, common=2)
    plan = [[(1, 3)], [], [(3, 5)], [(0, 2)], [], [(1, 3)], [(0, 2)], [], [(3, 5)]]
    patterns[6] = (*patterns[8][3:], *patterns[6][2:])  # what binds the blocks is the text, wherever it stands
    windows = 300, 100
    uncut_run = sharon(events_of(stream), patterns, plan, *windows, pooled)
    monkeypatch.setattr("optimizer.papers.reference.sharon._CACHED", 1)
    apart = sharon(events_of(stream), patterns, plan, *windows, pooled)
    monkeypatch.setattr("optimizer.papers.reference.sharon._RECOUNTED", 0)
    cut = sharon(events_of(stream), patterns, plan, *windows, pooled)
    # what is shared is at last counted for each query
    assert uncut_run.additions <= apart.additions < cut.additions
    assert uncut_run.peak <= apart.peak < cut.peak
    alone = a_seq(events_of(stream), patterns, *windows, pooled)
    for run in (uncut_run, apart, cut):
        for unshared_answers, other in zip(alone.answers, run.answers, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(unshared_answers, other, strict=True))
    assert len({int(answers.matches.sum()) for answers in cut.answers}) > 6


def events_of(stream: Stream) -> Events:
    return compact(list(zip(stream.key.tolist(), stream.time.tolist(), stream.type.tolist(), strict=True)))


def test_large_counts_are_flagged() -> None:
    """10 events of each of 40 instants: products of 10**20."""
    raw = [(0, position, position) for position in range(40) for _ in range(10)]
    run = a_seq(compact(raw), [tuple(range(20)), tuple(range(18)), (0, 1)], 40, 40)
    large, small, smallest = run.answers
    assert large.inexact.tolist() == [True] and large.magnitude.tolist() == [1e20]
    assert large.matches.tolist() == [10**20 % 2**64]
    assert small.matches.tolist() == [10**18] and small.magnitude[0] < EXACT_BELOW and not small.inexact[0]
    assert smallest.matches.tolist() == [100]
    halves = sharon(compact(raw), [tuple(range(20))], [[(5, 12)]], 40, 40)
    assert halves.answers[0].matches.tolist() == large.matches.tolist()


def test_two_steps_give_up_at_their_limit() -> None:
    raw = [(0, time, time % 2) for time in range(40)]
    most = sum(20 - begin for begin in range(20))
    assert two_step(compact(raw), [(0, 1)], 40, 40, most).additions == most
    with pytest.raises(TooManySequences, match="more than 209 sequences"):
        two_step(compact(raw), [(0, 1)], 40, 40, most - 1)
    with pytest.raises(TooManySequences):
        two_step(compact(raw), [(0, 1, 0)], 40, 40, 400, [[(0, 2)]])


def test_two_steps_join_what_one_window_can_hold() -> None:
    """(A, B) and (C, D) are in [0, 10), [5, 15) or [10, 20), but not together."""
    raw = [(0, 4, 0), (0, 5, 1), (0, 6, 2), (0, 12, 3)]
    run = two_step(compact(raw), [(0, 1, 2, 3)], 10, 5, 100, [[(0, 2), (2, 4)]])
    assert run.additions == 2 and len(run.answers[0].key) == 0


def test_two_steps_construct_shared_segments_once() -> None:
    raw = [(0, time, time % 3) for time in range(30)]
    apart, shared = (
        two_step(compact(raw), [(0, 1, 2), (0, 1)], 30, 30, 10**6, spans) for spans in (None, [[(0, 2)], [(0, 2)]])
    )
    pairs, triples = 55, 220
    assert apart.additions == pairs + triples and shared.additions == pairs + 10 + triples


@pytest.mark.parametrize("range_, slide", [(0, 1), (1, 0), (-1, 1)])
def test_windows_that_are_none(range_: int, slide: int) -> None:
    with pytest.raises(ValueError, match="range and slide are positive"):
        a_seq(compact([]), [(0,)], range_, slide)


@pytest.mark.parametrize("spans", [[(1, 1)], [(0, 4)], [(0, 2), (1, 3)], [(-1, 2)], [(2, 3), (0, 1)]])
def test_spans_that_are_none(spans: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="not ascending and disjoint"):
        sharon(compact([]), [(0, 1, 2)], [spans], 1, 1)


def test_an_empty_pattern() -> None:
    with pytest.raises(ValueError, match="at least one event type"):
        a_seq(compact([]), [()], 1, 1)


def test_no_events() -> None:
    for run in (a_seq(compact([]), [(0, 1)], 5, 1), two_step(compact([]), [(0, 1)], 5, 1, 0)):
        assert [len(answers.key) for answers in run.answers] == [0]


# ------------------------------------------------------------------------------- streams and patterns
STREAMS = {
    "purchases": lambda seed: purchases(30_000, seed=seed),
    "position reports": lambda seed: position_reports(10_000, 10_020, seed=seed),
    "routes": lambda seed: routes(30_000, vehicles=500, seed=seed),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_in_order_and_determined_by_their_seed(name: str) -> None:
    first, again, other = STREAMS[name](0), STREAMS[name](0), STREAMS[name](1)
    assert all(np.array_equal(column, two) for column, two in zip(first, again, strict=True))
    assert not np.array_equal(first.type[:1_000], other.type[:1_000])
    assert (np.diff(first.time) >= 0).all() and first.type.dtype == np.int32
    assert first.key.min() >= 0 and first.key.max() == first.keys - 1
    assert first.type.min() >= 0 and first.type.max() == first.types - 1


def test_purchases_have_the_papers_rate() -> None:
    stream = purchases(90_000)
    assert (stream.types, stream.keys, int(stream.time[-1])) == (50, 20, 29)
    assert (np.bincount(stream.time) == 3_000).all()
    assert stream.rate(20) == pytest.approx(3_000 * 20 / 1_000, rel=0.05)
    assert purchases(9_000, ticks=1_000).time[-1] == 2_999


def test_position_reports_become_more_and_move_forward() -> None:
    early, late = position_reports(0, 100), position_reports(10_790, 10_800, ticks=1_000)
    assert np.bincount(early.time)[0] == 40 and late.keys == 3_999
    assert np.bincount(late.time // 1_000)[-1] == pytest.approx(4_000, abs=5)
    for car in range(30):
        steps = np.diff(early.type[early.key == car]) % early.types
        assert set(steps.tolist()) == {0, 1} and 0.3 < (steps == 0).mean() < 0.7
    assert (np.diff(early.time[early.key == 0]) == 1).all()


def test_routes_follow_streets() -> None:
    stream = routes(40_000, vehicles=400)
    on_route = []
    for vehicle in range(40):
        street = stream.type[stream.key == vehicle]
        on_route += [later in stream.follows[earlier] for earlier, later in pairwise(street.tolist())]
    assert np.mean(on_route) == pytest.approx(1 - 1 / 15, abs=0.03)
    assert len(stream.time) == 40_000


@pytest.mark.parametrize("shared", ["middle", "prefix", "suffix", "mixed"])
@pytest.mark.parametrize("name", STREAMS)
def test_patterns_have_a_piece_in_common(name: str, shared: str) -> None:
    stream = STREAMS[name](0)
    patterns = workload(12, 10, shared, stream, common=2)
    assert patterns == workload(12, 10, shared, stream, common=2) != workload(12, 10, shared, stream, 2, seed=1)
    assert all(len(set(pattern)) == 10 for pattern in patterns) and len(set(patterns)) > 6
    place = {"middle": 2, "prefix": 0, "suffix": 5}
    for number, pattern in enumerate(patterns):
        kind = SHARED[number % 3] if shared == "mixed" else shared
        first = SHARED[(number + 6) % 3] if shared == "mixed" else shared
        other = patterns[(number + 6) % 12]
        assert kind == first
        assert pattern[place[kind] : place[kind] + 5] == other[place[kind] : place[kind] + 5]
    if stream.follows.size:
        steps = [later in stream.follows[earlier] for pattern in patterns for earlier, later in pairwise(pattern)]
        assert np.mean(steps) > 0.85


@pytest.mark.parametrize("name", STREAMS)
def test_patterns_of_two_common_halves(name: str) -> None:
    stream = STREAMS[name](0)
    patterns = workload(20, 10, "halves", stream, common=5)
    assert all(len(set(pattern)) == 10 for pattern in patterns) and len(set(patterns)) > 12
    for halves in ({pattern[:5] for pattern in patterns}, {pattern[5:] for pattern in patterns}):
        assert 3 <= len(halves) <= 5
    if stream.follows.size:
        steps = [later in stream.follows[earlier] for pattern in patterns for earlier, later in pairwise(pattern)]
        assert np.mean(steps) > 0.85
    assert all(len(set(pattern)) == 30 for pattern in workload(4, 30, "halves", STREAMS["purchases"](0), common=2))


def test_patterns_that_cannot_be() -> None:
    stream = purchases(10, items=5)
    with pytest.raises(ValueError, match="unknown kind 'ends'"):
        workload(1, 3, "ends", stream)
    with pytest.raises(ValueError, match="6 different event types of 5"):
        workload(1, 6, "middle", stream)
    assert all(sorted(pattern) == list(range(5)) for pattern in workload(4, 5, "mixed", stream))
