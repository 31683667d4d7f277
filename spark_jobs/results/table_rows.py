"""The rows of a query's own table: answers of ``results`` under the query's names and types, and which of them differ
from those that the table has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from numpy.typing import NDArray

from optimizer.plan.definition import SharingPlan
from optimizer.windows.alignment import day_label
from optimizer.workload.attributes import shown_column, shown_columns
from optimizer.workload.values import ACQ, REACHED, Output
from spark_jobs.results.read import shaped
from spark_jobs.results.relations import slotted
from spark_jobs.store.warehouse.data_files import reading
from spark_jobs.store.warehouse.plans import load_plan, newest_versions
from spark_jobs.store.warehouse.schemas import INSTANT, RESULTS
from spark_jobs.store.warehouse.warehouse import Warehouse

Span = tuple[int, int]
"""Instants in (begin, end], microseconds."""

_WINDOW = {
    "window_start": "start of the window, which is in it",
    "window_end": "end of the window, which is not in it",
    "instant": "when the answer is of: the end of the window, unless it is one of before",
    "position": "number of the first row of the window",
}

_LAST = {
    "error": (pa.string(), "a code where an answer could not be given"),
    "revision": (pa.int64(), "the publication of its interval that changed the row last"),
    "day": (pa.string(), "UTC day of the microsecond before the instant"),
}
"""Columns of every table that come after those of the query."""


NEVER_NULL = ("window_start", "window_end", "revision")
"""Columns that a new table declares NOT NULL. Tables from before keep them nullable until they are rebuilt."""


class Definitions:
    """The definitions of queries by the versions of the plan, each version read once."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._newest = newest_versions(warehouse)
        self._plans: dict[int, SharingPlan] = {}
        self._queries: dict[int, Mapping[str, ACQ]] = {}

    def newest(self, query: str) -> ACQ | None:
        """The newest definition that a plan has; None: no plan has known the query."""
        version = self._newest.get(query)
        return None if version is None else self.of(version, query)

    def of(self, version: int, query: str) -> ACQ | None:
        """The definition in a version of the plan; None: it does not have the query."""
        if version not in self._queries:
            plan = load_plan(self._warehouse, version)
            self._queries[version] = {planned_query.name: planned_query for planned_query in plan.workload.queries}
        return self._queries[version].get(query)


def columns_of(query: ACQ) -> pa.Schema:
    """The columns of the table of a query, each with a comment that describes it."""
    typed = _typed(query, RESULTS.empty_table())
    comments = _WINDOW | {name: about for name, (_, about) in _LAST.items()}
    groups, outputs = made_columns(query, typed.schema)
    comments |= {
        name: f"group column {shown_column(column)}" for name, (column, _) in zip(groups, query.group_by, strict=True)
    }
    comments |= {name: _meaning(output) for name, output in zip(outputs, query.outputs, strict=True)}
    return pa.schema([
        field.with_metadata({"comment": comments[field.name]}).with_nullable(field.name not in NEVER_NULL)
        for field in typed.schema
    ])  # fmt: skip


def made_columns(query: ACQ, schema: pa.Schema) -> tuple[list[str], list[str]]:
    """The columns of the table of a query that are its group columns, and those that are its outputs, in its order."""
    own = [name for name in schema.names if name not in _WINDOW and name not in _LAST]
    return own[: len(query.group_by)], own[len(query.group_by) :]


def _meaning(output: Output) -> str:
    if output.parts:
        return f"made of {', '.join(map(_meaning, output.parts))}"
    if output.function == REACHED:
        return f"keys that reach step {output.parameter}"
    return f"{output.function} of {', '.join(shown_columns(output.columns())) or 'events'}"


def published_rows(
    warehouse: Warehouse, results: DeltaTable, names: Sequence[str], spans: Sequence[Span] | None
) -> dict[str, pa.Table]:
    """The rows of a version of ``results`` of each of some queries, read at once.

    ``spans``: only of their instants, which are disjoint and ascend; None: of all.
    """
    chosen = ds.field("query").isin(pa.array(sorted(names), pa.string()))
    if spans is not None:
        at, days = ds.field("instant"), (day_label(spans[0][0]), day_label(spans[-1][1] - 1))
        inside = [(at > pa.scalar(begin, INSTANT)) & (at <= pa.scalar(end, INSTANT)) for begin, end in spans]
        chosen &= (ds.field("day") >= days[0]) & (ds.field("day") <= days[1]) & reduce(or_, inside)
    with reading(warehouse.path("results")):
        dataset = warehouse.dataset("results", results, chosen)
        rows = dataset.to_table(filter=chosen)
    encoded = rows["query"].combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    rows = rows.take(pa.array(np.argsort(codes, kind="stable")))
    ends = np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary)))
    parts = zip(encoded.dictionary.to_pylist(), [0, *ends], ends, strict=False)
    return dict.fromkeys(names, rows.slice(0, 0)) | {name: rows.slice(begin, end - begin) for name, begin, end in parts}


def rows_of(rows: pa.Table, definitions: Definitions, query: ACQ, schema: pa.Schema) -> pa.Table:
    """Rows of ``results`` of one query as rows of a table of the columns of ``schema``.

    ``query``: its newest definition. What an earlier one answered comes as far as it had outputs of the same name and
    type; other columns are null.
    """
    current = pc.all(pc.fill_null(pc.equal(rows["fingerprint"], query.fingerprint), False)).as_py()
    if current or not len(rows):
        return _fitted(_typed(query, rows), schema)
    parts = []
    for version in pc.unique(rows["plan_version"]).to_pylist():
        definition = definitions.of(version, query.name)
        if definition is not None:
            answered = rows.filter(pc.equal(rows["plan_version"], version))
            parts.append(_fitted(_typed(definition, answered), schema))
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _typed(query: ACQ, rows: pa.Table) -> pa.Table:
    """Rows of ``results`` that one definition answered, with all columns of the table."""
    typed = shaped([(column, slot) for column, slot in slotted(query) if column.role != "revision"], rows)
    columns = {"window_start": rows["window_start"], "window_end": rows["window_end"], "instant": rows["instant"]}
    names = [name for name in typed.schema.names if name not in (*columns, "error")]
    used_names = {*(name.lower() for name in names)}
    for name in names:
        own = name
        while own.lower() in ("day", "revision") or (own != name and own.lower() in used_names):
            own += "_"
        columns[own] = typed[name]
    return pa.table(columns | {name: rows[name].cast(type) for name, (type, _) in _LAST.items()})


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    known = {field.name: field.type for field in rows.schema}
    columns = [
        rows[field.name] if known.get(field.name) == field.type else pa.nulls(len(rows), field.type) for field in schema
    ]
    return pa.table(columns, schema=schema)


def unmatched_rows(old: pa.Table, new: pa.Table) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Masks of the rows of one table that are not in another of the same columns, and of the rows of the other that
    are not in it; each as often as it is. The revision is no part of the comparison: a row of the same values is
    the same answer.
    """
    rows = pa.concat_tables([old, new])
    codes = np.zeros(len(rows), dtype=np.int64)
    for name in rows.schema.names:
        if name == "revision":
            continue
        values = pa.chunked_array(rows[name]).combine_chunks()
        if pa.types.is_floating(values.type):
            values = values.view(pa.int64())  # NaN is NaN, and 0.0 is not -0.0
        encoded = values.dictionary_encode(null_encoding="encode")
        joined = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy()
        codes = np.unique(joined, return_inverse=True)[1]
    of_old, of_new, kinds = codes[: len(old)], codes[len(old) :], int(codes.max(initial=-1)) + 1
    return _surplus(of_old, of_new, kinds), _surplus(of_new, of_old, kinds)


def _surplus(these: NDArray[np.int64], others: NDArray[np.int64], kinds: int) -> NDArray[np.bool_]:
    """Mask of the codes that are beyond the number of times that others have them."""
    order = np.argsort(these, kind="stable")
    ordered = these[order]
    rank = np.arange(len(ordered)) - np.searchsorted(ordered, ordered, side="left")
    surplus = np.zeros(len(these), dtype=bool)
    surplus[order] = rank >= np.bincount(others, minlength=kinds)[ordered]
    return surplus


def instants_of(rows: pa.Table) -> NDArray[np.int64]:
    """The instants of rows, in microseconds."""
    instants: NDArray[np.int64] = rows["instant"].cast(INSTANT).cast(pa.int64()).to_numpy()
    return instants
