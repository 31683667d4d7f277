"""A data contract of queries, in the form of the Open Data Contract Standard (ODCS) 3.1: ``heddle contract``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa
import yaml
from deltalake import Schema

from optimizer.errors.redaction import redacted
from optimizer.workload.instants import DAY
from optimizer.workload.urls import scheme_of
from spark_jobs.results.own_table import TableRequest
from spark_jobs.results.relations import Relation, Role, relations
from spark_jobs.results.table_rows import Definitions, columns_of
from spark_jobs.results.tables import table_requests
from spark_jobs.results.views import chosen_names, view_names
from spark_jobs.store.warehouse import registry
from spark_jobs.store.warehouse.plans import current_version
from spark_jobs.store.warehouse.warehouse import Warehouse

VERSION = "v3.1.0"

UNITS = (("day", DAY), ("hour", DAY // 24), ("minute", DAY // 1440), ("second", DAY // 86_400))
"""Units of time of service levels, in microseconds."""

LOGICAL = {"integer": "integer", "long": "integer", "double": "number", "boolean": "boolean", "date": "date"}
LOGICAL |= {"timestamp": "timestamp", "string": "string", "binary": "string"}
"""The logical types of Delta's types; a decimal is a number."""

REQUIRED: tuple[Role, ...] = ("time", "position", "revision")
"""Roles of columns that are never null."""

CHECKED = (
    "Before Heddle publishes an interval it checks every answer (types, nulls, repeated windows and groups, shape) and "
    "recomputes a sample of them directly from the events. A run with --checks sample or none does less, and is marked."
)


def contract(warehouse: Warehouse, names: Sequence[str] | None = None) -> str:
    """The contract, as YAML, of some queries or of all that are registered: types, nulls, uniqueness, checks, age of
    answers, owners, and where they are. It has no secrets. Raises HDL-507 for a query that no plan has known.
    """
    known = relations(warehouse)
    registered = registry.live_names(warehouse)
    chosen = chosen_names(known, names or [name for name in known if name in registered])
    tables = {request.query: request for request in table_requests(warehouse) if not request.removed}
    called, definitions = view_names(known, "duckdb"), Definitions(warehouse)
    objects = [_object(known[name], called[name], tables.get(name), definitions) for name in chosen]
    place = redacted(_place_of(warehouse))
    owners = {known[name].owner for name in chosen}
    team = {"team": {"name": owners.pop()}} if len(owners) == 1 and "" not in owners else {}
    data = {
        "apiVersion": VERSION,
        "kind": "DataContract",
        "id": str(uuid5(NAMESPACE_URL, " ".join([place, *chosen]))),
        "name": chosen[0] if len(chosen) == 1 else f"answers of {len(chosen)} queries",
        "version": f"{current_version(warehouse) or 0}.0.0",
        "status": "active",
        "description": {
            "purpose": "Answers of queries over windows of streams, computed by Heddle.",
            "limitations": "A late event changes published answers: their revision grows.",
        },
        **team,
        "servers": [_server(place)],
        "schema": objects,
        "slaProperties": [level for name in chosen for level in _levels(known[name])],
    }
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)


def _place_of(warehouse: Warehouse) -> str:
    return str(warehouse.place)


def _server(place: str) -> dict[str, Any]:
    scheme = scheme_of(place)
    if scheme is None:
        return {"server": "warehouse", "type": "local", "path": place, "format": "delta"}
    kind = {"s3": "s3", "s3a": "s3", "abfss": "azure", "abfs": "azure", "az": "azure"}.get(scheme, "custom")
    return {"server": "warehouse", "type": kind, "location": place, "format": "delta"}


def _object(relation: Relation, view: str, request: TableRequest | None, definitions: Definitions) -> dict[str, Any]:
    """A query as a table of the contract: its own Delta table if it has one, else its view."""
    definition = definitions.newest(relation.name) if request is not None else None
    grain = set(relation.grain)
    if request is None or definition is None:
        physical = {"physicalName": view, "physicalType": "view"}
        properties = [
            _property(field, column.description, column.role in REQUIRED)
            for field, column in zip(relation.schema, relation.columns, strict=True)
        ]
    else:
        physical = {"physicalName": request.name, "physicalType": "table"}
        fields = columns_of(definition)
        properties = [_property(field, _comment(field), not field.nullable) for field in fields]
        # the table calls a group column day_ that the view calls day
        grain = {f"{name}_" if name.lower() == "day" else name for name in grain}
        properties[-1] |= {"partitioned": True, "partitionKeyPosition": 1}
    owner = [{"property": "owner", "value": relation.owner}] if relation.owner else []
    return {
        "name": relation.name,
        **physical,
        "description": redacted(relation.text) or f"the query {relation.name}",
        "dataGranularityDescription": f"one row for each {', '.join(relation.grain)}",
        "properties": properties,
        "quality": [
            {
                "name": "no repeated rows",
                "type": "library",
                "metric": "duplicateValues",
                "arguments": {"properties": [each["name"] for each in properties if each["name"] in grain]},
                "mustBe": 0,
                "dimension": "uniqueness",
                "severity": "error",
            },
            {"name": "checked before publication", "type": "text", "description": CHECKED, "dimension": "accuracy"},
        ],
        "customProperties": [{"property": "stream", "value": relation.stream}, *owner],
    }


def _comment(field: pa.Field) -> str:
    return (field.metadata or {}).get(b"comment", b"").decode()


def _property(field: pa.Field, description: str, required: bool) -> dict[str, Any]:
    (column,) = Schema.from_arrow(pa.schema([field])).fields
    physical = str(column.type.type)
    return {
        "name": field.name,
        "logicalType": LOGICAL.get(physical, "number"),
        "physicalType": physical,
        "required": required,
        "description": description,
    }


def _levels(relation: Relation) -> list[dict[str, Any]]:
    """Promises of a query: how often a window ends, how old the newest may become. Windows of rows have none."""
    if relation.period is None:
        return []
    element = f"{relation.name}.window_end"
    promised = (
        ("frequency", relation.period, "time between the ends of two windows"),
        ("latency", relation.lateness, "how long the stream waits for events after a window has ended"),
        ("freshness", relation.period + relation.lateness, "age of the newest window_end, without the time of a run"),
    )
    return [
        {"property": name, **_duration(micros), "element": element, "description": about}
        for name, micros, about in promised
    ]


def _duration(micros: int) -> dict[str, Any]:
    unit, size = next(((unit, size) for unit, size in UNITS if micros % size == 0), UNITS[-1])
    return {"value": micros // size if micros % size == 0 else micros / size, "unit": unit}
