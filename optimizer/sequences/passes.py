"""One pass over the events of all keys, by one executor, for the patterns that share it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optimizer.combine.elements import doubles
from optimizer.sequences import kernels
from optimizer.sequences.events import Events, Longs
from optimizer.sequences.executors import BLOCK, BROAD, CLOSE, MARGIN, MIDDLING, MIXED, NARROW, SAMPLE, Group
from optimizer.sequences.matches import Integers, Measure, Numbers, SequenceQuery, lanes_for
from optimizer.sequences.prefixes import prefixes


def _tree(
    patterns: Sequence[Sequence[int]],
    spans: Sequence[int],
    kinds: int,
    roundings: int,
    absent: Sequence[tuple[int, ...]] = ((),),
) -> kernels.Trie:
    """The trie of the ``patterns`` of the queries, of ``kinds`` local types; ``spans``: number of the range of each;
    ``absent``: sets of types, of which the codes of patterns, number of the set * ``kinds`` + type, have one each.
    """
    nodes = prefixes(patterns)
    deepest, size = int(nodes.depth.max()), len(nodes.last)
    leaf = np.ones(size, dtype=np.uint8)
    leaf[nodes.parent[1:]] = 0
    behind, kind = np.divmod(nodes.last, kinds)
    behind[0], kind[0] = 0, kinds
    reset = [(absent_kind, node) for node, number in enumerate(behind.tolist()) for absent_kind in absent[number]]
    reset_kind, reset_node = np.array(reset, dtype=np.int64).reshape(-1, 2).T
    by_reset, reset_first = _by(reset_kind * (deepest + 1) + deepest - nodes.depth[reset_node], kinds * (deepest + 1))
    of_kind, of_kind_first = _by(kind[1:] * (deepest + 1) + deepest - nodes.depth[1:], kinds * (deepest + 1))
    ends = nodes.number[np.arange(len(patterns)), nodes.lengths - 1]
    at_end, end_first = _by(ends, size)
    span = np.array(spans)
    at_span, span_first = _by(span, max(spans) + 1)
    repeats = max(max(Counter(code % kinds for code in pattern).values()) for pattern in patterns)
    return kernels.Trie(
        kind, nodes.parent, nodes.depth, leaf, deepest, of_kind + 1, of_kind_first, at_end, end_first, span, at_span,
        ends[at_span], span_first, reset_node[by_reset], reset_first, len(reset), repeats,
        roundings, size, len(patterns),
    )  # fmt: skip


def _by(numbers: Longs, count: int) -> tuple[Longs, Longs]:
    """Indices by number, and where those of each number 0..count - 1 begin (count + 1,)."""
    order = np.argsort(numbers, kind="stable")
    return order, np.searchsorted(numbers[order], np.arange(count + 1))


class Pass:
    """One pass over the events for several queries of a group.

    Backwards, times are negated and patterns reversed: the window [b, e) becomes [1 - e, 1 - b).
    """

    def __init__(
        self, events: Events, queries: Sequence[SequenceQuery], ends: tuple[int, int] | None, group: Group
    ) -> None:
        self._events, self._runs, self._queries, self._ends, self._group = events, events.runs, queries, ends, group
        absent = dict.fromkeys(types for query in queries for types in ((), *query.absent))
        types = sorted({code for query in queries for codes in (query.pattern, *query.absent) for code in codes})
        self._local = {code: number for number, code in enumerate(types)}
        self._absent = [tuple(self._local[code] for code in codes) for codes in absent]
        self._kinds = sorted({(query.range, query.slide) for query in queries})
        self._spans = [self._kinds.index((query.range, query.slide)) for query in queries]
        number = {codes: place * len(types) for place, codes in enumerate(absent)}
        self._patterns = [
            [
                self._local[code] + number[gap]
                for code, gap in zip(query.pattern, query.absent or ((),) * len(query.pattern), strict=True)
            ]
            for query in queries
        ]
        # of one event: its multiplicity as a double, the product with it and the sum
        self._roundings = 4 * max(len(query.pattern) for query in queries)
        table = np.full(max(types) + 2, -1)
        table[types] = np.arange(len(types))
        self._streams = [
            kernels.Stream(events.time, events.type, events.count, step, table, len(table)) for step in (1, -1)
        ]
        self._trie = cache(self._new_trie)
        self._lanes = lanes_for(-(-group.range // group.slide))
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
        patterns = [pattern[:: -1 if backward else 1] for pattern in self._patterns]
        return _tree(patterns, self._spans, len(self._local), self._roundings, self._absent)

    def counts(self) -> list[tuple[Longs, Longs, Integers]]:
        """For each query, of each answer its run of events, the start of its window, and the count."""
        return [(part.run, part.start, _integers(part)) for part in self._climb(self.ladder())]

    def ladder(self) -> Iterator[Taker]:
        """Ways to count: the keys that one cannot count are left to the next."""
        if len(self._absent) > 1:
            return self._by_event()
        first = self._landmarks if self._group.executor == "landmarks" else self._rows
        return itertools.chain(first(), [self._wide])

    def measured(self, measure: Measure) -> list[Integers | Numbers]:
        """The values of a measure, in the order of :meth:`counts`, event by event."""
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

            def wide(chosen: Longs) -> Taken:
                return take(narrow._replace(high=room(words), sum_high=room(words)))(chosen)

            return [_integers(part) for part in self._climb([take(narrow), wide])]
        if measure.function in ("min", "max"):
            # the order of integers is turned round without an overflow by the complement
            least = attribute.least if measure.function == "min" else ~attribute.greatest
            values = kernels.ExtremeValues(kind, least, attribute.known)
            extremes = kernels.Extremes(room(np.uint8), room(np.uint8), room(np.int64))
            return [_extremes(part, measure, attribute.exact) for part in self._climb([take(extremes)])]
        assert measure.function == "sum" and attribute.special is not None
        values = kernels.DoubleValues(kind, *attribute.sum, attribute.special)
        sums = kernels.DoubleSums(room(float), room(float), room(float), room(float), room(np.uint8))
        answers = self._climb([take(sums)], has_doubles=True)
        return [Numbers(part.double, np.ones(len(part.double), dtype=np.bool_)) for part in answers]

    # Each executor as takers, the fastest first.
    def _rows(self) -> Iterator[Taker]:
        trie = self._trie(self._group.backward)
        dense = self._dense(trie, self._group.loose_bits > NARROW - MARGIN)
        low = kernels.aligned(len(trie.kind) * self._lanes, np.uint64)
        yield from self._lone(trie, low)
        bits = self._group.bits

        def broad(chosen: Longs) -> Taken:
            high = kernels.aligned(len(low), np.uint64)
            rows = self._dense(trie, self._group.loose_bits > BROAD - MARGIN, wide=True)
            return self._slide(trie, kernels.Counts(low, high, None), None, rows, False, chosen)

        if bits < NARROW - CLOSE:
            yield lambda chosen: self._slide(trie, kernels.Counts(low, None, None), None, dense, False, chosen)
        if bits < MIXED:
            yield broad
        if bits < MIDDLING:
            size = kernels.aligned(len(low), np.float64)
            loose = dense._replace(strict=False)
            yield lambda chosen: self._slide(trie, kernels.Counts(low, None, size), None, loose, True, chosen)
        if MIXED <= bits < BROAD:
            yield broad

    def _by_event(self) -> Iterator[Taker]:
        """All keys event by event: node by node nothing ends a match."""
        trie = self._trie(False)
        low = kernels.aligned(len(trie.kind) * self._lanes, np.uint64)
        size = kernels.aligned(len(low), np.float64)
        for high in (None, kernels.aligned(len(low), np.uint64)):
            dense = self._dense(trie, False, wide=high is not None)._replace(costs=(math.inf, 0.0, 0.0))
            state = kernels.Counts(low, high, size)
            yield partial(self._slide, trie, state, None, dense, True)

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
        lone = DENSE[0] * trie.nodes * blocks > per_event * events
        if not lone.any():
            return
        most, compacted = _most(trie.deepest, trie.repeats, 62.0), False
        fewer = _most(trie.deepest, trie.repeats, 62.0 - self._compacted_bits())
        if fewer * often > most:
            most, compacted, often = fewer, True, 1.0
        lone &= often * events * np.minimum(1.0, self._group.range / ticks) < most
        if not lone.any():
            return
        sizes = len(trie.kind), len(trie.kind), self._lanes, len(self._kinds)
        live, clean, opened, due = (np.zeros(size, dtype=np.int64) for size in sizes)
        room = kernels.Lone(low, live, clean, opened, due, most, compacted)
        backward = self._group.backward

        def take(chosen: Longs) -> Taken:
            answers, filled, failed = kernels.lone_windows(
                *(trie, room, self._windows(backward), self._streams[backward], self._runs, chosen, lone[chosen]),
                kernels.answer_room(ROOM),
            )
            return [_part(answers, filled, narrow=True)], failed

        yield take

    def _compacted_bits(self) -> float:
        """Binary digits of how often one combination of compacted events may come that a pattern matches."""
        if self._events.count.max(initial=1) == 1:
            return 0.0
        most = np.ones(len(self._local) + 1, dtype=np.int64)
        kernels.most_often(self._streams[0], most)
        bits = np.log2(most.astype(float))
        return max(sum(bits[kind] for kind in pattern) for pattern in self._patterns)

    def _wide(self, chosen: Longs) -> Taken:
        trie = self._trie(self._group.backward)
        low, high, size = (
            kernels.aligned(len(trie.kind) * self._lanes, dtype) for dtype in (np.uint64, np.uint64, np.float64)
        )
        dense = self._dense(trie, False, wide=True)
        return self._slide(trie, kernels.Counts(low, high, size), None, dense, True, chosen)

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
                answers, filled, failed = kernels.landmark_windows(
                    *(*tries, *rooms, *shots, lengths, windows, self._streams[0], self._block, self._runs, chosen),
                    kernels.answer_room(ROOM),
                )
                return [_part(answers, filled)], failed

            yield take

    def _precisions(self) -> list[bool]:
        """Return, for each attempt, whether to count with doubles in addition to the residues: first without, if counts
        may fit in 64 bits.
        """
        bits = self._group.bits
        return [False] * (bits < NARROW) + [True] * (bits < MIDDLING)

    def _dense(self, trie: kernels.Trie, strict: bool, wide: bool = False) -> kernels.Dense:
        room = (trie.deepest + 1) * (self._block.size + 1) * self._lanes
        return kernels.Dense(
            kernels.aligned(room, np.uint64),
            kernels.aligned(room if wide else 0, np.uint64),
            kernels.aligned(room, np.float64),
            np.zeros(len(trie.kind)),
            np.zeros(trie.deepest + 2, dtype=np.int64),
            DENSE,
            strict,
        )

    def _cell_room(self, trie: kernels.Trie, doubles_too: bool) -> kernels.Cells:
        lanes = lanes_for(trie.deepest)
        size, room = len(trie.kind) * lanes, (trie.deepest + 1) * (self._block.size + 1) * lanes
        widths = (trie.depth + (1 - trie.leaf) + kernels.LANES - 1) // kernels.LANES * kernels.LANES
        return kernels.Cells(
            kernels.aligned(size, np.uint64),
            kernels.aligned(size, np.float64) if doubles_too else None,
            kernels.aligned(room, np.uint64),
            kernels.aligned(room, np.float64),
            np.zeros(len(trie.kind)),
            np.zeros(trie.deepest + 2, dtype=np.int64),
            widths,
            lanes,
        )

    def _slide(self, trie: kernels.Trie, state: Any, values: Any, dense: Any, sparse: bool, chosen: Longs) -> Taken:
        backward = self._group.backward
        answers, filled, failed = kernels.slide_windows(
            *(trie, state, values, dense, sparse or None, self._windows(backward), self._streams[backward]),
            *(self._block, self._runs, chosen, kernels.answer_room(ROOM)),
        )
        narrow = isinstance(state, kernels.Counts) and state.high is None and state.size is None
        return [_part(answers, filled, narrow)], failed

    def _climb(self, ladder: Iterable[Taker], has_doubles: bool = False) -> list[kernels.Ordered]:
        """Return the takers' answers of each query, by key and window."""
        chosen = np.arange(len(self._runs) - 1)
        parts: list[Part] = []
        for take in ladder:
            more, failed = take(chosen)
            parts += more
            chosen = chosen[failed]
            if len(chosen) == 0:
                break
        first = np.zeros(len(self._queries) + 1, dtype=np.int64)
        for part in parts:
            kernels.count_answers(part.query, first)
        np.cumsum(first, out=first)
        integers, total = np.empty((3, first[-1]), np.int64), int(first[-1])
        out = kernels.Ordered(
            *(integers[0], integers[1], integers[2].view(np.uint64), np.zeros(total, np.int64)),
            *(np.zeros(total if has_doubles else 0), np.zeros(total, np.uint8)),
        )
        windows = self._windows(self._group.backward)
        base, step = np.full(len(self._queries), windows.shift), windows.slide
        if self._group.backward:
            base, step = 1 - windows.shift - np.array([query.range for query in self._queries]), -step
        for part in parts:
            kernels.order_answers(
                *(part.query, part.run, part.window, part.low, part.high, part.double if has_doubles else None),
                *(part.flag, _others(parts, part), base, step, first, out),
            )
        each = []
        for begin, end in itertools.pairwise(first.tolist()):
            # a column that no answer has is empty
            columns: Any = (column[begin:end] for column in out)
            each.append(kernels.Ordered(*columns))
        return each


class Part(NamedTuple):
    """Some answers in the form of :class:`kernels.AnswerColumns`. ``high`` and ``flag``: None if counts need no more
    than 64 bits.
    """

    query: NDArray[np.int32]
    run: NDArray[np.int32]
    window: Longs
    low: NDArray[np.uint64]
    high: Longs | None
    double: NDArray[np.float64]
    flag: NDArray[np.uint8] | None


def _others(parts: Sequence[Part], part: Part) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Query and run of the answers of all parts but one, by run."""
    peers = [each for each in parts if each is not part and len(each.query)]
    if not peers:
        return part.query[:0], part.run[:0]
    if len(peers) == 1:
        return peers[0].query, peers[0].run
    query, run = (np.concatenate(column) for column in zip(*((each.query, each.run) for each in peers), strict=True))
    order = np.argsort(run, kind="stable")
    return query[order], run[order]


Taken = tuple[list[Part], NDArray[np.bool_]]
"""The answers, and which of the keys could not be counted."""

Taker = Callable[[Longs], Taken]


def _most(longest: int, repeats: int, digits: float) -> int:
    """Most events of a window (``repeats`` times one type in a pattern) with which no pattern of at most ``longest``
    types needs more binary digits for its count: d factors that add up to n are (n/d)**d at most.
    """

    def bits(events: int) -> float:
        return max(length * math.log2(repeats * events / length) for length in range(1, longest + 1))

    most = 1
    while bits(2 * most) < digits:
        most *= 2
    step = most
    while step := step // 2:
        most += step * (bits(most + step) < digits)
    return most


def _part(answers: kernels.AnswerColumns, filled: int, narrow: bool = False) -> Part:
    columns: Any = (column[:filled] for column in answers)
    part = Part(*columns)
    return part._replace(high=None, flag=None) if narrow else part


def _extremes(answers: kernels.Ordered, measure: Measure, exact: bool) -> Numbers:
    least, known = answers.low.view(np.int64), answers.high != 0
    best = np.where(known, least if measure.function == "min" else ~least, 0)
    return Numbers(best if exact else doubles(best), known)


def _integers(answers: kernels.Ordered) -> Integers:
    return Integers(answers.low, answers.high, answers.over.view(np.bool_))


FUNCTIONS = ("sum", "known", "min", "max")

FAR = 1 << 62
"""Later than any instant."""

DENSE = (60.0, 4.0, 20.0)
"""Threshold for processing a block node by node: see :class:`optimizer.sequences.kernels.Dense`."""

ROOM = 1 << 19
"""Answers that there is room for at first; what is not written is not taken from the machine, whose pages have 2 MB
where there is room for more."""

EXECUTORS = ("windows", "landmarks")
