"""Synopses: the partial aggregates that a tree stores, and the place of each state in a stored row.

The queries of a tree with one filter and one group-by are a *family*. A synopsis has the partial aggregates of one
or several families: one row per (fragment, shard, group) with the union of the edges and states that they need. A
*shard* is the set of tuples that satisfy exactly the same of the synopsis's predicates (Weave Share's shared data
shards); its number is the tuples' *signature*, bit i for predicate i. A family combines the shards that have its
bit, and rolls the groups up to its own columns.

A synopsis is named by its *fingerprint*, the hash of all that defines its content, so that a new plan version
finds the rows of an old one again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, NamedTuple

from optimizer.aggregates.algebra import AGGREGATES
from optimizer.aggregates.states import ROWS, State
from optimizer.synopses.late import as_stored
from optimizer.windows.alignment import Fragments, Progression
from optimizer.windows.calendars import edition
from optimizer.windows.periods import PERIODS, Periods
from optimizer.workload.instants import DAY
from optimizer.workload.values import (
    ACQ,
    LONG,
    TIMESTAMP,
    Call,
    Column,
    Expression,
    Literal,
    Stream,
    Type,
    columns_of,
    digest,
    to_json,
)
from optimizer.workload.window_kinds import ROWS as ROW_WINDOWS
from optimizer.workload.window_kinds import SEQUENCE, SESSION, TIME, WindowKind

FORMAT = 2
"""Version of the stored state layout: part of every fingerprint."""

CARRIERS = ("longs", "doubles", "texts")

MOST_PREDICATES = 62
"""Predicates of one synopsis: a signature is a non-negative int64."""

POSITION = "heddle position"
"""Group column of a synopsis for windows of rows: number of the first row of the row's fragment."""

DAILY: tuple[Progression, ...] = ((DAY, 0),)


class EventAttribute(NamedTuple):
    """Aggregated attribute of events, with its type.

    ``carriers``: the event types, sorted, whose events keep it. Events of other types count as null.
    """

    argument: Expression
    type: Type
    carriers: tuple[str, ...]


@dataclass(frozen=True)
class Sequenced:
    """Stored content of a synopsis of event sequences: the events, by key, time and type, equal ones compacted.

    ``on``: the column of the types; ``types``: those of the patterns, sorted; an event's code is its type's place.
    ``attributes``: sorted by their expressions.
    """

    on: str
    types: tuple[str, ...]
    attributes: tuple[EventAttribute, ...]

    def columns(self) -> set[str]:
        """Source columns of the types and of the attributes that some event keeps."""
        arguments = [argument for argument, _, carriers in self.attributes if carriers]
        return {self.on, *(name for argument in arguments for name in columns_of(argument))}

    @property
    def arguments(self) -> list[Expression]:
        """Expressions of the attributes, in their order."""
        return [attribute.argument for attribute in self.attributes]

    def kept_of(self, event: str) -> set[tuple[Expression, Type]]:
        """The attributes that are kept of events of one type."""
        return {(argument, type_) for argument, type_, carriers in self.attributes if event in carriers}


Family = tuple[Expression | None, tuple[tuple[str, Type], ...]]
"""A filter (None: every tuple) and the group columns with their types."""


@dataclass(frozen=True)
class Synopsis:
    """Partial aggregates: ``states`` per (fragment of ``edges``, shard of ``predicates``, group of ``group_by``).

    ``predicates``: distinct filters in normal form, None for every tuple; tuples that satisfy none are not stored.
    ``group_by``: the union of the families' group columns, sorted by name if there are several families.
    ``bucket_by``: names of the group columns that all families have, and their answers: rows that agree in them are in
    one bucket.

    ``per``: None if the edges are instants (microseconds). Else, as in :class:`optimizer.workload.values.Window`,
    they are row numbers: the fragment of rows is the group column :data:`POSITION`, the fragments of time are days
    (rows are numbered and stored by day), the first predicate is None and the states have the first and the last
    time.

    ``sequenced``: of event sequences. Their rows are not cut at the edges but by days: ``group_by`` are the columns
    in which the events of a sequence agree, one row has all events of a key and day.

    ``derived``: the group columns that are computed, as in :class:`optimizer.workload.values.ACQ`.

    ``gap`` (microseconds): of sessions. The fragments of their rows are *runs*: events of a group and shard that are at
    most a gap apart, from the first to behind the last, cut at the edges. Two runs of a group may overlap, as tasks see
    some of its events each. Whatever runs of at most this gap are joined, their sessions are the same.

    ``period``: None, or of a *level* the period of :data:`optimizer.windows.periods.PERIODS` that takes the place of
    the fragments. The rows of a level are combined from those of the synopsis (:func:`period_levels`).
    """

    stream: str
    time: str
    edges: tuple[Progression, ...]
    predicates: tuple[Expression | None, ...]
    group_by: tuple[tuple[str, Type], ...]
    states: tuple[State, ...]
    bucket_by: tuple[str, ...]
    per: tuple[str, ...] | None = None
    sequenced: Sequenced | None = None
    derived: tuple[tuple[str, Expression], ...] = ()
    gap: int | None = None
    period: str | None = None

    @cached_property
    def _levels(self) -> tuple[Synopsis, ...]:
        return tuple(replace(self, period=period) for period in PERIODS) if self.kind.has_fragments else ()

    @cached_property
    def fingerprint(self) -> str:
        """The hash by which stored partial aggregates are known: of all that decides what they hold."""
        states = [_told(state) for state in self.states]
        content = [to_json(self.predicates), to_json(self.group_by), states, self.bucket_by, self.per]
        content += [to_json(self.derived)] if self.derived else []
        content += [["gap", self.gap]] if self.gap is not None else []
        expressions = [*self.predicates, *(value for _, value in self.derived)]
        expressions += [value for state in self.states for value in (state.argument, state.by)]
        edges = self.edges
        if self.sequenced is not None:
            sequenced = self.sequenced
            content += [sequenced.on, sequenced.types]
            content += [[_attribute_told(attribute, sequenced.types) for attribute in sequenced.attributes]]
            edges = DAILY
            expressions += sequenced.arguments
        zones = sorted({zone for expression in expressions for zone in _zones_of(expression)})
        content += [[zone, edition(zone)] for zone in zones]
        content += [{"period": self.period}] if self.period else []
        return digest([FORMAT, self.stream, self.time, list(map(list, edges)), *content])

    @property
    def kind(self) -> WindowKind:
        """Kind of the windows that it is kept for."""
        if self.sequenced is not None:
            return SEQUENCE
        if self.gap is not None:
            return SESSION
        return TIME if self.per is None else ROW_WINDOWS

    @property
    def fragments(self) -> Fragments:
        """Its fragments of time."""
        if self.period is not None:
            return Periods(self.edges, self.period)
        return Fragments(DAILY if self.kind.counts_rows else self.edges)

    def bit(self, filter: Expression | None) -> int:
        """The bit of one of its predicates in a signature."""
        return 1 << self.predicates.index(filter)

    def is_plain(self, query: ACQ) -> bool:
        """Does the query read the stored rows as they are: its own filter alone, and its own group columns?"""
        return self.predicates == (query.filter,) and self.group_by == query.group_by

    def joins_late(self, query: ACQ) -> bool:
        """Return whether a query that it answers is joined late: its filter or group columns are not stored."""
        return query.filter not in self.predicates or not set(query.stored_group_by) <= set(self.group_by)

    def layout(self, carrier: str) -> list[tuple[State, int]]:
        """The states with fixed columns in a carrier, each with the offset of its first, in stored order."""
        offsets, offset = [], 0
        for state in self.states:
            if carrier in state.widths:
                offsets.append((state, offset))
                offset += state.widths[carrier]
        return offsets

    def width(self, carrier: str) -> int:
        """Number of fixed columns of the carrier's list in each stored row."""
        return sum(state.widths.get(carrier, 0) for state in self.states)


def period_levels(synopsis: Synopsis) -> tuple[Synopsis, ...]:
    """The levels of a synopsis, the shortest periods first; none where a row is not of a fragment. They are made once,
    for their fingerprints are computed again and again."""
    return synopsis._levels


def states_of(queries: Iterable[ACQ], former: bool = False) -> tuple[State, ...]:
    """The distinct states that some queries need, ``rows`` first, the others in an order of their own; ``former``:
    those that earlier versions stored for them."""
    states = {
        state
        for query in queries
        for output in query.computed
        for state in AGGREGATES[output.function].states(output, former)
    }
    return (ROWS, *sorted(states - {ROWS}, key=_key))


def former_of(synopsis: Synopsis, queries: Sequence[ACQ]) -> Synopsis:
    """The synopsis that earlier versions stored for some queries. Moments of integers and decimals were sums of
    doubles; of event sequences, all types' events had all attributes."""
    return SYNOPSES_BY_KIND[synopsis.kind].former(synopsis, queries)


def _former_events(synopsis: Synopsis, queries: Sequence[ACQ]) -> Synopsis:
    sequenced = synopsis.sequenced
    assert sequenced is not None
    attributes = tuple(attribute._replace(carriers=sequenced.types) for attribute in sequenced.attributes)
    return replace(synopsis, sequenced=replace(sequenced, attributes=attributes))


def _former_states(synopsis: Synopsis, queries: Sequence[ACQ]) -> Synopsis:
    needed = states_of(queries)
    unneeded = (state for state in synopsis.states if state not in needed)
    return replace(synopsis, states=tuple(dict.fromkeys((*states_of(queries, former=True), *unneeded))))


def _attribute_told(attribute: EventAttribute, types: tuple[str, ...]) -> list[Any]:
    """An attribute in a fingerprint; of all types' events it is as it was before there were carriers."""
    carriers = [] if attribute.carriers == types else [attribute.carriers]
    return [to_json(attribute.argument), to_json(attribute.type), *carriers]


def _told(state: State) -> list[Any]:
    return [state.kind, *map(to_json, (state.argument, state.type, state.by, state.by_type, state.error))]


def _key(value: State | Expression | None) -> str:
    """Sort key, so that the order of the queries does not matter."""
    return json.dumps(_told(value) if isinstance(value, State) else to_json(value), sort_keys=True)


def families_of(queries: Iterable[ACQ]) -> dict[Family, tuple[ACQ, ...]]:
    """The families of some queries, in order of their first."""
    queries_by_family: dict[Family, list[ACQ]] = {}
    for query in queries:
        queries_by_family.setdefault((query.filter, query.group_by), []).append(query)
    return {family: tuple(members) for family, members in queries_by_family.items()}


def synopsis_of(stream: Stream, queries: Sequence[ACQ], late: Iterable[str] = ()) -> Synopsis:
    """The one synopsis that answers some queries of a tree, with the union of their edges. ``late``: the names of
    those that are joined late.
    """
    answered = [query.answered_by for query in queries]
    queries = as_stored(stream, queries, late)
    edges = Fragments.of(query.window for query in queries).edges
    families = families_of(queries)
    predicates = tuple(sorted({filter for filter, _ in families}, key=_key))
    group_bys = list(dict.fromkeys(group_by for _, group_by in families))
    group_by = group_bys[0] if len(group_bys) == 1 else tuple(sorted(set().union(*group_bys), key=itemgetter(0)))
    common = frozenset.intersection(*answered)
    bucket_by = tuple(name for name, _ in group_by if name in common)
    per = queries[0].window.per
    derived = tuple(sorted(dict(column for query in queries for column in query.derived).items(), key=itemgetter(0)))
    states = states_of(queries)
    return Synopsis(stream.name, stream.time, edges, predicates, group_by, states, bucket_by, per, None, derived)


def synopses_of(
    stream: Stream, queries: Sequence[ACQ], together: Iterable[Sequence[str]] = (), late: Collection[str] = ()
) -> dict[Synopsis, tuple[ACQ, ...]]:
    """The synopses of one execution tree, each with the queries that it answers.

    ``queries``: the tree's, all over ``stream``. The edges of a synopsis are those of the queries that it answers:
    finer cuts for other queries of the tree would only be more rows to write, read and combine. ``together``: names
    of queries whose families share one synopsis. A family none of whose queries is named has a separate synopsis.
    ``late``: names of queries that are joined late (:mod:`optimizer.synopses.late`).
    """
    return SYNOPSES_BY_KIND[queries[0].kind].made(stream, queries, together, late)


def _of_time(
    stream: Stream, queries: Sequence[ACQ], together: Iterable[Sequence[str]], late: Collection[str]
) -> dict[Synopsis, tuple[ACQ, ...]]:
    """One synopsis for each family, or for several families that share one."""
    place = {name: number for number, names in enumerate(together) for name in names}
    queries_by_key: dict[object, list[ACQ]] = {}
    stored_queries = as_stored(stream, queries, late)
    originals = {id(stored): query for stored, query in zip(stored_queries, queries, strict=True)}
    for family, members in families_of(stored_queries).items():
        numbers = [place[query.name] for query in members if query.name in place]
        queries_by_key.setdefault(numbers[0] if numbers else family, []).extend(members)
    synopses: dict[Synopsis, tuple[ACQ, ...]] = {}
    for stored_members in queries_by_key.values():
        sharers = tuple(originals[id(stored)] for stored in stored_members)
        synopses[synopsis_of(stream, sharers, late)] = sharers
    return synopses


def _of_rows(
    stream: Stream, queries: Sequence[ACQ], together: Iterable[Sequence[str]], late: Collection[str]
) -> dict[Synopsis, tuple[ACQ, ...]]:
    """One synopsis a group-by and at most :data:`MOST_PREDICATES` filters: numbers of rows ignore the filter."""
    queries_by_key: dict[object, list[ACQ]] = {}
    numbers: dict[tuple[tuple[str, Type], ...], dict[Expression | None, int]] = {}
    for query in queries:
        known = numbers.setdefault(query.group_by, {})
        number = known.setdefault(query.filter, len(known))
        queries_by_key.setdefault((query.group_by, number // (MOST_PREDICATES - 1)), []).append(query)
    per = queries[0].window.per
    assert per is not None
    times = (State("min", Column(stream.time), TIMESTAMP), State("max", Column(stream.time), TIMESTAMP))
    synopses: dict[Synopsis, tuple[ACQ, ...]] = {}
    for members in queries_by_key.values():
        filters = {query.filter for query in members} - {None}
        predicates = (None, *sorted(filters, key=_key))
        states = tuple(dict.fromkeys((*states_of(members), *times)))
        edges = Fragments.of(query.window for query in members).edges
        group_by = (*members[0].group_by, (POSITION, LONG))
        synopses[Synopsis(stream.name, stream.time, edges, predicates, group_by, states, per, per)] = tuple(members)
    return synopses


def _of_sequences(
    stream: Stream, queries: Sequence[ACQ], together: Iterable[Sequence[str]], late: Collection[str]
) -> dict[Synopsis, tuple[ACQ, ...]]:
    """One synopsis a filter and group-by; without a group-by its keys are spread over all buckets."""
    edges = Fragments.of(query.window for query in queries).edges
    schema = stream.types
    synopses: dict[Synopsis, tuple[ACQ, ...]] = {}
    for (filter, group_by), members in families_of(queries).items():
        pattern = members[0].sequence
        types = frozenset[str]().union(*(query.sequence.types for query in members))
        carriers: dict[tuple[Expression, Type], set[str]] = {}
        for output in (output for query in members for output in query.computed):
            if output.argument is not None and output.argument_type is not None and output.event in types:
                carriers.setdefault((output.argument, output.argument_type), set()).add(output.event)
        ordered = sorted(carriers, key=lambda attribute: _key(attribute[0]))
        attributes = tuple(EventAttribute(*attribute, tuple(sorted(carriers[attribute]))) for attribute in ordered)
        per = tuple((name, schema[name]) for name in pattern.per)
        bucket_by = tuple(name for name in pattern.per if name in dict(group_by)) or pattern.per
        sequenced = Sequenced(pattern.on, tuple(sorted(types)), attributes)
        synopsis = Synopsis(stream.name, stream.time, edges, (filter,), per, (ROWS,), bucket_by, None, sequenced)
        synopses[synopsis] = members
    return synopses


def _of_sessions(
    stream: Stream, queries: Sequence[ACQ], together: Iterable[Sequence[str]], late: Collection[str]
) -> dict[Synopsis, tuple[ACQ, ...]]:
    """One synopsis a filter and group-by, with the least gap of its queries."""
    synopses: dict[Synopsis, tuple[ACQ, ...]] = {}
    for members in families_of(queries).values():
        gap = min(query.window.gap for query in members if query.window.gap is not None)
        per = frozenset.intersection(*(frozenset(query.window.per or ()) for query in members))
        synopsis = synopsis_of(stream, members)
        bucket_by = tuple(name for name in synopsis.bucket_by if name in per)
        synopses[replace(synopsis, bucket_by=bucket_by, per=None, gap=gap)] = members
    return synopses


class SynopsesOfKind(NamedTuple):
    """The synopses of one kind of window: ``made`` of the queries of a tree (:func:`synopses_of`), and what one was in
    a ``former`` version (:func:`former_of`)."""

    made: Callable[[Stream, Sequence[ACQ], Iterable[Sequence[str]], Collection[str]], dict[Synopsis, tuple[ACQ, ...]]]
    former: Callable[[Synopsis, Sequence[ACQ]], Synopsis]


SYNOPSES_BY_KIND: dict[WindowKind, SynopsesOfKind] = {
    TIME: SynopsesOfKind(_of_time, _former_states),
    ROW_WINDOWS: SynopsesOfKind(_of_rows, _former_states),
    SEQUENCE: SynopsesOfKind(_of_sequences, _former_events),
    SESSION: SynopsesOfKind(_of_sessions, _former_states),
}
"""Synopses of the queries of a tree, by kind of window."""


def counts_of(stream: Stream, per: tuple[str, ...]) -> Synopsis:
    """Number of rows of each key (of the entire stream if ``per`` is empty) per day, by which rows are numbered."""
    schema = stream.types
    group_by = tuple((name, schema[name]) for name in per)
    return Synopsis(stream.name, stream.time, DAILY, (None,), group_by, (ROWS,), per)


def _zones_of(expression: Expression | None) -> Iterator[str]:
    """Names of the time zones by whose clocks an expression reads times (with repeats)."""
    if isinstance(expression, Call):
        if expression.function == "at_zone" and isinstance(expression.arguments[1], Literal):
            yield str(expression.arguments[1].value)
        for argument in expression.arguments:
            yield from _zones_of(argument)
