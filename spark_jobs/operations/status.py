"""Compute the output of ``heddle status``: the plan in force, its runs, published intervals, checks and lateness."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import pyarrow.dataset as ds

from optimizer.errors.diagnostics import Diagnostic
from optimizer.plan.definition import SharingPlan
from optimizer.plan.export import to_json
from optimizer.plan.rhythms import rhythms
from optimizer.workload.instants import format_instant
from spark_jobs.operations.fine_partials import DroppedFine, dropped_fine
from spark_jobs.pipeline.planning.query_files import MissingQuery, missing_queries
from spark_jobs.pipeline.run.declarations import OlderDeclaration, on_earlier_declarations
from spark_jobs.pipeline.run.dimensions import OlderVersion, on_older_versions
from spark_jobs.pipeline.run.release import BlockedAnswers, blocked_answers
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse import checks_log, publish_log, registry
from spark_jobs.store.warehouse.checks_log import CheckCounts
from spark_jobs.store.warehouse.data_files import reading
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.quarantine import LeftOut
from spark_jobs.store.warehouse.schemas import moment
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.clusters import far_warnings
from spark_jobs.streams.sources.ledger import ledger
from spark_jobs.streams.sources.untimed import standing_without_time, without_time_json

LOOKED_AT = 300
"""Number of the newest runs whose lateness is shown: a day of refreshes every five minutes."""


@dataclass(frozen=True)
class QueryLateness:
    """A query with a refresh bound, refreshed every ``average`` by its schedule: when it was ``answered`` last (0:
    never), in how many runs it was late, and by how much at most (all in microseconds)."""

    query: str
    bound: int
    average: Fraction
    answered: int
    latest: int
    late_runs: int

    def to_json(self) -> dict[str, Any]:
        """In seconds."""
        return {
            "query": self.query,
            "at_most_seconds": self.bound / 1e6,
            "every_seconds": float(self.average) / 1e6,
            "answered": format_instant(self.answered) if self.answered else None,
            "late_seconds": self.latest / 1e6,
            "late_runs": self.late_runs,
        }


@dataclass(frozen=True)
class WarehouseStatus:
    """The state of a warehouse.

    - ``runs``: the newest that ended, newest first;
    - ``intervals``: the number of published ones;
    - ``refreshes``: of every query with a refresh bound, over the newest :data:`LOOKED_AT` runs;
    - ``missing``: registered queries that the files they came from no longer have;
    - ``older``: the published intervals that rely on an earlier declaration of a stream;
    - ``on_older``: the published intervals whose answers use an older version of a dimension;
    - ``without_time``: events that no run can answer, by stream and file;
    - ``warnings``: events far from all others of their stream (HDL-475);
    - ``fine``: fine partial aggregates that are dropped, of each stream that has some;
    - ``problems``: problems of the tables;
    - ``blocked``: the answers that expectations keep unpublished.
    """

    root: Place
    plan_version: int
    plan: SharingPlan
    intervals: int
    checks: CheckCounts
    refreshes: tuple[QueryLateness, ...]
    runs: tuple[LogRow, ...]
    missing: tuple[MissingQuery, ...] = ()
    older: tuple[OlderDeclaration, ...] = ()
    on_older: tuple[OlderVersion, ...] = ()
    without_time: tuple[LeftOut, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    problems: tuple[Diagnostic, ...] = ()
    fine: tuple[DroppedFine, ...] = ()
    blocked: tuple[BlockedAnswers, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The fields as ``heddle status --json`` prints them."""
        fields = {
            "warehouse": str(self.root),
            "plan_version": self.plan_version,
            "plan_cost": to_json(self.plan)["cost"],
            "queries": len(self.plan.workload.queries),
            "trees": len(self.plan.trees),
            "intervals_published": self.intervals,
            "checks_passed": self.checks.passed,
            "checks_failed": self.checks.failed,
            "recomputed": {"queries": self.checks.recomputed, "different": self.checks.different},
            "refreshes": [refresh.to_json() for refresh in self.refreshes],
            **without_time_json(self.without_time),
            "runs": [row.stored_record | {"event": row.event, "at": logged_at(row)} for row in self.runs],
            **({"missing_queries": [asdict(query) for query in self.missing]} if self.missing else {}),
            **({"declared_otherwise": [interval.to_json() for interval in self.older]} if self.older else {}),
            **({"older_dimensions": [older.to_json() for older in self.on_older]} if self.on_older else {}),
            **({"blocked": [each.to_json() for each in self.blocked]} if self.blocked else {}),
            **({"warnings": [warning.to_json() for warning in self.warnings]} if self.warnings else {}),
            **({"fine_dropped": [fine.to_json() for fine in self.fine]} if self.fine else {}),
        }
        problems = [problem.to_json() for problem in self.problems]
        return fields | ({"problems": problems} if problems else {})


def logged_at(row: LogRow) -> str:
    """Time when a row was logged, in ISO 8601."""
    return str(moment(row.at).isoformat()).replace("+00:00", "Z")


def read_status(warehouse: Warehouse, last: int) -> WarehouseStatus:
    """The state of a warehouse, with its ``last`` runs. Raises HDL-506 if it has no plan."""
    version = current_version(warehouse) or 0
    plan = load_plan(warehouse, version)
    ended = ds.field("event").isin(["published", "failed"])
    runs = publish_log.newest_rows(warehouse, "at", ended, max(last, LOOKED_AT))
    published = [row for row in runs if row.event == "published"]
    with reading(warehouse.path("quality_results")):
        checks = checks_log.counts(warehouse)
    return WarehouseStatus(
        warehouse.place,
        version,
        plan,
        publish_log.intervals_published(warehouse),
        checks,
        tuple(_lateness(plan, published)),
        tuple(runs[:last]),
        tuple(missing_queries(registry.live(warehouse), queries=plan.workload.queries)),
        tuple(on_earlier_declarations(warehouse)),
        tuple(on_older_versions(warehouse, plan)),
        tuple(standing_without_time(warehouse)),
        tuple(_far(warehouse, plan)),
        (publish_log.lost_commits(lost).diagnostic,) if (lost := publish_log.lost_publications(warehouse)) else (),
        tuple(dropped_fine(warehouse, plan)),
        tuple(blocked_answers(warehouse)),
    )


def _far(warehouse: Warehouse, plan: SharingPlan) -> Iterator[Diagnostic]:
    """Warnings of events far from all others of their stream, of the streams of a plan."""
    for name in dict.fromkeys(tree.stream for tree in plan.trees):
        with reading(warehouse.path("source_files")):
            clusters = ledger(warehouse, name).clusters
        yield from far_warnings(name, clusters)


def _lateness(plan: SharingPlan, published: Sequence[LogRow]) -> list[QueryLateness]:
    """Time of the last answer of each query with a refresh bound, and its lateness."""
    records = [row.record for row in published]
    lateness = []
    for rhythm in (rhythm for schedule in plan.schedules for rhythm in rhythms(schedule)):
        answered = max((record.refreshed.get(rhythm.query, 0) for record in records), default=0)
        late = [record.lateness[rhythm.query] for record in records if rhythm.query in record.lateness]
        lateness.append(
            QueryLateness(rhythm.query, rhythm.bound, rhythm.average, answered, max(late, default=0), len(late))
        )
    return lateness
