"""Spark's task of the final stage for event sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engine.workers import Count, uncounted
from spark_jobs.results.writer import ResultsFiles
from spark_jobs.store.settings import TASK_MEMORY, TaskMemory
from spark_jobs.store.warehouse.data_files import BUCKETS, DataFile, opened, reading
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.windows.finals.passes import TooLarge, passes
from spark_jobs.windows.partials.fill_request import by_fingerprint
from spark_jobs.windows.partials.synopsis_work import SynopsisWork
from spark_jobs.windows.sequences.answers import Rolled, answered, joined, lowered
from spark_jobs.windows.sequences.encoding import decoded

SequenceTask = Callable[..., Iterator[DataFile | TooLarge | Rolled]]


def sequence_task(
    parts: Sequence[SynopsisWork],
    begin: int,
    partials: Sequence[str],
    root: str,
    stamp: Mapping[str, pa.Scalar],
    memory: TaskMemory = TASK_MEMORY,
) -> SequenceTask:
    """The task that answers the queries of event sequences for the buckets of keys whose numbers it receives.

    As :func:`spark_jobs.windows.finals.stage.finals_task`. Answers of queries without groups are not written but
    returned, to be :func:`joined`.
    """

    def task(numbers: Iterable[int], count: Count = uncounted) -> Iterator[DataFile | TooLarge | Rolled]:
        files = ResultsFiles(root, [query for part in parts for query in part.queries], stamp, memory.piece)
        scattered: dict[str, list[Rolled]] = {}
        together = _together(partials, list(numbers))
        for each in (each for buckets in together for each in passes(partials, buckets, parts, begin, memory)):
            if isinstance(each, TooLarge):
                yield each
                continue
            stored = by_fingerprint(each.rows) if len(each.rows) else {}
            each.forget()
            for part in each.parts:
                rows = within(stored.pop(part.synopsis.fingerprint, PARTIALS.empty_table()), part.begin, part.end)
                if len(rows) == 0:
                    continue
                count("partial_rows_read", len(rows))
                until = part.end if part.until is None else part.until
                by_name = {query.name: query for query in part.queries}
                for rolled_answers in answered(part.synopsis, part.queries, decoded(part.synopsis, rows), begin, until):
                    query = by_name[rolled_answers.query]
                    if not query.group_by:
                        scattered.setdefault(query.name, []).append(rolled_answers)
                        continue
                    for day, answers in lowered(query, part.synopsis, rolled_answers):
                        files.add(day, answers)
        yield from files.close()
        for several in scattered.values():
            yield joined(several)

    return task


ROWS_AT_ONCE = 500_000
"""Partial rows that a task holds at once, if one bucket has no more."""


def _together(partials: Sequence[str], numbers: Sequence[int]) -> list[set[int]]:
    """Buckets that are read together: all that a task is given where they are few rows, else one after the other, so
    that they fit in memory."""
    rows = 0
    for path in partials:
        with reading(path):
            rows += opened(path).metadata.num_rows
    if rows * len(numbers) <= ROWS_AT_ONCE * BUCKETS:
        return [set(numbers)] if numbers else []
    return [{number} for number in numbers]


def within(rows: pa.Table, begin: int, end: int) -> pa.Table:
    """The partial rows that have events of [begin, end): their days may begin before."""
    chosen = pc.and_(pc.greater(rows["fragment_end"], begin), pc.less(rows["fragment_start"], end))
    return rows.filter(pc.and_(chosen, pc.is_valid(rows["key"])))


def write_joined(
    parts: Sequence[SynopsisWork], rolled: Iterable[Rolled], root: str, stamp: Mapping[str, pa.Scalar]
) -> Iterator[DataFile]:
    """Write the answers of queries without groups, after all tasks have returned theirs."""
    scattered: dict[str, list[Rolled]] = {}
    for rolled_answers in rolled:
        scattered.setdefault(rolled_answers.query, []).append(rolled_answers)
    files = ResultsFiles(root, [query for part in parts for query in part.queries], stamp)
    for part in parts:
        for query in part.queries:
            if query.name in scattered:
                for day, answers in lowered(query, part.synopsis, joined(scattered[query.name])):
                    files.add(day, answers)
    yield from files.close()
