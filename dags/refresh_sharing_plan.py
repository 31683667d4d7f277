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
from airflow.sdk import CronDataIntervalTimetable, Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from heddle_airflow import PLAN, ViewsOperator, params_of

ALGORITHMS = ["best", "optimal", "weave-share", "no-share", "shared", "random", "insert-then-weave", "local-search"]


@dag(
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=pendulum.datetime(2013, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["heddle"],
    params={
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
    },
)
def refresh_sharing_plan() -> None:
    @task(retries=2, retry_delay=timedelta(seconds=20))
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

    @task(outlets=[PLAN], retries=2, retry_delay=timedelta(seconds=20))
    def announce(outcome: dict[str, Any]) -> dict[str, Any]:
        """The asset event of a new version. Skipped, and so without an event and views, if nothing was stored."""
        if outcome["dry_run"] or not outcome["changed"]:
            raise AirflowSkipException("the stored plan did not change")
        plan = outcome["plan"]
        get_current_context()["outlet_events"][PLAN].extra = {
            "plan_version": outcome["version"],
            "cost": plan["cost"],
            **plan["baselines"],
            "trees": len(plan["trees"]),
        }
        return {"plan_version": outcome["version"]}

    ViewsOperator(
        task_id="views",
        name="heddle views",
        conn_id="spark_default",
        announced=announce(refresh()),
        retries=2,
        retry_delay=timedelta(seconds=20),
    )


refresh_sharing_plan()
