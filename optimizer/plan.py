"""Sharing plans: which queries share which execution tree, what that costs, and why.

A plan is frozen data. Building it has no side effects; :func:`explain`, :func:`diff`, the stored rows and
execution read the same value.

References
----------
Guirguis et al., Weave Share, CIKM 2011: section 3 (execution trees), Eqs. 1-3 (costs).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from optimizer import query as values
from optimizer.baselines import exhaustive, no_share, shared
from optimizer.cost import PAPER, CostModel, Partition, SearchProblem, cost_model, edges_per_second
from optimizer.edges import CountRefused, edge_set, weaveability
from optimizer.errors import HeddleError
from optimizer.query import ACQ, SECOND, Stream, Window, Workload
from optimizer.weave_share import weave_share
from optimizer.window import Fragments, composite_slide, progressions

ALGORITHMS: dict[str, Callable[[SearchProblem], Partition]] = {
    "weave-share": weave_share,
    "no-share": no_share,
    "shared": shared,
    "exhaustive": exhaustive,
}
"""Plan searches by name: each takes the queries of one stream and returns a partition of them."""

ENUMERATED_TICKS = 1 << 22
"""Longest composite slide, in ticks, over which the fragments of a query's windows are enumerated."""

NEAREST_SHOWN = 5
"""Other trees that an explanation's text lists; its JSON has all of them."""


@dataclass(frozen=True)
class ExecutionTree:
    """Queries of one stream that share one sequence of fragments. ``id`` is like ``"trades-1"``."""

    id: str
    stream: str
    queries: tuple[ACQ, ...]

    def __post_init__(self) -> None:
        if not self.queries:
            raise ValueError(f"tree {self.id} has no query")
        strangers = [query.name for query in self.queries if query.stream != self.stream]
        if strangers:
            raise ValueError(f"tree {self.id} of stream {self.stream} holds queries of other streams: {strangers}")

    @property
    def windows(self) -> tuple[Window, ...]:
        return tuple(query.window for query in self.queries)

    @cached_property
    def composite_slide(self) -> int:
        """Period of the tree's edges in microseconds (LCM of the slides)."""
        return composite_slide(self.windows)

    @cached_property
    def edge_rate(self) -> Fraction:
        """E: edges, so fragments, per second."""
        return edges_per_second(progressions(self.windows))

    @property
    def edges(self) -> int:
        """Edges per composite slide."""
        return int(self.edge_rate * self.composite_slide / SECOND)

    @property
    def overlap_factor(self) -> Fraction:
        """Omega: sum of r/s of the queries (Weave Share Eq. 2)."""
        return sum((window.overlap_factor for window in self.windows), Fraction(0))

    @cached_property
    def fragments(self) -> Fragments:
        """Where the tree cuts time."""
        return Fragments.of(self.windows)


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
    no_share, shared
        Costs of the baseline plans; ``shared`` is None where one tree of everything has more edges than can
        be counted exactly (:class:`optimizer.edges.CountRefused`).
    """

    trees: tuple[ExecutionTree, ...]
    workload: Workload
    algorithm: str
    model: CostModel
    rates: tuple[tuple[str, Fraction], ...]
    tree_costs: tuple[Fraction, ...]
    no_share: Fraction
    shared: Fraction | None

    def __post_init__(self) -> None:
        check_partition(self.workload, self.trees)
        if len(self.tree_costs) != len(self.trees):
            raise ValueError("one cost per tree")

    @property
    def cost(self) -> Fraction:
        """Cost of the whole plan per second."""
        return sum(self.tree_costs, Fraction(0))

    @property
    def cost_model(self) -> str:
        return self.model.name

    @property
    def baselines(self) -> dict[str, Fraction | None]:
        return {"no_share": self.no_share, "shared": self.shared}

    def rate(self, stream: str) -> Fraction:
        """Tuples per second that the plan was made for."""
        return dict(self.rates)[stream]

    def tree(self, tree_id: str) -> ExecutionTree:
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
        trees = [[tree.stream, [[query.name, query.fingerprint] for query in tree.queries]] for tree in self.trees]
        streams = values.to_json(self.workload.streams)
        return values.digest([trees, streams, self.workload.fingerprint, self.algorithm, self.model.name])


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
    wanted = {query.name: query for query in workload.queries}
    if missing := wanted.keys() - placed.keys():
        raise ValueError(f"queries in no tree: {sorted(missing)}")
    if unknown := placed.keys() - wanted.keys():
        raise ValueError(f"queries that the workload does not have: {sorted(unknown)}")
    if changed := [name for name in sorted(wanted) if wanted[name] != placed[name]]:
        raise ValueError(f"queries that differ from the workload's: {changed}")


def build_plan(
    workload: Workload,
    rates: Mapping[str, Fraction],
    algorithm: str = "weave-share",
    model: CostModel | str = PAPER,
) -> SharingPlan:
    """Plan each stream of a workload on its own.

    Parameters
    ----------
    workload
        Registered queries. Streams that none of them reads are left out of the plan.
    rates
        Tuples per second (>= 0) by stream name; every stream that is read needs one.
    algorithm
        A name of :data:`ALGORITHMS`.
    model
        A cost model, or the name of one with its default coefficients.

    Raises
    ------
    HeddleError
        HDL-450 for a missing or negative rate; HDL-350 and HDL-351 for searches that reach a counter's or
        their own limit.
    ValueError
        Unknown algorithm or cost model.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {algorithm!r}: one of {', '.join(ALGORITHMS)}")
    chosen = cost_model(model) if isinstance(model, str) else model
    read = {query.stream for query in workload.queries}
    workload = Workload(workload.queries, tuple(s for s in workload.streams if s.name in read))
    trees: list[ExecutionTree] = []
    costs: list[Fraction] = []
    alone = Fraction(0)
    together: Fraction | None = Fraction(0)
    for stream in workload.streams:
        queries = workload.queries_of(stream.name)
        problem = SearchProblem.of(queries, _rate(rates, stream.name), chosen)
        for number, members in enumerate(ALGORITHMS[algorithm](problem), start=1):
            tree = ExecutionTree(f"{stream.name}-{number}", stream.name, tuple(queries[i] for i in members))
            trees.append(tree)
            costs.append(problem.tree_cost(members))
        alone += problem.cost(no_share(problem))
        try:
            together = None if together is None else together + problem.cost(shared(problem))
        except CountRefused:
            together = None
    used = tuple((stream.name, Fraction(rates[stream.name])) for stream in workload.streams)
    return SharingPlan(tuple(trees), workload, algorithm, chosen, used, tuple(costs), alone, together)


def _rate(rates: Mapping[str, Fraction], stream: str) -> Fraction:
    if stream not in rates or rates[stream] < 0:
        given = f"{rates[stream]} tuples/s" if stream in rates else "no rate"
        raise HeddleError("HDL-450", f"stream {stream} has {given}: a plan needs a rate of at least 0", "give --rate")
    return Fraction(rates[stream])


# ------------------------------------------------------------------------------------------------ JSON
def to_json(plan: SharingPlan) -> dict[str, Any]:
    """The plan as ``heddle plan --json`` prints it (``format_version`` 1).

    Costs are numbers; exact values are strings of fractions, per second. ``composite_slide`` is in seconds.
    """
    return {
        "format_version": 1,
        "algorithm": plan.algorithm,
        "cost": float(plan.cost),
        "cost_exact": str(plan.cost),
        "cost_model": plan.cost_model,
        "rates": {stream: str(rate) for stream, rate in plan.rates},
        "baselines": {name: None if cost is None else float(cost) for name, cost in plan.baselines.items()},
        "trees": [
            {
                "id": tree.id,
                "stream": tree.stream,
                "queries": [query.name for query in tree.queries],
                "composite_slide": _seconds(tree.composite_slide),
                "edges": tree.edges,
                "edge_rate": str(tree.edge_rate),
                "overlap_factor": str(tree.overlap_factor),
                "cost": float(cost),
            }
            for tree, cost in zip(plan.trees, plan.tree_costs, strict=True)
        ],
    }


def _seconds(microseconds: int) -> int | float:
    return microseconds // SECOND if microseconds % SECOND == 0 else microseconds / SECOND


# ------------------------------------------------------------------------------------------------ rows
def to_rows(plan: SharingPlan) -> list[dict[str, Any]]:
    """The plan as rows of ``sharing_plans``: one per tree and query.

    Numbers that may exceed a column type (counts, fractions) are strings, with floats beside the costs.
    A plan without queries has no rows.
    """
    streams = {stream.name: _text(values.to_json(stream)) for stream in plan.workload.streams}
    position = {query.name: number for number, query in enumerate(plan.workload.queries)}
    whole = {
        "fingerprint": plan.fingerprint,
        "workload_fingerprint": plan.workload.fingerprint,
        "algorithm": plan.algorithm,
        "cost_model": plan.cost_model,
        "cost_model_definition": _text(plan.model.to_json()),
        "plan_cost": float(plan.cost),
        "plan_cost_exact": str(plan.cost),
        "no_share_cost": float(plan.no_share),
        "no_share_cost_exact": str(plan.no_share),
        "shared_cost": None if plan.shared is None else float(plan.shared),
        "shared_cost_exact": None if plan.shared is None else str(plan.shared),
    }
    return [
        whole
        | {
            "stream": tree.stream,
            "stream_position": list(streams).index(tree.stream),
            "stream_definition": streams[tree.stream],
            "rate": float(plan.rate(tree.stream)),
            "rate_exact": str(plan.rate(tree.stream)),
            "tree_id": tree.id,
            "tree_position": number,
            "tree_cost": float(cost),
            "tree_cost_exact": str(cost),
            "composite_slide": str(tree.composite_slide),
            "edges": str(tree.edges),
            "edge_rate": str(tree.edge_rate),
            "overlap_factor": str(tree.overlap_factor),
            "query": query.name,
            "query_position": position[query.name],
            "query_fingerprint": query.fingerprint,
            "query_definition": _text(values.to_json(query)),
        }
        for number, (tree, cost) in enumerate(zip(plan.trees, plan.tree_costs, strict=True))
        for query in tree.queries
    ]


def from_rows(rows: Iterable[Mapping[str, Any]]) -> SharingPlan:
    """Inverse of :func:`to_rows`, from the rows of one plan in any order; other columns are ignored.

    Raises
    ------
    ValueError
        No rows, or rows that are not one whole plan.
    """
    ordered = sorted(rows, key=lambda row: row["query_position"])
    if not ordered:
        raise ValueError("a plan has at least one row")
    if len({row["fingerprint"] for row in ordered}) > 1:
        raise ValueError("rows of several plans")
    streams: dict[int, tuple[Stream, Fraction]] = {}
    held: dict[int, list[ACQ]] = {}
    about: dict[int, Mapping[str, Any]] = {}
    queries: list[ACQ] = []
    for row in ordered:
        query: ACQ = values.from_json(json.loads(row["query_definition"]))
        queries.append(query)
        held.setdefault(row["tree_position"], []).append(query)
        about[row["tree_position"]] = row
        stream = values.from_json(json.loads(row["stream_definition"]))
        streams[row["stream_position"]] = (stream, Fraction(row["rate_exact"]))
    first = ordered[0]
    numbers = sorted(held)
    known = [streams[number] for number in sorted(streams)]
    plan = SharingPlan(
        tuple(ExecutionTree(about[n]["tree_id"], about[n]["stream"], tuple(held[n])) for n in numbers),
        Workload(tuple(queries), tuple(stream for stream, _ in known)),
        first["algorithm"],
        CostModel.from_json(json.loads(first["cost_model_definition"])),
        tuple((stream.name, rate) for stream, rate in known),
        tuple(Fraction(about[n]["tree_cost_exact"]) for n in numbers),
        Fraction(first["no_share_cost_exact"]),
        None if first["shared_cost_exact"] is None else Fraction(first["shared_cost_exact"]),
    )
    if plan.fingerprint != first["fingerprint"]:
        raise ValueError(f"rows of plan {first['fingerprint']} are incomplete or altered")
    return plan


def _text(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


# ------------------------------------------------------------------------------------------------ diff
@dataclass(frozen=True)
class PlanDiff:
    """What a new plan changes.

    Trees of both plans are matched by the queries that they have in common, since tree numbers shift when
    queries come and go.

    ``moved`` are (query, old tree, new tree) of queries in both plans whose trees do not match; ``trees``
    are (old tree or "", new tree or "", old cost, new cost) of every matched, new and gone tree.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    moved: tuple[tuple[str, str, str], ...]
    trees: tuple[tuple[str, str, float, float], ...]
    cost: tuple[float, float]

    @property
    def is_empty(self) -> bool:
        """Same queries in the same trees (costs may differ: rates do)."""
        regrouped = any(not old or not new for old, new, _, _ in self.trees)
        return not (self.added or self.removed or self.changed or self.moved or regrouped)

    def to_json(self) -> dict[str, Any]:
        return {
            "format_version": 1,
            "added": list(self.added),
            "removed": list(self.removed),
            "changed": list(self.changed),
            "moved": [{"query": query, "from": old, "to": new} for query, old, new in self.moved],
            "trees": [
                {"old": old or None, "new": new or None, "old_cost": before, "new_cost": after}
                for old, new, before, after in self.trees
            ],
            "cost": {"old": self.cost[0], "new": self.cost[1]},
        }

    def lines(self) -> list[str]:
        """The changes as plain text, one per line."""
        if self.is_empty:
            return [f"same queries in the same trees; cost {_change(*self.cost)}"]
        found = [f"+ query {name}" for name in self.added]
        found += [f"- query {name}" for name in self.removed]
        found += [f"~ query {name} (definition changed)" for name in self.changed]
        found += [f"> query {name}: {old} -> {new}" for name, old, new in self.moved]
        for old, new, before, after in self.trees:
            if not old:
                found.append(f"+ tree {new}: cost {after:.6g}")
            elif not new:
                found.append(f"- tree {old}: cost {before:.6g}")
            elif before != after:
                renamed = old if old == new else f"{old} (now {new})"
                found.append(f"  tree {renamed}: cost {_change(before, after)}")
        return [*found, f"  plan: cost {_change(*self.cost)}"]


def diff(old: SharingPlan | None, new: SharingPlan) -> PlanDiff:
    """What changes from one plan to the next; ``old`` None is a plan without queries."""
    before = {query.name: query for query in old.workload.queries} if old else {}
    after = {query.name: query for query in new.workload.queries}
    old_trees = dict(zip(old.trees, old.tree_costs, strict=True)) if old else {}
    new_trees = dict(zip(new.trees, new.tree_costs, strict=True))
    home = {query.name: tree for tree in old_trees for query in tree.queries}

    # the pairs with most queries in common match first; earlier trees win ties
    common: dict[tuple[ExecutionTree, ExecutionTree], int] = {}
    for tree in new_trees:
        for query in tree.queries:
            if query.name in home and home[query.name].stream == tree.stream:
                pair = (home[query.name], tree)
                common[pair] = common.get(pair, 0) + 1
    match: dict[str, ExecutionTree] = {}
    taken: set[str] = set()
    for was, now in sorted(common, key=lambda pair: -common[pair]):
        if now.id not in match and was.id not in taken:
            match[now.id] = was
            taken.add(was.id)

    moved = [
        (query.name, home[query.name].id, tree.id)
        for tree in new_trees
        for query in tree.queries
        if query.name in home and match.get(tree.id) != home[query.name]
    ]
    trees = []
    for tree, cost in new_trees.items():
        partner = match.get(tree.id)
        trees.append(
            (partner.id, tree.id, float(old_trees[partner]), float(cost))
            if partner
            else ("", tree.id, 0.0, float(cost))
        )
    trees += [(tree.id, "", float(cost), 0.0) for tree, cost in old_trees.items() if tree.id not in taken]
    return PlanDiff(
        tuple(name for name in after if name not in before),
        tuple(name for name in before if name not in after),
        tuple(name for name in after if name in before and before[name].fingerprint != after[name].fingerprint),
        tuple(moved),
        tuple(trees),
        (float(old.cost) if old else 0.0, float(new.cost)),
    )


def _change(before: float, after: float) -> str:
    if before == after:
        return f"{after:.6g}"
    percent = f" ({(after - before) / before:+.1%})" if before else ""
    return f"{before:.6g} -> {after:.6g}{percent}"


# --------------------------------------------------------------------------------------------- explain
@dataclass(frozen=True)
class Companion:
    """A query in the same tree. ``weaveability``: common edges of the two over all their edges."""

    query: str
    weaveability: float


@dataclass(frozen=True)
class Alternative:
    """Another tree that the query could be in.

    ``cost``: what that tree's cost would rise by, in the model's unit per second; ``difference``: what the
    plan's would (positive: the plan is cheaper as it is); ``edge_rate`` and ``edge_rate_with``: the tree's
    edges per second without and with the query. None: more edges than can be counted exactly.
    """

    tree: str
    cost: float | None
    difference: float | None
    edge_rate: float
    edge_rate_with: float | None


@dataclass(frozen=True)
class Explanation:
    """Why a query is in its tree. Costs are per second in the cost model's unit.

    ``cost_alone``: of a tree of its own; ``cost_here``: what its tree would cost less without it;
    ``saving``: what the plan would rise by if it left. ``alternatives``: the other trees of the stream,
    nearest first. ``model_operations``: E * r/s, the combined fragments per second that the model charges;
    ``true_operations``: as counted over the windows of a composite slide (None where that is longer than
    can be enumerated).
    """

    query: str
    tree: str
    cost_model: str
    companions: tuple[Companion, ...]
    cost_alone: float
    cost_here: float
    saving: float
    edge_rate_alone: float
    edge_rate_tree: float
    alternatives: tuple[Alternative, ...]
    model_operations: float
    true_operations: float | None

    def to_json(self) -> dict[str, Any]:
        return {"format_version": 1} | asdict(self)

    def lines(self) -> list[str]:
        """The explanation as plain text."""
        found = [f"{self.query} is in tree {self.tree}" + ("" if self.companions else ", alone")]
        if self.companions:
            found.append("shares with (common edges / all edges):")
            found += [f"  {other.query}  {other.weaveability:.2f}" for other in self.companions]
        found.append(f"cost alone {self.cost_alone:.6g}, in this tree {self.cost_here:.6g}: saves {self.saving:.6g}")
        found.append(f"edges per second alone {self.edge_rate_alone:.6g}, in this tree {self.edge_rate_tree:.6g}")
        if not self.alternatives:
            found.append("there is no other tree on this stream")
        for number, other in enumerate(self.alternatives[:NEAREST_SHOWN]):
            label = "nearest other tree" if number == 0 else "other tree"
            if other.cost is None or other.difference is None or other.edge_rate_with is None:
                found.append(f"{label} {other.tree}: edges with {self.query} cannot be counted exactly")
                continue
            verdict = "dearer" if other.difference >= 0 else "cheaper (the search does not move single queries)"
            found.append(
                f"{label} {other.tree}: its edges per second {other.edge_rate:.6g} -> "
                f"{other.edge_rate_with:.6g}; cost there {other.cost:.6g}, "
                f"plan {abs(other.difference):.6g} {verdict}"
            )
        if (hidden := len(self.alternatives) - NEAREST_SHOWN) > 0:
            found.append(f"and {hidden} trees further away")
        true = "not enumerable" if self.true_operations is None else f"{self.true_operations:.6g}"
        found.append(f"fragments combined per second: model {self.model_operations:.6g}, true {true}")
        return found


def explain(plan: SharingPlan, query_name: str) -> Explanation:
    """With whom a query shares and why, what it would cost alone, and why it is in no other tree.

    Raises
    ------
    KeyError
        The plan has no such query.
    """
    tree = plan.tree_of(query_name)
    query = plan.workload.query(query_name)
    rate = plan.rate(tree.stream)

    def cost(queries: Sequence[ACQ]) -> Fraction:
        return SearchProblem.of(queries, rate, plan.model).tree_cost(range(len(queries))) if queries else Fraction(0)

    rest = tuple(other for other in tree.queries if other.name != query_name)
    alone = cost([query])
    here = cost(tree.queries) - cost(rest)
    edges = edge_set(query.window)
    companions = (Companion(o.name, float(weaveability(edges, edge_set(o.window)))) for o in rest)
    own_rate = edges_per_second(edges)
    return Explanation(
        query_name,
        tree.id,
        plan.cost_model,
        tuple(sorted(companions, key=lambda other: -other.weaveability)),
        float(alone),
        float(here),
        float(alone - here),
        float(own_rate),
        float(tree.edge_rate),
        _alternatives(plan, tree, query, here, cost),
        float(tree.edge_rate * query.window.overlap_factor),
        _float(true_operations(tree, query)),
    )


def _alternatives(
    plan: SharingPlan,
    tree: ExecutionTree,
    query: ACQ,
    here: Fraction,
    cost: Callable[[Sequence[ACQ]], Fraction],
) -> tuple[Alternative, ...]:
    found = []
    for other in plan.trees:
        if other.stream != tree.stream or other.id == tree.id:
            continue
        joined = ExecutionTree(other.id, other.stream, (*other.queries, query))
        try:
            there = cost(joined.queries) - cost(other.queries)
        except CountRefused:
            found.append(Alternative(other.id, None, None, float(other.edge_rate), None))
            continue
        rates = float(other.edge_rate), float(joined.edge_rate)
        found.append(Alternative(other.id, float(there), float(there - here), *rates))
    return tuple(sorted(found, key=lambda a: (a.cost is None, a.cost)))


def true_operations(tree: ExecutionTree, query: ACQ) -> Fraction | None:
    """Fragments of its tree that a query really combines per second, averaged over a composite slide.

    With r = m*s + f, the first m slides of the windows tile time and hold E*s fragments each on average;
    what is enumerated are the fragments in the first f of a slide. None if f > 0 and the composite slide is
    longer than :data:`ENUMERATED_TICKS` of the tree's common divisor. Cuts at midnight are not counted.
    """
    slide = query.window.slide
    whole, inner = divmod(query.window.range, slide)
    found = whole * tree.edge_rate
    if inner:
        unit = np.gcd.reduce([number for edge in tree.fragments.edges for number in (*edge, slide, inner)])
        period = tree.composite_slide // int(unit)
        if period > ENUMERATED_TICKS:
            return None
        marks = np.zeros(period, dtype=np.bool_)
        for step, shift in tree.fragments.edges:
            marks[shift // unit :: step // unit] = True
        within = int(marks.reshape(-1, slide // int(unit))[:, : inner // int(unit)].sum())
        found += Fraction(within * SECOND, tree.composite_slide)
    return found


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)
