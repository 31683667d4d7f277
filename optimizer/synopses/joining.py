"""Choose which queries are joined with their dimensions late, by cost.

Joined early, a query pays for the rows of its groups of attributes, and for the events that are lifted again when a
dimension changes. Joined late (:mod:`optimizer.synopses.late`), it pays for the rows of its keys, of which there may be
more, and for rolling them up; but all queries that are stored by these keys pay for them once, with those that group
by the keys themselves. Rows are counted on a sample of the stream (:class:`optimizer.synopses.sharing.Profile`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from optimizer.search.cost import Coefficients
from optimizer.synopses.late import as_stored, late_form
from optimizer.synopses.sharing import EVENTS, LOYALTY, ONE_BUCKET, Profile, spread_by
from optimizer.synopses.synopsis import Family, families_of
from optimizer.windows.alignment import Fragments
from optimizer.windows.edge_counting import edge_bounds
from optimizer.workload.attributes import shown_column
from optimizer.workload.instants import DAY
from optimizer.workload.values import ACQ, LIFETIME, SECOND, Stream

CHANGES_A_DAY = 1.0
"""Changes of a dimension a day, unless its stored versions show others."""

LIFTED_AGAIN = 0.25
"""Share of the history of a query that is lifted again when a dimension changes: the pieces with an event of a changed
key.
"""

PER_EVENT = 4e-7
"""CPU seconds to read an event, look its attributes up and lift it (``tests/benchmarks/late_joins.py``)."""

RUN = DAY
"""Time between two runs: each of them reads the partial rows below its windows."""


@dataclass(frozen=True)
class JoinPrice:
    """Prices of both joins of a query, in CPU seconds per second of stream.

    Parameters
    ----------
    query
        Its name.
    is_late
        Whether it is joined late.
    keys, attributes
        The group columns of the stored rows, joined late and joined early.
    key_rows, attribute_rows
        Partial rows a day, joined late and joined early.
    late, early
        The price of each: of a late join only what the query adds to what others store.
    fits
        Whether the rows by key may be in one task, where the answers have no group column by which tasks divide them.
    """

    query: str
    is_late: bool
    keys: tuple[str, ...]
    attributes: tuple[str, ...]
    key_rows: float
    attribute_rows: float
    late: float
    early: float
    fits: bool = True

    def to_json(self) -> dict[str, Any]:
        """The price as data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JoinPrice:
        """Inverse of :meth:`to_json`."""
        return cls(**dict(data) | {name: tuple(data[name]) for name in ("keys", "attributes")})

    def lines(self) -> tuple[str, ...]:
        """Lines that say how the query is joined and why."""
        by_keys, by_attributes = (
            f"{_number(rows)} partial rows a day by {_listed(columns)}"
            for rows, columns in ((self.key_rows, self.keys), (self.attribute_rows, self.attributes))
        )
        again = f"and events lifted again as dimensions change ({_number(self.early * 86_400)} CPU seconds a day)"
        if self.is_late:
            cost = f"{_number(self.late * 86_400)} CPU seconds a day"
            return (f"joined late: {by_keys} ({cost}) cost less than {by_attributes} {again}",)
        if not self.fits:
            return (f"joined early: {by_keys} are too many for one task, and no stored column divides its answers",)
        cost = f"{_number(self.late * 86_400)} CPU seconds a day"
        return (f"joined early: {by_attributes} {again} cost less than {by_keys} ({cost})",)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(map(shown_column, columns)) or "nothing"


@dataclass(frozen=True)
class _Candidates:
    """Queries that are stored as one family if they are joined late.

    ``early``: the queries by their own family; ``others``: those that have the stored family anyway.
    """

    stored: Family
    early: dict[Family, tuple[ACQ, ...]]
    others: tuple[ACQ, ...]


@dataclass(frozen=True)
class _Pricing:
    profile: Profile
    coefficients: Coefficients
    stream: Stream
    changes: Mapping[str, float]
    events: int

    def rows(self, family: Family, queries: Iterable[ACQ]) -> float:
        """Partial rows a second. Where fragments have more events than the sample, groups become more as they do from
        half of the sample to all of it.
        """
        edges, rate = Fragments.of(query.window for query in queries).edges, self.profile.rate
        events = min(self.events, len(self.profile.times))
        fragments = float(edge_bounds(edges)[1]) * SECOND
        growth = rate / fragments / events if fragments else 1.0
        if growth <= 1 or events < 2:
            return self.profile.rows(edges, [family], self.events)
        groups, of_half = (self.profile.rows((), [family], some) / rate * some for some in (events, events // 2))
        exponent = min(1.0, max(0.0, math.log2(groups / of_half))) if of_half else 1.0
        return float(groups * growth**exponent * fragments)

    def _price(self, rows: float, queries: Sequence[ACQ], projected: int) -> float:
        """The price of rows that are written, and read by each run whose windows cover them."""
        costs = self.coefficients
        projection = projected * float(costs.per_row_projected)
        again = max(min(query.window.reach, LIFETIME) for query in queries) / RUN
        return rows * (float(costs.per_partial_row) + projection + again * (float(costs.per_row_read) + projection))

    def early(self, family: Family, queries: Sequence[ACQ]) -> float:
        """The price of a family that is joined early."""
        form = late_form(self.stream, queries[0])
        assert form is not None
        names = {attribute.dimension for attribute in form.attributes.values()}
        changes = sum(self.changes.get(name, CHANGES_A_DAY) for name in names) / 86_400
        repair = max(self.stream.dimension(name).repair for name in names)
        history = (max(min(query.window.reach, LIFETIME) for query in queries) + repair) / SECOND
        again = changes * LIFTED_AGAIN * history * self.profile.rate * PER_EVENT
        return self._price(self.rows(family, queries), queries, 0) + again

    def late(self, candidates: _Candidates, late: Collection[Family]) -> float:
        """The price of the rows by key, for the families that are joined late and those that group by the keys."""
        queries = [*candidates.others, *(query for family in late for query in candidates.early[family])]
        if not queries:
            return 0.0
        families = len(late) + bool(candidates.others)
        projected = families if families > 1 else len(late)
        return self._price(self.rows(candidates.stored, queries), queries, projected)

    def total(self, candidates: _Candidates, late: Collection[Family]) -> float:
        """The price of all the candidates, and of the queries that group by the keys."""
        apart = (self.early(family, queries) for family, queries in candidates.early.items() if family not in late)
        return self.late(candidates, late) + sum(apart)

    def fits(self, candidates: _Candidates, late: Collection[Family]) -> bool:
        """Return whether tasks can divide the rows by key among them, or one may have them all."""
        if not late:
            return True
        members = [query for family in late for query in candidates.early[family]]
        answered = {query.name: [name for name, _ in query.group_by] for query in members}
        members += candidates.others
        if spread_by(candidates.stored, members, answered):
            return True
        return self.rows(candidates.stored, members) * 86_400 <= ONE_BUCKET


def choose_joins(
    profile: Profile | None,
    stream: Stream,
    queries: Sequence[ACQ],
    coefficients: Coefficients,
    earlier: Mapping[str, bool],
    changes: Mapping[str, float] | None = None,
) -> tuple[JoinPrice, ...]:
    """The join of each query of a stream that may be joined late, with the prices that decided it.

    Queries that are stored as one family decide together: none of them, all, or those that one after the other make
    all of them cheaper. ``earlier``: whether queries were joined late in the plan in force; that choice stays while it
    costs at most :data:`LOYALTY` times the cheapest, and without a sample it always does (others are joined early).
    ``changes``: changes a day of each dimension, by name.
    """
    groups = _candidates(stream, queries)
    if not groups:
        return ()
    if profile is None or not len(profile.times):
        return tuple(
            JoinPrice(query.name, True, _names(each.stored), _names(family), 0.0, 0.0, 0.0, 0.0)
            for each in groups
            for family, members in each.early.items()
            for query in members
            if earlier.get(query.name)
        )
    families = sum(len(each.early) for each in groups)
    events = int(np.clip(4_000_000 / families**2, 5_000, EVENTS))
    pricing = _Pricing(profile, coefficients, stream, changes or {}, events)
    prices: list[JoinPrice] = []
    for each in groups:
        late = _chosen(pricing, each, earlier)
        for family, members in each.early.items():
            with_it, without = (
                [*late, family] if family not in late else late,
                [name for name in late if name != family],
            )
            marginal = pricing.late(each, with_it) - pricing.late(each, without)
            key_rows = pricing.rows(each.stored, members) * 86_400
            attribute_rows = pricing.rows(family, members) * 86_400
            decided = family in late, _names(each.stored), _names(family), key_rows, attribute_rows, marginal
            early, fits = pricing.early(family, members), pricing.fits(each, with_it)
            prices += [JoinPrice(query.name, *decided, early, fits) for query in members]
    return tuple(prices)


def _names(family: Family) -> tuple[str, ...]:
    return tuple(name for name, _ in family[1])


def _candidates(stream: Stream, queries: Sequence[ACQ]) -> list[_Candidates]:
    possible = [query for query in queries if late_form(stream, query) is not None]
    stored = {query.name: query for query in as_stored(stream, possible, [query.name for query in possible])}
    by_stored: dict[Family, list[ACQ]] = {}
    for query in possible:
        form = stored[query.name]
        by_stored.setdefault((form.filter, form.group_by), []).append(query)
    return [
        _Candidates(
            family,
            families_of(members),
            tuple(query for query in queries if query.name not in stored and (query.filter, query.group_by) == family),
        )
        for family, members in by_stored.items()
    ]


def _chosen(pricing: _Pricing, candidates: _Candidates, earlier: Mapping[str, bool]) -> list[Family]:
    """The families that are joined late."""
    every = list(candidates.early)
    priced = {
        family: [earlier[query.name] for query in queries if query.name in earlier]
        for family, queries in candidates.early.items()
    }
    before = [family for family, late in priced.items() if any(late)]
    new = [family for family, late in priced.items() if not late]
    starts = [start for start in ([], every) if pricing.fits(candidates, start)]
    options = [_improved(pricing, candidates, start, every) for start in starts]
    cheapest = min(options, key=lambda late: pricing.total(candidates, late))
    if len(new) < len(every) and pricing.fits(candidates, before):
        # those that are new join as is cheapest beside the others
        stays = _improved(pricing, candidates, before, new)
        if pricing.total(candidates, stays) <= LOYALTY * pricing.total(candidates, cheapest):
            return stays
    return cheapest


def _improved(
    pricing: _Pricing, candidates: _Candidates, late: Sequence[Family], movable: Sequence[Family]
) -> list[Family]:
    """Families joined late, after all moves of single families that make all of them cheaper, the best first."""
    now, least = list(late), pricing.total(candidates, late)
    while True:
        moves = [[family for family in candidates.early if (family in now) != (family is moved)] for moved in movable]
        moves = [move for move in moves if pricing.fits(candidates, move)]
        costs = [pricing.total(candidates, move) for move in moves]
        if not costs or min(costs) >= least:
            return now
        least = min(costs)
        now = moves[costs.index(least)]
