"""The benchmark of scale, scaled down: the stream is what it says, every size is answered, nothing is left behind."""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from optimizer.workload.instants import DAY
from tests.benchmarks.scale import Size, bytes_of, measure, resident, shown, write_days
from tests.benchmarks.trades import DAY_START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_days_lie_in_files_of_their_own_and_one_day_is_as_it_is_in_a_longer_stream(tmp_path: Path) -> None:
    stream = write_days(tmp_path / "three", 3, 500)
    for day in range(3):
        (path,) = sorted((tmp_path / "three").glob(f"day-{day:04d}-*.parquet"))
        times = pq.read_table(path)["ts"].cast("int64").to_numpy()
        begin = DAY_START + day * DAY
        assert len(times) == 500 and (times[1:] >= times[:-1]).all() and begin <= times[0] < times[-1] < begin + DAY
    write_days(tmp_path / "one", 1, 500)
    assert pq.read_table(tmp_path / "one").equals(pq.read_table(tmp_path / "three" / "day-0000-0000.parquet"))
    assert Path(stream.source.path) == (tmp_path / "three").resolve() and bytes_of(tmp_path / "one") > 0


def test_the_ends_of_a_row_of_runs() -> None:
    size = Size(20, 20, runs=[1.0] * 10 + [3.0] * 10)
    assert size.last_over_first == 3.0
    assert resident() > 1 << 20


@pytest.mark.spark
@pytest.mark.longer
def test_a_small_scale(spark: SparkSession, tmp_path: Path) -> None:
    messages: list[str] = []
    sizes = measure(spark, [2, 1], 2_000, 3, 1, ["duckdb", "polars"], 2, tmp_path, messages.append)
    assert [size.days for size in sizes] == [1, 2] and [len(size.runs) for size in sizes] == [1, 2]
    assert 1.8 < sizes[1].answers / sizes[0].answers < 2.2 and sizes[0].written_bytes > 0
    assert all(set(size.peers) == {"duckdb", "polars"} for size in sizes) and not list(tmp_path.iterdir())
    console = Console(width=160, file=io.StringIO())
    for table in shown(sizes, 3):
        console.print(table)
    output = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"{sizes[1].answers:,}" in output and f"{sizes[1].cpu / sizes[0].cpu:.2f}" in output and asdict(sizes[0])
