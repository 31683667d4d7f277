"""Partial aggregates: one pass over a stream fills every synopsis of every tree.

Each task reads its splits itself (:mod:`spark_jobs.streams.sources`) and lifts the events with NumPy and Numba;
only files of partial rows leave it. However many synopses a stream has, an event is lifted once: into *atoms*, the
cells of the union of all their edges, predicates, group columns and states. At the end of the task the cells of
each synopsis are rolled up from the smallest cells that can give them, atoms or those of another synopsis. That
pays while there are far fewer atoms than events. If measured counts show that it does not pay (filters or group
columns that cut the events to pieces), the synopses are divided into *families* that share less: by group columns,
then by predicates, then by edges. At worst each is lifted separately, at the cost that it would have without the
others.

References: Gray et al., "Data Cube" (1997), and Agarwal et al., "On the computation of multidimensional aggregates"
(VLDB 1996), for the smallest parent; Zhang et al., "Multiple aggregations over data streams" (SIGMOD 2005), for
atoms that no query needs (their phantoms).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from optimizer.synopses.synopsis import MOST_PREDICATES
from optimizer.windows.alignment import absorb
from optimizer.workload.attributes import shown_column
from optimizer.workload.values import Stream
from spark_jobs.store.arrays.numbering import Longs
from spark_jobs.store.settings import TASK_MEMORY, TaskMemory
from spark_jobs.store.warehouse.data_files import SynopsisFailure
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.streams.sources.decoding import times_of
from spark_jobs.windows.partials import fill_request
from spark_jobs.windows.partials.cells import Cells
from spark_jobs.windows.partials.families import LiftingGroup, TooFineToShare, TooManyCells
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.values import Batch

Write = Callable[[Iterable[pa.Table]], None]
"""Writes tables of partial rows, each as soon as it is there."""


class Lifting:
    """Lifts the events of one task for many spans of one stream.

    ``write``: takes the cells (as rows of :data:`PARTIALS`) whenever they take more than ``memory`` allows; a
    fragment and group may then have several rows, which the final stage combines, as it does those of different
    tasks. None: all cells stay in memory until :meth:`cells` is called. :attr:`failed`: synopses with too many
    groups, by fingerprint; the others are not affected. :attr:`inside`: events so far whose time some span covers;
    :attr:`untimed`: events without a time, which are in no cell. Events are processed when there are enough of
    them, and when :meth:`cells` is called.
    """

    def __init__(
        self,
        stream: Stream,
        spans: Sequence[FillRequest],
        memory: TaskMemory = TASK_MEMORY,
        write: Write | None = None,
    ) -> None:
        self.stream, self.memory, self.write = stream, memory, write
        self.schema = stream.types
        self.derived = dict(pair for span in spans for pair in span.synopsis.derived)
        self.inside = self.untimed = 0
        self.failed: dict[str, SynopsisFailure] = {}
        self.waiting: list[pa.RecordBatch] = []
        self.families = _families(spans)
        self._is_settled = False
        synopses = [span.synopsis for span in spans]
        self._looked_at = (
            absorb(edge for synopsis in synopses for edge in synopsis.edges),
            tuple(dict.fromkeys(predicate for synopsis in synopses for predicate in synopsis.predicates)),
        )

    def add(self, batch: pa.RecordBatch) -> None:
        """Lift a decoded batch: the time column and those of :func:`columns_of_synopsis`, which may be
        dictionary-encoded."""
        if self.waiting and batch.schema != self.waiting[0].schema:
            self._lift_waiting()
        self.waiting.append(batch)
        if sum(part.num_rows for part in self.waiting) >= fill_request.BATCH_ROWS:
            self._lift_waiting()

    @property
    def slice_rows(self) -> int:
        """Number of events whose cells surely fit, even if each has its own cell."""
        cell = sum(family.cell_bytes + 16 * family.elements for family in self.families)
        return min(fill_request.SLICE_ROWS, max(1, self.memory.cells // (2 * max(cell, 1))))

    @property
    def size(self) -> int:
        """Bytes of the cells so far, about."""
        return sum(block.size for family in self.families for block in family.blocks)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the cells that were lifted since the last call, as rows of :data:`PARTIALS`."""
        self._finish()
        yield from self._taken()

    def cells(self) -> Iterator[Cells]:
        """The cells of each synopsis since the last call, as they are to be stored; those that failed have none."""
        self._finish()
        for family in self.families:
            yield from (cells for cells in family.cells(self.memory.cells) if len(cells))
            family.forget()

    def _finish(self) -> None:
        """Lift what waits, and drop what has too many groups."""
        self._lift_waiting()
        self._check_groups(final=True)

    def _taken(self) -> Iterator[pa.Table]:
        """The rows to store of the blocks so far, which are forgotten."""
        for family in self.families:
            yield from family.tables(self.memory.cells)
            family.forget()

    @property
    def is_full(self) -> bool:
        """Return whether the cells, even after merging, take so much memory that they should be written."""
        if self.size < self.memory.cells:
            return False
        for family in self.families:
            family.merge()
        return self.size > self.memory.cells // 2

    def _make_room(self) -> None:
        if self.write is not None and self.is_full:
            self.write(self._taken())

    def _lift_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        if not waiting:
            return
        batch = waiting[0]
        if len(waiting) > 1:
            table = pa.Table.from_batches(waiting).unify_dictionaries().combine_chunks()
            batch = table.to_batches()[0] if len(table) else batch
        for first in range(0, batch.num_rows, fill_request.SLICE_ROWS):
            self._lift(batch.slice(first, fill_request.SLICE_ROWS))

    def _lift(self, batch: pa.RecordBatch) -> None:
        times, batch, missing = times_of(batch, self.stream)
        self.untimed += missing
        rows = self._inside(times)
        self.inside += len(times) if rows is None else len(rows)
        if rows is not None:
            batch, times = batch.take(pa.array(rows)), times[rows]
        if len(times) == 0:
            return
        shared = Batch(batch, times, self.schema, *self._looked_at, self.derived)
        self._settle(shared)
        # those that share codes one after the other
        waiting = sorted(self.families, key=lambda family: family.place, reverse=True)
        done: list[LiftingGroup] = []
        while waiting:
            family = waiting.pop()
            try:
                self._lift_family(family, shared)
            except TooFineToShare:
                waiting += (parts := family.divided()[::-1])
                self.families = [other for other in self.families if other is not family] + parts
                continue
            done.append(family)
        self.families = done
        self._check_groups()
        self._make_room()

    def _settle(self, batch: Batch) -> None:
        """Divide the families, judged by some of the first events: judging by all of them costs as much as lifting."""
        if self._is_settled or batch.rows <= 2 * fill_request.SAMPLE_ROWS:
            return
        self._is_settled = True
        sample, times = batch.head(fill_request.SAMPLE_ROWS), batch.rows / fill_request.SAMPLE_ROWS
        self.families = [part for family in self.families for part in family.settled(sample, times)]

    def _lift_family(self, family: LiftingGroup, batch: Batch, is_divisible: bool = True) -> None:
        """Lift a batch into a family, in pieces if its cells would take too much memory at once."""
        most = None if self.write is None or batch.rows == 1 else self.memory.cells // 2
        try:
            block = family.lift(batch, most, is_divisible)
        except TooManyCells:
            for half in batch.halves():
                self._lift_family(family, half, is_divisible=False)
                self._make_room()
            return
        if block is not None:
            family.blocks.append(block)
            family.unchecked += block.groups

    def _inside(self, times: Longs) -> Longs | None:
        """The events that some family covers; None: all."""
        inside = np.zeros(len(times), dtype=bool)
        for family in self.families:
            if len(times) and family.begin <= times.min() and times.max() < family.end:
                return None
            inside |= (times >= family.begin) & (times < family.end)
        return np.flatnonzero(inside)

    def _check_groups(self, final: bool = False) -> None:
        families: list[LiftingGroup] = []
        for family in self.families:
            # counting is dear: not for every batch
            is_counted = family.is_limited and (final or family.unchecked > fill_request.GROUP_LIMIT // 8)
            failed = family.beyond() if is_counted else []
            for span in failed:
                names = ", ".join(shown_column(name) for name, _ in span.synopsis.group_by)
                message = f"more than {span.most_groups:,} groups of {names} in one part of stream {self.stream.name}"
                self.failed[span.synopsis.fingerprint] = SynopsisFailure(span.synopsis.fingerprint, "HDL-602", message)
            spans = [span for span in family.spans if span not in failed]
            if spans:
                families.append(family.narrowed(spans) if failed else family)
        self.families = families


def _families(spans: Sequence[FillRequest]) -> list[LiftingGroup]:
    """The smallest number of families with no more predicates each than a signature has bits."""
    families: list[list[FillRequest]] = []
    for span in spans:
        for family in families:
            predicates = {predicate for member in [*family, span] for predicate in member.synopsis.predicates}
            if len(predicates) <= MOST_PREDICATES:
                family.append(span)
                break
        else:
            families.append([span])
    return [LiftingGroup(spans) for spans in families]


# ------------------------------------------------------------------------------------------ whole stages
def partials_of(batches: Iterable[pa.RecordBatch], stream: Stream, spans: Sequence[FillRequest]) -> pa.Table:
    """Partial rows of decoded batches: the complete stage without Spark and files (tests, small sources)."""
    lifting = Lifting(stream, spans)
    for batch in batches:
        lifting.add(batch)
    tables = list(lifting.tables())
    return pa.concat_tables(tables) if tables else PARTIALS.empty_table()
