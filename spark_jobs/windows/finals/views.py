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
        self._windows: dict[str, tuple[Longs, Longs]] = {}

    def windows(self, windowed: WindowedQuery) -> tuple[Longs, Longs]:
        """The fragments [low, high) of the grid under each part of each of a query's windows: (p, w)."""
        name, moments = windowed.query.name, windowed.instants
        if name not in self._windows:
            parts = windowed.query.window.each
            self._windows[name] = (
                np.array([np.searchsorted(self.grid, starts_of(part, moments)) for part in parts]),
                np.array([np.searchsorted(self.grid, ends_of(part, moments)) for part in parts]),
            )
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

    def answers(self, windowed: WindowedQuery, spans: Sequence[tuple[int, int]]) -> Iterator[AnswerBatch]:
        """The answers of a query for its instants in some spans [first, last), by span, group and instant, as many at
        once as its block has, of whatever spans."""
        lows, highs = self.view.windows(windowed)
        filled = [first + np.flatnonzero((lows[:, first:last] < highs[:, first:last]).any(0)) for first, last in spans]
        size = min(windowed.block, self.groups * sum(map(len, filled)))
        group, window = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
        low, high = np.empty((2, len(lows), size), dtype=np.int64)
        written = group, window, low, high
        grid, at = (self.slots, self.offsets, len(self.view.grid)), 0
        for first, last, windows in self._pieces(filled, windowed.block):
            if at + (last - first) * len(windows) > size:
                yield from self._answered(windowed, at, *written)
                at = 0
            at = covered_runs(*grid, first, last, windows, lows, highs, at, *written)
        yield from self._answered(windowed, at, *written)

    def _pieces(self, filled: Sequence[Longs], most: int) -> Iterator[tuple[int, int, Longs]]:
        """Pieces of the work on some windows, by their numbers, span by span, with at most so many answers: groups
        [first, last), and windows."""
        for windows in filled:
            groups = max(1, most // max(1, len(windows)))
            for group in range(0, self.groups if len(windows) else 0, groups):
                for at in range(0, len(windows), most):
                    yield group, min(group + groups, self.groups), windows[at : at + most]

    def _answered(
        self, windowed: WindowedQuery, answers: int, group: Longs, window: Longs, low: Longs, high: Longs
    ) -> Iterator[AnswerBatch]:
        """The answers that exist and qualify of the first ``answers`` of some runs."""
        if not answers:
            return
        parts = [
            FragmentRuns(group[:answers], *bounds) for bounds in zip(low[:, :answers], high[:, :answers], strict=True)
        ]
        runs = PartedRuns.together(parts) if len(parts) > 1 else parts[0]
        batch, _ = AnswerBatch(windowed, self, runs, windowed.instants[window[:answers]]).qualifying()
        if len(batch.instants):
            yield batch
