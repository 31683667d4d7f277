"""Cells as rows of the partials table, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from optimizer.aggregates.exact_doubles import ExactSums, words_of
from optimizer.aggregates.ordinals import doubles_of_ordinals, ordinals_of_doubles
from optimizer.aggregates.states import DOUBLE_SUMS, State, carrier_of
from optimizer.synopses.synopsis import CARRIERS, Synopsis
from spark_jobs.store.arrays.numbering import Longs, ranked
from spark_jobs.windows.partials.combining import ragged
from spark_jobs.windows.partials.states import (
    Column,
    Fixed,
    Multiset,
    Pairs,
    Texts,
    class_of,
    offsets_of,
)

if TYPE_CHECKING:
    from spark_jobs.windows.partials.cells import Cells


@dataclass(frozen=True, eq=False)
class StoredLists:
    """One carrier of stored rows: ``values`` of all lists, ``first`` (n,) position of each, and after its fixed
    columns the ``tail`` (n,), the position of the next state of variable length.
    """

    synopsis: Synopsis
    values: Any
    first: Longs
    tail: Longs
    matrix: NDArray[Any] | None
    offset: dict[State, int]

    @staticmethod
    def of(synopsis: Synopsis, carrier: str, column: pa.ListArray) -> StoredLists:
        """The lists of a carrier as they were stored, those of one width as a matrix."""
        width = synopsis.width(carrier)
        offsets = column.offsets.to_numpy().astype(np.int64)
        values = column.values if carrier == "texts" else column.values.to_numpy(zero_copy_only=False)
        first = offsets[:-1]
        matrix = None
        if carrier != "texts":
            if len(first) and offsets[-1] - offsets[0] == width * len(first):
                matrix = values[offsets[0] : offsets[-1]].reshape(len(first), width)
            else:
                matrix = values[first[:, None] + np.arange(width)] if len(first) else values[:0].reshape(0, width)
        return StoredLists(synopsis, values, first, first + width, matrix, dict(synopsis.layout(carrier)))

    def numbers(self) -> NDArray[Any]:
        """The columns of the states of numbers, as :func:`numbers_of` has them."""
        assert self.matrix is not None
        widths = [(self.offset[state], state.width) for state in self.offset if class_of(state) is Fixed]
        columns = [first + k for first, width in widths for k in range(width)]
        return self.matrix if len(columns) == self.matrix.shape[1] else self.matrix[:, columns]

    def column(self, state: State, skip: int = 0) -> NDArray[Any]:
        """The numbers (n,) of a state; ``skip``: the column after its first."""
        assert self.matrix is not None
        return np.ascontiguousarray(self.matrix[:, self.offset[state] + skip])

    def texts(self, state: State, skip: int = 0) -> pa.StringArray:
        """The texts (n,) of a state; ``skip``: the place after its first."""
        return self.values.take(pa.array(self.first + self.offset[state] + skip))

    def tails(self, counts: Longs) -> Any:
        """The next ``counts[i]`` values of each list."""
        at = ragged(self.tail, counts)
        self.tail[:] = self.tail + counts
        return self.values.take(pa.array(at)) if isinstance(self.values, pa.Array) else self.values[at]


def _read_texts(state: State, lists: dict[str, StoredLists]) -> Texts:
    assert state.type is not None
    ranks, texts = ranked(lists["texts"].texts(state), state.type)
    identity = state.definition.identity
    assert identity is not None
    ranks[ranks < 0] = identity
    return Texts(ranks, texts)


def _read_pairs(state: State, lists: dict[str, StoredLists]) -> Pairs:
    assert state.type is not None and state.by_type is not None
    stored = lists["longs"]
    present = stored.column(state).astype(np.int8)
    columns: list[tuple[Longs, pa.StringArray | None]] = []
    used = {"longs": 1, "texts": 0}
    for type in (state.by_type, state.type):
        if carrier_of(type) == "texts":
            ranks, texts = ranked(lists["texts"].texts(state, used["texts"]), type)
            columns.append((np.maximum(ranks, 0), texts))
            used["texts"] += 1
        else:
            columns.append((stored.column(state, used["longs"]), None))
            used["longs"] += 1
    (order, order_texts), (value, value_texts) = columns
    return Pairs(present, order, value, order_texts, value_texts)


def _read_multiset(state: State, lists: dict[str, StoredLists]) -> Multiset:
    counts = lists["longs"].column(state)
    assert state.tail is not None
    values, texts = lists[state.tail].tails(counts), None
    if state.tail == "doubles":
        values = ordinals_of_doubles(values)
    elif state.tail == "texts":
        assert state.type is not None
        values, texts = ranked(values, state.type)
    return Multiset(offsets_of(counts), values, lists["longs"].tails(counts), texts)


def _read_sums(state: State, lists: dict[str, StoredLists]) -> ExactSums:
    if state.carrier == "doubles":
        return ExactSums.of_pairs(lists["doubles"].column(state), lists["doubles"].column(state, 1))
    heads = lists["longs"].column(state)
    counts = words_of(heads)
    places = lists["longs"].tail.copy()
    lists["longs"].tail[:] = places + counts
    return ExactSums.unpacked(heads, [(lists["longs"].values, places)])


READERS: dict[type, Callable[[State, dict[str, StoredLists]], Any]] = {
    Texts: _read_texts,
    Pairs: _read_pairs,
    Multiset: _read_multiset,
    ExactSums: _read_sums,
}


class WrittenLists:
    """The list columns of cells: for each carrier the fixed columns, and the tails (n, variable) in their order."""

    def __init__(self, cells: Cells) -> None:
        self.rows = len(cells)
        self.numbers: dict[str, Any] = {"longs": cells.longs, "doubles": cells.doubles}
        self.fixed: dict[str, list[Any]] = {carrier: [] for carrier in CARRIERS}
        self.tails: dict[str, list[tuple[Longs, Any]]] = {carrier: [] for carrier in CARRIERS}
        for state in cells.synopsis.states if cells.others else ():
            column = cells.states[state]
            _WRITERS[type(column)](self, state, column)

    def column(self, carrier: str) -> pa.ListArray:
        """A carrier's lists as a column to store: numbers of fixed width, then the tails."""
        fixed, tails = self.fixed[carrier], self.tails[carrier]
        if carrier == "texts":
            return self._texts(fixed, tails)
        values = np.concatenate(fixed, axis=1) if fixed else self.numbers[carrier]
        width = values.shape[1]
        lengths = np.full(self.rows, width, dtype=np.int64)
        for counts, _ in tails:
            lengths += counts
        offsets = offsets_of(lengths)
        flat = values.reshape(-1)
        if tails:
            flat = np.empty(offsets[-1], dtype=values.dtype)
            flat[offsets[:-1, None] + np.arange(width)] = values
            at = offsets[:-1] + width
            for counts, tail in tails:
                flat[ragged(at, counts)] = tail
                at = at + counts
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(flat))

    def _texts(self, fixed: list[Any], tails: list[tuple[Longs, Any]]) -> pa.ListArray:
        """Lists of texts: the texts of all states are concatenated and then taken in the order of the rows."""
        parts = [(np.ones(self.rows, dtype=np.int64), texts) for texts in fixed] + tails
        lengths = np.zeros(self.rows, dtype=np.int64)
        for counts, _ in parts:
            lengths += counts
        offsets = offsets_of(lengths)
        source = np.empty(offsets[-1], dtype=np.int64)
        at, base = offsets[:-1], 0
        for counts, texts in parts:
            source[ragged(at, counts)] = np.arange(base, base + len(texts))
            at, base = at + counts, base + len(texts)
        every = pa.concat_arrays([pa.array([], pa.string()), *(texts for _, texts in parts)])
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), every.take(pa.array(source)))


def _texts_at(texts: pa.StringArray, ranks: Longs) -> pa.StringArray:
    known = (ranks >= 0) & (ranks < len(texts))
    return texts.take(pa.array(np.where(known, ranks, 0), mask=~known))


def _write_fixed(out: WrittenLists, state: State, column: Fixed) -> None:
    out.fixed[state.carrier].append(column.values)


def _write_texts(out: WrittenLists, state: State, column: Texts) -> None:
    out.fixed["texts"].append(_texts_at(column.texts, column.ranks))


def _write_pairs(out: WrittenLists, state: State, column: Pairs) -> None:
    out.fixed["longs"].append(column.present.astype(np.int64)[:, None])
    absent = column.present < 0
    sides = (column.order, column.order_texts, absent), (column.value, column.value_texts, column.present < 1)
    for values, texts, null in sides:
        if texts is not None:
            out.fixed["texts"].append(_texts_at(texts, np.where(null, -1, values)))
        else:
            out.fixed["longs"].append(np.where(null, 0, values)[:, None])


def _write_multiset(out: WrittenLists, state: State, column: Multiset) -> None:
    counts = np.diff(column.offsets)
    out.fixed["longs"].append(counts[:, None])
    assert state.tail is not None
    values: Any = column.values
    if state.tail == "doubles":
        values = doubles_of_ordinals(values)
    elif state.tail == "texts":
        assert column.texts is not None
        values = _texts_at(column.texts, values)
    out.tails[state.tail].append((counts, values))
    out.tails["longs"].append((counts, column.weights))


def _write_sums(out: WrittenLists, state: State, column: ExactSums) -> None:
    assert state.kind in DOUBLE_SUMS, "earlier versions' sums of doubles are read only"
    heads, counts, words = column.packed()
    out.fixed["longs"].append(heads[:, None])
    out.tails["longs"].append((counts, words))


_WRITERS: dict[type, Callable[[WrittenLists, State, Any], None]] = {
    Fixed: _write_fixed,
    Texts: _write_texts,
    Pairs: _write_pairs,
    Multiset: _write_multiset,
    ExactSums: _write_sums,
}


MOST_BYTES = 1 << 30
"""Bytes of a piece of a column of bytes, which Arrow counts in 32 bits."""


@numba.njit(cache=True)
def _take_rows(words, starts, out):
    for i in range(len(starts)):
        for column in range(out.shape[1]):
            out[i, column] = words[starts[i] + column]


@numba.njit(cache=True)
def _put_states(words, starts, longs, doubles, heads, tails, used):
    """Write each row (n,) from its start on: longs, doubles, the heads of its sums, then their words.

    ``tails``: the words of all sums, one sum after the other; ``used`` (s,): where those of each sum begin.
    """
    for i in range(len(starts)):
        at = starts[i]
        for column in range(longs.shape[1]):
            words[at + column] = longs[i, column]
        at += longs.shape[1]
        for column in range(doubles.shape[1]):
            words[at + column] = doubles[i, column]
        at += doubles.shape[1]
        for column in range(heads.shape[1]):
            words[at + column] = heads[i, column]
        at += heads.shape[1]
        for column in range(heads.shape[1]):
            count = (((heads[i, column] >> 4) & 4095) + 1) >> 1
            for word in range(used[column], used[column] + count):
                words[at] = tails[word]
                at += 1
            used[column] += count


def stored_numbers(synopsis: Synopsis, column: pa.ChunkedArray) -> tuple[Longs, NDArray[np.float64], dict[State, Any]]:
    """The longs (n, w) and the doubles (n, v) of rows whose states are all numbers, and their exact sums of doubles."""
    sums = [state for state in synopsis.states if state.kind in DOUBLE_SUMS]
    longs, doubles = synopsis.width("longs") - len(sums), synopsis.width("doubles")
    width, first = longs + doubles + len(sums), 0
    integers, real = np.empty((len(column), longs), dtype=np.int64), np.empty((len(column), doubles))
    heads = [np.empty((len(column), 1), dtype=np.int64) for _ in sums]
    tails: list[list[tuple[Longs, Longs]]] = [[] for _ in sums]
    for chunk in column.chunks:
        rows = len(chunk)
        if rows == 0:
            continue
        _, offsets, data = chunk.buffers()
        bounds = np.frombuffer(offsets, dtype=np.int32)[chunk.offset : chunk.offset + rows + 1].astype(np.int64)
        words = np.frombuffer(data, dtype="<i8", count=int(bounds[-1] - bounds[0]) // 8, offset=int(bounds[0]))
        starts, lengths = (bounds[:-1] - bounds[0]) // 8, np.diff(bounds)
        part = slice(first, first + rows)
        if (lengths < 8 * width).any():
            raise ValueError(f"partial rows of {synopsis.fingerprint} do not have {width} numbers each")
        _take_rows(words, starts, integers[part])
        _take_rows(words, starts + longs, real.view(np.int64)[part])
        at = starts + width
        for place, (head, tail) in enumerate(zip(heads, tails, strict=True), longs + doubles):
            _take_rows(words, starts + place, head[part])
            tail.append((words, at))
            at = at + words_of(head[part, 0])
        if (8 * (at - starts) != lengths).any():
            raise ValueError(
                f"partial rows of {synopsis.fingerprint} do not have {width} numbers each, and words of sums"
            )
        first += rows
    exact = {state: ExactSums.unpacked(head[:, 0], tail) for state, head, tail in zip(sums, heads, tails, strict=True)}
    layout = synopsis.layout("doubles")
    exact |= {state: ExactSums.of_pairs(real[:, at], real[:, at + 1]) for state, at in layout if state.is_of_doubles}
    plain_places = [at for state, at in layout if not state.is_of_doubles]
    real = real if len(plain_places) == doubles else np.ascontiguousarray(real[:, plain_places])
    return integers, real, exact


class NumberStates(NamedTuple):
    """Rows whose states are all numbers: ``longs`` (n, w), ``doubles`` (n, v), and the exact ``sums`` of doubles."""

    longs: Longs
    doubles: NDArray[np.float64]
    sums: Sequence[ExactSums]

    @property
    def widest(self) -> int:
        """Numbers of the longest row, at most."""
        limbs = sum(column.limbs.shape[1] // 2 + 1 for column in self.sums)
        return self.longs.shape[1] + self.doubles.shape[1] + len(self.sums) + limbs

    def within(self, rows: slice) -> NumberStates:
        """Select the states of a slice of rows."""
        return NumberStates(self.longs[rows], self.doubles[rows], [column.within(rows) for column in self.sums])


def written_numbers(states: NumberStates) -> pa.ChunkedArray:
    """The inverse of :func:`stored_numbers`: the longs, the doubles, the heads of the exact sums, then their words."""
    rows, most = len(states.longs), MOST_BYTES // (8 * states.widest)
    cuts = [slice(first, min(first + most, rows)) for first in range(0, rows, most)]
    return pa.chunked_array(
        [placed_numbers([states.within(cut)], np.arange(cut.stop - cut.start)) for cut in cuts], pa.binary()
    )


def placed_numbers(parts: Sequence[NumberStates], places: Longs) -> pa.BinaryArray:
    """Write all parts at once, as :func:`written_numbers`; ``places`` (n,): the row of the result for each of their
    rows. At most :data:`MOST_BYTES`.
    """
    cuts = np.cumsum([0, *(len(part.longs) for part in parts)])
    packed = [[column.packed() for column in part.sums] for part in parts]
    lengths = np.empty(len(places), dtype=np.int64)
    for part, sums, first, last in zip(parts, packed, cuts, cuts[1:], strict=False):
        width = part.longs.shape[1] + part.doubles.shape[1] + len(sums)
        lengths[places[first:last]] = sum((counts for _, counts, _ in sums), np.full(last - first, width))
    offsets = offsets_of(lengths)
    words = np.empty(offsets[-1], dtype="<i8")
    none = np.empty(0, dtype=np.int64)
    for part, sums, first, last in zip(parts, packed, cuts, cuts[1:], strict=False):
        heads = np.empty((last - first, len(sums)), dtype=np.int64)
        for column, (head, _, _) in enumerate(sums):
            heads[:, column] = head
        used = np.cumsum([0, *(len(tail) for _, _, tail in sums)])[: len(sums)]
        tails = np.concatenate([none, *(tail for _, _, tail in sums)])
        starts = offsets[places[first:last]]
        _put_states(words, starts, part.longs, part.doubles.view(np.int64), heads, tails, used)
    buffers = [None, pa.py_buffer((8 * offsets).astype(np.int32)), pa.py_buffer(words)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(places), buffers)


def is_all_numbers(columns: Mapping[State, Column]) -> bool:
    """Return whether all states outside the matrices of cells are exact sums of doubles."""
    return all(isinstance(column, ExactSums) for column in columns.values())


def combined_chunks(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
