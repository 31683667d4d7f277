"""Events by their own time: whatever spans runs read, in whatever order and how often, each event counts once."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY, format_instant
from spark_jobs.operations.series import Span
from spark_jobs.operations.trends import read_streams
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.event_counts import HOUR, EventCounts, combined
from spark_jobs.streams.sources.replacements import FAR
from tests.in_process import Clock, heddle, without_spark
from tests.sizes import examples

MINUTE = 60_000_000
START = 15_887 * DAY
STREAMS = """\
streams:
  events:
    source: {format: csv, path: events.csv}
    schema: {ts: timestamp, amount: long}
    time: ts
"""
QUERIES = """\
-- name: sums
SELECT sum(amount) AS total FROM events WINDOW RANGE '2 days' SLIDE '1 day' ON ts;
-- name: counts
SELECT count(*) AS n FROM events WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts WHERE amount > 0;
"""

EVERYTHING = (-FAR, FAR)
TIMES = st.lists(st.integers(-3 * DAY, 40 * DAY) | st.integers(-3 * HOUR, 5 * HOUR), max_size=60)
FAR_TIMES = st.lists(st.integers(-60_000_000_000_000_000, 250_000_000_000_000_000), max_size=20)


def span(unit: int, most: int) -> st.SearchStrategy[tuple[int, int]]:
    bounds = st.lists(st.integers(-most, most), min_size=2, max_size=2, unique=True).map(sorted)
    return bounds.map(lambda pair: (pair[0] * unit, pair[1] * unit))


def counted(times: list[int], spans: list[tuple[int, int]], parts: int = 1, in_order: bool = True) -> EventCounts:
    """What ``parts`` tasks count of the spans, as it is read back from the table."""
    values = np.array(sorted(times) if in_order else times[::-1], dtype=np.int64)
    total = EventCounts.of(spans)
    for number in range(parts):
        part_counts = EventCounts.of(spans)
        part_counts.add(values[number::parts])
        total.join(part_counts)
    return EventCounts.from_json(total.to_json())


@given(TIMES | FAR_TIMES, st.lists(span(HOUR, 1000), min_size=1, max_size=4), st.integers(1, 3), st.booleans())
def test_one_run_counts_what_is_in_its_spans(
    times: list[int], spans: list[tuple[int, int]], parts: int, in_order: bool
) -> None:
    counts = counted(times, spans, parts, in_order)
    inside = [at for at in times if any(begin <= at < end for begin, end in spans)]
    assert counts.events == Counter(at // counts.bucket for at in inside)
    pieces = combined([counts], EVERYTHING, counts.bucket)
    assert sum(events for *_, events in pieces) == len(inside)
    # work and memory follow the events, not the length of the spans
    assert len(counts.pieces()) <= 2 * len(counts.events) * len(counts.spans) + len(counts.spans)


@given(TIMES, st.lists(st.tuples(TIMES, st.lists(span(HOUR, 300), min_size=1, max_size=3)), min_size=1, max_size=6))
def test_each_event_counts_once_as_it_was_read_last(
    first: list[int], reads: list[tuple[list[int], list[tuple[int, int]]]]
) -> None:
    """Between runs events come: what nobody has read again keeps its count."""
    known, events = list(first), Counter[int]()
    runs = []
    for more, spans in reads:
        known += more
        runs.append(counted(known, spans))
        for begin, end in runs[-1].spans:
            for hour in range(begin // HOUR, end // HOUR):
                events[hour] = sum(1 for at in known if at // HOUR == hour)
    pieces = combined(runs, EVERYTHING)
    assert all(begin < end for begin, end, _ in pieces)
    assert all(before[1] <= after[0] for before, after in zip(pieces, pieces[1:], strict=False))
    combined_counts = Counter[int]()
    for begin, _, number in pieces:
        combined_counts[begin // HOUR] += number
    assert +combined_counts == +events


@given(TIMES, st.lists(span(HOUR // 7, 2000), min_size=1, max_size=5))
def test_parts_of_buckets_count_at_most_what_was_read(times: list[int], spans: list[tuple[int, int]]) -> None:
    """Runs that end within an hour: what they read of it together is at most what there is, and the last is exact."""
    runs = [counted(times, [interval]) for interval in spans]
    pieces = combined(runs, EVERYTHING)
    read = [at for at in times if any(begin <= at < end for begin, end in spans)]
    last = [at for at in times if spans[-1][0] <= at < spans[-1][1]]
    total = sum(events for *_, events in pieces)
    assert (
        len(last) - 1e-6 <= total <= sum(len(counts.events) and sum(counts.events.values()) for counts in runs) + 1e-6
    )
    assert abs(sum(end - begin for begin, end, _ in pieces) - sum(e - b for b, e in EventCounts.of(spans).spans)) == 0
    assert not read or total > 0 or len(spans) > 1


INTERVALS = st.lists(
    st.integers(0, 9).flatmap(lambda day: st.tuples(st.just(day), st.integers(day + 1, 10))), min_size=1
)


@settings(max_examples=examples(6), deadline=None)
@given(st.lists(st.integers(0, 10 * 24 * 60 - 1), min_size=1, max_size=40), INTERVALS.map(lambda some: some[:3]))
def test_streams_page_counts_events_on_their_own_day(minutes: list[int], intervals: list[tuple[int, int]]) -> None:
    """Runs in any order, each with history that others have read, a run again and a backfill."""
    with tempfile.TemporaryDirectory() as folder, without_spark(Clock(START + 100 * DAY)):
        place = Path(folder)
        # the newest event is later than all intervals
        lines = [f"{format_instant(START + at * MINUTE)},{at % 3}" for at in [*minutes, 11 * 24 * 60]]
        (place / "events.csv").write_text("\n".join(["ts,amount", *lines, ""]))
        (place / "streams.yaml").write_text(STREAMS)
        (place / "queries.sql").write_text(QUERIES)
        options = ["--streams", f"{place}/streams.yaml", "--warehouse", f"{place}/warehouse"]
        read = set[int]()
        for first, last in intervals:
            span = [format_instant(START + day * DAY) for day in (first, last)]
            done = heddle("run", f"{place}/queries.sql", *options, "--from", span[0], "--to", span[1])
            assert done.code == 0, done
            # windows of two days end on each day of the interval
            read |= set(range(first - 1, last))
        (stream,) = read_streams(Warehouse.open(place / "warehouse"), Span("all")).streams
    expected = Counter(day_label(START + at * MINUTE) for at in minutes if at // (24 * 60) in read)
    assert {day.day: day.events for day in stream.days if day.events} == dict(expected)


def test_an_event_at_the_end_of_a_span_is_not_in_it() -> None:
    times = [0, HOUR - 1, HOUR, 2 * HOUR, 3 * HOUR]
    for in_order in (True, False):
        assert counted(times, [(0, HOUR), (2 * HOUR, 3 * HOUR)], in_order=in_order).events == {0: 2, 2: 1}
