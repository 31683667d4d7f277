"""Plans the schedule of many groups: common cycles, nested grids, what is cheapest together."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from optimizer.schedule import groups
from optimizer.schedule.cycles import CycleOptimum, Ladder, best_cycle, cheapest_among
from optimizer.schedule.definition import Schedule
from optimizer.schedule.fixed_periods import hybrid_periods, levels, lower_bound, no_sharing_cost, own_periods
from optimizer.schedule.groups import (
    ALGORITHMS,
    COMMON_INSTANTS,
    COMMON_PERIOD,
    COUNT_BUDGET,
    COUNTED_PROGRESSIONS,
    GROUP_WORK,
    PLAN_WORK,
    Cycle,
    Group,
    SubGroup,
    as_fraction,
)
from optimizer.windows.edge_counting import edge_bounds

NESTED_LEVELS = 48
"""Most distinct periods in one schedule for all groups; others are rounded down to one of these."""


def _scan_ladders(group: Group, fixed: Fraction) -> list[Ladder]:
    """Possible costs of a run of a level: only its scan; with its own post costs; with those of all that it covers."""
    each = group.subgroups
    ladders = [Ladder.of([(subgroup.period, subgroup.scan + fixed) for subgroup in each])]
    if any(subgroup.post for subgroup in each):
        numbers = levels(group)
        own = [
            (each[number].period, fixed + each[number].scan + sum(each[other].post for other in numbers[: place + 1]))
            for place, number in enumerate(numbers)
        ]
        covering = [
            (each[number].period, fixed + each[number].scan + sum(o.post for o in each if o.scan <= each[number].scan))
            for number in numbers
        ]
        ladders += [Ladder.of(own), Ladder.of(covering)]
    return ladders


def _cycle(group: Group, runs: Sequence[tuple[int, int]], length: int) -> Cycle:
    """Make the cycle of some runs, given how far each may scan; omit executions that cost and that no bound needs.

    ``runs``: (offset, rank of its scan) ascending, the first at 0 with the longest scan. Every sub-group takes the
    fewest of the runs that scan far enough, beginning with that at 0. A run then scans as far as the sub-groups
    that take it. Other sub-groups that this covers at no further cost ride along. A sub-group with post costs may
    need less than one execution in a cycle, so the cycle is repeated.
    """
    times = max([1, *(subgroup.period // length for subgroup in group.subgroups if subgroup.post)])
    times = max(1, min(times, groups.LONGEST_CYCLE // (4 * len(runs))))
    runs = [(turn * length + offset, rank) for turn in range(times) for offset, rank in runs]
    length *= times
    takers: dict[int, set[int]] = {offset: set() for offset, _ in runs}
    far_enough = [[offset for offset, rank in runs if rank >= least] for least in range(len(group.scans))]
    for number, subgroup in enumerate(group.subgroups):
        offsets = far_enough[group.ranks[number]]
        at = 0
        takers[at].add(number)
        while length - at > subgroup.period:
            at, before = offsets[bisect_right(offsets, at + subgroup.period) - 1], at
            if at == before:
                raise ValueError(f"the runs of group {group.name} are further apart than the period {subgroup.period}")
            takers[at].add(number)
    cycle_runs = [
        (offset, tuple(sorted(numbers.union(group.riders(numbers))))) for offset, numbers in takers.items() if numbers
    ]
    return Cycle(length, tuple(cycle_runs))


def _group_cycle(group: Group, optimum: CycleOptimum, ladder: Ladder) -> Cycle:
    ranks = _ranks(group, ladder)
    return _cycle(group, [(offset, ranks[level]) for offset, level in optimum.runs], optimum.length)


def _ranks(group: Group, ladder: Ladder) -> list[int]:
    """Scan ranks of a run of each level: as far as any sub-group that has to run at least as often."""
    ranks = [_rank_within(group, period) for period in ladder.periods]
    return [rank for rank in ranks if rank is not None]


def _rank_within(group: Group, period: int) -> int | None:
    """Highest scan rank of the sub-groups of up to a period; None without any."""
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
    cycles: list[Cycle] = []
    for number, ladder in enumerate(_scan_ladders(group, fixed)):
        optimum = best_cycle(ladder, work)
        if number == 0 and optimum.exact:
            bound = optimum.cost + sum(subgroup.post / subgroup.period for subgroup in group.subgroups)
        cycles.append(_group_cycle(group, optimum, ladder))
    best = _cheapest(_costed([group], [cycle], fixed) for cycle in [*cycles, *others])
    return best.cycles[0], bound


def optimum(group: Group, fixed: Fraction | int = 0) -> tuple[Fraction, Cycle]:
    """The cheapest cycle of one group and its cost per update (see :func:`plan_schedule`; proven without post costs).

    ``fixed``: cost of any run of the group.
    """
    fixed = as_fraction(fixed, "fixed")
    periodic_cycles = [Cycle.periodic(own_periods(group)), Cycle.periodic(hybrid_periods(group, fixed))]
    cycle, _ = _cheapest_cycle(group, fixed, GROUP_WORK[1], periodic_cycles)
    return _costed([group], [cycle], fixed).cost, cycle


def _on_grid(group: Group, grid: int, work: int, fixed: Fraction = Fraction(0)) -> Cycle:
    """A group's best cycle whose instants are multiples of a grid no wider than its shortest period."""
    coarse = Group(
        group.name,
        tuple(
            SubGroup(subgroup.period // grid, subgroup.scan, subgroup.queries, subgroup.post)
            for subgroup in group.subgroups
        ),
    )
    cycle, _ = _cheapest_cycle(coarse, fixed, work)
    return Cycle(cycle.length * grid, tuple((offset * grid, numbers) for offset, numbers in cycle.runs))


def _grids(shortest: int) -> list[int]:
    """Grids to try: divisors of the shortest period by small numbers, and some between its half and itself."""
    if shortest <= 8:
        return list(range(2, shortest + 1))
    grids = {shortest // parts for parts in range(1, 6)} | {shortest - shortest * part // 8 for part in range(1, 4)}
    return sorted(grid for grid in grids if grid > 1)


def _nested(groups: Sequence[Group], fixed: Fraction, work: int) -> list[list[Cycle]]:
    """One cycle for all groups, and each group's cheapest runs at its instants."""
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
    ladder = Ladder.of(list(zip(periods, costs, strict=True)))
    optimum = best_cycle(ladder, work)
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
    cycles = [otherwise]
    for ladder in _scan_ladders(group, Fraction(0)):
        runs = cheapest_among(ladder, offsets, length)
        if runs is not None:
            ranks = _ranks(group, ladder)
            cycles.append(_cycle(group, [(offset, ranks[level]) for offset, level in runs], length))
    return min(cycles, key=lambda cycle: cycle.cost(group))


def plan_schedule(
    step: int, groups: Sequence[Group], fixed: Fraction | int = 0, algorithm: str = "optimal"
) -> Schedule:
    """Schedule the queries of some groups as cheaply as possible within their bounds.

    ``optimal`` takes the cheapest of these, costed exactly:

    - every group's cheapest cycle by itself, with and without the fixed cost;
    - one nested schedule for all groups, by the same dynamic program over all their periods, and for its instants
      each group's cheapest subset (a dynamic program over pairs of instants);
    - every group's cheapest cycle on a common grid, for some grids up to the shortest period;
    - the schedules that the other algorithms find.

    For one group without post costs, and for several without fixed costs either, that is the cheapest of all
    schedules. Otherwise it need not be: several groups' common instants are chosen from the above, and executions
    that cost ``post`` and that no bound needs are removed only from cycles that are already chosen. (On random
    instances small enough for an exhaustive search nine of ten are the cheapest, the others are up to 8 % above.)
    :attr:`Schedule.proven` is true if the cost is as low as a lower bound. Lifetimes (``until``) do not enter the
    costs.

    Parameters
    ----------
    step
        Microseconds of one synopsis update (> 0).
    groups
        Groups and queries have different names.
    fixed
        Cost of any run at all (a session, publishing), paid once for all groups that run at the same update.
    algorithm
        One of :data:`ALGORITHMS`.

    Raises
    ------
    ValueError
        Unknown algorithm, a name that is used twice, a cost that is negative, a step that is not positive.

    Complexity: O(n * (n1 + ... + nk)) per group of longest period n, up to :data:`PLAN_WORK`; periods beyond that
    are rounded down (:func:`_coarsened`), as are all but :data:`NESTED_LEVELS` in the nested schedule.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {algorithm!r}: one of {', '.join(ALGORITHMS)}")
    fixed, groups = as_fraction(fixed, "fixed"), tuple(groups)
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
    """The cheapest schedule that the search finds, and the highest lower bound."""
    if not groups:
        return published["hybrid"], bound
    work = min(max(PLAN_WORK // len(groups), GROUP_WORK[0]), GROUP_WORK[1])
    published_cycles = [[candidate.cycles[place] for candidate in published.values()] for place in range(len(groups))]
    alone = fixed if len(groups) == 1 else Fraction(0)
    own = [_cheapest_cycle(group, alone, work, more) for group, more in zip(groups, published_cycles, strict=True)]
    bounds = [cost_bound for _, cost_bound in own if cost_bound is not None]
    if len(bounds) == len(groups):
        shortest = min(group.period for group in groups)
        bound = max(bound, sum(bounds, (fixed - alone) / shortest))
    candidates = [*published.values(), _costed(groups, [cycle for cycle, _ in own], fixed)]
    if fixed and len(groups) > 1:
        candidates.append(_costed(groups, [_cheapest_cycle(group, fixed, work)[0] for group in groups], fixed))
        candidates += [_costed(groups, cycles, fixed) for cycles in _nested(groups, fixed, work)]
        for grid in _grids(min(group.period for group in groups)):
            candidates.append(_costed(groups, [_on_grid(group, grid, work) for group in groups], fixed))
    return _cheapest(candidates), bound
