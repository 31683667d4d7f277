"""Look up the attributes of dimensions for the events of a stream, in the version that a run uses."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.workload.attribute_names import JoinedAttribute, inputs_of
from optimizer.workload.computed_keys import key_expression
from optimizer.workload.values import STRING, Stream
from spark_jobs.store.storage import Place
from spark_jobs.streams.sources.expressions import evaluate

if TYPE_CHECKING:
    from spark_jobs.store.arrays.key_tables import SpanTable

MARK = "\t"
"""Beginning of the names of a version's columns that are no keys: no key's name has one."""

VALID_FROM, VALID_TO = "valid\tfrom", "valid\tto"
"""Columns of a version with its rows' validity [from, to), in microseconds. No declared column has such a name."""

MOST_VERSIONS = 3
"""Versions of a dimension whose rows a process holds, as it may compare some."""

ALWAYS = -(1 << 62), 1 << 62
"""Validity of rows without one."""


def attribute_name(name: str) -> str:
    """The name of an attribute's column in a version, where it cannot be that of a key or a validity."""
    return f"{MARK}{name}"


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
        # tables are compiled, which those need not load who read no dimension
        from spark_jobs.store.arrays.key_tables import KeyTable, SpanTable

        self._columns = {name: rows[name].combine_chunks() for name in rows.column_names}
        self._encoded = dict[str, pa.Array]()
        self._spans: SpanTable | None = None
        is_timed = VALID_FROM in self._columns
        keys = [self._columns[name] for name in key]
        self._parts = [_Values(values, is_unique=len(key) == 1 and not is_timed) for values in keys]
        numbers, self._steps = self._parts[0].positions(keys[0]), list[KeyTable]()
        for values, part in zip(keys[1:], self._parts[1:], strict=True):
            codes = numbers * np.int64(part.most) + part.positions(values)
            distinct = np.unique(codes) if is_timed or part is not self._parts[-1] else codes
            self._steps.append(KeyTable(distinct))
            numbers = self._steps[-1].positions(codes)
        if is_timed:
            begins, ends = (self._columns[name].to_numpy() for name in (VALID_FROM, VALID_TO))
            self._spans = SpanTable(numbers, begins, ends, int(numbers.max(initial=-1)) + 1)

    def numbers(self, keys: Sequence[pa.Array], times: NDArray[np.int64]) -> NDArray[np.int32]:
        """The numbers of the rows (n,) for some keys, each (n,), at some times (n,) in microseconds; -1: no row."""
        numbers = self._parts[0].positions(keys[0])
        for values, part, step in zip(keys[1:], self._parts[1:], self._steps, strict=True):
            others = part.positions(values)
            known = (numbers >= 0) & (others >= 0)
            numbers = np.where(known, step.positions(numbers * np.int64(part.most) + others), np.int32(-1))
        return numbers if self._spans is None else self._spans.rows_at(numbers, times)

    def take(self, attribute: JoinedAttribute, key: Sequence[str], places: pa.Array, is_encoded: bool) -> pa.Array:
        """An attribute (n,) of the rows at some places (n,), null where there is none; of a text dictionary-encoded if
        ``is_encoded``. ``key``: the names of the key columns."""
        column = attribute.column
        if column is None:
            return places.is_valid()
        name = column if column in key else attribute_name(column)
        if is_encoded and name not in self._encoded:
            self._encoded[name] = self._columns[name].dictionary_encode()
        return (self._encoded if is_encoded else self._columns)[name].take(places)


class _Values:
    """The distinct values of a key column, numbered.

    Parameters
    ----------
    values
        The column.
    is_unique
        Whether each value is there once. Then a value's number is that of its row.
    """

    def __init__(self, values: pa.Array, is_unique: bool) -> None:
        from spark_jobs.store.arrays.key_tables import KeyTable

        self._is_number, self._type = _is_number(values.type), values.type
        if self._is_number:
            numbers = _numbers(values)
            distinct = numbers if is_unique else np.unique(numbers)
            self._table, self.most = KeyTable(distinct), len(distinct)
        else:
            texts = values.cast(pa.string())
            self._texts = texts if is_unique else texts.unique()
            self.most = len(self._texts)

    def positions(self, values: pa.Array) -> NDArray[np.int32]:
        """The numbers (n,) of values, (n,); -1: of null, and of others."""
        if pa.types.is_dictionary(values.type):
            # the last is that of null
            of_dictionary = np.append(self.positions(values.dictionary), np.int32(-1))
            places = values.indices if not values.null_count else pc.fill_null(values.indices.cast(pa.int64()), -1)
            return of_dictionary[places.to_numpy()]
        if not self._is_number:
            texts = values if values.type == pa.string() else values.cast(pa.string())
            indices = pc.index_in(texts, value_set=self._texts, skip_nulls=True)
            return np.asarray(pc.fill_null(indices, -1).to_numpy(), dtype=np.int32)
        numbers = self._table.positions(_numbers(values))
        if values.null_count:
            numbers[~values.is_valid().to_numpy(zero_copy_only=False)] = -1
        return numbers


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_temporal(type) or pa.types.is_boolean(type))


def _numbers(values: pa.Array) -> NDArray[np.int64]:
    """Integers, moments and booleans as integers (n,); null as any."""
    integers = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
    integers = integers.cast(pa.int64())
    return np.asarray((pc.fill_null(integers, 0) if integers.null_count else integers).to_numpy())


_versions: dict[str, dict[tuple[str, tuple[str, ...]], VersionRows]] = {}
"""By folder of a dimension the rows of the versions that were used last, the newest behind."""


def _loaded(place: str, key: tuple[str, ...]) -> VersionRows:
    """The rows of a version's file, which never changes."""
    of_dimension = _versions.setdefault(place.rpartition("/")[0], {})
    rows = of_dimension.pop((place, key), None)
    if rows is None:
        rows = VersionRows(pq.read_table(Place(place).open_unchanging()), key)
        for former in list(of_dimension)[: 1 - MOST_VERSIONS]:
            of_dimension.pop(former, None)
    of_dimension[place, key] = rows
    return rows


def with_attributes(
    stream: Stream, batch: pa.RecordBatch, attributes: Mapping[str, JoinedAttribute], encoded: Collection[str] = ()
) -> pa.RecordBatch:
    """A batch of events with attributes as columns: those of :func:`optimizer.workload.attributes.attributes_in`, whose
    keys it has, or what these are computed of. Computed keys are columns, too.

    ``encoded``: attributes that may be dictionary-encoded. Raises ValueError for a dimension without a version.
    """
    columns, times = {name: batch.column(name) for name in batch.schema.names}, np.zeros(0, dtype=np.int64)
    places: dict[JoinedAttribute, pa.Array] = {}
    for name, attribute in attributes.items():
        dimension = stream.dimension(attribute.dimension)
        if dimension.version is None:
            raise ValueError(f"dimension {dimension.name} has no version")
        rows = _loaded(dimension.version.place, dimension.key)
        if attribute.row not in places:
            if len(times) != len(batch) and dimension.valid_from is not None:
                moments = columns[stream.time].cast(pa.int64())
                times = pc.fill_null(moments, ALWAYS[0] - 1).to_numpy(zero_copy_only=False)
            for key in attribute.keys:
                if key not in columns:
                    columns[key] = _computed(stream, key, columns)
            numbers = rows.numbers([columns[key] for key in attribute.keys], times)
            places[attribute.row] = pa.array(numbers, mask=numbers < 0)
        is_encoded = name in encoded and dimension.type_of(attribute.column) == STRING
        columns[name] = rows.take(attribute, dimension.key, places[attribute.row], is_encoded)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _computed(stream: Stream, key: str, columns: Mapping[str, pa.Array]) -> pa.Array:
    """A computed key (n,) of events with some columns."""
    inputs = {name: columns[name] for name in inputs_of(key)}
    plain = {
        name: values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        for name, values in inputs.items()
    }
    return evaluate(key_expression(key), pa.RecordBatch.from_pydict(plain), stream.types)
