"""Columns that attributes of dimensions are read from, and how people read their names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from optimizer.workload.attribute_names import DEEPEST_CHAIN as DEEPEST_CHAIN
from optimizer.workload.attribute_names import JoinedAttribute as JoinedAttribute
from optimizer.workload.attribute_names import quoted_name, read_key
from optimizer.workload.attribute_names import read_attribute as read_attribute
from optimizer.workload.computed_keys import key_expression
from optimizer.workload.notation import written
from optimizer.workload.values import Column, Expression, Stream, Workload

_TEXT_OR_NAME = re.compile(r"'(?:[^']|'')*'|`((?:[^`]|``)*)`")


def shown_column(name: str) -> str:
    """A column, or a computed group column, as people read it.

    An attribute has the dimension's name before it, ``products.department``; whether there is a row reads
    ``product_id IN products``. Attributes inside an expression are written so, too.
    """
    attribute = read_attribute(name)
    if attribute is None:
        return _TEXT_OR_NAME.sub(lambda match: _shown_quoted(match[0], match[1]), name) if "(" in name else name
    if attribute.column is not None:
        return f"{attribute.dimension}.{quoted_name(attribute.column)}"
    keys = ", ".join(map(shown_key, attribute.keys))
    return f"{keys if len(attribute.keys) == 1 else f'({keys})'} IN {attribute.dimension}"


def _shown_quoted(text: str, quoted: str | None) -> str:
    """A text, or a name in backticks (without them ``quoted``), inside an expression as people read it."""
    name = "" if quoted is None else quoted.replace("``", "`")
    return text if read_attribute(name) is None else shown_column(name)


def shown_key(key: str) -> str:
    """A key of a join as people read it."""
    return shown_column(key) if read_key(key) is None else shown_expression(key_expression(key))


def shown_expression(value: Expression) -> str:
    """An expression as people read it, with attributes of dimensions as ``products.department``."""
    return shown_column(value.name) if isinstance(value, Column) else shown_column(written(value))


def described_column(name: str, stream: str) -> str:
    """A column of a stream in a sentence: ``symbol of trades``; ``department of products, by product_id``."""
    attribute = read_attribute(name)
    if attribute is None or attribute.column is None:
        return f"{shown_column(name)} of {stream}"
    return f"{attribute.column} of {attribute.dimension}, by {', '.join(map(shown_key, attribute.keys))}"


def last_name(name: str) -> str:
    """A column's name; of an attribute, the name that its dimension's column has."""
    attribute = read_attribute(name)
    return name if attribute is None else attribute.column or attribute.dimension


def attributes_in(stream: Stream, columns: Iterable[str]) -> dict[str, JoinedAttribute]:
    """The attributes among some column names of a stream, by name, and those that their keys read, which come first."""
    attributes: dict[str, JoinedAttribute] = {}
    known = {dimension.name for dimension in stream.dimensions}
    for name in columns if known else ():
        attribute = read_attribute(name)
        if attribute is not None and attribute.dimension in known and name not in attributes:
            attributes |= attributes_in(stream, attribute.inputs)
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
        keys = ", ".join(map(shown_key, row.keys))
        of = f", for {', '.join(filter(None, names))}" if any(names) else ""
        without = "leaves out events without a row" if "" in names else "null where there is no row"
        sentences.append(f"joins {row.dimension} by {keys}{of}: {without}")
    return sentences


def _in_names(columns: Iterable[str]) -> list[JoinedAttribute]:
    """The attributes among some names, and those that their keys read, which come first."""
    attributes: dict[JoinedAttribute, None] = {}
    for attribute in filter(None, map(read_attribute, columns)):
        attributes |= dict.fromkeys(_in_names(attribute.inputs))
        attributes[attribute] = None
    return list(attributes)


def columns_read(stream: Stream, columns: Iterable[str]) -> list[str]:
    """The columns of a stream's files that some columns are read from: instead of attributes, what the keys of the
    dimensions read. Each once, in order.
    """
    names = list(columns)
    attributes = attributes_in(stream, names)
    inputs = (name for attribute in attributes.values() for name in attribute.inputs)
    return list(dict.fromkeys(name for name in (*names, *inputs) if name not in attributes))


def with_joined_dimensions(workload: Workload) -> Workload:
    """The workload whose streams have only the dimensions that its queries join."""

    def joined(stream: Stream) -> Stream:
        columns = {column for query in workload.queries_of(stream.name) for column in query.columns()}
        names = {attribute.dimension for attribute in attributes_in(stream, columns).values()}
        return replace(stream, dimensions=tuple(each for each in stream.dimensions if each.name in names))

    streams = tuple(joined(stream) if stream.dimensions else stream for stream in workload.streams)
    return workload if streams == workload.streams else replace(workload, streams=streams)
