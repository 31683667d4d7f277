"""Answers of queries on the newest windows of their streams, before anything is published: ``heddle preview``."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors.diagnostics import Diagnostic, HeddleError, meant
from optimizer.windows.alignment import instants
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, Workload
from spark_jobs.operations.agreement import Mismatch, mismatches
from spark_jobs.operations.in_process import answers_of, asked_at
from spark_jobs.pipeline.run.values import Report
from spark_jobs.results.read import read
from spark_jobs.results.relations import slotted
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.copies.readers import bring
from spark_jobs.streams.sources.inspection import Inspection, inspect
from spark_jobs.streams.sources.splits import FIRST, LAST

MOST_COMPARED = 100_000
"""Most answers of a query that are compared one by one."""


@dataclass(frozen=True)
class Published:
    """Agreement of a preview with the answers that a warehouse has published of the same windows: the number of
    ``equal`` answers, and the others.
    """

    equal: int
    mismatches: tuple[Mismatch, ...]

    @property
    def differing(self) -> int:
        """Answers that are published with other values."""
        return self._count("differs")

    @property
    def missing(self) -> int:
        """Answers that are not published."""
        return self._count("unexpected")

    @property
    def gone(self) -> int:
        """Published answers that are none any more."""
        return self._count("missing")

    def _count(self, kind: str) -> int:
        return sum(mismatch.kind == kind for mismatch in self.mismatches)

    def __str__(self) -> str:
        return f"published: {self.equal:,} equal, {self.differing:,} differ, {self.missing:,} missing" + (
            f", {self.gone:,} more" if self.gone else ""
        )

    def to_json(self) -> dict[str, int]:
        """The counts as ``heddle preview --json`` prints them."""
        return {"equal": self.equal, "differ": self.differing, "missing": self.missing, "more": self.gone}


@dataclass(frozen=True)
class Preview:
    """The answers of a query on some windows.

    Attributes
    ----------
    answers
        In the form of :func:`spark_jobs.results.read.read`, the newest first.
    newest
        Time of the stream's newest event (microseconds): windows that end later are not complete.
    published
        None if no comparison was requested, or the warehouse does not know the query.
    sample
        None: ``newest`` is exact. Otherwise the number of rows that it is based on.
    """

    query: ACQ
    answers: pa.Table
    newest: int
    published: Published | None = None
    sample: int | None = None

    @property
    def incomplete(self) -> int:
        """Answers of windows that are not complete."""
        ends = self.answers["window_end"].cast(pa.int64())
        return int(pc.sum(pc.greater(ends, self.newest + 1)).as_py() or 0)


def preview(
    workload: Workload,
    last: int | None = None,
    names: Collection[str] = (),
    against: Warehouse | None = None,
    report: Report = lambda line: None,
) -> tuple[list[Preview], list[Diagnostic]]:
    """Answer queries (``names``; none: all) on the newest windows of their streams, and report the problems of the
    others.

    ``last``: all windows that end in the last microseconds of this number; None: of each query the newest window
    that is complete and the one after it, which has the newest event. Raises HDL-507 for an unknown name, HDL-130
    if nothing can be previewed.
    """
    chosen = _chosen(workload, names)
    _, wrong = bring([workload.stream(name) for name in dict.fromkeys(query.stream for query in chosen)], report)
    report("looking at the data")
    inspections, problems = _inspections(workload, chosen)
    newest = {name: inspection.newest for name, inspection in inspections.items() if inspection.newest is not None}
    # of what could not be copied now an earlier copy is shown, and said so
    problems = [*wrong, *problems]
    requested = [_asked(query, newest[query.stream], last) for query in chosen if query.stream in newest]
    if not requested:
        raise HeddleError.of(nothing_to_show(), *problems)
    answers: dict[str, pa.Table] = {}
    for name in dict.fromkeys(query.stream for query in requested):
        # each stream has times of its own
        queries = tuple(query for query in requested if query.stream == name)
        try:
            stream_answers, more = answers_of(
                Workload(queries, (workload.stream(name),)), *_interval(queries, newest[name], last), report
            )
        except HeddleError as error:
            stream_answers, more = {}, list(error.causes or (error.diagnostic,))
        answers |= stream_answers
        problems += more
    previews = []
    for query in chosen:
        if query.name in answers:
            table = answers[query.name]
            if last is None and not query.kind.has_instants:
                table = _newest_of_each(query, table)
            sample = inspections[query.stream].sample
            previews.append(Preview(query, table, newest[query.stream], sample=sample))
    if against is not None:
        report("comparing")
        known = {query.name: query for query in requested}
        previews = [
            _compared(
                shown, known[shown.query.name], against, *_interval([known[shown.query.name]], shown.newest, last)
            )
            for shown in previews
        ]
    return [replace(shown, answers=_newest_first(shown.answers)) for shown in previews], problems


def spans_of_data(workload: Workload) -> list[tuple[str, int | None]]:
    """Description of each stream's data, in words, and the time of its newest event (microseconds; None: not
    known). Streams that cannot be read are skipped.
    """
    looks = [inspect(stream, []) for stream in workload.streams]
    return [(str(look), look.newest) for look in looks if look.files]


def nothing_to_show() -> Diagnostic:
    """That no query can be previewed."""
    return Diagnostic("HDL-130", "there is nothing to preview: no query has a stream with events", "see the messages")


def _chosen(workload: Workload, names: Collection[str]) -> list[ACQ]:
    known = {query.name: query for query in workload.queries}
    for name in names:
        if name not in known:
            raise HeddleError("HDL-507", f"no file has a query {name}", meant(name, known))
    return [query for query in workload.queries if not names or query.name in names]


def _inspections(workload: Workload, queries: Sequence[ACQ]) -> tuple[dict[str, Inspection], list[Diagnostic]]:
    """An inspection of each stream that some queries read, and what is wrong with those that cannot be read."""
    inspections: dict[str, Inspection] = {}
    problems: list[Diagnostic] = []
    for name in dict.fromkeys(query.stream for query in queries):
        columns = sorted({column for query in queries if query.stream == name for column in query.columns()})
        inspection = inspect(workload.stream(name), columns)
        problems += inspection.diagnostics
        if not any(diagnostic.severity == "error" for diagnostic in inspection.diagnostics):
            inspections[name] = inspection
    return inspections, problems


def _asked(query: ACQ, newest: int, last: int | None) -> ACQ:
    """The query at the instants that are shown."""
    window = replace(query.window, at=None)
    if not query.kind.has_instants:
        return asked_at(query, ())
    # of a historical window the answer is for a later instant than its end
    now = newest + 1 + window.ago
    # a window may end in a year that no table can tell
    ahead = instants(window, now, min(now + window.period, LAST - 1))[:1].tolist()
    if last is not None:
        return asked_at(query, [*instants(window, now - last, now).tolist(), *ahead])
    return asked_at(query, [*instants(window, now - 2 * window.period, now)[-1:].tolist(), *ahead])


def _interval(queries: Sequence[ACQ], newest: int, last: int | None) -> tuple[int, int]:
    """(begin, end] with all instants of queries of a stream; of windows of rows all there are, or the ``last``."""
    begins, ends = [], []
    for query in queries:
        if not query.kind.has_instants:
            # as if no event came any more
            ends.append(newest + 1 + query.window.pause + query.window.end_before)
            begins.append(FIRST if last is None else newest - last)
        elif query.window.at:
            begins.append(query.window.at[0] - 1)
            ends.append(query.window.at[-1])
    return (min(begins), max(ends)) if begins else (0, DAY)


def _key(query: ACQ) -> list[str]:
    """The columns by which an answer is known."""
    return [column.name for column, _ in slotted(query) if column.role in ("time", "position", "group")]


def _newest_of_each(query: ACQ, table: pa.Table) -> pa.Table:
    """The newest window of rows of each group."""
    groups = [column.name for column, _ in slotted(query) if column.role == "group"]
    seen: dict[tuple[Any, ...], int] = {}
    for at, row in enumerate(table.select(groups).to_pylist() if groups else [{}] * len(table)):
        seen[tuple(row.values())] = at
    return table.take(pa.array(sorted(seen.values()), pa.int64()))


def _newest_first(table: pa.Table) -> pa.Table:
    order = pc.sort_indices(table["window_end"], sort_keys=[("", "descending")])
    return table.take(order)


def _compared(shown: Preview, query: ACQ, warehouse: Warehouse, begin: int, end: int) -> Preview:
    """A preview compared with the published answers of its windows."""
    try:
        table = read(warehouse, query.name, begin, end)
    except HeddleError as error:
        if error.code != "HDL-507":
            raise
        return shown
    if query.window.at is not None:
        column = "instant" if query.window.ago else "window_end"
        table = table.filter(pc.is_in(table[column].cast(pa.int64()), pa.array(query.window.at, pa.int64())))
    elif len(shown.answers):
        table = table.filter(pc.is_in(table["position"], shown.answers["position"].combine_chunks()))
    if max(len(table), len(shown.answers)) > MOST_COMPARED:
        message = f"{query.name} has more than {MOST_COMPARED:,} answers to compare"
        raise HeddleError("HDL-131", message, "compare fewer windows: --last '1 hour'")
    published, ours = table.to_pylist(), shown.answers.to_pylist()
    wrong = mismatches(published, ours, _key(query))
    equal = len(published) - sum(mismatch.kind != "unexpected" for mismatch in wrong)
    return replace(shown, published=Published(equal, tuple(wrong)))
