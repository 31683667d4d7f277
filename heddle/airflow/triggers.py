"""Waiting in the triggerer, which has one process for all that wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from heddle.airflow.runs import pinned_run

POKE_SECONDS = 60.0
"""Seconds between two looks at a warehouse."""


class PlanTrigger(BaseTrigger):
    """Fires when a run can begin: with what :func:`heddle.airflow.runs.pinned_run` returns for the interval.

    Parameters: ``project``, the folder of ``heddle.toml``, "": of the environment; ``begin``, ``end``, ``live``: of
    the run.
    """

    def __init__(self, project: str, begin: datetime, end: datetime, live: bool) -> None:
        super().__init__()
        self.project, self.begin, self.end, self.live = project, begin, end, live

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its parameters, from which a triggerer makes it again."""
        parameters = {"project": self.project, "begin": self.begin, "end": self.end, "live": self.live}
        return f"{type(self).__module__}.{type(self).__qualname__}", parameters

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until the run can begin."""
        while True:
            # a thread has a copy of the context, so the project is that of this look only
            pin = await asyncio.to_thread(self._look)
            if pin is not None:
                yield TriggerEvent(pin)
                return
            await asyncio.sleep(POKE_SECONDS)

    def _look(self) -> Any:
        from spark_jobs.store.settings import settings, use_project

        use_project(self.project)
        return pinned_run(settings(), self.begin, self.end, self.live)
