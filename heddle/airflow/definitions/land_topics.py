"""Bring what topics of Kafka have now, and new files of folders, into the Delta tables that streams are read from, each
record and each file once. Every quarter of an hour; skipped while the file `HEDDLE_TOPICS` names none.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, CronDataIntervalTimetable, dag, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from heddle.airflow.dag_set import DagSet
from heddle.airflow.operators import LandOperator
from heddle.airflow.runs import params_of


def land_topics(**arguments: Any) -> DAG:
    """The DAG, with the arguments of :meth:`heddle.airflow.dag_set.DagSet.of`."""
    dag_set = DagSet.of(**arguments)

    @dag(
        dag_id=dag_set.dag_id("land_topics"),
        schedule=CronDataIntervalTimetable("*/15 * * * *", timezone="UTC"),
        start_date=pendulum.datetime(2013, 1, 1, tz="UTC"),
        catchup=False,
        max_active_runs=1,
        doc_md=__doc__,
        tags=["heddle"],
        default_args=dag_set.defaults(retries=2, retry_delay=timedelta(seconds=30)),
    )
    def landing() -> None:
        @dag_set.task()
        def topics() -> list[list[str]]:
            """The arguments of the job for each topic of the file; skipped if there are none."""
            from spark_jobs.store.settings import settings
            from spark_jobs.streams.landing.topics import jobs

            params_of(get_current_context())
            job_arguments = jobs(settings())
            if not job_arguments:
                raise AirflowSkipException(f"there are no topics: {settings().topics} is not there, or names none")
            return job_arguments

        # one after another: each has a Spark session of its own
        land = LandOperator.partial(
            task_id="land",
            name="heddle",
            conn_id=dag_set.connection,
            project=dag_set.project,
            max_active_tis_per_dagrun=1,
        )
        land.expand(arguments=topics())

        @dag_set.task()
        def folders() -> list[dict[str, str]]:
            """The folders of the file; skipped if there are none."""
            from spark_jobs.store.settings import settings
            from spark_jobs.streams.landing.topics import folder_jobs

            params_of(get_current_context())
            folder_arguments = folder_jobs(settings())
            if not folder_arguments:
                raise AirflowSkipException(f"there are no folders: {settings().topics} is not there, or names none")
            return folder_arguments

        @dag_set.task(max_active_tis_per_dagrun=1)
        def land_files(folder: dict[str, str]) -> dict[str, Any]:
            """Land new files of a folder, without Spark."""
            from spark_jobs.streams.landing.folders import land_folder, raw_folder_of

            landed = land_folder(raw_folder_of(**folder), report=print)
            for diagnostic in landed.diagnostics:
                print(diagnostic)
            return landed.to_json()

        land_files.expand(folder=folders())

    return landing()
