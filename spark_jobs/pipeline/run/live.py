"""A live session: it answers each refresh when it falls due, in one process and, where it needs one, one Spark
session.

The due runs follow only from the publications and the plan in force
(:func:`spark_jobs.pipeline.planning.live_runs.due`), and a commit is exclusive. So a session has no state of its
own. The next session continues after one that was killed, and two sessions at once publish each refresh once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event, Thread

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import format_instant
from spark_jobs.engine.choice import Engine
from spark_jobs.pipeline.planning.live_runs import ActiveSchedule, DueRun, due, frontier, in_force, next_due
from spark_jobs.pipeline.run.interval import run
from spark_jobs.pipeline.run.values import Report
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse

LOOK = 5.0
"""Seconds after which a waiting session looks at the plan and at what is published again."""

RETRY = 2.0
"""Seconds before what failed is tried again; twice as many each time after it, to :data:`LONGEST_RETRY`."""

LONGEST_RETRY = 60.0

ROOM = 20.0
"""Seconds until the next refresh that there have to be for something to be done meanwhile."""

COMES_SECOND = ("HDL-512", "HDL-541")
"""Codes of a refresh of which something was published meanwhile."""


def _now() -> int:
    return time.time_ns() // 1000


def wait_for(place: str, until: int, report: Report = lambda line: None) -> Warehouse | None:
    """Wait until there is a warehouse at a place: only a plan makes one. None if there is none by ``until``
    (microseconds).

    Raises as :meth:`spark_jobs.store.warehouse.warehouse.Warehouse.open` does.
    """
    while not Warehouse.stands(place):
        if _now() >= until:
            return None
        report("no plan is stored yet: trigger refresh_sharing_plan")
        time.sleep(LOOK)
    return Warehouse.open(place, create=False)


def _load() -> None:
    from spark_jobs.pipeline.run import checks_stage, finals_stage, partials_stage, publication  # noqa: F401


@dataclass
class LiveSession:
    """One session over a warehouse.

    Attributes
    ----------
    until
        Clock at which it ends, once everything due by then was answered. None: it ends by :meth:`stop`.
    begin
        Begin of the first run of a warehouse.
    name
        Prefix of the names of its runs: a session and its retry have the same.
    overloaded
        Called with each refresh that was not done when the next one was due, and with that instant (microseconds).
    meanwhile
        Called after a refresh if the next is not due soon.
    abandoned
        Returns whether nobody waits for the session any more: it ends as by :meth:`stop`.
    clock
        Returns the time (microseconds).
    wait
        Takes seconds, and returns when they are over or the session has to end.
    run
        Runs an interval; None: :func:`spark_jobs.pipeline.run.interval.run` does.
    """

    warehouse: Warehouse
    engine: Engine
    until: int | None = None
    begin: int | None = None
    checks: str | None = None
    report: Report = lambda line: None
    name: str = "live"
    overloaded: Callable[[RunRecord, int], object] = lambda record, at: None
    meanwhile: Callable[[], object] = lambda: None
    abandoned: Callable[[], bool] = lambda: False
    clock: Callable[[], int] = _now
    wait: Callable[[float], object] | None = None
    run: Callable[..., RunRecord] | None = None

    def __post_init__(self) -> None:
        self._stopped = Event()
        self._failures, self._has_answered = 0, False
        self._active: ActiveSchedule | None = None
        self._pause = self._stopped.wait if self.wait is None else self.wait

    def stop(self) -> None:
        """End once the refresh that is being answered is; from another thread or the handler of a signal."""
        self._stopped.set()

    def make_ready(self) -> None:
        """Load the code that the first refresh needs, in a thread: it takes some seconds."""
        Thread(target=_load).start()

    @property
    def was_stopped(self) -> bool:
        """Return whether :meth:`stop` was called."""
        return self._stopped.is_set()

    def refreshes(self) -> Iterator[RunRecord | HeddleError]:
        """Answer what is due, as it falls due: the record of each refresh, or why it was not answered.

        What fails is tried again, later each time, and everything that has fallen due since with it.
        """
        while not (self._stopped.is_set() or self.abandoned()):
            clock = self.clock()
            if self.until is not None:
                clock = min(clock, self.until)
            is_last = self.until is not None and clock >= self.until
            refresh = None
            try:
                self._active = in_force(self.warehouse, self._active)
                refresh = due(self.warehouse, clock, self.begin, self._active)
                if refresh is None and not is_last:
                    self._idle(clock)
                record = None if refresh is None else self._answered(refresh, clock)
                if record is not None:
                    self._tell_overload(record)
                    self.engine.recycle()
            except HeddleError as error:
                if refresh is not None and self._came_second(refresh, error):
                    self.report("another session was first")
                    continue
                self._failures += 1
                yield error
                if is_last:
                    return
                self._pause(min(RETRY * 2 ** min(self._failures - 1, 8), LONGEST_RETRY))
                continue
            self._failures, self._has_answered = 0, self._has_answered or record is not None
            if record is not None:
                yield record
            elif is_last:
                return

    def _came_second(self, refresh: DueRun, error: HeddleError) -> bool:
        """Return whether a refresh failed because another session has answered it, or a part of it, in the meantime.

        This is no fault. It happens if a session ends while this one begins.
        """
        return error.diagnostic.code in COMES_SECOND and (frontier(self.warehouse) or 0) > refresh.begin

    def _tell_overload(self, record: RunRecord) -> None:
        following = None if self._active is None else self._active.due_after(record.end)
        if following is not None and self.clock() > following:
            self.overloaded(record, following)

    def _answered(self, refresh: DueRun, clock: int) -> RunRecord:
        run_id = f"{self.name}/{format_instant(refresh.begin)}/{format_instant(refresh.end)}"
        return (run if self.run is None else self.run)(
            self.engine,
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
        at = next_due(self.warehouse, clock, self._active)
        until = min((instant for instant in (at, self.until) if instant is not None), default=None)
        seconds = LOOK if until is None else max(until - clock, 0) / 1e6
        if self._has_answered and seconds >= ROOM:
            self._has_answered = False
            self.meanwhile()
            return
        self.report("waiting" if until is None else f"waiting for {format_instant(until)}")
        self._pause(min(seconds, LOOK))
