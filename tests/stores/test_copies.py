"""Copies of what only Spark reads, in a store: commits by condition, files put once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.orc as po
import pytest

from optimizer.workload.streams import load_streams
from spark_jobs.store.settings import PROJECT
from spark_jobs.streams.copies.copying import sweep
from spark_jobs.streams.sources.decoding import read_split
from spark_jobs.streams.sources.files import splits_of
from tests.spark_jobs.laboratory import steady, table_of
from tests.stores.proxy import Fate, Rule, StoreProxy


@pytest.mark.longer
def test_a_copy_in_a_store_follows_its_files(place: str, proxy: StoreProxy, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    file = tmp_path / "streams.yaml"
    schema = "schema: {ts: timestamp, volume: long}"
    file.write_text(f"streams: {{trades: {{source: {{format: orc, path: data}}, time: ts, {schema}}}}}")
    stream = load_streams(file, None, f"{place}/copies")[0]["trades"]

    def copied() -> str:
        # Spark's workers have the environment that it was started with
        environment = os.environ | {"HEDDLE_COPIES": f"{place}/copies", "PYTHONPATH": str(PROJECT)}
        command = [sys.executable, "-m", "heddle.cli.app", "copy", "--streams", str(file)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()

    def volumes() -> list[int]:
        batches = [batch for split in splits_of(stream) for batch in read_split(stream, split, ["volume"])]
        return sorted(value for batch in batches for value in batch.column("volume").to_pylist())

    po.write_table(table_of(steady(9)), tmp_path / "data" / "a.orc")
    copied()
    assert volumes() == sorted(n * 7 % 13 for n in range(9))
    # a commit that stands and is told as failed is known as ours: nothing is copied twice
    proxy.set(0.0, Rule(Fate.LOSE_ANSWER, "PUT", r"_delta_log/\d{20}\.json"))
    po.write_table(table_of(steady(4, first=100)), tmp_path / "data" / "b.orc")
    assert copied() == "trades: copied 4 rows of 1 new piece"
    proxy.set()
    later = sorted(n * 7 % 13 for n in range(100, 104))
    assert volumes() == sorted([*(n * 7 % 13 for n in range(9)), *later])
    (tmp_path / "data" / "a.orc").unlink()
    assert copied() == "trades: copied 0 rows of 0 new pieces, 1 gone"
    assert volumes() == later
    assert sweep(stream, 0) == 1
    assert volumes() == later
