"""The independent oracle: what every query should answer, computed by DuckDB from the raw events.

Nothing here imports ``optimizer.windows.alignment`` or what computes shared answers (what expressions are in DuckDB's
SQL is what the audit goes by, :mod:`spark_jobs.audit.unshared.duckdb_expressions`): windows are enumerated by SQL from
the epoch arithmetic of the definition, each event is expanded into the windows that hold it, and DuckDB groups.
Sums whose rounding matters (doubles, decimals, variances) are finished in exact rational arithmetic, and what
depends on an order (quantiles, modes, the first and the last) by sorting all values of a window.

Definition: the instants ``k*slide + range``, k any integer, in ``(begin, end]``; the window of instant t is
``[t - range - ago, t - ago)``, and it has an answer if it holds an event satisfying the filter (per group) and the
answer satisfies HAVING. Instants are integer microseconds UTC.

Windows of rows: the rows ``[k*slide, k*slide + range)``, k >= 0, of all that have a time (or of all of one key),
numbered from 0 by time, then by all columns, in their order in the table; null is the least, NaN the greatest, -0.0
less than 0.0. One is whole if it has ``range`` rows; its instant is the microsecond after the last of them.

Sessions: the filtered events of a key, by time; one that is more than a gap behind the one before it begins a session.
It ends a gap behind its last event, and its instant is a microsecond later. One that is longer than UP TO has a row
with an error, which starts so far before its last event, for each group with an event since then.

Event sequences: a join of the filtered events with themselves, one a place of the pattern, in strictly ascending time;
every sequence is then one row a place, and what is aggregated over the events of a type goes over the rows of its
places. A window has an answer if a sequence lies in it. ``reached(k)`` counts the keys for which such a join of the
first k places has a row; with it a window has an answer if a key reached the first. With several windows there is an
answer where a query of the aggregates over one of them would have one.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import Any

import datasketches
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.aggregates.datasketches import quantile_sketch
from optimizer.workload.derived import derived_call_type
from optimizer.workload.values import (
    ACQ,
    DOUBLE,
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    Output,
    Top,
    Type,
    Window,
)
from spark_jobs.audit.unshared.duckdb_expressions import FLOOR_DIV, Translator, quoted, text_literal
from tests import calendars
from tests.exact_moments import Interval, geometric_mean, is_exact, paired, shape, spread_of_exact

EPSILON = sys.float_info.epsilon
LARGEST = sys.float_info.max
SMALLEST = sys.float_info.min
DEVIATIONS = 6
"""So many standard errors a HyperLogLog may be off: its error is a standard deviation."""


# ------------------------------------------------------------------------------------- expected cells
@dataclass(frozen=True)
class Cell:
    """One expected output value: ``value``, or any number in ``[low, high]``, or whatever ``accept`` takes.

    ``value`` None is null. ``overflow``: the exact result does not fit the output's type (then null with a
    coded error is right, and nothing else); ``may_overflow``: an intermediate result of a double computation
    does not fit, so an overflow is as right as the value; ``maybe``: null is, with a coded error or without. ``free``:
    it is made of values that may be rounded either way, and depends on which: anything is right.
    """

    value: Any
    low: float | None = None
    high: float | None = None
    overflow: bool = False
    may_overflow: bool = False
    accept: Callable[[Any], bool] | None = field(default=None, compare=False, repr=False)
    maybe: bool = False
    free: bool = False

    @property
    def is_told(self) -> bool:
        """Whether nothing else is right but its value, as near as it has to be."""
        return not (self.free or self.may_overflow or self.maybe)

    def matches(self, ours: Any) -> bool:
        if self.free:
            return True
        if self.overflow or (self.maybe and ours is None):
            return ours is None
        if self.may_overflow and (ours is None or ours == math.inf):
            return True
        if self.value is None or ours is None:
            return self.value is None and ours is None
        if self.accept is not None:
            return self.accept(ours)
        if isinstance(self.value, float) and (math.isnan(self.value) or math.isnan(ours)):
            return math.isnan(self.value) and math.isnan(ours)
        if self.low is not None and self.high is not None:
            return self.low <= ours <= self.high
        if not isinstance(self.value, float):
            return bool(ours == self.value)
        # both zeros are right only where the caller gave an interval
        return bool(ours == self.value) and math.copysign(1.0, ours) == math.copysign(1.0, self.value)


class Row(tuple[Cell, ...]):
    """The expected outputs of one answer, in the query's order.

    ``certain`` False: a threshold of HAVING lies within what rounding or a sketch leaves open, so the answer may as
    well be missing. ``failure``: what HAVING compares overflowed ("must") or may have ("may"): then the answer is null
    throughout, with a coded error. ``span``: start and end of a window of rows, or of one that is
    not as long as the others, microseconds. ``order``: what it is put in order by.
    """

    certain: bool = True
    failure: str = ""
    span: tuple[int, int] | None = None
    order: tuple[Cell, ...] = ()


Key = tuple[Any, ...]
"""(window start in microseconds, group values...). Of a historical window the start of its content, as of any; of a
window of rows the number of its first row; of windows that are not all equally long, and sessions, their end."""


# -------------------------------------------------------------------------------------------- answers
PAIRED = ("first", "last", "min_by", "max_by")
TWO = ("corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_count")
PLAIN = {"any_value": "min", "every": "bool_and", "some": "bool_or", "any": "bool_or"} | {
    name: name for name in ("min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor")
}
"""Aggregates that DuckDB answers as they are meant, by its name for them."""


def asked_at(query: ACQ, instants: Sequence[int]) -> ACQ:
    """The query as far as it is answered at some instants."""
    return replace(query, window=replace(query.window, at=tuple(instants)))


def answers(query: ACQ, events: pa.Table, time_column: str, begin: int, end: int) -> dict[Key, Row]:
    """Every answer of a query for the instants in ``(begin, end]``, keyed (window start or position, group values...).

    ``events`` hold the raw events with ``time_column`` as a timestamp (naive means UTC); events without a
    time belong to no window. Cells stand in the order of ``query.outputs``. Of the same table they are computed once.
    """
    key = query, id(events), time_column, begin, end
    if key not in _answered:
        if len(_answered) == LATEST:
            _answered.clear()
        # with the table: as long as it is there, no other has its id
        _answered[key] = events, _computed_answers(query, events, time_column, begin, end)
    return dict(_answered[key][1])


LATEST = 64
"""How many queries' answers are remembered: a test asks for the same ones several times."""

_answered: dict[tuple[ACQ, int, str, int, int], tuple[pa.Table, dict[Key, Row]]] = {}


def _computed_answers(query: ACQ, events: pa.Table, time_column: str, begin: int, end: int) -> dict[Key, Row]:
    translate = Translator(events.schema)
    selects: dict[str, int] = {}

    def aggregate(sql: str) -> int:
        return selects.setdefault(sql, len(selects))

    finish = []
    for output in query.computed:
        place = "TRUE"
        if query.pattern is not None:
            place = '"its place" = 0' if output.event is None else f'"its type" = {text_literal(output.event)}'
        if query.window.parts and output.window >= 0:
            part = f'"its part" = {output.window}'
            place = part if place == "TRUE" else f"{place} AND {part}"
        if output.function == "reached":
            assert query.pattern is not None
            key = ", ".join(f"{quoted(name)} := {quoted(name)}" for name in query.pattern.per)
            place = f'"its place" = {-int(output.parameter or 0)}'
            place += f' AND "its part" = {output.window}' if query.window.parts else ""
            distinct = f"count(DISTINCT struct_pack({key})) FILTER ({place})"
            finish.append((output, [aggregate(distinct)], "long"))
            continue
        if output.argument is None:
            finish.append((output, [aggregate(f"count(*) FILTER ({place})")], "long"))
            continue
        argument, kind = translate(output.argument)
        argument = argument if place == "TRUE" else f"(CASE WHEN {place} THEN {argument} END)"
        indexes = [aggregate(f"count({argument})")]
        if output.function in PAIRED:
            assert output.by is not None
            by = translate(output.by)[0]
            not_null = f"{place} AND {by} IS NOT NULL"
            not_null += f" AND {argument} IS NOT NULL" if output.function in PAIRED[:2] else ""
            indexes.append(aggregate(f"list([struct_pack(o := {by}, v := {argument})]) FILTER ({not_null})"))
        elif output.function in TWO:
            assert output.by is not None
            by = translate(output.by)[0]
            not_null = f"{by} IS NOT NULL AND {argument} IS NOT NULL"
            indexes.append(aggregate(f"list([struct_pack(x := {argument}, y := {by})]) FILTER ({not_null})"))
        elif output.function in PLAIN:
            indexes.append(aggregate(f"{PLAIN[output.function]}({argument})"))
        if kind == "long" and output.function in ("sum", "avg"):
            indexes.append(aggregate(f"sum({argument})"))
        elif output.function in TWO:
            pass
        elif output.function in _ORDERED or (output.function != "count" and kind in ("double", "decimal", "long")):
            indexes.append(aggregate(f"list({argument}) FILTER ({argument} IS NOT NULL)"))
        finish.append((output, indexes, kind))

    computed = {name: translate(expression)[0] for name, expression in query.derived}
    groups = [computed.get(name, quoted(name)) for name, _ in query.group_by]
    if query.sets:
        names = [name for name, _ in query.group_by[:-1]]
        ids = [int("".join("01"[name not in chosen] for name in names), 2) for chosen in query.sets]
        for at, name in enumerate(names):
            having = ", ".join(str(id) for id, chosen in zip(ids, query.sets, strict=True) if name in chosen)
            groups[at] = f'(CASE WHEN "its set" IN ({having or -1}) THEN {groups[at]} END)'
        groups[-1] = '"its set"'
    condition = translate(query.filter)[0] if query.filter is not None else "TRUE"
    time = quoted(time_column)
    connection = _database()
    for number, part in enumerate(query.window.each):
        if not _is_plain(part):
            first = pc.min(events[time_column].cast(pa.timestamp("us")).cast(pa.int64())).as_py()
            connection.register(f"windows {number}", calendars.windows_between(part, begin, end, first))
    if query.pattern is not None:
        matched = _sequences_of_several if query.window.parts else _expanded_sequences
        expanded, condition = matched(query, events, time, condition), "TRUE"
    else:
        expanded = _expanded_rows(query.window, events, time) if query.window.is_rows else _expanded(query.window, time)
        if query.window.parts:
            expanded = _expanded_several(query.window, events, time)
        if query.window.gap is not None:
            per = [computed.get(name, quoted(name)) for name in query.window.per or ()]
            expanded = _expanded_sessions(query.window.gap, query.window.range, per, time, condition)
    if query.sets:
        expanded = f'SELECT *, unnest([{", ".join(map(str, ids))}]) AS "its set" FROM ({expanded})'
    chosen = "TRUE" if query.window.at is None else f'"its instant" IN ({", ".join(map(str, (-1, *query.window.at)))})'
    # a window, its start and its instant, then the outputs
    keys = ['"the window"', *groups, '"its start"', '"its instant"']
    statement = f"""
        WITH expanded AS ({expanded})
        SELECT {", ".join([*keys, *selects])} FROM expanded
        WHERE "its instant" > {begin} AND "its instant" <= {end} AND ({chosen}) AND ({condition})
        GROUP BY {", ".join(keys)}
    """
    connection.register("events", _plain(events))
    rows = connection.execute(statement).fetchall()
    connection.unregister("events")
    answer_rows: dict[Key, Row] = {}
    for row in rows:
        values = row[len(keys) :]
        plain = iter([_cell(output, kind, [values[index] for index in indexes]) for output, indexes, kind in finish])
        chosen = (*query.outputs, *query.compared)
        cells = [
            _derived(output, [next(plain) for _ in output.parts]) if output.parts else next(plain) for output in chosen
        ]
        first = len(query.outputs)
        answer_row = _kept(cells[:first], query.having, cells[first : first + len(query.having)])
        start, instant = row[len(keys) - 2 : len(keys)]
        if query.window.gap is not None and (last := instant - 1 - query.window.gap) - start > query.window.range:
            start, answer_row = last - query.window.range, Row(cells[:first])
            answer_row.failure = "must"
        if answer_row is not None:
            spanned = query.window.is_rows or not query.window.is_regular
            answer_row.span = (start, instant - query.window.ago) if spanned else None
            if query.window.gap is not None:
                answer_row.span = start, instant - 1
            answer_row.order = tuple(cells[first + len(query.having) :])
            answer_rows[row[: len(keys) - 2]] = answer_row
    return answer_rows if query.top is None else _first_of_each(query.top, answer_rows)


def _first_of_each(top: Top, found: dict[Key, Row]) -> dict[Key, Row]:
    """Of each window the first k answers; those of which it is not known stay, beside them."""
    top_rows: dict[Key, Row] = {}
    windows: dict[Any, list[Key]] = {}
    for key, row in found.items():
        if any(cell.overflow for cell in row.order):
            row.failure, row.certain = "must", row.certain
        if row.failure == "must":
            top_rows[key] = row
        else:
            windows.setdefault(key[0], []).append(key)
    for keys in windows.values():
        rows = [found[key] for key in keys]
        if not all(row.certain and not row.failure and all(map(_is_certain, row.order)) for row in rows):
            # which are the first depends on how something is rounded
            for row in rows:
                row.certain = False
            top_rows |= dict(zip(keys, rows, strict=True))
            continue
        keys.sort(key=lambda key: [_order(value) for value in key[1:]])
        for at in reversed(range(len(top.orders))):
            order = top.orders[at]
            keys.sort(key=lambda key: _order(found[key].order[at].value), reverse=order.descending)
            nulls = order.nulls_first
            keys.sort(key=lambda key: (found[key].order[at].value is None) != nulls)
        top_rows |= {key: found[key] for key in keys[: top.k]}
    return top_rows


def _is_certain(cell: Cell) -> bool:
    is_near = cell.low is not None and cell.high is not None and cell.low < cell.high
    return not (is_near or cell.free or cell.may_overflow or cell.accept is not None)


# ------------------------------------------------------------------------------ values made of aggregates
class _Overflow(Exception):
    """A result does not fit its type."""


def _derived(output: Output, parts: Sequence[Cell]) -> Cell:
    """The cell of an expression over others: where these are near something, as far as it moves with them."""
    assert output.expression is not None
    if any(cell.overflow for cell in parts):
        return Cell(None, overflow=True)
    if any(not cell.is_told or (cell.accept is not None and cell.value is not None) for cell in parts):
        return Cell("anything", free=True)
    types = {part.name: part.type for part in output.parts}
    exact = [cell.value for cell in parts]
    moved = []
    for at, cell in enumerate(parts):
        if cell.low is not None and cell.high is not None and cell.low < cell.high:
            moved += [[*exact[:at], end, *exact[at + 1 :]] for end in (cell.low, cell.high)]
    tries = []
    for values in [exact, *moved]:
        try:
            tries.append(_told(_value(output.expression, dict(zip(types, values, strict=True)), types)[0], output.type))
        except _Overflow:
            tries.append(_Overflow)
    if _Overflow in tries:
        return Cell(None, overflow=True) if set(map(str, tries)) == {str(_Overflow)} else Cell("anything", free=True)
    value, *moved_values = tries
    if not moved_values or all(other == value for other in moved_values):
        zero = isinstance(value, float) and value == 0
        return Cell(value, 0.0, 0.0) if zero else Cell(value)
    if not all(isinstance(other, float) and math.isfinite(other) for other in tries):
        return Cell("anything", free=True)
    slack = sum(abs(other - value) for other in moved_values) * (1 + 1e-9) + 8 * EPSILON * abs(value) + 5e-324
    return Cell(value, value - slack, value + slack)


def _told(value: Any, type: Type) -> Any:
    """A computed value as answers have it."""
    if not isinstance(value, Fraction):
        return value
    if type.name == "long":
        return int(value)
    with localcontext(prec=120):
        return Decimal(value.numerator) / Decimal(value.denominator)


def _value(expression: Expression, values: dict[str, Any], types: dict[str, Type]) -> tuple[Any, Type]:
    """An expression over values; exact numbers are fractions. Raises _Overflow."""
    if isinstance(expression, Column):
        value, type = values[expression.name], types[expression.name]
        return Fraction(value) if value is not None and type.is_exact else value, type
    if isinstance(expression, Literal):
        value = expression.value
        if expression.type.name == "date" and value is not None:
            value = datetime.date.fromisoformat(value)
        return Fraction(value) if value is not None and expression.type.is_exact else value, expression.type
    pairs = [_value(argument, values, types) for argument in expression.arguments]
    operands, kinds = [value for value, _ in pairs], [type for _, type in pairs]
    type = derived_call_type(expression.function, kinds, expression.arguments)
    if any(kind.name == "double" for kind in kinds) or expression.function == "/":
        operands = [float(operand) if isinstance(operand, Fraction) else operand for operand in operands]
    if {"date", "timestamp"} == {kind.name for kind in kinds}:
        operands = [_micros(operand) if isinstance(operand, datetime.date) else operand for operand in operands]
    if expression.function in _CALLED:
        value = _called(expression.function, operands)
    else:
        value = _by_duckdb(expression.function, operands, kinds, type)
    if isinstance(value, Fraction):
        limit = 2**63 if type.name == "long" else 10 ** (type.precision - type.scale)
        if not -limit <= value < limit or (type.name == "decimal" and value == -limit):
            raise _Overflow
    return value, type


def _by_duckdb(function: str, told: Sequence[Any], kinds: Sequence[Type], type: Type) -> Any:
    """What DuckDB says of any other function."""
    literals = []
    for value, kind in zip(told, kinds, strict=True):
        if isinstance(value, Fraction):
            value = _told(value, kind)
        literals.append(Literal(value.isoformat() if isinstance(value, datetime.date) else value, kind))
    sql, _ = Translator(pa.schema([]))(Call(function, tuple(literals)))
    (answer,) = _database().execute(f"SELECT {sql}").fetchall()[0]
    return Fraction(answer) if answer is not None and type.is_exact else answer


def _called(function: str, told: list[Any]) -> Any:
    if function == "is_null":
        return told[0] is None
    if function == "coalesce":
        return next((operand for operand in told if operand is not None), None)
    if function in ("and", "or"):
        decisive = function == "or"
        return decisive if decisive in told else None if None in told else not decisive
    if function == "in":
        equal = [None if None in (told[0], member) else _order(told[0]) == _order(member) for member in told[1:]]
        return True if True in equal else None if None in equal else False
    if None in told:
        return None
    if function in _ORDERS:
        return _ORDERS[function](_order(told[0]), _order(told[1]))
    if function == "/":
        return None if told[1] == 0 else told[0] / told[1]
    return _COMPUTED[function](*told)


_COMPUTED: dict[str, Callable[..., Any]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "neg": lambda one: -one,
    "abs": abs,
    "not": lambda one: not one,
}

_CALLED = {*_COMPUTED, *("=", "!=", "<", "<=", ">", ">="), "is_null", "coalesce", "and", "or", "in", "/"}


def _expanded_sequences(query: ACQ, events: pa.Table, time: str, where: str) -> str:
    """SQL of the events of each sequence, one row a place, once for every window that holds the whole sequence; and of
    each sequence of so many first events as a funnel asks for one row, its place minus the number of events.
    """
    pattern = query.pattern
    assert pattern is not None
    width, slide, ago = query.window.range, query.window.slide, query.window.ago
    # a shifted window is known by its end
    at, known_by = ago - query.window.offset, width if query.window.offset else 0
    names, start = [quoted(name) for name in events.column_names], f'{slide}::BIGINT * k - {at} AS "a start"'
    length = len(pattern.events)
    rows = [
        f'SELECT {", ".join(f"e{place}.{name} AS {name}" for name in names)}, {place} AS "its place", '
        f'{text_literal(event)} AS "its type", {start} FROM "matched {length}"'
        for place, event in enumerate(pattern.events)
    ]
    steps = {int(output.parameter or 0) for output in query.computed if output.function == "reached"}
    for step in sorted({1, *steps}) if steps else []:
        chosen = ", ".join(f"e0.{name} AS {name}" for name in names)
        rows.append(f'SELECT {chosen}, {-step} AS "its place", NULL AS "its type", {start} FROM "matched {step}"')
    matched = ", ".join(f'"matched {k}" AS ({_prefix(query, k, time)})' for k in sorted({1, length, *steps}))
    return f"""
        SELECT * EXCLUDE "a start", "a start" + {known_by} AS "the window", "a start" AS "its start",
            "a start" + {width + ago} AS "its instant"
        FROM (
            WITH kept AS (SELECT * FROM events WHERE {time} IS NOT NULL AND ({where})), {matched}
            {" UNION ALL ".join(rows)}
        )
    """


def _sequences_of_several(query: ACQ, events: pa.Table, time: str, where: str) -> str:
    """SQL of the events of each sequence as :func:`_expanded_sequences` has them, of each part of the query's window as
    if it were a query of the aggregates over it.
    """
    starts = ", ".join(f'"its instant" - {part.range + part.ago}' for part in query.window.parts)
    parts = []
    for number, part in enumerate(query.window.parts):
        outputs = tuple(output for output in query.computed if output.window == number)
        single = replace(query, window=part, outputs=outputs, having=(), top=None)
        parts.append(f'SELECT *, {number} AS "its part" FROM ({_expanded_sequences(single, events, time, where)})')
    return f"""
        SELECT * EXCLUDE ("the window", "its start"), "its instant" AS "the window", least({starts}) AS "its start"
        FROM ({" UNION ALL ".join(parts)})
    """


def _prefix(query: ACQ, length: int, time: str) -> str:
    """SQL of the sequences of the first events of a query's pattern, once for every window that holds one."""
    pattern, at = query.pattern, query.window.ago - query.window.offset
    assert pattern is not None
    joined: list[str] = []
    for place, event in enumerate(pattern.events[:length]):
        joined.append(f"e{place}.{quoted(pattern.on)}::VARCHAR = {text_literal(event)}")
        if place:
            joined += [f"e{place - 1}.{time} < e{place}.{time}", *_alike(query, f"e{place - 1}", f"e{place}")]
        if place and pattern.absent and pattern.absent[place - 1]:
            types = ", ".join(map(text_literal, pattern.absent[place - 1]))
            between = [f"b.{quoted(pattern.on)}::VARCHAR IN ({types})", *_alike(query, "b", f"e{place}")]
            between += [f"e{place - 1}.{time} < b.{time}", f"b.{time} < e{place}.{time}"]
            joined.append(f"NOT EXISTS (SELECT 1 FROM kept AS b WHERE {' AND '.join(between)})")
    windows = f"""unnest(generate_series(
        floor_div(e{length - 1}.{time} + {at} - {query.window.range}, {query.window.slide}) + 1,
        floor_div(e0.{time} + {at}, {query.window.slide})))"""
    tables = [f"e{place}" for place in range(length)]
    return f"""SELECT {", ".join(f"{table} AS {table}" for table in tables)}, {windows} AS k
        FROM {", ".join(f"kept AS {table}" for table in tables)} WHERE {" AND ".join(joined)}"""


def _alike(query: ACQ, one: str, other: str) -> list[str]:
    """SQL conditions that two events have the same key."""
    assert query.pattern is not None
    return [f"{one}.{quoted(name)} IS NOT DISTINCT FROM {other}.{quoted(name)}" for name in query.pattern.per]


def _expanded_several(window: Window, events: pa.Table, time: str) -> str:
    """SQL of the events, once for every part of every window that holds them. The window starts where its first part
    does.
    """
    starts = [
        f'"its instant" - {part.range + part.ago}'
        if _is_plain(part)
        else f'(SELECT "since" FROM "windows {number}" WHERE "instant" = "its instant")'
        for number, part in enumerate(window.parts)
    ]
    names = ", ".join(quoted(name) for name in events.column_names)
    parts = " UNION ALL ".join(
        f'SELECT {names}, "its instant", {number} AS "its part" FROM ({_expanded(part, time, number)})'
        for number, part in enumerate(window.parts)
    )
    return f'SELECT *, "its instant" AS "the window", least({", ".join(starts)}) AS "its start" FROM ({parts})'


def _expanded(window: Window, time: str, number: int = 0) -> str:
    """SQL of the events, once for every window that holds them."""
    if not _is_plain(window):
        return f"""
            SELECT events.*, "until" AS "the window", "since" AS "its start", "instant" AS "its instant"
            FROM events JOIN "windows {number}" ON {time} >= "since" AND {time} < "until"
        """
    width, slide, ago = window.range, window.slide, window.ago
    # a shifted window is known by its end
    at, known_by = ago - window.offset, width if window.offset else 0
    return f"""
        SELECT * EXCLUDE "a start", "a start" + {known_by} AS "the window", "a start" AS "its start",
            "a start" + {width + ago} AS "its instant"
        FROM (
            SELECT *, {slide}::BIGINT * unnest(generate_series(
                floor_div({time} + {at} - {width}, {slide}) + 1, floor_div({time} + {at}, {slide})
            )) - {at} AS "a start"
            FROM events WHERE {time} IS NOT NULL
        )
    """


def _is_plain(window: Window) -> bool:
    """Whether the windows are equally long, and equally far apart."""
    return window.calendar is None and not window.cumulative and window.since is None


def _expanded_rows(window: Window, events: pa.Table, time: str) -> str:
    """SQL of the rows, once for every whole window of rows that holds them."""
    width, slide = window.range, window.slide
    per = ", ".join(quoted(name) for name in window.per or ())
    order = [time]
    for name, type in zip(events.schema.names, events.schema.types, strict=True):
        order.append(f"{quoted(name)} NULLS FIRST")
        if pa.types.is_floating(type):
            order.append(f"{quoted(name)}::VARCHAR NOT LIKE '-0%'")
    return f"""
        SELECT * FROM (
            SELECT *, min({time}) OVER whole AS "its start", max({time}) OVER whole + 1 AS "its instant"
            FROM (
                SELECT *, {slide}::BIGINT * unnest(generate_series(
                    greatest(floor_div("its number" - {width}, {slide}) + 1, 0), floor_div("its number", {slide})
                )) AS "the window"
                FROM (
                    SELECT *, row_number() OVER ({f"PARTITION BY {per}" if per else ""} ORDER BY {", ".join(order)}) - 1
                        AS "its number"
                    FROM events WHERE {time} IS NOT NULL
                )
            )
            WINDOW whole AS (PARTITION BY {", ".join(['"the window"', *([per] if per else [])])})
            QUALIFY count(*) OVER whole = {width}
        )
    """


def _expanded_sessions(gap: int, longest: int, per: Sequence[str], time: str, condition: str) -> str:
    """SQL of the events, each with its session; of one that is too long the last ones."""
    columns = "".join(f", {sql} AS k{at}" for at, sql in enumerate(per))
    by = "".join(f"k{at}, " for at in range(len(per)))
    return f"""
        SELECT *, "its last" + {gap} AS "the window", "its last" + {gap} + 1 AS "its instant" FROM (
            SELECT *, min({time}) OVER one AS "its start", max({time}) OVER one AS "its last" FROM (
                SELECT *, sum("is first"::INT) OVER (PARTITION BY {by}TRUE ORDER BY {time}) AS "its number" FROM (
                    SELECT *, coalesce({time} - lag({time}) OVER (PARTITION BY {by}TRUE ORDER BY {time}) > {gap}, TRUE)
                        AS "is first"
                    FROM (SELECT *{columns} FROM events WHERE {time} IS NOT NULL AND ({condition}))
                )
            )
            WINDOW one AS (PARTITION BY {by}"its number")
        )
        WHERE {time} >= "its last" - {longest}
    """


def _kept(cells: Sequence[Cell], having: Sequence[Condition], compared: Sequence[Cell]) -> Row | None:
    """The row of an answer, or None if it does not satisfy HAVING."""
    row = Row(cells)
    verdicts = [_satisfies(cell, condition) for cell, condition in zip(compared, having, strict=True)]
    if any(cell.overflow for cell in compared):
        # with another threshold missed, an error is as right as no answer
        row.failure, row.certain = "must", False not in verdicts
        return row
    if any(cell.may_overflow or cell.maybe for cell in compared):
        row.failure = "may"
    row.certain = None not in verdicts
    return None if False in verdicts and not row.failure else row


def _satisfies(cell: Cell, condition: Condition) -> bool | None:
    """Whether a value satisfies a threshold; None if that depends on how it is rounded or estimated."""
    if cell.overflow or cell.may_overflow or cell.maybe or cell.free:
        return None
    if cell.value is None:
        return False
    value, threshold = _comparable(cell.value, condition.value)
    if cell.accept is not None:
        return None
    if cell.low is not None and cell.high is not None and cell.low < cell.high and cell.low <= threshold <= cell.high:
        return None
    return bool(_ORDERS[condition.comparison](_order(value), _order(threshold)))


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def _comparable(value: Any, literal: Literal) -> tuple[Any, Any]:
    threshold = literal.value
    if isinstance(value, float) or isinstance(threshold, float):
        return float(value), float(threshold)
    if literal.type.name == "date":
        threshold = datetime.date.fromisoformat(threshold)
        if isinstance(value, int):
            threshold = _micros(threshold)
    elif isinstance(value, datetime.date):
        value = _micros(value)
    return value, threshold


def _micros(day: datetime.date) -> int:
    return (day - datetime.date(1970, 1, 1)).days * 86_400 * 10**6


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """The one database of this process: opening one costs more than most questions."""
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(FLOOR_DIV)
    return connection


def _plain(events: pa.Table) -> pa.Table:
    """The events with timestamps as integer microseconds, so that DuckDB meets no time zone."""
    columns = []
    for column in events.columns:
        if pa.types.is_timestamp(column.type):
            column = pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz)), pa.int64())
        columns.append(column)
    return pa.table(columns, names=events.column_names)


def _cell(output: Output, kind: str, found: list[Any]) -> Cell:
    count, function = found[0], output.function
    if function in ("count", "reached"):
        return Cell(count)
    if function in PAIRED:
        # a list within the list: DuckDB would leave out a null struct
        return _paired(function, [pair for wrapped in found[1] or () for pair in wrapped])
    if function in TWO:
        pairs = [(pair["x"], pair["y"]) for wrapped in found[1] or () for pair in wrapped]
        return Cell(len(pairs)) if function == "regr_count" else _within(paired(function, pairs))
    if function in _ORDERED:
        values = sorted((_one_zero(value) for value in found[1] or ()), key=_order)
        return _ORDERED[function](output, values)
    if not count:
        return Cell(None)
    if function in PLAIN:
        return _extreme(found[1], found[2] if kind == "double" else [])
    if kind == "long" and function == "sum":
        if output.type.name == "decimal":
            return Cell(found[1], overflow=abs(found[1]) >= 10**output.type.precision)
        return Cell(found[1], overflow=not -(2**63) <= found[1] < 2**63)
    if kind == "long" and function == "avg":
        if output.type.name == "decimal":
            return _decimal(Fraction(found[1], count), output.type)
        return _near(Fraction(found[1], count), Fraction(0))
    values: list[Any] = found[1]
    if function in ("skewness", "kurtosis"):
        return _within(shape(function, values))
    if function == "geometric_mean":
        return _within(geometric_mean(values))
    if kind == "double" and not all(map(math.isfinite, values)):
        return _not_finite(function, values)
    if function in ("sum", "avg"):
        integers, unit = _integers(values)
        divisor = count if function == "avg" else 1
        if output.type.name == "decimal":
            return _decimal(sum(integers) * unit / divisor, output.type)
        magnitude = sum(map(abs, integers)) * unit
        return _near(sum(integers) * unit / divisor, 4 * Fraction(EPSILON) * magnitude / divisor)
    return _within(spread_of_exact(function, values)) if is_exact(values) else _spread(function, values)


def _within(found: Interval) -> Cell:
    return Cell(found.value, found.low, found.high, maybe=found.maybe)


def _extreme(value: Any, doubles: list[float]) -> Cell:
    if value == 0 and doubles and len({math.copysign(1.0, x) for x in doubles if x == 0}) == 2:
        return Cell(value, 0.0, 0.0)
    return Cell(value)


def _order(value: Any) -> tuple[int, Any]:
    """What to sort by: null is the least, NaN the greatest and equal to itself."""
    if value is None:
        return 0, 0
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def _one_zero(value: Any) -> Any:
    return 0.0 if isinstance(value, float) and value == 0 else value


def _paired(function: str, pairs: list[dict[str, Any]]) -> Cell:
    """The value beside the least or the greatest; of several the least or the greatest."""
    if not pairs:
        return Cell(None)
    best = min if function in ("first", "min_by") else max
    order = best(_order(pair["o"]) for pair in pairs)
    values = [pair["v"] for pair in pairs if _order(pair["o"]) == order]
    value = best(values, key=_order)
    return _extreme(value, [number for number in values if isinstance(number, float)])


def _fraction(output: Output) -> Fraction:
    return Fraction(1, 2) if output.parameter is None else Fraction(output.parameter)


def _quantile(output: Output, values: list[Any]) -> Cell:
    """The value at rank max(1, ceil(fraction * n)); with an error, any at a rank so far from it."""
    if not values:
        return Cell(None)
    n = len(values)
    rank = max(1, math.ceil(n * _fraction(output)))
    if output.error is None:
        return Cell(values[rank - 1])
    off = math.floor(n * Fraction(output.error))
    near = values[max(rank - off, 1) - 1 : rank + off]
    if output.function != "percentile_disc":
        near = [float(value) for value in near]
    return Cell(values[rank - 1], accept=lambda ours: _order(ours) in [_order(value) for value in near])


def _percentile(output: Output, values: list[Any]) -> Cell:
    """Linear interpolation at (n - 1) * fraction: within a few roundings of the neighbours, and of the position
    (Spark computes it in doubles, which moves the answer by that part of the gap)."""
    if not values or output.error is not None:
        return _quantile(output, values)
    position = (len(values) - 1) * _fraction(output)
    low, high = values[math.floor(position)], values[math.ceil(position)]
    way = position - math.floor(position)
    if way == 0 and not math.isfinite(low):
        return Cell(low)
    if math.isfinite(low) and math.isfinite(high):
        low, high = Fraction(low), Fraction(high)
        slack = 4 * max(abs(low), abs(high)) + len(values) * (high - low)
        return _near(low + way * (high - low), slack * Fraction(EPSILON))
    return Cell(low if low == high else (1 - float(way)) * low + float(way) * high)


def _distinct(output: Output, values: list[Any]) -> Cell:
    count = len({_order(value) for value in values})
    if output.error is None:
        return Cell(count)
    off = DEVIATIONS * float(output.error) * count + 1
    return Cell(count, count - off, count + off)


def _counts(values: Iterable[Any]) -> dict[tuple[int, Any], int]:
    return Counter(_order(value) for value in values)


def _most_frequent(values: list[Any]) -> list[tuple[Any, int]]:
    """Each value with its count, the most frequent first, of equals the least."""
    counts = _counts(values)
    distinct = {_order(value): value for value in values}
    return sorted(((distinct[key], count) for key, count in counts.items()), key=lambda row: (-row[1], _order(row[0])))


def _mode(output: Output, values: list[Any]) -> Cell:
    if not values:
        return Cell(None)
    value, most = _most_frequent(values)[0]
    if output.error is None:
        return Cell(value)
    counts, least = _counts(values), most - Fraction(output.error) * len(values)
    return Cell(value, accept=lambda ours: counts.get(_order(ours), 0) >= max(least, 1))


def _top(output: Output, values: list[Any]) -> Cell:
    """JSON, compared as what it says. With an error every count may be so much too low: a value whose count could
    have been the least of the list may stand in it, or not."""
    assert output.parameter is not None and output.argument_type is not None
    if not values:
        return Cell(None)
    type, k = output.argument_type, int(output.parameter)
    ranked = [(_in_json(value, type), count) for value, count in _most_frequent(values)]
    expected = [list(pair) for pair in ranked[:k]]
    if output.error is None:
        return Cell(json.dumps(expected), accept=lambda ours: json.loads(ours) == expected)
    counts, slack = dict(ranked), Fraction(output.error) * len(values)

    def accept(text: str) -> bool:
        ours = [tuple(pair) for pair in json.loads(text)]
        our_counts = dict(ours)
        least = ours[-1][1] if len(ours) == k else 0
        return (
            0 < len(ours) == len(our_counts) <= k
            and [count for _, count in ours] == sorted(our_counts.values(), reverse=True)
            and all(counts.get(value, 0) - slack <= count <= counts.get(value, 0) for value, count in ours)
            and all(count - slack <= least for value, count in ranked if value not in our_counts)
        )

    return Cell(json.dumps(expected), accept=accept)


def _percentiles(of: Callable[[Output, list[Any]], Cell]) -> Callable[[Output, list[Any]], Cell]:
    """A list in JSON, each of it what its fraction alone would be."""

    def cell(output: Output, values: list[Any]) -> Cell:
        if not values:
            return Cell(None)
        double = of is _percentile
        type = DOUBLE if double else output.argument_type
        function = "percentile" if double else "percentile_disc"
        single_output = replace(output, function=function, type=type, parameters=())
        cells = [of(replace(single_output, parameter=fraction), values) for fraction in output.parameters]
        assert type is not None

        def accept(text: str) -> bool:
            ours = [_of_json(item, type) for item in json.loads(text)]
            return len(ours) == len(cells) and all(map(Cell.matches, cells, ours))

        return Cell(
            json.dumps([_in_json(float(cell.value) if double else cell.value, type) for cell in cells]), accept=accept
        )

    return cell


def _of_json(item: Any, type: Type) -> Any:
    """A value as events hold it, of what stands for it in JSON."""
    if type.name == "double" or item is None:
        return None if item is None else float(item)
    if type.name == "date":
        return datetime.date.fromisoformat(item)
    if type.name == "timestamp":
        moment = datetime.datetime.fromisoformat(item.replace("Z", "+00:00"))
        return (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
    return Decimal(item) if type.name == "decimal" else item


def _least_values(output: Output, values: list[Any]) -> Cell:
    assert output.parameter is not None and output.argument_type is not None
    if not values:
        return Cell(None)
    distinct = list({_order(value): value for value in values}.values())[: int(output.parameter)]
    expected = [_in_json(value, output.argument_type) for value in distinct]
    return Cell(json.dumps(expected), accept=lambda ours: json.loads(ours) == expected)


def _histogram(output: Output, values: list[Any]) -> Cell:
    """Bins [least + i * width, least + (i + 1) * width), the last with its end, in rational arithmetic."""
    assert output.parameter is not None
    if not values:
        return Cell(None)
    known, bins = [Fraction(value) for value in values if math.isfinite(value)], int(output.parameter)
    counts: Counter[Fraction] = Counter()
    for value in known:
        width = (known[-1] - known[0]) / bins
        at = min(math.floor((value - known[0]) / width), bins - 1) if width else 0
        counts[known[0] + width * (at + Fraction(1, 2))] += 1
    expected = [[float(middle), count] for middle, count in counts.items()]
    return Cell(json.dumps(expected), accept=lambda ours: json.loads(ours) == expected)


SKETCHED = (
    *("hll_sketch", "hll_sketch_agg", "theta_sketch", "theta_sketch_agg"),
    *("quantile_sketch", "kll_sketch_agg_bigint", "kll_sketch_agg_double"),
)


def _sketched(output: Output, values: list[Any]) -> Cell:
    """Read by the library: so many distinct values, or every rank, as the sketch's size promises."""
    quantiles = output.function in SKETCHED[4:]
    if quantiles:
        values = [value for value in values if not (isinstance(value, float) and math.isnan(value))]
    if not values:
        return Cell(None)
    return Cell(_sketch(output, values), accept=lambda ours: _reads_back(output, values, ours))


def _sketch(output: Output, values: list[Any]) -> bytes:
    """One that is right, of the library: what makes ours is not asked, but for KLL, which the library leaves to
    chance."""
    assert output.parameter is not None
    size = int(output.parameter)
    if output.function in SKETCHED[4:]:
        distinct, weights = np.unique(np.array(values), return_counts=True)
        return quantile_sketch(distinct, weights, size) or b""
    if output.function.startswith("hll"):
        sketch = datasketches.hll_sketch(size, datasketches.HLL_8)
    else:
        sketch = datasketches.update_theta_sketch(size)
    for value in values:
        sketch.update(value)
    return bytes(sketch.serialize_compact() if output.function.startswith("hll") else sketch.compact().serialize())


def _reads_back(output: Output, values: list[Any], ours: bytes) -> bool:
    assert output.parameter is not None and output.argument_type is not None
    if output.function.startswith(("hll", "theta")):
        # DataSketches ignores the empty text
        count = len({_order(value) for value in values if value != ""})
        if output.function.startswith("hll"):
            sketch = datasketches.hll_sketch.deserialize(ours)
        else:
            sketch = datasketches.compact_theta_sketch.deserialize(ours)
        return bool(
            abs(sketch.get_estimate() - count) <= 0.01 + DEVIATIONS * count / math.sqrt(2 ** int(output.parameter))
        )
    serde = datasketches.PyDoublesSerDe() if output.argument_type.name == "double" else datasketches.PyLongsSerDe()
    read = datasketches.kll_items_sketch.deserialize(ours, serde)
    n, k = len(values), int(output.parameter)
    off = 0 if n <= k else math.ceil(n / k)
    ends = read.n == n and read.get_min_value() == values[0] and read.get_max_value() == values[-1]
    ranks = [(value, read.get_rank(value, True) * n) for value in dict.fromkeys(values)]
    return ends and all(abs(rank - sum(other <= value for other in values)) <= off + 1e-6 for value, rank in ranks)


def _in_json(value: Any, type: Type) -> Any:
    if type.name == "decimal":
        with localcontext(prec=80):
            return format(Decimal(value).quantize(Decimal(1).scaleb(-type.scale)), "f")
    if type.name == "timestamp":
        return _instant(value).replace("+00:00", "Z" if value % 10**6 else ".000000Z")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return json.dumps(value) if isinstance(value, float) and not math.isfinite(value) else value


def _distinct_total(output: Output, values: list[Any]) -> Cell:
    """The sum or the mean of the distinct values."""
    distinct = list({_order(value): value for value in values}.values())
    if not distinct:
        return Cell(None)
    is_mean, type = output.function == "avg_distinct", output.type
    if not all(map(math.isfinite, distinct)):
        return _not_finite("avg" if is_mean else "sum", distinct)
    total, divisor = sum(map(Fraction, distinct), Fraction(0)), len(distinct) if is_mean else 1
    if type.name == "decimal":
        return _decimal(total / divisor, type)
    if type.name == "long":
        return Cell(int(total), overflow=not -(2**63) <= total < 2**63)
    is_double = output.argument_type is not None and output.argument_type.name == "double"
    magnitude = sum(abs(Fraction(value)) for value in distinct) if is_double else Fraction(0)
    return _near(total / divisor, 4 * Fraction(EPSILON) * magnitude / divisor)


def _time_while(output: Output, values: list[Any]) -> Cell:
    """Seconds from each moment whose last state is 1 to the next moment."""
    if not values:
        return Cell(None)
    states: dict[int, int] = {}
    for value in values:
        states[value // 2] = max(states.get(value // 2, 0), value % 2)
    moments = sorted(states)
    passed = [b - a for a, b in itertools.pairwise(moments) if states[a]]
    passed = [each if output.parameter is None else min(each, int(output.parameter)) for each in passed]
    return Cell(float(Fraction(sum(passed), 10**6)))


def _gaps(mean: bool) -> Callable[[Output, list[Any]], Cell]:
    def cell(output: Output, values: list[Any]) -> Cell:
        gaps = [Fraction(later - moment, 10**6) for moment, later in itertools.pairwise(values)]
        return Cell(float(sum(gaps) / len(gaps) if mean else max(gaps)) if gaps else None)

    return cell


def _rate(output: Output, values: list[Any]) -> Cell:
    """Increase a second of a counter, which begins again at 0 where it falls."""
    steps = sorted((int(text[:19]), Fraction(text[19:])) for text in values)
    passed = Fraction(steps[-1][0] - steps[0][0], 10**6) if steps else 0
    if not passed:
        return Cell(None)
    risen = Fraction(0)
    for (_, before), (_, now) in itertools.pairwise(steps):
        risen += now if now < before else now - before
    return Cell(_float(risen / passed))


def _time_weighted(output: Output, values: list[Any]) -> Cell:
    """The mean of what holds at each microsecond from the first event to the last."""
    held: dict[int, Fraction] = {}
    for text in values:
        moment, value = int(text[:19]), Fraction(text[19:])
        held[moment] = max(held.get(moment, value), value)
    moments = sorted(held)
    if len(moments) < 2:
        return Cell(None)
    total = sum((held[moment] * (later - moment) for moment, later in itertools.pairwise(moments)), Fraction(0))
    return Cell(_float(total / (moments[-1] - moments[0])))


def _last_of(output: Output, values: list[Any]) -> Cell:
    assert output.parameter is not None and output.by_type is not None
    listed = [text[40:] if text[0] == "k" else text[19:] for text in values]
    if output.function == "last_distinct":
        listed = [text for at, text in enumerate(listed) if text not in listed[at + 1 :]]
    last = listed[-int(output.parameter) :]
    kind = output.by_type.name
    if kind in ("long", "boolean"):
        last = [json.loads(text) for text in last]
    if kind == "timestamp":
        last = [datetime.datetime.fromisoformat(text).isoformat(timespec="microseconds") + "Z" for text in last]
    return Cell(json.dumps(last, ensure_ascii=False) if last else None)


def _joined(output: Output, values: list[Any]) -> Cell:
    assert output.parameter is not None
    if values and values[0][0] == "d":
        values = sorted(set(values))
    both = [text[{"k": 40, "d": 1}.get(text[0], 19) :] for text in values]
    length = int(output.parameter)
    return Cell(both[0][:length].join(text[length:] for text in both) if both else None)


_ORDERED: dict[str, Callable[[Output, list[Any]], Cell]] = {
    "sum_distinct": _distinct_total,
    "avg_distinct": _distinct_total,
    "time_while": _time_while,
    "longest_gap": _gaps(False),
    "mean_gap": _gaps(True),
    "rate": _rate,
    "time_weighted_avg": _time_weighted,
    "last_k": _last_of,
    "last_distinct": _last_of,
    "string_agg": _joined,
    "listagg": _joined,
    "percentile": _percentile,
    "median": _percentile,
    "percentile_disc": _quantile,
    "count_distinct": _distinct,
    "mode": _mode,
    "top_k": _top,
    "percentiles": _percentiles(_percentile),
    "percentiles_disc": _percentiles(_quantile),
    "histogram_numeric": _histogram,
    "collect_set": _least_values,
    **dict.fromkeys(SKETCHED, _sketched),
}
"""Aggregates of all the values in order."""


def _not_finite(function: str, values: list[float]) -> Cell:
    """IEEE addition: NaN, or infinities of both signs, give NaN; squares of infinities are NaN after
    Welford."""
    if function in ("sum", "avg"):
        return Cell(math.fsum(values) if len({x for x in values if not math.isfinite(x)}) == 1 else math.nan)
    return Cell(None if len(values) == 1 and function not in ("var_pop", "stddev_pop") else math.nan)


def _integers(values: Sequence[Any]) -> tuple[list[int], Fraction]:
    """The values as integers times one unit, exactly."""
    ratios = [value.as_integer_ratio() for value in values]
    denominator = math.lcm(*(below for _, below in ratios))
    return [above * (denominator // below) for above, below in ratios], Fraction(1, denominator)


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _root(value: Fraction) -> float:
    with localcontext(prec=60):
        return float((Decimal(value.numerator) / Decimal(value.denominator)).sqrt())


def _near(value: Fraction, bound: Fraction) -> Cell:
    """A double within ``bound`` of the exact value, one rounding more allowed; a sum that is exactly zero and
    within no bound is +0.0, as Spark starts from 0.0."""
    if value == 0 and bound == 0:
        return Cell(0.0)
    slack = bound + abs(value) * Fraction(EPSILON) + Fraction(5e-324)
    return Cell(_float(value), _float(value - slack), _float(value + slack))


def _decimal(value: Fraction, type: Type) -> Cell:
    with localcontext(prec=120):
        scaled = value * 10**type.scale
        # half up, away from zero, as Spark rounds
        rounded = math.floor(abs(scaled) + Fraction(1, 2)) * (1 if scaled >= 0 else -1)
        exact = Decimal(rounded).scaleb(-type.scale)
    return Cell(exact, overflow=abs(rounded) >= 10**type.precision)


def _spread(function: str, values: list[Any]) -> Cell:
    """Variances and deviations, within what Welford's recurrence loses: n*eps*sqrt(sum(x^2) * S), with S
    the sum of squared deviations (Chan, Golub, LeVeque, 1983, table 1), and its second-order term."""
    n, freedom = len(values), 0 if function in ("var_pop", "stddev_pop") else 1
    if n <= freedom:
        return Cell(None)
    integers, unit = _integers(values)
    total, squares = sum(integers), sum(value * value for value in integers)
    deviations = Fraction(n * squares - total * total, n) * unit * unit
    magnitude = squares * unit * unit
    root = math.sqrt(_float(magnitude)) * math.sqrt(_float(deviations))
    bound = (n + 8) * (8 * EPSILON * root + 8 * EPSILON**2 * _float(magnitude)) + n * SMALLEST
    if not math.isfinite(bound):
        bound = LARGEST
    variance, bound = _float(deviations / (n - freedom)), bound / (n - freedom)
    low, high = max(0.0, variance - bound), variance + bound
    overflow = _float(n * magnitude) > LARGEST / 4
    if function.startswith("std"):
        if math.isinf(variance):  # its root is a double all the same
            root = _root(deviations / (n - freedom))
            return Cell(root, root * (1 - n * EPSILON), root * (1 + n * EPSILON), may_overflow=overflow)
        return Cell(
            math.sqrt(variance),
            math.sqrt(low) * (1 - 2 * EPSILON),
            math.sqrt(high) * (1 + 2 * EPSILON),
            may_overflow=overflow,
        )
    return Cell(variance, low, high, may_overflow=overflow)


# ------------------------------------------------------------------------------------------ comparison
def arrow_type(type: Type) -> pa.DataType:
    """How the answers carry a type: as the results read by a user must be typed."""
    if type.name == "decimal":
        return pa.decimal128(type.precision, type.scale)
    return {
        "boolean": pa.bool_(),
        "long": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
    }[type.name]


def column_names(query: ACQ) -> list[str]:
    """The columns of a query's answers: the window, the group columns, the outputs."""
    groups = query.select or tuple(name for name, _ in query.group_by)
    return ["window_start", "window_end", *groups, *(output.name for output in query.outputs)]


def compare(query: ACQ, ours: pa.Table, expected: dict[Key, Row]) -> list[str]:
    """The differences between answers and the oracle's, as lines a person can read; empty when equal.

    ``ours`` has the columns of :func:`column_names`, ``instant`` if the answers say what instant they are for, of
    windows of rows their ``position``, and ``error`` if some answer carries a coded error: exactly the overflows must,
    each naming its output. Missing, extra and doubled windows, wrong ends and instants, wrong column types and wrong
    values are differences.
    """
    names = column_names(query)
    if [name for name in ours.column_names if name not in _BESIDE] != names:
        return [f"columns {ours.column_names}, expected {names}"]
    errors = ours["error"].to_pylist() if "error" in ours.column_names else [None] * len(ours)
    instants = _values(ours["instant"]) if "instant" in ours.column_names else None
    positions = _values(ours["position"]) if query.window.is_rows else None
    ours = ours.select(names)
    groups = names[2 : 2 + len(query.group_by)]
    typed = dict(zip(groups, (type for _, type in query.group_by), strict=True))
    typed |= {output.name: output.type for output in query.outputs}
    differences = [
        f"column {name} is {ours.schema.field(name).type}, expected {arrow_type(type)}"
        for name, type in typed.items()
        if ours.schema.field(name).type != arrow_type(type)
    ]
    seen: set[Key] = set()
    rows = list(zip(*(_values(column) for column in ours.columns), strict=True))
    for index, ((start, stop, *values), error) in enumerate(zip(rows, errors, strict=True)):
        key = (start if query.window.is_regular else stop, *values[: len(groups)])
        if positions is not None:
            key = positions[index], *key[1:]
        label = _named(query, key)
        if key in seen:
            differences.append(f"{label}: answered more than once")
        seen.add(key)
        if query.window.is_rows or not query.window.is_regular:
            if key in expected and (start, stop) != expected[key].span:
                differences.append(f"{label}: from {_instant(start)} to {_instant(stop)}")
        elif stop != start + query.window.range:
            differences.append(f"{label}: ends at {_instant(stop)}")
        if instants is not None and instants[index] != stop + (query.window.ago if query.window.gap is None else 1):
            differences.append(f"{label}: is said to be the answer of {_instant(instants[index])}")
        answers = values[len(groups) :]
        if key not in expected:
            differences.append(f"{label}: not expected, answered {answers}")
            continue
        row = expected[key]
        failed = error is not None and all(value is None for value in answers)
        if row.failure and (failed or row.failure == "must"):
            if not failed:
                differences.append(f"{label}: {answers}, error {error!r}, but what HAVING compares has overflow=True")
            continue
        for output, cell, value in zip(query.outputs, row, answers, strict=True):
            if not cell.matches(value):
                differences.append(f"{label}: {output.name} = {value!r}, expected {cell}")
            overflowed = value is None and (cell.overflow or (cell.may_overflow and cell.value is not None))
            is_named = output.name in re.findall(r"HDL-\d+ (\S+)", error or "")
            if not cell.free and (value is not None or not cell.maybe) and overflowed != is_named:
                differences.append(f"{label}: {output.name} = {value!r}, error {error!r}, expected {cell}")
    return differences + [
        f"{_named(query, key)}: missing, expected {[cell.value for cell in row]}" + " overflow=True" * bool(row.failure)
        for key, row in expected.items()
        if key not in seen and row.certain
    ]


def _named(query: ACQ, key: Key) -> str:
    return f"window {key[0] if query.window.is_rows else _instant(key[0])} group {key[1:]}"


_BESIDE = ("instant", "position", "error")
"""Columns of answers that are not the query's."""


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz)), pa.int64())
    return list(column.to_pylist())


def _instant(micros: int) -> str:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (epoch + datetime.timedelta(microseconds=micros)).isoformat()
