"""Bring what topics of Kafka have now into the Delta tables that streams are read from, each record once. Every quarter
of an hour; skipped while the file `HEDDLE_TOPICS` names none.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import CronDataIntervalTimetable, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException
from heddle_airflow import LandOperator, params_of


@dag(
    schedule=CronDataIntervalTimetable("*/15 * * * *", timezone="UTC"),
    start_date=pendulum.datetime(2013, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["heddle"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
)
def land_topics() -> None:
    @task
    def topics() -> list[list[str]]:
        """The arguments of the job for each topic of the file; skipped if there are none."""
        from spark_jobs.store.settings import settings
        from spark_jobs.streams.landing.topics import jobs

        params_of(get_current_context())
        arguments = jobs(settings())
        if not arguments:
            raise AirflowSkipException(f"there are no topics: {settings().topics} is not there, or names none")
        return arguments

    # one after another: each has a Spark session of its own
    land = LandOperator.partial(task_id="land", name="heddle", conn_id="spark_default", max_active_tis_per_dagrun=1)
    land.expand(arguments=topics())


land_topics()
