"""The first event of a stream, where windows of RANGE UNBOUNDED start."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.workload.values import Stream
from spark_jobs.streams.sources.decoding import read_split, times_of
from spark_jobs.streams.sources.splits import Split


def first_event(stream: Stream, splits: Sequence[Split]) -> int | None:
    """About the time of the first event in some splits (microseconds), which is not earlier; None: there is none.

    Splits with events without a time have no known span, and are read. Refused events do not count.
    """
    firsts = [_first_of(stream, split) if split.begin is None else _admitted(split, split.begin) for split in splits]
    return min((first for first in firsts if first is not None), default=None)


def _admitted(split: Split, first: int) -> int | None:
    """The first time from ``first`` on that is not refused; None if all times of the split are."""
    for low, high in sorted(split.refused):
        if low <= first < high:
            first = high
    return None if split.rows == 0 or (split.end is not None and first >= split.end) else first


def _first_of(stream: Stream, split: Split) -> int | None:
    times = (times_of(batch, stream)[0] for batch in read_split(stream, split, []))
    return min((int(some.min()) for some in times if len(some)), default=None)
