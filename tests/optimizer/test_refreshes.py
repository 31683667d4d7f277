"""Schedules in plans: what they are made from, what they keep, how they are told."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heddle.pages.plan import page
from optimizer.language.parser import parse
from optimizer.plan import instants_due, pinning, rhythms
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.plan.diff import diff
from optimizer.plan.explain import explain
from optimizer.plan.export import to_json
from optimizer.plan.stored_rows import from_rows, to_rows
from optimizer.schedule.groups import Cycle
from optimizer.workload.instants import DAY
from optimizer.workload.values import LONG, SECOND, STRING, TIMESTAMP, Source, Stream, Window, Workload
from tests.sizes import examples

MINUTE = 60 * SECOND
SCHEMA = (("ts", TIMESTAMP), ("kind", STRING), ("amount", LONG))


def stream(name: str, step: int = MINUTE) -> Stream:
    return Stream(name, Source("csv", f"{name}.csv"), SCHEMA, "ts", 0, step)


def text(bounds: Mapping[str, tuple[int, int]], source: str = "events", group: str = "") -> str:
    """Queries over windows of (range, bound) minutes."""
    return "".join(
        f"-- name: {name}\nSELECT count(*) AS n FROM {source} "
        f"WINDOW RANGE '{range_} minutes' SLIDE AT MOST '{bound} minutes' ON ts {group};\n"
        for name, (range_, bound) in bounds.items()
    )


def planned(
    written: str,
    rate: Fraction | int = 1,
    previous: SharingPlan | None = None,
    tolerance: float = 0.05,
    steps: Mapping[str, int] | None = None,
) -> SharingPlan:
    streams = {name: stream(name, (steps or {}).get(name, MINUTE)) for name in ("events", "others")}
    parsed = parse(written, streams)
    assert not parsed.errors, parsed.errors
    workload = Workload(parsed.queries, tuple(streams.values()))
    return build_plan(workload, dict.fromkeys(streams, Fraction(rate)), previous=previous, tolerance=tolerance)


SEVEN = {"q1": (10, 2), "q2": (5, 2), "q3": (6, 2), "q4": (15, 3), "q5": (12, 3), "q6": (20, 5), "q7": (30, 5)}
"""Golab et al., section 4.2."""

EXACT = "-- name: exact\nSELECT count(*) AS n FROM events WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts;\n"


def test_queries_of_one_synopsis_are_a_group_and_those_of_one_bound_a_sub_group() -> None:
    plan = planned(text(SEVEN) + text({"k": (10, 4)}, group="GROUP BY kind") + text({"o": (10, 9)}, "others"))
    (schedule,) = plan.schedules
    assert schedule.step == MINUTE and schedule.fixed > 0
    described_groups = [[(each.period, each.queries) for each in group.subgroups] for group in schedule.groups]
    assert [(2, ("q1", "q2", "q3")), (3, ("q4", "q5")), (5, ("q6", "q7"))] in described_groups
    assert [(4, ("k",))] in described_groups and [(9, ("o",))] in described_groups and len(described_groups) == 3
    # longer windows scan further, more queries answer more
    seven = next(group for group in schedule.groups if len(group.subgroups) == 3)
    assert [each.scan / seven.subgroups[0].scan for each in seven.subgroups] == [1, Fraction(3, 2), 3]
    assert seven.subgroups[0].post > seven.subgroups[1].post > 0


def test_streams_of_different_steps_have_schedules_of_their_own() -> None:
    plan = planned(text({"a": (10, 5)}) + text({"b": (60, 120)}, "others"), steps={"others": 60 * MINUTE})
    assert [schedule.step for schedule in plan.schedules] == [MINUTE, 60 * MINUTE]
    ticks = instants_due.ticks(plan.schedules, 0, 4 * 60 * MINUTE)
    assert [at for at, names in ticks if "b" in names] == [2 * 60 * MINUTE, 4 * 60 * MINUTE]
    assert all(at % (5 * MINUTE) == 0 for at, names in ticks if "a" in names)
    assert planned(EXACT).schedules == ()


def test_a_schedule_is_stored_with_its_plan() -> None:
    plan = planned(text(SEVEN))
    again = from_rows(to_rows(plan))
    assert again.schedules == plan.schedules and again.fingerprint == plan.fingerprint
    schedules_json = to_json(plan)["schedules"]
    assert [schedule_json["step"] for schedule_json in schedules_json] == [60] and len(
        schedules_json[0]["queries"]
    ) == 7
    assert (
        schedules_json[0]["cost"]
        <= schedules_json[0]["baselines"]["hybrid"]
        <= schedules_json[0]["baselines"]["no-sharing"]
    )
    # a plan without refresh bounds is told, and hashed, as before there were any
    assert "schedules" not in to_json(planned(EXACT))
    # what is decided is part of the plan's identity, costs are not
    (schedule,) = plan.schedules
    dearer = replace(plan, schedules=(replace(schedule, cost=schedule.cost * 2),))
    rarer = Cycle.periodic([each.period for each in schedule.groups[0].subgroups])
    other = replace(plan, schedules=(replace(schedule, cycles=(rarer,)),))
    assert dearer.fingerprint == plan.fingerprint != other.fingerprint


def test_rates_that_wander_do_not_move_refreshes() -> None:
    # without a fixed cost to speak of the cheapest schedule depends on the scans
    first = planned(text(SEVEN), 1)
    wandered = planned(text(SEVEN), Fraction(11, 10), previous=first)
    assert wandered.schedules[0].cycles == first.schedules[0].cycles
    assert wandered.fingerprint == first.fingerprint
    scratch = planned(text(SEVEN | {"q8": (40, 4)}), 1, previous=first)
    assert scratch.fingerprint != first.fingerprint and len(list(rhythms.rhythms(scratch.schedules[0]))) == 8


def test_a_kept_schedule_is_within_the_tolerance() -> None:
    first = planned(text(SEVEN))
    (schedule,) = first.schedules
    always = tuple(Cycle(1, ((0, tuple(range(len(group.subgroups)))),)) for group in schedule.groups)
    costly = replace(first, schedules=(replace(schedule, cycles=always),))
    assert planned(text(SEVEN), previous=costly, tolerance=0.05).schedules[0].cycles == schedule.cycles
    for tolerance in (9.0, math.inf):
        kept_plan = planned(text(SEVEN), previous=costly, tolerance=tolerance)
        assert kept_plan.schedules[0].cycles == costly.schedules[0].cycles


def test_explain_says_when_why_and_what_it_saves() -> None:
    plan = planned(text(SEVEN))
    lines = explain(plan, "q4").lines()
    (line,) = [line for line in lines if line.startswith("refreshed every")]
    (rhythm,) = [rhythm for rhythm in rhythms.rhythms(plan.schedules[0]) if rhythm.query == "q4"]
    assert "3 minutes was asked as the most" in line and rhythm.longest <= 3 * MINUTE
    assert any("together with q1, q2, q3" in line for line in lines)
    assert any("sooner than asked" in line for line in lines) == (rhythm.longest < rhythm.bound)
    assert any("times less than a run for each" in line for line in lines)
    exact = planned(EXACT + text(SEVEN))
    assert explain(exact, "exact").refresh == ()


def test_diff_says_which_queries_get_another_rhythm() -> None:
    old, new = planned(text({"a": (10, 2), "b": (20, 5)})), planned(text({"a": (10, 3), "b": (20, 5)}))
    lines = diff(old, new).lines()
    assert any("refreshes: b every" in line for line in lines), lines
    assert diff(old, old).is_empty and diff(old, old).refreshes == ()


def test_the_page_shows_refreshes() -> None:
    shown = page(planned(text(SEVEN | {"odd": (7, 3)})))
    assert "Refreshes" in shown and "at most asked" in shown and "odd" in shown and "every at most" in shown
    assert "Refreshes" not in page(planned(EXACT))


bounds = st.dictionaries(
    st.sampled_from([f"q{number}" for number in range(8)]),
    st.tuples(st.integers(1, 40), st.integers(1, 12)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(40), deadline=None)
@given(bounds, st.integers(0, 500), st.lists(st.integers(1, 60), min_size=1, max_size=5), st.sampled_from([1, 10**6]))
def test_no_query_is_later_than_its_bound_in_light_load(
    asked: dict[str, tuple[int, int]], begin: int, lengths: list[int], rate: int
) -> None:
    """However time is cut into runs, each is refreshed within its bound, and the cuts change nothing."""
    plan = planned(text(asked), rate)
    start = begin * MINUTE
    cuts = list(itertools.accumulate(lengths, initial=begin))
    known: dict[str, int] = {}
    ticks: instants_due.Ticks = []
    for low, high in itertools.pairwise(cuts):
        for at, names in instants_due.ticks(plan.schedules, low * MINUTE, high * MINUTE, known):
            ticks.append((at, names))
            known |= dict.fromkeys(names, at)
    assert ticks == instants_due.ticks(plan.schedules, start, cuts[-1] * MINUTE)
    for name, (_, bound) in asked.items():
        times = [start, *(at for at, names in ticks if name in names), cuts[-1] * MINUTE]
        assert all(later - earlier <= bound * MINUTE for earlier, later in itertools.pairwise(times))


@settings(max_examples=examples(40), deadline=None)
@given(bounds, bounds, st.integers(0, 100), st.integers(1, 100))
def test_a_change_of_plan_keeps_the_bounds_of_what_stays(
    first: dict[str, tuple[int, int]], second: dict[str, tuple[int, int]], before: int, after: int
) -> None:
    old, new = planned(text(first)), planned(text(second))
    change = DAY + before * MINUTE
    last = {name: at for at, names in instants_due.ticks(old.schedules, DAY - 60 * MINUTE, change) for name in names}
    ticks = instants_due.ticks(new.schedules, change, change + after * MINUTE, last)
    for name, (_, bound) in second.items():
        if name in last and change - last[name] < bound * MINUTE:
            times = [last[name], *(at for at, names in ticks if name in names), change + after * MINUTE]
            assert all(later - earlier <= bound * MINUTE for earlier, later in itertools.pairwise(times))


@settings(max_examples=examples(40), deadline=None)
@given(bounds, st.integers(1, 200))
def test_a_late_run_leaves_nothing_beyond_its_bound(asked: dict[str, tuple[int, int]], missed: int) -> None:
    plan = planned(text(asked))
    begin, end = DAY, DAY + missed * MINUTE
    known = {name: at for at, names in instants_due.ticks(plan.schedules, DAY - 60 * MINUTE, begin) for name in names}
    ((at, names),) = instants_due.late(plan.schedules, begin, end, known) or [(end, ())]
    assert at == end
    for name, (_, bound) in asked.items():
        # what is not answered now comes in time by the schedule
        if name not in names:
            coming = next(later for later, due in instants_due.ticks(plan.schedules, end, end + DAY) if name in due)
            assert coming - known[name] <= bound * MINUTE


def test_pinned_plans_answer_at_these_instants_and_within_lifetimes() -> None:
    until = "-- until: 1970-01-01T01:00\n"
    exact = "-- name: e\nSELECT count(*) AS n FROM events WINDOW RANGE '20 minutes' SLIDE '20 minutes' ON ts;\n"
    plan = planned(until + text({"a": (10, 5)}) + until + exact)
    pinned = pinning.pinned(plan, [(50 * MINUTE, ("a",)), (65 * MINUTE, ("a",))], 30 * MINUTE, 90 * MINUTE)
    assert pinned.workload.query("a").window == Window(10 * MINUTE, MINUTE, at_most=5 * MINUTE, at=(50 * MINUTE,))
    assert pinned.workload.query("e").window.at == (40 * MINUTE, 60 * MINUTE)
    # what is computed does not depend on it: the same fragments, other answers
    assert pinned.workload.fingerprint != plan.workload.fingerprint
    assert [tree.fragments for tree in pinned.trees] == [tree.fragments for tree in plan.trees]
    exact_plan = planned(exact)
    assert pinning.pinned(exact_plan, [], 0, DAY) is exact_plan


def test_a_schedule_ends_with_the_last_lifetime() -> None:
    until = "-- until: 1970-01-01T01:00\n"
    (schedule,) = planned(until + text({"a": (10, 5)}) + until + text({"b": (20, 7)})).schedules
    assert {each.until for group in schedule.groups for each in group.subgroups} == {60}
    last = instants_due.newest([schedule], 60 * MINUTE)
    assert last is not None and 53 * MINUTE < last <= 60 * MINUTE
    assert instants_due.next_tick([schedule], 60 * MINUTE) is instants_due.newest([schedule], DAY) is None
    # one that goes on keeps its sub-group going
    (schedule,) = planned(until + text({"a": (10, 5)}) + text({"c": (10, 5)})).schedules
    assert instants_due.next_tick([schedule], DAY) == DAY + 5 * MINUTE


def test_bounds_must_be_multiples_of_the_slide() -> None:
    for at_most, per in ((MINUTE // 2, None), (MINUTE + 1, None), (MINUTE, ())):
        with pytest.raises(ValueError, match="refresh bound"):
            Window(MINUTE, MINUTE, per=per, at_most=at_most)


@settings(max_examples=examples(60), deadline=None)
@given(bounds, st.lists(st.integers(1, 300), min_size=1, max_size=12))
def test_overload_passes_and_loses_nothing(asked: dict[str, tuple[int, int]], durations: list[int]) -> None:
    """Live runs that take as long as they please, in tenths of a minute, then little: as
    :func:`spark_jobs.pipeline.planning.live_runs.due` drives them. None is dropped, and once load falls all keep their
    bounds."""
    schedules = planned(text(asked)).schedules
    clock = reached = DAY
    known: dict[str, int] = {}
    runs: list[tuple[int, tuple[str, ...]]] = []
    for duration in [*durations, *[1] * 40]:
        ticks = instants_due.ticks(schedules, reached, clock, known)
        if not ticks:
            coming = instants_due.next_tick(schedules, reached)
            assert coming is not None
            clock = coming
            ticks = instants_due.ticks(schedules, reached, clock, known)
        end = ticks[-1][0]
        answered = instants_due.late(schedules, reached, end, known) if len(ticks) > 1 else ticks
        for at, names in answered:
            runs.append((at, names))
            known |= dict.fromkeys(names, at)
        reached, clock = end, clock + duration * MINUTE // 10
    assert [at for at, _ in runs] == sorted({at for at, _ in runs})
    begin = runs[-40][0]
    for name, (_, bound) in asked.items():
        times = [at for at, names in runs if name in names]
        assert times
        later = [at for at in times if at >= begin]
        assert all(b - a <= bound * MINUTE for a, b in itertools.pairwise([begin, *later, reached]))
