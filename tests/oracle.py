"""The independent oracle: what every query should answer, computed by DuckDB from the raw events.

Nothing here imports ``optimizer.window`` or any part of the pipeline: windows are enumerated by SQL from the
epoch arithmetic of the definition, each event is expanded into the windows that hold it, and DuckDB groups.
Sums whose rounding matters (doubles, decimals, variances) are finished in exact rational arithmetic.

Definition: the windows ``[k*slide, k*slide + range)``, k any integer, whose end lies in ``(begin, end]`` and
that hold at least one event satisfying the filter (per group). Instants are integer microseconds UTC.
"""

from __future__ import annotations

import datetime
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.query import ACQ, Call, Column, Expression, Literal, Output, Type

EPSILON = sys.float_info.epsilon
LARGEST = sys.float_info.max
SMALLEST = sys.float_info.min


# ------------------------------------------------------------------------------------- expected cells
@dataclass(frozen=True)
class Cell:
    """One expected output value: ``value``, or for doubles any number in ``[low, high]``.

    ``value`` None is null. ``overflow``: the exact result does not fit the output's type (then null with a
    coded error is right, and nothing else); ``may_overflow``: an intermediate result of a double computation
    does not fit, so an overflow is as right as the value.
    """

    value: Any
    low: float | None = None
    high: float | None = None
    overflow: bool = False
    may_overflow: bool = False

    def matches(self, ours: Any) -> bool:
        if self.overflow:
            return ours is None
        if self.may_overflow and (ours is None or ours == math.inf):
            return True
        if self.value is None or ours is None:
            return self.value is None and ours is None
        if not isinstance(self.value, float):
            return bool(ours == self.value)
        if math.isnan(self.value) or math.isnan(ours):
            return math.isnan(self.value) and math.isnan(ours)
        if self.low is not None and self.high is not None:
            return self.low <= ours <= self.high
        # both zeros are right only where the caller gave an interval
        return bool(ours == self.value) and math.copysign(1.0, ours) == math.copysign(1.0, self.value)


Key = tuple[Any, ...]
"""(window start in microseconds, group values...)."""


# ------------------------------------------------------------------------------- expressions to DuckDB
def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


_COMPARISONS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


class _Translator:
    """Values of :mod:`optimizer.query` to DuckDB SQL, each with its kind.

    Kinds: ``long`` (computed in HUGEINT, so that it cannot wrap), ``decimal``, ``double``, ``string``,
    ``boolean``, ``date``, ``timestamp`` (as integer microseconds).
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __call__(self, expression: Expression) -> tuple[str, str]:
        if isinstance(expression, Column):
            return self._column(expression.name)
        if isinstance(expression, Literal):
            return _literal(expression.value, expression.type)
        return self._call(expression)

    def _column(self, name: str) -> tuple[str, str]:
        type = self._schema.field(name).type
        if pa.types.is_integer(type):
            return f"{_quoted(name)}::HUGEINT", "long"
        if pa.types.is_timestamp(type):
            return _quoted(name), "timestamp"
        for kind, holds in (
            ("decimal", pa.types.is_decimal),
            ("double", pa.types.is_floating),
            ("boolean", pa.types.is_boolean),
            ("date", pa.types.is_date),
        ):
            if holds(type):
                return _quoted(name), kind
        return _quoted(name), "string"

    def _call(self, call: Call) -> tuple[str, str]:
        name = call.function
        arguments = [self(argument) for argument in call.arguments]
        if name in _COMPARISONS:
            left, right, _ = _aligned(arguments)
            return f"({left} {_COMPARISONS[name]} {right})", "boolean"
        if name in ("and", "or"):
            return "(" + f" {name.upper()} ".join(sql for sql, _ in arguments) + ")", "boolean"
        if name == "not":
            return f"(NOT {arguments[0][0]})", "boolean"
        if name == "is_null":
            return f"({arguments[0][0]} IS NULL)", "boolean"
        if name == "in":
            equal = [_aligned([arguments[0], item]) for item in arguments[1:]]
            return "(" + " OR ".join(f"({left} = {right})" for left, right, _ in equal) + ")", "boolean"
        if name == "like":
            return f"({arguments[0][0]} LIKE {arguments[1][0]} ESCAPE '\\')", "boolean"
        if name in ("lower", "upper"):
            return f"{name}({arguments[0][0]})", "string"
        if name in ("abs", "neg"):
            sql, kind = arguments[0]
            return (f"abs({sql})" if name == "abs" else f"(-{sql})"), kind
        if name == "/":
            dividend, divisor = (f"({sql})::DOUBLE" for sql, _ in arguments)
            return f"(CASE WHEN {divisor} = 0 THEN NULL ELSE {dividend} / {divisor} END)", "double"
        if name == "coalesce":
            *same, kind = _aligned(arguments)
            return f"coalesce({', '.join(same)})", kind
        left, right, kind = _aligned(arguments, multiply=name == "*")
        return f"({left} {name} {right})", kind


def _literal(value: Any, type: Type) -> tuple[str, str]:
    if value is None:
        kinds = {"long": "HUGEINT", "timestamp": "BIGINT", "string": "VARCHAR"}
        return f"NULL::{kinds.get(type.name, str(type))}", type.name
    if type.name == "long":
        return f"'{value}'::HUGEINT", "long"
    if type.name == "timestamp":
        return f"'{value}'::BIGINT", "timestamp"
    return f"{_text(str(value))}::{'VARCHAR' if type.name == 'string' else type}", type.name


def _aligned(arguments: Sequence[tuple[str, str]], multiply: bool = False) -> list[str]:
    """SQL of the arguments brought to one kind, then that kind: with a double all are doubles; integers meet
    decimals as decimals (as many digits as the product may still have room for)."""
    kinds = {kind for _, kind in arguments}
    if kinds == {"date", "timestamp"}:
        return [f"epoch_us(({sql})::TIMESTAMP)" if kind == "date" else sql for sql, kind in arguments] + ["timestamp"]
    if "double" in kinds and len(kinds) > 1:
        return [f"({sql})::DOUBLE" for sql, _ in arguments] + ["double"]
    if kinds == {"long", "decimal"}:
        digits = 19 if multiply else 28
        cast = [f"({sql})::DECIMAL({digits},0)" if kind == "long" else sql for sql, kind in arguments]
        return [*cast, "decimal"]
    return [sql for sql, _ in arguments] + [arguments[0][1]]


# -------------------------------------------------------------------------------------------- answers
def answers(query: ACQ, events: pa.Table, time_column: str, begin: int, end: int) -> dict[Key, tuple[Cell, ...]]:
    """Every answer of a query whose window ends in ``(begin, end]``, keyed (window start, group values...).

    ``events`` hold the raw events with ``time_column`` as a timestamp (naive means UTC); events without a
    time belong to no window. Cells stand in the order of ``query.outputs``.
    """
    translate = _Translator(events.schema)
    selects: dict[str, int] = {}

    def aggregate(sql: str) -> int:
        return selects.setdefault(sql, len(selects))

    finish = []
    for output in query.outputs:
        if output.argument is None:
            finish.append((output, [aggregate("count(*)")], "long"))
            continue
        argument, kind = translate(output.argument)
        wanted = [aggregate(f"count({argument})")]
        if output.function in ("min", "max"):
            wanted.append(aggregate(f"{output.function}({argument})"))
        if kind == "long" and output.function in ("sum", "avg"):
            wanted.append(aggregate(f"sum({argument})"))
        elif output.function != "count" and kind in ("double", "decimal", "long"):
            wanted.append(aggregate(f"list({argument}) FILTER ({argument} IS NOT NULL)"))
        finish.append((output, wanted, kind))

    width, slide = query.window.range, query.window.slide
    groups = [_quoted(name) for name, _ in query.group_by]
    where = translate(query.filter)[0] if query.filter is not None else "TRUE"
    time = _quoted(time_column)
    statement = f"""
        WITH expanded AS (
            SELECT *, {slide}::BIGINT * unnest(generate_series(
                floor_div({time} - {width}, {slide}) + 1, floor_div({time}, {slide})
            )) AS "window start"
            FROM events WHERE {time} IS NOT NULL AND ({where})
        )
        SELECT {", ".join(['"window start"', *groups, *selects])} FROM expanded
        WHERE "window start" + {width} > {begin} AND "window start" + {width} <= {end}
        GROUP BY {", ".join(['"window start"', *groups])}
    """
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE MACRO floor_div(a, b) AS (a - ((a % b) + b) % b) // b")
        connection.register("events", _plain(events))
        rows = connection.execute(statement).fetchall()
    keys = 1 + len(groups)
    return {
        row[:keys]: tuple(
            _cell(output, kind, [row[keys + index] for index in wanted]) for output, wanted, kind in finish
        )
        for row in rows
    }


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
    if function == "count":
        return Cell(count)
    if not count:
        return Cell(None)
    if function in ("min", "max"):
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
    if kind == "double" and not all(map(math.isfinite, values)):
        return _not_finite(function, values)
    if function in ("sum", "avg"):
        integers, unit = _integers(values)
        divisor = count if function == "avg" else 1
        if output.type.name == "decimal":
            return _decimal(sum(integers) * unit / divisor, output.type)
        magnitude = sum(map(abs, integers)) * unit
        return _near(sum(integers) * unit / divisor, 4 * Fraction(EPSILON) * magnitude / divisor)
    return _spread(function, values)


def _extreme(value: Any, doubles: list[float]) -> Cell:
    if value == 0 and doubles and len({math.copysign(1.0, x) for x in doubles if x == 0}) == 2:
        return Cell(value, 0.0, 0.0)
    return Cell(value)


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
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
    }[type.name]


def column_names(query: ACQ) -> list[str]:
    """The columns of a query's answers: the window, the group columns, the outputs."""
    groups = query.select or tuple(name for name, _ in query.group_by)
    return ["window_start", "window_end", *groups, *(output.name for output in query.outputs)]


def compare(query: ACQ, ours: pa.Table, expected: dict[Key, tuple[Cell, ...]]) -> list[str]:
    """The differences between answers and the oracle's, as lines a person can read; empty when equal.

    ``ours`` has the columns of :func:`column_names`, and ``error`` if some answer carries a coded error:
    exactly the overflows must, each naming its output. Missing, extra and doubled windows, wrong ends,
    wrong column types and wrong values are differences.
    """
    wanted = column_names(query)
    if ours.column_names not in (wanted, [*wanted, "error"]):
        return [f"columns {ours.column_names}, expected {wanted}"]
    errors = ours["error"].to_pylist() if "error" in ours.column_names else [None] * len(ours)
    ours = ours.select(wanted)
    groups = wanted[2 : 2 + len(query.group_by)]
    typed = dict(zip(groups, (type for _, type in query.group_by), strict=True))
    typed |= {output.name: output.type for output in query.outputs}
    differences = [
        f"column {name} is {ours.schema.field(name).type}, expected {arrow_type(type)}"
        for name, type in typed.items()
        if ours.schema.field(name).type != arrow_type(type)
    ]
    seen: set[Key] = set()
    rows = zip(*(_values(column) for column in ours.columns), strict=True)
    for (start, stop, *values), error in zip(rows, errors, strict=True):
        key = (start, *values[: len(groups)])
        where = f"window {_instant(start)} group {key[1:]}"
        if key in seen:
            differences.append(f"{where}: answered more than once")
        seen.add(key)
        if stop != start + query.window.range:
            differences.append(f"{where}: ends at {_instant(stop)}")
        if key not in expected:
            differences.append(f"{where}: not expected, answered {values[len(groups) :]}")
            continue
        for output, cell, value in zip(query.outputs, expected[key], values[len(groups) :], strict=True):
            if not cell.matches(value):
                differences.append(f"{where}: {output.name} = {value!r}, expected {cell}")
            overflowed = value is None and (cell.overflow or (cell.may_overflow and cell.value is not None))
            if overflowed != (output.name in re.findall(r"HDL-\d+ (\S+)", error or "")):
                differences.append(f"{where}: {output.name} = {value!r}, error {error!r}, expected {cell}")
    return differences + [
        f"window {_instant(key[0])} group {key[1:]}: missing, expected {[cell.value for cell in cells]}"
        for key, cells in expected.items()
        if key not in seen
    ]


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz)), pa.int64())
    return list(column.to_pylist())


def _instant(micros: int) -> str:
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (epoch + datetime.timedelta(microseconds=micros)).isoformat()
