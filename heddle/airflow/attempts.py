"""Every attempt of a task ends with its reason in its own log, even if only Airflow knows it.

Airflow 3.3 forks the process of a task, which writes the first line of the log, and then reports to the API server
that the attempt begins. If none answers within some ten seconds it kills that process, and only the scheduler's log
has the exception. ``airflow standalone`` starts the scheduler before the API server, so on a busy machine the runs
that were due met no server: hence :class:`PatientCoordinator`. The rest reports what a task's own process cannot:
that it was killed, lost or given up.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import httpx
import structlog
from airflow.executors.local_executor import LocalExecutor
from airflow.listeners import hookimpl
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.execution_time.coordinator import BaseCoordinator

PATIENCE_SECONDS = 300.0
"""For the API server to answer. A task's token is good for 600 s from when it was queued."""


class PatientCoordinator(BaseCoordinator):
    """Runs a task as Airflow does, but once the API server answers, and logs how its process ended if not well.

    Named in ``[sdk] coordinators``; works in the process that supervises the task. ``logger`` writes the task's log.
    """

    def execute_task(self, *, client: Any, logger: Any = None, **arguments: Any) -> BaseCoordinator.ExecutionResult:
        """Run the task's process once the server answers, and log in the task's log how it ended if it failed."""
        # the supervisor itself imports the coordinators
        from airflow.sdk.execution_time.supervisor import ActivitySubprocess

        log = logger or structlog.get_logger(__name__)
        try:
            wait_for_server(client, log)
            process = ActivitySubprocess.start(client=client, logger=logger, **arguments)
            code = process.wait()
        except BaseException as error:
            log.error(f"Airflow could not begin this attempt or record its end: {type(error).__name__}: {error}")
            raise
        if code:
            unheard = process.failed_heartbeats
            log.error(
                f"the process of this attempt ended with {getattr(code, 'name', f'exit code {code}')}"
                + (f" after {unheard} heartbeats that the API server did not take" if unheard else "")
            )
        return self.ExecutionResult(code, process.final_state)


def wait_for_server(client: Any, log: Any) -> None:
    """Return once the API server answers.

    Raises the last :class:`httpx.RequestError` when :data:`PATIENCE_SECONDS` are over, and ``AirflowException`` when
    Airflow is stopped meanwhile: a worker of its executor ignores SIGTERM.
    """
    before = signal.signal(signal.SIGTERM, _stop_waiting)
    give_up = time.monotonic() + PATIENCE_SECONDS
    try:
        while True:
            try:
                client.get("health")
                return
            except httpx.RequestError as error:
                if time.monotonic() > give_up:
                    raise
                log.warning(f"waiting for the API server: {type(error).__name__}: {error}")
                time.sleep(1.0)
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop_waiting(number: int, frame: object) -> NoReturn:
    raise AirflowException("Airflow was stopped while the attempt waited for the API server")


def append_reason(task_instance: Any, reason: str) -> None:
    """Append ``reason`` to the log of the attempt that ``task_instance`` is at."""
    from airflow.sdk.log import init_log_file
    from airflow.utils.helpers import log_filename_template_renderer

    line = {"timestamp": datetime.now(UTC).isoformat(), "level": "error", "event": reason, "logger": "heddle"}
    with init_log_file(log_filename_template_renderer()(ti=task_instance)).open("a") as log:
        log.write(json.dumps(line) + "\n")


class ExplainingExecutor(LocalExecutor):
    """Airflow's ``LocalExecutor`` that logs which attempts were lost with the scheduler that ran them."""

    def try_adopt_task_instances(self, tis: Sequence[Any]) -> Sequence[Any]:
        """Say in the logs of lost attempts why they ended."""
        for lost in tis:
            append_reason(lost, "Airflow was stopped or killed before this attempt had ended; the task is run again")
        return super().try_adopt_task_instances(tis)


class Ends:
    """A listener for the ends of attempts that the scheduler or a user decides."""

    @hookimpl
    def on_task_instance_failed(self, task_instance: Any, error: None | str | BaseException) -> None:
        """Say in an attempt's log why Airflow, not the task, ended it."""
        # An exception is the task's own, and in its log already.
        if isinstance(error, str):
            append_reason(task_instance, f"{error} (its audit log and the scheduler's log may say more)")
