"""Read what the metrics of a warehouse say (:mod:`spark_jobs.operations.metrics`), without a JVM.

Counters are those of the logs since their first row: what was counted when a log's files were merged, and the rows
since. A snapshot is cached while the tables behind it are unchanged, so a scrape in between reads no table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import metadata
from typing import Literal

import pyarrow.dataset as ds

from optimizer.plan.definition import SharingPlan
from optimizer.workload.values import ACQ
from spark_jobs.operations import metrics
from spark_jobs.operations.metrics import QueryState, Snapshot
from spark_jobs.operations.read import newest_savings, opened, quarantined
from spark_jobs.operations.snapshots import books_of, identity, known_queries, newest_plan
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse import checks_log, log_counts, publish_log
from spark_jobs.store.warehouse.data_files import reading
from spark_jobs.store.warehouse.publish_log import LogRow, RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse

LOOKED_AT = 24
"""Publications, those with the latest intervals, that are looked at for the time up to which a query is answered."""

TABLES = ("publish_log", "quality_results", "quarantine", "sharing_plans", "workload_queries")
"""The tables that decide a snapshot."""

KEPT = 2
"""Warehouses whose snapshots are cached."""

HOUR = 3_600_000_000
"""Microseconds after which a snapshot is read again: registered queries expire."""


def scraped(root: str, now: int) -> str:
    """The metrics of the warehouse in a folder, as text. ``now``: the clock (microseconds)."""
    warehouse = opened(root)
    snapshot = Snapshot(_version()) if warehouse is None else read_snapshot(warehouse, now)
    return metrics.exposition(snapshot, now)


def read_snapshot(warehouse: Warehouse, now: int) -> Snapshot:
    """State of a warehouse at a clock (microseconds)."""
    return _snapshot(str(warehouse.place), now // HOUR, tuple(identity(warehouse, table) for table in TABLES))


@lru_cache(maxsize=KEPT)
def _snapshot(root: str, hour: int, tables: tuple[tuple[str, int], ...]) -> Snapshot:
    warehouse = Warehouse(Place(root))
    version = newest_plan(warehouse)
    plan = books_of(warehouse, version).plan if version is not None else None
    runs = publish_log.run_counts(warehouse)
    with reading(warehouse.path("quality_results")):
        checks = checks_log.counts(warehouse)
    ended = {outcome: row for outcome in OUTCOMES if (row := _newest(warehouse, outcome)) is not None}
    newest = max(ended.values(), key=lambda row: row.at, default=None)
    published = ended.get("published")
    return Snapshot(
        _version(),
        version,
        len(plan.trees) if plan is not None else 0,
        _registered(warehouse, hour * HOUR),
        tuple(_queries(warehouse, plan, newest, runs)) if plan is not None else (),
        {outcome: runs.get(outcome, 0) for outcome in OUTCOMES},
        {outcome: row.at for outcome, row in ended.items()},
        _last_run(published.record) if published is not None else {},
        {name.removeprefix("cpu/"): spent for name, spent in runs.items() if name.startswith("cpu/")},
        runs.get("events", 0),
        runs.get("answers", 0),
        runs.get("intervals", 0),
        {"passed": checks.passed, "failed": checks.failed},
        {"equal": checks.recomputed - checks.different, "different": checks.different},
        {(total.stream, total.code): total.rows for total in quarantined(warehouse)},
        newest_savings(warehouse),
    )


OUTCOMES = ("published", "failed")


def _version() -> str:
    return metadata.version("heddle")


def _registered(warehouse: Warehouse, clock: int) -> Counter[tuple[str, str]]:
    known = known_queries(warehouse).queries.values()
    return Counter((state.last.owner, state.state(clock)) for state in known if not state.removed)


def _newest(warehouse: Warehouse, outcome: str) -> LogRow | None:
    rows = publish_log.newest_rows(warehouse, "at", ds.field("event") == outcome, 1)
    return rows[0] if rows else None


def _last_run(record: RunRecord) -> dict[str, float]:
    known = {
        "cpu": sum(record.cpu_seconds.values()) if record.cpu_seconds else None,
        "predicted_cpu": record.predicted_cpu_seconds,
        "wall": sum(record.wall_seconds.values()) if record.wall_seconds else None,
    }
    return {f"heddle_last_run_{name}_seconds": seconds for name, seconds in known.items() if seconds is not None}


STATISTICS: dict[str, tuple[Literal["counter", "gauge"], str]] = {
    "heddle.runs.published": ("counter", "runs that published"),
    "heddle.runs.failed": ("counter", "runs that failed"),
    "heddle.answers": ("counter", "answers that were published"),
    "heddle.scanned_events": ("counter", "events that were read"),
    "heddle.late_refreshes": ("counter", "queries that exceeded their refresh bound"),
    "heddle.blocked_queries": ("gauge", "queries that could not be answered"),
    "heddle.failed_checks": ("counter", "checks that failed"),
    "heddle.cpu_seconds": ("gauge", "CPU time of the run"),
    "heddle.predicted_cpu_seconds": ("gauge", "CPU time that was predicted for it"),
    "heddle.wall_seconds": ("gauge", "duration of the run"),
    "heddle.lag_seconds": ("gauge", "time from the end of its interval to the end of the run"),
}
"""Statistics of a run in Airflow: the type and the meaning of each."""


def statistics_of(row: LogRow) -> dict[str, float]:
    """The statistics of a run (:data:`STATISTICS`) from the row of its end."""
    record = row.record
    errors = {each["query"] for each in record.diagnostics if each["severity"] == "error" and each.get("query")}
    numbers: dict[str, float] = {
        f"heddle.runs.{row.event}": 1,
        "heddle.answers": row.answers or 0 if row.event == "published" else 0,
        "heddle.scanned_events": record.rows_scanned,
        "heddle.late_refreshes": len(record.lateness),
        "heddle.blocked_queries": len(errors | record.blocked.keys()),
        "heddle.failed_checks": sum(not check["success"] for check in record.checks),
        "heddle.lag_seconds": (row.at - row.end) / 1e6,
    }
    seconds = {name.replace("heddle_last_run_", "heddle."): value for name, value in _last_run(record).items()}
    return numbers | seconds


def _queries(
    warehouse: Warehouse, plan: SharingPlan, newest: LogRow | None, counted: log_counts.Counts
) -> Iterator[QueryState]:
    """The states of the queries of the plan in force. ``newest``: the run that ended last."""
    registered = known_queries(warehouse).queries
    answered = answered_until(warehouse, plan.workload.queries)
    blocked = set() if newest is None else blocked_by(newest.record, plan.workload.queries)
    for query in plan.workload.queries:
        owner = registered[query.name].last.owner if query.name in registered else query.owner
        late = counted.get(f"late/{query.name}", 0)
        until, is_blocked = answered.get(query.name), query.name in blocked
        yield QueryState(query.name, query.stream, owner, query.window.at_most, until, late, is_blocked)


def blocked_by(record: RunRecord, queries: Iterable[ACQ]) -> set[str]:
    """The names of the queries that a run has not answered: their stream could not be read, an error names them, or
    expectations block them."""
    failed = {str(each["query"]) for each in record.diagnostics if each["severity"] == "error" and each.get("query")}
    failed |= record.blocked.keys()
    return {query.name for query in queries if query.name in failed or query.stream in record.failed}


def answered_until(warehouse: Warehouse, queries: Sequence[ACQ]) -> dict[str, int]:
    """Event time (microseconds) up to which each query is answered, by name, as the newest publications recorded it.

    A query with a refresh bound is answered at instants: then it is the last one. Missing are queries that none of the
    :data:`LOOKED_AT` publications with the latest intervals answered.
    """
    rows = publish_log.newest_rows(warehouse, "interval_end", publish_log.PUBLISHED, LOOKED_AT)
    names: Mapping[int, set[str]] = _planned_names(warehouse, {row.plan_version for row in rows})
    remaining, until = {query.name: query for query in queries}, dict[str, int]()
    for row in rows:
        record = row.record
        blocked = blocked_by(record, remaining.values())
        for name in [name for name in remaining if name in names.get(row.plan_version, ()) and name not in blocked]:
            query = remaining[name]
            if query.window.at_most is None:
                until[name] = record.answered_until.get(query.stream, row.end)
            elif name in record.refreshed:
                until[name] = record.refreshed[name]
            else:
                continue
            del remaining[name]
        if not remaining:
            break
    return until


def _planned_names(warehouse: Warehouse, versions: Iterable[int]) -> dict[int, set[str]]:
    """The names of the queries of some versions of the plan."""
    chosen = ds.field("plan_version").isin(sorted(versions))
    stored = warehouse.stored_rows("sharing_plans", ["plan_version", "query"], chosen)
    names: dict[int, set[str]] = {}
    for version, query in zip(stored["plan_version"].to_pylist(), stored["query"].to_pylist(), strict=True):
        names.setdefault(version, set()).add(query)
    return names
