"""Runs that move forward, answered one after the other: a fold, or two stacks."""

from __future__ import annotations

import numba

from optimizer.combine.elements import (
    Columns,
    Longs,
    empty_columns,
    join_elements,
    put_element,
    take_element,
)
from optimizer.combine.kernel_stamps import stamp_kernels


@numba.njit(cache=True)
def _fold(columns, operation, low, high, out):
    for i in range(len(low)):
        best = take_element(columns, low[i])
        for j in range(low[i] + 1, high[i]):
            best = join_elements(operation, best, take_element(columns, j))
        put_element(out, i, best)


def combine_one_by_one(columns: Columns, operation: int, group: Longs, low: Longs, high: Longs) -> Columns:
    """Combine each run one fragment after the other."""
    out = empty_columns(columns, len(low))
    _fold(columns, operation, low, high, out)
    return out


# ------------------------------------------------------------------------------------------ two stacks
@numba.njit(cache=True)
def _two_stacks(columns, operation, group, low, high, suffix, out):
    if len(low) == 0:
        return
    flipped = seen = 0  # the suffixes end before `flipped`; `back` combines from there to before `seen`
    back = take_element(columns, 0)
    for i in range(len(low)):
        first, last = low[i], high[i]
        if i == 0 or group[i] != group[i - 1] or first >= flipped:
            best = take_element(columns, last - 1)
            put_element(suffix, last - 1, best)
            for j in range(last - 2, first - 1, -1):
                best = join_elements(operation, take_element(columns, j), best)
                put_element(suffix, j, best)
            flipped = seen = last
            put_element(out, i, best)
            continue
        for j in range(seen, last):
            back = (
                take_element(columns, j) if j == flipped else join_elements(operation, back, take_element(columns, j))
            )
        seen = last
        best = take_element(suffix, first)
        put_element(out, i, best if seen == flipped else join_elements(operation, best, back))


def combine_forward(columns: Columns, operation: int, group: Longs, low: Longs, high: Longs) -> Columns:
    """Combine runs that move forward within each group by two stacks, on columns."""
    out = empty_columns(columns, len(low))
    _two_stacks(columns, operation, group, low, high, empty_columns(columns, len(columns[0])), out)
    return out


stamp_kernels(globals())
