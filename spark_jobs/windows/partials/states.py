"""The states of cells as arrays: fixed numbers, exact sums of doubles, ranked texts, pairs, multisets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from optimizer.aggregates.exact_doubles import ExactSums
from optimizer.aggregates.states import LIMB, MULTISETS, PAIRS, State
from spark_jobs.store.arrays.numbering import Longs, Rows, read_only
from spark_jobs.windows.partials.combining import SCATTER, ragged, reranked, unified, unite, winners


def scattered(state: State, cell: Longs, numbers: Longs, cells: int) -> Longs:
    """The numbers (n,) of a state combined into ``cells`` cells; ``cell`` (n,): into which."""
    kind = state.definition
    assert kind.code is not None and kind.identity is not None
    out = np.full(cells, kind.identity, dtype=np.int64)
    SCATTER[kind.code](cell, numbers, out)
    return out


@dataclass(frozen=True, eq=False)
class Fixed:
    """A state of numbers: ``values`` (n, width), int64 or float64."""

    values: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Texts:
    """The least or greatest text (string, decimal): ``ranks`` (n,) into the sorted ``texts``; where a cell has none,
    :data:`LONG_MAX` (min) or :data:`LONG_MIN` (max)."""

    ranks: Longs
    texts: pa.StringArray

    @property
    def size(self) -> int:
        """Bytes, about."""
        return 8 * len(self.ranks) + int(self.texts.nbytes)

    def take(self, rows: Longs) -> Texts:
        """The cells of some rows."""
        return Texts(self.ranks[rows], self.texts)

    @staticmethod
    def joined(state: State, parts: Sequence[Texts]) -> Texts:
        """Several columns one behind the other, over one set of texts."""
        renumberings, texts = unified([part.texts for part in parts], state.type)
        assert texts is not None
        return Texts(_joined_ranks([part.ranks for part in parts], renumberings), texts)

    def combined(self, state: State, cell: Longs, cells: int) -> Texts:
        """The rows combined into ``cells`` cells; ``cell`` (n,): into which."""
        return Texts(scattered(state, cell, self.ranks, cells), self.texts)


@dataclass(frozen=True, eq=False)
class Pairs:
    """A state of one pair (least_by, first, ...): for each cell the winning one of ``order`` (n,) and ``value``
    (n,).

    ``present`` (n,) int8: 1 the value is not null; 0 it is null; -1 no tuple of the cell has an order (order and
    value have no meaning). Orders and values are integers: ordinals of doubles
    (:func:`optimizer.aggregates.ordinals.ordinals_of_doubles`), or ranks into the sorted ``order_texts`` and
    ``value_texts``, which are None for other types.
    """

    present: NDArray[np.int8]
    order: Longs
    value: Longs
    order_texts: pa.StringArray | None = None
    value_texts: pa.StringArray | None = None

    @property
    def size(self) -> int:
        """Bytes, about."""
        texts = (self.order_texts, self.value_texts)
        return 17 * len(self.order) + sum(int(part.nbytes) for part in texts if part is not None)

    def take(self, rows: Longs) -> Pairs:
        """The cells of some rows."""
        arrays = self.present[rows], self.order[rows], self.value[rows]
        return Pairs(*arrays, self.order_texts, self.value_texts)

    @staticmethod
    def joined(state: State, parts: Sequence[Pairs]) -> Pairs:
        """Several columns one behind the other, over one set of texts."""
        orders, order_texts = unified([part.order_texts for part in parts], state.by_type)
        values, value_texts = unified([part.value_texts for part in parts], state.type)
        return Pairs(
            np.concatenate([part.present for part in parts]),
            _joined_ranks([part.order for part in parts], orders),
            _joined_ranks([part.value for part in parts], values),
            order_texts,
            value_texts,
        )

    def combined(self, state: State, cell: Longs, cells: int) -> Pairs:
        """The rows combined into ``cells`` cells; ``cell`` (n,): into which."""
        best = np.full(cells, -1, dtype=np.int64)
        winners(cell, self.present, self.order, self.value, state.operation == "greatest_by", best)
        return self.take(best)


def _joined_ranks(parts: Sequence[Longs], renumberings: list[Longs]) -> Longs:
    if not renumberings:
        return np.concatenate(parts)
    pairs = zip(parts, renumberings, strict=True)
    return np.concatenate([reranked(part, renumbering) for part, renumbering in pairs])


@dataclass(frozen=True, eq=False)
class Multiset:
    """A state of variable length: cell i has the distinct ``values[offsets[i]:offsets[i + 1]]``, ascending, with
    their ``weights``.

    Values are integers (decimals unscaled), ordinals of doubles
    (:func:`optimizer.aggregates.ordinals.ordinals_of_doubles`; 0.0 stands for -0.0), or ranks into the sorted
    ``texts``. For ``registers``: the register's number, weighted by its rank.
    """

    offsets: Longs
    values: Longs
    weights: Longs
    texts: pa.StringArray | None = None

    @property
    def size(self) -> int:
        """Bytes, about."""
        return 16 * len(self.values) + (int(self.texts.nbytes) if self.texts is not None else 0)

    def take(self, rows: Longs) -> Multiset:
        """The cells of some rows."""
        counts = np.diff(self.offsets)[rows]
        elements = ragged(self.offsets[:-1][rows], counts)
        return Multiset(offsets_of(counts), self.values[elements], self.weights[elements], self.texts)

    @staticmethod
    def joined(state: State, parts: Sequence[Multiset]) -> Multiset:
        """Several columns one behind the other, over one set of texts."""
        ranks, texts = unified([part.texts for part in parts], state.type)
        return Multiset(
            offsets_of(np.concatenate([np.diff(part.offsets) for part in parts])),
            _joined_ranks([part.values for part in parts], ranks),
            np.concatenate([part.weights for part in parts]),
            texts,
        )

    def combined(self, state: State, cell: Longs, cells: int) -> Multiset:
        """The rows combined into ``cells`` cells; ``cell`` (n,): into which."""
        elements = np.repeat(cell, np.diff(self.offsets))
        return united(state, elements, self.values, self.weights, cells, self.texts)


def united(
    state: State, cell: Longs | Rows, values: Longs, weights: Longs, cells: int, texts: pa.StringArray | None
) -> Multiset:
    """The multisets of ``cells`` cells from elements (m,): their cell, value and weight, in any order."""
    elements = cell.astype(np.int64, copy=False), read_only(values), read_only(weights)
    offsets, values, weights = unite(*elements, cells, state.operation == "union_max")
    return Multiset(offsets, values, weights, texts)


def offsets_of(counts: Longs) -> Longs:
    """Start of each of some lists, and end of the last (n + 1,), from their lengths (n,)."""
    out = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=out[1:])
    return out


def carry(limbs: Longs) -> None:
    """Move what exceeds 32 bits in each limb (n, limbs) of exact sums to the next, in place."""
    for limb in range(limbs.shape[1] - 1):
        limbs[:, limb + 1] += limbs[:, limb] >> LIMB
        limbs[:, limb] &= (1 << LIMB) - 1


Column = ExactSums | Texts | Pairs | Multiset

States = dict[State, Fixed | Column]
"""The columns of each state, all of n cells."""


def class_of(state: State) -> type[Fixed] | type[ExactSums] | type[Texts] | type[Pairs] | type[Multiset]:
    """The class of a state's column."""
    if state.is_of_doubles:
        return ExactSums
    if state.kind in MULTISETS:
        return Multiset
    if state.kind in PAIRS:
        return Pairs
    return Texts if state.carrier == "texts" else Fixed


NUMBERS: tuple[type, ...] = (Fixed, ExactSums)
"""Classes of states that are stored as numbers alone."""


def numbers_of(states: Iterable[State]) -> dict[str, dict[State, int]]:
    """The first column of each state of numbers in the matrix of its carrier, in the order of the states."""
    columns: dict[str, dict[State, int]] = {"longs": {}, "doubles": {}}
    widths = dict.fromkeys(columns, 0)
    for state in states:
        if class_of(state) is Fixed:
            columns[state.carrier][state] = widths[state.carrier]
            widths[state.carrier] += state.width
    return columns
