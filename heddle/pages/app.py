"""The app of the pages: the same routes in Airflow (``plugins/sharing_plan_page.py``) and in ``heddle serve``.

It reads and never writes. The builder of the app decides who may see a page, and adds the routes that refresh the
plan if it can. Nothing heavy is imported before the first request: Airflow imports this wherever it loads plugins.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import HTMLResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException as StarletteHTTPException

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    # without a referrer browsers send no origin along with a form either
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

MOST_TEXT = 200
"""Characters of a text that is searched for, or of a name."""

MOST_RUN = 600
"""Characters of the id of a run."""


@dataclass(frozen=True)
class Access:
    """Conditions of requests, as FastAPI's dependencies: to see the plan and its history, and to see runs and answers.
    Empty: everybody who reaches the server.
    """

    plan: Sequence[Any] = ()
    runs: Sequence[Any] = ()


def build_app(
    warehouse: Callable[[], str], may: Access | None = None, refresh: Callable[[FastAPI], None] | None = None
) -> FastAPI:
    """The app of a warehouse's pages.

    ``warehouse``: returns its folder, called by each request; ``may``: who may see them, None: everybody;
    ``refresh``: adds the routes that refresh the plan, None: a page that explains how it is refreshed.
    """
    app, access = FastAPI(title="Heddle", dependencies=[] if refresh else [Depends(_only_read)]), may or Access()
    # No interactive documentation: those routes would not ask for a user.
    app.router.routes.clear()
    app.router.route_class = CodedRoute
    _add_plan(app, warehouse, access.plan)
    _add_answers(app, warehouse, access.runs)
    _add_runs(app, warehouse, access.runs)
    _add_metrics(app, warehouse, access.runs)
    (refresh or _add_no_refresh)(app)
    app.add_exception_handler(StarletteHTTPException, _unknown)
    return app


async def _only_read() -> None:
    """Note for the menu of a request's page that this server cannot refresh the plan."""
    from heddle.pages.render import CAN_REFRESH

    CAN_REFRESH.set(False)


async def _unknown(request: Request, error: Any) -> Response:
    """The page of an address that no page has; other errors of HTTP as they are."""
    if error.status_code != 404:
        return await http_exception_handler(request, error)
    from heddle.pages.render import render

    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return html(render("unknown.html.j2", home="../" * (path.count("/") - 1) or "./", reason=error.detail), 404)


def html(text: str | None, status: int = 200) -> HTMLResponse:
    """A page as an answer. Raises HTTPException (404) for None."""
    if text is None:
        raise HTTPException(404, "there is no such page")
    return HTMLResponse(text, status, headers=HEADERS)


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
                diagnostic = getattr(error, "diagnostic", None)
                if diagnostic is None:
                    raise
                from heddle.pages import refresh
                from optimizer.errors.codes import http_status

                is_form = request.url.path.rpartition("/")[2] in ("refresh", "apply")
                return html(refresh.refused(diagnostic, is_form), http_status(diagnostic.code))

        return handle


# ------------------------------------------------------------------------------------------------- routes
def _add_plan(app: FastAPI, warehouse: Callable[[], str], may: Sequence[Any]) -> None:
    """The plan and its history."""

    @app.get("/", dependencies=may)
    @app.get("/plan", dependencies=may)
    def plan(version: str | None = None, tree: str = "") -> HTMLResponse:
        from heddle.pages import served

        number = _version(version)
        return html(served.plan_html(warehouse(), number, tree))

    @app.get("/history", dependencies=may)
    def history(version: str | None = None) -> HTMLResponse:
        from heddle.pages import served

        return html(served.history_html(warehouse(), _version(version)))


def _add_answers(app: FastAPI, warehouse: Callable[[], str], may: Sequence[Any]) -> None:
    """Add the pages of answers."""

    @app.get("/answers", dependencies=may)
    def answers(q: str = "", owner: str = "", state: str = "", page: str = "1") -> HTMLResponse:
        from heddle.pages import served
        from spark_jobs.operations.series import Choice

        choice = Choice(q.strip()[:MOST_TEXT], owner, state, _number(page) or 1)
        return html(served.answers_html(warehouse(), choice))

    @app.get("/query", dependencies=may)
    def query(request: Request, name: str = "", span: str = "", to: str = "", group: str = "") -> HTMLResponse:
        from heddle.pages import served
        from heddle.pages.spans import span_of

        chosen = span_of(span, _moment(request.query_params.get("from", "")), _moment(to))
        return html(served.query_html(warehouse(), name, chosen, group))

    @app.get("/query-data", dependencies=may)
    def query_data(request: Request, name: str = "", to: str = "", format: str = "csv") -> Response:
        from heddle.pages import served
        from heddle.pages.spans import span_of

        form = "json" if format == "json" else "csv"
        chosen = span_of("", _moment(request.query_params.get("from", "")), _moment(to), "all")
        data = served.answers_data(warehouse(), name, chosen, form)
        file = re.sub(r"[^A-Za-z0-9_-]", "_", name[:MOST_TEXT])
        named = {"Content-Disposition": f'attachment; filename="{file}.{form}"'}
        return Response(data, headers=HEADERS | named, media_type={"csv": "text/csv"}.get(form, "application/json"))


def _add_runs(app: FastAPI, warehouse: Callable[[], str], may: Sequence[Any]) -> None:
    """Add the pages about runs."""

    @app.get("/operations", dependencies=may)
    def operations(look: str | None = None) -> HTMLResponse:
        from heddle.pages import served

        return html(served.operations_html(warehouse(), look == "1"))

    @app.get("/run", dependencies=may)
    def run(id: str = "", revision: str | None = None) -> HTMLResponse:
        from heddle.pages import served

        number = _number(revision)
        if revision is not None and number is None:
            raise HTTPException(404, "there is no such run")
        return html(served.run_html(warehouse(), id[:MOST_RUN], number))

    @app.get("/streams", dependencies=may)
    def streams(span: str = "") -> HTMLResponse:
        from heddle.pages import served
        from heddle.pages.spans import span_of

        return html(served.streams_html(warehouse(), span_of(span, None, None, "month")))

    @app.get("/trends", dependencies=may)
    def trends(span: str = "") -> HTMLResponse:
        from heddle.pages import served
        from heddle.pages.spans import span_of

        return html(served.trends_html(warehouse(), span_of(span, None, None, "month")))

    @app.get("/radius", dependencies=may)
    def radius(request: Request, to: str | None = None, revision: str | None = None) -> HTMLResponse:
        from heddle.pages import served

        begin, end = _micros(request.query_params.get("from")), _micros(to)
        number = _number(revision)
        if begin is None or end is None or number is None:
            raise HTTPException(404, "there is no such revision")
        return html(served.radius_html(warehouse(), begin, end, number))

    @app.get("/data-docs/{name}", dependencies=may)
    def data_docs(name: str) -> HTMLResponse:
        from heddle.pages import served

        return html(served.docs_html(warehouse(), name))


def _add_metrics(app: FastAPI, warehouse: Callable[[], str], may: Sequence[Any]) -> None:
    """Add the metrics that Prometheus scrapes."""

    @app.get("/metrics", dependencies=may)
    def metrics() -> Response:
        from spark_jobs.operations.metrics import CONTENT_TYPE
        from spark_jobs.operations.scrape import scraped

        text = scraped(warehouse(), time.time_ns() // 1000)
        return Response(text, headers=HEADERS | {"Content-Type": CONTENT_TYPE})


def _add_no_refresh(app: FastAPI) -> None:
    """Add a page that explains how the plan is refreshed if this server cannot."""

    @app.get("/refresh")
    def refresh() -> HTMLResponse:
        from heddle.pages.refresh import read_only

        return html(read_only())


# ----------------------------------------------------------------------------------------- what is given
def _number(text: str | None) -> int | None:
    """A version that a table may have; None for any other text."""
    # any text: FastAPI's own refusals repeat what they refuse, and a table's numbers have 64 bits
    return int(text) if text and re.fullmatch(r"[1-9]\d{0,17}", text, re.ASCII) else None


def _version(text: str | None) -> int | None:
    """The requested version; None if there is none. Raises HTTPException (404) for a text that is no version."""
    number = _number(text)
    if text is not None and number is None:
        raise HTTPException(404, "there is no such plan version")
    return number


def _micros(text: str | None) -> int | None:
    """Microseconds since the epoch; None for any other text."""
    return int(text) if text and re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else None


def _moment(text: str) -> int | None:
    """An instant as a form has it, in microseconds since the epoch (UTC); None for any other text."""
    from optimizer.workload.instants import instant_of_text

    shape = r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?"
    return instant_of_text(text) if re.fullmatch(shape, text, re.ASCII) else None
