"""The pages "Sharing plan" in Airflow: the plan, what its runs did, its history, and a refresh by hand.

A plugin's FastAPI routes have no authentication of their own, so each of these asks for Airflow's user and for what the
user may do: the plan and its history for reading the DAG ``refresh_sharing_plan``, the operating view and Data Docs for
reading the runs of ``aggregate_windows``, a refresh for triggering ``refresh_sharing_plan``. The pages are plain HTML
(:mod:`heddle.pages`), made from the warehouse's rows without a JVM.

A refresh, dry or not, is a run of the DAG that the user triggers here as by Airflow's own API: planning reads whole
streams and takes seconds of CPU, which the api-server has not to spare, a worker has the environment in which the plan
will be applied, and Airflow limits it, logs it and keeps its outcome. Only an outcome that Airflow kept can be applied.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from airflow.plugins_manager import AirflowPlugin
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute

REFRESH, AGGREGATE = "refresh_sharing_plan", "aggregate_windows"

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    # without a referrer browsers send no origin along with a form either
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

MOST_BYTES = 16_384
"""Of a form's body."""

MOST_RATES = 64
RECENT = 20
"""Refreshes that the form lists."""

_looking = threading.Lock()
"""Only one look at all sources at a time."""


def _warehouse() -> Path:
    """The folder of the tables."""
    from spark_jobs.settings import settings

    return settings().warehouse


def plan_rows(warehouse: str, version: int | None) -> list[dict[str, Any]]:
    """Rows of one stored plan version (None: the newest), each with its ``row`` read; [] if there is none."""
    import pyarrow.dataset as ds

    from spark_jobs.warehouse.data_files import LOG
    from spark_jobs.warehouse.warehouse import Warehouse

    house = Warehouse(Path(warehouse).absolute())
    if not (house.root / "sharing_plans" / LOG).is_dir():
        return []
    table = house.dataset("sharing_plans")
    if version is None:
        numbers = table.to_table(columns=["plan_version"]).column("plan_version").to_pylist()
        if not numbers:
            return []
        version = max(numbers)
    found = table.to_table(filter=ds.field("plan_version") == version).to_pylist()
    return [stored | json.loads(stored["row"]) for stored in found]


def render(rows: list[dict[str, Any]]) -> str:
    """The page of one stored plan."""
    from heddle.pages.plan import no_plan, page
    from optimizer.plan.stored_rows import from_rows

    if not rows:
        return no_plan()
    first = rows[0]
    about = {
        "version": str(first["plan_version"]),
        "made": f"{first['created_at']:%Y-%m-%d %H:%M} UTC",
        "by": first["created_by"] or "",
        "because": first["reason"] or "",
    }
    return page(from_rows(rows), about, in_menu=True)


def operations_page(look: bool) -> str:
    """The operating view of the warehouse; ``look``: also what is outdated. Raises HDL-555 while another looks."""
    from datetime import UTC, datetime

    from heddle.pages.operations import page
    from optimizer.errors.diagnostics import HeddleError
    from spark_jobs.operations.read import opened, read_operations
    from spark_jobs.operations.values import Operations

    warehouse = opened(_warehouse())
    if warehouse is None:
        return page(Operations(datetime.now(UTC)))
    if not look:
        return page(read_operations(warehouse))
    if not _looking.acquire(blocking=False):
        raise HeddleError("HDL-555", "somebody else is looking for outdated intervals", "try again in a moment")
    try:
        return page(read_operations(warehouse, look=True))
    finally:
        _looking.release()


def radius_page(begin: int, end: int, revision: int) -> str:
    """What one publication changed. Raises HDL-558 and HDL-559 if that is not known."""
    from heddle.pages.operations import radius
    from spark_jobs.operations.read import read_radius
    from spark_jobs.warehouse.warehouse import Warehouse

    warehouse = Warehouse.open(_warehouse(), create=False)
    return radius(read_radius(warehouse, begin, end, revision))


def history_page(shown: int | None) -> str | None:
    """The history of the plan; None if there is no version ``shown`` (None: the newest)."""
    from datetime import UTC, datetime

    from heddle.pages.history import page
    from spark_jobs.operations.read import change_of, opened, read_versions
    from spark_jobs.warehouse.plans import current_version

    warehouse = opened(_warehouse())
    newest = current_version(warehouse) if warehouse is not None else None
    if warehouse is None or newest is None:
        return page((), 0, 0, None, None, datetime.now(UTC)) if shown is None else None
    if shown is not None and shown > newest:
        return None
    versions, total = read_versions(warehouse)
    chosen = shown or newest
    return page(versions, total, newest, chosen, change_of(warehouse, chosen), datetime.now(UTC))


def docs_page(name: str) -> str | None:
    """A page of Data Docs; None if there is none of that name. Only names that runs give: never a path."""
    from heddle.pages.data_docs import page
    from spark_jobs.checks.data_docs import FOLDER, document_file, read_document

    file = document_file(_warehouse() / FOLDER, name)
    if file is None:
        return None
    # runs of earlier versions kept pages
    return file.read_text("utf-8", "replace") if file.suffix == ".html" else page(read_document(file))


# ------------------------------------------------------------------------------------------- refresh
def requested_conf(given: Mapping[str, str]) -> dict[str, Any]:
    """What the form asks of the DAG, as its conf. Raises HeddleError (HDL-112, HDL-552)."""
    from optimizer.errors.diagnostics import HeddleError, printable
    from optimizer.search.cost import COST_MODELS
    from optimizer.search.search import ALGORITHMS
    from spark_jobs.planning.requested import parse_rates

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
    """The conf that applies what a dry run found. Raises HDL-553 if there is nothing to be applied, HDL-551 if
    another plan is in force by now."""
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
    told = outcome if isinstance(outcome, dict) else None
    return Refresh(
        run.run_id, state, run.queued_at or run.run_after, run.triggering_user_name or "", run.conf or {}, told, problem
    )


def recent_refreshes(session: Any) -> list[Any]:
    """The newest runs of the DAG that plans."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    newest = select(DagRun).where(DagRun.dag_id == REFRESH).order_by(DagRun.id.desc()).limit(RECENT)
    return [_refresh_of(run, None, "") for run in session.scalars(newest)]


def refresh_of(session: Any, run_id: str) -> Any:
    """One run of the DAG that plans, with its outcome; None if there is none of that id."""
    from airflow.models.dagrun import DagRun
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    run = session.scalar(select(DagRun).where(DagRun.dag_id == REFRESH, DagRun.run_id == run_id))
    if run is None:
        return None
    told = select(XComModel).where(
        XComModel.dag_id == REFRESH, XComModel.run_id == run_id, XComModel.task_id == "refresh"
    )
    kept = {one.key: XComModel.deserialize_value(one) for one in session.scalars(told)}
    return _refresh_of(run, kept.get("return_value"), str(kept.get("problem") or ""))


def is_paused(session: Any) -> bool:
    """Whether the DAG that plans is paused."""
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
    told = json.dumps({"method": "POST", "from": "sharing plan page", "conf": conf})
    session.add(Log("trigger_dag_run", None, name, name, told, dag_id=REFRESH, run_id=run.run_id))
    session.flush()
    return str(run.run_id)


# ------------------------------------------------------------------------------------------- requests
def check_origin(request: Request) -> None:
    """Raises HDL-554 for a request that changes something and was not made by a page of this server.

    Airflow's cookie goes along with whatever a browser sends here. A browser says where a request comes from; what
    says nothing has to bring a token of its own, which no foreign page can.
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


def _html(text: str, status: int = 200) -> HTMLResponse:
    return HTMLResponse(text, status, headers=HEADERS)


def _number(text: str | None) -> int | None:
    """A version that a table may have; None for any other text."""
    # any text: FastAPI's own refusals repeat what they refuse, and a table's numbers have 64 bits
    return int(text) if text and re.fullmatch(r"[1-9]\d{0,17}", text, re.ASCII) else None


def _instant(text: str | None) -> int | None:
    """Microseconds since the epoch; None for any other text."""
    return int(text) if text and re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else None


class CodedRoute(APIRoute):
    """Answers a coded error (:class:`optimizer.errors.diagnostics.HeddleError`) with its page."""

    def get_route_handler(self) -> Callable[..., Any]:
        """The route's handler, whose coded errors become a page with their status."""
        answer = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await answer(request)
            except Exception as error:
                # the class itself would have to be imported wherever plugins are
                found = getattr(error, "diagnostic", None)
                if found is None:
                    raise
                from heddle.pages import refresh
                from optimizer.errors.codes import http_status

                return _html(refresh.refused(found), http_status(found.code))

        return handle


def build_app() -> FastAPI:
    """The FastAPI app; every route asks for an authenticated Airflow user with a permission of its own."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.common.db.common import _get_session
    from airflow.api_fastapi.core_api.security import get_user, requires_access_dag

    def may(method: Any, dag: str, entity: Any = None) -> list[Any]:
        return [Depends(requires_access_dag(method, entity, param_dag_id=dag))]

    see_plan, see_runs = may("GET", REFRESH), may("GET", AGGREGATE, DagAccessEntity.RUN)
    may_refresh = may("POST", REFRESH, DagAccessEntity.RUN)
    app = FastAPI(title="Heddle")
    # No interactive documentation: those routes would not ask for a user.
    app.router.routes.clear()
    app.router.route_class = CodedRoute
    as_user, in_session, sent = Depends(get_user), Depends(_get_session, scope="function"), Depends(form_of)

    @app.get("/", dependencies=see_plan)
    def page(version: str | None = None) -> HTMLResponse:
        number = _number(version)
        rows = plan_rows(str(_warehouse()), number) if version is None or number else []
        if version is not None and not rows:
            raise HTTPException(404, "there is no such plan version")
        return _html(render(rows))

    @app.get("/history", dependencies=see_plan)
    def versions(version: str | None = None) -> HTMLResponse:
        number = _number(version)
        found = history_page(number) if version is None or number else None
        if found is None:
            raise HTTPException(404, "there is no such plan version")
        return _html(found)

    @app.get("/operations", dependencies=see_runs)
    def operating(look: str | None = None) -> HTMLResponse:
        return _html(operations_page(look == "1"))

    @app.get("/radius", dependencies=see_runs)
    def changed(request: Request, to: str | None = None, revision: str | None = None) -> HTMLResponse:
        begin, end = _instant(request.query_params.get("from")), _instant(to)
        number = _number(revision)
        if begin is None or end is None or number is None:
            raise HTTPException(404, "there is no such revision")
        return _html(radius_page(begin, end, number))

    @app.get("/data-docs/{name}", dependencies=see_runs)
    def data_docs(name: str) -> HTMLResponse:
        found = docs_page(name)
        if found is None:
            raise HTTPException(404, "there is no such page")
        return _html(found)

    @app.get("/refresh", dependencies=may_refresh)
    def ask(run: str | None = None, session: Any = in_session) -> HTMLResponse:
        from heddle.pages import refresh

        if run is None:
            return _html(refresh.form(recent_refreshes(session), paused=is_paused(session)))
        found = refresh_of(session, run) if len(run) <= 250 else None
        if found is None:
            raise HTTPException(404, "there is no such run")
        return _html(refresh.outcome(found, _in_force()))

    @app.post("/refresh", dependencies=[*may_refresh, Depends(check_origin)])
    def dry_run(
        request: Request,
        given: Any = sent,
        user: Any = as_user,
        session: Any = in_session,
    ) -> Response:
        from heddle.pages import refresh
        from optimizer.errors.diagnostics import HeddleError

        try:
            conf = requested_conf(given)
        except HeddleError as error:
            found = refresh.form(recent_refreshes(session), given, error.diagnostic, is_paused(session))
            return _html(found, 400)
        return _shown(trigger(conf, user, session, request))

    @app.post("/apply", dependencies=[*may_refresh, Depends(check_origin)])
    def apply(
        request: Request,
        given: Any = sent,
        user: Any = as_user,
        session: Any = in_session,
    ) -> Response:
        run = given.get("run", "")
        return _shown(trigger(applied(refresh_of(session, run[:250])), user, session, request))

    return app


def _shown(run_id: str) -> Response:
    return RedirectResponse(f"refresh?run={quote(run_id, safe='')}", 303, headers=HEADERS)


def _in_force() -> int:
    """The version of the plan in force, 0 if there is none."""
    from spark_jobs.operations.read import opened
    from spark_jobs.warehouse.plans import current_version

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
            ("Sharing plan", "", "sharing-plan"),
            ("Sharing plan: operations", "operations", "sharing-plan-operations"),
        )
    ]
