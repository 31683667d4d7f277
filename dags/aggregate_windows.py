"""The DAG ``aggregate_windows`` over the project of the environment."""

from heddle.airflow import aggregate_windows

aggregate_windows()
