"""The results table: what a row of it holds, and the files that tasks write for it.

Answers are by far the most rows that a run writes, and what they cost is what writing them costs: answers stay in
arrays until a row group is full; whatever repeats is written as a dictionary or as differences; a column that no row
of a file has is not in the file (every reader of Delta takes it for null).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates.states import carrier_of
from optimizer.synopses.synopsis import CARRIERS
from optimizer.windows.alignment import day_label, starts_of
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, Type, Window
from spark_jobs.store.warehouse.schemas import ANSWERS, INSTANT, RESULTS
from spark_jobs.streams.sources.expressions import arrow_type

Longs = NDArray[np.int64]


# ------------------------------------------------------------------------------------------ what a row holds
def places(query: ACQ) -> list[tuple[str, int]]:
    """Carrier and position in its list of each output of a query, in the query's order."""
    used = dict.fromkeys(CARRIERS, 0)
    positions = []
    for output in query.outputs:
        carrier = carrier_of(output.type)
        positions.append((carrier, used[carrier]))
        used[carrier] += 1
    return positions


def group_values(keys: pa.Array | pa.ChunkedArray, columns: int) -> list[pa.StringArray]:
    """The values (n,) of each of ``columns`` group columns, as texts that :func:`typed` takes; ``keys`` (n,) of
    results.
    """
    encoded = keys.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    parsed = json.loads(f"[{','.join(encoded.dictionary.to_pylist())}]")
    return [pa.array([key[at] for key in parsed], pa.string()).take(encoded.indices) for at in range(columns)]


def typed(values: pa.Array | pa.ChunkedArray, type: Type) -> pa.Array | pa.ChunkedArray:
    """Stored values (int64, float64 or text) as the Arrow type of a column's type."""
    target, stored = arrow_type(type), values.type
    if type.name == "decimal":
        texts = [None if text is None else Decimal(text) for text in values.to_pylist()]
        return pa.array(texts, target)
    if type.name == "binary":
        return pa.array([None if text is None else base64.b64decode(text) for text in values.to_pylist()], target)
    if type.name == "boolean" and pa.types.is_integer(stored):
        return pc.not_equal(values, 0)
    if type.name == "date" and pa.types.is_integer(stored):
        values = values.cast(pa.int32())
    elif type.name == "timestamp" and pa.types.is_string(stored):
        values = values.cast(pa.int64())
    return values.cast(target)


# -------------------------------------------------------------------------------------------- answers in arrays
class CarrierColumn(NamedTuple):
    """The outputs of one carrier: ``width`` a row, one row after the other; ``valid`` None: none of them is null."""

    values: NDArray[Any]
    valid: NDArray[np.bool_] | None
    width: int

    def where(self, rows: Longs) -> CarrierColumn:
        """Return the values of the given rows."""
        if not self.width:
            return self
        values = self.values.reshape(-1, self.width)[rows].reshape(-1)
        valid = None if self.valid is None else self.valid.reshape(-1, self.width)[rows].reshape(-1)
        return CarrierColumn(values, valid, self.width)


TEXT_BYTES = 80
"""Bytes of a text that is a Python object, about."""


class AnswerRows(NamedTuple):
    """Some answers (a,) of one query. ``group`` (a,) numbers the ``keys``; ``carried``: the outputs by carrier;
    ``errors``: what is wrong, by row. Of sessions and windows of rows ``starts`` (a,), of the latter ``positions``
    (a,): time and number of the first row."""

    stream: str
    query: str
    window: Window
    keys: pa.StringArray
    group: Longs
    instants: Longs
    carried: Mapping[str, CarrierColumn]
    errors: Mapping[int, Sequence[str]]
    positions: Longs | None = None
    starts: Longs | None = None

    def by_day(self) -> Iterator[tuple[str, AnswerRows]]:
        """The answers of each day: that of the microsecond before the instant."""
        first, last = (int(self.instants.min()) - 1) // DAY, (int(self.instants.max()) - 1) // DAY
        if first == last:
            yield day_label(first * DAY), self
            return
        days = (self.instants - 1) // DAY
        order = np.argsort(days, kind="stable")
        edges = [0, *(np.flatnonzero(np.diff(days[order])) + 1).tolist(), len(order)]
        for low, high in pairwise(edges):
            rows = order[low:high]
            yield day_label(int(days[rows[0]]) * DAY), self._where(rows)

    def _where(self, rows: Longs) -> AnswerRows:
        place = {int(row): new for new, row in enumerate(rows.tolist())} if self.errors else {}
        return self._replace(
            group=self.group[rows],
            instants=self.instants[rows],
            carried={carrier: column.where(rows) for carrier, column in self.carried.items()},
            errors={place[row]: messages for row, messages in self.errors.items() if row in place},
            positions=None if self.positions is None else self.positions[rows],
            starts=None if self.starts is None else self.starts[rows],
        )

    @property
    def size(self) -> int:
        """Bytes, about."""
        values = (
            TEXT_BYTES * column.values.size if name == "texts" else column.values.nbytes
            for name, column in self.carried.items()
        )
        return 16 * len(self.instants) + sum(values)

    def rows(self) -> pa.RecordBatch:
        """The answers as rows of :data:`ANSWERS`."""
        columns = ResultColumns([self])
        return pa.RecordBatch.from_arrays([columns.of(name).cast(type) for name, type in _ANSWERED], schema=ANSWERS)


_ANSWERED = [(field.name, field.type) for field in ANSWERS]

_ELEMENTS = {"longs": pa.int64(), "doubles": pa.float64(), "texts": pa.string()}


class ResultColumns:
    """The columns of some answers one after the other; texts that repeat as dictionaries of just those that occur.
    ``definitions``: the fingerprint of each query."""

    def __init__(self, parts: Sequence[AnswerRows], definitions: Mapping[str, str] | None = None) -> None:
        self.parts, self.definitions = parts, definitions or {}
        self.sizes = [len(part.instants) for part in parts]
        self.rows = sum(self.sizes)
        self.cuts = [0, *np.cumsum(self.sizes).tolist()]

    def of(self, name: str) -> pa.Array:
        """The column of a name, as the results table has it."""
        return self._lists(name) if name in CARRIERS else getattr(self, f"_{name}")()

    def _stream(self) -> pa.DictionaryArray:
        return self._repeated([part.stream for part in self.parts])

    def _query(self) -> pa.DictionaryArray:
        return self._repeated([part.query for part in self.parts])

    def _fingerprint(self) -> pa.DictionaryArray:
        return self._repeated([self.definitions[part.query] for part in self.parts])

    def _window_start(self) -> pa.Array:
        starts = [starts_of(part.window, part.instants) if part.starts is None else part.starts for part in self.parts]
        return pa.array(np.concatenate(starts)).cast(INSTANT)

    def _window_end(self) -> pa.Array:
        return self._times([part.window.end_before for part in self.parts])

    def _instant(self) -> pa.Array:
        return self._times([0] * len(self.parts))

    def _position(self) -> pa.Array:
        positions = zip((part.positions for part in self.parts), self.sizes, strict=True)
        return pa.concat_arrays(
            [pa.nulls(size, pa.int64()) if numbers is None else pa.array(numbers) for numbers, size in positions]
        )

    def _key(self) -> pa.DictionaryArray:
        codes, texts, known, first = np.empty(self.rows, dtype=np.int32), [], 0, 0
        while first < len(self.parts):
            keys, last = self.parts[first].keys, first + 1
            while last < len(self.parts) and self.parts[last].keys is keys:
                last += 1
            groups = np.concatenate([part.group for part in self.parts[first:last]])
            least, most = int(groups.min()), int(groups.max()) + 1
            groups -= least
            occurs = np.zeros(most - least, dtype=bool)
            occurs[groups] = True
            if occurs.all():
                texts.append(keys.slice(least, most - least))
            else:
                # compiled, which reading answers need not wait for
                from spark_jobs.store.arrays.numbering import numbered

                used, groups = numbered(groups, most - least)
                texts.append(keys.take(pa.array(used + least)))
            codes[self.cuts[first] : self.cuts[last]] = groups + known
            known, first = known + len(texts[-1]), last
        if len(texts) == 1:
            return pa.DictionaryArray.from_arrays(codes, texts[0])
        # families with the same group columns have the same keys, and a dictionary with repeats is not written as one
        again = pa.concat_arrays(texts).dictionary_encode()
        return pa.DictionaryArray.from_arrays(again.indices.to_numpy()[codes], again.dictionary)

    def _error(self) -> pa.DictionaryArray:
        if not any(part.errors for part in self.parts):
            return pa.DictionaryArray.from_arrays(pa.nulls(self.rows, pa.int32()), pa.array([], pa.string()))
        codes, distinct = np.full(self.rows, -1, dtype=np.int32), dict[str, int]()
        for part, cut in zip(self.parts, self.cuts, strict=False):
            for row, messages in part.errors.items():
                codes[cut + row] = distinct.setdefault("; ".join(messages), len(distinct))
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(list(distinct), pa.string()))

    def _repeated(self, texts: Sequence[str]) -> pa.DictionaryArray:
        distinct = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        codes = np.repeat(np.array([distinct[text] for text in texts], dtype=np.int32), self.sizes)
        return pa.DictionaryArray.from_arrays(codes, pa.array(list(distinct), pa.string()))

    def _times(self, before: Sequence[int]) -> pa.Array:
        """The moments so far before the instants."""
        moments = np.empty(self.rows, dtype=np.int64)
        for part, cut, size, span in zip(self.parts, self.cuts, self.sizes, before, strict=False):
            np.subtract(part.instants, span, out=moments[cut : cut + size])
        return pa.array(moments).cast(INSTANT)

    def _lists(self, carrier: str) -> pa.ListArray:
        offsets, at = np.zeros(self.rows + 1, dtype=np.int32), 0
        parts = [part.carried[carrier] for part in self.parts]
        for part, cut, size in zip(parts, self.cuts, self.sizes, strict=False):
            ends = offsets[cut + 1 : cut + size + 1]
            ends[:] = at
            if part.width:
                ends += np.arange(part.width, (size + 1) * part.width, part.width, dtype=np.int32)
                at += size * part.width
        values = np.concatenate([part.values for part in parts])
        mask = None
        if any(part.valid is not None for part in parts):
            mask = np.concatenate([np.zeros(len(p.values), dtype=bool) if p.valid is None else ~p.valid for p in parts])
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, _ELEMENTS[carrier], mask=mask))


def stamped(
    batch: pa.RecordBatch, stream: str, stamp: Mapping[str, pa.Scalar], definitions: Mapping[str, str]
) -> pa.Table:
    """Rows of :data:`ANSWERS` of one stream as rows of :data:`RESULTS`; ``stamp``: the columns that identify the
    run that wrote them, ``definitions``: the fingerprint of each query.
    """
    # compiled, which reading answers need not wait for
    from spark_jobs.store.arrays.numbering import distinct_of

    days, number = distinct_of((batch.column("instant").cast(pa.int64()).to_numpy() - 1) // DAY)
    labels = pa.array([day_label(day * DAY) for day in days.tolist()], pa.string())
    columns: dict[str, pa.Array] = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns |= {"day": labels.take(pa.array(number)), "stream": pa.repeat(stream, len(batch))}
    columns |= {name: pa.repeat(value, len(batch)) for name, value in stamp.items()}
    queries = batch.column("query").dictionary_encode()
    fingerprints = pa.array([definitions[name] for name in queries.dictionary.to_pylist()], pa.string())
    columns["fingerprint"] = fingerprints.take(queries.indices)
    return pa.table([columns[field.name] for field in RESULTS], schema=RESULTS)
