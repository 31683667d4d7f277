"""Building blocks of the DAGs: the interval of a run, the Spark operator, links to the plan.

Imported while DAG files are parsed, so nothing heavy is imported here: Heddle's own packages, Spark and Great
Expectations come in inside tasks.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from airflow.plugins_manager import AirflowPlugin
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, AssetAlias, BaseOperatorLink

if TYPE_CHECKING:
    import psutil
    from airflow.sdk.types import TaskInstanceKey

    from spark_jobs.operations.announcements import Announcement
    from spark_jobs.store.settings import Settings
    from spark_jobs.store.warehouse.publish_log import LogRow

PLAN = Asset("heddle_sharing_plan", uri="heddle://sharing_plan")
"""A new version of the plan; extra: ``plan_version``, ``cost``, ``no_share``, ``shared``, ``trees``."""

RESULTS = Asset("heddle_results", uri="heddle://results")
"""A published interval; extra: ``from`` and ``to`` as 2013-07-01T00:00:00Z, and :data:`RESULT`."""

REFRESHES = AssetAlias("heddle_refreshes")
"""Outlet of tasks that emit :data:`RESULTS` once for a publication. An asset as an outlet has an event for each success
of the task: none for the second refresh of a session, and one more for each time the task is cleared."""

ANSWERS = AssetAlias("heddle_answers")
"""All of :func:`answers_of`, of a task that announces them: which queries are assets is not known when it is parsed."""


def answers_of(query: str) -> Asset:
    """The asset of a query with the setting ``-- asset``: events are publications with other answers of it; extra: see
    :class:`spark_jobs.operations.announcements.Announcement`. Another DAG names it by its name alone."""
    return Asset(f"heddle://answers/{query}")


def home() -> Path:
    """The folder of the project, as :class:`spark_jobs.store.settings.Settings` has it: needed when a DAG file is
    parsed, which imports nothing of Heddle's packages."""
    return Path(os.environ.get("HEDDLE_HOME") or Path(__file__).resolve().parent.parent)


def session_period() -> timedelta | None:
    """Lifetime of a session of ``aggregate_windows`` (``HEDDLE_SESSION``, which like :func:`home` is read when the DAG
    file is parsed); None: each refresh is a separate run. Raises ValueError.
    """
    text = os.environ.get("HEDDLE_SESSION", "").strip()
    match = re.fullmatch(r"([1-9]\d{0,3}) (minute|hour)s?", text, re.ASCII)
    if text and match is None:
        raise ValueError(f"HEDDLE_SESSION is {text[:128]!r}: minutes or hours, as `15 minutes` or `1 hour`")
    return timedelta(**{f"{match[2]}s": int(match[1])}) if match is not None else None


def params_of(context: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Params of a run.

    Airflow accepts any key in the configuration of a run: ``{"dryrun": true}`` would be a run that is none. Raises
    AirflowFailException, after which Airflow does not retry, for a key that the DAG does not declare.
    """
    declared = list(context["dag"].params)
    unknown = [str(name) for name in context["dag_run"].conf or {} if name not in declared]
    if unknown:
        near = difflib.get_close_matches(unknown[0], declared, 1, 0.5)
        hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(declared) or 'none'}"
        raise _refused(f"the DAG has no Param `{unknown[0][:100]}`: {hint}")
    params: Mapping[str, Any] = context["params"]
    return params


def _refused(message: str) -> Exception:
    from airflow.sdk.exceptions import AirflowFailException

    return AirflowFailException(message)


def interval_of(context: Mapping[str, Any]) -> tuple[datetime, datetime]:
    """The interval [start, end) of event time that a run is about.

    It comes from the Params ``from`` and ``to`` of a run by hand, else from the run's data interval (scheduled runs
    and backfills), else it is the last complete UTC day before the run was requested. It is the same for every try
    of a run. Raises AirflowFailException for Params that are no interval.
    """
    params = params_of(context)
    bounds = [params[name] for name in ("from", "to") if params.get(name)]
    if len(bounds) == 1:
        raise _refused("only one of the Params `from` and `to` is given: give both, or neither")
    if bounds:
        first, last = map(_instant, bounds)
        if first >= last:
            raise _refused(f"`from` is {bounds[0]} and `to` is {bounds[1]}: `to` has to be later")
        return first, last
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is not None and end is not None and start < end:
        return start, end
    run_after = context["dag_run"].run_after
    midnight = run_after.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - timedelta(days=1), midnight


def _instant(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def pinned_run(
    settings: Settings, begin: datetime, end: datetime, live: bool
) -> dict[str, Any] | Literal["covered"] | None:
    """The plan version and the interval for all tries of a run; None while it has to wait.

    A live run goes on where the one before it ended, up to the newest refresh that is due; it is ``"covered"`` if that
    one has published the interval already. Any other run is over its own interval.
    """
    from optimizer.workload.instants import format_instant
    from spark_jobs.pipeline.planning.live_runs import due, frontier
    from spark_jobs.pipeline.planning.refresh import watermark_delay
    from spark_jobs.store.warehouse.plans import current_version
    from spark_jobs.store.warehouse.warehouse import Warehouse

    # Only the plan's DAG creates the warehouse: two first runs at once would race for it.
    if not Warehouse.stands(settings.warehouse):
        print("no plan is stored yet: trigger refresh_sharing_plan")
        return None
    warehouse = Warehouse.open(settings.warehouse, create=False)
    first, last, clock = (micros(moment) for moment in (begin, end, datetime.now(UTC)))
    if live:
        reached = frontier(warehouse)
        if reached is not None and reached >= last:
            return "covered"
        due_run = due(warehouse, clock, first)
        if due_run is None:
            return None
        return {
            "plan_version": due_run.plan_version,
            "from": format_instant(due_run.begin),
            "to": format_instant(due_run.end),
            "live": True,
            "late": due_run.late,
        }
    version = current_version(warehouse)
    if version is None or clock < last + watermark_delay(settings.streams):
        return None
    return {"plan_version": version, "from": format_instant(first), "to": format_instant(last)}


def micros(moment: datetime) -> int:
    """Microseconds since the epoch, exactly."""
    # pendulum's differences cannot be divided by a timedelta
    return int(moment.replace(microsecond=0).timestamp()) * 1_000_000 + moment.microsecond


def published_row(pinned: Mapping[str, Any]) -> LogRow:
    """The newest publication of the interval ``pinned`` in the run log.

    A run that changes nothing has no publication: its interval's newest is returned. Raises
    :class:`optimizer.errors.diagnostics.HeddleError` (HDL-596) if the interval was never published.
    """
    from optimizer.errors.diagnostics import HeddleError
    from optimizer.workload.instants import instant_of_text
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse import publish_log
    from spark_jobs.store.warehouse.warehouse import Warehouse

    rows = publish_log.rows_of_interval(
        Warehouse.open(settings().warehouse), *(instant_of_text(pinned[name]) or 0 for name in ("from", "to"))
    )
    published = [row for row in rows if row.event == "published"]
    if not published:
        raise HeddleError("HDL-596", f"nothing is published for {pinned['from']} to {pinned['to']}")
    return max(published, key=lambda row: row.revision)


def announce(context: Mapping[str, Any], news: Sequence[Announcement]) -> list[dict[str, Any]]:
    """Add the events of new answers to those that the task emits by succeeding; what was added.

    Airflow stores a task's events in the transaction that makes it successful, so an attempt that fails emits none and
    one that succeeds all, once. A publication that has its event already, as when a successful task is cleared and runs
    again, gets no second one.
    """
    from spark_jobs.operations.announcements import key_of

    if not news:
        return []
    # an event is later than its publication, but the clocks are those of two machines
    since = datetime.fromtimestamp(min(announcement.at for announcement in news) / 1e6, UTC) - timedelta(hours=1)
    known = {key_of(event.extra) for event in context["inlet_events"][ANSWERS].after(since.isoformat())}
    added = [announcement for announcement in news if announcement.key not in known]
    for announcement in added:
        print(f"new answers: {announcement.extra}")
        context["outlet_events"][ANSWERS].add(answers_of(announcement.query), extra=announcement.extra)
    return [announcement.extra for announcement in added]


def announce_run(context: Mapping[str, Any], pinned: Mapping[str, Any]) -> list[dict[str, Any]]:
    """:func:`announce` what this run of ``aggregate_windows`` published of the interval ``pinned``."""
    from spark_jobs.operations.announcements import of_run
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse.warehouse import Warehouse
    from spark_jobs.streams.sources.decoding import parse_instant

    begin, end = (parse_instant(pinned[name]) for name in ("from", "to"))
    return announce(context, of_run(Warehouse.open(settings().warehouse), begin, end, context["run_id"]))


def announce_refreshes(context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Announce what a session published: an event of :data:`RESULTS` for each refresh, and :func:`announce` the new
    answers; of a run by hand or of a backfill, which a session's task does too, :func:`announce_run`. The events of
    ``RESULTS``."""
    from spark_jobs.operations.announcements import announcements, is_of_others, of_session
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse.warehouse import Warehouse

    place, pinned = settings().warehouse, context["ti"].xcom_pull(task_ids="session")
    if context["dag_run"].run_type != "scheduled":
        if pinned is None:  # it has failed
            return []
        announce_run(context, pinned)
        return announce_results(context, [published_row(pinned)])
    if not Warehouse.stands(place):
        return []
    warehouse = Warehouse.open(place, create=False)
    session_rows = of_session(warehouse, context["run_id"], micros(datetime.now(UTC)))
    rows = [row for row in session_rows if not is_of_others(row)]
    announce(context, announcements(warehouse, rows))
    return announce_results(context, rows)


def announce_results(context: Mapping[str, Any], rows: Sequence[LogRow]) -> list[dict[str, Any]]:
    """Add an event of :data:`RESULTS` for each publication that has none yet, as :func:`announce` does for answers; the
    ``extra`` of those added."""
    from optimizer.workload.instants import format_instant

    added = [
        {"from": format_instant(row.begin), "to": format_instant(row.end), **{key: getattr(row, key) for key in RESULT}}
        for row in rows
    ]
    if added:
        since = datetime.fromtimestamp(min(row.at for row in rows) / 1e6, UTC) - timedelta(hours=1)
        known = [_publication(event.extra) for event in context["inlet_events"][RESULTS].after(since.isoformat())]
        added = [extra for extra in added if _publication(extra) not in known]
    for extra in added:
        print(f"published: {extra}")
        context["outlet_events"][REFRESHES].add(RESULTS, extra=extra)
    return added


def _publication(extra: Mapping[str, Any]) -> tuple[Any, ...]:
    """Identity of a publication, from the ``extra`` of its event; earlier versions wrote instants in two forms."""
    instants = [_instant(extra[name]) if extra.get(name) else None for name in ("from", "to")]
    return (*instants, extra.get("revision"), extra.get("run_id"))


RESULT = ("plan_version", "revision", "answers", "run_id")
"""Fields of a publication in its event, in addition to the interval."""


def announce_others(context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """:func:`announce` what no run of ``aggregate_windows`` announces, or none has, of the last days."""
    from spark_jobs.operations.announcements import of_others
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse.warehouse import Warehouse

    warehouse = settings().warehouse
    if not Warehouse.stands(warehouse):
        return []
    return announce(context, of_others(Warehouse.open(warehouse, create=False), micros(datetime.now(UTC))))


class SparkLink(BaseOperatorLink):
    """A button on the task's page: what Spark did for the run of this task, in the history server that the setting
    ``spark_history`` names, else on Heddle's own page."""

    name = "Spark"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """The address of the page. Airflow calls this in the task's own process, once it has ended."""
        from spark_jobs.store.settings import settings

        server = settings().spark_history
        application = application_of(ti_key.run_id) if server is not None else ""
        return f"{server}/history/{application}/" if application else f"/sharing-plan/run?id={quote(ti_key.run_id, '')}"


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
        return "/sharing-plan/"


def _is_local(connection: Any) -> bool:
    """Return whether a connection's master is this machine."""
    return (
        re.match(r"local(\[|$)", str(connection.host)) is not None
        and connection.extra_dejson.get("deploy-mode") != "cluster"
    )


PATIENCE_SECONDS = 4.0
"""Seconds for a job to end after a signal to stop: a second later Airflow kills the task's process."""

LAST_LINES = 5
"""Number of the last lines of a job's output in the error of its task."""


class SubmitOperator(SparkSubmitOperator):
    """One of Heddle's jobs as an application of Spark, by ``spark-submit`` with the settings of every Heddle session.

    With a connection of the type ``spark_connect`` it is a process of Python here, which calls that server. It is
    one too if the setting ``engine`` is `local`, or `auto` with a local master: the process starts Spark if there
    is enough to do.

    Parameters: ``job``, the name of its module in ``spark_jobs``; ``given``, the return value of the task before,
    from which :meth:`options` makes the job's options in addition to ``--warehouse`` and ``--plan-version``.
    """

    template_fields = (*SparkSubmitOperator.template_fields, "given")
    is_quick = True
    """True if the application ends after some seconds: see :func:`spark_jobs.engine.configuration.spark_settings`."""

    _process: subprocess.Popen[str] | None = None

    def __init__(self, *, job: str, given: Any, **arguments: Any) -> None:
        super().__init__(application=str(home() / "spark_jobs" / "jobs" / f"{job}.py"), **arguments)
        self.given = given

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
        """Submit the job with what is known only now: Spark's settings and the arguments."""
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
            # the URL may hold a token: it stands in no command line
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
            from spark_jobs.store.settings import settings

            self.given = pinned_run(settings(), *interval_of(context), live=False)
            if self.given is None:
                raise AirflowRescheduleException(datetime.now(UTC) + timedelta(minutes=1))
            super().execute(context)
            return dict(self.given)
        self.application = str(home() / "spark_jobs" / "jobs" / "live_session.py")
        self.is_quick = False
        super().execute(context)
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


def failed_refreshes(run_id: str) -> list[str]:
    """The refreshes of a session in which something failed, and why."""
    from optimizer.workload.instants import format_instant
    from spark_jobs.operations.announcements import of_session
    from spark_jobs.store.settings import settings
    from spark_jobs.store.warehouse.warehouse import Warehouse

    warehouse = settings().warehouse
    if not Warehouse.stands(warehouse):
        return []
    rows = of_session(Warehouse.open(warehouse, create=False), run_id, micros(datetime.now(UTC)))
    return [
        f"{format_instant(row.end)}: {diagnostic['code']} {diagnostic['message']}"
        for row in rows
        for diagnostic in row.record.diagnostics
        if diagnostic["severity"] == "error"
    ]


class RepairOperator(SubmitOperator):
    """``spark_jobs/jobs/repair_results.py``: publish again what is of sources that changed, in one session.

    Parameters: ``outdated``, the return value of the task that looked (``{"plan_version", "days"}``).
    """

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

    def execute(self, context: Any) -> None:
        """Submit the job if there is a place for views."""
        from airflow.sdk.exceptions import AirflowSkipException

        from spark_jobs.store.settings import settings

        if settings().catalog_schema is None:
            raise AirflowSkipException("HEDDLE_CATALOG_SCHEMA is not set: no views are made")
        super().execute(context)

    def options(self, context: Any) -> list[str]:
        """Option with the schema of the views."""
        from spark_jobs.store.settings import settings

        return ["--catalog-schema", str(settings().catalog_schema)]


class LandOperator(SparkSubmitOperator):
    """``spark_jobs/jobs/land_topic.py`` for one topic, in a session that has the jars for Kafka.

    Parameters: ``arguments``, of the job.
    """

    template_fields = (*SparkSubmitOperator.template_fields, "arguments")

    def __init__(self, *, arguments: Any, **more: Any) -> None:
        super().__init__(application=str(home() / "spark_jobs" / "jobs" / "land_topic.py"), **more)
        self.arguments = arguments

    def execute(self, context: Any) -> None:
        """Submit the job with what is known only now: Spark's settings and the arguments."""
        from spark_jobs.streams.landing.kafka import session_settings

        self.conf: dict[Any, Any] = {**session_settings(), **(self.conf or {})}
        self.application_args = list(self.arguments)
        super().execute(context)


class HeddlePlugin(AirflowPlugin):
    """Registers the link, so that the api-server knows it."""

    name = "heddle"
    operator_extra_links = [SharingPlanLink(), SparkLink()]
