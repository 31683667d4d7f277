"""A Spark session that starts when there is enough to do for one: most runs are over before a JVM has started."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from spark_jobs.session.in_process import InProcess
from spark_jobs.settings import settings

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


used_contexts: WeakSet[SparkContext] = WeakSet()
"""Where a job of ours has run: the first one pays for starting the workers and loading classes."""


class OnDemand:
    """A session of this process that :meth:`start` starts, once; what :func:`spark_jobs.session.session.start_session`
    is given is kept until then.

    ``starting`` is called before, ``started`` with the session.
    """

    def __init__(
        self,
        name: str,
        starting: Callable[[], None] = lambda: None,
        started: Callable[[SparkSession], None] = lambda session: None,
        **options: Any,
    ) -> None:
        self._name, self._options = name, options
        self._starting, self._started = starting, started
        self._session: SparkSession | None = None
        self.starts = 0
        """How often the session was asked for."""

    @property
    def is_started(self) -> bool:
        """Whether anything has asked for the session."""
        return self._session is not None

    def start(self) -> SparkSession:
        """The session. Raises as :func:`spark_jobs.session.session.start_session` does."""
        self.starts += 1
        if self._session is None:
            from spark_jobs.session import session

            self._starting()
            self._session = session.start_session(self._name, **self._options)
            self._started(self._session)
        return self._session

    def stop(self) -> None:
        """Stop the session if it was started."""
        if self._session is not None:
            self._session.stop()
            self._session = None


def workers(spark: SparkSession | OnDemand, amount: float) -> SparkSession:
    """What does the tasks that read so many events or rows: Spark, but this process (:class:`InProcess`) where they are
    so few that starting Spark would take longer (``HEDDLE_IN_PROCESS``)."""
    if not isinstance(spark, OnDemand):
        return spark
    if amount <= settings().in_process:
        return cast("SparkSession", InProcess())
    return spark.start()


def engine_of(spark: SparkSession | OnDemand) -> SparkSession:
    """A session, whatever there is to do."""
    return spark.start() if isinstance(spark, OnDemand) else spark


def session_of(spark: SparkSession | OnDemand) -> SparkSession | None:
    """What Spark alone can compute with; None where there is none and none can be started."""
    if isinstance(spark, InProcess):
        return None
    return spark.start() if isinstance(spark, OnDemand) else spark
