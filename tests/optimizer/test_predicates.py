"""Normal forms pass the tuples that the filters pass; what a part implies or excludes never claims too much."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.parser import parse
from optimizer.workload.expression import exact_literal, type_of
from optimizer.workload.predicates import normal
from optimizer.workload.values import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    Call,
    Column,
    Expression,
    Literal,
    Source,
    Stream,
    Type,
    decimal,
    from_json,
    to_json,
)
from spark_jobs.streams.sources.expressions import arrow_type, evaluate
from tests.sizes import examples
from tests.workloads import TYPES, events, filters

SCHEMA: dict[str, Type] = {
    "tiny": BYTE,
    "n": LONG,
    "x": DOUBLE,
    "y": DOUBLE,
    "fee": decimal(5, 2),
    "wide": decimal(38, 10),
    "s": STRING,
    "t": STRING,
    "b": BOOLEAN,
    "c": BOOLEAN,
    "day": DATE,
    "at": TIMESTAMP,
}
DAY = 86_400_000_000
BIG = 2**53
POOLS: dict[str, list[Any]] = {
    "tiny": [-128, -1, 0, 1, 2, 3, 4, 5, 6, 7, 127],
    "n": [-(2**63), -1, 0, 1, 2, 3, 4, 5, 6, 7, BIG - 1, BIG, BIG + 1, BIG + 2, BIG + 3, 2**63 - 2, 2**63 - 1],
    "x": [math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 0.1, 0.5, 1.0, 2.0, 2.5, 3.0, float(BIG), -2.0, 1e300],
    "fee": [Decimal(text) for text in ("-999.99", "-0.01", "0.00", "0.10", "0.50", "1.00", "2.50", "3.00", "999.99")],
    "wide": [Decimal(text) for text in ("0", "0.1", "1", "2.5000000001", "2.5", "3", "9007199254740993", "1E+27")],
    "s": ["", "a", "ab", "abc", "ab\0", "ac", "b", "B", "%", "a%", "a_", "a\\", "é", "a\nb", "a\ud7ff", "a\U0010ffff"],
    "b": [True, False],
    "day": [datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date(1970, 1, 2)],
    "at": [-DAY, -DAY + 1, -1, 0, 1, DAY - 1, DAY, DAY + 1],
}
POOLS |= {"y": POOLS["x"], "t": POOLS["s"], "c": POOLS["b"]}
KINDS = (("tiny", "n", "x", "y", "fee", "wide"), ("s", "t"), ("b", "c"), ("day", "at"))
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


# ------------------------------------------------------------------------------------------ generators
def literal(name: str, value: Any) -> Literal:
    type = SCHEMA[name]
    if value is None:
        return Literal(None, type)
    if type.is_exact:
        return exact_literal(value)
    return Literal(value.isoformat() if type == DATE else value, type)


def literals(names: tuple[str, ...]) -> st.SearchStrategy[Literal]:
    """Constants that compare with these columns: of all of their types, sometimes null."""
    name = st.sampled_from(names)
    return name.flatmap(
        lambda name: st.sampled_from([*POOLS[name], *POOLS[name], None]).map(lambda v: literal(name, v))
    )


def call(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Expression]:
    return st.tuples(*arguments).map(lambda drawn_arguments: Call(name, drawn_arguments))


def typed(expression: Expression) -> bool:
    try:
        type_of(expression, SCHEMA)
    except HeddleError:
        return False
    return True


TARGET = st.sampled_from([Literal(name, STRING) for name in ("byte", "long", "double", "decimal(5,1)")])
CALLED = st.sampled_from(
    [
        *(Literal(value, BOOLEAN) for value in (True, False, None)),
        *(Column("b"), Call("not", (Column("c"),)), Call("<", (Column("n"), exact_literal(3)))),
        Call("is_null", (Column("s"),)),
        Call("regexp_like", (Column("s"), Literal("^a", STRING))),
    ]
)
"""Conditions inside values."""


def columns_of_kind(names: tuple[str, ...]) -> st.SearchStrategy[Expression]:
    return st.sampled_from([Column(name) for name in names])


def values(names: tuple[str, ...]) -> st.SearchStrategy[Expression]:
    """Columns mostly, and what can be computed of them."""
    columns = st.sampled_from([Column(name) for name in names])
    strategies = [columns, columns, columns, columns, call("coalesce", columns, literals(names))]
    if names == KINDS[0]:
        strategies += [call(name, columns, st.one_of(columns, literals(names))) for name in "+-*/"]
        strategies += [call("mod", columns, columns), call("greatest", columns, columns), call("floor", columns)]
        strategies += [call("if", CALLED, columns, columns), call("cast", columns, TARGET), call("ln", columns)]
        strategies += [call("neg", columns), call("*", literals(names), literals(names)), call("abs", literals(names))]
    if names == KINDS[1]:
        strategies += [call("lower", columns), call("if", CALLED, columns, columns), call("concat", columns, columns)]
    return st.one_of(strategies).filter(typed)


PATTERN = st.lists(
    st.sampled_from(["a", "b", "B", "%", "_", "\\%", "\\\\", "é", "\n", "\ud7ff", "\U0010ffff"]), max_size=4
).map("".join)


def predicates(names: tuple[str, ...]) -> st.SearchStrategy[Expression]:
    operand, constant = values(names), literals(names)
    strategies = [
        *(call(name, operand, constant) for name in COMPARISONS),
        call("<=", constant, operand),
        st.tuples(st.sampled_from(COMPARISONS), operand, operand).map(lambda p: Call(p[0], p[1:])),
        call("=", constant, constant),
        st.tuples(operand, st.lists(constant, min_size=1, max_size=4)).map(lambda p: Call("in", (p[0], *p[1]))),
        call("is_null", operand),
    ]
    if names == KINDS[1]:
        strategies += [call("like", operand, PATTERN.map(lambda text: Literal(text, STRING)))] * 3
    if names == KINDS[2]:
        strategies += [call("if", CALLED, columns_of_kind(names), operand), call("if", operand, operand, operand)]
        strategies += [operand, st.sampled_from([Literal(value, BOOLEAN) for value in (True, False, None)])]
    return st.one_of(strategies).filter(typed)


def conditions(kinds: tuple[tuple[str, ...], ...] = KINDS, most: int = 5) -> st.SearchStrategy[Expression]:
    truths = st.sampled_from([Literal(True, BOOLEAN), Literal(False, BOOLEAN), Column("b")])
    return st.recursive(
        st.one_of([predicates(names) for names in kinds]),
        lambda inner: st.one_of(
            call("not", inner),
            *(
                st.lists(inner, min_size=2, max_size=3).map(lambda parts, name=name: Call(name, tuple(parts)))
                for name in ("and", "or", "and", "or")
            ),
            call("is_null", inner),
            call("=", inner, truths),
            call("coalesce", inner, inner),
        ),
        max_leaves=most,
    )


@st.composite
def rows(draw: st.DrawFn) -> pa.RecordBatch:
    """Events of values that the constants are made of, with nulls; many, because only few meet a filter's edge."""
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = {}
    for name, type in SCHEMA.items():
        pool = [*POOLS[name], None]
        columns[name] = pa.array([pool[index] for index in chance.integers(0, len(pool), 200)], arrow_type(type))
    return pa.record_batch(columns)


def passes(filter: Expression | None, tuples: pa.RecordBatch, schema: dict[str, Type] = SCHEMA) -> NDArray[np.bool_]:
    if filter is None:
        return np.ones(tuples.num_rows, bool)
    passed = pc.fill_null(evaluate(filter, tuples, schema), False)
    return np.asarray(passed.to_numpy(zero_copy_only=False), bool)


# ------------------------------------------------------------------------------------------- soundness
generated = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))


@generated
@given(filter=conditions(), tuples=rows())
def test_a_normal_form_passes_the_same_tuples_and_is_its_own(filter: Expression, tuples: pa.RecordBatch) -> None:
    form = normal(filter, SCHEMA)
    assert (passes(filter, tuples) == passes(form, tuples)).all(), form
    assert normal(form, SCHEMA) == form
    # NaN is not equal to itself
    assert from_json(to_json(form)) == form or "nan" in repr(form)


@generated
@given(filter=filters(), table=events(0, 10**7, 10**6))
def test_filters_of_workloads_keep_their_answers(filter: Expression | None, table: pa.Table) -> None:
    columns = {name: table[name].combine_chunks().cast(arrow_type(type)) for name, type in TYPES.items()}
    batch = pa.record_batch(columns)
    assert (passes(filter, batch, TYPES) == passes(normal(filter, TYPES), batch, TYPES)).all()


# few columns and constants, so that filters have much to do with each other
NARROW = (("n", "x"), ("s",), ("b",))


@generated
@given(p=conditions(NARROW, 4), q=conditions(NARROW, 4), tuples=rows())
def test_parts_imply_and_exclude_no_more_than_is_so(p: Expression, q: Expression, tuples: pa.RecordBatch) -> None:
    passes_p, passes_q = passes(p, tuples), passes(q, tuples)
    assert (passes(normal(Call("and", (p, q)), SCHEMA), tuples) == (passes_p & passes_q)).all()
    assert (passes(normal(Call("or", (p, q)), SCHEMA), tuples) == (passes_p | passes_q)).all()
    assert normal(Call("and", (p, p)), SCHEMA) == normal(Call("or", (p, p)), SCHEMA) == normal(p, SCHEMA)


# ------------------------------------------------------------------------------------------------ power
STREAM = Stream("e", Source("csv", "e.csv"), (("ts", TIMESTAMP), *SCHEMA.items()), "ts")


def sql(condition: str) -> Expression | None:
    """A condition as it is written: the parser gives only filters their normal form."""
    result = parse(f"SELECT max({condition}) AS m FROM e WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts", {"e": STREAM})
    assert not result.errors, result.errors
    return result.queries[0].outputs[0].argument


def form(condition: str) -> Expression | None:
    return normal(sql(condition), SCHEMA)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("n > 3 AND s = 'a'", "'a' = s AND 3 < n AND n > 3"),
        ("n > 3 AND n > 5", "n > 5"),
        ("n > 3 AND n >= 4", "NOT n < 4"),
        ("n > 3 OR n > 5", "n >= 4"),
        ("n = 5", "n = 5.0"),
        ("n = 5", "n = 5e0"),
        ("n = 5", "n IN (5)"),
        ("n > 4.5", "n >= 5"),
        ("n > 4.5e0", "n >= 5"),
        ("n < 9007199254740993e0", "n < 9007199254740992"),
        ("n <= 9007199254740992e0", "n < 9007199254740994"),
        ("fee > 0.104", "fee >= 0.11"),
        ("fee > 0.1", "fee > 0.10"),
        ("fee > 0.1e0", "fee > 0.1"),
        ("x > 2.50", "x > 25e-1"),
        ("x < 1e0 OR x >= 1", "x IS NOT NULL"),
        ("n IN (3, 1, 1, 2.0, NULL)", "n = 2 OR n IN (1, 3)"),
        ("n IN (1, 2, 3)", "n BETWEEN 1 AND 3 AND n != 0.5"),
        ("NOT n IN (1, 2)", "n != 2 AND n <> 1"),
        ("NOT (n > 3 AND s = 'a')", "s != 'a' OR n <= 3"),
        ("NOT NOT (n > 3 OR s = 'a')", "s = 'a' OR n > 3"),
        ("n = 3 OR (n IN (3, 4) AND n < 4)", "n = 3"),
        ("b = TRUE", "b"),
        ("NOT b", "b < TRUE"),
        ("(n > 3) = FALSE", "n <= 3"),
        ("(n > 3) IS NULL", "n IS NULL"),
        ("n + tiny IS NOT NULL", "tiny IS NOT NULL AND n IS NOT NULL"),
        ("n = n", "n IS NOT NULL"),
        ("n < tiny OR n = tiny", "tiny >= n"),
        ("NOT n < tiny AND n != tiny", "tiny < n"),
        ("n + tiny > 60 * 2", "tiny + n > 120"),
        ("fee > 0.5 * 3", "fee > 1.5"),
        ("day >= '1970-01-02'", "day > '1970-01-01'"),
        ("day > TIMESTAMP '1970-01-01 12:00:00'", "day >= '1970-01-02'"),
        ("at < DATE '1970-01-02'", "at < '1970-01-02 00:00:00'"),
        ("s LIKE 'ab%'", "s LIKE 'ab%%' AND s >= 'a'"),
        ("s LIKE 'ab'", "s = 'ab'"),
        ("s LIKE '%'", "s IS NOT NULL"),
        ("s LIKE '\\%%' OR s LIKE '\\%a%'", "s >= '%' AND s < '&'"),
        ("n > 3 OR (n > 5 AND s = 'a')", "n > 3"),
        ("n > 3 AND (n > 1 OR s = 'a')", "n > 3"),
        ("n > 3 AND (n < 1 OR s = 'a')", "n > 3 AND s = 'a'"),
        ("n > 3 AND n IS NOT NULL AND TRUE", "n > 3"),
        ("n + tiny > 3 AND n IS NOT NULL", "n + tiny > 3"),
        ("(n > 3 AND s = 'a') AND b", "n > 3 AND (s = 'a' AND b)"),
    ],
)
def test_filters_that_differ_in_writing_have_one_normal_form(one: str, other: str) -> None:
    assert form(one) == form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("n > 3", "n > 4"),
        ("n = 9007199254740993", "n = 9007199254740993e0"),
        ("x > 3", "x >= 3"),
        ("x > 1e300", "x > 1e301"),
        ("s = 'a'", "s = 'A'"),
        ("s LIKE 'a_'", "s LIKE 'a%'"),
        ("n NOT IN (1, 2)", "NOT n IN (1, 2, NULL)"),
        ("coalesce(n, 0) < 3", "n < 3"),
        ("n != 3", "n != 3 OR n IS NULL"),
        ("b", "b IS NOT NULL"),
        ("n / tiny IS NULL", "n IS NULL OR tiny IS NULL"),
        ("(n IN (1, NULL)) IS NULL", "TRUE"),
        ("n - tiny > 3", "tiny - n > 3"),
        ("n / tiny > 3", "tiny / n > 3"),
    ],
)
def test_filters_that_differ_in_meaning_keep_apart(one: str, other: str) -> None:
    assert form(one) != form(other)


@pytest.mark.parametrize(
    "condition",
    ["n > 3 AND n < 4", "n = NULL", "s = 'a' AND s = 'b'", "n NOT IN (1, NULL)", "n > 3 AND n IS NULL", "n != n"]
    + ["tiny > 1000", "n = 0.5", "fee = 0.001", "FALSE", "1 > 2", "b AND NOT b", "s LIKE 'a%' AND s LIKE 'b%_'"]
    + ["NULL NOT IN ('a')", "NULL NOT LIKE 'a%'", "NOT (b AND NULL) AND b"]
    + ["x > 3 AND (x < 1 OR (b AND x = 2))", "n + tiny > 3 AND tiny IS NULL", "x < tiny AND tiny <= x"],
)
def test_contradictions_are_filters_too(condition: str) -> None:
    assert form(condition) == Literal(False, BOOLEAN)


@pytest.mark.parametrize("condition", ["TRUE", "n IS NULL OR n IS NOT NULL", "NOT 1 > 2", "n > 3 OR 1 = 1.0"])
def test_what_is_always_true_is_no_filter(condition: str) -> None:
    assert form(condition) is None


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("10 > n AND 5 < n", "n > 5 AND n < 10"),
        ("n BETWEEN 15 AND 20", "n >= 15 AND n <= 20"),
        ("n >= 15", "n >= 15"),
        ("x > 0.1", "x > 0.1e0"),
        ("x >= 0.1", "x >= 0.1e0"),
        ("s != 'a'", "s != 'a'"),
        ("s NOT IN ('b', 'a')", "NOT s IN ('a', 'b')"),
        ("s LIKE 'ab%'", "s LIKE 'ab%'"),
        ("s LIKE 'a\\_b%%'", "s LIKE 'a\\_b%'"),
        ("NOT b", "NOT b"),
        ("day >= '1970-01-02'", "day >= '1970-01-02'"),
        ("day <= '9999-12-31'", "day <= '9999-12-31'"),
        ("day < '0001-01-01'", "day < '0001-01-01'"),
        ("n IS NULL OR n = 3", "n = 3 OR n IS NULL"),
        ("n > 5 AND (n = 7 OR n = 9 OR n > 100)", "n IN (7, 9) OR n > 100"),
    ],
)
def test_normal_forms_are_written_as_a_person_would(condition: str, expected: str) -> None:
    assert form(condition) == sql(expected)


def test_what_does_not_begin_so_is_compared_with_a_valid_string() -> None:
    tuples = pa.record_batch({"s": pa.array(["a\ud7ff", "a\ud7ffb", "a\ue000", "a\U0010ffff", "b", "a"])})
    for prefix, expected in (("a\ud7ff", "001111"), ("a\U0010ffff", "111011"), ("\U0010ffff", "111111")):
        outside = Call("not", (Call("like", (Column("s"), Literal(prefix + "%", STRING))),))
        assert passes(normal(outside, SCHEMA), tuples).tolist() == [digit == "1" for digit in expected]


def test_nan_is_the_greatest_and_never_written() -> None:
    greatest = Call(">", (Column("x"), Literal(math.inf, DOUBLE)))
    for name in ("=", ">="):
        assert normal(Call(name, (Column("x"), Literal(float("nan"), DOUBLE))), SCHEMA) == greatest
    below = Call("<", (Column("x"), Literal(float("nan"), DOUBLE)))
    assert normal(below, SCHEMA) == Call("<=", (Column("x"), Literal(math.inf, DOUBLE)))


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ("n > 5", "n > 3"),
        ("n > 5", "n != 5"),
        ("n = 5", "n IN (4, 5)"),
        ("n IN (4, 5)", "n BETWEEN 4 AND 6"),
        ("n > 5 AND s = 'a'", "s LIKE 'a%' AND n > 3"),
        ("n > 5 AND s = 'a'", "s LIKE 'a%' OR b"),
        ("n > 5", "n IS NOT NULL"),
        ("n + tiny > 5", "tiny IS NOT NULL"),
        ("n < tiny", "n <= tiny AND n IS NOT NULL"),
        ("s LIKE 'ab_c%'", "s LIKE 'a%'"),
        ("(n > 5 OR s = 'a') AND b", "b AND (s >= 'a' OR n > 3)"),
        ("FALSE", "n > 3"),
        ("n > 3", "TRUE"),
        ("day > '1970-01-02'", "day >= TIMESTAMP '1970-01-02 00:00:00'"),
    ],
)
def test_what_implies_what(p: str, q: str) -> None:
    assert form(f"({p}) AND ({q})") == form(p) != form(q)
    assert form(f"({p}) OR ({q})") == form(q)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ("n > 5", "n < 3"),
        ("s = 'a'", "s IN ('b', 'c')"),
        ("s LIKE 'a%' AND n > 5", "n IS NOT NULL AND s >= 'b'"),
        ("n > 5 AND b", "n IS NULL OR NOT b"),
        ("n < tiny", "n = tiny"),
        ("n + tiny = 3", "n IS NULL"),
    ],
)
def test_what_contradicts_what(p: str, q: str) -> None:
    never = Literal(False, BOOLEAN)
    assert form(f"({p}) AND ({q})") == form(f"({q}) AND ({p})") == never
    assert never not in (form(p), form(q))
