"""What one synopsis can give another: a changed workload then pays for what it adds alone.

A stored row says the same under any synopsis whose fragments, shards and groups are unions of its own. So the rows of
one synopsis give those of a coarser one (longer fragments, fewer filters, fewer group columns, fewer states), without
an event being read; and where the coarser one has states that the rows lack, those states alone are lifted. Of event
sequences rows hold the events themselves: they give those of the event types that both have, if they have all that the
other keeps of such events, and the events of other types are lifted beside them.

References: Gray et al., "Data Cube" (1997), for the roll-up; the states of a cell combine one by one
(:mod:`optimizer.aggregates.states`), so those of one cell may come from rows apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from optimizer.aggregates.states import ROWS
from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import Progression
from optimizer.workload.instants import DAY
from optimizer.workload.values import WindowKind


def given_by(stored: Synopsis, wanted: Synopsis) -> Synopsis | None:
    """What rows of a stored synopsis give of another over the same events: the latter, of the states that they have; of
    event sequences, of the event types.

    None if they give nothing that is worth it: other events or keys (of rows: other numbers), fragments that they do
    not cut, shards that they do not tell apart, no state but the number of tuples where others are wanted; of event
    sequences, another filter or column of types, no event type of which they have all attributes.
    """
    alike = (stored.stream, stored.time, stored.kind, stored.per)
    if alike != (wanted.stream, wanted.time, wanted.kind, wanted.per):
        return None
    columns = dict(stored.derived)
    if any(columns.get(name) != expression for name, expression in _computed(wanted)):
        return None
    if wanted.kind is WindowKind.SEQUENCE:
        return _events_given(stored, wanted)
    if not (set(wanted.predicates) <= set(stored.predicates) and set(wanted.group_by) <= set(stored.group_by)):
        return None
    if not all(_has((*stored.edges, (DAY, 0)), edge) for edge in wanted.edges):
        return None
    states = tuple(state for state in wanted.states if state in stored.states)
    return replace(wanted, states=states) if len(states) > 1 or len(states) == len(wanted.states) else None


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
    """How much of a synopsis is given: states, or event types."""
    return len(given.states) if given.sequenced is None else len(given.sequenced.types)


def _without(wanted: Synopsis, given: Synopsis) -> Synopsis:
    """What of a synopsis is left to be given: but for the number of tuples it may be nothing."""
    if wanted.sequenced is None or given.sequenced is None:
        return replace(wanted, states=(ROWS, *(state for state in wanted.states if state not in given.states)))
    given_types = given.sequenced.types
    return _of_types(wanted, tuple(type_ for type_ in wanted.sequenced.types if type_ not in given_types))


def shares_of(stored: Iterable[Synopsis], wanted: Synopsis) -> tuple[list[Synopsis], Synopsis | None]:
    """What of a synopsis each of some stored ones gives, a state (an event type) once, by the first that has it; and
    what has to be lifted from events beside (None: nothing). All but the first part count no tuples.

    Raises ValueError if one of them gives nothing.
    """
    found: list[Synopsis] = []
    rest = wanted
    for one in stored:
        given = given_by(one, rest)
        if given is None:
            raise ValueError(f"synopsis {one.fingerprint} gives nothing of {wanted.fingerprint}")
        found.append(given)
        rest = _without(rest, given)
    if not found:
        return [], wanted
    # the number of tuples alone is nothing
    return found, rest if amount_of(rest) > (1 if rest.sequenced is None else 0) else None


def sources_of(stored: Iterable[Synopsis], wanted: Synopsis) -> list[Synopsis]:
    """Of some stored synopses those that give most of another, each some that those before it do not give."""
    found: list[Synopsis] = []
    stored = list(stored)
    rest: Synopsis | None = wanted
    while rest is not None:
        giving = [(amount_of(given), one) for one in stored if (given := given_by(one, rest)) is not None]
        if not giving:
            break
        found.append(max(giving, key=lambda pair: pair[0])[1])
        rest = shares_of(found, wanted)[1]
    return found


def _computed(synopsis: Synopsis) -> list[tuple[str, object]]:
    """The group columns of a synopsis, each with the expression that computes it, None where it is the source's."""
    columns = dict(synopsis.derived)
    return [(name, columns.get(name)) for name, _ in synopsis.group_by]


def _has(edges: Iterable[Progression], wanted: Progression) -> bool:
    slide, shift = wanted
    return any(slide % other == 0 and shift % other == at for other, at in edges)
