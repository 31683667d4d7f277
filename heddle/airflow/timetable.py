"""Timetable of ``aggregate_windows``: it runs exactly at the instants of the published schedule.

Queries with a refresh bound (``SLIDE AT MOST``) make the schedule, which is stored with the plan. Without any such
query the DAG runs daily at midnight UTC; so do backfills, which cover history in whole days. Windows of queries
with a plain ``SLIDE`` are answered by the next run.

Nothing is cached between calls: the timetable reads the plan in force each time that Airflow requests the next run
(when a run is created, and when the DAG file is parsed again), so it survives restarts and changes with the plan.

With ``HEDDLE_SESSION`` a run is a session instead: one begins with each period of the clock, and answers each
refresh that falls due until it ends. Backfills go by days then as well.

Imported while DAG files are parsed: Heddle's packages are imported when the plan is read.
"""

from __future__ import annotations

import logging
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from typing import Any

import pendulum
from airflow.sdk.definitions.deadline import BaseDeadlineReference
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable

from heddle.airflow.runs import epoch_micros

log = logging.getLogger(__name__)


def _published(project: str) -> Any:
    """The schedules in force (:class:`spark_jobs.pipeline.planning.live_runs.ActiveSchedule`) of a project, or None
    without queries with a refresh bound."""
    # the scheduler and the api-server ask for several projects
    return copy_context().run(_published_of, project)


def _published_of(project: str) -> Any:
    from spark_jobs.pipeline.planning.live_runs import in_force
    from spark_jobs.store.settings import settings, use_project
    from spark_jobs.store.warehouse.warehouse import Warehouse

    use_project(project)
    warehouse = settings().warehouse
    if not Warehouse.stands(warehouse):
        return None
    active_schedule = in_force(Warehouse.open(warehouse, create=False))
    return active_schedule if active_schedule is not None and active_schedule.schedules else None


def _now() -> datetime:
    return datetime.now(UTC)


def _moment(micros: int) -> pendulum.DateTime:
    return pendulum.datetime(1970, 1, 1, tz="UTC").add(microseconds=micros)


class RefreshTimetable(CronDataIntervalTimetable):
    """Fires at the scheduled refreshes, each run once late events have had their time.

    A run's data interval is from the refresh before to its own. Runs that were missed (Airflow was down, or a run took
    longer than the time to the next) are not made up for one by one: the next run covers them
    (:func:`spark_jobs.pipeline.planning.live_runs.due`).

    ``session``: runs are sessions instead, as long as this. The data interval of one is its period of the clock, from
    which it begins with. One that was missed is not made up for: the next answers what had fallen due.

    ``project``: the folder of ``heddle.toml``; "": of the environment of the scheduler.
    """

    def __init__(self, session: timedelta | None = None, project: str = "") -> None:
        super().__init__("0 0 * * *", "UTC")
        self._session, self._project = session, project
        refreshes = "refreshes of the published schedule; daily without SLIDE AT MOST"
        self.description = (
            f"At the {refreshes}" if session is None else f"A session every {session}, for the {refreshes}"
        )

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> RefreshTimetable:
        """The timetable again, as :meth:`serialize` gave it away."""
        return cls(timedelta(seconds=data["session"]) if "session" in data else None, data.get("project", ""))

    def serialize(self) -> dict[str, Any]:
        """Length of sessions (seconds), if there are any, and the project, if it is named."""
        session = {} if self._session is None else {"session": round(self._session.total_seconds())}
        return session | ({"project": self._project} if self._project else {})

    @property
    def summary(self) -> str:
        return "published schedule" if self._session is None else f"a session every {self._session}"

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """The next run: what is due by the plan's schedules, or by the clock while there is no plan."""
        # Airflow asks for a backfill's runs as if the DAG caught up
        if self._session is not None and not restriction.catchup:
            return self._next_session(self._session, last_automated_data_interval, restriction)
        active_schedule = None if restriction.catchup else _published(self._project)
        if active_schedule is None:
            return super().next_dagrun_info(
                last_automated_data_interval=last_automated_data_interval, restriction=restriction
            )
        from optimizer.plan.instants_due import newest, next_tick

        after = epoch_micros(last_automated_data_interval.end) if last_automated_data_interval else 0
        earliest = epoch_micros(restriction.earliest) if restriction.earliest else 0
        complete = epoch_micros(_now()) - active_schedule.delay
        end = newest(active_schedule.schedules, complete)
        if end is None or end <= max(after, earliest):
            end = next_tick(active_schedule.schedules, max(after, earliest))
        if end is None:  # the lifetimes of all queries with a refresh bound are over
            return super().next_dagrun_info(
                last_automated_data_interval=last_automated_data_interval, restriction=restriction
            )
        if restriction.latest is not None and end > epoch_micros(restriction.latest):
            return None
        begin = max(after, newest(active_schedule.schedules, end - 1) or 0)
        interval = DataInterval(_moment(begin), _moment(end))
        return DagRunInfo(run_after=_moment(end + active_schedule.delay), data_interval=interval)

    def _next_session(
        self, session: timedelta, last: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        period, now = session // timedelta(microseconds=1), epoch_micros(_now())
        known = [
            epoch_micros(moment) for moment in (last.end if last else None, restriction.earliest) if moment is not None
        ]
        begin = max(now - now % period, *known, 0)
        if restriction.latest is not None and begin > epoch_micros(restriction.latest):
            return None
        interval = DataInterval(_moment(begin), _moment(begin - begin % period + period))
        return DagRunInfo(run_after=_moment(begin), data_interval=interval)


class NextRefresh(BaseDeadlineReference):
    """Due time of the run after a scheduled run: a run that is not done by then is late (overload). For a session,
    which reports its own refreshes, it is the due time of the first refresh after its end.
    """

    required_kwargs = {"dag_id", "run_id"}

    def __init__(self, of_session: bool = False, project: str = "") -> None:
        self._of_session, self._project = of_session, project

    def serialize_reference(self) -> dict[str, Any]:
        """The reference's name, whether it is of sessions, and the project."""
        return {"reference_type": self.reference_name, "of_session": self._of_session, "project": self._project}

    @classmethod
    def deserialize_reference(cls, reference_data: dict[str, Any]) -> NextRefresh:
        """The reference again."""
        return cls(reference_data.get("of_session", False), reference_data.get("project", ""))

    def _evaluate_with(self, *, session: Any, dag_id: str, run_id: str, **_: Any) -> datetime | None:
        from airflow.models.dagrun import DagRun
        from sqlalchemy import select

        statement = select(DagRun.data_interval_end).where(
            DagRun.dag_id == dag_id, DagRun.run_id == run_id, DagRun.run_type == "scheduled"
        )
        end, active_schedule = session.scalar(statement), _published(self._project)
        if end is None or active_schedule is None:
            return None
        following = active_schedule.due_after(epoch_micros(end) - (active_schedule.delay if self._of_session else 0))
        return None if following is None else _moment(following)


async def overloaded(**kwargs: Any) -> None:
    """Report a missed deadline: an error in the triggerer's log, in addition to the mark on the run's page."""
    run = kwargs.get("context", {}).get("dag_run", {})
    log.error(
        "%s is not done when the next refresh is due: the next run stands for all that are missed "
        "(heddle status shows how late queries are)",
        run.get("dag_run_id", "a run"),
    )
