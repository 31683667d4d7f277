"""Combine many windows over one array of fragments.

A window's answer is the combine of a *run* ``[low, high)`` of consecutive stored fragments of one group. All arrays
are over the fragments of many groups, one group after the other, by time within a group; a run stays in one group.

**For batches of answers** (what Heddle runs on; :func:`combine_many` chooses by cost):

- exact integer sums (and xor): running totals, one subtraction an answer (exact even when they wrap, modulo 2**64);
- runs that move forward, as the windows of one query do: *two stacks*, at most two combines a fragment and one an
  answer, whatever the range;
- runs in any order: a *sparse table* over blocks where combining a fragment twice does no harm (least, greatest, and,
  or), else a *disjoint sparse table*: two look-ups and at most one combine an answer;
- a few short runs: one fragment after the other.

**As published** (online: one element after the other, look-ups in between): B-INT, L-INT, R-INT and what the paper
compares them with. Kept as reference and as baselines of the experiments.

Doubles are never subtracted (design.md section 6): their sums are double-doubles. Least and greatest doubles are
compared as :func:`ordinals`, in Spark's order (NaN last), so one set of kernels serves integers and doubles, and every
structure gives the same bits. Quantiles and other holistic aggregates are in :mod:`optimizer.quantiles`.

References
----------
Arasu & Widom (VLDB 2004): section 3, Figures 3 (B-INT), 5 (L-INT), 6 (R-INT), section 3.1.3 (PSoup).
Tangwongsan, Hirzel, Schneider, "Low-latency sliding-window aggregation in worst-case constant time" (DEBS 2017),
section 2: two stacks. Bender & Farach-Colton, "The LCA problem revisited" (LATIN 2000): sparse tables over blocks.
Alon & Schieber, "Optimal preprocessing for answering on-line product queries" (1987): the disjoint table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

ADD_DOUBLE, MIN, MAX, BIT_AND, BIT_OR, BIT_XOR, ADD, LEAST_PAIR, GREATEST_PAIR = range(9)
"""Operations: sum of double-doubles; least and greatest value (Spark's order: NaN last); of integers the bits that all,
some, or an odd number of fragments have set; the sum of integers modulo 2**64; pairs of integers, see
:func:`combine_pairs`."""

_IDEMPOTENT = frozenset({MIN, MAX, BIT_AND, BIT_OR, LEAST_PAIR, GREATEST_PAIR})
_SUBTRACTABLE = frozenset({ADD, BIT_XOR})
_ON_INTEGERS = frozenset({MIN, MAX, BIT_AND, BIT_OR, BIT_XOR, ADD})
_ON_DOUBLES = frozenset({ADD_DOUBLE, MIN, MAX})
_WIDE = {ADD_DOUBLE: 2, LEAST_PAIR: 3, GREATEST_PAIR: 3}

Longs = NDArray[np.int64]
Columns = tuple[NDArray[Any], ...]
"""Elements by column: one of integers, two of a double-double, three of a pair and its index."""


# -------------------------------------------------------------------------------------------- elements
# An element is a tuple of scalars. `len` of a tuple is known when a kernel is compiled, so only the branch that fits
# is compiled, and each structure is written once for all carriers.
@numba.njit(cache=True)
def _take(columns, index):
    if len(columns) == 1:
        return (columns[0][index],)
    if len(columns) == 2:
        return columns[0][index], columns[1][index]
    return columns[0][index], columns[1][index], columns[2][index]


@numba.njit(cache=True)
def _put(columns, index, element):
    columns[0][index] = element[0]
    if len(columns) > 1:
        columns[1][index] = element[1]
    if len(columns) > 2:
        columns[2][index] = element[2]


@numba.njit(cache=True)
def _join(operation, a, b):
    """Combine two elements, ``a`` the earlier: of equal pairs the first wins."""
    if len(a) == 1:
        x, y = a[0], b[0]
        if operation == MAX:
            return (max(x, y),)
        if operation == MIN:
            return (min(x, y),)
        if operation == BIT_AND:
            return (x & y,)
        if operation == BIT_OR:
            return (x | y,)
        if operation == BIT_XOR:
            return (x ^ y,)
        return (x + y,)
    if len(a) == 2:
        # the sum of two double-doubles (Dekker); an infinity or NaN carries no rounding error
        total = a[0] + b[0]
        virtual = total - a[0]
        error = (a[0] - (total - virtual)) + (b[0] - virtual) + a[1] + b[1]
        high = total + error
        if np.isfinite(high):
            return high, error - (high - total)
        return total, 0.0
    if a[0] == b[0] and a[1] == b[1]:
        return a
    return b if (a[0] < b[0] or (a[0] == b[0] and a[1] < b[1])) == (operation == GREATEST_PAIR) else a


@intrinsic
def _leading_zeros(typing_context, number):
    def code(context, builder, signature, arguments):
        return builder.ctlz(arguments[0], cgutils.false_bit)

    return numba.int64(numba.int64), code


@numba.njit(cache=True)
def _log2(number):
    return 63 - _leading_zeros(number)


_SIGNLESS = np.int64(2**63 - 1)
_INFINITY = np.float64(np.inf).view(np.int64)
_NAN = np.float64(np.nan).view(np.int64) & _SIGNLESS


@numba.njit(cache=True)
def _flip(bits, out):
    for i in range(len(bits)):
        word = bits[i]
        if (word & _SIGNLESS) > _INFINITY:
            word = _NAN
        out[i] = word ^ ((word >> 63) & _SIGNLESS)


def ordinals(values: NDArray[np.float64]) -> Longs:
    """Integers (n,) in the order of doubles (n,): -inf < ... < -0.0 < 0.0 < ... < inf < NaN (all NaN alike)."""
    out = np.empty(len(values), dtype=np.int64)
    _flip(np.ascontiguousarray(values, dtype=np.float64).view(np.int64), out)
    return out


def doubles(numbers: Longs) -> NDArray[np.float64]:
    """Inverse of :func:`ordinals`."""
    return (numbers ^ ((numbers >> 63) & _SIGNLESS)).view(np.float64)


def _columns(values: NDArray[Any], operation: int) -> Columns:
    """Values (n, width) as the columns that kernels take. Raises ValueError if the operation does not apply."""
    exact = np.issubdtype(values.dtype, np.integer)
    if values.ndim != 2 or values.shape[1] != _WIDE.get(operation, 1):
        raise ValueError(f"operation {operation} does not combine values of shape {values.shape}")
    if operation not in (_ON_INTEGERS if exact else _ON_DOUBLES):
        raise ValueError(f"operation {operation} does not combine {values.dtype}")
    if exact:
        return (np.ascontiguousarray(values[:, 0], dtype=np.int64),)
    if operation == ADD_DOUBLE:
        return np.ascontiguousarray(values[:, 0]), np.ascontiguousarray(values[:, 1])
    return (ordinals(values[:, 0]),)


def _empty(columns: Columns, size: int) -> Columns:
    return tuple(np.empty(size, column.dtype) for column in columns)


def _values(columns: Columns, dtype: Any) -> NDArray[Any]:
    """Inverse of :func:`_columns`: (a, width)."""
    if len(columns) == 1:
        return (columns[0] if np.issubdtype(dtype, np.integer) else doubles(columns[0]))[:, None]
    return np.stack(columns, axis=1)


# ------------------------------------------------------------------------------------------------ runs
@numba.njit(cache=True)
def runs(starts, groups, window_starts, window_ends):
    """The answers that exist: for each group and window the run of fragments it covers, unless empty.

    starts: (n,) fragment starts, ascending within a group; groups: (g + 1,) offsets of the groups in it;
    window_starts, window_ends: (w,), both ascending (windows of one query).
    Returns group (a,), window (a,), low (a,), high (a,): indices, by group then window.
    """
    count = 0
    for fill in range(2):
        if fill == 1:
            group = np.empty(count, np.int64)
            window = np.empty(count, np.int64)
            low = np.empty(count, np.int64)
            high = np.empty(count, np.int64)
            count = 0
        for g in range(len(groups) - 1):
            first, last, end = groups[g], groups[g], groups[g + 1]
            for w in range(len(window_starts)):
                while first < end and starts[first] < window_starts[w]:
                    first += 1
                last = max(last, first)
                while last < end and starts[last] < window_ends[w]:
                    last += 1
                if last > first:
                    if fill == 1:
                        group[count], window[count], low[count], high[count] = g, w, first, last
                    count += 1
    return group, window, low, high


@numba.njit(cache=True)
def _first_outside(low, high, size, shortest):
    for i in range(len(low)):
        if low[i] < 0 or high[i] > size or high[i] - low[i] < shortest:
            return i
    return -1


def check_runs(low: Longs, high: Longs, size: int, shortest: int = 1, group: Longs | None = None) -> None:
    """Raises ValueError unless every run, low and high (a,), lies within ``size`` and is so long at least (and has a
    ``group``, where they are given). Compiled code does not look where it reads."""
    if len(low) != len(high) or (group is not None and len(group) != len(low)):
        raise ValueError(f"{len(low)} lower and {len(high)} upper ends of runs, or not as many groups")
    wrong = _first_outside(low, high, size, shortest)
    if wrong >= 0:
        raise ValueError(f"run [{low[wrong]}, {high[wrong]}) does not lie within {size} fragments, or is empty")


# -------------------------------------------------------------------------------------- running totals
def running_totals(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Totals (n + 1, c) before each row of (n, c): the exact integer sum of a run is totals[high] - totals[low]."""
    totals = np.zeros((len(values) + 1, values.shape[1]), dtype=np.int64)
    np.cumsum(values, axis=0, out=totals[1:])
    return totals


@numba.njit(cache=True)
def _differences(totals, xor, low, high, out):
    for i in range(len(low)):
        for column in range(totals.shape[1]):
            before, after = totals[low[i], column], totals[high[i], column]
            out[i, column] = after ^ before if xor else after - before


class PrefixSums:
    """Sums (ADD) or xors (BIT_XOR) of runs of integers (n, c), exact modulo 2**64; an empty run gives 0.

    O(n c) to build, O(c) an answer. Raises ValueError for doubles: they would lose digits without bound.
    """

    def __init__(self, values: NDArray[np.int64], operation: int = ADD) -> None:
        if operation not in _SUBTRACTABLE or not np.issubdtype(values.dtype, np.integer):
            raise ValueError(f"running totals of {values.dtype} do not answer operation {operation}")
        self.operation = operation
        if operation == ADD:
            self.totals = running_totals(values)
        else:
            self.totals = np.zeros((len(values) + 1, values.shape[1]), dtype=np.int64)
            np.bitwise_xor.accumulate(values, axis=0, out=self.totals[1:])

    def combine(self, low: Longs, high: Longs) -> Longs:
        """Of each run: low and high (a,); returns (a, c)."""
        check_runs(low, high, len(self.totals) - 1, shortest=0)
        out = np.empty((len(low), self.totals.shape[1]), dtype=np.int64)
        _differences(self.totals, self.operation == BIT_XOR, low, high, out)
        return out


# ------------------------------------------------------------------------------- one after the other
@numba.njit(cache=True)
def _fold(columns, operation, low, high, out):
    for i in range(len(low)):
        best = _take(columns, low[i])
        for j in range(low[i] + 1, high[i]):
            best = _join(operation, best, _take(columns, j))
        _put(out, i, best)


def fold(values: NDArray[Any], operation: int, low: Longs, high: Longs) -> NDArray[Any]:
    """Combine of each run, one fragment after the other: values (n, width), low and high (a,); returns (a, width)."""
    check_runs(low, high, len(values))
    return _values(_one_by_one(_columns(values, operation), operation, low, low, high), values.dtype)


def _one_by_one(columns: Columns, operation: int, group: Longs, low: Longs, high: Longs) -> Columns:
    out = _empty(columns, len(low))
    _fold(columns, operation, low, high, out)
    return out


# ------------------------------------------------------------------------------------------ two stacks
@numba.njit(cache=True)
def _two_stacks(columns, operation, group, low, high, suffix, out):
    if len(low) == 0:
        return
    flipped = seen = 0  # the suffixes end before `flipped`; `back` combines from there to before `seen`
    back = _take(columns, 0)
    for i in range(len(low)):
        first, last = low[i], high[i]
        if i == 0 or group[i] != group[i - 1] or first >= flipped:
            best = _take(columns, last - 1)
            _put(suffix, last - 1, best)
            for j in range(last - 2, first - 1, -1):
                best = _join(operation, _take(columns, j), best)
                _put(suffix, j, best)
            flipped = seen = last
            _put(out, i, best)
            continue
        for j in range(seen, last):
            back = _take(columns, j) if j == flipped else _join(operation, back, _take(columns, j))
        seen = last
        best = _take(suffix, first)
        _put(out, i, best if seen == flipped else _join(operation, best, back))


def combine_runs(values: NDArray[Any], operation: int, group: Longs, low: Longs, high: Longs) -> NDArray[Any]:
    """Combine of each run, by two stacks.

    ``values`` (n, 1) int64 or float64, or (n, 2) double-doubles; ``operation``: see the constants above; ``group``,
    ``low``, ``high`` (a,) as :func:`runs` gives them: by group, both bounds ascending within one. Returns (a, width).
    O(n + a).
    """
    check_runs(low, high, len(values), group=group)
    return _values(_forward(_columns(values, operation), operation, group, low, high), values.dtype)


def _forward(columns: Columns, operation: int, group: Longs, low: Longs, high: Longs) -> Columns:
    out = _empty(columns, len(low))
    _two_stacks(columns, operation, group, low, high, _empty(columns, len(columns[0])), out)
    return out


def combine_pairs(order: Longs, payload: Longs, greatest: bool, group: Longs, low: Longs, high: Longs) -> Longs:
    """Which fragment of each run has the least (or greatest) pair, compared by ``order``, then by ``payload``.

    The state of argmin and argmax, first and last: ``order`` (n,) is what is compared, ``payload`` (n,) what is
    wanted, both as integers (doubles as :func:`ordinals`). ``group``, ``low``, ``high`` (a,) as for
    :func:`combine_runs`, or in any order. Returns (a,) indices of fragments; of equal pairs the first.
    """
    if len(order) != len(payload):
        raise ValueError(f"{len(order)} pairs with {len(payload)} payloads")
    columns = *(np.ascontiguousarray(part, dtype=np.int64) for part in (order, payload)), np.arange(len(order))
    return _combine(columns, GREATEST_PAIR if greatest else LEAST_PAIR, group, low, high)[2]


# --------------------------------------------------------------------------------------- sparse tables
_BLOCK = 4
"""Blocks of a sparse table have 2**4 fragments: twice as many would build no faster, half as many answer slower."""


@numba.njit(cache=True)
def _build_sparse(columns, operation, before, after, rows, blocks):
    size = len(columns[0])
    for block in range(blocks):
        first, end = block << _BLOCK, min(size, (block + 1) << _BLOCK)
        best = _take(columns, first)
        _put(before, first, best)
        for j in range(first + 1, end):
            best = _join(operation, best, _take(columns, j))
            _put(before, j, best)
        _put(rows, block, best)
        best = _take(columns, end - 1)
        _put(after, end - 1, best)
        for j in range(end - 2, first - 1, -1):
            best = _join(operation, _take(columns, j), best)
            _put(after, j, best)
    level = 1
    while 1 << level <= blocks:
        row, half = level * blocks, 1 << (level - 1)
        for block in range(blocks - (1 << level) + 1):
            below = row - blocks + block
            _put(rows, row + block, _join(operation, _take(rows, below), _take(rows, below + half)))
        level += 1


@numba.njit(cache=True)
def _answer_sparse(columns, operation, before, after, rows, blocks, low, high, out):
    for i in range(len(low)):
        first, last = low[i], high[i] - 1
        left, right = first >> _BLOCK, last >> _BLOCK
        if left == right:
            best = _take(columns, first)
            for j in range(first + 1, last + 1):
                best = _join(operation, best, _take(columns, j))
        else:
            best = _take(after, first)
            if right - left > 1:
                level = _log2(right - left - 1)
                row = level * blocks
                best = _join(operation, best, _take(rows, row + left + 1))
                best = _join(operation, best, _take(rows, row + right - (1 << level)))
            best = _join(operation, best, _take(before, last))
        _put(out, i, best)


def _sparse(columns: Columns, operation: int) -> Callable[[Longs, Longs], Columns]:
    size = len(columns[0])
    blocks = (size + (1 << _BLOCK) - 1) >> _BLOCK
    table = (*(_empty(columns, n) for n in (size, size, blocks * blocks.bit_length())), blocks)
    _build_sparse(columns, operation, *table)

    def answer(low: Longs, high: Longs) -> Columns:
        check_runs(low, high, size)
        out = _empty(columns, len(low))
        _answer_sparse(columns, operation, *table, low, high, out)
        return out

    return answer


class SparseTable:
    """Combines of runs in any order, for operations where combining a fragment twice does no harm.

    values (n, 1) int64 or float64; MIN, MAX, BIT_AND, BIT_OR (booleans are 0 and 1). Blocks of 16 fragments with the
    combines from each fragment to its block's ends, and a table of 2**k blocks from each block: O(n) to build (n log n
    / 16 of table), a few look-ups an answer; runs within one block are folded. Raises ValueError for other operations.
    """

    def __init__(self, values: NDArray[Any], operation: int) -> None:
        if operation not in _IDEMPOTENT:
            raise ValueError(f"a sparse table cannot answer operation {operation}: it combines some fragments twice")
        self.dtype = values.dtype
        self._answer = _sparse(_columns(values, operation), operation)

    def combine(self, low: Longs, high: Longs) -> NDArray[Any]:
        """Of each run: low and high (a,); returns (a, 1)."""
        return _values(self._answer(low, high), self.dtype)


@numba.njit(cache=True)
def _build_level(columns, operation, level, rows, row):
    size = len(columns[0])
    if level == 0:
        for j in range(size):
            _put(rows, row + j, _take(columns, j))
        return
    half = 1 << level
    for middle in range(half, size, 2 * half):
        # both ways at once: two chains of combines that do not wait for each other
        left, right = _take(columns, middle - 1), _take(columns, middle)
        _put(rows, row + middle - 1, left)
        _put(rows, row + middle, right)
        for step in range(1, half):
            left = _join(operation, _take(columns, middle - 1 - step), left)
            _put(rows, row + middle - 1 - step, left)
            if middle + step < size:
                right = _join(operation, right, _take(columns, middle + step))
                _put(rows, row + middle + step, right)


@numba.njit(cache=True)
def _level_of(low, high):
    """The highest bit in which first and last fragment differ names the middle that lies between them."""
    return _log2((low ^ (high - 1)) | 1)


@numba.njit(cache=True)
def _levels_of(low, high):
    levels = np.empty(len(low), np.int8)
    for i in range(len(low)):
        levels[i] = _level_of(low[i], high[i])
    return levels


@numba.njit(cache=True)
def _answer_disjoint(operation, rows, stride, low, high, out):
    for i in range(len(low)):
        first, last = low[i], high[i] - 1
        row = _level_of(low[i], high[i]) * stride
        best = _take(rows, row + first)
        _put(out, i, best if first == last else _join(operation, best, _take(rows, row + last)))


def _disjoint(columns: Columns, operation: int) -> Callable[[Longs, Longs], Columns]:
    size = len(columns[0])
    levels = max(1, (size - 1).bit_length())
    rows = _empty(columns, size * levels)
    for level in range(levels):
        _build_level(columns, operation, level, rows, level * size)

    def answer(low: Longs, high: Longs) -> Columns:
        check_runs(low, high, size)
        out = _empty(columns, len(low))
        _answer_disjoint(operation, rows, size, low, high, out)
        return out

    return answer


def _level_by_level(columns: Columns, operation: int, group: Longs, low: Longs, high: Longs) -> Columns:
    """A disjoint sparse table of which one row exists at a time: that of the answers whose turn it is."""
    rows, out, levels = _empty(columns, len(columns[0])), _empty(columns, len(low)), _levels_of(low, high)
    for level in np.unique(levels).tolist():
        which = np.flatnonzero(levels == level)
        _build_level(columns, operation, level, rows, 0)
        part = _empty(columns, len(which))
        _answer_disjoint(operation, rows, 0, low[which], high[which], part)
        for column, found in zip(out, part, strict=True):
            column[which] = found
    return out


class DisjointSparseTable:
    """Combines of runs in any order, for every operation (all are associative), with at most one combine an answer.

    values (n, 1) int64 or float64, or (n, 2) double-doubles. On level k the combines from each fragment to the middle
    of its block of 2**(k + 1): O(n log n) to build and to keep, O(1) an answer.
    """

    def __init__(self, values: NDArray[Any], operation: int) -> None:
        self.dtype = values.dtype
        self._answer = _disjoint(_columns(values, operation), operation)

    def combine(self, low: Longs, high: Longs) -> NDArray[Any]:
        """Of each run: low and high (a,); returns (a, width)."""
        return _values(self._answer(low, high), self.dtype)


# -------------------------------------------------------------------------------------------- choosing
@dataclass(frozen=True)
class Cost:
    """What a structure costs, in nanoseconds: per ``fragment`` (and ``level``) to build, per ``answer``, per fragment
    ``passed`` by runs that move forward, and per fragment ``covered`` by a run, over all runs."""

    fragment: float = 0.0
    level: float = 0.0
    answer: float = 0.0
    passed: float = 0.0
    covered: float = 0.0


COSTS: dict[str, tuple[Cost, Cost, Cost]] = {
    "prefix": (Cost(fragment=2.5, answer=6.0), Cost(), Cost()),
    "fold": (Cost(answer=5.0, covered=0.3), Cost(answer=3.5, covered=7.7), Cost(answer=16.0, covered=2.2)),
    "two-stacks": (Cost(answer=8.5, passed=2.2), Cost(answer=12.0, passed=11.0), Cost(answer=16.5, passed=4.5)),
    "sparse": (Cost(fragment=4.1, answer=14.0), Cost(), Cost(fragment=10.5, answer=55.0)),
    "disjoint": (Cost(level=0.9, answer=37.0), Cost(level=2.6, answer=54.0), Cost(level=3.0, answer=100.0)),
}
"""Measured costs of each structure for elements of one, two and three columns (``python -m tests.benchmarks.intervals
--costs``, 10**5 fragments). Only their ratios matter."""


def choose(
    operation: int,
    exact: bool,
    fragments: int,
    answers: int,
    monotone: bool,
    *,
    passed: int | None = None,
    covered: int | None = None,
) -> str:
    """The cheapest structure by :data:`COSTS`: ``prefix``, ``two-stacks``, ``sparse``, ``disjoint`` or ``fold``.

    ``exact``: the values are integers; ``monotone``: runs move forward within a group. ``passed``: fragments between
    the first and the last run of each group, in all (default: every fragment once); ``covered``: fragments of all runs
    (default: as random runs have).
    """
    passed = fragments if passed is None else passed
    covered = answers * fragments // 3 if covered is None else covered
    applies = {
        "prefix": exact and operation in _SUBTRACTABLE,
        "two-stacks": monotone,
        "sparse": operation in _IDEMPOTENT,
        "disjoint": True,
        "fold": True,
    }

    def nanoseconds(name: str) -> float:
        cost = COSTS[name][_WIDE.get(operation, 1) - 1]
        build = fragments * (cost.fragment + cost.level * max(1, fragments.bit_length()))
        return build + answers * cost.answer + passed * cost.passed + covered * cost.covered

    return min((name for name, fits in applies.items() if fits), key=nanoseconds)


@numba.njit(cache=True)
def _survey(group, low, high):
    """Whether runs move forward within a group, what they then pass over, and how many fragments they cover."""
    monotone, passed, covered = True, 0, 0
    for i in range(len(low)):
        covered += high[i] - low[i]
        if i == 0 or group[i] != group[i - 1]:
            passed += high[i] - low[i]
        else:
            monotone &= low[i] >= low[i - 1] and high[i] >= high[i - 1]
            passed += high[i] - max(low[i], high[i - 1])
    return monotone, passed, covered


STRUCTURES: dict[str, Callable[[Columns, int, Longs, Longs, Longs], Columns]] = {
    "prefix": lambda columns, operation, group, low, high: (
        PrefixSums(columns[0][:, None], operation).combine(low, high)[:, 0],
    ),
    "sparse": lambda columns, operation, group, low, high: _sparse(columns, operation)(low, high),
    "disjoint": _level_by_level,
    "two-stacks": _forward,
    "fold": _one_by_one,
}
"""What :func:`choose` names: from the columns of elements, an operation, and group, low and high of the runs."""


def _combine(columns: Columns, operation: int, group: Longs, low: Longs, high: Longs) -> Columns:
    check_runs(low, high, len(columns[0]), group=group)
    monotone, passed, covered = _survey(group, low, high)
    # doubles among these are summed, or else ordinals
    exact = operation != ADD_DOUBLE
    name = choose(operation, exact, len(columns[0]), len(low), monotone, passed=passed, covered=covered)
    return STRUCTURES[name](columns, operation, group, low, high)


def combine_many(values: NDArray[Any], operation: int, group: Longs, low: Longs, high: Longs) -> NDArray[Any]:
    """Combine of each run, by the structure that :func:`choose` finds cheapest.

    ``values`` (n, width) int64 or float64 (double-doubles for ADD_DOUBLE; any width for ADD and BIT_XOR);
    ``group``, ``low``, ``high`` (a,): runs in any order, of any groups. Returns (a, width). Raises ValueError if the
    operation does not apply to the values or a run is empty or outside.
    """
    if operation in _SUBTRACTABLE and values.ndim == 2 and values.shape[1] != 1:
        check_runs(low, high, len(values))
        return PrefixSums(values, operation).combine(low, high)
    return _values(_combine(_columns(values, operation), operation, group, low, high), values.dtype)


# -------------------------------------------------------------------- as published: Arasu & Widom, section 3
def tuple_window(length: int, far: int, near: int) -> tuple[int, int]:
    """Positions (left, right), 1-based and inclusive, of the window S[far, near] when ``length`` elements have come:
    max(length - far + 1, 1) to length - near (section 2)."""
    return max(length - far + 1, 1), length - near


def time_window(now: int, far: int, near: int) -> tuple[int, int]:
    """First and last instant (inclusive) of the window S[far, near] at ``now``: now - far + 1 to now - near."""
    return now - far + 1, now - near


def base_intervals(left: int, right: int) -> list[tuple[int, int]]:
    """The fewest base-intervals (2**level * i + 1, 2**level * (i + 1)) that make up (left, right), from left to right.

    Definition 3.1, Theorem 3.1: O(log width). (Example 3.1 prints the list of (2, 43), not of (1, 43).)
    """
    if not 1 <= left <= right:
        raise ValueError(f"({left}, {right}) is no interval of positions")
    first, end, width = left - 1, right, 1
    ahead, behind = [], []
    while first < end:
        if first & 1:
            ahead.append((first * width + 1, (first + 1) * width))
            first += 1
        if end & 1:
            end -= 1
            behind.append((end * width + 1, (end + 1) * width))
        first, end, width = first >> 1, end >> 1, width << 1
    return ahead + behind[::-1]


def landmark_split(left: int, right: int, narrowest: int) -> list[tuple[int, int]]:
    """At most two landmark intervals that make up (left, right): cut before the first landmark, a multiple of
    ``narrowest`` (W_min), beyond ``left``. Theorem 3.3; the interval is at least W_min wide."""
    if right - left + 1 < narrowest:
        raise ValueError(f"({left}, {right}) is narrower than {narrowest}")
    landmark = (left // narrowest + 1) * narrowest
    return [(left, right)] if landmark > right else [(left, landmark - 1), (landmark, right)]


# The states of the structures, each with one compiled update and look-up below. All have `clock`, the number of
# elements so far, and `longest`, N_max; positions count from 1.
_UPDATES: dict[type, Callable[..., Any]] = {}
_LOOKUPS: dict[type, Callable[..., Any]] = {}


def _update(state: Any, element: Any) -> None:
    """UPDATE of the structure whose state this is; in compiled code only."""
    raise TypeError("only compiled code updates a state")


def _lookup(state: Any, left: int, right: int) -> Any:
    """LOOKUP of positions left to right; ``left`` is below 1 where the stream is shorter than the window."""
    raise TypeError("only compiled code looks up a state")


@overload(_update, jit_options={"forceinline": True})
def _update_of(state, element):
    return _UPDATES.get(getattr(state, "instance_class", type(None)))


@overload(_lookup, jit_options={"forceinline": True})
def _lookup_of(state, left, right):
    return _LOOKUPS.get(getattr(state, "instance_class", type(None)))


@numba.njit(cache=True)
def _process(state, updates, elements, far, near, out):
    arrived = answered = 0
    for update in updates:
        if update:
            _update(state, _take(elements, arrived))
            arrived += 1
        else:
            length, left, right = state.clock[0], far[answered], near[answered]
            if right < 0 or right >= min(left, length) or left > state.longest:
                raise ValueError("a window is empty, or reaches back beyond what is kept")
            _put(out, answered, _lookup(state, length - left + 1, length - right))
            answered += 1


class OnlineAggregate:
    """A structure of section 3: elements arrive one after the other, with look-ups in between.

    Positions count from 1; a look-up (left, right) is inclusive and lies within the last ``longest`` (N_max) positions.
    Values are integers, or doubles if ``dtype`` is float64 (ADD_DOUBLE sums doubles). Doubles come back as doubles.
    Every structure takes single values and arrays, and a whole interleaved input by :meth:`replay`; the arrays run in
    compiled loops. Look-ups raise ValueError if they are empty or reach back too far.
    """

    def __init__(self, operation: int, dtype: Any, state: Any) -> None:
        self.operation = operation
        self.dtype = np.dtype(dtype)
        self._state = state

    @property
    def length(self) -> int:
        """Number of elements so far, m."""
        return int(self._state.clock[0])

    def update(self, value: float) -> None:
        """UPDATE(value): the next element."""
        self.update_many(np.array([value], dtype=self.dtype))

    def update_many(self, values: NDArray[Any]) -> None:
        """The next elements (k,)."""
        none = np.empty(0, dtype=np.int64)
        self.replay(np.ones(len(values), dtype=np.bool_), values, none, none)

    def lookup(self, left: int, right: int) -> Any:
        """LOOKUP(left, right): the combine of these positions."""
        return self.lookup_many(np.array([left], dtype=np.int64), np.array([right], dtype=np.int64)).item()

    def lookup_many(self, left: Longs, right: Longs) -> NDArray[Any]:
        """Combines of many intervals of positions, left and right (a,); returns (a,)."""
        none = np.empty(0, dtype=self.dtype)
        length = self.length
        return self.replay(np.zeros(len(left), dtype=np.bool_), none, length + 1 - left, length - right)

    def replay(self, updates: NDArray[np.bool_], values: NDArray[Any], far: Longs, near: Longs) -> NDArray[Any]:
        """Process inputs in order: ``updates`` (k,) says which are updates; they take ``values`` one after the other,
        the look-ups take windows S[far, near]. Returns the answers of the look-ups (a,)."""
        if np.count_nonzero(updates) != len(values) or not len(updates) - len(values) == len(far) == len(near):
            raise ValueError("one value an update and one window a look-up")
        elements = _elements(np.asarray(values, dtype=self.dtype), self.operation)
        out = _empty(elements, len(far))
        _process(self._state, updates, elements, far, near, out)
        found = _values(out, self.dtype)
        return found[:, 0] + found[:, 1] if found.shape[1] > 1 else found[:, 0]


def _elements(values: NDArray[Any], operation: int) -> Columns:
    matrix = np.stack([values, np.zeros(len(values))], axis=1) if operation == ADD_DOUBLE else values[:, None]
    return _columns(matrix, operation)


def _kept(operation: int, dtype: Any, size: int) -> Columns:
    """Room for so many elements."""
    return tuple(np.zeros(size, column.dtype) for column in _elements(np.empty(0, dtype=dtype), operation))


def _clock() -> Longs:
    return np.zeros(1, dtype=np.int64)


def _ring(size: int) -> int:
    """The power of two that holds so many elements: positions modulo it are one bit operation."""
    return 1 << max(0, size - 1).bit_length()


def _positive(longest: int) -> int:
    if longest < 1:
        raise ValueError(f"windows reach back at least one element, not {longest}")
    return longest


class _BaseIntervals(NamedTuple):
    clock: Longs
    longest: int
    operation: int
    size: int
    nodes: Columns
    """A binary heap over a ring of ``size`` elements: base-interval i of a level is node (size >> level) + i modulo
    that, so those that are no longer active are overwritten."""


def _update_base(state, element):
    node = state.size + (state.clock[0] & (state.size - 1))
    _put(state.nodes, node, element)
    # the right half of a base-interval completes it
    while node & 1 and node > 1:
        element = _join(state.operation, _take(state.nodes, node - 1), element)
        node >>= 1
        _put(state.nodes, node, element)
    state.clock[0] += 1


def _lookup_base(state, left, right):
    first, end, level = max(left, 1) - 1, right, state.size
    ahead = behind = _take(state.nodes, 0)
    some_ahead = some_behind = False
    while first < end:
        if first & 1:
            found = _take(state.nodes, level + (first & (level - 1)))
            ahead = _join(state.operation, ahead, found) if some_ahead else found
            some_ahead = True
            first += 1
        if end & 1:
            end -= 1
            found = _take(state.nodes, level + (end & (level - 1)))
            behind = _join(state.operation, found, behind) if some_behind else found
            some_behind = True
        first, end, level = first >> 1, end >> 1, level >> 1
    if some_ahead and some_behind:
        return _join(state.operation, ahead, behind)
    return ahead if some_ahead else behind


_UPDATES[_BaseIntervals], _LOOKUPS[_BaseIntervals] = _update_base, _lookup_base


class BaseIntervals(OnlineAggregate):
    """B-INT (Figure 3): the combines of all active base-intervals. O(N_max) space, O(1) an update, amortised,
    O(log width) a look-up (Theorem 3.2)."""

    def __init__(self, longest: int, operation: int, dtype: Any = np.int64) -> None:
        size = _ring(_positive(longest))
        nodes = _kept(operation, dtype, 2 * size)
        super().__init__(operation, dtype, _BaseIntervals(_clock(), longest, operation, size, nodes))


class _RunningIntervals(NamedTuple):
    clock: Longs
    longest: int
    operation: int
    size: int
    totals: Columns


def _update_running(state, element):
    before = _take(state.totals, state.clock[0] & (state.size - 1))
    state.clock[0] += 1
    _put(state.totals, state.clock[0] & (state.size - 1), _join(state.operation, before, element))


def _lookup_running(state, left, right):
    after = state.totals[0][right & (state.size - 1)]
    before = state.totals[0][(max(left, 1) - 1) & (state.size - 1)]
    return (after ^ before if state.operation == BIT_XOR else after - before,)


_UPDATES[_RunningIntervals], _LOOKUPS[_RunningIntervals] = _update_running, _lookup_running


def _subtractable(operation: int) -> int:
    if operation not in _SUBTRACTABLE:
        raise ValueError(f"operation {operation} cannot be undone exactly: only ADD and BIT_XOR of integers can")
    return operation


class RunningIntervals(OnlineAggregate):
    """R-INT (Figure 6): the totals of all active running intervals, for ADD and BIT_XOR of integers. O(N_max) space,
    O(1) an update and a look-up. The paper also subtracts sums of doubles; that loses digits, and is refused."""

    def __init__(self, longest: int, operation: int = ADD) -> None:
        size = _ring(_positive(longest) + 1)
        totals = _kept(_subtractable(operation), np.int64, size)
        super().__init__(operation, np.int64, _RunningIntervals(_clock(), longest, operation, size, totals))


class _LandmarkIntervals(NamedTuple):
    clock: Longs
    longest: int
    operation: int
    size: int
    partition: Longs
    """Which partition a width belongs to: (longest + 1,), -1 for none."""
    parts: Longs
    """Of each partition W_min and W_max, how many landmarks are kept (a power of two), and where the two kinds of
    intervals begin in ``kept``."""
    kept: Columns
    """The last elements, by position; then of each partition, by position, what lies from there to the next landmark;
    and by landmark and width what follows a landmark. (One array: handing many to a kernel takes longer than this.)"""


_NARROWEST, _WIDEST, _LANDMARKS, _BACKWARD, _FORWARD = range(5)


def _update_landmark(state, element):
    state.clock[0] += 1
    position, mask, kept = state.clock[0], state.size - 1, state.kept
    _put(kept, position & mask, element)
    for part in range(len(state.parts)):
        narrowest, widest = state.parts[part, _NARROWEST], state.parts[part, _WIDEST]
        number = position // narrowest
        width = position - number * narrowest
        if width == narrowest - 1:
            # the next element is a landmark: what lies before it, back to the last one
            row, best = state.parts[part, _BACKWARD], element
            _put(kept, row + (position & mask), best)
            for back in range(1, min(narrowest, position)):
                best = _join(state.operation, _take(kept, (position - back) & mask), best)
                _put(kept, row + ((position - back) & mask), best)
        while number >= 0 and width < widest:
            slot = number & (state.parts[part, _LANDMARKS] - 1)
            at = state.parts[part, _FORWARD] + slot * widest + width
            if width == 0 or position == 1:
                _put(kept, at, element)
            else:
                _put(kept, at, _join(state.operation, _take(kept, at - 1), element))
            number -= 1
            width += narrowest


def _lookup_landmark(state, left, right):
    part = state.partition[right - left + 1]
    if part < 0:
        raise ValueError("the width of a window lies in no partition")
    left = max(left, 1)
    number = left // state.parts[part, _NARROWEST] + 1
    landmark = number * state.parts[part, _NARROWEST]
    before = state.parts[part, _BACKWARD] + (left & (state.size - 1))
    if landmark == right + 1:
        return _take(state.kept, before)
    if landmark > right:
        # the stream is shorter than the window: what there is follows landmark 0
        return _take(state.kept, state.parts[part, _FORWARD] + right)
    slot = number & (state.parts[part, _LANDMARKS] - 1)
    after = state.parts[part, _FORWARD] + slot * state.parts[part, _WIDEST] + right - landmark
    return _join(state.operation, _take(state.kept, before), _take(state.kept, after))


_UPDATES[_LandmarkIntervals], _LOOKUPS[_LandmarkIntervals] = _update_landmark, _lookup_landmark


class LandmarkIntervals(OnlineAggregate):
    """L-INT (Figure 5, and its general case): the combines of intervals that begin at or end before a landmark.

    ``widths``: those of the windows that will be looked up. They are partitioned so that in each partition
    W_max / W_min <= ``spread`` (c): gamma partitions, O(gamma N_max) space, O(gamma) an update, amortised, O(1) a
    look-up of a width between W_min and W_max of a partition (others raise ValueError).
    """

    def __init__(
        self, longest: int, widths: Sequence[int], operation: int, dtype: Any = np.int64, spread: float = 2.0
    ) -> None:
        distinct = sorted(set(map(int, widths)))
        if not distinct or distinct[0] < 1 or distinct[-1] > _positive(longest):
            raise ValueError(f"widths lie between 1 and {longest}")
        bounds: list[tuple[int, int]] = []
        for width in distinct:
            if bounds and width <= spread * bounds[-1][0]:
                bounds[-1] = bounds[-1][0], width
            else:
                bounds.append((width, width))
        self.partitions = tuple(bounds)
        """(W_min, W_max) of each partition, ascending."""
        partition = np.full(longest + 1, -1, dtype=np.int64)
        for number, (narrowest, widest) in enumerate(bounds):
            partition[narrowest : widest + 1] = number
        size = _ring(longest + 1)
        parts = np.empty((len(bounds), 5), dtype=np.int64)
        room = size * (1 + len(bounds))
        for number, (narrowest, widest) in enumerate(bounds):
            landmarks = _ring(longest // narrowest + 3)
            parts[number] = narrowest, widest, landmarks, size * (1 + number), room
            room += landmarks * widest
        kept = _kept(operation, dtype, room)
        super().__init__(
            operation, dtype, _LandmarkIntervals(_clock(), longest, operation, size, partition, parts, kept)
        )


class _SearchTree(NamedTuple):
    clock: Longs
    longest: int
    operation: int
    links: Longs
    """By node: left and right child (-1 for none), height of the subtree, position of the element; and, unrelated to
    the node, one step of the path from the root that is gone up again. The last row has the root, as a left child."""
    nodes: Columns
    """By node its element; ``longest`` further on the combine of its subtree."""


_LEFT, _RIGHT, _HEIGHT, _POSITION, _PATH = range(5)
_SPARE = 64
"""Rows beside those of the nodes, so that the path to a leaf of the highest tree has room."""


@numba.njit(cache=True)
def _refresh(links, nodes, operation, node):
    left, right = links[node, _LEFT], links[node, _RIGHT]
    totals = len(links) - _SPARE
    total = _take(nodes, node)
    height = 0
    if left >= 0:
        total = _join(operation, _take(nodes, totals + left), total)
        height = links[left, _HEIGHT]
    if right >= 0:
        total = _join(operation, total, _take(nodes, totals + right))
        height = max(height, links[right, _HEIGHT])
    _put(nodes, totals + node, total)
    links[node, _HEIGHT] = height + 1


@numba.njit(cache=True)
def _climb(links, nodes, operation, depth, child, side):
    """Hang ``child`` on the end of the path, and refresh and balance it up to the root, which is returned.

    Elements come at the right end and go at the left end, so only right subtrees become too high, and their own right
    subtrees are then at least as high as their left ones: one rotation is enough.
    """
    for step in range(depth - 1, -1, -1):
        node = links[step, _PATH]
        links[node, side] = child
        left, right = links[node, _LEFT], links[node, _RIGHT]
        lean = (links[right, _HEIGHT] if right >= 0 else 0) - (links[left, _HEIGHT] if left >= 0 else 0)
        child = node
        if lean > 1:
            links[node, _RIGHT] = links[right, _LEFT]
            links[right, _LEFT] = node
            child = right
        _refresh(links, nodes, operation, node)
        if child != node:
            _refresh(links, nodes, operation, child)
    return child


@numba.njit(cache=True)
def _descend(links, node, side):
    depth = 0
    while node >= 0:
        links[depth, _PATH] = node
        depth += 1
        node = links[node, side]
    return depth


def _update_tree(state, element):
    links, nodes, operation = state.links, state.nodes, state.operation
    root = links[-1, _LEFT]
    if state.clock[0] >= state.longest:
        # the oldest element is leftmost
        depth = _descend(links, root, _LEFT) - 1
        root = _climb(links, nodes, operation, depth, links[links[depth, _PATH], _RIGHT], _LEFT)
    node = state.clock[0] % state.longest
    state.clock[0] += 1
    links[node, _LEFT] = links[node, _RIGHT] = -1
    links[node, _POSITION] = state.clock[0]
    _put(nodes, node, element)
    _refresh(links, nodes, operation, node)
    links[-1, _LEFT] = _climb(links, nodes, operation, _descend(links, root, _RIGHT), node, _RIGHT)


def _lookup_tree(state, left, right):
    links, nodes, operation, totals = state.links, state.nodes, state.operation, state.longest
    node = links[-1, _LEFT]
    while links[node, _POSITION] < left or links[node, _POSITION] > right:
        node = links[node, _RIGHT if links[node, _POSITION] < left else _LEFT]
    total = _take(nodes, node)
    child = links[node, _LEFT]
    while child >= 0:
        if links[child, _POSITION] < left:
            child = links[child, _RIGHT]
            continue
        if links[child, _RIGHT] >= 0:
            total = _join(operation, _take(nodes, totals + links[child, _RIGHT]), total)
        total = _join(operation, _take(nodes, child), total)
        child = links[child, _LEFT]
    child = links[node, _RIGHT]
    while child >= 0:
        if links[child, _POSITION] > right:
            child = links[child, _LEFT]
            continue
        if links[child, _LEFT] >= 0:
            total = _join(operation, total, _take(nodes, totals + links[child, _LEFT]))
        total = _join(operation, total, _take(nodes, child))
        child = links[child, _RIGHT]
    return total


_UPDATES[_SearchTree], _LOOKUPS[_SearchTree] = _update_tree, _lookup_tree


class SearchTree(OnlineAggregate):
    """PSoup's structure (section 3.1.3): a balanced search tree over the last N_max elements by arrival, each node with
    the combine of its subtree; older elements are deleted. O(log N_max) an update and a look-up.

    The paper measures an adapted red-black tree of libavl; this is an AVL tree in arrays.
    """

    def __init__(self, longest: int, operation: int, dtype: Any = np.int64) -> None:
        links = np.full((_positive(longest) + _SPARE, 5), -1, dtype=np.int64)
        nodes = _kept(operation, dtype, 2 * longest)
        super().__init__(operation, dtype, _SearchTree(_clock(), longest, operation, links, nodes))

    @property
    def height(self) -> int:
        """Nodes on the longest path from the root: at most 1.45 log2(N_max + 2)."""
        links = self._state.links
        return int(links[links[-1, _LEFT], _HEIGHT]) if self.length else 0


class _MaterializeNone(NamedTuple):
    clock: Longs
    longest: int
    operation: int
    size: int
    elements: Columns


def _update_none(state, element):
    state.clock[0] += 1
    _put(state.elements, state.clock[0] & (state.size - 1), element)


def _lookup_none(state, left, right):
    left, mask = max(left, 1), state.size - 1
    best = _take(state.elements, left & mask)
    for position in range(left + 1, right + 1):
        best = _join(state.operation, best, _take(state.elements, position & mask))
    return best


_UPDATES[_MaterializeNone], _LOOKUPS[_MaterializeNone] = _update_none, _lookup_none


class MaterializeNone(OnlineAggregate):
    """Keeps the last N_max elements and combines at look-up only ("materialize none", section 6.1): O(1) an update,
    O(width) a look-up."""

    def __init__(self, longest: int, operation: int, dtype: Any = np.int64) -> None:
        size = _ring(_positive(longest))
        kept = _kept(operation, dtype, size)
        super().__init__(operation, dtype, _MaterializeNone(_clock(), longest, operation, size, kept))


class _MaterializeAll(NamedTuple):
    clock: Longs
    longest: int
    operation: int
    size: int
    far: Longs
    near: Longs
    first: Longs
    """Where the windows that reach back so far begin: (longest + 2,)."""
    elements: Columns
    answers: Longs


def _update_all(state, element):
    state.clock[0] += 1
    length, mask = state.clock[0], state.size - 1
    _put(state.elements, length & mask, element)
    kept = state.elements[0]
    # before the stream has come so far, what leaves and what enters are the zeros that the ring begins with
    for window in range(len(state.far)):
        enters, leaves = kept[(length - state.near[window]) & mask], kept[(length - state.far[window]) & mask]
        if state.operation == BIT_XOR:
            state.answers[window] ^= enters ^ leaves
        else:
            state.answers[window] += enters - leaves


def _lookup_all(state, left, right):
    far, near = state.clock[0] - left + 1, state.clock[0] - right
    for window in range(state.first[far], state.first[far + 1]):
        if state.near[window] == near:
            return (state.answers[window],)
    raise ValueError("a window is not among those that are kept up to date")


_UPDATES[_MaterializeAll], _LOOKUPS[_MaterializeAll] = _update_all, _lookup_all


class MaterializeAll(OnlineAggregate):
    """Keeps the answer of every window up to date ("materialize all", section 6.1): O(windows) an update, O(1) a
    look-up of one of the ``windows`` (far, near); ADD and BIT_XOR of integers."""

    def __init__(self, windows: Sequence[tuple[int, int]], operation: int = ADD) -> None:
        far, near = np.array(sorted(set(windows)), dtype=np.int64).reshape(-1, 2).T.copy()
        if len(far) == 0 or near.min() < 0 or (near >= far).any():
            raise ValueError("a window S[far, near] has far > near >= 0")
        longest = int(far.max())
        size = _ring(longest + 1)
        first = np.searchsorted(far, np.arange(longest + 2))
        kept = _kept(_subtractable(operation), np.int64, size)
        answers = np.zeros(len(far), dtype=np.int64)
        state = _MaterializeAll(_clock(), longest, operation, size, far, near, first, kept, answers)
        super().__init__(operation, np.int64, state)
