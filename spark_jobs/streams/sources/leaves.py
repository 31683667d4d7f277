"""Plain values inside structs, maps and arrays of Parquet and Delta: where they lie, their types, their values."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.nested import DEEPEST, Nested, Path, Step, read_path
from optimizer.workload.values import Stream, Type
from spark_jobs.streams.sources.splits import column_places


def path_of(stream: Stream, name: str) -> Path:
    """The column in which a plain column or a leaf lies, and the steps from there."""
    path = None if name in dict(stream.schema) else read_path(name)
    return path if path is not None else Path(name, ())


def _is_list(arrow: pa.DataType) -> bool:
    return pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow)


def _is_text(arrow: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(kind(arrow.value_type if pa.types.is_dictionary(arrow) else arrow) for kind in kinds)


class Leaf:
    """A leaf of a column of a file, whose type there is ``arrow``.

    ``steps``: as the file writes them; None: some struct has no such field. ``type``: the leaf's own type.
    """

    def __init__(self, stream: Stream, file: str, path: Path, arrow: pa.DataType) -> None:
        """Raises HDL-404 if a step cannot be taken, HDL-456 if two fields differ by case alone."""
        steps: list[Step] = []
        self.steps: tuple[Step, ...] | None = None
        self.type = pa.null()
        for step in path.steps:
            if pa.types.is_null(arrow):
                return
            inner = None
            if pa.types.is_struct(arrow) and step.is_field:
                names = [field.name for field in arrow]
                name = column_places(stream, file, names, [str(step.value)])[str(step.value)]
                if name is None:
                    return
                step, inner = Step(True, name), arrow.field(name).type
            elif pa.types.is_map(arrow) and _is_text(arrow.key_type) == isinstance(step.value, str):
                inner = arrow.item_type
            elif _is_list(arrow) and isinstance(step.value, int):
                inner = arrow.value_type
            if inner is None or (not step.is_field and pa.types.is_struct(arrow)):
                message = f"stream {stream.name}: {path.name(())} of {file}: {str(arrow)[:200]} has no {step}"
                raise HeddleError("HDL-404", message, "correct `schema` in streams.yaml, or the file")
            steps.append(step)
            arrow = inner
        self.steps, self.type = tuple(steps), arrow

    def place(self, root: str) -> tuple[str, ...]:
        """Path of the column, or of a field of its structs, that has to be read from a Parquet file."""
        names = [root]
        for step in self.steps or ():
            if not step.is_field:
                break
            names.append(str(step.value))
        return tuple(names)

    def values(self, column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
        """The values of the leaf in some rows of its column; null where there is none."""
        if self.steps is None:
            return pa.nulls(len(column))
        if isinstance(column, pa.ChunkedArray):
            return pa.chunked_array([self.values(chunk) for chunk in column.chunks] or [pa.nulls(0, self.type)])
        for step in self.steps:
            if step.is_field:
                column = pc.struct_field(column, column.type.get_field_index(str(step.value)))
            else:
                column = _behind_brackets(column, step.value)
        return column


def _behind_brackets(values: pa.Array, at: str | int) -> pa.Array:
    """Value of a key of each map, the first if there are several; element at a place of each array."""
    if not pa.types.is_map(values.type):
        if pa.types.is_fixed_size_list(values.type):
            values = values.cast(pa.large_list(values.type.value_type))
        inner = values.values
    else:
        inner = values.items
    offsets = values.offsets.to_numpy().astype(np.int64)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_map(values.type):
        keys = values.keys.cast(pa.large_string()) if isinstance(at, str) else values.keys.cast(pa.int64())
        same = np.flatnonzero(pc.fill_null(pc.equal(keys, at), False).to_numpy(zero_copy_only=False))
        # one behind the last, which is in no map
        places = np.append(same, offsets[-1])[np.searchsorted(same, offsets[:-1])]
    else:
        places = offsets[:-1] + int(at)
    valid &= places < offsets[1:]
    return inner.take(pa.array(np.where(valid, places, 0), mask=~valid))


def nested_of_arrow(arrow: pa.DataType, plain: Any, depth: int = 0) -> Type | Nested | None:
    """Type of a file's column, without the parts that queries cannot use; None: nothing remains. ``plain``: maps
    plain types.
    """
    plain_type: Type | Nested | None = plain(arrow)
    if plain_type is not None or depth >= DEEPEST:
        return plain_type
    if pa.types.is_struct(arrow):
        counts = Counter(field.name.lower() for field in arrow)
        fields = [
            (field.name, inner)
            for field in arrow
            if field.name.isprintable() and 0 < len(field.name) <= 255 and counts[field.name.lower()] == 1
            if (inner := nested_of_arrow(field.type, plain, depth + 1)) is not None
        ]
        return Nested("struct", tuple(fields)) if fields else None
    if pa.types.is_map(arrow):
        key, value = plain(arrow.key_type), nested_of_arrow(arrow.item_type, plain, depth + 1)
        if value is None or key is None or key.name not in ("string", "long"):
            return None
        return Nested("map", (("key", key), ("value", value)))
    element = nested_of_arrow(arrow.value_type, plain, depth + 1) if _is_list(arrow) else None
    return Nested("array", (("element", element),)) if element is not None else None
