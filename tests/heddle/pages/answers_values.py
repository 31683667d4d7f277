"""Values of the pages of answers: a list of queries and one of them, with texts that attack."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from optimizer.workload.instants import DAY
from optimizer.workload.values import (
    ACQ,
    LONG,
    SECOND,
    STRING,
    Output,
    Window,
)
from spark_jobs.operations.series import (
    Choice,
    FailedAnswer,
    Group,
    Happened,
    Line,
    ListedQuery,
    Listing,
    OutputLines,
    QueryCost,
    QueryRun,
    QueryView,
    Sample,
    Span,
    Sparkline,
)
from tests.heddle.pages.operations_values import NOW

HOSTILE = "</title><script>alert(1)</script>\u202e\x1b[31m"
HOUR = 3600 * SECOND
WINDOW = Window(2 * HOUR, HOUR)
SAMPLES = tuple(Sample(number * HOUR, float(number % 5), 1 + (number == 3)) for number in range(8))


def listing() -> Listing:
    query = ListedQuery("volume", "ops", "trades", "running", WINDOW, (0, 2 * HOUR, 3))
    line = Sparkline("n", 4, "sum", SAMPLES)
    rows = (
        replace(query, sparkline=line),
        replace(query, name="watch", late=90 * SECOND, errors=2, is_missing=True, sparkline=replace(line, groups=1)),
        replace(query, name=HOSTILE, owner=HOSTILE, stream=HOSTILE, text=HOSTILE, state="paused", newest=None),
    )
    states, owners, days = {"running": 119, "paused": 1}, ("", "ops", HOSTILE), ("2026-02-27", "2026-02-28")
    return Listing(NOW, Choice(), rows, 120, 3, states, owners, days, 1)


def view(**rest: Any) -> QueryView:
    outputs = (Output("n", "count", None, None, LONG),)
    acq = ACQ(
        "volume", "trades", WINDOW, outputs, group_by=(("symbol", STRING),), owner="ops", text=f"SELECT '{HOSTILE}'"
    )
    drawn = tuple(Line(f'["{name}"]', name, SAMPLES) for name in ("A", HOSTILE))
    run = QueryRun("run-1", "published", NOW, 0, HOUR, 1, 2, 0, 12.0, 0.6)
    cost = QueryCost(2, "trades-1", 14, ("a", HOSTILE), 0.05, 24, 240.0, 12.0, 61.5)
    defaults: dict[str, Any] = {
        **{
            "now": NOW,
            "query": acq,
            "state": "running",
            "since": 0,
            "file": "w.sql",
            "span": Span("week", DAY, 8 * DAY),
        },
        **{"outputs": (OutputLines("n", drawn),), "answers": 16, "earlier": 0, "groups": 9, "group": ""},
        "top": tuple(Group(line.key, line.label, 3.0) for line in drawn),
        **{"revised": 2, "failed": (FailedAnswer(HOUR, HOSTILE, "HDL-601"),), "failures": 1, "runs": (run,)},
        **{"cost": cost, "history": (Happened(HOUR, "registered", 2, HOSTILE),), "warehouse": "/the/house"},
        **{"newest": (0, 2 * HOUR, 1), "late": None},
    }
    return QueryView(**(defaults | rest))
