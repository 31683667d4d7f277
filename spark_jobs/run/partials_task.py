"""Spark's task of the first stage: lifts the splits it is given into files of partial rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import pyarrow as pa

from optimizer.workload.values import Stream
from spark_jobs.partials.fill_request import GROUP_LIMIT, FillRequest
from spark_jobs.run.window_kinds import KINDS
from spark_jobs.sources.decoding import read_splits, times_of
from spark_jobs.sources.splits import Split
from spark_jobs.warehouse.data_files import DataFile, SynopsisFailure, Task, write_files


def lift_task(
    stream: Stream,
    splits: list[Split],
    spans: list[FillRequest],
    columns: list[str],
    root: str,
    rows: Any,
    untimed: Any,
    group_limit: int = GROUP_LIMIT,
    newer: tuple[int, int, Any] | None = None,
) -> Task:
    """The task that reads the splits whose numbers it is given and writes their partial rows under ``root``.

    Names the files, and the synopses that failed (their rows in the files, if any, are not whole).
    ``rows`` and ``untimed``: accumulators that count the events in the spans, and those without a time; ``newer``: one
    that counts the events in an interval [begin, end).
    """

    keys = {name for span in spans for name, _ in span.synopsis.group_by}

    def task(numbers: Iterable[int]) -> Iterator[DataFile | SynopsisFailure]:
        by_class: dict[Any, list[FillRequest]] = {}
        for span in spans:
            by_class.setdefault(KINDS[span.synopsis.kind].lifting(), []).append(span)
        liftings = [lifting(stream, requests, group_limit) for lifting, requests in by_class.items()]
        for events in read_splits(stream, (splits[number] for number in numbers), columns, keys):
            if newer is not None:
                times = times_of(events, stream)[0]
                newer[2].add(int(((times >= newer[0]) & (times < newer[1])).sum()))
            for lifting in liftings:
                lifting.add(events)
                if lifting.is_full:
                    yield from _written(lifting, root)
        for lifting in liftings:
            yield from _written(lifting, root)
            yield from lifting.failed.values()
        # each saw all events: those that only one covers are counted where more are
        rows.add(max(lifting.inside for lifting in liftings))
        untimed.add(liftings[0].untimed)

    return task


class _Lifts(Protocol):
    """Lifts events and says what they make."""

    def tables(self) -> Iterator[pa.Table]: ...


def _written(lifting: _Lifts, root: str) -> Iterator[DataFile]:
    tables = list(lifting.tables())
    if tables:
        yield from write_files(root, pa.concat_tables(tables))
