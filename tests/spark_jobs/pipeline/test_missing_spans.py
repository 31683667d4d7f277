"""What of a span of a synopsis is not stored, by hand. Pieces named ``now`` are of the source as it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.windows.alignment import Fragments
from optimizer.workload.instants import FAR_APART
from optimizer.workload.values import Window
from spark_jobs.windows.partials import stored_coverage
from spark_jobs.windows.partials.stored_coverage import _within, missing_spans, span_of

Pieces = list[tuple[int, int, str]]
FAR = FAR_APART


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([], [(10, 50)]),
        ([(10, 50, "now")], []),
        ([(0, 60, "now")], []),
        ([(0, 10, "now")], [(10, 50)]),
        ([(50, 60, "now")], [(10, 50)]),
        ([(0, 11, "now")], [(11, 50)]),
        ([(49, 60, "now")], [(10, 49)]),
        ([(10, 30, "now"), (30, 50, "now")], []),
        ([(10, 30, "now"), (20, 50, "now")], []),
        # one piece inside another
        ([(10, 40, "now"), (20, 30, "now")], [(40, 50)]),
        ([(10, 40, "now"), (10, 20, "now"), (40, 50, "now")], []),
        # the gap between two pieces, and one request over a piece that is not far
        ([(10, 20, "now"), (30, 50, "now")], [(20, 30)]),
        ([(20, 30, "now")], [(10, 50)]),
        # of another state of the source: replaced as a whole
        ([(10, 50, "before")], [(10, 50)]),
        ([(0, 20, "before"), (20, 50, "now")], [(0, 20)]),
        ([(0, 10, "before")], [(10, 50)]),
        ([(40, 90, "before")], [(10, 90)]),
    ],
)
def test_gaps_between_stored_pieces_are_missing(
    monkeypatch: pytest.MonkeyPatch, pieces: Pieces, expected: list[tuple[int, int]]
) -> None:
    assert missing(monkeypatch, 10, 50, pieces) == expected


def test_gaps_far_apart_are_requests_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    near, far = [(20, 20 + FAR, "now")], [(20, 21 + FAR, "now")]
    assert missing(monkeypatch, 10, 30 + FAR, near) == [(10, 30 + FAR)]
    assert missing(monkeypatch, 10, 30 + FAR, far) == [(10, 20), (21 + FAR, 30 + FAR)]


def test_without_trust_all_of_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing(monkeypatch, 10, 50, [(0, 60, "now")], trust=False) == [(0, 60)]


def missing(
    monkeypatch: pytest.MonkeyPatch, begin: int, end: int, pieces: Pieces, trust: bool = True
) -> list[tuple[int, int]]:
    monkeypatch.setattr(stored_coverage, "stored_for", lambda *_: lambda name, first, last: name == "now")
    part: Any = SimpleNamespace(synopsis=None, begin=begin, end=end)
    return [(request.begin, request.end) for request in missing_spans(part, pieces, [], trust)]


def test_the_span_of_parts_holds_them_all() -> None:
    parts: Any = [SimpleNamespace(begin=begin, end=end) for begin, end in ((20, 30), (10, 25))]
    assert (span_of(parts), span_of([])) == ((10, 30), (0, 0))


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ((20, 40), (20, 40)),
        ((19, 41), (20, 40)),
        ((21, 40), (30, 40)),
        ((20, 39), (20, 30)),
        ((-50, 500), (0, 100)),
        # nothing whole: the end is not after the begin
        ((21, 29), (30, 20)),
        ((100, 120), (100, 100)),
        ((-20, 0), (0, 0)),
    ],
)
def test_a_stored_run_gives_whole_fragments_of_a_gap(run: tuple[int, int], expected: tuple[int, int]) -> None:
    gap: Any = SimpleNamespace(synopsis=SimpleNamespace(fragments=Fragments.of([Window(10, 10)])), begin=0, end=100)
    assert _within(gap, run) == expected
