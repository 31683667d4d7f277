"""Cache what several pages read of a warehouse again and again, while its tables are unchanged.

The key of every cached value has the table's identity and version, which are read each time: what is returned is
never older than the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.dataset as ds

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.accounts import Account, accounts
from optimizer.plan.definition import SharingPlan
from optimizer.workload.values import SECOND
from spark_jobs.operations.series import Span
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse import publish_log, registry
from spark_jobs.store.warehouse.data_files import reading
from spark_jobs.store.warehouse.plans import PlannedQuery, load_plan, planned
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.registry import QueryEvent, Registered
from spark_jobs.store.warehouse.warehouse import Warehouse

KEPT = 6
"""Largest number of cached plans and registries."""


@dataclass(frozen=True)
class Books:
    """A stored plan with the account of each of its queries, by name."""

    plan: SharingPlan
    accounts: dict[str, Account]


def books_of(warehouse: Warehouse, version: int) -> Books:
    """A stored plan and its accounts. Raises HDL-506 if there is no such version."""
    return _books(str(warehouse.place), identity(warehouse, "sharing_plans")[0], version)


@lru_cache(maxsize=KEPT)
def _books(root: str, table: str, version: int) -> Books:
    plan = load_plan(Warehouse(Place(root)), version)
    return Books(plan, {account.query.name: account for account in accounts(plan)})


@dataclass(frozen=True)
class Known:
    """All that was ever registered: queries by name, and their events, oldest first."""

    queries: dict[str, Registered]
    events: tuple[QueryEvent, ...]


def known_queries(warehouse: Warehouse) -> Known:
    """All that was ever registered."""
    return _known(str(warehouse.place), *identity(warehouse, "workload_queries"))


@lru_cache(maxsize=KEPT)
def _known(root: str, table: str, version: int) -> Known:
    events = registry.events(Warehouse(Place(root)))
    return Known(registry.registered(events), tuple(events))


def identity(warehouse: Warehouse, table: str) -> tuple[str, int]:
    """A table's id, which another table in its place does not have, and its version."""
    current = warehouse.table(table)
    return str(current.metadata().id), int(current.version())


def newest_version_with(warehouse: Warehouse, query: str) -> int | None:
    """The newest plan version that has a query; None: no plan had it."""
    return _versions(str(warehouse.place), *identity(warehouse, "sharing_plans")).get(query)


def newest_plan(warehouse: Warehouse) -> int | None:
    """The version of the plan in force; None: there is none."""
    return max(_versions(str(warehouse.place), *identity(warehouse, "sharing_plans")).values(), default=None)


def first_planned(warehouse: Warehouse, version: int) -> PlannedQuery:
    """The first row of a stored plan, with the time, author and reason of the plan. Raises HDL-506 if there is none."""
    rows = planned(warehouse, ds.field("plan_version") == version)
    if not rows:
        raise HeddleError("HDL-506", f"there is no plan version {version} in {warehouse.place}")
    return rows[0]


@lru_cache(maxsize=KEPT)
def _versions(root: str, table: str, version: int) -> dict[str, int]:
    rows = Warehouse(Place(root)).stored_rows("sharing_plans", ["plan_version", "query"])
    newest = rows.group_by("query").aggregate([("plan_version", "max")])
    return dict(zip(newest["query"].to_pylist(), newest["plan_version_max"].to_pylist(), strict=True))


# -------------------------------------------------------------------------------------- the log's newest rows
NEWEST = 24
"""Rows of the log that :func:`newest_runs` returns."""


@dataclass(frozen=True)
class NewestRuns:
    """The runs that ended last, newest first, with their records.

    A run that published no answer is *idle*: a scheduled run after the end of the data, say. ``answered``: the
    newest run that was not, with its record; ``end``: the end of the newest interval with answers (microseconds),
    or, if there is none, of the newest published one; None: none is published.
    """

    rows: tuple[LogRow, ...]
    answered: LogRow | None
    end: int | None


def newest_runs(warehouse: Warehouse) -> NewestRuns:
    """The at most :data:`NEWEST` runs that ended last."""
    return _newest(str(warehouse.place), *identity(warehouse, "publish_log"))


@lru_cache(maxsize=KEPT)
def _newest(root: str, table: str, version: int) -> NewestRuns:
    warehouse = Warehouse(Place(root))
    ended = ds.field("event").isin(["published", "failed"])
    rows = publish_log.newest_rows(warehouse, "at", ended, NEWEST)
    is_answered = publish_log.PUBLISHED & (ds.field("answers") > 0)
    answered = publish_log.newest_rows(warehouse, "at", is_answered, 1)
    newest = publish_log.newest_rows(
        warehouse, "interval_end", is_answered if answered else publish_log.PUBLISHED, 1, records=False
    )
    return NewestRuns(tuple(rows), answered[0] if answered else None, newest[0].end if newest else None)


SPANS = {"day": 86_400 * SECOND, "week": 7 * 86_400 * SECOND, "month": 30 * 86_400 * SECOND}
"""The lengths of the spans that have a name."""


def limited(warehouse: Warehouse, span: Span) -> Span:
    """A span with its instants: one of a name is counted back from the newest published interval."""
    if span.name not in SPANS:
        return span
    end = newest_runs(warehouse).end
    return span if end is None else replace(span, begin=end - SPANS[span.name], end=end)


# ------------------------------------------------------------------------------------------------- days of results
class Results:
    """The results as they are now; only the requested days are opened."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse, self.place = warehouse, warehouse.place / "results"
        self.table = warehouse.table("results")
        self.days = sorted({str(row["day"]) for row in self.table.partitions()})

    def rows(self, first: str, last: str, columns: Sequence[str], chosen: ds.Expression) -> pa.Table:
        """Some columns of the rows of the days from ``first`` to ``last`` ("": no limit) that meet the condition
        ``chosen``.
        """
        if first:
            chosen &= ds.field("day") >= first
        if last:
            chosen &= ds.field("day") <= last
        with reading(self.place):
            dataset = self.warehouse.dataset("results", self.table, chosen)
            known = set(dataset.schema.names)
            table = dataset.to_table([name for name in columns if name in known], filter=chosen)
        for name in columns:
            if name not in known:  # a warehouse of an earlier Heddle that cannot be written to
                table = table.append_column(name, pa.nulls(len(table), pa.string()))
        return table
