"""The second stage of a run: fills what is missing of the synopses, and stores what is complete."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from optimizer.errors.codes import is_fatal
from optimizer.errors.diagnostics import Diagnostic
from optimizer.plan.definition import SharingPlan
from optimizer.workload.attributes import attributes_in
from optimizer.workload.values import Stream
from spark_jobs.engine.workers import Count, Task, tasks_for
from spark_jobs.pipeline.run import dimensions, narrowing, preparation, rows_stage, stage_tasks
from spark_jobs.pipeline.run.levels_stage import close_periods
from spark_jobs.pipeline.run.partials_task import (
    NEWER,
    UNTIMED,
    PartedSplits,
    SlabsOfSplit,
    events_of_slab,
    lift_task,
)
from spark_jobs.pipeline.run.silences import silence
from spark_jobs.pipeline.run.values import Allocated, FilledRun, Instants, PreparedRun, Run
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse.data_files import SynopsisFailure, WithoutTime, bucket_rows
from spark_jobs.store.warehouse.publish_log import LogRow, coded_error, refuse
from spark_jobs.streams.sources.event_counts import EventCounts
from spark_jobs.streams.sources.ledger import Ledger
from spark_jobs.streams.sources.splits import Split
from spark_jobs.streams.sources.unmatched import Unmatched, stored, warnings_of_unmatched
from spark_jobs.streams.sources.untimed import note_without_time
from spark_jobs.windows.partials import dropped_fine, levels, stored_coverage
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.slabs import slabs_of, span_of_slab
from spark_jobs.windows.partials.synopsis_work import SynopsisWork

EVENTS_A_TASK = 4_000_000
"""Number of events that justify a task of the first stage, beyond one per core: each task writes cells of its own."""

FIRST_SHARE = 0.75
"""Share of all events that the first tasks of the cores read, if a core has several. The later tasks balance
the load.
"""


@dataclass(frozen=True)
class FilledStream:
    """One stream whose partial aggregates are all stored: the ``work`` that needs them, the requests that were
    ``filled``, and the names of the queries that cannot be answered.
    """

    work: list[SynopsisWork]
    filled: list[FillRequest]
    unanswered: list[str]


def events_to_read(run: Run, prepared: PreparedRun, name: str) -> float:
    """About how many events of a stream a run reads: those of what is not stored."""
    splits = prepared.sources[name]
    parts = [part for part in prepared.work if part.synopsis.stream == name]
    parts += rows_stage.row_counters(prepared.plan, name, splits, prepared.ends[name])
    current = run.warehouse.table("partials")
    missing = stored_coverage.uncovered(run.marks, parts, splits, current, not run.request.recompute)
    lifted = [request for gap in missing for request in gap.lifted]
    slabs_of_split = SlabsOfSplit(prepared.plan.workload.stream(name), slabs_of(lifted) if lifted else [])
    return sum(split.rows_about() for split in splits if slabs_of_split(split))


def fill(run: Run, allocated: Allocated) -> FilledRun:
    """Store what is missing of the partial aggregates of every stream; a stream that cannot be read fails alone.

    Raises HDL-505 if no stream can be read, HDL-517 if no query can be answered.
    """
    prepared, record = allocated.prepared, run.record
    streams = {name: stream for name in prepared.sources if (stream := _filled_stream(run, prepared, name)) is not None}
    if not streams:
        refuse(run.warehouse, record, "HDL-505", "none of the plan's streams could be read")
    work = [part for stream in streams.values() for part in stream.work]
    unanswered = [name for stream in streams.values() for name in stream.unanswered]
    if unanswered and not work:
        refuse(run.warehouse, record, "HDL-517", "none of the plan's queries could be answered")
    sources = {name: prepared.sources[name] for name in streams}
    ends = {name: prepared.ends[name] for name in streams}
    plan = narrowed = preparation.plan_without(prepared.plan, unanswered)
    begin, instants = prepared.request.begin, None
    if allocated.newest is not None:
        since = allocated.base or allocated.newest
        changed = narrowing.changed_windows(run.warehouse, prepared, work, sources, ends, since)
        record.radius = asdict(changed.radius)
        names = [query.name for query in prepared.plan.workload.queries if query.stream in sources]
        # the answers that expectations have blocked are judged again, all of them
        blocked = {} if allocated.base is None else dict.fromkeys(allocated.base.record.blocked, None)
        again: Instants = {**changed.instants, **{name: None for name in names if name in blocked}}
        if prepared.request.release is not None:
            # nothing else has changed
            again = {prepared.request.release.query: None}
        record.narrow = allocated.base is not None and any(again.get(name, ()) is not None for name in names)
        dimensions.note_earlier_versions(run.warehouse, record, prepared, since, record.narrow)
        if record.narrow:
            instants = again
            narrowed = narrowing.narrowed_plan(plan, instants)
    record.known = _known(prepared, plan, allocated.base if instants is not None else None, instants)
    content = preparation.content_hash(
        prepared.plan, work, sources, ends, begin, prepared.request.end, prepared.listing.arrivals
    )
    if instants is not None:
        work = narrowing.narrowed_work(work, narrowed, begin)
    filled = tuple(request for stream in streams.values() for request in stream.filled)
    return FilledRun(allocated, plan, narrowed, instants, sources, ends, tuple(work), filled, content)


def _known(prepared: PreparedRun, plan: SharingPlan, base: LogRow | None, instants: Instants | None) -> dict[str, int]:
    """The newest ledger entry that the answers of each query since the first event know: of this run, or of ``base``,
    whose answers stay if none of the query's ``instants`` is answered again."""
    known = {}
    for query in plan.workload.queries:
        if query.window.has_origin:
            stays = base is not None and instants is not None and query.name not in instants
            known[query.name] = (
                base.record.known.get(query.name, base.record.listed.get(query.stream, 0))
                if stays and base is not None
                else prepared.listing.newest[query.stream]
            )
    return known


def _filled_stream(run: Run, prepared: PreparedRun, name: str) -> FilledStream | None:
    """Fill the partial aggregates of one stream; None if it cannot be read."""
    record, splits = run.record, prepared.sources[name]
    work = [part for part in prepared.work if part.synopsis.stream == name]
    try:
        stream = prepared.plan.workload.stream(name)
        counters = rows_stage.row_counters(prepared.plan, name, splits, prepared.ends[name])
        lift = partial(_lifted, run, stream, splits, _joined_late(work, stream))
        if not run.request.recompute and any(map(levels.is_leveled, work)):
            lift = partial(_lifted_if_complete, run, prepared.listing.arrivals[name], lift)
        filled, lifted = stage_tasks.write_partials(run, stream, [*work, *counters], splits, lift)
        broken = lifted.broken
        if prepared.is_closing:
            complete = [part for part in work if part.synopsis.fingerprint not in lifted.broken]
            close_periods(run, stream, complete, splits)
        if counters:
            numbered, also_filled, also_broken = rows_stage.write_rows(run, prepared, name, counters, broken)
            work, filled, broken = work + numbered, filled + also_filled, broken | also_broken
        record.diagnostics += silence(prepared, name, lifted.events)
    except Exception as error:
        coded = coded_error(error)
        if is_fatal(coded.diagnostic.code):
            raise coded from error
        record.failed.append(name)
        record.diagnostics.append(coded.diagnostic.to_json())
        return None
    unanswered: list[str] = []
    for part in work:
        if part.synopsis.fingerprint in broken:
            unanswered += _reported(run, part, broken[part.synopsis.fingerprint])
    return FilledStream([part for part in work if part.synopsis.fingerprint not in broken], filled, unanswered)


def _reported(run: Run, part: SynopsisWork, failure: SynopsisFailure) -> list[str]:
    """Report the queries of a synopsis that could not be filled; their names."""
    hint = "filter, or group by a column with fewer values; the other queries were answered"
    if failure.code == dropped_fine.GONE:
        hint = dropped_fine.ANSWER_WITHOUT
    for query in part.queries:
        diagnostic = Diagnostic(failure.code, failure.message, hint, query=query.name)
        run.record.diagnostics.append(diagnostic.to_json())
    return [query.name for query in part.queries]


def parts_of(sizes: Sequence[float], width: int, tasks: int) -> list[range]:
    """The numbers of splits (n,) as consecutive parts, at most one a task: of about the same size, or, with more
    ``tasks`` than ``width`` at once, the first ones larger. ``sizes``: the events of each split, about."""
    if not len(sizes):
        return []
    first = min(width, tasks)
    shares = np.full(tasks, 1 / tasks)
    if tasks > first:
        shares[:first] = FIRST_SHARE / first
        shares[first:] = (1 - FIRST_SHARE) / (tasks - first)
    known = np.maximum(np.array(sizes, dtype=np.float64), 1)
    # a split belongs to the part in which its middle lies
    middles = (np.cumsum(known) - known / 2) / known.sum()
    edges = np.searchsorted(middles, np.cumsum(shares)[:-1])
    return [range(low, high) for low, high in pairwise([0, *edges.tolist(), len(known)]) if low < high]


def _of_parts(task: Task, parts: Sequence[range]) -> Task:
    """The task that does another for all numbers of some parts."""

    def done(numbers: Iterable[int], count: Count) -> Iterator[Any]:
        return task((each for number in numbers for each in parts[number]), count)

    return done


def _joined_late(work: Iterable[SynopsisWork], stream: Stream) -> list[str]:
    """The attributes of the queries that are joined late."""
    queries = (query for part in work for query in part.queries if part.synopsis.joins_late(query))
    return list(attributes_in(stream, sorted({column for query in queries for column in query.columns()})))


def _lifted_if_complete(
    run: Run,
    ledger: Ledger,
    lift: Callable[[Sequence[FillRequest]], stage_tasks.Lifted],
    requests: Sequence[FillRequest],
) -> stage_tasks.Lifted:
    """Lift the events of a stream. Synopses that need dropped fragments whose files are gone are broken."""
    broken = dropped_fine.cannot_be_lifted(run.warehouse, requests[0].synopsis.stream, requests, ledger)
    complete = [request for request in requests if request.filled.fingerprint not in broken]
    lifted = lift(complete) if complete else stage_tasks.Lifted([], {})
    return lifted._replace(broken=lifted.broken | broken)


def _lifted(
    run: Run, stream: Stream, splits: list[Split], joined: Collection[str], requests: Sequence[FillRequest]
) -> stage_tasks.Lifted:
    """Lift the events of a stream, in one pass over its source. ``joined``: as for :func:`lift_task`."""
    record = run.record
    slabs = slabs_of(requests)
    spans = [span_of_slab(slab) for slab in slabs]
    slabs_of_split = SlabsOfSplit(stream, slabs)
    needed_splits = [split for split in splits if slabs_of_split(split)]
    # of what a filter on folders excludes nothing is read, so that events are not counted
    is_complete = not any(map(slabs_of_split.is_pruned, splits))
    events = sum(split.rows_about() for split in needed_splits)
    root, interval = run.warehouse.path("partials"), (record.begin, record.end)
    width = tasks_for(events, run.workers.width, len(needed_splits))
    tasks = min(max(width, int(events // EVENTS_A_TASK)), stage_tasks.TASKS_A_CORE * width)
    parts = parts_of([split.rows_about() for split in needed_splits], width, tasks)
    memory = settings().task_memory
    parted = PartedSplits(needed_splits, parts) if len(parts) > 1 else needed_splits
    task = lift_task(stream, parted, slabs, root, memory, interval, is_complete, bucket_rows(len(parts)), joined)
    outcome = stage_tasks.done(run, _of_parts(task, parts), len(parts), len(parts), f"partials {stream.name}")
    outcomes, inside = outcome.results, outcome.counts[NEWER]
    rows = [outcome.counts[events_of_slab(at)] for at in range(len(slabs))]
    files, broken = stage_tasks.of_outcomes(outcomes)
    if is_complete:
        counts = run.counts.setdefault(stream.name, [])
        counts += [outcome for outcome in outcomes if isinstance(outcome, EventCounts)]
    # of what was stored before nothing is read
    covered = EventCounts.of(spans).spans
    is_read = bool(inside) or any(first <= record.begin and last >= record.end for first, last in covered)
    read = sum(rows)
    record.scanned[stream.name] = _scanned([(*span, total) for span, total in zip(spans, rows, strict=True)])
    record.rows_scanned += read
    record.features["events"] += read
    for slab, total in zip(slabs, rows, strict=True):
        filled = [request.synopsis for request in slab if request.synopsis.fingerprint not in broken]
        record.features["tree_tuples"] += total * len({synopsis.edges for synopsis in filled})
        record.features["family_tuples"] += total * len(filled)
    record.rows_without_time += outcome.counts[UNTIMED]
    unmatched = [outcome for outcome in outcomes if isinstance(outcome, Unmatched)]
    record.unmatched |= {stream.name: stored(unmatched)} if unmatched else {}
    record.diagnostics += [warning.to_json() for warning in warnings_of_unmatched(stream, unmatched)]
    note_without_time(record, stream, [outcome for outcome in outcomes if isinstance(outcome, WithoutTime)])
    return stage_tasks.Lifted(files, broken, inside if is_read and (is_complete or inside) else None)


def _scanned(spans: Sequence[tuple[int, int, int]]) -> tuple[int, int, int]:
    """The contiguous spans with the most events, as one.

    ``spans``: begin and end in time, [begin, end), and the number of events that were read of each.
    """
    runs: list[tuple[int, int, int]] = []
    for begin, end, read in spans:
        if runs and begin <= runs[-1][1]:
            first, last, before = runs.pop()
            runs.append((first, max(last, end), before + read))
        else:
            runs.append((begin, end, read))
    return max(runs, key=lambda run: run[2])
