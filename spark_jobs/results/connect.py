"""DuckDB over the published answers: every query is a view with its name."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from sqlglot import exp

from optimizer.errors.diagnostics import Diagnostic, HeddleError, meant
from spark_jobs.results.dimension_tables import (
    SCHEMA,
    SHADOWED,
    DimensionTable,
    make_dimension,
    project_dimensions,
    stored_dimensions,
)
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

# rows are copied; the way to them that copies none tells errors without their places
warnings.filterwarnings("ignore", "Arrow output on a DB-API result", UserWarning)

Fetched = TypeVar("Fetched")

_READING = re.compile("from|table|show|desc|summarize|pivot", re.IGNORECASE)
"""Words of which a statement that reads from anything has one."""


def connect(warehouse: Warehouse, queries: Iterable[str] | None = None) -> duckdb.DuckDBPyConnection:
    """A connection in which every query (or those of ``queries``) is a view, as its relation has it, and so is every
    dimension that queries join, as a run used it last.

    All views are of one version of the results, that of now: a run that publishes meanwhile is not seen. Only columns
    and files are read that a statement needs: give it times (``window_end``). The session's zone is UTC. Nothing is
    loaded from a network, and nothing in the warehouse can be written; all else of DuckDB is there.
    Raises HDL-507 for a query that no plan has known.
    """
    current = warehouse.table("results")
    known = relations(warehouse, current)
    connection = connected(warehouse, known, current, queries)
    _make_dimensions(connection, warehouse, known)
    return connection


def connected(
    warehouse: Warehouse,
    known: Relations,
    current: DeltaTable,
    queries: Iterable[str] | None = None,
    limits: Mapping[str, Any] | None = None,
) -> duckdb.DuckDBPyConnection:
    """A connection with views of some relations, or all, over a version of the results that ``known`` is for.
    ``limits``: more of DuckDB's settings.
    """
    connection = duckdb.connect(config={**APART, **(limits or {})})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE SCHEMA {SCHEMA}")
    # through Arrow: DuckDB's own reader of Parquet is quicker, but takes damaged pages for good ones
    connection.register(RESULTS, warehouse.checked_dataset("results", current))
    make_views(connection, known, queries)
    return connection


def _make_dimensions(connection: duckdb.DuckDBPyConnection, warehouse: Warehouse, known: Relations) -> None:
    names = {name.lower() for name in view_names(known, "duckdb").values()}
    for table in stored_dimensions(warehouse).values():
        make_dimension(connection, table, table.name.lower() in names)


def make_views(connection: duckdb.DuckDBPyConnection, known: Relations, queries: Iterable[str] | None = None) -> None:
    """Views of some relations, or all. Raises HDL-507 for one that is not known."""
    names = view_names(known, "duckdb")
    source = exp.Table(this=exp.to_identifier(RESULTS, quoted=True))
    for query in chosen_names(known, queries):
        connection.execute(created(names[query], select(known[query], source, "duckdb")).sql("duckdb"))


# ------------------------------------------------------------------------------- what somebody asks in SQL
def ask(warehouse: Warehouse, sql: str, report: Callable[[Diagnostic], None] = lambda warning: None) -> pa.Table:
    """The answer of one SELECT (or EXPLAIN) in DuckDB's SQL, over relations and the project's dimensions, by name.

    Columns of equal names get a number. ``report`` takes warnings. Raises what :class:`Question` does, and what reading
    a dimension raises.
    """
    with Question(warehouse, sql, dimensions=partial(project_dimensions, warehouse)) as question:
        table = question.table()
    for name in question.shadowed:
        message = f"{name} is a query and a dimension: the query is read"
        report(Diagnostic(SHADOWED, message, f"write {SCHEMA}.{name} for the dimension", severity="warning"))
    return table.rename_columns(_apart(table.column_names))


class Question:
    """One SELECT (or EXPLAIN) over relations by their names, of the newest version of the results, in a connection of
    its own that can do nothing else: it reads no files, settings or values of this process, and writes nothing.

    A name that no query has is that of a dimension: one of the ``dimensions``, which are looked up when a statement
    needs them. Default: those that a run has used. ``shadowed``: names that the statement reads as queries and that
    dimensions have, too.

    Its methods raise HDL-620 for a text that is no such statement or fails, at its line and column, HDL-621 for a name
    that is none of a relation, HDL-622 for what is not permitted, HDL-543 for damaged data files. ``limits``: more of
    DuckDB's settings, such as ``memory_limit``.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        sql: str,
        limits: Mapping[str, Any] | None = None,
        dimensions: Callable[[], dict[str, DimensionTable]] | None = None,
    ) -> None:
        self.sql, self.shadowed = sql, list[str]()
        self._known_dimensions = partial(stored_dimensions, warehouse) if dimensions is None else dimensions
        current = warehouse.table("results")
        self._known = relations(warehouse, current)
        self._names = {name.lower(): query for query, name in view_names(self._known, "duckdb").items()}
        self._made: set[str] = set()
        self._made_dimensions: set[str] = set()
        self._connection = connected(warehouse, self._known, current, (), limits)
        for setting, value in LOCKED.items():
            self._connection.execute(f"SET {setting} = {str(value).lower()}")
        try:
            self._statement = self._parsed()
        except HeddleError:
            self.close()
            raise

    def __enter__(self) -> Question:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, from the thread that executes the statement."""
        self._connection.close()

    def interrupt(self) -> None:
        """Interrupt the statement, from any thread: it raises HDL-620."""
        self._connection.interrupt()

    def _parsed(self) -> duckdb.Statement:
        with self._coded():
            statements = self._connection.extract_statements(self.sql)
        if len(statements) != 1:
            raise HeddleError("HDL-620", f"{len(statements)} statements", "ask one SELECT")
        if statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
            raise HeddleError("HDL-622", f"{statements[0].type.name} is not permitted", "SELECT reads answers")
        return statements[0]

    def table(self) -> pa.Table:
        """All rows."""
        return self._with_views(lambda: self._connection.execute(self._statement).to_arrow_table())

    def batches(self, parameters: Sequence[Any], most: int) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The columns, and batches of at most ``most`` rows as they come. ``parameters``: values of ``?``."""
        reader: pa.RecordBatchReader = self._with_views(
            lambda: self._connection.execute(self._statement, parameters).to_arrow_reader(most)
        )
        return reader.schema, self._read(reader)

    def _read(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with self._coded():
            yield from reader

    def schema(self) -> pa.Schema:
        """The columns, without executing the statement. Types of parameters are not known yet."""
        return self._with_views(self._bound)

    def _bound(self) -> pa.Schema:
        columns: Any
        missing = [None] * len(self._statement.named_parameters)
        try:
            columns = self._connection.sql(self._statement, params=missing).limit(0).to_arrow_table()
        except duckdb.Error:
            # its errors have no places; what cannot be bound fails here again, before anything is read
            columns = self._connection.execute(self._statement, missing).to_arrow_reader(1)
        return columns.schema

    def _with_views(self, execute: Callable[[], Fetched]) -> Fetched:
        """Execute, and make views when DuckDB misses them. All of them are made for a statement that reads from
        something and names none: it may be about the views themselves.
        """
        with self._coded():
            while True:
                try:
                    fetched = execute()
                    if self._made or self._made_dimensions or not _READING.search(self.sql):
                        return fetched
                    # no view can be made while a result is open
                    del fetched
                    if not self._make_all():
                        return execute()
                except duckdb.CatalogException as error:
                    if not self._make(str(_described(error).get("name", "")).lower()):
                        raise

    def _make(self, name: str) -> bool:
        """Make the view that a statement lacks, of a query or else of a dimension; False: there is none."""
        query = self._names.get(name)
        if query is not None and query not in self._made:
            make_views(self._connection, self._known, [query])
            self._made.add(query)
            self.shadowed += [each for each in self._dimensions if each.lower() == name]
            return True
        dimension = next((each for each in self._dimensions.values() if each.name.lower() == name), None)
        if dimension is None or name in self._made_dimensions:
            return False
        make_dimension(self._connection, dimension, query is not None)
        self._made_dimensions.add(name)
        return True

    def _make_all(self) -> bool:
        """Make all views; False: there are none. A dimension that cannot be read has none."""
        make_views(self._connection, self._known)
        self._made.update(self._known)
        for name, dimension in self._dimensions.items():
            with suppress(HeddleError):
                make_dimension(self._connection, dimension, name.lower() in self._names)
                self._made_dimensions.add(name.lower())
        return bool(self._made or self._made_dimensions)

    @cached_property
    def _dimensions(self) -> dict[str, DimensionTable]:
        return self._known_dimensions()

    def _relation_names(self) -> list[str]:
        return [*self._names.values(), *self._dimensions]

    @contextmanager
    def _coded(self) -> Iterator[None]:
        """Errors of DuckDB as ours, at their places in the text."""
        try:
            yield
        except duckdb.Error as error:
            raise _error(error, self.sql, self._relation_names) from error


def _error(error: duckdb.Error, sql: str, known: Callable[[], Sequence[str]]) -> HeddleError:
    about = _described(error)
    message, subject = str(about["exception_message"]), str(about.get("name", ""))
    if RESULTS in message and "failed: " in message:
        return HeddleError("HDL-543", message, "`heddle maintain` says what is to be done")
    location = _place(sql, about.get("position"))
    if about.get("type") == "Table":
        hint = meant(subject, known()) or "no plan is stored: `heddle run` makes one"
        return HeddleError("HDL-621", f"there is no relation {subject}", hint, **location)
    refused = isinstance(error, duckdb.PermissionException) or "has been locked" in message
    first, _, details = message.partition("\n")
    hint = "SELECT reads answers, and nothing else" if refused else " ".join(details.split())
    return HeddleError("HDL-622" if refused else "HDL-620", first, hint, **location)


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
