"""The conditions of queries: computed from records alone, in any order of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.workload.instants import DAY, format_instant
from optimizer.workload.values import ACQ, LONG, SECOND, Output, Window
from spark_jobs.operations.conditions import GRACE, Bound, Condition, Watched, conditions
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.registry import QueryEvent, Registered
from tests.sizes import examples

HOUR = 3600 * SECOND
START = 20_000 * DAY
COUNT = (Output("n", "count", None, None, LONG),)


def registered(name: str, stream: str = "trades", since: int = START - 30 * DAY, paused: bool = False) -> Registered:
    acq = ACQ(name, stream, Window(HOUR, HOUR), COUNT, owner=f"owner of {name}")
    return Registered(QueryEvent.of(acq, "registered", since, 1, ""), since, paused)


QUERIES = {"a": registered("a"), "b": registered("b"), "c": registered("c", "quotes")}


def row(number: int, event: str = "published", hours: int = 1, **told: Any) -> LogRow:
    """A run over the hour ``number``, which ends ten minutes after it."""
    begin, end = START + number * HOUR, START + (number + hours) * HOUR
    record = {"answers": 10, "queries": 3, "status": event, "diagnostics": [], **told}
    times = {"begin": format_instant(begin), "end": format_instant(end)}
    place = (begin, end, 1, f"run {number}", event, 1, "content", 10, number, end + 600 * SECOND)
    return LogRow(*place, json.dumps(record | times))  # type: ignore[arg-type]


def error(code: str, message: str, query: str = "", severity: str = "error") -> dict[str, Any]:
    return {"code": code, "message": message, "hint": "do this", "query": query, "severity": severity}


def keys(rows: Sequence[LogRow], now: int = START + 10 * HOUR, **more: Any) -> list[tuple[str, str, str]]:
    return [condition.key for condition in conditions(Watched(now, more.pop("queries", QUERIES), rows, **more))]


def only(rows: Sequence[LogRow], **more: Any) -> Condition:
    (condition,) = conditions(Watched(START + 10 * HOUR, QUERIES, rows, **more))
    return condition


NO_EVENTS = "stream quotes has no events in [2013-07-01T00:00:00Z, 2013-07-02T00:00:00Z)"


def test_a_stream_that_cannot_be_read_fails_its_queries_until_the_interval_is_answered() -> None:
    failed = row(1, failed=["quotes"], diagnostics=[error("HDL-404", "stream quotes: column price is no double")])
    condition = only([row(0), failed, row(2)])
    assert condition.key == ("c", "failed", "HDL-404") and condition.owner == "owner of c"
    assert (condition.since, condition.begin, condition.end) == (failed.at, failed.begin, failed.end)
    assert condition.hint == "do this" and "column price is no double" in condition.message
    repaired = replace(row(1), at=START + 5 * HOUR)
    assert keys([row(0), failed, row(2), repaired]) == []
    # one later run may cover it, or several together
    assert keys([row(0), failed, row(1, hours=2)]) == []
    assert keys([row(0), row(1, "failed", 2, diagnostics=[error("HDL-901", "memory")]), *later(1, 2)]) == []


def later(*numbers: int) -> list[LogRow]:
    return [replace(row(number), at=START + 9 * HOUR + number) for number in numbers]


def test_a_query_that_fails_alone_is_told_of_alone() -> None:
    failed = row(1, diagnostics=[error("HDL-610", "too large", "b")])
    assert keys([row(0), failed]) == [("b", "failed", "HDL-610")]
    both = row(2, diagnostics=[error("HDL-610", "too large", "b")])
    assert "and 1 earlier interval" in only([row(0), failed, both]).message
    assert only([row(0), failed, both]).since == failed.at


def test_failed_checks_block_every_query_of_the_run() -> None:
    blocked = row(1, "failed", diagnostics=[error("HDL-530", "the checks failed: shared=unshared(a)")])
    assert keys([row(0), blocked]) == [(name, "blocked", "HDL-530") for name in "abc"]
    # queries that were registered later were not to be answered
    assert keys([blocked], queries={"new": registered("new", since=blocked.at + 1)}) == []
    assert keys([blocked], queries={"a": registered("a", paused=True)}) == []


def test_runs_that_were_called_wrongly_or_came_second_are_nobodys_alert() -> None:
    for code in ("HDL-476", "HDL-903", "HDL-541"):
        assert keys([row(0), row(1, "failed", diagnostics=[error(code, "no")])]) == [], code


def test_a_repair_that_fails_leaves_answers_and_is_over_with_the_next_good_run() -> None:
    again = replace(row(0, "failed", diagnostics=[error("HDL-404", "wrong")]), at=START + 3 * HOUR)
    assert keys([row(0), again]) == [(name, "failed", "HDL-404") for name in "abc"]
    assert keys([row(0), again, replace(row(1), at=START + 4 * HOUR)]) == []


def test_a_query_is_late_beyond_its_bound() -> None:
    live = row(5, live=True)
    bounds = {name: Bound(HOUR, live.end) for name in "ab"}
    deadline = live.end + HOUR + GRACE
    queries = {name: QUERIES[name] for name in "ab"}
    assert keys([live], deadline, live=live, bounds=bounds, queries=queries) == []
    late = [(name, "late", "HDL-636") for name in "ab"]
    assert keys([live], deadline + 1, live=live, bounds=bounds, queries=queries) == late
    # late events are waited for
    assert keys([live], deadline + 1, live=live, bounds=bounds, queries=queries, delay=HOUR) == []
    answered_late = row(5, live=True, lateness={"a": 30 * SECOND})
    told = {"live": answered_late, "bounds": bounds, "queries": queries}
    assert keys([answered_late], live.end, **told) == [("a", "late", "HDL-636")]


def test_a_query_without_a_bound_is_late_by_a_day() -> None:
    live = row(0, live=True, hours=24)
    queries = {"a": QUERIES["a"]}
    assert keys([live], live.end + 2 * DAY + GRACE, live=live, queries=queries) == []
    assert keys([live], live.end + 2 * DAY + GRACE + 1, live=live, queries=queries) == [("a", "late", "HDL-636")]
    # nothing is overdue where nobody runs live
    assert keys([live], live.end + 9 * DAY, queries=queries) == []


def test_a_stream_is_silent_after_three_runs_or_a_day_without_events() -> None:
    def quiet(number: int, hours: int = 1) -> LogRow:
        return row(number, hours=hours, diagnostics=[error("HDL-413", NO_EVENTS, severity="warning")])

    assert keys([row(0), quiet(1), quiet(2)]) == []
    assert keys([row(0), quiet(1), quiet(2), quiet(3)]) == [("c", "silent", "HDL-413")]
    assert keys([row(0), quiet(1), quiet(2), quiet(3), row(4)]) == []
    assert keys([row(0), quiet(1, 24)]) == [("c", "silent", "HDL-413")]


def test_a_query_is_silent_that_always_had_answers_or_never() -> None:
    def empty(number: int) -> LogRow:
        return row(number, empty=["a"])

    had = [row(0), row(1), row(2)]
    assert keys([*had, empty(3), empty(4)]) == []
    silent = [("a", "silent", "HDL-637")]
    assert keys([*had, empty(3), empty(4), empty(5)]) == silent
    assert keys([*had, empty(3), empty(4), empty(5), row(6)]) == []
    # a query that answers now and then is as it was
    assert keys([row(0), empty(1), row(2), empty(3), empty(4), empty(5)]) == []
    assert keys([row(0), empty(1), row(2), empty(3), empty(4), empty(5)], known=silent) == silent
    new = {"a": registered("a", since=START)}
    assert keys([empty(0), empty(1), empty(2)], queries=new) == silent
    # where no query has answers, it is not this one
    nothing = [row(number, empty=["a"], answers=0) for number in (3, 4, 5)]
    assert keys([*had, *nothing]) == []


_RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "failed": st.just(["quotes"]),
        "empty": st.lists(st.sampled_from("abc"), unique=True, max_size=2),
        "live": st.booleans(),
        "diagnostics": st.lists(
            st.sampled_from(
                [
                    error("HDL-404", "stream quotes: wrong"),
                    error("HDL-610", "too large", "b"),
                    error("HDL-530", "the checks failed"),
                    error("HDL-413", NO_EVENTS, severity="warning"),
                ]
            ),
            max_size=2,
        ),
    },
)
_ROWS = st.tuples(st.integers(0, 6), st.sampled_from(["published", "failed"]), st.integers(1, 3), _RECORDS)


@given(data=st.data(), drawn=st.lists(_ROWS, max_size=8))
@settings(max_examples=examples(60), deadline=None)
def test_the_order_of_the_records_decides_nothing(data: st.DataObject, drawn: list[Any]) -> None:
    rows = [
        replace(row(number, event, hours, **told), at=START + 9 * HOUR + place)
        for place, (number, event, hours, told) in enumerate(drawn)
    ]
    seen = Watched(START + 20 * HOUR, QUERIES, rows)
    found = conditions(seen)
    assert conditions(replace(seen, rows=data.draw(st.permutations(rows)))) == found
    assert len({condition.key for condition in found}) == len(found)
    if drawn and drawn[-1][1] == "failed" and not drawn[-1][3].get("diagnostics"):
        # what has failed last is told of
        assert {condition.query for condition in found if condition.kind == "failed"} == set(QUERIES)
