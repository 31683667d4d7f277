"""The pages in Airflow: answers, the plan, its runs, its history, and a refresh by hand.

A plugin's FastAPI routes have no authentication of their own, so each of these requires Airflow's user with a
permission. The plan and its history need the permission to read the DAG ``refresh_sharing_plan``; answers, the
operating view and Data Docs the one to read the runs of ``aggregate_windows``; a refresh the one to trigger
``refresh_sharing_plan``. The pages are those of ``heddle serve`` (:mod:`heddle.pages.app`), made from the
warehouse's rows without a JVM.

A refresh, dry or not, is a run of the DAG that the user triggers here as by Airflow's own API. Planning reads
complete streams and takes seconds of CPU, which the api-server cannot spare. A worker has the environment in which
the plan will be applied, and Airflow limits the run, logs it and stores its outcome. Only an outcome that Airflow
stored can be applied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from airflow.plugins_manager import AirflowPlugin
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from heddle.pages import app as pages
from heddle.pages.app import HEADERS, Access, html

REFRESH, AGGREGATE = "refresh_sharing_plan", "aggregate_windows"

MOST_BYTES = 16_384
"""Most bytes of a form's body."""

MOST_RATES = 64
RECENT = 20
"""Refreshes that the form lists."""


def _warehouse() -> str:
    """The folder or URL of the tables."""
    from spark_jobs.store.settings import settings

    return settings().warehouse


# ------------------------------------------------------------------------------------------- refresh
def requested_conf(given: Mapping[str, str]) -> dict[str, Any]:
    """Convert the form's fields into the conf of the DAG. Raises HeddleError (HDL-112, HDL-552)."""
    from optimizer.errors.diagnostics import HeddleError, printable
    from optimizer.search.cost import COST_MODELS
    from optimizer.search.search import ALGORITHMS
    from spark_jobs.pipeline.planning.requested import parse_rates

    # what is refused is not repeated: it is somebody's text
    if given.get("algorithm") not in ALGORITHMS or given.get("cost_model") not in COST_MODELS:
        raise HeddleError("HDL-552", "there is no such search or cost model", "choose among those of the form")
    tolerance = given.get("tolerance", "").strip()
    if not re.fullmatch(r"\d{1,6}(\.\d{1,12})?", tolerance, re.ASCII):
        raise HeddleError("HDL-552", "the tolerance is no number of at least 0", "0.05 permits a plan 5 % dearer")
    lines = [line for line in given.get("rates", "").splitlines() if line.strip()]
    if len(lines) > MOST_RATES or any(len(line) > 200 for line in lines):
        raise HeddleError("HDL-552", f"more than {MOST_RATES} rates, or a line of more than 200 characters")
    rates = {name: float(rate) for name, rate in parse_rates(lines).items()}
    if not all(0 < rate < float("inf") for rate in rates.values()):
        raise HeddleError("HDL-552", "a rate is not above 0", "tuples per second, e.g. flights=0.02")
    return {
        "algorithm": given["algorithm"],
        "cost_model": given["cost_model"],
        "tolerance": float(tolerance),
        "rates": rates,
        "reason": printable(given.get("reason", "").strip(), 500),
        "allow_removals": given.get("allow_removals") == "yes",
        "dry_run": True,
    }


def applied(dry: Any) -> dict[str, Any]:
    """The conf that applies the outcome of a dry run. Raises HDL-553 if there is nothing to apply, HDL-551 if another
    plan is in force by now.
    """
    from optimizer.errors.diagnostics import HeddleError
    from spark_jobs.operations.read import check_in_force

    if dry is None or not dry.dry or dry.state != "success" or dry.outcome is None or not dry.outcome["changed"]:
        raise HeddleError("HDL-553", "this is no finished dry run that would change the plan", "make a dry run first")
    expected = int(dry.outcome["version"] or 0)
    check_in_force(_warehouse(), expected)
    as_shown = {"expected_version": expected, "expected_plan": dry.outcome["fingerprint"]}
    return dict(dry.conf) | {"dry_run": False} | as_shown


def _refresh_of(run: Any, outcome: Any, problem: Any) -> Any:
    """A run of the DAG as a value of the page."""
    from heddle.pages.refresh import Refresh

    state = str(getattr(run.state, "value", run.state))
    xcom = outcome if isinstance(outcome, dict) else None
    return Refresh(
        run.run_id, state, run.queued_at or run.run_after, run.triggering_user_name or "", run.conf or {}, xcom, problem
    )


def recent_refreshes(session: Any) -> list[Any]:
    """The newest runs of the DAG that plans."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    newest = select(DagRun).where(DagRun.dag_id == REFRESH).order_by(DagRun.id.desc()).limit(RECENT)
    return [_refresh_of(run, None, "") for run in session.scalars(newest)]


def refresh_of(session: Any, run_id: str) -> Any:
    """A run of the DAG that plans, with its outcome; None if there is none of that id."""
    from airflow.models.dagrun import DagRun
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    run = session.scalar(select(DagRun).where(DagRun.dag_id == REFRESH, DagRun.run_id == run_id))
    if run is None:
        return None
    statement = select(XComModel).where(
        XComModel.dag_id == REFRESH, XComModel.run_id == run_id, XComModel.task_id == "refresh"
    )
    xcoms = {xcom.key: XComModel.deserialize_value(xcom) for xcom in session.scalars(statement)}
    return _refresh_of(run, xcoms.get("return_value"), str(xcoms.get("problem") or ""))


def is_paused(session: Any) -> bool:
    """Return whether the DAG that plans is paused."""
    from airflow.models.dag import DagModel
    from sqlalchemy import select

    return bool(session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == REFRESH)))


def trigger(conf: dict[str, Any], user: Any, session: Any, request: Request) -> str:
    """Trigger the DAG as a user, as Airflow's own route does, and log it where that is logged; the run's id."""
    from airflow.api_fastapi.common.dagbag import create_dag_bag
    from airflow.api_fastapi.core_api.datamodels.dag_run import TriggerDAGRunPostBody
    from airflow.api_fastapi.core_api.routes.public.dag_run import trigger_dag_run
    from airflow.models import Log

    body = TriggerDAGRunPostBody(logical_date=None, conf=conf)
    run = trigger_dag_run(REFRESH, body, create_dag_bag(), user, session, request)
    name = user.get_name()
    extra = json.dumps({"method": "POST", "from": "sharing plan page", "conf": conf})
    session.add(Log("trigger_dag_run", None, name, name, extra, dag_id=REFRESH, run_id=run.run_id))
    session.flush()
    return str(run.run_id)


# ------------------------------------------------------------------------------------------- requests
def check_origin(request: Request) -> None:
    """Raise HDL-554 for a request that changes something and does not come from a page of this server.

    Browsers send Airflow's cookie with every request to this server. A browser also names the origin of a request.
    A request without an origin has to bring its own token, which no foreign page can.
    """
    from optimizer.errors.diagnostics import HeddleError

    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        fine = site == "same-origin"
    elif origin is not None:
        fine = bool(urlsplit(origin).netloc) and urlsplit(origin).netloc == request.headers.get("host")
    else:
        fine = request.headers.get("authorization", "").lower().startswith("bearer ")
    if not fine:
        raise HeddleError("HDL-554", "this request comes from another site", "open the page in Airflow and try again")


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form's body. Raises HDL-552 if it is larger than a form of ours can be, or not one."""
    from optimizer.errors.diagnostics import HeddleError

    wrong = HeddleError("HDL-552", f"this is no form of at most {MOST_BYTES:,} bytes", "use the page's form")
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise wrong
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise wrong
    try:
        fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, strict_parsing=True, max_num_fields=16)
    except ValueError:
        raise wrong from None
    return {name: values[-1] for name, values in fields.items()}


def build_app() -> FastAPI:
    """The FastAPI app; every route requires an authenticated Airflow user with a specific permission."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_dag

    def may(method: Any, dag: str, entity: Any = None) -> list[Any]:
        return [Depends(requires_access_dag(method, entity, param_dag_id=dag))]

    access = Access(plan=may("GET", REFRESH), runs=may("GET", AGGREGATE, DagAccessEntity.RUN))
    may_refresh = may("POST", REFRESH, DagAccessEntity.RUN)
    return pages.build_app(_warehouse, access, lambda app: _add_refresh(app, may_refresh))


def _add_refresh(app: FastAPI, may: list[Any]) -> None:
    """The routes of a refresh by hand."""
    from airflow.api_fastapi.common.db.common import _get_session
    from airflow.api_fastapi.core_api.security import get_user

    as_user, in_session, sent = Depends(get_user), Depends(_get_session, scope="function"), Depends(form_of)

    @app.get("/refresh", dependencies=may)
    def ask(run: str | None = None, session: Any = in_session) -> HTMLResponse:
        from heddle.pages import refresh

        if run is None:
            return html(refresh.form(recent_refreshes(session), paused=is_paused(session)))
        refresh_run = refresh_of(session, run) if len(run) <= 250 else None
        if refresh_run is None:
            raise HTTPException(404, "there is no such run")
        return html(refresh.outcome(refresh_run, _in_force()))

    @app.post("/refresh", dependencies=[*may, Depends(check_origin)])
    def dry_run(
        request: Request,
        form: Any = sent,
        user: Any = as_user,
        session: Any = in_session,
    ) -> Response:
        from heddle.pages import refresh
        from optimizer.errors.diagnostics import HeddleError

        try:
            conf = requested_conf(form)
        except HeddleError as error:
            page = refresh.form(recent_refreshes(session), form, error.diagnostic, is_paused(session))
            return html(page, 400)
        return _shown(trigger(conf, user, session, request))

    @app.post("/apply", dependencies=[*may, Depends(check_origin)])
    def apply(
        request: Request,
        form: Any = sent,
        user: Any = as_user,
        session: Any = in_session,
    ) -> Response:
        run = form.get("run", "")
        return _shown(trigger(applied(refresh_of(session, run[:250])), user, session, request))


def _shown(run_id: str) -> Response:
    return RedirectResponse(f"refresh?run={quote(run_id, safe='')}", 303, headers=HEADERS)


def _in_force() -> int:
    """The version of the plan in force, 0 if there is none."""
    from spark_jobs.operations.read import opened
    from spark_jobs.store.warehouse.plans import current_version

    warehouse = opened(_warehouse())
    return (current_version(warehouse) if warehouse is not None else None) or 0


class SharingPlanPlugin(AirflowPlugin):
    """The pages, in the navigation."""

    name = "heddle_sharing_plan"
    fastapi_apps = [{"app": build_app(), "url_prefix": "/sharing-plan", "name": "Heddle sharing plan"}]
    external_views = [
        {
            "name": name,
            "href": f"/sharing-plan/{page}",
            "destination": "nav",
            "category": "browse",
            "url_route": route,
        }
        for name, page, route in (
            ("Answers", "answers", "heddle-answers"),
            ("Sharing plan", "", "sharing-plan"),
            ("Sharing plan: operations", "operations", "sharing-plan-operations"),
        )
    ]
