"""Compute, check and publish the answers of one data interval, pinned to the plan it started with.

Runs daily, over historic intervals by Airflow's own backfill, and by hand for any interval (Params ``from``
and ``to``). Three tasks whatever the number of queries; one Spark session for an interval.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import CronDataIntervalTimetable, Param, PokeReturnValue, dag, get_current_context, task
from heddle_airflow import RESULTS, AggregateOperator, Settings, interval_of

RETRY = {"retries": 2, "retry_delay": timedelta(seconds=30)}
INSTANT = {"type": ["null", "string"], "format": "date-time"}


@dag(
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=pendulum.datetime(2013, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["heddle"],
    default_args=RETRY,
    params={
        "from": Param(None, **INSTANT, description="begin of the event time to publish (by hand; UTC)"),
        "to": Param(None, **INSTANT, description="end of it; windows that end in (from, to] are published"),
    },
)
def aggregate_windows() -> None:
    @task.sensor(mode="reschedule", poke_interval=60, timeout=timedelta(days=2).total_seconds())
    def pin_plan() -> PokeReturnValue:
        """Wait until late events have had their time, then pin the newest plan for all tries of this run."""
        from spark_jobs.planning import current_version, watermark_delay
        from spark_jobs.tables import MARKER, Warehouse

        settings = Settings.of_environment()
        begin, end = interval_of(get_current_context())
        if pendulum.now("UTC") < end + timedelta(microseconds=watermark_delay(settings.streams)):
            return PokeReturnValue(is_done=False)
        # Only the plan's DAG creates the warehouse: two first runs at once would race for it.
        exists = (settings.warehouse / MARKER).exists()
        version = current_version(Warehouse.open(settings.warehouse, create=False)) if exists else None
        if version is None:
            print("no plan is stored yet: trigger refresh_sharing_plan")
            return PokeReturnValue(is_done=False)
        pinned = {"plan_version": version, "from": begin.isoformat(), "to": end.isoformat()}
        return PokeReturnValue(is_done=True, xcom_value=pinned)

    @task(outlets=[RESULTS])
    def report(pinned: dict[str, Any]) -> dict[str, Any]:
        """The record of the run that stands for this interval now, as XCom and as asset event."""
        from heddle_airflow import published_record

        record = published_record(pinned)
        get_current_context()["outlet_events"][RESULTS].extra = {
            "from": pinned["from"],
            "to": pinned["to"],
            **{key: record[key] for key in ("plan_version", "revision", "answers", "run_id")},
        }
        return record

    pinned = pin_plan()
    aggregate = AggregateOperator(task_id="aggregate", name="heddle", conn_id="spark_default", pinned=pinned)
    aggregate >> report(pinned)


aggregate_windows()
