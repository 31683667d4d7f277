"""Dimensions as relations, so that SQL over answers can join them.

A *stored* dimension is the version that a run used last: the columns in use, as the newest answers have them. A
*declared* one is read from its source when a statement names it: all columns, as they are now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from sqlglot import exp

from optimizer.workload.streams import load_streams
from optimizer.workload.values import DATE, Dimension, Type
from spark_jobs.results.current_dimensions import (
    current_place,
    planned_dimensions,
    stored_columns,
    validity_columns,
)
from spark_jobs.results.views import created, sql_type
from spark_jobs.store.settings import said, settings
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.dimension_rows import ALWAYS, attribute_name
from spark_jobs.streams.sources.dimensions import read_rows, with_schema_of_files

SCHEMA = "dimensions"
"""The schema with all dimensions, also those that have the name of a query."""

SOURCE = "heddle dimension"
"""Beginning of the names of the rows in a connection; no query can have such a name."""

SHADOWED = "HDL-469"
"""A dimension has the name of a query."""


@dataclass(frozen=True)
class DimensionTable:
    """A dimension as a relation.

    Parameters
    ----------
    name
        Its name.
    columns
        Its columns with their types; of a declared one they are known when it is read.
    rows
        Reads its rows as something that DuckDB takes: an Arrow table or data set.
    select
        The SELECT of its columns from these rows, a table of the given name.
    """

    name: str
    columns: tuple[tuple[str, Type], ...]
    rows: Callable[[], Any]
    select: Callable[[exp.Table], exp.Query]


def stored_dimensions(warehouse: Warehouse) -> dict[str, DimensionTable]:
    """The dimensions that the queries of the plan in force join and a run has used, by name."""
    tables = {}
    for dimension in planned_dimensions(warehouse):
        place = current_place(warehouse, dimension.name)
        if place is not None:
            columns = stored_columns(dimension, place)
            select = partial(stored_select, dimension, columns)
            tables[dimension.name] = DimensionTable(dimension.name, columns, partial(_stored_rows, place), select)
    return tables


def _stored_rows(place: Place) -> ds.Dataset:
    return ds.dataset(str(place.local()), format="parquet") if place.is_local else pq.read_table(place.open())


def stored_select(dimension: Dimension, columns: Sequence[tuple[str, Type]], source: exp.Expr) -> exp.Select:
    """The SELECT of a dimension's columns, as they are declared, from rows of its versions."""
    validity = validity_columns(dimension)
    items = []
    for name, type in columns:
        if name in validity:
            value = _moment(exp.column(exp.to_identifier(validity[name], quoted=True)), type)
        else:
            stored = name if name in dimension.key else attribute_name(name)
            value = exp.column(exp.to_identifier(stored, quoted=True))
        items.append(exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True)))
    return exp.select(*items, copy=False).from_(source)


def _moment(stored: exp.Expr, type: Type) -> exp.Expr:
    """A bound of a validity, in microseconds, as a value; null where there is none."""
    moment = exp.func("MAKE_TIMESTAMPTZ", stored.copy(), dialect="duckdb")
    value = exp.cast(moment, sql_type(type)) if type == DATE else moment
    bounds = [exp.Literal.number(bound) for bound in ALWAYS]
    return exp.Case(ifs=[exp.If(this=exp.not_(stored.isin(*bounds)), true=value)])


def declared_dimensions(path: Path) -> dict[str, DimensionTable]:
    """The dimensions that a file of streams declares, by name. Nothing is read before a statement needs it."""
    streams, _ = load_streams(path, settings().source_roots, settings().copies)
    declared = next((stream.dimensions for stream in streams.values()), ())
    return {each.name: DimensionTable(each.name, each.schema, partial(_declared_rows, each), _all) for each in declared}


def _declared_rows(dimension: Dimension) -> pa.Table:
    dimension, _ = with_schema_of_files(dimension)
    return read_rows(dimension, dict(dimension.schema))


def _all(source: exp.Expr) -> exp.Select:
    return exp.select("*").from_(source)


def project_dimensions(warehouse: Warehouse) -> dict[str, DimensionTable]:
    """The dimensions of a warehouse; those that the project's file of streams declares are read from their sources."""
    path = said("streams")
    declared = declared_dimensions(path) if path is not None and Path(path).is_file() else {}
    return stored_dimensions(warehouse) | declared


def make_dimension(connection: duckdb.DuckDBPyConnection, table: DimensionTable, is_shadowed: bool) -> None:
    """Make a dimension a view: ``dimensions.<name>`` and, unless a query has the name, ``<name>``.

    Raises what reading it raises.
    """
    source = exp.Table(this=exp.to_identifier(f"{SOURCE} {table.name}", quoted=True))
    connection.register(source.name, table.rows())
    schema = exp.Table(this=exp.to_identifier(SCHEMA, quoted=True))
    connection.execute(created(table.name, table.select(source), schema).sql("duckdb"))
    if not is_shadowed:
        own = exp.Table(this=exp.to_identifier(table.name, quoted=True), db=exp.to_identifier(SCHEMA, quoted=True))
        connection.execute(created(table.name, _all(own)).sql("duckdb"))
