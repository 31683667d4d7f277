"""The second stage for windows of rows: counts the rows of each day, numbers them, lifts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.dataset as ds

from optimizer.plan.definition import ExecutionTree, SharingPlan
from optimizer.synopses.synopsis import counts_of, synopses_of
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY
from optimizer.workload.values import Stream
from spark_jobs.engine.workers import EVENTS
from spark_jobs.pipeline.run import stage_tasks
from spark_jobs.pipeline.run.values import PreparedRun, Run
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse.data_files import SynopsisFailure, reading
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.synopsis_work import SynopsisWork, merged
from spark_jobs.windows.row_windows.lifting import requests_within, rows_task
from spark_jobs.windows.row_windows.numbering import BLOCK_ROWS, Counts, Per, first_day


def row_counters(plan: SharingPlan, name: str, splits: list[Split], until: int) -> list[SynopsisWork]:
    """Work that counts the rows of every day of a stream, for its windows of rows
    (:mod:`spark_jobs.windows.row_windows.numbering`).
    """
    pers = dict.fromkeys(tree.per or () for tree in _trees_of_rows(plan, name))
    first = first_day(plan.workload.stream(name), splits) if pers else None
    if first is None or first >= until:
        return []
    end = -(-until // DAY) * DAY
    return [SynopsisWork(counts_of(plan.workload.stream(name), per), (), first, end, until) for per in pers]


def _trees_of_rows(plan: SharingPlan, name: str) -> list[ExecutionTree]:
    return [tree for tree in plan.trees if tree.stream == name and tree.kind.counts_rows]


def write_rows(
    run: Run,
    prepared: PreparedRun,
    name: str,
    counters: Sequence[SynopsisWork],
    uncounted: Mapping[str, SynopsisFailure],
) -> tuple[list[SynopsisWork], list[FillRequest], dict[str, SynopsisFailure]]:
    """Fill what is missing of the synopses of one stream's windows of rows, once its rows are counted.

    Returns what they have to answer, what was filled, and by fingerprint what could not be.
    """
    stream, splits = prepared.plan.workload.stream(name), prepared.sources[name]
    until, end = counters[0].until or counters[0].end, counters[0].end
    counts = {
        part.synopsis.bucket_by: Counts.of(part.synopsis, _stored_rows(run.warehouse, part))
        for part in counters
        if part.synopsis.fingerprint not in uncounted
    }
    broken: dict[str, SynopsisFailure] = {}
    parts: list[SynopsisWork] = []
    for tree in _trees_of_rows(prepared.plan, name):
        per = tree.per or ()
        for synopsis, queries in synopses_of(stream, tree.queries).items():
            if per not in counts:
                failed = uncounted[counts_of(stream, per).fingerprint]
                broken[synopsis.fingerprint] = replace(failed, fingerprint=synopsis.fingerprint)
                parts.append(SynopsisWork(synopsis, queries, end - DAY, end, until))
                continue
            windows = [query.window for query in queries]
            start = counts[per].history_start(windows, prepared.request.begin, until)
            if start < until:
                parts.append(SynopsisWork(synopsis, queries, start, end, until))
    parts = merged(parts)
    fillable = [part for part in parts if part.synopsis.fingerprint not in broken]
    lift = partial(_lifted, run, stream, splits, counts)
    filled, lifted = stage_tasks.write_partials(run, stream, fillable, splits, lift)
    return parts, filled, broken | lifted.broken


def _lifted(
    run: Run, stream: Stream, splits: Sequence[Split], counts: Mapping[Per, Counts], requests: Sequence[FillRequest]
) -> stage_tasks.Lifted:
    """Number the rows of a stream, and lift them."""
    first, last = min(request.begin for request in requests), max(request.end for request in requests)
    memory = settings().task_memory
    row_bytes = 8 * (len(stream.schema) + 2)
    most = min(BLOCK_ROWS, memory.bytes // (8 * row_bytes))
    blocks = next(iter(counts.values())).blocks(first, last, most)
    blocks = [block for block in blocks if requests_within(requests, *block)]
    task = rows_task(stream, splits, blocks, requests, counts, run.warehouse.path("partials"), memory)
    outcome = stage_tasks.done(run, task, len(blocks), run.workers.width, f"rows {stream.name}")
    run.record.features["events"] += outcome.counts[EVENTS]
    return stage_tasks.Lifted(*stage_tasks.of_outcomes(outcome.results))


def _stored_rows(warehouse: Warehouse, part: SynopsisWork) -> pa.Table:
    """The stored partial rows of a part."""
    starts = ds.field("fragment_start")
    counted = (ds.field("fingerprint") == part.synopsis.fingerprint) & ds.field("key").is_valid()
    days = (ds.field("day") >= day_label(part.begin)) & (ds.field("day") <= day_label(part.end - 1))
    with reading(warehouse.path("partials")):
        chosen = counted & days & (starts >= part.begin) & (starts < part.end)
        table = warehouse.dataset("partials", where=chosen)
        rows = table.to_table(filter=chosen)
    return rows.select(PARTIALS.names).cast(PARTIALS)
