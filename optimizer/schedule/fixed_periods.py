"""Schedules in which each sub-group has a fixed period: those that the paper compares."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from optimizer.schedule.groups import COUNT_BUDGET, HYBRID_EXACT, HYBRID_STATES, Cycle, Group, SubGroup, periodic_cost
from optimizer.windows.edge_counting import edge_bounds


def levels(group: Group) -> tuple[int, ...]:
    """The sub-groups that no other dominates, by period: both periods and scans ascend strictly.

    One dominates another if it runs at least as often and scans at least as far.
    """
    order = sorted(range(len(group.subgroups)), key=lambda number: _by_period(group.subgroups[number]))
    dominant: list[int] = []
    for number in order:
        if not dominant or group.subgroups[number].scan > group.subgroups[dominant[-1]].scan:
            dominant.append(number)
    return tuple(dominant)


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
    low, high = periodic_cost(group, periods)
    rates = edge_bounds(Cycle.periodic(periods).progressions, budget=COUNT_BUDGET)
    if low != high or rates[0] != rates[1]:
        raise ValueError(f"the instants of {len(set(periods))} periods are too hard to count")
    return low + fixed * rates[0]


def hybrid_periods(group: Group, fixed: Fraction | int = 0) -> tuple[int, ...]:
    """The cheapest periods if every sub-group keeps its own or takes that of a shorter one (section 4.3).

    The paper compares set partitions (five for its three sub-groups). The sixth choice never pays: there the third
    sub-group takes the second one's own period while the second takes the first one's. Sub-groups are decided in
    the order of their scans, the longest first. What a sub-group then pays depends on the *set* of periods that are
    used before it, so only the cheapest way to each set is kept, 2^k at most. Beyond :data:`HYBRID_EXACT`
    sub-groups only the :data:`HYBRID_STATES` most promising sets are kept, and the result may not be the cheapest.
    """
    distinct = sorted({each.period for each in group.subgroups})
    limit = None if len(group.subgroups) <= HYBRID_EXACT else HYBRID_STATES
    return _chosen_periods(
        group, fixed, [[period for period in distinct if period <= each.period] for each in group.subgroups], limit
    )


def _chosen_periods(
    group: Group, fixed: Fraction | int, choices: Sequence[Sequence[int]], limit: int | None
) -> tuple[int, ...]:
    """The cheapest of the choices of every sub-group (see :func:`hybrid_periods`); a multiple of a used one is free."""
    subgroups = group.subgroups
    order = sorted(range(len(subgroups)), key=lambda number: (-subgroups[number].scan, subgroups[number].period))
    # the periods used -> (cost, what was chosen, in that order); costs in floats, the exact cost is taken at the end
    start: tuple[int, ...] = ()
    states: dict[tuple[int, ...], tuple[float, tuple[int, ...]]] = {start: (0.0, ())}
    missed: dict[tuple[int, ...], dict[int, int]] = {start: {1: 1}}
    for number in order:
        scan, post = float(subgroups[number].scan + fixed), float(subgroups[number].post)
        next_states: dict[tuple[int, ...], tuple[float, tuple[int, ...]]] = {}
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
                if after not in next_states or total < next_states[after][0] * (1 - 1e-12):
                    next_states[after] = total, (*chosen, period)
        if limit is not None and len(next_states) > limit:
            best = heapq.nsmallest(limit, next_states, key=lambda used: next_states[used][0])
            next_states = {used: next_states[used] for used in best}
        states = next_states
    _, chosen = min(states.values(), key=lambda state: state[0])
    by_number = dict(zip(order, chosen, strict=True))
    return tuple(by_number[number] for number in range(len(subgroups)))


def _without(missed: Mapping[int, int], period: int) -> dict[int, int]:
    """Inclusion-exclusion: of the instants that some periods miss (sum of coefficient/lcm) those not hit by another."""
    coefficients = dict(missed)
    for multiple, coefficient in missed.items():
        common = math.lcm(multiple, period)
        coefficients[common] = coefficients.get(common, 0) - coefficient
    return {multiple: coefficient for multiple, coefficient in coefficients.items() if coefficient}


def _missed_rate(missed: Mapping[int, int]) -> float:
    return math.fsum(coefficient / multiple for multiple, coefficient in missed.items())


def lower_bound(group: Group, fixed: Fraction | int = 0) -> Fraction:
    """Lower bound of any schedule's cost: level j runs at least every nj updates and adds cj - c(j-1) to the scan."""
    total, before = Fraction(0), -Fraction(fixed)
    for number in levels(group):
        each = group.subgroups[number]
        total, before = total + (each.scan - before) / each.period, each.scan
    return total + sum(each.post / each.period for each in group.subgroups)
