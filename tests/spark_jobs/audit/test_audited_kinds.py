"""How the audit judges each kind of window: which windows answers may be of, and what is recomputed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optimizer.workload.event_patterns import Pattern
from optimizer.workload.values import ACQ, LONG, STRING, Calendar, Condition, Literal, Output, Window
from spark_jobs.audit.checks.kinds import AUDITS, AnsweredWindows, AnswerTimes, AuditedKind
from spark_jobs.audit.checks.sampling import Past
from spark_jobs.store.warehouse.data_files import BUCKETS

COUNT = Output("n", "count", None, None, LONG)
BY_TIME = ACQ("time", "trades", Window(10, 5), (COUNT,), group_by=(("symbol", STRING), ("kind", STRING)))
BY_ROWS = replace(BY_TIME, name="rows", window=Window(4, 2, per=("kind",)))
OF_SEQUENCES = replace(BY_TIME, name="sequences", pattern=Pattern(("A", "B"), "type", ()))
HAVING = (Condition(COUNT, ">", Literal(1, LONG)),)


def audit_of(query: ACQ) -> AuditedKind:
    return AUDITS[query.kind]


def times(starts: Any, ends: Any, instants: Any, positions: Any = -1) -> AnswerTimes:
    columns = np.broadcast_arrays(*(np.array(column, dtype=np.int64) for column in (starts, ends, instants, positions)))
    return AnswerTimes(*(np.atleast_1d(column) for column in columns))


@pytest.mark.parametrize(
    ("query", "exists"),
    [(BY_TIME, True), (BY_ROWS, True), (OF_SEQUENCES, None), (replace(BY_TIME, having=HAVING), None)],
)
def test_values_decide_whether_sequences_and_conditions_have_answers(query: ACQ, exists: bool | None) -> None:
    assert audit_of(query).exists(query) is exists


def test_rows_are_recomputed_key_by_key() -> None:
    assert [audit_of(query).by_key for query in (BY_TIME, BY_ROWS, OF_SEQUENCES)] == [False, True, False]
    assert [audit_of(query).fixes_starts for query in (BY_TIME, BY_ROWS, OF_SEQUENCES)] == [True, False, True]
    assert audit_of(BY_TIME).bucketed_by(BY_TIME) == ["symbol", "kind"]
    assert audit_of(BY_ROWS).bucketed_by(BY_ROWS) == ["kind"]
    assert audit_of(BY_ROWS).bucketed_by(replace(BY_ROWS, window=Window(4, 2, per=()))) == []


def test_files_of_each_kind_have_buckets_of_their_own() -> None:
    queries = (BY_TIME, BY_ROWS, OF_SEQUENCES, replace(OF_SEQUENCES, group_by=()))
    assert [audit_of(query).first_bucket(query) // BUCKETS for query in queries] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("at", "is_wrong"),
    [
        ((0, 10, 10), False),
        # the instant is behind the last row by a microsecond, and within the interval
        ((0, 10, 9), True),
        ((0, 10, 11), True),
        ((10, 10, 10), True),
        ((9, 10, 10), False),
        ((0, 5, 5), True),
        ((0, 6, 6), False),
        ((0, 20, 20), False),
        ((0, 21, 21), True),
    ],
)
def test_windows_of_rows_end_in_the_interval_behind_their_starts(at: tuple[int, int, int], is_wrong: bool) -> None:
    assert audit_of(BY_ROWS).misplaced(BY_ROWS.window, times(*at), 5, 20).tolist() == [is_wrong]


def test_windows_of_rows_are_numbered_by_their_slide() -> None:
    grid = audit_of(BY_ROWS).grid(BY_ROWS.window, times([7, 8], 9, 9, [0, 2]), 5, 20)
    assert grid.instants.tolist() == grid.starts.tolist() == grid.ends.tolist() == [0, 2]
    assert (grid.range, grid.slide, grid.ago, grid.begin) == (0, 2, 0, -1) and grid.until >= 2**62


@pytest.mark.parametrize("query", [BY_TIME, OF_SEQUENCES])
def test_windows_of_time_lie_where_the_query_says(query: ACQ) -> None:
    window = replace(query.window, ago=3)
    grid = audit_of(query).grid(window, times(0, 10, 13), 5, 20)
    assert grid[3:] == (10, 5, 3, 5, 20)
    at_window = replace(query.window, at=(15,))
    assert audit_of(query).misplaced(at_window, times([5, 0], [15, 10], [15, 10]), 5, 20).tolist() == [False, True]
    assert not audit_of(query).misplaced(query.window, times([5, 1], [15, 10], [15, 10]), 5, 20).any()


def test_windows_of_a_calendar_lie_between_midnights() -> None:
    window = Window.of_calendar(Calendar("UTC", (1, "day"), (1, "day")))
    day = 86_400_000_000
    answers = times([0, 0, day, 1], [day, day, 2 * day, day], [day, day + 1, 2 * day, day])
    assert audit_of(BY_TIME).misplaced(window, answers, 0, day).tolist() == [False, True, True, True]
    assert audit_of(BY_TIME).grid(window, answers, 0, day)[3:] == (0, 1, 0, 0, day)


def test_instants_of_windows() -> None:
    answered = AnsweredWindows.of(
        [
            AnsweredWindows(*times([0, 5], [10, 15], [10, 15], [4, 6])[:4], np.array([False, True]), ["a", "b"]),
            AnsweredWindows(*times(0, 10, 10, 8)[:4], np.array([False]), ["c"]),
        ]
    )
    nothing = np.zeros(0, np.int64)

    def due() -> Any:
        return np.array([15, 20], dtype=np.int64)

    of_time = audit_of(BY_TIME).units(BY_TIME, answered, nothing, 5, due, Past())
    assert (of_time.starts.tolist(), of_time.ends.tolist()) == ([0, 5, 10], [10, 15, 20])
    assert of_time.answers.tolist() == [2, 1, 0] and of_time.strata["empty"].tolist() == [False, False, True]
    assert of_time.strata["null"].tolist() == [False, True, False]
    assert of_time.strata["interval"].tolist() == [True, False, False]
    assert audit_of(BY_TIME).last_instants(of_time).tolist() == [10, 15, 20]
    of_rows = audit_of(BY_ROWS).units(BY_ROWS, answered, nothing, 5, due, Past())
    assert of_rows.positions is not None and of_rows.positions.tolist() == [4, 8, 6]
    assert (of_rows.keys, of_rows.answers.tolist()) == (("a", "c", "b"), [1, 1, 1])
    assert audit_of(BY_ROWS).last_instants(of_rows).tolist() == [9, 9, 14]


def test_a_recomputation_reads_the_events_of_the_drawn_windows_or_keys() -> None:
    events: Any = type("Events", (), {"rows": np.array([300, 50])})
    examples = np.array([10.0, 20.0])
    assert audit_of(BY_TIME).events_read(examples, events, 2, 100) == 45
    assert audit_of(BY_TIME).events_read(examples[:0], events, 2, 100) == 0
    assert audit_of(BY_ROWS).events_read(examples, events, 2, 100) == 100
    assert audit_of(BY_ROWS).events_read(examples, events, 2, 1000) == 350
    assert [audit_of(query).is_restricted(replace(query, group_by=())) for query in (BY_TIME, BY_ROWS)] == [False, True]
