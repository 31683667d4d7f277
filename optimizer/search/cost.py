"""Cost of a tree: two models of one form, so that one search serves both.

The cost of a tree per second of stream is ``fixed + E * (sum of weights) + sum of constants``, and for every
*family* in it (queries with one filter and one group-by: they share partial rows)
``family.fixed + E * family.base``. E is the tree's edge rate (fragments per second). ``fixed`` is paid once per
tree, a query's weight per fragment of its tree, a query's constant in any tree. Sharing saves ``fixed`` and, within
a family, its scan and partial rows; it raises the edge rate that every query and every family of the tree pays. So
queries with different filters or group-bys have less to gain from one tree, and not sharing across them is a
decision, too.

``paper``
    Operations per second, C = m*lambda + sum of E_i*Omega_i: ``fixed`` is the rate lambda in tuples/s, a
    query's weight its overlap factor r/s. Exact fractions, so that the papers' figures can be reproduced to
    the last digit.
``measured``
    Seconds of CPU per second of stream, from :class:`Coefficients` fitted to measurements of runs.

E*Omega is a model: it equals the real number of combined fragments only if each slide divides its range
(:func:`optimizer.plan.explain` gives both).

References
----------
Guirguis et al., Weave Share, CIKM 2011: Eqs. 1 and 3 (cost), 2 (overlap factor), 5 (benefit of a merge).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optimizer.windows.alignment import Progression, absorb
from optimizer.windows.edge_counting import DEFAULT_BUDGET, edge_bounds, edge_rate
from optimizer.windows.edge_sets import irregular_edges
from optimizer.workload.values import ACQ, SECOND, Window


@dataclass(frozen=True)
class Coefficients:
    """Costs of the steps of a run, in the unit of the model (CPU seconds for ``measured``).

    The defaults are what ``heddle calibrate`` measured where Heddle was developed; a deployment replaces them by
    what it measures itself.

    Attributes
    ----------
    per_tuple
        Per source tuple and tree. Measured as nothing: an event is lifted once, into cells from which the partial rows
        of every tree are rolled up (:mod:`spark_jobs.windows.partials.lifting`).
    per_family_tuple
        Per source tuple, tree and family of the tree: the rolling up of those cells, of which there are the fewer per
        tuple the higher the rate is; where they are too many, the family's own pass over the tuples.
    per_partial_row
        Per partial aggregate (fragment and group) that a tree writes, reads again and builds tables over.
    per_fragment_combined
        Per partial aggregate combined into one answer of one query. Measured as nothing: tables over the fragments
        take the same time whatever the range (:mod:`optimizer.combine.choose`).
    per_answer
        Per answer row written; no plan changes it, but it belongs in a prediction.
    per_row_passed
        Per partial aggregate and query of its family: little, for what combines them is built once for all queries of
        a family.
    per_row_projected
        Per partial aggregate and family of a synopsis that several families share: its shards are chosen and its
        groups rolled up (:mod:`optimizer.synopses.sharing`).
    per_run
        Per run, whatever it does: its process and session, listing the sources, checking, publishing. No partition of
        the queries changes it, but their schedule does (:mod:`optimizer.plan.schedules`), as the next two.
    per_row_read
        Per partial aggregate read back for final aggregates, once for all queries of a synopsis; of what
        ``per_partial_row`` is.
    per_refresh
        Per query that a run answers.
    """

    per_tuple: Fraction = Fraction(0)
    per_family_tuple: Fraction = Fraction("1.1e-8")
    per_partial_row: Fraction = Fraction("2.2e-6")
    per_fragment_combined: Fraction = Fraction(0)
    per_answer: Fraction = Fraction("2.4e-7")
    per_row_passed: Fraction = Fraction("1.2e-8")
    per_row_projected: Fraction = Fraction("3.4e-7")
    per_run: Fraction = Fraction("8.05")
    per_row_read: Fraction = Fraction("1.05e-6")
    per_refresh: Fraction = Fraction("6.9e-4")

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            # a decimal as it is written, so that 0.1 is a tenth
            exact = Fraction(str(value))
            if exact < 0:
                raise ValueError(f"{name} must not be negative")
            object.__setattr__(self, name, exact)


@dataclass(frozen=True)
class CostModel:
    """A named set of coefficients and, per stream, the groups that an average fragment holds.

    ``groups_per_fragment`` are sorted (stream, groups) pairs; a stream that is not named has one group.
    """

    name: str
    coefficients: Coefficients
    groups_per_fragment: tuple[tuple[str, Fraction], ...] = ()

    def groups(self, stream: str) -> Fraction:
        """Number of groups per fragment of a stream; 1 if it is not known."""
        return dict(self.groups_per_fragment).get(stream, Fraction(1))

    def fixed(self, rate: Fraction) -> Fraction:
        """Cost per second of one more tree over a stream of ``rate`` tuples/s."""
        return rate * self.coefficients.per_tuple

    def family_fixed(self, rate: Fraction) -> Fraction:
        """Cost per second of one more family in a tree over a stream of ``rate`` tuples/s."""
        return rate * self.coefficients.per_family_tuple

    def base(self, stream: str) -> Fraction:
        """Cost per fragment of each family of a tree, whatever its queries: its partial rows."""
        return self.groups(stream) * self.coefficients.per_partial_row

    def weight(self, query: ACQ) -> Fraction:
        """Cost per fragment of one query: it passes it once, and r/s windows hold it."""
        return self.per_query(query.stream) + self.per_overlap(query.stream) * query.window.overlap_factor

    def per_query(self, stream: str) -> Fraction:
        """Cost per fragment of every query, whatever its window."""
        return self.groups(stream) * self.coefficients.per_row_passed

    def per_overlap(self, stream: str) -> Fraction:
        """Cost per fragment and unit of overlap factor."""
        return self.groups(stream) * self.coefficients.per_fragment_combined

    def constant(self, query: ACQ) -> Fraction:
        """Cost per second of writing one query's answers."""
        answers = self.groups(query.stream) * Fraction(SECOND, query.window.period)
        return answers * self.coefficients.per_answer

    def to_json(self) -> dict[str, Any]:
        """The model as plans store it."""
        return {
            "name": self.name,
            "coefficients": {name: str(value) for name, value in asdict(self.coefficients).items()},
            "groups_per_fragment": {stream: str(groups) for stream, groups in self.groups_per_fragment},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CostModel:
        """The inverse of :meth:`to_json`."""
        groups = ((stream, Fraction(value)) for stream, value in data["groups_per_fragment"].items())
        # plans that were stored before families and passes had a cost of their own
        known = {"per_family_tuple": "0", "per_row_passed": "0", "per_row_projected": "0"} | data["coefficients"]
        coefficients = Coefficients(**{name: Fraction(text) for name, text in known.items()})
        return cls(data["name"], coefficients, tuple(sorted(groups)))


PAPER = CostModel(
    "paper",
    Coefficients(
        per_tuple=Fraction(1),
        per_family_tuple=Fraction(0),
        per_partial_row=Fraction(0),
        per_fragment_combined=Fraction(1),
        per_answer=Fraction(0),
        per_row_passed=Fraction(0),
        per_row_projected=Fraction(0),
    ),
)
"""Weave Share Eq. 1: one operation per tuple and tree, one per fragment combined; fragments and families are free."""


def measured(
    coefficients: Coefficients | None = None,
    groups_per_fragment: Mapping[str, Fraction | float] | None = None,
) -> CostModel:
    """The ``measured`` model: CPU seconds per second of stream.

    ``groups_per_fragment``: stream name to average number of groups (> 0) that one fragment holds.
    """
    groups = {stream: Fraction(str(value)) for stream, value in (groups_per_fragment or {}).items()}
    if any(value <= 0 for value in groups.values()):
        raise ValueError("groups per fragment must be positive")
    return CostModel("measured", coefficients or Coefficients(), tuple(sorted(groups.items())))


COST_MODELS = ("paper", "measured")


def cost_model(name: str) -> CostModel:
    """A cost model with its default coefficients, by name."""
    if name not in COST_MODELS:
        raise ValueError(f"unknown cost model {name!r}: one of {', '.join(COST_MODELS)}")
    return PAPER if name == "paper" else measured()


DIRECT = 4
"""Times the number of rows: up to such numbers, rows are numbered by a table instead of sorted."""

DIRECT_LEAST = 1 << 16
"""Numbers below this are tabled however few rows there are."""

Partition = list[list[int]]
"""Trees as sorted lists of item numbers, sorted by their first item."""

EdgeSet = tuple[Progression, ...]
"""Disjoint progressions of one slide: one or two, but of a calendar one for each offset of its zone."""


@dataclass(frozen=True)
class Family:
    """Queries of one filter and one group-by. ``fixed``: cost per second in each tree that holds some of them;
    ``base``: cost per fragment of such a tree."""

    fixed: Fraction
    base: Fraction


@dataclass(frozen=True, eq=False)
class SearchProblem:
    """Problem of a plan search: *items*, in order of their first query.

    An item is all queries with one edge set. Putting them together saves ``fixed`` and raises no edge rate, so
    no search has to consider them apart (``collapse=False`` makes every query a separate item, as the papers'
    alternatives have it).

    Attributes
    ----------
    edges
        Edge set of each item, in microseconds, lowest terms.
    weights, constants
        Per item, the sums over its queries.
    families
        Per item, the families of its queries, as bits: bit f for ``family[f]``.
    item_of
        Item of each query. Shape (queries,).
    fixed
        Cost per second of every tree.
    unshared
        Total cost per second if every query has a separate tree (No Share).
    counter
        Edge counter of the search: ``"auto"`` or one of :data:`optimizer.windows.edge_counting.COUNTERS`. The
        resulting plan is costed by ``"auto"``, whatever the search counted with.
    """

    edges: tuple[EdgeSet, ...]
    weights: tuple[Fraction, ...]
    constants: tuple[Fraction, ...]
    families: tuple[int, ...]
    item_of: NDArray[np.int64]
    fixed: Fraction
    family: tuple[Family, ...]
    unshared: Fraction
    counter: str = "auto"

    @classmethod
    def of(
        cls,
        queries: Sequence[ACQ],
        rate: Fraction,
        model: CostModel,
        collapse: bool = True,
        counter: str = "auto",
        one_family: bool = False,
    ) -> SearchProblem:
        """Make the problem of queries at ``rate`` tuples/s under a cost model.

        The queries (at least one) are all of one stream, and all in time or all in the same rows. Windows of rows
        are taken as windows of the time that this number of rows takes. ``one_family``: the queries pay together
        whatever their filters and group-bys are, as those of one synopsis do.
        """
        stream, tick = queries[0].stream, tick_of(queries[0].window, rate)
        kinds: dict[Any, int] = {}
        family_of = [
            0 if one_family else kinds.setdefault((query.filter, query.group_by), len(kinds)) for query in queries
        ]
        return cls.of_windows(
            np.array([query.window.average for query in queries], dtype=np.int64) * tick,
            np.array([query.window.slide for query in queries], dtype=np.int64) * tick,
            rate,
            model,
            stream,
            np.array(family_of, dtype=np.int64),
            collapse,
            counter,
            np.array([query.window.ago for query in queries], dtype=np.int64),
            irregular_edges(query.window for query in queries),
        )

    @classmethod
    def of_windows(
        cls,
        ranges: NDArray[np.int64],
        slides: NDArray[np.int64],
        rate: Fraction,
        model: CostModel,
        stream: str = "",
        family_of: NDArray[np.int64] | None = None,
        collapse: bool = True,
        counter: str = "auto",
        agos: NDArray[np.int64] | None = None,
        edges_of: Mapping[int, EdgeSet] | None = None,
    ) -> SearchProblem:
        """Make the problem of windows in microseconds, of one stream. Arrays have shape (n,).

        ``family_of``: family of each (default: 0). ``agos``: how far back each is shifted. ``edges_of``: by number,
        the edges of windows whose ranges are averages, so that the edges do not follow from them.

        O(n log n), in arrays: a million windows take a fraction of a second.
        """
        full_slides, inner = np.divmod(ranges, slides)
        step = np.where(2 * inner == slides, inner, slides)
        shift = np.where(2 * inner == slides, 0, inner)
        first_edge, second_edge = np.zeros(len(ranges), dtype=np.int64), shift
        if agos is not None and (agos % slides).any():
            shifted = -agos % step, (shift - agos) % step
            first_edge, second_edge = np.minimum(*shifted), np.maximum(*shifted)
        several: dict[EdgeSet, int] = {}
        for number, progressions in (edges_of or {}).items():
            step[number], first_edge[number], second_edge[number] = (
                progressions[0][0],
                progressions[0][1],
                progressions[-1][1],
            )
            if len(progressions) > 2:
                # no slide is negative
                step[number] = ~several.setdefault(progressions, len(several))
        irregular = list(several)
        count = len(ranges)
        family_of = np.zeros(count, dtype=np.int64) if family_of is None else family_of
        if collapse:
            item_of, first = _numbered(step, first_edge, second_edge)
        else:
            item_of = first = np.arange(count, dtype=np.int64)
        edges = tuple(
            irregular[~s] if s < 0 else ((s, a), (s, b)) if a < b else ((s, a),)
            for s, a, b in zip(*(column[first].tolist() for column in (step, first_edge, second_edge)), strict=True)
        )
        # an overlap factor r/s is whole + inner/slide; equal (item, slide, inner, family) are added as integers
        part_of, part_first = _numbered(item_of, slides, inner, family_of)
        wholes = np.bincount(part_of, weights=full_slides.astype(np.float64))
        # sums of whole slides are exact integers while they fit in a double, else they are added one by one
        exact = wholes.max(initial=0.0) < 2.0**53
        totals = wholes.astype(np.int64).tolist() if exact else _added(part_of, full_slides, len(part_first))
        counts = np.bincount(part_of).tolist()
        weights, constants = [Fraction(0)] * len(edges), [Fraction(0)] * len(edges)
        families = [0] * len(edges)
        per_query = model.per_query(stream)
        per_overlap, per_answer = model.per_overlap(stream), model.groups(stream) * model.coefficients.per_answer
        family = (Family(model.family_fixed(rate), model.base(stream)),) * (int(family_of.max(initial=0)) + 1)
        fixed = model.fixed(rate)
        unshared = count * (fixed + family[0].fixed)
        rates = [sum(Fraction(SECOND, slide) for slide, _ in progressions) for progressions in edges]
        for part, at in enumerate(part_first.tolist()):
            item, slide = int(item_of[at]), int(slides[at])
            number = counts[part]
            weight = number * per_query + per_overlap * (totals[part] + Fraction(number * int(inner[at]), slide))
            weights[item] += weight
            if per_answer:
                constants[item] += per_answer * number * Fraction(SECOND, slide)
            families[item] |= 1 << int(family_of[at])
            unshared += rates[item] * (weight + number * family[int(family_of[at])].base)
        return cls(
            edges,
            tuple(weights),
            tuple(constants),
            tuple(families),
            item_of,
            fixed,
            family,
            unshared + sum(constants),
            counter,
        )

    def __len__(self) -> int:
        return len(self.edges)

    @cached_property
    def members(self) -> list[NDArray[np.int64]]:
        """Queries of each item, ascending."""
        order = np.argsort(self.item_of, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.item_of, minlength=len(self)))[:-1])

    @cached_property
    def ticks(self) -> tuple[list[EdgeSet], int]:
        """The items' edges in ticks, and the tick in microseconds: the gcd of all slides and shifts."""
        unit = math.gcd(*(number for edges in self.edges for edge in edges for number in edge))
        return [tuple((s // unit, h // unit) for s, h in edges) for edges in self.edges], unit

    @cached_property
    def floats(self) -> NDArray[np.float64]:
        """The weights. Shape (items,)."""
        return np.array([float(weight) for weight in self.weights])

    def expand(self, partition: Partition) -> list[list[int]]:
        """Trees of items as trees of queries: sorted, in order of the first query."""
        return sorted(sorted(np.concatenate([self.members[i] for i in tree]).tolist()) for tree in partition)

    def progressions(self, items: Iterable[int]) -> EdgeSet:
        """The edges of a tree of these items, absorbed."""
        return absorb(progression for item in items for progression in self.edges[item])

    def edge_rate(self, items: Iterable[int]) -> Fraction:
        """Edges per second of a tree of these items. Raises CountRefused where they cannot be counted."""
        return edges_per_second(self.progressions(items))

    def edge_bounds(self, items: Iterable[int]) -> tuple[Fraction, Fraction]:
        """Edges per second of a tree of these items, from below and above; equal where they can be counted."""
        key = tuple(items)
        if key not in self._counted:
            # many items make many trees: less for each, so that the whole stays some seconds
            budget = DEFAULT_BUDGET * 500 // max(len(self), 500)
            low, high = edge_bounds(self.progressions(key), budget=budget)
            self._counted[key] = low * SECOND, high * SECOND
        return self._counted[key]

    @cached_property
    def _counted(self) -> dict[tuple[int, ...], tuple[Fraction, Fraction]]:
        """Plans, baselines and candidates ask for the same trees again."""
        return {}

    @cached_property
    def _costed(self) -> dict[tuple[int, ...], Fraction]:
        return {}

    def families_of(self, items: Iterable[int]) -> int:
        """Families of a tree, as bits."""
        bits = 0
        for item in items:
            bits |= self.families[item]
        return bits

    def fixed_of(self, families: int) -> Fraction:
        """Cost per second of a tree that holds these families, without its fragments."""
        return self.fixed + self._of_families(families)[0]

    def base_of(self, families: int) -> Fraction:
        """Cost per fragment of a tree that holds these families, without its queries' weights."""
        return self._of_families(families)[1]

    def _of_families(self, families: int) -> tuple[Fraction, Fraction]:
        fixed, base = Fraction(0), Fraction(0)
        while families:
            lowest = families & -families
            family = self.family[lowest.bit_length() - 1]
            fixed, base = fixed + family.fixed, base + family.base
            families ^= lowest
        return fixed, base

    def charge(self, items: Sequence[int]) -> Fraction:
        """Cost per fragment of a tree of these items."""
        return self.base_of(self.families_of(items)) + sum((self.weights[i] for i in items), Fraction(0))

    def tree_cost(self, items: Sequence[int], edges_per_second: Fraction | None = None) -> Fraction:
        """Cost per second of a tree of these items, at the given edge rate; default: its upper bound."""
        if edges_per_second is None:
            key = tuple(items)
            if key not in self._costed:
                self._costed[key] = self.tree_cost(key, self.edge_bounds(key)[1])
            return self._costed[key]
        constants = sum((self.constants[i] for i in items), Fraction(0))
        return self.fixed_of(self.families_of(items)) + edges_per_second * self.charge(items) + constants

    @cached_property
    def is_cheapest_in_one_tree(self) -> bool:
        """Return whether it is certain that no plan is cheaper than one tree of everything, because every merge saves.

        A merge saves ``fixed`` (and the cost of a family, if all are of one). It raises the edge rate of each item
        from at least its own to at most that of all. So it saves at least ``fixed`` less the sum, over the items,
        of their weights times that difference. Edges are counted only if that can be positive. False if it is not
        known.
        """
        costs = {(family.fixed, family.base) for family in self.family}
        if self.counter != "auto" or (len(self.family) > 1 and costs != {(0, 0)}):
            return False
        # in floats, rounded against it; a merge has to save more than what counts as a tie
        saved = float(self.fixed + self.family[0].fixed) * (1 - 1e-9)
        rates = np.array([len(edges) * SECOND / edges[0][0] for edges in self.edges])
        total, own = math.fsum(self.floats) * (1 + 1e-12), math.fsum(rates * self.floats) * (1 - 1e-12)
        if saved <= total * float(rates.max()) - own:
            return False
        return saved > total * float(self.edge_bounds(range(len(self)))[1]) - own

    def cost(self, partition: Partition) -> Fraction:
        """Cost per second of a plan (Weave Share Eq. 3); an upper bound where edges cannot be counted."""
        return sum((self.tree_cost(items) for items in partition), Fraction(0))


def _numbered(*keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number the distinct rows of some columns by first appearance: number of each row, first row of each number."""
    keys = _joined(keys)
    if len(keys) == 1 and (size := int(keys[0].max()) + 1) <= max(DIRECT * len(keys[0]), DIRECT_LEAST):
        return _numbered_directly(keys[0], size)
    order = np.lexsort(keys[::-1])
    new = np.zeros(len(order), dtype=np.bool_)
    new[:1] = True
    for key in keys:
        new[1:] |= key[order][1:] != key[order][:-1]
    run_of = np.empty(len(order), dtype=np.int64)
    run_of[order] = np.cumsum(new) - 1
    # lexsort is stable: the first row of each run of equal keys is the earliest
    first = order[new]
    rank = np.empty(len(first), dtype=np.int64)
    by_first = np.argsort(first)
    rank[by_first] = np.arange(len(first))
    return rank[run_of], first[by_first]


def _numbered_directly(key: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """:func:`_numbered` of numbers below ``size`` by a table of them: nothing is sorted but the distinct ones."""
    table = np.full(size, -1, dtype=np.int64)
    # the last write of a number stays: its first appearance
    table[key[::-1]] = np.arange(len(key) - 1, -1, -1)
    first = np.sort(table[table >= 0])
    table[key[first]] = np.arange(len(first))
    return table[key], first


def _in_steps(key: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers from 0 up in their common step, which a sample reveals: microseconds are often whole seconds."""
    key = key - key.min()
    step = int(np.gcd.reduce(key[:: max(1, len(key) // 100)]))
    return key // step if step > 1 and not (key % step).any() else key


def _joined(keys: tuple[NDArray[np.int64], ...]) -> tuple[NDArray[np.int64], ...]:
    """Columns with the same distinct rows, as few as fit into 64 bits: each costs a sort."""
    joined: list[NDArray[np.int64]] = []
    sizes: list[int] = []
    for key in keys:
        key = _in_steps(key)
        size = int(key.max()) + 1
        if joined and sizes[-1] * size < 1 << 62:
            joined[-1] = joined[-1] * size + key
            sizes[-1] *= size
        else:
            joined.append(key)
            sizes.append(size)
    return tuple(joined)


def _added(part_of: NDArray[np.int64], values: NDArray[np.int64], parts: int) -> list[int]:
    totals = [0] * parts
    for part, value in zip(part_of.tolist(), values.tolist(), strict=True):
        totals[part] += value
    return totals


def tick_of(window: Window, rate: Fraction) -> int:
    """Microseconds that one unit of a window takes at ``rate`` tuples/s: 1, or for windows of rows those of a row."""
    return max(1, round(SECOND / rate)) if window.kind.counts_rows and rate else 1


def edges_per_second(edges: Iterable[Progression]) -> Fraction:
    """Edge rate of progressions in microseconds."""
    return edge_rate(edges) * SECOND
