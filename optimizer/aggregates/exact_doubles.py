"""Exact sums of doubles, and of their powers and products: integers in limbs of 32 bits at a binary exponent.

A double is an integer of 53 bits times a power of two, and so is a product of doubles, with more bits. Such numbers
are added without any rounding as integers of many limbs: the order of the terms, how they are cut into parts, and
parts that are subtracted again cannot change a bit. An answer is rounded once. The limbs of some cells cover the
exponents that occur in them, three to five limbs as a rule; 67 cover all doubles, 134 all squares.

References: Kulisch and Miranker, "The arithmetic of the digital computer" (1986), for the long accumulator; Neal, "Fast
exact summation using small and large superaccumulators" (2015), for its limbs with room for carries (section 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numba
import numpy as np
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

LIMB = 32
LOW = (1 << LIMB) - 1

NAN, INFINITE, NEGATIVE = 1, 2, 4
"""Marks of a sum: a NaN, an infinity, a negative infinity among its terms. They do not enter the limbs."""

BIAS = 1075
"""A double with the exponent field e is an integer of 53 bits times 2**(e - 1075); a field of 0 counts as 1."""

_MANTISSA = (1 << 52) - 1
_IMPLICIT = 1 << 52
_SIGNLESS = (1 << 63) - 1

FOLDED, FULL = 1 << 4, 1 << 38
"""A last limb below the former is folded into the limb before it; one above the latter is split. So 2**25 sums are
added before a limb needs a carry."""

DIGITS = {1: 2, 2: 4, 3: 6, 4: 8}
"""Limbs of the power of an integer of 53 bits, by its exponent."""

Longs = NDArray[np.int64]


# ------------------------------------------------------------------------------------------ lifting
@numba.njit(cache=True)
def _span(bits):
    least, greatest = 2048, 0
    for i in range(len(bits)):
        field = (bits[i] >> 52) & 2047
        if field < 2047 and bits[i] & _SIGNLESS:
            least, greatest = min(least, max(field, 1)), max(greatest, max(field, 1))
    return least, greatest


@dataclass(frozen=True, eq=False)
class Terms:
    """Doubles (n,) that are summed, as their ``bits``; exponent fields of the finite ones other than 0 are in
    [``least``, ``greatest``]."""

    bits: Longs
    least: int
    greatest: int

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Terms:
        """The terms of doubles (n,); O(n)."""
        bits = np.ascontiguousarray(values).view(np.int64)
        least, greatest = _span(bits)
        return cls(bits, min(least, max(greatest, 1)), max(greatest, 1))


def _lowest(terms: Sequence[Terms], power: int) -> int:
    return power * sum(term.least - BIAS for term in terms) >> 5


def limbs_between(terms: Sequence[Terms], power: int) -> int:
    """The number of limbs that sums of a power of some terms, or of the products of two, may reach."""
    highest = power * sum(term.greatest - BIAS for term in terms) >> 5
    return highest - _lowest(terms, power) + DIGITS[power * len(terms)] + 1


@numba.njit(cache=True)
def _lift_values(cells, rows, bits, valid, base, out, special):
    for k in range(len(cells)):
        i = rows[k] if len(rows) else k
        if len(valid) and not valid[i]:
            continue
        word = bits[i]
        field, digits = (word >> 52) & 2047, word & _MANTISSA
        if field == 2047:
            special[cells[k]] |= NAN if digits else NEGATIVE if word < 0 else INFINITE
            continue
        if field:
            digits |= _IMPLICIT
        elif digits:
            field = 1
        else:
            continue
        place = field - base
        at, shift, sign = place >> 5, place & 31, word >> 63
        upper = digits >> (32 - shift)
        cell = cells[k]
        out[cell, at] += (((digits << shift) & LOW) ^ sign) - sign
        out[cell, at + 1] += ((upper & LOW) ^ sign) - sign
        out[cell, at + 2] += ((upper >> 32) ^ sign) - sign


@numba.njit(cache=True, inline="always")
def _kind(word):
    """The mark of a double that is not finite, else 0."""
    if (word >> 52) & 2047 < 2047:
        return 0
    return NAN if word & _MANTISSA else NEGATIVE if word < 0 else INFINITE


@numba.njit(cache=True)
def _lift_products(cells, rows, first, second, valid, base, out, special):
    for k in range(len(cells)):
        i = rows[k] if len(rows) else k
        if len(valid) and not valid[i]:
            continue
        x, y, cell = first[i], second[i], cells[k]
        x_field, y_field = (x >> 52) & 2047, (y >> 52) & 2047
        if x_field == 2047 or y_field == 2047:
            marks = _kind(x) | _kind(y)
            if marks & NAN or not x & _SIGNLESS or not y & _SIGNLESS:
                special[cell] |= NAN
            else:
                special[cell] |= NEGATIVE if (x ^ y) < 0 else INFINITE
            continue
        a, b = x & _MANTISSA, y & _MANTISSA
        if x_field:
            a |= _IMPLICIT
        if y_field:
            b |= _IMPLICIT
        if a == 0 or b == 0:
            continue
        # 106 bits in four limbs, then shifted into five; products may wrap, their halves do not
        a_high, a, b_high, b = a >> 32, a & LOW, b >> 32, b & LOW
        low, middle, high = a * b, a * b_high + a_high * b, a_high * b_high
        carried = ((low >> 32) & LOW) + (middle & LOW)
        above = (carried >> 32) + (middle >> 32) + (high & LOW)
        low, middle, carried, high = low & LOW, carried & LOW, above & LOW, (above >> 32) + (high >> 32)
        place = max(x_field, 1) + max(y_field, 1) - base
        at, shift, sign = place >> 5, place & 31, (x ^ y) >> 63
        back = 32 - shift
        out[cell, at] += (((low << shift) & LOW) ^ sign) - sign
        out[cell, at + 1] += ((((middle << shift) & LOW) | (low >> back)) ^ sign) - sign
        out[cell, at + 2] += ((((carried << shift) & LOW) | (middle >> back)) ^ sign) - sign
        out[cell, at + 3] += ((((high << shift) & LOW) | (carried >> back)) ^ sign) - sign
        out[cell, at + 4] += ((high >> back) ^ sign) - sign


@numba.njit(cache=True)
def _lift_squares(cells, rows, bits, valid, base, out, special):
    for k in range(len(cells)):
        i = rows[k] if len(rows) else k
        if len(valid) and not valid[i]:
            continue
        word, cell = bits[i], cells[k]
        field, digits = (word >> 52) & 2047, word & _MANTISSA
        if field == 2047:
            special[cell] |= NAN if digits else INFINITE
            continue
        if field:
            digits |= _IMPLICIT
        elif digits:
            field = 1
        else:
            continue
        # 106 bits in two words, each shifted in halves; a word may wrap, its halves do not
        above, below = digits >> 32, digits & LOW
        middle = above * below
        low = below * below
        carried = ((low >> 32) & LOW) + ((middle & (LOW >> 1)) << 1)
        high = above * above + (middle >> 31) + (carried >> 32)
        low, carried = low & LOW, carried & LOW
        place = 2 * field - base
        at, shift = place >> 5, place & 31
        back = 32 - shift
        out[cell, at] += (low << shift) & LOW
        out[cell, at + 1] += ((carried << shift) & LOW) | (low >> back)
        out[cell, at + 2] += ((high << shift) & LOW) | (carried >> back)
        upper = high >> back
        out[cell, at + 3] += upper & LOW
        out[cell, at + 4] += upper >> 32


@numba.njit(cache=True)
def _multiply(a, b, out):
    """Write the product of two non-negative numbers in limbs of 32 bits into ``out`` (len(a) + len(b),)."""
    out[:] = 0
    for i in range(len(a)):
        carried = 0
        for j in range(len(b)):
            # the product wraps, its halves do not
            product = a[i] * b[j]
            limb = out[i + j] + (product & LOW) + carried
            out[i + j] = limb & LOW
            carried = ((product >> 32) & LOW) + (limb >> 32)
        out[i + len(b)] = carried


@numba.njit(cache=True)
def _lift_powers(cells, rows, bits, valid, power, base, out, special):
    digits, square = np.empty(2, np.int64), np.empty(4, np.int64)
    cube, fourth = np.empty(6, np.int64), np.empty(8, np.int64)
    product = cube if power == 3 else fourth
    for k in range(len(cells)):
        i = rows[k] if len(rows) else k
        if len(valid) and not valid[i]:
            continue
        word, cell = bits[i], cells[k]
        field, significand = (word >> 52) & 2047, word & _MANTISSA
        if field == 2047:
            special[cell] |= NAN if significand else NEGATIVE if word < 0 and power == 3 else INFINITE
            continue
        if field:
            significand |= _IMPLICIT
        if significand == 0:
            continue
        digits[0], digits[1] = significand & LOW, significand >> 32
        _multiply(digits, digits, square)
        if power == 3:
            _multiply(square, digits, cube)
        else:
            _multiply(square, square, fourth)
        place = power * max(field, 1) - base
        at, shift, sign = place >> 5, place & 31, (word >> 63) if power == 3 else 0
        before = 0
        for j in range(len(product)):
            out[cell, at + j] += ((((product[j] << shift) & LOW) | before) ^ sign) - sign
            before = product[j] >> (32 - shift)
        out[cell, at + len(product)] += (before ^ sign) - sign


# ------------------------------------------------------------------------------------------ sums
@numba.njit(cache=True)
def _add(cells, limbs, marks, out, special):
    for i in range(len(cells)):
        cell = cells[i]
        special[cell] |= marks[i]
        for at in range(limbs.shape[1]):
            out[cell, at] += limbs[i, at]


@numba.njit(cache=True)
def _carry(limbs, used):
    """Carry each limb's excess to the next, in place; mark the limbs that are not 0 everywhere. The greatest magnitude
    of the last."""
    last, most = limbs.shape[1] - 1, 0
    for i in range(len(limbs)):
        carried = 0
        for at in range(last):
            limb = limbs[i, at] + carried
            limbs[i, at], carried = limb & LOW, limb >> 32
            used[at] |= limbs[i, at] != 0
        limbs[i, last] += carried
        used[last] |= limbs[i, last] != 0
        most = max(most, abs(limbs[i, last]))
    return most


@dataclass(frozen=True, eq=False)
class ExactSums:
    """Sums (n,) of doubles without error: of each ``limbs`` (n, k) times 2**(32 * (``low`` + 0)), …, added; and
    ``special`` (n,) uint8, the marks of terms that are not finite.

    All limbs but the last are from 0 to 2**32 - 1, where :meth:`settled` made them.
    """

    limbs: Longs
    low: int
    special: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.limbs)

    @property
    def size(self) -> int:
        """Bytes of its arrays."""
        return int(self.limbs.nbytes + self.special.nbytes)

    @classmethod
    def nothing(cls, sums: int) -> ExactSums:
        """Sums of no terms."""
        return cls(np.zeros((sums, 1), dtype=np.int64), 0, np.zeros(sums, dtype=np.uint8))

    @classmethod
    def lifted(
        cls, cells: Any, rows: Any, sums: int, valid: NDArray[np.bool_], terms: Sequence[Terms], power: int = 1
    ) -> ExactSums:
        """Sums of the terms of events in ``cells`` (k,), of their ``power``, or of the products of two terms.

        ``rows`` (k,): the events, empty for all; ``valid`` (n,): where an event counts, empty for everywhere.
        """
        powers, low = power * len(terms), _lowest(terms, power)
        limbs = np.zeros((sums, limbs_between(terms, power)), dtype=np.int64)
        special = np.zeros(sums, dtype=np.uint8)
        events, base = (cells, rows, *(term.bits for term in terms)), powers * BIAS + 32 * low
        if powers == 1:
            _lift_values(*events, valid, base, limbs, special)
        elif power == 2:
            _lift_squares(*events, valid, base, limbs, special)
        elif powers == 2:
            _lift_products(*events, valid, base, limbs, special)
        else:
            _lift_powers(*events, valid, power, base, limbs, special)
        return cls(limbs, low, special).settled()

    @classmethod
    def of_pairs(cls, high: NDArray[np.float64], low: NDArray[np.float64]) -> ExactSums:
        """Double-doubles (n,), exactly."""
        cells = np.tile(np.arange(len(high), dtype=np.int32), 2)
        terms = Terms.of(np.concatenate([high, low]))
        return cls.lifted(cells, np.empty(0, np.int32), len(high), np.empty(0, dtype=np.bool_), (terms,))

    def settled(self) -> ExactSums:
        """The same with carried limbs, those that it needs; the limbs are changed in place."""
        limbs, low = self.limbs, self.low
        used = np.zeros(limbs.shape[1], dtype=np.bool_)
        most = _carry(limbs, used)
        if not used.any():
            return ExactSums(limbs[:, :1], 0, self.special)
        if most >= FULL:
            limbs = np.concatenate([limbs, limbs[:, -1:] >> LIMB], axis=1)
            limbs[:, -2] &= LOW
            return ExactSums(limbs, low, self.special)
        first, last = int(np.argmax(used)), limbs.shape[1]
        while last - first > 1 and most < FOLDED:
            last -= 1
            if used[last]:
                limbs[:, last - 1] += limbs[:, last] << LIMB
            most = int(np.abs(limbs[:, last - 1]).max())
        if last - first < limbs.shape[1]:
            limbs = np.ascontiguousarray(limbs[:, first:last])
        return ExactSums(limbs, low + first, self.special)

    def take(self, rows: Any) -> ExactSums:
        """The sums of the given rows."""
        return ExactSums(self.limbs.take(rows, axis=0), self.low, self.special[rows])

    def within(self, rows: slice) -> ExactSums:
        """The sums of a slice of the rows."""
        return ExactSums(self.limbs[rows], self.low, self.special[rows])

    def _spread(self, low: int, width: int) -> Longs:
        """The limbs of another span that holds theirs."""
        if low == self.low and width == self.limbs.shape[1]:
            return self.limbs
        out = np.zeros((len(self), width), dtype=np.int64)
        out[:, self.low - low : self.low - low + self.limbs.shape[1]] = self.limbs
        return out

    @staticmethod
    def joined(state: Any, parts: Sequence[ExactSums]) -> ExactSums:
        """Several one behind the other."""
        low = min(part.low for part in parts)
        width = max(part.low + part.limbs.shape[1] for part in parts) - low
        limbs = np.concatenate([part._spread(low, width) for part in parts])
        return ExactSums(limbs, low, np.concatenate([part.special for part in parts]))

    def combined(self, state: Any, cell: Longs, cells: int) -> ExactSums:
        """The sums of ``cells`` cells; ``cell`` (n,): into which each goes. O(n)."""
        out = ExactSums(np.zeros((cells, self.limbs.shape[1]), np.int64), self.low, np.zeros(cells, np.uint8))
        _add(cell, self.limbs, self.special, out.limbs, out.special)
        return out.settled()

    # -------------------------------------------------------------------------------------- answers
    def rounded(self) -> NDArray[np.float64]:
        """The nearest double of each, as IEEE 754 rounds it (to even, infinite beyond the greatest)."""
        out = np.empty(len(self))
        _round(self.limbs, 32 * self.low, out)
        return self._marked(out)

    def means(self, counts: Longs) -> NDArray[np.float64]:
        """The nearest double of each divided by its count (n,), from 1."""
        out = np.empty(len(self))
        _divide(self.limbs, 32 * self.low, counts, out)
        for row in np.flatnonzero(counts > LOW):
            mean = self.fraction(int(row)) / int(counts[row])
            out[row] = quotient(mean.numerator, mean.denominator)
        return self._marked(out)

    def _marked(self, out: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.special.any():
            marks = self.special
            out[marks & INFINITE > 0] = np.inf
            out[marks & NEGATIVE > 0] = -np.inf
            out[(marks & NAN > 0) | (marks & (INFINITE | NEGATIVE) == INFINITE | NEGATIVE)] = np.nan
        return out

    def fraction(self, row: int) -> Fraction:
        """The sum of the finite terms of one row, as a rational number."""
        integer = sum(int(limb) << (LIMB * at) for at, limb in enumerate(self.limbs[row]))
        return Fraction(integer) * Fraction(2) ** (LIMB * self.low)

    # -------------------------------------------------------------------------------------- stored rows
    def packed(self) -> tuple[Longs, Longs, Longs]:
        """The stored form, equal for equal sums: heads (n,), word counts (n,), and all words one after the other (m,).

        A head contains the marks, from bit 3 on whether the sum is negative, from bit 4 on the number of its limbs from
        the first to the last that is not 0, and from bit 16 on the position of the first plus 2**15. A word is two
        limbs of the magnitude, the first in its low half.
        """
        heads, counts = np.empty(len(self), dtype=np.int64), np.empty(len(self), dtype=np.int64)
        words = np.empty(len(self) * (self.limbs.shape[1] // 2 + 1), dtype=np.int64)
        used = _pack(self.limbs, self.low, self.special, heads, counts, words)
        return heads, counts, words[:used]

    @classmethod
    def unpacked(cls, heads: Longs, parts: Sequence[tuple[Longs, Longs]]) -> ExactSums:
        """The inverse of :meth:`packed`; ``parts``: numbers, and at which of them the words of each next sum begin."""
        low, high = _extent(heads)
        limbs, first = np.zeros((len(heads), max(high - low, 1)), dtype=np.int64), 0
        for words, places in parts:
            _unpack(heads[first : first + len(places)], words, places, low, limbs[first:])
            first += len(places)
        return cls(limbs, low if high > low else 0, (heads & 7).astype(np.uint8)).settled()


def words_of(heads: Longs) -> Longs:
    """The number (n,) of words of packed sums, from their heads (n,)."""
    return (((heads >> 4) & 4095) + 1) >> 1


@numba.njit(cache=True)
def _extent(heads):
    low, high = 1 << 15, -(1 << 15)
    for i in range(len(heads)):
        limbs = (heads[i] >> 4) & 4095
        if limbs:
            first = (heads[i] >> 16) - (1 << 15)
            low, high = min(low, first), max(high, first + limbs)
    return low, high


@numba.njit(cache=True)
def _magnitude(limbs, row, digits):
    """The magnitude of a sum in limbs of 32 bits, one more than it has; whether it is negative; its last limb that is
    not 0, or -1."""
    size, carried = limbs.shape[1], 0
    for at in range(size):
        limb = limbs[row, at] + carried
        digits[at], carried = limb & LOW, limb >> 32
    digits[size] = carried
    negative = carried < 0
    if negative:
        carried = 0
        for at in range(size + 1):
            limb = carried - digits[at]
            digits[at], carried = limb & LOW, limb >> 32
    last = size
    while last >= 0 and digits[last] == 0:
        last -= 1
    return negative, last


@numba.njit(cache=True)
def _pack(limbs, low, special, heads, counts, words):
    digits, used = np.empty(limbs.shape[1] + 1, np.int64), 0
    for i in range(len(limbs)):
        negative, last = _magnitude(limbs, i, digits)
        heads[i], counts[i] = special[i], 0
        if last < 0:
            continue
        first = 0
        while digits[first] == 0:
            first += 1
        size = last + 1 - first
        heads[i] |= (np.int64(negative) << 3) | (size << 4) | ((low + first + (1 << 15)) << 16)
        counts[i] = (size + 1) >> 1
        for at in range(first, last + 1, 2):
            words[used] = digits[at] | ((digits[at + 1] if at < last else 0) << 32)
            used += 1
    return used


@numba.njit(cache=True)
def _unpack(heads, words, places, low, limbs):
    for i in range(len(heads)):
        head = heads[i]
        size, sign = (head >> 4) & 4095, -((head >> 3) & 1)
        first, used = (head >> 16) - (1 << 15) - low, places[i]
        for at in range(0, size, 2):
            word = words[used]
            used += 1
            limbs[i, first + at] = ((word & LOW) ^ sign) - sign
            if at + 1 < size:
                limbs[i, first + at + 1] = (((word >> 32) & LOW) ^ sign) - sign


# ------------------------------------------------------------------------------------------ rounding
@intrinsic
def _leading_zeros(typing_context, number):
    def code(context, builder, signature, arguments):
        return builder.ctlz(arguments[0], cgutils.false_bit)

    return numba.int64(numba.int64), code


@numba.njit(cache=True, inline="always")
def _leading(digits, last, is_rest):
    """The first 64 bits of a number whose last limb other than 0 is ``last``, the number of bits in that limb, and
    whether any bit follows the 64; ``is_rest``: whether any bit follows all limbs.
    """
    bits = 64 - _leading_zeros(digits[last])
    word = np.uint64(digits[last]) << np.uint64(64 - bits)
    if last > 0:
        word |= np.uint64(digits[last - 1]) << np.uint64(32 - bits)
    if last > 1:
        word |= np.uint64(digits[last - 2]) >> np.uint64(bits)
        is_rest |= digits[last - 2] & ((1 << bits) - 1) != 0
    at = last - 3
    while at >= 0 and not is_rest:
        is_rest = digits[at] != 0
        at -= 1
    return word, bits, is_rest


@numba.njit(cache=True, inline="always")
def _kept(word, kept, is_rest):
    """The first bits of a word, rounded to even."""
    dropped = np.uint64(64 - kept)
    rounded, half = word >> dropped, np.uint64(1) << (dropped - np.uint64(1))
    remainder = word & ((half << np.uint64(1)) - np.uint64(1))
    if remainder > half or (remainder == half and (is_rest or rounded & np.uint64(1))):
        rounded += np.uint64(1)
    return np.float64(rounded)


@numba.njit(cache=True)
def _nearest(digits, last, exponent, is_rest):
    """The nearest double of a number in limbs, the first of which is times 2**exponent."""
    if last < 0:
        return 0.0
    word, bits, is_rest = _leading(digits, last, is_rest)
    top = exponent + 32 * last + bits - 1
    if top > 1023:
        return np.inf
    precision = min(53, top + 1075)
    if precision <= 0:
        # half of the least double, and more
        return 5e-324 if precision == 0 and (is_rest or word != np.uint64(1) << np.uint64(63)) else 0.0
    return math.ldexp(_kept(word, precision, is_rest), top + 1 - precision)


@numba.njit(cache=True)
def _round(limbs, exponent, out):
    digits = np.empty(limbs.shape[1] + 1, np.int64)
    for i in range(len(limbs)):
        negative, last = _magnitude(limbs, i, digits)
        nearest = _nearest(digits, last, exponent, False)
        out[i] = -nearest if negative else nearest


_BELOW = 4
"""Limbs behind the point of a quotient: 64 bits of it at least are there, whatever it is divided by."""


@numba.njit(cache=True)
def _divide(limbs, exponent, counts, out):
    size = limbs.shape[1] + 1
    digits, quotient = np.empty(size, np.int64), np.empty(size + _BELOW, np.int64)
    for i in range(len(limbs)):
        negative, last = _magnitude(limbs, i, digits)
        count, remainder = np.uint64(counts[i] & LOW), np.uint64(0)
        if last < 0 or count == 0:
            out[i] = 0.0
            continue
        at, first = last + _BELOW, -1
        # 65 bits at least are in three limbs; of what is behind only matters whether it is 0
        while at >= 0 and (first < 0 or first - at < 3):
            remainder = (remainder << np.uint64(32)) | np.uint64(digits[at - _BELOW] if at >= _BELOW else 0)
            quotient[at] = np.int64(remainder // count)
            remainder %= count
            if first < 0 and quotient[at]:
                first = at
            at -= 1
        is_rest = remainder != 0
        quotient[: at + 1] = 0
        for below in range(at + 1 - _BELOW):
            is_rest |= digits[below] != 0
        nearest = _nearest(quotient, first, exponent - 32 * _BELOW, is_rest)
        out[i] = -nearest if negative else nearest


@numba.njit(cache=True)
def _scale(limbs, exponent, fractions, exponents):
    digits = np.empty(limbs.shape[1] + 1, np.int64)
    for i in range(len(limbs)):
        negative, last = _magnitude(limbs, i, digits)
        fractions[i] = exponents[i] = 0
        if last >= 0:
            word, bits, is_rest = _leading(digits, last, False)
            fraction = _kept(word, 53, is_rest)
            fractions[i] = -fraction if negative else fraction
            exponents[i] = exponent + 32 * last + bits - 53


@numba.njit(cache=True, inline="always")
def _balance(limbs, row, digits):
    """The digits from -2**31 to 2**31 - 1 of a sum, at most two more than it has limbs; how many."""
    carried = size = 0
    for at in range(len(digits)):
        limb = carried + (limbs[row, at] if at < limbs.shape[1] else 0)
        digits[at] = ((limb + (1 << 31)) & LOW) - (1 << 31)
        carried = (limb - digits[at]) >> 32
        if digits[at]:
            size = at + 1
    return size


@numba.njit(cache=True, inline="always")
def _multiply_add(a, a_size, b, b_size, sign, at, out):
    """Add a product of balanced digits, or subtract it, from a place on."""
    for i in range(a_size):
        for j in range(b_size):
            product = a[i] * b[j]
            out[0, at + i + j] += sign * (product & LOW)
            out[0, at + i + j + 1] += sign * (product >> 32)


@numba.njit(cache=True)
def _codeviate(counts, first, second, products, product_at, sums_at, exponent, fractions, exponents):
    a, b = np.empty(first.shape[1] + 2, np.int64), np.empty(second.shape[1] + 2, np.int64)
    c, n = np.empty(products.shape[1] + 2, np.int64), np.empty(3, np.int64)
    size = max(product_at + len(c) + len(n), sums_at + len(a) + len(b)) + 1
    out, digits = np.empty((1, size), np.int64), np.empty(size + 1, np.int64)
    counted = counts.reshape((-1, 1))
    for i in range(len(counts)):
        out[:] = 0
        _multiply_add(n, _balance(counted, i, n), c, _balance(products, i, c), 1, product_at, out)
        _multiply_add(a, _balance(first, i, a), b, _balance(second, i, b), -1, sums_at, out)
        negative, last = _magnitude(out, 0, digits)
        fractions[i] = exponents[i] = 0
        if last >= 0:
            word, bits, is_rest = _leading(digits, last, False)
            fraction = _kept(word, 53, is_rest)
            fractions[i] = -fraction if negative else fraction
            exponents[i] = exponent + 32 * last + bits - 53


def codeviations(
    counts: Longs, first: ExactSums, second: ExactSums, products: ExactSums
) -> tuple[NDArray[np.float64], Longs]:
    """Counts (n,) times the sums of products less the products of two sums, rounded once: as :func:`scaled_limbs`."""
    fractions, exponents = np.empty(len(counts)), np.empty(len(counts), dtype=np.int64)
    low = min(products.low, first.low + second.low)
    limbs = (np.ascontiguousarray(sums.limbs) for sums in (first, second, products))
    places = products.low - low, first.low + second.low - low, LIMB * low
    _codeviate(np.ascontiguousarray(counts), *limbs, *places, fractions, exponents)
    return fractions, exponents


def scaled_limbs(limbs: Longs, low: int) -> tuple[NDArray[np.float64], Longs]:
    """The first 53 bits, rounded, and the exponent of two of numbers (n,) in limbs, as in :class:`ExactSums`."""
    fractions, exponents = np.empty(len(limbs)), np.empty(len(limbs), dtype=np.int64)
    _scale(np.ascontiguousarray(limbs), LIMB * low, fractions, exponents)
    return fractions, exponents


def quotient(above: int, below: int) -> float:
    """The nearest double of a quotient, infinite beyond the greatest."""
    try:
        return above / below
    except OverflowError:
        return math.inf if above > 0 else -math.inf
