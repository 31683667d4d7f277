"""Write the answers of each query that requests a table into a separate Delta table, with its names and types.

``results`` is the truth, and a table follows it: at any time it is what ``results`` had of its query at one
version, which a transaction of the table names (:data:`spark_jobs.results.own_table.FOLLOWED`). To follow, Heddle
looks up what was committed to ``results`` since, reads what the newest version has of these intervals, and replaces
the instants that differ, in one commit that names the publications and the version. So a process that is cut off
has either followed or not, and the next one makes up for it. Following twice changes nothing. Needs no JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from optimizer.errors.crashes import finding
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.windows.alignment import day_label
from optimizer.workload.values import AnswerTable
from spark_jobs.results import own_table
from spark_jobs.results.own_table import FOLLOWED, TableRequest
from spark_jobs.results.table_notes import TableNotes
from spark_jobs.results.table_rows import Definitions, Span, columns_of, published_rows, rows_of
from spark_jobs.store.warehouse import publish_log, registry
from spark_jobs.store.warehouse.schemas import DELETED
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import parse_instant

TOGETHER = 8_000_000
"""Rows of ``results``, about, that are read at once for tables that follow the same publications."""

AT_ONCE = 64
"""Tables that are written under one lease."""

AGAIN = "the next run makes up for it, or `heddle tables`"


def table_requests(warehouse: Warehouse) -> list[TableRequest]:
    """The queries that request a table, by table: registered ones, and removed ones whose table no other query
    requests. The rows of a removed query stay until its answers are deleted.
    """
    texts = warehouse.stored_rows("workload_queries", ["definition"])["definition"]
    # most warehouses have none, and nothing else of the registry is read for that
    if not pc.any(pc.match_substring(texts, AnswerTable.__name__)).as_py():
        return []
    known = registry.registered(registry.events(warehouse))
    requests: dict[str, TableRequest] = {}
    for name, query in sorted(known.items(), key=lambda item: (item[1].removed, -item[1].last.at)):
        if (table := query.table) is not None:
            request = TableRequest(name, table, query.last.owner, query.last.text, query.removed)
            requests.setdefault(table.name.lower(), request)
    return sorted(requests.values(), key=lambda request: request.table.name)


def follow(warehouse: Warehouse, report: Callable[[str], None] = lambda line: None) -> list[Diagnostic]:
    """Bring every requested table up to date with ``results``, and return the problems. Raises nothing of the
    tables: answers are published whatever becomes of their tables.
    """
    problems: list[Diagnostic] = []
    with _telling(problems):
        if requests := table_requests(warehouse):
            _Following(warehouse, problems).follow(requests, report)
    return problems


@contextmanager
def _telling(problems: list[Diagnostic], query: str = "") -> Iterator[None]:
    """Report an error in the body as a problem of the query, and let the others go on."""
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        reason, _, _ = str(error).partition("\n")
        problems.append(Diagnostic("HDL-563", f"its table was not written: {reason}", AGAIN, query=query))
    except Exception as error:
        problems.append(replace(finding(error), query=query))


class _Following:
    """Following the version of ``results`` that is the newest now."""

    def __init__(self, warehouse: Warehouse, problems: list[Diagnostic]) -> None:
        self.warehouse, self.problems = warehouse, problems
        self.results = warehouse.table("results")
        self.version = int(self.results.version())
        self.notes = TableNotes(warehouse.place / own_table.FOLDER)

    def follow(self, requests: Sequence[TableRequest], report: Callable[[str], None]) -> None:
        """Bring the tables that are behind to this version."""
        behind: dict[int | None, list[TableRequest]] = {}
        for request in requests:
            with _telling(self.problems, request.query):
                noted = self.notes.version_of(request)
                if noted == self.version and self.notes.is_noted(request):
                    continue
                current = own_table.existing(self.warehouse, request.name) if noted is None else None
                if current is not None or noted is not None or not request.removed:
                    since = own_table.followed(current) if current is not None else noted
                    known = since if since is not None and since <= self.version else None
                    behind.setdefault(known, []).append(request)
        if behind:
            report(f"bringing {sum(map(len, behind.values()))} tables of queries up to date")
            self.definitions = Definitions(self.warehouse)
            for since, tables in behind.items():
                self._bring(since, tables)
            self.notes.write()

    def _bring(self, since: int | None, tables: Sequence[TableRequest]) -> None:
        """Bring tables that reflect one version of ``results`` to this one: by the intervals that were published
        since, or by all rows if the log is not sufficient, or answers were deleted by name.
        """
        commits = None if since is None else _commits(self.warehouse, since, self.version)
        deleted = None if commits is None else _deleted(self.warehouse, commits)
        published = [(label, revision) for _, label, revision in commits or () if label != DELETED]
        spans, transactions = _spans(published), list(dict(published).items())
        by_interval = [request for request in tables if deleted is not None and request.query not in deleted]
        for some in _pieces(by_interval, self._rows_within(spans)):
            names = [request.query for request in some]
            rows = published_rows(self.warehouse, self.results, names, spans) if spans else {}
            for first in range(0, len(some), AT_ONCE):
                self._write(some[first : first + AT_ONCE], rows, spans, transactions)
        for request in tables:
            if request not in by_interval:
                with _telling(self.problems, request.query):
                    rows = published_rows(self.warehouse, self.results, [request.query], None)
                    self._write([request], rows, None, transactions)

    def _rows_within(self, spans: Sequence[Span]) -> int:
        """Number of rows of ``results`` on the days of some spans."""
        if not spans:
            return 0
        files = self.warehouse.files("results", day_label(spans[0][0]), day_label(spans[-1][1] - 1), self.results)
        return sum(int(file.get("num_records") or 0) for file in files)

    def _write(
        self,
        tables: Sequence[TableRequest],
        rows: Mapping[str, pa.Table],
        spans: Sequence[Span] | None,
        transactions: Sequence[tuple[str, int]],
    ) -> None:
        """Write some tables under one lease, each in a separate commit; ``rows``: of each query, of these spans."""
        with self.warehouse.lease() as token:
            for request in tables:
                with _telling(self.problems, request.query):
                    self._write_one(request, rows.get(request.query), spans, transactions, token)

    def _write_one(
        self,
        request: TableRequest,
        rows: pa.Table | None,
        spans: Sequence[Span] | None,
        transactions: Sequence[tuple[str, int]],
        token: int,
    ) -> None:
        definition = self.definitions.newest(request.query)
        if definition is None:  # registered, and in no plan yet
            return
        schema = columns_of(definition)
        current = own_table.existing(self.warehouse, request.name)
        if current is None:
            current = own_table.made(self.warehouse, request, schema, token)
        own_table.check_fits(request, current, schema)
        at = own_table.followed(current)
        if self.version < (at or 0) <= self.warehouse.version("results"):  # somebody else has followed more
            return
        if spans is not None and at is None and self.notes.version_of(request) is None:
            raise HeddleError("HDL-510", f"the table {request.table.name} was made anew meanwhile", AGAIN)
        current = own_table.dressed(self.warehouse, request, current, schema, token)
        if rows is not None:
            answers = rows_of(rows, self.definitions, definition, own_table.columns(current))
            done = [*transactions, (FOLLOWED, self.version)]
            current = own_table.replace(self.warehouse, request, current, answers, spans, done, token)
        self.notes.note(request, self.version, int(current.version()))


def _pieces(tables: Sequence[TableRequest], rows: int) -> Iterator[Sequence[TableRequest]]:
    """The tables in pieces of which no more than :data:`TOGETHER` rows are read at once."""
    pieces = max(1, -(-rows // TOGETHER))
    size = max(1, -(-len(tables) // pieces))
    for first in range(0, len(tables), size):
        yield tables[first : first + size]


# ------------------------------------------------------------------------------- what happened to the results
Commit = tuple[int, str, int]
"""A version of ``results``, the application that made it, and the version of its transaction."""


def _commits(warehouse: Warehouse, since: int, until: int) -> list[Commit] | None:
    """Publications and deletions after a version; None if the log does not reach back to it."""
    try:
        return [commit for commit in warehouse.transactions("results", since) if commit[0] <= until]
    except HeddleError as error:
        if error.diagnostic.code != "HDL-541":
            raise
        return None


def _spans(published: Sequence[tuple[str, int]]) -> list[Span]:
    """The instants of the intervals that were published, as disjoint spans that ascend."""
    spans: list[Span] = []
    for begin, end in sorted((parse_instant(begin), parse_instant(end)) for begin, end in _intervals(published)):
        if spans and begin <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        else:
            spans.append((begin, end))
    return spans


def _intervals(published: Sequence[tuple[str, int]]) -> set[tuple[str, str]]:
    parts = (label.split("/") for label, _ in published)
    return {(begin, end) for _, begin, end in parts}


def _deleted(warehouse: Warehouse, commits: Sequence[Commit]) -> set[str] | None:
    """The queries of which answers were deleted by name in these commits; None: it is not known of which."""
    versions = {version for version, label, _ in commits if label == DELETED}
    if not versions:
        return set()
    of_versions = ds.field("table_version").isin(pa.array(sorted(versions), pa.int64()))
    rows = publish_log.rows(warehouse, (ds.field("event") == "deleted") & of_versions)
    return {name for row in rows for name in row.deleted} if {row.table_version for row in rows} >= versions else None
