"""Numba kernels of lifting: numbering, counting, adding values to cells."""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np

from optimizer.aggregates.ordinals import ordinals_of_doubles
from optimizer.aggregates.state_kinds import LIFT_LIMBS, LIFT_ONE, MAX, MIN
from optimizer.aggregates.states import LIMB
from optimizer.combine.elements import combine_numbers
from optimizer.combine.kernel_stamps import stamp_kernels
from spark_jobs.store.arrays.numbering import DENSE, LONG_MAX, Longs, Rows, numbered


@numba.njit(cache=True)
def selected(numbers, chosen, space):
    """The rows (k,) whose number (n,) is one of the chosen (1, else 0); ``space`` (n,) is written to."""
    count = np.uint64(0)
    for i in range(len(numbers)):
        # without a branch: what passes is as good as chance
        space[count] = np.int32(i)
        count += np.uint64(chosen[np.uint32(numbers[i])])
    return space[:count].copy()


@numba.njit(cache=True)
def those_of(rows, numbers, chosen, space):
    """Select from some rows those whose number is one of the chosen; as :func:`selected`."""
    count = np.uint64(0)
    for k in range(len(rows)):
        space[count] = rows[k]
        count += np.uint64(chosen[np.uint32(numbers[np.uint32(rows[k])])])
    return space[:count].copy()


@numba.njit(cache=True)
def _codes(rows, fragment, base, group, shards, signature, shard_of, out):
    """Codes of the fragment, group and shard of some events (all, if ``rows`` is empty)."""
    for k in range(len(out)):
        i = rows[k] if len(rows) else k
        code = base[fragment[i]]
        if len(group):
            code += group[i] * shards
        if shards > 1:
            code += shard_of[signature[i]]
        out[k] = code


@numba.njit(cache=True)
def count_densely(codes, most):
    """Put the number (n,) of each code among the distinct ones in its place; those (c,), ascending; how often each
    occurs."""
    table = np.zeros(most, np.int32)
    for i in range(len(codes)):
        table[codes[i]] += 1
    count = np.count_nonzero(table)
    distinct, events = np.empty(count, np.int64), np.empty(count, np.int64)
    number = 0
    for code in range(most):
        if table[code]:
            distinct[number], events[number] = code, table[code]
            table[code] = number
            number += 1
    if count < most:
        for i in range(len(codes)):
            codes[i] = table[codes[i]]
    return distinct, events


class Coded(NamedTuple):
    """Components of the codes of events: the ``base`` (f,) of an event's ``fragment`` (n,), to which its ``group``
    (n,; empty: there is one) adds a multiple of ``shards``, and its ``signature`` (n,) its shard, ``shard_of``
    (s,). All codes are below ``most``.
    """

    fragment: Rows
    base: Longs
    group: Rows
    shards: int
    signature: Rows
    shard_of: Rows
    most: int


def numbered_cells(events: int, rows: Rows, coded: Coded) -> tuple[Rows, Longs, Longs]:
    """Return the cell (k,) of each of the ``events`` (all, if ``rows`` is empty), the code of each cell, ascending,
    and its number of events.
    """
    *made_of, most = coded
    if most <= max(DENSE, 4 * events):
        cell = np.empty(events, dtype=np.int32)
        _codes(rows, *made_of, cell)
        return cell, *count_densely(cell, most)
    codes = np.empty(events, dtype=np.int64)
    _codes(rows, *made_of, codes)
    distinct, number = numbered(codes, LONG_MAX)
    return number.astype(np.int32), distinct, np.bincount(number, minlength=len(distinct))


@numba.njit(cache=True)
def add_where(codes, passing, amount):
    """Add an amount, of their type, to the codes (n,) of the rows that pass, in place."""
    for i in range(len(codes)):
        codes[i] += amount * passing[i]


# ---------------------------------------------------------------------------------------- numba: lifting
LOW = (1 << LIMB) - 1

NAN = int(ordinals_of_doubles(np.array([np.nan]))[0])

_INFINITY = int(ordinals_of_doubles(np.array([np.inf]))[0])

_BLOCK = 512
"""Events that are lifted at once: their values stay in the first cache for all states."""


@numba.njit(cache=True)
def lift_numbers(cells, rows, values, valid, are_doubles, out, operations, columns):
    """Lift values of events (all, if ``rows`` is empty) into the cells ``out`` (c, columns), in place.

    - ``cells`` (k,): the cell of each event; ``rows`` (k,): its row in ``values`` (n,) and ``valid`` (n,; empty: all);
    - ``are_doubles``: the values are the bits of doubles, and states keep their ordinals;
    - ``operations`` (s,): the code that lifts each state (:attr:`StateKind.lift`), into the column (s,) of ``columns``,
      of limbs the lower one.
    """
    numbers, places = np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.uint32)
    for begin in range(0, len(cells), _BLOCK):
        size = np.uint64(0)
        for k in range(begin, min(begin + _BLOCK, len(cells))):
            i = np.uint32(rows[k] if len(rows) else k)
            # without a branch: which values are null is as good as chance
            number = values[i]
            if are_doubles:
                # Spark's order: NaN, with either sign, is the greatest value of all
                is_nan = (number & LONG_MAX) > _INFINITY
                number = NAN if is_nan else number ^ ((number >> 63) & LONG_MAX)
            numbers[size], places[size] = number, np.uint32(cells[k])
            size += np.uint64(valid[i] if len(valid) else 1)
        # one loop a state, its operation is decided outside; the two extremes in one loop take half the time
        state = 0
        while state < len(operations):
            column = np.uint64(columns[state])
            if operations[state] == MIN and state + 1 < len(operations) and operations[state + 1] == MAX:
                _extremes_block(numbers, places, size, out, column, np.uint64(columns[state + 1]))
                state += 2
            else:
                _lift_block(operations[state], numbers, places, size, out, column)
                state += 1


@numba.njit(cache=True, inline="always")
def _lift_block(operation, numbers, places, size, out, column):
    """Lift the first numbers of a block into one state."""
    if operation == LIFT_ONE:
        for b in range(size):
            out[places[b], column] += 1
    elif operation == LIFT_LIMBS:
        for b in range(size):
            out[places[b], column] += numbers[b] & LOW
            out[places[b], column + np.uint64(1)] += numbers[b] >> LIMB
    # min and max are in most queries, and a loop of their own takes half the time
    elif operation == MIN:
        _combine_block(MIN, numbers, places, size, out, column)
    elif operation == MAX:
        _combine_block(MAX, numbers, places, size, out, column)
    else:
        _combine_block(operation, numbers, places, size, out, column)


@numba.njit(cache=True, inline="always")
def _extremes_block(numbers, places, size, out, least, greatest):
    for b in range(size):
        out[places[b], least] = combine_numbers(MIN, out[places[b], least], numbers[b])
        out[places[b], greatest] = combine_numbers(MAX, out[places[b], greatest], numbers[b])


@numba.njit(cache=True, inline="always")
def _combine_block(operation, numbers, places, size, out, column):
    for b in range(size):
        out[places[b], column] = combine_numbers(operation, out[places[b], column], numbers[b])


@numba.njit(cache=True)
def logarithms(values):
    """Natural logarithms (n,): -inf of zeros, NaN of negative numbers."""
    out = np.empty(len(values))
    for i in range(len(values)):
        x = values[i]
        out[i] = math.log(x) if x > 0.0 else (-np.inf if x == 0.0 else np.nan)
    return out


@numba.njit(cache=True)
def lift_words(cells, rows, low, high, valid, out, total):
    """Add integers of 128 bits (a low and a high word) to the limbs of their cells, in place."""
    for k in range(len(cells)):
        i = rows[k] if len(rows) else k
        if len(valid) and not valid[i]:
            continue
        cell = cells[k]
        out[cell, total] += low[i] & LOW
        out[cell, total + 1] += (low[i] >> LIMB) & LOW
        out[cell, total + 2] += high[i] & LOW
        out[cell, total + 3] += high[i] >> LIMB


# ----------------------------------------------------------------------------------- exact powers and products
# Everything is unsigned: Numba makes a double of a sum of signed and unsigned integers.
_MASK, _HALF, _ONE = np.uint64(LOW), np.uint64(LIMB), np.uint64(1)

_SMALL = 1 << 31
"""Products of two magnitudes below this fit 62 bits."""

_SMALL_CUBE, _SMALL_FOURTH = 1 << 20, 1 << 15
"""Third and fourth powers of magnitudes below these fit 60 bits."""


@numba.njit(cache=True, inline="always")
def _magnitude(low, high, is_wide, limbs):
    """Put the limbs of the magnitude of an integer of 64 bits (128, if it ``is_wide``) in their place; how many."""
    below, above = np.uint64(low), np.uint64(high)
    if (high if is_wide else low) < 0:
        below = ~below + _ONE
        above = ~above + (_ONE if below == np.uint64(0) else np.uint64(0))
    limbs[0], limbs[1] = below & _MASK, below >> _HALF
    if not is_wide:
        return 2
    limbs[2], limbs[3] = above & _MASK, above >> _HALF
    return 4


@numba.njit(cache=True, inline="always")
def _multiply(x, x_size, y, y_size, out):
    """Put the product of two magnitudes of limbs in their place, all of ``out`` that it needs; how many limbs."""
    for i in range(x_size + y_size):
        out[i] = np.uint64(0)
    for i in range(x_size):
        above = np.uint64(0)
        if x[i] == np.uint64(0):
            continue
        for j in range(y_size):
            # at most (2**32 - 1)**2 + 2 * (2**32 - 1) = 2**64 - 1
            sum_ = x[i] * y[j] + out[i + j] + above
            out[i + j], above = sum_ & _MASK, sum_ >> _HALF
        out[i + y_size] = above
    return x_size + y_size


@numba.njit(cache=True, inline="always")
def _add_limbs(out, cell, first, width, limbs, size, is_negative):
    """Add a number of a magnitude and a sign to the limbs of a sum; limbs that it has no place for are 0."""
    for k in range(min(size, width)):
        out[cell, first + k] += -np.int64(limbs[k]) if is_negative else np.int64(limbs[k])


@numba.njit(cache=True)
def lift_exact_powers(cells, rows, low, high, valid, out, first, width, exponent):
    """Add powers (1 to 4) of integers to the limbs of their cells, in place: to ``width`` columns of ``out`` (c,
    columns) from ``first`` on. The integers have 64 bits (``high`` is empty) or 128.
    """
    value, square, power = np.zeros(4, np.uint64), np.zeros(8, np.uint64), np.zeros(16, np.uint64)
    is_wide = len(high) > 0
    small = _SMALL if exponent <= 2 else _SMALL_CUBE if exponent == 3 else _SMALL_FOURTH
    for k in range(len(cells)):
        i = rows[k] if len(rows) else k
        if len(valid) and not valid[i]:
            continue
        x, above = low[i], high[i] if is_wide else 0
        is_short = -_SMALL < x < _SMALL and (not is_wide or above == x >> 63)
        if is_short and -small < x < small:
            product = x if exponent == 1 else x * x
            if exponent == 3:
                product *= x
            elif exponent == 4:
                product *= product
            out[cells[k], first] += product & LOW
            out[cells[k], first + 1] += product >> LIMB
            continue
        is_negative = (above if is_wide else x) < 0
        size = _magnitude(x, above, is_wide, value)
        size = 1 if is_short else size
        if exponent == 1:
            _add_limbs(out, cells[k], first, width, value, size, is_negative)
            continue
        squared = _multiply(value, size, value, size, square)
        if exponent == 2:
            _add_limbs(out, cells[k], first, width, square, squared, False)
        elif exponent == 3:
            _add_limbs(out, cells[k], first, width, power, _multiply(square, squared, value, size, power), is_negative)
        else:
            _add_limbs(out, cells[k], first, width, power, _multiply(square, squared, square, squared, power), False)


@numba.njit(cache=True)
def lift_exact_products(cells, rows, x_low, x_high, y_low, y_high, valid, out, first, width):
    """Add the products of two integers to the limbs of their cells, in place; all as for :func:`lift_exact_powers`."""
    x_limbs, y_limbs, product = np.zeros(4, np.uint64), np.zeros(4, np.uint64), np.zeros(8, np.uint64)
    x_wide, y_wide = len(x_high) > 0, len(y_high) > 0
    for k in range(len(cells)):
        i = rows[k] if len(rows) else k
        if len(valid) and not valid[i]:
            continue
        x, x_above = x_low[i], x_high[i] if x_wide else 0
        y, y_above = y_low[i], y_high[i] if y_wide else 0
        is_small = -_SMALL < x < _SMALL and -_SMALL < y < _SMALL
        if is_small and (not x_wide or x_above == x >> 63) and (not y_wide or y_above == y >> 63):
            small = x * y
            out[cells[k], first] += small & LOW
            out[cells[k], first + 1] += small >> LIMB
            continue
        is_negative = ((x_above if x_wide else x) < 0) != ((y_above if y_wide else y) < 0)
        x_size = _magnitude(x, x_above, x_wide, x_limbs)
        y_size = _magnitude(y, y_above, y_wide, y_limbs)
        _add_limbs(
            out, cells[k], first, width, product, _multiply(x_limbs, x_size, y_limbs, y_size, product), is_negative
        )


stamp_kernels(globals())
