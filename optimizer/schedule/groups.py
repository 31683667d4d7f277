"""Schedule queries whose SLIDE is an upper bound, so that queries of one synopsis can run together.

Queries that are answered from one synopsis form a *group*, those of one period a *sub-group*. A run of several
sub-groups scans the synopsis once, as far as their longest window reaches: it costs the maximum of their scans.
If SLIDE n means that *at most* n updates of the synopsis may lie between two executions, some sub-groups should run
more often than they ask, whenever another one scans the synopsis anyway.

*As published.* No sharing; aggressive (the entire group at its shortest period); conservative (each sub-group at
its own period, together where periods coincide); hybrid (a sub-group may take the period of a shorter one).

*Improvement.* Runs need not be periodic. A sub-group that another one dominates (which runs at least as often and
scans at least as far) rides along. Of the others, both periods n and costs c ascend. A run of level j runs all
levels below it too, so the cost of the gap between two runs of levels above j depends on its length only:

    F0(L) = 0;   Fj(L) = min over g <= min(nj, L) of  F(j-1)(g) + [g < L] * (cj + Fj(L - g))
    cheapest cycle = min over L <= nk of  (ck + F(k-1)(L)) / L

The minimum is over all schedules, periodic or not. If every run has an additional cost (``fixed``), or executions
cost something that is not shared (``post``), see :func:`plan_schedule`.

Time is counted in *updates* of the synopses: update u is the instant ``u * step`` microseconds since the epoch, for
all groups. All costs are fractions of any one unit.

References
----------
Golab, Bijay & Ozsu, "Multi-query optimization of sliding window aggregates by schedule synchronization", University
of Waterloo CS-2006-26, 2006: sections 3 and 4, Figure 4. Deviations:

- The paper's choice of periods is among set partitions of the sub-groups (section 4.3 counts five for three). The
  paper calls it polynomial by dynamic programming over subsets, but the best periods of a subset are no part of the
  best periods of the full set. :func:`hybrid_periods` finds the cheapest of all by a search over sets of periods.
- Conservative scheduling of the paper's example costs 358/30, printed 11.63.
- The schedules here are functions of time. The schedulers of Algorithms 1-3, which react to load, are in
  :mod:`optimizer.papers.reference.local_schedulers`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from optimizer.windows.alignment import Progression
from optimizer.windows.edge_counting import edge_bounds

Longs = NDArray[np.int64]

ALGORITHMS = ("optimal", "hybrid", "conservative", "aggressive", "no-sharing")

PLAN_WORK = 1_500_000_000
"""Steps of the dynamic program in one plan, for all groups: one or two seconds. Shared out evenly."""

GROUP_WORK = (10_000_000, 300_000_000)
"""Least and most steps for one group; beyond, periods are rounded down (:func:`_coarsened`)."""

LONGEST_CYCLE = 1 << 14
"""Most updates (of the coarsened unit) that a cycle may have, which are as many runs at most."""

COMMON_INSTANTS = 96
"""Most instants of a common cycle among which a group's cheapest subset is looked for."""

RIDING = Fraction(1, 10)
"""Largest relative cost that a late run may add by executing queries before they are due (:meth:`Schedule.overdue`)."""

COMMON_PERIOD = 1 << 20
"""Longest common period of the cycles of several groups whose instants are marked one by one."""

COUNTED_PROGRESSIONS = 1000
"""Most runs of all cycles that are counted so."""

COUNT_BUDGET = 30_000
"""Work of counting the instants of schedules with a longer period (see
:func:`optimizer.windows.edge_counting.edge_bounds`)."""

HYBRID_STATES = 24
"""Sets of periods that the search for hybrid periods keeps per sub-group, where there are more than it keeps all of."""

HYBRID_EXACT = 7
"""Sub-groups up to which the search for hybrid periods keeps all sets."""

INT64 = 1 << 62


def as_fraction(value: Fraction | int, what: str) -> Fraction:
    """A quantity that is not negative, exactly. Raises ValueError if it is negative."""
    fraction = Fraction(value)
    if fraction < 0:
        raise ValueError(f"{what} {value} is negative")
    return fraction


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
        Of equally urgent sub-groups the highest runs first (:mod:`optimizer.papers.reference.local_schedulers`).
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
        values = (period, as_fraction(scan, "scan"), tuple(queries), as_fraction(post, "post"), priority, until)
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    def runs_at(self, update: int) -> bool:
        """Return whether its lifetime includes this update."""
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
    """Runs of the sub-groups of one group, repeated for ever, anchored at update 0.

    Attributes
    ----------
    length
        In updates.
    runs
        (offset in [0, length), numbers of the sub-groups that run jointly then), offsets ascending.
    periods
        Instead of runs: every sub-group runs at the multiples of its period. ``length`` is their least common
        multiple, which may be astronomical.
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
        if any(offset >= other for offset, other in pairwise(offsets)) or any(
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
        offsets_by_subgroup: dict[int, list[int]] = {}
        for offset, numbers in self.runs:
            for number in numbers:
                offsets_by_subgroup.setdefault(number, []).append(offset)
        return offsets_by_subgroup

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
        return max(other - offset for offset, other in pairwise([*offsets, offsets[0] + self.length]))

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
            return periodic_cost(group, self.periods)[1]
        spent = Fraction(0)
        for numbers, times in Counter(numbers for _, numbers in self.runs).items():
            post = sum(group.subgroups[number].post for number in numbers)
            spent += times * (group.scans[max(group.ranks[number] for number in numbers)] + post)
        return spent / self.length


def periodic_cost(group: Group, periods: Sequence[int]) -> tuple[Fraction, Fraction]:
    """Lower and upper bound of the cost of periodic runs.

    The instants that scan at least as far as a sub-group pay for the part of its scan beyond the next one's.
    """
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
