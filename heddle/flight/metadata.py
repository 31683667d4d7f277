"""Metadata for Flight SQL clients: the server, and its tables. Every query, and every dimension
that queries join, is a view of one schema."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa

from heddle.flight.messages import INFO_VALUE, SCHEMAS
from spark_jobs.results.dimension_tables import DimensionTable, stored_dimensions
from spark_jobs.results.relations import Relations, relations
from spark_jobs.results.views import view_names
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.expressions import arrow_type

CATALOG, SCHEMA, VIEW = "memory", "main", "VIEW"
"""DuckDB's names for where the views are, so that a client may write them in front of a view's name."""

_FACTS: dict[int, str | bool | int] = {
    0: "Heddle",
    1: duckdb.__version__,
    2: pa.__version__,
    3: True,  # read only
    4: True,  # SQL
    5: False,  # Substrait
    8: 0,  # no transactions
    9: False,  # CancelQuery: a client that ends a call ends the statement
    500: False,  # CREATE of catalogs, schemas, tables
    501: False,
    502: False,
    503: 1,  # names in any case
    504: '"',
    505: 1,
    506: True,  # all tables can be selected
    507: 3,  # nulls at the end
    513: "\\",
    515: True,  # AS
    529: "schema",
    531: "catalog",
    532: True,  # the catalogue in front
}
"""Answers of CommandGetSqlInfo, by the numbers of its enumeration."""


def metadata(warehouse: Warehouse, name: str, command: Any) -> pa.Table:
    """Answer a request for metadata."""
    if name == "CommandGetSqlInfo":
        return _info(list(command.info))
    schema = schema_of(name, command)
    rows: list[tuple[Any, ...]] = []
    if name == "CommandGetCatalogs":
        rows = [(CATALOG,)]
    elif name == "CommandGetTableTypes":
        rows = [(VIEW,)]
    elif name == "CommandGetDbSchemas" and _is_ours(command):
        rows = [(CATALOG, SCHEMA)]
    elif name == "CommandGetTables" and _is_ours(command) and VIEW in (command.table_types or [VIEW]):
        rows = _tables(warehouse, command)
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)


def schema_of(name: str, command: Any) -> pa.Schema:
    """Return the columns of the answer to a request for metadata."""
    schema = SCHEMAS[name]
    if name == "CommandGetTables" and command.include_schema:
        return schema.append(pa.field("table_schema", pa.binary(), False))
    return schema


def _is_ours(command: Any) -> bool:
    """Return whether the catalogue and schema that a request names are those of the views."""
    if command.HasField("catalog") and command.catalog != CATALOG:
        return False
    return not command.HasField("db_schema_filter_pattern") or _matches(command.db_schema_filter_pattern, SCHEMA)


def _tables(warehouse: Warehouse, command: Any) -> list[tuple[Any, ...]]:
    known = relations(warehouse)
    pattern = command.table_name_filter_pattern if command.HasField("table_name_filter_pattern") else "%"
    names = {query: name for query, name in view_names(known, "duckdb").items() if _matches(pattern, name)}
    schemas = {name: partial(_schema_of, known, query) for query, name in names.items()}
    used_names = {name.lower() for name in view_names(known, "duckdb").values()}
    for name, dimension in stored_dimensions(warehouse).items():
        if _matches(pattern, name) and name.lower() not in used_names:
            schemas[name] = partial(_arrow_schema, dimension)
    rows = [(CATALOG, SCHEMA, name, VIEW) for name in sorted(schemas)]
    if not command.include_schema:
        return rows
    return [(*row, schemas[row[2]]().serialize().to_pybytes()) for row in rows]


def _schema_of(known: Relations, query: str) -> pa.Schema:
    return known[query].schema


def _arrow_schema(dimension: DimensionTable) -> pa.Schema:
    return pa.schema([(name, arrow_type(type)) for name, type in dimension.columns])


def _matches(pattern: str, name: str) -> bool:
    r"""Return whether a name matches a pattern of ``%`` and ``_``, which ``\`` escapes."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    text = "".join(wild.get(part) or re.escape(part[-1]) for part in parts)
    return re.fullmatch(text, name, re.DOTALL | re.IGNORECASE) is not None


def _info(requested: list[int]) -> pa.Table:
    """Facts about the server: those that are requested and known, or all."""
    facts = {number: _FACTS[number] for number in sorted(requested or _FACTS) if number in _FACTS}
    kinds = {str: 0, bool: 1, int: 3}
    codes = [kinds[type(value)] for value in facts.values()]
    children = [[value for value in facts.values() if kinds[type(value)] == code] for code in range(6)]
    offsets = [codes[:place].count(code) for place, code in enumerate(codes)]
    values = pa.UnionArray.from_dense(
        pa.array(codes, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(child, INFO_VALUE.field(code).type) for code, child in enumerate(children)],
        [INFO_VALUE.field(code).name for code in range(6)],
        list(range(6)),
    )
    return pa.table([pa.array(list(facts), pa.uint32()), values], SCHEMAS["CommandGetSqlInfo"])
