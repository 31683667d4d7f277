"""Measures computed from counts: sums as counts of weighted events, least and greatest values without any pass.

**Sums.** The sum of E.x over all matches of SEQ(A, E, B) is the count of SEQ(A, E', B), if E' are the events of E and
each occurs x times; if a type is at several places of a pattern, once for each place. So it is one more pattern for the
executors. It shares its prefix and its suffix with the pattern, runs on the cheapest executor, and is exact as counts
are. Weights are integers and positive. If values are not, or are too large, weights are of values less an offset, which
is added for every value that was counted (:func:`_weights`). Doubles are multiples of one power of two, in up to three
pieces of 31 bits (:func:`_pieces`). The number of values counted is a multiple of the count if no event of the type has
a null, else a separate pattern.

**Least and greatest.** An event at one place of a pattern takes part in a match of a window if and only if it lies
behind the earliest match of the types before it and ahead of the latest match of those behind. These events are a range
of the type's events, whose ends advance with the window (:func:`event_kernels.taking_part`). Two stacks give its
extreme (:func:`optimizer.combine.two_stacks.combine_forward`).

Everything else takes a separate pass, event by event (:meth:`Pass.measured`): values that are not finite or have
too many digits, a type at many places, and sums that exceed 38 digits on the way.

References: Qi et al., "Complex event analytics: online aggregation of stream sequence patterns" (A-Seq, SIGMOD 2014),
section 4, keeps a count and a sum for each prefix instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optimizer.aggregates.state_kinds import MAX, MIN
from optimizer.combine.elements import doubles
from optimizer.combine.two_stacks import combine_forward
from optimizer.sequences import event_kernels, kernels
from optimizer.sequences.events import Attribute, Events, Longs
from optimizer.sequences.matches import Integers, Measure, Numbers, SequenceQuery

MOST_PLACES = 2
"""Most places of a pattern with one type for which the type is weighed; the pattern is counted once more for each."""

WEIGHT_BITS = 48
"""Digits of a weight: those of a block of events add up to less than 2**62."""

PIECE_BITS, MOST_PIECES = 31, 3
"""Digits of a piece of a double, and pieces: vectors multiply by what is shorter than 32 bits."""

MARKED = 4
"""Events for each mark, of one type and key at one multiple of a slide, from which on marks pay."""

MOST_SCANS = 6
"""Types whose events are looked for one by one; beyond, all events are listed by type, which takes memory for all."""

Rows = tuple[Longs, Longs, Integers]
"""Run of events, start of the window, and count of each answer; runs and starts ascend."""


@dataclass(frozen=True)
class _Weight:
    """A type of the weighted events of another type. The value of such an event is its weight and ``offset`` times how
    many values it has, times two to the power of ``exponent``."""

    code: int
    offset: int
    exponent: int


class Placed(NamedTuple):
    """Events by type (n,), their ``times`` (n,), the number of each type, and where those of each type and key begin
    (t, k + 1)."""

    order: Longs
    times: Longs
    numbers: dict[int, int]
    first: Longs


class Weighing:
    """Collect the weighted events that the measures of some queries need in addition to the events."""

    def __init__(self, events: Events, queries: Sequence[SequenceQuery]) -> None:
        self.given = events
        # patterns have types that no event has
        used = [code for query in queries for codes in (query.pattern, *query.absent) for code in codes]
        self._next = max(int(events.type.max(initial=0)), *used, 0) + 1
        measures = [measure for query in queries for measure in query.measures]
        # extremes need the events of all types of their patterns
        self._lists_all = any(measure.function in ("min", "max") for measure in measures)
        self._lists_all |= len({measure.type for measure in measures}) > MOST_SCANS
        self._rows: dict[int, Longs] = {}
        self._parts: list[tuple[Longs, Longs]] = []
        self._of: dict[tuple[str, str, int], list[_Weight] | None] = {}
        self._extremes: dict[tuple[str, str, int], tuple[Longs, Longs, int]] = {}
        self._complete: dict[tuple[str, int], bool] = {}
        self._marks: dict[int, tuple[Longs, Longs] | tuple[None, None]] = {}

    @cached_property
    def placed(self) -> Placed:
        """The events by type."""
        types: NDArray[Any] = self.given.type
        numbers = {code: code for code in range(int(types.max(initial=-1)) + 1)}
        if types.min(initial=0) < 0 or len(numbers) > 1 << 12:
            codes, places = np.unique(types, return_inverse=True)
            numbers = {code: number for number, code in enumerate(codes.tolist())}
            types = places.astype(np.int32)
        order, times, first = event_kernels.by_type(
            types, len(numbers), self.given.runs, np.ascontiguousarray(self.given.time)
        )
        return Placed(order, times, numbers, first)

    def marks(self, slide: int) -> tuple[Longs, Longs] | tuple[None, None]:
        """Index of the events of each type and key at the multiples of a slide (:func:`event_kernels.marks_of`), if
        these are far fewer than events.
        """
        if slide not in self._marks:
            runs, time = self.given.runs, self.given.time
            bases = np.zeros((len(runs), 2), np.int64)
            bases[:-1, 0] = time[runs[:-1]] // slide
            np.cumsum(time[runs[1:] - 1] // slide + 2 - bases[:-1, 0], out=bases[1:, 1])
            marks, size = None, int(bases[-1, 1]) * len(self.placed.numbers)
            if size * MARKED < len(time):
                marks = np.empty((len(self.placed.numbers), int(bases[-1, 1])), np.int64)
                event_kernels.marks_of(self.placed.times, self.placed.first, slide, bases, marks)
            self._marks[slide] = (None, None) if marks is None else (bases, marks)
        return self._marks[slide]

    def rows(self, type: int) -> Longs:
        """The events of a type, ascending."""
        if not self._lists_all:
            if type not in self._rows:
                self._rows[type] = np.flatnonzero(self.given.type == type)
            return self._rows[type]
        order, _, numbers, first = self.placed
        if type not in numbers:
            return order[:0]
        of_type = first[numbers[type]]
        return order[of_type[0] : of_type[-1]]

    def counts_all(self, measure: Measure) -> bool:
        """No event of the measure's type has a null."""
        key = measure.attribute, measure.type
        if key not in self._complete:
            rows = self.rows(measure.type)
            known = self.given.attributes[measure.attribute].known[rows]
            self._complete[key] = np.array_equal(known, self.given.count[rows])
        return self._complete[key]

    def extremes(self, measure: Measure) -> tuple[Longs, Longs, int]:
        """Best values (n,) of the events of the measure's type, the number of events with one before each (n + 1,), and
        the value for none.
        """
        key = measure.function, measure.attribute, measure.type
        if key not in self._extremes:
            rows, attribute = self.rows(measure.type), self.given.attributes[measure.attribute]
            greatest = measure.function == "max"
            absent = int(np.iinfo(np.int64).min if greatest else np.iinfo(np.int64).max)
            best = attribute.greatest if greatest else attribute.least
            self._extremes[key] = *event_kernels.extreme_values(rows, attribute.known, best, absent), absent
        return self._extremes[key]

    def weights(self, measure: Measure) -> list[_Weight] | None:
        """The weighted types whose counts give a sum, or a number of values; None: it takes a separate pass."""
        key = measure.function, measure.attribute, measure.type
        if key not in self._of:
            self._of[key] = self._made(measure)
        return self._of[key]

    def _made(self, measure: Measure) -> list[_Weight] | None:
        rows = self.rows(measure.type)
        attribute = self.given.attributes[measure.attribute]
        rows = rows[attribute.known[rows] > 0]
        known = attribute.known[rows]
        if measure.function == "known":
            return [self._added(rows, known, 0, 0)] if known.max(initial=0) < 1 << WEIGHT_BITS else None
        pieces = _pieces(attribute, rows)
        if pieces is None:
            return None
        weights = []
        for numbers, exponent in pieces:
            weighed = _weights(numbers, known)
            if weighed is None:
                return None
            weights.append(self._added(rows, weighed[0], weighed[1], exponent))
        return weights

    def _added(self, rows: Longs, weight: Longs, offset: int, exponent: int) -> _Weight:
        self._parts.append((rows, weight))
        self._next += 1
        return _Weight(self._next - 1, offset, exponent)

    @cached_property
    def events(self) -> Events:
        """All events, and the weighted ones; then without attributes."""
        original = self.given
        if not self._parts:
            return original
        rows = np.concatenate([rows for rows, _ in self._parts])
        sizes = [len(rows) for rows, _ in self._parts]
        codes = np.repeat(np.arange(self._next - len(self._parts), self._next, dtype=np.int32), sizes)
        weights = np.concatenate([weight for _, weight in self._parts])
        order = np.lexsort((codes, rows)) if len(sizes) > 1 else np.arange(len(rows))
        rows = rows[order]
        columns = original.key, original.time, original.type, original.count
        return Events(*event_kernels.with_more(*columns, rows, codes[order], weights[order]))


def _weights(sums: Longs, known: Longs) -> tuple[Longs, int] | None:
    """Positive weights of sums (n,) of ``known`` values each, and what times ``known`` they lack; None: too large."""
    if len(sums) == 0:
        return sums, 0
    least = int((sums // known).min())
    offset = 0 if least >= 1 and int(sums.max()) < 1 << WEIGHT_BITS else least - 1
    if offset.bit_length() > WEIGHT_BITS or int(known.max()).bit_length() + offset.bit_length() > 62:
        return None
    if int(sums.max()) - offset * int(known.max()) >= 1 << 62:
        return None
    weight = sums - offset * known
    return (weight, offset) if int(weight.max()) < 1 << WEIGHT_BITS else None


def _pieces(attribute: Attribute, rows: Longs) -> list[tuple[Longs, int]] | None:
    """The sums of some events as integers, each times two to a power; None: they are not finite, or too long."""
    if attribute.special is None:
        low, high = attribute.sum[0][rows].view(np.int64), attribute.sum[1][rows]
        return [(low, 0)] if np.array_equal(low >> 63, high) else None
    parts = [part[rows] for part in attribute.sum]
    if attribute.special[rows].any():
        return None
    spans = [span for span in map(_digits, parts) if span is not None]
    if not spans:
        return [(np.zeros(len(rows), np.int64), 0)]
    least, most = min(least for least, _ in spans), max(most for _, most in spans) + 1
    if not -900 < least < 800:
        return None
    if most - least < WEIGHT_BITS:
        return [(sum(np.ldexp(part, -least).astype(np.int64) for part in parts), least)]
    if most - least > MOST_PIECES * PIECE_BITS:
        return None
    pieces = []
    for at in reversed(range(-(-(most - least) // PIECE_BITS))):
        power, total = least + at * PIECE_BITS, np.zeros(len(rows), np.int64)
        for number, part in enumerate(parts):
            # what is left has fewer digits: its sign is the part's
            truncated = np.trunc(np.ldexp(part, -power))
            parts[number] = part - np.ldexp(truncated, power)
            total += truncated.astype(np.int64)
        pieces.append((total, power))
    return pieces


def _digits(values: NDArray[Any]) -> tuple[int, int] | None:
    """The least and the greatest power of two between which all digits of some doubles are; None: they are 0."""
    mantissa, exponent = np.frexp(values[values != 0])
    if len(mantissa) == 0:
        return None
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = np.log2(digits & -digits).astype(np.int64)
    return int((exponent - 53 + lowest).min()), int(exponent.max())


class Measuring:
    """The measures of one query: which patterns are to be counted for them, and what they are, once those are."""

    def __init__(self, weighing: Weighing, query: SequenceQuery) -> None:
        self._weighing, self._query = weighing, query
        self.wanted: dict[tuple[int, int], SequenceQuery] = {}
        """Patterns to be counted, by place and weighted type."""
        for measure in query.measures:
            for weight in self._needed(measure):
                for place in self._places(measure):
                    pattern = (*query.pattern[:place], weight.code, *query.pattern[place + 1 :])
                    self.wanted[place, weight.code] = SequenceQuery(pattern, query.range, query.slide)

    def _places(self, measure: Measure) -> list[int]:
        return [place for place, type_ in enumerate(self._query.pattern) if type_ == measure.type]

    def _needed(self, measure: Measure) -> list[_Weight]:
        """The weighted types that a measure takes; none: it takes no count but that of the pattern, or a pass."""
        if measure.function in ("min", "max") or len(self._places(measure)) > MOST_PLACES:
            return []
        if measure.function == "known":
            return [] if self._weighing.counts_all(measure) else self._weighing.weights(measure) or []
        weights = self._weighing.weights(measure) or []
        if any(weight.offset for weight in weights):
            weights = [*weights, *self._needed(replace(measure, function="known"))]
        return weights

    def value(self, measure: Measure, rows: Rows, counted: dict[tuple[int, int], Rows]) -> Integers | Numbers | None:
        """The values of a measure for the answers ``rows``; ``counted``: the answers to the patterns in ``wanted``;
        None: it takes a separate pass.
        """
        if measure.function in ("min", "max"):
            return self._extreme(measure, rows)
        if measure.function == "known":
            known = self._known(measure, rows, counted)
            return None if known is None else known.integers()
        weights = self._weighing.weights(measure)
        if weights is None or len(self._places(measure)) > MOST_PLACES:
            return None
        known = self._known(measure, rows, counted) if any(weight.offset for weight in weights) else None
        pieces: list[tuple[Integers, int]] = []
        for weight in weights:
            total = _Total(len(rows[0]))
            for place in self._places(measure):
                total.add(counted[place, weight.code], rows, self._query.slide)
            if weight.offset:
                if known is None:
                    return None
                total.add_multiple(known, weight.offset)
            integers = total.integers()
            if integers is None:
                return None
            pieces.append((integers, weight.exponent))
        if self._weighing.given.attributes[measure.attribute].exact:
            return pieces[0][0]
        if any(integers.over.any() for integers, _ in pieces):
            return None
        values = np.sum([np.ldexp(_as_doubles(integers), exponent) for integers, exponent in pieces], axis=0)
        return Numbers(values, np.ones(len(values), dtype=np.bool_))

    def _known(self, measure: Measure, rows: Rows, counted: dict[tuple[int, int], Rows]) -> _Total | None:
        """Number of known values in the matches of each answer."""
        total, places = _Total(len(rows[0])), self._places(measure)
        if self._weighing.counts_all(measure):
            total.add(rows, rows, self._query.slide, len(places))
            return total
        weights = self._weighing.weights(replace(measure, function="known"))
        if weights is None or len(places) > MOST_PLACES:
            return None
        for place in places:
            total.add(counted[place, weights[0].code], rows, self._query.slide)
        return total

    def _extreme(self, measure: Measure, rows: Rows) -> Numbers:
        run, start, _ = rows
        greatest = measure.function == "max"
        values, before, absent = self._weighing.extremes(measure)
        best, known = np.full(len(run), absent), np.zeros(len(run), dtype=np.bool_)
        _, times, numbers, first = self._weighing.placed
        bases, marks = self._weighing.marks(self._query.slide)
        for place in self._places(measure) if len(run) else []:
            local = np.array([numbers[type_] for type_ in self._query.pattern])
            low, high = np.empty(len(run), np.int64), np.empty(len(run), np.int64)
            windows = run, start, self._query.range, self._query.slide
            event_kernels.taking_part(times, first, local, place, *windows, bases, marks, low, high)
            low -= first[local[place], 0]
            high -= first[local[place], 0]
            (extremes,) = combine_forward((values,), MAX if greatest else MIN, run, low, high)
            known |= before[high] > before[low]
            best = np.maximum(best, extremes) if greatest else np.minimum(best, extremes)
        exact = self._weighing.given.attributes[measure.attribute].exact
        return Numbers(best if exact else doubles(np.where(known, best, 0)), known)


class _Total:
    """Integers (a,) that are added up exactly, modulo 2**128 with a bound of their size."""

    def __init__(self, size: int) -> None:
        self.low, self.high = np.zeros(size, np.uint64), np.zeros(size, np.uint64)
        self.size, self.sure = np.zeros(size), True

    def add(self, counted: Rows, rows: Rows, slide: int, factor: int = 1) -> None:
        """Add what was counted, ``factor`` times, to those of the same run and window."""
        run, start, integers = counted
        self.sure &= not integers.over.any()
        at = np.arange(len(run)) if counted is rows else _positions(run, start, rows[0], rows[1], slide)
        kernels.add_multiples(self.low, self.high, self.size, at, integers.low, integers.high, factor)

    def add_multiple(self, other: _Total, factor: int) -> None:
        """Add others, each ``factor`` times."""
        self.sure &= other.sure
        at = np.arange(len(self.low))
        kernels.add_multiples(self.low, self.high, self.size, at, other.low, other.high.view(np.int64), factor)

    def integers(self) -> Integers | None:
        """The totals; None if they are undetermined."""
        over = np.zeros(len(self.low), dtype=np.bool_)
        if not (self.sure and kernels.read_totals(self.low, self.high, self.size, over)):
            return None
        return Integers(self.low, self.high.view(np.int64), over)


def _positions(run: Longs, start: Longs, runs: Longs, starts: Longs, slide: int) -> Longs:
    """Positions of the answers (b,) of some runs and windows in others (a,) that contain them all; both ascend."""
    if len(run) == len(runs):
        return np.arange(len(run))
    least = starts.min()
    width = int((starts.max() - least) // slide) + 1
    codes = runs.astype(np.int64) * width + (starts - least) // slide
    return np.searchsorted(codes, run.astype(np.int64) * width + (start - least) // slide)


def _as_doubles(integers: Integers) -> NDArray[Any]:
    """The nearest doubles, or nearly: within 2**-52 of each."""
    negative = integers.high < 0
    low = np.where(negative, ~integers.low + np.uint64(1), integers.low)
    carried = negative & (low == 0)
    high = np.where(negative, ~integers.high, integers.high) + carried
    size = high.astype(np.float64) * 2.0**64 + low.astype(np.float64)
    return np.where(negative, -size, size)
