"""Conditions of queries that somebody has to know of: failed, blocked, late, silent, unexpected.

:func:`conditions` computes them from what the warehouse records, and reads no clock: the same records and moment give
the same conditions, in any order of the records. :func:`watched` reads the records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from optimizer.errors.codes import exit_code
from optimizer.errors.diagnostics import count as number_of
from optimizer.plan.rhythms import rhythms
from optimizer.workload.instants import DAY, duration_text, format_instant
from optimizer.workload.values import SECOND
from spark_jobs.pipeline.planning.live_runs import frontier, in_force
from spark_jobs.pipeline.run.publication import is_due
from spark_jobs.store.warehouse import publish_log, registry
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.registry import Registered
from spark_jobs.store.warehouse.schemas import INSTANT
from spark_jobs.store.warehouse.warehouse import Warehouse

Kind = Literal["failed", "blocked", "late", "silent", "unexpected", "test"]
"""What is wrong; ``test``: nothing, somebody tries a channel."""

LOOKED_AT = 300
"""The newest runs that are looked at: a day of refreshes every five minutes."""

LOOKED_BACK = 7 * DAY
"""Time (microseconds) for which runs are looked at; a hole that was reported is looked at until it is filled."""

BLOCKING = ("HDL-530", "HDL-531")
"""Codes of checks that keep an interval unpublished."""

UNPUBLISHED = (*BLOCKING, publish_log.BLOCKED)
"""Codes of checks that keep answers unpublished, of all queries or of one."""

NOT_OF_QUERIES = ("HDL-510", "HDL-512", "HDL-541", "HDL-903")
"""Codes of runs that ended because another one was first, or because somebody stopped them."""

LATE, WITHOUT_ANSWERS, WITHOUT_EVENTS = "HDL-636", "HDL-637", "HDL-413"

UNEXPECTED = "HDL-565"
"""Code of answers that were published although they are not what their owner expects."""

GRACE = 60 * SECOND
"""Time that an answer may take (microseconds) beyond that of the newest run, before the query is overdue."""

STREAK = 3
"""Runs in a row that have to be without events or answers, unless they cover a day."""

Key = tuple[str, Kind, str]
"""Query, kind and code: what stays the same of a condition for as long as it lasts."""


@dataclass(frozen=True)
class Condition:
    """Something that is wrong with a query.

    ``since``: when it began, as far as the records go back; ``begin``, ``end``: the event time that it concerns (all in
    microseconds; 0: none); ``hint``: what to do.
    """

    query: str
    kind: Kind
    code: str
    owner: str
    since: int
    begin: int
    end: int
    message: str
    hint: str

    @property
    def key(self) -> Key:
        return self.query, self.kind, self.code


@dataclass(frozen=True)
class Bound:
    """Refresh bound of a query: ``at_most`` between two answers; ``answered``: the instant of its newest answer; None:
    it has none (microseconds)."""

    at_most: int
    answered: int | None


@dataclass(frozen=True)
class Watched:
    """Records that decide the conditions at the moment ``now`` (microseconds).

    - ``queries``: the registered ones by name;
    - ``rows``: runs that were published or failed, with their records;
    - ``live``: the newest live publication; None: there are no live runs;
    - ``bounds``: of the queries with a refresh bound in the plan in force;
    - ``delay``: the time that late events are given;
    - ``known``: the conditions that were reported and did not end.
    """

    now: int
    queries: Mapping[str, Registered]
    rows: Sequence[LogRow] = ()
    live: LogRow | None = None
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    delay: int = 0
    known: Collection[Key] = ()


def watched(warehouse: Warehouse, now: int, known: Mapping[Key, tuple[int, int]]) -> Watched:
    """Read what decides the conditions. ``known``: the reported conditions that did not end, with the event time that
    each concerns.
    """
    ended = ds.field("event").isin(["published", "failed"])
    lately = ended & (ds.field("at") > pa.scalar(now - LOOKED_BACK, INSTANT))
    rows = dict.fromkeys(publish_log.newest_rows(warehouse, "at", lately, LOOKED_AT))
    holes = {hole for (_, kind, _), hole in known.items() if kind in ("failed", "blocked") and hole[0] < hole[1]}
    for begin, end in sorted(holes):
        # whether a hole is filled shows in whatever overlaps it, however old
        rows |= dict.fromkeys(publish_log.overlapping(warehouse, begin, end, ended))
    reached, active = frontier(warehouse), in_force(warehouse)
    live = _newest_live(warehouse, reached) if reached is not None else None
    refreshed = live.record.refreshed if live is not None else {}
    bounds = {
        rhythm.query: Bound(rhythm.bound, refreshed.get(rhythm.query))
        for schedule in (active.schedules if active is not None else ())
        for rhythm in rhythms(schedule)
    }
    delay = active.delay if active is not None else 0
    return Watched(now, registry.live(warehouse), tuple(rows), live, bounds, delay, frozenset(known))


def _newest_live(warehouse: Warehouse, reached: int) -> LogRow | None:
    rows = publish_log.rows(warehouse, publish_log.PUBLISHED & publish_log.ends_at(reached))
    return max((row for row in rows if row.record.live), key=lambda row: row.at, default=None)


def conditions(seen: Watched) -> list[Condition]:
    """The conditions of all running queries, by query, kind and code."""
    running = {name: query for name, query in seen.queries.items() if query.state(seen.now) == "running"}
    rows = sorted(seen.rows, key=lambda row: (row.at, row.begin, row.end, row.revision, row.run_id))
    troubles = {row: _troubles(row, running) for row in rows if row.event == "failed" or _has_errors(row)}
    all_conditions = [
        *_unanswered(running, rows, troubles),
        *_late(seen, running, rows),
        *_silent(seen, running, rows, troubles),
        *_unexpected(running, rows),
    ]
    return sorted(all_conditions, key=lambda condition: condition.key)


# ---------------------------------------------------------------------------------------- failed, blocked
class _Trouble(NamedTuple):
    """Reason why a run has not answered a query."""

    kind: Kind
    code: str
    message: str
    hint: str


_Troubles = Mapping[LogRow, Mapping[str, _Trouble]]
"""Of the runs that had any: their troubles by query."""


def _unanswered(running: Mapping[str, Registered], rows: Sequence[LogRow], troubles: _Troubles) -> Iterator[Condition]:
    """Conditions of queries that a run has not answered, and none after it."""
    # many queries fail together: what is open is computed once for all that failed in the same runs
    together: dict[tuple[_Trouble | None, ...], list[str]] = {}
    for name in running:
        together.setdefault(tuple(of_row.get(name) for of_row in troubles.values()), []).append(name)
    for of_rows, names in together.items():
        own = dict(zip(troubles, of_rows, strict=True))
        holes: dict[tuple[Kind, str], list[tuple[LogRow, _Trouble]]] = {}
        for row, trouble in own.items():
            if trouble is not None and not _is_answered(row, rows, own):
                holes.setdefault((trouble.kind, trouble.code), []).append((row, trouble))
        for (kind, code), open_rows in holes.items():
            newest, trouble = open_rows[-1]
            begin, end = min(row.begin for row, _ in open_rows), max(row.end for row, _ in open_rows)
            for name in names:
                yield Condition(
                    *(name, kind, code, running[name].last.owner, open_rows[0][0].at, begin, end),
                    _told(name, newest, trouble, len({(row.begin, row.end) for row, _ in open_rows})),
                    trouble.hint or "`heddle status` shows the run; run the interval again once the cause is gone",
                )


def _told(name: str, row: LogRow, trouble: _Trouble, intervals: int) -> str:
    was = "was not published" if trouble.kind == "blocked" else "was not answered"
    more = f" (and {number_of(intervals - 1, 'earlier interval')})" if intervals > 1 else ""
    return f"{name} {was} for {row.interval.replace('/', ' to ')}{more}: {trouble.message}"


def _troubles(row: LogRow, running: Mapping[str, Registered]) -> dict[str, _Trouble]:
    """Reasons why a run has not answered queries, by query; queries that were registered after it are not in it."""
    errors = [stored for stored in row.record.diagnostics if stored["severity"] == "error"]
    of_query = {stored["query"]: stored for stored in reversed(errors) if stored.get("query")}
    common = [stored for stored in errors if not stored.get("query")]
    of_stream = {name: _of_stream(name, common, len(row.record.failed)) for name in row.record.failed}
    of_run = (common or errors or [_UNKNOWN])[0] if row.event == "failed" else None
    troubles = {}
    for name, query in running.items():
        if query.since > row.at:
            continue
        stored = (
            of_query.get(name)
            or _of_blocked(row, name)
            or (of_stream.get(query.query.stream) if of_stream else None)
            or of_run
        )
        if of_run is not None and of_run["code"] in BLOCKING:
            stored = of_run
        if stored is None or stored["code"] in NOT_OF_QUERIES or _is_wrong_call(stored["code"]):
            continue
        kind: Kind = "blocked" if stored["code"] in UNPUBLISHED else "failed"
        troubles[name] = _Trouble(kind, stored["code"], stored["message"], stored.get("hint", ""))
    return troubles


def _of_blocked(row: LogRow, name: str) -> Mapping[str, Any] | None:
    """The finding that blocks a query, if it is about its stream."""
    texts = row.record.blocked.get(name)
    hint = "correct the events and `heddle repair`, or publish the answers: `heddle release`"
    return {"code": publish_log.BLOCKED, "message": f"expected {'; '.join(texts)}", "hint": hint} if texts else None


def _has_errors(row: LogRow) -> bool:
    return row.record.has_failed or bool(row.record.blocked)


_UNKNOWN = {"code": "HDL-900", "message": "the run failed", "hint": ""}


def _is_wrong_call(code: str) -> bool:
    return code.startswith("HDL-") and exit_code(code) == 2


def _of_stream(name: str, errors: Sequence[Mapping[str, Any]], failed: int) -> Mapping[str, Any]:
    """The error of a stream that could not be read; messages name their stream first."""
    about = (stored for stored in errors if stored["message"].startswith((f"stream {name}:", f"stream {name} ")))
    return next(about, errors[0] if errors and failed == 1 else _UNKNOWN | {"message": f"stream {name} failed"})


def _is_answered(row: LogRow, rows: Sequence[LogRow], troubles: Mapping[LogRow, _Trouble | None]) -> bool:
    """Return whether runs after one have answered its interval; if it had answers before, whether any run has been
    without trouble since, over an interval that ends as late.
    """
    later = [other for other in rows if other.at > row.at and _is_good(other, troubles)]
    at = row.begin
    for other in sorted(later, key=lambda other: other.begin):
        at = max(at, other.end) if other.begin <= at else at
    if at >= row.end:
        return True
    had = any(other.begin <= row.begin and other.end >= row.end and _is_good(other, troubles) for other in rows)
    return had and any(other.end >= row.end for other in later)


def _is_good(row: LogRow, troubles: Mapping[LogRow, _Trouble | None]) -> bool:
    return row.event == "published" and troubles.get(row) is None


# --------------------------------------------------------------------------------------------------- late
def _late(seen: Watched, running: Mapping[str, Registered], rows: Sequence[LogRow]) -> Iterator[Condition]:
    """Conditions of queries that are overdue, or were answered too late by the newest live run."""
    if seen.live is None:
        return
    live, record = seen.live, seen.live.record
    grace = GRACE + round(sum(record.wall_seconds.values()) * SECOND)
    live_rows = [row for row in rows if row.event == "published" and row.record.live]
    for name, query in running.items():
        bound = seen.bounds.get(name)
        answered = bound.answered if bound is not None else live.end
        # without a bound it is answered by midnight: late once the next day is due as well
        at_most = bound.at_most if bound is not None else 2 * DAY
        is_new = answered is None or (bound is None and query.since > answered)
        first = max(query.since - seen.delay, live.end) if is_new or answered is None else answered
        deadline = first + at_most + seen.delay + grace
        hint = "is Airflow, or `heddle tick`, running? `heddle status` shows the last runs"
        if seen.now > deadline:
            last = "it has no answer yet" if is_new else f"its newest answer is of {format_instant(first)}"
            request = f" and SLIDE AT MOST '{duration_text(at_most)}' was request" if bound is not None else ""
            message = f"{name} is overdue since {format_instant(deadline)}: {last}"
            yield Condition(name, "late", LATE, query.last.owner, deadline, first, first, message + request, hint)
        elif name in record.lateness:
            since, late = live.at, duration_text(record.lateness[name])
            for row in sorted(live_rows, key=lambda row: row.end, reverse=True):
                if name not in row.record.lateness:
                    break
                since = min(since, row.at)
            message = f"{name} was answered {late} later than its bound, for {live.interval.replace('/', ' to ')}"
            hint = "runs take longer than their refreshes are apart: `heddle status` shows what they take"
            yield Condition(name, "late", LATE, query.last.owner, since, live.begin, live.end, message, hint)


# ------------------------------------------------------------------------------------------------- silent
def _silent(
    seen: Watched, running: Mapping[str, Registered], rows: Sequence[LogRow], troubles: _Troubles
) -> Iterator[Condition]:
    """Conditions of queries whose stream brings no events, or that have no answers although others have."""
    newest: dict[tuple[int, int], LogRow] = {}
    for row in rows:
        if row.event == "published":
            newest[row.begin, row.end] = row
    published = sorted(newest.values(), key=lambda row: (row.end, row.at), reverse=True)
    quiet: dict[str, list[LogRow]] = {}
    empty = frozenset[str]().union(*(row.record.empty for row in published))
    for name, query in sorted(running.items()):
        stream = query.query.stream
        if stream not in quiet:
            quiet[stream] = _quiet(stream, published)
        of_stream = [row for row in quiet[stream] if row.at >= query.since]
        if _is_long(of_stream):
            stored = _silence_of(stream, of_stream[0])[0]
            yield _silence(name, query, WITHOUT_EVENTS, of_stream, f"{name}: {stored['message']}", stored["hint"])
        elif name in empty:
            # a run that failed to answer a query does not tell whether there is an answer
            answered = [row for row in published if name not in troubles.get(row, {})]
            yield from _without_answers(seen, name, query, answered)


def _unexpected(running: Mapping[str, Registered], rows: Sequence[LogRow]) -> Iterator[Condition]:
    """Conditions of queries whose answers were published with a warning by the run with the newest interval."""
    published = sorted((row for row in rows if row.event == "published"), key=lambda row: (row.end, row.at))
    if not published:
        return
    warned = [_warned(row) for row in published[::-1]]
    for name, message in warned[0].items():
        if name not in running or running[name].since > published[-1].at:
            continue
        streak = published[::-1][: _leading(name, warned)]
        since, begin = min(row.at for row in streak), min(row.begin for row in streak)
        span = published[-1].interval.replace("/", " to ")
        hint = "look at the rows that are named; the page of the query has what was observed over time"
        about = f"{name} was published for {span}, but {message}"
        yield Condition(
            name, "unexpected", UNEXPECTED, running[name].last.owner, since, begin, streak[0].end, about, hint
        )


def _leading(name: str, sets: Iterable[Collection[str]]) -> int:
    """Number of the first sets in a row that have a name."""
    return sum(1 for _ in takewhile(lambda each: name in each, sets))


def _warned(row: LogRow) -> dict[str, str]:
    """The first warning of a run about what the owner of each query expects, by query."""
    warnings = [stored for stored in row.record.diagnostics if stored["code"] == UNEXPECTED and stored["query"]]
    return {stored["query"]: stored["message"] for stored in reversed(warnings)}


def _quiet(stream: str, published: Iterable[LogRow]) -> list[LogRow]:
    """The newest runs in a row in which a stream had no events; those that could not read it do not count."""
    read = (row for row in published if stream not in row.record.failed)
    return list(takewhile(lambda row: _silence_of(stream, row), read))


def _without_answers(seen: Watched, name: str, query: Registered, answered: Iterable[LogRow]) -> Iterator[Condition]:
    own = [row for row in answered if row.at >= query.since and is_due(query.query, row.begin, row.end)]
    streak = list(takewhile(lambda row: name in row.record.empty and _answers_of_interval(row) > 0, own))
    before = own[len(streak) : len(streak) + STREAK]
    is_news = len(before) == STREAK and all(name not in row.record.empty for row in before)
    is_new = len(streak) == len(own) and query.since > seen.now - LOOKED_BACK
    if _is_long(streak) and (is_news or is_new or (name, "silent", WITHOUT_ANSWERS) in seen.known):
        ever = "has had no answers since it was registered" if is_new else "has no answers any more"
        message = f"{name} {ever}, while other queries have: {number_of(len(streak), 'run')} without"
        hint = "check its filter: `heddle preview`, and the values that its stream brings"
        yield _silence(name, query, WITHOUT_ANSWERS, streak, message, hint)


def _answers_of_interval(row: LogRow) -> int:
    """Number of answers of an interval after a publication, also of those that it did not replace."""
    readers = row.record.readers
    return row.record.answers if readers is None else int(readers["after"])


def _silence(name: str, query: Registered, code: str, streak: Sequence[LogRow], message: str, hint: str) -> Condition:
    since, begin = min(row.at for row in streak), min(row.begin for row in streak)
    return Condition(name, "silent", code, query.last.owner, since, begin, streak[0].end, message, hint)


def _silence_of(stream: str, row: LogRow) -> list[dict[str, Any]]:
    """The warning of a run that a stream had no events; empty: it had some."""
    start = f"stream {stream} has no events "
    stored = row.record.diagnostics
    return [each for each in stored if each["code"] == WITHOUT_EVENTS and each["message"].startswith(start)]


def _is_long(streak: Sequence[LogRow]) -> bool:
    """Return whether runs in a row are many enough, or cover a day."""
    return len(streak) >= STREAK or (bool(streak) and streak[0].end - streak[-1].begin >= DAY)
