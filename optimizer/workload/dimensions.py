"""Check the columns of a declared dimension."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from optimizer.errors.diagnostics import HeddleError, meant
from optimizer.workload.values import DATE, TIMESTAMP, Dimension, Type

KEY_TYPES = ("long", "string", "date", "timestamp", "boolean", "decimal")
"""Types of the key of a dimension."""


def with_columns(dimension: Dimension, columns: Iterable[tuple[str, Type]]) -> Dimension:
    """The dimension with these columns.

    Raises HDL-456 if two differ by case alone, HDL-455 if one of the key or of the validities is missing or of a type
    that neither can have.
    """
    schema = tuple(columns)
    types, seen = dict(schema), dict[str, str]()
    for name, _ in schema:
        if seen.setdefault(name.lower(), name) != name:
            message = f"dimension {dimension.name}: columns {seen[name.lower()]} and {name} differ by case at most"
            raise HeddleError("HDL-456", message, "rename one: Spark and Delta do not tell them apart")
    for name in dimension.special:
        if name not in types:
            message = f"dimension {dimension.name}: there is no column {name}"
            raise HeddleError("HDL-455", message, meant(name, types))
    for name in dimension.key:
        if types[name].name not in KEY_TYPES:
            message = f"dimension {dimension.name}: its key {name} is a {types[name]}"
            raise HeddleError("HDL-455", message, f"a key is one of {', '.join(KEY_TYPES)}")
    for name in dimension.special[len(dimension.key) :]:
        if types[name] not in (TIMESTAMP, DATE):
            message = f"dimension {dimension.name}: {name} is a {types[name]}"
            raise HeddleError("HDL-455", message, "validities are timestamps or dates")
    return replace(dimension, schema=schema)
