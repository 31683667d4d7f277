"""Lift the events of labelled keys into the cells that features are combined from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from optimizer.synopses.synopsis import Synopsis
from optimizer.workload.values import LONG, Stream
from spark_jobs.engine.workers import EVENTS, Count, Task, uncounted
from spark_jobs.store.arrays.numbering import distinct_rows
from spark_jobs.store.arrays.texts import as_texts, flat, key_texts
from spark_jobs.store.settings import TaskMemory
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.data_files import DataFile, SynopsisFailure
from spark_jobs.streams.sources.decoding import read_each, times_of
from spark_jobs.streams.sources.expressions import evaluate
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.features.labels import KeyFilter
from spark_jobs.windows.features.moments import ARRIVED
from spark_jobs.windows.partials.cells import checksums_of
from spark_jobs.windows.partials.fill_request import FillRequest, columns_of_synopsis
from spark_jobs.windows.partials.lifting import Lifting
from spark_jobs.windows.partials.writing import PartialsFiles

DAY = "features"
"""The one partition of the files: their cells are read by bucket only."""


class LiftedCells(NamedTuple):
    """Cells to lift for the labels of some keys: the synopses, the time [begin, end) of their events (microseconds),
    and the file of the :class:`KeyFilter` of the keys."""

    synopses: tuple[Synopsis, ...]
    begin: int
    end: int
    filter: str


def keys_of(events: pa.RecordBatch, stream: Stream, synopsis: Synopsis) -> tuple[NDArray[np.uint32], NDArray[Any]]:
    """The checksums (k,) of the keys of some events, as :func:`spark_jobs.windows.features.labels.write_labels` has
    them, and the number (n,) of each event's."""
    computed = dict(synopsis.derived)
    columns = [
        evaluate(computed[name], events, stream.types) if name in computed else events.column(name)
        for name in synopsis.bucket_by
    ]
    values, number, count = distinct_rows(columns, events.num_rows)
    count = count if columns else 1
    return checksums_of(key_texts([as_texts(flat(column)) for column in values], count)), number


def lift_labelled(
    stream: Stream,
    splits: Sequence[Split],
    cells: Sequence[LiftedCells],
    root: str,
    memory: TaskMemory,
    arrived: Mapping[str, int] | None = None,
) -> Task:
    """The task that reads the splits with the given numbers and writes cells of the events of labelled keys as files of
    partial rows under ``root``; it yields the files, and the synopses that failed.

    ``arrived``: when each file had arrived, by the identity of its split; None: everything is known.
    """
    names = {name for part in cells for synopsis in part.synopses for name in columns_of_synopsis(synopsis)}
    texts = {name for part in cells for synopsis in part.synopses for name, _ in synopsis.group_by}
    columns = sorted(names - {ARRIVED})
    schema = stream if arrived is None else replace(stream, schema=(*stream.schema, (ARRIVED, LONG)))

    def task(numbers: Iterable[int], count: Count = uncounted) -> Iterator[DataFile | SynopsisFailure]:
        filters = [KeyFilter.read(Place.of(part.filter)) for part in cells]
        writing = PartialsFiles(root, memory)

        def write(tables: Iterable[pa.Table]) -> None:
            writing.write(table.set_column(0, "day", pa.array([DAY] * len(table), pa.string())) for table in tables)

        share = TaskMemory(memory.bytes // len(cells))
        liftings = [
            Lifting(schema, [FillRequest(synopsis, part.begin, part.end) for synopsis in part.synopses], share, write)
            for part in cells
        ]
        for split, batch in read_each(stream, (splits[number] for number in numbers), columns, texts):
            times, events, _ = times_of(batch, stream)
            for part, known, lifting in zip(cells, filters, liftings, strict=True):
                is_inside = (times >= part.begin) & (times < part.end)
                inside = events if is_inside.all() else events.filter(pa.array(is_inside))
                if inside.num_rows == 0:
                    continue
                checksums, number = keys_of(inside, stream, part.synopses[0])
                is_known = known.has(checksums)[number]
                labelled = inside if is_known.all() else inside.filter(pa.array(is_known))
                count(EVENTS, labelled.num_rows)
                if arrived is not None:
                    moment = pa.array(np.full(labelled.num_rows, arrived[split.identity]))
                    labelled = labelled.append_column(ARRIVED, moment)
                if labelled.num_rows:
                    lifting.add(labelled)
            yield from writing.taken()
        for lifting in liftings:
            write(lifting.tables())
            yield from writing.taken()
            yield from lifting.failed.values()

    return task
