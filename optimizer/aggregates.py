"""The algebra: every aggregate is lift / combine / lower over a few shared state columns.

A *state* is what one fragment keeps of one argument: a count, an exact sum, a double-double sum, a minimum, the
distinct values with how often each occurs. States are shared: ``avg(x)`` and ``sum(x)`` keep one sum, ``stddev(x)``
adds only the sum of squares, ``median(x)`` and ``mode(x)`` keep one multiset. A new aggregate is one line in
:data:`AGGREGATES`; Spark jobs, kernels and the language pick it up from there.

Exactness (design.md section 6): integers and decimals are summed in limbs of 32 bits, so their sums are exact
in any order; doubles in double-double arithmetic (Dekker, Knuth), far inside the promised 4*eps*sum|x|, and
never by subtracting running sums. Holistic aggregates are exact as well, unless the query permits an error: then
each fragment keeps a sketch instead.

References: Gray et al., "Data Cube" (1997), for the distributive / algebraic / holistic classes; Dekker,
"A floating-point technique for extending the available precision" (1971); Flajolet et al., "HyperLogLog" (2007).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from optimizer.query import BOOLEAN, DOUBLE, LONG, STRING, Expression, Output, Type, decimal

LIMB = 32
"""Bits of a limb of an exact sum."""

WIDE = 18
"""Decimals of more digits than this do not fit 64 bits and keep four limbs instead of two."""

Array = NDArray[Any]
Longs = NDArray[np.int64]


# -------------------------------------------------------------------------------------------- states
PAIRS = ("least_by", "greatest_by", "first", "last")
"""States of one (order, value) pair: the value at the least or the greatest order (see :attr:`State.operation`)."""

SKETCHES = ("quantiles", "frequent", "registers")
"""States that keep less than the whole multiset, for an error that the query permits."""

MULTISETS = ("values", *SKETCHES)
"""States of variable length: distinct numbers or texts, each with a weight."""


@dataclass(frozen=True)
class State:
    """One state of one argument, what a fragment keeps of it. ``kind``:

    - ``rows``, ``count``: tuples, and those whose argument is not null;
    - ``sum`` is exact for exact types; ``total`` is the double-double sum of their values as doubles, beside
      ``sum_squares`` of the same doubles (decimals unscaled), which a variance needs to be consistent;
    - ``min``, ``max``, ``bit_and``, ``bit_or``, ``bit_xor``;
    - ``least_by``, ``greatest_by``: the value of ``argument`` where ``by`` is least or greatest, of the tuples whose
      ``by`` is not null; equal ``by``: the least or the greatest value, null being the least of all;
    - ``first``, ``last``: the same, of the tuples whose ``argument`` is not null either;
    - ``values``: the distinct values with how often each occurs; sketches of it within ``error``: ``quantiles``
      (values at evenly spaced ranks), ``frequent`` (values that are frequent enough), ``registers`` (HyperLogLog:
      register number with its rank as the weight).

    Stored in three carriers, each a list column of the partials table: ``longs``, ``doubles`` or ``texts``.
    :attr:`widths` says how many fixed columns of each. A state of variable length has one fixed column, in longs: how
    many distinct values follow; they stand behind all fixed columns of :attr:`tail`, and their weights behind all
    fixed columns of ``longs`` (behind the values, if these are longs too), state by state.
    """

    kind: str
    argument: Expression | None = None
    type: Type | None = None
    by: Expression | None = None
    by_type: Type | None = None
    error: Decimal | None = None

    @property
    def carrier(self) -> str:
        """The carrier of a state that has only one."""
        return next(iter(self.widths))

    @property
    def width(self) -> int:
        """Number of fixed columns of a state that has only one carrier."""
        return next(iter(self.widths.values()))

    @property
    def widths(self) -> dict[str, int]:
        """Number of fixed columns in each carrier that the state uses."""
        if self.kind in ("rows", "count"):
            return {"longs": 1}
        assert self.type is not None
        if self.kind == "sum":
            return {"longs": limbs_of(self.type)} if self.type.is_exact else {"doubles": 2}
        if self.kind in ("total", "sum_squares"):
            return {"doubles": 2}
        if self.kind in MULTISETS:
            return {"longs": 1}
        if self.kind in PAIRS:
            # longs: whether the value is not null, then order and value unless they are texts (doubles as ordinals)
            assert self.by_type is not None
            texts = [carrier_of(type) for type in (self.by_type, self.type)].count("texts")
            return {"longs": 3 - texts} | ({"texts": texts} if texts else {})
        return {carrier_of(self.type): 1}

    @property
    def tail(self) -> str | None:
        """The carrier of a multiset's values: integers and decimals of up to 18 digits (unscaled) are longs."""
        if self.kind not in MULTISETS:
            return None
        assert self.type is not None
        small = self.type.name == "decimal" and self.type.precision <= WIDE
        return "longs" if self.kind == "registers" or small else carrier_of(self.type)

    @property
    def operation(self) -> str:
        """How two states combine: ``add`` (integers), ``add_double`` (double-double), ``min``, ``max``, ``bit_and``,
        ``bit_or``, ``bit_xor``, ``least_by``, ``greatest_by``, ``union`` (weights of equal values are added) or
        ``union_max`` (the greater weight stays)."""
        if self.kind in MULTISETS:
            return "union_max" if self.kind == "registers" else "union"
        if self.kind in ("rows", "count", "sum", "total", "sum_squares"):
            return "add" if self.carrier == "longs" else "add_double"
        return {"first": "least_by", "last": "greatest_by"}.get(self.kind, self.kind)


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


# ---------------------------------------------------------------------------------------- parameters
LEAST_ERROR, MOST_ERROR = Decimal("0.001"), Decimal("0.5")
"""Errors that a query may permit."""

MOST_TOP = 1000
"""The greatest k of ``top_k``."""


def _check_decimals(what: str, value: Decimal, most: int) -> None:
    if -int(value.normalize().as_tuple().exponent) > most:
        raise ValueError(f"{what} has more than {most} digits after the point: {value}")


def check_fraction(value: Decimal) -> None:
    """Raises ValueError, with the reason, unless a value can be the fraction of a percentile: in (0, 1]."""
    if not (value.is_finite() and 0 < value <= 1):
        raise ValueError(f"the fraction of a percentile is greater than 0 and at most 1, not {value}")
    _check_decimals("the fraction of a percentile", value, 18)


def check_k(value: Decimal) -> None:
    """Raises ValueError, with the reason, unless a value can be the k of top_k: a whole number, 1 to 1000."""
    if not (value.is_finite() and value == value.to_integral_value() and 1 <= value <= MOST_TOP):
        raise ValueError(f"k is a whole number from 1 to {MOST_TOP}, not {value}")


def check_error(value: Decimal) -> None:
    """Raises ValueError, with the reason, unless a query may permit this error: 0.001 to 0.5."""
    if not (value.is_finite() and LEAST_ERROR <= value <= MOST_ERROR):
        raise ValueError(f"an error is from {LEAST_ERROR} to {MOST_ERROR}, not {value}")
    _check_decimals("an error", value, 9)


CHECKS: dict[str, Callable[[Decimal], None]] = {"value+fraction": check_fraction, "value+k": check_k}
"""What checks the parameter of an aggregate, by its signature; others have none."""


# ---------------------------------------------------------------------------------------- aggregates
@dataclass(frozen=True)
class Lowered:
    """Values of one output over many answers: ``values`` (n,) of int64, float64 or objects (str);
    ``valid`` (n,) False where the answer is null; ``overflow`` (n,) True where it is a coded error."""

    values: Array
    valid: Array
    overflow: Array | None = None

    def where(self, rows: Array) -> Lowered:
        """Those of some answers."""
        return Lowered(self.values[rows], self.valid[rows], None if self.overflow is None else self.overflow[rows])


class Multisets(Protocol):
    """The multisets of one state under many answers (a,), as lowering reads them.

    Values come out as int64 (decimals of up to 18 digits unscaled), float64 or objects (texts), in the order of their
    type; where a multiset is empty they are anything.
    """

    def total(self) -> Longs:
        """Sum of the weights (a,)."""

    def at(self, rank: Longs) -> Array:
        """The value (a,) at a 1-based rank (a,), counting weights in ascending order of the values."""

    def distinct(self) -> Longs:
        """Number of distinct values (a,)."""

    def mode(self) -> Array:
        """The value of the greatest weight (a,), the least of equals."""

    def top(self, k: int) -> tuple[Array, Longs]:
        """Values (a, k) by weight descending, then ascending, and their weights (a, k): 0 where there are fewer."""

    def cardinality(self) -> NDArray[np.float64]:
        """The estimate of HyperLogLog (a,); of ``registers`` alone."""


States = Mapping[str, Any]
"""The states of one output over many answers, by kind: (n,) for counts, extremes and bits, (n, limbs) for exact sums,
(n, 2) for double-doubles; (values (n,), present (n,)) for :data:`PAIRS`, values as the results table stores them;
:class:`Multisets` for :data:`MULTISETS`."""


@dataclass(frozen=True)
class Aggregate:
    """One SQL aggregate.

    ``kinds``: the states that it keeps; ``sketch``: those that it keeps where the query permits an error (empty: it
    is exact all the same). ``result``: its type, from the argument's. ``lowering``: the answers, from the states.
    ``klass``: distributive, algebraic or holistic. ``takes``: the arguments that it applies to, of :data:`TAKES`;
    ``star``: also of ``*``. ``signature``: what its parentheses hold:

    - ``value``; ``value+by``: two expressions; ``value+fraction``, ``value+k``: an expression and a literal, the
      output's ``parameter``;
    - ``value+time``: an expression alone, and ``by`` is the stream's time column.
    """

    name: str
    kinds: tuple[str, ...]
    result: Callable[[Type], Type]
    lowering: Callable[[States, Output], Lowered]
    klass: str
    meaning: str
    takes: str = "a column"
    signature: str = "value"
    sketch: tuple[str, ...] = ()
    star: bool = False

    def states(self, output: Output) -> tuple[State, ...]:
        """The states that an output of this function needs."""
        if output.argument is None:
            return (ROWS,)
        error = output.error.normalize() if output.error is not None and self.sketch else None
        found = []
        for kind in self.sketch if error is not None else self.kinds:
            if kind == "total" and output.argument_type == DOUBLE:
                kind = "sum"  # the sum of doubles is their total already
            state = State(kind, output.argument, None if kind == "count" else output.argument_type)
            if kind in PAIRS:
                state = replace(state, by=output.by, by_type=output.by_type)
            found.append(replace(state, error=error) if kind in SKETCHES else state)
        return tuple(found)

    def output_type(self, type: Type | None, by_type: Type | None = None) -> Type:
        """Type of the answers for arguments of these types (None: ``*``); raises TypeError with the reason."""
        holds, what = TAKES[self.takes]
        if type is None:
            if self.star:
                return LONG
            raise TypeError(f"{self.name}(*) has no meaning: name a column")
        if not holds(type):
            raise TypeError(f"{self.name} needs {what}, not {type}")
        if self.signature == "value+by" and by_type is None:
            raise TypeError(f"{self.name} needs a second argument: what orders the values")
        return self.result(type)

    def check_parameter(self, value: Decimal) -> None:
        """Raises ValueError, with the reason, unless the aggregate has a parameter and it may have this value."""
        if self.signature not in CHECKS:
            raise ValueError(f"{self.name} has no parameter")
        CHECKS[self.signature](value)

    def lower(self, states: States, output: Output) -> Lowered:
        """The answers of an output from the states under them."""
        return self.lowering(states, output)

    def subtractable(self, type: Type | None) -> bool:
        """Whether an older window can be subtracted from a longer one exactly."""
        exact = type is not None and type.is_exact
        return all(kind in ("rows", "count", "bit_xor") or (kind == "sum" and exact) for kind in self.kinds)


TAKES: dict[str, tuple[Callable[[Type], bool], str]] = {
    "a column": (lambda type: True, "a column"),
    "a number": (lambda type: type.is_numeric, "a number"),
    "an integer": (lambda type: type.name == "long", "an integer"),
    "a condition": (lambda type: type == BOOLEAN, "a condition"),
}
"""Kinds of arguments: whether a type is one, and how messages call it."""


def _same(type: Type) -> Type:
    return type


def _sum_type(type: Type) -> Type:
    if type.name == "decimal":
        return decimal(min(38, type.precision + 10), type.scale)
    return LONG if type.is_exact else DOUBLE


def _sequence_sum(type: Type | None) -> Type:
    if type is None or not type.is_numeric:
        raise TypeError(f"sum needs a number, not {type or '*'}")
    return DOUBLE if type == DOUBLE else decimal(38, _kept_of("sum", type).scale)


def _sequence_average(type: Type | None) -> Type:
    if type is None or not type.is_numeric:
        raise TypeError(f"avg needs a number, not {type or '*'}")
    return _average_type(_kept_of("avg", type))


def _sequence_extreme(type: Type | None) -> Type:
    if type is None or type.name in ("string", "boolean"):
        raise TypeError(f"min and max over sequences need a number, date or moment, not {type or '*'}")
    return _kept_of("min and max", type)


def _kept_of(what: str, type: Type) -> Type:
    if type.name == "decimal" and type.precision > WIDE:
        raise TypeError(f"{what} over sequences takes decimals of up to {WIDE} digits, not {type}")
    return type


def _average_type(type: Type) -> Type:
    # as Spark: decimal(p + 4, s + 4), each bounded by 38
    if type.name != "decimal":
        return DOUBLE
    return decimal(min(38, type.precision + 4), min(38, type.scale + 4))


# ------------------------------------------------------------------------------------------ lowering
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


def _lower_count(states: States, output: Output) -> Lowered:
    counts = states["rows" if "rows" in states else "count"]
    return Lowered(counts, np.ones(len(counts), dtype=bool))


def _lower_sum(states: States, output: Output) -> Lowered:
    type = output.argument_type
    assert type is not None
    valid = states["count"] > 0
    if type.name == "decimal":
        texts, overflow = decimal_texts(exact_total(states["sum"]), _sum_type(type))
        return Lowered(texts, valid & ~overflow, overflow)
    if type.is_exact:
        values, overflow = _long_total(states["sum"])
        return Lowered(values, valid & ~overflow, overflow)
    return Lowered(states["sum"][:, 0] + states["sum"][:, 1], valid)


def _lower_average(states: States, output: Output) -> Lowered:
    type, count, total = output.argument_type, states["count"], states["sum"]
    assert type is not None
    valid = count > 0
    if type.name == "decimal":
        average = _average_type(type)
        shift = 10 ** (average.scale - type.scale)
        with localcontext(prec=80):
            unscaled = np.array(
                [
                    int((Decimal(int(sum_)) * shift / max(int(n), 1)).to_integral_value(ROUND_HALF_UP))
                    for sum_, n in zip(exact_total(total), count, strict=True)
                ],
                dtype=object,
            )
        texts, overflow = decimal_texts(unscaled, average)
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


def _squared_deviations(states: States, type: Type) -> tuple[Array, Array]:
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


def _lower_variance(freedom: int, root: bool) -> Callable[[States, Output], Lowered]:
    def lower(states: States, output: Output) -> Lowered:
        assert output.argument_type is not None
        count = states["count"]
        deviations, overflow = _squared_deviations(states, output.argument_type)
        valid = count > freedom
        values = deviations / np.maximum(count - freedom, 1)
        return Lowered(np.sqrt(values) if root else values, valid & ~overflow, overflow & valid)

    return lower


def _lower_as_it_is(kind: str) -> Callable[[States, Output], Lowered]:
    return lambda states, output: Lowered(states[kind], states["count"] > 0)


def _lower_pair(kind: str) -> Callable[[States, Output], Lowered]:
    return lambda states, output: Lowered(*states[kind])


# ----------------------------------------------------------------------------------- lowering multisets
MEDIAN = Decimal("0.5")


def share_of(count: Longs, fraction: Decimal) -> tuple[Longs, Longs, int]:
    """``count * fraction`` (a,) exactly, for counts >= 0 and a fraction in [0, 1]: its whole part (a,), and the rest
    (a,) in units of 1 / the third."""
    above, unit = fraction.as_integer_ratio()
    # apart by the unit, no product is beyond unit ** 2
    numbers = count if unit <= 10**9 else count.astype(object)
    whole, part = numbers // unit, numbers % unit * above
    return (whole * above + part // unit).astype(np.int64), (part % unit).astype(np.int64), unit


def nearest_rank(count: Longs, fraction: Decimal) -> Longs:
    """The rank max(1, ceil(fraction * n)) (a,) of a quantile among n values (a,), exactly."""
    whole, rest, _ = share_of(count, fraction)
    return np.maximum(whole + (rest > 0), 1)


def _multiset(states: States) -> Multisets:
    found: Multisets = next(state for kind, state in states.items() if kind in MULTISETS)
    return found


def _stored(values: Array, valid: Array, type: Type) -> Array:
    """Values of a multiset as the results table stores them: decimals as texts."""
    if type.name != "decimal" or values.dtype == object:
        return values
    distinct, number = np.unique(np.where(valid, values, 0), return_inverse=True)
    return decimal_texts(distinct.astype(object), type)[0][number]


def _as_doubles(values: Array, valid: Array, type: Type) -> NDArray[np.float64]:
    """Numbers of a multiset as the nearest doubles."""
    if type.name != "decimal":
        return values.astype(np.float64)
    distinct, number = np.unique(np.where(valid, values, "0" if values.dtype == object else 0), return_inverse=True)
    if values.dtype == object:
        return np.array([float(text) for text in distinct])[number]
    # the quotient of Python's integers is rounded once
    return np.array([int(value) / 10**type.scale for value in distinct])[number]


def _lower_quantile(states: States, output: Output) -> Lowered:
    """The value at the nearest rank."""
    assert output.argument_type is not None
    multisets = _multiset(states)
    total = multisets.total()
    valid = total > 0
    values = multisets.at(nearest_rank(np.maximum(total, 1), MEDIAN if output.parameter is None else output.parameter))
    return Lowered(_stored(values, valid, output.argument_type), valid)


def _lower_percentile(states: States, output: Output) -> Lowered:
    """Linear interpolation at the position (n - 1) * fraction, which is exact; of a sketch, the nearest rank."""
    type, fraction = output.argument_type, MEDIAN if output.parameter is None else output.parameter
    assert type is not None
    multisets = _multiset(states)
    total = multisets.total()
    valid = total > 0
    count = np.maximum(total, 1)
    if "values" not in states:
        return Lowered(_as_doubles(multisets.at(nearest_rank(count, fraction)), valid, type), valid)
    position, rest, unit = share_of(count - 1, fraction)
    low = _as_doubles(multisets.at(position + 1), valid, type)
    high = _as_doubles(multisets.at(position + 1 + (rest > 0)), valid, type)
    weight = rest / unit
    with np.errstate(invalid="ignore"):
        between = (1.0 - weight) * low + weight * high
    return Lowered(np.where((rest == 0) | (low == high), low, between), valid)


def _lower_distinct(states: States, output: Output) -> Lowered:
    if "values" in states:
        counts = states["values"].distinct()
    else:
        counts = np.rint(states["registers"].cardinality()).astype(np.int64)
    return Lowered(counts, np.ones(len(counts), dtype=bool))


def _lower_mode(states: States, output: Output) -> Lowered:
    assert output.argument_type is not None
    multisets = _multiset(states)
    valid = multisets.total() > 0
    return Lowered(_stored(multisets.mode(), valid, output.argument_type), valid)


def _lower_top(states: States, output: Output) -> Lowered:
    assert output.argument_type is not None and output.parameter is not None
    values, weights = _multiset(states).top(int(output.parameter))
    there = weights > 0
    chosen = values[there]
    distinct, number = np.unique(chosen, return_inverse=True)
    told = json_texts(_stored(distinct, np.ones(len(distinct), dtype=bool), output.argument_type), output.argument_type)
    entries = [f"[{told[at]}, {weight}]" for at, weight in zip(number, weights[there], strict=True)]
    ends = np.cumsum(there.sum(axis=1))
    texts = np.empty(len(values), dtype=object)
    for row, (begin, end) in enumerate(zip(np.concatenate([[0], ends]), ends, strict=False)):
        texts[row] = f"[{', '.join(entries[begin:end])}]"
    return Lowered(texts, there[:, 0])


def json_texts(values: Array, type: Type) -> list[str]:
    """Stored values (n,) of a type as JSON: numbers, strings, true and false. Decimals, dates (ISO 8601), timestamps
    (ISO 8601, UTC, microseconds) and what is no finite number (NaN, Infinity, -Infinity) are strings."""
    if type.name in ("date", "timestamp"):
        unit, zone = ("D", "") if type.name == "date" else ("us", "Z")
        return [f'"{text}{zone}"' for text in np.datetime_as_string(values.astype(f"datetime64[{unit}]"))]
    if type == DOUBLE:
        return [json.dumps(value) if np.isfinite(value) else f'"{json.dumps(value)}"' for value in values.tolist()]
    plain = values.astype(bool) if type == BOOLEAN else values
    return [json.dumps(value, ensure_ascii=False) for value in plain.tolist()]


# ------------------------------------------------------------------------------- numbers in order, hashes
_LOW_BITS = (1 << 63) - 1
_NAN = int(np.array([np.nan]).view(np.int64)[0]) & _LOW_BITS


def ordinals_of_doubles(values: NDArray[np.float64], exact: bool = False) -> Longs:
    """Doubles (n,) as int64 (n,) in the same order: NaN is the greatest, equal to itself, and comes back as one NaN.

    -0.0 becomes 0.0, as the values of one order are one value; ``exact`` keeps it, just below 0.0, for doubles that
    are carried along. :func:`doubles_of_ordinals` is the inverse.
    """
    with np.errstate(invalid="ignore"):  # signalling NaN
        bits = (values.copy() if exact else values + 0.0).view(np.int64)
    bits[np.isnan(values)] = _NAN
    return bits ^ ((bits >> 63) & _LOW_BITS)


def doubles_of_ordinals(ordinals: Longs) -> NDArray[np.float64]:
    """Inverse of :func:`ordinals_of_doubles`."""
    return (ordinals ^ ((ordinals >> 63) & _LOW_BITS)).view(np.float64)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_MURMUR = np.uint64(0xC6A4A7935BD1E995)


@numba.njit(cache=True, inline="always")
def _mixed(x):
    x = x + _GOLDEN
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))


@numba.njit(cache=True)
def hash64(ordinals):
    """A 64-bit hash (n,) uint64 of each number (n,) int64: the same on every machine and in every run.

    References: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (2014), the finaliser.
    """
    out = np.empty(len(ordinals), np.uint64)
    for i in range(len(ordinals)):
        out[i] = _mixed(np.uint64(ordinals[i]))
    return out


def hash64_of_texts(texts: Sequence[str]) -> NDArray[np.uint64]:
    """A 64-bit hash (n,) of each text's UTF-8 bytes: the same on every machine and in every run (MurmurHash64A)."""
    pieces = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, pieces)])
    return _hash_bytes(ends, np.frombuffer(b"".join(pieces), dtype=np.uint8))


@numba.njit(cache=True)
def _hash_bytes(ends, data):
    out = np.empty(len(ends) - 1, np.uint64)
    for i in range(len(out)):
        begin, end = ends[i], ends[i + 1]
        h = np.uint64(end - begin) * _MURMUR
        for first in range(begin, end, 8):
            word = np.uint64(0)
            for at in range(min(first + 8, end) - 1, first - 1, -1):
                word = (word << np.uint64(8)) | np.uint64(data[at])
            word = word * _MURMUR
            word = (word ^ (word >> np.uint64(47))) * _MURMUR
            h = (h ^ word) * _MURMUR
        out[i] = _mixed(h)
    return out


def precision_of(error: Decimal) -> int:
    """The least precision p, 4 to 21, for which HyperLogLog's standard error 1.04 / sqrt(2**p) is at most ``error``."""
    allowed = Fraction(error) ** 2
    return next((p for p in range(4, 21) if Fraction(104, 100) ** 2 <= allowed * 2**p), 21)


@numba.njit(cache=True)
def registers_of(hashes, precision):
    """HyperLogLog's register (n,) int64, in [0, 2**precision), and rank (n,) int64, >= 1, of each hash (n,) uint64.

    The first bits of the hash name the register; the rank is the position of the first 1 among the others.
    """
    register = np.empty(len(hashes), np.int64)
    rank = np.empty(len(hashes), np.int64)
    for i in range(len(hashes)):
        register[i] = np.int64(hashes[i] >> np.uint64(64 - precision))
        rest = hashes[i] << np.uint64(precision)
        place = 1
        while place <= 64 - precision and (rest >> np.uint64(63)) == np.uint64(0):
            rest = rest << np.uint64(1)
            place += 1
        rank[i] = place
    return register, rank


# --------------------------------------------------------------------------------------------- thinning
def thin_quantiles(offsets: Longs, values: Longs, weights: Longs, error: Decimal) -> tuple[Longs, Longs, Longs]:
    """Multisets with at most about 1 / (2 * error) values each: those in the middle of evenly spaced ranks.

    offsets: (c + 1,) of the cells; values: (m,), ascending and distinct within a cell; weights: (m,), >= 1. Returns
    the same three of the thinned cells. A cell's total weight n stays, and at every value the weight up to it, and
    below it, is at most ``error * n`` off. That adds up over cells: in any union of thinned cells with N values
    together, the value at rank r has a true rank within ``error * N`` of r. Cells of few values stay whole. O(m).

    References: the one-pass summary of Munro & Paterson (1980), without the merges that lose precision.
    """
    return _thin_quantiles(offsets, values, weights, *error.as_integer_ratio())


@numba.njit(cache=True, inline="always")
def _allowed(total, above, unit):
    # floor(total * above / unit), without the product
    return total // unit * above + total % unit * above // unit


@numba.njit(cache=True)
def _thin_quantiles(offsets, values, weights, above, unit):
    ends = np.zeros(len(offsets), np.int64)
    out_values, out_weights = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    count = 0
    for cell in range(len(offsets) - 1):
        begin, end = offsets[cell], offsets[cell + 1]
        total = weights[begin:end].sum()
        step = 2 * _allowed(total, above, unit) + 1
        if (end - begin) * step <= total + step - 1:
            for i in range(begin, end):
                out_values[count], out_weights[count] = values[i], weights[i]
                count += 1
        else:
            first, i, passed = count, begin, np.int64(0)
            for rank in range(0, total, step):
                size = min(step, total - rank)
                while passed + weights[i] < rank + (size + 1) // 2:
                    passed += weights[i]
                    i += 1
                if count > first and out_values[count - 1] == values[i]:
                    out_weights[count - 1] += size
                else:
                    out_values[count], out_weights[count] = values[i], size
                    count += 1
        ends[cell + 1] = count
    return ends, out_values[:count].copy(), out_weights[:count].copy()


def thin_frequent(offsets: Longs, values: Longs, weights: Longs, error: Decimal) -> tuple[Longs, Longs, Longs]:
    """Multisets without the values of a weight of at most ``error * n``, n being the cell's total weight.

    Arguments and results as of :func:`thin_quantiles`, the values in any order, which stays. Less than 1 / error
    values stay in a cell, and always the one of the greatest weight, the least of equals: no mode is lost. In any
    union of thinned cells with N values together, a weight is never too great, and too small by at most
    ``error * N``. O(m).

    References: Manku & Motwani (VLDB 2002), lossy counting, with one bucket a cell.
    """
    return _thin_frequent(offsets, values, weights, *error.as_integer_ratio())


@numba.njit(cache=True)
def _thin_frequent(offsets, values, weights, above, unit):
    ends = np.zeros(len(offsets), np.int64)
    out_values, out_weights = np.empty(len(values), np.int64), np.empty(len(values), np.int64)
    count = 0
    for cell in range(len(offsets) - 1):
        begin, end = offsets[cell], offsets[cell + 1]
        allowed = _allowed(weights[begin:end].sum(), above, unit)
        best = begin
        for i in range(begin + 1, end):
            if weights[i] > weights[best] or (weights[i] == weights[best] and values[i] < values[best]):
                best = i
        for i in range(begin, end):
            if weights[i] > allowed or i == best:
                out_values[count], out_weights[count] = values[i], weights[i]
                count += 1
        ends[cell + 1] = count
    return ends, out_values[:count].copy(), out_weights[:count].copy()


# ------------------------------------------------------------------------------------ the declarations
def _variance(freedom: int, root: bool, what: str) -> Aggregate:
    kinds, lower = ("count", "total", "sum_squares"), _lower_variance(freedom, root)
    kind = "standard deviation" if root else "variance"
    return Aggregate("", kinds, lambda type: DOUBLE, lower, "algebraic", f"{what.format(kind)}", takes="a number")


def _kept(kind: str, meaning: str, takes: str = "a column", result: Callable[[Type], Type] = _same) -> Aggregate:
    return Aggregate("", ("count", kind), result, _lower_as_it_is(kind), "distributive", meaning, takes)


def _pair(kind: str, signature: str, meaning: str) -> Aggregate:
    return Aggregate("", (kind,), _same, _lower_pair(kind), "algebraic", meaning, signature=signature)


def _holistic(
    result: Callable[[Type], Type],
    lowering: Callable[[States, Output], Lowered],
    sketch: str,
    meaning: str,
    takes: str = "a column",
    signature: str = "value",
) -> Aggregate:
    return Aggregate("", ("values",), result, lowering, "holistic", meaning, takes, signature, (sketch,))


_SAMPLE, _POPULATION = "sample {} (null for one value)", "population {}"

_DECLARED: tuple[tuple[str, Aggregate], ...] = (
    (
        "count",
        Aggregate(
            "", ("count",), lambda type: LONG, _lower_count, "distributive", "rows, or values not null", star=True
        ),
    ),
    ("sum", Aggregate("", ("count", "sum"), _sum_type, _lower_sum, "distributive", "sum, exact", "a number")),
    ("avg", Aggregate("", ("count", "sum"), _average_type, _lower_average, "algebraic", "mean", "a number")),
    ("min", _kept("min", "least value")),
    ("max", _kept("max", "greatest value")),
    ("variance var_samp", _variance(1, False, _SAMPLE)),
    ("var_pop", _variance(0, False, _POPULATION)),
    ("stddev stddev_samp", _variance(1, True, _SAMPLE)),
    ("stddev_pop", _variance(0, True, _POPULATION)),
    ("first", _pair("first", "value+time", "earliest value (of equal times the least)")),
    ("last", _pair("last", "value+time", "latest value (of equal times the greatest)")),
    ("min_by", _pair("least_by", "value+by", "value where the second is least (of equals the least)")),
    ("max_by", _pair("greatest_by", "value+by", "value where the second is greatest (of equals the greatest)")),
    ("bool_and every", _kept("min", "whether all are true", "a condition")),
    ("bool_or some any", _kept("max", "whether one is true", "a condition")),
    ("bit_and", _kept("bit_and", "bits that all have", "an integer", lambda type: LONG)),
    ("bit_or", _kept("bit_or", "bits that one has", "an integer", lambda type: LONG)),
    ("bit_xor", _kept("bit_xor", "bits that an odd number have", "an integer", lambda type: LONG)),
    ("count_distinct", _holistic(lambda type: LONG, _lower_distinct, "registers", "number of distinct values")),
    (
        "percentile",
        _holistic(
            lambda type: DOUBLE,
            _lower_percentile,
            "quantiles",
            "percentile, interpolated",
            "a number",
            "value+fraction",
        ),
    ),
    ("median", _holistic(lambda type: DOUBLE, _lower_percentile, "quantiles", "percentile of 0.5", "a number")),
    (
        "percentile_disc",
        _holistic(_same, _lower_quantile, "quantiles", "the value at a percentile", signature="value+fraction"),
    ),
    ("mode", _holistic(_same, _lower_mode, "frequent", "most frequent value (of equals the least)")),
    (
        "top_k",
        _holistic(
            lambda type: STRING,
            _lower_top,
            "frequent",
            "the k most frequent values, counted, in JSON",
            signature="value+k",
        ),
    ),
)

AGGREGATES: dict[str, Aggregate] = {
    name: replace(declared, name=name) for names, declared in _DECLARED for name in names.split()
}
"""Every aggregate of the language, by its SQL name (lower case)."""

SEQUENCES: dict[str, Callable[[Type | None], Type]] = {
    "count": lambda type: decimal(38, 0),
    "sum": _sequence_sum,
    "avg": _sequence_average,
    "min": _sequence_extreme,
    "max": _sequence_extreme,
}
"""The aggregates of event sequences, each with its type from its argument's (None: ``*``); TypeError, with the reason,
for others. There are many more sequences than events: counts and exact sums have 38 digits."""
