"""Expressions over Arrow batches: as DuckDB on generated expressions and rows, and Spark's corner cases."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.expression import as_decimal, exact_literal, type_of, unified
from optimizer.workload.values import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Expression,
    Literal,
    Type,
    decimal,
)
from spark_jobs.streams.sources.expressions import arrow_type, evaluate
from tests.sizes import examples

SCHEMA: dict[str, Type] = {
    "i": INT,
    "l": LONG,
    "x": DOUBLE,
    "y": DOUBLE,
    "m": decimal(6, 2),
    "w": decimal(30, 10),
    "s": STRING,
    "t": STRING,
    "b": BOOLEAN,
    "d": DATE,
    "ts": TIMESTAMP,
}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


# ------------------------------------------------------------------------------------------- generators
def scaled(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**digits - 1
    return st.integers(-limit, limit).map(lambda n: Decimal(f"{n}E-{scale}"))


DOUBLES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.5, 0.1, 2.5, math.nan, math.inf, -math.inf, 1e300, 3.0, 7.25]),
    st.floats(-1e6, 1e6),
)
TEXTS = st.text("aAb%_\\.\n", max_size=4)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.one_of(st.integers(-3, 3), st.integers(-(2**31), 2**31 - 1)),
    "l": st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)),
    "x": DOUBLES,
    "y": DOUBLES,
    "m": st.one_of(st.integers(-3, 3).map(Decimal), scaled(6, 2)),
    "w": st.one_of(st.integers(-3, 3).map(Decimal), scaled(30, 10)),
    "s": TEXTS,
    "t": TEXTS,
    "b": st.booleans(),
    "d": st.dates(datetime.date(1969, 12, 1), datetime.date(1970, 2, 1)),
    "ts": st.integers(-(10**12), 10**12).map(lambda us: EPOCH + datetime.timedelta(microseconds=us)),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.one_of(st.none(), values) for name, values in VALUES.items()}),
    min_size=1,
    max_size=8,
)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], arrow_type(type)) for name, type in SCHEMA.items()})


def number_literal(value: Any) -> Literal:
    return Literal(value, DOUBLE) if isinstance(value, float) else exact_literal(value)


NUMBERS = st.one_of(
    st.sampled_from([Column(name) for name in ("i", "l", "x", "y", "m", "w")]),
    st.one_of(
        st.integers(-5, 5),
        st.sampled_from([0.5, 0.0, -2.0]),
        st.sampled_from([Decimal("2.50"), Decimal("0.1")]),
    ).map(number_literal),
)


def typed(expression: Expression) -> bool:
    try:
        type_of(expression, SCHEMA)
    except HeddleError as error:
        assert error.diagnostic.code in ("HDL-203", "HDL-211")
        return False
    return True


def call(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Expression]:
    return st.tuples(*arguments).map(lambda operands: Call(name, operands))


ARITHMETIC: st.SearchStrategy[Expression] = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        *(call(name, inner, inner) for name in "+-*/"),
        call("neg", inner),
        call("abs", inner),
        call("coalesce", inner, inner),
    ),
    max_leaves=4,
).filter(typed)
STRINGS = st.one_of(
    st.sampled_from([Column("s"), Column("t")]),
    TEXTS.map(lambda text: Literal(text, STRING)),
    call("lower", st.just(Column("s"))),
    call("upper", st.just(Column("t"))),
    call("coalesce", st.just(Column("s")), st.just(Column("t"))),
)
PATTERN = st.lists(st.sampled_from(["a", "A", "%", "_", "\\%", "\\_", "\\\\", ".", "\n"]), max_size=4).map("".join)
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
PREDICATES: st.SearchStrategy[Expression] = st.one_of(
    *(call(name, ARITHMETIC, ARITHMETIC) for name in COMPARISONS),
    *(call(name, STRINGS, STRINGS) for name in COMPARISONS),
    *(call(name, st.just(Column("b")), st.booleans().map(lambda b: Literal(b, BOOLEAN))) for name in ("=", "<")),
    *(call(name, st.just(Column("d")), st.just(Literal("1970-01-01", DATE))) for name in COMPARISONS),
    *(call(name, st.just(Column("ts")), st.just(Literal(0, TIMESTAMP))) for name in COMPARISONS),
    call("like", STRINGS, PATTERN.map(lambda text: Literal(text, STRING))),
    st.builds(
        lambda head, items: Call("in", (head, *items)),
        ARITHMETIC,
        st.lists(
            st.one_of(st.integers(-3, 3).map(exact_literal), st.just(Literal(None, LONG))),
            min_size=1,
            max_size=4,
        ),
    ),
    st.builds(
        lambda head, items: Call("in", (head, *items)),
        STRINGS,
        st.lists(st.one_of(TEXTS, st.none()).map(lambda text: Literal(text, STRING)), min_size=1, max_size=4),
    ),
    st.builds(lambda column: Call("is_null", (column,)), st.one_of(ARITHMETIC, STRINGS)),
    st.just(Column("b")),
).filter(lambda expression: isinstance(expression, Column) or fits_duckdb(expression))
CONDITIONS: st.SearchStrategy[Expression] = st.recursive(
    PREDICATES,
    lambda inner: st.one_of(
        call("not", inner),
        *(
            st.lists(inner, min_size=2, max_size=3).map(lambda parts, name=name: Call(name, tuple(parts)))
            for name in ("and", "or")
        ),
        call("coalesce", inner, inner),
    ),
    max_leaves=4,
)


# ------------------------------------------------------------------------------------- DuckDB as oracle
def sql_of(expression: Expression) -> str:
    """DuckDB SQL that means the same, with every promotion of the language spelled out."""
    if isinstance(expression, Column):
        return f'"{expression.name}"'
    type = type_of(expression, SCHEMA)
    if isinstance(expression, Literal):
        if expression.value is None:
            return f"NULL::{sql_type(type)}"
        if type == TIMESTAMP:
            return f"make_timestamp({expression.value})"
        text = str(expression.value).replace("'", "''")
        return f"'{text}'::{sql_type(type)}"
    name, arguments = expression.function, expression.arguments
    if name in ("+", "-", "*", "neg", "abs"):
        parts = [number_sql(argument, type == DOUBLE) for argument in arguments]
        sign = {"neg": "-", "abs": "abs"}.get(name)
        sql = f"{sign}({parts[0]})" if sign else f"({parts[0]} {name} {parts[1]})"
        return f"({sql})::{sql_type(type)}"
    if name == "/":
        left, right = (number_sql(argument, True) for argument in arguments)
        return f"({left} / nullif({right}, 0::DOUBLE))"
    if name in COMPARISONS:
        left, right = compared(arguments[0], arguments[1])
        return f"({left} {name} {right})"
    if name == "in":
        return "(" + " OR ".join("({} = {})".format(*compared(arguments[0], item)) for item in arguments[1:]) + ")"
    if name == "coalesce":
        values = (number_sql(a, type == DOUBLE) if type.is_numeric else sql_of(a) for a in arguments)
        return f"(coalesce({', '.join(values)}))::{sql_type(type)}"
    if name == "like":
        return f"({sql_of(arguments[0])} LIKE {sql_of(arguments[1])} ESCAPE '\\')"
    if name == "is_null":
        return f"({sql_of(arguments[0])} IS NULL)"
    if name == "not":
        return f"(NOT {sql_of(arguments[0])})"
    if name in ("and", "or"):
        return "(" + f" {name} ".join(sql_of(argument) for argument in arguments) + ")"
    return f"{name}({sql_of(arguments[0])})"


def sql_type(type: Type) -> str:
    return {"long": "HUGEINT", "string": "VARCHAR"}.get(type.name, str(type))


def number_sql(expression: Expression, double: bool) -> str:
    """A number as a double (by its digits: a direct cast of decimals is not correctly rounded everywhere) or
    as the decimal that just holds it."""
    type = type_of(expression, SCHEMA)
    if double:
        return sql_of(expression) if type == DOUBLE else f"({sql_of(expression)})::VARCHAR::DOUBLE"
    integer_digits, scale = as_decimal(type)
    return f"({sql_of(expression)})::DECIMAL({integer_digits + scale},{scale})"


def compared(left: Expression, right: Expression) -> tuple[str, str]:
    types = [type_of(left, SCHEMA), type_of(right, SCHEMA)]
    if types[0].is_numeric:
        return number_sql(left, DOUBLE in types), number_sql(right, DOUBLE in types)
    return sql_of(left), sql_of(right)


def fits_duckdb(expression: Expression) -> bool:
    """DuckDB compares decimals in 38 digits; ours, which need up to 76, are checked by themselves."""
    if not typed(expression):
        return False
    assert isinstance(expression, Call)
    if expression.function not in (*COMPARISONS, "in"):
        return True
    types = [type_of(argument, SCHEMA) for argument in expression.arguments]
    return DOUBLE in types or not types[0].is_numeric or unified(types) is not None


def duckdb_answers(expressions: list[Expression], table: pa.Table) -> list[tuple[Any, ...]]:
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        naive = table.set_column(
            table.schema.get_field_index("ts"), "ts", table["ts"].cast(pa.int64()).cast(pa.timestamp("us"))
        )
        connection.register("events", naive)
        selected = ", ".join(sql_of(expression) for expression in expressions)
        rows = connection.execute(f"SELECT {selected} FROM events").fetchall()
    return list(zip(*rows, strict=True))


def same(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        return ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    return ours == theirs


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(expressions=st.lists(st.one_of(CONDITIONS, ARITHMETIC), min_size=6, max_size=12), rows=ROWS)
def test_answers_as_duckdb_does(expressions: list[Expression], rows: list[dict[str, Any]]) -> None:
    table = table_of(rows)
    pieces = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    for expression, duckdb_values in zip(expressions, duckdb_answers(expressions, table), strict=True):
        ours = evaluate(expression, table.to_batches()[0], SCHEMA)
        assert isinstance(ours, pa.Array) and ours.type == arrow_type(type_of(expression, SCHEMA))
        chunked = evaluate(expression, pieces, SCHEMA)
        assert isinstance(chunked, pa.ChunkedArray) and chunked.type == ours.type
        for left, middle, right in zip(ours.to_pylist(), chunked.to_pylist(), duckdb_values, strict=True):
            assert same(left, right) and same(middle, right), (left, middle, right, sql_of(expression))


# ------------------------------------------------------------------------------------------ corner cases
def values_of(expression: Expression, type: Type, *values: Any) -> list[Any]:
    batch = pa.record_batch({"c": pa.array(values, arrow_type(type))})
    return list(evaluate(expression, batch, {"c": type}).to_pylist())


C = Column("c")


def test_nan_equals_nan_and_is_greatest_and_zero_has_no_sign() -> None:
    doubles = (math.nan, math.inf, -0.0, 0.0, None)
    nan = Call("/", (Call("-", (C, C)), Literal(1.0, DOUBLE)))  # NaN where c is NaN or infinite
    assert values_of(Call("=", (C, nan)), DOUBLE, *doubles) == [True, False, True, True, None]
    assert values_of(Call(">", (nan, Literal(math.inf, DOUBLE))), DOUBLE, *doubles) == [
        True,
        True,
        False,
        False,
        None,
    ]
    assert values_of(Call(">=", (C, C)), DOUBLE, *doubles) == [True, True, True, True, None]
    assert values_of(Call("in", (C, Literal(0.0, DOUBLE))), DOUBLE, *doubles) == [
        False,
        False,
        True,
        True,
        None,
    ]


def test_logic_and_membership_have_three_values() -> None:
    null, booleans = Literal(None, BOOLEAN), (True, False, None)
    assert values_of(Call("and", (C, null)), BOOLEAN, *booleans) == [None, False, None]
    assert values_of(Call("or", (C, null)), BOOLEAN, *booleans) == [True, None, None]
    assert values_of(Call("not", (C,)), BOOLEAN, *booleans) == [False, True, None]
    listed = Call("in", (C, exact_literal(1), Literal(None, LONG)))
    assert values_of(listed, LONG, 1, 2, None) == [True, None, None]
    assert values_of(Call("in", (C, exact_literal(1))), LONG, 1, 2, None) == [True, False, None]


def test_integers_beyond_64_bits_are_exact() -> None:
    largest, least = 2**63 - 1, -(2**63)
    assert values_of(Call("*", (C, C)), LONG, largest, least) == [Decimal(largest**2), Decimal(least**2)]
    assert values_of(Call("+", (C, exact_literal(1))), LONG, largest) == [Decimal(2**63)]
    assert values_of(Call("neg", (C,)), LONG, least) == [Decimal(2**63)]
    assert values_of(Call("abs", (C,)), LONG, least) == [Decimal(2**63)]


def test_exact_numbers_compare_exactly_where_doubles_would_not() -> None:
    half = exact_literal(Decimal("9007199254740993.5"))
    assert values_of(Call("<", (C, half)), LONG, 2**53 + 1, 2**53 + 2) == [True, False]
    wide, tiny = decimal(38, 0), Literal(Decimal("1E-38"), decimal(38, 38))
    assert values_of(Call(">", (C, tiny)), wide, Decimal("9" * 38), Decimal(0)) == [True, False]


def test_decimals_meet_doubles_at_the_nearest_double() -> None:
    hundredths = [Decimal(n) / 100 for n in range(-999, 1000)]
    doubles = values_of(Call("*", (C, Literal(1.0, DOUBLE))), decimal(5, 2), *hundredths)
    assert doubles == [float(value) for value in hundredths]
    wide = [Decimal("0.12345678901234567890123456789"), Decimal("-98765432.10987654321098765432109"), None]
    doubles = values_of(Call("*", (C, Literal(1.0, DOUBLE))), decimal(38, 29), *wide)
    assert doubles == [None if value is None else float(value) for value in wide]


def test_a_sliced_batch_reads_its_own_rows() -> None:
    batch = pa.record_batch({"c": pa.array([Decimal(1), Decimal(2), None, Decimal(4)], pa.decimal128(5, 2))})
    quotients = evaluate(Call("/", (C, exact_literal(2))), batch.slice(1, 3), {"c": decimal(5, 2)})
    assert quotients.to_pylist() == [1.0, None, 2.0]


def test_division_by_zero_is_null() -> None:
    assert values_of(Call("/", (exact_literal(1), C)), DOUBLE, 0.0, -0.0, 4.0, None) == [
        None,
        None,
        0.25,
        None,
    ]
    assert values_of(Call("/", (C, C)), INT, 0, 3) == [None, 1.0]


def test_case_follows_unicode() -> None:
    assert values_of(Call("upper", (C,)), STRING, "straße", "é", None) == ["STRASSE", "É", None]
    assert values_of(Call("lower", (C,)), STRING, "ΑΣ", "ABC") == ["ας", "abc"]


def test_dates_compare_with_timestamps_as_midnight_utc() -> None:
    noon = Literal(12 * 3600 * 10**6, TIMESTAMP)
    days = (datetime.date(1970, 1, 1), datetime.date(1970, 1, 2), None)
    assert values_of(Call("<", (C, noon)), DATE, *days) == [True, False, None]


@pytest.mark.parametrize("rows", [0, 3])
def test_a_constant_has_a_value_for_each_row(rows: int) -> None:
    batch = pa.record_batch({"c": pa.array([None] * rows, pa.int64())})
    expression = Call("=", (Literal("a", STRING), Literal("a", STRING)))
    assert evaluate(expression, batch, {"c": LONG}).to_pylist() == [True] * rows
    table = pa.Table.from_batches([batch], batch.schema)
    assert evaluate(expression, table, {"c": LONG}).to_pylist() == [True] * rows
