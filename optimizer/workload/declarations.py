"""The declaration digest: a hash of everything in a stream's declaration that decides what its events are.

What is stored of a stream comes from some of its columns. It keeps its meaning as long as those columns, the event
time and the event id are declared as they were. Whatever else changes in the declaration does not concern it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from optimizer.workload.attributes import attributes_in, columns_read
from optimizer.workload.nested import Nested, behind, read_path
from optimizer.workload.values import Dimension, Stream, digest, to_json


@lru_cache(maxsize=4096)
def _digest(stream: Stream, columns: tuple[str, ...], in_order: bool) -> str:
    source, origin = stream.source, stream.source.origin
    used = dict.fromkeys((stream.time, *columns, *attributes_in(stream, columns), *columns_read(stream, columns)))
    if stream.event_id is not None:
        used[stream.event_id] = None
    types = [[name, *_type(stream, name)] for name in sorted(used)]
    positions: list[Any] = []
    if not source.header:
        order = {name: number for number, (name, _) in enumerate(stream.schema)}
        positions = [[name, order.get(name)] for name in sorted(used)]
    written = [
        *(source.format, source.delimiter, source.header, source.quote, sorted(set(source.null))),
        *(source.timestamp_format, source.time_unit),
    ]
    # what came later is there only if it is declared: stored digests stay
    written += [source.records] if source.records is not None else []
    copied = None if origin is None else [origin.format, to_json(origin.options), origin.watermark, origin.since]
    if copied is not None and origin is not None and origin.zone is not None:
        copied.append(origin.zone)
    ordered: list[Any] = [columns] if in_order else []
    folders = sorted(partition.name for partition in source.partitions if partition.name in used)
    if folders:
        ordered.append(["in folders", source.folders, folders])
    return digest([written, copied, stream.time, stream.event_id, types, positions, *ordered])


def declaration_digest(stream: Stream, columns: Iterable[str], in_order: bool = False) -> str:
    """Return a hash of how a stream and some of its columns are declared.

    Equal digests mean equal events from equal files, as far as these columns, the event time and the event id go. The
    name of the stream, its location and its schedule are not part of it. The content of a dimension is, as far as an
    attribute among the columns goes. ``in_order``: the order of the columns counts
    as well, as rows of equal times are put in it.
    """
    return _digest(stream, tuple(columns) if in_order else tuple(sorted(set(columns))), in_order)


def all_columns(stream: Stream) -> list[str]:
    """The names of all columns of a stream, nested ones included."""
    return [*dict(stream.schema), *dict(stream.nested)]


def time_digest(stream: Stream) -> str:
    """The declaration digest of the event times alone, whatever the event id."""
    return declaration_digest(replace(stream, event_id=None), ())


def _content(dimension: Dimension, column: str | None) -> list[Any]:
    """All of a dimension that decides one of its columns; ``column`` None: whether there is a row."""
    keys = [to_json(dimension.type_of(key)) for key in dimension.key]
    validity = [dimension.valid_from is not None, dimension.valid_to is not None]
    version = dimension.version
    if version is None:
        return [dimension.name, keys, validity]
    return [dimension.name, keys, validity, version.rows, dict(version.columns).get(column or "")]


def _type(stream: Stream, name: str) -> list[Any]:
    """The type of a column. Of a leaf in a nested column also the kinds of what it lies in: ``m[0]`` is a place in an
    array or a key of a map."""
    nested = dict(stream.nested)
    if name in nested:
        return [to_json(nested[name])]
    type_ = stream.type_of(name)
    attribute = attributes_in(stream, [name]).get(name)
    if attribute is not None:
        return [to_json(type_), _content(stream.dimension(attribute.dimension), attribute.column)]
    parts: list[Any] = [None if type_ is None else to_json(type_)]
    path = None if name in dict(stream.schema) else read_path(name)
    inner = nested.get(path.root) if path is not None else None
    for step in path.steps if path is not None else ():
        if not isinstance(inner, Nested):
            break
        parts.append([inner.kind, to_json(inner.inner("key")) if inner.kind == "map" else None])
        inner = behind(inner, step)  # type: ignore[assignment]
    return parts
