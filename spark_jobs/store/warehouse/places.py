"""Present places of a plan's streams.

A stored plan names places as they were when it was made, and never changes. The project may have been moved or
copied since, or be mounted elsewhere. So a plan is read with the places that the streams have now: those of
``streams.yaml`` if a command knows it, else those noted when a plan was last stored. If the warehouse was moved
since, they are relative to it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from optimizer.plan.definition import SharingPlan
from optimizer.workload.urls import SCHEMES, scheme_of
from optimizer.workload.values import Stream

if TYPE_CHECKING:
    from spark_jobs.store.warehouse.warehouse import Warehouse

FILE = "places.json"
"""The file of a warehouse that has the noted places: of each stream, by format."""


def relocated(plan: SharingPlan, places: Callable[[Stream], str | None]) -> SharingPlan:
    """The plan with its streams where they lie now. ``places``: where a stream does; None: where the plan has it.

    A copy of what only Spark reads stays where it is.
    """

    def moved(stream: Stream) -> Stream:
        place = None if stream.source.origin is not None else places(stream)
        if place is None or place == stream.source.path:
            return stream
        return replace(stream, source=replace(stream.source, path=place))

    streams = tuple(map(moved, plan.workload.streams))
    if streams == plan.workload.streams:
        return plan
    return replace(plan, workload=replace(plan.workload, streams=streams))


def relocated_as(plan: SharingPlan, streams: Mapping[str, Stream]) -> SharingPlan:
    """The plan with its streams where others of their names lie, if those are of the same format."""

    def place(stream: Stream) -> str | None:
        other = streams.get(stream.name)
        same = other is not None and other.source.origin is None and other.source.format == stream.source.format
        return other.source.path if other is not None and same else None

    return relocated(plan, place)


def located(warehouse: Warehouse, plan: SharingPlan) -> SharingPlan:
    """The plan with its streams where they lie now."""
    noted = noted_places(warehouse)
    plan = relocated(plan, lambda stream: noted.get(stream.name, {}).get(stream.source.format))
    return plan if warehouse.declared is None else relocated_as(plan, warehouse.declared())


def noted_places(warehouse: Warehouse) -> dict[str, dict[str, str]]:
    """The place of each stream by its format, as they were noted last; nothing if that cannot be read."""
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
    """Note where the streams of a plan lie, under the lease."""
    now = noted_places(warehouse)
    for stream in plan.workload.streams:
        if stream.source.origin is None:
            now.setdefault(stream.name, {})[stream.source.format] = stream.source.path
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
