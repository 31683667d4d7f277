"""Present places of a plan's streams and dimensions.

A stored plan names places as they were when it was made, and never changes. The project may have been moved or
copied since, or be mounted elsewhere. So a plan is read with the places that its sources have now: those of
``streams.yaml`` if a command knows it, else those noted when a plan was last stored. If the warehouse was moved
since, they are relative to it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from optimizer.plan.definition import SharingPlan
from optimizer.workload.urls import SCHEMES, scheme_of
from optimizer.workload.values import Source, Stream

if TYPE_CHECKING:
    from spark_jobs.store.warehouse.warehouse import Warehouse

FILE = "places.json"
"""The file of a warehouse that has the noted places: of each stream and dimension, by format."""


def relocated(plan: SharingPlan, places: Callable[[str, Source], str | None]) -> SharingPlan:
    """The plan with its streams and dimensions where they lie now. ``places``: where one of a name does whose source
    is declared so; None: where the plan has it.

    A copy of what only Spark reads stays where it is.
    """

    def moved(name: str, source: Source) -> Source:
        place = None if source.origin is not None else places(name, source)
        return source if place is None or place == source.path else replace(source, path=place)

    def moved_stream(stream: Stream) -> Stream:
        dimensions = (replace(each, source=moved(each.name, each.source)) for each in stream.dimensions)
        return replace(stream, source=moved(stream.name, stream.source), dimensions=tuple(dimensions))

    streams = tuple(map(moved_stream, plan.workload.streams))
    if streams == plan.workload.streams:
        return plan
    return replace(plan, workload=replace(plan.workload, streams=streams))


def relocated_as(plan: SharingPlan, streams: Mapping[str, Stream]) -> SharingPlan:
    """The plan with its streams and dimensions where others of their names lie, if those are of the same format."""
    sources = dict(_sources(streams.values()))

    def place(name: str, source: Source) -> str | None:
        other = sources.get(name)
        return other.path if other is not None and other.origin is None and other.format == source.format else None

    return relocated(plan, place)


def _sources(streams: Iterable[Stream]) -> Iterator[tuple[str, Source]]:
    """The sources of streams and of their dimensions, by their names, which differ."""
    for stream in streams:
        yield stream.name, stream.source
        yield from ((dimension.name, dimension.source) for dimension in stream.dimensions)


def located(warehouse: Warehouse, plan: SharingPlan) -> SharingPlan:
    """The plan with its streams and dimensions where they lie now."""
    noted = noted_places(warehouse)
    plan = relocated(plan, lambda name, source: noted.get(name, {}).get(source.format))
    return plan if warehouse.declared is None else relocated_as(plan, warehouse.declared())


def noted_places(warehouse: Warehouse) -> dict[str, dict[str, str]]:
    """The place of each stream and dimension by its format, as they were noted last; nothing if that cannot be read."""
    try:
        noted = json.loads((warehouse.place / FILE).read())
        root, then = str(warehouse.place), str(noted["warehouse"])
        return {
            name: {format: _moved_along(place, then, root) for format, place in of.items()}
            for name, of in noted["streams"].items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def note_places(warehouse: Warehouse, plan: SharingPlan) -> None:
    """Note where the streams and dimensions of a plan lie, under the lease."""
    now = noted_places(warehouse)
    for name, source in _sources(plan.workload.streams):
        if source.origin is None:
            now.setdefault(name, {})[source.format] = source.path
    file, noted = (
        warehouse.place / FILE,
        json.dumps({"warehouse": str(warehouse.place), "streams": now}, sort_keys=True),
    )
    try:
        is_noted = file.read() == noted.encode()
    except OSError:
        is_noted = False
    if not is_noted:
        file.put(noted.encode())


def _moved_along(place: str, then: str, here: str) -> str:
    """Place of a source that was noted when the warehouse lay elsewhere: in the same position relative to the
    warehouse, if something exists there.
    """
    if then == here or scheme_of(place) in SCHEMES or scheme_of(then) in SCHEMES or scheme_of(here) in SCHEMES:
        return place
    # by names alone: a link may lead elsewhere
    along = Path(os.path.normpath(Path(here, os.path.relpath(place, then))))
    return str(along) if along.exists() else place


def declared_in(warehouse: Warehouse, load: Callable[[], Mapping[str, Stream]]) -> Warehouse:
    """The warehouse, whose plans are read with the places that some declared streams have."""
    return replace(warehouse, declared=cache(load))
