"""Running totals: what can be subtracted is answered by two look-ups."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.state_kinds import ADD
from optimizer.combine.elements import IDENTITIES, SUBTRACTABLE, Longs, combine_numbers, subtract_numbers
from optimizer.combine.kernel_stamps import stamp_kernels
from optimizer.combine.runs import check_runs


def running_totals(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Totals (n + 1, c) before each row of (n, c): the exact integer sum of a run is totals[high] - totals[low]."""
    totals = np.zeros((len(values) + 1, values.shape[1]), dtype=np.int64)
    np.cumsum(values, axis=0, out=totals[1:])
    return totals


def _accumulator(operation: int) -> Callable[..., None]:
    """The kernel that writes running combines (n, c) behind the first row of totals (n + 1, c), by one operation."""

    @numba.njit(cache=True)
    def accumulate(values, totals):
        for column in range(values.shape[1]):
            total = totals[0, column]
            for i in range(len(values)):
                total = combine_numbers(operation, total, values[i, column])
                totals[i + 1, column] = total

    return accumulate


_ACCUMULATE = {operation: _accumulator(operation) for operation in SUBTRACTABLE - {ADD}}


@numba.njit(cache=True)
def _differences(totals, operation, low, high, out):
    for i in range(len(low)):
        for column in range(totals.shape[1]):
            out[i, column] = subtract_numbers(operation, totals[high[i], column], totals[low[i], column])


class PrefixSums:
    """Sums (ADD) or xors (BIT_XOR) of runs of integers (n, c), exact modulo 2**64; an empty run gives the identity.

    O(n c) to build, O(c) an answer. Raises ValueError for doubles: they would lose digits without bound.
    """

    def __init__(self, values: NDArray[np.int64], operation: int = ADD) -> None:
        if operation not in SUBTRACTABLE or not np.issubdtype(values.dtype, np.integer):
            raise ValueError(f"running totals of {values.dtype} do not answer operation {operation}")
        self.operation = operation
        if operation == ADD:
            self.totals = running_totals(values)
        else:
            self.totals = np.full((len(values) + 1, values.shape[1]), IDENTITIES[operation], dtype=np.int64)
            _ACCUMULATE[operation](values, self.totals)

    def combine(self, low: Longs, high: Longs) -> Longs:
        """Combined states (a, c) of each run: low and high (a,)."""
        check_runs(low, high, len(self.totals) - 1, shortest=0)
        out = np.empty((len(low), self.totals.shape[1]), dtype=np.int64)
        _differences(self.totals, self.operation, low, high, out)
        return out


stamp_kernels(globals())
