"""Which windows late events, lost files and replaced rows touch, by hand: windows [t - 10, t) of instants 5 apart.
Those of calendars are compared with the oracle's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.workload.values import Window
from spark_jobs.streams.sources.changed_attributes import _Windows
from spark_jobs.streams.sources.late_events import _is_explained, _windows, _within
from spark_jobs.streams.sources.replacements import MOST_SPANS, FileSpan, Replacement, Replacements, disjoint, met
from tests.calendars import windows_between
from tests.historical import DAY, ENDS, HOUR, historical_windows
from tests.sizes import examples

Spans = list[tuple[int | None, int | None]]


def touched(
    times: list[int],
    gone: Spans = [],  # noqa: B006
    changed: list[tuple[int, int]] = [],  # noqa: B006
    due: int = 100,
    possible: list[tuple[int, int]] = [],  # noqa: B006
    ago: int = 0,
) -> list[int]:
    """The instants in (0, 100] whose windows are touched."""
    query: Any = SimpleNamespace(window=Window(10, 5, ago=ago))
    files: Any = [SimpleNamespace(begin=begin, end=end) for begin, end in gone]
    return _windows(query, np.array(times, dtype=np.int64), files, changed, 0, 100, due, possible).tolist()


@pytest.mark.parametrize(
    ("times", "instants"),
    [
        ([], []),
        ([19], [20, 25]),
        ([20], [25, 30]),
        ([24], [25, 30]),
        ([25], [30, 35]),
        ([-5], [5]),
        ([-6], []),
        ([99], [100]),
        ([100], []),
        ([5, 70], [10, 15, 75, 80]),
    ],
)
def test_a_late_event_touches_the_windows_that_hold_it(times: list[int], instants: list[int]) -> None:
    assert touched(times) == instants


def test_a_historical_window_holds_earlier_events() -> None:
    # windows [t - 13, t - 3)
    assert touched([21], ago=3) == [25, 30]
    assert touched([22], ago=3) == [30, 35]
    assert touched([], gone=[(12, 17)], ago=3) == [20, 25]


@settings(max_examples=examples(60), deadline=None)
@given(historical_windows(), st.sampled_from(ENDS), st.data())
def test_a_late_event_touches_historical_windows_that_hold_it(window: Window, near: int, data: st.DataObject) -> None:
    """Of a calendar: two instants may have one window, and none between two windows of one instant is touched."""
    begin = near - data.draw(st.integers(0, 9)) * DAY
    end = begin + data.draw(st.integers(1, 12)) * DAY
    spans = [span for part in window.parts for span in windows_between(part, begin, end).to_pylist()]
    bounds = sorted({span[side] for span in spans for side in ("since", "until")} or {begin})
    moments = st.builds(int.__add__, st.sampled_from(bounds), st.sampled_from((-HOUR, -1, 0, HOUR)))
    times = sorted(data.draw(st.lists(moments, min_size=1, max_size=3, unique=True)))
    expected = {span["instant"] for span in spans if any(span["since"] <= time < span["until"] for time in times)}

    query: Any = SimpleNamespace(window=window)
    late = _windows(query, np.array(times, dtype=np.int64), [], [], begin, end, end, [])
    assert late.tolist() == sorted(expected)
    # so do the spans of files that are lost
    files: Any = [SimpleNamespace(begin=time, end=time + 1) for time in times]
    lost = _windows(query, np.array([], dtype=np.int64), files, [], begin, end, end, [])
    assert lost.tolist() == sorted(expected)
    changed = _Windows([_query_over(window)], begin, end)
    changed.add(_query_over(window), np.array(times, dtype=np.int64))
    assert changed.instants()["q"].tolist() == sorted(expected)


def _query_over(window: Window) -> Any:
    return SimpleNamespace(name="q", kind=window.kind, window=window)


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_span_touches_windows_that_begin_before_its_end_and_end_after_its_begin(is_gone: bool) -> None:
    # events at 5 and 70 make all instants between them candidates
    spans: Any = {"gone" if is_gone else "changed": [(20, 30)]}
    assert touched([5, 70], **spans) == [10, 15, 25, 30, 35, 75, 80]
    assert touched([], **spans) == [25, 30, 35]


def test_a_lost_file_without_a_span_touches_every_window() -> None:
    assert touched([], gone=[(None, None)]) == list(range(5, 101, 5))
    assert touched([], gone=[(None, 10)]) == [5, 10, 15]
    assert touched([], gone=[(91, None)]) == [95, 100]


def test_windows_that_are_due_only_now_are_touched_where_events_are_possible() -> None:
    assert touched([], due=85, possible=[(0, 200)]) == [90, 95, 100]
    assert touched([], due=85, possible=[(0, 90)]) == [90, 95]
    assert touched([], due=85, possible=[(0, 91)]) == [90, 95, 100]
    assert touched([], due=100, possible=[(0, 200)]) == []
    assert touched([84], due=85, possible=[(95, 200)]) == [85, 90, 100]


def test_spans_are_cut_to_an_interval() -> None:
    assert _within([(0, 10), (9, 11), (10, 20), (29, 40), (30, 40)], 10, 30) == [(10, 11), (10, 20), (29, 30)]


def test_a_feed_explains_a_file_if_it_tells_of_every_move_since() -> None:
    arrival: Any = SimpleNamespace(identity="f", noted=8, moves=[SimpleNamespace(noted=5), SimpleNamespace(noted=8)])
    assert _is_explained(arrival, {("f", 8)}, 5)
    assert not _is_explained(arrival, {("f", 8)}, 4)
    assert _is_explained(arrival, {("f", 5), ("f", 8)}, 4)
    assert not _is_explained(arrival, {("f", 5), ("f", 8)}, 8)


# -------------------------------------------------------------------------------------------- replacements
@pytest.mark.parametrize(
    ("spans", "most", "expected"),
    [
        ([(5, 5), (6, 5)], MOST_SPANS, ()),
        ([(4, 6), (0, 4)], MOST_SPANS, ((0, 4), (4, 6))),
        ([(3, 6), (0, 4)], MOST_SPANS, ((0, 6),)),
        ([(0, 9), (3, 6)], MOST_SPANS, ((0, 9),)),
        ([(0, 1), (3, 4), (9, 10)], 3, ((0, 1), (3, 4), (9, 10))),
        ([(0, 1), (3, 4), (9, 10)], 2, ((0, 4), (9, 10))),
        ([(0, 1), (3, 4), (9, 10)], 1, ((0, 10),)),
    ],
)
def test_spans_that_overlap_or_are_too_many_are_joined(
    spans: list[tuple[int, int]], most: int, expected: tuple[tuple[int, int], ...]
) -> None:
    assert disjoint(spans, most) == expected


def test_windows_meet_spans_that_share_a_moment() -> None:
    starts, ends = np.array([0, 10, 11, 20, 30]), np.array([10, 20, 12, 30, 40])
    assert met([(10, 20)], starts, ends).tolist() == [False, True, True, False, False]
    assert met([(10, 20), (39, 41)], starts, ends).tolist() == [False, True, True, False, True]
    assert met([], starts, ends).tolist() == [False] * 5


@pytest.mark.parametrize(
    ("begin", "end", "names"),
    [(0, 10, {"old"}), (0, 11, {"new"}), (10, 20, {"new"}), (19, 30, {"new"}), (20, 30, {"old"})],
)
def test_a_replaced_file_keeps_its_name_where_nothing_changed(begin: int, end: int, names: set[str]) -> None:
    step = Replacement(7, (FileSpan("old", 0, 40),), (FileSpan("new", 0, 40),), ((10, 20),))
    replacements = Replacements([step])
    assert replacements.undone({"new"}, begin, end) == names
    assert [len(replacements.since(noted)) for noted in (6, 7)] == [1, 0]


def test_files_meet_spans_half_open() -> None:
    file = FileSpan("f", 10, 20)
    assert [file.meets(*span) for span in ((0, 10), (0, 11), (19, 30), (20, 30))] == [False, True, True, False]
    assert FileSpan("f", None, None).meets(0, 1)
