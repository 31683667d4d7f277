"""Recompute the features of some labels from raw events, by what judges answers, and compare.

Nothing here is shared with what computed them but the reading of files: DuckDB joins the drawn labels with the events
of their keys by a range of time, and :mod:`spark_jobs.audit.unshared` applies the definition of each aggregate to the
events of each label.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.diagnostics import count as number_of
from optimizer.workload.instants import format_instant
from optimizer.workload.values import ACQ, LONG, Output, Stream, Window
from spark_jobs.audit.unshared.agreement import agrees, qualifies
from spark_jobs.audit.unshared.audited import evidence
from spark_jobs.audit.unshared.duckdb_expressions import CannotTell
from spark_jobs.audit.unshared.duckdb_windows import recompute_here
from spark_jobs.audit.unshared.values import over_column, over_events, recomputed_parts
from spark_jobs.engine.workers import EVENTS, Count, Workers, uncounted
from spark_jobs.results.derived import lowered_of
from spark_jobs.store.arrays.texts import as_texts
from spark_jobs.streams.sources.decoding import read_each, times_of
from spark_jobs.streams.sources.expressions import arrow_type, evaluate
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.features.moments import Longs, MomentRule

LABEL, INSIDE, CAME = "heddle label", "heddle inside", "heddle came"
"""Columns of the events of labels: the number of the label, a time in the one window, when the file had arrived."""

MOST_EVENTS = 2_000_000
"""Events of labels, once for each label that counts them, up to which all drawn labels are recomputed at once; of more
only as many labels as have so many."""


BATCH_EVENTS = 50_000
"""Events of labels that are recomputed at once: their values are Python objects."""


@dataclass(frozen=True)
class DrawnLabels:
    """Labels that are recomputed: ``moments`` (n,) and ``keys`` (n,), by group column in their types."""

    moments: Longs
    keys: pa.Table

    def part(self, first: int, last: int) -> DrawnLabels:
        """The labels from a number to another."""
        return DrawnLabels(self.moments[first:last], self.keys.slice(first, last - first))


@dataclass(frozen=True)
class LabelEvents:
    """The raw events that a query is recomputed from: the files and the ``stream`` they are read by; ``arrived``: when
    each had arrived, by identity, None: everything is known."""

    stream: Stream
    splits: Sequence[Split]
    arrived: Mapping[str, int] | None


def spans_of_labels(query: ACQ, stream: Stream, rule: MomentRule, moments: Longs) -> list[tuple[Longs, Longs]]:
    """The windows [start, end) (n,) of labels, for each part of a query's window: by arithmetic of their own, but for
    those of calendars."""
    ready = moments - rule.delay
    if any(part.calendar is not None for part in query.window.each):
        return rule.spans(query, rule.instants(query, stream, moments))
    if not rule.is_exact:
        ready = ready - stream.lateness
        ready = ready if query.until is None else np.minimum(ready, query.until)
        first = query.window.each[0]
        ready = ready - (ready - first.range - first.offset) % first.slide
    spans = []
    for part in query.window.each:
        ends = ready - part.ago
        last = ready - 1
        starts = last - (last - part.offset) % part.range - part.ago if part.cumulative else ends - part.range
        spans.append((starts, ends))
    return spans


def read_label_events(
    query: ACQ, events: LabelEvents, labels: DrawnLabels, spans: Sequence[tuple[Longs, Longs]], workers: Workers
) -> pa.Table | int:
    """The events of the keys of some labels in any of their windows: the columns that the query reads, its group
    columns as texts ``key 0``, ``key 1``, …, and when their files had arrived. If they are more than
    :data:`MOST_EVENTS`, and there are several labels, how many they are."""
    stream, (begins, ends) = events.stream, _merged(spans)
    splits = [split for split in events.splits if len(begins) and split.may_hold(int(begins[0]), int(ends[-1]))]
    computed, columns = dict(query.derived), sorted({*query.columns(), stream.time})
    known = set(zip(*(as_texts(_flat(labels.keys[name])).to_pylist() for name, _ in query.group_by), strict=True))
    most = MOST_EVENTS if len(labels.moments) > 1 else 1 << 62

    def task(numbers: Iterable[int], count: Count = uncounted) -> Iterator[pa.Table]:
        seen = 0
        for split, batch in read_each(stream, (splits[number] for number in numbers), columns):
            times, timed, _ = times_of(batch, stream)
            place = np.searchsorted(begins, times, side="right") - 1
            inside = timed.filter(pa.array((place >= 0) & (times < ends[np.maximum(place, 0)])))
            if not inside.num_rows:
                continue
            groups = [
                as_texts(_flat(evaluate(computed[name], inside, stream.types) if name in computed else inside[name]))
                for name, _ in query.group_by
            ]
            table = pa.table([_flat(inside[name]) for name in columns], names=columns)
            for number, group in enumerate(groups):
                table = table.append_column(f"key {number}", group)
            came = -(1 << 62) if events.arrived is None else events.arrived[split.identity]
            table = table.append_column(CAME, pa.array(np.full(len(table), came)))
            if groups:
                pairs = zip(*(group.to_pylist() for group in groups), strict=True)
                table = table.filter(pa.array([pair in known for pair in pairs]))
            seen += len(table)
            count(EVENTS, len(table))
            if len(table) and seen <= most:
                yield table

    outcome = workers.run(task, len(splits), min(max(len(splits), 1), workers.width), f"check {query.name}")
    if outcome.counts[EVENTS] > most:
        return int(outcome.counts[EVENTS])
    fields = [
        *(pa.field(name, arrow_type(stream.types[name])) for name in columns),
        *(pa.field(f"key {number}", pa.string()) for number in range(len(query.group_by))),
        pa.field(CAME, pa.int64()),
    ]
    tables = [table.cast(pa.schema(fields)) for table in outcome.results]
    return pa.concat_tables([pa.schema(fields).empty_table(), *tables]).combine_chunks()


def _merged(spans: Sequence[tuple[Longs, Longs]]) -> tuple[Longs, Longs]:
    """The begins and the ends of the time that some windows cover together, ascending."""
    begins, ends = (np.concatenate([span[at] for span in spans]) for at in (0, 1))
    order = np.argsort(begins[begins < ends])
    begins, ends = begins[begins < ends][order], ends[begins < ends][order]
    if not len(begins):
        return begins, ends
    reached = np.maximum.accumulate(ends)
    cuts = np.flatnonzero(begins[1:] > reached[:-1]) + 1
    return begins[[0, *cuts]], reached[[*(cuts - 1), len(ends) - 1]]


def _flat(column: Any) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


def events_of_labels(
    query: ACQ, events: pa.Table, time: str, labels: DrawnLabels, spans: Sequence[tuple[Longs, Longs]]
) -> pa.Table:
    """The events that count for each label, once for each label: with :data:`LABEL`, and a column for each part of the
    window whether the event is in it. Of several labels no more than :data:`MOST_EVENTS` and one."""
    columns = {LABEL: pa.array(np.arange(len(labels.moments))), "moment": pa.array(labels.moments)}
    for number, (starts, ends) in enumerate(spans):
        columns |= {f"start {number}": pa.array(starts), f"end {number}": pa.array(ends)}
    for number, (name, _) in enumerate(query.group_by):
        columns[f"label key {number}"] = as_texts(_flat(labels.keys[name]))
    at = f'epoch_us(e."{time}")'
    parts = [f'({at} >= l."start {number}" AND {at} < l."end {number}")' for number in range(len(spans))]
    over = "".join(f', {part} AS "{over_column(number)}"' for number, part in enumerate(parts) if query.window.parts)
    keys = [f'e."key {number}" IS NOT DISTINCT FROM l."label key {number}"' for number in range(len(query.group_by))]
    where = " AND ".join([f"({' OR '.join(parts)})", f'e."{CAME}" <= l.moment', *keys])
    with duckdb.connect(":memory:", config={"threads": 1, "enable_external_access": False}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("events", events)
        connection.register("labels", pa.table(columns))
        counted = f'SELECT l."{LABEL}" AS n, e.rowid AS event{over} FROM labels l JOIN numbered e ON {where}'
        connection.execute("CREATE TEMP TABLE numbered AS SELECT * FROM events")
        most = f" LIMIT {MOST_EVENTS + 1}" if len(labels.moments) > 1 else ""
        rows = connection.sql(f"{counted}{most}").to_arrow_table()
    numbers = rows["event"].to_numpy()
    joined = events.take(pa.array(numbers)).append_column(LABEL, rows["n"].cast(pa.int64()))
    for number in range(len(query.window.parts)):
        joined = joined.append_column(over_column(number), rows[over_column(number)])
    return joined.append_column(INSIDE, pa.array(np.zeros(len(joined), dtype=np.int64)).cast(pa.timestamp("us", "UTC")))


def _batches(joined: pa.Table, labels: int) -> Iterator[tuple[pa.Table, int, int]]:
    """The events of labels, some labels at a time, numbered from 0, with the numbers [first, last) of the labels."""
    number = joined[LABEL].to_numpy()
    reached = np.cumsum(np.bincount(number, minlength=labels)) // BATCH_EVENTS
    cuts = [0, *(np.flatnonzero(np.diff(reached)) + 1).tolist(), labels]
    place = joined.column_names.index(LABEL)
    for first, last in pairwise(cuts):
        inside = (number >= first) & (number < last)
        part = joined.filter(pa.array(inside))
        yield part.set_column(place, LABEL, pa.array(number[inside] - first)), first, last


def wrong_features(query: ACQ, joined: pa.Table, labels: DrawnLabels, features: pa.Table, overflows: bool) -> list[str]:
    """Differences between the features of labels and those recomputed from their events. ``overflows``: some values
    are null because they do not fit."""
    unparted = replace(over_events(query), window=Window(1, 1), group_by=((LABEL, LONG),), derived=(), select=())
    nothing = _of_nothing(unparted)
    rows = {row[LABEL]: row for row in recompute_here(joined, unparted, INSIDE, [(0, 1)])}
    columns = [_stored(features[output.name], output) for output in query.outputs]
    wrong = []
    for number, moment in enumerate(labels.moments.tolist()):
        values = [column[number] for column in columns]
        # of a label without events nothing is compared with HAVING
        row = rows.get(number, nothing)
        verdict = qualifies(unparted, row) if number in rows else True
        is_all_null = all(value is None for value in values)
        if verdict is False or (verdict is None and is_all_null):
            if not is_all_null:
                wrong.append(f"{_named(query, labels, number, moment)} has values, but fails HAVING")
            continue
        for output, own, value in zip(query.outputs, unparted.outputs, values, strict=True):
            if not (overflows and value is None) and not agrees(own, value, row):
                recomputed = row.get(output.name, "another value")
                wrong.append(
                    f"{_named(query, labels, number, moment)}: {output.name} is {value}, recomputed {recomputed}"
                )
    return wrong


def _of_nothing(query: ACQ) -> dict[str, Any]:
    """The evidence of all outputs over no events."""
    row: dict[str, Any] = {}
    for output in query.outputs:
        for part in recomputed_parts(output):
            row |= {f"{part.name} {what}" if what else part.name: each for what, each in evidence(part, [], []).items()}
    return row


def _named(query: ACQ, labels: DrawnLabels, number: int, moment: int) -> str:
    key = [row[number] for row in (labels.keys[name].to_pylist() for name, _ in query.group_by)]
    return f"{query.name}: label of {format_instant(moment)}, key {key}"


def _stored(column: pa.ChunkedArray, output: Output) -> list[Any]:
    """Typed values as the results table stores them."""
    if output.type.name == "binary":
        return [None if sketch is None else base64.b64encode(sketch).decode() for sketch in column.to_pylist()]
    lowered = lowered_of(_flat(column), output.type)
    values = np.asarray(lowered.values).tolist()
    return [value if valid else None for value, valid in zip(values, np.asarray(lowered.valid).tolist(), strict=True)]


def check_query(
    query: ACQ,
    rule: MomentRule,
    events: LabelEvents,
    labels: DrawnLabels,
    features: pa.Table,
    workers: Workers,
    overflows: bool,
) -> int:
    """Recompute the ``features`` of drawn labels, in their order; of how many, which may be fewer. Raises HDL-530 if
    some differ, HDL-531 if they cannot be recomputed."""
    while True:
        spans = spans_of_labels(query, events.stream, rule, labels.moments)
        read = read_label_events(query, events, labels, spans, workers)
        if not isinstance(read, int):
            joined = events_of_labels(query, read, events.stream.time, labels, spans)
            if len(joined) <= MOST_EVENTS or len(labels.moments) == 1:
                break
            read = len(joined)
        labels = labels.part(0, max(1, len(labels.moments) * MOST_EVENTS // (2 * read)))
    try:
        wrong = [
            difference
            for part, first, last in _batches(joined, len(labels.moments))
            for difference in wrong_features(
                query, part, labels.part(first, last), features.slice(first, last - first), overflows
            )
        ]
    except CannotTell as error:
        raise HeddleError("HDL-531", f"features of {query.name} cannot be recomputed: {error}", "report it") from error
    if wrong:
        message = f"{number_of(len(wrong), 'feature')} of {len(labels.moments):,} drawn labels differ from those"
        raise HeddleError("HDL-530", f"{message} recomputed, nothing was written: {'; '.join(wrong[:3])}", "report it")
    return len(labels.moments)
