"""Attributes: columns of dimensions, as the events of a stream have them through a join.

A query knows an attribute by one name, as it knows a column: ``products(product_id).department`` is the column
``department`` of the row of ``products`` whose key equals the event's ``product_id``, null if there is no such row.
``products(product_id).*`` says whether there is one. A key may itself be an attribute, where dimensions are
chained: ``departments(products(product_id).department_id).division``. Names that are no identifiers are in backticks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from optimizer.workload.values import Stream, Workload

DEEPEST_CHAIN = 8
"""Dimensions on the way from a stream to an attribute."""

_NAME = re.compile(r"[^\W\d]\w*")
_QUOTED = re.compile(r"`((?:[^`]|``)*)`")


class JoinedAttribute(NamedTuple):
    """A column of a dimension as events have it.

    Parameters
    ----------
    dimension
        The name of the dimension.
    keys
        Names of columns of the stream, or of other attributes, in the order of the dimension's key.
    column
        The column of the dimension. None: whether the dimension has a row for the event.
    """

    dimension: str
    keys: tuple[str, ...]
    column: str | None

    @property
    def name(self) -> str:
        """The name by which queries, plans and synopses know it."""
        keys = ", ".join(key if read_attribute(key) is not None else _written(key) for key in self.keys)
        return f"{self.dimension}({keys})" + "." + ("*" if self.column is None else _written(self.column))

    @property
    def depth(self) -> int:
        """Dimensions on the way to it, with its own."""
        inner = (read_attribute(key) for key in self.keys)
        return 1 + max((attribute.depth for attribute in inner if attribute is not None), default=0)

    @property
    def row(self) -> JoinedAttribute:
        """The attribute that says whether the dimension has a row for the event."""
        return self._replace(column=None)


def _written(name: str) -> str:
    return name if _NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


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
        inner = _attribute(text, at, depth + 1)
        part = (text[at : inner[1]], inner[1]) if inner is not None else _name(text, at)
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


def _name(text: str, at: int) -> tuple[str, int] | None:
    if match := _NAME.match(text, at):
        return match[0], match.end()
    match = _QUOTED.match(text, at)
    return None if match is None else (match[1].replace("``", "`"), match.end())


def shown_column(name: str) -> str:
    """A column, or a computed group column, as people read it.

    An attribute has the dimension's name before it, ``products.department``; whether there is a row reads
    ``product_id IN products``. Attributes inside an expression are written so, too.
    """
    attribute = read_attribute(name)
    if attribute is None:
        return _QUOTED.sub(lambda match: _shown_quoted(match[0], match[1]), name) if "(" in name else name
    if attribute.column is not None:
        return f"{attribute.dimension}.{_written(attribute.column)}"
    keys = ", ".join(map(shown_column, attribute.keys))
    return f"{keys if len(attribute.keys) == 1 else f'({keys})'} IN {attribute.dimension}"


def _shown_quoted(text: str, name: str) -> str:
    """A name in backticks inside an expression as people read it."""
    return text if read_attribute(name) is None else shown_column(name)


def described_column(name: str, stream: str) -> str:
    """A column of a stream in a sentence: ``symbol of trades``; ``department of products, by product_id``."""
    attribute = read_attribute(name)
    if attribute is None or attribute.column is None:
        return f"{shown_column(name)} of {stream}"
    return f"{attribute.column} of {attribute.dimension}, by {', '.join(map(shown_column, attribute.keys))}"


def last_name(name: str) -> str:
    """A column's name; of an attribute, the name that its dimension's column has."""
    attribute = read_attribute(name)
    return name if attribute is None else attribute.column or attribute.dimension


def attributes_in(stream: Stream, columns: Iterable[str]) -> dict[str, JoinedAttribute]:
    """The attributes among some column names of a stream, by name, and those that their keys are, which come first."""
    attributes: dict[str, JoinedAttribute] = {}
    known = {dimension.name for dimension in stream.dimensions}
    for name in columns if known else ():
        attribute = read_attribute(name)
        if attribute is not None and attribute.dimension in known and name not in attributes:
            attributes |= attributes_in(stream, attribute.keys)
            attributes[name] = attribute
    return attributes


def shown_columns(names: Iterable[str]) -> list[str]:
    """Columns as people read them, each once, without whether dimensions have rows."""
    attributes = ((name, read_attribute(name)) for name in names)
    shown = (shown_column(name) for name, attribute in attributes if attribute is None or attribute.column is not None)
    return list(dict.fromkeys(shown))


def described_joins(columns: Iterable[str]) -> list[str]:
    """The joins behind some columns of a query, a sentence each: dimension, keys, columns in use, inner or left."""
    used: dict[JoinedAttribute, list[str]] = {}
    for attribute in _in_names(columns):
        used.setdefault(attribute.row, []).append(attribute.column or "")
    sentences = []
    for row, names in used.items():
        keys = ", ".join(map(shown_column, row.keys))
        of = f", for {', '.join(filter(None, names))}" if any(names) else ""
        without = "leaves out events without a row" if "" in names else "null where there is no row"
        sentences.append(f"joins {row.dimension} by {keys}{of}: {without}")
    return sentences


def _in_names(columns: Iterable[str]) -> list[JoinedAttribute]:
    """The attributes among some names, and those that their keys are, which come first."""
    attributes: dict[JoinedAttribute, None] = {}
    for attribute in filter(None, map(read_attribute, columns)):
        attributes |= dict.fromkeys(_in_names(attribute.keys))
        attributes[attribute] = None
    return list(attributes)


def columns_read(stream: Stream, columns: Iterable[str]) -> list[str]:
    """The columns of a stream's files that some columns are read from: instead of attributes, the keys of the
    dimensions. Each once, in order.
    """
    names = list(columns)
    attributes = attributes_in(stream, names)
    keys = (key for attribute in attributes.values() for key in attribute.keys)
    return list(dict.fromkeys(name for name in (*names, *keys) if name not in attributes))


def with_joined_dimensions(workload: Workload) -> Workload:
    """The workload whose streams have only the dimensions that its queries join."""

    def joined(stream: Stream) -> Stream:
        columns = {column for query in workload.queries_of(stream.name) for column in query.columns()}
        names = {attribute.dimension for attribute in attributes_in(stream, columns).values()}
        return replace(stream, dimensions=tuple(each for each in stream.dimensions if each.name in names))

    streams = tuple(joined(stream) if stream.dimensions else stream for stream in workload.streams)
    return workload if streams == workload.streams else replace(workload, streams=streams)
