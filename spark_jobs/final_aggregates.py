"""Final aggregates: the answers of each query from the partial rows of its synopsis.

One task takes all partial rows of some buckets of groups and answers every query for them. The queries of one filter
and group-by see the same cells, so what they need is made once: the cells themselves (:meth:`Cells.projected`), and
over the cells of some groups at a time the structures that combine any run of fragments
(:mod:`optimizer.intervals`, :mod:`optimizer.quantiles`). A query then costs what its answers cost: a few look-ups each.
Answers are kept in arrays until a row group of the results file is full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates import AGGREGATES, Lowered, State, carrier_of, doubles_of_ordinals, precision_of
from optimizer.intervals import (
    ADD_DOUBLE,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    MAX,
    MIN,
    DisjointSparseTable,
    PrefixSums,
    SparseTable,
    combine_pairs,
    combine_runs,
)
from optimizer.quantiles import DistinctCounter, WaveletMatrix, hll_counts, modes, top_k
from optimizer.query import ACQ, Call, Column, Condition, Output
from optimizer.synopsis import CARRIERS, Synopsis, families_of
from optimizer.window import DAY, day_label, instants
from spark_jobs.cells import Cells, Fixed, Multiset, Pairs, Texts, distinct_of
from spark_jobs.expressions import evaluate
from spark_jobs.files import DataFile, Task, read_buckets
from spark_jobs.partial_aggregates import by_fingerprint
from spark_jobs.results import ANSWERS, RESULTS, Answered, Carried, ResultsFiles, places, typed

__all__ = ["ANSWERS", "COUNTED", "OVERFLOW", "RESULTS", "Count", "Part", "finals_of", "finals_task", "places"]

OVERFLOW = "HDL-601"
"""Code of an answer that does not fit its type; its output is null and the row says which. Where it is what HAVING
compares that does not fit, nobody knows whether the answer qualifies: the row is there, says so, and is null
throughout."""

BLOCK = 1 << 16
"""Answers that are computed at once: their arrays fit the processor's caches."""

CHUNK, CHUNK_ELEMENTS = 1 << 17, 1 << 20
"""Cells, and elements of a multiset, over which structures are built at once (whole groups: one group may have
more)."""

MANY = 10
"""So many queries of a family that sum the same doubles are worth a table over all fragments (measured: to build one
costs as much as ten passes by two stacks)."""

Longs = NDArray[np.int64]

Count = Callable[[str, int], None]
"""Told how much of a feature (:data:`spark_jobs.statistics.FEATURES`) some work had."""


COUNTED = ("partial_rows_read", "rows_passed", "fragments_combined")
"""The features that final tasks tell."""


def uncounted(feature: str, amount: int) -> None:
    pass


# --------------------------------------------------------------------------------------- which answers exist
@numba.njit(cache=True, inline="always")
def _seek(slots, begin, end, bound):
    """The first position in [begin, end) whose slot is not below the bound; by steps that double, then by halves."""
    step = 1
    while begin + step <= end and slots[begin + step - 1] < bound:
        begin += step
        step *= 2
    end = min(end, begin + step - 1)
    while begin < end:
        middle = (begin + end) >> 1
        if slots[middle] < bound:
            begin = middle + 1
        else:
            end = middle
    return begin


@numba.njit(cache=True)
def _covered(slots, offsets, fragments, first_group, last_group, window_low, window_high, group, window, low, high):
    """The run of cells under each window that holds any, by group and window; how many there are.

    slots: (n,) number of each cell's fragment among all ``fragments``, ascending within a group; offsets: (g + 1,) of
    the groups; window_low, window_high: (w,) fragments of each window, ascending.
    """
    count = 0
    for g in range(first_group, last_group):
        begin, end = offsets[g], offsets[g + 1]
        # most groups have a cell in every fragment
        whole = end - begin == fragments
        first = last = begin
        for w in range(len(window_low)):
            if whole:
                first, last = begin + window_low[w], begin + window_high[w]
            else:
                first = _seek(slots, first, end, window_low[w])
                last = _seek(slots, max(first, last), end, window_high[w])
            if first < last:
                group[count], window[count], low[count], high[count] = g, w, first, last
                count += 1
    return count


class Runs(NamedTuple):
    """Some answers (a,): the group of each, and the run [low, high) of cells under it."""

    group: Longs
    low: Longs
    high: Longs

    def where(self, chosen: Any) -> Runs:
        return Runs(self.group[chosen], self.low[chosen], self.high[chosen])


class _Computed(NamedTuple):
    """One value to compute for each answer: an output, whatever its name, from states (kind, place in the synopsis)."""

    output: Output
    states: tuple[tuple[str, int], ...]


@dataclass(frozen=True, eq=False)
class Asked:
    """A query with what depends on neither groups nor buckets.

    ``instants`` (w,): those it has to answer; ``days``: label and range of instants of each day; ``block``: answers to
    compute at once; ``computed``: what its outputs and conditions need, each once; ``outputs``, ``conditions``: which
    of it they are.
    """

    query: ACQ
    instants: Longs
    days: tuple[tuple[str, int, int], ...]
    block: int
    computed: tuple[_Computed, ...]
    outputs: tuple[int, ...]
    conditions: tuple[int, ...]

    @classmethod
    def of(cls, query: ACQ, synopsis: Synopsis, begin: int, end: int) -> Asked:
        found = instants(query.window, begin, end)
        days, number = distinct_of((found - 1) // DAY) if len(found) else (found, found)
        cuts = np.searchsorted(number, np.arange(len(days) + 1))
        labelled = [(day_label(day * DAY), int(cuts[at]), int(cuts[at + 1])) for at, day in enumerate(days.tolist())]
        most = max((int(output.parameter or 1) for output in query.computed if output.function == "top_k"), default=1)
        numbers: dict[Output, int] = {}
        named = [numbers.setdefault(replace(output, name=""), len(numbers)) for output in query.computed]
        computed = []
        for output in numbers:
            states = AGGREGATES[output.function].states(output)
            computed.append(_Computed(output, tuple((state.kind, synopsis.states.index(state)) for state in states)))
        outputs, conditions = tuple(named[: len(query.outputs)]), tuple(named[len(query.outputs) :])
        return cls(query, found, tuple(labelled), max(1, BLOCK // most), tuple(computed), outputs, conditions)


# ------------------------------------------------------------------------------------ states under answers
class View:
    """The cells of one family, one a (group, fragment), and what its queries share.

    ``offsets`` (g + 1,): the groups' cells; ``grid`` (f,): the distinct fragments, ``slots`` (n,) each cell's number
    among them; ``states``: with their columns, in the synopsis's order; ``wanted``: how many queries need each.
    """

    def __init__(self, cells: Cells, asked: Sequence[Asked]) -> None:
        self.cells = cells
        self.states = [(state, cells.states[state]) for state in cells.synopsis.states]
        self.keys = cells.key_texts
        self.grid, self.slots = distinct_of(cells.starts)
        self.offsets = np.searchsorted(cells.group, np.arange(cells.groups + 1)).astype(np.int64)
        self.wanted = Counter(
            place for one in asked for place in {place for found in one.computed for _, place in found.states}
        )
        self.texts: dict[int, NDArray[Any]] = {}
        self._windows: dict[str, tuple[Longs, Longs]] = {}

    def windows(self, asked: Asked) -> tuple[Longs, Longs]:
        """The fragments [low, high) of the grid under each of a query's windows (w,)."""
        name = asked.query.name
        if name not in self._windows:
            window = asked.query.window
            ends = asked.instants - window.ago
            self._windows[name] = (
                np.searchsorted(self.grid, ends - window.range),
                np.searchsorted(self.grid, ends),
            )
        return self._windows[name]

    def objects(self, texts: pa.StringArray) -> NDArray[Any]:
        """Texts as objects, with None behind them."""
        if id(texts) not in self.texts:
            self.texts[id(texts)] = np.array([*texts.to_pylist(), None], dtype=object)
        return self.texts[id(texts)]

    def chunks(self) -> Iterator[Chunk]:
        """Groups cut so that the structures over each piece stay in bounds."""
        bounds = [(self.offsets, CHUNK)]
        for column in self.cells.states.values():
            if isinstance(column, Multiset):
                bounds.append((column.offsets[self.offsets], CHUNK_ELEMENTS))
        first = 0
        while first < self.cells.groups:
            ends = [np.searchsorted(before, before[first] + most, side="right") - 1 for before, most in bounds]
            last = max(first + 1, int(min(ends)))
            yield Chunk(self, first, last)
            first = last


class Chunk:
    """Some groups of a view, with the structures over their cells, each made when it is first asked for.

    Runs count cells from the chunk's first.
    """

    def __init__(self, view: View, first: int, last: int) -> None:
        self.view = view
        self.first, self.groups = first, last - first
        self.rows = slice(int(view.offsets[first]), int(view.offsets[last]))
        self.offsets = view.offsets[first : last + 1] - self.rows.start
        self.slots = view.slots[self.rows]
        self._known: dict[int, Callable[[Runs], Any]] = {}

    def state(self, place: int, runs: Runs) -> Any:
        """A state under each answer, as :meth:`optimizer.aggregates.Aggregate.lower` takes it."""
        if place not in self._known:
            state, column = self.view.states[place]
            many = self.view.wanted[place] >= MANY
            self._known[place] = _STRUCTURES[type(column)](self.view, state, column, self.rows, many)
        return self._known[place](runs)

    def answers(self, asked: Asked, first: int, last: int) -> Iterator[Answers]:
        """The answers of a query for its instants [first, last), by group and instant, some at a time."""
        window_low, window_high = (bounds[first:last] for bounds in self.view.windows(asked))
        there = np.flatnonzero(window_low < window_high)
        window_low, window_high, times = window_low[there], window_high[there], asked.instants[first:last][there]
        if len(there) == 0:
            return
        groups = max(1, asked.block // len(there))
        space = [np.empty(min(groups * len(there), asked.block), dtype=np.int64) for _ in range(4)]
        for group in range(0, self.groups, groups):
            for window in range(0, len(there), asked.block):
                part = slice(window, window + asked.block)
                count = _covered(
                    self.slots,
                    self.offsets,
                    len(self.view.grid),
                    group,
                    min(group + groups, self.groups),
                    window_low[part],
                    window_high[part],
                    *space,
                )
                numbers, windows, low, high = (column[:count] for column in space)
                if count:
                    found = Answers(asked, self, Runs(numbers, low, high), times[part][windows])
                    found = found.qualifying()
                    if len(found.instants):
                        yield found


_Combine = Callable[[Runs], Any]


def _sums(view: View, state: State, column: Fixed, rows: slice, many: bool) -> _Combine:
    table = PrefixSums(column.values[rows])
    if column.values.shape[1] > 1:
        return lambda runs: table.combine(runs.low, runs.high)
    return lambda runs: table.combine(runs.low, runs.high)[:, 0]


def _double_sums(view: View, state: State, column: Fixed, rows: slice, many: bool) -> _Combine:
    values = column.values[rows]
    if not many:
        return lambda runs: combine_runs(values, ADD_DOUBLE, *runs)
    table = DisjointSparseTable(values, ADD_DOUBLE)
    return lambda runs: table.combine(runs.low, runs.high)


def _parities(view: View, state: State, column: Fixed, rows: slice, many: bool) -> _Combine:
    table = PrefixSums(column.values[rows], BIT_XOR)
    return lambda runs: table.combine(runs.low, runs.high)[:, 0]


_IDEMPOTENT = {"min": MIN, "max": MAX, "bit_and": BIT_AND, "bit_or": BIT_OR}


def _extremes(view: View, state: State, column: Fixed, rows: slice, many: bool) -> _Combine:
    table = SparseTable(column.values[rows], _IDEMPOTENT[state.operation])
    return lambda runs: table.combine(runs.low, runs.high)[:, 0]


def _extreme_texts(view: View, state: State, column: Texts, rows: slice, many: bool) -> _Combine:
    table = SparseTable(column.ranks[rows, None], _IDEMPOTENT[state.operation])
    known = view.objects(column.texts)

    def answer(runs: Runs) -> NDArray[Any]:
        ranks = table.combine(runs.low, runs.high)[:, 0]
        return known[np.where((ranks >= 0) & (ranks < len(known)), ranks, len(known) - 1)]

    return answer


_FIXED: dict[str, Callable[[View, State, Fixed, slice, bool], _Combine]] = {
    "add": _sums,
    "add_double": _double_sums,
    "bit_xor": _parities,
    **dict.fromkeys(_IDEMPOTENT, _extremes),
}


def _fixed(view: View, state: State, column: Fixed, rows: slice, many: bool) -> _Combine:
    return _FIXED[state.operation](view, state, column, rows, many)


def _pairs(view: View, state: State, column: Pairs, rows: slice, many: bool) -> _Combine:
    """Values beside the least or greatest order, and whether they are not null; cells without any order are passed."""
    there = np.flatnonzero(column.present[rows] >= 0)
    before = np.searchsorted(there, np.arange(rows.stop - rows.start + 1)).astype(np.int64)
    cells = there + rows.start
    present, order, value = column.present[cells] > 0, column.order[cells], column.value[cells]
    payload = value
    if not present.all():
        # null is the least of all values
        distinct, number = distinct_of(value)
        payload = np.where(present, number + 1, 0)
    assert state.type is not None
    known = view.objects(column.value_texts) if column.value_texts is not None else None
    floating = state.type.name == "double"

    def answer(runs: Runs) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        low, high = before[runs.low], before[runs.high]
        some = low < high
        chosen: Any = slice(None) if some.all() else np.flatnonzero(some)
        values, valid = np.zeros(len(low), dtype=np.int64), np.zeros(len(low), dtype=bool)
        if some.any():
            part = Runs(runs.group, low, high).where(chosen)
            best = combine_pairs(order, payload, state.operation == "greatest_by", *part)
            values[chosen], valid[chosen] = value[best], present[best]
        if known is not None:
            return known[np.where(valid, values, len(known) - 1)], valid
        return (doubles_of_ordinals(values) if floating else values), valid

    return answer


@dataclass(eq=False)
class _Elements:
    """The elements of the multisets of some cells, with the structures over them that were asked for.

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
    """The multisets under some answers (:class:`optimizer.aggregates.Multisets`): runs of elements."""

    elements: _Elements
    runs: Runs

    def total(self) -> Longs:
        return self.elements.totals[self.runs.high] - self.elements.totals[self.runs.low]

    def at(self, rank: Longs) -> NDArray[Any]:
        some = np.flatnonzero(self.runs.low < self.runs.high)
        found = np.zeros(len(rank), dtype=np.int64)
        if len(some):
            part = self.runs.where(some)
            found[some] = self.elements.wavelet.quantile(part.low, part.high, rank[some])
        return self.elements.shown(found)

    def distinct(self) -> Longs:
        return self.elements.counter.count(self.runs.low, self.runs.high)

    def mode(self) -> NDArray[Any]:
        values, ranks = self.elements.ranks
        best = modes(ranks, self.elements.weights, *self.runs)
        return self.elements.shown(values[np.maximum(best, 0)] if len(values) else np.zeros_like(best))

    def top(self, k: int) -> tuple[NDArray[Any], Longs]:
        values, ranks = self.elements.ranks
        best, weights = top_k(ranks, self.elements.weights, *self.runs, k)
        found = values[np.maximum(best, 0)] if len(values) else np.zeros_like(best)
        return self.elements.shown(found.reshape(-1)).reshape(best.shape), weights

    def cardinality(self) -> NDArray[np.float64]:
        assert self.elements.state.error is not None
        precision = precision_of(self.elements.state.error)
        return hll_counts(self.elements.values, self.elements.weights, *self.runs, precision)


def _multisets(view: View, state: State, column: Multiset, rows: slice, many: bool) -> _Combine:
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
    return lambda runs: _Multisets(elements, Runs(runs.group, offsets[runs.low], offsets[runs.high]))


_STRUCTURES: dict[type, Callable[[View, State, Any, slice, bool], _Combine]] = {
    Fixed: _fixed,
    Texts: _extreme_texts,
    Pairs: _pairs,
    Multiset: _multisets,
}


# --------------------------------------------------------------------------------------------- answers
@dataclass(eq=False)
class Answers:
    """Some answers (a,) to a query from one chunk.

    ``failed`` (a,), if any: those of which nobody knows whether they qualify; ``errors``: what is wrong, by row.
    """

    asked: Asked
    chunk: Chunk
    runs: Runs
    instants: Longs
    failed: NDArray[np.bool_] | None = None
    errors: dict[int, list[str]] = field(default_factory=dict)
    _lowered: dict[int, Lowered] = field(default_factory=dict)
    _found: dict[int, Any] = field(default_factory=dict)

    def lowered(self, number: int) -> Lowered:
        """What is computed under a number."""
        if number not in self._lowered:
            output, states = self.asked.computed[number]
            for _, place in states:
                if place not in self._found:
                    self._found[place] = self.chunk.state(place, self.runs)
            told = {kind: self._found[place] for kind, place in states}
            self._lowered[number] = AGGREGATES[output.function].lower(told, output)
        return self._lowered[number]

    def qualifying(self) -> Answers:
        """Those that satisfy HAVING, or of which that cannot be known; nothing else was computed of the others."""
        if not self.asked.conditions:
            return self
        compared = [self.lowered(number) for number in self.asked.conditions]
        rows, failed, errors = qualifying(self.asked.query, compared, len(self.instants))
        found = Answers(self.asked, self.chunk, self.runs.where(rows), self.instants[rows], failed, errors)
        for number, lowered in self._lowered.items():
            found._lowered[number] = lowered.where(rows)
        return found

    def answered(self, stream: str) -> Answered:
        """All outputs, on their way into a file."""
        query, group = self.asked.query, self.runs.group + self.chunk.first
        lowered = [self.lowered(number) for number in self.asked.outputs]
        carried = carried_by(query, lowered, self.failed, self.errors)
        return Answered(
            stream, query.name, query.window, self.chunk.view.keys, group, self.instants, carried, self.errors
        )


_DTYPES: dict[str, Any] = {"longs": np.int64, "doubles": np.float64, "texts": object}

Errors = dict[int, list[str]]
"""What is wrong with some answers, by row."""


def qualifying(query: ACQ, compared: Sequence[Lowered], answers: int) -> tuple[Longs, NDArray[np.bool_] | None, Errors]:
    """The answers, by row, that satisfy HAVING or of which nobody knows; where, among those, nobody does, and why.

    ``compared``: what each condition compares, over all the ``answers``.
    """
    chosen, failed = np.ones(answers, dtype=bool), np.zeros(answers, dtype=bool)
    messages: list[tuple[NDArray[np.bool_], str]] = []
    for condition, lowered in zip(query.having, compared, strict=True):
        holds = _holds(condition, lowered)
        if lowered.overflow is not None and lowered.overflow.any():
            holds |= lowered.overflow
            failed |= lowered.overflow
            told = f"{OVERFLOW} HAVING: {condition.output.name} does not fit {condition.output.type}"
            messages.append((lowered.overflow, told))
        chosen &= holds
    rows, errors = np.flatnonzero(chosen), Errors()
    for where, told in messages:
        _tell(errors, where[rows], told)
    return rows, failed[rows] if failed[rows].any() else None, errors


def carried_by(
    query: ACQ, lowered: Sequence[Lowered], failed: NDArray[np.bool_] | None, errors: Errors
) -> dict[str, Carried]:
    """The outputs of a query over some answers by carrier, null where ``failed``; overflows are told to ``errors``."""
    columns: dict[str, list[Lowered]] = {carrier: [] for carrier in CARRIERS}
    for output, found in zip(query.outputs, lowered, strict=True):
        columns[carrier_of(output.type)].append(found)
        if found.overflow is not None and found.overflow.any():
            where = found.overflow if failed is None else found.overflow & ~failed
            _tell(errors, where, f"{OVERFLOW} {output.name} does not fit {output.type}")
    rows = len(lowered[0].valid)
    return {carrier: _carried(carrier, columns[carrier], rows, failed) for carrier in CARRIERS}


def _tell(errors: Errors, where: NDArray[np.bool_], error: str) -> None:
    for row in np.flatnonzero(where).tolist():
        errors.setdefault(row, []).append(error)


def _carried(carrier: str, columns: list[Lowered], rows: int, failed: NDArray[np.bool_] | None) -> Carried:
    values = np.empty((rows, len(columns)), dtype=_DTYPES[carrier])
    valid = np.empty((rows, len(columns)), dtype=bool)
    for at, lowered in enumerate(columns):
        values[:, at], valid[:, at] = lowered.values, lowered.valid
    if failed is not None:
        valid[failed] = False
    return Carried(values.reshape(-1), None if valid.all() else valid.reshape(-1), len(columns))


def _holds(condition: Condition, lowered: Lowered) -> NDArray[np.bool_]:
    """Where a condition is true, as the language compares: null never is."""
    output = condition.output
    stored = pa.array(lowered.values, mask=~lowered.valid)
    batch = pa.RecordBatch.from_arrays([typed(stored, output.type)], names=["compared"])
    comparison = Call(condition.comparison, (Column("compared"), condition.value))
    found = evaluate(comparison, batch, {"compared": output.type})
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False)


def views(cells: Cells, synopsis: Synopsis, asked: Sequence[Asked]) -> Iterator[tuple[View, list[Asked]]]:
    """The cells of each family of queries, with the queries."""
    by_name = {one.query.name: one for one in asked}
    combined: Cells | None = None
    for (filter, group_by), queries in families_of([one.query for one in asked]).items():
        if synopsis.is_plain(queries[0]):
            combined = cells.combined() if combined is None else combined
            mine = combined
        else:
            mine = cells.projected(synopsis.bit(filter), group_by)
        if len(mine):
            members = [by_name[query.name] for query in queries]
            yield View(mine, members), members


def finals_of(
    partials: pa.Table, synopsis: Synopsis, queries: Sequence[ACQ], begin: int, end: int, count: Count = uncounted
) -> Iterator[pa.RecordBatch]:
    """Answers of some queries of one synopsis for the instants in (begin, end].

    ``partials``: rows of the synopsis, whole groups, covering every window asked for; in any order.
    ``count`` is told ``rows_passed`` and ``fragments_combined``. Yields batches of :data:`ANSWERS`; the rows of each
    query come by group (in the order of the keys) and instant.
    """
    asked = [Asked.of(query, synopsis, begin, end) for query in queries]
    for one, _, span, chunk in _work(partials, synopsis, asked, count, by_day=False):
        for found in chunk.answers(one, *span):
            count("fragments_combined", int((found.runs.high - found.runs.low).sum()))
            yield found.answered(synopsis.stream).rows()


def _work(
    partials: pa.Table, synopsis: Synopsis, asked: Sequence[Asked], count: Count, by_day: bool
) -> Iterator[tuple[Asked, str, tuple[int, int], Chunk]]:
    """What there is to do: a query, a day and the range of its instants in it (all, unless ``by_day``), a chunk."""
    asked = [one for one in asked if len(one.instants)]
    if len(partials) == 0 or not asked:
        return
    for view, mine in views(Cells.decode(synopsis, partials), synopsis, asked):
        for chunk in view.chunks():
            for one in mine:
                count("rows_passed", chunk.rows.stop - chunk.rows.start)
                for day, first, last in one.days if by_day else [("", 0, len(one.instants))]:
                    yield one, day, (first, last), chunk


# -------------------------------------------------------------------------------------- Spark's task
@dataclass(frozen=True)
class Part:
    """One synopsis in a run: its queries, and the fragments [begin, end) that their windows cover.

    ``until``: the last instant to answer; None: ``end``, which it is unless there are historical windows, whose
    instants are no edges.
    """

    synopsis: Synopsis
    queries: tuple[ACQ, ...]
    begin: int
    end: int
    until: int | None = None


def merged(parts: Sequence[Part]) -> list[Part]:
    """Parts of which no two have the same synopsis: trees with equal edges may need the same partial aggregates."""
    found: dict[str, Part] = {}
    for part in parts:
        held = found.get(part.synopsis.fingerprint)
        if held is not None:
            begin, end = min(held.begin, part.begin), max(held.end, part.end)
            part = replace(held, queries=held.queries + part.queries, begin=begin, end=end)
        found[part.synopsis.fingerprint] = part
    return list(found.values())


def finals_task(
    parts: list[Part],
    begin: int,
    partials: list[str],
    root: str,
    stamp: dict[str, pa.Scalar],
    count: Count = uncounted,
) -> Task:
    """The task that answers every query for the buckets of groups whose numbers it is given.

    ``partials``: paths of the files of partial rows; ``root``: the results table, where the answers are written as
    files that no commit names yet, one a day; ``stamp``: constant columns (plan version, revision, run id); ``count``
    is told ``partial_rows_read`` besides what :func:`finals_of` tells. Names the files.
    """

    def task(numbers: Iterable[int]) -> Iterator[DataFile]:
        found = list(read_buckets(partials, set(numbers)))
        if not found:
            return
        rows = pa.concat_tables(found)
        count("partial_rows_read", len(rows))
        stored = by_fingerprint(rows)
        del found, rows
        files = ResultsFiles(root, [query for part in parts for query in part.queries], stamp)
        for part in parts:
            if part.synopsis.fingerprint in stored:
                mine = _between(stored.pop(part.synopsis.fingerprint), part.begin, part.end)
                _answer(part, mine, begin, files, count)
        yield from files.close()

    return task


def _between(rows: pa.Table, begin: int, end: int) -> pa.Table:
    starts = rows["fragment_start"]
    bounds = pc.min_max(starts).as_py()
    if bounds["min"] is None or (begin <= bounds["min"] and bounds["max"] < end):
        return rows
    return rows.filter(pc.and_(pc.greater_equal(starts, begin), pc.less(starts, end)))


def _answer(part: Part, partials: pa.Table, begin: int, files: ResultsFiles, count: Count) -> None:
    until = part.end if part.until is None else part.until
    asked = [Asked.of(query, part.synopsis, begin, until) for query in part.queries]
    combined = 0
    for one, day, span, chunk in _work(partials, part.synopsis, asked, count, by_day=True):
        for found in chunk.answers(one, *span):
            combined += int((found.runs.high - found.runs.low).sum())
            files.add(day, found.answered(part.synopsis.stream))
    count("fragments_combined", combined)
