"""Values of the operations page: all is well, a run, a refresh, a text that attacks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from heddle.pages.refresh import Refresh
from optimizer.workload.instants import DAY
from spark_jobs.operations.values import (
    Operations,
    Refreshed,
    Run,
    Sampled,
    Saving,
    Version,
)

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


def run(number: int, **rest: Any) -> Run:
    begin = number * DAY
    base = Run(f"run-{number}", "published", NOW - timedelta(hours=30 - number), begin, begin + DAY, 1, 2, 100, 3, 5000)
    return replace(base, **{"measured": 10.0, "predicted": 12.0, "wall": 5.0, "passed": 14, "checks": 14} | rest)


WELL = Operations(
    NOW,
    2,
    3,
    (run(2), run(1)),
    (Refreshed("watch", 8 * DAY, 6 * DAY, DAY, 0, 0, 0),),
    (),
    (28, 0),
    (Sampled("run-1", NOW - timedelta(hours=29), 3, ()), Sampled("run-2", NOW - timedelta(hours=28), 3, ())),
    savings=(Saving("ops", 2, 15.0, 45.0), Saving("", 1, 5.0, 5.0)),
    intervals=2,
)
HOSTILE = "<script>alert('x')</script>\"'&amp;<!--]]>\u202e\x1b[31m<a href=javascript:alert(1)>"
VERSION = Version(1, NOW, "anna, manual__1", "because", "best", "paper", 2.0, 4.0, 3, 2)
OUTCOME: dict[str, Any] = {
    "version": 4,
    "changed": True,
    "plan": {"cost": 2.0, "cost_model": "paper", "baselines": {"no_share": 4.0, "weave_share": None}, "trees": [1, 2]},
    "diff": ["+ query a", "- query b", "  plan: cost 1 -> 2"],
    "diagnostics": [{"code": "HDL-401", "message": "no file", "hint": "look"}],
}
DRY = Refresh("manual__1", "success", NOW, "anna", {"dry_run": True, "reason": "more queries"}, OUTCOME)
