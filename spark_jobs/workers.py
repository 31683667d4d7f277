"""The process that Spark forks its Python workers from: what their tasks import is imported once, here, not in each."""

from pyspark.daemon import manager

import spark_jobs.final_aggregates
import spark_jobs.partial_aggregates
import spark_jobs.quality  # noqa: F401

if __name__ == "__main__":
    manager()
