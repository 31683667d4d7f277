"""The task of DAGs that sends alerts to owners of queries.

Imported while DAG files are parsed, so nothing heavy is imported here.
"""

from __future__ import annotations

import time
from typing import Any

from airflow.sdk import get_current_context, task


def alert_owners(after: Any) -> None:
    """Add the task ``alerts`` behind another task, however that ends. It never fails, so that it decides nothing about
    the run.
    """
    after >> send_to_owners.override(task_id="alerts")()


@task(trigger_rule="all_done")
def send_to_owners() -> list[str]:
    """Send the alerts that the warehouse has now; the ids of those that were sent.

    They go where ``HEDDLE_NOTIFY`` says, else the option ``notify`` in the section ``heddle`` of Airflow's
    configuration, else nowhere.
    """
    from airflow.sdk.configuration import conf

    from spark_jobs.operations.notify import send_alerts
    from spark_jobs.pipeline.planning.project_streams import of_project
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse.warehouse import Warehouse

    configured = settings()
    target = None if "notify" in configured.texts else conf.get("heddle", "notify", fallback=None)
    if ("notify" not in configured.texts and not target) or not Warehouse.stands(configured.warehouse):
        return []
    warehouse = Warehouse.open(configured.warehouse, create=False)
    warehouse = of_project(warehouse, configured.warehouse, configured.streams)
    passed = send_alerts(warehouse, time.time_ns() // 1000, target, get_current_context())
    for problem in passed.problems:
        print(problem)
    return [alert.id for alert in passed.sent]
