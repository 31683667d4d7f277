"""Functions of single values: ours answer as DuckDB and as Spark do, on generated expressions and rows."""

from __future__ import annotations

import datetime
import itertools
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.expression import exact_literal, type_of
from optimizer.workload.scalars import FIELDS, LENGTHS, SCALARS, UNITS
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
from spark_jobs.audit.unshared.columns import to_column
from spark_jobs.audit.unshared.duckdb_expressions import Translator
from spark_jobs.streams.sources.casts import _moment_texts, date_of
from spark_jobs.streams.sources.expressions import arrow_type, evaluate
from tests.oracle import _database, _plain
from tests.sizes import examples

SCHEMA: dict[str, Type] = {
    "i": INT,
    "l": LONG,
    "x": DOUBLE,
    "m": decimal(6, 2),
    "w": decimal(30, 10),
    "s": STRING,
    "c": STRING,
    "b": BOOLEAN,
    "d": DATE,
    "ts": TIMESTAMP,
}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
FORMATS = ("yyyy-MM-dd", "dd/MM/yyyy HH:mm", "yyyyMMdd'T'HHmmss", "yyyy-MM-dd HH:mm:ss.SSS")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe")
CASTABLE = (
    *("1", "-7", " 42 ", "+5", "1.5", "-2.505", "1e3", ".5", "5.", "9223372036854775808", "128", "0x10", "1d", "99999"),
    *("NaN", "true", "F", " yes", "0", "", " ", "2013-07-04", "2013-7-4", "2013-02-30", "2013", "2013-07-04T10:00"),
    *("2013-07-04 18:30:00", "2013-07-04 18:30:00.1234567Z", "2013-07-04 18:30:61", "2013-07-04 18:30:00+02:00"),
    *("04/07/2013 18:30", "20130704T183000", "0001-01-01", "9999-12-31 23:59:59.999999", "2013-07-04 24:00", "a\tb"),
    *("2013-07-04 18:30:00.123", "2013-02-29 18:30:00.000", "0000-01-01", "31/12/2013 23:59"),
)


def scaled(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**digits - 1
    return st.integers(-limit, limit).map(lambda n: Decimal(f"{n}E-{scale}"))


DOUBLES = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    2.5,
    0.125,
    2.675,
    math.nan,
    math.inf,
    -math.inf,
    1e300,
    3.0,
    -7.25,
    9.3e18,
    126.9,
]
TEXTS = st.text("aAb%_\\.\n- é", max_size=6)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.one_of(st.integers(-3, 3), st.integers(-(2**31), 2**31 - 1)),
    "l": st.one_of(st.integers(-3, 300), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1])),
    "x": st.one_of(st.sampled_from(DOUBLES), st.floats(-1e6, 1e6)),
    "m": st.one_of(st.integers(-3, 3).map(Decimal), scaled(6, 2)),
    "w": st.one_of(st.integers(-3, 3).map(Decimal), scaled(30, 10)),
    "s": TEXTS,
    "c": st.sampled_from(CASTABLE),
    "b": st.booleans(),
    "d": st.one_of(
        st.dates(datetime.date(1969, 12, 1), datetime.date(1970, 2, 1)),
        st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31)),
    ),
    "ts": st.one_of(
        st.integers(-(10**12), 10**12),
        st.integers(-60_000_000_000_000_000, 250_000_000_000_000_000),
        st.sampled_from([0, -1, 1_372_636_800_000_000]),
    ).map(lambda us: EPOCH + datetime.timedelta(microseconds=us)),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.one_of(st.none(), values, values, values) for name, values in VALUES.items()}),
    min_size=1,
    max_size=8,
)
MEASURES = ("i", "l", "x", "m", "w")
PATTERNS = ("a", "^a.*b$", "[^ab]+", "(a|b){2}", "\\.", "a?\\s-", "é|_", "")


# ------------------------------------------------------------------------------------------- generators
def typed(expression: Expression) -> bool:
    try:
        type_of(expression, SCHEMA)
    except HeddleError as error:
        assert error.diagnostic.code in ("HDL-203", "HDL-211")
        return False
    return True


def text(value: str) -> Literal:
    return Literal(value, STRING)


def call(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Expression]:
    return st.tuples(*arguments).map(lambda operands: Call(name, operands)).filter(typed)


def chosen(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


NUMBERS = st.one_of(
    chosen(*map(Column, MEASURES)),
    chosen(-2, 0, 1, 5, Decimal("2.50"), Decimal("0.1")).map(exact_literal),
    chosen(0.5, -2.0).map(lambda value: Literal(value, DOUBLE)),
)
TIMES = st.one_of(chosen(Column("d"), Column("ts")), chosen(Literal(0, TIMESTAMP), Literal("2013-07-04", DATE)))
# the clocks of zones are known from 1970 to 2200
CLOCKED = chosen(
    Call("least", (Call("greatest", (Column("ts"), Literal(0, TIMESTAMP))), Literal(7 * 10**15, TIMESTAMP)))
)
WORDS = st.one_of(chosen(Column("s"), Column("c"), Column("s")), TEXTS.map(text))
CONDITIONS = st.one_of(
    chosen(Column("b"), Literal(None, BOOLEAN)),
    call("<", NUMBERS, NUMBERS),
    call("is_null", chosen(*map(Column, SCHEMA))),
    call("regexp_like", WORDS, chosen(*map(text, PATTERNS))),
)
TARGETS = ("boolean", "byte", "short", "int", "long", "double", "string", "date", "timestamp", "decimal(5,1)")
PLACES = st.integers(-4, 4).filter(bool).map(exact_literal)
CASTS = call("cast", chosen(*map(Column, SCHEMA)), chosen(*TARGETS, "decimal(38,20)", "decimal(20,0)").map(text))
WHOLES = [call(name, NUMBERS) for name in ("floor", "ceil")] + [
    call("round", NUMBERS, st.integers(0, 3).map(exact_literal)),
    call("round", chosen(Column("i"), Column("l"), Column("m"), Column("w")), st.integers(-12, 3).map(exact_literal)),
]
ANGLES = ("sin", "cos", "asin")
FUNCTIONS: dict[str, st.SearchStrategy[Expression]] = {
    "if": st.one_of(
        call("if", CONDITIONS, NUMBERS, NUMBERS),
        call("if", CONDITIONS, WORDS, CONDITIONS, WORDS, WORDS),
        call("if", CONDITIONS, TIMES, TIMES),
        call("if", CONDITIONS, CONDITIONS, CONDITIONS),
    ),
    "cast": CASTS,
    "date_trunc": call("date_trunc", TIMES, chosen(*map(text, UNITS))),
    "date_part": call("date_part", TIMES, chosen(*map(text, FIELDS))),
    "time_diff": call("time_diff", TIMES, TIMES, chosen(*map(text, LENGTHS))),
    "at_zone": call("at_zone", CLOCKED, chosen(*map(text, ZONES))),
    "to_timestamp": call("to_timestamp", WORDS, chosen(*map(text, FORMATS))),
    "to_date": call("to_date", WORDS, chosen(*map(text, FORMATS))),
    "substring": st.one_of(call("substring", WORDS, PLACES), call("substring", WORDS, PLACES, PLACES)),
    "length": call("length", WORDS),
    "split_part": call("split_part", WORDS, chosen(text("a"), text("-"), text("ab")), PLACES),
    "concat": st.one_of(call("concat", WORDS, WORDS), call("concat", WORDS, WORDS, WORDS)),
    **{name: call(name, WORDS) for name in ("trim", "ltrim", "rtrim")},
    "replace": call("replace", WORDS, chosen(text("a"), text("-"), text(" ")), chosen(text(""), text("aa"))),
    "regexp_like": call("regexp_like", WORDS, chosen(*map(text, PATTERNS))),
    "round": st.one_of(WHOLES[2:]),
    "floor": WHOLES[0],
    "ceil": WHOLES[1],
    **{name: call(name, NUMBERS) for name in ("sqrt", *ANGLES, "ln", "exp")},
    "power": call("power", NUMBERS, NUMBERS),
    "mod": call("mod", NUMBERS, NUMBERS),
    **{
        name: st.one_of(call(name, NUMBERS, NUMBERS), call(name, WORDS, WORDS, WORDS), call(name, TIMES, TIMES))
        for name in ("greatest", "least")
    },
}
REAL = ("ln", "exp", "power", *ANGLES)
"""What engines compute with libraries that differ in the last place."""


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({name: pa.array([row[name] for row in rows], arrow_type(type)) for name, type in SCHEMA.items()})


def same(ours: Any, theirs: Any, near: bool = False) -> bool:
    if isinstance(ours, float) and isinstance(theirs, (float, Decimal)):
        theirs = float(theirs)
        if math.isnan(ours) or math.isnan(theirs):
            return math.isnan(ours) and math.isnan(theirs)
        return ours == theirs or (near and math.isclose(ours, theirs, rel_tol=1e-14))
    return bool(ours == theirs)


def plain(value: Any) -> Any:
    return (value - EPOCH) // datetime.timedelta(microseconds=1) if isinstance(value, datetime.datetime) else value


def ours(expression: Expression, table: pa.Table) -> list[Any]:
    evaluated = evaluate(expression, table.combine_chunks().to_batches()[0], SCHEMA)
    assert evaluated.type == arrow_type(type_of(expression, SCHEMA)), expression
    split = evaluate(expression, pa.concat_tables([table.slice(0, 1), table.slice(1)]), SCHEMA)
    assert repr(split.to_pylist()) == repr(evaluated.to_pylist())
    return [plain(value) for value in evaluated.to_pylist()]


def in_duckdb(expressions: list[Expression], table: pa.Table) -> list[tuple[Any, ...]]:
    translate, connection = Translator(table.schema), _database()
    connection.register("scalars", _plain(table))
    rows = connection.execute(
        f"SELECT {', '.join(translate(expression)[0] for expression in expressions)} FROM scalars"
    ).fetchall()
    connection.unregister("scalars")
    return list(zip(*rows, strict=True))


def in_spark(spark: SparkSession, expressions: list[Expression], table: pa.Table) -> list[tuple[Any, ...]]:
    frame = spark.createDataFrame(table)
    columns = [to_column(expression, SCHEMA).alias(f"c{number}") for number, expression in enumerate(expressions)]
    spark_table = frame.coalesce(1).select(columns).toArrow()
    return [tuple(plain(value) for value in column.to_pylist()) for column in spark_table.columns]


def test_every_function_is_generated() -> None:
    assert set(FUNCTIONS) == {function.name for function in SCALARS}


SEVERAL_ROWS = st.lists(ROWS, min_size=8, max_size=8).map(lambda parts: [row for part in parts for row in part])


def special_values() -> tuple[list[Expression], pa.Table]:
    """Doubles beside one another, all pairs and nulls; texts in all formats."""
    texts = itertools.cycle(CASTABLE)
    rows = [
        dict.fromkeys(SCHEMA) | {"x": x, "w": w, "c": next(texts)}
        for x, w in itertools.product([None, *DOUBLES], [None, *map(Decimal, ("0", "1", "-1", "-3", "2.5"))])
    ]
    numbers, formats = ("x", "w"), [text(value) for value in FORMATS]
    expressions = [Call(name, (Column(a), Column(b))) for name in ("power", "mod") for a in numbers for b in numbers]
    expressions += [Call(name, (Column("c"), form)) for name in ("to_timestamp", "to_date") for form in formats]
    return [
        *expressions,
        *(Call(name, (Column(of),)) for name in ("sqrt", *ANGLES, "ln", "exp") for of in numbers),
    ], table_of(rows)


def test_special_values_as_duckdb_has_them() -> None:
    every, table = special_values()
    for expression, duckdb_values in zip(every, in_duckdb(every, table), strict=True):
        for row, left, right in zip(table.to_pylist(), ours(expression, table), duckdb_values, strict=True):
            assert same(left, right, expression.function in REAL), (left, right, expression, row)


def test_special_values_as_spark_has_them(spark: SparkSession) -> None:
    every, table = special_values()
    for expression, spark_values in zip(every, in_spark(spark, every, table), strict=True):
        for row, left, right in zip(table.to_pylist(), ours(expression, table), spark_values, strict=True):
            assert same(left, right, expression.function in REAL), (left, right, expression, row)


@settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.tuples(*(st.lists(FUNCTIONS[name], min_size=4, max_size=4) for name in sorted(FUNCTIONS))), SEVERAL_ROWS)
def test_answers_as_duckdb_does(expressions: tuple[list[Expression], ...], rows: list[dict[str, Any]]) -> None:
    every, table = [expression for part in expressions for expression in part], table_of(rows)
    for expression, duckdb_values in zip(every, in_duckdb(every, table), strict=True):
        for left, right in zip(ours(expression, table), duckdb_values, strict=True):
            assert same(left, right, expression.function in REAL), (left, right, expression, rows)


@settings(max_examples=examples(2), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    expressions=st.tuples(*(st.lists(FUNCTIONS[name], min_size=8, max_size=8) for name in sorted(FUNCTIONS))),
    rows=SEVERAL_ROWS,
)
def test_answers_as_spark_does(
    spark: SparkSession, expressions: tuple[list[Expression], ...], rows: list[dict[str, Any]]
) -> None:
    every, table = [expression for part in expressions for expression in part], table_of(rows)
    wrong = []
    for expression, spark_values in zip(every, in_spark(spark, every, table), strict=True):
        for row, left, right in zip(rows, ours(expression, table), spark_values, strict=True):
            if not same(left, right, expression.function in REAL):
                read = {
                    argument.name: row[argument.name]
                    for argument in expression.arguments
                    if isinstance(argument, Column)
                }
                wrong.append((left, right, expression, read))
    assert not wrong, "\n".join(map(repr, wrong[:40]))


# ------------------------------------------------------------------------------------------ corner cases
def value_of(expression: Expression, value: Any, type: Type) -> Any:
    batch = pa.record_batch({"c": pa.array([value], arrow_type(type))})
    return plain(evaluate(expression, batch, {"c": type}).to_pylist()[0])


C = Column("c")


@pytest.mark.parametrize(
    ("target", "value", "expected"),
    [
        ("int", " +12\t", 12),
        ("int", "1.5", None),
        ("int", "2147483648", None),
        ("byte", "-128", -128),
        ("long", "9223372036854775807", 2**63 - 1),
        ("double", "1d", None),
        ("double", "1e999", math.inf),
        ("double", "-Infinity", -math.inf),
        ("decimal(5,2)", "2.675", Decimal("2.68")),
        ("decimal(5,2)", "-0.005", Decimal("-0.01")),
        ("decimal(5,2)", "1e2", Decimal(100)),
        ("decimal(5,2)", "1e99999", None),
        ("decimal(5,2)", "1e-99999", Decimal(0)),
        ("decimal(5,2)", "999.995", None),
        ("boolean", " Yes ", True),
        ("boolean", "2", None),
        ("date", "2013-02-30", None),
        ("date", "2013-7-4 anything", datetime.date(2013, 7, 4)),
        ("timestamp", "2013-07-04 18:30:00.1234567", 1_372_962_600_123_456),
        ("timestamp", "2013-07-04T18:30+02:00", 1_372_955_400_000_000),
        ("timestamp", "2013-07-04 25:00", None),
        ("timestamp", "18:30", None),
        ("timestamp", "9999-12-31 23:59:59-18:00", None),
    ],
)
def test_texts_are_cast_or_null(target: str, value: str, expected: Any) -> None:
    cast_value = value_of(Call("cast", (C, text(target))), value, STRING)
    assert cast_value == expected


def test_numbers_are_cast_or_null() -> None:
    assert value_of(Call("cast", (C, text("long"))), 9.3e18, DOUBLE) is None
    assert value_of(Call("cast", (C, text("long"))), math.nan, DOUBLE) is None
    assert value_of(Call("cast", (C, text("int"))), -2.9, DOUBLE) == -2
    # by its shortest decimal, not by its binary value, which is less
    assert value_of(Call("cast", (C, text("decimal(5,2)"))), 2.675, DOUBLE) == Decimal("2.68")
    assert value_of(Call("cast", (C, text("string"))), Decimal("0.0000001"), decimal(10, 7)) == "0.0000001"
    assert value_of(Call("round", (C, exact_literal(2))), 2.675, DOUBLE) == 2.68
    assert value_of(Call("round", (C, exact_literal(-37))), 2**63 - 1, LONG) == 0
    assert value_of(Call("round", (C, exact_literal(-1))), Decimal("-95.5"), decimal(5, 1)) == -100


def test_a_date_without_month_or_day_is_the_first() -> None:
    texts = ("2013-07-04", "2013-07", "2013", "2013-02-30")
    assert [date_of(text) for text in texts] == [
        datetime.date(2013, 7, 4),
        datetime.date(2013, 7, 1),
        datetime.date(2013, 1, 1),
        None,
    ]


def test_texts_of_moments_reach_from_the_year_1_to_9999() -> None:
    first, last = datetime.date.min, datetime.date.max
    days = pa.array([(first - EPOCH.date()).days, (last - EPOCH.date()).days], pa.int32())
    beyond = pa.array([(first - EPOCH.date()).days - 1, (last - EPOCH.date()).days + 1], pa.int32())
    for numbers, texts in ((days, ["0001-01-01", "9999-12-31"]), (beyond, [None, None])):
        assert _moment_texts(numbers.cast(pa.date32()), DATE).to_pylist() == texts


@pytest.mark.parametrize("shape", ["(a+)+$", "(a|a)*b", "(.*a){12}b", "(a?){50}a{50}", ".*.*.*.*.*.*x"])
@pytest.mark.timeout(20)
def test_regular_expressions_take_linear_time(shape: str) -> None:
    expression = Call("regexp_like", (C, text(shape)))
    assert value_of(expression, "a" * 100_000 + "!", STRING) in (True, False)


def test_an_event_of_no_branch_is_null_and_a_null_condition_is_not_true() -> None:
    least = Call("if", (Call("<", (C, exact_literal(0))), text("less"), Literal(None, STRING)))
    assert [value_of(least, value, LONG) for value in (-1, 1, None)] == ["less", None, None]


@pytest.mark.parametrize("rows", [0, 2])
def test_constants_have_a_value_for_each_row(rows: int) -> None:
    batch = pa.record_batch({"c": pa.array(["a"] * rows, pa.string())})
    for expression in (
        Call("concat", (text("a"), text("b"))),
        Call("if", (Literal(True, BOOLEAN), text("ab"), C)),
        Call("substring", (text("xab"), exact_literal(2))),
        Call("greatest", (text("ab"), C)),
    ):
        assert evaluate(expression, batch, {"c": STRING}).to_pylist() == ["ab"] * rows
