"""Names of a Delta table's columns in its files (column mapping): by the log's names, or by their ids.

Each file has its own :data:`Names`: an older file may contain columns that the table has renamed since, and dropped
columns whose names belong to other columns now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import pyarrow as pa

Names = Mapping[tuple[str, ...], str]
"""The table's name for a column or field of a file, by its path there (fields of structs by name, below a map ``key``
and ``value``, below an array ``element``). Paths that are missing were dropped from the table.
"""

_PHYSICAL, _ID, _FIELD_ID = b"delta.columnMapping.physicalName", b"delta.columnMapping.id", b"PARQUET:field_id"

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def names_in_file(table: pa.Schema, file: pa.Schema, by_id: bool) -> dict[tuple[str, ...], str]:
    """Names of a file of a table with column mapping, by the ids of its fields or by names, as the mode requires."""
    names: dict[tuple[str, ...], str] = {}
    _match(table, file, (), by_id, names)
    return names


def _match(
    columns: Iterable[pa.Field],
    fields: Iterable[pa.Field],
    above: tuple[str, ...],
    by_id: bool,
    names: dict[tuple[str, ...], str],
) -> None:
    known_by = {}
    for field in columns:
        metadata = field.metadata or {}
        # an Iceberg table's columns have ids of their own
        known_by[
            metadata.get(_ID, metadata.get(_FIELD_ID)) if by_id else metadata.get(_PHYSICAL, field.name.encode())
        ] = field
    for field in fields:
        column = known_by.get((field.metadata or {}).get(_FIELD_ID) if by_id else field.name.encode())
        if column is not None:
            names[*above, field.name] = column.name
            _match_inner(column.type, field.type, (*above, field.name), by_id, names)


def _match_inner(
    known: pa.DataType, stored: pa.DataType, above: tuple[str, ...], by_id: bool, names: dict[tuple[str, ...], str]
) -> None:
    if pa.types.is_struct(known) and pa.types.is_struct(stored):
        _match(known, stored, above, by_id, names)
    elif pa.types.is_map(known) and pa.types.is_map(stored):
        _match_inner(known.key_type, stored.key_type, (*above, "key"), by_id, names)
        _match_inner(known.item_type, stored.item_type, (*above, "value"), by_id, names)
    elif pa.types.is_list(known) and pa.types.is_list(stored):
        _match_inner(known.value_type, stored.value_type, (*above, "element"), by_id, names)


def as_table_has(schema: pa.Schema, names: Names) -> pa.Schema:
    """The columns of a file that the table still has, as the table calls them."""
    fields = (field.with_type(_type(field.type, (field.name,), names)) for field in schema if (field.name,) in names)
    return pa.schema([field.with_name(names[(name,)]) for field in fields if (name := field.name)])


def renamed(rows: Rows, names: Names) -> Rows:
    """Rows of a file as the table calls their columns, of which all are there."""
    columns = [
        _viewed(column, _type(column.type, (name,), names))
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return type(rows).from_arrays(columns, names=[names[(name,)] for name in rows.schema.names])


def _viewed(column: pa.Array | pa.ChunkedArray, type: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if column.type == type:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([chunk.view(type) for chunk in column.chunks], type)
    return column.view(type)


def _type(type: pa.DataType, path: tuple[str, ...], names: Names) -> pa.DataType:
    if pa.types.is_struct(type):
        # a name that nobody can ask for stands for a field that the table has dropped
        return pa.struct(
            [
                field.with_type(_type(field.type, (*path, field.name), names)).with_name(
                    names.get((*path, field.name), f"\0{field.name}")
                )
                for field in type
            ]
        )
    if pa.types.is_map(type):
        key, value = _type(type.key_type, (*path, "key"), names), _type(type.item_type, (*path, "value"), names)
        return pa.map_(key, type.item_field.with_type(value))
    if pa.types.is_list(type):
        return pa.list_(type.value_field.with_type(_type(type.value_type, (*path, "element"), names)))
    return type


def place_in_file(path: tuple[str, ...], names: Names) -> tuple[str, ...]:
    """Path in the file of a column of the table, or of a field of its structs."""
    at: tuple[str, ...] = ()
    for name in path:
        at = next(known for known, called in names.items() if known[:-1] == at and called == name)
    return at
