"""Relations as SQL: one SELECT over the results table for each, in the words of an engine.

Every statement is built as a tree of sqlglot, of values alone that come from our own parser: names are quoted, texts
escaped. No text of a registered query is in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from optimizer.errors.diagnostics import HeddleError
from optimizer.synopses.synopsis import CARRIERS
from optimizer.workload.values import DOUBLE, LONG, STRING, Type, digest
from spark_jobs.results.current_dimensions import current_dimensions, table_of
from spark_jobs.results.relations import Arrangement, Relation, Relations, Slot, unknown
from spark_jobs.store.warehouse.warehouse import Warehouse

UNUSABLE = "HDL-623"


@dataclass(frozen=True)
class Dialect:
    """Differences of an engine's SQL.

    - ``moment``: microseconds since 1970 (``x``) as an instant;
    - ``day``: days since 1970 as a date;
    - ``bytes``: the bytes of a text in base64;
    - ``source``: how it reads a Delta table in a folder, None: only by a table's name;
    - ``plain``: names of views may have neither dots nor dashes;
    - ``longest``: characters of a name;
    - ``evolves``: a view can have the columns that its table has when it is read.
    """

    moment: str
    day: str
    bytes: str = "FROM_BASE64(x)"
    source: str | None = None
    plain: bool = False
    longest: int = 128
    evolves: bool = False


_SPARK = Dialect(
    "TIMESTAMP_MICROS(x)", "DATE_FROM_UNIX_DATE(CAST(x AS INT))", "UNBASE64(x)", "delta", plain=True, evolves=True
)

DIALECTS: dict[str, Dialect] = {
    "duckdb": Dialect("MAKE_TIMESTAMPTZ(x)", "CAST('1970-01-01' AS DATE) + CAST(x AS INT)", source="delta_scan"),
    "spark": _SPARK,
    "databricks": _SPARK,
    "trino": Dialect(
        "CAST(FROM_UNIXTIME_NANOS(CAST(x AS DECIMAL(38, 0)) * 1000) AS TIMESTAMP(6) WITH TIME ZONE)",
        "DATE_ADD('DAY', x, CAST('1970-01-01' AS DATE))",
    ),
    "snowflake": Dialect(
        "DATEADD(MICROSECOND, x, CAST('1970-01-01 00:00:00 +00:00' AS TIMESTAMPTZ))",
        "DATEADD(DAY, x, CAST('1970-01-01' AS DATE))",
        "TO_BINARY(x, 'BASE64')",
        longest=255,
    ),
    "bigquery": Dialect("TIMESTAMP_MICROS(x)", "DATE_FROM_UNIX_DATE(x)", plain=True),
    "postgres": Dialect(
        "CAST('1970-01-01 00:00:00+00' AS TIMESTAMPTZ) + DIV(x, 1000000) * INTERVAL '1 second'"
        " + MOD(x, 1000000) * INTERVAL '1 microsecond'",
        "CAST('1970-01-01' AS DATE) + CAST(x AS INT)",
        "DECODE(x, 'base64')",
        longest=63,
    ),
}
"""The engines whose SQL is known, by their names in sqlglot."""

_TYPES = {
    "boolean": exp.DType.BOOLEAN,
    "long": exp.DType.BIGINT,
    "double": exp.DType.DOUBLE,
    "string": exp.DType.TEXT,
    "date": exp.DType.DATE,
    "timestamp": exp.DType.TIMESTAMPTZ,
    "decimal": exp.DType.DECIMAL,
    "binary": exp.DType.VARBINARY,
}

_ELEMENTS = {"longs": LONG, "doubles": DOUBLE, "texts": STRING}


def dialect_of(name: str) -> Dialect:
    """The dialect of an engine. Raises HDL-623."""
    if name not in DIALECTS:
        raise HeddleError(UNUSABLE, f"the SQL of {name!r} is not known", f"known: {', '.join(DIALECTS)}")
    return DIALECTS[name]


def table_named(text: str, dialect: str) -> exp.Table:
    """A table (or ``catalog.schema``) as somebody writes its name in an engine's SQL. Raises HDL-623."""
    dialect_of(dialect)
    try:
        table = parse_one(text, dialect=dialect, into=exp.Table)
    except SqlglotError as error:
        raise HeddleError(UNUSABLE, f"{text!r} is no name of a table", "e.g. main.heddle.results") from error
    if not isinstance(table, exp.Table) or any(not isinstance(part, exp.Identifier) for part in table.parts):
        raise HeddleError(UNUSABLE, f"{text!r} is no name of a table", "e.g. main.heddle.results")
    for part in table.parts:
        part.set("quoted", True)
    return table


def results_of(warehouse: Warehouse, dialect: str) -> exp.Table:
    """The results table where it lies, for engines that read a Delta table in a folder. Raises HDL-623."""
    return delta_folder(warehouse.path("results"), dialect)


def delta_folder(path: str, dialect: str) -> exp.Table:
    """A Delta table where it lies, for engines that read one in a folder. Raises HDL-623."""
    how = dialect_of(dialect).source
    if how is None:
        hint = "name the table with --from, as the engine knows it"
        raise HeddleError(UNUSABLE, f"{dialect} reads tables by their names, not from folders", hint)
    if how == "delta":
        return exp.Table(this=exp.to_identifier(path, quoted=True), db=exp.to_identifier(how))
    return exp.Table(this=exp.Anonymous(this=how, expressions=[exp.Literal.string(path)]))


# ------------------------------------------------------------------------------------------------ SELECT
def select(relation: Relation, source: exp.Table, dialect: str) -> exp.Query:
    """A relation's rows as a query over the results table ``source``: rows of definitions that have every column in
    the same slot are selected together, and no value is ever taken from another column's slot.
    """
    parts = []
    for arrangement in relation.arrangements:
        columns = [
            exp.Alias(this=_value(slot, column.type, dialect), alias=exp.to_identifier(column.name, quoted=True))
            for column, slot in zip(relation.columns, arrangement.slots, strict=True)
        ]
        chosen = exp.and_(_equals("query", [relation.name]), _answered(arrangement), copy=False)
        rows = source.copy()
        rows.set("alias", exp.TableAlias(this=exp.to_identifier("r")))
        parts.append(exp.select(*columns, copy=False).from_(rows, copy=False).where(chosen, copy=False))
    return parts[0] if len(parts) == 1 else exp.union(*parts, distinct=False, copy=False)


def _answered(arrangement: Arrangement) -> exp.Expr:
    """Condition of the rows of a query that have an arrangement."""
    marked = _equals("fingerprint", arrangement.fingerprints)
    if not arrangement.plan_versions:
        return marked
    none = exp.Is(this=_column("fingerprint"), expression=exp.null())
    unmarked = exp.and_(none, _equals("plan_version", arrangement.plan_versions))
    return exp.paren(exp.or_(marked, unmarked, copy=False), copy=False)


def _equals(column: str, values: Sequence[str] | Sequence[int]) -> exp.Expr:
    literals = [exp.convert(value) for value in values]
    if len(literals) == 1:
        return exp.EQ(this=_column(column), expression=literals[0])
    return exp.In(this=_column(column), expressions=literals)


def _column(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True), table="r")


def _value(slot: Slot | None, type: Type, dialect: str) -> exp.Expr:
    """The value of a row in a slot, as a column's type."""
    if slot is None:
        return _cast(exp.null(), type)
    if slot.carrier == "key":
        return _of_text(_group_text(slot.index, dialect), type, dialect)
    if slot.carrier not in CARRIERS:
        return _column(slot.carrier)
    places = [exp.Literal.number(slot.index)]
    element: exp.Expr = exp.Bracket(this=_column(slot.carrier), expressions=places, offset=0, safe=True)
    if dialect == "snowflake":
        # lists may hold variants there
        element = _cast(element, _ELEMENTS[slot.carrier])
    if slot.carrier == "longs":
        if type.name == "boolean":
            return exp.NEQ(this=element, expression=exp.Literal.number(0))
        if type.name in ("date", "timestamp"):
            return _converted(element, type, dialect)
    if type.name == "binary":
        return _converted(element, type, dialect)
    return _cast(element, type) if type.name == "decimal" else element


def _group_text(index: int, dialect: str) -> exp.Expr:
    key: exp.Expr = _column("key")
    if dialect in ("spark", "databricks"):
        # the text of a null is "null" by their GET_JSON_OBJECT
        listed = exp.Anonymous(this="FROM_JSON", expressions=[key, exp.Literal.string("ARRAY<STRING>")])
        return exp.Anonymous(this="GET", expressions=[listed, exp.Literal.number(index)])
    if dialect == "postgres":
        key = exp.Cast(this=key, to=exp.DataType(this=exp.DType.JSON))
    path = exp.JSONPath(expressions=[exp.JSONPathRoot(), exp.JSONPathSubscript(this=index)])
    return exp.JSONExtractScalar(this=key, expression=path)


def _of_text(text: exp.Expr, type: Type, dialect: str) -> exp.Expr:
    if type.name == "string":
        return text
    if type.name == "timestamp":
        return _converted(_cast(text, LONG), type, dialect)
    return _cast(text, type)


def _converted(stored: exp.Expr, type: Type, dialect: str) -> exp.Expr:
    """The value that a number (or, of bytes, a text in base64) represents."""
    template = _template(dialect, type.name).copy()
    for place in template.find_all(exp.Column):
        place.replace(stored.copy())
    return template


@cache
def _template(dialect: str, type: str) -> exp.Expr:
    spoken = dialect_of(dialect)
    templates = {"date": spoken.day, "timestamp": spoken.moment, "binary": spoken.bytes}
    return parse_one(templates[type], dialect=dialect)


def _cast(value: exp.Expr, type: Type) -> exp.Cast:
    return exp.Cast(this=value, to=sql_type(type))


def sql_type(type: Type) -> exp.DataType:
    """A type of the language as engines have it."""
    digits = (type.precision, type.scale) if type.name == "decimal" else ()
    parameters = [exp.DataTypeParam(this=exp.Literal.number(number)) for number in digits]
    return exp.DataType(this=_TYPES[type.name], expressions=parameters)


# ------------------------------------------------------------------------------------------------ CREATE VIEW
def view_names(relations: Relations, dialect: str) -> dict[str, str]:
    """The name of each query's view: the query's name, in a form that the engine accepts. Engines do not
    distinguish names that differ in case, and some permit neither dots nor dashes, or cut long names. If several
    queries get one name, the one that was planned first has it; the names of the others end with eight digits of
    a digest.
    """
    spoken = dialect_of(dialect)
    names: dict[str, str] = {}
    used_names: set[str] = set()
    for query in sorted(relations, key=lambda name: (relations.first_version(name), name)):
        name = re.sub("[.-]", "_", query) if spoken.plain else query
        if name.lower() in used_names or len(name) > spoken.longest:
            name = f"{name[: spoken.longest - 9]}_{digest(query)[:8]}"
        used_names.add(name.lower())
        names[query] = name
    return names


def view_statements(
    relations: Relations,
    source: exp.Table,
    dialect: str,
    place: exp.Table | None = None,
    names: Sequence[str] | None = None,
) -> Iterator[tuple[str, str]]:
    """Queries (``names``; None: all), each with the statement that creates or replaces its view.

    ``source``: the results table; ``place``: the catalogue and schema of the views, None: the session's. Raises
    HDL-623 for an engine whose SQL is not known, HDL-507 for a query that no plan has known.
    """
    called = view_names(relations, dialect)
    for query in chosen_names(relations, names):
        create = created(called[query], select(relations[query], source, dialect), place)
        yield query, create.sql(dialect, pretty=True)


def dimension_view_names(dimensions: Iterable[str], queries: Iterable[str], dialect: str) -> dict[str, list[str]]:
    """The names of each dimension's views: its own name unless a view of ``queries`` has it, and always
    ``dimensions_<name>``. Of two that would be one, or too long for the engine, the later ends with eight digits of a
    digest.
    """
    longest = dialect_of(dialect).longest
    used_names = {name.lower() for name in queries}
    names: dict[str, list[str]] = {}
    known = sorted(dimensions)
    for dimension, name in ((each, f"dimensions_{each}") for each in known):
        if name.lower() in used_names or len(name) > longest:
            name = f"{name[: longest - 9]}_{digest(dimension)[:8]}"
        used_names.add(name.lower())
        names[dimension] = [name]
    for dimension in known:
        if dimension.lower() not in used_names and len(dimension) <= longest:
            used_names.add(dimension.lower())
            names[dimension].insert(0, dimension)
    return names


def dimension_views(
    warehouse: Warehouse,
    relations: Relations,
    dialect: str,
    place: exp.Table | None = None,
    schema: exp.Table | None = None,
) -> list[tuple[str, str, str]]:
    """The dimensions that queries join, as a run used them last: each with the name of a view (all of
    :func:`dimension_view_names`) and the statement that creates or replaces it.

    ``place``: as of :func:`view_statements`; ``schema``: the catalogue and schema in which the engine knows the tables
    of dimensions by their names, None: they are read from their folders. Raises HDL-623 for an engine whose SQL is not
    known or that reads no folders, and for a ``schema`` that is the ``place``.
    """
    if schema is not None and place is not None and schema.sql().lower() == place.sql().lower():
        message = f"the views of dimensions would take the names of their tables in {place.sql(dialect)}"
        raise HeddleError(UNUSABLE, message, "register the tables in another schema than that of the views")
    known = {dimension.name: dimension.columns for dimension in current_dimensions(warehouse)}
    queries = view_names(relations, dialect).values()
    evolves = dialect_of(dialect).evolves
    statements = []
    for dimension, views in dimension_view_names(known, queries, dialect).items():
        path = warehouse.path(table_of(dimension))
        source = delta_folder(path, dialect) if schema is None else _within(schema, dimension)
        # a view that follows its table stays right after the next version of the plan
        columns = [exp.column(exp.to_identifier(name, quoted=True)) for name, _ in known[dimension]]
        query = exp.select(*([exp.Star()] if evolves else columns)).from_(source)
        for view in views:
            create = created(view, query.copy(), place)
            if evolves:
                follows = exp.WithSchemaBindingProperty(this=exp.var("EVOLUTION"))
                create.set("properties", exp.Properties(expressions=[follows]))
            statements.append((dimension, view, create.sql(dialect, pretty=True)))
    return statements


def chosen_names(relations: Relations, names: Iterable[str] | None) -> list[str]:
    """The names of some queries, or of all (None). Raises HDL-507 for one that no plan has known."""
    chosen = list(relations if names is None else names)
    for name in chosen:
        if name not in relations:
            raise unknown(name, relations)
    return chosen


def created(name: str, query: exp.Query, place: exp.Table | None = None) -> exp.Create:
    """CREATE OR REPLACE VIEW of a name."""
    view = exp.Table(this=exp.to_identifier(name, quoted=True)) if place is None else _within(place, name)
    return exp.Create(this=view, kind="VIEW", replace=True, expression=query)


def _within(place: exp.Table, name: str) -> exp.Table:
    """A table or view of a name in a catalogue and schema."""
    levels: Mapping[str, exp.Expr] = dict(zip(("db", "catalog"), reversed(place.parts), strict=False))
    own = {level: part.copy() for level, part in levels.items()}
    return exp.Table(this=exp.to_identifier(name, quoted=True), **own)
