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
    balanced, carried = [], np.zeros(1, dtype=np.int64)
    for digit in digits:
        total = digit + carried
        balanced_digit = ((total + HALF) & LOW) - HALF
        balanced.append(balanced_digit)
        carried = (total - balanced_digit) >> LIMB
    if carried.any():
        balanced_digit = ((carried + HALF) & LOW) - HALF
        balanced += [balanced_digit, (carried - balanced_digit) >> LIMB]
    while len(balanced) > 1 and not balanced[-1].any():
        balanced.pop()
    return tuple(balanced)


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
        products: list[Any] = [np.zeros(1, dtype=np.int64)] * (len(self.digits) + len(other.digits))
        for at, first in enumerate(self.digits):
            for by, another in enumerate(other.digits, at):
                product = first * another
                products[by] = products[by] + (product & LOW)
                products[by + 1] = products[by + 1] + (product >> LIMB)
        return WideIntegers(_balanced(products), self.low + other.low)

    def times(self, factor: int) -> WideIntegers:
        """Their multiples by a factor below 2**31."""
        return WideIntegers(_balanced([digit * factor for digit in self.digits]), self.low)

    def __add__(self, other: WideIntegers) -> WideIntegers:
        low = min(self.low, other.low)
        sums: list[Any] = []
        for term in (self, other):
            for at, digit in enumerate(term.digits, term.low - low):
                sums += [np.zeros(1, dtype=np.int64)] * (at + 1 - len(sums))
                sums[at] = sums[at] + digit
        return WideIntegers(_balanced(sums), low)

    def __sub__(self, other: WideIntegers) -> WideIntegers:
        return self + other.times(-1)

    def scaled(self) -> Scaled:
        """The nearest numbers of 53 bits."""
        return scaled_limbs(np.stack(np.broadcast_arrays(*self.digits), axis=1), self.low)
