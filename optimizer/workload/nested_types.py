"""Nested types as streams.yaml declares them, in Spark's words: ``struct<a: long, b: map<string, array<double>>>``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.nested import DEEPEST, MOST_LEAVES, Nested
from optimizer.workload.values import Type

_OPENING = re.compile(r"\s*(struct|map|array)\s*<", re.IGNORECASE)
_FIELD = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([\w$-]+))\s*(?::|\s)")
_PLAIN = re.compile(r"[^<>(),:]*(?:\([^<>()]*\))?")

EXAMPLE = "struct<a: long, b: string>, map<string, double> or array<long>"


def is_nested(text: str) -> bool:
    """Return whether a text is to be read by :func:`parse_nested`."""
    return _OPENING.match(text) is not None


def parse_nested(text: str, plain: Callable[[str], Type]) -> Nested:
    """The nested type that a text names; ``plain`` reads the types in it. Raises HDL-454."""
    reader = _Reader(text, plain)
    nested = reader.read(0)
    if reader.text[reader.at :].strip() or not isinstance(nested, Nested):
        raise reader.refused("ends earlier")
    if nested.leaves > MOST_LEAVES:
        raise HeddleError("HDL-454", f"a nested type of more than {MOST_LEAVES} fields", "declare those that are used")
    return nested


@dataclass
class _Reader:
    text: str
    plain: Callable[[str], Type]
    at: int = 0

    def refused(self, what: str) -> HeddleError:
        return HeddleError("HDL-454", f"{self.text[:80]!r} is not a type: it {what}", f"e.g. {EXAMPLE}, quoted")

    def read(self, depth: int) -> Type | Nested:
        opening = _OPENING.match(self.text, self.at)
        if opening is None:
            match = _PLAIN.match(self.text, self.at)
            assert match is not None
            self.at = match.end()
            return self.plain(match[0])
        if depth >= DEEPEST:
            raise self.refused(f"is more than {DEEPEST} deep")
        kind, self.at = opening[1].lower(), opening.end()
        if kind == "struct":
            return self._struct(depth)
        fields = [("element", self.read(depth + 1))]
        if kind == "map":
            fields = [("key", fields[0][1])]
            self._mark(",")
            fields.append(("value", self.read(depth + 1)))
            if getattr(fields[0][1], "name", "") not in ("string", "long"):
                raise self.refused("has keys that are neither texts nor integers")
        self._mark(">")
        return Nested(kind, tuple(fields))

    def _struct(self, depth: int) -> Nested:
        fields: dict[str, tuple[str, Type | Nested]] = {}
        while True:
            match = _FIELD.match(self.text, self.at)
            if match is None:
                raise self.refused("lacks a field's name, a colon or a type")
            name, self.at = match[2] or match[1].replace("``", "`"), match.end()
            # a space alone may stand before the type
            self.at += len(self.text[self.at :]) - len(self.text[self.at :].lstrip(": "))
            if name.lower() in fields:
                raise self.refused(f"has two fields {name}")
            fields[name.lower()] = (name, self.read(depth + 1))
            unread = self.text[self.at :].lstrip()
            if not unread.startswith(","):
                break
            self._mark(",")
        self._mark(">")
        return Nested("struct", tuple(fields.values()))

    def _mark(self, mark: str) -> None:
        unread = self.text[self.at :].lstrip()
        if not unread.startswith(mark):
            raise self.refused(f"lacks a {mark!r}")
        self.at = len(self.text) - len(unread) + 1
