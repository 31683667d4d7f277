"""Choice of the engine for the tasks of a run: made once per run, from the setting, the master and the amount
of work.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.installing import check_installed
from spark_jobs.engine.configuration import check_spark, delta_jars, has_java, is_here
from spark_jobs.engine.local import LocalWorkers
from spark_jobs.engine.workers import Job, Workers
from spark_jobs.store.settings import ENGINES, settings

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PROCESSES_FROM = 12_000_000
"""Events and rows that one process does in about the time in which others start: each imports what tasks need."""

RUNS = 1_000
"""Runs after which a live session starts another application of Spark: the event log grows by some 20 KB a run."""

GROWTH = 2 << 30
"""Bytes by which the processes of an application may grow before that, since its first run."""


class Decision(NamedTuple):
    """An engine, `spark` or `local`, and why it was taken."""

    name: str
    reason: str


class Engine:
    """The engine for the runs of one command or job.

    Parameters
    ----------
    requested, default
        One of :data:`spark_jobs.store.settings.ENGINES`. None takes the setting, or ``default`` without a setting.
    given
        Workers that are used whatever the amount of work, and not ended.
    starting, started
        Called before Spark starts, and then with its context or session.
    finished
        Called with the :class:`spark_jobs.engine.workers.Job` of a stage, once it has ended.
    options
        Options of :func:`spark_jobs.engine.session.start_context`.
    """

    def __init__(
        self,
        name: str,
        starting: Callable[[], None] = lambda: None,
        started: Callable[[Any], object] = lambda spark: None,
        *,
        requested: str | None = None,
        default: str = "auto",
        given: Workers | None = None,
        finished: Callable[[Job], None] = lambda job: None,
        **options: Any,
    ) -> None:
        self._name, self._options = name, options
        self._starting, self._started, self.finished = starting, started, finished
        self._requested, self._default, self._given = requested, default, given
        self._context: SparkContext | None = None
        self._session: SparkSession | None = None
        self._workers = given
        self._early: tuple[str, Workers] | None = None
        self._runs, self._first_memory = 0, 0
        self.choice = Decision("local", "")

    # ---------------------------------------------------------------------------------------------- decision
    def fixed(self) -> Decision | None:
        """The engine, where it does not depend on how much there is to do.

        Raises HDL-120 for settings that contradict one another.
        """
        if self._given is not None:
            return Decision("local" if self._given.name.startswith("local") else "spark", "the caller's")
        configured = settings()
        name, reason = self._requested or configured.engine, "as set"
        if name is None:
            name, reason = self._default, "the default of DAGs"
        if name not in ENGINES:
            raise HeddleError("HDL-120", f"--engine is {name[:128]!r}", f"one of {', '.join(ENGINES)}")
        elsewhere = ""
        if configured.spark_remote is not None:
            elsewhere = "Spark Connect is configured"
        elif configured.spark_master and not is_here(configured.spark_master):
            elsewhere = f"the master is {configured.spark_master}"
        if name == "local" and elsewhere:
            raise HeddleError("HDL-120", f"the engine is `local`, but {elsewhere}", "say `spark`, or leave one out")
        if name == "auto" and not elsewhere:
            return None
        return Decision("local" if name == "local" else "spark", elsewhere if name == "auto" else reason)

    def check(self) -> None:
        """Check what a run needs, before anything is written.

        Raises HDL-904 for a package, HDL-535 without Java and HDL-520 without Delta's jar, if the engine needs them
        whatever the amount of work. Raises as :meth:`fixed`.
        """
        chosen, configured = self.fixed(), settings()
        if chosen is None or chosen.name == "local" or self._given is not None:
            return
        if configured.spark_remote is not None:
            check_installed("pyspark")
        else:
            check_spark()
            delta_jars(configured)

    def expected(self, amount: float) -> Decision:
        """The engine that :meth:`decide` would choose. Raises as :meth:`fixed`."""
        return self.fixed() or _by_amount(amount)

    def early(self, group: str) -> Workers | None:
        """The workers of a run before it is known how much it reads; None: that decides what they are.

        ``group``: as of :meth:`decide`. Raises as that.
        """
        chosen = self.fixed()
        if chosen is None or chosen.name != "spark":
            return None
        if self._early is None or self._early[0] != group:
            self._early = group, self.decide(0.0, group)
        return self._early[1]

    def decide(self, amount: float, group: str) -> Workers:
        """Choose the workers of a run that reads ``amount`` events and rows. ``group``: the id of the run, by which
        its jobs are known.

        Raises as :meth:`fixed` and :meth:`session`.
        """
        self.choice = self.expected(amount)
        if self._given is not None:
            return self._given
        if self._early is not None and self._early[0] == group and self.choice.name == "spark":
            workers, self._early = self._early[1], None
            return workers
        if self.choice.name == "spark":
            self._close_workers()
            self._start()
            self._workers = spark_workers(self._context or self._session, group)
            self._runs += 1
            return self._workers
        processes = worthwhile_processes(amount)
        if not isinstance(self._workers, LocalWorkers) or self._workers.processes != processes:
            self._close_workers()
            self._workers = LocalWorkers(processes)
        return self._workers

    @property
    def workers(self) -> Workers:
        """The workers of the run that was decided last; before any, this process."""
        if self._workers is None:
            self._workers = LocalWorkers()
        return self._workers

    @property
    def is_elsewhere(self) -> bool:
        """Return whether the tasks of the run that was decided last run on other machines, while this one waits."""
        name, _, master = self.workers.name.partition(" ")
        return not name.startswith("local") and not is_here(master)

    @property
    def jobs(self) -> list[Job]:
        """Spark's jobs for the run that was decided last."""
        return self._workers.jobs if self._workers is not None else []

    @property
    def is_cold(self) -> bool:
        """Return whether the session of the caller has done no job yet: its first job pays for the start of
        workers.
        """
        return self._given is not None and not self._given.is_warm

    # ----------------------------------------------------------------------------------------------- session
    @property
    def is_started(self) -> bool:
        """Return whether Spark was started."""
        return self._context is not None or self._session is not None

    def session(self) -> SparkSession | None:
        """The session, for what Spark alone can do; None where none can be started.

        Raises as :func:`spark_jobs.engine.session.start_session`.
        """
        if self._given is not None:
            return self._given.session()
        self._start()
        if self._session is None:
            from spark_jobs.engine.session import sql_session

            assert self._context is not None, "it was started"
            self._session = sql_session(self._context)
        return self._session

    def _start(self) -> None:
        """Start Spark's context, or the session of a server of Spark Connect."""
        if self.is_started:
            return
        from spark_jobs.engine import session

        if settings().spark_remote is None:
            check_spark()
        self._starting()
        if settings().spark_remote is None:
            self._context = session.start_context(self._name, **self._options)
        else:
            self._session = session.start_session(self._name, **self._options)
        self._started(self._context or self._session)

    def tasks_done(self) -> tuple[int, int]:
        """Numbers of finished tasks and of all tasks in the stages that Spark works on; none for Connect."""
        return self._workers.tasks_done() if self._workers is not None else (0, 0)

    def recycle(self) -> None:
        """Between two runs: end an application of Spark that has done :data:`RUNS`, or has grown by :data:`GROWTH`, so
        that the next run starts another. That of a ``spark-submit`` ends with its process."""
        if not self.is_started or "PYSPARK_GATEWAY_PORT" in os.environ:
            return
        memory = memory_of_processes()
        self._first_memory = self._first_memory or memory
        if self._runs >= RUNS or memory > self._first_memory + GROWTH:
            self.stop()

    def stop(self) -> None:
        """End what was started: local processes and the session."""
        if self._given is None:
            self._close_workers()
        for started in (self._session, self._context):
            if started is not None:
                # a JVM that was killed has ended already
                with suppress(Exception):
                    started.stop()
        self._session = self._context = self._early = None
        self._runs, self._first_memory = 0, 0

    def _close_workers(self) -> None:
        if self._workers is not None:
            self._workers.close()
            self._workers = None


def worthwhile_processes(amount: float) -> int:
    """Number of processes of this machine that finish an amount of events and rows the soonest: all cores, or one."""
    cores = len(os.sched_getaffinity(0))
    return cores if amount * (1 - 1 / cores) >= PROCESSES_FROM else 1


def engine_of(engine: Engine | SparkSession, group: str) -> Engine:
    """An engine, also of a session of the caller. ``group``: what its jobs are known by."""
    return engine if isinstance(engine, Engine) else Engine("heddle", given=spark_workers(engine, group))


def _by_amount(amount: float) -> Decision:
    most = settings().local_events
    if amount <= most:
        return Decision("local", f"{amount:,.0f} events and rows, at most {most:,}")
    if find_spec("pyspark") is None or not has_java():
        missing = "no Java" if find_spec("pyspark") else "no pyspark"
        return Decision("local", f"{amount:,.0f} events and rows, but there is {missing} to start Spark with")
    return Decision("spark", f"{amount:,.0f} events and rows, more than {most:,}")


def memory_of_processes() -> int:
    """Bytes that this process and those that it started have in memory."""
    import psutil

    total, this_process = 0, psutil.Process()
    for process in [this_process, *this_process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total


def spark_workers(spark: Any, group: str) -> Workers:
    """The workers of ``spark``: a context of Spark, or a session, classic or of Spark Connect. ``group``: what their
    jobs are known by."""
    if "connect" in type(spark).__module__:
        from spark_jobs.engine.connect import ConnectWorkers

        return ConnectWorkers(spark, group)
    from spark_jobs.engine.spark import SparkWorkers

    return SparkWorkers(getattr(spark, "sparkContext", spark), group)
