"""Spark's task that rolls stored partial rows up into those of other synopses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from spark_jobs.engine.workers import Count, Task, uncounted
from spark_jobs.store.settings import TaskMemory
from spark_jobs.store.warehouse.data_files import BUCKETS, DataFile, SynopsisFailure, read_buckets
from spark_jobs.windows.kinds import EXECUTIONS
from spark_jobs.windows.partials.fill_request import FillRequest
from spark_jobs.windows.partials.writing import PartialsFiles


def derivation_task(paths: Sequence[str], requests: Sequence[FillRequest], root: str, memory: TaskMemory) -> Task:
    """The task that reads the files whose numbers it is given, and writes what requests take of them under ``root``.

    Names the files that it wrote, and counts the stored ``rows`` that were of use.
    """

    def task(numbers: Iterable[int], count: Count = uncounted) -> Iterator[DataFile | SynopsisFailure]:
        writing = PartialsFiles(root, memory)
        by_class: dict[Any, list[FillRequest]] = {}
        for request in requests:
            by_class.setdefault(EXECUTIONS[request.synopsis.kind].deriving, []).append(request)
        share = replace(memory, bytes=memory.bytes // max(1, len(by_class)))
        derivations = [deriving(class_requests, share, writing.write) for deriving, class_requests in by_class.items()]
        for number in numbers:
            for stored in read_buckets([paths[number]], set(range(BUCKETS)), memory.piece):
                for derivation in derivations:
                    derivation.add(stored)
                    yield from writing.taken()
        for derivation in derivations:
            writing.write(derivation.tables())
            yield from writing.taken()
            count("rows", derivation.rows)

    return task
