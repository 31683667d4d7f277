"""PostgreSQL, through ADBC: a transaction at REPEATABLE READ, whose tables are read by COPY in binary form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode

import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.databases import VARIABLES, DatabaseUrl
from optimizer.workload.values import Type
from spark_jobs.streams.copies.databases.connection import (
    MOST_TABLES,
    AdbcConnection,
    TableColumn,
    TableSummary,
    driver_message,
)

PARAMETERS = {
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
    "host": "host",
    "port": "port",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
}
"""Parameters of a JDBC URL that PostgreSQL's own library has too, by its names for them."""

PATIENCE = 15
"""Seconds in which a server has to accept a connection."""

COUNTED_BYTES = 64 << 20
"""Size of a table below which its rows are counted if the server has no estimate."""

_UTC = pa.timestamp("us", tz="UTC")

_TYPES: Mapping[str, tuple[pa.DataType | None, bool]] = {
    "bool": (pa.bool_(), False),
    "int2": (pa.int16(), False),
    "int4": (pa.int32(), False),
    "int8": (pa.int64(), False),
    "float4": (pa.float32(), False),
    "float8": (pa.float64(), False),
    "text": (pa.string(), False),
    "varchar": (pa.string(), False),
    "bpchar": (pa.string(), False),
    "name": (pa.string(), True),
    "timestamp": (_UTC, False),
    "timestamptz": (_UTC, False),
    "date": (pa.date32(), False),
    "bytea": (None, False),
    "bit": (None, False),
    "varbit": (None, False),
}
"""Arrow types of PostgreSQL's, as Spark's JDBC reads them too, and whether the server writes their values as texts.
(Others are read as texts.)"""


class PostgresConnection(AdbcConnection):
    """A connection to PostgreSQL, or to a server that speaks its protocol."""

    kind = "postgresql"

    def __init__(self, name: str, url: DatabaseUrl, user: str, password: str) -> None:
        super().__init__(name)
        from adbc_driver_manager import Error, dbapi  # noqa: F401 - the manager raises what drivers do
        from adbc_driver_postgresql import dbapi as postgres

        self._error = Error
        self._where = f"{url.host or 'localhost'}/{url.database}"
        parameters = {PARAMETERS[key]: value for key, value in url.parameters}
        parameters = {"connect_timeout": str(PATIENCE), "application_name": "heddle"} | parameters
        account = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
        address = f"postgresql://{account}@{url.host}" if account else f"postgresql://{url.host}"
        with self.failures():
            self._connection = postgres.connect(
                f"{address}/{quote(url.database, safe='')}?{urlencode(parameters, quote_via=quote)}"
            )
        try:
            with self.failures():
                self._execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                self._execute("SET LOCAL TimeZone = 'UTC'")
        except BaseException:
            self.close()
            raise

    def _execute(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    # ---------------------------------------------------------------------------------------------- tables
    def tables(self) -> tuple[TableSummary, ...]:
        listed = self.rows(
            "SELECT n.nspname::text, c.relname::text, c.reltuples::float8, c.oid::int8, "
            f"c.relkind <> 'v' AND pg_table_size(c.oid) < {COUNTED_BYTES} FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema') "
            "AND n.nspname NOT LIKE 'pg\\_%' AND NOT c.relispartition AND has_table_privilege(c.oid, 'SELECT') "
            f"ORDER BY 1, 2 LIMIT {MOST_TABLES}"
        )
        keys = dict(
            self.rows(
                "SELECT i.indrelid::int8, a.attname::text FROM pg_index i JOIN pg_attribute a ON "
                "a.attrelid = i.indrelid AND a.attnum = i.indkey[0] WHERE i.indisprimary AND i.indnkeyatts = 1 "
                "AND a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)"
            )
        )
        columns: dict[int, tuple[TableColumn, ...]] = {}
        for number, *described in self.rows(_COLUMNS.format(fields="a.attrelid::int8, ", where="true")):
            columns[number] = (*columns.get(number, ()), _column(*described))
        summaries = []
        for schema, table, estimated, oid, is_small in listed:
            rows = int(estimated) if estimated >= 0 else None
            if rows is None and is_small:
                ((rows,),) = self.rows(f"SELECT count(*) AS n FROM {self.quoted(schema)}.{self.quoted(table)}")
            name = f"{schema}.{table}"
            summaries.append(TableSummary(name, rows, estimated >= 0, columns.get(oid, ()), keys.get(oid)))
        return tuple(summaries)

    def relation(self, table: str) -> tuple[str, ...]:
        *above, name = table.split(".")
        place = "n.nspname = ANY(current_schemas(true))"
        if above:
            place = f"n.nspname IN ({_text(above[-1])}, {_text(above[-1].lower())})"
        if len(above) > 1:
            place += f" AND current_database() = {_text(above[-2])}"
        if len(above) > 2:
            place = "false"
        matches = self.rows(
            "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE {place} AND c.relname IN ({_text(name)}, {_text(name.lower())}) "
            "AND c.relkind IN ('r', 'p', 'v', 'm', 'f') "
            f"ORDER BY c.relname = {_text(name)} DESC, n.nspname = {_text(above[-1] if above else '')} DESC, "
            "array_position(current_schemas(true), n.nspname) LIMIT 1"
        )
        if not matches:
            raise self.no_table(table, [each.name for each in self.tables()])
        return tuple(matches[0])

    def columns(self, relation: tuple[str, ...]) -> tuple[TableColumn, ...]:
        schema, table = relation
        where = f"n.nspname = {_text(schema)} AND c.relname = {_text(table)}"
        return tuple(_column(*row) for row in self.rows(_COLUMNS.format(fields="", where=where)))

    def value(self, column: TableColumn, declared: Type | None) -> str:
        name = self.quoted(column.name)
        if column.arrow == pa.bool_() and column.declared != "boolean":
            return f"({name} = B'1')"
        return f"{name}::text" if column.is_text else name

    def unpositioned(self, column: TableColumn) -> str:
        name = self.quoted(column.name)
        has_infinity = column.arrow is not None and not pa.types.is_integer(column.arrow)
        infinity = (
            f" OR {name} IN ('infinity', '-infinity')" if has_infinity and "numeric" not in column.declared else ""
        )
        return f"({name} IS NULL{infinity})"

    def position(self, column: TableColumn, number: int) -> str:
        arrow = column.arrow
        if arrow is None or not (pa.types.is_timestamp(arrow) or pa.types.is_date(arrow)):
            return super().position(column, number)
        # what no calendar has is a moment too
        kind = "TIMESTAMP" if column.is_local or pa.types.is_date(arrow) else "TIMESTAMPTZ"
        return f"({kind} 'epoch' + INTERVAL '{number} microseconds')"

    # ---------------------------------------------------------------------------------------------- failures
    def coded(self, error: Exception, table: str) -> HeddleError:
        text, state = str(error), str(getattr(error, "sqlstate", None) or "")
        if state.startswith("28") or re.search("authentication failed|no password supplied|no pg_hba.conf", text):
            hint = (
                f"check `user` and `password` under `options`, or {VARIABLES[self.kind]} where there is no `password`"
            )
            return HeddleError("HDL-490", f"{self.name}: {self._where} refuses the user: {driver_message(error)}", hint)
        if state == "42501" or "permission denied" in text:
            return HeddleError(
                "HDL-490", f"{self.name}: {driver_message(error)}", f"GRANT SELECT ON {table or 'the table'}"
            )
        if "Failed to connect" in text or state.startswith(("08", "3D")):
            hint = "is the server up, and are host, port and database right? `psql` with the same URL says more"
            return HeddleError(
                "HDL-489", f"{self.name}: {self._where} cannot be reached: {driver_message(error)}", hint
            )
        return super().coded(error, table)


_COLUMNS = (
    "SELECT {fields}a.attname::text, b.typname::text, b.typtype::text, b.typcategory::text, "
    "CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END::int4, "
    "format_type(a.atttypid, a.atttypmod)::text, a.attnotnull "
    "FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
    "JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_type t ON t.oid = a.atttypid "
    "JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END "
    "WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND {where} "
    "ORDER BY a.attrelid, a.attnum"
)
"""Columns of tables. Of a domain the type that it is made of."""


def _column(
    name: str, base: str, sort: str, category: str, modifier: int, declared: str, is_filled: bool
) -> TableColumn:
    if category == "A" or sort == "c":
        return TableColumn(name, declared, None, is_nested=True)
    if base == "numeric":
        return TableColumn(name, declared, _decimal(modifier))
    if base == "bit" and modifier == 1:
        return TableColumn(name, declared, pa.bool_())
    arrow, is_text = _TYPES.get(base, (pa.string(), True))
    is_required = is_filled and base in ("int2", "int4", "int8")
    return TableColumn(name, declared, arrow, base == "timestamp", is_text, is_required=is_required)


def _decimal(modifier: int) -> pa.DataType | None:
    """The decimal type of a numeric column; of one that says no digits that which Spark gives it."""
    if modifier < 4:
        return pa.decimal128(38, 18)
    precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
    return pa.decimal128(precision, scale) if scale <= precision <= 38 else None


def _text(text: str) -> str:
    """A text as SQL has it. Only names come here, which have no other letters than those of a table's name, or which
    the server gave."""
    return "'" + text.replace("'", "''") + "'" if "\\" not in text else "E'" + _escaped(text) + "'"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "''")
