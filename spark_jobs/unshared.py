"""Unshared execution: each query alone, by Spark's own aggregates over raw events.

:func:`unshared` is what people write today, one sliding ``window()`` a query: the baseline of the
benchmarks. :func:`recompute` answers a handful of given windows without ``window()``: the audit compares
published answers with it; :func:`agrees` says how far doubles and sketches may differ, and :func:`qualifies` which
rows HAVING leaves. Columns are built from our values only, never from query text.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as SparkWindow
from pyspark.sql import functions as F
from pyspark.sql import types as T

from optimizer.expression import type_of, unified
from optimizer.plan import SharingPlan
from optimizer.query import (
    ACQ,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INT,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Condition,
    Expression,
    Literal,
    Output,
    Stream,
    Type,
    Window,
    decimal,
)
from optimizer.window import history_start
from spark_jobs import unshared_sequences as sequences
from spark_jobs.expressions import arrow_type
from spark_jobs.session import cpu_seconds

EPSILON = 2.0**-52
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DEVIATIONS = 6
"""So many standard errors a HyperLogLog may be off; its error is a standard deviation, and no bound."""

Schema = Mapping[str, Type]


# --------------------------------------------------------------------------------- values to columns
def schema_of(frame: DataFrame) -> dict[str, Type]:
    """Our types of a frame's columns; columns that queries cannot use are left out."""
    simple: dict[type[T.DataType], Type] = {
        T.BooleanType: BOOLEAN,
        T.ByteType: BYTE,
        T.ShortType: SHORT,
        T.IntegerType: INT,
        T.LongType: LONG,
        T.FloatType: DOUBLE,
        T.DoubleType: DOUBLE,
        T.StringType: STRING,
        T.DateType: DATE,
        T.TimestampType: TIMESTAMP,
        T.TimestampNTZType: TIMESTAMP,
    }
    found: dict[str, Type] = {}
    for column in frame.schema.fields:
        if isinstance(column.dataType, T.DecimalType):
            found[column.name] = decimal(column.dataType.precision, column.dataType.scale)
        elif type(column.dataType) in simple:
            found[column.name] = simple[type(column.dataType)]
    return found


def to_column(expression: Expression, schema: Schema) -> SparkColumn:
    """The Spark column of an expression over columns of these types.

    Integer arithmetic runs in decimals of as many digits as :func:`optimizer.expression.type_of` proves
    enough and quotients by zero are null, so ANSI mode finds nothing to raise.
    """
    if isinstance(expression, Column):
        return _named(expression.name)
    if isinstance(expression, Literal):
        return _literal(expression)
    return _call(expression, schema)


def _named(name: str) -> SparkColumn:
    return F.col("`" + name.replace("`", "``") + "`")


def _ddl(type: Type) -> str:
    return "bigint" if type.name == "long" else str(type)


def _literal(literal: Literal) -> SparkColumn:
    value, type = literal.value, literal.type
    if value is None:
        return F.lit(None).cast(_ddl(type))
    if type.name == "timestamp":
        return F.timestamp_micros(F.lit(value))
    if type.name == "date":
        return F.lit(date.fromisoformat(value))
    return F.lit(value).cast(_ddl(type))


def _as(expression: Expression, schema: Schema, type: Type) -> SparkColumn:
    return to_column(expression, schema).cast(_ddl(type))


def _exact(expression: Expression, schema: Schema) -> SparkColumn:
    """A number for arithmetic: an integer as the decimal that holds its digits."""
    type = type_of(expression, schema)
    column = to_column(expression, schema)
    return column.cast(_ddl(decimal(type.digits, 0))) if type.name == "long" else column


def _call(call: Call, schema: Schema) -> SparkColumn:
    name, arguments = call.function, call.arguments
    result = type_of(call, schema)
    if name in ("and", "or"):
        columns = [to_column(argument, schema) for argument in arguments]
        return reduce(lambda left, right: left & right if name == "and" else left | right, columns)
    if name == "not":
        return ~to_column(arguments[0], schema)
    if name == "is_null":
        return to_column(arguments[0], schema).isNull()
    if name == "in":
        equal = [to_column(arguments[0], schema) == to_column(item, schema) for item in arguments[1:]]
        return reduce(lambda left, right: left | right, equal)
    if name == "like":
        pattern = arguments[1]
        assert isinstance(pattern, Literal)
        return to_column(arguments[0], schema).like(pattern.value)
    if name in ("lower", "upper"):
        return getattr(F, name)(to_column(arguments[0], schema))
    if name == "coalesce":
        common = unified([type_of(argument, schema) for argument in arguments])
        assert common is not None
        return F.coalesce(*(_as(argument, schema, common) for argument in arguments))
    if name == "/":
        dividend, divisor = (_as(argument, schema, DOUBLE) for argument in arguments)
        return F.try_divide(dividend, divisor)
    if name in ("neg", "abs"):
        column = _exact(arguments[0], schema)
        return (F.negative(column) if name == "neg" else F.abs(column)).cast(_ddl(result))
    if name in ("+", "-", "*"):
        operator = {"+": F.try_add, "-": F.try_subtract, "*": F.try_multiply}[name]
        convert = _exact if result != DOUBLE else lambda argument, types: _as(argument, types, DOUBLE)
        left, right = (convert(argument, schema) for argument in arguments)
        return operator(left, right).cast(_ddl(result))
    left, right = (to_column(argument, schema) for argument in arguments)
    return _COMPARISONS[name](left, right)


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


# -------------------------------------------------------------------------------- aggregates as columns
@dataclass
class _Grouped:
    """The aggregates that one grouping computes, each once however many outputs need it.

    Outputs are columns over them: lists of values are sorted and counted after the grouping, not in it.
    """

    schema: Schema
    columns: dict[Hashable, SparkColumn] = field(default_factory=dict)

    def of(self, kind: str, output: Output, column: SparkColumn) -> SparkColumn:
        """The named aggregate of an output's arguments, as a column of the grouped frame."""
        key = (kind, output.argument, output.by)
        self.columns.setdefault(key, column)
        return F.col(f"`heddle {list(self.columns).index(key)}`")

    def aliased(self) -> list[SparkColumn]:
        return [column.alias(f"heddle {index}") for index, column in enumerate(self.columns.values())]

    # what outputs are made of
    def argument(self, output: Output) -> SparkColumn:
        assert output.argument is not None
        column = to_column(output.argument, self.schema)
        # frames have all integers as bigint: arithmetic on them may be a decimal here, on narrower ones it is not
        return column.cast("bigint") if self._is_integer(output) else column

    def type(self, output: Output) -> Type:
        assert output.argument is not None
        return LONG if self._is_integer(output) else type_of(output.argument, self.schema)

    @staticmethod
    def _is_integer(output: Output) -> bool:
        return output.argument_type is not None and output.argument_type.name == "long"

    def value(self, output: Output) -> SparkColumn:
        """The argument as one of a multiset: -0.0 is 0.0."""
        column = self.argument(output)
        if self.type(output) != DOUBLE:
            return column
        return F.when(column == 0, F.lit(0.0)).otherwise(column.cast("double"))

    def count(self, output: Output) -> SparkColumn:
        return self.of("count", output, F.count(self.argument(output)))

    def sorted(self, output: Output) -> SparkColumn:
        return self.of("sorted", output, F.sort_array(F.collect_list(self.value(output))))

    def pair(self, output: Output) -> SparkColumn:
        """The value beside the least or greatest ``by``; structs compare field by field, null first."""
        assert output.by is not None
        value, by = self.argument(output), to_column(output.by, self.schema)
        if self.type(output) == DOUBLE:
            value = value.cast("double")
        skipped = by.isNull() | value.isNull() if output.function in ("first", "last") else by.isNull()
        best = F.min if output.function in ("first", "min_by") else F.max
        pairs = F.when(~skipped, F.struct(by.alias("by"), value.alias("value")))
        return self.of(output.function, output, best(pairs)["value"])


def _share(count: SparkColumn, fraction: Decimal) -> tuple[SparkColumn, SparkColumn]:
    """``count * fraction`` exactly: its whole part and the rest in units of 1 / the fraction's denominator."""
    above, unit = (F.lit(Decimal(number)).cast("decimal(19,0)") for number in fraction.as_integer_ratio())
    product = count.cast("decimal(11,0)") * above
    rest = product % unit
    return ((product - rest) / unit).cast("int"), rest


def _nearest(count: SparkColumn, fraction: Decimal) -> SparkColumn:
    whole, rest = _share(count, fraction)
    return F.greatest(whole + F.when(rest > 0, 1).otherwise(0), F.lit(1))


def _fraction(output: Output) -> Decimal:
    return Decimal("0.5") if output.parameter is None else output.parameter


def _at(values: SparkColumn, rank: SparkColumn) -> SparkColumn:
    """The value at a 1-based rank of a sorted array; null outside it."""
    return F.get(values, rank - 1)


def _counted(values: SparkColumn, most: int) -> SparkColumn:
    """The most frequent values of a sorted array: structs of ``missing`` (the count's negative) and ``value``."""
    starts = F.filter(
        F.transform(values, lambda value, at: F.when((at == 0) | (value != F.get(values, at - 1)), at)),
        lambda at: at.isNotNull(),
    )
    ends = F.concat(F.slice(starts, F.lit(2), F.size(starts)), F.array(F.size(values)))
    runs = F.arrays_zip(starts.alias("start"), ends.alias("end"))
    counted = F.transform(
        runs,
        lambda run: F.struct((run["start"] - run["end"]).alias("missing"), F.get(values, run["start"]).alias("value")),
    )
    return F.when(F.size(values) > 0, F.slice(F.sort_array(counted), 1, most))


def _in_json(value: SparkColumn, type: Type) -> SparkColumn:
    """A value as :func:`optimizer.aggregates.json_texts` writes it, but for the digits of doubles."""
    text = value.cast("string")
    if type.name in ("long", "boolean"):
        return text
    if type == DOUBLE:
        finite = ~(F.isnan(value) | (F.abs(value) == float("inf")))
        return F.when(finite, text).otherwise(F.concat(F.lit('"'), text, F.lit('"')))
    if type.name == "timestamp":
        text = F.date_format(value, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
    listed = F.to_json(F.array(text))
    return F.substring(listed, F.lit(2), F.length(listed) - 2)


def _plain_top(grouped: _Grouped, output: Output) -> SparkColumn:
    assert output.parameter is not None
    type = grouped.type(output)
    top = _counted(grouped.sorted(output), int(output.parameter))
    entries = F.transform(
        top,
        lambda entry: F.concat(
            F.lit("["), _in_json(entry["value"], type), F.lit(", "), (-entry["missing"]).cast("string"), F.lit("]")
        ),
    )
    return F.when(top.isNotNull(), F.concat(F.lit("["), F.concat_ws(", ", entries), F.lit("]")))


def _plain_distinct(grouped: _Grouped, output: Output) -> SparkColumn:
    if output.error is None:
        return grouped.of("distinct", output, F.count_distinct(grouped.value(output)))
    # Spark refuses a greater error
    error = min(float(output.error), 0.39)
    return grouped.of(f"approximately distinct {error}", output, F.approx_count_distinct(grouped.value(output), error))


def _plain_percentile(grouped: _Grouped, output: Output) -> SparkColumn:
    fraction, value = float(_fraction(output)), grouped.value(output)
    if output.error is None:
        return grouped.of(f"percentile {fraction}", output, F.percentile(value, fraction))
    return _plain_approximate(grouped, output).cast("double")


def _plain_quantile(grouped: _Grouped, output: Output) -> SparkColumn:
    if output.error is not None and grouped.type(output).is_numeric:
        return _plain_approximate(grouped, output)
    values = grouped.sorted(output)
    return _at(values, _nearest(F.size(values), _fraction(output)))


def _plain_approximate(grouped: _Grouped, output: Output) -> SparkColumn:
    assert output.error is not None
    fraction, accuracy = float(_fraction(output)), math.ceil(1 / output.error)
    column = F.percentile_approx(grouped.value(output), fraction, accuracy)
    return grouped.of(f"approximate percentile {fraction} {accuracy}", output, column)


_PLAIN: dict[str, Callable[[_Grouped, Output], SparkColumn]] = {
    "sum": lambda grouped, output: grouped.of("sum", output, F.try_sum(grouped.argument(output))),
    "avg": lambda grouped, output: grouped.of("avg", output, F.try_avg(grouped.argument(output))),
    "any": lambda grouped, output: grouped.of("any", output, F.bool_or(grouped.argument(output))),
    **dict.fromkeys(("first", "last", "min_by", "max_by"), _Grouped.pair),
    "count_distinct": _plain_distinct,
    "percentile": _plain_percentile,
    "median": _plain_percentile,
    "percentile_disc": _plain_quantile,
    "mode": lambda grouped, output: grouped.of("mode", output, F.mode(grouped.value(output), True)),
    "top_k": _plain_top,
}
"""How Spark answers an output, where not by its function of the same name."""


def _plain(grouped: _Grouped, output: Output) -> SparkColumn:
    """An output as its author would write it in Spark; of equals the one that the language prescribes."""
    if output.argument is None:
        return grouped.of("rows", output, F.count(F.lit(1)))
    if output.function in _PLAIN:
        return _PLAIN[output.function](grouped, output)
    return grouped.of(output.function, output, getattr(F, output.function)(grouped.argument(output)))


# ------------------------------------------------------------------------------------ what users do today
def unshared(frame: DataFrame, query: ACQ, time_column: str) -> DataFrame:
    """One query as one plain Spark aggregation over Spark's sliding ``window()``: every window of the frame.

    Returns window_start and window_end (of the content: a historical window's instant is ``ago`` later), the group
    columns and the outputs, of the answers that satisfy HAVING. Integers are summed as Spark does, in 64 bits (null on
    overflow). ``window()`` refuses a slide beyond the range: there the windows are those of a tumbling one and events
    behind their ends are filtered out.

    Windows of rows have their ``position``, the number of the first row, behind the end; ``frame`` then has just the
    stream's columns, in its order, and all its events. A refresh bound is taken as the slide, as a job by itself has
    nothing to wait for, unless the window names the instants that are asked for.
    """
    range_, slide = query.window.range, query.window.period if query.window.at is None else query.window.slide
    schema = schema_of(frame)
    window, time = F.col("`heddle window`"), _named(time_column)
    told = {"window_start": window["start"], "window_end": window["end"]}
    if query.window.is_rows:
        frame = _row_windows(frame, query.window, time)
        told["position"] = window["position"]
    if query.filter is not None:
        frame = frame.where(to_column(query.filter, schema))
    if not query.window.is_rows:
        told["window_end"] = F.timestamp_micros(F.unix_micros(window["start"]) + range_)
        sizes = [f"{size} microseconds" for size in (max(range_, slide), slide, -query.window.ago % slide)]
        frame = frame.select("*", F.window(time, *sizes).alias("heddle window"))
        if slide > range_:
            frame = frame.where(time < told["window_end"])
        if query.window.at is not None:
            asked = [instant - query.window.ago for instant in query.window.at]
            ends = F.unix_micros(window["start"]) + range_
            frame = frame.where(ends.isin(asked) if asked else F.lit(False))
    if query.pattern is not None:
        found = _sequences(frame, query, time, told, query.computed, schema)
        for condition in query.having:
            found = found.where(
                _COMPARISONS[condition.comparison](_named(condition.output.name), _literal(condition.value))
            )
        return found.select(*told, *_groups(query), *(output.name for output in query.outputs))
    grouped = _Grouped(schema)
    answers = {output.name: _plain(grouped, output) for output in query.outputs}
    kept = [
        _COMPARISONS[condition.comparison](_plain(grouped, condition.output), _literal(condition.value))
        for condition in query.having
    ]
    groups = _groups(query)
    keys = (key.alias(name) for name, key in groups.items())
    found = frame.groupBy(window, *keys).agg(*grouped.aliased())
    if kept:
        found = found.where(reduce(lambda both, and_: both & and_, kept))
    return found.select(
        *(column.alias(name) for name, column in told.items()),
        *(_named(name) for name in groups),
        *(column.alias(name) for name, column in answers.items()),
    )


def _row_windows(frame: DataFrame, window: Window, time: SparkColumn) -> DataFrame:
    """The rows, once for every whole window of rows that holds them."""
    range_, slide = window.range, window.slide
    order = [time]
    for name, type in frame.dtypes:
        column = _named(name)
        order.append(column.asc_nulls_first())
        if type in ("double", "float"):
            # Spark's order takes -0.0 for 0.0
            order.append(column.cast("string") != "-0.0")
    per = [_named(name) for name in window.per or ()]
    numbered = frame.where(time.isNotNull()).select(
        "*", (F.row_number().over(SparkWindow.partitionBy(*per).orderBy(*order)).cast("bigint") - 1).alias("heddle row")
    )
    row = F.col("`heddle row`")
    before = row - (range_ - 1)
    first = F.when(before <= 0, F.lit(0)).otherwise(before + F.pmod(-before, F.lit(slide)))
    last = row - F.pmod(row, F.lit(slide))
    held = numbered.where(first <= last).select(
        "*", F.explode(F.sequence(first, last, F.lit(slide).cast("bigint"))).alias("heddle position")
    )
    position = F.col("`heddle position`")
    whole = SparkWindow.partitionBy(position, *per)
    named = F.struct(
        F.min(time).over(whole).alias("start"),
        F.timestamp_micros(F.unix_micros(F.max(time).over(whole)) + 1).alias("end"),
        position.alias("position"),
    )
    counted = held.select("*", F.count(F.lit(1)).over(whole).alias("heddle rows"), named.alias("heddle window"))
    return counted.where(F.col("`heddle rows`") == range_)


def _sequences(
    frame: DataFrame,
    query: ACQ,
    time: SparkColumn,
    window: Mapping[str, SparkColumn],
    outputs: Sequence[Output],
    schema: Schema,
) -> DataFrame:
    """The answers of a query of event sequences over events that were put into windows: the window's columns, the group
    columns, and of each output, as ``<name> <what>``, the evidence."""
    pattern, groups = query.pattern, _groups(query)
    assert pattern is not None
    keys = {name: column.alias(name) for name, column in {**window, **groups}.items()}
    per = [_named(name).alias(f"heddle per {number}") for number, name in enumerate(pattern.per)]
    arguments = [
        (F.lit(None).cast("int") if output.argument is None else to_column(output.argument, schema)).alias(
            f"heddle argument {number}"
        )
        for number, output in enumerate(outputs)
    ]
    told = {
        f"{output.name} {what}".rstrip(): type_
        for output in outputs
        for what, type_ in sequences.evidence_of(output).items()
    }
    read = frame.select(
        *keys.values(),
        F.unix_micros(time).alias("heddle time"),
        _named(pattern.on).cast("string").alias("heddle type"),
        *per,
        *arguments,
    )
    types = [read.schema[name].dataType.simpleString() for name in keys] + [_ddl(type_) for type_ in told.values()]
    escaped = [name.replace("`", "``") for name in (*keys, *told)]
    returned = ", ".join(f"`{name}` {type_}" for name, type_ in zip(escaped, types, strict=True))
    arrow = {name: arrow_type(type_) for name, type_ in told.items()}

    # Spark's columns stay here
    names, columns = list(keys), len(per)

    def answered(key: tuple[pa.Scalar, ...], events: pa.Table) -> pa.Table:
        by_key: dict[Hashable, list[sequences.Event]] = {}
        for row in events.drop_columns(names).to_pylist():
            at, type_, *values = row.values()
            by_key.setdefault(tuple(values[:columns]), []).append((at, type_, tuple(values[columns:])))
        found = sequences.answer(query, outputs, by_key.values())
        told = [value for one in found or () for value in one.values()]
        whole = {name: pa.array([value.as_py()], value.type) for name, value in zip(names, key, strict=True)}
        whole |= {name: pa.array([value], arrow[name]) for name, value in zip(arrow, told, strict=found is not None)}
        empty = {name: pa.array([], value.type) for name, value in zip(names, key, strict=True)}
        empty |= {name: pa.array([], type_) for name, type_ in arrow.items()}
        return pa.table(whole if found else empty)

    return read.groupBy(*keys).applyInArrow(answered, returned)


def _groups(query: ACQ) -> dict[str, SparkColumn]:
    names = query.select or tuple(name for name, _ in query.group_by)
    return {name: _named(column) for name, (column, _) in zip(names, query.group_by, strict=True)}


# -------------------------------------------------------------------------------------- sampled windows
def recompute(frame: DataFrame, query: ACQ, time_column: str, windows: Sequence[tuple[int, int]]) -> DataFrame:
    """Answers for the given windows (start, end), microseconds, alone: the spans of their content, also of historical
    ones. No group is left out: :func:`qualifies` says which rows satisfy HAVING.

    As :func:`unshared`, but integers are summed in 38 digits so that an overflow can be told from a wrong sum, ranks
    are exact where Spark's own multiply in doubles, and after each output stands, as ``<name> <what>``, what
    :func:`agrees` needs of it. The outputs that HAVING compares stand behind, named ``having <number>``.
    """
    schema = schema_of(frame)
    time = _named(time_column)
    spans = [(F.timestamp_micros(F.lit(start)), F.timestamp_micros(F.lit(end))) for start, end in windows]
    tests = ((time >= start) & (time < end) for start, end in spans)
    inside = reduce(lambda either, or_: either | or_, tests, F.lit(False))
    frame = frame.where(inside)
    if query.filter is not None:
        frame = frame.where(to_column(query.filter, schema))
    all_windows = F.array(*(F.struct(start.alias("start"), end.alias("end")) for start, end in spans))
    holding = F.filter(all_windows, lambda window: (time >= window["start"]) & (time < window["end"]))
    # one select, the events' columns untouched: group names may be those of other source columns
    exploded = frame.select("*", F.explode(holding).alias("heddle window"))
    groups = _groups(query)
    window = F.col("`heddle window`")
    if query.pattern is not None:
        told = {"window_start": window["start"], "window_end": window["end"]}
        return _sequences(exploded, query, time, told, (*query.outputs, *_conditions(query)), schema)
    grouped = _Grouped(schema)
    answers = [
        column.alias(f"{output.name} {what}" if what else output.name)
        for output in (*query.outputs, *_conditions(query))
        for what, column in _audit_of(output).columns(grouped, output).items()
    ]
    found = exploded.groupBy(
        window["start"].alias("window_start"),
        window["end"].alias("window_end"),
        *(key.alias(name) for name, key in groups.items()),
    ).agg(*grouped.aliased())
    return found.select("window_start", "window_end", *(_named(name) for name in groups), *answers)


def _conditions(query: ACQ) -> list[Output]:
    """The outputs that HAVING compares, under the names that recomputed rows have them."""
    return [replace(condition.output, name=f"having {index}") for index, condition in enumerate(query.having)]


Evidence = Mapping[str, Any]
"""What :func:`recompute` says of one output in one row, by what it is; the answer itself under the empty name."""


@dataclass(frozen=True)
class _Audit:
    """How outputs of one kind are recomputed, and how a stored value (as the results table stores it) is compared."""

    columns: Callable[[_Grouped, Output], dict[str, SparkColumn]]
    agrees: Callable[[Output, Any, Evidence], bool]


def _audit_of(output: Output) -> _Audit:
    if output.argument is None or output.function not in _AUDITS:
        return _EXACT
    return _AUDITS[output.function]


def agrees(output: Output, value: Any, row: Mapping[str, Any]) -> bool:
    """Whether a stored output value equals the recomputed row's: exact types to the last digit, doubles
    within what Spark's own plain summation may lose (n*eps*sum|x|; for variances as Welford's recurrence,
    Chan, Golub and LeVeque 1983), sketches within the error that the query permits: ranks and counts by it times the
    number of values, distinct counts by :data:`DEVIATIONS` times it.

    ``value``: as the results table stores it (dates as days, timestamps as microseconds, decimals as text).
    """
    named = {"": row[output.name]}
    named |= {name[len(output.name) + 1 :]: told for name, told in row.items() if name.startswith(f"{output.name} ")}
    if isinstance(named.get("count"), Decimal):  # of event sequences
        named["count"] = int(named["count"])
    return _audit_of(output).agrees(output, value, named)


def qualifies(query: ACQ, row: Mapping[str, Any]) -> bool | None:
    """Whether a recomputed row satisfies HAVING, so that its answer has to exist.

    None where either is right: a threshold lies within what :func:`agrees` permits of a double or a sketch, or what is
    compared overflowed.
    """
    found = [
        _satisfies(condition, output, row) for condition, output in zip(query.having, _conditions(query), strict=True)
    ]
    return False if False in found else None if None in found else True


def _satisfies(condition: Condition, output: Output, row: Mapping[str, Any]) -> bool | None:
    theirs, threshold = _ordinal(row[output.name]), _threshold(condition.value, output.type)
    count, total = row.get(f"{output.name} count"), row.get(f"{output.name} total")
    if total is not None and count:
        theirs = _mean(output, total, count)
    if theirs is None:
        return None if count and output.function in _MEANS else False
    if output.function == "top_k" or (output.function == "mode" and output.error is not None):
        # the values of top_k are compared one by one; as the text that they are told in there is nothing to recompute
        return None
    if output.type == LONG and not -(2**63) <= theirs < 2**63:
        return None
    inexact = output.error is not None or (output.type == DOUBLE and output.function in _ROUNDED)
    if inexact and agrees(output, threshold, row):
        return None
    if isinstance(theirs, float) or isinstance(threshold, float):
        theirs, threshold = float(theirs), float(threshold)
    return bool(_COMPARISONS[condition.comparison](_order(theirs), _order(threshold)))


def _threshold(literal: Literal, type: Type) -> Any:
    """A literal as the results table stores values of a type."""
    value = literal.value
    if literal.type == DATE:
        value = (date.fromisoformat(value) - EPOCH.date()).days
        return value * 86_400 * 10**6 if type == TIMESTAMP else value
    if type == DOUBLE:
        return float(value)
    return int(value) if literal.type == BOOLEAN else value


def _order(value: Any) -> Any:
    """What to compare by: NaN is the greatest, and equal to itself."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


# --------------------------------------------------------------------------- how each output is audited
def _exact_columns(grouped: _Grouped, output: Output) -> dict[str, SparkColumn]:
    return {"": _plain(grouped, output)}


def _agrees_exactly(output: Output, value: Any, evidence: Evidence) -> bool:
    return _same(value, _ordinal(evidence[""]))


def _sum_columns(grouped: _Grouped, output: Output) -> dict[str, SparkColumn]:
    argument, type = grouped.argument(output), grouped.type(output)
    found = {"": _plain(grouped, output), "count": grouped.count(output)}
    if not type.is_exact:
        return found | {"magnitude": grouped.of("magnitude", output, F.sum(F.abs(argument)))}
    # decimals are summed in 38 digits: cast first, for Spark adds ten digits to the argument's own
    total = F.try_sum(argument.cast("decimal(28,0)") if type.name == "long" else argument)
    total = grouped.of("total", output, total)
    return found | ({"": total} if output.function == "sum" else {"total": total})


def _agrees_sum(output: Output, value: Any, evidence: Evidence) -> bool:
    theirs, count = evidence[""], evidence["count"]
    if "total" in evidence:
        return _agrees_average(output, value, evidence["total"], count)
    if output.type.is_exact:
        fits = theirs is not None and (output.type != LONG or -(2**63) <= theirs < 2**63)
        return _same(value, theirs if fits else None)
    if not _finite(value, theirs):
        return _same(value, theirs)
    bound = (count + 4) * EPSILON * evidence["magnitude"] + 5e-324
    return bool(abs(value - theirs) <= (bound / count if output.function == "avg" else bound))


def _agrees_average(output: Output, value: Any, total: Decimal | None, count: int) -> bool:
    if total is None or value is None:
        # a total beyond 38 digits is null in Spark: nothing to compare with
        return count > 0 or value is None
    mean = _mean(output, total, count)
    if output.type.name == "decimal":
        return bool(Decimal(value) == mean)
    return bool(abs(value - mean) <= abs(mean) * 2 * EPSILON)


def _mean(output: Output, total: Decimal, count: int) -> Any:
    """A mean of exact values: a decimal rounded half up, or the nearest double."""
    if output.type.name != "decimal":
        return float(Fraction(total) / count)
    with localcontext(prec=100):
        return (total / count).quantize(Decimal(1).scaleb(-output.type.scale), ROUND_HALF_UP)


def _spread_columns(grouped: _Grouped, output: Output) -> dict[str, SparkColumn]:
    double = grouped.argument(output).cast("double")
    squares = grouped.of("squares", output, F.sum(double * double))
    return {"": _plain(grouped, output), "count": grouped.count(output), "squares": squares}


def _agrees_spread(output: Output, value: Any, evidence: Evidence) -> bool:
    theirs, squares, count = evidence[""], evidence["squares"], evidence["count"]
    if not _finite(value, theirs):
        return _same(value, theirs)
    freedom = 0 if output.function.endswith("pop") else 1
    square = output.function.startswith("std")
    ours_variance, variance = (value * value, theirs * theirs) if square else (value, theirs)
    root = math.sqrt(squares) * math.sqrt(variance * (count - freedom))
    bound = (count + 8) * (8 * EPSILON * root + 8 * EPSILON**2 * squares) + count * 2.3e-308
    return bool(abs(ours_variance - variance) <= bound / (count - freedom) + 8 * EPSILON * variance)


def _quantile_columns(grouped: _Grouped, output: Output) -> dict[str, SparkColumn]:
    """The value at the nearest rank, and with an error the ``least`` and ``greatest`` that may stand for it."""
    values = grouped.sorted(output)
    count = F.size(values)
    rank = _nearest(count, _fraction(output))
    found = {"": _at(values, rank), "count": count}
    if output.error is None:
        return found
    off, _ = _share(count, output.error)
    least, greatest = F.greatest(rank - off, F.lit(1)), F.least(rank + off, count)
    return found | {"least": _at(values, least), "greatest": _at(values, greatest)}


def _percentile_columns(grouped: _Grouped, output: Output) -> dict[str, SparkColumn]:
    """Interpolated between ``low`` and ``high``, ``rest`` parts of the way."""
    if output.error is not None:
        return _quantile_columns(grouped, output)
    values, fraction = grouped.sorted(output), _fraction(output)
    whole, rest = _share(F.size(values) - 1, fraction)
    low, high = _at(values, whole + 1), _at(values, whole + F.when(rest > 0, 2).otherwise(1))
    way = rest.cast("double") / fraction.as_integer_ratio()[1]
    between = (1 - way) * low.cast("double") + way * high.cast("double")
    answer = F.when((rest == 0) | (low == high), low.cast("double")).otherwise(between)
    return {"": answer, "count": F.size(values), "low": low, "high": high, "rest": rest}


def _agrees_quantile(output: Output, value: Any, evidence: Evidence) -> bool:
    if value is None or "least" not in evidence:
        return _same(value, _ordinal(evidence[""]))
    bounds = [_ordinal(evidence[name]) for name in ("least", "greatest")]
    if None in bounds:
        return False
    if output.type == DOUBLE:
        least, ours, greatest = (_order(float(item)) for item in (bounds[0], value, bounds[1]))
    else:
        least, greatest = bounds
        ours = Decimal(value) if output.type.name == "decimal" else value
    return bool(least <= ours <= greatest)


def _agrees_percentile(output: Output, value: Any, evidence: Evidence) -> bool:
    if "low" not in evidence or not _finite(value, evidence[""]):
        return _agrees_quantile(output, value, evidence)
    low, high = Fraction(evidence["low"]), Fraction(evidence["high"])
    way = Fraction(evidence["rest"]) / _fraction(output).as_integer_ratio()[1]
    error = abs(Fraction(value) - (low + way * (high - low)))
    return error <= 4 * Fraction(EPSILON) * max(abs(low), abs(high)) + Fraction(5e-324)


def _distinct_columns(grouped: _Grouped, output: Output) -> dict[str, SparkColumn]:
    return {"": _plain_distinct(grouped, replace(output, error=None))}


def _agrees_distinct(output: Output, value: Any, evidence: Evidence) -> bool:
    if value is None or output.error is None:
        return _same(value, evidence[""])
    return bool(abs(value - evidence[""]) <= DEVIATIONS * output.error * evidence[""] + 1)


def _frequent_columns(grouped: _Grouped, output: Output) -> dict[str, SparkColumn]:
    """The most frequent values, counted (``top``), and with an error so many that any other is as rare as it."""
    values = grouped.sorted(output)
    most = 1 if output.parameter is None else int(output.parameter)
    if output.error is not None:
        most += math.ceil(1 / output.error)
    top = _counted(values, most)
    answer = F.get(top, F.lit(0))["value"] if output.function == "mode" else top
    return {"": answer, "count": F.size(values), "top": top}


def _agrees_mode(output: Output, value: Any, evidence: Evidence) -> bool:
    if value is None or evidence[""] is None or output.error is None:
        return _same(value, _ordinal(evidence[""]))
    counts = [-entry["missing"] for entry in evidence["top"]]
    theirs = next((-e["missing"] for e in evidence["top"] if _same(value, _ordinal(e["value"]))), None)
    if theirs is None:
        # rarer than all that are listed, unless all are
        theirs = counts[-1] if len(counts) == 1 + math.ceil(1 / output.error) else 0
    return bool(theirs > 0 and theirs >= counts[0] - output.error * evidence["count"])


def _agrees_top(output: Output, value: Any, evidence: Evidence) -> bool:
    assert output.parameter is not None
    if value is None or evidence["top"] is None:
        return value is None and evidence["top"] is None
    most, listed = int(output.parameter), [[_jsonable(e["value"]), -e["missing"]] for e in evidence["top"]]
    ours = json.loads(value)
    if output.error is None:
        return bool(ours == listed)
    slack = output.error * evidence["count"]
    # rarer than all that are listed, unless all are
    unlisted = listed[-1][1] if len(listed) == most + math.ceil(1 / output.error) else 0
    known = dict(map(tuple, listed))
    found = dict(map(tuple, ours))
    counts = [count for _, count in ours]
    near = all(known.get(one, 0) - slack <= count <= known.get(one, unlisted) for one, count in ours)
    least = counts[-1] if len(ours) == most else 0
    complete = all(count - slack <= least for one, count in listed if one not in found)
    descending = counts == sorted(counts, reverse=True) and len(found) == len(ours) <= most
    return near and complete and descending


def _jsonable(value: Any) -> Any:
    """A value as it comes out of the JSON of ``top_k``."""
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return value.isoformat() if isinstance(value, date) else value


_EXACT = _Audit(_exact_columns, _agrees_exactly)

_MEANS = ("sum", "avg")
_SPREADS = ("variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop")
_PERCENTILES = ("percentile", "median")
_ROUNDED = (*_MEANS, *_SPREADS, *_PERCENTILES)
"""Functions whose doubles are rounded on the way."""

_AUDITS: dict[str, _Audit] = {
    **dict.fromkeys(_MEANS, _Audit(_sum_columns, _agrees_sum)),
    **dict.fromkeys(_SPREADS, _Audit(_spread_columns, _agrees_spread)),
    **dict.fromkeys(_PERCENTILES, _Audit(_percentile_columns, _agrees_percentile)),
    "percentile_disc": _Audit(_quantile_columns, _agrees_quantile),
    "count_distinct": _Audit(_distinct_columns, _agrees_distinct),
    "mode": _Audit(_frequent_columns, _agrees_mode),
    "top_k": _Audit(_frequent_columns, _agrees_top),
}
"""How outputs are audited that are not simply equal."""


# -------------------------------------------------------------------------------------------- comparing
def grain(query: ACQ, row: Mapping[str, Any]) -> tuple[Any, tuple[str | None, ...]]:
    """(window start, group values as the texts of the results table's ``key``) of a recomputed row."""
    names = query.select or tuple(name for name, _ in query.group_by)
    return row["window_start"], tuple(_text(row[name]) for name in names)


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(_ordinal(value)) if isinstance(value, datetime) else str(value)


def _ordinal(value: Any) -> Any:
    """Booleans, dates and timestamps as the integers that results store; a naive timestamp is local time, as
    Spark collects it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime):
        return (value.astimezone(UTC) - EPOCH) // timedelta(microseconds=1)
    return (value - EPOCH.date()).days if isinstance(value, date) else value


def _finite(*values: Any) -> bool:
    return all(value is not None and math.isfinite(value) for value in values)


def _same(value: Any, theirs: Any) -> bool:
    if value is None or theirs is None:
        return value is theirs
    if isinstance(theirs, float) and math.isnan(theirs):
        return math.isnan(value)
    if isinstance(theirs, Decimal):
        return Decimal(value) == theirs
    return bool(value == theirs)


# ------------------------------------------------------------------------------------------ measuring
def native_frame(spark: SparkSession, stream: Stream) -> DataFrame:
    """A stream as people read it today: Spark's own reader, the time column as a timestamp."""
    ddl = ", ".join(f"`{name}` {_ddl(type)}" for name, type in stream.schema)
    reader = spark.read.format(stream.source.format)
    if stream.source.format == "csv":
        reader = reader.schema(ddl).option("header", True)
    return reader.load(stream.source.path)


def measure(
    spark: SparkSession,
    plan: SharingPlan,
    begin: int,
    end: int,
    sample: int,
    report: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Run some of a plan's queries unshared, one plain Spark job each, for the windows that end in (begin,
    end].

    The sample is spread evenly over the workload. Answers are computed and dropped (Spark's ``noop`` sink).
    Returns ``query``, ``rows_scanned`` (events in the history that its windows cover), ``cpu_seconds`` and
    ``wall_seconds``. A first run of the first query, to warm the JVM up, is not counted.
    """
    # Spark 4.2 generates Java that does not compile for a filter above its sliding window, and then
    # interprets: without this elimination the same jobs take about half the time
    spark.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    queries = plan.workload.queries
    chosen = [queries[index * len(queries) // sample] for index in range(min(sample, len(queries)))]
    found = []
    for number, query in enumerate([chosen[0], *chosen]):
        report(f"running {query.name} unshared ({max(number, 1)} of {len(chosen)})")
        stream = plan.workload.stream(query.stream)
        time_column = _named(stream.time)
        frame = native_frame(spark, stream).where(time_column < F.timestamp_micros(F.lit(end)))
        if query.window.is_rows:
            frame = frame.select(*(_named(name) for name, _ in stream.schema))
        else:
            first = history_start([query.window], begin, end)
            frame = frame.where(time_column >= F.timestamp_micros(F.lit(first)))
        rows = frame.count() if number else 0
        cpu, wall = cpu_seconds(), time.perf_counter()
        ends, ago = F.col("window_end"), query.window.ago
        answers = unshared(frame, query, stream.time).where(
            (ends > F.timestamp_micros(F.lit(begin - ago))) & (ends <= F.timestamp_micros(F.lit(end - ago)))
        )
        answers.write.format("noop").mode("overwrite").save()
        if number:
            found.append(
                {
                    "query": query.name,
                    "rows_scanned": rows,
                    "cpu_seconds": round(cpu_seconds() - cpu, 3),
                    "wall_seconds": round(time.perf_counter() - wall, 3),
                }
            )
    return found
