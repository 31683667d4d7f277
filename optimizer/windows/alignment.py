"""Alignment: where windows start and where fragments are cut.

Windows start on multiples of the slide since the epoch, ``[k*s, k*s + r)``, as Spark's ``window()`` and Flink's HOP
do, so the edges of a query are the multiples of s and the instants ``r mod s`` after them: at most two
*progressions* (slide, shift). Historical windows (``ago``) are the same, shifted back. The windows of a calendar
lie between midnights of a time zone, and these on one daily progression for each offset that the zone has from UTC
(:mod:`optimizer.windows.calendars`). Some of its instants are edges that no window needs, which costs a little and
needs no other changes. F1 puts windows' *ends* on the multiples instead; the counts are the same (mirror images),
positions are not.

Planning and windows of time take instants and edges from here. Code that numbers windows event by event follows the
same convention with separate divisions: the kernels of event sequences (:mod:`optimizer.sequences`), windows of
rows, SQL and plain Python that recompute answers (:mod:`spark_jobs.audit.unshared`), look-ups, and the tests'
oracle.

All instants are integer microseconds UTC, all spans half-open.

References: Weave Share (CIKM 2011) sections 3 and 4.1 (paired windows, composite slide); F1 (CIKM 2015)
section 3.2 (shifts).
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from optimizer.windows import calendars
from optimizer.workload.instants import DAY
from optimizer.workload.values import Window

Progression = tuple[int, int]
"""(slide, shift): the instants ``shift + k*slide``, 0 <= shift < slide."""

TABLE_CELLS = 1 << 20
"""Largest lookup table over a composite slide (cells of one tick)."""

SPARE = 64
"""Instants without events that are enumerated rather than cut out: a cut costs about as much."""


def progressions(windows: Iterable[Window]) -> tuple[Progression, ...]:
    """The sorted, distinct progressions of edges of some windows, without those contained in another.

    A progression (s, a) lies inside (t, b) exactly if t divides s and a = b mod t (paper-facts.md: comparing
    slides alone, as F1's "multiples" removal does, is wrong with fragments).
    """
    edges = set[Progression]()
    for window in (part for several in windows for part in several.each):
        if window.calendar is not None:
            step, begin = DAY if window.calendar.slide is not None else window.slide, window.calendar.offset
            offsets = calendars.clock(window.calendar.zone).every_offset
            edges.update((step, (begin - offset) % step) for offset in offsets)
            continue
        if window.cumulative or window.gap is not None:
            edges.add((window.slide, (window.offset - window.ago) % window.slide))
            continue
        edges.add((window.slide, (window.offset - window.ago) % window.slide))
        edges.add((window.slide, (window.phase - window.ago) % window.slide))
    return absorb(edges)


def absorb(edges: Iterable[Progression]) -> tuple[Progression, ...]:
    """Drop each progression that lies inside another one; sorted."""
    maximal: dict[Progression, None] = {}
    slides: list[int] = []
    for slide, shift in sorted(set(edges)):
        if not any(slide % small == 0 and (small, shift % small) in maximal for small in slides):
            maximal[slide, shift] = None
            if not slides or slides[-1] != slide:
                slides.append(slide)
    return tuple(maximal)


def composite_slide(windows: Iterable[Window]) -> int:
    """LCM of the slides, in the windows' unit: the period of a tree's edge pattern."""
    return math.lcm(*(edge_period(window) for window in windows))


def edge_period(window: Window) -> int:
    """After how long a window's edges repeat: its slide, or of a calendar's window a day."""
    return window.slide if window.calendar is None or window.calendar.slide is None else DAY


def instants(window: Window, begin: int, end: int) -> NDArray[np.int64]:
    """Instants ``k*slide + phase`` in ``(begin, end]``, ascending: those that the window has an answer for.

    If ``window.at`` is set, only the instants in it. The answer of instant t is over ``[starts_of(t), ends_of(t))``: a
    window ends at its instant unless it is historical.
    """
    if window.at is not None:
        listed_instants = np.array(window.at, dtype=np.int64)
        return listed_instants[(listed_instants > begin) & (listed_instants <= end)]
    window = window.each[0]
    if window.calendar is not None:
        return _calendar_spans(window, begin, end)[1]
    first = (begin - window.phase) // window.slide + 1
    last = (end - window.phase) // window.slide
    return np.arange(first, last + 1, dtype=np.int64) * window.slide + window.phase


def instants_between(window: Window, begin: int, end: int) -> int:
    """Number of instants in ``(begin, end]``; approximate for a calendar, since they are not enumerated."""
    if window.at is not None:
        return bisect_right(window.at, end) - bisect_right(window.at, begin)
    window = window.each[0]
    if window.calendar is not None:
        return max(0, end - begin) // window.slide
    return max(0, (end - window.phase) // window.slide - (begin - window.phase) // window.slide)


def has_instant(window: Window, begin: int, end: int) -> bool:
    """Return whether an instant lies in ``(begin, end]``."""
    if window.at is not None:
        return instants_between(window, begin, end) > 0
    return begin < end and newest_instant(window, end) > begin


@dataclass(frozen=True)
class Choice:
    """The instants of a window in some spans (begin, end] of time, ascending and disjoint, numbered from 0.

    Equally long windows that are equally far apart are not enumerated, however many there are."""

    window: Window
    spans: tuple[tuple[int, int], ...]

    @cached_property
    def _firsts(self) -> NDArray[np.int64]:
        """The number of the first instant of each span, and how many there are (s + 1,)."""
        counts = [instants_between(self.window, *span) for span in self.spans] if self._is_even else map(len, self._all)
        return np.concatenate([[0], np.cumsum(list(counts), dtype=np.int64)]).astype(np.int64)

    @cached_property
    def _all(self) -> list[NDArray[np.int64]]:
        return [instants(self.window, *span) for span in self.spans]

    @property
    def _is_even(self) -> bool:
        return self.window.at is None and self.window.calendar is None

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def __getitem__(self, numbers: Sequence[int]) -> NDArray[np.int64]:
        """The instants of some numbers (n,)."""
        positions = np.asarray(numbers, dtype=np.int64)
        if not self._is_even:
            return np.concatenate([*self._all, np.empty(0, dtype=np.int64)])[positions]
        window, span = self.window.each[0], np.searchsorted(self._firsts, positions, side="right") - 1
        begins = np.array([begin for begin, _ in self.spans], dtype=np.int64)[span]
        first = ((begins - window.phase) // window.slide + 1) * window.slide + window.phase
        return first + (positions - self._firsts[span]) * window.slide


def instants_over(window: Window, moments: NDArray[np.int64], begin: int, end: int) -> NDArray[np.int64]:
    """Instants in ``(begin, end]`` whose windows may cover one of some moments (n,), ascending.

    All of those are among them, and at most :data:`SPARE` others between two moments, however far apart these are: the
    cost is O(n * range / slide), not that of the interval.
    """
    low, high = np.maximum(moments + window.ago, begin), np.minimum(moments + window.reach, end)
    low, high = low[low < high], high[low < high]
    if window.at is not None:
        candidates = instants(window, begin, end)
        run = np.searchsorted(low, candidates) - 1
        return candidates[(run >= 0) & (candidates <= high[run])] if len(low) else candidates[:0]
    cuts = np.flatnonzero(low[1:] - high[:-1] > SPARE * longest_pause(window)) + 1
    pieces = [
        instants(window, int(low[first]), int(high[last - 1]))
        for first, last in itertools.pairwise([0, *cuts.tolist(), len(low)])
        if first < last
    ]
    return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)


def starts_of(window: Window, moments: NDArray[np.int64]) -> NDArray[np.int64]:
    """Starts of the windows of some of its instants, of several the earliest. Shape (n,) to (n,); undefined for other
    moments.
    """
    if window.parts:
        return np.minimum.reduce([starts_of(part, moments) for part in window.parts])
    if window.calendar is None and not window.cumulative:
        return moments - window.reach
    if window.calendar is None:
        return (moments - 1 - window.offset) // window.range * window.range + window.offset - window.ago
    starts, ends = _calendar_spans_near(window, moments, 1)
    if not len(ends):
        return moments
    starts = starts[np.minimum(np.searchsorted(ends, moments), len(ends) - 1)]
    return _moved_back(window, starts, False)


def ends_of(window: Window, moments: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ends of the windows of some of its instants, of several the instants. Shape (n,) to (n,), ascending if the
    instants are: some of these may have the same end.
    """
    if window.parts or window.calendar is None:
        return moments - window.ago
    return _moved_back(window, moments, True)


def _moved_back(window: Window, bounds: NDArray[np.int64], are_ends: bool) -> NDArray[np.int64]:
    """The bounds of a calendar's windows (n,), moved back if they are historical."""
    calendar = window.calendar
    assert calendar is not None
    if calendar.ago is None:
        return bounds
    step = window.slide if calendar.slide is None else DAY
    return calendars.moved_back(calendars.clock(calendar.zone), calendar, bounds, step, are_ends)


def open_starts(window: Window, moments: NDArray[np.int64]) -> NDArray[np.int64]:
    """Starts of a plain window that ends at some moments, less its ``ago``, which need not be instants. Shape (n,) to
    (n,).

    Windows of one length begin that long before. Those of a calendar, and cumulative ones, begin where the window does
    that ends at the next instant: at an instant the start is that of :func:`starts_of`.
    """
    if window.calendar is None or not len(moments):
        return starts_of(window, moments)
    pause = longest_pause(window)
    starts, ends = _calendar_spans_near(window, moments + pause, pause + 1)
    return starts[np.searchsorted(ends, moments)]


def newest_instant(window: Window, moment: int) -> int:
    """The newest instant of a window that is not after a moment, whether or not it is requested."""
    return int(newest_instants(window, np.array([moment], dtype=np.int64))[0])


def newest_instants(window: Window, moments: NDArray[np.int64]) -> NDArray[np.int64]:
    """The newest instants of a window that are not after some moments. Shape (n,) to (n,)."""
    window = window.each[0]
    if window.calendar is None:
        return (moments - window.phase) // window.slide * window.slide + window.phase
    if not len(moments):
        return moments
    _, ends = _calendar_spans_near(window, moments, longest_pause(window))
    return ends[np.searchsorted(ends, moments, side="right") - 1]


def longest_pause(window: Window) -> int:
    """No two instants of a window that follow each other are further apart (microseconds, or rows)."""
    calendar = window.calendar
    if calendar is None:
        return window.period
    if calendar.slide is None:
        return 2 * DAY
    count, unit = calendar.slide
    return (count * {"day": 1, "month": 31}[unit] + 1) * DAY


def _calendar_spans_near(
    window: Window, moments: NDArray[np.int64], before: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The windows of a calendar that end at some moments, or at most so long ``before``, and others between moments
    that are not far apart: starts and ends, ascending."""
    if not len(moments):
        return moments, moments
    far = SPARE * longest_pause(window)
    runs = [(int(moments.min()), int(moments.max()))]
    if runs[0][1] - runs[0][0] > far * len(moments):
        known = np.sort(moments)
        edges = [0, *(np.flatnonzero(np.diff(known) > far) + 1).tolist(), len(known)]
        runs = [(int(known[first]), int(known[last - 1])) for first, last in itertools.pairwise(edges)]
    spans = [_calendar_spans(window, first - before, last) for first, last in runs]
    return np.concatenate([starts for starts, _ in spans]), np.concatenate([ends for _, ends in spans])


def _calendar_spans(window: Window, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The windows of a calendar that end in ``(begin, end]``: starts and ends, ascending.

    If several windows end at one instant, as they do when a zone skipped a day, only the first, longest one is
    returned.
    """
    calendar = window.calendar
    assert calendar is not None
    clock, since, offset = calendars.clock(calendar.zone), begin - calendar.longest, calendar.offset
    if end <= begin:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    # what begins in a span by its offset begins without it as long before
    begin, end, since = begin - offset, end - offset, since - offset
    if window.cumulative:
        starts = clock.instants_of(calendars.numbers(clock, calendar.range, since, end), calendar.range[1], offset)
        if calendar.slide is None:
            ends = clock.shows_multiples(window.slide, begin + offset, end + offset)
            days = calendars.numbers(clock, (1, "day"), begin, end)
            ends = np.concatenate([ends, clock.instants_of(days, "day", offset)])
        else:
            steps = calendars.numbers(clock, calendar.slide, begin, end)
            ends = np.concatenate([starts, clock.instants_of(steps, calendar.slide[1], offset)])
        starts, ends = np.unique(starts), np.unique(ends)
        ends = ends[(ends > begin + offset) & (ends <= end + offset)]
        return starts[np.searchsorted(starts, ends) - 1], ends
    assert calendar.slide is not None
    first = calendars.numbers(clock, calendar.slide, since - longest_pause(window), end)
    starts = clock.instants_of(first, calendar.range[1], offset)
    ends = clock.instants_of(first + calendar.range[0], calendar.range[1], offset)
    starts, ends = starts[starts < ends], ends[starts < ends]
    ends, chosen = np.unique(ends, return_index=True)
    starts = starts[chosen]
    inside = (ends > begin + offset) & (ends <= end + offset)
    return starts[inside], ends[inside]


def history_start(windows: Iterable[Window], begin: int, end: int) -> int:
    """Start of the earliest window with an instant in ``(begin, end]``: how far back a run has to read.

    ``end`` itself when there is none.
    """
    starts = []
    for window in windows:
        if window.at is not None or window.calendar is not None or window.parts:
            until = end if window.at is not None else min(end, begin + longest_pause(window))
            starts += starts_of(window, instants(window, begin, until)[:1]).tolist()
            continue
        first = ((begin - window.phase) // window.slide + 1) * window.slide + window.phase
        if first <= end:
            starts.append(int(starts_of(window, np.array([first]))[0]))
    return min(starts, default=end)


def day_label(instant: int) -> str:
    """The UTC day that holds an instant, e.g. ``2013-07-01``: the partition value of partials and results."""
    return str(np.datetime64(instant // DAY, "D"))


def day_pieces(begin: int, end: int, occupied: Collection[str] | None = None) -> Iterator[tuple[int, int]]:
    """Cut [begin, end) at every midnight UTC.

    ``occupied``: cut only before and after the days of these labels. The number of pieces is then that of those
    days, however long the span is.
    """
    if occupied is None:
        while begin < end:
            last = min(end, begin - begin % DAY + DAY)
            yield begin, last
            begin = last
        return
    midnights = sorted(int(np.datetime64(label, "D").astype(np.int64)) * DAY for label in occupied)
    edges = sorted({begin, end, *(at for day in midnights for at in (day, day + DAY) if begin < at < end)})
    yield from itertools.pairwise(edges)


@dataclass(frozen=True)
class Fragments:
    """The fragments of one execution tree: which one an event falls into.

    A fragment is the span between two consecutive edges of the tree, cut once more at midnight UTC so that
    each belongs to one partition of the partials table. It is named by its start; :meth:`ends` gives its end.
    """

    edges: tuple[Progression, ...]

    @classmethod
    def of(cls, windows: Iterable[Window]) -> Fragments:
        """The fragments between the edges of some windows."""
        return cls(progressions(windows))

    def starts(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Start of the fragment of each instant. Shape (n,) to (n,).

        By one lookup in the composite slide's edge table where that has at most :data:`TABLE_CELLS` cells of
        one tick (the gcd of all slides and shifts); else by the closed form, the latest edge among the
        progressions.
        """
        table, tick, period = self._table()
        midnight = times - times % DAY
        if table is not None:
            phase = times % period
            begins = times - phase + table[phase // tick]
        else:
            begins = midnight
            for slide, shift in self.edges:
                begins = np.maximum(begins, times - (times - shift) % slide)
        return np.maximum(begins, midnight)

    def ends(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """End of each fragment, given its start: the next edge, or the next midnight. Shape (n,) to (n,)."""
        next_cuts = starts - starts % DAY + DAY
        for slide, shift in self.edges:
            next_cuts = np.minimum(next_cuts, starts + slide - (starts - shift) % slide)
        return next_cuts

    def last_edge(self, instant: int) -> int:
        """The latest edge (or midnight) that is not after an instant."""
        return int(self.starts(np.array([instant], dtype=np.int64))[0])

    def next_edge(self, instant: int) -> int:
        """The earliest edge (or midnight) after an instant."""
        return int(self.ends(np.array([self.last_edge(instant)], dtype=np.int64))[0])

    def _table(self) -> tuple[NDArray[np.int64] | None, int, int]:
        period = math.lcm(*(slide for slide, _ in self.edges))
        tick = math.gcd(*(number for edge in self.edges for number in edge))
        if period // tick > TABLE_CELLS:
            return None, tick, period
        # before the first edge of the period the last one of the period before is the latest
        latest = np.full(period // tick, max(period - slide + shift for slide, shift in self.edges) - period)
        for slide, shift in self.edges:
            latest[shift // tick :: slide // tick] = np.arange(shift, period, slide)
        return np.maximum.accumulate(latest), tick, period

    def between(self, begin: int, end: int) -> NDArray[np.int64]:
        """All edges (with midnights) in ``[begin, end]``, ascending and distinct."""
        edges = [np.arange(-(-begin // DAY) * DAY, end + 1, DAY, dtype=np.int64)]
        for slide, shift in self.edges:
            first = begin + (shift - begin) % slide
            edges.append(np.arange(first, end + 1, slide, dtype=np.int64))
        return np.unique(np.concatenate(edges))

    def inside(self, begin: int, end: int) -> list[tuple[int, int]]:
        """The fragments [first, last) that lie in ``[begin, end]``, ascending."""
        return list(itertools.pairwise(self.between(begin, end).tolist()))
