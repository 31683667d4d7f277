"""Holistic aggregates of many runs over one array of elements: quantiles, distinct values, modes, top k; HyperLogLog.

Such an aggregate has no state of constant size, so a fragment keeps its *elements*: values, each with a weight (how
often it occurs). The elements of all fragments stand one after the other, and a run of fragments [low, high) is the
run [offsets[low], offsets[high]) of elements. All functions here take runs of elements.

- quantiles of runs in any order: a *wavelet matrix*, one step a bit of the values' ranks;
- distinct values of runs in any order: an element counts if it is the first of its value in the run. Counts of
  (position, previous occurrence) on a coarse grid, and the strips beyond its lines counted by vector instructions;
- modes, top k and HyperLogLog of runs that move forward, as the windows of one query do: elements enter and leave one
  by one, a tournament over the counts names the most frequent, and each register keeps its descending maxima.

:class:`BaseIntervalQuantiles` is the published online structure, kept as reference and baseline.

References
----------
Arasu & Widom (VLDB 2004), section 3.3: B-INT-QNT. Claude, Navarro, Ordóñez, "The wavelet matrix" (2015).
Flajolet et al., "HyperLogLog" (2007); Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017),
section 3, Algorithm 6: the improved raw estimator, which needs no correction of bias.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numba
import numpy as np
from numba.extending import intrinsic
from numpy.typing import NDArray

from optimizer.intervals import check_runs, doubles, ordinals

Longs = NDArray[np.int64]


def quantile_rank(fraction: Fraction | Decimal, counts: Longs | int) -> Longs:
    """Position of a quantile among so many sorted elements, from 1: max(1, ceil(fraction * count)), exactly.

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


def _codes(values: Longs) -> tuple[Longs, Longs]:
    """Values as numbers (m,) from 0 in the same order, and the value of each number."""
    if len(values) == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    least, greatest = int(values.min()), int(values.max())
    if greatest - least < 2 * len(values):
        return values - least, np.arange(least, greatest + 1, dtype=np.int64)
    distinct, codes = np.unique(values, return_inverse=True)
    return codes, distinct


# ------------------------------------------------------------------------------------------- quantiles
@intrinsic
def _ones(typing_context, word):
    def code(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return numba.uint64(numba.uint64), code


@numba.njit(cache=True)
def _build_wavelet(codes, weights, levels, blocks, zeros, totals):
    """``weights`` and ``totals`` are empty where every weight is 1."""
    size = len(codes)
    other, other_weights = np.empty_like(codes), np.empty_like(weights)
    for level in range(levels):
        shift = levels - 1 - level
        ones = np.uint64(0)
        for block in range(size // 64 + 1):
            word = np.uint64(0)
            for i in range(block * 64, min(size, block * 64 + 64)):
                word |= np.uint64((codes[i] >> shift) & 1) << np.uint64(i & 63)
            blocks[level, block, 0] = ones
            blocks[level, block, 1] = word
            ones += _ones(word)
        zeros[level] = size - np.int64(ones)
        to_zeros, to_ones = 0, zeros[level]
        for i in range(size):
            code = codes[i]
            bit = (code >> shift) & 1
            to = to_ones if bit else to_zeros
            other[to] = code
            if len(weights):
                other_weights[to] = weights[i]
            to_ones += bit
            to_zeros += 1 - bit
        codes, other = other, codes
        weights, other_weights = other_weights, weights
        if len(weights):
            for i in range(size):
                totals[level + 1, i + 1] = totals[level + 1, i] + weights[i]


@numba.njit(cache=True)
def _ones_before(blocks, level, index):
    block = index >> 6
    below = blocks[level, block, 1] & ((np.uint64(1) << np.uint64(index & 63)) - np.uint64(1))
    return np.int64(blocks[level, block, 0] + _ones(below))


_TOGETHER = 64
"""Look-ups that go down the levels side by side: while one waits for memory the others go on."""


@numba.njit(cache=True)
def _answer_wavelet(blocks, zeros, totals, low, high, rank, out):
    levels = len(zeros)
    weighted = totals.shape[1] > 0
    first, last, left = np.empty(_TOGETHER, np.int64), np.empty(_TOGETHER, np.int64), np.empty(_TOGETHER, np.int64)
    for begin in range(0, len(low), _TOGETHER):
        count = min(_TOGETHER, len(low) - begin)
        for i in range(count):
            first[i], last[i], left[i] = low[begin + i], high[begin + i], rank[begin + i] - 1
            out[begin + i] = 0
        for level in range(levels):
            for i in range(count):
                ones_first = _ones_before(blocks, level, first[i])
                ones_last = _ones_before(blocks, level, last[i])
                zeros_first, zeros_last = first[i] - ones_first, last[i] - ones_last
                if weighted:
                    lighter = np.int64(totals[level + 1, zeros_last]) - np.int64(totals[level + 1, zeros_first])
                else:
                    lighter = zeros_last - zeros_first
                bit = left[i] >= lighter
                first[i] = zeros[level] + ones_first if bit else zeros_first
                last[i] = zeros[level] + ones_last if bit else zeros_last
                left[i] -= lighter if bit else 0
                out[begin + i] = 2 * out[begin + i] + bit


class WaveletMatrix:
    """Exact quantiles of runs of weighted elements, in any order.

    values (m,) int64, or the :func:`optimizer.intervals.ordinals` of doubles; weights (m,) int64, at least 1 each
    (default 1 each: no weights are kept, and look-ups are twice as fast). O(m log m) time and bits to build (with
    weights a total an element and bit, of 32 bits if they fit), O(log d) a look-up among d distinct values.
    """

    def __init__(self, values: Longs, weights: Longs | None = None) -> None:
        codes, self.values = _codes(np.asarray(values, dtype=np.int64))
        self.size = len(codes)
        if weights is not None and (len(weights) != self.size or (self.size and int(weights.min()) < 1)):
            raise ValueError("one weight an element, each at least 1")
        weighted = weights is not None and self.size > 0 and int(weights.max()) > 1
        heavy = np.array(weights if weighted else [], dtype=np.int64)  # a copy: it is sorted along
        levels = max(0, len(self.values) - 1).bit_length()
        total = int(heavy.sum(dtype=np.float64))
        if total >= 2**62:
            raise ValueError("the weights add up to more than 64 bits hold")
        self._blocks = np.zeros((levels, self.size // 64 + 1, 2), dtype=np.uint64)
        self._zeros = np.zeros(levels, dtype=np.int64)
        self._totals = np.zeros(
            (levels + 1, self.size + 1 if weighted else 0), dtype=np.int32 if total < 2**31 - 1024 else np.int64
        )
        if weighted:
            np.cumsum(heavy, out=self._totals[0, 1:])
        _build_wavelet(codes, heavy, levels, self._blocks, self._zeros, self._totals)

    def count(self, low: Longs, high: Longs) -> Longs:
        """Total weight of each run, low and high (a,); (a,). An empty run has 0."""
        check_runs(low, high, self.size, shortest=0)
        if not self._totals.shape[1]:
            return high - low
        return self._totals[0, high].astype(np.int64) - self._totals[0, low]

    def quantile(self, low: Longs, high: Longs, rank: Longs) -> Longs:
        """The ``rank``-th smallest element (from 1, an element of weight w counts w times) of each run: (a,).

        Raises ValueError if a run does not have so many; :func:`quantile_rank` gives the rank of a quantile.
        """
        counts = self.count(low, high)
        if len(rank) != len(low) or not bool(((rank >= 1) & (rank <= counts)).all()):
            raise ValueError("a rank lies between 1 and the weight of its run")
        out = np.empty(len(low), dtype=np.int64)
        _answer_wavelet(self._blocks, self._zeros, self._totals, low, high, rank, out)
        return self.values[out]


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
    """Add ``values`` after so many elements: each base-interval they complete is merged from its halves."""
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


# ------------------------------------------------------------------------------------- distinct values
@numba.njit(cache=True)
def _link(codes, values, previous, following):
    """The element of equal value before each (from 1; 0 for none), and after each (from 0; m for none)."""
    size = len(codes)
    last = np.zeros(values, np.int64)
    for i in range(size):
        before = last[codes[i]]
        previous[i] = before
        following[i] = size
        if before:
            following[before - 1] = i
        last[codes[i]] = i + 1


@numba.njit(cache=True)
def _count_cells(previous, side, grid):
    for i in range(len(previous)):
        grid[(i >> side) + 1, (previous[i] + (1 << side) - 1) >> side] += 1


@numba.njit(cache=True)
def _below(numbers, begin, end, bound):
    strip = numbers[begin:end]
    count = np.uint32(0)
    # all in 32 bits without sign, or else the loop is not vectorised
    for i in range(np.uint32(len(strip))):
        count = np.uint32(count + np.uint32(strip[i] < bound))
    return np.int64(count)


@numba.njit(cache=True)
def _answer_distinct(previous, following, grid, side, low, high, out):
    for i in range(len(low)):
        # elements before `high` whose value last occurred before `low` (all those before `low` are such)
        row, column = high[i] >> side, low[i] >> side
        count = np.int64(grid[row, column])
        count += _below(previous, row << side, high[i], np.int32(low[i] + 1))
        count += _below(following, column << side, low[i], np.int32(row << side))
        out[i] = count - low[i]


class DistinctCounter:
    """Number of distinct values in runs of elements, in any order; exact.

    values (m,) int64, fewer than 2**31. About 2**side = sqrt(m) elements to a line of the grid: O(m) space and, after
    the values are numbered, time to build; O(sqrt(m) / 16) vector instructions a look-up.
    """

    def __init__(self, values: Longs) -> None:
        codes, distinct = _codes(np.asarray(values, dtype=np.int64))
        size = self.size = len(codes)
        if size >= 2**31 - 1:
            raise ValueError(f"{size} elements are more than 32 bits number")
        self._side = max(6, size.bit_length() // 2)
        self._previous, self._following = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.int32)
        _link(codes, len(distinct), self._previous, self._following)
        lines = (size >> self._side) + 2
        self._grid = np.zeros((lines, lines), dtype=np.int32)
        _count_cells(self._previous, self._side, self._grid)
        # [row, column]: elements before `row` lines whose value did not occur before, or before `column` lines
        for axis in (0, 1):
            np.cumsum(self._grid, axis=axis, out=self._grid)

    def count(self, low: Longs, high: Longs) -> Longs:
        """Of each run: low and high (a,); returns (a,). An empty run has 0."""
        check_runs(low, high, self.size, shortest=0)
        out = np.empty(len(low), dtype=np.int64)
        _answer_distinct(self._previous, self._following, self._grid, self._side, low, high, out)
        return out


# ---------------------------------------------------------------------------------- runs moving forward
def _check_forward(elements: int, weights: int, group: Longs, low: Longs, high: Longs) -> None:
    check_runs(low, high, elements, shortest=0)
    same = group[1:] == group[:-1]
    if elements != weights or len(group) != len(low) or (same & ((np.diff(low) < 0) | (np.diff(high) < 0))).any():
        raise ValueError("one number each an element, and runs that move forward within a group")


@numba.njit(cache=True)
def _gain(winners, weights, rank, weight):
    """More weight for one rank: it may now win over those it meets on the way up."""
    weights[rank] += weight
    node = (len(winners) // 2 + rank) >> 1
    while node:
        winner = winners[node]
        if winner != rank:
            if weights[winner] > weights[rank] or (weights[winner] == weights[rank] and winner < rank):
                break
            winners[node] = rank
        node >>= 1


@numba.njit(cache=True)
def _lose(winners, weights, rank, weight):
    """Less weight for one rank: only the nodes where it won are decided anew."""
    weights[rank] -= weight
    node = (len(winners) // 2 + rank) >> 1
    while node and winners[node] == rank:
        left, right = winners[2 * node], winners[2 * node + 1]
        winners[node] = right if weights[right] > weights[left] else left
        node >>= 1


@numba.njit(cache=True)
def _tournament(ranks, weights, group, low, high, best, best_weights, places):
    """The first ``best.shape[1]`` of each run; ``places``: a power of two above all ranks."""
    winners = np.empty(2 * places, np.int64)
    for node in range(2 * places - 1, 0, -1):
        winners[node] = node - places if node >= places else winners[2 * node]
    totals = np.zeros(places, np.int64)
    begin = end = 0
    for i in range(len(low)):
        fresh = i == 0 or group[i] != group[i - 1] or low[i] >= end
        for j in range(begin, end if fresh else low[i]):
            _lose(winners, totals, ranks[j], weights[j])
        for j in range(low[i] if fresh else end, high[i]):
            _gain(winners, totals, ranks[j], weights[j])
        begin, end = low[i], high[i]
        found = 0
        # each winner leaves until the next ones are known
        while found < best.shape[1] and totals[winners[1]] > 0:
            rank = winners[1]
            best[i, found], best_weights[i, found] = rank, totals[rank]
            found += 1
            if found < best.shape[1]:
                _lose(winners, totals, rank, totals[rank])
        for j in range(min(found, best.shape[1] - 1)):
            _gain(winners, totals, best[i, j], best_weights[i, j])


def top_k(ranks: Longs, weights: Longs, group: Longs, low: Longs, high: Longs, k: int) -> tuple[Longs, Longs]:
    """The ``k`` heaviest values of each run of elements, by weight descending, then by rank ascending.

    ``ranks`` (m,): values as integers from 0, in their order; ``weights`` (m,) positive; ``group``, ``low``, ``high``
    (a,): runs of elements that move forward within a group. Returns ranks (a, k), -1 where a run has fewer values, and
    their total weights (a, k), 0 there. Elements enter and leave once: O(log d) each, less as a rule, and O(k log d) an
    answer, for d distinct ranks. Raises ValueError if runs do not move forward.
    """
    if k < 1:
        raise ValueError(f"the first {k} of something")
    _check_forward(len(ranks), len(weights), group, low, high)
    if len(ranks) and (int(ranks.min()) < 0 or int(weights.min()) < 1):
        raise ValueError("ranks are at least 0, weights at least 1")
    codes, values = _codes(np.asarray(ranks, dtype=np.int64))
    best, best_weights = np.full((len(low), k), -1, dtype=np.int64), np.zeros((len(low), k), dtype=np.int64)
    places = 1 << max(1, (len(values) - 1).bit_length())
    _tournament(codes, np.asarray(weights, dtype=np.int64), group, low, high, best, best_weights, places)
    return np.append(values, -1)[best], best_weights


def modes(ranks: Longs, weights: Longs, group: Longs, low: Longs, high: Longs) -> Longs:
    """The rank of the greatest total weight in each run (of equal ones the smallest), -1 for an empty run: (a,).

    Arguments as for :func:`top_k`.
    """
    return top_k(ranks, weights, group, low, high, 1)[0][:, 0]


# --------------------------------------------------------------------------------------- HyperLogLog
def registers_of(hashes: NDArray[np.uint64], precision: int) -> tuple[Longs, NDArray[np.uint8]]:
    """HyperLogLog elements of 64-bit hashes (m,): the register, of 2**precision, that each goes to, and the position
    of the first bit that is set in the rest of the hash, from 1 (64 - precision + 1 for none)."""
    _check_precision(precision)
    numbers = hashes.astype(np.uint64)
    rest = numbers << np.uint64(precision)
    # frexp gives the length of the upper half exactly, or else of the lower
    upper = np.frexp((rest >> np.uint64(32)).astype(np.float64))[1]
    lower = np.frexp((rest & np.uint64(2**32 - 1)).astype(np.float64))[1]
    zeros = np.where(upper > 0, 32 - upper, 64 - lower)
    index = (numbers >> np.uint64(64 - precision)).astype(np.int64)
    return index, (np.minimum(zeros, 64 - precision) + 1).astype(np.uint8)


def _check_precision(precision: int) -> None:
    if not 4 <= precision <= 21:
        raise ValueError(f"the precision of HyperLogLog lies between 4 and 21, not {precision}")


@numba.njit(cache=True)
def _estimate(counts, registers):
    """Ertl's Algorithm 6 from the number of registers with each value, 0 to q + 1."""
    top = len(counts) - 1
    # tau: registers that are full
    x = 1.0 - counts[top] / registers
    if x == 0.0 or x == 1.0:
        z = 0.0
    else:
        y, z, last = 1.0, 1.0 - x, -1.0
        while z != last:
            x, last, y = np.sqrt(x), z, 0.5 * y
            z -= (1.0 - x) ** 2 * y
        z *= registers / 3.0
    for value in range(top - 1, 0, -1):
        z = 0.5 * (z + counts[value])
    # sigma: registers that are empty
    x = counts[0] / registers
    if x == 1.0:
        return 0.0
    y, empty, last = 1.0, x, -1.0
    while empty != last:
        x, last = x * x, empty
        empty += x * y
        y += y
    return registers * registers / (2.0 * np.log(2.0) * (z + registers * empty))


@numba.njit(cache=True)
def _sliding_registers(index, rho, group, low, high, precision, out):
    registers = 1 << precision
    # of each register the elements that no later one reaches, in descending order: the first is its value
    front, back = np.full(registers, -1, np.int64), np.full(registers, -1, np.int64)
    before, after = np.empty(len(index), np.int64), np.empty(len(index), np.int64)
    counts = np.zeros(66 - precision, np.int64)
    counts[0] = registers
    begin = end = 0
    for i in range(len(low)):
        fresh = i == 0 or group[i] != group[i - 1] or low[i] >= end
        for j in range(begin, end if fresh else low[i]):
            register = index[j]
            if front[register] == j:
                follows = -1 if back[register] == j else after[j]
                counts[rho[j]] -= 1
                counts[0 if follows < 0 else rho[follows]] += 1
                front[register] = follows
                if follows < 0:
                    back[register] = -1
                else:
                    before[follows] = -1
        for j in range(low[i] if fresh else end, high[i]):
            register = index[j]
            kept = back[register]
            while kept >= 0 and rho[kept] <= rho[j]:
                kept = before[kept]
            if kept >= 0:
                after[kept] = j
            else:
                counts[0 if front[register] < 0 else rho[front[register]]] -= 1
                counts[rho[j]] += 1
                front[register] = j
            before[j] = kept
            back[register] = j
        begin, end = low[i], high[i]
        out[i] = _estimate(counts, registers)


def hll_counts(
    index: Longs, rho: NDArray[Any], group: Longs, low: Longs, high: Longs, precision: int
) -> NDArray[np.float64]:
    """Estimated number of distinct values in each run of HyperLogLog elements: (a,).

    ``index``, ``rho`` (m,): the elements that fragments keep, as :func:`registers_of` gives them (of each register only
    the greatest need be kept); ``group``, ``low``, ``high`` (a,): runs of elements that move forward within a group.
    Registers combine by their maximum, so the estimate is that of all values of the run in one sketch; its standard
    error is about 1.04 / sqrt(2**precision). O(1) an element, amortised, and O(64) an answer: an element leaves without
    subtraction, as each register keeps what is greatest after it. Raises ValueError if runs do not move forward.
    """
    _check_precision(precision)
    _check_forward(len(index), len(rho), group, low, high)
    values = np.asarray(rho, dtype=np.int64)
    if len(index) and not (
        index.min() >= 0 and index.max() < 1 << precision and values.min() >= 1 and values.max() <= 65 - precision
    ):
        raise ValueError(f"elements that are none of HyperLogLog with precision {precision}")
    out = np.empty(len(low), dtype=np.float64)
    _sliding_registers(index, values, group, low, high, precision, out)
    return out
