"""Drop the fine partial aggregates of days that levels cover, as far as the owner of a stream allows it.

``levels: {keep_fine: 90 days}`` of a stream: rows of fragments that are older, by the time of their events before the
newest published instant or the watermark, go if the level of their day is stored and of the same state of the source.
Levels stay. Each month goes in one commit, which also notes in the marks of the days' levels that their fragments were
dropped (:mod:`spark_jobs.windows.partials.dropped_fine`): what ends in between leaves complete months. What a run
needs of the fragments later it lifts again from the events.

Synopses that join a dimension early keep all of their fragments: of these their levels are made again when the
dimension changes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.plan.fine_partials import is_long, kept_fine
from optimizer.synopses.synopsis import Synopsis, period_levels
from optimizer.windows.alignment import day_label
from optimizer.workload.attributes import attributes_in
from optimizer.workload.instants import DAY, duration_text, format_instant
from optimizer.workload.values import Stream
from spark_jobs.pipeline.run.preparation import listed
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.data_files import is_of_levels, now_millis, read_file, write_files
from spark_jobs.store.warehouse.plans import current_version, load_plan, recent_plans
from spark_jobs.store.warehouse.schemas import PARTIALS
from spark_jobs.store.warehouse.warehouse import Warehouse, added
from spark_jobs.streams.sources.repetitions import distinct
from spark_jobs.streams.sources.splits import Split, Tokens
from spark_jobs.windows.partials import levels
from spark_jobs.windows.partials.dropped_fine import DroppedDay, dropped_days
from spark_jobs.windows.partials.fill_request import columns_of_synopsis
from spark_jobs.windows.partials.levels import contiguous
from spark_jobs.windows.partials.stored_coverage import EVER, coverage, stored_for
from spark_jobs.windows.partials.stored_marks import StoredMarks

Piece = tuple[int, int, str]
"""A complete piece [begin, end) of a synopsis, and the name of the content that it was computed from."""


@dataclass
class DroppedFine:
    """Fine partial aggregates of a stream that maintenance dropped, or would drop.

    Parameters
    ----------
    stream
        Its name.
    keep_fine
        How long they are kept (microseconds): as declared, or as long as ``raised_by`` needs; None: all are.
    raised_by
        The query whose windows begin or end further back than is declared; None: none does.
    until
        Those of days that end until then are dropped (microseconds); None: no interval is published.
    days, rows, bytes
        Days of synopses, rows and about how many bytes were dropped.
    levels
        Rows of the levels of these days, which stay.
    problem
        Why nothing could be dropped; empty: nothing went wrong.
    """

    stream: str
    keep_fine: int | None
    raised_by: str | None = None
    until: int | None = None
    days: int = 0
    rows: int = 0
    bytes: int = 0
    levels: int = 0
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """The fields as ``heddle maintain --json`` prints them, without what does not apply."""
        until = None if self.until is None else format_instant(self.until)
        keep_fine = None if self.keep_fine is None else duration_text(self.keep_fine)
        fields = {"stream": self.stream, "keep_fine": keep_fine, "raised_by": self.raised_by}
        fields |= {"until": until, "problem": self.problem or None}
        counts = {"days": self.days, "rows": self.rows, "bytes": self.bytes, "levels": self.levels}
        return {name: value for name, value in fields.items() if value is not None} | counts


def drop_fine(
    warehouse: Warehouse, dry_run: bool = False, report: Callable[[str], None] = lambda line: None
) -> list[DroppedFine]:
    """Drop what the streams of the plan in force allow. Return what was dropped, for each stream that allows some."""
    version = current_version(warehouse)
    plan = load_plan(warehouse, version) if version is not None else None
    allowing = [stream for stream in plan.workload.streams if stream.keep_fine is not None] if plan else []
    if plan is None or not allowing:
        return []
    newest = publish_log.newest_rows(warehouse, "interval_end", publish_log.PUBLISHED, 1, records=False)
    clock = time.time_ns() // 1000
    listing = listed(warehouse, plan, clock)
    results = []
    for stream in allowing:
        keeping = kept_fine(plan, stream.name, levels.LONG)
        assert keeping is not None
        result = DroppedFine(stream.name, *keeping)
        results.append(result)
        splits = listing.sources.get(stream.name)
        if not newest:
            continue
        result.until = min(newest[0].end, clock - stream.lateness) - keeping.duration
        if splits is None:
            problems = [problem["message"] for problem in listing.problems if stream.name in problem["message"]]
            result.problem = "; ".join(problems) or "the stream cannot be read"
            continue
        report(f"dropping fine partial aggregates of {stream.name}")
        try:
            candidates = _candidates(warehouse, plan, listing.streams[stream.name], splits, result.until)
            for month in _by_month(candidates):
                step = partial(_drop_month, warehouse, month, listing.arrivals[stream.name].newest, dry_run, result)
                warehouse.leased(step)
        except HeddleError as error:
            result.problem = f"{error.diagnostic.code} {error.diagnostic.message}"
    return results


@dataclass
class _Candidates:
    """Pieces of a synopsis that may be dropped, and the marks of the levels of the days that cover them."""

    synopsis: Synopsis
    pieces: list[Piece] = field(default_factory=list)
    days: list[Piece] = field(default_factory=list)

    @property
    def level(self) -> Synopsis:
        return period_levels(self.synopsis)[0]


def _candidates(
    warehouse: Warehouse, plan: SharingPlan, stream: Stream, splits: list[Split], until: int
) -> list[_Candidates]:
    """Pieces of a stream's synopses, computed from its files as they are now, of days that end ``until`` then at the
    latest and have a level of the same content."""
    synopses: dict[str, Synopsis] = {}
    for each in (plan, *recent_plans(warehouse)):
        for tree in (tree for tree in each.trees if tree.stream == stream.name):
            for synopsis in tree.stored_synopses(each.workload.stream(stream.name)):
                is_joined = attributes_in(stream, columns_of_synopsis(synopsis))
                if synopsis.kind.has_fragments and synopsis.period is None and not is_joined:
                    synopses[synopsis.fingerprint] = synopsis
    within = EVER, until
    levels_by_name = {period_levels(synopsis)[0].fingerprint: synopsis for synopsis in synopses.values()}
    stored_days = coverage(warehouse, sorted(levels_by_name), within)
    if not stored_days:
        return []
    first = min(pieces[0][0] for pieces in stored_days.values())
    tokens: Tokens = {}
    splits = distinct(warehouse, stream, splits, first, until)
    stored = coverage(warehouse, [levels_by_name[name].fingerprint for name in stored_days], within)
    candidates = []
    for name, days in sorted(stored_days.items()):
        synopsis = levels_by_name[name]
        is_current = stored_for(synopsis, splits, tokens)
        days = [day for day in days if day[1] <= until and is_current(day[2], day[0], day[1])]
        covered = contiguous([day[:2] for day in days])
        pieces = [
            piece
            for piece in stored.get(synopsis.fingerprint, [])
            if any(begin <= piece[0] and piece[1] <= end for begin, end in covered)
            and is_current(piece[2], piece[0], piece[1])
        ]
        if pieces:
            candidates.append(_Candidates(synopsis, pieces, days))
    return candidates


def _by_month(candidates: Sequence[_Candidates]) -> list[list[_Candidates]]:
    """Group what may be dropped by the months in which pieces begin, ascending."""
    months: dict[str, dict[str, _Candidates]] = {}
    for each in candidates:
        for piece in each.pieces:
            of_month = months.setdefault(day_label(piece[0])[: len("2020-01")], {})
            of_month.setdefault(each.synopsis.fingerprint, replace(each, pieces=[])).pieces.append(piece)
    return [list(of_month.values()) for _, of_month in sorted(months.items())]


class _Amount(NamedTuple):
    """The rows of a day of a synopsis that were dropped, and about how many bytes they took."""

    rows: int = 0
    bytes: float = 0.0


Amounts = dict[tuple[str, int], _Amount]
"""Amounts that are dropped, by the fingerprint of the level and the begin of its day."""


def _drop_month(
    warehouse: Warehouse, month: Sequence[_Candidates], seen: int, dry_run: bool, result: DroppedFine, token: int
) -> None:
    """Drop the pieces of a month that are still stored below levels, in one commit, and note it in the marks of the
    levels. ``seen``: the newest entry of the stream's ledger."""
    current = warehouse.table("partials")
    pieces = _still_covered(warehouse, month, current)
    if not any(pieces.values()):
        return
    levels_of = {each.synopsis.fingerprint: each.level.fingerprint for each in month}
    spans = [piece for of_synopsis in pieces.values() for piece in of_synopsis]
    first, last = min(begin for begin, _ in spans), max(end for _, end in spans)
    amounts: Amounts = {}
    actions: list[AddAction | RemoveAction] = []
    for file in warehouse.files("partials", day_label(first), day_label(last - 1), current):
        if is_of_levels(file["day"]) or file["max.fragment_start"] < first or file["min.fragment_start"] >= last:
            continue
        rows = _rows(warehouse, file)
        is_dropped = _inside(rows, pieces)
        if is_dropped.any():
            _count(rows.filter(pa.array(is_dropped)), levels_of, file["size"] / len(rows), amounts)
            actions += [] if dry_run else _rewritten(warehouse, file, rows.filter(pa.array(~is_dropped)))
    levels_stored = 0
    labels = {day_label(begin)[: len("2020-01")] for _, begin in amounts}
    for file in warehouse.files("partials", min(labels), max(labels), current) if labels else ():
        if file["day"] in labels:
            rows = _rows(warehouse, file)
            noted, count = _noted(rows, amounts, seen)
            levels_stored += count
            actions += [] if dry_run or noted is rows else _rewritten(warehouse, file, noted)
    if actions:
        warehouse.commit("partials", current, actions, token)
    result.days, result.levels = result.days + len(amounts), result.levels + levels_stored
    result.rows += sum(amount.rows for amount in amounts.values())
    result.bytes += round(sum(amount.bytes for amount in amounts.values()))


def _still_covered(
    warehouse: Warehouse, month: Sequence[_Candidates], current: DeltaTable
) -> dict[str, list[tuple[int, int]]]:
    """The pieces of a month that are stored as they were, below levels that are as they were; by fingerprint."""
    names = [name for each in month for name in (each.synopsis.fingerprint, each.level.fingerprint)]
    spans = sorted({piece[:2] for each in month for piece in each.pieces})
    stored = StoredMarks(warehouse).under(current, names, spans)
    pieces: dict[str, list[tuple[int, int]]] = {}
    for each in month:
        days = set(stored.get(each.level.fingerprint, ())).intersection(each.days)
        covered = contiguous(sorted(day[:2] for day in days))
        unchanged = set(stored.get(each.synopsis.fingerprint, ())).intersection(each.pieces)
        for begin, end in sorted(piece[:2] for piece in unchanged):
            if any(first <= begin and end <= last for first, last in covered):
                pieces.setdefault(each.synopsis.fingerprint, []).append((begin, end))
    return pieces


def _rows(warehouse: Warehouse, file: Mapping[str, Any]) -> pa.Table:
    """All rows of a file of partials, with all columns."""
    rows = read_file(warehouse.place / "partials" / file["path"])
    columns = {field.name: pa.nulls(len(rows), field.type) for field in PARTIALS}
    columns |= {name: rows[name] for name in rows.schema.names}
    return pa.table(columns | {"day": pa.array([file["day"]] * len(rows), pa.string())}).cast(PARTIALS)


def _rewritten(warehouse: Warehouse, file: Mapping[str, Any], rows: pa.Table) -> Iterator[AddAction | RemoveAction]:
    """The actions that put some rows in the place of a file."""
    yield RemoveAction(file["path"], True, now_millis(), file["size"], {"day": file["day"]})
    yield from map(added, write_files(warehouse.path("partials"), rows) if len(rows) else ())


def _inside(rows: pa.Table, pieces: Mapping[str, Sequence[tuple[int, int]]]) -> NDArray[np.bool_]:
    """Mask of the rows (n,) of fragments, and their marks, in some pieces."""
    starts, names = rows["fragment_start"].to_numpy(), rows["fingerprint"].to_numpy(zero_copy_only=False)
    inside = np.zeros(len(rows), dtype=bool)
    for name in set(names) & set(pieces):
        of_name = names == name
        for begin, end in pieces[name]:
            inside |= of_name & (starts >= begin) & (starts < end)
    return inside


def _count(rows: pa.Table, levels_of: Mapping[str, str], size: float, amounts: Amounts) -> None:
    """Add rows, of ``size`` bytes each, to the amounts of their days. Marks do not count."""
    of_groups = rows.filter(rows["key"].is_valid())
    days = of_groups["fragment_start"].to_numpy() // DAY * DAY
    for (name, day), count in Counter(zip(of_groups["fingerprint"].to_pylist(), days.tolist(), strict=True)).items():
        before = amounts.get((levels_of[name], day), _Amount())
        amounts[levels_of[name], day] = _Amount(before.rows + count, before.bytes + count * size)


def _noted(rows: pa.Table, amounts: Amounts, seen: int) -> tuple[pa.Table, int]:
    """Rows of levels with marks that note what is dropped below them, and how many rows of groups those levels have."""
    names, starts = rows["fingerprint"].to_pylist(), rows["fragment_start"].to_pylist()
    is_noted = np.array([pair in amounts for pair in zip(names, starts, strict=True)], dtype=bool)
    is_mark = is_noted & rows["key"].is_null().to_numpy()
    if not is_mark.any():
        return rows, int(is_noted.sum())
    marks = rows.filter(pa.array(is_mark)).to_pylist()
    for mark in marks:
        amount, span = (
            amounts[mark["fingerprint"], mark["fragment_start"]],
            (mark["fragment_start"], mark["fragment_end"]),
        )
        content, *before = mark["texts"]
        now = DroppedDay(*span, seen, amount.rows, round(amount.bytes))
        # of a day that was lifted again in part, most was dropped before
        most = max([now, *(DroppedDay.read(*span, text) for text in before)], key=lambda day: day.rows)
        mark["texts"] = [content, most._replace(seen=seen).text()]
    changed = pa.Table.from_pylist(marks, schema=PARTIALS)
    return pa.concat_tables([rows.filter(pa.array(~is_mark)), changed]), int((is_noted & ~is_mark).sum())


def dropped_fine(warehouse: Warehouse, plan: SharingPlan) -> list[DroppedFine]:
    """Fragments that are dropped of the streams of a plan; those of days that were lifted again do not count."""
    results = []
    for stream in plan.workload.streams:
        if not any(is_long(*pair, levels.LONG) for pair in plan.synopses(stream.name)):
            continue
        days = dropped_days(warehouse, stream.name)
        if days:
            result = DroppedFine(stream.name, stream.keep_fine, until=max(day.end for day in days))
            result.days, result.rows = len(days), sum(day.rows for day in days)
            result.bytes = sum(day.bytes for day in days)
            results.append(result)
    return results
