"""Files of a stream that took the place of others: where the events that both hold are the same.

What is stored of a stream is known by the identities of the files that it comes from. When one row of a day is updated,
the day's file is another, and so would be all that was ever made of it. A *replacement* says what is really so: the
files that came at one moment hold what those that went held, except for events at some times. So of any span without
such a time the files that are there now may be named by those that were there before
(:meth:`Replacements.undone`), step by step back to the oldest that are known: spans in which nothing changed keep their
names for good, whatever was rewritten around them.

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
        """Whether the file may hold an event of [begin, end)."""
        return (self.begin is None or self.begin < end) and (self.end is None or begin < self.end)


@dataclass(frozen=True)
class Replacement:
    """What happened at the moment ``noted``: outside of the ``changed`` spans (ascending, disjoint) the files that
    ``came`` hold together the events that those that are ``gone`` held together."""

    noted: int
    gone: tuple[FileSpan, ...]
    came: tuple[FileSpan, ...]
    changed: tuple[tuple[int, int], ...]


class Replacements:
    """All that are known of a stream."""

    def __init__(self, known: Iterable[Replacement]) -> None:
        self.newest_first = tuple(sorted(known, key=lambda each: -each.noted))
        files = [(*each.gone, *each.came) for each in self.newest_first]
        self._lows = np.array([min(-FAR if one.begin is None else one.begin for one in each) for each in files], "i8")
        self._highs = np.array([max(FAR if one.end is None else one.end for one in each) for each in files], "i8")

    def undone(self, marks: set[str], begin: int, end: int) -> set[str]:
        """What stands for the files of a stream in [begin, end), by those that were there before if nothing there has
        changed since.

        Equal sets stand for equal events: each step names files of the same events. The newest comes first, so that the
        names of a state are those of any later one between which and it nothing in the span changed.
        """
        for number in np.flatnonzero((self._lows < end) & (self._highs > begin)):
            step = self.newest_first[number]
            if _meets(step.changed, begin, end):
                continue
            came = {file.identity for file in step.came if file.meets(begin, end)}
            gone = {file.identity for file in step.gone if file.meets(begin, end)}
            # a file of which only some events are taken has a mark of its own; one that is there cannot be there twice
            if came <= marks and gone.isdisjoint(marks):
                marks = (marks - came) | gone
        return marks

    def since(self, noted: int) -> tuple[Replacement, ...]:
        """Those of later moments."""
        return tuple(each for each in self.newest_first if each.noted > noted)


NOTHING = Replacements(())
"""Of a stream of which none are known."""


def _meets(spans: Sequence[tuple[int, int]], begin: int, end: int) -> bool:
    # the first that ends later
    at = bisect_right(spans, begin, key=itemgetter(1))
    return at < len(spans) and spans[at][0] < end


def spans_of_times(times: NDArray[np.int64]) -> list[tuple[int, int]]:
    """The microseconds of some times, each a span."""
    return [(int(at), int(at) + 1) for at in np.unique(times)]


def disjoint(spans: Iterable[tuple[int, int]], most: int = MOST_SPANS) -> tuple[tuple[int, int], ...]:
    """Spans, ascending, that cover the given ones: what overlaps is one, and at most ``most`` are left."""
    found: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if begin >= end:
            continue
        if found and begin < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    if len(found) <= most:
        return tuple(found)
    gaps = np.array([later[0] - earlier[1] for earlier, later in zip(found, found[1:], strict=False)])
    kept = np.sort(np.argsort(-gaps, kind="stable")[: most - 1])
    cuts = [0, *(kept + 1), len(found)]
    return tuple((found[low][0], found[high - 1][1]) for low, high in zip(cuts, cuts[1:], strict=False))


def met(spans: Sequence[tuple[int, int]], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of some windows [starts, ends) (n,) meet one of the spans, which are ascending and disjoint."""
    if not spans:
        return np.zeros(len(starts), dtype=bool)
    lows = np.array([*(low for low, _ in spans), FAR], dtype=np.int64)
    highs = np.array([high for _, high in spans], dtype=np.int64)
    return np.asarray(lows[np.searchsorted(highs, starts, side="right")] < ends)
