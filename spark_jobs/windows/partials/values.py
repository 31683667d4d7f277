"""The values of a batch of events, evaluated once for all users."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates.exact_doubles import Terms
from optimizer.aggregates.ordinals import hash64, hash64_of_texts, ordinals_of_doubles
from optimizer.aggregates.states import carrier_of, limbs_of
from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import Fragments, Progression
from optimizer.workload.expression import type_of
from optimizer.workload.values import Call, Column, Expression, Literal, Type, columns_of
from spark_jobs.store.arrays.numbering import DENSE, Longs, Rows, distinct_rows, encoded, numbered, ranked, read_only
from spark_jobs.store.arrays.texts import as_texts, flat
from spark_jobs.streams.sources.expressions import evaluate
from spark_jobs.windows.partials.cells import fragments_of
from spark_jobs.windows.partials.kernels import add_where, count_densely, logarithms, selected


class Values:
    """An argument's values (n,) of one batch, in the forms that kernels take; nulls are anything in them."""

    def __init__(self, array: pa.Array, type: Type) -> None:
        self.array, self.type = array, type

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """Return where it is not null; empty: everywhere."""
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
    def terms(self) -> Terms:
        """:attr:`doubles` as exact sums take them."""
        return Terms.of(self.doubles)

    @cached_property
    def logarithms(self) -> Terms:
        """Their natural logarithms: -inf of zeros, NaN of negative numbers."""
        return Terms.of(logarithms(self.doubles))

    @cached_property
    def words(self) -> tuple[Longs, Longs]:
        """The low and the high 64 bits of unscaled decimals, in two's complement over both."""
        first, rows = self.array.offset, len(self.array)
        words = np.frombuffer(self.array.buffers()[1], dtype=np.int64)[2 * first : 2 * (first + rows)]
        return np.ascontiguousarray(words[0::2]), np.ascontiguousarray(words[1::2])

    @property
    def halves(self) -> tuple[Longs, Longs]:
        """The low and the high 64 bits of integers and unscaled decimals; no high ones where 64 bits are enough."""
        low, high = self.words if limbs_of(self.type) == 4 else (self.longs, np.empty(0, dtype=np.int64))
        return read_only(low), read_only(high)

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
        """The values as in :attr:`longs`, but with -0.0 unchanged."""
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
        """64-bit hashes (n,) of the values, equal for equal values."""
        if carrier_of(self.type) == "texts" and not self.is_narrow:
            ranks, texts = self._ranked
            return np.append(hash64_of_texts(texts.to_pylist()), np.uint64(0))[ranks]
        return hash64(self.longs)

    def kept(self, longs: Longs, present: NDArray[np.bool_], absent: int) -> tuple[Longs, pa.StringArray | None]:
        """Some of :attr:`longs` (n,) as states keep them: for texts, their ranks among the texts that occur;
        ``absent`` for missing values.
        """
        if carrier_of(self.type) != "texts":
            return np.where(present, longs, absent), None
        used = np.unique(longs[present])
        return np.where(present, np.searchsorted(used, longs), absent), self.texts_of(used)


def _filled(array: pa.Array, value: Any) -> NDArray[Any]:
    if array.null_count:
        array = pc.fill_null(array, value)
    return array.to_numpy(zero_copy_only=False)


def _bits(passes: pa.BooleanArray, rows: int) -> NDArray[np.uint8]:
    """1 (n,) for true, 0 for false and null."""
    passes = pc.fill_null(passes, False) if passes.null_count else passes
    # Arrow's own unpacking takes ten times as long
    bits = np.unpackbits(np.frombuffer(passes.buffers()[1], dtype=np.uint8), bitorder="little")
    return bits[passes.offset : passes.offset + rows]


Value = TypeVar("Value")


class _Recent(dict[Any, Any]):
    """Results for the latest keys, shared by consecutive families, within bounds."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def of(self, key: Any, make: Callable[[], Value]) -> Value:
        cached: Value = self.pop(key) if key in self else make()
        self[key] = cached
        if len(self) > self.most:
            del self[next(iter(self))]
        return cached


COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "in", "like", "is_null")
"""Functions that take any value of a column: their results for values that do not occur in a batch do no harm."""

PREDICATES_AT_ONCE = 12
"""Predicates by which events are numbered in one step, through a table."""


FEW_EVENTS = 64
"""Number of events for each combination of values from which combinations are not searched for: most occur."""


def _combinations(columns: Sequence[tuple[pa.Array, Rows]]) -> tuple[tuple[pa.Array, ...], Rows, int]:
    """All combinations of the values of some columns, each with its distinct values and the index (n,) of each event's:
    their columns, the number (n,) of each event's, how many there are."""
    sizes = [len(values) for values, _ in columns]
    number = columns[0][1]
    for size, (_, indices) in zip(sizes[1:], columns[1:], strict=True):
        number = number * np.int32(size) + indices
    places = np.unravel_index(np.arange(math.prod(sizes)), sizes)
    keys = tuple(values.take(pa.array(place)) for (values, _), place in zip(columns, places, strict=True))
    return keys, number, math.prod(sizes)


class Batch:
    """One decoded batch with everything that several families share, computed once.

    An event is processed once for all families: it has the number of its fragment of all their edges
    (:attr:`fragment`) and that of its signature of all their predicates (:attr:`signature`). A family maps these
    numbers, of which there are few, with a table.
    """

    def __init__(
        self,
        batch: pa.RecordBatch,
        times: Longs,
        schema: dict[str, Type],
        edges: tuple[Progression, ...],
        predicates: tuple[Expression | None, ...],
        derived: Mapping[str, Expression] | None = None,
    ) -> None:
        """``edges``, ``predicates``: those of all synopses that it is lifted into; ``derived``: the expressions of
        group columns that are computed, by their names."""
        self.rows, self.times, self.schema = len(times), times, schema
        self._edges, self._predicates = edges, predicates
        self._derived = dict(derived or {})
        self._batch = batch
        self._plain: dict[str, pa.Array] = {}
        self._texts: dict[str, pa.Array] = {}
        self._values: dict[Any, Values] = {}
        # four bytes an event each, one byte a mask
        self._shards, self._groups = _Recent(2 * PREDICATES_AT_ONCE), _Recent(8)
        self._masks: dict[Expression, NDArray[np.uint8]] = {}

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of its events."""
        cut = self.rows // 2
        return self.head(cut), self._part(slice(cut, self.rows))

    def head(self, rows: int) -> Batch:
        """The first ``rows`` of its events."""
        return self._part(slice(0, rows))

    def _part(self, rows: slice) -> Batch:
        shared = self.schema, self._edges, self._predicates, self._derived
        return Batch(self._batch.slice(rows.start, rows.stop - rows.start), self.times[rows], *shared)

    def _evaluated(self, expression: Expression) -> pa.Array:
        """The values of an expression, which does not know dictionaries."""
        for name in dict.fromkeys(columns_of(expression)):
            if name not in self._plain:
                self._plain[name] = flat(self._batch.column(name))
        # a batch without columns would have no rows either
        columns = self._plain or {"": pa.nulls(self.rows)}
        return evaluate(expression, pa.RecordBatch.from_pydict(columns), self.schema)

    @cached_property
    def space(self) -> Rows:
        """Room (n,) for numbers of events: memory that was used before is not cleared again."""
        return np.empty(self.rows, dtype=np.int32)

    @cached_property
    def _grid(self) -> tuple[Longs, Rows]:
        starts, _, number = fragments_of(Fragments(self._edges), self.times)
        return starts, number.astype(np.int32)

    @property
    def fragment(self) -> Rows:
        """The number (n,) of each event's fragment of all edges."""
        return self._grid[1]

    def fragments(self, synopsis: Synopsis) -> tuple[Longs, Longs, Longs]:
        """Starts and ends of the fragments of a synopsis, and for each number of :attr:`fragment` (f,) which of them it
        lies in."""
        return fragments_of(synopsis.fragments, self._grid[0])

    def _passing(self, predicate: Expression) -> NDArray[np.uint8]:
        """1 (n,) for each event that satisfies a predicate, else 0."""
        if predicate not in self._masks:
            self._masks[predicate] = self._satisfying(predicate)
        return self._masks[predicate]

    def _satisfying(self, predicate: Expression) -> NDArray[np.uint8]:
        if isinstance(predicate, Call) and predicate.function in ("and", "or"):
            # of all truth values: true if all are, or if one is
            parts = [self._passing(part) for part in predicate.arguments]
            return reduce(np.bitwise_and if predicate.function == "and" else np.bitwise_or, parts)
        if (column := self._repeated(predicate)) is not None:
            name, values, indices = column
            known = pa.concat_arrays([values, pa.nulls(1, values.type)])
            passes = _bits(evaluate(predicate, pa.RecordBatch.from_pydict({name: known}), self.schema), len(known))
            indices = pc.fill_null(indices, len(values)) if indices.null_count else indices
            return passes[indices.to_numpy()]
        return _bits(self._evaluated(predicate), self.rows)

    def _repeated(self, predicate: Expression) -> tuple[str, pa.Array, pa.Array] | None:
        """Name, distinct values and indices of the column that a predicate compares with constants, if the column
        has a dictionary that is worth it.
        """
        if not isinstance(predicate, Call) or predicate.function not in COMPARISONS:
            return None
        names = {argument.name for argument in predicate.arguments if isinstance(argument, Column)}
        if len(names) != 1 or not all(isinstance(argument, Column | Literal) for argument in predicate.arguments):
            return None
        column = self._batch.column(name := names.pop())
        if not pa.types.is_dictionary(column.type) or len(column.dictionary) >= self.rows:
            return None
        return name, column.dictionary, column.indices

    @cached_property
    def _signatures(self) -> tuple[Rows, dict[Expression | None, NDArray[np.bool_]]]:
        """The number (n,) of each event's signature, and of each predicate which signatures (s,) satisfy it."""
        number = np.zeros(self.rows, dtype=np.int32)
        holds: dict[Expression | None, NDArray[np.bool_]] = {None: np.ones(1, dtype=bool)}
        predicates = [predicate for predicate in self._predicates if predicate is not None]
        for first in range(0, len(predicates), PREDICATES_AT_ONCE):
            some = predicates[first : first + PREDICATES_AT_ONCE]
            most = len(holds[None]) << len(some)
            codes = (number if most <= DENSE else number.astype(np.int64)) << len(some)
            for bit, predicate in enumerate(some):
                add_where(codes, self._passing(predicate), codes.dtype.type(1 << bit))
            if most <= DENSE:
                distinct, _ = count_densely(codes, most)
                number = codes
            else:
                distinct, numbers = numbered(codes, most)
                number = numbers.astype(np.int32)
            holds = {predicate: flags[distinct >> len(some)] for predicate, flags in holds.items()}
            holds |= {predicate: (distinct >> bit) & 1 != 0 for bit, predicate in enumerate(some)}
        self._masks.clear()
        return number, holds

    @property
    def signature(self) -> Rows:
        """The number (n,) of each event's signature of all predicates."""
        return self._signatures[0]

    def shards(self, predicates: tuple[Expression | None, ...]) -> tuple[Longs, Rows, Rows | None]:
        """Signatures (s,) of some predicates among the events that satisfy one of them; for each number of
        :attr:`signature` which of them it has, or -1; the rows of those events, None: all."""
        return self._shards.of(predicates, lambda: self._sharded(predicates))

    def _sharded(self, predicates: tuple[Expression | None, ...]) -> tuple[Longs, Rows, Rows | None]:
        number, holds = self._signatures
        codes = np.zeros(len(holds[None]), dtype=np.int64)
        for bit, predicate in enumerate(predicates):
            codes |= holds[predicate].astype(np.int64) << bit
        signatures, places = np.unique(codes, return_inverse=True)
        has_none = int(len(signatures) > 0 and signatures[0] == 0)
        signatures, shard_of = signatures[has_none:], (places - has_none).astype(np.int32)
        rows = selected(number, (shard_of >= 0).view(np.int8), self.space) if has_none else None
        return signatures, shard_of, rows

    def groups(self, columns: tuple[tuple[str, Type], ...]) -> tuple[tuple[pa.Array, ...], Rows, int]:
        """The groups' values as columns of texts, the number (n,) of each event's group (empty: there is one), and how
        many groups there are."""

        def make() -> tuple[tuple[pa.Array, ...], Rows, int]:
            texts = [self._text(name) for name, _ in columns]
            if len(texts) > 1:
                pairs = [encoded(text) for text in texts]
                if 0 < FEW_EVENTS * math.prod(len(values) for values, _ in pairs) <= self.rows:
                    return _combinations(pairs)
            keys, number, groups = distinct_rows(texts, self.rows)
            return keys, (number if columns else number[:0]).astype(np.int32, copy=False), groups

        return self._groups.of(columns, make)

    def _text(self, name: str) -> pa.DictionaryArray:
        """A group column as texts."""
        if name not in self._texts:
            computed = self._derived.get(name)
            column = self._batch.column(name) if computed is None else self._evaluated(computed)
            values, indices = encoded(column)
            self._texts[name] = pa.DictionaryArray.from_arrays(pa.array(indices), as_texts(values))
        return self._texts[name]

    def values(self, argument: Expression) -> Values:
        """The values of an expression over the batch, evaluated once."""
        if argument not in self._values:
            self._values[argument] = Values(self._evaluated(argument), type_of(argument, self.schema))
        return self._values[argument]
