"""Spark's task of the first stage: lifts the splits it is given into files of partial rows."""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from optimizer.synopses.synopsis import Synopsis
from optimizer.workload.values import Stream
from spark_jobs.engine.workers import EVENTS, Count, Task, uncounted
from spark_jobs.store.settings import TASK_MEMORY, TaskMemory
from spark_jobs.store.warehouse.data_files import BUCKET_ROWS, DataFile, SynopsisFailure, WithoutTime
from spark_jobs.streams.sources.decoding import inside, read_each, times_of
from spark_jobs.streams.sources.event_counts import EventCounts
from spark_jobs.streams.sources.partition_columns import may_match
from spark_jobs.streams.sources.splits import Split
from spark_jobs.streams.sources.unmatched import Unmatched, joins_of, unmatched_in
from spark_jobs.windows.kinds import EXECUTIONS
from spark_jobs.windows.partials import fill_request
from spark_jobs.windows.partials.fill_request import columns_of_synopsis
from spark_jobs.windows.partials.slabs import Slab, span_of_slab
from spark_jobs.windows.partials.writing import PartialsFiles

UNTIMED, NEWER = "untimed", "newer"
"""Names of the counts of :func:`lift_task` in addition to the events of each slab."""


class PartedSplits:
    """Splits in parts, of which a task decodes only the one that it works on: there may be ten thousand splits."""

    def __init__(self, splits: Sequence[Split], parts: Sequence[range]) -> None:
        self._starts = [part.start for part in parts]
        self._encoded = [pickle.dumps(splits[part.start : part.stop]) for part in parts]
        self._decoded: tuple[int, Sequence[Split]] = -1, ()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_decoded": (-1, ())}

    def __getitem__(self, number: int) -> Split:
        part = bisect_right(self._starts, number) - 1
        if self._decoded[0] != part:
            self._decoded = part, pickle.loads(self._encoded[part])
        return self._decoded[1][number - self._starts[part]]


class SlabsOfSplit:
    """Choose the slabs for which a split has to be read: it may hold an event of their span that one of their filters
    does not exclude by the names of its folders.
    """

    def __init__(self, stream: Stream, slabs: Sequence[Slab]) -> None:
        self.stream, self.slabs, self.spans = stream, slabs, [span_of_slab(slab) for slab in slabs]
        self._known: dict[tuple[int, Any], bool] = {}

    def __call__(self, split: Split) -> tuple[int, ...]:
        """The numbers of the slabs. Raises HDL-404 for a folder whose value does not fit its type."""
        return tuple(at for at, span in enumerate(self.spans) if split.may_hold(*span) and self._may_match(at, split))

    def is_pruned(self, split: Split) -> bool:
        """Return whether filters alone exclude a split from a slab."""
        return sum(split.may_hold(*span) for span in self.spans) > len(self(split))

    def _may_match(self, at: int, split: Split) -> bool:
        key = at, split.folders
        if key not in self._known:
            self._known[key] = not split.folders or any(
                _may_lift(self.stream, split, request.synopsis) for request in self.slabs[at]
            )
        return self._known[key]


def _may_lift(stream: Stream, split: Split, synopsis: Synopsis) -> bool:
    return not synopsis.kind.has_fragments or any(
        may_match(predicate, stream, split) for predicate in synopsis.predicates
    )


def events_of_slab(at: int) -> str:
    """The name of what is counted of a slab, by its number."""
    return f"events of slab {at}"


def lift_task(
    stream: Stream,
    splits: Sequence[Split] | PartedSplits,
    slabs: Sequence[Slab],
    root: str,
    memory: TaskMemory = TASK_MEMORY,
    newer: tuple[int, int] | None = None,
    is_counted: bool = False,
    group_rows: int = BUCKET_ROWS,
    joined: Collection[str] = (),
) -> Task:
    """The task that reads the splits with the given numbers and writes their partial rows under ``root``.

    It yields the files, the synopses that failed (their rows in the files, if any, are incomplete), and the source
    files with events without a time. It writes its gathered rows whenever they take more than ``memory`` allows. Of
    a split it reads the columns of those slabs (:mod:`spark_jobs.windows.partials.slabs`) whose events the split
    may have.

    It counts the events in each slab's span (:func:`events_of_slab`), those without a time (:data:`UNTIMED`) and
    those in an interval [begin, end), ``newer`` (:data:`NEWER`). ``is_counted``: it also yields the
    :class:`EventCounts` of the slabs' spans. ``group_rows``: approximate rows of the row groups of its files.
    ``joined``: attributes of queries that are joined late; of them, too, it counts the events without a row.
    """
    requests = [request for slab in slabs for request in slab]
    keys = {name for request in requests for name, _ in request.synopsis.group_by}
    spans = [span_of_slab(slab) for slab in slabs]

    slabs_of_split = SlabsOfSplit(stream, slabs)

    def slabs_in(number: int) -> tuple[int, ...]:
        return slabs_of_split(splits[number])

    def task(
        numbers: Iterable[int], count: Count = uncounted
    ) -> Iterator[DataFile | SynopsisFailure | EventCounts | WithoutTime | Unmatched]:
        counts, without_time, unmatched = EventCounts.of(spans), Counter[str](), dict[str, Unmatched]()
        by_class: dict[tuple[int, Any], Slab] = {}
        for at, slab in enumerate(slabs):
            for request in slab:
                by_class.setdefault((at, EXECUTIONS[request.synopsis.kind].lifting), []).append(request)
        writing = PartialsFiles(root, memory, group_rows)
        share = TaskMemory(memory.bytes // len(by_class))
        liftings: list[list[Any]] = [[] for _ in slabs]
        for (at, lifting), filled in by_class.items():
            liftings[at].append(lifting(stream, filled, share, writing.write))
        for chosen, alike in groupby(numbers, slabs_in):
            filling = [lifting for at in chosen for lifting in liftings[at]]
            columns = sorted(
                {name for at in chosen for request in slabs[at] for name in columns_of_synopsis(request.synopsis)}
            )
            joins = joins_of(stream, [*columns, *joined])
            columns += joins.keys() - set(columns)
            for split, events in read_each(stream, (splits[number] for number in alike), columns, keys):
                times, timed, missing = times_of(events, stream)
                if missing:
                    count(UNTIMED, missing)
                    without_time[split.path] += missing
                if is_counted:
                    counts.add(times)
                if joins:
                    is_inside = pa.array(inside(times, [spans[at] for at in chosen]))
                    lifted = timed.filter(is_inside)
                    for join, attribute in joins.items():
                        counted = unmatched_in(lifted, join, attribute)
                        unmatched[join] = unmatched[join].joined(counted) if join in unmatched else counted
                if newer is not None:
                    count(NEWER, int(((times >= newer[0]) & (times < newer[1])).sum()))
                for first in range(0, events.num_rows, fill_request.SLICE_ROWS):
                    for lifting in filling:
                        lifting.add(events.slice(first, fill_request.SLICE_ROWS))
                yield from writing.taken()
        for at, of_slab in enumerate(liftings):
            for lifting in of_slab:
                writing.write(lifting.tables())
                yield from writing.taken()
                yield from lifting.failed.values()
            # each saw all events: those that only one covers are counted where more are
            events_inside = max(lifting.inside for lifting in of_slab)
            count(events_of_slab(at), events_inside)
            count(EVENTS, events_inside)
        if is_counted:
            yield counts
        yield from unmatched.values()
        yield from (WithoutTime(path, events) for path, events in without_time.items())

    return task
