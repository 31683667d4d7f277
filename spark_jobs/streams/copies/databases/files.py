"""Databases in files, opened to be read only: SQLite through ADBC, DuckDB by its own package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.values import BOOLEAN, DOUBLE, Type
from spark_jobs.streams.copies.databases.connection import (
    MOST_TABLES,
    AdbcConnection,
    Connection,
    TableColumn,
    TableSummary,
    driver_message,
)

BATCH = 65_536
"""Rows of a batch."""

ROWID = "rowid"
"""The column of each table of SQLite's by which its rows are numbered."""

_UTC = pa.timestamp("us", tz="UTC")


def _without_file(name: str, path: Path) -> HeddleError:
    hint = "check `path`: with three slashes it is relative to streams.yaml, with four it is absolute"
    return HeddleError("HDL-401", f"{name}: there is no file {path}", hint)


class SqliteConnection(AdbcConnection):
    """A SQLite file. Each of its values has a type of its own, so each is compared with what the stream declares."""

    kind = "sqlite"
    _options = MappingProxyType({"adbc.sqlite.query.batch_rows": str(BATCH)})

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name)
        from adbc_driver_manager import Error
        from adbc_driver_sqlite import dbapi as sqlite

        if not path.is_file():
            raise _without_file(name, path)
        self._error = Error
        self._path = path
        with self.failures():
            self._connection = sqlite.connect(f"file:{quote(str(path))}?mode=ro")
        try:
            # the first statement takes the snapshot
            self.rows("SELECT count(*) AS n FROM sqlite_master")
        except BaseException:
            self.close()
            raise

    # ---------------------------------------------------------------------------------------------- tables
    def _names(self) -> list[str]:
        statement = (
            "SELECT '' AS name UNION ALL SELECT name FROM (SELECT name FROM sqlite_master WHERE type IN "
            f"('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name LIMIT {MOST_TABLES})"
        )
        return [name for (name,) in self.rows(statement) if name]

    def tables(self) -> tuple[TableSummary, ...]:
        summaries = []
        for name in self._names():
            ((rows,),) = self.rows(f"SELECT count(*) AS n FROM {self.quoted(name)}")
            summaries.append(TableSummary(name, rows, False, self.columns((name,)), self._key(name)))
        return tuple(summaries)

    def _key(self, table: str) -> str | None:
        """The column that is another name of the rows' numbers, else these; None: a view, or a table without them."""
        keys = [name for name, key, declared in self._described(table) if key and declared.upper() == "INTEGER"]
        if len(keys) == 1 and sum(bool(key) for _, key, _ in self._described(table)) == 1:
            return keys[0]
        with suppress(HeddleError):
            self.rows(f"SELECT 0 AS n UNION ALL SELECT {ROWID} FROM {self.quoted(table)} WHERE false")
            return ROWID
        return None

    def _described(self, table: str) -> list[tuple[str, int, str]]:
        statement = (
            "SELECT '' AS name, 0 AS pk, '' AS type UNION ALL SELECT name, pk, type FROM "
            f"pragma_table_info({_text(table)})"
        )
        return self.rows(statement)[1:]

    def relation(self, table: str) -> tuple[str, ...]:
        *above, name = table.split(".")
        known = self._names()
        spelled = next((each for each in known if each == name), None) or next(
            (each for each in known if each.lower() == name.lower()), None
        )
        if spelled is None or above not in ([], ["main"]):
            raise self.no_table(table, known)
        return (spelled,)

    def columns(self, relation: tuple[str, ...]) -> tuple[TableColumn, ...]:
        described, key = self._described(relation[0]), self._key(relation[0])
        columns = [
            TableColumn(name, declared or "no type", sqlite_type(declared), is_required=name == key)
            for name, _, declared in described
        ]
        if ROWID not in (column.name.lower() for column in columns) and key is not None:
            # it is not among the columns, but can be a watermark
            columns.append(TableColumn(ROWID, "INTEGER", pa.int64(), is_required=True))
        return tuple(columns)

    # ---------------------------------------------------------------------------------------------- values
    def value(self, column: TableColumn, declared: Type | None) -> str:
        name = self.quoted(column.name)
        if declared is None or declared == BOOLEAN or declared.name == "long":
            return f"CASE typeof({name}) WHEN 'integer' THEN {name} END"
        if declared == DOUBLE:
            return f"CASE WHEN typeof({name}) IN ('real', 'integer') THEN CAST({name} AS REAL) END"
        if declared.name == "decimal":
            real = f"WHEN 'real' THEN printf('%!.15g', {name})"
            return f"CASE typeof({name}) WHEN 'integer' THEN CAST({name} AS TEXT) {real} WHEN 'text' THEN {name} END"
        return f"CASE typeof({name}) WHEN 'text' THEN {name} END"

    def misfit(self, column: TableColumn, declared: Type) -> str | None:
        name = self.quoted(column.name)
        if declared == DOUBLE:
            fits = f"typeof({name}) IN ('null', 'real') OR typeof({name}) = 'integer' AND CAST({name} AS REAL) = {name}"
        elif declared.name == "decimal":
            is_real = f"typeof({name}) = 'real' AND CAST(printf('%!.15g', {name}) AS REAL) = {name}"
            fits = f"typeof({name}) IN ('null', 'integer', 'text') OR {is_real}"
        elif declared == BOOLEAN:
            fits = f"typeof({name}) = 'null' OR typeof({name}) = 'integer' AND {name} IN (0, 1)"
        else:
            fits = f"typeof({name}) IN ('null', '{'integer' if declared.name == 'long' else 'text'}')"
        return f"NOT ({fits})"

    def read_as(self, column: TableColumn, declared: Type | None) -> str:
        if declared is None or declared == BOOLEAN or declared.name == "long":
            return "0"
        return "0.0" if declared == DOUBLE else "''"

    def unpositioned(self, column: TableColumn) -> str:
        # among integers, what is none has no place that stays
        return f"typeof({self.quoted(column.name)}) <> 'integer'"

    # ---------------------------------------------------------------------------------------------- failures
    def coded(self, error: Exception, table: str) -> HeddleError:
        text = str(error)
        if "locked" in text or "unable to open" in text:
            hint = "another program has it open to write it, or it may not be read: run it again"
            return HeddleError("HDL-489", f"{self.name}: {self._path} cannot be opened: {driver_message(error)}", hint)
        if "not a database" in text:
            return HeddleError("HDL-489", f"{self.name}: {self._path} is no SQLite database", "check `path`")
        return super().coded(error, table)


def sqlite_type(declared: str) -> pa.DataType | None:
    """The type that the values of a column of SQLite's should have, by the type that it is declared with."""
    text = declared.upper()
    digits = re.match(r"(?:DECIMAL|NUMERIC)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", text)
    if digits is not None and 1 <= int(digits[1]) <= 38 and int(digits[2] or 0) <= int(digits[1]):
        return pa.decimal128(int(digits[1]), int(digits[2] or 0))
    for pattern, arrow in (
        ("BOOL", pa.bool_()),
        ("TIMESTAMP|DATETIME", _UTC),
        ("DATE", pa.date32()),
        ("INT", pa.int64()),
        ("CHAR|CLOB|TEXT|UUID|JSON", pa.string()),
        ("REAL|FLOA|DOUB|DECIMAL|NUMERIC", pa.float64()),
    ):
        if re.search(pattern, text):
            return arrow
    return None


class DuckdbConnection(Connection):
    """A file of DuckDB's, whose columns have types as Arrow's have."""

    kind = "duckdb"

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name)
        if not path.is_file():
            raise _without_file(name, path)
        self._path = path
        with self.failures():
            import duckdb

            self._connection = duckdb.connect(str(path), read_only=True, config={"enable_external_access": "false"})
        try:
            with self.failures():
                for statement in ("SET TimeZone = 'UTC'", "SET threads = 2", "BEGIN TRANSACTION READ ONLY"):
                    self._connection.execute(statement)
        except BaseException:
            self.close()
            raise

    def batches(self, statement: str) -> Iterator[pa.RecordBatch]:
        with self.failures():
            yield from self._connection.sql(statement).to_arrow_reader(BATCH)

    def close(self) -> None:
        self._connection.close()

    # ---------------------------------------------------------------------------------------------- tables
    def tables(self) -> tuple[TableSummary, ...]:
        listed = self.rows(
            "SELECT schema_name, table_name, estimated_size::BIGINT FROM duckdb_tables() WHERE NOT internal AND "
            "database_name = current_database() UNION ALL SELECT schema_name, view_name, NULL FROM duckdb_views() "
            f"WHERE NOT internal AND database_name = current_database() ORDER BY 1, 2 LIMIT {MOST_TABLES}"
        )
        keys = {
            (schema, table): columns[0]
            for schema, table, columns in self.rows(
                "SELECT schema_name, table_name, constraint_column_names FROM duckdb_constraints() WHERE "
                "constraint_type = 'PRIMARY KEY' AND len(constraint_column_names) = 1"
            )
        }
        summaries = []
        for schema, table, rows in listed:
            columns = self.columns((schema, table))
            integers = {column.name for column in columns if column.arrow and pa.types.is_integer(column.arrow)}
            key = keys.get((schema, table))
            summaries.append(TableSummary(f"{schema}.{table}", rows, True, columns, key if key in integers else None))
        return tuple(summaries)

    def relation(self, table: str) -> tuple[str, ...]:
        *above, name = table.split(".")
        known = self.rows(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = current_database() "
            "ORDER BY table_schema <> 'main', 1, 2"
        )
        for schema, spelled in known:
            if spelled.lower() == name.lower() and (not above or above[-1:] == [schema]) and len(above) < 3:
                return (schema, spelled)
        raise self.no_table(table, [f"{schema}.{spelled}" for schema, spelled in known])

    def columns(self, relation: tuple[str, ...]) -> tuple[TableColumn, ...]:
        schema, table = relation
        described = self.rows(
            "SELECT column_name, data_type, is_nullable FROM duckdb_columns() WHERE database_name = current_database() "
            f"AND schema_name = {_text(schema)} AND table_name = {_text(table)} ORDER BY column_index"
        )
        return tuple(_duckdb_column(*column) for column in described)

    def value(self, column: TableColumn, declared: Type | None) -> str:
        name = self.quoted(column.name)
        if column.declared in ("HUGEINT", "UHUGEINT"):
            return f"{name}::DECIMAL(38, 0)"
        return f"{name}::VARCHAR" if column.is_text else name

    def unpositioned(self, column: TableColumn) -> str:
        name = self.quoted(column.name)
        is_time = column.arrow is not None and (pa.types.is_timestamp(column.arrow) or pa.types.is_date(column.arrow))
        return f"({name} IS NULL OR isinf({name}))" if is_time else f"{name} IS NULL"

    def position(self, column: TableColumn, number: int) -> str:
        if column.arrow is not None and (pa.types.is_timestamp(column.arrow) or pa.types.is_date(column.arrow)):
            is_local = column.is_local or pa.types.is_date(column.arrow)
            return f"{'make_timestamp' if is_local else 'make_timestamptz'}({number}::BIGINT)"
        return super().position(column, number)

    # ---------------------------------------------------------------------------------------------- failures
    def is_own(self, error: Exception) -> bool:
        import duckdb

        return isinstance(error, (duckdb.Error, pa.ArrowException))

    def coded(self, error: Exception, table: str) -> HeddleError:
        import duckdb

        if isinstance(error, duckdb.IOException):
            hint = "another program has it open to write it, or it is no such file: run it again"
            return HeddleError("HDL-489", f"{self.name}: {self._path} cannot be opened: {driver_message(error)}", hint)
        return super().coded(error, table)


_DUCKDB: dict[str, Any] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "HUGEINT": pa.decimal128(38, 0),
    "UHUGEINT": pa.decimal128(38, 0),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "DATE": pa.date32(),
    "BLOB": None,
    "BIT": None,
}


def _duckdb_column(name: str, declared: str, is_nullable: bool) -> TableColumn:
    if declared.startswith("TIMESTAMP"):
        return TableColumn(name, declared, _UTC, declared != "TIMESTAMP WITH TIME ZONE")
    digits = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", declared)
    if digits is not None:
        return TableColumn(name, declared, pa.decimal128(int(digits[1]), int(digits[2])))
    if re.search(r"\[\d*\]$|^(STRUCT|MAP|UNION)\(", declared):
        return TableColumn(name, declared, None, is_nested=True)
    if declared in _DUCKDB:
        is_required = not is_nullable and declared.endswith("INT")
        return TableColumn(name, declared, _DUCKDB[declared], is_required=is_required)
    return TableColumn(name, declared, pa.string(), is_text=True)


def _text(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"
