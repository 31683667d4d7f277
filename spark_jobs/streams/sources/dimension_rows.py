"""Look up the attributes of dimensions for the events of a stream, in the version that a run uses."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.workload.attributes import Attribute
from optimizer.workload.values import STRING, Stream
from spark_jobs.store.storage import Place

VALID_FROM, VALID_TO = "valid from", "valid to"
"""Columns of a version with its rows' validity [from, to), in microseconds."""

ALWAYS = -(1 << 62), 1 << 62
"""Validity of rows without one."""


def attribute_name(name: str) -> str:
    """The name of an attribute's column in a version, where it cannot be that of a key or a validity."""
    return f"={name}"


class VersionRows:
    """The rows of a version, by key.

    Parameters
    ----------
    rows
        As :func:`spark_jobs.streams.sources.dimensions.version_rows` returns them.
    key
        The names of the key columns.
    """

    def __init__(self, rows: pa.Table, key: Sequence[str]) -> None:
        self._rows, self._encoded = rows, dict[str, pa.Array]()
        self._distinct = [_distinct(rows[name].combine_chunks()) for name in key]
        codes, self._steps = np.zeros(len(rows), dtype=np.int64), list[NDArray[np.int64]]()
        for name, distinct in zip(key, self._distinct, strict=True):
            wide = codes * max(len(distinct), 1) + _codes(distinct, rows[name].combine_chunks())
            self._steps.append(np.unique(wide))
            codes = np.searchsorted(self._steps[-1], wide)
        self._is_timed = VALID_FROM in rows.column_names
        if self._is_timed:
            begin, self._end = (rows[name].to_numpy() for name in (VALID_FROM, VALID_TO))
            self._begins = np.unique(begin)
            self._codes, codes = codes, codes * (len(self._begins) + 1) + np.searchsorted(self._begins, begin) + 1
        # in the order of the keys' values codes need not ascend, as texts are ordered otherwise
        self._order = np.argsort(codes, kind="stable")
        self._sorted = codes[self._order]

    def numbers(self, keys: Sequence[pa.Array], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the rows (n,) for some keys, each (n,), at some times (n,) in microseconds; -1: no row."""
        codes, is_known = np.zeros(len(times), dtype=np.int64), np.ones(len(times), dtype=bool)
        for values, distinct, step in zip(keys, self._distinct, self._steps, strict=True):
            part = _codes(distinct, values)
            is_known &= part >= 0
            wide = codes * max(len(distinct), 1) + part
            codes = np.minimum(np.searchsorted(step, wide), max(len(step) - 1, 0))
            is_known &= (step[codes] == wide) if len(step) else False
        if not len(self._sorted):
            return np.full(len(times), -1, dtype=np.int64)
        if self._is_timed:
            wide = codes * (len(self._begins) + 1) + np.searchsorted(self._begins, times, side="right")
            at = np.searchsorted(self._sorted, wide, side="right") - 1
            numbers = self._order[np.maximum(at, 0)]
            is_known &= (at >= 0) & (self._codes[numbers] == codes) & (times < self._end[numbers])
        else:
            at = np.minimum(np.searchsorted(self._sorted, codes), len(self._sorted) - 1)
            numbers = self._order[at]
            is_known &= self._sorted[at] == codes
        return np.where(is_known, numbers, -1)

    def take(self, attribute: Attribute, key: Sequence[str], numbers: NDArray[np.int64], is_encoded: bool) -> pa.Array:
        """An attribute (n,) of the rows with some numbers (n,), null where there is none; of a text dictionary-encoded
        if ``is_encoded``. ``key``: the names of the key columns."""
        column = attribute.column
        if column is None:
            return pa.array(numbers >= 0)
        name = column if column in key else attribute_name(column)
        if is_encoded and name not in self._encoded:
            self._encoded[name] = self._rows[name].combine_chunks().dictionary_encode()
        values = self._encoded[name] if is_encoded else self._rows[name].combine_chunks()
        return values.take(pa.array(numbers, mask=numbers < 0))


def _distinct(values: pa.Array) -> pa.Array | NDArray[Any]:
    """The distinct values of a key column; of numbers ascending."""
    if _is_number(values.type):
        return np.unique(_numbers(values))
    return values.cast(pa.string()).unique()


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_temporal(type) or pa.types.is_boolean(type))


def _numbers(values: pa.Array) -> NDArray[np.int64]:
    integers = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
    return np.asarray(integers.cast(pa.int64()).to_numpy(zero_copy_only=False))


def _codes(distinct: pa.Array | NDArray[Any], values: pa.Array) -> NDArray[np.int64]:
    """The numbers (n,) of values among distinct ones; -1: of null, and of others."""
    if pa.types.is_dictionary(values.type):
        of_dictionary = _codes(distinct, values.dictionary)
        places = pc.fill_null(values.indices.cast(pa.int64()), -1).to_numpy()
        return np.where(places < 0, -1, of_dictionary[places]) if len(of_dictionary) else np.full(len(values), -1)
    if isinstance(distinct, np.ndarray):
        if not len(distinct):
            return np.full(len(values), -1, dtype=np.int64)
        numbers = _numbers(
            pc.fill_null(values, pa.scalar(0, pa.int64()).cast(values.type)) if values.null_count else values
        )
        at = np.minimum(np.searchsorted(distinct, numbers), len(distinct) - 1)
        is_known = distinct[at] == numbers
        if values.null_count:
            is_known &= values.is_valid().to_numpy(zero_copy_only=False)
        return np.where(is_known, at, -1)
    known = values if values.type == distinct.type else values.cast(pa.string())
    return np.asarray(pc.fill_null(pc.index_in(known, value_set=distinct), -1).to_numpy(), dtype=np.int64)


@lru_cache(maxsize=32)
def _loaded(place: str, key: tuple[str, ...]) -> VersionRows:
    """The rows of a version's file, which never changes."""
    return VersionRows(pq.read_table(Place(place).open_unchanging()), key)


def with_attributes(
    stream: Stream, batch: pa.RecordBatch, attributes: Mapping[str, Attribute], encoded: Collection[str] = ()
) -> pa.RecordBatch:
    """A batch of events with attributes as columns: those of :func:`optimizer.workload.attributes.attributes_in`, whose
    keys it has.

    ``encoded``: attributes that may be dictionary-encoded. Raises ValueError for a dimension without a version.
    """
    columns, times = {name: batch.column(name) for name in batch.schema.names}, np.zeros(0, dtype=np.int64)
    numbers: dict[Attribute, NDArray[np.int64]] = {}
    for name, attribute in attributes.items():
        dimension = stream.dimension(attribute.dimension)
        if dimension.version is None:
            raise ValueError(f"dimension {dimension.name} has no version")
        rows = _loaded(dimension.version.place, dimension.key)
        if attribute.row not in numbers:
            if len(times) != len(batch):
                moments = columns[stream.time].cast(pa.int64())
                times = pc.fill_null(moments, ALWAYS[0]).to_numpy(zero_copy_only=False)
            numbers[attribute.row] = rows.numbers([columns[key] for key in attribute.keys], times)
        is_encoded = name in encoded and dimension.type_of(attribute.column) == STRING
        columns[name] = rows.take(attribute, dimension.key, numbers[attribute.row], is_encoded)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
