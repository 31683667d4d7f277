"""Part of the second stage of a run: combine the fragments of complete periods into levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optimizer.windows.periods import PERIODS
from optimizer.workload.values import Stream
from spark_jobs.pipeline.run import stage_tasks
from spark_jobs.pipeline.run.values import PreparedRun, Run
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.partials import levels, stored_coverage
from spark_jobs.windows.partials.synopsis_work import LevelSpan, SynopsisWork


class _Replaced(Exception):
    """Files that rows of levels were made from have been replaced."""


def with_levels(run: Run, prepared: PreparedRun) -> PreparedRun:
    """The prepared run with the spans that it reads from levels; without them if everything is computed again."""
    current, parts, begin = run.warehouse.table("partials"), prepared.work, prepared.request.begin
    if not any(map(levels.is_leveled, parts)):
        return prepared
    if run.request.recompute:
        return replace(prepared, is_closing=True)
    stored = levels.StoredLevels(run.marks, prepared.sources, current)
    parts = tuple(stored.of(parts, begin))
    return replace(prepared, work=parts, is_closing=bool(stored.to_close(parts, begin, is_filled=False)))


def close_periods(run: Run, stream: Stream, parts: Sequence[SynopsisWork], splits: list[Split]) -> None:
    """Store the levels of the periods that are complete: days first, then months from days, then years from months.

    If other rows come in between, the periods are left for another run.
    """
    for _ in PERIODS:
        current = run.warehouse.table("partials")
        stored = levels.StoredLevels(run.marks, {stream.name: splits}, current)
        requests = stored.to_close(stored.of(parts, run.record.begin), run.record.begin)
        if not requests:
            return
        spans, of_levels = list[tuple[int, int]](), list[LevelSpan]()
        for request in requests:
            (finer,) = request.stored
            if finer.period is None:
                spans.append((request.begin, request.end))
            else:
                of_levels.append(LevelSpan(finer.fingerprint, request.begin, request.end))
        partitions, chosen = levels.needed_files(spans, of_levels)
        needed = run.warehouse.files("partials", *partitions, current, chosen)
        paths = {file["path"] for file in needed}

        def still(partitions: tuple[str, str] = partitions, paths: set[str] = paths) -> None:
            if paths - {file["path"] for file in run.warehouse.files("partials", *partitions)}:
                raise _Replaced

        files = stage_tasks.derived_from(run, needed, requests)
        try:
            stored_coverage.store_coverage(run.warehouse, stream, splits, requests, files, {}, run.record, still)
        except _Replaced:
            return
