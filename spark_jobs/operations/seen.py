"""Read what Spark did for one run: the record of the run, and Spark's event log."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark_jobs.engine.event_log import SeenApplication, read_event_log
from spark_jobs.operations.announcements import session_name
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class SeenRun:
    """One run as its newest row of the log has it. ``application``: its jobs in Spark's event log; None: there is
    no log. ``history``: the address of Spark's history server; None: there is none.
    """

    row: LogRow
    application: SeenApplication | None
    history: str | None

    @property
    def is_over(self) -> bool:
        """Return whether the run has an end in the log."""
        return self.row.event != "allocated"


def newest_row_of(warehouse: Warehouse, run_id: str, revision: int | None = None) -> LogRow | None:
    """The newest row of the log of a run, or of the newest run of a session; None if there is none.

    ``run_id``: of the run, or the id that Airflow gives to the run that is a session; ``revision``: of its interval.
    """
    of_run = ds.field("run_id") == run_id
    refreshes = pc.starts_with(ds.field("run_id"), pattern=f"{session_name(run_id)}/")
    condition = (ds.field("event") != "deleted") & (of_run | refreshes)
    if revision is not None:
        condition &= ds.field("revision") == revision
    return next(iter(publish_log.newest_rows(warehouse, "at", condition, 1)), None)


def read_run(warehouse: Warehouse, run_id: str, revision: int | None = None) -> SeenRun | None:
    """One run, with its jobs in Spark; None if there is no such run. Raises HDL-120 for a setting."""
    configured = settings()
    history, row = configured.spark_history, newest_row_of(warehouse, run_id, revision)
    if row is None:
        return None
    application, folder = row.record.application, configured.event_log
    seen = read_event_log(folder, application, row.run_id) if application and folder is not None else None
    return SeenRun(row, seen, history)
