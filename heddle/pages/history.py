"""History of a warehouse's plans, with the changes of each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from heddle.pages.folding import Table, fold, fold_lines
from heddle.pages.operations import ROWS_SHOWN
from heddle.pages.render import render
from optimizer.plan.diff import PlanDiff
from spark_jobs.operations.values import Version


def page(
    versions: Sequence[Version], total: int, newest: int, shown: int | None, change: PlanDiff | None, now: datetime
) -> str:
    """The versions of the plan, newest first, and what changed from the one before ``shown`` to it.

    ``total``: how many there are, of which ``versions`` are the newest; ``newest``: the number of the one in force;
    ``change`` None: nothing is stored before ``shown``, or nothing is shown.
    """
    columns = [
        *(("version", 10), ("made (UTC), by", 20), ("because", 20), ("search", 12), ("queries", 8), ("trees", 7)),
        *(("cost/s", 8), ("No Share", 8), ("", 7)),
    ]
    table = Table("log texts history", columns, fold(versions, ROWS_SHOWN, total, "version"))
    return render(
        "history.html.j2",
        versions=table,
        total=total,
        newest=newest,
        shown=shown,
        costs=f"{change.cost[0]:.6g} before, {change.cost[1]:.6g} after" if change is not None else "",
        difference_lines=fold_lines(change.lines()) if change is not None else None,
        now=now,
    )
