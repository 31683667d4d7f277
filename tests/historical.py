"""Tests of historical windows of calendars: events lie about the bounds that the oracle moves them to."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
from hypothesis import strategies as st

from optimizer.workload.values import SECOND, TIMESTAMP, Calendar, Source, Stream, Window, Workload
from tests import calendars
from tests.workloads import (
    CALENDAR_AGOS,
    CHANGES,
    SCHEMA,
    ZONES,
    Case,
    events,
    over_several,
    queries,
    refreshed,
    with_sets,
)

HOUR, DAY = 3600 * SECOND, 86_400 * SECOND

ENDS = tuple(
    int(datetime.fromisoformat(text).timestamp()) * SECOND
    for text in (
        *("2024-03-30T12:00Z", "2023-03-30T12:00Z", "2024-05-31T00:00Z", "2025-02-28T12:00Z", "2024-12-31T12:00Z"),
        *("2024-04-30T22:00Z", "2024-11-27T01:30Z", "2012-12-30T10:00Z", "2012-01-30T10:00Z", "2024-04-28T01:00Z"),
        *("2008-12-02T02:31Z", "2018-12-04T03:00Z", "2024-11-05T15:00Z"),
    )
)
"""Instants whose dates a month ago, or a year ago, do not exist, or are those on which clocks change."""

MONTH = (1, "month")


@st.composite
def historical_windows(draw: st.DrawFn) -> Window:
    """Windows of one calendar, at least one of them historical."""
    zone, offset = draw(st.sampled_from(ZONES)), draw(st.sampled_from((0, 0, 0, 6))) * HOUR
    unit = draw(st.sampled_from(("day", "day", "month", "clock", "clock")))
    if unit == "clock":
        step, slide = draw(st.sampled_from((HOUR // 4, HOUR, 6 * HOUR))), None
        sizes = [((1, "day"), True), ((7, "day"), True), (MONTH, True), ((12, "month"), True)]
    else:
        step, slide = 0, (1, unit)
        sizes = [((count, unit), cumulates) for count in (1, 3, 7, 12) for cumulates in (False, True)]
        sizes += [(MONTH, True), ((12, "month"), True)] if unit == "day" else []
    agos = st.one_of(st.sampled_from(CALENDAR_AGOS), st.tuples(st.integers(1, 40), st.sampled_from(("day", "month"))))

    def window(size: tuple[tuple[int, str], bool], ago: tuple[int, str] | None) -> Window:
        return Window.of_calendar(Calendar(zone, size[0], slide, offset, ago), step, size[1])

    size = st.sampled_from(sizes)
    plain = st.lists(st.builds(window, size, st.none()), max_size=2)
    return Window.of_several(draw(st.lists(st.builds(window, size, agos), min_size=1, max_size=2)) + draw(plain))


@st.composite
def historical_cases(draw: st.DrawFn, most_queries: int = 3, most_events: int = 30) -> Case:
    """A test of queries over historical windows of calendars, beside ordinary ones."""
    tick = draw(st.sampled_from((HOUR // 4, HOUR, DAY)))
    begin = draw(st.sampled_from((*ENDS, *CHANGES))) + draw(st.integers(-8, 2)) * tick
    end = begin + draw(st.integers(1, 30)) * tick + draw(st.sampled_from((0, 0, 1)))
    drawn_queries, bounds = [], {begin, end}
    for number in range(draw(st.integers(1, most_queries))):
        query = draw(queries(f"q{number}", tick))
        if number == 0 or draw(st.booleans()):
            window = draw(historical_windows())
            query = draw(refreshed(draw(over_several(query, window)), begin, end))
            for part in window.parts:
                spans = calendars.windows_between(part, begin, end)
                bounds.update(spans["since"].to_pylist() + spans["until"].to_pylist())
        drawn_queries.append(draw(with_sets(query)) if draw(st.integers(0, 4)) == 0 else query)
    stream = Stream("events", Source("parquet", "events"), (("ts", TIMESTAMP), *SCHEMA), "ts")
    table = draw(events(begin, end, tick, most_events))
    moments = st.builds(int.__add__, st.sampled_from(sorted(bounds)), st.sampled_from((-1, 0, 0, HOUR, -HOUR)))
    times = [draw(moments) if time is not None else None for time in table["ts"].to_pylist()]
    table = table.set_column(0, "ts", pa.array(times, pa.int64()).cast(table.schema.field("ts").type))
    return Case(Workload(tuple(drawn_queries), (stream,)), table, begin, end)
