"""The benchmark itself, scaled down: it runs, and says what it measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from optimizer.query import SECOND
from tests.benchmarks.sharing import DAY_START, GRANULE, generate, measure, tables, workload_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_generated_stream_and_workload(tmp_path: Path) -> None:
    stream = generate(tmp_path, 5_000)
    table = pq.read_table(stream.source.path)
    times = table["ts"].cast("int64").to_numpy()
    assert len(table) == 5_000 and (times[1:] >= times[:-1]).all()
    assert times[0] >= DAY_START and times[-1] < DAY_START + 86_400 * SECOND
    workload = workload_of(stream, 500)
    assert workload == workload_of(stream, 500)
    for query in workload.queries:
        assert query.window.range % (GRANULE * SECOND) == 0 and query.window.slide % (GRANULE * SECOND) == 0
        assert 1.5 <= query.window.overlap_factor <= 9.5


@pytest.mark.spark
def test_a_small_comparison(spark: SparkSession, tmp_path: Path) -> None:
    stream = generate(tmp_path, 20_000)
    said: list[str] = []
    found = measure(spark, stream, 20_000, queries=5, rounds=1, sample=2, scratch=tmp_path, report=said.append)
    assert found.sampled == ["q0000", "q0002"]
    assert len(found.shared.cpu) == len(found.unshared.cpu) == len(found.scan.cpu) == 1
    assert found.answers > 5 * 24 * 100 and len(said) == 2
    document = json.loads(json.dumps(found.to_json()))
    assert sum(document["stage_share"].values()) == pytest.approx(1.0)
    assert document["unshared_over_shared"] == pytest.approx(found.unshared.cpu[0] / found.shared.cpu[0])
    assert [table.row_count for table in tables([found])] == [1, 1]
