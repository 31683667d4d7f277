"""The algebra: every aggregate is lift / combine / lower over a few shared state columns.

A *state* is what one fragment keeps of one argument: a count, an exact sum, a double-double sum, a minimum.
States are shared: ``avg(x)`` and ``sum(x)`` keep one sum, ``stddev(x)`` adds only the sum of squares. A new
aggregate is one line in :data:`AGGREGATES`; Spark jobs, kernels and the language pick it up from there.

Exactness (design.md section 6): integers and decimals are summed in limbs of 32 bits, so their sums are exact
in any order; doubles in double-double arithmetic (Dekker, Knuth), far inside the promised 4*eps*sum|x|, and
never by subtracting running sums.

References: Gray et al., "Data Cube" (1997), for the distributive / algebraic / holistic classes; Dekker,
"A floating-point technique for extending the available precision" (1971).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.query import DOUBLE, LONG, Expression, Type, decimal

LIMB = 32
"""Bits of a limb of an exact sum."""

WIDE = 18
"""Decimals of more digits than this do not fit 64 bits and keep four limbs instead of two."""

Array = NDArray[Any]


# -------------------------------------------------------------------------------------------- states
@dataclass(frozen=True)
class State:
    """One state of one argument: ``kind`` rows, count, sum, total, sum_squares, min or max.

    ``sum`` is exact for exact types; ``total`` is the double-double sum of their values as doubles, beside
    ``sum_squares`` of the same doubles (decimals unscaled), which a variance needs to be consistent.

    Stored in one of three carriers, each a list column of the partials table: ``longs``, ``doubles`` or
    ``texts``; :attr:`carrier` and :attr:`width` say which and how many columns.
    """

    kind: str
    argument: Expression | None = None
    type: Type | None = None

    @property
    def carrier(self) -> str:
        if self.kind in ("rows", "count"):
            return "longs"
        assert self.type is not None
        if self.kind == "sum":
            return "longs" if self.type.is_exact else "doubles"
        return "doubles" if self.kind in ("total", "sum_squares") else carrier_of(self.type)

    @property
    def width(self) -> int:
        if self.kind == "sum" and self.carrier == "longs":
            return limbs_of(self.type)
        return 2 if self.kind in ("sum", "total", "sum_squares") else 1

    @property
    def operation(self) -> str:
        """How two states combine: ``add`` (integers), ``add_double`` (double-double), ``min``, ``max``."""
        if self.kind in ("min", "max"):
            return self.kind
        return "add" if self.carrier == "longs" else "add_double"


ROWS = State("rows")
"""Rows of the fragment that satisfy the filter: a window exists if this is not zero."""


def limbs_of(type: Type | None) -> int:
    """Number of 32-bit limbs that hold one value of an exact type: 2, or 4 for wide decimals."""
    return 4 if type is not None and type.name == "decimal" and type.precision > WIDE else 2


def carrier_of(type: Type) -> str:
    """The carrier of a value of a type: in states of min and max and in the results table.

    ``longs`` hold integers, booleans (0, 1), dates (days since the epoch) and timestamps (microseconds);
    ``doubles`` doubles; ``texts`` strings and decimals.
    """
    if type.name == "double":
        return "doubles"
    return "texts" if type.name in ("string", "decimal") else "longs"


# ------------------------------------------------------------------------------------------ lowering
@dataclass(frozen=True)
class Lowered:
    """Values of one output over many answers: ``values`` (n,) of int64, float64 or objects (str);
    ``valid`` (n,) False where the answer is null; ``overflow`` (n,) True where it is a coded error."""

    values: Array
    valid: Array
    overflow: Array | None = None


@dataclass(frozen=True)
class Aggregate:
    """One SQL aggregate.

    ``states(argument, type)``: the states it keeps; ``output_type(type)``: its type (raises TypeError with
    a reason if it does not apply); ``lower(states, type)``: the answers, from one array a state kind: (n,) for
    counts and extremes, (n, limbs) for exact sums, (n, 2) for double-doubles. ``klass``: distributive,
    algebraic or holistic. ``subtractable``: whether an older window can be subtracted from a longer one exactly.
    """

    name: str
    kinds: tuple[str, ...]
    output_type: Callable[[Type | None], Type]
    lower: Callable[[Mapping[str, Array], Type | None], Lowered]
    klass: str
    meaning: str

    def states(self, argument: Expression | None, type: Type | None) -> tuple[State, ...]:
        if argument is None:
            return (ROWS,)
        # the sum of doubles is their total already
        kinds = ["sum" if kind == "total" and type == DOUBLE else kind for kind in self.kinds]
        return tuple(State(kind, argument, None if kind == "count" else type) for kind in kinds)

    def subtractable(self, type: Type | None) -> bool:
        return all(kind == "count" or (kind == "sum" and type is not None and type.is_exact) for kind in self.kinds)


def _numeric(name: str, output: Callable[[Type], Type]) -> Callable[[Type | None], Type]:
    def output_type(type: Type | None) -> Type:
        if type is None:
            raise TypeError(f"{name}(*) has no meaning: name a numeric column")
        if not type.is_numeric:
            raise TypeError(f"{name} needs a number, not {type}")
        return output(type)

    return output_type


def _extreme(name: str) -> Callable[[Type | None], Type]:
    def output_type(type: Type | None) -> Type:
        if type is None:
            raise TypeError(f"{name}(*) has no meaning: name a column")
        return type

    return output_type


def _sum_type(type: Type) -> Type:
    if type.name == "decimal":
        return decimal(min(38, type.precision + 10), type.scale)
    return LONG if type.is_exact else DOUBLE


def _average_type(type: Type) -> Type:
    # as Spark: decimal(p + 4, s + 4), each bounded by 38
    if type.name != "decimal":
        return DOUBLE
    return decimal(min(38, type.precision + 4), min(38, type.scale + 4))


def exact_total(limbs: Array) -> Array:
    """Limbs (n, 2 or 4) of exact sums as Python integers (n,), whatever their size."""
    total = np.zeros(len(limbs), dtype=object)
    for index in reversed(range(limbs.shape[1])):
        total = total * (1 << LIMB) + limbs[:, index].astype(object)
    return total


def _long_total(limbs: Array) -> tuple[Array, Array]:
    """Sums of two limbs as int64 (n,), and where they do not fit (n,)."""
    low, high = limbs[:, 0], limbs[:, 1]
    high = high + (low >> LIMB)
    fits = (high >= -(1 << 31)) & (high < (1 << 31))
    return (np.where(fits, high, 0) << LIMB) + (low & ((1 << LIMB) - 1)), ~fits


def decimal_texts(unscaled: Array, type: Type) -> tuple[Array, Array]:
    """Unscaled integers (n,) as decimal texts (n,), and where they exceed the type's precision (n,)."""
    limit = 10**type.precision
    overflow = np.array([abs(value) >= limit for value in unscaled], dtype=bool)
    texts = np.empty(len(unscaled), dtype=object)
    for index, value in enumerate(unscaled):
        digits = str(abs(value)).rjust(type.scale + 1, "0")
        whole, part = (digits[: -type.scale], "." + digits[-type.scale :]) if type.scale else (digits, "")
        texts[index] = ("-" if value < 0 else "") + whole + part
    return texts, overflow


def _lower_count(states: Mapping[str, Array], type: Type | None) -> Lowered:
    counts = states["rows" if "rows" in states else "count"]
    return Lowered(counts, np.ones(len(counts), dtype=bool))


def _lower_sum(states: Mapping[str, Array], type: Type | None) -> Lowered:
    assert type is not None
    valid = states["count"] > 0
    if type.name == "decimal":
        texts, overflow = decimal_texts(exact_total(states["sum"]), _sum_type(type))
        return Lowered(texts, valid & ~overflow, overflow)
    if type.is_exact:
        values, overflow = _long_total(states["sum"])
        return Lowered(values, valid & ~overflow, overflow)
    return Lowered(states["sum"][:, 0] + states["sum"][:, 1], valid)


def _lower_average(states: Mapping[str, Array], type: Type | None) -> Lowered:
    assert type is not None
    count, total = states["count"], states["sum"]
    valid = count > 0
    if type.name == "decimal":
        output = _average_type(type)
        shift = 10 ** (output.scale - type.scale)
        with localcontext(prec=80):
            unscaled = np.array(
                [
                    int((Decimal(int(sum_)) * shift / max(int(n), 1)).to_integral_value(ROUND_HALF_UP))
                    for sum_, n in zip(exact_total(total), count, strict=True)
                ],
                dtype=object,
            )
        texts, overflow = decimal_texts(unscaled, output)
        return Lowered(texts, valid & ~overflow, overflow)
    divisor = np.maximum(count, 1)
    if not type.is_exact:
        return Lowered((total[:, 0] + total[:, 1]) / divisor, valid)
    values, large = _long_total(total)
    averages = values / divisor
    # beyond 2**53 the conversion to double would round before the division does: divide integers there
    for index in np.flatnonzero(valid & (large | (np.abs(values) > 1 << 53))):
        averages[index] = int(exact_total(total[index : index + 1])[0]) / int(count[index])
    return Lowered(averages, valid)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b and its rounding error, exactly (Knuth)."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b and its rounding error, exactly (Dekker), for |a|, |b| < 2**996."""
    product = a * b
    a_high, b_high = a * 134217729.0, b * 134217729.0
    a_high, b_high = a_high - (a_high - a), b_high - (b_high - b)
    a_low, b_low = a - a_high, b - b_high
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _squared_deviations(states: Mapping[str, Array], type: Type) -> tuple[Array, Array]:
    """Sum of squared deviations from the mean (n,), in double-double, and where it overflowed (n,).

    sum(x^2) - sum(x)^2 / n with 106 bits: cancellation costs 2*log2(mean / deviation) of them, so 53 good
    bits remain while the mean is below 2**26 deviations.
    """
    count = np.maximum(states["count"], 1).astype(np.float64)
    total, squares = states["total" if "total" in states else "sum"], states["sum_squares"]
    high, low = total[:, 0], total[:, 1]
    # partial aggregates keep decimals unscaled
    divide = float(10**type.scale) ** 2
    finite = np.isfinite(high)
    overflow = finite & ~np.isfinite(squares[:, 0])
    with np.errstate(all="ignore"):
        square, error = two_product(high, high)
        error = error + 2.0 * high * low
        quotient = square / count
        product, product_error = two_product(quotient, count)
        rest = (((square - product) - product_error) + error) / count
        difference, lost = two_sum(squares[:, 0], -quotient)
        deviations = difference + (lost + squares[:, 1] - rest)
        deviations = np.maximum(deviations, 0.0) / divide
    return np.where(finite, deviations, np.nan), overflow | (finite & ~np.isfinite(square))


def _lower_variance(freedom: int, root: bool) -> Callable[[Mapping[str, Array], Type | None], Lowered]:
    def lower(states: Mapping[str, Array], type: Type | None) -> Lowered:
        assert type is not None
        count = states["count"]
        deviations, overflow = _squared_deviations(states, type)
        valid = count > freedom
        values = deviations / np.maximum(count - freedom, 1)
        return Lowered(np.sqrt(values) if root else values, valid & ~overflow, overflow & valid)

    return lower


def _lower_extreme(kind: str) -> Callable[[Mapping[str, Array], Type | None], Lowered]:
    def lower(states: Mapping[str, Array], type: Type | None) -> Lowered:
        return Lowered(states[kind], states["count"] > 0)

    return lower


def _variance(name: str, freedom: int, root: bool, meaning: str) -> Aggregate:
    output = _numeric(name, lambda type: DOUBLE)
    kinds = ("count", "total", "sum_squares")
    return Aggregate(name, kinds, output, _lower_variance(freedom, root), "algebraic", meaning)


AGGREGATES: dict[str, Aggregate] = {
    aggregate.name: aggregate
    for aggregate in (
        Aggregate("count", ("count",), lambda type: LONG, _lower_count, "distributive", "rows, or values not null"),
        Aggregate("sum", ("count", "sum"), _numeric("sum", _sum_type), _lower_sum, "distributive", "sum, exact"),
        Aggregate("avg", ("count", "sum"), _numeric("avg", _average_type), _lower_average, "algebraic", "mean"),
        Aggregate("min", ("count", "min"), _extreme("min"), _lower_extreme("min"), "distributive", "least value"),
        Aggregate("max", ("count", "max"), _extreme("max"), _lower_extreme("max"), "distributive", "greatest value"),
        _variance("variance", 1, False, "sample variance (null for one value)"),
        _variance("var_samp", 1, False, "sample variance (null for one value)"),
        _variance("var_pop", 0, False, "population variance"),
        _variance("stddev", 1, True, "sample standard deviation (null for one value)"),
        _variance("stddev_samp", 1, True, "sample standard deviation (null for one value)"),
        _variance("stddev_pop", 0, True, "population standard deviation"),
    )
}
"""Every aggregate of the language, by its SQL name (lower case)."""
