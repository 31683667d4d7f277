"""Lifts one day's rows, in order and numbered, into cells of fragments of row numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError
from optimizer.synopses.synopsis import DAILY, POSITION, Synopsis
from optimizer.windows.alignment import Fragments, Progression, day_label
from optimizer.workload.values import LONG, Stream
from spark_jobs.engine.workers import EVENTS, Count, Task, uncounted
from spark_jobs.store.arrays.numbering import Longs, distinct_rows
from spark_jobs.store.settings import TASK_MEMORY, TaskMemory
from spark_jobs.store.warehouse.data_files import DataFile, SynopsisFailure
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.finals.passes import TOO_LARGE
from spark_jobs.windows.partials.cells import Cells, fragments_of
from spark_jobs.windows.partials.fill_request import GROUP_LIMIT, FillRequest, columns_of_synopsis
from spark_jobs.windows.partials.lifting import Lifting
from spark_jobs.windows.partials.writing import PartialsFiles
from spark_jobs.windows.row_windows.numbering import Counts, Per, Read, RowBlock, RowsTooLarge


class RowLifting:
    """Lifts the rows of some days into the cells of synopses that count rows, as far as they are requested.

    ``counts``: of each ``per`` among the synopses those of all earlier days, and of these. :attr:`inside`: rows that
    were lifted; :attr:`failed`: by fingerprint the synopses of more than ``group_limit`` groups (not counting fragments
    as such), and all of them if the rows of some days take more than ``memory`` allows; those have no cells.
    """

    def __init__(
        self,
        stream: Stream,
        requests: Sequence[FillRequest],
        counts: Mapping[Per, Counts],
        group_limit: int = GROUP_LIMIT,
        memory: TaskMemory = TASK_MEMORY,
    ) -> None:
        self.stream, self.requests, self.counts = stream, requests, counts
        self.group_limit, self.memory = group_limit, memory
        self.inside = 0
        self.failed: dict[str, SynopsisFailure] = {}

    def cells(self, read: Read, begin: int, end: int) -> Iterator[Cells]:
        """The cells of the days [begin, end), both midnights, as they are to be stored.

        Raises HDL-408 if there are not as many rows as were counted.
        """
        most = self.memory.bytes // 4
        requests = requests_within(self.requests, begin, end)
        synopses = [request.synopsis for request in requests]
        columns = {column for synopsis in synopses for column in columns_of_synopsis(synopsis)} - {POSITION}
        groups = {name for synopsis in synopses for name, _ in synopsis.group_by} - {POSITION}
        try:
            block = RowBlock(self.stream, read, columns, groups, begin, end, most)
        except RowsTooLarge:
            days = f"the rows of stream {self.stream.name} on {day_label(begin)}"
            message = f"{days}, which are numbered at once, take more than {most:,} bytes"
            filled = [request.filled.fingerprint for request in requests]
            self.failed |= {fingerprint: SynopsisFailure(fingerprint, TOO_LARGE, message) for fingerprint in filled}
            return
        self.inside += len(block)
        for counts in self.counts.values():
            if len(block) != counts.between(begin, end).sum():
                message = f"stream {self.stream.name} changed while its rows were numbered"
                raise HeddleError("HDL-408", message, "run again; write files under another name and rename them")
        if len(block) == 0:
            return
        families: dict[Per, dict[tuple[Progression, ...], list[FillRequest]]] = {}
        for request in requests:
            assert request.synopsis.per is not None
            families.setdefault(request.synopsis.per, {}).setdefault(request.synopsis.edges, []).append(request)
        for per, trees in families.items():
            positions = block.positions(self.counts[per], begin, [edge for edges in trees for edge in edges])
            for edges, alike in trees.items():
                fitting = [request for request in alike if self._fits(request, block)]
                yield from self._lifted(block, positions, edges, fitting)

    def _fits(self, request: FillRequest, block: RowBlock) -> bool:
        names = [name for name, _ in request.synopsis.group_by if name != POSITION]
        _, _, groups = distinct_rows([block.column(name) for name in names], len(block))
        if groups > self.group_limit:
            message = f"more than {self.group_limit:,} groups of {', '.join(names)} in one part of stream"
            filled = request.filled.fingerprint
            self.failed[filled] = SynopsisFailure(filled, "HDL-602", f"{message} {self.stream.name}")
        return groups <= self.group_limit

    def _lifted(
        self,
        block: RowBlock,
        positions: Longs,
        edges: tuple[Progression, ...],
        requests: Sequence[FillRequest],
    ) -> Iterator[Cells]:
        """Cells of synopses with the same fragments: to the lifting a fragment of rows is a group, of each day."""
        starts, _, fragment = fragments_of(Fragments(edges), positions)
        column = pa.DictionaryArray.from_arrays(pa.array(fragment.astype(np.int32)), pa.array(starts))
        rows = block.rows.append_column(POSITION, column).combine_chunks()
        stream = replace(self.stream, schema=(*self.stream.schema, (POSITION, LONG)))
        filled = {_daily(request.filled).fingerprint: request.filled for request in requests}
        daily = [
            replace(request, synopsis=_daily(request.synopsis), into=request.into and _daily(request.into))
            for request in requests
        ]
        lifting = Lifting(stream, daily, self.memory)
        step = lifting.slice_rows
        for first in range(0, len(rows), step):
            for batch in rows.slice(first, step).to_batches():
                lifting.add(batch)
            if lifting.is_full or first + step >= len(rows):
                for cells in lifting.cells():
                    yield replace(cells, synopsis=filled[cells.synopsis.fingerprint])


def _daily(synopsis: Synopsis) -> Synopsis:
    """A synopsis that counts rows as one of windows of time."""
    return replace(synopsis, edges=DAILY, per=None)


def requests_within(requests: Iterable[FillRequest], begin: int, end: int) -> list[FillRequest]:
    """Restrict requests to [begin, end)."""
    return [
        replace(request, begin=max(begin, request.begin), end=min(end, request.end))
        for request in requests
        if request.begin < end and begin < request.end
    ]


def rows_task(
    stream: Stream,
    splits: Sequence[Split],
    blocks: Sequence[tuple[int, int]],
    requests: Sequence[FillRequest],
    counts: Mapping[Per, Counts],
    root: str,
    memory: TaskMemory = TASK_MEMORY,
) -> Task:
    """The task that writes the partial rows of the blocks of days whose numbers it is given under ``root``.

    ``blocks``: see :meth:`Counts.blocks`; ``counts``: of all days to the last block's. The others, and what the task
    returns, as of :func:`spark_jobs.pipeline.run.partials_task.lift_task`. It counts the ``rows``.
    """

    def task(numbers: Iterable[int], count: Count = uncounted) -> Iterator[DataFile | SynopsisFailure]:
        lifting = RowLifting(stream, requests, counts, memory=memory)
        writing = PartialsFiles(root, memory)
        for number in numbers:
            begin, end = blocks[number]
            block_splits = [split for split in splits if split.may_hold(begin, end)]
            writing.write(cells.encode() for cells in lifting.cells(_reading(stream, block_splits), begin, end))
            yield from writing.taken()
        count(EVENTS, lifting.inside)
        yield from lifting.failed.values()

    return task


def _reading(stream: Stream, splits: Sequence[Split]) -> Read:
    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        for split in splits:
            yield from read_split(stream, split, columns)

    return read
