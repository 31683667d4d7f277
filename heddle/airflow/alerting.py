"""The task that sends alerts to owners of queries."""

from __future__ import annotations

import time
from typing import Any

from airflow.sdk import get_current_context

from heddle.airflow.dag_set import DagSet


def alert_owners(dag_set: DagSet, after: Any) -> None:
    """Add the task ``alerts`` behind another task, however that ends. It never fails, so it decides nothing about the
    run.
    """

    @dag_set.task(trigger_rule="all_done")
    def alerts() -> list[str]:
        """Send the alerts that the warehouse has now; the ids of those that were sent."""
        return send_to_owners(get_current_context())

    after >> alerts()


def send_to_owners(context: Any) -> list[str]:
    """Send the alerts of the task's warehouse; the ids of those that were sent.

    They go where ``HEDDLE_NOTIFY`` says, else the option ``notify`` in the section ``heddle`` of Airflow's
    configuration, else nowhere.
    """
    from airflow.sdk.configuration import conf

    from spark_jobs.operations.notify import send_alerts
    from spark_jobs.pipeline.planning.project_streams import of_project
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse.warehouse import Warehouse

    configured = settings()
    is_set = "notify" in configured.texts
    target = None if is_set else conf.get("heddle", "notify", fallback=None)
    if not (is_set or target) or not Warehouse.stands(configured.warehouse):
        return []
    warehouse = Warehouse.open(configured.warehouse, create=False)
    warehouse = of_project(warehouse, configured.warehouse, configured.streams)
    passed = send_alerts(warehouse, time.time_ns() // 1000, target, context)
    for problem in passed.problems:
        print(problem)
    return [alert.id for alert in passed.sent]
