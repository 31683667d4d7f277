"""A live session: each refresh is answered as it falls due, in one process and, where it takes one, one Spark session.

What is due follows from what is published and the plan in force alone (:func:`spark_jobs.planning.live_runs.due`), and
a commit is exclusive. So a session keeps nothing of its own: one that was killed is gone on with by the next, and two
at once publish each refresh once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import format_instant
from spark_jobs.planning.live_runs import DueRun, due, next_due
from spark_jobs.run.interval import run
from spark_jobs.run.values import Report
from spark_jobs.session.on_demand import OnDemand
from spark_jobs.warehouse.publish_log import RunRecord
from spark_jobs.warehouse.warehouse import Warehouse

LOOK = 5.0
"""Seconds after which a waiting session looks at the plan and at what is published again."""

RETRY = 2.0
"""Seconds before what failed is tried again; twice as many each time after it, to :data:`LONGEST_RETRY`."""

LONGEST_RETRY = 60.0


def _now() -> int:
    return time.time_ns() // 1000


@dataclass
class LiveSession:
    """One session over a warehouse.

    ``until``: at which clock it ends, once what is due by then was answered; None: when it is told to
    (:meth:`stop`). ``begin``: where the first run of a warehouse begins. ``clock`` says the time (microseconds);
    ``wait``, which is given seconds, returns when they are over or the session is told to end.
    """

    warehouse: Warehouse
    spark: OnDemand
    until: int | None = None
    begin: int | None = None
    checks: str | None = None
    report: Report = lambda line: None
    clock: Callable[[], int] = _now
    wait: Callable[[float], object] | None = None

    def __post_init__(self) -> None:
        self._stopped = Event()
        self._failures = 0
        self._pause = self._stopped.wait if self.wait is None else self.wait

    def stop(self) -> None:
        """End once the refresh that is being answered is; from another thread or the handler of a signal."""
        self._stopped.set()

    def refreshes(self) -> Iterator[RunRecord | HeddleError]:
        """Answer what is due, as it falls due: the record of each refresh, or why it was not answered.

        What fails is tried again, later each time, and everything that has fallen due since with it.
        """
        while not self._stopped.is_set():
            clock = self.clock()
            if self.until is not None:
                clock = min(clock, self.until)
            found = due(self.warehouse, clock, self.begin)
            if found is None:
                if self.until is not None and clock >= self.until:
                    return
                self._idle(clock)
                continue
            try:
                record = self._answered(found, clock)
            except HeddleError as error:
                self._failures += 1
                yield error
                if self.until is not None and clock >= self.until:
                    return
                self._pause(min(RETRY * 2 ** (self._failures - 1), LONGEST_RETRY))
                continue
            self._failures = 0
            yield record

    def _answered(self, refresh: DueRun, clock: int) -> RunRecord:
        run_id = f"live/{format_instant(refresh.begin)}/{format_instant(refresh.end)}"
        return run(
            self.spark,
            self.warehouse,
            refresh.plan_version,
            refresh.begin,
            refresh.end,
            run_id,
            as_of=clock,
            live=True,
            late=refresh.late,
            checks=self.checks,
            report=self.report,
        )

    def _idle(self, clock: int) -> None:
        """Wait for the next refresh, but not long: the plan may change meanwhile, or another session be first."""
        at = next_due(self.warehouse, clock)
        until = min((one for one in (at, self.until) if one is not None), default=None)
        seconds = LOOK if until is None else max(until - clock, 0) / 1e6
        self.report("waiting" if until is None else f"waiting for {format_instant(until)}")
        self._pause(min(seconds, LOOK))
