"""Sharing plans: which queries share which execution tree, what that costs, and why.

A plan is frozen data. Building it has no side effects; :func:`explain`, :func:`diff`, the stored rows and
execution read the same value.

References
----------
Guirguis et al., Weave Share, CIKM 2011: section 3 (execution trees), Eqs. 1-3 (costs).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from optimizer.plan.sequence_sharing import SequenceSharing, sequence_sharing
from optimizer.schedule.definition import Schedule
from optimizer.search.cost import CostModel
from optimizer.synopses.joining import JoinPrice
from optimizer.synopses.late import as_stored
from optimizer.synopses.synopsis import Synopsis, counts_of, former_of, period_levels, synopses_of
from optimizer.windows.alignment import Fragments, composite_slide, progressions
from optimizer.windows.edge_counting import edge_bounds
from optimizer.workload import values
from optimizer.workload.values import ACQ, SECOND, Stream, Window, Workload
from optimizer.workload.window_kinds import WindowKind


def decision(schedule: Schedule) -> object:
    """Decisions of a schedule as JSON data, without its costs and rates, which fluctuate."""
    fields = schedule.to_json()
    groups = [[(each.period, each.queries) for each in group.subgroups] for group in schedule.groups]
    return [fields["step"], groups, fields["cycles"]]


# composite slides and exact costs have as many digits as they have
sys.set_int_max_str_digits(0)

ENUMERATED_TICKS = 1 << 22
"""Longest composite slide, in ticks, over which the fragments of a query's windows are enumerated."""

NAMED = 8
"""Queries of one kind that a difference's text names; its JSON has all of them."""

NEAREST_SHOWN = 5
"""Other trees that an explanation's text lists; its JSON has all of them."""


@dataclass(frozen=True)
class ExecutionTree:
    """Queries of one stream that share one sequence of fragments. ``id`` is like ``"trades-1"``.

    ``tick``: microseconds of one unit of its windows: 1, or for windows of rows what a row takes on average.
    ``together``: names of queries that share a synopsis, where that is cheaper than one a filter and group-by
    (:mod:`optimizer.synopses.sharing`). ``late``: names of queries that are joined with their dimensions late
    (:mod:`optimizer.synopses.late`).
    """

    id: str
    stream: str
    queries: tuple[ACQ, ...]
    tick: int = 1
    together: tuple[tuple[str, ...], ...] = ()
    late: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.queries:
            raise ValueError(f"tree {self.id} has no query")
        strangers = [query.name for query in self.queries if query.stream != self.stream]
        if strangers:
            raise ValueError(f"tree {self.id} of stream {self.stream} holds queries of other streams: {strangers}")
        if len({query.domain for query in self.queries}) > 1:
            raise ValueError(
                f"tree {self.id} holds windows of time and of rows, or of rows that are counted differently, "
                "or event sequences or sessions with others"
            )

    @property
    def windows(self) -> tuple[Window, ...]:
        return tuple(query.window for query in self.queries)

    @cached_property
    def composite_slide(self) -> int:
        """Period of the tree's edges (LCM of the slides): microseconds, or rows."""
        return composite_slide(self.windows)

    @cached_property
    def edge_bounds(self) -> tuple[Fraction, Fraction]:
        """Edges per second from below and above: equal unless they are too many to be counted exactly."""
        low, high = edge_bounds(progressions(self.windows))
        return low * SECOND / self.tick, high * SECOND / self.tick

    @property
    def edge_rate(self) -> Fraction:
        """E: edges, so fragments, per second; the upper bound where they cannot be counted exactly."""
        return self.edge_bounds[1]

    @property
    def is_exact(self) -> bool:
        """Could the edges be counted exactly?"""
        return self.edge_bounds[0] == self.edge_bounds[1]

    @property
    def edges(self) -> int | None:
        """Edges per composite slide; None where they cannot be counted exactly."""
        return int(self.edge_rate * self.composite_slide * self.tick / SECOND) if self.is_exact else None

    @property
    def overlap_factor(self) -> Fraction:
        """Omega: sum of r/s of the queries (Weave Share Eq. 2)."""
        return sum((window.overlap_factor for window in self.windows), Fraction(0))

    @cached_property
    def fragments(self) -> Fragments:
        """Cuts of the tree in time, or in rows."""
        return Fragments.of(self.windows)

    def of_synopsis(self, stream: Stream, query: ACQ) -> ExecutionTree:
        """The tree of those of its queries alone that have a synopsis in common with one of them."""
        if not query.kind.shares_synopses:
            return self
        (own,) = as_stored(stream, [query], self.late)
        with_it = [names for names in self.together if query.name in names]
        queries = tuple(
            other
            for other, stored in zip(self.queries, as_stored(stream, self.queries, self.late), strict=True)
            if (stored.filter, stored.group_by) == (own.filter, own.group_by)
            or any(other.name in names for names in with_it)
        )
        return self if queries == self.queries else replace(self, queries=queries, together=tuple(with_it))

    def stored_synopses(self, stream: Stream) -> list[Synopsis]:
        """Every synopsis that may be stored for its queries: as it is now, with its levels, as earlier versions stored
        it, and what numbers the rows of windows of rows."""
        synopses = synopses_of(stream, self.queries, self.together, self.late)
        counts = [counts_of(stream, self.per or ())] if self.kind.counts_rows else []
        levels = [level for synopsis in synopses for level in period_levels(synopsis)]
        return [*synopses, *levels, *(former_of(synopsis, queries) for synopsis, queries in synopses.items()), *counts]

    @property
    def sequences(self) -> tuple[SequenceSharing, ...]:
        """Sharing of its event sequences in a run; empty if its queries match no patterns."""
        return sequence_sharing(self.queries) if self.kind.matches_patterns else ()

    @property
    def per(self) -> tuple[str, ...] | None:
        """Columns that count its rows (:class:`optimizer.workload.values.Window`); None for windows of time."""
        return self.queries[0].window.per if self.kind.counts_rows else None

    @property
    def kind(self) -> WindowKind:
        """Kind of window that all of its queries have."""
        return self.queries[0].kind


@dataclass(frozen=True)
class SharingPlan:
    """A partition of a workload into execution trees, with its costs.

    Costs are per second, in the cost model's unit (operations for ``paper``, CPU seconds for ``measured``).

    Attributes
    ----------
    trees
        By stream in the workload's order, then by first query.
    workload
        The planned queries, and the streams that they read.
    algorithm
        A name of :data:`ALGORITHMS`.
    model
        The cost model that decided.
    rates
        (stream, tuples per second) in the workload's order of streams.
    tree_costs
        Cost of each of ``trees``.
    no_share, shared, weave_share
        Costs of the baseline plans; ``weave_share`` is None if it was not computed.
    optimal
        Whether it is proven that no plan is cheaper.
    upper_bounds
        Names of trees and baselines with more edges than can be counted exactly. Their costs are certified upper
        bounds, and no decision of the search relied on anything weaker.
    distinct_edge_sets
        Summed over the streams.
    from_scratch
        Cost of the plan from scratch, which is more expensive to switch to if this plan was kept (None: not known).
    schedules
        Instants at which queries with a refresh bound are answered, by the steps of their streams
        (:mod:`optimizer.plan.schedules`).
    lower_bound
        Least cost of any plan of the workload (:mod:`optimizer.search.lower_bound`). None: not known, because there
        are more distinct edge sets than it is computed for.
    joins
        Prices that decided which queries are joined late, of those that may be (:mod:`optimizer.synopses.joining`).
    """

    trees: tuple[ExecutionTree, ...]
    workload: Workload
    algorithm: str
    model: CostModel
    rates: tuple[tuple[str, Fraction], ...]
    tree_costs: tuple[Fraction, ...]
    no_share: Fraction
    shared: Fraction
    weave_share: Fraction | None = None
    optimal: bool = False
    upper_bounds: tuple[str, ...] = ()
    distinct_edge_sets: int = 0
    from_scratch: Fraction | None = None
    schedules: tuple[Schedule, ...] = ()
    lower_bound: Fraction | None = None
    joins: tuple[JoinPrice, ...] = ()

    def __post_init__(self) -> None:
        check_partition(self.workload, self.trees)
        if len(self.tree_costs) != len(self.trees):
            raise ValueError("one cost per tree")

    def synopses(self, stream: str | None = None) -> list[tuple[Synopsis, tuple[ACQ, ...]]]:
        """The synopses of every tree (of one stream), each with the queries that it answers, in the trees' order."""
        return [
            pair
            for tree in self.trees
            if stream is None or tree.stream == stream
            for pair in synopses_of(self.workload.stream(tree.stream), tree.queries, tree.together, tree.late).items()
        ]

    @property
    def cost(self) -> Fraction:
        """Cost of the plan per second."""
        return sum(self.tree_costs, Fraction(0))

    @property
    def cost_model(self) -> str:
        return self.model.name

    @property
    def baselines(self) -> dict[str, Fraction | None]:
        """Costs of other plans for the same workload, by the name of the baseline; None: not known."""
        known = {"no_share": self.no_share, "shared": self.shared, "weave_share": self.weave_share}
        is_kept = self.from_scratch is not None and self.from_scratch != self.cost
        return known | ({"from_scratch": self.from_scratch} if is_kept else {})

    @property
    def together(self) -> tuple[tuple[str, ...], ...]:
        """Names of queries that share a synopsis, of all trees."""
        return tuple(names for tree in self.trees for names in tree.together)

    @property
    def late(self) -> tuple[str, ...]:
        """Names of the queries that are joined with their dimensions late, of all trees."""
        return tuple(name for tree in self.trees for name in tree.late)

    @property
    def joined_late(self) -> dict[str, bool]:
        """The queries by name, true for those that are joined with their dimensions late."""
        late = frozenset(self.late)
        return {query.name: query.name in late for query in self.workload.queries}

    def as_stored(self, queries: Sequence[ACQ]) -> list[ACQ]:
        """Some queries of one stream with the filters and group columns that synopses have for them."""
        return as_stored(self.workload.stream(queries[0].stream), queries, self.late) if queries else []

    @property
    def synopses_by_name(self) -> tuple[tuple[str, ...], ...]:
        """Names as in :attr:`together`, and each query whose filter and group-by have a separate synopsis."""
        shared_names = {name for names in self.together for name in names}
        alone = (query.name for tree in self.trees for query in tree.queries if query.kind.shares_synopses)
        return (*self.together, *((name,) for name in alone if name not in shared_names))

    @property
    def blind(self) -> tuple[str, ...]:
        """Streams of which the ``measured`` model knew no groups a fragment, so that it took one: nothing was stored
        yet, and no sample could be read."""
        known = dict(self.model.groups_per_fragment)
        return tuple(name for name, _ in self.rates if self.model.name == "measured" and name not in known)

    def rate(self, stream: str) -> Fraction:
        """Tuples per second that the plan was made for."""
        return dict(self.rates)[stream]

    def tree(self, tree_id: str) -> ExecutionTree:
        """The tree with an id, which has to be there."""
        return next(tree for tree in self.trees if tree.id == tree_id)

    def tree_of(self, query_name: str) -> ExecutionTree:
        """The tree that answers a query; KeyError if the plan has no such query."""
        for tree in self.trees:
            if any(query.name == query_name for query in tree.queries):
                return tree
        raise KeyError(query_name)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the content: trees (names and meanings of their queries), algorithm, cost model's name.

        Neither rates nor costs: a re-plan at other rates that decides the same is the same plan.
        """
        return self.fingerprint_with({})

    def fingerprint_with(self, spans: Mapping[str, Sequence[object]]) -> str:
        """The fingerprint that earlier versions gave the plan, which hashed what no run follows.

        ``spans``: by tree id, [name, shared spans] of the event sequence queries. Empty: :attr:`fingerprint`.
        """
        trees = [
            [
                tree.stream,
                [[query.name, query.fingerprint] for query in tree.queries],
                *([tree.together] * bool(tree.together)),
                *([["late", *tree.late]] * bool(tree.late)),
                *spans.get(tree.id, ()),
            ]
            for tree in self.trees
        ]
        streams = values.to_json(self.workload.streams)
        fields = [trees, streams, self.workload.fingerprint, self.algorithm, self.model.name]
        return values.digest([*fields, *([decision(schedule) for schedule in self.schedules],) * bool(self.schedules)])


def check_partition(workload: Workload, trees: Iterable[ExecutionTree]) -> None:
    """The invariant of every plan: each query of the workload is in exactly one tree, unchanged.

    Raises
    ------
    ValueError
        Naming the queries that are missing, repeated, unknown or different, or the tree ids that repeat.
    """
    placed: dict[str, ACQ] = {}
    ids: set[str] = set()
    for tree in trees:
        if tree.id in ids:
            raise ValueError(f"tree id {tree.id} is used twice")
        ids.add(tree.id)
        for query in tree.queries:
            if query.name in placed:
                raise ValueError(f"query {query.name} is in two trees")
            placed[query.name] = query
    expected = {query.name: query for query in workload.queries}
    if missing := expected.keys() - placed.keys():
        raise ValueError(f"queries in no tree: {sorted(missing)}")
    if unknown := placed.keys() - expected.keys():
        raise ValueError(f"queries that the workload does not have: {sorted(unknown)}")
    if changed := [name for name in sorted(expected) if expected[name] != placed[name]]:
        raise ValueError(f"queries that differ from the workload's: {changed}")
