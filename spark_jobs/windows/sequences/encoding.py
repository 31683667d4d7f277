"""Events of sequences as partial rows, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from optimizer.sequences.events import Attribute, Events, compacted, merged
from optimizer.synopses.synopsis import Sequenced, Synopsis
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY
from optimizer.workload.values import DOUBLE, Type
from spark_jobs.store.arrays.numbering import distinct_of, encoded
from spark_jobs.store.warehouse.data_files import bucket_of
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.windows.partials.fill_request import FillRequest

Longs = NDArray[np.int64]


def sequenced_of(synopsis: Synopsis) -> Sequenced:
    """Return the event sequences that a synopsis keeps; it must be a synopsis of event sequences."""
    assert synopsis.sequenced is not None
    return synopsis.sequenced


def _longs(events: Events, sequenced: Sequenced) -> list[Longs]:
    """The columns (n,) of an event that are stored as longs."""
    columns = [events.time, events.type.astype(np.int64), events.count]
    for at in range(len(sequenced.attributes)):
        attribute = events.attributes[str(at)]
        columns += [attribute.known, attribute.least, attribute.greatest]
        if attribute.special is None:
            columns += [attribute.sum[0].view(np.int64), attribute.sum[1]]
        else:
            columns.append(attribute.special.astype(np.int64))
    return columns


def encoded_rows(span: FillRequest, events: Events, keys: Sequence[str], bucket_keys: Sequence[str]) -> pa.Table:
    """Compacted events as rows of the partials table, one for each key and day."""
    sequenced = sequenced_of(span.synopsis)
    days = events.time // DAY
    heads = np.flatnonzero(np.append(True, (events.key[1:] != events.key[:-1]) | (days[1:] != days[:-1])))
    cuts = np.append(heads, len(events))
    starts = np.maximum(days[heads] * DAY, span.begin)
    ends = np.minimum((days[heads] + 1) * DAY, span.end)
    labels, number = distinct_of(days[heads])
    texts = pa.array([day_label(day * DAY) for day in labels.tolist()], pa.string())
    doubles = [part for at in range(len(sequenced.attributes)) for part in _doubles(events.attributes[str(at)])]
    key = pa.array(events.key[heads])
    return pa.table(
        [
            texts.take(pa.array(number)),
            pa.repeat(span.synopsis.stream, len(heads)),
            pa.repeat(span.filled.fingerprint, len(heads)),
            pa.array(starts),
            pa.array(ends),
            pa.array(keys, pa.string()).take(key),
            pa.repeat(pa.scalar(1, pa.int64()), len(heads)),
            pa.array(bucket_of(bucket_keys)).take(key),
            _lists(_longs(events, sequenced), cuts, pa.int64()),
            _lists(doubles, cuts, pa.float64()),
            _lists([], cuts, pa.string()),
            pa.nulls(len(heads), pa.binary()),
        ],
        schema=PARTIALS,
    )


def _doubles(kept: Attribute) -> tuple[NDArray[Any], ...]:
    return kept.sum if kept.special is not None else ()


def _lists(columns: Sequence[NDArray[Any]], cuts: Longs, type: pa.DataType) -> pa.ListArray:
    """Lists of the columns' values, event by event, of the runs of events between cuts."""
    values = pa.array(np.stack(columns, axis=1).reshape(-1) if columns else [], type)
    return pa.ListArray.from_arrays(pa.array((cuts * len(columns)).astype(np.int32)), values)


def widths_of(type: Type) -> tuple[int, int]:
    """Number of longs, and number of doubles, that store an attribute of an event."""
    return (4, 2) if type == DOUBLE else (5, 0)


class Decoded(NamedTuple):
    """The events of some partial rows; their keys are numbered in the order of ``keys`` (JSON lists of texts)."""

    events: Events
    keys: list[str]


def decoded(synopsis: Synopsis, rows: pa.Table) -> Decoded:
    """The events of partial rows of a synopsis, in any order, in one piece."""
    sequenced = sequenced_of(synopsis)
    parts: list[Events] = []
    keys = rows["key"].unify_dictionaries().combine_chunks()
    if isinstance(keys, pa.ChunkedArray):
        keys = pa.concat_arrays(keys.chunks) if keys.num_chunks else pa.array([], pa.string())
    texts, number = encoded(keys)
    # a file's dictionary has the keys of other synopses, too
    used, codes = distinct_of(number.astype(np.int64))
    texts = texts.take(pa.array(used))
    order = np.argsort(np.array(texts.to_pylist(), dtype=object), kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    first = 0
    for batch in rows.select(["longs", "doubles"]).to_batches():
        key = rank[codes[first : first + batch.num_rows]]
        first += batch.num_rows
        if batch.num_rows:
            parts.append(_events(sequenced, key, batch.column("longs"), batch.column("doubles")))
    return Decoded(compacted(parts), [texts[at].as_py() for at in order.tolist()])


def _events(sequenced: Sequenced, key: Longs, longs: pa.ListArray, doubles: pa.ListArray) -> Events:
    exact = [attribute.type != DOUBLE for attribute in sequenced.attributes]
    width = 3 + sum(widths_of(attribute.type)[0] for attribute in sequenced.attributes)
    sizes = np.diff(longs.offsets.to_numpy()) // width
    columns = longs.flatten().to_numpy().reshape(-1, width).T
    reals = doubles.flatten().to_numpy().reshape(len(columns[0]), -1).T if not all(exact) else []
    attributes, at, real = {}, 3, 0
    for place, is_exact in enumerate(exact):
        known, least, greatest = (np.ascontiguousarray(columns[at + by]) for by in range(3))
        if is_exact:
            total = (np.ascontiguousarray(columns[at + 3]).view(np.uint64), np.ascontiguousarray(columns[at + 4]))
            attributes[str(place)] = Attribute(known, total, least, greatest)
        else:
            pair = (np.ascontiguousarray(reals[real]), np.ascontiguousarray(reals[real + 1]))
            attributes[str(place)] = Attribute(known, pair, least, greatest, columns[at + 3].astype(np.uint8))
            real += 2
        at += 5 if is_exact else 4
    time, code, count = (np.ascontiguousarray(columns[by]) for by in range(3))
    return merged(np.repeat(key, sizes), time, code.astype(np.int32), count, attributes)
