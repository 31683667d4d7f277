"""Kinds of states: the stored form of each, its identity, and how two states combine.

Lifting, combining, storing and sliding read :data:`STATE_KINDS`. A new kind that keeps one number is one row of it. If
the numbers combine in a new way, :func:`combine` needs one more case.

References: Gray et al., "Data Cube" (1997); Arasu & Widom, "Resource sharing in continuous sliding-window aggregates"
(VLDB 2004), section 3, for what subtraction and idempotence are worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

ADD_DOUBLE, MIN, MAX, BIT_AND, BIT_OR, BIT_XOR, ADD, LEAST_PAIR, GREATEST_PAIR = range(9)
"""Codes of operations, for kernels: :func:`combine` takes those of one number. ``ADD_DOUBLE`` adds double-doubles; the
pairs are (order, value), of which the least or the greatest wins."""

LIFT_ONE, LIFT_LIMBS = -1, -2
"""Codes for lifting only: add 1 for each value; add the two limbs of each value."""

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


def combine(operation: int, x: int, y: int) -> int:
    """Combine two numbers of 64 bits. Kernels compile this function; ``ADD`` wraps around there."""
    if operation == MAX:
        return max(x, y)
    if operation == MIN:
        return min(x, y)
    if operation == BIT_AND:
        return x & y
    if operation == BIT_OR:
        return x | y
    if operation == BIT_XOR:
        return x ^ y
    return x + y


def subtract(operation: int, total: int, part: int) -> int:
    """Take a part out of a total, for operations that :attr:`StateKind.is_subtractable` allows. Kernels compile it."""
    if operation == BIT_XOR:
        return total ^ part
    return total - part


@dataclass(frozen=True)
class StateKind:
    """One kind of state.

    - ``operation``: how two states combine, by name; ``code``: the same for kernels, None where a class of its own
      combines (:class:`optimizer.aggregates.exact_doubles.ExactSums`, multisets);
    - ``form``: what is stored of it:

      - ``count``: one integer, whatever the type of the argument;
      - ``number``: one value of the argument's type, in its carrier;
      - ``limbs``: the exact sum of products of ``powers`` of the two arguments, in limbs of 32 bits;
      - ``words``: an exact sum of doubles; ``double-double``: the same as earlier versions stored it;
      - ``pair``: an order and the value next to it;
      - ``multiset``: distinct values with weights;
    - ``identity``: the integer (also: ordinal of a double, rank of a text) without a value; ``no_double``: the double
      without a value;
    - ``is_idempotent``: combining a state twice does no harm; ``is_subtractable``: :func:`subtract` undoes it exactly;
    - ``lift``: the code of what one value does to the state, if it is not ``code``;
    - ``takes_two``: it reads two numbers, where neither is null.
    """

    operation: str
    form: str
    code: int | None = None
    identity: int | None = None
    no_double: float | None = None
    is_idempotent: bool = False
    is_subtractable: bool = False
    lift: int | None = None
    takes_two: bool = False
    powers: tuple[int, int] = (0, 0)

    @property
    def structure(self) -> str:
        """The structure that combines any run of fragments: the cheapest that the operation allows."""
        if self.is_subtractable:
            return "running totals"
        return "sparse table" if self.is_idempotent else "disjoint table"


def _number(
    operation: str, code: int, identity: int, no_double: float | None = None, is_subtractable: bool = False
) -> StateKind:
    """A kind of one number: idempotent, or subtractable."""
    return StateKind(operation, "number", code, identity, no_double, not is_subtractable, is_subtractable)


_COUNT = StateKind("add", "count", ADD, 0, is_subtractable=True, lift=LIFT_ONE)
_LIMBS = StateKind("add", "limbs", ADD, 0, is_subtractable=True, lift=LIFT_LIMBS)
_DOUBLE_DOUBLE = StateKind("add_exact", "double-double", is_subtractable=True)
_WORDS = replace(_DOUBLE_DOUBLE, form="words")
_LEAST = StateKind("least_by", "pair", LEAST_PAIR, is_idempotent=True)
_GREATEST = StateKind("greatest_by", "pair", GREATEST_PAIR, is_idempotent=True)
_UNION = StateKind("union", "multiset")

_DOUBLES = ("sum_squares", "sum_cubes", "sum_fourths", "sum_logs")
_PRODUCTS = {"x": (1, 0), "y": (0, 1), "xx": (2, 0), "yy": (0, 2), "xy": (1, 1)}

STATE_KINDS: dict[str, StateKind] = {
    "rows": _COUNT,
    "count": _COUNT,
    "both": replace(_COUNT, takes_two=True),
    "sum": replace(_LIMBS, powers=(1, 0)),
    **{f"power_{power}": replace(_LIMBS, powers=(power, 0)) for power in (2, 3, 4)},
    **{f"pair_{name}": replace(_LIMBS, powers=powers, takes_two=True) for name, powers in _PRODUCTS.items()},
    **dict.fromkeys(("total", *_DOUBLES), _DOUBLE_DOUBLE),
    **{f"both_{name}": replace(_DOUBLE_DOUBLE, takes_two=True) for name in _PRODUCTS},
    **{f"exact_{name}": _WORDS for name in ("sum", *_DOUBLES)},
    **{f"exact_both_{name}": replace(_WORDS, takes_two=True) for name in _PRODUCTS},
    "min": _number("min", MIN, LONG_MAX, no_double=math.nan),
    "max": _number("max", MAX, LONG_MIN, no_double=-math.inf),
    "bit_and": _number("bit_and", BIT_AND, -1),
    "bit_or": _number("bit_or", BIT_OR, 0),
    "bit_xor": _number("bit_xor", BIT_XOR, 0, is_subtractable=True),
    "least_by": _LEAST,
    "greatest_by": _GREATEST,
    "first": _LEAST,
    "last": _GREATEST,
    "values": _UNION,
    "quantiles": _UNION,
    "frequent": _UNION,
    "registers": StateKind("union_max", "multiset"),
}
"""Every kind of state, by the name that fingerprints and stored plans have."""


def kinds_of(form: str) -> tuple[str, ...]:
    """Names of the kinds of one form."""
    return tuple(name for name, kind in STATE_KINDS.items() if kind.form == form)
