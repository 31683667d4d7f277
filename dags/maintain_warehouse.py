"""The DAG ``maintain_warehouse`` over the project of the environment."""

from heddle.airflow import maintain_warehouse

maintain_warehouse()
