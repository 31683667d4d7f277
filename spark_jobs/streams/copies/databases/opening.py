"""Choose who reads a database, and open it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.installing import check_installed
from optimizer.errors.redaction import keep_secret
from optimizer.workload.databases import DatabaseUrl, parse_database_url
from optimizer.workload.streams import ENVIRONMENT
from optimizer.workload.values import Stream
from spark_jobs.engine.configuration import has_java
from spark_jobs.streams.copies.databases.connection import Connection
from spark_jobs.streams.copies.databases.files import DuckdbConnection, SqliteConnection
from spark_jobs.streams.copies.databases.postgresql import PARAMETERS, PostgresConnection
from spark_jobs.streams.sources.splits import check_place

PACKAGES = {"postgresql": "adbc_driver_postgresql", "sqlite": "adbc_driver_sqlite", "duckdb": "duckdb"}
"""The packages by which kinds of databases are read without a JVM."""

OPTIONS = ("user", "password")
"""Options that are not Spark's alone."""

OF_SPARK = frozenset(
    [
        *("driver", "fetchsize", "numpartitions", "partitioncolumn", "lowerbound", "upperbound", "querytimeout"),
        *("pushdownpredicate", "pushdownaggregate", "pushdownlimit", "pushdownoffset", "pushdowntablesample"),
    ]
)
"""Options that say how Spark reads, not what: they mean nothing here. With any other one Spark reads."""


def address_of(stream: Stream) -> DatabaseUrl | None:
    """The address of the database of a stream's origin; None if it is of no database."""
    origin = stream.source.origin
    return parse_database_url(origin.path, Path()) if origin is not None and origin.format == "jdbc" else None


def why_spark(stream: Stream) -> str | None:
    """Why Spark reads the origin of a stream, in words; None: Heddle reads it itself.

    Raises HDL-405 if only Spark can and ``reader`` forbids it, HDL-904 if nothing that is installed can.
    """
    origin, reader = stream.source.origin, stream.source.reader
    assert origin is not None
    url = address_of(stream)
    if url is None:
        return "only Spark reads " + ("such a table" if origin.format == "table" else origin.format)
    if reader == "spark":
        return "as `reader` says"
    why = _only_spark(stream, url)
    if why is not None and reader == "direct":
        message = f"stream {stream.name}: only Spark reads {origin.name}: {why}"
        raise HeddleError("HDL-405", message, "leave `reader` out, and Spark copies it")
    package = PACKAGES.get(url.kind)
    if why is None and package is not None and find_spec(package) is None:
        if reader == "direct" or find_spec("pyspark") is None or not has_java():
            check_installed(package)
        return f"{package} is not installed"
    return why


def _only_spark(stream: Stream, url: DatabaseUrl) -> str | None:
    """The part of a declaration that only Spark understands, in words; None: there is none."""
    origin = stream.source.origin
    assert origin is not None
    if url.kind not in PACKAGES:
        return f"there is no other reader of {url.kind}"
    if not (url.file or (url.kind == "postgresql" and f"//{url.host}/" in url.jdbc)):
        return "its URL is one that only JDBC drivers understand"
    known = OPTIONS if url.kind == "postgresql" else ()
    foreign = [name for name, _ in origin.options if name not in known and name.lower() not in OF_SPARK]
    foreign += [name for name, _ in url.parameters if name not in PARAMETERS]
    if foreign:
        return f"the option {foreign[0]} is of its JDBC driver"
    return "it has columns of arrays or structs" if stream.nested else None


def is_direct(stream: Stream) -> bool:
    """Return whether Heddle reads the origin of a stream itself. Raises as :func:`why_spark`."""
    return stream.source.origin is not None and why_spark(stream) is None


@contextmanager
def opened(stream: Stream) -> Iterator[Connection]:
    """The database of a stream's origin, in one transaction. Raises HDL-401, HDL-434 for a variable that is not set,
    HDL-458, HDL-489 and HDL-490."""
    url, origin = address_of(stream), stream.source.origin
    assert url is not None and origin is not None
    name = f"stream {stream.name}"
    if url.file:
        check_place(stream, Path(url.file))
    options = {key: option_value(text) for key, text in origin.options if key in OPTIONS}
    connection = connect_to(name, url, options.get("user", url.user), options.get("password", ""))
    try:
        yield connection
    finally:
        connection.close()


def connect_to(name: str, url: DatabaseUrl, user: str = "", password: str = "") -> Connection:
    """A connection to a database that Heddle reads itself; ``name``: what messages begin with."""
    if url.kind == "sqlite":
        return SqliteConnection(name, Path(url.file))
    if url.kind == "duckdb":
        return DuckdbConnection(name, Path(url.file))
    return PostgresConnection(name, url, user, password)


def option_value(text: str) -> str:
    """An option's value, read from the environment where it refers to it. Raises HDL-434 if the variable is not set."""
    match = ENVIRONMENT.fullmatch(text)
    if match is None:
        return text
    value = os.environ.get(match[1])
    if value is None:
        raise HeddleError("HDL-434", f"an option of a source is {text}, which is not set", f"set {match[1]}")
    keep_secret({f"password {match[1]}": value})
    return value
