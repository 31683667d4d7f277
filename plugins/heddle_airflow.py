"""What the DAGs are wired from: the interval of a run, the Spark operator, links to the plan.

Imported while DAG files are parsed, so nothing heavy is imported here: Heddle's own packages, Spark and
Great Expectations come in inside tasks.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from airflow.plugins_manager import AirflowPlugin
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, AssetAlias, BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

    from spark_jobs.operations.announcements import Announcement
    from spark_jobs.settings import Settings

PLAN = Asset("heddle_sharing_plan", uri="heddle://sharing_plan")
"""A new version of the plan; extra: ``plan_version``, ``cost``, ``no_share``, ``shared``, ``trees``."""

RESULTS = Asset("heddle_results", uri="heddle://results")
"""A published interval; extra: ``plan_version``, ``from``, ``to``, ``revision``, ``answers``."""

ANSWERS = AssetAlias("heddle_answers")
"""All of :func:`answers_of`, of a task that announces them: which queries are assets is not known when it is parsed."""


def answers_of(query: str) -> Asset:
    """The asset of a query with the setting ``-- asset``: events are publications with other answers of it; extra: see
    :class:`spark_jobs.operations.announcements.Announcement`. Another DAG names it by its name alone."""
    return Asset(f"heddle://answers/{query}")


def home() -> Path:
    """The folder of the project, as :class:`spark_jobs.settings.Settings` has it: needed when a DAG file is parsed,
    which imports nothing of Heddle's packages."""
    return Path(os.environ.get("HEDDLE_HOME") or Path(__file__).resolve().parent.parent)


def interval_of(context: Mapping[str, Any]) -> tuple[datetime, datetime]:
    """The interval [start, end) of event time that a run is about.

    The Params ``from`` and ``to`` of a run by hand, else the run's data interval (scheduled runs and
    backfills), else the last whole UTC day before the run was asked for. The same for every try of a run.
    """
    params = context["params"]
    if params.get("from") and params.get("to"):
        return _instant(params["from"]), _instant(params["to"])
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is not None and end is not None and start < end:
        return start, end
    asked = context["dag_run"].run_after
    midnight = asked.replace(hour=0, minute=0, second=0, microsecond=0)
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
    from spark_jobs.planning.live_runs import due, frontier
    from spark_jobs.planning.refresh import watermark_delay
    from spark_jobs.warehouse.plans import current_version
    from spark_jobs.warehouse.warehouse import Warehouse

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
        found = due(warehouse, clock, first)
        if found is None:
            return None
        return {
            "plan_version": found.plan_version,
            "from": format_instant(found.begin),
            "to": format_instant(found.end),
            "live": True,
            "late": found.late,
        }
    version = current_version(warehouse)
    if version is None or clock < last + watermark_delay(settings.streams):
        return None
    return {"plan_version": version, "from": begin.isoformat(), "to": end.isoformat()}


def micros(moment: datetime) -> int:
    """Microseconds since the epoch, exactly."""
    # pendulum's differences cannot be divided by a timedelta
    return int(moment.replace(microsecond=0).timestamp()) * 1_000_000 + moment.microsecond


def published_record(pinned: Mapping[str, Any]) -> dict[str, Any]:
    """What the run log says of the interval ``pinned``: the record of its newest publication.

    A run that found nothing to change has no record of its own: the one that stands is returned.
    Raises :class:`optimizer.errors.diagnostics.HeddleError` (HDL-596) if the interval was never published.
    """
    from optimizer.errors.diagnostics import HeddleError
    from optimizer.workload.instants import instant_of_text
    from spark_jobs.settings import settings
    from spark_jobs.warehouse import publish_log
    from spark_jobs.warehouse.warehouse import Warehouse

    rows = publish_log.rows_of_interval(
        Warehouse.open(settings().warehouse), *(instant_of_text(pinned[name]) or 0 for name in ("from", "to"))
    )
    published = [row for row in rows if row.event == "published"]
    if not published:
        raise HeddleError("HDL-596", f"nothing is published for {pinned['from']} to {pinned['to']}")
    return max(published, key=lambda row: row.revision).stored_record


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
    since = datetime.fromtimestamp(min(one.at for one in news) / 1e6, UTC) - timedelta(hours=1)
    known = {key_of(event.extra) for event in context["inlet_events"][ANSWERS].after(since.isoformat())}
    added = [one for one in news if one.key not in known]
    for one in added:
        print(f"new answers: {one.extra}")
        context["outlet_events"][ANSWERS].add(answers_of(one.query), extra=one.extra)
    return [one.extra for one in added]


def announce_run(context: Mapping[str, Any], pinned: Mapping[str, Any]) -> list[dict[str, Any]]:
    """:func:`announce` what this run of ``aggregate_windows`` published of the interval ``pinned``."""
    from spark_jobs.operations.announcements import of_run
    from spark_jobs.settings import settings
    from spark_jobs.sources.decoding import parse_instant
    from spark_jobs.warehouse.warehouse import Warehouse

    begin, end = (parse_instant(pinned[name]) for name in ("from", "to"))
    return announce(context, of_run(Warehouse.open(settings().warehouse), begin, end, context["run_id"]))


def announce_others(context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """:func:`announce` what no run of ``aggregate_windows`` announces, or none has, of the last days."""
    from spark_jobs.operations.announcements import of_others
    from spark_jobs.settings import settings
    from spark_jobs.warehouse.warehouse import Warehouse

    house = settings().warehouse
    if not Warehouse.stands(house):
        return []
    return announce(context, of_others(Warehouse.open(house, create=False), micros(datetime.now(UTC))))


class SharingPlanLink(BaseOperatorLink):
    """A button on the task's page: the plan version that this run is pinned to."""

    name = "Sharing plan"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """The address of the plan's page."""
        # The page shows the newest plan; the pinned version is in the XCom of pin_plan and in every answer.
        return "/sharing-plan/"


LAST_LINES = 5
"""What a job said last, which stands in the error of its task."""


class SubmitOperator(SparkSubmitOperator):
    """One of Heddle's jobs with the settings of every Heddle session: with a connection that names a master elsewhere
    (YARN, Kubernetes, a cluster of its own) by ``spark-submit``; with a local master, or of the type ``spark_connect``,
    as a process of Python here, which starts a JVM or asks that server only where there is enough to do.

    Parameters: ``job``, the name of its module in ``spark_jobs``; ``given``, the return value of the task before, from
    which :meth:`options` makes the job's options beside ``--warehouse`` and ``--plan-version``.
    """

    template_fields = (*SparkSubmitOperator.template_fields, "given")
    _process: subprocess.Popen[str] | None = None

    def __init__(self, *, job: str, given: Any, **arguments: Any) -> None:
        super().__init__(application=str(home() / "spark_jobs" / f"{job}.py"), **arguments)
        self.given = given

    def options(self, context: Any) -> list[str]:
        """More options of the job; none unless a subclass has some."""
        return []

    def execute(self, context: Any) -> None:
        """Submit the job with what is known only now: Spark's settings and the arguments."""
        from spark_jobs.session.session import spark_settings
        from spark_jobs.settings import settings

        self.application_args = [
            *("--warehouse", str(settings().warehouse)),
            *("--plan-version", str(self.given["plan_version"])),
            *self.options(context),
        ]
        here = self._environment()
        if here is not None:
            self._run_here(here)
            return
        # Read when the task runs, not when the file is parsed: the jar may come later than the DAG.
        self.conf: dict[Any, Any] = {**spark_settings(), **(self.conf or {})}
        super().execute(context)

    def _environment(self) -> dict[str, str] | None:
        """What a process here needs to know of the connection; None if it is for ``spark-submit``."""
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
        from airflow.sdk.exceptions import AirflowNotFoundException

        name = str(self._conn_id)
        try:
            found = SparkConnectHook.get_connection(name)
        except AirflowNotFoundException:
            return None  # spark-submit has a default for it
        if found.conn_type == SparkConnectHook.conn_type:
            # the URL may hold a token: it stands in no command line
            return {"HEDDLE_SPARK_REMOTE": SparkConnectHook(name).get_connection_url()}
        if not str(found.host).startswith("local") or found.extra_dejson.get("deploy-mode") == "cluster":
            return None
        asked = " ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in (self.conf or {}).items())
        options = {"PYSPARK_SUBMIT_ARGS": f"{asked} pyspark-shell"} if asked else {}
        return {"HEDDLE_SPARK_MASTER": str(found.host), **options}

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
        """End the job."""
        if self._process is not None:
            self._process.terminate()
            return
        super().on_kill()


class AggregateOperator(SubmitOperator):
    """``spark_jobs/aggregate_windows.py`` for one interval, in one Spark session.

    Parameters: ``pinned``, the return value of the task that pinned the plan
    (``{"plan_version", "from", "to"}``, perhaps with ``live`` and ``late``).
    """

    operator_extra_links = (SharingPlanLink(),)

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


class RepairOperator(SubmitOperator):
    """``spark_jobs/repair_results.py``: publish again what is of sources that changed, in one session.

    Parameters: ``outdated``, the return value of the task that looked (``{"plan_version", "days"}``).
    """

    def __init__(self, *, outdated: Any, **arguments: Any) -> None:
        super().__init__(job="repair_results", given=outdated, **arguments)

    def options(self, context: Any) -> list[str]:
        """How far back to look."""
        return ["--days", str(self.given["days"])]


class ViewsOperator(SubmitOperator):
    """``spark_jobs/create_views.py``: every query a view in Spark's catalogue, in one session. Skipped unless the
    setting ``HEDDLE_CATALOG_SCHEMA`` says where.

    Parameters: ``announced``, the return value of the task that announced the plan (``{"plan_version"}``).
    """

    def __init__(self, *, announced: Any, **arguments: Any) -> None:
        super().__init__(job="create_views", given=announced, **arguments)

    def execute(self, context: Any) -> None:
        """Submit the job if there is a place for views."""
        from airflow.sdk.exceptions import AirflowSkipException

        from spark_jobs.settings import settings

        if settings().catalog_schema is None:
            raise AirflowSkipException("HEDDLE_CATALOG_SCHEMA is not set: no views are made")
        super().execute(context)

    def options(self, context: Any) -> list[str]:
        """Where the views are to be."""
        from spark_jobs.settings import settings

        return ["--catalog-schema", str(settings().catalog_schema)]


class LandOperator(SparkSubmitOperator):
    """``spark_jobs/land_topic.py`` for one topic, in a session that has the jars for Kafka.

    Parameters: ``arguments``, of the job.
    """

    template_fields = (*SparkSubmitOperator.template_fields, "arguments")

    def __init__(self, *, arguments: Any, **more: Any) -> None:
        super().__init__(application=str(home() / "spark_jobs" / "land_topic.py"), **more)
        self.arguments = arguments

    def execute(self, context: Any) -> None:
        """Submit the job with what is known only now: Spark's settings and the arguments."""
        from spark_jobs.landing.kafka import session_settings

        self.conf: dict[Any, Any] = {**session_settings(), **(self.conf or {})}
        self.application_args = list(self.arguments)
        super().execute(context)


class HeddlePlugin(AirflowPlugin):
    """Registers the link, so that the api-server knows it."""

    name = "heddle"
    operator_extra_links = [SharingPlanLink()]
