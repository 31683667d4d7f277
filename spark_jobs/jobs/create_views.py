"""The job of the DAG ``refresh_sharing_plan`` after a new version of the plan: recreates the view of every query.

spark-submit spark_jobs/jobs/create_views.py --warehouse DIR --catalog-schema CATALOG.SCHEMA
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if __name__ == "__main__":  # spark-submit puts this file's folder first; the project root is its parent
    sys.path[0] = str(next(folder for folder in Path(__file__).resolve().parents if (folder / "heddle").is_dir()))

from optimizer.errors.diagnostics import HeddleError, count
from spark_jobs.engine.session import start_session
from spark_jobs.engine.submitted import run_job
from spark_jobs.results.catalogue import create_views
from spark_jobs.store.warehouse.warehouse import Warehouse


def check_stays(spark: SparkSession, place: str) -> None:
    """Raises HDL-624 for a place in a catalogue that ends with the session."""
    catalog, _, schema = place.partition(".")
    if (catalog == "spark_catalog" or not schema) and spark.conf.get("spark.sql.catalogImplementation") == "in-memory":
        message = f"Spark's catalogue is kept in memory: views in {place} would be gone with this job"
        raise HeddleError("HDL-624", message, "set spark.sql.catalogImplementation=hive in Spark's spark-defaults.conf")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the views; the exit code."""
    parser = argparse.ArgumentParser(description="make every query a view of Spark's catalogue")
    parser.add_argument("--warehouse", required=True)
    parser.add_argument("--catalog-schema", required=True, help="a schema that is there, perhaps with its catalogue")
    parser.add_argument("--plan-version", type=int, help="not used: views are of all versions")
    options = parser.parse_args(arguments)
    from pyspark.errors import PySparkException

    warehouse = Warehouse.open(options.warehouse, create=False)
    spark = start_session("heddle views")
    try:
        check_stays(spark, options.catalog_schema)
        names = create_views(spark, warehouse, options.catalog_schema)
    except PySparkException as error:
        first = str(error).strip().partition("\n")[0]
        message = f"the views cannot be made in {options.catalog_schema}: {first}"
        raise HeddleError("HDL-624", message, "make the schema, or permit it; then run this again") from error
    finally:
        spark.stop()
    print(f"{count(len(names), 'view')} in {options.catalog_schema}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run_job(main))
