"""Measure the cost of the unshared queries, one Spark job each: the baseline of ``heddle compare``."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from optimizer.plan.definition import SharingPlan
from optimizer.windows.alignment import history_start
from optimizer.workload.attributes import columns_read
from optimizer.workload.streams import TIME_UNITS
from optimizer.workload.values import ACQ, LONG, STRING, Stream
from spark_jobs.audit.unshared.columns import ddl_of, from_spark, quoted_column, spark_name, with_leaves
from spark_jobs.audit.unshared.spark_joins import joined_frame
from spark_jobs.audit.unshared.windows import unshared
from spark_jobs.engine.session import CpuSeconds
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources.files import splits_of
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.formats.source_format import unreadable_by_spark
from spark_jobs.streams.sources.partition_columns import in_files

JAVA = {"Y": "yyyy", "m": "M", "b": "MMM", "d": "d", "H": "H", "I": "h", "p": "a", "M": "m", "S": "s", "z": "[XXX][XX]"}
"""Spark's names of the directives of a ``timestamp_format``; digits of one-letter ones may be two."""


def native_frame(spark: SparkSession, stream: Stream) -> DataFrame:
    """A stream as a plain Spark job reads it: Spark's own reader, the time column as a timestamp.

    Raises HDL-425 for a declaration that this reader does not support.
    """
    source = stream.source
    if not Place.of(source.path).is_local and not _reads_stores(spark, source.path):
        raise unreadable_by_spark(stream, "that its source is in a store, without Hadoop's connector")
    # every file lies where streams may be read from
    if source.folders:
        raise unreadable_by_spark(stream, f"columns in folders that are named {source.folders}")
    splits = splits_of(stream)
    reading = format_of(stream).spark_reading(in_files(stream), splits)
    if source.partitions or source.files:
        # Spark's own pattern of names would be a glob of Hadoop's: the files are named one by one
        paths = reading.paths or list(dict.fromkeys(split.path for split in splits))
        base = {"basePath": _literally(source.path)} if source.partitions else {}
        reading = reading._replace(paths=paths, options={**reading.options, **base})
        spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    if reading.nanoseconds:
        spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    reader = spark.read.format(reading.format).options(**reading.options)
    if source.timestamp_format is not None:
        reader = reader.option("timestampFormat", _java_format(stream, source.timestamp_format))
    if reading.columns is not None:
        reader = reader.schema(_columns(stream, reading.columns))
    paths = [_literally(path) for path in reading.paths]
    frame = _with_folders(reader.load(paths or _literally(source.path)), stream)
    return _with_instants(frame, stream, reading.nanoseconds)


def _with_folders(frame: DataFrame, stream: Stream) -> DataFrame:
    """A frame whose columns of folders, which Spark reads as texts, have their declared types."""
    for partition in stream.source.partitions:
        declared = dict(stream.schema).get(partition.name)
        if declared is not None:
            column = "`" + partition.name.replace("`", "``") + "`"
            frame = frame.withColumn(partition.name, F.col(column).cast(ddl_of(declared)))
    return frame


def _columns(stream: Stream, names: Sequence[str]) -> str:
    """The columns of files that declare none, as Spark's DDL."""
    types = dict(stream.schema)
    if stream.source.time_unit is not None:
        types[stream.time] = LONG
    return ", ".join(
        "`" + (name if name in types else f"column {place}").replace("`", "``") + f"` {ddl_of(types.get(name, STRING))}"
        for place, name in enumerate(names)
    )


def _literally(path: str) -> str:
    """A path, or URL as Hadoop knows it, in which Spark sees no pattern of names."""
    return re.sub(r"[\[\]{}*?\\]", r"\\\g<0>", re.sub("^s3://", "s3a://", path))


def _reads_stores(spark: SparkSession, url: str) -> bool:
    """Return whether Spark has Hadoop's connector for S3."""
    java: Any = spark
    try:
        loader = java._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.loadClass("org.apache.hadoop.fs.s3a.S3AFileSystem")
    except Exception:
        return False
    return url.startswith("s3://")


def _with_instants(frame: DataFrame, stream: Stream, nanoseconds: frozenset[str]) -> DataFrame:
    """A frame whose times are timestamps, where they are integers or texts in the files."""
    columns = []
    frame = frame.toDF(*map(spark_name, frame.columns))
    for field in frame.schema.fields:
        column, unit = quoted_column(from_spark(field.name)), "ns" if field.name in nanoseconds else None
        if field.name == stream.time and isinstance(field.dataType, T.IntegralType):
            unit = stream.source.time_unit or unit
        if unit is not None:
            above, below = TIME_UNITS[unit]
            number = column.cast("bigint") * above
            micros = (number - F.pmod(number, F.lit(below))).cast("decimal(20,0)") / F.lit(Decimal(below))
            column = F.timestamp_micros(micros.cast("bigint")).alias(field.name)
        elif field.name == stream.time and isinstance(field.dataType, T.StringType):
            column = column.cast("timestamp").alias(field.name)
        columns.append(column)
    return frame.select(*columns)


def _java_format(stream: Stream, pattern: str) -> str:
    """A ``timestamp_format`` as Spark writes it."""
    parts = re.split(r"%(.)", pattern)
    crowded = any(not text for text in parts[2:-1:2])
    java_format = ""
    for place, part in enumerate(parts):
        if place % 2 == 0 or part == "%":
            text = part.replace("'", "''")
            java_format += f"'{text}'" if text else ""
        elif part == "f":
            java_format += "".join(f"[{'S' * digits}]" for digits in range(6, 0, -1))
        elif part not in JAVA:
            raise unreadable_by_spark(stream, f"%{part} in its timestamp_format")
        else:
            java_format += JAVA[part] * (2 if crowded and part in "mdHIMS" else 1)
    return java_format


def sample_of(queries: Sequence[ACQ], sample: int) -> list[ACQ]:
    """``sample`` of the queries, each once, spread evenly over them; all of them if there are no more."""
    count = min(sample, len(queries))
    return [queries[index * len(queries) // count] for index in range(count)]


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
    chosen = sample_of(queries, sample)
    measurements = []
    for number, query in enumerate([chosen[0], *chosen]):
        report(f"running {query.name} unshared ({max(number, 1)} of {len(chosen)})")
        stream = plan.workload.stream(query.stream)
        time_column = quoted_column(stream.time)
        frame = with_leaves(native_frame(spark, stream), stream, columns_read(stream, query.columns()))
        frame = frame.where(time_column < F.timestamp_micros(F.lit(end)))
        if query.kind.reads_every_column:
            frame = frame.select(*(quoted_column(name) for name, _ in stream.schema))
        if not query.kind.reads_from_first:
            first = history_start([query.window], begin, end)
            frame = frame.where(time_column >= F.timestamp_micros(F.lit(first)))
        rows = frame.count() if number else 0
        frame = joined_frame(frame, stream, query.columns(), partial(native_frame, spark))
        cpu, wall = CpuSeconds(), time.perf_counter()
        ends, ago = F.col("window_end"), query.window.ago
        answers = unshared(frame, query, stream.time).where(
            (ends > F.timestamp_micros(F.lit(begin - ago))) & (ends <= F.timestamp_micros(F.lit(end - ago)))
        )
        answers.write.format("noop").mode("overwrite").save()
        if number:
            measurements.append(
                {
                    "query": query.name,
                    "rows_scanned": rows,
                    "cpu_seconds": round(cpu.spent(), 3),
                    "wall_seconds": round(time.perf_counter() - wall, 3),
                }
            )
    return measurements
