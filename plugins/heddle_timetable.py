"""When ``aggregate_windows`` runs: at the instants that the published schedule asks for, and no others.

Queries with a refresh bound (``SLIDE AT MOST``) make the schedule, which is stored with the plan. Without any such
query the DAG runs daily at midnight UTC; so do backfills, which cover history in whole days. Windows of queries with
a plain ``SLIDE`` ride along with whatever run comes next.

Nothing is kept between calls: the timetable reads the plan in force each time that Airflow asks for the next run (when
a run is created, and when the DAG file is parsed again), so it survives restarts and changes with the plan.

Imported while DAG files are parsed: Heddle's packages are imported when the plan is read.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pendulum
from airflow.plugins_manager import AirflowPlugin
from airflow.sdk.definitions.deadline import BaseDeadlineReference
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable
from heddle_airflow import micros

log = logging.getLogger(__name__)


def _published() -> Any:
    """The schedules in force (:class:`spark_jobs.planning.live_runs.ActiveSchedule`), or None without queries with a
    refresh bound."""
    from spark_jobs.planning.live_runs import in_force
    from spark_jobs.settings import settings
    from spark_jobs.warehouse.warehouse import Warehouse

    warehouse = settings().warehouse
    if not Warehouse.stands(warehouse):
        return None
    found = in_force(Warehouse.open(warehouse, create=False))
    return found if found is not None and found.schedules else None


def _now() -> datetime:
    return datetime.now(UTC)


def _moment(micros: int) -> pendulum.DateTime:
    return pendulum.datetime(1970, 1, 1, tz="UTC").add(microseconds=micros)


class RefreshTimetable(CronDataIntervalTimetable):
    """Fires at the scheduled refreshes, each run once late events have had their time.

    A run's data interval is from the refresh before to its own. Runs that were missed (Airflow was down, or a run took
    longer than the time to the next) are not made up for one by one: the next run covers them
    (:func:`spark_jobs.planning.live_runs.due`).
    """

    def __init__(self) -> None:
        super().__init__("0 0 * * *", "UTC")
        self.description = "At the refreshes of the published schedule; daily without SLIDE AT MOST"

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> RefreshTimetable:
        """The timetable again; it has no settings."""
        return cls()

    def serialize(self) -> dict[str, Any]:
        """Nothing: the timetable has no settings."""
        return {}

    @property
    def summary(self) -> str:
        return "published schedule"

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """The next run: what is due by the plan's schedules, or by the clock while there is no plan."""
        # Airflow asks for a backfill's runs as if the DAG caught up
        found = None if restriction.catchup else _published()
        if found is None:
            return super().next_dagrun_info(
                last_automated_data_interval=last_automated_data_interval, restriction=restriction
            )
        from optimizer.plan.instants_due import newest, next_tick

        after = micros(last_automated_data_interval.end) if last_automated_data_interval else 0
        earliest = micros(restriction.earliest) if restriction.earliest else 0
        complete = micros(_now()) - found.delay
        end = newest(found.schedules, complete)
        if end is None or end <= max(after, earliest):
            end = next_tick(found.schedules, max(after, earliest))
        if end is None:  # the lifetimes of all queries with a refresh bound are over
            return super().next_dagrun_info(
                last_automated_data_interval=last_automated_data_interval, restriction=restriction
            )
        if restriction.latest is not None and end > micros(restriction.latest):
            return None
        begin = max(after, newest(found.schedules, end - 1) or 0)
        interval = DataInterval(_moment(begin), _moment(end))
        return DagRunInfo(run_after=_moment(end + found.delay), data_interval=interval)


class NextRefresh(BaseDeadlineReference):
    """When the run after a scheduled run is due: one that is not done by then is late (overload)."""

    required_kwargs = {"dag_id", "run_id"}

    def serialize_reference(self) -> dict[str, Any]:
        """The reference's name, which is all there is of it."""
        return {"reference_type": self.reference_name}

    @classmethod
    def deserialize_reference(cls, reference_data: dict[str, Any]) -> NextRefresh:
        """The reference again; it has no settings."""
        return cls()

    def _evaluate_with(self, *, session: Any, dag_id: str, run_id: str, **_: Any) -> datetime | None:
        from airflow.models.dagrun import DagRun
        from sqlalchemy import select

        from optimizer.plan.instants_due import next_tick

        mine = select(DagRun.data_interval_end).where(
            DagRun.dag_id == dag_id, DagRun.run_id == run_id, DagRun.run_type == "scheduled"
        )
        end, found = session.scalar(mine), _published()
        following = next_tick(found.schedules, micros(end)) if end is not None and found is not None else None
        return None if following is None else _moment(following + found.delay)


async def overloaded(**kwargs: Any) -> None:
    """What a missed deadline does: an error in the triggerer's log, beside the mark on the run's page."""
    run = kwargs.get("context", {}).get("dag_run", {})
    log.error(
        "%s is not done when the next refresh is due: the next run stands for all that are missed "
        "(heddle status shows how late queries are)",
        run.get("dag_run_id", "a run"),
    )


class TimetablePlugin(AirflowPlugin):
    """Registers both, so that the scheduler and the api-server can read serialized DAGs."""

    name = "heddle_timetable"
    timetables = [RefreshTimetable]
    deadline_references = [NextRefresh]
