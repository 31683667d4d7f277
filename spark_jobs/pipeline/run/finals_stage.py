"""The third stage of a run: answers every query from partial rows, into staged files."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.errors.diagnostics import count as number_of
from optimizer.synopses.synopsis import families_of
from optimizer.windows.alignment import instants_between
from optimizer.workload.instants import DAY
from spark_jobs.audit.checks.inspection import Findings, inspection_of
from spark_jobs.engine.workers import Count, Task, tasks_for
from spark_jobs.pipeline.run import division, partials_stage, preparation, stage_tasks
from spark_jobs.pipeline.run.division import Slice, by_bucket
from spark_jobs.pipeline.run.values import AnsweredRun, FilledRun, PreparedRun, Run
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse.data_files import BUCKETS, DataFile
from spark_jobs.store.warehouse.publish_log import RunRecord, refuse
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.finals.passes import TooLarge
from spark_jobs.windows.finals.window_query import COUNTED
from spark_jobs.windows.kinds import EXECUTIONS
from spark_jobs.windows.partials import levels, stored_coverage
from spark_jobs.windows.partials.synopsis_work import SynopsisWork

ANSWERS_A_TASK = 1_000_000
"""Answers, one a window, that one task makes in some seconds: of queries without groups in common more are spread."""

ROWS_A_TASK = 2_000_000
"""Partial rows that one task of the final stage should hold at most (all buckets of it together)."""


def amount_of(run: Run, prepared: PreparedRun) -> float:
    """About how many events and rows a run reads, and how many windows it answers."""
    events = 0.0
    for name in prepared.sources:
        try:
            events += partials_stage.events_to_read(run, prepared, name)
        except HeddleError:
            # a stream that cannot be read is reported when it is read
            continue
    work = [part for part in prepared.work if part.queries]
    files = _needed(run.warehouse, work, run.warehouse.table("partials")) if work else []
    rows = sum(file.rows for file in files)
    return events + rows + windows_of(work, prepared.request.begin, rows)


def answer(run: Run, filled: FilledRun) -> AnsweredRun:
    """Compute every answer into files of the results table that no commit names yet.

    A query that needs more memory at once than a task may take is reported, and all others are answered again
    without it.
    """
    while True:
        try:
            files = write_finals(run, filled)
            break
        except QueriesTooLarge as error:
            filled = _without(run, filled, error.queries)
    run.record.answers = sum(written.file.rows for written in files)
    run.record.features |= {"queries": sum(len(part.queries) for part in filled.work), "answers": run.record.answers}
    is_inspected = run.record.checked == "all"
    findings = tuple(written.findings for written in files if written.findings is not None)
    return AnsweredRun(filled, tuple(written.file for written in files), findings if is_inspected else None)


class Written(NamedTuple):
    """A file of answers, and the findings of its inspection; None: it was not inspected."""

    file: DataFile
    findings: Findings | None = None


Inspection = Callable[[DataFile], Written]
"""Handler of a file of answers, called where it was written."""


def _inspection(run: Run, filled: FilledRun) -> Inspection:
    """The :data:`Inspection` of a run."""
    if run.record.checked != "all":
        return Written
    return partial(
        _inspected, run.warehouse.path("results"), inspection_of(filled.narrowed, run.record.begin, filled.ends)
    )


def _inspected(root: str, inspect: Callable[[str], Findings], file: DataFile) -> Written:
    try:
        return Written(file, inspect(f"{root}/{file.path}"))
    except HeddleError:
        raise
    except Exception as error:
        raise HeddleError("HDL-531", f"a check crashed: {type(error).__name__}: {error}") from error


INSPECTED = "inspected"
"""Count of the CPU time (microseconds) of tasks for the inspection, which is part of the audit."""


def inspecting(task: Task, inspection: Inspection) -> Task:
    """The task that also inspects each file of answers that another one has written."""

    def done(numbers: Iterable[int], count: Count) -> Iterator[Any]:
        for outcome in task(numbers, count):
            if isinstance(outcome, DataFile):
                begun = time.process_time_ns()
                outcome = inspection(outcome)
                count(INSPECTED, (time.process_time_ns() - begun) // 1000)
            yield outcome

    return done


def _charge(record: RunRecord, inspected: int) -> None:
    """Charge the audit for microseconds of the final tasks."""
    seconds, spent = round(inspected / 1e6, 3), record.cpu_seconds
    spent["finals"], spent["audit"] = spent.get("finals", 0.0) - seconds, spent.get("audit", 0.0) + seconds


class QueriesTooLarge(Exception):
    """``queries``: those that need more memory at once than a task may take, by name."""

    def __init__(self, queries: Mapping[str, TooLarge]) -> None:
        super().__init__(", ".join(queries))
        self.queries = queries


def _without(run: Run, filled: FilledRun, queries: Mapping[str, TooLarge]) -> FilledRun:
    """A run without some queries, which are reported. Raises HDL-517 if there are no others."""
    hint = "give tasks more (HEDDLE_TASK_MEMORY), filter, or use an approximate aggregate; the others were answered"
    for failure in queries.values():
        run.record.diagnostics.append(Diagnostic(failure.code, failure.message, hint, query=failure.query).to_json())
    parts = [
        replace(part, queries=tuple(query for query in part.queries if query.name not in queries))
        for part in filled.work
    ]
    work = tuple(part for part in parts if part.queries)
    if not work:
        refuse(run.warehouse, run.record, "HDL-517", "none of the plan's queries could be answered")
    plan, narrowed = (preparation.plan_without(plan, list(queries)) for plan in (filled.plan, filled.narrowed))
    return replace(filled, plan=plan, narrowed=narrowed, work=work)


def slices_of(work: Sequence[SynopsisWork], begin: int, width: int, rows: int) -> list[Slice]:
    """Divide the work into slices, so that ``width`` tasks at once have something to do. ``rows``: number of partial
    rows.

    Groups are spread over at most :data:`spark_jobs.store.warehouse.data_files.BUCKETS` tasks. If some queries of a
    synopsis have no group in common, all of its rows are in one bucket. Then queries are spread instead, in
    complete families as long as there are enough. Each slice reads the partial rows again, so answers that one task
    computes quickly stay together. Where there is more to read, :func:`spark_jobs.pipeline.run.division.evened`
    divides the slices further.
    """
    timed = [part for part in work if part.synopsis.kind.has_fragments]
    spread = [part for part in timed if part.synopsis.bucket_by]
    single = [part for part in timed if not part.synopsis.bucket_by]
    answers = windows_of(single, begin, rows)
    alone = min(width, -(-answers // ANSWERS_A_TASK))
    if alone <= 1 and width <= BUCKETS:
        return [Slice(tuple(timed), begin, by_bucket())]
    slices = [Slice(parts, begin, by_bucket()) for parts in _spread(spread, max(1, width // BUCKETS))]
    return slices + [Slice(parts, begin, (frozenset(range(BUCKETS)),)) for parts in _spread(single, max(1, alone))]


def _spread(parts: Sequence[SynopsisWork], slices: int) -> list[tuple[SynopsisWork, ...]]:
    """Parts of the work with about as many queries each, in the order of their families."""
    ordered = [(part, query) for part in parts for family in families_of(part.queries).values() for query in family]
    groups = []
    for number in range(slices):
        chosen = ordered[len(ordered) * number // slices : len(ordered) * (number + 1) // slices]
        if chosen:
            parts_by_id = {id(part): part for part, _ in chosen}
            queries = {key: tuple(query for part, query in chosen if id(part) == key) for key in parts_by_id}
            groups.append(tuple(replace(part, queries=queries[key]) for key, part in parts_by_id.items()))
    return groups


def _answering(slices: Sequence[Slice], task_of: Callable[[Slice], Any]) -> tuple[Any, int]:
    """The task that answers the slices, and of how many pieces of work it is given the numbers."""
    tasks = [task_of(each) for each in slices]
    edges = [0, *accumulate(len(each.pieces) for each in slices)]

    def task(numbers: Iterable[int], count: Count) -> Iterator[Any]:
        buckets: dict[int, list[int]] = {}
        for number in numbers:
            at = bisect_right(edges, number) - 1
            buckets.setdefault(at, []).extend(sorted(slices[at].pieces[number - edges[at]]))
        for at, slice_buckets in buckets.items():
            yield from tasks[at](slice_buckets, count)

    return task, edges[-1]


def windows_of(work: Sequence[SynopsisWork], begin: int, rows: int) -> int:
    """About how many windows of time are answered, a group each: those of the interval, but no more than ``rows``
    partial rows lie in. A window that slides often has many though there are few rows."""
    return sum(
        min(
            instants_between(query.window, begin, part.end if part.until is None else part.until),
            rows * -(-query.window.reach // query.window.period),
        )
        for part in work
        if part.synopsis.kind.has_instants
        for query in part.queries
    )


def answer_count(work: Sequence[SynopsisWork], begin: int, rows: int) -> float:
    """About how many answers there are: a window of time has one for each group, and a fragment a row."""
    timed = [part for part in work if part.synopsis.kind.has_fragments]
    fragments = sum((part.end - part.begin) / slide for part in timed for slide, _ in part.synopsis.fragments.edges)
    groups = max(1.0, rows / fragments) if fragments else 1.0
    return windows_of(timed, begin, rows) * groups + windows_of(
        [part for part in work if part not in timed], begin, rows
    )


def write_finals(run: Run, filled: FilledRun) -> list[Written]:
    """Write the files of all answers, and inspect them if the run asks for it.

    Raises HDL-541 if a partial aggregate that is needed was replaced in the meantime, and QueriesTooLarge.
    """
    warehouse, record = run.warehouse, run.record
    if not filled.work:
        return []
    current = warehouse.table("partials")
    filled = replace(
        filled, work=tuple(levels.StoredLevels(run.marks, filled.sources, current).of(filled.work, record.begin))
    )
    _check_complete(run, filled, current)
    files = _needed(warehouse, filled.work, current)
    paths, rows = [file.path for file in files], sum(file.rows for file in files)
    stamp = {
        "plan_version": pa.scalar(record.plan_version, pa.int64()),
        "revision": pa.scalar(record.revision, pa.int64()),
        "run_id": pa.scalar(record.run_id, pa.string()),
    }
    amount = rows + answer_count(filled.work, record.begin, rows)
    width = max(tasks_for(amount, run.workers.width), int(rows // ROWS_A_TASK))
    counts: Counter[str] = Counter()
    slices = slices_of(filled.work, record.begin, width, rows)
    memory, too_large = settings().task_memory, dict[str, TooLarge]()
    timed = width
    if sum(file.bytes for file in files) >= division.BYTES_A_TASK and any(
        part.synopsis.kind.has_fragments for part in filled.work
    ):
        slices = division.evened(slices, paths, run.workers.width, width, memory)
        timed = max(width, division.MOST_TASKS_A_CORE * run.workers.width)
    staged: list[Written] = []
    inspection = _inspection(run, filled)
    results = warehouse.path("results")
    for kind, execution in EXECUTIONS.items():
        work = [part for part in filled.work if part.synopsis.kind == kind]
        if work:
            work_slices, most = (
                (slices, timed) if kind.has_fragments else ([Slice(tuple(work), record.begin, by_bucket())], width)
            )
            answering = partial(_task_of, execution.answering, files, results, stamp, memory)
            task, pieces = _answering(work_slices, answering)
            description = f"finals of {number_of(sum(len(part.queries) for part in work), 'query')}"
            outcome = stage_tasks.done(run, inspecting(task, inspection), pieces, most, description)
            outcomes, counts = outcome.results, counts + outcome.counts
            staged += [outcome for outcome in outcomes if isinstance(outcome, Written)]
            too_large |= {outcome.query: outcome for outcome in outcomes if isinstance(outcome, TooLarge)}
            staged += map(inspection, execution.write_gathered(work, outcomes, results, stamp))
    if too_large:
        raise QueriesTooLarge(too_large)
    for name in COUNTED:
        record.features[name] += counts[name]
    if not run.engine.is_elsewhere:
        # else nobody knows what the tasks took
        _charge(record, counts[INSPECTED])
    return staged


def _task_of(answering: Callable[..., Any], files: Sequence[_Partials], *given: Any) -> Any:
    *before, slice_ = given
    begin, end = slice_.fragments
    paths = [file.path for file in files if file.last >= begin // DAY * DAY and file.first < end]
    return answering(list(slice_.parts), slice_.begin, paths, *before)


def _check_complete(run: Run, filled: FilledRun, current: DeltaTable) -> None:
    pieces = stored_coverage.pieces_under(run.marks, filled.work, current)
    for part in filled.work:
        stored, splits = pieces.get(part.synopsis.fingerprint, []), filled.sources[part.synopsis.stream]
        given = stored, splits, True, run.marks.tokens[part.synopsis.stream]
        if any(stored_coverage.missing_spans(part.over(*span), *given) for span in part.fine):
            message = "another run or maintenance has replaced partial aggregates that this run goes on with"
            refuse(run.warehouse, run.record, "HDL-541", message, "run it again")


class _Partials(NamedTuple):
    """A file of partial rows: its rows and bytes, and the starts of its first and its last fragment."""

    path: str
    rows: int
    bytes: int
    first: int
    last: int


def _needed(warehouse: Warehouse, work: Sequence[SynopsisWork], current: DeltaTable) -> list[_Partials]:
    """The files of partial rows that the work needs; those that have nothing but marks are not among them."""
    spans = [
        (begin // DAY * DAY if part.synopsis.kind.begins_at_midnight else begin, end)
        for part in work
        for begin, end in part.fine
    ]
    partitions, chosen = levels.needed_files(spans, [level for part in work for level in part.levels])
    return [
        _Partials(
            str(warehouse.place / "partials" / file["path"]),
            file["num_records"] or 0,
            file["size_bytes"],
            file["min.fragment_start"],
            file["max.fragment_start"],
        )
        for file in warehouse.files("partials", *partitions, current, chosen)
    ]
