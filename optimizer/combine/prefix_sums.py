"""Running totals: what can be subtracted is answered by two look-ups."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from optimizer.combine.elements import ADD, BIT_XOR, SUBTRACTABLE, Longs
from optimizer.combine.runs import check_runs


def running_totals(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Totals (n + 1, c) before each row of (n, c): the exact integer sum of a run is totals[high] - totals[low]."""
    totals = np.zeros((len(values) + 1, values.shape[1]), dtype=np.int64)
    np.cumsum(values, axis=0, out=totals[1:])
    return totals


@numba.njit(cache=True)
def _differences(totals, xor, low, high, out):
    for i in range(len(low)):
        for column in range(totals.shape[1]):
            before, after = totals[low[i], column], totals[high[i], column]
            out[i, column] = after ^ before if xor else after - before


class PrefixSums:
    """Sums (ADD) or xors (BIT_XOR) of runs of integers (n, c), exact modulo 2**64; an empty run gives 0.

    O(n c) to build, O(c) an answer. Raises ValueError for doubles: they would lose digits without bound.
    """

    def __init__(self, values: NDArray[np.int64], operation: int = ADD) -> None:
        if operation not in SUBTRACTABLE or not np.issubdtype(values.dtype, np.integer):
            raise ValueError(f"running totals of {values.dtype} do not answer operation {operation}")
        self.operation = operation
        if operation == ADD:
            self.totals = running_totals(values)
        else:
            self.totals = np.zeros((len(values) + 1, values.shape[1]), dtype=np.int64)
            np.bitwise_xor.accumulate(values, axis=0, out=self.totals[1:])

    def combine(self, low: Longs, high: Longs) -> Longs:
        """Of each run: low and high (a,); returns (a, c)."""
        check_runs(low, high, len(self.totals) - 1, shortest=0)
        out = np.empty((len(low), self.totals.shape[1]), dtype=np.int64)
        _differences(self.totals, self.operation == BIT_XOR, low, high, out)
        return out
