"""What stages of a run share: a task run by the workers, what tasks yield, and files derived from stored rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optimizer.errors.diagnostics import count as number_of
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY, format_instant
from spark_jobs.engine.workers import StageOutcome, Task, tasks_for
from spark_jobs.pipeline.run.derivation_task import derivation_task
from spark_jobs.pipeline.run.values import Run
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse.data_files import DataFile, SynopsisFailure
from spark_jobs.store.warehouse.publish_log import coded_error
from spark_jobs.windows.partials.fill_request import FillRequest

if TYPE_CHECKING:
    from deltalake import DeltaTable

TASKS_A_CORE = 2
"""Most tasks a core of what lifts and derives partial rows: with several, those that take longer are evened out."""


def done(run: Run, task: Task, pieces: int, most: int, description: str) -> StageOutcome:
    """What the run's workers make of a task for the numbers 0 .. pieces - 1, on at most ``most`` of them at once.

    Raises a coded error.
    """
    interval = f"{format_instant(run.record.begin)} .. {format_instant(run.record.end)}"
    try:
        return run.workers.run(task, pieces, most, f"{description} {interval}")
    except Exception as error:
        raise coded_error(error) from error


def of_outcomes(outcomes: Sequence[Any]) -> tuple[list[DataFile], dict[str, SynopsisFailure]]:
    """Of what tasks yield the files, and what failed alone by fingerprint."""
    files = [outcome for outcome in outcomes if isinstance(outcome, DataFile)]
    return files, {outcome.fingerprint: outcome for outcome in outcomes if isinstance(outcome, SynopsisFailure)}


def derived_files(run: Run, current: DeltaTable, requests: Sequence[FillRequest]) -> list[DataFile]:
    """Files of what stored rows, as of ``current``, give of some requests."""
    requests = [request for request in requests if request.stored]
    if not requests:
        return []
    first, last = min(map(_first_stored, requests)), max(request.end for request in requests)
    stored = [
        file
        for file in run.warehouse.files("partials", day_label(first), day_label(last - 1), current)
        if file["max.fragment_start"] >= first and file["min.fragment_start"] < last
    ]
    paths = [str(run.warehouse.place / "partials" / file["path"]) for file in stored]
    task = derivation_task(paths, requests, run.warehouse.path("partials"), settings().task_memory)
    rows = sum(file["num_records"] or 0 for file in stored)
    most = TASKS_A_CORE * tasks_for(rows, run.workers.width, len(paths))
    outcome = done(run, task, len(paths), most, f"derive from {number_of(len(paths), 'file')}")
    run.record.features["partial_rows_read"] += outcome.counts["rows"]
    return of_outcomes(outcome.results)[0]


def _first_stored(request: FillRequest) -> int:
    """Where the first stored rows begin that may have something of a request."""
    return request.begin // DAY * DAY if request.synopsis.kind.begins_at_midnight else request.begin
