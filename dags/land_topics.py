"""The DAG ``land_topics`` over the project of the environment."""

from heddle.airflow import land_topics

land_topics()
