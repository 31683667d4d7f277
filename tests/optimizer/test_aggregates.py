"""The algebra: states are shared, and lowering gives the exact answer, null or a coded overflow."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.aggregates.exact_doubles import ExactSums, Terms
from optimizer.aggregates.exact_sums import decimal_texts, exact_total, two_product, two_sum
from optimizer.aggregates.lowering import json_texts, nearest_rank, share_of
from optimizer.aggregates.ordinals import doubles_of_ordinals, hash64, hash64_of_texts, ordinals_of_doubles
from optimizer.aggregates.sketches import precision_of, registers_of, thin_frequent, thin_quantiles
from optimizer.aggregates.state_kinds import STATE_KINDS, StateKind, combine, kinds_of, subtract
from optimizer.aggregates.states import (
    DOUBLE_SUMS,
    EXACT_BOTH,
    EXACT_POWERS,
    LIMB,
    MULTISETS,
    PAIRS,
    ROWS,
    Lowered,
    Multisets,
    State,
    carrier_of,
    check_error,
)
from optimizer.combine.elements import combine_numbers
from optimizer.workload.values import BOOLEAN, DATE, DOUBLE, INT, LONG, STRING, TIMESTAMP, Column, Output, Type, decimal
from tests.sizes import examples

X, Y = Column("x"), Column("y")
SIGNED = st.integers(-(2**63), 2**63 - 1)


def limbs(value: int, width: int) -> list[int]:
    """An integer in ``width`` limbs of 32 bits, the highest signed."""
    mask = (1 << LIMB) - 1
    return [(value >> (LIMB * i)) & mask for i in range(width - 1)] + [value >> (LIMB * (width - 1))]


def lowered(name: str, type: Type, values: list[Any]) -> Lowered:
    """One answer of an aggregate over exact values (unscaled integers for decimals)."""
    width = 4 if type.name == "decimal" and type.precision > 18 else 2
    states = {
        "count": np.array([len(values)], dtype=np.int64),
        "sum": np.array([limbs(sum(values), width)], dtype=np.int64),
    }
    for kind, exponent in EXACT_POWERS.items():
        power = sum(value**exponent for value in values)
        states[kind] = np.array([limbs(power, State(kind, X, type).width)], dtype=np.int64)
    return AGGREGATES[name].lower(states, output_of(name, type))


def output_of(name: str, type: Type | None = LONG, **options: Any) -> Output:
    """An output over x of a type, by y where the function orders by something, with a parameter that is valid."""
    aggregate = AGGREGATES[name]
    orders = {"value+by": (Y, STRING), "value+time": (Column("ts"), TIMESTAMP), "number+number": (Y, DOUBLE)}
    by = orders.get(aggregate.signature, (None, None))
    options = {"by": by[0], "by_type": by[1], **options}
    if aggregate.signature in ("value+fraction", "value+k"):
        options = {"parameter": Decimal(1), **options}
    if aggregate.default is not None:
        options = {"parameter": aggregate.default, **options}
    if aggregate.signature == "value+fractions":
        options = {"parameters": (Decimal("0.5"), Decimal(1)), **options}
    argument = None if type is None else X
    return Output("it", name, argument, type, aggregate.output_type(type, by[1]), **options)


ANY_TYPE = {"a column": STRING, "a number": DOUBLE, "an integer": LONG, "a condition": BOOLEAN, "a double": DOUBLE}
ANY_TYPE |= {"an integer or a double": DOUBLE, "an integer or a text": STRING, "an integer, a double or a text": STRING}
ANY_TYPE |= {"a text": STRING, "a timestamp": TIMESTAMP}


def states_of(name: str, type: Type | None, **options: Any) -> list[str]:
    return [state.kind for state in AGGREGATES[name].states(output_of(name, type, **options))]


def double_double(value: Fraction) -> list[float]:
    high = float(value)
    return [high, float(value - Fraction(high))]


# ------------------------------------------------------------------------------------------- sharing
def test_aggregates_of_one_argument_share_their_states() -> None:
    names = ("sum", "avg", "stddev", "count", "median", "percentile", "mode", "top_k", "count_distinct")
    states = {name: set(AGGREGATES[name].states(output_of(name, DOUBLE))) for name in names}
    assert states["sum"] == states["avg"] < states["stddev"]
    assert states["count"] < states["sum"]
    assert states["median"] == states["percentile"] == states["mode"] == states["top_k"] == states["count_distinct"]
    assert AGGREGATES["count"].states(output_of("count", None)) == (ROWS,)
    # of integers and decimals moments are of exact sums, and share that of sum and avg
    assert states_of("stddev", LONG) == ["count", "sum", "power_2"]
    assert states_of("kurtosis", decimal(38, 2)) == ["count", "sum", "power_2", "power_3", "power_4"]
    assert states_of("covar_pop", LONG, by_type=LONG) == ["both", "pair_x", "pair_y", "pair_xy"]
    assert states_of("covar_pop", LONG, by_type=DOUBLE) == ["both", "exact_both_x", "exact_both_y", "exact_both_xy"]
    # a count needs no type: count(x) beside max(x) of another type is still one column
    count = AGGREGATES["count"]
    assert count.states(output_of("count", STRING)) == count.states(output_of("count", LONG))
    assert states_of("every", BOOLEAN) == states_of("min", BOOLEAN)
    assert states_of("some", BOOLEAN) == states_of("any", BOOLEAN) == states_of("max", BOOLEAN)


def test_a_permitted_error_makes_sketches() -> None:
    error = Decimal("0.010")
    for name, kind in {
        "count_distinct": "registers",
        "percentile": "quantiles",
        "median": "quantiles",
        "percentile_disc": "quantiles",
        "mode": "frequent",
        "top_k": "frequent",
    }.items():
        assert AGGREGATES[name].klass == "holistic"
        (state,) = AGGREGATES[name].states(output_of(name, LONG, error=error))
        # one text for equal errors: a state is part of fingerprints
        assert (state.kind, str(state.error)) == (kind, "0.01")
        assert states_of(name, LONG) == ["values"]
    # nothing else has an error: the state is shared with those who permit none
    assert AGGREGATES["sum"].states(output_of("sum", error=error)) == AGGREGATES["sum"].states(output_of("sum"))


def test_pairs_keep_what_orders_them() -> None:
    (state,) = AGGREGATES["max_by"].states(output_of("max_by", decimal(9, 2)))
    assert state == State("greatest_by", X, decimal(9, 2), Y, STRING)
    assert state.widths == {"longs": 1, "texts": 2} and state.kind in PAIRS
    (state,) = AGGREGATES["first"].states(output_of("first", LONG))
    assert state == State("first", X, LONG, Column("ts"), TIMESTAMP)
    assert (state.widths, state.operation) == ({"longs": 3}, "least_by")
    assert State("last", X, LONG, Y, LONG).operation == "greatest_by"


def test_aliases_are_one_declaration() -> None:
    for names in ("variance var_samp", "stddev stddev_samp", "bool_and every", "bool_or some any"):
        first, *aliases = (AGGREGATES[name] for name in names.split())
        for other in aliases:
            assert (other.kinds, other.lowering, other.meaning) == (first.kinds, first.lowering, first.meaning)
    assert all(name == aggregate.name for name, aggregate in AGGREGATES.items())


@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_every_kind_of_state_has_a_layout(name: str) -> None:
    aggregate = AGGREGATES[name]
    for error in (None, Decimal("0.1")):
        for state in aggregate.states(output_of(name, ANY_TYPE[aggregate.takes], error=error)):
            assert state.operation and set(state.widths) <= {"longs", "doubles", "texts"}
            assert (state.tail is not None) == (state.kind in MULTISETS)
            assert (state.operation == "add_exact") == (state.kind in DOUBLE_SUMS)


@pytest.mark.parametrize(
    "kind, type, carrier, width, operation",
    [
        ("sum", LONG, "longs", 2, "add"),
        ("sum", decimal(18, 2), "longs", 2, "add"),
        ("sum", decimal(19, 2), "longs", 4, "add"),
        ("sum", DOUBLE, "doubles", 2, "add_exact"),
        ("exact_sum", DOUBLE, "longs", 1, "add_exact"),
        ("sum_squares", LONG, "doubles", 2, "add_exact"),
        ("power_2", INT, "longs", 3, "add"),
        ("power_2", LONG, "longs", 4, "add"),
        ("power_3", LONG, "longs", 6, "add"),
        ("power_4", LONG, "longs", 8, "add"),
        ("power_2", decimal(9, 2), "longs", 2, "add"),
        ("power_4", decimal(38, 2), "longs", 16, "add"),
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


@pytest.mark.parametrize("name", sorted(AGGREGATES))
def test_types_that_do_not_apply_are_refused_with_a_reason(name: str) -> None:
    aggregate = AGGREGATES[name]
    if name == "count":
        assert aggregate.output_type(None) == LONG
        return
    with pytest.raises(TypeError, match=rf"{name}\(\*\) has no meaning"):
        aggregate.output_type(None)
    assert aggregate.output_type(ANY_TYPE[aggregate.takes], LONG)
    if aggregate.takes != "a column":
        refused = DATE if aggregate.takes.endswith("text") else STRING
        with pytest.raises(TypeError, match=f"{name} needs {aggregate.takes}, not {refused}"):
            aggregate.output_type(refused)
    if aggregate.signature == "value+by":
        with pytest.raises(TypeError, match="second argument"):
            aggregate.output_type(LONG)
    if aggregate.signature == "number+number":
        with pytest.raises(TypeError, match="needs a number as its second argument, not string"):
            aggregate.output_type(LONG, STRING)


@pytest.mark.parametrize(
    "name, good, bad",
    [
        ("percentile", ("1", "0.5", "0.000001", "1.0"), ("0", "-0.5", "1.0000001", "NaN", "Infinity", "0." + "1" * 19)),
        ("percentile_disc", ("0.999",), ("1.5", "sNaN")),
        ("top_k", ("1", "1000", "5.0", "1E+2"), ("0", "-3", "2.5", "1001", "NaN", "Infinity")),
        ("percentiles", ("1", "0.5"), ("0", "1.5")),
        ("hll_sketch", ("4", "21"), ("3", "22", "12.5")),
        ("theta_sketch", ("5", "26"), ("4", "27", "NaN")),
        ("quantile_sketch", ("8", "65535"), ("7", "65536", "-1")),
    ],
)
def test_parameters_out_of_range_are_refused_with_a_reason(name: str, good: Sequence[str], bad: Sequence[str]) -> None:
    for text in good:
        AGGREGATES[name].check_parameter(Decimal(text))
    for text in bad:
        with pytest.raises(ValueError, match="not|more than"):
            AGGREGATES[name].check_parameter(Decimal(text))
    with pytest.raises(ValueError, match="no parameter"):
        AGGREGATES["sum"].check_parameter(Decimal(1))


def test_errors_out_of_range_are_refused_with_a_reason() -> None:
    for text in ("0.001", "0.5", "0.05", "0.500000000"):
        check_error(Decimal(text))
    for text in ("0.0009999", "0.51", "0", "-0.1", "1", "NaN", "Infinity", "0.0123456789"):
        with pytest.raises(ValueError, match="error"):
            check_error(Decimal(text))


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
    assert AGGREGATES["percentile"].output_type(decimal(10, 2)) == AGGREGATES["median"].output_type(LONG) == DOUBLE
    for name in ("percentile_disc", "mode", "first", "last"):
        assert AGGREGATES[name].output_type(DATE) == DATE
    assert AGGREGATES["max_by"].output_type(STRING, DOUBLE) == STRING
    assert AGGREGATES["top_k"].output_type(DOUBLE) == STRING
    assert AGGREGATES["count_distinct"].output_type(STRING) == AGGREGATES["bit_or"].output_type(INT) == LONG
    assert AGGREGATES["every"].output_type(BOOLEAN) == BOOLEAN
    assert carrier_of(decimal(9, 2)) == "texts"


# ----------------------------------------------------------------------------------------- exact sums
@given(st.lists(SIGNED, min_size=1, max_size=5))
def test_a_long_sum_is_exact_or_a_coded_overflow(values: list[int]) -> None:
    answers = lowered("sum", LONG, values)
    assert answers.overflow is not None
    if -(2**63) <= sum(values) < 2**63:
        assert (answers.values[0], answers.valid[0], answers.overflow[0]) == (sum(values), True, False)
    else:
        assert (answers.valid[0], answers.overflow[0]) == (False, True)


@pytest.mark.parametrize("total, fits", [(2**63 - 1, True), (2**63, False), (-(2**63), True), (-(2**63) - 1, False)])
def test_the_last_sum_that_fits_and_the_first_that_does_not(total: int, fits: bool) -> None:
    answers = lowered("sum", LONG, [total])
    assert answers.overflow is not None
    assert (bool(answers.valid[0]), bool(answers.overflow[0])) == (fits, not fits)


@given(st.integers(0, 2**30), SIGNED)
def test_limbs_that_were_not_carried_count_all_the_same(uncarried: int, value: int) -> None:
    # running totals leave more than 32 bits in the low limb
    low, high = limbs(value, 2)
    stored = np.array([[low + (uncarried << LIMB), high - uncarried]], dtype=np.int64)
    assert exact_total(stored)[0] == value
    answers = AGGREGATES["sum"].lower({"count": np.array([1]), "sum": stored}, output_of("sum"))
    assert answers.values[0] == value and answers.valid[0]


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1, max_size=4))
def test_a_wide_decimal_sum_is_exact_to_38_digits(values: list[int]) -> None:
    answers = lowered("sum", decimal(38, 6), values)
    assert answers.overflow is not None
    if abs(sum(values)) < 10**38:
        assert Decimal(answers.values[0]) == Decimal(sum(values)).scaleb(-6, context=_wide())
        assert answers.valid[0] and not answers.overflow[0]
    else:
        assert answers.overflow[0] and not answers.valid[0]


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
    answers = lowered("avg", LONG, values)
    exact = Fraction(sum(values), len(values))
    error = abs(Fraction(float(answers.values[0])) - exact)
    assert answers.valid[0] and error <= Fraction(math.ulp(float(exact)))


@given(st.lists(st.integers(-(10**10) + 1, 10**10 - 1), min_size=1, max_size=7))
def test_a_decimal_average_rounds_half_up(values: list[int]) -> None:
    answers = lowered("avg", decimal(10, 2), values)
    with localcontext(prec=60):
        exact = Decimal(sum(values)) / 100 / len(values)
        assert Decimal(answers.values[0]) == exact.quantize(Decimal("0.000001"), ROUND_HALF_UP)


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
        answers = lowered(name, LONG, shifted)
        if len(values) <= freedom:
            assert not answers.valid[0]
            continue
        assert answers.valid[0]
        variance = statistics.pvariance(exact) if freedom == 0 else statistics.variance(exact)
        expected = math.sqrt(variance) if name.startswith("std") else float(variance)
        if name.startswith("std"):
            assert float(answers.values[0]) == pytest.approx(expected, rel=2.3e-16)
        else:
            assert float(answers.values[0]) == expected


def test_the_variance_of_a_decimal_is_of_its_scaled_values() -> None:
    answers = lowered("var_pop", decimal(10, 2), [100, 300])  # 1.00 and 3.00
    assert answers.values[0] == 1.0


def test_variance_of_infinity_is_nan_and_of_huge_squares_a_coded_overflow() -> None:
    def of(name: str, values: list[float]) -> Lowered:
        cells, everywhere = np.zeros(len(values), dtype=np.int32), np.empty(0, dtype=bool)
        arguments = cells, np.empty(0, dtype=np.int32), 1, everywhere, (Terms.of(np.array(values)),)
        states = {"exact_sum": ExactSums.lifted(*arguments), "exact_sum_squares": ExactSums.lifted(*arguments, 2)}
        states["count"] = np.array([len(values)])
        return AGGREGATES[name].lower(states, output_of(name, DOUBLE))

    infinite = of("var_pop", [math.inf, 0.0])
    assert math.isnan(infinite.values[0]) and infinite.valid[0]
    huge = of("var_pop", [2e300, 0.0])
    assert huge.overflow is not None and huge.overflow[0] and not huge.valid[0]
    # its root is a double, though its square is none
    assert of("stddev_pop", [2e300, 0.0]).values[0] == 1e300


# ----------------------------------------------------------------------------------------- multisets
@dataclass
class Plain:
    """Multisets by brute force: one list of sorted values an answer, ``texts`` if they are objects."""

    values: list[list[Any]]
    dtype: Any = np.int64

    def _array(self, found: list[Any]) -> Any:
        out = np.empty(len(found), dtype=self.dtype)
        out[:] = found
        return out

    def _empty(self) -> Any:
        return None if self.dtype is object else 0

    def total(self) -> Any:
        return np.array([len(values) for values in self.values], dtype=np.int64)

    def at(self, rank: Any) -> Any:
        assert all(1 <= at <= max(len(values), 1) for at, values in zip(rank, self.values, strict=True))
        return self._array(
            [values[at - 1] if values else self._empty() for at, values in zip(rank, self.values, strict=True)]
        )

    def distinct(self) -> Any:
        return np.array([len(set(values)) for values in self.values], dtype=np.int64)

    def _counted(self, values: list[Any]) -> list[tuple[Any, int]]:
        return sorted(Counter(values).items(), key=lambda item: (-item[1], values.index(item[0])))

    def mode(self) -> Any:
        return self._array([self._counted(values)[0][0] if values else self._empty() for values in self.values])

    def top(self, k: int) -> Any:
        cut = [self._counted(values)[:k] for values in self.values]
        padded = [counted_values + [(self._empty(), 0)] * (k - len(counted_values)) for counted_values in cut]
        flat = self._array([value for counted_values in padded for value, _ in counted_values])
        return flat.reshape(len(padded), k), np.array(
            [[n for _, n in counted_values] for counted_values in padded], dtype=np.int64
        )

    def each(self) -> Any:
        for values in self.values:
            counts = Counter(values)
            yield self._array(sorted(counts)), np.array([counts[value] for value in sorted(counts)], dtype=np.int64)

    def cardinality(self) -> Any:
        return np.array([len(set(values)) - 0.4 for values in self.values])


def holistic(name: str, type: Type, values: list[list[Any]], parameter: str | None = None, **options: Any) -> Lowered:
    """An aggregate over the multisets of several answers (unscaled integers for decimals of up to 18 digits)."""
    output = output_of(name, type, **({"parameter": Decimal(parameter)} if parameter else {}), **options)
    (state,) = AGGREGATES[name].states(output)
    dtype = {"longs": np.int64, "doubles": np.float64, "texts": object, None: object}[state.tail]
    multisets: Multisets = Plain([sorted(multiset) for multiset in values], dtype)
    return AGGREGATES[name].lower({state.kind: multisets}, output)


FRACTIONS = st.one_of(
    st.sampled_from(["0.5", "0.29", "0.07", "0.99", "0.999", "1", "0.1", "0.000000001", "0." + "3" * 18]),
    st.decimals("0.000000000000000001", 1, places=18).map(str),
)
COUNTS = st.one_of(st.integers(0, 300), st.integers(0, 2**62))


@given(st.lists(COUNTS, min_size=1, max_size=3), FRACTIONS)
@example([100, 101], "0.29")
def test_positions_and_ranks_are_exact(counts: list[int], text: str) -> None:
    """(n - 1) * fraction and ceil(fraction * n) in doubles are off by one at 0.29 * 100, for one."""
    fraction = Fraction(text)
    quotients, remainders, unit = share_of(np.array(counts, dtype=np.int64), Decimal(text))
    assert [int(w) + Fraction(int(r), unit) for w, r in zip(quotients, remainders, strict=True)] == [
        count * fraction for count in counts
    ]
    ranks = nearest_rank(np.array(counts, dtype=np.int64), Decimal(text))
    assert ranks.tolist() == [max(1, math.ceil(count * fraction)) for count in counts]


@given(st.lists(st.lists(st.integers(-1000, 1000), max_size=40), min_size=1, max_size=3), FRACTIONS)
def test_percentiles_interpolate_at_exact_positions(values: list[list[int]], text: str) -> None:
    answers = holistic("percentile", LONG, values, text)
    for index, sorted_values in enumerate(map(sorted, values)):
        assert answers.valid[index] == bool(sorted_values)
        if sorted_values:
            position = (len(sorted_values) - 1) * Fraction(text)
            low, high = sorted_values[math.floor(position)], sorted_values[math.ceil(position)]
            exact = low + (position - math.floor(position)) * (high - low)
            assert float(answers.values[index]) == pytest.approx(float(exact), rel=1e-14, abs=1e-12)
            if position.denominator == 1:
                assert answers.values[index] == low
    disc = holistic("percentile_disc", LONG, values, text)
    for index, sorted_values in enumerate(map(sorted, values)):
        if sorted_values:
            assert disc.values[index] == sorted_values[max(1, math.ceil(len(sorted_values) * Fraction(text))) - 1]


def test_medians() -> None:
    answers = holistic("median", LONG, [[3, 1, 2], [1, 2], [], [2**62, 2**62]])
    assert answers.values.tolist()[:2] == [2.0, 1.5] and answers.values[3] == 2.0**62
    assert answers.valid.tolist() == [True, True, False, True]
    # of values of 38 digits and of 18, each rounded once
    assert holistic("median", decimal(30, 2), [["0.10"], ["-123456789012345678901234567.89"]]).values.tolist() == [
        0.1,
        -123456789012345678901234567.89,
    ]
    assert holistic("median", decimal(18, 2), [[10], [-(10**18) + 1], []]).values.tolist()[:2] == [
        0.1,
        -9999999999999999.99,
    ]
    # a sketch has no neighbours to interpolate: the nearest rank
    assert holistic("median", LONG, [[1, 2]], error=Decimal("0.1")).values.tolist() == [1.0]


@given(st.floats(-1e9, 1e9), FRACTIONS)
def test_between_equal_values_lies_that_value(value: float, text: str) -> None:
    assert holistic("percentile", DOUBLE, [[value] * 6], text).values.tolist() == [value]


def test_infinities_do_not_spoil_a_percentile_beside_them() -> None:
    inf, nan = math.inf, math.nan
    values = [[-inf, 1.0, inf], [1.0, inf], [inf, inf], [1.0, 2.0, nan], [1.0, inf, inf]]
    assert holistic("percentile", DOUBLE, values, "0.5").values.tolist() == [1.0, inf, inf, 2.0, inf]
    assert math.isnan(holistic("percentile", DOUBLE, [[-inf, inf]], "0.5").values[0])


def test_decimals_come_out_as_texts() -> None:
    assert holistic("mode", decimal(9, 2), [[5, -150, 5], []]).values.tolist()[0] == "0.05"
    assert holistic("percentile_disc", decimal(9, 2), [[5, -150]], "0.5").values.tolist() == ["-1.50"]
    assert holistic("mode", decimal(30, 2), [["7.00", "7.00"], []]).valid.tolist() == [True, False]


def test_modes_and_distinct_counts() -> None:
    answers = holistic("mode", STRING, [["b", "a", "b", "a"], ["c"], []])
    assert answers.values.tolist()[:2] == ["a", "c"] and answers.valid.tolist() == [True, True, False]
    counts = holistic("count_distinct", STRING, [["b", "a", "b"], []])
    assert counts.values.tolist() == [2, 0] and counts.valid.all()
    estimates = holistic("count_distinct", STRING, [["b", "a", "b"]], error=Decimal("0.1"))
    assert estimates.values.tolist() == [2] and estimates.values.dtype == np.int64


def test_the_most_frequent_values_are_json() -> None:
    answers = holistic("top_k", STRING, [["b", "a", "b", "c"], [], ["z"]], "2")
    assert answers.values.tolist() == ['[["b", 2], ["a", 1]]', "[]", '[["z", 1]]']
    assert answers.valid.tolist() == [True, False, True]
    awkward = holistic("top_k", STRING, [['say "é"', "back\\slash"]], "2").values[0]
    assert json.loads(awkward) == [["back\\slash", 1], ['say "é"', 1]] and "é" in awkward
    assert holistic("top_k", decimal(9, 2), [[5, 5, -150]], "3").values.tolist() == ['[["0.05", 2], ["-1.50", 1]]']
    assert holistic("top_k", LONG, [[], []], "3").values.tolist() == ["[]", "[]"]


def test_json_has_numbers_and_texts() -> None:
    def json_of(type: Type, *values: Any) -> list[str]:
        return json_texts(np.array(values), type)

    assert json_of(LONG, -3, 2**62) == ["-3", str(2**62)]
    assert json_of(DOUBLE, 0.1, 1e300, -0.0) == ["0.1", "1e+300", "-0.0"]
    assert json_of(DOUBLE, math.nan, math.inf, -math.inf) == ['"NaN"', '"Infinity"', '"-Infinity"']
    assert json_of(BOOLEAN, 0, 1) == ["false", "true"]
    assert json_of(DATE, 0, -1) == ['"1970-01-01"', '"1969-12-31"']
    assert json_of(TIMESTAMP, 1_372_636_800_000_001, -1) == [
        '"2013-07-01T00:00:00.000001Z"',
        '"1969-12-31T23:59:59.999999Z"',
    ]


# ------------------------------------------------------------------------------- numbers in order, hashes
def test_ordinals_of_doubles_keep_the_order() -> None:
    order = [-math.inf, -1e300, -1.0, -5e-324, -0.0, 0.0, 5e-324, 0.1, 1.0, math.inf, math.nan]
    exact = ordinals_of_doubles(np.array(order), exact=True)
    assert (np.diff(exact) > 0).all()
    assert doubles_of_ordinals(exact).tobytes()[:-8] == np.array(order).tobytes()[:-8]
    merged = ordinals_of_doubles(np.array(order))
    assert np.diff(merged).tolist().count(0) == 1 and merged[4] == merged[5]
    assert math.copysign(1.0, doubles_of_ordinals(merged)[4]) == 1.0
    # every NaN is one value, of either sign, and the greatest
    nans = np.array([0x7FF8000000000000, -0x8000000000000 + 5, 0x7FF0000000000001], dtype=np.int64).view(np.float64)
    assert len(set(ordinals_of_doubles(nans).tolist()) | {int(merged[-1])}) == 1


@given(st.lists(st.floats(), min_size=1, max_size=20))
def test_ordinals_and_doubles_are_inverse(values: list[float]) -> None:
    array = np.array(values)
    original_bytes = array.tobytes()
    back = doubles_of_ordinals(ordinals_of_doubles(array, exact=True))
    assert np.array_equal(back, array, equal_nan=True) and array.tobytes() == original_bytes
    assert (np.signbit(back) == np.signbit(array))[~np.isnan(array)].all()


def test_hashes_do_not_depend_on_the_run() -> None:
    # stored registers outlive a process: these numbers must never change
    assert hash64(np.array([0, 1, -1], dtype=np.int64)).tolist() == HASHED_NUMBERS
    assert hash64_of_texts(["", "a", "abcdefgh", "abcdefghi", "é"]).tolist() == HASHED_TEXTS
    assert len(hash64_of_texts([])) == 0


HASHED_NUMBERS = [16294208416658607535, 10451216379200822465, 16490336266968443936]
HASHED_TEXTS = [
    16294208416658607535,
    4059936361503070614,
    7441863006502988751,
    14238918575053704086,
    2185255398321306329,
]


def test_hashes_spread() -> None:
    for hashes in (hash64(np.arange(1 << 16)), hash64_of_texts([f"key {i}" for i in range(1 << 16)])):
        assert len(np.unique(hashes)) == 1 << 16
        for shift in (0, 28, 56):
            counts = np.bincount(((hashes >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256)
            # 256 a cell, deviation 16
            assert counts.min() > 256 - 6 * 16 and counts.max() < 256 + 6 * 16


def test_registers_and_ranks() -> None:
    hashes = np.array([0, (1 << 64) - 1, 1 << 59, 0b1011 << 60, 1], dtype=np.uint64)
    register, rank = registers_of(hashes, 4)
    assert register.tolist() == [0, 15, 0, 11, 0]
    assert rank.tolist() == [61, 1, 1, 61, 60]


def test_precisions_keep_the_standard_error() -> None:
    assert precision_of(Decimal("0.5")) == 4 and precision_of(Decimal("0.001")) == 21
    assert precision_of(Decimal("0.26")) == 4  # 1.04 / sqrt(16), exactly
    assert precision_of(Decimal("0.2599")) == 5
    assert precision_of(Decimal("0.05")) == 9


def test_registers_estimate_within_their_error() -> None:
    for precision, count in ((9, 20_000), (12, 60_000)):
        register, rank = registers_of(hash64(np.arange(count)), precision)
        registers = np.zeros(1 << precision)
        np.maximum.at(registers, register, rank)
        # the raw estimate of Flajolet et al., good from 5 / 2 values a register on
        estimate = 0.7213 / (1 + 1.079 / len(registers)) * len(registers) ** 2 / np.sum(2.0**-registers)
        assert abs(estimate / count - 1) < 4 * 1.04 / math.sqrt(len(registers))


# -------------------------------------------------------------------------------------------- thinning
CELLS = st.lists(
    st.one_of(
        st.dictionaries(st.integers(-20, 20), st.integers(1, 3), min_size=1, max_size=30),
        st.dictionaries(st.integers(-9, 9), st.one_of(st.integers(1, 5), st.integers(1, 5000)), min_size=1, max_size=9),
        st.sets(st.integers(-500, 500), min_size=1, max_size=200).map(lambda found: dict.fromkeys(found, 1)),
    ),
    min_size=1,
    max_size=4,
)
ERRORS = st.sampled_from(("0.0001", "0.001", "0.01", "0.034", "0.1", "0.25", "0.5")).map(Decimal)


def csr(cells: list[dict[int, int]]) -> tuple[Any, Any, Any]:
    ordered = [sorted(cell.items()) for cell in cells]
    offsets = np.cumsum([0, *map(len, ordered)])
    flat = [item for cell in ordered for item in cell]
    return offsets, np.array([v for v, _ in flat], dtype=np.int64), np.array([w for _, w in flat], dtype=np.int64)


def cells_of(offsets: Any, values: Any, weights: Any) -> list[dict[int, int]]:
    cells = []
    for begin, end in zip(offsets, offsets[1:], strict=False):
        cell = dict(zip(values[begin:end].tolist(), weights[begin:end].tolist(), strict=True))
        assert len(cell) == end - begin
        cells.append(cell)
    return cells


def union(cells: list[dict[int, int]]) -> Counter[int]:
    totals: Counter[int] = Counter()
    for cell in cells:
        totals.update(cell)
    return totals


@settings(max_examples=examples(95), deadline=None)
@given(CELLS, ERRORS)
def test_thinned_quantiles_keep_every_rank_within_the_error(cells: list[dict[int, int]], error: Decimal) -> None:
    """Of every cell and of the union of all: the value at each rank has a true rank within error * n of it."""
    offsets, values, weights = thin_quantiles(*csr(cells), error)
    thinned = cells_of(offsets, values, weights)
    assert (np.diff(values)[np.diff(np.repeat(np.arange(len(cells)), np.diff(offsets))) == 0] > 0).all()
    for before, after in [*zip(cells, thinned, strict=True), (union(cells), union(thinned))]:
        n = sum(before.values())
        assert sum(after.values()) == n and set(after) <= set(before)
        rank = 0
        for value, weight in sorted(after.items()):
            least, greatest = (
                1 + sum(w for v, w in before.items() if v < value),
                sum(w for v, w in before.items() if v <= value),
            )
            # of the ranks rank + 1 .. rank + weight that it answers the first and the last are the worst
            assert least - (rank + 1) <= error * n and (rank + weight) - greatest <= error * n
            rank += weight
    for before, after in zip(cells, thinned, strict=True):
        n = sum(before.values())
        assert len(after) <= n // (2 * int(error * n) + 1) + 1


@settings(max_examples=examples(130), deadline=None)
@given(CELLS, ERRORS)
def test_thinned_frequencies_lack_at_most_the_error(cells: list[dict[int, int]], error: Decimal) -> None:
    thinned = cells_of(*thin_frequent(*csr(cells), error))
    for before, after in [*zip(cells, thinned, strict=True), (union(cells), union(thinned))]:
        n = sum(before.values())
        for value, weight in before.items():
            assert 0 <= weight - after.get(value, 0) <= error * n
        # the mode of what is left is frequent enough
        mode = min(after, key=lambda value: (-after[value], value))
        assert before[mode] >= max(before.values()) - error * n
    for before, after in zip(cells, thinned, strict=True):
        n = sum(before.values())
        assert len(after) <= max(1, 1 / error)
        best = min(before, key=lambda value: (-before[value], value))
        assert after[best] == before[best]


def test_ranks_at_the_best_accuracy_need_five_thousand_values() -> None:
    offsets, values, weights = thin_quantiles(*csr([dict.fromkeys(range(60_000), 1)]), Decimal("0.0001"))
    assert offsets.tolist() == [0, 4616] and weights.sum() == 60_000 and weights.max() == 13
    assert np.abs(np.cumsum(weights) - weights // 2 - 1 - values).max() <= 6


def test_small_cells_stay_whole_and_empty_ones_empty() -> None:
    cells: list[dict[int, int]] = [{1: 1, 2: 5, 9: 1}, {}, {4: 10**12}, dict.fromkeys(range(100), 1)]
    assert cells_of(*thin_quantiles(*csr(cells), Decimal("0.005"))) == cells
    thinned = cells_of(*thin_quantiles(*csr(cells), Decimal("0.1")))
    assert thinned[:3] == cells[:3] and thinned[3] == {10: 21, 31: 21, 52: 21, 73: 21, 91: 16}
    assert cells_of(*thin_frequent(*csr(cells), Decimal("0.005"))) == cells
    assert cells_of(*thin_frequent(*csr(cells), Decimal("0.2"))) == [{2: 5}, {}, {4: 10**12}, {0: 1}]


# -------------------------------------------------------------------------------------------- nulls
@pytest.mark.parametrize("type", [LONG, DOUBLE, decimal(10, 2), decimal(30, 2), BOOLEAN], ids=str)
@pytest.mark.parametrize("name", sorted(set(AGGREGATES) - {"count", "count_distinct", "regr_count"}))
def test_no_value_at_all_is_null(name: str, type: Type) -> None:
    try:
        output = output_of(name, type)
    except TypeError:
        return
    sums = np.zeros((1, 4 if type == decimal(30, 2) else 2), dtype=np.int64 if type.is_exact else np.float64)
    states: dict[str, Any] = {"count": np.array([0]), "sum": sums, "both": np.array([0])}
    longs = {kind: np.zeros((1, 2), dtype=np.int64) for kind in (*EXACT_POWERS, *EXACT_BOTH)}
    states |= (
        longs
        | {kind: np.zeros((1, 2)) for kind in kinds_of("double-double")}
        | dict.fromkeys(kinds_of("number"), np.array([7]))
    )
    states |= dict.fromkeys(DOUBLE_SUMS, ExactSums.nothing(1))
    states |= dict.fromkeys(PAIRS, (np.array([7]), np.array([False])))
    tail = State("values", X, type).tail
    states["values"] = Plain([[]], {"longs": np.int64, "doubles": np.float64}.get(str(tail), object))
    answers = AGGREGATES[name].lower(
        {state.kind: states[state.kind] for state in AGGREGATES[name].states(output)}, output
    )
    assert not answers.valid[0]
    assert answers.overflow is None or not answers.overflow[0]


def test_counts_are_never_null() -> None:
    counted = {"count": np.array([0, 3])}
    assert AGGREGATES["count"].lower(counted, output_of("count")).valid.tolist() == [True, True]


def test_states_that_are_answers_come_out_as_they_are() -> None:
    present = np.array([True, False])
    for name in ("first", "last", "min_by", "max_by"):
        output = output_of(name)
        (state,) = AGGREGATES[name].states(output)
        answers = AGGREGATES[name].lower({state.kind: (np.array([5, 0]), present)}, output)
        assert answers.values.tolist() == [5, 0] and answers.valid.tolist() == [True, False]
    for name in ("min", "max", "bit_and", "bit_or", "bit_xor"):
        answers = AGGREGATES[name].lower({"count": np.array([2, 0]), name: np.array([5, 0])}, output_of(name))
        assert answers.values[0] == 5 and answers.valid.tolist() == [True, False]


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


# ------------------------------------------------------------------------------------------ kinds of states
NUMBERS = sorted(name for name, kind in STATE_KINDS.items() if kind.form == "number")
SOME_NUMBERS = st.one_of(st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]), SIGNED)


def test_every_aggregate_keeps_kinds_of_the_table() -> None:
    used = {kind for aggregate in AGGREGATES.values() for kind in (*aggregate.kinds, *aggregate.sketch)}
    assert used <= STATE_KINDS.keys()
    assert all(STATE_KINDS[kind].lift is None for kind in NUMBERS)
    assert {kind.form for kind in STATE_KINDS.values() if kind.takes_two} == {
        "count",
        "limbs",
        "double-double",
        "words",
    }


@pytest.mark.parametrize("name", NUMBERS)
@given(SOME_NUMBERS, SOME_NUMBERS, SOME_NUMBERS)
def test_numbers_combine_as_the_table_says(name: str, x: int, y: int, z: int) -> None:
    kind = STATE_KINDS[name]
    assert kind.code is not None and kind.identity is not None
    both = combine(kind.code, x, y)
    assert combine(kind.code, kind.identity, x) == x == combine(kind.code, x, kind.identity)
    assert both == combine(kind.code, y, x)
    assert combine(kind.code, both, z) == combine(kind.code, x, combine(kind.code, y, z))
    if kind.is_idempotent:
        assert combine(kind.code, both, y) == both
    if kind.is_subtractable:
        assert subtract(kind.code, both, x) == y
    # what kernels compile
    assert combine_numbers(kind.code, x, y) == both


def test_a_kind_has_the_cheapest_structure_that_it_allows() -> None:
    names = {"count": "running totals", "bit_xor": "running totals", "max": "sparse table", "bit_or": "sparse table"}
    assert {name: STATE_KINDS[name].structure for name in names} == names
    assert StateKind("product", "number", 9, 1).structure == "disjoint table"
