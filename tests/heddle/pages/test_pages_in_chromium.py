"""The pages in a real browser: on a laptop, and in Airflow's frame on one, nothing overflows or overlaps."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from heddle.pages import answers, history, operations, refresh, streams, trends
from heddle.pages import query as query_page
from heddle.pages.plan import page
from optimizer.errors.diagnostics import Diagnostic
from optimizer.plan.diff import diff
from optimizer.workload.instants import DAY
from spark_jobs.operations.series import (
    ComparedRun,
    PlanCost,
    Span,
    StreamDay,
    Streams,
    StreamView,
    TrendDay,
    Trends,
)
from spark_jobs.operations.values import (
    Check,
    Operations,
    Publication,
    Quarantined,
    Refreshed,
    Revised,
    Sampled,
    Saving,
    Stale,
)
from tests.heddle.pages.answers_values import listing, view
from tests.heddle.pages.operations_values import DRY, NOW, OUTCOME, VERSION, WELL, run
from tests.heddle.pages.plans import EXAMPLE_3, planned, query

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine (Debian: apt install chromium)"),
]

LONG = "a_query_of_a_name_as_long_as_nobody_should_choose_it_but_somebody_has_" * 2
WIDE = 987_654_321

# What does not fit: boxes beyond the window unless they scroll, and cells whose text runs into the next.
MEASURE = """
<script>
const beyond = [...document.querySelectorAll("main *")].filter(
  (one) => !one.closest(".wide, .menu, pre") &&
    one.getBoundingClientRect().right > document.documentElement.clientWidth + 1);
const cells = [...document.querySelectorAll("td, th, .tile, .card, h1, h2, summary, .chips")].filter(
  (one) => one.offsetParent && one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX == "visible");
const told = (one) => one.tagName + ": " + one.textContent.slice(0, 80);
document.body.dataset.measured = JSON.stringify({
  width: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  beyond: beyond.map(told).slice(0, 5), cells: cells.map(told).slice(0, 5),
  scrolls: [...document.querySelectorAll(".wide")].filter((one) => one.scrollWidth > one.clientWidth + 1).map(told),
  marked: document.querySelectorAll("main section").length,
});
</script></body>"""


def busy() -> Operations:
    """A warehouse after a bad night, with names and numbers as wide as they come."""
    wrong = (Diagnostic("HDL-530", f"the checks failed, nothing was published: {LONG}: 3", "look at the failed check"),)
    runs = [
        replace(
            run(number, run_id=f"scheduled__2013-07-{number:02}T00:00:00+00:00", docs="0123456789abcdef.html"),
            **{"answers": WIDE, "events": WIDE, "measured": 8.0 + number % 5, "predicted": 9.0 + number % 3},
            **{"live": True, "late": number % 2 == 0, "revision": 12, "plan_version": 1234},
        )
        for number in range(1, 31)
    ]
    runs[28] = replace(runs[28], status="failed", problems=wrong, passed=13)
    runs[27] = replace(runs[27], run_id=LONG, begin=3 * DAY // 7, end=11 * DAY // 3)
    publications = tuple(
        Publication(number, NOW, LONG, number, WIDE, WIDE, f"plan version {number} → {number + 1}; {LONG}")
        for number in (1, 2, 3)
    )
    return replace(
        WELL,
        runs=tuple(reversed(runs)),
        refreshed=tuple(
            Refreshed(f"{LONG}{number}", 8 * DAY + 1, 6 * DAY + 1, DAY // 7, number * DAY, number, number * DAY // 7)
            for number in range(12)
        ),
        failed_checks=(Check(LONG, NOW, 0, 7 * DAY, f"gx:{LONG}", LONG * 5),) * 3,
        sampled=tuple(Sampled(f"run-{n}", NOW - timedelta(hours=n), 3, ("x",) * (n == 7)) for n in range(60, 0, -1)),
        revised=(Revised(0, DAY // 3, publications),),
        quarantined=(Quarantined(LONG, "HDL-410", WIDE, 1234, NOW, LONG * 3),),
        savings=tuple(Saving(LONG if n == 3 else f"team{n}", 1234, WIDE / 3, 2.0 * WIDE) for n in range(12)),
        stale=(Stale(DAY // 7, DAY, 12, WIDE, WIDE, 1234, WIDE),),
    )


def pages() -> dict[str, str]:
    many = planned([*EXAMPLE_3, query(LONG, 86400, 3600, owner=LONG)])
    outcome: dict[str, Any] = OUTCOME | {"diff": [f"+ query {LONG}{n}" for n in range(90)]}
    version = replace(VERSION, by=LONG, because=LONG, queries=123456, trees=12345, cost=1.23456e7)
    return {
        "plan": page(many, {"version": "12", "because": LONG * 4}, in_menu=True),
        "operations": operations.page(busy()),
        "operations-well": operations.page(WELL),
        "history": history.page((version,) * 12, 12, 1, 1, diff(planned(EXAMPLE_3), many), NOW),
        "refresh": refresh.form((replace(DRY, run_id=LONG, by=LONG),) * 3, wrong=Diagnostic("HDL-552", LONG, LONG)),
        "dry-run": refresh.outcome(replace(DRY, outcome=outcome, run_id=LONG), 4),
        **of_answers(),
    }


def of_answers() -> dict[str, str]:
    """The pages of answers with names and numbers as wide as they come."""
    listed, shown = listing(), view()
    line = replace(shown.outputs[0].lines[0], label=LONG)
    rows = tuple(replace(listed_query, name=LONG, owner=LONG, stream=LONG) for listed_query in listed.queries)
    acq = replace(shown.query, name=LONG, owner=LONG, stream=LONG, text=LONG * 9)
    group = replace(shown.top[0], label=LONG, value=1e15 / 7)
    output = replace(shown.outputs[0], output=LONG, lines=(line,) * 6)
    wide = replace(shown, query=acq, top=(group,) * 7, outputs=(output,), file=LONG, warehouse=f"/{LONG}" * 3)
    stream = StreamView(
        LONG, WIDE, DAY // 7, (line.samples,), ((0, DAY // 7),) * 9, (StreamDay("2026-02-28", *(WIDE,) * 5),)
    )
    days = tuple(
        TrendDay(f"2026-02-{day:02}", 1440, 1440, WIDE, WIDE, WIDE / 7, 3.0 * WIDE, WIDE) for day in range(1, 29)
    )
    compared = ComparedRun("2026-02-02T00:00:00Z", 0, DAY // 7, WIDE, 5, WIDE / 7, 3.0 * WIDE)
    return {
        "answers": answers.page(replace(listed, queries=rows, owners=(LONG,))),
        "query": query_page.page(wide),
        "streams": streams.page(Streams(NOW, Span("month"), (stream,) * 2)),
        "trends": trends.page(Trends(NOW, Span("month"), days, (compared,), (PlanCost(1, "paper", WIDE, WIDE * 9.0),))),
    }


@pytest.fixture(scope="module")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs Chromium once; its standard output."""
    profile = tmp_path_factory.mktemp("chromium")

    def browsed(file: Path, width: int, *options: str) -> str:
        assert CHROMIUM is not None
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars")
        quiet = ("--disable-component-update", "--no-first-run", "--disable-sync", "--proxy-server=127.0.0.1:9")
        size = (f"--user-data-dir={profile}", f"--window-size={width},900", "--virtual-time-budget=2000")
        command = [CHROMIUM, *flags, *quiet, *size, *options, file.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    return browsed


@pytest.mark.parametrize("name", sorted(pages()))
def test_nothing_overflows(name: str, tmp_path: Path, browse: Callable[..., str]) -> None:
    file = tmp_path / f"{name}.html"
    file.write_text(pages()[name].replace("</body>", MEASURE))
    for width in (1280, 1040, 390):
        dumped = browse(file, width, "--dump-dom")
        measures = json.loads(unescape(re.search(r'data-measured="([^"]*)"', dumped)[1]))  # type: ignore[index]
        assert measures["marked"] >= 1
        assert (measures["width"], measures["beyond"], measures["cells"]) == (0, [], []), (width, measures)
        # tables and charts may scroll in a narrow frame, not on a laptop
        assert width < 1280 or not measures["scrolls"], measures


def test_a_screenshot_shows_the_page(tmp_path: Path, browse: Callable[..., str]) -> None:
    file, picture = tmp_path / "page.html", tmp_path / "page.png"
    file.write_text(operations.page(busy()))
    browse(file, 1280, f"--screenshot={picture}")
    assert picture.read_bytes().startswith(b"\x89PNG") and 20_000 < picture.stat().st_size < 400_000


def test_the_measure_sees_what_overflows(tmp_path: Path, browse: Callable[..., str]) -> None:
    file = tmp_path / "page.html"
    cell = '<table style="width:30px"><tr><td>too long</td></tr></table>'
    wide = f'<div style="width:3000px">x</div>{cell}'
    file.write_text(
        operations.page(WELL).replace('<main id="content">', f'<main id="content">{wide}').replace("</body>", MEASURE)
    )
    dumped = browse(file, 1280, "--dump-dom")
    measures = json.loads(unescape(re.search(r'data-measured="([^"]*)"', dumped)[1]))  # type: ignore[index]
    assert measures["width"] > 0 and measures["beyond"] and measures["cells"]
