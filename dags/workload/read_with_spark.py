"""A consumer of Heddle's answers that has Spark and Delta, but not Heddle: it reads the table of a query.

    spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 dags/workload/read_with_spark.py var/warehouse/tables

Spark needs Delta's extension and catalogue, as its documentation describes; ``make demo`` provides both.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

ANSWERS = """
SELECT window_end, origin, departures, round(mean_distance, 1) AS mean_distance
FROM delta.`{table}`
WHERE error IS NULL
ORDER BY window_end DESC, origin
LIMIT 6
"""

CHANGES = """
SELECT _commit_version AS version, _change_type AS change, count(*) AS rows, max(window_end) AS newest
FROM changes
GROUP BY version, change
ORDER BY version DESC, change
LIMIT 6
"""


def show(tables: str) -> None:
    """Show the newest answers of ``watch_day``, and what each publication changed."""
    spark = SparkSession.builder.appName("a consumer of answers").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    table = f"{tables}/watch_day"
    spark.sql(ANSWERS.format(table=table)).show(truncate=False)
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(table)
    feed.createOrReplaceTempView("changes")
    spark.sql(CHANGES).show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    show(sys.argv[1] if len(sys.argv) > 1 else str(Path("var/warehouse/tables")))
