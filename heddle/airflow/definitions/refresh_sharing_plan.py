"""Register exactly the workload's folder, and recompute its cheapest sharing plan, daily or by hand.

Queries that are no longer in the folder are removed; their answers stay. If these are more than a tenth of all, and
at least three, or all that came from one file, nothing is changed unless `allow_removals` permits it: a folder that
is not mounted is no wish to remove queries. Emits the asset ``heddle://sharing_plan`` only when the stored plan
changed. With `HEDDLE_CATALOG_SCHEMA` set, every query then becomes a view there; views of queries that were removed
stay.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, CronDataIntervalTimetable, Param, dag, get_current_context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from heddle.airflow.dag_set import DagSet
from heddle.airflow.operators import ViewsOperator
from heddle.airflow.runs import params_of

ALGORITHMS = ["best", "optimal", "weave-share", "no-share", "shared", "random", "insert-then-weave", "local-search"]


PARAMS = {
    "algorithm": Param("best", enum=ALGORITHMS, description="search"),
    "cost_model": Param("paper", enum=["paper", "measured"], description="what a plan costs"),
    "rates": Param(
        {},
        type="object",
        additionalProperties={"type": "number", "exclusiveMinimum": 0},
        description='tuples per second that replace the measured ones, e.g. {"flights": 0.02}',
    ),
    "tolerance": Param(
        0.05,
        type="number",
        minimum=0,
        description="keep the plan in force while it costs at most this much more than a new one (0.05: 5 %)",
    ),
    "dry_run": Param(False, type="boolean", description="write nothing, show what would change"),
    "allow_removals": Param(
        False,
        type="boolean",
        description="remove queries that the folder has no more, however many they are",
    ),
    "expected_version": Param(
        None,
        type=["null", "integer"],
        minimum=0,
        description="refuse unless the plan in force has this version (0: there is none), as a dry run found it",
    ),
    "expected_plan": Param(
        None,
        type=["null", "string"],
        maxLength=100,
        description="refuse unless the plan found has this fingerprint, as a dry run told it",
    ),
    "reason": Param("", type="string", maxLength=500, description="kept with the plan"),
}


def refresh_sharing_plan(**arguments: Any) -> DAG:
    """The DAG, with the arguments of :meth:`heddle.airflow.dag_set.DagSet.of`."""
    dag_set = DagSet.of(**arguments)

    @dag(
        dag_id=dag_set.dag_id("refresh_sharing_plan"),
        schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
        start_date=pendulum.datetime(2013, 1, 1, tz="UTC"),
        catchup=False,
        max_active_runs=1,
        doc_md=__doc__,
        tags=["heddle"],
        default_args=dag_set.defaults(retries=2, retry_delay=timedelta(seconds=20)),
        params=PARAMS,
    )
    def planning() -> None:
        @dag_set.task()
        def refresh() -> dict[str, Any]:
            """Measure the streams, search the plan, store it as a new version if it differs."""
            from optimizer.errors.diagnostics import HeddleError
            from spark_jobs.operations.read import check_in_force
            from spark_jobs.pipeline.planning.refresh import refresh_plan
            from spark_jobs.store.settings import settings

            context = get_current_context()
            params, configured = params_of(context), settings()
            user, run_id = context["dag_run"].triggering_user_name, context["run_id"]
            created_by = f"{user}, {run_id}" if user else run_id
            try:
                check_in_force(configured.warehouse, params["expected_version"], created_by)
                outcome = refresh_plan(
                    warehouse=configured.warehouse,
                    workload=configured.workload_files(),
                    streams=configured.streams,
                    algorithm=params["algorithm"],
                    cost_model=params["cost_model"],
                    rates=params["rates"],
                    tolerance=params["tolerance"],
                    dry_run=params["dry_run"],
                    reason=params["reason"],
                    created_by=created_by,
                    expected=params["expected_version"],
                    expected_plan=params["expected_plan"],
                    allow_removals=params["allow_removals"],
                )
            except HeddleError as error:
                # the page that asked for the refresh shows it
                context["ti"].xcom_push("problem", str(error))
                if error.diagnostic.code in ("HDL-526", "HDL-528", "HDL-551", "HDL-560"):  # no retry changes that
                    raise AirflowFailException(str(error)) from error
                raise
            print("\n".join(outcome.diff))
            for problem in outcome.diagnostics:
                print(f"{problem.severity} {problem.code} {problem.message}")
            return outcome.to_json()

        @dag_set.task(outlets=[dag_set.plan])
        def announce(outcome: dict[str, Any]) -> dict[str, Any]:
            """The asset event of a new version. Skipped, and so without an event and views, if nothing was stored."""
            if outcome["dry_run"] or not outcome["changed"]:
                raise AirflowSkipException("the stored plan did not change")
            plan = outcome["plan"]
            get_current_context()["outlet_events"][dag_set.plan].extra = {
                "plan_version": outcome["version"],
                "cost": plan["cost"],
                **plan["baselines"],
                "trees": len(plan["trees"]),
            }
            return {"plan_version": outcome["version"]}

        ViewsOperator(
            task_id="views",
            announced=announce(refresh()),
            **dag_set.job("heddle views"),
        )

    return planning()
