"""A query that was registered before a rule of the language came keeps its meaning in commands and refreshes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from optimizer.language import reader
from spark_jobs.pipeline.planning.refresh import refresh_plan
from spark_jobs.store.warehouse.plans import current_version, load_plan
from spark_jobs.store.warehouse.warehouse import Warehouse

STREAMS = """\
streams:
  trades:
    source: {format: parquet, path: trades}
    schema: {ts: timestamp, symbol: string, volume: long}
    time: ts
"""
QUERY = """\
-- name: volumes
SELECT count(DISTINCT "volume") AS volumes FROM trades WINDOW RANGE '30 minutes' SLIDE '15 minutes' ON ts;
"""


def test_refresh_keeps_a_query_registered_with_a_quoted_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trades").mkdir()
    rows = {"ts": pa.array([0], pa.timestamp("us", "UTC")), "symbol": ["A"], "volume": [1]}
    pq.write_table(pa.table(rows), tmp_path / "trades/first.parquet")
    (tmp_path / "streams.yaml").write_text(STREAMS)
    (tmp_path / "queries.sql").write_text(QUERY)
    house = str(tmp_path / "warehouse")
    refresh = partial(refresh_plan, house, [str(tmp_path / "queries.sql")], str(tmp_path / "streams.yaml"))

    with monkeypatch.context() as before:
        before.setattr(reader, "quoted_names", lambda *arguments: [])
        assert refresh().diagnostics == ()
    assert [(problem.code, problem.severity) for problem in refresh().diagnostics] == [("HDL-243", "warning")]
    warehouse = Warehouse.open(house)
    plan = load_plan(warehouse, current_version(warehouse) or 0)
    assert [query.name for query in plan.workload.queries] == ["volumes"]
