"""Compiled kernels of :mod:`optimizer.sequences`.

A *row* has one number for each of some *lanes*, a multiple of eight. The node of a trie for E1..Ej has a row, and an
event of type Ej adds the row of E1..E(j-1) to it, as it was before the event's timestamp. A lane is an open window
(``windows``), or the position at which a match begins (``landmarks``).

Two ways to do this for a *block* of one key's events:

- *node by node* (dense): each node in turn takes all its events of the block in one loop over vectors that stay in
  registers, and stores a row after each of them. Its children find the row that is valid at their events' times by
  counting bits. Per node and event one load, one addition and one store of a row; nothing depends on the data.
- *event by event* (sparse): if a block has few events for the number of nodes. Nodes of equal timestamps go from the
  longest prefix to the shortest, so that none sees an event of its own time.

Exact integers: counts are added modulo 2**64 and also as doubles. A count's terms are not negative, so the double
is right but for a factor (1 + 2**-53) for each rounding on the way. As long as that error is less than 2**62 in total,
double and residue determine one integer (:func:`_whole`): up to some 2**95. If there is no danger of wrapping (bounds
are kept for each block) the doubles are omitted. If they do not suffice, the key is counted again in 128 bits.

Floor divisions of ticks below number the windows of times, as :mod:`optimizer.windows.alignment` does for queries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic, models, overload, register_model
from numpy.typing import NDArray

LANES = 8
"""Numbers of 64 bits in one vector: 512 bits, or as many narrower ones as the processor needs."""

Longs = NDArray[np.int64]

# What only compiled code calls needs no entries for Python and C, each of which would be compiled with a copy of it,
# and is cached with its callers. Numbers that callers pass on are np.int64(0), not 0: a function is compiled again for
# an argument that is a literal.
_kernel = numba.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")
_inner = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy")
_inlined = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy", forceinline=True)


# --------------------------------------------------------------------------------------------- vectors
class _Vector(types.Type):
    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Vector({dtype})")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, vector: Any) -> None:
        element = ir.DoubleType() if vector.dtype == types.float64 else ir.IntType(64)
        super().__init__(manager, vector, ir.VectorType(element, LANES))


@intrinsic
def _raw(typing_context, group):
    """A named tuple with pointers in place of its arrays. Arrays in tuples are counted as referred to wherever compiled
    code takes them out, which costs more than what is done with them here; something else must keep them alive."""
    if any(isinstance(kind, types.Array) and kind.layout != "C" for kind in group.types):
        raise TypingError("arrays of a tuple are contiguous")
    kinds = [types.CPointer(kind.dtype) if isinstance(kind, types.Array) else kind for kind in group.types]

    def code(context, builder, signature, arguments):
        parts = []
        for kind, part in zip(group.types, cgutils.unpack_tuple(builder, arguments[0]), strict=True):
            is_array = isinstance(kind, types.Array)
            parts.append(context.make_array(kind)(context, builder, part).data if is_array else part)
        return context.make_tuple(builder, signature.return_type, parts)

    return types.NamedTuple(kinds, group.instance_class)(group), code


@_inner
def _raw_or_none(group):
    return None if group is None else _raw(group)


@intrinsic
def _load(typing_context, numbers, index):
    vector = _Vector(numbers.dtype)

    def code(context, builder, signature, arguments):
        address = builder.gep(arguments[0], [arguments[1]])
        return builder.load(builder.bitcast(address, context.get_value_type(vector).as_pointer()), align=8)

    return vector(numbers, types.intp), code


@intrinsic
def _store(typing_context, numbers, index, vector):
    def code(context, builder, signature, arguments):
        address = builder.gep(arguments[0], [arguments[1]])
        builder.store(arguments[2], builder.bitcast(address, arguments[2].type.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(numbers, types.intp, vector), code


def _arithmetic(name):
    @intrinsic
    def operation(typing_context, a, b):
        def code(context, builder, signature, arguments):
            method = f"f{name}" if a.dtype == types.float64 else name
            return getattr(builder, method)(*arguments)

        return a(a, b), code

    return operation


_add, _multiply, _either = _arithmetic("add"), _arithmetic("mul"), _arithmetic("or_")
_both, _shift_left, _shift_right = _arithmetic("and_"), _arithmetic("shl"), _arithmetic("lshr")


@intrinsic
def _less(typing_context, a, b):
    """In each lane 1 where a < b, else 0."""

    def code(context, builder, signature, arguments):
        return builder.zext(builder.icmp_unsigned("<", *arguments), arguments[0].type)

    return a(a, b), code


@intrinsic
def _all_lanes(typing_context, numbers, number):
    """A vector of the type of these numbers with one number in every lane."""
    vector = _Vector(numbers.dtype)

    def code(context, builder, signature, arguments):
        number = context.cast(builder, arguments[1], signature.args[1], vector.dtype)
        kind = context.get_value_type(vector)
        first_lane = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(first_lane, first_lane, ir.Constant(ir.VectorType(ir.IntType(32), LANES), None))

    return vector(numbers, number), code


@intrinsic
def _any_bits(typing_context, vector):
    """All bits that some lane has set."""

    def code(context, builder, signature, arguments):
        lanes = [builder.extract_element(arguments[0], ir.Constant(ir.IntType(32), lane)) for lane in range(LANES)]
        while len(lanes) > 1:
            lanes = [builder.or_(a, b) for a, b in zip(lanes[::2], lanes[1::2], strict=True)]
        return lanes[0]

    return vector.dtype(vector), code


@intrinsic
def _bits_set(typing_context, word):
    return word(word), lambda context, builder, signature, arguments: builder.ctpop(arguments[0])


def aligned(size: int, dtype: Any) -> NDArray[Any]:
    """Zeros at a multiple of 64 bytes: vectors that straddle two cache lines take twice the time."""
    room = np.zeros(size + 64 // np.dtype(dtype).itemsize, dtype=dtype)
    first = -room.ctypes.data % 64 // room.itemsize
    return room[first : first + size]


# ------------------------------------------------------------------------------------------ structures
class Trie(NamedTuple):
    """The prefixes of some patterns, as nodes in preorder; node 0 is the empty prefix.

    ``kind``, ``parent``, ``depth`` (n + 1,): local number of the node's type (types 0..t-1; the root's is t), its
    parent and its length; ``leaf`` (n + 1,). ``of_kind``: nodes by type, the longest first; those of type t and length
    d are ``of_kind[of_kind_first[t * (deepest + 1) + deepest - d]:...[... + 1]]``. Queries by the node where they end,
    ``query[query_first[u]:query_first[u + 1]]``, each with the number of its range in ``span``; and by their range,
    ``span_query`` and ``span_node[span_first[r]:span_first[r + 1]]``. ``reset``, ``reset_first``: as ``of_kind``, the
    nodes whose matches end where an event of the type comes, because it is absent behind them. ``repeats``: how often a
    type occurs in one pattern at most, so that a window of n events rounds ``repeats * n + roundings`` times at most.
    ``nodes``: n + 1; ``queries`` and ``resets``: their number.
    """

    kind: Longs
    parent: Longs
    depth: Longs
    leaf: NDArray[np.uint8]
    deepest: int
    of_kind: Longs
    of_kind_first: Longs
    query: Longs
    query_first: Longs
    span: Longs
    span_query: Longs
    span_node: Longs
    span_first: Longs
    reset: Longs
    reset_first: Longs
    resets: int
    repeats: int
    roundings: int
    nodes: int
    queries: int


class Stream(NamedTuple):
    """Events (n,) of many keys, each key's by time. ``step`` -1: those of a key are taken backwards, times negated.
    ``local`` (codes,): numbers of types by code, -1 of those that no pattern has (as the last one)."""

    time: Longs
    type: NDArray[np.int32]
    count: Longs  # type: ignore[assignment]
    step: int
    local: Longs
    codes: int


class Block(NamedTuple):
    """Room for one block of events, and what is answers out about it."""

    time: Longs
    kind: Longs
    count: Longs  # type: ignore[assignment]
    source: Longs
    first: Longs
    """(t + 2,): where the events of each type begin in ``group`` and ``times``."""
    total: Longs
    """(t + 1,): events of each type, compacted ones counted as often as they are."""
    group: NDArray[np.uint16]
    """By type: the number of the event's timestamp among the block's distinct ones."""
    times: NDArray[np.uint64]
    """``count`` of the events, by type."""
    words: NDArray[np.uint64]
    """(t + 1, w): of each type (the last: changes of the root's row) a bit for each timestamp that has it."""
    before: NDArray[np.uint16]
    """(t + 1, w): bits set before each word."""
    closing: Longs
    """(spans, lanes, 2): windows that end inside the block, each with the first timestamp not before its end."""
    closings: Longs
    """(spans,): how many."""
    due: Longs
    """(spans,): the next window to end."""
    opened: Longs
    """(lanes,): how many events of the key came before the window opened."""
    shots: Longs
    """(edges,): timestamps at which rows are copied."""
    size: int
    kinds: int
    """t."""
    width: int
    """w."""


def block_room(size: int, kinds: int, spans: int, lanes: int, edges: int) -> Block:
    """Room for a block of at most ``size`` events, nothing in it."""
    width = size // 64 + 1
    longs = [np.zeros(size + 1, dtype=np.int64) for _ in range(4)]
    return Block(
        longs[0],
        longs[1],
        longs[2],
        longs[3],
        np.zeros(kinds + 2, dtype=np.int64),
        np.zeros(kinds + 1, dtype=np.int64),
        np.zeros(size + 1, dtype=np.uint16),
        np.zeros(size + 1, dtype=np.uint64),
        np.zeros((kinds + 1) * width, dtype=np.uint64),
        np.zeros((kinds + 1) * width, dtype=np.uint16),
        np.zeros(spans * lanes * 2, dtype=np.int64),
        np.zeros(spans, dtype=np.int64),
        np.zeros(spans, dtype=np.int64),
        np.zeros(lanes, dtype=np.int64),
        np.zeros(edges, dtype=np.int64),
        size,
        kinds,
        width,
    )


class Dense(NamedTuple):
    """Room for the rows of one block, of (deepest + 1) * (size + 1) * lanes numbers each, and a bound of each node's
    last row. ``begins`` (deepest + 2,): where the rows of the node of each depth begin that is being processed: right
    behind its parent's.

    ``costs``: what processing a block node by node costs more than event by event, per node, and what it saves, per
    vector that a node takes from an event, and per event. ``strict``: a block ends where some window does, so that no
    lane goes on counting for long after its window, beyond the bounds.
    """

    low_rows: NDArray[np.uint64]
    high_rows: NDArray[np.uint64]
    size_rows: NDArray[np.float64]
    tops: NDArray[np.float64]
    begins: Longs
    costs: tuple[float, float, float]
    strict: bool


class Windows(NamedTuple):
    """Windows ``[k*slide + shift, k*slide + shift + spans[r])`` of the pass's times, for each kind of window r every k
    in least[r]..greatest[r] that is ``phase[r]`` modulo ``every[r]``.

    ``spans`` (r,) ascending; ``lanes``: room for the windows that are open at one time: window k has lane
    ``turned + turn * k`` modulo lanes. ``kinds``: of windows; ``first`` and ``last``: of all."""

    slide: int
    shift: int
    spans: Longs
    least: Longs
    greatest: Longs
    every: Longs
    phase: Longs
    lanes: int
    turn: int
    turned: int
    kinds: int
    first: int
    last: int


@_inlined
def _lane(windows, window):
    return (windows.turned + windows.turn * window) % windows.lanes


@_inlined
def _is_asked(windows, span, window):
    return (
        windows.least[span] <= window <= windows.greatest[span]
        and window % windows.every[span] == windows.phase[span]
    )  # fmt: skip


class Cells(NamedTuple):
    """Matches of all substrings of a trie's patterns, a row for each node: lane i has those of the node's prefix from
    its i-th type on. ``widths`` (n + 1,): lanes in use; ``lanes``: of a row. The rest as :class:`Dense`."""

    low: NDArray[np.uint64]
    size: NDArray[np.float64] | None
    low_rows: NDArray[np.uint64]
    size_rows: NDArray[np.float64]
    tops: NDArray[np.float64]
    begins: Longs
    widths: Longs
    lanes: int


class AnswerColumns(NamedTuple):
    """Answers (a,): query, number of the key's run, number of the window, and what the state's ``_read`` gives. What
    counts modulo 2**64 alone leaves ``high``, ``double`` and ``flag`` as they are."""

    query: NDArray[np.int32]
    run: NDArray[np.int32]
    window: Longs
    low: NDArray[np.uint64]
    high: Longs
    double: NDArray[np.float64]
    flag: NDArray[np.uint8]


class Ordered(NamedTuple):
    """Answers (a,) by query: number of the key's run, start of the window, and the number: 128-bit ``low`` and
    ``high``, which means nothing where ``over``, or a ``double``."""

    run: Longs
    start: Longs
    low: NDArray[np.uint64]
    high: Longs
    double: NDArray[np.float64]
    over: NDArray[np.uint8]


def answer_room(size: int) -> AnswerColumns:
    """Uninitialised columns for ``size`` answers."""
    kinds = (np.int32, np.int32, np.int64, np.uint64, np.int64, np.float64, np.uint8)
    columns: Any = (np.empty(size, dtype=kind) for kind in kinds)
    return AnswerColumns(*columns)


@_inner
def _larger(column, used, size):
    more = np.empty(size, column.dtype)
    for i in range(used):
        more[i] = column[i]
    return more


@_inner
def _with_room(answers, used, needed):
    if used + needed <= len(answers.query):
        return answers
    size = 2 * (used + needed)
    return AnswerColumns(
        _larger(answers.query, used, size),
        _larger(answers.run, used, size),
        _larger(answers.window, used, size),
        _larger(answers.low, used, size),
        _larger(answers.high, used, size),
        _larger(answers.double, used, size),
        _larger(answers.flag, used, size),
    )


FINE, OVER, UNSURE = 0, 1, 2
"""Flags of an answer: exact; too large for 38 digits; undetermined by the state (count again with a wider one)."""

_SURE, _WIDE_SURE = 2.0**62, 2.0**126
_WORD = 2.0**64
_MOST_HIGH, _MOST_LOW = (np.uint64(word) for word in divmod(10**38 - 1, 2**64))


@_inner
def _whole(low, size, error):
    """High word of the integer that is ``low`` modulo 2**64 and differs from ``size`` by ``error`` at most, and a flag:
    whether that determines it.
    """
    if not error < _SURE:
        return 0, UNSURE
    if abs(size) < _SURE:
        # as a signed number the residue is the integer itself
        return np.int64(low) >> 63, FINE
    return np.int64(np.floor((size - np.float64(low)) / _WORD + 0.5)), FINE


@intrinsic
def _high_product(typing_context, a, b):
    """The high 64 bits of the product of two uint64."""

    def code(context, builder, signature, arguments):
        a, b = (builder.zext(argument, ir.IntType(128)) for argument in arguments)
        return builder.trunc(builder.lshr(builder.mul(a, b), ir.Constant(ir.IntType(128), 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), code


@intrinsic
def _fused(typing_context, a, b, c):
    """a * b + c, rounded once."""
    return types.float64(a, b, c), lambda context, builder, signature, arguments: builder.fma(*arguments)


@_inner
def _sum(low, high, more_low, more_high):
    """Modulo 2**128."""
    total = low + more_low
    return total, high + more_high + np.uint64(total < low)


@_inner
def _product(low, high, other_low, other_high):
    """Modulo 2**128."""
    return low * other_low, _high_product(low, other_low) + low * other_high + high * other_low


@_inner
def _plus(a, b, c, d):
    """Sum of two double-doubles (Knuth's two-sum, error below 2**-103 of the magnitudes)."""
    total = a + c
    virtual = total - a
    error = (a - (total - virtual)) + (c - virtual)
    tail = b + d
    tail_virtual = tail - b
    tail_error = (b - (tail - tail_virtual)) + (d - tail_virtual)
    error += tail
    high = total + error
    error = (error - (high - total)) + tail_error
    result = high + error
    if not np.isfinite(result):
        return total, 0.0
    return result, error - (result - high)


@_inner
def _times(a, b, c, d):
    """Product of two double-doubles (error below 2**-101 of it)."""
    product = a * c
    error = _fused(a, c, -product) + (a * d + b * c)
    result = product + error
    if not np.isfinite(result):
        return product, 0.0
    return result, error - (result - product)


@_inner
def _is_over(low, high):
    """An unsigned integer has more than 38 digits."""
    return high > _MOST_HIGH or (high == _MOST_HIGH and low > _MOST_LOW)


@_inner
def _read_wide(low, high, size, error):
    """High word and flag of what is low and high modulo 2**128 and differs from ``size`` by ``error`` at most."""
    if not (error < _WIDE_SURE and abs(size) < 1.6e38):
        # so it is beyond 38 digits, or (a sum of both signs) cannot be told
        return np.int64(0), OVER
    top = np.int64(high)
    negative = top < 0
    if negative:
        low, high = ~low, ~high
        low, high = _sum(low, high, np.uint64(1), np.uint64(0))
    return top, OVER if _is_over(low, high) else FINE


@_inner
def _read_count(low, high, size, index, steps):
    """Return whether there is a match, low word, high word, and flag."""
    if size is None:
        if high is None:
            return low[index] != 0, low[index], np.int64(0), FINE
        over = _is_over(low[index], high[index])
        return low[index] != 0 or high[index] != 0, low[index], np.int64(high[index]), OVER if over else FINE
    error = size[index] * steps * 2.0**-52
    if high is None:
        top, flag = _whole(low[index], size[index], error)
    else:
        top, flag = _read_wide(low[index], high[index], size[index], error)
    return size[index] != 0.0, low[index], top, flag


@_inner
def _read_row(rows, high, size, index, steps, short):
    """:func:`_read_count` from the rows of a block; ``short``: without doubles, 64 bits do."""
    if high is not None:
        if size is not None:
            return _read_count(rows.low_rows, rows.high_rows, rows.size_rows, index, steps)
        if not short:
            return _read_count(rows.low_rows, rows.high_rows, None, index, steps)
    if size is not None:
        return _read_count(rows.low_rows, None, rows.size_rows, index, steps)
    return _read_count(rows.low_rows, None, None, index, steps)


# ------------------------------------------------------------------------------------- a block of events
@_inner
def _fill(stream, origin, at, end, limit, block):
    """Copy the relevant events from number ``at`` of a key's run, which has ``end``, up to time ``limit`` or while
    there is room, but never a part of the events of one timestamp. Returns the number of events, the next event's
    number, and whether each counts once.
    """
    size, used, plain = block.size, 0, True
    step, last = stream.step, np.uint32(stream.codes - 1)
    while at < end and used < size:
        index = origin + step * at
        time = step * stream.time[index]
        if time >= limit:
            break
        kind = stream.local[min(np.uint32(stream.type[index]), last)]
        count = stream.count[index]
        block.time[used] = time
        block.kind[used] = kind
        block.count[used] = count
        block.source[used] = at
        relevant = kind >= 0
        used += relevant
        plain &= (count == 1) | (not relevant)
        at += 1
    if at < end and used == size:
        following = step * stream.time[origin + step * at]
        if block.time[used - 1] == following:
            while block.time[used - 1] == following:
                used -= 1
            at = block.source[used]
    return used, at, plain


@_inner
def _count_kinds(block, used, plain):
    """Number the block's events by type: ``first`` and ``total``."""
    first, total = block.first, block.total
    for kind in range(block.kinds + 1):
        first[kind] = total[kind] = 0
    for e in range(used):
        first[block.kind[e] + 1] += 1
    if not plain:
        for e in range(used):
            total[block.kind[e]] += block.count[e]
    for kind in range(block.kinds):
        if plain:
            total[kind] = first[kind + 1]
        first[kind + 1] += first[kind]


@_inner
def _sort_kinds(block, used):
    """List the block's events by type, each with the number of its timestamp, and mark the timestamps of each type.
    Returns how many there are; ``source`` becomes the number of each event's."""
    first, width, words = block.first, block.width, block.words
    one, sixty_three = np.uint64(1), np.uint64(63)
    for kind in range(block.kinds + 1):
        for word in range(kind * width, kind * width + used // 64 + 1):
            words[word] = 0
    group, now = -1, 0
    for e in range(used):
        time, kind = block.time[e], block.kind[e]
        group += e == 0 or time != now
        now = time
        place = first[kind]
        block.source[e] = group
        block.group[place] = group
        block.times[place] = block.count[e]
        first[kind] = place + 1
        words[kind * width + (group >> 6)] |= one << (np.uint64(group) & sixty_three)
    # each `first` has moved to the next one's
    for kind in range(block.kinds, 0, -1):
        first[kind] = first[kind - 1]
    first[0] = 0
    return group + 1


@_inner
def _sum_bits(block, groups):
    in_use = groups // 64 + 1
    for kind in range(block.kinds + 1):
        base, sofar = kind * block.width, 0
        for word in range(base, base + in_use):
            block.before[word] = sofar
            sofar += _bits_set(block.words[word])


@_inlined
def _rank(block, kind, group):
    """Number of the block's timestamps before this one that have an event of the type."""
    word = kind * block.width + (group >> 6)
    below = (np.uint64(1) << np.uint64(group & 63)) - np.uint64(1)
    return np.int64(block.before[word]) + np.int64(_bits_set(block.words[word] & below))


@_inlined
def _chain(
    low, size, low_rows, size_rows, state, own, parent, lanes, width, group, times, at, count, words, before, base
):
    """Add to a node's row the parent's rows that hold at its events, and leave its own row before each, and the last.

    ``state``, ``own``, ``parent``: where the node's row is, and where the block's rows of it and of its parent begin;
    a row takes ``lanes``, of which ``width`` are in use. The events are ``group[at:at + count]``, compacted ``times``
    (or None: once each); ``words[base:]`` and ``before[base:]`` mark those of the parent. Returns all bits of the last
    row. The loop is written for two vectors, which fill the time that it takes to find a row, and for one.
    """
    one, sixty_three, six = np.uint64(1), np.uint64(63), np.uint64(6)
    bits = np.uint64(0)
    lane = 0
    while lane + 2 * LANES <= width:
        low_a, low_b = _load(low, state + lane), _load(low, state + lane + LANES)
        own_row = own + lane
        _store(low_rows, own_row, low_a)
        _store(low_rows, own_row + LANES, low_b)
        if size is not None:
            size_a, size_b = _load(size, state + lane), _load(size, state + lane + LANES)
            _store(size_rows, own_row, size_a)
            _store(size_rows, own_row + LANES, size_b)
        for e in range(at, at + count):
            when = np.uint64(group[e])
            word = base + np.int64(when >> six)
            below = words[word] & ((one << (when & sixty_three)) - one)
            parent_row = parent + lane + (np.int64(before[word]) + np.int64(_bits_set(below))) * lanes
            own_row += lanes
            more_a, more_b = _load(low_rows, parent_row), _load(low_rows, parent_row + LANES)
            if times is not None:
                often = _all_lanes(low_rows, times[e])
                more_a, more_b = _multiply(more_a, often), _multiply(more_b, often)
            low_a, low_b = _add(low_a, more_a), _add(low_b, more_b)
            _store(low_rows, own_row, low_a)
            _store(low_rows, own_row + LANES, low_b)
            if size is not None:
                larger_a, larger_b = _load(size_rows, parent_row), _load(size_rows, parent_row + LANES)
                if times is not None:
                    weight = _all_lanes(size_rows, times[e])
                    larger_a, larger_b = _multiply(larger_a, weight), _multiply(larger_b, weight)
                size_a, size_b = _add(size_a, larger_a), _add(size_b, larger_b)
                _store(size_rows, own_row, size_a)
                _store(size_rows, own_row + LANES, size_b)
        _store(low, state + lane, low_a)
        _store(low, state + lane + LANES, low_b)
        bits |= _any_bits(_either(low_a, low_b))
        if size is not None:
            _store(size, state + lane, size_a)
            _store(size, state + lane + LANES, size_b)
        lane += 2 * LANES
    if lane < width:
        low_a = _load(low, state + lane)
        own_row = own + lane
        _store(low_rows, own_row, low_a)
        if size is not None:
            size_a = _load(size, state + lane)
            _store(size_rows, own_row, size_a)
        for e in range(at, at + count):
            when = np.uint64(group[e])
            word = base + np.int64(when >> six)
            below = words[word] & ((one << (when & sixty_three)) - one)
            parent_row = parent + lane + (np.int64(before[word]) + np.int64(_bits_set(below))) * lanes
            own_row += lanes
            more_a = _load(low_rows, parent_row)
            if times is not None:
                more_a = _multiply(more_a, _all_lanes(low_rows, times[e]))
            low_a = _add(low_a, more_a)
            _store(low_rows, own_row, low_a)
            if size is not None:
                larger_a = _load(size_rows, parent_row)
                if times is not None:
                    larger_a = _multiply(larger_a, _all_lanes(size_rows, times[e]))
                size_a = _add(size_a, larger_a)
                _store(size_rows, own_row, size_a)
        _store(low, state + lane, low_a)
        bits |= _any_bits(low_a)
        if size is not None:
            _store(size, state + lane, size_a)
    return bits


@_inlined
def _more_wide(low, low_rows, high_rows, theirs, often):
    """A vector of 128-bit counts, each taken ``often``, which is less than 2**32 (None: once)."""
    c, d = _load(low_rows, theirs), _load(high_rows, theirs)
    if often is not None:
        # known to be short, the multiplications are of 32 bits
        half, short = _all_lanes(low, np.uint64(32)), _all_lanes(low, often & np.uint64(2**32 - 1))
        lower = _multiply(_both(c, _all_lanes(low, np.uint64(2**32 - 1))), short)
        upper = _multiply(_shift_right(c, half), short)
        c = _add(lower, _shift_left(upper, half))
        d = _add(_add(_multiply(d, short), _shift_right(upper, half)), _less(c, lower))
    return c, d


@_inlined
def _chain_wide(
    low, high, size, low_rows, high_rows, size_rows, state, own, parent, lanes, group, times, at, count, words, before,
    base,
):  # fmt: skip
    """:func:`_chain` in 128 bits; events are compacted less than 2**32 times. Returns a bound of the last row."""
    one, sixty_three, six = np.uint64(1), np.uint64(63), np.uint64(6)
    bits = low_bits = np.uint64(0)
    for lane in range(0, lanes, LANES):
        a, b = _load(low, state + lane), _load(high, state + lane)
        own_row = own + lane
        _store(low_rows, own_row, a)
        _store(high_rows, own_row, b)
        if size is not None:
            sizes = _load(size, state + lane)
            _store(size_rows, own_row, sizes)
        for e in range(at, at + count):
            when = np.uint64(group[e])
            word = base + np.int64(when >> six)
            below = words[word] & ((one << (when & sixty_three)) - one)
            parent_row = parent + lane + (np.int64(before[word]) + np.int64(_bits_set(below))) * lanes
            if times is not None:
                c, d = _more_wide(low, low_rows, high_rows, parent_row, times[e])
            else:
                c, d = _more_wide(low, low_rows, high_rows, parent_row, None)
            a = _add(a, c)
            b = _add(_add(b, d), _less(a, c))
            own_row += lanes
            _store(low_rows, own_row, a)
            _store(high_rows, own_row, b)
            if size is not None:
                more = _load(size_rows, parent_row)
                if times is not None:
                    more = _multiply(more, _all_lanes(size, times[e]))
                sizes = _add(sizes, more)
                _store(size_rows, own_row, sizes)
        _store(low, state + lane, a)
        _store(high, state + lane, b)
        bits |= _any_bits(b)
        low_bits |= _any_bits(a)
        if size is not None:
            _store(size, state + lane, sizes)
    return np.float64(low_bits) if bits == 0 else (np.float64(bits) + 1.0) * _WORD


@_inner
def _chain_wide_kind(low, high, size, rows, state, own, parent, lanes, block, plain, kind, above):
    first, base = block.first[kind], above * block.width
    count = block.first[kind + 1] - first
    if plain or block.total[kind] == count:
        return _chain_wide(
            low, high, size, rows.low_rows, rows.high_rows, rows.size_rows, state, own, parent, lanes, block.group,
            None, first, count, block.words, block.before, base,
        )  # fmt: skip
    return _chain_wide(
        low, high, size, rows.low_rows, rows.high_rows, rows.size_rows, state, own, parent, lanes, block.group,
        block.times, first, count, block.words, block.before, base,
    )  # fmt: skip


@_inlined
def _chain_kind(
    low, size, low_rows, size_rows, state, own, parent, lanes, width, block, plain, kind, above
):  # fmt: skip
    """:func:`_chain` over a block's events of one type; ``above``: the parent's type."""
    first, base = block.first[kind], above * block.width
    count = block.first[kind + 1] - first
    # others of the block may come more often
    if plain or block.total[kind] == count:
        return _chain(
            low, size, low_rows, size_rows, state, own, parent, lanes, width, block.group, None, first, count,
            block.words, block.before, base,
        )  # fmt: skip
    return _chain(
        low, size, low_rows, size_rows, state, own, parent, lanes, width, block.group, block.times, first, count,
        block.words, block.before, base,
    )  # fmt: skip


@_inlined
def _chain_node(low, high, size, rows, own, parent, lanes, block, plain, trie, node):
    """Take a node over the block. Returns a bound of its last row."""
    kind, above = trie.kind[node], trie.kind[trie.parent[node]]
    if high is not None:  # known when compiled
        if size is None:
            before, added = rows.tops[trie.parent[node]], rows.tops[trie.parent[node]] * np.float64(block.total[kind])
            if rows.tops[node] + added < _SURE:
                # 64 bits do for this node so far; high words are not touched
                bits = _chain_kind(
                    low, None, rows.low_rows, None, node * lanes, own, parent, lanes, lanes, block, plain, kind, above
                )  # fmt: skip
                return np.float64(bits)
            if before < _SURE and trie.parent[node] > 0:
                for index in range(parent, parent + (block.first[above + 1] - block.first[above] + 1) * lanes):
                    rows.high_rows[index] = 0
        return _chain_wide_kind(low, high, size, rows, node * lanes, own, parent, lanes, block, plain, kind, above)
    bits = _chain_kind(
        low, size, rows.low_rows, rows.size_rows, node * lanes, own, parent, lanes, lanes, block, plain, kind, above
    )  # fmt: skip
    return np.float64(bits)


@_inner
def _by_node(trie, low, high, size, rows, windows, block, groups, plain, seen, run, answers, filled):
    """Process a block of ``groups`` timestamps node by node, its root's rows being in place; report windows that end
    inside it.

    Returns the number of answers ``filled``, and UNSURE if a count may pass 2**62 (2**126, of 128 bits) without
    doubles, or if the doubles do not determine a count.
    """
    lanes, tops, begins, opened = windows.lanes, rows.tops, rows.begins, block.opened
    tops[0] = 1.0
    # in preorder a node's parent is the last one of its depth
    begins[0], begins[1] = 0, (_rank(block, block.kinds, groups) + 1) * lanes
    closing = 0
    for span in range(windows.kinds):
        closing += block.closings[span]
    for node in range(1, trie.nodes):
        kind = trie.kind[node]
        if closing == 0 and trie.leaf[node] and block.first[kind] == block.first[kind + 1]:
            continue
        depth = trie.depth[node]
        own, parent = begins[depth], begins[depth - 1]
        begins[depth + 1] = own + (block.first[kind + 1] - block.first[kind] + 1) * lanes
        top = _chain_node(low, high, size, rows, own, parent, lanes, block, plain, trie, node)
        if size is None:
            added = tops[trie.parent[node]] * np.float64(block.total[kind])
            sure = _SURE if high is None else _WIDE_SURE
            if top >= sure or added >= sure:
                return filled, UNSURE
            if high is not None and block.total[kind] >= 1 << 32:  # more than vectors multiply
                return filled, UNSURE
            tops[node] = top
        if closing == 0:
            continue
        for place in range(trie.query_first[node], trie.query_first[node + 1]):
            query = trie.query[place]
            span = trie.span[query]
            for c in range(block.closings[span]):
                window = block.closing[2 * (span * lanes + c)]
                lane = _lane(windows, window)
                index = own + _rank(block, kind, block.closing[2 * (span * lanes + c) + 1]) * lanes + lane
                steps = trie.repeats * (seen - opened[lane]) + trie.roundings
                some, low_word, high_word, flag = _read_row(rows, high, size, index, steps, top < _SURE)
                if flag == UNSURE:
                    return filled, UNSURE
                if some:
                    answers.query[filled] = query
                    answers.run[filled] = run
                    answers.window[filled] = window
                    answers.low[filled] = low_word
                    if size is not None:
                        answers.high[filled] = high_word
                        answers.flag[filled] = flag
                    if size is None and high is not None:
                        answers.high[filled] = high_word
                        answers.flag[filled] = flag
                    filled += 1
    return filled, FINE


# ---------------------------------------------------------------------------------------------- states
# What rows hold, for each measure: tuples of arrays (nodes * lanes,). Compiled code knows a state's class, so the pass
# below is written once; these functions say what differs.
_OPERATIONS: dict[tuple[str, type], Callable[..., Any]] = {}


def _of(state: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _OPERATIONS[function.__name__.split("_of_")[0], state] = function
        return function

    return register


def _operation(name: str, state: Any) -> Callable[..., Any] | None:
    return _OPERATIONS.get((name, getattr(state, "instance_class", type(None))))


def _clear(state: Any, index: int) -> None:
    """No match."""
    raise TypeError("only compiled code clears a state")


def _open(state: Any, index: int) -> None:
    """The one match of the empty prefix."""
    raise TypeError("only compiled code opens a state")


def _follow(state: Any, values: Any, kind: int, to: int, parent: int, lanes: int, event: int, often: int) -> None:
    """Matches in the row at ``parent`` go on, in the row at ``to``, with an event (its index) that came ``often``."""
    raise TypeError("only compiled code follows a state")


def _read(state: Any, index: int, steps: int) -> Any:
    """Return whether there is a match, and low, high, double, flag of :class:`AnswerColumns`; ``steps``: roundings."""
    raise TypeError("only compiled code reads a state")


@overload(_clear)
def _clear_any(state, index):
    return _operation("_clear", state)


@overload(_open)
def _open_any(state, index):
    return _operation("_open", state)


@overload(_follow)
def _follow_any(state, values, kind, to, parent, lanes, event, often):
    return _operation("_follow", state)


@overload(_read)
def _read_any(state, index, steps):
    return _operation("_read", state)


class Counts(NamedTuple):
    """COUNT(*): modulo 2**64; with ``high``, modulo 2**128; with ``size``, also as doubles."""

    low: NDArray[np.uint64]
    high: NDArray[np.uint64] | None
    size: NDArray[np.float64] | None


@_inner
def _set_count(low, high, size, index, number):
    low[index] = number
    if high is not None:
        high[index] = 0
    if size is not None:
        size[index] = number


@_inner
def _follow_counts(low, high, size, to, parent, lanes, often):
    if size is None:
        raise ValueError("bounds are kept for blocks that are processed node by node")
    elif high is None:
        for lane in range(0, lanes, LANES):
            more, larger = _load(low, parent + lane), _load(size, parent + lane)
            if often != 1:
                more = _multiply(more, _all_lanes(low, often))
                larger = _multiply(larger, _all_lanes(size, often))
            _store(low, to + lane, _add(_load(low, to + lane), more))
            _store(size, to + lane, _add(_load(size, to + lane), larger))
    else:
        for lane in range(lanes):
            if size[parent + lane] != 0.0:
                more = _product(low[parent + lane], high[parent + lane], np.uint64(often), np.uint64(0))
                low[to + lane], high[to + lane] = _sum(low[to + lane], high[to + lane], more[0], more[1])
                size[to + lane] += often * size[parent + lane]


@_of(Counts)
def _clear_of_counts(state, index):
    _set_count(state.low, state.high, state.size, index, 0)


@_of(Counts)
def _open_of_counts(state, index):
    _set_count(state.low, state.high, state.size, index, 1)


@_of(Counts)
def _follow_of_counts(state, values, kind, to, parent, lanes, event, often):
    _follow_counts(state.low, state.high, state.size, to, parent, lanes, often)


@_of(Counts)
def _read_of_counts(state, index, steps):
    some, low, high, flag = _read_count(state.low, state.high, state.size, index, steps)
    return some, low, high, 0.0, flag


class IntegerSums(NamedTuple):
    """SUM of integers: counts, and sums modulo 2**64 (with ``high`` and ``sum_high`` 2**128), as doubles (``sum``), and
    of magnitudes (``bound``), which the rounding of ``sum`` is a fraction of."""

    low: NDArray[np.uint64]
    high: NDArray[np.uint64] | None
    size: NDArray[np.float64]
    sum_low: NDArray[np.uint64]
    sum_high: NDArray[np.uint64] | None
    sum: NDArray[np.float64]
    bound: NDArray[np.float64]


class IntegerValues(NamedTuple):
    """Sum of the values of each event (n,), ``low`` and ``high``, and a bound of the sum of their magnitudes.

    ``kind``: the local type of the events that are measured (in all values).
    """

    kind: int
    low: NDArray[np.uint64]
    high: Longs
    bound: NDArray[np.float64]


@_of(IntegerSums)
def _clear_of_integer_sums(state, index):
    _set_count(state.low, state.high, state.size, index, 0)
    _set_count(state.sum_low, state.sum_high, state.sum, index, 0)
    state.bound[index] = 0.0


@_of(IntegerSums)
def _open_of_integer_sums(state, index):
    _set_count(state.low, state.high, state.size, index, 1)


@_inner
def _follow_sums(
    low, high, size, sum_low, sum_high, sum_, bound, to, parent, lanes, often, value_low, value_high, value_bound
):
    value = np.float64(np.int64(value_high)) * _WORD + np.float64(value_low)
    for lane in range(lanes):
        a, b = to + lane, parent + lane
        if size[b] == 0.0:
            continue
        if high is None:
            sum_low[a] += np.uint64(often) * sum_low[b] + value_low * low[b]
        else:
            more = _product(sum_low[b], sum_high[b], np.uint64(often), np.uint64(0))
            sum_low[a], sum_high[a] = _sum(sum_low[a], sum_high[a], more[0], more[1])
            more = _product(low[b], high[b], value_low, value_high)
            sum_low[a], sum_high[a] = _sum(sum_low[a], sum_high[a], more[0], more[1])
        sum_[a] += often * sum_[b] + value * size[b]
        bound[a] += often * bound[b] + value_bound * size[b]


@_of(IntegerSums)
def _follow_of_integer_sums(state, values, kind, to, parent, lanes, event, often):
    low, high, bound = np.uint64(0), np.uint64(0), 0.0
    if kind == values.kind:
        low, high, bound = values.low[event], np.uint64(values.high[event]), values.bound[event]
    _follow_sums(
        state.low, state.high, state.size, state.sum_low, state.sum_high, state.sum, state.bound, to, parent, lanes,
        often, low, high, bound,
    )  # fmt: skip
    _follow_counts(state.low, state.high, state.size, to, parent, lanes, often)


@_inner
def _read_sum(low, high, size, bound, index, steps):
    error = bound[index] * steps * 2.0**-51
    if high is None:
        top, flag = _whole(low[index], size[index], error)
    else:
        top, flag = _read_wide(low[index], high[index], size[index], error)
    return top, flag


@_of(IntegerSums)
def _read_of_integer_sums(state, index, steps):
    top, flag = _read_sum(state.sum_low, state.sum_high, state.sum, state.bound, index, steps)
    return state.size[index] != 0.0, state.sum_low[index], top, 0.0, flag


class DoubleSums(NamedTuple):
    """SUM of doubles, the finite ones: counts and sums as double-doubles. And the OR over all matches of the marks of
    values that are not finite, as in ``Attribute.special``."""

    count: NDArray[np.float64]  # type: ignore[assignment]
    count_rest: NDArray[np.float64]
    sum: NDArray[np.float64]
    sum_rest: NDArray[np.float64]
    special: NDArray[np.uint8]


class DoubleValues(NamedTuple):
    """Sum of the finite values of each event (n,) as a double-double, and the marks of the others."""

    kind: int
    sum: NDArray[np.float64]
    sum_rest: NDArray[np.float64]
    special: NDArray[np.uint8]


@_of(DoubleSums)
def _clear_of_double_sums(state, index):
    state.count[index] = state.count_rest[index] = 0.0
    state.sum[index] = state.sum_rest[index] = 0.0
    state.special[index] = 0


@_of(DoubleSums)
def _open_of_double_sums(state, index):
    state.count[index] = 1.0


@_of(DoubleSums)
def _follow_of_double_sums(state, values, kind, to, parent, lanes, event, often):
    value, residue, special = 0.0, 0.0, np.uint8(0)
    if kind == values.kind:
        value, residue, special = values.sum[event], values.sum_rest[event], values.special[event]
    for lane in range(lanes):
        a, b = to + lane, parent + lane
        if state.count[b] == 0.0:
            continue
        more = _times(state.sum[b], state.sum_rest[b], np.float64(often), 0.0)
        total = _plus(state.sum[a], state.sum_rest[a], more[0], more[1])
        if value != 0.0:
            more = _times(state.count[b], state.count_rest[b], value, residue)
            total = _plus(total[0], total[1], more[0], more[1])
        state.sum[a], state.sum_rest[a] = total
        more = _times(state.count[b], state.count_rest[b], np.float64(often), 0.0)
        state.count[a], state.count_rest[a] = _plus(state.count[a], state.count_rest[a], more[0], more[1])
        state.special[a] |= state.special[b] | special


@_of(DoubleSums)
def _read_of_double_sums(state, index, steps):
    special, total = state.special[index], state.sum[index] + state.sum_rest[index]
    if special & 1 or special == 6:
        total = np.nan
    elif special:
        total = np.inf if special == 2 else -np.inf
    return state.count[index] != 0.0, np.uint64(0), np.int64(0), total, FINE


class Extremes(NamedTuple):
    """MIN: which rows have a match, which of those a value, and the least one, as integers that are ordered alike."""

    some: NDArray[np.uint8]
    known: NDArray[np.uint8]
    least: Longs


class ExtremeValues(NamedTuple):
    """The least value of each event (n,), and how many it has. ``kind``: as of :class:`IntegerValues`."""

    kind: int
    least: Longs
    known: Longs


@_of(Extremes)
def _clear_of_extremes(state, index):
    state.some[index] = state.known[index] = 0


@_of(Extremes)
def _open_of_extremes(state, index):
    state.some[index] = 1


@_inner
def _join_least(state, index, value):
    if state.known[index] == 0 or value < state.least[index]:
        state.known[index], state.least[index] = 1, value


@_of(Extremes)
def _follow_of_extremes(state, values, kind, to, parent, lanes, event, often):
    has_value = kind == values.kind and values.known[event] > 0
    for lane in range(lanes):
        a, b = to + lane, parent + lane
        if state.some[b] == 0:
            continue
        state.some[a] = 1
        if state.known[b] != 0:
            _join_least(state, a, state.least[b])
        if has_value:
            _join_least(state, a, values.least[event])


@_of(Extremes)
def _read_of_extremes(state, index, steps):
    return state.some[index] != 0, np.uint64(state.least[index]), np.int64(state.known[index]), 0.0, FINE


# ------------------------------------------------------------------------------- windows, as they move on
@_inner
def _first_from(block, used, time):
    """The first event of the block that is not before a time."""
    low, high = 0, used
    while low < high:
        middle = (low + high) // 2
        if block.time[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low


@_inner
def _report(state, index, steps, query, run, window, answers, filled):
    some, low, high, double, flag = _read(state, index, steps)
    if some:
        answers.query[filled] = query
        answers.run[filled] = run
        answers.window[filled] = window
        answers.low[filled] = low
        answers.high[filled] = high
        answers.double[filled] = double
        answers.flag[filled] = flag
        filled += 1
    return filled, flag == UNSURE


@_inner
def _close(trie, state, windows, span, window, opened, seen, run, answers, filled):
    """Report what all queries of a range have answers in a window."""
    lanes, lane, unsure = windows.lanes, _lane(windows, window), False
    steps = trie.repeats * (seen - opened[lane]) + trie.roundings
    for place in range(trie.span_first[span], trie.span_first[span + 1]):
        index = trie.span_node[place] * lanes + lane
        filled, doubtful = _report(state, index, steps, trie.span_query[place], run, window, answers, filled)
        unsure |= doubtful
    return filled, unsure


@_inner
def _reset(trie, state, block, begin, end, depth, lanes):
    """End the matches of the nodes of a depth behind which one of the events [begin, end) is absent."""
    for e in range(begin, end):
        place = block.kind[e] * (trie.deepest + 1) + trie.deepest - depth
        for n in range(trie.reset_first[place], trie.reset_first[place + 1]):
            for lane in range(lanes):
                _clear(state, trie.reset[n] * lanes + lane)


@_inner
def _by_event(
    trie, state, values, windows, stream, origin, block, used, newest, due, opened, seen, run, answers, filled
):  # fmt: skip
    """Process a block event by event."""
    lanes, slide, deepest, unsure = windows.lanes, windows.slide, trie.deepest, False
    opening = (newest + 1) * slide + windows.shift
    begin = 0
    while begin < used:
        time, end = block.time[begin], begin + 1
        while end < used and block.time[end] == time:
            end += 1
        while opening <= time:
            newest += 1
            opening += slide
            if windows.first <= newest <= windows.last:
                _open(state, _lane(windows, newest))
        for span in range(windows.kinds):
            while due[span] <= newest and due[span] * slide + windows.shift + windows.spans[span] <= time:
                if _is_asked(windows, span, due[span]):
                    filled, doubtful = _close(
                        trie, state, windows, span, due[span], opened, seen, run, answers, filled
                    )  # fmt: skip
                    unsure |= doubtful
                due[span] += 1
        # the longest prefixes first: what they follow has not seen this timestamp yet
        alone = end == begin + 1 and trie.resets == 0
        for depth in range(1 if alone else deepest, 0, -1):
            if trie.resets > 0:
                _reset(trie, state, block, begin, end, depth, lanes)
            for e in range(begin, end):
                place, places = block.kind[e] * (deepest + 1) + deepest - depth, 1
                if alone:
                    place, places = block.kind[e] * (deepest + 1), deepest + 1
                for n in range(trie.of_kind_first[place], trie.of_kind_first[place + places]):
                    node = trie.of_kind[n]
                    _follow(
                        state, values, block.kind[e], node * lanes, trie.parent[node] * lanes, lanes,
                        origin + stream.step * block.source[e], block.count[e],
                    )  # fmt: skip
        begin = end
    return filled, unsure


@_inner
def _copy_row(low, high, size, dense, to, lanes):
    for lane in range(0, lanes, LANES):
        _store(dense.low_rows, to + lane, _load(low, lane))
        if high is not None:
            _store(dense.high_rows, to + lane, _load(high, lane))
        if size is not None:
            _store(dense.size_rows, to + lane, _load(size, lane))


@_inner
def _root_rows(state, windows, dense, block, used, newest):
    """The root's rows: in which windows an event lies; a new row where windows open inside the block."""
    lanes, slide = windows.lanes, windows.slide
    root = block.kinds * block.width
    row = 0
    while True:
        opening = (newest + 1) * slide + windows.shift
        place = 0
        if opening > block.time[0]:
            place = _first_from(block, used, opening)
            if place == used:
                break
        group = block.source[place]
        if group > 0:
            word, bit = root + ((group - 1) >> 6), np.uint64(1) << np.uint64((group - 1) & 63)
            if not block.words[word] & bit:
                # the row before this one is complete
                _copy_row(state.low, state.high, state.size, dense, row * lanes, lanes)
                block.words[word] |= bit
                row += 1
        newest += 1
        if windows.first <= newest <= windows.last:
            _open(state, _lane(windows, newest))
    _copy_row(state.low, state.high, state.size, dense, row * lanes, lanes)
    return newest


@_inner
def _closings(windows, block, used, newest, due):
    for span in range(windows.kinds):
        closings = 0
        while due[span] <= newest:
            end = due[span] * windows.slide + windows.shift + windows.spans[span]
            if end > block.time[used - 1]:
                break
            if _is_asked(windows, span, due[span]):
                place = 2 * (span * windows.lanes + closings)
                block.closing[place] = due[span]
                block.closing[place + 1] = block.source[_first_from(block, used, end)]
                closings += 1
            due[span] += 1
        block.closings[span] = closings


@_inner
def _is_dense(trie, costs, block, used, lanes):
    deepest, work = trie.deepest, 0
    for e in range(used):
        if block.count[e] >= 1 << 32:  # more than vectors multiply in 128 bits
            return False
    for kind in range(block.kinds):
        nodes = trie.of_kind_first[(kind + 1) * (deepest + 1)] - trie.of_kind_first[kind * (deepest + 1)]
        work += nodes * (block.first[kind + 1] - block.first[kind])
    return costs[0] * trie.nodes < costs[1] * work * (lanes // LANES) + costs[2] * used


@_inner
def _next_end(windows, due, time):
    """The earliest end of a window that has not ended by a time."""
    answers = np.int64(2**63 - 1)
    for span in range(windows.kinds):
        offset = windows.spans[span] + windows.shift
        end = due[span] * windows.slide + offset
        if end <= time:
            end = ((time - offset) // windows.slide + 1) * windows.slide + offset
        answers = min(answers, end)
    return answers


# ----------------------------------------------------------------------------- cells, position by position
@_inner
def _reset_cells(trie, low, size, lanes):
    """No event: only the empty substring has a match."""
    for index in range(trie.nodes * lanes):
        low[index] = 0
        if size is not None:
            size[index] = 0.0
    for node in range(trie.nodes):
        if trie.depth[node] < lanes:
            low[node * lanes + trie.depth[node]] = 1
            if size is not None:
                size[node * lanes + trie.depth[node]] = 1.0


@_inner
def _extend_cells(trie, low, size, cells, block, plain, shots, base, shots_low, shots_size):
    """Process a block node by node into cells.

    ``shots``: number of timestamps (``block.shots``). Before each of them the rows of the nodes where queries end are
    copied, from index ``base`` on. Returns whether a count may have passed 2**62 without doubles.
    """
    lanes, widths, tops, low_rows, size_rows = cells.lanes, cells.widths, cells.tops, cells.low_rows, cells.size_rows
    begins = cells.begins
    begins[0], begins[1] = 0, lanes
    for lane in range(widths[0]):
        low_rows[lane] = low[lane]
        if size is not None:
            size_rows[lane] = size[lane]
    tops[0] = 1.0
    for node in range(1, trie.nodes):
        kind, parent = trie.kind[node], trie.parent[node]
        count, depth = block.first[kind + 1] - block.first[kind], trie.depth[node]
        own, begins[depth + 1] = begins[depth], begins[depth] + (count + 1) * lanes
        if count == 0 and shots == 0 and trie.leaf[node]:
            continue
        width = widths[parent]
        bits = _chain_kind(
            low, size, low_rows, size_rows, node * lanes, own, begins[depth - 1], lanes, width, block, plain, kind,
            trie.kind[parent],
        )  # fmt: skip
        for lane in range(width, widths[node], LANES):
            # no match of the parent begins here: the row stays as it is
            for row in range(count + 1):
                _store(low_rows, own + row * lanes + lane, _load(low, node * lanes + lane))
                if size is not None:
                    _store(size_rows, own + row * lanes + lane, _load(size, node * lanes + lane))
        if size is None:
            if bits >= _SURE or tops[parent] * np.float64(block.total[kind]) >= _SURE:
                return True
            tops[node] = np.float64(bits | np.uint64(1))
        for place in range(trie.query_first[node], trie.query_first[node + 1]):
            for shot in range(shots):
                node_row = own + _rank(block, kind, block.shots[shot]) * lanes
                shot_row = base + (shot * trie.queries + trie.query[place]) * lanes
                for lane in range(0, widths[node], LANES):
                    _store(shots_low, shot_row + lane, _load(low_rows, node_row + lane))
                    if size is not None:
                        _store(shots_size, shot_row + lane, _load(size_rows, node_row + lane))
    return False


@_inner
def _sweep(trie, low, size, cells, stream, block, origin, at, end, limit, edges, shots_low, shots_size):
    """The cells of one key's events from number ``at`` up to time ``limit``.

    Rows that hold at ``edges`` (e, ascending) are copied to ``shots_low`` and ``shots_size`` (e, queries, lanes).
    Returns the next event's number, how many were relevant, and whether a count may have passed 2**62 without doubles.
    """
    _reset_cells(trie, low, size, cells.lanes)
    for node in range(trie.nodes):
        cells.tops[node] = 1.0
    shot, seen = np.int64(0), np.int64(0)
    while at < end and stream.step * stream.time[origin + stream.step * at] < limit:
        used, at, plain = _fill(stream, origin, at, end, limit, block)
        if used == 0:
            continue
        seen += used
        before = shot
        while shot < len(edges) and edges[shot] <= block.time[0]:
            shot += 1
        _shoot(trie, low, size, cells, before, shot, shots_low, shots_size)
        _count_kinds(block, used, plain)
        groups = _sort_kinds(block, used)
        _sum_bits(block, groups)
        before = shot
        while shot < len(edges) and edges[shot] <= block.time[used - 1]:
            shot += 1
        for i in range(shot - before):
            block.shots[i] = block.source[_first_from(block, used, edges[before + i])]
        base = before * trie.queries * cells.lanes
        if _extend_cells(trie, low, size, cells, block, plain, shot - before, base, shots_low, shots_size):
            return at, seen, True
    _shoot(trie, low, size, cells, shot, len(edges), shots_low, shots_size)
    return at, seen, False


@_inner
def _shoot(trie, low, size, cells, first, last, shots_low, shots_size):
    lanes = cells.lanes
    for shot in range(first, last):
        for place in range(trie.queries):
            shot_row = (shot * trie.queries + trie.span_query[place]) * lanes
            node_row = trie.span_node[place] * lanes
            for lane in range(0, cells.widths[trie.span_node[place]], LANES):
                _store(shots_low, shot_row + lane, _load(low, node_row + lane))
                if size is not None:
                    _store(shots_size, shot_row + lane, _load(size, node_row + lane))


@_inner
def _slide(
    trie, state, values, dense, sparse, windows, stream, block, origin, end, run, answers, filled
):  # fmt: skip
    """Move the windows of one key over its events, ``end`` of them from index ``origin`` on.

    Returns ``answers``, the number of them that is filled, and whether the state left an answer undetermined.
    ``dense``: room for node by node, or None if the state supports only event by event; ``sparse``: None if it supports
    only node by node.
    """
    lanes, slide, shift, spans = windows.lanes, windows.slide, windows.shift, windows.spans
    longest = spans[windows.kinds - 1]
    for index in range(trie.nodes * lanes):
        _clear(state, index)
    # windows oldest..newest have lanes in use, all others are clear; due: the next to end, by range
    oldest = (stream.step * stream.time[origin] - shift - longest) // slide + 1
    newest = oldest - 1
    due, opened = block.due, block.opened
    for span in range(windows.kinds):
        due[span] = oldest
    at, seen, unsure = np.int64(0), np.int64(0), False
    while not unsure:
        answers = _with_room(answers, filled, 2 * lanes * trie.queries)
        into = _raw(answers)
        time = stream.step * stream.time[origin + stream.step * min(at, end - 1)]
        begin = newest + 1 if at == end else (time - shift - longest) // slide + 1
        for span in range(windows.kinds):
            last = newest if at == end else min(newest, (time - shift - spans[span]) // slide)
            while due[span] <= last:
                if _is_asked(windows, span, due[span]):
                    filled, doubtful = _close(
                        trie, state, windows, span, due[span], opened, seen, run, into, filled
                    )  # fmt: skip
                    unsure |= doubtful
                due[span] += 1
            due[span] = max(due[span], begin)
        if at == end:
            break
        for window in range(oldest, min(begin - 1, newest) + 1):
            for node in range(trie.nodes):
                _clear(state, node * lanes + _lane(windows, window))
        oldest, newest = begin, max(newest, begin - 1)
        limit = (oldest + lanes) * slide + shift
        if dense is not None:  # noqa: SIM102 (known when compiled)
            if dense.strict:
                limit = min(limit, _next_end(windows, due, time))
        used, at, plain = _fill(stream, origin, at, end, limit, block)
        if used == 0:
            continue
        for window in range(newest + 1, (block.time[used - 1] - shift) // slide + 1):
            opened[_lane(windows, window)] = seen
        seen += used
        _count_kinds(block, used, plain)
        if dense is not None:  # known when compiled, unlike what follows
            node_by_node = sparse is None or _is_dense(trie, dense.costs, block, used, lanes)
            if node_by_node:
                groups = _sort_kinds(block, used)
                newest = _root_rows(state, windows, dense, block, used, newest)
                _sum_bits(block, groups)
                _closings(windows, block, used, newest, due)
                filled, doubtful = _by_node(
                    trie, state.low, state.high, state.size, dense, windows, block, groups, plain, seen, run, into,
                    filled,
                )  # fmt: skip
                unsure |= doubtful != FINE
                continue
        if sparse is not None:
            filled, doubtful = _by_event(
                trie, state, values, windows, stream, origin, block, used, newest, due, opened, seen, run, into, filled
            )  # fmt: skip
            unsure |= doubtful
            newest = max(newest, (block.time[used - 1] - shift) // slide)
    return answers, filled, unsure


@_kernel
def slide_windows(trie, state, values, dense, sparse, windows, stream, block, runs, chosen, answers):
    """All windows of some keys. ``runs`` (k + 1,): where each key's events begin; ``chosen``: numbers of the keys.

    Returns the answers, how many there are, and which of the chosen keys the state could not count. A key's answers are
    together, by query by window.
    """
    trie, state, windows, stream, block = _raw(trie), _raw(state), _raw(windows), _raw(stream), _raw(block)
    values, dense = _raw_or_none(values), _raw_or_none(dense)
    failed = np.zeros(len(chosen), np.bool_)
    filled, failures = np.int64(0), 0
    for place in range(len(chosen)):
        run = chosen[place]
        # where most keys need doubles it is no use to try without
        if sparse is None and failures > 3 and 4 * failures > 3 * place and place % 16:
            failed[place] = True
            failures += 1
            continue
        before, size = filled, runs[run + 1] - runs[run]
        origin = runs[run] if stream.step > 0 else runs[run + 1] - 1
        answers, filled, unsure = _slide(
            trie, state, values, dense, sparse, windows, stream, block, origin, size, run, answers, filled
        )  # fmt: skip
        if unsure:
            failed[place] = True
            failures += 1
            filled = before
    return answers, filled, failed


# ------------------------------------------------------------------------------------- keys of few events
class Lone(NamedTuple):
    """Counts modulo 2**64 of keys that have few events for the number of nodes: only rows with a match are touched.

    ``live`` (nodes,): the last window that a row may have a match in; ``clean``: the windows before it have been
    removed from the row. Until then their lanes keep their last counts. A row whose windows have all ended is
    overwritten. ``opened`` (lanes,), ``due`` (spans,) as in :class:`Block`. ``most``: occurrences that a window may
    have, or if they are ``compacted`` events, for no count to pass 2**63.
    """

    low: NDArray[np.uint64]
    live: Longs
    clean: Longs
    opened: Longs
    due: Longs
    most: int
    compacted: bool


@_inlined
def _without_ended(room, windows, node, oldest):
    if room.clean[node] < oldest:
        for window in range(room.clean[node], oldest):
            room.low[node * windows.lanes + _lane(windows, window)] = 0
        room.clean[node] = oldest


@_inlined
def _follow_lone(trie, room, windows, first, last, often, oldest, newest, latest):
    """Let the nodes ``of_kind[first:last]`` follow their parents. Returns the last window in which a query may match,
    ``latest`` before."""
    low, live, lanes = room.low, room.live, windows.lanes
    for place in range(first, last):
        node = trie.of_kind[place]
        parent = trie.parent[node]
        until = newest if parent == 0 else live[parent]
        if until < oldest:
            continue
        if parent > 0:
            _without_ended(room, windows, parent, oldest)
        anew = live[node] < oldest
        if anew:
            live[node], room.clean[node] = until, oldest
        else:
            _without_ended(room, windows, node, oldest)
            live[node] = max(live[node], until)
        for lane in range(0, lanes, LANES):
            more = _load(low, parent * lanes + lane)
            if often != 1:
                more = _multiply(more, _all_lanes(low, often))
            if not anew:
                more = _add(more, _load(low, node * lanes + lane))
            _store(low, node * lanes + lane, more)
        if trie.query_first[node] < trie.query_first[node + 1]:
            latest = max(latest, until)
    return latest


@_inlined
def _close_lone(trie, room, windows, span, first, last, run, answers, filled):
    """Report what the queries of a range have answers in the windows ``first`` to ``last``."""
    for window in range(first, last + 1):
        if _is_asked(windows, span, window):
            lane = _lane(windows, window)
            for place in range(trie.span_first[span], trie.span_first[span + 1]):
                node = trie.span_node[place]
                if room.live[node] >= window and room.low[node * windows.lanes + lane] != 0:
                    answers.query[filled] = trie.span_query[place]
                    answers.run[filled] = run
                    answers.window[filled] = window
                    answers.low[filled] = room.low[node * windows.lanes + lane]
                    filled += 1
    return filled


@_inner
def _lone(trie, room, windows, stream, origin, end, run, answers, space, filled):
    """All windows of one key. Returns the number of answers filled (more than ``space``: it does not suffice), and
    whether a count may be too large."""
    lanes, slide, shift, kinds = windows.lanes, windows.slide, windows.shift, windows.kinds
    step, codes = stream.step, np.uint32(stream.codes - 1)
    live, due, longest = room.live, room.due, windows.spans[kinds - 1]
    oldest = (step * stream.time[origin] - shift - longest) // slide + 1
    newest, latest, seen, at, edge = oldest - 1, oldest - 1, np.int64(0), np.int64(0), step * stream.time[origin]
    for node in range(trie.nodes):
        live[node] = newest
    for lane in range(lanes):
        room.low[lane] = 0
    for span in range(kinds):
        due[span] = oldest
    while True:
        now, kind = np.int64(0), np.int64(-1)
        while at < end:
            kind = stream.local[min(np.uint32(stream.type[origin + step * at]), codes)]
            if kind >= 0:
                now = step * stream.time[origin + step * at]
                break
            at += 1
        if at == end or now >= edge:
            if filled + lanes * trie.queries > space:
                return space + 1, False
            edge = FAR_EDGE
            for span in range(kinds):
                before = due[span]
                if at < end:
                    due[span] = max(before, (now - shift - windows.spans[span]) // slide + 1)
                last = newest if at == end else min(newest, due[span] - 1)
                for window in range(before, last + 1):
                    if seen - room.opened[_lane(windows, window)] > room.most:
                        return filled, True
                filled = _close_lone(trie, room, windows, span, before, min(last, latest), run, answers, filled)
                edge = min(edge, due[span] * slide + shift + windows.spans[span])
            if at == end:
                return filled, False
            begin = due[kinds - 1]
            for window in range(oldest, min(begin - 1, newest) + 1):
                room.low[_lane(windows, window)] = 0
            oldest = begin
            following = max(newest + 1, begin)
            newest = max(newest, (now - shift) // slide)
            for window in range(following, newest + 1):
                room.opened[_lane(windows, window)] = seen
                if windows.first <= window <= windows.last:
                    room.low[_lane(windows, window)] = 1
            edge = min(edge, (newest + 1) * slide + shift)
        until, events = at + 1, 1
        while until < end and step * stream.time[origin + step * until] == now:
            events += stream.local[min(np.uint32(stream.type[origin + step * until]), codes)] >= 0
            until += 1
        width = trie.deepest + 1
        # the longest prefixes first: what they follow has not seen this timestamp yet
        for depth in range(trie.deepest if events > 1 else 1, 0, -1):
            for event in range(at, until):
                kind = stream.local[min(np.uint32(stream.type[origin + step * event]), codes)]
                if kind < 0:
                    continue
                place, places = kind * width + trie.deepest - depth, 1
                if events == 1:
                    place, places = kind * width, width
                first, last = trie.of_kind_first[place], trie.of_kind_first[place + places]
                often = stream.count[origin + step * event]
                latest = _follow_lone(trie, room, windows, first, last, often, oldest, newest, latest)
                if depth == 1:
                    seen += 1 if room.compacted else often
        at = until


FAR_EDGE = 2**63 - 1


@_kernel
def lone_windows(trie, room, windows, stream, runs, chosen, lone, answers):
    """:func:`slide_windows` for the keys that are ``lone`` (among those chosen); the others fail."""
    trie, room, windows, stream = _raw(trie), _raw(room), _raw(windows), _raw(stream)
    failed, filled = np.zeros(len(chosen), np.bool_), np.int64(0)
    for place in range(len(chosen)):
        failed[place] = not lone[place]
        if not lone[place]:
            continue
        run, before = chosen[place], filled
        origin = runs[run] if stream.step > 0 else runs[run + 1] - 1
        while True:
            filled, unsure = _lone(
                trie, room, windows, stream, origin, runs[run + 1] - runs[run], run, _raw(answers), len(answers.query),
                before,
            )  # fmt: skip
            if filled <= len(answers.query):
                break
            # again, with more room
            answers = _with_room(answers, before, len(answers.query) + windows.lanes * trie.queries)
        if unsure:
            failed[place] = True
            filled = before
    return answers, filled, failed


# --------------------------------------------------------------------------------------------- landmarks
class Shots(NamedTuple):
    """Rows at edges (edges, queries, lanes)."""

    low: NDArray[np.uint64]
    size: NDArray[np.float64] | None


@_inner
def _join_at(
    ahead, ahead_low, ahead_size, back_low, back_size, lanes, lengths, windows, first, last, with_ahead, with_back,
    steps, run, answers, filled,
):  # fmt: skip
    """Report windows first..last - 1: the sum over all cuts p = uv of a pattern of the matches of u in the window
    before the landmark times those of v behind it."""
    queries = ahead.queries
    for window in range(first, last):
        for query in range(queries):
            if not _is_asked(windows, ahead.span[query], window):
                continue
            row, length = ((window - first) * queries + query) * lanes, lengths[query]
            low, size = np.uint64(0), 0.0
            if with_ahead:
                low += ahead_low[row]
                size += np.float64(ahead_low[row]) if ahead_size is None else ahead_size[row]
            if with_back:
                low += back_low[row]
                size += np.float64(back_low[row]) if back_size is None else back_size[row]
            if with_ahead and with_back:
                for cut in range(1, length):
                    a, b = row + cut, row + length - cut
                    low += ahead_low[a] * back_low[b]
                    if ahead_size is None:
                        size += np.float64(ahead_low[a]) * np.float64(back_low[b])
                    else:
                        size += ahead_size[a] * back_size[b]
            if size == 0.0:
                continue
            high, flag = _whole(low, size, size * steps * 2.0**-52)
            if flag == UNSURE or (ahead_size is None and size >= _SURE):
                return filled, True
            answers.query[filled] = query
            answers.run[filled] = run
            answers.window[filled] = window
            answers.low[filled] = low
            answers.high[filled] = high
            answers.flag[filled] = flag
            filled += 1
    return filled, False


@_inner
def _between_landmarks(
    ahead, back, ahead_cells, back_cells, ahead_shots, back_shots, lengths, windows, stream, block, origin, end, run,
    answers, filled,
):  # fmt: skip
    """One key's windows of one range, each with one landmark, a multiple of the range. From each landmark one pass runs
    forward, to where windows end, and one backward, to where they begin.
    """
    slide, span, lanes = windows.slide, windows.spans[0], ahead_cells.lanes
    reverse = Stream(stream.time, stream.type, stream.count, -1, stream.local, stream.codes)
    known, unsure = np.bool_(False), np.bool_(False)
    nothing = np.int64(0)
    at, before, landmark = np.int64(0), np.int64(0), np.int64(0)
    while at < end or known:
        number = landmark + 1
        if at < end:
            now = stream.time[origin + at] // span
            number = min(number, now) if known else now
        mark = number * span
        # windows that begin in the span before the landmark, and those that begin in the span from it
        previous, first, last = -((span - mark) // slide), -(-mark // slide), -(-(mark + span) // slide)
        answers = _with_room(answers, filled, (first - previous + 1) * ahead.queries)
        into = _raw(answers)
        begin, edges = at, np.arange(previous, first) * slide + span
        has_events = at < end and stream.time[origin + at] < mark + span
        seen = 0
        if has_events:
            at, seen, unsure = _sweep(
                ahead, ahead_cells.low, ahead_cells.size, ahead_cells, stream, block, origin, at, end, mark + span,
                edges, ahead_shots.low, ahead_shots.size,
            )  # fmt: skip
        if unsure:
            break
        if has_events or known:
            steps = ahead.repeats * (seen + before) + ahead.roundings
            filled, unsure = _join_at(
                ahead, ahead_shots.low, ahead_shots.size, back_shots.low, back_shots.size, lanes, lengths, windows,
                previous, first, has_events, known, steps, run, into, filled,
            )  # fmt: skip
        if unsure:
            break
        known, landmark, before = has_events, number, np.int64(seen)
        if has_events:
            edges = 1 - np.arange(last - 1, first - 1, -1) * slide
            _, _, unsure = _sweep(
                back, back_cells.low, back_cells.size, back_cells, reverse, block, origin + at - 1, nothing, at - begin,
                1 - mark, edges, back_shots.low, back_shots.size,
            )  # fmt: skip
            if unsure:
                break
            # the last window came first
            _reverse(back_shots, last - first, ahead.queries * lanes)
    return answers, filled, unsure


@_inner
def _reverse(shots, count, width):
    for i in range(count // 2):
        a, b = i * width, (count - 1 - i) * width
        for k in range(width):
            shots.low[a + k], shots.low[b + k] = shots.low[b + k], shots.low[a + k]
        _swap(shots.size, a, b, width)


@_inner
def _swap(column, a, b, width):
    if column is not None:
        for k in range(width):
            column[a + k], column[b + k] = column[b + k], column[a + k]


@_kernel
def landmark_windows(
    ahead, back, ahead_cells, back_cells, ahead_shots, back_shots, lengths, windows, stream, block, runs, chosen,
    answers
):  # fmt: skip
    """:func:`slide_windows` for windows of one range; ``lengths`` (q,) of the patterns."""
    ahead, back, ahead_cells, back_cells = _raw(ahead), _raw(back), _raw(ahead_cells), _raw(back_cells)
    ahead_shots, back_shots = _raw(ahead_shots), _raw(back_shots)
    windows, stream, block = _raw(windows), _raw(stream), _raw(block)
    failed = np.zeros(len(chosen), np.bool_)
    filled, failures = np.int64(0), 0
    for place in range(len(chosen)):
        run = chosen[place]
        if ahead_cells.size is None and failures > 3 and 4 * failures > 3 * place and place % 16:
            failed[place] = True
            failures += 1
            continue
        before = filled
        answers, filled, unsure = _between_landmarks(
            ahead, back, ahead_cells, back_cells, ahead_shots, back_shots, lengths, windows, stream, block, runs[run],
            runs[run + 1] - runs[run], run, answers, filled,
        )  # fmt: skip
        if unsure:
            failed[place] = True
            failures += 1
            filled = before
    return answers, filled, failed


# ---------------------------------------------------------------------------------- answers in order
@_kernel
def count_answers(query, first):
    """Count the answers (a,) of each query in ``first`` (queries + 1,), one place behind it."""
    for i in range(len(query)):
        first[query[i] + 1] += 1


@_kernel
def order_answers(query, run, window, low, high, double, flag, others, base, step, first, out):
    """Move answers (a,) to where those of each query belong in ``out``, by run and start.

    Runs ascend, and windows with them where ``step`` is positive, or descend in each run. ``high``, ``double`` and
    ``flag``: None if there are none but zeros, which ``out`` has. ``others``: query and run (b,) of the answers that
    are moved at another time, runs ascending; no query has some here and some there of one run. ``base`` (queries,) and
    ``step``: start of the query's window 0, and from one window to the next. ``first`` (queries + 1,): where the
    answers of each query begin.
    """
    out, (other_query, other_run) = _raw(out), others
    place = first[:-1].copy()
    begin, other = np.int64(0), np.int64(0)
    while begin < len(query):
        now, end = np.int64(run[begin]), begin + 1
        while end < len(query) and run[end] == now:
            end += 1
        while other < len(other_run) and other_run[other] < now:
            place[other_query[other]] += 1
            other += 1
        for offset in range(end - begin):
            i = begin + offset if step > 0 else end - 1 - offset
            q = query[i]
            p = place[q]
            place[q] = p + 1
            out.run[p], out.start[p], out.low[p] = now, base[q] + step * window[i], low[i]
            if high is not None:
                out.high[p], out.over[p] = high[i], flag[i] != FINE
            if double is not None:
                out.double[p] = double[i]
        begin = end


# ------------------------------------------------------------------------------------- sums from counts
@_kernel
def double_sums(total, residue, first):
    """Sums of double-doubles (n,) over the runs that begin at ``first`` (r,)."""
    high, low = np.zeros(len(first)), np.zeros(len(first))
    for run in range(len(first)):
        end = first[run + 1] if run + 1 < len(first) else len(total)
        a, b = 0.0, 0.0
        for i in range(first[run], end):
            a, b = _plus(a, b, total[i], residue[i])
        high[run], low[run] = a, b
    return high, low


@_kernel
def add_multiples(low, high, size, rows, other_low, other_high, factor):
    """Add to the integers (a,) of some rows (b,), modulo 2**128, others (b,) times a factor; ``size``: magnitudes of
    all that was added, as doubles."""
    times_low, times_high = np.uint64(factor), np.uint64(factor >> 63)
    for i in range(len(rows)):
        row = rows[i]
        more = _product(other_low[i], np.uint64(other_high[i]), times_low, times_high)
        low[row], high[row] = _sum(low[row], high[row], more[0], more[1])
        size[row] += abs(np.float64(factor) * (np.float64(other_high[i]) * _WORD + np.float64(other_low[i])))


@_kernel
def read_totals(low, high, size, over):
    """Mark integers of more than 38 digits. Returns whether all are known: magnitudes are below 2**126."""
    for i in range(len(low)):
        if not size[i] < _WIDE_SURE:
            return False
        _, flag = _read_wide(low[i], high[i], 0.0, 0.0)
        over[i] = flag == OVER
    return True


@_kernel
def most_often(stream, most):
    """Raise ``most`` (types,) to the largest count of compacted events of each local type (others: the last)."""
    last = np.uint32(stream.codes - 1)
    for event in range(len(stream.count)):
        kind = stream.local[min(np.uint32(stream.type[event]), last)]
        most[kind] = max(most[kind], stream.count[event])
