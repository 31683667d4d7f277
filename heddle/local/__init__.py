"""One machine: PostgreSQL, Airflow and the demo."""
