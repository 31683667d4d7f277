"""Reads published answers as typed tables, without a JVM (delta-rs)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from optimizer.errors.diagnostics import HeddleError
from optimizer.synopses.synopsis import CARRIERS
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import format_instant
from optimizer.workload.values import ACQ
from spark_jobs.results.relations import Relation, RelationColumn, Slot, relation, slotted
from spark_jobs.results.rows import group_values, typed
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.data_files import reading
from spark_jobs.store.warehouse.plans import planned
from spark_jobs.store.warehouse.schemas import INSTANT
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.expressions import arrow_type


def read(
    warehouse: Warehouse, query: str, begin: int | None = None, end: int | None = None, full: bool = False
) -> pa.Table:
    """The published answers of a query: ``window_start``, ``window_end`` (UTC), its group columns and outputs, and
    ``error`` if an answer could not be given; ``full``: all columns of its relation, ``revision`` and ``error`` too.

    Historical windows have the ``instant`` that they are the answer for as well, windows of rows the ``position`` of
    their first row. ``begin``, ``end``: only answers of instants in (begin, end], microseconds; the instant is the
    window's end unless it is historical. Rows are by instant, then group.
    Rows that an older definition of the query answered are returned as far as it had outputs of the same name and type.
    Raises HDL-507 for a query that no plan has known.
    """
    # of before the plans are read: whatever answered a row was planned earlier
    rows = _rows(warehouse, query, begin, end)
    table = _related(relation(warehouse, query), rows)
    return table if full else _plain(table)


def read_version(
    warehouse: Warehouse, known: Relation, results: DeltaTable, begin: int | None = None, end: int | None = None
) -> pa.Table:
    """All columns of a relation, as :func:`read` has them, from a version of the results that it is for."""
    return _related(known, _rows(warehouse, known.name, begin, end, results))


def _related(known: Relation, rows: pa.Table) -> pa.Table:
    """Stored rows of a query as its relation has them, in order."""
    tables = [known.schema.empty_table()]
    for arrangement in known.arrangements:
        marked = pc.is_in(rows["fingerprint"], pa.array(arrangement.fingerprints, pa.string()))
        unmarked = pc.is_in(rows["plan_version"], pa.array(arrangement.plan_versions, pa.int64()))
        chosen = rows.filter(pc.if_else(pc.is_null(rows["fingerprint"]), unmarked, marked))
        if len(chosen):
            tables.append(shaped(list(zip(known.columns, arrangement.slots, strict=True)), chosen))
    return _sorted(known.columns, pa.concat_tables(tables))


def newest_windows(answers: pa.Table, most: int) -> pa.Table:
    """The answers of the newest windows, at most ``most`` windows, newest first; those of one window in the order
    of groups.
    """
    name = "instant" if "instant" in answers.column_names else "window_end"
    ends = pc.unique(answers[name])
    if len(ends) > most:
        first = ends.take(pc.sort_indices(ends, sort_keys=[("", "descending")])[most - 1 : most])[0]
        answers = answers.filter(pc.greater_equal(answers[name], first))
    # Arrow's sort is stable
    return answers.take(pc.sort_indices(answers, sort_keys=[(name, "descending")]))


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
    by_itself = any(
        diagnostic["query"] == query and diagnostic["severity"] == "error" for diagnostic in last.record.diagnostics
    )
    by_itself |= query in last.record.blocked
    reasons = _reasons(last.record.diagnostics, query, streams[last.plan_version])
    if last.event == "failed" or by_itself or streams[last.plan_version] in last.record.failed:
        why = f"{reasons[0]['code']} {reasons[0]['message']}" if reasons else "`heddle status` shows the run"
        span = f"{format_instant(last.begin)} .. {format_instant(last.end)}"
        message = f"the last run of {span} failed, so nothing was published for {query}: {why}"
        raise HeddleError("HDL-547", message, "run it again once that is mended")


def _reasons(diagnostics: Sequence[dict[str, Any]], query: str, stream: str) -> list[dict[str, Any]]:
    """Diagnostics of a run that explain why a query has no answers: those of the query, then of its stream, then of
    no stream. Those of other streams are no reason.
    """
    errors = [diagnostic for diagnostic in diagnostics if diagnostic["severity"] == "error"]
    of_query = [error for error in errors if error["query"] == query]
    general = [error for error in errors if not error["query"]]
    of_stream = [error for error in general if error["message"].startswith((f"stream {stream}:", f"stream {stream} "))]
    of_no_stream = [error for error in general if not error["message"].startswith("stream ")]
    return [*of_query, *of_stream, *of_no_stream]


def partly_checked(
    warehouse: Warehouse, query: str, begin: int | None = None, end: int | None = None
) -> list[dict[str, str]]:
    """The published intervals with instants in (begin, end] whose answers to a query were not all checked: ``begin``,
    ``end`` and which ``checks`` were made, oldest first."""
    rows = publish_log.unchecked(warehouse, begin, end)
    versions = {row.plan_version for row in planned(warehouse, ds.field("query") == query)} if rows else set()
    return [
        {"begin": format_instant(row.begin), "end": format_instant(row.end), "checks": row.record.checked}
        for row in rows
        if row.plan_version in versions
    ]


def rows_condition(query: str, begin: int | None, end: int | None) -> ds.Expression:
    """The condition of a query's stored rows of instants in (begin, end]."""
    chosen = ds.field("query") == query
    if begin is not None:
        chosen &= (ds.field("instant") > pa.scalar(begin, INSTANT)) & (ds.field("day") >= day_label(begin))
    if end is not None:
        chosen &= (ds.field("instant") <= pa.scalar(end, INSTANT)) & (ds.field("day") <= day_label(end - 1))
    return chosen


def _rows(
    warehouse: Warehouse, query: str, begin: int | None, end: int | None, results: DeltaTable | None = None
) -> pa.Table:
    chosen = rows_condition(query, begin, end)
    with reading(warehouse.path("results")):
        table = warehouse.dataset("results", results, chosen)
        rows = table.to_table(filter=chosen)
    if "fingerprint" in rows.schema.names:
        return rows
    # an older warehouse that cannot be written to
    return rows.append_column("fingerprint", pa.nulls(len(rows), pa.string()))


def typed_rows(query: ACQ, rows: pa.Table) -> pa.Table:
    """Stored answers of one definition of a query under its names and types, in the order of the rows; of a run or a
    look-up, without the columns that publication adds."""
    return _plain(shaped([(column, slot) for column, slot in slotted(query) if column.role != "revision"], rows))


def typed_answers(query: ACQ, rows: pa.Table) -> pa.Table:
    """The same, in the order in which :func:`read` gives answers."""
    return _sorted([column for column, _ in slotted(query)], typed_rows(query, rows))


def shaped(columns: Sequence[tuple[RelationColumn, Slot | None]], rows: pa.Table) -> pa.Table:
    """Columns of a relation, of rows that have them in these slots."""
    groups = max((slot.index + 1 for _, slot in columns if slot is not None and slot.carrier == "key"), default=0)
    values = group_values(rows["key"], groups)
    arrays = {}
    for column, slot in columns:
        if slot is None:
            arrays[column.name] = pa.nulls(len(rows), arrow_type(column.type))
        elif slot.carrier == "key":
            arrays[column.name] = typed(values[slot.index], column.type)
        elif slot.carrier in CARRIERS:
            arrays[column.name] = typed(_element(rows[slot.carrier], slot.index), column.type)
        else:
            arrays[column.name] = rows[slot.carrier].cast(arrow_type(column.type))
    return pa.table(arrays)


def _element(lists: pa.ChunkedArray, index: int) -> pa.ChunkedArray:
    return pc.list_element(lists, index) if len(lists) else pa.chunked_array([pa.array([], lists.type.value_type)])


def _sorted(columns: Sequence[RelationColumn], table: pa.Table) -> pa.Table:
    names = [column.name for column in columns if column.role in ("position", "group")]
    return table.sort_by([(name, "ascending") for name in ("window_end", *names)])


def _plain(table: pa.Table) -> pa.Table:
    """The table without the columns of publication, and without errors if there are none."""
    left_out = [name for name in table.column_names if name == "revision" or name == "error" and _empty(table[name])]
    return table.drop_columns(left_out)


def _empty(column: pa.ChunkedArray) -> bool:
    return bool(column.null_count == len(column))
