"""Each page of the server as text, made from the warehouse as it is now, without a JVM."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

from heddle.pages import answers, data_docs, history, operations, plan, query, run, streams, trends
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.audit.checks.data_docs import FOLDER, document_file, read_document
from spark_jobs.operations.answers import list_answers, read_query
from spark_jobs.operations.read import change_of, opened, read_operations, read_radius, read_versions
from spark_jobs.operations.seen import read_run
from spark_jobs.operations.series import Choice, Listing, Span, Streams, Trends
from spark_jobs.operations.snapshots import books_of, first_planned, newest_plan
from spark_jobs.operations.trends import read_streams, read_trends
from spark_jobs.operations.values import Operations
from spark_jobs.results.encoding import encoded
from spark_jobs.results.read import read as read_answers
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse.plans import PlannedQuery
from spark_jobs.store.warehouse.schemas import moment
from spark_jobs.store.warehouse.warehouse import Warehouse

_looking = threading.Lock()
"""Only one look at all sources at a time."""


def answers_html(root: str, choice: Choice) -> str:
    """All queries with their newest answers."""
    warehouse = opened(root)
    now = datetime.now(UTC)
    return answers.page(list_answers(warehouse, choice, now) if warehouse is not None else Listing(now, choice))


def query_html(root: str, name: str, span: Span, group: str) -> str:
    """Page of one query over time. Raises HDL-502 without a warehouse, HDL-521 for a query that was never
    registered.
    """
    return query.page(read_query(Warehouse.open(root, create=False), name, span, group))


def answers_data(root: str, name: str, span: Span, form: str) -> bytes:
    """Published answers of a query in a span, as ``csv`` or ``json``. Raises HDL-502 without a warehouse, HDL-521 for a
    query that was never registered."""
    return encoded(read_answers(Warehouse.open(root, create=False), name, span.begin, span.end), name, form)


def plan_html(root: str, version: int | None, tree: str = "") -> str | None:
    """A stored plan (None: the newest) with a tree that is shown open; None if there is no such version."""
    warehouse = opened(root)
    newest = newest_plan(warehouse) if warehouse is not None else None
    if warehouse is None or newest is None:
        return plan.no_plan() if version is None else None
    number = version or newest
    if number > newest:
        return None
    first = first_planned(warehouse, number)
    return plan.page(books_of(warehouse, number).plan, _facts(first), in_menu=True, chosen=tree)


def _facts(row: PlannedQuery) -> dict[str, str]:
    created = f"{moment(row.created_at):%Y-%m-%d %H:%M} UTC"
    return {"version": str(row.plan_version), "made": created, "by": row.created_by, "because": row.reason}


def operations_html(root: str, look: bool) -> str:
    """The operating view of the warehouse; ``look``: also what is outdated. Raises HDL-555 while another looks."""
    warehouse = opened(root)
    if warehouse is None:
        return operations.page(Operations(datetime.now(UTC)))
    if not look:
        return operations.page(read_operations(warehouse))
    if not _looking.acquire(blocking=False):
        raise HeddleError("HDL-555", "somebody else is looking for outdated intervals", "try again in a moment")
    try:
        return operations.page(read_operations(warehouse, look=True))
    finally:
        _looking.release()


def run_html(root: str, run_id: str, revision: int | None) -> str | None:
    """Page of one run; None if there is none of that id. ``revision``: of its interval, None: the newest."""
    warehouse = opened(root)
    seen = read_run(warehouse, run_id, revision) if warehouse is not None else None
    return run.page(seen) if seen is not None else None


def radius_html(root: str, begin: int, end: int, revision: int) -> str:
    """Page with the changes of one publication. Raises HDL-558 and HDL-559 if they are not known."""
    return operations.radius(read_radius(Warehouse.open(root, create=False), begin, end, revision))


def history_html(root: str, shown: int | None) -> str | None:
    """The history of the plan; None if there is no version ``shown`` (None: the newest)."""
    warehouse = opened(root)
    newest = newest_plan(warehouse) if warehouse is not None else None
    if warehouse is None or newest is None:
        return history.page((), 0, 0, None, None, datetime.now(UTC)) if shown is None else None
    if shown is not None and shown > newest:
        return None
    versions, total = read_versions(warehouse)
    chosen = shown or newest
    return history.page(versions, total, newest, chosen, change_of(warehouse, chosen), datetime.now(UTC))


def streams_html(root: str, span: Span) -> str:
    """The streams over time."""
    warehouse, now = opened(root), datetime.now(UTC)
    return streams.page(read_streams(warehouse, span, now) if warehouse is not None else Streams(now, span))


def trends_html(root: str, span: Span) -> str:
    """Page of runs and their costs, day by day."""
    warehouse, now = opened(root), datetime.now(UTC)
    return trends.page(read_trends(warehouse, span, now) if warehouse is not None else Trends(now, span))


def docs_html(root: str, name: str) -> str | None:
    """A page of Data Docs; None if there is none of that name. Only names that runs give: never a path."""
    file = document_file(Place.of(root) / FOLDER, name)
    if file is None:
        return None
    # runs of earlier versions kept pages
    return (
        file.read().decode("utf-8", "replace") if file.name.endswith(".html") else data_docs.page(read_document(file))
    )
