"""Names that stored DAG runs have for :mod:`heddle.airflow.timetable`."""

from heddle.airflow.timetable import NextRefresh, RefreshTimetable, overloaded

__all__ = ["NextRefresh", "RefreshTimetable", "overloaded"]
