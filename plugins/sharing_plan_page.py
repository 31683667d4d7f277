"""The page "Sharing plan" in Airflow: the stored plan, drawn, for users who are logged in.

A plugin's FastAPI routes have no authentication of their own, so this one asks for Airflow's user. The page
is plain HTML (:mod:`optimizer.plan_page`), made from the rows of ``sharing_plans`` without a JVM.
"""

from __future__ import annotations

import json
import re
from typing import Any

from airflow.plugins_manager import AirflowPlugin
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import HTMLResponse
from heddle_airflow import Settings

NO_PLAN = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Sharing plan</title>'
    "<style>:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; } body { margin: 2rem; }</style>"
    "</head><body><h1>Sharing plan</h1><p>No plan yet. Trigger the DAG <b>refresh_sharing_plan</b>.</p></body></html>"
)


def plan_rows(warehouse: str, version: int | None) -> list[dict[str, Any]]:
    """Rows of one stored plan version (None: the newest), each with its ``row`` read; [] if there is none."""
    from deltalake import DeltaTable

    path = f"{warehouse}/sharing_plans"
    if not DeltaTable.is_deltatable(path):
        return []
    table = DeltaTable(path)
    if version is None:
        numbers = table.to_pyarrow_table(columns=["plan_version"]).column("plan_version").to_pylist()
        if not numbers:
            return []
        version = max(numbers)
    found = table.to_pyarrow_table(filters=[("plan_version", "=", version)]).to_pylist()
    return [stored | json.loads(stored["row"]) for stored in found]


def render(rows: list[dict[str, Any]]) -> str:
    """The page of one stored plan. Everything that came from a table is escaped: names are users' text."""
    if not rows:
        return NO_PLAN
    from optimizer.plan import from_rows
    from optimizer.plan_page import page

    first = rows[0]
    about = {
        "version": str(first["plan_version"]),
        "made": f"{first['created_at']:%Y-%m-%d %H:%M} UTC",
        "by": first["created_by"] or "",
        "because": first["reason"] or "",
    }
    return page(from_rows(rows), about)


def build_app() -> FastAPI:
    """The FastAPI app; every route asks for an authenticated Airflow user who may see the plan's DAG."""
    from airflow.api_fastapi.core_api.security import requires_access_dag

    may_see_plan = Depends(requires_access_dag("GET", param_dag_id="refresh_sharing_plan"))
    app = FastAPI(title="Heddle", dependencies=[may_see_plan])
    # No interactive documentation: those routes would not ask for a user.
    app.router.routes.clear()

    @app.get("/", response_class=HTMLResponse)
    def page(version: str | None = None) -> HTMLResponse:
        # any text: FastAPI's own refusals repeat what they refuse, and a table's numbers have 64 bits
        asked = int(version) if version and re.fullmatch(r"[1-9]\d{0,17}", version, re.ASCII) else None
        rows = plan_rows(str(Settings.of_environment().warehouse), asked) if version is None or asked else []
        if version is not None and not rows:
            raise HTTPException(404, "there is no such plan version")
        policy = "default-src 'none'; style-src 'unsafe-inline'"
        return HTMLResponse(render(rows), headers={"Content-Security-Policy": policy})

    return app


class SharingPlanPlugin(AirflowPlugin):
    """The page, in the navigation and on every DAG."""

    name = "heddle_sharing_plan"
    fastapi_apps = [{"app": build_app(), "url_prefix": "/sharing-plan", "name": "Heddle sharing plan"}]
    external_views = [
        {
            "name": "Sharing plan",
            "href": "/sharing-plan/",
            "destination": "nav",
            "category": "browse",
            "url_route": "sharing-plan",
        },
    ]
