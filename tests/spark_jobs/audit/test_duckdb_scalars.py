"""Rounding of single values in the audit's SQL, against plain values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import pytest

from optimizer.workload.values import LONG, Call, Column, Expression, Literal
from spark_jobs.audit.unshared.duckdb_scalars import scalar_sql


def rounded(name: str, value: str, kind: str, places: int | None = None) -> tuple[Any, str]:
    """What a function answers for a value in DuckDB's words, and the kind of the answer."""
    constants: list[Expression] = [] if places is None else [Literal(places, LONG)]
    typed = scalar_sql(Call(name, (Column("x"), *constants)), [(value, kind)], lambda arguments: [])
    assert typed is not None
    (row,) = duckdb.sql(f"SELECT {typed[0]}").fetchall()
    return row[0], typed[1]


@pytest.mark.parametrize(
    ("value", "floor", "ceil"),
    [
        ("1.5::DOUBLE", 1, 2),
        ("-1.5::DOUBLE", -2, -1),
        ("-9223372036854775808::DOUBLE", -(2**63), -(2**63)),
        ("9223372036854775808::DOUBLE", None, None),
        ("-9223372036854777856::DOUBLE", None, None),
    ],
)
def test_whole_numbers_of_doubles_fit_into_64_bits(value: str, floor: int | None, ceil: int | None) -> None:
    assert rounded("floor", value, "double") == (floor, "long")
    assert rounded("ceil", value, "double") == (ceil, "long")


def test_whole_numbers_of_exact_values_keep_their_kind() -> None:
    assert rounded("floor", "7::HUGEINT", "long") == (7, "long")
    assert rounded("floor", "-1.50::DECIMAL(6,2)", "decimal") == (Decimal(-2), "decimal")
    assert rounded("ceil", "1.50::DECIMAL(6,2)", "decimal") == (Decimal(2), "decimal")


@pytest.mark.parametrize(
    ("value", "places", "answer"),
    [(149, -2, 100), (150, -2, 200), (-150, -2, -200), (-149, -2, -100), (5, -1, 10), (4, -1, 0), (7, 0, 7), (7, 1, 7)],
)
def test_integers_round_half_away_from_zero(value: int, places: int, answer: int) -> None:
    number, kind = rounded("round", f"{value}::HUGEINT", "long", places)
    assert (number, type(number), kind) == (answer, int, "long")


def test_fractions_round_half_away_from_zero() -> None:
    assert rounded("round", "2.5::DOUBLE", "double", 0) == (3.0, "double")
    assert rounded("round", "1e15::DOUBLE", "double", 2) == (1e15, "double")
    assert rounded("round", "-2.505::DECIMAL(6,3)", "decimal", 2) == (Decimal("-2.51"), "decimal")
    assert rounded("round", "NULL::DECIMAL(6,3)", "decimal", 2) == (None, "decimal")
