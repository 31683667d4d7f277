"""The process that Spark forks its Python workers from: what their tasks import is imported once, here, not in each."""

import gc

from pyspark.daemon import manager

import spark_jobs.checks.inspection
import spark_jobs.finals.stage
import spark_jobs.partials.lifting
import spark_jobs.run.partials_task  # noqa: F401

if __name__ == "__main__":
    # a worker collects garbage after each task: among what it made itself, not among all that was imported
    gc.freeze()
    manager()
