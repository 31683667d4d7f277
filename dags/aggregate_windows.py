"""Compute, check and publish the answers of one data interval, pinned to the plan it started with.

Runs at the refreshes that the published schedule asks for (daily without ``SLIDE AT MOST``), over historic days by
Airflow's own backfill, and by hand for any interval (Params ``from`` and ``to``). Scheduled runs go on where the last
one ended; one that is late stands for all that it missed. Three tasks whatever the number of queries; one Spark session
for an interval.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import Param, PokeReturnValue, dag, get_current_context, task
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert
from airflow.sdk.exceptions import AirflowSkipException
from heddle_airflow import ANSWERS, RESULTS, AggregateOperator, interval_of, pinned_run
from heddle_timetable import NextRefresh, RefreshTimetable, overloaded

RETRY = {"retries": 2, "retry_delay": timedelta(seconds=30)}
INSTANT = {"type": ["null", "string"], "format": "date-time"}


@dag(
    schedule=RefreshTimetable(),
    deadline=DeadlineAlert(NextRefresh(), timedelta(0), AsyncCallback(overloaded), name="next refresh"),
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
    @task.sensor(mode="reschedule", poke_interval=60, timeout=timedelta(days=2).total_seconds())
    def pin_plan() -> PokeReturnValue:
        """Wait until late events have had their time, then pin the newest plan for all tries of this run."""
        from spark_jobs.settings import settings

        context = get_current_context()
        begin, end = interval_of(context)
        live = context["dag_run"].run_type == "scheduled"
        found = pinned_run(settings(), begin, end, live)
        if found == "covered":
            raise AirflowSkipException("an earlier run, which was late, has answered this interval")
        return PokeReturnValue(is_done=found is not None, xcom_value=found)

    @task(outlets=[RESULTS, ANSWERS], inlets=[ANSWERS])
    def report(pinned: dict[str, Any]) -> dict[str, Any]:
        """The record of the run that stands for this interval now, as XCom and as asset event; an event of each query
        that is an asset and has new answers."""
        from heddle_airflow import announce_run, published_record

        record, context = published_record(pinned), get_current_context()
        announce_run(context, pinned)
        context["outlet_events"][RESULTS].extra = {
            "from": pinned["from"],
            "to": pinned["to"],
            **{key: record[key] for key in ("plan_version", "revision", "answers", "run_id")},
        }
        return record

    pinned = pin_plan()
    aggregate = AggregateOperator(task_id="aggregate", name="heddle", conn_id="spark_default", pinned=pinned)
    aggregate >> report(pinned)


aggregate_windows()
