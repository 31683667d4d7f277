"""Compute answers of queries in this process, without a JVM and a warehouse, for previews and tests of queries.

The stages are those of a run (:mod:`spark_jobs.pipeline.run`), as far as the answers, over separate tables in a
temporary folder that is removed afterwards. So a source, a window or an aggregate is treated exactly as in a run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.plan.builder import build_plan
from optimizer.workload.values import ACQ, Workload
from spark_jobs.engine.choice import Engine
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.pipeline.costs.measurements import FEATURES
from spark_jobs.pipeline.run import finals_stage, partials_stage, preparation
from spark_jobs.pipeline.run.values import Allocated, Report, Run, RunRequest
from spark_jobs.results.read import typed_answers
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.schemas import RESULTS
from spark_jobs.store.warehouse.warehouse import Warehouse

SILENT = "HDL-413"
"""That there are no events is no news where nothing is published."""


def asked_at(query: ACQ, instants: Sequence[int]) -> ACQ:
    """A query that is answered at some instants alone (microseconds, ascending), whatever its refresh bound and its
    lifetime. Without known instants all windows are answered."""
    if not query.kind.has_instants:
        return replace(query, until=None)
    return replace(query, until=None, window=replace(query.window, at=tuple(instants), at_most=None))


def answers_of(
    workload: Workload, begin: int, end: int, report: Report = lambda line: None
) -> tuple[dict[str, pa.Table], list[Diagnostic]]:
    """The answers by query for the instants in (begin, end] (microseconds), typed, by instant and group; and what is
    wrong with the queries and streams that have none.

    Raises HDL-505 if no stream can be read, HDL-517 if no query can be answered.
    """
    rates = {stream.name: Fraction(1) for stream in workload.streams}
    # one pass over each stream; which tree is cheapest is not worth finding out
    plan = build_plan(workload, rates, "shared")
    lateness = max((stream.lateness for stream in workload.streams), default=0)
    request = RunRequest(0, begin, end, "preview", end + lateness)
    record = RunRecord(request.run_id, 0, begin, end, features=dict.fromkeys(FEATURES, 0))
    with _warehouse() as warehouse:
        run = Run(Engine("preview", given=LocalWorkers()), warehouse, request, record, report)
        report("listing sources")
        listing = preparation.listed(warehouse, plan, request.clock, request.run_id)
        record.diagnostics += listing.problems
        prepared = preparation.prepare(warehouse, plan, request, listing)
        record.diagnostics += prepared.diagnostics
        report("reading events")
        try:
            filled = partials_stage.fill(run, Allocated(prepared, None, None, 0))
        except HeddleError as error:
            raise HeddleError.of(error.diagnostic, *_findings(record)) from None
        report("answering")
        answered = finals_stage.answer(run, filled)
        paths = [str(warehouse.place / "results" / file.path) for file in answered.staged]
        rows = _rows(paths)
        answered_queries = {query.name: query for query in filled.plan.workload.queries}
        return _typed(workload.queries, answered_queries, rows), _findings(record)


@contextmanager
def _warehouse() -> Iterator[Warehouse]:
    with tempfile.TemporaryDirectory(prefix="heddle-", ignore_cleanup_errors=True) as folder:
        yield Warehouse.open(Path(folder) / "warehouse")


def _findings(record: RunRecord) -> list[Diagnostic]:
    every = (Diagnostic(**finding) for finding in record.diagnostics)
    return list(dict.fromkeys(finding for finding in every if finding.code != SILENT))


def _rows(paths: Sequence[str]) -> pa.Table:
    """The rows of files of results, whose columns without any value are in none of them."""
    if not paths:
        return RESULTS.empty_table()
    return ds.dataset(list(paths), schema=RESULTS, format="parquet").to_table()


def _typed(queries: Sequence[ACQ], left: Mapping[str, ACQ], rows: pa.Table) -> dict[str, pa.Table]:
    """The typed answers of each query that was answered."""
    apart = {name: rows.filter(ds.field("query") == name) for name in left}
    return {query.name: typed_answers(query, apart[query.name]) for query in queries if query.name in left}
