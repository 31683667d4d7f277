"""Event sequences in the sharing plan: trees, synopses, and which prefixes a run shares."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.language.parser import parse
from optimizer.plan import export, stored_rows
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import ExecutionTree, SharingPlan
from optimizer.plan.diff import diff
from optimizer.plan.explain import explain
from optimizer.sequences.prefixes import prefixes
from optimizer.synopses.synopsis import EventAttribute, Sequenced, synopses_of
from optimizer.workload import values
from optimizer.workload.values import DOUBLE, LONG, STRING, TIMESTAMP, Column, Source, Stream, Workload
from tests.sizes import examples

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


def planned(found: Workload, rate: int = 10) -> SharingPlan:
    return build_plan(found, {"reports": Fraction(rate)})


def shared(*texts: str) -> dict[str, list[str]]:
    """The shared prefixes of some queries, and the names of the queries that share each."""
    (tree,) = planned(workload(*texts)).trees
    return {",".join(types): list(names) for family in tree.sequences for types, names in family.shared}


TRAFFIC = [counts(seq) for seq in ("Oak, Main, State", "Oak, Main, West", "Park, Oak, Main", "Park, Oak, Main, West")]


def test_sequences_have_trees_of_their_own_and_share_by_filter_and_group_by() -> None:
    plan = planned(
        workload(
            *TRAFFIC,
            counts("Oak, Main", "WHERE speed > 30"),
            counts("Oak, West", "WHERE speed > 30", "WINDOW RANGE '25 minutes' SLIDE '1 minute' ON ts"),
            f"SELECT count(*) AS n FROM reports {WINDOW}",
            f"SELECT count(*) AS n FROM reports PATTERN SEQ(Oak, Main) ON street PARTITION BY zone {WINDOW}",
        )
    )
    names = [[query.name for query in tree.queries] for tree in plan.trees]
    assert sorted(names) == [["q0", "q1", "q2", "q3", "q4", "q5"], ["q6"], ["q7"]]
    families = [[list(family.patterns) for family in tree.sequences] for tree in plan.trees]
    assert sorted(families) == [[], [["q0", "q1", "q2", "q3"], ["q4", "q5"]], [["q7"]]]


def test_queries_of_one_window_share_the_prefixes_that_they_have_in_common() -> None:
    assert shared(*TRAFFIC) == {"Oak,Main": ["q0", "q1"], "Park,Oak,Main": ["q2", "q3"]}
    assert shared(counts("Oak, Main, State"), counts("Oak, Main, State, West"), counts("Oak, Main, Elm")) == {
        "Oak,Main": ["q0", "q1", "q2"],
        "Oak,Main,State": ["q0", "q1"],
    }
    # a suffix, a piece in the middle and a single type are no shared prefix
    assert (
        shared(counts("Oak, Main, State"), counts("Main, State"), counts("Oak, West"), counts("Elm, Main, Elm")) == {}
    )
    # neither are prefixes of other windows, filters and groups
    longer = WINDOW.replace("10", "20")
    other_texts = (
        counts("Oak, Main", window=longer),
        counts("Oak, Main", "WHERE speed > 3"),
        counts("Oak, Main", "GROUP BY zone"),
    )
    assert shared(counts("Oak, Main"), *other_texts[:2]) == {}
    assert shared(counts("Oak, Main", "GROUP BY zone"), other_texts[2]) == {"Oak,Main": ["q0", "q1"]}


def several(seq: str, windows: str) -> str:
    select = ", ".join(f"count(*) OVER {name} AS n_{name}" for name in "hd" if f"{name} AS" in windows)
    return (
        f"SELECT {select} FROM reports PATTERN SEQ({seq}) ON street PARTITION BY vehicle "
        f"WINDOW {windows} SLIDE '1 minute' ON ts"
    )


def test_a_query_over_several_windows_shares_in_each_of_them() -> None:
    both = several("Oak, Main, State", "h AS (RANGE '10 minutes'), d AS (RANGE '2 hours')")
    texts = (both, counts("Oak, Main, West"), several("Oak, Main", "d AS (RANGE '2 hours')"))
    (tree,) = planned(workload(*texts)).trees
    (sharing,) = tree.sequences
    # of ten minutes Oak, Main, State and West; of two hours Oak, Main and State
    assert (sharing.counted, sharing.unshared) == (4 + 3, 2 * 3 + 3 + 2)
    assert sharing.shared == ((("Oak", "Main"), ("q0", "q1")), (("Oak", "Main"), ("q0", "q2")))
    assert sharing.explain("q0")[0] == "q0 counts SEQ(Oak, Main, State) in each of its 2 windows"
    assert sharing.explain("q1")[0] == "q1 counts SEQ(Oak, Main, West)"
    # two queries over the same windows share a prefix once in words
    (twice,) = planned(workload(both, both.replace("State", "West"))).trees[0].sequences
    assert twice.shared == ((("Oak", "Main"), ("q0", "q1")),) and twice.counted == 2 * 4


def test_more_windows_store_no_other_events() -> None:
    texts = (counts("Oak, Main"), several("Oak, Main", "h AS (RANGE '10 minutes'), d AS (RANGE '2 hours')"))
    old, new = (planned(workload(text)) for text in texts)
    (before, _), *_ = old.synopses()
    (after, _), *_ = new.synopses()
    assert before.fingerprint == after.fingerprint
    assert diff(old, new).rebuilt == ()


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.sampled_from("ABC"), min_size=1, max_size=5).map(tuple), min_size=1, max_size=6))
def test_a_run_counts_as_many_prefixes_as_the_plan_says(patterns: list[tuple[str, ...]]) -> None:
    """The trie that a pass matches events with has a node for each."""
    (tree,) = planned(workload(*(counts(", ".join(types)) for types in patterns))).trees
    (sharing,) = tree.sequences
    nodes = prefixes([["ABC".index(kind) for kind in types] for types in patterns]).depth
    assert sharing.counted == np.count_nonzero(nodes)
    assert sharing.to_json()["prefixes"]["unshared"] == sum(map(len, patterns))


def test_the_plan_and_its_fingerprint_depend_on_no_rate_of_event_types() -> None:
    plan, other = (planned(workload(*TRAFFIC), rate) for rate in (1, 1000))
    assert plan.trees == other.trees and plan.fingerprint == other.fingerprint


def test_stored_rows_give_the_plan_back() -> None:
    plan = planned(workload(*TRAFFIC, counts("Oak, Main", "WHERE speed > 30"), counts("Elm, Oak", "GROUP BY zone")))
    rows = stored_rows.to_rows(plan)
    assert stored_rows.from_rows(rows) == plan
    assert [row["sequence_plan"] for row in rows] == [None] * 6


def test_the_plan_as_json_has_segments_and_shared_prefixes() -> None:
    (sequences_json,) = export.to_json(planned(workload(*TRAFFIC[:2], counts("Elm"))))["trees"][0]["sequences"]
    assert sequences_json == {
        "format_version": 1,
        "prefixes": {"counted": 5, "unshared": 7},
        "queries": [
            {
                "name": name,
                "segments": [
                    {"types": ["Oak", "Main"], "begin": 0, "end": 2, "shared": True},
                    {"types": [last], "begin": 2, "end": 3, "shared": False},
                ],
            }
            for name, last in (("q0", "State"), ("q1", "West"))
        ]
        + [{"name": "q2", "segments": [{"types": ["Elm"], "begin": 0, "end": 1, "shared": False}]}],
        "shared": [{"types": ["Oak", "Main"], "queries": ["q0", "q1"]}],
    }


def with_sequence_plan(plan: SharingPlan) -> list[dict[str, Any]]:
    """The rows of a plan as earlier versions stored them: with shared pieces of patterns, which the fingerprint has."""
    rows = stored_rows.to_rows(plan)
    spans = {"q0": [[0, 2]], "q1": [[0, 2]], "q2": [], "q3": [[1, 3]]}
    segments = {
        name: [{"types": [], "begin": begin, "end": end, "shared": True} for begin, end in query_spans]
        + [{"types": [], "begin": 3, "end": 4, "shared": False}]
        for name, query_spans in spans.items()
    }
    queries = [{"name": name, "cost": 1.0, "segments": query_segments} for name, query_segments in segments.items()]
    sequence_plan = json.dumps({"format_version": 1, "cost": 1.0, "queries": queries})
    trees = [
        [tree.stream, [[query.name, query.fingerprint] for query in tree.queries], [[*pair] for pair in spans.items()]]
        for tree in plan.trees
    ]
    streams = values.to_json(plan.workload.streams)
    former = values.digest([trees, streams, plan.workload.fingerprint, plan.algorithm, plan.model.name])
    return [
        row | {"fingerprint": former, "sequence_plan": sequence_plan if row["query"] == "q0" else None} for row in rows
    ]


def test_rows_with_a_sequence_plan_are_read_by_the_former_formula() -> None:
    plan = planned(workload(*TRAFFIC))
    rows = with_sequence_plan(plan)
    assert rows[0]["fingerprint"] != plan.fingerprint
    read = stored_rows.from_rows(rows)
    assert read == plan and read.fingerprint == plan.fingerprint


def test_rows_with_an_altered_sequence_plan_are_refused() -> None:
    rows = with_sequence_plan(planned(workload(*TRAFFIC)))
    for row in rows:
        row["sequence_plan"] = row["sequence_plan"] and row["sequence_plan"].replace('"end": 2', '"end": 3', 1)
    with pytest.raises(ValueError, match="incomplete or altered"):
        stored_rows.from_rows(rows)


def test_a_query_is_explained_with_the_prefixes_that_it_shares() -> None:
    plan = planned(workload(*TRAFFIC, counts("Oak, Main, State"), counts("Elm, Bay")))
    assert explain(plan, "q0").sequence == (
        "q0 counts SEQ(Oak, Main, State)",
        "  SEQ(Oak, Main): counted once, shared with q1, q4",
        "  SEQ(Oak, Main, State): counted once, shared with q4",
        "  a run shares suffixes instead where its events make that cheaper",
    )
    assert explain(plan, "q5").sequence == (
        "q5 counts SEQ(Elm, Bay)",
        "  no query of the same filter, group-by and window begins with the same two event types",
    )
    assert set(explain(plan, "q0").sequence) < set(explain(plan, "q0").lines())


def test_patterns_with_absent_events_share_prefixes_among_themselves() -> None:
    patterns = "Oak, NOT Elm, Main, State", "Oak, NOT Elm, Main, Bay", "Oak, Main, State", "Oak, NOT Bay, Main, State"
    plan = planned(workload(*map(counts, patterns)))
    assert explain(plan, "q0").sequence == (
        "q0 counts SEQ(Oak, NOT Elm, Main, State)",
        "  SEQ(Oak, NOT Elm, Main): counted once, shared with q1",
    )
    for name in ("q2", "q3"):
        assert len(explain(plan, name).sequence) == 2 and "no query" in explain(plan, name).sequence[1]
    (sharing,) = plan.trees[0].sequences
    assert sharing.counted == 3 + 1 + 3 + 3


def test_a_difference_names_the_prefixes_that_become_shared() -> None:
    few = workload(*TRAFFIC, counts("Main, State"))
    before, after = planned(few), planned(workload(*TRAFFIC, counts("Main, State"), counts("Main, State, Elm")))
    change = diff(before, after)
    (sequence_change,) = change.sequences
    assert (sequence_change.added, sequence_change.removed, sequence_change.changed, sequence_change.cut) == (
        ("q5",),
        (),
        (),
        ("q4",),
    )
    assert (sequence_change.shared, sequence_change.dissolved) == ((("Main", "State"),), ())
    assert "  sequences: + shared SEQ(Main, State)" in change.lines()
    back = diff(after, before)
    assert "  sequences: - shared SEQ(Main, State)" in back.lines() and back.sequences[0].removed == ("q5",)
    assert diff(before, before).is_empty and not any("sequences" in line for line in diff(before, before).lines())


def test_synopses_keep_events_whatever_the_windows_and_the_order_of_types() -> None:
    first, second, of_another, other, grouped = workload(
        f"SELECT sum(Oak.speed) AS s FROM reports PATTERN SEQ(Oak, Main) ON street PARTITION BY vehicle {WINDOW}",
        "SELECT sum(Oak.speed) AS s FROM reports PATTERN SEQ(Main, Oak) ON street PARTITION BY vehicle "
        "WINDOW RANGE '7 minutes' SLIDE '3 minutes' ON ts",
        f"SELECT max(Main.speed) AS s FROM reports PATTERN SEQ(Oak, Main) ON street PARTITION BY vehicle {WINDOW}",
        counts("Main, Oak, Main"),
        counts("Main, Oak", "GROUP BY zone"),
    ).queries
    ((synopsis, _),) = synopses_of(STREAM, [first]).items()
    ((other_synopsis, _),) = synopses_of(STREAM, [second]).items()
    assert synopsis.fingerprint == other_synopsis.fingerprint
    # an attribute is kept of events whose queries take it
    for different in (of_another, other):
        assert synopsis.fingerprint not in {candidate.fingerprint for candidate in synopses_of(STREAM, [different])}
    speed = EventAttribute(Column("speed"), DOUBLE, ("Oak",))
    assert synopsis.sequenced == Sequenced("street", ("Main", "Oak"), (speed,))
    ((both, _),) = synopses_of(STREAM, [first, of_another]).items()
    assert both.sequenced == Sequenced("street", ("Main", "Oak"), (speed._replace(carriers=("Main", "Oak")),))
    assert synopsis.bucket_by == ("vehicle",) and [name for name, _ in synopsis.group_by] == ["vehicle"]
    ((by_zone, _),) = synopses_of(STREAM, [grouped]).items()
    assert by_zone.bucket_by == ("zone",) and [name for name, _ in by_zone.group_by] == ["vehicle", "zone"]


def test_a_tree_holds_sequences_by_the_same_columns_or_none() -> None:
    queries = workload(counts("Oak, Main"), f"SELECT count(*) AS n FROM reports {WINDOW}").queries
    with pytest.raises(ValueError, match="event sequences"):
        ExecutionTree("reports-1", "reports", queries)
