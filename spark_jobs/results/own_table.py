"""One Delta table of a query's own: made, widened and written, each in a commit of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.redaction import redacted
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import format_instant
from optimizer.workload.values import AnswerTable
from spark_jobs.results.table_rows import Span, differing, instants_of
from spark_jobs.storage import Place
from spark_jobs.warehouse.data_files import LOG, is_awkward, opened, reading
from spark_jobs.warehouse.schemas import INSTANT, micros
from spark_jobs.warehouse.warehouse import Warehouse

FOLDER = "tables"
"""The folder of the warehouse that holds them."""

FOLLOWED = "results"
"""The application of the transaction that says which version of ``results`` a table is as of."""

OWNER = "heddle.query"
"""The property of a table that names its query."""

FEED = "delta.enableChangeDataFeed"

CHECKPOINT = "delta.checkpointInterval"
"""Commits between two checkpoints: a table is opened for each publication, and read from its last one."""

RUNS = 64
"""Spans of instants that one commit replaces by themselves; if there are more, all from the first to the last are."""


@dataclass(frozen=True)
class TableRequest:
    """A query that asks for a table, by the newest event of it: whose it is, its text, and whether it was removed."""

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
        """What its table says that it is."""
        whose = f" of {self.owner}" if self.owner else ""
        return redacted(f"answers of the query {self.query}{whose}:\n{self.text}")


def existing(warehouse: Warehouse, name: str) -> DeltaTable | None:
    """A table as it is now; None if there is none. Raises HDL-562 for a folder that is something else."""
    folder = warehouse.place / name
    if not folder.exists():
        return None
    if not (folder / LOG).exists():
        raise NotATable(warehouse.path(name), "it is no Delta table")
    found = warehouse.table(name)
    if OWNER not in found.metadata().configuration:
        raise NotATable(warehouse.path(name), "it was not made by Heddle")
    return found


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
        commit_properties=_ONCE,
    )


_ONCE = CommitProperties(max_commit_retries=0)


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
    """The table with all columns of the query, and with what it says of itself as it is now."""
    about, there = current.metadata(), {field.name: field for field in columns(current)}
    missing = [field for field in schema if field.name not in there]
    changes: list[Callable[[DeltaTable, CommitProperties], None]] = []
    if missing:
        fields = Schema.from_arrow(pa.schema(missing)).fields
        changes.append(lambda table, once: table.alter.add_columns(fields, commit_properties=once))
    for field in schema:
        if field.name in there and there[field.name].metadata != field.metadata:
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
) -> None:
    """Let a table have ``rows`` (of its own columns) at the instants of some spans, in one commit; None: at all.

    Only instants that differ are replaced; if none does, there is no commit. ``current`` is the table afterwards.
    """
    old = _stored(warehouse, request.name, current, spans)
    changed = differing(old, rows) if len(old) else np.unique(instants_of(rows))
    if not len(changed):
        return
    warehouse.check_lease(token)
    with warehouse.exactly(request.name, current, *transactions) as written:
        if not np.isin(instants_of(old), changed).any():
            new = rows.filter(pa.array(np.isin(instants_of(rows), changed)))
            write_deltalake(current, new, mode="append", commit_properties=written)
        else:
            every = np.union1d(instants_of(old), instants_of(rows))
            runs = list(_runs(every, np.isin(every, changed), spans))
            inside = rows.filter(_inside(rows, runs))
            predicate = _predicate(runs)
            write_deltalake(current, inside, mode="overwrite", predicate=predicate, commit_properties=written)


def overwrite(
    warehouse: Warehouse, request: TableRequest, current: DeltaTable, rows: pa.Table, version: int, token: int
) -> None:
    """Let a table have these columns and rows and no others, in one commit."""
    warehouse.check_lease(token)
    with warehouse.exactly(request.name, current, (FOLLOWED, version)) as written:
        write_deltalake(current, rows, mode="overwrite", schema_mode="overwrite", commit_properties=written)


def _stored(warehouse: Warehouse, name: str, current: DeltaTable, spans: Sequence[Span] | None) -> pa.Table:
    schema = columns(current)
    first, last = ("", "9") if spans is None else (day_label(spans[0][0]), day_label(spans[-1][1] - 1))
    files = warehouse.files(name, first, last, current)
    if not any(_may_hold(warehouse.place / name / file["path"], file, spans) for file in files):
        return schema.empty_table()
    condition = None if spans is None else (ds.field("day") >= first) & (ds.field("day") <= last)
    with reading(warehouse.path(name)):
        rows = warehouse.dataset(name, current, condition).to_table(schema.names, filter=condition).cast(schema)
    return rows if spans is None else rows.filter(_within(rows, spans))


def _may_hold(path: Place, file: dict[str, object], spans: Sequence[Span] | None) -> bool:
    """Whether a file may have rows of some spans. The log's bounds are of whole milliseconds, the file's are exact."""
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


def _within(rows: pa.Table, spans: Sequence[Span]) -> pa.Array:
    """Which rows are of the instants of some spans, which are disjoint and ascend."""
    at = instants_of(rows)
    place = np.searchsorted([begin for begin, _ in spans], at, side="left") - 1
    ends = np.array([end for _, end in spans])
    return pa.array((place >= 0) & (at <= ends[np.maximum(place, 0)]))


def _runs(every: np.ndarray, changed: np.ndarray, spans: Sequence[Span] | None) -> Iterator[Span]:
    """The first and last instants of runs of ``changed`` ones among ``every`` (ascending); none reaches over what lies
    between two spans, of which nothing is known."""
    begins = [begin for begin, _ in spans or ()]
    part = np.searchsorted(begins, every, side="left")
    cuts = np.flatnonzero((changed[1:] != changed[:-1]) | (part[1:] != part[:-1])) + 1
    pieces = [piece for piece in np.split(np.arange(len(every)), cuts) if changed[piece[0]]]
    if len(pieces) > RUNS:
        inside = np.split(np.arange(len(every)), np.flatnonzero(part[1:] != part[:-1]) + 1)
        pieces = [piece for piece in inside if changed[piece].any()]
    yield from ((int(every[piece[0]]), int(every[piece[-1]])) for piece in pieces)


def _inside(rows: pa.Table, runs: Sequence[Span]) -> pa.Array:
    return _within(rows, [(first - 1, last) for first, last in runs])


def _predicate(runs: Sequence[Span]) -> str:
    """The condition of rows of some runs, of which all but numbers is ours."""
    days = day_label(runs[0][0] - 1), day_label(runs[-1][1] - 1)
    spans = (f"(instant >= '{_at(first)}' AND instant <= '{_at(last)}')" for first, last in runs)
    return f"day >= '{days[0]}' AND day <= '{days[1]}' AND ({' OR '.join(spans)})"


def _at(instant: int) -> str:
    return str(np.datetime64(instant, "us")) + "Z"


def newest_window(current: DeltaTable) -> tuple[int, str]:
    """How many rows a table has, and the end of its newest window; empty: none, or not known."""
    files = pa.table(current.get_add_actions(flatten=True))
    rows = pc.sum(files["num_records"]).as_py() or 0 if len(files) else 0
    last = pc.max(files["max.window_end"]).as_py() if rows and "max.window_end" in files.schema.names else None
    return int(rows), "" if last is None else format_instant(micros(pa.scalar(last, INSTANT).as_py()))


def names(warehouse: Warehouse) -> list[str]:
    """The tables of queries that are there, as the warehouse knows them; not what somebody else put beside them."""
    found = []
    for folder in folders(warehouse):
        with suppress(NotATable):
            existing(warehouse, f"{FOLDER}/{folder}")
            found.append(f"{FOLDER}/{folder}")
    return found


def folders(warehouse: Warehouse) -> list[str]:
    """The folders of all tables of queries, asked for or not."""
    return [name for name in (warehouse.place / FOLDER).folders() if not name.startswith(".")]
