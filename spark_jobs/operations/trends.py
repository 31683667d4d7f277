"""A warehouse over time: what came of each stream, and what runs did and cost day by day. Read without a JVM."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from optimizer.errors.diagnostics import HeddleError
from optimizer.windows.alignment import day_label
from optimizer.workload.attributes import attributes_in
from optimizer.workload.instants import DAY
from optimizer.workload.values import SECOND, Dimension
from spark_jobs.audit.unshared.comparison import stored_comparisons
from spark_jobs.operations.read import read_versions
from spark_jobs.operations.series import (
    ComparedRun,
    DimensionView,
    PlanCost,
    Sample,
    Span,
    StreamDay,
    Streams,
    StreamView,
    TrendDay,
    Trends,
)
from spark_jobs.operations.snapshots import first_planned, limited, newest_plan
from spark_jobs.pipeline.costs.measurements import COUNTS, NO_STREAM
from spark_jobs.results.current_dimensions import current_place, held_version, table_of
from spark_jobs.store.warehouse import publish_log, quarantine
from spark_jobs.store.warehouse.plans import facts_of, load_plan, planned
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.quarantine import LeftOut
from spark_jobs.store.warehouse.schemas import INSTANT
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.dimension_versions import stored_dimension_names
from spark_jobs.streams.sources.event_counts import HOUR, LONG, EventCounts, combined
from spark_jobs.streams.sources.replacements import FAR

GAPS_SHOWN = 12

Piece = tuple[int, int, float]
"""[begin, end) in microseconds, and its events."""

Rows = Mapping[str, list[Any]]
"""Columns by name; instants in microseconds."""


# ------------------------------------------------------------------------------------------------- streams
def read_streams(warehouse: Warehouse, span: Span | None = None, now: datetime | None = None) -> Streams:
    """The streams that the plan in force reads, and those that were measured, in a span."""
    span = limited(warehouse, span or Span("month"))
    counted = _counted(warehouse, span)
    arrived = _arrived(warehouse)
    left_out = _left_out(warehouse, span)
    version = newest_plan(warehouse)
    readers = Counter(row.stream for row in planned(warehouse, ds.field("plan_version") == (version or 0)))
    names = sorted({*counted, *arrived, *readers})
    streams = tuple(
        _stream(name, readers[name], counted.get(name, ()), arrived.get(name, {}), left_out[name], span)
        for name in names
    )
    return Streams(now or datetime.now(UTC), span, streams, _dimensions(warehouse, version))


def _dimensions(warehouse: Warehouse, version: int | None) -> tuple[DimensionView, ...]:
    """The dimensions that the queries of a version of the plan join."""
    # plans are large: they are not read for nothing
    if version is None or not stored_dimension_names(warehouse):
        return ()
    joined: dict[str, Counter[str]] = {}
    known: dict[str, Dimension] = {}
    workload = load_plan(warehouse, version).workload
    for stream in workload.streams:
        known |= {dimension.name: dimension for dimension in stream.dimensions}
        for query in workload.queries_of(stream.name) if stream.dimensions else ():
            attributes = attributes_in(stream, query.columns()).values()
            for name in {attribute.dimension for attribute in attributes}:
                joined.setdefault(name, Counter())[""] += 1
            for name, column in {(attribute.dimension, attribute.column or "") for attribute in attributes}:
                joined[name][column] += bool(column)
    return tuple(_dimension(warehouse, known[name], joined[name]) for name in sorted(joined))


def _dimension(warehouse: Warehouse, dimension: Dimension, uses: Counter[str]) -> DimensionView:
    """A dimension; ``uses``: the number of queries that use each column, and that join it ("")."""
    place = current_place(warehouse, dimension.name)
    columns = tuple(name for name, _ in dimension.schema if uses[name])
    about = (dimension.name, dimension.key, columns, uses[""], dimension.repair)
    if place is None:
        return DimensionView(*about)
    rows, table = pq.read_metadata(place.open()).num_rows, table_of(dimension.name)
    is_readable = held_version(warehouse, table) is not None
    return DimensionView(*about, place.name.removesuffix(".parquet"), rows, table if is_readable else "")


def _columns(table: pa.Table, names: Sequence[str]) -> Rows:
    """Some columns of a table; moments as microseconds."""
    return {
        name: (table[name].cast(pa.int64()) if pa.types.is_timestamp(table[name].type) else table[name]).to_pylist()
        for name in names
    }


def _by_stream(table: pa.Table, names: Sequence[str]) -> dict[str, Rows]:
    return {
        name: _columns(table.filter(pc.equal(table["stream"], name)), names)
        for name in pc.unique(table["stream"]).to_pylist()
        if name != NO_STREAM
    }


def _counted(warehouse: Warehouse, span: Span) -> dict[str, Sequence[Piece]]:
    """The events of each stream by their time in a span, each once, as they were read last."""
    columns = ["stream", "interval_start", "interval_end", "rows", "at", "stage_cpu_seconds"]
    chosen = None if span.begin is None else ds.field("interval_end") > pa.scalar(span.begin, INSTANT)
    if span.end is not None:
        upper = ds.field("interval_start") < pa.scalar(span.end, INSTANT)
        chosen = upper if chosen is None else chosen & upper
    table = warehouse.stored_rows("stream_statistics", columns, chosen).sort_by("at")
    limits = -FAR if span.begin is None else span.begin, FAR if span.end is None else span.end
    pieces: dict[str, Sequence[Piece]] = {}
    for name, rows in _by_stream(table, columns[1:]).items():
        begins, ends, numbers, _, costs = (rows[column] for column in columns[1:])
        counts = [_counts(costs[place], begins[place], ends[place], numbers[place]) for place in range(len(begins))]
        is_long = bool(counts) and _reach(counts, limits) > LONG
        pieces[name] = combined(counts, limits, DAY if is_long else HOUR)
    return pieces


def _reach(counts: Sequence[EventCounts], limits: tuple[int, int]) -> int:
    """Length of the time in which runs read, within some limits (microseconds)."""
    first, last = min(events.spans[0][0] for events in counts), max(events.spans[-1][1] for events in counts)
    return min(last, limits[1]) - max(first, limits[0])


def _counts(costs: str | None, begin: int, end: int, rows: int) -> EventCounts:
    """Counts of a run. A run of an earlier version counted all of its span at once, as one piece."""
    counts = json.loads(costs or "{}").get(COUNTS)
    if counts is not None:
        return EventCounts.from_json(counts)
    return EventCounts(((begin, max(end, begin + 1)),), FAR, Counter({begin // FAR: rows}))


def _within(column: str, span: Span) -> ds.Expression | None:
    """The condition that a column's moment is in a span; None: any is."""
    condition = None
    if span.begin is not None:
        condition = ds.field(column) > pa.scalar(span.begin, INSTANT)
    if span.end is not None:
        upper = ds.field(column) <= pa.scalar(span.end, INSTANT)
        condition = upper if condition is None else condition & upper
    return condition


def _arrived(warehouse: Warehouse) -> dict[str, Rows]:
    """The files that came of each stream, by arrival; all of them, for what is newest may be older than a span."""
    names = ["arrived", "begin", "end", "late"]
    came = ds.field("event") == "came"
    table = warehouse.stored_rows("source_files", ["stream", *names], came).sort_by("arrived")
    return _by_stream(table, names)


def _left_out(warehouse: Warehouse, span: Span) -> dict[str, Counter[str]]:
    """Rows in quarantine, by stream and UTC day of the run."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    by_day: dict[str, list[LeftOut]] = defaultdict(list)
    for row in quarantine.rows(warehouse):
        if _is_within(row.at, span):
            by_day[day_label(row.at)].append(row)
    for day, rows in by_day.items():
        for row in quarantine.newest_of_each(rows):
            counts[row.stream][day] += row.rows
    return counts


def _is_within(at: int, span: Span) -> bool:
    """Return whether a moment of the clock is in a span of data, or at most a day after it."""
    return (span.begin is None or at > span.begin) and (span.end is None or at <= span.end + DAY)


def _stream(
    name: str, readers: int, counted: Sequence[Piece], arrived: Rows, left_out: Mapping[str, int], span: Span
) -> StreamView:
    files, unordered, refused = Counter[str](), Counter[str](), Counter[str]()
    known: int | None = None
    for at, begin, end, late in zip(
        *(arrived.get(column, []) for column in ("arrived", "begin", "end", "late")), strict=True
    ):
        if _is_within(at, span):
            files[day_label(at)] += 1
            unordered[day_label(at)] += begin is not None and known is not None and begin < known
            refused[day_label(at)] += late
        known = max((at for at in (known, end) if at is not None), default=None)
    events = _events_by_day(counted)
    days = sorted({*events, *files, *left_out})
    newest = max((end for _, end, rows in counted if rows), default=None)
    known = max((at for at in (known, newest) if at is not None), default=None)
    return StreamView(
        name,
        readers,
        known,
        _rates(counted),
        _gaps(counted),
        tuple(
            StreamDay(day, round(events[day]), files[day], unordered[day], refused[day], left_out.get(day, 0))
            for day in days
        ),
    )


def _events_by_day(counted: Sequence[Piece]) -> dict[str, float]:
    """Events by the UTC day of their time; a piece over several days is divided by time."""
    events = defaultdict[str, float](float)
    for begin, end, rows in counted:
        at = begin
        while rows and at < end:
            until = min(end, at // DAY * DAY + DAY)
            events[day_label(at)] += rows * (until - at) / (end - begin)
            at = until
    return events


def _rates(counted: Sequence[Piece]) -> tuple[tuple[Sample, ...], ...]:
    """Events a second in the middle of each piece, in parts between which no run read."""
    parts: list[list[Sample]] = []
    reached = None
    for begin, end, rows in counted:
        if begin != reached:
            parts.append([])
        rate = rows * SECOND / max(end - begin, SECOND)
        ends = (begin, end) if not rows and end - begin > DAY else ((begin + end) // 2,)
        parts[-1] += [Sample(at, rate, 1) for at in ends]
        reached = end
    return tuple(map(tuple, parts))


def _gaps(counted: Sequence[Piece]) -> tuple[tuple[int, int], ...]:
    """Spans that no run read, and those without an event, of an hour or more, joined; newest first."""
    gaps: list[tuple[int, int]] = []
    reached = counted[0][0] if counted else 0
    for begin, end, rows in counted:
        first, last = reached, begin if rows else end
        if first < last:
            if gaps and gaps[-1][1] == first:
                first = gaps.pop()[0]
            gaps.append((first, last))
        reached = end
    return tuple([gap for gap in gaps if gap[1] - gap[0] >= HOUR][::-1][:GAPS_SHOWN])


# ---------------------------------------------------------------------------------------------------- days
def read_trends(warehouse: Warehouse, span: Span | None = None, now: datetime | None = None) -> Trends:
    """Activity and cost of runs, by the UTC day on which their intervals end."""
    span = limited(warehouse, span or Span("month"))
    ended = ds.field("event").isin(["published", "failed"])
    within = _within("interval_end", span)
    rows = publish_log.rows(warehouse, ended if within is None else ended & within)
    versions, _ = read_versions(warehouse)
    return Trends(
        now or datetime.now(UTC),
        span,
        _days(rows, _ratios(warehouse, rows)),
        tuple(
            ComparedRun(
                stored.at,
                stored.begin,
                stored.end,
                stored.queries,
                len(stored.samples),
                stored.shared,
                sum(float(sample["cpu_seconds"]) for sample in stored.samples),
            )
            for stored in reversed(stored_comparisons(warehouse))
        ),
        tuple(PlanCost(plan.number, plan.cost_model, plan.cost, plan.no_share) for plan in reversed(versions)),
    )


def _ratios(warehouse: Warehouse, rows: Iterable[LogRow]) -> dict[int, float]:
    """Ratio of the unshared cost of the queries to the cost of the plan, by its model, for each stored version."""
    ratios = {}
    for version in {row.plan_version for row in rows}:
        try:
            facts = facts_of(warehouse, first_planned(warehouse, version))
        except HeddleError:
            continue
        if facts["plan_cost"]:
            ratios[version] = facts["no_share_cost"] / facts["plan_cost"]
    return ratios


def _days(rows: Sequence[LogRow], ratios: Mapping[int, float]) -> tuple[TrendDay, ...]:
    """The days of some rows of the log, oldest first."""
    by_day: dict[str, list[LogRow]] = defaultdict(list)
    for row in rows:
        by_day[day_label(row.end - 1)].append(row)
    return tuple(_day(day, own, ratios) for day, own in sorted(by_day.items()))


def _day(day: str, rows: Sequence[LogRow], ratios: Mapping[int, float]) -> TrendDay:
    published = [row for row in rows if row.event == "published"]
    newest = {row.interval: row for row in sorted(published, key=lambda row: row.revision)}.values()
    spent = [(sum(row.record.cpu_seconds.values()), row.plan_version) for row in published if row.record.cpu_seconds]
    is_priced = bool(spent) and all(version in ratios for _, version in spent)
    return TrendDay(
        day,
        len(published),
        len(rows) - len(published),
        sum(row.answers or 0 for row in newest),
        sum(row.record.rows_scanned for row in newest),
        sum(seconds for seconds, _ in spent) if spent else None,
        sum(seconds * ratios[version] for seconds, version in spent) if is_priced else None,
        sum(len(row.record.lateness) for row in published),
    )
