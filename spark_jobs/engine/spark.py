"""Runs tasks as jobs of a Spark session of this process."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.engine.configuration import is_here
from spark_jobs.engine.shipping import TOP_LEVEL, code_hash
from spark_jobs.engine.workers import EVENTS, Count, Job, StageOutcome, Task, counting, outcome_of
from spark_jobs.store.settings import settings as heddle_settings

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_used: WeakSet[SparkContext] = WeakSet()
"""Contexts in which a job of Heddle has run: the first job pays for starting the workers and loading classes."""


def _of_executors(text: str) -> HeddleError | None:
    """HDL-538, if an error of Spark's is that executors cannot run our tasks."""
    hint = "set PYSPARK_PYTHON to a Python of the driver's version with the packages of constraints.txt"
    if matched := re.search(r"worker has different version:? ([\d.]+) than that in driver:? ([\d.]+)", text):
        message = f"Spark's executors have Python {matched[1]}, the driver {matched[2].rstrip('.')}"
        return HeddleError("HDL-538", message, hint)
    if matched := re.search(r'Cannot run program "([^"]{1,200})"', text):
        return HeddleError("HDL-538", f"Spark's executors have no {matched[1]}", hint)
    # code that differs may also have no such task
    if re.search(rf"OtherCode|Can't get attribute '\w+' on <module '({'|'.join(TOP_LEVEL)})\.", text):
        hint = "install the same version in both, or set HEDDLE_SPARK_CODE=archive"
        return HeddleError("HDL-538", "Spark's executors have other code of Heddle than the driver", hint)
    if matched := re.search(r"ModuleNotFoundError: No module named '([\w.]{1,100})'", text):
        name = matched[1]
        if name.partition(".")[0] in TOP_LEVEL:
            hint = "set HEDDLE_SPARK_CODE=archive, or have executors see the project's folder under the same path"
        return HeddleError("HDL-538", f"Spark's executors do not find the package {name}", hint)
    return None


def _interruption(error: BaseException) -> KeyboardInterrupt | None:
    """Return the interruption that led to an error, if any.

    SIGTERM may end the JVM at the same time. PySpark's clean-up then raises an error that hides the interruption.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    return cause


class OtherCode(Exception):
    """Executors have other code of Heddle installed than the driver."""


def _of_code(task: Task, code: str) -> Task:
    """A task that raises :class:`OtherCode` on executors whose code has another hash."""

    def checked(numbers: Iterable[int], count: Count) -> Iterator[Any]:
        if code_hash() != code:
            raise OtherCode
        yield from task(numbers, count)

    return checked


class SparkWorkers:
    """Spark's executors. ``group``: the job group of what they do, by which it is cancelled; the id of a run.

    Tasks are those of RDDs: planning, compiling and fetching a query of SQL costs more than one of our jobs, whose
    tasks read and write files themselves.
    """

    def __init__(self, context: SparkContext, group: str) -> None:
        self._context, self._group = context, group
        self.name = f"spark {self._context.master}"
        self.application, self.ui = self._context.applicationId, self._context.uiWebUrl or ""
        self.jobs: list[Job] = []
        is_installed = heddle_settings().spark_code == "installed" and not is_here(self._context.master or "")
        self._code = code_hash() if is_installed else None

    @property
    def width(self) -> int:
        """The cores that there are."""
        return max(1, self._context.defaultParallelism)

    @property
    def is_warm(self) -> bool:
        """Return whether the processes of tasks have started."""
        return self._context in _used

    def run(self, task: Task, pieces: int, most: int, description: str) -> StageOutcome:
        """Run a task as a job of Spark: :meth:`spark_jobs.engine.workers.Workers.run`."""
        if pieces == 0:
            return StageOutcome([])
        _used.add(self._context)
        begun, tasks = time.perf_counter(), min(pieces, most)
        checked = task if self._code is None else _of_code(task, self._code)
        before = set(self._context.statusTracker().getJobIdsForGroup(self._group))
        self._context.setJobGroup(self._group, description)
        work = self._context.parallelize(range(pieces), tasks).mapPartitions(counting(checked))
        try:
            outcome = outcome_of(work.collect())
        except BaseException as error:
            interruption = _interruption(error)
            # Spark itself may be gone
            with suppress(Exception):
                if interruption is not None:
                    self._context.cancelJobGroup(self._group)
                self.jobs.append(self._job(description, before, begun, tasks, StageOutcome([])))
            if interruption is not None:
                raise interruption from None
            coded = _of_executors(str(error)) if isinstance(error, Exception) else None
            raise coded or error from error
        self.jobs.append(self._job(description, before, begun, tasks, outcome))
        return outcome

    def _job(self, description: str, before: Collection[int], begun: float, least: int, outcome: StageOutcome) -> Job:
        """Spark's work since ``begun``, in jobs that are not among those ``before``."""
        seconds, tracker = time.perf_counter() - begun, self._context.statusTracker()
        ids = tuple(sorted(set(tracker.getJobIdsForGroup(self._group)) - set(before)))
        jobs = [job for job in map(tracker.getJobInfo, ids) if job is not None]
        stages = [stage for job in jobs for stage in map(tracker.getStageInfo, job.stageIds) if stage is not None]
        tasks, failed = (sum(getattr(stage, name) for stage in stages) for name in ("numTasks", "numFailedTasks"))
        events, spent = outcome.counts[EVENTS], outcome.cpu_seconds
        return Job(description, ids, tasks or least, failed, round(seconds, 3), events, spent)

    def tasks_done(self) -> tuple[int, int]:
        """Numbers of finished tasks and of all tasks in the stages that Spark works on."""
        tracker = self._context.statusTracker()
        infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [info for info in infos if info is not None]
        return sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known)

    def session(self) -> SparkSession:
        """The session, which starts with its first use."""
        from spark_jobs.engine.session import sql_session

        return sql_session(self._context)

    def close(self) -> None:
        """Whoever started the session ends it."""
