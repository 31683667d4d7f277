"""Synopses: which partial aggregates a tree stores, and where each state stands in a stored row.

The queries of a tree share its fragments. Those with the same filter and the same group-by attributes also
share one *synopsis*: one row per fragment and group, holding the union of the states that they need. Queries
that differ in filter or group-by have a synopsis each, filled from the same pass over the source.

A synopsis is named by its *fingerprint*, the hash of all that defines its content, so that a new plan version
finds the rows of an old one again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from optimizer.aggregates import AGGREGATES, ROWS, State
from optimizer.query import ACQ, Expression, Stream, Type, digest, to_json
from optimizer.window import Fragments, Progression

FORMAT = 1
"""Version of the stored state layout: part of every fingerprint."""

CARRIERS = ("longs", "doubles", "texts")


@dataclass(frozen=True)
class Synopsis:
    """One family of partial aggregates: ``states`` per (fragment of ``edges``, group of ``group_by``) over
    the tuples that satisfy ``filter``."""

    stream: str
    time: str
    edges: tuple[Progression, ...]
    filter: Expression | None
    group_by: tuple[tuple[str, Type], ...]
    states: tuple[State, ...]

    @cached_property
    def fingerprint(self) -> str:
        states = [[state.kind, to_json(state.argument), to_json(state.type)] for state in self.states]
        content = [to_json(self.filter), to_json(self.group_by), states]
        return digest([FORMAT, self.stream, self.time, list(map(list, self.edges)), *content])

    @property
    def fragments(self) -> Fragments:
        return Fragments(self.edges)

    def layout(self, carrier: str) -> list[tuple[State, int]]:
        """The states of a carrier with the offset of their first column in its list, in stored order."""
        found, offset = [], 0
        for state in self.states:
            if state.carrier == carrier:
                found.append((state, offset))
                offset += state.width
        return found

    def width(self, carrier: str) -> int:
        """Length of the carrier's list in each stored row."""
        return sum(state.width for state in self.states if state.carrier == carrier)


def states_of(queries: Sequence[ACQ]) -> tuple[State, ...]:
    """The distinct states that the outputs of some queries need, ``rows`` first, then in order of need."""
    found: dict[State, None] = {ROWS: None}
    for query in queries:
        for output in query.outputs:
            for state in AGGREGATES[output.function].states(output.argument, output.argument_type):
                found[state] = None
    return tuple(found)


def synopses_of(stream: Stream, queries: Sequence[ACQ]) -> dict[Synopsis, tuple[ACQ, ...]]:
    """The synopses of one execution tree, each with the queries that it answers.

    ``queries``: the tree's, all over ``stream``; the fragments of every synopsis are the whole tree's.
    """
    edges = Fragments.of(query.window for query in queries).edges
    families: dict[tuple[Expression | None, tuple[tuple[str, Type], ...]], list[ACQ]] = {}
    for query in queries:
        families.setdefault((query.filter, query.group_by), []).append(query)
    return {
        Synopsis(stream.name, stream.time, edges, filter, group_by, states_of(members)): tuple(members)
        for (filter, group_by), members in families.items()
    }
