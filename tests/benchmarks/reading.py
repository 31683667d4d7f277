"""What reading the answers of one query among thousands costs: bytes read beside bytes of the answer.

    python -m tests.benchmarks.reading [--queries 2000] [--groups 1 5 50] [--days 30] [--json FILE]

Hourly windows, published by a run an hour, are read as those runs left them, and as maintenance does. Bytes are what
the process has read of files (logs and footers among them), those of the answer its Arrow buffers.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake.transaction import AddAction
from rich.console import Console
from rich.table import Table

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.windows.alignment import day_label
from optimizer.workload.instants import DAY
from optimizer.workload.values import DOUBLE, STRING, TIMESTAMP, Source, Stream, Workload
from spark_jobs.operations.maintenance import maintain
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.results.read import read
from spark_jobs.results.rows import AnswerRows, CarrierColumn
from spark_jobs.results.writer import ResultsFiles
from spark_jobs.store.warehouse.data_files import DataFile, now_millis
from spark_jobs.store.warehouse.warehouse import Warehouse

START = 1_372_636_800_000_000
"""2013-07-01T00:00:00Z."""

HOUR = DAY // 24


def filled(root: Path, queries: int, groups: int, hours: int) -> tuple[Warehouse, float]:
    """A warehouse with so many hours of answers, and the CPU seconds that writing a run's took (median)."""
    stream = Stream("trades", Source("parquet", "trades"), (("ts", TIMESTAMP), ("s", STRING), ("x", DOUBLE)), "ts")
    text = ";".join(
        f"-- name: query_{number:05}\nSELECT s, count(*) AS n, avg(x) AS mean FROM trades WHERE x > {number}"
        " WINDOW RANGE '1 hour' SLIDE '1 hour' ON ts GROUP BY s"
        for number in range(queries)
    )
    workload = Workload(parse(text, {"trades": stream}).queries, (stream,))
    warehouse = Warehouse.open(root)
    version, _ = publish_plan(warehouse, build_plan(workload, {"trades": 1}, "weave-share"))  # type: ignore[dict-item]
    seconds = []
    for hour in range(hours):
        began = time.process_time()
        files = list(_written(root / "results", workload, version, START + (hour + 1) * HOUR, groups))
        seconds.append(time.process_time() - began)
        actions = [AddAction(file.path, file.size, {"day": file.day}, now_millis(), True, file.stats) for file in files]
        with warehouse.lease() as token:
            warehouse.commit("results", warehouse.table("results"), actions, token)
    return warehouse, median(seconds)


def _written(root: Path, workload: Workload, version: int, instant: int, groups: int) -> Iterator[DataFile]:
    """The answers of an hour, as a task writes them."""
    chance = np.random.default_rng(instant)
    stamp = {"plan_version": pa.scalar(version), "revision": pa.scalar(1), "run_id": pa.scalar(f"scheduled/{instant}")}
    files = ResultsFiles(root, workload.queries, stamp)
    keys = pa.array([f'["group {number}"]' for number in range(groups)])
    numbers, instants = np.arange(groups), np.full(groups, instant)
    for query in workload.queries:
        carried = {
            "longs": CarrierColumn(chance.integers(0, 10**6, groups), None, 1),
            "doubles": CarrierColumn(chance.normal(size=groups), None, 1),
            "texts": CarrierColumn(np.empty(0, dtype=object), None, 0),
        }
        answers = AnswerRows("trades", query.name, query.window, keys, numbers, instants, carried, {})
        files.add(day_label(instant - 1), answers)
    yield from files.close()


def bytes_read() -> int:
    """What this process has read of files until now."""
    return int(Path("/proc/self/io").read_text().split()[1])


def reading(warehouse: Warehouse, name: str) -> dict[str, Any]:
    """The cost of reading a query."""
    before, began, cpu = bytes_read(), time.perf_counter(), time.process_time()
    table = read(warehouse, name, full=True)
    wall, cpu, size = time.perf_counter() - began, time.process_time() - cpu, bytes_read() - before
    return {"rows": len(table), "answer": table.nbytes, "read": size, "ratio": size / table.nbytes, "wall": wall} | {
        "cpu": cpu
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="reading", description="Bytes read for the answers of one query")
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 5, 50])
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    shown = Table(
        "groups", "files", "answers of a query", "bytes of them", "read", "times", "CPU s", "writing a run, s"
    )
    measurements = []
    for groups in options.groups:
        with tempfile.TemporaryDirectory() as place:
            warehouse, writing = filled(Path(place) / "warehouse", options.queries, groups, 24 * options.days)
            name = f"query_{options.queries // 3:05}"
            read(warehouse, name)
            for how in ("as runs left it", "maintained"):
                if how == "maintained":
                    maintain(warehouse)
                cost = reading(warehouse, name)
                files = len(warehouse.files("results", "", "9"))
                measurements.append({"groups": groups, "how": how, "files": files, "writing": writing} | cost)
                numbers = (cost["rows"], cost["answer"], cost["read"])
                texts = (f"{groups}, {how}", f"{files:,}", *(f"{number:,}" for number in numbers))
                shown.add_row(*texts, f"{cost['ratio']:.1f}", f"{cost['cpu']:.2f}", f"{writing:.3f}")
    Console(width=None if sys.stdout.isatty() else 140).print(shown)
    if options.json:
        options.json.write_text(json.dumps(measurements, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
