"""Arrays of integers of any width: differences of great numbers, without rounding, for moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.exact_doubles import LIMB, LOW, ExactSums, scaled_limbs

HALF = 1 << (LIMB - 1)

Longs = NDArray[np.int64]

Scaled = tuple[NDArray[np.float64], Longs]
"""Numbers (n,) as integers of up to 53 bits, rounded once, times two to the power of an exponent each."""


def _balanced(digits: Sequence[Longs]) -> tuple[Longs, ...]:
    """The same numbers in digits from -2**31 to 2**31 - 1, whose products fit 64 bits."""
    found, carried = [], np.zeros(1, dtype=np.int64)
    for digit in digits:
        whole = digit + carried
        rest = ((whole + HALF) & LOW) - HALF
        found.append(rest)
        carried = (whole - rest) >> LIMB
    if carried.any():
        rest = ((carried + HALF) & LOW) - HALF
        found += [rest, (carried - rest) >> LIMB]
    while len(found) > 1 and not found[-1].any():
        found.pop()
    return tuple(found)


@dataclass(frozen=True, eq=False)
class WideIntegers:
    """Integers (n,), the balanced ``digits`` (n,) of each times 2**(32 * (``low`` + 0)), …, added."""

    digits: tuple[Longs, ...]
    low: int = 0

    @classmethod
    def of(cls, sums: ExactSums) -> WideIntegers:
        """Exact sums of doubles, of their finite terms."""
        return cls(_balanced([np.ascontiguousarray(column) for column in sums.limbs.T]), sums.low)

    @classmethod
    def counts(cls, numbers: Longs) -> WideIntegers:
        """Integers of 64 bits."""
        return cls(_balanced([numbers & LOW, numbers >> LIMB]))

    def __mul__(self, other: WideIntegers) -> WideIntegers:
        found: list[Any] = [np.zeros(1, dtype=np.int64)] * (len(self.digits) + len(other.digits))
        for at, one in enumerate(self.digits):
            for by, another in enumerate(other.digits, at):
                product = one * another
                found[by] = found[by] + (product & LOW)
                found[by + 1] = found[by + 1] + (product >> LIMB)
        return WideIntegers(_balanced(found), self.low + other.low)

    def times(self, factor: int) -> WideIntegers:
        """Their multiples by a factor below 2**31."""
        return WideIntegers(_balanced([digit * factor for digit in self.digits]), self.low)

    def __add__(self, other: WideIntegers) -> WideIntegers:
        low = min(self.low, other.low)
        found: list[Any] = []
        for one in (self, other):
            for at, digit in enumerate(one.digits, one.low - low):
                found += [np.zeros(1, dtype=np.int64)] * (at + 1 - len(found))
                found[at] = found[at] + digit
        return WideIntegers(_balanced(found), low)

    def __sub__(self, other: WideIntegers) -> WideIntegers:
        return self + other.times(-1)

    def scaled(self) -> Scaled:
        """The nearest numbers of 53 bits."""
        return scaled_limbs(np.stack(np.broadcast_arrays(*self.digits), axis=1), self.low)
