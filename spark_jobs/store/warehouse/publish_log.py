"""The one owner of ``publish_log``: what runs record, and which intervals are published with what content.

Others see its rows as :class:`LogRow`, and what a run recorded as :class:`RunRecord`; nobody else knows their JSON.
"""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from numpy.typing import NDArray

from optimizer.errors.crashes import finding
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.errors.redaction import redacted
from optimizer.plan.definition import SharingPlan
from optimizer.workload.instants import format_instant, instant_of_text
from optimizer.workload.values import digest
from spark_jobs.store.warehouse import log_counts, quarantine
from spark_jobs.store.warehouse.data_files import reading
from spark_jobs.store.warehouse.quarantine import LeftOut
from spark_jobs.store.warehouse.schemas import INSTANT, READ, moment
from spark_jobs.store.warehouse.warehouse import Warehouse

BLOCKED = "HDL-539"
"""The answers of a query are not what its owner expects, and are not published; those of all others are."""


@dataclass
class RunRecord:
    """Record of a run: stored in the publish log and shown by ``heddle status``.

    ``status``: ``published``, ``unchanged`` (the same content was published before) or ``failed``. ``rows_scanned``
    counts events read in the interval and the history it needed, ``scanned`` the same a stream with the span
    (begin, end, events; microseconds); ``partials_written`` rows of the partials table; ``synopses_reused``
    synopses whose history already existed; ``features`` the share of each of
    :data:`spark_jobs.pipeline.costs.measurements.FEATURES` in explaining ``cpu_seconds``. Its prediction from the
    runs before it, and the cost of the features by those runs, are in CPU seconds of all stages
    (:mod:`spark_jobs.pipeline.costs.learned`). ``predicted_between``: the bounds that hold in nine of ten runs.
    ``prediction_error`` is (predicted - measured) / measured. Times in seconds.

    Queries with a refresh bound: ``refreshes`` has the number answered at each instant (``at``, ``queries``);
    ``refreshed`` when each was answered last, before this run or by it; ``lateness`` by how much its bound was
    exceeded, of those that were late (microseconds of data time).

    Sources: ``listed`` is the newest entry known of each stream's ledger (microseconds); ``read`` the times between
    which the events of a stream decide the answers, and a hash of its declaration; ``failed`` streams that could
    not be listed; ``refused`` events of streams that came later than is allowed (in all of their files);
    ``repeated`` events that were skipped because they had come before (on the days that the run looked at).
    ``radius``: the changes of an interval that was published before
    (:class:`spark_jobs.streams.sources.late_events.LateDataImpact`). ``narrow``: only the windows that it may have
    changed were published again. This requires that ``basis``, the hash of what decides answers in addition to the
    sources, is unchanged. Windows since the first event: ``origins`` has where they start, by stream, and ``known`` by
    query the newest entry of the ledger that its answers of the interval know (microseconds).

    Answers: ``readers`` is what the revision changed for them (:meth:`spark_jobs.results.revisions.Readers.change`;
    None: not known, or nothing was published); ``assets`` the same of each query that is an asset and has other
    answers now (:meth:`spark_jobs.results.revisions.Readers.change_of`); ``rewritten`` the other answers that were
    written again because they shared a file with replaced ones
    (:class:`spark_jobs.store.warehouse.warehouse.Rewritten`); ``empty`` the queries with windows in the interval
    that have no answer there. ``diagnostics`` are errors and warnings: a run with only warnings has completed its
    work.

    ``without_time``: by stream and file (relative to the stream's path; "": of other files) the events that were
    skipped because they have no usable time. ``unmatched``: by stream and dimension the newly read events that were
    joined with it, those without a row, those with a null in the key, and some keys without a row.

    ``checked``: the level at which the answers were checked before they were published
    (:data:`spark_jobs.store.settings.CHECKS`). ``blocked``: by query the expectations of its owner for which its
    answers of the interval stay unpublished; ``released``: by query the reason for which they are published all the
    same.

    ``engine``: the engine, as "spark local[2]" or "local", and ``engine_because`` the reason for it; of Spark the
    id of the application, the address of its UI or history, and its ``jobs``
    (:class:`spark_jobs.engine.workers.Job`).
    """

    run_id: str
    plan_version: int
    begin: int
    end: int
    revision: int = 0
    status: str = "failed"
    answers: int = 0
    queries: int = 0
    rows_scanned: int = 0
    rows_without_time: int = 0
    without_time: dict[str, dict[str, int]] = field(default_factory=dict)
    unmatched: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    partials_written: int = 0
    synopses: int = 0
    synopses_reused: int = 0
    features: dict[str, int] = field(default_factory=dict)
    predicted_cpu_seconds: float | None = None
    predicted_between: tuple[float, float] | None = None
    explained_cpu_seconds: float | None = None
    prediction_error: float | None = None
    scanned: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    withheld: dict[str, str] = field(default_factory=dict)
    listed: dict[str, int] = field(default_factory=dict)
    read: dict[str, tuple[int, int, str]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    repeated: dict[str, int] = field(default_factory=dict)
    radius: dict[str, Any] | None = None
    basis: str = ""
    narrow: bool = False
    readers: dict[str, Any] | None = None
    assets: dict[str, dict[str, int]] | None = None
    rewritten: dict[str, int] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    origins: dict[str, int] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)
    live: bool = False
    late: bool = False
    refreshes: list[dict[str, Any]] = field(default_factory=list)
    refreshed: dict[str, int] = field(default_factory=dict)
    lateness: dict[str, int] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    wall_seconds: dict[str, float] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)
    checked: str = "all"
    blocked: dict[str, list[str]] = field(default_factory=dict)
    released: dict[str, str] = field(default_factory=dict)
    engine: str = ""
    engine_because: str = ""
    application: str = ""
    ui: str = ""
    jobs: list[dict[str, Any]] = field(default_factory=list)
    diagnostics: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The record as it is stored and shown: instants of the interval as text."""
        return {"format_version": 1, **asdict(self)} | {
            "begin": format_instant(self.begin),
            "end": format_instant(self.end),
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> RunRecord:
        """The inverse of :meth:`to_json`. What an earlier Heddle did not record is as if nothing was there."""
        times = {name: instant_of_text(stored[name]) for name in ("begin", "end")}
        return cls(**{member.name: stored[member.name] for member in fields(cls) if member.name in stored} | times)

    @property
    def note(self) -> str:
        """The user metadata of the commits of the run, as JSON: who made them, of what, by which plan."""
        interval = {"from": format_instant(self.begin), "to": format_instant(self.end)}
        return redacted(json.dumps({"run_id": self.run_id, **interval, "plan_version": self.plan_version}))

    @property
    def has_failed(self) -> bool:
        """Return whether a part of the requested work was not done, other than by the expectations of owners."""
        return any(each["severity"] == "error" and each["code"] != BLOCKED for each in self.diagnostics)

    @property
    def answered_until(self) -> dict[str, int]:
        """Up to where the windows of streams were answered that were withheld in part (microseconds)."""
        return {name: instant_of_text(at) or 0 for name, at in self.withheld.items()}


Event = Literal["allocated", "published", "failed", "deleted"]
"""Event of a run: it got a revision, published it, or failed. Or answers were deleted by name."""


@dataclass(frozen=True)
class LogRow:
    """A row of the log: what happened to the interval [begin, end), and when (``at``; all in microseconds).

    ``content``: hash of all that decides the answers; ``table_version``: of ``results``, which the commit made;
    ``text``: what the run recorded, as stored; None: it was not read.
    """

    begin: int
    end: int
    revision: int
    run_id: str
    event: Event
    plan_version: int
    content: str | None
    answers: int | None
    table_version: int | None
    at: int
    text: str | None = field(default=None, repr=False)

    @property
    def interval(self) -> str:
        return interval_label(self.begin, self.end)

    @cached_property
    def stored_record(self) -> dict[str, Any]:
        """The stored record, as JSON values."""
        return dict(json.loads(self.text or "{}"))

    @cached_property
    def record(self) -> RunRecord:
        """The record of the run."""
        known = {"run_id": self.run_id, "plan_version": self.plan_version}
        times = {"begin": format_instant(self.begin), "end": format_instant(self.end)}
        return RunRecord.from_json(known | times | self.stored_record)

    @property
    def deleted(self) -> frozenset[str]:
        """The queries of which answers were deleted by name."""
        return frozenset(self.stored_record["queries"] if self.event == "deleted" else ())

    def to_row(self) -> dict[str, Any]:
        """Return the row as the table stores it."""
        moments = (("interval_start", self.begin), ("interval_end", self.end), ("at", self.at))
        return {
            **{name: moment(instant) for name, instant in moments},
            **{name: getattr(self, name) for name in _AS_STORED},
            "record": self.text,
            "read": _read_of(self.stored_record) if self.event == "published" else None,
        }


def _read_of(stored: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Facts that decided the answers of a run, as the table stores it
    (:data:`spark_jobs.store.warehouse.schemas.READ`).

    None if that is incomplete, because something was withheld or failed, or an earlier Heddle did not record it.
    """
    wrong = any(diagnostic.get("severity") == "error" for diagnostic in stored.get("diagnostics", ()))
    if wrong or stored.get("failed") or stored.get("withheld") or not stored.get("read"):
        return None
    return [
        {"stream": name, "begin": begin, "end": end, "listed": stored["listed"].get(name, 0), "of": declared}
        for name, (begin, end, declared) in stored["read"].items()
    ]


LIVE = '"live": true'
"""In the records of live runs, as they are stored."""

LOOKED_AT = 10
"""Publications, the newest, that are compared with the commits of the results table. Each takes about 0.2 µs for every
interval that was ever published."""

_AS_STORED = ("revision", "run_id", "event", "plan_version", "content", "answers", "table_version")
_LIGHT = ["interval_start", "interval_end", *_AS_STORED, "at"]


def rows(warehouse: Warehouse, where: ds.Expression | None = None, records: bool = True) -> list[LogRow]:
    """The rows of the log, oldest first. ``where``: a condition on the table's columns; ``records``: also what runs
    recorded, which is long."""
    with reading(warehouse.path("publish_log")):
        table = warehouse.dataset("publish_log", where=where)
        stored = table.to_table([*_LIGHT, "record"] if records else _LIGHT, filter=where).sort_by("at")
    return _of_table(stored)


def _of_table(stored: pa.Table) -> list[LogRow]:
    # as numbers at once: a datetime for each takes longer than reading them
    types = {"interval_start": pa.int64(), "interval_end": pa.int64(), "at": pa.int64()}
    schema = pa.schema([field.with_type(types.get(field.name, field.type)) for field in stored.schema])
    return [
        LogRow(
            begin=row["interval_start"],
            end=row["interval_end"],
            at=row["at"],
            text=row.get("record"),
            **{name: row[name] for name in _AS_STORED},
        )
        for row in stored.cast(schema).to_pylist()
    ]


PUBLISHED = ds.field("event") == "published"
"""The condition of rows of publications."""


def publications(warehouse: Warehouse, records: bool = True) -> list[LogRow]:
    """All publications, oldest first."""
    return rows(warehouse, PUBLISHED, records)


def newest_rows(
    warehouse: Warehouse, by: Literal["at", "interval_end"], where: ds.Expression, most: int, records: bool = True
) -> list[LogRow]:
    """The rows of the log that meet a condition with the latest moments, at most ``most``, the latest first.

    No more of the log is read than necessary. ``records``: also the records of runs, which are long.
    """
    key = "at" if by == "at" else "end"
    newest: list[LogRow] = []
    columns = [*_LIGHT, "record"] if records else _LIGHT
    for stored, bound in warehouse.newest_first("publish_log", by, columns, where):
        newest = sorted([*newest, *_of_table(stored)], key=lambda row: getattr(row, key), reverse=True)[:most]
        if len(newest) == most and (bound is None or getattr(newest[-1], key) >= bound):
            break
    return newest


def intervals_published(warehouse: Warehouse) -> int:
    """Count the intervals that were ever published."""
    with reading(warehouse.path("publish_log")):
        return log_counts.counted_log(warehouse, "publish_log", count_intervals)["intervals"]


def count_intervals(warehouse: Warehouse, log: ds.Dataset, before: Mapping[str, int]) -> log_counts.Counts:
    """Count the intervals that the rows of some files publish, and those before
    (:mod:`spark_jobs.store.warehouse.log_counts`).
    """
    columns = ["interval_start", "interval_end", "revision"]
    table = log.to_table(columns, filter=PUBLISHED)
    begins, ends, revisions = (table[name].cast(pa.int64()).to_numpy() for name in columns)
    new = set(zip(begins.tolist(), ends.tolist(), strict=True))
    if before:
        # what is published for the first time has not been before; of what is again only the files before tell
        first = revisions == 1
        again = new - set(zip(begins[first].tolist(), ends[first].tolist(), strict=True))
        at = {(row.begin, row.end, row.revision) for row in _of_intervals(warehouse, again)}
        later = set(zip(begins.tolist(), ends.tolist(), revisions.tolist(), strict=True))
        new -= {(begin, end) for begin, end, _ in at - later}
    return {"intervals": before.get("intervals", 0) + len(new)}


def run_counts(warehouse: Warehouse) -> log_counts.Counts:
    """Counts of all runs that ended, as :func:`count_runs` makes them."""
    with reading(warehouse.path("publish_log")):
        return log_counts.counted_log(warehouse, "publish_log", count_runs)


def count_runs(warehouse: Warehouse, log: ds.Dataset, before: Mapping[str, int]) -> log_counts.Counts:
    """Count the runs whose ends the rows of some files are, and those before
    (:mod:`spark_jobs.store.warehouse.log_counts`).

    The counts are ``intervals``, ``published`` and ``failed`` runs, ``answers`` that were published, ``events`` that
    were read, CPU time (microseconds) of each stage (``cpu/<stage>``) and runs in which a query was late
    (``late/<query>``).
    """
    counted = Counter(before)
    for event in ("published", "failed"):
        table = log.to_table(["answers", "record"], filter=ds.field("event") == event)
        counted[event] += len(table)
        if event == "published":
            counted["answers"] += pc.sum(table["answers"]).as_py() or 0
        for text in table["record"].to_pylist():
            stored = json.loads(text or "{}")
            counted["events"] += stored.get("rows_scanned", 0)
            for stage, seconds in stored.get("cpu_seconds", {}).items():
                counted[f"cpu/{stage}"] += round(seconds * 1e6)
            counted.update(f"late/{query}" for query in stored.get("lateness", ()))
    return dict(counted) | count_intervals(warehouse, log, before)


def newest_revised(warehouse: Warehouse, most: int) -> list[list[LogRow]]:
    """The publications, with their records, of the intervals with several that were published again last, at most so
    many, the latest first; no more of the log is read than that takes."""
    again = PUBLISHED & (ds.field("revision") > 1)
    newest: dict[tuple[int, int], int] = {}
    looked_at: set[tuple[int, int]] = set()
    revised: list[list[LogRow]] = []
    for stored, bound in warehouse.newest_first("publish_log", "at", _LIGHT, again):
        for row in _of_table(stored):
            newest[row.begin, row.end] = max(newest.get((row.begin, row.end), row.at), row.at)
        certain = (interval for interval in newest if bound is None or newest[interval] >= bound)
        ordered = sorted((each for each in certain if each not in looked_at), key=lambda each: -newest[each])
        for first in range(0, len(ordered), most):
            chosen: dict[tuple[int, int], list[LogRow]] = {each: [] for each in ordered[first : first + most]}
            looked_at |= chosen.keys()
            for row in _of_intervals(warehouse, chosen, records=True):
                chosen[row.begin, row.end].append(row)
            revised += [rows for rows in chosen.values() if len(rows) > 1]
            if len(revised) >= most:
                return revised[:most]
    return revised


def _of_intervals(warehouse: Warehouse, intervals: Collection[tuple[int, int]], records: bool = False) -> list[LogRow]:
    """The publications of some intervals."""
    if not intervals:
        return []
    begins = pa.array([begin for begin, _ in intervals], INSTANT)
    bounds = pc.min_max(begins)
    between = (ds.field("interval_start") >= bounds["min"]) & (ds.field("interval_start") <= bounds["max"])
    publications = rows(warehouse, PUBLISHED & between & ds.field("interval_start").isin(begins), records)
    return [row for row in publications if (row.begin, row.end) in intervals]


def newest_live(warehouse: Warehouse) -> int | None:
    """Up to where live runs have published (microseconds); None before the first."""
    reached: int | None = None
    for stored, bound in warehouse.newest_first("publish_log", "interval_end", [*_LIGHT, "record"], PUBLISHED):
        # records are long: most need not be parsed
        for row in _of_table(stored.filter(pc.match_substring(stored["record"], LIVE))):
            if row.record.live and (reached is None or row.end > reached):
                reached = row.end
        if reached is not None and (bound is None or bound <= reached):
            break
    return reached


def written_at(moments: Iterable[int]) -> ds.Expression:
    """The condition of rows that were written at some moments (microseconds)."""
    instants = pa.array(list(moments), INSTANT)
    bounds = pc.min_max(instants)
    # what lies between the first and the last is found by bounds: a list is compared with each row
    between = (ds.field("at") >= bounds["min"]) & (ds.field("at") <= bounds["max"])
    return between & ds.field("at").isin(instants)


def ends_at(instant: int) -> ds.Expression:
    """The condition of rows of intervals that end at an instant (microseconds)."""
    return ds.field("interval_end") == pa.scalar(instant, INSTANT)


def rows_of_interval(warehouse: Warehouse, begin: int, end: int) -> list[LogRow]:
    """The log's rows of exactly the interval [begin, end), oldest first."""
    return rows(warehouse, (ds.field("interval_start") == pa.scalar(begin, INSTANT)) & ends_at(end))


@dataclass(frozen=True)
class Publications:
    """All publications as columns, in no order: the moments at which they were logged (n,), and what decided them: of
    ``reads`` (m rows of :data:`spark_jobs.store.warehouse.schemas.READ`) those whose ``owner`` (m,) they are;
    ``is_told`` (n,): by that alone. ``columns`` reads others of the same rows, in the same order."""

    at: NDArray[np.int64]
    is_told: NDArray[np.bool_]
    reads: pa.Table
    owner: NDArray[np.int64]
    columns: Callable[[list[str]], pa.Table]

    @cached_property
    def results(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """The begins and ends of their intervals (n,), and the versions of ``results`` that they made (n,): read only
        now, as most often all that was published is still as it was."""
        stored = self.columns(["interval_start", "interval_end", "table_version"])
        begin, end, versions = (_numbers(column) for column in stored.columns)
        return begin, end, versions

    @cached_property
    def is_since_first(self) -> NDArray[np.bool_]:
        """Mask of those with answers of windows since the first event (n,), as their records have origins."""
        text = self.columns(["record"])["record"].combine_chunks()
        return pc.fill_null(pc.match_substring(text, '"origins": {"'), False).to_numpy(zero_copy_only=False)

    @cached_property
    def all_standing(self) -> NDArray[np.bool_]:
        """Return which publications are in force (n,): no later publication covers their intervals
        (:func:`standing`).
        """
        begin, end, versions = (column.tolist() for column in self.results)
        is_standing = np.zeros(len(begin), dtype=bool)
        is_standing[_uncovered(sorted(range(len(begin)), key=lambda number: -versions[number]), begin, end)] = True
        return is_standing

    def stands(self, number: int) -> bool:
        """Return whether a publication is in force: no later publication covers its interval (:func:`standing`)."""
        begin, end, versions = self.results
        covers = (begin <= begin[number]) & (end >= end[number])
        return not bool((covers & (versions > versions[number])).any())


def _numbers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.asarray(pc.fill_null(column.cast(pa.int64()), 0).to_numpy())


def publications_read(warehouse: Warehouse, since: int | None) -> Publications:
    """The publications of intervals that end after an instant (microseconds; None: all) and what decided them."""
    chosen = PUBLISHED if since is None else PUBLISHED & (ds.field("interval_end") > pa.scalar(since, INSTANT))
    with reading(warehouse.path("publish_log")):
        log = warehouse.dataset("publish_log", where=chosen)

    def columns(names: list[str]) -> pa.Table:
        with reading(warehouse.path("publish_log")):
            # of many groups of few rows each threads would wait for each other
            return log.to_table(names, filter=chosen, use_threads=False)

    is_known = "read" in log.schema.names  # an earlier Heddle has made it
    stored = columns(["at", "read"] if is_known else ["at"])
    lists = stored["read"].combine_chunks() if is_known else pa.nulls(len(stored), pa.list_(READ))
    reads, owner = pa.Table.from_struct_array(pc.list_flatten(lists)), pc.list_parent_indices(lists).to_numpy()
    is_told = lists.is_valid().to_numpy(zero_copy_only=False)
    return Publications(_numbers(stored["at"]), is_told, reads, owner, columns)


def logged_publications(warehouse: Warehouse, moments: Iterable[int]) -> list[LogRow]:
    """The publications that were logged at some moments, with their records, oldest first."""
    return rows(warehouse, PUBLISHED & written_at(moments))


def standing(publications: Iterable[LogRow]) -> list[LogRow]:
    """The publications in force, by their intervals: the newest of each interval, and none that one later publication
    covers.
    """
    rows = sorted(publications, key=lambda row: -(row.table_version or 0))
    numbers = _uncovered(range(len(rows)), [row.begin for row in rows], [row.end for row in rows])
    return sorted((rows[number] for number in numbers), key=lambda row: row.begin)


def _uncovered(newest_first: Iterable[int], begin: Sequence[int], end: Sequence[int]) -> list[int]:
    """Return the numbers of the intervals [begin, end) that none before covers. ``newest_first``: the numbers of
    all.
    """
    uncovered: list[int] = []
    # of the later publications those that no other holds: their begins and their ends ascend
    begins: list[int] = []
    ends: list[int] = []
    for number in newest_first:
        place = bisect_right(begins, begin[number])
        if place and ends[place - 1] >= end[number]:
            continue
        uncovered.append(number)
        low = bisect_left(begins, begin[number])
        high = bisect_right(ends, end[number], low)
        begins[low:high], ends[low:high] = [begin[number]], [end[number]]
    return uncovered


def unchecked(warehouse: Warehouse, begin: int | None = None, end: int | None = None) -> list[LogRow]:
    """The publications in force, of intervals that overlap (begin, end], whose answers were not all checked."""
    chosen = PUBLISHED
    if end is not None:
        chosen &= ds.field("interval_start") < pa.scalar(end, INSTANT)
    if begin is not None:
        chosen &= ds.field("interval_end") > pa.scalar(begin, INSTANT)
    publications = rows(warehouse, chosen)
    # most records are long, and say that everything was checked
    if not any(f'"checked": "{level}"' in (row.text or "") for row in publications for level in ("sample", "none")):
        return []
    return [row for row in standing(publications) if row.record.checked != "all"]


def same_publication(warehouse: Warehouse, plan: SharingPlan, begin: int, end: int, content: str) -> LogRow | None:
    """The newest publication of an interval if it has the same content, nothing that overlaps the interval was
    published since, and no answers of the plan's queries were deleted."""
    row = newest_publication(warehouse, begin, end)
    same = row is not None and (row.begin, row.end, row.content) == (begin, end, content)
    return row if row is not None and same and not deleted_since(warehouse, plan, row) else None


def newest_publication(warehouse: Warehouse, begin: int, end: int) -> LogRow | None:
    """The newest publication that overlaps [begin, end); None if the results table has lost its commit."""
    publications = overlapping(warehouse, begin, end, PUBLISHED)
    row = max(publications, key=lambda row: row.table_version or 0, default=None)
    return None if row is None or _is_lost(warehouse.table("results"), row) else row


def lost_publications(warehouse: Warehouse) -> list[LogRow]:
    """The newest publications whose commits the results table no longer has, by their begin: commits of its log have
    disappeared, or an older copy of the table was put in its place. The newest :data:`LOOKED_AT` are looked at."""
    results, newest = warehouse.table("results"), dict[tuple[int, int], LogRow]()
    for row in newest_rows(warehouse, "at", PUBLISHED, LOOKED_AT, records=False):
        newest.setdefault((row.begin, row.end), row)
    return sorted((row for row in newest.values() if _is_lost(results, row)), key=lambda row: row.begin)


def check_commits(warehouse: Warehouse) -> None:
    """Raises HDL-533 if the results table has lost the commits of publications."""
    lost = lost_publications(warehouse)
    if lost:
        raise lost_commits(lost)


def lost_commits(lost: Sequence[LogRow]) -> HeddleError:
    """HDL-533, of the publications that are lost."""
    intervals = ", ".join(row.interval for row in lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
    return HeddleError(
        "HDL-533",
        f"the results table has lost the commits of {intervals}",
        "put results/_delta_log back as it was, from a copy; or publish the intervals again: `heddle repair`",
    )


def _is_lost(results: DeltaTable, row: LogRow) -> bool:
    return (results.transaction_version(f"results/{row.interval}") or 0) < row.revision


def overlapping(warehouse: Warehouse, begin: int, end: int, where: ds.Expression, records: bool = True) -> list[LogRow]:
    """The rows, of those that meet a condition, whose intervals overlap [begin, end)."""
    overlaps = (ds.field("interval_start") < pa.scalar(end, INSTANT)) & (
        ds.field("interval_end") > pa.scalar(begin, INSTANT)
    )
    return rows(warehouse, overlaps & where, records)


def deleted_since(warehouse: Warehouse, plan: SharingPlan, publication: LogRow) -> bool:
    """Return whether answers of a plan's queries were deleted by name after a publication."""
    later = (ds.field("event") == "deleted") & (ds.field("table_version") > publication.table_version)
    deleted = {name for row in rows(warehouse, later) for name in row.deleted}
    return any(query.name in deleted for query in plan.workload.queries)


def revision_of(warehouse: Warehouse, record: RunRecord, content: str, recompute: bool) -> int:
    """The revision of this run: the one it was given before if it is a retry, else the next of the interval."""

    def step(token: int) -> int:
        since = warehouse.version("publish_log")
        known = rows_of_interval(warehouse, record.begin, record.end)
        published = {row.revision for row in known if row.event == "published"}
        for row in known:
            again = (row.event, row.run_id, row.content) == ("allocated", record.run_id, content)
            if again and row.revision not in published and row.revision > max(published, default=0):
                return row.revision
        revision = 1 + max((row.revision for row in known), default=0)
        allocation = _row_of(record, "allocated", content, None, revision)
        warehouse.append("publish_log", [allocation.to_row()], token, since=since)
        return revision

    return warehouse.leased(step)


def blocked_content(content: str, blocked: Collection[str]) -> str:
    """The content of a publication without the answers of some queries: another than that of any run, so that a run
    over the interval judges them again."""
    return digest([content, "blocked", sorted(blocked)]) if blocked else content


def note_content(warehouse: Warehouse, record: RunRecord, content: str) -> None:
    """Note that a run is about to publish another content under its revision, and what it has recorded by now. If it
    dies before it logs the publication, that is what is logged (:func:`reconcile`)."""

    def step(token: int) -> None:
        since = warehouse.version("publish_log")
        row = _row_of(record, "allocated", content, None, record.revision)
        warehouse.append("publish_log", [row.to_row()], token, since=since)

    warehouse.leased(step)


def reconcile(warehouse: Warehouse, begin: int, end: int) -> None:
    """Log the publications that a crash prevented from being logged, of every interval that overlaps [begin, end). The
    results table is the truth.
    """
    if not _unlogged(warehouse, begin, end):
        return

    def step(token: int) -> None:
        since = warehouse.version("publish_log")
        lost = [
            replace(row, event="published", answers=_answers_of(warehouse, row), table_version=version, at=now_micros())
            for row, version in _unlogged(warehouse, begin, end)
        ]
        warehouse.append("publish_log", [row.to_row() for row in lost], token, since=since)

    warehouse.leased(step)


def _unlogged(warehouse: Warehouse, begin: int, end: int) -> list[tuple[LogRow, int]]:
    """The revisions that were given out and are not in the log as published, but in the table's log; with the version
    of the table that they made, 0 if that is too long ago."""
    known = overlapping(warehouse, begin, end, ds.field("event").isin(["allocated", "published"]))
    logged = {(row.interval, row.revision) for row in known if row.event == "published"}
    results = warehouse.table("results")
    unlogged = []
    # the newest of a revision has what it came to
    allocated = {(row.interval, row.revision): row for row in known if row.event == "allocated"}
    for row in allocated.values():
        if (row.interval, row.revision) in logged:
            continue
        application = f"results/{row.interval}"
        newest = results.transaction_version(application) or 0
        if newest >= row.revision:
            version = warehouse.committed("results", application, row.revision, row.at)
            if version is not None or newest == row.revision:
                unlogged.append((row, version or 0))
    return unlogged


def interval_label(begin: int, end: int) -> str:
    """An interval (microseconds) as text, by which its commits to ``results`` are known."""
    return f"{format_instant(begin)}/{format_instant(end)}"


def _answers_of(warehouse: Warehouse, row: LogRow) -> int:
    """Number of answers that the publication of a log row left in the results table."""
    revision = (ds.field("run_id") == row.run_id) & (ds.field("revision") == row.revision)
    begin, end = pa.scalar(row.begin, INSTANT), pa.scalar(row.end, INSTANT)
    chosen = revision & (ds.field("instant") > begin) & (ds.field("instant") <= end)
    return int(warehouse.dataset("results", where=chosen).count_rows(filter=chosen))


def now_micros() -> int:
    """Now, in microseconds."""
    return time.time_ns() // 1000


def _row_of(record: RunRecord, event: Event, content: str | None, table_version: int | None, revision: int) -> LogRow:
    return LogRow(
        record.begin,
        record.end,
        revision,
        record.run_id,
        event,
        record.plan_version,
        content,
        record.answers,
        table_version,
        now_micros(),
        json.dumps(record.to_json()),
    )


def log_event(
    warehouse: Warehouse, record: RunRecord, event: Event, content: str | None, table_version: int | None
) -> None:
    """Log the end of a run: ``published`` or ``failed``. A publication is logged only once, also if several runs log
    it.
    """

    def step(token: int) -> None:
        since = warehouse.version("publish_log")
        logged = any(
            row.event == "published" and row.revision == record.revision
            for row in rows_of_interval(warehouse, record.begin, record.end)
        )
        # another attempt of this run, or a run that found its answers, may have been first
        if event != "published" or not logged:
            row = _row_of(record, event, content, table_version, record.revision)
            warehouse.append("publish_log", [row.to_row()], token, since=since)
        if record.rows_without_time:
            done = (f"quarantine/{interval_label(record.begin, record.end)}", record.revision)
            quarantine.log(warehouse, _without_time(record), token, done)

    warehouse.leased(step)


def _without_time(record: RunRecord) -> list[LeftOut]:
    """Events that a run skipped because they have no time, by stream and file."""
    now = now_micros()
    return [
        quarantine.without_time(record.run_id, stream, file, rows, now)
        for stream, files in record.without_time.items()
        for file, rows in files.items()
    ]


def deletion(
    names: Sequence[str], first: int, last: int, answers: int, plan_version: int, table_version: int
) -> LogRow:
    """The log row of a deletion by name: of ``answers`` answers, at the instants [first, last] (microseconds)."""
    return LogRow(
        first - 1,
        last,
        0,
        "heddle remove",
        "deleted",
        plan_version,
        None,
        answers,
        table_version,
        now_micros(),
        json.dumps({"queries": list(names)}),
    )


def log_end(warehouse: Warehouse, record: RunRecord, error: BaseException, stage: str) -> bool:
    """Log why a run ends in a stage, unless that was logged or the run has published all the same; whether it has."""
    diagnostic = finding(error)
    if stage == "audit" and isinstance(error, Exception) and not isinstance(error, HeddleError):
        diagnostic = Diagnostic("HDL-531", f"a check crashed: {diagnostic.message}")
    if diagnostic.to_json() in record.diagnostics:
        return False
    # the error is what has to be told, not that the log cannot be written either
    with suppress(HeddleError, OSError):
        if stage == "publish":
            reconcile(warehouse, record.begin, record.end)
            for row in rows_of_interval(warehouse, record.begin, record.end):
                if row.event == "published" and row.revision == record.revision:
                    return True
        record.diagnostics.append(diagnostic.to_json())
        log_event(warehouse, record, "failed", None, None)
    return False


def refuse(warehouse: Warehouse, record: RunRecord, code: str, message: str, hint: str = "") -> None:
    """Log that a run has failed for a reason, and raise that as an error."""
    diagnostics = [Diagnostic(code, message, hint), *(Diagnostic(**diagnostic) for diagnostic in record.diagnostics)]
    record.diagnostics = [diagnostic.to_json() for diagnostic in diagnostics]
    log_event(warehouse, record, "failed", None, None)
    raise HeddleError.of(*diagnostics)


def coded_error(error: Exception) -> HeddleError:
    """The coded error that a task raised, out of the text that Spark makes of it; any other error is raised again."""
    if isinstance(error, HeddleError):
        return error
    match = re.search(r"HeddleError: (?:error )?(HDL-\d+) (.*)(?:\n    hint: (.*))?", str(error))
    if match is None:
        raise error
    return HeddleError(match.group(1), match.group(2), match.group(3) or "")
