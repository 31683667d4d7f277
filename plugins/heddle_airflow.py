"""Heddle's plugin for an Airflow that has Heddle on its path and not installed; and names that DAGs import."""

from importlib.metadata import entry_points

from heddle.airflow.dag_set import DagSet
from heddle.airflow.operators import (
    AggregateOperator,
    LandOperator,
    PinPlan,
    RepairOperator,
    SessionOperator,
    ViewsOperator,
)

__all__ = ["ANSWERS", "PLAN", "REFRESHES", "RESULTS", "answers_of"]
__all__ += ["AggregateOperator", "LandOperator", "PinPlan", "RepairOperator", "SessionOperator", "ViewsOperator"]

_UNNAMED = DagSet()
PLAN, RESULTS, REFRESHES, ANSWERS = _UNNAMED.plan, _UNNAMED.results, _UNNAMED.refreshes, _UNNAMED.answers
answers_of = _UNNAMED.answers_of

if "heddle" not in entry_points(group="airflow.plugins").names:
    # Airflow reports a plugin that comes twice as an error
    from heddle.airflow.plugin import HeddlePlugin  # noqa: F401
