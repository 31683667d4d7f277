"""Tasks that run Heddle's jobs, their links, and the task that waits for a plan.

Imported while DAG files are parsed, so nothing heavy is imported here: Heddle's other packages, Spark and Great
Expectations come in inside tasks.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator, BaseOperatorLink

from heddle.airflow.dag_set import project_environment
from heddle.airflow.names import PAGES
from heddle.airflow.reports import Reporting
from heddle.airflow.runs import failed_refreshes, interval_of, pinned_run

if TYPE_CHECKING:
    import psutil
    from airflow.sdk.types import TaskInstanceKey


class SparkLink(BaseOperatorLink):
    """A button on the task's page: what Spark did for the run of this task, in the history server that the setting
    ``spark_history`` names, else on Heddle's own page."""

    name = "Spark"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """The address of the page. Airflow calls this in the task's own process, once it has ended."""
        from spark_jobs.store.settings import settings

        with project_environment(operator.project):
            server = settings().spark_history
            application = application_of(ti_key.run_id) if server is not None else ""
        own_page = f"{operator.pages}/run?id={quote(ti_key.run_id, '')}"
        return f"{server}/history/{application}/" if application else own_page


def application_of(run_id: str) -> str:
    """The id of Spark's application that computed for a run of ``aggregate_windows``; "" if none is on record."""
    from spark_jobs.operations.seen import newest_row_of
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse.warehouse import Warehouse

    warehouse = settings().warehouse
    row = newest_row_of(Warehouse.open(warehouse, create=False), run_id) if Warehouse.stands(warehouse) else None
    return row.record.application if row is not None else ""


class SharingPlanLink(BaseOperatorLink):
    """A button on the task's page: the plan version that this run is pinned to."""

    name = "Sharing plan"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """The address of the plan's page."""
        # The page shows the newest plan; the pinned version is in the XCom of pin_plan and in every answer.
        return f"{operator.pages}/"


def _is_local(connection: Any) -> bool:
    """Return whether a connection's master is this machine."""
    return (
        re.match(r"local(\[|$)", str(connection.host)) is not None
        and connection.extra_dejson.get("deploy-mode") != "cluster"
    )


def job_file(job: str) -> Path:
    """The file of a job, by its name, in the installed package of the jobs."""
    from spark_jobs import jobs

    return Path(jobs.__path__[0]).resolve() / f"{job}.py"


PATIENCE_SECONDS = 4.0
"""Seconds for a job to end after a signal to stop: a second later Airflow kills the task's process."""

LAST_LINES = 5
"""Number of the last lines of a job's output in the error of its task."""


class SubmitOperator(Reporting, SparkSubmitOperator):
    """One of Heddle's jobs as an application of Spark, by ``spark-submit`` with the settings of every Heddle session.

    With a connection of the type ``spark_connect`` it is a process of Python here, which calls that server. It is
    one too if the setting ``engine`` is `local`, or `auto` with a local master: the process starts Spark if there
    is enough to do.

    Parameters: ``job``, the name of its module in ``spark_jobs.jobs``; ``given``, the return value of the task before,
    from which :meth:`options` makes the job's options in addition to ``--warehouse`` and ``--plan-version``;
    ``project`` and ``pages``, of the :class:`heddle.airflow.dag_set.DagSet`.
    """

    template_fields = (*SparkSubmitOperator.template_fields, "given")
    is_quick = True
    """True if the application ends after some seconds: see :func:`spark_jobs.engine.configuration.spark_settings`."""

    _process: subprocess.Popen[str] | None = None

    def __init__(self, *, job: str, given: Any, project: str = "", pages: str = PAGES, **arguments: Any) -> None:
        # where its file is, only the worker knows
        super().__init__(application=job, **arguments)
        self.job, self.given, self.project, self.pages = job, given, project, pages

    def options(self, context: Any) -> list[str]:
        """More options of the job; none unless a subclass has some."""
        return []

    def arguments(self, context: Any) -> list[str]:
        """Arguments of the job."""
        from spark_jobs.store.settings import settings

        return [
            *("--warehouse", str(settings().warehouse)),
            *("--plan-version", str(self.given["plan_version"])),
            *self.options(context),
        ]

    def execute(self, context: Any) -> Any:
        """Submit the job with what is known only now: its file, Spark's settings and the arguments. Report the runs
        that it made."""
        since = datetime.now(UTC)
        with project_environment(self.project):
            self.application = str(job_file(self.job))
            try:
                self.submit(context)
            finally:
                self.report_statistics(context["run_id"], since)

    def submit(self, context: Any) -> None:
        """Run the job, in the environment of the project."""
        from spark_jobs.engine.configuration import spark_settings, user_settings

        self.application_args = self.arguments(context)
        connection = self._connection()
        environment = self._environment(connection)
        if environment is not None:
            self._run_here(environment)
            return
        is_local = connection is not None and _is_local(connection)
        if is_local and shutil.which("spark-submit") is None:
            # the one beside this Python, wherever Airflow was started from
            os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        # Read when the task runs, not when the file is parsed: the jar may come later than the DAG.
        conf = {key: str(value) for key, value in (self.conf or {}).items()}
        session_conf = spark_settings(self.is_quick, is_local, user_settings() | conf)
        self.conf: dict[Any, Any] = {**conf, **session_conf}
        super().execute(context)

    def _connection(self) -> Any:
        """The connection; None if there is none, for which ``spark-submit`` has a default."""
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
        from airflow.sdk.exceptions import AirflowNotFoundException

        try:
            return SparkConnectHook.get_connection(str(self._conn_id))
        except AirflowNotFoundException:
            return None

    def _environment(self, connection: Any) -> dict[str, str] | None:
        """Environment for a process here, from the connection; None if the connection is for ``spark-submit``."""
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

        from spark_jobs.store.settings import settings

        if connection is None:
            return None
        if connection.conn_type == SparkConnectHook.conn_type:
            # the URL may hold a token, which no command line may show
            return {"HEDDLE_SPARK_REMOTE": SparkConnectHook(str(self._conn_id)).get_connection_url()}
        if not _is_local(connection) or settings().engine in (None, "spark"):
            return None
        flags = " ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in (self.conf or {}).items())
        options = {"PYSPARK_SUBMIT_ARGS": f"{flags} pyspark-shell"} if flags else {}
        return {"HEDDLE_SPARK_MASTER": str(connection.host), **options}

    def _run_here(self, more: Mapping[str, str]) -> None:
        """Run the job; its lines are the task's log. Raises AirflowException if it fails."""
        from airflow.sdk.exceptions import AirflowException

        command = [sys.executable, str(self.application), *map(str, self.application_args or ())]
        environment = os.environ | more
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as self._process:
            last: deque[str] = deque(maxlen=LAST_LINES)
            for line in self._process.stdout or ():
                self.log.info("%s", line.rstrip())
                last.append(line.rstrip())
        if self._process.returncode:
            # it stands alone where a task's failures are listed
            ended = f"{Path(str(self.application)).name} ended with exit code {self._process.returncode}"
            raise AirflowException("\n".join([ended, *last]))

    def on_kill(self) -> None:
        """End the job: it cancels what Spark does for it, and its record has an end. What has not ended after
        :data:`PATIENCE_SECONDS`, or is a driver elsewhere, the provider kills."""
        if self._process is not None:
            self._process.terminate()
            return
        submitted = getattr(self._hook, "_submit_sp", None)
        if submitted is not None and submitted.poll() is None:
            # spark-submit itself would end without a word of the job
            for driver in _drivers(submitted.pid, str(self.application)):
                driver.terminate()
                with suppress(subprocess.TimeoutExpired):
                    submitted.wait(PATIENCE_SECONDS)
        super().on_kill()


def _drivers(submitted: int, job: str) -> list[psutil.Process]:
    """The processes of a job that a ``spark-submit`` started on this machine."""
    import psutil

    drivers = []
    with suppress(psutil.Error):
        for child in psutil.Process(submitted).children(recursive=True):
            with suppress(psutil.Error):
                drivers += [child] if job in child.cmdline() else []
    return drivers


class AggregateOperator(SubmitOperator):
    """``spark_jobs/jobs/aggregate_windows.py`` for one interval, in one Spark session.

    Parameters: ``pinned``, the return value of the task that pinned the plan
    (``{"plan_version", "from", "to"}``, perhaps with ``live`` and ``late``).
    """

    operator_extra_links = (SharingPlanLink(), SparkLink())

    def __init__(self, *, pinned: Any, **arguments: Any) -> None:
        super().__init__(job="aggregate_windows", given=pinned, **arguments)

    def options(self, context: Any) -> list[str]:
        """The interval to publish and the run's id."""
        return [
            *("--from", self.given["from"]),
            *("--to", self.given["to"]),
            # Every try of a run has the same id, so a retry goes on under the same revision.
            *("--run-id", context["run_id"]),
            *(f"--{flag}" for flag in ("live", "late") if self.given.get(flag)),
        ]


class SessionOperator(AggregateOperator):
    """``spark_jobs/jobs/live_session.py`` until the run's data interval is over; of a run by hand or of a backfill what
    :class:`AggregateOperator` does, once late events have had their time. Returns what the plan was pinned to; None for
    a session, which chooses the plan for each refresh."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(pinned=None, **arguments)

    def execute(self, context: Any) -> dict[str, Any] | None:
        """Answer what falls due. Raises AirflowException for a session that was killed, or could not answer its last
        refresh: its retry goes on. Raises AirflowFailException if something in a refresh had failed."""
        from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException

        if context["dag_run"].run_type != "scheduled":
            self.given = pinned_here(self.project, *interval_of(context), live=False)
            if self.given is None:
                raise AirflowRescheduleException(datetime.now(UTC) + timedelta(minutes=1))
            super().execute(context)
            return dict(self.given)
        self.job, self.is_quick = "live_session", False
        super().execute(context)
        with project_environment(self.project):
            failed = failed_refreshes(context["run_id"])
        if failed:
            raise AirflowFailException("\n".join(["not everything could be answered:", *failed]))
        return None

    def arguments(self, context: Any) -> list[str]:
        """The session's; of a run that is none those of its interval."""
        from spark_jobs.operations.announcements import session_name
        from spark_jobs.store.settings import settings

        if self.given is not None:
            return super().arguments(context)
        until = context["data_interval_end"].isoformat()
        name = session_name(context["run_id"])
        return ["--warehouse", str(settings().warehouse), "--until", until, "--name", name]


class RepairOperator(SubmitOperator):
    """``spark_jobs/jobs/repair_results.py``: publish again what is of sources that changed, in one session.

    Parameters: ``outdated``, the return value of the task that looked (``{"plan_version", "days"}``).
    """

    runs_named = "repair/"

    def __init__(self, *, outdated: Any, **arguments: Any) -> None:
        super().__init__(job="repair_results", given=outdated, **arguments)

    def options(self, context: Any) -> list[str]:
        """Option with the number of days to look back."""
        return ["--days", str(self.given["days"])]


class ViewsOperator(SubmitOperator):
    """``spark_jobs/jobs/create_views.py``: every query a view in Spark's catalogue, in one session. Skipped unless the
    setting ``HEDDLE_CATALOG_SCHEMA`` names the schema.

    Parameters: ``announced``, the return value of the task that announced the plan (``{"plan_version"}``).
    """

    def __init__(self, *, announced: Any, **arguments: Any) -> None:
        super().__init__(job="create_views", given=announced, **arguments)

    def submit(self, context: Any) -> None:
        """Run the job if there is a place for views."""
        from airflow.sdk.exceptions import AirflowSkipException

        from spark_jobs.store.settings import settings

        if settings().catalog_schema is None:
            raise AirflowSkipException("HEDDLE_CATALOG_SCHEMA is not set: no views are made")
        super().submit(context)

    def options(self, context: Any) -> list[str]:
        """Option with the schema of the views."""
        from spark_jobs.store.settings import settings

        return ["--catalog-schema", str(settings().catalog_schema)]


class LandOperator(SparkSubmitOperator):
    """``spark_jobs/jobs/land_topic.py`` for one topic, in a session that has the jars for Kafka.

    Parameters: ``arguments``, of the job; ``project``.
    """

    template_fields = (*SparkSubmitOperator.template_fields, "arguments")

    def __init__(self, *, arguments: Any, project: str = "", **more: Any) -> None:
        super().__init__(application="land_topic", **more)
        self.arguments, self.project = arguments, project

    def execute(self, context: Any) -> None:
        """Submit the job with what is known only now: its file, Spark's settings and the arguments."""
        from spark_jobs.streams.landing.kafka import session_settings

        with project_environment(self.project):
            self.application = str(job_file("land_topic"))
            self.conf: dict[Any, Any] = {**session_settings(), **(self.conf or {})}
            self.application_args = list(self.arguments)
            super().execute(context)


def pinned_here(project: str, begin: datetime, end: datetime, live: bool) -> Any:
    """:func:`heddle.airflow.runs.pinned_run` with the settings of a project, in the process of a task."""
    from spark_jobs.store.settings import settings

    with project_environment(project):
        return pinned_run(settings(), begin, end, live)


class PinPlan(BaseOperator):
    """Wait until late events have had their time, then pin the newest plan for all tries of this run. Returns what
    :func:`heddle.airflow.runs.pinned_run` does.

    The triggerer waits, so that no worker does.

    Parameters: ``project``; ``patience``, how long it waits.
    """

    def __init__(self, *, project: str = "", patience: timedelta = timedelta(days=2), **arguments: Any) -> None:
        super().__init__(**arguments)
        self.project, self.patience = project, patience

    def execute(self, context: Any) -> Any:
        """Pin the plan now, if it can be; else have the triggerer wait for it."""
        from heddle.airflow.triggers import PlanTrigger

        begin, end = interval_of(context)
        live = context["dag_run"].run_type == "scheduled"
        pin = pinned_here(self.project, begin, end, live)
        if pin is None:
            trigger = PlanTrigger(self.project, begin, end, live)
            self.defer(trigger=trigger, method_name="resume", timeout=self.patience)
        return self.resume(context, pin)

    def resume(self, context: Any, event: Any) -> Any:
        """Return the pinned plan. Raises AirflowSkipException if an earlier run has covered the interval."""
        from airflow.sdk.exceptions import AirflowSkipException

        if event == "covered":
            raise AirflowSkipException("an earlier run, which was late, has answered this interval")
        return event
