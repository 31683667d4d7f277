"""Files of a stream that replaced others, with the times at which the events of both differ.

Stored results are identified by the files that they come from. When one row of a day is updated, the day's file has a
new identity, and so would everything that was ever computed from it. A *replacement* is more precise: the files that
came at one moment contain the same events as those that went, except at some times. So in any span without such a time
the current files may be named by the earlier ones (:meth:`Replacements.undone`), step by step back to the oldest known:
spans in which nothing changed keep their names, whatever was rewritten around them.

Times are microseconds, spans [begin, end).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

MOST_SPANS = 1000
"""Spans of one replacement; of more, those that are nearest to one another are made one."""

FAR = 1 << 62
"""Beyond every time."""


@dataclass(frozen=True)
class FileSpan:
    """A file by its identity, and the span of its events; None: not known."""

    identity: str
    begin: int | None
    end: int | None

    def meets(self, begin: int, end: int) -> bool:
        """Return whether the file may contain an event of [begin, end)."""
        return (self.begin is None or self.begin < end) and (self.end is None or begin < self.end)


@dataclass(frozen=True)
class Replacement:
    """A replacement at the moment ``noted``: outside of the ``changed`` spans (ascending, disjoint) the files that
    ``came`` together contain the same events as those that are ``gone``.
    """

    noted: int
    gone: tuple[FileSpan, ...]
    came: tuple[FileSpan, ...]
    changed: tuple[tuple[int, int], ...]


class Replacements:
    """All that are known of a stream."""

    def __init__(self, known: Iterable[Replacement]) -> None:
        self.newest_first = tuple(sorted(known, key=lambda each: -each.noted))
        files = [(*each.gone, *each.came) for each in self.newest_first]
        self._lows = np.array(
            [min(-FAR if span.begin is None else span.begin for span in each) for each in files], "i8"
        )
        self._highs = np.array([max(FAR if span.end is None else span.end for span in each) for each in files], "i8")

    def undone(self, marks: set[str], begin: int, end: int) -> set[str]:
        """Name the files of a stream in [begin, end) by the earlier files that they replaced, as long as nothing
        there changed.

        Equal sets stand for equal events: each step names files with the same events. The newest step comes first, so
        that the names of a state equal those of any later state between which and it nothing in the span changed.
        """
        for number in np.flatnonzero((self._lows < end) & (self._highs > begin)):
            step = self.newest_first[number]
            if _meets(step.changed, begin, end):
                continue
            came = {file.identity for file in step.came if file.meets(begin, end)}
            gone_names = {file.identity for file in step.gone if file.meets(begin, end)}
            # a file of which only some events are taken has a mark of its own; one that is there cannot be there twice
            if came <= marks and gone_names.isdisjoint(marks):
                marks = (marks - came) | gone_names
        return marks

    def since(self, noted: int) -> tuple[Replacement, ...]:
        """Replacements after a moment."""
        return tuple(each for each in self.newest_first if each.noted > noted)


NOTHING = Replacements(())
"""Replacements of a stream without any."""


def _meets(spans: Sequence[tuple[int, int]], begin: int, end: int) -> bool:
    # the first that ends later
    at = bisect_right(spans, begin, key=itemgetter(1))
    return at < len(spans) and spans[at][0] < end


def spans_of_times(times: NDArray[np.int64]) -> list[tuple[int, int]]:
    """The microseconds of some times, each a span."""
    return [(int(at), int(at) + 1) for at in np.unique(times)]


def disjoint(spans: Iterable[tuple[int, int]], most: int = MOST_SPANS) -> tuple[tuple[int, int], ...]:
    """Spans, ascending, that cover the given ones: what overlaps is one, and at most ``most`` are left."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if begin >= end:
            continue
        if joined and begin < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    if len(joined) <= most:
        return tuple(joined)
    gaps = np.array([later[0] - earlier[1] for earlier, later in zip(joined, joined[1:], strict=False)])
    largest_gaps = np.sort(np.argsort(-gaps, kind="stable")[: most - 1])
    cuts = [0, *(largest_gaps + 1), len(joined)]
    return tuple((joined[low][0], joined[high - 1][1]) for low, high in zip(cuts, cuts[1:], strict=False))


def met(spans: Sequence[tuple[int, int]], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mask of the windows [starts, ends) (n,) that meet one of the spans, which are ascending and disjoint."""
    if not spans:
        return np.zeros(len(starts), dtype=bool)
    lows = np.array([*(low for low, _ in spans), FAR], dtype=np.int64)
    highs = np.array([high for _, high in spans], dtype=np.int64)
    return np.asarray(lows[np.searchsorted(highs, starts, side="right")] < ends)
