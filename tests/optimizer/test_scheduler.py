"""Schedulers under load: the paper's sets of tasks and traces, guards, changes of the workload; and the simulation."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.papers.evaluations import golab
from optimizer.papers.evaluations.golab import simulate, workload
from optimizer.papers.reference.local_schedulers import MODES, LocalScheduler, Task
from optimizer.schedule.fixed_periods import no_sharing_cost
from optimizer.schedule.groups import Cycle, Group, SubGroup
from optimizer.schedule.planner import plan_schedule
from tests.sizes import examples

PAPER = Group("G1", (SubGroup(2, 9, ("Q1", "Q2", "Q3")), SubGroup(3, 14, ("Q4", "Q5")), SubGroup(5, 29, ("Q6", "Q7"))))
G11, G12, G13 = (Task("G1", name) for name in ("Q1", "Q4", "Q6"))


def trace(scheduler: LocalScheduler, updates: int) -> dict[int, list[str]]:
    """What is executed after each update, if there is time for all of it: the digits of the queries of each run."""
    executed_by_update: dict[int, list[str]] = defaultdict(list)
    for _ in range(updates):
        scheduler.update()
        while tasks := scheduler.choose():
            executed_by_update[scheduler.now].append("".join(sorted(name[1:] for name in scheduler.executed(tasks))))
            scheduler.done(tasks)
    return dict(executed_by_update)


def at(scheduler: LocalScheduler, now: int, d: dict[Task, int]) -> LocalScheduler:
    """After so many updates, with these values of d(T)."""
    scheduler.update(now)
    scheduler.d.update(d)
    return scheduler


# ------------------------------------------------------------------------------------- sections 4.1 to 4.4
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("no-sharing", [G11]),
        ("conservative", [G11]),
        ("hybrid", [G11]),
        ("late", [G11, G12]),
        ("late-pending", [G11, G12, G13]),
        ("free-riders", [G11, G12, G13]),
    ],
)
def test_which_tasks_run_together(mode: str, expected: list[Task]) -> None:
    """Case B6: late by two, late by one, pending."""
    scheduler = at(LocalScheduler([PAPER], mode), 9, {G11: -2, G12: -1, G13: 0})
    assert list(scheduler.choose()) == expected
    assert (list(scheduler.late), list(scheduler.pending)) == ([G11, G12], [G13])
    scheduler.done(expected)
    # even if late, the next execution is due a whole period after this one
    assert {task: scheduler.d[task] for task in expected} == {task: scheduler.period(task) for task in expected}


def test_figure_4() -> None:
    """As drawn: nothing runs before it is due."""

    def lazy(mode: str) -> dict[int, list[str]]:
        return trace(LocalScheduler([PAPER], mode, work_conserving=False), 10)

    assert lazy("aggressive") == {minute: ["1234567"] for minute in (2, 4, 6, 8, 10)}
    separate = {2: ["123"], 3: ["45"], 4: ["123"], 5: ["67"], 8: ["123"], 9: ["45"]}
    assert lazy("conservative") == separate | {6: ["12345"], 10: ["12367"]}
    assert lazy("no-sharing") == separate | {6: ["123", "45"], 10: ["123", "67"]}
    hybrid = {2: ["12345"], 4: ["12345"], 5: ["67"], 6: ["12345"], 8: ["12345"], 10: ["1234567"]}
    assert lazy("hybrid") == lazy("late") == lazy("late-pending") == hybrid


def test_figure_4_d() -> None:
    """Hybrid with late-pending sharing: the first two are late by one, the third is pending; all run together."""
    scheduler = LocalScheduler([PAPER], "late-pending", work_conserving=False)
    for _ in range(3):
        scheduler.update()
    assert [scheduler.d[task] for task in (G11, G12, G13)] == [-1, -1, 2]
    assert scheduler.choose() == (G11, G12)
    scheduler.update(5)
    assert [scheduler.d[task] for task in (G11, G12, G13)] == [-3, -3, 0]
    assert scheduler.choose() == (G11, G12, G13)
    plain = at(LocalScheduler([PAPER], "hybrid", work_conserving=False), 5, {})
    assert plain.choose() == (G11, G12)
    plain.done((G11, G12))
    assert plain.choose() == (G13,)


def test_free_riders_follow_the_cheapest_cycle() -> None:
    """While nothing is late: 52/5 a minute, level 2 at 2 and level 1 at 4 of five minutes."""
    scheduler = LocalScheduler([PAPER], "free-riders", work_conserving=False)
    assert trace(scheduler, 12) == {
        2: ["12345"],
        4: ["123"],
        5: ["1234567"],
        7: ["12345"],
        9: ["123"],
        10: ["1234567"],
        12: ["12345"],
    }


def test_free_riders_start_the_cycle_anew_when_all_have_run() -> None:
    scheduler = at(LocalScheduler([PAPER], "free-riders", work_conserving=False), 6, {})
    scheduler.done(scheduler.choose())
    assert list(trace(scheduler, 6)) == [8, 10, 11]


def test_riders_have_to_be_worth_their_own_costs() -> None:
    """Of period 10 and at a scan of 6, post costs of 3 are worth it once a third of the period has passed."""
    group = Group("g", (SubGroup(1, 9, ("scans",)), SubGroup(10, 6, ("rides",), 3), SubGroup(10, 10, ("beyond",))))
    for remaining_updates, rides in ((10, False), (7, False), (6, True), (1, True)):
        scheduler = LocalScheduler([group], "free-riders", work_conserving=False)
        at(scheduler, 1, {Task("g", "scans"): -1, Task("g", "rides"): remaining_updates, Task("g", "beyond"): 5})
        assert (Task("g", "rides") in scheduler.choose()) == rides
        assert Task("g", "beyond") not in scheduler.choose()


def test_free_riders_are_of_one_group() -> None:
    other = Group("G2", (SubGroup(5, 1, ("Q8",)),))
    scheduler = at(LocalScheduler([PAPER, other], "free-riders"), 6, {})
    assert set(scheduler.choose()) == {G11, G12, G13}


# ------------------------------------------------------------------------------------- idle time, order
def test_work_conserving_schedulers_run_tasks_before_they_are_due_but_never_twice_in_an_update() -> None:
    scheduler = LocalScheduler([PAPER], "conservative")
    assert trace(scheduler, 4) == {
        1: ["123", "45", "67"],
        2: ["123", "45", "67"],
        3: ["123", "45", "67"],
        4: ["123", "45", "67"],
    }
    with pytest.raises(ValueError, match="executed twice in update 4"):
        scheduler.done((G11,))
    scheduler.update()
    chosen = scheduler.choose()
    scheduler.done(chosen)
    before = dict(scheduler.d)
    with pytest.raises(ValueError, match="executed twice"):
        scheduler.done((G13, *chosen))
    assert scheduler.d == before
    assert LocalScheduler([PAPER], "conservative", work_conserving=False).choose() == ()


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "aggressive"])
def test_of_equally_urgent_tasks_the_highest_priority_comes_first(mode: str) -> None:
    groups = [Group(name, (SubGroup(3, 5, (name,), priority=priority),)) for name, priority in (("a", 1), ("b", 2))]
    scheduler = LocalScheduler(groups, mode, work_conserving=False)
    scheduler.update(3)
    assert scheduler.choose() == (Task("b", "b"),)
    scheduler.d[Task("a", "a")] = -1
    assert scheduler.choose() == (Task("a", "a"),)


def test_updates_go_forward() -> None:
    scheduler = LocalScheduler([PAPER], now=7)
    scheduler.update()
    scheduler.update(12)
    assert scheduler.now == 12 and scheduler.d[G13] == 0
    for number in (12, 3):
        with pytest.raises(ValueError, match=f"update {number} is not later than the last one, 12"):
            scheduler.update(number)
    assert scheduler.d[G13] == 0


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown mode 'lazy'"):
        LocalScheduler([PAPER], "lazy")
    with pytest.raises(ValueError, match="group G1 is there already"):
        LocalScheduler([PAPER, PAPER])
    scheduler = LocalScheduler([PAPER])
    with pytest.raises(ValueError, match=r"there already: \['Q1'\]"):
        scheduler.add("G2", SubGroup(2, 1, ("Q1",)))
    with pytest.raises(ValueError, match="no queries"):
        scheduler.add("G2", SubGroup(2, 1))
    with pytest.raises(ValueError, match="no query Q9"):
        scheduler.remove("Q9")
    with pytest.raises(ValueError, match="no such tasks"):
        scheduler.done([Task("G1", "Q2")])
    assert set(scheduler.d) == {G11, G12, G13}


# ------------------------------------------------------------------------------------- changes of the workload
@pytest.mark.parametrize("mode", MODES)
def test_queries_come_and_go(mode: str) -> None:
    scheduler = LocalScheduler([PAPER], mode, work_conserving=False)
    scheduler.update(4)
    scheduler.add("G1", SubGroup(4, 12, ("Q8",)))
    scheduler.add("G2", SubGroup(1, 2, ("R1",), until=6))
    if mode != "aggressive":
        assert scheduler.d[Task("G1", "Q8")] > 0 and scheduler.d[G12] <= -1
    scheduler.remove("Q1")
    scheduler.remove("Q6")
    scheduler.remove("Q7")
    assert set(scheduler.queries) == {"Q2", "Q3", "Q4", "Q5", "Q8", "R1"}
    executed = {number for runs in trace(scheduler, 8).values() for run in runs for number in run}
    assert executed == set("234581")
    assert set(scheduler.queries) == {"Q2", "Q3", "Q4", "Q5", "Q8"} and not any(t.group == "G2" for t in scheduler.d)
    for query in list(scheduler.queries):
        scheduler.remove(query)
    assert scheduler.choose() == () and not scheduler.d


def test_a_task_keeps_its_state_when_its_name_leaves() -> None:
    scheduler = at(LocalScheduler([PAPER], "conservative"), 4, {})
    scheduler.done((G11,))
    scheduler.remove("Q1")
    assert scheduler.d == {Task("G1", "Q2"): 2, G12: -1, G13: 1}
    assert Task("G1", "Q2") not in scheduler.choose()


def test_lifetimes() -> None:
    """Executed at update 4 for the last time; its period had been shared by the others."""
    short = SubGroup(2, 9, ("Q1",), until=5)
    scheduler = LocalScheduler([Group("G1", (short, SubGroup(3, 14, ("Q4",))))], "hybrid", work_conserving=False)
    assert scheduler.period(Task("G1", "Q4")) == 2
    assert trace(scheduler, 10) == {2: ["14"], 4: ["14"], 7: ["4"], 10: ["4"]}
    assert scheduler.period(Task("G1", "Q4")) == 3


def test_a_period_that_is_shortened_makes_no_task_late() -> None:
    """Due in one update with a period of 3; with one of 2 it would have been due before."""
    scheduler = LocalScheduler([Group("G1", (SubGroup(9, 14, ("Q4",)),))], "hybrid", work_conserving=False)
    scheduler.update(5)
    scheduler.add("G1", SubGroup(2, 13, ("Q1",)))
    assert scheduler.period(G12) == 2 and scheduler.d[G12] == 0


# ------------------------------------------------------------------------------------- overload
workloads = st.lists(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 30), st.integers(0, 5)), min_size=1, max_size=4),
    min_size=1,
    max_size=3,
).map(
    lambda found: [
        Group(f"g{g}", tuple(SubGroup(p, scan, (f"g{g}q{n}",), post) for n, (p, scan, post) in enumerate(each)))
        for g, each in enumerate(found)
    ]
)


@settings(max_examples=examples(60), deadline=None)
@given(groups=workloads, mode=st.sampled_from(MODES), conserving=st.booleans(), slow=st.integers(1, 4))
def test_nothing_starves(groups: list[Group], mode: str, conserving: bool, slow: int) -> None:
    """However slow executions are (so many updates each), every query is executed again and again."""
    scheduler = LocalScheduler(groups, mode, work_conserving=conserving)
    counts: dict[str, int] = defaultdict(int)
    for _ in range(1, 400):
        tasks = scheduler.choose()
        if tasks:
            assert len({task.group for task in tasks}) == 1 and len(set(tasks)) == len(tasks)
            scheduler.done(tasks)
            for name in scheduler.executed(tasks):
                counts[name] += 1
        scheduler.update(scheduler.now + slow)
    assert set(counts) == set(scheduler.queries)
    longest = 9 * max(1, math.ceil(12 / slow)) + 12
    assert min(counts.values()) >= 400 // longest


@settings(max_examples=examples(60), deadline=None)
@given(groups=workloads, mode=st.sampled_from([mode for mode in MODES if mode != "aggressive"]), data=st.data())
def test_late_modes_execute_all_that_they_say(groups: list[Group], mode: str, data: st.DataObject) -> None:
    """Against the definitions of section 4.4, by sets."""
    scheduler = LocalScheduler(groups, mode)
    scheduler.update()
    scheduler.d.update({task: data.draw(st.integers(-3, 4)) for task in scheduler.d})
    d = dict(scheduler.d)
    chosen = set(scheduler.choose())
    lowest = min(d.values())
    (group,) = {task.group for task in chosen}
    group_tasks = {task for task in d if task.group == group}
    assert min(d[task] for task in chosen) == lowest or mode == "free-riders"
    allowed = {
        "no-sharing": None,
        "conservative": {lowest},
        "hybrid": {lowest},
        "late": set(range(-3, 0)) if lowest < 0 else {lowest},
        "late-pending": set(range(-3, 1)) if lowest < 0 else {lowest},
        "free-riders": None,
    }[mode]
    if allowed is not None:
        assert chosen == {task for task in group_tasks if d[task] in allowed}
    elif mode == "no-sharing":
        assert len(chosen) == 1
    elif lowest < 0:
        assert chosen >= {task for task in group_tasks if d[task] <= 0}


# ------------------------------------------------------------------------------------- the simulation
def test_a_workload_of_the_paper() -> None:
    groups = workload(30, 3, 2, seed=1)
    assert len(groups) == 8 and groups == workload(30, 3, 2, seed=1) != workload(30, 3, 2, seed=2)
    assert sum(len(each.queries) for group in groups for each in group.subgroups) == 240
    for group in groups:
        assert len({each.period for each in group.subgroups}) == len(group.subgroups)
        for each in group.subgroups:
            assert 60 <= each.scan <= 300 and 1 <= each.period <= each.scan / 6 and each.post == 2 * len(each.queries)


def test_without_overload_a_lazy_schedule_costs_what_it_says() -> None:
    """The processor is busy for the cost of the cheapest cycles, and nothing is late."""
    groups = [Group("g", (SubGroup(2, 900, ("a",)), SubGroup(3, 1400, ("b",)), SubGroup(5, 2900, ("c",))))]
    simulation = simulate(groups, "free-riders", 1000, work_conserving=False)
    assert simulation.latency == 0
    assert simulation.busy * 1_000_000 == pytest.approx(float(plan_schedule(1, groups).cost), rel=0.01)
    unshared = simulate(groups, "no-sharing", 1000, work_conserving=False)
    assert unshared.busy * 1_000_000 == pytest.approx(float(no_sharing_cost(groups[0])), rel=0.01)
    assert unshared.throughput == pytest.approx(1 / 2 + 1 / 3 + 1 / 5, rel=0.01) and unshared.met == pytest.approx(
        1, rel=0.01
    )


def test_latency_counts_what_is_asked_for() -> None:
    """One query every two updates, which takes three: late by one or two updates. What never runs again counts too."""
    groups = [Group("g", (SubGroup(2, 3_000_000, ("a",)),))]
    simulation = simulate(groups, "no-sharing", 301)
    assert simulation.throughput == pytest.approx(1 / 3, rel=0.02) and simulation.latency == pytest.approx(1, rel=0.02)
    never = simulate([Group("g", (SubGroup(2, 500_000_000, ("a",)),))], "no-sharing", 100)
    assert never.throughput == 0 and never.latency == 98 and never.met == 0


def test_an_execution_that_is_early_is_not_late() -> None:
    simulation = simulate([Group("g", (SubGroup(5, 10, ("a",)),))], "conservative", 50)
    assert simulation.throughput == pytest.approx(1, rel=0.05) and simulation.latency == 0
    assert simulation.met == pytest.approx(1, rel=0.05)


def test_local_schedulers_share_the_processor_alike() -> None:
    """A group whose executions are five times as dear gets as much time, not as many executions."""
    groups = [Group(name, (SubGroup(1, cost, (name,)),)) for name, cost in (("dear", 5_000_000), ("cheap", 1_000_000))]
    throughputs = [simulate([each], "no-sharing", 1000).throughput for each in groups]
    assert simulate(groups, "no-sharing", 1000).throughput == pytest.approx(sum(throughputs) / 2, rel=0.15)


def test_sharing_order_under_overload() -> None:
    """What the paper finds at the high rate, on one of its workloads: each technique above the one before."""
    interval = golab.interval_cost(1) * 2
    simulations = {
        mode: simulate(workload(30, interval, interval, seed=0), mode, 60)
        for mode in ("no-sharing", "conservative", "hybrid", "late-pending", "free-riders")
    }
    throughput = [each.throughput for each in simulations.values()]
    latency = [each.latency for each in simulations.values()]
    assert throughput == sorted(throughput) and latency == sorted(latency, reverse=True)
    assert simulations["late-pending"].throughput > 1.8 * simulations["hybrid"].throughput
    assert fmean(each.busy for each in simulations.values()) > 0.9


def test_the_cost_of_an_interval_is_calibrated() -> None:
    """Hybrid's own schedule of 240 queries takes the share of the processor that is said."""
    interval = golab.interval_cost(2)
    loads = [
        sum(
            Cycle.periodic(golab.hybrid_periods(group)).cost(group)
            for group in workload(30, interval, golab.POST_INTERVALS * interval, seed)
        )
        for seed in range(2)
    ]
    assert float(sum(loads, Fraction(0)) / 2 / golab.STEP) == pytest.approx(float(golab.HYBRID_LOAD), rel=0.001)


def test_figures_of_one_rate_are_of_the_same_simulations() -> None:
    rows = {figure: golab.EXPERIMENTS[int(figure) - 5].run("tiny").rows for figure in "5678"}
    assert rows["5"] is rows["6"] and rows["7"] is rows["8"] and rows["5"] != rows["7"]
    for low, high in zip(rows["5"], rows["7"], strict=True):
        # everything costs twice as much
        assert high["hs_load"] == pytest.approx(2 * low["hs_load"]) and high["hs_tasks"] == low["hs_tasks"]
        for row in (low, high):
            assert row["ours_load"] <= row["hs_load"] <= row["cs_load"] and row["hs_tasks"] <= row["cs_tasks"]
            assert all(row[f"{name}_latency"] >= 0 and 0 < row[f"{name}_met"] <= 1 for name in golab.TECHNIQUES)


def test_a_cost_of_every_execution_makes_hybrid_periods_shorter() -> None:
    group = Group("g", (SubGroup(2, 1, ("a",), 1), SubGroup(3, 2, ("b",), 1)))
    periods = {}
    for fixed in (0, 100):
        scheduler = LocalScheduler([group], "hybrid", fixed=fixed)
        periods[fixed] = [scheduler.period(Task("g", name)) for name in ("a", "b")]
    assert periods == {0: [2, 3], 100: [2, 2]}
