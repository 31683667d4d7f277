"""The values of a batch of events: evaluated once, whoever needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates.ordinals import hash64, hash64_of_texts, ordinals_of_doubles
from optimizer.aggregates.states import carrier_of, limbs_of
from optimizer.synopses.synopsis import MOST_PREDICATES, Synopsis
from optimizer.workload.expression import type_of
from optimizer.workload.values import Expression, Type, columns_of
from spark_jobs.arrays.numbering import Longs, distinct_rows, encoded, numbered, ranked
from spark_jobs.arrays.texts import as_texts, flat
from spark_jobs.partials.cells import fragments_of
from spark_jobs.partials.kernels import dense_codes, set_bit
from spark_jobs.sources.expressions import evaluate


class Values:
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
        """64-bit hashes (n,) of the values, equal for equal values."""
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


class Batch:
    """One decoded batch with everything that several families share, computed once."""

    def __init__(
        self,
        batch: pa.RecordBatch,
        times: Longs,
        schema: dict[str, Type],
        derived: Mapping[str, Expression] | None = None,
    ) -> None:
        """``derived``: the expressions of group columns that are computed, by their names."""
        self.rows, self.times, self.schema = len(times), times, schema
        self._derived = dict(derived or {})
        self._batch = batch
        self._plain: dict[str, pa.Array] = {}
        self._texts: dict[str, pa.Array] = {}
        self._values: dict[Any, Values] = {}
        # eight bytes an event each, one byte a mask
        self._fragments, self._codes, self._shards, self._groups = (_Recent(8) for _ in range(4))
        self._masks = _Recent(2 * MOST_PREDICATES)

    def halves(self) -> tuple[Batch, Batch]:
        """The first and the second half of its events."""
        cut = self.rows // 2
        first = Batch(self._batch.slice(0, cut), self.times[:cut], self.schema, self._derived)
        return first, Batch(self._batch.slice(cut), self.times[cut:], self.schema, self._derived)

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
            codes, outside = dense_codes(self.fragments(synopsis)[2], first, last, group, groups)
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
                set_bit(signatures, self._passing(predicate), bit)
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
