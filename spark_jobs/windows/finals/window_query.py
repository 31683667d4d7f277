"""One query with its windows, as the final stage takes it: which answers exist, over which runs of fragments."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.aggregates.states import State
from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import instants_over
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, ANY_WINDOW, Output

OVERFLOW = "HDL-601"
"""Code of an answer that does not fit its type; its output is null and the row has the message. If the value that
HAVING compares does not fit, it is unknown whether the answer qualifies: the row exists with the message, and all
its outputs are null.
"""

BLOCK = 1 << 16
"""Answers that are computed at once: their arrays fit the processor's caches."""

CHUNK, CHUNK_ELEMENTS = 1 << 17, 1 << 20
"""Numbers of cells, and of elements of a multiset, over which structures are built at once (whole groups: one group
may have more).
"""

Longs = NDArray[np.int64]

COUNTED = ("partial_rows_read", "rows_passed", "fragments_combined")
"""The features (:data:`spark_jobs.pipeline.costs.measurements.FEATURES`) that final tasks count."""


@numba.njit(cache=True, inline="always")
def seek(slots, begin, end, bound):
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
def _covered_by_parts(
    slots, offsets, fragments, first_group, last_group, windows, window_low, window_high, at, group, window, low, high
):
    """:func:`covered_runs` of windows of several parts: an answer exists where any of them has cells."""
    parts = len(window_low)
    behind_low, behind_high = np.empty(parts, np.int64), np.empty(parts, np.int64)
    for g in range(first_group, last_group):
        begin, end = offsets[g], offsets[g + 1]
        behind_low[:], behind_high[:] = begin, begin
        for w in windows:
            is_some = False
            for p in range(parts):
                first = behind_low[p] = seek(slots, behind_low[p], end, window_low[p, w])
                last = behind_high[p] = seek(slots, max(first, behind_high[p]), end, window_high[p, w])
                is_part = first < last
                low[p, at], high[p, at] = (first, last) if is_part else (0, 0)
                is_some |= is_part
            if is_some:
                group[at], window[at] = g, w
                at += 1
    return at


@numba.njit(cache=True)
def covered_runs(
    slots, offsets, fragments, first_group, last_group, windows, window_low, window_high, at, group, window, low, high
):
    """Write the runs of cells under each window that holds any, by group and window, behind the first ``at`` answers;
    return the number of answers then.

    slots: (n,) number of each cell's fragment among all ``fragments``, ascending within a group; offsets: (g + 1,) of
    the groups; windows: numbers of the windows, ascending; window_low, window_high: (p, w) fragments of each part of
    each window, ascending. Written: group, window (a,); low, high (p, a), both 0 of a part without cells.
    """
    if len(window_low) > 1:
        return _covered_by_parts(
            slots,
            offsets,
            fragments,
            first_group,
            last_group,
            windows,
            window_low,
            window_high,
            at,
            group,
            window,
            low,
            high,
        )
    only_low, only_high, part_low, part_high = window_low[0], window_high[0], low[0], high[0]
    for g in range(first_group, last_group):
        begin, end = offsets[g], offsets[g + 1]
        # most groups have a cell in every fragment
        complete = end - begin == fragments
        first = last = begin
        for w in windows:
            if complete:
                first, last = begin + only_low[w], begin + only_high[w]
            else:
                first = seek(slots, first, end, only_low[w])
                last = seek(slots, max(first, last), end, only_high[w])
            if first < last:
                group[at], window[at], part_low[at], part_high[at] = g, w, first, last
                at += 1
    return at


class FragmentRuns(NamedTuple):
    """Some answers (a,): the group of each, and the run [low, high) of cells under it."""

    group: Longs
    low: Longs
    high: Longs

    def where(self, chosen: Any) -> FragmentRuns:
        """Select some of the runs."""
        return FragmentRuns(self.group[chosen], self.low[chosen], self.high[chosen])

    def over(self, window: int) -> FragmentRuns:
        """The runs under the only window."""
        return self

    @property
    def is_some(self) -> NDArray[np.bool_]:
        """Mask (a,) of those with cells."""
        return self.low < self.high

    @property
    def combined(self) -> int:
        """Cells under all of them."""
        return int((self.high - self.low).sum())


class PartedRuns(NamedTuple):
    """Some answers (a,) over several windows: the runs under the first window that has cells, and under each."""

    first: FragmentRuns
    parts: tuple[FragmentRuns, ...]

    @property
    def group(self) -> Longs:
        """The group of each."""
        return self.first.group

    def where(self, chosen: Any) -> PartedRuns:
        """Select some of the answers."""
        return PartedRuns(self.first.where(chosen), tuple(part.where(chosen) for part in self.parts))

    def over(self, window: int) -> FragmentRuns:
        """The runs under the part of a number, empty where it has no cells; or under the first that has some."""
        return self.first if window == ANY_WINDOW else self.parts[window]

    @property
    def is_some(self) -> NDArray[np.bool_]:
        """Mask (a,) of the answers with cells under one of the windows."""
        return self.first.is_some

    @property
    def combined(self) -> int:
        """Cells under all windows."""
        return sum(part.combined for part in self.parts)

    @classmethod
    def together(cls, parts: Sequence[FragmentRuns]) -> PartedRuns:
        """The answers whose runs under each window are given, empty where there are no cells."""
        low, high = parts[0].low, parts[0].high
        for part in parts[1:]:
            is_none = low >= high
            low, high = np.where(is_none, part.low, low), np.where(is_none, part.high, high)
        return cls(FragmentRuns(parts[0].group, low, high), tuple(parts))


class _Computed(NamedTuple):
    """One value to compute for each answer: an output without its name, from states (kind, place in the synopsis),
    or a derived one from the values under other numbers, its ``parts``.
    """

    output: Output
    states: tuple[tuple[str, int], ...]
    parts: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class WindowedQuery:
    """A query with what depends on neither groups nor buckets.

    ``begin``, ``end``: it is answered in (begin, end]; ``instants`` (w,): those of them whose windows hold something
    (:meth:`over`), none before that is known; ``days``: the range of instants of each day; ``block``: answers to
    compute at once; ``computed``: what its outputs, conditions and order need, each once; ``outputs``, ``conditions``,
    ``orders``: which of it they are.
    """

    query: ACQ
    instants: Longs
    block: int
    computed: tuple[_Computed, ...]
    outputs: tuple[int, ...]
    conditions: tuple[int, ...]
    orders: tuple[int, ...] = ()
    begin: int = 0
    end: int = 0
    days: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, query: ACQ, synopsis: Synopsis, begin: int, end: int) -> WindowedQuery:
        """The query at its instants in (begin, end], with the values to compute from the states of a synopsis. Raises
        KeyError for an output whose states the synopsis does not have."""
        most = max((int(output.parameter or 1) for output in query.computed if output.function == "top_k"), default=1)
        computed: dict[Output, tuple[int, _Computed]] = {}
        places = {state: place for place, state in enumerate(synopsis.states)}
        outputs = tuple(_numbered(output, places, computed) for output in query.outputs)
        compared = tuple(_numbered(output, places, computed) for output in query.compared)
        conditions, orders = compared[: len(query.having)], compared[len(query.having) :]
        block = max(1, BLOCK // most)
        none = np.empty(0, dtype=np.int64)
        each = tuple(value for _, value in computed.values())
        return cls(query, none, block, each, outputs, conditions, orders, begin, end)

    def over(self, grid: Longs) -> WindowedQuery:
        """The query at the instants whose windows may hold one of the fragments that start at ``grid`` (f,), ascending:
        windows without events have no answer, and cost nothing."""
        moments = instants_over(self.query.window, grid, self.begin, self.end)
        edges = [0, *(np.flatnonzero(np.diff((moments - 1) // DAY)) + 1).tolist(), len(moments)]
        return replace(self, instants=moments, days=tuple(pairwise(edges)) if len(moments) else ())


def _numbered(output: Output, places: Mapping[State, int], computed: dict[Output, tuple[int, _Computed]]) -> int:
    """The number of what an output is, which is added to what is computed, behind its parts; ``places``: of the states
    in the synopsis."""
    same = replace(output, name="")
    # to hash an output is dear
    if (known := computed.get(same)) is not None:
        return known[0]
    parts = tuple(_numbered(part, places, computed) for part in output.parts)
    states = () if parts else _states(output, places)
    number = len(computed)
    computed[same] = number, _Computed(same, tuple((state.kind, places[state]) for state in states), parts)
    return number


def _states(output: Output, stored: Collection[State]) -> tuple[State, ...]:
    """The states that an output is lowered from: those of today, or of a synopsis of an earlier version its own."""
    aggregate = AGGREGATES[output.function]
    former = aggregate.states(output, former=True)
    return former if all(state in stored for state in former) else aggregate.states(output)
