"""Final aggregates: the answers of each query from the partial rows of its synopsis.

One task takes all partial rows of some buckets of groups and answers every query for them. The queries of one
filter and group-by share cells, so two things are made only once: the cells themselves (:meth:`Cells.projected`),
and, over the cells of some groups at a time, the structures that combine any run of fragments
(:mod:`optimizer.combine.choose`, :mod:`optimizer.combine.wavelet_matrix`). An answer of a query then costs a few
look-ups. Answers are kept in arrays until a row group of the results file is full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.aggregates.states import Lowered, carrier_of
from optimizer.synopses.synopsis import CARRIERS
from optimizer.workload.values import ACQ, DERIVED, Call, Column, Condition, Output
from spark_jobs.results.derived import as_typed, derived
from spark_jobs.results.rows import AnswerRows, CarrierColumn
from spark_jobs.streams.sources.expressions import evaluate
from spark_jobs.windows.finals.top import TopRows, first_of_each, group_codes
from spark_jobs.windows.finals.window_query import OVERFLOW, FragmentRuns, Longs, PartedRuns, WindowedQuery

if TYPE_CHECKING:
    from spark_jobs.windows.finals.views import GroupChunk


@dataclass(eq=False)
class AnswerBatch:
    """Some answers (a,) to a query from one chunk.

    ``failed`` (a,), if any: the answers for which it is unknown whether they qualify; ``errors``: error messages,
    by row.
    """

    windowed: WindowedQuery
    chunk: GroupChunk
    runs: FragmentRuns | PartedRuns
    instants: Longs
    failed: NDArray[np.bool_] | None = None
    errors: dict[int, list[str]] = field(default_factory=dict)
    _lowered: dict[int, Lowered] = field(default_factory=dict)
    _found: dict[tuple[int, int], Any] = field(default_factory=dict)
    _runs: dict[int, tuple[FragmentRuns, Longs | None]] = field(default_factory=dict)

    def _runs_over(self, window: int) -> tuple[FragmentRuns, Longs | None]:
        """The runs under a window that have cells, and which answers these are of; None: of all."""
        if window not in self._runs:
            runs, rows = self.runs.over(window), None
            if self.windowed.query.window.parts and not (is_some := runs.is_some).all():
                rows = np.flatnonzero(is_some)
                runs = runs.where(rows)
            self._runs[window] = runs, rows
        return self._runs[window]

    def lowered(self, number: int) -> Lowered:
        """Return the lowered values of the computation with this number in ``windowed.computed``."""
        if number not in self._lowered:
            output, states, parts = self.windowed.computed[number]
            if parts:
                self._lowered[number] = derived(output, [self.lowered(part) for part in parts])
                return self._lowered[number]
            aggregate, window = AGGREGATES[output.function], output.window
            runs, rows = self._runs_over(window)
            for _, place in states:
                if (place, window) not in self._found:
                    self._found[place, window] = self.chunk.state(place, runs)
            lowered = aggregate.lower({kind: self._found[place, window] for kind, place in states}, output)
            if rows is not None:
                lowered = lowered.among(rows, len(self.instants), aggregate.counts)
            self._lowered[number] = lowered
        return self._lowered[number]

    def qualifying(self) -> tuple[AnswerBatch, Longs]:
        """Select the answers that satisfy HAVING, or for which this is unknown, and which (b,) those are; nothing else
        is computed of the others.
        """
        if not self.windowed.conditions:
            return self, np.arange(len(self.instants))
        compared = [self.lowered(number) for number in self.windowed.conditions]
        rows, failed, errors = qualifying(self.windowed.query, compared, len(self.instants), self.failed)
        for row, messages in self.errors.items():
            # rows whose values are unknown are all among them
            errors[int(np.searchsorted(rows, row))] = messages
        return self._where(rows, failed, errors), rows

    def _where(self, rows: Longs, failed: NDArray[np.bool_] | None, errors: Errors) -> AnswerBatch:
        """Select some answers, with their values computed so far."""
        batch = AnswerBatch(self.windowed, self.chunk, self.runs.where(rows), self.instants[rows], failed, errors)
        for number, lowered in self._lowered.items():
            batch._lowered[number] = lowered.where(rows)
        return batch

    def top(self, stream: str) -> TopRows:
        """Return the answers that may be among the first of their windows, with the values of their order."""
        query = self.windowed.query
        assert query.top is not None
        orders = [self.lowered(number) for number in self.windowed.orders]
        failed = np.zeros(len(self.instants), dtype=bool) if self.failed is None else self.failed.copy()
        errors = {row: list(messages) for row, messages in self.errors.items()}
        for order, lowered in zip(query.top.orders, orders, strict=True):
            if lowered.overflow is not None:
                failed |= lowered.overflow
                _tell(errors, lowered.overflow, f"{OVERFLOW} ORDER BY: {_misfit(order.output, 'it')}")
        used, number = np.unique(self.runs.group, return_inverse=True)
        groups = [codes[number] for codes in group_codes(query, self.chunk.view.keys.take(used + self.chunk.first))]
        typed = [as_typed(lowered, order.output.type) for order, lowered in zip(query.top.orders, orders, strict=True)]
        rows = first_of_each(query.top, self.instants, typed, groups, failed)
        place = {int(row): new for new, row in enumerate(rows.tolist())}
        chosen_errors = {place[row]: messages for row, messages in errors.items() if row in place}
        batch = self._where(rows, failed[rows] if failed.any() else None, chosen_errors)
        table = pa.Table.from_batches([batch.answered(stream).rows()])
        columns = tuple(pa.chunked_array([column.take(pa.array(rows))]) for column in typed)
        return TopRows(query.name, table, columns, failed[rows])

    def answered(self, stream: str) -> AnswerRows:
        """All outputs, on their way into a file."""
        query, group = self.windowed.query, self.runs.group + self.chunk.first
        lowered = [self.lowered(number) for number in self.windowed.outputs]
        carried = carried_by(query, lowered, self.failed, self.errors)
        return AnswerRows(
            stream, query.name, query.window, self.chunk.view.keys, group, self.instants, carried, self.errors
        )


_DTYPES: dict[str, Any] = {"longs": np.int64, "doubles": np.float64, "texts": object}

Errors = dict[int, list[str]]
"""Error messages of answers, by row."""


def qualifying(
    query: ACQ, compared: Sequence[Lowered], answers: int, unknown: NDArray[np.bool_] | None = None
) -> tuple[Longs, NDArray[np.bool_] | None, Errors]:
    """The answers, by row, that satisfy HAVING or of which nobody knows; where, among those, nobody does, and why.

    ``compared``: what each condition compares, over all the ``answers``; ``unknown`` (a,): those of which nobody knows
    for another reason.
    """
    chosen, failed = np.ones(answers, dtype=bool), np.zeros(answers, dtype=bool)
    failed |= False if unknown is None else unknown
    messages: list[tuple[NDArray[np.bool_], str]] = []
    for condition, lowered in zip(query.having, compared, strict=True):
        holds = compares(condition, lowered)
        if lowered.overflow is not None and lowered.overflow.any():
            holds |= lowered.overflow
            failed |= lowered.overflow
            message = f"{OVERFLOW} HAVING: {_misfit(condition.output)}"
            messages.append((lowered.overflow, message))
        chosen &= holds | (False if unknown is None else unknown)
    rows, errors = np.flatnonzero(chosen), Errors()
    for overflow, message in messages:
        _tell(errors, overflow[rows], message)
    return rows, failed[rows] if failed[rows].any() else None, errors


def carried_by(
    query: ACQ, lowered: Sequence[Lowered], failed: NDArray[np.bool_] | None, errors: Errors
) -> dict[str, CarrierColumn]:
    """Collect the outputs of a query over some answers by carrier, null where ``failed``; overflows are added to
    ``errors``.
    """
    columns: dict[str, list[Lowered]] = {carrier: [] for carrier in CARRIERS}
    for output, lowered_output in zip(query.outputs, lowered, strict=True):
        columns[carrier_of(output.type)].append(lowered_output)
        if lowered_output.overflow is not None and lowered_output.overflow.any():
            overflow = lowered_output.overflow if failed is None else lowered_output.overflow & ~failed
            _tell(errors, overflow, f"{OVERFLOW} {_misfit(output)}")
    rows = len(lowered[0].valid)
    return {carrier: _carried(carrier, columns[carrier], rows, failed) for carrier in CARRIERS}


def _misfit(output: Output, name: str = "") -> str:
    """Return the error message for an output that overflowed."""
    if output.function == DERIVED:
        return f"{name or output.name} is made of a value that does not fit its type"
    return f"{name or output.name} does not fit {output.type}"


def _tell(errors: Errors, where: NDArray[np.bool_], error: str) -> None:
    for row in np.flatnonzero(where).tolist():
        errors.setdefault(row, []).append(error)


def _carried(carrier: str, columns: list[Lowered], rows: int, failed: NDArray[np.bool_] | None) -> CarrierColumn:
    values = np.empty((rows, len(columns)), dtype=_DTYPES[carrier])
    valid = np.empty((rows, len(columns)), dtype=bool)
    for at, lowered in enumerate(columns):
        values[:, at], valid[:, at] = lowered.values, lowered.valid
    if failed is not None:
        valid[failed] = False
    return CarrierColumn(values.reshape(-1), None if valid.all() else valid.reshape(-1), len(columns))


def compares(condition: Condition, lowered: Lowered) -> NDArray[np.bool_]:
    """Return where a condition is true, as the language compares: null never is."""
    output = condition.output
    batch = pa.RecordBatch.from_arrays([as_typed(lowered, output.type)], names=["compared"])
    comparison = Call(condition.comparison, (Column("compared"), condition.value))
    satisfied = evaluate(comparison, batch, {"compared": output.type})
    return pc.fill_null(satisfied, False).to_numpy(zero_copy_only=False)
