"""The one Spark session of a job, and the CPU time that it uses.

Delta's JVM jar comes with Spark's own package mechanism, once, at set-up (``python -m spark_jobs.session
--fetch-jars``); jobs afterwards take it from the project cache and need no network.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"

HOME = Path(__file__).resolve().parent.parent


def jars_folder() -> Path:
    """Where the jars are: ``HEDDLE_JARS``, or the project's cache."""
    return Path(os.environ.get("HEDDLE_JARS") or HOME / ".cache" / "ivy" / "jars")


def spark_settings() -> dict[str, str]:
    """Settings of every Heddle session, also for ``spark-submit --conf``. Raises HDL-520 without Delta's jar."""
    from optimizer.errors import HeddleError

    jars = sorted(str(path) for path in jars_folder().glob("*.jar"))
    # of the resolved set only Delta itself is not already in Spark's own distribution
    needed = [jar for jar in jars if any(name in jar for name in ("io.delta_", "unitycatalog", "jts"))]
    if not any("delta-spark" in jar for jar in needed):
        raise HeddleError("HDL-520", f"Delta's jar is not in {jars_folder()}", "run `make setup`, or set HEDDLE_JARS")
    return {
        "spark.jars": ",".join(needed),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.commitInfo.userMetadata": "heddle",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.level=error",
        "spark.driver.memory": os.environ.get("HEDDLE_DRIVER_MEMORY", "2g"),
    }


def start_session(name: str, master: str | None = None) -> SparkSession:
    """The session of this process. ``master``: ``HEDDLE_SPARK_MASTER``, or ``local[*]``, unless spark-submit says."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # workers import optimizer and spark_jobs from here (on one machine, or from a shared folder)
    paths = [str(HOME), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    builder = SparkSession.builder.appName(name)
    chosen = master or os.environ.get("HEDDLE_SPARK_MASTER")
    if chosen or "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(chosen or "local[*]")
    for key, value in spark_settings().items():
        builder = builder.config(key, value)
    if (chosen or "local[*]").startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def cpu_seconds() -> float:
    """CPU seconds used so far by this process, the JVM and the Python workers, ended ones included."""
    total = 0.0
    here = psutil.Process()
    parent = here.parent()
    # under spark-submit the JVM is the parent of this process, in local mode its child
    top = parent if parent is not None and "java" in parent.name() else here
    for process in [top, *top.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def fetch_jars() -> Path:
    """Resolve Delta's jar through Spark into the project cache; returns the folder. Does nothing if it is there."""
    folder = jars_folder()
    if not any(folder.glob("*delta-spark*.jar")):
        from pyspark.sql import SparkSession

        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        session = (
            SparkSession.builder.master("local[1]")
            .config("spark.ui.enabled", "false")
            .config("spark.jars.packages", DELTA)
            .config("spark.jars.ivy", str(folder.parent))
            .getOrCreate()
        )
        session.stop()
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Spark session of Heddle")
    parser.add_argument("--fetch-jars", action="store_true", required=True, help="get Delta's JVM jar into the cache")
    parser.parse_args()
    print(fetch_jars())
