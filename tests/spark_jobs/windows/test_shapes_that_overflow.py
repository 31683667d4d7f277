"""Skewness and kurtosis of values so large that they do not fit: the audit knows that Spark has null there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark_jobs.laboratory import DAY, MINUTE, Laboratory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HUGE = 1e300

QUERIES = """
-- name: filtered
SELECT symbol, count(*) AS n FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts GROUP BY symbol
HAVING {shape}(price) = 1e16;
-- name: first
SELECT symbol, count(*) AS n FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts GROUP BY symbol
HAVING {shape}(price) = 1e16 ORDER BY n DESC LIMIT 1;
-- name: made
SELECT symbol, coalesce({shape}(price), 0) + 1 AS made
FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts GROUP BY symbol;
"""


@pytest.mark.parametrize("shape", ["skewness", pytest.param("kurtosis", marks=pytest.mark.longer)])
def test_they_are_answered_and_published(shape: str, spark: SparkSession, tmp_path: Path) -> None:
    laboratory = Laboratory(spark, tmp_path)
    laboratory.write(
        [
            *((float(n), "same", HUGE, 1) for n in range(4)),
            *((float(n), "other", HUGE * (n % 2), 1) for n in range(4, 9)),
            *((float(n), "few", float(n), 1) for n in range(9, 14)),
            (14.0, "one", HUGE, 1),
        ]
    )
    version = laboratory.plan(QUERIES.format(shape=shape))
    record = laboratory.run(version, 0, 60, as_of=DAY + 500 * MINUTE)
    assert record.status == "published" and laboratory.wrong(version, 0, 60) == []


def test_what_is_no_number_of_exact_values_is_no_fault(engine: Any, tmp_path: Path) -> None:
    """The logarithm of a negative integer is none."""
    laboratory = Laboratory(engine, tmp_path)
    laboratory.write([(float(n), "S", 1.0, -n) for n in range(9)])
    laboratory.write([], "quotes")
    means = "-- name: means\nSELECT geometric_mean(volume) AS g FROM trades WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts;"
    version = laboratory.plan(means)
    record = laboratory.run(version, 0, 60, as_of=DAY + 500 * MINUTE)
    assert record.status == "published" and laboratory.wrong(version, 0, 60) == []
