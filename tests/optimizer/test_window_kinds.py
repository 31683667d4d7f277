"""Kinds of windows: which one a query has, and what follows from it."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from optimizer.windows.alignment import instants, starts_of
from optimizer.workload import window_kinds
from optimizer.workload.event_patterns import Pattern
from optimizer.workload.values import (
    ACQ,
    DOUBLE,
    EARLIEST,
    LIFETIME,
    LONG,
    STRING,
    TIMESTAMP,
    Calendar,
    Output,
    Source,
    Stream,
    Window,
)
from optimizer.workload.values import SECOND as S
from optimizer.workload.window_kinds import ROWS, SEQUENCE, TIME, WindowKind

KINDS = [kind for kind in vars(window_kinds).values() if isinstance(kind, WindowKind)]

COUNT = Output("n", "count", None, None, LONG)
HOURLY, OF_TEN = Window(60 * S, 60 * S), Window(10, 5, per=("symbol",))
PATTERN = Pattern(("B", "A", "B"), "kind", ("symbol",))
STREAM = Stream(
    "trades",
    Source("parquet", "trades"),
    (("at", TIMESTAMP), ("symbol", STRING), ("kind", STRING), ("price", DOUBLE)),
    "at",
)
BY_TIME, BY_ROWS = ACQ("time", "trades", HOURLY, (COUNT,)), ACQ("rows", "trades", OF_TEN, (COUNT,))
OF_SEQUENCES = replace(BY_TIME, name="sequences", pattern=PATTERN)


def test_a_query_has_one_kind() -> None:
    assert (BY_TIME.kind, BY_ROWS.kind, OF_SEQUENCES.kind) == (TIME, ROWS, SEQUENCE)
    assert (HOURLY.kind, OF_TEN.kind) == (TIME, ROWS)


def test_only_event_sequences_have_a_pattern() -> None:
    assert OF_SEQUENCES.sequence == PATTERN and OF_SEQUENCES.columns() == ["kind", "symbol"]
    for query in (BY_TIME, BY_ROWS):
        with pytest.raises(ValueError, match=f"query {query.name} has no pattern"):
            _ = query.sequence


def test_costs_of_sequences_grow_with_a_power_of_the_rate() -> None:
    assert [query.combined_events for query in (BY_TIME, BY_ROWS, OF_SEQUENCES)] == [1, 1, 3]


def test_all_columns_decide_which_rows_a_window_has() -> None:
    assert BY_ROWS.columns() == ["symbol"]
    assert BY_ROWS.deciding_columns(STREAM) == ["at", "symbol", "kind", "price"]
    assert OF_SEQUENCES.deciding_columns(STREAM) == ["kind", "symbol"]


@pytest.mark.parametrize(
    "options",
    [{"ago": 1}, {"at_most": 5}, {"cumulative": True}, {"calendar": Calendar("UTC", (1, "day"), (1, "day"))}],
)
def test_windows_of_rows_are_plain(options: dict[str, object]) -> None:
    assert Window(10, 5, **options).range == 10  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="windows of rows"):
        Window(10, 5, per=(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"ago": -1}, "not negative"),
        ({"at_most": 4}, "refresh bound"),
        ({"at_most": 12}, "refresh bound"),
        ({"cumulative": True, "at_most": 5}, "have no bound"),
        ({"since": 0, "at_most": 5}, "since the first event"),
        ({"since": 0, "cumulative": True}, "since the first event"),
        ({"since": 0, "per": ()}, "since the first event"),
        ({"since": 0, "gap": 1, "per": ()}, "since the first event"),
    ],
)
def test_windows_of_time_that_cannot_be_are_refused(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Window(10, 5, **options)  # type: ignore[arg-type]


def test_windows_since_the_first_event_tumble_from_an_origin() -> None:
    life = Window(5, 5, 2, since=EARLIEST)
    (later,) = life.from_origin(100).each
    assert (later.since, later.range, later.has_origin, later.is_regular) == (100, 5, True, False)
    assert instants(later, 100, 112).tolist() == [105, 110] == instants(replace(life, since=None), 100, 112).tolist()
    assert starts_of(later, np.array([100, 101, 102, 110])).tolist() == [98, 99, 100, 100]
    both = Window.of_several([life, Window(10, 5)])
    assert both.from_origin(7).parts == (Window(10, 5), replace(life, since=7)) and both.has_origin
    assert (Window(10, 5).from_origin(7), Window(10, 5).has_origin) == (Window(10, 5), False)
    assert life.settles == 7 and both.settles == 10 and life.reach > 2 * LIFETIME


def test_the_origin_is_no_part_of_what_a_query_means() -> None:
    query = replace(BY_TIME, window=Window(5, 5, since=EARLIEST))
    assert query.from_origin(7).fingerprint == query.fingerprint != replace(query, window=Window(5, 5)).fingerprint
    assert query.from_origin(7).definition == query.definition


def test_kinds_are_equal_after_a_journey_to_a_worker() -> None:
    for kind in KINDS:
        assert pickle.loads(pickle.dumps(kind)) == kind
