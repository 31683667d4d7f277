"""Substream filters in lockstep with brute force: supersets, their errors, exact answers, memory; HAVING."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optimizer.combine.threshold_index import NEVER, HavingIndex
from optimizer.papers.reference import ci_max_min
from optimizer.papers.reference.ci_count import CollectiveCount
from optimizer.papers.reference.ci_levels import levels_of, relative_error
from optimizer.papers.reference.ci_max_min import CollectiveExtreme
from optimizer.papers.reference.ci_sum import CollectiveSum
from optimizer.papers.reference.r_int import SubstreamTotals
from optimizer.papers.reference.substream_updates import TOTAL_LIMIT
from tests.sizes import examples

# levels


def published_levels(p: int, exponents: int) -> list[tuple[int, int]]:
    """(nearest, farthest) distance from the end of each level: p of size 1, p of size 2, p of size 4, ..."""
    levels, start = [], 1
    for exponent in range(exponents):
        for _ in range(p):
            levels.append((start, start + 2**exponent - 1))
            start += 2**exponent
    return levels


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8, 16])
def test_levels_on_either_side_of_a_threshold(p: int) -> None:
    """COUNT > v: the largest nowhere beyond v + 1, and the smallest nowhere before it. COUNT < v: around v."""
    levels = published_levels(p, 12)
    for v in range(700):
        for below, distance in ((False, v + 1), (True, max(v, 1))):
            within = max(level for level, (_, farthest) in enumerate(levels) if farthest <= distance)
            beyond = min(level for level, (nearest, _) in enumerate(levels) if nearest >= distance)
            assert levels_of(v, p, below) == ((beyond, within) if below else (within, beyond)), (v, below)


def test_the_largest_thresholds_have_levels() -> None:
    for p in (1, 7, 16):
        for below in (False, True):
            for level in levels_of(TOTAL_LIMIT + 1, p, below):
                j, i = divmod(level, p)
                assert 2**60 <= ((p + i) << j) - p + 1 <= 2**62


@pytest.mark.parametrize("p", [1, 2, 3, 4, 8, 16])
def test_errors_hold_and_are_not_smaller(p: int) -> None:
    """What the level of a threshold lets through at worst, over 20,000 thresholds: within epsilon, and nearly that."""
    levels = published_levels(p, 20)
    worst = {False: Fraction(0), True: Fraction(0)}
    for v in range(1, 20_000):
        fewest = levels[levels_of(v, p, False)[0]][0]
        most = levels[levels_of(v, p, True)[0]][1] - 1
        assert fewest > v * (1 - relative_error(p)) and most < v * (1 + relative_error(p, below=True))
        worst[False] = max(worst[False], 1 - Fraction(fewest, v))
        worst[True] = max(worst[True], Fraction(most, v) - 1)
    assert worst[False] > relative_error(p) - Fraction(1, 100)
    assert worst[True] > relative_error(p, below=True) - Fraction(1, 50)


def test_published_errors() -> None:
    assert [relative_error(p) for p in (1, 2, 3, 16)] == [
        Fraction(3, 4),
        Fraction(1, 2),
        Fraction(2, 5),
        Fraction(1, 9),
    ]
    assert [relative_error(p, below=True) for p in (1, 2, 16)] == [3, 1, Fraction(1, 8)]
    with pytest.raises(ValueError, match="at least 1"):
        relative_error(0)


# counts and sums


def test_state_and_lookups_of_three_substreams() -> None:
    """Figure 7 by hand: times kept at each level, and eight look-ups at time 43."""
    streams = [
        [3, 5, 8, 9, 12, 20, 21, 30, 31, 33, 34, 40, 41, 42],
        [1, 2, 40, 41],
        [38, 39, 39, 40, 40, 41, 42, 42],
    ]
    index = CollectiveCount(3, p=1)
    for time, key in sorted((time, key) for key, times in enumerate(streams) for time in times):
        index.update(key, time)
    assert index.stamps[:, :3].T.tolist() == [[42, 40, 30], [41, 2, NEVER], [42, 41, 40]]
    for span, v, level, returned, exact in (
        (15, 4, 1, [0, 2], [0, 2]),
        (15, 7, 2, [0, 2], [2]),
        (5, 1, 0, [0, 1, 2], [0, 1, 2]),
        (5, 0, 0, [0, 1, 2], [0, 1, 2]),
        (43, 11, 2, [0, 2], [0]),
        (4, 2, 1, [0, 2], [0, 2]),
        (12, 5, 1, [0, 2], [2]),
        (14, 5, 1, [0, 2], [0, 2]),
    ):
        assert levels_of(v, 1, False)[0] == level
        assert index.lookup(43, span, v).tolist() == returned
        assert index.exact(43, span, v).tolist() == exact


class Ask(NamedTuple):
    """A look-up some time after the last update; the threshold is a number, or one near the total of a key."""

    delay: int
    span: int
    near: int | None
    v: int
    below: bool


class Element(NamedTuple):
    gap: int
    key: int
    weight: int


weights = st.one_of(st.integers(1, 9), st.sampled_from([1, 64, 1000, 2**20 + 1, 2**40]))
elements = st.builds(Element, st.sampled_from([0, 0, 0, 1, 2, 9]), st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3]), weights)
asks = st.builds(
    Ask,
    st.sampled_from([0, 0, 1, 7]),
    st.one_of(st.integers(1, 12), st.integers(1, 400)),
    st.one_of(st.none(), st.integers(0, 3)),
    st.integers(-2, 12),
    st.booleans(),
)
steps = st.lists(st.one_of(elements, elements, asks), max_size=120)
limits = st.sampled_from([None, 1, 6, 50])
KEYS = 5  # the last of them never gets an element


def totals_in(data: list[tuple[int, int, int]], now: int, span: int, counts: bool) -> list[int]:
    totals = [0] * KEYS
    for key, time, weight in data:
        if now - span + 1 <= time <= now:
            totals[key] += 1 if counts else weight
    return totals


@settings(max_examples=examples(150), deadline=None)
@given(steps=steps, p=st.integers(1, 5), limit=limits, counts=st.booleans())
@example(steps=[Element(0, 0, 2**40), Ask(0, 1, 0, 0, True), Ask(0, 1, 0, 1, True)], p=1, limit=None, counts=False)
@example(steps=[Ask(0, 1, None, 0, False), Ask(0, 1, None, 5, True)], p=2, limit=None, counts=True)
def test_lookups_in_lockstep(steps: list[Element | Ask], p: int, limit: int | None, counts: bool) -> None:
    """Superset of the answer, within the error, and exact after the check; the baseline answers the same."""
    index = CollectiveCount(KEYS, p, limit) if counts else CollectiveSum(KEYS, p, limit)
    each = SubstreamTotals(KEYS, limit, weighted=not counts)
    data: list[tuple[int, int, int]] = []
    now = 0
    for step in steps:
        if isinstance(step, Element):
            now += step.gap
            data.append((step.key, now, step.weight))
            element = (step.key, now) if counts else (step.key, now, step.weight)
            index.update(*element)
            each.update(*element)
            continue
        span = min(step.span, limit or step.span)
        totals = totals_in(data, now + step.delay, span, counts)
        v = max(0, step.v + (0 if step.near is None else totals[step.near]))
        answer = [key for key, total in enumerate(totals) if (0 < total < v if step.below else total > v)]
        arguments = now + step.delay, span, v, step.below
        returned = index.lookup(*arguments).tolist()
        assert set(answer) <= set(returned) and returned == sorted(set(returned))
        error = relative_error(p, step.below)
        for key in returned:
            assert 0 < totals[key] < v * (1 + error) if step.below else totals[key] > v * (1 - error)
        assert index.exact(*arguments).tolist() == each.lookup(*arguments).tolist() == answer
        assert [each.total(key, *arguments[:2]) for key in range(KEYS)] == totals


@settings(max_examples=examples(50), deadline=None)
@given(data=st.lists(elements, max_size=200), p=st.integers(1, 4), limit=limits, cut=st.integers(0, 200))
def test_in_bulk_as_one_by_one(data: list[Element], p: int, limit: int | None, cut: int) -> None:
    keys, gaps, sizes = (np.array([each[at] for each in data], dtype=np.int64) for at in (1, 0, 2))
    times = np.cumsum(gaps)
    single, bulk = CollectiveSum(KEYS, p, limit), CollectiveSum(KEYS, p, limit)
    counted, counted_bulk = CollectiveCount(KEYS, p, limit), CollectiveCount(KEYS, p, limit)
    for key, time, weight in zip(keys.tolist(), times.tolist(), sizes.tolist(), strict=True):
        single.update(key, time, weight)
        counted.update(key, time)
    for part in (slice(None, cut), slice(cut, None)):
        bulk.update_many(keys[part], times[part], sizes[part])
        counted_bulk.update_many(keys[part], times[part])
    assert np.array_equal(single.stamps, bulk.stamps) and np.array_equal(single.lengths, bulk.lengths)
    assert np.array_equal(counted.stamps, counted_bulk.stamps)
    assert bulk.latest == single.latest == (times[-1] if len(times) else NEVER)


@settings(max_examples=examples(60), deadline=None)
@given(
    data=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 30)), max_size=60), p=st.integers(1, 3)
)
def test_a_weight_is_so_many_elements(data: list[tuple[int, int, int]], p: int) -> None:
    """CI-SUM is CI-COUNT on copies: the same times at every level."""
    sums, counts = CollectiveSum(4, p, exact=False), CollectiveCount(4, p, exact=False)
    now = 0
    for gap, key, weight in data:
        now += gap
        sums.update(key, now, weight)
        for _ in range(weight):
            counts.update(key, now)
    shape = min(len(sums.stamps), len(counts.stamps))
    assert np.array_equal(sums.stamps[:shape], counts.stamps[:shape])
    for longer in (sums, counts):
        assert (longer.stamps[shape:] == NEVER).all()


def test_sums_far_beyond_int64_in_all() -> None:
    """What a key has ever got wraps many times; what it holds, and every answer, is exact."""
    rng = np.random.default_rng(3)
    index, data = CollectiveSum(3, p=2, span_limit=4), []
    for now in range(400):
        key, weight = int(rng.integers(3)), int(rng.integers(2**57, 2**58))
        index.update(key, now, weight)
        data.append((key, now, weight))
        totals = totals_in(data[-8:], now, 3, counts=False)[:3]
        for v in (*totals, *(total - 1 for total in totals if total), 2**58, TOTAL_LIMIT, 10**30):
            assert index.exact(now, 3, v).tolist() == [key for key in range(3) if totals[key] > v]
            assert index.exact(now, 3, v, below=True).tolist() == [key for key in range(3) if 0 < totals[key] < v]


@pytest.mark.parametrize("in_bulk", [False, True])
def test_a_sum_too_large_is_refused_and_nothing_of_it_is_entered(in_bulk: bool) -> None:
    index = CollectiveSum(2, p=1, span_limit=10)
    index.update(0, 0, TOTAL_LIMIT)
    with pytest.raises(OverflowError, match=r"exceeds 2\*\*61"):
        if in_bulk:
            index.update_many([1, 0, 1], [1, 2, 3], [5, 1, 100])
        else:
            index.update(1, 1, 5)
            index.update(0, 2, 1)
    assert index.latest == 2
    assert index.exact(3, 10, 5 - 1).tolist() == [0, 1]
    assert index.exact(3, 10, 5).tolist() == index.lookup(3, 10, TOTAL_LIMIT - 1).tolist() == [0]
    # once the first has expired there is room again
    index.update(0, 10, TOTAL_LIMIT)
    assert index.exact(10, 10, TOTAL_LIMIT - 1).tolist() == [0]


def test_memory_is_that_of_the_longest_window() -> None:
    """A hundred windows' worth of elements take the memory of some few."""
    rng = np.random.default_rng(0)
    counts, sums = CollectiveCount(10, p=2, span_limit=500), CollectiveSum(10, p=2, span_limit=500)
    unbounded = CollectiveCount(10, p=2)
    sizes = []
    for turn in range(100):
        keys, times = rng.integers(0, 10, 500), np.arange(turn * 500, turn * 500 + 500)
        counts.update_many(keys, times)
        sums.update_many(keys, times, rng.integers(1, 5, 500))
        unbounded.update_many(keys, times)
        assert counts.totals is not None and sums.totals is not None
        sizes.append(
            (counts.totals.rings.times.size, sums.totals.rings.times.size, len(counts.stamps), len(sums.stamps))
        )
    assert max(size[0] for size in sizes) <= 6 * 500 and max(size[1] for size in sizes) <= 6 * 500
    # some 50 elements, a sum of some 150, for each key in a window
    assert max(size[2] for size in sizes) <= 2 * 6 and max(size[3] for size in sizes) <= 2 * 8
    assert len(unbounded.stamps) > 2 * 8


def test_an_index_without_histories() -> None:
    index = CollectiveCount(2, p=4, exact=False)
    index.update_many([0, 0, 1], [1, 2, 2])
    assert index.lookup(2, 2, 1).tolist() == [0]
    with pytest.raises(ValueError, match="exact=False"):
        index.exact(2, 2, 1)


def test_used_wrongly() -> None:
    for wrong in (
        lambda: CollectiveCount(0),
        lambda: CollectiveCount(3, p=0),
        lambda: CollectiveCount(3, span_limit=0),
    ):
        with pytest.raises(ValueError, match="at least one key|p is a number|longest window"):
            wrong()
    index, sums, each = CollectiveCount(2, span_limit=5), CollectiveSum(2), SubstreamTotals(2)
    index.update(0, 10)
    refused: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (ValueError, "ascend", lambda: index.update(0, 9)),
        (ValueError, "ascend", lambda: index.update_many([0, 0], [12, 11])),
        (ValueError, "ascend", lambda: index.update_many([0], [9])),
        (ValueError, "one time", lambda: index.update_many([0], [11, 12])),
        (IndexError, r"keys are 0\.\.1", lambda: index.update(2, 10)),
        (IndexError, r"keys are 0\.\.1", lambda: index.update_many([0, -1], [11, 12])),
        (ValueError, "at the last update", lambda: index.lookup(9, 1, 0)),
        (ValueError, "a window is", lambda: index.lookup(10, 6, 0)),
        (ValueError, "a window is", lambda: index.exact(10, 0, 0)),
        (ValueError, "0 or more", lambda: index.lookup(10, 1, -1)),
        (TypeError, "integer", lambda: index.lookup(10, 1, 1.5)),
        (ValueError, "weights are", lambda: sums.update(0, 1, 0)),
        (ValueError, "weights are", lambda: sums.update_many([0, 1], [1, 2], [3, -1])),
        (ValueError, "weights are", lambda: sums.update_many([0, 1], [1, 2], [3])),
        (ValueError, "weights are", lambda: each.update(0, 1, 2)),
        (ValueError, "if and only if", lambda: each.update_many([0], [1], [2])),
    ]
    for error, message, call in refused:
        with pytest.raises(error, match=message):
            call()
    # nothing of it was entered
    assert index.exact(10, 5, 0).tolist() == [0] and index.latest == 10 and sums.latest == NEVER


# extremes

whole = st.one_of(st.integers(-4, 4), st.sampled_from([-(2**63) + 1, 2**63 - 2]))
real = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 5e-324])


def in_order(value: float) -> tuple[bool, float]:
    """Spark's order: NaN is the greatest, zeros are equal."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value)


@settings(max_examples=examples(20), deadline=None)
@given(
    data=st.data(),
    kind=st.sampled_from([np.int64, np.float64]),
    greatest=st.booleans(),
    limit=limits,
    count=st.integers(0, 150),
)
def test_extremes_in_lockstep(data: st.DataObject, kind: type, greatest: bool, limit: int | None, count: int) -> None:
    values = whole if kind is np.int64 else real
    rows = data.draw(st.lists(st.tuples(st.sampled_from([0, 0, 1, 4]), st.integers(0, 3), values), max_size=count))
    ask = st.tuples(st.sampled_from([0, 3]), st.integers(1, 40), st.one_of(values, real.filter(lambda v: v == v)))
    index = CollectiveExtreme(4, greatest, limit, kind)
    # begin in a tiny tree, so that it is built again and again
    index.stairs = ci_max_min.new_stairs(4, 4, 4)
    seen: list[tuple[int, int, float]] = []
    now = 0
    for gap, key, value in rows:
        now += gap
        index.update(key, now, value)
        seen.append((key, now, value))
        if len(seen) % 3:
            continue
        delay, span, v = data.draw(ask)
        span = min(span, limit or span)
        answer = []
        for key in range(4):
            inside = [x for k, time, x in seen if k == key and now + delay - span + 1 <= time <= now + delay]
            if inside and greatest:
                answer += [key] * (max(map(in_order, inside)) > in_order(v))
            elif inside:
                answer += [key] * (min(map(in_order, inside)) < in_order(v))
        assert index.lookup(now + delay, span, v).tolist() == answer
    # every entry is either free or in a heap, under a stair that is alive
    entry, free = int(index.stairs.free[0]), 0
    while entry < len(index.stairs.entries):
        entry, free = int(index.stairs.entries[entry, ci_max_min.NEXT]), free + 1
    assert free == index.stairs.free[1] >= 0
    used_count = 0
    for stair in np.flatnonzero(index.stairs.owners >= 0):
        entry = int(index.stairs.heads[stair])
        while entry >= 0:
            entry, used_count = int(index.stairs.entries[entry, ci_max_min.NEXT]), used_count + 1
    assert used_count + free == len(index.stairs.entries)


@pytest.mark.parametrize("greatest", [True, False])
def test_extremes_of_a_long_stream(greatest: bool) -> None:
    """Ten thousand arrivals in bulk against one another key's window at a time; the tree stays small."""
    rng = np.random.default_rng(5)
    index = CollectiveExtreme(40, greatest, span_limit=300)
    keys, times = rng.integers(0, 40, 10_000), np.sort(rng.integers(0, 3000, 10_000))
    values = rng.integers(-1000, 1000, 10_000)
    for part in np.array_split(np.arange(10_000), 50):
        index.update_many(keys[part], times[part], values[part])
        now = int(times[part[-1]])
        for span in (1, 17, 300):
            begin = int(np.searchsorted(times, now - span + 1))
            window = slice(begin, int(part[-1]) + 1)
            for v in (-900, 0, 950):
                hits = values[window] > v if greatest else values[window] < v
                assert index.lookup(now, span, v).tolist() == np.unique(keys[window][hits]).tolist()
    assert len(index.stairs.moments) <= 2048 and len(index.stairs.entries) < 20_000


@pytest.mark.parametrize("greatest", [True, False])
def test_extremes_beyond_the_longest_window_are_forgotten(greatest: bool) -> None:
    """Every arrival is a stair for ever if nothing expires."""
    index = CollectiveExtreme(2, greatest, span_limit=100)
    for begin in range(0, 20_000, 500):
        times = np.arange(begin, begin + 500)
        index.update_many(times % 2, times, -times if greatest else times)
        now, v = begin + 499, -(begin + 449) if greatest else begin + 449
        assert index.lookup(now, 50, v).tolist() == [] and index.lookup(now, 52, v).tolist() == [0]
    assert len(index.stairs.moments) <= 2048 and len(index.stairs.entries) < 20_000


@pytest.mark.parametrize("greatest", [True, False])
def test_zeros_are_equal_and_nan_is_greatest(greatest: bool) -> None:
    index = CollectiveExtreme(4, greatest, dtype=np.float64)
    index.update_many([0, 1, 2, 3], [1, 1, 1, 1], [0.0, -0.0, math.nan, -math.inf])
    for v, above, below in (
        (0.0, [2], [3]),
        (-0.0, [2], [3]),
        (math.nan, [], [0, 1, 3]),
        (math.inf, [2], [0, 1, 3]),
        (-math.inf, [0, 1, 2], []),
        (5e-324, [2], [0, 1, 3]),
    ):
        assert index.lookup(1, 1, v).tolist() == (above if greatest else below), v


def test_thresholds_of_extremes_need_not_be_whole() -> None:
    index = CollectiveExtreme(3)
    index.update_many([0, 1, 2], [1, 1, 1], [2, 3, -3])
    assert index.lookup(1, 1, 2.5).tolist() == index.lookup(1, 1, Fraction(5, 2)).tolist() == [1]
    assert index.lookup(1, 1, -math.inf).tolist() == [0, 1, 2] and index.lookup(1, 1, math.inf).tolist() == []
    least = CollectiveExtreme(3, greatest=False)
    least.update_many([0, 1, 2], [1, 1, 1], [2, 3, -3])
    assert least.lookup(1, 1, 2.5).tolist() == [0, 2] and least.lookup(1, 1, 2).tolist() == [2]
    assert least.lookup(1, 1, math.inf).tolist() == [0, 1, 2] and least.lookup(1, 1, 10**40).tolist() == [0, 1, 2]


def test_extremes_used_wrongly() -> None:
    index = CollectiveExtreme(2)
    with pytest.raises(ValueError, match="int64 or float64"):
        CollectiveExtreme(2, dtype=np.int32)
    for value in (-(2**63), 2**63 - 1):
        with pytest.raises(ValueError, match="values are within"):
            index.update(0, 1, value)
    with pytest.raises(ValueError, match="one value"):
        index.update_many([0, 1], [1, 2], [3])
    with pytest.raises(ValueError, match="NaN"):
        index.lookup(1, 1, math.nan)
    assert index.latest == NEVER and index.lookup(0, 9, -5).tolist() == []


# having

fragments = st.lists(
    st.lists(
        st.tuples(st.integers(0, 40), st.one_of(st.integers(0, 5), st.sampled_from([0, 100, 2**58]))), max_size=10
    ).map(sorted),
    max_size=12,
)
thresholds = st.one_of(
    st.integers(-2, 12),
    st.sampled_from([2**58, 2**62, 2**64, -(2**70), math.inf, -math.inf, 2.5, Fraction(7, 2), Decimal("100.5")]),
)
windows = st.lists(st.tuples(st.integers(-5, 45), st.integers(-3, 60), thresholds), min_size=1, max_size=12)


def having(groups: list[list[tuple[int, int]]]) -> HavingIndex:
    starts = np.array([start for group in groups for start, _ in group], dtype=np.int64)
    values = np.array([value for group in groups for _, value in group], dtype=np.int64)
    return HavingIndex(starts, np.cumsum([0, *map(len, groups)]), values)


@settings(max_examples=examples(65), deadline=None)
@given(groups=fragments, windows=windows)
def test_having_in_lockstep(groups: list[list[tuple[int, int]]], windows: list[tuple[int, int, float]]) -> None:
    index = having(groups)
    for start, width, v in windows:
        end = start + width
        sums = {}
        for number, group in enumerate(groups):
            if inside := [value for begin, value in group if start <= begin < end]:
                sums[number] = sum(inside)
        assert index.above(start, end, v).tolist() == [group for group, total in sums.items() if total > v]
        assert index.below(start, end, v).tolist() == [group for group, total in sums.items() if total < v]
        between = [group for group, total in sums.items() if 1 <= total <= 5]
        assert index.between(start, end, 1, 5).tolist() == between
        assert index.between(start, end, None, None).tolist() == list(sums)
        everyone = np.arange(len(groups))
        assert index.sums(start, end, everyone).tolist() == [sums.get(group, 0) for group in everyone.tolist()]


@pytest.mark.parametrize("share", [1.0, 0.3, 0.02])
def test_having_with_and_without_checkpoints_in_between(share: float) -> None:
    """A row for every instant where groups have all fragments, fewer where they have few; the same answers."""
    rng = np.random.default_rng(1)
    present = rng.random((60, 300)) < share
    starts = [np.flatnonzero(row) * 10 for row in present]
    values = [rng.integers(0, 50, len(each)) for each in starts]
    index = HavingIndex(np.concatenate(starts), np.cumsum([0, *map(len, starts)]), np.concatenate(values))
    assert (index.step == 1) == (share == 1.0)
    assert index._sums.size <= 3 * len(index.starts)
    for _ in range(200):
        start, end = sorted(rng.integers(-50, 3050, 2).tolist())
        totals = [int(value[(each >= start) & (each < end)].sum()) for each, value in zip(starts, values, strict=True)]
        v = totals[int(rng.integers(60))]
        inside = [bool(((each >= start) & (each < end)).any()) for each in starts]
        assert index.above(start, end, v).tolist() == [
            group for group in range(60) if inside[group] and totals[group] > v
        ]
        assert index.below(start, end, v).tolist() == [
            group for group in range(60) if inside[group] and totals[group] < v
        ]


def test_having_without_fragments() -> None:
    assert having([]).above(0, 10, 0).tolist() == []
    assert having([[], []]).below(0, 10, 5).tolist() == having([[], []]).above(0, 10, -1).tolist() == []


def test_having_refuses_what_it_cannot_answer() -> None:
    offsets = np.array([0, 2])
    with pytest.raises(ValueError, match="starts ascend"):
        HavingIndex(np.array([5, 4]), offsets, np.array([1, 1]))
    with pytest.raises(ValueError, match="starts ascend"):
        HavingIndex(np.array([5, 6]), np.array([0, 3, 2]), np.array([1, 1]))
    with pytest.raises(ValueError, match="not negative"):
        HavingIndex(np.array([4, 5]), offsets, np.array([1, -1]))
    with pytest.raises(ValueError, match="one value"):
        HavingIndex(np.array([4, 5]), np.array([0, 1]), np.array([1, 1]))
    with pytest.raises(OverflowError, match=r"2\*\*63"):
        HavingIndex(np.array([4, 5]), offsets, np.array([2**62, 2**62]))
    # each group by itself is within int64, all together are not
    index = HavingIndex(np.array([4, 4]), np.array([0, 1, 2]), np.array([2**63 - 1, 2**63 - 1]))
    assert index.above(0, 9, 2**63 - 2).tolist() == [0, 1] and index.above(0, 9, 2**63 - 1).tolist() == []
    with pytest.raises(ValueError, match="NaN"):
        index.above(0, 9, math.nan)
