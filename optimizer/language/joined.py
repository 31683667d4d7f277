"""Dimensions that a statement joins."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.workload.attributes import JoinedAttribute
from optimizer.workload.values import Dimension


@dataclass(frozen=True)
class Joined:
    """A dimension that a statement joins.

    Parameters
    ----------
    name
        Its name in the statement.
    dimension
        The dimension.
    keys
        Columns of the stream, attributes, or computed values (:mod:`optimizer.workload.computed_keys`), that equal its
        key, in the key's order.
    is_inner
        Whether events without a row are left out.
    """

    name: str
    dimension: Dimension
    keys: tuple[str, ...]
    is_inner: bool

    def equals_key(self, column: str, name: str | None) -> bool:
        """Return whether one of its columns is a key that equals the stream's column of a name."""
        key = self.dimension.key
        return column in key and name is not None and self.keys[key.index(column)] == name

    def attribute(self, column: str | None) -> JoinedAttribute:
        """One of its columns as the events have it. None: whether there is a row."""
        return JoinedAttribute(self.dimension.name, self.keys, column)
