"""Reads published answers as typed tables, without a JVM (delta-rs)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from optimizer.errors import HeddleError
from optimizer.query import ACQ
from optimizer.window import day_label
from spark_jobs.files import CHECKED, reading
from spark_jobs.planning import current_version, load_plan
from spark_jobs.results import group_values, places, typed
from spark_jobs.tables import INSTANT, Warehouse


def read(warehouse: Warehouse, query: str, begin: int | None = None, end: int | None = None) -> pa.Table:
    """The published answers of a query: ``window_start``, ``window_end`` (UTC), its group columns and outputs.

    Historical windows have the ``instant`` that they are the answer for as well, windows of rows the ``position`` of
    their first row. ``begin``, ``end``: only answers of instants in (begin, end], microseconds; the instant is the
    window's end unless it is historical. Rows are by instant, then group.
    Rows that an older definition of the query answered are returned as far as it had the same columns.
    Raises HDL-507 for a query that no plan has known.
    """
    newest = current_version(warehouse)
    versions = range(newest or 0, 0, -1)
    definition = next((found for version in versions if (found := _definition(warehouse, version, query))), None)
    if definition is None:
        known = sorted(found.name for found in load_plan(warehouse, newest).workload.queries) if newest else []
        raise HeddleError("HDL-507", f"no plan knows a query {query}", f"known: {', '.join(known[:20])}")
    rows = _rows(warehouse, query, begin, end)
    tables = [_typed(definition, rows.slice(0, 0))]
    for version in pc.unique(rows["plan_version"]).to_pylist():
        answered = _definition(warehouse, version, query)
        if answered is not None and answered.fingerprint == definition.fingerprint:
            tables.append(_typed(answered, rows.filter(pc.equal(rows["plan_version"], version))))
        elif answered is not None:
            older = _typed(answered, rows.filter(pc.equal(rows["plan_version"], version)))
            tables.append(_as(older, tables[0].schema))
    if any("error" in found.schema.names for found in tables):
        tables = [_with_errors(found) for found in tables]
    table = pa.concat_tables(tables)
    order = ["window_end", *(["position"] if definition.window.is_rows else []), *_group_names(definition)]
    return table.sort_by([(name, "ascending") for name in order])


def _definition(warehouse: Warehouse, version: int, query: str) -> ACQ | None:
    try:
        return load_plan(warehouse, version).workload.query(query)
    except StopIteration:
        return None


def _rows(warehouse: Warehouse, query: str, begin: int | None, end: int | None) -> pa.Table:
    chosen = ds.field("query") == query
    if begin is not None:
        chosen &= (ds.field("instant") > pa.scalar(begin, INSTANT)) & (ds.field("day") >= day_label(begin))
    if end is not None:
        chosen &= (ds.field("instant") <= pa.scalar(end, INSTANT)) & (ds.field("day") <= day_label(end - 1))
    with reading(warehouse.path("results")):
        return warehouse.dataset("results").to_table(filter=chosen, fragment_scan_options=CHECKED)


def _group_names(query: ACQ) -> list[str]:
    return list(query.select) if query.select else [name for name, _ in query.group_by]


def _typed(query: ACQ, rows: pa.Table) -> pa.Table:
    names = ["window_start", "window_end"]
    names += ["instant"] * bool(query.window.ago) + ["position"] * query.window.is_rows
    columns: dict[str, Any] = {name: rows[name] for name in names}
    values = group_values(rows["key"], len(query.group_by))
    for name, (_, type), texts in zip(_group_names(query), query.group_by, values, strict=True):
        columns[name] = typed(texts, type)
    for output, (carrier, index) in zip(query.outputs, places(query), strict=True):
        columns[output.name] = typed(_element(rows[carrier], index), output.type)
    if pc.any(pc.is_valid(rows["error"])).as_py():
        columns["error"] = rows["error"]
    return pa.table(columns)


def _element(lists: pa.ChunkedArray, index: int) -> pa.ChunkedArray:
    return pc.list_element(lists, index) if len(lists) else pa.chunked_array([pa.array([], lists.type.value_type)])


def _with_errors(table: pa.Table) -> pa.Table:
    if "error" in table.schema.names:
        return table
    return table.append_column("error", pa.nulls(len(table), pa.string()))


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = {
        field.name: table[field.name].cast(field.type)
        if field.name in table.schema.names
        else pa.nulls(len(table), field.type)
        for field in schema
    }
    return pa.table(columns, schema=schema)
