"""The DAG ``refresh_sharing_plan`` over the project of the environment."""

from heddle.airflow import refresh_sharing_plan

refresh_sharing_plan()
