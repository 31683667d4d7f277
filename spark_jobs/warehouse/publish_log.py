"""The one owner of ``publish_log``: what runs record, and which intervals are published with what content."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from optimizer.errors.crashes import finding
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.workload.instants import format_instant
from spark_jobs.warehouse.data_files import reading
from spark_jobs.warehouse.schemas import INSTANT, micros
from spark_jobs.warehouse.warehouse import Warehouse


@dataclass
class RunRecord:
    """What a run did: stored in the publish log and shown by ``heddle status``.

    ``status``: ``published``, ``unchanged`` (the same content was published before) or ``failed``. ``rows_scanned``
    counts events read in the interval and the history it needed, ``scanned`` the same a stream with the span
    (begin, end, events; microseconds); ``partials_written`` rows of the partials table;
    ``synopses_reused`` synopses whose history was already there; ``features`` how much of each of
    :data:`spark_jobs.costs.measurements.FEATURES` explains ``cpu_seconds``. What the plan's costs predicted
    beforehand, and what they make of the features, is in CPU seconds of all stages (:mod:`spark_jobs.costs.fit`);
    ``prediction_error`` is (predicted - measured) / measured. Times in seconds.

    Of queries with a refresh bound: ``refreshes`` says how many were answered at which instant (``at``, ``queries``);
    ``refreshed`` when each was answered last, before this run or by it; ``lateness`` by how much its bound was
    exceeded, of those that were late (microseconds of data time).

    Of the sources: ``listed`` the newest entry known of each stream's ledger (microseconds), ``failed`` streams
    that could not be listed, ``refused`` events of streams that came later than is allowed (in all of their files),
    ``repeated`` events that were left out because they had come before (on the days that the run looked at).
    ``radius``: what had changed of an interval that was published before
    (:class:`spark_jobs.sources.late_events.LateDataImpact`); ``narrow``: only the windows that it may have changed
    were published again, which is so if ``basis``, the hash of what decides answers beside the sources, is what it was.

    Of the answers: ``readers`` what the revision changed for them (:meth:`spark_jobs.results.revisions.Readers.told`;
    None: not known, or nothing was published), ``empty`` the queries with windows in the interval that have no answer
    there. ``diagnostics`` are errors and warnings: a run with warnings alone has done all that was asked.
    """

    run_id: str
    plan_version: int
    begin: int
    end: int
    revision: int = 0
    status: str = "failed"
    answers: int = 0
    queries: int = 0
    rows_scanned: int = 0
    rows_without_time: int = 0
    partials_written: int = 0
    synopses: int = 0
    synopses_reused: int = 0
    session_starts: int = 1
    features: dict[str, int] = field(default_factory=dict)
    predicted_cpu_seconds: float | None = None
    explained_cpu_seconds: float | None = None
    prediction_error: float | None = None
    scanned: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    withheld: dict[str, str] = field(default_factory=dict)
    listed: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    repeated: dict[str, int] = field(default_factory=dict)
    radius: dict[str, Any] | None = None
    basis: str = ""
    narrow: bool = False
    readers: dict[str, Any] | None = None
    empty: list[str] = field(default_factory=list)
    live: bool = False
    late: bool = False
    refreshes: list[dict[str, Any]] = field(default_factory=list)
    refreshed: dict[str, int] = field(default_factory=dict)
    lateness: dict[str, int] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    wall_seconds: dict[str, float] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)
    diagnostics: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"format_version": 1, **asdict(self)} | {
            "begin": format_instant(self.begin),
            "end": format_instant(self.end),
        }

    @property
    def has_failed(self) -> bool:
        """Whether something was not done that was asked for."""
        return any(found["severity"] == "error" for found in self.diagnostics)


def rows_of_interval(warehouse: Warehouse, begin: int, end: int) -> list[dict[str, Any]]:
    table = warehouse.dataset("publish_log")
    at = (ds.field("interval_start") == pa.scalar(begin, INSTANT)) & (
        ds.field("interval_end") == pa.scalar(end, INSTANT)
    )
    found: list[dict[str, Any]] = table.to_table(filter=at).sort_by("at").to_pylist()
    return found


def same_publication(
    warehouse: Warehouse, plan: SharingPlan, begin: int, end: int, content: str
) -> dict[str, Any] | None:
    """The log row of the newest publication of an interval if it has the same content, nothing that overlaps the
    interval was published since, and no answers of the plan's queries were deleted."""
    row = newest_publication(warehouse, begin, end)
    same = row is not None and interval_of_row(row) == interval_label(begin, end) and row["content"] == content
    return row if row is not None and same and not deleted_since(warehouse, plan, row) else None


def newest_publication(warehouse: Warehouse, begin: int, end: int) -> dict[str, Any] | None:
    """The log row of the newest publication that overlaps [begin, end)."""
    return max(overlapping_publications(warehouse, begin, end), key=lambda row: row["table_version"], default=None)


def overlapping_publications(warehouse: Warehouse, begin: int, end: int) -> list[dict[str, Any]]:
    """The log rows of the publications that overlap [begin, end)."""
    overlaps = (ds.field("interval_start") < pa.scalar(end, INSTANT)) & (
        ds.field("interval_end") > pa.scalar(begin, INSTANT)
    )
    table = warehouse.dataset("publish_log")
    with reading(warehouse.path("publish_log")):
        found: list[dict[str, Any]] = table.to_table(filter=overlaps & (ds.field("event") == "published")).to_pylist()
    return found


def deleted_since(warehouse: Warehouse, plan: SharingPlan, row: Mapping[str, Any]) -> bool:
    """Whether answers of a plan's queries were deleted by name after a publication."""
    table = warehouse.dataset("publish_log")
    with reading(warehouse.path("publish_log")):
        later = (ds.field("event") == "deleted") & (ds.field("table_version") > row["table_version"])
        records = table.to_table(["record"], filter=later)["record"].to_pylist()
    deleted = {name for record in records for name in json.loads(record)["queries"]}
    return any(query.name in deleted for query in plan.workload.queries)


def revision_of(warehouse: Warehouse, record: RunRecord, content: str, recompute: bool) -> int:
    """The revision of this run: the one it was given before if it is a retry, else the next of the interval."""
    with warehouse.lease() as token:
        since = warehouse.version("publish_log")
        rows = rows_of_interval(warehouse, record.begin, record.end)
        published = {row["revision"] for row in rows if row["event"] == "published"}
        for row in rows:
            again = row["event"] == "allocated" and row["run_id"] == record.run_id and row["content"] == content
            if again and row["revision"] not in published and row["revision"] > max(published, default=0):
                return int(row["revision"])
        revision = 1 + max((int(row["revision"]) for row in rows), default=0)
        warehouse.append("publish_log", [_log_row(record, "allocated", content, None, revision)], token, since=since)
    return revision


def reconcile(warehouse: Warehouse, begin: int, end: int) -> None:
    """The results table is the truth: log the publications that a crash kept out of the log, of every interval that
    overlaps [begin, end)."""
    if not _unlogged(warehouse, begin, end):
        return
    with warehouse.lease() as token:
        since = warehouse.version("publish_log")
        found = [
            row
            | {
                "event": "published",
                "answers": _answers_of(warehouse, row),
                "table_version": version,
                "at": now_micros(),
            }
            for row, version in _unlogged(warehouse, begin, end)
        ]
        warehouse.append("publish_log", found, token, since=since)


def _unlogged(warehouse: Warehouse, begin: int, end: int) -> list[tuple[dict[str, Any], int]]:
    """The log's rows of revisions that were given out and are not in the log as published, but in the table's log;
    with the version of the table that they made, 0 if that is too long ago."""
    rows = [
        row
        for row in warehouse.rows("publish_log")
        if micros(row["interval_start"]) < end and micros(row["interval_end"]) > begin
    ]
    logged = {(interval_of_row(row), row["revision"]) for row in rows if row["event"] == "published"}
    results = warehouse.table("results")
    found = []
    for row in rows:
        if row["event"] != "allocated" or (interval_of_row(row), row["revision"]) in logged:
            continue
        application = f"results/{interval_of_row(row)}"
        newest = results.transaction_version(application) or 0
        if newest >= row["revision"]:
            version = warehouse.committed("results", application, row["revision"], micros(row["at"]))
            if version is not None or newest == row["revision"]:
                found.append((row, version or 0))
    return found


def interval_of_row(row: Mapping[str, Any]) -> str:
    return interval_label(micros(row["interval_start"]), micros(row["interval_end"]))


def interval_label(begin: int, end: int) -> str:
    return f"{format_instant(begin)}/{format_instant(end)}"


def _answers_of(warehouse: Warehouse, row: dict[str, Any]) -> int:
    """How many answers the publication of a log row left in the results table."""
    results = warehouse.dataset("results")
    mine = (ds.field("run_id") == row["run_id"]) & (ds.field("revision") == row["revision"])
    within = (ds.field("instant") > row["interval_start"]) & (ds.field("instant") <= row["interval_end"])
    return int(results.count_rows(filter=mine & within))


def now_micros() -> Any:
    return pa.scalar(time.time_ns() // 1000, INSTANT).as_py()


def _log_row(
    record: RunRecord, event: str, content: str | None, table_version: int | None, revision: int
) -> dict[str, Any]:
    return {
        "interval_start": pa.scalar(record.begin, INSTANT).as_py(),
        "interval_end": pa.scalar(record.end, INSTANT).as_py(),
        "revision": revision,
        "run_id": record.run_id,
        "event": event,
        "plan_version": record.plan_version,
        "content": content,
        "answers": record.answers,
        "table_version": table_version,
        "record": json.dumps(record.to_json()),
        "at": now_micros(),
    }


def log_event(
    warehouse: Warehouse, record: RunRecord, event: str, content: str | None, table_version: int | None
) -> None:
    with warehouse.lease() as token:
        since = warehouse.version("publish_log")
        logged = any(
            row["event"] == "published" and row["revision"] == record.revision
            for row in rows_of_interval(warehouse, record.begin, record.end)
        )
        # another attempt of this run, or a run that found its answers, may have been first
        if event != "published" or not logged:
            row = _log_row(record, event, content, table_version, record.revision)
            warehouse.append("publish_log", [row], token, since=since)
        if record.rows_without_time:
            detail = f"{record.rows_without_time} events without an event time were left out"
            row = {"run_id": record.run_id, "stream": "", "code": "HDL-410", "rows": record.rows_without_time}
            done = (f"quarantine/{interval_label(record.begin, record.end)}", record.revision)
            warehouse.append("quarantine", [row | {"detail": detail, "at": now_micros()}], token, done)


def log_end(warehouse: Warehouse, record: RunRecord, error: BaseException, stage: str) -> bool:
    """Log why a run ends in a stage, unless that was logged or the run has published all the same; whether it has."""
    found = finding(error)
    if stage == "audit" and isinstance(error, Exception) and not isinstance(error, HeddleError):
        found = Diagnostic("HDL-531", f"a check crashed: {found.message}")
    if found.to_json() in record.diagnostics:
        return False
    # the error is what has to be told, not that the log cannot be written either
    with suppress(HeddleError, OSError):
        if stage == "publish":
            reconcile(warehouse, record.begin, record.end)
            for row in rows_of_interval(warehouse, record.begin, record.end):
                if row["event"] == "published" and row["revision"] == record.revision:
                    return True
        record.diagnostics.append(found.to_json())
        log_event(warehouse, record, "failed", None, None)
    return False


def refuse(warehouse: Warehouse, record: RunRecord, code: str, message: str, hint: str = "") -> None:
    diagnostics = [Diagnostic(code, message, hint), *(Diagnostic(**found) for found in record.diagnostics)]
    record.diagnostics = [found.to_json() for found in diagnostics]
    log_event(warehouse, record, "failed", None, None)
    raise HeddleError.of(*diagnostics)


def coded_error(error: Exception) -> HeddleError:
    """The coded error that a task raised, out of the text that Spark makes of it; any other error is raised again."""
    if isinstance(error, HeddleError):
        return error
    found = re.search(r"HeddleError: (?:error )?(HDL-\d+) (.*)(?:\n    hint: (.*))?", str(error))
    if found is None:
        raise error
    return HeddleError(found.group(1), found.group(2), found.group(3) or "")
