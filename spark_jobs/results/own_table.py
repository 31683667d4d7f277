"""Create, widen and write the Delta table of one query, each in a separate commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
from deltalake.transaction import AddAction, RemoveAction
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.redaction import redacted
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import format_instant
from optimizer.workload.values import AnswerTable
from spark_jobs.results.table_rows import Span, instants_of, unmatched_rows
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.data_files import (
    LOG,
    is_awkward,
    now_millis,
    opened,
    read_file,
    reading,
    write_day_files,
)
from spark_jobs.store.warehouse.schemas import INSTANT, micros
from spark_jobs.store.warehouse.warehouse import NOTE, Warehouse, added

FOLDER = "tables"
"""The folder of the warehouse that holds them."""

FOLLOWED = "results"
"""Application of the transaction that names the version of ``results`` that a table reflects."""

OWNER = "heddle.query"
"""The property of a table that names its query."""

FEED = "delta.enableChangeDataFeed"

CHECKPOINT = "delta.checkpointInterval"
"""Commits between two checkpoints: a table is opened for each publication, and read from its last one."""


@dataclass(frozen=True)
class TableRequest:
    """A query with a table, by the newest event of it: its owner, its text, and whether it was removed."""

    query: str
    table: AnswerTable
    owner: str
    text: str
    removed: bool

    @property
    def name(self) -> str:
        """The table, as the warehouse knows it."""
        return f"{FOLDER}/{self.table.name}"

    @property
    def description(self) -> str:
        """Description in the metadata of its table."""
        whose = f" of {self.owner}" if self.owner else ""
        return redacted(f"answers of the query {self.query}{whose}:\n{self.text}")


def existing(warehouse: Warehouse, name: str) -> DeltaTable | None:
    """A table as it is now; None if there is none. Raises HDL-562 for a folder that is something else."""
    folder = warehouse.place / name
    if not folder.exists():
        return None
    if not (folder / LOG).exists():
        raise NotATable(warehouse.path(name), "it is no Delta table")
    table = warehouse.table(name)
    if OWNER not in table.metadata().configuration:
        raise NotATable(warehouse.path(name), "it was not made by Heddle")
    return table


class NotATable(HeddleError):
    """HDL-562: what is in the folder of a table is none."""

    def __init__(self, path: str, why: str) -> None:
        hint = "move it elsewhere, or give the query another -- table"
        super().__init__("HDL-562", f"{path} is no table of a query: {why}", hint)


def query_of(table: DeltaTable) -> str:
    """The query that a table is of."""
    return str(table.metadata().configuration[OWNER])


def followed(table: DeltaTable) -> int | None:
    """The version of ``results`` that a table is as of; None: it was made and never written."""
    return table.transaction_version(FOLLOWED)


def made(warehouse: Warehouse, request: TableRequest, schema: pa.Schema, token: int) -> DeltaTable:
    """An empty table. Raises HDL-546 below folders that delta-rs cannot write to."""
    path = warehouse.path(request.name)
    if is_awkward(path):
        raise HeddleError("HDL-546", f"{path} has one of %, [, ], |, ^ in its name", "rename the folder")
    warehouse.check_lease(token)
    return DeltaTable.create(
        path,
        schema=schema,
        partition_by=["day"],
        name=request.table.name,
        description=request.description,
        configuration={OWNER: request.query, FEED: str(request.table.has_changes).lower(), CHECKPOINT: "10"},
        raise_if_key_not_exists=False,
        commit_properties=CommitProperties({NOTE: warehouse.note} if warehouse.note else None, max_commit_retries=0),
    )


def check_fits(request: TableRequest, current: DeltaTable, schema: pa.Schema) -> None:
    """Raises HDL-562 if the table is another query's, HDL-561 if it has a column of the query as another type."""
    if (owner := query_of(current)) != request.query:
        hint = f"`heddle tables --rebuild {request.table.name}` makes it that of {request.query}"
        raise HeddleError("HDL-562", f"the table {request.table.name} is that of {owner}", hint)
    known = {field.name.lower(): field for field in columns(current)}
    for field in schema:
        was = known.get(field.name.lower())
        if was is not None and (was.name, was.type) != (field.name, field.type):
            raise HeddleError(
                "HDL-561",
                f"the column {was.name} ({was.type}) of the table {request.table.name} is {field.name} ({field.type}) "
                "in the query now; the table stays as it is",
                f"`heddle tables --rebuild {request.table.name}` makes it anew from the published answers",
            )


def columns(table: DeltaTable) -> pa.Schema:
    """The columns of a table with their comments."""
    return pa.schema(table.schema().to_arrow())


def dressed(
    warehouse: Warehouse, request: TableRequest, current: DeltaTable, schema: pa.Schema, token: int
) -> DeltaTable:
    """The table with all columns of the query, and with the description of the query as it is now."""
    about, present = current.metadata(), {field.name: field for field in columns(current)}
    missing = [field for field in schema if field.name not in present]
    changes: list[Callable[[DeltaTable, CommitProperties], None]] = []
    if missing:
        fields = Schema.from_arrow(pa.schema(missing)).fields
        changes.append(lambda table, once: table.alter.add_columns(fields, commit_properties=once))
    for field in schema:
        if field.name in present and present[field.name].metadata != field.metadata:
            changes.append(partial(_comment, field))
    if about.description != request.description:
        about_it = request.description
        changes.append(lambda table, once: table.alter.set_table_description(about_it, commit_properties=once))
    properties = {OWNER: request.query, FEED: str(request.table.has_changes).lower()}
    if any(about.configuration.get(name) != value for name, value in properties.items()):
        changes.append(
            lambda table, once: table.alter.set_table_properties(
                properties, raise_if_not_exists=False, commit_properties=once
            )
        )
    for change in changes:
        warehouse.check_lease(token)
        with warehouse.exactly(request.name, current) as once:
            change(current, once)
        current = warehouse.table(request.name)
    return current


def _comment(field: pa.Field, table: DeltaTable, once: CommitProperties) -> None:
    comment = {name.decode(): text.decode() for name, text in (field.metadata or {}).items()}
    table.alter.set_column_metadata(field.name, comment, commit_properties=once)


def replace(
    warehouse: Warehouse,
    request: TableRequest,
    current: DeltaTable,
    rows: pa.Table,
    spans: Sequence[Span] | None,
    transactions: Sequence[tuple[str, int]],
    token: int,
) -> DeltaTable:
    """Replace the rows of a table at the instants of some spans with ``rows`` (of its columns), in one commit;
    None: all rows. Returns the table as it is afterwards.

    Rows whose values exist already stay, with the revision that they have: they are no part of the commit, nor of
    the change data feed. If all are, there is no commit. Delta's feed has all rows of the files that a commit adds
    or removes. So rows that go and are in one file with others are moved into a separate file first, in a commit
    that changes no data.
    """
    stored = _stored(warehouse, request.name, current, spans)
    old = pa.concat_tables([columns(current).empty_table(), *(file.inside for file in stored)])
    removed, come = unmatched_rows(old, rows)
    new = rows.filter(pa.array(come))
    going = list(_going(stored, removed))
    if not len(new) and not going:
        return current
    if request.table.has_changes:
        current, going = _apart(warehouse, request, current, going, token)
    staying = [file.staying for file in going if len(file.staying)]
    adds = write_day_files(warehouse.path(request.name), pa.concat_tables([*staying, new]))
    actions = [*(_removed(file.action, True) for file in going), *(added(file) for file in adds)]
    return _committed(warehouse, request.name, current, actions, transactions, token)


def _apart(
    warehouse: Warehouse, request: TableRequest, current: DeltaTable, going: list[_Going], token: int
) -> tuple[DeltaTable, list[_Going]]:
    """Move rows that go into files of their own, in a commit that changes no data; the table and these files."""
    actions: list[AddAction | RemoveAction] = []
    alone = []
    for file in going:
        if not len(file.staying):
            alone.append(file)
            continue
        staying, leaving = (next(write_day_files(warehouse.path(request.name), part)) for part in file.parts)
        actions += [_removed(file.action, False), added(staying, False), added(leaving, False)]
        action = {"path": leaving.path, "size": leaving.size, "day": leaving.day}
        alone.append(_Going(action, file.leaving, file.staying.slice(0, 0)))
    return (_committed(warehouse, request.name, current, actions, (), token) if actions else current), alone


@dataclass(frozen=True)
class _Stored:
    """A file of a table: its ``action`` (path, size, day), its rows, and which of them are of the spans."""

    action: dict[str, Any]
    rows: pa.Table
    chosen: NDArray[np.bool_]

    @property
    def inside(self) -> pa.Table:
        return self.rows.filter(pa.array(self.chosen))


@dataclass(frozen=True)
class _Going:
    """A file with rows that go: its ``action``, those rows, and the others."""

    action: dict[str, Any]
    leaving: pa.Table
    staying: pa.Table

    @property
    def parts(self) -> tuple[pa.Table, pa.Table]:
        return self.staying, self.leaving


def _going(stored: Sequence[_Stored], gone: NDArray[np.bool_]) -> Iterator[_Going]:
    """The files that have rows that go; ``gone``: mask of the rows that go among those of the spans, file by file."""
    first = 0
    for file in stored:
        count = int(file.chosen.sum())
        leaving = np.zeros(len(file.rows), dtype=bool)
        leaving[file.chosen] = gone[first : first + count]
        first += count
        if leaving.any():
            yield _Going(file.action, file.rows.filter(pa.array(leaving)), file.rows.filter(pa.array(~leaving)))


def _removed(action: dict[str, Any], data_change: bool) -> RemoveAction:
    return RemoveAction(action["path"], data_change, now_millis(), action["size"], {"day": action["day"]})


def _committed(
    warehouse: Warehouse,
    name: str,
    current: DeltaTable,
    actions: Sequence[AddAction | RemoveAction],
    transactions: Sequence[tuple[str, int]],
    token: int,
) -> DeltaTable:
    """The table after a commit of these actions."""
    warehouse.check_lease(token)
    with warehouse.exactly(name, current, *transactions) as once:
        current.create_write_transaction(list(actions), "append", columns(current), ["day"], commit_properties=once)
    return warehouse.table(name)


def overwrite(
    warehouse: Warehouse, request: TableRequest, current: DeltaTable, rows: pa.Table, version: int, token: int
) -> None:
    """Let a table have these columns and rows and no others, in one commit; another one puts files with checksums in
    the place of those that Delta's library wrote."""
    warehouse.check_lease(token)
    with warehouse.exactly(request.name, current, (FOLLOWED, version)) as written:
        write_deltalake(current, rows, mode="overwrite", schema_mode="overwrite", commit_properties=written)
    current = warehouse.table(request.name)
    rewrite(warehouse, request.name, current, warehouse.files(request.name, "", "9", current), token)


def rewrite(
    warehouse: Warehouse, name: str, current: DeltaTable, files: Sequence[dict[str, Any]], token: int
) -> DeltaTable:
    """Put one file a day in the place of some files of a table, in a commit that changes no data; the table then."""
    by_day: dict[str, list[pa.Table]] = {}
    for file in files:
        rows = _fitted(read_file(warehouse.place / name / file["path"]), file["day"], columns(current))
        by_day.setdefault(file["day"], []).append(rows)
    written = (
        file for rows in by_day.values() for file in write_day_files(warehouse.path(name), pa.concat_tables(rows))
    )
    actions = [*(_removed(file, False) for file in files), *(added(file, False) for file in written)]
    return _committed(warehouse, name, current, actions, (), token) if actions else current


def _stored(warehouse: Warehouse, name: str, current: DeltaTable, spans: Sequence[Span] | None) -> list[_Stored]:
    """The files that may have rows of some spans, with all their rows."""
    schema, files = columns(current), []
    first, last = ("", "9") if spans is None else (day_label(spans[0][0]), day_label(spans[-1][1] - 1))
    for file in warehouse.files(name, first, last, current):
        place = warehouse.place / name / file["path"]
        if not _may_hold(place, file, spans):
            continue
        rows = _fitted(read_file(place), file["day"], schema)
        chosen = np.ones(len(rows), dtype=bool) if spans is None else _within(rows, spans)
        if chosen.any():
            files.append(_Stored(file, rows, chosen))
    return files


def _fitted(rows: pa.Table, day: str, schema: pa.Schema) -> pa.Table:
    """Rows of a file with the table's columns: those that came later are null."""
    known = {field.name: rows[field.name].cast(field.type) for field in schema if field.name in rows.schema.names}
    known["day"] = pa.array([day] * len(rows), pa.string())
    values = [known.get(field.name, pa.nulls(len(rows), field.type)) for field in schema]
    return pa.table(values, schema=schema)


def _may_hold(path: Place, file: dict[str, object], spans: Sequence[Span] | None) -> bool:
    """Return whether a file may have rows of some spans. The log's bounds are full milliseconds, the file's are
    exact.
    """
    first, last = file.get("min.instant"), file.get("max.instant")
    if spans is None or first is None or last is None:
        return True
    near = [(begin, end) for begin, end in spans if micros(first) <= end and micros(last) + 1000 > begin]
    if not near or any(micros(last) > begin for begin, _ in near):
        return bool(near)
    with reading(path):
        written = opened(path).metadata
    at = written.schema.names.index("instant")
    bounds = [written.row_group(number).column(at).statistics for number in range(written.num_row_groups)]
    return any(bound is None or micros(bound.max) > begin for bound in bounds for begin, _ in near)


def _within(rows: pa.Table, spans: Sequence[Span]) -> NDArray[np.bool_]:
    """Mask of the rows that are of the instants of some spans, which are disjoint and ascend."""
    at = instants_of(rows)
    place = np.searchsorted([begin for begin, _ in spans], at, side="left") - 1
    ends = np.array([end for _, end in spans])
    inside: NDArray[np.bool_] = (place >= 0) & (at <= ends[np.maximum(place, 0)])
    return inside


def newest_window(current: DeltaTable) -> tuple[int, str]:
    """Number of rows of a table, and the end of its newest window; empty: none, or not known."""
    files = pa.table(current.get_add_actions(flatten=True))
    rows = pc.sum(files["num_records"]).as_py() or 0 if len(files) else 0
    last = pc.max(files["max.window_end"]).as_py() if rows and "max.window_end" in files.schema.names else None
    return int(rows), "" if last is None else format_instant(micros(pa.scalar(last, INSTANT).as_py()))


def names(warehouse: Warehouse) -> list[str]:
    """The existing tables of queries that Heddle made; other contents of the folder are skipped."""
    tables = []
    for folder in folders(warehouse):
        with suppress(NotATable):
            existing(warehouse, f"{FOLDER}/{folder}")
            tables.append(f"{FOLDER}/{folder}")
    return tables


def folders(warehouse: Warehouse) -> list[str]:
    """The folders of all tables of queries, requested or not."""
    return [name for name in (warehouse.place / FOLDER).folders() if not name.startswith(".")]
