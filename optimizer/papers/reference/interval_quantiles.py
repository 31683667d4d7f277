"""Quantiles over base intervals, as published (Arasu & Widom, VLDB 2004, section 3.3)."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from optimizer.combine.elements import doubles, ordinals
from optimizer.combine.runs import check_runs
from optimizer.combine.wavelet_matrix import Longs


def quantile_rank(fraction: Fraction | Decimal, counts: Longs | int) -> Longs:
    """Position of a quantile among ``counts`` sorted elements, from 1: max(1, ceil(fraction * count)), exactly.

    ``fraction`` lies in [0, 1]; a float is refused (TypeError), as 0.29 * 100 is not 29 in floats. Section 3.3 has
    floor(fraction * count), which is no position at all for small counts.
    """
    if isinstance(fraction, float):
        raise TypeError(f"a quantile's fraction is exact: Fraction or Decimal, not {fraction!r}")
    exact = Fraction(fraction)
    if not 0 <= exact <= 1:
        raise ValueError(f"a quantile's fraction lies between 0 and 1, not {fraction}")
    numbers = np.atleast_1d(np.asarray(counts, dtype=np.int64))
    if exact.numerator * int(numbers.max(initial=0)) >= 2**63:
        numbers = numbers.astype(object)
    ranks = -(-numbers * exact.numerator // exact.denominator)
    return np.maximum(ranks.astype(np.int64), 1)


@numba.njit(cache=True)
def _merge(row, below, first, middle, end):
    left, right = first, middle
    for to in range(first, end):
        if right == end or (left < middle and below[left] <= below[right]):
            row[to] = below[left]
            left += 1
        else:
            row[to] = below[right]
            right += 1


@numba.njit(cache=True)
def _update_sorted(rows, position, values):
    """Add ``values`` after ``position`` elements: each base-interval they complete is merged from its halves."""
    size = rows.shape[1]
    for value in values:
        slot = position & (size - 1)
        rows[0, slot] = value
        level, width = 1, 2
        while level < len(rows) and (position + 1) & (width - 1) == 0:
            first = (position + 1 - width) & (size - 1)
            _merge(rows[level], rows[level - 1], first, first + width // 2, first + width)
            level, width = level + 1, width * 2
        position += 1


@numba.njit(cache=True)
def _settle(middles, order, at, first, last):
    """Move the piece at one end of ``order`` to where its new middle belongs."""
    piece = order[at]
    while at < last and middles[order[at + 1]] < middles[piece]:
        order[at] = order[at + 1]
        at += 1
    while at > first and middles[order[at - 1]] > middles[piece]:
        order[at] = order[at - 1]
        at -= 1
    order[at] = piece


_PIECES = 128
"""More than the base-intervals that make up any interval of 64-bit positions."""


@numba.njit(cache=True)
def _lookup_sorted(rows, left, right, rank, out):
    size = rows.shape[1]
    level_of, low, high = np.empty(_PIECES, np.int64), np.empty(_PIECES, np.int64), np.empty(_PIECES, np.int64)
    middles, order = np.empty(_PIECES, np.int64), np.empty(_PIECES, np.int64)
    for i in range(len(left)):
        # the base-intervals that make up (left, right), as pieces [low, high) of the rows
        pieces, level, begin, end = 0, 0, left[i] - 1, right[i]
        while begin < end:
            if begin & 1:
                level_of[pieces], low[pieces] = level, (begin << level) & (size - 1)
                high[pieces] = low[pieces] + (1 << level)
                pieces, begin = pieces + 1, begin + 1
            if end & 1:
                end -= 1
                level_of[pieces], low[pieces] = level, (end << level) & (size - 1)
                high[pieces] = low[pieces] + (1 << level)
                pieces += 1
            level, begin, end = level + 1, begin >> 1, end >> 1
        before = 0  # elements before the middle of their piece
        for piece in range(pieces):
            half = (high[piece] - low[piece] - 1) >> 1
            before += half
            middles[piece] = rows[level_of[piece], low[piece] + half]
            order[piece] = piece
            _settle(middles, order, piece, 0, piece)
        first, last, left_over = 0, pieces - 1, rank[i]
        while first < last:
            # the least middle has rank before + 1 at most, the greatest before + pieces at least
            drop_low = left_over > before + 1
            at = first if drop_low else last
            piece = order[at]
            half = (high[piece] - low[piece] - 1) >> 1
            before -= half
            if drop_low:
                low[piece] += half + 1
                left_over -= half + 1
            else:
                high[piece] = low[piece] + half
            if low[piece] == high[piece]:
                if drop_low:
                    first += 1
                else:
                    last -= 1
            else:
                half = (high[piece] - low[piece] - 1) >> 1
                before += half
                middles[piece] = rows[level_of[piece], low[piece] + half]
                _settle(middles, order, at, first, last)
        piece = order[first]
        out[i] = rows[level_of[piece], low[piece] + left_over - 1]


class BaseIntervalQuantiles:
    """B-INT-QNT (section 3.3): a sorted array for every active base-interval; online, as published.

    Positions count from 1; a look-up (left, right) is inclusive and lies within the last ``longest`` (N_max) positions.
    Values are integers, or doubles if ``dtype`` is float64. O(N_max log N_max) space, O(log N_max) an amortised update.
    A look-up halves one of the p = O(log width) arrays at a time, the one with the least or the greatest middle; the
    paper's bound O(p log p log width) is for a heap of the middles, for p below 40 a sorted list is quicker.
    """

    def __init__(self, longest: int, dtype: Any = np.int64) -> None:
        if longest < 1:
            raise ValueError(f"windows reach back at least one element, not {longest}")
        self.longest = longest
        self.length = 0
        self.dtype = np.dtype(dtype)
        levels = (longest - 1).bit_length()
        self._rows = np.zeros((levels + 1, 1 << levels), dtype=np.int64)

    def update(self, value: float) -> None:
        """UPDATE(value): the next element."""
        self.update_many(np.array([value], dtype=self.dtype))

    def update_many(self, values: NDArray[Any]) -> None:
        """The next elements (k,)."""
        exact = np.issubdtype(self.dtype, np.integer)
        numbers = np.asarray(values, dtype=np.int64) if exact else ordinals(values)
        _update_sorted(self._rows, self.length, numbers)
        self.length += len(numbers)

    def lookup(self, left: int, right: int, fraction: Fraction | Decimal) -> Any:
        """LOOKUP(left, right): the quantile of these positions; ``fraction`` as for :func:`quantile_rank`."""
        rank = quantile_rank(fraction, max(right - left + 1, 0))
        return self.lookup_many(np.array([left], dtype=np.int64), np.array([right], dtype=np.int64), rank).item()

    def lookup_many(self, left: Longs, right: Longs, rank: Longs) -> NDArray[Any]:
        """The ``rank``-th smallest, from 1, of many intervals of positions: (a,). Raises ValueError if an interval is
        empty or reaches back too far, or if a rank exceeds its width."""
        check_runs(left - 1, right, self.length)
        fits = len(rank) == len(left) and bool(((rank >= 1) & (rank <= right - left + 1)).all())
        if not fits or (left <= self.length - self.longest).any():
            raise ValueError("an interval reaches back beyond what is kept, or has no such rank")
        out = np.empty(len(left), dtype=np.int64)
        _lookup_sorted(self._rows, left, right, rank, out)
        return out if np.issubdtype(self.dtype, np.integer) else doubles(out)
