"""Groups of events that lie far apart in time: what a file has between its first and its last event, and what is far.

One event of a device without a clock (1970), or of one whose clock is ahead (9999), would let its file hold any day in
between. So a file is known by its *clusters*: its events, cut where none lies for more than
:data:`optimizer.workload.instants.FAR_APART`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.errors.diagnostics import Diagnostic
from optimizer.errors.diagnostics import count as number_of
from optimizer.workload.instants import DAY, FAR_APART, format_instant
from optimizer.workload.values import Stream
from spark_jobs.streams.sources.decoding import read_split, times_of
from spark_jobs.streams.sources.formats import format_of
from spark_jobs.streams.sources.splits import Split

MOST = 64
"""Largest number of clusters of a file; with more, the nearest ones are joined."""

SHARE = 10
"""Events are far from the others if there is only one, or fewer than one in this number."""

NAMED = 3
"""Groups of far events that are named one by one."""


class Cluster(NamedTuple):
    """So many ``events`` in [begin, end) (microseconds)."""

    begin: int
    end: int
    events: int


def of_times(times: NDArray[np.int64]) -> list[Cluster]:
    """The clusters of some times (n,), in any order. O(n) if they are all near, else O(n log n)."""
    if not len(times):
        return []
    if times.max() - times.min() <= FAR_APART:
        return [Cluster(int(times.min()), int(times.max()) + 1, len(times))]
    ordered = np.sort(times)
    cuts = [0, *(np.flatnonzero(np.diff(ordered) > FAR_APART) + 1).tolist(), len(ordered)]
    return [Cluster(int(ordered[low]), int(ordered[high - 1]) + 1, high - low) for low, high in pairwise(cuts)]


def grouped_clusters(clusters: Iterable[Cluster], most: int | None = None) -> tuple[Cluster, ...]:
    """Clusters, ascending, with neighbours that are not far apart joined; ``most``: the largest number returned."""
    joined: list[Cluster] = []
    for cluster in sorted(clusters):
        if joined and cluster.begin - joined[-1].end < FAR_APART:
            joined[-1] = _both(joined[-1], cluster)
        else:
            joined.append(cluster)
    while most is not None and len(joined) > most:
        at = min(range(1, len(joined)), key=lambda number: joined[number].begin - joined[number - 1].end)
        joined[at - 1 : at + 1] = [_both(joined[at - 1], joined[at])]
    return tuple(joined)


def _both(cluster: Cluster, other: Cluster) -> Cluster:
    return Cluster(min(cluster.begin, other.begin), max(cluster.end, other.end), cluster.events + other.events)


def of_file(stream: Stream, splits: Iterable[Split]) -> tuple[Cluster, ...] | None:
    """The clusters of a file; None if some of its events have no time.

    Splits with known first and last times are read only if these are more than :data:`FAR_APART` apart. Raises what
    reading raises.
    """
    clusters: list[Cluster] = []
    for split in splits:
        if split.begin is not None and split.end is not None and split.rows is not None:
            if split.end - split.begin <= FAR_APART:
                clusters.append(Cluster(split.begin, split.end, split.rows))
                continue
        elif format_of(stream).has_statistics:
            return None
        for batch in read_split(stream, split, []):
            times, _, missing = times_of(batch, stream)
            if missing:
                return None
            clusters = list(grouped_clusters([*clusters, *of_times(times)]))
    return grouped_clusters(clusters, MOST)


def newest_of(stream: Stream, splits: Iterable[Split]) -> int | None:
    """The time of the newest event of some splits, which are read; None if there is none."""
    times = (times_of(batch, stream)[0] for split in splits for batch in read_split(stream, split, []))
    return max((int(some.max()) for some in times if len(some)), default=None)


def gaps_of(clusters: Sequence[Cluster]) -> tuple[tuple[int, int], ...]:
    """The spans [first, last) between clusters, which have no event."""
    return tuple((before.end, after.begin) for before, after in pairwise(clusters))


def far_groups(clusters: Iterable[Cluster]) -> list[Cluster]:
    """The groups of a stream's events that are far from all others: :data:`FAR_APART` away, and of one event or of
    fewer than one in :data:`SHARE`. None are where no group has most of the events: then nobody knows what is normal.
    """
    groups = grouped_clusters(clusters)
    total, largest = sum(group.events for group in groups), max(groups, key=lambda group: group.events, default=None)
    if largest is None or 2 * largest.events <= total:
        return []
    return [group for group in groups if group is not largest and (group.events == 1 or SHARE * group.events < total)]


def stored_clusters(known: Sequence[pa.Array], added: Sequence[tuple[Cluster, str]]) -> list[tuple[Cluster, str]]:
    """The clusters that a ledger has of some files, and those ``added``, with their paths; none, if all of them lie in
    a span that is not longer than :data:`FAR_APART`: then no group is far, and nothing is parsed.

    ``known``: the columns of the ledger (n,) with the files' paths, first and last times, and clusters as JSON.
    """
    paths, begins, ends, texts = known
    least, most = pc.min(begins.cast(pa.int64())).as_py(), pc.max(ends.cast(pa.int64())).as_py()
    # of a file that has the last microsecond of the year 9999 the ledger has no end
    has_open = bool(pc.any(pc.and_(begins.is_valid(), ends.is_null())).as_py())
    low = min([*(cluster.begin for cluster, _ in added), *([] if least is None else [least])], default=0)
    high = max([*(cluster.end for cluster, _ in added), *([] if most is None else [most])], default=0)
    if high - low <= FAR_APART and not has_open:
        return []
    files = zip(texts.to_pylist(), paths.to_pylist(), strict=True)
    stored = [(Cluster(*each), path) for text, path in files if text is not None for each in json.loads(text)]
    return [*stored, *added]


def far_warnings(
    stream: str,
    clusters: Sequence[tuple[Cluster, str]],
    span: tuple[int, int] | None = None,
    new: Collection[str] = (),
) -> list[Diagnostic]:
    """Warnings (HDL-475) that name what is far of a stream's events.

    ``clusters``: with the file of each. ``span``: name only what lies in it or after it, or in one of the ``new``
    files; None: name everything.
    """
    groups = [
        group
        for group in far_groups(cluster for cluster, _ in clusters)
        if span is None or group.end > span[0] or any(path in new for path in _files(group, clusters))
    ]
    warnings = []
    for group in groups[:NAMED]:
        files = _files(group, clusters)
        more_files = f" and {number_of(len(files) - 1, 'more file')}" if len(files) > 1 else ""
        until = "" if group.events == 1 else f" .. {format_instant(group.end - 1)}"
        message = (
            f"stream {stream}: {number_of(group.events, 'event')} at {format_instant(group.begin)}{until} "
            f"in {files[0]}{more_files}: more than {FAR_APART // DAY} days from all others"
        )
        hint = "if a clock was wrong, correct the file; otherwise leave it: the time in between costs nothing"
        warnings.append(Diagnostic("HDL-475", message, hint, severity="warning"))
    if len(groups) > NAMED:
        unnamed = groups[NAMED:]
        message = f"stream {stream}: {number_of(sum(group.events for group in unnamed), 'event')} more like that"
        hint = f"from {format_instant(unnamed[0].begin)} to {format_instant(unnamed[-1].end - 1)}"
        warnings.append(Diagnostic("HDL-475", message, hint, severity="warning"))
    return warnings


def _files(group: Cluster, clusters: Iterable[tuple[Cluster, str]]) -> list[str]:
    """The files that have events of a group."""
    return sorted({file for cluster, file in clusters if cluster.begin < group.end and cluster.end > group.begin})
