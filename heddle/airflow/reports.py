"""Reports of Heddle's tasks to Airflow: metrics by Airflow's own statistics, lineage for its provider of OpenLineage.

Both are of the runs that a task made, as the log has them, and neither fails a task: what goes wrong is a line of its
log (HDL-640).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from heddle.airflow.dag_set import project_environment

if TYPE_CHECKING:
    from spark_jobs.store.warehouse.publish_log import LogRow

CLOCKS = timedelta(minutes=1)
"""Most by which clocks of the hosts of a task and of its job differ."""

SWITCHES = ("statsd_on", "statsd_datadog_enabled", "otel_on")
"""Options of Airflow's section ``metrics``, each of which sends statistics somewhere."""

_log = logging.getLogger(__name__)


@dataclass
class TaskLineage:
    """Lineage of a task: the fields of the provider's ``OperatorLineage``, which it copies."""

    inputs: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    run_facets: dict[str, Any] = field(default_factory=dict)
    job_facets: dict[str, Any] = field(default_factory=dict)


class Reporting:
    """Base of the operators that make runs. ``runs_named``: how the ids of a task's runs begin; empty: with the id of
    the DAG run, of a session or not. ``project``: of the :class:`heddle.airflow.dag_set.DagSet`."""

    runs_named = ""
    project = ""

    def report_statistics(self, run_id: str, since: datetime) -> None:
        """Send the metrics of the runs since a moment."""
        try:
            if _are_statistics_on():
                _send(_runs_of(run_id, self.runs_named, since))
        except Exception:
            from optimizer.errors.diagnostics import Diagnostic

            problem = Diagnostic("HDL-640", "the metrics of this task were not sent", severity="warning")
            _log.warning("%s", problem, exc_info=True)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> TaskLineage:
        """Lineage of the task, also of one that failed. Airflow's provider of OpenLineage calls this by its name."""
        from spark_jobs.operations.lineage_delivery import datasets_of
        from spark_jobs.store.settings import settings
        from spark_jobs.store.warehouse.warehouse import Warehouse

        with project_environment(self.project):
            rows = _runs_of(task_instance.run_id, self.runs_named, task_instance.start_date)
            if not rows:
                return TaskLineage()
            return TaskLineage(*datasets_of(Warehouse.open(settings().warehouse, create=False), rows))


def _are_statistics_on() -> bool:
    from airflow.sdk.configuration import conf

    return any(conf.getboolean("metrics", switch, fallback=False) for switch in SWITCHES)


def _runs_of(run_id: str, named: str, since: datetime) -> list[LogRow]:
    """The rows of the log with the ends of a task's runs since a moment, oldest first."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    from spark_jobs.operations.announcements import session_name
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse import publish_log
    from spark_jobs.store.warehouse.warehouse import Warehouse

    place = settings().warehouse
    if not Warehouse.stands(place):
        return []
    own = pc.starts_with(ds.field("run_id"), pattern=named or f"{session_name(run_id)}/")
    if not named:
        own |= ds.field("run_id") == run_id
    ended = ds.field("event").isin(["published", "failed"]) & (ds.field("at") >= since - CLOCKS)
    return publish_log.rows(Warehouse.open(place, create=False), ended & own)


def _send(rows: Sequence[LogRow]) -> None:
    """Send the metrics of runs."""
    from airflow.sdk.observability import stats

    from spark_jobs.operations.scrape import STATISTICS, statistics_of
    from spark_jobs.store.settings import settings

    tags = {"warehouse": settings().warehouse.rstrip("/").rpartition("/")[2]}
    for row in rows:
        for name, value in statistics_of(row).items():
            if STATISTICS[name][0] == "counter":
                stats.incr(name, int(value), tags=tags)
            else:
                stats.gauge(name, value, tags=tags)
