"""Answers of sessions from stored runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numba
import numpy as np
import pyarrow as pa

from optimizer.workload.instants import duration_text
from optimizer.workload.values import Window
from spark_jobs.engine.workers import Count
from spark_jobs.results.rows import AnswerRows
from spark_jobs.store.arrays.numbering import Longs, distinct_rows
from spark_jobs.windows.finals.answers import AnswerBatch
from spark_jobs.windows.finals.stage import views
from spark_jobs.windows.finals.top import TopAnswers
from spark_jobs.windows.finals.views import GroupChunk
from spark_jobs.windows.finals.window_query import FragmentRuns, WindowedQuery
from spark_jobs.windows.partials.cells import Cells
from spark_jobs.windows.partials.synopsis_work import SynopsisWork

TOO_LONG = "HDL-612"
"""Code of a session that is longer than UP TO: its row has the message, and all its outputs are null. It starts so far
before its last event; groups have a row that have an event since then."""


@numba.njit(cache=True)
def _joined(order, key, starts, ends, gap):
    """The session (n,) of each run, and the first and last time (n,) of the sessions.

    order: runs by key and start; key, starts, ends: (n,) of the runs, ends behind the last event.
    """
    session = np.empty(len(order), np.int64)
    first, last = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    at = -1
    for i in range(len(order)):
        run = order[i]
        if i == 0 or key[run] != key[order[i - 1]] or starts[run] - last[at] > gap:
            at += 1
            first[at], last[at] = starts[run], ends[run] - 1
        session[run] = at
        last[at] = max(last[at], ends[run] - 1)
    return session, first[: at + 1], last[: at + 1]


class _Sessions(NamedTuple):
    """The sessions of each group of a family that end in an interval, by group and time (a,): the group, the runs
    [low, high) of it, the first and the last time of the session (whose events may be of other groups, too)."""

    group: Longs
    low: Longs
    high: Longs
    first: Longs
    last: Longs

    @classmethod
    def of(cls, cells: Cells, window: Window, begin: int, until: int) -> _Sessions:
        """Sessions of some combined cells with an instant in (begin, until]."""
        assert window.gap is not None and window.per is not None
        names = [name for name, _ in cells.synopsis.group_by]
        columns = [cells.key_columns[names.index(name)] for name in window.per]
        _, key_of, _ = distinct_rows(columns, cells.groups)
        key = key_of[cells.group].astype(np.int64)
        order = np.lexsort((cells.starts, key))
        session, first, last = _joined(order, key, cells.starts, cells.ends, window.gap)
        # the runs of a group are in the order of time, so those of one session follow each other
        is_new = np.ones(len(session), dtype=bool)
        is_new[1:] = (session[1:] != session[:-1]) | (cells.group[1:] != cells.group[:-1])
        low = np.flatnonzero(is_new)
        high, last_of = np.append(low[1:], len(session)), last[session[low]]
        instants = last_of + window.pause + window.end_before
        # of a session that is too long nobody knows how far back it goes: groups count that were there lately
        chosen = (instants > begin) & (instants <= until) & (cells.ends[high - 1] - 1 >= last_of - window.range)
        low, high = low[chosen], high[chosen]
        return cls(cells.group[low], low, high, first[session[low]], last_of[chosen])


def _answers(windowed: WindowedQuery, chunk: GroupChunk, sessions: _Sessions) -> Iterator[tuple[AnswerBatch, Longs]]:
    """The answers of the groups of a chunk, some at a time, and where their sessions start."""
    window = windowed.query.window
    begin, end = np.searchsorted(sessions.group, [chunk.first, chunk.first + chunk.groups])
    for at in range(int(begin), int(end), windowed.block):
        group, low, high, first, last = (column[at : min(at + windowed.block, int(end))] for column in sessions)
        runs = FragmentRuns(group - chunk.first, low - chunk.rows.start, high - chunk.rows.start)
        is_long = last - first > window.range
        message = f"{TOO_LONG} the session is longer than {duration_text(window.range)}"
        errors = {row: [message] for row in np.flatnonzero(is_long).tolist()}
        instants = last + window.pause + window.end_before
        batch = AnswerBatch(windowed, chunk, runs, instants, is_long if errors else None, errors)
        batch, rows = batch.qualifying()
        if len(rows):
            yield batch, np.maximum(first, last - window.range)[rows]


def session_answers(
    part: SynopsisWork, begin: int, partials: pa.Table, top: TopAnswers, count: Count
) -> Iterator[tuple[str, AnswerRows]]:
    """Answer sessions in a :func:`spark_jobs.windows.finals.stage.finals_task`. The rows to read are those of the hours
    [part.begin, part.end)."""
    if len(partials) == 0:
        return
    windowed = [WindowedQuery.of(query, part.synopsis, begin, part.last_instant) for query in part.queries]
    for view, family in views(Cells.decode(part.synopsis, partials), part.synopsis, windowed, part.stream):
        sessions = [_Sessions.of(view.cells, each.query.window, begin, part.last_instant) for each in family]
        for chunk in view.chunks():
            for windowed_query, of_query in zip(family, sessions, strict=True):
                count("rows_passed", chunk.rows.stop - chunk.rows.start)
                for batch, starts in _answers(windowed_query, chunk, of_query):
                    count("fragments_combined", batch.runs.combined)
                    answered = batch.answered(part.synopsis.stream)._replace(starts=starts)
                    yield from answered.by_day()
