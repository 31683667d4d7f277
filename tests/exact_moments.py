"""Moments of numbers in rational arithmetic, and how far an answer in doubles may be from them: for the oracle.

Of integers and decimals an answer is the double nearest to the exact value, and nothing else.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

EPSILON = Fraction(sys.float_info.epsilon)
LARGEST = Fraction(sys.float_info.max)
SLACK = Fraction(1, 2**100)
"""What double-double arithmetic loses of a sum of n powers, in parts of (n + 16) ** 2 of the powers' magnitude."""


@dataclass(frozen=True)
class Interval:
    """What an answer may be: null or an error besides if ``maybe``; ``value`` None: it is null."""

    value: float | None
    low: float | None = None
    high: float | None = None
    maybe: bool = False


@dataclass(frozen=True)
class _Side:
    """Numbers (n,) exactly, how far the doubles that stand for them may be off (a part of them), and whether all are
    finite."""

    values: list[Fraction]
    off: Fraction
    finite: bool

    @classmethod
    def of(cls, values: Sequence[Any]) -> _Side:
        if not all(math.isfinite(value) for value in values):
            return cls([], Fraction(0), False)
        exact = all(isinstance(value, float) or abs(_unscaled(value)) < 2**53 for value in values)
        return cls([Fraction(value) for value in values], Fraction(0) if exact else 2 * EPSILON, True)

    @property
    def mean(self) -> Fraction:
        return sum(self.values, Fraction(0)) / len(self.values)

    @property
    def most(self) -> Fraction:
        return max(map(abs, self.values))


def _unscaled(value: Any) -> int:
    return int(value.scaleb(-int(value.as_tuple().exponent))) if isinstance(value, Decimal) else int(value)


def _root(value: Fraction) -> Fraction:
    """A square root, to about 60 digits, rounded up."""
    shift = 10**60 if value < 1 else 1
    while value * shift * shift < 10**60 and value:
        shift *= 10**30
    return Fraction(math.isqrt(math.ceil(value * shift * shift)) + 1, shift) if value else Fraction(0)


def _float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _between(value: Fraction, bound: Fraction, maybe: bool = False) -> Interval:
    bound += 8 * EPSILON * abs(value) + Fraction(5e-324)
    return Interval(_float(value), _float(value - bound), _float(value + bound), maybe or abs(value) + bound > LARGEST)


def _corners(numerators: Sequence[Fraction], *divisors: Sequence[Fraction]) -> tuple[Fraction, Fraction]:
    """The least and the greatest of quotients."""
    quotients = [top / math.prod(below, start=Fraction(1)) for top, *below in itertools.product(numerators, *divisors)]
    return min(quotients), max(quotients)


class _Pair:
    """Sums of products of deviations with their bounds."""

    def __init__(self, x: _Side, y: _Side) -> None:
        self.sides = {"x": x, "y": y}
        self.n = len(x.values)
        far = max(x.most, y.most)
        # Dekker's product knows no halves of numbers beyond 2**996, and no errors of products that are subnormal
        self.slack = (self.n + 16) ** 2 * (SLACK if far < 2**990 else 4 * EPSILON)
        self.maybe = any(4 * self.n * a.most * b.most > LARGEST for a in (x, y) for b in (x, y))

    def deviations(self, name: str) -> list[Fraction]:
        side = self.sides[name]
        return [value - side.mean for value in side.values]

    def of(self, first: str, second: str) -> tuple[Fraction, Fraction]:
        a, b = self.sides[first], self.sides[second]
        exact = sum((p * q for p, q in zip(self.deviations(first), self.deviations(second), strict=True)), Fraction(0))
        norms = [_root(sum((value**2 for value in side.values), Fraction(0))) for side in (a, b)]
        spread = [_root(sum((d**2 for d in self.deviations(name)), Fraction(0))) for name in (first, second)]
        bound = a.off * norms[0] * spread[1] + b.off * norms[1] * spread[0] + a.off * b.off * norms[0] * norms[1]
        return exact, 2 * bound + self.slack * norms[0] * norms[1] + self.n * Fraction(2) ** -1060


def is_exact(values: Sequence[Any]) -> bool:
    """Whether no value is a double."""
    return not any(isinstance(value, float) for value in values)


def _nearest_root(square: Fraction, sign: Fraction) -> Interval:
    """The double nearest to a square root, by 300 digits of it."""
    with localcontext(prec=300):
        root = float((Decimal(square.numerator) / Decimal(square.denominator)).sqrt())
    return Interval(math.copysign(root, sign) if sign else 0.0)


def spread_of_exact(function: str, values: Sequence[Any]) -> Interval:
    """The variance or standard deviation of integers and decimals, rounded once."""
    exact, freedom = [Fraction(value) for value in values], 0 if function.endswith("pop") else 1
    if len(exact) <= freedom:
        return Interval(None)
    variance = _central(exact, exact) * len(exact) / (len(exact) - freedom)
    return _nearest_root(variance, variance) if function.startswith("std") else Interval(float(variance))


def _central(x: Sequence[Fraction], y: Sequence[Fraction]) -> Fraction:
    """The mean product of the deviations from both means."""
    x_mean, y_mean = sum(x, Fraction(0)) / len(x), sum(y, Fraction(0)) / len(y)
    return sum(((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True)), Fraction(0)) / len(x)


def _shape_of_exact(function: str, values: Sequence[Any]) -> Interval:
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    second, third, fourth = (sum(((value - mean) ** p for value in exact), Fraction(0)) / len(exact) for p in (2, 3, 4))
    if second == 0:
        return Interval(None)
    return (
        _nearest_root(third**2 / second**3, third)
        if function == "skewness"
        else Interval(float(fourth / second**2 - 3))
    )


def _pair_of_exact(function: str, pairs: Sequence[tuple[Any, Any]]) -> Interval:
    n, x, y = len(pairs), [Fraction(first) for first, _ in pairs], [Fraction(other) for _, other in pairs]
    if function.startswith("covar"):
        freedom = 0 if function == "covar_pop" else 1
        return Interval(float(_central(x, y) * n / (n - freedom)) if n > freedom else None)
    xy, xx, yy = _central(x, y), _central(x, x), _central(y, y)
    if yy == 0 or (function == "corr" and xx == 0):
        return Interval(None)
    if function == "corr":
        return _nearest_root(xy**2 / (xx * yy), xy)
    if function == "regr_r2":
        return Interval(float(xy**2 / (xx * yy)) if xx else 1.0)
    slope = xy / yy
    return Interval(float(slope if function == "regr_slope" else (sum(x) - slope * sum(y)) / n))


def paired(function: str, pairs: Sequence[tuple[Any, Any]]) -> Interval:
    """What an aggregate of two numbers answers for the pairs of which neither is null; ``x`` is the first."""
    if pairs and is_exact([number for pair in pairs for number in pair]):
        return _pair_of_exact(function, pairs)
    x, y = _Side.of([first for first, _ in pairs]), _Side.of([other for _, other in pairs])
    n = len(pairs)
    if function.startswith("covar"):
        freedom = 0 if function == "covar_pop" else 1
        if n <= freedom:
            return Interval(None)
        if not (x.finite and y.finite):
            return Interval(math.nan)
        pair = _Pair(x, y)
        exact, bound = pair.of("x", "y")
        return _between(exact / (n - freedom), bound / (n - freedom), pair.maybe)
    needed = (x, y) if function == "corr" else (y,)
    if n < 2 or any(side.finite and len(set(side.values)) == 1 and side.most < 2**500 for side in needed):
        return Interval(None)
    if not (x.finite and y.finite):
        # whether the finite side varies may be open
        sides = [side for side in needed if side.finite]
        return Interval(math.nan, maybe=any(_Pair(side, side).of("x", "x") <= (0, 0) for side in sides) or bool(sides))
    return _regression(function, _Pair(x, y))


def _regression(function: str, pair: _Pair) -> Interval:
    xy, xx, yy = (pair.of(*names) for names in ("xy", "xx", "yy"))
    x, y = pair.sides["x"], pair.sides["y"]
    divisors = {"corr": (xx, yy), "regr_r2": (xx, yy)}.get(function, (yy,))
    anything = Interval(0.0, -math.inf, math.inf, True)
    if function == "regr_r2" and xx[0] == 0:
        return Interval(1.0, 1.0, 1.0, pair.maybe or yy[0] <= 64 * yy[1])
    if any(value <= 64 * bound for value, bound in divisors):
        return anything
    tops = [xy[0] - xy[1], xy[0] + xy[1]]
    below = [[value - bound, value + bound] for value, bound in divisors]
    if function in ("corr", "regr_r2"):
        low, high = _corners(tops, *([_root(end) for end in ends] for ends in below))
        low, high = max(low, Fraction(-1)), min(high, Fraction(1))
        if function == "regr_r2":
            low, high = (Fraction(0) if low <= 0 <= high else min(low**2, high**2)), max(low**2, high**2)
    else:
        low, high = _corners(tops, *below)
    if function == "regr_intercept":
        slope, around = (low + high) / 2, (high - low) / 2
        means = abs(x.mean) + abs(slope * y.mean)
        bound = around * abs(y.mean) + (4 * EPSILON + x.off + y.off) * means
        return _between(x.mean - slope * y.mean, bound, pair.maybe)
    return _between((low + high) / 2, (high - low) / 2, pair.maybe)


def shape(function: str, values: Sequence[Any]) -> Interval:
    """``skewness`` and ``kurtosis`` of a population."""
    if values and is_exact(values):
        return _shape_of_exact(function, values)
    side, power = _Side.of(values), 3 if function == "skewness" else 4
    n = len(values)
    if n < 2 or (side.finite and len(set(side.values)) == 1):
        return Interval(None, maybe=side.finite and side.most > 1e70)
    if not side.finite:
        return Interval(math.nan)
    unit = side.most
    scaled = [value / unit for value in side.values]
    mean = sum(scaled, Fraction(0)) / n
    moments, bounds = {}, {}
    for p in (2, power):
        moments[p] = sum(((value - mean) ** p for value in scaled), Fraction(0)) / n
        inner = sum((abs(value - mean) ** (p - 1) for value in scaled), Fraction(0)) / n
        magnitude = sum((abs(value) ** p for value in scaled), Fraction(0)) / n
        bounds[p] = 2 * p * side.off * (inner + side.off) + 16 * (n + 16) ** 2 * SLACK * magnitude
    variance = moments[2] * unit * unit
    if moments[2] <= 64 * bounds[2] or variance < 1e-139 or unit < 1e-60:
        return Interval(0.0, -math.inf, math.inf, True)
    tops = [moments[power] - bounds[power], moments[power] + bounds[power]]
    ends = [moments[2] - bounds[2], moments[2] + bounds[2]]
    below = [[end * _root(end) if power == 3 else end * end for end in ends]]
    low, high = _corners(tops, *below)
    off = 3 if power == 4 else 0
    bound = (high - low) / 2 + 8 * EPSILON * max(abs(low), abs(high))
    return _between((low + high) / 2 - off, bound, unit > 1e70)


def geometric_mean(values: Sequence[Any]) -> Interval:
    """exp of the mean logarithm; 0 with a zero and none negative."""
    if any(value != value or value < 0 for value in values):
        return Interval(math.nan)
    if any(value == 0 for value in values):
        return Interval(math.nan if math.inf in values else 0.0)
    if math.inf in values:
        return Interval(math.inf)
    logs = [_log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    off = 16 * sys.float_info.epsilon * (2 + 90 + math.fsum(map(abs, logs)) / len(logs))
    value = math.exp(mean)
    return Interval(value, value * (1 - off), min(value * (1 + off), sys.float_info.max) + 5e-324)


def _log(value: Any) -> float:
    above, below = value.as_integer_ratio()
    return math.log(above) - math.log(below)
