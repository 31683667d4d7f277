"""Sharing among the event sequence queries of a tree in a run.

A run answers the queries of one filter, group-by and window in one pass over their stored events
(:mod:`optimizer.sequences`). The pass counts a prefix that several patterns have in common once. If the events make
that cheaper, the run goes backwards in time and counts common suffixes once instead. No plan decides this: it
follows from the queries and, at run time, from the events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from optimizer.synopses.synopsis import families_of
from optimizer.workload.values import ACQ, Window

Types = tuple[str, ...]
"""Steps of a pattern or of a piece of one, in order: event types, each with what is absent behind it."""

_Pass = tuple[Window, bool]
"""The window that a pass answers queries over, and whether events are absent in their patterns. A query over several
windows is answered by a pass for each."""


@dataclass(frozen=True)
class SequenceSharing:
    """The event sequence queries of one filter and group-by, and the prefixes that they share."""

    queries: tuple[ACQ, ...]

    @cached_property
    def patterns(self) -> dict[str, Types]:
        """The steps of each query, by the name of the query."""
        return {query.name: query.sequence.steps for query in self.queries}

    @cached_property
    def _queries_by_prefix(self) -> Mapping[tuple[_Pass, Types], tuple[str, ...]]:
        """Names of the queries that have each prefix, by pass and prefix."""
        names_by_prefix: dict[tuple[_Pass, Types], list[str]] = {}
        for query, window in self._windows:
            types, of_pass = self.patterns[query.name], (window, bool(query.sequence.absent))
            for length in range(1, len(types) + 1):
                names_by_prefix.setdefault((of_pass, types[:length]), []).append(query.name)
        return {prefix: tuple(names) for prefix, names in names_by_prefix.items()}

    @property
    def _windows(self) -> Iterator[tuple[ACQ, Window]]:
        """Each query with each window that it is over."""
        return ((query, window) for query in self.queries for window in query.window.each)

    @property
    def counted(self) -> int:
        """Number of prefixes that a run counts, of every window."""
        return len(self._queries_by_prefix)

    @property
    def unshared(self) -> int:
        """Number of prefixes that runs without sharing would count: of all types of all patterns, of every window."""
        return sum(len(self.patterns[query.name]) for query, _ in self._windows)

    @cached_property
    def shared(self) -> tuple[tuple[Types, tuple[str, ...]], ...]:
        """Prefixes of two and more types that several queries share, with the names of the queries.

        Of the prefixes that the same queries share, only the longest. In alphabetical order.
        """
        longest: dict[tuple[_Pass, tuple[str, ...]], Types] = {}
        for (of_pass, types), names in self._queries_by_prefix.items():
            if len(types) > 1 and len(names) > 1:
                longest[of_pass, names] = max(longest.get((of_pass, names), ()), types, key=len)
        return tuple(sorted({(types, names) for (_, names), types in longest.items()}))

    def shared_length(self, name: str) -> int:
        """Number of leading types of a query's pattern that it shares with another query."""
        return max((len(types) for types, names in self.shared if name in names), default=0)

    def to_json(self) -> dict[str, Any]:
        """The queries' segments and the shared prefixes, as ``heddle plan --json`` prints them."""
        return {
            "format_version": 1,
            "prefixes": {"counted": self.counted, "unshared": self.unshared},
            "queries": [
                {"name": name, "segments": _segments(types, self.shared_length(name))}
                for name, types in self.patterns.items()
            ],
            "shared": [{"types": list(types), "queries": list(names)} for types, names in self.shared],
        }

    def explain(self, name: str) -> list[str]:
        """Lines that name a query's shared prefixes and the queries that share them."""
        windows = sum(query.name == name for query, _ in self._windows)
        over = f" in each of its {windows} windows" if windows > 1 else ""
        lines = [f"{name} counts {sequence(self.patterns[name])}{over}"]
        for types, names in self.shared:
            if name in names:
                companions = ", ".join(other for other in names if other != name)
                lines.append(f"  {sequence(types)}: counted once, shared with {companions}")
        if len(lines) == 1:
            lines.append("  no query of the same filter, group-by and window begins with the same two event types")
        elif not any(query.sequence.absent for query in self.queries if query.name == name):
            lines.append("  a run shares suffixes instead where its events make that cheaper")
        return lines

    def diff(self, other: SequenceSharing) -> SequenceDiff:
        """Changes from these queries to others."""
        before, after = self.patterns, other.patterns
        both = [name for name in after if name in before]
        ours, new_prefixes = (dict.fromkeys(types for types, _ in sharing.shared) for sharing in (self, other))
        return SequenceDiff(
            tuple(name for name in after if name not in before),
            tuple(name for name in before if name not in after),
            tuple(name for name in both if before[name] != after[name]),
            tuple(
                name
                for name in both
                if before[name] == after[name] and self.shared_length(name) != other.shared_length(name)
            ),
            tuple(types for types in new_prefixes if types not in ours),
            tuple(types for types in ours if types not in new_prefixes),
        )


def _segments(types: Types, shared: int) -> list[dict[str, Any]]:
    """The shared prefix of a pattern and what follows it, those that are not empty."""
    cuts = ((0, shared, True), (shared, len(types), False))
    return [
        {"types": list(types[begin:end]), "begin": begin, "end": end, "shared": is_shared}
        for begin, end, is_shared in cuts
        if begin < end
    ]


@dataclass(frozen=True)
class SequenceDiff:
    """Changes in the sharing of event sequences.

    Attributes
    ----------
    added, removed, changed
        Names of queries; ``changed`` are those with another pattern.
    cut
        Names of queries with the same pattern that share a longer or a shorter prefix of it.
    shared, dissolved
        Prefixes that only the new queries share, and only the old ones.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    cut: tuple[str, ...]
    shared: tuple[Types, ...]
    dissolved: tuple[Types, ...]

    def lines(self) -> list[str]:
        """The prefixes that are shared from now on or no longer, one per line."""
        text_lines = [f"+ shared {sequence(types)}" for types in self.shared]
        return text_lines + [f"- shared {sequence(types)}" for types in self.dissolved]


def sequence(types: Types) -> str:
    """A pattern as it is written in a query."""
    return f"SEQ({', '.join(types)})"


def sequence_sharing(queries: Iterable[ACQ]) -> tuple[SequenceSharing, ...]:
    """Sharing of the queries of a tree of event sequences: one value for each filter and group-by."""
    return tuple(SequenceSharing(members) for members in families_of(queries).values())
