"""Derive one synopsis from another: a changed workload then pays only for its additions.

A stored row means the same under any synopsis whose fragments, shards and groups are unions of its own. So the rows
of one synopsis give those of a coarser one (longer fragments, fewer filters, fewer group columns, fewer states),
without reading an event; the levels of a synopsis are made so. If the other one has states or filters that the rows
lack, only those are lifted. A tuple then is in one shard by some of its filters and in another by the others: an
answer combines the shards that have the bit of one filter. For event sequences, rows are the events themselves. They
give those of the event types that both have, if they have all columns that the other keeps of such events. The events
of other types are lifted in addition.

References: Gray et al., "Data Cube" (1997), for the roll-up; the states of a cell combine one by one
(:mod:`optimizer.aggregates.states`), so those of one cell may come from separate rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from optimizer.aggregates.states import ROWS
from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import Progression
from optimizer.windows.periods import PERIODS
from optimizer.workload.instants import DAY
from optimizer.workload.window_kinds import ROWS as ROW_WINDOWS
from optimizer.workload.window_kinds import SEQUENCE, SESSION, TIME, WindowKind


def given_by(stored: Synopsis, wanted: Synopsis) -> Synopsis | None:
    """Part of another synopsis over the same events that rows of a stored one give: filters and states of both.

    For event sequences, its event types. None if they give nothing useful:

    - other events or keys (of rows: other numbers), or fragments that they do not cut;
    - no filter (of rows: not all), or no state but the number of tuples where others are needed;
    - for event sequences, another filter or column of types, or no event type of which they have all attributes.
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
    if _coarseness(stored) > _coarseness(wanted):
        return None
    states = tuple(state for state in wanted.states if state in stored.states)
    if len(states) == 1 < len(wanted.states):
        return None
    return replace(wanted, predicates=predicates, states=states)


def _runs_given(stored: Synopsis, wanted: Synopsis) -> Synopsis | None:
    assert stored.gap is not None and wanted.gap is not None
    return _cells_given(stored, wanted) if stored.gap <= wanted.gap else None


def _numbered_cells_given(stored: Synopsis, wanted: Synopsis) -> Synopsis | None:
    synopsis = _cells_given(stored, wanted)
    # all rows are numbered for a filter: that is most of what lifting costs
    return synopsis if synopsis is not None and synopsis.predicates == wanted.predicates else None


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
    """Amount that is given of a synopsis: states, once for each filter, or event types."""
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
    """Parts that a part lacks if some of its event types are given."""
    synopsis = part.synopsis
    assert synopsis.sequenced is not None and given.sequenced is not None
    types = tuple(type_ for type_ in synopsis.sequenced.types if type_ not in given.sequenced.types)
    return [SynopsisPart(_of_types(synopsis, types))] if types else []


def _cells_lacking(part: SynopsisPart, given: Synopsis) -> list[SynopsisPart]:
    """Parts that a part lacks if something of it is given: all states of missing filters, other missing states."""
    synopsis = part.synopsis
    predicates = tuple(predicate for predicate in synopsis.predicates if predicate not in given.predicates)
    states = tuple(state for state in synopsis.states if state not in given.states)
    lacking = [part._replace(synopsis=replace(synopsis, predicates=predicates))] if predicates else []
    return lacking + ([SynopsisPart(replace(given, states=(ROWS, *states)), is_counted=True)] if states else [])


class DerivedOfKind(NamedTuple):
    """Derivation from stored rows of one kind of window.

    ``given``: as :func:`given_by`, of two synopses over the same events and columns. ``amount``: amount of what is
    given. ``lacking``: parts that a part lacks once it is given.
    """

    given: Callable[[Synopsis, Synopsis], Synopsis | None]
    amount: Callable[[Synopsis], int]
    lacking: Callable[[SynopsisPart, Synopsis], list[SynopsisPart]]


DERIVED_BY_KIND: dict[WindowKind, DerivedOfKind] = {
    TIME: DerivedOfKind(_cells_given, _number_of_cells, _cells_lacking),
    ROW_WINDOWS: DerivedOfKind(_numbered_cells_given, _number_of_cells, _cells_lacking),
    SEQUENCE: DerivedOfKind(_events_given, _number_of_types, _events_lacking),
    SESSION: DerivedOfKind(_runs_given, _number_of_cells, _cells_lacking),
}
"""Derivations from stored rows, by kind of window."""


def shares_of(stored: Iterable[Synopsis], wanted: Synopsis) -> tuple[list[list[SynopsisPart]], list[SynopsisPart]]:
    """Parts of a synopsis that each of some stored ones gives, and the parts that have to be lifted from events.

    The first stored synopsis that has a state of a filter (an event type) gives it, once.
    Raises ValueError if one of them gives nothing.
    """
    shares: list[list[SynopsisPart]] = []
    missing = [SynopsisPart(wanted)]
    for source in stored:
        share, still_missing = [], []
        for part in missing:
            available = given_by(source, part.synopsis)
            share += [] if available is None else [part._replace(synopsis=available)]
            still_missing += [part] if available is None else DERIVED_BY_KIND[available.kind].lacking(part, available)
        if not share:
            raise ValueError(f"synopsis {source.fingerprint} gives nothing of {wanted.fingerprint}")
        shares.append(share)
        missing = still_missing
    return shares, missing


def best_of(stored: Iterable[Synopsis], rest: Iterable[Synopsis]) -> Synopsis | None:
    """The stored synopsis that gives most of some parts of another, None if none gives anything."""
    parts = list(rest)
    best, most = None, 0
    for source in stored:
        amount = sum(amount_of(available) for part in parts if (available := given_by(source, part)) is not None)
        if amount > most:
            best, most = source, amount
    return best


def sources_of(stored: Iterable[Synopsis], wanted: Synopsis) -> list[Synopsis]:
    """The stored synopses that give most of another, each some parts that those before it do not give."""
    sources: list[Synopsis] = []
    stored = list(stored)
    while (best := best_of(stored, (part.synopsis for part in shares_of(sources, wanted)[1]))) is not None:
        sources.append(best)
    return sources


def _coarseness(synopsis: Synopsis) -> int:
    """Number of the periods of a level, 0 of a synopsis that is none."""
    return 0 if synopsis.period is None else PERIODS.index(synopsis.period) + 1


def _computed(synopsis: Synopsis) -> list[tuple[str, object]]:
    """The group columns of a synopsis, each with the expression that computes it, None where it is the source's."""
    columns = dict(synopsis.derived)
    return [(name, columns.get(name)) for name, _ in synopsis.group_by]


def _has(edges: Iterable[Progression], wanted: Progression) -> bool:
    slide, shift = wanted
    return any(slide % other == 0 and shift % other == at for other, at in edges)
