"""Recompute a few windows of one query from raw events, with DuckDB and plain Python: what the audit compares with
if there is little to read.

DuckDB evaluates expressions and filters, puts events into windows and groups them. Python then applies the
definition to the values of each group (:data:`spark_jobs.audit.unshared.audited.AUDITED`). It shares only the
language with the shared execution, and needs no JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from functools import cache
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.workload.grouping_sets import grouping_ids
from optimizer.workload.values import ACQ, Column, Expression, Output, Window
from optimizer.workload.window_kinds import ROWS, SEQUENCE, SESSION, TIME, WindowKind
from spark_jobs.audit.unshared import sequences
from spark_jobs.audit.unshared.audited import audit_of, evidence
from spark_jobs.audit.unshared.duckdb_expressions import FLOOR_DIV, CannotTell, Translator, text_literal
from spark_jobs.audit.unshared.values import (
    EPOCH,
    compared_outputs,
    over_column,
    over_events,
    part_spans,
    recomputed_parts,
    sets_with,
)
from spark_jobs.streams.sources.expressions import arrow_type

Chosen = Callable[[dict[str, Any]], bool]
"""Predicate of the groups to recompute, over a row with its window and the values of its group columns."""


def recompute_here(
    events: pa.Table,
    query: ACQ,
    time_column: str,
    windows: Sequence[tuple[int, int]],
    chosen: Chosen | None = None,
) -> list[dict[str, Any]]:
    """Answers for the given windows (start, end), microseconds: rows as those of
    :func:`spark_jobs.audit.unshared.windows.recompute`.

    ``events`` have at least the columns that the query reads. Groups that are not ``chosen`` have rows without any
    value: they exist, and cost little. Raises CannotTell.
    """
    try:
        return _recomputed(events, query, time_column, windows, chosen)
    except (duckdb.Error, OverflowError) as error:
        raise CannotTell(f"{type(error).__name__}: {error}") from error


class _Arguments:
    """Expressions that are read of every event, each once, with their values."""

    def __init__(self, translate: Translator) -> None:
        self.translate = translate
        self.columns: dict[str, tuple[int, str]] = {}

    def at(self, expression: Expression) -> tuple[int, str]:
        """The number of an expression, and the kind of its values."""
        sql, kind = self.translate(expression)
        return self.columns.setdefault(sql, (len(self.columns), kind))

    def values(self, columns: Sequence[list[Any]], at: tuple[int, str]) -> list[Any]:
        """The values of an expression, of what :attr:`listed` gives."""
        values = columns[at[0]]
        return [None if value is None else _moment(value) for value in values] if at[1] == "timestamp" else values

    @property
    def listed(self) -> list[str]:
        """SQL of all of them, in order: a value an event each."""
        return list(self.columns) or ["0"]


def _recomputed(
    events: pa.Table,
    query: ACQ,
    time_column: str,
    windows: Sequence[tuple[int, int]],
    chosen: Chosen | None,
) -> list[dict[str, Any]]:
    read_columns = {time_column, *query.columns()}
    events = events.select([name for name in events.column_names if name in read_columns])
    names = {name: f"c{number}" for number, name in enumerate(events.column_names)}
    plain, query = dict(names), over_events(query)
    over = [over_column(number) for number in range(len(query.window.parts))]
    names |= {name: f"o{number}" for number, name in enumerate(over)}
    schema = pa.schema([*events.schema, *(pa.field(name, pa.bool_()) for name in over)])
    translate = Translator(schema, names)
    computed = dict(query.derived)
    groups = [_group(*translate(computed.get(name, Column(name)))) for name, _ in query.stored_group_by]
    if query.sets:
        groups = [
            f"(CASE WHEN set_id IN ({', '.join(map(str, [-1, *sets_with(query, name)]))}) THEN {sql} END)"
            for sql, (name, _) in zip(groups, query.stored_group_by, strict=True)
        ]
        groups.append("set_id")
    labels = query.select or tuple(name for name, _ in query.group_by)
    condition = "TRUE" if query.filter is None else translate(query.filter)[0]
    arguments = _Arguments(translate)
    outputs = [part for output in (*query.outputs, *compared_outputs(query)) for part in recomputed_parts(output)]
    places = [_places(arguments, output) for output in outputs]
    read = arguments.listed
    time, values = names[time_column], len(read)
    kind = RECOMPUTED[query.kind]
    condition, read = kind.read(query, names, time, condition, read)
    keys = ['"since"', '"until"', *groups]
    # one list a column, all in one order: an object an event would take longer than everything else
    lists = [f"list({sql})" for sql in read]
    connection = _database()
    # to register a table takes longer than to read a few constants
    connection.register("events", _plain(events, plain))
    inside = _in_windows(time, [(span, part_spans(query.window, span[1])) for span in windows])
    if query.window.gap is not None:
        per = [groups[at] for at, (name, _) in enumerate(query.group_by) if name in (query.window.per or ())]
        inside, condition = _in_sessions(query.window, query.window.gap, inside, time, condition, per), "TRUE"
    if query.sets:
        ids = grouping_ids([name for name, _ in query.stored_group_by], query.sets)
        inside += f" CROSS JOIN (VALUES {', '.join(f'({id}::BIGINT)' for id in ids)}) sets(set_id)"
    rows, join = list[dict[str, Any]](), ""
    try:
        if chosen is not None:
            rows, join = _unchosen(connection, f"FROM {inside} WHERE {condition}", groups, labels, chosen)
        fetched = connection.execute(
            f"SELECT {', '.join(keys + lists)} FROM {inside} {join} WHERE {condition} GROUP BY {', '.join(keys)}"
        ).fetchall()
    finally:
        connection.unregister("events")
    for since, until, *columns in fetched:
        group, columns = columns[: len(groups)], columns[len(groups) :]
        row = {"window_start": _moment(since), "window_end": _moment(until), **dict(zip(labels, group, strict=True))}
        if (answer := kind.answer(query, outputs, arguments, places, columns, values)) is not None:
            rows.append(row | answer)
    return rows


def _in_windows(time: str, windows: Sequence[tuple[tuple[int, int], Sequence[tuple[int, int]]]]) -> str:
    """SQL of the events in some windows, once for each that holds them; with the spans of the parts of a window those
    in one of them, and whether they are in each.
    """
    spans = ", ".join(
        f"({', '.join(f'{at}::BIGINT' for span in (window, *parts) for at in span)})" for window, parts in windows
    )
    parts = range(len(windows[0][1]) if windows else 0)
    names = ", ".join(["since", "until", *(f"s{part}, e{part}" for part in parts)])
    inside = f"events JOIN (VALUES {spans}) windows({names}) ON {time} >= since AND {time} < until"
    if not parts:
        return inside
    over = [f"{time} >= s{part} AND {time} < e{part} AS o{part}" for part in parts]
    some = " OR ".join(f"o{part}" for part in parts)
    return f"(SELECT * FROM (SELECT *, {', '.join(over)} FROM {inside}) WHERE {some}) windows"


def _in_sessions(window: Window, gap: int, inside: str, time: str, condition: str, per: Sequence[str]) -> str:
    """SQL of the events of the sessions that begin a gap behind the begin of a span and end in it, of which the span
    has all events. ``inside``: the events in spans that do not overlap; ``per``: the key."""
    keys = "".join(f", {sql} AS p{at}" for at, sql in enumerate(per))
    by = ", ".join(["since", "until", *(f"p{at}" for at in range(len(per)))])
    follows = f"{time} - lag({time}) OVER (PARTITION BY {by} ORDER BY {time}) <= {gap}"
    chosen = f"SELECT *{keys} FROM {inside} WHERE {condition}"
    marked = f"SELECT *, coalesce(NOT {follows}, TRUE)::INT AS is_first FROM ({chosen})"
    numbered = f"SELECT *, sum(is_first) OVER (PARTITION BY {by} ORDER BY {time}) AS session FROM ({marked})"
    first, last = (f"{least}({time}) OVER (PARTITION BY {by}, session)" for least in ("min", "max"))
    # one that is longer than it may be starts so far before its end
    began = f"greatest({first}, {last} - {window.range})"
    ended = f"SELECT *, {began} AS began, {last} + {gap} AS ended FROM ({numbered})"
    complete = f"began - {gap} >= since AND ended < until AND {time} >= began"
    return f"(SELECT * REPLACE (began AS since, ended AS until) FROM ({ended}) WHERE {complete}) windows"


def _unchosen(
    connection: duckdb.DuckDBPyConnection, events: str, groups: Sequence[str], names: Sequence[str], chosen: Chosen
) -> tuple[list[dict[str, Any]], str]:
    """Rows of the groups that are not chosen, and the join that keeps the others."""
    aliases = [f"{sql} AS g{number}" for number, sql in enumerate(groups)]
    columns = ["since", "until", *(f"g{number}" for number in range(len(groups)))]
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE cells AS SELECT * FROM "
        f"(SELECT DISTINCT {', '.join(['since', 'until', *aliases])} {events})"
    )
    rows, numbers = list[dict[str, Any]](), list[int]()
    for number, since, until, *group in connection.execute(f"SELECT rowid, {', '.join(columns)} FROM cells").fetchall():
        row = {"window_start": _moment(since), "window_end": _moment(until), **dict(zip(names, group, strict=True))}
        if chosen(row):
            numbers.append(number)
        else:
            rows.append(row)
    picked = ", ".join(map(str, numbers))
    connection.execute(f"DELETE FROM cells WHERE rowid NOT IN ({picked})" if numbers else "DELETE FROM cells")
    same = [f"cells.g{number} IS NOT DISTINCT FROM {sql}" for number, sql in enumerate(groups)]
    join = " AND ".join(["cells.since = windows.since", "cells.until = windows.until", *same])
    return rows, f"SEMI JOIN cells ON {join}"


def _group(sql: str, kind: str) -> str:
    # one zero, whatever its sign
    return f"(CASE WHEN {sql} = 0 THEN 0.0 ELSE {sql} END)" if kind == "double" else f"({sql})"


def _places(arguments: _Arguments, output: Output) -> list[tuple[int, str]]:
    """Places of the argument of an output and of its ``by``."""
    return [arguments.at(expression) for expression in (output.argument, output.by) if expression is not None]


def _values(
    arguments: _Arguments, output: Output, places: Sequence[tuple[int, str]], read: Sequence[list[Any]]
) -> tuple[list[Any], list[Any]]:
    """The values of an output's arguments that count."""
    if not places:
        return read[0], []
    columns = [arguments.values(read, place) for place in places]
    if output.argument_type is not None and output.argument_type.name == "decimal":
        # integers whose arithmetic needs more than 64 bits are decimals in answers
        unit = Decimal(1).scaleb(-output.argument_type.scale)
        with localcontext(prec=100):
            columns[0] = [None if value is None else Decimal(value).quantize(unit) for value in columns[0]]
    if len(columns) == 1:
        return [value for value in columns[0] if value is not None], []
    nulls = audit_of(output).keeps_nulls
    pairs = [pair for pair in zip(*columns, strict=True) if pair[1] is not None and (nulls or pair[0] is not None)]
    return [value for value, _ in pairs], [other for _, other in pairs]


def _named(output: Output, evidence: dict[str, Any]) -> dict[str, Any]:
    return {f"{output.name} {what}" if what else output.name: value for what, value in evidence.items()}


def _read_events(query: ACQ, names: Mapping[str, str], time: str, where: str, read: list[str]) -> tuple[str, list[str]]:
    return where, read


def _read_typed_events(
    query: ACQ, names: Mapping[str, str], time: str, where: str, read: list[str]
) -> tuple[str, list[str]]:
    pattern = query.sequence
    on = f"{names[pattern.on]}::VARCHAR"
    # events of other types are in no sequence, and come between none
    where = f"({where}) AND {on} IN ({', '.join(map(text_literal, sorted(pattern.types)))})"
    over = [names[over_column(number)] for number in range(len(query.window.parts))]
    return where, [*read, time, on, *(f"{names[name]}::VARCHAR" for name in pattern.per), *over]


def _aggregated(
    query: ACQ,
    outputs: Sequence[Output],
    arguments: _Arguments,
    places: Sequence[Sequence[tuple[int, str]]],
    read: Sequence[list[Any]],
    values: int,
) -> dict[str, Any] | None:
    """The evidence of the outputs over the events of one window and group. ``read``: their values."""
    row: dict[str, Any] = {}
    for output, place in zip(outputs, places, strict=True):
        row |= _named(output, evidence(output, *_values(arguments, output, place, read)))
    return row


def _matched(
    query: ACQ,
    outputs: Sequence[Output],
    arguments: _Arguments,
    places: Sequence[Sequence[tuple[int, str]]],
    read: Sequence[list[Any]],
    values: int,
) -> dict[str, Any] | None:
    """The evidence of the outputs over the sequences of the events of one window and group; None if there is none.
    ``read``: of each event its ``values``, its time, its type, its key, and whether it lies in each part of the window.
    """
    moments, types, *per = read[values:]
    per, inside = per[: len(query.sequence.per)], per[len(query.sequence.per) :]
    nothing = [None] * len(moments)
    columns = [arguments.values(read, place[0]) if place else nothing for place in places]
    each = list(zip(*columns, strict=True)) if columns else [()] * len(moments)
    keys, places_of = (zip(*columns, strict=True) if columns else [()] * len(moments) for columns in (per, inside))
    events = zip(keys, zip(moments, types, each, strict=True), places_of, strict=True)
    answers = sequences.answer(query, outputs, events)
    if answers is None:
        return None
    row: dict[str, Any] = {}
    for output, answer in zip(outputs, answers, strict=True):
        kinds = sequences.evidence_of(output)
        row |= _named(output, {what: pa.scalar(answer[what], arrow_type(type)).as_py() for what, type in kinds.items()})
    return row


class RecomputedKind(NamedTuple):
    """Recomputation of a query of one kind of window.

    - ``read``: the condition on events and the columns of each, made of those of the filter and the outputs;
    - ``answer``: the evidence of the outputs over the events of a window and group; None: it has no answer.
    """

    read: Callable[[ACQ, Mapping[str, str], str, str, list[str]], tuple[str, list[str]]]
    answer: Callable[..., dict[str, Any] | None]


_EVENTS = RecomputedKind(_read_events, _aggregated)

RECOMPUTED: Mapping[WindowKind, RecomputedKind] = {
    TIME: _EVENTS,
    ROWS: _EVENTS,
    SEQUENCE: RecomputedKind(_read_typed_events, _matched),
    SESSION: _EVENTS,
}
"""The recomputation of each kind of window."""


def _moment(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def _plain(events: pa.Table, names: dict[str, str]) -> pa.Table:
    """The events with timestamps as integer microseconds, so that DuckDB meets no time zone."""
    columns = []
    for column in events.columns:
        if pa.types.is_timestamp(column.type):
            column = pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz)), pa.int64())
        columns.append(column)
    return pa.table(columns, names=list(names.values()))


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """The one database of this process, which reaches nothing else."""
    connection = duckdb.connect(":memory:", config={"threads": 1, "enable_external_access": False})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(FLOOR_DIV)
    return connection
