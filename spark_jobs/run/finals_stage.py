"""The second stage of a run: answers every query from partial rows, into staged files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY
from spark_jobs.finals.stage import SynopsisWork, finals_task
from spark_jobs.finals.window_query import COUNTED
from spark_jobs.partials import stored_coverage
from spark_jobs.partials.stored_coverage import coverage
from spark_jobs.row_windows.answers import row_finals_task
from spark_jobs.run import partials_stage
from spark_jobs.sequences.answers import Rolled
from spark_jobs.sequences.stage import sequence_task, write_joined
from spark_jobs.sources.splits import Split
from spark_jobs.warehouse.data_files import BUCKETS, DataFile
from spark_jobs.warehouse.publish_log import RunRecord, refuse
from spark_jobs.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ROWS_A_TASK = 2_000_000
"""Partial rows that one task of the final stage should hold at most (all buckets of it together)."""


def write_finals(
    spark: SparkSession,
    warehouse: Warehouse,
    parts: Sequence[SynopsisWork],
    sources: Mapping[str, list[Split]],
    begin: int,
    record: RunRecord,
) -> list[DataFile]:
    """Compute every answer into files of the results table that no commit names yet."""
    if not parts:
        return []
    current = warehouse.table("partials")
    pieces = coverage(warehouse, [part.synopsis.fingerprint for part in parts], current)
    for part in parts:
        if (
            stored_coverage.missing_span(part, pieces.get(part.synopsis.fingerprint, []), sources[part.synopsis.stream])
            is not None
        ):
            message = "another run or maintenance has replaced partial aggregates that this run goes on with"
            refuse(warehouse, record, "HDL-541", message, "run it again")
    # event sequences are stored by days
    first = min(part.begin if part.synopsis.sequenced is None else part.begin // DAY * DAY for part in parts)
    last = max(part.end for part in parts)
    root = warehouse.root / "partials"
    needed = [
        file
        for file in warehouse.files("partials", day_label(first), day_label(last - 1), current)
        if file["max.fragment_start"] >= first and file["min.fragment_start"] < last
    ]
    stamp = {
        "plan_version": pa.scalar(record.plan_version, pa.int64()),
        "revision": pa.scalar(record.revision, pa.int64()),
        "run_id": pa.scalar(record.run_id, pa.string()),
    }
    paths = [str(root / file["path"]) for file in needed]
    counted = {name: spark.sparkContext.accumulator(0) for name in COUNTED}
    count = partial(_counted, counted)
    rows = sum(file["num_records"] or 0 for file in needed)
    width = max(spark.sparkContext.defaultParallelism, rows // ROWS_A_TASK)
    staged: list[DataFile] = []
    kinds: dict[Any, list[SynopsisWork]] = {finals_task: [], row_finals_task: [], sequence_task: []}
    for part in parts:
        rows_or_time = finals_task if part.synopsis.per is None else row_finals_task
        kinds[rows_or_time if part.synopsis.sequenced is None else sequence_task].append(part)
    results = warehouse.path("results")
    for answer, mine in kinds.items():
        if mine:
            outcomes = partials_stage.task_outcomes(
                spark, BUCKETS, width, answer(mine, begin, paths, results, stamp, count)
            )
            staged += [outcome for outcome in outcomes if isinstance(outcome, DataFile)]
            scattered = [outcome for outcome in outcomes if isinstance(outcome, Rolled)]
            staged += write_joined(mine, scattered, results, stamp) if scattered else ()
    record.features |= {name: total.value for name, total in counted.items()}
    return staged


def _counted(totals: Mapping[str, Any], feature: str, amount: int) -> None:
    totals[feature].add(amount)
