"""Counts of a stream's events by their own time, as runs read them.

A run reads some spans of a stream completely. It counts the events of each span in buckets of an hour, or of a day
where the spans are long. Later runs read some of the time again (a longer window, a repair, a backfill), so counts of
several runs are put together such that each instant counts once, as the newest run read it: :func:`combined`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.workload.instants import DAY
from optimizer.workload.values import SECOND

HOUR = 3600 * SECOND

LONG = 31 * DAY
"""Length of spans, in microseconds, from which on events are counted by the day."""

DENSE = 1 << 16
"""Most buckets that are counted in an array, whether or not they have events."""

Span = tuple[int, int]
"""[begin, end) in microseconds."""


@dataclass
class EventCounts:
    """Events of some disjoint spans [begin, end) that were read completely.

    Attributes
    ----------
    spans
        Ascending, in microseconds.
    bucket
        Length of a bucket in microseconds: :data:`HOUR` or :data:`DAY`. Buckets begin at multiples of it.
    events
        Number of events by bucket (time divided by ``bucket``, rounded down); buckets without events are missing.
    """

    spans: tuple[Span, ...]
    bucket: int = HOUR
    events: Counter[int] = field(default_factory=Counter)

    @classmethod
    def of(cls, spans: Iterable[Span]) -> EventCounts:
        """Empty counts for some spans, which may overlap."""
        joined: list[Span] = []
        for begin, end in sorted(spans):
            if joined and begin <= joined[-1][1]:
                begin, end = joined[-1][0], max(joined.pop()[1], end)
            joined.append((begin, end))
        length = sum(end - begin for begin, end in joined)
        return cls(tuple(joined), HOUR if length < LONG else DAY)

    def add(self, times: NDArray[np.int64]) -> None:
        """Count events by their times (n,) in microseconds. O(n), or O(log n) a bucket where they ascend."""
        if not len(times):
            return
        is_sorted = bool((times[1:] >= times[:-1]).all())
        for begin, end in self.spans:
            if is_sorted:
                inside = times[slice(*np.searchsorted(times, (begin, end)))]
            else:
                inside = times[(times >= begin) & (times < end)]
            if len(inside):
                self._add_inside(inside, is_sorted)

    def _add_inside(self, times: NDArray[np.int64], is_sorted: bool) -> None:
        least, greatest = (times[0], times[-1]) if is_sorted else (times.min(), times.max())
        first, last = int(least) // self.bucket, int(greatest) // self.bucket
        if last - first >= DENSE:
            buckets, numbers = np.unique(times // self.bucket, return_counts=True)
        elif is_sorted:
            edges = np.arange(first, last + 2) * self.bucket
            buckets, numbers = np.arange(first, last + 1), np.diff(np.searchsorted(times, edges))
        else:
            buckets, numbers = np.arange(first, last + 1), np.bincount(times // self.bucket - first)
        self.events.update(dict(zip(buckets[numbers > 0].tolist(), numbers[numbers > 0].tolist(), strict=True)))

    def join(self, other: EventCounts) -> None:
        """Add what another task counted of the same spans."""
        self.events.update(other.events)

    def to_json(self) -> dict[str, Any]:
        """The counts as stored in ``stream_statistics``."""
        return {
            "spans": [list(span) for span in self.spans],
            "bucket": self.bucket,
            "events": sorted(self.events.items()),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> EventCounts:
        """The inverse of :meth:`to_json`."""
        spans = tuple((begin, end) for begin, end in stored["spans"])
        return cls(spans, stored["bucket"], Counter(dict(stored["events"])))

    def pieces(self) -> list[tuple[int, int, float]]:
        """The spans cut into buckets with events and the time between them: (begin, end, events), ascending in each
        span. A bucket that several spans share is divided by time. O(buckets with events)."""
        filled, counted = sorted(self.events), list[tuple[int, int, float]]()
        for begin, end in self.spans:
            at = begin
            for number in filled[
                bisect_left(filled, begin // self.bucket) : bisect_left(filled, -(-end // self.bucket))
            ]:
                bucket_span = number * self.bucket, (number + 1) * self.bucket
                piece = _meet(bucket_span, (begin, end))
                covered = sum(_length(_meet(bucket_span, span)) for span in self.spans)
                if at < piece[0]:
                    counted.append((at, piece[0], 0))
                counted.append((*piece, self.events[number] * _length(piece) / covered))
                at = piece[1]
            if at < end:
                counted.append((at, end, 0))
        return counted


def combined(counts: Sequence[EventCounts], limits: Span, bucket: int = HOUR) -> list[tuple[int, int, float]]:
    """Events of a stream by bucket within some limits, each instant as counted by the latest run that read it.

    ``counts``: oldest first. Returns (begin, end, events), ascending and disjoint: the parts of buckets that some run
    has read, and time without events in one piece however long. Exact where runs read complete buckets, or the same
    parts of them. If a newer run has read part of a part again, the remainder counts by its length.
    """
    covered = np.zeros((0, 2), dtype=np.int64)
    pieces: list[tuple[int, int, float]] = []
    for event_counts in reversed(counts):
        spans = [_meet(span, limits) for span in event_counts.spans]
        if not any(_length(span) for span in spans):
            continue
        for begin, end, events in event_counts.pieces():
            for part in _without(_meet((begin, end), limits), covered):
                pieces.append((*part, events * _length(part) / (end - begin)))
        covered = _union(covered, [span for span in spans if _length(span)])
    return _by_bucket(sorted(pieces), bucket)


def _by_bucket(pieces: Sequence[tuple[int, int, float]], bucket: int) -> list[tuple[int, int, float]]:
    """Neighbouring pieces of one bucket put together; pieces longer than a bucket stay as they are."""
    joined: list[tuple[int, int, float]] = []
    for begin, end, events in pieces:
        is_one_bucket = bool(joined) and joined[-1][0] // bucket == (end - 1) // bucket
        if joined and joined[-1][1] == begin and (is_one_bucket or not (events or joined[-1][2])):
            first, _, before = joined.pop()
            begin, events = first, before + events
        joined.append((begin, end, events))
    return joined


def _meet(first: Span, second: Span) -> Span:
    begin = max(first[0], second[0])
    return begin, max(begin, min(first[1], second[1]))


def _length(span: Span) -> int:
    return span[1] - span[0]


def _without(span: Span, taken: NDArray[np.int64]) -> list[Span]:
    """The parts of a span that none of some disjoint, ascending spans (n, 2) covers."""
    at, end = span
    parts = []
    first = int(np.searchsorted(taken[:, 1], at, "right"))
    for begin, stop in taken[first:].tolist():
        if begin >= end or at >= end:
            break
        if begin > at:
            parts.append((at, begin))
        at = max(at, stop)
    return [*parts, (at, end)] if at < end else parts


def _union(taken: NDArray[np.int64], more: Sequence[Span]) -> NDArray[np.int64]:
    joined = EventCounts.of([*map(tuple, taken.tolist()), *more]).spans
    return np.array(joined, dtype=np.int64).reshape(-1, 2)
