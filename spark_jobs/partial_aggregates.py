"""Partial aggregates: one pass over a stream fills every synopsis of every tree.

Each task reads its splits itself (:mod:`spark_jobs.sources`) and lifts the events with NumPy and Numba; only files of
partial rows leave it. However many synopses a stream has, an event is lifted once: into *atoms*, the cells of the
union of all their edges, predicates, group columns and states. At the end of the task the cells of each synopsis are
rolled up from the smallest cells that can give them, atoms or those of another synopsis. That pays while there are far
fewer atoms than events. Where measured counts say it does not (filters or group columns that cut the events to
pieces), the synopses are divided into *families* that share less: by group columns, then by predicates, then by edges;
at worst each is lifted alone, which costs what it would without the others.

References: Gray et al., "Data Cube" (1997), and Agarwal et al., "On the computation of multidimensional aggregates"
(VLDB 1996), for the smallest parent; Zhang et al., "Multiple aggregations over data streams" (SIGMOD 2005), for atoms
that nobody asked for (their phantoms).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates import (
    LIMB,
    MULTISETS,
    PAIRS,
    ROWS,
    State,
    carrier_of,
    doubles_of_ordinals,
    hash64,
    hash64_of_texts,
    limbs_of,
    ordinals_of_doubles,
    precision_of,
    registers_of,
    thin_frequent,
    thin_quantiles,
)
from optimizer.expression import type_of
from optimizer.query import Expression, Stream, Type, columns_of
from optimizer.synopsis import MOST_PREDICATES, Synopsis
from optimizer.window import absorb
from spark_jobs.cells import (
    DENSE,
    IDENTITIES,
    LONG_MAX,
    PARTIALS,
    Cells,
    Column,
    Longs,
    Multiset,
    Pairs,
    Texts,
    carry,
    concatenated,
    distinct_rows,
    encoded,
    fragments_of,
    numbered,
    numbers_of,
    ranked,
    united,
    winners,
)
from spark_jobs.expressions import evaluate
from spark_jobs.files import DataFile, Failed, Task, write_files
from spark_jobs.sources import Split, read_split, times_of

__all__ = [
    "GROUP_LIMIT",
    "PARTIALS",
    "Lifting",
    "Span",
    "by_fingerprint",
    "columns_of_synopsis",
    "lift_task",
    "partials_of",
]

GROUP_LIMIT = 2_000_000
"""Most groups of one synopsis that one task fills; one with more fails alone (HDL-602)."""

BATCH_ROWS = 1 << 18
"""Smaller batches are put together first: what a batch costs beside its events is paid once for so many."""

SLICE_ROWS = 1 << 20
"""Larger batches are cut."""

MEMORY = 1 << 29
"""Bytes of cells at which a task writes what it has, and starts anew."""

ROLL_UP_COST = 3
"""Rolling one cell up costs about as much as lifting so many events."""


@dataclass(frozen=True)
class Span:
    """Fill a synopsis for the fragments that start in [begin, end) (microseconds; both are edges)."""

    synopsis: Synopsis
    begin: int
    end: int


# -------------------------------------------------------------------------------------- numba: numbering
@numba.njit(cache=True)
def _codes(fragment, first, last, group, groups):
    """Codes (n,) of each event's fragment and group, and of how many it is in no fragment of [first, last): -1."""
    out = np.empty(len(fragment), np.int64)
    outside = 0
    for i in range(len(fragment)):
        inside = fragment[i] >= first and fragment[i] < last
        out[i] = fragment[i] - first if inside else -1
        outside += not inside
    if len(group):
        for i in range(len(out)):
            out[i] = out[i] * groups + group[i] if out[i] >= 0 else -1
    return out, outside


@numba.njit(cache=True)
def _with_shards(codes, rows, shard, shards):
    out = np.empty(len(codes), np.int64)
    for i in range(len(codes)):
        out[i] = codes[i] * shards + shard[rows[i] if len(rows) else i]
    return out


@numba.njit(cache=True)
def _count_densely(codes, most):
    """The number (n,) of each code among the distinct ones; those (c,), ascending; how often each occurs."""
    table = np.zeros(most, np.int64)
    for i in range(len(codes)):
        table[codes[i]] += 1
    count = np.count_nonzero(table)
    distinct, events = np.empty(count, np.int64), np.empty(count, np.int64)
    number = 0
    for code in range(most):
        if table[code]:
            distinct[number], events[number] = code, table[code]
            table[code] = number
            number += 1
    out = np.empty(len(codes), np.int64)
    for i in range(len(codes)):
        out[i] = table[codes[i]]
    return out, distinct, events


def _counted(codes: Longs, most: int) -> tuple[Longs, Longs, Longs]:
    """The cell (n,) of each event, given its code; of each cell the code, ascending, and its events."""
    if most <= max(DENSE, 4 * len(codes)):
        cell, distinct, events = _count_densely(codes, most)
        return cell, distinct, events
    distinct, cell = numbered(codes, LONG_MAX)
    return cell, distinct, np.bincount(cell, minlength=len(distinct))


@numba.njit(cache=True)
def _set_bit(signatures, passing, bit):
    for i in range(len(signatures)):
        signatures[i] |= np.int64(passing[i]) << bit


# ---------------------------------------------------------------------------------------- numba: lifting
LOW = (1 << LIMB) - 1
LEAST_DOUBLE, NAN = (int(ordinal) for ordinal in ordinals_of_doubles(np.array([-np.inf, np.nan])))


@numba.njit(cache=True)
def _lift_longs(cells, rows, values, valid, out, count, total, least, greatest, every, some, odd):
    """Values of events (all, if ``rows`` is empty) into their cells: columns of ``out`` for each state, -1: not wanted.
    Beside ``total``, the low limb, stands the high one."""
    for k in range(len(cells)):
        i = rows[k] if len(rows) else k
        if len(valid) and not valid[i]:
            continue
        cell = cells[k]
        x = values[i]
        if count >= 0:
            out[cell, count] += 1
        if total >= 0:
            out[cell, total] += x & LOW
            out[cell, total + 1] += x >> LIMB
        if least >= 0:
            out[cell, least] = min(out[cell, least], x)
        if greatest >= 0:
            out[cell, greatest] = max(out[cell, greatest], x)
        if every >= 0:
            out[cell, every] &= x
        if some >= 0:
            out[cell, some] |= x
        if odd >= 0:
            out[cell, odd] ^= x


@numba.njit(cache=True)
def _lift_doubles(cells, rows, values, bits, valid, out, ordinals, total, squares, least, greatest):
    """As :func:`_lift_longs`; behind a sum stands its rounding error. Extremes are kept as ordinals, in the same
    memory. ``bits``: the values' own."""
    for k in range(len(cells)):
        i = rows[k] if len(rows) else k
        if len(valid) and not valid[i]:
            continue
        cell = cells[k]
        x = values[i]
        if total >= 0:
            before = out[cell, total]
            after = before + x
            if np.isfinite(after):
                virtual = after - before
                out[cell, total + 1] += (before - (after - virtual)) + (x - virtual)
            else:
                # an infinity or NaN carries no rounding error
                out[cell, total + 1] = 0.0
            out[cell, total] = after
        if squares >= 0:
            # x * x and its rounding error (Dekker)
            split = 134217729.0 * x
            high = split - (split - x)
            low = x - high
            square = x * x
            error = low * low - ((square - high * high) - 2.0 * high * low)
            if not np.isfinite(error):
                error = 0.0
            before = out[cell, squares]
            after = before + square
            if np.isfinite(after):
                virtual = after - before
                out[cell, squares + 1] += (before - (after - virtual)) + (square - virtual) + error
            else:
                out[cell, squares + 1] = 0.0
            out[cell, squares] = after
        if least >= 0 or greatest >= 0:
            # Spark's order: NaN is the greatest value of all
            ordinal = bits[i] ^ ((bits[i] >> 63) & LONG_MAX) if x == x else NAN
            if least >= 0:
                ordinals[cell, least] = min(ordinals[cell, least], ordinal)
            if greatest >= 0:
                ordinals[cell, greatest] = max(ordinals[cell, greatest], ordinal)


@numba.njit(cache=True)
def _lift_words(cells, rows, low, high, valid, out, total):
    for k in range(len(cells)):
        i = rows[k] if len(rows) else k
        if len(valid) and not valid[i]:
            continue
        cell = cells[k]
        out[cell, total] += low[i] & LOW
        out[cell, total + 1] += (low[i] >> LIMB) & LOW
        out[cell, total + 2] += high[i] & LOW
        out[cell, total + 3] += high[i] >> LIMB


# ------------------------------------------------------------------------------------- values of a batch
class _Values:
    """An argument's values (n,) of one batch, in the forms that kernels take; nulls are anything in them."""

    def __init__(self, array: pa.Array, type: Type) -> None:
        self.array, self.type = array, type

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """Where it is not null; empty: everywhere."""
        known = self.array.null_count == 0
        return np.empty(0, dtype=bool) if known else self.array.is_valid().to_numpy(zero_copy_only=False)

    @cached_property
    def doubles(self) -> NDArray[np.float64]:
        """Numbers as float64; decimals unscaled (the variance divides by the scale squared)."""
        if pa.types.is_decimal(self.array.type):
            low, high = self.words
            negative = high < 0
            # magnitude and sign: two's complement would cancel small negative numbers away
            unsigned = low.view(np.uint64)
            low = np.where(negative, np.uint64(0) - unsigned, unsigned)
            high = np.where(negative, ~high + (low == 0), high)
            magnitude = high.astype(np.float64) * 2.0**64 + low.astype(np.float64)
            return np.where(negative, -magnitude, magnitude)
        # not a safe cast: variance takes integers beyond 2**53 as doubles, as Spark's does
        return _filled(self.array.cast(pa.float64(), safe=False), 0.0)

    @cached_property
    def words(self) -> tuple[Longs, Longs]:
        """The low and the high 64 bits of unscaled decimals, in two's complement over both."""
        first, rows = self.array.offset, len(self.array)
        words = np.frombuffer(self.array.buffers()[1], dtype=np.int64)[2 * first : 2 * (first + rows)]
        return np.ascontiguousarray(words[0::2]), np.ascontiguousarray(words[1::2])

    @cached_property
    def is_narrow(self) -> bool:
        return self.type.name == "decimal" and limbs_of(self.type) == 2

    @cached_property
    def longs(self) -> Longs:
        """Integers, booleans, dates and timestamps, decimals of one word, ordinals of doubles, ranks of other decimals
        and of strings: integers in the order of the values, equal if they are."""
        if self.is_narrow:
            return self.words[0]
        if self.type.name == "double":
            return ordinals_of_doubles(self.doubles)
        if carrier_of(self.type) == "texts":
            return self._ranked[0]
        array = self.array
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.int8())
        elif pa.types.is_date32(array.type):
            array = array.cast(pa.int32())
        return _filled(array.cast(pa.int64()), 0)

    @cached_property
    def exact(self) -> Longs:
        """As :attr:`longs`, but -0.0 stays what it is."""
        return ordinals_of_doubles(self.doubles, exact=True) if self.type.name == "double" else self.longs

    @cached_property
    def _ranked(self) -> tuple[Longs, pa.StringArray]:
        ranks, values = ranked(self.array, self.type)
        return ranks, as_texts(values)

    def texts_of(self, longs: Longs) -> pa.StringArray:
        """The texts of some of :attr:`longs`, ascending, where states keep texts."""
        if not self.is_narrow:
            return self._ranked[1].take(pa.array(longs))
        words = np.stack([longs, longs >> 63], axis=1)
        decimals = pa.Array.from_buffers(self.array.type, len(longs), [None, pa.py_buffer(words)])
        return as_texts(decimals)

    @cached_property
    def hashes(self) -> NDArray[np.uint64]:
        if carrier_of(self.type) == "texts" and not self.is_narrow:
            ranks, texts = self._ranked
            return np.append(hash64_of_texts(texts.to_pylist()), np.uint64(0))[ranks]
        return hash64(self.longs)

    def kept(self, longs: Longs, present: NDArray[np.bool_], absent: int) -> tuple[Longs, pa.StringArray | None]:
        """Some of :attr:`longs` (n,) as states keep them: where they are texts, the ranks among their own texts;
        ``absent`` where there is none."""
        if carrier_of(self.type) != "texts":
            return np.where(present, longs, absent), None
        used = np.unique(longs[present])
        return np.where(present, np.searchsorted(used, longs), absent), self.texts_of(used)


def _filled(array: pa.Array, value: Any) -> NDArray[Any]:
    if array.null_count:
        array = pc.fill_null(array, value)
    return array.to_numpy(zero_copy_only=False)


def as_texts(values: pa.Array) -> pa.StringArray:
    """Group values and decimals as texts that :func:`spark_jobs.final_aggregates.typed` reads back: timestamps as
    microseconds."""
    if pa.types.is_string(values.type):
        return values
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    if pa.types.is_decimal(values.type) and values.type.scale > 6:
        # Arrow would write small ones as 1E-7
        plain = [None if value is None else format(value, "f") for value in values.to_pylist()]
        return pa.array(plain, pa.string())
    return values.cast(pa.string())


Value = TypeVar("Value")


class _Recent(dict[Any, Any]):
    """What was computed for the latest keys: shared by families that come one after the other, within bounds."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def of(self, key: Any, make: Callable[[], Value]) -> Value:
        found: Value = self.pop(key) if key in self else make()
        self[key] = found
        if len(self) > self.most:
            del self[next(iter(self))]
        return found


class _Batch:
    """One decoded batch with everything that several families share, computed once."""

    def __init__(self, batch: pa.RecordBatch, times: Longs, schema: dict[str, Type]) -> None:
        self.rows, self.times, self.schema = len(times), times, schema
        self._batch = batch
        self._plain: dict[str, pa.Array] = {}
        self._texts: dict[str, pa.Array] = {}
        self._values: dict[Any, _Values] = {}
        # eight bytes an event each, one byte a mask
        self._fragments, self._codes, self._shards, self._groups = (_Recent(8) for _ in range(4))
        self._masks = _Recent(2 * MOST_PREDICATES)

    def _evaluated(self, expression: Expression) -> pa.Array:
        """The values of an expression, which does not know dictionaries."""
        for name in dict.fromkeys(columns_of(expression)):
            if name not in self._plain:
                self._plain[name] = flat(self._batch.column(name))
        # a batch without columns would have no rows either
        columns = self._plain or {"": pa.nulls(self.rows)}
        return evaluate(expression, pa.RecordBatch.from_pydict(columns), self.schema)

    def fragments(self, synopsis: Synopsis) -> tuple[Longs, Longs, Longs]:
        """Starts and ends (f,) of the fragments of a synopsis, and the number (n,) of each event's."""
        return self._fragments.of(synopsis.edges, lambda: fragments_of(synopsis.fragments, self.times))

    def codes(self, synopsis: Synopsis, first: int, last: int) -> tuple[Longs, int]:
        """Code (n,) of each event's fragment, from ``first`` on, and group; -1 for those not before ``last``, and how
        many those are."""

        def make() -> tuple[Longs, int]:
            _, group, groups = self.groups(synopsis.group_by)
            codes, outside = _codes(self.fragments(synopsis)[2], first, last, group, groups)
            return codes, outside

        return self._codes.of((synopsis.edges, synopsis.group_by, first, last), make)

    def _passing(self, predicate: Expression) -> NDArray[np.uint8]:
        """1 (n,) for each event that satisfies a predicate, else 0."""

        def make() -> NDArray[np.uint8]:
            passes = self._evaluated(predicate)
            passes = pc.fill_null(passes, False) if passes.null_count else passes
            # Arrow's own unpacking takes ten times as long
            bits = np.unpackbits(np.frombuffer(passes.buffers()[1], dtype=np.uint8), bitorder="little")
            return bits[passes.offset : passes.offset + self.rows]

        return self._masks.of(predicate, make)

    def shards(self, predicates: tuple[Expression | None, ...]) -> tuple[Longs, Longs, Longs | None]:
        """Signatures (s,) of the events that satisfy some predicate; the number (n,) of each event's, if there are
        several; the rows of those events, None: all."""
        return self._shards.of(predicates, lambda: self._sharded(predicates))

    def _sharded(self, predicates: tuple[Expression | None, ...]) -> tuple[Longs, Longs, Longs | None]:
        one = np.ones(1, dtype=np.int64)
        if predicates == (None,):
            return one, one[:0], None
        if len(predicates) > 1 or predicates[0] is None:
            signatures, number, rows = self._signatures(predicates)
        else:
            rows = np.flatnonzero(self._passing(predicates[0]).view(bool))
            signatures, number = one, rows[:0]
        return signatures, number, None if len(rows) == self.rows else rows

    def _signatures(self, predicates: tuple[Expression | None, ...]) -> tuple[Longs, Longs, Longs]:
        signatures = np.zeros(self.rows, dtype=np.int64)
        for bit, predicate in enumerate(predicates):
            if predicate is None:
                signatures |= 1 << bit
            else:
                _set_bit(signatures, self._passing(predicate), bit)
        distinct, number = numbered(signatures, 1 << len(predicates))
        if len(distinct) == 0 or distinct[0]:
            return distinct, number, np.arange(self.rows)
        return distinct[1:], number - 1, np.flatnonzero(number)

    def groups(self, columns: tuple[tuple[str, Type], ...]) -> tuple[tuple[pa.Array, ...], NDArray[Any], int]:
        """The groups' values as columns of texts, the number (n,) of each event's group (empty: there is one), and how
        many groups there are."""

        def make() -> tuple[tuple[pa.Array, ...], NDArray[Any], int]:
            keys, number, groups = distinct_rows([self._text(name) for name, _ in columns], self.rows)
            return keys, number if columns else number[:0], groups

        return self._groups.of(columns, make)

    def _text(self, name: str) -> pa.DictionaryArray:
        """A group column as texts."""
        if name not in self._texts:
            values, indices = encoded(self._batch.column(name))
            self._texts[name] = pa.DictionaryArray.from_arrays(pa.array(indices), as_texts(values))
        return self._texts[name]

    def values(self, argument: Expression) -> _Values:
        if argument not in self._values:
            self._values[argument] = _Values(self._evaluated(argument), type_of(argument, self.schema))
        return self._values[argument]


def flat(column: pa.Array) -> pa.Array:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


# ------------------------------------------------------------------------------------- states of a batch
_LONGS = ("count", "sum", "min", "max", "bit_and", "bit_or", "bit_xor")
_DOUBLES = ("total", "sum_squares", "min", "max")
_INITIAL = {"min": NAN, "max": LEAST_DOUBLE}


@dataclass(frozen=True, eq=False)
class _Events:
    """The events of a batch that are in some cell: ``rows`` (k,) of them, empty: all; the cell (k,) of each; how many
    events (c,) each cell has."""

    rows: Longs
    cell: Longs
    counts: Longs

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """What they have of some values (n,) of the batch."""
        return values[self.rows] if len(self.rows) else values

    def row_of(self, event: Longs) -> Longs:
        """Rows of the batch of some events."""
        return self.rows[event] if len(self.rows) else event


class _Numbers:
    """The states of numbers of a batch's cells: matrices that the kernels fill, one pass over an argument's values."""

    def __init__(self, states: Sequence[State], events: _Events) -> None:
        self.events = events
        self.places = numbers_of(states)
        widths = {carrier: sum(state.width for state in places) for carrier, places in self.places.items()}
        self.longs = np.zeros((len(events.counts), widths["longs"]), dtype=np.int64)
        self.doubles = np.zeros((len(events.counts), widths["doubles"]))
        self.longs[:, self.places["longs"][ROWS]] = events.counts
        for state, at in self.places["longs"].items():
            if state.operation in IDENTITIES and state.operation != "add":
                self.longs[:, at] = IDENTITIES[state.operation]

    def lift(self, values: _Values, states: Sequence[State]) -> None:
        """Fill the columns of the states of one argument."""
        cell, rows, valid = self.events.cell, self.events.rows, values.valid
        at = {state.kind: self.places[state.carrier][state] for state in states}
        if "count" in at and len(valid) == 0:
            self.longs[:, at.pop("count")] = self.events.counts
        if values.type.name == "double":
            # its sum and its total are one
            self._lift_doubles(values, {"total" if kind == "sum" else kind: column for kind, column in at.items()})
            at = {kind: column for kind, column in at.items() if kind == "count"}
        elif "total" in at or "sum_squares" in at:
            self._lift_doubles(values, {kind: at.pop(kind) for kind in ("total", "sum_squares") if kind in at})
        if "sum" in at and limbs_of(values.type) == 4:
            first = at.pop("sum")
            _lift_words(cell, rows, *values.words, valid, self.longs, first)
            carry(self.longs[:, first : first + 4])
        if at:
            # a count alone needs no values, whatever they are
            longs = valid.view(np.int8).astype(np.int64) if list(at) == ["count"] else values.longs
            _lift_longs(cell, rows, longs, valid, self.longs, *(at.get(kind, -1) for kind in _LONGS))
        if "sum" in at:
            carry(self.longs[:, at["sum"] : at["sum"] + 2])

    def _lift_doubles(self, values: _Values, at: dict[str, int]) -> None:
        if not at.keys() & set(_DOUBLES):
            return
        ordinals = self.doubles.view(np.int64)
        for kind in at.keys() & _INITIAL.keys():
            ordinals[:, at[kind]] = _INITIAL[kind]
        numbers = values.doubles
        columns = (at.get(kind, -1) for kind in _DOUBLES)
        given = numbers, numbers.view(np.int64), values.valid
        _lift_doubles(self.events.cell, self.events.rows, *given, self.doubles, ordinals, *columns)
        for kind in at.keys() & _INITIAL.keys():
            self.doubles[:, at[kind]] = doubles_of_ordinals(ordinals[:, at[kind]])


def _lift_texts(batch: _Batch, events: _Events, state: State) -> Texts:
    assert state.argument is not None
    values = batch.values(state.argument)
    out = np.full((len(events.counts), 1), IDENTITIES[state.kind], dtype=np.int64)
    wanted = (0 if kind == state.kind else -1 for kind in _LONGS)
    _lift_longs(events.cell, events.rows, values.longs, values.valid, out, *wanted)
    identity = IDENTITIES[state.kind]
    ranks, texts = values.kept(out[:, 0], out[:, 0] != identity, identity)
    assert texts is not None
    return Texts(ranks, texts)


def _lift_pair(batch: _Batch, events: _Events, state: State) -> Pairs:
    assert state.argument is not None and state.by is not None
    values, orders = batch.values(state.argument), batch.values(state.by)
    present = np.ones(batch.rows, dtype=np.int8)
    if len(values.valid):
        present[~values.valid] = 0 if state.kind in ("least_by", "greatest_by") else -1
    if len(orders.valid):
        present[~orders.valid] = -1
    best = np.full(len(events.counts), -1, dtype=np.int64)
    pairs = (events.of(column) for column in (present, orders.longs, values.exact))
    winners(events.cell, *pairs, state.operation == "greatest_by", best)
    best = events.row_of(best)
    present = present[best]
    order, order_texts = orders.kept(orders.longs[best], present >= 0, 0)
    value, value_texts = values.kept(values.exact[best], present > 0, 0)
    return Pairs(present, order, value, order_texts, value_texts)


def _lift_multiset(batch: _Batch, events: _Events, state: State) -> Multiset:
    assert state.argument is not None
    values = batch.values(state.argument)
    cell, rows = events.cell, events.rows
    if len(values.valid):
        known = np.flatnonzero(events.of(values.valid))
        cell, rows = cell[known], events.row_of(known)
    known_rows = rows if len(rows) or len(values.valid) else slice(None)
    if state.kind == "registers":
        assert state.error is not None
        elements, weights = registers_of(values.hashes[known_rows], precision_of(state.error))
        return united(state, cell, elements, weights, len(events.counts), None)
    longs = values.longs[known_rows]
    made = united(state, cell, longs, np.ones(len(longs), dtype=np.int64), len(events.counts), None)
    if state.tail != "texts":
        return made
    ranks, texts = values.kept(made.values, np.ones(len(made.values), dtype=bool), 0)
    return Multiset(made.offsets, ranks, made.weights, texts)


_THIN = {"quantiles": thin_quantiles, "frequent": thin_frequent}


def _thinned(cells: Cells) -> Cells:
    """The cells with their sketches no larger than the permitted errors ask for."""
    others = dict(cells.others)
    for state, column in cells.others.items():
        if state.kind in _THIN:
            assert state.error is not None and isinstance(column, Multiset)
            found = _THIN[state.kind](column.offsets, column.values, column.weights, state.error)
            others[state] = Multiset(*found, column.texts)
    return replace(cells, others=others)


# ---------------------------------------------------------------------------------------------- families
def _union(spans: Sequence[Span]) -> Synopsis:
    """The coarsest synopsis from which those of all spans can be rolled up: their atoms."""
    synopses = [span.synopsis for span in spans]
    first = synopses[0]
    if all(synopsis == first for synopsis in synopses):
        return first

    def all_of(parts: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(item for part in parts for item in part))

    return replace(
        first,
        edges=absorb(all_of(synopsis.edges for synopsis in synopses)),
        predicates=all_of(synopsis.predicates for synopsis in synopses),
        group_by=all_of(synopsis.group_by for synopsis in synopses),
        states=all_of(synopsis.states for synopsis in synopses),
        bucket_by=(),
    )


def _gives(fine: Synopsis, coarse: Synopsis) -> bool:
    """Whether the cells of one synopsis can be rolled up from those of another over the same events."""

    def has(slide: int, shift: int) -> bool:
        return any(slide % other == 0 and shift % other == at for other, at in fine.edges)

    return (
        set(coarse.predicates) <= set(fine.predicates)
        and set(coarse.group_by) <= set(fine.group_by)
        and set(coarse.states) <= set(fine.states)
        and all(has(slide, shift) for slide, shift in coarse.edges)
    )


def _detail(span: Span) -> tuple[Any, ...]:
    """Greater for cells that others can be rolled up from."""
    synopsis = span.synopsis
    rate = sum(1 / slide for slide, _ in synopsis.edges)
    return len(synopsis.group_by), rate, len(synopsis.predicates), len(synopsis.states), span.end - span.begin


_DIVISIONS: tuple[Callable[[Span], Any], ...] = (
    lambda span: span.synopsis.group_by,
    lambda span: span.synopsis.predicates,
    lambda span: span.synopsis.edges,
)
"""What a family is divided by, the first in which its spans differ."""


class _Crumbs(Exception):
    """The atoms of a family are too many to be worth it."""


class _Family:
    """Spans that share atoms, and the atoms so far: a block of cells a batch."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = tuple(spans)
        self.synopsis = _union(spans)
        self.begin, self.end = min(span.begin for span in spans), max(span.end for span in spans)
        self.blocks: list[Cells] = []
        self.place = self.synopsis.edges, [name for name, _ in self.synopsis.group_by]
        self.unchecked = self.most = 0
        self.met: dict[Any, list[tuple[tuple[pa.Array, ...], int]]] = {}
        self.arguments: dict[Expression, list[State]] = {}
        for states in numbers_of(self.synopsis.states).values():
            for state in states:
                if state.argument is not None:
                    self.arguments.setdefault(state.argument, []).append(state)
        self.others: dict[State, Callable[..., Column]] = {}
        for state in self.synopsis.states:
            if state.kind in PAIRS or state.kind in MULTISETS:
                self.others[state] = _lift_pair if state.kind in PAIRS else _lift_multiset
            elif state.carrier == "texts":
                self.others[state] = _lift_texts

    def divided(self) -> list[_Family]:
        """The family in parts that share less."""
        return [self.narrowed(spans) for spans in self.parts]

    @cached_property
    def parts(self) -> list[list[Span]]:
        """The spans in the parts that the family can be divided into; one if all have the same cells."""
        parts: dict[Any, list[Span]] = {}
        for key in _DIVISIONS:
            parts = {}
            for span in self.spans:
                parts.setdefault(key(span), []).append(span)
            if len(parts) > 1:
                break
        return list(parts.values())

    def narrowed(self, spans: Sequence[Span]) -> _Family:
        """A family of some of the spans, with what is known of them."""
        family = _Family(spans)
        family.blocks = [block.rolled_up(family.synopsis, family.begin, family.end) for block in self.blocks]
        family.unchecked, family.most, family.met = self.unchecked, self.most, self.met
        return family

    def lift(self, batch: _Batch) -> Cells | None:
        """The atoms of a batch; None if it has none. Raises _Crumbs, before the expensive part, if it would be cheaper
        to divide the family."""
        synopsis = self.synopsis
        starts, ends, _ = batch.fragments(synopsis)
        first, last = np.searchsorted(starts, [self.begin, self.end])
        keys, _, groups = batch.groups(synopsis.group_by)
        signatures, shard, passing = batch.shards(synopsis.predicates)
        shards = len(signatures)
        codes, outside = batch.codes(synopsis, int(first), int(last))
        if outside:
            inside = codes >= 0
            passing = np.flatnonzero(inside) if passing is None else passing[inside[passing]]
        rows = np.empty(0, dtype=np.int64)
        if passing is not None:
            rows, codes = passing, codes[passing]
        if len(codes) == 0:
            return None
        if shards > 1:
            codes = _with_shards(codes, rows, shard, shards)
        cell, codes, counts = _counted(codes, int(last - first) * groups * shards)
        if len(self.parts) > 1 and self._is_crumbs(signatures, codes % shards, counts):
            raise _Crumbs
        events = _Events(rows, cell, counts)
        lifted = _Numbers(synopsis.states, events)
        for argument, states in self.arguments.items():
            lifted.lift(batch.values(argument), states)
        others = {state: lift(batch, events, state) for state, lift in self.others.items()}
        rest = codes // shards
        used, group = numbered(rest % groups, groups)
        at = first + rest // groups
        return Cells(
            synopsis,
            starts[at],
            ends[at],
            signatures[codes % shards],
            group,
            len(used),
            tuple(column.take(pa.array(used)) for column in keys),
            lifted.longs,
            lifted.doubles,
            others,
        )

    def _is_crumbs(self, signatures: Longs, shard: Longs, events: Longs) -> bool:
        """Whether lifting each part of the family costs less than one pass and rolling up the cells."""
        passing = np.bincount(shard, weights=events, minlength=len(signatures))
        apart = 0.0
        for spans in self.parts:
            wanted = {predicate for span in spans for predicate in span.synopsis.predicates}
            mask = sum(1 << bit for bit, predicate in enumerate(self.synopsis.predicates) if predicate in wanted)
            apart += passing[(signatures & mask) != 0].sum()
        return bool(len(self.spans) * len(events) * ROLL_UP_COST > apart - events.sum())

    def merge(self) -> None:
        """Put the blocks together."""
        if len(self.blocks) > 1:
            self.blocks = [concatenated(self.blocks).merged()]

    def beyond(self, limit: int) -> list[Span]:
        """The spans with more than so many groups so far."""
        found: list[Span] = []
        self.unchecked = self.most = 0
        for key, spans in self._alike().items():
            _, groups = self._groups(key)
            if groups > limit:
                found += spans
            else:
                self.most = max(self.most, groups)
        return found

    def forget(self) -> None:
        """Drop the blocks, but remember the groups."""
        self.met = {key: [self._groups(key)] for key in self._alike()}
        self.blocks = []

    def _alike(self) -> dict[Any, list[Span]]:
        """The spans by what their groups depend on."""
        found: dict[Any, list[Span]] = {}
        for span in self.spans:
            found.setdefault((span.synopsis.group_by, span.synopsis.predicates), []).append(span)
        return found

    def _groups(self, key: Any) -> tuple[tuple[pa.Array, ...], int]:
        parts = self.met.get(key, []) + [block.keys_of(*key) for block in self.blocks]
        columns = [pa.concat_arrays(parts) for parts in zip(*(columns for columns, _ in parts), strict=True)]
        distinct, _, groups = distinct_rows(columns, sum(count for _, count in parts))
        return distinct, groups

    def cells(self) -> Iterator[Cells]:
        """The cells of each span as they are to be stored."""
        if not self.blocks:
            return
        if len(self.spans) > 1:
            self.merge()
        atoms = concatenated(self.blocks)
        done: list[tuple[Span, Cells]] = [(Span(self.synopsis, self.begin, self.end), atoms)]
        for span in sorted(self.spans, key=_detail, reverse=True):
            parents = [
                cells
                for parent, cells in done
                if _gives(parent.synopsis, span.synopsis) and parent.begin <= span.begin and span.end <= parent.end
            ]
            parent = min(parents, key=len)
            mine = parent.rolled_up(span.synopsis, span.begin, span.end).to_store()
            done.append((span, mine))
            yield _thinned(mine)


# ----------------------------------------------------------------------------------------------- lifting
class Lifting:
    """Lifts the events of one task for many spans of one stream.

    ``group_limit``: most groups of one synopsis. :attr:`failed`: what went beyond it, by fingerprint; the others do not
    suffer. :attr:`inside`: events so far whose time some span covers; :attr:`untimed`: events without a time, which are
    in no cell. Events are looked at when there are enough of them, and when :meth:`cells` is called.
    """

    def __init__(self, stream: Stream, spans: Sequence[Span], group_limit: int = GROUP_LIMIT) -> None:
        self.stream, self.group_limit = stream, group_limit
        self.schema = dict(stream.schema)
        self.inside = self.untimed = 0
        self.failed: dict[str, Failed] = {}
        self.waiting: list[pa.RecordBatch] = []
        self.families = _families(spans)

    def add(self, batch: pa.RecordBatch) -> None:
        """Lift a decoded batch: the time column and those of :func:`columns_of_synopsis`, which may be
        dictionary-encoded."""
        if self.waiting and batch.schema != self.waiting[0].schema:
            self._lift_waiting()
        self.waiting.append(batch)
        if sum(part.num_rows for part in self.waiting) >= BATCH_ROWS:
            self._lift_waiting()

    @property
    def size(self) -> int:
        """Bytes of the cells so far, about."""
        return sum(block.size for family in self.families for block in family.blocks)

    def tables(self) -> Iterator[pa.Table]:
        """What was lifted since the last call, as rows of :data:`PARTIALS`."""
        for cells in self.cells():
            yield cells.encode()

    def cells(self) -> Iterator[Cells]:
        """The cells of each synopsis since the last call, as they are to be stored; those that failed have none."""
        self._lift_waiting()
        self._check_groups(final=True)
        for family in self.families:
            yield from (cells for cells in family.cells() if len(cells))
            family.forget()

    def _lift_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        if not waiting:
            return
        batch = waiting[0]
        if len(waiting) > 1:
            table = pa.Table.from_batches(waiting).unify_dictionaries().combine_chunks()
            batch = table.to_batches()[0] if len(table) else batch
        for first in range(0, batch.num_rows, SLICE_ROWS):
            self._lift(batch.slice(first, SLICE_ROWS))

    def _lift(self, batch: pa.RecordBatch) -> None:
        times, batch, missing = times_of(batch, self.stream)
        self.untimed += missing
        rows = self._inside(times)
        self.inside += len(times) if rows is None else len(rows)
        if rows is not None:
            batch, times = batch.take(pa.array(rows)), times[rows]
        if len(times) == 0:
            return
        shared = _Batch(batch, times, self.schema)
        # those that share codes one after the other
        waiting = sorted(self.families, key=lambda family: family.place, reverse=True)
        self.families = []
        while waiting:
            family = waiting.pop()
            try:
                block = family.lift(shared)
            except _Crumbs:
                waiting += family.divided()[::-1]
                continue
            self.families.append(family)
            if block is not None:
                family.blocks.append(block)
                family.unchecked += block.groups
        self._check_groups()

    def _inside(self, times: Longs) -> Longs | None:
        """The events that some family covers; None: all."""
        inside = np.zeros(len(times), dtype=bool)
        for family in self.families:
            if len(times) and family.begin <= times.min() and times.max() < family.end:
                return None
            inside |= (times >= family.begin) & (times < family.end)
        return np.flatnonzero(inside)

    def _check_groups(self, final: bool = False) -> None:
        limit = self.group_limit
        kept: list[_Family] = []
        for family in self.families:
            # counting is dear: not for every batch close to the limit
            allowed = limit - family.most if final else max(limit - family.most, limit // 8)
            failed = family.beyond(limit) if family.unchecked > allowed else []
            for span in failed:
                names = ", ".join(name for name, _ in span.synopsis.group_by)
                message = f"more than {limit:,} groups of {names} in one part of stream {self.stream.name}"
                self.failed[span.synopsis.fingerprint] = Failed(span.synopsis.fingerprint, "HDL-602", message)
            rest = [span for span in family.spans if span not in failed]
            if rest:
                kept.append(family.narrowed(rest) if failed else family)
        self.families = kept

    @property
    def is_full(self) -> bool:
        """Whether the cells take so much memory that they should be written now."""
        if self.size < MEMORY:
            return False
        for family in self.families:
            family.merge()
        return self.size > MEMORY // 2


def _families(spans: Sequence[Span]) -> list[_Family]:
    """As few families as can be: of no more predicates than a signature has bits."""
    found: list[list[Span]] = []
    for span in spans:
        for family in found:
            wanted = {predicate for member in [*family, span] for predicate in member.synopsis.predicates}
            if len(wanted) <= MOST_PREDICATES:
                family.append(span)
                break
        else:
            found.append([span])
    return [_Family(spans) for spans in found]


# ------------------------------------------------------------------------------------------ whole stages
def partials_of(batches: Iterable[pa.RecordBatch], stream: Stream, spans: Sequence[Span]) -> pa.Table:
    """Partial rows of decoded batches: the whole stage without Spark and files (tests, small sources)."""
    lifting = Lifting(stream, spans)
    for batch in batches:
        lifting.add(batch)
    found = [cells.encode() for cells in lifting.cells()]
    return pa.concat_tables(found) if found else PARTIALS.empty_table()


def by_fingerprint(rows: pa.Table) -> dict[str, pa.Table]:
    """Partial rows apart by synopsis, in the order of the fingerprints. O(n), however many synopses there are."""
    found = rows["fingerprint"].dictionary_encode().unify_dictionaries().combine_chunks()
    names = found.dictionary.to_pylist()
    if len(names) == 1:
        return {names[0]: rows}
    codes = found.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(len(names) + 1))
    ascending = sorted(range(len(names)), key=names.__getitem__)
    return {names[code]: rows.take(pa.array(order[cuts[code] : cuts[code + 1]])) for code in ascending}


def lift_task(
    stream: Stream,
    splits: list[Split],
    spans: list[Span],
    columns: list[str],
    root: str,
    rows: Any,
    untimed: Any,
    group_limit: int = GROUP_LIMIT,
) -> Task:
    """The task that reads the splits whose numbers it is given and writes their partial rows under ``root``.

    Names the files, and the synopses that failed (their rows in the files, if any, are not whole).
    ``rows`` and ``untimed``: accumulators that count the events in the spans, and those without a time.
    """

    keys = {name for span in spans for name, _ in span.synopsis.group_by}

    def task(numbers: Iterable[int]) -> Iterator[DataFile | Failed]:
        from spark_jobs.sequence_aggregates import SequenceLifting

        plain = [span for span in spans if span.synopsis.sequenced is None]
        sequenced = [span for span in spans if span.synopsis.sequenced is not None]
        kinds = ((Lifting, plain), (SequenceLifting, sequenced))
        liftings = [kind(stream, mine, group_limit) for kind, mine in kinds if mine]
        for number in numbers:
            for events in read_split(stream, splits[number], columns, keys):
                for lifting in liftings:
                    lifting.add(events)
                    if lifting.is_full:
                        yield from _written(lifting, root)
        for lifting in liftings:
            yield from _written(lifting, root)
            yield from lifting.failed.values()
        # each saw all events: those that only one covers are counted where more are
        rows.add(max(lifting.inside for lifting in liftings))
        untimed.add(liftings[0].untimed)

    return task


class _Lifts(Protocol):
    """Lifts events and says what they make."""

    def tables(self) -> Iterator[pa.Table]: ...


def _written(lifting: _Lifts, root: str) -> Iterator[DataFile]:
    tables = list(lifting.tables())
    if tables:
        yield from write_files(root, pa.concat_tables(tables))


def columns_of_synopsis(synopsis: Synopsis) -> set[str]:
    """Source columns that filling a synopsis reads, without the time column."""
    found = {name for name, _ in synopsis.group_by} | set(synopsis.per or ())
    if synopsis.sequenced is not None:
        found.add(synopsis.sequenced.on)
        found.update(name for argument, _ in synopsis.sequenced.attributes for name in columns_of(argument))
    for predicate in synopsis.predicates:
        found |= set(columns_of(predicate))
    for state in synopsis.states:
        found |= {*columns_of(state.argument), *columns_of(state.by)}
    return found - {synopsis.time}
