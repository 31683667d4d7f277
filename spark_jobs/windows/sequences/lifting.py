"""Event sequences on Spark: from events to partial rows, and from those to answers.

1. Partial rows (:class:`SequenceLifting`): of each key and day the events that some pattern can use, those of equal
   time and type compacted into one. Compacting is commutative and associative, so tasks read splits in any order,
   late events are lifted like all others, and no pattern is matched yet: windows of every range and slide, and
   every pattern over these types, are answered from the same rows.
2. Answers (:func:`sequence_task`): the rows of a key are sorted by time; the executors of
   :mod:`optimizer.sequences` match all patterns over them at once. Sequences of different keys are added up to the
   query's groups. If a query has no groups, its keys are in all buckets: tasks return their answers
   (:class:`Rolled`) and the driver adds them up.

Source: Poppe et al., "Sharon: Shared Online Event Sequence Aggregation" (ICDE 2018), generalized from one window,
filter and group-by to any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.sequences.events import Events, compacted
from optimizer.synopses.synopsis import EventAttribute
from optimizer.workload.values import DOUBLE, Stream, Type
from spark_jobs.store.arrays.numbering import distinct_rows, encoded
from spark_jobs.store.arrays.texts import as_texts, flat, key_texts
from spark_jobs.store.settings import TASK_MEMORY, TaskMemory
from spark_jobs.store.warehouse.data_files import SynopsisFailure
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.streams.sources.decoding import times_of
from spark_jobs.streams.sources.expressions import evaluate
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.lifting import Write
from spark_jobs.windows.sequences.encoding import Longs, encoded_rows, sequenced_of

COMPACTED = 1 << 20
"""Events that are gathered before they are compacted once more."""


KEY_BYTES = 300
"""Bytes of a key with its number, about."""


class SequenceLifting:
    """Lifts the events of one task for the synopses of event sequences of one stream; as
    :class:`spark_jobs.windows.partials.lifting.Lifting`."""

    def __init__(
        self,
        stream: Stream,
        spans: Sequence[FillRequest],
        memory: TaskMemory = TASK_MEMORY,
        write: Write | None = None,
    ) -> None:
        self.stream, self.memory, self.write = stream, memory, write
        self.schema = stream.types
        self.inside = self.untimed = 0
        self.failed: dict[str, SynopsisFailure] = {}
        self._filling = [_Filling(span) for span in spans]

    def add(self, batch: pa.RecordBatch) -> None:
        """Lift a decoded batch: the time column and those of ``columns_of_synopsis``."""
        times, batch, missing = times_of(batch, self.stream)
        self.untimed += missing
        if len(times) == 0:
            return
        inside = np.zeros(len(times), dtype=bool)
        plain: dict[str, pa.Array] = {name: flat(batch.column(name)) for name in batch.schema.names}
        events = pa.RecordBatch.from_pydict(plain)
        for filling in self._filling:
            inside |= filling.add(events, times, self.schema)
        self.inside += int(inside.sum())
        if self.write is not None and sum(filling.size for filling in self._filling) > self.memory.cells:
            self.write(self.tables())

    def tables(self) -> Iterator[pa.Table]:
        """Yield the events that were lifted since the last call, as rows of :data:`PARTIALS`."""
        for filling in self._filling:
            table = filling.table()
            if len(table):
                yield table


class _Filling:
    """One synopsis while it is filled: its events so far, and the numbers of their keys."""

    def __init__(self, span: FillRequest) -> None:
        self.span = span
        self.sequenced = sequenced_of(span.synopsis)
        self.keys: dict[str, int] = {}
        self.bucket_keys: list[str] = []
        self.parts: list[Events] = []
        stored = sequenced_of(span.filled).types
        self.codes = {type_: code for code, type_ in enumerate(stored) if type_ in self.sequenced.types}

    @property
    def size(self) -> int:
        """Bytes, about."""
        return sum(map(len, self.parts)) * (28 + 48 * len(self.sequenced.attributes)) + KEY_BYTES * len(self.keys)

    def add(self, events: pa.RecordBatch, times: Longs, schema: Mapping[str, Type]) -> NDArray[np.bool_]:
        """Lift the events; which of them (n,) lie in the span."""
        synopsis, sequenced = self.span.synopsis, self.sequenced
        inside: NDArray[np.bool_] = (times >= self.span.begin) & (times < self.span.end)
        chosen = inside
        (filter,) = synopsis.predicates
        if filter is not None:
            passes = pc.fill_null(evaluate(filter, events, schema), False)
            chosen = chosen & passes.to_numpy(zero_copy_only=False)
        values, number = encoded(events.column(sequenced.on))
        codes = np.array([self.codes.get(type_, -1) for type_ in as_texts(values).to_pylist()] or [-1], dtype=np.int32)
        types = codes[number]
        rows = np.flatnonzero(chosen & (types >= 0))
        if len(rows) == 0:
            return inside
        events = events.take(pa.array(rows))
        types = types[rows]
        attributes = {
            str(at): self._carried(attribute, events, types, schema)
            for at, attribute in enumerate(sequenced.attributes)
        }
        self.parts.append(Events.of(self._numbered(events), times[rows], types, attributes))
        if len(self.parts) > 1 and sum(map(len, self.parts[1:])) > max(COMPACTED, len(self.parts[0])):
            self.parts = [compacted(self.parts)]
        return inside

    def _carried(
        self, attribute: EventAttribute, events: pa.RecordBatch, types: NDArray[np.int32], schema: Mapping[str, Type]
    ) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
        """The values (n,) of an attribute and which of them are known: of its carriers, and not null."""
        if not attribute.carriers:
            # its columns were not read
            dtype = np.float64 if attribute.type == DOUBLE else np.int64
            return np.zeros(len(types), dtype), np.zeros(len(types), dtype=np.bool_)
        values, known = _values(evaluate(attribute.argument, events, schema), attribute.type)
        if attribute.carriers == self.sequenced.types:
            return values, known
        carried = np.isin(types, [self.codes[type_] for type_ in attribute.carriers])
        return values, carried if known is None else known & carried

    def _numbered(self, events: pa.RecordBatch) -> Longs:
        """The number (n,) of each event's key."""
        names = [name for name, _ in self.span.synopsis.group_by]
        distinct_columns, number, groups = distinct_rows([events.column(name) for name in names], events.num_rows)
        columns = [as_texts(column) for column in distinct_columns]
        by = [columns[names.index(name)] for name in self.span.synopsis.bucket_by]
        local = np.empty(groups, dtype=np.int64)
        texts = key_texts(columns, groups).to_pylist()
        # a single column's values need not all occur
        occurs = np.zeros(groups, dtype=bool)
        occurs[number] = True
        buckets = key_texts(by, groups).to_pylist()
        for at in np.flatnonzero(occurs).tolist():
            local[at] = self.keys.setdefault(texts[at], len(self.keys))
            if local[at] == len(self.bucket_keys):
                self.bucket_keys.append(buckets[at])
        return local[number]

    def table(self) -> pa.Table:
        """The events as rows, one a key and day, and forget them."""
        parts, keys, bucket_keys = self.parts, list(self.keys), self.bucket_keys
        self.parts, self.keys, self.bucket_keys = [], {}, []
        if not parts:
            return PARTIALS.empty_table()
        return encoded_rows(self.span, compacted(parts), keys, bucket_keys)


def _values(column: pa.Array, type: Type) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Values (n,) as doubles or integers (decimals unscaled, dates in days, moments in microseconds), and which of them
    are not null."""
    valid = None if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)
    if type.name == "decimal":
        words = np.frombuffer(column.cast(pa.decimal128(38, type.scale)).buffers()[1], dtype=np.int64)
        unscaled = words.reshape(-1, 2)[column.offset : column.offset + len(column), 0]
        return (unscaled if valid is None else np.where(valid, unscaled, 0)), valid
    if type.name == "date":
        column = column.cast(pa.int32())
    column = column.cast(pa.float64() if type == DOUBLE else pa.int64())
    return pc.fill_null(column, 0).to_numpy(zero_copy_only=False), valid
