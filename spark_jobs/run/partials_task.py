"""Spark's task of the first stage: lifts the splits it is given into files of partial rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from optimizer.workload.values import Stream
from spark_jobs.partials import fill_request
from spark_jobs.partials.fill_request import FillRequest
from spark_jobs.partials.writing import PartialsFiles
from spark_jobs.run.window_kinds import KINDS
from spark_jobs.settings import TASK_MEMORY, TaskMemory
from spark_jobs.sources.decoding import read_splits, times_of
from spark_jobs.sources.splits import Split
from spark_jobs.warehouse.data_files import DataFile, SynopsisFailure, Task


def lift_task(
    stream: Stream,
    splits: list[Split],
    spans: Sequence[FillRequest],
    columns: list[str],
    root: str,
    rows: Any,
    untimed: Any,
    memory: TaskMemory = TASK_MEMORY,
    newer: tuple[int, int, Any] | None = None,
) -> Task:
    """The task that reads the splits whose numbers it is given and writes their partial rows under ``root``.

    Names the files, and the synopses that failed (their rows in the files, if any, are not whole).
    What it has gathered it writes whenever that takes more than ``memory`` allows.
    ``rows`` and ``untimed``: accumulators that count the events in the spans, and those without a time; ``newer``: one
    that counts the events in an interval [begin, end).
    """

    keys = {name for span in spans for name, _ in span.synopsis.group_by}

    def task(numbers: Iterable[int]) -> Iterator[DataFile | SynopsisFailure]:
        by_class: dict[Any, list[FillRequest]] = {}
        for span in spans:
            by_class.setdefault(KINDS[span.synopsis.kind].lifting(), []).append(span)
        writing = PartialsFiles(root, memory)
        share = TaskMemory(memory.bytes // len(by_class))
        liftings = [lifting(stream, requests, share, writing.write) for lifting, requests in by_class.items()]
        for events in read_splits(stream, (splits[number] for number in numbers), columns, keys):
            if newer is not None:
                times = times_of(events, stream)[0]
                newer[2].add(int(((times >= newer[0]) & (times < newer[1])).sum()))
            for first in range(0, events.num_rows, fill_request.SLICE_ROWS):
                for lifting in liftings:
                    lifting.add(events.slice(first, fill_request.SLICE_ROWS))
            yield from writing.taken()
        for lifting in liftings:
            writing.write(lifting.tables())
            yield from writing.taken()
            yield from lifting.failed.values()
        # each saw all events: those that only one covers are counted where more are
        rows.add(max(lifting.inside for lifting in liftings))
        untimed.add(liftings[0].untimed)

    return task
