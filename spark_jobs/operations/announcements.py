"""New answers of queries that are assets, publication by publication, for the tasks that announce them.

Two tasks of Airflow announce. The log row of a publication decides which one does, so that they cannot both
announce it at the same time. A run of ``aggregate_windows`` announces its own publication, unless the run failed
(then no task follows, though it has published what it could). The hourly ``repair_results`` announces all others,
and those that are not announced after a day.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from optimizer.workload.instants import DAY, format_instant
from spark_jobs.store.warehouse import publish_log, registry
from spark_jobs.store.warehouse.plans import planned
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.registry import QueryEvent
from spark_jobs.store.warehouse.schemas import INSTANT
from spark_jobs.store.warehouse.warehouse import Warehouse

OTHER_RUNS = ("repair/", "cli/", "backfill/", "live/")
"""Prefixes of the names of runs that do not belong to the DAG ``aggregate_windows``."""

NEWS = 3 * DAY
"""Time after a publication (microseconds) during which Heddle checks whether it was announced."""


@dataclass(frozen=True)
class Announcement:
    """A publication (``at``, microseconds) that gave readers other answers of a query that is an asset.

    - ``first``: there were no answers of the query in the interval [begin, end) (microseconds);
    - ``answers``: their number;
    - ``windows``: the numbers of windows that were ``added``, ``removed`` or ``changed``;
    - ``late``: files that came or went and events that came since the interval was published before.

    None: not known, see :func:`announcements`.
    """

    query: str
    begin: int
    end: int
    revision: int
    plan_version: int
    run_id: str
    at: int
    answers: int
    first: bool | None
    windows: dict[str, int] | None
    late: dict[str, int] | None

    @property
    def key(self) -> tuple[str, str, str, int, str]:
        """Unique key of a publication; also of the ``extra`` of an event."""
        return key_of(self.extra)

    @property
    def extra(self) -> dict[str, Any]:
        """Content of the asset's event."""
        return {
            "query": self.query,
            "from": format_instant(self.begin),
            "to": format_instant(self.end),
            "revision": self.revision,
            "plan_version": self.plan_version,
            "run_id": self.run_id,
            "answers": self.answers,
            "first": self.first,
            "windows": self.windows,
            "late": self.late,
        }


def key_of(extra: dict[str, Any]) -> tuple[str, str, str, int, str]:
    """The publication and the query that the extra of an event is about."""
    return extra["query"], extra["from"], extra["to"], extra["revision"], extra["run_id"]


def of_run(warehouse: Warehouse, begin: int, end: int, run_id: str) -> list[Announcement]:
    """Announcements of a run of ``aggregate_windows`` for its interval; empty if the run had nothing to change."""
    rows = publish_log.rows_of_interval(warehouse, begin, end)
    return announcements(warehouse, (row for row in rows if row.run_id == run_id and not is_of_others(row)))


def session_name(run_id: str) -> str:
    """Prefix of the names of the runs that a session of the DAG ``aggregate_windows`` makes, one for each refresh."""
    return f"session/{run_id}"


def of_session(warehouse: Warehouse, run_id: str, clock: int) -> list[LogRow]:
    """Recent publications of a session of ``aggregate_windows`` (``clock``: now, microseconds), oldest first, with
    the record of each refresh.
    """
    own_runs = pc.starts_with(ds.field("run_id"), pattern=f"{session_name(run_id)}/")
    lately = ds.field("at") > pa.scalar(clock - NEWS, INSTANT)
    return publish_log.rows(warehouse, publish_log.PUBLISHED & lately & own_runs)


def of_others(warehouse: Warehouse, clock: int) -> list[Announcement]:
    """Publications in the :data:`NEWS` until now (``clock``, microseconds) that no run of ``aggregate_windows``
    announces, or had a day for.
    """
    lately = publish_log.PUBLISHED & (ds.field("at") > pa.scalar(clock - NEWS, INSTANT))
    rows = publish_log.rows(warehouse, lately)
    return announcements(warehouse, (row for row in rows if row.at < clock - DAY or is_of_others(row)))


def is_of_others(row: LogRow) -> bool:
    """Return whether ``repair_results`` announces a publication, whichever run made it."""
    return row.run_id.startswith(OTHER_RUNS) or row.record.has_failed


def announcements(warehouse: Warehouse, rows: Iterable[LogRow]) -> list[Announcement]:
    """Announcements of the publications among the rows of the log, oldest first.

    A query with the same answers as before has no announcement. If the process that published died before it
    recorded what changed, each query of its plan that was an asset then has one, without what changed.
    """
    announced: list[Announcement] = []
    events: list[QueryEvent] | None = None
    for row in sorted((row for row in rows if row.event == "published"), key=lambda row: row.at):
        if row.record.assets is None:
            events = registry.events(warehouse) if events is None else events
            announced += _of_unknown(warehouse, row, registry.assets(events, row.at))
            continue
        radius = row.record.radius
        late = None if radius is None else {name: radius[name] for name in ("files", "rows")}
        for query, change in row.record.assets.items():
            windows = {kind: change[was] for kind, was in _KINDS.items()}
            announced.append(_announcement(row, query, change["after"], change["before"] == 0, windows, late))
    return announced


_KINDS = {"added": "gained", "removed": "lost", "changed": "changed"}


def _of_unknown(warehouse: Warehouse, row: LogRow, names: Collection[str]) -> list[Announcement]:
    if not names:
        return []
    condition = (ds.field("plan_version") == row.plan_version) & ds.field("query").isin(sorted(names))
    counts = {plan_row.query: _answers(warehouse, row, plan_row.query) for plan_row in planned(warehouse, condition)}
    return [_announcement(row, query, counts[query], None, None, None) for query in sorted(counts)]


def _answers(warehouse: Warehouse, row: LogRow, query: str) -> int:
    begin, end = pa.scalar(row.begin, INSTANT), pa.scalar(row.end, INSTANT)
    chosen = (ds.field("query") == query) & (ds.field("instant") > begin) & (ds.field("instant") <= end)
    return int(warehouse.dataset("results", where=chosen).count_rows(filter=chosen))


def _announcement(
    row: LogRow,
    query: str,
    answers: int,
    first: bool | None,
    windows: dict[str, int] | None,
    late: dict[str, int] | None,
) -> Announcement:
    publication = (row.begin, row.end, row.revision, row.plan_version, row.run_id, row.at)
    return Announcement(query, *publication, answers, first, windows, late)
