"""Names that configurations of Airflow have for :mod:`heddle.airflow.attempts`."""

from heddle.airflow.attempts import ExplainingExecutor, PatientCoordinator

__all__ = ["ExplainingExecutor", "PatientCoordinator"]
