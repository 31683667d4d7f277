"""Column lineage of a query: which columns of its stream and of the dimensions that it joins each column of its answers
is made of, and which decide the answers as a whole.

The kinds are those of OpenLineage's facet ``columnLineage``. Together, the columns of a query's lineage are exactly
those that decide its answers (:meth:`optimizer.workload.values.ACQ.deciding_columns`), the stream's time, the column by
which repeated events are known, and of each joined dimension the key on both sides with the columns of its validity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from optimizer.workload.attributes import attributes_in, read_attribute
from optimizer.workload.values import ACQ, Output, Stream, columns_of


class Dependency(Enum):
    """Kinds of dependency of a column on another: type and subtype of OpenLineage's transformations."""

    IDENTITY = ("DIRECT", "IDENTITY")
    TRANSFORMATION = ("DIRECT", "TRANSFORMATION")
    AGGREGATION = ("DIRECT", "AGGREGATION")
    FILTER = ("INDIRECT", "FILTER")
    GROUP_BY = ("INDIRECT", "GROUP_BY")
    SORT = ("INDIRECT", "SORT")
    WINDOW = ("INDIRECT", "WINDOW")
    JOIN = ("INDIRECT", "JOIN")


Source = tuple[str, Dependency]
"""A column of the stream or an attribute of a dimension, and how something depends on it."""


@dataclass(frozen=True)
class ColumnLineage:
    """Lineage of a query's answers.

    - ``window``: sources of the columns that say which window an answer is of;
    - ``groups``, ``outputs``: sources of each group column and each output, in the query's order;
    - ``answers``: sources of all columns, as they decide which events are aggregated and which answers exist.
    """

    window: tuple[Source, ...]
    groups: tuple[tuple[Source, ...], ...]
    outputs: tuple[tuple[Source, ...], ...]
    answers: tuple[Source, ...]

    @property
    def columns(self) -> set[str]:
        """All columns of the stream, and attributes, that the lineage names."""
        parts = (self.window, self.answers, *self.groups, *self.outputs)
        return {column for sources in parts for column, _ in sources}


def column_lineage(query: ACQ, stream: Stream) -> ColumnLineage:
    """The lineage of a query over its stream."""
    computed = dict(query.derived)
    groups: list[list[Source]] = [
        [(column, Dependency.IDENTITY)]
        if column not in computed
        else [(name, Dependency.TRANSFORMATION) for name in columns_of(computed[column])]
        for column, _ in query.stored_group_by
    ]
    # the number of a grouping set is made of no column
    groups += [[]] * bool(query.sets)
    joins = _joins(query, stream)
    return ColumnLineage(
        ((stream.time, Dependency.TRANSFORMATION),),
        tuple(map(_distinct, groups)),
        tuple(_distinct(_of_output(output)) for output in query.outputs),
        _distinct([*_columns_alone(_of_answers(query, stream)), *joins]),
    )


def _columns_alone(sources: Iterable[Source]) -> Iterator[Source]:
    """Sources without the conditions that a dimension has a row: these are the keys of its join."""
    for name, dependency in sources:
        attribute = read_attribute(name)
        if attribute is None or attribute.column is not None:
            yield name, dependency


def _joins(query: ACQ, stream: Stream) -> list[Source]:
    """Sources that decide which row of a dimension an event has: both sides of the key, and times of validities."""
    sources: list[Source] = []
    for attribute in attributes_in(stream, query.columns()).values():
        dimension = stream.dimension(attribute.dimension)
        names = [*attribute.inputs, *(attribute._replace(column=column).name for column in dimension.special)]
        if dimension.valid_from is not None:
            names.append(stream.time)
        sources += [(name, Dependency.JOIN) for name in names]
    return sources


def _of_output(output: Output) -> Iterator[Source]:
    for part in output.plain:
        yield from ((column, Dependency.AGGREGATION) for column in columns_of(part.argument))
        yield from ((column, Dependency.SORT) for column in columns_of(part.by))


def _of_answers(query: ACQ, stream: Stream) -> Iterator[Source]:
    """Yield what decides which events are aggregated together, and which answers exist."""
    yield stream.time, Dependency.WINDOW
    yield from ((column, Dependency.WINDOW) for column in (query.window.per or ()) if query.kind.counts_rows)
    if stream.event_id is not None:
        yield stream.event_id, Dependency.FILTER
    yield from ((column, Dependency.FILTER) for column in columns_of(query.filter))
    if query.kind.matches_patterns:
        yield query.sequence.on, Dependency.FILTER
        yield from ((column, Dependency.GROUP_BY) for column in query.sequence.per)
    computed = dict(query.derived)
    for column, _ in query.stored_group_by:
        names = columns_of(computed[column]) if column in computed else (column,)
        yield from ((name, Dependency.GROUP_BY) for name in names)
    for condition in query.having:
        yield from ((column, Dependency.FILTER) for column in condition.output.columns())
    for order in query.top.orders if query.top is not None else ():
        yield from ((column, Dependency.SORT) for column in order.output.columns())
    if query.kind.reads_every_column:
        # they order events of equal times
        yield from ((column, Dependency.SORT) for column in query.deciding_columns(stream))


def _distinct(sources: Iterable[Source]) -> tuple[Source, ...]:
    return tuple(dict.fromkeys(sources))
