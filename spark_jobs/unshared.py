"""Unshared execution: each query alone, by Spark's own aggregates over raw events.

:func:`unshared` is what people write today, one sliding ``window()`` a query: the baseline of the
benchmarks. :func:`recompute` answers a handful of given windows without ``window()``: the audit compares
published answers with it, and :func:`agrees` says how far doubles may differ. Columns are built from our
values only, never from query text.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from functools import reduce
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
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
    Expression,
    Literal,
    Output,
    Stream,
    Type,
    decimal,
)
from optimizer.window import history_start
from spark_jobs.session import cpu_seconds

EPSILON = 2.0**-52
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SPREADS = ("variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop")

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
    for field in frame.schema.fields:
        if isinstance(field.dataType, T.DecimalType):
            found[field.name] = decimal(field.dataType.precision, field.dataType.scale)
        elif type(field.dataType) in simple:
            found[field.name] = simple[type(field.dataType)]
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
    return {
        "=": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[name]


# ------------------------------------------------------------------------------------ what users do today
def unshared(frame: DataFrame, query: ACQ, time_column: str) -> DataFrame:
    """One query as one plain Spark aggregation over Spark's sliding ``window()``: every window of the frame.

    Returns window_start, window_end, the group columns and the outputs. Integers are summed as Spark does,
    in 64 bits (null on overflow). ``window()`` refuses a slide beyond the range: there the windows are
    those of a tumbling one and events behind their ends are filtered out.
    """
    range_, slide = query.window.range, query.window.slide
    schema = schema_of(frame)
    if query.filter is not None:
        frame = frame.where(to_column(query.filter, schema))
    time = _named(time_column)
    sizes = [f"{size} microseconds" for size in (max(range_, slide), slide)]
    frame = frame.select("*", F.window(time, *sizes).alias("heddle window"))
    start = F.col("`heddle window`")["start"]
    end = F.timestamp_micros(F.unix_micros(start) + range_)
    if slide > range_:
        frame = frame.where(time < end)
    groups = _groups(query)
    keys = (key.alias(name) for name, key in groups.items())
    answered = frame.groupBy(F.col("`heddle window`"), *keys).agg(
        *(_plain(output, schema).alias(output.name) for output in query.outputs)
    )
    return answered.select(
        start.alias("window_start"),
        end.alias("window_end"),
        *(_named(name) for name in [*groups, *(output.name for output in query.outputs)]),
    )


def _groups(query: ACQ) -> dict[str, SparkColumn]:
    names = query.select or tuple(name for name, _ in query.group_by)
    return {name: _named(column) for name, (column, _) in zip(names, query.group_by, strict=True)}


def _plain(output: Output, schema: Schema) -> SparkColumn:
    if output.argument is None:
        return F.count(F.lit(1))
    column = to_column(output.argument, schema)
    if output.function in ("sum", "avg"):
        return (F.try_sum if output.function == "sum" else F.try_avg)(column)
    return getattr(F, output.function)(column)


# -------------------------------------------------------------------------------------- sampled windows
def recompute(frame: DataFrame, query: ACQ, time_column: str, windows: Sequence[tuple[int, int]]) -> DataFrame:
    """Answers of some windows ``[start, end)`` (microseconds) of a query, in one job without ``window()``.

    Returns what :func:`unshared` returns, but sums of integers are decimals of 38 digits and cannot wrap,
    and after each output stands what :func:`agrees` needs: ``<name> count`` (values not null), ``<name>
    magnitude`` (sum of absolute values, for sums and averages of doubles), ``<name> total`` (exact sum, for
    averages of exact types), ``<name> squares`` (sum of squares, for variances and deviations).
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
    grouped = exploded.groupBy(
        window["start"].alias("window_start"),
        window["end"].alias("window_end"),
        *(key.alias(name) for name, key in groups.items()),
    )
    return grouped.agg(*(column for output in query.outputs for column in _audited(output, schema)))


def _audited(output: Output, schema: Schema) -> list[SparkColumn]:
    if output.argument is None:
        return [F.count(F.lit(1)).alias(output.name)]
    argument, type = to_column(output.argument, schema), type_of(output.argument, schema)
    count = F.count(argument)
    found: dict[str, SparkColumn] = {"count": count}
    answer = _plain(output, schema)
    if output.function in ("sum", "avg") and type.is_exact:
        # decimals are summed in 38 digits: cast first, for Spark adds ten digits to the argument's own
        total = F.try_sum(argument.cast("decimal(28,0)") if type.name == "long" else argument)
        if output.function == "sum":
            answer = total
        else:
            found["total"] = total
    elif output.function in ("sum", "avg"):
        found["magnitude"] = F.sum(F.abs(argument))
    elif output.function in SPREADS:
        double = argument.cast("double")
        found["squares"] = F.sum(double * double)
    extras = [column.alias(f"{output.name} {name}") for name, column in found.items()]
    return [answer.alias(output.name), *extras]


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


def agrees(output: Output, value: Any, row: Mapping[str, Any]) -> bool:
    """Whether a stored output value equals the recomputed row's: exact types to the last digit, doubles
    within what Spark's own plain summation may lose (n*eps*sum|x|; for variances as Welford's recurrence,
    Chan, Golub and LeVeque 1983).

    ``value``: as the results table stores it (dates as days, timestamps as microseconds, decimals as text).
    """
    theirs = _ordinal(row[output.name])
    if output.argument is None or output.function in ("count", "min", "max"):
        return _same(value, theirs)
    count = row[f"{output.name} count"]
    if f"{output.name} total" in row:
        return _agrees_average(output, value, row[f"{output.name} total"], count)
    if output.type.is_exact:
        fits = theirs is not None and (output.type != LONG or -(2**63) <= theirs < 2**63)
        return _same(value, theirs if fits else None)
    if value is None or theirs is None or not (math.isfinite(value) and math.isfinite(theirs)):
        return _same(value, theirs)
    if output.function in ("sum", "avg"):
        bound = (count + 4) * EPSILON * row[f"{output.name} magnitude"] + 5e-324
        return bool(abs(value - theirs) <= (bound / count if output.function == "avg" else bound))
    return _agrees_spread(output, value, theirs, row[f"{output.name} squares"], count)


def _same(value: Any, theirs: Any) -> bool:
    if value is None or theirs is None:
        return value is theirs
    if isinstance(theirs, float) and math.isnan(theirs):
        return math.isnan(value)
    if isinstance(theirs, Decimal):
        return Decimal(value) == theirs
    return bool(value == theirs)


def _agrees_average(output: Output, value: Any, total: Decimal | None, count: int) -> bool:
    if total is None or value is None:
        # a total beyond 38 digits is null in Spark: nothing to compare with
        return count > 0 or value is None
    with localcontext(prec=100):
        mean = total / count
        if output.type.name == "decimal":
            return Decimal(value) == mean.quantize(Decimal(1).scaleb(-output.type.scale), ROUND_HALF_UP)
        return abs(Decimal(value) - mean) <= abs(mean) * Decimal(2 * EPSILON)


def _agrees_spread(output: Output, value: float, theirs: float, squares: float, count: int) -> bool:
    freedom = 0 if output.function.endswith("pop") else 1
    square = output.function.startswith("std")
    ours_variance, variance = (value * value, theirs * theirs) if square else (value, theirs)
    root = math.sqrt(squares) * math.sqrt(variance * (count - freedom))
    bound = (count + 8) * (8 * EPSILON * root + 8 * EPSILON**2 * squares) + count * 2.3e-308
    return abs(ours_variance - variance) <= bound / (count - freedom) + 8 * EPSILON * variance


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
        first = history_start([query.window], begin, end)
        time_column = _named(stream.time)
        frame = native_frame(spark, stream).where(
            (time_column >= F.timestamp_micros(F.lit(first))) & (time_column < F.timestamp_micros(F.lit(end)))
        )
        rows = frame.count() if number else 0
        cpu, wall = cpu_seconds(), time.perf_counter()
        ends = F.col("window_end")
        answers = unshared(frame, query, stream.time).where(
            (ends > F.timestamp_micros(F.lit(begin))) & (ends <= F.timestamp_micros(F.lit(end)))
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
