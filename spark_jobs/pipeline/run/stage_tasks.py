"""Shared parts of the stages of a run: run a task on the workers, sort its outcomes, and derive files from stored
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from optimizer.errors.diagnostics import count as number_of
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY, format_instant
from optimizer.workload.values import Stream
from spark_jobs.engine.workers import StageOutcome, Task, tasks_for
from spark_jobs.pipeline.run.derivation_task import derivation_task
from spark_jobs.pipeline.run.values import Run
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse.data_files import DataFile, SynopsisFailure
from spark_jobs.store.warehouse.publish_log import coded_error
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.partials import stored_coverage
from spark_jobs.windows.partials.fill_request import GROUP_LIMIT, FillRequest
from spark_jobs.windows.partials.synopsis_work import SynopsisWork

if TYPE_CHECKING:
    from deltalake import DeltaTable

TASKS_A_CORE = 2
"""Most tasks a core of what lifts and derives partial rows: with several, those that take longer are evened out."""


def done(run: Run, task: Task, pieces: int, most: int, description: str) -> StageOutcome:
    """Run a task on the run's workers for the numbers 0 .. pieces - 1, on at most ``most`` of them at once.

    Raises a coded error.
    """
    interval = f"{format_instant(run.record.begin)} .. {format_instant(run.record.end)}"
    try:
        return run.workers.run(task, pieces, most, f"{description} {interval}")
    except Exception as error:
        raise coded_error(error) from error


def of_outcomes(outcomes: Sequence[Any]) -> tuple[list[DataFile], dict[str, SynopsisFailure]]:
    """Separate the outcomes of tasks into files and failures of single synopses by fingerprint."""
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
        if file["max.fragment_start"] >= first and file["min.fragment_start"] < last and file["max.bucket"] >= 0
    ]
    return derived_from(run, stored, requests)


def derived_from(run: Run, stored: Sequence[Mapping[str, Any]], requests: Sequence[FillRequest]) -> list[DataFile]:
    """Files of what the rows of some ``stored`` files give of some requests."""
    paths = [str(run.warehouse.place / "partials" / file["path"]) for file in stored]
    task = derivation_task(paths, requests, run.warehouse.path("partials"), settings().task_memory)
    rows = sum(file["num_records"] or 0 for file in stored)
    most = TASKS_A_CORE * tasks_for(rows, run.workers.width, len(paths))
    outcome = done(run, task, len(paths), most, f"derive from {number_of(len(paths), 'file')}")
    run.record.features["partial_rows_read"] += outcome.counts["rows"]
    return of_outcomes(outcome.results)[0]


def _first_stored(request: FillRequest) -> int:
    """Begin of the first stored rows that may have something of a request."""
    return request.begin // DAY * DAY if request.synopsis.kind.begins_at_midnight else request.begin


class Lifted(NamedTuple):
    """``files`` of what was lifted from events, what is ``broken``, by fingerprint, and how many ``events`` the run's
    interval has, if all were read."""

    files: list[DataFile]
    broken: dict[str, SynopsisFailure]
    events: int | None = None


def write_partials(
    run: Run,
    stream: Stream,
    parts: Sequence[SynopsisWork],
    splits: list[Split],
    lift: Callable[[Sequence[FillRequest]], Lifted],
) -> tuple[list[FillRequest], Lifted]:
    """Fill what is missing of some synopses of one stream, in one commit: from stored rows, and from those of its
    source that ``lift`` reads.

    Returns what was missing and filled, and what was lifted; nothing is stored of what is broken.
    """
    record, current = run.record, run.warehouse.table("partials")
    missing = stored_coverage.uncovered(run.marks, parts, splits, current, not run.request.recompute)
    requests = with_group_limits(missing, parts)
    record.synopses += len(parts)
    record.synopses_reused += len(parts) - len({request.synopsis.fingerprint for request in requests})
    if not requests:
        return [], Lifted([], {})
    files = derived_files(run, current, requests)
    unstored = [lifted_request for request in requests for lifted_request in request.lifted]
    lifted = lift(unstored) if unstored else Lifted([], {})
    files += lifted.files
    filled = stored_coverage.store_coverage(
        run.warehouse, stream, splits, requests, files, lifted.broken, record, trust=not run.request.recompute
    )
    return filled, lifted


def with_group_limits(requests: Sequence[FillRequest], parts: Sequence[SynopsisWork]) -> list[FillRequest]:
    """The requests, and how many groups those may have that no query reads: they number rows, and the driver holds
    them."""
    counters = {part.synopsis.fingerprint for part in parts if not part.queries}
    return [
        replace(request, most_groups=GROUP_LIMIT) if request.synopsis.fingerprint in counters else request
        for request in requests
    ]
