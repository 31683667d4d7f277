"""Pieces of backfills and tasks on both sides of each boundary."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import DAY
from spark_jobs.pipeline.run.division import Slice, _bytes_before, _packed, by_bucket
from spark_jobs.pipeline.run.history import LISTED_AT_ONCE, MOST, _near, chunks
from spark_jobs.store.warehouse.data_files import BUCKETS


@pytest.mark.parametrize(
    ("begin", "end", "every", "expected"),
    [
        (0, 10, 10, [(0, 10)]),
        (0, 11, 10, [(0, 10), (10, 11)]),
        (3, 27, 10, [(3, 10), (10, 20), (20, 27)]),
        (9, 10, 10, [(9, 10)]),
        (-1, 1, 10, [(-1, 0), (0, 1)]),
        (0, 7 * DAY, 7 * DAY, [(0, 7 * DAY)]),
    ],
)
def test_a_backfill_is_cut_at_multiples(begin: int, end: int, every: int, expected: list[tuple[int, int]]) -> None:
    assert list(chunks(begin, end, every)) == expected


@pytest.mark.parametrize(
    ("begin", "end", "every", "message"),
    [
        (5, 5, 1, "the interval is empty"),
        (6, 5, 1, "the interval is empty"),
        (0, MOST + 1, 1, "more than 10,000 runs"),
        (0, 10 * (MOST + 1), 10, "more than 10,000 runs"),
    ],
)
def test_a_backfill_has_some_runs_and_not_too_many(begin: int, end: int, every: int, message: str) -> None:
    with pytest.raises(HeddleError, match=message):
        next(chunks(begin, end, every))


def test_a_backfill_may_have_exactly_the_most_runs() -> None:
    assert len(list(chunks(0, MOST, 1))) == MOST


def test_publications_of_a_week_are_listed_together() -> None:
    rows: Any = [SimpleNamespace(begin=begin, end=begin + DAY) for begin in range(0, 9 * DAY, DAY)]
    assert [len(piece) for piece in _near(rows)] == [7, 2]
    assert LISTED_AT_ONCE == 7 * DAY and list(_near([])) == []


@pytest.mark.parametrize(
    ("sizes", "piece", "least", "expected"),
    [
        # the largest first, each to the piece that has least
        ([5, 4, 3, 2], 7, 1, [{0, 3}, {1, 2}]),
        ([5, 4, 3, 2], 100, 1, [{0, 1, 2, 3}]),
        ([5, 4, 3, 2], 100, 2, [{0, 3}, {1, 2}]),
        ([5, 4, 3, 2], 1, 1, [{0}, {1}, {2}, {3}]),
        ([0, 0, 0, 0], 10, 2, [{0, 2}, {1, 3}]),
    ],
)
def test_buckets_are_packed_evenly(sizes: list[int], piece: float, least: int, expected: list[set[int]]) -> None:
    packed = _packed(list(range(len(sizes))), np.array(sizes, dtype=np.float64), piece, least)
    assert sorted(map(sorted, packed)) == sorted(map(sorted, expected))


def test_bytes_are_spread_evenly_over_the_span_of_a_row_group() -> None:
    groups: Any = [
        SimpleNamespace(begin=0, end=10, bytes=100, first=0, last=0),
        # half of these bytes are of another bucket
        SimpleNamespace(begin=5, end=15, bytes=200, first=0, last=1),
    ]
    times, before = _bytes_before(groups)
    assert (times.tolist(), before.tolist()) == ([0, 5, 10, 15], [0.0, 50.0, 150.0, 200.0])


def test_a_slice_needs_the_fragments_of_all_its_parts() -> None:
    parts: Any = (SimpleNamespace(begin=20, end=30), SimpleNamespace(begin=10, end=25))
    assert Slice(parts, 0, ()).fragments == (10, 30)
    assert by_bucket() == tuple(frozenset([bucket]) for bucket in range(BUCKETS))
