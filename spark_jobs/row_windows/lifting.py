"""Lifts one day's rows, in order and numbered, into cells of fragments of row numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from optimizer.errors.diagnostics import HeddleError
from optimizer.synopses.synopsis import DAILY, POSITION, Synopsis
from optimizer.windows.alignment import Fragments, Progression, day_label
from optimizer.workload.values import LONG, Stream
from spark_jobs.arrays.numbering import Longs, distinct_rows
from spark_jobs.finals.passes import TOO_LARGE
from spark_jobs.partials.cells import Cells, fragments_of
from spark_jobs.partials.fill_request import GROUP_LIMIT, FillRequest, columns_of_synopsis
from spark_jobs.partials.lifting import Lifting
from spark_jobs.partials.writing import PartialsFiles
from spark_jobs.row_windows.numbering import Counts, Per, Read, RowBlock, RowsTooLarge
from spark_jobs.settings import TASK_MEMORY, TaskMemory
from spark_jobs.sources.decoding import read_split
from spark_jobs.sources.splits import Split
from spark_jobs.warehouse.data_files import DataFile, SynopsisFailure, Task


class RowLifting:
    """Lifts the rows of some days into the cells of synopses that count rows.

    ``counts``: of each ``per`` among the synopses those of all earlier days, and of these. :attr:`inside`: rows that
    were lifted; :attr:`failed`: by fingerprint the synopses of more than ``group_limit`` groups (not counting fragments
    as such), and all of them if the rows of some days take more than ``memory`` allows; those have no cells.
    """

    def __init__(
        self,
        stream: Stream,
        synopses: Sequence[Synopsis],
        counts: Mapping[Per, Counts],
        group_limit: int = GROUP_LIMIT,
        memory: TaskMemory = TASK_MEMORY,
    ) -> None:
        self.stream, self.counts, self.group_limit, self.memory = stream, counts, group_limit, memory
        self.schema = dict(stream.schema)
        self.inside = 0
        self.failed: dict[str, SynopsisFailure] = {}
        self.fingerprints = [synopsis.fingerprint for synopsis in synopses]
        self.families: dict[Per, dict[tuple[Progression, ...], list[Synopsis]]] = {}
        for synopsis in synopses:
            assert synopsis.per is not None
            self.families.setdefault(synopsis.per, {}).setdefault(synopsis.edges, []).append(synopsis)
        self.columns = {column for synopsis in synopses for column in columns_of_synopsis(synopsis)} - {POSITION}
        self.groups = {name for synopsis in synopses for name, _ in synopsis.group_by} - {POSITION}

    def cells(self, read: Read, begin: int, end: int) -> Iterator[Cells]:
        """The cells of the days [begin, end), both midnights, as they are to be stored.

        Raises HDL-408 if there are not as many rows as were counted.
        """
        most = self.memory.bytes // 4
        try:
            block = RowBlock(self.stream, read, self.columns, self.groups, begin, end, most)
        except RowsTooLarge:
            days = f"the rows of stream {self.stream.name} on {day_label(begin)}"
            message = f"{days}, which are numbered at once, take more than {most:,} bytes"
            self.failed |= {one: SynopsisFailure(one, TOO_LARGE, message) for one in self.fingerprints}
            return
        self.inside += len(block)
        for counts in self.counts.values():
            if len(block) != counts.between(begin, end).sum():
                message = f"stream {self.stream.name} changed while its rows were numbered"
                raise HeddleError("HDL-408", message, "run again; write files under another name and rename them")
        if len(block) == 0:
            return
        for per, trees in self.families.items():
            positions = block.positions(self.counts[per], begin, [edge for edges in trees for edge in edges])
            for edges, synopses in trees.items():
                fitting = [synopsis for synopsis in synopses if self._fits(synopsis, block)]
                yield from self._lifted(block, positions, edges, fitting, begin, end)

    def _fits(self, synopsis: Synopsis, block: RowBlock) -> bool:
        names = [name for name, _ in synopsis.group_by if name != POSITION]
        _, _, groups = distinct_rows([block.column(name) for name in names], len(block))
        if groups > self.group_limit:
            message = f"more than {self.group_limit:,} groups of {', '.join(names)} in one part of stream"
            found = SynopsisFailure(synopsis.fingerprint, "HDL-602", f"{message} {self.stream.name}")
            self.failed[synopsis.fingerprint] = found
        return groups <= self.group_limit

    def _lifted(
        self,
        block: RowBlock,
        positions: Longs,
        edges: tuple[Progression, ...],
        synopses: Sequence[Synopsis],
        begin: int,
        end: int,
    ) -> Iterator[Cells]:
        """Cells of synopses with the same fragments: to the lifting a fragment of rows is a group, of each day."""
        starts, _, fragment = fragments_of(Fragments(edges), positions)
        column = pa.DictionaryArray.from_arrays(pa.array(fragment.astype(np.int32)), pa.array(starts))
        rows = block.rows.append_column(POSITION, column).combine_chunks()
        stream = replace(self.stream, schema=(*self.stream.schema, (POSITION, LONG)))
        daily = {synopsis: replace(synopsis, edges=DAILY, per=None) for synopsis in synopses}
        lifting = Lifting(stream, [FillRequest(other, begin, end) for other in daily.values()], self.memory)
        named = {other.fingerprint: synopsis for synopsis, other in daily.items()}
        step = lifting.slice_rows
        for first in range(0, len(rows), step):
            for batch in rows.slice(first, step).to_batches():
                lifting.add(batch)
            if lifting.is_full or first + step >= len(rows):
                for cells in lifting.cells():
                    yield replace(cells, synopsis=named[cells.synopsis.fingerprint])


def rows_task(
    stream: Stream,
    splits: Sequence[Split],
    blocks: Sequence[tuple[int, int]],
    synopses: Sequence[Synopsis],
    counts: Mapping[Per, Counts],
    root: str,
    rows: Any,
    memory: TaskMemory = TASK_MEMORY,
) -> Task:
    """The task that writes the partial rows of the blocks of days whose numbers it is given under ``root``.

    ``blocks``: see :meth:`Counts.blocks`; ``counts``: of all days to the last block's; ``rows``: an accumulator that
    counts the rows. The others, and what the task returns, as of :func:`spark_jobs.run.partials_task.lift_task`.
    """

    def task(numbers: Iterable[int]) -> Iterator[DataFile | SynopsisFailure]:
        lifting = RowLifting(stream, synopses, counts, memory=memory)
        writing = PartialsFiles(root, memory)
        for number in numbers:
            begin, end = blocks[number]
            wanted = [split for split in splits if split.may_hold(begin, end)]
            writing.write(cells.encode() for cells in lifting.cells(_reading(stream, wanted), begin, end))
            yield from writing.taken()
        rows.add(lifting.inside)
        yield from lifting.failed.values()

    return task


def _reading(stream: Stream, splits: Sequence[Split]) -> Read:
    def read(columns: list[str]) -> Iterator[pa.RecordBatch]:
        for split in splits:
            yield from read_split(stream, split, columns)

    return read
