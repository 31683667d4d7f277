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

The DAGs of another prefix have the same pages at ``/sharing-plan/in/<prefix>/``, with the permissions of those DAGs.
Which project a page is about is what the timetable of ``aggregate_windows`` says; Airflow stores it with the DAG.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount

from heddle.airflow.names import PREFIX
from heddle.pages import app as pages
from heddle.pages.app import HEADERS, Access, html

REFRESH, AGGREGATE = "refresh_sharing_plan", "aggregate_windows"
"""The DAGs, without a prefix."""

MOST_BYTES = 16_384
"""Most bytes of a form's body."""

MOST_RATES = 64
RECENT = 20
"""Refreshes that the form lists."""


MOST_SETS = 64
"""Prefixes whose pages are kept ready."""


# ----------------------------------------------------------------------------------------- warehouses
def warehouse_of(prefix: str) -> str:
    """The folder or URL of the tables of a set of DAGs. Makes its project that of this request
    (:func:`spark_jobs.store.settings.use_project`). Raises HTTPException (404) for a prefix of no DAG."""
    from spark_jobs.store.settings import settings, use_project

    project = project_of(prefix)
    if project is None and prefix:
        raise HTTPException(404, "there are no such DAGs")
    use_project(project or "")
    return settings().warehouse


def project_of(prefix: str) -> str | None:
    """The project that the DAGs of a prefix name, "" if they name none; None if there are no such DAGs."""
    from airflow.models.serialized_dag import SerializedDagModel

    stored = SerializedDagModel.get(f"{prefix}{AGGREGATE}")
    if stored is None or stored.data is None:
        return None
    timetable = stored.data["dag"].get("timetable", {}).get("__var", {})
    return str(timetable.get("project", ""))


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


def applied(prefix: str, dry: Any) -> dict[str, Any]:
    """The conf that applies the outcome of a dry run. Raises HDL-553 if there is nothing to apply, HDL-551 if another
    plan is in force by now.
    """
    from optimizer.errors.diagnostics import HeddleError
    from spark_jobs.operations.read import check_in_force

    if dry is None or not dry.dry or dry.state != "success" or dry.outcome is None or not dry.outcome["changed"]:
        raise HeddleError("HDL-553", "this is no finished dry run that would change the plan", "make a dry run first")
    expected = int(dry.outcome["version"] or 0)
    check_in_force(warehouse_of(prefix), expected)
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


def recent_refreshes(dag_id: str, session: Any) -> list[Any]:
    """The newest runs of a DAG that plans."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    newest = select(DagRun).where(DagRun.dag_id == dag_id).order_by(DagRun.id.desc()).limit(RECENT)
    return [_refresh_of(run, None, "") for run in session.scalars(newest)]


def refresh_of(dag_id: str, session: Any, run_id: str) -> Any:
    """A run of a DAG that plans, with its outcome; None if there is none of that id."""
    from airflow.models.dagrun import DagRun
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
    if run is None:
        return None
    statement = select(XComModel).where(
        XComModel.dag_id == dag_id, XComModel.run_id == run_id, XComModel.task_id == "refresh"
    )
    xcoms = {xcom.key: XComModel.deserialize_value(xcom) for xcom in session.scalars(statement)}
    return _refresh_of(run, xcoms.get("return_value"), str(xcoms.get("problem") or ""))


def is_paused(dag_id: str, session: Any) -> bool:
    """Return whether a DAG is paused."""
    from airflow.models.dag import DagModel
    from sqlalchemy import select

    return bool(session.scalar(select(DagModel.is_paused).where(DagModel.dag_id == dag_id)))


def trigger(dag_id: str, conf: dict[str, Any], user: Any, session: Any, request: Request) -> str:
    """Trigger a DAG as a user, as Airflow's own route does, and log it where that is logged; the run's id."""
    from airflow.api_fastapi.common.dagbag import create_dag_bag
    from airflow.api_fastapi.core_api.datamodels.dag_run import TriggerDAGRunPostBody
    from airflow.api_fastapi.core_api.routes.public.dag_run import trigger_dag_run
    from airflow.models import Log

    body = TriggerDAGRunPostBody(logical_date=None, conf=conf)
    run = trigger_dag_run(dag_id, body, create_dag_bag(), user, session, request)
    name = user.get_name()
    extra = json.dumps({"method": "POST", "from": "sharing plan page", "conf": conf})
    session.add(Log("trigger_dag_run", None, name, name, extra, dag_id=dag_id, run_id=run.run_id))
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


def airflow_app() -> FastAPI:
    """The FastAPI app; every route requires an authenticated Airflow user with a specific permission."""
    app = _app_of("")
    app.router.routes.append(Mount("/in/{prefix}", _of_prefix))
    return app


async def _of_prefix(scope: Any, receive: Any, send: Any) -> None:
    """The pages of the DAGs with the prefix that the address names: the app asks for their permissions."""
    prefix = scope["path_params"]["prefix"]
    is_prefix = re.fullmatch(PREFIX, prefix, re.ASCII)
    app: Any = _app_of(prefix) if is_prefix else PlainTextResponse("there are no such DAGs", 404)
    await app(scope, receive, send)


@lru_cache(MOST_SETS)
def _app_of(prefix: str) -> FastAPI:
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_dag

    def may(method: Any, dag: str, entity: Any = None) -> list[Any]:
        return [Depends(requires_access_dag(method, entity, param_dag_id=f"{prefix}{dag}"))]

    access = Access(plan=may("GET", REFRESH), runs=may("GET", AGGREGATE, DagAccessEntity.RUN))
    may_refresh = may("POST", REFRESH, DagAccessEntity.RUN)
    return pages.build_app(lambda: warehouse_of(prefix), access, lambda app: _add_refresh(app, prefix, may_refresh))


def _add_refresh(app: FastAPI, prefix: str, may: list[Any]) -> None:
    """The routes of a refresh by hand."""
    from airflow.api_fastapi.common.db.common import _get_session
    from airflow.api_fastapi.core_api.security import get_user

    as_user, in_session, sent = Depends(get_user), Depends(_get_session, scope="function"), Depends(form_of)
    dag_id = f"{prefix}{REFRESH}"

    @app.get("/refresh", dependencies=may)
    def ask(run: str | None = None, session: Any = in_session) -> HTMLResponse:
        from heddle.pages import refresh

        if run is None:
            return html(refresh.form(recent_refreshes(dag_id, session), paused=is_paused(dag_id, session)))
        refresh_run = refresh_of(dag_id, session, run) if len(run) <= 250 else None
        if refresh_run is None:
            raise HTTPException(404, "there is no such run")
        return html(refresh.outcome(refresh_run, _in_force(prefix)))

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
            page = refresh.form(recent_refreshes(dag_id, session), form, error.diagnostic, is_paused(dag_id, session))
            return html(page, 400)
        return _shown(trigger(dag_id, conf, user, session, request))

    @app.post("/apply", dependencies=[*may, Depends(check_origin)])
    def apply(
        request: Request,
        form: Any = sent,
        user: Any = as_user,
        session: Any = in_session,
    ) -> Response:
        conf = applied(prefix, refresh_of(dag_id, session, form.get("run", "")[:250]))
        return _shown(trigger(dag_id, conf, user, session, request))


def _shown(run_id: str) -> Response:
    return RedirectResponse(f"refresh?run={quote(run_id, safe='')}", 303, headers=HEADERS)


def _in_force(prefix: str) -> int:
    """The version of the plan in force, 0 if there is none."""
    from spark_jobs.operations.read import opened
    from spark_jobs.store.warehouse.plans import current_version

    warehouse = opened(warehouse_of(prefix))
    return (current_version(warehouse) if warehouse is not None else None) or 0
