"""A warehouse over time: what came of each stream, and what runs did and cost day by day. Read without a JVM."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from optimizer.errors.diagnostics import HeddleError
from optimizer.windows.alignment import day_label
from optimizer.workload.values import SECOND
from spark_jobs.costs.measurements import NO_STREAM
from spark_jobs.operations.read import read_versions
from spark_jobs.operations.series import (
    ComparedRun,
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
from spark_jobs.unshared.comparison import stored_comparisons
from spark_jobs.warehouse import publish_log, quarantine
from spark_jobs.warehouse.plans import facts_of, planned
from spark_jobs.warehouse.publish_log import LogRow
from spark_jobs.warehouse.schemas import INSTANT
from spark_jobs.warehouse.warehouse import Warehouse

GAPS_SHOWN = 12

Rows = Mapping[str, list[int]]
"""Columns by name; instants in microseconds."""


# ------------------------------------------------------------------------------------------------- streams
def read_streams(warehouse: Warehouse, span: Span | None = None, now: datetime | None = None) -> Streams:
    """The streams that the plan in force reads, and those that were measured, in a span."""
    span = limited(warehouse, span or Span("month"))
    measured = _measured(warehouse, span)
    arrived = _arrived(warehouse)
    left_out = _left_out(warehouse, span)
    version = newest_plan(warehouse)
    readers = Counter(row.stream for row in planned(warehouse, ds.field("plan_version") == (version or 0)))
    names = sorted({*measured, *arrived, *readers})
    nothing: Rows = {}
    streams = tuple(
        _stream(name, readers[name], measured.get(name, nothing), arrived.get(name, nothing), left_out[name], span)
        for name in names
    )
    return Streams(now or datetime.now(UTC), span, streams)


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


def _measured(warehouse: Warehouse, span: Span) -> dict[str, Rows]:
    """The newest measurement of each interval of each stream, by interval."""
    names = ["interval_start", "interval_end", "rows", "rate"]
    table = warehouse.dataset("stream_statistics").to_table(
        ["stream", *names, "at"], filter=_within("interval_end", span)
    )
    table = table.sort_by([("interval_start", "ascending"), ("interval_end", "ascending"), ("at", "ascending")])
    return {name: _newest_of_each(rows) for name, rows in _by_stream(table, names).items()}


def _newest_of_each(rows: Rows) -> Rows:
    """Of rows with the same interval, which follow one another, the last."""
    spans = list(zip(rows["interval_start"], rows["interval_end"], strict=True))
    kept = [place for place, own in enumerate(spans) if own != (spans[place + 1] if place + 1 < len(spans) else None)]
    return {name: [values[place] for place in kept] for name, values in rows.items()}


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
    table = warehouse.dataset("source_files").to_table(["stream", *names], filter=came).sort_by("arrived")
    return _by_stream(table, names)


def _left_out(warehouse: Warehouse, span: Span) -> dict[str, Counter[str]]:
    """Rows that were left out, by stream and UTC day of the run."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for row in quarantine.rows(warehouse):
        if _is_within(row.at, span):
            found[row.stream][day_label(row.at)] += row.rows
    return found


def _is_within(at: int, span: Span, slack: int = 86_400 * SECOND) -> bool:
    """Whether a moment of the clock is in a span of data, or at most a day after it."""
    return (span.begin is None or at > span.begin) and (span.end is None or at <= span.end + slack)


def _stream(
    name: str, readers: int, measured: Rows, arrived: Rows, left_out: Mapping[str, int], span: Span
) -> StreamView:
    begins, ends, counts = (measured.get(column, []) for column in ("interval_start", "interval_end", "rows"))
    events, files, unordered, refused = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for end, rows in zip(ends, counts, strict=True):
        events[day_label(end - 1)] += rows
    newest = max((end for end, rows in zip(ends, counts, strict=True) if rows), default=None)
    known: int | None = None
    for at, begin, end, late in zip(
        *(arrived.get(column, []) for column in ("arrived", "begin", "end", "late")), strict=True
    ):
        if _is_within(at, span):
            files[day_label(at)] += 1
            unordered[day_label(at)] += begin is not None and known is not None and begin < known
            refused[day_label(at)] += late
        known = max((at for at in (known, end) if at is not None), default=None)
    days = sorted({*events, *files, *left_out})
    known = max((at for at in (known, newest) if at is not None), default=None)
    rates = zip(ends, measured.get("rate", []), strict=True)
    return StreamView(
        name,
        readers,
        known,
        tuple(Sample(end, float(rate), 1) for end, rate in rates),
        _gaps(begins, ends, counts),
        tuple(
            StreamDay(day, events[day], files[day], unordered[day], refused[day], left_out.get(day, 0)) for day in days
        ),
    )


def _gaps(begins: Sequence[int], ends: Sequence[int], counts: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Spans between measured intervals, and those without an event, joined; newest first."""
    spans = list(zip(begins, ends, strict=True))
    found = [(begin, end) for (begin, end), rows in zip(spans, counts, strict=True) if not rows]
    reached = 0
    for (_, end), (begin, _) in pairwise(spans):
        reached = max(reached, end)
        if begin > reached:
            found.append((reached, begin))
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(found):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return tuple(joined[::-1][:GAPS_SHOWN])


# ---------------------------------------------------------------------------------------------------- days
def read_trends(warehouse: Warehouse, span: Span | None = None, now: datetime | None = None) -> Trends:
    """What runs did and cost, by the UTC day on which their intervals end."""
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
        tuple(PlanCost(one.number, one.cost_model, one.cost, one.no_share) for one in reversed(versions)),
    )


def _ratios(warehouse: Warehouse, rows: Iterable[LogRow]) -> dict[int, float]:
    """How many times the cost of each version's plan its queries cost unshared, by its model; of stored versions."""
    found = {}
    for version in {row.plan_version for row in rows}:
        try:
            facts = facts_of(warehouse, first_planned(warehouse, version))
        except HeddleError:
            continue
        if facts["plan_cost"]:
            found[version] = facts["no_share_cost"] / facts["plan_cost"]
    return found


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
