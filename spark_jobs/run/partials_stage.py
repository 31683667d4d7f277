"""The first stage of a run: fills what is missing of the synopses, and stores what is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from optimizer.workload.values import Stream
from spark_jobs.finals.stage import SynopsisWork
from spark_jobs.partials import stored_coverage
from spark_jobs.partials.fill_request import FillRequest, columns_of_synopsis
from spark_jobs.run.partials_task import lift_task
from spark_jobs.sources.splits import Split
from spark_jobs.warehouse.data_files import DataFile, SynopsisFailure, Task
from spark_jobs.warehouse.publish_log import RunRecord, coded_error
from spark_jobs.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


used_contexts: WeakSet[SparkContext] = WeakSet()
"""Where a job of ours has run: the first one pays for starting the workers and loading classes."""


def write_partials(
    spark: SparkSession,
    warehouse: Warehouse,
    stream: Stream,
    parts: Sequence[SynopsisWork],
    splits: list[Split],
    record: RunRecord,
    fresh: dict[str, int],
) -> tuple[list[FillRequest], dict[str, SynopsisFailure]]:
    """Fill what is missing of one stream's synopses, in one pass over its source and one commit.

    Returns what was missing and filled, and by fingerprint what could not be: nothing is stored of those. ``fresh`` is
    told how many events the record's interval has, if all of it was read.
    """
    spans = stored_coverage.uncovered(warehouse, parts, splits, record)
    if not spans:
        return [], {}
    rows = spark.sparkContext.accumulator(0)
    untimed = spark.sparkContext.accumulator(0)
    newer = spark.sparkContext.accumulator(0)
    first, last = min(span.begin for span in spans), max(span.end for span in spans)
    wanted = [split for split in splits if split.may_hold(first, last)]
    columns = sorted({column for span in spans for column in columns_of_synopsis(span.synopsis)})
    interval = record.begin, record.end, newer
    task = lift_task(stream, wanted, spans, columns, warehouse.path("partials"), rows, untimed, newer=interval)
    files, broken = written_files(spark, len(wanted), 4 * spark.sparkContext.defaultParallelism, task)
    # of what was stored before nothing is read
    if newer.value or (first <= record.begin and last >= record.end):
        fresh[stream.name] = newer.value
    spans = stored_coverage.store_coverage(warehouse, stream, splits, spans, files, broken, record)
    record.scanned[stream.name] = (first, last, rows.value)
    record.rows_scanned += rows.value
    for feature, amount in (
        ("events", rows.value),
        ("tree_tuples", rows.value * len({span.synopsis.edges for span in spans})),
        ("family_tuples", rows.value * len(spans)),
    ):
        record.features[feature] += amount
    record.rows_without_time += untimed.value
    return spans, broken


def written_files(
    spark: SparkSession, pieces: int, most: int, task: Task
) -> tuple[list[DataFile], dict[str, SynopsisFailure]]:
    """Run a task that writes files for the numbers 0 .. pieces - 1 on at most ``most`` workers at once.

    Returns the files, and what failed alone by fingerprint.
    """
    outcomes = task_outcomes(spark, pieces, most, task)
    files = [outcome for outcome in outcomes if isinstance(outcome, DataFile)]
    return files, {outcome.fingerprint: outcome for outcome in outcomes if isinstance(outcome, SynopsisFailure)}


def task_outcomes(
    spark: SparkSession, pieces: int, most: int, task: Callable[[Iterable[int]], Iterator[Any]]
) -> list[Any]:
    if pieces == 0:
        return []
    used_contexts.add(spark.sparkContext)
    # not through SQL: planning, compiling and fetching a query costs more than this whole job
    job = spark.sparkContext.parallelize(range(pieces), min(pieces, most)).mapPartitions(task)
    try:
        found: list[Any] = job.collect()
    except Exception as error:
        raise coded_error(error) from error
    return found
