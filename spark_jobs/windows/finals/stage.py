"""Spark's task of the final stage: all partial rows of some buckets, the answers of every query for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.synopses.synopsis import Synopsis, families_of
from optimizer.workload.values import ACQ, Stream
from spark_jobs.engine.workers import Count, uncounted
from spark_jobs.results.rows import AnswerRows
from spark_jobs.results.writer import ResultsFiles
from spark_jobs.store.settings import TASK_MEMORY, TaskMemory
from spark_jobs.store.warehouse.data_files import DataFile
from spark_jobs.windows.finals.passes import TooLarge, passes
from spark_jobs.windows.finals.top import TopAnswers, TopRows
from spark_jobs.windows.finals.views import FamilyView, GroupChunk
from spark_jobs.windows.finals.window_query import WindowedQuery
from spark_jobs.windows.partials.cells import Cells
from spark_jobs.windows.partials.fill_request import by_fingerprint
from spark_jobs.windows.partials.late_groups import family_cells
from spark_jobs.windows.partials.synopsis_work import SynopsisWork

FinalsTask = Callable[..., Iterator[DataFile | TopRows | TooLarge]]

Answering = Callable[[SynopsisWork, int, pa.Table, TopAnswers, Count], Iterator[tuple[str, AnswerRows]]]
"""Answers, day by day, a part of the work from its partial rows, for the instants behind the one that is given; those
that may be among the first of their windows it adds to :class:`TopAnswers`."""


def views(
    cells: Cells, synopsis: Synopsis, windowed: Sequence[WindowedQuery], stream: Stream | None = None
) -> Iterator[tuple[FamilyView, list[WindowedQuery]]]:
    """The cells of each family of queries, with the queries. ``stream``: as in :class:`SynopsisWork`."""
    by_name = {windowed_query.query.name: windowed_query for windowed_query in windowed}
    cells = cells.combined()
    for queries in families_of([windowed_query.query for windowed_query in windowed]).values():
        family = family_cells(cells, queries[0], stream)
        if len(family):
            members = [by_name[query.name] for query in queries]
            yield FamilyView(family), members


def finals_of(
    partials: pa.Table,
    synopsis: Synopsis,
    queries: Sequence[ACQ],
    begin: int,
    end: int,
    count: Count = uncounted,
    stream: Stream | None = None,
) -> Iterator[pa.RecordBatch]:
    """Answers of some queries of one synopsis for the instants in (begin, end].

    ``partials``: rows of the synopsis, whole groups, covering every window of the queries; in any order. ``count``
    receives ``rows_passed`` and ``fragments_combined``; ``stream``: as in :class:`SynopsisWork`. Yields
    batches of :data:`ANSWERS`; the rows of each query come by group (in the order of the keys) and instant.
    """
    windowed = [WindowedQuery.of(query, synopsis, begin, end) for query in queries]
    top = TopAnswers(queries)
    for windowed_query, chunk in _work(partials, synopsis, windowed, count, stream):
        for batch in chunk.answers(windowed_query, [(0, len(windowed_query.instants))]):
            count("fragments_combined", batch.runs.combined)
            if windowed_query.query.top is not None:
                top.add(batch.top(synopsis.stream))
                continue
            yield batch.answered(synopsis.stream).rows()
    for first in top.close():
        yield from first.table.combine_chunks().to_batches()


def _work(
    partials: pa.Table,
    synopsis: Synopsis,
    windowed: Sequence[WindowedQuery],
    count: Count,
    stream: Stream | None,
) -> Iterator[tuple[WindowedQuery, GroupChunk]]:
    """Yield the work: a query at the instants whose windows may hold something, and a chunk."""
    if len(partials) == 0 or not windowed:
        return
    for view, members in views(Cells.decode(synopsis, partials), synopsis, windowed, stream):
        members = [due for windowed_query in members if len((due := windowed_query.over(view.grid)).instants)]
        for chunk in view.chunks() if members else ():
            for windowed_query in members:
                count("rows_passed", chunk.rows.stop - chunk.rows.start)
                yield windowed_query, chunk


def time_answers(
    part: SynopsisWork, begin: int, partials: pa.Table, top: TopAnswers, count: Count
) -> Iterator[tuple[str, AnswerRows]]:
    """:data:`Answering` of windows of time."""
    until = part.end if part.until is None else part.until
    windowed = [WindowedQuery.of(query, part.synopsis, begin, until) for query in part.queries]
    combined = 0
    for windowed_query, chunk in _work(partials, part.synopsis, windowed, count, part.stream):
        for batch in chunk.answers(windowed_query, windowed_query.days):
            combined += batch.runs.combined
            if windowed_query.query.top is not None:
                top.add(batch.top(part.synopsis.stream))
            else:
                yield from batch.answered(part.synopsis.stream).by_day()
    count("fragments_combined", combined)


def finals_task(
    parts: Sequence[SynopsisWork],
    begin: int,
    partials: Sequence[str],
    root: str,
    stamp: Mapping[str, pa.Scalar],
    memory: TaskMemory = TASK_MEMORY,
    answering: Answering = time_answers,
) -> FinalsTask:
    """The task that answers every query for the buckets of groups whose numbers it receives.

    ``partials``: paths of the files of partial rows; ``root``: the results table, where the answers are written as
    files that no commit names yet, one a day; ``stamp``: constant columns (plan version, revision, run id). The
    task names the files, returns the answers that may be among the first of their windows
    (:func:`spark_jobs.windows.finals.top.write_top`), and names the queries that need more at once than ``memory``
    allows. If only all of them together need more, they are answered in several passes, each into its own files
    (:mod:`spark_jobs.windows.finals.passes`). The task counts ``partial_rows_read`` and what :func:`finals_of`
    counts.
    """

    def task(numbers: Iterable[int], count: Count = uncounted) -> Iterator[DataFile | TopRows | TooLarge]:
        top = TopAnswers(query for part in parts for query in part.queries)
        for each in passes(partials, frozenset(numbers), parts, begin, memory):
            if isinstance(each, TooLarge):
                yield each
                continue
            count("partial_rows_read", len(each.rows))
            stored = by_fingerprint(each.rows)
            each.forget()
            queries = [query for part in each.parts for query in part.queries]
            files = ResultsFiles(root, queries, stamp, memory.piece)
            for part in each.parts:
                if part.synopsis.fingerprint in stored:
                    rows = _between(stored.pop(part.synopsis.fingerprint), part.begin, part.end)
                    for day, answers in answering(part, each.begin, rows, top, count):
                        files.add(day, answers)
            yield from files.close()
        yield from top.close()

    return task


def _between(rows: pa.Table, begin: int, end: int) -> pa.Table:
    starts = rows["fragment_start"]
    bounds = pc.min_max(starts).as_py()
    if bounds["min"] is None or (begin <= bounds["min"] and bounds["max"] < end):
        return rows
    return rows.filter(pc.and_(pc.greater_equal(starts, begin), pc.less(starts, end)))
