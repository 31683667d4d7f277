"""Answers what is due in a pod; its service account may write to the store."""

from datetime import datetime

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG

with DAG(
    "heddle_pod", schedule="*/15 * * * *", start_date=datetime(2026, 1, 1), catchup=False, max_active_runs=1
) as dag:
    KubernetesPodOperator(
        task_id="tick",
        image="registry.internal/heddle-spark:0.1.0",
        cmds=["heddle"],
        arguments=["tick", "--json", "--engine", "local"],
        env_vars={"HEDDLE_HOME": "/project", "HEDDLE_WAREHOUSE": "s3://analytics/heddle"},
        service_account_name="heddle",
        container_resources={"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "8Gi"}},
        on_finish_action="delete_succeeded_pod",
    )
