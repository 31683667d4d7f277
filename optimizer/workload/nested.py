"""Nested columns: structs, maps and arrays, and the leaves in them that queries read as columns.

A *leaf* is a plain value inside a nested column. Its name is its path, wherever columns are known
by names: ``a.b``, ``m['key']``, ``a[0]``. Names that are no identifiers are in backticks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from optimizer.workload.values import Type

DEEPEST = 16
"""Fields, keys and places from a column down to a leaf."""

MOST_LEAVES = 10_000
"""Fields of all nested columns of a stream that are known, those of maps and arrays once."""

_NAME = re.compile(r"[^\W\d]\w*")
_STEP = re.compile(
    r"\.(?:(?P<name>[^\W\d]\w*)|`(?P<quoted>(?:[^`]|``)*)`)|\['(?P<key>(?:[^']|'')*)'\]|\[(?P<at>-?\d+)\]"
)


@dataclass(frozen=True)
class Nested:
    """The type of a nested column. ``kind``: struct, with the names and types of its ``fields``; map, with "key" and
    "value"; array, with "element"."""

    kind: str
    fields: tuple[tuple[str, Type | Nested], ...]

    def inner(self, name: str) -> Type | Nested:
        """The type of a field, of the values of a map, of the elements of an array."""
        return dict(self.fields)[name]

    @property
    def leaves(self) -> int:
        """Number of plain types in it."""
        return sum(inner.leaves if isinstance(inner, Nested) else 1 for _, inner in self.fields)

    def __str__(self) -> str:
        separator = ": " if self.kind == "struct" else ""
        parts = ((_name(name) if separator else "") + separator + str(inner) for name, inner in self.fields)
        return f"{self.kind}<{', '.join(parts)}>"


class Step(NamedTuple):
    """One step down: to a field of a struct, or in brackets to a key or a place."""

    is_field: bool
    value: str | int

    def __str__(self) -> str:
        if self.is_field:
            return "." + _name(str(self.value))
        return f"[{self.value}]" if isinstance(self.value, int) else "['" + self.value.replace("'", "''") + "']"


class Path(NamedTuple):
    """Path of a leaf: a column and the steps from there."""

    root: str
    steps: tuple[Step, ...]

    def name(self, plain: Iterable[str]) -> str:
        """The name of the leaf; another one where one of the ``plain`` columns is called so."""
        text = _name(self.root) + "".join(map(str, self.steps))
        return (
            text
            if text.lower() not in {name.lower() for name in plain}
            else _quoted(self.root) + "".join(map(_with_quotes, self.steps))
        )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _name(name: str) -> str:
    return name if _NAME.fullmatch(name) else _quoted(name)


def _with_quotes(step: Step) -> str:
    return "." + _quoted(str(step.value)) if step.is_field else str(step)


@lru_cache(maxsize=4096)
def read_path(name: str) -> Path | None:
    """The path in the name of a leaf; None if the name is not a leaf's."""
    steps, at = list[Step](), 0
    # a root is written as a field is
    text = "." + name
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            return None
        key = match["key"]
        if match["at"] is not None:
            steps.append(Step(False, int(match["at"])))
        elif key is not None:
            steps.append(Step(False, key.replace("''", "'")))
        else:
            steps.append(Step(True, match["name"] or match["quoted"].replace("``", "`")))
        at = match.end()
    return Path(str(steps[0].value), tuple(steps[1:])) if len(steps) > 1 and steps[0].is_field else None


def behind(type_: Type | Nested, step: Step) -> Type | Nested | None:
    """Type that a step leads to; None if it leads nowhere."""
    if not isinstance(type_, Nested):
        return None
    if type_.kind == "struct":
        return dict(type_.fields).get(str(step.value)) if step.is_field else None
    if step.is_field:
        return None
    if type_.kind == "array":
        fits = isinstance(step.value, int) and 0 <= step.value < 1 << 31
        return type_.inner("element") if fits else None
    key = type_.inner("key")
    digits = getattr(key, "digits", 0)
    bits = {3: 7, 5: 15, 10: 31, 19: 63}.get(digits)
    if isinstance(step.value, int):
        fits = bits is not None and -(1 << bits) <= step.value < 1 << bits
    else:
        fits = getattr(key, "name", "") == "string"
    return type_.inner("value") if fits else None


class LeafTypes(dict[str, "Type"]):
    """The types of a stream's plain columns, which alone are iterated over, of every leaf of its nested ones, and of
    what ``others`` gives the type of."""

    def __init__(
        self,
        plain: Mapping[str, Type],
        nested: Mapping[str, Nested],
        others: Callable[[str], Type | None] = lambda name: None,
    ) -> None:
        super().__init__(plain)
        self.nested, self._others = dict(nested), others

    def __missing__(self, name: str) -> Type:
        type_ = self.get(name)
        if type_ is None:
            raise KeyError(name)
        return type_

    def get(self, name: str, default: Any = None) -> Any:
        """The type of a plain column or a leaf."""
        if super().__contains__(name):
            return super().__getitem__(name)
        path = read_path(name)
        type_: Type | Nested | None = self.nested.get(path.root) if path is not None else None
        for step in path.steps if path is not None else ():
            type_ = behind(type_, step) if type_ is not None else None
        if type_ is None or isinstance(type_, Nested):
            type_ = self._others(name)
        return default if type_ is None else type_

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and self.get(name) is not None)


def leaf_names(name: str, type_: Type | Nested) -> Iterator[str]:
    """The names of leaves below what has a name, those of maps and arrays as they begin."""
    pending: list[tuple[str, Type | Nested]] = [(name, type_)]
    while pending:
        name, inner = pending.pop(0)
        if isinstance(inner, Nested) and inner.kind == "struct":
            pending[:0] = [(f"{name}.{_name(field)}", below) for field, below in inner.fields]
        elif isinstance(inner, Nested):
            yield f"{name}['…']" if inner.kind == "map" else f"{name}[0]"
        else:
            yield name
