"""A DuckDB database with a view of each query, for programs that open such a file: BI tools, notebooks, DuckDB itself.

The views read Delta's log with DuckDB's own functions, so they need no extension: a reader sees the answers that are
published when it asks, and nothing of a running publication or of a revision that was replaced.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import duckdb
from deltalake import DeltaTable
from sqlglot import exp, parse_one

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.results.connect import APART
from spark_jobs.results.dimension_tables import SCHEMA as DIMENSIONS
from spark_jobs.results.dimension_tables import DimensionTable, stored_dimensions
from spark_jobs.results.relations import Relation, relations, versions_without_fingerprints
from spark_jobs.results.views import chosen_names, created, dimension_view_names, select, view_names
from spark_jobs.store.warehouse.data_files import LOG
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.dimension_versions import CURRENT, versions_folder

SCHEMA = "heddle"
"""The schema of the view over all stored rows, and the mark of a database that this module wrote."""

SOURCE = exp.Table(this=exp.to_identifier("results", quoted=True), db=exp.to_identifier(SCHEMA, quoted=True))

STORAGE = "v1.0.0"
"""Version of the file's form: every DuckDB since 1.0 opens it."""

COMMITTED = "part-*-*.parquet"
"""Names of files that are complete: one that is being written has a dash less."""

_ROWS = """\
WITH checkpoints AS MATERIALIZED (
  SELECT "add".path AS path, filename[-39:-20] AS version
  FROM read_parquet({checkpoints}, filename = true)
), actions AS MATERIALIZED (
  SELECT coalesce("add".path, "remove".path) AS path, "add".path IS NOT NULL AS is_added, filename[-25:-6] AS version
  FROM read_json({commits}, format = 'newline_delimited', filename = true,
    columns = {{'add': 'STRUCT(path VARCHAR)', 'remove': 'STRUCT(path VARCHAR)'}})
  WHERE coalesce("add".path, "remove".path) IS NOT NULL
    AND filename[-25:-6] > (SELECT max(version) FROM checkpoints)
), changed AS MATERIALIZED (
  SELECT path, arg_max(is_added, version) AS is_added FROM actions GROUP BY path
), published AS MATERIALIZED (
  SELECT {folder} || path AS filename FROM changed WHERE is_added
  UNION ALL
  SELECT {folder} || path FROM checkpoints
  WHERE path IS NOT NULL AND version = (SELECT max(version) FROM checkpoints)
    AND path NOT IN (SELECT path FROM changed)
)
SELECT r.* EXCLUDE (filename)
FROM published JOIN read_parquet({files}, filename = true, hive_partitioning = false{union}) AS r USING (filename)"""
"""All published rows: the newest checkpoint of the log, and the commits since. The log is listed before the data
files: so every file that it names is there, unless maintenance removed it since.
"""


_VERSION_ROWS = """\
SELECT * FROM read_parquet({files}, filename = true, union_by_name = true)
WHERE filename = {folder} || (SELECT trim(content) FROM read_text({current})) || '.parquet'"""
"""The rows of the version of a dimension that a run used last."""


def write_duckdb_file(warehouse: Warehouse, path: Path, queries: Iterable[str] | None = None) -> list[str]:
    """Write a DuckDB database in which every query (or those of ``queries``) is a view with its name; the names.
    Without ``queries`` it also has the dimensions that queries join.

    The file is replaced at once: who has it open keeps the former one. Raises HDL-642 for a warehouse that DuckDB
    cannot read by itself, HDL-643 for a file that is something else, HDL-507 for a query that no plan has known,
    HDL-548 if nothing is published.
    """
    _check_readable(warehouse)
    _check_replaceable(path)
    current = warehouse.table("results")
    statement = _source_statement(warehouse, current)
    known = relations(warehouse, current)
    names = view_names(known, "duckdb")
    chosen = chosen_names(known, queries)
    dimensions = list(stored_dimensions(warehouse).values()) if queries is None else []
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        views = [(names[query], _answers(known[query])) for query in chosen]
        _write(draft, [statement, *_view_statements(warehouse, views, dimensions)])
        draft.replace(path)
    finally:
        for left in (draft, draft.with_name(f"{draft.name}.wal")):
            with suppress(OSError):
                left.unlink(missing_ok=True)
    return [*(names[query] for query in chosen), *(dimension.name for dimension in dimensions)]


def _check_readable(warehouse: Warehouse) -> None:
    folder = warehouse.path("results")
    if not warehouse.place.is_local or any(sign in folder for sign in "*?[]%"):
        hint = "print the views (heddle views) and use DuckDB's extension delta, or ask heddle sql"
        raise HeddleError("HDL-642", f"DuckDB cannot list the files of {folder} by itself", hint)


def _check_replaceable(path: Path) -> None:
    if not path.exists():
        return
    place = exp.Literal.string(str(path)).sql("duckdb")
    hint = "name another file; a program that has it open must open it read-only"
    try:
        with duckdb.connect(config=APART) as connection:
            connection.execute(f"ATTACH {place} AS former (READ_ONLY)")
            schemas = connection.sql(
                "SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'former'"
            ).fetchall()
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise HeddleError("HDL-643", f"{path} cannot be replaced by views: {reason}", hint) from error
    if (SCHEMA,) not in schemas:
        raise HeddleError("HDL-643", f"{path} is a database that heddle views did not write", hint)


def _source_statement(warehouse: Warehouse, current: DeltaTable) -> str:
    """The view over all published rows."""
    folder = os.path.abspath(warehouse.path("results"))  # noqa: PTH100 - of links the name
    log = f"{folder}/{LOG}"
    paths = current.file_uris()
    if not paths:
        hint = "publish an interval first: DuckDB takes the columns from the files"
        raise HeddleError("HDL-548", "nothing is published yet that views could read", hint)
    if not any(Path(log).glob("*.checkpoint.parquet")):
        current.create_checkpoint()
    complete = all(Path(name).match(COMMITTED) for name in paths)
    text = exp.Literal.string
    return f"CREATE VIEW {SOURCE.sql('duckdb')} AS\n" + _ROWS.format(
        checkpoints=text(f"{log}/*.checkpoint.parquet").sql("duckdb"),
        commits=text(f"{log}/*.json").sql("duckdb"),
        folder=text(f"{folder}/").sql("duckdb"),
        files=text(f"{folder}/*/{COMMITTED if complete else '*.parquet'}").sql("duckdb"),
        union=", union_by_name = true" if len(versions_without_fingerprints(current)) else "",
    )


def _view_statements(
    warehouse: Warehouse, views: Sequence[tuple[str, exp.Query]], dimensions: Sequence[DimensionTable]
) -> Iterator[str]:
    """The statements that make views, each a name with its query, and of dimensions."""
    for name, query in views:
        yield created(name, query).sql("duckdb")
    first_names = dimension_view_names([table.name for table in dimensions], [name for name, _ in views], "duckdb")
    yield f"CREATE SCHEMA {DIMENSIONS}"
    for table in dimensions:
        own = exp.Table(this=exp.to_identifier(table.name, quoted=True), db=exp.to_identifier(DIMENSIONS, quoted=True))
        rows = parse_one(_VERSION_ROWS.format(**_version_files(warehouse, table.name)), dialect="duckdb")
        query = table.select(exp.Subquery(this=rows, alias=exp.TableAlias(this=exp.to_identifier("r"))))
        yield created(table.name, query, exp.Table(this=own.args["db"].copy())).sql("duckdb")
        yield created(first_names[table.name][0], exp.select("*").from_(own)).sql("duckdb")


def _version_files(warehouse: Warehouse, name: str) -> dict[str, str]:
    """The texts of :data:`_VERSION_ROWS` for a dimension."""
    folder = os.path.abspath(versions_folder(warehouse, name).local())  # noqa: PTH100 - of links the name
    text = exp.Literal.string
    parts = {"files": f"{folder}/*.parquet", "folder": f"{folder}/", "current": f"{folder}/{CURRENT}"}
    return {part: text(place).sql("duckdb") for part, place in parts.items()}


def _write(path: Path, statements: Iterable[str]) -> None:
    place = exp.Literal.string(str(path)).sql("duckdb")
    with duckdb.connect(config=APART) as connection:
        connection.execute(f"ATTACH {place} AS house (STORAGE_VERSION '{STORAGE}')")
        connection.execute("USE house")
        connection.execute(f'CREATE SCHEMA "{SCHEMA}"')
        for statement in statements:
            connection.execute(statement)
        connection.execute("CHECKPOINT house")


def _answers(relation: Relation) -> exp.Query:
    """A relation's rows. Those of several definitions are read at once, so that they are of one moment."""
    if len(relation.arrangements) == 1:
        return select(relation, SOURCE, "duckdb")
    name = "answers"
    own = exp.EQ(this=exp.column("query"), expression=exp.Literal.string(relation.name))
    rows = exp.select("*").from_(SOURCE.copy()).where(own)
    return select(relation, exp.to_table(name), "duckdb").with_(name, as_=rows, materialized=True, copy=False)
