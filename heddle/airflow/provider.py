"""The entry point ``apache_airflow_provider``: what ``airflow providers`` lists."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Heddle as a provider of Airflow."""
    return {
        "package-name": "heddle",
        "name": "Heddle",
        "description": "Sliding-window aggregates over shared streams, on Spark",
    }
