"""Which files stand for which others, and spans of time: against the same by plain loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.streams.sources.replacements import FileSpan, Replacement, Replacements, disjoint, met

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair))), max_size=12)


@given(SPANS, st.integers(1, 5))
def test_spans_cover_what_they_are_made_of(spans: list[tuple[int, int]], most: int) -> None:
    exact, fewer = disjoint(spans), disjoint(spans, most)
    covered = {at for low, high in spans for at in range(low, high)}
    assert {at for low, high in exact for at in range(low, high)} == covered
    assert covered <= {at for low, high in fewer for at in range(low, high)} and len(fewer) <= most
    for pieces in (exact, fewer):
        assert all(before[1] <= after[0] for before, after in zip(pieces, pieces[1:], strict=False))


@given(SPANS, st.integers(0, 40), st.integers(1, 9))
def test_windows_that_meet_spans(spans: list[tuple[int, int]], start: int, length: int) -> None:
    starts = np.arange(start, start + 9)
    expected = [any(low < at + length and high > at for low, high in spans if low < high) for at in starts]
    assert met(disjoint(spans), starts, starts + length).tolist() == expected
    # and as a replacement is asked
    step = Replacement(1, (FileSpan("a", None, None),), (FileSpan("b", None, None),), disjoint(spans))
    undone = [Replacements([step]).undone({"b"}, int(at), int(at) + length) == {"a"} for at in starts]
    assert undone == [not each for each in expected]


def test_a_file_that_came_back_is_there_twice() -> None:
    """``a`` was replaced by ``b``; then both are there, and hold each event twice."""
    known = Replacements([Replacement(1, (FileSpan("a", 0, 9),), (FileSpan("b", 0, 9),), ((3, 4),))])
    assert known.undone({"b"}, 0, 3) == {"a"} != known.undone({"a", "b"}, 0, 3)
    assert known.undone({"b"}, 0, 4) == {"b"} and known.undone({"b", "c"}, 4, 9) == {"a", "c"}
    # of a file of which not all is taken nothing is known
    assert known.undone({"b|without [(0, 1)]"}, 0, 3) == {"b|without [(0, 1)]"}


Row = tuple[int, int]
"""(time, number)"""


@given(st.data())
def test_equal_names_stand_for_equal_events(data: st.DataObject) -> None:
    """Files of generated rows are rewritten again and again. Of any two states and any span: where the names are the
    same the rows are; and where every step is known and none changed a row of the span, the names are the same."""
    rows = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 2)), max_size=5)
    content = {name: data.draw(rows) for name in ("f0", "f1")}
    state, known, states = {"f0", "f1"}, list[Replacement](), []
    changes: list[tuple[set[int], bool]] = []

    def span(name: str) -> FileSpan:
        times = [at for at, _ in content[name]]
        return FileSpan(name, min(times, default=0), max(times, default=0) + 1)

    for number in range(data.draw(st.integers(1, 5))):
        states.append((set(state), Replacements(known)))
        removed = set(data.draw(st.lists(st.sampled_from(sorted(content)), max_size=3, unique=True))) & state
        before = sorted(row for name in removed for row in content[name])
        lost = data.draw(st.lists(st.sampled_from(before), max_size=2, unique=True)) if before else []
        added = data.draw(rows) if data.draw(st.booleans()) else []
        new_rows = [row for row in before if row not in lost] + added
        cut = data.draw(st.integers(0, len(new_rows)))
        came = {f"{number}a": new_rows[:cut], f"{number}b": new_rows[cut:]}
        # a file may also come back as it was, and then nothing is known of how
        back = set(data.draw(st.lists(st.sampled_from(sorted(content)), max_size=1))) - state
        content |= came
        times, is_known = {at for at, _ in (*lost, *added)}, data.draw(st.booleans()) and not back
        state = (state - removed) | came.keys() | back
        if is_known:
            changed = disjoint((at, at + 1) for at in times)
            known = [*known, Replacement(number, tuple(map(span, removed)), tuple(map(span, came)), changed)]
        changes.append((times, is_known))
    states.append((state, Replacements(known)))
    begin, end = sorted(data.draw(st.tuples(st.integers(0, 20), st.integers(0, 20))))

    def names(number: int) -> set[str]:
        files, replacements = states[number]
        return replacements.undone({name for name in files if span(name).meets(begin, end)}, begin, end)

    def events(number: int) -> list[Row]:
        return sorted(row for name in states[number][0] for row in content[name] if begin <= row[0] < end)

    for first in range(len(states)):
        for last in range(first, len(states)):
            if names(first) == names(last):
                assert events(first) == events(last)
            between = changes[first:last]
            if all(is_known and not any(begin <= at < end for at in times) for times, is_known in between):
                assert names(first) == names(last)
