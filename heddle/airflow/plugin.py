"""What Airflow has of Heddle: pages, links, timetable and listener, by the entry point ``airflow.plugins``."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from heddle.airflow.attempts import Ends
from heddle.airflow.names import PAGES
from heddle.airflow.operators import SharingPlanLink, SparkLink
from heddle.airflow.timetable import NextRefresh, RefreshTimetable


class HeddlePlugin(AirflowPlugin):
    """Everything that the scheduler and the api-server have to know to show and run the DAGs."""

    name = "heddle"
    listeners = [Ends()]
    operator_extra_links = [SharingPlanLink(), SparkLink()]
    timetables = [RefreshTimetable]
    deadline_references = [NextRefresh]
    external_views = [
        {
            "name": name,
            "href": f"{PAGES}/{page}",
            "destination": "nav",
            "category": "browse",
            "url_route": route,
        }
        for name, page, route in (
            ("Answers", "answers", "heddle-answers"),
            ("Sharing plan", "", "sharing-plan"),
            ("Sharing plan: operations", "operations", "sharing-plan-operations"),
        )
    ]

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:
        """The pages, made in the api-server only."""
        from heddle.airflow.pages import airflow_app

        return [{"app": airflow_app(), "url_prefix": PAGES, "name": "Heddle sharing plan"}]
