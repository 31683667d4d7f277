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
from spark_jobs.results.views import created, sql_type
from spark_jobs.store.settings import said, settings
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.dimension_rows import ALWAYS, VALID_FROM, VALID_TO, attribute_name
from spark_jobs.streams.sources.dimension_versions import current_version_of, stored_dimension_names
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
    # plans are large: they are not read for nothing
    version = current_version(warehouse) if stored_dimension_names(warehouse) else None
    streams = load_plan(warehouse, version).workload.streams if version is not None else ()
    tables = {}
    for dimension in {each.name: each for stream in streams for each in stream.dimensions}.values():
        place = current_place(warehouse, dimension.name)
        if place is not None:
            columns = stored_columns(dimension, place)
            select = partial(stored_select, dimension, columns)
            tables[dimension.name] = DimensionTable(dimension.name, columns, partial(_stored_rows, place), select)
    return tables


def current_place(warehouse: Warehouse, name: str) -> Place | None:
    """The file with the version of a dimension that a run used last; None: no run has used it."""
    current = current_version_of(warehouse, name)
    return None if current is None else Place.of(current.place)


def stored_columns(dimension: Dimension, place: Place) -> tuple[tuple[str, Type], ...]:
    """The columns of a dimension that a version has, with their types."""
    names = pq.read_schema(place.open()).names
    known = {column for column in dict(dimension.schema) if attribute_name(column) in names} | set(dimension.special)
    return tuple((column, type) for column, type in dimension.schema if column in known)


def _stored_rows(place: Place) -> ds.Dataset:
    return ds.dataset(str(place.local()), format="parquet") if place.is_local else pq.read_table(place.open())


def stored_select(dimension: Dimension, columns: Sequence[tuple[str, Type]], source: exp.Expr) -> exp.Select:
    """The SELECT of a dimension's columns, as they are declared, from rows of its versions."""
    validity = dict(zip(dimension.special[len(dimension.key) :], (VALID_FROM, VALID_TO), strict=False))
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
