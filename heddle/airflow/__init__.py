"""Heddle's DAGs for a DAG file of Airflow.

>>> from heddle.airflow import dags                     # doctest: +SKIP
>>> dags(project="/srv/team_a", prefix="team_a_")       # doctest: +SKIP

:func:`dags` makes all of them. ``refresh_sharing_plan``, ``aggregate_windows``, ``repair_results``,
``maintain_warehouse`` and ``land_topics`` make one each, with the same arguments: those of
:meth:`heddle.airflow.dag_set.DagSet.of`. Imported while DAG files are parsed, so nothing heavy is imported here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from heddle.airflow.names import NAMES

if TYPE_CHECKING:
    from airflow.sdk import DAG

    from heddle.airflow.definitions.aggregate_windows import aggregate_windows
    from heddle.airflow.definitions.land_topics import land_topics
    from heddle.airflow.definitions.maintain_warehouse import maintain_warehouse
    from heddle.airflow.definitions.refresh_sharing_plan import refresh_sharing_plan
    from heddle.airflow.definitions.repair_results import repair_results

__all__ = ["dags"]
__all__ += ["aggregate_windows", "land_topics", "maintain_warehouse", "refresh_sharing_plan", "repair_results"]


def dags(**arguments: Any) -> tuple[DAG, ...]:
    """All of Heddle's DAGs over one project, with the arguments of :meth:`heddle.airflow.dag_set.DagSet.of`."""
    return tuple(__getattr__(name)(**arguments) for name in NAMES)


def __getattr__(name: str) -> Any:
    """Import a DAG's definition when it is first used: the command line imports this package too."""
    if name in NAMES:
        return getattr(import_module(f"{__name__}.definitions.{name}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
