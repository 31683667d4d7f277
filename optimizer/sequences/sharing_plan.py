"""A sharing plan of event sequences: segments, who shares them, its cost, and what changes from one to the next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from optimizer.sequences.candidates import WORK, Pattern, SequenceProblem, Sharing, Types
from optimizer.sequences.cheapest_sharing import cheapest
from optimizer.sequences.sharing_search import Router


@dataclass(frozen=True)
class Segment:
    """A piece of a query's pattern at positions [``begin``, ``end``); ``shared``: counted once for several queries."""

    types: Types
    begin: int
    end: int
    shared: bool


@dataclass(frozen=True)
class SequencePlan:
    """For every sequence query its segments, and which of them are shared. Costs are operations per window.

    Attributes
    ----------
    queries
        By name.
    rates
        (event type, events per window and group) that the plan was made for, by event type.
    sharing
        Shared spans of every query.
    greedy
        Cost of the plan that GWMIN finds.
    proven
        Is no plan cheaper?
    """

    queries: tuple[Pattern, ...]
    rates: tuple[tuple[str, float], ...]
    sharing: Sharing
    greedy: float
    proven: bool

    def __post_init__(self) -> None:
        problem = self.problem
        if problem.queries != self.queries or tuple(problem.rates.items()) != self.rates:
            raise ValueError("queries and rates of a plan are in order of names")
        if len(self.sharing) != len(self.queries):
            raise ValueError("one tuple of spans per query")
        for query, spans in enumerate(self.sharing):
            problem.segments(query, spans)
        for types, places in self.shared_places.items():
            if len(places) < 2 or len(types) < 2:
                raise ValueError(f"segment {sequence(types)} is shared, but has one place or one event type")

    @cached_property
    def problem(self) -> SequenceProblem:
        return SequenceProblem(self.queries, dict(self.rates))

    @cached_property
    def shared_places(self) -> dict[Types, tuple[tuple[int, int], ...]]:
        """The shared patterns in alphabetical order, with the (number of the query, begin) that share each."""
        return self.problem.shared(self.sharing)

    @property
    def shared(self) -> dict[Types, tuple[str, ...]]:
        """The shared patterns in alphabetical order, with the names of the queries that share each."""
        return {
            types: tuple(dict.fromkeys(self.queries[query].name for query, _ in places))
            for types, places in self.shared_places.items()
        }

    @cached_property
    def cost(self) -> float:
        return self.problem.cost(self.sharing)

    @cached_property
    def unshared(self) -> float:
        """Cost of every query for itself."""
        return math.fsum(map(self.problem.unshared, range(len(self.queries))))

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Positions in ``queries`` by name."""
        return {query.name: number for number, query in enumerate(self.queries)}

    def segments(self, name: str) -> tuple[Segment, ...]:
        """The segments of one query, in order; KeyError if the plan has none of that name."""
        return self._segments(self.numbers[name])

    def _segments(self, query: int) -> tuple[Segment, ...]:
        types = self.queries[query].types
        found = self.problem.segments(query, self.sharing[query])
        return tuple(Segment(types[begin:end], begin, end, shared) for (begin, end), shared in found)

    def to_json(self) -> dict[str, Any]:
        """As text that :meth:`from_json` reads; the same plan always gives the same."""
        return {
            "format_version": 1,
            "cost": self.cost,
            "baselines": {"unshared": self.unshared, "greedy": self.greedy},
            "proven": self.proven,
            "rates": dict(self.rates),
            "queries": [
                {
                    "name": query.name,
                    "cost": self.problem.own_cost(number, self.sharing[number]),
                    "segments": [
                        {"types": list(one.types), "begin": one.begin, "end": one.end, "shared": one.shared}
                        for one in self._segments(number)
                    ],
                }
                for number, query in enumerate(self.queries)
            ],
            "shared": [
                {"types": list(types), "queries": list(names), "cost": self.problem.counting(types)}
                for types, names in self.shared.items()
            ],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SequencePlan:
        """Inverse of :meth:`to_json`; costs are computed again.

        Raises ValueError where the segments or rates are not those of a plan.
        """
        if data.get("format_version") != 1:
            raise ValueError(f"unknown format version {data.get('format_version')!r}")
        queries = tuple(
            Pattern(query["name"], tuple(kind for segment in query["segments"] for kind in segment["types"]))
            for query in data["queries"]
        )
        sharing = tuple(
            tuple((segment["begin"], segment["end"]) for segment in query["segments"] if segment["shared"])
            for query in data["queries"]
        )
        return cls(queries, tuple(data["rates"].items()), sharing, data["baselines"]["greedy"], data["proven"])

    def explain(self, name: str) -> list[str]:
        """In words, line by line: a query's segments, with whom it shares them and what that costs; what of the
        plan's other shared patterns it could share, and what the plan would cost then.

        Raises KeyError if the plan has no query of that name.
        """
        query = self.numbers[name]
        types, problem, segments = self.queries[query].types, self.problem, self._segments(query)
        pieces = "1 segment" if len(segments) == 1 else f"{len(segments)} segments"
        found = [f"{name} counts {sequence(types)} in {pieces}"]
        for one in segments:
            cost = f"{problem.counting(one.types):.6g} updates"
            if one.shared:
                others = [other for other in self.shared[one.types] if other != name]
                places = len(self.shared_places[one.types])
                who = f"shared with {', '.join(others)}" if others else "shared within the query"
                found.append(f"  {sequence(one.types)}: {who}; {cost} for all {places} places")
            else:
                found.append(f"  {sequence(one.types)}: its own; {cost}")
        own, alone = problem.own_cost(query, self.sharing[query]), problem.unshared(query)
        if len(segments) > 1:
            combined = math.fsum(
                problem.combining(query, (one.begin, one.end), number == 1) for number, one in enumerate(segments)
            )
            found.append(f"  combining them: {combined:.6g} multiplications")
        found.append(f"cost per window besides what is shared {own:.6g}, without any sharing {alone:.6g}")
        if self.proven:
            found.append("the plan is proven optimal: no other segments of the queries are cheaper")
        alternatives = sorted(self._alternatives(query))
        for difference, pattern in alternatives:
            if difference > -1e-9 * self.cost:
                verdict = f"{max(difference, 0.0):.6g} dearer"
            else:
                verdict = f"{-difference:.6g} cheaper (the search ended before it tried this)"
            found.append(f"sharing {sequence(pattern)} too, the plan would be {verdict}")
        if not alternatives:
            found.append("no other pattern that the plan shares can be shared by it")
        return found

    def _alternatives(self, query: int) -> Iterator[tuple[float, Types]]:
        """What the plan costs more if a query takes part in another shared pattern, and which."""
        types, router = self.queries[query].types, Router(self.problem)
        held = {types[slice(*span)] for span in self.sharing[query]}
        for pattern in self.shared_places.keys() - held:
            found = []
            for begin in range(len(types) - len(pattern) + 1):
                span = begin, begin + len(pattern)
                if types[slice(*span)] == pattern:
                    changed = list(self.sharing)
                    changed[query] = router.route(query, self.shared_places.keys(), span)
                    found.append(self.problem.cost(_dissolved(self.problem, tuple(changed))) - self.cost)
            if found:
                yield min(found), pattern

    def diff(self, other: SequencePlan) -> SequenceDiff:
        """What changes from this plan to another one."""
        before, after = ({query.name: query for query in plan.queries} for plan in (self, other))
        both = [name for name in after if name in before]
        ours, theirs = self.shared, other.shared
        return SequenceDiff(
            tuple(name for name in after if name not in before),
            tuple(name for name in before if name not in after),
            tuple(name for name in both if before[name] != after[name]),
            tuple(name for name in both if before[name] == after[name] and self.segments(name) != other.segments(name)),
            tuple(pattern for pattern in theirs if pattern not in ours),
            tuple(pattern for pattern in ours if pattern not in theirs),
            (self.cost, other.cost),
        )


@dataclass(frozen=True)
class SequenceDiff:
    """What changes from one plan to another.

    Attributes
    ----------
    added, removed, changed
        Names of queries; ``changed`` are those of another pattern.
    cut
        Names of queries of the same pattern, but other segments.
    shared, dissolved
        Patterns that only the new plan shares, and only the old one.
    cost
        Of both plans, each at its own rates.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    cut: tuple[str, ...]
    shared: tuple[Types, ...]
    dissolved: tuple[Types, ...]
    cost: tuple[float, float]

    @property
    def is_empty(self) -> bool:
        """Same queries of the same segments (costs may differ: rates do)."""
        return not (self.added or self.removed or self.changed or self.cut or self.shared or self.dissolved)

    def lines(self) -> list[str]:
        """The changes as plain text, one per line."""
        before, after = self.cost
        found = [f"+ query {name}" for name in self.added]
        found += [f"- query {name}" for name in self.removed]
        found += [f"~ query {name} (pattern changed)" for name in self.changed]
        found += [f"> query {name}: other segments" for name in self.cut]
        found += [f"+ shared {sequence(types)}" for types in self.shared]
        found += [f"- shared {sequence(types)}" for types in self.dissolved]
        return [*(found or ["same queries in the same segments"]), f"cost {before:.6g} -> {after:.6g}"]


def sequence(types: Types) -> str:
    """A pattern as it is written in a query."""
    return f"SEQ({', '.join(types)})"


def plan_sequences(queries: Iterable[Pattern], rates: Mapping[str, float], work: int | None = WORK) -> SequencePlan:
    """The cheapest plan of some queries, proven unless ``work`` ends first (:func:`cheapest`).

    Parameters
    ----------
    queries
        In any order, of different names; all of the same filters, groups and windows.
    rates
        Events per window and group by event type.

    Raises
    ------
    ValueError
        As :class:`SequenceProblem`.
    """
    problem = SequenceProblem(queries, rates)
    found = cheapest(problem, work)
    return SequencePlan(problem.queries, tuple(problem.rates.items()), found.sharing, found.greedy, found.proven)


@dataclass(frozen=True)
class Replanned:
    """A plan for changed queries or rates.

    ``kept``: is it what the earlier plan becomes, rather than the plan from scratch, whose cost is ``from_scratch``?
    ``diff``: what changes from the earlier plan.
    """

    plan: SequencePlan
    kept: bool
    from_scratch: float
    diff: SequenceDiff


def replan(
    plan: SequencePlan,
    queries: Iterable[Pattern],
    rates: Mapping[str, float],
    tolerance: float,
    work: int | None = WORK,
) -> Replanned:
    """Keep a plan under other queries or rates as long as it is not too dear (section 7.4).

    Queries that stay keep their segments; new ones share what the plan already shares, where that is cheaper for
    them; a pattern that is left with a single place is no longer shared. The plan is kept if it costs at most
    ``1 + tolerance`` times the plan from scratch (infinite: always).

    Parameters
    ----------
    plan
        The plan in force.
    queries, rates, work
        As for :func:`plan_sequences`.
    tolerance
        A fraction >= 0, e.g. 0.2.
    """
    problem = SequenceProblem(queries, rates)
    known = dict(zip(plan.queries, plan.sharing, strict=True))
    router = None if known.keys() >= set(problem.queries) else Router(problem)
    sharing = _dissolved(
        problem,
        tuple(
            known[query] if router is None or query in known else router.route(number, plan.shared_places.keys())
            for number, query in enumerate(problem.queries)
        ),
    )
    found = cheapest(problem, work)
    cost = problem.cost(sharing)
    kept = tolerance == math.inf or cost <= (1 + tolerance) * found.cost
    proven = found.proven and (not kept or cost <= found.cost)
    chosen = sharing if kept else found.sharing
    new = SequencePlan(problem.queries, tuple(problem.rates.items()), chosen, found.greedy, proven)
    return Replanned(new, kept, found.cost, plan.diff(new))


def _dissolved(problem: SequenceProblem, sharing: Sharing) -> Sharing:
    """The sharing without patterns that have a single place left."""
    places = problem.shared(sharing)
    return tuple(
        tuple((begin, end) for begin, end in spans if len(places[problem.queries[query].types[begin:end]]) > 1)
        for query, spans in enumerate(sharing)
    )
