"""When queries run whose SLIDE is an upper bound: schedules that let queries of one synopsis run together.

Queries that are answered from one synopsis form a *group*, those of one period a *sub-group*. A run of several
sub-groups scans the synopsis once, as far as the longest window of theirs reaches: it costs the maximum of their scans.
If SLIDE n says that *at most* n updates of the synopsis may lie between two executions, some sub-groups are better run
more often than they ask, whenever another one scans the synopsis anyway.

*As published.* No sharing; aggressive (the whole group at its shortest period); conservative (each sub-group at its own
period, together where periods coincide); hybrid (a sub-group may take the period of a shorter one).

*What beats it.* Runs need not be periodic. A sub-group that another one dominates (which runs at least as often and
scans at least as far) rides along. Of the others, both periods n and costs c ascend; a run of level j runs all levels
below it too, so what happens in the gap between two runs of levels above j depends on its length only:

    F0(L) = 0;   Fj(L) = min over g <= min(nj, L) of  F(j-1)(g) + [g < L] * (cj + Fj(L - g))
    cheapest cycle = min over L <= nk of  (ck + F(k-1)(L)) / L

The minimum is over all schedules, periodic or not. Where every run costs something besides (``fixed``), or executions
cost something that is not shared (``post``), see :func:`plan_schedule`.

Time is counted in *updates* of the synopses: update u is the instant ``u * step`` microseconds since the epoch, for all
groups. All costs are fractions of any one unit.

References
----------
Golab, Bijay & Ozsu, "Multi-query optimization of sliding window aggregates by schedule synchronization", University of
Waterloo CS-2006-26, 2006: sections 3 and 4, Figure 4. Deviations:

- The paper's choice of periods is among set partitions of the sub-groups (section 4.3 counts five for three) and is
  said to be polynomial by dynamic programming over subsets; the best periods of a subset are no part of the best
  periods of the whole. :func:`hybrid_periods` finds the cheapest of all by a search over sets of periods.
- Conservative scheduling of the paper's example costs 358/30, printed 11.63.
- The schedules here are functions of time. The schedulers of Algorithms 1-3, which react to load, are in
  :mod:`optimizer.scheduler`.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from optimizer.edges import edge_bounds
from optimizer.window import Progression

Longs = NDArray[np.int64]

ALGORITHMS = ("optimal", "hybrid", "conservative", "aggressive", "no-sharing")

PLAN_WORK = 1_500_000_000
"""Steps of the dynamic program in one plan, for all groups: one or two seconds. Shared out evenly."""

GROUP_WORK = (10_000_000, 300_000_000)
"""Least and most steps for one group; beyond, periods are rounded down (:func:`_coarsened`)."""

LONGEST_CYCLE = 1 << 14
"""Most updates (of the coarsened unit) that a cycle may have, which are as many runs at most."""

NESTED_LEVELS = 48
"""Most distinct periods in one schedule for all groups; others are rounded down to one of these."""

COMMON_INSTANTS = 96
"""Most instants of a common cycle among which a group's cheapest subset is looked for."""

RIDING = Fraction(1, 10)
"""How much dearer a late run may become by what it executes before it is due (:meth:`Schedule.overdue`)."""

COMMON_PERIOD = 1 << 20
"""Longest common period of the cycles of several groups whose instants are marked one by one."""

COUNTED_PROGRESSIONS = 1000
"""Most runs of all cycles that are counted so."""

COUNT_BUDGET = 30_000
"""Work of counting the instants of schedules with a longer period (see :func:`optimizer.edges.edge_bounds`)."""

HYBRID_STATES = 24
"""Sets of periods that the search for hybrid periods keeps per sub-group, where there are more than it keeps all of."""

HYBRID_EXACT = 7
"""Sub-groups up to which the search for hybrid periods keeps all sets."""

INT64 = 1 << 62


def _fraction(value: Fraction | int, what: str) -> Fraction:
    found = Fraction(value)
    if found < 0:
        raise ValueError(f"{what} {value} is negative")
    return found


@dataclass(frozen=True, init=False)
class SubGroup:
    """The queries of one group that have one period (section 4.2): they always run together.

    Attributes
    ----------
    period
        n: how many updates of the synopsis may lie between two executions (>= 1).
    scan
        Cost of scanning the synopsis for the longest window (the paper: w - 1 comparisons). What runs jointly pays the
        largest.
    queries
        Their names.
    post
        Cost of each execution that nothing shares: sorting, combining, storing answers.
    priority
        Of equally urgent sub-groups the highest runs first (:mod:`optimizer.scheduler`).
    until
        The last update at which it still runs. None: for ever.
    """

    period: int
    scan: Fraction
    queries: tuple[str, ...]
    post: Fraction = Fraction(0)
    priority: int = 0
    until: int | None = None

    def __init__(
        self,
        period: int,
        scan: Fraction | int,
        queries: Sequence[str] = (),
        post: Fraction | int = 0,
        priority: int = 0,
        until: int | None = None,
    ) -> None:
        if isinstance(period, bool) or not isinstance(period, int) or period < 1:
            raise ValueError(f"a period is a whole number of updates, at least 1, not {period!r}")
        values = (period, _fraction(scan, "scan"), tuple(queries), _fraction(post, "post"), priority, until)
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    def runs_at(self, update: int) -> bool:
        """Is its lifetime not over at this update?"""
        return self.until is None or update <= self.until


@dataclass(frozen=True)
class Group:
    """Queries that are answered from one synopsis, by sub-groups: at least one."""

    name: str
    subgroups: tuple[SubGroup, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "subgroups", tuple(self.subgroups))
        if not self.subgroups:
            raise ValueError(f"group {self.name} has no sub-group")

    @property
    def period(self) -> int:
        """The shortest of its sub-groups' periods."""
        return min(each.period for each in self.subgroups)

    @cached_property
    def scans(self) -> tuple[Fraction, ...]:
        """The different costs of scans, ascending."""
        return tuple(sorted({each.scan for each in self.subgroups}))

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """For each sub-group the place of its scan in :attr:`scans`: fractions are slow to compare."""
        places = {scan: place for place, scan in enumerate(self.scans)}
        return tuple(places[each.scan] for each in self.subgroups)

    @cached_property
    def _unpaid(self) -> tuple[int, ...]:
        return tuple(number for number, each in enumerate(self.subgroups) if not each.post)

    def riders(self, numbers: Iterable[int]) -> list[int]:
        """The sub-groups that ride free on a run of some: scanned anyway, and nothing to pay that is not shared."""
        rank = max(self.ranks[number] for number in numbers)
        return [number for number in self._unpaid if self.ranks[number] <= rank]


@dataclass(frozen=True)
class Cycle:
    """When the sub-groups of one group run, repeated for ever, anchored at update 0.

    Attributes
    ----------
    length
        In updates.
    runs
        (offset in [0, length), numbers of the sub-groups that run jointly then), offsets ascending.
    periods
        Instead of runs: every sub-group runs at the multiples of its own. ``length`` is their least common multiple,
        which may be astronomical.
    """

    length: int
    runs: tuple[tuple[int, tuple[int, ...]], ...] = ()
    periods: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        offsets = [offset for offset, _ in self.runs]
        if bool(self.runs) == bool(self.periods):
            raise ValueError("a cycle has either runs or periods")
        if self.periods and (min(self.periods) < 1 or self.length != math.lcm(*self.periods)):
            raise ValueError("the length of a cycle is the least common multiple of its periods, at least 1 each")
        if any(one >= other for one, other in pairwise(offsets)) or any(
            not 0 <= each < self.length for each in offsets
        ):
            raise ValueError(f"the offsets of a cycle of {self.length} updates are not ascending within it: {offsets}")

    @classmethod
    def periodic(cls, periods: Sequence[int]) -> Cycle:
        """Every sub-group at the multiples of its period."""
        return cls(math.lcm(*periods), (), tuple(periods))

    @cached_property
    def _offsets(self) -> list[int]:
        return [offset for offset, _ in self.runs]

    @cached_property
    def _offsets_of(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for offset, numbers in self.runs:
            for number in numbers:
                found.setdefault(number, []).append(offset)
        return found

    @property
    def progressions(self) -> list[Progression]:
        """The instants at which anything runs, as a union of progressions."""
        if self.periods:
            return [(period, 0) for period in sorted(set(self.periods))]
        spacing = self.length // len(self.runs)
        if self._offsets == list(range(0, self.length, spacing)):
            return [(spacing, 0)]
        return [(self.length, offset) for offset in self._offsets]

    def at(self, update: int) -> tuple[int, ...]:
        """The sub-groups that run at an update."""
        if self.periods:
            return tuple(number for number, period in enumerate(self.periods) if update % period == 0)
        phase = update % self.length
        place = bisect_left(self._offsets, phase)
        return self.runs[place][1] if place < len(self.runs) and self.runs[place][0] == phase else ()

    def after(self, update: int, number: int | None = None) -> int:
        """The first update later than this one at which anything runs, or one sub-group does.

        Raises KeyError for a sub-group that never runs.
        """
        if self.periods:
            periods = self.periods if number is None else self.periods[number : number + 1]
            return min(update - update % period + period for period in periods)
        offsets = self._offsets if number is None else self._offsets_of[number]
        phase = update % self.length
        place = bisect_right(offsets, phase)
        return update - phase + (offsets[place] if place < len(offsets) else self.length + offsets[0])

    def longest_gap(self, number: int) -> int:
        """Most updates between two runs of a sub-group. Raises KeyError if it never runs."""
        if self.periods:
            return self.periods[number]
        offsets = self._offsets_of[number]
        return max(other - one for one, other in pairwise([*offsets, offsets[0] + self.length]))

    def obeys(self, group: Group) -> bool:
        """Does every sub-group of the group run within its bound?"""
        if self.periods and len(self.periods) != len(group.subgroups):
            return False
        try:
            return all(self.longest_gap(number) <= each.period for number, each in enumerate(group.subgroups))
        except KeyError:
            return False

    def cost(self, group: Group) -> Fraction:
        """Per update, without the fixed cost of runs; of periods too many to be counted an upper bound."""
        if self.periods:
            return _periodic_cost(group, self.periods)[1]
        spent = Fraction(0)
        for numbers, times in Counter(numbers for _, numbers in self.runs).items():
            post = sum(group.subgroups[number].post for number in numbers)
            spent += times * (group.scans[max(group.ranks[number] for number in numbers)] + post)
        return spent / self.length


def _periodic_cost(group: Group, periods: Sequence[int]) -> tuple[Fraction, Fraction]:
    """From below and above: the instants that scan at least as far as a sub-group pay what it scans beyond the next."""
    post = sum((each.post / period for each, period in zip(group.subgroups, periods, strict=True)), Fraction(0))
    low = high = post
    by_scan = sorted(zip((each.scan for each in group.subgroups), periods, strict=True), key=lambda pair: -pair[0])
    for place, (scan, _) in enumerate(by_scan):
        beyond = scan - (by_scan[place + 1][0] if place + 1 < len(by_scan) else 0)
        if beyond:
            union = sorted({(period, 0) for _, period in by_scan[: place + 1]})
            rates = edge_bounds(union, budget=COUNT_BUDGET)
            low, high = low + beyond * rates[0], high + beyond * rates[1]
    return low, high


# ----------------------------------------------------------------------------- what the paper compares
def levels(group: Group) -> tuple[int, ...]:
    """The sub-groups that no other dominates, by period: both periods and scans ascend strictly.

    One dominates another if it runs at least as often and scans at least as far.
    """
    order = sorted(range(len(group.subgroups)), key=lambda number: _by_period(group.subgroups[number]))
    kept: list[int] = []
    for number in order:
        if not kept or group.subgroups[number].scan > group.subgroups[kept[-1]].scan:
            kept.append(number)
    return tuple(kept)


def _by_period(each: SubGroup) -> tuple[int, Fraction]:
    return each.period, -each.scan


def own_periods(group: Group) -> tuple[int, ...]:
    """Periods of conservative scheduling."""
    return tuple(each.period for each in group.subgroups)


def no_sharing_cost(group: Group, fixed: Fraction | int = 0) -> Fraction:
    """Every sub-group by itself at its own period, each execution a run."""
    return sum(((fixed + each.scan + each.post) / each.period for each in group.subgroups), Fraction(0))


def fixed_periods_cost(group: Group, periods: Sequence[int], fixed: Fraction | int = 0) -> Fraction:
    """Every sub-group at the multiples of a period, jointly where they coincide: exactly, by counting instants.

    Raises ValueError where there are too many periods without common divisors to count.
    """
    low, high = _periodic_cost(group, periods)
    rates = edge_bounds(Cycle.periodic(periods).progressions, budget=COUNT_BUDGET)
    if low != high or rates[0] != rates[1]:
        raise ValueError(f"the instants of {len(set(periods))} periods are too hard to count")
    return low + fixed * rates[0]


def conservative_cost(group: Group, fixed: Fraction | int = 0) -> Fraction:
    """Every sub-group at its own period, jointly where they coincide (Algorithm 2). Raises as above."""
    return fixed_periods_cost(group, own_periods(group), fixed)


def aggressive_cost(group: Group, fixed: Fraction | int = 0) -> Fraction:
    """The whole group at its shortest period (section 4.2)."""
    spent = max(each.scan for each in group.subgroups) + sum(each.post for each in group.subgroups)
    return (fixed + spent) / group.period


def hybrid_periods(group: Group, fixed: Fraction | int = 0) -> tuple[int, ...]:
    """The cheapest periods if every sub-group keeps its own or takes that of a shorter one (section 4.3).

    The paper compares set partitions (five for its three sub-groups; the sixth choice, where the third takes the second
    one's own period while that takes the first one's, never pays). Sub-groups are decided in the order of their scans,
    the longest first; what one then pays depends on the *set* of periods that are used before it, so that only the
    cheapest way to each set is kept, 2^k at most. Beyond :data:`HYBRID_EXACT` sub-groups only the
    :data:`HYBRID_STATES` most promising sets are kept, and the result may not be the cheapest.
    """
    distinct = sorted({each.period for each in group.subgroups})
    limit = None if len(group.subgroups) <= HYBRID_EXACT else HYBRID_STATES
    return _chosen_periods(
        group, fixed, [[period for period in distinct if period <= each.period] for each in group.subgroups], limit
    )


def best_fixed_periods(group: Group, fixed: Fraction | int = 0) -> tuple[int, ...]:
    """The cheapest of all periods up to the sub-groups' own.

    Exponential, for small examples: ValueError if more than 100,000 choices are left after domination.
    """
    periods = [group.subgroups[number].period for number in levels(group)]
    if math.prod(periods) > 100_000:
        raise ValueError("too many choices of periods")
    return _chosen_periods(group, fixed, [list(range(1, each.period + 1)) for each in group.subgroups], None)


def _chosen_periods(
    group: Group, fixed: Fraction | int, choices: Sequence[Sequence[int]], limit: int | None
) -> tuple[int, ...]:
    """Of the choices of every sub-group the cheapest (see :func:`hybrid_periods`); a multiple of a used one is free."""
    subgroups = group.subgroups
    order = sorted(range(len(subgroups)), key=lambda number: (-subgroups[number].scan, subgroups[number].period))
    # the periods used -> (cost, what was chosen, in that order); costs in floats, the exact cost is taken at the end
    start: tuple[int, ...] = ()
    states: dict[tuple[int, ...], tuple[float, tuple[int, ...]]] = {start: (0.0, ())}
    missed: dict[tuple[int, ...], dict[int, int]] = {start: {1: 1}}
    for number in order:
        scan, post = float(subgroups[number].scan + fixed), float(subgroups[number].post)
        found: dict[tuple[int, ...], tuple[float, tuple[int, ...]]] = {}
        for used, (cost, chosen) in states.items():
            free = [each for each in choices[number] if any(each % other == 0 for other in used)]
            options = [free[-1]] if free else []
            if not free or post:
                options += [each for each in choices[number] if each not in free]
            before = _missed_rate(missed[used])
            for period in options:
                after = used
                if not any(period % other == 0 for other in used):
                    after = tuple(sorted([other for other in used if other % period] + [period]))
                    if after not in missed:
                        missed[after] = _without(missed[used], period)
                total = cost + post / period + (scan * (before - _missed_rate(missed[after])) if after != used else 0.0)
                if after not in found or total < found[after][0] * (1 - 1e-12):
                    found[after] = total, (*chosen, period)
        if limit is not None and len(found) > limit:
            best = heapq.nsmallest(limit, found, key=lambda used: found[used][0])
            found = {used: found[used] for used in best}
        states = found
    _, chosen = min(states.values(), key=lambda state: state[0])
    by_number = dict(zip(order, chosen, strict=True))
    return tuple(by_number[number] for number in range(len(subgroups)))


def _without(missed: Mapping[int, int], period: int) -> dict[int, int]:
    """Inclusion-exclusion: of the instants that some periods miss (sum of coefficient/lcm) those not hit by another."""
    found = dict(missed)
    for multiple, coefficient in missed.items():
        common = math.lcm(multiple, period)
        found[common] = found.get(common, 0) - coefficient
    return {multiple: coefficient for multiple, coefficient in found.items() if coefficient}


def _missed_rate(missed: Mapping[int, int]) -> float:
    return math.fsum(coefficient / multiple for multiple, coefficient in missed.items())


def divisible_chain(group: Group, fixed: Fraction | int = 0) -> tuple[tuple[int, ...], Fraction]:
    """The best periods of the undominated sub-groups each of which divides the next, and their cost without ``post``.

    O(n log n) for each level, within a few percent of the optimum.
    """
    kept = [group.subgroups[number] for number in levels(group)]
    best: dict[int, tuple[Fraction, tuple[int, ...]]] = {1: (Fraction(0), ())}
    before = -Fraction(fixed)
    for each in kept:
        found: dict[int, tuple[Fraction, tuple[int, ...]]] = {}
        for divisor, (cost, chosen) in best.items():
            for period in range(divisor, each.period + 1, divisor):
                total = cost + (each.scan - before) / period
                if period not in found or total < found[period][0]:
                    found[period] = total, (*chosen, period)
        best, before = found, each.scan
    cost, chosen = min(best.values())
    return chosen, cost


def lower_bound(group: Group, fixed: Fraction | int = 0) -> Fraction:
    """What no schedule can cost less than: level j runs at least every nj updates and adds cj - c(j-1) to the scan."""
    total, before = Fraction(0), -Fraction(fixed)
    for number in levels(group):
        each = group.subgroups[number]
        total, before = total + (each.scan - before) / each.period, each.scan
    return total + sum(each.post / each.period for each in group.subgroups)


# ------------------------------------------------------------------------------------- dynamic program
@numba.njit(cache=True)
def _fill(periods, costs, longest, table, first):
    """Fj(L) for the levels below the top, and the first gap of each: rows 1.. of ``table`` and ``first``."""
    gaps = np.empty(longest + 1, np.int64)
    for level in range(1, len(periods)):
        period, cost = min(periods[level - 1], longest), costs[level - 1]
        below, here = table[level - 1], table[level]
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
                value = below[gap] + cost + here[length - gap]
                if best < 0 or value < best:
                    best, chosen = value, gap
            here[length] = best
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
class _Ladder:
    """Levels of strictly ascending periods and costs."""

    periods: tuple[int, ...]
    costs: tuple[Fraction, ...]

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, Fraction]]) -> _Ladder:
        kept: list[tuple[int, Fraction]] = []
        for period, cost in sorted(pairs, key=lambda pair: (pair[0], -pair[1])):
            if not kept or cost > kept[-1][1]:
                kept.append((period, cost))
        return cls(tuple(period for period, _ in kept), tuple(cost for _, cost in kept))

    @property
    def work(self) -> int:
        """Steps of the dynamic program, at most."""
        return self.periods[-1] * (1 + sum(self.periods[:-1]))

    def rounded(self, unit: int, cap: int) -> _Ladder:
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
class _Optimum:
    """A cheapest cycle of a ladder: runs (offset, level), the dearest at 0."""

    length: int
    runs: list[tuple[int, int]]
    cost: Fraction
    exact: bool


def _coarsened(ladder: _Ladder, work: int) -> tuple[_Ladder, int, bool]:
    """A ladder within the limits, its unit, and whether nothing is lost.

    Periods are rounded down, so that every bound is still obeyed. First to multiples of their common divisor, which
    loses nothing (the instants of a schedule may be rounded down likewise). Then to multiples of up to a sixteenth of
    the shortest; then long ones are cut off: the rarest scans become more frequent than they could be, but stay rare.
    """

    def fits(found: _Ladder) -> bool:
        return found.work <= work and found.periods[-1] <= LONGEST_CYCLE

    divisor = math.gcd(*ladder.periods)
    whole = ladder.rounded(divisor, ladder.periods[-1])
    if fits(whole):
        return whole, divisor, True
    ladder, unit = whole, 1
    while not fits(ladder) and 2 * unit <= whole.periods[0] // 16:
        unit *= 2
        ladder = whole.rounded(unit, whole.periods[-1])
    cap = ladder.periods[-1]
    while not fits(ladder) and cap > ladder.periods[0]:
        cap = max(ladder.periods[0], cap * 3 // 4)
        ladder = whole.rounded(unit, cap)
    return ladder, unit * divisor, False


def _optimum(ladder: _Ladder, work: int) -> _Optimum:
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
    return _Optimum(length * unit, placed, cost, exact and lossless)


def _among(ladder: _Ladder, offsets: Sequence[int], length: int) -> list[tuple[int, int]] | None:
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


# ------------------------------------------------------------------------------------------------ planning
def _scan_ladders(group: Group, fixed: Fraction) -> list[_Ladder]:
    """What a run of a level may be taken to cost: its scan alone; with its own post costs; with all that it covers."""
    each = group.subgroups
    found = [_Ladder.of([(one.period, one.scan + fixed) for one in each])]
    if any(one.post for one in each):
        kept = levels(group)
        own = [
            (each[number].period, fixed + each[number].scan + sum(each[other].post for other in kept[: place + 1]))
            for place, number in enumerate(kept)
        ]
        covering = [
            (each[number].period, fixed + each[number].scan + sum(o.post for o in each if o.scan <= each[number].scan))
            for number in kept
        ]
        found += [_Ladder.of(own), _Ladder.of(covering)]
    return found


def _cycle(group: Group, runs: Sequence[tuple[int, int]], length: int) -> Cycle:
    """The runs of a cycle, given how far each may scan: executions that no bound needs are left out where they cost.

    ``runs``: (offset, rank of its scan) ascending, the first at 0 with the longest scan. Every sub-group takes the
    fewest of the runs that scan far enough, beginning with that at 0; a run then scans as far as those that take it,
    and whatever else that covers and costs nothing besides rides along. A sub-group with post costs may need less than
    one execution in a cycle, so the cycle is repeated.
    """
    times = max([1, *(one.period // length for one in group.subgroups if one.post)])
    times = max(1, min(times, LONGEST_CYCLE // (4 * len(runs))))
    runs = [(turn * length + offset, rank) for turn in range(times) for offset, rank in runs]
    length *= times
    taken: dict[int, set[int]] = {offset: set() for offset, _ in runs}
    far_enough = [[offset for offset, rank in runs if rank >= least] for least in range(len(group.scans))]
    for number, one in enumerate(group.subgroups):
        offsets = far_enough[group.ranks[number]]
        at = 0
        taken[at].add(number)
        while length - at > one.period:
            at, before = offsets[bisect_right(offsets, at + one.period) - 1], at
            if at == before:
                raise ValueError(f"the runs of group {group.name} are further apart than the period {one.period}")
            taken[at].add(number)
    found = [
        (offset, tuple(sorted(numbers.union(group.riders(numbers))))) for offset, numbers in taken.items() if numbers
    ]
    return Cycle(length, tuple(found))


def _group_cycle(group: Group, optimum: _Optimum, ladder: _Ladder) -> Cycle:
    ranks = _ranks(group, ladder)
    return _cycle(group, [(offset, ranks[level]) for offset, level in optimum.runs], optimum.length)


def _ranks(group: Group, ladder: _Ladder) -> list[int]:
    """How far a run of each level scans: as far as any sub-group that has to run at least as often."""
    found = [_rank_within(group, period) for period in ladder.periods]
    return [rank for rank in found if rank is not None]


def _rank_within(group: Group, period: int) -> int | None:
    """How far the sub-groups of up to a period scan; None without any."""
    ranks = (rank for rank, each in zip(group.ranks, group.subgroups, strict=True) if each.period <= period)
    return max(ranks, default=None)


@dataclass(frozen=True)
class _Candidate:
    cycles: tuple[Cycle, ...]
    cost: Fraction


def _joint_rate(cycles: Sequence[Cycle]) -> Fraction:
    """Instants per update at which anything of several groups runs; an upper bound where that is too hard to count."""
    progressions = {each for cycle in cycles for each in cycle.progressions}
    if (1, 0) in progressions:
        return Fraction(1)
    period = math.lcm(*{slide for slide, _ in progressions})
    if period <= COMMON_PERIOD:
        marks = np.zeros(period, dtype=bool)
        for slide, shift in progressions:
            marks[shift::slide] = True
        return Fraction(int(np.count_nonzero(marks)), period)
    if len(progressions) <= COUNTED_PROGRESSIONS:
        return edge_bounds(sorted(progressions), budget=COUNT_BUDGET)[1]
    return min(Fraction(1), sum((Fraction(1, slide) for slide, _ in progressions), Fraction(0)))


def _costed(groups: Sequence[Group], cycles: Sequence[Cycle], fixed: Fraction) -> _Candidate:
    total = fixed * _joint_rate(cycles) if fixed else Fraction(0)
    return _Candidate(tuple(cycles), sum((c.cost(g) for g, c in zip(groups, cycles, strict=True)), total))


def joint_cost(groups: Sequence[Group], cycles: Sequence[Cycle], fixed: Fraction | int = 0) -> Fraction:
    """Cost per update of groups that run by some cycles; an upper bound where common instants cannot be counted."""
    return _costed(groups, cycles, Fraction(fixed)).cost


def _cheapest(candidates: Iterable[_Candidate]) -> _Candidate:
    return min(candidates, key=lambda candidate: candidate.cost)


def _cheapest_cycle(
    group: Group, fixed: Fraction, work: int, others: Sequence[Cycle] = ()
) -> tuple[Cycle, Fraction | None]:
    """A group's best cycle by itself, and a lower bound of its cost (None where costs or periods had to be rounded)."""
    bound: Fraction | None = None
    found: list[Cycle] = []
    for number, ladder in enumerate(_scan_ladders(group, fixed)):
        optimum = _optimum(ladder, work)
        if number == 0 and optimum.exact:
            bound = optimum.cost + sum(one.post / one.period for one in group.subgroups)
        found.append(_group_cycle(group, optimum, ladder))
    best = _cheapest(_costed([group], [cycle], fixed) for cycle in [*found, *others])
    return best.cycles[0], bound


def optimum(group: Group, fixed: Fraction | int = 0) -> tuple[Fraction, Cycle]:
    """The cheapest cycle of one group and its cost per update (see :func:`plan_schedule`; proven without post costs).

    ``fixed``: cost of any run of the group.
    """
    fixed = _fraction(fixed, "fixed")
    others = [Cycle.periodic(own_periods(group)), Cycle.periodic(hybrid_periods(group, fixed))]
    cycle, _ = _cheapest_cycle(group, fixed, GROUP_WORK[1], others)
    return _costed([group], [cycle], fixed).cost, cycle


def _on_grid(group: Group, grid: int, work: int, fixed: Fraction = Fraction(0)) -> Cycle:
    """A group's best cycle whose instants are multiples of a grid no wider than its shortest period."""
    coarse = Group(
        group.name, tuple(SubGroup(one.period // grid, one.scan, one.queries, one.post) for one in group.subgroups)
    )
    cycle, _ = _cheapest_cycle(coarse, fixed, work)
    return Cycle(cycle.length * grid, tuple((offset * grid, numbers) for offset, numbers in cycle.runs))


def _grids(shortest: int) -> list[int]:
    """Grids to try: divisors of the shortest period by small numbers, and some between its half and itself."""
    if shortest <= 8:
        return list(range(2, shortest + 1))
    found = {shortest // parts for parts in range(1, 6)} | {shortest - shortest * part // 8 for part in range(1, 4)}
    return sorted(grid for grid in found if grid > 1)


def _nested(groups: Sequence[Group], fixed: Fraction, work: int) -> list[list[Cycle]]:
    """One schedule for all groups, and each group's cheapest runs at its instants."""
    periods = sorted({each.period for group in groups for each in group.subgroups})
    if len(periods) > NESTED_LEVELS:
        places = np.unique(np.geomspace(1, len(periods), NESTED_LEVELS).round().astype(int) - 1)
        periods = [periods[place] for place in places]
    # a sub-group belongs to the longest of these periods that is within its own
    limits = [*(period - 1 for period in periods[1:]), max(each.period for group in groups for each in group.subgroups)]
    ranks = [[_rank_within(group, limit) for group in groups] for limit in limits]
    costs = [
        fixed + sum(group.scans[rank] for group, rank in zip(groups, row, strict=True) if rank is not None)
        for row in ranks
    ]
    ladder = _Ladder.of(list(zip(periods, costs, strict=True)))
    optimum = _optimum(ladder, work)
    row_of = [ranks[len(costs) - 1 - costs[::-1].index(cost)] for cost in ladder.costs]
    nested, among = [], []
    offsets = [offset for offset, _ in optimum.runs]
    for place, group in enumerate(groups):
        runs = [(offset, rank) for offset, level in optimum.runs if (rank := row_of[level][place]) is not None]
        nested.append(_cycle(group, runs, optimum.length))
        if len(offsets) <= COMMON_INSTANTS:
            among.append(_chosen_among(group, offsets, optimum.length, nested[-1]))
    return [nested, among] if among else [nested]


def _chosen_among(group: Group, offsets: Sequence[int], length: int, otherwise: Cycle) -> Cycle:
    found = [otherwise]
    for ladder in _scan_ladders(group, Fraction(0)):
        runs = _among(ladder, offsets, length)
        if runs is not None:
            ranks = _ranks(group, ladder)
            found.append(_cycle(group, [(offset, ranks[level]) for offset, level in runs], length))
    return min(found, key=lambda cycle: cycle.cost(group))


def plan_schedule(
    step: int, groups: Sequence[Group], fixed: Fraction | int = 0, algorithm: str = "optimal"
) -> Schedule:
    """When the queries of some groups run, as cheaply as possible within their bounds.

    ``optimal`` takes the cheapest of these, costed exactly:

    - every group's cheapest cycle by itself, with and without the fixed cost;
    - one nested schedule for all groups, by the same dynamic program over all their periods, and for its instants each
      group's cheapest subset (a dynamic program over pairs of instants);
    - every group's cheapest cycle on a common grid, for some grids up to the shortest period;
    - what the other algorithms find.

    For one group without post costs, and for several without fixed costs either, that is the cheapest of all schedules.
    Otherwise it need not be: several groups' common instants are chosen from the above; executions that cost ``post``
    and that no bound needs are left out of cycles that were chosen before. (On random instances small enough for an
    exhaustive search nine of ten are the cheapest, the others are up to 8 % above.) :attr:`Schedule.proven` says
    whether the cost is as low as a lower bound. Lifetimes (``until``) do not enter the costs.

    Parameters
    ----------
    step
        Microseconds of one synopsis update (> 0).
    groups
        Of different names, as are all queries.
    fixed
        Cost of any run at all (a session, publishing), paid once for all groups that run at the same update.
    algorithm
        One of :data:`ALGORITHMS`.

    Raises
    ------
    ValueError
        Unknown algorithm, a name that is used twice, a cost that is negative, a step that is not positive.

    Complexity: O(n * (n1 + ... + nk)) per group of longest period n, up to :data:`PLAN_WORK`; periods beyond that are
    rounded down (:func:`_coarsened`), as are all but :data:`NESTED_LEVELS` in the nested schedule.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {algorithm!r}: one of {', '.join(ALGORITHMS)}")
    fixed, groups = _fraction(fixed, "fixed"), tuple(groups)
    alone = fixed if len(groups) == 1 else Fraction(0)
    own = [Cycle.periodic(own_periods(group)) for group in groups]
    hybrid = [Cycle.periodic(hybrid_periods(group, alone)) for group in groups]
    together = [Cycle.periodic([group.period] * len(group.subgroups)) for group in groups]
    published = {
        "conservative": _costed(groups, own, fixed),
        "aggressive": _costed(groups, together, fixed),
        "hybrid": _costed(groups, hybrid, fixed),
    }
    costs = {name: candidate.cost for name, candidate in published.items()}
    costs["no-sharing"] = sum((no_sharing_cost(group, fixed) for group in groups), Fraction(0))
    bound = sum((lower_bound(group) for group in groups), Fraction(0))
    if groups:
        bound += fixed / min(group.period for group in groups)
    if algorithm == "optimal":
        chosen, bound = _optimal(groups, fixed, published, bound)
        costs["optimal"] = cost = chosen.cost
    elif algorithm == "no-sharing":
        chosen, cost = published["conservative"], costs["no-sharing"]
    else:
        chosen = published[algorithm]
        cost = chosen.cost
    return Schedule(step, groups, chosen.cycles, fixed, algorithm, cost, costs, bound)


def _optimal(
    groups: Sequence[Group], fixed: Fraction, published: Mapping[str, _Candidate], bound: Fraction
) -> tuple[_Candidate, Fraction]:
    """The cheapest schedule that is found, and the highest lower bound."""
    if not groups:
        return published["hybrid"], bound
    work = min(max(PLAN_WORK // len(groups), GROUP_WORK[0]), GROUP_WORK[1])
    others = [[candidate.cycles[place] for candidate in published.values()] for place in range(len(groups))]
    alone = fixed if len(groups) == 1 else Fraction(0)
    own = [_cheapest_cycle(group, alone, work, more) for group, more in zip(groups, others, strict=True)]
    bounds = [found for _, found in own if found is not None]
    if len(bounds) == len(groups):
        shortest = min(group.period for group in groups)
        bound = max(bound, sum(bounds, (fixed - alone) / shortest))
    found = [*published.values(), _costed(groups, [cycle for cycle, _ in own], fixed)]
    if fixed and len(groups) > 1:
        found.append(_costed(groups, [_cheapest_cycle(group, fixed, work)[0] for group in groups], fixed))
        found += [_costed(groups, cycles, fixed) for cycles in _nested(groups, fixed, work)]
        for grid in _grids(min(group.period for group in groups)):
            found.append(_costed(groups, [_on_grid(group, grid, work) for group in groups], fixed))
    return _cheapest(found), bound


# ------------------------------------------------------------------------------------------------ schedules
@dataclass(frozen=True)
class Schedule:
    """When the queries of some groups run: for each group a cycle, and what that costs.

    A schedule is a function of time: nothing has to be remembered to know what runs when. Only after a change of plan
    may a query be further from its last execution than the new cycle knows; see :meth:`ticks`.

    Attributes
    ----------
    step
        Microseconds of one synopsis update.
    groups, cycles
        The groups and one cycle for each.
    fixed
        Cost of any run at all, paid once for all groups that run at the same update.
    algorithm
        One of :data:`ALGORITHMS`.
    cost
        Per update. Exact, unless periods are so many that instants at which several coincide cannot be counted: then
        an upper bound.
    costs
        By algorithm, for comparison: no-sharing, conservative, aggressive, hybrid (and optimal, if asked for).
    bound
        What no schedule that obeys the bounds can cost less than.
    """

    step: int
    groups: tuple[Group, ...]
    cycles: tuple[Cycle, ...]
    fixed: Fraction
    algorithm: str
    cost: Fraction
    costs: Mapping[str, Fraction] = field(default_factory=dict, hash=False)
    bound: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.step < 1:
            raise ValueError(f"a step of {self.step} microseconds")
        for what, names in (
            ("groups", [group.name for group in self.groups]),
            ("queries", [name for group in self.groups for each in group.subgroups for name in each.queries]),
        ):
            if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
                raise ValueError(f"names of several {what}: {repeated}")
        for group, cycle in zip(self.groups, self.cycles, strict=True):
            if not cycle.obeys(group):
                raise ValueError(f"the cycle of group {group.name} does not obey the bounds of its queries")

    @property
    def proven(self) -> bool:
        """Is no schedule cheaper?"""
        return self.cost == self.bound

    def ticks(
        self, begin: int, end: int, refreshed: Mapping[str, int] = MappingProxyType({})
    ) -> list[tuple[int, tuple[str, ...]]]:
        """The instants in (begin, end] at which something runs, and the names of the queries that run then.

        Microseconds, multiples of the step. ``refreshed`` has the instants at which queries were last executed, as far
        as they are known. What runs follows the cycles alone, except for a query that was executed at or before
        ``begin`` and whose bound ends after it, but before the cycle's next run of it (which a change of plan may
        bring about): it runs at the last update within its bound, with it its sub-group and all sub-groups that its
        scan covers and that have no post costs, and the cycle goes on. A query whose bound is over at ``begin`` follows
        the cycle (:meth:`overdue` tells of it), as does one that was never executed, or later than ``begin``.

        Split intervals give the same, if the executions of the first are in ``refreshed`` of the second.
        """
        return list(self._walk(begin, end, refreshed))

    def next_tick(self, after: int, refreshed: Mapping[str, int] = MappingProxyType({})) -> int | None:
        """The first instant later than this one at which something runs. None: all lifetimes are over."""
        return next((instant for instant, _ in self._walk(after, None, refreshed)), None)

    def overdue(self, end: int, refreshed: Mapping[str, int]) -> tuple[str, ...]:
        """The queries that a late run at an instant executes, when scheduled instants before it were missed.

        Late and pending ones together (section 4.4): those whose bound is over or would be before the cycle's next run
        of them, those that run now anyway, and those of which no execution is known, each with its sub-group. Then
        riders, the cheapest first: sub-groups for which the run costs little more (what their scans add and their post
        costs), up to :data:`RIDING` of what it costs without them; they need no run of their own soon. Never a
        sub-group that was executed at this update already.
        """
        update = end // self.step
        due: list[set[int]] = []
        stale: list[list[int]] = []
        for group, cycle in zip(self.groups, self.cycles, strict=True):
            held = [
                number
                for number, each in enumerate(group.subgroups)
                if each.runs_at(update)
                and any(refreshed.get(name, -math.inf) < update * self.step for name in each.queries)
            ]
            scheduled = cycle.at(update)
            late = {number for number in held if number in scheduled}
            for number in held:
                each, coming = group.subgroups[number], cycle.after(update, number)
                if any(
                    name not in refreshed or self._deadline(refreshed[name], each.period) < coming
                    for name in each.queries
                ):
                    late.add(number)
            due.append(late)
            stale.append(held)
        if any(due):
            self._ride(due, stale)
        return tuple(
            name
            for group, numbers in zip(self.groups, due, strict=True)
            for number in sorted(numbers)
            for name in group.subgroups[number].queries
        )

    def _ride(self, due: list[set[int]], stale: list[list[int]]) -> None:
        """Add riders to what is due of each group."""
        scans = [
            max((group.subgroups[number].scan for number in numbers), default=Fraction(0))
            for group, numbers in zip(self.groups, due, strict=True)
        ]
        posts = (group.subgroups[n].post for group, numbers in zip(self.groups, due, strict=True) for n in numbers)
        spare = RIDING * (self.fixed + sum(scans) + sum(posts))
        riders = [
            (max(each.scan - scans[place], Fraction(0)) + each.post, place, number)
            for place, held in enumerate(stale)
            for number in held
            if number not in due[place]
            for each in (self.groups[place].subgroups[number],)
        ]
        for added, place, number in sorted(riders):
            spare -= added
            if spare < 0:
                return
            due[place].add(number)

    def _deadline(self, refreshed: int, period: int) -> int:
        """The last update within the bound of a query that was last executed at an instant."""
        return (refreshed + period * self.step) // self.step

    def _walk(self, begin: int, end: int | None, refreshed: Mapping[str, int]) -> Iterator[tuple[int, tuple[str, ...]]]:
        first, last = begin // self.step, None if end is None else end // self.step
        walks = [
            self._walk_group(place, first, last, self._urgent(place, begin, refreshed))
            for place in range(len(self.groups))
        ]
        at: int | None = None
        names: list[str] = []
        for update, place, numbers in heapq.merge(*walks):
            if update != at:
                if at is not None:
                    yield at * self.step, tuple(names)
                at, names = update, []
            subgroups = self.groups[place].subgroups
            names += [name for number in numbers for name in subgroups[number].queries]
        if at is not None:
            yield at * self.step, tuple(names)

    def _urgent(self, place: int, begin: int, refreshed: Mapping[str, int]) -> list[tuple[int, int]]:
        """(update, sub-group) of a group whose known queries would exceed their bounds if they followed the cycle."""
        group, cycle, first = self.groups[place], self.cycles[place], begin // self.step
        found = set()
        for number, each in enumerate(group.subgroups):
            known = [refreshed[name] for name in each.queries if refreshed.get(name, math.inf) <= begin]
            deadlines = [update for last in known if (update := self._deadline(last, each.period)) > first]
            if deadlines and min(deadlines) < cycle.after(first, number) and each.runs_at(min(deadlines)):
                found.add((min(deadlines), number))
        return sorted(found)

    def _walk_group(
        self, place: int, first: int, last: int | None, urgent: list[tuple[int, int]]
    ) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """(update, group, sub-groups) for the runs of one group after an update, up to another."""
        group, cycle = self.groups[place], self.cycles[place]
        ends = [each.until for each in group.subgroups]
        over = None if None in ends else max(end for end in ends if end is not None)
        update, executed = first, set[int]()
        while True:
            urgent = [each for each in urgent if each[1] not in executed]
            update = min([cycle.after(update), *(due for due, _ in urgent)])
            if any(limit is not None and update > limit for limit in (last, over)):
                return
            executed = {number for number in cycle.at(update) if group.subgroups[number].runs_at(update)}
            if due := {number for when, number in urgent if when == update}:
                executed |= due
                executed.update(number for number in group.riders(executed) if group.subgroups[number].runs_at(update))
            if executed:
                yield update, place, tuple(sorted(executed))

    # ----------------------------------------------------------------------------------------- JSON
    def to_json(self) -> dict[str, Any]:
        """Values for ``json.dumps``: fractions as text, exactly."""
        return {
            "step": self.step,
            "groups": [_group_to_json(group) for group in self.groups],
            "cycles": [_cycle_to_json(cycle) for cycle in self.cycles],
            "fixed": str(self.fixed),
            "algorithm": self.algorithm,
            "cost": str(self.cost),
            "costs": {name: str(cost) for name, cost in self.costs.items()},
            "bound": str(self.bound),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Schedule:
        """What :meth:`to_json` gave."""
        return cls(
            data["step"],
            tuple(_group_from_json(group) for group in data["groups"]),
            tuple(_cycle_from_json(cycle) for cycle in data["cycles"]),
            Fraction(data["fixed"]),
            data["algorithm"],
            Fraction(data["cost"]),
            {name: Fraction(cost) for name, cost in data["costs"].items()},
            Fraction(data["bound"]),
        )


def _group_to_json(group: Group) -> dict[str, Any]:
    return {
        "name": group.name,
        "subgroups": [
            {
                "period": each.period,
                "scan": str(each.scan),
                "queries": list(each.queries),
                "post": str(each.post),
                "priority": each.priority,
                "until": each.until,
            }
            for each in group.subgroups
        ],
    }


def _group_from_json(data: Mapping[str, Any]) -> Group:
    return Group(
        data["name"],
        tuple(
            SubGroup(
                each["period"],
                Fraction(each["scan"]),
                tuple(each["queries"]),
                Fraction(each["post"]),
                each["priority"],
                each["until"],
            )
            for each in data["subgroups"]
        ),
    )


def _cycle_to_json(cycle: Cycle) -> dict[str, Any]:
    runs = [[offset, list(numbers)] for offset, numbers in cycle.runs]
    return {"length": cycle.length, "runs": runs, "periods": list(cycle.periods)}


def _cycle_from_json(data: Mapping[str, Any]) -> Cycle:
    runs = tuple((offset, tuple(numbers)) for offset, numbers in data["runs"])
    return Cycle(data["length"], runs, tuple(data["periods"]))
