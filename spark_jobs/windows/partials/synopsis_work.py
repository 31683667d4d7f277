"""Work of a run for each synopsis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from optimizer.synopses.synopsis import Synopsis
from optimizer.windows.alignment import history_start
from optimizer.workload.values import ACQ, Stream


@dataclass(frozen=True)
class SynopsisWork:
    """One synopsis in a run: its queries, and the fragments [begin, end) that their windows cover.

    ``until``: the last instant to answer; None: ``end``, unless there are historical windows, whose instants are no
    edges. ``stream``: with the versions of its dimensions, if queries are joined late.
    """

    synopsis: Synopsis
    queries: tuple[ACQ, ...]
    begin: int
    end: int
    until: int | None = None
    stream: Stream | None = None

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
