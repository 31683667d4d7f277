"""Compute, check and publish the answers of one data interval, pinned to the plan it started with.

Runs at the refreshes of the published schedule (daily without ``SLIDE AT MOST``), over historic days by Airflow's
own backfill, and by hand for any interval (Params ``from`` and ``to``). A scheduled run continues where the last
one ended; a late run covers all refreshes that it missed. It has four tasks for any number of queries, and one
Spark session for an interval.

With ``HEDDLE_SESSION`` a scheduled run is a session, whose one task publishes each refresh as it falls due, by the
plan in force then. Runs by hand and backfills do not change.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import Param, PokeReturnValue, dag, get_current_context, task
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert
from airflow.sdk.exceptions import AirflowSkipException
from heddle_airflow import (
    ANSWERS,
    REFRESHES,
    RESULTS,
    AggregateOperator,
    SessionOperator,
    announce_refreshes,
    interval_of,
    pinned_run,
    session_period,
)
from heddle_alerts import alert_owners
from heddle_timetable import NextRefresh, RefreshTimetable, overloaded

RETRY = {"retries": 2, "retry_delay": timedelta(seconds=30)}
GO_ON = {"retries": 5, "retry_delay": timedelta(seconds=5)}
"""Retries of a session's task: the session itself retries errors, so a task that ended was killed."""

SESSION = session_period()
INSTANT = {"type": ["null", "string"], "format": "date-time"}


@task(outlets=[REFRESHES, ANSWERS], inlets=[RESULTS, ANSWERS], trigger_rule="all_done")
def report_refreshes() -> list[dict[str, Any]]:
    """An asset event for each refresh that the session published, also if it failed in the end, and of each query that
    is an asset and has new answers."""
    return announce_refreshes(get_current_context())


@dag(
    schedule=RefreshTimetable(SESSION),
    deadline=DeadlineAlert(
        NextRefresh(SESSION is not None), timedelta(0), AsyncCallback(overloaded), name="next refresh"
    ),
    start_date=pendulum.datetime(2013, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["heddle"],
    default_args=RETRY,
    params={
        "from": Param(None, **INSTANT, description="begin of the event time to publish (by hand; UTC)"),
        "to": Param(
            None,
            **INSTANT,
            description="end of it; windows are published that end after `from`, not after `to`",
        ),
    },
)
def aggregate_windows() -> None:
    if SESSION is not None:
        session = SessionOperator(task_id="session", name="heddle", conn_id="spark_default", **GO_ON)
        # a run whose session failed has failed, whatever could be reported
        session >> [report_refreshes(), EmptyOperator(task_id="answered")]
        alert_owners(session)
        return

    @task.sensor(mode="reschedule", poke_interval=60, timeout=timedelta(days=2).total_seconds())
    def pin_plan() -> PokeReturnValue:
        """Wait until late events have had their time, then pin the newest plan for all tries of this run."""
        from spark_jobs.store.settings import settings

        context = get_current_context()
        begin, end = interval_of(context)
        live = context["dag_run"].run_type == "scheduled"
        pin = pinned_run(settings(), begin, end, live)
        if pin == "covered":
            raise AirflowSkipException("an earlier run, which was late, has answered this interval")
        return PokeReturnValue(is_done=pin is not None, xcom_value=pin)

    @task(outlets=[REFRESHES, ANSWERS], inlets=[RESULTS, ANSWERS])
    def report(pinned: dict[str, Any]) -> dict[str, Any]:
        """Return the record of the interval's newest publication. Emit the event of the publication, and an event of
        each query that is an asset and has new answers, unless they were emitted before."""
        from heddle_airflow import announce_results, announce_run, published_row

        row, context = published_row(pinned), get_current_context()
        announce_run(context, pinned)
        announce_results(context, [row])
        return row.stored_record

    pinned = pin_plan()
    aggregate = AggregateOperator(task_id="aggregate", name="heddle", conn_id="spark_default", pinned=pinned)
    aggregate >> report(pinned)
    alert_owners(aggregate)


aggregate_windows()
