"""A team's DAG on the answers of one query: it runs when they are new, reads them, and tells of slow paths.

`slow_paths` has the setting `-- asset` in queries.sql, so every publication that gives it other answers is an event of
the asset `heddle://answers/slow_paths`: new intervals, and old ones that late requests revised. A run is given all the
events since the one before. Copy this file into the folder of DAGs, and put your own way of telling people into
`notify`.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

QUERY = "slow_paths"
ANSWERS = Asset(f"heddle://answers/{QUERY}")


def notify(message: str) -> None:
    """Where an alert goes: here to the task's log. If this raises, the task is tried again, with all alerts."""
    print(f"ALERT {message}")


@dag(
    schedule=ANSWERS,
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["example"],
    params={"worst_ms": Param(510, type="number", minimum=0, description="slower requests are told (milliseconds)")},
)
def alert_on_slow_paths() -> None:
    @task(retries=2)
    def alert() -> list[str]:
        """Read the answers of the intervals that the events are about; what was told of them."""
        import pyarrow.compute as pc

        from spark_jobs.results.read import read
        from spark_jobs.store.settings import settings
        from spark_jobs.store.warehouse.warehouse import Warehouse
        from spark_jobs.streams.sources.decoding import parse_instant

        context = get_current_context()
        events: Any = context["triggering_asset_events"].get(ANSWERS, ())
        if not events:
            raise AirflowSkipException("this run was not triggered by new answers")
        warehouse, told = Warehouse.open(settings().warehouse, create=False), []
        for begin, end in sorted({(event.extra["from"], event.extra["to"]) for event in events}):
            answers = read(warehouse, QUERY, parse_instant(begin), parse_instant(end))
            for row in answers.filter(pc.greater(answers["worst_ms"], context["params"]["worst_ms"])).to_pylist():
                told.append(f"{row['path']} took {row['worst_ms']:g} ms before {row['window_end']:%Y-%m-%d %H:%M}")
        for message in told:
            notify(message)
        return told

    alert()


alert_on_slow_paths()
