"""``heddle sql``, ``views`` and ``contract``: every query as a relation with its name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli import terminal
from heddle.cli.answers import chosen_format, deliver_answers
from heddle.cli.inputs import existing_warehouse
from heddle.cli.options import AsJson, Format, WarehouseOption
from heddle.cli.output import json_text, print_diagnostics, telling_errors, write_text, writing_to
from heddle.cli.root import app
from optimizer.errors.diagnostics import count as number_of

if TYPE_CHECKING:
    from spark_jobs.store.warehouse.warehouse import Warehouse


@app.command(
    epilog="Examples: heddle sql 'SELECT * FROM hourly_volume ORDER BY window_end DESC LIMIT 5' --warehouse house; "
    "heddle sql 'SELECT * FROM a JOIN b USING (window_end)' --warehouse house --format parquet --output both.parquet"
)
def sql(
    statement: Annotated[str, typer.Argument(help="One SELECT, in DuckDB's SQL.", metavar="SQL", show_default=False)],
    warehouse: WarehouseOption,
    format: Annotated[Format, typer.Option("--format", help="How to print the rows.")] = Format.table,
    output: Annotated[Path | None, typer.Option("--output", help="Write to this file (parquet needs one).")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Most rows of the table format; 0: all.")] = 40,
    as_json: AsJson = False,
) -> None:
    """Query the published answers in SQL. Every query is a table with its name, all of one moment, and so is every
    dimension. The statement can read nothing else, and write nothing. Needs no JVM."""
    from spark_jobs.results.connect import ask

    format = chosen_format(format, output, as_json)
    with telling_errors():
        table = ask(existing_warehouse(warehouse), statement, lambda warning: print_diagnostics([warning]))
    deliver_answers(table, "SQL", format, output, limit, "row")


@app.command(
    epilog="Examples: heddle views --warehouse house --dialect trino --from delta.heddle.results --catalog-schema "
    "delta.answers; heddle views --warehouse house --output house.duckdb; "
    "heddle views --warehouse house --dbt --output sources.yml"
)
def views(
    warehouse: WarehouseOption,
    queries: Annotated[
        list[str] | None, typer.Argument(help="Names of queries; none: all.", metavar="[QUERY]...", show_default=False)
    ] = None,
    dialect: Annotated[
        str, typer.Option("--dialect", help="duckdb, spark, databricks, trino, snowflake, bigquery or postgres.")
    ] = "duckdb",
    place: Annotated[
        str | None, typer.Option("--catalog-schema", help="Where the views are to be, e.g. main.answers.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="The results table as the engine knows it. Default: its folder.")
    ] = None,
    dimensions: Annotated[
        str | None,
        typer.Option(
            "--dimensions-from",
            help="The schema in which the engine knows the tables of dimensions by their names. Default: their "
            "folders, without --from.",
            metavar="SCHEMA",
        ),
    ] = None,
    dbt: Annotated[bool, typer.Option("--dbt", help="Print dbt's sources.yml of the views instead.")] = False,
    dbt_source: Annotated[
        str | None, typer.Option("--dbt-source", help="Name of dbt's source. Default: heddle.", metavar="NAME")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Write to this file; X.duckdb becomes a database with the views."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make every query a view in another engine. It prints the statements for queries and dimensions, or writes a
    DuckDB database with the views. Do it again after every new plan version: a view knows the definitions that were
    planned when it was made. Needs no JVM."""
    if output is not None and output.suffix == ".duckdb":
        if dialect != "duckdb" or place or source or dimensions or dbt or as_json:
            raise typer.BadParameter("a .duckdb file has views of DuckDB: give it no other option than queries")
        _write_database(warehouse, queries or None, output)
        return
    with telling_errors():
        text = _written(
            existing_warehouse(warehouse), queries or None, dialect, place, source, dimensions, dbt, dbt_source, as_json
        )
    if output is None:
        sys.stdout.write(text)
        return
    with telling_errors(), writing_to(output):
        output.write_text(text)
    terminal.errors.print(f"wrote {number_of(len(text.splitlines()), 'line')} to {output}", highlight=False)


def _write_database(warehouse: str, queries: list[str] | None, output: Path) -> None:
    from spark_jobs.results.duckdb_file import write_duckdb_file

    with telling_errors(), writing_to(output):
        names = write_duckdb_file(existing_warehouse(warehouse), output, queries)
    terminal.errors.print(
        f"wrote {number_of(len(names), 'view')} to {output}. They read the answers that are published when they are "
        "asked. Write it again after a new plan version, or when the warehouse moves.",
        highlight=False,
        soft_wrap=True,
    )


def _written(
    warehouse: Warehouse,
    queries: list[str] | None,
    dialect: str,
    place: str | None,
    source: str | None,
    dimensions: str | None,
    dbt: bool,
    dbt_source: str | None,
    as_json: bool,
) -> str:
    """The statements, or dbt's sources.yml of the views."""
    if dbt and as_json:
        raise typer.BadParameter("--dbt is YAML, not --json")
    if dbt_source is not None and not dbt:
        raise typer.BadParameter("--dbt-source is for --dbt")
    if dbt:
        return _sources(warehouse, queries, dialect, place, dbt_source)
    return _statements(warehouse, queries, dialect, place, source, dimensions, as_json)


def _sources(warehouse: Warehouse, queries: list[str] | None, dialect: str, place: str | None, name: str | None) -> str:
    """dbt's sources.yml of the views."""
    from spark_jobs.results.current_dimensions import current_dimensions
    from spark_jobs.results.dbt import SOURCE, sources
    from spark_jobs.results.relations import relations
    from spark_jobs.results.views import table_named

    schema = table_named(place, dialect) if place else None
    dimensions = current_dimensions(warehouse) if queries is None else []
    return sources(relations(warehouse), dialect, schema, queries, name or SOURCE, dimensions)


def _statements(
    warehouse: Warehouse,
    queries: list[str] | None,
    dialect: str,
    place: str | None,
    source: str | None,
    dimensions: str | None,
    as_json: bool,
) -> str:
    """The statements that make the views."""
    from spark_jobs.results.current_dimensions import current_dimensions
    from spark_jobs.results.relations import relations
    from spark_jobs.results.views import dimension_views, results_of, table_named, view_statements

    known, schema = relations(warehouse), table_named(place, dialect) if place else None
    table = table_named(source, dialect) if source else results_of(warehouse, dialect)
    statements = view_statements(known, table, dialect, schema, queries)
    of_tables = table_named(dimensions, dialect) if dimensions else None
    of_dimensions = []
    if queries is None and source and of_tables is None:
        # a query of the results table alone reads none of the folders
        if names := [dimension.name for dimension in current_dimensions(warehouse)]:
            text = f"no views of {', '.join(names)}: --dimensions-from names the schema of the tables of dimensions"
            terminal.errors.print(text, highlight=False, soft_wrap=True)
    elif queries is None:
        of_dimensions = dimension_views(warehouse, known, dialect, schema, of_tables)
    if as_json:
        answers = [{"query": query, "statement": statement} for query, statement in statements]
        keys = ("dimension", "view", "statement")
        views = {"views": answers, "dimensions": [dict(zip(keys, each, strict=True)) for each in of_dimensions]}
        return json_text({"format_version": 1, "dialect": dialect, **views})
    texts = [statement for _, statement in statements] + [statement for _, _, statement in of_dimensions]
    return "".join(f"{text};\n\n" for text in texts)


@app.command(
    epilog="Examples: heddle contract --warehouse house   "
    "|   heddle contract hourly_volume --warehouse house --output hourly_volume.odcs.yaml"
)
def contract(
    warehouse: WarehouseOption,
    queries: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of queries; none: all that are registered.", metavar="[QUERY]...", show_default=False
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="Write to this file.")] = None,
) -> None:
    """Print a data contract of queries. It is YAML of the Open Data Contract Standard 3.1: columns with types and
    nulls, what is unique, checks, age of answers, owner, and where the tables are. It has no secrets. Needs no JVM."""
    from spark_jobs.results.contract import contract as contract_of

    with telling_errors():
        text = contract_of(existing_warehouse(warehouse), queries or None)
    if output is None:
        sys.stdout.write(text)
    else:
        write_text(output, text)
