"""Answers on demand: any registered query at any instant, or over any window of its fragments, from stored partials.

:class:`Reader` loads the partial rows of a query's synopsis once, without Spark; :class:`Lookups` answers from them, by
the same cells, structures and lowering as the final tasks (:mod:`spark_jobs.windows.finals.answers`), so an answer on
demand is the one that would be published. What a query keeps between look-ups is built when it is first needed.

What is stored is what the last runs left: only fragments that a run completed are used, and what a source has gained
since is seen once it was run again. Event sequences are answered by :mod:`spark_jobs.windows.lookups.sequence_lookups`,
windows of rows are not answered on demand (HDL-607).

How it is quick: an instant is a number of a window (one multiplication), the window two positions in the list of all
fragments, and these, with a group, a run of cells: by arithmetic where every group has every fragment, else by a table
of positions. Counts and exact sums are then two running totals; least and greatest a sparse table, quantiles a wavelet
matrix.

References: Arasu & Widom, "Resource sharing in continuous sliding-window aggregates" (VLDB 2004), sections 3 (look-ups)
and 5 (substream filters: ``HAVING``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.aggregates.states import State, carrier_of
from optimizer.combine.threshold_index import HavingIndex
from optimizer.errors.diagnostics import HeddleError
from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import ends_of, instants, instants_over, newest_instant, newest_instants, starts_of
from optimizer.workload.instants import format_instant
from optimizer.workload.values import ACQ, Condition, Output, Stream, Window
from spark_jobs.results.read import typed_answers
from spark_jobs.store.warehouse.schemas import ANSWERS
from spark_jobs.windows.finals.answers import AnswerBatch, compares
from spark_jobs.windows.finals.top import TopAnswers, TopRows
from spark_jobs.windows.finals.views import FamilyView, GroupChunk
from spark_jobs.windows.finals.window_query import FragmentRuns, PartedRuns, WindowedQuery
from spark_jobs.windows.lookups.kernels import (
    COMPARE,
    DTYPES,
    Answered,
    Group,
    Longs,
    LookupValue,
    Span,
    fragment_positions,
    means_between,
    run_by_arithmetic,
    run_by_position,
    run_by_search,
    sums_between,
    windows_at,
)
from spark_jobs.windows.lookups.single import SINGLE_VALUES
from spark_jobs.windows.lookups.stored import StoredLookups
from spark_jobs.windows.lookups.totals import TOTALS, RunningTotal
from spark_jobs.windows.partials.cells import Cells
from spark_jobs.windows.partials.late_groups import family_cells

MOST_WINDOWS = 1 << 22
"""Number of windows whose fragments are kept as a table; with more, they are searched for."""

MOST_POSITIONS = 1 << 24
"""Entries of the table of positions (groups x fragments), unless cells are about as many; beyond, they are searched."""

BLOCK = 1 << 14
"""Look-ups of a batch whose runs are found at once: they stay in the cache until they are combined."""

SHORT = 1 << 12
"""Maximum number of fragments that a single look-up combines one by one."""

IN_ORDER = frozenset({"mode", "top_k", "count_distinct"})
"""Functions that take look-ups in the order of group and time only."""


def cells_of(
    query: ACQ, synopsis: Synopsis, rows: pa.Table, spans: Sequence[Span], stream: Stream | None = None
) -> Cells:
    """The cells of stored rows that lie in some spans, as the query needs them. ``stream``: with the versions of its
    dimensions, if the query is joined late."""
    cells = Cells.decode(synopsis, rows)
    inside = np.zeros(len(cells), dtype=bool)
    for first, last in spans:
        inside |= (cells.starts >= first) & (cells.starts < last)
    if not inside.all():
        cells = cells.take(np.flatnonzero(inside))
    return family_cells(cells.combined(), query, stream)


class Lookups(StoredLookups):
    """Look-ups of one query over its stored fragments. Made by :meth:`Reader.query`.

    ``stored``: the spans [begin, end) of time, microseconds, whose fragments are complete; ``groups``: the groups
    that have any, as tuples of their values in the query's order (number i is that of :meth:`batch`). Instants are
    microseconds UTC. A look-up answers the newest instant of the query that is not after the given one; the whole
    window must be stored (HDL-604). Not safe for several threads at once.
    """

    def __init__(self, query: ACQ, cells: Cells, stored: Sequence[Span]) -> None:
        super().__init__(query, cells.key_columns, cells.groups, stored)
        self.cells = cells
        self._asked = WindowedQuery.of(query, cells.synopsis, 0, 0)
        self._view = FamilyView(cells)
        self._in_order = any(computed.output.function in IN_ORDER for computed in self._asked.computed)
        self._chunk = GroupChunk(self._view, 0, cells.groups)
        self._indexes: dict[Any, HavingIndex | None] = {}
        self._totals: dict[Any, RunningTotal | None] = {}

    def of_groups(self, groups: Sequence[Group]) -> Lookups:
        """Look-ups of some groups alone. Raises HDL-605 for an unknown one, HDL-609 if the other groups decide which of
        them have answers."""
        self._check_every_group()
        numbers = [self.number(group) for group in groups]
        chosen = np.zeros(self.cells.groups, dtype=bool)
        chosen[numbers] = True
        return Lookups(self.query, self.cells.take(np.flatnonzero(chosen[self.cells.group])).combined(), self.stored)

    def _check_every_group(self) -> None:
        if self.query.top is not None:
            message = f"{self.query.name} answers the first {self.query.top.k} groups of each window"
            raise HeddleError("HDL-609", message, "look up all groups, an instant at a time: at, between, single")

    # ------------------------------------------------------------------------------------------ tables
    def at(self, instant: int, group: Group | None = None) -> pa.Table:
        """The answers of the newest instant that is not after the given one, as :func:`spark_jobs.results.read.read`
        returns them; ``group``: of this group alone. Raises HDL-604 and HDL-605."""
        return self._answered(self._asked, np.array([newest_instant(self.query.window, instant)]), group)

    def between(self, begin: int, end: int, group: Group | None = None) -> pa.Table:
        """The answers of all instants in (begin, end], by window and group. Raises HDL-604 if one is not stored."""
        window = self.query.window
        if not window.is_regular:
            return self._answered(self._asked, instants(window, begin, end), group)
        self._spans.check_between(window, begin, end)
        return self._answered(self._asked, instants_over(window, self._view.grid, begin, end), group)

    def window(
        self, start: int, end: int, having: bool | Sequence[Condition] = True, group: Group | None = None
    ) -> pa.Table:
        """The query's outputs over [start, end), whatever its range and slide; columns as of :meth:`at`, without
        ``instant``.

        ``having``: the query's own thresholds (True), none (False), or these, of outputs whose states the synopsis
        keeps (else HDL-608; see :func:`parse_having`). Raises HDL-606 unless both ends are edges of fragments.
        """
        if self.query.window.parts:
            message = f"{self.query.name} is over several windows, not over one"
            raise HeddleError("HDL-609", message, "look it up at instants: at, between, single, batch")
        if end <= start:
            raise HeddleError("HDL-606", "the window is empty", "its end must be after its start")
        fragments = self.cells.synopsis.fragments
        for edge in (start, end):
            before = fragments.last_edge(edge)
            if before != edge:
                after = int(fragments.ends(np.array([before]))[0])
                raise HeddleError(
                    "HDL-606",
                    f"{format_instant(edge)} is no edge of {self.query.name}'s fragments",
                    f"the nearest are {format_instant(before)} and {format_instant(after)}",
                )
        if isinstance(having, bool):
            having = self.query.having if having else ()
        query = replace(self.query, window=Window(end - start, end - start), having=tuple(having))
        try:
            windowed = WindowedQuery.of(query, self.cells.synopsis, 0, 0)
        except KeyError as error:
            message = "the stored partials do not hold what HAVING compares"
            raise HeddleError("HDL-608", message, "compare outputs of the query") from error
        return self._answered(windowed, np.array([end]), group)

    def _answered(self, windowed: WindowedQuery, moments: Longs, group: Group | None) -> pa.Table:
        """The answers of some instants, ascending."""
        query, window = windowed.query, windowed.query.window
        starts, ends = starts_of(window, moments), ends_of(window, moments)
        self._spans.check_windows(moments, window)
        groups = None if group is None else np.array([self.number(group)])
        if query.top is not None:
            groups = None
        if groups is None and len(moments) == 1:
            groups = self._candidates(query, int(starts[0]), int(ends[0]))
        if groups is None:
            self._view._windows.clear()  # it knows a query's windows by the query's name
            answers = self._chunk.answers(replace(windowed, instants=moments), 0, len(moments))
        else:
            answers = self._of_groups(windowed, groups, moments)
        stream = self.cells.synopsis.stream
        if query.top is not None:
            return self._first(query, [batch.top(stream) for batch in answers], group)
        batches = [batch.answered(stream).rows() for batch in answers]
        return typed_answers(query, pa.Table.from_batches(batches, ANSWERS))

    def _first(self, query: ACQ, parts: Sequence[TopRows], group: Group | None) -> pa.Table:
        """The answers that are among the first of their windows; ``group``: those of this one alone."""
        top = TopAnswers([query])
        for part in parts:
            top.add(part)
        rows = pa.concat_tables([ANSWERS.empty_table(), *(top_rows.table for top_rows in top.close())])
        if group is not None:
            rows = rows.filter(pc.equal(rows["key"], self.cells.key_texts[self.number(group)]))
        return typed_answers(query, rows)

    def _of_groups(self, windowed: WindowedQuery, groups: Longs, moments: Longs) -> Iterator[AnswerBatch]:
        groups, moments = np.repeat(groups, len(moments)), np.tile(moments, len(groups))
        runs = self._runs(windowed.query.window, groups, moments)
        nonempty = runs.is_some
        if not nonempty.any():
            return
        batch, _ = AnswerBatch(windowed, self._chunk, runs.where(nonempty), moments[nonempty]).qualifying()
        if len(batch.instants):
            yield batch

    def _runs(self, window: Window, groups: Longs, moments: Longs) -> FragmentRuns | PartedRuns:
        """The runs of some groups at instants of a window (n,), which need not ascend."""
        runs = []
        for part in window.each:
            low = np.searchsorted(self._view.grid, starts_of(part, moments))
            high = np.searchsorted(self._view.grid, ends_of(part, moments))
            self._to_runs(groups, low, high)
            runs.append(FragmentRuns(groups, low, high))
        return PartedRuns.together(runs) if window.parts else runs[0]

    # ------------------------------------------------------------------------------------------ HAVING
    def _candidates(self, query: ACQ, start: int, end: int) -> Longs | None:
        """Groups (k,) outside which none satisfies HAVING, by an index over a count or a sum; None: not known."""
        for condition in query.having if not query.window.parts else ():
            bounds = _bounds(condition)
            index = self._index(condition.output) if bounds is not None else None
            if index is not None and bounds is not None:
                return index.between(start, end, *bounds)
        return None

    def _index(self, output: Output) -> HavingIndex | None:
        key = output.function, output.argument
        if key not in self._indexes:
            total = self._total(output)
            self._indexes[key] = None
            if total is not None and not total.mean:
                values = np.diff(total.totals[:, 1])
                if values.min(initial=0) >= 0:
                    self._indexes[key] = HavingIndex(self.cells.starts, self._chunk.offsets, values)
        return self._indexes[key]

    # ------------------------------------------------------------------------------------------- batches
    @cached_property
    def _table(self) -> tuple[int, Longs, Longs]:
        """Start of the windows' table (the first instant), and the fragments [low, high) under each window; -1 if
        part of it is not stored.
        """
        window, grid = self.query.window, self._view.grid
        if not self.stored or window.calendar is not None or window.parts:
            return 0, np.empty(0, np.int64), np.empty(0, np.int64)
        begin, end = self.stored[0][0] + window.reach - 1, self.stored[-1][1] + window.ago
        count = max(0, (end - window.range) // window.slide - (begin - window.range) // window.slide)
        if count > MOST_WINDOWS:
            return 0, np.empty(0, np.int64), np.empty(0, np.int64)
        moments = instants(window, begin, end)
        starts, ends = starts_of(window, moments), ends_of(window, moments)
        inside = np.zeros(len(moments), dtype=bool)
        for first, last in self.stored:
            inside |= (starts >= first) & (ends <= last)
        low = np.where(inside, np.searchsorted(grid, starts), -1)
        return int(moments[0]) if len(moments) else 0, low, np.searchsorted(grid, ends)

    def _slots(self, times: Longs, low: Longs, high: Longs) -> None:
        """The fragments under the newest window of each instant. Raises HDL-604."""
        base, first, last = self._table
        window = self.query.window
        wrong = windows_at(times, base, window.slide, first, last, low, high)
        if wrong < 0:
            return
        if len(first):
            self._spans.check_windows(newest_instants(window, times[wrong : wrong + 1]), window)
        moments = newest_instants(window, times)
        self._spans.check_windows(np.unique(moments), window)
        low[:] = np.searchsorted(self._view.grid, starts_of(window, moments))
        high[:] = np.searchsorted(self._view.grid, ends_of(window, moments))

    @cached_property
    def _position(self) -> NDArray[Any] | None:
        """Number of cells before each fragment, for each group (g, f + 1); None if that is arithmetic, or too much
        to keep.
        """
        cells, groups, fragments = len(self.cells), self.cells.groups, len(self._view.grid)
        size = groups * (fragments + 1)
        if cells == groups * fragments or size > max(MOST_POSITIONS, 4 * cells):
            return None
        position = np.empty((groups, fragments + 1), np.int32 if cells < 1 << 31 else np.int64)
        fragment_positions(self._view.slots, self._chunk.offsets, position)
        return position

    def _to_runs(self, groups: Longs, low: Longs, high: Longs) -> None:
        """Fragments [low, high) of groups become runs of cells, in place."""
        if len(self.cells) == self.cells.groups * len(self._view.grid):
            run_by_arithmetic(groups, len(self._view.grid), low, high)
        elif self._position is not None:
            run_by_position(groups, self._position, low, high)
        else:
            run_by_search(groups, self._view.slots, self._chunk.offsets, low, high)

    def batch(self, at: Any, groups: Any = None) -> Answered:
        """Many look-ups at once: by output its values and whether each is an answer that is not null.

        ``at`` (a,): instants, int64 microseconds or datetime64, in any order; ``groups`` (a,): of each look-up the
        number of its group, or its values as a tuple; None: each instant of every group, results are (g, a) then. One
        look-up is one (instant, group) with all outputs of the query: from the instant to the window, to the fragments,
        to the values. Values are int64 (booleans 0 and 1, dates as days, timestamps as microseconds), float64, or
        objects (texts, decimals as texts). Not valid are nulls, values that do not fit their type, and where there is
        no answer: no event in the window, or not as HAVING wants. Raises HDL-604 and HDL-605 for the first wrong one,
        HDL-609 for a query with ORDER BY … LIMIT.
        """
        self._check_every_group()
        times, numbers, shape = self._requested(at, groups)
        order = np.lexsort((times, numbers)) if self._in_order else None
        if order is not None:
            times, numbers = times[order], numbers[order]
        columns = [
            (np.empty(len(times), dtype=DTYPES[carrier_of(output.type)]), np.empty(len(times), dtype=bool))
            for output in self.query.outputs
        ]
        quick = not self.query.having and all(self._total(output) is not None for output in self.query.outputs)
        size, window = BLOCK if quick else self._asked.block, self.query.window
        low, high = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
        for begin in range(0, len(times), size):
            part = slice(begin, min(begin + size, len(times)))
            out = [(values[part], valid[part]) for values, valid in columns]
            if window.parts:
                moments = newest_instants(window, times[part])
                self._spans.check_windows(np.unique(moments), window)
                self._fill(self._runs(window, numbers[part], moments), out)
                continue
            runs = FragmentRuns(numbers[part], low[: part.stop - begin], high[: part.stop - begin])
            self._slots(times[part], runs.low, runs.high)
            self._to_runs(*runs)
            self._fill(runs, out)
        if order is not None:
            for values, valid in columns:
                values[order], valid[order] = values.copy(), valid.copy()
        named_columns = zip(self.query.outputs, columns, strict=True)
        return {output.name: (values.reshape(shape), valid.reshape(shape)) for output, (values, valid) in named_columns}

    def _fill(self, runs: FragmentRuns | PartedRuns, out: list[tuple[NDArray[Any], NDArray[np.bool_]]]) -> None:
        """The outputs under some runs of cells."""
        chosen: Longs | None = None
        answers: AnswerBatch | None = None
        qualified: NDArray[Any] | None = None

        def answered() -> AnswerBatch:
            nonlocal chosen, answers
            if answers is None:
                nonempty = runs.is_some
                if nonempty.all():
                    answers = AnswerBatch(self._asked, self._chunk, runs, runs.group)
                else:
                    chosen = np.flatnonzero(nonempty)
                    part = runs.where(chosen)
                    answers = AnswerBatch(self._asked, self._chunk, part, part.group)
            return answers

        def spread(values: NDArray[Any], to: NDArray[Any]) -> None:
            if chosen is None:
                to[:] = values
            else:
                to[:] = np.zeros((), to.dtype) if to.dtype != object else None
                to[chosen] = values

        for condition, number in zip(self.query.having, self._asked.conditions, strict=True):
            holds = compares(condition, answered().lowered(number))
            qualified = holds if qualified is None else qualified & holds
        for output, number, (values, valid) in zip(self.query.outputs, self._asked.outputs, out, strict=True):
            total = self._total(output)
            if total is not None and qualified is None and isinstance(runs, FragmentRuns):
                (means_between if total.mean else sums_between)(total.totals, runs.low, runs.high, values, valid)
                continue
            if len(answered().instants) == 0:
                valid[:] = False
                values[:] = np.zeros((), values.dtype) if values.dtype != object else None
                continue
            lowered = answered().lowered(number)
            spread(lowered.values, values)
            spread(lowered.valid if qualified is None else lowered.valid & qualified, valid)

    def _total(self, output: Output) -> RunningTotal | None:
        """Running totals that answer an output; None if it takes more, or there are several windows."""
        if self.query.window.parts:
            return None
        key = output.function, output.argument
        if key not in self._totals:
            make_total = TOTALS.get(output.function)
            self._totals[key] = make_total(self.cells, output) if make_total is not None else None
        return self._totals[key]

    def _multiset(self, state: State) -> Any:
        """The elements of a state of multisets, over all cells."""
        none = np.empty(0, dtype=np.int64)
        return self._chunk.state(self.cells.synopsis.states.index(state), FragmentRuns(none, none, none)).elements

    # ------------------------------------------------------------------------------------- one at a time
    def single(self, instant: int, *group: Any) -> tuple[Any, ...] | None:
        """Return the outputs of a group at the newest instant that is not after the given one (microseconds), as in
        the rows of :meth:`at`; None if there is no answer: no event in the window, or HAVING is not satisfied.

        Uses no tables of Arrow: counts, sums, means, extremes and percentiles of integers and doubles take a few
        microseconds. Without running totals, runs of up to :data:`SHORT` fragments are combined one by one. Raises
        HDL-604 and HDL-605.
        """
        quick = self._quick
        number = quick.numbers.get(group)
        if number is None:
            number = self.number(group)
        window = (instant - quick.base) // quick.slide
        if not 0 <= window < quick.windows or quick.first[window] < 0:
            return self._slowly(instant, group)
        low, high = quick.first[window], quick.last[window]
        if quick.position is None:
            begin = number * quick.fragments
            low, high = begin + low, begin + high
        else:
            low, high = quick.position[number, low], quick.position[number, high]
        if low == high:
            return None
        if high - low > quick.most:
            return self._slowly(instant, group)
        for holds in quick.conditions:
            if not holds(low, high):
                return None
        return tuple([output(low, high) for output in quick.outputs])

    def _slowly(self, instant: int, group: Group) -> tuple[Any, ...] | None:
        rows = self.at(instant, group).to_pylist()
        return tuple(rows[0][output.name] for output in self.query.outputs) if rows else None

    @cached_property
    def _quick(self) -> _Quick:
        base, first, last = self._table
        outputs = [self._single(output) for output in self.query.outputs]
        conditions = [self._single_condition(condition) for condition in self.query.having]
        searched = self._position is None and len(self.cells) != self.cells.groups * len(self._view.grid)
        able = (
            self.query.top is None
            and not self.query.window.parts
            and not searched
            and None not in outputs
            and None not in conditions
        )
        folded = any(
            self._total(output) is None and output.function not in ("median", "percentile", "percentile_disc")
            for output in self.query.computed
        )
        return _Quick(
            self._groups.numbers,
            base,
            self.query.window.slide,
            len(first) if able else 0,
            first.data,
            last.data,
            len(self._view.grid),
            None if self._position is None else self._position.data,
            SHORT if folded else len(self.cells),
            [output for output in outputs if output is not None],
            [condition for condition in conditions if condition is not None],
        )

    def _single_condition(self, condition: Condition) -> Callable[[int, int], bool] | None:
        value, literal = self._single(condition.output), condition.value
        if value is None or condition.output.type.name != "long" or literal.type.name != "long":
            return None
        compare, bound = COMPARE[condition.comparison], literal.value

        def holds(low: int, high: int) -> bool:
            compared = value(low, high)
            return compared is not None and compare(compared, bound)

        return holds

    def _single(self, output: Output) -> LookupValue | None:
        """Return the function that computes an output over one run of cells at once; None if there is none."""
        make_value = SINGLE_VALUES.get(output.function)
        return make_value(self, output) if make_value is not None else None


class _Quick(NamedTuple):
    """State that :meth:`Lookups.single` reads, in the form that Python reads fastest. ``windows`` 0: no look-up is
    quick.
    """

    numbers: dict[Group, int]
    base: int
    slide: int
    windows: int
    first: memoryview
    last: memoryview
    fragments: int
    position: memoryview | None
    most: int
    outputs: list[LookupValue]
    conditions: list[Callable[[int, int], bool]]


def _bounds(condition: Condition) -> tuple[int | None, int | None] | None:
    """The least and the greatest integer that satisfy a threshold; None if it is no interval, or not exact."""
    if not condition.value.type.is_exact or condition.value.value is None:
        return None
    value = condition.value.value
    floor, ceiling = math.floor(value), math.ceil(value)
    return {
        ">": (floor + 1, None),
        ">=": (ceiling, None),
        "<": (None, ceiling - 1),
        "<=": (None, floor),
        "=": (ceiling, floor),
    }.get(condition.comparison)
