"""What one synopsis can give another: a changed workload then pays for what it adds alone.

A stored row says the same under any synopsis whose fragments, shards and groups are unions of its own. So the rows of
one synopsis give those of a coarser one (longer fragments, fewer filters, fewer group columns, fewer states), without
an event being read; and where the other one has states or filters that the rows lack, those alone are lifted. A tuple
then stands in one shard by some of its filters and in another by the others: whoever answers combines the shards that
have the bit of one filter. Of event sequences rows hold the events themselves: they give those of the event types that
both have, if they have all that the other keeps of such events, and the events of other types are lifted beside them.

References: Gray et al., "Data Cube" (1997), for the roll-up; the states of a cell combine one by one
(:mod:`optimizer.aggregates.states`), so those of one cell may come from rows apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from optimizer.aggregates.states import ROWS
from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import Progression
from optimizer.workload.instants import DAY
from optimizer.workload.window_kinds import ROWS as ROW_WINDOWS
from optimizer.workload.window_kinds import SEQUENCE, TIME, WindowKind


def given_by(stored: Synopsis, wanted: Synopsis) -> Synopsis | None:
    """What rows of a stored synopsis give of another over the same events: the latter, of the filters and states that
    they have; of event sequences, of the event types.

    None if they give nothing that is worth it: other events or keys (of rows: other numbers), fragments that they do
    not cut, no filter (of rows: not all), no state but the number of tuples where others are wanted; of event
    sequences, another filter or column of types, no event type of which they have all attributes.
    """
    alike = (stored.stream, stored.time, stored.kind, stored.per)
    if alike != (wanted.stream, wanted.time, wanted.kind, wanted.per):
        return None
    columns = dict(stored.derived)
    if any(columns.get(name) != expression for name, expression in _computed(wanted)):
        return None
    return DERIVED_BY_KIND[wanted.kind].given(stored, wanted)


def _cells_given(stored: Synopsis, wanted: Synopsis) -> Synopsis | None:
    predicates = tuple(predicate for predicate in wanted.predicates if predicate in stored.predicates)
    if not predicates or not set(wanted.group_by) <= set(stored.group_by):
        return None
    if not all(_has((*stored.edges, (DAY, 0)), edge) for edge in wanted.edges):
        return None
    states = tuple(state for state in wanted.states if state in stored.states)
    if len(states) == 1 < len(wanted.states):
        return None
    return replace(wanted, predicates=predicates, states=states)


def _numbered_cells_given(stored: Synopsis, wanted: Synopsis) -> Synopsis | None:
    given = _cells_given(stored, wanted)
    # all rows are numbered for a filter: that is most of what lifting costs
    return given if given is not None and given.predicates == wanted.predicates else None


def _events_given(stored: Synopsis, wanted: Synopsis) -> Synopsis | None:
    assert stored.sequenced is not None and wanted.sequenced is not None
    alike = (stored.predicates, stored.group_by, stored.bucket_by, stored.sequenced.on)
    if alike != (wanted.predicates, wanted.group_by, wanted.bucket_by, wanted.sequenced.on):
        return None
    has, needs = stored.sequenced, wanted.sequenced
    types = tuple(type_ for type_ in needs.types if type_ in has.types and needs.kept_of(type_) <= has.kept_of(type_))
    return _of_types(wanted, types) if types else None


def _of_types(synopsis: Synopsis, types: tuple[str, ...]) -> Synopsis:
    """The synopsis of some of its event types; it has all attributes, if only in the layout of its rows."""
    assert synopsis.sequenced is not None
    attributes = tuple(
        attribute._replace(carriers=tuple(type_ for type_ in attribute.carriers if type_ in types))
        for attribute in synopsis.sequenced.attributes
    )
    return replace(synopsis, sequenced=replace(synopsis.sequenced, types=types, attributes=attributes))


def amount_of(given: Synopsis) -> int:
    """How much of a synopsis is given: states, once for each filter, or event types."""
    return DERIVED_BY_KIND[given.kind].amount(given)


def _number_of_cells(given: Synopsis) -> int:
    return len(given.predicates) * len(given.states)


def _number_of_types(given: Synopsis) -> int:
    assert given.sequenced is not None
    return len(given.sequenced.types)


class SynopsisPart(NamedTuple):
    """A part of a synopsis: some filters, states or event types. ``is_counted``: its tuples are counted by others."""

    synopsis: Synopsis
    is_counted: bool = False


def _events_lacking(part: SynopsisPart, given: Synopsis) -> list[SynopsisPart]:
    """What a part lacks if some of its event types are given."""
    wanted = part.synopsis
    assert wanted.sequenced is not None and given.sequenced is not None
    types = tuple(type_ for type_ in wanted.sequenced.types if type_ not in given.sequenced.types)
    return [SynopsisPart(_of_types(wanted, types))] if types else []


def _cells_lacking(part: SynopsisPart, given: Synopsis) -> list[SynopsisPart]:
    """What a part lacks if something of it is given: all states of the filters that are not, and of the others the
    states that are not."""
    wanted = part.synopsis
    predicates = tuple(predicate for predicate in wanted.predicates if predicate not in given.predicates)
    states = tuple(state for state in wanted.states if state not in given.states)
    left = [part._replace(synopsis=replace(wanted, predicates=predicates))] if predicates else []
    return left + ([SynopsisPart(replace(given, states=(ROWS, *states)), is_counted=True)] if states else [])


class DerivedOfKind(NamedTuple):
    """What stored rows of one kind of window give: ``given`` as :func:`given_by`, of two synopses over the same events
    and columns; the ``amount`` of it; what a part is ``lacking`` once it is given."""

    given: Callable[[Synopsis, Synopsis], Synopsis | None]
    amount: Callable[[Synopsis], int]
    lacking: Callable[[SynopsisPart, Synopsis], list[SynopsisPart]]


DERIVED_BY_KIND: dict[WindowKind, DerivedOfKind] = {
    TIME: DerivedOfKind(_cells_given, _number_of_cells, _cells_lacking),
    ROW_WINDOWS: DerivedOfKind(_numbered_cells_given, _number_of_cells, _cells_lacking),
    SEQUENCE: DerivedOfKind(_events_given, _number_of_types, _events_lacking),
}
"""What rows of each kind of window give to others."""


def shares_of(stored: Iterable[Synopsis], wanted: Synopsis) -> tuple[list[list[SynopsisPart]], list[SynopsisPart]]:
    """What of a synopsis each of some stored ones gives, a state of a filter (an event type) once, by the first that
    has it; and what has to be lifted from events beside.

    Raises ValueError if one of them gives nothing.
    """
    shares: list[list[SynopsisPart]] = []
    rest = [SynopsisPart(wanted)]
    for one in stored:
        share, left = [], []
        for part in rest:
            given = given_by(one, part.synopsis)
            share += [] if given is None else [part._replace(synopsis=given)]
            left += [part] if given is None else DERIVED_BY_KIND[given.kind].lacking(part, given)
        if not share:
            raise ValueError(f"synopsis {one.fingerprint} gives nothing of {wanted.fingerprint}")
        shares.append(share)
        rest = left
    return shares, rest


def best_of(stored: Iterable[Synopsis], rest: Iterable[Synopsis]) -> Synopsis | None:
    """Of some stored synopses the one that gives most of some parts of another, None if none gives anything."""
    parts = list(rest)
    best, most = None, 0
    for one in stored:
        amount = sum(amount_of(given) for part in parts if (given := given_by(one, part)) is not None)
        if amount > most:
            best, most = one, amount
    return best


def sources_of(stored: Iterable[Synopsis], wanted: Synopsis) -> list[Synopsis]:
    """Of some stored synopses those that give most of another, each some that those before it do not give."""
    found: list[Synopsis] = []
    stored = list(stored)
    while (best := best_of(stored, (part.synopsis for part in shares_of(found, wanted)[1]))) is not None:
        found.append(best)
    return found


def _computed(synopsis: Synopsis) -> list[tuple[str, object]]:
    """The group columns of a synopsis, each with the expression that computes it, None where it is the source's."""
    columns = dict(synopsis.derived)
    return [(name, columns.get(name)) for name, _ in synopsis.group_by]


def _has(edges: Iterable[Progression], wanted: Progression) -> bool:
    slide, shift = wanted
    return any(slide % other == 0 and shift % other == at for other, at in edges)
