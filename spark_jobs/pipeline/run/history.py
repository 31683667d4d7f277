"""Answer past intervals again: backfills in few large runs, and intervals whose source has changed since publication.

Both are sequences of ordinary runs. A backfill that was interrupted continues where it was, because a run whose
content is already published changes nothing. A *repair* finds the intervals whose content is no longer what was
published (late events, removed files, windows that were withheld). It runs them again, as new revisions that reuse
the partial aggregates of unchanged times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optimizer.errors.diagnostics import HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.workload.instants import DAY
from optimizer.workload.values import Stream
from spark_jobs.pipeline.run import dimensions
from spark_jobs.pipeline.run.declarations import Declarations, columns_used
from spark_jobs.pipeline.run.estimate import Prices, RunEstimate
from spark_jobs.pipeline.run.narrowing import changed_by_declaration, changed_since
from spark_jobs.pipeline.run.preparation import listed, plan_without
from spark_jobs.pipeline.run.values import RunRequest
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.publish_log import LogRow, Publications
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.first_events import newest_removal
from spark_jobs.streams.sources.late_events import LateDataImpact
from spark_jobs.streams.sources.ledger import NOWHERE, Ledger, admitted, ledger, opened

MOST = 10_000
"""Runs that one backfill may have."""

LISTED_AT_ONCE = 7 * DAY
"""Microseconds of published intervals of which the sources are listed once."""


def chunks(begin: int, end: int, every: int = 7 * DAY) -> Iterator[tuple[int, int]]:
    """[begin, end) (microseconds) in pieces of ``every``, cut at its multiples since the epoch, so that a backfill over
    another span of the same history meets the same pieces."""
    if end <= begin:
        raise HeddleError("HDL-504", "the interval is empty: --to must be after --from")
    if (end - begin) // every > MOST:
        raise HeddleError("HDL-504", f"the interval takes more than {MOST:,} runs", "give a longer --every")
    while begin < end:
        last = min(end, begin - begin % every + every)
        yield begin, last
        begin = last


def prices(
    warehouse: Warehouse,
    plan_version: int,
    begin: int,
    end: int,
    clock: int,
    every: int = 7 * DAY,
    checks: str | None = None,
) -> list[RunEstimate]:
    """Estimates of the runs of a backfill, in order. Runs that are already published cost nothing."""
    plan = load_plan(warehouse, plan_version)
    spans, level = list(chunks(begin, end, every)), settings().checks if checks is None else checks
    following = Prices(warehouse, plan, listed(warehouse, plan, clock))
    return [
        following.price(RunRequest(plan_version, first, last, "price", clock, checks=level)) for first, last in spans
    ]


@dataclass(frozen=True)
class Outdated:
    """A published interval (microseconds) whose source or declaration has changed, of which ``revision``, and what
    changed."""

    begin: int
    end: int
    revision: int
    radius: LateDataImpact


def outdated(warehouse: Warehouse, clock: int, since: int | None = None) -> list[Outdated]:
    """The published intervals whose content is no longer what was published, by their begin.

    Intervals that a later publication covers are its business. An interval is judged by the plan that it was published
    by: a new plan makes nothing outdated, unless it declares otherwise what the queries of then used of a stream. How
    far back changes of a dimension revise answers is that of the newest plan.
    ``since`` (microseconds): only intervals that end later.

    Only those are looked at of which the ledger has an entry that is newer than what the publication knew, for times
    that it read: what is known of all others is what was known then.
    """
    known, declared = publish_log.publications_read(warehouse, since), Declarations.now(warehouse)
    newest = current_version(warehouse)
    current = None if newest is None else load_plan(warehouse, newest)
    joining = _joining_streams(warehouse, current)
    earlier = _on_other_versions(warehouse, joining, known, clock)
    doubt = np.union1d(_in_doubt(warehouse, known, declared, clock), earlier)
    chosen = [number for number in doubt.tolist() if known.stands(number)]
    moments = known.at[chosen].tolist()
    rows = publish_log.logged_publications(warehouse, moments) if chosen else []
    publication_keys = set(zip(*(each[chosen].tolist() for each in known.results), strict=True)) if chosen else set()
    intervals = []
    together: dict[tuple[int, tuple[str, ...]], list[LogRow]] = {}
    plans: dict[int, SharingPlan] = {}
    for row in sorted(rows, key=lambda row: row.begin):
        if (row.begin, row.end, row.table_version or 0) in publication_keys:
            version = row.plan_version
            if version not in plans:
                plans[version] = dimensions.with_repairs_of(load_plan(warehouse, version), current)
            plan = plans[version]
            together.setdefault((version, tuple(declared.differing(row, plan))), []).append(row)
    for (version, names), plan_rows in together.items():
        plan = plans[version]
        narrowed_plan = plan_without(plan, [query.name for query in plan.workload.queries if query.stream in names])
        for near in _near(plan_rows):
            within = min(row.begin for row in near), max(row.end for row in near)
            listing = listed(warehouse, narrowed_plan, clock, within=within)
            for row in near:
                radius = changed_since(warehouse, narrowed_plan, listing, row, clock, bool(names))
                if names:
                    radius = changed_by_declaration(plan, names, row, clock).joined(radius)
                if unreadable := _unreadable_dimensions(warehouse, joining, row, clock):
                    radius = LateDataImpact(0, 0, 0, (), 0, dimensions=unreadable).joined(radius)
                if radius is not None:
                    intervals.append(Outdated(row.begin, row.end, row.revision, radius))
    return sorted(intervals, key=lambda interval: interval.begin)


def note_refused(warehouse: Warehouse, plan_version: int, clock: int, note: str) -> int:
    """Enter new files into the ledgers, as a run named ``note`` does, and return the number of events of them that are
    refused because they are later than ``allowed_lateness``."""
    listing = listed(warehouse, load_plan(warehouse, plan_version), clock, note)
    return sum(file.late for arrivals in listing.arrivals.values() for file in arrivals.added.values() if file.is_here)


def _near(rows: Sequence[LogRow]) -> Iterator[list[LogRow]]:
    """Publications, by their begin, in pieces for each of which the sources are listed once."""
    piece: list[LogRow] = []
    for row in rows:
        if piece and row.end > piece[0].begin + LISTED_AT_ONCE:
            yield piece
            piece = []
        piece.append(row)
    if piece:
        yield piece


def _in_doubt(warehouse: Warehouse, known: Publications, declared: Declarations, clock: int) -> NDArray[np.int64]:
    """The numbers of the publications of which something that they read may have changed since."""
    doubt = ~known.is_told
    begins, ends, listed_at = (known.reads[name].to_numpy() for name in ("begin", "end", "listed"))
    names, noted = (known.reads[name].combine_chunks().dictionary_encode() for name in ("stream", "of"))
    # of a hundred thousand there are few pairs
    pairs = names.indices.to_numpy().astype(np.int64) * len(noted.dictionary) + noted.indices.to_numpy()
    for pair in np.flatnonzero(np.bincount(pairs)).tolist():
        name, of = (names.dictionary[pair // len(noted.dictionary)], noted.dictionary[pair % len(noted.dictionary)])
        positions = np.flatnonzero(pairs == pair)
        arrivals = _arrivals(warehouse, known, declared, name.as_py(), of.as_py(), known.owner[positions], clock)
        newer = np.ones(len(positions), dtype=bool)
        if arrivals is not None:
            newer = arrivals.newest_in(begins[positions], ends[positions]) > listed_at[positions]
            # what was in windows since the first event may be of any time
            is_shorter = listed_at[positions] < newest_removal(arrivals)
            if is_shorter.any():
                newer |= is_shorter & known.is_since_first[known.owner[positions]]
        doubt[known.owner[positions[newer]]] = True
    return np.flatnonzero(doubt)


def _joining_streams(warehouse: Warehouse, plan: SharingPlan | None) -> dict[str, Stream]:
    """The streams of a plan that join dimensions, by name, with those as they are now."""
    if plan is None or not any(stream.dimensions for stream in plan.workload.streams):
        return {}
    plan, _, _ = dimensions.pinned(warehouse, plan, is_noted=False)
    return {stream.name: stream for stream in plan.workload.streams if stream.dimensions}


def _on_other_versions(
    warehouse: Warehouse, joining: Mapping[str, Stream], known: Publications, clock: int
) -> NDArray[np.int64]:
    """The numbers of the publications with another version of a dimension whose changes revise them, or with a version
    of one that cannot be read now.
    """
    if not joining:
        return np.zeros(0, dtype=np.int64)
    ends, names, noted = known.results[1], known.reads["stream"].to_pylist(), known.reads["of"].to_pylist()
    notes = {(name, of) for name, of in zip(names, noted, strict=True) if name in joining}
    used = {(name, of): dimensions.versions_used(warehouse, joining[name], of) for name, of in notes}
    numbers = [
        owner
        for owner, name, of in zip(known.owner.tolist(), names, noted, strict=True)
        if name in joining
        and (
            dimensions.repaired_dimensions(joining[name], used[name, of], int(ends[owner]), clock)
            or dimensions.unreadable_dimensions(joining[name], used[name, of], int(ends[owner]), clock)
        )
    ]
    return np.unique(np.array(numbers, dtype=np.int64))


def _unreadable_dimensions(
    warehouse: Warehouse, joining: Mapping[str, Stream], row: LogRow, clock: int
) -> tuple[str, ...]:
    """The dimensions that a publication used, whose changes revise it, and that cannot be read now."""
    names = []
    for name, stream in joining.items():
        used = dimensions.versions_used(warehouse, stream, row.record.read.get(name, dimensions.NOT_READ)[2])
        names.append(dimensions.unreadable_dimensions(stream, used, row.end, clock))
    return tuple(sorted({name for each in names for name in each}))


def _arrivals(
    warehouse: Warehouse,
    known: Publications,
    declared: Declarations,
    name: str,
    of: str,
    owners: NDArray[np.int64],
    clock: int,
) -> Ledger | None:
    """The ledger of a stream that some publications noted as ``of``, with later arrivals and removals.

    None if they are not known, or if the stream is declared otherwise now.
    """
    (row, *_) = publish_log.logged_publications(warehouse, [int(known.at[owners].max())])
    plan = load_plan(warehouse, row.plan_version)
    declared = declared.renamed(name, plan)
    same = declared.is_noted(name, of)
    if same is False:
        return None
    if same is None and not declared.is_former(name, columns_used(plan, name)):
        return None
    stream = plan.workload.stream(name)
    try:
        admission = None
        while admission is None:
            ledger_now = ledger(warehouse, stream)
            admission = admitted(warehouse, stream, ledger_now, opened(stream, ledger_now, NOWHERE), clock, None)
    except HeddleError:
        # what that means for each is told where it is looked at
        return None
    return admission.arrivals
