"""Exact counts of edges by conditioning: what is left of a union at the instants of one of its progressions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

from optimizer.windows.alignment import Progression
from optimizer.windows.factors import Branches, BudgetSpent, Factors, common_period

SMALL_PERIOD = 1 << 13
"""Periods up to this many ticks are marked in the bits of an integer rather than split further."""

MEMO_SIZE = 1 << 20
"""Progressions of the subproblems that one counter remembers (twice as many before the oldest are forgotten)."""

DEEPEST = 120
"""Deepest nesting of subproblems, well within Python's limit of recursion."""


Intervals = tuple[tuple[float, float], tuple[float, float]]
"""Bounds of the misses and of the hits per tick, each (low, high)."""

Count = TypeVar("Count")


class _Conditioning(ABC, Generic[Count]):
    """Recursion for any kind of count: subproblems, their memo and the work so far.

    :class:`_InIntegers` and :class:`_InFloats` define counts, and how they are combined.
    """

    def __init__(self, limit: float) -> None:
        self.factors = Factors()
        self.factors.limit = limit
        self.depth = 0
        self._held = 0
        self._memo: dict[tuple[Progression, ...], Count] = {}
        self._older: dict[tuple[Progression, ...], Count] = {}

    @abstractmethod
    def product(self, components: Iterable[list[Progression]]) -> Count:
        """Independent components together."""

    @abstractmethod
    def _known(self, marked: int, period: int) -> Count:
        """The count of ``marked`` marked ticks in a period."""

    @abstractmethod
    def _sum(self, key: tuple[Progression, ...], top: int, branches: Branches) -> Count:
        """Sum of the counts that remain at the residues modulo ``top``."""

    def connected(self, component: list[Progression]) -> Count:
        """Count one absorbed component of at least two progressions."""
        closed = _closed(component)
        if closed is not None:
            return self._known(*closed)
        key = canonical(component)
        count = self._memo.get(key) or self._older.get(key)
        if count is None:
            if self.depth >= DEEPEST:
                raise BudgetSpent
            self.depth += 1
            try:
                count = self._sum(key, *self.factors.split(key))
            finally:
                self.depth -= 1
            self._held += len(key)
            if self._held > MEMO_SIZE:
                self._older, self._memo, self._held = self._memo, {}, len(key)
            self._memo[key] = count
        return count


class ConditioningInIntegers(_Conditioning[tuple[int, int]]):
    """(misses in one period, the period)."""

    def product(self, components: Iterable[list[Progression]]) -> tuple[int, int]:
        """Misses and period of components that are independent of each other."""
        misses = period = 1
        for component in components:
            if len(component) == 1:
                slide = component[0][0]
                misses *= slide - 1
                period *= slide
            else:
                few, ticks = self.connected(component)
                if not few:
                    return 0, 1
                misses *= few
                period *= ticks
        return misses, period

    def _known(self, marked: int, period: int) -> tuple[int, int]:
        return period - marked, period

    def _sum(self, key: tuple[Progression, ...], top: int, branches: Branches) -> tuple[int, int]:
        period = common_period(key)
        class_period = period // top
        total = 0
        for residues, components in branches:
            misses, ticks = self.product(components)
            total += residues * misses * (class_period // ticks)
        return total, period


class ConditioningInFloats(_Conditioning[tuple[float, float]]):
    """(misses, hits) per tick: each relatively precise, as a subproblem that is all but covered has few misses and
    one of long slides few hits."""

    def product(self, components: Iterable[list[Progression]]) -> tuple[float, float]:
        """Shares of misses and of hits of components that are independent of each other."""
        misses, hits = 1.0, 0.0
        for component in components:
            if len(component) == 1:
                slide = component[0][0]
                hits += misses / slide
                misses *= (slide - 1) / slide
            else:
                # hits = 1 - (1 - a)(1 - b) = a + (1 - a) b
                few, most = self.connected(component)
                hits += misses * most
                misses *= few
                if not misses:
                    return 0.0, 1.0
        return misses, hits

    def _known(self, marked: int, period: int) -> tuple[float, float]:
        return (period - marked) / period, marked / period

    def _sum(self, key: tuple[Progression, ...], top: int, branches: Branches) -> tuple[float, float]:
        covered = top - sum([residues for residues, _ in branches])
        misses, hits = 0.0, covered / top
        for residues, components in branches:
            few, most = self.product(components)
            misses += residues / top * few
            hits += residues / top * most
        return misses, hits


def canonical(component: list[Progression]) -> tuple[Progression, ...]:
    """Sorted, and translated (which changes no count) to start at 0, so that more subproblems are equal."""
    component.sort()
    origin = component[0][1]
    if origin:
        return tuple(sorted([(slide, (shift - origin) % slide) for slide, shift in component]))
    return tuple(component)


def _closed(component: Sequence[Progression]) -> tuple[int, int] | None:
    """(Hits, period) of an absorbed set if they can be computed without splitting it."""
    slides: dict[int, int] = {}
    period = 1
    for slide, _ in component:
        if slide in slides:
            slides[slide] += 1
        else:
            slides[slide] = 1
            period = math.lcm(period, slide)
        if period > SMALL_PERIOD and len(slides) > 2:
            return None
    if len(slides) == 1:
        return len(component), component[0][0]
    if len(slides) == 2:
        return _two_slides(component, *slides)
    marks = 0
    for slide, shift in component:
        marks |= _multiples(slide, period) << shift
    return marks.bit_count(), period


def _two_slides(component: Sequence[Progression], s: int, t: int) -> tuple[int, int]:
    """Progressions of one slide are disjoint, so only pairs of different slides are counted twice."""
    shared = math.gcd(s, t)
    residues: dict[int, int] = {}
    count = 0
    for slide, shift in component:
        if slide == s:
            count += 1
            residues[shift % shared] = residues.get(shift % shared, 0) + 1
    common = sum([residues.get(shift % shared, 0) for slide, shift in component if slide != s])
    period = s // shared * t
    return count * (t // shared) + (len(component) - count) * (s // shared) - common, period


@lru_cache(maxsize=8192)
def _multiples(slide: int, period: int) -> int:
    """The multiples of a slide in a period, as bits."""
    return ((1 << period) - 1) // ((1 << slide) - 1)
