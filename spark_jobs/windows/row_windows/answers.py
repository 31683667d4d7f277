"""Answers of windows of rows from the cells of all days."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numba
import numpy as np
import pyarrow as pa

from optimizer.aggregates.states import ROWS, State
from optimizer.errors.diagnostics import HeddleError
from optimizer.synopses.synopsis import POSITION, Synopsis
from optimizer.windows.alignment import Fragments
from optimizer.workload.values import ACQ, Column, Window
from spark_jobs.engine.workers import Count, uncounted
from spark_jobs.results.rows import AnswerRows
from spark_jobs.store.arrays.numbering import Longs, distinct_rows
from spark_jobs.windows.finals.answers import AnswerBatch
from spark_jobs.windows.finals.stage import views
from spark_jobs.windows.finals.top import TopAnswers
from spark_jobs.windows.finals.views import GroupChunk
from spark_jobs.windows.finals.window_query import FragmentRuns, WindowedQuery
from spark_jobs.windows.partials.cells import Cells
from spark_jobs.windows.partials.synopsis_work import SynopsisWork
from spark_jobs.windows.row_windows.numbering import state_numbers


class _Windows(NamedTuple):
    """The complete windows to answer of one window definition, by key: those of key k are [offsets[k], offsets[k +
    1]).

    ``position`` (w,): number of the first row, ascending within a key; ``start``: the time of that row,
    ``instant``: a microsecond after that of the last.
    """

    offsets: Longs
    position: Longs
    start: Longs
    instant: Longs


@numba.njit(cache=True)
def _whole(starts, rows, least, greatest, offsets, range_, slide, begin, end):
    """The windows of range_ rows whose instant lies in (begin, end]; see _Windows.

    starts, rows, least, greatest: (n,) first number, rows, first and last time of fragments, ascending within a key;
    offsets: (k + 1,) of the keys in them.
    """
    window_offsets = np.zeros(len(offsets), np.int64)
    count = 0
    for fill in range(2):
        if fill == 1:
            position = np.empty(count, np.int64)
            start = np.empty(count, np.int64)
            instant = np.empty(count, np.int64)
        count = 0
        for key in range(len(offsets) - 1):
            first = last = offsets[key]
            stop = offsets[key + 1]
            row_count = 0
            number = -(-starts[first] // slide) * slide
            while number + range_ <= starts[stop - 1] + rows[stop - 1]:
                while first < stop and starts[first] < number:
                    row_count -= rows[first] if first < last else 0
                    first += 1
                last = max(first, last)
                while last < stop and starts[last] < number + range_:
                    row_count += rows[last]
                    last += 1
                if row_count == range_ and begin < greatest[last - 1] + 1 <= end:
                    if fill == 1:
                        position[count], start[count], instant[count] = number, least[first], greatest[last - 1] + 1
                    count += 1
                number += slide
            window_offsets[key + 1] = count
    return window_offsets, position, start, instant


@numba.njit(cache=True)
def _covered(starts, offsets, key, windows, position, range_, g, w, group, window, low, high):
    """The run of cells under each window that holds any, by group and window, from group g and window w on, until the
    last four arrays are full: how many, and the group and window to go on with.

    starts: (n,) first numbers, ascending within a group; offsets: (g + 1,) of the groups in them; key: (g,) of each
    group; windows: (k + 1,) of the keys in position.
    """
    count = 0
    while g < len(key):
        end, after = offsets[g + 1], windows[key[g] + 1]
        w = max(w, windows[key[g]])
        first = last = offsets[g]
        while w < after:
            while first < end and starts[first] < position[w]:
                first += 1
            if first == end:
                break
            if starts[first] >= position[w] + range_:
                # on to the first window that reaches the cell
                w += np.searchsorted(position[w:after], starts[first] - range_ + 1)
                continue
            last = max(first, last)
            while last < end and starts[last] < position[w] + range_:
                last += 1
            if count == len(group):
                return count, g, w
            group[count], window[count], low[count], high[count] = g, w, first, last
            count += 1
            w += 1
        g += 1
        w = 0
    return count, g, w


def _by_row(cells: Cells) -> Cells:
    """Cells of a synopsis that counts rows, under the fragments of rows, which are a group column no more."""
    synopsis = cells.synopsis
    names = [name for name, _ in synopsis.group_by]
    first = cells.key_columns[names.index(POSITION)].cast(pa.int64()).to_numpy()
    places = [at for at, name in enumerate(names) if name != POSITION]
    columns, number, groups = distinct_rows([cells.key_columns[at] for at in places], cells.groups)
    starts = first[cells.group]
    return replace(
        cells,
        synopsis=replace(synopsis, group_by=tuple(synopsis.group_by[at] for at in places)),
        starts=starts,
        ends=Fragments(synopsis.edges).ends(starts),
        group=number[cells.group].astype(np.int64),
        groups=groups,
        key_columns=columns,
    )


class _Numbering:
    """The rows of each key that some cells represent, whatever the filter, and so which windows are complete.

    Raises HDL-518 unless they are consecutive.
    """

    def __init__(self, cells: Cells, begin: int, end: int) -> None:
        synopsis = cells.synopsis
        assert synopsis.per is not None
        self.begin, self.end = begin, end
        states = (ROWS, *_times(synopsis))
        per = tuple(column for column in synopsis.group_by if column[0] in synopsis.per)
        unfiltered = replace(synopsis, predicates=(None,), group_by=per, states=states)
        self.cells = cells.rolled_up(unfiltered).combined()
        self.offsets = np.searchsorted(self.cells.group, np.arange(self.cells.groups + 1)).astype(np.int64)
        self.rows, self.least, self.greatest = (state_numbers(self.cells, state) for state in states)
        self._windows: dict[Window, _Windows] = {}
        self._check()

    def _check(self) -> None:
        starts, group = self.cells.starts, self.cells.group
        missing = starts[1:] - starts[:-1] - self.rows[:-1]
        # of the first fragment of a key there may be the rows of later days alone
        inner = np.ones(len(missing), dtype=bool)
        inner[self.offsets[:-1][self.offsets[:-1] < len(missing)]] = False
        wrong = (group[1:] == group[:-1]) & ((missing < 0) | (inner & (missing > 0)))
        if wrong.any():
            key = self.cells.key_texts[int(group[np.argmax(wrong)])].as_py()
            message = f"stored partial rows of stream {self.cells.synopsis.stream} lack rows, or have some twice: {key}"
            raise HeddleError("HDL-518", message, "run again once the source is still: its days are then numbered anew")

    def windows(self, window: Window) -> _Windows:
        """The complete windows with an instant in (begin, end]."""
        if window not in self._windows:
            columns = self.cells.starts, self.rows, self.least, self.greatest, self.offsets
            self._windows[window] = _Windows(*_whole(*columns, window.range, window.slide, self.begin, self.end))
        return self._windows[window]

    def keys_of(self, cells: Cells) -> Longs:
        """The key (g,) of each group of a family's cells."""
        names = [name for name, _ in cells.synopsis.group_by]
        columns = [cells.key_columns[names.index(name)] for name, _ in self.cells.synopsis.group_by]
        joined = [pa.concat_arrays(pair) for pair in zip(columns, self.cells.key_columns, strict=True)]
        _, number, most = distinct_rows(joined, cells.groups + self.cells.groups)
        known = np.empty(most, dtype=np.int64)
        known[number[cells.groups :]] = np.arange(self.cells.groups)
        return known[number[: cells.groups]]


def _times(synopsis: Synopsis) -> tuple[State, State]:
    """The states of the first and the last time."""
    by_kind = {state.kind: state for state in synopsis.states if state.argument == Column(synopsis.time)}
    return by_kind["min"], by_kind["max"]


def finals_of_rows(
    partials: pa.Table, synopsis: Synopsis, queries: Sequence[ACQ], begin: int, end: int, count: Count = uncounted
) -> Iterator[AnswerRows]:
    """Answers of some queries of one synopsis that counts rows, for the instants in (begin, end].

    ``partials``: rows of the synopsis, whole keys, of all days from :meth:`Counts.history_start` on; in any order.
    ``count``: as in :func:`spark_jobs.windows.finals.stage.finals_of`.
    """
    if len(partials) == 0:
        return
    cells = _by_row(Cells.decode(synopsis, partials))
    numbering = _Numbering(cells, begin, end)
    # which instants there are the rows say
    windowed = [WindowedQuery.of(query, cells.synopsis, 0, 0) for query in queries]
    for view, family in views(cells, cells.synopsis, windowed):
        keys = numbering.keys_of(view.cells)
        for chunk in view.chunks():
            for windowed_query in family:
                count("rows_passed", chunk.rows.stop - chunk.rows.start)
                windows = numbering.windows(windowed_query.query.window)
                for answers in _answers(windowed_query, chunk, keys[chunk.first : chunk.first + chunk.groups], windows):
                    count("fragments_combined", answers.runs.combined)
                    at = answers.instants
                    yield answers.answered(synopsis.stream)._replace(
                        instants=windows.instant[at], positions=windows.position[at], starts=windows.start[at]
                    )


def _answers(windowed: WindowedQuery, chunk: GroupChunk, keys: Longs, windows: _Windows) -> Iterator[AnswerBatch]:
    """The answers to a query, some at a time; their instants are the numbers of their windows."""
    starts = chunk.view.cells.starts[chunk.rows]
    arguments = starts, chunk.offsets, keys, windows.offsets, windows.position, windowed.query.window.range
    group = window = 0
    while group < chunk.groups:
        space = [np.empty(windowed.block, dtype=np.int64) for _ in range(4)]
        count, group, window = _covered(*arguments, group, window, *space)
        numbers, at, low, high = (column[:count] for column in space)
        if count:
            batch, _ = AnswerBatch(windowed, chunk, FragmentRuns(numbers, low, high), at).qualifying()
            if len(batch.instants):
                yield batch


def row_answers(
    part: SynopsisWork, begin: int, partials: pa.Table, top: TopAnswers, count: Count
) -> Iterator[tuple[str, AnswerRows]]:
    """Answer windows of rows in a :func:`finals_task`. The fragments to read are those of the part's days [begin,
    end), both midnights.
    """
    until = part.end if part.until is None else part.until
    for answers in finals_of_rows(partials, part.synopsis, part.queries, begin, until, count):
        yield from answers.by_day()
