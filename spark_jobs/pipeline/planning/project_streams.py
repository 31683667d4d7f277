"""Current locations of the streams of a project, for commands that have only a stored plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from optimizer.workload.streams import load_streams
from optimizer.workload.values import Stream
from spark_jobs.store.settings import settings
from spark_jobs.store.warehouse.places import declared_in
from spark_jobs.store.warehouse.warehouse import Warehouse


def of_project(warehouse: Warehouse, own: str | None, streams: Path | None) -> Warehouse:
    """The warehouse with the places that ``streams.yaml`` declares, if it is the project's ``own``: another project may
    have streams of the same names."""
    if own is None or streams is None or not streams.is_file() or not warehouse.is_at(own):
        return warehouse

    def load() -> Mapping[str, Stream]:
        return load_streams(streams, settings().source_roots, settings().copies)[0]

    return declared_in(warehouse, load)
