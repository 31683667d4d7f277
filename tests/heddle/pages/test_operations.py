"""The operating view, the history and the refresh as pages: true figures, what is wrong first, no user's markup."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from heddle.pages import history, operations, refresh
from heddle.pages.folding import fold_lines
from heddle.pages.formats import ago
from heddle.pages.operations import problems
from heddle.pages.refresh import Refresh
from heddle.pages.render import ENVIRONMENT
from optimizer.errors.diagnostics import Diagnostic
from optimizer.workload.instants import DAY
from spark_jobs.operations.values import (
    Check,
    Operations,
    Publication,
    Quarantined,
    Radius,
    Refreshed,
    Revised,
    Sampled,
    Stale,
    Touched,
)
from tests.heddle.pages.markup import read
from tests.heddle.pages.operations_values import DRY, HOSTILE, NOW, OUTCOME, VERSION, WELL, run


def test_all_is_well() -> None:
    page = read(operations.page(WELL))
    assert problems(WELL) == []
    assert "All is well" in page.text and "0 of 6 sampled queries; goal 0" in page.text
    assert "1970-01-03 – 1970-01-04 run-2" in page.text and "1 d ago" in page.text
    # 20 measured of 50 unshared
    assert "20.0 CPU-s measured, about 50.0 unshared ( −60 %" in page.text
    assert re.search(r"ops 2 45.0 15.0 −67 %", page.text) and re.search(r"no owner 1 5.0 5.0 0 %", page.text)
    assert "Predicted is 1.20 times measured in the middle of 2 runs" in page.text


def test_what_is_wrong_comes_first_the_worst_before_the_rest() -> None:
    wrong = replace(
        WELL,
        runs=(
            run(4, status="no end", measured=None, predicted=None),
            run(3, status="failed", problems=(Diagnostic("HDL-530", "the checks failed", "look at them"),)),
            *WELL.runs,
        ),
        refreshed=(Refreshed("watch", 8 * DAY, 6 * DAY, DAY, 2 * DAY, 1, DAY),),
        sampled=(*WELL.sampled, Sampled("run-3", NOW, 2, ("volume",))),
        stale=(Stale(0, DAY, 1, 74, 2, 3, 40),),
    )
    assert [problem.anchor for problem in problems(wrong)] == ["consistency", "runs", "runs", "lateness", "revisions"]
    page = read(operations.page(wrong))
    text = page.text
    assert "5 problems" in text and text.index("HDL-530 the checks failed") < text.index("intervals published")
    assert "1970-01-01 – 1970-01-02 1 74 2 3 40" in text
    assert "→ look at them" in text and "watch by 1 d" in text and "last in run-3: volume" in text
    # a failure that was made good is none
    healed = replace(WELL, runs=(replace(run(3), at=NOW), replace(run(3, status="failed"), run_id="old"), *WELL.runs))
    assert problems(healed) == [] and "All is well" in read(operations.page(healed)).text


def test_a_run_without_an_end_is_a_problem_once_it_should_have_one() -> None:
    def running(minutes: int, wall: float) -> Operations:
        unended = run(3, status="no end", at=NOW - timedelta(minutes=minutes), measured=None, wall=None)
        return replace(WELL, runs=(unended, replace(WELL.runs[0], wall=wall)))

    assert problems(running(14, 5.0)) == [] == problems(running(29, 600.0))
    assert (
        [problem.anchor for problem in problems(running(16, 5.0))]
        == ["runs"]
        == [problem.anchor for problem in problems(running(31, 600.0))]
    )


def test_a_published_run_without_a_stream_is_a_problem() -> None:
    half = replace(WELL, runs=(run(3, problems=(Diagnostic("HDL-401", "no file", "check the path"),)), *WELL.runs))
    (problem,) = problems(half)
    assert "without some" in problem.title and problem.remedy == "check the path"


def test_what_is_known_of_a_run_stands_below_it() -> None:
    """Findings, queries with fewer answers or none, and where its Data Docs are."""
    detailed_run = run(
        3,
        live=True,
        late=True,
        warnings=(Diagnostic("HDL-440", "late events", "wait longer"),),
        fewer=(("volume", 1200, 7),),
        empty=tuple(f"q{number}" for number in range(14)),
        docs="0123456789abcdef.html",
        passed=0,
        checks=0,
    )
    html = operations.page(replace(WELL, runs=(detailed_run, *WELL.runs)))
    page = read(html)
    assert "published live, late 1" in page.text and "HDL-440 late events → wait longer" in page.text
    assert "fewer answers than before: volume (1,200 → 7)" in page.text
    assert "no answer in this interval: q0, q1," in page.text and "q11, … 2 more" in page.text
    assert '<a href="data-docs/0123456789abcdef.html">docs</a>' in html
    assert "1970-01-04 – 1970-01-05: 1 query with fewer answers than before" in page.text


def test_a_revision_says_what_readers_see() -> None:
    touched = (Touched("few", 1, 0, 0), Touched(HOSTILE, 1000, 200, 30))
    page = read(operations.radius(Radius(0, DAY, 2, (5000, 5170), touched)))
    assert "Of 5,000 answers 1,001 changed, 200 came and 30 went; 5,170 stand since." in page.text
    assert page.text.index("<script>alert") < page.text.index("few 1 0 0") and "2 queries of which" in page.text
    assert "Of 5 answers 0 changed" in read(operations.radius(Radius(0, DAY, 2, (5, 5), ()))).text


def test_checks_consistency_revisions_and_quarantine() -> None:
    publications = (
        Publication(1, NOW, "run-1", 1, 100, 5000, "first publication"),
        Publication(2, NOW, "repair/1", 2, 103, 5010, "plan version 1 → 2; +3 answers"),
    )
    text = read(
        operations.page(
            replace(
                WELL,
                failed_checks=(Check("run-1", NOW, 0, DAY, "gx:expect(x)", "query: 3"),),
                all_checks=(27, 1),
                sampled=(Sampled("run-1", NOW, 3, ("volume",)),),
                revised=(Revised(0, DAY, publications),),
                quarantined=(Quarantined("trades", "HDL-410", 1234, 2, NOW, "no time"),),
                stale=(),
                looked_at=2,
            )
        )
    ).text
    assert "1970-01-01 – 1970-01-02 run-1 2026-03-01 03:00:00 gx:expect(x) query: 3" in text
    assert "Of 3 queries in 1 run 1 differed" in text
    assert re.search(r"1970-01-01 – 1970-01-02 2 .* 2 103 5,010 plan version 1 → 2; \+3 answers 1 ", text)
    assert "trades HDL-410 1,234 2" in text and "newest 2 published intervals are of their sources" in text


def test_nothing_there() -> None:
    assert "Trigger the DAG refresh_sharing_plan" in read(operations.page(Operations(NOW))).text
    assert "DAG aggregate_windows makes them" in read(operations.page(Operations(NOW, 1))).text
    assert "No plan yet" in read(history.page((), 0, 0, None, None, NOW)).text


def difference(lines: list[str]) -> str:
    return str(ENVIRONMENT.get_template("parts.html.j2").module.difference(fold_lines(lines)))  # type: ignore[attr-defined]


def poisoned(value: Any) -> Any:
    """A value whose every text is hostile."""
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, tuple):
        return tuple(map(poisoned, value))
    if is_dataclass(value) and not isinstance(value, type):
        safe = {"status", "docs"}
        return replace(value, **{f.name: poisoned(getattr(value, f.name)) for f in fields(value) if f.name not in safe})
    return value


FULL = replace(
    WELL,
    runs=(run(3, status="failed", live=True, lateness=(("q", 3),), problems=(Diagnostic("c", "m", "h"),)), *WELL.runs),
    failed_checks=(Check("r", NOW, 0, DAY, "check", "detail"),),
    revised=(Revised(0, DAY, (Publication(1, NOW, "r", 1, 1, 1, "why"),)),),
    quarantined=(Quarantined("s", "c", 1, 1, NOW, "d"),),
    sampled=(Sampled("r", NOW, 3, ("name",)),),
    refreshed=(Refreshed("q", DAY, DAY, None, 1, 1, 1),),
    stale=(Stale(0, DAY, 1, 1, 1, 1, 1),),
)


def test_hostile_text_stays_text() -> None:
    conf = dict.fromkeys(refresh.FIRST, HOSTILE) | {"dry_run": True}
    outcome = OUTCOME | {"diff": [HOSTILE], "diagnostics": [{"code": HOSTILE, "message": HOSTILE, "hint": HOSTILE}]}
    dry = Refresh(HOSTILE, "success", NOW, HOSTILE, conf, outcome)
    wrong = Diagnostic(HOSTILE, HOSTILE, HOSTILE)
    for text in (
        operations.page(poisoned(FULL)),
        history.page((poisoned(VERSION),), 1, 1, 1, None, NOW),
        f"<main>{difference([HOSTILE] * 100)}</main>",
        refresh.form((dry,), conf, wrong, True),
        refresh.outcome(dry, 4, wrong),
        refresh.outcome(replace(dry, state="failed", problem=HOSTILE), 4),
        refresh.refused(wrong),
    ):
        assert "<script" not in text and "<!--" not in text and "\u202e" not in text and "\x1b" not in text
        assert "<script>alert" in read(text).text


def test_many_of_everything_is_bounded() -> None:
    lines = [f"+ query q{number}" for number in range(5000)]
    text = difference(lines)
    assert len(text) < 200_000 and "4,940 more lines" in text and "Left out: 2,940 lines." in text
    many = replace(WELL, runs=tuple(run(n, run_id="x" * 5000) for n in range(50)), sampled=WELL.sampled * 5000)
    assert len(operations.page(many)) < 400_000


# ------------------------------------------------------------------------------------------- refresh
def test_the_form_keeps_what_was_given() -> None:
    wrong = Diagnostic("HDL-552", "the tolerance is no number", "0.05")
    page = read(refresh.form((DRY,), {"algorithm": "shared", "tolerance": "x", "reason": "because"}, wrong))
    assert "HDL-552 the tolerance is no number" in page.text and "manual__1" in page.text
    text = refresh.form((), {"algorithm": "shared", "tolerance": "x"})
    assert '<option value="shared" selected>' in text and 'value="x"' in text
    assert "HDL-556" in refresh.form((), paused=True)


def test_a_dry_run_can_be_applied_to_the_plan_that_it_was_against() -> None:
    text = refresh.outcome(DRY, 4)
    assert 'name="run" value="manual__1"' in text and 'action="apply"' in text
    assert "+ query a" in text and "HDL-401 no file" in text and "more queries" in text
    for html, message in (
        (refresh.outcome(DRY, 5), "HDL-551 version 5 is in force now; this dry run was against version 4"),
        (refresh.outcome(replace(DRY, outcome=OUTCOME | {"changed": False}), 4), "Nothing would change"),
        (refresh.outcome(replace(DRY, conf={}), 4), "Version 4 was stored"),
        (refresh.outcome(replace(DRY, state="failed", problem="error HDL-113 none"), 4), "error HDL-113 none"),
        (refresh.outcome(replace(DRY, state="running"), 4), "asks again every 3 seconds"),
    ):
        assert message in read(html).text and 'action="apply"' not in html
    assert 'http-equiv="refresh"' in refresh.outcome(replace(DRY, state="queued"), 4)
    assert 'http-equiv="refresh"' not in text


def test_a_dry_run_that_removes_too_much_cannot_be_applied() -> None:
    """However many other findings there are: it says why, and how it can be asked for."""
    diagnostics = [
        *OUTCOME["diagnostics"] * 9,
        {"code": "HDL-526", "message": "8 of 9 would be removed", "hint": "the folder"},
    ]
    text = refresh.outcome(replace(DRY, outcome=OUTCOME | {"diagnostics": diagnostics}), 4)
    assert "HDL-526 8 of 9 would be removed" in text and "- query b" in text and 'action="apply"' not in text
    assert "make a dry run that allows removals" in text
    assert 'name="allow_removals" value="yes">' in refresh.form(())
    assert 'name="allow_removals" value="yes" checked>' in refresh.form((), {"allow_removals": "yes"})
    allowed = replace(DRY, conf=DRY.conf | {"allow_removals": True})
    assert "however many" in refresh.outcome(allowed, 4)


# ------------------------------------------------------------------------------------------- texts
@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0 s ago"), (59, "59 s ago"), (3600, "1 h ago"), (90_000, "1 d ago")]
)
def test_how_long_ago(seconds: int, text: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == text
