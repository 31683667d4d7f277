"""Servers on one machine: PostgreSQL, Airflow and the demo."""
