"""The one owner of ``quality_results``: the outcome of every check of every run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from spark_jobs.store.warehouse import log_counts
from spark_jobs.store.warehouse.schemas import moment
from spark_jobs.store.warehouse.warehouse import Warehouse

FAILED = ~ds.field("success")
"""The condition of rows of checks that failed."""

AUDITED = ds.field("audited").is_valid()
"""Condition of rows that name what was audited."""

OF_EXPECTATIONS = ("query", "owner", "kind", "severity", "observed", "bound", "unexpected", "sample", "revision")
"""Columns of expectations of owners, which are null for other checks."""

LOOKED_BACK = 1_000
"""So many checks of the past are looked at for what was audited when."""

RECOMPUTED = "shared=unshared("
"""Names of the checks that compare shared answers with unshared ones."""


@dataclass(frozen=True)
class CheckRow:
    """Outcome of one check of a run over [begin, end), ``at`` a moment (microseconds).

    ``detail``: only of rows that were read with it. ``audited``: labels of what a recomputed sample covers
    (:attr:`spark_jobs.audit.checks.recompute.Drawn.labels`).

    Of expectations of owners alone: the ``query`` (``kind`` "answers") or stream ("events") that one is of, its
    ``owner`` and ``severity``; what was ``observed`` (a number, or the share of rows that are as expected), the
    ``bound``, how many rows are ``unexpected``, a ``sample`` of them (JSON list of texts), and the ``revision``.
    """

    run_id: str
    begin: int
    end: int
    check: str
    success: bool
    at: int
    detail: str = ""
    audited: Sequence[str] = ()
    query: str | None = None
    owner: str | None = None
    kind: str | None = None
    severity: str | None = None
    observed: float | None = None
    bound: str | None = None
    unexpected: int | None = None
    sample: str | None = None
    revision: int | None = None


def log(warehouse: Warehouse, rows: Sequence[CheckRow]) -> None:
    """Add the outcomes of the checks of a run."""
    stored = [
        {
            "run_id": row.run_id,
            "interval_start": moment(row.begin),
            "interval_end": moment(row.end),
            "check": row.check,
            "success": row.success,
            "detail": row.detail,
            "at": moment(row.at),
            "audited": json.dumps(list(row.audited)) if row.audited else None,
            **{name: getattr(row, name) for name in OF_EXPECTATIONS},
        }
        for row in rows
    ]
    warehouse.leased(lambda token: warehouse.append("quality_results", stored, token))


def rows(warehouse: Warehouse, where: ds.Expression | None = None) -> list[CheckRow]:
    """Outcomes of checks, oldest first, without details. ``where``: a condition on the table's columns."""
    table = warehouse.dataset("quality_results", where=where)
    return _of_table(table.to_table(_LIGHT, filter=where).sort_by("at"))


def audits(warehouse: Warehouse, most: int = LOOKED_BACK) -> list[set[str]]:
    """The labels of what the latest runs audited, the latest run first; about ``most`` checks are looked at."""
    if "audited" not in {field.name for field in warehouse.table("quality_results").schema().fields}:
        return []
    runs: dict[str, tuple[int, set[str]]] = {}
    seen = 0
    for stored, _ in warehouse.newest_first("quality_results", "at", ["run_id", "at", "audited"], AUDITED):
        at = stored["at"].cast(pa.int64()).to_pylist()
        for run_id, moment_, text in zip(stored["run_id"].to_pylist(), at, stored["audited"].to_pylist(), strict=True):
            newest, labels = runs.get(run_id, (moment_, set()))
            runs[run_id] = max(newest, moment_), labels | set(json.loads(text))
        seen += len(stored)
        if seen >= most:
            break
    return [labels for _, labels in sorted(runs.values(), key=lambda run: -run[0])]


def newest_failed(warehouse: Warehouse, most: int) -> list[CheckRow]:
    """The checks that failed last, at most ``most``, the latest first, with their details. No more of the log is read
    than necessary.
    """
    failed: list[CheckRow] = []
    for stored, bound in warehouse.newest_first("quality_results", "at", [*_LIGHT, "detail"], FAILED):
        failed = sorted([*failed, *_of_table(stored)], key=lambda row: -row.at)[:most]
        if len(failed) == most and (bound is None or failed[-1].at >= bound):
            break
    return failed


def of_query(warehouse: Warehouse, query: str, kind: str = "answers") -> list[CheckRow]:
    """The outcomes of the expectations of a query, or of a stream (``kind`` "events"), oldest first."""
    if "query" not in {field.name for field in warehouse.table("quality_results").schema().fields}:
        return []
    # an earlier Heddle knows no expectations, and its rows no query
    own = (ds.field("query") == query) & (ds.field("kind") == kind)
    stored = warehouse.stored_rows("quality_results", [*_LIGHT, "detail", *OF_EXPECTATIONS], own).sort_by("at")
    return _of_table(stored)


_LIGHT = ["run_id", "interval_start", "interval_end", "check", "success", "at"]


def _of_table(stored: pa.Table) -> list[CheckRow]:
    # as numbers at once: a datetime for each takes longer than reading them
    moments = {"interval_start": pa.int64(), "interval_end": pa.int64(), "at": pa.int64()}
    schema = pa.schema([field.with_type(moments.get(field.name, field.type)) for field in stored.schema])
    return [
        CheckRow(
            row["run_id"],
            row["interval_start"],
            row["interval_end"],
            row["check"],
            row["success"],
            row["at"],
            row.get("detail") or "",
            **{name: row.get(name) for name in OF_EXPECTATIONS},
        )
        for row in stored.cast(schema).to_pylist()
    ]


@dataclass(frozen=True)
class CheckCounts:
    """Numbers of checks that ever passed and failed, and of those that ``recomputed`` a query unshared."""

    passed: int
    failed: int
    recomputed: int
    different: int


def counts(warehouse: Warehouse) -> CheckCounts:
    """Count all checks that were ever logged."""
    numbers = log_counts.counted_log(warehouse, "quality_results", count_checks)
    passed = numbers["all"] - numbers["failed"]
    return CheckCounts(passed, numbers["failed"], numbers["recomputed"], numbers["different"])


def count_checks(warehouse: Warehouse, checks: ds.Dataset, before: Mapping[str, int]) -> log_counts.Counts:
    """The counts of the checks of some files, and of those before (:mod:`spark_jobs.store.warehouse.log_counts`)."""
    recomputed = named(RECOMPUTED)
    chosen = {"all": None, "failed": FAILED, "recomputed": recomputed, "different": recomputed & FAILED}
    # nearly all passed: what says so of many at once is not read
    return {name: before.get(name, 0) + int(checks.count_rows(filter=condition)) for name, condition in chosen.items()}


def named(prefix: str) -> ds.Expression:
    """The condition of rows of checks whose names begin like this."""
    return pc.starts_with(ds.field("check"), prefix)
