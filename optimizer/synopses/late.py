"""Late joins: partial aggregates by the keys of dimensions, from which answers by their attributes are rolled up.

Joined *early*, an attribute is a column of the events when they are lifted: there are as many partial rows as there
are groups of attributes, and those of another version of the dimension are lifted again. Joined *late*, a synopsis
groups by the keys and ignores the conditions on attributes. The attributes are those of its groups, looked up when
queries are answered. Such rows hold of every version of the dimension, and queries by any of its attributes, or by
the key itself, share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from optimizer.workload.attribute_names import JoinedAttribute, inputs_of
from optimizer.workload.attributes import attributes_in
from optimizer.workload.computed_keys import key_expression
from optimizer.workload.expression import type_of
from optimizer.workload.notation import written
from optimizer.workload.predicates import normal
from optimizer.workload.values import ACQ, Call, Column, Expression, Stream, Type, columns_of

EXACT_KEYS = ("boolean", "long", "string", "date", "timestamp", "decimal")
"""Types of keys whose texts, as groups have them, are the values of the events."""


@dataclass(frozen=True)
class LateForm:
    """Content that a synopsis stores for a query that is joined late, and the rest of the query.

    Parameters
    ----------
    filter
        The query's filter without the conditions on attributes.
    group_by
        The keys of its dimensions and the group columns that are no attributes, sorted by name. A key that is computed
        of an attribute is none of them, but what else it is computed of.
    derived
        Those of them that are computed, as :class:`optimizer.workload.values.ACQ` has them.
    keys
        The names of those that keys are, or are computed of, by what these are called as keys.
    condition
        The conditions on attributes: of all groups those for which it is TRUE are in the answers. None: all are.
    attributes
        The attributes that are looked up for the groups, by name, those that are keys of others first.
    """

    filter: Expression | None
    group_by: tuple[tuple[str, Type], ...]
    derived: tuple[tuple[str, Expression], ...]
    keys: Mapping[str, str]
    condition: Expression | None
    attributes: Mapping[str, JoinedAttribute]


def late_form(stream: Stream, query: ACQ) -> LateForm | None:
    """The late form of a query; None if it is not possible, or the query joins nothing.

    Possible are windows of time whose attributes are group columns, or are compared in conditions that AND joins and
    that read nothing else but keys. Dimensions with validities are joined at the time of each event.
    """
    if not stream.dimensions or not query.kind.shares_synopses or query.sets:
        return None
    attributes = attributes_in(stream, query.columns())
    if not attributes or any(stream.dimension(each.dimension).valid_from for each in attributes.values()):
        return None
    computed = {column for output in query.computed for column in output.columns()}
    computed |= {column for _, expression in query.derived for column in columns_of(expression)}
    types, key_values = stream.types, _key_values(attributes)
    keys = {name for name, value in key_values.items() if isinstance(value, Column)}
    if computed & attributes.keys() or stream.time in keys or any(types[key].name not in EXACT_KEYS for key in keys):
        return None
    computed_keys = {written(value): value for name, value in key_values.items() if name not in keys}
    if any(name in types for name in computed_keys):
        # as a group column it would be another one
        return None
    stored, conditions = [], []
    for part in _conjuncts(query.filter):
        columns = set(columns_of(part))
        if not columns & attributes.keys():
            stored.append(part)
        elif columns <= attributes.keys() | keys:
            conditions.append(part)
        else:
            return None
    plain = [column for column in query.group_by if column[0] not in attributes]
    group_by = dict(plain) | {_group_name(value): type_of(value, types) for value in key_values.values()}
    return LateForm(
        normal(_all_of(stored), types),
        tuple(sorted(group_by.items(), key=itemgetter(0))),
        tuple((dict(query.derived) | computed_keys).items()),
        {name: _group_name(value) for name, value in key_values.items()},
        _all_of(conditions),
        attributes,
    )


def _key_values(attributes: Mapping[str, JoinedAttribute]) -> dict[str, Expression]:
    """Values by which groups are stored, by the names of the keys that they are, or are read for."""
    values: dict[str, Expression] = {}
    for attribute in attributes.values():
        for key in attribute.keys:
            inputs = inputs_of(key)
            # what is computed of an attribute is computed of the groups
            names = inputs if any(name in attributes for name in inputs) else [key]
            values |= {name: key_expression(name) for name in names if name not in attributes}
    return values


def _group_name(value: Expression) -> str:
    return value.name if isinstance(value, Column) else written(value)


def _conjuncts(filter: Expression | None) -> list[Expression]:
    if filter is None:
        return []
    if isinstance(filter, Call) and filter.function == "and":
        return [part for argument in filter.arguments for part in _conjuncts(argument)]
    return [filter]


def _all_of(parts: list[Expression]) -> Expression | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    return Call("and", tuple(parts))


def with_late_forms(stream: Stream, queries: Sequence[ACQ]) -> list[ACQ]:
    """Some queries of a stream, and those that may be joined late also as synopses then store them."""
    possible = [query for query in queries if late_form(stream, query) is not None]
    return [*as_stored(stream, queries, ()), *as_stored(stream, possible, [query.name for query in possible])]


def as_stored(stream: Stream, queries: Iterable[ACQ], late: Iterable[str]) -> list[ACQ]:
    """Some queries of a stream with the filters and group columns that synopses have for them; ``late``: the names of
    those that are joined late.
    """
    names, stored = frozenset(late), list[ACQ]()
    for query in queries:
        form = late_form(stream, query) if query.name in names else None
        if form is None:
            plain = replace(query, group_by=query.stored_group_by, select=query.select[:-1], sets=())
            stored.append(plain if query.sets else query)
        else:
            stored.append(replace(query, filter=form.filter, group_by=form.group_by, derived=form.derived))
    return stored
