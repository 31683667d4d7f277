"""The third stage of a run: answers every query from partial rows, into staged files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY
from spark_jobs.finals.stage import SynopsisWork
from spark_jobs.finals.top import TopRows, write_top
from spark_jobs.finals.window_query import COUNTED
from spark_jobs.partials import stored_coverage
from spark_jobs.partials.stored_coverage import coverage
from spark_jobs.run import partials_stage
from spark_jobs.run.values import AnsweredRun, FilledRun, Run
from spark_jobs.run.window_kinds import KINDS
from spark_jobs.sequences.answers import Rolled
from spark_jobs.sequences.stage import write_joined
from spark_jobs.warehouse.data_files import BUCKETS, DataFile
from spark_jobs.warehouse.publish_log import refuse
from spark_jobs.warehouse.warehouse import Warehouse

ROWS_A_TASK = 2_000_000
"""Partial rows that one task of the final stage should hold at most (all buckets of it together)."""


def answer(run: Run, filled: FilledRun) -> AnsweredRun:
    """Compute every answer into files of the results table that no commit names yet."""
    staged = write_finals(run, filled)
    run.record.answers = sum(file.rows for file in staged)
    run.record.features |= {"queries": sum(len(part.queries) for part in filled.work), "answers": run.record.answers}
    return AnsweredRun(filled, tuple(staged))


def write_finals(run: Run, filled: FilledRun) -> list[DataFile]:
    """The files of all answers. Raises HDL-541 if a partial aggregate that is needed was replaced meanwhile."""
    spark, warehouse, record = run.spark, run.warehouse, run.record
    if not filled.work:
        return []
    current = warehouse.table("partials")
    _check_complete(run, filled, current)
    paths, rows = _needed(warehouse, filled.work, current)
    stamp = {
        "plan_version": pa.scalar(record.plan_version, pa.int64()),
        "revision": pa.scalar(record.revision, pa.int64()),
        "run_id": pa.scalar(record.run_id, pa.string()),
    }
    counted = {name: spark.sparkContext.accumulator(0) for name in COUNTED}
    count = partial(_counted, counted)
    width = max(spark.sparkContext.defaultParallelism, rows // ROWS_A_TASK)
    staged: list[DataFile] = []
    results = warehouse.path("results")
    for kind, answers in KINDS.items():
        work = [part for part in filled.work if part.synopsis.kind is kind]
        if work:
            task = answers.answering()(work, record.begin, paths, results, stamp, count)
            outcomes = partials_stage.task_outcomes(spark, BUCKETS, width, task)
            staged += [outcome for outcome in outcomes if isinstance(outcome, DataFile)]
            scattered = [outcome for outcome in outcomes if isinstance(outcome, Rolled)]
            first = [outcome for outcome in outcomes if isinstance(outcome, TopRows)]
            queries = [(part.synopsis.stream, query) for part in work for query in part.queries]
            staged += write_top(queries, first, results, stamp)
            staged += write_joined(work, scattered, results, stamp) if scattered else ()
    record.features |= {name: total.value for name, total in counted.items()}
    return staged


def _check_complete(run: Run, filled: FilledRun, current: DeltaTable) -> None:
    fingerprints = [part.synopsis.fingerprint for part in filled.work]
    pieces = coverage(run.warehouse, fingerprints, current, stored_coverage.span_of(filled.work))
    for part in filled.work:
        stored, splits = pieces.get(part.synopsis.fingerprint, []), filled.sources[part.synopsis.stream]
        if stored_coverage.missing_span(part, stored, splits) is not None:
            message = "another run or maintenance has replaced partial aggregates that this run goes on with"
            refuse(run.warehouse, run.record, "HDL-541", message, "run it again")


def _needed(warehouse: Warehouse, work: Sequence[SynopsisWork], current: DeltaTable) -> tuple[list[str], int]:
    """The files of partial rows that the work needs, and how many rows they have."""
    first = min(part.begin // DAY * DAY if KINDS[part.synopsis.kind].by_days else part.begin for part in work)
    last = max(part.end for part in work)
    files = [
        file
        for file in warehouse.files("partials", day_label(first), day_label(last - 1), current)
        if file["max.fragment_start"] >= first and file["min.fragment_start"] < last
    ]
    paths = [str(warehouse.place / "partials" / file["path"]) for file in files]
    return paths, sum(file["num_records"] or 0 for file in files)


def _counted(totals: Mapping[str, Any], feature: str, amount: int) -> None:
    totals[feature].add(amount)
