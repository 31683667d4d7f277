"""A stream that fits a query whose own is not declared, so that at least how the query is written can be checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from optimizer.language.parser import parse
from optimizer.language.words import written_name
from optimizer.migration.joins import ImportedJoin
from optimizer.migration.words import Dialect, function_of
from optimizer.migration.writing import WrittenQuery, join_text, sql
from optimizer.workload.values import BOOLEAN, DOUBLE, LONG, STRING, TIMESTAMP, Dimension, Source, Stream, Type

UNKNOWN = frozenset({"HDL-203", "HDL-206", "HDL-211", "HDL-213", "HDL-221"})
"""Findings that depend on the types of columns: they mean nothing where the types are assumed."""

_TEXTS = (
    "lower",
    "upper",
    "trim",
    "ltrim",
    "rtrim",
    "replace",
    "substring",
    "length",
    "concat",
    "split_part",
    "regexp_like",
)

_NUMBERS = (
    "sum",
    "avg",
    "stddev",
    "variance",
    "percentile",
    "median",
    "abs",
    "round",
    "floor",
    "ceil",
    "sqrt",
    "ln",
    "exp",
    "sin",
    "cos",
    "asin",
    "power",
)

_TIMES = ("date_trunc", "year", "month", "day", "hour", "minute", "dayofweek", "date_part", "to_date")


def assumed_stream(query: WrittenQuery, dialect: Dialect) -> Stream:
    """The stream of a query, with a type for each column that its use suggests, where it suggests one."""
    types: dict[str, Type] = {}
    of_dimensions: dict[str, dict[str, Type]] = {join.alias.lower(): {} for join in query.joins}
    computed = [outer for join in query.joins for outer, _ in join.pairs if not isinstance(outer, exp.Column)]
    for part in (*query.parts, *computed):
        for column in part.find_all(exp.Column):
            name = column.name
            if (own := of_dimensions.get(column.table.lower())) is not None:
                own[name] = next(_suggested(column), None) or own.get(name, STRING)
                continue
            suggested = next(_suggested(column), None)
            if suggested is not None or name not in types:
                types[name] = suggested or types.get(name, STRING)
    of_keys = [column for outer in computed for column in outer.find_all(exp.Column)]
    for part in (*query.parts, *of_keys):
        # what is grouped or joined by is no double
        of = of_dimensions.get(part.table.lower(), types) if isinstance(part, exp.Column) else {}
        if isinstance(part, exp.Column) and of[part.name] == DOUBLE:
            of[part.name] = LONG
    for join in query.joins:
        for outer, key in join.pairs:
            of_dimensions[join.alias.lower()][key] = STRING
            if isinstance(outer, exp.Column):
                of_dimensions.get(outer.table.lower(), types)[outer.name] = STRING
    time = query.time.strip("`")
    types.pop(time, None)
    schema = ((time, TIMESTAMP), *types.items())
    stream = Stream(query.stream, Source("parquet", "assumed"), schema, time)
    for number, join in enumerate(query.joins):
        own = of_dimensions[join.alias.lower()]
        for outer, key in join.pairs:
            if not isinstance(outer, exp.Column):
                own[key] = _type_of(outer, query, stream, query.joins[:number], dialect)
        stream = replace(stream, dimensions=(*stream.dimensions, _assumed_dimension(join, own)))
    return stream


def _type_of(
    node: exp.Expr, query: WrittenQuery, stream: Stream, joins: Sequence[ImportedJoin], dialect: Dialect
) -> Type:
    """The type of a value of events that are joined with some dimensions; of none that can be grouped by, STRING."""
    clauses = " ".join(join_text(join, dialect) for join in joins)
    text = f"SELECT count(*) FROM {written_name(query.stream)} {clauses} WINDOW RANGE '1 day' ON {query.time}"
    queries = parse(f"{text} GROUP BY {sql(node.unnest(), dialect)}", {stream.name: stream}).queries
    return queries[0].group_by[0][1] if queries else STRING


def _assumed_dimension(join: ImportedJoin, types: Mapping[str, Type]) -> Dimension:
    """A dimension with the columns that a query uses."""
    return Dimension(
        join.dimension, Source("parquet", "assumed"), tuple(key for _, key in join.pairs), tuple(types.items())
    )


def _suggested(column: exp.Column) -> Iterator[Type]:
    parent = column.parent
    while isinstance(parent, exp.Paren | exp.Neg):
        parent = parent.parent
    if isinstance(parent, exp.Predicate | exp.In | exp.Between):
        literals = list(parent.find_all(exp.Literal, exp.Boolean))
        if literals and isinstance(literals[0], exp.Boolean):
            yield BOOLEAN
        elif literals:
            yield STRING if literals[0].is_string else LONG if literals[0].is_int else DOUBLE
    if isinstance(parent, exp.Where | exp.Having | exp.And | exp.Or | exp.Not):
        yield BOOLEAN
    if isinstance(parent, exp.Add | exp.Sub | exp.Mul | exp.Div | exp.Mod):
        yield DOUBLE
    if isinstance(parent, exp.Extract):
        yield TIMESTAMP
    if isinstance(parent, exp.Anonymous):
        name = function_of(parent.name)
        for names, type in ((_TEXTS, STRING), (_NUMBERS, DOUBLE), (_TIMES, TIMESTAMP)):
            if name in names:
                yield type
