"""Doubles that sums go wrong of: terms that cancel, of any magnitude, at the limits, and none that are finite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from hypothesis import strategies as st

GREATEST = 1.7976931348623157e308
HALF_OF_LAST_BIT = 2.0**970
"""Half of the last bit of the greatest double: from a sum of both on, sums are infinite."""

LIMITS = (GREATEST, 1e308, HALF_OF_LAST_BIT, math.nextafter(HALF_OF_LAST_BIT, 0), 2.0**53, 1.0, 0.1)
LEAST = (5e-324, 1e-323, 2.0**-1022, math.nextafter(2.0**-1022, 0), 1e-160, 0.0)

ANY = st.one_of(
    st.sampled_from([sign * value for value in (*LIMITS, *LEAST) for sign in (1.0, -1.0)]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.builds(math.ldexp, st.integers(-(2**53) + 1, 2**53 - 1), st.integers(-1074, 970)),
    st.floats(-1000, 1000),
)
SPECIAL = st.sampled_from((math.nan, math.inf, -math.inf))


@st.composite
def hard_lists(draw: st.DrawFn, most: int = 12, special: bool = False) -> list[float]:
    """Doubles in any order: of any magnitudes, about a great mean, or with the negatives of some."""
    values = draw(st.lists(ANY, min_size=1, max_size=most))
    if draw(st.booleans()):
        offset = draw(st.sampled_from((1e15, -(2.0**60), 1e300, 1.7e9)))
        values = [offset + value for value in draw(st.lists(st.floats(-10, 10), min_size=1, max_size=most))]
    if draw(st.booleans()):
        values += [-value for value in values[: draw(st.integers(0, len(values)))]]
    if draw(st.integers(0, 9)) == 0:
        values = values[:1] * draw(st.integers(1, most))
    if special and draw(st.integers(0, 3)) == 0:
        values += draw(st.lists(SPECIAL, min_size=1, max_size=3))
    return list(draw(st.permutations(values)))


def nearest(value: Fraction) -> float:
    """The nearest double, as IEEE 754 rounds."""
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def exact_sum(values: Sequence[float]) -> Fraction:
    return sum(map(Fraction, values), Fraction(0))


def expected_sum(values: Sequence[float]) -> float:
    """What SQL's ``sum`` of doubles is, in whatever order: rounded once."""
    special = {value for value in values if math.isinf(value)}
    if len(special) > 1 or any(map(math.isnan, values)):
        return math.nan
    return special.pop() if special else nearest(exact_sum(values))


def expected_mean(values: Sequence[float]) -> float:
    """What SQL's ``avg`` of doubles is: rounded once."""
    total = expected_sum([value for value in values if not math.isfinite(value)])
    return total if total else nearest(exact_sum(values) / len(values))
