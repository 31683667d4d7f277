"""Rows of one synopsis of event sequences from the stored rows of another.

Rows hold events. So events of the types that both synopses have are copied, with their types' codes in the other
synopsis and the attributes that it keeps of them. Events of types that only the other has, or has more attributes
of, are lifted into separate rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.synopses.synopsis import Sequenced, Synopsis
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY
from spark_jobs.store.arrays.numbering import distinct_of
from spark_jobs.store.settings import TaskMemory
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.windows.partials.fill_request import FillRequest, by_fingerprint
from spark_jobs.windows.sequences.encoding import sequenced_of, widths_of


class SequenceDerivation:
    """Takes stored events for the requests that name synopses of them (``stored``); as
    :class:`spark_jobs.windows.partials.derivation.Derivation`."""

    def __init__(
        self, requests: Sequence[FillRequest], memory: TaskMemory, write: Callable[[Iterable[pa.Table]], Any]
    ) -> None:
        self.memory, self.write = memory, write
        self.rows = 0
        self._parts: dict[str, list[tuple[Synopsis, Synopsis, FillRequest]]] = {}
        for request in requests:
            for stored, ((synopsis, _),) in zip(request.stored, request.given, strict=True):
                self._parts.setdefault(stored.fingerprint, []).append((stored, synopsis, request))
        self._taken: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Take what partial rows of any synopses, all with a key, give."""
        for fingerprint, stored_rows in by_fingerprint(rows).items():
            parts = self._parts.get(fingerprint, [])
            self.rows += len(stored_rows) if parts else 0
            self._taken += [recoded for part in parts if len(recoded := recoded_rows(*part, stored_rows))]
        if sum(table.nbytes for table in self._taken) > self.memory.cells:
            self.write(self.tables())

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows that were recoded since the last call."""
        recoded, self._taken = self._taken, []
        yield from recoded


def recoded_rows(stored: Synopsis, given: Synopsis, request: FillRequest, rows: pa.Table) -> pa.Table:
    """Recode partial rows of a stored synopsis for a requested one: their events of the event types of ``given``
    that lie in the request's time, with the attributes that it keeps of them.
    """
    before, common, filled = map(sequenced_of, (stored, given, request.filled))
    longs_at, doubles_at = _laid_out(before)
    longs, sizes = _matrix(rows["longs"], int(longs_at[-1]))
    row = np.repeat(np.arange(len(rows)), sizes)
    doubles = _matrix(rows["doubles"], int(doubles_at[-1]))[0] if doubles_at[-1] else np.zeros((len(longs), 0))
    codes = [filled.types.index(type_) if type_ in common.types else -1 for type_ in before.types]
    code = np.array(codes)[longs[:, 1]]
    chosen = np.flatnonzero((longs[:, 0] >= request.begin) & (longs[:, 0] < request.end) & (code >= 0))
    row, code = row[chosen], code[chosen]
    longs_to, doubles_to = _laid_out(common)
    longs_taken = np.zeros((len(chosen), int(longs_to[-1])), dtype=np.int64)
    doubles_taken = np.zeros((len(chosen), int(doubles_to[-1])))
    longs_taken[:, 0], longs_taken[:, 1], longs_taken[:, 2] = longs[chosen, 0], code, longs[chosen, 2]
    for at, attribute in enumerate(common.attributes):
        if attribute.carriers:
            carried = np.flatnonzero(np.isin(code, [filled.types.index(type_) for type_ in attribute.carriers]))
            of, place = chosen[carried], before.arguments.index(attribute.argument)
            longs_taken[carried, longs_to[at] : longs_to[at + 1]] = longs[of, longs_at[place] : longs_at[place + 1]]
            doubles_taken[carried, doubles_to[at] : doubles_to[at + 1]] = doubles[
                of, doubles_at[place] : doubles_at[place + 1]
            ]
    heads = np.flatnonzero(np.diff(row, prepend=-1))
    cuts, head_rows = np.append(heads, len(row)), rows.take(pa.array(row[heads]))
    begins = np.maximum(head_rows["fragment_start"].to_numpy(), request.begin)
    days, number = distinct_of(begins // DAY)
    columns = {
        "day": pa.array([day_label(day * DAY) for day in days.tolist()], pa.string()).take(pa.array(number)),
        "stream": pa.repeat(request.filled.stream, len(heads)),
        "fingerprint": pa.repeat(request.filled.fingerprint, len(heads)),
        "fragment_start": pa.array(begins),
        "fragment_end": pa.array(np.minimum(head_rows["fragment_end"].to_numpy(), request.end)),
        "key": head_rows["key"].cast(pa.string()),
        "shard": pa.repeat(pa.scalar(1, pa.int64()), len(heads)),
        "bucket": head_rows["bucket"],
        "longs": _lists(longs_taken, cuts),
        "doubles": _lists(doubles_taken, cuts),
        "texts": _lists(np.empty((len(row), 0), dtype=str), cuts),
        "numbers": pa.nulls(len(heads), pa.binary()),
    }
    return pa.table([columns[name] for name in PARTIALS.names], schema=PARTIALS)


def _laid_out(sequenced: Sequenced) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start of the longs, and of the doubles, of each attribute of an event, and the end of the last one's."""
    longs, doubles = zip((3, 0), *(widths_of(attribute.type) for attribute in sequenced.attributes), strict=True)
    return np.cumsum(longs), np.cumsum(doubles)


def _lists(matrix: NDArray[Any], cuts: NDArray[np.int64]) -> pa.ListArray:
    """Lists of the values of the rows between cuts, row by row."""
    return pa.ListArray.from_arrays(pa.array((cuts * matrix.shape[1]).astype(np.int32)), pa.array(matrix.reshape(-1)))


def _matrix(lists: pa.ChunkedArray, width: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The values of lists, ``width`` for each event, and the number of events of each list."""
    chunks = [chunk.flatten() for chunk in lists.chunks]
    values = pa.concat_arrays(chunks) if chunks else pa.array([], lists.type.value_type)
    return values.to_numpy(zero_copy_only=False).reshape(-1, width), pc.list_value_length(lists).to_numpy() // width
