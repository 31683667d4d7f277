"""Rows of one synopsis from the stored rows of another: rolled up, with empty states where that one has none.

A cell may have any number of rows. So values from stored rows and values lifted from events are in separate rows,
each with the identities of the states that the other has; the final stage combines them. The tuples of a cell are
counted in the rows that were rolled up; its lifted rows count none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from optimizer.aggregates.exact_doubles import ExactSums
from optimizer.aggregates.states import ROWS, State, carrier_of
from optimizer.synopses.synopsis import Synopsis
from spark_jobs.store.settings import TaskMemory
from spark_jobs.windows.partials.cells import Cells, concatenated
from spark_jobs.windows.partials.fill_request import FillRequest, by_fingerprint
from spark_jobs.windows.partials.states import Column, Fixed, Multiset, Pairs, Texts, class_of, numbers_of


def completed(cells: Cells, synopsis: Synopsis, is_counted: bool) -> Cells:
    """Cells under a synopsis that has more filters, which nothing passes, and more states, which hold nothing.
    ``is_counted``: other rows of the same cells count the tuples."""
    matrices: dict[str, NDArray[Any]] = {}
    for carrier, stored in (("longs", cells.longs), ("doubles", cells.doubles)):
        before, places = (numbers_of(each.states)[carrier] for each in (cells.synopsis, synopsis))
        out = np.zeros((len(cells), sum(state.width for state in places)), dtype=stored.dtype)
        for state, at in places.items():
            if state in before:
                values = stored[:, before[state] : before[state] + state.width]
                out[:, at : at + state.width] = 0 if state == ROWS and is_counted else values
            else:
                kind = state.definition
                no_value = kind.no_double if carrier == "doubles" else kind.identity
                assert no_value is not None
                out[:, at : at + state.width] = no_value
        matrices[carrier] = out
    other_states = {
        state: cells.others[state] if state in cells.others else _nothing(state, len(cells))
        for state in synopsis.states
        if class_of(state) is not Fixed
    }
    shards = np.zeros(len(cells), dtype=np.int64)
    for bit, predicate in enumerate(cells.synopsis.predicates):
        shards |= ((cells.shards >> bit) & 1) << synopsis.predicates.index(predicate)
    place = cells.starts, cells.ends, shards, cells.group, cells.groups, cells.key_columns
    return Cells(synopsis, *place, matrices["longs"], matrices["doubles"], other_states)


def _nothing(state: State, cells: int) -> Column:
    """The column of a state for a number of ``cells`` that hold nothing."""
    empty, zeros = pa.array([], pa.string()), np.zeros(cells, dtype=np.int64)
    if class_of(state) is ExactSums:
        return ExactSums.nothing(cells)
    if class_of(state) is Texts:
        return Texts(np.full(cells, state.definition.identity, dtype=np.int64), empty)
    if class_of(state) is Pairs:
        assert state.type is not None and state.by_type is not None
        texts = [empty if carrier_of(type_) == "texts" else None for type_ in (state.by_type, state.type)]
        return Pairs(np.full(cells, -1, dtype=np.int8), zeros, zeros, *texts)
    none = np.zeros(0, dtype=np.int64)
    return Multiset(np.zeros(cells + 1, dtype=np.int64), none, none, empty if state.tail == "texts" else None)


class _Part(NamedTuple):
    """Part of a request that a stored synopsis gives; ``is_counted``: another one counts the tuples."""

    request: FillRequest
    stored: Synopsis
    given: Synopsis
    is_counted: bool


class Derivation:
    """Rolls stored rows up into those of other synopses, for the requests that name some (``stored``).

    ``write`` takes rows of the partials table whenever they take more than ``memory`` allows.
    :attr:`rows`: stored rows that were of use so far.
    """

    def __init__(
        self, requests: Sequence[FillRequest], memory: TaskMemory, write: Callable[[Iterable[pa.Table]], Any]
    ) -> None:
        self.memory, self.write = memory, write
        self.rows = 0
        self._parts: list[_Part] = []
        self._numbers: dict[str, list[int]] = {}
        for request in requests:
            for stored, parts in zip(request.stored, request.given, strict=True):
                for synopsis, is_counted in parts:
                    self._numbers.setdefault(stored.fingerprint, []).append(len(self._parts))
                    self._parts.append(_Part(request, stored, synopsis, is_counted))
        self._cells: dict[int, list[Cells]] = {}
        self._size = 0

    def add(self, rows: pa.Table) -> None:
        """Roll up partial rows of any synopses, all with a key."""
        for fingerprint, stored_rows in by_fingerprint(rows).items():
            numbers = self._numbers.get(fingerprint, [])
            if not numbers:
                continue
            stored_cells = Cells.decode(self._parts[numbers[0]].stored, stored_rows)
            self.rows += len(stored_cells)
            for number in numbers:
                part = self._parts[number]
                cells = stored_cells.rolled_up(part.given, part.request.begin, part.request.end)
                if len(cells):
                    self._cells.setdefault(number, []).append(cells)
                    self._size += cells.size
            if self._size > self.memory.cells:
                self.write(self.tables())

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows that were rolled up since the last call."""
        waiting, self._cells, self._size = self._cells, {}, 0
        for number, cells in waiting.items():
            part = self._parts[number]
            # sketches are not thinned: they were when they were stored, and would be off by both
            yield completed(concatenated(cells).to_store(), part.request.synopsis, part.is_counted).encode()
