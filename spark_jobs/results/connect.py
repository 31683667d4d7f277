"""DuckDB over the published answers: every query is a view with its name."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from sqlglot import exp

from optimizer.errors.diagnostics import HeddleError, meant
from spark_jobs.results.relations import Relations, relations
from spark_jobs.results.views import chosen_names, created, select, view_names
from spark_jobs.store.warehouse.warehouse import Warehouse

RESULTS = "heddle results"
"""Name of the stored rows in a connection; no query can have it."""

APART: dict[str, Any] = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
"""Settings of a connection that looks for nothing in the network."""

LOCKED: dict[str, Any] = {
    "errors_as_json": True,
    "python_enable_replacements": False,
    "enable_external_access": False,
    "lock_configuration": True,
}
"""Settings of one that reads nothing but answers, and stays so."""


def connect(warehouse: Warehouse, queries: Iterable[str] | None = None) -> duckdb.DuckDBPyConnection:
    """A connection in which every query (or those of ``queries``) is a view, as its relation has it.

    All views are of one version of the results, that of now: a run that publishes meanwhile is not seen. Only columns
    and files are read that a statement needs: give it times (``window_end``). The session's zone is UTC. Nothing is
    loaded from a network, and nothing in the warehouse can be written; all else of DuckDB is there.
    Raises HDL-507 for a query that no plan has known.
    """
    current = warehouse.table("results")
    known = relations(warehouse, current)
    return connected(warehouse, known, current, queries)


def connected(
    warehouse: Warehouse, known: Relations, current: DeltaTable, queries: Iterable[str] | None = None
) -> duckdb.DuckDBPyConnection:
    """A connection with views of some relations, or all, over a version of the results that ``known`` is for."""
    connection = duckdb.connect(config=APART)
    connection.execute("SET TimeZone = 'UTC'")
    # through Arrow: DuckDB's own reader of Parquet is quicker, but takes damaged pages for good ones
    connection.register(RESULTS, warehouse.checked_dataset("results", current))
    make_views(connection, known, queries)
    return connection


def make_views(connection: duckdb.DuckDBPyConnection, known: Relations, queries: Iterable[str] | None = None) -> None:
    """Views of some relations, or all. Raises HDL-507 for one that is not known."""
    names = view_names(known, "duckdb")
    source = exp.Table(this=exp.to_identifier(RESULTS, quoted=True))
    for query in chosen_names(known, queries):
        connection.execute(created(names[query], select(known[query], source, "duckdb")).sql("duckdb"))


# ------------------------------------------------------------------------------- what somebody asks in SQL
def ask(warehouse: Warehouse, sql: str) -> pa.Table:
    """The answer of one SELECT (or EXPLAIN) in DuckDB's SQL, over relations by their names.

    Nothing else can be read by it, neither files nor settings nor values of this process, and nothing written. Columns
    of equal names get a number. Raises HDL-620 for text that is no such statement or fails, at its line and column,
    HDL-621 for a name that is none of a relation, HDL-622 for what is not permitted, HDL-543 for damaged data files.
    """
    current = warehouse.table("results")
    known = relations(warehouse, current)
    connection = connected(warehouse, known, current, ())
    for setting, value in LOCKED.items():
        connection.execute(f"SET {setting} = {str(value).lower()}")
    names = {name.lower(): query for query, name in view_names(known, "duckdb").items()}
    with connection, _coded(sql, list(names.values())):
        statements = connection.extract_statements(sql)
        if len(statements) != 1:
            raise HeddleError("HDL-620", f"{len(statements)} statements", "ask one SELECT")
        if statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
            raise HeddleError("HDL-622", f"{statements[0].type.name} is not permitted", "SELECT reads answers")
        table = _executed(connection, statements[0], known, names)
    return table.rename_columns(_apart(table.column_names))


def _executed(
    connection: duckdb.DuckDBPyConnection, statement: duckdb.Statement, known: Relations, names: Mapping[str, str]
) -> pa.Table:
    """Execute a statement. ``names``: queries by the names of their views, in small letters.

    Views are made when DuckDB misses them. All of them are made for a statement that names none: it may be about
    the views themselves.
    """
    created_views: set[str] = set()
    while True:
        try:
            with warnings.catch_warnings():
                # that rows are copied; the other way to them tells errors without their places
                warnings.simplefilter("ignore", UserWarning)
                table = connection.execute(statement).to_arrow_table()
            if created_views or not known:
                return table
            missing = list(known)
        except duckdb.CatalogException as error:
            query = names.get(str(_described(error).get("name", "")).lower())
            if query is None or query in created_views:
                raise
            missing = [query]
        make_views(connection, known, missing)
        created_views.update(missing)


@contextmanager
def _coded(sql: str, known: Sequence[str]) -> Iterator[None]:
    """Errors of DuckDB as ours, at their places in a text."""
    try:
        yield
    except duckdb.Error as error:
        about = _described(error)
        message, subject = str(about["exception_message"]), str(about.get("name", ""))
        if RESULTS in message and "failed: " in message:
            raise HeddleError("HDL-543", message, "`heddle maintain` says what is to be done") from error
        location = _place(sql, about.get("position"))
        if about.get("type") == "Table":
            hint = meant(subject, known) or "no plan is stored: `heddle run` makes one"
            raise HeddleError("HDL-621", f"there is no relation {subject}", hint, **location) from error
        refused = isinstance(error, duckdb.PermissionException) or "has been locked" in message
        first, _, details = message.partition("\n")
        hint = "SELECT reads answers, and nothing else" if refused else " ".join(details.split())
        raise HeddleError("HDL-622" if refused else "HDL-620", first, hint, **location) from error


def _described(error: duckdb.Error) -> dict[str, Any]:
    """DuckDB's description of an error: the JSON object if ``errors_as_json`` is set."""
    _, _, text = str(error).partition(": ")
    try:
        return dict(json.loads(text))
    except ValueError:
        return {"exception_message": str(error)}


def _place(sql: str, position: str | None) -> dict[str, object]:
    if position is None:
        return {}
    before = sql.encode()[: int(position)].decode(errors="ignore")
    return {"file": "SQL", "line": before.count("\n") + 1, "column": len(before) - before.rfind("\n")}


def _apart(names: Sequence[str]) -> list[str]:
    """Names of columns without repeats."""
    distinct_names: list[str] = []
    for name in names:
        number, free = 1, name
        while free in distinct_names or (free != name and free in names):
            number, free = number + 1, f"{name}_{number}"
        distinct_names.append(free)
    return distinct_names
