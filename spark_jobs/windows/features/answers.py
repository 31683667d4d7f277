"""Features of labels from cells: two searches for each window, then the structures of the final stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.aggregates.state_kinds import MAX
from optimizer.aggregates.states import Lowered, carrier_of
from optimizer.combine.kernel_stamps import stamp_kernels
from optimizer.combine.sparse_tables import SparseTable
from optimizer.workload.values import ACQ, Output, Stream
from spark_jobs.results.derived import as_typed, derived
from spark_jobs.store.arrays.numbering import distinct_rows
from spark_jobs.windows.features.moments import ARRIVED, Longs, MomentRule
from spark_jobs.windows.finals.answers import AnswerBatch, compares
from spark_jobs.windows.finals.views import FamilyView, GroupChunk
from spark_jobs.windows.finals.window_query import FragmentRuns, PartedRuns, WindowedQuery, seek
from spark_jobs.windows.partials.cells import Cells

GATHERED = 1 << 20
"""Cells of labels that know some of their events only, which are gathered at once."""

NOWHERE = -(1 << 63)
"""Start of a cell that no window has."""

UNKNOWN = -1
"""The number of the group of a label whose key has no events."""

Mask = NDArray[np.bool_]


class FeatureValues(NamedTuple):
    """Features of a query for some labels: the ``columns`` of its outputs in their types, and the number of values
    that ``overflow`` their types, which are null."""

    columns: list[pa.Array]
    overflows: int


@numba.njit(cache=True)
def runs_of_spans(starts, offsets, groups, begins, ends, low, high):
    """The cells [low, high) of each label's group that start in [begin, end); none of group -1.

    starts: (n,) of cells, ascending within a group; offsets: (g + 1,) of the groups.
    """
    for i in range(len(groups)):
        low[i] = high[i] = 0
        if groups[i] >= 0:
            first, last = offsets[groups[i]], offsets[groups[i] + 1]
            low[i] = seek(starts, first, last, begins[i])
            high[i] = seek(starts, low[i], last, ends[i])


@numba.njit(cache=True)
def cut_at_bounds(starts, key, offsets, bounds, out):
    """The newest bound of each cell's key that is not after its start; :data:`NOWHERE` before the first and from the
    last on, and for keys below 0.

    starts, key: (n,) of cells; bounds of key k: from offsets[k] to offsets[k + 1], ascending.
    """
    for i in range(len(starts)):
        out[i] = NOWHERE
        if key[i] >= 0:
            first, last = offsets[key[i]], offsets[key[i] + 1]
            at = seek(bounds, first, last, starts[i] + 1)
            if first < at < last:
                out[i] = bounds[at - 1]


@numba.njit(cache=True)
def trim_unknown(arrived, low, high, moments):
    """Shorten runs [low, high) by the cells at their ends that had not arrived at the label's moment, in place."""
    for i in range(len(low)):
        while high[i] > low[i] and arrived[high[i] - 1] > moments[i]:
            high[i] -= 1


@numba.njit(cache=True)
def known_cells(arrived, low, high, moments, counts, rows):
    """Count the cells of each run [low, high) that had arrived at the label's moment; with room for them list them, by
    label."""
    at = 0
    for i in range(len(low)):
        known = 0
        for cell in range(low[i], high[i]):
            if arrived[cell] <= moments[i]:
                if len(rows):
                    rows[at] = cell
                    at += 1
                known += 1
        counts[i] = known


class LabelWindows(NamedTuple):
    """Distinct labels of one query (n,), by group and moment: the number of the group among the cells', the instant,
    the moment, and the windows [start, end) of each part of the query's window."""

    group: Longs
    instants: Longs
    moments: Longs
    spans: Sequence[tuple[Longs, Longs]]

    def where(self, chosen: Any) -> LabelWindows:
        """Select some labels."""
        spans = [(starts[chosen], ends[chosen]) for starts, ends in self.spans]
        return LabelWindows(self.group[chosen], self.instants[chosen], self.moments[chosen], spans)


class FeatureCells:
    """The cells of one query by group and start, and when they had ``arrived`` (n,); None: all are known.

    ``keys``: (g,) of the groups, for each group column the values as texts.
    """

    def __init__(self, query: ACQ, cells: Cells) -> None:
        """``cells``: of the query's own filter and group columns, and :data:`ARRIVED` behind these."""
        self.query, self.arrived = query, None
        self._latest: SparseTable | None = None
        if cells.synopsis.group_by[len(query.group_by) :]:
            cells = self._known_by_arrival(cells)
        self.cells = cells
        self.keys = cells.key_columns
        self._view = FamilyView(cells)
        self._windowed = WindowedQuery.of(query, cells.synopsis, 0, 0)

    def _known_by_arrival(self, cells: Cells) -> Cells:
        names = [name for name, _ in cells.synopsis.group_by]
        at = names.index(ARRIVED)
        arrived = cells.key_columns[at].cast(pa.int64()).to_numpy()[cells.group]
        columns, number, count = distinct_rows([*cells.key_columns[:at], *cells.key_columns[at + 1 :]], cells.groups)
        count = count if columns else 1
        group = number.astype(np.int64)[cells.group]
        order = np.lexsort((arrived, cells.starts, group))
        self.arrived = arrived[order]
        synopsis = replace(cells.synopsis, group_by=self.query.group_by)
        known = replace(cells, synopsis=synopsis, group=group, groups=count, key_columns=columns)
        return known.take(order)

    def features(self, labels: LabelWindows) -> FeatureValues:
        """The features of labels, ordered by group and moment.

        A label without events in its windows has 0 for counts, null for all else, and what expressions make of these.
        One whose answer fails HAVING has nulls alone.
        """
        runs = self._runs(labels)
        if self.arrived is None:
            return _typed(self.query, self._lowered(labels, runs))
        hull = _hull(runs)
        runs, is_run = self._known_runs(runs, labels.moments)
        values, places = [self._lowered(labels.where(is_run), runs.where(is_run))], [np.flatnonzero(is_run)]
        counts, none = np.zeros(len(labels.group), dtype=np.int64), np.empty(0, dtype=np.int64)
        partly = np.flatnonzero(~is_run)
        if len(partly):
            some_counts = np.zeros(len(partly), dtype=np.int64)
            some = hull.where(partly)
            known_cells(self.arrived, some.low, some.high, labels.moments[partly], some_counts, none)
            counts[partly] = some_counts
        for some_labels in _pieces(partly, counts):
            values.append(self._of_known(labels.where(some_labels), hull.where(some_labels), counts[some_labels]))
            places.append(some_labels)
        order = np.argsort(np.concatenate(places), kind="stable")
        return _typed(self.query, [_together(each, order) for each in zip(*values, strict=True)])

    def _known_runs(self, runs: FragmentRuns | PartedRuns, moments: Longs) -> tuple[FragmentRuns | PartedRuns, Mask]:
        """The runs without the cells at their ends that had not arrived at the labels' moments, and mask (n,) of the
        labels that know all others: files arrive in the order of time, as a rule."""
        assert self.arrived is not None
        is_run, parts = np.ones(len(moments), dtype=bool), []
        for part in runs.parts if isinstance(runs, PartedRuns) else [runs]:
            high = part.high.copy()
            trim_unknown(self.arrived, part.low, high, moments)
            some = np.flatnonzero(part.low < high)
            if len(some):
                self._latest = self._latest or SparseTable(self.arrived[:, None], MAX)
                newest = self._latest.combine(part.low[some], high[some])[:, 0]
                is_run[some[newest > moments[some]]] = False
            parts.append(FragmentRuns(part.group, part.low, high))
        return PartedRuns.together(parts) if self.query.window.parts else parts[0], is_run

    def _of_known(self, labels: LabelWindows, hull: FragmentRuns, counts: Longs) -> list[Lowered]:
        """The features of labels that know some of the cells of their windows only: of each label these are gathered as
        a group of its own."""
        rows = np.empty(int(counts.sum()), dtype=np.int64)
        if len(rows):
            assert self.arrived is not None
            known_cells(self.arrived, hull.low, hull.high, labels.moments, np.empty_like(counts), rows)
        synopsis = replace(self.cells.synopsis, group_by=(), bucket_by=(), derived=())
        gathered = replace(
            self.cells.take(rows),
            synopsis=synopsis,
            group=np.repeat(np.arange(len(counts)), counts),
            groups=len(counts),
            key_columns=(),
        )
        own = FeatureCells(self.query, gathered)
        of_each = labels._replace(group=np.arange(len(counts)))
        return own._lowered(of_each, own._runs(of_each))

    def _runs(self, labels: LabelWindows) -> FragmentRuns | PartedRuns:
        runs = []
        for starts, ends in labels.spans:
            low, high = np.empty_like(labels.group), np.empty_like(labels.group)
            runs_of_spans(self.cells.starts, self._view.offsets, labels.group, starts, ends, low, high)
            runs.append(FragmentRuns(labels.group, low, high))
        return PartedRuns.together(runs) if self.query.window.parts else runs[0]

    def _lowered(self, labels: LabelWindows, runs: FragmentRuns | PartedRuns) -> list[Lowered]:
        """The outputs over all labels, of the cells in their runs."""
        some = np.flatnonzero(runs.is_some)
        parts: list[list[Lowered]] = []
        chosen = runs.where(some)
        for chunk in self._view.chunks():
            first, last = np.searchsorted(chosen.group, (chunk.first, chunk.first + chunk.groups))
            for at in range(int(first), int(last), self._windowed.block):
                inside = slice(at, min(at + self._windowed.block, int(last)))
                parts.append(self._answers(chunk, chosen.where(inside), labels.instants[some[inside]]))
        outputs = self._windowed.query.outputs
        nothing = _of_nothing(self._windowed)
        lowered = []
        for number, output in enumerate(outputs):
            lowered.append(_spread(output, nothing[number], len(labels.group), some, [part[number] for part in parts]))
        return lowered

    def _answers(self, chunk: GroupChunk, runs: FragmentRuns | PartedRuns, instants: Longs) -> list[Lowered]:
        """The outputs of some labels of one chunk, all of which have cells."""
        windowed, cells = self._windowed, chunk.rows.start

        def moved(part: FragmentRuns) -> FragmentRuns:
            # of a window without cells nothing is read
            low, high = part.low - cells, part.high - cells
            is_some = part.is_some
            return FragmentRuns(part.group - chunk.first, np.where(is_some, low, 0), np.where(is_some, high, 0))

        if isinstance(runs, PartedRuns):
            runs = PartedRuns(moved(runs.first), tuple(moved(part) for part in runs.parts))
        else:
            runs = moved(runs)
        batch = AnswerBatch(windowed, chunk, runs, instants)
        qualifies: Mask | None = None
        for condition, number in zip(windowed.query.having, windowed.conditions, strict=True):
            holds = compares(condition, batch.lowered(number))
            qualifies = holds if qualifies is None else qualifies & holds
        lowered = [batch.lowered(number) for number in windowed.outputs]
        return lowered if qualifies is None else [_only(each, qualifies) for each in lowered]


def _only(lowered: Lowered, qualifies: Mask) -> Lowered:
    over = None if lowered.overflow is None else lowered.overflow & qualifies
    return Lowered(lowered.values, lowered.valid & qualifies, over)


def _pieces(labels: Longs, counts: Longs) -> Iterator[Longs]:
    """Labels, some at a time, so that their cells can be gathered."""
    piece = np.cumsum(counts[labels]) // GATHERED
    for at in np.unique(piece).tolist():
        yield labels[piece == at]


def _hull(runs: FragmentRuns | PartedRuns) -> FragmentRuns:
    """The cells from the first to the last under any window of each label."""
    if isinstance(runs, FragmentRuns):
        return runs
    low, high = runs.first.low.copy(), runs.first.high.copy()
    for part in runs.parts:
        is_some = part.is_some
        low = np.where(is_some, np.minimum(low, part.low), low)
        high = np.where(is_some, np.maximum(high, part.high), high)
    return FragmentRuns(runs.group, low, high)


def _of_nothing(windowed: WindowedQuery) -> list[Lowered]:
    """The outputs of a label without events (1,)."""
    values: list[Lowered] = []
    none = np.empty(0, dtype=np.int64)
    for output, _, parts in windowed.computed:
        if parts:
            values.append(derived(output, [values[part] for part in parts]))
            continue
        empty = Lowered(_zeros(output, 0), np.empty(0, dtype=bool))
        values.append(empty.among(none, 1, AGGREGATES[output.function].counts))
    return [values[number] for number in windowed.outputs]


_DTYPES: Mapping[str, Any] = {"longs": np.int64, "doubles": np.float64, "texts": object}


def _zeros(output: Output, rows: int) -> NDArray[Any]:
    return np.zeros(rows, dtype=_DTYPES[carrier_of(output.type)])


def _spread(output: Output, nothing: Lowered, labels: int, some: Longs, parts: Sequence[Lowered]) -> Lowered:
    """An output over all labels: of ``some`` of them from ``parts``, of the others that of nothing."""
    values = np.repeat(np.asarray(nothing.values).astype(_zeros(output, 0).dtype, copy=False), labels)
    valid, overflow = np.repeat(nothing.valid, labels), np.zeros(labels, dtype=bool)
    if parts:
        values[some] = np.concatenate([part.values for part in parts])
        valid[some] = np.concatenate([part.valid for part in parts])
        none = [np.zeros(len(part.valid), dtype=bool) if part.overflow is None else part.overflow for part in parts]
        overflow[some] = np.concatenate(none)
    return Lowered(values, valid, overflow)


def _together(parts: Sequence[Lowered], order: Longs) -> Lowered:
    columns = ([getattr(part, name) for part in parts] for name in ("values", "valid", "overflow"))
    return Lowered(*(np.concatenate(each)[order] for each in columns))


def _typed(query: ACQ, lowered: Sequence[Lowered]) -> FeatureValues:
    columns = [as_typed(each, output.type) for each, output in zip(lowered, query.outputs, strict=True)]
    return FeatureValues(columns, sum(int(np.sum(each.overflow)) for each in lowered if each.overflow is not None))


def features_of(
    query: ACQ, stream: Stream, rule: MomentRule, cells: FeatureCells, labels: pa.Table
) -> tuple[list[pa.Array], pa.Array, int]:
    """The features of a query for labels as :func:`spark_jobs.windows.features.labels.read_labels` has them, in their
    order: the outputs, the instants up to which events count, and the number of values that overflow."""
    moments = labels["moment"].to_numpy()
    instants = rule.instants(query, stream, moments)
    group = _groups_of(query, cells, labels)
    judged = moments if rule.knows_then else instants
    order = np.lexsort((judged, group))
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (np.diff(group[order]) != 0) | (np.diff(judged[order]) != 0)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(is_first) - 1
    chosen = order[is_first]
    distinct = LabelWindows(group[chosen], instants[chosen], moments[chosen], rule.spans(query, instants[chosen]))
    values = cells.features(distinct)
    places = pa.array(number)
    upto = pa.array(instants).cast(pa.timestamp("us", "UTC"))
    return [column.take(places) for column in values.columns], upto, values.overflows


def _groups_of(query: ACQ, cells: FeatureCells, labels: pa.Table) -> Longs:
    """The number of each label's group among those of the cells."""
    names = [name for name, _ in query.group_by]
    if not names:
        return np.full(len(labels), 0 if cells.cells.groups else UNKNOWN, dtype=np.int64)
    known = cells.cells.groups
    together = [
        pa.concat_arrays([cells.keys[at].cast(pa.string()), labels[name].combine_chunks()])
        for at, name in enumerate(names)
    ]
    _, number, count = distinct_rows(together, known + len(labels))
    group_of = np.full(count, UNKNOWN, dtype=np.int64)
    group_of[number[:known]] = np.arange(known)
    return group_of[number[known:]]


stamp_kernels(globals())
