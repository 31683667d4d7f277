"""The page "Sharing plan" in Airflow: the stored plan as a table, for users who are logged in.

A plugin's FastAPI routes have no authentication of their own, so this one asks for Airflow's user. The page
is plain HTML, made from the rows of ``sharing_plans`` without a JVM.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any

from airflow.plugins_manager import AirflowPlugin
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import HTMLResponse
from heddle_airflow import Settings

STYLE = """
:root { color-scheme: light dark; font: 14px/1.45 system-ui, sans-serif; }
body { margin: 1.5rem; max-width: 70rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.quiet { opacity: .7; }
"""  # noqa: E501


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
    """The page. Everything that came from a table is escaped: query and stream names are users' text."""
    if not rows:
        body = "<p>No plan yet. Trigger the DAG <b>refresh_sharing_plan</b>.</p>"
        return _document("Sharing plan", body)
    first = rows[0]
    trees: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        trees.setdefault(str(row["tree"]), []).append(row)
    facts = {
        "version": first["plan_version"],
        "created": f"{first['created_at']} by {first.get('created_by') or 'unknown'}",
        "reason": first.get("reason") or "",
        "algorithm": first["algorithm"],
        "cost model": first["cost_model"],
        "cost": _number(first["plan_cost"]),
        "cost, nothing shared": _number(first["no_share_cost"]),
        "cost, everything in one tree": _number(first["shared_cost"]),
        "queries": len(rows),
        "execution trees": len(trees),
    }
    head = "".join(f"<tr><th>{escape(k)}</th><td>{escape(str(v))}</td></tr>" for k, v in facts.items())
    lines = []
    for name, members in sorted(trees.items()):
        queries = ", ".join(escape(str(member["query"])) for member in members)
        lines.append(
            f"<tr><td>{escape(name)}</td><td>{escape(str(members[0]['stream']))}</td>"
            f"<td class=n>{len(members)}</td><td class=n>{_number(members[0].get('tree_cost'))}</td>"
            f"<td>{queries}</td></tr>"
        )
    body = (
        f"<table>{head}</table><h2>Execution trees</h2><table><tr><th>tree</th><th>stream</th>"
        f"<th class=n>queries</th><th class=n>cost</th><th>who shares</th></tr>{''.join(lines)}</table>"
    )
    return _document(f"Sharing plan, version {first['plan_version']}", body)


def _number(value: Any) -> str:
    return "" if value is None else f"{float(value):,.2f}"


def _document(title: str, body: str) -> str:
    return (
        f"<!doctype html><html lang=en><head><meta charset=utf-8><title>{escape(title)}</title>"
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )


def build_app() -> FastAPI:
    """The FastAPI app; every route asks for an authenticated Airflow user who may see the plan's DAG."""
    from airflow.api_fastapi.core_api.security import requires_access_dag

    may_see_plan = Depends(requires_access_dag("GET", param_dag_id="refresh_sharing_plan"))
    app = FastAPI(title="Heddle", dependencies=[may_see_plan])
    # No interactive documentation: those routes would not ask for a user.
    app.router.routes.clear()

    @app.get("/", response_class=HTMLResponse)
    def page(version: int | None = None) -> HTMLResponse:
        rows = plan_rows(str(Settings.of_environment().warehouse), version)
        if version is not None and not rows:
            raise HTTPException(404, f"there is no plan version {version}")
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
