"""Execution of windows of each kind: the one table of a run that distinguishes the kinds.

:mod:`optimizer.workload.window_kinds` defines the kinds. Each kind is one class here, with the verbs of a run:
lift, derive, answer, look up. Windows of rows are numbered between lifting and answering
(:mod:`spark_jobs.pipeline.run.rows_stage`). :mod:`spark_jobs.audit` judges answers; it shares nothing with this
table.

Everything is imported when it is used: the workers that lift events compile no kernels of answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from optimizer.workload.window_kinds import ROWS, SEQUENCE, SESSION, TIME, WindowKind

if TYPE_CHECKING:
    import pyarrow as pa

    from optimizer.synopses.synopsis import Synopsis
    from optimizer.workload.values import ACQ, Stream
    from spark_jobs.store.warehouse.data_files import DataFile
    from spark_jobs.windows.lookups.kernels import Span
    from spark_jobs.windows.lookups.lookups import Lookups
    from spark_jobs.windows.lookups.sequence_lookups import SequenceLookups
    from spark_jobs.windows.partials.synopsis_work import SynopsisWork


class WindowExecution:
    """Execution of windows of one kind; this class executes windows of time."""

    @property
    def lifting(self) -> Callable[..., Any]:
        """The class that lifts the events of a stream, in any order, into partial rows. Of windows of rows it counts
        the events of each day."""
        from spark_jobs.windows.partials.lifting import Lifting

        return Lifting

    @property
    def deriving(self) -> Callable[..., Any]:
        """The class that makes partial rows of those of other synopses."""
        from spark_jobs.windows.partials.derivation import Derivation

        return Derivation

    @property
    def answering(self) -> Callable[..., Any]:
        """The function that makes the tasks of the final stage."""
        from spark_jobs.windows.finals.stage import finals_task

        return finals_task

    def write_gathered(
        self, work: Sequence[SynopsisWork], outcomes: Sequence[Any], root: str, stamp: Mapping[str, pa.Scalar]
    ) -> Iterator[DataFile]:
        """Write the answers that no task of the final stage could write by itself, from the ``outcomes`` of all."""
        from spark_jobs.windows.finals.top import TopRows, write_top

        queries = [(part.synopsis.stream, query) for part in work for query in part.queries]
        return write_top(queries, [outcome for outcome in outcomes if isinstance(outcome, TopRows)], root, stamp)

    def look_up(
        self, query: ACQ, synopsis: Synopsis, rows: pa.Table, spans: list[Span], stream: Stream
    ) -> Lookups | SequenceLookups:
        """Look-ups of a query over the stored partial ``rows`` of some spans. ``stream``: with the versions of its
        dimensions."""
        from spark_jobs.windows.lookups.lookups import Lookups, cells_of

        return Lookups(query, cells_of(query, synopsis, rows, spans, stream), spans)


class RowsExecution(WindowExecution):
    """Windows of rows."""

    @property
    def answering(self) -> Callable[..., Any]:
        from spark_jobs.windows.finals.stage import finals_task
        from spark_jobs.windows.row_windows.answers import row_answers

        return partial(finals_task, answering=row_answers)


class SequenceExecution(WindowExecution):
    """Event sequences in windows of time."""

    @property
    def lifting(self) -> Callable[..., Any]:
        from spark_jobs.windows.sequences.lifting import SequenceLifting

        return SequenceLifting

    @property
    def deriving(self) -> Callable[..., Any]:
        from spark_jobs.windows.sequences.derivation import SequenceDerivation

        return SequenceDerivation

    @property
    def answering(self) -> Callable[..., Any]:
        from spark_jobs.windows.sequences.stage import sequence_task

        return sequence_task

    def write_gathered(
        self, work: Sequence[SynopsisWork], outcomes: Sequence[Any], root: str, stamp: Mapping[str, pa.Scalar]
    ) -> Iterator[DataFile]:
        from spark_jobs.windows.sequences.answers import Rolled
        from spark_jobs.windows.sequences.stage import write_joined

        return write_joined(work, [outcome for outcome in outcomes if isinstance(outcome, Rolled)], root, stamp)

    def look_up(
        self, query: ACQ, synopsis: Synopsis, rows: pa.Table, spans: list[Span], stream: Stream
    ) -> Lookups | SequenceLookups:
        from spark_jobs.windows.lookups.sequence_lookups import SequenceLookups
        from spark_jobs.windows.sequences.encoding import decoded

        return SequenceLookups(query, synopsis, decoded(synopsis, rows), spans)


class SessionExecution(WindowExecution):
    """Sessions."""

    @property
    def lifting(self) -> Callable[..., Any]:
        from spark_jobs.windows.sessions.lifting import SessionLifting

        return SessionLifting

    @property
    def answering(self) -> Callable[..., Any]:
        from spark_jobs.windows.finals.stage import finals_task
        from spark_jobs.windows.sessions.answers import session_answers

        return partial(finals_task, answering=session_answers)


EXECUTIONS: dict[WindowKind, WindowExecution] = {
    TIME: WindowExecution(),
    ROWS: RowsExecution(),
    SEQUENCE: SequenceExecution(),
    SESSION: SessionExecution(),
}
"""Execution of each kind."""
