"""Event sequence aggregation: COUNT, SUM, MIN and MAX over all matches of SEQ patterns in sliding windows.

A match of ``SEQ(E1, ..., El)`` in a window is one event of each type in *strictly* increasing time, all of one key and
all in the window ``[start, start + range)``; every choice of events counts (skip-till-any-match). Windows start on the
multiples of their slide, as in :mod:`optimizer.window`; times are integer ticks of any unit and may be negative. Only
windows with at least one match have an answer. A type may occur several times in a pattern.

    events = Events.of(key, time, type, {"price": (prices, prices_known)})     # raw events, compacted
    events = compacted([these, those])                                         # what tasks combine, in any order
    found = answers(events, [Asked(pattern=(3, 1, 4), range=600, slide=60, measures=(Measure("sum", "price", 1),))])
    found[0].key, found[0].start, found[0].count.integers(), found[0].measures[0].integers()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from optimizer import sequence_kernels as kernels
from optimizer.intervals import doubles, ordinals

Longs = NDArray[np.int64]


@dataclass(frozen=True)
class Attribute:
    """What compaction keeps of an attribute's values at each of n events; a null takes no part in any of it.

    ``known``: how many are not null. ``sum``: of integers the exact sum as 128-bit two's complement, (low (n,) uint64,
    high (n,) int64); of doubles that of the finite ones as a double-double, (total, residue) (n,) float64.
    ``least`` and ``greatest`` (n,) int64: integers, or doubles as :func:`optimizer.intervals.ordinals` (without meaning
    where nothing is known). ``special`` (n,) uint8, of doubles alone: 1 if there is a NaN, 2 inf, 4 -inf, added up.
    """

    known: Longs
    sum: tuple[NDArray[Any], NDArray[Any]]
    least: Longs
    greatest: Longs
    special: NDArray[np.uint8] | None = None

    @property
    def exact(self) -> bool:
        """The values are integers."""
        return self.special is None


@dataclass(frozen=True)
class Events:
    """Compacted events of many keys, ascending by (key, time, type), each combination once.

    ``key``, ``time`` (ticks), ``count`` (how many events were compacted into this one, >= 1): (n,) int64; ``type``:
    (n,) int32 codes. ``attributes`` by name: any attribute may belong to events of several types.
    """

    key: Longs
    time: Longs
    type: NDArray[np.int32]
    count: Longs
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        key: Longs,
        time: Longs,
        type: NDArray[np.int32],
        attributes: Mapping[str, tuple[NDArray[Any], NDArray[np.bool_] | None]] | None = None,
    ) -> Events:
        """Compact raw events (n,), in any order. ``attributes``: name -> values (n,) int64 or float64, and which of
        them are not null (None: all)."""
        n = len(key)
        kept = {name: _attribute(values, known) for name, (values, known) in (attributes or {}).items()}
        columns = (np.asarray(key, np.int64), np.asarray(time, np.int64), np.asarray(type, np.int32))
        return _merged(*columns, np.ones(n, dtype=np.int64), kept)

    def __post_init__(self) -> None:
        columns = [self.time, self.type, self.count]
        for attribute in self.attributes.values():
            columns += [attribute.known, *attribute.sum, attribute.least, attribute.greatest]
        if any(len(column) != len(self.key) for column in columns):
            raise ValueError("columns of events differ in length")
        if not kernels.is_ascending(self.key, self.time, self.type):
            raise ValueError("compacted events ascend by key, time and type, each combination once")

    def __len__(self) -> int:
        return len(self.key)


def compacted(parts: Iterable[Events]) -> Events:
    """Several parts, in any order, as one: commutative and associative, so Spark tasks may combine parts as they come
    (integers to the bit; sums of doubles within 2**-100 of the sum of their magnitudes). Raises ValueError if their
    attributes differ."""
    given = [part for part in parts if len(part)] or list(parts)[:1]
    if not given:
        return Events(*(np.zeros(0, dtype=kind) for kind in (np.int64, np.int64, np.int32, np.int64)))
    if any(part.attributes.keys() != given[0].attributes.keys() for part in given):
        raise ValueError("events to be combined have different attributes")
    attributes = {name: _joined([part.attributes[name] for part in given]) for name in given[0].attributes}
    columns = (np.concatenate([getattr(part, name) for part in given]) for name in ("key", "time", "type", "count"))
    return _merged(*columns, attributes)


def _attribute(values: NDArray[Any], known: NDArray[np.bool_] | None) -> Attribute:
    """Raw values (n,) and which are not null, each for itself."""
    there = np.ones(len(values), dtype=np.bool_) if known is None else np.asarray(known, dtype=np.bool_)
    if np.issubdtype(values.dtype, np.integer):
        whole = np.where(there, values, 0).astype(np.int64)
        return Attribute(there.astype(np.int64), (whole.view(np.uint64), whole >> 63), whole, whole)
    double = np.where(there, values, 0.0).astype(np.float64)
    special = np.isnan(double) + 2 * (double == np.inf) + 4 * (double == -np.inf)
    order = ordinals(double)
    finite = np.where(special > 0, 0.0, double), np.zeros(len(double))
    return Attribute(there.astype(np.int64), finite, order, order, special.astype(np.uint8))


def _joined(parts: list[Attribute]) -> Attribute:
    if any(part.exact != parts[0].exact for part in parts):
        raise ValueError("an attribute is integers in one part and doubles in another")
    special = None if parts[0].exact else np.concatenate([part.special for part in parts if part.special is not None])
    return Attribute(
        np.concatenate([part.known for part in parts]),
        (np.concatenate([part.sum[0] for part in parts]), np.concatenate([part.sum[1] for part in parts])),
        np.concatenate([part.least for part in parts]),
        np.concatenate([part.greatest for part in parts]),
        special,
    )


CELLS_PER_EVENT = 4
"""Up to so many combinations of key, time and type for each event they are counted in one table instead of sorted."""


def _merged(key: Longs, time: Longs, type: NDArray[np.int32], count: Longs, attributes: dict[str, Attribute]) -> Events:
    """Events in any order, with repeats, as compacted ones."""
    if len(key) == 0 or kernels.is_ascending(key, time, type):
        return Events(key, time, type, count, attributes)
    least = [int(column.min()) for column in (key, time, type)]
    sizes = [int(column.max()) - low + 1 for column, low in zip((key, time, type), least, strict=True)]
    cells = sizes[0] * sizes[1] * sizes[2]
    if cells < 1 << 62:
        code = kernels.codes(key, time, type, *least, sizes[1], sizes[2])
        if not attributes and cells <= CELLS_PER_EVENT * len(key):
            total = kernels.histogram(code, count, cells)
            code = np.flatnonzero(total)
            upper, kind = np.divmod(code, sizes[2])
            keys, times = np.divmod(upper, sizes[1])
            return Events(keys + least[0], times + least[1], (kind + least[2]).astype(np.int32), total[code])
        order = np.argsort(code, kind="stable")
        code = code[order]
        first = np.flatnonzero(np.concatenate([[True], code[1:] != code[:-1]]))
    else:
        order = np.lexsort((type, time, key))
        changes = np.zeros(len(order), dtype=np.bool_)
        changes[0] = True
        for column in (key, time, type):
            ordered = column[order]
            changes[1:] |= ordered[1:] != ordered[:-1]
        first = np.flatnonzero(changes)
    found = order[first]
    total = np.add.reduceat(count[order], first)
    kept = {name: _reduced(attribute, order, first) for name, attribute in attributes.items()}
    return Events(key[found], time[found], type[found], total, kept)


def _reduced(attribute: Attribute, order: Longs, first: Longs) -> Attribute:
    """One value for each run of ``order``, which begin at ``first``."""
    known = attribute.known[order]
    there = known > 0
    least = np.where(there, attribute.least[order], np.iinfo(np.int64).max)
    greatest = np.where(there, attribute.greatest[order], np.iinfo(np.int64).min)
    one, other = attribute.sum[0][order], attribute.sum[1][order]
    special = None
    if attribute.special is None:
        total = kernels.wide_sums(one, other, first)
    else:
        total = kernels.double_sums(one, other, first)
        special = np.bitwise_or.reduceat(attribute.special[order], first)
    return Attribute(
        np.add.reduceat(known, first),
        total,
        np.minimum.reduceat(least, first),
        np.maximum.reduceat(greatest, first),
        special,
    )


@dataclass(frozen=True)
class Measure:
    """An aggregate over the events of one ``type`` in all matches of a window (an event counts once for every match
    and every position of the pattern at which the match has it).

    ``function``: ``sum`` (of no value: 0; ask for ``known`` to tell null), ``known`` (how many values are not null),
    ``min``, ``max`` of ``attribute`` (Spark's order of doubles, NaN greatest).
    """

    function: str
    attribute: str
    type: int


@dataclass(frozen=True)
class Asked:
    """One query: ``pattern`` of type codes (one at least), windows ``[k*slide, k*slide + range)`` in ticks."""

    pattern: tuple[int, ...]
    range: int
    slide: int
    measures: tuple[Measure, ...] = ()


@dataclass(frozen=True)
class Integers:
    """Exact integers (a,): 128-bit two's complement, ``low`` uint64 and ``high`` int64, which is a decimal128's buffer.

    ``over`` (a,): the integer has more than 38 digits (or that cannot be told); its ``low`` and ``high`` mean nothing.
    """

    low: NDArray[np.uint64]
    high: Longs
    over: NDArray[np.bool_]

    def decimals(self, scale: int = 0) -> pa.Array:
        """As ``decimal128(38, scale)`` of the unscaled integers; null where ``over``."""
        words = np.empty((len(self.low), 2), dtype=np.uint64)
        words[:, 0], words[:, 1] = self.low, self.high.view(np.uint64)
        valid = pa.py_buffer(np.packbits(~self.over, bitorder="little"))
        return pa.Array.from_buffers(pa.decimal128(38, scale), len(words), [valid, pa.py_buffer(words)])

    def integers(self) -> list[int | None]:
        """As Python's integers; None where ``over``."""
        parts = zip(self.low.tolist(), self.high.tolist(), self.over.tolist(), strict=True)
        return [None if over else (high << 64) + low for low, high, over in parts]


@dataclass(frozen=True)
class Numbers:
    """Values (a,), int64 or float64, and which of them are ``known`` (not null)."""

    values: NDArray[Any]
    known: NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """Answers of one query, ascending by (key, start): ``key`` and ``start`` of the window (a,), number of matches
    ``count`` (>= 1), and for each measure of the query Integers (sum of integers, known) or Numbers (sum of doubles,
    min, max)."""

    key: Longs
    start: Longs
    count: Integers
    measures: tuple[Integers | Numbers, ...] = ()


def answers(
    events: Events,
    asked: Sequence[Asked],
    executor: str | None = None,
    ends: tuple[int, int] | None = None,
) -> list[Answers]:
    """The answers of every query asked, in the same order, over all events given.

    ``executor``: one of :data:`EXECUTORS` (default: what :func:`choose` finds cheapest; measures always run on
    ``windows``). ``ends``: only windows that end in ``(begin, end]``; a window's events must all be given.
    Raises ValueError for an empty pattern, a range or slide that is not positive, an unknown attribute or executor.
    """
    _check(events, asked, executor)
    runs = kernels.runs_of(events.key)
    found: dict[int, Answers] = {}
    for group in _groups(asked):
        queries = [asked[i] for i in group.members]
        rows = _Pass(events, runs, queries, ends, group).counts()
        measured: dict[tuple[int, Measure], Integers | Numbers] = {}
        for measure in dict.fromkeys(measure for query in queries for measure in query.measures):
            which = [i for i, query in enumerate(queries) if measure in query.measures]
            columns = _Pass(events, runs, [queries[i] for i in which], ends, group).measured(measure)
            measured |= {(i, measure): column for i, column in zip(which, columns, strict=True)}
        for i, query in enumerate(queries):
            columns = tuple(measured[i, measure] for measure in query.measures)
            run, start, count = rows[i]
            found[group.members[i]] = Answers(events.key[runs[run]], start, count, columns)
    return [found[i] for i in range(len(asked))]


def _check(events: Events, asked: Sequence[Asked], executor: str | None) -> None:
    if executor is not None and executor not in EXECUTORS:
        raise ValueError(f"no executor is named {executor!r}")
    for query in asked:
        if not query.pattern or query.range <= 0 or query.slide <= 0:
            raise ValueError(f"a pattern has a type at least, and range and slide are positive: {query}")
        for measure in query.measures:
            if measure.function not in FUNCTIONS:
                raise ValueError(f"no function of event sequences is named {measure.function!r}")
            if measure.attribute not in events.attributes:
                raise ValueError(f"the events have no attribute {measure.attribute!r}")


@dataclass(frozen=True)
class _Group:
    """Queries (their numbers) that are processed together. Their windows begin, or ``backward`` in time end, at
    multiples of one slide from one instant on, those of some queries at some of the multiples."""

    members: tuple[int, ...]
    backward: bool
    slide: int
    range: int
    shift: int
    prefixes: frozenset[tuple[int, ...]]

    @property
    def cost(self) -> float:
        """Vectors that an event of a type that stands once in the patterns takes, more or less."""
        return PASS + len(self.prefixes) * (1 + _lanes(-(-self.range // self.slide)) // kernels.LANES)

    def merged(self, other: _Group) -> _Group | None:
        slide = min(self.slide, other.slide)
        if max(self.slide, other.slide) % slide or (self.shift - other.shift) % slide:
            return None
        return _Group(
            self.members + other.members,
            self.backward,
            slide,
            max(self.range, other.range),
            self.shift % slide,
            self.prefixes | other.prefixes,
        )


def _groups(asked: Sequence[Asked]) -> list[_Group]:
    """Partition the queries so that passes over the events take little: two groups become one as long as that saves
    anything, in either direction of time."""
    best: list[_Group] = []
    for backward in (False, True):
        start: dict[tuple[int, int], list[int]] = {}
        for i, query in enumerate(asked):
            start.setdefault((query.slide, query.range), []).append(i)
        groups = []
        for (slide, range_), members in sorted(start.items()):
            patterns = [asked[i].pattern[:: -1 if backward else 1] for i in members]
            prefixes = frozenset(pattern[: n + 1] for pattern in patterns for n in range(len(pattern)))
            shift = (1 - range_) % slide if backward else 0
            groups.append(_Group(tuple(members), backward, slide, range_, shift, prefixes))
        while True:
            merges = (
                (a.cost + b.cost - both.cost, i, j, both)
                for i, a in enumerate(groups)
                for j, b in enumerate(groups[:i])
                if (both := a.merged(b)) is not None
            )
            saving, i, j, both = max(merges, key=lambda merge: merge[0], default=(0.0, 0, 0, None))
            if saving <= 0 or both is None:
                break
            groups = [group for k, group in enumerate(groups) if k not in (i, j)] + [both]
        if not best or sum(group.cost for group in groups) < sum(group.cost for group in best):
            best = groups
    return best


PASS = 10.0
"""What one more pass over the events costs, as additions of vectors to a node's row for each event."""


def _trie(patterns: Sequence[Sequence[int]], spans: Sequence[int], kinds: int) -> kernels.Trie:
    """The trie of some patterns of local types, each with the number of its range."""
    children: list[dict[int, int]] = [{}]
    last = []
    for pattern in patterns:
        node = 0
        for kind in pattern:
            if kind not in children[node]:
                children[node][kind] = len(children)
                children.append({})
            node = children[node][kind]
        last.append(node)
    kind, parent, depth = [kinds], [0], [0]
    number = {0: 0}
    waiting = [(0, child) for child in reversed(children[0].items())]
    while waiting:
        above, (its_kind, node) = waiting.pop()
        number[node] = len(kind)
        kind.append(its_kind)
        parent.append(number[above])
        depth.append(depth[number[above]] + 1)
        waiting += [(node, child) for child in reversed(children[node].items())]
    deepest = max(depth)
    leaf = np.ones(len(kind), dtype=np.bool_)
    leaf[parent] = False
    place = np.array(kind) * (deepest + 1) + deepest - np.array(depth)
    of_kind = np.argsort(place, kind="stable")[:-1]
    ends = np.array([number[node] for node in last])
    span = np.array(spans)
    by_end, by_span = np.argsort(ends, kind="stable"), np.argsort(span, kind="stable")
    return kernels.Trie(
        np.array(kind),
        np.array(parent),
        np.array(depth),
        leaf,
        deepest,
        of_kind,
        np.searchsorted(np.sort(place[1:]), np.arange(kinds * (deepest + 1) + 1)),
        by_end,
        np.searchsorted(ends[by_end], np.arange(len(kind) + 1)),
        span,
        by_span,
        ends[by_span],
        np.searchsorted(span[by_span], np.arange(span.max() + 2)),
        max(pattern.count(kind) for pattern in patterns for kind in set(pattern)),
    )


def _lanes(windows: int) -> int:
    return -(-windows // kernels.LANES) * kernels.LANES


class _Pass:
    """One pass over the events for several queries of a group.

    Backwards, times are negated and patterns reversed: the window [b, e) becomes [1 - e, 1 - b).
    """

    def __init__(
        self, events: Events, runs: Longs, asked: Sequence[Asked], ends: tuple[int, int] | None, group: _Group
    ) -> None:
        self._events, self._runs, self._asked, self._backward = events, runs, asked, group.backward
        slide, shift = group.slide, group.shift
        spans = sorted({(query.range, query.slide) for query in asked})
        types = sorted({code for query in asked for code in query.pattern})
        self._local = {code: number for number, code in enumerate(types)}
        patterns = [[self._local[code] for code in query.pattern[:: -1 if group.backward else 1]] for query in asked]
        self._trie = _trie(patterns, [spans.index((query.range, query.slide)) for query in asked], len(types))
        begin, end = ends or (-FAR, FAR)
        limits = []
        for range_, every in spans:
            # starts of the first and the last window
            starts = ((begin - range_) // every + 1) * every, (end - range_) // every * every
            if group.backward:
                starts = 1 - range_ - starts[1], 1 - range_ - starts[0]
            limits.append([(start - shift) // slide for start in starts])
        least, greatest = np.array(limits).T
        every = np.array([query_slide // slide for _, query_slide in spans])
        self._windows = kernels.Windows(
            slide, shift, np.array([range_ for range_, _ in spans]), least, greatest, every, least % every,
            _lanes(-(-spans[-1][0] // slide)),
        )  # fmt: skip
        table = np.full(max(types) + 2, -1)
        table[types] = np.arange(len(types))
        self._stream = kernels.Stream(events.time, events.type, events.count, -1 if group.backward else 1, table)
        self._block = kernels.block_room(BLOCK, len(types), len(spans), self._windows.lanes)

    def counts(self) -> list[tuple[Longs, Longs, Integers]]:
        """For each query, of each answer its run of events, the start of its window, and the count."""
        rows, doubles, wide = self._room(np.uint64), self._room(np.float64), np.uint64
        ladder = [
            lambda: (kernels.Counts(rows, None, None), True),
            lambda: (kernels.Counts(rows, None, doubles), True),
            lambda: (kernels.Counts(rows, self._room(wide), doubles), False),
        ]
        found, order = self._found(ladder, None)
        slide, shift = self._windows.slide, self._windows.shift
        out = []
        for query, which in zip(self._asked, order, strict=True):
            start = found.window[which] * slide + shift
            if self._backward:
                start = 1 - start - query.range
            out.append((found.run[which].astype(np.int64), start, _integers(found, which)))
        return out

    def measured(self, measure: Measure) -> list[Integers | Numbers]:
        """A measure's values, in the order of :meth:`counts`."""
        attribute, kind = self._events.attributes[measure.attribute], self._local.get(measure.type, -1)
        words, room = np.uint64, self._room
        values: Any
        if measure.function == "known" or (measure.function == "sum" and attribute.exact):
            if measure.function == "known":
                low, high, bound = attribute.known.view(words), attribute.known >> 63, attribute.known.astype(float)
            else:
                magnitude = np.maximum(np.abs(attribute.least.astype(float)), np.abs(attribute.greatest.astype(float)))
                low, high, bound = *attribute.sum, np.where(attribute.known > 0, magnitude * attribute.known, 0.0)
            values = kernels.IntegerValues(kind, low, high, bound)

            def state(wide: bool) -> kernels.IntegerSums:
                return kernels.IntegerSums(
                    *(room(words), room(words) if wide else None, room(float)),
                    *(room(words), room(words) if wide else None, room(float), room(float)),
                )

            found, order = self._found([lambda: (state(False), False), lambda: (state(True), False)], values)
            return [_integers(found, which) for which in order]
        if measure.function == "sum":
            values = kernels.DoubleValues(kind, *attribute.sum, attribute.special)
            sums = kernels.DoubleSums(*(room(float) for _ in range(4)), room(np.uint8))
            found, order = self._found([lambda: (sums, False)], values)
            return [Numbers(found.double[which], np.ones(len(which), dtype=np.bool_)) for which in order]
        best, sign = (attribute.greatest, 1) if measure.function == "max" else (attribute.least, -1)
        values = kernels.ExtremeValues(kind, attribute.known, best, sign)
        extremes = kernels.Extremes(room(np.uint8), room(np.int64))
        found, order = self._found([lambda: (extremes, False)], values)
        out: list[Integers | Numbers] = []
        for which in order:
            number = found.high[which]
            out.append(Numbers(number if attribute.exact else doubles(number), found.low[which] > 0))
        return out

    def _room(self, dtype: Any) -> NDArray[Any]:
        return kernels.aligned(len(self._trie.kind) * self._windows.lanes, dtype)

    def _dense(self) -> kernels.Dense:
        room = (self._trie.deepest + 1) * len(self._block.time) * self._windows.lanes
        tops = np.zeros(len(self._trie.kind), dtype=np.uint64)
        return kernels.Dense(kernels.aligned(room, np.uint64), kernels.aligned(room, np.float64), tops, DENSE)

    def _found(
        self, ladder: Sequence[Callable[[], tuple[Any, bool]]], values: Any
    ) -> tuple[kernels.Found, list[Longs]]:
        """What the states find, and which answers are each query's, by key and window. Keys that a state of the ladder
        cannot count are taken by the next."""
        chosen = np.arange(len(self._runs) - 1)[:: -1 if self._backward else 1]
        parts, dense = [], None
        for step, make in enumerate(ladder):
            state, can_be_dense = make()
            dense = (dense or self._dense()) if can_be_dense else None
            found, filled, failed = kernels.slide_windows(
                *(self._trie, state, values, dense, step == 0 and can_be_dense, self._windows, self._stream),
                *(self._block, self._runs, chosen, kernels.found_room(1 << 12)),
            )
            parts.append(kernels.Found(*(column[:filled] for column in found)))
            chosen = chosen[failed]
            if len(chosen) == 0:
                break
        whole = parts[0]
        if len(parts) > 1:
            whole = kernels.Found(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        order, first = kernels.by_query(whole.query, len(self._asked), self._backward)
        order = [order[first[q] : first[q + 1]] for q in range(len(self._asked))]
        if len(parts) > 1:
            order = [which[np.argsort(whole.run[which], kind="stable")] for which in order]
        return whole, order


def _integers(found: kernels.Found, which: Longs) -> Integers:
    return Integers(found.low[which], found.high[which], found.flag[which] != kernels.FINE)


FUNCTIONS = ("sum", "known", "min", "max")

FAR = 1 << 62
"""Later than any instant."""

DENSE = (60.0, 4.0, 20.0)
"""When a block is processed node by node: see :class:`optimizer.sequence_kernels.Dense`."""

BLOCK = 2048
"""Events that are processed together at most: their rows of a few nodes fit a processor's second cache."""

EXECUTORS = ("windows", "fragments", "landmarks", "middle")


class Substrings:
    """The distinct substrings of some patterns: what the cells of a fragment count.

    ``texts``: each substring as a tuple of type codes, by length, then by codes (the same for the same set of
    patterns). ``number``: its number. ``types``: the type codes in use, ascending.
    """

    def __init__(self, patterns: Iterable[tuple[int, ...]]) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Cells:
    """Of each (key, fragment) how many matches of every substring lie in the fragment: the sequence aggregate's partial
    aggregates. Rows (g,) ascending by (key, start).

    ``key``, ``start`` (of the fragment, ticks): (g,). ``longs`` (g, x) int64 and ``doubles`` (g, y) float64: one list
    a row in Parquet, laid out by :class:`Substrings` alone.
    """

    key: Longs
    start: Longs
    longs: NDArray[np.int64]
    doubles: NDArray[np.float64]


def cells_of(events: Events, index: Substrings, edges: Longs) -> Cells:
    """The cells of each key in each fragment ``[edges[i], edges[i + 1])``, edges (e + 1,) ascending; events outside are
    left out, fragments without events have no row."""
    raise NotImplementedError


def concatenated(a: Cells, b: Cells, index: Substrings) -> Cells:
    """Row by row the cells of ``a``'s events followed by ``b``'s: associative, not commutative. ``a`` ends no later
    than ``b`` begins, within one timestamp at most."""
    raise NotImplementedError


def answers_of_cells(
    cells: Cells, index: Substrings, asked: Sequence[Asked], ends: tuple[int, int] | None = None
) -> list[Answers]:
    """As :func:`answers`, from stored cells (COUNT alone: queries with measures raise ValueError). Fragments must be
    cut at every edge of the windows asked for."""
    raise NotImplementedError
