"""Moments of integers and decimals, correctly rounded, from exact sums of their powers and products.

Variances, covariances, regressions and the shapes of distributions are quotients, or square roots of quotients, of
polynomials with integer coefficients in the number of values and these sums: ``n * sum(x * x) - sum(x)**2`` is
``n**2`` times the variance. A polynomial is evaluated over entire arrays in two ways at once: as a double-double with a
bound of its error, and modulo 2**64. Where the bound is below 2**62, both together are the exact integer, whatever
cancels. A quotient is rounded to a double where its bound leaves no choice, which is nearly everywhere. The remaining
quotients are computed with Python's integers.

References: Dekker, "A floating-point technique for extending the available precision" (1971), for double-doubles;
Ziv, "Fast evaluation of elementary mathematical functions with correctly rounded last bit" (1991), for rounding by a
bound, with more digits only where they are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.exact_sums import added, exact_total, multiplied, two_product, two_sum
from optimizer.aggregates.states import LIMB, Array, Longs, Lowered, States
from optimizer.workload.values import Output, Type

ROUNDING = 2.0**-100
"""Largest relative error of an operation on double-doubles (of a sum: relative to both terms)."""

RESIDUE = 2.0**64

OPEN = 2.0**-62
"""ExactIntegers that are known less exactly than to this part of them are computed with Python's."""


@dataclass(frozen=True, eq=False)
class Enclosed:
    """Numbers (n,) as double-doubles ``high + low``, off by at most ``bound`` each."""

    high: Array
    low: Array
    bound: Array

    @staticmethod
    def of(values: Array) -> Enclosed:
        """Python integers (n,)."""
        high = values.astype(np.float64)
        low = np.array([float(value - int(near)) for value, near in zip(values, high, strict=True)])
        return Enclosed(high, low, np.where(low == 0.0, 0.0, np.abs(high) * ROUNDING))

    def __add__(self, other: Enclosed) -> Enclosed:
        bound = self.bound + other.bound + (np.abs(self.high) + np.abs(other.high)) * ROUNDING
        return Enclosed(*added((self.high, self.low), (other.high, other.low)), bound)

    def __neg__(self) -> Enclosed:
        return Enclosed(-self.high, -self.low, self.bound)

    def __mul__(self, other: Enclosed) -> Enclosed:
        x, y = np.abs(self.high), np.abs(other.high)
        bound = 2.0 * (x * other.bound + y * self.bound + self.bound * other.bound) + x * y * ROUNDING
        return Enclosed(*multiplied((self.high, self.low), (other.high, other.low)), bound)

    def __truediv__(self, other: Enclosed) -> Enclosed:
        quotient = self.high / other.high
        product, error = two_product(quotient, other.high)
        correction = ((self.high - product) - error + (self.low - quotient * other.low)) / other.high
        high = quotient + correction
        bound = 2.0 * (self.bound + np.abs(quotient) * other.bound) / np.abs(other.high) + np.abs(high) * ROUNDING
        return Enclosed(high, correction - (high - quotient), bound)

    def root(self) -> Enclosed:
        """The square roots."""
        near = np.sqrt(self.high)
        divisor = np.where(near == 0.0, 1.0, near)
        square, error = two_product(near, near)
        correction = ((self.high - square) - error + self.low) / (2.0 * divisor)
        high = near + correction
        return Enclosed(high, correction - (high - near), self.bound / divisor + high * ROUNDING)

    @property
    def is_decided(self) -> NDArray[np.bool_]:
        """Rows in which all numbers within the bound round to ``high``."""
        off = 2.0 * self.bound
        decided: NDArray[np.bool_] = (self.high + (self.low + off) == self.high) & (
            self.high + (self.low - off) == self.high
        )
        return decided


@dataclass(frozen=True, eq=False)
class ExactIntegers:
    """ExactIntegers (n,), or one: as ``near`` as double-doubles are, ``modulo`` 2**64, and exactly, of some rows."""

    near: Enclosed
    modulo: NDArray[np.uint64]
    exactly: Callable[[Longs], Any]

    @staticmethod
    def constant(value: int) -> ExactIntegers:
        """A single integer that applies to all rows."""
        near = Enclosed.of(np.array([value], dtype=object))
        return ExactIntegers(near, np.array([value % (1 << 64)], dtype=np.uint64), lambda rows: value)

    @staticmethod
    def counts(values: Longs) -> ExactIntegers:
        """ExactIntegers below 2**53."""
        zeros = np.zeros(len(values))
        near = Enclosed(values.astype(np.float64), zeros, zeros)
        return ExactIntegers(near, values.astype(np.uint64), lambda rows: values[rows].astype(object))

    @staticmethod
    def sums(limbs: Longs) -> ExactIntegers:
        """Exact sums of limbs (n, limbs)."""
        carried = limbs.copy()
        for limb in range(limbs.shape[1] - 1):
            carried[:, limb + 1] += carried[:, limb] >> LIMB
            carried[:, limb] &= (1 << LIMB) - 1
        columns = [_doubled(carried[:, limb]) for limb in range(limbs.shape[1])]
        total = columns[-1]
        for below in columns[-2::-1]:
            # the scale is a power of two: nothing is lost by it
            total = added((total[0] * 2.0**LIMB, total[1] * 2.0**LIMB), below)
        wrapped = carried.view(np.uint64)
        modulo = wrapped[:, 0] + (wrapped[:, 1] << np.uint64(LIMB))
        bound = np.abs(total[0]) * (ROUNDING * limbs.shape[1] if limbs.shape[1] > 2 else 0.0)
        return ExactIntegers(Enclosed(*total, bound), modulo, lambda rows: exact_total(carried[rows]))

    def __add__(self, other: ExactIntegers) -> ExactIntegers:
        return ExactIntegers(
            self.near + other.near,
            self.modulo + other.modulo,
            lambda rows: self.exactly(rows) + other.exactly(rows),
        )

    def __sub__(self, other: ExactIntegers) -> ExactIntegers:
        return ExactIntegers(
            self.near + -other.near,
            self.modulo - other.modulo,
            lambda rows: self.exactly(rows) - other.exactly(rows),
        )

    def __mul__(self, other: ExactIntegers) -> ExactIntegers:
        return ExactIntegers(
            self.near * other.near,
            self.modulo * other.modulo,
            lambda rows: self.exactly(rows) * other.exactly(rows),
        )

    def settled(self) -> ExactIntegers:
        """The same, as near as is needed to know whether they are 0 and to divide by them."""
        near, residue = self.near, self.modulo.view(np.int64)
        high, low = _doubled(residue)
        turns = np.rint(added((near.high, near.low), (-high, -low))[0] / RESIDUE)
        is_known = (near.bound < 2.0**61) & (np.abs(turns) < 2.0**50)
        exact = added((turns * RESIDUE, np.zeros_like(turns)), (high, low))
        bound = np.where(turns == 0.0, 0.0, np.abs(exact[0]) * ROUNDING)
        parts = zip((*exact, bound), (near.high, near.low, near.bound), strict=True)
        settled = Enclosed(*(np.where(is_known, refined, rough) for refined, rough in parts))
        vague = np.flatnonzero(~(settled.bound <= np.abs(settled.high) * OPEN))
        if len(vague):
            python = Enclosed.of(np.asarray(self.exactly(vague), dtype=object))
            settled.high[vague], settled.low[vague], settled.bound[vague] = python.high, python.low, python.bound
        return ExactIntegers(settled, self.modulo, self.exactly)


def _doubled(values: Longs) -> tuple[Array, Array]:
    """ExactIntegers of 64 bits (n,) as double-doubles, exactly."""
    return two_sum((values >> LIMB).astype(np.float64) * 2.0**LIMB, (values & ((1 << LIMB) - 1)).astype(np.float64))


def quotients(above: ExactIntegers, below: ExactIntegers, valid: NDArray[np.bool_]) -> Array:
    """The doubles nearest to quotients of settled integers, where they are ``valid``."""
    return _completed(above.near / below.near, valid, lambda rows: _each(_divided, above, below, rows))


def roots(above: ExactIntegers, below: ExactIntegers, valid: NDArray[np.bool_]) -> Array:
    """The doubles nearest to the square roots of quotients of settled integers >= 0, where they are ``valid``."""
    return _completed((above.near / below.near).root(), valid, lambda rows: _each(rooted, above, below, rows))


def _completed(near: Enclosed, valid: NDArray[np.bool_], exactly: Callable[[Longs], list[float]]) -> Array:
    values = np.where(valid, near.high, 0.0)
    undecided = np.flatnonzero(valid & ~near.is_decided)
    if len(undecided):
        values[undecided] = exactly(undecided)
    return values


def _each(
    function: Callable[[int, int], float], above: ExactIntegers, below: ExactIntegers, rows: Longs
) -> list[float]:
    pairs = np.broadcast_arrays(np.asarray(above.exactly(rows), object), np.asarray(below.exactly(rows), object))
    return [function(int(numerator), int(other)) for numerator, other in zip(*pairs, strict=True)]


def _divided(above: int, below: int) -> float:
    # Python rounds the quotient of two integers once
    return above / below


def rooted(above: int, below: int) -> float:
    """The double nearest to the square root of a quotient >= 0."""
    if above == 0:
        return 0.0
    # the quotient times 4**shift has 128 bits at least: its root has 64
    shift = max(0, (130 + below.bit_length() - above.bit_length()) // 2 + 1)
    scaled, remainder = divmod(above << 2 * shift, below)
    root = math.isqrt(scaled)
    # whatever was cut off makes the number odd, so that it is not taken for half of the last bit
    root |= int(remainder != 0 or root * root != scaled)
    return math.ldexp(float(root), -shift)


# --------------------------------------------------------------------------------------------- answers
def _unit(type: Type | None) -> ExactIntegers:
    # exact sums are of unscaled decimals
    return ExactIntegers.constant(10 ** (type.scale if type is not None else 0))


def exact_variance(states: States, output: Output, freedom: int, root: bool) -> Lowered:
    """A variance, or with ``root`` a standard deviation; ``freedom`` is taken from the count."""
    count = states["count"]
    valid = count > freedom
    with np.errstate(all="ignore"):
        n, total, squares = (
            ExactIntegers.counts(count),
            ExactIntegers.sums(states["sum"]),
            ExactIntegers.sums(states["power_2"]),
        )
        deviations = (n * squares - total * total).settled()
        unit = _unit(output.argument_type)
        divisor = n * ExactIntegers.counts(np.maximum(count - freedom, 1)) * (unit * unit)
        return Lowered((roots if root else quotients)(deviations, divisor, valid), valid)


def exact_shape(states: States, output: Output, power: int) -> Lowered:
    """A skewness (``power`` 3), or an excess kurtosis (4)."""
    count = states["count"]
    with np.errstate(all="ignore"):
        n, total, *powers = (
            ExactIntegers.counts(count),
            *(ExactIntegers.sums(states[kind]) for kind in ("sum", "power_2", "power_3", "power_4")[:power]),
        )
        square, three = total * total, ExactIntegers.constant(3)
        # n**2, n**3 and n**4 times the central moments
        second = (n * powers[0] - square).settled()
        valid = second.near.high > 0.0
        if power == 3:
            cube = ExactIntegers.constant(2) * square * total
            third = (n * n * powers[1] - three * n * total * powers[0] + cube).settled()
            values = roots(third * third, second * second * second, valid)
            return Lowered(np.copysign(values, third.near.high), valid)
        fourth = n * n * n * powers[2] - ExactIntegers.constant(4) * (n * n * total * powers[1])
        fourth = fourth + ExactIntegers.constant(6) * (n * square * powers[0]) - three * square * square
        return Lowered(quotients((fourth - three * second * second).settled(), second * second, valid), valid)


class ExactPairs:
    """Values computed from the exact states of two numbers over many answers (n,); ``x`` is the first argument."""

    def __init__(self, states: States, output: Output) -> None:
        self.states = states
        self.count: Longs = states["both"]
        self.n = ExactIntegers.counts(self.count)
        self.x_unit, self.y_unit = _unit(output.argument_type), _unit(output.by_type)

    def sum(self, names: str) -> ExactIntegers:
        """The sum of ``x``, ``y``, ``xx``, ``yy`` or ``xy``."""
        return ExactIntegers.sums(self.states[f"pair_{names}"])

    def deviations(self, names: str) -> ExactIntegers:
        """n times the sum of products of deviations, of ``xx``, ``yy`` or ``xy``."""
        return (self.n * self.sum(names) - self.sum(names[0]) * self.sum(names[1])).settled()


def exact_covariance(states: States, output: Output, freedom: int) -> Lowered:
    """A covariance; ``freedom`` is taken from the count."""
    with np.errstate(all="ignore"):
        pairs = ExactPairs(states, output)
        valid = pairs.count > freedom
        divisor = pairs.n * ExactIntegers.counts(np.maximum(pairs.count - freedom, 1)) * (pairs.x_unit * pairs.y_unit)
        return Lowered(quotients(pairs.deviations("xy"), divisor, valid), valid)


def exact_correlation(states: States, output: Output) -> Lowered:
    """A correlation: null where one of both does not vary."""
    with np.errstate(all="ignore"):
        pairs = ExactPairs(states, output)
        xy, xx, yy = (pairs.deviations(names) for names in ("xy", "xx", "yy"))
        valid = (xx.near.high > 0.0) & (yy.near.high > 0.0)
        return Lowered(np.copysign(roots(xy * xy, xx * yy, valid), xy.near.high), valid)


def exact_determination(states: States, output: Output) -> Lowered:
    """The square of the correlation: null where the second does not vary, else 1 where the first does not."""
    with np.errstate(all="ignore"):
        pairs = ExactPairs(states, output)
        xy, xx, yy = (pairs.deviations(names) for names in ("xy", "xx", "yy"))
        x_varies, y_varies = xx.near.high > 0.0, yy.near.high > 0.0
        squared = quotients(xy * xy, xx * yy, x_varies & y_varies)
        return Lowered(np.where(x_varies, squared, 1.0), y_varies)


def exact_slope(states: States, output: Output) -> Lowered:
    """The slope of a regression: null where the second does not vary."""
    with np.errstate(all="ignore"):
        pairs = ExactPairs(states, output)
        xy, yy = pairs.deviations("xy"), pairs.deviations("yy")
        valid = yy.near.high > 0.0
        return Lowered(quotients(xy * pairs.y_unit, yy * pairs.x_unit, valid), valid)


def exact_intercept(states: States, output: Output) -> Lowered:
    """The intercept of a regression: null where the second does not vary."""
    with np.errstate(all="ignore"):
        pairs = ExactPairs(states, output)
        yy = pairs.deviations("yy")
        valid = yy.near.high > 0.0
        crossed = pairs.sum("x") * pairs.sum("yy") - pairs.sum("y") * pairs.sum("xy")
        return Lowered(quotients(crossed.settled(), yy * pairs.x_unit, valid), valid)
