"""Labels and their features on the way between tasks: files in a folder that is removed afterwards.

Labels come in *parts*. Each part is written once for every set of key columns, its rows by bucket of the key
(:func:`spark_jobs.windows.partials.cells.buckets_of`), so that a task reads the labels of some buckets of all parts.
The features of these are written by part again. A part has a name, and a number among all;
a row is known by that number and its place in the part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from optimizer.workload.values import Type
from spark_jobs.store.arrays.numbering import distinct_rows
from spark_jobs.store.arrays.texts import as_texts, key_texts
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.data_files import BUCKETS
from spark_jobs.windows.features.moments import Longs
from spark_jobs.windows.partials.cells import checksums_of

PART_ROWS = 1 << 20
"""Labels of a part, at most."""

PLACE_BITS = 32
"""Bits of a row's number that are its place in its part."""

KEY_BITS = 1 << 23
"""Bits of a :class:`KeyFilter`."""


class KeyColumns(NamedTuple):
    """Key columns by which labels meet the cells of some queries: their names and types, and the names of those whose
    values decide the bucket, in their order."""

    columns: tuple[tuple[str, Type], ...]
    bucket_by: tuple[str, ...]


class KeyFilter:
    """A superset of some keys, by their checksums: events whose keys it lacks belong to no label."""

    def __init__(self, bits: NDArray[np.bool_] | None = None) -> None:
        self.bits = np.zeros(KEY_BITS, dtype=bool) if bits is None else bits

    def add(self, checksums: NDArray[np.uint32]) -> None:
        """Add keys by their checksums."""
        self.bits[checksums % KEY_BITS] = True

    def has(self, checksums: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Mask (n,) of the keys that may be there."""
        return self.bits[checksums % KEY_BITS]

    def write(self, place: Place) -> None:
        """Write it as a file."""
        place.put(np.packbits(self.bits).tobytes())

    @classmethod
    def of_parts(cls, place: Place, keys: int, parts: Sequence[str]) -> KeyFilter:
        """The filter of the keys that parts of labels have in the key columns of a number."""
        known = cls()
        for part in parts:
            known.add(np.frombuffer(_checksums_file(place, keys, part).read(), dtype=np.uint32))
        return known

    @classmethod
    def read(cls, place: Place) -> KeyFilter:
        """Read one that was written."""
        return cls(np.unpackbits(np.frombuffer(place.read(), dtype=np.uint8)).astype(bool))


def _labels_file(place: Place, keys: int, part: str) -> Place:
    return place / f"labels-{keys}-{part}.arrow"


def _checksums_file(place: Place, keys: int, part: str) -> Place:
    return place / f"keys-{keys}-{part}.crc"


def write_labels(
    place: Place, part: str, moments: Longs, values: Mapping[str, pa.Array], key_columns: Sequence[KeyColumns]
) -> None:
    """Write the part of a name: its ``moments`` (n,) and the typed ``values`` (n,) of its key columns, by name."""
    rows = np.arange(len(moments), dtype=np.int64)
    texts = {name: as_texts(column) for name, column in values.items()}
    for number, keys in enumerate(key_columns):
        distinct, place_of, count = distinct_rows([texts[name] for name in keys.bucket_by], len(moments))
        if not keys.bucket_by:
            count = 1
        checksum = checksums_of(key_texts(list(distinct), count))
        _checksums_file(place, number, part).put(checksum.tobytes())
        bucket = (checksum % BUCKETS).astype(np.uint8)[place_of]
        order = np.argsort(bucket, kind="stable")
        places = pa.array(order)
        columns = [pa.array(rows[order]), pa.array(moments[order])]
        columns += [texts[name].take(places) for name, _ in keys.columns]
        batch = pa.RecordBatch.from_arrays(columns, names=["row", "moment", *(name for name, _ in keys.columns)])
        cuts = np.searchsorted(bucket[order], np.arange(BUCKETS + 1))
        _write_batches(_labels_file(place, number, part), batch, cuts)


def read_labels(place: Place, keys: int, parts: Sequence[str], buckets: range) -> pa.Table:
    """The labels of some buckets of all parts: ``row``, ``moment`` and the key columns as texts."""
    batches = []
    for number, part in enumerate(parts):
        for batch in _read_batches(_labels_file(place, keys, part), buckets):
            rows = pa.array(batch.column("row").to_numpy() + (number << PLACE_BITS))
            batches.append(batch.set_column(0, "row", rows))
    return pa.Table.from_batches(batches).combine_chunks()


def _features_file(place: Place, unit: int, piece: int) -> Place:
    return place / f"features-{unit}-{piece}.arrow"


def write_features(place: Place, unit: int, piece: int, parts: int, features: pa.RecordBatch) -> None:
    """Write the features that a unit of work has for some labels, with their ``row``, by part."""
    rows = features.column("row").to_numpy()
    order = np.argsort(rows, kind="stable")
    cuts = np.searchsorted(rows[order] >> PLACE_BITS, np.arange(parts + 1))
    _write_batches(_features_file(place, unit, piece), features.take(pa.array(order)), cuts)


def read_features(place: Place, units: Sequence[int], pieces: int, part: int, rows: int) -> pa.Table:
    """The features of a part, which has so many ``rows``, in their order: of each label from the one of some ``units``
    that has it. Raises RuntimeError if a label has none or several."""
    one = range(part, part + 1)
    files = (_features_file(place, unit, piece) for unit in units for piece in range(pieces))
    table = pa.Table.from_batches([batch for file in files for batch in _read_batches(file, one)])
    places = table["row"].to_numpy() - (part << PLACE_BITS)
    order = np.argsort(places, kind="stable")
    if not np.array_equal(places[order], np.arange(rows)):
        raise RuntimeError(f"part {part} of the labels has {rows} rows, and features for {len(places)}")
    return table.drop_columns("row").combine_chunks().take(pa.array(order))


def _write_batches(file: Place, batch: pa.RecordBatch, cuts: NDArray[np.int64]) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        for low, high in pairwise(cuts.tolist()):
            writer.write_batch(batch.slice(low, high - low))
    file.put(sink.getvalue().to_pybytes())


def _read_batches(file: Place, numbers: range) -> Iterator[pa.RecordBatch]:
    with file.open(memory_map=True) as opened, pa.ipc.open_file(opened) as reader:
        for number in numbers:
            yield reader.get_batch(number)
