"""Values of a query as DuckDB's SQL: expressions and filters. From our values only, never from query text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from optimizer.workload.values import Call, Column, Expression, Literal, Type
from spark_jobs.audit.unshared.duckdb_scalars import scalar_sql, values_of

FLOOR_DIV = "CREATE OR REPLACE MACRO floor_div(a, b) AS (a - ((a % b) + b) % b) // b"
"""Statement that a database needs before it evaluates an expression."""

_COMPARISONS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


class CannotTell(Exception):
    """DuckDB does not support an expression, or cannot represent a value of it."""


def quoted(name: str) -> str:
    """A name, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(value: str) -> str:
    """A text as a constant."""
    return "'" + value.replace("'", "''") + "'"


class Translator:
    """Values of :mod:`optimizer.workload.values` to DuckDB SQL, each with its kind.

    Kinds: ``long`` (computed in HUGEINT, so that it cannot wrap), ``decimal``, ``double``, ``string``,
    ``boolean``, ``date``, ``timestamp`` (as integer microseconds).
    """

    def __init__(self, schema: pa.Schema, names: Mapping[str, str] | None = None) -> None:
        """``names``: what the columns of the schema are called in the database, if not by their names."""
        self._schema = schema
        self._names = names

    def __call__(self, expression: Expression) -> tuple[str, str]:
        if isinstance(expression, Column):
            return self._column(expression.name)
        if isinstance(expression, Literal):
            return _literal(expression.value, expression.type)
        return self._call(expression)

    def _column(self, name: str) -> tuple[str, str]:
        type, column = self._schema.field(name).type, quoted(name if self._names is None else self._names[name])
        if pa.types.is_integer(type):
            return f"{column}::HUGEINT", "long"
        if pa.types.is_timestamp(type):
            return column, "timestamp"
        for kind, holds in (
            ("decimal", pa.types.is_decimal),
            ("double", pa.types.is_floating),
            ("boolean", pa.types.is_boolean),
            ("date", pa.types.is_date),
        ):
            if holds(type):
                return column, kind
        return column, "string"

    def _call(self, call: Call) -> tuple[str, str]:
        name = call.function
        arguments = [self(argument) for argument in call.arguments[: values_of(call)]]
        scalar = scalar_sql(call, arguments, _aligned)
        if scalar is not None:
            return scalar
        if name in _COMPARISONS:
            left, right, _ = _aligned(arguments)
            return f"({left} {_COMPARISONS[name]} {right})", "boolean"
        if name in ("and", "or"):
            return "(" + f" {name.upper()} ".join(sql for sql, _ in arguments) + ")", "boolean"
        if name == "not":
            return f"(NOT {arguments[0][0]})", "boolean"
        if name == "is_null":
            return f"({arguments[0][0]} IS NULL)", "boolean"
        if name == "in":
            equal = [_aligned([arguments[0], item]) for item in arguments[1:]]
            return "(" + " OR ".join(f"({left} = {right})" for left, right, _ in equal) + ")", "boolean"
        if name == "like":
            return f"({arguments[0][0]} LIKE {arguments[1][0]} ESCAPE '\\')", "boolean"
        if name in ("lower", "upper"):
            return f"{name}({arguments[0][0]})", "string"
        if name in ("abs", "neg"):
            sql, kind = arguments[0]
            return (f"abs({sql})" if name == "abs" else f"(-{sql})"), kind
        if name == "/":
            dividend, divisor = (f"({sql})::DOUBLE" for sql, _ in arguments)
            return f"(CASE WHEN {divisor} = 0 THEN NULL ELSE {dividend} / {divisor} END)", "double"
        if name == "coalesce":
            *same, kind = _aligned(arguments)
            return f"coalesce({', '.join(same)})", kind
        if name not in ("+", "-", "*"):
            raise CannotTell(f"DuckDB is not asked for {name}")
        left, right, kind = _aligned(arguments, multiply=name == "*")
        return f"({left} {name} {right})", kind


def _literal(value: Any, type: Type) -> tuple[str, str]:
    if value is None:
        kinds = {"long": "HUGEINT", "timestamp": "BIGINT", "string": "VARCHAR"}
        return f"NULL::{kinds.get(type.name, str(type))}", type.name
    if type.name == "long":
        return f"'{value}'::HUGEINT", "long"
    if type.name == "timestamp":
        return f"'{value}'::BIGINT", "timestamp"
    return f"{text_literal(str(value))}::{'VARCHAR' if type.name == 'string' else type}", type.name


def _aligned(arguments: Sequence[tuple[str, str]], multiply: bool = False) -> list[str]:
    """SQL of the arguments brought to one kind, then that kind: with a double all are doubles; integers meet
    decimals as decimals (as many digits as the product may still have room for)."""
    kinds = {kind for _, kind in arguments}
    if kinds == {"date", "timestamp"}:
        return [f"epoch_us(({sql})::TIMESTAMP)" if kind == "date" else sql for sql, kind in arguments] + ["timestamp"]
    if "double" in kinds and len(kinds) > 1:
        return [f"({sql})::DOUBLE" for sql, _ in arguments] + ["double"]
    if kinds == {"long", "decimal"}:
        digits = 19 if multiply else 28
        cast = [f"({sql})::DECIMAL({digits},0)" if kind == "long" else sql for sql, kind in arguments]
        return [*cast, "decimal"]
    return [sql for sql, _ in arguments] + [arguments[0][1]]
