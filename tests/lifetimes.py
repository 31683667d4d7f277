"""Generated cases of windows since the first event of a stream (RANGE UNBOUNDED)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from optimizer.workload.values import EARLIEST, SECOND, TIMESTAMP, Calendar, Source, Stream, Window, Workload
from tests.workloads import CHANGES, SCHEMA, ZONES, Case, events, over_several, queries, refreshed, with_sets

HOUR = 3600 * SECOND
DAY = 24 * HOUR


@st.composite
def lifetime_windows(draw: st.DrawFn, slide: int) -> Window:
    """Windows since the first event: also historical, shifted, and at the ends of a calendar's days and months."""
    kind = draw(st.sampled_from(("plain", "plain", "ago", "shifted", "calendar")))
    if kind == "calendar":
        span = (1, draw(st.sampled_from(("day", "day", "month"))))
        calendar = Calendar(draw(st.sampled_from(ZONES)), span, span, draw(st.sampled_from((0, 6 * HOUR))))
        return replace(Window.of_calendar(calendar), since=EARLIEST)
    ago = draw(st.sampled_from((slide, 3 * slide, 90 * 60 * SECOND, 1, 40 * DAY))) if kind == "ago" else 0
    offset = draw(st.integers(1, slide - 1)) if kind == "shifted" else 0
    return Window(slide, slide, ago, offset=offset, since=EARLIEST)


@st.composite
def several_lifetimes(draw: st.DrawFn, slide: int) -> Window:
    """Windows since the first event beside others with the same instants."""
    agos = st.sampled_from((0, 0, slide, 90 * 60 * SECOND, 3 * DAY))
    bounded = st.builds(lambda k, ago: Window(k * slide, slide, ago), st.integers(1, 7), agos)
    lifetime = st.builds(lambda ago: Window(slide, slide, ago, since=EARLIEST), agos)
    cumulative = st.builds(lambda k: Window(k * slide, slide, cumulative=True), st.integers(1, 6))
    others = draw(st.lists(st.one_of(bounded, lifetime, cumulative), min_size=1, max_size=3, unique=True))
    return Window.of_several([draw(lifetime), *others])


@st.composite
def lifetime_cases(draw: st.DrawFn, most_queries: int = 4, most_events: int = 40) -> Case:
    """A test of windows since the first event, beside ordinary ones, over days or years of history."""
    slide = draw(st.sampled_from((HOUR, 6 * HOUR, DAY, DAY, 7 * DAY)))
    begin = draw(st.sampled_from(CHANGES)) // HOUR * HOUR + draw(st.integers(-5, 40)) * DAY
    end = begin + draw(st.integers(1, 4 if slide < DAY else 20)) * DAY + draw(st.sampled_from((0, 0, 1)))
    drawn = []
    for number in range(draw(st.integers(1, most_queries))):
        query = draw(queries(f"q{number}", slide))
        kind = draw(st.sampled_from(("life", "life", "several", "plain"))) if number else "life"
        if kind == "life":
            query = replace(query, window=draw(lifetime_windows(slide)))
        elif kind == "several":
            window = draw(several_lifetimes(slide))
            query = draw(over_several(query, window)) if window.parts else replace(query, window=window)
        query = draw(refreshed(query, begin, end)) if kind != "plain" else query
        drawn.append(draw(with_sets(query)) if draw(st.integers(0, 3)) == 0 else query)
    stream = Stream("events", Source("parquet", "events"), (("ts", TIMESTAMP), *SCHEMA), "ts")
    first = begin - draw(st.sampled_from((0, 5 * slide, 40 * DAY, 800 * DAY)))
    tick = draw(st.sampled_from((slide, 30 * DAY)))
    return Case(Workload(tuple(drawn), (stream,)), draw(events(first, end, tick, most_events)), begin, end)
