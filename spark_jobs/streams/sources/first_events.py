"""Windows of RANGE UNBOUNDED: the first event of a stream, where they start, and the files that went from their past.

Files that come late add to the answers that are not published yet. Files that go are corrections or deletions, so that
all answers that had their events are computed again.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from optimizer.workload.values import Stream
from spark_jobs.streams.sources.decoding import read_split, times_of
from spark_jobs.streams.sources.ledger import Arrival, Ledger
from spark_jobs.streams.sources.splits import Split


def first_event(stream: Stream, splits: Sequence[Split]) -> int | None:
    """Time of the first event in some splits (microseconds), or somewhat earlier; None: there is none.

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


def removed_before(stream: Stream, ledger: Ledger, end: int) -> list[str]:
    """Identities of the files that are gone and may have had events before ``end``, sorted; without those that others
    replaced without a change there."""
    removed = {arrival.identity for arrival in _gone(ledger) if arrival.meets(None, end)}
    if not removed:
        return []
    replacements = ledger.replacements(stream).newest_first
    same = (each for each in replacements if not any(low < end for low, _ in each.changed))
    return sorted(removed - {file.identity for each in same for file in each.gone})


def newest_removal(ledger: Ledger) -> int:
    """The moment at which the last file went (microseconds); 0: none has."""
    return max((arrival.noted for arrival in _gone(ledger)), default=0)


def _gone(ledger: Ledger) -> list[Arrival]:
    """The files of a stream that are gone."""
    rows = ledger.rows.filter(pc.equal(ledger.rows["event"], "gone"))
    arrivals = ledger.of([*rows["identity"].to_pylist(), *ledger.added]).values()
    return [arrival for arrival in arrivals if not arrival.is_here]
