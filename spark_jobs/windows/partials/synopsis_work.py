"""Work of a run for each synopsis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import history_start
from optimizer.workload.values import ACQ, Stream, Window


class LevelSpan(NamedTuple):
    """A span [begin, end) of a synopsis that is read from the rows of one of its levels, known by fingerprint."""

    fingerprint: str
    begin: int
    end: int


@dataclass(frozen=True)
class SynopsisWork:
    """One synopsis in a run: its queries, and the fragments [begin, end) that their windows cover.

    ``until``: the last instant to answer; None: ``end``, unless there are historical windows, whose instants are no
    edges. ``stream``: with the versions of its dimensions, if queries are joined late. ``levels``: the spans that are
    read from levels, ascending (:mod:`spark_jobs.windows.partials.levels`); in all others fragments are needed.
    """

    synopsis: Synopsis
    queries: tuple[ACQ, ...]
    begin: int
    end: int
    until: int | None = None
    stream: Stream | None = None
    levels: tuple[LevelSpan, ...] = ()

    @property
    def fine(self) -> list[tuple[int, int]]:
        """The spans [begin, end) of which fragments are needed, ascending."""
        spans, at = [], self.begin
        for level in self.levels:
            if at < min(level.begin, self.end):
                spans.append((at, min(level.begin, self.end)))
            at = max(at, level.end)
        return spans + ([(at, self.end)] if at < self.end else [])

    def over(self, begin: int, end: int) -> SynopsisWork:
        """The work on the fragments in [begin, end) alone, without levels."""
        return replace(self, begin=begin, end=end, levels=())

    @property
    def last_instant(self) -> int:
        """The last instant to answer."""
        return self.end if self.until is None else self.until

    def between(self, first: int, last: int) -> SynopsisWork | None:
        """The work for the instants in (first, last], with no more fragments than their windows cover; None if there is
        none."""
        windows, last = list(dict.fromkeys(query.window for query in self.queries)), min(last, self.last_instant)
        begin = max(self.begin, history_start(windows, first, last))
        end = min(self.end, last - min(window.ago for window in windows))
        return replace(self, begin=begin, end=end, until=last) if begin < end else None


def span_covered(synopsis: Synopsis, windows: Sequence[Window], begin: int, until: int) -> tuple[int, int]:
    """The fragments [first, last) of a synopsis under the windows with instants in (begin, until]; none if the second
    is not behind the first."""
    if synopsis.kind.ends_with_pauses:
        # until an event comes a session is open, and whichever comes later belongs to no session that has ended
        first = begin - max(window.reach for window in windows)
        return synopsis.fragments.last_edge(first), synopsis.fragments.next_edge(until - 1)
    end = synopsis.fragments.last_edge(until - min(window.ago for window in windows))
    return history_start(windows, begin, until), end


def merged(parts: Sequence[SynopsisWork]) -> list[SynopsisWork]:
    """Parts of which no two have the same synopsis: trees with equal edges may need the same partial aggregates."""
    by_fingerprint: dict[str, SynopsisWork] = {}
    for part in parts:
        merged_part = by_fingerprint.get(part.synopsis.fingerprint)
        if merged_part is not None:
            begin, end = min(merged_part.begin, part.begin), max(merged_part.end, part.end)
            queries, stream = merged_part.queries + part.queries, merged_part.stream or part.stream
            part = replace(merged_part, queries=queries, begin=begin, end=end, stream=stream)
        by_fingerprint[part.synopsis.fingerprint] = part
    return list(by_fingerprint.values())
