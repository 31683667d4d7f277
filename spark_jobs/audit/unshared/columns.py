"""Values of a query as Spark columns: expressions, filters, aggregates. From our values only, never from query text."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from optimizer.workload.derived import derived_type
from optimizer.workload.expression import type_of, unified
from optimizer.workload.nested import read_path
from optimizer.workload.values import (
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
from spark_jobs.audit.unshared.audited import audit_of
from spark_jobs.audit.unshared.ordered import SECONDS, TIME_DIGITS, value_from
from spark_jobs.audit.unshared.scalars import CONSTANTS_FROM, SCALAR_COLUMNS
from spark_jobs.audit.unshared.scalars import ddl_of as ddl_of
from spark_jobs.audit.unshared.values import COMPARISONS, fraction_of, from_spark, spark_name

Schema = Mapping[str, Type]


# --------------------------------------------------------------------------------- values to columns
def schema_of(frame: DataFrame) -> dict[str, Type]:
    """Heddle's types of a frame's columns, without columns that queries cannot use."""
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
    types: dict[str, Type] = {}
    for column in frame.schema.fields:
        if isinstance(column.dataType, T.DecimalType):
            types[from_spark(column.name)] = decimal(column.dataType.precision, column.dataType.scale)
        elif type(column.dataType) in simple:
            types[from_spark(column.name)] = simple[type(column.dataType)]
    return types


def to_column(expression: Expression, schema: Schema) -> SparkColumn:
    """The Spark column of an expression over columns of these types.

    Integer arithmetic runs in decimals of as many digits as :func:`optimizer.workload.expression.type_of` proves
    enough and quotients by zero are null, so ANSI mode finds nothing to raise.
    """
    if isinstance(expression, Column):
        return schema.columns[expression.name] if isinstance(schema, _Columns) else quoted_column(expression.name)
    if isinstance(expression, Literal):
        return literal_column(expression)
    return _call(expression, schema)


class _Columns(dict[str, Type]):
    """Types of values; ``columns``: what they are in a frame."""

    columns: Mapping[str, SparkColumn]


class TypedColumns(_Columns):
    """The types of some columns, which a frame may have in others."""

    def __init__(self, types: Mapping[str, Type]) -> None:
        super().__init__(types)
        self.columns = {name: quoted_column(name).cast(ddl_of(type)) for name, type in types.items()}


class Parts(_Columns):
    """The types of the parts of a derived output; ``columns``: what they are in a grouped frame."""

    def __init__(self, output: Output, columns: Sequence[SparkColumn]) -> None:
        super().__init__({part.name: part.type for part in output.parts})
        pairs = zip(output.parts, columns, strict=True)
        self.columns = {part.name: column.try_cast(ddl_of(part.type)) for part, column in pairs}


def derived_column(output: Output, parts: Sequence[SparkColumn]) -> SparkColumn:
    """The Spark column of a derived output, of those of its parts; null where something does not fit."""
    assert output.expression is not None
    return to_column(output.expression, Parts(output, parts))


def _type_of(expression: Expression, schema: Schema) -> Type:
    return derived_type(expression, schema) if isinstance(schema, Parts) else type_of(expression, schema)


def quoted_column(name: str) -> SparkColumn:
    """A column by its name, whatever characters that has."""
    return F.col("`" + spark_name(name).replace("`", "``") + "`")


def with_leaves(frame: DataFrame, stream: Stream, names: Iterable[str]) -> DataFrame:
    """A frame of a stream's columns with those of ``names`` that lie in nested ones as columns of their own."""
    plain = {name.lower() for name, _ in stream.schema}
    paths = {name: read_path(name) for name in names if name.lower() not in plain}
    columns = [quoted_column(name) for name in schema_of(frame)]
    for name, path in paths.items():
        assert path is not None, name
        column = quoted_column(path.root)
        for step in path.steps:
            type_ = frame.select(column).schema[0].dataType
            if step.is_field:
                column = column.getField(str(step.value))
            elif isinstance(type_, T.MapType):
                column = F.try_element_at(column, F.lit(step.value).cast(type_.keyType))
            else:
                column = F.get(column, F.lit(step.value))
        columns.append(column.alias(spark_name(name)))
    return frame.select(*columns) if paths else frame


def literal_column(literal: Literal) -> SparkColumn:
    """A constant of a query as a column."""
    value, type = literal.value, literal.type
    if value is None:
        return F.lit(None).cast(ddl_of(type))
    if type.name == "timestamp":
        return F.timestamp_micros(F.lit(value))
    if type.name == "date":
        return F.lit(date.fromisoformat(value))
    return F.lit(value).cast(ddl_of(type))


def _as(expression: Expression, schema: Schema, type: Type) -> SparkColumn:
    return to_column(expression, schema).cast(ddl_of(type))


def _exact(expression: Expression, schema: Schema) -> SparkColumn:
    """A number for arithmetic: an integer as the decimal that holds its digits."""
    type = _type_of(expression, schema)
    column = to_column(expression, schema)
    return column.cast(ddl_of(decimal(type.digits, 0))) if type.name == "long" else column


def _call(call: Call, schema: Schema) -> SparkColumn:
    name, arguments = call.function, call.arguments
    result = _type_of(call, schema)
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
        common = unified([_type_of(argument, schema) for argument in arguments])
        assert common is not None
        return F.coalesce(*(_as(argument, schema, common) for argument in arguments))
    if name == "/":
        dividend, divisor = (_as(argument, schema, DOUBLE) for argument in arguments)
        return F.try_divide(dividend, divisor)
    if name in ("neg", "abs"):
        column = _exact(arguments[0], schema)
        return (F.negative(column) if name == "neg" else F.abs(column)).try_cast(ddl_of(result))
    if name in ("+", "-", "*"):
        operator = {"+": F.try_add, "-": F.try_subtract, "*": F.try_multiply}[name]
        convert = _exact if result != DOUBLE else lambda argument, types: _as(argument, types, DOUBLE)
        left, right = (convert(argument, schema) for argument in arguments)
        return operator(left, right).try_cast(ddl_of(result))
    if name in SCALAR_COLUMNS:
        values = arguments[: CONSTANTS_FROM.get(name, len(arguments))]
        constants = [item.value for item in arguments[len(values) :] if isinstance(item, Literal)]
        types = [_type_of(value, schema) for value in values]
        return SCALAR_COLUMNS[name]([to_column(value, schema) for value in values], types, result, constants)
    left, right = (to_column(argument, schema) for argument in arguments)
    return COMPARISONS[name](left, right)


# -------------------------------------------------------------------------------- aggregates as columns
@dataclass
class GroupedFrame:
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
        """The aggregates under the names by which outputs refer to them."""
        return [column.alias(f"heddle {index}") for index, column in enumerate(self.columns.values())]

    # what outputs are made of
    def argument(self, output: Output) -> SparkColumn:
        """The output's argument as a column."""
        assert output.argument is not None
        column = to_column(output.argument, self.schema)
        # frames have all integers as bigint: arithmetic on them may be a decimal here, on narrower ones it is not
        return column.cast("bigint") if self._is_integer(output) else column

    def type(self, output: Output) -> Type:
        """The type that :meth:`argument` has."""
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
        """Number of values of the argument that are not null."""
        return self.of("count", output, F.count(self.argument(output)))

    def sorted(self, output: Output) -> SparkColumn:
        """The argument's values as a sorted list."""
        return self.of("sorted", output, F.sort_array(F.collect_list(self.value(output))))

    def pair(self, output: Output) -> SparkColumn:
        """The value with the least or greatest ``by``; structs compare field by field, null first."""
        assert output.by is not None
        value, by = self.argument(output), to_column(output.by, self.schema)
        if self.type(output) == DOUBLE:
            value = value.cast("double")
        skipped = by.isNull() | value.isNull() if output.function in ("first", "last") else by.isNull()
        best = F.min if output.function in ("first", "min_by") else F.max
        pairs = F.when(~skipped, F.struct(by.alias("by"), value.alias("value")))
        return self.of(output.function, output, best(pairs)["value"])


def exact_share(count: SparkColumn, fraction: Decimal) -> tuple[SparkColumn, SparkColumn]:
    """``count * fraction`` exactly: its integer part and the remainder in units of 1 / the fraction's denominator."""
    above, unit = (F.lit(Decimal(number)).cast("decimal(19,0)") for number in fraction.as_integer_ratio())
    product = count.cast("decimal(11,0)") * above
    remainder = product % unit
    return ((product - remainder) / unit).cast("int"), remainder


def nearest(count: SparkColumn, fraction: Decimal) -> SparkColumn:
    """The nearest rank of a fraction of ``count`` values: 1 at least."""
    quotient, remainder = exact_share(count, fraction)
    return F.greatest(quotient + F.when(remainder > 0, 1).otherwise(0), F.lit(1))


def value_at_rank(values: SparkColumn, rank: SparkColumn) -> SparkColumn:
    """The value at a 1-based rank of a sorted array; null outside it."""
    return F.get(values, rank - 1)


def value_counts(values: SparkColumn, most: int) -> SparkColumn:
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
    """A value as :func:`optimizer.aggregates.lowering.json_texts` writes it, but for the digits of doubles."""
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


def _plain_top(grouped: GroupedFrame, output: Output) -> SparkColumn:
    assert output.parameter is not None
    type = grouped.type(output)
    top = value_counts(grouped.sorted(output), int(output.parameter))
    entries = F.transform(
        top,
        lambda entry: F.concat(
            F.lit("["), _in_json(entry["value"], type), F.lit(", "), (-entry["missing"]).cast("string"), F.lit("]")
        ),
    )
    return F.when(top.isNotNull(), F.concat(F.lit("["), F.concat_ws(", ", entries), F.lit("]")))


def plain_distinct(grouped: GroupedFrame, output: Output) -> SparkColumn:
    """A distinct count as Spark counts it, exactly or by its own sketch."""
    if output.error is None:
        return grouped.of("distinct", output, F.count_distinct(grouped.value(output)))
    # Spark refuses a greater error
    error = min(float(output.error), 0.39)
    return grouped.of(f"approximately distinct {error}", output, F.approx_count_distinct(grouped.value(output), error))


def _plain_percentile(grouped: GroupedFrame, output: Output) -> SparkColumn:
    fraction, value = float(fraction_of(output)), grouped.value(output)
    if output.error is None:
        return grouped.of(f"percentile {fraction}", output, F.percentile(value, fraction))
    return _plain_approximate(grouped, output).cast("double")


def _plain_quantile(grouped: GroupedFrame, output: Output) -> SparkColumn:
    if output.error is not None and grouped.type(output).is_numeric:
        return _plain_approximate(grouped, output)
    values = grouped.sorted(output)
    return value_at_rank(values, nearest(F.size(values), fraction_of(output)))


def _plain_approximate(grouped: GroupedFrame, output: Output) -> SparkColumn:
    assert output.error is not None
    fraction, accuracy = float(fraction_of(output)), math.ceil(1 / output.error)
    column = F.percentile_approx(grouped.value(output), fraction, accuracy)
    return grouped.of(f"approximate percentile {fraction} {accuracy}", output, column)


def both_numbers(grouped: GroupedFrame, output: Output) -> tuple[SparkColumn, SparkColumn]:
    """The two numbers of an output as doubles, null where one of them is."""
    assert output.by is not None
    x, y = grouped.argument(output).cast("double"), to_column(output.by, grouped.schema).cast("double")
    return F.when(y.isNotNull(), x), F.when(x.isNotNull(), y)


def _plain_both(grouped: GroupedFrame, output: Output) -> SparkColumn:
    x, y = both_numbers(grouped, output)
    if output.function == "corr":
        # F.corr fails where one of both does not vary
        return grouped.of("corr", output, F.try_divide(F.covar_pop(x, y), F.stddev_pop(x) * F.stddev_pop(y)))
    return grouped.of(output.function, output, getattr(F, output.function)(x, y))


def logarithm(grouped: GroupedFrame, output: Output) -> SparkColumn:
    """The natural logarithm of the argument: -inf of zeros, NaN of negative numbers."""
    double = grouped.argument(output).cast("double")
    column = F.when(double > 0, F.ln(double)).when(double == 0, float("-inf"))
    return column.when(double.isNotNull(), float("nan"))


def _plain_several(grouped: GroupedFrame, output: Output) -> SparkColumn:
    fractions, value = [float(fraction) for fraction in output.parameters], grouped.value(output)
    if output.function == "percentiles" and output.error is None:
        return _listed(grouped.of(f"percentiles {fractions}", output, F.percentile(value, fractions)), DOUBLE)
    if output.error is not None and grouped.type(output).is_numeric:
        column = F.percentile_approx(value, fractions, math.ceil(1 / output.error))
        column = grouped.of(f"approximate percentiles {fractions} {output.error}", output, column)
        return _listed(column, grouped.type(output))
    values = grouped.sorted(output)
    ranks = (nearest(F.size(values), fraction) for fraction in output.parameters)
    array = F.array(*(value_at_rank(values, rank) for rank in ranks))
    return F.when(F.size(values) > 0, _listed(array, grouped.type(output)))


def _listed(values: SparkColumn, type: Type) -> SparkColumn:
    """An array as a list in JSON; null if it is or has no values."""
    items = F.transform(values, lambda value: _in_json(value, type))
    return F.when(F.size(values) > 0, F.concat(F.lit("["), F.concat_ws(", ", items), F.lit("]")))


def _plain_least(grouped: GroupedFrame, output: Output) -> SparkColumn:
    assert output.parameter is not None
    least = F.slice(F.array_distinct(grouped.sorted(output)), 1, int(output.parameter))
    return _listed(least, grouped.type(output))


def _plain_sized(grouped: GroupedFrame, output: Output, function: str) -> SparkColumn:
    """Spark's answer of a function with a size: a histogram, a sketch."""
    assert output.parameter is not None
    name = function.format("double" if grouped.type(output) == DOUBLE else "bigint")
    value, size = grouped.value(output), int(output.parameter)
    sized = grouped.of(f"{name} {size}", output, getattr(F, name)(value, F.lit(size)))
    return F.when(grouped.count(output) > 0, sized)


def _plain_value(grouped: GroupedFrame, output: Output) -> SparkColumn:
    """The functions of Spark that the audit names, one applied to the result of the other."""
    audit, argument = audit_of(output), grouped.argument(output)
    if audit.in_spark is not None:
        return grouped.of(output.function, output, F.when(F.count(argument) > 0, audit.in_spark(F, argument)))
    aggregate, *functions = audit.spark.split()
    column = grouped.of(aggregate, output, getattr(F, aggregate)(argument))
    return reduce(lambda inner, function: getattr(F, function)(inner), functions, column)


def distinct_total(grouped: GroupedFrame, output: Output, magnitude: bool = False) -> SparkColumn:
    """The sum of the distinct values; ``magnitude``: of their absolute values."""
    type, values = grouped.type(output), F.array_distinct(grouped.sorted(output))
    # sums of decimals with digits behind the point would lose some of them
    sized = "double" if type == DOUBLE else "decimal(38,0)"

    def added(total: SparkColumn, value: SparkColumn) -> SparkColumn:
        value = F.abs(value) if magnitude else value
        return F.try_add(total, _unscaled(value, type.scale).cast(sized)).cast(sized)

    total = F.aggregate(values, F.lit(0).cast(sized), added)
    return F.when(F.size(values) > 0, _scaled(total, type.scale) if type.scale else total)


def _unscaled(value: SparkColumn, scale: int) -> SparkColumn:
    return F.regexp_replace(value.cast("string"), r"\.", "") if scale else value


def _scaled(unscaled: SparkColumn, scale: int) -> SparkColumn:
    """A decimal of 38 digits from its digits as an integer."""
    digits = F.abs(unscaled).cast("string")
    digits = F.lpad(digits, F.greatest(F.length(digits), F.lit(scale + 1)), F.lit("0"))
    sign, point = F.when(unscaled < 0, "-").otherwise(""), F.length(digits) - scale
    text = F.concat(
        sign, F.substring(digits, F.lit(1), point), F.lit("."), F.substring(digits, point + 1, F.lit(scale))
    )
    return text.try_cast(f"decimal(38,{scale})")


def _plain_distinct_total(grouped: GroupedFrame, output: Output) -> SparkColumn:
    total, count = distinct_total(grouped, output), F.size(F.array_distinct(grouped.sorted(output)))
    if output.function.startswith("avg"):
        total = total / count if output.type.name == "decimal" else total.cast("double") / count
    return total.try_cast(ddl_of(output.type))


def _seconds(microseconds: SparkColumn) -> SparkColumn:
    return (microseconds.cast("decimal(25,0)") * F.lit(SECONDS)).cast("double")


def _gaps(values: SparkColumn) -> tuple[SparkColumn, SparkColumn]:
    """All values of a sorted array but the last, and all but the first."""
    size = F.greatest(F.size(values) - 1, F.lit(0))
    return F.slice(values, F.lit(1), size), F.slice(values, F.lit(2), size)


def _plain_time_while(grouped: GroupedFrame, output: Output) -> SparkColumn:
    def between(value: SparkColumn, later: SparkColumn) -> SparkColumn:
        passed = F.shiftright(later, 1) - F.shiftright(value, 1)
        if output.parameter is not None:
            passed = F.least(passed, F.lit(int(output.parameter)))
        return F.when(value % 2 != 0, passed).otherwise(0).cast("bigint")

    values = F.array_distinct(grouped.sorted(output))
    passed = F.zip_with(*_gaps(values), between)
    total = F.aggregate(passed, F.lit(0).cast("bigint"), lambda total, value: total + value)
    return F.when(F.size(values) > 0, _seconds(total))


def _plain_longest_gap(grouped: GroupedFrame, output: Output) -> SparkColumn:
    moments = F.transform(grouped.sorted(output), F.unix_micros)
    return _seconds(F.array_max(F.zip_with(*_gaps(moments), lambda moment, later: later - moment)))


def _plain_mean_gap(grouped: GroupedFrame, output: Output) -> SparkColumn:
    return F.try_divide(span(grouped, output).cast("double"), 1e6 * (grouped.count(output) - 1))


def rise(grouped: GroupedFrame, output: Output) -> tuple[SparkColumn, SparkColumn]:
    """The increase of a counter, and the microseconds between its first and its last event."""

    def between(step: SparkColumn, later: SparkColumn) -> SparkColumn:
        rises = later["value"] >= step["value"]
        return F.when(rises, F.try_subtract(later["value"], step["value"])).otherwise(later["value"])

    return _between_steps(grouped, output, between)


def area(grouped: GroupedFrame, output: Output) -> tuple[SparkColumn, SparkColumn]:
    """The sum of the values, each times the microseconds until the next event, and the microseconds of all."""

    def between(step: SparkColumn, later: SparkColumn) -> SparkColumn:
        return F.try_multiply(step["value"], (later["at"] - step["at"]).cast("decimal(20,0)"))

    return _between_steps(grouped, output, between)


def _between_steps(
    grouped: GroupedFrame, output: Output, between: Callable[[SparkColumn, SparkColumn], SparkColumn]
) -> tuple[SparkColumn, SparkColumn]:
    """The sum of what lies between each event and the next, and the microseconds between the first and the last."""
    assert output.by_type is not None
    # sums of decimals with digits behind the point would lose some of them
    scale, wide = output.by_type.scale, "decimal(38,0)"
    steps = F.array_sort(
        F.transform(
            grouped.sorted(output),
            lambda text: F.struct(
                F.substring(text, F.lit(1), F.lit(TIME_DIGITS)).cast("bigint").alias("at"),
                _unscaled(_value_of(text), scale).cast(wide).alias("value"),
            ),
        )
    )
    parts = F.zip_with(*_gaps(steps), lambda step, later: between(step, later).cast(wide))
    total = F.aggregate(parts, F.lit(0).cast(wide), lambda all, value: F.try_add(all, value).cast(wide))
    passed = F.get(steps, F.size(steps) - 1)["at"] - F.get(steps, F.lit(0))["at"]
    return (_scaled(total, scale) if scale else total), F.coalesce(passed, F.lit(0))


def _plain_rate(grouped: GroupedFrame, output: Output) -> SparkColumn:
    increase, passed = rise(grouped, output)
    return F.try_divide(increase.cast("double") * 1e6, passed.cast("double"))


def _plain_time_weighted(grouped: GroupedFrame, output: Output) -> SparkColumn:
    total, passed = area(grouped, output)
    return F.try_divide(total.cast("double"), passed.cast("double"))


def span(grouped: GroupedFrame, output: Output) -> SparkColumn:
    """Microseconds between the least and the greatest value."""
    value = grouped.argument(output)
    first, last = (grouped.of(name, output, getattr(F, name)(value)) for name in ("min", "max"))
    return F.unix_micros(last) - F.unix_micros(first)


def _value_of(text: SparkColumn) -> SparkColumn:
    """The separator and the value of the text of an event in an order."""
    place = F.when(text.startswith("k"), value_from("k") + 1).when(text.startswith("d"), value_from("d") + 1)
    place = place.otherwise(value_from("") + 1)
    return F.substring(text, place, F.length(text))


def _plain_last(grouped: GroupedFrame, output: Output) -> SparkColumn:
    return _last_of(F.transform(F.reverse(grouped.sorted(output)), _value_of), output)


def _plain_last_distinct(grouped: GroupedFrame, output: Output) -> SparkColumn:
    # of equals the first stays
    return _last_of(F.array_distinct(F.transform(F.reverse(grouped.sorted(output)), _value_of)), output)


def _last_of(latest_first: SparkColumn, output: Output) -> SparkColumn:
    assert output.parameter is not None and output.by_type is not None
    type = output.by_type
    last = F.reverse(F.slice(latest_first, F.lit(1), F.lit(int(output.parameter))))
    return _listed(F.transform(last, lambda text: text.cast(ddl_of(type))), type)


def _plain_joined(grouped: GroupedFrame, output: Output) -> SparkColumn:
    assert output.parameter is not None
    texts = grouped.sorted(output)
    texts = F.when(F.get(texts, F.lit(0)).startswith("d"), F.array_distinct(texts)).otherwise(texts)
    joined = F.array_join(F.transform(texts, _value_of), "")
    return F.when(F.size(texts) > 0, F.substring(joined, F.lit(int(output.parameter) + 1), F.length(joined)))


ANSWERS: dict[str, Callable[[GroupedFrame, Output], SparkColumn]] = {
    "order": GroupedFrame.pair,
    "distinct": plain_distinct,
    "percentile": _plain_percentile,
    "quantile": _plain_quantile,
    "mode": lambda grouped, output: grouped.of("mode", output, F.mode(grouped.value(output), True)),
    "top": _plain_top,
    "regression": _plain_both,
    "pairs counted": _plain_both,
    "geometric mean": lambda grouped, output: F.exp(grouped.of("logs", output, F.avg(logarithm(grouped, output)))),
    **dict.fromkeys(("percentiles", "quantiles"), _plain_several),
    "histogram": lambda grouped, output: F.to_json(_plain_sized(grouped, output, "histogram_numeric")),
    "set": _plain_least,
    "distinct sum": _plain_distinct_total,
    "time while": _plain_time_while,
    "longest gap": _plain_longest_gap,
    "mean gap": _plain_mean_gap,
    "rate": _plain_rate,
    "time weighted": _plain_time_weighted,
    "last": _plain_last,
    "last distinct": _plain_last_distinct,
    "joined": _plain_joined,
    **dict.fromkeys(
        ("distinct sketch", "quantile sketch"),
        lambda grouped, output: _plain_sized(grouped, output, audit_of(output).spark),
    ),
}
"""How Spark answers an output, by the family of its audit, for families not covered by the functions in the audit."""


def spark_output(grouped: GroupedFrame, output: Output) -> SparkColumn:
    """An output as its author would write it in Spark; of equals the one that the language prescribes."""
    if output.parts:
        return derived_column(output, [spark_output(grouped, part) for part in output.parts])
    if output.argument is None:
        return grouped.of("rows", output, F.count(F.lit(1)))
    return ANSWERS.get(audit_of(output).family, _plain_value)(grouped, output)
