"""One run: its engine, and Spark's work for it.

Spark's event log has tasks and the reasons of their failures. If there is none, the run's record has its jobs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from heddle.pages.folding import Table, fold
from heddle.pages.formats import moment, number, seconds
from heddle.pages.operations import ROWS_SHOWN
from heddle.pages.plan import Tile
from heddle.pages.render import render
from optimizer.errors.diagnostics import Diagnostic, count
from spark_jobs.engine.event_log import SeenApplication, SeenJob, SeenStage
from spark_jobs.engine.workers import Job
from spark_jobs.operations.read import diagnostic_of
from spark_jobs.operations.seen import SeenRun
from spark_jobs.store.warehouse.publish_log import LogRow, RunRecord

GROUPS_SHOWN = 20
"""Other runs of one application."""


@dataclass(frozen=True)
class JobRow:
    """A job. Numbers are texts, "" where they are not known. ``task_seconds``: how long its tasks took a core;
    ``python``: CPU seconds of its tasks in Python; ``kind``: "ill" if it failed, "warn" if tasks did."""

    id: str
    description: str
    status: str
    submitted: str
    seconds: str
    tasks: str
    failed: str
    task_seconds: str
    python: str
    kind: str = ""


@dataclass(frozen=True)
class StageRow:
    """A stage of a job, as Spark's log has it."""

    job: int
    stage: SeenStage


@dataclass(frozen=True)
class Failure:
    """Reason why attempts of tasks, a job or an executor failed, with the place and the number of times."""

    where: str
    reason: str
    times: int


@dataclass(frozen=True)
class RunPage:
    """All that the page of a run shows. ``live``: the address of Spark's own pages while the application lives;
    ``history``: of its page in the history server; "": there is none. ``others``: ids of other runs of the
    application, of ``of`` in all."""

    row: LogRow
    record: RunRecord
    status: str
    tiles: Sequence[Tile]
    findings: Sequence[Diagnostic]
    live: str
    history: str
    application: SeenApplication | None
    jobs: Table[JobRow]
    stages: Table[StageRow]
    failures: Table[Failure]
    others: Sequence[str]
    of: int


def page(seen: SeenRun) -> str:
    """The page of a run."""
    return render("run.html.j2", page=run_page(seen))


def run_page(seen: SeenRun) -> RunPage:
    """Content of a run's page, counted and put into words."""
    record, application = seen.row.record, seen.application
    jobs = application.of_group(seen.row.run_id) if application is not None else []
    recorded = [Job(**job) for job in record.jobs]
    has_ended = application.ended if application is not None else seen.is_over
    stages = [StageRow(job.id, stage) for job in jobs for _, stage in sorted(job.stages.items())]
    groups = [group for group in application.groups if group != seen.row.run_id] if application is not None else []
    columns = [
        *(("job", 5), ("what", 33), ("status", 9), ("begun (UTC)", 15), ("wall s", 7), ("tasks", 7), ("failed", 7)),
        *(("task s", 8), ("Python CPU-s", 9)),
    ]
    rows = _rows(jobs, recorded)
    return RunPage(
        row=seen.row,
        record=record,
        status=seen.row.event if seen.is_over else "no end",
        tiles=_tiles(jobs, recorded, application),
        findings=[diagnostic_of(stored) for stored in record.diagnostics] if seen.is_over else [],
        live=record.ui if not has_ended and re.fullmatch(r"https?://[\w.:\[\]-]{1,200}", record.ui) else "",
        history=f"{seen.history}/history/{record.application}/" if seen.history and record.application else "",
        application=application,
        jobs=Table("log jobs", columns, fold(rows, ROWS_SHOWN, len(rows), "job")),
        stages=_stages(stages),
        failures=_failures(jobs, application),
        others=groups[:GROUPS_SHOWN],
        of=len(groups),
    )


def _rows(jobs: Sequence[SeenJob], recorded: Sequence[Job]) -> list[JobRow]:
    """The jobs of Spark's log; without one those of the record."""
    python = {number: job for job in recorded for number in job.ids[:1]}
    if not jobs:
        return [
            JobRow(
                *(", ".join(map(str, job.ids)), job.description, "", "", seconds(job.seconds), number(job.tasks)),
                *(number(job.failed) if job.failed else "", "", seconds(job.cpu_seconds)),
                kind="warn" if job.failed else "",
            )
            for job in recorded
        ]
    return [
        JobRow(
            *(str(job.id), job.description, job.status, _begun(job), seconds(job.seconds), number(job.tasks)),
            *(number(job.failed) if job.failed else "", seconds(job.run_seconds)),
            python=seconds(python[job.id].cpu_seconds) if job.id in python else "",
            kind="ill" if job.status == "failed" else "warn" if job.failed else "",
        )
        for job in jobs
    ]


def _begun(job: SeenJob) -> str:
    try:
        return moment(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=job.submitted))
    except OverflowError:
        return ""


def _tiles(jobs: Sequence[SeenJob], recorded: Sequence[Job], application: SeenApplication | None) -> list[Tile]:
    if not jobs and not recorded:
        return []
    tasks = sum(job.tasks for job in jobs or recorded)
    failed = sum(job.failed for job in jobs or recorded)
    spent = sum(job.cpu_seconds for job in recorded)
    tiles = [
        Tile("tasks", number(tasks), f"in {count(len(jobs or recorded), 'job')}"),
        Tile("attempts that failed", number(failed), "of tasks", "ill" if failed else "good"),
        Tile("CPU seconds", seconds(spent) or "–", "of tasks, in Python"),
    ]
    if application is not None and jobs:
        lost = len(application.lost)
        note = f"{count(application.executors, 'executor')}{f', {lost} lost' if lost else ''}"
        task_seconds = sum(job.run_seconds for job in jobs)
        tiles.insert(2, Tile("executor seconds", seconds(task_seconds), note, "ill" if lost else ""))
    return tiles


def _stages(rows: Sequence[StageRow]) -> Table[StageRow]:
    columns = [
        *(("stage", 10), ("job", 10), ("tasks", 12), ("done", 12), ("failed", 12), ("killed", 12), ("wall s", 10)),
        *(("task s", 11), ("JVM CPU-s", 11)),
    ]
    return Table("log", columns, fold(rows, ROWS_SHOWN, len(rows), "stage"))


def _failures(jobs: Sequence[SeenJob], application: SeenApplication | None) -> Table[Failure]:
    rows = [Failure(f"job {job.id}", reason, times) for job in jobs for reason, times in job.reasons.items()]
    rows += [Failure(f"job {job.id}", job.reason, 1) for job in jobs if job.reason and not job.reasons]
    if application is not None:
        rows += [Failure(f"executor {name}", reason, 1) for name, reason in application.lost_executors]
    return Table("log texts", [("where", 20), ("why", 70), ("times", 10)], fold(rows, ROWS_SHOWN, len(rows), "failure"))
