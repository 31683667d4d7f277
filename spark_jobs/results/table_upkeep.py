"""List, rebuild and delete the tables of queries, for an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.errors.diagnostics import Diagnostic, HeddleError, meant
from spark_jobs.results import own_table
from spark_jobs.results.own_table import FOLDER, TableRequest
from spark_jobs.results.table_rows import NEVER_NULL, Definitions, columns_of, published_rows, rows_of
from spark_jobs.results.tables import table_requests
from spark_jobs.store.warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class TableListing:
    """A table: the query that requests it or did, its rows, the end of its newest window (as text; empty: none),
    its state (up to date, behind, blocked, not made, not asked for) and its problem. ``not_null``: whether it declares
    the columns that are never null; a table from before that does not.
    """

    query: str
    table: str
    rows: int
    newest: str
    state: str
    problem: str = ""
    not_null: bool = True

    def to_json(self) -> dict[str, Any]:
        """The fields as ``heddle tables --json`` prints them."""
        return dict(vars(self))


def table_listings(warehouse: Warehouse, problems: Sequence[Diagnostic]) -> list[TableListing]:
    """All tables that are requested or exist. ``problems``: those that :func:`spark_jobs.results.tables.follow`
    returned now.
    """
    reasons = {problem.query: f"{problem.code} {problem.message}" for problem in problems}
    requests = {request.table.name: request for request in table_requests(warehouse)}
    names = {*requests, *own_table.folders(warehouse)}
    return [_listing(warehouse, name, requests.get(name), reasons) for name in sorted(names)]


def _listing(warehouse: Warehouse, name: str, request: TableRequest | None, reasons: Mapping[str, str]) -> TableListing:
    query = request.query if request is not None else ""
    problem = reasons.get(query, reasons.get("", "")) if query else ""
    try:
        current = own_table.existing(warehouse, f"{FOLDER}/{name}")
    except HeddleError as error:
        state, problem = ("blocked" if query else "not asked for"), error.diagnostic.message
        return TableListing(query, name, 0, "", state, problem)
    if current is None:
        return TableListing(query, name, 0, "", "not made", problem)
    rows, newest = own_table.newest_window(current)
    not_null = not any(field.nullable for field in own_table.columns(current) if field.name in NEVER_NULL)
    if request is None:
        return TableListing(own_table.query_of(current), name, rows, newest, "not asked for", "", not_null)
    blocked = problem.startswith(("HDL-561", "HDL-562"))
    state = "blocked" if blocked else "behind" if problem else "up to date"
    return TableListing(query, name, rows, newest, state, problem, not_null)


def rebuild(warehouse: Warehouse, name: str) -> TableListing:
    """Recreate a table from the published answers, in one commit: with the columns of the query as it is now, and
    as the table of the query that requests it. Raises HDL-564 if none does, HDL-507 if no plan has had that
    query.
    """
    requests = {request.table.name: request for request in table_requests(warehouse)}
    if name not in requests:
        raise _unknown(f"no query asks for a table {name}", name, list(requests))
    request, definitions, results = requests[name], Definitions(warehouse), warehouse.table("results")
    definition = definitions.newest(request.query)
    if definition is None:
        raise HeddleError("HDL-507", f"no plan knows a query {request.query}", "`heddle run` makes one")
    schema = columns_of(definition)
    published = published_rows(warehouse, results, [request.query], None)[request.query]
    rows = rows_of(published, definitions, definition, schema)
    with warehouse.lease() as token:
        current = own_table.existing(warehouse, request.name)
        if current is None:
            current = own_table.made(warehouse, request, schema, token)
        if (own_table.followed(current) or 0) > results.version():
            raise HeddleError("HDL-510", f"the table {name} was written meanwhile", "run it again")
        own_table.overwrite(warehouse, request, current, rows, int(results.version()), token)
        own_table.dressed(warehouse, request, warehouse.table(request.name), schema, token)
    return _listing(warehouse, name, request, {})


def drop(warehouse: Warehouse, name: str) -> None:
    """Delete a table with its files. Raises HDL-564 if there is none, HDL-562 for what is no table of a query."""
    names = own_table.folders(warehouse)
    if name not in names:
        raise _unknown(f"there is no table {name}", name, names)
    with warehouse.lease() as token:
        own_table.existing(warehouse, f"{FOLDER}/{name}")
        warehouse.check_lease(token)
        (warehouse.place / FOLDER / name).remove_folder()


def _unknown(message: str, name: str, known: Sequence[str]) -> HeddleError:
    return HeddleError("HDL-564", message, meant(name, known, "there"))
