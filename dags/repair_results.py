"""The DAG ``repair_results`` over the project of the environment."""

from heddle.airflow import repair_results

repair_results()
