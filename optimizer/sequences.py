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

import itertools
import math
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
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
        return merged(*columns, np.ones(n, dtype=np.int64), kept)

    def __post_init__(self) -> None:
        columns: list[NDArray[Any]] = [self.time, self.type, self.count]
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
        none = np.zeros(0, dtype=np.int64)
        return Events(none, none, none.astype(np.int32), none)
    if any(part.attributes.keys() != given[0].attributes.keys() for part in given):
        raise ValueError("events to be combined have different attributes")
    attributes = {name: _joined([part.attributes[name] for part in given]) for name in given[0].attributes}
    key, time, type_, count = (
        np.concatenate([getattr(part, name) for part in given]) for name in ("key", "time", "type", "count")
    )
    return merged(key, time, type_, count, attributes)


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


def merged(key: Longs, time: Longs, type: NDArray[np.int32], count: Longs, attributes: dict[str, Attribute]) -> Events:
    """Events in any order, with repeats, as compacted ones."""
    if len(key) == 0 or kernels.is_ascending(key, time, type):
        return Events(key, time, type, count, attributes)
    columns: tuple[NDArray[Any], ...] = (key, time, type)
    least = [int(column.min()) for column in columns]
    sizes = [int(column.max()) - low + 1 for column, low in zip(columns, least, strict=True)]
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
    for group in choose(events, asked, executor):
        queries = [asked[i] for i in group.members]
        rows = _Pass(events, runs, queries, ends, group).counts()
        measured: dict[tuple[int, Measure], Integers | Numbers] = {}
        for measure in dict.fromkeys(measure for query in queries for measure in query.measures):
            which = [i for i, query in enumerate(queries) if measure in query.measures]
            columns = _Pass(events, runs, [queries[i] for i in which], ends, group).measured(measure)
            measured |= {(i, measure): column for i, column in zip(which, columns, strict=True)}
        for i, query in enumerate(queries):
            run, start, count = rows[i]
            measures = tuple(measured[i, measure] for measure in query.measures)
            found[group.members[i]] = Answers(events.key[runs[run]], start, count, measures)
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


# -------------------------------------------------------------------------------------------- choosing
@dataclass(frozen=True)
class Costs:
    """Nanoseconds that the parts of a pass take (``python -m tests.benchmarks.sequences --costs``); only their ratios
    matter.

    Node by node: per relevant ``event``; for each event of a node's type for the ``node``, and per ``vector`` of its
    row (with doubles ``doubles`` times that); per node and ``block``. Event by event: ``lone_event``, ``lone_node``,
    ``lone_vector``. Per window and query an ``answer``; per window and node to ``clear`` its lane; per fragment, cut of
    a node's prefix and vector to ``append`` cells; per query and window to join rows at a landmark: ``shot``, and
    ``cut`` for each cut of its pattern.
    """

    event: float = 6.5
    node: float = 0.9
    vector: float = 1.1
    doubles: float = 1.8
    block: float = 16.0
    lone_event: float = 20.0
    lone_node: float = 4.0
    lone_vector: float = 3.0
    answer: float = 8.0
    clear: float = 1.0
    append: float = 1.6
    shot: float = 12.0
    cut: float = 2.0


COSTS = Costs()


@dataclass(frozen=True)
class Group:
    """Queries, ``members`` by number, that are processed together by an ``executor``.

    Their windows begin, or ``backward`` in time end, at the instants ``k * slide + shift`` (every one, or one in so
    many), and are ``range`` long at most. ``cost`` (nanoseconds), ``bits`` of the largest count, and
    ``loose_bits`` of the largest if blocks go on where windows end: what :func:`choose` expects.
    """

    executor: str
    members: tuple[int, ...]
    backward: bool
    slide: int
    range: int
    shift: int
    cost: float
    bits: float
    loose_bits: float


Pattern = tuple[int, ...]


class _Load:
    """How many events there are of each type, and how many before they were compacted (estimated from a sample), of how
    many keys, and over how many ticks, all keys together; and what executors cost on them."""

    def __init__(self, events: Events) -> None:
        step = len(events) // SAMPLE + 1
        codes, places, counts = np.unique(events.type[::step], return_inverse=True, return_counts=True)
        each = np.bincount(places, events.count[::step], minlength=len(codes))
        scale = len(events) / max(1, len(places))
        self._of, self.bits = cache(self._nodes_of), cache(self._bits)
        self._events = dict(zip(codes.tolist(), (counts * scale).tolist(), strict=True))
        self._occurrences = dict(zip(codes.tolist(), (each * scale).tolist(), strict=True))
        runs = kernels.runs_of(events.key)
        self._keys = len(runs) - 1
        self._ticks = float((events.time[runs[1:] - 1] - events.time[runs[:-1]]).sum()) + self._keys

    def _nodes_of(self, patterns: tuple[Pattern, ...]) -> tuple[dict[Pattern, float], float]:
        """Of all prefixes of some patterns the events of the last type; and all relevant events."""
        nodes = {pattern[: n + 1] for pattern in patterns for n in range(len(pattern))}
        kinds = {node[-1] for node in nodes}
        return {node: self._events.get(node[-1], 0.0) for node in nodes}, sum(self._events.get(k, 0.0) for k in kinds)

    def _bits(self, patterns: tuple[Pattern, ...], range_: float) -> float:
        """Binary digits of the largest count to be expected, were events spread evenly."""
        digits = {code: math.log2(max(n * range_ / self._ticks, 1e-9)) for code, n in self._occurrences.items()}
        digits |= {code: -30.0 for pattern in patterns for code in pattern if code not in digits}
        orders = {length: math.lgamma(length + 1) / math.log(2) for length in set(map(len, patterns))}
        return max(sum(map(digits.__getitem__, pattern)) - orders[len(pattern)] for pattern in patterns)

    def beyond(self, slide: int, range_: int) -> float:
        """How many ticks a block may go on behind the end of a window that is open when it begins."""
        overlap = -(-range_ // slide)
        return min(slide * (_lanes(overlap) - overlap), BLOCK * self._ticks / max(1.0, sum(self._events.values())))

    def _vector(self, patterns: tuple[Pattern, ...], range_: int) -> float:
        return COSTS.vector * (COSTS.doubles if self.bits(patterns, range_) > NARROW else 1.0)

    def _windows(self, relevant: float, slide: int, range_: int) -> float:
        return (
            min(relevant, self._ticks / slide + self._keys)
            if range_ <= slide
            else min(relevant * range_ / slide, (self._ticks + self._keys * range_) / slide)
        )

    def windows(self, patterns: tuple[Pattern, ...], slide: int, range_: int) -> float:
        nodes, relevant = self._of(patterns)
        overlap = -(-range_ // slide)
        vectors = _lanes(overlap) // kernels.LANES
        work = sum(nodes.values())
        blocks = min(relevant, self._ticks / (slide * (_lanes(overlap) - overlap + 1)) + relevant / BLOCK + self._keys)
        dense = (
            relevant * COSTS.event
            + work * (COSTS.node + vectors * self._vector(patterns, range_))
            + len(nodes) * blocks * COSTS.block
        )
        alone = relevant * COSTS.lone_event + work * (COSTS.lone_node + vectors * COSTS.lone_vector)
        windows = self._windows(relevant, slide, range_)
        return min(dense, alone) + windows * (len(patterns) * COSTS.answer + len(nodes) * COSTS.clear)

    def fragments(self, patterns: tuple[Pattern, ...], slide: int, range_: int, edges: int) -> float:
        nodes, relevant = self._of(patterns)
        vectors = _lanes(-(-range_ // slide)) // kernels.LANES
        fragments = min(relevant, edges * (self._ticks / slide + self._keys))
        appended = fragments * sum(len(node) for node in nodes) * vectors * COSTS.append
        windows = self._windows(relevant, slide, range_)
        return (
            relevant * COSTS.event
            + self._cells(nodes, COSTS.vector * COSTS.doubles, fragments + relevant / BLOCK)
            + appended
            + windows * (len(patterns) * COSTS.answer + len(nodes) * COSTS.clear)
        )

    def landmarks(self, patterns: tuple[Pattern, ...], slide: int, range_: int) -> float:
        ahead, relevant = self._of(patterns)
        back, _ = self._of(tuple(pattern[::-1] for pattern in patterns))
        blocks = min(relevant, self._ticks / range_ + self._keys + relevant / BLOCK)
        vector = self._vector(patterns, range_)
        joined = sum(COSTS.shot + COSTS.cut * len(pattern) for pattern in patterns)
        return (
            2 * relevant * COSTS.event
            + self._cells(ahead, vector, blocks)
            + self._cells(back, vector, blocks)
            + self._windows(relevant, slide, range_) * joined
        )

    def middle(self, patterns: tuple[Pattern, ...], slide: int, range_: int) -> float:
        pairs = sorted(set(zip(patterns, _cuts(patterns), strict=True)))
        met = [(pattern, cut) for pattern, cut in pairs if 0 < cut < len(pattern)]
        if not met:
            return math.inf
        ahead, _ = self._of(tuple(pattern[:cut] for pattern, cut in pairs))
        back, _ = self._of(tuple(pattern[:cut:-1] if cut else pattern[::-1] for pattern, cut in pairs))
        relevant = self._of(patterns)[1]
        vectors = _lanes(-(-range_ // slide)) // kernels.LANES * self._vector(patterns, range_)
        kept = sum(self._events.get(suffix[0], 0.0) for suffix in {pattern[cut:] for pattern, cut in met})
        products = sum(self._events.get(pattern[cut], 0.0) for pattern, cut in met)
        blocks = min(relevant, self._ticks / slide + relevant / BLOCK + self._keys)
        nodes = len(ahead) + len(back) + len(met)
        windows = self._windows(relevant, slide, range_)
        return (
            2 * relevant * COSTS.event
            + (sum(ahead.values()) + sum(back.values()) + kept) * (COSTS.node + vectors)
            + products * (COSTS.node + PRODUCT * vectors)
            + nodes * blocks * COSTS.block
            + windows * (len(patterns) * COSTS.answer + nodes * COSTS.clear)
        )

    def _cells(self, nodes: Mapping[Pattern, float], vector: float, blocks: float) -> float:
        rows = sum(events * (COSTS.node + vector * (len(node) // kernels.LANES + 1)) for node, events in nodes.items())
        return rows + len(nodes) * blocks * COSTS.block


def choose(events: Events, asked: Sequence[Asked], executor: str | None = None) -> list[Group]:
    """Partition the queries into groups and give each its executor, so that the additions of rows are few."""
    load = _Load(events)
    if executor in ("landmarks", "middle"):
        return _apart(load, executor, asked, _alike(asked), False)
    if executor == "fragments":
        return _merged_groups(load, executor, asked, False)
    both = [_merged_groups(load, "windows", asked, backward) for backward in (False, True)]
    best = min(both, key=lambda groups: sum(group.cost for group in groups))
    if executor == "windows":
        return best
    found: list[Group] = []
    for group in best:
        if group.cost < LOOKING * sum(len(asked[i].pattern) for i in group.members):
            # what might be saved is about what it takes to find out
            found.append(group)
            continue
        # a group as it is can be processed by fragments too, and queries of the same windows by every executor
        options = [[group], _apart(load, "fragments", asked, [group.members], False)]
        for other in ("landmarks", "middle"):
            options.append(_apart(load, other, asked, _alike(asked, group.members), False))
        options = [option for option in options if option]
        found += min(options, key=lambda groups: sum(one.cost for one in groups))
    return found


def _apart(
    load: _Load, executor: str, asked: Sequence[Asked], several: Iterable[tuple[int, ...]], backward: bool
) -> list[Group]:
    """A group for each of several sets of queries, where they make one."""
    groups = (_group(load, executor, asked, members, backward) for members in several)
    return [group for group in groups if group is not None]


def _alike(asked: Sequence[Asked], members: Iterable[int] | None = None) -> list[tuple[int, ...]]:
    """Queries of the same windows."""
    found: dict[tuple[int, int], list[int]] = {}
    for i in range(len(asked)) if members is None else members:
        found.setdefault((asked[i].slide, asked[i].range), []).append(i)
    return [tuple(which) for _, which in sorted(found.items())]


def _group(
    load: _Load, executor: str, asked: Sequence[Asked], members: tuple[int, ...], backward: bool
) -> Group | None:
    """The group of these queries; None if windows of one begin (backwards: end) where no window of another does."""
    queries = [asked[i] for i in members]
    slide, range_ = min(query.slide for query in queries), max(query.range for query in queries)
    shift = (1 - range_) % slide if backward else 0
    if any(query.slide % slide or (backward and (1 - query.range - shift) % slide) for query in queries):
        return None
    patterns = tuple(query.pattern[:: -1 if backward else 1] for query in queries)
    if executor == "windows":
        cost = load.windows(patterns, slide, range_)
    elif executor == "fragments":
        cost = load.fragments(patterns, slide, range_, len({query.range % slide for query in queries} | {0}))
    else:
        cost = (load.landmarks if executor == "landmarks" else load.middle)(patterns, slide, range_)
    bits = [load.bits(patterns, span) for span in (range_, range_ + load.beyond(slide, range_))]
    return Group(executor, members, backward, slide, range_, shift, cost, *bits)


def _merged_groups(load: _Load, executor: str, asked: Sequence[Asked], backward: bool) -> list[Group]:
    """Start with queries of the same windows, and let two groups become one as long as that saves anything."""
    groups = _apart(load, executor, asked, _alike(asked), backward)
    merges: dict[tuple[tuple[int, ...], tuple[int, ...]], Group | None] = {}
    while True:
        best: tuple[float, Group | None, tuple[Group, ...]] = 0.0, None, ()
        for a, b in itertools.combinations(groups, 2):
            if (a.members, b.members) not in merges:
                merges[a.members, b.members] = _group(load, executor, asked, a.members + b.members, backward)
            both = merges[a.members, b.members]
            if both is not None and a.cost + b.cost - both.cost > best[0]:
                best = a.cost + b.cost - both.cost, both, (a, b)
        if best[1] is None:
            return groups
        groups = [group for group in groups if group not in best[2]] + [best[1]]


NARROW, MIDDLING, BROAD = 64.0, 100.0, 127.0
"""Up to about so many bits counts are known not to wrap in 64 bits, or told by doubles beside them; or in 128 bits."""

MARGIN = 5.0
"""Bits that an expected count may fall short by."""

LOOKING = 20_000.0
"""Nanoseconds for each type of a pattern below which executors are not compared: five times what that takes."""

SAMPLE = 1 << 14
PRODUCT = 3.0


def _lanes(windows: int) -> int:
    return -(-windows // kernels.LANES) * kernels.LANES


# --------------------------------------------------------------------------------------------- a pass
class _Step(NamedTuple):
    """From a prefix to a longer one: a local type, and the pair (kernels.Middle) that is met there, if any."""

    kind: int
    pair: int = -1


Path = Sequence[_Step]


def _tree(
    paths: Mapping[int, Path], spans: Sequence[int], kinds: int, roundings: int, kept: Mapping[int, Path] | None = None
) -> tuple[kernels.Trie, Longs, Longs, Longs]:
    """The trie of the ``paths`` of some queries, by their number; ``spans``: number of the range of every query;
    ``kept``: paths whose rows are kept, by the number of the pair. And for kernels.Middle the pair of each node, and
    first and number of the pairs that are kept of each."""
    children: list[dict[_Step, int]] = [{}]
    last = []
    kept = kept or {}
    for path in (*paths.values(), *kept.values()):
        node = 0
        for step in path:
            if step not in children[node]:
                children[node][step] = len(children)
                children.append({})
            node = children[node][step]
        last.append(node)
    steps, parent, depth, number = [_Step(kinds)], [0], [0], {0: 0}
    waiting = [(0, child) for child in reversed(children[0].items())]
    while waiting:
        above, (step, node) = waiting.pop()
        number[node] = len(steps)
        steps.append(step)
        parent.append(number[above])
        depth.append(depth[number[above]] + 1)
        waiting += [(node, child) for child in reversed(children[node].items())]
    deepest = max(depth)
    leaf = np.ones(len(steps), dtype=np.uint8)
    leaf[parent[1:]] = 0
    kind = np.array([step.kind for step in steps])
    place = kind[1:] * (deepest + 1) + deepest - np.array(depth[1:], dtype=np.int64)
    of_kind, of_kind_first = _by(place, kinds * (deepest + 1))
    ends, query = np.array([number[node] for node in last], dtype=np.int64), np.array([*paths], dtype=np.int64)
    at_end, end_first = _by(ends[: len(query)], len(steps))
    span = np.array(spans)
    at_span, span_first = _by(span[query], max(spans) + 1)
    at_kept, kept_first = _by(ends[len(query) :], len(steps))
    repeats = max((max(Counter(path).values()) for path in paths.values()), default=1)
    trie = kernels.Trie(
        kind, np.array(parent), np.array(depth), leaf, deepest, of_kind + 1, of_kind_first, query[at_end], end_first,
        span, query[at_span], ends[at_span], span_first, repeats, roundings, len(steps), len(span), len(query),
    )  # fmt: skip
    pairs = np.array([*kept], dtype=np.int64)[at_kept]
    return trie, np.array([step.pair for step in steps]), kept_first, pairs


def _by(numbers: Longs, count: int) -> tuple[Longs, Longs]:
    """Indices by number, and where those of each number 0..count - 1 begin (count + 1,)."""
    order = np.argsort(numbers, kind="stable")
    return order, np.searchsorted(numbers[order], np.arange(count + 1))


class _Pass:
    """One pass over the events for several queries of a group.

    Backwards, times are negated and patterns reversed: the window [b, e) becomes [1 - e, 1 - b).
    """

    def __init__(
        self, events: Events, runs: Longs, asked: Sequence[Asked], ends: tuple[int, int] | None, group: Group
    ) -> None:
        self._events, self._runs, self._asked, self._ends, self._group = events, runs, asked, ends, group
        types = sorted({code for query in asked for code in query.pattern})
        self._local = {code: number for number, code in enumerate(types)}
        self._kinds = sorted({(query.range, query.slide) for query in asked})
        self._spans = [self._kinds.index((query.range, query.slide)) for query in asked]
        self._patterns = [[_Step(self._local[code]) for code in query.pattern] for query in asked]
        # of one event: its multiplicity as a double, the product with it and the sum
        self._roundings = 4 * max(len(query.pattern) for query in asked)
        table = np.full(max(types) + 2, -1)
        table[types] = np.arange(len(types))
        self._streams = [
            kernels.Stream(events.time, events.type, events.count, step, table, len(table)) for step in (1, -1)
        ]
        self._trie = cache(self._new_trie)
        self._lanes = _lanes(-(-group.range // group.slide))
        edges = group.range // group.slide + 2
        self._block = kernels.block_room(max(BLOCK, len(types)), len(types), len(self._kinds), self._lanes, edges)

    def _windows(self, backward: bool) -> kernels.Windows:
        slide, (begin, end) = self._group.slide, self._ends or (-FAR, FAR)
        shift = (1 - self._group.range) % slide if backward else 0
        limits = []
        for range_, every in self._kinds:
            # starts of the first and the last window
            starts = ((begin - range_) // every + 1) * every, (end - range_) // every * every
            if backward:
                starts = 1 - range_ - starts[1], 1 - range_ - starts[0]
            limits.append([(start - shift) // slide for start in starts])
        least, greatest = (np.array(column) for column in zip(*limits, strict=True))
        steps = np.array([each // slide for _, each in self._kinds])
        # windows of one start and of one end have one lane, if they are of one range
        turn, turned = (-1, (1 - self._group.range - shift) // slide) if backward else (1, 0)
        return kernels.Windows(
            slide, shift, np.array([range_ for range_, _ in self._kinds]), least, greatest, steps, least % steps,
            self._lanes, turn, turned, len(steps), least.min(), greatest.max(),
        )  # fmt: skip

    def _new_trie(self, backward: bool) -> kernels.Trie:
        paths = {q: pattern[:: -1 if backward else 1] for q, pattern in enumerate(self._patterns)}
        return _tree(paths, self._spans, len(self._local), self._roundings)[0]

    def counts(self) -> list[tuple[Longs, Longs, Integers]]:
        """For each query, of each answer its run of events, the start of its window, and the count."""
        return [(run, start, _integers(part)) for run, start, part in self._climb(self.ladder())]

    def ladder(self) -> Iterator[Taker]:
        """Ways to count: the keys that one cannot count are left to the next."""
        first = {"windows": self._rows, "fragments": self._cells, "landmarks": self._landmarks, "middle": self._middle}
        return itertools.chain(first[self._group.executor](), [self._wide])

    def measured(self, measure: Measure) -> list[Integers | Numbers]:
        """A measure's values, in the order of :meth:`counts`."""
        attribute, kind = self._events.attributes[measure.attribute], self._local.get(measure.type, -1)
        trie, words = self._trie(self._group.backward), np.uint64

        def room(dtype: Any) -> NDArray[Any]:
            return kernels.aligned(len(trie.kind) * self._lanes, dtype)

        def take(state: Any) -> Taker:
            return lambda chosen: self._slide(trie, state, values, None, True, chosen)

        values: Any
        if measure.function == "known" or (measure.function == "sum" and attribute.exact):
            if measure.function == "known":
                low, high, bound = attribute.known.view(words), attribute.known >> 63, attribute.known.astype(float)
            else:
                magnitude = np.maximum(np.abs(attribute.least.astype(float)), np.abs(attribute.greatest.astype(float)))
                low, high, bound = *attribute.sum, np.where(attribute.known > 0, magnitude * attribute.known, 0.0)
            values = kernels.IntegerValues(kind, low, high, bound)
            narrow = kernels.IntegerSums(
                room(words), None, room(float), room(words), None, room(float), room(float)
            )  # fmt: skip
            found = self._climb([take(narrow), lambda chosen: take(wide())(chosen)])

            def wide() -> kernels.IntegerSums:
                return narrow._replace(high=room(words), sum_high=room(words))

            return [_integers(part) for _, _, part in found]
        if measure.function == "sum":
            assert attribute.special is not None
            values = kernels.DoubleValues(kind, *attribute.sum, attribute.special)
            sums = kernels.DoubleSums(room(float), room(float), room(float), room(float), room(np.uint8))
            found = self._climb([take(sums)])
            return [Numbers(part.double, np.ones(len(part.double), dtype=np.bool_)) for _, _, part in found]
        best, sign = (attribute.greatest, 1) if measure.function == "max" else (attribute.least, -1)
        values = kernels.ExtremeValues(kind, attribute.known, best, sign)
        found = self._climb([take(kernels.Extremes(room(np.uint8), room(np.int64)))])
        return [
            Numbers(part.high if attribute.exact else doubles(part.high), part.low > 0) for _, _, part in found
        ]  # fmt: skip

    # Each executor as takers, the fastest first.
    def _rows(self) -> Iterator[Taker]:
        trie = self._trie(self._group.backward)
        dense = self._dense(trie, self._group.loose_bits > NARROW - MARGIN)
        low = kernels.aligned(len(trie.kind) * self._lanes, np.uint64)
        yield from self._lone(trie, low)
        if self._group.bits < NARROW:
            yield lambda chosen: self._slide(trie, kernels.Counts(low, None, None), None, dense, False, chosen)
        if self._group.bits < MIDDLING:
            size = kernels.aligned(len(low), np.float64)
            loose = dense._replace(strict=False)
            yield lambda chosen: self._slide(trie, kernels.Counts(low, None, size), None, loose, True, chosen)
        if self._group.bits < BROAD:
            high = kernels.aligned(len(low), np.uint64)
            broad = self._dense(trie, self._group.loose_bits > BROAD - MARGIN, wide=True)
            yield lambda chosen: self._slide(trie, kernels.Counts(low, high, None), None, broad, False, chosen)

    def _lone(self, trie: kernels.Trie, low: NDArray[np.uint64]) -> Iterator[Taker]:
        """The keys with few events, if there are any."""
        if len(self._runs) == 1:
            return
        time, first = self._events.time, self._runs[:-1]
        events, ticks = np.diff(self._runs), time[self._runs[1:] - 1] - time[first] + 1
        # of an event, relevant or not: how often it came, and nodes of its type
        every = len(time) // SAMPLE + 1
        per_kind = np.bincount(trie.kind[1:], minlength=len(self._local) + 1)
        local = self._streams[0].local
        nodes = float(per_kind[local[np.minimum(self._events.type[::every], len(local) - 1)]].mean())
        often = float(self._events.count[::every].mean())
        # as kernels._is_dense has it, of blocks of average length
        overlap = -(-self._group.range // self._group.slide)
        blocks = 1 + events / self._block.size + ticks / (self._group.slide * (self._lanes - overlap + 1))
        per_event = DENSE[1] * nodes * (self._lanes // kernels.LANES) + DENSE[2]
        most = _most(trie.deepest, trie.repeats)
        lone = DENSE[0] * trie.nodes * blocks > per_event * events
        lone &= often * events * np.minimum(1.0, self._group.range / ticks) < most
        if not lone.any():
            return
        sizes = len(trie.kind), len(trie.kind), self._lanes, len(self._kinds)
        live, clean, opened, due = (np.zeros(size, dtype=np.int64) for size in sizes)
        room = kernels.Lone(low, live, clean, opened, due, most)
        backward = self._group.backward

        def take(chosen: Longs) -> Taken:
            found, filled, failed = kernels.lone_windows(
                *(trie, room, self._windows(backward), self._streams[backward], self._runs, chosen, lone[chosen]),
                kernels.found_room(ROOM),
            )
            return [(backward, _part(found, filled))], failed

        yield take

    def _wide(self, chosen: Longs) -> Taken:
        trie = self._trie(self._group.backward)
        low, high, size = (
            kernels.aligned(len(trie.kind) * self._lanes, dtype) for dtype in (np.uint64, np.uint64, np.float64)
        )
        dense = self._dense(trie, False, wide=True)
        return self._slide(trie, kernels.Counts(low, high, size), None, dense, True, chosen)

    def _cells(self) -> Iterator[Taker]:
        trie = self._trie(self._group.backward)
        low, size = (kernels.aligned(len(trie.kind) * self._lanes, dtype) for dtype in (np.uint64, np.float64))
        cells = self._cell_room(trie, True)
        if self._group.bits < MIDDLING:
            yield lambda chosen: self._slide(trie, kernels.Counts(low, None, size), None, None, True, chosen, cells)

    def _landmarks(self) -> Iterator[Taker]:
        tries, windows = [self._trie(backward) for backward in (False, True)], self._windows(False)
        lengths = np.array([len(pattern) for pattern in self._patterns])
        edges = len(self._block.shots)
        for doubles_too in self._precisions():
            rooms = [self._cell_room(trie, doubles_too) for trie in tries]
            size = edges * len(lengths) * rooms[0].lanes
            shots = [
                kernels.Shots(
                    kernels.aligned(size, np.uint64), kernels.aligned(size, np.float64) if doubles_too else None
                )
                for _ in tries
            ]

            def take(chosen: Longs, rooms: Any = rooms, shots: Any = shots) -> Taken:
                found, filled, failed = kernels.landmark_windows(
                    *(*tries, *rooms, *shots, lengths, windows, self._streams[0], self._block, self._runs, chosen),
                    kernels.found_room(ROOM),
                )
                return [(False, _part(found, filled))], failed

            yield take

    def _middle(self) -> Iterator[Taker]:
        pairs: dict[tuple[_Step, ...], int] = {}
        paths: tuple[dict[int, Path], dict[int, Path]] = {}, {}
        kinds: list[Any] = []
        for q, (pattern, cut) in enumerate(zip(self._patterns, _cuts(self._patterns), strict=True)):
            if cut in (0, len(pattern)):
                paths[cut == 0][q] = pattern[:: -1 if cut == 0 else 1]
                continue
            pair = pairs.setdefault(tuple(pattern[cut:]), len(pairs))
            if pair == len(kinds):
                kinds.append(pattern[cut].kind)
            paths[0][q] = [*pattern[:cut], _Step(pattern[cut].kind, pair)]
        kept = {pair: suffix[:0:-1] for suffix, pair in pairs.items()}
        ahead, product, none_first, none = _tree(paths[0], self._spans, len(self._local), self._roundings)
        back, _, kept_first, kept_pairs = _tree(paths[1], self._spans, len(self._local), self._roundings, kept)
        count = len(self._local)
        total, firsts = np.zeros(count, dtype=np.int64), np.zeros(len(pairs), dtype=np.int64)
        rooms = kernels.aligned(0, np.uint64), kernels.aligned(0, np.float64)
        middles = [
            kernels.Middle(
                *(pairs_of, first, which, np.array(kinds, dtype=np.int64), firsts),
                *(np.zeros(count, dtype=np.int64), total, *rooms),
            )
            for pairs_of, first, which in (
                (product, none_first, none),
                (np.full(len(back.kind), -1), kept_first, kept_pairs),
            )
        ]
        denses = [self._dense(trie, True) for trie in (ahead, back)]
        lows = [kernels.aligned(len(trie.kind) * self._lanes, np.uint64) for trie in (ahead, back)]
        windows = self._windows(False), self._windows(True)
        for doubles_too in self._precisions():
            sizes = [kernels.aligned(len(low), np.float64) if doubles_too else None for low in lows]
            states = [kernels.Counts(low, None, size) for low, size in zip(lows, sizes, strict=True)]

            def take(chosen: Longs, states: Any = states) -> Taken:
                found, filled, back_found, back_filled, failed = kernels.meet_windows(
                    *(ahead, back, *states, *denses, *middles, *windows, self._streams[0], self._block, KEPT_ROWS),
                    *(self._runs, chosen, kernels.found_room(ROOM), kernels.found_room(ROOM)),
                )
                return [(False, _part(found, filled)), (True, _part(back_found, back_filled))], failed

            yield take

    def _precisions(self) -> list[bool]:
        """Whether to count with doubles beside the residues: first without, unless that is no use."""
        bits = self._group.bits
        return [False] * (bits < NARROW) + [True] * (bits < MIDDLING)

    def _dense(self, trie: kernels.Trie, strict: bool, wide: bool = False) -> kernels.Dense:
        room = (trie.deepest + 1) * (self._block.size + 1) * self._lanes
        return kernels.Dense(
            kernels.aligned(room, np.uint64),
            kernels.aligned(room if wide else 0, np.uint64),
            kernels.aligned(room, np.float64),
            np.zeros(len(trie.kind)),
            DENSE,
            strict,
        )

    def _cell_room(self, trie: kernels.Trie, doubles_too: bool) -> kernels.Cells:
        lanes = _lanes(trie.deepest)
        size, room = len(trie.kind) * lanes, (trie.deepest + 1) * (self._block.size + 1) * lanes
        widths = (trie.depth + (1 - trie.leaf) + kernels.LANES - 1) // kernels.LANES * kernels.LANES
        return kernels.Cells(
            kernels.aligned(size, np.uint64),
            kernels.aligned(size, np.float64) if doubles_too else None,
            kernels.aligned(room, np.uint64),
            kernels.aligned(room, np.float64),
            np.zeros(len(trie.kind)),
            widths,
            lanes,
        )

    def _slide(
        self, trie: kernels.Trie, state: Any, values: Any, dense: Any, sparse: bool, chosen: Longs, cells: Any = None
    ) -> Taken:
        backward = self._group.backward
        found, filled, failed = kernels.slide_windows(
            *(trie, state, values, dense, sparse or None, cells, self._windows(backward), self._streams[backward]),
            *(self._block, self._runs, chosen, kernels.found_room(ROOM)),
        )
        return [(backward, _part(found, filled))], failed

    def _climb(self, ladder: Iterable[Taker]) -> list[tuple[Longs, Longs, kernels.Found]]:
        """What the takers find of each query: runs, starts of windows, and the rest; by key and window."""
        chosen = np.arange(len(self._runs) - 1)
        parts: list[tuple[bool, kernels.Found]] = []
        for take in ladder:
            more, failed = take(chosen)
            parts += more
            chosen = chosen[failed]
            if len(chosen) == 0:
                break
        ranges = np.array([query.range for query in self._asked])
        for backward, part in parts:
            # in place: these are long
            windows, start = self._windows(backward), part.window
            start *= windows.slide
            start += windows.shift
            if backward:
                np.subtract(1, start, out=start)
                start -= ranges[part.query] if len(self._kinds) > 1 else ranges[0]
        columns: Any = zip(*(part for _, part in parts), strict=True)
        whole = parts[0][1] if len(parts) == 1 else kernels.Found(*map(np.concatenate, columns))
        first, run, start, *found, ascending = kernels.by_query(*whole, len(self._asked))
        out = []
        for q, (begin, end) in enumerate(itertools.pairwise(first.tolist())):
            low, high, double, flag = (column[begin:end] for column in found)
            mine = [run[begin:end], start[begin:end], low, high, double, flag]
            if not ascending[q]:
                again = np.lexsort((mine[1], mine[0]))
                mine = [column[again] for column in mine]
            out.append((mine[0], mine[1], kernels.Found(whole.query[:0], whole.run[:0], mine[1], *mine[2:])))
        return out


Taken = tuple[list[tuple[bool, kernels.Found]], NDArray[np.bool_]]
"""What was found, forward or backwards, and which of the keys could not be counted."""

Taker = Callable[[Longs], Taken]


def _most(longest: int, repeats: int) -> int:
    """Events of a window (those of one type ``repeats`` times in a pattern) with which no pattern of so many types at
    most can match 2**63 times: d factors that add up to n are (n/d)**d at most."""

    def bits(events: int) -> float:
        return max(length * math.log2(repeats * events / length) for length in range(1, longest + 1))

    most = 1
    while bits(2 * most) < 62.0:
        most *= 2
    step = most
    while step := step // 2:
        most += step * (bits(most + step) < 62.0)
    return most


def _part(found: kernels.Found, filled: int) -> kernels.Found:
    columns: Any = (column[:filled] for column in found)
    return kernels.Found(*columns)


def _integers(found: kernels.Found) -> Integers:
    return Integers(found.low, found.high, found.flag != kernels.FINE)


def _cuts(patterns: Sequence[Sequence[Any]]) -> list[int]:
    """Where to cut each pattern: the position of the event at which what comes before meets what comes behind; 0: all
    backwards, its length: all forwards.

    A node that several patterns use is paid for by each in part, as they are cut so far; a product is as dear as
    :data:`PRODUCT` nodes. Patterns are cut again until the nodes and products in all do not get fewer.
    """
    lengths = [len(pattern) for pattern in patterns]
    # numbers of text[:1], text[:2], ..., and of text[0:], text[1:], ...
    heads = _prefixes(patterns)
    tails = [numbers[::-1] for numbers in _prefixes([pattern[::-1] for pattern in patterns])]
    cuts: list[int] | None = None
    best, fewest = lengths, math.inf
    while True:
        ahead, back = Counter[int](), Counter[int]()
        for i, length in enumerate(lengths):
            ahead.update(heads[i][: length if cuts is None else cuts[i]])
            back.update(tails[i][0 if cuts is None or cuts[i] == 0 else cuts[i] + 1 :])
        if cuts is not None:
            met = {(heads[i][-1], cut, tails[i][cut]) for i, cut in enumerate(cuts) if 0 < cut < lengths[i]}
            total = len(ahead) + len(back) + PRODUCT * len(met) + len({suffix for _, _, suffix in met})
            if total >= fewest:
                return best
            best, fewest = cuts, total
        cuts = []
        for i, length in enumerate(lengths):
            # what the prefixes and the suffixes cost that end, or begin, at each position
            before = [0.0, *itertools.accumulate(1 / (ahead[number] or 1) for number in heads[i])]
            behind = [0.0, *itertools.accumulate(1 / (back[number] or 1) for number in tails[i][::-1])][::-1]
            options = {0: behind[0], length: before[-1]}
            options |= {cut: before[cut] + PRODUCT + behind[cut + 1] for cut in range(1, length - 1)}
            cuts.append(min(options, key=lambda cut: (options[cut], -cut)))


def _prefixes(texts: Sequence[Sequence[Any]]) -> list[list[int]]:
    """For each text a number for each of its prefixes, equal ones alike."""
    known: dict[tuple[int, Any], int] = {}
    found = []
    for text in texts:
        numbers, last = [], -1
        for each in text:
            last = known.setdefault((last, each), len(known))
            numbers.append(last)
        found.append(numbers)
    return found


FUNCTIONS = ("sum", "known", "min", "max")

FAR = 1 << 62
"""Later than any instant."""

DENSE = (60.0, 4.0, 20.0)
"""When a block is processed node by node: see :class:`optimizer.sequence_kernels.Dense`."""

BLOCK = 2048
"""Events that are processed together at most: their rows of a few nodes fit a processor's second cache."""

ROOM = 1 << 19
"""Answers that there is room for at first; what is not written is not taken from the machine."""

KEPT_ROWS = 1 << 18
"""Rows that a backward pass keeps for the forward pass to meet, more or less."""

EXECUTORS = ("windows", "fragments", "landmarks", "middle")


# ------------------------------------------------------------------------------------------- compiling
def compile_kernels(executors: Sequence[str] = EXECUTORS) -> None:
    """Compile what these executors (and measures, with ``windows``) need into Numba's cache, where it is not there."""
    one = np.ones(3, dtype=np.int64)
    raw = one, np.array([1, 2, 2]), np.zeros(3, dtype=np.int32), {"whole": (one, None), "double": (one / 2, None)}
    Events.of(*raw[:3])
    Events.of(one, np.array([1, 1 << 60, 2]), raw[2])
    asked = [Asked((0, 0, 0, 0, 0, 0), 8, 4)]
    for executor in executors:
        events = Events.of(*raw)
        (group,) = choose(events, asked, executor)
        runs, none = kernels.runs_of(events.key), np.zeros(0, dtype=np.int64)
        for take in _Pass(events, runs, asked, None, replace(group, bits=0.0)).ladder():
            take(none)
    if "windows" in executors:
        # so often that sums take 128 bits
        events = replace(Events.of(*raw), count=np.full(2, 1 << 31))
        measures = tuple(Measure("sum", name, 0) for name in ("whole", "double")) + (Measure("max", "whole", 0),)
        answers(events, [Asked((0, 0), 8, 4, measures)])


def main() -> None:
    print("compiling the kernels of event sequences (once, a minute or two) ...", end=" ", flush=True)
    begin = time.monotonic()
    # what both need is little
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(compile_kernels, [EXECUTORS[:2], EXECUTORS[2:]], chunksize=1)
    print(f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
