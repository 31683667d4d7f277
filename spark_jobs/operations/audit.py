"""Recomputes published answers on demand: the value of ``heddle audit``."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.windows.alignment import day_label
from optimizer.workload.attributes import attributes_in
from optimizer.workload.instants import format_instant
from optimizer.workload.values import ACQ
from spark_jobs.audit.checks.kinds import AUDITS
from spark_jobs.audit.checks.recompute import Difference, Drawn, EventsHeld, compared
from spark_jobs.audit.checks.row_windows import compared_rows
from spark_jobs.audit.checks.sampling import Past, Units, systematic
from spark_jobs.audit.checks.staged_answers import Staged, units_of
from spark_jobs.engine.choice import Engine
from spark_jobs.operations.audited_versions import noted_versions
from spark_jobs.pipeline.run.narrowing import changed_windows
from spark_jobs.pipeline.run.preparation import listed, plan_without, prepare
from spark_jobs.pipeline.run.values import PreparedRun, RunRequest
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.data_files import reading
from spark_jobs.store.warehouse.plans import load_plan
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.schemas import INSTANT
from spark_jobs.store.warehouse.warehouse import Warehouse

if TYPE_CHECKING:
    from spark_jobs.pipeline.run.values import Report

EVENTS_AT_ONCE = 500_000
"""Events, counted once for each window that holds them, that are recomputed at once."""

WINDOWS_AT_ONCE = 64


@dataclass
class Recomputation:
    """Result of recomputing published answers: the numbers of ``answers``, ``windows`` and ``intervals`` that were
    compared, the ``wrong`` answers, and the ``outdated`` ones, which differ, but in windows whose sources have
    changed since. ``notes``: what was recomputed in another way, or not, and why.
    """

    intervals: int = 0
    windows: int = 0
    answers: int = 0
    wrong: list[Difference] = field(default_factory=list)
    outdated: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The fields as ``heddle audit --json`` prints them."""
        return {
            "intervals": self.intervals,
            "windows": self.windows,
            "answers": self.answers,
            "wrong": [difference.to_json() for difference in self.wrong],
            "outdated": [difference.to_json() for difference in self.outdated],
            "notes": self.notes,
        }


def recompute_published(
    warehouse: Warehouse,
    begin: int,
    end: int,
    share: float,
    clock: int,
    engine: Engine,
    report: Report,
    seed: str = "",
) -> Recomputation:
    """Recompute a share of the windows that end in (begin, end], microseconds, from raw events, and compare.

    Of overlapping intervals the one that was published last counts. Raises HDL-508 if nothing is published there.
    """
    rows = publish_log.overlapping(warehouse, begin, end, publish_log.PUBLISHED)
    if not rows:
        raise HeddleError("HDL-508", "nothing is published between --from and --to", "see `heddle status`")
    recomputation, covered = Recomputation(), list[tuple[int, int]]()
    chance = random.Random(seed)
    for row in _newest(rows):
        report(f"{format_instant(row.begin)} .. {format_instant(row.end)}")
        spans = _outside((max(row.begin, begin), min(row.end, end)), covered)
        if spans:
            recomputation.intervals += 1
            _recompute_interval(warehouse, row, spans, share, clock, engine, chance, recomputation)
        covered.append((row.begin, row.end))
    return recomputation


def _newest(rows: Sequence[LogRow]) -> Iterator[LogRow]:
    """The newest publication of each interval, the latest first."""
    seen: set[tuple[int, int]] = set()
    for row in sorted(rows, key=lambda row: -(row.table_version or 0)):
        if (row.begin, row.end) not in seen:
            seen.add((row.begin, row.end))
            yield row


def _outside(span: tuple[int, int], covered: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Parts of a span that no other covers."""
    uncovered = [span] if span[1] > span[0] else []
    for low, high in covered:
        uncovered = [
            piece
            for start, end in uncovered
            for piece in ((start, min(end, low)), (max(start, high), end))
            if piece[1] > piece[0]
        ]
    return uncovered


def _recompute_interval(
    warehouse: Warehouse,
    row: LogRow,
    spans: Sequence[tuple[int, int]],
    share: float,
    clock: int,
    engine: Engine,
    chance: random.Random,
    result: Recomputation,
) -> None:
    plan = load_plan(warehouse, row.plan_version)
    versions = noted_versions(warehouse, row)
    listing = listed(warehouse, plan, clock, within=(row.begin, row.end), versions_used=versions.newest)
    request = RunRequest(row.plan_version, row.begin, row.end, "audit", clock, late=row.record.late)
    prepared = prepare(warehouse, plan, request, listing)
    result.notes += [f"{problem['code']} {problem['message']}" for problem in listing.problems]
    ends = {
        name: min(at, row.record.answered_until.get(name, row.end))
        for name, at in prepared.ends.items()
        if name not in row.record.failed
    }
    changed = _changed(warehouse, prepared, row)
    # what was reported for the run, or deleted since, was not answered
    without = {
        diagnostic["query"]
        for diagnostic in row.record.diagnostics
        if diagnostic.get("query") and diagnostic["severity"] == "error"
    }
    without |= _deleted(warehouse, row)
    reduced = plan_without(prepared.plan, sorted(without & {query.name for query in prepared.plan.workload.queries}))
    # answers since the first event are over the files that were known then
    known: dict[int | None, list[str]] = {}
    for query in reduced.workload.queries:
        known.setdefault(row.record.known.get(query.name), []).append(query.name)
    for moment, names in known.items():
        then = prepared if moment is None else prepare(warehouse, plan, request, listing.known_at(moment))
        others = [query.name for query in then.plan.workload.queries if query.name not in names]
        part = plan_without(then.plan, others)
        plans = [part, *versions.other_plans(part)]
        _recompute_queries(warehouse, row, spans, share, engine, chance, then, plans, ends, changed, result)


def _recompute_queries(
    warehouse: Warehouse,
    row: LogRow,
    spans: Sequence[tuple[int, int]],
    share: float,
    engine: Engine,
    chance: random.Random,
    prepared: PreparedRun,
    plans: Sequence[SharingPlan],
    ends: Mapping[str, int],
    changed: Mapping[str, NDArray[np.int64] | None],
    result: Recomputation,
) -> None:
    """Recompute some queries of an interval. ``plans``: as for :func:`_compare`."""
    queries = [query for query in plans[0].workload.queries if query.stream in ends]
    with tempfile.TemporaryDirectory(prefix="heddle-audit-") as folder:
        staged = Staged(_copied(warehouse, spans, Path(folder)))
        units = units_of(staged, queries, prepared.sources, row.begin, ends, Past())
        drawn = [_drawn(of_query, spans, share, chance) for of_query in units.values()]
        sample = [each for each in drawn if each.numbers]
        result.windows += sum(len(each.numbers) for each in sample)
        result.answers += sum(int(each.units.answers[list(each.numbers)].sum()) for each in sample)
        for chunk in _chunks(sample, {name: EventsHeld(prepared.sources[name]) for name in ends}):
            _compare(engine, staged, plans, prepared, chunk, changed, result)


def _compare(
    engine: Engine,
    staged: Staged,
    plans: Sequence[SharingPlan],
    prepared: PreparedRun,
    chunk: Sequence[Drawn],
    changed: Mapping[str, NDArray[np.int64] | None],
    result: Recomputation,
) -> None:
    """Compare the answers of a chunk. ``plans``: the plan with each choice of its dimensions' versions; an answer is
    right if it is by one of them, as it used one."""
    differences = _differences(engine, staged, plans[0], prepared, chunk, result)
    for plan in plans[1:]:
        names = {difference.query for difference in differences}
        joined = {query.name for query in plan.workload.queries if _joins(plan, query)} & names
        if not joined:
            break
        again = [each for each in chunk if each.units.query.name in joined]
        wrong = {_answer(each) for each in _differences(engine, staged, plan, prepared, again, result)}
        differences = [each for each in differences if each.query not in joined or _answer(each) in wrong]
    ago = {query.name: query.window.end_before for query in plans[0].workload.queries}
    for difference in differences:
        instant = difference.end + ago[difference.query]
        at = changed.get(difference.query, np.zeros(0, np.int64))
        is_outdated = at is None or bool(np.isin(instant, at).any())
        (result.outdated if is_outdated else result.wrong).append(difference)


def _answer(difference: Difference) -> tuple[str, int, tuple[str | None, ...]]:
    """The answer that differs."""
    return difference.query, difference.end, difference.group


def _joins(plan: SharingPlan, query: ACQ) -> bool:
    return bool(attributes_in(plan.workload.stream(query.stream), query.columns()))


def _differences(
    engine: Engine,
    staged: Staged,
    plan: SharingPlan,
    prepared: PreparedRun,
    chunk: Sequence[Drawn],
    result: Recomputation,
) -> list[Difference]:
    """The differences of the answers of a chunk; notes how they were looked for."""
    checks = []
    for by_key, recompute in ((False, compared), (True, compared_rows)):
        sample = [each for each in chunk if AUDITS[each.units.query.kind].by_key == by_key]
        checks += recompute(engine, staged, plan, prepared.sources, sample)
    for check in checks:
        result.notes += [note for note in [check["noted"]] if note and note not in result.notes]
    return [difference for check in checks for difference in check["differences"]]


def _changed(warehouse: Warehouse, prepared: PreparedRun, row: LogRow) -> Mapping[str, NDArray[np.int64] | None]:
    """The instants of each query whose windows may be others than when they were published; None: all of them."""
    if prepared.content == row.content:
        return {}
    changed = dict(changed_windows(warehouse, prepared, prepared.work, prepared.sources, prepared.ends, row).instants)
    if prepared.basis != row.record.basis:
        # more than files has changed: how a stream is declared, or what Heddle makes of a definition
        changed |= dict.fromkeys(query.name for query in prepared.plan.workload.queries)
    return changed


def _deleted(warehouse: Warehouse, row: LogRow) -> set[str]:
    """The queries whose answers were deleted by name since."""
    later = (ds.field("event") == "deleted") & (ds.field("table_version") > (row.table_version or 0))
    return {name for each in publish_log.rows(warehouse, later) for name in each.deleted}


def _copied(warehouse: Warehouse, spans: Sequence[tuple[int, int]], folder: Path) -> list[str]:
    """A file with the published answers of instants in some spans (begin, end]."""
    low, high = min(low for low, _ in spans), max(high for _, high in spans)
    days = (ds.field("day") >= day_label(low)) & (ds.field("day") <= day_label(high - 1))
    inside = (ds.field("instant") > pa.scalar(low, INSTANT)) & (ds.field("instant") <= pa.scalar(high, INSTANT))
    with reading(warehouse.path("results")):
        stored = warehouse.dataset("results", where=days & inside).to_table(filter=days & inside)
    at = stored["instant"].cast(pa.int64()).to_numpy()
    chosen = np.zeros(len(at), dtype=bool)
    for begin, end in spans:
        chosen |= (at > begin) & (at <= end)
    path = folder / "answers.parquet"
    rows = stored.drop_columns(["day"]).filter(pa.array(chosen))
    order = pc.sort_indices(rows, [(name, "ascending") for name in ("query", "key", "instant")])
    pq.write_table(rows.take(order), path, row_group_size=1 << 17)
    return [str(path)]


def _drawn(units: Units, spans: Sequence[tuple[int, int]], share: float, chance: random.Random) -> Drawn:
    """Each window of a query with the same probability."""
    ends = AUDITS[units.query.kind].last_instants(units)
    inside = np.zeros(len(ends), dtype=bool)
    for low, high in spans:
        inside |= (ends > low) & (ends <= high)
    numbers = np.flatnonzero(inside)
    chosen = systematic(np.full(len(numbers), min(share, 1.0)), chance.random())
    return Drawn(units, tuple(int(numbers[at]) for at in chosen), None, tuple(spans))


def _chunks(sample: Sequence[Drawn], by_stream: Mapping[str, EventsHeld]) -> Iterator[list[Drawn]]:
    """The sample in pieces that are recomputed at once, whose windows lie together."""
    for each in sample:
        spans = [(int(each.units.starts[at]), int(each.units.ends[at])) for at in each.numbers]
        events = by_stream[each.units.query.stream].of_spans(spans)
        piece, size = list[int](), 0.0
        for number, count in zip(each.numbers, events.tolist(), strict=True):
            if piece and (size + count > EVENTS_AT_ONCE or len(piece) >= WINDOWS_AT_ONCE):
                yield [each._replace(numbers=tuple(piece))]
                piece, size = [], 0.0
            piece.append(number)
            size += count
        if piece:
            yield [each._replace(numbers=tuple(piece))]
