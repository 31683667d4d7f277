"""The stored versions of the sharing plan."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import pyarrow.dataset as ds

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.plan.stored_rows import DECLARATION, from_rows
from optimizer.workload.values import ACQ, Stream, from_json
from spark_jobs.store.warehouse.data_files import reading
from spark_jobs.store.warehouse.places import located
from spark_jobs.store.warehouse.schemas import micros
from spark_jobs.store.warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class PlannedQuery:
    """A query in a version of the plan: by which tree it is answered, and why the version was made by whom, when
    (``created_at``, microseconds)."""

    plan_version: int
    query: str
    stream: str
    tree: str
    created_at: int
    created_by: str
    reason: str


def planned(warehouse: Warehouse, where: ds.Expression | None = None) -> list[PlannedQuery]:
    """The queries of all versions, or of those rows that meet a condition on the table's columns."""
    names = ["plan_version", "query", "stream", "tree", "created_at", "created_by", "reason"]
    with reading(warehouse.path("sharing_plans")):
        stored = warehouse.dataset("sharing_plans", where=where).to_table(names, filter=where).to_pylist()
    return [
        PlannedQuery(**row | {"created_at": micros(row["created_at"])} | {name: row[name] or "" for name in names[-2:]})
        for row in stored
    ]


def facts_of(warehouse: Warehouse, row: PlannedQuery) -> dict[str, Any]:
    """Facts that a version of the plan stores about one of its queries, and about itself
    (:mod:`optimizer.plan.stored_rows`).
    """
    chosen = (ds.field("plan_version") == row.plan_version) & (ds.field("query") == row.query)
    with reading(warehouse.path("sharing_plans")):
        stored = warehouse.dataset("sharing_plans", where=chosen).to_table(["row"], filter=chosen)
    return dict(json.loads(stored["row"][0].as_py()))


@dataclass
class PlannedDefinition:
    """A definition of a query, as it is stored, in some versions of the plan (``plan_versions``, ascending).
    ``fingerprint``: of the query as the plan has it.
    """

    fingerprint: str
    row: str
    plan_versions: list[int] = field(default_factory=list)

    @cached_property
    def query(self) -> ACQ:
        """The query of then."""
        query: ACQ = from_json(json.loads(json.loads(self.row)["query_definition"]))
        return query

    @property
    def stream(self) -> Stream:
        """Its stream of then."""
        stream: Stream = from_json(json.loads(json.loads(self.row)["stream_definition"]))
        return stream


_FINGERPRINT = re.compile(r'"query_fingerprint": "([0-9a-f]{16})"')
"""In a row as JSON: of texts within it the quotes are escaped."""


def definitions(warehouse: Warehouse, query: str | None = None) -> dict[str, list[PlannedDefinition]]:
    """All definitions that queries, or one of them, ever had in a version of the plan, by their names; the newest
    comes last.

    One pass over the table. Only what a definition needs is read: neither rows as JSON nor plans are built.
    """
    chosen = None if query is None else ds.field("query") == query
    scanner = warehouse.dataset("sharing_plans", where=chosen).scanner(["plan_version", "query", "row"], filter=chosen)
    known: dict[tuple[str, str], PlannedDefinition] = {}
    with reading(warehouse.path("sharing_plans")):
        for batch in scanner.to_batches():
            for version, name, row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                match = _FINGERPRINT.search(row)
                fingerprint = match[1] if match else json.loads(row)["query_fingerprint"]
                known.setdefault((name, fingerprint), PlannedDefinition(fingerprint, row)).plan_versions.append(version)
    by_name: dict[str, list[PlannedDefinition]] = {}
    for (name, _), definition in known.items():
        definition.plan_versions.sort()
        by_name.setdefault(name, []).append(definition)
    return {name: sorted(every, key=lambda each: each.plan_versions[-1]) for name, every in by_name.items()}


@lru_cache(64)
def _former_streams(warehouse: Warehouse, state: str, stream: str) -> tuple[Stream, ...]:
    condition = ds.field("stream") == stream
    with reading(warehouse.path("sharing_plans")):
        table = warehouse.dataset("sharing_plans", where=condition)
        first = table.head(1, columns=["row"], filter=ds.field("plan_version") == 1)
        if any(DECLARATION in row for row in first["row"].to_pylist()):
            return ()
        rows = (row for batch in table.to_batches(["row"], filter=condition) for row in batch["row"].to_pylist())
        declarations = dict.fromkeys(json.loads(row)["stream_definition"] for row in rows if DECLARATION not in row)
    return tuple(from_json(json.loads(declaration)) for declaration in declarations)


def former_streams(warehouse: Warehouse, stream: str) -> tuple[Stream, ...]:
    """Declarations of a stream, without repetition, in the plans from before there were declaration digests."""
    return _former_streams(warehouse, warehouse.state("sharing_plans"), stream)


def current_version(warehouse: Warehouse) -> int | None:
    """The newest plan version, or None."""
    return warehouse.latest_number("sharing_plans", "plan_version")


def load_plan(warehouse: Warehouse, version: int) -> SharingPlan:
    """A stored plan, with its streams where they lie now. Raises HDL-506 if there is no such version."""
    plan = _stored_plan(warehouse, warehouse.state("sharing_plans"), version)
    if plan is None:
        newest = current_version(warehouse)
        hint = "make one with `heddle run` or the DAG refresh_sharing_plan" if newest is None else f"newest: {newest}"
        raise HeddleError("HDL-506", f"there is no plan version {version} in {warehouse.place}", hint)
    return located(warehouse, plan)


@lru_cache(4)
def _stored_plan(warehouse: Warehouse, state: str, version: int) -> SharingPlan | None:
    """Return a plan as a state of the table has it. A run reads the same one several times."""
    condition = ds.field("plan_version") == version
    with reading(warehouse.path("sharing_plans")):
        stored = warehouse.dataset("sharing_plans", where=condition).to_table(columns=["row"], filter=condition)["row"]
    rows = [json.loads(row) for row in stored.to_pylist()]
    return from_rows(rows) if rows else None


RECENT = 3
"""Number of newest versions of the plan whose partial aggregates are kept: a changed plan reuses them."""


def recent_plans(warehouse: Warehouse) -> list[SharingPlan]:
    """The newest :data:`RECENT` plans, oldest first."""
    newest = current_version(warehouse) or 0
    return [load_plan(warehouse, version) for version in range(max(1, newest - RECENT + 1), newest + 1)]


def last_with(warehouse: Warehouse, names: Sequence[str]) -> list[SharingPlan]:
    """The newest plans that have queries of these names, oldest first."""
    versions = newest_versions(warehouse) if names else {}
    return [load_plan(warehouse, version) for version in sorted({versions[name] for name in names if name in versions})]


def newest_versions(warehouse: Warehouse) -> dict[str, int]:
    """The newest version of the plan that has each query."""
    versions: dict[str, int] = {}
    for row in warehouse.rows("sharing_plans", ["plan_version", "query"]):
        versions[row["query"]] = max(versions.get(row["query"], 0), row["plan_version"])
    return versions
