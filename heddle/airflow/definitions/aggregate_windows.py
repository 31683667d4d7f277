"""Compute, check and publish the answers of one data interval, pinned to the plan it started with.

Runs at the refreshes of the published schedule (daily without ``SLIDE AT MOST``), over historic days by Airflow's
own backfill, and by hand for any interval (Params ``from`` and ``to``). A scheduled run continues where the last
one ended; a late run covers all refreshes that it missed. It has four tasks for any number of queries, and one
Spark session for an interval.

With ``HEDDLE_SESSION`` a scheduled run is a session, whose one task publishes each refresh as it falls due, by the
plan in force then. Runs by hand and backfills do not change.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param, dag, get_current_context
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert

from heddle.airflow.alerting import alert_owners
from heddle.airflow.announcing import announce_refreshes, announce_results, announce_run
from heddle.airflow.dag_set import DagSet
from heddle.airflow.operators import AggregateOperator, PinPlan, SessionOperator
from heddle.airflow.runs import published_row
from heddle.airflow.timetable import NextRefresh, RefreshTimetable, overloaded

RETRY = {"retries": 2, "retry_delay": timedelta(seconds=30)}
GO_ON = {"retries": 5, "retry_delay": timedelta(seconds=5)}
"""Retries of a session's task: the session itself retries errors, so a task that ended was killed."""

INSTANT = {"type": ["null", "string"], "format": "date-time"}


def aggregate_windows(**arguments: Any) -> DAG:
    """The DAG, with the arguments of :meth:`heddle.airflow.dag_set.DagSet.of`."""
    dag_set = DagSet.of(**arguments)
    is_session = dag_set.session is not None

    @dag(
        dag_id=dag_set.dag_id("aggregate_windows"),
        schedule=RefreshTimetable(dag_set.session, dag_set.project),
        deadline=DeadlineAlert(
            NextRefresh(is_session, dag_set.project), timedelta(0), AsyncCallback(overloaded), name="next refresh"
        ),
        start_date=pendulum.datetime(2013, 1, 1, tz="UTC"),
        catchup=False,
        max_active_runs=1,
        doc_md=__doc__,
        tags=["heddle"],
        default_args=dag_set.defaults(**RETRY),
        params={
            "from": Param(None, **INSTANT, description="begin of the event time to publish (by hand; UTC)"),
            "to": Param(
                None,
                **INSTANT,
                description="end of it; windows are published that end after `from`, not after `to`",
            ),
        },
    )
    def windows() -> None:
        if is_session:
            _in_sessions(dag_set)
        else:
            _run_by_run(dag_set)

    return windows()


def _in_sessions(dag_set: DagSet) -> None:
    @dag_set.task(
        outlets=[dag_set.refreshes, dag_set.answers],
        inlets=[dag_set.results, dag_set.answers],
        trigger_rule="all_done",
    )
    def report_refreshes() -> list[dict[str, Any]]:
        """An asset event for each refresh that the session published, also if it failed in the end, and of each query
        that is an asset and has new answers."""
        return announce_refreshes(dag_set, get_current_context())

    session = SessionOperator(task_id="session", **dag_set.job(), **GO_ON)
    # a run whose session failed has failed, whatever could be reported
    session >> [report_refreshes(), EmptyOperator(task_id="answered")]
    alert_owners(dag_set, session)


def _run_by_run(dag_set: DagSet) -> None:
    @dag_set.task(outlets=[dag_set.refreshes, dag_set.answers], inlets=[dag_set.results, dag_set.answers])
    def report(pinned: dict[str, Any]) -> dict[str, Any]:
        """Return the record of the interval's newest publication. Emit the event of the publication, and an event of
        each query that is an asset and has new answers, unless they were emitted before."""
        row, context = published_row(pinned), get_current_context()
        announce_run(dag_set, context, pinned)
        announce_results(dag_set, context, [row])
        return row.stored_record

    pinned = PinPlan(task_id="pin_plan", project=dag_set.project).output
    aggregate = AggregateOperator(task_id="aggregate", pinned=pinned, **dag_set.job())
    aggregate >> report(pinned)
    alert_owners(dag_set, aggregate)
