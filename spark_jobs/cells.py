"""Partial rows in memory: the cells of one synopsis as arrays, and how they are stored.

A *cell* is one (fragment, shard, group) with its states. Events are lifted into cells, cells are rolled up to coarser
ones (longer fragments, fewer filters, fewer group columns), stored as rows of the partials table, and read back to be
combined into answers: all of it on the arrays of :class:`Cells`. Texts become numbers as soon as they are read: groups
are numbered, texts within states are ranks into a sorted list of texts, so that everything combines integers.

A state of a cell is stored in the three list columns of a row as :class:`optimizer.aggregates.State` says.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates import (
    LIMB,
    MULTISETS,
    PAIRS,
    State,
    carrier_of,
    doubles_of_ordinals,
    ordinals_of_doubles,
)
from optimizer.query import Expression, Type
from optimizer.synopsis import CARRIERS, Synopsis
from optimizer.window import DAY, Fragments
from spark_jobs.files import bucket_of

PARTIALS = pa.schema(
    [
        pa.field("day", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("fingerprint", pa.string(), nullable=False),
        pa.field("fragment_start", pa.int64(), nullable=False),
        pa.field("fragment_end", pa.int64(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("shard", pa.int64()),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("longs", pa.list_(pa.int64())),
        pa.field("doubles", pa.list_(pa.float64())),
        pa.field("texts", pa.list_(pa.string())),
    ]
)
"""Rows of the partials table. ``key``: the group's values as a JSON list of texts; ``shard``: the signature of its
tuples (bit i: predicate i); both null in the rows that say which fragments of a synopsis are complete. ``bucket``: see
:func:`buckets`."""

DENSE = 1 << 22
"""So many possible cells are always numbered through a table; more only if rows fill a good part of it."""

LONG_MIN, LONG_MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max

IDENTITIES = {"add": 0, "min": LONG_MAX, "max": LONG_MIN, "bit_and": -1, "bit_or": 0, "bit_xor": 0}
"""What a fixed column of integers (or ordinals, or ranks) holds of no value, by the state's operation."""

Longs = NDArray[np.int64]


# ---------------------------------------------------------------------------------------- numbering
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
    distinct, number = _number_by_hash(codes)
    order = np.argsort(distinct)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return distinct[order], rank[number]


@numba.njit(cache=True)
def _reordered(order, numbers, most):
    """An order of rows sorted once more by their numbers, in [0, most), those of one number as they stand."""
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
    """Some row (d,) of each distinct tuple of numbers, ascending, and the number (n,) of each row's among them.

    ``parts``: of each place in the tuple the rows' numbers (n,), and their bound. O(n), whatever the bounds.
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
    """The distinct values, ascending, and the number (n,) of each row's among them; quick if neighbours are close."""
    if len(values) == 0:
        return values[:0], np.empty(0, dtype=np.int64)
    heads = values[np.flatnonzero(np.append(True, values[1:] != values[:-1]))]
    # sorting is vectorised, np.unique's hashing is not
    heads = np.sort(heads)
    found = heads[np.append(True, heads[1:] != heads[:-1])]
    return found, positions_in(found, values)


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
        found, codes = numbered(codes * size + indices, most * size)
        parts = [part[found // size] for part in parts] + [found % size]
        most = len(found)
    taken = (values.take(pa.array(part)) for (values, _), part in zip(pairs, parts, strict=True))
    return tuple(taken), codes, most


def ranked(column: pa.Array, type: Type) -> tuple[Longs, pa.Array]:
    """Rank (n,) of each value, or text of one, in the order of its type (-1: null), and the distinct ones in order."""
    found = column.dictionary_encode()
    values = found.dictionary
    sortable = values.cast(pa.decimal128(38, type.scale)) if type.name == "decimal" else values
    order = pc.sort_indices(sortable)
    rank = np.full(len(values) + 1, -1, dtype=np.int64)
    rank[order.to_numpy()] = np.arange(len(values))
    codes = pc.fill_null(found.indices, len(values)).to_numpy(zero_copy_only=False)
    return rank[codes], values.take(order)


# ----------------------------------------------------------------------------------- numba: combining
@numba.njit(cache=True)
def _add(cells, values, columns, out):
    for i in range(len(cells)):
        for column in columns:
            out[cells[i], column] += values[i, column]


@numba.njit(cache=True)
def _least(cells, values, out):
    for i in range(len(cells)):
        out[cells[i]] = min(out[cells[i]], values[i])


@numba.njit(cache=True)
def _greatest(cells, values, out):
    for i in range(len(cells)):
        out[cells[i]] = max(out[cells[i]], values[i])


@numba.njit(cache=True)
def _all_bits(cells, values, out):
    for i in range(len(cells)):
        out[cells[i]] &= values[i]


@numba.njit(cache=True)
def _any_bits(cells, values, out):
    for i in range(len(cells)):
        out[cells[i]] |= values[i]


@numba.njit(cache=True)
def _odd_bits(cells, values, out):
    for i in range(len(cells)):
        out[cells[i]] ^= values[i]


_SCATTER: dict[str, Callable[..., None]] = {
    "min": _least,
    "max": _greatest,
    "bit_and": _all_bits,
    "bit_or": _any_bits,
    "bit_xor": _odd_bits,
}


@numba.njit(cache=True)
def _add_doubles(cells, order, values, columns, out):
    for k in range(len(cells)):
        i = order[k] if len(order) else k
        cell = cells[i]
        for column in columns:
            high, x = out[cell, column], values[i, column]
            total = high + x
            if np.isfinite(total):
                virtual = total - high
                error = (high - (total - virtual)) + (x - virtual) + out[cell, column + 1] + values[i, column + 1]
                high = total + error
                out[cell, column], out[cell, column + 1] = high, error - (high - total)
            else:
                # an infinity or NaN carries no rounding error
                out[cell, column], out[cell, column + 1] = total, 0.0


@numba.njit(cache=True)
def winners(cells, present, order, value, greatest, out):
    """The row (c,) of each cell whose pair wins, written to ``out`` (-1 before): of those with ``present`` >= 0 the one
    of the least or greatest (order, present, value); for cells without any, any row."""
    for i in range(len(cells)):
        best = out[cells[i]]
        if best < 0:
            out[cells[i]] = i
            continue
        if present[i] < 0:
            continue
        if present[best] < 0:
            out[cells[i]] = i
            continue
        if order[i] != order[best]:
            better = order[i] > order[best]
        elif present[i] != present[best]:
            better = present[i] > present[best]
        elif value[i] != value[best]:
            better = value[i] > value[best]
        else:
            continue
        if better == greatest:
            out[cells[i]] = i


@numba.njit(cache=True)
def _unite(cells, values, weights, count, greatest):
    """Elements (m,) by cell and value, one each: offsets (count + 1,), values, weights."""
    offsets = np.zeros(count + 1, np.int64)
    for i in range(len(cells)):
        offsets[cells[i] + 1] += 1
    for cell in range(count):
        offsets[cell + 1] += offsets[cell]
    place = offsets[:-1].copy()
    sorted_values = np.empty(len(values), np.int64)
    sorted_weights = np.empty(len(values), np.int64)
    for i in range(len(cells)):
        at = place[cells[i]]
        place[cells[i]] += 1
        sorted_values[at] = values[i]
        sorted_weights[at] = weights[i]
    written = 0
    for cell in range(count):
        low, high = offsets[cell], offsets[cell + 1]
        offsets[cell] = written
        ascending = True
        for i in range(low + 1, high):
            if sorted_values[i] < sorted_values[i - 1]:
                ascending = False
                break
        if not ascending:
            order = np.argsort(sorted_values[low:high], kind="mergesort")
            sorted_values[low:high] = sorted_values[low:high][order]
            sorted_weights[low:high] = sorted_weights[low:high][order]
        first = written
        for i in range(low, high):
            if written > first and sorted_values[written - 1] == sorted_values[i]:
                if not greatest:
                    sorted_weights[written - 1] += sorted_weights[i]
                elif sorted_weights[i] > sorted_weights[written - 1]:
                    sorted_weights[written - 1] = sorted_weights[i]
            else:
                sorted_values[written] = sorted_values[i]
                sorted_weights[written] = sorted_weights[i]
                written += 1
    offsets[count] = written
    return offsets, sorted_values[:written].copy(), sorted_weights[:written].copy()


@numba.njit(cache=True)
def _ragged(first, counts):
    """Positions first[i], first[i] + 1, ... of counts[i] elements for each i, one after the other."""
    out = np.empty(counts.sum(), np.int64)
    at = 0
    for i in range(len(first)):
        for j in range(counts[i]):
            out[at] = first[i] + j
            at += 1
    return out


def _unified(parts: Sequence[pa.StringArray | None], type: Type | None) -> tuple[list[Longs], pa.StringArray | None]:
    """One sorted list of the texts of all parts, and for each part the new rank of its own; None if not texts."""
    if parts[0] is None:
        return [], None
    assert type is not None
    if all(part is not None and part.equals(parts[0]) for part in parts):
        return [np.arange(len(parts[0]), dtype=np.int64)] * len(parts), parts[0]
    ranks, texts = ranked(pa.concat_arrays(parts), type)
    cuts = np.cumsum([len(part) for part in parts if part is not None])
    return np.split(ranks, cuts[:-1]), texts


def _reranked(ranks: Longs, renumbering: Longs) -> Longs:
    """Ranks in a new list of texts; what is no rank (the identity of min or max) stays."""
    known = (ranks >= 0) & (ranks < LONG_MAX)
    return np.where(known, renumbering[np.where(known, ranks, 0)], ranks) if len(renumbering) else ranks


# ------------------------------------------------------------------------------- the states of cells
@dataclass(frozen=True, eq=False)
class Fixed:
    """A state of numbers: ``values`` (n, width), int64 or float64."""

    values: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Texts:
    """The least or greatest text (string, decimal): ``ranks`` (n,) into the sorted ``texts``; where a cell has none,
    :data:`LONG_MAX` (min) or :data:`LONG_MIN` (max)."""

    ranks: Longs
    texts: pa.StringArray

    @property
    def size(self) -> int:
        return 8 * len(self.ranks)

    def take(self, rows: Longs) -> Texts:
        return Texts(self.ranks[rows], self.texts)

    @staticmethod
    def joined(state: State, parts: Sequence[Texts]) -> Texts:
        renumberings, texts = _unified([part.texts for part in parts], state.type)
        assert texts is not None
        return Texts(_joined_ranks([part.ranks for part in parts], renumberings), texts)

    def combined(self, state: State, cell: Longs, cells: int) -> Texts:
        out = np.full(cells, IDENTITIES[state.operation], dtype=np.int64)
        _SCATTER[state.operation](cell, self.ranks, out)
        return Texts(out, self.texts)


@dataclass(frozen=True, eq=False)
class Pairs:
    """A state of one pair (least_by, first, ...): for each cell the winning one of ``order`` (n,) and ``value`` (n,).

    ``present`` (n,) int8: 1 the value is not null; 0 it is null; -1 no tuple of the cell has an order (order and value
    say nothing). Orders and values are integers: ordinals of doubles
    (:func:`optimizer.aggregates.ordinals_of_doubles`), or ranks into the sorted ``order_texts`` and ``value_texts``,
    which are None for other types.
    """

    present: NDArray[np.int8]
    order: Longs
    value: Longs
    order_texts: pa.StringArray | None = None
    value_texts: pa.StringArray | None = None

    @property
    def size(self) -> int:
        return 17 * len(self.order)

    def take(self, rows: Longs) -> Pairs:
        taken = self.present[rows], self.order[rows], self.value[rows]
        return Pairs(*taken, self.order_texts, self.value_texts)

    @staticmethod
    def joined(state: State, parts: Sequence[Pairs]) -> Pairs:
        orders, order_texts = _unified([part.order_texts for part in parts], state.by_type)
        values, value_texts = _unified([part.value_texts for part in parts], state.type)
        return Pairs(
            np.concatenate([part.present for part in parts]),
            _joined_ranks([part.order for part in parts], orders),
            _joined_ranks([part.value for part in parts], values),
            order_texts,
            value_texts,
        )

    def combined(self, state: State, cell: Longs, cells: int) -> Pairs:
        best = np.full(cells, -1, dtype=np.int64)
        winners(cell, self.present, self.order, self.value, state.operation == "greatest_by", best)
        return self.take(best)


def _joined_ranks(parts: Sequence[Longs], renumberings: list[Longs]) -> Longs:
    if not renumberings:
        return np.concatenate(parts)
    pairs = zip(parts, renumberings, strict=True)
    return np.concatenate([_reranked(part, renumbering) for part, renumbering in pairs])


@dataclass(frozen=True, eq=False)
class Multiset:
    """A state of variable length: cell i has the distinct ``values[offsets[i]:offsets[i + 1]]``, ascending, with their
    ``weights``.

    Values are integers (decimals unscaled), ordinals of doubles (:func:`optimizer.aggregates.ordinals_of_doubles`; 0.0
    stands for -0.0), or ranks into the sorted ``texts``. Of ``registers``: the register's number, weighted by its rank.
    """

    offsets: Longs
    values: Longs
    weights: Longs
    texts: pa.StringArray | None = None

    @property
    def size(self) -> int:
        return 16 * len(self.values)

    def take(self, rows: Longs) -> Multiset:
        counts = np.diff(self.offsets)[rows]
        elements = _ragged(self.offsets[:-1][rows], counts)
        return Multiset(_offsets(counts), self.values[elements], self.weights[elements], self.texts)

    @staticmethod
    def joined(state: State, parts: Sequence[Multiset]) -> Multiset:
        ranks, texts = _unified([part.texts for part in parts], state.type)
        return Multiset(
            _offsets(np.concatenate([np.diff(part.offsets) for part in parts])),
            _joined_ranks([part.values for part in parts], ranks),
            np.concatenate([part.weights for part in parts]),
            texts,
        )

    def combined(self, state: State, cell: Longs, cells: int) -> Multiset:
        elements = np.repeat(cell, np.diff(self.offsets))
        return united(state, elements, self.values, self.weights, cells, self.texts)


def united(
    state: State, cell: Longs, values: Longs, weights: Longs, cells: int, texts: pa.StringArray | None
) -> Multiset:
    """The multisets of ``cells`` cells from elements (m,): their cell, value and weight, in any order."""
    offsets, values, weights = _unite(cell, values, weights, cells, state.operation == "union_max")
    return Multiset(offsets, values, weights, texts)


def _offsets(counts: Longs) -> Longs:
    out = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=out[1:])
    return out


def carry(limbs: Longs) -> None:
    """Move what exceeds 32 bits in each limb (n, limbs) of exact sums to the next, in place."""
    for limb in range(limbs.shape[1] - 1):
        limbs[:, limb + 1] += limbs[:, limb] >> LIMB
        limbs[:, limb] &= (1 << LIMB) - 1


Column = Texts | Pairs | Multiset
States = dict[State, Fixed | Column]
"""The columns of each state, all of n cells."""


def _class_of(state: State) -> type[Fixed] | type[Texts] | type[Pairs] | type[Multiset]:
    if state.kind in MULTISETS:
        return Multiset
    if state.kind in PAIRS:
        return Pairs
    return Texts if state.carrier == "texts" else Fixed


def numbers_of(states: Iterable[State]) -> dict[str, dict[State, int]]:
    """The first column of each state of numbers in the matrix of its carrier, in the order of the states."""
    found: dict[str, dict[State, int]] = {"longs": {}, "doubles": {}}
    widths = dict.fromkeys(found, 0)
    for state in states:
        if _class_of(state) is Fixed:
            found[state.carrier][state] = widths[state.carrier]
            widths[state.carrier] += state.width
    return found


# ---------------------------------------------------------------------------------------- the cells
@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of one synopsis.

    ``starts``, ``ends`` (n,): the fragments (microseconds, or row numbers); ``shards`` (n,): signatures; ``group``
    (n,): number of the group, below ``groups``; ``key_columns``: for each column of ``synopsis.group_by`` the groups'
    values (groups,) as texts, which :func:`spark_jobs.final_aggregates.typed` reads back. ``longs`` (n, w) and
    ``doubles`` (n, v): the states of numbers, side by side as :func:`numbers_of` says; ``others``: the other states.
    :attr:`states` has all of them. Rows are in any order, and a cell may occur more than once, unless
    :meth:`combined` made them.
    """

    synopsis: Synopsis
    starts: Longs
    ends: Longs
    shards: Longs
    group: Longs
    groups: int
    key_columns: tuple[pa.StringArray, ...]
    longs: Longs
    doubles: NDArray[np.float64]
    others: dict[State, Column]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def size(self) -> int:
        """Bytes of its arrays, about."""
        rows = 32 * len(self) + self.longs.nbytes + self.doubles.nbytes
        keys = sum(column.nbytes for column in self.key_columns)
        return int(rows + keys + sum(column.size for column in self.others.values()))

    @cached_property
    def states(self) -> States:
        """The columns of each state, in the synopsis's order."""
        found: States = dict(self.others)
        for carrier, matrix in (("longs", self.longs), ("doubles", self.doubles)):
            for state, first in numbers_of(self.synopsis.states)[carrier].items():
                found[state] = Fixed(matrix[:, first : first + state.width])
        return {state: found[state] for state in self.synopsis.states}

    @cached_property
    def keys(self) -> list[tuple[str | None, ...]]:
        """The groups' values as tuples of texts."""
        if not self.key_columns:
            return [()] * self.groups
        return list(zip(*(column.to_pylist() for column in self.key_columns), strict=True))

    @cached_property
    def key_texts(self) -> pa.StringArray:
        """The groups' values as JSON lists of texts, as they are stored."""
        return key_texts(self.key_columns, self.groups)

    def take(self, rows: Longs) -> Cells:
        """Some rows, in the order given."""
        return replace(
            self,
            starts=self.starts[rows],
            ends=self.ends[rows],
            shards=self.shards[rows],
            group=self.group[rows],
            longs=self.longs.take(rows, axis=0),
            doubles=self.doubles.take(rows, axis=0),
            others={state: column.take(rows) for state, column in self.others.items()},
        )

    def combined(self) -> Cells:
        """One row a cell, by group (in the order of :attr:`key_texts`), start and shard; groups without rows go.

        Equal cells are combined in an order that their contents decide: the same cells give the same bits in whatever
        order they arrive. O(n + g log g) for g groups, beside ordering the rows that are equal cells.
        """
        return self._arranged(pc.sort_indices(self.key_texts).to_numpy())._regrouped(by_content=True)

    def to_store(self) -> Cells:
        """As :meth:`combined`, but by bucket first, and rows that are equal cells are combined as they come."""
        order = pc.sort_indices(
            pa.table([buckets(self), self.key_texts], names=["bucket", "key"]),
            [("bucket", "ascending"), ("key", "ascending")],
        )
        return self._arranged(order.to_numpy())._regrouped()

    def _arranged(self, order: NDArray[Any]) -> Cells:
        """Groups numbered in an order, those without rows left out."""
        used = np.zeros(self.groups, dtype=bool)
        used[self.group] = True
        order = order.astype(np.int64)
        order = order[used[order]]
        rank = np.zeros(self.groups, dtype=np.int64)
        rank[order] = np.arange(len(order))
        columns = tuple(column.take(pa.array(order)) for column in self.key_columns)
        return replace(self, group=rank[self.group], groups=len(order), key_columns=columns)

    def projected(self, bit: int, group_by: tuple[tuple[str, Type], ...]) -> Cells:
        """The cells of one family: the shards with ``bit`` in one, groups rolled up to some of the columns, in the
        order of ``group_by``; combined, all of shard 1."""
        predicate = self.synopsis.predicates[bit.bit_length() - 1]
        family = replace(
            self.synopsis,
            predicates=(predicate,),
            group_by=group_by,
            bucket_by=tuple(name for name, _ in group_by if name in self.synopsis.bucket_by),
        )
        return self._mapped(family, None).combined()

    def rolled_up(self, synopsis: Synopsis, begin: int = LONG_MIN, end: int = LONG_MAX) -> Cells:
        """The cells of a coarser synopsis over the same events, for its fragments that start in [begin, end).

        ``synopsis``: its edges, predicates, group columns and states are among this one's. In any order, and more than
        one of a cell.
        """
        return self._mapped(synopsis, (begin, end))

    def keys_of(
        self, group_by: tuple[tuple[str, Type], ...], predicates: tuple[Expression | None, ...]
    ) -> tuple[tuple[pa.StringArray, ...], int]:
        """The distinct values of some group columns among the tuples that satisfy some of the predicates."""
        bare = replace(self.synopsis, predicates=predicates, group_by=group_by, states=(), bucket_by=())
        cells = self._mapped(bare, None)
        used, _ = numbered(cells.group, cells.groups)
        return tuple(column.take(pa.array(used)) for column in cells.key_columns), len(used)

    def merged(self) -> Cells:
        """One row a cell, by start, group and shard; equal cells are combined in the order of the rows."""
        return self._regrouped(by_time=True)

    def _mapped(self, synopsis: Synopsis, span: tuple[int, int] | None) -> Cells:
        """Every row under the names of a coarser synopsis; rows that it does not hold are left out."""
        cells = self
        signatures, number = distinct_of(self.shards)
        shards = _signatures(signatures, self.synopsis.predicates, synopsis.predicates)[number]
        keep = shards != 0
        if span is not None:
            keep &= (self.starts >= span[0]) & (self.starts < span[1])
        if not keep.all():
            rows = np.flatnonzero(keep)
            cells, shards = self.take(rows), shards[rows]
        starts, ends = cells.starts, cells.ends
        if synopsis.edges != self.synopsis.edges:
            first, last, number = fragments_of(synopsis.fragments, starts)
            starts, ends = first[number], last[number]
        names = [name for name, _ in self.synopsis.group_by]
        columns = tuple(cells.key_columns[names.index(name)] for name, _ in synopsis.group_by)
        group, groups = cells.group, cells.groups
        if len(columns) < len(cells.key_columns):
            columns, number, groups = distinct_rows(columns, groups)
            group = number[group]
        longs, doubles = cells.longs, cells.doubles
        if synopsis.states != self.synopsis.states:
            places = numbers_of(self.synopsis.states)
            chosen = {
                carrier: [places[carrier][state] + k for state in states for k in range(state.width)]
                for carrier, states in numbers_of(synopsis.states).items()
            }
            longs, doubles = longs[:, chosen["longs"]], doubles[:, chosen["doubles"]]
        others = {state: cells.others[state] for state in synopsis.states if state in cells.others}
        return Cells(synopsis, starts, ends, shards, group, groups, columns, longs, doubles, others)

    def _regrouped(self, by_content: bool = False, by_time: bool = False) -> Cells:
        """One row a cell: by group, start and shard, or ``by_time``: by start, group and shard."""
        starts, fragment = distinct_of(self.starts)
        shards, shard = distinct_of(self.shards)
        parts = [(self.group, self.groups), (fragment, len(starts)), (shard, len(shards))]
        if by_time:
            parts[:2] = parts[1::-1]
        row, cell = numbered_tuples(parts, len(self))
        cells = len(row)
        if cells == len(self):
            return self if bool((row[1:] > row[:-1]).all()) else self.take(row)
        return Cells(
            self.synopsis,
            self.starts[row],
            self.ends[row],
            self.shards[row],
            self.group[row],
            self.groups,
            self.key_columns,
            self._combined_longs(cell, cells),
            self._combined_doubles(cell, cells, by_content),
            {state: column.combined(state, cell, cells) for state, column in self.others.items()},
        )

    def _combined_longs(self, cell: Longs, cells: int) -> Longs:
        places = numbers_of(self.synopsis.states)["longs"]
        out = np.zeros((cells, self.longs.shape[1]), dtype=np.int64)
        sums = [(state, first) for state, first in places.items() if state.operation == "add"]
        columns = [first + k for state, first in sums for k in range(state.width)]
        _add(cell, self.longs, np.array(columns, dtype=np.int64), out)
        for state, first in sums:
            if state.kind == "sum":
                carry(out[:, first : first + state.width])
        for state, first in places.items():
            if state.operation != "add":
                out[:, first] = IDENTITIES[state.operation]
                _SCATTER[state.operation](cell, self.longs[:, first], out[:, first])
        return out

    def _combined_doubles(self, cell: Longs, cells: int, by_content: bool) -> NDArray[np.float64]:
        places = numbers_of(self.synopsis.states)["doubles"]
        out = np.zeros((cells, self.doubles.shape[1]))
        sums = [first for state, first in places.items() if state.operation == "add_double"]
        if sums:
            order = self._content_order(cell, cells, sums) if by_content else np.empty(0, dtype=np.int64)
            _add_doubles(cell, order, self.doubles, np.array(sums), out)
        for state, first in places.items():
            if state.operation != "add_double":
                # zeros have an order too: the least of both is -0.0, whichever came first
                values = ordinals_of_doubles(self.doubles[:, first], exact=True)
                best = np.full(cells, IDENTITIES[state.operation], dtype=np.int64)
                _SCATTER[state.operation](cell, values, best)
                out[:, first] = doubles_of_ordinals(best)
        return out

    def _content_order(self, cell: Longs, cells: int, sums: list[int]) -> Longs:
        """An order of the rows in which those of one cell stand as their sums of doubles say."""
        several = np.bincount(cell, minlength=cells)[cell] > 1
        rows = np.flatnonzero(several)
        columns = [first + k for first in sums for k in range(2)]
        content = np.ascontiguousarray(self.doubles[rows][:, columns]).view(np.int64)
        return np.concatenate([np.flatnonzero(~several), rows[np.lexsort((*content.T, cell[rows]))]])

    # ------------------------------------------------------------------------------------- stored rows
    @staticmethod
    def decode(synopsis: Synopsis, rows: pa.Table) -> Cells:
        """Rows of :data:`PARTIALS` of one synopsis, all with a key, as cells; in their order."""
        rows = rows.unify_dictionaries().combine_chunks()
        stored, indices = encoded(_flat(rows["key"]))
        # a file's dictionary has the keys of other synopses, too
        used, group = numbered(indices.astype(np.int64), len(stored))
        texts = stored.take(pa.array(used)).to_pylist()
        values = json.loads("[" + ",".join(texts) + "]")
        columns = [pa.array(column, pa.string()) for column in zip(*values, strict=True)] if values else []
        empty = [pa.array([], pa.string())] * len(synopsis.group_by)
        lists = {carrier: _Lists.of(synopsis, carrier, _flat(rows[carrier])) for carrier in CARRIERS}
        readers = {state: _READERS.get(_class_of(state)) for state in synopsis.states}
        return Cells(
            synopsis,
            rows["fragment_start"].to_numpy(),
            rows["fragment_end"].to_numpy(),
            rows["shard"].to_numpy(),
            group,
            len(texts),
            tuple(columns or empty),
            lists["longs"].numbers(),
            lists["doubles"].numbers(),
            {state: reader(state, lists) for state, reader in readers.items() if reader is not None},
        )

    def encode(self) -> pa.Table:
        """The cells as rows of :data:`PARTIALS`, in their order."""
        rows = len(self)
        days, number = distinct_of(self.starts // DAY)
        labels = np.datetime_as_string(days.astype("datetime64[D]")) if rows else np.array([], dtype=str)
        numbers = buckets(self)
        group = pa.array(self.group)
        written = _Written(self)
        return pa.table(
            [
                pa.array(labels, pa.string()).take(pa.array(number)),
                pa.repeat(pa.scalar(self.synopsis.stream), rows),
                pa.repeat(pa.scalar(self.synopsis.fingerprint), rows),
                pa.array(self.starts),
                pa.array(self.ends),
                self.key_texts.take(group),
                pa.array(self.shards),
                pa.array(numbers[self.group]),
                *(written.column(carrier) for carrier in CARRIERS),
            ],
            schema=PARTIALS,
        )


def concatenated(cells: Sequence[Cells]) -> Cells:
    """Cells of one synopsis one after the other (at least one), groups and texts numbered anew."""
    first = cells[0]
    if len(cells) == 1:
        return first
    total = sum(part.groups for part in cells)
    joined = [pa.concat_arrays(columns) for columns in zip(*(part.key_columns for part in cells), strict=True)]
    columns, number, groups = distinct_rows(joined, total)
    cuts = np.cumsum([0, *(part.groups for part in cells)])
    return Cells(
        first.synopsis,
        np.concatenate([part.starts for part in cells]),
        np.concatenate([part.ends for part in cells]),
        np.concatenate([part.shards for part in cells]),
        np.concatenate([number[low + part.group] for low, part in zip(cuts, cells, strict=False)]),
        groups,
        columns,
        np.concatenate([part.longs for part in cells]),
        np.concatenate([part.doubles for part in cells]),
        {
            state: column.joined(state, [part.others[state] for part in cells])  # type: ignore[misc]
            for state, column in first.others.items()
        },
    )


def key_texts(columns: Sequence[pa.StringArray], groups: int) -> pa.StringArray:
    """Groups' values (columns of texts) as JSON lists, null as null."""
    if not columns:
        return pa.array(["[]"] * groups, pa.string())
    written = pc.binary_join_element_wise(*map(_json_texts, columns), ",")
    return pc.binary_join_element_wise("[", written, "]", "")


def _json_texts(column: pa.StringArray) -> pa.StringArray:
    if pc.any(pc.match_substring_regex(column, r'["\\\x00-\x1f]'), min_count=0).as_py():
        texts = [json.dumps(value, ensure_ascii=False) for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    return pc.fill_null(pc.binary_join_element_wise('"', column, '"', ""), "null")


def buckets(cells: Cells) -> NDArray[np.int32]:
    """Bucket (groups,) of each group: that of its values of ``synopsis.bucket_by`` alone, so that all the groups that
    a family rolls up to one are in one bucket."""
    names = [name for name, _ in cells.synopsis.group_by]
    if list(cells.synopsis.bucket_by) == names:
        return bucket_of(cells.key_texts.to_pylist())
    chosen = [cells.key_columns[names.index(name)] for name in cells.synopsis.bucket_by]
    columns, number, groups = distinct_rows(chosen, cells.groups)
    return bucket_of(key_texts(columns, groups).to_pylist())[number]


def fragments_of(fragments: Fragments, instants: Longs) -> tuple[Longs, Longs, Longs]:
    """Starts and ends (f,) of fragments, ascending, and the number (n,) of each instant's; quick where neighbours are
    close in time."""
    if len(instants) == 0:
        return instants, instants, instants
    low, high = int(instants.min()), int(instants.max())
    first = fragments.last_edge(low)
    if _edges_between(fragments, first, high) > max(len(instants), 1 << 16):
        starts, number = distinct_of(fragments.starts(instants))
        return starts, fragments.ends(starts), number
    starts = fragments.between(first, high)
    return starts, np.append(starts[1:], fragments.ends(starts[-1:])), positions_in(starts, instants)


def _edges_between(fragments: Fragments, first: int, last: int) -> int:
    return sum((last - first) // slide + 1 for slide, _ in (*fragments.edges, (DAY, 0)))


def _signatures(shards: Longs, predicates: Sequence[Expression | None], wanted: Sequence[Expression | None]) -> Longs:
    """Signatures over some predicates as signatures over some of them, in their own order."""
    if tuple(predicates) == tuple(wanted):
        return shards
    out = np.zeros(len(shards), dtype=np.int64)
    for bit, predicate in enumerate(wanted):
        out |= ((shards >> predicates.index(predicate)) & 1) << bit
    return out


# ---------------------------------------------------------------------------------- reading and writing
@dataclass(frozen=True, eq=False)
class _Lists:
    """One carrier of stored rows: ``values`` of all lists, ``first`` (n,) position of each, and behind its fixed
    columns the ``tail`` (n,), where the next state of variable length stands."""

    synopsis: Synopsis
    values: Any
    first: Longs
    tail: Longs
    matrix: NDArray[Any] | None
    offset: dict[State, int]

    @staticmethod
    def of(synopsis: Synopsis, carrier: str, column: pa.ListArray) -> _Lists:
        width = synopsis.width(carrier)
        offsets = column.offsets.to_numpy().astype(np.int64)
        values = column.values if carrier == "texts" else column.values.to_numpy(zero_copy_only=False)
        first = offsets[:-1]
        matrix = None
        if carrier != "texts":
            if len(first) and offsets[-1] - offsets[0] == width * len(first):
                matrix = values[offsets[0] : offsets[-1]].reshape(len(first), width)
            else:
                matrix = values[first[:, None] + np.arange(width)] if len(first) else values[:0].reshape(0, width)
        return _Lists(synopsis, values, first, first + width, matrix, dict(synopsis.layout(carrier)))

    def numbers(self) -> NDArray[Any]:
        """The columns of the states of numbers, as :func:`numbers_of` has them."""
        assert self.matrix is not None
        widths = [(self.offset[state], state.width) for state in self.offset if _class_of(state) is Fixed]
        columns = [first + k for first, width in widths for k in range(width)]
        return self.matrix if len(columns) == self.matrix.shape[1] else self.matrix[:, columns]

    def column(self, state: State, skip: int = 0) -> NDArray[Any]:
        assert self.matrix is not None
        return np.ascontiguousarray(self.matrix[:, self.offset[state] + skip])

    def texts(self, state: State, skip: int = 0) -> pa.StringArray:
        return self.values.take(pa.array(self.first + self.offset[state] + skip))

    def tails(self, counts: Longs) -> Any:
        """The next ``counts[i]`` values of each list."""
        at = _ragged(self.tail, counts)
        self.tail[:] = self.tail + counts
        return self.values.take(pa.array(at)) if isinstance(self.values, pa.Array) else self.values[at]


def _read_texts(state: State, lists: dict[str, _Lists]) -> Texts:
    assert state.type is not None
    ranks, texts = ranked(lists["texts"].texts(state), state.type)
    ranks[ranks < 0] = IDENTITIES[state.kind]
    return Texts(ranks, texts)


def _read_pairs(state: State, lists: dict[str, _Lists]) -> Pairs:
    assert state.type is not None and state.by_type is not None
    stored = lists["longs"]
    present = stored.column(state).astype(np.int8)
    found: list[tuple[Longs, pa.StringArray | None]] = []
    used = {"longs": 1, "texts": 0}
    for type in (state.by_type, state.type):
        if carrier_of(type) == "texts":
            ranks, texts = ranked(lists["texts"].texts(state, used["texts"]), type)
            found.append((np.maximum(ranks, 0), texts))
            used["texts"] += 1
        else:
            found.append((stored.column(state, used["longs"]), None))
            used["longs"] += 1
    (order, order_texts), (value, value_texts) = found
    return Pairs(present, order, value, order_texts, value_texts)


def _read_multiset(state: State, lists: dict[str, _Lists]) -> Multiset:
    counts = lists["longs"].column(state)
    assert state.tail is not None
    values, texts = lists[state.tail].tails(counts), None
    if state.tail == "doubles":
        values = ordinals_of_doubles(values)
    elif state.tail == "texts":
        assert state.type is not None
        values, texts = ranked(values, state.type)
    return Multiset(_offsets(counts), values, lists["longs"].tails(counts), texts)


_READERS: dict[type, Callable[[State, dict[str, _Lists]], Any]] = {
    Texts: _read_texts,
    Pairs: _read_pairs,
    Multiset: _read_multiset,
}


class _Written:
    """The list columns of cells: for each carrier the fixed columns, and the tails (n, variable) in their order."""

    def __init__(self, cells: Cells) -> None:
        self.rows = len(cells)
        self.numbers: dict[str, Any] = {"longs": cells.longs, "doubles": cells.doubles}
        self.fixed: dict[str, list[Any]] = {carrier: [] for carrier in CARRIERS}
        self.tails: dict[str, list[tuple[Longs, Any]]] = {carrier: [] for carrier in CARRIERS}
        for state in cells.synopsis.states if cells.others else ():
            column = cells.states[state]
            _WRITERS[type(column)](self, state, column)

    def column(self, carrier: str) -> pa.ListArray:
        fixed, tails = self.fixed[carrier], self.tails[carrier]
        if carrier == "texts":
            return self._texts(fixed, tails)
        values = np.concatenate(fixed, axis=1) if fixed else self.numbers[carrier]
        width = values.shape[1]
        lengths = np.full(self.rows, width, dtype=np.int64)
        for counts, _ in tails:
            lengths += counts
        offsets = _offsets(lengths)
        flat = values.reshape(-1)
        if tails:
            flat = np.empty(offsets[-1], dtype=values.dtype)
            flat[offsets[:-1, None] + np.arange(width)] = values
            at = offsets[:-1] + width
            for counts, tail in tails:
                flat[_ragged(at, counts)] = tail
                at = at + counts
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(flat))

    def _texts(self, fixed: list[Any], tails: list[tuple[Longs, Any]]) -> pa.ListArray:
        """As the others; the texts of all states stand one after the other and are taken in the rows' order."""
        parts = [(np.ones(self.rows, dtype=np.int64), texts) for texts in fixed] + tails
        lengths = np.zeros(self.rows, dtype=np.int64)
        for counts, _ in parts:
            lengths += counts
        offsets = _offsets(lengths)
        source = np.empty(offsets[-1], dtype=np.int64)
        at, base = offsets[:-1], 0
        for counts, texts in parts:
            source[_ragged(at, counts)] = np.arange(base, base + len(texts))
            at, base = at + counts, base + len(texts)
        every = pa.concat_arrays([pa.array([], pa.string()), *(texts for _, texts in parts)])
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), every.take(pa.array(source)))


def _texts_at(texts: pa.StringArray, ranks: Longs) -> pa.StringArray:
    known = (ranks >= 0) & (ranks < len(texts))
    return texts.take(pa.array(np.where(known, ranks, 0), mask=~known))


def _write_fixed(out: _Written, state: State, column: Fixed) -> None:
    out.fixed[state.carrier].append(column.values)


def _write_texts(out: _Written, state: State, column: Texts) -> None:
    out.fixed["texts"].append(_texts_at(column.texts, column.ranks))


def _write_pairs(out: _Written, state: State, column: Pairs) -> None:
    out.fixed["longs"].append(column.present.astype(np.int64)[:, None])
    absent = column.present < 0
    sides = (column.order, column.order_texts, absent), (column.value, column.value_texts, column.present < 1)
    for values, texts, null in sides:
        if texts is not None:
            out.fixed["texts"].append(_texts_at(texts, np.where(null, -1, values)))
        else:
            out.fixed["longs"].append(np.where(null, 0, values)[:, None])


def _write_multiset(out: _Written, state: State, column: Multiset) -> None:
    counts = np.diff(column.offsets)
    out.fixed["longs"].append(counts[:, None])
    assert state.tail is not None
    values: Any = column.values
    if state.tail == "doubles":
        values = doubles_of_ordinals(values)
    elif state.tail == "texts":
        assert column.texts is not None
        values = _texts_at(column.texts, values)
    out.tails[state.tail].append((counts, values))
    out.tails["longs"].append((counts, column.weights))


_WRITERS: dict[type, Callable[[_Written, State, Any], None]] = {
    Fixed: _write_fixed,
    Texts: _write_texts,
    Pairs: _write_pairs,
    Multiset: _write_multiset,
}


def _flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
