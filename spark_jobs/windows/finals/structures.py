"""Structures over the states of a view that combine any run of fragments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.exact_doubles import ExactSums
from optimizer.aggregates.ordinals import doubles_of_ordinals
from optimizer.aggregates.sketches import precision_of
from optimizer.aggregates.states import State
from optimizer.combine.choose import combine_pairs
from optimizer.combine.distinct import DistinctCounter
from optimizer.combine.frequent import modes, top_k
from optimizer.combine.hyperloglog import hll_counts
from optimizer.combine.prefix_sums import PrefixSums
from optimizer.combine.sparse_tables import DisjointSparseTable, SparseTable
from optimizer.combine.wavelet_matrix import WaveletMatrix
from spark_jobs.store.arrays.numbering import distinct_of
from spark_jobs.windows.finals.window_query import FragmentRuns, Longs
from spark_jobs.windows.partials.states import Fixed, Multiset, Pairs, Texts

if TYPE_CHECKING:
    from spark_jobs.windows.finals.views import FamilyView


_Combine = Callable[[FragmentRuns], Any]


_TABLES: dict[str, Callable[[NDArray[np.int64], int], PrefixSums | SparseTable | DisjointSparseTable]] = {
    "running totals": PrefixSums,
    "sparse table": SparseTable,
    "disjoint table": DisjointSparseTable,
}
"""Structure that combines the numbers (n, width) of a state, by
:attr:`optimizer.aggregates.state_kinds.StateKind.structure`.
"""


def _numbers(view: FamilyView, state: State, column: Fixed, rows: slice) -> _Combine:
    kind = state.definition
    assert kind.code is not None
    table = _TABLES[kind.structure](column.values[rows], kind.code)
    if column.values.shape[1] > 1:
        return lambda runs: table.combine(runs.low, runs.high)
    return lambda runs: table.combine(runs.low, runs.high)[:, 0]


def _exact_sums(view: FamilyView, state: State, column: ExactSums, rows: slice) -> _Combine:
    table, special = PrefixSums(column.limbs[rows]), column.special[rows]
    marks = special[:, None] >> np.arange(3, dtype=np.uint8) & 1
    marked = PrefixSums(marks.astype(np.int64)) if special.any() else None

    def answer(runs: FragmentRuns) -> ExactSums:
        combined_special = np.zeros(len(runs.low), dtype=np.uint8)
        if marked is not None:
            combined_special = np.packbits(marked.combine(runs.low, runs.high) > 0, axis=1, bitorder="little")[:, 0]
        return ExactSums(table.combine(runs.low, runs.high), column.low, combined_special)

    return answer


def _extreme_texts(view: FamilyView, state: State, column: Texts, rows: slice) -> _Combine:
    kind = state.definition
    assert kind.code is not None
    table = _TABLES[kind.structure](column.ranks[rows, None], kind.code)
    known = view.objects(column.texts)

    def answer(runs: FragmentRuns) -> NDArray[Any]:
        ranks = table.combine(runs.low, runs.high)[:, 0]
        return known[np.where((ranks >= 0) & (ranks < len(known)), ranks, len(known) - 1)]

    return answer


def _pairs(view: FamilyView, state: State, column: Pairs, rows: slice) -> _Combine:
    """Values at the least or greatest order, and whether they are not null; cells without any order are skipped."""
    nonempty = np.flatnonzero(column.present[rows] >= 0)
    before = np.searchsorted(nonempty, np.arange(rows.stop - rows.start + 1)).astype(np.int64)
    cells = nonempty + rows.start
    present, order, value = column.present[cells] > 0, column.order[cells], column.value[cells]
    payload = value
    if not present.all():
        # null is the least of all values
        distinct, number = distinct_of(value)
        payload = np.where(present, number + 1, 0)
    assert state.type is not None
    known = view.objects(column.value_texts) if column.value_texts is not None else None
    floating = state.type.name == "double"

    def answer(runs: FragmentRuns) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        low, high = before[runs.low], before[runs.high]
        some = low < high
        chosen: Any = slice(None) if some.all() else np.flatnonzero(some)
        values, valid = np.zeros(len(low), dtype=np.int64), np.zeros(len(low), dtype=bool)
        if some.any():
            part = FragmentRuns(runs.group, low, high).where(chosen)
            best = combine_pairs(order, payload, state.operation == "greatest_by", *part)
            values[chosen], valid[chosen] = value[best], present[best]
        if known is not None:
            return known[np.where(valid, values, len(known) - 1)], valid
        return (doubles_of_ordinals(values) if floating else values), valid

    return answer


@dataclass(eq=False)
class _Elements:
    """The elements of the multisets of some cells, with the structures over them, each made on first use.

    ``offsets`` (n + 1,) of the cells; ``values`` and ``weights`` (m,); ``shown``: values as lowering takes them.
    """

    state: State
    offsets: Longs
    values: Longs
    weights: Longs
    shown: Callable[[Longs], NDArray[Any]]

    @cached_property
    def wavelet(self) -> WaveletMatrix:
        return WaveletMatrix(self.values, self.weights)

    @cached_property
    def counter(self) -> DistinctCounter:
        return DistinctCounter(self.values)

    @cached_property
    def ranks(self) -> tuple[Longs, Longs]:
        """The distinct values, and the number (m,) of each element among them."""
        return distinct_of(self.values)

    @cached_property
    def totals(self) -> Longs:
        """The weight of all elements before each (m + 1,)."""
        return np.concatenate([[0], np.cumsum(self.weights)])


@dataclass(eq=False)
class _Multisets:
    """The multisets under some answers (:class:`optimizer.aggregates.states.Multisets`): runs of elements."""

    elements: _Elements
    runs: FragmentRuns

    def total(self) -> Longs:
        return self.elements.totals[self.runs.high] - self.elements.totals[self.runs.low]

    def at(self, rank: Longs) -> NDArray[Any]:
        some = np.flatnonzero(self.runs.low < self.runs.high)
        numbers = np.zeros(len(rank), dtype=np.int64)
        if len(some):
            part = self.runs.where(some)
            numbers[some] = self.elements.wavelet.quantile(part.low, part.high, rank[some])
        return self.elements.shown(numbers)

    def distinct(self) -> Longs:
        return self.elements.counter.count(self.runs.low, self.runs.high)

    def mode(self) -> NDArray[Any]:
        values, ranks = self.elements.ranks
        best = modes(ranks, self.elements.weights, *self.runs)
        return self.elements.shown(values[np.maximum(best, 0)] if len(values) else np.zeros_like(best))

    def top(self, k: int) -> tuple[NDArray[Any], Longs]:
        values, ranks = self.elements.ranks
        best, weights = top_k(ranks, self.elements.weights, *self.runs, k)
        best_values = values[np.maximum(best, 0)] if len(values) else np.zeros_like(best)
        return self.elements.shown(best_values.reshape(-1)).reshape(best.shape), weights

    def each(self) -> Iterator[tuple[NDArray[Any], Longs]]:
        elements = self.elements
        for low, high in zip(self.runs.low.tolist(), self.runs.high.tolist(), strict=True):
            distinct, number = distinct_of(elements.values[low:high])
            weights = np.zeros(len(distinct), dtype=np.int64)
            np.add.at(weights, number, elements.weights[low:high])
            yield elements.shown(distinct), weights

    def cardinality(self) -> NDArray[np.float64]:
        assert self.elements.state.error is not None
        precision = precision_of(self.elements.state.error)
        return hll_counts(self.elements.values, self.elements.weights, *self.runs, precision)


def _multisets(view: FamilyView, state: State, column: Multiset, rows: slice) -> _Combine:
    offsets = column.offsets[rows.start : rows.stop + 1]
    part = slice(int(offsets[0]), int(offsets[-1]))
    offsets = offsets - offsets[0]
    assert state.type is not None
    shown: Callable[[Longs], NDArray[Any]] = lambda values: values  # noqa: E731
    if column.texts is not None:
        known = view.objects(column.texts)
        shown = known.__getitem__
    elif state.tail == "doubles":
        shown = doubles_of_ordinals
    elements = _Elements(state, offsets, column.values[part], column.weights[part], shown)
    return lambda runs: _Multisets(elements, FragmentRuns(runs.group, offsets[runs.low], offsets[runs.high]))


STRUCTURES: dict[type, Callable[[FamilyView, State, Any, slice], _Combine]] = {
    Fixed: _numbers,
    ExactSums: _exact_sums,
    Texts: _extreme_texts,
    Pairs: _pairs,
    Multiset: _multisets,
}
