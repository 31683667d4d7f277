"""A handful of windows of one query from raw events, by DuckDB and plain Python: what the audit compares with where
there is little to read.

DuckDB evaluates expressions and filters, puts events into windows and groups them; over the values of each group Python
says what the definition says (:mod:`spark_jobs.unshared.plain_evidence`). It shares nothing with the shared execution
but the language, and needs no JVM.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.workload.values import ACQ, Column, Expression, Output
from spark_jobs.sources.expressions import arrow_type
from spark_jobs.unshared import sequences
from spark_jobs.unshared.duckdb_expressions import FLOOR_DIV, CannotTell, Translator
from spark_jobs.unshared.plain_evidence import WITH_NULLS, evidence
from spark_jobs.unshared.values import EPOCH, compared_outputs, recomputed_parts


def recompute_here(
    events: pa.Table, query: ACQ, time_column: str, windows: Sequence[tuple[int, int]]
) -> list[dict[str, Any]]:
    """Answers for the given windows (start, end), microseconds: rows as those of
    :func:`spark_jobs.unshared.windows.recompute`.

    ``events`` have at least the columns that the query reads. Raises CannotTell.
    """
    try:
        return _recomputed(events, query, time_column, windows)
    except (duckdb.Error, OverflowError) as error:
        raise CannotTell(f"{type(error).__name__}: {error}") from error


class _Arguments:
    """What is read of every event: expressions, each once, with the values that they have."""

    def __init__(self, translate: Translator) -> None:
        self.translate = translate
        self.columns: dict[str, tuple[int, str]] = {}

    def at(self, expression: Expression) -> tuple[int, str]:
        """The number of an expression, and the kind of its values."""
        sql, kind = self.translate(expression)
        return self.columns.setdefault(sql, (len(self.columns), kind))

    def values(self, rows: Sequence[dict[str, Any]], at: tuple[int, str]) -> list[Any]:
        """The values of an expression in some rows."""
        name = f"v{at[0]}"
        values = [row[name] for row in rows]
        return [None if value is None else _moment(value) for value in values] if at[1] == "timestamp" else values

    @property
    def packed(self) -> str:
        """SQL of all of them as one value."""
        fields = [f"v{at} := {sql}" for sql, (at, _) in self.columns.items()]
        return f"struct_pack({', '.join(fields or ['nothing := 0'])})"


def _recomputed(
    events: pa.Table, query: ACQ, time_column: str, windows: Sequence[tuple[int, int]]
) -> list[dict[str, Any]]:
    names = {name: f"c{number}" for number, name in enumerate(events.column_names)}
    translate = Translator(events.schema, names)
    computed = dict(query.derived)
    groups = [_group(*translate(computed.get(name, Column(name)))) for name, _ in query.group_by]
    told = query.select or tuple(name for name, _ in query.group_by)
    where = "TRUE" if query.filter is None else translate(query.filter)[0]
    arguments = _Arguments(translate)
    outputs = [part for output in (*query.outputs, *compared_outputs(query)) for part in recomputed_parts(output)]
    places = [_places(arguments, output) for output in outputs]
    read = arguments.packed
    if query.pattern is not None:
        per = ", ".join(f"{names[name]}::VARCHAR" for name in query.pattern.per)
        event = f"t := {names[time_column]}, e := {names[query.pattern.on]}::VARCHAR"
        read = f"struct_pack({event}, p := list_value({per}), v := {read})"
    keys = ", ".join(['"since"', '"until"', *groups])
    time = names[time_column]
    connection = _database()
    connection.register("events", _plain(events, names))
    connection.register(
        "windows", pa.table({"since": [one for one, _ in windows], "until": [end for _, end in windows]})
    )
    try:
        found = connection.execute(
            f"SELECT {keys}, list({read}) FROM events JOIN windows ON {time} >= since AND {time} < until "
            f"WHERE {where} GROUP BY {keys}"
        ).fetchall()
    finally:
        connection.unregister("events")
        connection.unregister("windows")
    rows = []
    for since, until, *group, packed_rows in found:
        row = {"window_start": _moment(since), "window_end": _moment(until), **dict(zip(told, group, strict=True))}
        if query.pattern is None:
            for output, place in zip(outputs, places, strict=True):
                row |= _named(output, evidence(output, *_values(arguments, output, place, packed_rows)))
            rows.append(row)
        elif (matched := _matched(query, outputs, arguments, places, packed_rows)) is not None:
            rows.append(row | matched)
    return rows


def _group(sql: str, kind: str) -> str:
    # one zero, whatever its sign
    return f"(CASE WHEN {sql} = 0 THEN 0.0 ELSE {sql} END)" if kind == "double" else f"({sql})"


def _places(arguments: _Arguments, output: Output) -> list[tuple[int, str]]:
    """Where the argument of an output is read, and what goes beside it."""
    return [arguments.at(one) for one in (output.argument, output.by) if one is not None]


def _values(
    arguments: _Arguments, output: Output, places: Sequence[tuple[int, str]], packed_rows: Sequence[dict[str, Any]]
) -> tuple[list[Any], list[Any]]:
    """The values of an output's arguments that count."""
    if not places:
        return list(packed_rows), []
    columns = [arguments.values(packed_rows, place) for place in places]
    if output.argument_type is not None and output.argument_type.name == "decimal":
        # integers whose arithmetic needs more than 64 bits are decimals in answers
        unit = Decimal(1).scaleb(-output.argument_type.scale)
        with localcontext(prec=100):
            columns[0] = [None if value is None else Decimal(value).quantize(unit) for value in columns[0]]
    if len(columns) == 1:
        return [value for value in columns[0] if value is not None], []
    nulls = output.function in WITH_NULLS
    pairs = [pair for pair in zip(*columns, strict=True) if pair[1] is not None and (nulls or pair[0] is not None)]
    return [value for value, _ in pairs], [other for _, other in pairs]


def _named(output: Output, evidence: dict[str, Any]) -> dict[str, Any]:
    return {f"{output.name} {what}" if what else output.name: value for what, value in evidence.items()}


def _matched(
    query: ACQ,
    outputs: Sequence[Output],
    arguments: _Arguments,
    places: Sequence[Sequence[tuple[int, str]]],
    packed_rows: Sequence[dict[str, Any]],
) -> dict[str, Any] | None:
    """What is said of the sequences of the events of one window and group; None if there is none."""
    packed = [event["v"] for event in packed_rows]
    columns = [arguments.values(packed, place[0]) if place else [None] * len(packed_rows) for place in places]
    by_key: dict[Hashable, list[sequences.Event]] = {}
    for at, event in enumerate(packed_rows):
        values = tuple(column[at] for column in columns)
        by_key.setdefault(tuple(event["p"]), []).append((event["t"], event["e"], values))
    found = sequences.answer(query, outputs, by_key.values())
    if found is None:
        return None
    row: dict[str, Any] = {}
    for output, told in zip(outputs, found, strict=True):
        types = sequences.evidence_of(output)
        row |= _named(output, {what: pa.scalar(told[what], arrow_type(type)).as_py() for what, type in types.items()})
    return row


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
