"""States of the events of a batch: numbers, texts, pairs and multisets lifted into cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.exact_doubles import ExactSums, Terms
from optimizer.aggregates.ordinals import doubles_of_ordinals, ordinals_of_doubles
from optimizer.aggregates.sketches import precision_of, registers_of, thin_frequent, thin_quantiles
from optimizer.aggregates.states import BOTH, EXACT_BOTH, EXACT_POWERS, ROWS, State, limbs_of
from spark_jobs.store.arrays.numbering import Longs, Rows
from spark_jobs.windows.partials.cells import Cells
from spark_jobs.windows.partials.combining import winners
from spark_jobs.windows.partials.kernels import lift_exact_powers, lift_exact_products, lift_numbers, lift_words
from spark_jobs.windows.partials.states import Multiset, Pairs, Texts, carry, numbers_of, united
from spark_jobs.windows.partials.values import Batch, Values

_POWERS = {"sum": 1, "total": 1, "sum_squares": 2, "sum_cubes": 3, "sum_fourths": 4}


@dataclass(frozen=True, eq=False)
class LiftedEvents:
    """The events of a batch that are in some cell: ``rows`` (k,) of them, empty: all; the cell (k,) of each; how many
    events (c,) each cell has."""

    rows: Rows
    cell: Rows
    counts: Longs

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """Select from the values (n,) of the batch those of the lifted events."""
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
            if state.definition.identity:
                self.longs[:, at] = state.definition.identity

    def lift(self, values: Values, states: Sequence[State]) -> None:
        """Fill the columns of the states of one argument."""
        cell, rows, valid = self.events.cell, self.events.rows, values.valid
        self._lift_exact_powers(values, valid, [state for state in states if state.kind in EXACT_POWERS])
        self._lift_doubles(values, _by_code([state for state in states if state.carrier == "doubles"]))
        numbers = []
        for state in states:
            if state.kind in EXACT_POWERS or state.carrier == "doubles":
                continue
            first = self.places["longs"][state]
            if state.kind == "count" and len(valid) == 0:
                self.longs[:, first] = self.events.counts
            elif state.kind == "sum" and limbs_of(values.type) == 4:
                lift_words(cell, rows, *values.words, valid, self.longs, first)
                carry(self.longs[:, first : first + 4])
            else:
                numbers.append(state)
        if numbers:
            is_count = [state.kind for state in numbers] == ["count"]
            # a count alone needs no values, whatever they are
            longs = valid.view(np.int8).astype(np.int64) if is_count else values.longs
            self._lift(longs, valid, _by_code(numbers))

    def lift_both(self, first: Values, second: Values, states: Sequence[State]) -> None:
        """Fill the columns of the states of two numbers, over the events where neither is null."""
        valid = valid_in_both(first, second)
        self._lift_exact_pairs(first, second, valid, [state for state in states if state.kind in EXACT_BOTH])
        for state in states:
            if state.kind == "both":
                self._lift(np.zeros(len(valid) or len(first.array), dtype=np.int64), valid, [state])

    def _lift(self, longs: Longs, valid: NDArray[np.bool_], states: Sequence[State]) -> None:
        """Lift integers into states of one or two columns."""
        operations, columns = _lifted_by(states), np.array([self.places["longs"][state] for state in states])
        lift_numbers(self.events.cell, self.events.rows, longs, valid, False, self.longs, operations, columns)
        for state in states:
            if state.definition.form == "limbs":
                first = self.places["longs"][state]
                carry(self.longs[:, first : first + 2])

    def _lift_exact_powers(self, values: Values, valid: NDArray[np.bool_], states: Sequence[State]) -> None:
        """Sums of powers of integers and decimals."""
        for state in states:
            first, exponent = self.places["longs"][state], EXACT_POWERS[state.kind]
            arguments = *values.halves, valid, self.longs, first, state.width
            lift_exact_powers(self.events.cell, self.events.rows, *arguments, exponent)
            carry(self.longs[:, first : first + state.width])

    def _lift_exact_pairs(
        self, first: Values, second: Values, valid: NDArray[np.bool_], states: Sequence[State]
    ) -> None:
        """Sums of powers and products of integers and decimals."""
        cell, rows = self.events.cell, self.events.rows
        for state in states:
            of_x, of_y = EXACT_BOTH[state.kind]
            at = self.places["longs"][state]
            limbs = self.longs, at, state.width
            if of_x and of_y:
                lift_exact_products(cell, rows, *first.halves, *second.halves, valid, *limbs)
            else:
                lift_exact_powers(cell, rows, *(first if of_x else second).halves, valid, *limbs, of_x + of_y)
            carry(self.longs[:, at : at + state.width])

    def _lift_doubles(self, values: Values, states: Sequence[State]) -> None:
        """Lift doubles, as ordinals, into states of one column."""
        if not states:
            return
        ordinals, columns = self.doubles.view(np.int64), [self.places["doubles"][state] for state in states]
        no_doubles = np.array([state.definition.no_double for state in states])
        ordinals[:, columns] = ordinals_of_doubles(no_doubles)
        arguments = values.doubles.view(np.int64), values.valid, True, ordinals, _lifted_by(states), np.array(columns)
        lift_numbers(self.events.cell, self.events.rows, *arguments)
        for column in columns:
            self.doubles[:, column] = doubles_of_ordinals(ordinals[:, column])


def _by_code(states: Sequence[State]) -> list[State]:
    """States by their code: kernels lift the least and the greatest value together."""
    return sorted(states, key=lambda state: state.definition.code or 0)


def _lifted_by(states: Sequence[State]) -> Longs:
    """The codes (s,) that lift some states."""
    kinds = [state.definition for state in states]
    return np.array([kind.code if kind.lift is None else kind.lift for kind in kinds], dtype=np.int64)


def valid_in_both(first: Values, second: Values) -> NDArray[np.bool_]:
    """Return where neither of two arguments is null; empty: everywhere."""
    if not len(second.valid):
        return first.valid
    return second.valid & first.valid if len(first.valid) else second.valid


def terms_of(batch: Batch, state: State) -> tuple[tuple[Terms, ...], int]:
    """Return what an exact sum adds up: its terms (one, or the two that are multiplied) and their power."""
    assert state.argument is not None
    kind, values = state.kind.removeprefix("exact_"), batch.values(state.argument)
    if kind == "sum_logs":
        return (values.logarithms,), 1
    if kind not in BOTH:
        return (values.terms,), _POWERS[kind]
    assert state.by is not None
    names = kind.removeprefix("both_")
    chosen = {"x": values, "y": batch.values(state.by)}
    return tuple(chosen[name].terms for name in dict.fromkeys(names)), 2 if names in ("xx", "yy") else 1


def lift_sums(batch: Batch, events: LiftedEvents, state: State) -> ExactSums:
    """The exact sums of doubles of each cell."""
    assert state.argument is not None
    valid = batch.values(state.argument).valid
    if state.by is not None:
        valid = valid_in_both(batch.values(state.argument), batch.values(state.by))
    return ExactSums.lifted(events.cell, events.rows, len(events.counts), valid, *terms_of(batch, state))


def lift_texts(batch: Batch, events: LiftedEvents, state: State) -> Texts:
    """The least or greatest text of each cell."""
    assert state.argument is not None
    values = batch.values(state.argument)
    identity = state.definition.identity
    assert identity is not None
    out = np.full((len(events.counts), 1), identity, dtype=np.int64)
    first = np.zeros(1, dtype=np.int64)
    lift_numbers(events.cell, events.rows, values.longs, values.valid, False, out, _lifted_by([state]), first)
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
    multiset = united(state, cell, longs, np.ones(len(longs), dtype=np.int64), len(events.counts), None)
    if state.tail != "texts":
        return multiset
    ranks, texts = values.kept(multiset.values, np.ones(len(multiset.values), dtype=bool), 0)
    return Multiset(multiset.offsets, ranks, multiset.weights, texts)


_THIN = {"quantiles": thin_quantiles, "frequent": thin_frequent}


def thinned(cells: Cells) -> Cells:
    """The cells with their sketches no larger than the permitted errors ask for."""
    other_states = dict(cells.others)
    for state, column in cells.others.items():
        if state.kind in _THIN:
            assert state.error is not None and isinstance(column, Multiset)
            arrays = _THIN[state.kind](column.offsets, column.values, column.weights, state.error)
            other_states[state] = Multiset(*arrays, column.texts)
    return replace(cells, others=other_states)
