"""Choose which families of a tree share a synopsis, by cost: shared data shards and unions of group-bys.

Queries of one tree that differ in filter or group-by can have separate partial aggregates, cut at their own edges,
or share a synopsis: one row per (fragment of all their edges, shard, group of the union of their columns), from
which each combines the shards that satisfy its filter and rolls up to its own columns. Sharing pays if there are
fewer such rows than rows of the separate families: overlapping filters (ten thresholds on a column make ten shards,
and ten families of up to as many rows each), columns that determine one another. The number of rows is *measured*,
on a sample of the stream's events.

References: Weave Share (CIKM 2011) section 2 for shared data shards and unions of group-by attributes (after
Krishnamurthy et al., "On-the-fly sharing for streamed aggregation", SIGMOD 2006, and Zhang et al., "Multiple
aggregations over data streams", SIGMOD 2005, whose phantoms are the roll-ups inside a task,
:mod:`spark_jobs.windows.partials.lifting`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from optimizer.search.cost import DIRECT, DIRECT_LEAST, Coefficients
from optimizer.synopses.synopsis import MOST_PREDICATES, Family, families_of
from optimizer.windows.alignment import Fragments, Progression
from optimizer.workload.values import ACQ, Expression

EVENTS = 50_000
"""Most events that rows are counted on: fewer the more families there are, so that a choice takes a second."""

ONE_BUCKET = 100_000.0
"""Most rows a day of a synopsis whose families have no group column in common: one task answers all of it."""

LOYALTY = 1.1
"""Largest cost of a choice in force, relative to the cheapest, at which it is kept."""

NO_OTHER_COLUMNS: Mapping[str, Iterable[str]] = {}
"""Answers that have the group columns of the stored rows."""

Together = tuple[tuple[str, ...], ...]
"""Names of queries that share a synopsis; only synopses of several families are named."""


LEAST_SHARE = 0.1
"""A family with fewer rows than this share of the mean of all counts as having so many in a comparison of samples: all
such families together matter less than that to a plan."""


@dataclass(frozen=True, eq=False)
class Profile:
    """A sample of a stream: events that follow one another.

    ``times`` (n,) microseconds, ascending; ``columns``: (n,) codes of each group column's values; ``holds``: (n,)
    where each filter (in normal form) is true; ``rate``: the stream's tuples per second.
    """

    times: NDArray[np.int64]
    columns: Mapping[str, NDArray[np.int64]]
    holds: Mapping[Expression, NDArray[np.bool_]]
    rate: float
    _counted: dict[object, tuple[float, int]] = field(default_factory=dict, repr=False)
    _cut: dict[object, NDArray[np.int64]] = field(default_factory=dict, repr=False)
    _grouped: dict[object, tuple[NDArray[np.int64], int, NDArray[np.int64]]] = field(default_factory=dict, repr=False)

    def rows(self, edges: tuple[Progression, ...], families: Iterable[Family], events: int = EVENTS) -> float:
        """Partial rows per second of a synopsis that these families share in a tree with these edges."""
        return self._count(edges, tuple(families), events)[0]

    def shards(self, filters: Iterable[Expression | None]) -> int:
        """Distinct signatures of some filters among the events of the sample, without tuples that satisfy none."""
        return self._count((), tuple((filter, ()) for filter in filters), EVENTS)[1]

    def densities(self, queries: Sequence[ACQ]) -> list[float]:
        """Groups of each family of some queries per event of the sample; empty if there is only one family.

        Rare families count as :data:`LEAST_SHARE` says.
        """
        families = list(families_of(queries))
        if len(families) < 2:
            return []
        each = np.array([self.rows((), [family]) for family in families]) / (self.rate or 1.0)
        raised: list[float] = np.maximum(each, LEAST_SHARE * each.mean()).tolist()
        return raised

    def _count(self, edges: tuple[Progression, ...], families: tuple[Family, ...], events: int) -> tuple[float, int]:
        predicates = frozenset(filter for filter, _ in families)
        names = frozenset(name for _, columns in families for name, _ in columns)
        key = edges, predicates, names, events
        if key not in self._counted:
            self._counted[key] = self._observed(edges, predicates, names, min(events, len(self.times)))
        return self._counted[key]

    def _observed(
        self,
        edges: tuple[Progression, ...],
        predicates: frozenset[Expression | None],
        names: frozenset[str],
        events: int,
    ) -> tuple[float, int]:
        if events == 0:
            return 0.0, 0
        matching, shards, groups = self._parted(predicates, names, events)
        if not edges:
            return (_distinct(groups) / events * self.rate), shards
        # of ascending times fragments come one after the other
        fragments = self._fragments(edges, events)[matching]
        cells = fragments * (int(groups.max(initial=0)) + 1) + groups
        return _distinct(cells) / events * self.rate, shards

    def _fragments(self, edges: tuple[Progression, ...], events: int) -> NDArray[np.int64]:
        """The number of the fragment of each event, from 0."""
        key = edges, events
        if key not in self._cut:
            starts = Fragments(edges).starts(self.times[:events])
            self._cut[key] = np.concatenate([[0], np.cumsum(starts[1:] != starts[:-1])])
        return self._cut[key]

    def _parted(
        self, predicates: frozenset[Expression | None], names: frozenset[str], events: int
    ) -> tuple[NDArray[np.int64], int, NDArray[np.int64]]:
        """The events that satisfy some filter, how many signatures they have, and of each event the number of its
        signature and group."""
        key = predicates, names, events
        if key not in self._grouped:
            signature = np.zeros(events, dtype=np.int64)
            for bit, filter in enumerate(predicates):
                signature |= (1 if filter is None else self.holds[filter][:events].astype(np.int64)) << bit
            matching = np.flatnonzero(signature)
            groups = _numbers(signature[matching])
            shards = int(groups.max(initial=-1)) + 1
            for codes in (self.columns[name][matching] for name in sorted(names)):
                groups = _numbers(groups * (int(codes.max(initial=0)) + 1) + codes)
            self._grouped[key] = matching, shards, groups
        return self._grouped[key]


def _distinct(values: NDArray[np.int64]) -> int:
    """Number of distinct values, none of them negative."""
    if (is_there := _table(values)) is not None:
        return int(np.count_nonzero(is_there))
    # of no values there is a table
    ordered = np.sort(values)
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + 1


def _numbers(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rank of each value among the distinct ones; none of them is negative."""
    if (is_there := _table(values)) is not None:
        return (np.cumsum(is_there) - 1)[values]
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _table(values: NDArray[np.int64]) -> NDArray[np.bool_] | None:
    """Table of the numbers that occur; None if sorting them takes less time."""
    size = int(values.max(initial=-1)) + 1
    if size > max(DIRECT * len(values), DIRECT_LEAST):
        return None
    is_there = np.zeros(size, dtype=np.bool_)
    is_there[values] = True
    return is_there


def cost(
    profile: Profile,
    edges: tuple[Progression, ...],
    families: Sequence[Family],
    coefficients: Coefficients,
    events: int = EVENTS,
) -> float:
    """CPU seconds per second of stream for the partial rows of the synopsis of some families: written, read, and
    projected to every family that does not read them as they are."""
    rows = profile.rows(edges, families, events)
    projected = len(families) if len(families) > 1 else 0
    return rows * float(coefficients.per_partial_row + projected * coefficients.per_row_projected)


def choose(
    profile: Profile | None,
    queries: Sequence[ACQ],
    coefficients: Coefficients,
    earlier: Iterable[Iterable[str]] = (),
    answered: Mapping[str, Iterable[str]] = NO_OTHER_COLUMNS,
) -> Together:
    """Choose the families of one tree that share a synopsis, by cost: greedily, the pair that saves most first.

    ``queries``: of one tree, windows of time, as they are stored. ``answered``: by name, the group columns that answers
    have where stored rows have others (:mod:`optimizer.synopses.late`). ``earlier``: families that shared
    a synopsis in the plan in force, or had a separate one. This choice is kept while it costs at most :data:`LOYALTY`
    times as much, because a new synopsis has to be filled from history; without a sample it is always kept. O(k^2)
    counts of a sample for k families. Names come in the order of the queries.
    """
    members = families_of(queries)
    if len(members) < 2:
        return ()
    family_of = {query.name: family for family, family_queries in members.items() for query in family_queries}
    earlier_groups = [list(dict.fromkeys(family_of[name] for name in names if name in family_of)) for names in earlier]
    # several trees of a plan may have named the same, and a family that is alone in one be together in another
    retained_groups = list({frozenset(families): families for families in earlier_groups if families}.values())
    joined = {family for families in retained_groups if len(families) > 1 for family in families}
    retained_groups = [families for families in retained_groups if len(families) > 1 or families[0] not in joined]
    apart = [[family] for family in members if not any(family in families for families in retained_groups)]
    if sum(map(len, retained_groups + apart)) != len(members):  # families that were in two synopses cannot stay in both
        retained_groups, apart = [], [[family] for family in members]
    chosen_groups = retained_groups + apart
    if profile is not None and len(profile.times):
        columns = {family: spread_by(family, queries, answered) for family, queries in members.items()}
        cheapest = _cheapest(profile, members, coefficients, columns)
        if retained_groups and len(apart) > 1:
            # those that are new, among themselves
            chosen_groups = retained_groups + _cheapest(
                profile, {family: members[family] for (family,) in apart}, coefficients, columns
            )
        before, now = (
            sum(cost(profile, _edges(members, families), families, coefficients) for families in groups)
            for groups in (chosen_groups, cheapest)
        )
        chosen_groups = chosen_groups if retained_groups and before <= LOYALTY * now else cheapest
    return tuple(
        tuple(query.name for query in queries if (query.filter, query.group_by) in families)
        for families in chosen_groups
        if len(families) > 1
    )


def spread_by(family: Family, queries: Sequence[ACQ], answered: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """The group columns of a family that all answers of its queries have: tasks divide its rows by them. ``answered``:
    as for :func:`choose`.
    """
    names = frozenset(name for name, _ in family[1])
    return names.intersection(*(answered.get(query.name, names) for query in queries))


def _edges(members: Mapping[Family, Sequence[ACQ]], families: Iterable[Family]) -> tuple[Progression, ...]:
    """The edges of a synopsis of some families: those of their own queries."""
    return Fragments.of(query.window for family in families for query in members[family]).edges


def _cheapest(
    profile: Profile,
    members: Mapping[Family, Sequence[ACQ]],
    coefficients: Coefficients,
    columns: Mapping[Family, frozenset[str]],
) -> list[list[Family]]:
    events = int(np.clip(4_000_000 / len(members) ** 2, 5_000, EVENTS))

    def priced(families: tuple[Family, ...]) -> float:
        return cost(profile, _edges(members, families), families, coefficients, events)

    groups: dict[int, tuple[Family, ...]] = {number: (family,) for number, family in enumerate(members)}
    costs = {number: priced(families) for number, families in groups.items()}
    saved = dict.fromkeys(combinations(groups, 2), 0.0)
    stale = set(saved)
    while saved:
        for x, y in stale:
            union = groups[x] + groups[y]
            saved[x, y] = (
                costs[x] + costs[y] - priced(union)
                if _may_share(profile, _edges(members, union), union, events, columns)
                else 0.0
            )
        best = min(saved, key=lambda pair: (-saved[pair], pair))
        if saved[best] <= 0:
            break
        x, y = best
        groups[x] += groups.pop(y)
        costs[x] = priced(groups[x])
        saved = {pair: value for pair, value in saved.items() if y not in pair}
        stale = {pair for pair in saved if x in pair}
    return [list(families) for families in groups.values()]


def _may_share(
    profile: Profile,
    edges: tuple[Progression, ...],
    families: Sequence[Family],
    events: int,
    columns: Mapping[Family, frozenset[str]],
) -> bool:
    if len({filter for filter, _ in families}) > MOST_PREDICATES:
        return False
    if frozenset.intersection(*(columns[family] for family in families)):
        return True
    # without a common column no two tasks can divide the rows between them
    plain = all(not group_by for _, group_by in families)
    return plain or profile.rows(edges, families, events) * 86_400 <= ONE_BUCKET


def groups_per_fragment(
    profile: Profile, queries: Sequence[ACQ], together: Iterable[Iterable[str]] = ()
) -> float | None:
    """Groups that a fragment of some queries holds on average, each synopsis's counted in its own; None without events.

    As it is measured of stored rows (rows by fragments that have some), but before there are any. ``together``: names
    of queries that share a synopsis, as :func:`choose` returns them."""
    members = families_of(queries)
    place = {name: number for number, names in enumerate(together) for name in names}
    synopses: dict[object, list[Family]] = {}
    for family, family_queries in members.items():
        synopses.setdefault(place.get(family_queries[0].name, family), []).append(family)
    rows = fragments = 0.0
    for families in synopses.values():
        edges = _edges(members, families)
        rows += profile.rows(edges, families)
        # of several filters, those of fragments in which an event has none are counted, too
        fragments += profile.rows(edges, [(families[0][0] if len(families) == 1 else None, ())])
    return rows / fragments if fragments else None
