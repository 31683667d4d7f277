"""Tables of powers of two: what is idempotent is answered by two look-ups, any operation by disjoint halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numpy.typing import NDArray

from optimizer.combine.elements import (
    IDEMPOTENT,
    Columns,
    Longs,
    column_values,
    element_columns,
    empty_columns,
    join_elements,
    log2,
    put_element,
    take_element,
)
from optimizer.combine.kernel_stamps import stamp_kernels
from optimizer.combine.runs import check_runs

_BLOCK = 4
"""Blocks of a sparse table have 2**4 fragments: twice as many would build no faster, half as many answer slower."""


@numba.njit(cache=True)
def _build_sparse(columns, operation, before, after, rows, blocks):
    size = len(columns[0])
    for block in range(blocks):
        first, end = block << _BLOCK, min(size, (block + 1) << _BLOCK)
        best = take_element(columns, first)
        put_element(before, first, best)
        for j in range(first + 1, end):
            best = join_elements(operation, best, take_element(columns, j))
            put_element(before, j, best)
        put_element(rows, block, best)
        best = take_element(columns, end - 1)
        put_element(after, end - 1, best)
        for j in range(end - 2, first - 1, -1):
            best = join_elements(operation, take_element(columns, j), best)
            put_element(after, j, best)
    level = 1
    while 1 << level <= blocks:
        row, half = level * blocks, 1 << (level - 1)
        for block in range(blocks - (1 << level) + 1):
            below = row - blocks + block
            put_element(
                rows, row + block, join_elements(operation, take_element(rows, below), take_element(rows, below + half))
            )
        level += 1


@numba.njit(cache=True)
def _answer_sparse(columns, operation, before, after, rows, blocks, low, high, out):
    for i in range(len(low)):
        first, last = low[i], high[i] - 1
        left, right = first >> _BLOCK, last >> _BLOCK
        if left == right:
            best = take_element(columns, first)
            for j in range(first + 1, last + 1):
                best = join_elements(operation, best, take_element(columns, j))
        else:
            best = take_element(after, first)
            if right - left > 1:
                level = log2(right - left - 1)
                row = level * blocks
                best = join_elements(operation, best, take_element(rows, row + left + 1))
                best = join_elements(operation, best, take_element(rows, row + right - (1 << level)))
            best = join_elements(operation, best, take_element(before, last))
        put_element(out, i, best)


def combine_sparse(columns: Columns, operation: int) -> Callable[[Longs, Longs], Columns]:
    """Build the tables of some columns; the function returned combines runs [low, high) of them, in any order."""
    size = len(columns[0])
    blocks = (size + (1 << _BLOCK) - 1) >> _BLOCK
    table = (*(empty_columns(columns, n) for n in (size, size, blocks * blocks.bit_length())), blocks)
    _build_sparse(columns, operation, *table)

    def answer(low: Longs, high: Longs) -> Columns:
        check_runs(low, high, size)
        out = empty_columns(columns, len(low))
        _answer_sparse(columns, operation, *table, low, high, out)
        return out

    return answer


class SparseTable:
    """Combines of runs in any order, for operations where combining a fragment twice does no harm.

    values (n, 1) int64 or float64 (booleans are 0 and 1); operations in IDEMPOTENT. Blocks of 16 fragments with the
    combines from each fragment to its block's ends, and a table of 2**k blocks from each block: O(n) to build (n log n
    / 16 of table), a few look-ups an answer; runs within one block are folded. Raises ValueError for other operations.
    """

    def __init__(self, values: NDArray[Any], operation: int) -> None:
        if operation not in IDEMPOTENT:
            raise ValueError(f"a sparse table cannot answer operation {operation}: it combines some fragments twice")
        self.dtype = values.dtype
        self._answer = combine_sparse(element_columns(values, operation), operation)

    def combine(self, low: Longs, high: Longs) -> NDArray[Any]:
        """Combined state (a, 1) of each run: low and high (a,)."""
        return column_values(self._answer(low, high), self.dtype)


@numba.njit(cache=True)
def _build_level(columns, operation, level, rows, row):
    size = len(columns[0])
    if level == 0:
        for j in range(size):
            put_element(rows, row + j, take_element(columns, j))
        return
    half = 1 << level
    for middle in range(half, size, 2 * half):
        # both ways at once: two chains of combines that do not wait for each other
        left, right = take_element(columns, middle - 1), take_element(columns, middle)
        put_element(rows, row + middle - 1, left)
        put_element(rows, row + middle, right)
        for step in range(1, half):
            left = join_elements(operation, take_element(columns, middle - 1 - step), left)
            put_element(rows, row + middle - 1 - step, left)
            if middle + step < size:
                right = join_elements(operation, right, take_element(columns, middle + step))
                put_element(rows, row + middle + step, right)


@numba.njit(cache=True)
def _level_of(low, high):
    """The highest bit in which first and last fragment differ names the middle that lies between them."""
    return log2((low ^ (high - 1)) | 1)


@numba.njit(cache=True)
def _answer_disjoint(operation, rows, stride, low, high, out):
    for i in range(len(low)):
        first, last = low[i], high[i] - 1
        row = _level_of(low[i], high[i]) * stride
        best = take_element(rows, row + first)
        put_element(out, i, best if first == last else join_elements(operation, best, take_element(rows, row + last)))


def _disjoint(columns: Columns, operation: int) -> Callable[[Longs, Longs], Columns]:
    size = len(columns[0])
    levels = max(1, (size - 1).bit_length())
    rows = empty_columns(columns, size * levels)
    for level in range(levels):
        _build_level(columns, operation, level, rows, level * size)

    def answer(low: Longs, high: Longs) -> Columns:
        check_runs(low, high, size)
        out = empty_columns(columns, len(low))
        _answer_disjoint(operation, rows, size, low, high, out)
        return out

    return answer


class DisjointSparseTable:
    """Combines of runs in any order, for every operation (all are associative), with at most one combine an answer.

    values (n, 1) int64 or float64, or (n, 2) double-doubles. On level k the combines from each fragment to the middle
    of its block of 2**(k + 1): O(n log n) to build and to keep, O(1) an answer.
    """

    def __init__(self, values: NDArray[Any], operation: int) -> None:
        self.dtype = values.dtype
        self._answer = _disjoint(element_columns(values, operation), operation)

    def combine(self, low: Longs, high: Longs) -> NDArray[Any]:
        """Combined state (a, width) of each run: low and high (a,)."""
        return column_values(self._answer(low, high), self.dtype)


stamp_kernels(globals())
