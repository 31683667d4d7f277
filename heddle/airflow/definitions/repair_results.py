"""Publish intervals again whose source has changed since: late events, files that came or went. Hourly; costs no Spark
session while there are none.

Then announces what no run of `aggregate_windows` has: the new answers of queries that are assets, by repairs, by runs
outside Airflow, and by runs that failed after they had published.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronDataIntervalTimetable, Param, dag, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from heddle.airflow.alerting import alert_owners
from heddle.airflow.announcing import announce_others
from heddle.airflow.dag_set import DagSet
from heddle.airflow.operators import RepairOperator
from heddle.airflow.runs import params_of


def repair_results(**arguments: Any) -> DAG:
    """The DAG, with the arguments of :meth:`heddle.airflow.dag_set.DagSet.of`."""
    dag_set = DagSet.of(**arguments)

    @dag(
        dag_id=dag_set.dag_id("repair_results"),
        schedule=CronDataIntervalTimetable("20 * * * *", timezone="UTC"),
        start_date=pendulum.datetime(2013, 1, 1, tz="UTC"),
        catchup=False,
        max_active_runs=1,
        doc_md=__doc__,
        tags=["heddle"],
        default_args=dag_set.defaults(retries=2, retry_delay=timedelta(seconds=30)),
        params={"days": Param(7, type="number", exclusiveMinimum=0, description="of intervals that ended so lately")},
    )
    def repairs() -> None:
        @dag_set.task()
        def look() -> dict[str, Any]:
            """Compare sources with what was published; skipped, and so the repair, if nothing changed."""
            import time

            from spark_jobs.pipeline.planning.project_streams import of_project
            from spark_jobs.pipeline.run.history import outdated
            from spark_jobs.store.settings import settings
            from spark_jobs.store.warehouse.plans import current_version
            from spark_jobs.store.warehouse.warehouse import Warehouse

            configured, days = settings(), params_of(get_current_context())["days"]
            if not Warehouse.stands(configured.warehouse):
                raise AirflowSkipException("there is no warehouse yet")
            warehouse = Warehouse.open(configured.warehouse, create=False)
            warehouse, clock = of_project(warehouse, configured.warehouse, configured.streams), time.time_ns() // 1000
            day = timedelta(days=1) // timedelta(microseconds=1)
            stale = outdated(warehouse, clock, clock - round(days * day))
            if not stale:
                raise AirflowSkipException("everything published is of its sources as they are")
            for interval in stale:
                print(f"outdated: {interval}")
            return {"plan_version": current_version(warehouse), "days": days}

        @dag_set.task(outlets=[dag_set.answers], inlets=[dag_set.answers], trigger_rule="all_done")
        def report() -> list[dict[str, Any]]:
            """Announce new answers of queries that are assets, even if not everything could be repaired."""
            return announce_others(dag_set, get_current_context())

        repair = RepairOperator(task_id="repair", outdated=look(), **dag_set.job())
        # a run whose repair failed has failed, whatever could be reported
        repair >> [report(), EmptyOperator(task_id="repaired")]
        alert_owners(dag_set, repair)

    return repairs()
