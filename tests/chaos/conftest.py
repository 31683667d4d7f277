"""What was played is counted, also over several processes, and told beside the goals at the end."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

GOALS = {
    "failpoints, in histories": 25 * 12,
    "failpoints, in live sessions": None,
    "two live sessions at once": None,
    "orderings of drivers": 1000,
    "commits of two drivers at once": 2 * 2000,
    "runs interrupted at a step": None,
    "processes killed at a write": None,
    "changes of the plan": 100,
    "generated workloads": 300,
    "generated workloads with late events": None,
    "histories of commands": 300,
    "safeguards taken out, and noticed": 20,
}
"""What is counted, and how much `make chaos` is to play of it at least."""

Counted = Callable[..., None]


@pytest.fixture
def counted(record_property: Callable[[str, object], None]) -> Counted:
    """Says how much of something was played, with what else there is to say of it in numbers."""

    def record_played(what: str, played: int = 1, **details: int) -> None:
        assert what in GOALS
        record_property("chaos", [what, played, {name.replace("_", " "): count for name, count in details.items()}])

    return record_played


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    played: Counter[str] = Counter()
    details: dict[str, Counter[str]] = {}
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "chaos":
                what, count, more = value
                played[what] += count
                details.setdefault(what, Counter()).update(more)
    if not played or "HEDDLE_CHAOS" not in os.environ:
        return
    failed = sum(
        "tests/chaos/" in report.nodeid
        for kind in ("failed", "error")
        for report in terminalreporter.stats.get(kind, ())
    )
    terminalreporter.section("chaos")
    for what, goal in GOALS.items():
        if what in played:
            more = "".join(f", {name} {count:,}" for name, count in sorted(details[what].items()))
            goal_text = f" (goal {goal:,})" if goal else ""
            terminalreporter.write_line(f"{played[what]:>7,} {what}{goal_text}{more}")
    terminalreporter.write_line(f"{failed:>7,} violations")
