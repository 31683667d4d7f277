"""Versions of dimensions: those that a run uses, and those that published answers used."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Any

from optimizer.errors.codes import is_fatal
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.errors.diagnostics import count as number_of
from optimizer.plan.definition import SharingPlan
from optimizer.workload.attributes import attributes_in
from optimizer.workload.instants import DAY, format_instant
from optimizer.workload.values import Dimension, DimensionVersion, Stream, digest, to_json
from spark_jobs.pipeline.run.values import PreparedRun, Run
from spark_jobs.results.current_dimensions import follow_current, used_columns
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.publish_log import LogRow, RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.changed_attributes import Versions
from spark_jobs.streams.sources.dimension_versions import (
    FOLDER,
    current_version_of,
    note_current,
    note_read,
    old_versions,
    only_version,
    version_named,
    version_read_from,
    versions_folder,
    with_version,
)
from spark_jobs.streams.sources.dimensions import passing, store_version, stream_of_rows, stream_with_versions
from spark_jobs.streams.sources.files import files_digest
from spark_jobs.windows.partials.carrying import carry_over


def pinned(
    warehouse: Warehouse,
    plan: SharingPlan,
    is_noted: bool,
    versions_used: Mapping[str, DimensionVersion | HeddleError] = MappingProxyType({}),
) -> tuple[SharingPlan, list[str], list[Diagnostic]]:
    """Read the dimensions that a plan uses, once: the plan with their versions, the names of the queries that join one
    which cannot be used, and why.

    ``is_noted``: the versions are stored in the warehouse. Otherwise nothing is written to it. ``versions_used``: of
    these dimensions the versions, or why there is none, whatever they hold now.
    """
    versions: dict[str, DimensionVersion] = {}
    problems: dict[str, Diagnostic] = {}
    declared = {dimension.name: dimension for stream in plan.workload.streams for dimension in stream.dimensions}
    for name, columns in used_columns(plan).items():
        try:
            used = versions_used.get(name)
            if isinstance(used, HeddleError):
                raise used
            versions[name] = used or _newest(warehouse, declared[name], columns, is_noted)
        except HeddleError as error:
            if is_fatal(error.diagnostic.code):
                raise
            problems[name] = error.diagnostic
    of_tables = follow_current(warehouse, [declared[name] for name in versions]) if is_noted else []
    unfit = []
    for stream in plan.workload.streams:
        for query in plan.workload.queries_of(stream.name):
            joined = {attribute.dimension for attribute in attributes_in(stream, query.columns()).values()}
            unfit += [query.name] * bool(joined & problems.keys())
    return with_versions(plan, versions), unfit, [*problems.values(), *of_tables]


def with_versions(plan: SharingPlan, versions: Mapping[str, DimensionVersion]) -> SharingPlan:
    """The plan with versions of the dimensions of its streams, by their names."""
    if not versions:
        return plan
    streams = tuple(stream_with_versions(stream, versions) for stream in plan.workload.streams)
    return replace(plan, workload=replace(plan.workload, streams=streams))


def _newest(warehouse: Warehouse, dimension: Dimension, columns: Collection[str], is_noted: bool) -> DimensionVersion:
    name = dimension.name
    try:
        listed = files_digest(stream_of_rows(dimension))
    except HeddleError:
        # reading says what is wrong
        listed = ""
    basis = digest([to_json(dimension), sorted(columns), listed]) if listed else ""
    version = version_read_from(warehouse, name, basis) if basis else None
    if not is_noted:
        return version or store_version(dimension, columns, passing(name))
    if version is None:
        version = store_version(dimension, columns, versions_folder(warehouse, name))
        note_read(warehouse, name, basis, version)
    note_current(warehouse, name, version)
    return version


# ------------------------------------------------------------------------------------------- published answers
NOT_READ = 0, 0, ""
"""The note of a stream that a publication did not read."""


def versions_noted(noted: str) -> dict[str, list[str]]:
    """The ids of the versions of dimensions that a publication's note of a stream has, by the dimension's name."""
    known: dict[str, list[str]] = json.loads(noted).get("dimensions", {}) if noted.startswith("{") else {}
    return known


UNKNOWN = ""
"""The id of a version that a publication used and did not note."""


def versions_used(warehouse: Warehouse, stream: Stream, noted: str) -> dict[str, list[str]]:
    """The ids of the versions of a stream's dimensions that a publication used, by the dimension's name.

    Earlier code noted no versions where a query read every column: there it was the only one that is stored, or is
    :data:`UNKNOWN`.
    """
    note: dict[str, Any] = json.loads(noted) if noted.startswith("{") else {}
    if "columns" in note and note["columns"] is None and "dimensions" not in note:
        return {each.name: [only_version(warehouse, each.name) or UNKNOWN] for each in stream.dimensions}
    return versions_noted(noted)


def versions_of(stream: Stream, columns: Iterable[str]) -> dict[str, list[str]]:
    """The ids of the versions that some columns of a stream are read from, as a note has them."""
    used = {attribute.dimension for attribute in attributes_in(stream, columns).values()}
    versions = ((dimension.name, dimension.version) for dimension in stream.dimensions if dimension.name in used)
    return {name: [version.id] for name, version in versions if version is not None}


def repaired_dimensions(stream: Stream, used: Mapping[str, Collection[str]], end: int, clock: int) -> list[str]:
    """The dimensions of a stream that have changed since a publication that ends at ``end``, and whose changes revise
    it. ``used``: the ids of the versions that it used. ``clock``: now (both in microseconds).
    """
    changed = list[str]()
    for dimension in stream.dimensions:
        ids = used.get(dimension.name, [])
        is_other = dimension.version is not None and any(id != dimension.version.id for id in ids)
        if is_other and dimension.repair and end > clock - dimension.repair:
            changed.append(dimension.name)
    return changed


def unreadable_dimensions(stream: Stream, used: Collection[str], end: int, clock: int) -> list[str]:
    """The dimensions ``used`` by a publication that ends at ``end``, whose changes revise it, and that have no version
    now. ``clock``: now (both in microseconds).
    """
    lacking = (each for each in stream.dimensions if each.version is None and each.name in used)
    return [each.name for each in lacking if each.repair and end > clock - each.repair]


def with_repairs_of(plan: SharingPlan, current: SharingPlan | None) -> SharingPlan:
    """A plan whose dimensions revise as many answers as they do in the current one, where that has them."""
    if current is None:
        return plan
    repairs = {each.name: each.repair for stream in current.workload.streams for each in stream.dimensions}
    if not repairs:
        return plan

    def repaired(stream: Stream) -> Stream:
        dimensions = (replace(each, repair=repairs.get(each.name, each.repair)) for each in stream.dimensions)
        return replace(stream, dimensions=tuple(dimensions))

    return replace(plan, workload=replace(plan.workload, streams=tuple(map(repaired, plan.workload.streams))))


def revising(warehouse: Warehouse, prepared: PreparedRun, publication: LogRow) -> dict[str, list[str]]:
    """The dimensions of each stream of a run whose changes since a publication of its interval revise that."""
    revising: dict[str, list[str]] = {}
    for name in prepared.sources:
        stream, (_, _, noted) = prepared.plan.workload.stream(name), publication.record.read.get(name, NOT_READ)
        used = versions_used(warehouse, stream, noted)
        if names := repaired_dimensions(stream, used, publication.end, prepared.request.clock):
            revising[name] = names
    return revising


MOST_CHOICES = 64
"""Choices of versions of dimensions by which a difference is looked for."""


def versions_compared(warehouse: Warehouse, prepared: PreparedRun, publication: LogRow) -> dict[str, Versions]:
    """The streams of a run whose dimensions revise a publication, with the versions that its answers may use, each
    beside the stream with those of now.

    An answer uses any choice of the versions that the publication noted. A dimension that does not revise it has
    the same version on both sides: each of those that answers use, if a query joins it with one that does. None
    for a stream if a version is gone, or there are more than :data:`MOST_CHOICES` choices.
    """
    compared: dict[str, Versions] = {}
    for name, dimensions in revising(warehouse, prepared, publication).items():
        stream = prepared.plan.workload.stream(name)
        ids = versions_used(warehouse, stream, publication.record.read[name][2])
        others = _joined_with(prepared.plan, stream, dimensions)
        choices = []
        for dimension in stream.dimensions:
            now = dimension.version
            if now is None or dimension.name not in (*dimensions, *others):
                continue
            versions = {id: version_named(warehouse, dimension.name, id) for id in ids.get(dimension.name, ())}
            known = (now, *(version for id, version in versions.items() if id != now.id))
            before = known[1:] if dimension.name in dimensions and now.id not in versions else known
            choices.append([(dimension.name, each, now if dimension.name in dimensions else each) for each in before])
        is_known = all(version is not None for choice in choices for _, version, _ in choice)
        compared[name] = None
        if is_known and prod(map(len, choices)) <= MOST_CHOICES:
            pairs = (_with_versions_of(stream, choice) for choice in product(*choices))
            compared[name] = [(former, now) for former, now in pairs if former != now]
    return compared


def _joined_with(plan: SharingPlan, stream: Stream, names: Collection[str]) -> set[str]:
    """The other dimensions of the queries that join some dimensions of a stream."""
    others: set[str] = set()
    for query in plan.workload.queries_of(stream.name):
        joined = {attribute.dimension for attribute in attributes_in(stream, query.columns()).values()}
        others |= joined - set(names) if joined & set(names) else set()
    return others


def _with_versions_of(
    stream: Stream, choice: Iterable[tuple[str, DimensionVersion | None, DimensionVersion | None]]
) -> tuple[Stream, Stream]:
    former = now = stream
    for name, before, after in choice:
        if before is not None and after is not None:
            former, now = with_version(former, name, before), with_version(now, name, after)
    return former, now


def note_earlier_versions(
    warehouse: Warehouse, record: RunRecord, prepared: PreparedRun, publication: LogRow, is_narrow: bool
) -> None:
    """Note in a run's record the versions of the answers that it leaves as an earlier publication has them: of single
    windows if it ``is_narrow``, and of all queries that join a dimension without a version.
    """
    revised = revising(warehouse, prepared, publication) if is_narrow else {}
    for name, (first, last, noted) in record.read.items():
        stream = prepared.plan.workload.stream(name)
        known = {dimension.name for dimension in stream.dimensions if dimension.version}
        used = versions_used(warehouse, stream, publication.record.read.get(name, NOT_READ)[2])
        earlier = {
            each: ids
            for each, ids in used.items()
            if each not in known or (is_narrow and each not in revised.get(name, ()))
        }
        record.read[name] = first, last, with_earlier_versions(noted, earlier)


def with_earlier_versions(noted: str, earlier: Mapping[str, Collection[str]]) -> str:
    """The note of a stream of a publication that keeps some answers of an earlier one, whose versions of dimensions are
    given by name."""
    if not earlier or not noted.startswith("{"):
        return noted
    now: dict[str, Any] = json.loads(noted)
    current = versions_noted(noted)
    names = dict.fromkeys((*current, *earlier))
    now["dimensions"] = {name: list(dict.fromkeys((*current.get(name, ()), *earlier.get(name, ())))) for name in names}
    return json.dumps(now)


def carry_partials_over(run: Run, prepared: PreparedRun) -> None:
    """Carry the partial aggregates that a run needs over to the versions of dimensions that it uses."""
    for name, splits in prepared.sources.items():
        stream = prepared.plan.workload.stream(name)
        if not stream.dimensions or run.request.recompute:
            continue
        parts = [part for part in prepared.work if part.synopsis.stream == name]
        try:
            carried = carry_over(run.warehouse, stream, parts, splits)
        except HeddleError as error:
            if is_fatal(error.diagnostic.code):
                raise
            # a stream that cannot be read fails when it is lifted
            continue
        if carried.unchanged or carried.changed:
            run.report(
                f"a dimension of {name} changed: {carried.unchanged} partial aggregates stay, {carried.changed} go"
            )


@dataclass(frozen=True)
class OlderVersion:
    """Published intervals, the first of which begins at ``begin`` and the last ends at ``end`` (microseconds), whose
    answers use an older version of a dimension than the newest run.
    """

    dimension: str
    intervals: int
    begin: int
    end: int

    def to_json(self) -> dict[str, Any]:
        """The fields as ``heddle status --json`` prints them."""
        times = {"begin": format_instant(self.begin), "end": format_instant(self.end)}
        return {"dimension": self.dimension, "intervals": self.intervals} | times

    @property
    def warning(self) -> Diagnostic:
        """The warning of ``heddle status``."""
        use = "uses" if self.intervals == 1 else "use"
        message = (
            f"{number_of(self.intervals, 'published interval')} from {format_instant(self.begin)} to "
            f"{format_instant(self.end)} {use} an older version of dimension {self.dimension}"
        )
        hint = "write `repair: 30 days` below the dimension, `heddle run`, `heddle repair`; or `--recompute` each"
        return Diagnostic("HDL-466", message, hint, severity="warning")


def on_older_versions(warehouse: Warehouse, plan: SharingPlan) -> list[OlderVersion]:
    """The published intervals that use an older version of a plan's dimensions. Reads no source."""
    names = {dimension.name for stream in plan.workload.streams for dimension in stream.dimensions}
    current = {name: version.id for name in names if (version := current_version_of(warehouse, name)) is not None}
    if not current:
        return []
    known = publish_log.publications_read(warehouse, None)
    owners: dict[str, set[int]] = {}
    for owner, noted in zip(known.owner.tolist(), known.reads["of"].to_pylist(), strict=True):
        for name, ids in versions_noted(noted).items():
            if any(id != current.get(name, id) for id in ids):
                owners.setdefault(name, set()).add(owner)
    older = []
    for name, numbers in sorted(owners.items()):
        begins, ends, _ = known.results
        standing = [number for number in numbers if known.all_standing[number]]
        if standing:
            spans = int(begins[standing].min()), int(ends[standing].max())
            older.append(OlderVersion(name, len(standing), *spans))
    return older


def versions_over_time(warehouse: Warehouse, names: Collection[str]) -> dict[str, list[tuple[int, str]]]:
    """For each of some dimensions the moments (microseconds), ascending, at which runs published with another version
    than before, and the ids of these versions."""
    known = publish_log.publications_read(warehouse, None)
    noted = sorted(
        (int(known.at[owner]), name, ids[0])
        for owner, of in zip(known.owner.tolist(), known.reads["of"].to_pylist(), strict=True)
        for name, ids in versions_noted(of).items()
        if name in names and ids
    )
    versions: dict[str, list[tuple[int, str]]] = {name: [] for name in names}
    for at, name, id in noted:
        if not versions[name] or versions[name][-1][1] != id:
            versions[name].append((at, id))
    return versions


def _used_since(versions: Sequence[tuple[int, str]], since: int) -> set[str]:
    """The ids, of :func:`versions_over_time`, of the versions that runs used after a moment."""
    before = [number for number, (at, _) in enumerate(versions) if at <= since]
    return {id for _, id in versions[before[-1] if before else 0 :]}


def sweep_versions(warehouse: Warehouse, retention: int, dry_run: bool) -> int:
    """Remove the versions of dimensions that nothing needs; their number.

    Those stay that standing publications note, that a run used last, that are among the newest, that were written
    within the last ``retention`` (microseconds), or that runs used within the days that HEDDLE_DIMENSION_DAYS says.
    """
    since = time.time_ns() // 1000 - settings().dimension_days * DAY
    known = publish_log.publications_read(warehouse, None)
    noted: dict[str, set[str]] = {}
    for owner, of in zip(known.owner.tolist(), known.reads["of"].to_pylist(), strict=True):
        for name, ids in versions_noted(of).items() if known.all_standing[owner] else ():
            noted.setdefault(name, set()).update(ids)
    names = (warehouse.place / FOLDER).folders()
    used, removed = versions_over_time(warehouse, names), 0
    for name in names:
        current = current_version_of(warehouse, name)
        needed = noted.get(name, set()) | ({current.id} if current is not None else set())
        needed |= _used_since(used.get(name, []), since)
        for file in old_versions(warehouse, name, needed, time.time_ns() // 1000 - retention):
            removed += 1
            if not dry_run:
                file.remove()
    return removed
