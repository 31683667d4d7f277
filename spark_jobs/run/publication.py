"""The last stage of a run: one commit that replaces an interval's answers, and what is recorded beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors.diagnostics import HeddleError
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import format_instant
from spark_jobs.costs.measurements import Measured, groups_per_fragment
from spark_jobs.results.revisions import Readers
from spark_jobs.run import preparation
from spark_jobs.run.preparation import Instants, known_ledger_entries
from spark_jobs.sources.decoding import parse_instant
from spark_jobs.warehouse import publish_log
from spark_jobs.warehouse.data_files import DataFile
from spark_jobs.warehouse.publish_log import RunRecord, interval_label, overlapping_publications
from spark_jobs.warehouse.schemas import DELETED, INSTANT
from spark_jobs.warehouse.warehouse import Warehouse


def publish(
    warehouse: Warehouse,
    record: RunRecord,
    staged: list[DataFile],
    until: Mapping[str, int],
    readers: Readers,
    instants: Instants | None = None,
    since: int = 0,
) -> int:
    """Publish the staged files as the answer of the interval, in one commit; the table's version.

    Replaced are the answers of the queries in ``until``, of instants in (begin, until], and of nobody else: what is
    stored of queries that are not answered now (removed, paused, of a stream that cannot be read) stays. Of
    ``instants`` only, as the version ``since`` of the table has all others. ``readers`` is told what is replaced.
    Raises HDL-541 if they were published again meanwhile, or anything of the interval was by a run that knew more of
    the source.
    """
    begin, end = pa.scalar(record.begin, INSTANT), pa.scalar(record.end, INSTANT)

    def replaced(stored: pa.Table) -> pa.Array:
        inside = pc.and_(pc.greater(stored["instant"], begin), pc.less_equal(stored["instant"], end))
        gone = pc.and_(inside, answers_at(stored, until, instants))
        readers.replace(stored, inside, gone)
        return gone

    def untouched(file: dict[str, Any]) -> bool:
        # readers of other systems may have written statistics of whole milliseconds
        first, last = file.get("min.instant"), file.get("max.instant")
        near = timedelta(milliseconds=1)
        return (
            first is not None and last is not None and bool(last + near <= begin.as_py() or first - near > end.as_py())
        )

    def whole(file: dict[str, Any]) -> bool:
        inside = day_label(record.begin - 1) < file["day"] < day_label(record.end)
        return (
            bool(inside)
            and instants is None
            and _published_names(warehouse, record.begin, record.end)
            <= {name for name, last in until.items() if last >= record.end}
        )

    def knew_more(row: Mapping[str, Any]) -> bool:
        # also a row from before the publication: that it has published is logged afterwards
        past = known_ledger_entries(json.loads(row["record"]))
        listed = [name for name in record.listed if name not in record.failed]
        return preparation.is_older_than({name: past.get(name, 0) for name in listed}, record.listed)

    def still() -> None:
        readers.known = True
        for application in warehouse.transactions("results", since):
            if application == DELETED:
                if instants is not None:  # what was deleted does not come back by half
                    message = "answers were deleted by name meanwhile"
                    raise HeddleError("HDL-541", message, "nothing was published; run it again")
                continue
            begin, end = map(parse_instant, application.split("/")[1:])
            if begin >= record.end or record.begin >= end:
                continue
            if instants is not None or any(map(knew_more, publish_log.rows_of_interval(warehouse, begin, end))):
                message = f"another run has published {format_instant(begin)} .. {format_instant(end)} meanwhile"
                raise HeddleError("HDL-541", message, "nothing was published; run it again")

    days = day_label(record.begin), day_label(record.end - 1)
    interval = interval_label(record.begin, record.end)
    return warehouse.replace("results", staged, days, replaced, interval, record.revision, untouched, whole, still)


def answers_at(stored: pa.Table, until: Mapping[str, int], instants: Instants | None) -> pa.Array:
    """Which answers are of one of these queries, up to its last instant; of ``instants`` only, unless it is None."""
    encoded = stored["query"].combine_chunks().dictionary_encode()
    codes, at = encoded.indices.to_numpy(), stored["instant"].cast(pa.int64()).to_numpy()
    found = np.zeros(len(stored), dtype=bool)
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        if name not in until or (instants is not None and name not in instants):
            continue
        chosen = instants[name] if instants is not None else None
        found |= (codes == code) & (at <= until[name]) & (chosen is None or np.isin(at, chosen))
    return pa.array(found)


def _published_names(warehouse: Warehouse, begin: int, end: int) -> set[str]:
    """The queries that may have answers at instants in (begin, end]: of all plans by which they were published."""
    plans = {row["plan_version"] for row in overlapping_publications(warehouse, begin, end)}
    rows = warehouse.rows("sharing_plans", ["plan_version", "query"])
    return {row["query"] for row in rows if row["plan_version"] in plans}


def log_checks(warehouse: Warehouse, record: RunRecord) -> None:
    with warehouse.lease() as token:
        rows = [
            {
                "run_id": record.run_id,
                "interval_start": pa.scalar(record.begin, INSTANT).as_py(),
                "interval_end": pa.scalar(record.end, INSTANT).as_py(),
                "check": check["check"],
                "success": check["success"],
                "detail": check["detail"],
                "at": publish_log.now_micros(),
            }
            for check in record.checks
        ]
        warehouse.append("quality_results", rows, token)


def log_statistics(warehouse: Warehouse, record: RunRecord) -> None:
    """Record the rate of what this run scanned; the stages' costs stand with the first stream."""
    rows: list[dict[str, Any]] = []
    for name, (begin, end, events) in record.scanned.items():
        found = Measured(name, begin, end, events, groups_per_fragment(warehouse, name))
        measured = ({}, {}) if rows else (record.cpu_seconds, record.features)
        rows.append(found.row(record.run_id, *measured))
    with warehouse.lease() as token:
        warehouse.append("stream_statistics", rows, token)
