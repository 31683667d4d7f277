"""Describe relations for dbt: a source whose tables are the views."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml
from sqlglot import exp

from optimizer.errors.redaction import redacted
from optimizer.workload.instants import DAY
from optimizer.workload.values import Type, digest
from spark_jobs.results.current_dimensions import CurrentDimension
from spark_jobs.results.relations import Relation, Relations
from spark_jobs.results.views import chosen_names, dimension_view_names, sql_type, view_names

SOURCE = "heddle"
"""Name of the source unless another is given. Models have it in `source('heddle', …)`, so it stays."""

UNITS = (("day", DAY), ("hour", DAY // 24), ("minute", DAY // 1440))
"""Units in which dbt counts spans of time, in microseconds."""


def sources(
    relations: Relations,
    dialect: str,
    place: exp.Table | None = None,
    names: Sequence[str] | None = None,
    source_name: str = SOURCE,
    dimensions: Sequence[CurrentDimension] = (),
) -> str:
    """dbt's ``sources.yml`` for the views of queries (``names``; None: all): their columns with types and meaning,
    what is never null, that no two rows are of one window and group, and how old the newest window may become. For
    those of ``dimensions``: their columns with types, and that a key is never null.

    ``source_name``: dbt's name of the source, which two warehouses in one project may not share. The owner is in the
    metadata of a table. No text of a query is rendered by dbt: what begins one of Jinja's brackets is parted. Raises
    HDL-507 for a query that no plan has known, HDL-623 for an engine whose SQL is not known.
    """
    called = view_names(relations, dialect)
    source: dict[str, Any] = {"name": source_name, "description": "Answers of Heddle's queries, each a view."}
    levels = [part.name for part in place.parts] if place is not None else []
    source |= dict(zip(("schema", "database"), reversed(levels), strict=False))
    source["tables"] = [
        _table(relations[name], called[name], dialect, source_name) for name in chosen_names(relations, names)
    ]
    views = dimension_view_names([dimension.name for dimension in dimensions], called.values(), dialect)
    source["tables"] += [_dimension_table(dimension, views[dimension.name][0], dialect) for dimension in dimensions]
    return yaml.safe_dump({"version": 2, "sources": [source]}, sort_keys=False, allow_unicode=True, width=120)


def _table(relation: Relation, name: str, dialect: str, source_name: str) -> dict[str, Any]:
    owner = f"Owner: {relation.owner}\n\n" if relation.owner else ""
    table: dict[str, Any] = {"name": name, "identifier": name, "description": _plain(owner + redacted(relation.text))}
    table["quoting"] = {"identifier": True}
    if relation.period is not None:
        table["loaded_at_field"] = "window_end"
        table["freshness"] = {"warn_after": _span(relation.period + relation.lateness)}
    if relation.owner:
        table["config"] = {"meta": {"owner": _plain(relation.owner)}}
    # without a name of its own dbt names the test by the whole expression
    unique = {"name": f"unique_{_word(source_name)}_{_word(name)}", "column_name": _grain(relation, dialect)}
    table["data_tests"] = [{"unique": unique}]
    table["columns"] = [
        {
            "name": column.name,
            "quote": True,
            "data_type": sql_type(column.type).sql(dialect),
            "description": _plain(column.description),
        }
        | ({"data_tests": ["not_null"]} if column.role in ("time", "position", "revision") else {})
        for column in relation.columns
    ]
    return table


def _dimension_table(dimension: CurrentDimension, name: str, dialect: str) -> dict[str, Any]:
    about = f"Rows of the dimension {dimension.name} that a run used last, by {', '.join(dimension.key)}."
    columns = [
        {"name": column, "quote": True, "data_type": sql_type(type).sql(dialect)}
        | ({"data_tests": ["not_null"]} if column in dimension.key else {})
        for column, type in dimension.columns
    ]
    quoting = {"identifier": True}
    return {"name": name, "identifier": name, "description": _plain(about), "quoting": quoting, "columns": columns}


def _word(name: str) -> str:
    """A name as a part of the name of a test; different names stay different."""
    word = re.sub(r"\W", "_", name)
    return word if word == name else f"{word}_{digest(name)[:8]}"


def _plain(text: str) -> str:
    """Text without Jinja: dbt renders descriptions."""
    return re.sub(r"\{(?=[{%#])", "{ ", text)


def _span(micros: int) -> dict[str, Any]:
    """A span of time as dbt counts it, rounded up."""
    unit, size = next(((unit, size) for unit, size in UNITS if micros % size == 0), UNITS[-1])
    return {"count": -(-micros // size), "period": unit}


def _grain(relation: Relation, dialect: str) -> str:
    """An expression that is equal in two rows only if all columns of the grain are, nulls among them: dbt's own test of
    uniqueness takes one. Texts go with their lengths, so that no two rows look alike."""
    parts: list[exp.Expr] = []
    for name in relation.grain:
        text = exp.Cast(this=exp.column(exp.to_identifier(name, quoted=True)), to=sql_type(Type("string")))
        sized = exp.Cast(this=exp.Length(this=text.copy()), to=sql_type(Type("string")))
        parts.append(exp.Coalesce(this=exp.DPipe(this=exp.DPipe(this=sized, expression=_literal(":"), safe=True),
                                                 expression=text, safe=True), expressions=[_literal("-")]))  # fmt: skip
    joined = parts[0]
    for part in parts[1:]:
        joined = exp.DPipe(this=joined, expression=part, safe=True)
    return joined.sql(dialect)


def _literal(text: str) -> exp.Literal:
    return exp.Literal.string(text)
