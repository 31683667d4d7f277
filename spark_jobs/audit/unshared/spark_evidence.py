"""Evidence of an output in a row that Spark recomputes: the answer, and what judging it takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from optimizer.workload.values import DOUBLE, Output
from spark_jobs.audit.unshared.audited import audit_of
from spark_jobs.audit.unshared.columns import (
    GroupedFrame,
    area,
    both_numbers,
    distinct_total,
    exact_share,
    logarithm,
    nearest,
    plain_distinct,
    rise,
    span,
    spark_output,
    value_at_rank,
    value_counts,
)
from spark_jobs.audit.unshared.listings import RANKS, each_fraction
from spark_jobs.audit.unshared.values import fraction_of

Columns = Callable[[GroupedFrame, Output], dict[str, SparkColumn]]


def _exact_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    return {"": spark_output(grouped, output)}


def _sum_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    argument, type = grouped.argument(output), grouped.type(output)
    columns = {"": spark_output(grouped, output), "count": grouped.count(output)}
    if not type.is_exact:
        return columns | {"magnitude": grouped.of("magnitude", output, F.sum(F.abs(argument)))}
    # decimals are summed in 38 digits: cast first, for Spark adds ten digits to the argument's own
    total = F.try_sum(argument.cast("decimal(28,0)") if type.name == "long" else argument)
    total = grouped.of("total", output, total)
    return columns | ({"": total} if output.function == "sum" else {"total": total})


def _spread_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    double = grouped.argument(output).cast("double")
    squares = grouped.of("squares", output, F.sum(double * double))
    return {"": spark_output(grouped, output), "count": grouped.count(output), "squares": squares}


def _quantile_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    """The value at the nearest rank, and with an error the ``least`` and ``greatest`` that are accepted for it."""
    values = grouped.sorted(output)
    count = F.size(values)
    rank = nearest(count, fraction_of(output))
    columns = {"": value_at_rank(values, rank), "count": count}
    if output.error is None:
        return columns
    off, _ = exact_share(count, output.error)
    least, greatest = F.greatest(rank - off, F.lit(1)), F.least(rank + off, count)
    return columns | {"least": value_at_rank(values, least), "greatest": value_at_rank(values, greatest)}


def _percentile_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    """Interpolated between ``low`` and ``high``, ``rest`` parts of the way."""
    if output.error is not None:
        return _quantile_columns(grouped, output)
    values, fraction = grouped.sorted(output), fraction_of(output)
    index, remainder = exact_share(F.size(values) - 1, fraction)
    low, high = value_at_rank(values, index + 1), value_at_rank(values, index + F.when(remainder > 0, 2).otherwise(1))
    way = remainder.cast("double") / fraction.as_integer_ratio()[1]
    between = (1 - way) * low.cast("double") + way * high.cast("double")
    answer = F.when((remainder == 0) | (low == high), low.cast("double")).otherwise(between)
    return {"": answer, "count": F.size(values), "low": low, "high": high, "rest": remainder}


def _distinct_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    return {"": plain_distinct(grouped, replace(output, error=None))}


def _frequent_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    """The most frequent values, counted (``top``). With an error, enough of them that any other is as rare as the
    error.
    """
    values = grouped.sorted(output)
    most = 1 if output.parameter is None else int(output.parameter)
    if output.error is not None:
        most += math.ceil(1 / output.error)
    top = value_counts(values, most)
    answer = F.get(top, F.lit(0))["value"] if output.function == "mode" else top
    return {"": answer, "count": F.size(values), "top": top}


def _pair_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    """The answer, and of the pairs without a null the ``count``, sums of squares, variances and means."""
    x, y = both_numbers(grouped, output)
    columns = {"": spark_output(grouped, output), "count": grouped.of("both", output, F.count(x))}
    for name, side in (("x", x), ("y", y)):
        columns[f"squares {name}"] = grouped.of(f"squares {name}", output, F.sum(side * side))
        columns[f"variance {name}"] = grouped.of(f"variance {name}", output, F.var_pop(side))
        columns[f"mean {name}"] = grouped.of(f"mean {name}", output, F.avg(side))
    return columns


def _shape_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    """The answer, and the ``count``, the sum of ``squares`` and the ``variance``."""
    double = grouped.argument(output).cast("double")
    squares = grouped.of("squares", output, F.sum(double * double))
    columns = {"": spark_output(grouped, output), "count": grouped.count(output), "squares": squares}
    return columns | {"variance": grouped.of("variance of doubles", output, F.var_pop(double))}


def _geometric_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    """The answer, and the mean magnitude of the logarithms."""
    logs = grouped.of("magnitude of logs", output, F.avg(F.abs(logarithm(grouped, output))))
    return {"": spark_output(grouped, output), "count": grouped.count(output), "logs": logs}


def _several_columns(columns: Columns) -> Columns:
    """The columns of percentiles of several fractions, from those of one: numbered."""

    def numbered(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
        numbered_columns = {
            f"{number} {name or 'answer'}": column
            for number, percentile in enumerate(each_fraction(output))
            for name, column in columns(grouped, percentile).items()
        }
        return {"": numbered_columns["0 answer"]} | numbered_columns

    return numbered


def _distinct_sum_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    count = F.size(F.array_distinct(grouped.sorted(output)))
    columns, total = {"": spark_output(grouped, output), "count": count}, distinct_total(grouped, output)
    if grouped.type(output) == DOUBLE:
        return columns | {"magnitude": distinct_total(grouped, output, magnitude=True)}
    return columns | ({"total": total} if output.function.startswith("avg") else {"": total})


def _gap_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    return {"": spark_output(grouped, output), "span": span(grouped, output), "count": grouped.count(output)}


def _rate_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    total, passed = rise(grouped, output)
    return {"": spark_output(grouped, output), "dividend": total, "passed": passed}


def _time_weighted_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    total, passed = area(grouped, output)
    return {"": spark_output(grouped, output), "dividend": total, "passed": passed}


def _least_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    """The least distinct values."""
    assert output.parameter is not None
    return {"": F.slice(F.array_distinct(grouped.sorted(output)), 1, int(output.parameter))}


def _histogram_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    """The finite ``least`` and ``greatest`` value, how many are ``finite``, and how many are surely below each edge of
    the bins and how many perhaps (``edges``): edges are rounded here."""
    assert output.parameter is not None
    bins, values = int(output.parameter), grouped.sorted(output)
    doubles = F.transform(values, lambda value: value.cast("double"))
    known = F.filter(doubles, lambda value: ~F.isnan(value) & (F.abs(value) < float("inf")))
    least, most = F.get(known, F.lit(0)), F.get(known, F.size(known) - 1)
    slack = (F.abs(least) + F.abs(most)) * 1e-15

    def edge(at: SparkColumn) -> SparkColumn:
        value = least * (1 - at / bins) + most * (at / bins)
        below = F.size(F.filter(known, lambda double: double < value - slack))
        return F.struct(
            below.alias("below"), F.size(F.filter(known, lambda double: double < value + slack)).alias("most")
        )

    edges = (
        F.transform(F.sequence(F.lit(1), F.lit(bins - 1)), edge)
        if bins > 1
        else F.array().cast("array<struct<below:int,most:int>>")
    )
    return {"": F.size(known), "count": grouped.count(output), "least": least, "greatest": most, "edges": edges}


def _counted_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    """Number of values, and number of distinct ones that DataSketches does not ignore."""
    value = grouped.value(output)
    distinct = F.count_distinct(F.when(value != "", value) if grouped.type(output).name == "string" else value)
    return {"": grouped.of("distinct in a sketch", output, distinct), "count": grouped.count(output)}


def _ranked_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    """Number of values that are not NaN, and the values at :data:`RANKS`, each with the numbers of values below it
    and up to it.
    """
    values = grouped.sorted(output)
    if grouped.type(output) == DOUBLE:
        values = F.filter(values, lambda value: ~F.isnan(value))

    def at(fraction: Decimal) -> SparkColumn:
        value = value_at_rank(values, nearest(F.size(values), fraction))
        below = F.size(F.filter(values, lambda other: other < value))
        return F.struct(
            value.alias("value"),
            below.alias("below"),
            F.size(F.filter(values, lambda other: other <= value)).alias("upto"),
        )

    return {"": F.size(values), "count": F.size(values), "ranks": F.array(*map(at, RANKS))}


EVIDENCE: dict[str, Columns] = {
    "sum": _sum_columns,
    "spread": _spread_columns,
    "percentile": _percentile_columns,
    "quantile": _quantile_columns,
    "distinct": _distinct_columns,
    **dict.fromkeys(("mode", "top"), _frequent_columns),
    "regression": _pair_columns,
    "shape": _shape_columns,
    "geometric mean": _geometric_columns,
    "percentiles": _several_columns(_percentile_columns),
    "quantiles": _several_columns(_quantile_columns),
    "histogram": _histogram_columns,
    "set": _least_columns,
    "distinct sum": _distinct_sum_columns,
    "mean gap": _gap_columns,
    "rate": _rate_columns,
    "time weighted": _time_weighted_columns,
    "distinct sketch": _counted_columns,
    "quantile sketch": _ranked_columns,
}
"""The columns of outputs whose comparison needs more than the answer, by the family of their audit."""


def evidence_columns(grouped: GroupedFrame, output: Output) -> dict[str, SparkColumn]:
    """The columns of a recomputed output: the answer under the empty name, and what :func:`agrees
    <spark_jobs.audit.unshared.agreement.agrees>` needs in addition.
    """
    return EVIDENCE.get(audit_of(output).family, _exact_columns)(grouped, output)
