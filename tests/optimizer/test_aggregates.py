"""The algebra: states are shared, and lowering gives the exact answer, null or a coded overflow."""

from __future__ import annotations

import math
import statistics
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.aggregates import (
    AGGREGATES,
    LIMB,
    ROWS,
    Lowered,
    State,
    carrier_of,
    decimal_texts,
    exact_total,
    two_product,
    two_sum,
)
from optimizer.query import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    Column,
    Type,
    decimal,
)

X = Column("x")
SIGNED = st.integers(-(2**63), 2**63 - 1)


def limbs(value: int, width: int) -> list[int]:
    """An integer in ``width`` limbs of 32 bits, the highest signed."""
    mask = (1 << LIMB) - 1
    return [(value >> (LIMB * i)) & mask for i in range(width - 1)] + [value >> (LIMB * (width - 1))]


def lowered(name: str, type: Type, values: list[Any]) -> Lowered:
    """One answer of an aggregate over exact values (unscaled integers for decimals)."""
    width = 4 if type.name == "decimal" and type.precision > 18 else 2
    squares = sum(value * value for value in values)
    states = {
        "count": np.array([len(values)], dtype=np.int64),
        "sum": np.array([limbs(sum(values), width)], dtype=np.int64),
        "total": np.array([double_double(Fraction(sum(values)))]),
        "sum_squares": np.array([double_double(Fraction(squares))]),
    }
    return AGGREGATES[name].lower(states, type)


def double_double(value: Fraction) -> list[float]:
    high = float(value)
    return [high, float(value - Fraction(high))]


# ------------------------------------------------------------------------------------------- sharing
def test_aggregates_of_one_argument_share_their_states() -> None:
    states = {name: set(AGGREGATES[name].states(X, DOUBLE)) for name in ("sum", "avg", "stddev", "count")}
    assert states["sum"] == states["avg"] < states["stddev"]
    assert states["count"] < states["sum"]
    assert AGGREGATES["count"].states(None, None) == (ROWS,)
    # of integers a variance keeps a sum of doubles as well, consistent with the squares of the same doubles
    assert [state.kind for state in AGGREGATES["stddev"].states(X, LONG)] == ["count", "total", "sum_squares"]
    # a count needs no type: count(x) beside max(x) of another type is still one column
    assert AGGREGATES["count"].states(X, STRING) == AGGREGATES["count"].states(X, LONG)


@pytest.mark.parametrize(
    "kind, type, carrier, width, operation",
    [
        ("sum", LONG, "longs", 2, "add"),
        ("sum", decimal(18, 2), "longs", 2, "add"),
        ("sum", decimal(19, 2), "longs", 4, "add"),
        ("sum", DOUBLE, "doubles", 2, "add_double"),
        ("sum_squares", LONG, "doubles", 2, "add_double"),
        ("min", DOUBLE, "doubles", 1, "min"),
        ("max", STRING, "texts", 1, "max"),
        ("min", decimal(9, 2), "texts", 1, "min"),
        ("max", BOOLEAN, "longs", 1, "max"),
        ("min", DATE, "longs", 1, "min"),
        ("min", TIMESTAMP, "longs", 1, "min"),
        ("count", None, "longs", 1, "add"),
    ],
)
def test_a_state_knows_its_columns(kind: str, type: Type | None, carrier: str, width: int, operation: str) -> None:
    state = State(kind, X, type)
    assert (state.carrier, state.width, state.operation) == (carrier, width, operation)


def test_only_exact_sums_and_counts_can_be_subtracted() -> None:
    assert AGGREGATES["sum"].subtractable(LONG) and AGGREGATES["avg"].subtractable(decimal(9, 2))
    assert not AGGREGATES["sum"].subtractable(DOUBLE)
    assert not AGGREGATES["max"].subtractable(LONG) and not AGGREGATES["stddev"].subtractable(LONG)


@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_types_that_do_not_apply_are_refused_with_a_reason(name: str) -> None:
    aggregate = AGGREGATES[name]
    if name == "count":
        assert aggregate.output_type(None) == LONG
        return
    with pytest.raises(TypeError, match=r"\(\*\) has no meaning"):
        aggregate.output_type(None)
    if name in ("min", "max"):
        assert aggregate.output_type(STRING) == STRING
    else:
        with pytest.raises(TypeError, match="needs a number, not string"):
            aggregate.output_type(STRING)


def test_output_types_are_sparks() -> None:
    assert AGGREGATES["sum"].output_type(INT) == LONG
    assert AGGREGATES["sum"].output_type(decimal(10, 2)) == decimal(20, 2)
    assert AGGREGATES["sum"].output_type(decimal(35, 2)) == decimal(38, 2)
    assert AGGREGATES["avg"].output_type(LONG) == DOUBLE
    assert AGGREGATES["avg"].output_type(decimal(10, 2)) == decimal(14, 6)
    # what Spark 4.2 itself gives
    assert AGGREGATES["avg"].output_type(decimal(38, 18)) == decimal(38, 22)
    assert AGGREGATES["avg"].output_type(decimal(38, 4)) == decimal(38, 8)
    assert AGGREGATES["stddev"].output_type(decimal(10, 2)) == DOUBLE
    assert carrier_of(decimal(9, 2)) == "texts"


# ----------------------------------------------------------------------------------------- exact sums
@given(st.lists(SIGNED, min_size=1, max_size=5))
def test_a_long_sum_is_exact_or_a_coded_overflow(values: list[int]) -> None:
    found = lowered("sum", LONG, values)
    assert found.overflow is not None
    if -(2**63) <= sum(values) < 2**63:
        assert (found.values[0], found.valid[0], found.overflow[0]) == (sum(values), True, False)
    else:
        assert (found.valid[0], found.overflow[0]) == (False, True)


@pytest.mark.parametrize("total, fits", [(2**63 - 1, True), (2**63, False), (-(2**63), True), (-(2**63) - 1, False)])
def test_the_last_sum_that_fits_and_the_first_that_does_not(total: int, fits: bool) -> None:
    found = lowered("sum", LONG, [total])
    assert found.overflow is not None
    assert (bool(found.valid[0]), bool(found.overflow[0])) == (fits, not fits)


@given(st.integers(0, 2**30), SIGNED)
def test_limbs_that_were_not_carried_count_all_the_same(uncarried: int, value: int) -> None:
    # running totals leave more than 32 bits in the low limb
    low, high = limbs(value, 2)
    stored = np.array([[low + (uncarried << LIMB), high - uncarried]], dtype=np.int64)
    assert exact_total(stored)[0] == value
    found = AGGREGATES["sum"].lower({"count": np.array([1]), "sum": stored}, LONG)
    assert found.values[0] == value and found.valid[0]


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=4))
def test_a_wide_decimal_sum_is_exact_to_38_digits(values: list[int]) -> None:
    found = lowered("sum", decimal(38, 6), values)
    assert found.overflow is not None
    if abs(sum(values)) < 10**38:
        assert Decimal(found.values[0]) == Decimal(sum(values)).scaleb(-6, context=_wide())
        assert found.valid[0] and not found.overflow[0]
    else:
        assert found.overflow[0] and not found.valid[0]


def _wide() -> Any:
    with localcontext(prec=80) as context:
        return context.copy()


def test_decimal_texts_keep_sign_and_leading_zeros() -> None:
    texts, overflow = decimal_texts(np.array([-5, 0, 7, 1234, -1000], dtype=object), decimal(5, 3))
    assert texts.tolist() == ["-0.005", "0.000", "0.007", "1.234", "-1.000"]
    assert not overflow.any()
    texts, overflow = decimal_texts(np.array([100_000, -99_999], dtype=object), decimal(5, 0))
    assert overflow.tolist() == [True, False] and texts[1] == "-99999"


# --------------------------------------------------------------------------------------------- means
@given(st.lists(SIGNED, min_size=1, max_size=6))
def test_a_long_average_is_the_exact_quotient_rounded_once(values: list[int]) -> None:
    found = lowered("avg", LONG, values)
    exact = Fraction(sum(values), len(values))
    error = abs(Fraction(float(found.values[0])) - exact)
    assert found.valid[0] and error <= Fraction(math.ulp(float(exact)))


@given(st.lists(st.integers(-(10**10) + 1, 10**10 - 1), min_size=1, max_size=7))
def test_a_decimal_average_rounds_half_up(values: list[int]) -> None:
    found = lowered("avg", decimal(10, 2), values)
    with localcontext(prec=60):
        exact = Decimal(sum(values)) / 100 / len(values)
        assert Decimal(found.values[0]) == exact.quantize(Decimal("0.000001"), ROUND_HALF_UP)


def test_halves_round_away_from_zero() -> None:
    # the average of decimal(38, 38) has no more digits than its values: half a unit has to be rounded
    wide = decimal(38, 38)
    assert AGGREGATES["avg"].output_type(wide) == wide
    assert lowered("avg", wide, [1, 2]).values[0] == "0." + "0" * 37 + "2"
    assert lowered("avg", wide, [-1, -2]).values[0] == "-0." + "0" * 37 + "2"
    assert lowered("avg", wide, [0, 1]).values[0] == "0." + "0" * 37 + "1"


# ----------------------------------------------------------------------------------------- variances
@given(st.lists(st.integers(-(2**31), 2**31), min_size=1, max_size=8), st.sampled_from((0, 10**12)))
def test_variances_agree_with_rational_arithmetic(values: list[int], shift: int) -> None:
    shifted = [value + shift for value in values]
    exact = [Fraction(value) for value in shifted]
    for name, freedom in (("var_pop", 0), ("var_samp", 1), ("variance", 1), ("stddev_pop", 0), ("stddev", 1)):
        found = lowered(name, LONG, shifted)
        if len(values) <= freedom:
            assert not found.valid[0]
            continue
        assert found.valid[0]
        variance = statistics.pvariance(exact) if freedom == 0 else statistics.variance(exact)
        expected = math.sqrt(variance) if name.startswith("std") else float(variance)
        # 106 bits less what cancels: squares near 1e24 leave an error far below 1e-6
        assert float(found.values[0]) == pytest.approx(expected, rel=1e-12, abs=1e-3 if "std" in name else 1e-6)


def test_the_variance_of_a_decimal_is_of_its_scaled_values() -> None:
    found = lowered("var_pop", decimal(10, 2), [100, 300])  # 1.00 and 3.00
    assert found.values[0] == 1.0


def test_variance_of_infinity_is_nan_and_of_huge_squares_a_coded_overflow() -> None:
    def of(total: list[float], squares: list[float]) -> Lowered:
        states = {"count": np.array([2]), "sum": np.array([total]), "sum_squares": np.array([squares])}
        return AGGREGATES["var_pop"].lower(states, DOUBLE)

    infinite = of([math.inf, 0.0], [math.inf, 0.0])
    assert math.isnan(infinite.values[0]) and infinite.valid[0]
    huge = of([2e300, 0.0], [math.inf, 0.0])
    assert huge.overflow is not None and huge.overflow[0] and not huge.valid[0]


# -------------------------------------------------------------------------------------------- nulls
@pytest.mark.parametrize("name", sorted(set(AGGREGATES) - {"count"}))
@pytest.mark.parametrize("type", [LONG, DOUBLE, decimal(10, 2), decimal(30, 2)], ids=str)
def test_no_value_at_all_is_null(name: str, type: Type) -> None:
    sums = np.zeros((1, 4 if type == decimal(30, 2) else 2), dtype=np.int64 if type.is_exact else np.float64)
    states = {"count": np.array([0]), "sum": sums, "sum_squares": np.zeros((1, 2))}
    states |= {"total": np.zeros((1, 2)), "min": np.array([7]), "max": np.array([7])}
    found = AGGREGATES[name].lower(states, type)
    assert not found.valid[0]
    assert found.overflow is None or not found.overflow[0]


def test_counts_are_never_null() -> None:
    assert AGGREGATES["count"].lower({"count": np.array([0, 3])}, None).valid.tolist() == [True, True]


# --------------------------------------------------------------------------------------- double-doubles
@given(st.floats(-1e150, 1e150), st.floats(-1e150, 1e150))
def test_sums_come_with_their_exact_error(a: float, b: float) -> None:
    total, error = two_sum(np.array([a]), np.array([b]))
    assert Fraction(float(total[0])) + Fraction(float(error[0])) == Fraction(a) + Fraction(b)


@given(
    st.floats(-1e100, 1e100).filter(lambda x: x == 0 or abs(x) > 1e-100),
    st.floats(-1e100, 1e100).filter(lambda x: x == 0 or abs(x) > 1e-100),
)
def test_products_come_with_their_exact_error(a: float, b: float) -> None:
    product, error = two_product(np.array([a]), np.array([b]))
    assert Fraction(float(product[0])) + Fraction(float(error[0])) == Fraction(a) * Fraction(b)
