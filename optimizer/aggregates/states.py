"""The algebra: every aggregate is lift / combine / lower over a few shared state columns.

A *state* is what one fragment keeps of one argument: a count, an exact sum, a minimum, the distinct values with how
often each occurs. States are shared: ``avg(x)`` and ``sum(x)`` keep one sum, ``stddev(x)``
adds only the sum of squares, ``median(x)`` and ``mode(x)`` keep one multiset. What a kind of state means is a row of
:data:`optimizer.aggregates.state_kinds.STATE_KINDS`.

Exactness: integers and decimals are summed in limbs of 32 bits, and so are doubles, their powers and their products
(:mod:`optimizer.aggregates.exact_doubles`). Sums are exact in any order and any cut. Holistic aggregates are exact as
well, unless the query permits an error: then each fragment keeps a sketch instead.

References: Gray et al., "Data Cube" (1997), for the distributive / algebraic / holistic classes; Flajolet et al.,
"HyperLogLog" (2007).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.state_kinds import STATE_KINDS, StateKind, kinds_of
from optimizer.workload.values import DOUBLE, LONG, Expression, Type, decimal

LIMB = 32
"""Bits of a limb of an exact sum."""

WIDE = 18
"""Decimals of more digits than this do not fit 64 bits and keep four limbs instead of two."""

Array = NDArray[Any]

Longs = NDArray[np.int64]


# -------------------------------------------------------------------------------------------- states
PAIRS = kinds_of("pair")
"""States of one (order, value) pair: the value at the least or the greatest order (see :attr:`State.operation`)."""

BOTH = ("both", *(name for name in kinds_of("double-double") if STATE_KINDS[name].takes_two))
"""States of two numbers, ``argument`` (x) and ``by`` (y), over the tuples where neither is null."""

_LIMBS = {name: STATE_KINDS[name] for name in kinds_of("limbs") if name != "sum"}

EXACT_POWERS = {name: kind.powers[0] for name, kind in _LIMBS.items() if not kind.takes_two}
"""States that are one exact sum of powers of integers or decimals (unscaled), with the exponent."""

EXACT_BOTH = {name: kind.powers for name, kind in _LIMBS.items() if kind.takes_two}
"""As :data:`EXACT_POWERS`, over the tuples in which neither ``argument`` (x) nor ``by`` (y) is null: both exponents."""

EXACT_KINDS = {
    "total": "sum",
    "sum_squares": "power_2",
    "sum_cubes": "power_3",
    "sum_fourths": "power_4",
    **{f"both_{kind[5:]}": kind for kind in EXACT_BOTH},
}
"""Kinds stored for exact types instead of a sum of doubles."""

DOUBLE_SUMS = kinds_of("words")
"""States that are one exact sum of doubles, of variable length. Rows of earlier versions store a double-double under
the same name without ``exact_`` (``total`` is ``sum``). The two are never combined.
"""

SKETCHES = ("quantiles", "frequent", "registers")
"""States that store less than the full multiset, for an error that the query permits."""

MULTISETS = kinds_of("multiset")
"""States of variable length: distinct numbers or texts, each with a weight."""


@dataclass(frozen=True)
class State:
    """One state of one argument, stored per fragment. ``kind``:

    - ``rows``, ``count``: the number of tuples, and of tuples whose argument is not null;
    - ``sum`` of exact types is exact, and so are ``power_2``, ``power_3``, ``power_4``, the sums of their powers
      (decimals unscaled);
    - ``exact_sum`` and the others of :data:`DOUBLE_SUMS`: the exact sums of doubles, of their powers, and of natural
      logarithms of any numbers, as named after ``exact_``;
    - ``both``: the number of tuples in which neither ``argument`` nor ``by`` is null. Over these tuples, two
      exact types
      have the exact sums ``pair_x``, ``pair_y``, ``pair_xx``, ``pair_yy``, ``pair_xy`` of both, of their squares and of
      their products; other pairs have the same as sums of doubles, ``exact_both_x``, …;
    - rows of earlier versions contain double-double sums (the form ``double-double``) of any type; they are read
      as exact
      sums of doubles, and not stored again;
    - ``min``, ``max``, and other kinds of one number, see :data:`optimizer.aggregates.state_kinds.STATE_KINDS`;
    - ``least_by``, ``greatest_by``: the value of ``argument`` where ``by`` is least or greatest, of the tuples whose
      ``by`` is not null; for equal ``by`` the least or the greatest value, null being the least of all;
    - ``first``, ``last``: the same, of the tuples whose ``argument`` is not null either;
    - ``values``: the distinct values with the number of times each occurs; sketches of it within ``error``:
      ``quantiles``
      (values at evenly spaced ranks), ``frequent`` (values that are frequent enough), ``registers`` (HyperLogLog:
      register number with its rank as the weight).

    Stored in three carriers, each a list column of the partials table: ``longs``, ``doubles`` or ``texts``.
    :attr:`widths` is the number of fixed columns in each. A state of variable length has one fixed column, in longs:
    the number of distinct values that follow. The values follow all fixed columns of :attr:`tail`; their weights follow
    all fixed columns of ``longs`` (after the values, if these are longs too), state by state. For an exact sum of
    doubles the fixed column is its head, and its words follow
    (:meth:`optimizer.aggregates.exact_doubles.ExactSums.packed`).
    """

    kind: str
    argument: Expression | None = None
    type: Type | None = None
    by: Expression | None = None
    by_type: Type | None = None
    error: Decimal | None = None

    @property
    def definition(self) -> StateKind:
        return STATE_KINDS[self.kind]

    @cached_property
    def carrier(self) -> str:
        """The carrier of a state that has only one."""
        return next(iter(self.widths))

    @cached_property
    def width(self) -> int:
        """Number of fixed columns of a state that has only one carrier."""
        return next(iter(self.widths.values()))

    @cached_property
    def widths(self) -> dict[str, int]:
        """Number of fixed columns in each carrier that the state uses."""
        form = self.definition.form
        if form in ("count", "multiset", "words"):
            return {"longs": 1}
        assert self.type is not None
        if form == "double-double" or (self.kind == "sum" and not self.type.is_exact):
            return {"doubles": 2}
        if self.kind == "sum":
            return {"longs": limbs_of(self.type)}
        if form == "limbs":
            of_x, of_y = self.definition.powers
            by_bits = bits_of(self.by_type) if self.by_type is not None else 0
            return {"longs": limbs_for(of_x * bits_of(self.type) + of_y * by_bits)}
        if form == "pair":
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
    def is_of_doubles(self) -> bool:
        """Return whether this is a sum of doubles: exact, or a double-double of an earlier version."""
        is_former_sum = self.kind == "sum" and self.type == DOUBLE
        return is_former_sum or self.definition.form in ("words", "double-double")

    @cached_property
    def operation(self) -> str:
        """Name of the operation that combines two states: ``add`` (integers), ``add_exact`` (doubles), ``union`` (adds
        the weights of equal values), ``union_max`` (takes the greater weight), or the kind (``min``, ``least_by``).
        """
        return "add_exact" if self.is_of_doubles else self.definition.operation


ROWS = State("rows")
"""Rows of the fragment that satisfy the filter: a window exists if this is not zero."""


def limbs_of(type: Type | None) -> int:
    """Number of 32-bit limbs that hold one value of an exact type: 2, or 4 for wide decimals."""
    return 4 if type is not None and type.name == "decimal" and type.precision > WIDE else 2


def bits_of(type: Type) -> int:
    """Bits of the magnitude of any value of an exact type (decimals unscaled)."""
    if type.name == "decimal":
        return (10**type.precision).bit_length()
    return min(63, (10**type.digits).bit_length()) if type.digits else 63


def limbs_for(bits: int) -> int:
    """Number of 32-bit limbs of a sum of 2**32 values with magnitudes of ``bits`` bits; at least 2."""
    # all limbs but the highest keep 32 bits; the highest is signed, and has 32 of its 64 bits for the number of values
    return max(2, 1 + -(-(bits - 31) // LIMB))


def carrier_of(type: Type) -> str:
    """The carrier of a value of a type: in states of min and max and in the results table.

    ``longs`` hold integers, booleans (0, 1), dates (days since the epoch) and timestamps (microseconds);
    ``doubles`` doubles; ``texts`` strings, decimals and, in base64, what is binary.
    """
    if type.name == "double":
        return "doubles"
    return "texts" if type.name in ("string", "decimal", "binary") else "longs"


# ---------------------------------------------------------------------------------------- parameters
LEAST_ERROR, MOST_ERROR = Decimal("0.001"), Decimal("0.5")
"""Errors that a query may permit."""

LEAST_RANK_ERROR = Decimal("0.0001")
"""The least error of an approximate percentile: the accuracy of 10,000 that Spark has by default."""

MOST_TOP = 1000
"""The greatest k of ``top_k`` and of other answers of several values."""


def _check_decimals(what: str, value: Decimal, most: int) -> None:
    if -int(value.normalize().as_tuple().exponent) > most:
        raise ValueError(f"{what} has more than {most} digits after the point: {value}")


def check_fraction(value: Decimal) -> None:
    """Raises ValueError, with the reason, unless a value can be the fraction of a percentile: in (0, 1]."""
    if not (value.is_finite() and 0 < value <= 1):
        raise ValueError(f"the fraction of a percentile is greater than 0 and at most 1, not {value}")
    _check_decimals("the fraction of a percentile", value, 18)


def check_error(value: Decimal) -> None:
    """Raises ValueError, with the reason, unless a query may permit this error: 0.001 to 0.5."""
    if not (value.is_finite() and LEAST_ERROR <= value <= MOST_ERROR):
        raise ValueError(f"an error is from {LEAST_ERROR} to {MOST_ERROR}, not {value}")
    _check_decimals("an error", value, 9)


def _whole(what: str, least: int, most: int) -> Callable[[Decimal], None]:
    """Return a check that raises ValueError, with the reason, unless a value is an integer from ``least`` to
    ``most``.
    """

    def check(value: Decimal) -> None:
        if not (value.is_finite() and value == value.to_integral_value() and least <= value <= most):
            raise ValueError(f"{what} is a whole number from {least} to {most}, not {value}")

    return check


check_k = _whole("k", 1, MOST_TOP)

MOST_FRACTIONS = 100
"""Largest number of percentiles in one call."""

CHECKS: dict[str, Callable[[Decimal], None]] = {
    "value+fraction": check_fraction,
    "value+fractions": check_fraction,
    "value+k": check_k,
    "value+lgk": _whole("lgk of a HyperLogLog sketch", 4, 21),
    "value+entries": _whole("lgk of a Theta sketch", 5, 26),
    "value+size": _whole("k of a KLL sketch", 8, 65535),
    "ordered+k": check_k,
    "ordered+separator": _whole("length of a separator", 0, 256),
}
"""Checks of an aggregate's parameter, by its signature. Other signatures have none."""


# ---------------------------------------------------------------------------------------- aggregates
@dataclass(frozen=True)
class Lowered:
    """Values of one output over many answers: ``values`` (n,) of int64, float64 or objects (str);
    ``valid`` (n,) False where the answer is null; ``overflow`` (n,) True where it is a coded error."""

    values: Array
    valid: Array
    overflow: Array | None = None

    def where(self, rows: Array) -> Lowered:
        """The answers of the given rows."""
        return Lowered(self.values[rows], self.valid[rows], None if self.overflow is None else self.overflow[rows])

    def among(self, rows: Array, answers: int, is_count: bool) -> Lowered:
        """All of some answers, of which these are the ``rows`` (n,): in the others the value is that of no events,
        0 of a count and else null.
        """
        values = np.zeros(answers, dtype=self.values.dtype)
        if values.dtype == object:
            values[:] = None
        valid, overflow = np.full(answers, is_count), None if self.overflow is None else np.zeros(answers, dtype=bool)
        values[rows], valid[rows] = self.values, self.valid
        if overflow is not None:
            overflow[rows] = self.overflow
        return Lowered(values, valid, overflow)


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

    def each(self) -> Iterator[tuple[Array, Longs]]:
        """Yield the distinct values (m,), ascending, and their weights (m,) of each answer in turn."""

    def cardinality(self) -> NDArray[np.float64]:
        """The estimate of HyperLogLog (a,); of ``registers`` alone."""


States = Mapping[str, Any]
"""The states of one output over many answers, by kind: (n,) for counts, extremes and bits, (n, limbs) for exact sums,
:class:`optimizer.aggregates.exact_doubles.ExactSums` for those of doubles;
(values (n,), present (n,)) for :data:`PAIRS`, values as the results table stores them;
:class:`Multisets` for :data:`MULTISETS`."""


def sum_type(type: Type) -> Type:
    """The type of ``sum`` over values of a type, as Spark has it."""
    if type.name == "decimal":
        return decimal(min(38, type.precision + 10), type.scale)
    return LONG if type.is_exact else DOUBLE


def average_type(type: Type) -> Type:
    """The type of ``avg`` over values of a type, as Spark has it."""
    # as Spark: decimal(p + 4, s + 4), each bounded by 38
    if type.name != "decimal":
        return DOUBLE
    return decimal(min(38, type.precision + 4), min(38, type.scale + 4))
