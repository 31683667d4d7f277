"""Read the operating view of a warehouse from its tables, without a JVM.

The rows behind the view, as :mod:`spark_jobs.operations.values`: the newest runs, lateness, checks, differences of
sampled queries from their unshared recomputation, revisions, rows in quarantine, savings of owners, and the history
of the plan. The log's records are long, so only those of the runs that are shown are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.plan.diff import PlanDiff, diff
from optimizer.plan.rhythms import rhythms
from optimizer.workload.values import SECOND, digest
from spark_jobs.audit.checks.data_docs import FOLDER, documents, page_name
from spark_jobs.engine.workers import Job
from spark_jobs.operations.snapshots import Books, books_of, newest_plan
from spark_jobs.operations.values import (
    Check,
    Operations,
    Publication,
    Quarantined,
    Radius,
    Refreshed,
    Revised,
    Run,
    Sampled,
    Saving,
    Stale,
    Touched,
    Version,
)
from spark_jobs.pipeline.costs.money import CpuPrice, covered
from spark_jobs.pipeline.planning.publication import overtaken
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse import checks_log, publish_log, quarantine
from spark_jobs.store.warehouse.checks_log import RECOMPUTED, CheckRow
from spark_jobs.store.warehouse.data_files import log_place
from spark_jobs.store.warehouse.plans import PlannedQuery, facts_of, planned
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.quarantine import LeftOut
from spark_jobs.store.warehouse.schemas import INSTANT, moment
from spark_jobs.store.warehouse.warehouse import Warehouse

RUNS = 50
"""Runs that the operating view shows, the newest."""

LOGGED = 1_000
"""Rows of the publish log, the newest, with the runs and sampled queries that are shown: each run has two."""

FAILED_CHECKS = 60
REVISED = 40
"""Intervals with several publications, those published last."""

PRICED = 20
"""Versions of the plan by which savings are counted: each has to be read completely."""

VERSIONS = 60
"""Versions of the plan in its history, the newest."""

LOOKED_AT = 30
"""Published intervals that are compared with their sources, the newest."""


def opened(root: str | Path) -> Warehouse | None:
    """The warehouse in a folder; None if there is none yet."""
    return Warehouse.open(root, create=False) if Warehouse.stands(root) else None


def docs_page(run_id: str, revision: int) -> str:
    """The name of the Data Docs page of one run, whose audit has this seed."""
    return page_name(digest([run_id, revision]))


# ---------------------------------------------------------------------------------------- operations
def read_operations(warehouse: Warehouse, now: datetime | None = None, look: bool = False) -> Operations:
    """Everything that the operating view shows. ``look``: also which intervals are outdated; that lists all sources."""
    now = now or datetime.now(UTC)
    version = newest_plan(warehouse)
    plan = books_of(warehouse, version).plan if version is not None else None
    log = _log(warehouse)
    shown = _shown(warehouse, log)
    runs = _runs(warehouse, shown)
    failed, passed, wrong, sampled = _checks(warehouse, log)
    savings, unpriced, priced = _savings(warehouse, runs)
    stale, looked_at = _stale(warehouse, log, now) if look else (None, 0)
    return Operations(
        now,
        version,
        len(plan.workload.queries) if plan else 0,
        tuple(runs),
        _refreshed(plan, shown, runs) if plan else (),
        failed,
        (passed, wrong),
        sampled,
        _revised(warehouse),
        quarantined(warehouse),
        savings,
        unpriced,
        stale,
        looked_at,
        publish_log.intervals_published(warehouse),
        CpuPrice.parse(settings().cpu_hour_price),
        covered((run.begin, run.end) for run in priced),
    )


def _log(warehouse: Warehouse) -> list[LogRow]:
    """The newest rows of the publish log without their records, newest first."""
    condition = ds.field("event") != "deleted"
    return publish_log.newest_rows(warehouse, "at", condition, LOGGED, records=False)


def _with_records(warehouse: Warehouse, chosen: Sequence[LogRow]) -> list[LogRow]:
    """Some rows of the log with their records."""
    if not chosen:
        return []
    read = publish_log.rows(warehouse, publish_log.written_at(row.at for row in chosen))
    texts = {_identity(row): row.text for row in read}
    return [replace(row, text=texts.get(_identity(row))) for row in chosen]


def _identity(row: LogRow) -> tuple[Any, ...]:
    return *_attempt(row), row.event, row.at


def _shown(warehouse: Warehouse, log: Sequence[LogRow]) -> list[LogRow]:
    """The newest runs: those that ended, and those that were given a revision and have no end."""
    ended = {_attempt(row) for row in log if row.event != "allocated"}
    shown: list[LogRow] = []
    for row in log:
        if row.event != "allocated" or _attempt(row) not in ended:
            shown.append(row)
            # a retry that died as well is the same run
            ended.add(_attempt(row))
        if len(shown) == RUNS:
            break
    return _with_records(warehouse, shown)


def _runs(warehouse: Warehouse, shown: Sequence[LogRow]) -> list[Run]:
    """The runs of some rows of the log."""
    pages = documents(warehouse.place / FOLDER)
    return [_run(row, pages) for row in shown]


def _attempt(row: LogRow) -> tuple[Any, ...]:
    return row.interval, row.run_id, row.revision


def _run(row: LogRow, pages: Collection[str]) -> Run:
    record = row.record
    page = docs_page(row.run_id, row.revision)
    ended = row.event != "allocated"
    diagnostics = [diagnostic_of(stored) for stored in record.diagnostics] if ended else []
    return Run(
        row.run_id,
        row.event if row.event in ("published", "failed") else "no end",
        moment(row.at),
        row.begin,
        row.end,
        row.revision,
        row.plan_version,
        record.answers if ended else 0,
        record.queries,
        record.rows_scanned,
        sum(record.cpu_seconds.values()) if ended and record.cpu_seconds else None,
        record.predicted_cpu_seconds if ended else None,
        sum(record.wall_seconds.values()) if ended and record.wall_seconds else None,
        sum(bool(check["success"]) for check in record.checks),
        len(record.checks),
        record.live,
        record.late,
        tuple(sorted(record.lateness.items())),
        tuple(diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"),
        tuple(diagnostic for diagnostic in diagnostics if diagnostic.severity != "error"),
        tuple((name, was, now) for name, (was, now) in (record.readers or {}).get("fewer", {}).items()),
        tuple(record.empty),
        page if page in pages else "",
        record.checked,
        record.engine,
        record.application,
        tuple(Job(**job).line for job in record.jobs),
    )


def diagnostic_of(stored: Mapping[str, Any]) -> Diagnostic:
    """A finding of a run, as its record has it; what an earlier Heddle did not record is empty."""
    known = {name: stored[name] for name in ("code", "message", "hint", "query", "severity") if stored.get(name)}
    return Diagnostic(**({"code": "", "message": ""} | known))


def _refreshed(plan: SharingPlan, shown: Sequence[LogRow], runs: Sequence[Run]) -> tuple[Refreshed, ...]:
    """Time of the last answer of each query with a refresh bound, and its lateness in the runs shown."""
    published = [run for run in runs if run.status == "published"]
    newest = max((run for run in published if run.live), key=lambda run: run.end, default=None)
    answered = _answered(shown)
    refreshed = []
    for rhythm in (rhythm for schedule in plan.schedules for rhythm in rhythms(schedule)):
        late = [late for run in published for name, late in run.lateness if name == rhythm.query]
        now = dict(newest.lateness).get(rhythm.query, 0) if newest else 0
        refreshed.append(
            Refreshed(
                rhythm.query,
                rhythm.bound,
                round(rhythm.average),
                answered.get(rhythm.query),
                max(late, default=0),
                len(late),
                now,
            )
        )
    return tuple(refreshed)


def _answered(shown: Sequence[LogRow]) -> dict[str, int]:
    """Time of the last answer of each query with a refresh bound, as recorded by the runs that ended latest."""
    newest: dict[str, int] = {}
    for row in shown:
        if row.event == "published":
            for name, at in row.record.refreshed.items():
                newest[name] = max(newest.get(name, at), at)
    return newest


def _checks(warehouse: Warehouse, log: Sequence[LogRow]) -> tuple[tuple[Check, ...], int, int, tuple[Sampled, ...]]:
    """The newest checks that failed, how many passed and failed ever, and the recomputed queries of each run in the
    log, newest first."""
    ever = checks_log.counts(warehouse)
    wrong = checks_log.newest_failed(warehouse, FAILED_CHECKS) if ever.failed else []
    failed = tuple(Check(row.run_id, moment(row.at), row.begin, row.end, row.check, row.detail) for row in wrong)
    recomputed = checks_log.named(RECOMPUTED)
    if len(log) == LOGGED:
        recomputed &= ds.field("at") >= moment(log[-1].at)
    return failed, ever.passed, ever.failed, tuple(_audits(checks_log.rows(warehouse, recomputed)))


AUDIT = 5 * SECOND
"""Checks of one audit are logged at once: what is further apart (microseconds) is of a retry."""


def _audits(rows: Sequence[CheckRow]) -> list[Sampled]:
    """Results of sampled queries in each audit, oldest first. ``rows``: oldest first."""
    by_audit: dict[tuple[Any, ...], list[CheckRow]] = {}
    newest: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        run = row.run_id, row.begin, row.end
        audit = newest.get(run)
        if audit is None or row.at - by_audit[audit][-1].at > AUDIT:
            audit = newest[run] = (*run, row.at)
        by_audit.setdefault(audit, []).append(row)
    samples = [
        Sampled(
            checks[0].run_id,
            moment(checks[-1].at),
            len(checks),
            tuple(row.check.removeprefix(RECOMPUTED).removesuffix(")") for row in checks if not row.success),
        )
        for checks in by_audit.values()
    ]
    return sorted(samples, key=lambda sampled: sampled.at)


def _revised(warehouse: Warehouse) -> tuple[Revised, ...]:
    """The intervals that were published more than once, those published last first."""
    revised = []
    for rows in publish_log.newest_revised(warehouse, REVISED):
        publications: list[Publication] = []
        before: LogRow | None = None
        for row in sorted(rows, key=lambda row: row.revision):
            events = row.record.rows_scanned
            why = _why(before, row, publications[-1] if publications else None, events)
            publications.append(
                Publication(row.revision, moment(row.at), row.run_id, row.plan_version, row.answers or 0, events, why)
            )
            before = row
        revised.append(Revised(rows[0].begin, rows[0].end, tuple(publications)))
    return tuple(revised)


def _why(before: LogRow | None, row: LogRow, earlier: Publication | None, events: int) -> str:
    """Known reason of a publication: the log has hashes of what decides the answers, not the cause."""
    if before is None or earlier is None:
        return "first publication"
    reasons = []
    repaired = row.run_id.startswith("repair")
    if row.plan_version != before.plan_version:
        reasons.append(f"plan version {before.plan_version} → {row.plan_version}")
    if row.content == before.content and _are_declared_otherwise(before, row):
        reasons.append("a stream is declared otherwise")
    elif row.content == before.content:
        reasons.append("recomputed on demand, of the same source")
    elif repaired or row.plan_version == before.plan_version:
        reasons.append("its source or its watermark changed: late events, or files that came or went")
    if answers := (row.answers or 0) - earlier.answers:
        reasons.append(f"{answers:+,} answers")
    if repaired:
        reasons.append("by repair")
    return "; ".join(reasons)


def _are_declared_otherwise(before: LogRow, row: LogRow) -> bool:
    """Return whether two publications noted other declarations of their streams. An earlier Heddle noted none."""
    noted = [
        {name: of for name, (_, _, of) in log_row.record.read.items() if of.startswith("{")}
        for log_row in (before, row)
    ]
    return all(noted) and noted[0] != noted[1]


def _stale(warehouse: Warehouse, log: Sequence[LogRow], now: datetime) -> tuple[tuple[Stale, ...], int]:
    """The outdated ones among the newest published intervals, and the number of intervals that were checked."""
    from spark_jobs.pipeline.run.history import outdated

    newest = publish_log.newest_rows(warehouse, "interval_end", publish_log.PUBLISHED, LOGGED, records=False)
    ends = sorted({row.end for row in publish_log.standing(newest)}, reverse=True)[:LOOKED_AT]
    if not ends:
        return (), 0
    clock = (now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    outdated_intervals = outdated(warehouse, clock, ends[-1] - 1)
    stale = tuple(
        Stale(
            interval.begin,
            interval.end,
            interval.revision,
            interval.radius.rows,
            interval.radius.fragments,
            len(interval.radius.queries),
            interval.radius.windows,
        )
        for interval in outdated_intervals
    )
    return stale, len(ends)


def quarantined(warehouse: Warehouse) -> tuple[Quarantined, ...]:
    """Rows in quarantine by stream and code, those with the most rows first."""
    by_reason: dict[tuple[str, str], list[LeftOut]] = {}
    for row in quarantine.rows(warehouse):
        by_reason.setdefault((row.stream, row.code), []).append(row)
    totals = []
    for (stream, code), rows in by_reason.items():
        newest = max(rows, key=lambda row: row.at)
        runs, events = len({row.run_id for row in rows}), sum(row.rows for row in quarantine.newest_of_each(rows))
        totals.append(Quarantined(stream, code, events, runs, moment(newest.at), newest.detail))
    return tuple(sorted(totals, key=lambda total: (-total.rows, total.stream, total.code)))


def newest_savings(warehouse: Warehouse) -> tuple[Saving, ...]:
    """The CPU seconds of the newest :data:`RUNS` runs by owner."""
    return _savings(warehouse, _runs(warehouse, _shown(warehouse, _log(warehouse))))[0]


def _savings(warehouse: Warehouse, runs: Iterable[Run]) -> tuple[tuple[Saving, ...], int, list[Run]]:
    """The CPU seconds of published runs by owner (:class:`Saving`), of how many runs the plan is not counted, and the
    others."""
    measured: dict[int, list[Run]] = {}
    for run in runs:
        if run.status == "published" and run.measured is not None:
            measured.setdefault(run.plan_version, []).append(run)
    part: dict[str, float] = {}
    unshared: dict[str, float] = {}
    queries: dict[str, set[str]] = {}
    unpriced, priced = 0, []
    for number, version in enumerate(sorted(measured, reverse=True)):
        books = _stored(warehouse, version) if number < PRICED else None
        if books is None or not books.plan.cost:
            unpriced += len(measured[version])
            continue
        priced += measured[version]
        seconds = sum(run.measured or 0.0 for run in measured[version])
        for account in books.accounts.values():
            owner, cost = account.query.owner, books.plan.cost
            part[owner] = part.get(owner, 0.0) + seconds * float(account.here / cost)
            unshared[owner] = unshared.get(owner, 0.0) + seconds * float(account.alone / cost)
            queries.setdefault(owner, set()).add(account.query.name)
    savings = [Saving(owner, len(queries[owner]), part[owner], unshared[owner]) for owner in queries]
    return tuple(sorted(savings, key=lambda saving: (-saving.unshared, saving.owner))), unpriced, priced


def _stored(warehouse: Warehouse, version: int) -> Books | None:
    try:
        return books_of(warehouse, version)
    except HeddleError:
        return None


# -------------------------------------------------------------------------------------- blast radius
COMPARED = 500_000
"""Answers of an interval that are compared at most."""

_ANSWER = ["query", "window_start", "window_end", "instant", "position", "key"]
_CONTENT = ["longs", "doubles", "texts", "error"]


def read_radius(warehouse: Warehouse, begin: int, end: int, revision: int) -> Radius:
    """The answers of an interval (microseconds) that its publication of a revision changed, from the table's
    versions.

    Raises HDL-559 if there is no such publication, HDL-558 if it cannot be compared any more, or is too large.
    """
    log = publish_log.publications(warehouse, records=False)
    publication = next((row for row in log if (row.begin, row.end, row.revision) == (begin, end, revision)), None)
    if publication is None:
        raise HeddleError("HDL-559", f"revision {revision} of this interval was not published")
    after = publication.table_version or 0
    # what merged files in between changed no answer
    versions = [row.table_version or 0 for row in log]
    before = max((version for version in versions if version < after), default=None)
    old, new = _answers(warehouse, before, begin, end), _answers(warehouse, after, begin, end)
    names = {key[0] for key in old.keys() | new.keys()}
    kinds: dict[str, list[int]] = {name: [0, 0, 0] for name in names}
    for key in old.keys() | new.keys():
        if key not in old:
            kinds[key[0]][1] += 1
        elif key not in new:
            kinds[key[0]][2] += 1
        elif old[key] != new[key]:
            kinds[key[0]][0] += 1
    queries = tuple(Touched(name, *kinds[name]) for name in sorted(kinds) if any(kinds[name]))
    return Radius(begin, end, revision, (len(old), len(new)), queries)


def _answers(warehouse: Warehouse, version: int | None, begin: int, end: int) -> dict[tuple[Any, ...], str]:
    """The answers of an interval in one version of the results, by query, window and group."""
    if version is None:
        return {}
    first, last = pa.scalar(begin, INSTANT), pa.scalar(end, INSTANT)
    chosen = (ds.field("instant") > first) & (ds.field("instant") <= last)
    removed = "files of older versions are removed by maintenance once their retention is over"
    try:
        then = DeltaTable(log_place(warehouse.path("results")), version=version)
        table = warehouse.dataset("results", then, chosen)
        if table.count_rows(filter=chosen) > COMPARED:
            raise HeddleError("HDL-558", f"this interval has more than {COMPARED:,} answers: too many to be compared")
        rows = table.to_table([*_ANSWER, *_CONTENT], filter=chosen).to_pylist()
    except (OSError, DeltaError) as error:
        raise HeddleError("HDL-558", "this revision cannot be compared any more", removed) from error
    except HeddleError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise HeddleError("HDL-558", "this revision cannot be compared any more", removed) from error
    # NaN is equal to itself as text
    return {tuple(row[name] for name in _ANSWER): repr([row[name] for name in _CONTENT]) for row in rows}


# ------------------------------------------------------------------------------------------- history
def read_versions(warehouse: Warehouse) -> tuple[list[Version], int]:
    """The newest versions of the plan, newest first, and how many there are."""
    by_version: dict[int, list[PlannedQuery]] = {}
    for row in planned(warehouse):
        by_version.setdefault(row.plan_version, []).append(row)
    versions = []
    for number in sorted(by_version, reverse=True)[:VERSIONS]:
        rows = by_version[number]
        facts = facts_of(warehouse, rows[0])
        versions.append(
            Version(
                number,
                moment(rows[0].created_at),
                rows[0].created_by,
                rows[0].reason,
                facts["algorithm"],
                facts["cost_model"],
                facts["plan_cost"],
                facts["no_share_cost"],
                len(rows),
                len({row.tree for row in rows}),
            )
        )
    return versions, len(by_version)


def change_of(warehouse: Warehouse, version: int) -> PlanDiff:
    """Changes of a version compared with the one before it (with nothing, if it is the first). Raises HDL-506."""
    plan, before = books_of(warehouse, version).plan, _stored(warehouse, version - 1)
    return diff(before.plan if before is not None else None, plan)


# ------------------------------------------------------------------------------------------- refresh
def check_in_force(root: str | Path, expected: int | None, created_by: str = "") -> None:
    """Raises HDL-551 unless the plan in force has the version ``expected`` (0: there is none; None: any may be), or was
    made by ``created_by``: what is tried again may have stored its plan before."""
    if expected is None:
        return
    warehouse = opened(root)
    rows = warehouse.rows("sharing_plans", ["plan_version", "created_by"]) if warehouse is not None else []
    newest = max(rows, key=lambda row: row["plan_version"], default={"plan_version": 0, "created_by": None})
    current = newest["plan_version"]
    if current != expected and not (created_by and newest["created_by"] == created_by):
        raise overtaken(current, expected)
