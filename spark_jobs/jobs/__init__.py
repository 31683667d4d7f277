"""Entry points for spark-submit, one for each job that a DAG triggers."""
