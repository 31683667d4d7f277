"""Tables of a database, read with Spark through a JDBC driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.errors.redaction import redacted
from optimizer.workload.databases import VARIABLES
from optimizer.workload.values import Stream
from spark_jobs.streams.copies.databases import mysql
from spark_jobs.streams.copies.databases.opening import address_of, option_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRIVERS = {
    "db2": "com.ibm.db2.jcc.DB2Driver",
    "duckdb": "org.duckdb.DuckDBDriver",
    "mariadb": mysql.MARIADB_DRIVER,
    "mysql": "com.mysql.cj.jdbc.Driver",
    "oracle": "oracle.jdbc.OracleDriver",
    "postgresql": "org.postgresql.Driver",
    "redshift": "com.amazon.redshift.jdbc42.Driver",
    "snowflake": "net.snowflake.client.jdbc.SnowflakeDriver",
    "sqlite": "org.sqlite.JDBC",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
}
"""Classes of JDBC drivers, unless the option ``driver`` names another."""

PACKAGES = {
    "mariadb": "org.mariadb.jdbc:mariadb-java-client:3.5.3",
    "mysql": "com.mysql:mysql-connector-j:9.4.0",
    "postgresql": "org.postgresql:postgresql:42.7.7",
}
"""Packages of drivers, as Spark fetches them."""

FETCHED = "10000"
"""Rows that a driver takes at once, unless the option ``fetchsize`` says: some would take all of a table."""


def database_options(spark: SparkSession, stream: Stream, table: str | None) -> dict[str, str]:
    """The options with which Spark reads a table of a stream's database (None: the origin's own)."""
    origin, url = stream.source.origin, address_of(stream)
    assert origin is not None
    options = {name: option_value(value) for name, value in origin.options}
    named = {name.lower() for name in options}
    options |= {"url": origin.path, "dbtable": table or origin.table or "none"}
    if "fetchsize" not in named:
        options["fetchsize"] = FETCHED
    if url is not None and url.kind in mysql.KINDS:
        options |= mysql.driver_options(url, options, DRIVERS[url.kind])
    elif url is not None and "driver" not in named and not _has_driver(spark, origin.path) and url.kind in DRIVERS:
        # a jar of `spark.jars` is not among those in which Java looks for drivers
        options["driver"] = DRIVERS[url.kind]
    return options | ({"preferTimestampNTZ": "true"} if origin.zone is not None else {})


def database_frame(spark: SparkSession, stream: Stream, table: str, is_looked_at: bool = False) -> DataFrame:
    """The rows of a table of a stream's database. ``is_looked_at``: to see what it has, so timestamps that name no zone
    have none, and dates that are none are null. Raises HDL-401."""
    url = address_of(stream)
    options = database_options(spark, stream, table)
    if is_looked_at:
        options["preferTimestampNTZ"] = "true"
    if url is not None and url.kind in mysql.KINDS:
        options["dbtable"] = _rows_of_mysql(spark, stream, options, table, is_looked_at)
    return spark.read.format("jdbc").options(**options).load()


def _rows_of_mysql(spark: SparkSession, stream: Stream, options: dict[str, str], table: str, is_looked_at: bool) -> str:
    described = _of_query(spark, options, mysql.columns_query(table))
    if not described:
        hint = "check its name: database.table; may the user read it?"
        raise HeddleError("HDL-401", f"stream {stream.name}: there is no table {table} in the database", hint)
    schema, name, *_ = max(described, key=lambda row: row["e"])
    rows = sorted((row for row in described if (row["s"], row["t"]) == (schema, name)), key=lambda row: row["n"])
    columns = [mysql.MysqlColumn(row["c"], row["k"], row["d"]) for row in rows]
    used = {each.lower() for each, _ in stream.schema}
    return mysql.rows_query(schema, name, columns, used, is_looked_at or _zero_dates_are_null(stream))


def _zero_dates_are_null(stream: Stream) -> bool:
    """Return whether a stream reads zero dates of MySQL as null."""
    origin, url = stream.source.origin, address_of(stream)
    assert origin is not None and url is not None
    named = {name.lower(): value for name, value in (*url.parameters, *origin.options)}
    return named.get(mysql.ZERO_OPTION.lower(), "").upper() == mysql.AS_NULL


def estimated_rows(spark: SparkSession, stream: Stream) -> dict[str, int]:
    """The numbers of rows of tables by their names, as the database estimates them; those that are known."""
    url = address_of(stream)
    if url is None or url.kind not in mysql.KINDS:
        return {}
    rows = _of_query(spark, database_options(spark, stream, None), mysql.SIZES_QUERY)
    return {row["t"]: int(row["n"]) for row in rows}


def _of_query(spark: SparkSession, options: dict[str, str], query: str) -> list[Any]:
    """The rows of a query over other columns than those that options are about."""
    general = {name: value for name, value in options.items() if name.lower() not in _OF_COLUMNS}
    return spark.read.format("jdbc").options(**(general | {"dbtable": query})).load().collect()


_OF_COLUMNS = ("partitioncolumn", "lowerbound", "upperbound", "numpartitions", "customschema")
"""Options of Spark's reader that name columns, and those that come with them."""


def _has_driver(spark: SparkSession, url: str) -> bool:
    """Return whether Java finds a driver for a URL by itself. (Spark Connect does not say it.)"""
    java: Any = spark
    if not hasattr(spark, "_jvm"):
        return True
    try:
        driver = java._jvm.java.sql.DriverManager.getDriver(url)
    except Exception as error:
        if type(error).__name__ != "Py4JJavaError":
            raise
        return False
    # Spark puts a configured class among those that Java finds, in a wrapping that it does not know again
    return not str(driver.getClass().getName()).endswith("DriverWrapper")


# ------------------------------------------------------------------------------------------- failures
def database_failure(stream: Stream, text: str) -> HeddleError | None:
    """The coded error of what a JDBC driver said, of which ``text`` is all that is known; None: it is of no known
    kind."""
    url = address_of(stream)
    kind = "" if url is None else url.kind
    where = f"{url.host}/{url.database}" if url is not None and url.host else kind
    shown = _driver_message(text)
    if re.search("ClassNotFoundException|No suitable driver|UNRECOGNIZED_DRIVER", text):
        package = PACKAGES.get(kind)
        line = f"`spark.jars.packages {package}`" if package else "`spark.jars /path/of/its.jar`"
        hint = f"write {line} into the file spark-defaults.conf of a folder, and set SPARK_CONF_DIR to the folder"
        return HeddleError(
            "HDL-433", f"stream {stream.name}: Spark has no JDBC driver of {kind or 'its database'}", hint
        )
    if "Zero date value prohibited" in text:
        return zero_date(stream, "")
    if re.search(r"command denied|Access denied .* to database|permission denied", text):
        hint = "check the names of the database and the table, or GRANT SELECT to the user"
        return HeddleError("HDL-490", f"stream {stream.name}: {shown}", hint)
    if re.search(r"Access denied for user|authentication failed|Login failed|ORA-01017|invalid authorization", text):
        variable = VARIABLES.get(kind)
        hint = "check `user` and `password` under `options`"
        hint += f"; `heddle init` takes the password from {variable}" if variable else ""
        return HeddleError("HDL-490", f"stream {stream.name}: {where} refuses the user: {shown}", hint)
    if _UNREACHABLE.search(text):
        unknown = re.search(r"UnknownHostException: ([^\s:]+)", text)
        refused = re.search("Connection refused|Connection reset|Broken pipe", text)
        why = f"unknown host {unknown[1]}" if unknown else refused[0] if refused else shown
        hint = "is the server up, and are host, port and database right? Then run it again: nothing is copied twice"
        return HeddleError("HDL-489", f"stream {stream.name}: {where} cannot be reached: {printable(why, 300)}", hint)
    return None


_UNREACHABLE = re.compile(
    r"Unknown database|Communications link failure|CommunicationsException|UnknownHostException|ConnectException|"
    r"SQLNonTransientConnectionException|Connection (refused|reset|is closed)|Broken pipe|unexpected end of stream"
)
"""What drivers say of a server that cannot be reached, or that has ended."""


def zero_date(stream: Stream, row: str) -> HeddleError:
    """The error for a date of MySQL that is none; ``row``: where it is."""
    origin = stream.source.origin
    assert origin is not None
    message = f"stream {stream.name}: a date of {origin.table} has a year, month or day that is 0{row}"
    hint = f"correct the row, or write `{mysql.ZERO_OPTION}: {mysql.AS_NULL}` under `options` to read it as null"
    return HeddleError("HDL-404", message, hint)


def _driver_message(text: str) -> str:
    """The sentence of a driver in the text of an exception of Java's, in a line without secrets."""
    causes = re.findall(r"^(?:Caused by: )?(?:[\w.$]+\.)?\w*(?:Exception|Error): (.+)$", text, re.MULTILINE)
    inner = [cause for cause in causes if not re.match(r"Job aborted|Exception thrown in|An error occurred", cause)]
    chosen = (inner or causes or [text])[0]
    return printable(redacted(" ".join(re.sub(r"^.*\): (?:[\w.$]+\.)?\w*Exception: ", "", chosen).split())), 300)
