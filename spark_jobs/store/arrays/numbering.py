"""Numbers for values: groups, texts and tuples as dense integers, by hashing and sorting. The ground of all cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.workload.values import Type

DENSE = 1 << 22
"""So many possible cells are always numbered through a table; more only if rows fill a good part of it."""

FEW_DISTINCT = 1 << 12
"""So few distinct values are looked for by hashing first: their table stays in the cache."""

ROWS_A_RUN = 8
"""Rows of one value in a row, on average, from which on sorting the runs is quicker."""

LONG_MIN, LONG_MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max

Longs = NDArray[np.int64]

Rows = NDArray[np.int32]
"""Numbers of events of a batch, or one of a few for each of them: half the memory to pass over."""


def read_only(values: Longs) -> Longs:
    """The same values (n,), not to be written: a kernel is not compiled again for those that Arrow holds."""
    view = values.view()
    view.flags.writeable = False
    return view


@numba.njit(cache=True)
def positions_in(bounds, values):
    """Index (n,) of the last bound that is not above each value; quick where neighbours are close.

    ``bounds`` (b,) ascend; no value is below the first.
    """
    out = np.empty(len(values), np.int64)
    last = len(bounds) - 1
    at = 0
    for i in range(len(values)):
        value = values[i]
        if value < bounds[at] or (at < last and value >= bounds[at + 1]):
            if at < last and value >= bounds[at + 1] and (at + 1 == last or value < bounds[at + 2]):
                at += 1
            else:
                at = np.searchsorted(bounds, value, side="right") - 1
        out[i] = at
    return out


@numba.njit(cache=True)
def _number_densely(codes, most):
    number = np.zeros(most, np.int64)
    for i in range(len(codes)):
        number[codes[i]] = 1
    count = 0
    for code in range(most):
        used = number[code]
        number[code] = count
        count += used
    distinct = np.empty(count, np.int64)
    out = np.empty(len(codes), np.int64)
    for i in range(len(codes)):
        out[i] = number[codes[i]]
        distinct[out[i]] = codes[i]
    return distinct, out


@numba.njit(cache=True, inline="always")
def _slot(table, distinct, code):
    """The slot of a hash table (-1: free; a power of 2 of them) that holds the code's number, or is free."""
    mask = len(table) - 1
    at = ((code * 0x9E3779B97F4A7C1) >> 20) & mask
    while table[at] >= 0 and distinct[table[at]] != code:
        at = (at + 1) & mask
    return at


@numba.njit(cache=True)
def _number_some(codes, first, table, distinct, count, out):
    """Number codes from ``first`` on until the table is half full; where it stopped, and the distinct codes so far."""
    for i in range(first, len(codes)):
        at = _slot(table, distinct, codes[i])
        if table[at] < 0:
            if count == len(distinct):
                return i, count
            table[at] = count
            distinct[count] = codes[i]
            count += 1
        out[i] = table[at]
    return len(codes), count


@numba.njit(cache=True)
def _number_by_hash(codes):
    """Distinct codes as they come, and the number (n,) of each row's."""
    table, distinct = np.full(1 << 12, -1, np.int64), np.empty(1 << 11, np.int64)
    out = np.empty(len(codes), np.int64)
    done, count = _number_some(codes, 0, table, distinct, 0, out)
    while done < len(codes):
        table = np.full(4 * len(table), -1, np.int64)
        more = np.empty(len(table) // 2, np.int64)
        more[:count] = distinct[:count]
        distinct = more
        for number in range(count):
            table[_slot(table, distinct, distinct[number])] = number
        done, count = _number_some(codes, done, table, distinct, count, out)
    return distinct[:count].copy(), out


def numbered(codes: Longs, most: int) -> tuple[Longs, Longs]:
    """The distinct codes, ascending, and the number (n,) of each row's among them; codes are in [0, most)."""
    if most <= max(DENSE, 4 * len(codes)):
        return _number_densely(codes, most)
    return _ascending(*_number_by_hash(codes))


def _ascending(distinct: Longs, number: Longs) -> tuple[Longs, Longs]:
    """Distinct values in their order, and the number (n,) of each row's there."""
    order = np.argsort(distinct)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return distinct[order], rank[number]


@numba.njit(cache=True)
def _reordered(order, numbers, most):
    """Sort an order of rows once more by their numbers, in [0, most). Rows of one number keep their order."""
    first = np.zeros(most + 1, np.int64)
    for i in range(len(numbers)):
        first[numbers[i] + 1] += 1
    for number in range(most):
        first[number + 1] += first[number]
    out = np.empty(len(order), np.int64)
    for i in range(len(order)):
        number = numbers[order[i]]
        out[first[number]] = order[i]
        first[number] += 1
    return out


def numbered_tuples(parts: Sequence[tuple[Longs, int]], rows: int) -> tuple[Longs, Longs]:
    """Return a row (d,) of each distinct tuple of numbers, ascending, and the number (n,) of each row's tuple among
    them.

    ``parts``: for each place in the tuple, the rows' numbers (n,) and their bound. O(n) for any bounds.
    """
    if math.prod(most for _, most in parts) <= max(DENSE, 4 * rows):
        codes = np.zeros(rows, dtype=np.int64)
        for numbers, most in parts:
            codes = codes * most + numbers
        distinct, number = numbered(codes, math.prod(most for _, most in parts))
        row = np.empty(len(distinct), dtype=np.int64)
        row[number] = np.arange(rows)
        return row, number
    order = np.arange(rows)
    new = np.zeros(rows, dtype=bool)
    new[:1] = True
    for numbers, most in reversed(parts):
        if most > 1:
            order = _reordered(order, numbers, most)
    for numbers, _ in parts:
        ordered = numbers[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    number = np.empty(rows, dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    return order[new], number


def distinct_of(values: Longs) -> tuple[Longs, Longs]:
    """The distinct values, ascending, and the number (n,) of each row's among them; quick if neighbours are close, or
    if there are few."""
    if len(values) == 0:
        return values[:0], np.empty(0, dtype=np.int64)
    heads = values[np.flatnonzero(np.append(True, values[1:] != values[:-1]))]
    is_short = ROWS_A_RUN * len(heads) > len(values) > FEW_DISTINCT
    if is_short and not bool((heads[1:] > heads[:-1]).all()):
        table, distinct = np.full(4 * FEW_DISTINCT, -1, dtype=np.int64), np.empty(FEW_DISTINCT, dtype=np.int64)
        number = np.empty(len(values), dtype=np.int64)
        done, count = _number_some(values, 0, table, distinct, 0, number)
        if done == len(values):
            return _ascending(distinct[:count], number)
    # sorting is vectorised, np.unique's hashing is not
    heads = np.sort(heads)
    distinct_values = heads[np.append(True, heads[1:] != heads[:-1])]
    return distinct_values, positions_in(distinct_values, values)


def encoded(column: pa.Array) -> tuple[pa.Array, NDArray[np.int32]]:
    """The distinct values of a column, perhaps with some that do not occur, and the index (n,) of each row's."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode(null_encoding="encode")
        return column.dictionary, column.indices.to_numpy(zero_copy_only=False)
    # a dictionary that a file brings may hold a value twice, and nulls stand beside it
    values, indices = column.dictionary, column.indices
    if column.null_count:
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
        indices = pc.fill_null(indices, len(values) - 1)
    again = values.dictionary_encode(null_encoding="encode")
    indices = indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    if len(again.dictionary) == len(values):
        return values, indices
    return again.dictionary, again.indices.to_numpy(zero_copy_only=False)[indices]


def distinct_rows(columns: Sequence[pa.Array], rows: int) -> tuple[tuple[pa.Array, ...], NDArray[Any], int]:
    """Distinct rows of some columns (nulls equal): those rows' columns, the number (n,) of each row, how many.

    Of a single column there may be values that do not occur.
    """
    if not columns:
        return (), np.zeros(rows, dtype=np.int64), min(rows, 1)
    pairs = [encoded(column) for column in columns]
    if len(pairs) == 1:
        return (pairs[0][0],), pairs[0][1], len(pairs[0][0])
    codes, most = np.zeros(rows, dtype=np.int64), 1
    parts: list[Longs] = []
    for values, indices in pairs:
        size = max(len(values), 1)
        distinct_codes, codes = numbered(codes * size + indices, most * size)
        parts = [part[distinct_codes // size] for part in parts] + [distinct_codes % size]
        most = len(distinct_codes)
    distinct_columns = (values.take(pa.array(part)) for (values, _), part in zip(pairs, parts, strict=True))
    return tuple(distinct_columns), codes, most


def ranked(column: pa.Array, type: Type) -> tuple[Longs, pa.Array]:
    """Rank (n,) of each value, or text of one, in the order of its type (-1: null), and the distinct ones in order."""
    dictionary = column.dictionary_encode()
    values = dictionary.dictionary
    sortable = values.cast(pa.decimal128(38, type.scale)) if type.name == "decimal" else values
    order = pc.sort_indices(sortable)
    rank = np.full(len(values) + 1, -1, dtype=np.int64)
    rank[order.to_numpy()] = np.arange(len(values))
    codes = pc.fill_null(dictionary.indices, len(values)).to_numpy(zero_copy_only=False)
    return rank[codes], values.take(order)
