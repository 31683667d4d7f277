"""Deletes published answers of queries by name, which nothing else does: a run replaces answers by others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction, RemoveAction

from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.data_files import now_millis, opened, read_file, reading, write_files
from spark_jobs.store.warehouse.plans import current_version
from spark_jobs.store.warehouse.schemas import DELETED, INSTANT, micros
from spark_jobs.store.warehouse.warehouse import Warehouse, added


@dataclass(frozen=True)
class Deleted:
    """So many ``answers`` of a query, of instants from ``first`` to ``last`` (microseconds; None: it has none)."""

    query: str
    answers: int = 0
    first: int | None = None
    last: int | None = None


def delete_answers(warehouse: Warehouse, names: Sequence[str], dry_run: bool) -> list[Deleted]:
    """Delete all published answers of some queries, in one commit; ``dry_run``: only list them.

    The publish log has an event ``deleted``, written before the commit: a run of such an interval by a plan that
    has one of the queries again publishes it again. Raises HDL-510 if the lease was lost, HDL-543 if answers cannot
    be read.
    """
    if dry_run:
        files = _holding(warehouse, names, warehouse.table("results"))
        return _counted(names, [_chosen(warehouse, file["path"], names) for file in files])
    with warehouse.lease() as token:
        current = warehouse.table("results")
        version, since = int(current.version()), warehouse.version("publish_log")
        actions: list[AddAction | RemoveAction] = []
        deleted_rows = []
        for file in _holding(warehouse, names, current):
            rows = read_file(warehouse.place / "results" / file["path"])
            doomed = pc.is_in(rows["query"], pa.array(names, pa.string()))
            deleted_rows.append(rows.filter(doomed).select(["query", "instant"]))
            if not len(deleted_rows[-1]):
                continue
            actions.append(RemoveAction(file["path"], True, now_millis(), file["size"], {"day": file["day"]}))
            remaining = rows.filter(pc.invert(doomed))
            if len(remaining):
                remaining = remaining.append_column("day", pa.array([file["day"]] * len(remaining), pa.string()))
                actions += [added(written) for written in write_files(warehouse.path("results"), remaining)]
        deletions = _counted(names, deleted_rows)
        spans = [deletion for deletion in deletions if deletion.first is not None and deletion.last is not None]
        if not spans:
            return deletions
        first, last = min(deletion.first or 0 for deletion in spans), max(deletion.last or 0 for deletion in spans)
        row = publish_log.deletion(
            [deletion.query for deletion in spans],
            first,
            last,
            sum(deletion.answers for deletion in deletions),
            current_version(warehouse) or 0,
            version + 1,
        )
        warehouse.append("publish_log", [row.to_row()], token, since=since)
        warehouse.commit("results", current, actions, token, (DELETED, version + 1))
        return deletions


def _holding(warehouse: Warehouse, names: Sequence[str], current: Any) -> list[dict[str, Any]]:
    """The files of results that may hold answers of one of the queries."""
    return [
        file
        for file in warehouse.files("results", "", "9", current)
        if file.get("min.query") is None or any(file["min.query"] <= name <= file["max.query"] for name in names)
    ]


def _chosen(warehouse: Warehouse, path: str, names: Sequence[str]) -> pa.Table:
    with reading(path):
        rows = opened(warehouse.place / "results" / path).read(columns=["query", "instant"])
    return rows.filter(pc.is_in(rows["query"], pa.array(names, pa.string())))


def _counted(names: Sequence[str], parts: Sequence[pa.Table]) -> list[Deleted]:
    schema = pa.schema([("query", pa.string()), ("instant", INSTANT)])
    rows = pa.concat_tables([part.cast(schema) for part in parts]) if parts else schema.empty_table()
    spans = rows.group_by("query").aggregate([("instant", "count"), ("instant", "min"), ("instant", "max")]).to_pylist()
    by_query = {
        row["query"]: Deleted(
            row["query"], row["instant_count"], micros(row["instant_min"]), micros(row["instant_max"])
        )
        for row in spans
    }
    return [by_query.get(name, Deleted(name)) for name in dict.fromkeys(names)]
