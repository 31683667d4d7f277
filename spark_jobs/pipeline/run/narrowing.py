"""Windows of a published interval that may have changed since, so that a run answers only those again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from optimizer.plan.definition import SharingPlan
from optimizer.windows.alignment import Fragments, history_start, instants
from optimizer.workload.values import ACQ
from spark_jobs.pipeline.run import dimensions
from spark_jobs.pipeline.run.declarations import stands_as_declared
from spark_jobs.pipeline.run.preparation import plan_without, prepare
from spark_jobs.pipeline.run.values import Instants, PreparedRun, RunRequest, SourceListing
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.publish_log import LogRow
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.late_events import ChangedWindows, LateDataImpact, change
from spark_jobs.streams.sources.splits import Split
from spark_jobs.windows.partials.synopsis_work import SynopsisWork


def changed_since(
    warehouse: Warehouse,
    plan: SharingPlan,
    listing: SourceListing,
    publication: LogRow,
    clock: int,
    is_part: bool = False,
) -> LateDataImpact | None:
    """Changes since the newest publication of an interval, by the plan that it was pinned to: events that came late or
    were removed, and windows that were withheld and have ended.

    ``is_part``: the plan is only a part of that one. None: the content would be the same.
    """
    if not plan.trees:
        return None
    request = RunRequest(
        publication.plan_version,
        publication.begin,
        publication.end,
        "check",
        clock,
        late=publication.record.late,
    )
    prepared = prepare(warehouse, plan, request, listing)
    revising = dimensions.revising(warehouse, prepared, publication)
    if prepared.content == publication.content and not is_part and not revising:
        return None
    radius = changed_windows(warehouse, prepared, prepared.work, prepared.sources, prepared.ends, publication).radius
    if prepared.content == publication.content and not is_part and not radius.queries:
        return None
    joined = tuple(sorted({name for names in revising.values() for name in names}))
    return replace(radius, dimensions=joined, blocked=tuple(sorted(publication.record.blocked)))


def changed_windows(
    warehouse: Warehouse,
    prepared: PreparedRun,
    work: Sequence[SynopsisWork],
    sources: Mapping[str, list[Split]],
    ends: Mapping[str, int],
    publication: LogRow,
) -> ChangedWindows:
    """Changes of the prepared run's interval since a publication.

    ``work``, ``sources``, ``ends``: of the streams that could be read.
    """
    cut: dict[str, list[Fragments]] = {}
    for part in work:
        if part.synopsis.kind.has_instants:
            cut.setdefault(part.synopsis.stream, []).append(part.synopsis.fragments)
    past, begin = publication.record, prepared.request.begin
    arrivals = prepared.listing.arrivals
    versions = dimensions.versions_compared(warehouse, prepared, publication)
    return change(prepared.plan, sources, arrivals, begin, ends, past.listed, past.answered_until, cut, versions)


def is_revised_by_dimensions(warehouse: Warehouse, prepared: PreparedRun, publication: LogRow) -> bool:
    """Return whether a changed dimension revises an answer of a publication of the run's interval."""
    if not dimensions.revising(warehouse, prepared, publication):
        return False
    changed = changed_windows(warehouse, prepared, prepared.work, prepared.sources, prepared.ends, publication)
    return bool(changed.radius.queries)


def changed_by_declaration(
    plan: SharingPlan, streams: Sequence[str], publication: LogRow, clock: int
) -> LateDataImpact:
    """Possible changes of a publication by a plan whose ``streams`` are declared otherwise now: all windows of the
    queries over them.
    """
    queries = [query for query in plan.workload.queries if query.stream in streams]
    windows = 0
    for query in queries:
        end = min(publication.end, clock - plan.workload.stream(query.stream).lateness)
        windows += len(instants(query.window, publication.begin, end)) if query.kind.has_instants else 0
    names = tuple(query.name for query in queries)
    return LateDataImpact(0, 0, 0, names, windows, declared=tuple(streams))


def narrowing_base(warehouse: Warehouse, prepared: PreparedRun) -> LogRow | None:
    """The publication since which only some windows may have changed; None: all of them may have.

    It is the newest publication that overlaps the interval, if it meets three conditions. It is of exactly this
    interval. It is of all queries of this run, under the same declarations. It has no file that this run does not
    know. An answer without changes is then the one that a run over everything would publish.
    """
    request = prepared.request
    row = publish_log.newest_publication(warehouse, request.begin, request.end)
    if row is None or not row.table_version or (row.begin, row.end) != (request.begin, request.end):
        return None
    past = row.record
    same = past.status == "published" and past.basis == prepared.basis and not past.has_failed
    if (
        not same
        or is_older_than(past.listed, prepared.listing.newest)
        or publish_log.deleted_since(warehouse, prepared.plan, row)
        or not stands_as_declared(warehouse, row, prepared.plan, prepared.sources)
    ):
        return None
    until = past.answered_until
    return row if all(at >= until.get(name, request.end) for name, at in prepared.ends.items()) else None


def is_older_than(past: Mapping[str, int], now: Mapping[str, int]) -> bool:
    """Return whether a publication knew entries of a stream's ledger that a run, which listed earlier, does not.

    Both arguments: the newest entry known of each stream (microseconds).
    """
    return any(noted > now.get(name, 0) for name, noted in past.items())


def narrowed_plan(plan: SharingPlan, instants: Instants) -> SharingPlan:
    """The plan with the windows alone that are answered again."""

    def narrowed(query: ACQ) -> ACQ:
        at = instants[query.name]
        return query if at is None else replace(query, window=replace(query.window, at=tuple(at.tolist())))

    plan = plan_without(plan, [query.name for query in plan.workload.queries if query.name not in instants])
    trees = tuple(replace(tree, queries=tuple(map(narrowed, tree.queries))) for tree in plan.trees)
    workload = replace(plan.workload, queries=tuple(map(narrowed, plan.workload.queries)))
    return replace(plan, trees=trees, workload=workload)


def narrowed_work(work: Collection[SynopsisWork], plan: SharingPlan, begin: int) -> list[SynopsisWork]:
    """The work with the plan's queries alone, and no more history than their windows cover."""
    queries = {query.name: query for query in plan.workload.queries}
    narrowed = []
    for part in work:
        remaining_queries = tuple(queries[query.name] for query in part.queries if query.name in queries)
        if remaining_queries and part.synopsis.kind.has_instants:
            until = part.end if part.until is None else part.until
            start = history_start([query.window for query in remaining_queries], begin, until)
            part = replace(part, begin=max(part.begin, start))
        if remaining_queries:
            narrowed.append(replace(part, queries=remaining_queries))
    return narrowed
