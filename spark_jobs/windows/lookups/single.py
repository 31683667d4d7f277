"""One value at once, with the least arithmetic.

:class:`spark_jobs.windows.finals.answers.AnswerBatch` answers one run too, but in arrays of one element. That takes
6 to 11 times the CPU time: 19 µs instead of 1.7 for a sum, 13 instead of 2.1 for a maximum, 31 instead of 3.9 for a
median (50 groups, 1,500 fragments, windows of 60 fragments, best of 4 rounds). A table of Arrow takes 850 µs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.aggregates.exact_doubles import LIMB, ExactSums, quotient
from optimizer.aggregates.lowering import MEDIAN
from optimizer.aggregates.states import State
from optimizer.combine.elements import ordinals
from optimizer.workload.values import DOUBLE, Output
from spark_jobs.windows.lookups.kernels import LookupValue, best_of, code_at
from spark_jobs.windows.lookups.totals import total_column

if TYPE_CHECKING:
    from spark_jobs.windows.lookups.lookups import Lookups
    from spark_jobs.windows.partials.cells import Cells


def _view_of(column: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(column).data


def _single_count(lookups: Lookups, output: Output) -> LookupValue | None:
    total = lookups._total(output)
    if total is None:
        return None
    sums = _view_of(total.totals[:, 1])
    return lambda low, high: sums[high] - sums[low]


def _single_sum(lookups: Lookups, output: Output) -> LookupValue | None:
    total = lookups._total(output)
    if total is None:
        return _single_double_sum(lookups, output)
    counts, sums = _view_of(total.totals[:, 0]), _view_of(total.totals[:, 1])
    if total.mean:

        def mean(low: int, high: int) -> float | None:
            count = counts[high] - counts[low]
            return (sums[high] - sums[low]) / count if count else None

        return mean
    return lambda low, high: sums[high] - sums[low] if counts[high] > counts[low] else None


def _counts(lookups: Lookups, output: Output) -> memoryview:
    counts = total_column(lookups.cells, "count", output).values[:, 0]
    return _view_of(np.concatenate([[0], np.cumsum(counts)]))


def _sum_of(cells: Cells, output: Output) -> State:
    """The sum of the doubles of an output, as it is stored today or was stored earlier."""
    sums = (state for state in cells.states if state.kind in ("exact_sum", "sum"))
    return next(state for state in sums if state.argument == output.argument)


def _single_double_sum(lookups: Lookups, output: Output) -> LookupValue | None:
    if output.argument_type != DOUBLE:
        return None
    sums = lookups.cells.states[_sum_of(lookups.cells, output)]
    assert isinstance(sums, ExactSums)
    if sums.special.any():
        return None
    limbs = [_view_of(np.concatenate([[0], np.cumsum(column)])) for column in sums.limbs.T]
    counts, mean, low_limb = _counts(lookups, output), output.function == "avg", sums.low
    factor, divisor = 1 << LIMB * max(low_limb, 0), 1 << LIMB * max(-low_limb, 0)

    def value(low: int, high: int) -> float | None:
        count = counts[high] - counts[low]
        if not count:
            return None
        total = sum((limb[high] - limb[low]) << (LIMB * at) for at, limb in enumerate(limbs))
        return quotient(total * factor, divisor * count if mean else divisor)

    return value


def _single_extreme(lookups: Lookups, output: Output) -> LookupValue | None:
    if output.type.name not in ("long", "double"):
        return None
    values = np.ascontiguousarray(total_column(lookups.cells, output.function, output).values[:, 0])
    numbers = ordinals(values) if values.dtype == np.float64 else values
    counts, shown, greatest = _counts(lookups, output), _view_of(values), output.function == "max"

    def value(low: int, high: int) -> Any:
        return shown[best_of(numbers, greatest, low, high)] if counts[high] > counts[low] else None

    return value


def _single_quantile(lookups: Lookups, output: Output) -> LookupValue | None:
    if output.argument_type is None or output.argument_type.name not in ("long", "double"):
        return None
    (state,) = AGGREGATES[output.function].states(output)
    elements = lookups._multiset(state)
    wavelet, offsets, weights = elements.wavelet, _view_of(elements.offsets), _view_of(elements.totals)
    shown = _view_of(elements.shown(wavelet.values))
    tables = wavelet._blocks, wavelet._zeros, wavelet._totals
    fraction = MEDIAN if output.parameter is None else output.parameter
    above, unit = fraction.as_integer_ratio()
    interpolated = state.kind == "values" and output.function != "percentile_disc"
    double = output.type == DOUBLE

    def at(first: int, last: int, rank: int) -> Any:
        element = shown[code_at(*tables, first, last, rank)]
        return float(element) if double else element

    def value(low: int, high: int) -> Any:
        first, last = offsets[low], offsets[high]
        count = weights[last] - weights[first]
        if not count:
            return None
        if not interpolated:
            return at(first, last, max(1, -(-count * above // unit)))
        position, remainder = divmod((count - 1) * above, unit)
        least = at(first, last, position + 1)
        greatest = at(first, last, position + 2) if remainder else least
        if least == greatest:
            return least
        weight = remainder / unit
        return (1.0 - weight) * least + weight * greatest

    return value


SINGLE_VALUES: dict[str, Callable[[Lookups, Output], LookupValue | None]] = {
    "count": _single_count,
    "sum": _single_sum,
    "avg": _single_sum,
    "min": _single_extreme,
    "max": _single_extreme,
    "median": _single_quantile,
    "percentile": _single_quantile,
    "percentile_disc": _single_quantile,
}
