"""Keep the warehouse small: merge small files, drop and remove what nothing needs. Daily; changes no answer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, CronDataIntervalTimetable, Param, dag, get_current_context

from heddle.airflow.dag_set import DagSet
from heddle.airflow.runs import params_of


def maintain_warehouse(**arguments: Any) -> DAG:
    """The DAG, with the arguments of :meth:`heddle.airflow.dag_set.DagSet.of`."""
    dag_set = DagSet.of(**arguments)

    @dag(
        dag_id=dag_set.dag_id("maintain_warehouse"),
        schedule=CronDataIntervalTimetable("30 3 * * *", timezone="UTC"),
        start_date=pendulum.datetime(2013, 1, 1, tz="UTC"),
        catchup=False,
        max_active_runs=1,
        doc_md=__doc__,
        tags=["heddle"],
        default_args=dag_set.defaults(retries=2, retry_delay=timedelta(minutes=5)),
        params={
            "keep_days": Param(
                30, type="integer", minimum=0, description="partial aggregates beyond the longest window"
            ),
            "retention_days": Param(7, type="integer", minimum=1, description="before files that nothing refers to go"),
            "dry_run": Param(False, type="boolean", description="change nothing, show what would be done"),
        },
    )
    def maintenance() -> None:
        @dag_set.task()
        def maintain() -> dict[str, Any]:
            from spark_jobs.operations.maintenance import maintain
            from spark_jobs.store.settings import settings
            from spark_jobs.store.warehouse.warehouse import Warehouse

            params, configured = params_of(get_current_context()), settings()
            if not Warehouse.stands(configured.warehouse):
                return {}
            day = timedelta(days=1) // timedelta(microseconds=1)
            warehouse = Warehouse.open(configured.warehouse, create=False)
            maintained = maintain(
                warehouse, params["keep_days"] * day, params["retention_days"] * day, params["dry_run"], report=print
            )
            return maintained.to_json()

        maintain()

    return maintenance()
