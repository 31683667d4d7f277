"""Partial aggregates: one pass over a stream fills every synopsis of every tree.

Each task reads its splits itself (:mod:`spark_jobs.sources`) and lifts the events with NumPy and Numba; only files of
partial rows leave it. However many synopses a stream has, an event is lifted once: into *atoms*, the cells of the
union of all their edges, predicates, group columns and states. At the end of the task the cells of each synopsis are
rolled up from the smallest cells that can give them, atoms or those of another synopsis. That pays while there are far
fewer atoms than events. Where measured counts say it does not (filters or group columns that cut the events to
pieces), the synopses are divided into *families* that share less: by group columns, then by predicates, then by edges;
at worst each is lifted alone, which costs what it would without the others.

References: Gray et al., "Data Cube" (1997), and Agarwal et al., "On the computation of multidimensional aggregates"
(VLDB 1996), for the smallest parent; Zhang et al., "Multiple aggregations over data streams" (SIGMOD 2005), for atoms
that nobody asked for (their phantoms).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from optimizer.synopses.synopsis import MOST_PREDICATES
from optimizer.workload.values import Stream
from spark_jobs.arrays.numbering import Longs
from spark_jobs.partials import fill_request
from spark_jobs.partials.cells import Cells
from spark_jobs.partials.families import LiftingGroup, TooFineToShare
from spark_jobs.partials.fill_request import GROUP_LIMIT, FillRequest
from spark_jobs.partials.values import Batch
from spark_jobs.sources.decoding import times_of
from spark_jobs.warehouse.data_files import SynopsisFailure
from spark_jobs.warehouse.schemas import PARTIALS


class Lifting:
    """Lifts the events of one task for many spans of one stream.

    ``group_limit``: most groups of one synopsis. :attr:`failed`: what went beyond it, by fingerprint; the others do not
    suffer. :attr:`inside`: events so far whose time some span covers; :attr:`untimed`: events without a time, which are
    in no cell. Events are looked at when there are enough of them, and when :meth:`cells` is called.
    """

    def __init__(self, stream: Stream, spans: Sequence[FillRequest], group_limit: int = GROUP_LIMIT) -> None:
        self.stream, self.group_limit = stream, group_limit
        self.schema = stream.types
        self.derived = dict(one for span in spans for one in span.synopsis.derived)
        self.inside = self.untimed = 0
        self.failed: dict[str, SynopsisFailure] = {}
        self.waiting: list[pa.RecordBatch] = []
        self.families = _families(spans)

    def add(self, batch: pa.RecordBatch) -> None:
        """Lift a decoded batch: the time column and those of :func:`columns_of_synopsis`, which may be
        dictionary-encoded."""
        if self.waiting and batch.schema != self.waiting[0].schema:
            self._lift_waiting()
        self.waiting.append(batch)
        if sum(part.num_rows for part in self.waiting) >= fill_request.BATCH_ROWS:
            self._lift_waiting()

    @property
    def size(self) -> int:
        """Bytes of the cells so far, about."""
        return sum(block.size for family in self.families for block in family.blocks)

    def tables(self) -> Iterator[pa.Table]:
        """What was lifted since the last call, as rows of :data:`PARTIALS`."""
        for cells in self.cells():
            yield cells.encode()

    def cells(self) -> Iterator[Cells]:
        """The cells of each synopsis since the last call, as they are to be stored; those that failed have none."""
        self._lift_waiting()
        self._check_groups(final=True)
        for family in self.families:
            yield from (cells for cells in family.cells() if len(cells))
            family.forget()

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
        shared = Batch(batch, times, self.schema, self.derived)
        # those that share codes one after the other
        waiting = sorted(self.families, key=lambda family: family.place, reverse=True)
        self.families = []
        while waiting:
            family = waiting.pop()
            try:
                block = family.lift(shared)
            except TooFineToShare:
                waiting += family.divided()[::-1]
                continue
            self.families.append(family)
            if block is not None:
                family.blocks.append(block)
                family.unchecked += block.groups
        self._check_groups()

    def _inside(self, times: Longs) -> Longs | None:
        """The events that some family covers; None: all."""
        inside = np.zeros(len(times), dtype=bool)
        for family in self.families:
            if len(times) and family.begin <= times.min() and times.max() < family.end:
                return None
            inside |= (times >= family.begin) & (times < family.end)
        return np.flatnonzero(inside)

    def _check_groups(self, final: bool = False) -> None:
        limit = self.group_limit
        kept: list[LiftingGroup] = []
        for family in self.families:
            # counting is dear: not for every batch close to the limit
            allowed = limit - family.most if final else max(limit - family.most, limit // 8)
            failed = family.beyond(limit) if family.unchecked > allowed else []
            for span in failed:
                names = ", ".join(name for name, _ in span.synopsis.group_by)
                message = f"more than {limit:,} groups of {names} in one part of stream {self.stream.name}"
                self.failed[span.synopsis.fingerprint] = SynopsisFailure(span.synopsis.fingerprint, "HDL-602", message)
            rest = [span for span in family.spans if span not in failed]
            if rest:
                kept.append(family.narrowed(rest) if failed else family)
        self.families = kept

    @property
    def is_full(self) -> bool:
        """Whether the cells take so much memory that they should be written now."""
        if self.size < fill_request.MEMORY:
            return False
        for family in self.families:
            family.merge()
        return self.size > fill_request.MEMORY // 2


def _families(spans: Sequence[FillRequest]) -> list[LiftingGroup]:
    """As few families as can be: of no more predicates than a signature has bits."""
    found: list[list[FillRequest]] = []
    for span in spans:
        for family in found:
            wanted = {predicate for member in [*family, span] for predicate in member.synopsis.predicates}
            if len(wanted) <= MOST_PREDICATES:
                family.append(span)
                break
        else:
            found.append([span])
    return [LiftingGroup(spans) for spans in found]


# ------------------------------------------------------------------------------------------ whole stages
def partials_of(batches: Iterable[pa.RecordBatch], stream: Stream, spans: Sequence[FillRequest]) -> pa.Table:
    """Partial rows of decoded batches: the whole stage without Spark and files (tests, small sources)."""
    lifting = Lifting(stream, spans)
    for batch in batches:
        lifting.add(batch)
    found = [cells.encode() for cells in lifting.cells()]
    return pa.concat_tables(found) if found else PARTIALS.empty_table()
