"""Reads published answers as typed tables, without a JVM (delta-rs)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from optimizer.errors.diagnostics import HeddleError, meant
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import format_instant
from optimizer.workload.values import ACQ
from spark_jobs.results.rows import group_values, places, typed
from spark_jobs.warehouse import publish_log
from spark_jobs.warehouse.data_files import CHECKED, reading
from spark_jobs.warehouse.plans import current_version, load_plan, planned
from spark_jobs.warehouse.schemas import INSTANT
from spark_jobs.warehouse.warehouse import Warehouse

BESIDE = ("window_start", "window_end", "instant", "position", "error")
"""Columns that are read beside those of the query."""


def read(warehouse: Warehouse, query: str, begin: int | None = None, end: int | None = None) -> pa.Table:
    """The published answers of a query: ``window_start``, ``window_end`` (UTC), its group columns and outputs.

    Historical windows have the ``instant`` that they are the answer for as well, windows of rows the ``position`` of
    their first row. ``begin``, ``end``: only answers of instants in (begin, end], microseconds; the instant is the
    window's end unless it is historical. Rows are by instant, then group.
    Rows that an older definition of the query answered are returned as far as it had outputs of the same name and type.
    Raises HDL-507 for a query that no plan has known.
    """
    newest = current_version(warehouse)
    versions = range(newest or 0, 0, -1)
    definition = next((found for version in versions if (found := _definition(warehouse, version, query))), None)
    if definition is None:
        known = [found.name for found in load_plan(warehouse, newest).workload.queries] if newest else []
        hint = meant(query, known) or "no plan is stored: `heddle run` makes one"
        raise HeddleError("HDL-507", f"no plan knows a query {query}", hint)
    rows = _rows(warehouse, query, begin, end)
    tables = [typed_rows(definition, rows.slice(0, 0))]
    for answered, mine in _by_definition(warehouse, query, rows, definition):
        found = typed_rows(answered, mine)
        tables.append(found if answered.fingerprint == definition.fingerprint else _as(found, tables[0].schema))
    if any("error" in found.schema.names for found in tables):
        tables = [with_errors(found) for found in tables]
    table = pa.concat_tables(tables)
    order = ["window_end", *(["position"] if definition.window.is_rows else []), *group_names(definition)]
    return table.sort_by([(name, "ascending") for name in order])


def _by_definition(warehouse: Warehouse, query: str, rows: pa.Table, current: ACQ) -> Iterator[tuple[ACQ, pa.Table]]:
    """The rows of each definition that answered some; rows of before results had fingerprints by their plans."""
    for version in pc.unique(rows["plan_version"]).to_pylist():
        mine = rows.filter(pc.equal(rows["plan_version"], version))
        if pc.all(pc.fill_null(pc.equal(mine["fingerprint"], current.fingerprint), False)).as_py():
            yield current, mine
        elif (answered := _definition(warehouse, version, query)) is not None:
            yield answered, mine


def check_answered(warehouse: Warehouse, query: str, begin: int | None = None, end: int | None = None) -> None:
    """Say why a query has no answers of instants in (begin, end], unless it was answered and there are none.

    Raises HDL-547 if the last run that was to answer it failed, HDL-548 if there was none.
    """
    streams = {row.plan_version: row.stream for row in planned(warehouse, ds.field("query") == query)}
    runs = [
        row
        for row in publish_log.rows(warehouse)
        if row.event in ("published", "failed")
        and row.plan_version in streams
        and (begin is None or row.end > begin)
        and (end is None or row.begin < end)
    ]
    if not runs:
        span = "" if begin is None and end is None else " of this time"
        raise HeddleError("HDL-548", f"no run has answered {query}{span}", "`heddle run` or `heddle backfill` does")
    last = runs[-1]
    reasons = [diagnostic for diagnostic in last.record.diagnostics if diagnostic["query"] in ("", query)]
    by_itself = any(diagnostic["query"] == query for diagnostic in reasons)
    if last.event == "failed" or by_itself or streams[last.plan_version] in last.record.failed:
        why = f"{reasons[0]['code']} {reasons[0]['message']}" if reasons else "`heddle status` shows the run"
        span = f"{format_instant(last.begin)} .. {format_instant(last.end)}"
        message = f"the last run of {span} failed, so nothing was published for {query}: {why}"
        raise HeddleError("HDL-547", message, "run it again once that is mended")


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
        rows = warehouse.dataset("results").to_table(filter=chosen, fragment_scan_options=CHECKED)
    if "fingerprint" in rows.schema.names:
        return rows
    # an older warehouse that cannot be written to
    return rows.append_column("fingerprint", pa.nulls(len(rows), pa.string()))


def group_names(query: ACQ) -> list[str]:
    """The names of a query's group columns in its answers."""
    return [_own(name) for name in query.select or [name for name, _ in query.group_by]]


def _own(name: str) -> str:
    """What a column of a query's own is called: an earlier Heddle allowed names that answers have beside it."""
    return name + "_" if name.lower() in BESIDE else name


def typed_rows(query: ACQ, rows: pa.Table) -> pa.Table:
    """Stored answers under the query's own column names and types."""
    names = ["window_start", "window_end"]
    names += ["instant"] * bool(query.window.ago) + ["position"] * query.window.is_rows
    columns: dict[str, Any] = {name: rows[name] for name in names}
    values = group_values(rows["key"], len(query.group_by))
    for name, (_, type), texts in zip(group_names(query), query.group_by, values, strict=True):
        columns[name] = typed(texts, type)
    for output, (carrier, index) in zip(query.outputs, places(query), strict=True):
        columns[_own(output.name)] = typed(_element(rows[carrier], index), output.type)
    if pc.any(pc.is_valid(rows["error"])).as_py():
        columns["error"] = rows["error"]
    return pa.table(columns)


def _element(lists: pa.ChunkedArray, index: int) -> pa.ChunkedArray:
    return pc.list_element(lists, index) if len(lists) else pa.chunked_array([pa.array([], lists.type.value_type)])


def with_errors(table: pa.Table) -> pa.Table:
    """Answers with the column ``error``, null where there was none."""
    if "error" in table.schema.names:
        return table
    return table.append_column("error", pa.nulls(len(table), pa.string()))


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of a schema, with nulls for those that the table does not have, or has as something else."""
    columns = {
        field.name: table[field.name].cast(field.type)
        if field.name in table.schema.names and _holds(field.type, table.schema.field(field.name).type)
        else pa.nulls(len(table), field.type)
        for field in schema
    }
    return pa.table(columns, schema=schema)


def _holds(type: pa.DataType, other: pa.DataType) -> bool:
    """Whether every value of another type is one of this type: it is the same, or an exact one with fewer digits."""
    if type == other:
        return True
    if not pa.types.is_decimal(type):
        return False
    if pa.types.is_integer(other):
        return bool(type.precision - type.scale >= 19)
    return pa.types.is_decimal(other) and bool(
        type.scale >= other.scale and type.precision - type.scale >= other.precision - other.scale
    )
