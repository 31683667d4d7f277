"""A query's answers as of one version of the results: in pages of a bounded size, and the newest of each group.

A commit replaces all answers of an interval that change, so whatever is read of one version is as one publication left
each interval.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from optimizer.errors.diagnostics import HeddleError
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY
from spark_jobs.results.connect import connected
from spark_jobs.results.read import read_version, rows_condition
from spark_jobs.results.relations import Relation, Relations
from spark_jobs.results.views import view_names
from spark_jobs.store.warehouse.data_files import reading
from spark_jobs.store.warehouse.warehouse import Warehouse

ROWS_AT_ONCE = 250_000
"""Rows that are read at once, unless one instant has more."""

MOST_SCANNED = 2_000_000
"""Rows that a page looks at, about, before it ends with fewer rows than its limit."""

LOOK_BACK = 7
"""Days before the newest one with answers in which a group has its newest answer."""


class Resume(NamedTuple):
    """The beginning of a page: after ``rows`` of the chosen rows of instants after ``after`` (microseconds)."""

    after: int
    rows: int


class AnswerPage(NamedTuple):
    """A page of answers, and where the next one begins; None: it is the last."""

    rows: pa.Table
    following: Resume | None


@dataclass(frozen=True)
class AnswerSnapshot:
    """The answers of a query in a version of the results, by relations that are for it. Threads do not share one."""

    warehouse: Warehouse
    results: DeltaTable
    relations: Relations
    query: str

    @property
    def known(self) -> Relation:
        """The query's relation."""
        return self.relations[self.query]

    @property
    def version(self) -> int:
        """The version of the results."""
        return int(self.results.version())

    def digest(self, begin: int | None = None, end: int | None = None) -> str:
        """A digest of everything that decides the answers of instants in (begin, end]: the data files that may hold
        some, which never change, and the query's definitions. A commit to the answers of others leaves it as it is
        unless they share a file."""
        texts = [definition_digest(self.known), *(path for path, _ in self._files(begin, end))]
        return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]

    def page(
        self,
        limit: int,
        begin: int | None = None,
        end: int | None = None,
        matching: Mapping[str, Sequence[Any]] | None = None,
        first: Resume | None = None,
    ) -> AnswerPage:
        """At most ``limit`` answers of instants in (begin, end], in the order of instants, then of :func:`read`, that
        have one of the values of ``matching`` in each of its columns.

        A page that has looked at :data:`MOST_SCANNED` rows ends, even without any row.
        """
        after, skipped = first if first is not None else (begin, 0)
        tables, remaining, scanned = [self.known.schema.empty_table()], limit, 0
        for span in self._spans(after, end):
            if not remaining or scanned >= MOST_SCANNED:
                return AnswerPage(pa.concat_tables(tables), Resume(span.after, 0))
            rows = read_version(self.warehouse, self.known, self.results, span.after, span.until)
            rows = matching_rows(rows, matching)
            page = rows.slice(skipped, remaining)
            tables.append(page)
            if skipped + len(page) < len(rows):
                return AnswerPage(pa.concat_tables(tables), Resume(span.after, skipped + len(page)))
            remaining, scanned, skipped = remaining - len(page), scanned + span.rows, 0
        return AnswerPage(pa.concat_tables(tables), None)

    @property
    def files(self) -> frozenset[tuple[str, str]]:
        """The data files, with their days, that may hold answers of the query."""
        return frozenset(self._files(None, None))

    def look_back(self) -> int | None:
        """The instant :data:`LOOK_BACK` days before the newest day with answers; None without answers."""
        newest_day = next(self._days_with_answers(), None)
        return None if newest_day is None else midnight_of(newest_day) - LOOK_BACK * DAY

    def newest_by_group(self, after: int) -> pa.Table:
        """The newest answer of each group that has one of an instant after ``after``, by DuckDB: it holds a row a
        group, not one an answer."""
        statement = _newest_of(view_names(self.relations, "duckdb")[self.query], self.known, after)
        place = self.warehouse.path("results")
        try:
            with reading(place), connected(self.warehouse, self.relations, self.results, [self.query]) as connection:
                answers = connection.sql(statement).to_arrow_table()
        except duckdb.OutOfMemoryException as error:
            hint = "list its answers instead, or give the server more memory"
            raise HeddleError("HDL-901", f"the newest answers of {self.query} do not fit the memory", hint) from error
        except duckdb.Error as error:
            hint = "`heddle maintain` says what is to be done"
            raise HeddleError("HDL-543", f"{place} cannot be read: {error}", hint) from error
        schema = self.known.schema
        columns = [answers[name].cast(type) for name, type in zip(schema.names, schema.types, strict=True)]
        return pa.table(columns, schema=schema).combine_chunks()

    # ------------------------------------------------------------------------------------------- what is stored
    def _files(self, begin: int | None, end: int | None) -> list[tuple[str, str]]:
        """The files, with their days, that may hold rows of the query, by the log alone; the days ascending."""
        actions = pa.table(self.results.get_add_actions(flatten=True))
        chosen = pc.is_valid(actions["path"])
        bounds = {"min.query": pc.less_equal, "max.query": pc.greater_equal}
        for name, compare in bounds.items():
            if name in actions.schema.names:
                chosen = pc.and_(chosen, pc.fill_null(compare(actions[name], self.known.name), True))
        day = actions["partition.day"]
        if begin is not None:
            chosen = pc.and_(chosen, pc.greater_equal(day, day_label(begin)))
        if end is not None:
            chosen = pc.and_(chosen, pc.less_equal(day, day_label(end - 1)))
        files = actions.select(["path", "partition.day"]).filter(chosen)
        return sorted(zip(*(column.to_pylist() for column in files.columns), strict=True), key=lambda file: file[::-1])

    def _spans(self, begin: int | None, end: int | None) -> Iterator[_Span]:
        """The spans of instants that have answers, in order, each of about :data:`ROWS_AT_ONCE` rows."""
        for day in dict.fromkeys(day for _, day in self._files(begin, end)):
            midnight = midnight_of(day)
            first = midnight if begin is None else max(begin, midnight)
            last = midnight + DAY if end is None else min(end, midnight + DAY)
            counts = self._counts(first, last)
            after, until, rows = first, first, 0
            for instant, count in sorted(counts.items()):
                if rows and rows + count > ROWS_AT_ONCE:
                    yield _Span(after, until, rows)
                    after, rows = until, 0
                until, rows = instant, rows + count
            if rows:
                yield _Span(after, until, rows)

    def _counts(self, begin: int, end: int) -> Counter[int]:
        """The number of stored rows of each instant in (begin, end]."""
        chosen = rows_condition(self.known.name, begin, end)
        counts = Counter[int]()
        with reading(self.warehouse.path("results")):
            dataset = self.warehouse.dataset("results", self.results, chosen)
            for batch in dataset.scanner(["instant"], filter=chosen).to_batches():
                of_batch = pc.value_counts(batch["instant"].cast(pa.int64()))
                values, times = of_batch.field("values").to_pylist(), of_batch.field("counts").to_pylist()
                counts.update(dict(zip(values, times, strict=True)))
        return counts

    def _days_with_answers(self) -> Iterator[str]:
        """The days that have answers, the newest first."""
        for day in dict.fromkeys(day for _, day in reversed(self._files(None, None))):
            midnight = midnight_of(day)
            if self._counts(midnight, midnight + DAY):
                yield day


def _newest_of(view: str, known: Relation, begin: int) -> str:
    """The statement for the newest answer of each group after an instant; its doubles are texts."""
    names = {column.name: _quoted(column.name) for column in known.columns}
    # of a row that is compared DuckDB keeps a form for sorting, which has one zero
    values = [
        f"CAST({names[column.name]} AS VARCHAR) AS {names[column.name]}"
        if column.type.name == "double"
        else names[column.name]
        for column in known.columns
    ]
    after = f"{'instant' if 'instant' in names else 'window_end'} > make_timestamptz({begin - known.end_before})"
    rows = f"(SELECT {', '.join(values)} FROM {_quoted(view)} WHERE {after}) AS answer"
    latest = "window_end" if not known.named("position") else "{'at': window_end, 'position': position}"
    newest = f"SELECT max_by(answer, {latest}) AS answer FROM {rows}"
    groups = ", ".join(names[name] for name in known.named("group"))
    newest += f" GROUP BY {groups}" if groups else " HAVING count(*) > 0"
    return f"SELECT {', '.join(f'answer.{name} AS {name}' for name in names.values())} FROM ({newest})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _Span(NamedTuple):
    """The instants in (after, until], which have a number of rows."""

    after: int
    until: int
    rows: int


def midnight_of(day: str) -> int:
    """The instant at which a day of the results begins."""
    return int(np.datetime64(day, "us").astype(np.int64))


def definition_digest(known: Relation) -> str:
    """A digest of a relation's columns and of where its definitions have them."""
    parts = [repr(known.columns), *(f"{each.fingerprint} {each.slots}" for each in known.definitions)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def matching_rows(rows: pa.Table, matching: Mapping[str, Sequence[Any]] | None) -> pa.Table:
    """The rows that have one of some values in each column; NaN is a value like any other."""
    for name, values in (matching or {}).items():
        column = rows[name]
        equal = [
            pc.is_nan(column)
            if isinstance(value, float) and value != value
            else pc.equal(column, pa.scalar(value, column.type))
            for value in values
        ]
        rows = rows.filter(reduce(pc.or_, equal))
    return rows
