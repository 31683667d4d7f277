"""Rows of MySQL and MariaDB as Spark reads them through JDBC: queries whose values both databases' drivers read as they
are."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from optimizer.workload.databases import DatabaseUrl

KINDS = ("mysql", "mariadb")
"""Kinds of databases that are read so."""

MARIADB_DRIVER = "org.mariadb.jdbc.Driver"

ZERO = "__zero_dates"
"""The column with the number of values of a row that are zero dates: ``0000-00-00``, or a month or day that is 0."""

ZERO_OPTION = "zeroDateTimeBehavior"
"""The option, of the name that MySQL's driver has for it, that says what zero dates are read as."""

AS_NULL = "CONVERT_TO_NULL"

_ZONES = ("connectiontimezone", "forceconnectiontimezonetosession", "preserveinstants", "servertimezone", "timezone")
_SESSION = "sessionvariables"

_PROPERTIES = {
    # TIMESTAMP is an instant, whatever the zones of the server and of this machine
    "connectionTimeZone": "UTC",
    "forceConnectionTimeZoneToSession": "true",
    "preserveInstants": "true",
    # 2 is not 1
    "tinyInt1isBit": "false",
    # rows come a part at a time, not all at once into memory
    "useCursorFetch": "true",
}
"""Properties of both drivers, unless the stream names them."""


@dataclass(frozen=True)
class MysqlColumn:
    """A column of a table: its type as ``kind`` (``decimal``) and as it is ``declared`` (``decimal(12,2)``)."""

    name: str
    kind: str
    declared: str

    @property
    def is_date(self) -> bool:
        """Return whether a value can be a zero date."""
        return self.kind in ("date", "datetime", "timestamp")

    @property
    def is_zero(self) -> str:
        """The condition for zero dates."""
        name = mysql_name(self.name)
        return f"COALESCE(MONTH({name}) = 0 OR DAYOFMONTH({name}) = 0, 0)"


def driver_options(url: DatabaseUrl, options: Mapping[str, str], driver: str) -> dict[str, str]:
    """The options of Spark's JDBC reader for a database, ``driver`` being the class of its driver unless ``options``
    name one. What ``options`` or the URL say about zones is theirs."""
    named = {name.lower(): value for name, value in (*url.parameters, *options.items())}
    driver = named.get("driver", driver)
    has_zone = any(name in named for name in _ZONES) or "time_zone" in named.get(_SESSION, "").lower()
    own = {
        name: value
        for name, value in _PROPERTIES.items()
        if name.lower() not in named and not (has_zone and name.lower() in _ZONES)
    }
    # Spark knows how MySQL quotes names by the URL only; with others it compares texts with texts
    address = re.sub("^jdbc:mariadb:", "jdbc:mysql:", url.jdbc)
    if driver == MARIADB_DRIVER and "permitmysqlscheme" not in named:
        address += f"{'&' if '?' in address else '?'}permitMysqlScheme=true"
    return own | {"url": address, "driver": driver}


def columns_query(table: str) -> str:
    """The query for schema, table and column, both forms of the type, and the place of each column of the tables that a
    name can mean; ``e`` is 1 if they are spelled as the name."""
    parts = table.split(".")
    pairs = [(".".join(parts[:at]), ".".join(parts[at:])) for at in range(len(parts))]
    return f"({' UNION ALL '.join(_columns_of(schema, name) for schema, name in pairs)}) AS r"


def _columns_of(schema: str, table: str) -> str:
    within = _literal(schema) if schema else "DATABASE()"
    return (
        "SELECT table_schema AS s, table_name AS t, column_name AS c, LOWER(data_type) AS k, "
        "LOWER(CAST(column_type AS CHAR(1000))) AS d, CAST(ordinal_position AS SIGNED) AS n, "
        f"BINARY table_name = BINARY {_literal(table)} AND BINARY table_schema = BINARY {within} AS e "
        f"FROM information_schema.columns WHERE table_schema = {within} AND table_name = {_literal(table)}"
    )


SIZES_QUERY = (
    "(SELECT CONCAT(table_schema, '.', table_name) AS t, CAST(table_rows AS SIGNED) AS n "
    "FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND table_rows IS NOT NULL) AS r"
)
"""The query for the number of rows of each table, as the server estimates it."""


def rows_query(
    schema: str, table: str, columns: Sequence[MysqlColumn], used: Collection[str], zero_as_null: bool
) -> str:
    """The query for the rows of a table, and :data:`ZERO` of the columns that are ``used`` (names in lower case) unless
    zero dates are null."""
    expressions = [f"{_value(column, zero_as_null)} AS {mysql_name(column.name)}" for column in columns]
    dates = [column.is_zero for column in columns if column.is_date and column.name.lower() in used]
    if dates and not zero_as_null:
        expressions.append(f"{' + '.join(dates)} AS {ZERO}")
    return f"(SELECT {', '.join(expressions)} FROM {mysql_name(schema)}.{mysql_name(table)}) AS r"


def _value(column: MysqlColumn, zero_as_null: bool) -> str:
    """The expression that gives the values of a column to both drivers."""
    name, kind = mysql_name(column.name), column.kind
    if kind in _AS_THEY_ARE or (kind == "bit" and column.declared == "bit(1)"):
        return name
    if column.is_date:
        return f"IF({column.is_zero}, NULL, {name})" if zero_as_null else name
    if kind == "float":
        # as text the server writes six digits of it
        return f"({name} + 0e0)"
    if kind == "year":
        return f"CAST({name} AS SIGNED)"
    if kind == "bit":
        return f"CAST({name} AS UNSIGNED)"
    digits = re.match(r"decimal\((\d+)", column.declared)
    if digits is not None and int(digits[1]) <= 38:
        return name
    return f"CAST({name} AS CHAR)"


_AS_THEY_ARE = frozenset(
    [
        *("tinyint", "smallint", "mediumint", "int", "bigint", "double"),
        *("varchar", "tinytext", "text", "mediumtext", "longtext"),
        *("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"),
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        *("geometrycollection", "geomcollection"),
    ]
)
"""Types whose values both drivers read exactly, or which queries cannot use."""


def mysql_name(name: str) -> str:
    """A name as MySQL has it."""
    return "`" + name.replace("`", "``") + "`"


def _literal(text: str) -> str:
    """A text in SQL, whatever a backslash means to the server."""
    return f"CONVERT(X'{text.encode().hex()}' USING utf8mb4)"
