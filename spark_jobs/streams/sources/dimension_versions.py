"""Stored versions of the dimensions of a warehouse, and the events that have other attributes in another version."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from optimizer.workload.attributes import attributes_in, columns_read
from optimizer.workload.instants import DAY
from optimizer.workload.values import DimensionVersion, Stream
from spark_jobs.store.storage import Place, Stored
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.streams.sources.decoding import inside, read_split, times_of
from spark_jobs.streams.sources.dimension_rows import with_attributes
from spark_jobs.streams.sources.dimensions import stored_version, stream_with_versions
from spark_jobs.streams.sources.splits import Split

FOLDER = "dimensions"
"""Folder of a warehouse with the versions of its dimensions, each in a folder of its name."""

CURRENT = "current"
"""The file next to the versions of a dimension that names the one that a run used last."""

ENDING = ".parquet"
"""Ending of the files of versions."""

READ = "read"
"""The file next to the versions of a dimension that says from which files one was read."""

LEAST_VERSIONS = 3
"""Versions of a dimension from which it is known how often it changes."""

RECENT = 8
"""Versions of a dimension whose partial aggregates are carried over."""


def stored_dimension_names(warehouse: Warehouse) -> list[str]:
    """The names of the dimensions that runs have used."""
    return (warehouse.place / FOLDER).folders()


def versions_folder(warehouse: Warehouse, name: str) -> Place:
    """The folder of the versions of a dimension."""
    return warehouse.place / FOLDER / name


def current_version_of(warehouse: Warehouse, name: str) -> DimensionVersion | None:
    """The version of a dimension that a run used last; None if none has."""
    try:
        id = (versions_folder(warehouse, name) / CURRENT).read().decode()
    except OSError:
        return None
    return version_named(warehouse, name, id)


def note_current(warehouse: Warehouse, name: str, version: DimensionVersion) -> None:
    """Note the version of a dimension that a run uses."""
    file, content = versions_folder(warehouse, name) / CURRENT, version.id.encode()
    try:
        is_noted = file.read() == content
    except OSError:
        is_noted = False
    if not is_noted:
        file.put(content)


def version_read_from(warehouse: Warehouse, name: str, basis: str) -> DimensionVersion | None:
    """The version that was read last of a dimension, if it was from the same files; None if it was not, or is gone.

    ``basis``: a digest of all that decides it.
    """
    try:
        read, _, id = (versions_folder(warehouse, name) / READ).read().decode().partition(" ")
    except OSError:
        return None
    return version_named(warehouse, name, id) if read == basis else None


def note_read(warehouse: Warehouse, name: str, basis: str, version: DimensionVersion) -> None:
    """Note what a version of a dimension was read from (:func:`version_read_from`)."""
    (versions_folder(warehouse, name) / READ).put(f"{basis} {version.id}".encode())


def version_named(warehouse: Warehouse, name: str, id: str) -> DimensionVersion | None:
    """A stored version of a dimension; None if it is gone."""
    return stored_version(versions_folder(warehouse, name) / f"{id}.parquet")


def with_current_versions(warehouse: Warehouse, stream: Stream) -> Stream:
    """The stream with the versions of its dimensions that a run used last."""
    if not stream.dimensions:
        return stream
    versions = {dimension.name: current_version_of(warehouse, dimension.name) for dimension in stream.dimensions}
    return stream_with_versions(stream, {name: version for name, version in versions.items() if version is not None})


def _newest_first(warehouse: Warehouse, name: str) -> list[Stored]:
    files = (file for file in versions_folder(warehouse, name).listed() if file.name.endswith(ENDING))
    return sorted(files, key=lambda file: -file.modified)


def only_version(warehouse: Warehouse, name: str) -> str | None:
    """The id of the version of a dimension if there has been one alone: the :data:`RECENT` newest are never removed."""
    files = _newest_first(warehouse, name)
    return files[0].name.removesuffix(ENDING) if len(files) == 1 else None


def old_versions(warehouse: Warehouse, name: str, needed: Collection[str], before: int) -> list[Place]:
    """The files of versions of a dimension that were written before a moment (microseconds), without the
    :data:`RECENT` newest and those whose ids are ``needed``.
    """
    files = _newest_first(warehouse, name)[RECENT:]
    old = (file for file in files if file.modified < before and file.name.removesuffix(ENDING) not in needed)
    return [versions_folder(warehouse, name) / file.name for file in old]


def earlier_streams(warehouse: Warehouse, stream: Stream, columns: Iterable[str]) -> list[Stream]:
    """A stream with each combination of the :data:`RECENT` versions of the dimensions that some columns are read from,
    without the one that it has.
    """
    used = {attribute.dimension for attribute in attributes_in(stream, columns).values()}
    choices: list[list[tuple[str, DimensionVersion]]] = []
    for name in sorted(used):
        ids = [file.name.removesuffix(ENDING) for file in _newest_first(warehouse, name)[:RECENT]]
        known = (version_named(warehouse, name, id) for id in ids)
        choices.append([(name, version) for version in known if version is not None])
    streams = [stream_with_versions(stream, dict(chosen)) for chosen in product(*choices)][: RECENT * RECENT]
    return [earlier for earlier in streams if earlier != stream]


def changes_a_day(warehouse: Warehouse, name: str) -> float | None:
    """About how often a dimension changes, by the times at which its stored versions were written; None with less than
    :data:`LEAST_VERSIONS`.
    """
    files = [file for file in versions_folder(warehouse, name).listed() if file.name.endswith(".parquet")]
    if len(files) < LEAST_VERSIONS:
        return None
    times = [file.modified for file in files]
    return (len(files) - 1) * DAY / max(max(times) - min(times), DAY)


def changed_times(
    former: Stream, now: Stream, splits: Sequence[Split], columns: Collection[str], spans: Sequence[tuple[int, int]]
) -> dict[str, NDArray[np.int64]]:
    """The times, ascending (microseconds), of the events in some spans [begin, end) that have another value of an
    attribute in ``former`` than in ``now``, by the attribute's name.

    ``former``, ``now``: one stream with two versions of its dimensions; ``columns``: the attributes among them count.
    Reads the columns of the keys alone. Raises what reading raises.
    """
    attributes = attributes_in(now, columns)
    keys = columns_read(now, attributes)
    times: dict[str, list[NDArray[np.int64]]] = {name: [] for name in attributes}
    for split in splits:
        if not any(split.may_hold(*span) for span in spans):
            continue
        for batch in read_split(now, split, keys, set(keys)):
            at, events, _ = times_of(batch, now)
            is_inside = inside(at, spans)
            at, events = at[is_inside], events.filter(pa.array(is_inside))
            before, after = (with_attributes(stream, events, attributes) for stream in (former, now))
            for name in attributes:
                times[name].append(at[differs(before.column(name), after.column(name))])
    return {name: np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *each])) for name, each in times.items()}


def differs(before: pa.Array, after: pa.Array) -> NDArray[np.bool_]:
    """Compare values (n,), true where they differ: null equals null, NaN equals NaN."""
    same: Any = pc.equal(before, after)
    if pa.types.is_floating(before.type):
        # 0.0 and -0.0 are equal, and other answers
        bits = [values.view(pa.int64()) for values in (before, after)]
        same = pc.or_(pc.equal(*bits), pc.and_(pc.is_nan(before), pc.is_nan(after)))
    same = pc.fill_null(same, False)
    same = pc.or_(same, pc.and_(pc.is_null(before), pc.is_null(after)))
    return ~np.asarray(same.to_numpy(zero_copy_only=False), dtype=bool)


def any_changed(times: Mapping[str, NDArray[np.int64]], columns: Iterable[str], begin: int, end: int) -> bool:
    """Return whether one of the :func:`changed_times` of some columns lies in [begin, end)."""
    changed = (times[column] for column in columns if column in times)
    return any(np.searchsorted(at, begin) < np.searchsorted(at, end) for at in changed)


def with_version(stream: Stream, name: str, version: DimensionVersion) -> Stream:
    """The stream with another version of one of its dimensions."""
    dimensions = (replace(each, version=version) if each.name == name else each for each in stream.dimensions)
    return replace(stream, dimensions=tuple(dimensions))
