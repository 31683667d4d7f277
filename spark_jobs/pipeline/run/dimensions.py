"""Versions of dimensions: those that a run uses, and those that published answers stand on."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from optimizer.errors.codes import is_fatal
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from optimizer.plan.definition import SharingPlan
from optimizer.workload.attributes import attributes_in
from optimizer.workload.values import Dimension, DimensionVersion, Stream
from spark_jobs.store.warehouse.dimension_versions import CURRENT, versions_folder
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.dimensions import passing, store_version, stored_version, stream_with_versions


def used_columns(plan: SharingPlan) -> dict[str, set[str]]:
    """The columns of each dimension that a plan's queries use, by its name."""
    used: dict[str, set[str]] = {}
    for stream in plan.workload.streams:
        columns = {column for query in plan.workload.queries_of(stream.name) for column in query.columns()}
        for attribute in attributes_in(stream, columns).values():
            used.setdefault(attribute.dimension, set()).update(filter(None, [attribute.column]))
    return used


def pinned(warehouse: Warehouse, plan: SharingPlan, is_noted: bool) -> tuple[SharingPlan, list[str], list[Diagnostic]]:
    """Read the dimensions that a plan uses, once: the plan with their versions, the names of the queries that join one
    which cannot be used, and why.

    ``is_noted``: the versions are stored in the warehouse. Otherwise nothing is written to it.
    """
    versions: dict[str, DimensionVersion] = {}
    problems: dict[str, Diagnostic] = {}
    declared = {dimension.name: dimension for stream in plan.workload.streams for dimension in stream.dimensions}
    for name, columns in used_columns(plan).items():
        try:
            versions[name] = _newest(warehouse, declared[name], columns, is_noted)
        except HeddleError as error:
            if is_fatal(error.diagnostic.code):
                raise
            problems[name] = error.diagnostic
    unfit = []
    for stream in plan.workload.streams:
        for query in plan.workload.queries_of(stream.name):
            joined = {attribute.dimension for attribute in attributes_in(stream, query.columns()).values()}
            unfit += [query.name] * bool(joined & problems.keys())
    return with_versions(plan, versions), unfit, list(problems.values())


def with_versions(plan: SharingPlan, versions: Mapping[str, DimensionVersion]) -> SharingPlan:
    """The plan with versions of the dimensions of its streams, by their names."""
    if not versions:
        return plan
    streams = tuple(stream_with_versions(stream, versions) for stream in plan.workload.streams)
    return replace(plan, workload=replace(plan.workload, streams=streams))


def _newest(warehouse: Warehouse, dimension: Dimension, columns: Collection[str], is_noted: bool) -> DimensionVersion:
    if not is_noted:
        return store_version(dimension, columns, passing(dimension.name))
    folder = versions_folder(warehouse, dimension.name)
    version = store_version(dimension, columns, folder)
    current, content = folder / CURRENT, version.id.encode()
    try:
        is_current = current.read() == content
    except OSError:
        is_current = False
    if not is_current:
        current.put(content)
    return version


def version_named(warehouse: Warehouse, name: str, id: str) -> DimensionVersion | None:
    """A stored version of a dimension; None if it is gone."""
    return stored_version(versions_folder(warehouse, name) / f"{id}.parquet")


# ------------------------------------------------------------------------------------------- published answers
def versions_noted(noted: str) -> dict[str, list[str]]:
    """The ids of the versions of dimensions that a publication's note of a stream has, by the dimension's name."""
    known: dict[str, list[str]] = json.loads(noted).get("dimensions", {}) if noted.startswith("{") else {}
    return known


def versions_of(stream: Stream, columns: Iterable[str]) -> dict[str, list[str]]:
    """The ids of the versions that some columns of a stream are read from, as a note has them."""
    used = {attribute.dimension for attribute in attributes_in(stream, columns).values()}
    versions = ((dimension.name, dimension.version) for dimension in stream.dimensions if dimension.name in used)
    return {name: [version.id] for name, version in versions if version is not None}


def repaired_dimensions(stream: Stream, noted: str, end: int, clock: int) -> list[str]:
    """The dimensions of a stream that have changed since a publication that ends at ``end`` noted it, and whose changes
    revise it. ``clock``: now (both in microseconds).
    """
    known, changed = versions_noted(noted), list[str]()
    for dimension in stream.dimensions:
        ids = known.get(dimension.name, [])
        is_other = dimension.version is not None and any(id != dimension.version.id for id in ids)
        if is_other and dimension.repair and end > clock - dimension.repair:
            changed.append(dimension.name)
    return changed


def former_streams(warehouse: Warehouse, stream: Stream, noted: str, names: Collection[str]) -> list[Stream] | None:
    """The stream with each earlier version of some dimensions that a publication noted in place of the one that it has;
    None if a version is gone.
    """
    formers = []
    for name in names:
        for id in versions_noted(noted)[name]:
            version = version_named(warehouse, name, id)
            if version is None:
                return None
            dimensions = (replace(each, version=version) if each.name == name else each for each in stream.dimensions)
            formers.append(replace(stream, dimensions=tuple(dimensions)))
    return formers


def with_earlier_versions(noted: str, earlier: str, repaired: Collection[str]) -> str:
    """The note of a stream of a publication that keeps some answers of an earlier one: they stand on its versions.

    ``repaired``: the dimensions whose changes are looked for; the answers that stay are those of the newest version.
    """
    now, before = json.loads(noted), versions_noted(earlier)
    if not now.get("dimensions"):
        return noted
    for name, ids in now["dimensions"].items():
        others = [] if name in repaired else before.get(name, [])
        now["dimensions"][name] = list(dict.fromkeys((*ids, *others)))
    return json.dumps(now)
