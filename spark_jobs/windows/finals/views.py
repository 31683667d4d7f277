"""Cells of a synopsis as the queries of one filter and group-by use them, and the structures made over them once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from optimizer.aggregates.exact_doubles import ExactSums
from optimizer.windows.alignment import ends_of, starts_of
from spark_jobs.store.arrays.numbering import distinct_of
from spark_jobs.windows.finals import window_query
from spark_jobs.windows.finals.answers import AnswerBatch
from spark_jobs.windows.finals.structures import STRUCTURES
from spark_jobs.windows.finals.window_query import FragmentRuns, Longs, PartedRuns, WindowedQuery, covered_runs
from spark_jobs.windows.partials.cells import Cells
from spark_jobs.windows.partials.states import Multiset


class FamilyView:
    """The cells of one family, one a (group, fragment), and what its queries share.

    ``offsets`` (g + 1,): the groups' cells; ``grid`` (f,): the distinct fragments, ``slots`` (n,) each cell's number
    among them; ``states``: with their columns, in the synopsis's order.
    """

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self.states = [(state, cells.states[state]) for state in cells.synopsis.states]
        self.keys = cells.key_texts
        self.grid, self.slots = distinct_of(cells.starts)
        self.offsets = np.searchsorted(cells.group, np.arange(cells.groups + 1)).astype(np.int64)
        self.texts: dict[int, NDArray[Any]] = {}
        self._windows: dict[str, list[tuple[Longs, Longs]]] = {}

    def windows(self, windowed: WindowedQuery) -> list[tuple[Longs, Longs]]:
        """The fragments [low, high) of the grid under each of a query's windows (w,), for each part."""
        name = windowed.query.name
        if name not in self._windows:
            self._windows[name] = [
                (
                    np.searchsorted(self.grid, starts_of(part, windowed.instants)),
                    np.searchsorted(self.grid, ends_of(part, windowed.instants)),
                )
                for part in windowed.query.window.each
            ]
        return self._windows[name]

    def objects(self, texts: pa.StringArray) -> NDArray[Any]:
        """Texts as objects, with None behind them."""
        if id(texts) not in self.texts:
            self.texts[id(texts)] = np.array([*texts.to_pylist(), None], dtype=object)
        return self.texts[id(texts)]

    def chunks(self) -> Iterator[GroupChunk]:
        """Groups cut so that the structures over each piece stay in bounds."""
        bounds = [(self.offsets, window_query.CHUNK)]
        for column in self.cells.states.values():
            if isinstance(column, Multiset):
                bounds.append((column.offsets[self.offsets], window_query.CHUNK_ELEMENTS))
            elif isinstance(column, ExactSums):
                bounds.append((self.offsets * column.limbs.shape[1], window_query.CHUNK_ELEMENTS))
        first = 0
        while first < self.cells.groups:
            ends = [np.searchsorted(before, before[first] + most, side="right") - 1 for before, most in bounds]
            last = max(first + 1, int(min(ends)))
            yield GroupChunk(self, first, last)
            first = last


class GroupChunk:
    """Some groups of a view, with the structures over their cells, each made on first use.

    Runs count cells from the chunk's first.
    """

    def __init__(self, view: FamilyView, first: int, last: int) -> None:
        self.view = view
        self.first, self.groups = first, last - first
        self.rows = slice(int(view.offsets[first]), int(view.offsets[last]))
        self.offsets = view.offsets[first : last + 1] - self.rows.start
        self.slots = view.slots[self.rows]
        self._known: dict[int, Callable[[FragmentRuns], Any]] = {}

    def state(self, place: int, runs: FragmentRuns) -> Any:
        """A state under each answer, as :meth:`optimizer.aggregates.algebra.Aggregate.lower` takes it."""
        if place not in self._known:
            state, column = self.view.states[place]
            self._known[place] = STRUCTURES[type(column)](self.view, state, column, self.rows)
        return self._known[place](runs)

    def answers(self, windowed: WindowedQuery, first: int, last: int) -> Iterator[AnswerBatch]:
        """The answers of a query for its instants [first, last), by group and instant, some at a time."""
        bounds = [(low[first:last], high[first:last]) for low, high in self.view.windows(windowed)]
        filled = np.flatnonzero(np.logical_or.reduce([low < high for low, high in bounds]))
        bounds, times = [(low[filled], high[filled]) for low, high in bounds], windowed.instants[first:last][filled]
        if len(filled) == 0:
            return
        groups = max(1, windowed.block // len(filled))
        size = min(groups * len(filled), windowed.block)
        spaces = [[np.empty(size, dtype=np.int64) for _ in range(4)] for _ in bounds]
        for group in range(0, self.groups, groups):
            for window in range(0, len(filled), windowed.block):
                some = slice(window, window + windowed.block)
                runs_of_parts = []
                for (low, high), (number, instant, begin, end) in zip(bounds, spaces, strict=True):
                    grid = self.slots, self.offsets, len(self.view.grid), group, min(group + groups, self.groups)
                    count = covered_runs(*grid, low[some], high[some], number, instant, begin, end)
                    runs_of_parts.append((number[:count], instant[:count], begin[:count], end[:count]))
                runs, windows = _runs(runs_of_parts, len(times[some]))
                if len(windows):
                    batch, _ = AnswerBatch(windowed, self, runs, times[some][windows]).qualifying()
                    if len(batch.instants):
                        yield batch


def _runs(parts: Sequence[tuple[Longs, Longs, Longs, Longs]], windows: int) -> tuple[FragmentRuns | PartedRuns, Longs]:
    """The runs of some answers, and the number of the window of each; ``parts``: for each part as
    :func:`covered_runs` finds them."""
    if len(parts) > 1:
        return PartedRuns.of(parts, windows)
    ((group, window, low, high),) = parts
    return FragmentRuns(group, low, high), window
