"""Join events with dimensions by DuckDB, independently of the look-up of answers.

Runs look the keys of events up in arrays. The audit joins the same version of a dimension, a Parquet file, as SQL
defines it: LEFT JOIN on equality of all key columns and, with validities, ``from <= time < to``. The layout of the file
is declared here a second time, so that a fault in the look-up, or in what it takes for a key, shows up as a difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import NamedTuple

import duckdb
import pyarrow as pa

from optimizer.workload.attribute_names import JoinedAttribute, read_key
from optimizer.workload.attributes import attributes_in
from optimizer.workload.computed_keys import key_expression
from optimizer.workload.values import Dimension, Stream, Type
from spark_jobs.audit.unshared.duckdb_expressions import FLOOR_DIV, CannotTell, Translator, quoted, text_literal
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources.expressions import arrow_type
from spark_jobs.streams.sources.formats.source_format import ReadByRun

FROM, TO = "valid\tfrom", "valid\tto"
"""Columns of a version's file with the validity of its rows, in microseconds."""


def joined_events(
    connection: duckdb.DuckDBPyConnection, stream: Stream, events: pa.Table, columns: Sequence[str]
) -> pa.Table:
    """Some columns of events, (n,) each: those that are attributes of dimensions are joined, in the declared types.

    ``events`` have the stream's own columns that these are read from, and its time. Their order is not kept. Raises
    ReadByRun for a version that DuckDB cannot open, and what DuckDB raises.
    """
    attributes = attributes_in(stream, columns)
    if not attributes:
        return events.select(list(columns))
    numbered = events.rename_columns([f"c{number}" for number in range(events.num_columns)])
    names = {name: f"e.c{number}" for number, name in enumerate(events.column_names)}
    try:
        joins = _joins(stream, attributes, names)
    except CannotTell as reason:
        raise ReadByRun(f"a key of a join: {reason}") from reason
    selected = ", ".join(f"{names[name]} AS s{number}" for number, name in enumerate(columns))
    connection.execute(FLOOR_DIV)
    connection.register("joined", numbered)
    try:
        sql = f"SELECT {selected} FROM joined e {' '.join(joins)}"
        rows: pa.Table = connection.sql(sql).to_arrow_table()
    finally:
        connection.unregister("joined")
    schema = pa.schema([(name, arrow_type(stream.types[name])) for name in columns])
    return rows.rename_columns(list(columns)).cast(schema).combine_chunks()


class _Key(NamedTuple):
    """A key of events in SQL; ``is_micros``: a timestamp in microseconds."""

    sql: str
    is_micros: bool = False


class _KeyTranslator(Translator):
    """Values of events, whose columns and attributes have these types and are this in SQL."""

    def __init__(self, types: Mapping[str, Type], names: Mapping[str, str]) -> None:
        super().__init__(pa.schema([]), names)
        self._types = types

    def _column(self, name: str) -> tuple[str, str]:
        assert self._names is not None
        kind, sql = self._types[name].name, self._names[name]
        if kind == "timestamp":
            return f"epoch_us({sql})", kind
        return (f"({sql})::HUGEINT" if kind == "long" else sql), kind


def _joins(stream: Stream, attributes: Mapping[str, JoinedAttribute], names: dict[str, str]) -> list[str]:
    """A join for each dimension and key; adds what the attributes are in SQL to the ``names``."""
    joins, aliases, numbers = list[str](), dict[JoinedAttribute, str](), count()
    translate = _KeyTranslator(stream.types, names)
    for name, attribute in attributes.items():
        dimension = stream.dimension(attribute.dimension)
        alias = aliases.get(attribute.row)
        if alias is None:
            alias = aliases[attribute.row] = f"d{next(numbers)}"
            keys = [_key(key, names, translate) for key in attribute.keys]
            joins.append(_join(dimension, alias, keys, names[stream.time]))
        # rows with a null in the key are in no version
        exists = f"({alias}.{quoted(dimension.key[0])} IS NOT NULL)"
        column = attribute.column
        stored = column if column is None or column in dimension.key else f"\t{column}"
        names[name] = exists if stored is None else f"{alias}.{quoted(stored)}"
    return joins


def _key(key: str, names: Mapping[str, str], translate: Translator) -> _Key:
    if read_key(key) is None:
        return _Key(names[key])
    sql, kind = translate(key_expression(key))
    return _Key(sql, kind == "timestamp")


def _join(dimension: Dimension, alias: str, keys: Sequence[_Key], time: str) -> str:
    conditions = []
    for key, name in zip(keys, dimension.key, strict=True):
        column = f"{alias}.{quoted(name)}"
        conditions.append(f"{key.sql} = {f'epoch_us({column})' if key.is_micros else column}")
    if dimension.valid_from is not None:
        moment = f"epoch_us({time})"
        conditions += [f"{moment} >= {alias}.{quoted(FROM)}", f"{moment} < {alias}.{quoted(TO)}"]
    return f"LEFT JOIN read_parquet({text_literal(_file(dimension))}) {alias} ON {' AND '.join(conditions)}"


def _file(dimension: Dimension) -> str:
    if dimension.version is None:
        raise ReadByRun(f"dimension {dimension.name} has no version")
    path = dimension.version.place
    if not Place.of(path).is_local:
        raise ReadByRun(f"the rows of dimension {dimension.name} are in a store")
    if any(mark in path for mark in "*?[]{}"):
        raise ReadByRun("the name of a file")
    return path
