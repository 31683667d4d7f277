"""Durations for which the fragments of long windows are kept below levels."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.plan.diff import diff
from optimizer.plan.explain import explain
from optimizer.plan.fine_partials import KeptFine, kept_fine
from optimizer.workload.instants import DAY
from optimizer.workload.values import LONG, STRING, TIMESTAMP, Source, Stream, Workload

STREAM = Stream("s", Source("csv", "s.csv"), (("t", TIMESTAMP), ("g", STRING), ("h", STRING), ("v", LONG)), "t")


def planned(keep_fine: int | None, *windows: tuple[str, str]) -> SharingPlan:
    """The plan of queries q0, q1, … by a group column, each over a window."""
    texts = [
        f"-- name: q{number}\nSELECT {group}, sum(v) AS v FROM s WINDOW {window} ON t GROUP BY {group}"
        for number, (group, window) in enumerate(windows)
    ]
    stream = replace(STREAM, keep_fine=keep_fine)
    parsed = parse(";\n".join(texts), {"s": stream})
    assert not parsed.errors
    return build_plan(Workload(parsed.queries, (stream,)), {"s": Fraction(1)})


YEARLY = ("g", "RANGE '365 days' SLIDE '1 day'")


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ((YEARLY,), KeptFine(10 * DAY)),
        ((YEARLY, ("g", "RANGE '9 days' SLIDE '1 day'")), KeptFine(10 * DAY)),
        ((YEARLY, ("g", "RANGE '30 days' SLIDE '1 day'")), KeptFine(30 * DAY, "q1")),
        # of another synopsis, none of whose windows is long
        ((YEARLY, ("h", "RANGE '30 days' SLIDE '1 day'")), KeptFine(10 * DAY)),
        ((("g", "RANGE '365 days' SLIDE '1 day' ENDING '20 days' AGO"),), KeptFine(20 * DAY, "q0")),
        ((("g", "RANGE '365 days' SLIDE '1 day' ENDING '70 days' AGO"),), KeptFine(10 * DAY)),
        ((("h", "RANGE '30 days' SLIDE '1 day'"),), KeptFine(10 * DAY)),
    ],
)
def test_fragments_are_kept_as_declared_or_as_windows_need_them(
    windows: tuple[tuple[str, str], ...], expected: KeptFine
) -> None:
    assert kept_fine(planned(10 * DAY, *windows), "s") == expected
    assert kept_fine(planned(None, *windows), "s") is None


def test_explain_says_what_is_dropped() -> None:
    plan = planned(10 * DAY, YEARLY, ("g", "RANGE '30 days' SLIDE '6 hours'"), ("h", "RANGE '1 day' SLIDE '1 day'"))
    yearly = explain(plan, "q0")
    raised = "after 30 days, raised for the windows of q1; days, months and years stay"
    assert yearly.fine == (f"`heddle maintain` drops its fragments {raised}",)
    assert yearly.fine[0] in yearly.lines() and yearly.to_json()["fine"] == yearly.fine
    assert "lifted again from the events" in explain(plan, "q1").fine[1]
    assert explain(plan, "q2").fine == () and "fine" not in explain(plan, "q2").to_json()
    assert explain(planned(None, YEARLY), "q0").fine == ()


def test_diff_names_levels_of_a_stream() -> None:
    assert "s (levels)" in diff(planned(None, YEARLY), planned(10 * DAY, YEARLY)).streams
