"""Tables of a database that only Spark reads: what its JDBC driver says of them, and some of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError, meant
from optimizer.workload.values import Stream
from spark_jobs.streams.copies.databases.connection import MOST_TABLES, TableColumn, TableSummary
from spark_jobs.streams.copies.jdbc_reading import database_frame, database_options, estimated_rows
from spark_jobs.streams.copies.origins import failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SYSTEM_SCHEMAS = (
    "information_schema",
    "mysql",
    "performance_schema",
    "pg_catalog",
    "pg_toast",
    "sys",
    "nullid",
    "sqlj",
)
"""Schemas, in lower case, of a database's own tables; and those that begin with ``sys``."""

_INTEGERS = (-6, 4, 5, -5)
_STAMPS, _ZONED, _DATE = 93, 2014, 91
"""Types of JDBC."""


class JdbcTables:
    """The tables of the database of a stream's origin, whose own table does not matter."""

    def __init__(self, spark: SparkSession, stream: Stream) -> None:
        if not hasattr(spark, "_jvm"):
            hint = "use a classic Spark master, or write streams.yaml by hand: docs/sources.md, Databases"
            raise HeddleError("HDL-405", "Spark Connect does not list the tables of a database", hint)
        self._spark, self._stream = spark, stream
        java: Any = spark
        self._java = java._jvm

    def tables(self) -> tuple[TableSummary, ...]:
        """The tables and views, by name, with their numbers of rows if the database estimates them. Raises HDL-433,
        HDL-489 and HDL-490."""
        java: Any = self._spark
        with failures(self._stream):
            connection = self._connected()
            try:
                metadata, summaries = connection.getMetaData(), []
                kinds = java.sparkContext._gateway.new_array(self._java.java.lang.String, 2)
                kinds[0], kinds[1] = "TABLE", "VIEW"
                catalog = connection.getCatalog() or None
                listed = list(_rows(metadata.getTables(catalog, None, "%", kinds), (1, 2, 3)))
                for catalog, schema, table in listed[:MOST_TABLES]:
                    above = (schema or catalog or "").lower()
                    if above in SYSTEM_SCHEMAS or above.startswith("sys"):
                        continue
                    summaries.append(self._summary(metadata, catalog, schema, table))
            finally:
                connection.close()
            rows = estimated_rows(self._spark, self._stream)
        known = (replace(summary, rows=rows.get(summary.name)) for summary in summaries)
        return tuple(sorted(known, key=lambda summary: summary.name))

    def _connected(self) -> Any:
        """A connection of the driver's own, made as Spark makes it."""
        reader = database_options(self._spark, self._stream, None)
        options = self._java.java.util.HashMap()
        for name, value in reader.items():
            options.put(name, value)
        known = self._java.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(
            self._java.org.apache.spark.api.python.PythonUtils.toScalaMap(options)
        )
        dialect = self._java.org.apache.spark.sql.jdbc.JdbcDialects.get(reader["url"])
        return dialect.createConnectionFactory(known).apply(-1)

    def _summary(self, metadata: Any, catalog: str | None, schema: str | None, table: str) -> TableSummary:
        described = _rows(metadata.getColumns(catalog, schema, table, "%"), (4, 5, 6))
        columns = tuple(TableColumn(name, declared, _arrow(int(kind))) for name, kind, declared in described)
        keys = [name for (name,) in _rows(metadata.getPrimaryKeys(catalog, schema, table), (4,))]
        integers = {column.name for column in columns if column.arrow == pa.int64()}
        key = keys[0] if len(keys) == 1 and keys[0] in integers else None
        return TableSummary(".".join(filter(None, (schema or catalog, table))), None, True, columns, key)

    def table(self, name: str) -> TableSummary:
        """The table of a name. Raises HDL-401."""
        known = self.tables()
        exact = [table for table in known if table.name == name]
        close = [table for table in known if f".{table.name}".lower().endswith(f".{name}".lower())]
        if not (exact or close):
            names = [table.name for table in known]
            raise HeddleError("HDL-401", f"there is no table {name} in the database", meant(name, names))
        return (exact or close)[0]

    def frame(self, table: str) -> DataFrame:
        """The rows of a table; timestamps that name no zone have none."""
        return database_frame(self._spark, self._stream, table, is_looked_at=True)


def _rows(results: Any, columns: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    """The rows of a result of JDBC, of some columns."""
    while results.next():
        yield tuple(results.getString(column) for column in columns)
    results.close()


def _arrow(kind: int) -> pa.DataType | None:
    """A type for checks of a column before it is read: whether it is an integer, or a time."""
    if kind in _INTEGERS:
        return pa.int64()
    if kind in (_STAMPS, _ZONED):
        return pa.timestamp("us", tz="UTC")
    return pa.date32() if kind == _DATE else None
