"""Typing of expressions: exact arithmetic can never overflow, everything else is refused with a code."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.expression import FUNCTIONS, call_type, exact_literal, moment, negated, number, type_of
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

SCHEMA = {
    "i": INT,
    "l": LONG,
    "x": DOUBLE,
    "m": decimal(10, 2),
    "s": STRING,
    "b": BOOLEAN,
    "d": DATE,
    "ts": TIMESTAMP,
}


def typed(name: str, *arguments: str | Literal) -> Type:
    values: list[Expression] = [Column(a) if isinstance(a, str) else a for a in arguments]
    return type_of(Call(name, tuple(values)), SCHEMA)


def code_of(name: str, *arguments: str | Literal) -> str:
    with pytest.raises(HeddleError) as caught:
        typed(name, *arguments)
    return caught.value.diagnostic.code


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (("+", "i", "i"), Type("long", 11)),
        (("+", "l", exact_literal(1)), decimal(20, 0)),
        (("*", "i", exact_literal(100)), Type("long", 13)),
        (("*", "l", "l"), decimal(38, 0)),
        (("*", "m", "m"), decimal(21, 4)),
        (("+", "m", "i"), decimal(13, 2)),
        (("-", "m", "x"), DOUBLE),
        (("/", "i", "i"), DOUBLE),
        (("/", "m", "m"), DOUBLE),
        (("neg", "i"), INT),
        (("abs", "l"), decimal(19, 0)),
        (("coalesce", "m", "l"), decimal(21, 2)),
        (("coalesce", "i", exact_literal(0)), INT),
        (("=", "l", "x"), BOOLEAN),
        (("<", "d", "ts"), BOOLEAN),
        (("in", "s", Literal("a", STRING)), BOOLEAN),
        (("upper", "s"), STRING),
    ],
)
def test_types(call: tuple[str, ...], expected: Type) -> None:
    assert typed(*call) == expected


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (("=", "s", "l"), "HDL-203"),
        (("=", "s", "d"), "HDL-203"),
        (("=", "b", exact_literal(1)), "HDL-203"),
        (("and", "b", "i"), "HDL-203"),
        (("+", "s", "i"), "HDL-203"),
        (("+", "d", "i"), "HDL-203"),
        (("lower", "i"), "HDL-203"),
        (("coalesce", "s", "i"), "HDL-203"),
        (("in", "i", "l"), "HDL-203"),
        (("like", "s", "s"), "HDL-203"),
        (("like", "s", Literal("a\\b", STRING)), "HDL-110"),
        (("like", "s", Literal("a\\\\\\", STRING)), "HDL-110"),
        (("*", "l", "m"), None),
        (("*", "l", Literal(Decimal("1E-30"), decimal(30, 30))), "HDL-211"),
        (("=", "missing", "i"), "HDL-202"),
        (("reflect", "s"), "HDL-104"),
        (("abs", "i", "i"), "HDL-104"),
    ],
)
def test_refusals_have_codes(call: tuple[str, ...], code: str | None) -> None:
    if code is None:
        assert typed(*call) == decimal(30, 2)
    else:
        assert code_of(*call) == code


def extremes(type: Type) -> tuple[Decimal | int, Decimal | int]:
    """Least and greatest value that a column of a type can hold."""
    if type.name == "long":
        widths = {3: 8, 5: 16, 10: 32, 19: 64}
        bits = widths.get(type.digits)
        return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if bits else (1 - 10**type.digits, 10**type.digits - 1)
    largest = Decimal(10**type.precision - 1).scaleb(-type.scale)
    return largest.copy_negate(), largest


EXACT = st.one_of(
    st.sampled_from([Type("long", d) for d in (1, 3, 5, 10, 18, 19)]),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: decimal(p, s))),
)


@given(name=st.sampled_from("+-*"), left=EXACT, right=EXACT)
def test_extreme_operands_fit_the_result_type(name: str, left: Type, right: Type) -> None:
    try:
        result = call_type(name, [left, right], [Column("a"), Column("b")])
    except HeddleError as error:
        assert error.diagnostic.code == "HDL-211" and error.diagnostic.hint
        return
    low, high = extremes(result) if result.name == "decimal" else (-(2**63), 2**63 - 1)
    from fractions import Fraction

    for a in map(Fraction, extremes(left)):
        for b in map(Fraction, extremes(right)):
            value = {"+": a + b, "-": a - b, "*": a * b}[name]
            assert Fraction(low) <= value <= Fraction(high)
            assert (value * 10**result.scale).denominator == 1


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("5", Literal(5, Type("long", 1))),
        ("9223372036854775807", Literal(2**63 - 1, LONG)),
        ("9223372036854775808", Literal(Decimal(2**63), decimal(19, 0))),
        ("2.50", Literal(Decimal("2.50"), decimal(3, 2))),
        (".05", Literal(Decimal("0.05"), decimal(2, 2))),
        ("1e3", Literal(1000.0, DOUBLE)),
    ],
)
def test_numbers_are_typed_as_spark_types_them(text: str, literal: Literal) -> None:
    assert number(text) == literal


def test_numbers_out_of_range_are_refused() -> None:
    for text, code in (("1e400", "HDL-305"), ("1" * 39, "HDL-305"), ("0x1", "HDL-110"), ("1e", "HDL-110")):
        with pytest.raises(HeddleError) as caught:
            number(text)
        assert caught.value.diagnostic.code == code


def test_the_least_long_is_a_long_again_once_negated() -> None:
    assert negated(number("9223372036854775808")) == Literal(-(2**63), LONG)
    digits = "1234567890123456789012345678901234567.8"
    assert str(negated(number(digits)).value) == "-" + digits


@pytest.mark.parametrize(
    ("text", "type", "value"),
    [
        ("2013-07-04", DATE, "2013-07-04"),
        ("1970-01-02", TIMESTAMP, 86_400_000_000),
        ("1970-01-01 00:00:01.5", TIMESTAMP, 1_500_000),
        ("1970-01-01T02:00:00+02:00", TIMESTAMP, 0),
        ("1969-12-31T23:59:59Z", TIMESTAMP, -1_000_000),
    ],
)
def test_moments(text: str, type: Type, value: object) -> None:
    assert moment(text, type) == Literal(value, type)


@pytest.mark.parametrize("text", ["", "2013-02-30", "2013-1-1", "yesterday", "2013-01-01 25:00", "0000-01-01"])
def test_bad_moments_say_how_to_write_them(text: str) -> None:
    for type in (DATE, TIMESTAMP):
        with pytest.raises(HeddleError) as caught:
            moment(text, type)
        assert caught.value.diagnostic.code == "HDL-110" and "2013-07-04" in caught.value.diagnostic.hint


def test_the_registry_names_its_own_functions() -> None:
    assert all(name == function.name and function.meaning for name, function in FUNCTIONS.items())
    assert not {"reflect", "java_method", "uuid", "rand", "now", "current_timestamp"} & set(FUNCTIONS)
