"""The last stage of a run: one commit that replaces an interval's answers, and the records of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from optimizer.errors.diagnostics import HeddleError
from optimizer.windows.alignment import day_label, has_instant
from optimizer.workload.instants import format_instant
from optimizer.workload.values import ACQ
from spark_jobs.pipeline.costs import measurements
from spark_jobs.pipeline.costs.measurements import NO_STREAM, Measured, groups_per_fragment
from spark_jobs.pipeline.run import narrowing
from spark_jobs.pipeline.run.values import AnsweredRun, CheckedRun, FilledRun, Instants, PublishedRun, Run
from spark_jobs.results.revisions import STORED, Answered, Readers, Unchanged
from spark_jobs.store.storage import Place
from spark_jobs.store.warehouse import checks_log, publish_log, registry
from spark_jobs.store.warehouse.data_files import DataFile, read_file, write_files
from spark_jobs.store.warehouse.plans import planned
from spark_jobs.store.warehouse.publish_log import LogRow, RunRecord, interval_label
from spark_jobs.store.warehouse.schemas import DELETED, INSTANT, RESULTS
from spark_jobs.store.warehouse.warehouse import Rewritten, Warehouse
from spark_jobs.streams.sources.decoding import parse_instant
from spark_jobs.streams.sources.event_counts import EventCounts


def publish(run: Run, checked: CheckedRun) -> PublishedRun:
    """Publish the staged files as the answer of the interval, in one commit.

    Replaced are the answers of the queries that were answered, of instants in (begin, end], and of nobody else: what is
    stored of queries that are not answered now (removed, paused, blocked, of a stream that cannot be read) stays. If
    the run is narrow, only its instants are replaced, as the version of the table that it goes on from has all others;
    and of those only the answers that differ (:func:`_different`).
    Raises HDL-541 if they were published again meanwhile, or anything of the interval was by a run that knew more of
    the source, or, if both are live runs, at all.
    """
    record, answered = run.record, checked.answered
    filled, allocated = answered.filled, answered.filled.allocated
    until = {name: at for name, at in last_instants(filled).items() if name not in record.blocked}
    since = max(allocated.table_version, allocated.base.table_version or 0 if allocated.base is not None else 0)
    readers, assets = Readers(), registry.assets(registry.events(run.warehouse))
    rewritten = Rewritten()
    replacing = Replacing(until, filled.instants, since)
    staged: Sequence[DataFile] = answered.staged
    if filled.instants is not None:
        staged, replacing = _different(run.warehouse, record, staged, replacing)
        record.answers = sum(file.rows for file in staged)
    table_version = commit(run.warehouse, record, staged, replacing, readers, rewritten)
    record.rewritten = asdict(rewritten)
    if readers.known:
        root = run.warehouse.place / "results"
        record.readers = readers.change([root / file.path for file in answered.staged], _counted(answered))
        record.assets = readers.change_of(assets)
        due = [query for query in filled.plan.workload.queries if query.name in until]
        record.empty = readers.without_answers(
            [query.name for query in due if is_due(query, record.begin, until[query.name])]
        )
    for file in set(answered.staged) - set(staged):
        (run.warehouse.place / "results" / file.path).remove()
    return PublishedRun(checked, table_version, readers)


def last_instants(filled: FilledRun) -> dict[str, int]:
    """The last instant that a run answers of each query (microseconds), by its name."""
    return {
        query.name: filled.ends[query.stream] if query.until is None else min(filled.ends[query.stream], query.until)
        for query in filled.plan.workload.queries
        if query.stream in filled.sources
    }


def _counted(answered: AnsweredRun) -> Answered | None:
    """The answers as the inspection counted them, if it has counted all."""
    total = Answered()
    for findings in answered.findings or ():
        if findings.answered is None:
            return None
        total.join(findings.answered)
    return None if answered.findings is None else total


def is_due(query: ACQ, begin: int, until: int) -> bool:
    """Return whether a window of the query may end in (begin, until]. It is unknown beforehand for windows without
    instants, so then this is true.
    """
    return not query.kind.has_instants or has_instant(query.window, begin, until)


@dataclass(frozen=True)
class Replacing:
    """The answers of an interval that a publication replaces.

    Attributes
    ----------
    until
        The queries that were answered, with their last instants (microseconds).
    instants
        Only answers at these instants are replaced, as the version ``since`` of the table has all others. None: all.
    since
        The version of ``results`` that the run goes on from.
    unchanged
        Those of them that stay, as the new ones equal them. None: none.
    """

    until: Mapping[str, int]
    instants: Instants | None
    since: int
    unchanged: Unchanged | None = None

    def answered(self, stored: pa.Table) -> pa.Array:
        """Mask (n,) of the stored answers that were answered again, by ``query`` and ``instant``."""
        return answers_at(stored, self.until, self.instants)


COMPARED_AT_ONCE = 1 << 20
"""Rows of new answers, about, that are compared with the stored ones at once."""


def _different(
    warehouse: Warehouse, record: RunRecord, staged: Sequence[DataFile], replacing: Replacing
) -> tuple[list[DataFile], Replacing]:
    """The staged files of a narrow run with only the answers that the stored ones do not equal, and which stored ones
    stay.

    Reads the staged files, and of the stored ones those of their days that have answers of the run's windows. The
    answers of a window whose groups are all gone are in no staged file: they are replaced by nothing.
    """
    root, current, unchanged = warehouse.place / "results", warehouse.table("results"), Unchanged()
    begin, end = pa.scalar(record.begin, INSTANT), pa.scalar(record.end, INSTANT)

    def stored(files: Sequence[dict[str, Any]]) -> Iterator[pa.Table]:
        for file in files:
            path = root / file["path"]
            at = read_file(path, ["query", "instant"])
            inside = pc.and_(pc.greater(at["instant"], begin), pc.less_equal(at["instant"], end))
            is_answered = pc.and_(inside, replacing.answered(at))
            if pc.any(is_answered).as_py():
                yield read_file(path, STORED).filter(is_answered)

    different: list[DataFile] = []
    for day, some in _pieces(staged):
        files = [file for file in warehouse.files("results", day, day, current) if not _is_outside(file, record)]
        unchanged.add(
            pa.concat_tables(with_declared_columns(read_file(root / file.path, STORED)) for file in some), stored(files)
        )
        for file in some:
            rows = read_file(root / file.path)
            stays = unchanged.holds(rows)
            if not stays.any():
                different.append(file)
            elif not stays.all():
                rows = rows.append_column("day", pa.array([day] * len(rows), pa.string()))
                different += write_files(root, rows.filter(pa.array(~stays)))
    return different, replace(replacing, unchanged=unchanged)


def _pieces(staged: Sequence[DataFile]) -> Iterator[tuple[str, list[DataFile]]]:
    """Staged files by day, those of :data:`COMPARED_AT_ONCE` rows together."""
    by_day: dict[str, list[DataFile]] = {}
    for file in staged:
        by_day.setdefault(file.day, []).append(file)
    for day, files in by_day.items():
        some: list[DataFile] = []
        for file in files:
            if some and sum(each.rows for each in some) + file.rows > COMPARED_AT_ONCE:
                yield day, some
                some = []
            some.append(file)
        yield day, some


def with_declared_columns(rows: pa.Table, names: Sequence[str] = STORED) -> pa.Table:
    """Rows of results with some columns, those of :data:`spark_jobs.results.revisions.STORED` unless others are named,
    in their declared types.
    """
    fields = [RESULTS.field(name) for name in names]
    known = rows.schema.names
    columns = [
        rows[each.name].cast(each.type) if each.name in known else pa.nulls(len(rows), each.type) for each in fields
    ]
    return pa.table(columns, names=list(names))


def _is_outside(file: Mapping[str, Any], record: RunRecord) -> bool:
    """Return whether the statistics of a stored file exclude answers of the interval."""
    # readers of other systems may have written statistics of whole milliseconds
    first, last, near = file.get("min.instant"), file.get("max.instant"), timedelta(milliseconds=1)
    begin, end = (pa.scalar(at, INSTANT).as_py() for at in (record.begin, record.end))
    return bool(last is not None and last + near <= begin or first is not None and first - near > end)


def commit(
    warehouse: Warehouse,
    record: RunRecord,
    staged: Sequence[DataFile],
    replacing: Replacing,
    readers: Readers,
    rewritten: Rewritten,
) -> int:
    """The commit of :func:`publish`; returns the table's version.

    ``readers`` receives the answers of the windows that were answered again. ``rewritten`` receives the other answers
    that had to be written again.
    """
    until, instants, since = replacing.until, replacing.instants, replacing.since
    begin, end = pa.scalar(record.begin, INSTANT), pa.scalar(record.end, INSTANT)
    root = warehouse.place / "results"

    def places(stored: pa.Table) -> tuple[pa.Array, pa.Array]:
        """Masks of the answers of the interval, and of those that were answered again."""
        inside = pc.and_(pc.greater(stored["instant"], begin), pc.less_equal(stored["instant"], end))
        return inside, pc.and_(inside, replacing.answered(stored))

    def replaced(stored: pa.Table) -> pa.Array:
        inside, is_answered = places(stored)
        readers.replace(stored, inside, is_answered)
        if replacing.unchanged is None:
            return is_answered
        return pc.and_not(is_answered, pa.array(replacing.unchanged.holds(stored)))

    def holds_none(file: dict[str, Any]) -> bool:
        return _holds_none(root / file["path"], places, readers)

    def untouched(file: dict[str, Any]) -> bool:
        return _is_outside(file, record) or (instants is not None and holds_none(file))

    def replaced_whole(file: dict[str, Any]) -> bool:
        inside = day_label(record.begin - 1) < file["day"] < day_label(record.end)
        return (
            bool(inside)
            and instants is None
            and _published_names(warehouse, record.begin, record.end)
            <= {name for name, last in until.items() if last >= record.end}
        )

    def knew_more(row: LogRow) -> bool:
        # also a row from before the publication: that it has published is logged afterwards
        past = row.record.listed
        listed = [name for name in record.listed if name not in record.failed]
        return narrowing.is_older_than({name: past.get(name, 0) for name in listed}, record.listed)

    def is_first(row: LogRow) -> bool:
        # of two live runs at once the second would double a refresh, or stand for one that is answered
        return record.live and row.record.live

    def still() -> None:
        readers.begin()
        for _, application, _ in warehouse.transactions("results", since):
            if application == DELETED:
                if instants is not None:  # what was deleted does not come back by half
                    message = "answers were deleted by name meanwhile"
                    raise HeddleError("HDL-541", message, "nothing was published; run it again")
                continue
            begin, end = map(parse_instant, application.split("/")[1:])
            if begin >= record.end or record.begin >= end:
                continue
            rows = publish_log.rows_of_interval(warehouse, begin, end)
            if instants is not None or any(knew_more(row) or is_first(row) for row in rows):
                message = f"another run has published {format_instant(begin)} .. {format_instant(end)} meanwhile"
                raise HeddleError("HDL-541", message, "nothing was published; run it again")

    days = day_label(record.begin), day_label(record.end - 1)
    interval = interval_label(record.begin, record.end)
    return warehouse.replace(
        "results", staged, days, replaced, interval, record.revision, untouched, replaced_whole, still, rewritten
    )


def _holds_none(file: Place, places: Callable[[pa.Table], tuple[pa.Array, pa.Array]], readers: Readers) -> bool:
    """Return whether a file has no answers that are replaced, from two of its columns. In a repair most files of a day
    have none.
    """
    try:
        stored = read_file(file, ["query", "instant"])
    except HeddleError:
        return False  # what that means is told where it is read whole
    inside, is_replaced = places(stored)
    if pc.any(is_replaced).as_py():
        return False
    readers.replace(stored, inside, is_replaced)
    return True


def answers_at(stored: pa.Table, until: Mapping[str, int], instants: Instants | None) -> pa.Array:
    """Mask of the answers to the queries in ``until``, up to their last instants; only at ``instants`` unless it is
    None.
    """
    encoded = stored["query"].combine_chunks().dictionary_encode()
    codes, at = encoded.indices.to_numpy(), stored["instant"].cast(pa.int64()).to_numpy()
    matches = np.zeros(len(stored), dtype=bool)
    # the rows of a query are looked at once, not those of all queries for each
    places = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[places], np.arange(len(encoded.dictionary) + 1))
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        if name not in until or (instants is not None and name not in instants):
            continue
        rows = places[edges[code] : edges[code + 1]]
        chosen = instants[name] if instants is not None else None
        matches[rows] = (at[rows] <= until[name]) & (chosen is None or np.isin(at[rows], chosen))
    return pa.array(matches)


def _published_names(warehouse: Warehouse, begin: int, end: int) -> set[str]:
    """The queries that may have answers at instants in (begin, end]: of all plans by which they were published."""
    publications = publish_log.overlapping(warehouse, begin, end, publish_log.PUBLISHED, records=False)
    plans = {row.plan_version for row in publications}
    return {row.query for row in planned(warehouse, ds.field("plan_version").isin(sorted(plans)))}


def log_checks(warehouse: Warehouse, record: RunRecord) -> None:
    """Log the results of the checks of a run."""
    now, interval = publish_log.now_micros(), (record.begin, record.end)
    checks_log.log(
        warehouse,
        [
            checks_log.CheckRow(
                record.run_id,
                *interval,
                check["check"],
                check["success"],
                now,
                check["detail"],
                check.get("audited", ()),
            )
            for check in record.checks
        ],
    )


def log_statistics(
    warehouse: Warehouse, record: RunRecord, about: Mapping[str, Any], counts: Mapping[str, Sequence[EventCounts]]
) -> None:
    """Record the rate of the streams that this run scanned, and their events by time (``counts``, of each task).

    The stages' costs, and other facts ``about`` them, are stored with the first stream, or with none.
    """
    rows: list[dict[str, Any]] = []
    for name, (begin, end, events) in record.scanned.items():
        if name not in counts:
            continue  # files that no filter lets through were not read
        measurement = Measured(name, begin, end, events, groups_per_fragment(warehouse, name, begin))
        measured = ({}, {}, {}) if rows else (record.cpu_seconds, record.features, about)
        rows.append(measurement.row(record.run_id, *measured, counts=_joined(counts.get(name, ()))))
    if not rows:
        # who reads no event, because all that is needed is stored, teaches all the same
        none = Measured(NO_STREAM, record.begin, record.end, 0)
        rows.append(none.row(record.run_id, record.cpu_seconds, record.features, about))
    measurements.log(warehouse, rows)


def _joined(counts: Sequence[EventCounts]) -> EventCounts | None:
    if not counts:
        return None
    joined = EventCounts(counts[0].spans, counts[0].bucket)
    for task_counts in counts:
        joined.join(task_counts)
    return joined
