"""Holistic aggregates of many runs over one array of elements: quantiles, distinct values, modes, top k; HyperLogLog.

Such an aggregate has no state of constant size, so a fragment stores its *elements*: values, each with a weight (the
number of times it occurs). The elements of all fragments are stored one after the other, and a run of fragments
[low, high) is the run [offsets[low], offsets[high]) of elements. All functions here take runs of elements.

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

import numba
import numpy as np
from numba.extending import intrinsic
from numpy.typing import NDArray

from optimizer.combine.runs import check_runs

Longs = NDArray[np.int64]


def rank_codes(values: Longs) -> tuple[Longs, Longs]:
    """Values as numbers (m,) from 0 in the same order, and the value of each number."""
    if len(values) == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    least, greatest = int(values.min()), int(values.max())
    if greatest - least < 2 * len(values):
        return values - least, np.arange(least, greatest + 1, dtype=np.int64)
    distinct, codes = np.unique(values, return_inverse=True)
    return codes, distinct


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
        ones_so_far = np.uint64(0)
        for block in range(size // 64 + 1):
            word = np.uint64(0)
            for i in range(block * 64, min(size, block * 64 + 64)):
                word |= np.uint64((codes[i] >> shift) & 1) << np.uint64(i & 63)
            blocks[level, block, 0] = ones_so_far
            blocks[level, block, 1] = word
            ones_so_far += _ones(word)
        zeros[level] = size - np.int64(ones_so_far)
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
def answer_wavelet(blocks, zeros, totals, low, high, rank, out):
    """Into ``out`` (a,): of each run [low, high) which of the distinct values is its ``rank``-th smallest element."""
    levels = len(zeros)
    weighted = totals.shape[1] > 0
    first, last, remaining_rank = (
        np.empty(_TOGETHER, np.int64),
        np.empty(_TOGETHER, np.int64),
        np.empty(_TOGETHER, np.int64),
    )
    for begin in range(0, len(low), _TOGETHER):
        count = min(_TOGETHER, len(low) - begin)
        for i in range(count):
            first[i], last[i], remaining_rank[i] = low[begin + i], high[begin + i], rank[begin + i] - 1
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
                bit = remaining_rank[i] >= lighter
                first[i] = zeros[level] + ones_first if bit else zeros_first
                last[i] = zeros[level] + ones_last if bit else zeros_last
                remaining_rank[i] -= lighter if bit else 0
                out[begin + i] = 2 * out[begin + i] + bit


class WaveletMatrix:
    """Exact quantiles of runs of weighted elements, in any order.

    values (m,) int64, or the :func:`optimizer.combine.elements.ordinals` of doubles; weights (m,) int64, at least 1
    each. By default all weights are 1 and are not stored, and look-ups are twice as fast. O(m log m) time and bits to
    build (with weights a total an element and bit, of 32 bits if they fit), O(log d) a look-up among d distinct values.
    """

    def __init__(self, values: Longs, weights: Longs | None = None) -> None:
        codes, self.values = rank_codes(np.asarray(values, dtype=np.int64))
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

        Raises ValueError if a run has a smaller weight than its rank.
        """
        counts = self.count(low, high)
        if len(rank) != len(low) or not bool(((rank >= 1) & (rank <= counts)).all()):
            raise ValueError("a rank lies between 1 and the weight of its run")
        out = np.empty(len(low), dtype=np.int64)
        answer_wavelet(self._blocks, self._zeros, self._totals, low, high, rank, out)
        return self.values[out]
