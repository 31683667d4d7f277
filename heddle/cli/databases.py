"""``heddle init`` over a database: its tables, or a project over one of them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table
from rich.text import Text

from heddle.cli import terminal
from heddle.cli.output import print_json
from optimizer.errors.diagnostics import HeddleError, printable
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from spark_jobs.operations.database_project import DatabaseProject
    from spark_jobs.streams.copies.databases.connection import TableSummary

COLUMNS_NAMED = 4
"""Columns of times of a table that are shown."""


def database_project(
    paths: Sequence[str], table: str | None, is_asking: bool, as_json: bool, *arguments: Any
) -> DatabaseProject | None:
    """The project over a table of the database that the only path names; None if it names none.

    ``arguments``: of :func:`spark_jobs.operations.database_project.plan_database`. Without a ``table``
    its tables are listed, and the command ends, unless there is only one or a person can answer (``is_asking``).
    """
    from spark_jobs.operations.database_project import database_at, plan_database, tables_of

    databases = [database for path in paths if (database := database_at(path)) is not None]
    if not databases:
        if table is not None:
            raise HeddleError("HDL-457", "--table is of a database", "heddle init postgresql://host/db --table NAME")
        return None
    if len(paths) > 1:
        raise HeddleError("HDL-134", "a database is named beside other data", "name it alone")
    if table is None:
        tables = tables_of(databases[0])
        if len(tables) != 1:
            _list_tables(tables, paths[0], as_json)
        table = tables[0].name if len(tables) == 1 else _ask_table(tables, is_asking)
    return plan_database(databases[0], table, *arguments)


def _list_tables(tables: Sequence[TableSummary], path: str, as_json: bool) -> None:
    """Print tables: how many rows they have, and their columns of times."""
    from spark_jobs.operations.database_project import listing_json

    if as_json:
        print_json({"tables": listing_json(tables)})
        return
    shown = Table(title=number_of(len(tables), "table"), title_justify="left")
    for heading in ("table", "rows", "columns with times", "columns"):
        shown.add_column(heading, overflow="fold", justify="right" if heading in ("rows", "columns") else "left")
    for table in tables:
        rows = "unknown" if table.rows is None else f"{'about ' if table.is_about else ''}{table.rows:,}"
        cells = (table.name, rows, ", ".join(table.times[:COLUMNS_NAMED]), str(len(table.columns)))
        shown.add_row(*(Text(printable(cell)) for cell in cells))
    terminal.console.print(shown)
    example = likeliest_table(tables)
    command = f"next: heddle init {shlex.quote(path)} --table {shlex.quote(example)}"
    terminal.console.print(Text(printable(command)), soft_wrap=True)


def _ask_table(tables: Sequence[TableSummary], is_asking: bool) -> str:
    if not (is_asking and tables):
        raise typer.Exit(0)
    return str(typer.prompt("Which table has the events?", default=likeliest_table(tables), err=True))


def likeliest_table(tables: Sequence[TableSummary]) -> str:
    """The name of the longest table that has times."""
    timed = [table for table in tables if table.times] or tables
    return max(timed, key=lambda table: table.rows or 0).name if timed else "schema.table"
