"""Answers what is due every quarter of an hour; the project folder has heddle.toml with warehouse and streams."""

from datetime import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    "heddle_shell", schedule="*/15 * * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1
) as dag:
    BashOperator(task_id="tick", bash_command="heddle tick --json", cwd="/srv/metrics", retries=2)
