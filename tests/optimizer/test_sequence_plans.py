"""Event sequences in the sharing plan: trees, synopses and sequence plans, and how those are stored and explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from optimizer.language.parser import parse
from optimizer.plan import export, stored_rows
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import ExecutionTree, SharingPlan
from optimizer.plan.diff import diff
from optimizer.plan.explain import explain
from optimizer.plan.sequence_plans import sequence_plans
from optimizer.synopses.sharing import Profile
from optimizer.synopses.synopsis import EventAttribute, Sequenced, synopses_of
from optimizer.workload.values import DOUBLE, LONG, STRING, TIMESTAMP, Column, Source, Stream, Workload

STREAM = Stream(
    "reports",
    Source("parquet", "/reports"),
    (("ts", TIMESTAMP), ("street", STRING), ("vehicle", LONG), ("zone", STRING), ("speed", DOUBLE)),
    "ts",
)
WINDOW = "WINDOW RANGE '10 minutes' SLIDE '1 minute' ON ts"


def workload(*texts: str) -> Workload:
    file = ";\n".join(f"-- name: q{number}\n{text}" for number, text in enumerate(texts))
    result = parse(file, {"reports": STREAM}, "w.sql")
    assert result.diagnostics == ()
    return Workload(result.queries, (STREAM,))


def counts(seq: str, rest: str = "", window: str = WINDOW) -> str:
    return f"SELECT count(*) AS n FROM reports PATTERN SEQ({seq}) ON street PARTITION BY vehicle {window} {rest}"


def planned(found: Workload, previous: SharingPlan | None = None, **options: Mapping[str, Profile]) -> SharingPlan:
    return build_plan(found, {"reports": Fraction(10)}, previous=previous, **options)  # type: ignore[arg-type]


TRAFFIC = [counts(seq) for seq in ("Oak, Main, State", "Oak, Main, West", "Park, Oak, Main", "Park, Oak, Main, West")]


def test_sequences_have_trees_of_their_own_and_a_plan_for_each_filter_and_group_by() -> None:
    found = planned(
        workload(
            *TRAFFIC,
            counts("Oak, Main", "WHERE speed > 30"),
            counts("Oak, West", "WHERE speed > 30", "WINDOW RANGE '25 minutes' SLIDE '1 minute' ON ts"),
            f"SELECT count(*) AS n FROM reports {WINDOW}",
            f"SELECT count(*) AS n FROM reports PATTERN SEQ(Oak, Main) ON street PARTITION BY zone {WINDOW}",
        )
    )
    names = [[query.name for query in tree.queries] for tree in found.trees]
    assert sorted(names) == [["q0", "q1", "q2", "q3", "q4", "q5"], ["q6"], ["q7"]]
    plans = [[[query.name for query in one.queries] for one in tree.sequences] for tree in found.trees]
    assert sorted(plans) == [[], [["q0", "q1", "q2", "q3"], ["q4", "q5"]], [["q7"]]]


def test_stored_rows_give_the_plan_back() -> None:
    found = planned(workload(*TRAFFIC, counts("Oak, Main", "WHERE speed > 30"), counts("Elm, Oak", "GROUP BY zone")))
    assert stored_rows.from_rows(stored_rows.to_rows(found)) == found
    assert export.to_json(found)["trees"][0]["sequences"][0]["proven"]


def test_a_query_is_explained_with_what_its_pattern_shares() -> None:
    lines = explain(planned(workload(*TRAFFIC)), "q3").lines()
    assert any("counts SEQ(Park, Oak, Main, West)" in line for line in lines)
    assert any("shared with" in line for line in lines)


def test_what_changes_in_sharing_is_told() -> None:
    before = planned(workload(*TRAFFIC, counts("State, Elm")))
    after = planned(
        workload(*TRAFFIC, counts("State, Elm"), counts("Main, State, Elm"), counts("Main, State, Elm, Bay"))
    )
    told = diff(before, after)
    (one,) = told.sequences
    assert one.added == ("q5", "q6") and one.shared
    assert any(line.startswith("  sequences: + shared SEQ(") for line in told.lines())
    assert diff(before, before).is_empty


def test_a_plan_is_kept_while_it_is_cheap_enough() -> None:
    first = planned(workload(*TRAFFIC))
    queries = first.workload.queries
    (plan,) = first.trees[0].sequences
    skewed = Profile(np.zeros(1, dtype=np.int64), {}, {}, 1.0, {"street": {"Oak": 0.1, "Main": 0.7, "West": 0.2}})
    rate = Fraction(1)
    (kept,) = sequence_plans(queries, rate, _of_vehicles(skewed), [plan], tolerance=1e9)
    assert kept.sharing == plan.sharing and kept.rates != plan.rates
    (fresh,) = sequence_plans(queries, rate, _of_vehicles(skewed), [plan], tolerance=0.0)
    assert fresh.cost <= kept.cost


def _of_vehicles(profile: Profile, keys: int = 1) -> Profile:
    return replace(profile, times=np.arange(keys), columns={"vehicle": np.arange(keys)})


def test_rates_are_those_of_the_sample_by_key() -> None:
    queries = workload(counts("Oak, Main"), counts("Main, Elm", window=WINDOW.replace("10", "20"))).queries
    profile = Profile(np.zeros(1, dtype=np.int64), {}, {}, 1.0, {"street": {"Oak": 0.5, "Main": 0.25}})
    (plan,) = sequence_plans(queries, Fraction(8), _of_vehicles(profile, keys=3))
    # 8 events a second for 20 minutes, over 3 vehicles
    assert dict(plan.rates) == {"Elm": 0.0, "Main": 800.0, "Oak": 1600.0}
    (plan,) = sequence_plans(queries, Fraction(8), None)
    assert dict(plan.rates) == dict.fromkeys(("Elm", "Main", "Oak"), 3200.0)


def test_synopses_keep_events_whatever_the_windows_and_the_order_of_types() -> None:
    first, second, of_another, other, grouped = workload(
        f"SELECT sum(Oak.speed) AS s FROM reports PATTERN SEQ(Oak, Main) ON street PARTITION BY vehicle {WINDOW}",
        "SELECT sum(Oak.speed) AS s FROM reports PATTERN SEQ(Main, Oak) ON street PARTITION BY vehicle "
        "WINDOW RANGE '7 minutes' SLIDE '3 minutes' ON ts",
        f"SELECT max(Main.speed) AS s FROM reports PATTERN SEQ(Oak, Main) ON street PARTITION BY vehicle {WINDOW}",
        counts("Main, Oak, Main"),
        counts("Main, Oak", "GROUP BY zone"),
    ).queries
    ((mine, _),) = synopses_of(STREAM, [first]).items()
    ((theirs, _),) = synopses_of(STREAM, [second]).items()
    assert mine.fingerprint == theirs.fingerprint
    # an attribute is kept of events whose queries take it
    for different in (of_another, other):
        assert mine.fingerprint not in {one.fingerprint for one in synopses_of(STREAM, [different])}
    speed = EventAttribute(Column("speed"), DOUBLE, ("Oak",))
    assert mine.sequenced == Sequenced("street", ("Main", "Oak"), (speed,))
    ((both, _),) = synopses_of(STREAM, [first, of_another]).items()
    assert both.sequenced == Sequenced("street", ("Main", "Oak"), (speed._replace(carriers=("Main", "Oak")),))
    assert mine.bucket_by == ("vehicle",) and [name for name, _ in mine.group_by] == ["vehicle"]
    ((by_zone, _),) = synopses_of(STREAM, [grouped]).items()
    assert by_zone.bucket_by == ("zone",) and [name for name, _ in by_zone.group_by] == ["vehicle", "zone"]


def test_a_tree_holds_sequences_by_the_same_columns_or_none() -> None:
    queries = workload(counts("Oak, Main"), f"SELECT count(*) AS n FROM reports {WINDOW}").queries
    with pytest.raises(ValueError, match="event sequences"):
        ExecutionTree("reports-1", "reports", queries)
