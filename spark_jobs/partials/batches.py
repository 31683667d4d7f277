"""States of the events of a batch: numbers, texts, pairs and multisets lifted into cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.ordinals import doubles_of_ordinals
from optimizer.aggregates.sketches import precision_of, registers_of, thin_frequent, thin_quantiles
from optimizer.aggregates.states import BOTH, EXACT_BOTH, EXACT_POWERS, ROWS, State, limbs_of
from spark_jobs.arrays.numbering import Longs, Rows
from spark_jobs.partials.cells import Cells
from spark_jobs.partials.combining import winners
from spark_jobs.partials.kernels import (
    LEAST_DOUBLE,
    NAN,
    lift_doubles,
    lift_exact_powers,
    lift_exact_products,
    lift_longs,
    lift_powers,
    lift_products,
    lift_words,
    logarithms,
)
from spark_jobs.partials.states import IDENTITIES, Multiset, Pairs, Texts, carry, numbers_of, united
from spark_jobs.partials.values import Batch, Values

_LONGS = ("count", "sum", "min", "max", "bit_and", "bit_or", "bit_xor")

_DOUBLES = ("total", "sum_squares", "min", "max")

_POWERS = ("sum_cubes", "sum_fourths", "sum_logs")

_INITIAL = {"min": NAN, "max": LEAST_DOUBLE}


@dataclass(frozen=True, eq=False)
class LiftedEvents:
    """The events of a batch that are in some cell: ``rows`` (k,) of them, empty: all; the cell (k,) of each; how many
    events (c,) each cell has."""

    rows: Rows
    cell: Rows
    counts: Longs

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """What they have of some values (n,) of the batch."""
        return values[self.rows] if len(self.rows) else values

    def row_of(self, event: Any) -> Any:
        """Rows of the batch of some events."""
        return self.rows[event] if len(self.rows) else event


class LiftedNumbers:
    """The states of numbers of a batch's cells: matrices that the kernels fill, one pass over an argument's values."""

    def __init__(self, states: Sequence[State], events: LiftedEvents) -> None:
        self.events = events
        self.places = numbers_of(states)
        widths = {carrier: sum(state.width for state in places) for carrier, places in self.places.items()}
        self.longs = np.zeros((len(events.counts), widths["longs"]), dtype=np.int64)
        self.doubles = np.zeros((len(events.counts), widths["doubles"]))
        self.longs[:, self.places["longs"][ROWS]] = events.counts
        for state, at in self.places["longs"].items():
            if state.operation in IDENTITIES and state.operation != "add":
                self.longs[:, at] = IDENTITIES[state.operation]

    def lift(self, values: Values, states: Sequence[State]) -> None:
        """Fill the columns of the states of one argument."""
        cell, rows, valid = self.events.cell, self.events.rows, values.valid
        at = {state.kind: self.places[state.carrier][state] for state in states if state.kind not in EXACT_POWERS}
        self._lift_exact_powers(values, valid, [state for state in states if state.kind in EXACT_POWERS])
        if "count" in at and len(valid) == 0:
            self.longs[:, at.pop("count")] = self.events.counts
        self._lift_powers(values, {kind: at.pop(kind) for kind in _POWERS if kind in at})
        if values.type.name == "double":
            # its sum and its total are one
            self._lift_doubles(values, {"total" if kind == "sum" else kind: column for kind, column in at.items()})
            at = {kind: column for kind, column in at.items() if kind == "count"}
        elif "total" in at or "sum_squares" in at:
            self._lift_doubles(values, {kind: at.pop(kind) for kind in ("total", "sum_squares") if kind in at})
        if "sum" in at and limbs_of(values.type) == 4:
            first = at.pop("sum")
            lift_words(cell, rows, *values.words, valid, self.longs, first)
            carry(self.longs[:, first : first + 4])
        if at:
            # a count alone needs no values, whatever they are
            longs = valid.view(np.int8).astype(np.int64) if list(at) == ["count"] else values.longs
            lift_longs(cell, rows, longs, valid, self.longs, *(at.get(kind, -1) for kind in _LONGS))
        if "sum" in at:
            carry(self.longs[:, at["sum"] : at["sum"] + 2])

    def _lift_powers(self, values: Values, at: dict[str, int]) -> None:
        cell, rows, valid = self.events.cell, self.events.rows, values.valid
        if "sum_logs" in at:
            self._add_doubles(logarithms(values.doubles), valid, at.pop("sum_logs"), -1)
        if at:
            columns = at.get("sum_cubes", -1), at.get("sum_fourths", -1)
            lift_powers(cell, rows, values.doubles, valid, self.doubles, *columns)

    def lift_both(self, first: Values, second: Values, states: Sequence[State]) -> None:
        """Fill the columns of the states of two numbers, over the events where neither is null."""
        cell, rows, valid = self.events.cell, self.events.rows, first.valid
        if len(second.valid):
            valid = second.valid & valid if len(valid) else second.valid
        self._lift_exact_pairs(first, second, valid, [state for state in states if state.kind in EXACT_BOTH])
        at = {state.kind: self.places[state.carrier][state] for state in states if state.kind in BOTH}
        count, *sums, products = (at.get(kind, -1) for kind in BOTH)
        if count >= 0:
            ones = np.zeros(len(valid) or len(first.array), dtype=np.int64)
            lift_longs(cell, rows, ones, valid, self.longs, count, *[-1] * (len(_LONGS) - 1))
        for values, total, squares in zip((first, second), sums[:2], sums[2:], strict=True):
            if total >= 0 or squares >= 0:
                self._add_doubles(values.doubles, valid, total, squares)
        if products >= 0:
            lift_products(cell, rows, first.doubles, second.doubles, valid, self.doubles, products)

    def _lift_exact_powers(self, values: Values, valid: NDArray[np.bool_], states: Sequence[State]) -> None:
        """Sums of powers of integers and decimals."""
        for state in states:
            first, exponent = self.places["longs"][state], EXACT_POWERS[state.kind]
            limbs = self.longs[:, first : first + state.width]
            lift_exact_powers(self.events.cell, self.events.rows, *values.halves, valid, limbs, exponent)
            carry(limbs)

    def _lift_exact_pairs(
        self, first: Values, second: Values, valid: NDArray[np.bool_], states: Sequence[State]
    ) -> None:
        """Sums of powers and products of integers and decimals."""
        cell, rows = self.events.cell, self.events.rows
        for state in states:
            of_x, of_y = EXACT_BOTH[state.kind]
            limbs = self.longs[:, self.places["longs"][state] : self.places["longs"][state] + state.width]
            if of_x and of_y:
                lift_exact_products(cell, rows, *first.halves, *second.halves, valid, limbs)
            else:
                lift_exact_powers(cell, rows, *(first if of_x else second).halves, valid, limbs, of_x + of_y)
            carry(limbs)

    def _add_doubles(self, numbers: NDArray[np.float64], valid: NDArray[np.bool_], total: int, squares: int) -> None:
        if total >= 0 or squares >= 0:
            given = numbers, numbers.view(np.int64), valid
            out = self.doubles, self.doubles.view(np.int64)
            lift_doubles(self.events.cell, self.events.rows, *given, *out, total, squares, -1, -1)

    def _lift_doubles(self, values: Values, at: dict[str, int]) -> None:
        if not at.keys() & set(_DOUBLES):
            return
        ordinals = self.doubles.view(np.int64)
        for kind in at.keys() & _INITIAL.keys():
            ordinals[:, at[kind]] = _INITIAL[kind]
        numbers = values.doubles
        columns = (at.get(kind, -1) for kind in _DOUBLES)
        given = numbers, numbers.view(np.int64), values.valid
        lift_doubles(self.events.cell, self.events.rows, *given, self.doubles, ordinals, *columns)
        for kind in at.keys() & _INITIAL.keys():
            self.doubles[:, at[kind]] = doubles_of_ordinals(ordinals[:, at[kind]])


def lift_texts(batch: Batch, events: LiftedEvents, state: State) -> Texts:
    """The least or greatest text of each cell."""
    assert state.argument is not None
    values = batch.values(state.argument)
    out = np.full((len(events.counts), 1), IDENTITIES[state.kind], dtype=np.int64)
    wanted = (0 if kind == state.kind else -1 for kind in _LONGS)
    lift_longs(events.cell, events.rows, values.longs, values.valid, out, *wanted)
    identity = IDENTITIES[state.kind]
    ranks, texts = values.kept(out[:, 0], out[:, 0] != identity, identity)
    assert texts is not None
    return Texts(ranks, texts)


def lift_pair(batch: Batch, events: LiftedEvents, state: State) -> Pairs:
    """The winning pair of order and value of each cell."""
    assert state.argument is not None and state.by is not None
    values, orders = batch.values(state.argument), batch.values(state.by)
    present = np.ones(batch.rows, dtype=np.int8)
    if len(values.valid):
        present[~values.valid] = 0 if state.kind in ("least_by", "greatest_by") else -1
    if len(orders.valid):
        present[~orders.valid] = -1
    best = np.full(len(events.counts), -1, dtype=np.int64)
    pairs = (events.of(column) for column in (present, orders.longs, values.exact))
    winners(events.cell, *pairs, state.operation == "greatest_by", best)
    best = events.row_of(best)
    present = present[best]
    order, order_texts = orders.kept(orders.longs[best], present >= 0, 0)
    value, value_texts = values.kept(values.exact[best], present > 0, 0)
    return Pairs(present, order, value, order_texts, value_texts)


def lift_multiset(batch: Batch, events: LiftedEvents, state: State) -> Multiset:
    """The distinct values of each cell with their counts, or the registers of their sketch."""
    assert state.argument is not None
    values = batch.values(state.argument)
    cell, rows = events.cell, events.rows
    if len(values.valid):
        known = np.flatnonzero(events.of(values.valid))
        cell, rows = cell[known], events.row_of(known)
    known_rows = rows if len(rows) or len(values.valid) else slice(None)
    if state.kind == "registers":
        assert state.error is not None
        elements, weights = registers_of(values.hashes[known_rows], precision_of(state.error))
        return united(state, cell, elements, weights, len(events.counts), None)
    longs = values.longs[known_rows]
    made = united(state, cell, longs, np.ones(len(longs), dtype=np.int64), len(events.counts), None)
    if state.tail != "texts":
        return made
    ranks, texts = values.kept(made.values, np.ones(len(made.values), dtype=bool), 0)
    return Multiset(made.offsets, ranks, made.weights, texts)


_THIN = {"quantiles": thin_quantiles, "frequent": thin_frequent}


def thinned(cells: Cells) -> Cells:
    """The cells with their sketches no larger than the permitted errors ask for."""
    others = dict(cells.others)
    for state, column in cells.others.items():
        if state.kind in _THIN:
            assert state.error is not None and isinstance(column, Multiset)
            found = _THIN[state.kind](column.offsets, column.values, column.weights, state.error)
            others[state] = Multiset(*found, column.texts)
    return replace(cells, others=others)
