"""The stored versions of the sharing plan."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow.dataset as ds

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.plan.stored_rows import from_rows
from spark_jobs.warehouse.warehouse import Warehouse


def current_version(warehouse: Warehouse) -> int | None:
    """The newest plan version, or None."""
    return max((row["plan_version"] for row in warehouse.rows("sharing_plans", ["plan_version"])), default=None)


def load_plan(warehouse: Warehouse, version: int) -> SharingPlan:
    """A stored plan. Raises HDL-506 if there is no such version."""
    mine = ds.field("plan_version") == version
    stored = warehouse.dataset("sharing_plans").to_table(columns=["row"], filter=mine)["row"]
    rows = [json.loads(row) for row in stored.to_pylist()]
    if not rows:
        newest = current_version(warehouse)
        hint = "make one with `heddle run` or the DAG refresh_sharing_plan" if newest is None else f"newest: {newest}"
        raise HeddleError("HDL-506", f"there is no plan version {version} in {warehouse.root}", hint)
    return from_rows(rows)


def last_with(warehouse: Warehouse, names: Sequence[str]) -> list[SharingPlan]:
    """The newest plans that have queries of these names, oldest first."""
    versions: dict[str, int] = {}
    if names:
        for row in warehouse.rows("sharing_plans", ["plan_version", "query"]):
            versions[row["query"]] = max(versions.get(row["query"], 0), row["plan_version"])
    return [load_plan(warehouse, version) for version in sorted({versions[name] for name in names if name in versions})]
