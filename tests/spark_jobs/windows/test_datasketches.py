"""Sketches in answers, read by Spark's own functions and combined with sketches that Spark makes."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from optimizer.aggregates.datasketches import hll_sketch, quantile_sketch, theta_sketch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COUNT = 5000


def encoded(sketch: bytes | None) -> str:
    assert sketch is not None
    return base64.b64encode(sketch).decode()


def values_of(kind: str, first: int) -> Any:
    numbers = np.arange(first, first + COUNT)
    if kind == "string":
        return np.array(sorted(f"é{number}" for number in numbers), dtype=object)
    return numbers / 8 if kind == "double" else numbers


@pytest.mark.parametrize(
    "kind, name", [("bigint", "hll"), ("string", "hll"), ("bigint", "theta"), ("string", "theta"), ("double", "theta")]
)
def test_spark_estimates_and_unites_distinct_values(spark: SparkSession, kind: str, name: str) -> None:
    """A union with a sketch of Spark's over values half of which are the same counts those once."""
    make, estimate, unite = {
        "hll": (hll_sketch, F.hll_sketch_estimate, F.hll_union),
        "theta": (theta_sketch, F.theta_sketch_estimate, F.theta_union),
    }[name]
    values = values_of(kind, 0)
    ours = encoded(make(values, np.ones(len(values), dtype=np.int64), 12))
    value = {"string": F.concat(F.lit("é"), F.col("id").cast("string")), "double": F.col("id") / 8}.get(
        kind, F.col("id")
    )
    agg: Any = {"hll": F.hll_sketch_agg, "theta": F.theta_sketch_agg}[name]
    frame = spark.range(COUNT // 2, COUNT // 2 + COUNT).select(value.alias("value"))
    sketches = frame.agg(agg("value", F.lit(12)).alias("theirs"), agg(F.when(F.col("value") == 1, 1)).alias("none"))
    read: SparkColumn = F.unbase64(F.lit(ours))
    row = sketches.select(
        estimate(read).alias("alone"), estimate(unite(read, F.col("theirs"))).alias("both")
    ).collect()[0]
    # four standard errors
    assert abs(row["alone"] / COUNT - 1) < 4 * 1.04 / 64 and abs(row["both"] / (1.5 * COUNT) - 1) < 4 * 1.04 / 64


@pytest.mark.parametrize("kind, name", [("bigint", "hll"), ("string", "hll"), ("double", "theta"), ("string", "theta")])
def test_equal_values_have_equal_hashes(spark: SparkSession, kind: str, name: str) -> None:
    """Few values are counted exactly, so a union with Spark's sketch of the same values counts no more."""
    make, estimate, unite, agg = {
        "hll": (hll_sketch, F.hll_sketch_estimate, F.hll_union, F.hll_sketch_agg),
        "theta": (theta_sketch, F.theta_sketch_estimate, F.theta_union, F.theta_sketch_agg),
    }[name]
    values: dict[str, list[Any]] = {
        "bigint": [-(2**63), -1, 0, 2**31, 2**63 - 1],
        "string": ["a", "é", "日本", 'say "x"', "𝒳"],
        "double": [-1.5, 0.0, 5e-324, 1e300, float("inf"), float("nan")],
    }
    kind_values = values[kind]
    dtype = {"bigint": np.int64, "double": np.float64}.get(kind, object)
    array = np.array(kind_values, dtype=dtype)
    ours = encoded(make(array, np.ones(len(array), dtype=np.int64), 12))
    frame = spark.createDataFrame([(value,) for value in kind_values], f"value {kind}")
    sketches = frame.agg(agg("value", F.lit(12)).alias("theirs"))
    (row,) = sketches.select(estimate(unite(F.unbase64(F.lit(ours)), F.col("theirs"))).alias("both")).collect()
    assert round(row["both"]) == len(kind_values)


@pytest.mark.parametrize("kind", ["bigint", "double"])
@pytest.mark.parametrize("count", [1, 2, 150, 200, 201, 5000])
def test_spark_reads_and_merges_quantiles(spark: SparkSession, kind: str, count: int) -> None:
    values = np.arange(count) if kind == "bigint" else np.arange(count) / 8
    ours = F.unbase64(F.lit(encoded(quantile_sketch(values, np.ones(count, dtype=np.int64), 200))))
    functions = {what: getattr(F, f"kll_sketch_{what}_{kind}") for what in ("agg", "get_n", "get_quantile", "merge")}
    value = F.col("id") if kind == "bigint" else F.col("id") / 8
    sketches = spark.range(count, 2 * count).agg(functions["agg"](value, F.lit(200)).alias("theirs"))
    merged = functions["merge"](ours, F.col("theirs"))
    row = sketches.select(
        functions["get_n"](ours).alias("n"),
        functions["get_n"](merged).alias("both"),
        functions["get_quantile"](ours, F.lit(0.5)).alias("median"),
        functions["get_quantile"](merged, F.lit(0.5)).alias("middle"),
    ).collect()[0]
    unit = 1 if kind == "bigint" else 1 / 8
    assert (row["n"], row["both"]) == (count, 2 * count)
    assert abs(row["median"] - (count - 1) / 2 * unit) <= (count / 200 + 1) * unit
    assert abs(row["middle"] - count * unit) <= (2 * count * 0.03 + 1) * unit
