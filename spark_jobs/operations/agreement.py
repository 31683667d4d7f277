"""Compare two lists of answers, whatever their order, and list the differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

Row = Mapping[str, Any]

TOLERANCE = 1e-9
"""Largest difference between doubles, as a share of the larger one: what another order of addition may cause."""


@dataclass(frozen=True)
class Mismatch:
    """An answer that is ``missing`` (expected, not there), ``unexpected``, or ``differs`` in some ``columns``."""

    kind: Literal["missing", "unexpected", "differs"]
    expected: Row | None
    actual: Row | None
    columns: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The mismatch as a difference for people: ``-`` what was expected, ``+`` what is there."""
        shown = []
        for mark, row in (("-", self.expected), ("+", self.actual)):
            if row is not None:
                names = [*(name for name in row if name not in self.columns), *self.columns]
                texts = (f"{name}: {text_of(row.get(name))}" for name in names)
                shown.append(f"{mark} {', '.join(texts)}")
        return shown


def mismatches(
    expected: Sequence[Row], actual: Sequence[Row], keys: Sequence[str], tolerance: float = TOLERANCE
) -> list[Mismatch]:
    """The rows of two lists that have no partner in the other; of an expected row only the columns that it has
    count.

    ``keys``: columns that identify an answer: rows that agree in those but in no other differ.
    """
    partners = _Partners(actual, keys)
    unmet: list[Row] = []
    # those that say most choose first
    for row in sorted(expected, key=lambda row: -len(row)):
        if partners.take(row, lambda other, row=row: not _unequal(row, other, tolerance)) is None:  # type: ignore[misc]
            unmet.append(row)
    wrong: list[Mismatch] = []
    for row in unmet:
        other = partners.take(row, lambda _: True) if any(name in row for name in keys) else None
        if other is None:
            wrong.append(Mismatch("missing", row, None))
        else:
            names = _unequal(row, other, tolerance)
            wrong.append(Mismatch("differs", row, {name: other.get(name) for name in row}, names))
    return wrong + [Mismatch("unexpected", None, row) for row in partners.left()]


class _Partners:
    """Rows that are still without a partner, looked up by their values of some columns in one step."""

    def __init__(self, rows: Sequence[Row], keys: Sequence[str]) -> None:
        self.rows: list[Row | None] = list(rows)
        self.keys = keys
        self.places: dict[tuple[str, ...], dict[tuple[Any, ...], list[int]]] = {}

    def take(self, row: Row, fits: Callable[[Row], bool]) -> Row | None:
        """The first row left with the same values of the keys that ``row`` has, if it fits; None if there is none."""
        names = tuple(name for name in self.keys if name in row)
        if names not in self.places:
            index = self.places[names] = {}
            for at, other in enumerate(self.rows):
                if other is not None:
                    index.setdefault(_values(other, names), []).append(at)
        for at in self.places[names].get(_values(row, names), ()):
            other = self.rows[at]
            if other is not None and fits(other):
                self.rows[at] = None
                return other
        return None

    def left(self) -> list[Row]:
        """The rows that nobody took."""
        return [row for row in self.rows if row is not None]


def _values(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    values = (row.get(name) for name in names)
    return tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in values)


def _unequal(row: Row, other: Row, tolerance: float) -> tuple[str, ...]:
    """The columns of a row in which another one differs from it."""
    return tuple(name for name, value in row.items() if not is_same(value, other.get(name), tolerance))


def is_same(value: Any, other: Any, tolerance: float = TOLERANCE) -> bool:
    """Return whether two values are equal, doubles nearly; null and NaN are equal only to themselves."""
    if value is None or other is None:
        return value is other
    if isinstance(value, float) or isinstance(other, float):
        try:
            left, right = float(value), float(other)
        except (TypeError, ValueError, OverflowError):
            return False
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right or math.isclose(left, right, rel_tol=tolerance)
    if isinstance(value, bool) != isinstance(other, bool):
        return False
    if isinstance(value, Decimal) or isinstance(other, Decimal):
        try:
            return Decimal(value) == Decimal(other)
        except (ArithmeticError, TypeError, ValueError):
            return False
    return bool(value == other)


def text_of(value: Any) -> str:
    """A value for people."""
    if value is None:
        return "null"
    return str(value.isoformat()).replace("+00:00", "Z") if hasattr(value, "isoformat") else str(value)
