"""``heddle tables``: the Delta tables that queries have of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli import terminal
from heddle.cli.inputs import existing_warehouse
from heddle.cli.options import AsJson, WarehouseOption
from heddle.cli.output import print_diagnostics, print_json, print_rows, telling_errors
from heddle.cli.root import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from spark_jobs.results.table_upkeep import TableListing
    from spark_jobs.store.warehouse.warehouse import Warehouse


@app.command(
    epilog="Examples: heddle tables --warehouse var/warehouse   "
    "|   heddle tables --warehouse var/warehouse --rebuild departures_1h"
)
def tables(
    warehouse: WarehouseOption,
    rebuild: Annotated[
        str | None, typer.Option("--rebuild", help="Make this table anew from the published answers.", metavar="TABLE")
    ] = None,
    drop: Annotated[
        str | None, typer.Option("--drop", help="Delete this table, with --yes; the answers stay.", metavar="TABLE")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring the queries' own Delta tables up to date (`-- table:`). It prints query, rows, newest window and state.
    Needs no JVM."""
    with telling_errors():
        listings, has_failed = _done(warehouse, rebuild, drop, yes)
    if as_json:
        print_json({"tables": [listing.to_json() for listing in listings]})
    else:
        show_tables(listings)
    if has_failed:
        raise typer.Exit(1)


def _done(warehouse: str, rebuild: str | None, drop: str | None, yes: bool) -> tuple[list[TableListing], bool]:
    """Do the requested change; return the tables after it, and whether some could not be brought up to date."""
    from spark_jobs.results import table_upkeep
    from spark_jobs.results.tables import follow

    opened = existing_warehouse(warehouse)
    if drop is not None and not yes:
        message = f"the table {drop} is deleted once somebody agrees: nothing was changed"
        raise HeddleError("HDL-527", message, "say --yes")
    if rebuild is not None:
        table_upkeep.rebuild(opened, rebuild)
    if drop is not None:
        table_upkeep.drop(opened, drop)
        return table_upkeep.table_listings(opened, ()), False
    problems = follow(opened)
    print_diagnostics(problems)
    return table_upkeep.table_listings(opened, problems), bool(problems)


def follow_tables(warehouse: Warehouse) -> None:
    """Bring the tables of queries up to date if no run does; print their problems."""
    from spark_jobs.results.tables import follow

    print_diagnostics(follow(warehouse))


def show_tables(listings: Sequence[TableListing]) -> None:
    """The tables for people."""
    if not listings:
        terminal.console.print("no query asks for a table of its own (-- table: name)", highlight=False)
        return
    columns = ("query", "table", "rows", "newest", "state")
    shown = [listing.to_json() | {"rows": f"{listing.rows:,}"} for listing in listings]
    print_rows("tables of queries", columns, [[row[name] for name in columns] for row in shown])
    former = [listing for listing in listings if not listing.not_null]
    if former:
        rows = number_of(sum(listing.rows for listing in former), "row")
        terminal.console.print(
            f"{number_of(len(former), 'table')} of a former Heddle ({rows}): window_start, window_end and revision may "
            f"be null. --rebuild {former[0].table} declares them NOT NULL: it writes all rows again, in one commit.",
            highlight=False,
            soft_wrap=True,
        )
