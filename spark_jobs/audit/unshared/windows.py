"""Unshared execution: each query separately, with Spark's own aggregates over raw events.

:func:`unshared` is a plain Spark job, one sliding ``window()`` a query: the baseline of the benchmarks.
:func:`recompute` answers a few given windows without ``window()``: the audit compares published answers with it;
:func:`agrees` decides how far doubles and sketches may differ, and :func:`qualifies` which rows satisfy HAVING.
Columns are built only from Heddle's values, never from query text.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import Window as SparkWindow
from pyspark.sql import functions as F

from optimizer.workload.grouping_sets import grouping_ids
from optimizer.workload.values import ACQ, BOOLEAN, Output, Window
from optimizer.workload.window_kinds import ROWS, SEQUENCE, SESSION, TIME, WindowKind
from spark_jobs.audit.unshared import sequences
from spark_jobs.audit.unshared.calendars import instants_holding, start_at, windows_holding
from spark_jobs.audit.unshared.columns import (
    GroupedFrame,
    Schema,
    ddl_of,
    derived_column,
    literal_column,
    quoted_column,
    schema_of,
    spark_output,
    to_column,
)
from spark_jobs.audit.unshared.spark_evidence import evidence_columns
from spark_jobs.audit.unshared.values import (
    COMPARISONS,
    SET,
    compared_outputs,
    over_column,
    over_events,
    part_spans,
    recomputed_parts,
    sets_with,
)
from spark_jobs.streams.sources.expressions import arrow_type

WindowColumns = Mapping[str, SparkColumn]
"""The columns of an answer that identify its window, by name."""


def unshared(frame: DataFrame, query: ACQ, time_column: str) -> DataFrame:
    """Answer one query with one plain Spark aggregation over Spark's sliding ``window()``: every window of the
    frame.

    Returns window_start and window_end (of the content: a historical window's instant is ``ago`` later), the group
    columns and the outputs, of the answers that satisfy HAVING. Integers are summed as Spark does, in 64 bits (null
    on overflow). ``window()`` refuses a slide beyond the range. Such windows are those of a tumbling one, and
    events behind their ends are filtered out.

    Windows of rows have their ``position``, the number of the first row, behind the end; ``frame`` then has just
    the stream's columns, in its order, and all its events. A refresh bound is taken as the slide, because a single
    job has nothing to wait for, unless the window names its instants.
    """
    kind, schema, time = UNSHARED[query.kind], schema_of(frame), quoted_column(time_column)
    frame, window = kind.in_windows(frame, query, time, schema)
    return kind.answers(frame, over_events(query), time, window, {**schema, **_over_schema(query)})


def _window_columns() -> dict[str, SparkColumn]:
    window = F.col("`heddle window`")
    return {"window_start": window["start"], "window_end": window["end"]}


def _filtered(frame: DataFrame, query: ACQ, schema: Schema) -> DataFrame:
    return frame if query.filter is None else frame.where(to_column(query.filter, schema))


def _in_windows_of_time(
    frame: DataFrame, query: ACQ, time: SparkColumn, schema: Schema
) -> tuple[DataFrame, WindowColumns]:
    """The events of a query, once for every window that holds them."""
    range_, slide = query.window.range, query.window.period if query.window.at is None else query.window.slide
    frame, window = _filtered(frame, query, schema), _window_columns()
    if query.window.parts:
        return _in_several_windows(frame, query, time), window
    if not query.window.is_regular:
        frame = frame.select("*", F.explode(windows_holding(query.window, time)).alias("heddle window"))
        if query.window.at is not None:
            frame = frame.where(F.unix_micros(window["window_end"]).isin(list(query.window.at)))
        return frame, window
    ends = F.unix_micros(window["window_start"]) + range_
    window["window_end"] = F.timestamp_micros(ends)
    sizes = [f"{size} microseconds" for size in (max(range_, slide), slide, -query.window.ago % slide)]
    frame = frame.select("*", F.window(time, *sizes).alias("heddle window"))
    if slide > range_:
        frame = frame.where(time < window["window_end"])
    if query.window.at is not None:
        ends_due = [instant - query.window.ago for instant in query.window.at]
        frame = frame.where(ends.isin(ends_due) if ends_due else F.lit(False))
    return frame, window


def _over_schema(query: ACQ) -> Schema:
    return {over_column(number): BOOLEAN for number in range(len(query.window.parts))}


def _in_several_windows(frame: DataFrame, query: ACQ, time: SparkColumn) -> DataFrame:
    """The events, once for every instant at which one of the parts of the query's window holds them, and which do."""
    names = [f"heddle instants {number}" for number in range(len(query.window.parts))]
    holding = zip(names, query.window.parts, strict=True)
    # as columns of their own: what is written twice is computed twice
    frame = frame.select("*", *(_instants_holding(part, time).alias(name) for name, part in holding))
    instants = [quoted_column(name) for name in names]
    every = reduce(F.array_union, instants)
    due = [F.lit(at) for at in query.window.at] if query.window.at is not None else None
    every = every if due is None else F.array_intersect(every, F.array(*due).cast("array<bigint>"))
    frame = frame.select("*", F.explode(every).alias("heddle instant"))
    instant = F.col("`heddle instant`")
    starts = [instant - part.reach if part.is_regular else start_at(part, instant) for part in query.window.parts]
    start, end = F.timestamp_micros(reduce(F.least, starts)), F.timestamp_micros(instant)
    span = F.struct(start.alias("start"), end.alias("end"))
    over = [F.array_contains(of_part, instant).alias(over_column(at)) for at, of_part in enumerate(instants)]
    return frame.select("*", span.alias("heddle window"), *over).drop(*names)


def _instants_holding(window: Window, time: SparkColumn) -> SparkColumn:
    """The instants (microseconds) of a window that hold an event: an array."""
    if not window.is_regular:
        return instants_holding(window, time)
    # instants k * slide + range after the event that far
    first = F.unix_micros(time) + window.ago
    before, slide = first - window.range, F.lit(window.slide).cast("bigint")
    next_start = before - F.pmod(before, slide) + slide
    last_start = first - F.pmod(first, slide)
    some = F.transform(F.sequence(next_start, last_start, slide), lambda start: start + window.range)
    return F.when(next_start <= last_start, some).otherwise(F.array().cast("array<bigint>"))


def _in_windows_of_rows(
    frame: DataFrame, query: ACQ, time: SparkColumn, schema: Schema
) -> tuple[DataFrame, WindowColumns]:
    """The rows of a query, once for every complete window that they are in. All rows are numbered, then filtered."""
    numbered = _row_windows(frame, query.window, time)
    return _filtered(numbered, query, schema), _window_columns() | {"position": F.col("`heddle window`")["position"]}


def _in_sessions(frame: DataFrame, query: ACQ, time: SparkColumn, schema: Schema) -> tuple[DataFrame, WindowColumns]:
    """The events of a query, each with its session, without sessions that are longer than they may be."""
    sessions = _sessions(_filtered(frame, query, schema), query, time, schema, [])
    sessions = sessions.withColumnRenamed("heddle span", "heddle window")
    began, longest = F.col("`heddle window`")["start"], query.window.range + query.window.pause
    length = F.unix_micros(F.col("`heddle window`")["end"]) - F.unix_micros(began)
    return sessions.where(length <= longest), _window_columns()


def _sessions(
    frame: DataFrame, query: ACQ, time: SparkColumn, schema: Schema, within: Sequence[SparkColumn]
) -> DataFrame:
    """The events, with the span of the session of each as ``heddle span``; ``within``: what sessions do not cross."""
    computed, at = dict(query.derived), F.unix_micros(time)
    per = [
        to_column(computed[name], schema) if name in computed else quoted_column(name)
        for name in query.window.per or ()
    ]
    key = SparkWindow.partitionBy(*within, *per)
    follows = at - F.lag(at).over(key.orderBy(at)) <= query.window.pause
    is_first = (~F.coalesce(follows, F.lit(False))).cast("int")
    marked = frame.where(time.isNotNull()).select("*", is_first.alias("heddle first"))
    number = F.sum(F.col("`heddle first`")).over(key.orderBy(at))
    numbered = marked.select("*", number.alias("heddle session"))
    session = SparkWindow.partitionBy(*within, *per, F.col("`heddle session`"))
    end = F.timestamp_micros(F.max(at).over(session) + query.window.pause)
    span = F.struct(F.min(time).over(session).alias("start"), end.alias("end"))
    return numbered.select("*", span.alias("heddle span"))


def _evidence_of_sessions(
    frame: DataFrame, query: ACQ, time: SparkColumn, window: WindowColumns, audited: Sequence[Output], schema: Schema
) -> DataFrame:
    """The evidence of the sessions that begin a gap behind the begin of a given span and end in it."""
    span, gap = F.col("`heddle window`"), query.window.pause
    sessions = _sessions(frame, query, time, schema, [span])
    start, end = (F.unix_micros(F.col("`heddle span`")[side]) for side in ("start", "end"))
    # one that is longer than it may be starts so far before its end
    start = F.greatest(start, end - gap - query.window.range)
    is_complete = (start - gap >= F.unix_micros(span["start"])) & (end < F.unix_micros(span["end"]))
    complete = sessions.where(is_complete & (F.unix_micros(time) >= start)).withColumn(
        "heddle window", F.struct(F.timestamp_micros(start).alias("start"), F.timestamp_micros(end).alias("end"))
    )
    return _evidence(complete, query, time, window, audited, schema)


def _matched(frame: DataFrame, query: ACQ, time: SparkColumn, window: WindowColumns, schema: Schema) -> DataFrame:
    """The answers over the event sequences of the windows of a frame."""
    plain = {
        part.name: part for output in (*query.outputs, *compared_outputs(query)) for part in recomputed_parts(output)
    }
    answers = _sequences(frame, query, time, window, list(plain.values()), schema)
    for condition, output in zip(query.having, compared_outputs(query), strict=True):
        answers = answers.where(COMPARISONS[condition.comparison](_of_parts(output), literal_column(condition.value)))
    values = (_of_parts(output).alias(output.name) for output in query.outputs)
    return answers.select(*window, *_groups(query, schema), *values)


def _aggregated(frame: DataFrame, query: ACQ, time: SparkColumn, window: WindowColumns, schema: Schema) -> DataFrame:
    """The answers over the events of the windows of a frame."""
    grouped = GroupedFrame(schema)
    answers = {output.name: spark_output(grouped, output) for output in query.outputs}
    conditions = [
        COMPARISONS[condition.comparison](spark_output(grouped, condition.output), literal_column(condition.value))
        for condition in query.having
    ]
    groups = _groups(query, schema)
    orders = _orders(grouped, query, groups)
    keys = (key.alias(name) for name, key in groups.items())
    rows = _in_sets(frame, query).groupBy(F.col("`heddle window`"), *keys).agg(*grouped.aliased())
    if conditions:
        rows = rows.where(reduce(lambda both, and_: both & and_, conditions))
    if query.top is not None:
        first = F.row_number().over(SparkWindow.partitionBy(F.col("`heddle window`")).orderBy(*orders))
        rows = rows.select("*", first.alias("heddle place")).where(F.col("`heddle place`") <= query.top.k)
    return rows.select(
        *(column.alias(name) for name, column in window.items()),
        *(quoted_column(name) for name in groups),
        *(column.alias(name) for name, column in answers.items()),
    )


def _of_parts(output: Output) -> SparkColumn:
    """An output in a frame of recomputed parts."""
    columns = [quoted_column(part.name) for part in recomputed_parts(output)]
    return derived_column(output, columns) if output.parts else columns[0]


def _orders(grouped: GroupedFrame, query: ACQ, groups: Mapping[str, SparkColumn]) -> list[SparkColumn]:
    """The order of the answers of a window, the group columns last."""
    orders = []
    for order in query.top.orders if query.top is not None else ():
        column = spark_output(grouped, order.output)
        name = f"{'desc' if order.descending else 'asc'}_nulls_{'first' if order.nulls_first else 'last'}"
        orders.append(getattr(column, name)())
    return [*orders, *(quoted_column(name).asc_nulls_first() for name in groups)]


def _row_windows(frame: DataFrame, window: Window, time: SparkColumn) -> DataFrame:
    """The rows, once for every complete window of rows that they are in."""
    range_, slide = window.range, window.slide
    order = [time]
    for name, type in frame.dtypes:
        column = quoted_column(name)
        order.append(column.asc_nulls_first())
        if type in ("double", "float"):
            # Spark's order takes -0.0 for 0.0
            order.append(column.cast("string") != "-0.0")
    per = [quoted_column(name) for name in window.per or ()]
    numbered = frame.where(time.isNotNull()).select(
        "*", (F.row_number().over(SparkWindow.partitionBy(*per).orderBy(*order)).cast("bigint") - 1).alias("heddle row")
    )
    row = F.col("`heddle row`")
    before = row - (range_ - 1)
    first = F.when(before <= 0, F.lit(0)).otherwise(before + F.pmod(-before, F.lit(slide)))
    last = row - F.pmod(row, F.lit(slide))
    exploded = numbered.where(first <= last).select(
        "*", F.explode(F.sequence(first, last, F.lit(slide).cast("bigint"))).alias("heddle position")
    )
    position = F.col("`heddle position`")
    partition = SparkWindow.partitionBy(position, *per)
    span = F.struct(
        F.min(time).over(partition).alias("start"),
        F.timestamp_micros(F.unix_micros(F.max(time).over(partition)) + 1).alias("end"),
        position.alias("position"),
    )
    counted = exploded.select("*", F.count(F.lit(1)).over(partition).alias("heddle rows"), span.alias("heddle window"))
    return counted.where(F.col("`heddle rows`") == range_)


def _sequences(
    frame: DataFrame,
    query: ACQ,
    time: SparkColumn,
    window: WindowColumns,
    outputs: Sequence[Output],
    schema: Schema,
) -> DataFrame:
    """The answers of a query of event sequences over events that were put into windows: the window's columns, the group
    columns, and of each output, as ``<name> <what>``, the evidence."""
    pattern, groups = query.sequence, _groups(query, schema)
    keys = {name: column.alias(name) for name, column in {**window, **groups}.items()}
    per = [quoted_column(name).alias(f"heddle per {number}") for number, name in enumerate(pattern.per)]
    arguments = [
        (F.lit(None).cast("int") if output.argument is None else to_column(output.argument, schema)).alias(
            f"heddle argument {number}"
        )
        for number, output in enumerate(outputs)
    ]
    kinds = {
        f"{output.name} {what}".rstrip(): type_
        for output in outputs
        for what, type_ in sequences.evidence_of(output).items()
    }
    read = frame.select(
        *keys.values(),
        F.unix_micros(time).alias("heddle time"),
        quoted_column(pattern.on).cast("string").alias("heddle type"),
        *per,
        *arguments,
    )
    types = [read.schema[name].dataType.simpleString() for name in keys] + [ddl_of(type_) for type_ in kinds.values()]
    escaped = [name.replace("`", "``") for name in (*keys, *kinds)]
    returned = ", ".join(f"`{name}` {type_}" for name, type_ in zip(escaped, types, strict=True))
    arrow = {name: arrow_type(type_) for name, type_ in kinds.items()}

    # Spark's columns stay here
    names, columns = list(keys), len(per)

    def answered(key: tuple[pa.Scalar, ...], events: pa.Table) -> pa.Table:
        by_key: dict[Hashable, list[sequences.Event]] = {}
        for row in events.drop_columns(names).to_pylist():
            at, type_, *values = row.values()
            by_key.setdefault(tuple(values[:columns]), []).append((at, type_, tuple(values[columns:])))
        answers = sequences.answer(query, outputs, by_key.values())
        cells = [value for answer in answers or () for value in answer.values()]
        full = {name: pa.array([value.as_py()], value.type) for name, value in zip(names, key, strict=True)}
        full |= {name: pa.array([value], arrow[name]) for name, value in zip(arrow, cells, strict=answers is not None)}
        empty = {name: pa.array([], value.type) for name, value in zip(names, key, strict=True)}
        empty |= {name: pa.array([], type_) for name, type_ in arrow.items()}
        return pa.table(full if answers else empty)

    return read.groupBy(*keys).applyInArrow(answered, returned)


def _groups(query: ACQ, schema: Schema) -> dict[str, SparkColumn]:
    names = query.select or tuple(name for name, _ in query.group_by)
    computed = {name: to_column(expression, schema) for name, expression in query.derived}
    columns = [computed[name] if name in computed else quoted_column(name) for name, _ in query.stored_group_by]
    if query.sets:
        chosen, number = [sets_with(query, name) for name, _ in query.stored_group_by], quoted_column(SET)
        columns = [F.when(number.isin(ids), column) for ids, column in zip(chosen, columns, strict=True)]
        columns.append(number)
    return dict(zip(names, columns, strict=True))


def _in_sets(frame: DataFrame, query: ACQ) -> DataFrame:
    """The events, once for each grouping set of a query."""
    if not query.sets:
        return frame
    ids = grouping_ids([name for name, _ in query.stored_group_by], query.sets)
    return frame.select("*", F.explode(F.array(*map(F.lit, ids)).cast("array<bigint>")).alias(SET))


# -------------------------------------------------------------------------------------- sampled windows
def recompute(frame: DataFrame, query: ACQ, time_column: str, windows: Sequence[tuple[int, int]]) -> DataFrame:
    """Answer only the given windows (start, end), microseconds: the spans of their content, also of historical
    ones. Every group has a row: :func:`qualifies` decides which rows satisfy HAVING.

    As :func:`unshared`, with these differences:

    - integers are summed in 38 digits, which distinguishes an overflow from a wrong sum;
    - ranks are exact, while Spark multiplies in doubles;
    - after each output comes, as ``<name> <what>``, what :func:`agrees` needs of it;
    - then come the outputs that HAVING compares and that the order uses, named ``having <number>``;
    - a derived output is replaced by its parts, named ``<output> part <name>``.
    """
    schema = schema_of(frame)
    time = quoted_column(time_column)
    moments = [[_moment(at) for at in span] for span in windows]
    inside = reduce(or_, ((time >= start) & (time < end) for start, end in moments), F.lit(False))
    frame = frame.where(inside)
    if query.filter is not None:
        frame = frame.where(to_column(query.filter, schema))
    structs = []
    for span, (start, end) in zip(windows, moments, strict=True):
        parts = part_spans(query.window, span[1]) or [span]
        pairs = (F.struct(_moment(since).alias("start"), _moment(until).alias("end")) for since, until in parts)
        structs.append(F.struct(start.alias("start"), end.alias("end"), F.array(*pairs).alias("parts")))
    holding = F.filter(F.array(*structs), lambda window: F.exists(window["parts"], lambda part: _holds(part, time)))
    # one select, the events' columns untouched: group names may be those of other source columns
    exploded = frame.select("*", F.explode(holding).alias("heddle window"))
    over = _over_schema(query)
    spans = (F.col("`heddle window`")["parts"][number] for number in range(len(over)))
    exploded = exploded.select("*", *(_holds(part, time).alias(name) for name, part in zip(over, spans, strict=True)))
    query, schema = over_events(query), {**schema, **over}
    audited = [part for output in (*query.outputs, *compared_outputs(query)) for part in recomputed_parts(output)]
    return UNSHARED[query.kind].evidence(exploded, query, time, _window_columns(), audited, schema)


def _moment(micros: int) -> SparkColumn:
    return F.timestamp_micros(F.lit(micros))


def _holds(span: SparkColumn, time: SparkColumn) -> SparkColumn:
    return (time >= span["start"]) & (time < span["end"])


def _evidence(
    frame: DataFrame, query: ACQ, time: SparkColumn, window: WindowColumns, audited: Sequence[Output], schema: Schema
) -> DataFrame:
    """The evidence that an audit compares, of some outputs over the events of the windows of a frame."""
    groups, grouped = _groups(query, schema), GroupedFrame(schema)
    answers = [
        column.alias(f"{output.name} {what}" if what else output.name)
        for output in audited
        for what, column in evidence_columns(grouped, output).items()
    ]
    keys = (key.alias(name) for columns in (window, groups) for name, key in columns.items())
    rows = _in_sets(frame, query).groupBy(*keys).agg(*grouped.aliased())
    return rows.select(*window, *(quoted_column(name) for name in groups), *answers)


class UnsharedKind(NamedTuple):
    """Spark's execution of a query of one kind of window.

    - ``in_windows``: the events that the query reads, once for every window that they are in, as ``heddle window``;
    - ``answers``: the answers of all these windows;
    - ``evidence``: of given windows, the answers and what an audit needs to compare them.
    """

    in_windows: Callable[[DataFrame, ACQ, SparkColumn, Schema], tuple[DataFrame, WindowColumns]]
    answers: Callable[[DataFrame, ACQ, SparkColumn, WindowColumns, Schema], DataFrame]
    evidence: Callable[[DataFrame, ACQ, SparkColumn, WindowColumns, Sequence[Output], Schema], DataFrame]


UNSHARED: Mapping[WindowKind, UnsharedKind] = {
    TIME: UnsharedKind(_in_windows_of_time, _aggregated, _evidence),
    ROWS: UnsharedKind(_in_windows_of_rows, _aggregated, _evidence),
    SEQUENCE: UnsharedKind(_in_windows_of_time, _matched, _sequences),
    SESSION: UnsharedKind(_in_sessions, _aggregated, _evidence_of_sessions),
}
"""The unshared execution of each kind of window."""
