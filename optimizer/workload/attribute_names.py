"""Names of attributes: columns of dimensions, as the events of a stream have them through a join.

A query knows an attribute by one name, as it knows a column: ``products(product_id).department`` is the column
``department`` of the row of ``products`` whose key equals the event's ``product_id``, null if there is no such row.
``products(product_id).*`` says whether there is one. A key may itself be an attribute, where dimensions are
chained: ``departments(products(product_id).department_id).division``. Names that are no identifiers are in backticks.

A key may be computed: ``products(=upper(sku)).department``. Behind the ``=`` is a call; its arguments are calls, names
as above, and constants with their types (``'day'``, ``long(1) '5'``, ``date null``). Equal expressions have one text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

DEEPEST_CHAIN = 8
"""Dimensions on the way from a stream to an attribute."""

DEEPEST_CALL = 128
"""Calls around a value of a computed key."""

COMPUTED = "="
"""Beginning of a key that is computed."""

_NAME = re.compile(r"[^\W\d]\w*")
_QUOTED = re.compile(r"`((?:[^`]|``)*)`")
_FUNCTION = re.compile(r"(?:[^\W\d]\w*|[-=!<>+*/]+)(?=\()")
_CONSTANT = re.compile(r"(?:(\w+(?:\(\d+(?:,\d+)?\))?) )?(?:'((?:[^']|'')*)'|(?<= )null)")


class JoinedAttribute(NamedTuple):
    """A column of a dimension as events have it.

    Parameters
    ----------
    dimension
        The name of the dimension.
    keys
        Names of columns of the stream, or of other attributes, or texts of computed values (:func:`read_key`), in the
        order of the dimension's key.
    column
        The column of the dimension. None: whether the dimension has a row for the event.
    """

    dimension: str
    keys: tuple[str, ...]
    column: str | None

    @property
    def name(self) -> str:
        """The name by which queries, plans and synopses know it."""
        keys = ", ".join(key if read_key(key) is not None else name_text(key) for key in self.keys)
        return f"{self.dimension}({keys})" + "." + ("*" if self.column is None else quoted_name(self.column))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the columns and attributes that its keys are, or are computed of."""
        return tuple(dict.fromkeys(name for key in self.keys for name in inputs_of(key)))

    @property
    def depth(self) -> int:
        """Dimensions on the way to it, with its own."""
        inner = (read_attribute(name) for name in self.inputs)
        return 1 + max((attribute.depth for attribute in inner if attribute is not None), default=0)

    @property
    def row(self) -> JoinedAttribute:
        """The attribute that says whether the dimension has a row for the event."""
        return self._replace(column=None)


class KeyCall(NamedTuple):
    """A call in a computed key."""

    function: str
    arguments: tuple[KeyPart, ...]


class KeyConstant(NamedTuple):
    """A constant in a computed key: its type and its value as texts. ``text`` None: null."""

    type: str
    text: str | None


KeyPart = KeyCall | KeyConstant | str
"""A part of a computed key; a text is the name of a column or of an attribute."""


def quoted_name(name: str) -> str:
    """A name in backticks, unless it is an identifier."""
    return name if _NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def name_text(name: str) -> str:
    """The name of a column or attribute as a key has it."""
    return name if read_attribute(name) is not None else quoted_name(name)


def key_text(part: KeyPart) -> str:
    """The text of a part of a computed key; that of the complete key begins with :data:`COMPUTED`."""
    if isinstance(part, str):
        return name_text(part)
    if isinstance(part, KeyCall):
        return f"{part.function}({', '.join(map(key_text, part.arguments))})"
    if part.text is None:
        return f"{part.type} null"
    text = "'" + part.text.replace("'", "''") + "'"
    return text if part.type == "string" else f"{part.type} {text}"


@lru_cache(maxsize=8192)
def read_key(key: str) -> KeyCall | None:
    """The call that a computed key is; None if the key is the name of a column or of an attribute."""
    if not key.startswith(COMPUTED):
        return None
    read = _call(key, len(COMPUTED), 0, 0)
    return read[0] if read is not None and read[1] == len(key) else None


def inputs_of(key: str) -> list[str]:
    """Names of the columns and attributes that a key is, or is computed of, each once."""
    computed = read_key(key)
    return [key] if computed is None else list(dict.fromkeys(_names(computed)))


def _names(part: KeyPart) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, KeyCall):
        for argument in part.arguments:
            yield from _names(argument)


@lru_cache(maxsize=8192)
def read_attribute(name: str) -> JoinedAttribute | None:
    """The attribute that a name denotes; None if it is the name of no attribute."""
    if "(" not in name:
        return None
    read = _attribute(name, 0, 0)
    return read[0] if read is not None and read[1] == len(name) else None


def _attribute(text: str, at: int, depth: int) -> tuple[JoinedAttribute, int] | None:
    """The attribute that begins at a place of a text, and the place behind it."""
    head = _NAME.match(text, at)
    if head is None or not text.startswith("(", head.end()) or depth > DEEPEST_CHAIN:
        return None
    keys, at = list[str](), head.end() + 1
    while True:
        part = _key(text, at, depth)
        if part is None:
            return None
        key, at = part
        keys.append(key)
        if text.startswith(")", at):
            break
        if not text.startswith(", ", at):
            return None
        at += 2
    at += 2
    if text[at - 1 : at] != ".":
        return None
    if text.startswith("*", at):
        return JoinedAttribute(head[0], tuple(keys), None), at + 1
    column = _name(text, at)
    return None if column is None else (JoinedAttribute(head[0], tuple(keys), column[0]), column[1])


def _key(text: str, at: int, depth: int) -> tuple[str, int] | None:
    if text.startswith(COMPUTED, at):
        call = _call(text, at + len(COMPUTED), depth, 0)
        return None if call is None else (text[at : call[1]], call[1])
    return _attribute_text(text, at, depth) or _name(text, at)


def _attribute_text(text: str, at: int, depth: int) -> tuple[str, int] | None:
    inner = _attribute(text, at, depth + 1)
    return None if inner is None else (text[at : inner[1]], inner[1])


def _call(text: str, at: int, depth: int, level: int) -> tuple[KeyCall, int] | None:
    """The call that begins at a place of a text, and the place behind it."""
    head = _FUNCTION.match(text, at)
    if head is None or level > DEEPEST_CALL:
        return None
    arguments, at = list[KeyPart](), head.end() + 1
    while True:
        # an attribute begins as a call does, and a call as a name
        argument = _constant(text, at) or _attribute_text(text, at, depth) or _call(text, at, depth, level + 1)
        argument = argument or _name(text, at)
        if argument is None:
            return None
        arguments.append(argument[0])
        at = argument[1]
        if text.startswith(")", at):
            return KeyCall(head[0], tuple(arguments)), at + 1
        if not text.startswith(", ", at):
            return None
        at += 2


def _constant(text: str, at: int) -> tuple[KeyConstant, int] | None:
    match = _CONSTANT.match(text, at)
    if match is None:
        return None
    return KeyConstant(match[1] or "string", None if match[2] is None else match[2].replace("''", "'")), match.end()


def _name(text: str, at: int) -> tuple[str, int] | None:
    if match := _NAME.match(text, at):
        return match[0], match.end()
    match = _QUOTED.match(text, at)
    return None if match is None else (match[1].replace("``", "`"), match.end())
