"""Which answers the windows of a query have, over which runs of cells, however many are computed at once."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.workload.instants import DAY
from optimizer.workload.values import Window
from spark_jobs.results.rows import AnswerRows, CarrierColumn
from spark_jobs.windows.finals import views
from spark_jobs.windows.finals.views import GroupChunk
from tests.sizes import examples


@dataclass(frozen=True)
class Case:
    """Cells of ``groups``, each with its fragments; ``windows``: of each part the fragments [low, high) of every
    instant; ``cuts``: instants at which a span begins; ``block``: answers at once."""

    groups: list[list[int]]
    windows: list[list[tuple[int, int]]]
    cuts: list[int]
    block: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    fragments = draw(st.integers(1, 12))
    some = st.lists(st.integers(0, fragments - 1), unique=True, max_size=fragments).map(sorted)
    groups = draw(st.lists(st.one_of(some, st.just(list(range(fragments)))), min_size=1, max_size=6))
    instants = draw(st.integers(1, 8))
    bounds = st.lists(st.integers(0, fragments), min_size=instants, max_size=instants).map(sorted)
    pairs = st.tuples(bounds, bounds).map(lambda pair: [(min(each), max(each)) for each in zip(*pair, strict=True)])
    cuts = draw(st.lists(st.integers(1, instants), unique=True).map(sorted))
    return Case(groups, draw(st.lists(pairs, min_size=1, max_size=3)), cuts, draw(st.sampled_from([1, 2, 3, 7, 100])))


def chunk_of(case: Case) -> GroupChunk:
    fragments = 1 + max((slot for group in case.groups for slot in group), default=0)
    bounds = np.array(case.windows, dtype=np.int64)
    view = SimpleNamespace(
        offsets=np.cumsum([0, *map(len, case.groups)]),
        slots=np.array([slot for group in case.groups for slot in group], dtype=np.int64),
        grid=np.arange(max(12, fragments)),
        windows=lambda windowed: (bounds[:, :, 0].copy(), bounds[:, :, 1].copy()),
    )
    return GroupChunk(view, 0, len(case.groups))  # type: ignore[arg-type]


def expected(case: Case, spans: list[tuple[int, int]]) -> list[Any]:
    """Span by span the group, the instant and the cells under each part, of those that have cells under any."""
    first_cells = np.cumsum([0, *map(len, case.groups)]).tolist()
    answers = []
    for first, last in spans:
        for number, slots in enumerate(case.groups):
            for instant in range(first, last):
                under = [
                    [first_cells[number] + at for at, slot in enumerate(slots) if low <= slot < high]
                    for low, high in (part[instant] for part in case.windows)
                ]
                if any(under):
                    answers.append((number, instant, under))
    return answers


@settings(max_examples=examples(200, 2000), deadline=None)
@given(cases())
def test_answers_come_by_span_group_and_instant_whatever_is_computed_at_once(case: Case) -> None:
    instants = len(case.windows[0])
    edges = sorted({0, *case.cuts, instants})
    spans = list(zip(edges, edges[1:], strict=False))
    windowed: Any = SimpleNamespace(block=case.block, instants=np.arange(instants), conditions=())
    answers = []
    for batch in chunk_of(case).answers(windowed, spans):
        assert len(batch.instants) <= case.block
        parts = [batch.runs.over(part) for part in range(len(case.windows))]
        for at, (group, instant) in enumerate(zip(batch.runs.group, batch.instants, strict=True)):
            answers.append((group, instant, [list(range(part.low[at], part.high[at])) for part in parts]))
    assert answers == expected(case, spans)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by the size of each batch of answers."""
    sizes: list[int] = []
    original = views.AnswerBatch

    def noting(*given: Any) -> Any:
        sizes.append(len(given[3]))
        return original(*given)

    monkeypatch.setattr(views, "AnswerBatch", noting)
    return sizes


def test_answers_of_many_spans_are_computed_at_once(batches: list[int]) -> None:
    case = Case([[0, 1, 2]] * 2, [[(at, at + 1) for at in range(3)]] * 2, [1, 2], 100)
    windowed: Any = SimpleNamespace(block=case.block, instants=np.arange(3), conditions=())
    assert len(list(chunk_of(case).answers(windowed, [(0, 1), (1, 2), (2, 3)]))) == 1
    assert batches == [6]


def test_a_day_has_its_answers_in_their_order_with_their_values_and_errors() -> None:
    instants = np.array([2 * DAY, DAY + 1, 1, 2 * DAY + 1, DAY])
    carried = {"longs": CarrierColumn(np.arange(10), np.arange(10) % 3 > 0, 2)}
    rows = AnswerRows(
        "s", "q", Window(DAY, DAY), pa.array(["[]"]), np.arange(5), instants, carried, {1: ["no"], 3: ["x"]}
    )
    days = dict(rows.by_day())
    assert list(days) == ["1970-01-01", "1970-01-02", "1970-01-03"]
    assert [day.group.tolist() for day in days.values()] == [[2, 4], [0, 1], [3]]
    assert [day.carried["longs"].values.tolist() for day in days.values()] == [[4, 5, 8, 9], [0, 1, 2, 3], [6, 7]]
    assert [day.errors for day in days.values()] == [{}, {1: ["no"]}, {0: ["x"]}]
    assert next(iter(days["1970-01-01"].by_day()))[1] is days["1970-01-01"]
