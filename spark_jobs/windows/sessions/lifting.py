"""Lifts events into runs: what sessions store.

A run is an event, or several of one group and shard that are at most a gap apart. Each event is lifted as the cell of
its microsecond, and cells are joined to runs (:meth:`spark_jobs.windows.partials.cells.Cells.combined`) before they are
stored. Tasks read splits in any order. What one of them calls a run is never cut by what another one reads: more events
only join runs. So runs are joined again when they are answered, and no order matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from optimizer.synopses.synopsis import Synopsis
from optimizer.workload.values import Stream
from spark_jobs.store.settings import TASK_MEMORY, TaskMemory
from spark_jobs.windows.partials.cells import Cells
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.lifting import Lifting, Write


class SessionLifting(Lifting):
    """Lifts the events of one task for the synopses of sessions of one stream; as
    :class:`spark_jobs.windows.partials.lifting.Lifting`."""

    def __init__(
        self,
        stream: Stream,
        spans: Sequence[FillRequest],
        memory: TaskMemory = TASK_MEMORY,
        write: Write | None = None,
    ) -> None:
        self._filled = {_of_moments(span.filled).fingerprint: span.filled for span in spans}
        of_moments = [
            replace(span, synopsis=_of_moments(span.synopsis), into=span.into and _of_moments(span.into))
            for span in spans
        ]
        super().__init__(stream, of_moments, memory, write)

    def cells(self) -> Iterator[Cells]:
        """The runs of each synopsis since the last call, as they are to be stored."""
        for cells in super().cells():
            yield replace(cells, synopsis=self._filled[cells.synopsis.fingerprint]).to_store()

    def _taken(self) -> Iterator[pa.Table]:
        for family in self.families:
            for cells in family.cells(self.memory.cells):
                if len(cells):
                    yield replace(cells, synopsis=self._filled[cells.synopsis.fingerprint]).to_store().encode()
            family.forget()


def _of_moments(synopsis: Synopsis) -> Synopsis:
    """A synopsis of sessions whose runs are cut at each microsecond."""
    return replace(synopsis, edges=((1, 0),))
