"""Cheapest cycles by dynamic programming over a ladder of periods."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numba
import numpy as np

from optimizer.schedule import groups
from optimizer.schedule.groups import INT64, Longs


@numba.njit(cache=True)
def _fill(periods, costs, longest, table, first):
    """Fj(L) for the levels below the top, and the first gap of each: rows 1.. of ``table`` and ``first``."""
    gaps = np.empty(longest + 1, np.int64)
    for level in range(1, len(periods)):
        period, cost = min(periods[level - 1], longest), costs[level - 1]
        below, row = table[level - 1], table[level]
        # longer gaps are dearer: of those that cost the same below only the longest matter
        count = 0
        for gap in range(1, period + 1):
            if gap == period or below[gap + 1] > below[gap]:
                gaps[count] = gap
                count += 1
        for length in range(1, longest + 1):
            best, chosen = -1, 0
            if length <= period:
                best, chosen = below[length], length
            for place in range(count):
                gap = gaps[place]
                if gap >= length:
                    break
                value = below[gap] + cost + row[length - gap]
                if best < 0 or value < best:
                    best, chosen = value, gap
            row[length] = best
            first[level, length] = chosen


@numba.njit(cache=True)
def _fill_between(offsets, periods, costs, table, first):
    """The same among given instants: table[j, a, b] is the cost of the gap from instant a to instant b."""
    count = len(offsets)
    for level in range(1, len(periods) + 1):
        period, cost = periods[level - 1], costs[level - 1]
        for end in range(1, count):
            for begin in range(end - 1, -1, -1):
                best, chosen = -1, 0
                for middle in range(begin + 1, end + 1):
                    if offsets[middle] - offsets[begin] > period:
                        break
                    value = table[level - 1, begin, middle]
                    if value < 0:
                        continue
                    if middle < end:
                        if table[level, middle, end] < 0:
                            continue
                        value += cost + table[level, middle, end]
                    if best < 0 or value < best:
                        best, chosen = value, middle
                table[level, begin, end] = best
                first[level, begin, end] = chosen


@dataclass(frozen=True)
class Ladder:
    """Levels of strictly ascending periods and costs."""

    periods: tuple[int, ...]
    costs: tuple[Fraction, ...]

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, Fraction]]) -> Ladder:
        """The ladder of (period, cost) pairs: those that cost more than every shorter period."""
        rungs: list[tuple[int, Fraction]] = []
        for period, cost in sorted(pairs, key=lambda pair: (pair[0], -pair[1])):
            if not rungs or cost > rungs[-1][1]:
                rungs.append((period, cost))
        return cls(tuple(period for period, _ in rungs), tuple(cost for _, cost in rungs))

    @property
    def work(self) -> int:
        """Steps of the dynamic program, at most."""
        return self.periods[-1] * (1 + sum(self.periods[:-1]))

    def rounded(self, unit: int, cap: int) -> Ladder:
        """The ladder with the same costs and its periods in multiples of ``unit``, none beyond ``cap`` units."""
        return self.of(
            [(min(period // unit, cap), cost) for period, cost in zip(self.periods, self.costs, strict=True)]
        )

    def whole_costs(self, longest: int) -> tuple[Longs, bool]:
        """Costs as integers whose sums fit, and whether they are exact (or rounded, to some 15 digits)."""
        scale = Fraction(math.lcm(*(cost.denominator for cost in self.costs)))
        most = max(self.costs) * (longest + 1)
        exact = most * scale < INT64
        if not exact:
            scale = INT64 / most
        return np.array([int(cost * scale) for cost in self.costs], dtype=np.int64), exact


@dataclass(frozen=True)
class CycleOptimum:
    """A cheapest cycle of a ladder: runs (offset, level), the dearest at 0."""

    length: int
    runs: list[tuple[int, int]]
    cost: Fraction
    exact: bool


def _coarsened(ladder: Ladder, work: int) -> tuple[Ladder, int, bool]:
    """A ladder within the limits, its unit, and whether nothing is lost.

    Periods are rounded down, so that every bound is still obeyed. First to multiples of their common divisor, which
    loses nothing (the instants of a schedule may be rounded down likewise). Then to multiples of up to a sixteenth of
    the shortest; then long ones are cut off: the rarest scans become more frequent than they could be, but stay rare.
    """

    def fits(candidate: Ladder) -> bool:
        return candidate.work <= work and candidate.periods[-1] <= groups.LONGEST_CYCLE

    divisor = math.gcd(*ladder.periods)
    exact_ladder = ladder.rounded(divisor, ladder.periods[-1])
    if fits(exact_ladder):
        return exact_ladder, divisor, True
    ladder, unit = exact_ladder, 1
    while not fits(ladder) and 2 * unit <= exact_ladder.periods[0] // 16:
        unit *= 2
        ladder = exact_ladder.rounded(unit, exact_ladder.periods[-1])
    cap = ladder.periods[-1]
    while not fits(ladder) and cap > ladder.periods[0]:
        cap = max(ladder.periods[0], cap * 3 // 4)
        ladder = exact_ladder.rounded(unit, cap)
    return ladder, unit * divisor, False


def best_cycle(ladder: Ladder, work: int) -> CycleOptimum:
    """The cheapest cycle (module docstring). O(nk * (n1 + ... + n(k-1))) at most."""
    numbers = {cost: number for number, cost in enumerate(ladder.costs)}
    ladder, unit, lossless = _coarsened(ladder, work)
    longest, top = ladder.periods[-1], len(ladder.periods) - 1
    costs, exact = ladder.whole_costs(longest)
    table = np.zeros((top + 1, longest + 2), dtype=np.int64)
    first = np.zeros((top + 1, longest + 2), dtype=np.int64)
    _fill(np.array(ladder.periods, dtype=np.int64), costs, longest, table, first)
    dearest = int(costs[top])
    best, length = dearest, 1
    for other, below in enumerate(table[top, 2 : longest + 1].tolist(), 2):
        if (dearest + below) * length <= best * other:
            best, length = dearest + below, other
    runs = [(0, top)]
    stack = [(top, 0, length)]
    while stack:
        level, begin, gap = stack.pop()
        while level:
            chosen = int(first[level, gap])
            if chosen < gap:
                runs.append((begin + chosen, level - 1))
                stack.append((level, begin + chosen, gap - chosen))
            level, gap = level - 1, chosen
    times = Counter(level for _, level in runs)
    cost = sum((ladder.costs[level] * count for level, count in times.items()), Fraction(0)) / (length * unit)
    placed = sorted((offset * unit, numbers[ladder.costs[level]]) for offset, level in runs)
    return CycleOptimum(length * unit, placed, cost, exact and lossless)


def cheapest_among(ladder: Ladder, offsets: Sequence[int], length: int) -> list[tuple[int, int]] | None:
    """The cheapest runs (offset, level) at instants of a cycle, all levels at its first. None: impossible."""
    if length > ladder.periods[-1]:
        return None
    costs, _ = ladder.whole_costs(len(offsets))
    places = np.array([*offsets, length], dtype=np.int64)
    shape = (len(ladder.periods), len(places), len(places))
    table, first = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    _fill_between(places, np.array(ladder.periods[:-1], dtype=np.int64), costs[:-1], table, first)
    top = len(ladder.periods) - 1
    if table[top, 0, -1] < 0:
        return None
    runs = [(offsets[0], top)]
    stack = [(top, 0, len(offsets))]
    while stack:
        level, begin, end = stack.pop()
        while level:
            middle = int(first[level, begin, end])
            if middle < end:
                runs.append((offsets[middle], level - 1))
                stack.append((level, middle, end))
            level, end = level - 1, middle
    return sorted(runs)
