"""What the DAGs over one project have in common: their names in Airflow, and the settings that their tasks run with.

Imported while DAG files are parsed, so nothing heavy is imported here: Heddle's other packages, Spark and Great
Expectations come in inside tasks.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, AssetAlias, BaseOperator
from airflow.sdk import task as airflow_task

from heddle.airflow.names import check_prefix, pages_address, wrong_argument


@dataclass(frozen=True)
class DagSet:
    """The DAGs over one project.

    Without a prefix the names of DAGs and assets are those that other DAGs know. Another prefix is another set beside
    it in the same Airflow.

    Attributes
    ----------
    project
        The folder of ``heddle.toml``; "": the environment of the tasks says it (:mod:`spark_jobs.store.settings`).
    prefix
        Begins the ids of the DAGs, and the names and URIs of the assets.
    connection
        The connection that jobs are submitted by.
    session
        Lifetime of a session of ``aggregate_windows``; None: each refresh is a separate run.
    default_args
        Of all tasks: their owner, pool, callbacks.
    """

    project: str = ""
    prefix: str = ""
    connection: str = "spark_default"
    session: timedelta | None = None
    default_args: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        *,
        project: str | os.PathLike[str] = "",
        prefix: str = "",
        connection: str = "spark_default",
        session: str | None = None,
        **default_args: Any,
    ) -> DagSet:
        """The set that the arguments of a DAG file describe.

        ``session``: as ``15 minutes`` or ``1 hour``; default: ``HEDDLE_SESSION``. All other arguments are Airflow's
        default arguments of tasks: ``owner`` (default ``heddle``), ``pool``, ``queue``, ``on_failure_callback``.
        Raises HDL-584 for what is none of these, or a wrong value.
        """
        check_prefix(prefix)
        folder = os.fspath(project)
        if folder and not os.path.isabs(folder):  # noqa: PTH117 - of the worker, which may be another system
            raise wrong_argument(f"the project is {folder[:200]!r}", "its absolute path on every worker")
        known = inspect.signature(BaseOperator.__init__).parameters
        for name in default_args:
            if name not in known or name in ("self", "kwargs", "task_id"):
                raise wrong_argument(
                    f"no task has an argument {name[:100]!r}", "owner, pool, queue, on_failure_callback, …"
                )
        period = session_period(os.environ.get("HEDDLE_SESSION", "") if session is None else session)
        return cls(folder, prefix, connection, period, {"owner": "heddle", **default_args})

    def dag_id(self, name: str) -> str:
        """The id of one of the DAGs."""
        return f"{self.prefix}{name}"

    def defaults(self, **others: Any) -> dict[str, Any]:
        """Default arguments of the tasks of a DAG; ``others``: where the DAG file says nothing else."""
        return {**others, **self.default_args}

    def job(self, name: str = "heddle") -> dict[str, str]:
        """The arguments of a task that submits a job; ``name``: of the application."""
        return {"name": name, "conn_id": self.connection, "project": self.project, "pages": self.pages}

    def task(self, **options: Any) -> Callable[[Callable[..., Any]], Any]:
        """Airflow's ``@task``, whose function runs with the settings of the project."""

        def decorate(function: Callable[..., Any]) -> Any:
            @functools.wraps(function)
            def within(*given: Any, **named: Any) -> Any:
                with project_environment(self.project):
                    return function(*given, **named)

            return airflow_task(**options)(within)

        return decorate

    # ------------------------------------------------------------------------------------------- assets
    @functools.cached_property
    def plan(self) -> Asset:
        """A new version of the plan; extra: ``plan_version``, ``cost``, ``no_share``, ``shared``, ``trees``."""
        return Asset(f"{self.prefix}heddle_sharing_plan", uri=f"heddle://{self.prefix}sharing_plan")

    @functools.cached_property
    def results(self) -> Asset:
        """A published interval; extra: ``from`` and ``to`` as 2013-07-01T00:00:00Z, and what
        :data:`heddle.airflow.announcing.RESULT` names."""
        return Asset(f"{self.prefix}heddle_results", uri=f"heddle://{self.prefix}results")

    @functools.cached_property
    def refreshes(self) -> AssetAlias:
        """Outlet of tasks that emit :attr:`results` once for a publication. An asset as an outlet has an event for each
        success of the task: none for the second refresh of a session, and one more for each time the task is cleared.
        """
        return AssetAlias(f"{self.prefix}heddle_refreshes")

    @functools.cached_property
    def answers(self) -> AssetAlias:
        """All of :meth:`answers_of`, of a task that announces them: which queries are assets is not known when it is
        parsed."""
        return AssetAlias(f"{self.prefix}heddle_answers")

    def answers_of(self, query: str) -> Asset:
        """The asset of a query with the setting ``-- asset``: events are publications with other answers of it; extra:
        see :class:`spark_jobs.operations.announcements.Announcement`. Another DAG names it by its name alone."""
        return Asset(f"heddle://{self.prefix}answers/{query}")

    @property
    def pages(self) -> str:
        return pages_address(self.prefix)


@contextmanager
def project_environment(project: str) -> Iterator[None]:
    """Have the process of a task, its threads and the processes that it starts, be of a project; "": as they are."""
    before = os.environ.get("HEDDLE_PROJECT")
    try:
        if project:
            os.environ["HEDDLE_PROJECT"] = project
        yield
    finally:
        if before is not None:
            os.environ["HEDDLE_PROJECT"] = before
        elif project:
            os.environ.pop("HEDDLE_PROJECT", None)


def session_period(text: str) -> timedelta | None:
    """Lifetime of a session; None for "". Raises ValueError."""
    match = re.fullmatch(r"([1-9]\d{0,3}) (minute|hour)s?", text.strip(), re.ASCII)
    if text.strip() and match is None:
        raise ValueError(f"HEDDLE_SESSION is {text[:128]!r}: minutes or hours, as `15 minutes` or `1 hour`")
    return timedelta(**{f"{match[2]}s": int(match[1])}) if match is not None else None
