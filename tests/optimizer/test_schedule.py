"""Schedules against the paper's numbers, an exhaustive search over all schedules, and the bounds they promise."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.schedule import groups as groups_module
from optimizer.schedule import planner
from optimizer.schedule.definition import Schedule
from optimizer.schedule.fixed_periods import (
    fixed_periods_cost,
    hybrid_periods,
    levels,
    lower_bound,
    no_sharing_cost,
    own_periods,
)
from optimizer.schedule.groups import ALGORITHMS, Cycle, Group, SubGroup
from optimizer.schedule.planner import optimum, plan_schedule
from tests.sizes import examples

F = Fraction
MINUTE = 60_000_000


def group(*subgroups: Sequence[int], name: str = "g") -> Group:
    """(period, scan[, post]) of sub-groups with a query each."""
    return Group(
        name,
        tuple(
            SubGroup(period, scan, (f"{name}{number}",), *post)
            for number, (period, scan, *post) in enumerate(subgroups)
        ),
    )


# section 4.2: windows of 10, 5, 6 | 15, 12 | 20, 30 minutes, comparisons: w - 1
PAPER = Group(
    "G1",
    (
        SubGroup(2, 9, ("Q1", "Q2", "Q3")),
        SubGroup(3, 14, ("Q4", "Q5")),
        SubGroup(5, 29, ("Q6", "Q7")),
    ),
)
OTHER = group((5, 11), (7, 21), (8, 51))


def brute_force(groups: Sequence[Group], fixed: Fraction | int = 0) -> Fraction:
    """Minimum mean cycle over how many updates ago each sub-group ran, by Karp's algorithm."""
    flat = [(place, each) for place, group in enumerate(groups) for each in group.subgroups]
    states = list(itertools.product(*(range(1, each.period + 1) for _, each in flat)))
    number = {state: at for at, state in enumerate(states)}
    arcs = []
    for state in states:
        due = [age == each.period for age, (_, each) in zip(state, flat, strict=True)]
        for chosen in itertools.product(*([True] if must else [False, True] for must in due)):
            ran = [pair for pair, runs in zip(flat, chosen, strict=True) if runs]
            cost = sum((each.post for _, each in ran), F(fixed if ran else 0))
            for place in {place for place, _ in ran}:
                cost += max(each.scan for other, each in ran if other == place)
            after = tuple(1 if runs else age + 1 for age, runs in zip(state, chosen, strict=True))
            arcs.append((number[state], number[after], cost))
    scale = math.lcm(*(cost.denominator for _, _, cost in arcs))
    tails, heads = (np.array([arc[end] for arc in arcs]) for end in (0, 1))
    costs = np.array([int(cost * scale) for _, _, cost in arcs])
    far = np.iinfo(np.int64).max // 4
    walks = [np.zeros(len(states), dtype=np.int64)]
    for _ in states:
        step = np.full(len(states), far)
        np.minimum.at(step, heads, walks[-1][tails] + costs)
        walks.append(step)
    last, steps = walks[-1], len(states)
    return min(
        max(F(int(last[at] - walks[k][at]), (steps - k) * scale) for k in range(steps) if walks[k][at] < far)
        for at in range(steps)
        if last[at] < far
    )


def replayed_cost(schedule: Schedule) -> Fraction:
    """Cost per update of a schedule from what runs in its common period."""
    period = math.lcm(*(cycle.length for cycle in schedule.cycles))
    total = F(0)
    pairs = list(zip(schedule.groups, schedule.cycles, strict=True))
    for update in range(period):
        ran = [[group.subgroups[n] for n in cycle.at(update)] for group, cycle in pairs]
        total += schedule.fixed * any(ran)
        total += sum((max(each.scan for each in some) + sum(each.post for each in some) for some in ran if some), F(0))
    return total / period


# ------------------------------------------------------------------------------------- the paper's numbers
def test_the_seven_queries() -> None:
    """Section 4.3, and case B1: 11.63 is printed for conservative."""
    assert no_sharing_cost(PAPER) == F(9, 2) + F(14, 3) + F(29, 5)
    assert fixed_periods_cost(PAPER, own_periods(PAPER)) == F(179, 15)
    choices = {(2, 2, 5): F(57, 5), (2, 2, 2): F(29, 2), (2, 3, 3): F(38, 3), (2, 3, 2): F(101, 6)}
    assert {periods: fixed_periods_cost(PAPER, periods) for periods in choices} == choices
    assert hybrid_periods(PAPER) == (2, 2, 5)
    assert fixed_periods_cost(PAPER, (2, 2, 4)) == F(43, 4)
    assert lower_bound(PAPER) == F(55, 6)
    schedule = plan_schedule(MINUTE, [PAPER])
    assert (schedule.cost, schedule.bound, schedule.proven) == (F(52, 5), F(52, 5), True)
    (cycle,) = schedule.cycles
    assert cycle.length == 5 and cycle.runs in (
        ((0, (0, 1, 2)), (2, (0, 1)), (3, (0,))),
        ((0, (0, 1, 2)), (2, (0, 1)), (4, (0,))),
    )


def test_two_sub_groups_of_the_example() -> None:
    """46 per six minutes together where they coincide, 7 per minute if the second always runs with the first."""
    two = Group("G1", PAPER.subgroups[:2])
    assert fixed_periods_cost(two, own_periods(two)) == F(46, 6)
    assert hybrid_periods(two) == (2, 2) and fixed_periods_cost(two, (2, 2)) == 7


def test_best_periods_of_a_part_are_no_part_of_the_best() -> None:
    """Case B2."""
    assert fixed_periods_cost(OTHER, own_periods(OTHER)) == F(213, 20)
    assert levels(OTHER) == (0, 1, 2)
    assert fixed_periods_cost(OTHER, (4, 4, 8)) == F(9)
    assert hybrid_periods(OTHER) == (5, 7, 7) and fixed_periods_cost(OTHER, (5, 7, 7)) == F(321, 35)
    assert hybrid_periods(group((5, 11), (7, 21))) == (5, 5)
    schedule = plan_schedule(1, [OTHER])
    assert schedule.cost == F(62, 7) and schedule.cycles[0].length == 7 and schedule.proven


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms(algorithm: str) -> None:
    schedule = plan_schedule(MINUTE, [PAPER], algorithm=algorithm)
    expected = {
        "optimal": F(52, 5),
        "hybrid": F(57, 5),
        "conservative": F(179, 15),
        "aggressive": F(29, 2),
        "no-sharing": F(449, 30),
    }
    assert schedule.algorithm == algorithm and schedule.cost == expected[algorithm]
    assert {name: schedule.costs[name] for name in ALGORITHMS if name != "optimal"} == {
        name: expected[name] for name in ALGORITHMS if name != "optimal"
    }
    if algorithm != "no-sharing":
        assert replayed_cost(schedule) == schedule.cost


def test_figure_4_without_overload() -> None:
    """Aggressive: all seven every two minutes. Conservative and hybrid: each at its (shortened) period."""
    minutes = range(1, 11)

    def runs(algorithm: str) -> dict[int, str]:
        ticks = plan_schedule(MINUTE, [PAPER], algorithm=algorithm).ticks(0, 10 * MINUTE)
        return {instant // MINUTE: "".join(name[1:] for name in names) for instant, names in ticks}

    assert runs("aggressive") == {minute: "1234567" for minute in minutes if minute % 2 == 0}
    parts = ((2, "123"), (3, "45"), (5, "67"))
    together = {m: "".join(names for period, names in parts if m % period == 0) for m in minutes}
    assert runs("conservative") == {minute: names for minute, names in together.items() if names}
    assert runs("hybrid") == {2: "12345", 4: "12345", 5: "67", 6: "12345", 8: "12345", 10: "1234567"}


# ------------------------------------------------------------------------------------------------ the optimum
small_costs = st.integers(0, 12) | st.fractions(0, 12, max_denominator=4)
small_groups = st.lists(st.tuples(st.integers(1, 5), small_costs), min_size=1, max_size=4).filter(
    lambda found: math.prod(period for period, _ in found) <= 150
)


@settings(max_examples=examples(60), deadline=None)
@given(subgroups=small_groups, fixed=st.integers(0, 6))
def test_the_cycle_of_a_group_is_the_cheapest_of_all_schedules(subgroups: list, fixed: int) -> None:
    single_group = group(*subgroups)
    schedule = plan_schedule(1, [single_group], fixed)
    assert schedule.cost == brute_force([single_group], fixed) == schedule.bound == replayed_cost(schedule)
    cost, cycle = optimum(single_group, fixed)
    assert cost == schedule.cost and cycle.obeys(single_group)
    assert lower_bound(single_group, fixed) <= schedule.cost <= min(schedule.costs.values())


@settings(max_examples=examples(40), deadline=None)
@given(
    subgroups=st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=3
    ).filter(lambda found: math.prod(each[0] for each in found) <= 80),
    fixed=st.integers(0, 4),
)
def test_post_costs(subgroups: list, fixed: int) -> None:
    single_group = group(*subgroups)
    schedule = plan_schedule(1, [single_group], fixed)
    exact = brute_force([single_group], fixed)
    assert schedule.bound <= exact <= schedule.cost <= min(schedule.costs.values())
    assert schedule.proven <= (schedule.cost == exact)
    assert replayed_cost(schedule) == schedule.cost and schedule.cycles[0].obeys(single_group)


@settings(max_examples=examples(40), deadline=None)
@given(
    groups=st.lists(
        st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=2),
        min_size=2,
        max_size=3,
    ).filter(lambda found: math.prod(each[0] for one in found for each in one) <= 100),
    fixed=st.integers(0, 20),
)
def test_fixed_costs_of_several_groups(groups: list, fixed: int) -> None:
    """Never worse than what is published nor than every group by itself; between the bound and all schedules."""
    several = [group(*each, name=f"g{number}_") for number, each in enumerate(groups)]
    schedule = plan_schedule(1, several, fixed)
    exact = brute_force(several, fixed)
    assert schedule.bound <= exact <= schedule.cost <= min(schedule.costs.values())
    alone = [plan_schedule(1, [each]).cycles[0] for each in several]
    assert schedule.cost <= replayed_cost(Schedule(1, tuple(several), tuple(alone), F(fixed), "optimal", F(0)))
    assert replayed_cost(schedule) == schedule.cost
    assert schedule.proven <= (schedule.cost == exact)


def test_fixed_costs_make_groups_run_together() -> None:
    """By themselves every 4 and every 6 updates; if runs are dear, both every 4."""
    several = [group((4, 1), name="a"), group((6, 1), name="b")]
    apart, together = plan_schedule(1, several), plan_schedule(1, several, 100)
    assert apart.cost == F(1, 4) + F(1, 6) and apart.proven
    assert together.cost == F(102, 4)
    # runs at 4, 6, 8, 12 cost 4 runs a dozen
    assert together.cost < apart.cost + F(100 * 4, 12)


def test_instants_of_one_nested_schedule_are_chosen_for_each_group() -> None:
    """Common instants are worth it, but not at each of them is each group run as far as it could."""
    several = [group((2, 4), (5, 6), name="a"), group((3, 20), (6, 30), name="b")]
    schedule = plan_schedule(1, several, 7)
    assert schedule.cost == brute_force(several, 7)


def test_an_execution_that_no_bound_needs_is_left_out_where_it_costs() -> None:
    """The second is dominated and could always ride along, for its post costs; the third has none and does."""
    single_group = group((2, 10), (7, 3, 6), (7, 4))
    schedule = plan_schedule(1, [single_group])
    assert schedule.cost == 5 + F(6, 6) == brute_force([single_group])
    assert [numbers for _, numbers in schedule.cycles[0].runs] == [(0, 1, 2), (0, 2), (0, 2)]


def test_dominated_sub_groups_ride_along() -> None:
    single_group = group((3, 10), (3, 4), (5, 10), (9, 2), (4, 12))
    assert levels(single_group) == (0, 4)
    schedule = plan_schedule(1, [single_group])
    assert schedule.cost == plan_schedule(1, [group((3, 10), (4, 12))]).cost
    assert all(set(numbers) >= {0, 1, 2, 3} for _, numbers in schedule.cycles[0].runs)


@settings(max_examples=examples(60), deadline=None)
@given(subgroups=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 50)), min_size=1, max_size=5))
def test_hybrid_is_the_cheapest_of_all_combinations(subgroups: list) -> None:
    single_group = group(*subgroups)
    shorter = [
        [other.period for other in single_group.subgroups if other.period <= each.period]
        for each in single_group.subgroups
    ]
    costs = [fixed_periods_cost(single_group, periods) for periods in itertools.product(*map(set, shorter))]
    chosen = hybrid_periods(single_group)
    assert all(period in choices for period, choices in zip(chosen, shorter, strict=True))
    assert fixed_periods_cost(single_group, chosen) == min(costs)


@settings(max_examples=examples(60), deadline=None)
@given(
    subgroups=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=4),
    fixed=st.integers(0, 20),
)
def test_hybrid_with_post_and_fixed_costs(subgroups: list, fixed: int) -> None:
    single_group = group(*subgroups)
    shorter = [
        {other.period for other in single_group.subgroups if other.period <= each.period}
        for each in single_group.subgroups
    ]
    costs = [fixed_periods_cost(single_group, periods, fixed) for periods in itertools.product(*shorter)]
    assert fixed_periods_cost(single_group, hybrid_periods(single_group, fixed), fixed) == min(costs)


# ------------------------------------------------------------------------------------------------ limits
def test_bounds_far_apart() -> None:
    """Periods beyond the limits are rounded down: every bound is obeyed, and the schedule is not enormous."""
    several = [
        group((2, 5), (10_000, 50), name="a"),
        group((2, 5), (77, 9), (10_000_019, 50), name="b"),
        group((86_400, 3), (86_400 * 7, 5), (86_400 * 30, 50), name="c"),
        group((1009, 3), (50_021, 5), (10_000_019, 50), name="d"),
    ]
    for single_group in several:
        schedule = plan_schedule(1, [single_group])
        assert schedule.cycles[0].obeys(single_group)
        assert len(schedule.cycles[0].runs) <= groups_module.LONGEST_CYCLE
        assert lower_bound(single_group) <= schedule.cost <= min(schedule.costs.values())
    assert plan_schedule(1, [several[2]]).proven
    assert all(
        cycle.obeys(single_group)
        for single_group, cycle in zip(several, plan_schedule(1, several, 3).cycles, strict=True)
    )


def test_rounding_obeys_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "LONGEST_CYCLE", 60)
    monkeypatch.setattr(planner, "NESTED_LEVELS", 3)
    rng = np.random.default_rng(3)
    for _ in range(30):
        several = [
            group(*rng.integers((1, 0, 0), (500, 100, 2), (5, 3)).tolist(), name=f"g{number}_") for number in range(3)
        ]
        schedule = plan_schedule(1, several, int(rng.integers(0, 50)))
        assert schedule.bound <= schedule.cost <= min(schedule.costs.values())


def test_costs_that_do_not_fit_integers() -> None:
    """Fractions of measured seconds have denominators of 2^50 and more: the cycle is found by rounded costs."""
    exact = plan_schedule(1, [PAPER])
    tiny = F(1, 3**40)
    blurred = Group(
        "G1", tuple(SubGroup(e.period, e.scan + n * tiny, e.queries) for n, e in enumerate(PAPER.subgroups))
    )
    schedule = plan_schedule(1, [blurred])
    assert [offset for offset, _ in schedule.cycles[0].runs] == [offset for offset, _ in exact.cycles[0].runs]
    assert exact.cost < schedule.cost < exact.cost + 3 * tiny


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plan_schedule(1, [PAPER], algorithm="greedy"), "unknown algorithm 'greedy'"),
        (lambda: plan_schedule(0, [PAPER]), "step of 0"),
        (lambda: plan_schedule(1, [PAPER], -1), "fixed -1 is negative"),
        (lambda: plan_schedule(1, [PAPER, PAPER]), r"several groups: \['G1'\]"),
        (lambda: plan_schedule(1, [Group("a", PAPER.subgroups), PAPER]), "several queries: .'Q1', 'Q2'"),
        (lambda: SubGroup(0, 1), "at least 1"),
        (lambda: SubGroup(1, -1), "scan -1 is negative"),
        (lambda: Group("g", ()), "no sub-group"),
        (lambda: Cycle(5, ((5, (0,)),)), "not ascending within"),
        (lambda: Cycle(5), "either runs or periods"),
        (lambda: Schedule(1, (PAPER,), (Cycle(6, ((0, (0, 1, 2)),)),), F(0), "optimal", F(0)), "does not obey"),
        (lambda: Schedule(1, (PAPER,), (Cycle(2, ((0, (0, 1)),)),), F(0), "optimal", F(0)), "does not obey"),
    ],
)
def test_what_is_refused(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_no_groups() -> None:
    schedule = plan_schedule(1, [])
    assert (schedule.cost, schedule.ticks(0, 100), schedule.next_tick(0), schedule.overdue(5, {})) == (0, [], None, ())
    assert Schedule.from_json(json.loads(json.dumps(schedule.to_json()))) == schedule


# ------------------------------------------------------------------------------------------------ ticks
subgroup_tuples = st.tuples(st.integers(1, 12), st.integers(0, 30), st.sampled_from([0, 0, 3]))
many_groups = st.lists(st.lists(subgroup_tuples, min_size=1, max_size=4), min_size=1, max_size=3).map(
    lambda found: [group(*each, name=f"g{number}_") for number, each in enumerate(found)]
)
plans = st.sampled_from([name for name in ALGORITHMS if name != "no-sharing"])


def carried(ticks: list, refreshed: Mapping[str, int]) -> dict[str, int]:
    return dict(refreshed) | {name: instant for instant, names in ticks for name in names}


def periods_of(groups: Sequence[Group]) -> dict[str, int]:
    return {name: each.period for group in groups for each in group.subgroups for name in each.queries}


@settings(max_examples=examples(80), deadline=None)
@given(groups=many_groups, algorithm=plans, fixed=st.integers(0, 9), step=st.integers(1, 3), data=st.data())
def test_ticks_of_split_intervals(groups: list, algorithm: str, fixed: int, step: int, data: st.DataObject) -> None:
    schedule = plan_schedule(step, groups, fixed, algorithm)
    begin, middle, end = sorted(data.draw(st.lists(st.integers(-40, 80), min_size=3, max_size=3)))
    known = {
        name: begin - data.draw(st.integers(-3, 40)) for name in periods_of(groups) if data.draw(st.booleans(), name)
    }
    all_ticks = schedule.ticks(begin, end, known)
    first = schedule.ticks(begin, middle, known)
    assert first + schedule.ticks(middle, end, carried(first, known)) == all_ticks
    assert all(begin < instant <= end and instant % step == 0 and names for instant, names in all_ticks)
    assert [instant for instant, _ in all_ticks] == sorted({instant for instant, _ in all_ticks})
    coming = schedule.next_tick(begin, known)
    assert coming is not None and (all_ticks[0][0] == coming if all_ticks else coming > end)


@settings(max_examples=examples(55), deadline=None)
@given(groups=many_groups, before=plans, after=plans, fixed=st.integers(0, 9), change=st.integers(84, 170))
def test_a_change_of_plan_exceeds_no_bound(groups: list, before: str, after: str, fixed: int, change: int) -> None:
    """Costs change, so does the plan; queries executed by the old one are within their bounds under the new one."""
    step = 7
    old = plan_schedule(step, groups, fixed, before)
    dearer = [
        Group(group.name, tuple(SubGroup(e.period, e.scan * e.period, e.queries, e.post) for e in group.subgroups))
        for group in groups
    ]
    new = plan_schedule(step, dearer, 9 - fixed, after)
    ticks = old.ticks(0, change)
    last = carried(ticks, {})
    assert set(last) == set(periods_of(groups))
    for instant, names in new.ticks(change, change + 300, last):
        for name in names:
            assert instant - last[name] <= periods_of(groups)[name] * step
            last[name] = instant
    assert all(change + 300 - last[name] < (period + 1) * step for name, period in periods_of(groups).items())


def test_a_change_of_plan_executes_once_more_and_goes_on() -> None:
    """The cycle runs at multiples of 4; executed at 1 and within 3, a query runs at 4 at the latest, which it does.

    Executed at 2 with a bound of 5, the other one would have to wait until 8: it runs at 7, and what it covers rides.
    """
    groups = (Group("g", (SubGroup(4, 10, ("short",)), SubGroup(5, 20, ("long",)), SubGroup(9, 15, ("rides",)))),)
    schedule = Schedule(10, groups, (Cycle(4, ((0, (0, 1, 2)),)),), F(0), "optimal", F(5))
    assert schedule.ticks(20, 100, {"long": 20, "short": 10}) == [
        (40, ("short", "long", "rides")),
        (80, ("short", "long", "rides")),
    ]
    every = ("short", "long", "rides")
    assert schedule.ticks(40, 120, {"long": 20}) == [(70, every), (80, every), (120, every)]
    # a shorter scan covers only itself; microseconds within an update count for the update before
    assert schedule.ticks(49, 85, {"short": 39, "long": 40}) == [(70, ("short",)), (80, every)]
    # unknown, executed in the future, or too late already: the cycle
    assert schedule.ticks(40, 80, {}) == schedule.ticks(40, 80, {"long": 60}) == [(80, every)]
    assert schedule.ticks(70, 80, {"long": 20}) == [(80, every)]
    assert schedule.ticks(69, 70, {"long": 20}) == [(70, every)]


def test_riders_of_a_late_run_cost_little_more() -> None:
    for post, riders in ((0, ("dear", "long")), (2, ("dear", "long")), (3, ("long",))):
        groups = (Group("g", (SubGroup(4, 10, ("dear",), post), SubGroup(5, 20, ("long",)))),)
        schedule = Schedule(1, groups, (Cycle(4, ((0, (0, 1)),)),), F(0), "optimal", F(5))
        # in time, only what costs nothing rides along
        assert schedule.ticks(4, 7, {"long": 2}) == [(7, riders if post == 0 else ("long",))]
        assert schedule.overdue(7, {"long": 2, "dear": 4}) == riders
    # where a run is dear whatever it does, those of other groups ride, too
    groups = (Group("g", (SubGroup(5, 20, ("long",)),)), Group("h", (SubGroup(9, 7, ("other",), 3),)))
    for fixed, riders in ((80, ("long", "other")), (79, ("long",))):
        schedule = Schedule(1, groups, (Cycle(5, ((0, (0,)),)), Cycle(9, ((0, (0,)),))), F(fixed), "optimal", F(1))
        assert schedule.overdue(8, {"long": 2, "other": 7}) == riders


def test_lifetimes() -> None:
    groups = (Group("g", (SubGroup(2, 10, ("a",), until=5), SubGroup(3, 20, ("b",), until=8))),)
    schedule = plan_schedule(10, groups, algorithm="conservative")
    assert schedule.ticks(0, 1000) == [(20, ("a",)), (30, ("b",)), (40, ("a",)), (60, ("b",))]
    assert schedule.next_tick(40) == 60 and schedule.next_tick(60) is None
    assert schedule.ticks(50, 200, {"b": 50}) == [(60, ("b",))]
    assert schedule.ticks(60, 200, {"b": 60}) == []
    assert schedule.overdue(60, {"b": 20}) == ("b",) and schedule.overdue(90, {}) == ()
    # a bound that ends after the lifetime urges nobody
    ending = (Group("g", (SubGroup(5, 20, ("ends",), until=6), SubGroup(4, 10, ("stays",)))),)
    sparse = Schedule(1, ending, (Cycle(4, ((0, (0, 1)),)),), F(0), "optimal", F(0))
    assert sparse.ticks(4, 8, {"ends": 2, "stays": 4}) == [(8, ("stays",))]
    assert sparse.ticks(4, 8, {"ends": 1, "stays": 4}) == [(6, ("ends", "stays")), (8, ("stays",))]


def test_overdue() -> None:
    """Case B6 in a schedule: what is late, what is pending, and what its scan covers."""
    groups = (
        Group("G1", (SubGroup(2, 9, ("a",)), SubGroup(3, 14, ("b",)), SubGroup(5, 29, ("c",)))),
        Group("G2", (SubGroup(5, 7, ("x",)),)),
    )
    schedule = plan_schedule(1, groups, algorithm="conservative")
    fresh = {"a": 13, "b": 13, "c": 13, "x": 13}
    assert schedule.overdue(13, fresh) == ()
    # late by two, late by one, pending; x is not due before its next run at 15
    assert schedule.overdue(13, {"a": 9, "b": 9, "c": 8, "x": 12}) == ("a", "b", "c")
    # c alone is late, its scan covers the others
    assert schedule.overdue(13, {"a": 12, "b": 12, "c": 7, "x": 12}) == ("a", "b", "c")
    # a alone is: its scan covers nothing else, and b's run at 15 is early enough
    assert schedule.overdue(13, {"a": 10, "b": 12, "c": 12, "x": 12}) == ("a",)
    # b's bound ends at 14, before its next run: it cannot wait for that
    assert schedule.overdue(13, {"a": 12, "b": 11, "c": 12, "x": 12}) == ("a", "b")
    # the cycle runs x at 15 whether it is late or not; never executed counts as late
    assert schedule.overdue(15, {"a": 14, "b": 15, "c": 15, "x": 14}) == ("x",)
    assert schedule.overdue(13, {"a": 13, "b": 13, "c": 13}) == ("x",)


@settings(max_examples=examples(60), deadline=None)
@given(groups=many_groups, algorithm=plans, data=st.data())
def test_a_late_run_leaves_no_bound_broken(groups: list, algorithm: str, data: st.DataObject) -> None:
    schedule = plan_schedule(3, groups, 0, algorithm)
    end = data.draw(st.integers(0, 100))
    known = {name: end - data.draw(st.integers(0, 60)) for name in periods_of(groups) if data.draw(st.booleans(), name)}
    names = schedule.overdue(end, known)
    last = dict(known) | dict.fromkeys(names, end // 3 * 3)
    assert set(last) == set(periods_of(groups))
    for instant, executed in schedule.ticks(end, end + 100, last):
        for name in executed:
            assert instant // 3 - last[name] // 3 <= periods_of(groups)[name]
            last[name] = instant
    assert schedule.overdue(end, last) == ()


# ------------------------------------------------------------------------------------------------ values
@settings(max_examples=examples(40), deadline=None)
@given(groups=many_groups, algorithm=st.sampled_from(ALGORITHMS), fixed=st.fractions(0, 9))
def test_json(groups: list, algorithm: str, fixed: Fraction) -> None:
    schedule = plan_schedule(5, groups, fixed, algorithm)
    read = Schedule.from_json(json.loads(json.dumps(schedule.to_json())))
    assert read == schedule and hash(read) == hash(schedule)
    assert read.ticks(0, 300) == schedule.ticks(0, 300)


def test_json_keeps_everything_of_a_sub_group() -> None:
    single_group = Group("g", (SubGroup(3, F(1, 3), ("a", "b"), F(2, 7), priority=4, until=9),))
    schedule = plan_schedule(5, [single_group])
    assert Schedule.from_json(schedule.to_json()).groups == (single_group,)
    assert schedule != plan_schedule(6, [single_group])


@settings(max_examples=examples(60), deadline=None)
@given(groups=many_groups, algorithm=plans, update=st.integers(-50, 50))
def test_the_next_run_of_a_cycle(groups: list, algorithm: str, update: int) -> None:
    """``after`` and ``at`` tell the same, for the group and for each sub-group."""
    for group, cycle in zip(groups, plan_schedule(1, groups, 0, algorithm).cycles, strict=True):
        for number in (None, *range(len(group.subgroups))):
            coming = (at for at in itertools.count(update + 1) if cycle.at(at) and number in (None, *cycle.at(at)))
            assert cycle.after(update, number) == next(coming)


def test_periods_without_an_end() -> None:
    """Conservative periods with an astronomical common multiple are one value, not a list of runs."""
    primes = [1009, 1013, 1019, 1021, 1031, 1033]
    single_group = group(*((prime, 10 * number) for number, prime in enumerate(primes, 1)))
    schedule = plan_schedule(1, [single_group], algorithm="conservative")
    assert schedule.cycles[0].length == math.prod(primes) and not schedule.cycles[0].runs
    assert schedule.next_tick(1009 * 1013 * 1019 - 1) == 1009 * 1013 * 1019
    assert schedule.cycles[0].at(1009 * 1013 * 1019) == (0, 1, 2)
    assert own_periods(single_group) == tuple(primes)


# ------------------------------------------------------------------------------------------- boundaries
UNEVEN = Cycle(10, ((1, (0,)), (3, (0, 1)), (8, (0,))))
"""Sub-group 0 runs 2, 5 and 3 updates after its run before, sub-group 1 every 10."""


def test_the_longest_gap_may_be_between_runs_or_over_the_end_of_the_cycle() -> None:
    assert [UNEVEN.longest_gap(number) for number in (0, 1)] == [5, 10]
    assert Cycle(10, ((4, (0,)), (5, (0,)))).longest_gap(0) == 9
    assert [Cycle.periodic([2, 3]).longest_gap(number) for number in (0, 1)] == [2, 3]
    with pytest.raises(KeyError):
        UNEVEN.longest_gap(2)


@pytest.mark.parametrize(
    ("bounds", "obeys"), [((5, 10), True), ((4, 10), False), ((5, 9), False), ((5, 10, 10), False)]
)
def test_a_cycle_obeys_a_bound_that_its_longest_gap_reaches(bounds: Sequence[int], obeys: bool) -> None:
    assert UNEVEN.obeys(group(*((bound, 1) for bound in bounds))) is obeys


def test_a_periodic_cycle_obeys_bounds_of_as_many_groups() -> None:
    cycle = Cycle.periodic([2, 3])
    assert cycle.obeys(group((2, 1), (3, 1)))
    assert not cycle.obeys(group((2, 1), (2, 1)))
    assert not cycle.obeys(group((2, 1)))


@pytest.mark.parametrize(
    ("update", "runs", "after", "after_second"),
    [(0, (), 1, 3), (1, (0,), 3, 3), (3, (0, 1), 8, 13), (8, (0,), 11, 13), (10, (), 11, 13), (-2, (0,), 1, 3)],
)
def test_runs_of_a_cycle_at_and_after_an_update(
    update: int, runs: tuple[int, ...], after: int, after_second: int
) -> None:
    assert (UNEVEN.at(update), UNEVEN.after(update), UNEVEN.after(update, 1)) == (runs, after, after_second)


def test_periods_run_at_their_multiples() -> None:
    cycle = Cycle.periodic([2, 3])
    assert [cycle.at(update) for update in (0, 1, 2, 3, 6)] == [(0, 1), (), (0,), (1,), (0, 1)]
    assert [cycle.after(update) for update in (0, 1, 2, 3)] == [2, 2, 3, 4]
    assert [cycle.after(update, 1) for update in (2, 3)] == [3, 6]


@pytest.mark.parametrize(
    ("length", "runs", "periods"),
    [(3, (), ()), (3, ((0, (0,)),), (3,)), (3, (), (2,)), (0, (), (0,)), (3, ((3, (0,)),), ()), (3, ((-1, (0,)),), ())]
    + [(3, ((1, (0,)), (1, (1,))), ()), (3, ((2, (0,)), (1, (1,))), ())],
)
def test_cycles_that_cannot_be_are_refused(length: int, runs: tuple, periods: tuple[int, ...]) -> None:
    with pytest.raises(ValueError):
        Cycle(length, runs, periods)


def test_ticks_exclude_the_begin_and_include_the_end() -> None:
    schedule = Schedule(10, (group((5, 1), (10, 2)),), (UNEVEN,), F(0), "optimal", F(1))
    assert schedule.ticks(10, 80) == [(30, ("g0", "g1")), (80, ("g0",))]
    assert schedule.ticks(9, 30) == [(10, ("g0",)), (30, ("g0", "g1"))]
    assert schedule.ticks(30, 79) == [] and schedule.ticks(30, 80) == [(80, ("g0",))]
    assert [schedule.next_tick(after) for after in (29, 30, 79, 80)] == [30, 80, 80, 110]


@pytest.mark.parametrize(
    ("refreshed", "expected"),
    [
        # the cycle runs it at 80; its bound of 50 is over at 70, at 80 only just
        ({"g0": 20}, [(70, ("g0",)), (80, ("g0",))]),
        ({"g0": 30}, [(80, ("g0",))]),
        # over at begin: the cycle goes on
        ({"g0": -20}, [(80, ("g0",))]),
        ({"g0": -10}, [(40, ("g0",)), (80, ("g0",))]),
    ],
)
def test_a_query_runs_at_the_end_of_its_bound_if_its_cycle_would_be_late(
    refreshed: dict[str, int], expected: list[tuple[int, tuple[str, ...]]]
) -> None:
    schedule = Schedule(10, (group((5, 1), (10, 2)),), (UNEVEN,), F(0), "optimal", F(1))
    assert schedule.ticks(30, 80, refreshed) == expected


def test_a_late_run_takes_what_would_be_late_before_its_next_run() -> None:
    schedule = Schedule(10, (group((5, 5), (10, 1000)),), (UNEVEN,), F(0), "optimal", F(1))
    # the next run of g0 is at 80, of g1 at 130
    assert schedule.overdue(50, {"g0": 30, "g1": 30}) == ()
    assert schedule.overdue(50, {"g0": 29, "g1": 30}) == ("g0",)
    assert schedule.overdue(50, {"g0": 20, "g1": 30}) == ("g0",)
    assert schedule.overdue(50, {"g0": 50}) == ("g1",)
    assert schedule.overdue(30, {"g0": 29, "g1": 30}) == ("g0",)
    assert schedule.overdue(30, {"g0": 30, "g1": 30}) == ()
