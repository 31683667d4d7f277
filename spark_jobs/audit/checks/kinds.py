"""How to judge answers of each kind of window: the audit's own table.

:mod:`optimizer.workload.window_kinds` defines the kinds. Nothing here looks up how they are answered: the code that
answers and the code that judges have nothing in common. A kind is one class, with everything that the inspection of
all answers and the recomputation of a sample need to know about its windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optimizer.windows.alignment import ends_of, newest_instants, starts_of
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, Window
from optimizer.workload.window_kinds import ROWS, SEQUENCE, SESSION, TIME, WindowKind
from spark_jobs.audit.checks.sampling import EMPTY, Longs, Mask, Past, Units
from spark_jobs.store.warehouse.data_files import BUCKETS
from spark_jobs.store.warehouse.schemas import micros
from spark_jobs.streams.sources.replacements import disjoint

if TYPE_CHECKING:
    from spark_jobs.audit.checks.recompute import EventsHeld

Row = dict[str, Any]
"""An answer, staged or recomputed."""

LONGEST = np.iinfo(np.int64).max


class AnswerTimes(NamedTuple):
    """Columns (n,) of some answers of a query, in microseconds; ``positions``: of windows of rows, else -1."""

    starts: Longs
    ends: Longs
    instants: Longs
    positions: Longs

    def part(self, first: int, last: int) -> AnswerTimes:
        """The answers [first, last)."""
        return AnswerTimes(*(column[first:last] for column in self))


class Grid(NamedTuple):
    """The windows that answers may have: their ``instants``, ``starts`` and ``ends`` (n,). Each instant is in
    (``begin``, ``until``] and ``range`` behind a multiple of ``slide``. Its window ends ``ago`` before it.
    """

    instants: Longs
    starts: Longs
    ends: Longs
    range: int
    slide: int
    ago: int
    begin: int
    until: int


class AnsweredWindows(NamedTuple):
    """Windows of the answers of a query (n,), and whether the groups of these have a null. ``keys``: of answers whose
    windows are audited key by key."""

    starts: Longs
    ends: Longs
    instants: Longs
    positions: Longs
    nulls: Mask
    keys: list[str]

    @classmethod
    def of(cls, pieces: Sequence[AnsweredWindows]) -> AnsweredWindows:
        """All of them as one."""
        nothing = (np.zeros(0, np.int64),) * 4
        every = [cls(*nothing, np.zeros(0, bool), []), *pieces]
        columns = (np.concatenate([piece[at] for piece in every]) for at in range(5))
        return cls._make((*columns, [key for piece in every for key in piece.keys]))


class AuditedKind:
    """Audit of the answers of one kind of window; this base class is the one of windows of time.

    ``by_key``: each window is of one key, and is recomputed for this key only
    (:mod:`spark_jobs.audit.checks.row_windows`). Else all groups of a window are recomputed together
    (:mod:`spark_jobs.audit.checks.recompute`). ``fixes_starts``: the end of a window determines its start.
    """

    by_key = False
    fixes_starts = True

    def first_bucket(self, query: ACQ) -> int:
        """First number of the buckets of a query's groups: queries with separate files have separate buckets."""
        return 0

    def bucketed_by(self, query: ACQ) -> list[str]:
        """The group columns whose values decide the bucket of a key that is recomputed."""
        return [name for name, _ in query.group_by]

    def grid(self, window: Window, times: AnswerTimes, begin: int, until: int) -> Grid:
        """The windows that answers may be of, as far as they are equally far apart."""
        starts, ends, instants, _ = times
        if window.is_regular:
            return Grid(instants, starts, ends, window.range, window.slide, window.ago, begin, until)
        return Grid(instants, ends, ends, 0, 1, window.ago, begin, until)

    def misplaced(self, window: Window, times: AnswerTimes, begin: int, until: int) -> Mask:
        """Answers (n,) whose windows are wrong otherwise than by :meth:`grid`."""
        if not window.is_regular:
            return _is_no_window(window, times.starts, times.instants, begin, until)
        if window.at is not None:
            return ~np.isin(times.instants, window.at)
        return np.zeros(len(times.instants), dtype=bool)

    def units(
        self,
        query: ACQ,
        answered: AnsweredWindows,
        edges: Longs,
        begin: int,
        due: Callable[[], Longs],
        past: Past,
    ) -> Units:
        """The windows that may be recomputed: those with answers, and those of ``due`` instants without.

        ``edges``: where the times of files begin or end, ascending; ``begin``: of the interval.
        """
        instants, place, counts = np.unique(answered.instants, return_inverse=True, return_counts=True)
        with_null = np.bincount(place, answered.nulls, len(instants)) > 0
        empty = np.setdiff1d(due(), instants)
        moments = np.concatenate([instants, empty])
        starts, ends = starts_of(query.window, moments), ends_of(query.window, moments)
        is_empty = np.arange(len(moments)) >= len(instants)
        answers = np.concatenate([counts, np.zeros(len(empty), np.int64)])
        strata = _strata(starts, ends, edges, begin, past, ~is_empty)
        strata |= {"null": np.concatenate([with_null, np.zeros(len(empty), bool)]), EMPTY: is_empty}
        return Units(query, starts, ends, answers, strata)

    def last_instants(self, units: Units) -> Longs:
        """The instants (n,) of the windows of some units."""
        return units.ends + units.query.window.ago

    def spans_read(self, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The spans that are recomputed at once, of those of some units."""
        return list(dict.fromkeys(spans))

    def ends_compared(self, units: Units, spans: Sequence[tuple[int, int]]) -> list[int]:
        """The ends of the answered windows that recomputing some spans judges."""
        return [end for _, end in spans]

    def judged(
        self, query: ACQ, rows: list[Row], spans: Sequence[tuple[int, int]], within: Sequence[tuple[int, int]]
    ) -> list[Row]:
        """Answers, staged or recomputed, that recomputing some spans judges. ``within``: spans
        (low, high] of the instants whose answers are at hand."""
        return rows

    def examples(self, query: ACQ, events: EventsHeld, begin: int, end: int) -> list[tuple[int, int]]:
        """Spans of a few windows of the interval (begin, end], whose events a recomputation reads."""
        due = events.instants(query, begin, end)
        some = due[np.linspace(0, len(due) - 1, min(len(due), 4)).astype(np.int64).tolist()]
        return list(zip(starts_of(query.window, some).tolist(), ends_of(query.window, some).tolist(), strict=True))

    def events_read(self, in_examples: NDArray[np.float64], events: EventsHeld, draws: int, most: int) -> float:
        """About how many events the recomputation reads, from how many there are in each of :meth:`examples`; of a key
        ``most``."""
        return (draws + 1) * float(in_examples.mean()) if len(in_examples) else 0.0

    def is_restricted(self, query: ACQ) -> bool:
        """Return whether it is possible to recompute only some of the groups."""
        return bool(query.group_by) and query.top is None and not query.sets

    def exists(self, query: ACQ) -> bool | None:
        """Return whether a group with events has an answer; None: the values of the events decide it."""
        return None if query.compared else True


class AuditedRows(AuditedKind):
    """Windows of rows. They are numbered by their first rows, and their times do not follow from the query."""

    by_key = True
    fixes_starts = False

    def first_bucket(self, query: ACQ) -> int:
        return BUCKETS

    def bucketed_by(self, query: ACQ) -> list[str]:
        return [name for name, _ in query.group_by if name in (query.window.per or ())]

    def grid(self, window: Window, times: AnswerTimes, begin: int, until: int) -> Grid:
        positions = times.positions
        return Grid(positions, positions, positions, 0, window.slide, 0, -1, LONGEST)

    def misplaced(self, window: Window, times: AnswerTimes, begin: int, until: int) -> Mask:
        starts, ends, instants, _ = times
        return (starts >= ends) | (ends != instants) | (instants <= begin) | (instants > until)

    def units(
        self,
        query: ACQ,
        answered: AnsweredWindows,
        edges: Longs,
        begin: int,
        due: Callable[[], Longs],
        past: Past,
    ) -> Units:
        order = np.argsort(answered.instants, kind="stable")
        starts, ends, positions = (column[order] for column in (answered.starts, answered.ends, answered.positions))
        answers = np.ones(len(order), np.int64)
        strata = _strata(starts, ends, edges, begin, past, answers > 0) | {"null": answered.nulls[order]}
        return Units(query, starts, ends, answers, strata, positions, tuple(answered.keys[at] for at in order.tolist()))

    def last_instants(self, units: Units) -> Longs:
        # a window of rows ends behind the instant that it is of
        return units.ends - 1

    def examples(self, query: ACQ, events: EventsHeld, begin: int, end: int) -> list[tuple[int, int]]:
        return []

    def events_read(self, in_examples: NDArray[np.float64], events: EventsHeld, draws: int, most: int) -> float:
        return min(most, float(events.rows.sum()))

    def is_restricted(self, query: ACQ) -> bool:
        return True


class AuditedSequences(AuditedKind):
    """Event sequences. Whether a group has an answer, the sequences of its events decide."""

    def first_bucket(self, query: ACQ) -> int:
        return 2 * BUCKETS if query.group_by else 3 * BUCKETS

    def exists(self, query: ACQ) -> bool | None:
        return None


class AuditedSessions(AuditedKind):
    """Sessions. A unit is the span [start - gap, end] of a session: what lies in it shows that nothing precedes the
    session, and that nothing follows. All sessions in the span are recomputed, of all groups, and so are those in the
    slides of time that have no answer."""

    def first_bucket(self, query: ACQ) -> int:
        return 4 * BUCKETS

    def grid(self, window: Window, times: AnswerTimes, begin: int, until: int) -> Grid:
        return Grid(times.instants, times.ends, times.ends, 0, 1, 1, begin, until)

    def misplaced(self, window: Window, times: AnswerTimes, begin: int, until: int) -> Mask:
        length = times.ends - window.pause - times.starts
        return (length < 0) | (length > window.range)

    def units(
        self,
        query: ACQ,
        answered: AnsweredWindows,
        edges: Longs,
        begin: int,
        due: Callable[[], Longs],
        past: Past,
    ) -> Units:
        order = np.argsort(answered.instants, kind="stable")
        starts, instants, window = answered.starts[order], answered.instants[order], query.window
        moments = due()
        behind, before = (np.searchsorted(instants, at, "right") for at in (moments, moments - window.slide))
        empty = moments[behind == before]
        begins = np.concatenate([starts - window.pause, empty - window.slide - 2 * window.pause])
        ends = np.concatenate([instants, empty])
        is_empty = np.arange(len(ends)) >= len(instants)
        strata = _strata(begins, ends, edges, begin, past, ~is_empty)
        nulls = np.concatenate([answered.nulls[order], np.zeros(len(empty), bool)])
        strata |= {"null": nulls, EMPTY: is_empty}
        return Units(query, begins, ends, np.where(is_empty, 0, 1), strata)

    def last_instants(self, units: Units) -> Longs:
        return units.ends

    def spans_read(self, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        return list(disjoint(spans))

    def ends_compared(self, units: Units, spans: Sequence[tuple[int, int]]) -> list[int]:
        ends = units.ends[units.answered]
        lows, highs = (np.array([span[at] for span in spans], dtype=np.int64) for at in (0, 1))
        place = np.searchsorted(lows, ends, "left") - 1
        return np.unique(ends[(place >= 0) & (ends <= highs[place])] - 1).tolist()

    def judged(
        self, query: ACQ, rows: list[Row], spans: Sequence[tuple[int, int]], within: Sequence[tuple[int, int]]
    ) -> list[Row]:
        judged_rows = []
        for row in rows:
            start, end = micros(row["window_start"]) - query.window.pause, micros(row["window_end"])
            is_at_hand = any(low < end + 1 <= high for low, high in within)
            if is_at_hand and any(low <= start and end < high for low, high in spans):
                judged_rows.append(row)
        return judged_rows

    def examples(self, query: ACQ, events: EventsHeld, begin: int, end: int) -> list[tuple[int, int]]:
        examples = super().examples(query, events, begin, end)
        return [(last - query.window.slide - 2 * query.window.pause, last) for _, last in examples]

    def is_restricted(self, query: ACQ) -> bool:
        return bool(query.group_by) and set(query.window.per or ()) == {name for name, _ in query.group_by}


AUDITS: Mapping[WindowKind, AuditedKind] = {
    TIME: AuditedKind(),
    ROWS: AuditedRows(),
    SEQUENCE: AuditedSequences(),
    SESSION: AuditedSessions(),
}
"""The audit of each kind of window."""


def _is_no_window(window: Window, starts: Longs, instants: Longs, begin: int, until: int) -> Mask:
    """Mask of the spans (n,), each with its instant, that are none of the windows due in (begin, until]."""
    due = np.isin(instants, window.at) if window.at is not None else newest_instants(window, instants) == instants
    inside = due & (instants > begin) & (instants <= until)
    return ~inside | (starts_of(window, instants) != starts)


def _strata(starts: Longs, ends: Longs, edges: Longs, begin: int, past: Past, answered: Mask) -> dict[str, Mask]:
    """Windows in each of the strata that follow from their spans. Those without answers are in a separate stratum."""
    across = np.searchsorted(edges, ends, "left") > np.searchsorted(edges, starts, "right")
    return {
        "day": answered & (starts // DAY != (ends - 1) // DAY),
        "file": answered & across,
        "interval": answered & (starts < begin),
        "repaired": answered & past.repaired,
    }
