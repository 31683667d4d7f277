"""The streams over time: how fast events come, where none came, and which came too late.

The values are read by :func:`spark_jobs.operations.trends.read_streams`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain

from heddle.pages.charts import Chart, Column, chart
from heddle.pages.folding import Table, fold
from heddle.pages.formats import ago, count, duration, figure, instant, interval, number
from heddle.pages.lines import LineChart, line_chart
from heddle.pages.operations import CHARTED, ROWS_SHOWN
from heddle.pages.plan import Tile
from heddle.pages.render import render
from heddle.pages.spans import Link, span_links
from optimizer.workload.expression import EPOCH
from spark_jobs.operations.series import DimensionView, Line, SpanName, StreamDay, Streams, StreamView

SPANS: Sequence[SpanName] = ("week", "month", "all")


@dataclass(frozen=True)
class StreamCard:
    """One stream: its figures, the rate of its events, its gaps, and its days. ``late``: refused or skipped events, by
    day; None: nothing.
    """

    anchor: str
    name: str
    tiles: Sequence[Tile]
    rates: LineChart | None
    gaps: Sequence[str]
    late: Chart | None
    days: Table[StreamDay]


@dataclass(frozen=True)
class DimensionRow:
    """A dimension in words."""

    name: str
    key: str
    columns: str
    queries: str
    rows: str
    version: str
    repair: str
    table: str


@dataclass(frozen=True)
class StreamsPage:
    """All that the page of streams shows."""

    streams: Streams
    spans: Sequence[Link]
    cards: Sequence[StreamCard]
    dimensions: Table[DimensionRow]


def page(streams: Streams) -> str:
    """The streams as a page."""
    links = span_links(streams.span, lambda name: f"streams?span={name}", SPANS)
    cards = [_card(place, stream, streams) for place, stream in enumerate(streams.streams)]
    return render("streams.html.j2", page=StreamsPage(streams, links, cards, _dimensions(streams.dimensions)))


def _card(place: int, stream: StreamView, streams: Streams) -> StreamCard:
    columns = [
        *(("day (UTC)", 20), ("events", 18), ("files", 12), ("files out of order", 18), ("events refused", 16)),
        ("rows left out", 16),
    ]
    days = list(reversed(stream.days))
    late = [
        Column(
            f"{day.day}: {count(day.refused, 'event')} refused, {count(day.quarantined, 'row')} left out",
            [("end", float(day.refused)), ("own", float(day.quarantined))],
        )
        for day in stream.days[-CHARTED:]
    ]
    is_late = any(day.refused or day.quarantined for day in stream.days[-CHARTED:])
    return StreamCard(
        anchor=f"s{place}",
        name=stream.name,
        tiles=_tiles(stream, streams),
        rates=line_chart(f"events a second of {stream.name}", [_rates(stream)], "events/s"),
        gaps=[interval(*gap) for gap in stream.gaps],
        late=chart(late, "rows", "day") if is_late else None,
        days=Table("log streamdays", columns, fold(days, ROWS_SHOWN, len(days), "day")),
    )


def _dimensions(dimensions: Sequence[DimensionView]) -> Table[DimensionRow]:
    rows = [
        DimensionRow(
            name=dimension.name,
            key=", ".join(dimension.key),
            columns=", ".join(dimension.columns),
            queries=number(dimension.queries),
            rows="not read yet" if dimension.rows is None else number(dimension.rows),
            version=dimension.version or "–",
            repair=duration(dimension.repair) if dimension.repair else "no answers",
            table=dimension.table or "–",
        )
        for dimension in dimensions
    ]
    columns = [("dimension", 18), ("key", 16), ("columns in use", 24), ("queries", 8), ("rows", 10), ("version", 14)]
    columns += [("a change revises", 10), ("Delta table", 16)]
    return Table("log", columns, fold(rows, ROWS_SHOWN, len(rows), "dimension"))


def _rates(stream: StreamView) -> Line:
    """The rates as a line that is broken where no run read events."""
    return Line("", "", tuple(chain(*stream.rates)), tuple(part[0].instant for part in stream.rates))


def _tiles(stream: StreamView, streams: Streams) -> list[Tile]:
    rate = figure(stream.rates[-1][-1].value) if stream.rates else "none"
    newest = instant(stream.newest) if stream.newest is not None else "none"
    since = (
        ago(EPOCH + timedelta(microseconds=stream.newest), streams.now)
        if stream.newest is not None
        else "no event is known"
    )
    late = sum(chain.from_iterable((day.refused, day.quarantined) for day in stream.days))
    return [
        Tile("events a second", rate, "in the newest time that was read"),
        Tile("newest event before", newest, since),
        Tile("queries", number(stream.queries), "in the plan in force"),
        Tile("refused or left out", number(late), "rows in this span", "ill" if late else "good"),
    ]
